"""Uniform buffers and writes to the constant file."""

from __future__ import annotations

import numpy as np
import pytest

from ringfence.virtual.isa.ir3.dispatch import UniformBuffer
from virtual.isa.ir3.harness import INTEGERS32, Memory, Rows, covers, crossed, pair, same, words


@covers("ldc")
@pytest.mark.parametrize("component", [0, 1, 3])
def test_ldc_loads_components_of_rows_and_zero_beyond_the_end(rows: Rows, component: int) -> None:
    data = np.random.default_rng(1).integers(0, 1 << 32, 4 * 10, dtype=np.uint32)
    memory = Memory()
    ubo = UniformBuffer(memory.add(data), 9)  # one row less than is mapped
    row = (np.arange(64, dtype=np.uint32) % 12).astype(np.uint32)
    row[60:] = 0x0FFFFFFF, 0x10000000, 0x80000000, 0xFFFFFFFF
    body = f"(sy)ldc.offset{component}.4.imm r2.x, r1.x, 1"
    results = rows(body, {"r1.x": row}, [f"r2.{c}" for c in "xyzw"], ubos=(None, ubo), memory=memory)
    padded = np.concatenate([data[:36], np.zeros(32, np.uint32)])
    for k, c in enumerate("xyzw"):
        index = 4 * row.astype(np.int64) + component + k
        same(results[f"r2.{c}"], np.where(index < 36, padded[np.minimum(index, 60)], 0))


@covers("ldc")
def test_ldc_at_the_same_row_in_all_fibers(rows: Rows) -> None:
    data = np.arange(100, 140, dtype=np.uint32)
    memory = Memory()
    ubo = UniformBuffer(memory.add(data), 10)
    body = """
        ldc.offset0.4.imm r2.x, 2, 0
        ldc.offset2.3.imm r3.x, 9, 0
        mov.u32u32 r1.x, c0.x
        (rpt2)nop
        ldc.offset0.1.imm r4.x, r1.x, 0
    """
    outputs = ["r2.x", "r2.w", "r3.x", "r3.y", "r3.z", "r4.x"]
    results = rows(body, {}, outputs, ubos=(ubo,), memory=memory, constants=words(10))
    assert [int(results[o][0]) for o in outputs] == [108, 111, 138, 139, 0, 0]


@covers("ldc")
def test_a_uniform_buffer_that_is_not_mapped_is_a_fault_with_its_address(rows: Rows) -> None:
    memory = Memory()
    ubo = UniformBuffer(0x7000, 4)
    row = np.array([100, 1, 2, 3], np.uint32)
    report, _ = rows.attempt(
        "(sy)ldc.offset0.1.imm r2.x, r1.x, 0", {"r1.x": row}, ["r2.x"], ubos=(ubo,), memory=memory
    )
    assert report is not None
    assert (report.kind, report.lane, report.address) == ("memory", 1, 0x7010)


@covers("stc")
def test_stc_writes_constants_that_later_instructions_read(rows: Rows) -> None:
    a = np.arange(5, 133, dtype=np.uint32)
    body = """
        (sy)mov.u32u32 r2.x, 7
        mov.u32u32 r2.y, 8
        mov.u32u32 r2.z, r0.x
        mov.u32u32 r2.w, r1.x
        (rpt2)nop
        stc.u32 c[4], r2.x, 4
        (ss)(nop3)add.u r3.x, r1.x, c1.x
        mov.u32u32 r3.y, c1.y
        mov.u32u32 r3.z, c1.w
    """
    results = rows(body, {"r1.x": a}, ["r3.x", "r3.y", "r3.z"], constants=words(*range(100, 108)))
    same(results["r3.x"], a + 7)
    same(results["r3.y"], np.full(128, 8))
    same(results["r3.z"], np.repeat(a[::64], 64))  # the first fiber of each wave stands for all


@covers("stc")
def test_stc_of_half_registers_packs_two_into_a_constant(rows: Rows) -> None:
    body = """
        mov.u16u16 hr2.x, 0x1111
        mov.u16u16 hr2.y, 0x2222
        mov.u16u16 hr2.z, 0x3333
        (rpt2)nop
        stc.u16 c[1], hr2.x, 3
        (ss)(nop3)mov.u32u32 r3.x, c0.x
        mov.u32u32 r3.y, c0.y
        mov.u32u32 r3.z, c0.z
    """
    results = rows(body, {}, ["r3.x", "r3.y", "r3.z"], constants=words(9, 9, 0x99999999))
    assert [int(results[f"r3.{c}"][0]) for c in "xyz"] == [9, 0x22221111, 0x99993333]


