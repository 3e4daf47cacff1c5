"""Divisions, roots, exponentials, logarithms and angles."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.harness import Array, Op, batch, covers
from virtual.isa.rdna.soft import F32, FORMATS, Rules, each, pairs, report, special

# What clang makes of a / b: the steps of a correctly rounded division.
DIVIDE = {
    "f32": (
        "v_div_scale_f32 v20, null, {1}, {1}, {0}; v_div_scale_f32 v21, vcc_lo, {0}, {1}, {0}; "
        "v_rcp_f32 v22, v20;"
        "v_fma_f32 v23, -v20, v22, 1.0; v_fma_f32 v22, v23, v22, v22; v_mul_f32 v23, v21, v22;"
        "v_fma_f32 v24, -v20, v23, v21; v_fma_f32 v23, v24, v22, v23; v_fma_f32 v20, -v20, v23, v21;"
        "v_div_fmas_f32 v20, v20, v22, v23; v_div_fixup_f32 {d}, v20, {1}, {0}"
    ),
    "f64": (
        "v_div_scale_f64 v[20:21], null, {1}, {1}, {0}; v_rcp_f64 v[22:23], v[20:21];"
        "v_fma_f64 v[24:25], -v[20:21], v[22:23], 1.0; v_fma_f64 v[22:23], v[22:23], v[24:25], v[22:23];"
        "v_fma_f64 v[24:25], -v[20:21], v[22:23], 1.0; v_fma_f64 v[22:23], v[22:23], v[24:25], v[22:23];"
        "v_div_scale_f64 v[24:25], vcc_lo, {0}, {1}, {0}; v_mul_f64 v[26:27], v[24:25], v[22:23];"
        "v_fma_f64 v[20:21], -v[20:21], v[26:27], v[24:25]; "
        "v_div_fmas_f64 v[20:21], v[20:21], v[22:23], v[26:27];"
        "v_div_fixup_f64 {d}, v[20:21], {1}, {0}"
    ),
}


def bits_of(kind: str, words: Array) -> Array:
    low = words[:, 0].astype(np.uint64)
    return low | words[:, 1].astype(np.uint64) << np.uint64(32) if kind == "f64" else low


@covers(
    "v_div_scale_f32",
    "v_div_fmas_f32",
    "v_div_fixup_f32",
    "v_div_scale_f64",
    "v_div_fmas_f64",
    "v_div_fixup_f64",
)
@covers("v_rcp_f64")
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_the_division_of_compilers_is_correctly_rounded(amd: Executor, kind: str) -> None:
    inputs = pairs(kind, rows=4000)
    (words,) = batch(amd, [Op(DIVIDE[kind], 2 if kind == "f64" else 1)], inputs)
    assert not report(kind, inputs, bits_of(kind, words), each(Rules(FORMATS[kind]).divide, *inputs))


@covers("v_div_fixup_f16")
def test_a_half_division_is_fixed_up(amd: Executor) -> None:
    inputs = pairs("f16", rows=2000)
    text = (
        "v_cvt_f32_f16 v20, {0}.l; v_cvt_f32_f16 v21, {1}.l; v_rcp_f32 v22, v21; v_mul_f32 v23, v20, v22;"
        "v_fma_f32 v24, -v21, v23, v20; v_fma_f32 v23, v24, v22, v23; v_cvt_f16_f32 v24.l, v23;"
        "v_div_fixup_f16 {d}.l, v24.l, {1}.l, {0}.l"
    )
    (words,) = batch(amd, [Op(text, start=0)], inputs)
    wanted = each(Rules(FORMATS["f16"]).divide, *inputs)
    assert not report("f16", inputs, words[:, 0] & np.uint32(0xFFFF), wanted)


def test_div_scale_flags_what_div_fmas_must_undo(amd: Executor) -> None:
    """Cases of tinygrad's hardware tests (TestDivScale), under their MODE, which flushes f32 denormals."""
    big, small = float(np.float32(3.4028235e38)), 2.0**-126
    cases = [  # S0, S1, S2, result, flag
        (1.0, 4.0, 1.0, 1.0, 0),
        (1.0, 0.0, 1.0, np.nan, 1),
        (0.0, 1.0, 0.0, np.nan, 1),
        (1.0, 1.0, big, 2.0**64, 1),
        (1e-45, 1e-45, 1.0, np.nan, 1),
        (small, 1.0, small, small * 2.0**64, 1),
        (1.0, 2.0**127, 1.0, 1.0, 1),
    ]
    columns = [np.array([case[k] for case in cases], np.float32) for k in range(3)]
    text = "v_div_scale_f32 v40, vcc_lo, {0}, {1}, {2}; v_cndmask_b32 v41, 0, 1, vcc_lo"
    (words,) = batch(amd, [Op(text, 2)], columns, mode=0xC0)
    assert words[:, 1].tolist() == [case[4] for case in cases]
    got = np.ascontiguousarray(words[:, 0]).view(np.float32)
    assert np.array_equal(got, np.array([case[3] for case in cases], np.float32), equal_nan=True)


