"""Semantics of the arithmetic instructions: categories 1 to 4. One function per instruction or family.

Half-precision float operations are computed in f32 and rounded once: for one addition, multiplication,
division or square root of 11-bit operands that equals native rounding, since 24 >= 2 * 11 + 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ringfence.hardware.adreno.ir3 import Instruction, Operand
from ringfence.virtual.isa import functions
from ringfence.virtual.isa.ir3.code import refuse
from ringfence.virtual.isa.ir3.translator import Semantics, Translator
from ringfence.virtual.isa.simt import Emitter

INTEGER_BITS = {"u8": 8, "u8_32": 8, "u16": 16, "s16": 16, "u32": 32, "s32": 32}
# cov from u8 sign-extends: Mesa emits `and.b x, 255` for unsigned bytes.
SIGNED = frozenset(("s16", "s32", "u8", "u8_32"))
FLOATS = frozenset(("f16", "f32"))
ROUND_ZERO, ROUND_EVEN, ROUND_UP, ROUND_DOWN = 0, 1, 2, 3
FLOAT_PREDICATES = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
COMPARES = frozenset(("cmps.f", "cmps.u", "cmps.s", "cmpv.f", "cmpv.u", "cmpv.s"))


def _repeats(i: Instruction) -> range:
    return range(i.repeat + 1)


# --- category 1: moves and conversions ---


def moved(t: Translator, i: Instruction, operand: Operand, k: int, e: Emitter) -> tuple[str, str]:
    """Return a register as a move or conversion delivers it, and the kind of the result."""
    if i.fields["src_type"] == i.fields["dst_type"]:
        return t.raw(operand, k, e), "i16" if operand.half else "i32"
    return _converted(t, i, operand, k, e)


def mov(t: Translator, i: Instruction) -> None:
    """Copy the bits; a half constant is demoted like a float (f16 move of a 32-bit word)."""
    e, source, kind = t.shape(i), i.srcs[0], str(i.fields["src_type"])
    for k in _repeats(i):
        if kind in FLOATS and source.half and source.kind in ("const", "rel_const"):
            t.put(i.dsts[0], k, e.cast("fptrunc", t.real(source, k, e), e.f32, e.f16), e, "f16")
            continue
        value = t.raw(source, k, e)
        t.put(i.dsts[0], k, value, e, "i16" if source.half else "i32")


def cov(t: Translator, i: Instruction) -> None:
    """Convert between types; float to integer saturates and sends NaN to 0."""
    e = t.shape(i)
    for k in _repeats(i):
        value, kind = _converted(t, i, i.srcs[0], k, e)
        t.put(i.dsts[0], k, value, e, kind)


def _converted(t: Translator, i: Instruction, operand: Operand, k: int, e: Emitter) -> tuple[str, str]:
    """Return a source converted to the destination type of a move, and the kind of the result."""
    source, target, rounding = (i.fields[name] for name in ("src_type", "dst_type", "round"))
    if source in FLOATS:
        value = t.real(_typed(operand, source == "f16"), k, e)
        if target == "f32":
            return value, "f32"
        if target == "f16":
            return narrow(e, value, int(rounding)), "f16"
        return _float_to_integer(i, value, str(target), int(rounding), e)
    value = _extended(t, operand, k, str(source), e)
    if target in FLOATS:
        real = _integer_to_float(e, value, str(source), int(rounding))
        return (real, "f32") if target == "f32" else (narrow(e, real, int(rounding)), "f16")
    return _integer_to_integer(value, str(target), e)


def _typed(operand: Operand, half: bool) -> Operand:
    return operand if operand.half == half else replace(operand, half=half)


def _extended(t: Translator, operand: Operand, k: int, source: str, e: Emitter) -> str:
    """Return an integer source as i32, extended from its type's width."""
    bits = INTEGER_BITS[source]
    raw = t.raw(operand, k, e)
    if bits == 8:
        narrowed = e.cast("trunc", raw, e.i16 if operand.half else e.i32, e.i8)
        return e.cast("sext", narrowed, e.i8, e.i32)
    how = "sext" if source in SIGNED else "zext"
    if operand.half:
        return e.cast(how, raw, e.i16, e.i32)
    if bits == 16:
        return e.cast(how, e.cast("trunc", raw, e.i32, e.i16), e.i16, e.i32)
    return raw


