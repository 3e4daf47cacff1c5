"""Flow control: branches, loops, predication, calls, elections and the preamble."""

from __future__ import annotations

import numpy as np
import pytest

from virtual.isa.ir3.harness import INTEGERS32, Array, Rows, covers, crossed, same, words

LANES = np.arange(256, dtype=np.uint32)


def bits(seed: int, rows: int = 256) -> Array:
    return np.random.default_rng(seed).integers(0, 2, rows).astype(np.uint32)


@covers("br", "jump", "nop")
def test_each_fiber_takes_its_own_side_of_a_branch(rows: Rows) -> None:
    a = crossed(INTEGERS32, 1)[0]
    body = """
        (sy)cmps.u.lt p0.z, r1.x, 100
        (rpt5)nop
        br p0.z, #small
        nop
        mov.u32u32 r2.x, 2
        jump #join
        small:
        (jp)mov.u32u32 r2.x, 1
        join:
        (jp)add.u r2.y, r2.x, 10
    """
    results = rows(body, {"r1.x": a}, ["r2.x", "r2.y"])
    same(results["r2.x"], np.where(a < 100, 1, 2))
    same(results["r2.y"], np.where(a < 100, 11, 12))


@covers("br", "jump")
def test_a_loop_runs_as_often_as_each_fiber_wants(rows: Rows) -> None:
    count = np.random.default_rng(2).integers(0, 40, 256).astype(np.uint32)
    body = """
        (sy)mov.u32u32 r2.x, 0
        mov.u32u32 r2.y, 0
        loop:
        (jp)cmps.u.ge p0.x, r2.x, r1.x
        (rpt5)nop
        br p0.x, #done
        nop
        add.u r2.x, r2.x, 1
        (rpt2)nop
        add.u r2.y, r2.y, r2.x
        jump #loop
        done:
        (jp)nop
    """
    results = rows(body, {"r1.x": count}, ["r2.x", "r2.y"])
    same(results["r2.x"], count)
    same(results["r2.y"], count * (count + 1) // 2)


@covers("br", "jump")
def test_loops_nest_and_diverge(rows: Rows) -> None:
    outer, inner = (np.random.default_rng(k).integers(0, 9, 256).astype(np.uint32) for k in (5, 6))
    body = """
        (sy)mov.u32u32 r2.x, 0
        mov.u32u32 r2.w, 0
        outer:
        (jp)cmps.u.ge p0.x, r2.x, r1.x
        (rpt5)nop
        br p0.x, #done
        nop
        add.u r2.y, r1.y, r2.x
        mov.u32u32 r2.z, 0
        inner:
        (jp)cmps.u.ge p0.y, r2.z, r2.y
        (rpt5)nop
        br p0.y, #after
        nop
        and.b r3.x, r2.z, 1
        (rpt2)nop
        cmps.u.eq p0.z, r3.x, 0
        (rpt5)nop
        br p0.z, #even
        nop
        add.u r2.w, r2.w, 100
        even:
        (jp)add.u r2.w, r2.w, 1
        add.u r2.z, r2.z, 1
        jump #inner
        after:
        (jp)add.u r2.x, r2.x, 1
        jump #outer
        done:
        (jp)nop
    """
    results = rows(body, {"r1.x": outer, "r1.y": inner}, ["r2.w"])
    expected = [
        sum(sum(1 + 100 * (z & 1) for z in range(int(n) + x)) for x in range(int(m)))
        for m, n in zip(outer, inner, strict=True)
    ]
    same(results["r2.w"], np.array(expected))


@covers("br", "end")
def test_fibers_that_ended_leave_the_others_running(rows: Rows) -> None:
    stop = bits(9)
    body = """
        (sy)mov.u32u32 r2.x, 5
        cmps.u.eq p0.x, r1.x, 0
        (rpt5)nop
        br p0.x, #go
        nop
        end
        go:
        (jp)nop
    """
    results = rows(body, {"r1.x": stop}, ["r2.x"])
    same(results["r2.x"], np.where(stop == 0, 5, 0))


@covers("br")
def test_branches_on_values_that_all_fibers_share_are_taken_together(rows: Rows) -> None:
    body = """
        mov.u32u32 r2.x, c0.x
        mov.u32u32 r2.y, 1
        (rpt2)nop
        loop:
        (jp)mull.u r2.y, r2.y, 3
        add.s r2.x, r2.x, -1
        (rpt2)nop
        cmps.u.ne p0.x, r2.x, 0
        (rpt5)nop
        br p0.x, #loop
        nop
    """
    results = rows(body, {}, ["r2.y"], constants=words(7))
    same(results["r2.y"], np.full(64, 3**7))


@covers("brao", "braa")
@pytest.mark.parametrize("name", ["brao", "braa"])
@pytest.mark.parametrize("inverted", [("", ""), ("!", ""), ("", "!"), ("!", "!")])
def test_branches_combine_two_predicates(rows: Rows, name: str, inverted: tuple[str, str]) -> None:
    a, b = bits(1), bits(2)
    body = f"""
        (sy)cmps.u.ne p0.x, r1.x, 0
        cmps.u.ne p0.w, r1.y, 0
        mov.u32u32 r2.x, 1
        (rpt5)nop
        {name} {inverted[0]}p0.x, {inverted[1]}p0.w, #over
        nop
        mov.u32u32 r2.x, 0
        over:
        (jp)nop
    """
    results = rows(body, {"r1.x": a, "r1.y": b}, ["r2.x"])
    first, second = (v ^ bool(i) for v, i in zip((a, b), inverted, strict=True))
    same(results["r2.x"], first | second if name == "brao" else first & second)


@covers("bany", "ball")
def test_bany_and_ball_decide_for_the_whole_wave(rows: Rows) -> None:
    a = np.concatenate([np.zeros(64), np.ones(64), bits(3, 64), np.eye(1, 64, 63)[0]]).astype(np.uint32)
    body = """
        (sy)cmps.u.ne p0.y, r1.x, 0
        mov.u32u32 r2.x, 1
        mov.u32u32 r2.y, 1
        mov.u32u32 r2.z, 1
        (rpt5)nop
        bany p0.y, #any
        nop
        mov.u32u32 r2.x, 0
        any:
        (jp)ball p0.y, #all
        nop
        mov.u32u32 r2.y, 0
        all:
        (jp)ball !p0.y, #none
        nop
        mov.u32u32 r2.z, 0
        none:
        (jp)nop
    """
    results = rows(body, {"r1.x": a}, ["r2.x", "r2.y", "r2.z"])
    waves = a.reshape(-1, 64)
    same(results["r2.x"], np.repeat(waves.any(1), 64))
    same(results["r2.y"], np.repeat(waves.all(1), 64))
    same(results["r2.z"], np.repeat(~waves.any(1), 64))


@covers("bany")
def test_bany_counts_only_fibers_that_are_active(rows: Rows) -> None:
    a = np.zeros(64, np.uint32)
    a[7] = 1
    body = """
        (sy)cmps.u.ne p0.x, r1.x, 0
        mov.u32u32 r2.x, 0
        (rpt5)nop
        br p0.x, #join
        nop
        bany p0.x, #join
        nop
        mov.u32u32 r2.x, 1
        join:
        (jp)nop
    """
    same(rows(body, {"r1.x": a}, ["r2.x"])["r2.x"], 1 - a)


@covers("getone")
def test_getone_lets_one_active_fiber_fall_through(rows: Rows) -> None:
    a = bits(4)
    body = """
        (sy)cmps.u.eq p0.x, r1.x, 0
        mov.u32u32 r2.x, 0
        (rpt5)nop
        br p0.x, #join
        nop
        getone #join
        nop
        mov.u32u32 r2.x, 1
        join:
        (jp)nop
    """
    result = rows(body, {"r1.x": a}, ["r2.x"])["r2.x"].reshape(-1, 64)
    assert (result.sum(1) == 1).all()
    assert (a.reshape(-1, 64)[result == 1] == 1).all()


@covers("getlast")
def test_getlast_keeps_the_last_fiber_of_the_first_active_cluster(rows: Rows) -> None:
    a = np.ones(64, np.uint32)
    a[:11] = 0  # the cluster of fibers 8 to 15 is the first with active ones
    a[14:16] = 0
    body = """
        (sy)cmps.u.eq p0.x, r1.x, 0
        mov.u32u32 r2.x, 0
        (rpt5)nop
        br p0.x, #join
        nop
        getlast.w8 #join
        nop
        mov.u32u32 r2.x, 1
        join:
        (jp)nop
    """
    expected = a.copy()
    expected[11:13] = 0
    same(rows(body, {"r1.x": a}, ["r2.x"])["r2.x"], expected)


# --- predication ---


@covers("predt", "predf", "prede")
def test_predicated_instructions_write_only_where_the_predicate_is_right(rows: Rows) -> None:
    a, b = bits(5), crossed(INTEGERS32, 1, rows=256)[0][:256]
    body = """
        (sy)cmps.u.ne p0.x, r1.x, 0
        mov.u32u32 r2.x, r1.y
        mov.u32u32 r2.y, r1.y
        mov.u32u32 r2.z, 9
        (rpt5)nop
        predt
        mov.u32u32 r2.x, 1
        add.u r2.y, r2.x, 1
        predf
        mov.u32u32 r2.x, 2
        prede
        mov.u32u32 r2.z, 3
    """
    results = rows(body, {"r1.x": a, "r1.y": b}, ["r2.x", "r2.y", "r2.z"])
    same(results["r2.x"], np.where(a, 1, 2))
    same(results["r2.y"], np.where(a, 2, b))
    same(results["r2.z"], np.full(256, 3))


@covers("predt", "predf", "prede")
def test_changing_the_predicate_inside_a_region_does_not_change_the_region(rows: Rows) -> None:
    a = bits(6)
    body = """
        (sy)cmps.u.ne p0.x, r1.x, 0
        mov.u32u32 r2.x, 0
        (rpt5)nop
        predt
        cmps.u.eq p0.x, r1.x, 0
        (rpt5)nop
        mov.u32u32 r2.x, 1
        prede
    """
    same(rows(body, {"r1.x": a}, ["r2.x"])["r2.x"], a)


@covers("predt", "predf", "prede")
@pytest.mark.parametrize("flag", [0, 1])
def test_regions_work_when_all_fibers_share_the_predicate(rows: Rows, flag: int) -> None:
    a = LANES[:64]
    body = """
        (sy)cmps.u.ne p0.x, c0.x, 0
        mov.u32u32 r2.x, 0
        mov.u32u32 r2.y, c0.x
        (rpt5)nop
        predt
        mov.u32u32 r2.x, r1.x
        mov.u32u32 r2.y, 40
        predf
        mov.u32u32 r2.y, 50
        prede
        add.u r2.z, r2.y, 1
    """
    results = rows(body, {"r1.x": a}, ["r2.x", "r2.y", "r2.z"], constants=words(flag))
    same(results["r2.x"], a * flag)
    same(results["r2.y"], np.full(64, 40 if flag else 50))
    same(results["r2.z"], np.full(64, 41 if flag else 51))


@covers("predt", "prede")
def test_memory_is_not_touched_where_the_predicate_is_false(rows: Rows) -> None:
    ok = bits(7, 64)
    body = """
        (sy)cmps.u.ne p0.x, r1.x, 0
        mov.u32u32 r2.x, 0
        mov.u32u32 r3.x, 0
        mov.u32u32 r3.y, 0
        (rpt5)nop
        predt
        mov.u32u32 r3.x, c200.x
        mov.u32u32 r3.y, c200.y
        (rpt2)nop
        ldg.u32 r2.x, g[r3.x], 1
        (sy)stg.u32 g[r3.x], r2.x, 1
        prede
        predf
        ldg.u32 r2.x, g[r3.x], 1
        prede
        (sy)nop
    """
    report, _ = rows.attempt(body, {"r1.x": np.ones(64, np.uint32)}, ["r2.x"])
    assert report is None
    report, _ = rows.attempt(body, {"r1.x": ok}, ["r2.x"])
    assert report is not None  # the predf side reads address 0
    assert report.lane == int(np.flatnonzero(ok == 0)[0])


@covers("predt", "predf", "prede")
def test_a_region_goes_on_behind_a_place_where_other_fibers_join(rows: Rows) -> None:
    jump, flag = bits(11), bits(12)
    body = """
        (sy)cmps.u.ne p0.x, r1.y, 0
        cmps.u.ne p0.y, r1.x, 0
        mov.u32u32 r2.x, 0
        mov.u32u32 r2.y, 0
        (rpt5)nop
        br p0.y, #inside
        nop
        predt
        mov.u32u32 r2.x, 1
        inside:
        (jp)mov.u32u32 r2.y, 1
        predf
        mov.u32u32 r2.y, 2
        prede
    """
    results = rows(body, {"r1.x": jump, "r1.y": flag}, ["r2.x", "r2.y"])
    same(results["r2.x"], flag & ~jump & 1)
    same(results["r2.y"], np.where(flag, 1, 2))


# --- calls ---


@covers("call", "ret")
def test_a_call_returns_behind_itself(rows: Rows) -> None:
    a = bits(8)
    body = """
        (sy)cmps.u.ne p0.x, r1.x, 0
        mov.u32u32 r2.x, 1
        (rpt5)nop
        br p0.x, #twice
        nop
        call #triple
        jump #join
        twice:
        (jp)call #triple
        call #nested
        jump #join
        nested:
        call #triple
        add.u r2.x, r2.x, 100
        ret
        triple:
        (jp)mull.u r2.x, r2.x, 3
        (rpt2)nop
        ret
        join:
        (jp)nop
    """
    same(rows(body, {"r1.x": a}, ["r2.x"])["r2.x"], np.where(a, 109, 3))


@covers("call", "ret")
@pytest.mark.parametrize("body", ["ret", "again:\ncall #again"])
def test_calls_without_end_and_returns_without_call_are_faults(rows: Rows, body: str) -> None:
    report, _ = rows.attempt(body, {"r1.x": LANES}, ["r1.x"])
    assert report is not None
    assert report.kind == "bad state"
    assert "call" in report.message


# --- the preamble ---


@covers("shps", "shpe", "stc")
def test_the_preamble_runs_once_and_gives_constants_to_all_waves(rows: Rows) -> None:
    counter = np.zeros(64, np.uint32)
    body = """
        shps #main
        getone #main
        mov.u32u32 r3.x, c200.x
        mov.u32u32 r3.y, c200.y
        mov.u32u32 r3.z, 1
        mov.u32u32 r2.x, 42
        (rpt2)nop
        atomic.g.add.untyped.1d.u32.1.g r3.w, r3.x, r3.z
        stc.u32 c[8], r2.x, 1
        (sy)(ss)nop
        shpe
        main:
        (jp)add.u r2.y, c2.x, 1
    """
    results = rows(body, {"r1.x": counter}, ["r2.y"], local=(16, 1, 1), groups=4)
    same(results["r2.y"], np.full(64, 43))
    assert counter[0] == 1  # one host thread ran the groups; a thread stands for a shader processor


# --- instructions that change nothing ---


@covers("sleep", "icinv", "dccln", "dcinv", "dcflu", "fence", "tcinv")
def test_cache_control_fences_and_sleep_leave_registers_alone(rows: Rows) -> None:
    a = crossed(INTEGERS32, 1)[0]
    body = """
        (sy)sleep.l
        icinv
        dccln.all
        dcinv.all
        dcflu.all
        fence.g.l.r.w
        tcinv
    """
    same(rows(body, {"r1.x": a}, ["r1.x"])["r1.x"], a)
