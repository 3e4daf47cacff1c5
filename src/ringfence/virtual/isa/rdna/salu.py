"""Semantics of the scalar ALU: SOP1, SOP2, SOPC and the arithmetic of SOPK. Flow control is in control.py."""

from __future__ import annotations

from collections.abc import Callable

from ringfence.hardware.amd.rdna import Instruction
from ringfence.virtual.isa.rdna import facts
from ringfence.virtual.isa.rdna.effects import EXEC, M0
from ringfence.virtual.isa.rdna.translate import Semantics, Translator

Compute = Callable[[Translator, str, tuple[str, ...]], str]  # (translator, type, operands) -> value


def _type(i: Instruction, operand: int = 0) -> str:
    """Return the LLVM type of a source."""
    return "i64" if i.srcs[operand].size == 2 else "i32"


def _sources(t: Translator, i: Instruction) -> tuple[str, ...]:
    return tuple(t.scalar_source(s) for s in i.srcs)


def _nonzero(t: Translator, kind: str, value: str) -> str:
    return t.s.new(f"icmp ne {kind} {value}, 0")


def operation(compute: Compute, *, scc: bool) -> Semantics:
    """Return the semantics of D = compute(sources); with ``scc``, SCC = D != 0."""

    def semantics(t: Translator, i: Instruction) -> None:
        kind = "i64" if i.dsts[0].size == 2 else "i32"
        value = compute(t, kind, _sources(t, i))
        t.put_scalar(i.dsts[0], value)
        if scc:
            t.set_scc(_nonzero(t, kind, value))

    return semantics


def _binary(name: str) -> Compute:
    return lambda t, kind, o: t.s.op(name, kind, o[0], o[1])


def _inverted(compute: Compute) -> Compute:
    return lambda t, kind, o: t.s.op("xor", kind, compute(t, kind, o), "-1")


def _with_not(name: str, which: int) -> Compute:
    """Return a bitwise operation with source ``which`` inverted."""

    def compute(t: Translator, kind: str, o: tuple[str, ...]) -> str:
        operands = [t.s.op("xor", kind, v, "-1") if k == which else v for k, v in enumerate(o)]
        return t.s.op(name, kind, *operands)

    return compute


LOGIC: dict[str, Compute] = {
    "and": _binary("and"),
    "or": _binary("or"),
    "xor": _binary("xor"),
    "nand": _inverted(_binary("and")),
    "nor": _inverted(_binary("or")),
    "xnor": _inverted(_binary("xor")),
    "and_not0": _with_not("and", 0),
    "or_not0": _with_not("or", 0),
    "and_not1": _with_not("and", 1),
    "or_not1": _with_not("or", 1),
}


def _count(t: Translator, kind: str, value: str) -> str:
    """Return a shift count: the low bits of an i32 as ``kind``."""
    masked = t.s.op("and", "i32", value, "63" if kind == "i64" else "31")
    return t.s.cast("zext", masked, "i32", "i64") if kind == "i64" else masked


def _shift(name: str) -> Compute:
    return lambda t, kind, o: t.s.op(name, kind, o[0], _count(t, kind, o[1]))


def add(subtract: bool, carry_in: bool) -> Semantics:
    """D = S0 +- S1 (+- SCC); SCC = unsigned carry or borrow."""

    def semantics(t: Translator, i: Instruction) -> None:
        s = t.s
        a, b = (s.cast("zext", v, "i32", "i64") for v in _sources(t, i))
        value = s.op("sub" if subtract else "add", "i64", a, b)
        if carry_in:
            value = s.op("sub" if subtract else "add", "i64", value, s.cast("zext", t.scc(), "i1", "i64"))
        t.put_scalar(i.dsts[0], s.cast("trunc", value, "i64", "i32"))
        t.set_scc(s.new(f"icmp ugt i64 {value}, {0xFFFFFFFF}"))  # a borrow leaves a huge number

    return semantics