def narrow(e: Emitter, value: str, rounding: int) -> str:
    """Return f16 of an f32 value, rounded by the ROUND field (0 toward zero, 1 nearest even, 2 up, 3 down).

    Mesa's ir3_compiler_nir.c leaves the field 0 for ``f2f16_rtz`` and sets 1 for ``f2f16_rtne``.
    """
    nearest = e.cast("fptrunc", value, e.f32, e.f16)
    if rounding == ROUND_EVEN:
        return nearest
    back = e.cast("fpext", nearest, e.f16, e.f32)
    if rounding == ROUND_UP:
        wrong = e.new(f"fcmp olt {e.f32} {back}, {value}")
    elif rounding == ROUND_DOWN:
        wrong = e.new(f"fcmp ogt {e.f32} {back}, {value}")
    else:
        magnitude = e.unary("fabs", e.f32, value)
        wrong = e.new(f"fcmp ogt {e.f32} {e.unary('fabs', e.f32, back)}, {magnitude}")
    bits = e.cast("bitcast", nearest, e.f16, e.i16)
    if rounding in (ROUND_UP, ROUND_DOWN):
        return _step_directed(e, bits, wrong, up=rounding == ROUND_UP)
    # One step toward zero is one less in sign-magnitude; from infinity this gives the largest finite value,
    # which is right for a finite value that rounded up to infinity (an infinite value is never "wrong").
    stepped = e.op("sub", e.i16, bits, e.splat("i16", "1"))
    return e.cast("bitcast", e.select(wrong, e.i16, stepped, bits), e.i16, e.f16)


def _step_directed(e: Emitter, bits: str, wrong: str, *, up: bool) -> str:
    """Return the f16 next above (or below) where ``wrong``, which zeros are for one sign only."""
    negative = e.new(f"icmp slt {e.i16} {bits}, zeroinitializer")
    one, minus = e.splat("i16", "1"), e.splat("i16", "-1")
    step = e.select(negative, e.i16, *((minus, one) if up else (one, minus)))
    stepped = e.op("add", e.i16, bits, step)
    zero = e.new(f"icmp eq {e.i16} {e.op('and', e.i16, bits, e.splat('i16', '32767'))}, zeroinitializer")
    stepped = e.select(zero, e.i16, e.splat("i16", "1" if up else "-32767"), stepped)
    return e.cast("bitcast", e.select(wrong, e.i16, stepped, bits), e.i16, e.f16)


def _float_to_integer(i: Instruction, value: str, target: str, rounding: int, e: Emitter) -> tuple[str, str]:
    how = {ROUND_EVEN: "roundeven", ROUND_UP: "ceil", ROUND_DOWN: "floor"}.get(rounding)
    if how is not None:
        value = e.unary(how, e.f32, value)
    bits = INTEGER_BITS[target]
    if bits == 8:
        raise refuse(i, "what a float becomes as an 8-bit integer is not known")
    sign = "s" if target in SIGNED else "u"
    kind, element = (e.i16, "i16") if bits == 16 else (e.i32, "i32")
    name = f"llvm.fpto{sign}i.sat.{e.suffix(kind)}.{e.suffix(e.f32)}"
    return e.call(kind, name, (e.f32, value)), element


