"""Semantics of floating-point vector instructions.

Arithmetic, minimum and maximum, rounding, transcendentals.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ringfence.hardware.amd.rdna import Instruction, Operand
from ringfence.virtual.isa import functions
from ringfence.virtual.isa.rdna import floats
from ringfence.virtual.isa.rdna.operands import operands
from ringfence.virtual.isa.rdna.translate import INTEGER_OF, Semantics, Translator, constant_bits, vector_type
from ringfence.virtual.isa.simt import f32

Compute = Callable[[Translator, str, list[str]], str]  # (translator, kind, operands) -> value

BELOW_ONE = {"f16": 0x3BFF, "f32": 0x3F7FFFFF, "f64": 0x3FEFFFFFFFFFFFFF}
BITS = {"f16": 16, "f32": 32, "f64": 64}
MANTISSA = {"f16": 10, "f32": 23, "f64": 52}
TURN_LIMIT = 256.0  # beyond it sin gives 0 and cos 1
TWO_PI = 6.283185307179586


def sources(t: Translator, i: Instruction) -> list[str]:
    """Return the sources with denormals flushed as MODE says."""
    return [floats.operand(t, value, t.kind(s)) for value, s in zip(operands(t, i), i.srcs, strict=True)]


def operation(compute: Compute) -> Semantics:
    """Return the semantics of D = compute(sources), all of one kind."""

    def semantics(t: Translator, i: Instruction) -> None:
        kind = t.kind(i.dsts[0])
        floats.put(t, i, compute(t, kind, sources(t, i)), kind)

    return semantics


def _binary(name: str, *, reverse: bool = False) -> Compute:
    return lambda t, kind, o: floats.binary(t, name, kind, *(o[::-1] if reverse else o))


def _fma(t: Translator, kind: str, o: list[str]) -> str:
    return floats.fma(t, kind, o[0], o[1], o[2])


def accumulate(t: Translator, i: Instruction) -> None:
    """v_fmac: D = fma(S0, S1, D)."""
    kind = t.kind(i.dsts[0])
    a, b = sources(t, i)
    floats.put(t, i, floats.fma(t, kind, a, b, accumulator(t, i.dsts[0])), kind)


def accumulator(t: Translator, destination: Operand) -> str:
    """Return the old value of a destination as the operation sees it."""
    kind = t.kind(destination)
    return floats.operand(t, t.source(destination), kind)


def _either_zero(t: Translator, kind: str, a: str, b: str) -> str:
    v, vector = t.v, vector_type(t.v, kind)
    zeros = [v.new(f"fcmp oeq {vector} {x}, zeroinitializer") for x in (a, b)]
    return v.op("or", v.mask, *zeros)


def multiply_dx9(t: Translator, kind: str, o: list[str]) -> str:
    """0 if either operand is 0, whatever the other is."""
    product = floats.binary(t, "fmul", kind, *o)
    return t.v.select(_either_zero(t, kind, *o), vector_type(t.v, kind), "zeroinitializer", product)


def _fma_dx9(t: Translator, kind: str, o: list[str]) -> str:
    total = floats.fma(t, kind, o[0], o[1], o[2])
    return t.v.select(_either_zero(t, kind, o[0], o[1]), vector_type(t.v, kind), o[2], total)


def accumulate_dx9(t: Translator, i: Instruction) -> None:
    a, b = sources(t, i)
    floats.put(t, i, _fma_dx9(t, "f32", [a, b, accumulator(t, i.dsts[0])]), "f32")


# --- minimum and maximum ---


def numbers(i: Instruction, values: list[str]) -> frozenset[str]:
    """Return the operands that are constants and no NaN."""
    found = set()
    for value, source in zip(values, i.srcs, strict=True):
        bits = constant_bits(source)
        if bits is not None and source.kind in ("int", "float"):
            found.add(value)
    return frozenset(found)


def extremes(*names: str) -> Semantics:
    """Return chained minima and maxima: names[0] of S0 and S1, names[1] of that and S2."""

    def semantics(t: Translator, i: Instruction) -> None:
        kind, values = t.kind(i.dsts[0]), sources(t, i)
        known = numbers(i, values)
        value = values[0]
        for name, other in zip(names, values[1:], strict=True):
            value = floats.extreme(t, name, kind, value, other, constant=known)
        floats.put(t, i, value, kind)

    return semantics


def median(t: Translator, i: Instruction) -> None:
    """v_med3: the middle value; with a NaN among them the minimum of the three."""
    v, kind, (a, b, c) = t.v, t.kind(i.dsts[0]), sources(t, i)
    vector = vector_type(v, kind)
    low = floats.extreme(t, "min", kind, a, b)
    high = floats.extreme(t, "max", kind, a, b)
    middle = floats.extreme(t, "max", kind, low, floats.extreme(t, "min", kind, high, c))
    least = floats.extreme(t, "min", kind, low, c)
    nan = v.op("or", v.mask, v.new(f"fcmp uno {vector} {a}, {b}"), v.new(f"fcmp uno {vector} {c}, {c}"))
    floats.put(t, i, v.select(nan, vector, least, middle), kind)


def _mullit(t: Translator, kind: str, o: list[str]) -> str:
    """S0 * S1, but -MAX where S1 is -MAX, -inf or NaN or S2 is not positive."""
    v = t.v
    least = t.constant("f32", 0xFF7FFFFF)
    ordinary = v.new(f"fcmp ogt {v.f32} {o[1]}, {least}")
    positive = v.new(f"fcmp ogt {v.f32} {o[2]}, zeroinitializer")
    product = floats.binary(t, "fmul", kind, o[0], o[1])
    return v.select(v.op("and", v.mask, ordinary, positive), v.f32, product, least)


# --- cube maps ---


def _cube(which: str) -> Compute:
    """v_cubeid, v_cubesc, v_cubetc, v_cubema.

    Face, s, t and twice the major axis of a direction (x, y, z).
    """

    def compute(t: Translator, kind: str, o: list[str]) -> str:
        v = t.v
        x, _, z = o
        ax, ay, az = (v.unary("fabs", v.f32, c) for c in o)
        z_major = v.op(
            "and", v.mask, v.new(f"fcmp oge {v.f32} {az}, {ax}"), v.new(f"fcmp oge {v.f32} {az}, {ay}")
        )
        y_major = v.new(f"fcmp oge {v.f32} {ay}, {ax}")
        below = [v.new(f"fcmp olt {v.f32} {c}, zeroinitializer") for c in o]
        minus = [v.new(f"fneg {v.f32} {c}") for c in o]

        def by_axis(of_x: str, of_y: str, of_z: str) -> str:
            return v.select(z_major, v.f32, of_z, v.select(y_major, v.f32, of_y, of_x))

        def signed(axis: int, negative: str, positive: str) -> str:
            return v.select(below[axis], v.f32, negative, positive)

        if which == "ma":
            return by_axis(*(v.op("fmul", v.f32, c, v.splat("float", f32(2.0))) for c in o))
        if which == "id":
            faces = [functions.constant(v, float(k)) for k in range(6)]
            return by_axis(*(signed(k, faces[2 * k + 1], faces[2 * k]) for k in range(3)))
        if which == "sc":
            return by_axis(signed(0, z, minus[2]), x, signed(2, minus[0], x))
        return by_axis(minus[1], signed(1, minus[2], z), minus[1])

    return compute


# --- rounding to integers ---


def _unary(name: str) -> Compute:
    return lambda t, kind, o: t.v.unary(name, vector_type(t.v, kind), o[0])


def _fraction(t: Translator, kind: str, o: list[str]) -> str:
    """S - floor(S), below 1; infinity gives NaN."""
    v, vector = t.v, vector_type(t.v, kind)
    value = v.op("fsub", vector, o[0], v.unary("floor", vector, o[0]))
    limit = t.constant(kind, BELOW_ONE[kind])
    return v.select(v.new(f"fcmp ogt {vector} {value}, {limit}"), vector, limit, value)


# --- parts of a number ---


def normalised(t: Translator, kind: str, value: str) -> tuple[str, str]:
    """Return the bits of a number with denormals scaled up, and where that happened."""
    v, vector, integer = t.v, vector_type(t.v, kind), INTEGER_OF[kind]
    whole = vector_type(v, integer)
    bits = t.convert(v, value, kind, integer)
    exponent = v.op("and", whole, bits, t.constant(integer, floats.EXPONENT[kind]))
    tiny = v.new(f"icmp eq {whole} {exponent}, zeroinitializer")
    scale = 1 + MANTISSA[kind]
    bias = (1 << (BITS[kind] - MANTISSA[kind] - 2)) - 1
    factor = t.constant(kind, (bias + scale) << MANTISSA[kind])
    scaled = t.convert(v, v.op("fmul", vector, value, factor), kind, integer)
    return v.select(tiny, whole, scaled, bits), tiny


def exponent_of(t: Translator, kind: str, value: str) -> str:
    """Return e with value = m * 2^e, 0.5 <= |m| < 1, as integers of the kind's width.

    0 for 0, inf and NaN.
    """
    v, integer = t.v, INTEGER_OF[kind]
    whole = vector_type(v, integer)
    bits, tiny = normalised(t, kind, value)
    field = v.op("lshr", whole, bits, t.constant(integer, MANTISSA[kind]))
    width = BITS[kind] - 1 - MANTISSA[kind]
    biased = v.op("and", whole, field, t.constant(integer, (1 << width) - 1))
    bias = (1 << (width - 1)) - 2
    offset = v.select(tiny, whole, t.constant(integer, bias + 1 + MANTISSA[kind]), t.constant(integer, bias))
    value_exponent = v.op("sub", whole, biased, offset)
    return v.select(_special(t, kind, value), whole, "zeroinitializer", value_exponent)


def _special(t: Translator, kind: str, value: str) -> str:
    """Return where a value is 0, infinite or NaN."""
    return floats.is_class(t, value, kind, 0b1001100111)


def mantissa(t: Translator, kind: str, o: list[str]) -> str:
    """Return m with S = m * 2^e, 0.5 <= |m| < 1; 0, inf and NaN as they are."""
    v, integer = t.v, INTEGER_OF[kind]
    whole = vector_type(v, integer)
    bits, _ = normalised(t, kind, o[0])
    mask = (1 << BITS[kind]) - 1 ^ floats.EXPONENT[kind]
    half = ((1 << (BITS[kind] - MANTISSA[kind] - 2)) - 2) << MANTISSA[kind]
    kept = v.op("and", whole, bits, t.constant(integer, mask))
    value = t.convert(v, v.op("or", whole, kept, t.constant(integer, half)), integer, kind)
    return v.select(_special(t, kind, o[0]), vector_type(v, kind), o[0], value)


def frexp_exponent(t: Translator, i: Instruction) -> None:
    """v_frexp_exp_*."""
    kind = t.kind(i.srcs[0])
    exponent = exponent_of(t, kind, sources(t, i)[0])
    if kind == "f64":
        exponent = t.v.cast("trunc", exponent, t.v.i64, t.v.i32)
    t.put(i.dsts[0], exponent)


def load_exponent(t: Translator, i: Instruction) -> None:
    """v_ldexp: S0 * 2^S1, rounded once."""
    v, kind = t.v, t.kind(i.dsts[0])
    value, power = operands(t, i)
    value = floats.operand(t, value, kind)
    if kind == "f64":
        floats.put(t, i, scaled_f64(t, value, power), kind)
        return
    if kind == "f16":
        value, power = floats.extend(t, value), v.cast("sext", power, v.i16, v.i32)
    # Through f64, where the scaled value is exact.
    limit = 400
    bounded = v.binary(
        "smin", v.i32, v.binary("smax", v.i32, power, v.splat("i32", str(-limit))), v.splat("i32", str(limit))
    )
    factor = power_of_two(t, bounded)
    f64 = vector_type(v, "f64")
    exact = v.op("fmul", f64, v.cast("fpext", value, v.f32, f64), factor)
    if kind == "f16":
        floats.put(t, i, floats.narrow(t, odd_f32(t, exact)), kind)
        return
    result = floats.rounded(t, "f32", f"fptrunc {f64} {exact} to {v.f32}", "fptrunc", (f64, exact))
    floats.put(t, i, result, kind)


def odd_f32(t: Translator, exact: str) -> str:
    """Return f64 lanes as f32 rounded to odd, so that narrowing further rounds as if once."""
    v, f64 = t.v, vector_type(t.v, "f64")
    near = v.cast("fptrunc", exact, f64, v.f32)
    back = v.cast("fpext", near, v.f32, f64)
    bits = v.cast("bitcast", near, v.f32, v.i32)
    inexact = v.new(f"fcmp one {f64} {back}, {exact}")
    even = v.new(f"icmp eq {v.i32} {v.op('and', v.i32, bits, v.splat('i32', '1'))}, zeroinitializer")
    outward = v.new(f"fcmp olt {f64} {v.unary('fabs', f64, back)}, {v.unary('fabs', f64, exact)}")
    step = v.select(outward, v.i32, v.splat("i32", "1"), v.splat("i32", "-1"))
    adjusted = v.op("add", v.i32, bits, step)
    chosen = v.select(v.op("and", v.mask, even, inexact), v.i32, adjusted, bits)
    return v.cast("bitcast", chosen, v.i32, v.f32)


def power_of_two(t: Translator, power: str) -> str:
    """Return 2^power as f64 for i32 lanes in -1022..1023."""
    v = t.v
    biased = v.cast("zext", v.op("add", v.i32, power, v.splat("i32", "1023")), v.i32, v.i64)
    return v.cast("bitcast", v.op("shl", v.i64, biased, v.splat("i64", "52")), v.i64, vector_type(v, "f64"))


def scaled_f64(t: Translator, value: str, power: str) -> str:
    """Return value * 2^power in f64, rounded once: all steps but the last are exact or overflow.

    Downward the steps stop 53 short of the denormals, so that no bit is lost before the last one.
    """
    v, f64 = t.v, vector_type(t.v, "f64")
    for limit, step in ((1023, 1023), (1023, 1023), (-1022, -969), (-1022, -969)):
        test = "sgt" if limit > 0 else "slt"
        far = v.new(f"icmp {test} {v.i32} {power}, {v.splat('i32', str(limit))}")
        factor = t.constant("f64", (1023 + step) << 52)
        value = v.select(far, f64, floats.binary(t, "fmul", "f64", value, factor), value)
        power = v.select(far, v.i32, v.op("sub", v.i32, power, v.splat("i32", str(step))), power)
    bounded = v.binary(
        "smin", v.i32, v.binary("smax", v.i32, power, v.splat("i32", "-1022")), v.splat("i32", "1023")
    )
    return floats.binary(t, "fmul", "f64", value, power_of_two(t, bounded))


# --- transcendental functions ---


def approximation(function: Callable[[Translator, str], str]) -> Semantics:
    """Return the semantics of a function of f32 that flushes denormals.

    F16 goes through f32 and keeps them.
    """

    def semantics(t: Translator, i: Instruction) -> None:
        kind = t.kind(i.dsts[0])
        (value,) = sources(t, i)
        if kind == "f16":
            floats.put(t, i, floats.narrow(t, function(t, floats.extend(t, value))), kind)
            return
        value = function(t, floats.zero_denormals(t, value, kind))
        floats.put(t, i, floats.zero_denormals(t, value, kind), kind)

    return semantics


def _reciprocal(t: Translator, x: str) -> str:
    return functions.reciprocal(t.v, x)


def _root(t: Translator, x: str) -> str:
    return functions.square_root(t.v, x)


def _reciprocal_root(t: Translator, x: str) -> str:
    return functions.reciprocal(t.v, functions.square_root(t.v, x))


def seed(function: Callable[[Translator, str], str]) -> Semantics:
    """v_rcp_f64, v_rsq_f64, v_sqrt_f64: hardware gives an approximation that code refines; this is exact."""

    def semantics(t: Translator, i: Instruction) -> None:
        (value,) = sources(t, i)
        floats.put(t, i, function(t, value), "f64")

    return semantics


def _reciprocal_f64(t: Translator, x: str) -> str:
    return t.v.op("fdiv", vector_type(t.v, "f64"), t.constant("f64", floats.ONE["f64"]), x)


def _root_f64(t: Translator, x: str) -> str:
    return t.v.unary("sqrt", vector_type(t.v, "f64"), x)


def sine(quarter: int) -> Callable[[Translator, str], str]:
    """Return sin or (``quarter`` 1) cos of an angle in turns; infinity and NaN give NaN."""

    def function(t: Translator, turns: str) -> str:
        v = t.v
        whole = v.unary("rint", v.f32, turns)
        part = v.op("fsub", v.f32, turns, whole)  # exact; -0.5..0.5
        quadrant = v.unary("rint", v.f32, v.op("fmul", v.f32, part, functions.constant(v, 4.0)))
        rest = v.fma(quadrant, functions.constant(v, -0.25), part)  # exact; -1/8..1/8
        value = functions.quadrant_sine(
            v, v.op("fmul", v.f32, rest, functions.constant(v, TWO_PI)), quadrant, quarter
        )
        inside = v.new(
            f"fcmp ole {v.f32} {v.unary('fabs', v.f32, turns)}, {functions.constant(v, TURN_LIMIT)}"
        )
        outside = functions.constant(v, float(quarter))
        value = v.select(inside, v.f32, value, outside)
        odd = floats.is_class(t, turns, "f32", 0b1000000111)  # NaN and infinities
        return v.select(odd, v.f32, v.op("fsub", v.f32, turns, turns), value)

    return function


def trigonometric_preparation(t: Translator, i: Instruction) -> None:
    """v_trig_preop_f64: a 53-bit slice of 2/pi, chosen by S1 and the exponent of S0, as a double."""
    v, f64 = t.v, vector_type(t.v, "f64")
    value, segment = operands(t, i)
    bits = t.convert(v, value, "f64", "i64")
    field = v.op("and", v.i64, v.op("lshr", v.i64, bits, v.splat("i64", "52")), v.splat("i64", "2047"))
    exponent = v.cast("trunc", field, v.i64, v.i32)
    shift = v.op("mul", v.i32, v.op("and", v.i32, segment, v.splat("i32", "31")), v.splat("i32", "53"))
    excess = v.op("sub", v.i32, exponent, v.splat("i32", "1077"))
    large = v.new(f"icmp sgt {v.i32} {excess}, zeroinitializer")
    shift = v.select(large, v.i32, v.op("add", v.i32, shift, excess), shift)
    number = v.cast("uitofp", _slice_of_two_over_pi(t, shift), v.i64, f64)
    scale = v.op("sub", v.i32, v.splat("i32", "-53"), shift)
    huge = v.new(f"icmp uge {v.i32} {exponent}, {v.splat('i32', '1968')}")
    scale = v.select(huge, v.i32, v.op("add", v.i32, scale, v.splat("i32", "128")), scale)
    floats.put(t, i, scaled_f64(t, number, scale), "f64")


TWO_OVER_PI_BITS = 1201  # RDNA3 ISA manual, V_TRIG_PREOP_F64


@cache
def two_over_pi() -> int:
    """Return the first TWO_OVER_PI_BITS bits of 2/pi, by Machin's formula in integers."""
    scale = 1 << (TWO_OVER_PI_BITS + 64)

    def arctangent(inverse: int) -> int:
        term = total = scale // inverse
        k = 1
        while term:
            term //= inverse * inverse
            k += 2
            total += -(term // k) if k % 4 == 3 else term // k
        return total

    pi = 16 * arctangent(5) - 4 * arctangent(239)
    return (2 * scale << TWO_OVER_PI_BITS) // pi


def _slice_of_two_over_pi(t: Translator, shift: str) -> str:
    """Return the 53 bits of 2/pi that begin ``shift`` bits behind the top, zeros beyond the end."""
    v = t.v
    words = (TWO_OVER_PI_BITS + 63) // 64 + 34
    total = 64 * words
    value = two_over_pi() << (total - TWO_OVER_PI_BITS)
    table = [value >> (total - 64 * (k + 1)) & (1 << 64) - 1 for k in range(words)]
    entries = ", ".join(f"i64 {w - (1 << 64) if w >> 63 else w}" for w in table)
    t.helpers["two_over_pi"] = (
        f"@two_over_pi = private unnamed_addr constant [{words} x i64] [{entries}], align 64"
    )
    bounded = v.binary("umin", v.i32, shift, v.splat("i32", str(64 * (words - 2))))
    index = v.op("lshr", v.i32, bounded, v.splat("i32", "6"))
    parts = []
    for k in (0, 1):
        place = v.op("add", v.i32, index, v.splat("i32", str(k)))
        pointers = v.new(f"getelementptr i64, ptr @two_over_pi, {v.i32} {place}")
        parts.append(v.gather(v.i64, pointers, v.splat("i1", "true"), 8))
    offset = v.cast("zext", v.op("and", v.i32, bounded, v.splat("i32", "63")), v.i32, v.i64)
    name = f"llvm.fshl.{v.suffix(v.i64)}"
    aligned = v.call(v.i64, name, (v.i64, parts[0]), (v.i64, parts[1]), (v.i64, offset))
    return v.op("lshr", v.i64, aligned, v.splat("i64", "11"))


def _table() -> dict[str, Semantics]:
    table: dict[str, Semantics] = {
        "v_fmamk_f32": operation(_fma),
        "v_fmaak_f32": operation(_fma),
        "v_fmamk_f16": operation(_fma),
        "v_fmaak_f16": operation(_fma),
        "v_fmac_f32": accumulate,
        "v_fmac_f16": accumulate,
        "v_mul_dx9_zero_f32": operation(multiply_dx9),
        "v_fma_dx9_zero_f32": operation(_fma_dx9),
        "v_fmac_dx9_zero_f32": accumulate_dx9,
        "v_mullit_f32": operation(_mullit),
        "v_trig_preop_f64": trigonometric_preparation,
        "v_rcp_iflag_f32": approximation(_reciprocal),
        "v_rcp_f64": seed(_reciprocal_f64),
        "v_sqrt_f64": seed(_root_f64),
        "v_rsq_f64": seed(lambda t, x: _reciprocal_f64(t, _root_f64(t, x))),
        "v_frexp_exp_i32_f32": frexp_exponent,
        "v_frexp_exp_i32_f64": frexp_exponent,
        "v_frexp_exp_i16_f16": frexp_exponent,
    }
    for which in ("id", "sc", "tc", "ma"):
        table[f"v_cube{which}_f32"] = operation(_cube(which))
    for kind in ("f16", "f32", "f64"):
        table[f"v_fma_{kind}"] = operation(_fma)
        table[f"v_add_{kind}"] = operation(_binary("fadd"))
        table[f"v_mul_{kind}"] = operation(_binary("fmul"))
        table[f"v_sub_{kind}"] = operation(_binary("fsub"))
        table[f"v_subrev_{kind}"] = operation(_binary("fsub", reverse=True))
        table[f"v_min_{kind}"] = extremes("min")
        table[f"v_max_{kind}"] = extremes("max")
        table[f"v_min3_{kind}"] = extremes("min", "min")
        table[f"v_max3_{kind}"] = extremes("max", "max")
        table[f"v_maxmin_{kind}"] = extremes("max", "min")
        table[f"v_minmax_{kind}"] = extremes("min", "max")
        table[f"v_med3_{kind}"] = median
        table[f"v_fract_{kind}"] = operation(_fraction)
        for name, llvm in (("trunc", "trunc"), ("ceil", "ceil"), ("floor", "floor"), ("rndne", "roundeven")):
            table[f"v_{name}_{kind}"] = operation(_unary(llvm))
        table[f"v_frexp_mant_{kind}"] = operation(mantissa)
        table[f"v_ldexp_{kind}"] = load_exponent
    for kind in ("f16", "f32"):
        table[f"v_rcp_{kind}"] = approximation(_reciprocal)
        table[f"v_sqrt_{kind}"] = approximation(_root)
        table[f"v_rsq_{kind}"] = approximation(_reciprocal_root)
        table[f"v_exp_{kind}"] = approximation(lambda t, x: functions.exp2(t.v, x))
        table[f"v_log_{kind}"] = approximation(lambda t, x: functions.log2(t.v, x))
        table[f"v_sin_{kind}"] = approximation(sine(0))
        table[f"v_cos_{kind}"] = approximation(sine(1))
    return table


SEMANTICS = _table()
