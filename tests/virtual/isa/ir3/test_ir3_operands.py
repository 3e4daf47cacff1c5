"""Operands: modifiers, immediates, constants, shared and merged registers, repeats, relative addressing."""

from __future__ import annotations

import numpy as np
import pytest

from ringfence.hardware.adreno.ir3 import FLUT
from virtual.isa.ir3.harness import (
    FLOATS16,
    FLOATS32,
    INTEGERS16,
    INTEGERS32,
    Rows,
    covers,
    crossed,
    same,
    same_floats,
    words,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


# --- modifiers ---


@pytest.mark.parametrize(("r", "special"), [("r", FLOATS32), ("hr", FLOATS16)])
def test_float_sources_are_negated_and_made_absolute(rows: Rows, r: str, special: np.ndarray) -> None:
    a, b = crossed(special, 2)
    body = f"""
        (sy)add.f {r}2.x, (neg){r}1.x, {r}1.y
        add.f {r}2.y, (abs){r}1.x, {r}1.y
        add.f {r}2.z, (absneg){r}1.x, {r}1.y
        absneg.f {r}2.w, (neg){r}1.x
    """
    results = rows(body, {f"{r}1.x": a, f"{r}1.y": b}, [f"{r}2.{c}" for c in "xyzw"])
    x, y = a.view(special.dtype), b.view(special.dtype)
    for c, expected in zip("xyzw", (-x + y, np.abs(x) + y, -np.abs(x) + y, -x), strict=True):
        same_floats(results[f"{r}2.{c}"], expected)


@pytest.mark.parametrize(("r", "special"), [("r", INTEGERS32), ("hr", INTEGERS16)])
def test_integer_sources_are_negated_and_made_absolute_modulo_the_width(
    rows: Rows, r: str, special: np.ndarray
) -> None:
    a, b = crossed(special, 2)
    body = f"""
        (sy)add.s {r}2.x, (neg){r}1.x, {r}1.y
        add.s {r}2.y, (abs){r}1.x, {r}1.y
        absneg.s {r}2.z, (absneg){r}1.x
        max.s {r}2.w, (neg){r}1.x, {r}1.y
    """
    results = rows(body, {f"{r}1.x": a, f"{r}1.y": b}, [f"{r}2.{c}" for c in "xyzw"])
    signed = a.view(f"i{special.itemsize}")
    absolute = np.abs(signed).view(a.dtype)
    same(results[f"{r}2.x"], b - a)
    same(results[f"{r}2.y"], absolute + b)
    same(results[f"{r}2.z"], np.zeros_like(a) - absolute)
    largest = np.maximum((np.zeros_like(a) - a).view(signed.dtype), b.view(signed.dtype))
    same(results[f"{r}2.w"], largest.view(a.dtype))


@pytest.mark.parametrize(("r", "special"), [("r", INTEGERS32), ("hr", INTEGERS16)])
def test_bit_operations_take_the_complement_where_others_negate(
    rows: Rows, r: str, special: np.ndarray
) -> None:
    a, b = crossed(special, 2)
    body = (
        f"(sy)and.b {r}2.x, (neg){r}1.x, {r}1.y\nor.b {r}2.y, {r}1.x, (neg){r}1.y\nnot.b {r}2.z, (neg){r}1.x"
    )
    results = rows(body, {f"{r}1.x": a, f"{r}1.y": b}, [f"{r}2.{c}" for c in "xyz"])
    same(results[f"{r}2.x"], ~a & b)
    same(results[f"{r}2.y"], a | ~b)
    same(results[f"{r}2.z"], a)


# --- immediates and constants ---


def test_immediates_are_signed_and_have_the_width_of_the_operation(rows: Rows) -> None:
    full, half = crossed(INTEGERS32, 1)[0], crossed(INTEGERS16, 1)[0]
    body = """
        (sy)add.u r2.x, r1.x, -3
        add.u hr2.x, hr1.x, -3
        and.b r2.y, r1.x, 255
        cmps.u.lt r2.z, r1.x, -1
    """
    results = rows(body, {"r1.x": full, "hr1.x": half}, ["r2.x", "hr2.x", "r2.y", "r2.z"])
    same(results["r2.x"], full - np.uint32(3))
    same(results["hr2.x"], half - np.uint16(3))
    same(results["r2.y"], full & 255)
    same(results["r2.z"], full < 0xFFFFFFFF)


def test_the_table_of_float_immediates_is_exact_in_both_precisions(rows: Rows) -> None:
    full, half = np.zeros(64, np.uint32), np.zeros(64, np.uint16)
    lines, places = ["(sy)nop"], []
    for k, (text, _) in enumerate(FLUT):
        lines += [f"add.f r{4 + k}.x, r1.x, ({text})", f"add.f hr{4 + k}.x, hr1.x, h({text})"]
        places += [f"r{4 + k}.x", f"hr{4 + k}.x"]
    results = rows("\n".join(lines), {"r1.x": full, "hr1.x": half}, places)
    for k, (_, value) in enumerate(FLUT):
        assert results[f"r{4 + k}.x"].view(np.float32)[0] == np.float32(value)
        assert results[f"hr{4 + k}.x"].view(np.float16)[0] == np.float16(value)


def test_demoted_half_constants_are_32_bit_words(rows: Rows) -> None:
    """Floats are rounded to half precision, integers lose their high half."""
    half = np.array([np.float16(2.0).view(np.uint16)] * 64)
    constants = words(0, 0x12345678, int(np.float32(0.1).view(np.uint32)))
    body = "(sy)mul.f hr2.x, hr1.x, hc0.z\nadd.u hr2.y, hr1.x, hc0.y"
    results = rows(body, {"hr1.x": half}, ["hr2.x", "hr2.y"], constants=constants)
    assert results["hr2.x"].view(np.float16)[0] == np.float16(2) * np.float16(0.1)
    assert results["hr2.y"][0] == (0x5678 + int(half[0])) & 0xFFFF


def test_half_constants_without_demotion_are_packed_in_pairs(rows: Rows) -> None:
    half = np.array([np.float16(2.0).view(np.uint16)] * 64)
    low, high = (int(np.float16(x).view(np.uint16)) for x in (1.5, -4.0))
    constants = words(0xDEAD, high << 16 | low)
    body = """
        (sy)mul.f hr2.x, hr1.x, hc0.z
        mul.f hr2.y, hr1.x, hc0.w
        mov.f16f16 hr2.z, hc0.w
        mov.u16u16 hr2.w, hc0.x
    """
    places = [f"hr2.{c}" for c in "xyzw"]
    results = rows(body, {"hr1.x": half}, places, constants=constants, demote_constants=False)
    assert [float(results[p].view(np.float16)[0]) for p in places[:3]] == [3.0, -8.0, -4.0]
    assert results["hr2.w"][0] == 0xDEAD


def test_constants_repeat_with_r(rows: Rows) -> None:
    a = np.arange(64, dtype=np.uint32)
    body = "(sy)(rpt3)add.u r2.x, (r)c1.x, r1.x"
    results = rows(
        body, {"r1.x": a}, [f"r2.{c}" for c in "xyzw"], constants=words(0, 0, 0, 0, 10, 20, 30, 40)
    )
    for k, c in enumerate("xyzw"):
        same(results[f"r2.{c}"], a + 10 * (k + 1))


# --- repetition ---


def test_a_repeated_instruction_steps_its_destination_and_the_marked_sources(rows: Rows) -> None:
    columns = dict(zip([f"r4.{c}" for c in "xyzw"], crossed(INTEGERS32, 4), strict=True))
    body = """
        (sy)(rpt3)add.u r2.x, (r)r4.x, r4.w
        (rpt2)mad.u24 r3.x, r4.x, (r)r4.x, (r)r4.y
        (rpt3)mov.u32u32 r5.x, (r)r4.x
        (rpt1)cmps.u.lt p0.y, (r)r4.x, r4.w
        (rpt5)nop
        (rpt3)mov.u32u32 r6.x, 0
        predt
        prede
    """
    places = [f"r{n}.{c}" for n in (2, 5) for c in "xyzw"] + [f"r3.{c}" for c in "xyz"]
    results = rows(body, columns, places)
    values = list(columns.values())
    for k, c in enumerate("xyzw"):
        same(results[f"r2.{c}"], values[k] + values[3])
        same(results[f"r5.{c}"], values[k])
    for k, c in enumerate("xyz"):
        product = (values[0].astype(np.int64) & 0xFFFFFF) * (values[k].astype(np.int64) & 0xFFFFFF)
        same(results[f"r3.{c}"], product + values[k + 1] & 0xFFFFFFFF)


def test_each_repetition_sees_what_the_one_before_wrote(rows: Rows) -> None:
    a = np.arange(64, dtype=np.uint32)
    results = rows("(sy)(rpt3)add.u r1.y, (r)r1.x, 1", {"r1.x": a}, [f"r1.{c}" for c in "xyzw"] + ["r2.x"])
    for k, place in enumerate(["r1.x", "r1.y", "r1.z", "r1.w", "r2.x"]):
        same(results[place], a + k)


# --- shared registers ---


def test_shared_registers_have_one_value_for_a_wave(rows: Rows) -> None:
    a = np.arange(128, dtype=np.uint32) + 7
    body = """
        (sy)mov.u32u32 r50.x, r1.x
        (ss)(nop3)add.u r2.x, r50.x, 1
        mov.u32u32 r50.y, c0.x
        (ss)(nop3)add.u r2.y, r50.y, r50.x
        cov.u32u16 hr2.x, r50.y
    """
    results = rows(body, {"r1.x": a}, ["r2.x", "r2.y", "hr2.x"], constants=words(0xABC00010))
    first = np.repeat(a[::64], 64)  # each wave takes the value of its first fiber
    same(results["r2.x"], first + 1)
    same(results["r2.y"], first + np.uint32(0xABC00010))
    same(results["hr2.x"], np.full(128, 0x10))


# --- merged registers ---


def test_merged_half_registers_are_the_halves_of_full_registers(rows: Rows) -> None:
    a, b = crossed(INTEGERS32, 2)
    body = """
        (sy)mov.u16u16 hr4.x, hr2.x
        mov.u16u16 hr4.y, hr2.y
        mov.u32u32 r5.x, r1.y
        add.u hr10.y, hr2.x, 1
        (rpt1)mov.u16u16 hr14.x, (r)hr2.z
    """
    results = rows(body, {"r1.x": a, "r1.y": b}, ["r2.x", "r5.x", "r7.x", "hr2.z"], merged=True)
    same(results["r2.x"], a)  # hr4.x and hr4.y
    same(results["r5.x"], (b & 0xFFFF) | ((a + 1 & 0xFFFF) << 16))  # hr10.y is its high half
    same(results["r7.x"], b)
    same(results["hr2.z"], b & 0xFFFF)


def test_separate_half_registers_are_registers_of_their_own(rows: Rows) -> None:
    a, h = crossed(INTEGERS32, 1)[0], crossed(INTEGERS16, 1)[0]
    results = rows("(sy)add.u hr1.x, hr1.x, 1", {"r0.w": a, "hr1.x": h}, ["r0.w", "hr1.x"])
    same(results["r0.w"], a)
    same(results["hr1.x"], h + np.uint16(1))


# --- relative addressing ---


@covers("mov")
def test_a0_selects_registers_by_lane(rows: Rows) -> None:
    rng = np.random.default_rng(3)
    index = rng.integers(0, 4, 256).astype(np.uint16)
    columns = {f"r{8 + k}.y": rng.integers(0, 1 << 32, 256, dtype=np.uint32) for k in range(4)}
    body = """
        (sy)shl.b hr2.x, hr1.x, 2
        (rpt2)nop
        mova a0.x, hr2.x
        (rpt5)nop
        mov.u32u32 r2.x, r<a0.x + 33>
        mov.u32u32 r<a0.x + 80>, r8.y
        (rpt2)nop
        mov.u32u32 r2.y, r20.x
        mov.u32u32 r2.z, r21.x
    """
    results = rows(body, {"hr1.x": index, **columns}, ["r2.x", "r2.y", "r2.z", "r23.x"])
    values = np.stack(list(columns.values()))
    same(results["r2.x"], values[index, np.arange(256)])
    for k, place in ((0, "r2.y"), (1, "r2.z"), (3, "r23.x")):
        hit = index == k
        same(results[place][hit], values[0][hit])


@covers("mov")
def test_a0_selects_half_registers_and_constants_by_lane(rows: Rows) -> None:
    rng = np.random.default_rng(4)
    index = rng.integers(0, 4, 256).astype(np.uint16)
    halves = {f"hr8.{c}": rng.integers(0, 1 << 16, 256).astype(np.uint16) for c in "xyzw"}
    body = """
        (sy)mova a0.x, hr1.x
        (rpt5)nop
        mov.u16u16 hr2.x, hr<a0.x + 32>
        mov.u32u32 r2.y, c<a0.x + 4>
        mov.u16u16 hr<a0.x + 64>, hr8.x
        mov.f16f16 hr2.z, hc<a0.x + 4>
    """
    floats = np.array([1.5, -2.0, 0.1, 65504.0], np.float32)
    constants = words(0, 0, 0, 0) + floats.tobytes()
    places = ["hr2.x", "r2.y", "hr2.z", *(f"hr16.{c}" for c in "xyzw")]
    results = rows(body, {"hr1.x": index, **halves}, places, constants=constants)
    values = np.stack(list(halves.values()))
    same(results["hr2.x"], values[index, np.arange(256)])
    same(results["r2.y"], floats.view(np.uint32)[index])
    same_floats(results["hr2.z"], floats[index].astype(np.float16))
    for k, c in enumerate("xyzw"):
        hit = index == k
        same(results[f"hr16.{c}"][hit], values[0][hit])


def test_relative_half_constants_without_demotion_are_packed_in_pairs(rows: Rows) -> None:
    index = (np.arange(64) % 4).astype(np.uint16)
    body = "(sy)mova a0.x, hr1.x\n(rpt5)nop\nmov.u16u16 hr2.x, hc<a0.x + 2>"
    constants = words(0, 0x22221111, 0x44443333)
    results = rows(body, {"hr1.x": index}, ["hr2.x"], constants=constants, demote_constants=False)
    same(results["hr2.x"], (index + 1) * 0x1111)


def test_relative_reads_of_merged_halves_find_their_half(rows: Rows) -> None:
    index = (np.arange(64) % 4).astype(np.uint32)
    a, b = (np.arange(64, dtype=np.uint32) + x for x in (0x1000_0000, 0x7000_2000))
    body = """
        (sy)cov.u32u16 hr4.x, r1.x
        (rpt2)nop
        mova a0.x, hr4.x
        (rpt5)nop
        mov.u16u16 hr6.x, hr<a0.x + 32>
    """
    results = rows(body, {"r1.x": index, "r4.x": a, "r4.y": b}, ["hr6.x"], merged=True)
    halves = np.stack([a & 0xFFFF, a >> 16, b & 0xFFFF, b >> 16])
    same(results["hr6.x"], halves[index, np.arange(64)])


def test_relative_indices_with_negative_a0_reach_back(rows: Rows) -> None:
    index = np.where(np.arange(64) % 2, -4, 0).astype(np.int16).view(np.uint16)
    a, b = crossed(INTEGERS32, 2, rows=64)[0][:64], np.arange(64, dtype=np.uint32)
    body = "(sy)mova a0.x, hr1.x\n(rpt5)nop\nmov.u32u32 r2.x, r<a0.x + 36>"
    results = rows(body, {"hr1.x": index, "r8.x": a, "r9.x": b}, ["r2.x"])
    same(results["r2.x"], np.where(np.arange(64) % 2, a, b))


def test_relative_indices_outside_the_file_are_a_fault(rows: Rows) -> None:
    index = np.zeros(64, np.uint16)
    index[5] = 500
    body = "(sy)mova a0.x, hr1.x\n(rpt5)nop\nmov.u32u32 r2.x, r<a0.x + 4>"
    report, _ = rows.attempt(body, {"hr1.x": index}, ["r2.x"])
    assert report is not None
    assert (report.kind, report.lane, report.address) == ("bad state", 5, 504)
    assert "outside its file" in report.message


# --- predicates and addresses as destinations ---


@covers("cmps.u", "and.b")
def test_predicates_are_set_where_the_result_is_not_zero(rows: Rows) -> None:
    a = crossed(INTEGERS32, 1)[0]
    body = """
        (sy)cmps.u.gt p0.x, r1.x, 8
        and.b p0.y, r1.x, 3
        (rpt5)nop
        mov.u32u32 r2.x, 0
        mov.u32u32 r2.y, 0
        predt
        mov.u32u32 r2.x, 1
        prede
        br !p0.y, #over
        nop
        mov.u32u32 r2.y, 1
        over:
        (jp)nop
    """
    results = rows(body, {"r1.x": a}, ["r2.x", "r2.y"])
    same(results["r2.x"], a > 8)
    same(results["r2.y"], (a & 3) != 0)