def _integer_to_float(e: Emitter, value: str, source: str, rounding: int) -> str:
    """Return f32 of an i32 value, rounded by the ROUND field.

    Qualcomm's OpenCL compiler asks for nearest even explicitly, so 0 is toward zero here as elsewhere.
    """
    signed = source in SIGNED
    if rounding == ROUND_EVEN or INTEGER_BITS[source] < 32:  # the other types are exact in f32
        return e.cast("sitofp" if signed else "uitofp", value, e.i32, e.f32)
    magnitude = value
    if signed:
        magnitude = e.call(e.i32, f"llvm.abs.{e.suffix(e.i32)}", (e.i32, value), ("i1", "false"))
    zeros = e.call(e.i32, f"llvm.ctlz.{e.suffix(e.i32)}", (e.i32, magnitude), ("i1", "false"))
    excess = e.binary("usub.sat", e.i32, e.splat("i32", "8"), zeros)  # bits beyond the 24 of an f32
    kept = e.op("shl", e.i32, e.op("lshr", e.i32, magnitude, excess), excess)
    bits = e.cast("bitcast", e.cast("uitofp", kept, e.i32, e.f32), e.f32, e.i32)
    sign = e.op("and", e.i32, value, e.splat("i32", "-2147483648")) if signed else e.splat("i32", "0")
    if rounding in (ROUND_UP, ROUND_DOWN):
        inexact = e.new(f"icmp ne {e.i32} {kept}, {magnitude}")
        away = e.new(f"icmp {'eq' if rounding == ROUND_UP else 'ne'} {e.i32} {sign}, {e.splat('i32', '0')}")
        bits = e.op("add", e.i32, bits, e.cast("zext", e.op("and", e.mask, inexact, away), e.mask, e.i32))
    return e.cast("bitcast", e.op("or", e.i32, bits, sign), e.i32, e.f32)


def _integer_to_integer(value: str, target: str, e: Emitter) -> tuple[str, str]:
    bits = INTEGER_BITS[target]
    if bits == 8:
        value = e.op("and", e.i32, value, e.splat("i32", "255"))
    return (value, "i32") if bits == 32 else (e.cast("trunc", value, e.i32, e.i16), "i16")


def parallel_moves(t: Translator, i: Instruction) -> None:
    """swz, gat, sct: read every source before writing any destination."""
    e = t.shape(i)
    values = [moved(t, i, source, 0, e) for source in i.srcs]
    for operand, (value, kind) in zip(i.dsts, values, strict=True):
        t.put(operand, 0, value, e, kind)


# --- category 2 ---


def _clamp(e: Emitter, value: str) -> str:
    """Return (sat): clamp to [0, 1], NaN gives 0."""
    low = e.binary("maxnum", e.f32, value, functions.constant(e, 0.0))
    return e.binary("minnum", e.f32, low, functions.constant(e, 1.0))


def _half_source(i: Instruction) -> bool:
    """Return whether an operation works on 16-bit operands."""
    return not int(i.fields["full"])


def real_operation(compute: Callable[[Emitter, tuple[str, ...]], str]) -> Semantics:
    """Return the semantics of a float instruction that maps f32 operands to an f32 result."""

    def semantics(t: Translator, i: Instruction) -> None:
        e, half = t.shape(i), _half_source(i)
        for k in _repeats(i):
            value = compute(e, tuple(t.real(_typed(s, half), k, e) for s in i.srcs))
            if i.sat:
                value = _clamp(e, value)
            t.put_real(i.dsts[0], k, value, e, half_source=half)

    return semantics


def integer_operation(
    compute: Callable[[Emitter, str, tuple[str, ...]], str],
    *,
    signed: bool = False,
    bitwise: bool = False,
) -> Semantics:
    """Return the semantics of an integer instruction; ``compute`` gets operands of one vector type."""

    def semantics(t: Translator, i: Instruction) -> None:
        e, half = t.shape(i), _half_source(i)
        kind = e.i16 if half else e.i32
        for k in _repeats(i):
            operands = tuple(t.integer(_typed(s, half), k, e, bitwise=bitwise) for s in i.srcs)
            value = compute(e, kind, operands)
            t.put_integer(i.dsts[0], k, value, e, half_source=half, signed=signed)

    return semantics


def sum_operation(name: str, *, signed: bool) -> Semantics:
    """Return add or sub: modulo, saturating with (sat), and with (ei) the sum halved without overflow.

    Mesa makes (sat) of ``nir_op_uadd_sat`` and its kin, and (ei) of ``nir_op_uhadd`` and ``nir_op_ihadd``.
    """
    saturating = f"{'s' if signed else 'u'}{name}.sat"

    def compute(t: Translator, i: Instruction, k: int, e: Emitter) -> str:
        half = _half_source(i)
        kind = e.i16 if half else e.i32
        a, b = (t.integer(_typed(s, half), k, e) for s in i.srcs)
        if i.ei:
            halved = _shift("ashr" if signed else "lshr")(e, kind, (e.op("xor", kind, a, b), _one(e, kind)))
            return e.op("add", kind, e.op("and", kind, a, b), halved)
        return e.binary(saturating, kind, a, b) if i.sat else e.op(name, kind, a, b)

    def semantics(t: Translator, i: Instruction) -> None:
        if i.ei and (i.sat or name == "sub"):
            raise refuse(i, "what (ei) means here is not known")
        e = t.shape(i)
        for k in _repeats(i):
            value = compute(t, i, k, e)
            t.put_integer(i.dsts[0], k, value, e, half_source=_half_source(i), signed=signed)

    return semantics