def _signed_overflow(t: Translator, i: Instruction, name: str, a: str, b: str) -> None:
    """D = S0 +- S1; SCC = signed overflow."""
    s = t.s
    pair = s.call("{ i32, i1 }", f"llvm.s{name}.with.overflow.i32", ("i32", a), ("i32", b))
    t.put_scalar(i.dsts[0], s.new(f"extractvalue {{ i32, i1 }} {pair}, 0"))
    t.set_scc(s.new(f"extractvalue {{ i32, i1 }} {pair}, 1"))


def signed(name: str) -> Semantics:
    def semantics(t: Translator, i: Instruction) -> None:
        _signed_overflow(t, i, name, *_sources(t, i))

    return semantics


def absolute_difference(t: Translator, i: Instruction) -> None:
    """D = |S0 - S1| with 32-bit wrap."""
    difference = t.s.op("sub", "i32", *_sources(t, i))
    _put_absolute(t, i, difference)


def absolute(t: Translator, i: Instruction) -> None:
    _put_absolute(t, i, t.scalar_source(i.srcs[0]))


def _put_absolute(t: Translator, i: Instruction, value: str) -> None:
    magnitude = t.s.call("i32", "llvm.abs.i32", ("i32", value), ("i1", "false"))
    t.put_scalar(i.dsts[0], magnitude)
    t.set_scc(_nonzero(t, "i32", magnitude))


def shift_add(count: int) -> Semantics:
    """D = (S0 << count) + S1; SCC = the unbounded sum does not fit."""

    def semantics(t: Translator, i: Instruction) -> None:
        s = t.s
        a, b = (s.cast("zext", v, "i32", "i64") for v in _sources(t, i))
        total = s.op("add", "i64", s.op("shl", "i64", a, str(count)), b)
        t.put_scalar(i.dsts[0], s.cast("trunc", total, "i64", "i32"))
        t.set_scc(s.new(f"icmp ugt i64 {total}, {0xFFFFFFFF}"))

    return semantics


def extreme(name: str, chosen: str) -> Semantics:
    """D = min or max; SCC = S0 was chosen."""

    def semantics(t: Translator, i: Instruction) -> None:
        a, b = _sources(t, i)
        first = t.s.new(f"icmp {chosen} i32 {a}, {b}")
        t.put_scalar(i.dsts[0], t.s.binary(name, "i32", a, b))
        t.set_scc(first)

    return semantics


def bitfield_extract(is_signed: bool) -> Semantics:
    """D = the S1[22:16] bits of S0 from S1[4:0] (64-bit: S1[5:0]); width 0 gives 0."""

    def semantics(t: Translator, i: Instruction) -> None:
        s, kind = t.s, _type(i)
        bits = 64 if kind == "i64" else 32
        value, control = _sources(t, i)
        offset = _count(t, kind, control)
        width = s.op("and", "i32", s.op("lshr", "i32", control, "16"), "127")
        width = s.binary("umin", "i32", width, str(bits))
        if kind == "i64":
            width = s.cast("zext", width, "i32", "i64")
        shifted = s.op("ashr" if is_signed else "lshr", kind, value, offset)
        spare = s.op("sub", kind, str(bits), width)
        safe = s.op("and", kind, spare, str(bits - 1))
        field = s.op("ashr" if is_signed else "lshr", kind, s.op("shl", kind, shifted, safe), safe)
        empty = s.new(f"icmp eq {kind} {width}, 0")
        result = s.new(f"select i1 {empty}, {kind} 0, {kind} {field}")
        t.put_scalar(i.dsts[0], result)
        t.set_scc(_nonzero(t, kind, result))

    return semantics


def bitfield_mask(t: Translator, i: Instruction) -> None:
    """D = ((1 << S0) - 1) << S1."""
    s, kind = t.s, "i64" if i.dsts[0].size == 2 else "i32"
    width, offset = (_count(t, kind, v) for v in _sources(t, i))
    ones = s.op("sub", kind, s.op("shl", kind, "1", width), "1")
    t.put_scalar(i.dsts[0], s.op("shl", kind, ones, offset))


def multiply_high(is_signed: bool) -> Semantics:
    def semantics(t: Translator, i: Instruction) -> None:
        s = t.s
        a, b = (s.cast("sext" if is_signed else "zext", v, "i32", "i64") for v in _sources(t, i))
        high = s.op("lshr", "i64", s.op("mul", "i64", a, b), "32")
        t.put_scalar(i.dsts[0], s.cast("trunc", high, "i64", "i32"))

    return semantics


