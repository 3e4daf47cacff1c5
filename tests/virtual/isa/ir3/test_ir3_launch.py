"""Geometry of launches: ids, partial waves, host threads, and strips of any number of lanes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from oracle.mesa import assemble
from ringfence.virtual.isa.ir3.dispatch import Dispatch
from ringfence.virtual.isa.ir3.executor import Executor
from virtual.isa.ir3.harness import (
    INTEGERS32,
    WORKGROUP_ID,
    Memory,
    Rows,
    crossed,
    pair,
    program,
    same,
    words,
)

LOCALS = [*((n, 1, 1) for n in (1, 3, 16, 17, 63, 64, 65)), (5, 3, 2), (7, 9, 5)]


@pytest.mark.parametrize("local", LOCALS)
def test_every_fiber_has_its_ids_in_groups_that_do_not_fill_waves(
    rows: Rows, local: tuple[int, int, int]
) -> None:
    body = "mov.u32u32 r2.x, r48.x"
    count = local[0] * local[1] * local[2]
    results = rows(body, {"r1.x": np.zeros(3 * count, np.uint32)}, ["r0.x", "r0.y", "r0.z", "r46.x", "r2.x"],
                   local=local, groups=3)  # fmt: skip
    linear = np.tile(np.arange(count), 3)
    same(results["r46.x"], linear)
    same(results["r0.x"], linear % local[0])
    same(results["r0.y"], linear // local[0] % local[1])
    same(results["r0.z"], linear // (local[0] * local[1]))
    same(results["r2.x"], np.repeat(np.arange(3), count))


def test_sizes_and_offsets_of_groups_are_in_shared_registers_where_configured(rows: Rows) -> None:
    body = "(rpt2)mov.u32u32 r2.x, (r)r49.x\n(rpt2)mov.u32u32 r3.x, (r)r50.x"
    outputs = [f"r{n}.{c}" for n in (2, 3) for c in "xyz"]
    results = rows(
        body, {"r1.x": np.zeros(24, np.uint32)}, outputs, local=(3, 2, 2), groups=2,
        workgroup_size_register=49 << 2, workgroup_offset_register=50 << 2, global_offset=(100, 20, 3),
    )  # fmt: skip
    for k, c in enumerate("xyz"):
        same(results[f"r2.{c}"], np.full(24, (3, 2, 2)[k]))
    same(results["r3.x"], np.repeat([100, 103], 12))
    same(results["r3.y"], np.full(24, 20))
    same(results["r3.z"], np.full(24, 3))


def test_groups_in_three_dimensions_all_run_once(executor: Executor) -> None:
    memory = Memory()
    counts = np.zeros((2, 3, 4), np.uint32)
    body = """
        mov.u32u32 r3.x, c0.x
        mov.u32u32 r3.y, c0.y
        mov.u32u32 r2.x, r48.z
        (rpt2)nop
        mul.u24 r2.x, r2.x, 3
        (rpt2)nop
        add.u r2.x, r2.x, r48.y
        (rpt2)nop
        shl.b r2.x, r2.x, 2
        (rpt2)nop
        add.u r2.x, r2.x, r48.x
        (rpt2)nop
        shl.b r2.x, r2.x, 2
        mov.u32u32 r2.y, 1
        (rpt2)nop
        add.u r3.x, r3.x, r2.x
        (rpt2)nop
        atomic.g.add.untyped.1d.u32.1.g r2.z, r3.x, r2.y
    """
    dispatch = Dispatch(
        name="groups", code=assemble(program(body)), groups=(4, 3, 2), local=(5, 1, 1),
        constants=words(*pair(memory.add(counts))), workgroup_id_register=WORKGROUP_ID,
    )  # fmt: skip
    assert executor.run(dispatch, memory.space) is None
    same(counts.ravel(), np.full(24, 5))


def test_a_launch_without_groups_does_nothing(executor: Executor) -> None:
    memory = Memory()
    code = assemble("mov.u32u32 r0.x, 0\nmov.u32u32 r0.y, 0\n(rpt2)nop\nstg.u32 g[r0.x], r0.x, 1\nend\n")
    dispatch = Dispatch(name="empty", code=code, groups=(3, 0, 1), local=(1, 1, 1))
    assert executor.run(dispatch, memory.space) is None


WORK = """
    (sy)mov.u32u32 r2.x, 0
    and.b r3.x, r1.x, 63
    shl.b r3.y, r0.x, 2
    (rpt2)nop
    stl.u32 l[r3.y], r1.y, 1
    stp.u32 p[r2.x], r1.y, 1
    bar.l
    (ss)(sy)nop
    loop:
    (jp)cmps.u.ge p0.x, r2.x, r3.x
    (rpt5)nop
    br p0.x, #done
    nop
    shr.b r4.x, r1.y, r2.x
    (rpt2)nop
    and.b r4.x, r4.x, 1
    (rpt2)nop
    cmps.u.ne p0.x, r4.x, 0
    add.u r2.x, r2.x, 1
    (rpt5)nop
    predt
    add.u r1.y, r1.y, r2.x
    predf
    xor.b r1.y, r1.y, r3.x
    prede
    jump #loop
    done:
    (jp)xor.b r4.y, r0.x, 1
    (rpt2)nop
    shl.b r4.y, r4.y, 2
    mov.u32u32 r2.z, 0
    (rpt2)nop
    ldl.u32 r2.w, l[r4.y], 1
    ldp.u32 r5.x, p[r2.z], 1
    (ss)(sy)cov.u32f32 (even)r5.y, r1.y
    (rpt2)nop
    exp2 r5.z, (neg)r5.y
    (ss)cov.f32f16 (even)hr5.x, r5.z
