"""The ir3 encodings of a6xx as tables.

Sources: Mesa ``src/freedreno/isa/ir3*.xml``. Which rows exist on a630 and which bits must be zero was checked
with the disassembler of Mesa 25.2.7. Bits that Mesa marks "don't care" must be zero here.

Qualcomm's OpenCL compiler makes barriers and fences without bit 49 (0xf000000000000000 and
0xe098000000000000 in tinygrad's programs), which Mesa's disassembler does not know.
"""

from __future__ import annotations

from collections.abc import Mapping

from ringfence.hardware.adreno.ir3.encoding import Bits, Encoding, Fixed, bit, encode, one_of

TYPES = ("f16", "f32", "u16", "u32", "s16", "s32", "u8", "u8_32")
FLUT: tuple[tuple[str, float], ...] = (
    ("0.0", 0.0),
    ("0.5", 0.5),
    ("1.0", 1.0),
    ("2.0", 2.0),
    ("e", 2.718281828459045),
    ("pi", 3.141592653589793),
    ("1/pi", 0.3183098861837907),
    ("1/log2(e)", 0.6931471805599453),
    ("log2(e)", 1.4426950408889634),
    ("1/log2(10)", 0.3010299956639812),
    ("log2(10)", 3.321928094887362),
    ("4.0", 4.0),
)
"""Float constants that sources of kind ``float_imm`` index: (spelling, value). Mesa ir3-common.xml."""
CONDITIONS = ("lt", "le", "gt", "ge", "eq", "ne")
DESCRIPTOR_MODES = ("imm", "uniform", "nonuniform")
SHUFFLE_MODES = {1: "xor", 2: "up", 3: "down", 6: "rup", 7: "rdown"}
ATOMICS = {
    16: "add",
    17: "sub",
    18: "xchg",
    19: "inc",
    20: "dec",
    21: "cmpxchg",
    22: "min",
    23: "max",
    24: "and",
    25: "or",
    26: "xor",
}

Fields = Mapping[str, Bits]

_SYNC: Fields = {"JP": bit(59), "SY": bit(60)}


def _rows(
    category: int, form: str, fields: Fields, fixed: Fixed, opcodes: Mapping[str, int], low: int, high: int
) -> list[Encoding]:
    """Return rows that differ in the opcode at bits ``low`` to ``high``; ``fields`` gets (sy) and (jp)."""
    return [
        encode(name, category, form, {**fields, **_SYNC}, {(61, 63): category, **fixed, (low, high): opcode})
        for name, opcode in opcodes.items()
    ]


def _row(name: str, category: int, form: str, fields: Fields, fixed: Fixed) -> Encoding:
    return encode(name, category, form, {**fields, **_SYNC}, {(61, 63): category, **fixed})


# Category 0: flow control ------------------------------------------------------------------------------

_FLOW: Fields = {"SS": bit(44)}
_TARGET: Fields = {**_FLOW, "IMMED": Bits(0, 31, signed=True)}
_CONDITION1: Fields = {"INV1": bit(52), "COMP1": Bits(53, 54)}
_CONDITION2: Fields = {"INV2": bit(45), "COMP2": Bits(46, 47)}
_LOW: Fixed = {(49, 49): 0}
_HIGH: Fixed = {(49, 49): 1}
_BRANCH_OPCODE: Fixed = {**_LOW, (55, 58): 1}
_PLAIN: Fields = {**_FLOW, "EQ": bit(48), "REPEAT": Bits(40, 42)}
_BRANCH: Fields = {**_TARGET, "EQ": bit(48)}

