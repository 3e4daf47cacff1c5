"""Integer arithmetic and bit operations: categories 2 and 3 against Python's integers and numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from virtual.isa.ir3.harness import INTEGERS16, INTEGERS32, Array, Rows, covers, crossed, same

WIDTHS = [("r", INTEGERS32), ("hr", INTEGERS16)]
Oracle = Callable[[Array, Array, int], Array]
"""A function of two columns of int64 (unsigned values) and the width; results are modulo the width."""


def signed(value: Array, width: int) -> Array:
    return np.where(value >> (width - 1) & 1, value - (1 << width), value)


def clamped(value: Array, low: int, high: int) -> Array:
    return np.clip(value, low, high)


def _leading_zeros(value: Array, width: int) -> Array:
    return np.array([width - int(v).bit_length() if v else -1 for v in value], np.int64)


def _leading_signs(value: Array, width: int) -> Array:
    s = signed(value, width)
    return _leading_zeros(np.where(s < 0, ~s, s), width)


def _reversed(value: Array, width: int) -> Array:
    return np.array([int(f"{int(v):0{width}b}"[::-1], 2) for v in value], np.int64)


def _ones(value: Array) -> Array:
    return np.array([int(v).bit_count() for v in value], np.int64)


def _run_of_ones(a: Array, b: Array, width: int) -> Array:
    run = (1 << (a % width)) - 1
    return run << (b % width)


BINARY: dict[str, Oracle] = {
    "add.u": lambda a, b, w: a + b,
    "add.s": lambda a, b, w: a + b,
    "sub.u": lambda a, b, w: a - b,
    "sub.s": lambda a, b, w: a - b,
    "min.u": lambda a, b, w: np.minimum(a, b),
    "max.u": lambda a, b, w: np.maximum(a, b),
    "min.s": lambda a, b, w: np.minimum(signed(a, w), signed(b, w)),
    "max.s": lambda a, b, w: np.maximum(signed(a, w), signed(b, w)),
    "and.b": lambda a, b, w: a & b,
    "or.b": lambda a, b, w: a | b,
    "xor.b": lambda a, b, w: a ^ b,
    "shl.b": lambda a, b, w: a << (b % w),
    "shr.b": lambda a, b, w: a >> (b % w),
    "ashr.b": lambda a, b, w: signed(a, w) >> (b % w),
    "getbit.b": lambda a, b, w: a >> (b % w) & 1,
    "mgen.b": _run_of_ones,
}
UNARY: dict[str, Oracle] = {
    "absneg.s": lambda a, b, w: a,
    "not.b": lambda a, b, w: ~a,
    "bfrev.b": lambda a, b, w: _reversed(a, w),
    "clz.s": lambda a, b, w: _leading_signs(a, w),
    "clz.b": lambda a, b, w: _leading_zeros(a, w),
    "cbits.b": lambda a, b, w: _ones(a),
}
SIGNED_RESULT = ("add.s", "sub.s", "min.s", "max.s", "absneg.s", "clz.s", "clz.b")
ALL = {**BINARY, **UNARY}


def _body(source: str, target: str) -> tuple[str, dict[str, str]]:
    lines, places = ["(sy)nop"], {}
    for k, name in enumerate(ALL):
        places[name] = f"{target}{4 + k}.x"
        lines.append(f"{name} {places[name]}, {source}1.x" + (f", {source}1.y" if name in BINARY else ""))
    return "\n".join(lines), places


def _modulo(value: Array, width: int) -> Array:
    return value & ((1 << width) - 1)


@covers(*ALL)
@pytest.mark.parametrize(("r", "special"), WIDTHS)
def test_results_are_modulo_the_width_and_shifts_use_the_count_modulo_the_width(
    rows: Rows, r: str, special: Array
) -> None:
    a, b = crossed(special, 2)
    width = 8 * special.itemsize
    body, places = _body(r, r)
    results = rows(body, {f"{r}1.x": a, f"{r}1.y": b}, list(places.values()))
    for name, place in places.items():
        same(results[place], _modulo(ALL[name](a.astype(np.int64), b.astype(np.int64), width), width))


@covers(*ALL)
def test_a_half_destination_cuts_the_result_off(rows: Rows) -> None:
    a, b = crossed(INTEGERS32, 2)
    body, places = _body("r", "hr")
    results = rows(body, {"r1.x": a, "r1.y": b}, list(places.values()))
    for name, place in places.items():
        same(results[place], _modulo(ALL[name](a.astype(np.int64), b.astype(np.int64), 32), 16))


@covers(*ALL)
def test_a_full_destination_extends_by_sign_only_for_signed_operations(rows: Rows) -> None:
    a, b = crossed(INTEGERS16, 2)
    body, places = _body("hr", "r")
    results = rows(body, {"hr1.x": a, "hr1.y": b}, list(places.values()))
    for name, place in places.items():
        narrow = _modulo(ALL[name](a.astype(np.int64), b.astype(np.int64), 16), 16)
        wide = signed(narrow, 16) if name in SIGNED_RESULT else narrow
        same(results[place], _modulo(wide, 32))


@covers("add.u", "add.s", "sub.u", "sub.s")
@pytest.mark.parametrize(("r", "special"), WIDTHS)
def test_sat_saturates_sums_and_differences(rows: Rows, r: str, special: Array) -> None:
    a, b = crossed(special, 2)
    w = 8 * special.itemsize
    names = ("add.u", "sub.u", "add.s", "sub.s")
    body = "(sy)nop\n" + "\n".join(f"(sat){n} {r}{4 + k}.x, {r}1.x, {r}1.y" for k, n in enumerate(names))
    places = [f"{r}{4 + k}.x" for k in range(4)]
    results = rows(body, {f"{r}1.x": a, f"{r}1.y": b}, places)
    x, y = a.astype(np.int64), b.astype(np.int64)
    s, t = signed(x, w), signed(y, w)
    top, low, high = (1 << w) - 1, -(1 << w - 1), (1 << w - 1) - 1
    expected = (
        clamped(x + y, 0, top),
        clamped(x - y, 0, top),
        clamped(s + t, low, high),
        clamped(s - t, low, high),
    )
    for place, value in zip(places, expected, strict=True):
        same(results[place], _modulo(value, w))


@covers("add.u", "add.s")
@pytest.mark.parametrize(("r", "special"), WIDTHS)
def test_ei_halves_a_sum_without_overflow(rows: Rows, r: str, special: Array) -> None:
    a, b = crossed(special, 2)
    w = 8 * special.itemsize
    body = f"(sy)add.u (ei){r}4.x, {r}1.x, {r}1.y\nadd.s (ei){r}4.y, {r}1.x, {r}1.y"
    results = rows(body, {f"{r}1.x": a, f"{r}1.y": b}, [f"{r}4.x", f"{r}4.y"])
    x, y = a.astype(np.int64), b.astype(np.int64)
    same(results[f"{r}4.x"], _modulo(x + y >> 1, w))
    same(results[f"{r}4.y"], _modulo(signed(x, w) + signed(y, w) >> 1, w))


COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


@covers("cmps.u", "cmps.s", "cmpv.u", "cmpv.s")
@pytest.mark.parametrize(("r", "special"), WIDTHS)
def test_integer_comparisons_know_signs(rows: Rows, r: str, special: Array) -> None:
    a, b = crossed(special, 2)
    w = 8 * special.itemsize
    lines = ["(sy)nop"]
    for k, condition in enumerate(COMPARISONS):
        for name, c in (("cmps.u", "x"), ("cmps.s", "y"), ("cmpv.u", "z"), ("cmpv.s", "w")):
            lines.append(f"{name}.{condition} {r}{4 + k}.{c}, {r}1.x, {r}1.y")
    places = [f"{r}{4 + k}.{c}" for k in range(6) for c in "xyzw"]
    results = rows("\n".join(lines), {f"{r}1.x": a, f"{r}1.y": b}, places)
    x, y = a.astype(np.int64), b.astype(np.int64)
    for k, compare in enumerate(COMPARISONS.values()):
        unsigned, with_sign = compare(x, y), compare(signed(x, w), signed(y, w))
        same(results[f"{r}{4 + k}.x"], unsigned.astype(np.uint32))
        same(results[f"{r}{4 + k}.y"], with_sign.astype(np.uint32))
        same(results[f"{r}{4 + k}.z"], np.where(unsigned, (1 << w) - 1, 0))
        same(results[f"{r}{4 + k}.w"], np.where(with_sign, (1 << w) - 1, 0))


# --- products ---


def _low24(value: Array) -> Array:
    return value & 0xFFFFFF


@covers("mul.u24", "mul.s24", "mull.u")
def test_products_take_24_or_16_bits_of_full_operands(rows: Rows) -> None:
    a, b = crossed(INTEGERS32, 2)
    body = """
        (sy)mul.u24 r2.x, r1.x, r1.y
        mul.s24 r2.y, r1.x, r1.y
        mull.u r2.z, r1.x, r1.y
        mul.u24 hr2.x, r1.x, r1.y
        mull.u hr2.z, r1.x, r1.y
    """
    results = rows(body, {"r1.x": a, "r1.y": b}, ["r2.x", "r2.y", "r2.z", "hr2.x", "hr2.z"])
    x, y = a.astype(np.int64), b.astype(np.int64)
    same(results["r2.x"], _modulo(_low24(x) * _low24(y), 32))
    same(results["r2.y"], _modulo(signed(_low24(x), 24) * signed(_low24(y), 24), 32))
    same(results["r2.z"], _modulo((x & 0xFFFF) * (y & 0xFFFF), 32))
    same(results["hr2.x"], _modulo(_low24(x) * _low24(y), 16))
    same(results["hr2.z"], _modulo(x * y, 16))


@covers("mul.u24", "mul.s24", "mull.u")
def test_products_of_half_operands_have_32_bits(rows: Rows) -> None:
    a, b = crossed(INTEGERS16, 2)
    body = """
        (sy)mul.u24 r2.x, hr1.x, hr1.y
        mul.s24 r2.y, hr1.x, hr1.y
        mull.u r2.z, hr1.x, hr1.y
        mul.s24 hr2.x, hr1.x, hr1.y
    """
    results = rows(body, {"hr1.x": a, "hr1.y": b}, ["r2.x", "r2.y", "r2.z", "hr2.x"])
    x, y = a.astype(np.int64), b.astype(np.int64)
    same(results["r2.x"], x * y)
    same(results["r2.y"], _modulo(signed(x, 16) * signed(y, 16), 32))
    same(results["r2.z"], x * y)
    same(results["hr2.x"], _modulo(x * y, 16))


@covers("mad.u24", "mad.s24")
def test_mad_24_adds_to_a_product_of_24_bits(rows: Rows) -> None:
    a, b, c = crossed(INTEGERS32, 3)
    body = """
        (sy)mad.u24 r2.x, r1.x, r1.y, r1.z
        mad.s24 r2.y, r1.x, r1.y, r1.z
        mad.s24 hr2.y, r1.x, r1.y, (neg)r1.z
    """
    results = rows(body, {"r1.x": a, "r1.y": b, "r1.z": c}, ["r2.x", "r2.y", "hr2.y"])
    x, y, z = (v.astype(np.int64) for v in (a, b, c))
    same(results["r2.x"], _modulo(_low24(x) * _low24(y) + z, 32))
    product = signed(_low24(x), 24) * signed(_low24(y), 24)
    same(results["r2.y"], _modulo(product + z, 32))
    same(results["hr2.y"], _modulo(product - z, 16))


@covers("mad.u16", "mad.s16")
def test_mad_16_of_half_registers_is_modulo_16_bits(rows: Rows) -> None:
    a, b, c = crossed(INTEGERS16, 3)
    body = """
        (sy)mad.u16 hr2.x, hr1.x, hr1.y, hr1.z
        mad.s16 hr2.y, hr1.x, (neg)hr1.y, hr1.z
    """
    results = rows(body, {"hr1.x": a, "hr1.y": b, "hr1.z": c}, ["hr2.x", "hr2.y"])
    x, y, z = (v.astype(np.int64) for v in (a, b, c))
    same(results["hr2.x"], _modulo(x * y + z, 16))
    same(results["hr2.y"], _modulo(z - x * y, 16))


@covers("mad.u16", "mad.s16")
def test_mad_16_with_a_full_destination_reads_full_registers(rows: Rows) -> None:
    """The disassembly names half registers; Qualcomm's compiler means full ones (tinygrad's test_emu.py)."""
    a, b, c = crossed(INTEGERS32, 3)
    body = """
        (sy)mad.u16 r2.x, hr1.x, hr1.y, hr1.z
        mad.s16 r2.y, hr1.x, hr1.y, hr1.z
    """
    results = rows(body, {"r1.x": a, "r1.y": b, "r1.z": c}, ["r2.x", "r2.y"])
    x, y, z = (v.astype(np.int64) for v in (a, b, c))
    same(results["r2.x"], _modulo((x & 0xFFFF) * (y & 0xFFFF) + z, 32))
    same(results["r2.y"], _modulo(signed(x & 0xFFFF, 16) * signed(y & 0xFFFF, 16) + z, 32))


@covers("madsh.m16", "madsh.u16")
def test_madsh_adds_the_shifted_product_of_a_low_and_a_high_half(rows: Rows) -> None:
    a, b, c = crossed(INTEGERS32, 3)
    body = "(sy)madsh.m16 r2.x, r1.x, r1.y, r1.z\nmadsh.u16 r2.y, r1.x, r1.y, r1.z"
    results = rows(body, {"r1.x": a, "r1.y": b, "r1.z": c}, ["r2.x", "r2.y"])
    x, y, z = (v.astype(object) for v in (a, b, c))
    expected = np.array(
        [(((p & 0xFFFF) * (q >> 16) << 16) + s) & 0xFFFFFFFF for p, q, s in zip(x, y, z)], np.int64
    )
    same(results["r2.x"], expected)
    same(results["r2.y"], expected)


@covers("mull.u", "madsh.m16")
def test_mull_and_two_madsh_make_a_32_bit_product(rows: Rows) -> None:
    a, b = crossed(INTEGERS32, 2)
    body = """
        (sy)mull.u r2.x, r1.x, r1.y
        (nop3)madsh.m16 r2.x, r1.x, r1.y, r2.x
        (nop3)madsh.m16 r2.x, r1.y, r1.x, r2.x
    """
    results = rows(body, {"r1.x": a, "r1.y": b}, ["r2.x"])
    same(results["r2.x"], a * b)


# --- category 3 without products ---


@covers("sel.b32", "sel.b16", "sel.s32", "sel.s16")
@pytest.mark.parametrize(("r", "special", "bits"), [("r", INTEGERS32, 32), ("hr", INTEGERS16, 16)])
def test_sel_chooses_by_the_second_operand(rows: Rows, r: str, special: Array, bits: int) -> None:
    a, condition, b = crossed(special, 3)
    condition[::3] = 0
    body = f"""
        (sy)sel.b{bits} {r}2.x, {r}1.x, {r}1.y, {r}1.z
        sel.s{bits} {r}2.y, {r}1.x, {r}1.y, {r}1.z
        sel.s{bits} {r}2.z, {r}1.x, (neg){r}1.y, (neg){r}1.z
    """
    inputs = {f"{r}1.x": a, f"{r}1.y": condition, f"{r}1.z": b}
    results = rows(body, inputs, [f"{r}2.x", f"{r}2.y", f"{r}2.z"])
    s = signed(condition.astype(np.int64), bits)
    same(results[f"{r}2.x"], np.where(s != 0, a, b))
    same(results[f"{r}2.y"], np.where(s >= 0, a, b))
    negated = signed(_modulo(-s, bits), bits)
    same(results[f"{r}2.z"], _modulo(np.where(negated >= 0, a.astype(np.int64), -b.astype(np.int64)), bits))


@covers("sel.b16", "sel.s16")
def test_sel_of_half_operands_extends_into_a_full_destination(rows: Rows) -> None:
    a, condition, b = crossed(INTEGERS16, 3)
    body = "(sy)sel.b16 r2.x, hr1.x, hr1.y, hr1.z\nsel.s16 r2.y, hr1.x, hr1.y, hr1.z"
    results = rows(body, {"hr1.x": a, "hr1.y": condition, "hr1.z": b}, ["r2.x", "r2.y"])
    s = signed(condition.astype(np.int64), 16)
    same(results["r2.x"], np.where(s != 0, a, b))
    same(results["r2.y"], _modulo(signed(np.where(s >= 0, a, b).astype(np.int64), 16), 32))


@covers("sad.s32", "sad.s16")
@pytest.mark.parametrize(("r", "special", "bits"), [("r", INTEGERS32, 32), ("hr", INTEGERS16, 16)])
def test_sad_adds_three_operands(rows: Rows, r: str, special: Array, bits: int) -> None:
    a, b, c = crossed(special, 3)
    body = f"""
        (sy)sad.s{bits} {r}2.x, {r}1.x, {r}1.y, {r}1.z
        sad.s{bits} {r}2.y, (neg){r}1.x, {r}1.y, (neg){r}1.z
    """
    results = rows(body, {f"{r}1.x": a, f"{r}1.y": b, f"{r}1.z": c}, [f"{r}2.x", f"{r}2.y"])
    x, y, z = (v.astype(np.int64) for v in (a, b, c))
    same(results[f"{r}2.x"], _modulo(x + y + z, bits))
    same(results[f"{r}2.y"], _modulo(y - x - z, bits))


@covers("shrm", "shlm", "shrg", "shlg", "andg")
@pytest.mark.parametrize(("r", "special"), WIDTHS)
def test_shifts_and_masks_combine_with_a_third_operand(rows: Rows, r: str, special: Array) -> None:
    count, value, other = crossed(special, 3)
    w = 8 * special.itemsize
    names = ("shrm", "shlm", "shrg", "shlg", "andg")
    body = "(sy)nop\n" + "\n".join(f"{n} {r}{4 + k}.x, {r}1.x, {r}1.y, {r}1.z" for k, n in enumerate(names))
    places = [f"{r}{4 + k}.x" for k in range(5)]
    results = rows(body, {f"{r}1.x": count, f"{r}1.y": value, f"{r}1.z": other}, places)
    c, v, o = (x.astype(np.int64) for x in (count, value, other))
    right, left = v >> (c % w), _modulo(v << (c % w), w)
    for place, expected in zip(places, (right & o, left & o, right | o, left | o, (v & c) | o), strict=True):
        same(results[place], expected)


@covers("shrg", "andg")
def test_shift_and_mask_results_of_another_size_are_cut_or_zero_extended(rows: Rows) -> None:
    a, b, c = crossed(INTEGERS32, 3)
    h, g, k = crossed(INTEGERS16, 3)
    body = """
        (sy)shrg hr2.x, r1.x, r1.y, r1.z
        shrg r2.x, hr1.x, hr1.y, hr1.z
        andg r2.y, 3, hr1.y, hr1.z
    """
    inputs = {"r1.x": a, "r1.y": b, "r1.z": c, "hr1.x": h, "hr1.y": g, "hr1.z": k}
    results = rows(body, inputs, ["hr2.x", "r2.x", "r2.y"])
    same(results["hr2.x"], _modulo((b.astype(np.int64) >> (a % 32)) | c, 16))
    same(results["r2.x"], (g >> (h % 16)) | k)
    same(results["r2.y"], (g & 3) | k)


def _bytes(value: Array, *, signed_bytes: bool) -> Array:
    return np.ascontiguousarray(value).view(np.int8 if signed_bytes else np.uint8).reshape(-1, 4).astype(int)


def _dot(a: Array, b: Array, part: slice, *, mixed: bool) -> Array:
    """The dot product of some bytes of each row; those of ``b`` are unsigned, those of ``a`` if not mixed."""
    products = _bytes(a, signed_bytes=mixed) * _bytes(b, signed_bytes=False)
    return products[:, part].sum(axis=1)


@covers("dp2acc")
@pytest.mark.parametrize(("half", "part"), [("low", slice(0, 2)), ("high", slice(2, 4))])
@pytest.mark.parametrize("chip", ["a650", "a660", "a643"])
def test_dp2acc_adds_the_dot_product_of_two_bytes(rows: Rows, half: str, part: slice, chip: str) -> None:
    a, b, c = crossed(INTEGERS32, 3)
    body = f"""
        (sy)dp2acc.unsigned.{half} r2.x, r1.x, r1.y, r1.z
        dp2acc.mixed.{half} r2.y, r1.x, r1.y, r1.z
        dp2acc.mixed.{half} r2.z, r1.x, r1.y, (neg)r1.z
    """
    results = rows(body, {"r1.x": a, "r1.y": b, "r1.z": c}, ["r2.x", "r2.y", "r2.z"], chip=chip)
    total = c.astype(np.int64)
    same(results["r2.x"], _modulo(_dot(a, b, part, mixed=False) + total, 32))
    same(results["r2.y"], _modulo(_dot(a, b, part, mixed=True) + total, 32))
    same(results["r2.z"], _modulo(_dot(a, b, part, mixed=True) - total, 32))


@covers("dp4acc")
def test_dp4acc_adds_the_dot_product_of_four_bytes(rows: Rows) -> None:
    a, b, c = crossed(INTEGERS32, 3)
    body = """
        (sy)dp4acc.unsigned.low r2.x, r1.x, r1.y, r1.z
        dp4acc.mixed.low r2.y, r1.x, r1.y, r1.z
        (sat)dp4acc.mixed.low r2.z, r1.x, r1.y, r1.z
        dp4acc.unsigned.low r2.w, r1.x, r1.y, (neg)r1.z
    """
    places = ["r2.x", "r2.y", "r2.z", "r2.w"]
    results = rows(body, {"r1.x": a, "r1.y": b, "r1.z": c}, places, chip="a660")
    total, every = c.astype(np.int64), slice(0, 4)
    unsigned, mixed = _dot(a, b, every, mixed=False), _dot(a, b, every, mixed=True)
    saturated = clamped(mixed + signed(total, 32), -(1 << 31), (1 << 31) - 1)
    assert np.any(saturated != mixed + signed(total, 32))
    same(results["r2.x"], _modulo(unsigned + total, 32))
    same(results["r2.y"], _modulo(mixed + total, 32))
    same(results["r2.z"], _modulo(saturated, 32))
    same(results["r2.w"], _modulo(unsigned - total, 32))


@covers("dp4acc")
def test_dot_products_of_registers_that_all_fibers_share(rows: Rows) -> None:
    body = """
        mov.u32u32 r1.x, 0x80ff7f01
        mov.u32u32 r1.y, 0xff02ff03
        mov.u32u32 r1.z, 1000
        (rpt2)nop
        dp4acc.mixed.low r2.x, r1.x, r1.y, r1.z
        dp2acc.mixed.high r2.y, r1.x, r1.y, r1.z
    """
    results = rows(body, {}, ["r2.x", "r2.y"], chip="a643")
    low, high = 1 * 3 + 127 * 255, -1 * 2 + -128 * 255
    same(results["r2.x"], np.full(64, (low + high + 1000) % (1 << 32)))
    same(results["r2.y"], np.full(64, (high + 1000) % (1 << 32)))
