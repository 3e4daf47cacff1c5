"""The command processor (MEC) of a virtual AMD GPU: executes the ring of one PM4 compute queue.

Packets are executed in order; polls block and are resumed. Programs are another matter: the command
processor goes on while they run, until CS_PARTIAL_FLUSH tells it to wait, and RELEASE_MEM takes effect once
all earlier ones are done. Without an order (fast mode) each runs to its end at once. With one, programs in
flight run in a shuffled order, as late as possible: what relies on a wait that is not there gets wrong
results.

A packet is checked and prepared once for its words, and an indirect buffer remembers what was prepared for
its packets as long as its words stay the same. Everything that is not modelled is an error that names it.
"""

from __future__ import annotations

import bisect
import ctypes
import random
import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ringfence.errors import FaultReport
from ringfence.hardware.amd import pm4
from ringfence.hardware.amd.chips import Generation
from ringfence.hardware.amd.registers import RegisterMap
from ringfence.virtual.amd.packets import Argument, Do, check_register, header, prepare
from ringfence.virtual.amd.programs import NotExecutable, Program, Programs
from ringfence.virtual.amd.state import SH_COUNT, SH_FIRST, Launch, Registers, Size
from ringfence.virtual.amd.topology import Card
from ringfence.virtual.checks import BadPacket, BadState
from ringfence.virtual.faults import Faults, GpuFailure, GpuWasReset
from ringfence.virtual.isa.rdna.dispatch import Dispatch
from ringfence.virtual.memory import AddressSpace, MemoryFault

MAX_IN_FLIGHT = 8  # programs that wait for their turn
REMEMBERED_DWORDS = 4 << 20  # of indirect buffers, whose packets take some hundred bytes each
REMEMBERED_LAUNCHES = 8192
MAX_SHOWN = 8
_U32 = 0xFFFFFFFF
_U64 = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True, slots=True)
class Polling:
    """A packet that cannot go on yet: it goes on once ``passes`` is true. ``text`` says what it looks at."""

    passes: Callable[[], bool]
    text: str


Action = Callable[["CommandProcessor", "Argument"], object]
_Key = tuple[int, int, tuple[int, ...]]
Step = tuple[Action, Argument, int]  # what to do, with what, and where the next packet is

_STAY = object()  # the packet is not done yet
_MOVED = object()  # execution goes on in another buffer


@dataclass(slots=True, eq=False)
class _Buffer:
    """Dwords being executed: of the ring from position ``base`` on (``level`` 0), or an indirect buffer.

    ``steps`` holds the prepared packets by index. ``pc`` is the index of the next packet.
    """

    address: int
    words: tuple[int, ...]
    level: int
    steps: dict[int, Step] = field(default_factory=dict)
    base: int = 0
    pc: int = 0


@dataclass(slots=True, eq=False)
class _Work:
    """What happens after the packet at ``pc`` of a buffer while the command processor goes on: a program
    runs, or (``store``) RELEASE_MEM takes effect after everything before.
    """

    buffer: _Buffer
    pc: int
    dispatch: Dispatch | None = None
    store: Callable[[], None] | None = None


@dataclass(slots=True)
class Services:
    """What the queues of a card share, and what they use of their surroundings.

    ``acquire`` and ``publish`` bring copies of private client memory up to date before the GPU reads and
    after it has written. ``interrupt`` takes an event id, ``fetched`` the queue and the dwords that it took
    from its ring. ``packet_done`` is called after each packet.
    """

    card: Card
    memory: AddressSpace
    registers: RegisterMap
    programs: Programs
    faults: Faults
    ticks: Callable[[], int]
    interrupt: Callable[[int], None]
    acquire: Callable[[], None]
    publish: Callable[[], None]
    fetched: Callable[[CommandProcessor, tuple[int, ...]], None]
    packet_done: Callable[[], None] | None = None
    buffers: OrderedDict[tuple[int, int], _Remembered] = field(default_factory=OrderedDict)
    remembered: int = 0
    dispatches: dict[_Key, tuple[Launch, Program, Dispatch]] = field(default_factory=dict)
    generation: Generation = field(init=False)

    def __post_init__(self) -> None:
        self.generation = self.card.chip.generation


@dataclass(slots=True)
class _Remembered:
    """An indirect buffer as it was when it was executed last."""

    data: bytes
    words: tuple[int, ...]
    steps: dict[int, Step]