def select(t: Translator, i: Instruction) -> None:
    """D = SCC ? S0 : S1."""
    a, b = _sources(t, i)
    kind = "i64" if i.dsts[0].size == 2 else "i32"
    t.put_scalar(i.dsts[0], t.s.new(f"select i1 {t.scc()}, {kind} {a}, {kind} {b}"))


def pack(low_high: str) -> Semantics:
    """D = {half of S1, half of S0}; the letters name the halves of S0 and S1."""

    def semantics(t: Translator, i: Instruction) -> None:
        s = t.s
        a, b = _sources(t, i)
        low = s.op("lshr", "i32", a, "16") if low_high[0] == "h" else s.op("and", "i32", a, "65535")
        high = s.op("and", "i32", b, "-65536") if low_high[1] == "h" else s.op("shl", "i32", b, "16")
        t.put_scalar(i.dsts[0], s.op("or", "i32", high, low))

    return semantics


# --- SOP1 ---


def move(t: Translator, i: Instruction) -> None:
    t.put_scalar(i.dsts[0], t.scalar_source(i.srcs[0]))


def conditional_move(t: Translator, i: Instruction) -> None:
    """s_cmov, s_cmovk: D = SCC ? S0 : D."""
    kind = "i64" if i.dsts[0].size == 2 else "i32"
    new = _immediate(i) if i.format == "sopk" else t.scalar_source(i.srcs[0])
    old = t.scalar_source(i.dsts[0])
    t.put_scalar(i.dsts[0], t.s.new(f"select i1 {t.scc()}, {kind} {new}, {kind} {old}"))


def _unary(name: str) -> Compute:
    return lambda t, kind, o: t.s.unary(name, kind, o[0])


def _find(name: str, is_signed: bool = False) -> Semantics:
    """Return the count of zeros before the first one (ctlz, cttz), -1 if there is none.

    ``is_signed``: the first bit that differs from the sign; 32-bit results of either width.
    """

    def semantics(t: Translator, i: Instruction) -> None:
        s, kind = t.s, _type(i)
        bits = 64 if kind == "i64" else 32
        value = t.scalar_source(i.srcs[0])
        if is_signed:
            value = s.op("xor", kind, value, s.op("ashr", kind, value, str(bits - 1)))
        count = s.call(kind, f"llvm.{name}.{kind}", (kind, value), ("i1", "false"))
        none = s.new(f"icmp eq {kind} {value}, 0")
        result = s.new(f"select i1 {none}, {kind} -1, {kind} {count}")
        t.put_scalar(i.dsts[0], s.cast("trunc", result, "i64", "i32") if kind == "i64" else result)

    return semantics


def population(ones: bool) -> Semantics:
    """D = the number of ones or zeros; SCC = D != 0."""

    def semantics(t: Translator, i: Instruction) -> None:
        s, kind = t.s, _type(i)
        value = t.scalar_source(i.srcs[0])
        count = s.unary("ctpop", kind, value if ones else s.op("xor", kind, value, "-1"))
        result = s.cast("trunc", count, "i64", "i32") if kind == "i64" else count
        t.put_scalar(i.dsts[0], result)
        t.set_scc(_nonzero(t, "i32", result))

    return semantics


def sign_extend(bits: int) -> Semantics:
    def semantics(t: Translator, i: Instruction) -> None:
        narrow = t.s.cast("trunc", t.scalar_source(i.srcs[0]), "i32", f"i{bits}")
        t.put_scalar(i.dsts[0], t.s.cast("sext", narrow, f"i{bits}", "i32"))

    return semantics


def bit_set(value: int) -> Semantics:
    """D[S0] = value, other bits kept."""

    def semantics(t: Translator, i: Instruction) -> None:
        s, kind = t.s, "i64" if i.dsts[0].size == 2 else "i32"
        bit = s.op("shl", kind, "1", _count(t, kind, t.scalar_source(i.srcs[0])))
        old = t.scalar_source(i.dsts[0])
        new = s.op("or", kind, old, bit) if value else s.op("and", kind, old, s.op("xor", kind, bit, "-1"))
        t.put_scalar(i.dsts[0], new)

    return semantics


