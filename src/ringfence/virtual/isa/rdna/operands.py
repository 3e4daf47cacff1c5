"""Sources of vector instructions, with the lane permutation (DPP) of the first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ringfence.hardware.amd.rdna import Dpp, Instruction, Operand
from ringfence.virtual.isa.rdna.translate import Translator

QUAD_PERM_END = ROW_SHL = 0x100
ROW_SHR, ROW_ROR, ROW_MIRROR, ROW_HALF_MIRROR = 0x110, 0x120, 0x140, 0x141
ROW_BROADCAST, ROW_SHARE, ROW_XMASK = 0x142, 0x150, 0x160
OUTSIDE = -1


@dataclass(frozen=True, slots=True)
class Permutation:
    """Lane i reads lane ``lanes[i]`` (or ``OUTSIDE``); ``written[i]`` whether the masks let it write."""

    lanes: tuple[int, ...]
    written: tuple[bool, ...]


def permutation(dpp: Dpp, wave: int) -> Permutation:
    """Return what a DPP permutation does in a wave of ``wave`` lanes."""
    if dpp.kind == "dpp8":
        return Permutation(tuple((i & ~7) + dpp.lanes[i & 7] for i in range(wave)), (True,) * wave)
    lanes = tuple(_dpp16_lane(dpp.control, i) for i in range(wave))
    written = tuple(bool(dpp.row_mask >> (i // 16) & dpp.bank_mask >> (i % 16 // 4) & 1) for i in range(wave))
    return Permutation(lanes, written)


def _dpp16_lane(control: int, lane: int) -> int:
    row, k = lane & ~15, lane & 15
    if control < QUAD_PERM_END:
        return (lane & ~3) + (control >> 2 * (lane & 3) & 3)
    family, amount = control & 0x1F0, control & 15
    if control == ROW_MIRROR:
        return row + 15 - k
    if control == ROW_HALF_MIRROR:
        return row + (k & 8) + 7 - (k & 7)
    if control == ROW_BROADCAST:
        return row
    if family == ROW_SHL:
        return row + k + amount if k + amount < 16 else OUTSIDE
    if family == ROW_SHR:
        return row + k - amount if k >= amount else OUTSIDE
    if family == ROW_ROR:
        return row + ((k - amount) & 15)
    if family == ROW_SHARE:
        return row + amount
    assert family == ROW_XMASK, control
    return row + (k ^ amount)


def operands(t: Translator, i: Instruction) -> list[str]:
    """Return the sources of a vector instruction in the kinds of their types; masks as i1 lanes."""
    values = []
    for position, source in enumerate(i.srcs):
        if source.type == "mask":
            values.append(t.mask_source(source))
        elif position == 0 and i.fields.get("dpp") is not None:
            values.append(permuted_source(t, source, i.fields["dpp"]))
        else:
            values.append(t.source(source))
    return values


def permuted_source(t: Translator, source: Operand, dpp: Dpp) -> str:
    """Return the first source after its permutation; from here on the instruction writes only some lanes."""
    v, plan = t.v, permutation(dpp, t.wave)
    word = t.vgpr(source.num)
    permuted = shuffled(t, word, plan.lanes)
    valid: str | None = None
    if not dpp.fetch_inactive and not t.full:
        valid = _shuffled_mask(t, t.exec_mask(), plan.lanes)
        permuted = v.select(valid, v.i32, permuted, "zeroinitializer")
    elif OUTSIDE in plan.lanes:
        valid = mask_constant(t, [lane != OUTSIDE for lane in plan.lanes])
    written = None if all(plan.written) else mask_constant(t, plan.written)
    if dpp.kind == "dpp16" and not dpp.bound_ctrl and valid is not None:
        written = valid if written is None else v.op("and", v.mask, written, valid)
    t.lanes = written
    kind = t.kind(source)
    value = t.half_of(permuted, source.hi) if kind in ("i16", "f16") else permuted
    value = t.convert(v, value, "i16" if kind in ("i16", "f16") else "i32", kind)
    return t.modified(source, value, kind)


def shuffled(t: Translator, word: str, lanes: Sequence[int]) -> str:
    """Return i32 lanes rearranged: lane i is lane ``lanes[i]`` of ``word``, 0 if that is ``OUTSIDE``."""
    v = t.v
    indices = ", ".join(f"i32 {lane if lane != OUTSIDE else t.wave}" for lane in lanes)
    return v.new(f"shufflevector {v.i32} {word}, {v.i32} zeroinitializer, <{t.wave} x i32> <{indices}>")


def _shuffled_mask(t: Translator, mask: str, lanes: Sequence[int]) -> str:
    v = t.v
    indices = ", ".join(f"i32 {lane if lane != OUTSIDE else t.wave}" for lane in lanes)
    return v.new(f"shufflevector {v.mask} {mask}, {v.mask} zeroinitializer, <{t.wave} x i32> <{indices}>")


def mask_constant(t: Translator, lanes: Sequence[bool]) -> str:
    """Return a constant lane mask."""
    return "<" + ", ".join(f"i1 {'true' if lane else 'false'}" for lane in lanes) + ">"