CAT0 = [
    *_rows(
        0,
        "plain",
        _PLAIN,
        _LOW,
        {"nop": 0, "ret": 4, "end": 6, "emit": 7, "cut": 8, "chmask": 9, "chsh": 10, "flow_rev": 11},
        55,
        58,
    ),
    *_rows(0, "plain", _PLAIN, _HIGH, {"shpe": 8, "predt": 13, "predf": 14, "prede": 15}, 55, 58),
    *_rows(0, "plain", {**_FLOW, "EQ": bit(48), **_CONDITION1}, _LOW, {"kill": 5}, 55, 58),
    *_rows(0, "branch", _TARGET, _LOW, {"jump": 2, "call": 3}, 55, 58),
    *_rows(0, "branch", _TARGET, _HIGH, {"bkt": 0, "getone": 5, "shps": 7}, 55, 58),
    _row("getlast", 0, "branch", {**_TARGET, "W": Bits(52, 54)}, {**_HIGH, (55, 58): 4}),
    *_rows(0, "branch", {**_BRANCH, **_CONDITION1}, _BRANCH_OPCODE, {"br": 0, "bany": 4, "ball": 5}, 37, 39),
    *_rows(
        0, "branch", {**_BRANCH, **_CONDITION1, **_CONDITION2}, _BRANCH_OPCODE, {"brao": 1, "braa": 2}, 37, 39
    ),
    _row("brac", 0, "branch", {**_BRANCH, "INDEX": Bits(32, 36)}, {**_BRANCH_OPCODE, (37, 39): 3}),
    _row("brax", 0, "branch", _TARGET, {**_BRANCH_OPCODE, (37, 39): 6}),
]

# Category 1: moves and conversions ---------------------------------------------------------------------

_MOVE_TYPES: Fields = {
    "SS": bit(44),
    "UL": bit(45),
    "DST_TYPE": Bits(46, 48),
    "SRC_TYPE": Bits(50, 52),
    "ROUND": Bits(55, 56),
}
_MOVE: Fields = {
    **_MOVE_TYPES,
    "DST": Bits(32, 39),
    "REPEAT": Bits(40, 41),
    "SRC_R": bit(43),
    "DST_REL": bit(49),
}
_MOVE_GPR: Fields = {**_MOVE, "SRC": Bits(0, 7), "LAST": bit(10)}


def _move(name: str, form: str, fields: Fields, kind: int, fixed: Fixed) -> Encoding:
    return _row(name, 1, form, fields, {(53, 54): kind, (57, 58): 0, **fixed})


def _lanes(register: str, count: int) -> Fields:
    return {f"{register}{lane}": Bits(8 * lane, 8 * lane + 7) for lane in range(1, count)}


_PARALLEL: Fields = {**_MOVE_TYPES, "SRC0": Bits(0, 7), "DST0": Bits(32, 39)}
_PARALLEL_OPCODE: Fixed = {(57, 58): 2}

CAT1 = [
    _move("mov", "mov_gpr", _MOVE_GPR, 0, {}),
    _move("mov", "mov_rel_gpr", {**_MOVE, "OFFSET": Bits(0, 9, signed=True)}, 0, {(10, 11): 2}),
    _move("mov", "mov_rel_const", {**_MOVE, "OFFSET": Bits(0, 9, signed=True)}, 0, {(10, 11): 3}),
    _move("mov", "mov_const", {**_MOVE, "SRC": Bits(0, 10)}, 1, {}),
    _move("mov", "mov_imm", {**_MOVE, "IMMED": Bits(0, 31, signed=True)}, 2, {}),
    _move("movs", "movs_imm", {**_MOVE_GPR, "FIBER": Bits(23, 29)}, 0, {(30, 31): 2}),
    _move("movs", "movs_addr", _MOVE_GPR, 0, {(30, 31): 3}),
    _row(
        "swz",
        1,
        "parallel",
        {**_PARALLEL, "SRC1": Bits(8, 15), "DST1": Bits(16, 23)},
        {**_PARALLEL_OPCODE, (40, 41): 0},
    ),
    _row("gat", 1, "parallel", {**_PARALLEL, **_lanes("SRC", 4)}, {**_PARALLEL_OPCODE, (40, 41): 1}),
    _row("sct", 1, "parallel", {**_PARALLEL, **_lanes("DST", 4)}, {**_PARALLEL_OPCODE, (40, 41): 2}),
    _row(
        "movmsk",
        1,
        "movmsk",
        {"SS": bit(44), "UL": bit(45), "DST": Bits(32, 39), "W": Bits(40, 41)},
        {(46, 48): 3, (50, 52): 3, (57, 58): 3},
    ),
]

# Category 2: one and two sources -----------------------------------------------------------------------

