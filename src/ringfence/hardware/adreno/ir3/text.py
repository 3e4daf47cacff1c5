"""Assembly text of an instruction, in the spelling of Mesa's disassembler (``ir3_isa_disasm`` of 25.2.7).

The text is made from the decoded operands and fields and not from the word, so that a text which agrees with
Mesa's says that they are right.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringfence.hardware.adreno.ir3.tables import FLUT

if TYPE_CHECKING:
    from ringfence.hardware.adreno.ir3.instruction import Instruction, Operand


def render(i: Instruction) -> str:
    """Return the text of ``i`` without its address."""
    return _BY_CATEGORY[i.category](i)


def _flags(i: Instruction) -> str:
    flags = ((i.sy, "(sy)"), (i.ss, "(ss)"), (i.eq, "(eq)"), (i.jp, "(jp)"))
    return "".join(text for present, text in flags if present)


def _delay(i: Instruction) -> str:
    if i.nop:
        return f"(nop{i.nop}) "
    return f"(rpt{i.repeat})" if i.repeat else ""


def _line(head: str, *operands: str) -> str:
    """Return ``head operand, operand``; ``head`` alone if there are none."""
    return f"{head} {', '.join(operands)}" if operands else head


# Operands ------------------------------------------------------------------------------------------------


def _component(num: int) -> str:
    return "xyzw"[num & 3]


def _register(num: int) -> str:
    return f"r{num >> 2}.{_component(num)}"


def _bare(o: Operand) -> str:
    """Return an operand without modifiers and half prefix."""
    match o.kind:
        case "gpr":
            return _register(o.num)
        case "const":
            return f"c{o.num >> 2}.{_component(o.num)}"
        case "rel_gpr" | "rel_const":
            return f"{'r' if o.kind == 'rel_gpr' else 'c'}<a0.x{f' + {o.num}' if o.num else ''}>"
        case "pred":
            return f"p0.{_component(o.num)}"
        case "addr":
            return f"a0.{_component(o.num)}"
        case "imm":
            return str(o.num)
    raise ValueError(
        f"operand of kind {o.kind!r} has no text of its own; FLUT constants belong to categories 2 and 4"
    )


def _place(o: Operand) -> str:
    return ("h" if o.half else "") + _bare(o)


def _signs(o: Operand) -> str:
    if o.neg and o.abs:
        return "(absneg)"
    return "(neg)" if o.neg else "(abs)" if o.abs else ""


def _source(o: Operand) -> str:
    """Return a source of categories 2 and 4."""
    prefix = ("(last)" if o.last else "") + _signs(o) + ("(r)" if o.r else "")
    if o.kind == "imm":
        return prefix + (f"h({o.num})" if o.half else str(o.num))
    if o.kind == "float_imm":
        return prefix + ("h" if o.half else "") + f"({FLUT[o.num][0]})"
    return prefix + _place(o)


def _source3(o: Operand) -> str:
    """Return a source of category 3, where an offset of zero is written and (last) follows the modifiers."""
    prefix = ("(neg)" if o.neg else "") + ("(r)" if o.r else "") + ("(last)" if o.last else "")
    if o.kind == "imm":
        return prefix + str(o.num)
    if o.kind in ("rel_gpr", "rel_const"):
        return f"{prefix}{'h' if o.half else ''}{'r' if o.kind == 'rel_gpr' else 'c'}<a0.x + {o.num}>"
    return prefix + _place(o)


def _float(value: float) -> str:
    """Return ``value`` as C prints it with %f, which unlike Python writes the sign of NaN."""
    if math.isnan(value):
        return "-nan" if math.copysign(1, value) < 0 else "nan"
    return f"{value:f}"


def _move_immediate(o: Operand, type_: str) -> str:
    bits = o.num & 0xFFFFFFFF
    match type_:
        case "f16":
            return f"h({_float(struct.unpack('<e', struct.pack('<H', bits & 0xFFFF))[0])})"
        case "f32":
            return f"({_float(struct.unpack('<f', struct.pack('<I', bits))[0])})"
        case "s16":
            return str((bits & 0xFFFF ^ 0x8000) - 0x8000)
        case "s32":
            return str(o.num)
        case "u32" if bits > 0x1000:
            return f"0x{bits:x}"
    return str(bits)


# Categories 0 to 4 ---------------------------------------------------------------------------------------


def _cat0(i: Instruction) -> str:
    f = i.fields
    name = i.name
    if name == "getlast":
        name += f".w{f['width']}"
    if name == "brac":
        name += f".{f['index']}"
    operands = [_condition(i, k) for k in (1, 2) if f"comp{k}" in f]
    if "target" in f:
        operands.append(f"#{int(f['target']) - i.pc}")
    return _line(_flags(i) + _delay(i) + name, *operands)


def _condition(i: Instruction, k: int) -> str:
    return f"{'!' if i.fields[f'inv{k}'] else ''}p0.{_component(int(i.fields[f'comp{k}']))}"


_ROUNDINGS = ("", "(even)", "(pos_infinity)", "(neg_infinity)")


def _cat1(i: Instruction) -> str:
    f = i.fields
    head = _flags(i) + _delay(i) + ("(ul)" if i.ul else "")
    if i.name == "movmsk":
        return f"{head}movmsk.w{f['width']} {_place(i.dsts[0])}"
    # gat and sct write the first of the four consecutive registers only.
    dsts = [_place(o) for o in (i.dsts[:1] if i.name == "gat" else i.dsts)]
    srcs = [
        _move_source(o, str(f["src_type"])) for o in (i.srcs[:1] if i.name in ("sct", "movs") else i.srcs)
    ]
    if i.name == "movs":
        srcs.append(_bare(i.srcs[1]))
    name = f"{i.name}.{f['src_type']}{f['dst_type']}"
    if i.name == "mov" and i.dsts[0].kind == "addr":
        name, dsts = ("mova1", ["a1.x"]) if i.dsts[0].num else ("mova", ["a0.x"])
        if (
            i.srcs[0].r and i.srcs[0].kind != "imm"
        ):  # the templates of mova and of the source both have {SRC_R}
            srcs[0] = "(r)" + srcs[0]
    return f"{head}{name} {_ROUNDINGS[int(f['round'])]}{', '.join(dsts + srcs)}"


def _move_source(o: Operand, type_: str) -> str:
    prefix = ("(last)" if o.last else "") + ("(r)" if o.r else "")
    return prefix + (_move_immediate(o, type_) if o.kind == "imm" else _place(o))


def _alu_head(i: Instruction) -> str:
    return _flags(i) + ("(sat)" if i.sat else "") + _delay(i) + ("(ul)" if i.ul else "")


def _cat2(i: Instruction) -> str:
    name = i.name + (f".{i.fields['cond']}" if "cond" in i.fields else "")
    dst = ("(ei)" if i.ei else "") + _place(i.dsts[0])
    return _line(_alu_head(i) + name, dst, *map(_source, i.srcs))


def _cat3(i: Instruction) -> str:
    name = i.name
    if "mixed" in i.fields:
        name += (".mixed" if i.fields["mixed"] else ".unsigned") + (".high" if i.fields["high"] else ".low")
    return _line(_alu_head(i) + name, _place(i.dsts[0]), *map(_source3, i.srcs))


# Category 5 ----------------------------------------------------------------------------------------------

_CAT5_SUFFIXES = (
    ("is_3d", ".3d"),
    ("is_array", ".a"),
    ("has_offset", ".o"),
    ("proj", ".p"),
    ("is_shadow", ".s"),
    ("is_vector", ".v"),
)
_TYPE_NOT_SHOWN = ("dsxpp.1", "dsypp.1")


def _cat5(i: Instruction) -> str:
    f = i.fields
    if i.name == "tcinv":
        return _flags(i) + i.name
    name = i.name + (f".w{f['width']}" if "width" in f else "")
    name += "".join(suffix for key, suffix in _CAT5_SUFFIXES if f.get(key)) + _descriptor_suffix(i)
    name += ".1d" if f.get("is_1d") else ""
    type_ = "" if i.name in _TYPE_NOT_SHOWN else f"({f['type']})"
    mask = "".join("xyzw"[k] for k in range(4) if int(f["wrmask"]) >> k & 1)
    return _line(_flags(i) + name, f"{type_}({mask}){_place(i.dsts[0])}", *_texture_sources(i))


def _descriptor_suffix(i: Instruction) -> str:
    f = i.fields
    if not f.get("s2en"):
        return ""
    base = f".base{f['base']}" if f["bindless"] else ""
    if int(f["desc_mode"]) >= 6:
        return base
    return ".s2en" + (".uniform" if f["desc_mode"] in (0, 1, 5) else ".nonuniform") + base


def _texture_sources(i: Instruction) -> list[str]:
    f = i.fields
    sources = [_place(o) for o in i.srcs]
    if f.get("imm_offset"):
        sources[0] += f"+{f['imm_offset']}"
    sources += [f"{letter}#{f[key]}" for key, letter in (("samp", "s"), ("tex", "t")) if key in f]
    return [*sources, "a1.x"] if f.get("a1") else sources


# Category 6 ----------------------------------------------------------------------------------------------


def _cat6(i: Instruction) -> str:
    kind = i.name[: len("atomic.l")] if i.name.startswith("atomic.") else i.name
    return _flags(i) + _CAT6[kind](i)


def _signed(value: int | str) -> str:
    return f"{value:+d}" if isinstance(value, int) and value else ""


def _data(i: Instruction, o: Operand) -> str:
    """Return a data register; local loads and stores, and stp, write it without half prefix."""
    return _bare(o) if i.name in ("ldl", "ldlw", "stl", "stlw", "stp") else _place(o)


def _memory(i: Instruction) -> str:
    f = i.fields
    name, space = f"{i.name}.{f['type']}", i.name[2]
    index = f"+{_scaled(i)}" if "shift" in f else _signed(f["offset"])
    address = f"{space}[{_bare(i.srcs[0])}{index}]"
    if i.dsts:
        return _line(name, _data(i, i.dsts[0]), address, str(f["size"]))
    return _line(name, address, _data(i, i.srcs[-1]), str(f["size"]))


def _scaled(i: Instruction) -> str:
    """Return the index of ldg.a and stg.a: ((index << shift) + offset) << element, without zero parts."""
    f = i.fields
    index, shift, offset = _bare(i.srcs[1]), int(f["shift"]), int(f["offset"])
    element = {"f16": 1, "u16": 1, "s16": 1, "u8": 0, "u8_32": 0}.get(str(f["type"]), 2)
    if element == 0:
        return f"{index}{_signed(offset)}"
    if offset == 0:
        return f"({index}<<{element + shift})"
    if shift == 0:
        return f"(({index}{_signed(offset)})<<{element})"
    return f"((({index}<<{shift}){_signed(offset)})<<{element})"


def _load_varying(i: Instruction) -> str:
    f = i.fields
    return _line(f"ldlv.{f['type']}", _bare(i.dsts[0]), f"l[{f['offset']}]", str(f["size"]))


def _const_place(i: Instruction) -> str:
    num = i.dsts[0].num
    return f"c[a1.x{_signed(num)}]" if i.fields["a1"] else f"c[{num}]"


def _load_const(i: Instruction) -> str:
    f = i.fields
    address = f"g[{_bare(i.srcs[0])}{_signed(f['offset'])}]"
    return _line(f"ldg.k.{f['type']}", _const_place(i), address, str(f["size"]))


def _store_const(i: Instruction) -> str:
    return _line(f"stc.{i.fields['type']}", _const_place(i), _bare(i.srcs[0]), str(i.fields["size"]))


def _shuffle(i: Instruction) -> str:
    value, index = i.srcs
    name = f"shfl.{i.fields['mode']}.{i.fields['type']}"
    return _line(name, _place(i.dsts[0]), _place(value), _bare(index))


def _shape(i: Instruction) -> str:
    f = i.fields
    return f"{'typed' if f['typed'] else 'untyped'}.{f['dims']}d.{f['type']}.{f['components']}"


def _mode(i: Instruction) -> str:
    f = i.fields
    return str(f["mode"]) + (f".base{f['base']}" if f["bindless"] else "")


def _index(i: Instruction) -> str:
    return str(i.fields["index"]) if i.fields["mode"] == "imm" else _bare(i.srcs[-1])


def _image(i: Instruction) -> str:
    data = i.dsts[0] if i.dsts else i.srcs[1]
    coordinates = _bare(i.srcs[0]) + _signed(i.fields["offset"])
    return _line(f"{i.name}.b.{_shape(i)}.{_mode(i)}", _place(data), coordinates, _index(i))


def _image_atomic(i: Instruction) -> str:
    return _line(f"{i.name}.{_shape(i)}.{_mode(i)}", _bare(i.dsts[0]), _bare(i.srcs[0]), _index(i))


def _local_atomic(i: Instruction) -> str:
    address, data = i.srcs
    name = i.name.replace(".l.", ".")
    return _line(f"{name}.{_shape(i)}.l", _bare(i.dsts[0]), f"l[{_bare(address)}]", _bare(data))


def _global_atomic(i: Instruction) -> str:
    return _line(f"{i.name}.{_shape(i)}.g", _bare(i.dsts[0]), *map(_bare, i.srcs))


def _resource(i: Instruction) -> str:
    name = "resinfo.b" if i.name == "resinfo" else i.name
    return _line(f"{name}.{_shape(i)}.{_mode(i)}", _bare(i.dsts[0]), _index(i))


def _ubo_load(i: Instruction) -> str:
    f = i.fields
    name = f"ldc{'.u' if f['unified'] else ''}.offset{f['component']}.{f['components']}.{_mode(i)}"
    return _line(name, _bare(i.dsts[0]), _bare(i.srcs[0]), _index(i))


def _ubo_copy(i: Instruction) -> str:
    return _line(f"ldc.{i.fields['size']}.k.{_mode(i)}", "c[a1.x]", _bare(i.srcs[0]), _index(i))


def _identity(i: Instruction) -> str:
    return _line(f"{i.name}.{i.fields['type']}", _bare(i.dsts[0]))


_CAT6: dict[str, Callable[[Instruction], str]] = {
    **dict.fromkeys(("ldg", "ldg.a", "stg", "stg.a", "ldl", "ldp", "ldlw", "stl", "stp", "stlw"), _memory),
    "ldlv": _load_varying,
    "ldg.k": _load_const,
    "stc": _store_const,
    "shfl": _shuffle,
    "ldib": _image,
    "stib": _image,
    "atomic.l": _local_atomic,
    "atomic.g": _global_atomic,
    "atomic.b": _image_atomic,
    "resinfo": _resource,
    "resbase": _resource,
    "ldc": _ubo_load,
    "ldc.k": _ubo_copy,
    **dict.fromkeys(("getspid", "getwid", "getfiberid"), _identity),
}

# Category 7 ----------------------------------------------------------------------------------------------


def _cat7(i: Instruction) -> str:
    f = i.fields
    suffix = "".join(f".{flag}" for flag in "glrw" if f.get(flag))
    if "long" in f:
        suffix = ".l" if f["long"] else ".s"
    if "all" in f:
        suffix = ".all" if f["all"] else ".shr"
    return _flags(i) + i.name + suffix


_BY_CATEGORY: tuple[Callable[[Instruction], str], ...] = (
    _cat0,
    _cat1,
    _cat2,
    _cat3,
    _cat2,
    _cat5,
    _cat6,
    _cat7,
)