def _spread(t: Translator, value: str) -> str:
    """Return an i64 with bit k of an i32 at bit 2k."""
    s = t.s
    wide = s.cast("zext", value, "i32", "i64")
    for shift, mask in ((16, 0x0000FFFF0000FFFF), (8, 0x00FF00FF00FF00FF), (4, 0x0F0F0F0F0F0F0F0F),
                        (2, 0x3333333333333333), (1, 0x5555555555555555)):  # fmt: skip
        wide = s.op("and", "i64", s.op("or", "i64", wide, s.op("shl", "i64", wide, str(shift))), str(mask))
    return wide


def replicate(t: Translator, i: Instruction) -> None:
    """s_bitreplicate_b64_b32: each source bit doubled."""
    wide = _spread(t, t.scalar_source(i.srcs[0]))
    t.put_scalar(i.dsts[0], t.s.op("or", "i64", wide, t.s.op("shl", "i64", wide, "1")))


def _any_of_four(t: Translator, kind: str, value: str) -> str:
    """Return a value whose bit 4k tells whether any of the bits 4k to 4k+3 is set."""
    s = t.s
    pairs = s.op("or", kind, value, s.op("lshr", kind, value, "1"))
    fours = s.op("or", kind, pairs, s.op("lshr", kind, pairs, "2"))
    return s.op("and", kind, fours, str(0x11111111 if kind == "i32" else 0x1111111111111111))


def _quad_mask(t: Translator, kind: str, o: tuple[str, ...]) -> str:
    """Bit k = any of the bits 4k to 4k+3."""
    s = t.s
    value = _any_of_four(t, kind, o[0])
    steps = [(3, 0x0303030303030303), (6, 0x000F000F000F000F), (12, 0x000000FF000000FF), (24, 0xFFFF)]
    for shift, mask in steps if kind == "i64" else steps[:3]:
        merged = s.op("or", kind, value, s.op("lshr", kind, value, str(shift)))
        value = s.op("and", kind, merged, str(mask & (0xFFFFFFFF if kind == "i32" else -1)))
    return value


def _whole_quads(t: Translator, kind: str, o: tuple[str, ...]) -> str:
    """Each group of four bits is set if any of them is."""
    return t.s.op("mul", kind, _any_of_four(t, kind, o[0]), "15")


def save_exec(compute: Compute) -> Semantics:
    """D = EXEC; EXEC = S0 op EXEC; SCC = EXEC != 0."""

    def semantics(t: Translator, i: Instruction) -> None:
        wide = i.dsts[0].size == 2
        kind = "i64" if wide else "i32"
        source = t.scalar_source(i.srcs[0])
        old = t.scalar64(EXEC) if wide else t.scalar(EXEC)
        new = compute(t, kind, (source, old))
        t.put_scalar(i.dsts[0], old)
        _set_exec(t, wide, new)

    return semantics


def write_exec(compute: Compute) -> Semantics:
    """EXEC = S0 op EXEC; D = EXEC; SCC = EXEC != 0."""

    def semantics(t: Translator, i: Instruction) -> None:
        wide = i.dsts[0].size == 2
        source = t.scalar_source(i.srcs[0])
        old = t.scalar64(EXEC) if wide else t.scalar(EXEC)
        new = compute(t, "i64" if wide else "i32", (source, old))
        t.put_scalar(i.dsts[0], new)
        _set_exec(t, wide, new)

    return semantics


def _set_exec(t: Translator, wide: bool, value: str) -> None:
    if wide:
        t.set_scalar64(EXEC, value)
    else:
        t.set_scalar(EXEC, value)
    t.set_scc(_nonzero(t, "i64" if wide else "i32", value))


# --- relative moves ---


def _file_pointer(t: Translator, number: int, index: str) -> str:
    """Return the address of SGPR ``number`` + ``index``; beyond the last SGPR it is the last."""
    s = t.s
    t.spill()
    bounded = s.binary("umin", "i32", s.op("add", "i32", index, str(number)), "104")
    return s.new(f"getelementptr i32, ptr {t.scalar_file()}, i32 {bounded}")


