"""Instructions by which fibers of a wave see each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from virtual.isa.ir3.harness import INTEGERS16, INTEGERS32, Array, Rows, covers, crossed, same, words

POISON, POISON16 = 0x7FFADEAD, 0xDEAD
FIBER = np.arange(64)

MODES: dict[str, Callable[[int], Array]] = {
    "xor": lambda d: FIBER ^ d,
    "up": lambda d: FIBER - d,
    "down": lambda d: FIBER + d,
    "rup": lambda d: (FIBER - d) % 64,
    "rdown": lambda d: (FIBER + d) % 64,
}


def _moved(value: Array, source: Array, poison: int) -> Array:
    """Return per wave what fibers read from the fibers ``source``; poison from outside the wave."""
    waves = value.reshape(-1, 64).astype(np.int64)
    inside = (source >= 0) & (source < 64)
    return np.where(inside, waves[:, np.where(inside, source, 0)], poison).ravel()


@covers("shfl")
@pytest.mark.parametrize("mode", MODES)
def test_shfl_reads_another_fiber_of_the_wave(rows: Rows, mode: str) -> None:
    full, half = crossed(INTEGERS32, 1)[0][:256], crossed(INTEGERS16, 1)[0][:256]
    distances = (1, 5, 32)
    lines = ["(sy)nop"]
    for k, d in enumerate(distances):
        lines += [f"shfl.{mode}.u32 r{4 + k}.x, r1.x, {d}", f"shfl.{mode}.u16 hr{4 + k}.x, hr1.x, {d}"]
    lines += ["mov.u32u32 r1.y, 5", "(rpt2)nop", f"shfl.{mode}.f32 r8.x, r1.x, r1.y"]
    places = [*(f"r{4 + k}.x" for k in range(3)), *(f"hr{4 + k}.x" for k in range(3)), "r8.x"]
    results = rows("\n".join(lines), {"r1.x": full, "hr1.x": half}, places)
    for k, d in enumerate(distances):
        same(results[f"r{4 + k}.x"], _moved(full, MODES[mode](d), POISON))
        same(results[f"hr{4 + k}.x"], _moved(half, MODES[mode](d), POISON16))
    same(results["r8.x"], results["r5.x"])


@covers("shfl")
def test_shfl_of_a_fiber_that_is_not_active_gives_poison(rows: Rows) -> None:
    a = np.arange(64, dtype=np.uint32)
    body = """
        (sy)and.b r2.x, r1.x, 1
        (rpt2)nop
        cmps.u.ne p0.x, r2.x, 0
        mov.u32u32 r3.x, 0
        (rpt5)nop
        br p0.x, #join
        nop
        shfl.xor.u32 r3.x, r1.x, 1
        shfl.xor.u32 r3.y, r1.x, 2
        join:
        (jp)nop
    """
    results = rows(body, {"r1.x": a}, ["r3.x", "r3.y"])
    same(results["r3.x"], np.where(a % 2, 0, POISON))
    same(results["r3.y"][::2], (a ^ 2)[::2])


@covers("shfl")
def test_a_wave_can_have_128_fibers(rows: Rows) -> None:
    a = np.arange(256, dtype=np.uint32)
    results = rows("(sy)shfl.xor.u32 r2.x, r1.x, 64", {"r1.x": a}, ["r2.x"], threads=128)
    same(results["r2.x"], a ^ 64)


@covers("movmsk")
def test_movmsk_gives_the_active_fibers_as_bits(rows: Rows) -> None:
    a = np.random.default_rng(1).integers(0, 2, 100).astype(np.uint32)
    body = """
        (sy)cmps.u.eq p0.x, r1.x, 0
        movmsk.w64 r2.x
        mov.u32u32 r3.x, 0
        mov.u32u32 r3.y, 0
        (rpt5)nop
        br p0.x, #join
        nop
        movmsk.w64 r3.x
        join:
        (jp)nop
    """
    results = rows(body, {"r1.x": a}, ["r2.x", "r2.y", "r3.x", "r3.y"])
    for wave in range(2):
        active = a[64 * wave : 64 * wave + 64]
        mask = sum(int(x) << k for k, x in enumerate(active))
        there = (1 << len(active)) - 1
        part = slice(64 * wave, 64 * wave + len(active))
        same(results["r2.x"][part], np.full(len(active), there & 0xFFFFFFFF))
        same(results["r2.y"][part], np.full(len(active), there >> 32))
        same(results["r3.x"][part], np.where(active, mask & 0xFFFFFFFF, 0))
        same(results["r3.y"][part], np.where(active, mask >> 32, 0))


@covers("brcst.active")
@pytest.mark.parametrize("cluster", [2, 4, 8])
def test_brcst_active_fills_the_upper_half_of_a_cluster(rows: Rows, cluster: int) -> None:
    a, old = crossed(INTEGERS32, 2, rows=768)
    active = np.random.default_rng(cluster).integers(0, 3, 768).astype(np.uint32)
    body = f"""
        (sy)cmps.u.eq p0.x, r1.y, 0
        (rpt5)nop
        br p0.x, #join
        nop
        brcst.active.w{cluster} (u32)(x)r2.x, r1.x
        join:
        (jp)nop
    """
    results = rows(body, {"r1.x": a, "r1.y": active, "r2.x": old}, ["r2.x"])
    expected = old.copy()
    for start in range(0, 768, cluster):
        givers = [k for k in range(start, start + cluster // 2) if active[k]]
        for k in range(start + cluster // 2, start + cluster):
            if givers and active[k]:
                expected[k] = a[givers[-1]]
    same(results["r2.x"], expected)


@covers("brcst.active")
def test_brcst_active_moves_half_registers(rows: Rows) -> None:
    a, old = (column[:64] for column in crossed(INTEGERS16, 2))
    results = rows("(sy)brcst.active.w4 (u16)(x)hr2.x, hr1.x", {"hr1.x": a, "hr2.x": old}, ["hr2.x"])
    upper = FIBER % 4 >= 2
    same(results["hr2.x"], np.where(upper, a[FIBER // 4 * 4 + 1], old))


@covers("quad_shuffle.horiz", "quad_shuffle.vert", "quad_shuffle.diag")
@pytest.mark.parametrize(("name", "mask"), [("horiz", 1), ("vert", 2), ("diag", 3)])
def test_quad_shuffles_swap_neighbours_of_four_fibers(rows: Rows, name: str, mask: int) -> None:
    a, h = crossed(INTEGERS32, 1)[0][:128], crossed(INTEGERS16, 1)[0][:128]
    body = f"(sy)quad_shuffle.{name} (u32)(x)r2.x, r1.x\nquad_shuffle.{name} (u16)(x)hr2.x, hr1.x"
    results = rows(body, {"r1.x": a, "hr1.x": h}, ["r2.x", "hr2.x"])
    same(results["r2.x"], _moved(a, FIBER ^ mask, POISON))
    same(results["hr2.x"], _moved(h, FIBER ^ mask, POISON16))


@covers("quad_shuffle.brcst")
def test_quad_broadcast_reads_the_fiber_of_four_that_is_named(rows: Rows) -> None:
    a = crossed(INTEGERS32, 1)[0][:64]
    which = np.repeat(np.random.default_rng(2).integers(0, 4, 16), 4).astype(np.uint32)
    body = "(sy)quad_shuffle.brcst (u32)(x)r2.x, r1.x, r1.y"
    results = rows(body, {"r1.x": a, "r1.y": which}, ["r2.x"])
    same(results["r2.x"], a[FIBER // 4 * 4 + which])


@covers("movs")
@pytest.mark.parametrize("fiber", [0, 5, 63])
def test_movs_gives_a_shared_register_the_value_of_a_fiber(rows: Rows, fiber: int) -> None:
    a, h = crossed(INTEGERS32, 1)[0][:256], crossed(INTEGERS16, 1)[0][:256]
    body = f"""
        (sy)movs.u32u32 r49.x, r1.x, {fiber}
        movs.u16u16 hr52.x, hr4.x, {fiber}
        movs.u16u32 r49.y, hr4.x, {fiber}
        movs.s16s32 r49.z, hr4.x, {fiber}
        (ss)mov.u32u32 r2.x, r49.x
        mov.u16u16 hr6.x, hr52.x
        mov.u32u32 r2.y, r49.y
        mov.u32u32 r2.z, r49.z
    """
    places = ["r2.x", "hr6.x", "r2.y", "r2.z"]
    results = rows(body, {"r1.x": a, "hr4.x": h}, places, chip="a660")
    given = np.full(64, fiber)
    word = _moved(h, given, 0)
    same(results["r2.x"], _moved(a, given, 0))
    same(results["hr6.x"], word)
    same(results["r2.y"], word)
    same(results["r2.z"], word.astype(np.uint16).view(np.int16).astype(np.int32).view(np.uint32))


@covers("movs")
def test_movs_converts_floats_like_cov(rows: Rows) -> None:
    a = np.random.default_rng(3).normal(scale=1000, size=64).astype(np.float32)
    body = """
        (sy)movs.f32f16 (even)hr52.x, r1.x, 7
        movs.f32s32 r49.x, r1.x, 8
        (ss)cov.f16f32 r2.x, hr52.x
        mov.u32u32 r2.y, r49.x
    """
    results = rows(body, {"r1.x": a.view(np.uint32)}, ["r2.x", "r2.y"], chip="a643")
    assert set(results["r2.x"].view(np.float32)) == {np.float32(np.float16(a[7]))}
    assert set(results["r2.y"].view(np.int32)) == {int(a[8])}


@covers("movs")
def test_movs_takes_the_fiber_from_a0(rows: Rows) -> None:
    a = np.arange(128, dtype=np.uint32) * 3
    body = """
        (sy)cov.u32s16 hr8.x, c0.x
        (rpt2)nop
        mova a0.x, hr8.x
        (rpt5)nop
        movs.u32u32 r49.x, r1.x, a0.x
        (ss)mov.u32u32 r2.x, r49.x
    """
    results = rows(body, {"r1.x": a}, ["r2.x"], constants=words(41), chip="a660")
    same(results["r2.x"], np.repeat(a[[41, 64 + 41]], 64))


@covers("movs")
def test_movs_of_a_fiber_that_is_not_there_gives_poison(rows: Rows) -> None:
    a = np.arange(100, dtype=np.uint32)
    body = """
        (sy)movs.u32u32 r49.x, r1.x, 63
        movs.u32u32 r49.y, r1.x, 64
        (ss)mov.u32u32 r2.x, r49.x
        mov.u32u32 r2.y, r49.y
    """
    results = rows(body, {"r1.x": a}, ["r2.x", "r2.y"], chip="a660")
    same(results["r2.x"], np.where(np.arange(100) < 64, 63, POISON))
    same(results["r2.y"], np.full(100, POISON))


@covers("movs")
def test_movs_to_another_register_is_a_move(rows: Rows) -> None:
    a = crossed(INTEGERS32, 1)[0][:64]
    results = rows("(sy)movs.u32u32 r2.x, r1.x, 9", {"r1.x": a}, ["r2.x"], chip="a660")
    same(results["r2.x"], a)


@covers("getfiberid")
@pytest.mark.parametrize("threads", [64, 128])
def test_getfiberid_counts_the_fibers_of_a_wave(rows: Rows, threads: int) -> None:
    body = "getfiberid.u32 r2.x\ngetfiberid.u16 hr6.x"
    results = rows(body, {}, ["r2.x", "hr6.x"], local=(300, 1, 1), groups=2, threads=threads, chip="a660")
    expected = np.tile(np.arange(300) % threads, 2)
    same(results["r2.x"], expected)
    same(results["hr6.x"], expected)
