"""The decode tables of RDNA3 (gfx11): rows made from the opcodes and their signatures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from ringfence.hardware.amd.rdna.encoding import (
    CLAMP,
    DS,
    DS_OPERANDS,
    FLAT,
    FLAT_OPERANDS,
    FLOATS,
    GLOBAL,
    MUBUF,
    MUBUF_OPERANDS,
    OMOD,
    SCRATCH,
    SDST,
    SIMM16,
    SIZES,
    SMEM,
    SMEM_OPERANDS,
    SOP1,
    SOP2,
    SOPC,
    SOPK,
    SOPP,
    SOURCES,
    SSRC,
    VDST,
    VECTOR32,
    VINTERP,
    VOP1,
    VOP2,
    VOP3,
    VOP3_SDST,
    VOP3P,
    VOP3SD,
    VOP3SD_SDST,
    VOPC,
    Fields,
    Format,
    Group,
    Row,
    Slot,
    half_selects,
    modifiers,
    split,
)
from ringfence.hardware.amd.rdna.opcodes import (
    ATOMICS,
    BY_SIZE,
    DS_OPCODES,
    FORMAT_WIDTHS,
    LDS_LOADS,
    LOADS,
    MESSAGES_RETURN,
    SMEM_BARE,
    SMEM_LOADS,
    SMEM_PROBES,
    SOP1_OPCODES,
    SOP2_OPCODES,
    SOPC_OPCODES,
    SOPK_BRANCHES,
    SOPK_COMPARES,
    SOPK_UPDATES,
    SOPK_WAITS,
    SOPP_BARE,
    SOPP_BRANCHES,
    SOPP_PLAIN,
    STORES,
    VINTERP_OPCODES,
    VOP1_OPCODES,
    VOP1_SWAPS,
    VOP2_CARRIES,
    VOP2_LITERALS,
    VOP2_OPCODES,
    VOP3_OPCODES,
    VOP3P_MATRICES,
    VOP3P_OPCODES,
    VOP3SD_OPCODES,
    VOPC_OPCODES,
    register_type,
)
from ringfence.hardware.encoding import Bits, bit, one_of

_VGPR = {"VDST": "vgpr", "VSRC1": "vgpr"}


def _scalar_rows(fmt: Format, groups: Iterable[Group]) -> Iterator[Row]:
    for group in groups:
        fields = dict(SDST) if group.dsts else {}
        fields.update({name: SSRC[name] for name in ("SSRC0", "SSRC1")[: len(group.srcs)]})
        dsts = [Slot("sdst", "SDST", word) for word in group.dsts]
        srcs = []
        for index, word in enumerate(group.srcs):
            type_, suffix = split(word)
            srcs.append(Slot("sreg" if suffix == "s" else "ssrc", f"SSRC{index}", type_))
        for name, opcode in group.opcodes.items():
            yield fmt.row(name, opcode, "plain", fields, dsts, srcs)


def _sop1_rows() -> Iterator[Row]:
    yield from _scalar_rows(SOP1, SOP1_OPCODES)
    fields = {**SDST, "MESSAGE": SSRC["SSRC0"]}
    for name, (opcode, type_) in MESSAGES_RETURN.items():
        yield SOP1.row(name, opcode, "message", fields, [Slot("sdst", "SDST", type_)])


def _sopk_rows() -> Iterator[Row]:
    register = Slot("sdst", "SDST", "b32")
    fields = {**SDST, **SIMM16}
    yield SOPK.row("s_movk_i32", 0, "simm16", fields, [register])
    yield SOPK.row("s_version", 1, "simm16", SIMM16)
    for name, opcode in SOPK_UPDATES.items():
        yield SOPK.row(name, opcode, "simm16", fields, [register], [register])
    for name, opcode in SOPK_COMPARES.items():
        yield SOPK.row(name, opcode, "simm16", fields, (), [register])
    yield SOPK.row("s_getreg_b32", 17, "hwreg", fields, [register])
    yield SOPK.row("s_setreg_b32", 18, "hwreg", fields, (), [register])
    yield SOPK.row("s_setreg_imm32_b32", 19, "hwreg", SIMM16, (), [Slot("literal", "", "b32")])
    for name, (opcode, type_) in SOPK_BRANCHES.items():
        yield SOPK.row(name, opcode, "branch", fields, [Slot("sdst", "SDST", type_)])
    for name, opcode in SOPK_WAITS.items():
        srcs = [Slot("sdst", "SDST", "b32")]
        yield SOPK.row(name, opcode, "simm16", {**SIMM16, "SDST": one_of(16, 22, [124])}, (), srcs)


def _sopp_rows() -> Iterator[Row]:
    for name, opcode in SOPP_PLAIN.items():
        yield SOPP.row(name, opcode, "simm16", SIMM16)
    for name, opcode in SOPP_BARE.items():
        yield SOPP.row(name, opcode, "plain", {})
    for name, opcode in SOPP_BRANCHES.items():
        yield SOPP.row(name, opcode, "branch", SIMM16)
    yield SOPP.row("s_endpgm", 48, "simm16", SIMM16)


def _smem_rows() -> Iterator[Row]:
    """Return the scalar memory rows. The offset into a buffer cannot be negative."""
    plain = {**SMEM_OPERANDS, "DLC": bit(13), "GLC": bit(14)}
    buffer = {**plain, "OFFSET": Bits(32, 51)}
    register = Slot("sdst", "SOFFSET", "b32")
    for name, (opcode, type_) in SMEM_LOADS.items():
        fields, base = (buffer, "b128") if "buffer" in name else (plain, "b64")
        srcs = [Slot("sbase", "SBASE", base), register]
        yield SMEM.row(name, opcode, "smem", fields, [Slot("sdata", "SDATA", type_)], srcs)
    for name, (opcode, base) in SMEM_PROBES.items():
        fields = {name: bits for name, bits in SMEM_OPERANDS.items() if name != "SDATA"}
        fields["PROBE"] = SMEM_OPERANDS["SDATA"]
        yield SMEM.row(name, opcode, "smem", fields, (), [Slot("sbase", "SBASE", base), register])
    for name, opcode in SMEM_BARE.items():
        yield SMEM.row(name, opcode, "plain", {})


def _dpp(group: Group) -> bool:
    words = [split(word)[0] for word in (*group.dsts, *group.srcs)]
    return not group.has("nodpp") and bool(group.srcs) and not any(word in SIZES for word in words)


def _source32(word: str, index: int) -> Slot:
    """Return a source of a 32-bit vector instruction."""
    type_, suffix = split(word)
    if type_ == "mask":
        return Slot("vcc", "", type_)
    if index == 0:
        return Slot("src_v" if suffix == "v" else "src", "SRC0", type_)
    return Slot("vgpr", "VSRC1", type_)


def _source64(word: str, index: int) -> Slot:
    """Return a source of a 64-bit vector instruction."""
    type_, suffix = split(word)
    reader = "mask" if type_ == "mask" else {"v": "src_v", "s": "src_s", "i": "src_si"}.get(suffix, "src")
    return Slot(reader, f"SRC{index}", type_)


def _vector_rows(fmt: Format, groups: Iterable[Group], offset: int) -> Iterator[Row]:
    """Return the 32-bit and the 64-bit rows of VOP1 or VOP2 groups."""
    for group in groups:
        names = [name for name, word in (("VDST", group.dsts), ("SRC0", group.srcs)) if word]
        fields = {name: VECTOR32[name] for name in (*names, *(["VSRC1"] if len(group.srcs) > 1 else []))}
        dsts = [Slot("vgpr", "VDST", split(word)[0]) for word in group.dsts]
        srcs = [_source32(word, index) for index, word in enumerate(group.srcs)]
        for name, opcode in group.opcodes.items():
            yield fmt.row(name, opcode, "vector", fields, dsts, srcs, dpp=_dpp(group))
    wide = [group for group in groups if not group.has("e32")]
    yield from _vop3_rows(VOP3, wide, offset)


def _vop3_rows(fmt: Format, groups: Iterable[Group], offset: int = 0) -> Iterator[Row]:
    for group in groups:
        fields: dict[str, Bits] = {f"SRC{k}": SOURCES[f"SRC{k}"] for k in range(len(group.srcs))}
        fields.update(modifiers(group.srcs))
        dsts = []
        for word in group.dsts:
            type_, suffix = split(word)
            if type_ == "mask":
                fields.update(VOP3SD_SDST if fmt is VOP3SD else VOP3_SDST)
                dsts.append(Slot("sdst", "SDST", type_))
            elif suffix == "s":
                fields.update(VOP3_SDST)
                dsts.append(Slot("sdst", "SDST", type_))
            else:
                fields.update(VDST)
                dsts.append(Slot("vgpr", "VDST", type_))
        if fmt is VOP3SD:
            fields = {name: bits for name, bits in fields.items() if not name.startswith("ABS")}
        else:
            fields.update(half_selects(group.dsts, group.srcs))
        fields.update(CLAMP if group.has("clamp") else {})
        fields.update(OMOD if group.has("omod") else {})
        if group.has("op_sel"):
            fields["OP_SEL"] = Bits(11, 12)
        srcs = [_source64(word, index) for index, word in enumerate(group.srcs)]
        for name, opcode in group.opcodes.items():
            yield fmt.row(name, opcode + offset, "vector", fields, dsts, srcs, dpp=_dpp(group))


def _vop1_rows() -> Iterator[Row]:
    yield from _vector_rows(VOP1, VOP1_OPCODES, 384)
    fields = {"SRC0": VECTOR32["SRC0"], "VDST": VECTOR32["VDST"]}
    yield VOP1.row(
        "v_readfirstlane_b32",
        2,
        "vector",
        {"SRC0": VECTOR32["SRC0"], "SDST": VECTOR32["VDST"]},
        [Slot("sdst", "SDST", "b32")],
        [Slot("src_v", "SRC0", "b32")],
    )
    for name, (opcode, type_) in VOP1_SWAPS.items():
        first, second = Slot("vgpr", "VDST", type_), Slot("src_v", "SRC0", type_)
        yield VOP1.row(name, opcode, "vector", fields, [first, second], [second, first])


def _vop2_rows() -> Iterator[Row]:
    yield from _vector_rows(VOP2, VOP2_OPCODES, 256)
    dst, src0, src1 = (Slot("vgpr", "VDST", "u32"), Slot("src", "SRC0", "u32"), Slot("vgpr", "VSRC1", "u32"))
    vcc = Slot("vcc", "", "mask")
    for name, opcode in VOP2_CARRIES.items():
        yield VOP2.row(name, opcode, "vector", VECTOR32, [dst, vcc], [src0, src1, vcc], dpp=True)
    select = Group("b32 = b32.m b32.m mask", "", {"v_cndmask_b32": 257})
    operands = [Slot("vgpr", "VDST", "b32"), Slot("src", "SRC0", "b32"), Slot("vgpr", "VSRC1", "b32")]
    yield VOP2.row("v_cndmask_b32", 1, "vector", VECTOR32, operands[:1], [*operands[1:], vcc], dpp=True)
    yield from _vop3_rows(VOP3, [select])
    for name, (opcode, type_) in VOP2_LITERALS.items():
        first, last = Slot("src", "SRC0", type_), Slot("vgpr", "VSRC1", type_)
        literal = Slot("literal", "", type_)
        srcs = [first, literal, last] if "fmamk" in name else [first, last, literal]
        yield VOP2.row(name, opcode, "vector", VECTOR32, [Slot("vgpr", "VDST", type_)], srcs)


def _vopc_rows() -> Iterator[Row]:
    """Return v_cmp and v_cmpx in both lengths; v_cmpx has 128 more and writes EXEC."""
    fields = {"SRC0": VECTOR32["SRC0"], "VSRC1": VECTOR32["VSRC1"]}
    for condition, first, second, opcode in VOPC_OPCODES:
        srcs = [_source32(first, 0), _source32(second, 1)]
        dpp = first not in SIZES
        names = (f"v_cmp_{condition}", f"v_cmpx_{condition}")
        yield VOPC.row(names[0], opcode, "vector", fields, [Slot("vcc", "", "mask")], srcs, dpp=dpp)
        yield VOPC.row(names[1], opcode + 128, "vector", fields, [Slot("exec", "", "mask")], srcs, dpp=dpp)
        wide: dict[str, Bits] = {"SRC0": SOURCES["SRC0"], "SRC1": SOURCES["SRC1"]}
        wide.update(modifiers([first, second]))
        wide.update(half_selects([], [first, second]))
        wide.update(CLAMP if first in FLOATS and not condition.startswith("class") else {})
        srcs = [_source64(first, 0), _source64(second, 1)]
        dst = Slot("sdst", "SDST", "mask")
        yield VOP3.row(names[0], opcode, "vector", {**wide, **VOP3_SDST}, [dst], srcs, dpp=dpp)
        wide["EXEC"] = one_of(0, 7, [126])
        dst = Slot("exec", "", "mask")
        yield VOP3.row(names[1], opcode + 128, "vector", wide, [dst], srcs, dpp=dpp)


def _vop3p_fields(sources: int, flags: str) -> dict[str, Bits]:
    """Return the modifier fields of a VOP3P row; the op_sel_hi bits that it lacks have a fixed value."""
    present = flags.split()
    fields: dict[str, Bits] = dict(CLAMP) if "clamp" in present else {}
    if "op_sel" in present:
        fields["OP_SEL"] = Bits(11, 10 + sources)
        fields["OP_SEL_HI"] = Bits(59, 60)
        if sources == 3:
            fields["OP_SEL_HI2"] = bit(14)
    if "neg" in present:
        fields["NEG_HI"] = Bits(8, 7 + sources)
        fields["NEG_LO"] = Bits(61, 60 + sources)
    if "neg_lo" in present:
        fields["NEG_LO"] = Bits(61, 62)
    return fields


def _vop3p_rows() -> Iterator[Row]:
    for group in VOP3P_OPCODES:
        sources = len(group.srcs)
        fields = {**VDST, **{f"SRC{k}": SOURCES[f"SRC{k}"] for k in range(sources)}}
        fields.update(_vop3p_fields(sources, group.flags))
        fixed = {}
        if "OP_SEL_HI" not in fields:
            fixed[59, 60] = 3
        if "OP_SEL_HI2" not in fields:
            fixed[14, 14] = 1
        dsts = [Slot("vgpr", "VDST", word) for word in group.dsts]
        srcs = [_source64(word, index) for index, word in enumerate(group.srcs)]
        form = "mix" if "mix" in next(iter(group.opcodes)) else "packed"
        for name, opcode in group.opcodes.items():
            yield VOP3P.row(name, opcode, form, fields, dsts, srcs, fixed=fixed, dpp=group.has("dpp"))
    for name, (opcode, type_, flags) in VOP3P_MATRICES.items():
        fields = {**VDST, **SOURCES, **_vop3p_fields(3, flags.replace("op_sel", ""))}
        if "op_sel" in flags:
            fields["OP_SEL_C"] = bit(13)
        srcs = [Slot("src_v", f"SRC{k}", type_) for k in range(2)] + [Slot("src_vi", "SRC2", "matrix")]
        dst = Slot("vgpr", "VDST", "matrix")
        yield VOP3P.row(name, opcode, "packed", fields, [dst], srcs, fixed={(14, 14): 1, (59, 60): 3})


def _vinterp_rows() -> Iterator[Row]:
    """Return the interpolations. LLVM allows no scalar in the middle; tinygrad's hardware tests use one."""
    for group in VINTERP_OPCODES:
        negations = {name: bits for name, bits in modifiers(group.srcs).items() if name.startswith("NEG")}
        fields = {**VDST, **SOURCES, **negations, **half_selects(group.dsts, group.srcs), **CLAMP}
        fields["WAIT_EXP"] = Bits(8, 10)
        dsts = [Slot("vgpr", "VDST", word) for word in group.dsts]
        srcs = [_source64(word, index) for index, word in enumerate(group.srcs)]
        for name, opcode in group.opcodes.items():
            yield VINTERP.row(name, opcode, "interp", fields, dsts, srcs)


