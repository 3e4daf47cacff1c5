"""Global, local and private memory, barriers."""

from __future__ import annotations

import numpy as np
import pytest

from virtual.isa.ir3.harness import (
    INTEGERS16,
    INTEGERS32,
    Array,
    Memory,
    Rows,
    covers,
    crossed,
    pair,
    same,
    words,
)

WIDE, NARROW = ("u32", "s32", "f32"), ("u16", "s16", "f16", "u8")
TYPES = {**dict.fromkeys(WIDE, np.uint32), **dict.fromkeys(NARROW, np.uint16), "u8": np.uint8}


def _half(kind: str) -> str:
    return "h" if kind in NARROW else ""


def _random(seed: int, count: int) -> Array:
    return np.random.default_rng(seed).integers(0, 256, count).astype(np.uint8)


ADDRESS = """
    (sy)mov.u32u32 r3.x, c0.x
    mov.u32u32 r3.y, c0.y
    (rpt2)nop
    add.u r3.x, r3.x, r1.x
    (rpt2)nop
"""


# --- global ---


@covers("ldg")
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ldg_loads_consecutive_elements_from_any_byte(rows: Rows, kind: str, size: int) -> None:
    data, dtype = _random(1, 4096), TYPES[kind]
    width = np.dtype(dtype).itemsize
    offsets = np.random.default_rng(2).integers(0, 4096 - 4 * width - 64, 256).astype(np.uint32)
    memory = Memory()
    constants = words(*pair(memory.add(data)))
    h = _half(kind)
    places = [f"{h}r4.{c}" for c in "xyzw"[:size]]
    body = ADDRESS + f"ldg.{kind} {h}r4.x, g[r3.x+33], {size}"
    results = rows(body, {"r1.x": offsets}, places, constants=constants, memory=memory)
    for k, place in enumerate(places):
        expected = [data[o + 33 + k * width : o + 33 + (k + 1) * width].view(dtype)[0] for o in offsets]
        same(results[place], np.array(expected))


@covers("ldg")
def test_ldg_from_the_same_address_in_all_fibers_loads_once_for_all(rows: Rows) -> None:
    data = _random(3, 64)
    memory = Memory()
    body = """
        mov.u32u32 r3.x, c0.x
        mov.u32u32 r3.y, c0.y
        (rpt2)nop
        ldg.u32 r4.x, g[r3.x+4], 2
        ldg.u16 hr4.x, g[r3.x+1], 2
        ldg.u8 hr5.x, g[r3.x+63], 1
    """
    places = ["r4.x", "r4.y", "hr4.x", "hr4.y", "hr5.x"]
    results = rows(body, {}, places, constants=words(*pair(memory.add(data))), memory=memory)
    expected = [*data[4:12].view(np.uint32), *data[1:5].view(np.uint16), data[63]]
    assert [int(results[p][0]) for p in places] == [int(x) for x in expected]


@covers("ldg.a")
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("shift", [0, 1, 3])
def test_ldg_a_scales_index_and_offset_by_the_element(rows: Rows, kind: str, shift: int) -> None:
    data, dtype = _random(4, 1 << 14), TYPES[kind]
    width = np.dtype(dtype).itemsize
    elements = data.view(dtype)
    index = np.random.default_rng(5).integers(0, 256, 256).astype(np.uint32)
    memory = Memory()
    scale = width.bit_length() - 1
    place = f"(((r1.x<<{shift})+2)<<{scale})" if shift and scale else f"((r1.x+2)<<{scale})"
    if not scale:
        place = "r1.x+2"
    body = f"""
        (sy)mov.u32u32 r3.x, c0.x
        mov.u32u32 r3.y, c0.y
        (rpt2)nop
        ldg.a.{kind} {_half(kind)}r4.x, g[r3.x+{place}], 2
    """
    h = _half(kind)
    results = rows(
        body,
        {"r1.x": index},
        [f"{h}r4.x", f"{h}r4.y"],
        constants=words(*pair(memory.add(data))),
        memory=memory,
    )
    first = (index.astype(np.int64) << (shift if scale else 0)) + 2
    same(results[f"{h}r4.x"], elements[first])
    same(results[f"{h}r4.y"], elements[first + 1])


@covers("stg")
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_stg_stores_consecutive_elements_at_any_byte(rows: Rows, kind: str, size: int) -> None:
    dtype = TYPES[kind]
    width = np.dtype(dtype).itemsize
    target = np.full(64 * 32, 0xEE, np.uint8)
    offsets = np.arange(64, dtype=np.uint32) * 32 + np.arange(64, dtype=np.uint32) % 5
    h = _half(kind)
    columns = {
        f"{h}r4.{c}": crossed(INTEGERS16 if h else INTEGERS32, 1, seed=k)[0][:64]
        for k, c in enumerate("xyzw")
    }
    memory = Memory()
    constants = words(*pair(memory.add(target)))
    body = ADDRESS + f"(sy)stg.{kind} g[r3.x+3], {h}r4.x, {size}"
    rows(body, {"r1.x": offsets, **columns}, [], constants=constants, memory=memory)
    expected = np.full_like(target, 0xEE)
    for k in range(size):
        column = columns[f"{h}r4.{'xyzw'[k]}"]
        for value, offset in zip(column.astype(dtype), offsets, strict=True):
            at = int(offset) + 3 + k * width
            expected[at : at + width] = np.frombuffer(value.tobytes(), np.uint8)
    same(target, expected)


