"""The static check for missing waits: results of slow instructions that are used without (ss) or (sy).

Memory and texture units return results late; an instruction with (sy) waits for them, one with (ss) for
the short latency units. Hardware does not check, so a program without the flag reads old values now and
then. What needs which flag is what Mesa's ir3_legalize.c and ir3.h (``is_sy_producer``,
``is_ss_producer``) say. That a slow instruction still reads a register that a later one overwrites is not
checked. Results of a predt region do not matter in the predf region of the same predicate: no lane is in
both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ringfence.hardware.adreno.ir3 import Instruction, Operand
from ringfence.hardware.adreno.ir3.operands import CONSTANT_WRITES, source_width
from ringfence.virtual.isa.ir3.code import refuse
from ringfence.virtual.isa.ir3.flow import (
    Block,
    Flow,
    Key,
    destination_registers,
    register_key,
    source_registers,
)
from ringfence.virtual.isa.ir3.scalar import forwards
from ringfence.virtual.isa.jit import TranslationError

SHORT, LONG = "ss", "sy"
_SHORT_NAMES = frozenset(("ldl", "ldlw", "ldlv", "shfl", "resinfo", "getfiberid", "stc"))
_LONG_NAMES = frozenset(("ldg", "ldg.a", "ldg.k", "ldib", "ldp", "ldc", "ldc.k"))
_CONSTANTS: Key = ("c", 0)  # stands for the whole constant file

Pending = dict[tuple[Key, str], Instruction]
"""Register and kind of wait -> the instruction whose result may be on its way."""


def check(flow: Flow, scalar_alu: bool = False) -> None:
    """Raise :class:`TranslationError` at the first use of a result for which nothing waited.

    ``scalar_alu``: the chip has one.
    """
    entry: list[Pending | None] = [None] * len(flow.blocks)
    entry[flow.entry] = {}
    work = [flow.entry]
    while work:
        index = work.pop()
        after = _through(flow.blocks[index], dict(entry[index] or {}), flow, scalar_alu)
        for successor in flow.blocks[index].successors:
            if _join(entry, successor, after):
                work.append(successor)


def _join(entry: list[Pending | None], block: int, state: Pending) -> bool:
    """Add ``state`` to what may be pending at the start of ``block``; return whether that is new."""
    known = entry[block]
    if known is None:
        entry[block] = dict(state)
        return True
    news = {key: producer for key, producer in state.items() if key not in known}
    known.update(news)
    return bool(news)


def _through(block: Block, pending: Pending, flow: Flow, scalar_alu: bool) -> Pending:
    """Return what is pending at the end of a block; ``pending`` is changed."""
    for instruction in block.instructions:
        for flag, waits in ((SHORT, instruction.ss), (LONG, instruction.sy)):
            if waits:
                for entry in [e for e in pending if e[1] == flag]:
                    del pending[entry]
        if pending:
            _check_uses(instruction, pending, flow, scalar_alu)
        needed = _needed_wait(instruction)
        if needed is not None:
            for key in _results(instruction, flow):
                pending[key, needed] = instruction
    return pending


def _check_uses(instruction: Instruction, pending: Pending, flow: Flow, scalar_alu: bool) -> None:
    for key in _uses(instruction, flow):
        for flag in (SHORT, LONG):
            producer = pending.get((key, flag))
            if producer is None or _apart(instruction, producer, flow):
                continue
            if not (scalar_alu and forwards(producer, instruction, key)):
                raise _missing(instruction, producer, key, flag, flow.merged)


def _apart(a: Instruction, b: Instruction, flow: Flow) -> bool:
    """Return whether no lane carries out both instructions."""
    start = flow.region.get(a.pc, -1)
    return start in flow.others and flow.others[start] == flow.region.get(b.pc)


def _missing(
    instruction: Instruction, producer: Instruction, key: Key, flag: str, merged: bool
) -> TranslationError:
    return refuse(
        instruction,
        f"it uses {_name(key, merged)}, the result of pc {producer.pc} `{producer.text}`, but no instruction "
        f"since waits for it with ({flag})",
    )


def _name(key: Key, merged: bool) -> str:
    file, number = key
    if file == "c":
        return "a constant"
    prefix = {"r": "r", "s": "r", "h": "hr", "a": "a", "p": "p"}[file]
    if merged and file == "h" and number % 2 == 0:
        prefix, number = "r", number // 2  # the low half also stands for the full register
    return f"{prefix}{number >> 2}.{'xyzw'[number & 3]}"


def _needed_wait(instruction: Instruction) -> str | None:
    """Return the flag that a reader of the result of ``instruction`` needs."""
    name = instruction.name
    if name in _SHORT_NAMES or instruction.category == 4 or name.startswith("atomic.l."):
        return SHORT
    if name in _LONG_NAMES or name.startswith(("atomic.b.", "atomic.g.")):
        return LONG
    if instruction.category == 5:
        return LONG
    shared = any(key[0] == "s" for key in destination_registers(instruction, False))
    return SHORT if shared else None


def _results(instruction: Instruction, flow: Flow) -> Iterator[Key]:
    if instruction.name in CONSTANT_WRITES:
        yield _CONSTANTS
        return
    yield from _destinations(instruction, flow)
    if instruction.name.startswith("atomic.b."):
        yield from _vector(instruction, instruction.srcs[1], flow.merged)


def _uses(instruction: Instruction, flow: Flow) -> Iterator[Key]:
    """Yield what an instruction reads, and what it writes: a late result must not arrive after that."""
    if flow.merged:
        yield from _parts(source_registers(instruction, False))
    else:
        yield from flow.sources(instruction)
    if instruction.name not in CONSTANT_WRITES:
        yield from _destinations(instruction, flow)
    if any(source.kind in ("const", "rel_const") for source in instruction.srcs):
        yield _CONSTANTS


def _destinations(instruction: Instruction, flow: Flow) -> Iterable[Key]:
    if flow.merged:
        return _parts(destination_registers(instruction, False))
    return flow.results(instruction)


def _vector(instruction: Instruction, operand: Operand, merged: bool) -> Iterable[Key]:
    keys = (register_key(operand, k, False) for k in range(source_width(instruction, 1)))
    known = [key for key in keys if key is not None]
    return _parts(known) if merged else known


def _parts(keys: Iterable[Key]) -> Iterator[Key]:
    """Yield the half registers that full registers consist of in merged files, other keys as they are."""
    for key in keys:
        file, number = key
        if file == "r":
            yield ("h", 2 * number)
            yield ("h", 2 * number + 1)
        else:
            yield key