def _ds_rows() -> Iterator[Row]:
    for group in DS_OPCODES:
        fields: dict[str, Bits] = {}
        fixed = {}
        if group.has("pair"):
            fields.update(OFFSET0=Bits(0, 7), OFFSET1=Bits(8, 15))
        elif not group.has("bare"):
            fields["OFFSET"] = DS_OPERANDS["OFFSET"]
        if group.has("gws") or group.has("gds"):
            fixed[17, 17] = 1
        elif not (group.has("nogds") or group.has("bare")):
            fields["GDS"] = bit(17)
        srcs = []
        for word in group.srcs:
            role, _, type_ = word.partition(":")
            fields[role.upper()] = DS_OPERANDS[role.upper()]
            srcs.append(Slot("vgpr", role.upper(), type_))
        dsts = [Slot("vgpr", "VDST", word) for word in group.dsts]
        if dsts:
            fields["VDST"] = DS_OPERANDS["VDST"]
        for name, opcode in group.opcodes.items():
            yield DS.row(name, opcode, "ds", fields, dsts, srcs, fixed=fixed)


_CACHE: Fields = {"DLC": bit(13), "GLC": bit(14), "SLC": bit(15)}
_RETURNING: Fields = {"DLC": bit(13), "SLC": bit(15)}
_FLAT_DST: Fields = {"VDST": FLAT_OPERANDS["VDST"]}
_FLAT_DATA: Fields = {"DATA": FLAT_OPERANDS["DATA"]}


