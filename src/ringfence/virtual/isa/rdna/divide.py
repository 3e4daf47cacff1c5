"""Semantics of the steps of a division: v_div_scale, v_div_fmas, v_div_fixup.

S0 is the value to scale (or the quotient), S1 the denominator, S2 the numerator. Whether a quotient is
denormal is told by the exponents alone: gfx1100 scales 2^-126 / 1, which is not (tinygrad,
test/amd/hw/test_vop3.py, TestDivScale). The manual prints a scale of 2^64 for denominators whose inverse
and quotient are denormal; that would overflow, so they are scaled down.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringfence.hardware.amd.rdna import Instruction
from ringfence.virtual.isa.rdna import floats
from ringfence.virtual.isa.rdna.effects import VCC
from ringfence.virtual.isa.rdna.real import BITS, MANTISSA, sources
from ringfence.virtual.isa.rdna.translate import INTEGER_OF, Semantics, Translator, vector_type
from ringfence.virtual.isa.rdna.unit import ALLOW_OUTPUT


@dataclass(frozen=True, slots=True)
class Format:
    """The constants of a division in one float format; exponents are biased fields."""

    far: int  # exponent difference from which the quotient overflows
    tiny: int  # numerators with an exponent up to this are scaled up
    scale: int  # log2 of the scale
    denormal: int  # exponent difference from which downwards a quotient may be denormal
    underflow: int  # exponent difference below which the quotient underflows


FORMATS = {
    "f32": Format(96, 23, 64, -126, -150),
    "f64": Format(768, 53, 128, -1022, -1075),
    "f16": Format(0, 0, 0, 0, -26),
}


def _bias(kind: str) -> int:
    return (1 << (BITS[kind] - 2 - MANTISSA[kind])) - 1


def _power(t: Translator, kind: str, exponent: int) -> str:
    """Return 2^exponent in every lane."""
    return t.constant(kind, (_bias(kind) + exponent) << MANTISSA[kind])


def _exponent(t: Translator, kind: str, value: str) -> str:
    """Return the biased exponent field as integers of the kind's width."""
    v, integer = t.v, INTEGER_OF[kind]
    whole = vector_type(v, integer)
    field = v.op("lshr", whole, t.convert(v, value, kind, integer), t.constant(integer, MANTISSA[kind]))
    return v.op("and", whole, field, t.constant(integer, (1 << (BITS[kind] - 1 - MANTISSA[kind])) - 1))


def scale(t: Translator, i: Instruction) -> None:
    """v_div_scale: S0 scaled where the division would lose bits.

    The mask tells that v_div_fmas must scale back.
    """
    kind = t.kind(i.dsts[0])
    value, denominator, numerator = sources(t, i)
    result, flag = _scaled(t, kind, value, denominator, numerator)
    t.put(i.dsts[0], floats.flushed(t, result, kind, ALLOW_OUTPUT), kind)
    t.put_mask(i.dsts[1], flag)


