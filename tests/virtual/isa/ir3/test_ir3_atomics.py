"""Atomics on global and local memory and on images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ringfence.hardware.adreno.descriptors import Format, Texture, TextureType
from virtual.isa.ir3.harness import INTEGERS32, Array, Memory, Rows, covers, crossed, pair, same, words

MASK = 0xFFFFFFFF


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


UPDATES: dict[str, Callable[[int, int], int]] = {
    "add": lambda old, x: old + x,
    "sub": lambda old, x: old - x,
    "xchg": lambda old, x: x,
    "inc": lambda old, x: old + 1,
    "dec": lambda old, x: old - 1,
    "min": min,
    "max": max,
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
}
IMAGE_UPDATES = {name: f for name, f in UPDATES.items() if name not in ("inc", "dec")}


def _expected(name: str, kind: str, old: Array, data: Array) -> Array:
    """Return what each row's own word becomes."""
    update, convert = UPDATES[name], _signed if kind == "s32" else int
    return np.array([update(convert(int(o)), convert(int(d))) & MASK for o, d in zip(old, data, strict=True)])


def _code(space: str, name: str, kind: str) -> str:
    """Return an atomic of the word at r3.x (and r3.y) with the data in r1.x; r2.x gets the old value."""
    if space == "l":
        return f"atomic.{name}.untyped.1d.{kind}.1.l r2.x, l[r3.x], r1.x"
    return f"atomic.g.{name}.untyped.1d.{kind}.1.g r2.x, r3.x, r1.x"


GLOBAL = """
    (sy)shl.b r3.x, r0.x, 2
    mov.u32u32 r3.y, c0.y
    (rpt2)nop
    add.u r3.x, r3.x, c0.x
    (rpt2)nop
"""


@covers(*(f"atomic.g.{name}" for name in UPDATES))
@pytest.mark.parametrize("kind", ["u32", "s32"])
@pytest.mark.parametrize("name", UPDATES)
def test_global_atomics_return_the_old_value_and_store_the_new(rows: Rows, name: str, kind: str) -> None:
    old, data = crossed(INTEGERS32, 2, rows=768)
    target, memory = old.copy(), Memory()
    constants = words(*pair(memory.add(target)))
    body = GLOBAL + _code("g", name, kind)
    results = rows(body, {"r1.x": data}, ["r2.x"], constants=constants, memory=memory)
    same(results["r2.x"], old)
    same(target, _expected(name, kind, old, data))


@covers(*(f"atomic.l.{name}" for name in UPDATES))
@pytest.mark.parametrize("kind", ["u32", "s32"])
@pytest.mark.parametrize("name", UPDATES)
def test_local_atomics_return_the_old_value_and_store_the_new(rows: Rows, name: str, kind: str) -> None:
    old, data = crossed(INTEGERS32, 2, rows=768)
    body = f"""
        (sy)shl.b r3.x, r0.x, 2
        (rpt2)nop
        stl.u32 l[r3.x], r1.y, 1
        {_code("l", name, kind)}
        ldl.u32 r2.y, l[r3.x], 1
    """
    results = rows(body, {"r1.x": data, "r1.y": old}, ["r2.x", "r2.y"], shared_bytes=768 * 4)
    same(results["r2.x"], old)
    same(results["r2.y"], _expected(name, kind, old, data))


@covers("atomic.g.cmpxchg", "atomic.l.cmpxchg")
@pytest.mark.parametrize("space", ["g", "l"])
def test_cmpxchg_takes_the_new_value_and_the_value_to_compare(rows: Rows, space: str) -> None:
    old, new = crossed(INTEGERS32, 2, rows=768)
    compare = np.where(np.arange(768) % 2, old, old + np.uint32(1))
    target, memory = old.copy(), Memory()
    constants = words(*pair(memory.add(target)))
    if space == "g":
        body = GLOBAL + _code("g", "cmpxchg", "u32")
    else:
        body = f"""
            (sy)shl.b r3.x, r0.x, 2
            (rpt2)nop
            stl.u32 l[r3.x], r1.z, 1
            {_code("l", "cmpxchg", "u32")}
            ldl.u32 r2.y, l[r3.x], 1
        """
    inputs = {"r1.x": new, "r1.y": compare, "r1.z": old}
    results = rows(body, inputs, ["r2.x", "r2.y"], constants=constants, memory=memory, shared_bytes=768 * 4)
    same(results["r2.x"], old)
    same(target if space == "g" else results["r2.y"], np.where(compare == old, new, old))


@covers("atomic.g.add")
def test_no_update_is_lost_between_fibers_groups_and_host_threads(rows: Rows) -> None:
    """Enough work for two host threads; old values of an increment are all different."""
    target, memory = np.zeros(4, np.uint32), Memory()
    constants = words(*pair(memory.add(target)))
    body = """
        (sy)mov.u32u32 r3.x, c0.x
        mov.u32u32 r3.y, c0.y
        mov.u32u32 r2.y, 0
        mov.u32u32 r2.z, 0
        loop:
        (jp)atomic.g.add.untyped.1d.u32.1.g r2.x, r3.x, r1.x
        (sy)add.u r2.z, r2.z, r2.x
        add.u r2.y, r2.y, 1
        (rpt2)nop
        cmps.u.lt p0.x, r2.y, 50
        (rpt5)nop
        br p0.x, #loop
        nop
    """
    data = np.ones(64 * 512, np.uint32)
    results = rows(body, {"r1.x": data}, ["r2.z"], groups=512, constants=constants, memory=memory)
    total = len(data) * 50
    assert target[0] == total
    assert int(results["r2.z"].sum(dtype=np.uint64)) & MASK == total * (total - 1) // 2 & MASK