_ALU: Fields = {
    "DST": Bits(32, 39),
    "REPEAT": Bits(40, 41),
    "SAT": bit(42),
    "SRC1_R": bit(43),
    "SS": bit(44),
    "UL": bit(45),
    "DST_CONV": bit(46),
    "FULL": bit(52),
    "SRC1": Bits(0, 15),
}
_ALU1: Fields = {**_ALU, "EI": bit(47), "SRC2_R": bit(51)}
_ALU2: Fields = {**_ALU1, "SRC2": Bits(16, 31)}
_COMPARE: Fields = {**_ALU2, "COND": one_of(48, 50, range(len(CONDITIONS)))}

CAT2 = [
    *_rows(
        2,
        "alu",
        _ALU1,
        {},
        {
            "sign.f": 4,
            "absneg.f": 6,
            "floor.f": 9,
            "ceil.f": 10,
            "rndne.f": 11,
            "rndaz.f": 12,
            "trunc.f": 13,
            "absneg.s": 26,
            "not.b": 30,
            "bfrev.b": 51,
            "clz.s": 52,
            "clz.b": 53,
            "setrm": 60,
            "cbits.b": 61,
        },
        53,
        58,
    ),
    *_rows(
        2,
        "alu",
        _ALU2,
        {},
        {
            "add.f": 0,
            "min.f": 1,
            "max.f": 2,
            "mul.f": 3,
            "add.u": 16,
            "add.s": 17,
            "sub.u": 18,
            "sub.s": 19,
            "min.u": 22,
            "min.s": 23,
            "max.u": 24,
            "max.s": 25,
            "and.b": 28,
            "or.b": 29,
            "xor.b": 31,
            "mul.u24": 48,
            "mul.s24": 49,
            "mull.u": 50,
            "shl.b": 54,
            "shr.b": 55,
            "ashr.b": 56,
            "bary.f": 57,
            "mgen.b": 58,
            "getbit.b": 59,
            "shb": 62,
            "msad": 63,
        },
        53,
        58,
    ),
    *_rows(2, "alu", _ALU2, {(50, 50): 1}, {"flat.b": 57}, 53, 58),
    *_rows(
        2,
        "alu",
        _COMPARE,
        {},
        {"cmps.f": 5, "cmpv.f": 7, "cmps.u": 20, "cmps.s": 21, "cmpv.u": 33, "cmpv.s": 34},
        53,
        58,
    ),
]

# Category 3: three sources -----------------------------------------------------------------------------

_TERNARY: Fields = {
    "SRC1": Bits(0, 12),
    "SRC2_R": bit(15),
    "SRC3": Bits(16, 28),
    "SRC3_R": bit(29),
    "DST": Bits(32, 39),
    "SRC1_R": bit(43),
    "SS": bit(44),
    "UL": bit(45),
    "SRC2": Bits(47, 54),
}
_REPEAT: Fields = {"REPEAT": Bits(40, 41)}
_NEG12: Fields = {"SRC1_NEG": bit(14), "SRC2_NEG": bit(30)}
_NEG3: Fields = {"SRC3_NEG": bit(31)}
_NORMAL: Fields = {**_TERNARY, **_REPEAT, **_NEG12, **_NEG3, "SAT": bit(42), "DST_CONV": bit(46)}
_ALTERNATE: Fields = {**_TERNARY, **_REPEAT, **_NEG12, **_NEG3, "FULL": bit(42), "DST_CONV": bit(46)}
_DOT: Fields = {**_TERNARY, **_NEG3, "MIXED": bit(14), "HIGH": bit(30), "SAT": bit(42)}
_WMM: Fields = {**_TERNARY, **_REPEAT, **_NEG12, "FULL": bit(31), "DST_FULL": bit(46)}
_ALT: Fixed = {(13, 13): 1}
_NOT_ALT: Fixed = {(13, 13): 0}

CAT3 = [
    *_rows(
        3,
        "ternary_half",
        _NORMAL,
        _NOT_ALT,
        {"mad.u16": 0, "mad.s16": 2, "mad.f16": 6, "sel.b16": 8, "sel.s16": 10, "sel.f16": 12, "sad.s16": 14},
        55,
        58,
    ),
    *_rows(
        3,
        "ternary_full",
        _NORMAL,
        _NOT_ALT,
        {
            "madsh.u16": 1,
            "madsh.m16": 3,
            "mad.u24": 4,
            "mad.s24": 5,
            "mad.f32": 7,
            "sel.b32": 9,
            "sel.s32": 11,
            "sel.f32": 13,
            "sad.s32": 15,
        },
        55,
        58,
    ),
    *_rows(
        3,
        "ternary_alternate",
        _ALTERNATE,
        _ALT,
        {"shrm": 8, "shlm": 9, "shrg": 10, "shlg": 11, "andg": 12},
        55,
        58,
    ),
    *_rows(3, "dot", _DOT, {**_ALT, (55, 58): 13}, {"dp2acc": 0, "dp4acc": 1}, 46, 46),
    *_rows(3, "wmm", _WMM, {**_ALT, (55, 58): 14}, {"wmm": 0, "wmm.accu": 1}, 42, 42),
]

