"""Integer and bitwise vector instructions against numpy and Python integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.harness import Array, Op, batch, covers

EDGES = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF,
         0x10000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF, 0x00FFFFFF, 0x00800000,
         0x12345678, 0x0C0A0801]  # fmt: skip
MASK = 0xFFFFFFFF


def words(count: int, rows: int = 1200, seed: int = 3) -> list[Array]:
    """Return columns of 32-bit numbers: combinations of edges, then random ones."""
    rng = np.random.default_rng(seed)
    columns = []
    for _ in range(count):
        edges, other = rng.choice(EDGES, rows // 2), rng.integers(0, 1 << 32, rows // 2)
        columns.append(np.concatenate([edges, other >> rng.integers(0, 32)]).astype(np.uint32))
    return columns


def s(value: int, bits: int = 32) -> int:
    """Return the low bits as a signed number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


Reference = Callable[..., int]


def check(
    amd: Executor, cases: dict[str, tuple[str, Reference]], count: int, bits: int = 32, dwords: int = 1
) -> None:
    """Run ``name: (operands and modifiers, reference)``; operands of 16 bits get random high halves."""
    inputs = words(count)
    names = list(cases)
    found = batch(amd, [Op(f"{n.split('|')[0]} {{d}}, {cases[n][0]}", dwords) for n in names], inputs)
    mask = (1 << bits) - 1
    for name, result in zip(names, found, strict=True):
        reference = cases[name][1]
        wanted = [reference(*row) & mask for row in zip(*(c.tolist() for c in inputs), strict=True)]
        got = [int(x) & mask for x in result[:, 0]]
        wrong = [k for k in range(len(got)) if got[k] != wanted[k]]
        if wrong:
            k = wrong[0]
            shown = [hex(int(c[k])) for c in inputs]
            pytest.fail(
                f"{name} of {shown}: found {got[k]:#x}, wanted {wanted[k]:#x}; {len(wrong)} rows differ"
            )


TWO = "{0}, {1}"


@covers("v_mov_b32", "v_not_b32", "v_bfrev_b32", "v_clz_i32_u32", "v_ctz_i32_b32", "v_cls_i32")
def test_one_operand(amd: Executor) -> None:
    def leading_signs(a: int) -> int:
        x = a ^ (MASK if a >> 31 else 0)
        return 32 - x.bit_length() if x else -1

    cases: dict[str, tuple[str, Reference]] = {
        "v_mov_b32": ("{0}", lambda a: a),
        "v_not_b32": ("{0}", lambda a: ~a),
        "v_bfrev_b32": ("{0}", lambda a: int(f"{a:032b}"[::-1], 2)),
        "v_clz_i32_u32": ("{0}", lambda a: 32 - a.bit_length() if a else -1),
        "v_ctz_i32_b32": ("{0}", lambda a: (a & -a).bit_length() - 1),
        "v_cls_i32": ("{0}", leading_signs),
    }
    check(amd, cases, 1)