def _one(e: Emitter, kind: str) -> str:
    return e.splat(_element(e, kind), "1")


def _element(e: Emitter, kind: str) -> str:
    return "i16" if kind == e.i16 else "i32"


def _width(e: Emitter, kind: str) -> int:
    return 16 if kind == e.i16 else 32


def _binary(name: str) -> Callable[[Emitter, str, tuple[str, ...]], str]:
    return lambda e, kind, o: e.op(name, kind, o[0], o[1])


def _intrinsic(name: str) -> Callable[[Emitter, str, tuple[str, ...]], str]:
    return lambda e, kind, o: e.binary(name, kind, o[0], o[1])


def _shift(name: str) -> Callable[[Emitter, str, tuple[str, ...]], str]:
    """Return a shift by the count modulo the width."""

    def compute(e: Emitter, kind: str, o: tuple[str, ...]) -> str:
        count = e.op("and", kind, o[1], e.splat(_element(e, kind), str(_width(e, kind) - 1)))
        return e.op(name, kind, o[0], count)

    return compute


def _leading_zeros(e: Emitter, kind: str, o: tuple[str, ...]) -> str:
    """Return the count of leading zeros, -1 for zero."""
    count = e.call(kind, f"llvm.ctlz.{e.suffix(kind)}", (kind, o[0]), ("i1", "false"))
    zero = e.new(f"icmp eq {kind} {o[0]}, zeroinitializer")
    return e.select(zero, kind, e.splat(_element(e, kind), "-1"), count)


def _leading_signs(e: Emitter, kind: str, o: tuple[str, ...]) -> str:
    sign = e.op("ashr", kind, o[0], e.splat(_element(e, kind), str(_width(e, kind) - 1)))
    return _leading_zeros(e, kind, (e.op("xor", kind, o[0], sign),))


def _get_bit(e: Emitter, kind: str, o: tuple[str, ...]) -> str:
    shifted = _shift("lshr")(e, kind, o)
    return e.op("and", kind, shifted, _one(e, kind))


def _make_mask(e: Emitter, kind: str, o: tuple[str, ...]) -> str:
    """Return a run of src1 ones that begins at bit src2, both modulo the width (Mesa ir3-cat2.xml)."""
    one = _one(e, kind)
    run = e.op("sub", kind, _shift("shl")(e, kind, (one, o[0])), one)
    return _shift("shl")(e, kind, (run, o[1]))


def _reverse(e: Emitter, kind: str, o: tuple[str, ...]) -> str:
    return e.unary("bitreverse", kind, o[0])


def _population(e: Emitter, kind: str, o: tuple[str, ...]) -> str:
    return e.unary("ctpop", kind, o[0])


def compare(t: Translator, i: Instruction) -> None:
    """cmps: 1 or 0; cmpv: all ones or 0; or a predicate. A comparison with NaN is false, except ne.

    (sat) inverts the result: so Qualcomm's OpenCL compiler uses it (tinygrad's ``test_emu.py``). Results
    of half operands are zero-extended (Mesa ir3.h ``ir3_output_conv_type``).
    """
    e, half = t.shape(i), _half_source(i)
    for k in _repeats(i):
        hit = _comparison(t, i, k, e)
        if i.sat:
            hit = e.op("xor", e.mask, hit, e.splat("i1", "true"))
        if i.dsts[0].kind == "pred":
            t.put_flag(i.dsts[0].num + k, hit, e)
            continue
        narrow_result = half or i.dsts[0].half
        how, kind = "sext" if i.name.startswith("cmpv") else "zext", e.i16 if narrow_result else e.i32
        value = e.cast(how, hit, e.mask, kind)
        t.put_integer(i.dsts[0], k, value, e, half_source=narrow_result, signed=False)