# Category 4: special functions -------------------------------------------------------------------------

CAT4 = _rows(
    4,
    "alu",
    _ALU,
    {},
    {
        "rcp": 0,
        "rsq": 1,
        "log2": 2,
        "exp2": 3,
        "sin": 4,
        "cos": 5,
        "sqrt": 6,
        "hrsq": 9,
        "hlog2": 10,
        "hexp2": 11,
    },
    53,
    58,
)

# Category 5: textures ----------------------------------------------------------------------------------

_RESULT: Fields = {"FULL": bit(0), "DST": Bits(32, 39), "WRMASK": Bits(40, 43), "TYPE": Bits(44, 46)}
_TEXTURE: Fields = {**_RESULT, "IS_3D": bit(48), "IS_ARRAY": bit(49), "HAS_OFFSET": bit(52)}
_SAMPLE: Fields = {**_TEXTURE, "IS_SHADOW": bit(50), "PROJ": bit(53)}
_FETCH: Fields = {**_TEXTURE, "IS_VECTOR": bit(50), "IMM_OFFSET": bit(53), "NOT_1D": bit(18)}
_COORDINATES: Fields = {"SRC1": Bits(1, 8), "SRC2": Bits(9, 16)}
_SECOND_ONLY: Fields = {"SRC2": Bits(9, 16)}
_BASE: Fields = {"BASE_HI": Bits(19, 20), "BASE_LO": bit(47)}

GL_MODES = (0, 4)
A1_MODES = (1, 3, 7)


def _by_descriptor(opcodes: Mapping[str, int], fields: Fields, form: str, sampler: bool) -> list[Encoding]:
    """Return the rows of texture opcodes for each way to name the texture, and the sampler if it has one.

    DESC_MODE (bits 29..31) 0 and 4 take both from a register pair; 1, 2, 3 and 5 do so with a descriptor
    base; 6 has four bits of each as immediates; 7 has eight bits of sampler, and the texture in a1.x.
    """
    samp: Fields = {"SAMP": Bits(21, 24)} if sampler else {}
    wide: Fields = {"SAMP": Bits(21, 28)} if sampler else {}
    register: Fields = {"SRC3": Bits(21, 28)}
    by_mode: dict[int, Fields] = {
        **dict.fromkeys(GL_MODES, register),
        **{mode: {**register, **_BASE} for mode in (1, 2, 3, 5)},
        6: {**samp, "TEX": Bits(25, 28), **_BASE},
        7: {**wide, **_BASE},
    }
    rows = _rows(5, form, {**fields, **samp, "TEX": Bits(25, 31)}, {}, opcodes, 54, 58)
    for mode, extra in by_mode.items():
        rows += _rows(5, form, {**fields, **extra}, {(51, 51): 1, (29, 31): mode}, opcodes, 54, 58)
    return rows


_ONE_COORDINATE = {
    "isamm": 2,
    "sam": 3,
    "samgq": 6,
    "getlod": 7,
    "gather4r": 16,
    "gather4g": 17,
    "gather4b": 18,
    "gather4a": 19,
    "samgp0": 20,
    "samgp1": 21,
    "samgp2": 22,
    "samgp3": 23,
}
_TWO_COORDINATES = {"isaml": 1, "samb": 4, "saml": 5, "conv": 8, "convm": 9}
_SHUFFLES = {"quad_shuffle.horiz": 1, "quad_shuffle.vert": 2, "quad_shuffle.diag": 3}