@covers("atomic.l.add")
def test_local_atomics_of_all_waves_of_a_group_meet(rows: Rows) -> None:
    value = np.random.default_rng(3).integers(0, 1 << 32, 512, dtype=np.uint32)
    body = """
        (sy)mov.u32u32 r3.x, 0
        cmps.u.eq p0.x, r0.x, 0
        mov.u32u32 r3.y, 0
        (rpt5)nop
        predt
        stl.u32 l[r3.x], r3.y, 1
        prede
        bar.l
        (ss)(sy)atomic.add.untyped.1d.u32.1.l r2.x, l[r3.x], r1.x
        bar.l
        (ss)(sy)ldl.u32 r2.y, l[r3.x], 1
    """
    results = rows(body, {"r1.x": value}, ["r2.y"], local=(256, 1, 1), groups=2, shared_bytes=4)
    same(results["r2.y"], np.repeat(value.reshape(2, 256).sum(1, dtype=np.uint32), 256))


def _buffer(memory: Memory, target: Array, elements: int) -> Texture:
    return Texture(
        address=memory.add(target),
        width=elements & 0x7FFF,
        height=elements >> 15,
        depth=0,
        pitch=0,
        format=Format._32_UINT,
        type=TextureType.TEX_1D,
    )


@covers(*(f"atomic.b.{name}" for name in IMAGE_UPDATES))
@pytest.mark.parametrize("kind", ["u32", "s32"])
@pytest.mark.parametrize("name", IMAGE_UPDATES)
def test_image_atomics_hold_old_value_and_data_in_one_vector(rows: Rows, name: str, kind: str) -> None:
    old, data = crossed(INTEGERS32, 2, rows=768)
    target, memory = old.copy(), Memory()
    image = _buffer(memory, target, 760)
    body = f"(sy)mov.u32u32 r3.x, r0.x\n(rpt2)nop\natomic.b.{name}.untyped.1d.{kind}.1.imm r1.x, r3.x, 0"
    results = rows(body, {"r1.y": data}, ["r1.x"], uavs=(image,), memory=memory)
    inside = np.arange(768) < 760
    same(results["r1.x"], np.where(inside, old, 0))
    same(target, np.where(inside, _expected(name, kind, old, data), old))


@covers("atomic.b.cmpxchg")
def test_image_cmpxchg_takes_the_new_value_and_then_the_value_to_compare(rows: Rows) -> None:
    old, new = crossed(INTEGERS32, 2, rows=768)
    compare = np.where(np.arange(768) % 2, old, old + np.uint32(1))
    target, memory = old.copy(), Memory()
    image = _buffer(memory, target, 768)
    body = "(sy)mov.u32u32 r3.x, r0.x\n(rpt2)nop\natomic.b.cmpxchg.untyped.1d.u32.1.imm r1.x, r3.x, 0"
    results = rows(body, {"r1.y": new, "r1.z": compare}, ["r1.x"], uavs=(image,), memory=memory)
    same(results["r1.x"], old)
    same(target, np.where(compare == old, new, old))


@covers("atomic.b.add")
def test_typed_image_atomics_address_texels(rows: Rows) -> None:
    target, memory = np.zeros((8, 16), np.uint32), Memory()
    image = Texture(memory.add(target), 16, 8, 0, 64, Format._32_UINT)
    x, y = (np.random.default_rng(k).integers(0, n, 256).astype(np.uint32) for k, n in ((1, 17), (2, 8)))
    body = "(sy)atomic.b.add.typed.2d.u32.1.imm r1.x, r3.x, 0"
    data = np.arange(256, dtype=np.uint32)
    rows(body, {"r1.y": data, "r3.x": x, "r3.y": y}, [], uavs=(image,), memory=memory)
    expected = np.zeros((8, 17), np.uint32)
    np.add.at(expected, (y, x), data)
    same(target.ravel(), expected[:, :16].ravel())


def test_atomics_that_are_not_aligned_are_a_fault(rows: Rows) -> None:
    target, memory = np.zeros(4, np.uint32), Memory()
    address = memory.add(target)
    body = "(sy)atomic.g.add.untyped.1d.u32.1.g r2.x, r1.x, r1.z"
    low, high = pair(address)
    inputs = {"r1.x": np.array([low] * 7 + [low + 2], np.uint32), "r1.y": np.full(8, high, np.uint32)}
    report, _ = rows.attempt(body, {**inputs, "r1.z": np.ones(8, np.uint32)}, ["r2.x"], memory=memory)
    assert report is not None
    assert (report.kind, report.lane, report.address) == ("memory", 7, address + 2)
    assert "aligned" in report.message
