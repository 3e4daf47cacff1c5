"""User queues of the virtual KFD, and the engines that run them.

Every live queue is an engine; the machine interleaves them in an order of its seed. A queue that fails stops
for good: its client has to destroy it. Rules are those of ``kfd_process_queue_manager.c``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringfence.errors import FaultReport
from ringfence.hardware.amd.kfd import DOORBELL_BYTES
from ringfence.virtual.amd.command_processor import CommandProcessor
from ringfence.virtual.amd.objects import MemoryObject, ObjectTable
from ringfence.virtual.amd.topology import Card
from ringfence.virtual.faults import GpuFailure, GpuWasReset
from ringfence.virtual.machine import SLOWER, Job
from ringfence.virtual.memory import MemoryFault

if TYPE_CHECKING:
    from ringfence.virtual.isa.rdna.dispatch import Dispatch
    from ringfence.virtual.machine import Machine

STEP_PACKETS = 256  # per step while no other queue has work
MAX_INTERLEAVED = 16  # per step otherwise


@dataclass(slots=True, eq=False)
class Queue:
    """A queue of a card. ``buffers`` are the objects that it keeps mapped.

    ``active`` is cleared by UPDATE_QUEUE; ``report`` says why the queue stopped.
    """

    id: int
    card: Card
    doorbell_index: int
    processor: CommandProcessor
    buffers: Sequence[MemoryObject] = ()
    active: bool = True
    watched: bool = True
    report: FaultReport | None = None
    engine: QueueEngine | None = field(default=None, repr=False)

    @property
    def stopped(self) -> bool:
        return self.report is not None

    @property
    def doorbell_offset(self) -> int:
        """Bytes into the doorbells of the card."""
        return self.doorbell_index * DOORBELL_BYTES


class QueueEngine:
    """Runs one queue.

    ``progressed`` is told that a program has ended, ``failed`` about failures, with the memory fault if it
    is one, and whether the whole GPU was reset.
    """

    def __init__(
        self,
        machine: Machine,
        queue: Queue,
        objects: ObjectTable,
        failed: Callable[[Queue, FaultReport, MemoryFault | None, bool], None],
        progressed: Callable[[], None],
    ) -> None:
        self.queue = queue
        self._machine = machine
        self._objects = objects
        self._failed = failed
        self._progressed = progressed
        self._in_program = False
        self._stopped_at: float | None = None
        self._destroyed = False
        self._order = random.Random(f"{machine.seed} {queue.card.index} {queue.doorbell_index}")

    # ----- engine -----------------------------------------------------------------------------

    def ready(self) -> bool:
        queue = self.queue
        if self._in_program or queue.report is not None or not queue.active:
            return False
        processor = queue.processor
        if processor.polling is not None and self._objects.has_copies:
            self._objects.acquire()
        return processor.can_run()

    def polling(self) -> bool:
        """Return whether to look at memory now and then: at what a packet polls, or at a doorbell that
        clients store to without telling the machine.
        """
        queue = self.queue
        if queue.report is not None or not queue.active:
            return False
        return queue.watched or queue.processor.polling is not None

    def next_event(self) -> float | None:
        return None

    def step(self) -> Job | None:
        processor = self.queue.processor
        # Whoever looks at the registers of each launch wants to see them as they are when it is started.
        shuffled = self._machine.strict and self._machine.on_dispatch is None
        processor.order = self._order if shuffled else None
        dispatch = None
        try:
            dispatch = processor.run(self._budget())
        except GpuFailure as failure:
            cause = failure.__cause__
            fault = cause if isinstance(cause, MemoryFault) else None
            self._fail(failure.report, fault, reset=isinstance(failure, GpuWasReset))
            return None
        finally:
            if dispatch is None and self._objects.has_copies:
                self._objects.publish()
        if dispatch is not None:
            self._stopped_at = None
            return self._job(dispatch)
        stopped = processor.polling is not None or processor.hung
        self._stopped_at = self._machine.clock.now() if stopped else None
        return None

    def abort(self, report: FaultReport) -> bool:
        self._in_program = False
        self._fail(self.queue.processor.located(report), None)
        return True

    # ----- execution --------------------------------------------------------------------------

    def _budget(self) -> int:
        if self._machine.runnable > 1:
            return self._machine.random.randint(1, MAX_INTERLEAVED)
        return STEP_PACKETS

    def _job(self, dispatch: Dispatch) -> Job:
        machine, processor = self._machine, self.queue.processor
        x, y, z = dispatch.groups
        machine.clock.charge(machine.costs.dispatch + machine.costs.group * x * y * z)
        executor, memory = machine.executor("rdna"), processor.memory
        self._in_program = True
        if machine.on_dispatch is not None:
            machine.on_dispatch(processor.registers, dispatch)

        def done(report: FaultReport | None) -> None:
            self._in_program = False
            self._progressed()
            if self._destroyed or self.queue.stopped:
                return  # nobody waits for it any more
            if report is None:
                processor.advance()
                return
            self._fail(
                report if report.packet else processor.located(report),
                _memory_fault(report),
            )

        return Job(lambda: executor.run(dispatch, memory), done)

    # ----- faults -----------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Whether the queue cannot go on."""
        return self._stopped_at is not None

    def hang_time(self) -> float | None:
        """Return when the queue will have been without progress for too long.

        A queue that waits for memory has more patience while a client may be about to change it: the real
        driver has no limit at all.
        """
        queue, machine = self.queue, self._machine
        if self._stopped_at is None or queue.stopped or not queue.active:
            return None
        patience = SLOWER if queue.processor.polling is not None and machine.clients_work() else 1
        return self._stopped_at + patience * machine.hang_timeout

    def wait_on(self) -> None:
        """Something else made progress, which this queue may wait for."""
        if self._stopped_at is not None:
            self._stopped_at = self._machine.clock.now()

    def hang(self) -> None:
        """The hang detector's verdict."""
        processor = self.queue.processor
        why = "it stopped" if processor.polling is None else f"it waits for {processor.polling.text}"
        assert self._stopped_at is not None
        seconds = self._machine.clock.now() - self._stopped_at
        text = f"the queue made no progress for {seconds:.3g} s: {why}"
        self._fail(processor.located(FaultReport("hang", text)), None)

    def _fail(self, report: FaultReport, fault: MemoryFault | None, *, reset: bool = False) -> None:
        self._stopped_at = None
        self._failed(self.queue, report, fault, reset)

    def destroy(self) -> None:
        """The queue is gone; a program that is running ends unnoticed."""
        self._destroyed = True


def _memory_fault(report: FaultReport) -> MemoryFault | None:
    """Return the fault of memory that a program reported; its own private or local memory is none."""
    if report.kind != "memory" or report.address is None or report.nearest is None:
        return None
    return MemoryFault(report.address, "write" in report.message, report.nearest)


class HangDetector:
    """The engine that watches the queues for progress."""

    def __init__(self, machine: Machine, engines: Callable[[], Sequence[QueueEngine]]) -> None:
        self._machine = machine
        self._engines = engines

    def _due(self) -> list[QueueEngine]:
        stopped = [engine for engine in self._engines() if engine.stopped]
        if not stopped:
            return stopped
        now = self._machine.clock.now()
        return [e for e in stopped if (when := e.hang_time()) is not None and when <= now]

    def ready(self) -> bool:
        return bool(self._due())

    def polling(self) -> bool:
        return False

    def next_event(self) -> float | None:
        times = (engine.hang_time() for engine in self._engines())
        return min((when for when in times if when is not None), default=None)

    def step(self) -> Job | None:
        for engine in self._due():
            # A poll that passes at the last moment is progress, not a hang.
            if not engine.ready():
                engine.hang()
        return None

    def abort(self, report: FaultReport) -> bool:
        return False
