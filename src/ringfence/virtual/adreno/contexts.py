"""Contexts of the virtual KGSL, their queues, and the rings that execute them.

Rules are those of ``kgsl_drawobj.c``, ``adreno_drawctxt.c`` and ``adreno_dispatch.c`` of the 2025 driver: a
context has a queue of 50 batches; a ring takes the next batch from one of its contexts (which one, the
machine's seed decides) and executes it to its end; a batch that blocks keeps its ring, until the hang
detector ends it. Rings of other priorities preempt it.
"""

from __future__ import annotations

import dataclasses
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringfence.errors import FaultReport
from ringfence.hardware.adreno.kgsl import CONTEXT_FLAGS, ResetStatus
from ringfence.virtual.adreno.command_processor import Execution, Services
from ringfence.virtual.adreno.objects import ObjectTable
from ringfence.virtual.faults import GpuFailure
from ringfence.virtual.machine import Job

if TYPE_CHECKING:
    from ringfence.virtual.isa.ir3.dispatch import Dispatch
    from ringfence.virtual.machine import Machine

QUEUE_DEPTH = 50
RINGS = 4
PRIORITIES_PER_RING = 4
STEP_PACKETS = 256  # per step while no other ring has work
MAX_INTERLEAVED = 16  # per step otherwise
MAX_REPLAYS = 1


def newer_or_equal(a: int, b: int) -> bool:
    """Return whether timestamp ``a`` is ``b`` or newer, modulo 2^32."""
    return (a - b) & 0xFFFFFFFF < 0x80000000


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """Something to wait for before the rest of a queue may run."""

    passed: Callable[[], bool]
    text: str


@dataclass(slots=True)
class Batch:
    """A submission: buffers (address, size in bytes) to execute, or a marker if there are none."""

    timestamp: int
    buffers: Sequence[tuple[int, int]] = ()
    replays: int = 0


@dataclass(slots=True)
class Event:
    """``action`` is due when ``timestamp`` retires.

    The argument says whether it really did (or the context died).
    """

    timestamp: int
    action: Callable[[], None]


@dataclass(slots=True)
class Context:
    """A context. ``invalid`` after a fault, ``detached`` after its destruction.

    ``report`` tells about the fault.
    """

    id: int
    handle: int
    flags: int
    queued: int = 0
    consumed: int = 0
    retired: int = 0
    queue: deque[Batch | SyncPoint] = field(default_factory=deque)
    running: Batch | None = None
    invalid: bool = False
    detached: bool = False
    recovered: bool = False
    reset_status: ResetStatus = ResetStatus.NO_ERROR
    report: FaultReport | None = None
    events: list[Event] = field(default_factory=list)
    power_level: int | None = None

    def flag(self, name: str) -> int:
        return CONTEXT_FLAGS.get(self.flags, name)

    @property
    def ring(self) -> int:
        return self.flag("PRIORITY") // PRIORITIES_PER_RING

    @property
    def batches(self) -> int:
        """How many batches wait in the queue."""
        return sum(isinstance(entry, Batch) for entry in self.queue)

    @property
    def full(self) -> bool:
        return self.batches >= QUEUE_DEPTH

    def has_retired(self, timestamp: int) -> bool:
        return newer_or_equal(self.retired, timestamp)

    def head(self) -> Batch | None:
        """Return the batch that may run next; sync points that have passed are dropped on the way."""
        while self.queue:
            entry = self.queue[0]
            if isinstance(entry, Batch):
                return entry
            if not entry.passed():
                return None
            self.queue.popleft()
        return None