def ulps(found: Array, wanted: Array, size: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.abs(found.astype(np.float64) - wanted) / size


APPROXIMATE = {
    "v_rcp": lambda x: 1 / x,
    "v_sqrt": np.sqrt,
    "v_rsq": lambda x: 1 / np.sqrt(x),
    "v_exp": np.exp2,
    "v_log": np.log2,
}


@covers("v_rcp_f32", "v_rcp_iflag_f32", "v_sqrt_f32", "v_rsq_f32", "v_exp_f32", "v_log_f32")
def test_approximations_are_within_two_units_and_flush_denormals(amd: Executor) -> None:
    rng = np.random.default_rng(4)
    values = np.concatenate(
        [np.exp2(rng.uniform(-125, 127, 2000)), rng.uniform(-130, 130, 1000), special("f32").view(np.float32)]
    ).astype(np.float32)
    names = [*APPROXIMATE, "v_rcp_iflag"]
    found = batch(amd, [Op(f"{name}_f32 {{d}}, {{0}}") for name in names], [values])
    flushed = np.where(np.abs(values) < 2.0**-126, np.copysign(np.float32(0), values), values)
    for name, words in zip(names, found, strict=True):
        with np.errstate(all="ignore"):
            exact = APPROXIMATE[name.replace("_iflag", "")](flushed.astype(np.float64))
            wanted = exact.astype(np.float32)
            wanted = np.where(np.abs(exact) < 2.0**-126, np.copysign(np.float32(0), wanted), wanted)
        got = words[:, 0].view(np.float32)
        finite = np.isfinite(wanted) & (np.abs(exact) > 2.0**-125)
        assert np.array_equal(np.isnan(got), np.isnan(wanted)), name
        edges = ~finite & ~np.isnan(wanted) & ~((np.abs(exact) > 2.0**-127) & (np.abs(exact) < 2.0**-125))
        assert (got[edges] == wanted[edges]).all(), name
        assert (ulps(got[finite], exact[finite], np.spacing(np.abs(wanted[finite]))) <= 2).all(), name


@covers("v_rcp_f16", "v_sqrt_f16", "v_rsq_f16", "v_exp_f16", "v_log_f16")
def test_half_functions_are_within_one_unit_and_keep_denormals(amd: Executor) -> None:
    values = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)[::7].copy()
    found = batch(amd, [Op(f"{name}_f16 {{d}}.l, {{0}}.l", start=0) for name in APPROXIMATE], [values])
    real = values.view(np.float16)
    for (name, function), words in zip(APPROXIMATE.items(), found, strict=True):
        with np.errstate(all="ignore"):
            exact = function(real.astype(np.float64))
            wanted = exact.astype(np.float16)
        got = (words[:, 0] & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16)
        finite = np.isfinite(wanted)
        assert np.array_equal(np.isnan(got), np.isnan(wanted)), name
        assert (got[~finite & ~np.isnan(wanted)] == wanted[~finite & ~np.isnan(wanted)]).all(), name
        assert (
            ulps(got[finite], exact[finite], np.spacing(np.abs(wanted[finite]).astype(np.float16))) <= 1
        ).all(), name