@covers("stg")
def test_stg_offsets_can_be_negative(rows: Rows) -> None:
    target = np.zeros(256, np.uint32)
    memory = Memory()
    address = memory.add(target)
    body = ADDRESS + "(sy)stg.u32 g[r3.x-4], r1.x, 1"
    offsets = np.arange(1, 65, dtype=np.uint32) * 4
    rows(body, {"r1.x": offsets}, [], constants=words(*pair(address)), memory=memory)
    same(target[:64], offsets)


@covers("stg.a")
@pytest.mark.parametrize("kind", TYPES)
def test_stg_a_scales_index_and_offset_by_the_element(rows: Rows, kind: str) -> None:
    dtype = TYPES[kind]
    target = np.zeros(1024, dtype)
    h, scale = _half(kind), np.dtype(dtype).itemsize.bit_length() - 1
    place = f"(((r1.x<<1)+1)<<{scale})" if scale else "r1.x+1"
    value = crossed(INTEGERS16 if h else INTEGERS32, 1)[0][:64]
    memory = Memory()
    body = f"""
        (sy)mov.u32u32 r3.x, c0.x
        mov.u32u32 r3.y, c0.y
        (rpt2)nop
        stg.a.{kind} g[r3.x+{place}], {h}r4.x, 1
    """
    index = np.arange(64, dtype=np.uint32)
    constants = words(*pair(memory.add(target)))
    rows(body, {"r1.x": index, f"{h}r4.x": value}, [], constants=constants, memory=memory)
    expected = np.zeros_like(target)
    expected[(index << (1 if scale else 0)) + 1] = value.astype(dtype)
    same(target, expected)


def test_accesses_find_the_right_one_of_several_mappings(rows: Rows) -> None:
    memory = Memory()
    arrays = [np.full(64, 10 + k, np.uint32) for k in range(7)]
    addresses = [memory.add(array) for array in arrays]
    low = np.array([pair(addresses[k % 7])[0] + 4 * (k % 64) for k in range(256)], np.uint32)
    body = """
        (sy)mov.u32u32 r1.y, c0.y
        (rpt2)nop
        ldg.u32 r4.x, g[r1.x], 1
        (sy)add.u r4.y, r4.x, 100
        (rpt2)nop
        stg.u32 g[r1.x], r4.y, 1
    """
    results = rows(body, {"r1.x": low}, ["r4.x"], constants=words(*pair(addresses[0])), memory=memory)
    same(results["r4.x"], 10 + np.arange(256) % 7)
    assert all(
        set(np.unique(array)) <= {10 + k, 110 + k} and 110 + k in array for k, array in enumerate(arrays)
    )


# --- local ---


@covers("ldl", "stl", "bar")
@pytest.mark.parametrize("kind", TYPES)
def test_local_memory_passes_values_to_other_waves_across_a_barrier(rows: Rows, kind: str) -> None:
    h, dtype = _half(kind), TYPES[kind]
    width = np.dtype(dtype).itemsize
    value = crossed(INTEGERS16 if h else INTEGERS32, 1)[0][:256]
    body = f"""
        (sy)mul.u24 r3.x, r0.x, {width}
        sub.u r3.y, 255, r0.x
        (rpt2)nop
        mul.u24 r3.y, r3.y, {width}
        (rpt2)nop
        stl.{kind} l[r3.x+8], {h}r1.x, 1
        bar.l
        (ss)(sy)nop
        ldl.{kind} {h}r2.x, l[r3.y+8], 1
    """
    results = rows(body, {f"{h}r1.x": value}, [f"{h}r2.x"], local=(256, 1, 1), shared_bytes=8 + 256 * width)
    same(results[f"{h}r2.x"], value[::-1].astype(dtype))


@covers("ldl", "stl", "ldlw", "stlw")
def test_local_memory_moves_vectors_and_is_not_aligned(rows: Rows) -> None:
    columns = {f"r4.{c}": crossed(INTEGERS32, 1, seed=k)[0][:64] for k, c in enumerate("xyzw")}
    body = """
        (sy)mul.u24 r3.x, r0.x, 16
        (rpt2)nop
        stlw.u32 l[r3.x+1], r4.x, 4
        ldlw.u32 r5.x, l[r3.x+1], 4
        ldl.u32 r6.x, l[r3.x+5], 2
        ldl.u16 hr6.x, l[r3.x+4], 1
    """
    outputs = [*(f"r5.{c}" for c in "xyzw"), "r6.x", "r6.y", "hr6.x"]
    results = rows(body, columns, outputs, shared_bytes=64 * 16 + 1)
    for c in "xyzw":
        same(results[f"r5.{c}"], columns[f"r4.{c}"])
    same(results["r6.x"], columns["r4.y"])
    same(results["r6.y"], columns["r4.z"])
    same(results["hr6.x"], columns["r4.x"] >> 24 | (columns["r4.y"] & 0xFF) << 8)