class Ring:
    """One of the ring buffers of a GPU, and the engine that executes it."""

    def __init__(
        self,
        machine: Machine,
        services: Services,
        objects: ObjectTable,
        contexts: Callable[[], list[Context]],
        changed: Callable[[Context], None],
    ) -> None:
        self._machine = machine
        self._services = services
        self._objects = objects
        self._contexts = contexts
        self._changed = changed
        self._context: Context | None = None
        self._execution: Execution | None = None
        self._in_program = False
        self._stopped_at: float | None = None
        self._order = random.Random(machine.seed)

    # ----- engine -----------------------------------------------------------------------------

    def ready(self) -> bool:
        if self._in_program:
            return False
        if self._execution is not None:
            return self._execution.can_run()
        return any(context.head() is not None for context in self._contexts())

    def polling(self) -> bool:
        return self._execution is not None and self._execution.polling is not None

    def next_event(self) -> float | None:
        return None

    def step(self) -> Job | None:
        if self._execution is None:
            self._start()
        if self._execution is None:
            return None
        try:
            return self._execute(self._execution)
        except GpuFailure as failure:
            self.fail(failure.report)
            return None

    def abort(self, report: FaultReport) -> bool:
        if self._execution is None:
            return False
        self._in_program = False
        self._lose(self._execution.located(report))
        return True

    # ----- execution --------------------------------------------------------------------------

    def _start(self) -> None:
        waiting = [context for context in self._contexts() if context.head() is not None]
        context = waiting[0] if len(waiting) == 1 else self._machine.random.choice(waiting)
        batch = context.queue.popleft()
        assert isinstance(batch, Batch)
        self._context = context
        context.running = batch
        context.consumed = batch.timestamp
        self._changed(context)
        if self._machine.coherent:
            self._objects.acquire()
        self._restart(batch)
        self._machine.notify()

    def _restart(self, batch: Batch) -> None:
        assert self._context is not None
        skipped = self._context.flag("IFH_NOP")
        # Whoever looks at the state of each program run wants to see it as it is when the program is started.
        shuffled = self._machine.strict and self._machine.on_dispatch is None
        order = self._order if shuffled else None
        self._execution = Execution(self._services, () if skipped else batch.buffers, order)
        self._stopped_at = None

    def _execute(self, execution: Execution) -> Job | None:
        dispatch = execution.run(self._budget())
        if dispatch is not None:
            self._stopped_at = None
            return self._job(execution, dispatch)
        if execution.polling is not None or execution.hung:
            if self._stopped_at is None:
                self._stopped_at = self._machine.clock.now()
            return None
        self._stopped_at = None
        if execution.done:
            self._finish()
        return None

    def _budget(self) -> int:
        if self._machine.runnable > 1:
            return self._machine.random.randint(1, MAX_INTERLEAVED)
        return STEP_PACKETS

    def _job(self, execution: Execution, dispatch: Dispatch) -> Job:
        machine = self._machine
        x, y, z = dispatch.groups
        machine.clock.charge(machine.costs.dispatch + machine.costs.group * x * y * z)
        executor, memory = machine.executor("ir3"), self._services.memory
        self._in_program = True
        if machine.on_dispatch is not None:
            machine.on_dispatch(execution.state, dispatch)
        if machine.coherent:
            self._objects.acquire()

        def done(report: FaultReport | None) -> None:
            if machine.coherent:
                self._objects.publish()
            if self._execution is not execution:
                return  # its context was destroyed, and nobody waits for it any more
            self._in_program = False
            if report is None:
                execution.advance()
                return
            named = dataclasses.replace(report, program=report.program or dispatch.name)
            self.fail(named if named.packet else execution.located(named))

        return Job(lambda: executor.run(dispatch, memory), done)

    def _finish(self) -> None:
        context, batch = self._current()
        if batch.replays and context.flag("INVALIDATE_ON_FAULT"):
            assert context.report is not None
            self._lose(context.report)
            return
        self._clear()
        if self._machine.coherent:
            self._objects.publish()
        lost = self._machine.faults.active and self._machine.faults.lost("timestamp")
        if not lost:
            context.retired = batch.timestamp
        if batch.replays:
            context.recovered = True
        self._changed(context)

    def _current(self) -> tuple[Context, Batch]:
        assert self._context is not None and self._context.running is not None
        return self._context, self._context.running

    def _clear(self) -> None:
        if self._context is not None:
            self._context.running = None
        self._context, self._execution, self._stopped_at = None, None, None
        self._machine.notify()

    # ----- faults -----------------------------------------------------------------------------

    def hang_time(self) -> float | None:
        """Return when the ring will have been without progress for too long."""
        return None if self._stopped_at is None else self._stopped_at + self._machine.hang_timeout

    def hang(self) -> None:
        """The hang detector's verdict."""
        execution = self._execution
        assert execution is not None
        why = "it stopped"
        if execution.polling is not None:
            why = f"it waits for {execution.polling.text}"
        seconds = f"{self._machine.hang_timeout:g} s"
        text = f"the command processor made no progress for {seconds}: {why}"
        self.fail(execution.located(FaultReport("hang", text)))

    def fail(self, report: FaultReport) -> None:
        """End what is running, or let it start again once if its context tolerates faults."""
        context, batch = self._current()
        context.reset_status = ResetStatus.GUILTY_CONTEXT_RESET_EXT
        context.report = report
        if context.flag("NO_FAULT_TOLERANCE") or batch.replays >= MAX_REPLAYS:
            self._lose(report)
            return
        batch.replays += 1
        self._machine.notes.approximate(
            "KGSL fault tolerance",
            "a batch that faults is executed once more, then its context is invalidated",
        )
        self._restart(batch)

    def _lose(self, report: FaultReport) -> None:
        context, _ = self._current()
        self._clear()
        context.reset_status = ResetStatus.GUILTY_CONTEXT_RESET_EXT
        context.report = report
        context.invalid = True
        context.queue.clear()
        context.consumed = context.retired = context.queued
        self._changed(context)

    def abandon(self, context: Context) -> None:
        """Stop executing a context that is being destroyed."""
        if self._context is context:
            self._in_program = False
            self._clear()


class HangDetector:
    """The engine that watches the rings for progress."""

    def __init__(self, machine: Machine, rings: Sequence[Ring]) -> None:
        self._machine = machine
        self._rings = rings

    def _due(self) -> list[Ring]:
        now = self._machine.clock.now()
        return [ring for ring in self._rings if (when := ring.hang_time()) is not None and when <= now]

    def ready(self) -> bool:
        return bool(self._due())

    def polling(self) -> bool:
        return False

    def next_event(self) -> float | None:
        times = (ring.hang_time() for ring in self._rings)
        return min((when for when in times if when is not None), default=None)

    def step(self) -> Job | None:
        for ring in self._due():
            # A poll that passes at the last moment is progress, not a hang.
            if not ring.ready():
                ring.hang()
        return None

    def abort(self, report: FaultReport) -> bool:
        return False
