"""Transcendental functions as vector polynomials: LLVM would call a scalar routine per lane.

Coefficients are least-maximum-error fits made for these ranges; tests measure the error against float64.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.virtual.isa.simt import Emitter, f32

EXP2 = (0.6931472028835098, 0.24022647909892586, 0.055503324055614554, 0.0096184376336331,
        0.0013398901478756699, 0.0001535333678523415)  # 2^x - 1 over x, |x| <= 1/2  # fmt: skip
LOG2 = (2.8853900817900673, 0.9617966732919824, 0.5770835982743153,
        0.41167178892192546, 0.3407490896855258)  # 2 atanh(s) / (s ln 2) in s^2, |s| <= 0.1716  # fmt: skip
# (sin x - x) / x^3 in x^2, |x| <= pi/4
SIN = (-0.16666654600610567, 0.008332160179586582, -0.00019515202162858743)
COS = (0.04166664566608462, -0.0013887315419516338, 2.4433060158781214e-05)  # (cos x - 1 + x^2/2) / x^4
# pi/2 in parts whose products are exact
HALF_PI = (1.5703125, 0.0004837512969970703125, 7.549789415861596e-8)


def _polynomial(e: Emitter, x: str, coefficients: Sequence[float]) -> str:
    value = constant(e, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = e.fma(value, x, constant(e, coefficient))
    return value


def constant(e: Emitter, value: float) -> str:
    """Return a splat of ``value``."""
    return e.splat("float", f32(value))


def integer(e: Emitter, value: int) -> str:
    """Return a splat of ``value`` as i32."""
    return e.splat("i32", str(value))


def _power_of_two(e: Emitter, exponent: str) -> str:
    """Return 2^exponent for an i32 vector in -126..127."""
    biased = e.op("add", e.i32, exponent, integer(e, 127))
    return e.cast("bitcast", e.op("shl", e.i32, biased, integer(e, 23)), e.i32, e.f32)


def exp2(e: Emitter, x: str) -> str:
    """Return 2^x, denormals included; NaN stays NaN."""
    low = e.binary("maxnum", e.f32, x, constant(e, -151.0))
    clamped = e.binary("minnum", e.f32, low, constant(e, 129.0))
    whole = e.unary("rint", e.f32, clamped)
    fraction = e.op("fsub", e.f32, clamped, whole)
    tail = e.op("fmul", e.f32, _polynomial(e, fraction, EXP2), fraction)
    value = e.op("fadd", e.f32, tail, constant(e, 1.0))
    exponent = e.cast("fptosi", whole, e.f32, e.i32)
    half = e.op("ashr", e.i32, exponent, integer(e, 1))
    rest = e.op("sub", e.i32, exponent, half)
    scaled = e.op("fmul", e.f32, e.op("fmul", e.f32, value, _power_of_two(e, half)), _power_of_two(e, rest))
    return e.select(_is_nan(e, x), e.f32, x, scaled)


def _is_nan(e: Emitter, x: str) -> str:
    return e.new(f"fcmp uno {e.f32} {x}, {x}")


def log2(e: Emitter, x: str) -> str:
    """Return log2 x: 0 gives -inf, negative gives NaN, denormals are scaled up first."""
    tiny = e.new(f"fcmp olt {e.f32} {x}, {constant(e, 2.0**-126)}")
    scaled = e.select(tiny, e.f32, e.op("fmul", e.f32, x, constant(e, 2.0**24)), x)
    bits = e.cast("bitcast", scaled, e.f32, e.i32)
    # Subtracting the bits of sqrt(1/2) makes the exponent field count from there: the mantissa is in
    # [0.707, 1.414).
    shifted = e.op("sub", e.i32, bits, integer(e, 0x3F3504F3))
    exponent = e.op("ashr", e.i32, shifted, integer(e, 23))
    mantissa_bits = e.op("sub", e.i32, bits, e.op("shl", e.i32, exponent, integer(e, 23)))
    mantissa = e.cast("bitcast", mantissa_bits, e.i32, e.f32)
    numerator = e.op("fsub", e.f32, mantissa, constant(e, 1.0))
    s = e.op("fdiv", e.f32, numerator, e.op("fadd", e.f32, mantissa, constant(e, 1.0)))
    series = _polynomial(e, e.op("fmul", e.f32, s, s), LOG2)
    bias = e.select(tiny, e.f32, constant(e, -24.0), constant(e, 0.0))
    whole = e.op("fadd", e.f32, e.cast("sitofp", exponent, e.i32, e.f32), bias)
    value = e.fma(s, series, whole)
    positive = e.new(f"fcmp ogt {e.f32} {x}, zeroinitializer")
    finite = e.new(f"fcmp olt {e.f32} {x}, {constant(e, float('inf'))}")
    ordinary = e.select(finite, e.f32, value, x)  # +inf and NaN
    zero = e.new(f"fcmp oeq {e.f32} {x}, zeroinitializer")
    not_positive = e.select(zero, e.f32, constant(e, float("-inf")), constant(e, float("nan")))
    return e.select(positive, e.f32, ordinary, not_positive)


def sincos(e: Emitter, x: str, quarter: int) -> str:
    """Return sin(x + quarter * pi/2) for x in radians, of which compilers feed small ones (|x| < 1e4)."""
    turns = e.unary("rint", e.f32, e.op("fmul", e.f32, x, constant(e, 0.6366197723675814)))
    reduced = x
    negative = e.new(f"fneg {e.f32} {turns}")
    for part in HALF_PI:
        reduced = e.fma(negative, constant(e, part), reduced)
    return quadrant_sine(e, reduced, turns, quarter)


def quadrant_sine(e: Emitter, reduced: str, quadrants: str, quarter: int) -> str:
    """Return sin(reduced + (quadrants + quarter) * pi/2), |reduced| <= pi/4, ``quadrants`` whole (f32)."""
    bounded = saturated(e, quadrants, e.f32, signed=True)
    quadrant = e.op("add", e.i32, bounded, integer(e, quarter))
    square = e.op("fmul", e.f32, reduced, reduced)
    cube = e.op("fmul", e.f32, square, reduced)
    sine = e.fma(_polynomial(e, square, SIN), cube, reduced)
    flat = e.fma(square, constant(e, -0.5), constant(e, 1.0))
    cosine = e.fma(_polynomial(e, square, COS), e.op("fmul", e.f32, square, square), flat)
    odd = e.new(f"trunc {e.i32} {quadrant} to {e.mask}")
    value = e.select(odd, e.f32, cosine, sine)
    sign = e.op("shl", e.i32, e.op("and", e.i32, quadrant, integer(e, 2)), integer(e, 30))
    bits = e.op("xor", e.i32, e.cast("bitcast", value, e.f32, e.i32), sign)
    return e.cast("bitcast", bits, e.i32, e.f32)


def reciprocal(e: Emitter, x: str) -> str:
    return e.op("fdiv", e.f32, constant(e, 1.0), x)


def square_root(e: Emitter, x: str) -> str:
    return e.unary("sqrt", e.f32, x)


def saturated(e: Emitter, value: str, real: str, *, signed: bool) -> str:
    """Return float lanes (of type ``real``) truncated to i32 and limited to its range; NaN gives 0.

    LLVM's own saturating conversions go lane by lane on x86 (LLVM 22).
    """
    element = real.split(" x ")[-1].rstrip(">")
    low, high = (-(2.0**31), 2.0**31) if signed else (0.0, 2.0**32)
    limit = e.splat(element, f32(high))
    above = e.new(f"fcmp oge {real} {value}, {limit}")
    bottom = e.splat(element, f32(low))
    bounded = e.select(e.new(f"fcmp ogt {real} {value}, {bottom}"), real, value, bottom)
    inside = e.select(above, real, "zeroinitializer", bounded)
    integers = e.cast("fptosi" if signed else "fptoui", inside, real, e.i32)
    result = e.select(above, e.i32, e.splat("i32", str((1 << 31) - 1 if signed else -1)), integers)
    if not signed:
        return result
    return e.select(e.new(f"fcmp uno {real} {value}, {value}"), e.i32, "zeroinitializer", result)