def _data_type(name: str) -> str:
    """Return the type of the data operand; a compare-and-swap carries the new and the old value."""
    type_ = register_type(name)
    return {"b32": "b64", "f32": "b64", "b64": "b128"}[type_] if "cmpswap" in name else type_


def _flat_address(fmt: Format) -> tuple[dict[str, Bits], dict[tuple[int, int], int], list[Slot], list[Slot]]:
    """Return fields, fixed bits, the address operand, and the operands after the data."""
    address: dict[str, Bits] = {"ADDR": FLAT_OPERANDS["ADDR"]}
    if fmt is FLAT:
        return address | {"OFFSET": Bits(0, 11)}, {(48, 54): 124}, [Slot("vgpr", "ADDR", "b64")], []
    address |= {"SADDR": Bits(48, 54), "OFFSET": Bits(0, 12, signed=True)}
    if fmt is GLOBAL:
        return address, {}, [Slot("addr_global", "ADDR", "b64")], [Slot("saddr", "SADDR", "b64")]
    address["SVE"] = bit(55)
    return address, {}, [Slot("addr_scratch", "ADDR", "b32")], [Slot("saddr", "SADDR", "b32")]


def _flat_rows(fmt: Format) -> Iterator[Row]:
    fields, fixed, address, last = _flat_address(fmt)
    for name, opcode in LOADS.items():
        dst = Slot("vgpr", "VDST", register_type(name))
        yield fmt.row(
            f"{fmt.name}_{name}",
            opcode,
            "flat",
            {**fields, **_CACHE, **_FLAT_DST},
            [dst],
            [*address, *last],
            fixed=fixed,
        )
    for name, opcode in STORES.items():
        data = Slot("vgpr", "DATA", register_type(name))
        yield fmt.row(
            f"{fmt.name}_{name}",
            opcode,
            "flat",
            {**fields, **_CACHE, **_FLAT_DATA},
            (),
            [*address, data, *last],
            fixed=fixed,
        )


