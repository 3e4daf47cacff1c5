"""Shared registers in halves, and the scalar ALU of chips from the a650 on."""

from __future__ import annotations

import numpy as np
import pytest

from virtual.isa.ir3.harness import Rows

IN_ORDER = """
    add.u r49.x, r48.y, 5
    mull.u r49.y, r49.x, 3
    (ss)mov.u32u32 r1.x, r49.y
"""
GROUP_IDS = {"workgroup_id_register": 0xC0}


@pytest.mark.parametrize("merged", [False, True])
def test_half_shared_registers_are_halves_of_full_ones_whatever_the_other_files_are(
    rows: Rows, merged: bool
) -> None:
    """hr50.x and hr50.y lie 8 and 9 halves behind hr48.x: in r49.x, 4 full registers behind r48.x."""
    body = """
        mov.u32u32 r49.x, 305419896
        (ss)mov.u16u16 hr50.y, 43981
        (ss)mov.u32u32 r1.x, r49.x
        cov.u16u32 r1.y, hr50.x
        cov.u16u32 r1.z, hr50.y
    """
    results = rows(body, {}, ["r1.x", "r1.y", "r1.z"], merged=merged)
    for register, expected in (("r1.x", 0xABCD5678), ("r1.y", 0x5678), ("r1.z", 0xABCD)):
        assert set(results[register]) == {expected}


def test_scalar_results_reach_scalar_instructions_at_once(rows: Rows) -> None:
    results = rows(IN_ORDER, {}, ["r1.x"], chip="a650", **GROUP_IDS)
    assert set(results["r1.x"]) == {15}


def test_without_a_scalar_alu_shared_results_need_a_wait(rows: Rows) -> None:
    report, _ = rows.attempt(IN_ORDER, {}, ["r1.x"], **GROUP_IDS)
    assert report is not None and "uses r49.x" in report.message and "(ss)" in report.message


@pytest.mark.parametrize(
    ("body", "register"),
    [
        ("add.u r49.x, r48.y, 5\nmov.u32u32 r1.x, r49.x", "r49.x"),
        ("add.u r49.x, r48.y, 5\nadd.u r49.y, r49.x, r1.x\n(ss)nop", "r49.x"),
        ("cov.u32u16 hr50.x, r48.y\nadd.u r49.y, r49.x, 1\n(ss)nop", "r49.x"),
        ("cmps.s.lt p0.x, r48.y, 5\nadd.u r49.x, r48.y, 5\ncmps.s.lt p0.x, r49.x, 5", "r49.x"),
    ],
    ids=["read by a vector instruction", "with a vector operand", "in another size", "for a predicate"],
)
def test_other_readers_of_scalar_results_wait(rows: Rows, body: str, register: str) -> None:
    inputs = {"r1.x": np.arange(64, dtype=np.uint32)}
    report, _ = rows.attempt(body, inputs, ["r1.x"], chip="a650", **GROUP_IDS)
    assert report is not None and f"uses {register}" in report.message and "(ss)" in report.message


def test_each_wave_has_scalar_results_of_its_own_group(rows: Rows) -> None:
    body = """
        mull.u r49.x, r48.x, 7
        add.u r49.y, r49.x, 1
        (ss)mov.u32u32 r1.x, r49.y
    """
    results = rows(body, {}, ["r1.x"], local=(100, 1, 1), groups=3, chip="a650")
    assert results["r1.x"].tolist() == [1] * 100 + [8] * 100 + [15] * 100