def relative_source(t: Translator, i: Instruction) -> None:
    """s_movrels: D = SGPR[S + M0]."""
    kind = "i64" if i.dsts[0].size == 2 else "i32"
    pointer = _file_pointer(t, i.srcs[0].num, t.scalar(M0))
    t.put_scalar(i.dsts[0], t.s.new(f"load {kind}, ptr {pointer}, align 4"))


def relative_destination(t: Translator, i: Instruction) -> None:
    """s_movreld: SGPR[D + M0] = S."""
    kind = "i64" if i.dsts[0].size == 2 else "i32"
    value = t.scalar_source(i.srcs[0])
    pointer = _file_pointer(t, i.dsts[0].num, t.scalar(M0))
    t.s.line(f"store {kind} {value}, ptr {pointer}, align 4")
    t.forget_scalars()


def relative_both(t: Translator, i: Instruction) -> None:
    """s_movrelsd_2: SGPR[D + M0[25:16]] = SGPR[S + M0[9:0]]."""
    s, offsets = t.s, t.scalar(M0)
    source = s.op("and", "i32", offsets, "1023")
    target = s.op("and", "i32", s.op("lshr", "i32", offsets, "16"), "1023")
    value = s.new(f"load i32, ptr {_file_pointer(t, i.srcs[0].num, source)}, align 4")
    s.line(f"store i32 {value}, ptr {_file_pointer(t, i.dsts[0].num, target)}, align 4")
    t.forget_scalars()


# --- SOPC and SOPK ---

CONDITIONS = {"eq": "eq", "lg": "ne", "gt": "gt", "ge": "ge", "lt": "lt", "le": "le"}


def _predicate(condition: str, unsigned: bool) -> str:
    name = CONDITIONS[condition]
    return name if name in ("eq", "ne") else ("u" if unsigned else "s") + name


def compare(condition: str, unsigned: bool) -> Semantics:
    """SCC = S0 op S1."""

    def semantics(t: Translator, i: Instruction) -> None:
        a, b = _sources(t, i)
        t.set_scc(t.s.new(f"icmp {_predicate(condition, unsigned)} {_type(i)} {a}, {b}"))

    return semantics


def compare_immediate(condition: str, unsigned: bool) -> Semantics:
    """SCC = register op imm16."""

    def semantics(t: Translator, i: Instruction) -> None:
        value = str(int(i.fields["simm16"])) if unsigned else _immediate(i)
        register = t.scalar_source(i.srcs[0])
        t.set_scc(t.s.new(f"icmp {_predicate(condition, unsigned)} i32 {register}, {value}"))

    return semantics


def bit_compare(wanted: int) -> Semantics:
    """SCC = (S0[S1] == wanted)."""

    def semantics(t: Translator, i: Instruction) -> None:
        s, kind = t.s, _type(i)
        value, position = _sources(t, i)
        bit = s.cast("trunc", s.op("lshr", kind, value, _count(t, kind, position)), kind, "i1")
        t.set_scc(bit if wanted else s.op("xor", "i1", bit, "true"))

    return semantics


def _immediate(i: Instruction) -> str:
    """Return the sign-extended imm16."""
    value = int(i.fields["simm16"])
    return str(value - 0x10000 if value >> 15 else value)


def move_immediate(t: Translator, i: Instruction) -> None:
    t.put_scalar(i.dsts[0], _immediate(i))


def add_immediate(t: Translator, i: Instruction) -> None:
    _signed_overflow(t, i, "add", t.scalar_source(i.srcs[0]), _immediate(i))


def multiply_immediate(t: Translator, i: Instruction) -> None:
    t.put_scalar(i.dsts[0], t.s.op("mul", "i32", t.scalar_source(i.srcs[0]), _immediate(i)))


def get_pc(t: Translator, i: Instruction) -> None:
    """D = the address of the next instruction."""
    register = facts.register_of(i.dsts[0])
    if register is not None:
        t.set_scalar64(register, t.code_address(i.pc + i.size))


