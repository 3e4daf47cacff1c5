"""How far the vector polynomials are from the exact values, over their whole ranges."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from ringfence.virtual.isa import functions, jit, simt

LANES = 8
Compute = Callable[[simt.Emitter, str], str]


def compiled(compute: Compute) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function of float32 arrays whose size is a multiple of the lanes."""
    e = simt.Emitter(LANES)
    e.line(f"%x = load {e.f32}, ptr %a, align 4")
    e.line(f"store {e.f32} {compute(e, '%x')}, ptr %b, align 4")
    body, declarations = "\n".join(e.lines), "\n".join(e.declarations.values())
    text = f"define void @f(ptr %a, ptr %b) {{\n{body}\nret void\n}}\n{declarations}"
    loader = jit.Loader()
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
        loader.load("f", jit.compile_ir(text), "f")
    )

    def run(x: np.ndarray) -> np.ndarray:
        result = np.zeros_like(x)
        for k in range(0, len(x), LANES):
            call(x.ctypes.data + 4 * k, result.ctypes.data + 4 * k)
        assert loader is not None  # the code lives as long as its loader
        return result

    return run


def ulps(actual: np.ndarray, exact: np.ndarray) -> float:
    """Return the largest error in units of the last place of the exact value."""
    spacing = np.spacing(np.maximum(np.abs(exact), np.finfo(np.float32).tiny).astype(np.float32))
    return float(np.max(np.abs(actual.astype(np.float64) - exact) / spacing))


RANDOM = np.random.default_rng(0)


def test_exp2_is_within_two_units() -> None:
    x = np.sort(RANDOM.uniform(-126, 127, 1 << 14)).astype(np.float32)
    assert ulps(compiled(functions.exp2)(x), np.exp2(x.astype(np.float64))) < 2


def test_exp2_of_whole_numbers_is_exact_down_to_the_smallest_denormal() -> None:
    x = np.arange(-152, 136, dtype=np.float32)
    with np.errstate(over="ignore"):
        expected = np.exp2(x.astype(np.float64)).astype(np.float32)
    assert np.array_equal(compiled(functions.exp2)(x), expected)


def test_log2_is_within_two_units_or_close_to_zero() -> None:
    x = np.exp2(RANDOM.uniform(-126, 127, 1 << 14)).astype(np.float32)
    exact = np.log2(x.astype(np.float64))
    far = np.abs(exact) > 0.5
    result = compiled(functions.log2)(x)
    assert ulps(result[far], exact[far]) < 2
    assert np.abs(result - exact)[~far].max(initial=0) < 1e-7


def test_log2_of_powers_of_two_and_denormals_is_exact() -> None:
    x = np.exp2(np.arange(-144, 128, dtype=np.float64)).astype(np.float32)
    assert np.array_equal(compiled(functions.log2)(x), np.arange(-144, 128, dtype=np.float32))


@pytest.mark.parametrize(("quarter", "exact"), [(0, np.sin), (1, np.cos)])
def test_sine_and_cosine_have_a_small_absolute_error(
    quarter: int, exact: Callable[[np.ndarray], np.ndarray]
) -> None:
    run = compiled(lambda e, x: functions.sincos(e, x, quarter))
    for limit, allowed in ((np.pi, 2e-7), (1e3, 3e-7), (1e4, 2e-6)):
        x = RANDOM.uniform(-limit, limit, 1 << 13).astype(np.float32)
        assert np.abs(run(x) - exact(x.astype(np.float64))).max() < allowed


def test_special_values() -> None:
    x = np.array([0, -0.0, np.inf, -np.inf, np.nan, -1, 1e-45, 3.4e38], np.float32)
    exp2, log2 = compiled(functions.exp2)(x), compiled(functions.log2)(x)
    assert exp2[:4].tolist() == [1, 1, np.inf, 0] and np.isnan(exp2[4])
    assert log2[:3].tolist() == [-np.inf, -np.inf, np.inf] and np.isnan(log2[3:6]).all() and log2[6] == -149
    sine = compiled(lambda e, v: functions.sincos(e, v, 0))(x)
    assert sine[0] == 0 and np.isnan(sine[2:5]).all()
