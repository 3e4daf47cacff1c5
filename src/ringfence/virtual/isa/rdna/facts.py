"""What is known about scalar registers while a program is translated: constants and code addresses.

Three things depend on it: whether EXEC is all ones (then writes need no mask), the MODE register, and where
a jump through a register goes. A fact is a 32-bit constant or one half of a code address.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringfence.hardware.amd.rdna import Instruction, Operand
from ringfence.virtual.isa.rdna.effects import BASES, EXEC, MODE, Effect

FULL = 0xFFFFFFFF
MODE_HWREG = 1


@dataclass(frozen=True, slots=True)
class CodeAddress:
    """One half of the address of code byte ``offset``."""

    offset: int
    high: bool


Fact = int | CodeAddress
Facts = dict[int, Fact]


def signed32(value: int) -> str:
    """Return 32 bits as the signed constant that LLVM writes."""
    value &= FULL
    return str(value - (1 << 32) if value >> 31 else value)


def merge(a: Facts, b: Facts) -> Facts:
    """Return what holds in both."""
    return {register: fact for register, fact in a.items() if b.get(register) == fact}


def register_of(operand: Operand, half: int = 0) -> int | None:
    """Return the scalar register bit of ``operand`` (``half`` 1: the next one), or ``None``."""
    base = BASES.get(operand.kind)
    return None if base is None else base + operand.num + half


def value_of(operand: Operand, facts: Facts, half: int = 0) -> Fact | None:
    """Return what is known about a half of a scalar source."""
    if operand.kind == "int":
        return operand.num & FULL if half == 0 else (FULL if operand.num < 0 else 0)
    if operand.kind == "literal":
        negative = operand.type == "i64" and operand.num >> 31
        return operand.num & FULL if half == 0 else (FULL if negative else 0)
    if operand.kind == "null":
        return 0
    register = register_of(operand, half)
    return None if register is None else facts.get(register)


def code_target(operand: Operand, facts: Facts) -> int | None:
    """Return the code offset that a 64-bit source holds, or ``None``."""
    low, high = value_of(operand, facts), value_of(operand, facts, 1)
    if isinstance(low, CodeAddress) and isinstance(high, CodeAddress) and not low.high and high.high:
        return low.offset
    return None


def exec_full(facts: Facts, wave: int) -> bool:
    """Return whether all lanes are known to be active."""
    return facts.get(EXEC) == FULL and (wave == 32 or facts.get(EXEC + 1) == FULL)


def mode_of(facts: Facts) -> int | None:
    """Return the MODE register, or ``None`` if it is not known."""
    mode = facts.get(MODE)
    return mode if isinstance(mode, int) else None


def advance(i: Instruction, e: Effect, facts: Facts) -> None:
    """Change ``facts`` from before ``i`` to after it."""
    known = _results(i, facts)
    writes = e.writes
    while writes:
        low = writes & -writes
        facts.pop(low.bit_length() - 1, None)
        writes ^= low
    for register, fact in known.items():
        if fact is not None:
            facts[register] = fact


def _results(i: Instruction, facts: Facts) -> dict[int, Fact | None]:
    name = i.name
    if "_saveexec_" in name:
        return _save_exec(i, facts)
    if name in _MODE_WRITERS:
        return {MODE: _mode_after(i, facts)}
    if not i.dsts or (first := register_of(i.dsts[0])) is None:
        return {}
    if name in ("s_mov_b32", "s_mov_b64"):
        return {first + k: value_of(i.srcs[0], facts, k) for k in range(i.dsts[0].size)}
    if name == "s_movk_i32":
        return {first: _signed16(int(i.fields["simm16"])) & FULL}
    if name in ("s_getpc_b64", "s_swappc_b64", "s_call_b64"):
        following = i.pc + i.size
        return {first: CodeAddress(following, False), first + 1: CodeAddress(following, True)}
    if name in ("s_add_u32", "s_addc_u32", "s_add_i32", "s_sub_u32"):
        return {first: _sum(name, *(value_of(s, facts) for s in i.srcs))}
    for prefix, combine in (("s_or_b", _or), ("s_and_b", _and)):
        if name.startswith(prefix):
            a, b = i.srcs
            return {
                first + k: combine(value_of(a, facts, k), value_of(b, facts, k))
                for k in range(i.dsts[0].size)
            }
    return {}


def _or(a: Fact | None, b: Fact | None) -> Fact | None:
    if a == FULL or b == FULL:
        return FULL
    return a | b if isinstance(a, int) and isinstance(b, int) else None


def _and(a: Fact | None, b: Fact | None) -> Fact | None:
    if a == FULL:
        return b
    if b == FULL:
        return a
    return a & b if isinstance(a, int) and isinstance(b, int) else None


def _signed16(value: int) -> int:
    return value - (1 << 16) if value >> 15 else value


def _sum(name: str, a: Fact | None, b: Fact | None) -> Fact | None:
    """Return a sum; the halves of a code address stay one as long as constants are added to both."""
    if isinstance(b, CodeAddress) and name != "s_sub_u32":
        a, b = b, a
    if isinstance(a, CodeAddress) and isinstance(b, int):
        if name == "s_addc_u32":
            return a if a.high else None
        if a.high:
            return None
        delta = b - (1 << 32) if b >> 31 else b
        return CodeAddress(a.offset + (-delta if name == "s_sub_u32" else delta), False)
    if isinstance(a, int) and isinstance(b, int) and name != "s_addc_u32":
        return (a - b if name == "s_sub_u32" else a + b) & FULL
    return None


def _save_exec(i: Instruction, facts: Facts) -> dict[int, Fact | None]:
    """D = EXEC; EXEC = S0 op EXEC."""
    known: dict[int, Fact | None] = {}
    first = register_of(i.dsts[0])
    for k in range(2 if i.name.endswith("b64") else 1):
        old, source = facts.get(EXEC + k), value_of(i.srcs[0], facts, k)
        if first is not None:
            known[first + k] = old
        if i.name.startswith("s_and_saveexec"):
            known[EXEC + k] = _and(source, old)
        elif i.name.startswith("s_or_saveexec"):
            known[EXEC + k] = _or(source, old)
    return known


_MODE_WRITERS = frozenset(("s_setreg_b32", "s_setreg_imm32_b32", "s_round_mode", "s_denorm_mode"))


def _mode_after(i: Instruction, facts: Facts) -> Fact | None:
    mode = mode_of(facts)
    if i.name in ("s_round_mode", "s_denorm_mode"):
        offset, size, value = (0 if i.name == "s_round_mode" else 4), 4, int(i.fields["simm16"]) & 15
    elif int(i.fields["hwreg"]) != MODE_HWREG:
        return mode
    else:
        offset, size = int(i.fields["hwreg_offset"]), int(i.fields["hwreg_size"])
        source = value_of(i.srcs[0], facts)
        if not isinstance(source, int):
            return None
        value = source
    if mode is None:
        return None
    field = ((1 << size) - 1) << offset
    return (mode & ~field) | (value << offset & field)
