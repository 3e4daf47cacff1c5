"""Semantics of packed 16-bit math, mixed-precision fma and dot products.

VOP3P without the matrix instructions.
"""

from __future__ import annotations

from collections.abc import Callable

from ringfence.hardware.amd.rdna import Instruction
from ringfence.virtual.isa.rdna import floats
from ringfence.virtual.isa.rdna.integer import shift
from ringfence.virtual.isa.rdna.operands import operands, permuted_source
from ringfence.virtual.isa.rdna.real import accumulator, sources
from ringfence.virtual.isa.rdna.translate import Semantics, Translator, vector_type
from ringfence.virtual.isa.rdna.unit import ALLOW_OUTPUT
from ringfence.virtual.isa.simt import Emitter

LOW_SIGN, HIGH_SIGN = 0x8000, 0x80000000


def _bit(i: Instruction, field: str, position: int) -> bool:
    return bool(int(i.fields.get(field, 0)) >> position & 1)


def word_source(t: Translator, i: Instruction, position: int) -> str:
    """Return source ``position`` as i32 lanes, permuted but without modifiers."""
    source = i.srcs[position]
    if position == 0 and i.fields.get("dpp") is not None:
        return t.convert(t.v, permuted_source(t, source, i.fields["dpp"]), t.kind(source), "i32")
    return t.source(source, "i32")


def selected(t: Translator, i: Instruction, position: int) -> str:
    """Return a packed source: op_sel picks the half for the low result, op_sel_hi that for the high one."""
    v = t.v
    word = word_source(t, i, position)
    low, high = _bit(i, "op_sel", position), _bit(i, "op_sel_hi", position)
    sixteen = v.splat("i32", "16")
    if (low, high) == (False, False):
        word = v.op(
            "or", v.i32, v.op("shl", v.i32, word, sixteen), v.op("and", v.i32, word, v.splat("i32", "65535"))
        )
    elif (low, high) == (True, True):
        upper = v.op("and", v.i32, word, v.splat("i32", "-65536"))
        word = v.op("or", v.i32, v.op("lshr", v.i32, word, sixteen), upper)
    elif low:
        word = v.call(v.i32, f"llvm.fshl.{v.suffix(v.i32)}", (v.i32, word), (v.i32, word), (v.i32, sixteen))
    return _signed(t, i, position, word)


def _signed(t: Translator, i: Instruction, position: int, word: str) -> str:
    """Negate the halves of a float source that neg_lo and neg_hi name."""
    if not i.srcs[position].type.endswith(("f16", "bf16")):
        return word
    sign = LOW_SIGN * _bit(i, "neg_lo", position) | HIGH_SIGN * _bit(i, "neg_hi", position)
    return t.v.op("xor", t.v.i32, word, t.constant("i32", sign)) if sign else word


def _halves(t: Translator, word: str, kind: str) -> str:
    """Return i32 lanes as twice as many 16-bit ones."""
    return t.memo(("packed", kind, word), lambda: t.p.cast("bitcast", word, t.v.i32, vector_type(t.p, kind)))


def _words(t: Translator, value: str, kind: str) -> str:
    word = t.v.cast("bitcast", value, vector_type(t.p, kind), t.v.i32)
    t.memo(("packed", kind, word), lambda: value)
    return word


def integer_operation(compute: Callable[[Emitter, str, list[str]], str], saturating: str = "") -> Semantics:
    """Return the semantics of a packed integer instruction; the clamp bit selects ``saturating``."""

    def semantics(t: Translator, i: Instruction) -> None:
        p = t.p
        values = [_halves(t, selected(t, i, k), "i16") for k in range(len(i.srcs))]
        if int(i.fields["clamp"]) and saturating:
            result = p.binary(saturating, p.i16, *values)
        else:
            result = compute(p, p.i16, values)
        t.put(i.dsts[0], _words(t, result, "i16"))

    return semantics