@covers("bar", "ldl", "stl")
def test_a_tree_sum_in_local_memory_needs_a_barrier_in_a_loop(rows: Rows) -> None:
    value = np.random.default_rng(8).integers(0, 1000, 1024).astype(np.uint32)
    body = """
        (sy)shl.b r3.x, r0.x, 2
        mov.u32u32 r3.y, 128
        (rpt2)nop
        stl.u32 l[r3.x], r1.x, 1
        loop:
        (jp)bar.l
        (ss)(sy)cmps.u.ge p0.x, r0.x, r3.y
        shl.b r3.z, r3.y, 2
        (rpt5)nop
        br p0.x, #skip
        nop
        add.u r3.w, r3.x, r3.z
        (rpt2)nop
        ldl.u32 r4.x, l[r3.x], 1
        ldl.u32 r4.y, l[r3.w], 1
        (ss)add.u r4.x, r4.x, r4.y
        (rpt2)nop
        stl.u32 l[r3.x], r4.x, 1
        skip:
        (jp)shr.b r3.y, r3.y, 1
        (rpt2)nop
        cmps.u.ne p0.x, r3.y, 0
        (rpt5)nop
        br p0.x, #loop
        nop
        bar.l
        (ss)(sy)mov.u32u32 r3.w, 0
        (rpt2)nop
        ldl.u32 r2.x, l[r3.w], 1
    """
    results = rows(body, {"r1.x": value}, ["r2.x"], local=(256, 1, 1), groups=4, shared_bytes=1024)
    same(results["r2.x"], np.repeat(value.reshape(4, 256).sum(1), 256))


@covers("bar")
def test_registers_predicates_and_private_memory_survive_a_barrier(rows: Rows) -> None:
    a, h = crossed(INTEGERS32, 1)[0], crossed(INTEGERS16, 1)[0]
    body = """
        (sy)cmps.u.gt p0.y, r1.x, 1000
        mov.u32u32 r3.x, 4
        mov.u32u32 r2.x, 0
        (rpt2)nop
        stp.u32 p[r3.x], r1.x, 1
        bar.g
        (ss)(sy)nop
        br !p0.y, #over
        nop
        mov.u32u32 r2.x, 1
        over:
        (jp)add.u r2.y, r1.x, 1
        add.u hr2.x, hr1.x, 1
        ldp.u32 r2.z, p[r3.x], 1
    """
    outputs = ["r2.x", "r2.y", "hr2.x", "r2.z"]
    results = rows(body, {"r1.x": a, "hr1.x": h}, outputs, local=(1024, 1, 1), private_bytes=8)
    same(results["r2.x"], a > 1000)
    same(results["r2.y"], a + np.uint32(1))
    same(results["hr2.x"], h + np.uint16(1))
    same(results["r2.z"], a)


# --- private ---


@covers("ldp", "stp")
@pytest.mark.parametrize("kind", TYPES)
def test_private_memory_belongs_to_one_fiber(rows: Rows, kind: str) -> None:
    h, dtype = _half(kind), TYPES[kind]
    width = np.dtype(dtype).itemsize
    columns = {
        f"{h}r4.{c}": crossed(INTEGERS16 if h else INTEGERS32, 1, seed=k)[0][:100]
        for k, c in enumerate("xyz")
    }
    place = (np.random.default_rng(3).integers(0, 4, 100) * 4 + (1 if width == 1 else 0)).astype(np.uint32)
    body = f"""
        (sy)stp.{kind} p[r1.x+{2 * width}], {h}r4.x, 3
        ldp.{kind} {h}r5.x, p[r1.x+{2 * width}], 3
        (sy)ldp.{kind} {h}r6.x, p[r1.x+{3 * width}], 1
    """
    outputs = [*(f"{h}r5.{c}" for c in "xyz"), f"{h}r6.x"]
    results = rows(body, {"r1.x": place, **columns}, outputs, private_bytes=48)
    for c in "xyz":
        same(results[f"{h}r5.{c}"], columns[f"{h}r4.{c}"].astype(dtype))
    same(results[f"{h}r6.x"], columns[f"{h}r4.y"].astype(dtype))


def test_strict_execution_poisons_registers_local_and_private_memory(rows: Rows) -> None:
    body = """
        mov.u32u32 r3.x, 0
        (rpt2)nop
        ldl.u32 r2.x, l[r3.x], 1
        ldp.u32 r2.y, p[r3.x], 1
    """
    results = rows(body, {}, ["r2.x", "r2.y", "r9.x", "hr9.x"], shared_bytes=4, private_bytes=4)
    assert {name: hex(values[0]) for name, values in results.items()} == {
        "r2.x": "0xadadadad",
        "r2.y": "0xadadadad",
        "r9.x": "0x7ffadead",
        "hr9.x": "0xdead",
    }
