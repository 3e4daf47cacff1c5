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

from ringfence.hardware.amd.rdna import Instruction, Operand
from ringfence.virtual.isa.jit import TranslationError
from ringfence.virtual.isa.rdna.effects import read_halves, scalar_bits, vector_bits, written_halves
from ringfence.virtual.isa.rdna.flow import Block, Flow

VM, LGKM = "vmcnt", "lgkmcnt"
OLDEST = 64  # no counter counts so far
VECTOR_LOADS = ("global", "scratch", "mubuf")

Key = tuple[str, int, int]  # ("s" or "v", number of the register, half of a VGPR)


@dataclass(frozen=True, slots=True)
class Flight:
    """A result under way: producer, counter, operations begun since, whether such results keep order."""

    producer: Instruction
    counter: str
    age: int
    ordered: bool


Pending = dict[tuple[Key, str], Flight]


def check(flow: Flow, wave: int, entry: int) -> None:
    """Raise :class:`TranslationError` at the first use of a register for which nothing waited."""
    states: list[Pending | None] = [None] * len(flow.blocks)
    first = flow.block_at[entry]
    states[first] = {}
    work = [first]
    while work:
        block = flow.blocks[work.pop()]
        after = _through(block, dict(states[block.index] or {}), wave)
        for successor in block.successors:
            if _join(states, successor, after):
                work.append(successor)


def _join(states: list[Pending | None], block: int, state: Pending) -> bool:
    """Add ``state`` to what may be under way at the start of ``block``.

    Return whether that is more than before.
    """
    known = states[block]
    if known is None:
        states[block] = dict(state)
        return True
    changed = False
    for key, flight in state.items():
        old = known.get(key)
        if old is None or flight.age < old.age:
            known[key] = flight
            changed = True
    return changed


def _through(block: Block, pending: Pending, wave: int) -> Pending:
    for i in block.instructions:
        for counter, allowed in _waits(i):
            _wait(pending, counter, allowed)
        if pending:
            _check_uses(i, pending, wave)
        counters = _counters(i)
        for counter in counters:
            _begin(pending, counter)
        for key in _written(i, wave) if counters else ():
            for counter in counters:
                pending[key, counter] = Flight(i, counter, 0, i.format != "smem" and not _is_message(i))
    return pending


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


def _wait(pending: Pending, counter: str, allowed: int) -> None:
    mixed = any(f.counter == counter and not f.ordered for f in pending.values())
    for key, flight in list(pending.items()):
        if flight.counter != counter:
            continue
        if allowed == 0 or (flight.ordered and flight.age >= allowed and not mixed):
            del pending[key]


def _begin(pending: Pending, counter: str) -> None:
    """Age the operations of a counter, of which one more begins."""
    for key, flight in pending.items():
        if flight.counter == counter and flight.age < OLDEST:
            pending[key] = Flight(flight.producer, counter, flight.age + 1, flight.ordered)


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


def _parts(operand: Operand, halves: tuple[int, ...], wave: int) -> Iterator[Key]:
    """Yield the registers that an operand names, of VGPRs the ``halves``."""
    for number in _registers(scalar_bits(operand, wave)):
        yield "s", number, 0
    for number in _registers(vector_bits(operand)):
        for half in halves:
            yield "v", number, half


def _read(i: Instruction, wave: int) -> Iterator[Key]:
    for position, operand in enumerate(i.srcs):
        yield from _parts(operand, read_halves(i, position), wave)


def _written(i: Instruction, wave: int) -> Iterator[Key]:
    for position, operand in enumerate(i.dsts):
        yield from _parts(operand, written_halves(i, position), wave)


def _check_uses(i: Instruction, pending: Pending, wave: int) -> None:
    """Refuse ``i`` if it reads a register that is under way, or writes one that another will write."""
    own = _counters(i)
    for written, keys in ((False, _read(i, wave)), (True, _written(i, wave))):
        for key in keys:
            for counter in (VM, LGKM):
                flight = pending.get((key, counter))
                if flight and not (written and counter in own and flight.ordered):
                    raise _refusal(i, key, flight, written)


def _refusal(i: Instruction, key: Key, flight: Flight, written: bool) -> TranslationError:
    producer = flight.producer
    verb = "writes" if written else "reads"
    message = (
        f"byte {i.pc:#x} `{i.text}` {verb} {key[0]}{key[1]}, which `{producer.text}` at byte "
        f"{producer.pc:#x} may not have written yet: an s_waitcnt {flight.counter} is missing between them"
    )
    return TranslationError(message, pc=i.pc, instruction=i.text)