CAT5 = [
    *_by_descriptor({"isam": 0}, {**_FETCH, **_COORDINATES}, "texture1", sampler=True),
    *_by_descriptor(_ONE_COORDINATE, {**_SAMPLE, **_COORDINATES}, "texture1", sampler=True),
    *_by_descriptor(_TWO_COORDINATES, {**_SAMPLE, **_COORDINATES}, "texture2", sampler=True),
    *_by_descriptor({"getsize": 10, "getpos": 12}, {**_SAMPLE, **_COORDINATES}, "texture1", sampler=False),
    *_by_descriptor({"getbuf": 11, "getinfo": 13}, {**_SAMPLE, **_SECOND_ONLY}, "texture0", sampler=False),
    *_rows(
        5,
        "texture1",
        {**_SAMPLE, **_COORDINATES},
        {},
        {"dsx": 14, "dsy": 15, "dsxpp.1": 24, "dsypp.1": 25, "rgetpos": 26},
        54,
        58,
    ),
    *_rows(5, "texture0", {**_SAMPLE, **_SECOND_ONLY}, {}, {"rgetinfo": 27}, 54, 58),
    encode("tcinv", 5, "bare", _SYNC, {(54, 58): 28, (61, 63): 5}),
    _row("brcst.active", 5, "lanes1", {**_RESULT, "SRC1": Bits(1, 8), "W": Bits(19, 20)}, {(53, 58): 62}),
    _row("quad_shuffle.brcst", 5, "lanes2", {**_RESULT, **_COORDINATES}, {(53, 58): 63, (19, 20): 0}),
    *_rows(5, "lanes1", {**_RESULT, "SRC1": Bits(1, 8)}, {(53, 58): 63}, _SHUFFLES, 19, 20),
]

# Category 6: memory ------------------------------------------------------------------------------------

_TYPE: Fields = {"TYPE": Bits(49, 51)}
_LOAD: Fields = {**_TYPE, "DST": Bits(32, 39)}
_LOAD_OFFSET: Fields = {"OFFSET": Bits(1, 13, signed=True), "SRC1": Bits(14, 21)}
_STORE: Fields = {**_TYPE, "DATA": Bits(1, 8)}
_STORE_OFFSET: Fields = {
    "OFFSET_HI": Bits(9, 13, signed=True),
    "OFFSET_LO": Bits(32, 39),
    "SRC1": Bits(41, 48),
}
_SCALED: Fields = {"OFFSET": Bits(9, 10), "SHIFT": Bits(12, 13)}
_SIZE3: Fields = {"SIZE": Bits(24, 26)}
_SIZE8: Fields = {"SIZE": Bits(24, 31)}
_CONST_DST: Fields = {"DST": Bits(32, 39), "A1": bit(40)}

_GLOBAL = [
    _row("ldg", 6, "load", {**_LOAD, **_LOAD_OFFSET, **_SIZE3}, {(0, 0): 1, (22, 23): 2, (52, 58): 0}),
    _row(
        "ldg.a",
        6,
        "load_scaled",
        {**_LOAD, **_SCALED, "SRC1": Bits(14, 21), "SRC2": Bits(1, 8), **_SIZE3},
        {(0, 0): 1, (22, 23): 3, (52, 58): 0},
    ),
    _row(
        "ldg.k",
        6,
        "load_const",
        {**_TYPE, **_CONST_DST, **_LOAD_OFFSET, "SIZE": Bits(23, 26)},
        {(0, 0): 1, (22, 22): 0, (52, 58): 1},
    ),
    _row(
        "stg",
        6,
        "store",
        {**_STORE, **_STORE_OFFSET, **_SIZE3},
        {(22, 23): 2, (40, 40): 1, (52, 53): 0, (54, 58): 3},
    ),
    _row(
        "stg.a",
        6,
        "store_scaled",
        {**_STORE, **_SCALED, "SRC1": Bits(41, 48), "SRC2": Bits(32, 39), **_SIZE3},
        {(22, 23): 2, (40, 40): 1, (52, 53): 1, (54, 58): 3},
    ),
]