@dataclass(frozen=True, slots=True)
class Ring:
    """The ring of a queue: ``dwords`` at GPU ``address``.

    ``doorbell`` is what the client rang last, ``write_pointer`` what it stored in memory, and
    ``read_pointer`` what the queue reports; all count dwords from the creation of the queue.
    """

    address: int
    dwords: int
    doorbell: ctypes.c_uint64
    read_pointer: ctypes.c_uint64
    write_pointer: ctypes.c_uint64


class CommandProcessor:
    """Executes the packets of one queue.

    :meth:`run` goes on until a program has to be run, a poll blocks, the budget is used up or the doorbell
    says that there is nothing more. ``order`` decides when programs run and which comes first; without it
    each runs at once. ``eop`` tells whether the queue has the buffer that RELEASE_MEM needs; ``strict``
    checks that the write pointer was stored before the doorbell was rung.
    """

    def __init__(
        self,
        services: Services,
        ring: Ring,
        order: random.Random | None = None,
        *,
        eop: bool = True,
        strict: bool = True,
    ) -> None:
        self.services = services
        self.memory = services.memory
        self.registers = Registers(services.card, services.registers)
        self.polling: Polling | None = None
        self.hung = False
        self.order = order
        self.ring = ring
        self._eop = eop
        self._strict = strict
        self._stack: list[_Buffer] = []
        self._taken = 0  # dwords of the ring that were fetched
        self._rung = 0  # the doorbell value that was looked at last
        self._next = 0  # where the packet that is being executed lets its buffer go on
        self._todo: Dispatch | None = None
        self._in_flight: list[_Work] = []
        self._running: _Work | None = None
        self._scratch: tuple[int, int, int] = (-1, 0, 0)

    @property
    def idle(self) -> bool:
        """Whether everything that was rung for is done."""
        return not self._stack and not self._in_flight and not self.rung

    @property
    def rung(self) -> bool:
        """Whether the doorbell has another value than the last time."""
        return self.ring.doorbell.value != self._rung

    def can_run(self) -> bool:
        """Return whether :meth:`run` would get anywhere."""
        if self.hung:
            return False
        if self.polling is not None:
            try:
                return self.polling.passes()
            except MemoryFault:
                return True  # which the packet will meet again
        return not self.idle

    def run(self, budget: int) -> Dispatch | None:
        """Execute up to ``budget`` packets; return a program to run before going on, or ``None``.

        :class:`GpuFailure` says why the queue cannot go on; its cause is a :class:`MemoryFault` for a fault
        of memory.
        """
        self.polling = None
        self._todo = None
        try:
            while budget > 0:
                if self._stack or (self.rung and self._fetch()):
                    budget = self._run_buffer(self._stack[-1], budget)
                elif self._in_flight:
                    budget -= 1
                    self._start()
                else:
                    break
                if self._todo is not None or self.polling is not None or self.hung:
                    break
        except MemoryFault as fault:
            raise self.failure("memory", _access(fault), fault.address, fault.nearest) from fault
        except BadState as error:
            raise self.failure("bad state", str(error)) from error
        except BadPacket as error:
            raise self.failure("bad packet", str(error)) from error
        self._write_back()
        return self._todo

    def advance(self) -> None:
        """Note that the program was run."""
        assert self._running is not None
        self._in_flight.remove(self._running)
        self._running = None

    def failure(
        self, kind: str, message: str, address: int | None = None, nearest: str | None = None
    ) -> GpuFailure:
        """Return the failure of the packet that is being executed."""
        return GpuFailure(self.located(FaultReport(kind, message, address=address, nearest=nearest)))

    def located(self, report: FaultReport) -> FaultReport:
        """Return a report that says which packet is being executed: buffer, address, name and body."""
        if self._running is not None:
            buffer, pc = self._running.buffer, self._running.pc
        elif self._stack:
            buffer, pc = self._stack[-1], self._stack[-1].pc
        else:
            return report
        address = _address(buffer, pc, self.ring)
        return replace(report, packet=_describe(buffer, pc, self.ring), packet_address=address)

    # ----- programs in flight -----------------------------------------------------------------

    def _launch(self, dispatch: Dispatch) -> None:
        """Let a program run some time from now, or at once."""
        buffer = self._stack[-1]
        self._in_flight.append(_Work(buffer, buffer.pc, dispatch=dispatch))
        order = self.order
        if order is None or len(self._in_flight) >= MAX_IN_FLIGHT or order.random() < 0.5:
            self._start()

    def _start(self) -> None:
        """Let something in flight happen: any program, or the release that is the oldest."""
        in_flight = self._in_flight
        oldest = in_flight[0]
        if self.order is None or len(in_flight) == 1:
            work = oldest
        else:
            work = self.order.choice([each for each in in_flight if each.store is None or each is oldest])
        self._running = work
        if work.store is not None:
            work.store()
            self.advance()
        self._todo = work.dispatch

    def _after_earlier(self, store: Callable[[], None]) -> None:
        """Let a release take effect once everything before it is finished."""
        if self._in_flight:
            buffer = self._stack[-1]
            self._in_flight.append(_Work(buffer, buffer.pc, store=store))
        else:
            store()

    # ----- fetching ---------------------------------------------------------------------------

    def _fetch(self) -> bool:
        """Take the dwords of the ring that the doorbell tells of."""
        ring = self.ring
        self._rung = rung = ring.doorbell.value
        count = rung - self._taken
        if count == 0:
            return False
        if not 0 < count <= ring.dwords:
            raise BadState(
                f"the doorbell was rung with {rung}, but {self._taken} dwords of the ring were read and "
                f"it holds {ring.dwords}"
            )
        self.services.acquire()
        if self._strict and not rung <= ring.write_pointer.value:
            raise BadState(
                f"the doorbell was rung with {rung}, but the write pointer in memory is "
                f"{ring.write_pointer.value}: it has to be stored first"
            )
        words = self._ring_words(count)
        self._stack.append(_Buffer(ring.address, words, 0, base=self._taken))
        self._taken = rung
        self.services.fetched(self, words)
        return True

    def _ring_words(self, count: int) -> tuple[int, ...]:
        ring = self.ring
        first = self._taken & (ring.dwords - 1)
        head = min(count, ring.dwords - first)
        data = self.memory.read(ring.address + 4 * first, 4 * head)
        if head < count:
            data += self.memory.read(ring.address, 4 * (count - head))
        return struct.unpack(f"<{count}I", data)

    def _write_back(self) -> None:
        """Report how far the ring was read."""
        bottom = self._stack[0] if self._stack else None
        done = self._taken if bottom is None else bottom.base + bottom.pc
        self.ring.read_pointer.value = done

    def _enter(self, address: int, count: int, level: int) -> None:
        """Execute an indirect buffer."""
        buffer = _Buffer(address, (), level)
        self._stack.append(buffer)  # before the fetch, so that a fault names the buffer
        known = _remember(self.services, address, self.memory.read(address, 4 * count))
        buffer.words, buffer.steps = known.words, known.steps

    # ----- executing --------------------------------------------------------------------------

    def _run_buffer(self, buffer: _Buffer, budget: int) -> int:
        """Execute packets of the innermost buffer until something else has to happen; return the budget's
        rest.
        """
        steps, size = buffer.steps, len(buffer.words)
        watched = self.services.faults.active or self.services.packet_done is not None
        while budget > 0:
            pc = buffer.pc
            if pc >= size:
                self._stack.pop()
                break
            if watched and self._hangs_here():
                break
            step = steps.get(pc)
            if step is None:
                step = self._prepare(buffer, pc)
                if step is None:
                    break
            budget -= 1
            action, argument, self._next = step
            outcome = action(self, argument)
            if outcome is None:
                buffer.pc = self._next
                if self._todo is not None:
                    break
            elif outcome is _MOVED or self._todo is not None or self.polling is not None or self.hung:
                break
        return budget

    def _hangs_here(self) -> bool:
        services = self.services
        if services.faults.active and services.faults.hang("packet"):
            self.hung = True
            return True
        if services.packet_done is not None:
            services.packet_done()
        return False

    def _prepare(self, buffer: _Buffer, pc: int) -> Step | None:
        """Check the packet at ``pc``, remember what it does; ``None``: the ring has only a part of it."""
        words = buffer.words
        opcode, count = header(words[pc])
        end = pc + 1 + count
        if end > len(words):
            if buffer.level == 0:
                self._taken = buffer.base + pc  # the rest will come with the next ring of the doorbell
                self._stack.pop()
                return None
            raise BadPacket(f"it has {count} body dwords, but its buffer ends after {len(words) - pc - 1}")
        what, argument = prepare(self.services.generation, opcode, words[pc + 1 : end])
        step = buffer.steps[pc] = _ACTIONS[what], argument, end
        return step

    # ----- packets ----------------------------------------------------------------------------

    def _nothing(self, _: Argument) -> object:
        """Caches need no maintenance here: programs and packets see memory itself."""
        return None

    def _acquire(self, _: Argument) -> object:
        self.services.acquire()
        return None

    def _set_sh(self, argument: Argument) -> object:
        first, end, values = argument
        self.registers.sh[first:end] = values
        return None

    def _set_uconfig(self, argument: Argument) -> object:
        first, *values = argument
        for index, value in enumerate(values):
            self.registers.uconfig[first + index] = value
        return None

    def _flush(self, _: Argument) -> object:
        """CS_PARTIAL_FLUSH: wait until the programs of this queue are done."""
        if not self._in_flight:
            return None
        self._start()
        return _STAY

    def _indirect_buffer(self, argument: Argument) -> object:
        address, count, chain = argument
        buffer = self._stack[-1]
        if buffer.level and not chain:
            raise BadPacket("INDIRECT_BUFFER in an indirect buffer: they do not nest, set CHAIN to jump")
        buffer.pc = len(buffer.words) if chain and buffer.level else self._next
        if chain and buffer.level:
            self._stack.pop()
        self._enter(address, count, 1)
        return _MOVED

    def _wait(self, argument: Argument) -> object:
        function, address, size, reference, mask = argument
        read = self.memory.read_u32 if size == 4 else self._read_u64
        compare = _COMPARE[function]
        if compare(read(address) & mask, reference):
            self.services.acquire()
            return None
        return self._poll(
            lambda: compare(read(address) & mask, reference),
            lambda: (
                f"(memory {address:#x} & {mask:#x}) {pm4.Function(function).name} {reference:#x}, it is "
                f"{read(address):#x}"
            ),
        )

    def _wait_register(self, argument: Argument) -> object:
        function, register, reference, mask = argument
        value, compare = self._read_register(register), _COMPARE[function]
        if compare(value & mask, reference):
            return None
        name = self.services.registers.name_at(register)
        text = f"({name} & {mask:#x}) {pm4.Function(function).name} {reference:#x}, it is {value:#x}"
        return self._poll(lambda: False, lambda: text)

    def _poll(self, passes: Callable[[], bool], text: Callable[[], str]) -> object:
        if self._in_flight:
            self._start()  # it may be what the poll waits for
            return _STAY
        faults = self.services.faults
        if faults.active and faults.early("poll"):
            return None
        self.polling = Polling(passes, text())
        return _STAY

    def _read_u64(self, address: int) -> int:
        return int.from_bytes(self.memory.read(address, 8), "little")

    def _read_register(self, register: int) -> int:
        return self.registers.read(register)

    def _release(self, argument: Argument) -> object:
        address, size, value, interrupts, context = argument
        services = self.services
        if not self._eop:
            raise BadState("RELEASE_MEM needs an EOP buffer, and the queue was created without one")
        if services.faults.active and services.faults.lost("signal"):
            return None

        def store() -> None:
            services.publish()
            if size == 4:
                self.memory.write_u32(address, value)
            elif size:
                data = services.ticks() if value < 0 else value
                self.memory.write(address, data.to_bytes(8, "little"))
            if interrupts and not (services.faults.active and services.faults.lost("timestamp")):
                services.interrupt(context)

        self._after_earlier(store)
        return None

    def _write_data(self, argument: Argument) -> object:
        address, repeated, *values = argument
        if repeated:
            for value in values:
                self.memory.write_u32(address, value)
        else:
            self.memory.write(address, struct.pack(f"<{len(values)}I", *values))
        return None

    def _write_registers(self, argument: Argument) -> object:
        register, repeated, *values = argument
        for index, value in enumerate(values):
            self._write_register(register + (0 if repeated else index), value)
        return None

    def _write_register(self, register: int, value: int) -> None:
        check_register(self.services.registers, register, value)
        if SH_FIRST <= register < SH_FIRST + SH_COUNT:
            self.registers.sh[register - SH_FIRST] = value
        elif register >= pm4.UCONFIG_REG_START:
            self.registers.uconfig[register] = value
        else:
            name = self.services.registers.name_at(register)
            raise BadState(f"{name} cannot be written by a compute queue")

    def _copy_data(self, argument: Argument) -> object:
        source, low, high, destination, target, size = argument
        if source == pm4.CopySrc.IMMEDIATE_DATA:
            value = high << 32 | low
        elif source == pm4.CopySrc.GPU_CLOCK_COUNT:
            value = self.services.ticks()
        elif source == pm4.CopySrc.MEM_MAPPED_REGISTER:
            value = sum(self._read_register(low + i) << 32 * i for i in range(size // 4))
        else:
            value = int.from_bytes(self.memory.read(high << 32 | low, size), "little")
        if destination == pm4.CopyDst.MEM_MAPPED_REGISTER:
            for i in range(size // 4):
                self._write_register(target + i, value >> 32 * i & _U32)
        else:
            self.memory.write(target, (value & (1 << 8 * size) - 1).to_bytes(size, "little"))
        return None

    def _dma_copy(self, argument: Argument) -> object:
        source, destination, count = argument
        self.memory.write(destination, self.memory.read(source, count))
        return None

    def _dma_fill(self, argument: Argument) -> object:
        value, destination, count = argument
        pattern = value.to_bytes(4, "little") * (count // 4 + 1)
        self.memory.write(destination, pattern[:count])
        return None

    def _atomic_add(self, argument: Argument) -> object:
        address, value = argument
        total = self._read_u64(address) + value & _U64
        self.memory.write(address, total.to_bytes(8, "little"))
        return None

    def _cond_exec(self, argument: Argument) -> object:
        address, count = argument
        if self.memory.read_u32(address) == 0:
            self._skip(count)
        return None

    def _pred_exec(self, argument: Argument) -> object:
        mask, count = argument
        if self._stack[-1].level == 0:
            raise BadPacket("PRED_EXEC works in indirect buffers only, not in the ring")
        if not mask & 1:
            self._skip(count)
        return None

    def _skip(self, count: int) -> None:
        self._next += count
        if self._next > len(self._stack[-1].words):
            raise BadPacket(f"{count} dwords are skipped, past the end of the buffer")

    def _dispatch_direct(self, argument: Argument) -> object:
        x, y, z, initiator = argument
        return self._dispatch((x, y, z), initiator)

    def _dispatch_indirect(self, argument: Argument) -> object:
        address, initiator = argument
        x, y, z = struct.unpack("<3I", self.memory.read(address, pm4.DISPATCH_DIMENSIONS_BYTES))
        return self._dispatch((x, y, z), initiator)

    def _dispatch(self, dims: Size, initiator: int) -> object:
        launch = self.registers.launch(dims, initiator)
        if launch.scratch_total:
            self._check_scratch(launch.scratch_base, launch.scratch_total)
        dispatch = make_dispatch(self.services, self.registers, launch)
        if 0 in launch.groups:
            return None
        faults = self.services.faults
        if faults.active:
            if faults.hang("dispatch"):
                self.hung = True
                return _STAY
            if faults.reset():
                raise GpuWasReset(self.located(FaultReport("hang", "the GPU was reset")))
            if fault := faults.page_fault():
                raise MemoryFault(fault.address, True, self.memory.nearest(fault.address))
        self._launch(dispatch)
        return None

    def _check_scratch(self, base: int, total: int) -> None:
        """Scratch memory of all waves must be there, although programs here have private memory of their
        own.
        """
        memory = self.memory
        if self._scratch == (memory.generation, base, total):
            return
        address = base
        while address < base + total:
            inside = memory.find(address)
            if inside is None or not inside.writable:
                raise MemoryFault(
                    address, True, f"scratch memory {base:#x}..{base + total:#x}: {memory.nearest(address)}"
                )
            address = inside.end
        self._scratch = memory.generation, base, total


def make_dispatch(services: Services, registers: Registers, launch: Launch) -> Dispatch:
    """Return what the executor runs for a launch; :class:`MemoryFault` if its code is not mapped."""
    program = services.programs.at(launch.entry, launch.wave)
    user = registers.user_data(launch.user_count)
    # Identities are safe as keys: the entry keeps both objects alive.
    key = id(launch), id(program), user
    known = services.dispatches.get(key)
    if known is None:
        if len(services.dispatches) >= REMEMBERED_LAUNCHES:
            services.dispatches.clear()
        known = services.dispatches[key] = launch, program, _dispatch(launch, program, user)
    return known[2]


def _dispatch(launch: Launch, program: Program, user: tuple[int, ...]) -> Dispatch:
    return Dispatch(
        name=f"program {launch.entry:#x}",
        code=program.code,
        address=program.address,
        entry=program.entry,
        functions=program.functions,
        groups=launch.groups,
        local=launch.local,
        user_data=user,
        rsrc1=launch.rsrc1,
        rsrc2=launch.rsrc2,
        wave=launch.wave,
        scratch_bytes=launch.scratch_bytes,
        lds_bytes=launch.lds_bytes,
    )


# ----- remembered buffers -------------------------------------------------------------------------


def _remember(services: Services, address: int, data: bytes) -> _Remembered:
    """Return what is known about the packets of an indirect buffer that now holds ``data``."""
    key = address, len(data)
    known = services.buffers.get(key)
    if known is None:
        known = services.buffers[key] = _Remembered(data, _words(data), {})
        services.remembered += len(known.words)
        while services.remembered > REMEMBERED_DWORDS and len(services.buffers) > 1:
            services.remembered -= len(services.buffers.popitem(last=False)[1].words)
    elif known.data != data:
        _forget_changed(known, data)
    return known


def _words(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)


def _forget_changed(known: _Remembered, data: bytes) -> None:
    """Drop the packets that hold a dword that changed."""
    changed = np.flatnonzero(np.frombuffer(known.data, "<u4") != np.frombuffer(data, "<u4"))
    starts = sorted(known.steps)
    steps = dict(known.steps)  # a run may still execute the old one
    for index in changed.tolist():
        place = bisect.bisect_right(starts, index) - 1
        if place >= 0 and (step := steps.get(starts[place])) is not None and index < step[2]:
            del steps[starts[place]]
    known.data, known.words, known.steps = data, _words(data), steps


# ----- what packets do ----------------------------------------------------------------------------

_ACTIONS: dict[Do, Action] = {
    Do.ACQUIRE: CommandProcessor._acquire,
    Do.ATOMIC_ADD: CommandProcessor._atomic_add,
    Do.COND_EXEC: CommandProcessor._cond_exec,
    Do.COPY_DATA: CommandProcessor._copy_data,
    Do.DISPATCH_DIRECT: CommandProcessor._dispatch_direct,
    Do.DISPATCH_INDIRECT: CommandProcessor._dispatch_indirect,
    Do.DMA_COPY: CommandProcessor._dma_copy,
    Do.DMA_FILL: CommandProcessor._dma_fill,
    Do.FLUSH: CommandProcessor._flush,
    Do.INDIRECT_BUFFER: CommandProcessor._indirect_buffer,
    Do.NOTHING: CommandProcessor._nothing,
    Do.PRED_EXEC: CommandProcessor._pred_exec,
    Do.RELEASE: CommandProcessor._release,
    Do.SET_SH: CommandProcessor._set_sh,
    Do.SET_UCONFIG: CommandProcessor._set_uconfig,
    Do.WAIT: CommandProcessor._wait,
    Do.WAIT_REGISTER: CommandProcessor._wait_register,
    Do.WRITE_DATA: CommandProcessor._write_data,
    Do.WRITE_REGISTERS: CommandProcessor._write_registers,
}


# ----- helpers ------------------------------------------------------------------------------------

_COMPARE: dict[int, Callable[[int, int], bool]] = {
    pm4.Function.ALWAYS: lambda value, reference: True,
    pm4.Function.LT: lambda value, reference: value < reference,
    pm4.Function.LE: lambda value, reference: value <= reference,
    pm4.Function.EQ: lambda value, reference: value == reference,
    pm4.Function.NE: lambda value, reference: value != reference,
    pm4.Function.GE: lambda value, reference: value >= reference,
    pm4.Function.GT: lambda value, reference: value > reference,
}


def _address(buffer: _Buffer, pc: int, ring: Ring) -> int:
    return buffer.address + 4 * pc if buffer.level else ring.address + 4 * _ring_position(buffer, pc, ring)


def _ring_position(buffer: _Buffer, pc: int, ring: Ring) -> int:
    return (buffer.base + pc) & (ring.dwords - 1)


def _describe(buffer: _Buffer, pc: int, ring: Ring) -> str:
    if buffer.level:
        at = f"IB {buffer.address:#x}+{pc * 4:#x}"
    else:
        at = f"ring {ring.address:#x}+{_ring_position(buffer, pc, ring) * 4:#x}"
    if pc >= len(buffer.words):
        return at
    word = buffer.words[pc]
    try:
        opcode, count = header(word)
    except BadPacket:
        return f"{at} header {word:#010x}"
    name = "filler" if opcode is None else opcode.name
    return f"{at} {name}({_shorten(buffer.words[pc + 1 : pc + 1 + count])})"


def _shorten(words: Sequence[int]) -> str:
    shown = ", ".join(f"{word:#x}" for word in words[:MAX_SHOWN])
    return shown + ", ..." if len(words) > MAX_SHOWN else shown


def _access(fault: MemoryFault) -> str:
    if isinstance(fault, NotExecutable):
        return "execution of memory that is not executable"
    return "write to unmapped or read-only memory" if fault.write else "read from unmapped memory"