def _comparison(t: Translator, i: Instruction, k: int, e: Emitter) -> str:
    half, condition = _half_source(i), str(i.fields["cond"])
    if i.name.endswith(".f"):
        a, b = (t.real(_typed(s, half), k, e) for s in i.srcs)
        return e.new(f"fcmp {FLOAT_PREDICATES[condition]} {e.f32} {a}, {b}")
    a, b = (t.integer(_typed(s, half), k, e) for s in i.srcs)
    sign = "" if condition in ("eq", "ne") else i.name[-1]
    return e.new(f"icmp {sign}{condition} {e.i16 if half else e.i32} {a}, {b}")


def multiply_low(t: Translator, i: Instruction) -> None:
    """mull.u: the product of the low 16 bits, 32 bits wide."""
    e = t.shape(i)
    mask = e.splat("i32", "65535")
    for k in _repeats(i):
        a, b = (e.op("and", e.i32, t.wide(s, k, e), mask) for s in i.srcs)
        _put_product(t, i, k, e.op("mul", e.i32, a, b), e)


def _put_product(t: Translator, i: Instruction, k: int, value: str, e: Emitter) -> None:
    """Write a 32-bit product, truncated where the destination is half."""
    if i.dsts[0].half:
        t.put(i.dsts[0], k, e.cast("trunc", value, e.i32, e.i16), e, "i16")
    else:
        t.put(i.dsts[0], k, value, e, "i32")


def _low24(e: Emitter, value: str, signed: bool) -> str:
    """Return the low 24 bits of an i32 vector, extended."""
    eight = e.splat("i32", "8")
    return e.op("ashr" if signed else "lshr", e.i32, e.op("shl", e.i32, value, eight), eight)


def multiply_24(signed: bool) -> Semantics:
    """mul.u24, mul.s24: the low 32 bits of a product of 24-bit numbers, or the product of 16-bit ones."""

    def semantics(t: Translator, i: Instruction) -> None:
        e, half = t.shape(i), _half_source(i)
        for k in _repeats(i):
            a, b = (t.wide(_typed(s, half), k, e, signed=signed) for s in i.srcs)
            if not half:
                a, b = _low24(e, a, signed), _low24(e, b, signed)
            _put_product(t, i, k, e.op("mul", e.i32, a, b), e)

    return semantics


def _sign(e: Emitter, o: tuple[str, ...]) -> str:
    """Return -1, 0 or 1; zero keeps its sign and NaN gives 0."""
    positive = e.new(f"fcmp ogt {e.f32} {o[0]}, zeroinitializer")
    negative = e.new(f"fcmp olt {e.f32} {o[0]}, zeroinitializer")
    one, minus, zero = (functions.constant(e, x) for x in (1.0, -1.0, 0.0))
    return e.select(positive, e.f32, one, e.select(negative, e.f32, minus, zero))


def _real_binary(name: str) -> Callable[[Emitter, tuple[str, ...]], str]:
    return lambda e, o: e.op(name, e.f32, o[0], o[1])


def _real_intrinsic(name: str) -> Callable[[Emitter, tuple[str, ...]], str]:
    return lambda e, o: e.binary(name, e.f32, o[0], o[1])


def _real_unary(name: str) -> Callable[[Emitter, tuple[str, ...]], str]:
    return lambda e, o: e.unary(name, e.f32, o[0])


# --- category 3 ---


def multiply_add(t: Translator, i: Instruction) -> None:
    """mad.f32, mad.f16: the product is rounded before the addition (Mesa's name is mad, not fma)."""
    e, half = t.shape(i), i.name == "mad.f16"
    for k in _repeats(i):
        a, b, c = (t.real(_typed(s, half), k, e) for s in i.srcs)
        product = e.op("fmul", e.f32, a, b)
        if half:
            product = e.cast("fpext", e.cast("fptrunc", product, e.f32, e.f16), e.f16, e.f32)
        value = e.op("fadd", e.f32, product, c)
        if i.sat:
            value = _clamp(e, value)
        t.put_real(i.dsts[0], k, value, e, half_source=half)


