"""Semantics of integer and bitwise vector instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringfence.hardware.amd.rdna import Instruction
from ringfence.virtual.isa.rdna.operands import operands
from ringfence.virtual.isa.rdna.translate import Semantics, Translator, vector_type
from ringfence.virtual.isa.simt import Emitter

Compute = Callable[[Emitter, str, list[str]], str]  # (emitter, vector type, operands) -> value


def _width(vector: str) -> int:
    return int(vector.rsplit("i", 1)[1].rstrip(">"))


def _constant(v: Emitter, vector: str, value: int) -> str:
    return v.splat(f"i{_width(vector)}", str(value))


def resize(v: Emitter, value: str, source: str, target: str) -> str:
    """Return an unsigned value in another width."""
    if source == target:
        return value
    return v.cast("trunc" if _width(source) > _width(target) else "zext", value, source, target)


def operation(compute: Compute, *, saturating: str = "") -> Semantics:
    """Return the semantics of D = compute(sources) in the width of D; narrower or wider sources are resized.

    ``saturating`` is the LLVM operation that the clamp bit selects.
    """

    def semantics(t: Translator, i: Instruction) -> None:
        v = t.v
        vector = vector_type(v, t.kind(i.dsts[0]))
        values = [
            resize(v, value, vector_type(v, t.kind(s)), vector)
            for value, s in zip(operands(t, i), i.srcs, strict=True)
        ]
        if int(i.fields.get("clamp", 0)) and saturating:
            value = v.binary(saturating, vector, *_ordered(i, values))
        else:
            value = compute(v, vector, values)
        t.put(i.dsts[0], value)

    return semantics


def _ordered(i: Instruction, values: list[str]) -> list[str]:
    return values[::-1] if "subrev" in i.name else values


def _binary(name: str) -> Compute:
    return lambda v, kind, o: v.op(name, kind, o[0], o[1])


def _reversed(name: str) -> Compute:
    return lambda v, kind, o: v.op(name, kind, o[1], o[0])


def _intrinsic(name: str) -> Compute:
    return lambda v, kind, o: v.binary(name, kind, o[0], o[1])


def _not(v: Emitter, kind: str, value: str) -> str:
    return v.op("xor", kind, value, _constant(v, kind, -1))


def shift(v: Emitter, name: str, kind: str, value: str, count: str) -> str:
    """Return a shift by the count modulo the width."""
    return v.op(name, kind, value, v.op("and", kind, count, _constant(v, kind, _width(kind) - 1)))


def _shift_reversed(name: str) -> Compute:
    """Return a shift whose count is S0."""
    return lambda v, kind, o: shift(v, name, kind, o[1], o[0])


def _three(name: str) -> Compute:
    return lambda v, kind, o: v.binary(name, kind, v.binary(name, kind, o[0], o[1]), o[2])


def _median(sign: str) -> Compute:
    def compute(v: Emitter, kind: str, o: list[str]) -> str:
        low = v.binary(f"{sign}min", kind, o[0], o[1])
        high = v.binary(f"{sign}max", kind, o[0], o[1])
        return v.binary(f"{sign}max", kind, low, v.binary(f"{sign}min", kind, high, o[2]))

    return compute


def _nested(inner: str, outer: str) -> Compute:
    return lambda v, kind, o: v.binary(outer, kind, v.binary(inner, kind, o[0], o[1]), o[2])


def _chain(first: str, second: str) -> Compute:
    """Return (S0 first S1) second S2."""
    return lambda v, kind, o: v.op(second, kind, v.op(first, kind, o[0], o[1]), o[2])


def _shift_then(second: str) -> Compute:
    """Return (S0 << S1) second S2."""
    return lambda v, kind, o: v.op(second, kind, shift(v, "shl", kind, o[0], o[1]), o[2])


def _add_shift(v: Emitter, kind: str, o: list[str]) -> str:
    return shift(v, "shl", kind, v.op("add", kind, o[0], o[1]), o[2])


def _first_bit(name: str, is_signed: bool = False) -> Compute:
    """Return the count of zeros (ctlz, cttz), -1 if all bits are.

    ``is_signed``: up to the first non-sign bit.
    """

    def compute(v: Emitter, kind: str, o: list[str]) -> str:
        value = o[0]
        if is_signed:
            value = v.op("xor", kind, value, v.op("ashr", kind, value, _constant(v, kind, 31)))
        count = v.call(kind, f"llvm.{name}.{v.suffix(kind)}", (kind, value), ("i1", "false"))
        none = v.new(f"icmp eq {kind} {value}, zeroinitializer")
        return v.select(none, kind, _constant(v, kind, -1), count)

    return compute


def _extract(name: str) -> Compute:
    """Return S2[4:0] bits of S0 from bit S1[4:0], extended by ``name`` (lshr, ashr)."""

    def compute(v: Emitter, kind: str, o: list[str]) -> str:
        shifted = shift(v, name, kind, o[0], o[1])
        width = v.op("and", kind, o[2], _constant(v, kind, 31))
        spare = v.op("and", kind, v.op("sub", kind, _constant(v, kind, 32), width), _constant(v, kind, 31))
        field = v.op(name, kind, v.op("shl", kind, shifted, spare), spare)
        return v.select(v.new(f"icmp eq {kind} {width}, zeroinitializer"), kind, "zeroinitializer", field)

    return compute


def _insert(v: Emitter, kind: str, o: list[str]) -> str:
    """v_bfi: (S0 & S1) | (~S0 & S2)."""
    return v.op("or", kind, v.op("and", kind, o[0], o[1]), v.op("and", kind, _not(v, kind, o[0]), o[2]))


def _field_mask(v: Emitter, kind: str, o: list[str]) -> str:
    ones = v.op("sub", kind, shift(v, "shl", kind, _constant(v, kind, 1), o[0]), _constant(v, kind, 1))
    return shift(v, "shl", kind, ones, o[1])


def _align(scale: int) -> Compute:
    """Return the low 32 bits of {S0, S1} >> count bits (scale 1) or bytes (scale 8)."""

    def compute(v: Emitter, kind: str, o: list[str]) -> str:
        count = v.op("and", kind, o[2], _constant(v, kind, 31 if scale == 1 else 3))
        if scale == 8:
            count = v.op("shl", kind, count, _constant(v, kind, 3))
        return v.call(kind, f"llvm.fshr.{v.suffix(kind)}", (kind, o[0]), (kind, o[1]), (kind, count))

    return compute


# --- products ---


def low24(v: Emitter, value: str, is_signed: bool) -> str:
    """Return the low 24 bits of i32 lanes, extended."""
    eight = v.splat("i32", "8")
    return v.op("ashr" if is_signed else "lshr", v.i32, v.op("shl", v.i32, value, eight), eight)


def wide_product(v: Emitter, a: str, b: str, is_signed: bool) -> str:
    """Return the i64 product of i32 lanes."""
    extend = "sext" if is_signed else "zext"
    return v.op("mul", v.i64, v.cast(extend, a, v.i32, v.i64), v.cast(extend, b, v.i32, v.i64))


def _high(v: Emitter, product: str) -> str:
    return v.cast("trunc", v.op("lshr", v.i64, product, v.splat("i64", "32")), v.i64, v.i32)


def _multiply_high(is_signed: bool) -> Compute:
    return lambda v, kind, o: _high(v, wide_product(v, o[0], o[1], is_signed))


def multiply_24(is_signed: bool, *, high: bool = False, add: bool = False) -> Semantics:
    """v_mul(_hi)_*24, v_mad_*24: products of 24-bit numbers; clamp saturates the low 32 bits."""

    def semantics(t: Translator, i: Instruction) -> None:
        v, values = t.v, operands(t, i)
        a, b = (low24(v, value, is_signed) for value in values[:2])
        clamped = bool(int(i.fields["clamp"]))
        if high:
            value = _high(v, wide_product(v, a, b, is_signed))
        elif clamped:
            total = wide_product(v, a, b, is_signed)
            if add:
                total = v.op(
                    "add", v.i64, total, v.cast("sext" if is_signed else "zext", values[2], v.i32, v.i64)
                )
            value = saturate(v, total, v.i64, v.i32, is_signed)
        else:
            value = v.op("mul", v.i32, a, b)
            if add:
                value = v.op("add", v.i32, value, values[2])
        t.put(i.dsts[0], value)

    return semantics


def saturate(v: Emitter, value: str, source: str, target: str, is_signed: bool) -> str:
    """Return a value of a wide type limited to the range of a narrow one."""
    bits = _width(target)
    if is_signed:
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        value = v.binary("smax", source, value, _constant(v, source, low))
        value = v.binary("smin", source, value, _constant(v, source, high))
    else:
        value = v.binary("umin", source, value, _constant(v, source, (1 << bits) - 1))
    return v.cast("trunc", value, source, target)


def multiply_add_16(is_signed: bool) -> Semantics:
    """v_mad_u16, v_mad_i16: 16-bit a * b + c; clamp saturates."""

    def semantics(t: Translator, i: Instruction) -> None:
        v, extend = t.v, "sext" if is_signed else "zext"
        a, b, c = (v.cast(extend, value, v.i16, v.i32) for value in operands(t, i))
        product = v.op("mul", v.i32, a, b)
        if int(i.fields["clamp"]):
            if is_signed:
                value = saturate(v, v.op("add", v.i32, product, c), v.i32, v.i16, True)
            else:
                value = saturate(v, v.binary("uadd.sat", v.i32, product, c), v.i32, v.i16, False)
        else:
            value = v.cast("trunc", v.op("add", v.i32, product, c), v.i32, v.i16)
        t.put(i.dsts[0], value)

    return semantics


def multiply_add_mixed(is_signed: bool) -> Semantics:
    """v_mad_u32_u16, v_mad_i32_i16: 16-bit product + 32-bit c; clamp saturates."""

    def semantics(t: Translator, i: Instruction) -> None:
        v, extend = t.v, "sext" if is_signed else "zext"
        a, b, c = operands(t, i)
        product = v.op("mul", v.i32, *(v.cast(extend, value, v.i16, v.i32) for value in (a, b)))
        if int(i.fields["clamp"]):
            value = v.binary("sadd.sat" if is_signed else "uadd.sat", v.i32, product, c)
        else:
            value = v.op("add", v.i32, product, c)
        t.put(i.dsts[0], value)

    return semantics


def multiply_add_64(is_signed: bool) -> Semantics:
    """v_mad_u64_u32, v_mad_i64_i32: D64 = S0 * S1 + S2; the mask gets the overflow."""

    def semantics(t: Translator, i: Instruction) -> None:
        v = t.v
        a, b, c = operands(t, i)
        product = wide_product(v, a, b, is_signed)
        total = v.op("add", v.i64, product, c)
        if is_signed:
            same = v.op("xor", v.i64, product, total)
            flipped = v.op("and", v.i64, same, v.op("xor", v.i64, c, total))
            overflow = v.new(f"icmp slt {v.i64} {flipped}, zeroinitializer")
        else:
            overflow = v.new(f"icmp ult {v.i64} {total}, {product}")
        if int(i.fields["clamp"]):
            total = _clamped_sum(v, total, product, overflow, is_signed)
        t.put(i.dsts[0], total)
        t.put_mask(i.dsts[1], overflow)

    return semantics


def _clamped_sum(v: Emitter, total: str, product: str, overflow: str, is_signed: bool) -> str:
    limit = v.splat("i64", "-1")
    if is_signed:
        sign = v.op("ashr", v.i64, product, v.splat("i64", "63"))
        limit = v.op("xor", v.i64, sign, v.splat("i64", str((1 << 63) - 1)))
    return v.select(overflow, v.i64, limit, total)


# --- carries ---


def carry(subtract: bool, *, reverse: bool = False) -> Semantics:
    """v_add_co(_ci), v_sub_co(_ci), v_subrev_co(_ci): the mask is carry or borrow, in and out.

    Clamp saturates.
    """

    def semantics(t: Translator, i: Instruction) -> None:
        v, values = t.v, operands(t, i)
        a, b = values[1::-1] if reverse else values[:2]
        name = "sub" if subtract else "add"
        total = v.op(name, v.i32, a, b)
        out = v.new(f"icmp ult {v.i32} {a}, {b}" if subtract else f"icmp ult {v.i32} {total}, {a}")
        if len(values) == 3:
            step = v.cast("zext", values[2], v.mask, v.i32)
            before, total = total, v.op(name, v.i32, total, step)
            wrapped = (
                f"icmp ult {v.i32} {before}, {step}" if subtract else f"icmp ult {v.i32} {total}, {before}"
            )
            out = v.op("or", v.mask, out, v.new(wrapped))
        if int(i.fields["clamp"]):
            total = v.select(out, v.i32, "zeroinitializer" if subtract else v.splat("i32", "-1"), total)
        t.put(i.dsts[0], total)
        t.put_mask(i.dsts[1], out)

    return semantics


def select(t: Translator, i: Instruction) -> None:
    """v_cndmask: mask ? S1 : S0."""
    no, yes, mask = operands(t, i)
    t.put(i.dsts[0], t.v.select(mask, vector_type(t.v, t.kind(i.dsts[0])), yes, no))


# --- bytes ---


def byte(v: Emitter, word: str, number: int) -> str:
    """Return an unsigned byte of i32 lanes as i32."""
    shifted = v.op("lshr", v.i32, word, v.splat("i32", str(8 * number))) if number else word
    return shifted if number == 3 else v.op("and", v.i32, shifted, v.splat("i32", "255"))


def _difference(v: Emitter, a: str, b: str) -> str:
    return v.op("sub", v.i32, v.binary("umax", v.i32, a, b), v.binary("umin", v.i32, a, b))


def byte_differences(v: Emitter, a: str, b: str, masked: bool) -> str:
    """Return the sum of absolute differences of four bytes; ``masked`` leaves out those where b is 0."""
    total = "zeroinitializer"
    for k in range(4):
        x, y = byte(v, a, k), byte(v, b, k)
        difference = _difference(v, x, y)
        if masked:
            zero = v.new(f"icmp eq {v.i32} {y}, zeroinitializer")
            difference = v.select(zero, v.i32, "zeroinitializer", difference)
        total = v.op("add", v.i32, total, difference)
    return total


def sum_of_differences(kind: str) -> Semantics:
    """v_sad_*, v_msad_u8: S2 + the absolute differences of bytes, halves or words; clamp saturates."""

    def semantics(t: Translator, i: Instruction) -> None:
        v = t.v
        a, b, c = operands(t, i)
        if kind == "u32":
            value = _difference(v, a, b)
        elif kind == "u16":
            mask, sixteen = v.splat("i32", "65535"), v.splat("i32", "16")
            low = _difference(v, v.op("and", v.i32, a, mask), v.op("and", v.i32, b, mask))
            high = _difference(v, v.op("lshr", v.i32, a, sixteen), v.op("lshr", v.i32, b, sixteen))
            value = v.op("add", v.i32, low, high)
        else:
            value = byte_differences(v, a, b, masked=kind == "masked")
            if kind == "high":
                value = v.op("shl", v.i32, value, v.splat("i32", "16"))
        if int(i.fields["clamp"]):
            t.put(i.dsts[0], v.binary("uadd.sat", v.i32, value, c))
        else:
            t.put(i.dsts[0], v.op("add", v.i32, value, c))

    return semantics


def quad_differences(masked: bool) -> Semantics:
    """v_qsad_pk_u16_u8, v_mqsad_pk_u16_u8: four sums over byte windows of S0, in 16 bits each, + S2."""

    def semantics(t: Translator, i: Instruction) -> None:
        v = t.v
        window, pattern, addend = operands(t, i)
        result = "zeroinitializer"
        for k in range(4):
            total = byte_differences(v, _window(v, window, k), pattern, masked)
            shifted = v.op("lshr", v.i64, addend, v.splat("i64", str(16 * k)))
            old = v.op("and", v.i64, shifted, v.splat("i64", "65535"))
            total = v.op("add", v.i64, v.cast("zext", total, v.i32, v.i64), old)
            if int(i.fields["clamp"]):
                total = v.binary("umin", v.i64, total, v.splat("i64", "65535"))
            part = v.op("and", v.i64, total, v.splat("i64", "65535"))
            result = v.op("or", v.i64, result, v.op("shl", v.i64, part, v.splat("i64", str(16 * k))))
        t.put(i.dsts[0], result)

    return semantics


def _window(v: Emitter, wide: str, first: int) -> str:
    """Return bytes first..first+3 of i64 lanes as i32."""
    shifted = v.op("lshr", v.i64, wide, v.splat("i64", str(8 * first))) if first else wide
    return v.cast("trunc", shifted, v.i64, v.i32)


def quad_differences_32(t: Translator, i: Instruction) -> None:
    """v_mqsad_u32_u8: four masked sums over byte windows of S0, in 32 bits each, + S2."""
    v = t.v
    window, pattern = t.source(i.srcs[0]), t.source(i.srcs[1])
    addends = [t.vgpr(i.srcs[2].num + k) for k in range(4)]
    sums = [
        v.op("add", v.i32, byte_differences(v, _window(v, window, k), pattern, True), addends[k])
        for k in range(4)
    ]
    for k, value in enumerate(sums):
        t.set_vgpr(i.dsts[0].num + k, value)


def _lerp(v: Emitter, kind: str, o: list[str]) -> str:
    """Per byte (a + b + bit 0 of c) >> 1."""
    result = "zeroinitializer"
    for k in range(4):
        one = v.op("and", kind, byte(v, o[2], k), v.splat("i32", "1"))
        total = v.op("add", kind, v.op("add", kind, byte(v, o[0], k), byte(v, o[1], k)), one)
        part = v.op("lshr", kind, total, v.splat("i32", "1"))
        result = v.op("or", kind, result, v.op("shl", kind, part, v.splat("i32", str(8 * k))))
    return result


def permute_bytes(t: Translator, i: Instruction) -> None:
    """v_perm_b32: each selector byte picks a byte of {S0, S1}, a sign, 0x00 or 0xFF."""
    v = t.v
    a, b, selector = operands(t, i)
    pair = t.join(v, b, a)
    known = i.srcs[2].num if i.srcs[2].kind == "literal" else None
    result = "zeroinitializer"
    for k in range(4):
        if known is not None:
            part = _known_byte(v, a, b, known >> 8 * k & 0xFF)
        else:
            part = _selected_byte(v, pair, byte(v, selector, k))
        result = v.op("or", v.i32, result, v.op("shl", v.i32, part, v.splat("i32", str(8 * k))))
    t.put(i.dsts[0], result)


def _known_byte(v: Emitter, a: str, b: str, selector: int) -> str:
    if selector >= 13:
        return v.splat("i32", "255")
    if selector == 12:
        return "zeroinitializer"
    if selector < 8:
        return byte(v, a if selector >= 4 else b, selector & 3)
    word, place = (a if selector >= 10 else b), 16 if selector % 2 == 0 else 0
    moved = v.op("shl", v.i32, word, v.splat("i32", str(place)))
    return v.op("and", v.i32, v.op("ashr", v.i32, moved, v.splat("i32", "31")), v.splat("i32", "255"))


def _selected_byte(v: Emitter, pair: str, selector: str) -> str:
    number = v.op("and", v.i32, selector, v.splat("i32", "7"))
    wide = v.cast("zext", v.op("shl", v.i32, number, v.splat("i32", "3")), v.i32, v.i64)
    plain = v.op(
        "and", v.i32, v.cast("trunc", v.op("lshr", v.i64, pair, wide), v.i64, v.i32), v.splat("i32", "255")
    )
    # Selectors 8 to 11 repeat the sign of bytes 1, 3, 5 and 7.
    pairs = v.op("and", v.i32, selector, v.splat("i32", "3"))
    odd = v.op("or", v.i32, v.op("shl", v.i32, pairs, v.splat("i32", "1")), v.splat("i32", "1"))
    place = v.cast("zext", v.op("shl", v.i32, odd, v.splat("i32", "3")), v.i32, v.i64)
    signed = v.cast("trunc", v.op("lshr", v.i64, pair, place), v.i64, v.i8)
    sign = v.cast("zext", v.op("ashr", v.i8, signed, v.splat("i8", "7")), v.i8, v.i32)
    value = v.select(v.new(f"icmp ult {v.i32} {selector}, {v.splat('i32', '8')}"), v.i32, plain, sign)
    value = v.select(
        v.new(f"icmp eq {v.i32} {selector}, {v.splat('i32', '12')}"), v.i32, "zeroinitializer", value
    )
    return v.select(
        v.new(f"icmp ugt {v.i32} {selector}, {v.splat('i32', '12')}"), v.i32, v.splat("i32", "255"), value
    )


def saturate_bytes(t: Translator, i: Instruction) -> None:
    """v_sat_pk_u8_i16: both i16 halves limited to 0..255, packed into 16 bits."""
    v = t.v
    (word,) = operands(t, i)
    parts = []
    for high in (False, True):
        half = v.cast("sext", t.half_of(word, high), v.i16, v.i32)
        limited = v.binary(
            "smin", v.i32, v.binary("smax", v.i32, half, "zeroinitializer"), v.splat("i32", "255")
        )
        parts.append(limited)
    packed = v.op("or", v.i32, parts[0], v.op("shl", v.i32, parts[1], v.splat("i32", "8")))
    t.put(i.dsts[0], v.cast("trunc", packed, v.i32, v.i16))


# --- lanes ---


def count_below(t: Translator, i: Instruction) -> None:
    """v_mbcnt_lo, v_mbcnt_hi: S1 + the ones of S0 that belong to lower lanes of the half wave."""
    v = t.v
    bits, addend = operands(t, i)
    base = 0 if "_lo_" in i.name else 32
    below = [(1 << min(max(lane - base, 0), 32)) - 1 for lane in range(t.wave)]
    mask = "<" + ", ".join(f"i32 {value - (1 << 32) if value >> 31 else value}" for value in below) + ">"
    count = v.unary("ctpop", v.i32, v.op("and", v.i32, bits, mask))
    t.put(i.dsts[0], v.op("add", v.i32, count, addend))


def _count_ones(v: Emitter, kind: str, o: list[str]) -> str:
    return v.op("add", kind, v.unary("ctpop", kind, o[0]), o[1])


def move(t: Translator, i: Instruction) -> None:
    (value,) = operands(t, i)
    t.put(i.dsts[0], value)


def swap(t: Translator, i: Instruction) -> None:
    """v_swap: each destination receives the source at its place."""
    for destination, value in zip(i.dsts, [t.source(s) for s in i.srcs], strict=True):
        t.put(destination, value)


def _pairs(names: Sequence[str], make: Callable[[str], Compute]) -> dict[str, Semantics]:
    return {f"v_{name}": operation(make(name)) for name in names}


def _table() -> dict[str, Semantics]:
    table: dict[str, Semantics] = {
        **dict.fromkeys(("v_mov_b32", "v_mov_b16", "v_cvt_u32_u16"), move),
        **dict.fromkeys(("v_swap_b32", "v_swap_b16"), swap),
        "v_cvt_u32_u16": operation(lambda v, kind, o: o[0]),
        "v_bfrev_b32": operation(lambda v, kind, o: v.unary("bitreverse", kind, o[0])),
        "v_clz_i32_u32": operation(_first_bit("ctlz")),
        "v_ctz_i32_b32": operation(_first_bit("cttz")),
        "v_cls_i32": operation(_first_bit("ctlz", is_signed=True)),
        "v_sat_pk_u8_i16": saturate_bytes,
        "v_xnor_b32": operation(lambda v, kind, o: _not(v, kind, v.op("xor", kind, o[0], o[1]))),
        "v_lshlrev_b64": operation(_shift_reversed("shl")),
        "v_lshrrev_b64": operation(_shift_reversed("lshr")),
        "v_ashrrev_i64": operation(_shift_reversed("ashr")),
        "v_cndmask_b32": select,
        "v_cndmask_b16": select,
        "v_bfe_u32": operation(_extract("lshr")),
        "v_bfe_i32": operation(_extract("ashr")),
        "v_bfi_b32": operation(_insert),
        "v_bfm_b32": operation(_field_mask),
        "v_lerp_u8": operation(_lerp),
        "v_alignbit_b32": operation(_align(1)),
        "v_alignbyte_b32": operation(_align(8)),
        "v_perm_b32": permute_bytes,
        "v_sad_u8": sum_of_differences("u8"),
        "v_sad_hi_u8": sum_of_differences("high"),
        "v_sad_u16": sum_of_differences("u16"),
        "v_sad_u32": sum_of_differences("u32"),
        "v_msad_u8": sum_of_differences("masked"),
        "v_qsad_pk_u16_u8": quad_differences(False),
        "v_mqsad_pk_u16_u8": quad_differences(True),
        "v_mqsad_u32_u8": quad_differences_32,
        "v_xor3_b32": operation(_chain("xor", "xor")),
        "v_or3_b32": operation(_chain("or", "or")),
        "v_and_or_b32": operation(_chain("and", "or")),
        "v_add3_u32": operation(_chain("add", "add")),
        "v_xad_u32": operation(_chain("xor", "add")),
        "v_lshl_add_u32": operation(_shift_then("add")),
        "v_lshl_or_b32": operation(_shift_then("or")),
        "v_add_lshl_u32": operation(_add_shift),
        "v_mul_lo_u32": operation(_binary("mul")),
        "v_mul_lo_u16": operation(_binary("mul")),
        "v_mul_hi_u32": operation(_multiply_high(False)),
        "v_mul_hi_i32": operation(_multiply_high(True)),
        "v_mad_u16": multiply_add_16(False),
        "v_mad_i16": multiply_add_16(True),
        "v_mad_u32_u16": multiply_add_mixed(False),
        "v_mad_i32_i16": multiply_add_mixed(True),
        "v_mad_u64_u32": multiply_add_64(False),
        "v_mad_i64_i32": multiply_add_64(True),
        "v_bcnt_u32_b32": operation(_count_ones),
        "v_mbcnt_lo_u32_b32": count_below,
        "v_mbcnt_hi_u32_b32": count_below,
    }
    for is_signed, kind in ((False, "u32_u24"), (True, "i32_i24")):
        table[f"v_mul_{kind}"] = multiply_24(is_signed)
        table[f"v_mul_hi_{kind}"] = multiply_24(is_signed, high=True)
        table[f"v_mad_{kind}"] = multiply_24(is_signed, add=True)
    for suffix in ("co_u32", "co_ci_u32"):
        table[f"v_add_{suffix}"] = carry(False)
        table[f"v_sub_{suffix}"] = carry(True)
        table[f"v_subrev_{suffix}"] = carry(True, reverse=True)
    for width in ("32", "16"):
        table[f"v_not_b{width}"] = operation(lambda v, kind, o: _not(v, kind, o[0]))
        for name in ("and", "or", "xor"):
            table[f"v_{name}_b{width}"] = operation(_binary(name))
        table[f"v_lshlrev_b{width}"] = operation(_shift_reversed("shl"))
        table[f"v_lshrrev_b{width}"] = operation(_shift_reversed("lshr"))
        table[f"v_ashrrev_i{width}"] = operation(_shift_reversed("ashr"))
        for sign in ("u", "i"):
            kind, prefix = sign + width, "u" if sign == "u" else "s"
            table[f"v_add_nc_{kind}"] = operation(_binary("add"), saturating=f"{prefix}add.sat")
            table[f"v_sub_nc_{kind}"] = operation(_binary("sub"), saturating=f"{prefix}sub.sat")
            table[f"v_subrev_nc_{kind}"] = operation(_reversed("sub"), saturating=f"{prefix}sub.sat")
            table[f"v_med3_{kind}"] = operation(_median(prefix))
            table[f"v_maxmin_{kind}"] = operation(_nested(f"{prefix}max", f"{prefix}min"))
            table[f"v_minmax_{kind}"] = operation(_nested(f"{prefix}min", f"{prefix}max"))
            for name in ("min", "max"):
                table[f"v_{name}_{kind}"] = operation(_intrinsic(prefix + name))
                table[f"v_{name}3_{kind}"] = operation(_three(prefix + name))
    return table


SEMANTICS = _table()
