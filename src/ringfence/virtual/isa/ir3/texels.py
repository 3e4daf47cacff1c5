"""Texels as dwords: what a format's components become in registers, and back."""

from __future__ import annotations

from collections.abc import Callable

from ringfence.hardware.adreno.descriptors import ColorSwap, FormatInfo
from ringfence.hardware.adreno.ir3 import Instruction
from ringfence.virtual.isa import functions
from ringfence.virtual.isa.ir3.alu import ROUND_EVEN, ROUND_ZERO, narrow
from ringfence.virtual.isa.ir3.code import refuse
from ringfence.virtual.isa.ir3.unit import ImageSpec
from ringfence.virtual.isa.simt import Emitter

ZERO, ONE = 4, 5  # swizzle values beyond the four components
ALPHA = 3

_MEMORY_ORDER = {
    ColorSwap.WZYX: (0, 1, 2, 3),
    ColorSwap.WXYZ: (2, 1, 0, 3),
    ColorSwap.ZYXW: (3, 0, 1, 2),
    ColorSwap.XYZW: (3, 2, 1, 0),
}
"""Which component lies where, from the lowest bits up: the names give them from the highest bits down."""

Value = tuple[str, bool]
"""A component: f32 (true) or an i32 that holds the extended integer (false)."""


def memory_positions(i: Instruction, spec: ImageSpec, info: FormatInfo) -> tuple[int, ...]:
    """Return for each component of a format its place in memory."""
    swap = ColorSwap(spec.swap)
    order = _MEMORY_ORDER[swap]
    if swap == ColorSwap.WZYX:
        return order[: info.components]
    if info.components != 4 or [info.bits[c] for c in order] != list(info.bits):
        raise refuse(i, f"what colour swap {swap.name} does to this image's format is not known")
    return tuple(order.index(component) for component in range(4))


def decode(e: Emitter, info: FormatInfo, words: list[str], position: int) -> Value:
    """Return the component at place ``position`` of a texel."""
    low, bits = sum(info.bits[:position]), info.bits[position]
    word = words[low // 32]
    if bits < 32:
        signed = info.kind in ("sint", "snorm")
        up = 32 - bits - low % 32
        word = e.op("shl", e.i32, word, e.splat("i32", str(up))) if up else word
        word = e.op("ashr" if signed else "lshr", e.i32, word, e.splat("i32", str(32 - bits)))
    if info.kind in ("uint", "sint"):
        return word, False
    if info.kind == "float":
        return _decode_float(e, word, bits), True
    return _decode_normalised(e, word, bits, info.kind == "snorm"), True


def _decode_float(e: Emitter, word: str, bits: int) -> str:
    if bits == 32:
        return e.cast("bitcast", word, e.i32, e.f32)
    if bits < 16:  # unsigned floats of 11 and 10 bits are halves without their low mantissa bits and sign
        word = e.op("shl", e.i32, word, e.splat("i32", str(15 - bits)))
    half = e.cast("bitcast", e.cast("trunc", word, e.i32, e.i16), e.i16, e.f16)
    return e.cast("fpext", half, e.f16, e.f32)


def _decode_normalised(e: Emitter, word: str, bits: int, signed: bool) -> str:
    value = e.cast("sitofp" if signed else "uitofp", word, e.i32, e.f32)
    value = e.op("fdiv", e.f32, value, functions.constant(e, _scale(bits, signed)))
    return e.binary("maxnum", e.f32, value, functions.constant(e, -1.0)) if signed else value


def _scale(bits: int, signed: bool) -> float:
    return 2.0 ** (bits - 1) - 1 if signed else 2.0**bits - 1


def encode(e: Emitter, info: FormatInfo, value: str, position: int) -> str:
    """Return the bits (i32, not masked) of an f32 component of a float or normalised format."""
    bits = info.bits[position]
    if info.kind == "float":
        return _encode_float(e, value, bits)
    return _encode_normalised(e, value, bits, info.kind == "snorm")


def _encode_normalised(e: Emitter, value: str, bits: int, signed: bool) -> str:
    """Return the nearest integer, NaN gives 0."""
    low = e.binary("maxnum", e.f32, value, functions.constant(e, -1.0 if signed else 0.0))
    clamped = e.binary("minnum", e.f32, low, functions.constant(e, 1.0))
    scale = functions.constant(e, _scale(bits, signed))
    scaled = e.unary("roundeven", e.f32, e.op("fmul", e.f32, clamped, scale))
    name = f"llvm.fpto{'s' if signed else 'u'}i.sat.{e.suffix(e.i32)}.{e.suffix(e.f32)}"
    number = e.call(e.i32, name, (e.f32, scaled))
    if not signed:
        return number
    number = e.binary("smax", e.i32, number, e.splat("i32", str(1 - (1 << bits - 1))))
    return e.select(e.new(f"fcmp uno {e.f32} {value}, {value}"), e.i32, e.splat("i32", "0"), number)


def _encode_float(e: Emitter, value: str, bits: int) -> str:
    if bits == 32:
        return e.cast("bitcast", value, e.f32, e.i32)
    if bits == 16:
        half = e.cast("bitcast", narrow(e, value, ROUND_EVEN), e.f16, e.i16)
        return e.cast("zext", half, e.i16, e.i32)
    # Unsigned floats have no negative numbers; their NaN keeps a set mantissa bit. Excess bits are cut off.
    clamped = e.binary("maxnum", e.f32, value, functions.constant(e, 0.0))
    half = e.cast("bitcast", narrow(e, clamped, ROUND_ZERO), e.f16, e.i16)
    word = e.op("lshr", e.i32, e.cast("zext", half, e.i16, e.i32), e.splat("i32", str(15 - bits)))
    nan = e.splat("i32", str(0x7E00 >> 15 - bits))
    return e.select(e.new(f"fcmp uno {e.f32} {value}, {value}"), e.i32, nan, word)


def pack(e: Emitter, info: FormatInfo, component: Callable[[int], str]) -> list[str]:
    """Return the dwords of a texel from the bits (i32) of the component at each place."""
    words: list[str] = ["zeroinitializer"] * max(1, info.texel_bytes // 4)
    for position, bits in enumerate(info.bits):
        value, low = component(position), sum(info.bits[:position])
        if bits < 32:
            value = e.op("and", e.i32, value, e.splat("i32", str((1 << bits) - 1)))
            value = e.op("shl", e.i32, value, e.splat("i32", str(low % 32))) if low % 32 else value
            value = e.op("or", e.i32, words[low // 32], value)
        words[low // 32] = value
    return words


def default(e: Emitter, info: FormatInfo, *, one: bool) -> Value:
    """Return the constant 0 or 1 in the kind of a format."""
    if info.kind in ("uint", "sint"):
        return e.splat("i32", "1" if one else "0"), False
    return functions.constant(e, 1.0 if one else 0.0), True
