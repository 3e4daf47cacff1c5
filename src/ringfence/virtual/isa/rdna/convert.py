"""Semantics of conversions between number formats, and of packing."""

from __future__ import annotations

from collections.abc import Callable

from ringfence.hardware.amd.rdna import Instruction
from ringfence.virtual.isa import functions
from ringfence.virtual.isa.rdna import floats
from ringfence.virtual.isa.rdna.integer import byte, saturate
from ringfence.virtual.isa.rdna.operands import operands
from ringfence.virtual.isa.rdna.real import sources
from ringfence.virtual.isa.rdna.translate import Semantics, Translator, vector_type
from ringfence.virtual.isa.rdna.unit import ALLOW_OUTPUT
from ringfence.virtual.isa.simt import Emitter


def to_integer(v: Emitter, value: str, source: str, target: str, is_signed: bool) -> str:
    """Return a float truncated to an integer: saturated, NaN gives 0."""
    if source == v.f16:
        value, source = v.cast("fpext", value, v.f16, v.f32), v.f32
    wide = functions.saturated(v, value, source, signed=is_signed)
    return wide if target == v.i32 else saturate(v, wide, v.i32, target, is_signed)


def float_to_integer(is_signed: bool, prepare: Callable[[Translator, str], str] | None = None) -> Semantics:
    """v_cvt_{i,u}*_f*: truncate; ``prepare`` rounds before."""

    def semantics(t: Translator, i: Instruction) -> None:
        source, target = t.kind(i.srcs[0]), t.kind(i.dsts[0])
        (value,) = sources(t, i)
        if prepare is not None:
            value = prepare(t, value)
        t.put(
            i.dsts[0], to_integer(t.v, value, vector_type(t.v, source), vector_type(t.v, target), is_signed)
        )

    return semantics


def _nearest(t: Translator, value: str) -> str:
    v = t.v
    return v.unary("floor", v.f32, v.op("fadd", v.f32, value, functions.constant(v, 0.5)))


def _floor(t: Translator, value: str) -> str:
    return t.v.unary("floor", t.v.f32, value)


def integer_to_float(is_signed: bool) -> Semantics:
    """v_cvt_f*_{i,u}*: rounded by MODE; f16 goes through f32, which is exact."""

    def semantics(t: Translator, i: Instruction) -> None:
        v, kind = t.v, t.kind(i.dsts[0])
        (value,) = operands(t, i)
        source, how = vector_type(v, t.kind(i.srcs[0])), "sitofp" if is_signed else "uitofp"
        if kind == "f16":
            result = floats.narrow(t, v.cast(how, value, source, v.f32))
        else:
            target = vector_type(v, kind)
            result = floats.rounded(t, kind, f"{how} {source} {value} to {target}", how, (source, value))
        floats.put(t, i, result, kind)

    return semantics


def half_to_float(t: Translator, i: Instruction) -> None:
    (value,) = sources(t, i)
    floats.put(t, i, floats.extend(t, value), "f32")


def float_to_half(t: Translator, i: Instruction) -> None:
    (value,) = sources(t, i)
    floats.put(t, i, floats.narrow(t, value), "f16")


def double_to_float(t: Translator, i: Instruction) -> None:
    v, f64 = t.v, vector_type(t.v, "f64")
    (value,) = sources(t, i)
    floats.put(
        t, i, floats.rounded(t, "f32", f"fptrunc {f64} {value} to {v.f32}", "fptrunc", (f64, value)), "f32"
    )


def float_to_double(t: Translator, i: Instruction) -> None:
    (value,) = sources(t, i)
    floats.put(t, i, t.v.cast("fpext", value, t.v.f32, vector_type(t.v, "f64")), "f64")


def nibble_offset(t: Translator, i: Instruction) -> None:
    """v_cvt_off_f32_i4: the signed low 4 bits / 16."""
    v = t.v
    (value,) = operands(t, i)
    place = v.splat("i32", "28")
    nibble = v.op("ashr", v.i32, v.op("shl", v.i32, value, place), place)
    scaled = v.op("fmul", v.f32, v.cast("sitofp", nibble, v.i32, v.f32), functions.constant(v, 1 / 16))
    floats.put(t, i, scaled, "f32")


