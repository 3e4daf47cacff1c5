"""The static check for missing waits: registers that are used while a memory operation may still write them.

Memory operations run beside the program and count up: vector memory loads vmcnt, stores vscnt, local
memory, scalar loads and messages lgkmcnt, flat ones vmcnt and lgkmcnt. s_waitcnt waits until at most n are
under way. Vector memory and local memory return in order, scalar loads in any order, so for them only a
wait for 0 helps (RDNA3 ISA manual, chapter 4.4; LLVM, SIInsertWaitcnts.cpp). Hardware does not check: a
program without the wait reads the old value now and then. The halves of a VGPR are registers of their own:
compilers load one while they use the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from ringfence.hardware.amd.rdna import Instruction, Operand
from ringfence.virtual.isa.jit import TranslationError
from ringfence.virtual.isa.rdna.effects import read_halves, scalar_bits, vector_bits, written_halves
from ringfence.virtual.isa.rdna.flow import Flow

VM, LGKM = "vmcnt", "lgkmcnt"
OLDEST = 64  # no counter counts so far
VECTOR_LOADS = ("global", "scratch", "mubuf")
VECTORS = 256  # registers: scalar ones count from 0, the halves of VGPRs from here


@dataclass(frozen=True, slots=True)
class Flight:
    """A result under way: its producer, the number of its operation, whether such results keep order.

    The operations of a counter are numbered from the start of a block: those that began before it have
    negative numbers.
    """

    producer: Instruction
    number: int
    ordered: bool


Pending = dict[str, dict[int, Flight]]  # by counter and register


@dataclass(frozen=True, slots=True)
class Step:
    """What an instruction does as far as waits go.

    ``waits`` are the counters that it waits for and how many operations it lets be under way, ``counters``
    those that count it.
    """

    instruction: Instruction
    waits: tuple[tuple[str, int], ...]
    counters: tuple[str, ...]
    ordered: bool
    read: tuple[int, ...]
    written: tuple[int, ...]

    @classmethod
    def of(cls, i: Instruction, wave: int) -> Self:
        ordered = i.format != "smem" and not _is_message(i)
        return cls(
            i, tuple(_waits(i)), _counters(i), ordered, tuple(_read(i, wave)), tuple(_written(i, wave))
        )


def check(flow: Flow, wave: int, entry: int) -> None:
    """Raise :class:`TranslationError` at the first use of a register for which nothing waited."""
    steps = [[Step.of(i, wave) for i in block.instructions] for block in flow.blocks]
    states: list[Pending | None] = [None] * len(flow.blocks)
    first = flow.block_at[entry]
    states[first] = {VM: {}, LGKM: {}}
    work = {first}
    while work:
        index = min(work)  # so that, but for loops, what comes before a block is known when it is its turn
        work.remove(index)
        before = states[index]
        assert before is not None
        after = _through(steps[index], before)
        work.update(block for block in flow.blocks[index].successors if _join(states, block, after))


def _join(states: list[Pending | None], block: int, state: Pending) -> bool:
    """Add ``state`` to what may be under way at the start of ``block``.

    Return whether that is more than before.
    """
    known = states[block]
    if known is None:
        states[block] = {counter: dict(flights) for counter, flights in state.items()}
        return True
    changed = False
    for counter, flights in state.items():
        before = known[counter]
        for register, flight in flights.items():
            old = before.get(register)
            if old is None or flight.number > old.number:
                before[register] = flight
                changed = True
    return changed


def _through(steps: list[Step], before: Pending) -> Pending:
    """Return what is under way after a block, numbered for the next one."""
    pending = {counter: dict(flights) for counter, flights in before.items()}
    begun = dict.fromkeys(pending, 0)
    for step in steps:
        for counter, allowed in step.waits:
            _wait(pending[counter], allowed, begun[counter])
        for counter, flights in pending.items():
            if flights:
                _check_uses(step, counter, flights)
        for counter in step.counters:
            flight = Flight(step.instruction, begun[counter], step.ordered)
            pending[counter].update(dict.fromkeys(step.written, flight))
            begun[counter] += 1
    return {
        counter: {
            register: Flight(f.producer, max(f.number - begun[counter], -OLDEST), f.ordered)
            for register, f in flights.items()
        }
        for counter, flights in pending.items()
    }


def _wait(flights: dict[int, Flight], allowed: int, begun: int) -> None:
    """Wait until at most ``allowed`` of the operations that have ``begun`` are under way."""
    if allowed == 0:
        flights.clear()
    elif all(f.ordered for f in flights.values()):
        for register in [each for each, f in flights.items() if f.number < begun - allowed]:
            del flights[register]


def _is_message(i: Instruction) -> bool:
    return i.name.startswith("s_sendmsg_rtn")


def _waits(i: Instruction) -> Iterator[tuple[str, int]]:
    """Yield the counters that ``i`` waits for and how many operations it allows to be under way."""
    if i.name == "s_waitcnt":
        value = int(i.fields["simm16"])
        yield VM, value >> 10 & 63
        yield LGKM, value >> 4 & 63
    elif i.name in ("s_waitcnt_vmcnt", "s_waitcnt_lgkmcnt"):
        yield i.name.removeprefix("s_waitcnt_"), int(i.fields["simm16"]) & 63
    elif i.name == "s_wait_idle":
        yield VM, 0
        yield LGKM, 0


def _counters(i: Instruction) -> tuple[str, ...]:
    """Return the counters that count an instruction (stores count in vscnt, which no register waits for)."""
    if i.format == "smem" or i.format == "ds" or _is_message(i):
        return (LGKM,)
    if i.format in VECTOR_LOADS and i.dsts:
        return (VM,)
    if i.format == "flat":
        return (VM, LGKM) if i.dsts else (LGKM,)
    return ()


def _registers(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _parts(operand: Operand, halves: tuple[int, ...], wave: int) -> Iterator[int]:
    """Yield the registers that an operand names, of VGPRs the ``halves``."""
    yield from _registers(scalar_bits(operand, wave))
    for number in _registers(vector_bits(operand)):
        for half in halves:
            yield VECTORS + 2 * number + half


def _read(i: Instruction, wave: int) -> Iterator[int]:
    for position, operand in enumerate(i.srcs):
        yield from _parts(operand, read_halves(i, position), wave)


def _written(i: Instruction, wave: int) -> Iterator[int]:
    for position, operand in enumerate(i.dsts):
        yield from _parts(operand, written_halves(i, position), wave)


def _check_uses(step: Step, counter: str, flights: dict[int, Flight]) -> None:
    """Refuse a step that reads a register that is under way, or writes one that another will write."""
    for register in step.read:
        if register in flights:
            raise _refusal(step.instruction, "reads", register, counter, flights[register])
    for register in step.written:
        if register in flights and not (counter in step.counters and flights[register].ordered):
            raise _refusal(step.instruction, "writes", register, counter, flights[register])


def _refusal(i: Instruction, verb: str, register: int, counter: str, flight: Flight) -> TranslationError:
    producer = flight.producer
    name = f"s{register}" if register < VECTORS else f"v{(register - VECTORS) // 2}"
    message = (
        f"byte {i.pc:#x} `{i.text}` {verb} {name}, which `{producer.text}` at byte "
        f"{producer.pc:#x} may not have written yet: an s_waitcnt {counter} is missing between them"
    )
    return TranslationError(message, pc=i.pc, instruction=i.text)
