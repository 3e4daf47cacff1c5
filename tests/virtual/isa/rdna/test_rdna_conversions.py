"""Conversions between number formats, and packing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.harness import Array, Op, batch, covers
from virtual.isa.rdna.soft import F16, F32, F64, FORMATS, ZERO, Format, Rules, each, pairs, report, special

MODES = [0xF0, 0x00, 0xF5, 0xFA, 0xFF, 0x0F]
INTEGERS = {"i32": 32, "u32": 32, "i16": 16, "u16": 16}


def numbers(kind: str) -> Array:
    """Return special numbers, and random ones around the sizes of integers."""
    f, rng = FORMATS[kind], np.random.default_rng(9)
    with np.errstate(over="ignore"):
        sized = (rng.standard_normal(600) * 2.0 ** rng.integers(-3, 36, 600)).astype(f.real).view(f.unsigned)
    return np.concatenate([special(kind), sized, pairs(kind)[0]])


def truncated(f: Format, bits: int, integer: str) -> int:
    """Return a number as an integer, saturated; NaN gives 0."""
    width = INTEGERS[integer]
    low, high = (0, (1 << width) - 1) if integer[0] == "u" else (-(1 << (width - 1)), (1 << (width - 1)) - 1)
    if f.is_nan(bits):
        return 0
    if f.is_infinite(bits):
        return low if bits & f.sign else high
    return min(max(int(f.value(bits)), low), high)


@covers("v_cvt_i32_f32", "v_cvt_u32_f32", "v_cvt_i32_f64", "v_cvt_u32_f64", "v_cvt_i16_f16", "v_cvt_u16_f16")
@covers("v_cvt_floor_i32_f32", "v_cvt_nearest_i32_f32")
def test_floats_to_integers(amd: Executor) -> None:
    for kind, integers in (("f32", ("i32", "u32")), ("f64", ("i32", "u32")), ("f16", ("i16", "u16"))):
        f, bits = FORMATS[kind], numbers(kind)
        found = batch(amd, [Op(f"v_cvt_{i}_{kind} {{d}}, {{0}}") for i in integers], [bits])
        for integer, words in zip(integers, found, strict=True):
            mask = (1 << INTEGERS[integer]) - 1
            wanted = [truncated(f, x, integer) & mask for x in bits.tolist()]
            assert (words[:, 0] & np.uint32(mask) == np.array(wanted, np.uint32)).all(), (integer, kind)
    bits = numbers("f32")
    floor, nearest = batch(
        amd, [Op("v_cvt_floor_i32_f32 {d}, {0}"), Op("v_cvt_nearest_i32_f32 {d}, {0}")], [bits]
    )
    with np.errstate(invalid="ignore"):
        real = bits.view(np.float32)
        for words, values in ((floor, np.floor(real)), (nearest, np.floor(real + np.float32(0.5)))):
            wanted = [truncated(F32, x, "i32") & 0xFFFFFFFF for x in values.view(np.uint32).tolist()]
            assert words[:, 0].tolist() == wanted


@covers("v_cvt_f32_i32", "v_cvt_f32_u32", "v_cvt_f64_i32", "v_cvt_f64_u32", "v_cvt_f16_i16", "v_cvt_f16_u16")
@pytest.mark.parametrize("mode", MODES, ids=hex)
def test_integers_to_floats_round_as_mode_says(amd: Executor, mode: int) -> None:
    rng = np.random.default_rng(3)
    for kind, bits, integers in (
        ("f32", 32, ("i32", "u32")),
        ("f64", 32, ("i32", "u32")),
        ("f16", 16, ("i16", "u16")),
    ):
        f, rules = FORMATS[kind], Rules.of(mode, kind)
        values = rng.integers(0, 1 << bits, 600, dtype=np.uint64) >> rng.integers(
            0, bits, 600, dtype=np.uint64
        )
        column = values.astype(f"u{bits // 8}")
        dwords = 2 if kind == "f64" else 1
        found = batch(
            amd, [Op(f"v_cvt_{kind}_{i} {{d}}, {{0}}", dwords) for i in integers], [column], mode=mode
        )
        for integer, words in zip(integers, found, strict=True):

            def convert(
                x: int, rules: Rules = rules, signed: bool = integer[0] == "i", width: int = bits
            ) -> int:
                x = x - (1 << width) if signed and x >> (width - 1) else x
                return rules.result(rules.format.value(0) + x)

            got = words[:, 0].astype(np.uint64) & np.uint64(f.sign * 2 - 1 if kind != "f64" else 0xFFFFFFFF)
            if kind == "f64":
                got |= words[:, 1].astype(np.uint64) << np.uint64(32)
            assert not report(kind, [column], got, each(convert, column)), (kind, integer)


@covers("v_cvt_f16_f32", "v_cvt_f32_f16", "v_cvt_f32_f64", "v_cvt_f64_f32")
@pytest.mark.parametrize("mode", MODES, ids=hex)
def test_floats_to_floats(amd: Executor, mode: int) -> None:
    for target, source, dwords in (
        ("f16", "f32", 1),
        ("f32", "f16", 1),
        ("f32", "f64", 1),
        ("f64", "f32", 2),
    ):
        bits = numbers(source)
        (words,) = batch(amd, [Op(f"v_cvt_{target}_{source} {{d}}, {{0}}", dwords)], [bits], mode=mode)
        got = words[:, 0].astype(np.uint64)
        if target == "f16":
            got &= np.uint64(0xFFFF)
        if dwords == 2:
            got |= words[:, 1].astype(np.uint64) << np.uint64(32)
        rules, other = Rules.of(mode, target), Rules.of(mode, source)
        wanted = each(partial(rules.convert, source=other), bits)
        assert not report(target, [bits], got, wanted), (target, source)


def test_fp16_ovfl_limits_finite_numbers_to_the_largest_f16(amd: Executor) -> None:
    values = np.array([65504, 65519, 65520, 1e9, -1e9, np.inf, -np.inf], np.float32)
    flags = 1 << 21 | 1 << 23 | 1 << 26
    (limited,) = batch(amd, [Op("v_cvt_f16_f32 {d}, {0}")], [values], flags=flags)
    (plain,) = batch(amd, [Op("v_cvt_f16_f32 {d}, {0}")], [values])
    as_half = [words[:, 0].astype(np.uint16).view(np.float16).tolist() for words in (limited, plain)]
    inf = float("inf")
    assert as_half[0] == [65504, 65504, 65504, 65504, -65504, inf, -inf]
    assert as_half[1] == [65504, 65504, inf, inf, -inf, inf, -inf]


@covers("v_cvt_f32_ubyte0", "v_cvt_f32_ubyte1", "v_cvt_f32_ubyte2", "v_cvt_f32_ubyte3", "v_cvt_off_f32_i4")
def test_bytes_and_nibbles_to_floats(amd: Executor) -> None:
    words = np.random.default_rng(1).integers(0, 1 << 32, 64).astype(np.uint32)
    texts = [f"v_cvt_f32_ubyte{k} {{d}}, {{0}}" for k in range(4)] + ["v_cvt_off_f32_i4 {d}, {0}"]
    found = batch(amd, [Op(text) for text in texts], [words])
    for k in range(4):
        assert (found[k][:, 0].view(np.float32) == (words >> np.uint32(8 * k) & np.uint32(255))).all()
    nibble = (words & 15).astype(np.int32)
    assert (found[4][:, 0].view(np.float32) == np.where(nibble < 8, nibble, nibble - 16) / 16).all()


def scaled(f: Format, bits: int, signed: bool) -> int:
    """Return a number times 32767 or 65535, to the nearest even integer, limited; computed in f32."""
    scale = 32767 if signed else 65535
    if f.is_nan(bits):
        return 0
    value = np.uint64(bits).astype(f.unsigned).view(f.real).astype(np.float32)
    with np.errstate(over="ignore"):
        product = float(np.rint(value * np.float32(scale)))
    return int(min(max(product, -scale if signed else 0), scale)) & 0xFFFF


@covers("v_cvt_norm_i16_f16", "v_cvt_norm_u16_f16", "v_cvt_pk_norm_i16_f16", "v_cvt_pk_norm_u16_f16")
@covers("v_cvt_pk_norm_i16_f32", "v_cvt_pk_norm_u16_f32")
def test_normalised_integers(amd: Executor) -> None:
    for kind in ("f16", "f32"):
        f, rng = FORMATS[kind], np.random.default_rng(2)
        a, b = (np.concatenate([special(kind), rng.uniform(-1.2, 1.2, 300).astype(f.real).view(f.unsigned)])
                for _ in range(2))  # fmt: skip
        rng.shuffle(b)
        low = ".l" if kind == "f16" else ""
        texts = [f"v_cvt_pk_norm_{i}16_{kind} {{d}}, {{0}}{low}, {{1}}{low}" for i in "iu"]
        found = batch(amd, [Op(text) for text in texts], [a, b])
        for words, signed in zip(found, (True, False), strict=True):
            for row, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
                assert int(words[row, 0]) == scaled(f, x, signed) | scaled(f, y, signed) << 16, (
                    hex(x),
                    hex(y),
                )
        if kind == "f16":
            singles = batch(
                amd, [Op(f"v_cvt_norm_{i}16_f16 {{d}}.l, {{0}}.l", start=1) for i in "iu"], [a, b]
            )
            for words, signed in zip(singles, (True, False), strict=True):
                assert [int(w) & 0xFFFF for w in words[:, 0]] == [scaled(F16, x, signed) for x in a.tolist()]


@covers(
    "v_cvt_pk_i16_f32", "v_cvt_pk_u16_f32", "v_cvt_pk_i16_i32", "v_cvt_pk_u16_u32", "v_cvt_pk_rtz_f16_f32"
)
@covers("v_cvt_pk_u8_f32", "v_pack_b32_f16")
def test_pairs(amd: Executor) -> None:
    a, b = numbers("f32"), numbers("f32")[::-1].copy()
    place = np.resize(np.arange(9, dtype=np.uint32), len(a))
    texts = [
        "v_cvt_pk_i16_f32 {d}, {0}, {1}",
        "v_cvt_pk_u16_f32 {d}, {0}, {1}",
        "v_cvt_pk_i16_i32 {d}, {0}, {1}",
        "v_cvt_pk_u16_u32 {d}, {0}, {1}",
        "v_cvt_pk_rtz_f16_f32 {d}, {0}, {1}",
        "v_cvt_pk_u8_f32 {d}, {0}, {2}, {1}",
    ]
    found = batch(amd, [Op(text) for text in texts], [a, b, place])

    def half(convert: Callable[[int], int]) -> list[int]:
        return [
            convert(x) & 0xFFFF | (convert(y) & 0xFFFF) << 16
            for x, y in zip(a.tolist(), b.tolist(), strict=True)
        ]

    def signed(x: int) -> int:
        return x - (1 << 32) if x >> 31 else x

    assert found[0][:, 0].tolist() == half(lambda x: truncated(F32, x, "i16"))
    assert found[1][:, 0].tolist() == half(lambda x: truncated(F32, x, "u16"))
    assert found[2][:, 0].tolist() == half(lambda x: min(max(signed(x), -32768), 32767))
    assert found[3][:, 0].tolist() == half(lambda x: min(x, 65535))
    toward_zero, source = Rules(F16, ZERO), Rules(F32)
    for shift, column in ((0, a), (16, b)):
        got = found[4][:, 0] >> np.uint32(shift) & np.uint32(0xFFFF)
        assert not report("f16", [column], got, each(lambda x: toward_zero.convert(x, source), column))
    for row, (x, y, k) in enumerate(zip(a.tolist(), b.tolist(), place.tolist(), strict=True)):
        byte, at = min(truncated(F32, x, "u16"), 255), 8 * (k & 3)
        assert int(found[5][row, 0]) == y & ~(255 << at) | byte << at


@pytest.mark.parametrize("mode", [0xF0, 0x00], ids=hex)
def test_pack_quiets_nans_and_flushes_denormals(amd: Executor, mode: int) -> None:
    a, b = pairs("f16")
    (words,) = batch(amd, [Op("v_pack_b32_f16 {d}, {0}.l, {1}.l")], [a, b], mode=mode)
    rules = Rules.of(mode, "f16")

    def canonical(x: int) -> int:
        return x | F16.quiet if F16.is_nan(x) else rules.finish(rules.operand(x))

    wanted = [canonical(x) | canonical(y) << 16 for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert words[:, 0].tolist() == wanted


def test_references_agree_with_numpy() -> None:
    bits = numbers("f64")
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = bits.view(np.float64).astype(np.float32).view(np.uint32)
    assert not report("f32", [bits], each(lambda x: Rules(F32).convert(x, Rules(F64)), bits), wanted)