def _scaled(t: Translator, kind: str, value: str, denominator: str, numerator: str) -> tuple[str, str]:
    v, numbers, integer = t.v, FORMATS[kind], INTEGER_OF[kind]
    vector, whole = vector_type(v, kind), vector_type(v, integer)
    up = v.op("fmul", vector, value, _power(t, kind, numbers.scale))
    down = v.op("fmul", vector, value, _power(t, kind, -numbers.scale))
    bits = [t.convert(v, x, kind, integer) for x in (value, denominator, numerator)]
    is_denominator = v.new(f"icmp eq {whole} {bits[0]}, {bits[1]}")
    is_numerator = v.new(f"icmp eq {whole} {bits[0]}, {bits[2]}")
    exponents = [_exponent(t, kind, x) for x in (denominator, numerator)]
    difference = v.op("sub", whole, exponents[1], exponents[0])
    far = v.new(f"icmp sge {whole} {difference}, {t.constant(integer, numbers.far)}")
    denormal = floats.is_class(t, denominator, kind, 0b0010010000)
    limit = t.constant(integer, numbers.denormal)
    inverse = v.op("sub", whole, t.constant(integer, _bias(kind)), exponents[0])
    small_inverse = v.new(f"icmp sle {whole} {inverse}, {limit}")
    small_quotient = v.new(f"icmp sle {whole} {difference}, {limit}")
    tiny = v.new(f"icmp ule {whole} {exponents[1]}, {t.constant(integer, numbers.tiny)}")
    zero = v.op("or", v.mask, *(floats.is_class(t, x, kind, 0b0001100000) for x in (denominator, numerator)))
    nan = t.constant(kind, floats.EXPONENT[kind] | floats.QUIET[kind])
    yes, no = v.splat("i1", "true"), v.splat("i1", "false")
    # The tests in order; the first that holds decides, so the last is applied first.
    cases = [
        (tiny, up, no),
        (small_quotient, v.select(is_numerator, vector, up, value), yes),
        (small_inverse, down, no),
        (
            v.op("and", v.mask, small_inverse, small_quotient),
            v.select(is_denominator, vector, down, value),
            yes,
        ),
        (denormal, up, no),
        (far, v.select(is_denominator, vector, up, value), yes),
        (zero, nan, yes),
    ]
    result, flag = value, no
    for condition, scaled, set_flag in cases:
        result = v.select(condition, vector, scaled, result)
        flag = v.select(condition, v.mask, set_flag, flag)
    return result, flag


def multiply_add(t: Translator, i: Instruction) -> None:
    """v_div_fmas: fma(S0, S1, S2), scaled back where VCC is set.

    Up if the exponent of S2 is large, else down.
    """
    v, kind = t.v, t.kind(i.dsts[0])
    vector, integer = vector_type(v, kind), INTEGER_OF[kind]
    a, b, c = sources(t, i)
    value = floats.fma(t, kind, a, b, c)
    exponent = _exponent(t, kind, c)
    large = v.new(f"icmp ugt {vector_type(v, integer)} {exponent}, {t.constant(integer, _bias(kind))}")
    power = FORMATS[kind].scale
    factor = v.select(large, vector, _power(t, kind, power), _power(t, kind, -power))
    scaled = _scaled_once(t, kind, (a, b, c), value, factor)
    floats.put(t, i, v.select(t.mask(VCC), vector, scaled, value), kind)


def _scaled_once(t: Translator, kind: str, sources_: tuple[str, str, str], value: str, factor: str) -> str:
    """Return fma(a, b, c) * factor rounded once, given ``value``, the nearest fma.

    Scaling a rounded sum down to a denormal rounds again. That is wrong only if the sum lies halfway
    between two denormals while the exact one does not, so the sign of its error tells the right neighbour.
    """
    v, vector, integer = t.v, vector_type(t.v, kind), INTEGER_OF[kind]
    whole, numbers = vector_type(v, integer), FORMATS[kind]
    scaled = floats.binary(t, "fmul", kind, value, factor)
    back = v.op("fmul", vector, scaled, _power(t, kind, numbers.scale))
    difference = v.op("fsub", vector, value, back)
    half = numbers.scale - _bias(kind) - MANTISSA[kind]  # log2 of half the distance of denormals, scaled up
    tie = v.new(f"fcmp oeq {vector} {v.unary('fabs', vector, difference)}, {_power(t, kind, half)}")
    error = _fma_error(t, kind, sources_, value)
    bits = [t.convert(v, x, kind, integer) for x in (scaled, difference, error)]
    onward = v.new(f"icmp sge {whole} {v.op('xor', whole, bits[1], bits[2])}, zeroinitializer")
    inexact = v.new(f"fcmp one {vector} {error}, zeroinitializer")
    wrong = v.op("and", v.mask, tie, v.op("and", v.mask, onward, inexact))
    outward = v.new(f"icmp sge {whole} {v.op('xor', whole, bits[0], bits[1])}, zeroinitializer")
    step = v.select(outward, whole, t.constant(integer, 1), t.constant(integer, -1))
    adjusted = v.select(wrong, whole, v.op("add", whole, bits[0], step), bits[0])
    return t.convert(v, adjusted, integer, kind)