def multiply_add(is_signed: bool) -> Semantics:
    """v_pk_mad_i16, v_pk_mad_u16; clamp saturates the sum."""

    def semantics(t: Translator, i: Instruction) -> None:
        p = t.p
        a, b, c = (_halves(t, selected(t, i, k), "i16") for k in range(3))
        if not int(i.fields["clamp"]):
            result = p.op("add", p.i16, p.op("mul", p.i16, a, b), c)
        else:
            how = "sext" if is_signed else "zext"
            wide = [p.cast(how, x, p.i16, p.i32) for x in (a, b, c)]
            product = p.op("mul", p.i32, wide[0], wide[1])
            if is_signed:
                total = p.op("add", p.i32, product, wide[2])
                total = p.binary("smin", p.i32, total, p.splat("i32", "32767"))
                total = p.binary("smax", p.i32, total, p.splat("i32", "-32768"))
            else:
                total = p.binary("uadd.sat", p.i32, product, wide[2])
                total = p.binary("umin", p.i32, total, p.splat("i32", "65535"))
            result = p.cast("trunc", total, p.i32, p.i16)
        t.put(i.dsts[0], _words(t, result, "i16"))

    return semantics


def real_operation(compute: Callable[[Translator, list[str]], str]) -> Semantics:
    """Return the semantics of a packed f16 instruction."""

    def semantics(t: Translator, i: Instruction) -> None:
        words = [selected(t, i, k) for k in range(len(i.srcs))]
        halves = [_halves(t, word, "f16") for word in words]
        t.put(i.dsts[0], _packed_result(t, i, halves, compute))

    return semantics


def _packed_result(
    t: Translator, i: Instruction, halves: list[str], compute: Callable[[Translator, list[str]], str]
) -> str:
    with t.shape(t.p):
        value = compute(t, [floats.operand(t, x, "f16") for x in halves])
        value = floats.result(t, i, value, "f16")
    return _words(t, value, "f16")


def accumulate(t: Translator, i: Instruction) -> None:
    """v_pk_fmac_f16: D = fma(S0, S1, D) in both halves."""
    words = [*operands(t, i), t.vgpr(i.dsts[0].num)]
    halves = [_halves(t, word, "f16") for word in words]
    t.put(i.dsts[0], _packed_result(t, i, halves, lambda t, o: floats.fma(t, "f16", *o)))


# --- dot products ---


def dot_f16(t: Translator, a: str, b: str, c: str) -> str:
    """Return c + the products of the low and of the high halves, in f32."""
    for high in (False, True):
        x, y = (_half_operand(t, word, high) for word in (a, b))
        c = floats.fma(t, "f32", x, y, c)
    return c


def _half_operand(t: Translator, word: str, high: bool) -> str:
    half = t.convert(t.v, t.half_of(word, high), "i16", "f16")
    return floats.extend(t, floats.operand(t, half, "f16"))


def bf16(t: Translator, word: str, high: bool) -> str:
    """Return a bf16 half of i32 lanes as f32."""
    v = t.v
    upper = word if high else v.op("shl", v.i32, word, v.splat("i32", "16"))
    if high:
        upper = v.op("and", v.i32, word, v.splat("i32", "-65536"))
    return t.convert(v, upper, "i32", "f32")


def dot_bf16(t: Translator, a: str, b: str, c: str) -> str:
    """Return c + the products of the low and of the high bf16 halves, in f32."""
    for high in (False, True):
        x, y = (floats.operand(t, bf16(t, word, high), "f32") for word in (a, b))
        c = floats.fma(t, "f32", x, y, c)
    return c


def round_bf16(t: Translator, value: str) -> str:
    """Return f32 lanes rounded to bf16 (nearest even), as i16."""
    v = t.v
    bits = t.convert(v, value, "f32", "i32")
    odd = v.op("and", v.i32, v.op("lshr", v.i32, bits, v.splat("i32", "16")), v.splat("i32", "1"))
    biased = v.op("add", v.i32, bits, v.op("add", v.i32, odd, v.splat("i32", "32767")))
    quieted = v.op("or", v.i32, bits, v.splat("i32", str(floats.QUIET["f32"])))
    nan = v.new(f"fcmp uno {v.f32} {value}, {value}")
    rounded = v.select(nan, v.i32, quieted, biased)
    return v.cast("trunc", v.op("lshr", v.i32, rounded, v.splat("i32", "16")), v.i32, v.i16)


