"""Floating point as the MODE register asks for it: denormals, rounding, clamp, omod, minimum and maximum.

NaN: a result keeps the payload of a NaN operand as the host does; the sign of a newly made NaN is the host's.
"""

from __future__ import annotations

from functools import cache

from ringfence.hardware.amd.rdna import Instruction
from ringfence.virtual.isa import jit
from ringfence.virtual.isa.rdna.mode import NEAREST, Mode
from ringfence.virtual.isa.rdna.translate import INTEGER_OF, Translator, vector_type
from ringfence.virtual.isa.rdna.unit import ALLOW_INPUT, ALLOW_OUTPUT, DX10_CLAMP, FP16_OVFL, IEEE

EXPONENT = {"f16": 0x7C00, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
SIGN = {"f16": 0x8000, "f32": 0x80000000, "f64": 0x8000000000000000}
QUIET = {"f16": 0x0200, "f32": 0x00400000, "f64": 0x0008000000000000}
ONE = {"f16": 0x3C00, "f32": 0x3F800000, "f64": 0x3FF0000000000000}
OMOD = {1: {"f16": 0x4000, "f32": 0x40000000, "f64": 0x4000000000000000},
        2: {"f16": 0x4400, "f32": 0x40800000, "f64": 0x4010000000000000},
        3: {"f16": 0x3800, "f32": 0x3F000000, "f64": 0x3FE0000000000000}}  # fmt: skip
SIGNALLING = 1  # class bit of llvm.is.fpclass
DYNAMIC = ("metadata", '!"round.dynamic"'), ("metadata", '!"fpexcept.ignore"')
LLVM_NEAREST = 1  # llvm.set.rounding: 0 toward zero, 1 nearest, 2 up, 3 down: MODE's number plus 1, mod 4


@cache
def native_half() -> bool:
    """Return whether the host computes with f16 lanes; otherwise LLVM goes through f32."""
    llvm, _, _ = jit.host()
    features = llvm.get_host_cpu_features()
    return bool(features.get("avx512fp16") or features.get("fullfp16"))


def mode_bit(t: Translator, bit: int) -> str:
    """Return a bit of the MODE register as i1, at run time."""
    register = t.mode_register()
    return t.memo(
        ("mode", register, str(bit)),
        lambda: t.s.cast("trunc", t.s.op("lshr", "i32", register, str(bit)), "i32", "i1"),
    )


def choose(t: Translator, kind: str, known: bool | None, bit: int, yes: str, no: str) -> str:
    """Return ``yes`` if a MODE flag is set, else ``no``."""
    if known is not None:
        return yes if known else no
    vector = vector_type(t.v, kind)
    return t.v.new(f"select i1 {mode_bit(t, bit)}, {vector} {yes}, {vector} {no}")


# --- denormals ---


def zero_denormals(t: Translator, value: str, kind: str) -> str:
    """Return ``value`` with denormals replaced by zeros of their sign."""
    v, integer = t.v, INTEGER_OF[kind]
    vector = vector_type(v, integer)
    bits = t.convert(v, value, kind, integer)
    exponent = v.op("and", vector, bits, t.constant(integer, EXPONENT[kind]))
    tiny = v.new(f"icmp eq {vector} {exponent}, zeroinitializer")
    zero = v.op("and", vector, bits, t.constant(integer, SIGN[kind]))
    return t.convert(v, v.select(tiny, vector, zero, bits), integer, kind)


def flushed(t: Translator, value: str, kind: str, which: int) -> str:
    """Return ``value`` with denormals flushed unless MODE keeps them; ``which``: ALLOW_INPUT or _OUTPUT."""
    allowed = t.mode.denormals(kind)
    if allowed is not None and allowed & which:
        return value
    tiny = zero_denormals(t, value, kind)
    bit = Mode.denormal_shift(kind) + which.bit_length() - 1
    return choose(t, kind, None if allowed is None else False, bit, value, tiny)


def operand(t: Translator, value: str, kind: str) -> str:
    """Return an operand as the operation sees it."""
    return flushed(t, value, kind, ALLOW_INPUT)


def sources(t: Translator, i: Instruction) -> list[str]:
    """Return all sources of a float instruction, flushed as MODE says."""
    return [operand(t, t.source(s), t.kind(s)) for s in i.srcs]


# --- arithmetic ---


def rounded(t: Translator, kind: str, plain: str, constrained: str, *operands: tuple[str, str]) -> str:
    """Return a result of ``kind``: ``plain`` if MODE rounds to nearest, else the constrained intrinsic."""
    v = t.v
    rounding = t.mode.rounding(kind)
    if rounding == NEAREST:
        return v.new(plain)
    result = vector_type(v, kind)
    suffixes = v.suffix(result)
    if constrained in ("fptrunc", "sitofp", "uitofp"):
        suffixes += f".{v.suffix(operands[0][0])}"
    _set_rounding(t, _llvm_rounding(t, kind, rounding))
    value = v.call(result, f"llvm.experimental.constrained.{constrained}.{suffixes}", *operands, *DYNAMIC)
    _set_rounding(t, str(LLVM_NEAREST))
    return value


def _llvm_rounding(t: Translator, kind: str, rounding: int | None) -> str:
    if rounding is not None:
        return str((rounding + 1) & 3)
    s = t.s
    field = s.op("lshr", "i32", t.mode_register(), str(Mode.rounding_shift(kind)))
    return s.op("and", "i32", s.op("add", "i32", field, "1"), "3")


def _set_rounding(t: Translator, value: str) -> None:
    t.s.call_void("llvm.set.rounding", ("i32", value))


def binary(t: Translator, name: str, kind: str, a: str, b: str) -> str:
    """Return fadd, fsub, fmul or fdiv of two operands, rounded by MODE."""
    if kind == "f16" and t.mode.rounding(kind) != NEAREST:
        # Both steps round the same way, so the result is that of one rounding.
        wide = binary_wide(t, name, extend(t, a), extend(t, b))
        return narrow(t, wide)
    vector = vector_type(t.v, kind)
    return rounded(t, kind, f"{name} {vector} {a}, {b}", name, (vector, a), (vector, b))


def binary_wide(t: Translator, name: str, a: str, b: str) -> str:
    """Return an f32 operation that rounds as MODE asks for f16."""
    v = t.v
    rounding = t.mode.rounding("f16")
    if rounding == NEAREST:
        return v.op(name, v.f32, a, b)
    _set_rounding(t, _llvm_rounding(t, "f16", rounding))
    full = f"llvm.experimental.constrained.{name}.{v.suffix(v.f32)}"
    value = v.call(v.f32, full, (v.f32, a), (v.f32, b), *DYNAMIC)
    _set_rounding(t, str(LLVM_NEAREST))
    return value


def fma(t: Translator, kind: str, a: str, b: str, c: str) -> str:
    """Return a * b + c, rounded once by MODE."""
    v, vector = t.v, vector_type(t.v, kind)
    if kind == "f16" and (not native_half() or t.mode.rounding(kind) != NEAREST):
        return _half_fma(t, a, b, c)
    name = f"llvm.fma.{v.suffix(vector)}"
    if t.mode.rounding(kind) == NEAREST:
        return v.call(vector, name, (vector, a), (vector, b), (vector, c))
    return rounded(t, kind, "", "fma", (vector, a), (vector, b), (vector, c))


def _half_fma(t: Translator, a: str, b: str, c: str) -> str:
    """Return an f16 fma through f32, where the product is exact.

    The sum is rounded to odd before it is narrowed to the nearest; if both steps round in one direction, the
    result is that of one rounding anyway.
    """
    v = t.v
    product, addend = v.op("fmul", v.f32, extend(t, a), extend(t, b)), extend(t, c)
    rounding = t.mode.rounding("f16")
    if rounding == NEAREST:
        return narrow(t, odd_sum(t, product, addend))
    directed = binary_wide(t, "fadd", product, addend)
    if rounding is not None:
        return narrow(t, directed)
    s = t.s
    field = s.op("and", "i32", t.mode_register(), str(3 << Mode.rounding_shift("f16")))
    nearest = s.new(f"icmp eq i32 {field}, 0")
    total = v.new(f"select i1 {nearest}, {v.f32} {odd_sum(t, product, addend)}, {v.f32} {directed}")
    return narrow(t, total)


def odd_sum(t: Translator, a: str, b: str) -> str:
    """Return a + b in f32 rounded to odd, so that rounding the result again gives what one rounding would.

    The error of the nearest sum is exact (Knuth's two-sum); if there is one and the last bit is even, the
    neighbour toward the exact sum is the odd one.
    """
    v = t.v
    total = v.op("fadd", v.f32, a, b)
    b_part = v.op("fsub", v.f32, total, a)
    a_part = v.op("fsub", v.f32, total, b_part)
    error = v.op("fadd", v.f32, v.op("fsub", v.f32, a, a_part), v.op("fsub", v.f32, b, b_part))
    bits = v.cast("bitcast", total, v.f32, v.i32)
    even = v.new(f"icmp eq {v.i32} {v.op('and', v.i32, bits, v.splat('i32', '1'))}, zeroinitializer")
    inexact = v.new(f"fcmp one {v.f32} {error}, zeroinitializer")
    # Away from zero is one more in sign-magnitude: that is where the error has the sign of the sum.
    difference = v.op("xor", v.i32, bits, v.cast("bitcast", error, v.f32, v.i32))
    outward = v.new(f"icmp sge {v.i32} {difference}, zeroinitializer")
    step = v.select(outward, v.i32, v.splat("i32", "1"), v.splat("i32", "-1"))
    adjusted = v.op("add", v.i32, bits, step)
    wanted = v.op("and", v.mask, even, inexact)
    return v.cast("bitcast", v.select(wanted, v.i32, adjusted, bits), v.i32, v.f32)


def extend(t: Translator, value: str) -> str:
    """Return f16 lanes as f32, which is exact."""
    v = t.v
    return v.cast("fpext", value, v.f16, v.f32)


def narrow(t: Translator, value: str) -> str:
    """Return f32 lanes as f16, rounded by MODE.

    Overflow gives infinity or, under FP16_OVFL, the largest number.
    """
    v = t.v
    result = rounded(t, "f16", f"fptrunc {v.f32} {value} to {v.f16}", "fptrunc", (v.f32, value))
    flag = t.mode.flag(FP16_OVFL)
    if flag is False:
        return result
    return choose(t, "f16", flag, FP16_OVFL, _saturate_half(t, value, result), result)


def _saturate_half(t: Translator, value: str, result: str) -> str:
    """Return the largest f16 of the same sign where a finite value became infinite."""
    v = t.v
    bits = t.convert(v, result, "f16", "i16")
    magnitude = v.op("and", v.i16, bits, t.constant("i16", 0x7FFF))
    infinite = v.new(f"icmp eq {v.i16} {magnitude}, {t.constant('i16', 0x7C00)}")
    finite = v.new(f"fcmp one {v.f32} {v.unary('fabs', v.f32, value)}, {t.constant('f32', EXPONENT['f32'])}")
    largest = v.op(
        "or", v.i16, v.op("and", v.i16, bits, t.constant("i16", 0x8000)), t.constant("i16", 0x7BFF)
    )
    chosen = v.select(v.op("and", v.mask, infinite, finite), v.i16, largest, bits)
    return t.convert(v, chosen, "i16", "f16")


# --- results ---


def result(t: Translator, i: Instruction, value: str, kind: str) -> str:
    """Return ``value`` after omod, clamp and the flush of denormal results."""
    omod = int(i.fields.get("omod", 0))
    if omod:
        value = _output_modifier(t, value, kind, omod)
    if int(i.fields.get("clamp", 0)):
        value = clamp(t, value, kind)
    return flushed(t, value, kind, ALLOW_OUTPUT)


def _output_modifier(t: Translator, value: str, kind: str, omod: int) -> str:
    """Return ``value`` times 2, 4 or 0.5, if denormal results are flushed and IEEE mode is off."""
    denormals, ieee = t.mode.denormals(kind), t.mode.flag(IEEE)
    if ieee or (denormals is not None and denormals & ALLOW_OUTPUT):
        return value
    vector = vector_type(t.v, kind)
    scaled = t.v.op("fmul", vector, value, t.constant(kind, OMOD[omod][kind]))
    scaled = choose(t, kind, ieee, IEEE, value, scaled)
    bit = Mode.denormal_shift(kind) + 1
    return choose(t, kind, None if denormals is None else False, bit, value, scaled)


def clamp(t: Translator, value: str, kind: str) -> str:
    """Return ``value`` clamped to 0..1; NaN gives 0 under DX10_CLAMP and stays otherwise."""
    v, vector = t.v, vector_type(t.v, kind)
    one = t.constant(kind, ONE[kind])
    positive = v.new(f"fcmp ogt {vector} {value}, zeroinitializer")
    low = v.select(positive, vector, value, "zeroinitializer")
    below = v.new(f"fcmp olt {vector} {low}, {one}")
    clamped = v.select(below, vector, low, one)
    flag = t.mode.flag(DX10_CLAMP)
    if flag:
        return clamped
    nan = v.new(f"fcmp uno {vector} {value}, {value}")
    return choose(t, kind, flag, DX10_CLAMP, clamped, v.select(nan, vector, value, clamped))


def put(t: Translator, i: Instruction, value: str, kind: str) -> None:
    """Write a float result to the destination."""
    t.put(i.dsts[0], result(t, i, value, kind), kind)


# --- minimum and maximum ---


def is_class(t: Translator, value: str, kind: str, classes: int) -> str:
    """Return where a value is in one of the ``classes`` (the bits of v_cmp_class, which are LLVM's)."""
    v, vector = t.v, vector_type(t.v, kind)
    return v.call(v.mask, f"llvm.is.fpclass.{v.suffix(vector)}", (vector, value), ("i32", str(classes)))


def quiet(t: Translator, value: str, kind: str) -> str:
    """Return a NaN with its quiet bit set."""
    integer = INTEGER_OF[kind]
    vector = vector_type(t.v, integer)
    bits = t.v.op("or", vector, t.convert(t.v, value, kind, integer), t.constant(integer, QUIET[kind]))
    return t.convert(t.v, bits, integer, kind)


def extreme(
    t: Translator, which: str, kind: str, a: str, b: str, *, constant: frozenset[str] = frozenset()
) -> str:
    """Return the minimum or maximum (``which``: min, max): a number beats a NaN, -0 is less than +0.

    In IEEE mode a signalling NaN operand gives that NaN quieted. ``constant`` names operands that are no NaN.
    """
    v, vector = t.v, vector_type(t.v, kind)
    plain = v.binary("minimumnum" if which == "min" else "maximumnum", vector, a, b)
    flag = t.mode.flag(IEEE)
    if flag is False:
        return plain
    value = plain
    for operand_value in dict.fromkeys((b, a)):
        if operand_value not in constant:
            loud = is_class(t, operand_value, kind, SIGNALLING)
            value = v.select(loud, vector, quiet(t, operand_value, kind), value)
    return choose(t, kind, flag, IEEE, value, plain)