"""


@pytest.fixture(scope="module", params=[8, 64, 128])
def strips(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rows]:
    executor = Executor(cache_dir=tmp_path_factory.mktemp("cache"), threads=2, lanes=request.param)
    yield Rows(executor)
    executor.close()


def test_strips_of_8_64_and_128_lanes_compute_the_same(rows: Rows, strips: Rows) -> None:
    a, b = crossed(INTEGERS32, 2)
    outputs = ["r1.y", "r2.x", "r2.w", "r5.x", "r5.z", "hr5.x"]
    options = {"local": (256, 1, 1), "groups": 4, "shared_bytes": 1024, "private_bytes": 4}
    expected = rows(WORK, {"r1.x": a, "r1.y": b}, outputs, **options)
    actual = strips(WORK, {"r1.x": a, "r1.y": b}, outputs, **options)
    for name in outputs:
        same(actual[name], expected[name])
    partial = strips(WORK, {"r1.x": a[:300], "r1.y": b[:300]}, outputs, local=(100, 1, 1), groups=3,
                     shared_bytes=512, private_bytes=4)  # fmt: skip
    reference = rows(WORK, {"r1.x": a[:300], "r1.y": b[:300]}, outputs, local=(100, 1, 1), groups=3,
                     shared_bytes=512, private_bytes=4)  # fmt: skip
    for name in outputs:
        same(partial[name], reference[name])


def test_host_threads_share_the_groups_and_keep_their_memories_apart(rows: Rows) -> None:
    """Enough work for two threads; every group leaves its number in local and private memory."""
    groups = 600
    body = """
        mov.u32u32 r3.x, 0
        mov.u32u32 r2.y, 0
        mov.u32u32 r5.x, 0
        mov.u32u32 r2.x, r48.x
        (rpt2)nop
        loop:
        (jp)stl.u32 l[r3.x], r2.x, 1
        stp.u32 p[r3.x], r2.x, 1
        bar.l
        (ss)(sy)ldl.u32 r4.x, l[r3.x], 1
        ldp.u32 r4.y, p[r3.x], 1
        bar.l
        (ss)(sy)cmps.u.ne r4.z, r4.x, r2.x
        cmps.u.ne r4.w, r4.y, r2.x
        add.u r2.y, r2.y, 1
        (rpt2)nop
        cmps.u.lt p0.x, r2.y, 100
        or.b r5.x, r5.x, r4.z
        (rpt2)nop
        or.b r5.x, r5.x, r4.w
        (rpt5)nop
        br p0.x, #loop
        nop
    """
    results = rows(body, {"r1.x": np.zeros(64 * groups, np.uint32)}, ["r2.x", "r5.x"], groups=groups,
                   shared_bytes=64, private_bytes=16)  # fmt: skip
    same(results["r2.x"], np.repeat(np.arange(groups), 64))
    assert not results["r5.x"].any()