def dot_product(products: Callable[[Translator, str, str, str], str]) -> Semantics:
    """v_dot2_f32_f16, v_dot2_f32_bf16."""

    def semantics(t: Translator, i: Instruction) -> None:
        a, b = (_signed(t, i, k, word_source(t, i, k)) for k in range(2))
        c = _addend(t, i)
        floats.put(t, i, products(t, a, b, c), "f32")

    return semantics


def dot_accumulate(t: Translator, i: Instruction) -> None:
    """v_dot2acc_f32_f16: D += lo * lo + hi * hi."""
    a, b = (word_source(t, i, k) for k in range(2))
    floats.put(t, i, dot_f16(t, a, b, accumulator(t, i.dsts[0])), "f32")


def _addend(t: Translator, i: Instruction) -> str:
    """Return the f32 source 2: neg_hi is its abs, neg_lo its neg."""
    v = t.v
    c = t.source(i.srcs[2])
    if _bit(i, "neg_hi", 2):
        c = v.unary("fabs", v.f32, c)
    if _bit(i, "neg_lo", 2):
        c = v.new(f"fneg {v.f32} {c}")
    return floats.operand(t, c, "f32")


def dot_to_half(t: Translator, i: Instruction) -> None:
    """v_dot2_f16_f16: S2 + lo * lo + hi * hi, each step in f16."""
    v = t.v
    a, b = (t.source(s, "i32") for s in i.srcs[:2])
    total = floats.operand(t, t.source(i.srcs[2]), "f16")
    for high in (False, True):
        x, y = (floats.operand(t, t.convert(v, t.half_of(w, high), "i16", "f16"), "f16") for w in (a, b))
        total = floats.fma(t, "f16", x, y, total)
    t.put(i.dsts[0], floats.flushed(t, total, "f16", ALLOW_OUTPUT), "f16")


def dot_to_bf16(t: Translator, i: Instruction) -> None:
    """v_dot2_bf16_bf16: S2 + lo * lo + hi * hi in f32, rounded to bf16."""
    v = t.v
    a, b = (t.source(s, "i32") for s in i.srcs[:2])
    wide = v.op("shl", v.i32, v.cast("zext", t.source(i.srcs[2]), v.i16, v.i32), v.splat("i32", "16"))
    total = dot_bf16(t, a, b, t.convert(v, wide, "i32", "f32"))
    t.put(i.dsts[0], round_bf16(t, total), "i16")