def multiply_add_16(signed: bool) -> Semantics:
    """mad.u16, mad.s16: a * b + c of half registers; if full, a and b are the low halves."""

    def semantics(t: Translator, i: Instruction) -> None:
        e, half = t.shape(i), i.dsts[0].half
        for k in _repeats(i):
            a, b, c = (t.integer(s, k, e) for s in i.srcs)
            if not half:
                a, b = (_low_half(e, x, signed) for x in (a, b))
            kind = e.i16 if half else e.i32
            value = e.op("add", kind, e.op("mul", kind, a, b), c)
            t.put(i.dsts[0], k, value, e, "i16" if half else "i32")

    return semantics


def _low_half(e: Emitter, value: str, signed: bool) -> str:
    """Return the low 16 bits of an i32 vector, extended."""
    return e.cast("sext" if signed else "zext", e.cast("trunc", value, e.i32, e.i16), e.i16, e.i32)


def multiply_add_24(signed: bool) -> Semantics:
    """mad.u24, mad.s24: 24-bit product plus c."""

    def semantics(t: Translator, i: Instruction) -> None:
        e = t.shape(i)
        for k in _repeats(i):
            a, b, c = (t.integer(_typed(s, False), k, e) for s in i.srcs)
            product = e.op("mul", e.i32, _low24(e, a, signed), _low24(e, b, signed))
            value = e.op("add", e.i32, product, c)
            t.put_integer(i.dsts[0], k, value, e, half_source=False, signed=signed)

    return semantics


def multiply_add_shifted(t: Translator, i: Instruction) -> None:
    """madsh.m16, madsh.u16: (low half of a * high half of b << 16) + c.

    Both do the same where Qualcomm's OpenCL compiler multiplies 32-bit numbers (tinygrad's ``test_emu.py``).
    """
    e = t.shape(i)
    mask, sixteen = e.splat("i32", "65535"), e.splat("i32", "16")
    for k in _repeats(i):
        a, b, c = (t.integer(_typed(s, False), k, e) for s in i.srcs)
        low, high = e.op("and", e.i32, a, mask), e.op("lshr", e.i32, b, sixteen)
        product = e.op("shl", e.i32, e.op("mul", e.i32, low, high), sixteen)
        t.put_integer(i.dsts[0], k, e.op("add", e.i32, product, c), e, half_source=False, signed=False)


def select(t: Translator, i: Instruction) -> None:
    """sel.b: src2 != 0 ? src1 : src3; sel.s: src2 >= 0; sel.f: src2 >= 0.0."""
    e, half, family = t.shape(i), i.name.endswith("16"), i.name[4]
    kind = e.i16 if half else e.i32
    if family == "b":
        _refuse_signs(i)
    for k in _repeats(i):
        first, tested, last = (_typed(s, half) for s in i.srcs)
        if family == "f":
            hit = e.new(f"fcmp oge {e.f32} {t.real(tested, k, e)}, zeroinitializer")
            value = e.select(hit, e.f32, t.real(first, k, e), t.real(last, k, e))
            t.put_real(i.dsts[0], k, value, e, half_source=half)
            continue
        test = "sge" if family == "s" else "ne"
        hit = e.new(f"icmp {test} {kind} {t.integer(tested, k, e)}, {e.splat(_element(e, kind), '0')}")
        value = e.select(hit, kind, t.integer(first, k, e), t.integer(last, k, e))
        t.put_integer(i.dsts[0], k, value, e, half_source=half, signed=family == "s")


def _refuse_signs(i: Instruction) -> None:
    if any(source.neg for source in i.srcs):
        raise refuse(i, "what (neg) means here is not known")


def three_term_sum(t: Translator, i: Instruction) -> None:
    """sad.s16, sad.s32: a + b + c.

    Despite its name no absolute difference: Qualcomm's OpenCL compiler adds three numbers with it (tinygrad's
    ``test_emu.py``), and Mesa makes it of ``iadd3``.
    """
    e, half = t.shape(i), i.name.endswith("16")
    kind = e.i16 if half else e.i32
    for k in _repeats(i):
        a, b, c = (t.integer(_typed(s, half), k, e) for s in i.srcs)
        value = e.op("add", kind, e.op("add", kind, a, b), c)
        t.put_integer(i.dsts[0], k, value, e, half_source=half, signed=True)