def _flat_atomic_rows(fmt: Format) -> Iterator[Row]:
    """Return two rows for each atomic: without and, GLC being set, with a returned value."""
    fields, fixed, address, last = _flat_address(fmt)
    fields = {**fields, **_RETURNING, **_FLAT_DATA}
    for name, opcode in ATOMICS.items():
        if name == "csub_u32" and fmt is FLAT:
            continue
        full, data = f"{fmt.name}_atomic_{name}", Slot("vgpr", "DATA", _data_type(name))
        srcs = [*address, data, *last]
        if name != "csub_u32":
            yield fmt.row(full, opcode, "flat", fields, (), srcs, fixed={**fixed, (14, 14): 0})
        dst = Slot("vgpr", "VDST", register_type(name))
        wide = {**fields, **_FLAT_DST}
        yield fmt.row(full, opcode, "flat", wide, [dst], srcs, fixed={**fixed, (14, 14): 1})


def _global_rows() -> Iterator[Row]:
    yield from _flat_rows(GLOBAL)
    yield from _flat_atomic_rows(GLOBAL)
    fields, _, _, last = _flat_address(GLOBAL)
    fields.update(_CACHE)
    fields.pop("ADDR")
    dst, data = Slot("vgpr", "VDST", "b32"), Slot("vgpr", "DATA", "b32")
    yield GLOBAL.row("global_load_addtid_b32", 40, "flat", {**fields, **_FLAT_DST}, [dst], last)
    yield GLOBAL.row("global_store_addtid_b32", 41, "flat", {**fields, **_FLAT_DATA}, (), [data, *last])


