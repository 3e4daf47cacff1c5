"""The command processor of a virtual Adreno a6xx: executes the indirect buffers of one submission.

Packets are executed in order; polls block and are resumed. The programs that they start are another matter:
a GPU goes on while they run, until it is told to wait for idle. Without an order (fast mode) each runs to its
end at once. With one, programs in flight run in a shuffled order, as late as possible: what relies on a
barrier that is not there gets wrong results. Every packet outside the list in ``_HANDLERS`` is an error that
names it. Packet layouts are those of Mesa's ``adreno_pm4.xml``.
"""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING

from ringfence.errors import FaultReport
from ringfence.hardware.adreno import packets as p
from ringfence.hardware.adreno.chips import Chip
from ringfence.hardware.adreno.packets import Opcode
from ringfence.hardware.adreno.registers import CP_ALWAYS_ON_COUNTER, REGISTERS, register_name
from ringfence.hardware.fields import Word
from ringfence.virtual.adreno.state import ComputeState, Launch
from ringfence.virtual.checks import BadPacket, BadState
from ringfence.virtual.faults import Faults, GpuFailure
from ringfence.virtual.memory import AddressSpace, MemoryFault

if TYPE_CHECKING:
    from ringfence.virtual.isa.ir3.dispatch import Dispatch

MAX_LEVEL = 2  # ring -> IB1 -> IB2
MAX_IN_FLIGHT = 8  # programs that wait for their turn
WAIT_FOR_IDLE = p.type7_header(Opcode.WAIT_FOR_IDLE, 0)
UNWRITTEN_REGISTER = 0xDEADBEEF
_U32 = 0xFFFFFFFF

# Events that only compute work needs, or that have no effect without graphics work. The _TS ones write a
# value.
_VALUE_EVENTS = frozenset(
    (
        p.Event.VS_DONE_TS,
        p.Event.PS_DONE_TS,
        p.Event.CACHE_FLUSH_TS,
        p.Event.WT_DONE_TS,
        p.Event.RB_DONE_TS,
        p.Event.PC_CCU_RESOLVE_TS,
        p.Event.PC_CCU_FLUSH_DEPTH_TS,
        p.Event.PC_CCU_FLUSH_COLOR_TS,
    )
)
_PLAIN_EVENTS = frozenset(
    (
        p.Event.CONTEXT_DONE,
        p.Event.CACHE_FLUSH,
        p.Event.START_COMPUTE_CTRS,
        p.Event.STOP_COMPUTE_CTRS,
        p.Event.PC_CCU_INVALIDATE_DEPTH,
        p.Event.PC_CCU_INVALIDATE_COLOR,
        p.Event.CACHE_INVALIDATE,
        p.Event.LABEL,
    )
)


_EVENT_TIMESTAMP = p.EVENT_WRITE_0.FIELDS["TIMESTAMP"].mask


@functools.lru_cache(1024)
def _writes_value(word: int, payload: int) -> bool:
    """Return whether an EVENT_WRITE writes something.

    :class:`BadPacket` if the event or its size is wrong.
    """
    _reserved(p.EVENT_WRITE_0, word)
    event = p.EVENT_WRITE_0.get(word, "EVENT")
    writes = event in _VALUE_EVENTS
    if not writes and event not in _PLAIN_EVENTS:
        raise BadPacket(f"event {_name(p.Event, event)} is not modelled: it is no part of compute work")
    if writes != (payload == 4):
        wanted = "an address and a value" if writes else "no address"
        raise BadPacket(f"event {_name(p.Event, event)} takes {wanted}")
    return writes