def shift_combine(shift: str, combine: str) -> Semantics:
    """shrm, shlm, shrg, shlg: (src2 shifted by src1) and/or src3, sources of either width."""

    def semantics(t: Translator, i: Instruction) -> None:
        e, half = t.shape(i), _half_source(i)
        kind = e.i16 if half else e.i32
        _refuse_signs(i)
        for k in _repeats(i):
            count, value, other = (t.integer(_typed(s, half), k, e) for s in i.srcs)
            shifted = _shift(shift)(e, kind, (value, count))
            result = e.op(combine, kind, shifted, other)
            t.put_integer(i.dsts[0], k, result, e, half_source=half, signed=False)

    return semantics


def and_or(t: Translator, i: Instruction) -> None:
    """andg: (src2 & src1) | src3."""
    e, half = t.shape(i), _half_source(i)
    kind = e.i16 if half else e.i32
    _refuse_signs(i)
    for k in _repeats(i):
        a, b, c = (t.integer(_typed(s, half), k, e) for s in i.srcs)
        value = e.op("or", kind, e.op("and", kind, b, a), c)
        t.put_integer(i.dsts[0], k, value, e, half_source=half, signed=False)


def dot_accumulate(count: int) -> Semantics:
    """Return dp2acc or dp4acc: the dot product of ``count`` bytes of two registers, plus the third.

    Bytes of the second are unsigned, those of the first signed with .mixed; dp2acc takes those of the low or
    of the high halves (Mesa ir3-cat3.xml). (sat) makes a signed sum saturate; Mesa found that it does not
    work for unsigned ones (``emit_alu_dot_4x8_as_dp4acc``) and never sets it on dp2acc.
    """

    def semantics(t: Translator, i: Instruction) -> None:
        e, mixed, high = t.shape(i), bool(i.fields["mixed"]), int(i.fields["high"])
        if count == 4 and high:
            raise refuse(i, "what .high means for four bytes is not known")
        if i.sat and not (count == 4 and mixed):
            raise refuse(i, "what (sat) means here is not known")
        for k in _repeats(i):
            a, b, total = (t.integer(s, k, e) for s in i.srcs)
            dot = e.splat("i32", "0")
            for position in range(2 * high, 2 * high + count):
                pair = _byte(e, a, position, mixed), _byte(e, b, position, False)
                dot = e.op("add", e.i32, dot, e.op("mul", e.i32, *pair))
            value = e.binary("sadd.sat", e.i32, dot, total) if i.sat else e.op("add", e.i32, dot, total)
            t.put(i.dsts[0], k, value, e, "i32")

    return semantics


def _byte(e: Emitter, value: str, position: int, signed: bool) -> str:
    """Return a byte of an i32 vector, extended."""
    top = e.op("shl", e.i32, value, e.splat("i32", str(24 - 8 * position)))
    return e.op("ashr" if signed else "lshr", e.i32, top, e.splat("i32", "24"))


# --- category 4 ---


def _reciprocal_root(e: Emitter, o: tuple[str, ...]) -> str:
    return functions.reciprocal(e, functions.square_root(e, o[0]))


REAL: dict[str, Semantics] = {
    "add.f": real_operation(_real_binary("fadd")),
    "min.f": real_operation(_real_intrinsic("minnum")),
    "max.f": real_operation(_real_intrinsic("maxnum")),
    "mul.f": real_operation(_real_binary("fmul")),
    "sign.f": real_operation(_sign),
    "absneg.f": real_operation(lambda e, o: o[0]),
    "floor.f": real_operation(_real_unary("floor")),
    "ceil.f": real_operation(_real_unary("ceil")),
    "rndne.f": real_operation(_real_unary("roundeven")),
    "rndaz.f": real_operation(_real_unary("round")),
    "trunc.f": real_operation(_real_unary("trunc")),
    "mad.f16": multiply_add,
    "mad.f32": multiply_add,
    "rcp": real_operation(lambda e, o: functions.reciprocal(e, o[0])),
    "rsq": real_operation(_reciprocal_root),
    "hrsq": real_operation(_reciprocal_root),
    "log2": real_operation(lambda e, o: functions.log2(e, o[0])),
    "hlog2": real_operation(lambda e, o: functions.log2(e, o[0])),
    "exp2": real_operation(lambda e, o: functions.exp2(e, o[0])),
    "hexp2": real_operation(lambda e, o: functions.exp2(e, o[0])),
    "sin": real_operation(lambda e, o: functions.sincos(e, o[0], 0)),
    "cos": real_operation(lambda e, o: functions.sincos(e, o[0], 1)),
    "sqrt": real_operation(lambda e, o: functions.square_root(e, o[0])),
}

