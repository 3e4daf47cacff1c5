"""The count of executed instructions, by hand: in instructions of a wave of 64 fibers."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle.mesa import assemble
from ringfence.virtual.isa.ir3.dispatch import Dispatch
from ringfence.virtual.isa.ir3.executor import Executor
from virtual.isa.ir3.harness import Memory, program

# One move, five times three instructions, four repetitions of a move, and the end; nops do not count.
LOOP = """
    mov.u32u32 r1.y, 0
    (rpt2)nop
    loop:
    (jp)add.u r1.y, r1.y, 1
    (rpt2)nop
    cmps.u.lt p0.x, r1.y, 5
    (rpt5)nop
    br p0.x, #loop
    nop
    (rpt3)mov.u32u32 r2.x, 7
"""
LOOP_COUNT = 1 + 5 * 3 + 4 + 1

# Odd fibers do two moves, even ones skip them, all do the first four and the last two instructions.
HALVES = """
    and.b r1.x, r0.x, 1
    (rpt2)nop
    cmps.u.eq p0.x, r1.x, 0
    (rpt5)nop
    br p0.x, #over
    nop
    mov.u32u32 r1.y, 1
    mov.u32u32 r1.z, 2
    over:
    (jp)mov.u32u32 r1.w, 3
"""
HALVES_COUNT = 3 + 2 + 2


def counted(
    cache: Path, body: str, local: int, groups: int, *, strict: bool = False, count: bool = True
) -> float:
    executor = Executor(cache_dir=cache, threads=2, strict=strict, count=count)
    dispatch = Dispatch(
        name="count", code=assemble(program(body)), groups=(groups, 1, 1), local=(local, 1, 1),
        local_id_register=0,
    )  # fmt: skip
    assert executor.run(dispatch, Memory().space) is None
    executor.close()
    return executor.instructions


@pytest.mark.parametrize("strict", [False, True], ids=["fast", "strict"])
def test_each_repetition_and_each_round_of_a_loop_counts_for_each_wave(tmp_path: Path, strict: bool) -> None:
    assert counted(tmp_path, LOOP, 64, 3, strict=strict) == 3 * LOOP_COUNT
    assert counted(tmp_path, LOOP, 192, 2, strict=strict) == 6 * LOOP_COUNT


def test_sixteen_fibers_count_a_quarter(tmp_path: Path) -> None:
    assert counted(tmp_path, LOOP, 16, 3) == 3 * LOOP_COUNT / 4


def test_a_way_that_some_fibers_of_every_strip_take_counts_for_all(tmp_path: Path) -> None:
    assert counted(tmp_path, HALVES, 64, 1) == HALVES_COUNT


def test_threads_add_up_and_launches_too(tmp_path: Path) -> None:
    executor = Executor(cache_dir=tmp_path, threads=2, count=True)
    dispatch = Dispatch(
        name="count", code=assemble(program(LOOP)), groups=(20_000, 1, 1), local=(64, 1, 1),
        local_id_register=0,
    )  # fmt: skip
    for _ in range(2):
        assert executor.run(dispatch, Memory().space) is None
    executor.close()
    assert executor.instructions == 2 * 20_000 * LOOP_COUNT


def test_nothing_counts_unless_asked(tmp_path: Path) -> None:
    assert counted(tmp_path, LOOP, 64, 1, count=False) == 0