@functools.lru_cache(8192)
def _header(word: int) -> tuple[int, int, int]:
    """Return (4, register, count) or (7, opcode, count).

    :class:`BadPacket` if the header or the size is wrong.
    """
    try:
        decoded = p.decode_header(word)
    except ValueError as error:
        raise BadPacket(str(error)) from error
    if isinstance(decoded, p.Type4):
        return 4, decoded.register, decoded.count
    try:
        opcode = Opcode(decoded.opcode)
    except ValueError:
        raise BadPacket(f"opcode {decoded.opcode:#04x} is not known") from None
    if not p.payload_fits(opcode, decoded.count):
        raise BadPacket(f"{opcode.name} with {decoded.count} payload dwords: {_sizes(opcode)}")
    return 7, int(opcode), decoded.count


def _sizes(opcode: Opcode) -> str:
    sizes = p.PAYLOAD[opcode]
    if sizes is None:
        smallest, step = p.PAYLOAD_STEP.get(opcode, (0, 1))
        return f"it has {smallest} plus a multiple of {step}"
    return "it has " + " or ".join(map(str, sizes))


def packet_name(word: int) -> str:
    """Return the name of the packet that header ``word`` begins, as far as it can be told."""
    try:
        kind, what, count = _header(word)
    except BadPacket:
        return f"header {word:#010x}"
    return f"write {register_name(what)} x{count}" if kind == 4 else Opcode(what).name


@dataclass(frozen=True, slots=True)
class Polling:
    """A packet that cannot go on yet: it goes on once ``passes`` is true. ``text`` says what it looks at."""

    passes: Callable[[], bool]
    text: str


@dataclass(slots=True)
class _Buffer:
    """An indirect buffer being executed; ``pc`` indexes its dwords."""

    address: int
    words: list[int]
    level: int
    pc: int = 0


@dataclass(slots=True, eq=False)
class _Work:
    """What happens after the packet at ``pc`` of a buffer, while the command processor goes on: a program
    runs, or (``store``) an event stores its value after everything before.
    """

    buffer: _Buffer
    pc: int
    dispatch: Dispatch | None = None
    store: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Services:
    """What the command processor uses of its surroundings; ``packet_done`` is called after each packet."""

    chip: Chip
    memory: AddressSpace
    faults: Faults
    ticks: Callable[[], int]
    packet_done: Callable[[], None] | None = None


