"""Accesses that are done for many fibers at once: neighbours, vectors, what lies where a range ends."""

from __future__ import annotations

import numpy as np
import pytest

from virtual.isa.ir3.harness import Array, Memory, Rows, pair, same, words

GUARD = 0xEE
TYPES = {"u32": np.uint32, "u16": np.uint16, "u8": np.uint8}
GROUPS = [(64, 2), (16, 5), (13, 4), (100, 3)]
"""Fibers of a work-group and work-groups: whole waves, whole and partial strips."""

# g[r3.x] is the address in c0.xy + r1.x, without a carry.
ADDRESS = """
    (sy)mov.u32u32 r3.x, c0.x
    mov.u32u32 r3.y, c0.y
    (rpt2)nop
    add.u r3.x, r3.x, r1.x
    (rpt2)nop
"""
# The same with the carry.
CARRIED = """
    (sy)mov.u32u32 r3.x, c0.x
    mov.u32u32 r3.y, c0.y
    (rpt2)nop
    add.u r3.x, r3.x, r1.x
    (rpt2)nop
    cmps.u.lt r3.z, r3.x, r1.x
    (rpt2)nop
    add.u r3.y, r3.y, r3.z
    (rpt2)nop
"""


def _half(kind: str) -> str:
    return "" if kind == "u32" else "h"


def _numbers(kind: str, count: int, seed: int = 0) -> Array:
    limit = 1 << 8 * np.dtype(TYPES[kind]).itemsize
    return np.random.default_rng(seed).integers(0, limit, count, dtype=np.uint64).astype(TYPES[kind])


