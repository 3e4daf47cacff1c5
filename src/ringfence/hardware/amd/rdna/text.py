"""The assembly text of an instruction, as LLVM 22 prints it for gfx1100 (with single spaces)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from ringfence.hardware.amd.rdna.encoding import HALVES
from ringfence.hardware.amd.rdna.instruction import Dpp, Instruction, Operand

_FLOATS = ("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0")
_INVERSE_2PI = 248
_REGISTERS = {"sgpr": "s", "vgpr": "v", "ttmp": "ttmp"}
_WIDE = ("f64", "b64", "i64", "u64")

HARDWARE_REGISTERS = {
    1: "HW_REG_MODE",
    2: "HW_REG_STATUS",
    3: "HW_REG_TRAPSTS",
    5: "HW_REG_GPR_ALLOC",
    6: "HW_REG_LDS_ALLOC",
    7: "HW_REG_IB_STS",
    15: "HW_REG_SH_MEM_BASES",
    18: "HW_REG_PERF_SNAPSHOT_PC_LO",
    19: "HW_REG_PERF_SNAPSHOT_PC_HI",
    20: "HW_REG_FLAT_SCR_LO",
    21: "HW_REG_FLAT_SCR_HI",
    23: "HW_REG_HW_ID1",
    24: "HW_REG_HW_ID2",
    27: "HW_REG_PERF_SNAPSHOT_DATA",
    29: "HW_REG_SHADER_CYCLES",
}
"""Register ids of s_getreg and s_setreg that have a name on gfx11."""

MESSAGES = {
    1: "MSG_INTERRUPT",
    2: "MSG_HS_TESSFACTOR",
    3: "MSG_DEALLOC_VGPRS",
    5: "MSG_STALL_WAVE_GEN",
    6: "MSG_HALT_WAVES",
    9: "MSG_GS_ALLOC_REQ",
    128: "MSG_RTN_GET_DOORBELL",
    129: "MSG_RTN_GET_DDID",
    130: "MSG_RTN_GET_TMA",
    131: "MSG_RTN_GET_REALTIME",
    132: "MSG_RTN_SAVE_WAVE",
    133: "MSG_RTN_GET_TBA",
    134: "MSG_RTN_GET_TBA_TO_PC",
}
"""Message ids of s_sendmsg and s_sendmsg_rtn that LLVM names for gfx11."""


def render(i: Instruction) -> str:
    """Return the text of an instruction."""
    if i.format == "vopd":
        return " :: ".join(_half_of_pair(part) for part in (i.fields["x"], i.fields["y"]))
    return _RENDER[i.format](i)


def _line(name: str, operands: Iterable[str], modifiers: Iterable[str] = ()) -> str:
    words = [name, ", ".join(operand for operand in operands if operand), *modifiers]
    return " ".join(word for word in words if word)


# Operands


def operand_text(operand: Operand) -> str:
    """Return an operand with its modifiers."""
    text = _bare(operand)
    if operand.abs:
        return f"{'-' if operand.neg else ''}|{text}|"
    if operand.neg:
        # A minus sign before a number would be read as part of it.
        return f"-{text}" if text[0].isalpha() else f"neg({text})"
    return text


def _bare(o: Operand) -> str:
    if o.kind in _REGISTERS:
        return _register(_REGISTERS[o.kind], o)
    if o.kind in ("vcc", "exec"):
        return o.kind if o.size == 2 else f"{o.kind}_{'hi' if o.num else 'lo'}"
    if o.kind == "int":
        return str(o.num)
    if o.kind == "float":
        return _inline_float(o)
    if o.kind == "literal":
        return _literal(o)
    return o.kind if o.kind in ("m0", "null", "off") else f"src_{o.kind}"


def _register(prefix: str, o: Operand) -> str:
    if o.size > 1:
        return f"{prefix}[{o.num}:{o.num + o.size - 1}]"
    half = (".h" if o.hi else ".l") if prefix == "v" and o.type in HALVES else ""
    return f"{prefix}{o.num}{half}"


def _inline_float(o: Operand) -> str:
    if o.num == _INVERSE_2PI:
        return "0.15915494309189532" if o.type in _WIDE else "0.15915494"
    return _FLOATS[o.num - 240]


_INLINE32 = frozenset(
    {
        *(0x3F000000, 0xBF000000, 0x3F800000, 0xBF800000, 0x40000000, 0xC0000000, 0x40800000, 0xC0800000),
        0x3E22F983,
    }
)
_INLINE16 = frozenset({0x3800, 0xB800, 0x3C00, 0xBC00, 0x4000, 0xC000, 0x4400, 0xC400, 0x3118})
_SMALLEST, _LARGEST = -16, 64


def _literal(o: Operand) -> str:
    """Return a literal; one that an inline constant could replace is marked, so that it stays a literal."""
    return f"lit({o.num:#x})" if _could_be_inline(o.type, o.num) else f"{o.num:#x}"


def _could_be_inline(type_: str, value: int) -> bool:
    if type_ in _WIDE:
        return value <= _LARGEST
    bits, floats = (16, _INLINE16) if type_ in HALVES or type_ == "v2f16" else (32, _INLINE32)
    signed = value - (value >> (bits - 1) << bits) if value < 1 << bits else value
    return _SMALLEST <= signed <= _LARGEST or value in floats


def _immediate(value: int) -> str:
    """Return an immediate operand: small numbers are decimal."""
    return str(value) if value <= _LARGEST else f"{value:#x}"


def _operands(i: Instruction) -> list[str]:
    return [operand_text(operand) for operand in (*i.dsts, *i.srcs)]


# Scalar


def _plain(i: Instruction) -> str:
    return _line(i.name, _operands(i))


def _sop1(i: Instruction) -> str:
    if "message" not in i.fields:
        return _plain(i)
    return _line(i.name, [*_operands(i), _sendmsg(i.fields["message"])])


def _hwreg(i: Instruction) -> str:
    number, offset, size = (i.fields[name] for name in ("hwreg", "hwreg_offset", "hwreg_size"))
    parts = [HARDWARE_REGISTERS.get(number, str(number))]
    if (offset, size) != (0, 32):
        parts += [str(offset), str(size)]
    return f"hwreg({', '.join(parts)})"


def _immediate32(value: int) -> str:
    """Return a 32-bit immediate. LLVM prints 1.0 for 0x3f800000, but then reads 1.0 as 0."""
    signed = value - (value >> 31 << 32)
    return str(signed) if _SMALLEST <= signed <= _LARGEST else f"{value:#x}"


def _sopk(i: Instruction) -> str:
    if i.name == "s_getreg_b32":
        return _line(i.name, [*_operands(i), _hwreg(i)])
    if i.name == "s_setreg_b32":
        return _line(i.name, [_hwreg(i), *_operands(i)])
    if i.name == "s_setreg_imm32_b32":
        return _line(i.name, [_hwreg(i), _immediate32(i.srcs[0].num)])
    register = [operand_text(operand) for operand in (*i.dsts, *i.srcs)][:1]
    simm16 = i.fields["simm16"]
    return _line(i.name, [*register, str(simm16) if "target" in i.fields else f"{simm16:#x}"])


_DECIMAL = frozenset(
    {
        *("s_nop", "s_setkill", "s_sethalt", "s_sleep", "s_trap", "s_denorm_mode", "s_setprio"),
        *("s_incperflevel", "s_decperflevel"),
    }
)


def _sopp(i: Instruction) -> str:
    if "simm16" not in i.fields:
        return i.name
    value: int = i.fields["simm16"]
    if i.name in _SOPP:
        return _line(i.name, [_SOPP[i.name](value)])
    return _line(i.name, [_number(i, value)])


def _number(i: Instruction, value: int) -> str:
    if "target" in i.fields:
        return str(value)
    return _immediate(value) if i.name in _DECIMAL else f"{value:#x}"


def _waitcnt(value: int) -> str:
    """Return the counters that are waited for; vmcnt is 15:10, lgkmcnt 9:4, expcnt 2:0."""
    counters = (("vmcnt", value >> 10, 63), ("expcnt", value & 7, 7), ("lgkmcnt", value >> 4 & 63, 63))
    waited = [f"{name}({count})" for name, count, none in counters if count != none]
    return " ".join(waited or [f"{name}({count})" for name, count, _ in counters])


def _sendmsg(value: int) -> str:
    """Return the message by name if bits 7:0 have one."""
    if value & 0xFF in MESSAGES:
        return f"sendmsg({MESSAGES[value & 0xFF]})"
    return f"sendmsg({value}, 0, 0)" if value < 256 else str(value)


_DEPENDENCIES = (
    *("NO_DEP", "VALU_DEP_1", "VALU_DEP_2", "VALU_DEP_3", "VALU_DEP_4", "TRANS32_DEP_1", "TRANS32_DEP_2"),
    *("TRANS32_DEP_3", "FMA_ACCUM_CYCLE_1", "SALU_CYCLE_1", "SALU_CYCLE_2", "SALU_CYCLE_3"),
)
_SKIPS = ("SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4")


def _delay_alu(value: int) -> str:
    """Return the dependencies: instid0 3:0, instskip 6:4, instid1 10:7; the number if one has no name."""
    first, skip, second = value & 15, value >> 4 & 7, value >> 7
    if first >= len(_DEPENDENCIES) or skip >= len(_SKIPS) or second >= len(_DEPENDENCIES):
        return f"{value:#x}"
    parts = [f"instid0({_DEPENDENCIES[first]})"] if first else []
    parts += [f"instskip({_SKIPS[skip]})"] if skip else []
    parts += [f"instid1({_DEPENDENCIES[second]})"] if second else []
    return " | ".join(parts) or "0"


_COUNTERS = (
    ("depctr_hold_cnt", 7, 1),
    ("depctr_sa_sdst", 0, 1),
    ("depctr_va_vdst", 12, 4),
    ("depctr_va_sdst", 9, 3),
    ("depctr_va_ssrc", 8, 1),
    ("depctr_va_vcc", 1, 1),
    ("depctr_vm_vsrc", 2, 3),
)
_COUNTER_BITS = sum(((1 << width) - 1) << low for _, low, width in _COUNTERS)


def _depctr(value: int) -> str:
    """Return the dependency counters that are not at their maximum, or the number if other bits are set."""
    if value & ~_COUNTER_BITS:
        return f"{value:#x}"
    counts = [(name, value >> low & (1 << width) - 1, (1 << width) - 1) for name, low, width in _COUNTERS]
    waited = [f"{name}({count})" for name, count, none in counts if count != none]
    return " ".join(waited or [f"{name}({count})" for name, count, _ in counts])


_SOPP: dict[str, Callable[[int], str]] = {
    "s_waitcnt": _waitcnt,
    "s_sendmsg": _sendmsg,
    "s_sendmsghalt": _sendmsg,
    "s_delay_alu": _delay_alu,
    "s_waitcnt_depctr": _depctr,
    "s_endpgm": lambda value: str(value) if value else "",
}


def _hex(value: int) -> str:
    return f"-{-value:#x}" if value < 0 else f"{value:#x}"


def _smem(i: Instruction) -> str:
    if not i.srcs:
        return i.name
    base, register = i.srcs
    offset = i.fields["offset"]
    first = operand_text(i.dsts[0]) if i.dsts else _immediate(i.fields["probe"])
    operands = [first, operand_text(base)]
    if register.kind == "null" and offset:
        return _line(i.name, [*operands, _hex(offset)], _flags(i, "glc", "dlc"))
    modifiers = [f"offset:{_hex(offset)}"] if offset else []
    return _line(i.name, [*operands, operand_text(register)], [*modifiers, *_flags(i, "glc", "dlc")])


def _flags(i: Instruction, *names: str) -> list[str]:
    return [name for name in names if i.fields.get(name)]


# Vector

_ONLY_32 = frozenset(
    {
        *("v_nop", "v_pipeflush", "v_readfirstlane_b32", "v_swap_b32", "v_swap_b16", "v_swaprel_b32"),
        *("v_permlane64_b32", "v_dot2acc_f32_f16", "v_pk_fmac_f16"),
        *("v_fmamk_f32", "v_fmaak_f32", "v_fmamk_f16", "v_fmaak_f16"),
    }
)
"""Instructions without 64-bit form, whose names carry no suffix."""
_OMOD = ("", "mul:2", "mul:4", "div:2")
_FIRST_VOP3_ONLY = 512
_SHORT_SD = range(288, 291)


def _suffix(i: Instruction) -> str:
    dpp = i.fields["dpp"] is not None
    if i.format in ("vop1", "vop2", "vopc"):
        if dpp:
            # LLVM 22 prints compares so, although it also reads them with the suffix.
            return "" if i.format == "vopc" else "_dpp"
        return "" if i.name in _ONLY_32 else "_e32"
    opcode = i.words[0] >> 16 & 1023
    short = opcode < _FIRST_VOP3_ONLY and (i.format == "vop3" or opcode in _SHORT_SD)
    return "_e64_dpp" if dpp else "_e64" if short else ""


def _vector(i: Instruction) -> str:
    dsts = [] if i.name.startswith("v_cmpx") else list(i.dsts)
    srcs = list(i.srcs)
    if i.name in ("v_swap_b32", "v_swap_b16", "v_swaprel_b32"):
        dsts, srcs = dsts[:1], srcs[:1]
    modifiers = [*_op_sel(i), *_arithmetic(i), *_permutation(i.fields["dpp"])]
    return _line(i.name + _suffix(i), _vector_operands(i.name, (*dsts, *srcs)), modifiers)


def _vector_operands(name: str, operands: Iterable[Operand]) -> list[str]:
    """Return the operands; the constant of v_fmaak and v_fmamk is always a literal, which needs no mark."""
    place = 3 if "fmaak" in name else 2 if "fmamk" in name else None
    return [
        f"{operand.num:#x}" if index == place else operand_text(operand)
        for index, operand in enumerate(operands)
    ]


def _op_sel(i: Instruction) -> list[str]:
    """Return op_sel, which the text repeats although the operands show the halves."""
    op_sel = i.fields["op_sel"]
    if not op_sel or i.name == "v_cndmask_b16":
        return []
    if i.name.startswith("v_permlane"):
        return [_bits("op_sel", op_sel, 2)]
    values = [*(op_sel >> k & 1 for k in range(len(i.srcs))), *[op_sel >> 3 & 1] * _selects_after_sources(i)]
    return [f"op_sel:[{','.join(map(str, values))}]"]


def _selects_after_sources(i: Instruction) -> int:
    """Return how many elements of op_sel follow those of the listed sources."""
    if i.name.startswith("v_fmac"):
        return 2  # the accumulator, in the half of the destination, and the destination
    has_none = i.name.startswith("v_cmpx") or (i.name.startswith("v_cmp_") and i.fields["dpp"] is not None)
    return 0 if has_none else 1


def _bits(name: str, value: int, count: int) -> str:
    return f"{name}:[{','.join(str(value >> k & 1) for k in range(count))}]"


def _arithmetic(i: Instruction) -> list[str]:
    return [*_flags(i, "clamp"), _OMOD[i.fields.get("omod", 0)]]


def _permutation(dpp: Dpp | None) -> list[str]:
    if dpp is None:
        return []
    inactive = ["fi:1"] if dpp.fetch_inactive else []
    if dpp.kind == "dpp8":
        return [f"dpp8:[{','.join(map(str, dpp.lanes))}]", *inactive]
    bound = ["bound_ctrl:1"] if dpp.bound_ctrl else []
    masks = [f"row_mask:{dpp.row_mask:#x}", f"bank_mask:{dpp.bank_mask:#x}"]
    return [_control(dpp.control), *masks, *bound, *inactive]


_ROWS = {
    0x100: "row_shl",
    0x110: "row_shr",
    0x120: "row_ror",
    0x150: "row_share",
    0x160: "row_xmask",
}


_NAMED = {0x140: "row_mirror", 0x141: "row_half_mirror", 0x142: "row_bcast:15", 0x143: "row_bcast:31"}


def _control(control: int) -> str:
    if control < 0x100:
        return f"quad_perm:[{','.join(str(control >> 2 * k & 3) for k in range(4))}]"
    if control in _NAMED:
        return _NAMED[control]
    return f"{_ROWS[control & ~15]}:{control & 15}"


def _packed(i: Instruction) -> str:
    mix = "fma_mix" in i.name
    dpp = i.fields["dpp"]
    modifiers = [*_packed_modifiers(i, mix), *_flags(i, "clamp"), *_permutation(dpp)]
    operands = [operand_text(dataclasses.replace(o, type="b32") if mix else o) for o in (*i.dsts, *i.srcs)]
    return _line(i.name + ("_e64_dpp" if dpp else ""), operands, modifiers)


def _packed_modifiers(i: Instruction, mix: bool) -> list[str]:
    """Return the per-source bits that differ from their default; v_fma_mix has neg and abs at the sources."""
    count = len(i.srcs)
    every = (1 << count) - 1
    defaults = {"op_sel": 0, "op_sel_hi": 0 if mix else every}
    if not mix:
        defaults |= {"neg_lo": 0, "neg_hi": 0}
    shown = {name: i.fields[name] & every for name in defaults}
    return [_bits(name, shown[name], count) for name in defaults if shown[name] != defaults[name]]


def _interpolation(i: Instruction) -> str:
    return _line(i.name, _operands(i), [*_flags(i, "clamp"), f"wait_exp:{i.fields['wait_exp']}"])


def _half_of_pair(i: Instruction) -> str:
    """Return one half of a VOPD. VCC of v_dual_cndmask is implied."""
    srcs = [operand for operand in i.srcs if operand.type != "mask"]
    return _line(i.name, _vector_operands(i.name, (*i.dsts, *srcs)))


# Memory


def _ds(i: Instruction) -> str:
    return _line(i.name, _operands(i), [*_ds_offsets(i), *_flags(i, "gds")])


def _ds_offsets(i: Instruction) -> list[str]:
    if i.name == "ds_swizzle_b32":
        return [f"offset:{_swizzle(i.fields['offset'])}"] if i.fields["offset"] else []
    return [f"{name}:{i.fields[name]}" for name in ("offset", "offset0", "offset1") if i.fields.get(name)]


def _swizzle(offset: int) -> str:
    """Return the permutation that the offset of ds_swizzle_b32 encodes."""
    if offset >= 0xE000:
        return f"swizzle(FFT,{offset & 31})"
    if offset >= 0xC000:
        return f"swizzle(ROTATE,{offset >> 10 & 1},{offset >> 5 & 31})"
    if offset >> 8 == 0x80:
        return f"swizzle(QUAD_PERM,{','.join(str(offset >> 2 * k & 3) for k in range(4))})"
    if offset >> 15:
        return str(offset)
    return _bit_swizzle(offset & 31, offset >> 5 & 31, offset >> 10 & 31)


def _bit_swizzle(and_mask: int, or_mask: int, xor_mask: int) -> str:
    """Return the lane ``((lane & and_mask) | or_mask) ^ xor_mask`` by its name if it has one."""
    if and_mask == 31 and or_mask == 0 and xor_mask.bit_count() == 1:
        return f"swizzle(SWAP,{xor_mask})"
    if and_mask == 31 and or_mask == 0 and xor_mask and xor_mask & (xor_mask + 1) == 0:
        return f"swizzle(REVERSE,{xor_mask + 1})"
    group = 32 - and_mask
    if group > 1 and group & (group - 1) == 0 and or_mask < group and xor_mask == 0:
        return f"swizzle(BROADCAST,{group},{or_mask})"
    low, high = or_mask ^ xor_mask, (and_mask | or_mask) ^ xor_mask
    digits = {(0, 0): "0", (1, 1): "1", (0, 1): "p", (1, 0): "i"}
    mask = "".join(digits[low >> bit & 1, high >> bit & 1] for bit in reversed(range(5)))
    return f'swizzle(BITMASK_PERM,"{mask}")'


def _flat(i: Instruction) -> str:
    offset = [f"offset:{i.fields['offset']}"] if i.fields["offset"] else []
    return _line(i.name, _operands(i), [*offset, *_flags(i, "glc", "slc", "dlc")])


def _mubuf(i: Instruction) -> str:
    if not i.fields:
        return i.name
    srcs = list(i.srcs)
    data = [srcs.pop(0)] if i.fields["layout"][0] == "data" else []
    offset = [f"offset:{i.fields['offset']}"] if i.fields["offset"] else []
    modifiers = [*_flags(i, "idxen", "offen"), *offset, *_flags(i, "glc", "slc", "dlc", "tfe")]
    first = [operand_text(operand) for operand in (data or i.dsts)]
    return _line(i.name, [*first, *(operand_text(operand) for operand in srcs)], modifiers)


_RENDER: dict[str, Callable[[Instruction], str]] = {
    "sop1": _sop1,
    "sop2": _plain,
    "sopc": _plain,
    "sopk": _sopk,
    "sopp": _sopp,
    "smem": _smem,
    "vop1": _vector,
    "vop2": _vector,
    "vopc": _vector,
    "vop3": _vector,
    "vop3sd": _vector,
    "vop3p": _packed,
    "vinterp": _interpolation,
    "ds": _ds,
    "flat": _flat,
    "global": _flat,
    "scratch": _flat,
    "mubuf": _mubuf,
}