def _fma_error(t: Translator, kind: str, sources_: tuple[str, str, str], value: str) -> str:
    """Return a * b + c - value to the precision that tells its sign (Boldo and Muller, ErrFma)."""
    v, vector = t.v, vector_type(t.v, kind)
    a, b, c = sources_
    product = v.op("fmul", vector, a, b)
    name = f"llvm.fma.{v.suffix(vector)}"
    rest = v.call(vector, name, (vector, a), (vector, b), (vector, v.new(f"fneg {vector} {product}")))
    low, low_error = _two_sum(t, vector, c, rest)
    high, high_error = _two_sum(t, vector, product, low)
    gap = v.op("fadd", vector, v.op("fsub", vector, high, value), high_error)
    return v.op("fadd", vector, gap, low_error)


def _two_sum(t: Translator, vector: str, a: str, b: str) -> tuple[str, str]:
    """Return the nearest sum and its exact error (Knuth)."""
    v = t.v
    total = v.op("fadd", vector, a, b)
    b_part = v.op("fsub", vector, total, a)
    a_part = v.op("fsub", vector, total, b_part)
    error = v.op("fadd", vector, v.op("fsub", vector, a, a_part), v.op("fsub", vector, b, b_part))
    return total, error


def fixup(t: Translator, i: Instruction) -> None:
    """v_div_fixup: the quotient S0, replaced in the special cases of S2 / S1."""
    kind = t.kind(i.dsts[0])
    quotient, denominator, numerator = sources(t, i)
    floats.put(t, i, _fixed(t, kind, quotient, denominator, numerator), kind)


def _fixed(t: Translator, kind: str, quotient: str, denominator: str, numerator: str) -> str:
    v, integer = t.v, INTEGER_OF[kind]
    vector, whole = vector_type(v, kind), vector_type(v, integer)
    bits = [t.convert(v, x, kind, integer) for x in (denominator, numerator)]
    sign = v.op("and", whole, v.op("xor", whole, *bits), t.constant(integer, floats.SIGN[kind]))

    def signed(magnitude: int) -> str:
        return t.convert(v, v.op("or", whole, sign, t.constant(integer, magnitude)), integer, kind)

    def both(first: str, second: str) -> str:
        return v.op("and", v.mask, first, second)

    def either(first: str, second: str) -> str:
        return v.op("or", v.mask, first, second)

    def kinds(classes: int) -> tuple[str, str]:
        return floats.is_class(t, denominator, kind, classes), floats.is_class(t, numerator, kind, classes)

    zeros, infinities, nans = kinds(0b0001100000), kinds(0b1000000100), kinds(0b0000000011)
    magnitude = t.convert(v, v.unary("fabs", vector, quotient), kind, integer)
    ordinary = t.convert(v, v.op("or", whole, magnitude, sign), integer, kind)
    lost = v.new(f"fcmp uno {vector} {quotient}, {quotient}")
    exponents = [_exponent(t, kind, x) for x in (denominator, numerator)]
    difference = v.op("sub", whole, exponents[1], exponents[0])
    underflows = v.new(f"icmp slt {whole} {difference}, {t.constant(integer, FORMATS[kind].underflow)}")
    infinity, invalid = floats.EXPONENT[kind], floats.SIGN[kind] | floats.EXPONENT[kind] | floats.QUIET[kind]
    cases = [
        (lost, signed(infinity)),
        (underflows, signed(0)),
        (either(infinities[0], zeros[1]), signed(0)),
        (either(zeros[0], infinities[1]), signed(infinity)),
        (either(both(*zeros), both(*infinities)), t.constant(kind, invalid)),
        (nans[0], floats.quiet(t, denominator, kind)),
        (nans[1], floats.quiet(t, numerator, kind)),
    ]
    result = ordinary
    for condition, value in cases:
        result = v.select(condition, vector, value, result)
    return result


SEMANTICS: dict[str, Semantics] = {
    "v_div_scale_f32": scale,
    "v_div_scale_f64": scale,
    "v_div_fmas_f32": multiply_add,
    "v_div_fmas_f64": multiply_add,
    "v_div_fixup_f32": fixup,
    "v_div_fixup_f64": fixup,
    "v_div_fixup_f16": fixup,
}