def integer_dot(bits: int, mixed: bool) -> Semantics:
    """v_dot4_*, v_dot8_*: S2 + products of bytes or nibbles.

    ``mixed``: neg_lo tells which source is signed.
    """

    def semantics(t: Translator, i: Instruction) -> None:
        v = t.v
        words = [t.source(s, "i32") for s in i.srcs[:2]]
        signed = [mixed and _bit(i, "neg_lo", k) for k in range(2)]
        total = t.source(i.srcs[2])
        clamped = bool(int(i.fields["clamp"]))
        if clamped:
            total = v.cast("sext" if mixed else "zext", total, v.i32, v.i64)
        for k in range(32 // bits):
            x, y = (element(v, w, k, bits, s) for w, s in zip(words, signed, strict=True))
            product = v.op("mul", v.i32, x, y)
            if clamped:
                product = v.cast("sext" if mixed else "zext", product, v.i32, v.i64)
            total = v.op("add", v.i64 if clamped else v.i32, total, product)
        t.put(i.dsts[0], _limited(v, total, mixed) if clamped else total)

    return semantics


def element(v: Emitter, word: str, number: int, bits: int, is_signed: bool) -> str:
    """Return element ``number`` of packed small integers as i32."""
    left = 32 - bits * (number + 1)
    moved = v.op("shl", v.i32, word, v.splat("i32", str(left))) if left else word
    return v.op("ashr" if is_signed else "lshr", v.i32, moved, v.splat("i32", str(32 - bits)))


def _limited(v: Emitter, total: str, is_signed: bool) -> str:
    if is_signed:
        total = v.binary("smax", v.i64, total, v.splat("i64", str(-(1 << 31))))
        total = v.binary("smin", v.i64, total, v.splat("i64", str((1 << 31) - 1)))
    else:
        total = v.binary("umin", v.i64, total, v.splat("i64", str((1 << 32) - 1)))
    return v.cast("trunc", total, v.i64, v.i32)


# --- mixed precision ---


def _mixed(t: Translator, i: Instruction) -> str:
    values = []
    for value, source in zip(sources(t, i), i.srcs, strict=True):
        values.append(floats.extend(t, value) if source.type == "f16" else value)
    return floats.fma(t, "f32", *values)


def fma_mix(t: Translator, i: Instruction) -> None:
    """v_fma_mix_f32: fma of sources that are f32 or halves."""
    floats.put(t, i, _mixed(t, i), "f32")


def fma_mix_half(high: bool) -> Semantics:
    """v_fma_mixlo_f16, v_fma_mixhi_f16: the result becomes a half of D, the other half is kept."""

    def semantics(t: Translator, i: Instruction) -> None:
        value = floats.result(t, i, floats.narrow(t, _mixed(t, i)), "f16")
        t.set_vgpr16(i.dsts[0].num, high, value, "f16")

    return semantics


def _op(name: str) -> Callable[[Emitter, str, list[str]], str]:
    return lambda p, kind, o: p.op(name, kind, o[0], o[1])


def _intrinsic(name: str) -> Callable[[Emitter, str, list[str]], str]:
    return lambda p, kind, o: p.binary(name, kind, o[0], o[1])


def _shift(name: str) -> Callable[[Emitter, str, list[str]], str]:
    return lambda p, kind, o: shift(p, name, kind, o[1], o[0])


SEMANTICS: dict[str, Semantics] = {
    "v_pk_mad_i16": multiply_add(True),
    "v_pk_mad_u16": multiply_add(False),
    "v_pk_mul_lo_u16": integer_operation(_op("mul")),
    "v_pk_add_i16": integer_operation(_op("add"), "sadd.sat"),
    "v_pk_add_u16": integer_operation(_op("add"), "uadd.sat"),
    "v_pk_sub_i16": integer_operation(_op("sub"), "ssub.sat"),
    "v_pk_sub_u16": integer_operation(_op("sub"), "usub.sat"),
    "v_pk_lshlrev_b16": integer_operation(_shift("shl")),
    "v_pk_lshrrev_b16": integer_operation(_shift("lshr")),
    "v_pk_ashrrev_i16": integer_operation(_shift("ashr")),
    "v_pk_max_i16": integer_operation(_intrinsic("smax")),
    "v_pk_min_i16": integer_operation(_intrinsic("smin")),
    "v_pk_max_u16": integer_operation(_intrinsic("umax")),
    "v_pk_min_u16": integer_operation(_intrinsic("umin")),
    "v_pk_fma_f16": real_operation(lambda t, o: floats.fma(t, "f16", *o)),
    "v_pk_add_f16": real_operation(lambda t, o: floats.binary(t, "fadd", "f16", *o)),
    "v_pk_mul_f16": real_operation(lambda t, o: floats.binary(t, "fmul", "f16", *o)),
    "v_pk_min_f16": real_operation(lambda t, o: floats.extreme(t, "min", "f16", *o)),
    "v_pk_max_f16": real_operation(lambda t, o: floats.extreme(t, "max", "f16", *o)),
    "v_pk_fmac_f16": accumulate,
    "v_dot2_f32_f16": dot_product(dot_f16),
    "v_dot2_f32_bf16": dot_product(dot_bf16),
    "v_dot2_f16_f16": dot_to_half,
    "v_dot2_bf16_bf16": dot_to_bf16,
    "v_dot4_i32_iu8": integer_dot(8, True),
    "v_dot4_u32_u8": integer_dot(8, False),
    "v_dot8_i32_iu4": integer_dot(4, True),
    "v_dot8_u32_u4": integer_dot(4, False),
    "v_fma_mix_f32": fma_mix,
    "v_fma_mixlo_f16": fma_mix_half(False),
    "v_fma_mixhi_f16": fma_mix_half(True),
    "v_dot2acc_f32_f16": dot_accumulate,
}