_NEAR = [
    *_rows(
        6,
        "load",
        {**_LOAD, **_LOAD_OFFSET, **_SIZE8},
        {(0, 0): 1, (23, 23): 1},
        {"ldl": 1, "ldp": 2, "ldlw": 10},
        54,
        58,
    ),
    *_rows(
        6,
        "store",
        {**_STORE, **_STORE_OFFSET, **_SIZE8},
        {(23, 23): 1, (40, 40): 1},
        {"stl": 4, "stp": 5, "stlw": 11},
        54,
        58,
    ),
    _row("ldlv", 6, "load_varying", {**_LOAD, "OFFSET": Bits(1, 13), **_SIZE8}, {(22, 23): 3, (54, 58): 31}),
    _row(
        "stc",
        6,
        "store_const",
        {**_TYPE, **_CONST_DST, "SRC1": Bits(1, 8), **_SIZE3},
        {(23, 23): 1, (54, 58): 28},
    ),
    _row(
        "shfl",
        6,
        "shuffle",
        {
            **_LOAD,
            "SRC1": Bits(1, 8),
            "SRC2_IM": bit(23),
            "SRC2": Bits(24, 31),
            "MODE": one_of(45, 47, SHUFFLE_MODES),
        },
        {(52, 53): 2, (54, 58): 27},
    ),
]

# 64-bit atomics (type 6) came with a7xx; 8-bit ones do not exist.
_ATOMIC_TYPE: Fields = {"TYPE": one_of(49, 51, range(6))}
_SHAPE: Fields = {"DIMS": Bits(9, 10), "TYPED": bit(11), "COMPONENTS": Bits(12, 13)}
_ATOMIC: Fields = {
    **_ATOMIC_TYPE,
    **_SHAPE,
    "DST": Bits(32, 39),
    "SRC1": Bits(14, 21),
    "SRC1_IM": bit(22),
    "SRC2_IM": bit(23),
    "SRC2": Bits(24, 31),
}
_LOCAL_ATOMICS = _rows(
    6, "atomic", _ATOMIC, {(0, 0): 1}, {f"atomic.l.{op}": code for code, op in ATOMICS.items()}, 54, 58
)
_GLOBAL_ATOMICS = _rows(
    6,
    "atomic",
    _ATOMIC,
    {(0, 0): 1, (52, 52): 1},
    {f"atomic.g.{op}": code for code, op in ATOMICS.items()},
    54,
    58,
)

_DESCRIPTOR: Fields = {
    "BASE": Bits(1, 3),
    "MODE": one_of(6, 7, range(len(DESCRIPTOR_MODES))),
    "BINDLESS": bit(8),
    "INDEX": Bits(41, 48),
}
_IMAGE: Fields = {**_DESCRIPTOR, **_SHAPE}
_UBO: Fields = {**_DESCRIPTOR, "OFFSET_IM": bit(23), "OFFSET": Bits(24, 31)}
_COORDS_DATA: Fields = {"COORDS": Bits(24, 31), "DATA": Bits(32, 39)}
_OFFSET5: Fields = {"OFFSET_HI": Bits(4, 5), "OFFSET_LO": Bits(54, 58)}
_IMAGE_FORM: Fixed = {(20, 22): 6, (52, 53): 2}
_IDENTITY: Fields = {**_TYPE, "DST": Bits(32, 39)}

_RESOURCES = [
    *_rows(6, "image", {**_IMAGE, **_COORDS_DATA, **_TYPE}, _IMAGE_FORM, {"ldib": 6, "stib": 29}, 14, 19),
    *_rows(
        6,
        "image",
        {**_IMAGE, **_COORDS_DATA, **_TYPE, **_OFFSET5},
        {**_IMAGE_FORM, (23, 23): 1},
        {"ldib": 6, "stib": 29},
        14,
        19,
    ),
    *_rows(
        6,
        "image_atomic",
        {**_IMAGE, **_COORDS_DATA, **_ATOMIC_TYPE},
        {(20, 22): 6, (52, 53): 3},
        {f"atomic.b.{op}": code for code, op in ATOMICS.items() if op not in ("inc", "dec")},
        14,
        19,
    ),
    *_rows(
        6,
        "resource",
        {**_IMAGE, **_TYPE, "DST": Bits(32, 39)},
        _IMAGE_FORM,
        {"resbase": 12, "resinfo": 15},
        14,
        19,
    ),
    _row(
        "ldc",
        6,
        "ubo_load",
        {
            **_UBO,
            "DST": Bits(32, 39),
            "COMPONENT": Bits(9, 10),
            "UNIFIED": bit(11),
            "COMPONENTS": Bits(12, 13),
        },
        {(14, 19): 30, (22, 22): 1, (49, 51): 3, (52, 53): 2},
    ),
    _row(
        "ldc.k",
        6,
        "ubo_copy",
        {**_UBO, "SIZE": Bits(32, 39)},
        {(14, 19): 30, (22, 22): 1, (49, 51): 3, (52, 53): 3},
    ),
    *_rows(6, "identity", _IDENTITY, {(22, 22): 1, (52, 53): 2}, {"getspid": 36, "getwid": 37}, 14, 19),
    *_rows(6, "identity", _IDENTITY, {(22, 23): 3, (52, 53): 2}, {"getfiberid": 38}, 14, 19),
]

