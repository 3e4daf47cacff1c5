"""Float arithmetic: categories 2, 3 and 4 against numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from virtual.isa.ir3.harness import FLOATS16, FLOATS32, Array, Rows, covers, crossed, same, same_floats

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add.f": lambda a, b: a + b,
    "mul.f": lambda a, b: a * b,
    "min.f": np.fmin,
    "max.f": np.fmax,
}
UNARY: dict[str, Callable[[Array], Array]] = {
    "sign.f": lambda a: np.where(np.isnan(a), a.dtype.type(0), np.sign(a)),
    "absneg.f": lambda a: a,
    "floor.f": np.floor,
    "ceil.f": np.ceil,
    "rndne.f": np.rint,
    "rndaz.f": lambda a: np.copysign(np.floor(np.abs(a).astype(np.float64) + 0.5), a).astype(a.dtype),
    "trunc.f": np.trunc,
}


def _compute(name: str, a: Array, b: Array) -> Array:
    return BINARY[name](a, b) if name in BINARY else UNARY[name](a)


def _saturated(value: Array) -> Array:
    return np.where(np.isnan(value), 0, np.clip(value, 0, 1)).astype(value.dtype)


def _program(source: str, target: str, prefix: str = "") -> tuple[str, dict[str, str]]:
    """Return one instruction per name and the register that holds its result."""
    lines, places = ["(sy)nop"], {}
    for k, name in enumerate([*BINARY, *UNARY]):
        places[name] = f"{target}{10 + k}.x"
        second = f", {source}1.y" if name in BINARY else ""
        lines.append(f"{prefix}{name} {places[name]}, {source}1.x{second}")
    return "\n".join(lines), places


def _same_but_zero(actual: Array, expected: Array) -> None:
    """Which zero min.f, max.f and (sat) return for zeros of both signs is not specified."""
    values = actual.view(expected.dtype)
    zero = (values == 0) & (expected == 0)
    same_floats(np.where(zero, expected, values), expected)


@covers(*BINARY, *UNARY)
def test_full_registers_compute_in_single_precision(rows: Rows) -> None:
    a, b = crossed(FLOATS32, 2)
    body, places = _program("r", "r")
    results = rows(body, {"r1.x": a, "r1.y": b}, list(places.values()))
    for name, place in places.items():
        _same_but_zero(results[place], _compute(name, a.view(np.float32), b.view(np.float32)))


@covers(*BINARY, *UNARY)
def test_half_registers_compute_in_half_precision_and_round_once(rows: Rows) -> None:
    a, b = crossed(FLOATS16, 2)
    body, places = _program("hr", "hr")
    results = rows(body, {"hr1.x": a, "hr1.y": b}, list(places.values()))
    for name, place in places.items():
        _same_but_zero(results[place], _compute(name, a.view(np.float16), b.view(np.float16)))


@covers(*BINARY, *UNARY)
def test_a_half_destination_rounds_the_single_precision_result(rows: Rows) -> None:
    a, b = crossed(FLOATS32, 2)
    body, places = _program("r", "hr")
    results = rows(body, {"r1.x": a, "r1.y": b}, list(places.values()))
    for name, place in places.items():
        expected = _compute(name, a.view(np.float32), b.view(np.float32)).astype(np.float16)
        _same_but_zero(results[place], expected)


@covers(*BINARY, *UNARY)
def test_a_full_destination_extends_the_half_precision_result(rows: Rows) -> None:
    a, b = crossed(FLOATS16, 2)
    body, places = _program("hr", "r")
    results = rows(body, {"hr1.x": a, "hr1.y": b}, list(places.values()))
    for name, place in places.items():
        expected = _compute(name, a.view(np.float16), b.view(np.float16)).astype(np.float32)
        _same_but_zero(results[place], expected)


@covers(*BINARY, *UNARY)
@pytest.mark.parametrize(("source", "special"), [("r", FLOATS32), ("hr", FLOATS16)])
def test_sat_clamps_to_zero_and_one_and_turns_nan_into_zero(rows: Rows, source: str, special: Array) -> None:
    a, b = crossed(special, 2)
    body, places = _program(source, source, "(sat)")
    results = rows(body, {f"{source}1.x": a, f"{source}1.y": b}, list(places.values()))
    for name, place in places.items():
        expected = _saturated(_compute(name, a.view(special.dtype), b.view(special.dtype)))
        _same_but_zero(results[place], expected)


@covers("mad.f32")
def test_mad_f32_rounds_the_product_before_the_sum(rows: Rows) -> None:
    a, b, c = crossed(FLOATS32, 3)
    inputs = {"r1.x": a, "r1.y": b, "r1.z": c}
    body = """
        (sy)mad.f32 r2.x, r1.x, r1.y, r1.z
        mad.f32 r2.y, (neg)r1.x, r1.y, (neg)r1.z
        (sat)mad.f32 r2.z, r1.x, r1.y, r1.z
        mad.f32 hr2.x, r1.x, r1.y, r1.z
    """
    results = rows(body, inputs, ["r2.x", "r2.y", "r2.z", "hr2.x"])
    x, y, z = (v.view(np.float32) for v in (a, b, c))
    same_floats(results["r2.x"], x * y + z)
    same_floats(results["r2.y"], -x * y - z)
    _same_but_zero(results["r2.z"], _saturated(x * y + z))
    same_floats(results["hr2.x"], (x * y + z).astype(np.float16))


@covers("mad.f16")
def test_mad_f16_rounds_the_product_to_half_before_the_sum(rows: Rows) -> None:
    a, b, c = crossed(FLOATS16, 3)
    inputs = {"hr1.x": a, "hr1.y": b, "hr1.z": c}
    body = """
        (sy)mad.f16 hr2.x, hr1.x, hr1.y, hr1.z
        mad.f16 hr2.y, (neg)hr1.x, hr1.y, (neg)hr1.z
        mad.f16 r2.x, hr1.x, hr1.y, hr1.z
    """
    results = rows(body, inputs, ["hr2.x", "hr2.y", "r2.x"])
    x, y, z = (v.view(np.float16) for v in (a, b, c))
    same_floats(results["hr2.x"], x * y + z)
    same_floats(results["hr2.y"], -x * y - z)
    same_floats(results["r2.x"], (x * y + z).astype(np.float32))


@covers("sel.f32", "sel.f16")
@pytest.mark.parametrize(("name", "r", "special"), [("sel.f32", "r", FLOATS32), ("sel.f16", "hr", FLOATS16)])
def test_sel_f_takes_the_first_where_the_condition_is_not_negative(
    rows: Rows, name: str, r: str, special: Array
) -> None:
    condition, a, b = crossed(special, 3)
    body = f"""
        (sy){name} {r}2.x, {r}1.y, {r}1.x, {r}1.z
        {name} {r}2.y, (neg){r}1.y, (neg){r}1.x, {r}1.z
    """
    results = rows(body, {f"{r}1.x": condition, f"{r}1.y": a, f"{r}1.z": b}, [f"{r}2.x", f"{r}2.y"])
    c, x, y = (v.view(special.dtype) for v in (condition, a, b))
    same_floats(results[f"{r}2.x"], np.where(c >= 0, x, y))
    same_floats(results[f"{r}2.y"], np.where(-c >= 0, -x, y))


COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}


@covers("cmps.f", "cmpv.f")
@pytest.mark.parametrize(("r", "special", "ones"), [("r", FLOATS32, 0xFFFFFFFF), ("hr", FLOATS16, 0xFFFF)])
def test_comparisons_with_nan_are_false_except_ne(rows: Rows, r: str, special: Array, ones: int) -> None:
    a, b = crossed(special, 2)
    lines = ["(sy)nop"]
    for k, condition in enumerate(COMPARISONS):
        lines.append(f"cmps.f.{condition} {r}{4 + k}.x, {r}1.x, {r}1.y")
        lines.append(f"cmpv.f.{condition} {r}{4 + k}.y, {r}1.x, {r}1.y")
        lines.append(f"(sat)cmps.f.{condition} {r}{4 + k}.z, {r}1.x, {r}1.y")
        lines.append(f"(sat)cmpv.f.{condition} {r}{4 + k}.w, {r}1.x, {r}1.y")
    places = [f"{r}{4 + k}.{c}" for k in range(6) for c in "xyzw"]
    results = rows("\n".join(lines), {f"{r}1.x": a, f"{r}1.y": b}, places)
    for k, compare in enumerate(COMPARISONS.values()):
        hit = compare(a.view(special.dtype), b.view(special.dtype))
        same(results[f"{r}{4 + k}.x"], hit.astype(np.uint32))
        same(results[f"{r}{4 + k}.y"], np.where(hit, ones, 0))
        same(results[f"{r}{4 + k}.z"], (~hit).astype(np.uint32))
        same(results[f"{r}{4 + k}.w"], np.where(hit, 0, ones))


@covers("cmps.f", "cmpv.f")
def test_comparison_results_of_another_size_are_cut_or_zero_extended(rows: Rows) -> None:
    a, b = crossed(FLOATS32, 2)
    h, g = crossed(FLOATS16, 2)
    body = """
        (sy)cmps.f.lt hr4.x, r1.x, r1.y
        cmpv.f.lt hr4.y, r1.x, r1.y
        cmps.f.lt r4.x, hr1.x, hr1.y
        cmpv.f.lt r4.y, hr1.x, hr1.y
    """
    inputs = {"r1.x": a, "r1.y": b, "hr1.x": h, "hr1.y": g}
    results = rows(body, inputs, ["hr4.x", "hr4.y", "r4.x", "r4.y"])
    full, half = a.view(np.float32) < b.view(np.float32), h.view(np.float16) < g.view(np.float16)
    same(results["hr4.x"], full.astype(np.uint16))
    same(results["hr4.y"], np.where(full, 0xFFFF, 0))
    same(results["r4.x"], half.astype(np.uint32))
    same(results["r4.y"], np.where(half, 0xFFFF, 0))


# --- category 4 ---

TRANSCENDENTAL: dict[str, Callable[[Array], Array]] = {
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / np.sqrt(x),
    "hrsq": lambda x: 1 / np.sqrt(x),
    "log2": np.log2,
    "hlog2": np.log2,
    "exp2": np.exp2,
    "hexp2": np.exp2,
    "sin": np.sin,
    "cos": np.cos,
    "sqrt": np.sqrt,
}


def _arguments(name: str, special: Array) -> Array:
    """Return arguments in the range for which an approximation is meant, and special values."""
    rng = np.random.default_rng(1)
    spread = rng.uniform(-60, 60, 1024 - len(special))
    narrow = special.itemsize == 2
    wide = spread if name in ("sin", "cos", "exp2", "hexp2") else np.exp2(spread / (4 if narrow else 1))
    values = np.concatenate([special.astype(np.float64), wide]).astype(special.dtype)
    if name in ("sin", "cos"):
        values = np.where(np.abs(values) > 1e4, special.dtype.type(1), values)
    return values


def _near(actual: Array, expected: Array, relative: float, tiny: float) -> None:
    """Assert agreement up to a relative error, below ``tiny`` an absolute one; other values exactly."""
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    special = ~np.isfinite(b)
    assert np.array_equal(np.where(np.isnan(a), 7, a)[special], np.where(np.isnan(b), 7, b)[special])
    error = np.abs(a - b)[~special]
    allowed = relative * np.maximum(np.abs(b[~special]), tiny)
    assert (error <= allowed).all(), (error / allowed).max()


@covers(*TRANSCENDENTAL)
@pytest.mark.parametrize(("r", "special", "relative"), [("r", FLOATS32, 4e-7), ("hr", FLOATS16, 1e-3)])
def test_transcendental_functions_are_close_to_the_exact_value(
    rows: Rows, r: str, special: Array, relative: float
) -> None:
    names = list(TRANSCENDENTAL)
    arguments = {f"{r}{4 + k}.x": _arguments(name, special) for k, name in enumerate(names)}
    lines = ["(sy)nop"] + [f"{name} {r}{4 + k}.y, {r}{4 + k}.x" for k, name in enumerate(names)]
    inputs = {place: x.view(f"u{x.itemsize}") for place, x in arguments.items()}
    results = rows("\n".join(lines), inputs, [f"{r}{4 + k}.y" for k in range(len(names))])
    for k, name in enumerate(names):
        with np.errstate(all="ignore"):
            exact = TRANSCENDENTAL[name](arguments[f"{r}{4 + k}.x"].astype(np.float64))
            expected = exact.astype(special.dtype)
        tiny = 1.0 if name in ("sin", "cos", "log2", "hlog2") else float(np.finfo(special.dtype).tiny)
        _near(results[f"{r}{4 + k}.y"].view(special.dtype), expected, relative, tiny)


@covers("rcp", "sqrt")
def test_category_4_takes_modifiers_saturation_and_other_destinations(rows: Rows) -> None:
    a = crossed(FLOATS32, 1)[0]
    body = """
        (sy)rcp r2.x, (neg)r1.x
        sqrt r2.y, (abs)r1.x
        (sat)rcp r2.z, r1.x
        rcp hr2.x, r1.x
    """
    results = rows(body, {"r1.x": a}, ["r2.x", "r2.y", "r2.z", "hr2.x"])
    x = a.view(np.float32)
    same_floats(results["r2.x"], 1 / -x)
    same_floats(results["r2.y"], np.sqrt(np.abs(x)))
    _same_but_zero(results["r2.z"], _saturated(1 / x))
    same_floats(results["hr2.x"], (1 / x).astype(np.float16))