@covers("stc")
def test_stc_adds_a1_to_its_destination(rows: Rows) -> None:
    body = """
        mov.u32u32 r2.x, 77
        mova1 a1.x, 300
        (rpt5)nop
        stc.u32 c[a1.x + 5], r2.x, 1
        (ss)(nop3)mov.u32u32 r3.x, c76.y
    """
    assert int(rows(body, {}, ["r3.x"])["r3.x"][0]) == 77


@covers("stc")
def test_writes_to_constants_last_for_one_launch(rows: Rows) -> None:
    body = """
        mov.u32u32 r3.x, c0.x
        mov.u32u32 r2.x, 77
        (rpt2)nop
        stc.u32 c[0], r2.x, 1
        (ss)nop
    """
    for _ in range(2):
        assert int(rows(body, {}, ["r3.x"], constants=words(5))["r3.x"][0]) == 5


@covers("ldc.k")
def test_ldc_k_copies_rows_of_a_uniform_buffer_to_constants(rows: Rows) -> None:
    data = np.random.default_rng(2).integers(0, 1 << 32, 4 * 8, dtype=np.uint32)
    memory = Memory()
    ubo = UniformBuffer(memory.add(data), 8)
    body = """
        mova1 a1.x, 16
        (rpt5)nop
        ldc.4.k.imm c[a1.x], 5, 0
        (sy)(rpt3)mov.u32u32 r2.x, (r)c4.x
        (rpt3)mov.u32u32 r3.x, (r)c6.x
        (rpt3)mov.u32u32 r4.x, (r)c7.x
        (rpt3)mov.u32u32 r5.x, (r)c8.x
    """
    places = [f"r{n}.{c}" for n in (2, 3, 4, 5) for c in "xyzw"]
    constants = words(*range(1000, 1064))
    results = rows(body, {}, places, ubos=(ubo,), memory=memory, constants=constants)
    expected = [*data[20:24], *data[28:32], 0, 0, 0, 0, *range(1032, 1036)]
    assert [int(results[p][0]) for p in places] == [int(x) for x in expected]


@covers("ldg.k")
def test_ldg_k_copies_memory_to_constants(rows: Rows) -> None:
    data = np.random.default_rng(3).integers(0, 1 << 32, 64, dtype=np.uint32)
    memory = Memory()
    constants = words(*range(900, 940)) + words(*pair(memory.add(data)))
    body = """
        mov.u32u32 r1.x, c10.x
        mov.u32u32 r1.y, c10.y
        (rpt2)nop
        ldg.k.u32 c[8], g[r1.x+8], 3
        (sy)(rpt3)mov.u32u32 r2.x, (r)c2.x
        (rpt3)mov.u32u32 r3.x, (r)c3.x
        (rpt3)mov.u32u32 r4.x, (r)c4.x
    """
    places = [f"r{n}.{c}" for n in (2, 3, 4) for c in "xyzw"]
    results = rows(body, {}, places, constants=constants, memory=memory)
    expected = [*data[2:10], *range(916, 920)]
    assert [int(results[p][0]) for p in places] == [int(x) for x in expected]


@covers("ldc.k", "ldg.k", "stc")
@pytest.mark.parametrize(
    "instruction",
    ["ldc.4.k.imm c[a1.x], 0, 0", "ldg.k.u32 c[a1.x], g[r1.x], 7", "stc.u32 c[a1.x + 0], r1.x, 4"],
)
def test_writes_beyond_the_constant_file_are_a_fault(rows: Rows, instruction: str) -> None:
    data = np.zeros(64, np.uint32)
    memory = Memory()
    address = memory.add(data)
    low, high = pair(address)
    inputs = {"r1.x": np.full(64, low, np.uint32), "r1.y": np.full(64, high, np.uint32)}
    body = f"(sy)mova1 a1.x, 1023\n(rpt5)nop\n{instruction}\n(sy)nop"
    report, _ = rows.attempt(body, inputs, ["r1.x"], ubos=(UniformBuffer(address, 16),), memory=memory)
    assert report is not None
    assert (report.kind, report.address) == ("bad state", 1023)


@covers("stc")
def test_constants_are_not_written_where_no_fiber_is_left(rows: Rows) -> None:
    a = crossed(INTEGERS32, 1)[0][:64]
    body = """
        (sy)cmps.u.ne p0.x, r0.x, r0.x
        mov.u32u32 r2.x, 77
        (rpt5)nop
        predt
        stc.u32 c[0], r2.x, 1
        prede
        (ss)(nop3)mov.u32u32 r3.x, c0.x
    """
    same(rows(body, {"r1.x": a}, ["r3.x"], constants=words(5))["r3.x"], np.full(64, 5))