def unsigned_byte(number: int) -> Semantics:
    def semantics(t: Translator, i: Instruction) -> None:
        (value,) = operands(t, i)
        floats.put(t, i, t.v.cast("uitofp", byte(t.v, value, number), t.v.i32, t.v.f32), "f32")

    return semantics


def sign_extend(t: Translator, i: Instruction) -> None:
    (value,) = operands(t, i)
    t.put(i.dsts[0], t.v.cast("sext", value, t.v.i16, t.v.i32))


# --- pairs ---


def pack(v: Emitter, low: str, high: str) -> str:
    """Return {high, low} of i32 lanes whose upper halves may be anything."""
    kept = v.op("and", v.i32, low, v.splat("i32", "65535"))
    return v.op("or", v.i32, kept, v.op("shl", v.i32, high, v.splat("i32", "16")))


def pack_halves(t: Translator, low: str, high: str, kind: str) -> str:
    """Return {high, low} of two 16-bit vectors."""
    v = t.v
    parts = [v.cast("zext", t.convert(v, x, kind, "i16"), v.i16, v.i32) for x in (low, high)]
    return v.op("or", v.i32, parts[0], v.op("shl", v.i32, parts[1], v.splat("i32", "16")))


def normalised_pair(is_signed: bool) -> Semantics:
    """v_cvt_pk_norm_*: S * 32767 or 65535, to nearest even, limited to the range; NaN gives 0."""

    def semantics(t: Translator, i: Instruction) -> None:
        parts = [_normalised(t, x, t.kind(i.srcs[0]), is_signed) for x in sources(t, i)]
        t.put(i.dsts[0], pack(t.v, *parts))

    return semantics


def _normalised(t: Translator, value: str, kind: str, is_signed: bool) -> str:
    v = t.v
    if kind == "f16":
        value = floats.extend(t, value)
    scale = 32767.0 if is_signed else 65535.0
    scaled = v.unary("roundeven", v.f32, v.op("fmul", v.f32, value, functions.constant(v, scale)))
    low = functions.constant(v, -scale if is_signed else 0.0)
    limited = v.binary("minnum", v.f32, v.binary("maxnum", v.f32, scaled, low), functions.constant(v, scale))
    nan = v.new(f"fcmp uno {v.f32} {value}, {value}")
    integer = to_integer(v, limited, v.f32, v.i32, True)
    return v.select(nan, v.i32, "zeroinitializer", integer)


def normalised_half(is_signed: bool) -> Semantics:
    """v_cvt_norm_i16_f16, v_cvt_norm_u16_f16."""

    def semantics(t: Translator, i: Instruction) -> None:
        (value,) = sources(t, i)
        t.put(i.dsts[0], t.v.cast("trunc", _normalised(t, value, "f16", is_signed), t.v.i32, t.v.i16))

    return semantics


def integer_pair(is_signed: bool) -> Semantics:
    """v_cvt_pk_i16_f32, v_cvt_pk_u16_f32: truncate and saturate each half."""

    def semantics(t: Translator, i: Instruction) -> None:
        v = t.v
        parts = [to_integer(v, x, v.f32, v.i16, is_signed) for x in sources(t, i)]
        t.put(i.dsts[0], pack_halves(t, parts[0], parts[1], "i16"))

    return semantics


def narrowed_pair(is_signed: bool) -> Semantics:
    """v_cvt_pk_i16_i32, v_cvt_pk_u16_u32: saturate each half."""

    def semantics(t: Translator, i: Instruction) -> None:
        v = t.v
        parts = [saturate(v, x, v.i32, v.i16, is_signed) for x in operands(t, i)]
        t.put(i.dsts[0], pack_halves(t, parts[0], parts[1], "i16"))

    return semantics


def half_pair(t: Translator, i: Instruction) -> None:
    """v_cvt_pk_rtz_f16_f32: toward zero, so overflow gives the largest number."""
    parts = [floats.flushed(t, _toward_zero(t, x), "f16", ALLOW_OUTPUT) for x in sources(t, i)]
    t.put(i.dsts[0], pack_halves(t, parts[0], parts[1], "f16"))