@covers("v_add_nc_u32", "v_sub_nc_u32", "v_subrev_nc_u32", "v_add_nc_i32", "v_sub_nc_i32", "v_min_i32")
@covers("v_max_i32", "v_min_u32", "v_max_u32", "v_lshlrev_b32", "v_lshrrev_b32", "v_ashrrev_i32", "v_and_b32")
@covers("v_or_b32", "v_xor_b32", "v_xnor_b32", "v_mul_lo_u32", "v_mul_hi_u32", "v_mul_hi_i32", "v_bfm_b32")
@covers("v_mul_u32_u24", "v_mul_i32_i24", "v_mul_hi_u32_u24", "v_mul_hi_i32_i24", "v_bcnt_u32_b32")
def test_two_operands(amd: Executor) -> None:
    cases: dict[str, tuple[str, Reference]] = {
        "v_add_nc_u32": (TWO, lambda a, b: a + b),
        "v_add_nc_u32|": (f"{TWO} clamp", lambda a, b: min(a + b, MASK)),
        "v_sub_nc_u32": (TWO, lambda a, b: a - b),
        "v_sub_nc_u32|": (f"{TWO} clamp", lambda a, b: max(a - b, 0)),
        "v_subrev_nc_u32": (TWO, lambda a, b: b - a),
        "v_subrev_nc_u32|": (f"{TWO} clamp", lambda a, b: max(b - a, 0)),
        "v_add_nc_i32": (TWO, lambda a, b: a + b),
        "v_add_nc_i32|": (f"{TWO} clamp", lambda a, b: clamp(s(a) + s(b), -(1 << 31), (1 << 31) - 1)),
        "v_sub_nc_i32": (TWO, lambda a, b: a - b),
        "v_sub_nc_i32|": (f"{TWO} clamp", lambda a, b: clamp(s(a) - s(b), -(1 << 31), (1 << 31) - 1)),
        "v_min_i32": (TWO, lambda a, b: min(s(a), s(b))),
        "v_max_i32": (TWO, lambda a, b: max(s(a), s(b))),
        "v_min_u32": (TWO, min),
        "v_max_u32": (TWO, max),
        "v_lshlrev_b32": (TWO, lambda a, b: b << (a & 31)),
        "v_lshrrev_b32": (TWO, lambda a, b: b >> (a & 31)),
        "v_ashrrev_i32": (TWO, lambda a, b: s(b) >> (a & 31)),
        "v_and_b32": (TWO, lambda a, b: a & b),
        "v_or_b32": (TWO, lambda a, b: a | b),
        "v_xor_b32": (TWO, lambda a, b: a ^ b),
        "v_xnor_b32": (TWO, lambda a, b: ~(a ^ b)),
        "v_mul_lo_u32": (TWO, lambda a, b: a * b),
        "v_mul_hi_u32": (TWO, lambda a, b: a * b >> 32),
        "v_mul_hi_i32": (TWO, lambda a, b: s(a) * s(b) >> 32),
        "v_bfm_b32": (TWO, lambda a, b: ((1 << (a & 31)) - 1) << (b & 31)),
        "v_mul_u32_u24": (TWO, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
        "v_mul_i32_i24": (TWO, lambda a, b: s(a, 24) * s(b, 24)),
        "v_mul_u32_u24|": (f"{TWO} clamp", lambda a, b: min((a & 0xFFFFFF) * (b & 0xFFFFFF), MASK)),
        "v_mul_i32_i24|": (
            f"{TWO} clamp",
            lambda a, b: clamp(s(a, 24) * s(b, 24), -(1 << 31), (1 << 31) - 1),
        ),
        "v_mul_hi_u32_u24": (TWO, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32),
        "v_mul_hi_i32_i24": (TWO, lambda a, b: s(a, 24) * s(b, 24) >> 32),
        "v_bcnt_u32_b32": (TWO, lambda a, b: a.bit_count() + b),
    }
    check(amd, cases, 2)


THREE = "{0}, {1}, {2}"


def field(value: int, offset: int, width: int) -> int:
    return value >> offset & (1 << width) - 1


def signed_field(a: int, b: int, c: int) -> int:
    width = c & 31
    return s(s(a) >> (b & 31), width) if width else 0


@covers("v_bfe_u32", "v_bfe_i32", "v_bfi_b32", "v_alignbit_b32", "v_alignbyte_b32", "v_xor3_b32", "v_or3_b32")
@covers("v_and_or_b32", "v_add3_u32", "v_xad_u32", "v_lshl_add_u32", "v_lshl_or_b32", "v_add_lshl_u32")
@covers("v_min3_i32", "v_min3_u32", "v_max3_i32", "v_max3_u32", "v_med3_i32", "v_med3_u32", "v_maxmin_i32")
@covers("v_maxmin_u32", "v_minmax_i32", "v_minmax_u32", "v_mad_u32_u24", "v_mad_i32_i24", "v_mad_u32_u16")
@covers("v_mad_i32_i16")
def test_three_operands(amd: Executor) -> None:
    top = (1 << 31) - 1
    cases: dict[str, tuple[str, Reference]] = {
        "v_bfe_u32": (THREE, lambda a, b, c: field(a, b & 31, c & 31)),
        "v_bfe_i32": (THREE, signed_field),
        "v_bfi_b32": (THREE, lambda a, b, c: a & b | ~a & c),
        "v_alignbit_b32": (THREE, lambda a, b, c: (a << 32 | b) >> (c & 31)),
        "v_alignbyte_b32": (THREE, lambda a, b, c: (a << 32 | b) >> 8 * (c & 3)),
        "v_xor3_b32": (THREE, lambda a, b, c: a ^ b ^ c),
        "v_or3_b32": (THREE, lambda a, b, c: a | b | c),
        "v_and_or_b32": (THREE, lambda a, b, c: a & b | c),
        "v_add3_u32": (THREE, lambda a, b, c: a + b + c),
        "v_xad_u32": (THREE, lambda a, b, c: (a ^ b) + c),
        "v_lshl_add_u32": (THREE, lambda a, b, c: (a << (b & 31)) + c),
        "v_lshl_or_b32": (THREE, lambda a, b, c: a << (b & 31) | c),
        "v_add_lshl_u32": (THREE, lambda a, b, c: (a + b) << (c & 31)),
        "v_min3_i32": (THREE, lambda *x: min(map(s, x))),
        "v_min3_u32": (THREE, min),
        "v_max3_i32": (THREE, lambda *x: max(map(s, x))),
        "v_max3_u32": (THREE, max),
        "v_med3_i32": (THREE, lambda *x: sorted(map(s, x))[1]),
        "v_med3_u32": (THREE, lambda *x: sorted(x)[1]),
        "v_maxmin_i32": (THREE, lambda a, b, c: min(max(s(a), s(b)), s(c))),
        "v_maxmin_u32": (THREE, lambda a, b, c: min(max(a, b), c)),
        "v_minmax_i32": (THREE, lambda a, b, c: max(min(s(a), s(b)), s(c))),
        "v_minmax_u32": (THREE, lambda a, b, c: max(min(a, b), c)),
        "v_mad_u32_u24": (THREE, lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
        "v_mad_i32_i24": (THREE, lambda a, b, c: s(a, 24) * s(b, 24) + c),
        "v_mad_u32_u24|": (f"{THREE} clamp", lambda a, b, c: min((a & 0xFFFFFF) * (b & 0xFFFFFF) + c, MASK)),
        "v_mad_i32_i24|": (f"{THREE} clamp", lambda a, b, c: clamp(s(a, 24) * s(b, 24) + s(c), ~top, top)),
        "v_mad_u32_u16": ("{0}.l, {1}.l, {2}", lambda a, b, c: (a & 0xFFFF) * (b & 0xFFFF) + c),
        "v_mad_i32_i16": ("{0}.l, {1}.h, {2}", lambda a, b, c: s(a, 16) * s(b >> 16, 16) + c),
        "v_mad_u32_u16|": (
            "{0}.l, {1}.l, {2} clamp",
            lambda a, b, c: min((a & 0xFFFF) * (b & 0xFFFF) + c, MASK),
        ),
        "v_mad_i32_i16|": (
            "{0}.l, {1}.l, {2} clamp",
            lambda a, b, c: clamp(s(a, 16) * s(b, 16) + s(c), ~top, top),
        ),
    }
    cases["v_alignbit_b32"] = ("{0}, {1}, {2}.l", cases["v_alignbit_b32"][1])
    cases["v_alignbyte_b32"] = ("{0}, {1}, {2}.l", cases["v_alignbyte_b32"][1])
    check(amd, cases, 3)


def bytes_of(a: int) -> list[int]:
    return [a >> 8 * k & 255 for k in range(4)]


def differences(a: int, b: int, masked: bool = False) -> int:
    pairs = zip(bytes_of(a), bytes_of(b), strict=True)
    return sum(abs(x - y) for x, y in pairs if y or not masked)


def perm(a: int, b: int, c: int) -> int:
    def pick(k: int) -> int:
        if k >= 13:
            return 255
        if k == 12:
            return 0
        if k >= 8:
            return 255 * ((a << 32 | b) >> (16 * (k - 8) + 15) & 1)
        return (a << 32 | b) >> 8 * k & 255

    return sum(pick(k) << 8 * i for i, k in enumerate(bytes_of(c)))


@covers("v_sad_u8", "v_sad_hi_u8", "v_sad_u16", "v_sad_u32", "v_msad_u8", "v_lerp_u8", "v_perm_b32")
def test_bytes(amd: Executor) -> None:
    def halves(a: int, b: int) -> int:
        return abs((a & 0xFFFF) - (b & 0xFFFF)) + abs((a >> 16) - (b >> 16))

    def lerp(a: int, b: int, c: int) -> int:
        rows = zip(bytes_of(a), bytes_of(b), bytes_of(c), strict=True)
        return sum((x + y + (z & 1) >> 1) << 8 * k for k, (x, y, z) in enumerate(rows))

    cases: dict[str, tuple[str, Reference]] = {
        "v_sad_u8": (THREE, lambda a, b, c: differences(a, b) + c),
        "v_sad_u8|": (f"{THREE} clamp", lambda a, b, c: min(differences(a, b) + c, MASK)),
        "v_sad_hi_u8": (THREE, lambda a, b, c: (differences(a, b) << 16) + c),
        "v_sad_u16": (THREE, lambda a, b, c: halves(a, b) + c),
        "v_sad_u32": (THREE, lambda a, b, c: abs(a - b) + c),
        "v_msad_u8": (THREE, lambda a, b, c: differences(a, b, True) + c),
        "v_lerp_u8": (THREE, lerp),
        "v_perm_b32": (THREE, perm),
        "v_perm_b32|": ("{0}, {1}, 0x0c0d0906", lambda a, b, c: perm(a, b, 0x0C0D0906)),
        "v_perm_b32||": ("{0}, {1}, 0x00080a0b", lambda a, b, c: perm(a, b, 0x00080A0B)),
    }
    check(amd, cases, 3)


@covers("v_qsad_pk_u16_u8", "v_mqsad_pk_u16_u8", "v_mqsad_u32_u8")
def test_sums_over_sliding_windows(amd: Executor) -> None:
    rng = np.random.default_rng(4)
    window = rng.integers(0, 1 << 63, 200, dtype=np.uint64)
    pattern = (rng.integers(0, 1 << 32, 200) & rng.choice([MASK, 0xFF00FF, 0], 200)).astype(np.uint32)
    addend, wide = (
        rng.integers(0, 1 << 63, 200, dtype=np.uint64),
        rng.integers(0, 1 << 63, (2, 200), dtype=np.uint64),
    )
    operations = [
        Op("v_qsad_pk_u16_u8 {d}, {0}, {1}, {2}", 2),
        Op("v_mqsad_pk_u16_u8 {d}, {0}, {1}, {2}", 2),
        Op("v_mqsad_u32_u8 {d}, {0}, {1}, v[7:10]", 4),
    ]
    quad, masked, four = batch(amd, operations, [window, pattern, addend, wide[0], wide[1]])
    for row in range(200):
        w, p, c = int(window[row]), int(pattern[row]), int(addend[row])
        sums = [[differences(w >> 8 * k & MASK, p, m) for k in range(4)] for m in (False, True)]
        for found, plain in ((quad, sums[0]), (masked, sums[1])):
            wanted = sum((plain[k] + (c >> 16 * k) & 0xFFFF) << 16 * k for k in range(4))
            assert int(found[row, 0]) | int(found[row, 1]) << 32 == wanted
        addends = [int(wide[k // 2][row]) >> 32 * (k % 2) & MASK for k in range(4)]
        assert [int(x) for x in four[row]] == [(sums[1][k] + addends[k]) & MASK for k in range(4)]


@covers(
    "v_add_nc_u16", "v_sub_nc_u16", "v_add_nc_i16", "v_sub_nc_i16", "v_mul_lo_u16", "v_min_u16", "v_max_u16"
)
@covers("v_min_i16", "v_max_i16", "v_lshlrev_b16", "v_lshrrev_b16", "v_ashrrev_i16", "v_and_b16", "v_or_b16")
@covers(
    "v_xor_b16", "v_not_b16", "v_mov_b16", "v_mad_u16", "v_mad_i16", "v_min3_i16", "v_min3_u16", "v_max3_i16"
)
@covers("v_max3_u16", "v_med3_i16", "v_med3_u16", "v_cvt_i32_i16", "v_cvt_u32_u16", "v_sat_pk_u8_i16")
def test_16_bit_results_keep_the_other_half(amd: Executor) -> None:
    def u(a: int) -> int:
        return a & 0xFFFF

    def i(a: int) -> int:
        return s(a, 16)

    def saturated(a: int) -> int:
        return clamp(i(a), 0, 255) | clamp(s(a >> 16, 16), 0, 255) << 8

    plain: dict[str, tuple[str, Reference]] = {
        "v_add_nc_u16": (TWO, lambda a, b, c: a + b),
        "v_add_nc_u16|": (f"{TWO} clamp", lambda a, b, c: min(u(a) + u(b), 0xFFFF)),
        "v_sub_nc_u16": (TWO, lambda a, b, c: a - b),
        "v_sub_nc_u16|": (f"{TWO} clamp", lambda a, b, c: max(u(a) - u(b), 0)),
        "v_add_nc_i16": (TWO, lambda a, b, c: a + b),
        "v_add_nc_i16|": (f"{TWO} clamp", lambda a, b, c: clamp(i(a) + i(b), -32768, 32767)),
        "v_sub_nc_i16": (TWO, lambda a, b, c: a - b),
        "v_sub_nc_i16|": (f"{TWO} clamp", lambda a, b, c: clamp(i(a) - i(b), -32768, 32767)),
        "v_mul_lo_u16": (TWO, lambda a, b, c: a * b),
        "v_min_u16": (TWO, lambda a, b, c: min(u(a), u(b))),
        "v_max_u16": (TWO, lambda a, b, c: max(u(a), u(b))),
        "v_min_i16": (TWO, lambda a, b, c: min(i(a), i(b))),
        "v_max_i16": (TWO, lambda a, b, c: max(i(a), i(b))),
        "v_lshlrev_b16": (TWO, lambda a, b, c: b << (a & 15)),
        "v_lshrrev_b16": (TWO, lambda a, b, c: u(b) >> (a & 15)),
        "v_ashrrev_i16": (TWO, lambda a, b, c: i(b) >> (a & 15)),
        "v_and_b16": (TWO, lambda a, b, c: a & b),
        "v_or_b16": (TWO, lambda a, b, c: a | b),
        "v_xor_b16": (TWO, lambda a, b, c: a ^ b),
        "v_mad_u16": (THREE, lambda a, b, c: a * b + c),
        "v_mad_u16|": (f"{THREE} clamp", lambda a, b, c: min(u(a) * u(b) + u(c), 0xFFFF)),
        "v_mad_i16": (THREE, lambda a, b, c: a * b + c),
        "v_mad_i16|": (f"{THREE} clamp", lambda a, b, c: clamp(i(a) * i(b) + i(c), -32768, 32767)),
        "v_min3_i16": (THREE, lambda *x: min(map(i, x))),
        "v_min3_u16": (THREE, lambda *x: min(map(u, x))),
        "v_max3_i16": (THREE, lambda *x: max(map(i, x))),
        "v_max3_u16": (THREE, lambda *x: max(map(u, x))),
        "v_med3_i16": (THREE, lambda *x: sorted(map(i, x))[1]),
        "v_med3_u16": (THREE, lambda *x: sorted(map(u, x))[1]),
        "v_not_b16": ("{0}", lambda a, b, c: ~a),
        "v_mov_b16": ("{0}", lambda a, b, c: a),
        "v_sat_pk_u8_i16": ("{0}", lambda a, b, c: saturated(a)),
    }
    inputs = words(3)
    names, operations = list(plain), []
    for name in names:
        operands = plain[name][0]
        if name != "v_sat_pk_u8_i16":
            operands = operands.replace("{0}", "{0}.h").replace("{1}", "{1}.l").replace("{2}", "{2}.h")
        operations.append(Op(f"{name.split('|')[0]} {{d}}.h, {operands}", start=1))
    operations += [Op("v_cvt_i32_i16 {d}, {0}.h"), Op("v_cvt_u32_u16 {d}, {0}.h")]
    found = batch(amd, operations, inputs)
    for name, result in zip(names, found, strict=False):
        reference = plain[name][1]
        for row, (a, b, c) in enumerate(zip(*(x.tolist() for x in inputs), strict=True)):
            first = a if name == "v_sat_pk_u8_i16" else a >> 16
            wanted = b & 0xFFFF | (reference(first, b, c >> 16) & 0xFFFF) << 16
            assert int(result[row, 0]) == wanted, (name, hex(a), hex(b), hex(c))
    high = inputs[0] >> 16
    assert (found[-2][:, 0].view(np.int32) == high.astype(np.uint16).view(np.int16)).all()
    assert (found[-1][:, 0] == high).all()


@covers("v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64")
def test_64_bit_shifts_take_six_bits_of_the_count(amd: Executor) -> None:
    rng = np.random.default_rng(6)
    count = rng.integers(0, 200, 300).astype(np.uint32)
    value = rng.integers(0, 1 << 63, 300, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    names = ("v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64")
    found = batch(amd, [Op(f"{n} {{d}}, {{0}}, {{1}}", 2) for n in names], [count, value])
    six = (count & 63).astype(np.uint64)
    wanted = (value << six, value >> six, (value.view(np.int64) >> six.view(np.int64)).view(np.uint64))
    for result, numbers in zip(found, wanted, strict=True):
        assert (
            result[:, 0].astype(np.uint64) | result[:, 1].astype(np.uint64) << np.uint64(32) == numbers
        ).all()


@covers("v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32", "v_add_co_ci_u32", "v_sub_co_ci_u32")
@covers("v_subrev_co_ci_u32", "v_cndmask_b32", "v_cndmask_b16")
@pytest.mark.parametrize("wave", [32, 64])
def test_carries_go_through_lane_masks(amd: Executor, wave: int) -> None:
    a, b, c = words(3)
    vcc, mask = ("vcc_lo", "s20") if wave == 32 else ("vcc", "s[20:21]")
    step = f"v_cmp_ne_u32 {mask}, 0, {{2}}"
    one = f"v_cndmask_b32 v41, 0, 1, {vcc}"
    texts = {
        "v_add_co_u32": (f"v_add_co_u32 v40, {vcc}, {{0}}, {{1}}; {one}", lambda x, y, z: x + y),
        "v_sub_co_u32": (f"v_sub_co_u32 v40, {vcc}, {{0}}, {{1}}; {one}", lambda x, y, z: x - y),
        "v_subrev_co_u32": (f"v_subrev_co_u32 v40, {vcc}, {{0}}, {{1}}; {one}", lambda x, y, z: y - x),
    }
    for name, reference in (
        ("add", lambda x, y, z: x + y + z),
        ("sub", lambda x, y, z: x - y - z),
        ("subrev", lambda x, y, z: y - x - z),
    ):
        text = f"{step}; v_{name}_co_ci_u32 v40, {vcc}, {{0}}, {{1}}, {mask}; {one}"
        texts[f"v_{name}_co_ci_u32"] = (text, reference)
        short = text.replace(f"{{1}}, {mask}", f"{{1}}, {vcc}").replace(step, step.replace(mask, vcc))
        texts[f"v_{name}_co_ci_u32 in VCC"] = (short, reference)
    found = batch(amd, [Op(text, 2) for text, _ in texts.values()], [a, b, (c & 1)], wave=wave)
    for (name, (_, reference)), result in zip(texts.items(), found, strict=True):
        for row, (x, y, z) in enumerate(zip(a.tolist(), b.tolist(), (c & 1).tolist(), strict=True)):
            exact = reference(x, y, z)
            assert (int(result[row, 0]), int(result[row, 1])) == (
                exact & MASK,
                int(not 0 <= exact <= MASK),
            ), name
    halves = f"{step}; v_cndmask_b16 {{d}}.l, {{0}}.h, {{1}}.l, {mask}"
    (result,) = batch(amd, [Op(halves, start=0)], [a, b, (c & 1)], wave=wave)
    wanted = a & np.uint32(0xFFFF0000) | np.where(c & 1, b & 0xFFFF, a >> 16)
    assert (result[:, 0] == wanted).all()


@covers("v_mad_u64_u32", "v_mad_i64_i32")
def test_64_bit_multiply_add_reports_overflow(amd: Executor) -> None:
    a, b = words(2)
    rng = np.random.default_rng(1)
    c = rng.integers(0, 1 << 63, len(a), dtype=np.uint64) * np.uint64(2)
    flag = "v_cndmask_b32 v42, 0, 1, vcc_lo"
    operations = [
        Op(f"v_mad_u64_u32 v[40:41], vcc_lo, {{0}}, {{1}}, {{2}}; {flag}", 3),
        Op(f"v_mad_i64_i32 v[40:41], vcc_lo, {{0}}, {{1}}, {{2}}; {flag}", 3),
    ]
    unsigned, signed = batch(amd, operations, [a, b, c])
    for row, (x, y, z) in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), strict=True)):
        for result, exact, limits in (
            (unsigned, x * y + z, (0, (1 << 64) - 1)),
            (signed, s(x) * s(y) + s(z, 64), (-(1 << 63), (1 << 63) - 1)),
        ):
            low, high, over = (int(v) for v in result[row])
            assert low | high << 32 == exact & (1 << 64) - 1
            assert over == (not limits[0] <= exact <= limits[1])


@covers("v_swap_b32", "v_swap_b16")
def test_swaps_exchange_registers(amd: Executor) -> None:
    a, b = words(2)
    operations = [
        Op("v_mov_b32 v40, {0}; v_mov_b32 v41, {1}; v_swap_b32 v40, v41", 2),
        Op("v_mov_b32 v40, {0}; v_mov_b32 v41, {1}; v_swap_b16 v40.l, v41.h", 2),
    ]
    whole, half = batch(amd, operations, [a, b])
    assert (whole[:, 0] == b).all() and (whole[:, 1] == a).all()
    assert (half[:, 0] == (a & np.uint32(0xFFFF0000) | b >> 16)).all()
    assert (half[:, 1] == (b & 0xFFFF | a << 16)).all()


def test_constants_mean_what_the_operand_type_says(amd: Executor) -> None:
    operations = [
        Op("v_mov_b32 {d}, -16"),
        Op("v_mov_b32 {d}, 0.15915494"),
        Op("v_add_f16 {d}.l, 1.0, {0}.l", start=0),
        Op("v_add_nc_u16 {d}.l, 64, {0}.l", start=0),
        Op("v_add_f64 {d}, 2.0, {1}", 2),
        Op("v_fma_f64 {d}, {1}, 1.0, 0xc1f00000", 2),
        Op("v_lshlrev_b64 {d}, 4, 0xdeadbeef", 2),
    ]
    zero = np.zeros(1, np.float64)
    found = batch(amd, operations, [np.zeros(1, np.uint32), zero])
    assert [int(r[0, 0]) for r in found[:4]] == [MASK - 15, 0x3E22F983, 0x3C00, 64]
    reals = [np.ascontiguousarray(r[0]).view(np.float64)[0] for r in found[4:6]]
    assert reals == [2.0, -4294967296.0]
    assert found[6][0].tolist() == [0xEADBEEF0, 0xD]
