"""Moves and conversions: category 1."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from virtual.isa.ir3.harness import (
    FLOATS16,
    FLOATS32,
    INTEGERS16,
    INTEGERS32,
    Array,
    Rows,
    covers,
    crossed,
    same,
    same_floats,
    words,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

ROUNDINGS = {"": "zero", "(even)": "even", "(pos_infinity)": "up", "(neg_infinity)": "down"}
SPECIAL = {"f32": FLOATS32, "f16": FLOATS16, "u32": INTEGERS32, "s32": INTEGERS32, "u16": INTEGERS16,
           "s16": INTEGERS16}  # fmt: skip


def _register(kind: str, name: str) -> str:
    return name if kind.endswith("32") and kind != "u8_32" else f"h{name}"


def _numbers(kind: str, bits: Array) -> list[float | int]:
    """Return what the bits mean as a type."""
    if kind[0] == "f":
        return [float(x) for x in bits.view(f"f{int(kind[1:]) // 8}")]
    width = int(kind[1:])
    return [int(x) - (1 << width) if kind[0] == "s" and int(x) >> width - 1 else int(x) for x in bits]


def _rounded_integer(value: float, how: str) -> int:
    exact = Fraction(value)
    if how == "zero":
        return math.trunc(exact)
    if how == "up":
        return math.ceil(exact)
    if how == "down":
        return math.floor(exact)
    return round(exact)  # Python rounds halves to even


def _to_integer(value: float, kind: str, how: str) -> int:
    width = int(kind[1:])
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if kind[0] == "s" else (0, (1 << width) - 1)
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return (high if value > 0 else low) & ((1 << width) - 1)
    return min(max(_rounded_integer(value, how), low), high) & ((1 << width) - 1)


def _to_float(value: float | int, kind: str, how: str) -> float:
    """Return the float of ``kind`` to which a number rounds, by comparing neighbours exactly."""
    dtype = np.float16 if kind == "f16" else np.float32
    if isinstance(value, float) and (math.isnan(value) or math.isinf(value)):
        return value
    nearest = dtype(np.float64(value))  # all these numbers are exact as doubles
    exact = Fraction(value)

    def above(x: np.floating) -> bool:
        return bool(x > 0) if np.isinf(x) else Fraction(float(x)) > exact

    def below(x: np.floating) -> bool:
        return bool(x < 0) if np.isinf(x) else Fraction(float(x)) < exact

    down = how == "down" or (how == "zero" and exact > 0)
    up = how == "up" or (how == "zero" and exact < 0)
    if down and above(nearest):
        nearest = np.nextafter(nearest, dtype(-np.inf))
    elif up and below(nearest):
        nearest = np.nextafter(nearest, dtype(np.inf))
    return float(nearest)


@covers("cov")
@pytest.mark.parametrize("source", list(SPECIAL))
def test_conversions_between_all_types_follow_the_rounding_mode(rows: Rows, source: str) -> None:
    bits = crossed(SPECIAL[source], 1)[0]
    place, lines, cases = _register(source, "r1.x"), ["(sy)nop"], []
    for n, (target, how) in enumerate((t, h) for t in SPECIAL if t != source for h in ROUNDINGS):
        result = _register(target, f"r{4 + n}.x")
        lines.append(f"cov.{source}{target} {how}{result}, {place}")
        cases.append((target, ROUNDINGS[how], result))
    results = rows("\n".join(lines), {place: bits}, [result for _, _, result in cases])
    numbers = _numbers(source, bits)
    for target, how, result in cases:
        if target[0] == "f":
            dtype = np.float16 if target == "f16" else np.float32
            same_floats(results[result], np.array([_to_float(x, target, how) for x in numbers], dtype))
        elif source[0] == "f":
            same(results[result], np.array([_to_integer(float(x), target, how) for x in numbers], np.int64))
        else:
            same(
                results[result], np.array([int(x) & ((1 << int(target[1:])) - 1) for x in numbers], np.int64)
            )


@covers("cov")
def test_conversions_from_bytes_extend_by_sign_and_those_to_bytes_cut_off(rows: Rows) -> None:
    half, full = crossed(INTEGERS16, 1)[0], crossed(INTEGERS32, 1)[0]
    body = """
        (sy)cov.u8u32 r2.x, hr1.x
        cov.u8u16 hr2.y, hr1.x
        cov.u8f32 r2.z, hr1.x
        cov.u16u8 hr2.w, hr1.x
        cov.u32u8 hr3.x, r1.x
    """
    outputs = ["r2.x", "hr2.y", "r2.z", "hr2.w", "hr3.x"]
    results = rows(body, {"hr1.x": half, "r1.x": full}, outputs)
    low = half.astype(np.uint8).view(np.int8)
    same(results["r2.x"], low.astype(np.int64) & 0xFFFFFFFF)
    same(results["hr2.y"], low.astype(np.int64) & 0xFFFF)
    same_floats(results["r2.z"], low.astype(np.float32))
    same(results["hr2.w"], half & 0xFF)
    same(results["hr3.x"], full & 0xFF)


@covers("mov")
def test_moves_keep_every_bit(rows: Rows) -> None:
    full, half = crossed(FLOATS32, 1)[0], crossed(FLOATS16, 1)[0]
    full[0], half[0] = 0x7F800001, 0x7C01  # signalling NaNs
    body = """
        (sy)mov.f32f32 r2.x, r1.x
        mov.u32u32 r2.y, r1.x
        mov.s32s32 r2.z, r1.x
        mov.f16f16 hr2.x, hr1.x
        mov.u16u16 hr2.y, hr1.x
        mov.s16s16 hr2.z, hr1.x
    """
    places = [f"{r}2.{c}" for r in ("r", "hr") for c in "xyz"]
    results = rows(body, {"r1.x": full, "hr1.x": half}, places)
    for place in places:
        same(results[place], half if place.startswith("h") else full)


@covers("mov")
def test_immediates_fill_registers(rows: Rows) -> None:
    body = """
        mov.u32u32 r2.x, 0xdeadbeef
        mov.s32s32 r2.y, -5
        mov.f32f32 r2.z, (1.500000)
        mov.u16u16 hr2.x, 0xbeef
        mov.s16s16 hr2.y, 1234
        mov.f16f16 hr2.z, h(1.500000)
    """
    results = rows(body, {}, ["r2.x", "r2.y", "r2.z", "hr2.x", "hr2.y", "hr2.z"])
    assert {name: int(values[0]) for name, values in results.items()} == {
        "r2.x": 0xDEADBEEF,
        "r2.y": 0xFFFFFFFB,
        "r2.z": int(np.float32(1.5).view(np.uint32)),
        "hr2.x": 0xBEEF,
        "hr2.y": 1234,
        "hr2.z": int(np.float16(1.5).view(np.uint16)),
    }


@covers("mov", "cov")
def test_constants_move_and_convert(rows: Rows) -> None:
    body = """
        mov.u32u32 r2.x, c0.y
        cov.s32f32 (even)r2.y, c0.z
        cov.f32s32 r2.z, c0.w
        mov.f16f16 hr2.x, hc0.w
    """
    constants = words(1, 0xCAFE, -7, int(np.float32(-3.75).view(np.uint32)))
    results = rows(body, {}, ["r2.x", "r2.y", "r2.z", "hr2.x"], constants=constants)
    assert int(results["r2.x"][0]) == 0xCAFE
    assert results["r2.y"].view(np.float32)[0] == -7
    assert results["r2.z"].view(np.int32)[0] == -3
    assert results["hr2.x"].view(np.float16)[0] == np.float16(-3.75)


@covers("swz", "gat", "sct")
def test_several_moves_in_one_read_before_they_write(rows: Rows) -> None:
    a, b, c, d = crossed(INTEGERS32, 4)
    body = """
        (sy)swz.u32u32 r1.x, r1.y, r1.y, r1.x
        gat.u32u32 r2.x, r1.w, r1.z, r1.y, r1.x
        sct.u32u32 r3.x, r3.z, r3.y, r3.w, r2.x
    """
    places = [f"r{n}.{x}" for n in (1, 2, 3) for x in "xyzw"]
    inputs = dict(zip(["r1.x", "r1.y", "r1.z", "r1.w"], (a, b, c, d), strict=True))
    results = rows(body, inputs, places)
    for place, expected in zip(places, (b, a, c, d, d, c, a, b, d, a, c, b), strict=True):
        same(results[place], expected)


@covers("swz", "gat", "sct")
def test_several_moves_in_one_can_convert(rows: Rows) -> None:
    a, b, c, d = crossed(FLOATS32, 4)
    body = """
        (sy)gat.f32s32 r2.x, r1.x, r1.y, r1.z, r1.w
        sct.f32f16 hr3.x, hr3.y, hr3.z, hr3.w, r1.x
        swz.f32u32 r4.x, r4.y, r1.x, r1.y
    """
    inputs = dict(zip(["r1.x", "r1.y", "r1.z", "r1.w"], (a, b, c, d), strict=True))
    places = [f"r2.{x}" for x in "xyzw"] + [f"hr3.{x}" for x in "xyzw"] + ["r4.x", "r4.y"]
    results = rows(body, inputs, places)
    for k, column in enumerate((a, b, c, d)):
        numbers = _numbers("f32", column)
        same(results[f"r2.{'xyzw'[k]}"], np.array([_to_integer(float(x), "s32", "zero") for x in numbers]))
        half = np.array([_to_float(x, "f16", "zero") for x in numbers], np.float16)
        same_floats(results[f"hr3.{'xyzw'[k]}"], half)
        if k < 2:
            same(results[f"r4.{'xy'[k]}"], np.array([_to_integer(float(x), "u32", "zero") for x in numbers]))