def _table() -> dict[str, Semantics]:
    table: dict[str, Semantics] = {
        "s_add_u32": add(False, False),
        "s_sub_u32": add(True, False),
        "s_addc_u32": add(False, True),
        "s_subb_u32": add(True, True),
        "s_add_i32": signed("add"),
        "s_sub_i32": signed("sub"),
        "s_absdiff_i32": absolute_difference,
        "s_abs_i32": absolute,
        "s_min_i32": extreme("smin", "slt"),
        "s_min_u32": extreme("umin", "ult"),
        "s_max_i32": extreme("smax", "sge"),
        "s_max_u32": extreme("umax", "uge"),
        "s_mul_i32": operation(_binary("mul"), scc=False),
        "s_mul_hi_u32": multiply_high(False),
        "s_mul_hi_i32": multiply_high(True),
        "s_bitreplicate_b64_b32": replicate,
        "s_sext_i32_i8": sign_extend(8),
        "s_sext_i32_i16": sign_extend(16),
        "s_ctz_i32_b32": _find("cttz"),
        "s_ctz_i32_b64": _find("cttz"),
        "s_clz_i32_u32": _find("ctlz"),
        "s_clz_i32_u64": _find("ctlz"),
        "s_cls_i32": _find("ctlz", is_signed=True),
        "s_cls_i32_i64": _find("ctlz", is_signed=True),
        "s_movk_i32": move_immediate,
        "s_cmovk_i32": conditional_move,
        "s_addk_i32": add_immediate,
        "s_mulk_i32": multiply_immediate,
        "s_getpc_b64": get_pc,
        "s_movrelsd_2_b32": relative_both,
    }
    for width in ("b32", "b64"):
        for name, compute in LOGIC.items():
            table[f"s_{name}_{width}"] = operation(compute, scc=True)
            table[f"s_{name}_saveexec_{width}"] = save_exec(compute)
            table[f"s_{name}_wrexec_{width}"] = write_exec(compute)
        table[f"s_lshl_{width}"] = operation(_shift("shl"), scc=True)
        table[f"s_lshr_{width}"] = operation(_shift("lshr"), scc=True)
        table[f"s_ashr_{width.replace('b', 'i')}"] = operation(_shift("ashr"), scc=True)
        table[f"s_bfe_{width.replace('b', 'u')}"] = bitfield_extract(False)
        table[f"s_bfe_{width.replace('b', 'i')}"] = bitfield_extract(True)
        table[f"s_bfm_{width}"] = bitfield_mask
        table[f"s_cselect_{width}"] = select
        table[f"s_mov_{width}"] = move
        table[f"s_cmov_{width}"] = conditional_move
        table[f"s_brev_{width}"] = operation(_unary("bitreverse"), scc=False)
        table[f"s_bitset0_{width}"] = bit_set(0)
        table[f"s_bitset1_{width}"] = bit_set(1)
        table[f"s_bcnt0_i32_{width}"] = population(False)
        table[f"s_bcnt1_i32_{width}"] = population(True)
        table[f"s_quadmask_{width}"] = operation(_quad_mask, scc=True)
        table[f"s_wqm_{width}"] = operation(_whole_quads, scc=True)
        table[f"s_not_{width}"] = operation(lambda t, kind, o: t.s.op("xor", kind, o[0], "-1"), scc=True)
        table[f"s_movrels_{width}"] = relative_source
        table[f"s_movreld_{width}"] = relative_destination
        table[f"s_bitcmp0_{width}"] = bit_compare(0)
        table[f"s_bitcmp1_{width}"] = bit_compare(1)
    for count in (1, 2, 3, 4):
        table[f"s_lshl{count}_add_u32"] = shift_add(count)
    for letters in ("ll", "lh", "hh", "hl"):
        table[f"s_pack_{letters}_b32_b16"] = pack(letters)
    for condition in CONDITIONS:
        for kind in ("i32", "u32", "u64"):
            table[f"s_cmp_{condition}_{kind}"] = compare(condition, kind[0] == "u")
        for kind in ("i32", "u32"):
            table[f"s_cmpk_{condition}_{kind}"] = compare_immediate(condition, kind[0] == "u")
    return table


SEMANTICS = _table()