CAT6 = [*_GLOBAL, *_NEAR, *_LOCAL_ATOMICS, *_GLOBAL_ATOMICS, *_RESOURCES]

# Category 7: barriers and caches -----------------------------------------------------------------------

_SCOPE: Fields = {"SS": bit(44), "W": bit(51), "R": bit(52), "L": bit(53), "G": bit(54)}

CAT7 = [
    *_rows(7, "barrier", _SCOPE, _HIGH, {"bar": 0, "fence": 1}, 55, 58),
    *_rows(7, "barrier", _SCOPE, _LOW, {"bar": 0, "fence": 1}, 55, 58),
    *_rows(7, "sleep", {"SS": bit(44), "LONG": bit(51)}, {}, {"sleep": 2}, 55, 58),
    *_rows(7, "bare", {"SS": bit(44)}, {}, {"icinv": 3}, 55, 58),
    *_rows(7, "cache", {"SS": bit(44), "ALL": bit(51)}, {}, {"dccln": 4, "dcinv": 5, "dcflu": 6}, 55, 58),
]

# Source operands ---------------------------------------------------------------------------------------


def _source(kind: str, width: int, fields: Fields, fixed: Fixed) -> Encoding:
    return encode(kind, 0, kind, fields, fixed, width)


_SIGNS: Fields = {"NEG": bit(14), "ABS": bit(15)}
_REGISTER: Fields = {"NUM": Bits(0, 7), "LAST": bit(10)}
_RELATIVE: Fields = {"NUM": Bits(0, 9, signed=True)}

SOURCE16 = [
    _source("gpr", 16, {**_SIGNS, **_REGISTER}, {}),
    _source("rel_gpr", 16, {**_SIGNS, **_RELATIVE}, {(10, 13): 2}),
    _source("rel_const", 16, {**_SIGNS, **_RELATIVE}, {(10, 13): 3}),
    _source("const", 16, {**_SIGNS, "NUM": Bits(0, 10)}, {(11, 13): 2}),
    _source("imm", 16, {**_SIGNS, "NUM": Bits(0, 10, signed=True)}, {(11, 13): 4}),
    _source(
        "float_imm", 16, {**_SIGNS, "NUM": one_of(0, 9, range(len(FLUT))), "HALF": bit(10)}, {(11, 13): 5}
    ),
]
"""Sources of categories 2 and 4."""

SOURCE13_REGISTER = [
    _source("gpr", 13, _REGISTER, {}),
    _source("rel_gpr", 13, _RELATIVE, {(10, 12): 2}),
    _source("rel_const", 13, _RELATIVE, {(10, 12): 3}),
]
"""First source of dp2acc, dp4acc and wmm, third source of the first two."""
SOURCE13 = [*SOURCE13_REGISTER, _source("const", 13, {"NUM": Bits(0, 10)}, {(11, 12): 2})]
"""First and third source of category 3."""
SOURCE13_ALTERNATE = [*SOURCE13_REGISTER, _source("imm", 13, {"NUM": Bits(0, 11)}, {(12, 12): 1})]
"""First and third source of the alternate group of category 3, which takes immediates and no constants."""

# -------------------------------------------------------------------------------------------------------

ENCODINGS: dict[int, list[Encoding]] = {
    0: CAT0,
    1: CAT1,
    2: CAT2,
    3: CAT3,
    4: CAT4,
    5: CAT5,
    6: CAT6,
    7: CAT7,
}

OPCODES: dict[str, int] = {row.name: category for category, rows in ENCODINGS.items() for row in rows} | {
    "cov": 1
}
"""Every mnemonic that decodes, with its category. ``cov`` shares the encodings of ``mov``."""