_BUFFER_DATA: Fields = {"VDATA": MUBUF_OPERANDS["VDATA"]}
_BUFFER: Fields = {
    **{name: bits for name, bits in MUBUF_OPERANDS.items() if name != "VDATA"},
    "SLC": bit(12),
    "DLC": bit(13),
    "OFFEN": bit(54),
    "IDXEN": bit(55),
}
_BUFFER_ADDRESS = (
    Slot("vaddr", "VADDR", "b32"),
    Slot("srsrc", "SRSRC", "b128"),
    Slot("soffset8", "SOFFSET", "b32"),
)


def _buffer_formats() -> Iterator[tuple[str, int, str]]:
    """Yield the name, opcode and data type of the loads and stores that convert formats."""
    for k, (components, count) in enumerate(FORMAT_WIDTHS.items()):
        yield f"load_format_{components}", k, BY_SIZE[count]
        yield f"store_format_{components}", 4 + k, BY_SIZE[count]
        yield f"load_d16_format_{components}", 8 + k, BY_SIZE[(count + 1) // 2]
        yield f"store_d16_format_{components}", 12 + k, BY_SIZE[(count + 1) // 2]
    yield "load_d16_hi_format_x", 38, "b32"
    yield "store_d16_hi_format_x", 39, "b32"


def _buffer_rows() -> Iterator[Row]:
    plain = [(name, opcode, register_type(name)) for name, opcode in (LOADS | STORES).items()]
    for name, opcode, type_ in (*plain, *_buffer_formats()):
        yield from _buffer_access(name, opcode, type_)
    for name, opcode in (LDS_LOADS | {"load_lds_format_x": 50}).items():
        fields = {**_BUFFER, "GLC": bit(14)}
        yield MUBUF.row(f"buffer_{name}", opcode, "mubuf", fields, (), _BUFFER_ADDRESS)
    yield MUBUF.row("buffer_gl0_inv", 43, "plain", {})
    yield MUBUF.row("buffer_gl1_inv", 44, "plain", {})
    for name, opcode in ATOMICS.items():
        yield from _buffer_atomic(name, opcode)


def _buffer_access(name: str, opcode: int, type_: str) -> Iterator[Row]:
    """Return a load (a second row, TFE being set, returns one more dword) or a store."""
    fields = {**_BUFFER, **_BUFFER_DATA, "GLC": bit(14)}
    data = Slot("vgpr", "VDATA", type_)
    if name.startswith("store"):
        yield MUBUF.row(f"buffer_{name}", opcode, "mubuf", fields, (), [data, *_BUFFER_ADDRESS])
        return
    yield MUBUF.row(f"buffer_{name}", opcode, "mubuf", fields, [data], _BUFFER_ADDRESS, fixed={(53, 53): 0})
    wider = Slot("vgpr", "VDATA", BY_SIZE[SIZES.get(type_, 1) + 1])
    yield MUBUF.row(f"buffer_{name}", opcode, "mubuf", fields, [wider], _BUFFER_ADDRESS, fixed={(53, 53): 1})


def _buffer_atomic(name: str, opcode: int) -> Iterator[Row]:
    fields = {**_BUFFER, **_BUFFER_DATA}
    data = Slot("vgpr", "VDATA", _data_type(name))
    srcs = [data, *_BUFFER_ADDRESS]
    full = f"buffer_atomic_{name}"
    if name != "csub_u32":
        yield MUBUF.row(full, opcode, "mubuf", fields, (), srcs, fixed={(14, 14): 0})
    dst = Slot("vgpr", "VDATA", register_type(name))
    yield MUBUF.row(full, opcode, "mubuf", fields, [dst], srcs, fixed={(14, 14): 1})


def _flat_all() -> Iterator[Row]:
    yield from _flat_rows(FLAT)
    yield from _flat_atomic_rows(FLAT)
    yield from _global_rows()
    yield from _flat_rows(SCRATCH)


VOP3_ROWS = (
    *_vop3_rows(VOP3, VOP3_OPCODES),
    *_vop3_rows(VOP3SD, VOP3SD_OPCODES),
)


def _all() -> Iterator[Row]:
    yield from _scalar_rows(SOP2, SOP2_OPCODES)
    yield from _sop1_rows()
    yield from _scalar_rows(SOPC, SOPC_OPCODES)
    yield from _sopk_rows()
    yield from _sopp_rows()
    yield from _smem_rows()
    yield from _vop1_rows()
    yield from _vop2_rows()
    yield from _vopc_rows()
    yield from VOP3_ROWS
    yield from _vop3p_rows()
    yield from _vinterp_rows()
    yield from _ds_rows()
    yield from _flat_all()
    yield from _buffer_rows()


@cache
def rows() -> Mapping[str, tuple[Row, ...]]:
    """Return the rows of every format but VOPD, whose two halves are in ``VOPD_OPCODES``."""
    table: dict[str, list[Row]] = {}
    for row in _all():
        table.setdefault(row.format, []).append(row)
    return {name: tuple(entries) for name, entries in table.items()}