@pytest.mark.parametrize("fibers, groups", GROUPS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_neighbours_load_what_lies_behind_each_other(
    rows: Rows, kind: str, size: int, fibers: int, groups: int
) -> None:
    total, width = fibers * groups, np.dtype(TYPES[kind]).itemsize
    data = _numbers(kind, total * size)
    memory, h = Memory(), _half(kind)
    places = [f"{h}r4.{c}" for c in "xyzw"[:size]]
    offsets = np.arange(total, dtype=np.uint32) * (size * width)
    results = rows(
        ADDRESS + f"ldg.{kind} {h}r4.x, g[r3.x], {size}", {"r1.x": offsets}, places,
        constants=words(*pair(memory.add(data))), memory=memory, local=(fibers, 1, 1), groups=groups,
    )  # fmt: skip
    for k, place in enumerate(places):
        same(results[place], data.reshape(total, size)[:, k])


@pytest.mark.parametrize("fibers, groups", GROUPS)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_neighbours_store_behind_each_other_and_nowhere_else(
    rows: Rows, kind: str, size: int, fibers: int, groups: int
) -> None:
    total, width = fibers * groups, np.dtype(TYPES[kind]).itemsize
    target = np.full((total + 40) * size * width, GUARD, np.uint8)
    memory, h = Memory(), _half(kind)
    columns = {f"{h}r4.{c}": _numbers(kind, total, k) for k, c in enumerate("xyzw"[:size])}
    inputs = {name: column.astype(np.uint16 if h else np.uint32) for name, column in columns.items()}
    offsets = np.arange(total, dtype=np.uint32) * (size * width)
    rows(
        ADDRESS + f"stg.{kind} g[r3.x], {h}r4.x, {size}", {"r1.x": offsets, **inputs}, [],
        constants=words(*pair(memory.add(target))), memory=memory, local=(fibers, 1, 1), groups=groups,
    )  # fmt: skip
    stored = total * size * width
    same(target[:stored], np.stack(list(columns.values()), 1).ravel().view(np.uint8))
    same(target[stored:], np.full(len(target) - stored, GUARD))


PREDICATED = """
    (sy)cmps.u.ne p0.x, r1.y, 0
    (rpt5)nop
    predt
    {}
    prede
"""
BRANCH = """
    (sy)cmps.u.eq p0.x, r1.y, 0
    (rpt5)nop
    br p0.x, #over
    nop
    {}
    over:
    (jp)nop
"""


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("where", [PREDICATED, BRANCH], ids=["predicated", "branch"])
def test_fibers_that_do_not_act_neither_store_nor_load(rows: Rows, where: str, size: int) -> None:
    acts = np.random.default_rng(1).integers(0, 2, 256).astype(np.uint32)
    acts[:64], acts[64:80] = 1, 0
    data, target = _numbers("u32", 256 * size), np.zeros((256, size), np.uint32)
    memory = Memory()
    source, out = memory.add(data), memory.add(target)
    assert source >> 32 == out >> 32
    offsets = np.arange(256, dtype=np.uint32) * (4 * size)
    offsets[acts == 0] = 0xF000_0000  # nothing is there
    body = ADDRESS + "add.u r3.z, r1.x, c0.z\nmov.u32u32 r3.w, c0.w\n(rpt2)nop\n" + where.format(
        f"ldg.u32 r4.x, g[r3.x], {size}\n(sy)stg.u32 g[r3.z], r4.x, {size}"
    )  # fmt: skip
    inputs = {"r1.x": offsets, "r1.y": acts, **{f"r4.{c}": np.full(256, 7, np.uint32) for c in "xyzw"}}
    results = rows(body, inputs, ["r4.x"], constants=words(*pair(source), *pair(out)), memory=memory)
    rows_of_data = data.reshape(256, size)
    same(results["r4.x"], np.where(acts, rows_of_data[:, 0], 7))
    same(target.ravel(), np.where(acts[:, None], rows_of_data, 0).ravel())


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("where", [PREDICATED, BRANCH], ids=["predicated", "branch"])
def test_a_fiber_between_neighbours_that_does_not_act_leaves_its_place_alone(
    rows: Rows, where: str, kind: str, size: int
) -> None:
    h, dtype = _half(kind), TYPES[kind]
    target = np.full((128, size), GUARD, dtype)
    acts = np.ones(128, np.uint32)
    acts[[16, 40, 63, 64]] = 0
    # The first wave finds the range, the second one begins at its start.
    place = np.roll(np.arange(128, dtype=np.uint32), 64)
    offsets = place * np.uint32(size * np.dtype(dtype).itemsize)
    values = {f"{h}r4.{c}": np.full(128, k, np.uint16 if h else np.uint32) for k, c in enumerate("xyzw")}
    memory = Memory()
    body = ADDRESS + where.format(f"stg.{kind} g[r3.x], {h}r4.x, {size}")
    constants = words(*pair(memory.add(target)))
    rows(body, {"r1.x": offsets, "r1.y": acts, **values}, [], constants=constants, memory=memory)
    same(target[place].ravel(), np.where(acts[:, None], np.arange(size), GUARD).ravel())


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_vectors_of_neighbours_can_lie_in_different_mappings(rows: Rows, kind: str, size: int) -> None:
    h, width = _half(kind), np.dtype(TYPES[kind]).itemsize
    data = [_numbers(kind, 64 * size, seed) for seed in range(3)]
    copies = [np.zeros_like(array) for array in data]
    memory = Memory()
    sources, targets = ([memory.add(a) for a in arrays] for arrays in (data, copies))
    which = np.arange(192) % 3
    steps = np.arange(192, dtype=np.uint32) // 3 * (size * width)
    inputs = {
        "r1.x": np.array(sources, np.uint64)[which].astype(np.uint32) + steps,
        "r1.z": np.array(targets, np.uint64)[which].astype(np.uint32) + steps,
    }
    body = f"""
        (sy)mov.u32u32 r1.y, c0.y
        mov.u32u32 r1.w, c0.y
        (rpt2)nop
        ldg.{kind} {h}r4.x, g[r1.x], {size}
        (sy)stg.{kind} g[r1.z], {h}r4.x, {size}
    """
    rows(body, inputs, [], constants=words(*pair(sources[0])), memory=memory)
    for copy, array in zip(copies, data, strict=True):
        same(copy, array)


@pytest.mark.parametrize("boundary", [1 << 31, 2 << 32, 7 << 31])
@pytest.mark.parametrize("size", [1, 4])
def test_a_range_may_cross_multiples_of_two_gigabytes(rows: Rows, boundary: int, size: int) -> None:
    data, copy = _numbers("u32", 256 * size), np.zeros(256 * size, np.uint32)
    memory = Memory()
    start = boundary - data.nbytes // 2 + 4
    memory.space.map(start, data.nbytes, data.ctypes.data, writable=True, label="across")
    offsets = np.arange(256, dtype=np.uint32) * (4 * size)
    body = CARRIED + f"""
        ldg.u32 r4.x, g[r3.x], {size}
        mov.u32u32 r3.z, c0.z
        mov.u32u32 r3.w, c0.w
        (rpt2)nop
        add.u r3.z, r3.z, r1.x
        (sy)(rpt3)add.u r5.x, (r)r4.x, 1
        (rpt2)nop
        stg.u32 g[r3.z], r4.x, {size}
        stg.u32 g[r3.x], r5.x, {size}
    """  # fmt: skip
    before = data.copy()
    rows(
        body, {"r1.x": offsets}, [], constants=words(*pair(start), *pair(memory.add(copy))), memory=memory
    )  # fmt: skip
    same(copy, before)
    same(data, before + np.uint32(1))


def test_the_last_vector_of_a_range_is_read_and_the_one_behind_it_is_a_fault(rows: Rows) -> None:
    data = _numbers("u32", 256)
    memory = Memory()
    start = memory.add(data)
    offsets = np.arange(64, dtype=np.uint32) * 16
    body = ADDRESS + "ldg.u32 r4.x, g[r3.x], 4"
    constants = words(*pair(start))
    results = rows(body, {"r1.x": offsets}, ["r4.w"], constants=constants, memory=memory)
    same(results["r4.w"], data[3::4])
    report, _ = rows.attempt(body, {"r1.x": offsets + 4}, [], constants=constants, memory=memory)
    assert report is not None and report.kind == "memory" and report.address == start + 63 * 16 + 4
    assert report.lane == 63


@pytest.mark.parametrize("fibers, groups", GROUPS)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_neighbours_use_local_memory_behind_each_other(
    rows: Rows, size: int, fibers: int, groups: int
) -> None:
    total = fibers * groups
    inputs = {f"r4.{c}": _numbers("u32", total, k) for k, c in enumerate("xyzw")}
    offsets = np.tile(np.arange(fibers, dtype=np.uint32), groups) * (4 * size)
    body = f"(sy)stl.u32 l[r1.x], r4.x, {size}\n(ss)(sy)ldl.u32 r5.x, l[r1.x], {size}"
    places = [f"r5.{c}" for c in "xyzw"[:size]]
    results = rows(
        body, {"r1.x": offsets, **inputs}, places,
        local=(fibers, 1, 1), groups=groups, shared_bytes=4 * size * fibers,
    )  # fmt: skip
    for place in places:
        same(results[place], inputs[place.replace("r5", "r4")])