def _toward_zero(t: Translator, value: str) -> str:
    """Return f16 of f32, truncated: the nearest one, or one step nearer to zero where that is too far."""
    v = t.v
    nearest = v.cast("fptrunc", value, v.f32, v.f16)
    back = v.cast("fpext", nearest, v.f16, v.f32)
    far = v.new(f"fcmp ogt {v.f32} {v.unary('fabs', v.f32, back)}, {v.unary('fabs', v.f32, value)}")
    bits = v.cast("bitcast", nearest, v.f16, v.i16)
    nearer = v.op("sub", v.i16, bits, v.splat("i16", "1"))
    return v.cast("bitcast", v.select(far, v.i16, nearer, bits), v.i16, v.f16)


def byte_insert(t: Translator, i: Instruction) -> None:
    """v_cvt_pk_u8_f32: S2 with byte S1[1:0] replaced by S0 truncated and saturated."""
    v = t.v
    value, place, old = operands(t, i)
    value = floats.operand(t, value, "f32")
    integer = v.cast("zext", to_integer(v, value, v.f32, v.i8, False), v.i8, v.i32)
    shift = v.op("shl", v.i32, v.op("and", v.i32, place, v.splat("i32", "3")), v.splat("i32", "3"))
    mask = v.op("shl", v.i32, v.splat("i32", "255"), shift)
    kept = v.op("and", v.i32, old, v.op("xor", v.i32, mask, v.splat("i32", "-1")))
    t.put(i.dsts[0], v.op("or", v.i32, kept, v.op("shl", v.i32, integer, shift)))


def pack_numbers(t: Translator, i: Instruction) -> None:
    """v_pack_b32_f16: {S1, S0}, signalling NaNs quieted and denormals flushed as MODE says."""
    parts = [_canonical_half(t, x) for x in sources(t, i)]
    t.put(i.dsts[0], pack_halves(t, parts[0], parts[1], "f16"))


def _canonical_half(t: Translator, value: str) -> str:
    loud = floats.is_class(t, value, "f16", floats.SIGNALLING)
    quieted = t.v.select(loud, t.v.f16, floats.quiet(t, value, "f16"), value)
    return floats.flushed(t, quieted, "f16", ALLOW_OUTPUT)


def _table() -> dict[str, Semantics]:
    table: dict[str, Semantics] = {
        "v_cvt_nearest_i32_f32": float_to_integer(True, _nearest),
        "v_cvt_floor_i32_f32": float_to_integer(True, _floor),
        "v_cvt_f32_f16": half_to_float,
        "v_cvt_f16_f32": float_to_half,
        "v_cvt_f32_f64": double_to_float,
        "v_cvt_f64_f32": float_to_double,
        "v_cvt_off_f32_i4": nibble_offset,
        "v_cvt_i32_i16": sign_extend,
        "v_cvt_pk_rtz_f16_f32": half_pair,
        "v_cvt_pk_u8_f32": byte_insert,
        "v_pack_b32_f16": pack_numbers,
        "v_cvt_pk_i16_f32": integer_pair(True),
        "v_cvt_pk_u16_f32": integer_pair(False),
        "v_cvt_pk_i16_i32": narrowed_pair(True),
        "v_cvt_pk_u16_u32": narrowed_pair(False),
    }
    for sign in ("i", "u"):
        is_signed = sign == "i"
        table[f"v_cvt_norm_{sign}16_f16"] = normalised_half(is_signed)
        for kind in ("f16", "f32"):
            table[f"v_cvt_pk_norm_{sign}16_{kind}"] = normalised_pair(is_signed)
        for integer, real in (("32", "f32"), ("32", "f64"), ("16", "f16")):
            table[f"v_cvt_{sign}{integer}_{real}"] = float_to_integer(is_signed)
            table[f"v_cvt_{real}_{sign}{integer}"] = integer_to_float(is_signed)
    for number in range(4):
        table[f"v_cvt_f32_ubyte{number}"] = unsigned_byte(number)
    return table


SEMANTICS = _table()