class Execution:
    """The run of one submission's indirect buffers (address, size in bytes).

    :meth:`run` goes on until a program has to be run, a poll blocks, the budget is used up or everything is
    ``done``. ``order`` decides when programs run and which comes first; without it each runs at once.
    """

    def __init__(
        self,
        services: Services,
        buffers: Sequence[tuple[int, int]],
        order: random.Random | None = None,
    ) -> None:
        self.services = services
        self.memory = services.memory
        self.state = ComputeState(services.chip)
        self.polling: Polling | None = None
        self.hung = False
        self._waiting = list(reversed(buffers))
        self._stack: list[_Buffer] = []
        self._next = 0  # where the packet that is being executed lets its buffer go on
        self._order = order
        self._in_flight: list[_Work] = []
        self._running: _Work | None = None

    @property
    def done(self) -> bool:
        return not self._stack and not self._waiting and not self._in_flight

    def can_run(self) -> bool:
        """Return whether :meth:`run` would get anywhere."""
        return not self.hung and (self.polling is None or self.polling.passes())

    def run(self, budget: int) -> Dispatch | None:
        """Execute up to ``budget`` packets; return a program to run before going on, or ``None``.

        :class:`GpuFailure` says why the submission cannot go on.
        """
        self.polling = None
        try:
            while budget > 0:
                if self._stack or self._next_buffer():
                    budget, dispatch = self._run_buffer(budget)
                elif self._in_flight:
                    budget, dispatch = budget - 1, self._start()
                else:
                    break
                if dispatch is not None or self.polling is not None or self.hung:
                    return dispatch
        except MemoryFault as fault:
            raise self.failure("memory", _access(fault), fault.address, fault.nearest) from fault
        except BadState as error:
            raise self.failure("bad state", str(error)) from error
        except BadPacket as error:
            raise self.failure("bad packet", str(error)) from error
        return None

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
        """Return a report that says which packet is being executed: buffer level, address, name, payload."""
        if self._running is not None:
            buffer, pc = self._running.buffer, self._running.pc
        elif self._stack:
            buffer, pc = self._stack[-1], self._stack[-1].pc
        else:
            return report
        packet = f"IB{buffer.level} {buffer.address:#x}+{pc * 4:#x}"
        if pc < len(buffer.words):
            word = buffer.words[pc]
            packet += f" {packet_name(word)}({_shorten(buffer.words[pc + 1 :], _count(word))})"
        return replace(report, packet=packet, packet_address=buffer.address + 4 * pc)

    # ----- programs in flight -----------------------------------------------------------------

    def _launch(self, dispatch: Dispatch) -> Dispatch | None:
        """Let a program run some time from now; return one that has to run first."""
        buffer = self._stack[-1]
        self._in_flight.append(_Work(buffer, buffer.pc, dispatch=dispatch))
        buffer.pc = self._next
        order = self._order
        if order is None or len(self._in_flight) >= MAX_IN_FLIGHT or order.random() < 0.5:
            return self._start()
        return None

    def _start(self) -> Dispatch | None:
        """Let something in flight happen: any program, or the event that is the oldest. Return the
        program.
        """
        oldest = self._in_flight[0]
        ready = [work for work in self._in_flight if work.store is None or work is oldest]
        self._running = work = ready[0] if self._order is None else self._order.choice(ready)
        if work.store is not None:
            work.store()
            self.advance()
        return work.dispatch

    def _after_earlier(self, store: Callable[[], None]) -> None:
        """Let an event store its value once everything before it is finished."""
        if self._in_flight:
            buffer = self._stack[-1]
            self._in_flight.append(_Work(buffer, buffer.pc, store=store))
        else:
            store()

    # ----- fetching ---------------------------------------------------------------------------

    def _next_buffer(self) -> bool:
        if not self._waiting:
            return False
        address, size = self._waiting.pop()
        buffer = _Buffer(address, [], 1)
        self._stack.append(buffer)  # before the fetch, so that a fault names the buffer
        buffer.words = fetch(self.memory, address, size // 4)
        return True

    def _run_buffer(self, budget: int) -> tuple[int, Dispatch | None]:
        """Execute packets of the innermost buffer until something else has to happen.

        Return the rest of the budget.
        """
        buffer = self._stack[-1]
        words, size, write = buffer.words, len(buffer.words), self.state.write
        watched = self.services.faults.active or self.services.packet_done is not None
        while budget > 0:
            pc = buffer.pc
            if pc >= size:
                self._stack.pop()
                break
            budget -= 1
            if self._in_flight and words[pc] == WAIT_FOR_IDLE:
                dispatch = self._start()
                if dispatch is not None:
                    return budget, dispatch
                continue
            if watched and self._hangs_here():
                break
            kind, what, count = _header(words[pc])
            self._next = end = pc + 1 + count
            if end > size:
                raise BadPacket(f"it has {count} payload dwords, but its buffer ends after {size - pc - 1}")
            if kind == p.TYPE4:
                write(what, words[pc + 1 : end])
            elif what not in _NOTHING:
                dispatch = self._opcode(buffer, what, words[pc + 1 : end])
                if dispatch is not None or self.polling is not None or self.hung:
                    return budget, dispatch
                if self._stack[-1] is not buffer:
                    break
                continue
            buffer.pc = end
        return budget, None

    def _hangs_here(self) -> bool:
        services = self.services
        if services.faults.active and services.faults.hang("packet"):
            self.hung = True
            return True
        if services.packet_done is not None:
            services.packet_done()
        return False

    def _opcode(self, buffer: _Buffer, opcode: int, payload: list[int]) -> Dispatch | None:
        handler = _HANDLERS.get(opcode)
        if handler is None:
            raise BadPacket(f"{Opcode(opcode).name} is not modelled: it is no part of compute work")
        result = handler(self, payload)
        if isinstance(result, Polling):
            if self._in_flight:
                return self._start()  # it may be what the poll waits for
            if not (self.services.faults.active and self.services.faults.early("poll")):
                self.polling = result
                return None
        elif result is not None:
            dispatch = self._before(result)
            return None if dispatch is None else self._launch(dispatch)
        buffer.pc = self._next
        return None

    def _before(self, dispatch: Dispatch) -> Dispatch | None:
        """Let the faults strike that wait for a dispatch."""
        faults = self.services.faults
        if not faults.active:
            return dispatch
        if faults.hang("dispatch"):
            self.hung = True
            return None
        if fault := faults.page_fault():
            raise MemoryFault(fault.address, True, self.memory.nearest(fault.address))
        return dispatch

    # ----- packets ----------------------------------------------------------------------------

    def _only_zero(self, payload: list[int]) -> None:
        """Packets that do nothing as long as their operands are zero."""
        if any(payload):
            raise BadPacket("only modelled with operands of zero")

    def _event_write(self, payload: list[int]) -> None:
        if not _writes_value(payload[0], len(payload)):
            return
        address = _address(payload[1], payload[2], 4)
        if self.services.faults.active and self.services.faults.lost("signal"):
            return
        if payload[0] & _EVENT_TIMESTAMP:
            self._after_earlier(
                lambda: self.memory.write(address, self.services.ticks().to_bytes(8, "little"))
            )
        else:
            self._after_earlier(lambda: self.memory.write_u32(address, payload[3]))

    def _wait_reg_mem(self, payload: list[int]) -> Polling | None:
        word, low, high, reference, mask, _delay = payload
        _reserved(p.WAIT_REG_MEM_0, word)
        if p.WAIT_REG_MEM_0.get(word, "WRITE_MEMORY"):
            raise BadPacket("WAIT_REG_MEM with WRITE_MEMORY is not modelled")
        passes = self._comparison(word, reference)
        source, text = self._poll_source(p.WAIT_REG_MEM_0.get(word, "POLL"), low, high)
        if passes(source() & mask):
            return None
        function = p.Function(p.WAIT_REG_MEM_0.get(word, "FUNCTION")).name
        return Polling(
            lambda: passes(source() & mask),
            f"({text} & {mask:#x}) {function} {reference:#x}, it is {source():#x}",
        )

    def _wait_mem_gte(self, payload: list[int]) -> Polling | None:
        _zero(payload[0])
        address, reference = _address(payload[1], payload[2], 4), _signed(payload[3])
        if _signed(self.memory.read_u32(address)) >= reference:
            return None
        value = _signed(self.memory.read_u32(address))
        return Polling(
            lambda: _signed(self.memory.read_u32(address)) >= reference,
            f"memory {address:#x} >= {reference}, it is {value}",
        )

    def _comparison(self, word: int, reference: int) -> Callable[[int], bool]:
        function = p.WAIT_REG_MEM_0.get(word, "FUNCTION")
        compare = _COMPARE.get(function)
        if compare is None:
            raise BadPacket(f"comparison function {function} does not exist")
        if p.WAIT_REG_MEM_0.get(word, "SIGNED_COMPARE"):
            return lambda value: compare(_signed(value), _signed(reference))
        return lambda value: compare(value, reference)

    def _poll_source(self, poll: int, low: int, high: int) -> tuple[Callable[[], int], str]:
        if poll == p.Poll.MEMORY:
            address = _address(low, high, 4)
            return lambda: self.memory.read_u32(address), f"memory {address:#x}"
        if poll == p.Poll.REGISTER:
            return lambda: self.read_register(low), register_name(low)
        raise BadPacket(f"polling of {_name(p.Poll, poll)} is not modelled: only registers and memory are")

    def _cond_write(self, payload: list[int]) -> None:
        word, low, high, reference, mask, write_low, write_high, data = payload
        _reserved(p.COND_WRITE5_0, word)
        if not p.COND_WRITE5_0.get(word, "WRITE_MEMORY"):
            raise BadPacket("COND_WRITE5 to a register is not modelled")
        source, _ = self._poll_source(p.COND_WRITE5_0.get(word, "POLL"), low, high)
        if self._comparison(word, reference)(source() & mask):
            self.memory.write_u32(_address(write_low, write_high, 4), data)

    def _reg_to_mem(self, payload: list[int]) -> None:
        word = payload[0]
        first = p.REG_TO_MEM_0.get(word, "REG")
        count = max(p.REG_TO_MEM_0.get(word, "CNT"), 2 if p.REG_TO_MEM_0.get(word, "_64B") else 1)
        address = _address(payload[1], payload[2], 4)
        values = [self.read_register(first + i) for i in range(count)]
        if p.REG_TO_MEM_0.get(word, "ACCUMULATE"):
            values = self._accumulate(address, values, bool(p.REG_TO_MEM_0.get(word, "_64B")))
        self.memory.write(address, _to_bytes(values))

    def _accumulate(self, address: int, values: list[int], pairs: bool) -> list[int]:
        size = 8 if pairs else 4
        old, new = self.memory.read(address, 4 * len(values)), _to_bytes(values)
        sums = (
            _from_bytes(old[i : i + size]) + _from_bytes(new[i : i + size]) for i in range(0, len(old), size)
        )
        return [int(dword) for total in sums for dword in (total & _U32, total >> 32 & _U32)[: size // 4]]

    def _mem_to_reg(self, payload: list[int]) -> None:
        word = payload[0]
        _reserved(p.MEM_TO_REG_0, word)
        if p.MEM_TO_REG_0.get(word, "SHIFT_BY_2") or p.MEM_TO_REG_0.get(word, "UNK31"):
            raise BadPacket("MEM_TO_REG with SHIFT_BY_2 or bit 31 is not modelled")
        count = max(1, p.MEM_TO_REG_0.get(word, "CNT"))
        address = _address(payload[1], payload[2], 4)
        self.state.write(p.MEM_TO_REG_0.get(word, "REG"), fetch(self.memory, address, count))

    def _mem_write(self, payload: list[int]) -> None:
        self.memory.write(_address(payload[0], payload[1], 4), _to_bytes(payload[2:]))

    def _mem_to_mem(self, payload: list[int]) -> None:
        word = payload[0]
        _reserved(p.MEM_TO_MEM_0, word)
        if p.MEM_TO_MEM_0.get(word, "UNK31"):
            raise BadPacket("MEM_TO_MEM with bit 31 is not modelled")
        size = 8 if p.MEM_TO_MEM_0.get(word, "DOUBLE") else 4
        destination, *sources = (
            _address(payload[i], payload[i + 1], size) for i in range(1, len(payload), 2)
        )
        total = 0
        for source, negate in zip(sources, ("NEG_A", "NEG_B", "NEG_C")):
            value = _from_bytes(self.memory.read(source, size))
            total += -value if p.MEM_TO_MEM_0.get(word, negate) else value
        self.memory.write(destination, (total % (1 << 8 * size)).to_bytes(size, "little"))

    def _memcpy(self, payload: list[int]) -> None:
        count, source = payload[0], _address(payload[1], payload[2], 4)
        destination = _address(payload[3], payload[4], 4)
        self.memory.write(destination, self.memory.read(source, 4 * count))

    def _reg_rmw(self, payload: list[int]) -> None:
        word, source0, source1 = payload
        _reserved(p.REG_RMW_0, word)
        if p.REG_RMW_0.get(word, "DST_SCRATCH"):
            raise BadPacket("REG_RMW of a scratch register is not modelled")
        register, rotate = p.REG_RMW_0.get(word, "DST_REG"), p.REG_RMW_0.get(word, "ROTATE")
        if p.REG_RMW_0.get(word, "SRC0_IS_REG"):
            source0 = self.read_register(source0)
        if p.REG_RMW_0.get(word, "SRC1_IS_REG"):
            source1 = self.read_register(source1)
        value = self.read_register(register) & source0
        value = (value << rotate | value >> (32 - rotate)) & _U32
        value = value + source1 if p.REG_RMW_0.get(word, "SRC1_ADD") else value | source1
        self.state.write(register, [value & _U32])

    def _reg_write(self, payload: list[int]) -> None:
        _reserved(p.REG_WRITE_0, payload[0])
        self.state.write(payload[1], payload[2:])

    def _cond_exec(self, payload: list[int]) -> None:
        first = self.memory.read_u32(_address(payload[0], payload[1], 4))
        second = self.memory.read_u32(_address(payload[2], payload[3], 4))
        if first != 0 and _signed(second) < _signed(payload[4]):
            return
        self._next += payload[5]
        if self._next > len(self._stack[-1].words):
            raise BadPacket(f"COND_EXEC skips {payload[5]} dwords, past the end of its buffer")

    def _set_marker(self, payload: list[int]) -> None:
        word = payload[0]
        if p.SET_MARKER_0.get(word, "MARKER_MODE") == p.MarkerMode.SET_IFPC_MODE:
            raise BadPacket("SET_MARKER of the power collapse mode is for the kernel only")
        mode = p.SET_MARKER_0.get(word, "MODE")
        if mode != p.Marker.COMPUTE or word != mode:
            raise BadPacket(f"SET_MARKER {p.SET_MARKER_0.describe(word)}: only MODE=COMPUTE is modelled")
        self.state.compute_marker = True

    def _load_state(self, payload: list[int]) -> None:
        if payload[1] & 3:
            raise BadPacket(f"address {payload[2] << 32 | payload[1]:#x} is not 4-byte aligned")
        inline = _to_bytes(payload[3:])
        self.state.load(payload[0], payload[2] << 32 | payload[1], inline, self.memory)

    def _invalidate_state(self, payload: list[int]) -> None:
        if payload[0]:
            self.state.invalidate()

    def _indirect_buffer(self, payload: list[int]) -> None:
        _reserved(p.INDIRECT_BUFFER_2, payload[2])
        address, count = _address(payload[0], payload[1], 4), payload[2]
        if not count:
            raise BadPacket("INDIRECT_BUFFER of 0 dwords")
        buffer = self._stack[-1]
        if buffer.level == MAX_LEVEL:
            raise BadPacket(f"INDIRECT_BUFFER in an IB{MAX_LEVEL}: buffers nest {MAX_LEVEL} deep")
        words = fetch(self.memory, address, count)
        self._stack.append(_Buffer(address, words, buffer.level + 1))

    def _exec_cs(self, payload: list[int]) -> Dispatch | None:
        _zero(payload[0])
        launch = self.state.launch()
        groups = payload[1], payload[2], payload[3]
        expected = tuple(count * size for count, size in zip(groups, launch.local))
        if expected != launch.global_size:
            raise BadState(
                f"EXEC_CS of {_by(groups)} groups of {_by(launch.local)} is {_by(expected)} work-items, "
                f"SP_CS_NDRANGE says {_by(launch.global_size)}"
            )
        return self._dispatch(groups, launch)

    def _exec_cs_indirect(self, payload: list[int]) -> Dispatch | None:
        _zero(payload[0])
        x, y, z = fetch(self.memory, _address(payload[1], payload[2], 4), 3)
        launch = self.state.launch()
        get = p.EXEC_CS_INDIRECT_3.get
        _reserved(p.EXEC_CS_INDIRECT_3, payload[3])
        local = tuple(get(payload[3], f"LOCALSIZE{axis}") + 1 for axis in "XYZ")
        if local != launch.local:
            raise BadState(
                f"EXEC_CS_INDIRECT has local size {_by(local)}, SP_CS_NDRANGE_0 {_by(launch.local)}"
            )
        return self._dispatch((x, y, z), launch)

    def _run_opencl(self, payload: list[int]) -> Dispatch | None:
        _zero(payload[0])
        launch = self.state.launch()
        if any(total % size for total, size in zip(launch.global_size, launch.local)):
            raise BadState(
                f"RUN_OPENCL of {_by(launch.global_size)} work-items in groups of {_by(launch.local)}: "
                "partial work-groups are not modelled"
            )
        x, y, z = (total // size for total, size in zip(launch.global_size, launch.local))
        return self._dispatch((x, y, z), launch)

    def _dispatch(self, groups: tuple[int, int, int], launch: Launch) -> Dispatch | None:
        if any(count * size > _U32 for count, size in zip(groups, launch.local)):
            raise BadState(f"{_by(groups)} groups of {_by(launch.local)} are more than 2^32-1 work-items")
        dispatch = self.state.dispatch(groups, launch, self.memory)
        return dispatch if all(groups) else None

    def read_register(self, offset: int) -> int:
        """Return a register; one that this submission did not write holds leftovers."""
        if offset == CP_ALWAYS_ON_COUNTER.OFFSET:
            return self.services.ticks() & _U32
        if offset == CP_ALWAYS_ON_COUNTER.OFFSET + 1:
            return self.services.ticks() >> 32
        if offset not in REGISTERS:
            raise BadState(f"{register_name(offset)} is not a compute register of this chip family")
        return self.state.registers.get(offset, UNWRITTEN_REGISTER)


# Packets that order what is in order already, or that only matter while another context may take over in
# between. WAIT_FOR_IDLE has nothing to do once nothing is in flight. The kernel ignores an interrupt that it
# did not ask for.
_NOTHING = frozenset(
    int(opcode)
    for opcode in (
        Opcode.NOP,
        Opcode.WAIT_MEM_WRITES,
        Opcode.WAIT_FOR_ME,
        Opcode.WAIT_FOR_IDLE,
        Opcode.INTERRUPT,
        Opcode.YIELD_ENABLE,
        Opcode.PREEMPT_ENABLE_GLOBAL,
        Opcode.PREEMPT_ENABLE_LOCAL,
        Opcode.PREEMPT_DISABLE,
    )
)

_Handler = Callable[[Execution, list[int]], "Dispatch | Polling | None"]

_HANDLERS: dict[int, _Handler] = {
    Opcode.CONTEXT_SWITCH_YIELD: Execution._only_zero,
    Opcode.SKIP_IB2_ENABLE_GLOBAL: Execution._only_zero,
    Opcode.SKIP_IB2_ENABLE_LOCAL: Execution._only_zero,
    Opcode.SET_MODE: Execution._only_zero,
    Opcode.WAIT_MEM_GTE: Execution._wait_mem_gte,
    Opcode.WAIT_REG_MEM: Execution._wait_reg_mem,
    Opcode.EVENT_WRITE: Execution._event_write,
    Opcode.REG_TO_MEM: Execution._reg_to_mem,
    Opcode.MEM_TO_REG: Execution._mem_to_reg,
    Opcode.MEM_WRITE: Execution._mem_write,
    Opcode.MEM_TO_MEM: Execution._mem_to_mem,
    Opcode.MEMCPY: Execution._memcpy,
    Opcode.REG_RMW: Execution._reg_rmw,
    Opcode.REG_WRITE: Execution._reg_write,
    Opcode.COND_EXEC: Execution._cond_exec,
    Opcode.COND_WRITE5: Execution._cond_write,
    Opcode.SET_MARKER: Execution._set_marker,
    Opcode.LOAD_STATE6: Execution._load_state,
    Opcode.LOAD_STATE6_FRAG: Execution._load_state,
    Opcode.LOAD_STATE6_GEOM: Execution._load_state,
    Opcode.INVALIDATE_STATE: Execution._invalidate_state,
    Opcode.INDIRECT_BUFFER: Execution._indirect_buffer,
    Opcode.EXEC_CS: Execution._exec_cs,
    Opcode.EXEC_CS_INDIRECT: Execution._exec_cs_indirect,
    Opcode.RUN_OPENCL: Execution._run_opencl,
}

# What looking ahead executes: state only, nothing that writes memory or waits.
_STATE_PACKETS = frozenset(
    (
        Opcode.SET_MARKER,
        Opcode.LOAD_STATE6,
        Opcode.LOAD_STATE6_FRAG,
        Opcode.LOAD_STATE6_GEOM,
        Opcode.INVALIDATE_STATE,
        Opcode.REG_WRITE,
        Opcode.INDIRECT_BUFFER,
        Opcode.EXEC_CS,
        Opcode.RUN_OPENCL,
    )
)


class LookAhead(Execution):
    """A walk over buffers without side effects that collects the programs which they will run.

    It serves to translate them before they are needed. What it cannot know it skips, and where it fails it
    ends: the real execution reports the error.
    """

    def dispatches(self) -> list[Dispatch]:
        """Return what can be found."""
        found: list[Dispatch] = []
        try:
            while not self.done:
                dispatch = self.run(1 << 20)
                if dispatch is not None:
                    found.append(dispatch)
                    self.advance()
        except GpuFailure:
            return found
        return found

    def _opcode(self, buffer: _Buffer, opcode: int, payload: list[int]) -> Dispatch | None:
        if opcode in _STATE_PACKETS:
            return super()._opcode(buffer, opcode, payload)
        buffer.pc = self._next
        return None


def look_ahead(chip: Chip, memory: AddressSpace, buffers: Sequence[tuple[int, int]]) -> list[Dispatch]:
    """Return the programs that the buffers (address, size in bytes) will run, as far as that is known."""
    return LookAhead(Services(chip, memory, Faults(), lambda: 0), buffers).dispatches()


# ----- helpers ------------------------------------------------------------------------------------

_COMPARE: dict[int, Callable[[int, int], bool]] = {
    p.Function.ALWAYS: lambda value, reference: True,
    p.Function.LT: lambda value, reference: value < reference,
    p.Function.LE: lambda value, reference: value <= reference,
    p.Function.EQ: lambda value, reference: value == reference,
    p.Function.NE: lambda value, reference: value != reference,
    p.Function.GE: lambda value, reference: value >= reference,
    p.Function.GT: lambda value, reference: value > reference,
}


def fetch(memory: AddressSpace, address: int, count: int) -> list[int]:
    """Return ``count`` dwords at GPU address ``address``."""
    return list(struct.unpack(f"<{count}I", memory.read(address, 4 * count)))


def _to_bytes(values: list[int]) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def _from_bytes(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _signed(value: int) -> int:
    return value - (1 << 32) if value & 0x80000000 else value


def _address(low: int, high: int, alignment: int) -> int:
    address = high << 32 | low
    if address % alignment:
        raise BadPacket(f"address {address:#x} is not {alignment}-byte aligned")
    return address


def _reserved(layout: type[Word], word: int) -> None:
    if unknown := layout.unknown(word):
        raise BadPacket(f"{layout.__name__} = {word:#x} sets reserved bits {unknown:#x}")


def _zero(word: int) -> None:
    if word:
        raise BadPacket(f"payload dword 0 is {word:#x}, it must be 0")


def _name(values: type[IntEnum], value: int) -> str:
    return values(value).name if value in values._value2member_map_ else str(value)


def _by(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def _access(fault: MemoryFault) -> str:
    return "write to unmapped or read-only memory" if fault.write else "read from unmapped memory"


def _count(word: int) -> int:
    try:
        return _header(word)[2]
    except BadPacket:
        return 0


def _shorten(words: list[int], count: int, limit: int = 8) -> str:
    shown = ", ".join(f"{word:#x}" for word in words[: min(count, limit)])
    return shown + ", ..." if count > limit else shown
