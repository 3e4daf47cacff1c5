"""What the virtual KFD holds for its client: address spaces, memory, events, doorbells, queues."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ringfence.errors import FaultReport, PortError
from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.chips import Generation
from ringfence.hardware.amd.kfd import AllocFlags, EventType, ResetCause, ResetType
from ringfence.hardware.amd.pm4 import CLOCK_COUNTER_HZ
from ringfence.hardware.amd.registers import registers_for
from ringfence.virtual.amd.command_processor import CommandProcessor, Ring, Services
from ringfence.virtual.amd.events import Events
from ringfence.virtual.amd.look_ahead import LookAhead
from ringfence.virtual.amd.objects import MemoryObject, ObjectTable
from ringfence.virtual.amd.programs import NotExecutable, Programs
from ringfence.virtual.amd.queues import Queue, QueueEngine
from ringfence.virtual.amd.topology import Card
from ringfence.virtual.checks import Refused
from ringfence.virtual.memory import PAGE, Backing, MemoryFault, Range

if TYPE_CHECKING:
    from ringfence.virtual.machine import Machine

MAX_QUEUES_PER_CARD = 127  # of a process, under the hardware scheduler


class Process:
    """The client's side of ``/dev/kfd``; it ends when the last descriptor is closed."""

    def __init__(self, machine: Machine, cards: tuple[Card, ...]) -> None:
        self.machine = machine
        self.cards = cards
        self.objects = ObjectTable(machine, cards)
        self.events = Events(machine)
        self.queues: dict[int, Queue] = {}
        self.engines: tuple[QueueEngine, ...] = ()
        self.vms: dict[int, int] = {}  # card -> handle of the render node whose address space it is
        self.lost: set[int] = set()  # cards that were reset
        self.runtime_enabled = False
        self.closed = False
        self.doorbell_pages: dict[int, Card] = {}  # where the client has mapped which doorbells
        self._doorbells: dict[int, Backing] = {}
        self._services: dict[int, Services] = {}

    def close(self) -> None:
        """Destroy everything."""
        for number in list(self.queues):
            self.destroy_queue(number)
        self.events.close()
        self.objects.free_all()
        for backing in self._doorbells.values():
            self.machine.defer(backing.release)
        self.closed = True

    # ----- cards ------------------------------------------------------------------------------

    def card(self, gpu_id: int) -> Card:
        """Return the card with a gpu_id; :class:`Refused` EINVAL if there is none."""
        for card in self.cards:
            if card.gpu_id == gpu_id:
                return card
        known = ", ".join(f"{card.gpu_id:#x}" for card in self.cards)
        raise Refused(errno.EINVAL, f"no GPU has the gpu_id {gpu_id:#x}; there are {known}")

    def bound(self, gpu_id: int, code: int = errno.ENODEV) -> Card:
        """Return a card on which the process has an address space."""
        card = self.card(gpu_id)
        if card.index not in self.vms:
            raise Refused(code, f"the process has no address space on {card.name}: ACQUIRE_VM comes first")
        return card

    def usable(self, card: Card) -> None:
        """Refuse a card that was reset until the process has destroyed the queues that it had there."""
        if card.index not in self.lost:
            return
        if any(queue.card is card for queue in self.queues.values()):
            raise Refused(errno.EIO, f"{card.name} was reset: destroy its queues and begin again")
        self.lost.discard(card.index)

    def services(self, card: Card) -> Services:
        """Return what the queues of a card share."""
        found = self._services.get(card.index)
        if found is None:
            machine, memory = self.machine, self.objects.spaces[card.index]
            found = self._services[card.index] = Services(
                card,
                memory,
                registers_for(card.chip.target),
                Programs(
                    memory,
                    self._executable,
                    machine.notes,
                    known=card.chip.generation is Generation.GFX11,
                ),
                machine.faults,
                lambda: int(machine.clock.now() * CLOCK_COUNTER_HZ),
                self.events.interrupt,
                self._acquire,
                self._publish,
                self._fetched(LookAhead()),
                (lambda: machine.clock.charge(machine.costs.packet)) if machine.clock.modelled else None,
            )
        return found

    def _executable(self, inside: Range) -> bool:
        entry = self.objects.by_range(inside)
        return entry is not None and AllocFlags.EXECUTABLE in entry.flags

    def _fetched(self, ahead: LookAhead) -> Callable[[CommandProcessor, tuple[int, ...]], None]:
        def fetched(processor: CommandProcessor, words: tuple[int, ...]) -> None:
            dispatches = ahead.dispatches(processor, words)
            if dispatches:
                self.machine.executor("rdna").prepare(dispatches)

        return fetched

    def _acquire(self) -> None:
        if self.objects.has_copies:
            self.objects.acquire()

    def _publish(self) -> None:
        if self.objects.has_copies:
            self.objects.publish()

    # ----- doorbells --------------------------------------------------------------------------

    def doorbells(self, card: Card) -> Backing:
        """Return the page of a card's doorbells."""
        found = self._doorbells.get(card.index)
        if found is None:
            found = self._doorbells[card.index] = Backing(kfd.DOORBELL_SLICE_BYTES)
        return found

    def forget_doorbells(self, address: int) -> None:
        """The client has unmapped doorbells."""
        self.doorbell_pages.pop(address, None)

    @property
    def doorbell_backings(self) -> int:
        return 0 if self.closed else len(self._doorbells)

    def bell(self, address: int) -> Callable[[int], None] | None:
        """Return what rings the doorbell that the client has mapped at ``address``."""
        found = self._doorbell_at(address)
        return None if found is None else self._bell(*found)

    def _doorbell_at(self, address: int) -> tuple[Card, int] | None:
        for start, card in self.doorbell_pages.items():
            offset = address - start
            if 0 <= offset < kfd.DOORBELL_SLICE_BYTES:
                return card, offset
        return None

    def _bell(self, card: Card, offset: int) -> Callable[[int], None]:
        word = self._word(self.doorbells(card).host_address + offset)
        for queue in self.queues.values():
            if queue.card is card and queue.doorbell_offset == offset:
                queue.watched = False

        def ring(value: int) -> None:
            if self.closed:
                raise PortError("doorbell", errno.EBADF, "/dev/kfd was closed")
            word.value = value

        return ring

    @staticmethod
    def _word(address: int) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_address(address)

    # ----- queues -----------------------------------------------------------------------------

    def create_queue(self, card: Card, argument: kfd.CREATE_QUEUE) -> Queue:
        """Create a PM4 queue whose arguments were checked, except its buffers."""
        space = self.objects.spaces[card.index]

        def mapping_at(address: int) -> tuple[int, int] | None:
            inside = space.find(address)
            return None if inside is None else (inside.start, inside.length)

        refusal = kfd.buffer_refusal(argument, card.sizes, mapping_at)
        if refusal is not None:
            raise Refused(refusal.errno, str(refusal))
        self._check_pointers(argument)
        doorbell = self._free_doorbell(card)
        self.machine.notes.approximate(
            "AMD caches", "cache actions of packets are checked and do nothing: memory is always coherent"
        )
        ring = Ring(
            argument.ring_base_address,
            max(argument.ring_size, kfd.MIN_QUEUE_RING_SIZE) // 4,
            self._word(self.doorbells(card).host_address + doorbell * kfd.DOORBELL_BYTES),
            self._host_word(card, argument.read_pointer_address),
            self._host_word(card, argument.write_pointer_address),
        )
        ring.doorbell.value = 0
        processor = CommandProcessor(
            self.services(card), ring, eop=bool(argument.eop_buffer_address), strict=self.machine.strict
        )
        queue = Queue(self._free_id(), card, doorbell, processor, self._queue_buffers(card, argument))
        queue.active = self._is_active(argument.ring_base_address, argument.queue_percentage)
        queue.engine = QueueEngine(self.machine, queue, self.objects, self._failed, self._progressed)
        for entry in queue.buffers:
            entry.queues[card.index] = entry.queues.get(card.index, 0) + 1
        self.queues[queue.id] = queue
        self._collect_engines()
        self.machine.notify()  # its doorbell is to be looked at
        return queue

    def _check_pointers(self, argument: kfd.CREATE_QUEUE) -> None:
        for name in ("read_pointer_address", "write_pointer_address"):
            if getattr(argument, name) % 8:
                self.machine.notes.unsupported("KFD queue pointers", "CREATE_QUEUE wants them 8-byte aligned")
                raise Refused(errno.EINVAL, f"{name} is {getattr(argument, name):#x}, not 8-byte aligned")

    def _host_word(self, card: Card, address: int) -> ctypes.c_uint64:
        """Return the word at a GPU address that stays mapped as long as the queue lives."""
        inside = self.objects.spaces[card.index].find(address)
        assert inside is not None
        return self._word(inside.host_address + address - inside.start)

    def _queue_buffers(self, card: Card, argument: kfd.CREATE_QUEUE) -> Sequence[MemoryObject]:
        addresses = [
            argument.ring_base_address,
            argument.read_pointer_address,
            argument.write_pointer_address,
            argument.ctx_save_restore_address,
        ]
        if argument.eop_buffer_address:
            addresses.append(argument.eop_buffer_address)
        found = (self.objects.mapped_at(card, address) for address in addresses)
        return [entry for entry in found if entry is not None]

    @staticmethod
    def _is_active(ring: int, percentage: int) -> bool:
        return ring != 0 and kfd.QUEUE_PERCENTAGE.get(percentage, "PERCENT") != 0

    def _free_id(self) -> int:
        return next(i for i in range(len(self.queues) + 1) if i not in self.queues)

    def _free_doorbell(self, card: Card) -> int:
        taken = {queue.doorbell_index for queue in self.queues.values() if queue.card is card}
        if len(taken) >= MAX_QUEUES_PER_CARD:
            raise Refused(errno.ENOSPC, f"the process has {len(taken)} queues on {card.name}")
        return next(i for i in range(len(taken) + 1) if i not in taken)

    def destroy_queue(self, number: int) -> None:
        """Destroy a queue; what it was doing ends unnoticed."""
        queue = self.queues.pop(number)
        assert queue.engine is not None
        queue.engine.destroy()
        self._collect_engines()
        for entry in queue.buffers:
            if queue.card.index in entry.queues:
                entry.queues[queue.card.index] -= 1

    def _collect_engines(self) -> None:
        self.engines = tuple(queue.engine for queue in self.queues.values() if queue.engine is not None)

    # ----- faults -----------------------------------------------------------------------------

    def _failed(self, queue: Queue, report: FaultReport, fault: MemoryFault | None, reset: bool) -> None:
        """A queue failed: stop what has to stop and signal the event that tells of it."""
        queue.report = report
        if fault is not None or reset:
            self._stop_others(queue, report)
        if fault is not None:
            self._raise_memory(queue.card, fault)
            return
        if reset:
            self._lose(queue.card)
        self.events.raise_exception(
            EventType.HW_EXCEPTION,
            kfd.HSA_HW_EXCEPTION_DATA(
                reset_type=ResetType.WHOLE_GPU_RESET if reset else ResetType.PER_ENGINE_RESET,
                reset_cause=ResetCause.GPU_HANG,
                memory_lost=int(reset),
                gpu_id=queue.card.gpu_id,
            ),
        )

    def _progressed(self) -> None:
        """A program has ended, however long it took this host: what waits for it does not hang."""
        for engine in self.engines:
            engine.wait_on()

    def _stop_others(self, culprit: Queue, report: FaultReport) -> None:
        text = f"stopped with queue {culprit.id} of the same GPU, which failed: {report}"
        for queue in self.queues.values():
            if queue.card is culprit.card and not queue.stopped:
                queue.report = FaultReport(report.kind, text, address=report.address, nearest=report.nearest)

    def _raise_memory(self, card: Card, fault: MemoryFault) -> None:
        mapped = self.objects.spaces[card.index].find(fault.address) is not None
        failure = kfd.MEMORY_EXCEPTION_FAILURE(
            NotPresent=int(not mapped),
            ReadOnly=int(mapped and fault.write),
            NoExecute=int(isinstance(fault, NotExecutable)),
        )
        payload = kfd.HSA_MEMORY_EXCEPTION_DATA(
            failure=failure, va=fault.address & -PAGE, gpu_id=card.gpu_id, ErrorType=kfd.MemoryError.NO_RAS
        )
        self.events.raise_exception(EventType.MEMORY, payload)

    def _lose(self, card: Card) -> None:
        """The GPU was reset: VRAM has lost its content, and the process has to begin again."""
        self.lost.add(card.index)
        for entry in self.objects:
            if entry.card is card and AllocFlags.VRAM in entry.flags:
                ctypes.memset(entry.host_address, 0, entry.size)