_OTHER: dict[str, Semantics] = {
    "mov": mov,
    "cov": cov,
    "swz": parallel_moves,
    "gat": parallel_moves,
    "sct": parallel_moves,
    **dict.fromkeys(COMPARES, compare),
    "add.u": sum_operation("add", signed=False),
    "add.s": sum_operation("add", signed=True),
    "sub.u": sum_operation("sub", signed=False),
    "sub.s": sum_operation("sub", signed=True),
    "min.u": integer_operation(_intrinsic("umin")),
    "min.s": integer_operation(_intrinsic("smin"), signed=True),
    "max.u": integer_operation(_intrinsic("umax")),
    "max.s": integer_operation(_intrinsic("smax"), signed=True),
    "absneg.s": integer_operation(lambda e, kind, o: o[0], signed=True),
    "and.b": integer_operation(_binary("and"), bitwise=True),
    "or.b": integer_operation(_binary("or"), bitwise=True),
    "xor.b": integer_operation(_binary("xor"), bitwise=True),
    "not.b": integer_operation(
        lambda e, kind, o: e.op("xor", kind, o[0], e.splat(_element(e, kind), "-1")), bitwise=True
    ),
    "mul.u24": multiply_24(False),
    "mul.s24": multiply_24(True),
    "mull.u": multiply_low,
    "bfrev.b": integer_operation(_reverse),
    "clz.s": integer_operation(_leading_signs, signed=True),
    "clz.b": integer_operation(_leading_zeros, signed=True),
    "shl.b": integer_operation(_shift("shl")),
    "shr.b": integer_operation(_shift("lshr")),
    "ashr.b": integer_operation(_shift("ashr")),
    "mgen.b": integer_operation(_make_mask),
    "getbit.b": integer_operation(_get_bit),
    "cbits.b": integer_operation(_population),
    "mad.u16": multiply_add_16(False),
    "mad.s16": multiply_add_16(True),
    "mad.u24": multiply_add_24(False),
    "mad.s24": multiply_add_24(True),
    "madsh.u16": multiply_add_shifted,
    "madsh.m16": multiply_add_shifted,
    **dict.fromkeys(("sel.b16", "sel.b32", "sel.s16", "sel.s32", "sel.f16", "sel.f32"), select),
    "sad.s16": three_term_sum,
    "sad.s32": three_term_sum,
    "shrm": shift_combine("lshr", "and"),
    "shlm": shift_combine("shl", "and"),
    "shrg": shift_combine("lshr", "or"),
    "shlg": shift_combine("shl", "or"),
    "andg": and_or,
    "dp2acc": dot_accumulate(2),
    "dp4acc": dot_accumulate(4),
}

_HALVING = frozenset(("add.u", "add.s"))
_SATURATING = COMPARES | _HALVING | REAL.keys() | {"sub.u", "sub.s", "dp2acc", "dp4acc"}


def _guarded(name: str, semantics: Semantics) -> Semantics:
    """Return ``semantics`` that refuse the modifiers (sat) and (ei) where their meaning is not known."""

    def checked(t: Translator, i: Instruction) -> None:
        if i.sat and name not in _SATURATING:
            raise refuse(i, "what (sat) means here is not known")
        if i.ei and name not in _HALVING:
            raise refuse(i, "what (ei) means here is not known")
        semantics(t, i)

    return checked


SEMANTICS: dict[str, Semantics] = {name: _guarded(name, f) for name, f in (REAL | _OTHER).items()}
