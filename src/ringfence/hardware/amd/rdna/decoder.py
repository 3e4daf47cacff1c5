"""Turns code bytes into :class:`Instruction`, by the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ringfence.hardware.amd.rdna import encoding
from ringfence.hardware.amd.rdna.encoding import Row, Slot
from ringfence.hardware.amd.rdna.instruction import Instruction, Operand
from ringfence.hardware.amd.rdna.opcodes import VOPD_OPCODES
from ringfence.hardware.amd.rdna.reader import DPP_CODES, Reader
from ringfence.hardware.encoding import Bits


def decode(code: bytes | memoryview, offset: int = 0, *, wave: int = 32) -> Instruction:
    """Return the instruction at byte ``offset`` of ``code``.

    ``wave`` (32 or 64) is the number of lanes, on which the size of masks depends. Raises
    :class:`UnknownInstruction` if the bytes are no instruction of gfx11 that is known.
    """
    if wave not in (32, 64):
        raise ValueError(f"a wave has 32 or 64 lanes, not {wave}")
    if offset % 4 or not 0 <= offset <= len(code) - 4:
        raise ValueError(f"offset {offset:#x} is not that of a dword of the {len(code)} bytes of code")
    reader = Reader(code, offset, wave)
    return _vopd(reader) if reader.format is encoding.VOPD else _instruction(reader)


def decode_program(
    code: bytes | memoryview, start: int = 0, end: int | None = None, *, wave: int = 32
) -> Iterator[Instruction]:
    """Yield the instructions from byte ``start`` to byte ``end`` (default: all), padding included.

    Data between functions raises :class:`UnknownInstruction`; so follow branches where code is mixed with it.
    """
    stop = len(code) if end is None else end
    while start < stop:
        instruction = decode(code, start, wave=wave)
        yield instruction
        start += instruction.size


def _instruction(d: Reader) -> Instruction:
    row = d.row
    assert row is not None
    dsts, srcs = d.operands()
    fields = _FIELDS[row.form](d)
    if row.form == "mix":
        srcs = tuple(_mixed(source, index, fields) for index, source in enumerate(srcs))
    if d.unused:
        fields["unused"] = d.unused
    return Instruction(d.pc, d.size, d.words, row.format, row.name, dsts, srcs, fields)


# Extra fields, by Row.form

Extras = dict[str, Any]


def _simm16(d: Reader) -> Extras:
    return {"simm16": d["SIMM16"]}


def _branch(d: Reader) -> Extras:
    """Return the target: the offset counts dwords from the end of the instruction."""
    simm16 = d["SIMM16"]
    return {"simm16": simm16, "target": d.pc + 4 + 4 * (simm16 - (simm16 >> 15 << 16))}


def _hwreg(d: Reader) -> Extras:
    value = d["SIMM16"]
    return {
        "simm16": value,
        "hwreg": value & 63,
        "hwreg_offset": value >> 6 & 31,
        "hwreg_size": (value >> 11) + 1,
    }


def _smem(d: Reader) -> Extras:
    probe = {"probe": d["PROBE"]} if "PROBE" in d else {}
    return {"offset": d["OFFSET"], "glc": d.get("GLC"), "dlc": d.get("DLC"), **probe}


def _vector_extras(d: Reader) -> Extras:
    op_sel = d.get("OP_SEL")
    for k, name in enumerate(("HI0", "HI1", "HI2", "HI_DST")):
        op_sel |= d.get(name) << k
    return {
        "vop3": int(d.format.width == 64),
        "clamp": d.get("CLAMP"),
        "omod": d.get("OMOD"),
        "op_sel": op_sel,
        "dpp": d.dpp,
    }


def _packed(d: Reader) -> Extras:
    return {
        "clamp": d.get("CLAMP"),
        "op_sel": d.get("OP_SEL") | d.get("OP_SEL_C") << 2,
        "op_sel_hi": d.get("OP_SEL_HI", 3) | d.get("OP_SEL_HI2", 1) << 2,
        "neg_lo": d.get("NEG_LO"),
        "neg_hi": d.get("NEG_HI"),
        "dpp": d.dpp,
    }


def _mixed(source: Operand, index: int, fields: Extras) -> Operand:
    """Return a source of v_fma_mix: op_sel_hi makes it f16, op_sel selects the half, neg_hi means abs."""
    half = bool(fields["op_sel_hi"] >> index & 1)
    return replace(
        source,
        type="f16" if half else "f32",
        hi=half and bool(fields["op_sel"] >> index & 1),
        neg=bool(fields["neg_lo"] >> index & 1),
        abs=bool(fields["neg_hi"] >> index & 1),
    )


def _layout(row: Row) -> tuple[str, ...]:
    return tuple("data" if slot.field == "VDATA" else slot.field.lower() for slot in row.srcs)


def _memory(*names: str) -> Callable[[Reader], Extras]:
    """Return the extras of a memory form: the layout and the named fields as far as the row has them."""

    def extras(d: Reader) -> Extras:
        assert d.row is not None
        fields = {name: d[name.upper()] for name in names if name.upper() in d}
        return {"layout": _layout(d.row), **fields}

    return extras


def _ds(d: Reader) -> Extras:
    extras = _memory("offset", "offset0", "offset1")(d)
    return {**extras, "gds": d["GDS"] if "GDS" in d else d.word >> 17 & 1}


def _flat(d: Reader) -> Extras:
    extras = _memory("offset", "slc", "dlc", "sve")(d)
    return {**extras, "glc": d.word >> 14 & 1}


def _mubuf(d: Reader) -> Extras:
    extras = _memory("offset", "offen", "idxen", "slc", "dlc")(d)
    return {**extras, "glc": d.word >> 14 & 1, "tfe": d.word >> 53 & 1}


_FIELDS: dict[str, Callable[[Reader], Extras]] = {
    "plain": lambda d: {},
    "message": lambda d: {"message": d["MESSAGE"]},
    "simm16": _simm16,
    "branch": _branch,
    "hwreg": _hwreg,
    "smem": _smem,
    "vector": _vector_extras,
    "packed": _packed,
    "mix": _packed,
    "interp": lambda d: {"clamp": d["CLAMP"], "wait_exp": d["WAIT_EXP"]},
    "ds": _ds,
    "flat": _flat,
    "mubuf": _mubuf,
}


# VOPD

_VOPD_NAMES = {opcode: name for name, opcode in VOPD_OPCODES.items()}
_VOPD_X = (Bits(22, 25), Bits(0, 8), Bits(9, 16))
_VOPD_Y = (Bits(17, 21), Bits(32, 40), Bits(41, 48))
_VDSTX = Bits(56, 63)
_VDSTY = Bits(49, 55)
_LAST_X = 13


def _vopd(d: Reader) -> Instruction:
    """Return the pair of a VOPD; the destinations differ in bit 0, of which only that of X is encoded."""
    if d.wave != 32:
        raise d.refuse(encoding.VOPD.opcode.mask, "VOPD exists in wave32 only")
    dst_x = _VDSTX.get(d.word)
    dst_y = _VDSTY.get(d.word) << 1 | ~dst_x & 1
    parts = [_vopd_half(d, _VOPD_X, dst_x), _vopd_half(d, _VOPD_Y, dst_y)]
    x, y = (Instruction(d.pc, d.size, d.words, "vopd", name, dsts, srcs, {}) for name, dsts, srcs in parts)
    fields: Extras = {"x": x, "y": y}
    if d.unused:
        fields["unused"] = d.unused
    return Instruction(d.pc, d.size, d.words, "vopd", "vopd", x.dsts + y.dsts, x.srcs + y.srcs, fields)


def _vopd_half(
    d: Reader, places: tuple[Bits, Bits, Bits], destination: int
) -> tuple[str, tuple[Operand, ...], tuple[Operand, ...]]:
    opcode, source, register = places
    number = opcode.get(d.word)
    name = _VOPD_NAMES.get(number)
    if name is None or (places is _VOPD_X and number > _LAST_X):
        raise d.refuse(opcode.mask, f"VOPD has no opcode {number} there")
    type_ = _vopd_type(name)
    code = source.get(d.word)
    if code in DPP_CODES:
        raise d.refuse(source.mask, "VOPD has no DPP permutation")
    src0 = d.source(Slot("src", "", type_), code)
    src1 = Operand("vgpr", register.get(d.word), type=type_)
    dst = Operand("vgpr", destination, type="f32" if "f32" in name else type_)
    if name == "v_dual_mov_b32":
        d.unused |= d.word & register.mask
        return name, (dst,), (src0,)
    return name, (dst,), _vopd_sources(d, name, src0, src1)


def _vopd_sources(d: Reader, name: str, src0: Operand, src1: Operand) -> tuple[Operand, ...]:
    if name == "v_dual_fmaak_f32":
        return src0, src1, Operand("literal", d.literal(), type="f32")
    if name == "v_dual_fmamk_f32":
        return src0, Operand("literal", d.literal(), type="f32"), src1
    if name == "v_dual_cndmask_b32":
        return src0, src1, Operand("vcc", 0, type="mask")
    return src0, src1


def _vopd_type(name: str) -> str:
    if "dot2acc" in name:
        return "v2bf16" if name.endswith("bf16") else "v2f16"
    type_ = name.rsplit("_", 1)[1]
    return "u32" if name == "v_dual_lshlrev_b32" else type_