@covers("v_sqrt_f64", "v_rsq_f64")
def test_f64_seeds_are_good_to_28_bits(amd: Executor) -> None:
    rng = np.random.default_rng(4)
    values = np.concatenate([np.exp2(rng.uniform(-1000, 1000, 300)), [0.0, -0.0, np.inf, np.nan, -1.0]])
    found = batch(amd, [Op(f"v_{n}_f64 {{d}}, {{0}}", 2) for n in ("sqrt", "rsq", "rcp")], [values])
    functions = (np.sqrt, lambda x: 1 / np.sqrt(x), lambda x: 1 / x)
    with np.errstate(all="ignore"):
        for words, function in zip(found, functions, strict=True):
            got = np.ascontiguousarray(words).view(np.float64)[:, 0]
            assert np.allclose(got, function(values), rtol=2.0**-28, atol=0, equal_nan=True)


@covers("v_sin_f32", "v_cos_f32", "v_sin_f16", "v_cos_f16")
def test_angles_are_in_turns(amd: Executor) -> None:
    turns = np.concatenate([np.linspace(-4, 4, 1001), [200.125, -255.75, 0.0, -0.0]]).astype(np.float32)
    half = turns.astype(np.float16)
    texts = ["v_sin_f32 {d}, {0}", "v_cos_f32 {d}, {0}", "v_sin_f16 {d}.l, {1}.l", "v_cos_f16 {d}.l, {1}.l"]
    found = batch(amd, [Op(t, start=None if "f32" in t else 1) for t in texts], [turns, half])
    for words, function in zip(found[:2], (np.sin, np.cos), strict=True):
        exact = function(2 * np.pi * turns.astype(np.float64))
        assert np.abs(words[:, 0].view(np.float32) - exact).max() < 3e-7
    for words, function in zip(found[2:], (np.sin, np.cos), strict=True):
        got = (words[:, 0] & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16)
        assert np.abs(got - function(2 * np.pi * half.astype(np.float64))).max() < 6e-4


def test_angles_beyond_256_turns_give_0_and_1_and_infinity_gives_nan(amd: Executor) -> None:
    turns = np.array([256.5, -1e9, np.inf, -np.inf, np.nan], np.float32)
    sine, cosine = batch(amd, [Op("v_sin_f32 {d}, {0}"), Op("v_cos_f32 {d}, {0}")], [turns])
    assert sine[:2, 0].view(np.float32).tolist() == [0, 0]
    assert cosine[:2, 0].view(np.float32).tolist() == [1, 1]
    assert np.isnan(sine[2:, 0].view(np.float32)).all() and np.isnan(cosine[2:, 0].view(np.float32)).all()


@covers("v_trig_preop_f64")
def test_trig_preop_gives_slices_of_two_over_pi(amd: Executor) -> None:
    digits = int(
        "3141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825342117067982148"
    )
    pi = Fraction(digits, 10 ** (len(str(digits)) - 1))
    values = np.array([1.0, 2.0**60, 2.0**80, 2.0**200, 2.0**950])
    for segment in (0, 1, 2, 3):
        (words,) = batch(amd, [Op(f"v_trig_preop_f64 {{d}}, {{0}}, {segment}", 2)], [values])
        got = np.ascontiguousarray(words).view(np.float64)[:, 0]
        for value, found in zip(values.tolist(), got.tolist(), strict=True):
            exponent = int(np.frexp(value)[1]) - 1 + 1023
            shift = 53 * segment + max(exponent - 1077, 0)
            if shift > 240:
                continue  # beyond the digits of pi here
            chunk = int(2 / pi * Fraction(2) ** (53 + shift)) & (1 << 53) - 1
            scale = -53 - shift + (128 if exponent >= 1968 else 0)
            assert Fraction(found) == chunk * Fraction(2) ** scale


def test_exact_references() -> None:
    assert Rules(F32).square_root(0x40000000) == int(np.sqrt(np.float32(2)).view(np.uint32))
    assert Rules(F32).divide(0x3F800000, 0x40400000) == int((np.float32(1) / np.float32(3)).view(np.uint32))
