"""Values that move between lanes: DPP, permutations, readlane and writelane, and registers chosen by M0."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.harness import Array, Op, batch, covers

Source = Callable[[int], int]
OUT = -1


def row(move: Callable[[int], int], *, wraps: bool = True) -> Source:
    """Return the source lane of a permutation inside rows of 16."""

    def source(lane: int) -> int:
        k = move(lane & 15)
        return (lane & ~15) + (k & 15) if wraps or 0 <= k < 16 else OUT

    return source


DPP16: dict[str, Source] = {
    "quad_perm:[3,0,2,1]": lambda i: (i & ~3) + (3, 0, 2, 1)[i & 3],
    "row_shl:1": row(lambda k: k + 1, wraps=False),
    "row_shl:15": row(lambda k: k + 15, wraps=False),
    "row_shr:3": row(lambda k: k - 3, wraps=False),
    "row_ror:5": row(lambda k: k - 5),
    "row_mirror": row(lambda k: 15 - k),
    "row_half_mirror": row(lambda k: (k & 8) + 7 - (k & 7)),
    "row_share:6": row(lambda k: 6),
    "row_xmask:9": row(lambda k: k ^ 9),
}


def moved(
    source: Source, values: Sequence[int], old: Sequence[int], active: Sequence[bool], *,
    rows: int = 15, banks: int = 15, bound: bool = False, fetch: bool = False,
) -> list[int]:  # fmt: skip
    """Return what a DPP move leaves in a register."""
    result = []
    for lane in range(len(values)):
        written = active[lane] and rows >> lane // 16 & 1 and banks >> lane % 16 // 4 & 1
        at = source(lane)
        valid = at != OUT and (fetch or active[at])
        if written and (valid or bound):
            result.append(values[at] if valid else 0)
        else:
            result.append(old[lane])
    return result


@covers("v_mov_b32")
@pytest.mark.parametrize("wave", [32, 64])
def test_dpp16_permutes_rows_and_masks_rows_and_banks(amd: Executor, wave: int) -> None:
    rng = np.random.default_rng(1)
    values, old = (rng.integers(0, 1 << 32, wave).astype(np.uint32) for _ in range(2))
    mask = int(rng.integers(0, 1 << 62)) & ((1 << wave) - 1) | 1
    exec_all = "s_mov_b32 exec_lo, -1" if wave == 32 else "s_mov_b64 exec, -1"
    setup = f"s_mov_b32 exec_lo, {mask & 0xFFFFFFFF:#x}"
    setup += f"; s_mov_b32 exec_hi, {mask >> 32:#x}" if wave == 64 else ""
    cases, operations = [], []
    for text, source in DPP16.items():
        for extra, options in (
            ("row_mask:0xf bank_mask:0xf", {}),
            ("row_mask:0xf bank_mask:0xf bound_ctrl:1", {"bound": True}),
            ("row_mask:0x5 bank_mask:0x3", {"rows": 5, "banks": 3}),
            ("row_mask:0xf bank_mask:0xf fi:1", {"fetch": True}),
        ):
            for everyone in (True, False):
                active = [True] * wave if everyone else [bool(mask >> k & 1) for k in range(wave)]
                cases.append(moved(source, values.tolist(), old.tolist(), active, **options))
                before = exec_all if everyone else setup
                operations.append(
                    Op(f"{before}; v_mov_b32_dpp {{d}}, {{0}} {text} {extra}; {exec_all}", start=1)
                )
    for operation, wanted, words in zip(
        operations, cases, batch(amd, operations, [values, old], wave=wave), strict=True
    ):
        assert words[:, 0].tolist() == wanted, operation.text


def test_dpp8_permutes_groups_of_eight(amd: Executor) -> None:
    values = np.arange(100, 132, dtype=np.uint32)
    text = "v_mov_b32_dpp {d}, {0} dpp8:[7,6,5,4,0,1,2,3]"
    half = f"v_mov_b32 {{d}}, 0; s_mov_b32 exec_lo, 0x0f0f0f0f; {text}; s_mov_b32 exec_lo, -1"
    fetch = half.replace("3]", "3] fi:1")
    found = batch(amd, [Op(text), Op(half), Op(fetch)], [values])
    source = [(i & ~7) + (7, 6, 5, 4, 0, 1, 2, 3)[i & 7] for i in range(32)]
    assert found[0][:, 0].tolist() == [values[k] for k in source]
    active = [bool(0x0F0F0F0F >> k & 1) for k in range(32)]
    assert found[1][:, 0].tolist() == [
        int(values[source[k]]) if active[k] and active[source[k]] else 0 for k in range(32)
    ]
    assert found[2][:, 0].tolist() == [int(values[source[k]]) if active[k] else 0 for k in range(32)]


def test_dpp_works_on_arithmetic_halves_and_compares(amd: Executor) -> None:
    a = np.arange(32, dtype=np.float32)
    lanes = np.arange(32, dtype=np.uint32)
    full = "row_mask:0xf bank_mask:0xf"
    equal, store = f"v_cmp_eq_u32_dpp vcc_lo, {{1}}, {{1}} row_shr:1 {full}", "v_mov_b32 {d}, vcc_lo"
    cases = [
        Op(f"v_add_f32_dpp {{d}}, {{0}}, {{0}} row_mirror {full}"),
        Op(f"v_sub_f32_dpp {{d}}, -{{0}}, |{{0}}| row_share:2 {full}"),
        Op(f"v_cvt_f16_f32 v20.l, {{0}}; v_add_f16_dpp {{d}}.l, v20.l, v20.l row_ror:1 {full}", start=1),
        Op(f"s_mov_b32 vcc_lo, -1; {equal}; {store}"),
        Op(f"{equal} bound_ctrl:1; {store}"),
        Op(f"v_fma_f32_e64_dpp {{d}}, {{0}}, {{0}}, {{0}} row_mirror {full}"),
    ]
    found = batch(amd, cases, [a, lanes])
    mirrored = np.array([a[(k & ~15) + 15 - (k & 15)] for k in range(32)])
    shared = np.array([a[(k & ~15) + 2] for k in range(32)])
    rotated = np.array([a[(k & ~15) + ((k - 1) & 15)] for k in range(32)])
    assert (found[0][:, 0].view(np.float32) == mirrored + a).all()
    assert (found[1][:, 0].view(np.float32) == -shared - a).all()
    assert ((found[2][:, 0] & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16) == rotated + a).all()
    assert int(found[3][0, 0]) == 0  # a lane without source gives 0, the others differ from their neighbour
    assert int(found[4][0, 0]) == 1  # lane 0 reads 0 and is 0
    assert (found[5][:, 0].view(np.float32) == mirrored * a + a).all()


@covers("v_readlane_b32", "v_readfirstlane_b32", "v_writelane_b32")
@pytest.mark.parametrize("wave", [32, 64])
def test_single_lanes_are_read_and_written_whatever_exec_says(amd: Executor, wave: int) -> None:
    values = np.arange(1000, 1000 + wave, dtype=np.uint32)
    whole = "s_mov_b32 exec_lo, -1" if wave == 32 else "s_mov_b64 exec, -1"
    none = "s_mov_b32 exec_lo, 0" if wave == 32 else "s_mov_b64 exec, 0"
    some = "s_mov_b32 exec_lo, 0xff00" if wave == 32 else "s_mov_b64 exec, 0xff00"
    cases = [
        Op(f"{none}; v_readlane_b32 s20, {{0}}, 5; {whole}; v_mov_b32 {{d}}, s20"),
        Op(f"s_mov_b32 s21, {wave + 7}; v_readlane_b32 s20, {{0}}, s21; v_mov_b32 {{d}}, s20"),
        Op(f"{some}; v_readfirstlane_b32 s20, {{0}}; {whole}; v_mov_b32 {{d}}, s20"),
        Op(f"{none}; v_readfirstlane_b32 s20, {{0}}; {whole}; v_mov_b32 {{d}}, s20"),
        Op(f"s_movk_i32 s20, 77; {none}; v_writelane_b32 {{d}}, s20, 3; {whole}", start=0),
        Op(f"s_mov_b32 s21, {wave + 4}; v_writelane_b32 {{d}}, -1, s21", start=0),
    ]
    found = [words[:, 0].tolist() for words in batch(amd, cases, [values], wave=wave)]
    for result, wanted in zip(found[:4], (1005, 1007, 1008, 1000), strict=True):
        assert result == [wanted] * wave
    for result, lane, value in ((found[4], 3, 77), (found[5], 4, 0xFFFFFFFF)):
        expected = values.tolist()
        expected[lane] = value
        assert result == expected


@covers("v_permlane16_b32", "v_permlanex16_b32")
def test_permlane_selects_inside_a_row_or_from_the_other(amd: Executor) -> None:
    rng = np.random.default_rng(3)
    values, old = (rng.integers(0, 1 << 32, 32).astype(np.uint32) for _ in range(2))
    picks = rng.integers(0, 16, 16)
    low = sum(int(k) << 4 * i for i, k in enumerate(picks[:8]))
    high = sum(int(k) << 4 * i for i, k in enumerate(picks[8:]))
    mask = 0x35F0A3C7
    setup = f"s_mov_b32 s20, {low:#x}; s_mov_b32 s21, {high:#x}"
    for name, flip in (("v_permlane16_b32", 0), ("v_permlanex16_b32", 16)):
        plan = [(i & 16 ^ flip) + int(picks[i & 15]) for i in range(32)]
        texts = [f"{setup}; {name} {{d}}, {{0}}, s20, s21"]
        for flags in ("", " op_sel:[1,0]", " op_sel:[0,1]"):
            move = f"{name} {{d}}, {{0}}, s20, s21{flags}"
            texts.append(f"{setup}; s_mov_b32 exec_lo, {mask:#x}; {move}; s_mov_b32 exec_lo, -1")
        found = batch(amd, [Op(t, start=1) for t in texts], [values, old])
        assert found[0][:, 0].tolist() == [int(values[k]) for k in plan]
        for words, fetch, bound in zip(found[1:], (0, 1, 0), (0, 0, 1), strict=True):
            for lane in range(32):
                valid = fetch or mask >> plan[lane] & 1
                wanted = values[plan[lane]] if valid else (0 if bound else old[lane])
                assert words[lane, 0] == (wanted if mask >> lane & 1 else old[lane])


@covers("v_permlane64_b32")
def test_permlane64_swaps_the_halves_of_a_wave64_only(amd: Executor) -> None:
    for wave in (32, 64):
        values = np.arange(wave, dtype=np.uint32)
        (words,) = batch(amd, [Op("v_permlane64_b32 {d}, {0}", start=0)], [values], wave=wave)
        assert words[:, 0].tolist() == [k ^ 32 if wave == 64 else k for k in range(wave)]


@covers("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32")
@pytest.mark.parametrize("wave", [32, 64])
def test_mbcnt_counts_the_ones_of_lower_lanes(amd: Executor, wave: int) -> None:
    text = "v_mbcnt_lo_u32_b32 {d}, 0x0f0f00ff, 5; v_mbcnt_hi_u32_b32 {d}, 0xf00000f1, {d}"
    (words,) = batch(amd, [Op(text)], [np.zeros(wave, np.uint32)], wave=wave)
    bits = 0x0F0F00FF | 0xF00000F1 << 32
    assert words[:, 0].tolist() == [5 + (bits & (1 << k) - 1).bit_count() for k in range(wave)]


@covers("ds_swizzle_b32")
@pytest.mark.parametrize("wave", [32, 64])
def test_swizzle_patterns(amd: Executor, wave: int) -> None:
    values = np.arange(500, 500 + wave, dtype=np.uint32)
    plans: dict[int, Source] = {
        0x041F: lambda i: i ^ 1,
        0x5C0F: lambda i: (i & 15) ^ 0x17 | i & 32,
        0x00A3: lambda i: i & 3 | 5 | i & 32,
        0x801B: lambda i: (i & ~3) + 3 - (i & 3),
        0xC060: lambda i: (i + 3) & 31 | i & 32,
        0xC460: lambda i: (i - 3) & 31 | i & 32,
        0xE000: lambda i: int(f"{i & 31:05b}"[::-1], 2) | i & 32,
    }
    whole = "s_mov_b32 exec_lo, -1" if wave == 32 else "s_mov_b64 exec, -1"
    mask = 0xFFFF0F0F
    texts = [f"ds_swizzle_b32 {{d}}, {{0}} offset:{offset}; s_waitcnt lgkmcnt(0)" for offset in plans]
    texts.append(f"v_mov_b32 {{d}}, 0; s_mov_b32 exec_lo, {mask:#x}; {texts[0]}; {whole}")
    found = batch(amd, [Op(text) for text in texts], [values], wave=wave)
    for (offset, plan), words in zip(plans.items(), found, strict=False):
        assert words[:, 0].tolist() == [500 + plan(k) for k in range(wave)], hex(offset)
    active = [k >= 32 or bool(mask >> k & 1) for k in range(wave)]
    assert found[-1][:, 0].tolist() == [
        500 + (k ^ 1) if active[k] and active[k ^ 1] else 0 for k in range(wave)
    ]


@covers("ds_permute_b32", "ds_bpermute_b32")
@pytest.mark.parametrize("wave", [32, 64])
def test_permutations_through_local_memory_hardware(amd: Executor, wave: int) -> None:
    rng = np.random.default_rng(8)
    values = rng.integers(0, 1 << 32, wave).astype(np.uint32)
    target = rng.integers(0, 300, wave).astype(np.uint32)
    mask = int(rng.integers(0, 1 << 62)) & ((1 << wave) - 1)
    whole = "s_mov_b32 exec_lo, -1" if wave == 32 else "s_mov_b64 exec, -1"
    setup = f"s_mov_b32 exec_lo, {mask & 0xFFFFFFFF:#x}"
    setup += f"; s_mov_b32 exec_hi, {mask >> 32:#x}" if wave == 64 else ""
    texts = []
    for name in ("ds_permute_b32", "ds_bpermute_b32"):
        move = f"{name} {{d}}, {{1}}, {{0}} offset:8; s_waitcnt lgkmcnt(0)"
        texts += [move, f"v_mov_b32 {{d}}, 1; {setup}; {move}; {whole}"]
    found = [w[:, 0].tolist() for w in batch(amd, [Op(t) for t in texts], [values, target], wave=wave)]
    place = [(int(t) + 8) // 4 % 32 | k & 32 for k, t in enumerate(target)]
    for active, forward, backward in (
        ([True] * wave, found[0], found[2]),
        ([bool(mask >> k & 1) for k in range(wave)], found[1], found[3]),
    ):
        sent = [0] * wave
        for lane in range(wave):
            if active[lane]:
                sent[place[lane]] = int(values[lane])
        assert forward == [sent[k] if active[k] else 1 for k in range(wave)]
        read = [int(values[place[k]]) if active[place[k]] else 0 for k in range(wave)]
        assert backward == [read[k] if active[k] else 1 for k in range(wave)]


@covers("v_movrels_b32", "v_movreld_b32", "v_movrelsd_b32", "v_movrelsd_2_b32", "v_swaprel_b32")
def test_registers_are_chosen_by_m0(amd: Executor) -> None:
    values: Array = np.arange(64, 96, dtype=np.uint32)
    fill = "; ".join(f"v_add_nc_u32 v{20 + k}, {100 * k}, {{0}}" for k in range(6))
    read = "; ".join(f"v_mov_b32 v{40 + k}, v{20 + k}" for k in range(6))
    half = "s_mov_b32 exec_lo, 0xffff"
    cases = [
        Op(f"{fill}; s_mov_b32 m0, 3; v_movrels_b32 v40, v21", 1),
        Op(f"{fill}; s_mov_b32 m0, 2; {half}; v_movreld_b32 v20, v25; s_mov_b32 exec_lo, -1; {read}", 6),
        Op(f"{fill}; s_mov_b32 m0, 1; v_movrelsd_b32 v20, v23; {read}", 6),
        Op(f"{fill}; s_mov_b32 m0, 0x20001; v_movrelsd_2_b32 v20, v24; {read}", 6),
        Op(f"{fill}; s_mov_b32 m0, 0x20001; v_swaprel_b32 v20, v24; {read}", 6),
    ]
    found = batch(amd, cases, [values])
    plain = [values + 100 * k for k in range(6)]
    assert (found[0][:, 0] == plain[4]).all()
    lower = np.arange(32) < 16
    for words, changes in (
        (found[1], {2: np.where(lower, plain[5], plain[2])}),
        (found[2], {1: plain[4]}),
        (found[3], {2: plain[5]}),
        (found[4], {2: plain[5], 5: plain[2]}),
    ):
        for k in range(6):
            assert (words[:, k] == changes.get(k, plain[k])).all(), k


# --- interpolation ---


def quad(values: Array, lane: int) -> Array:
    """Return in every lane what a lane of its quad has."""
    return values[(np.arange(len(values)) & ~3) + lane]


@covers("v_interp_p10_f32", "v_interp_p2_f32", "v_interp_p10_f16_f32", "v_interp_p2_f16_f32")
def test_interpolation_reads_fixed_lanes_of_a_quad_active_or_not(amd: Executor) -> None:
    rng = np.random.default_rng(3)
    a, b, c = (rng.integers(-20, 20, 32).astype(np.float32) for _ in "abc")
    halves = [np.ascontiguousarray(x.astype(np.float16)).view(np.uint16) for x in (a, c)]
    few = "s_mov_b32 exec_lo, 0x9; {}; s_mov_b32 exec_lo, -1"
    texts = [
        "v_interp_p10_f32 {d}, {0}, {1}, -{2}",
        "v_interp_p2_f32 {d}, {0}, {1}, {2}",
        "v_interp_p10_f16_f32 {d}, {3}, {1}, {4}",
        "v_interp_p2_f16_f32 {d}, {3}, {1}, {2}",
    ]
    found = batch(amd, [Op(few.format(text), start=0) for text in texts], [a, b, c, *halves])
    wanted = [
        quad(a, 1) * b - quad(c, 0),
        quad(a, 2) * b + c,
        quad(a, 1) * b + quad(c, 0),
        quad(a, 2) * b + c,
    ]
    for lane in (0, 3):
        for words, values in zip(found[:3], wanted, strict=False):
            assert words[lane, 0] == values[lane : lane + 1].view(np.uint32)[0]
        half = values_as_half(wanted[3][lane])
        assert found[3][lane, 0] == int(a.view(np.uint32)[lane]) & 0xFFFF0000 | half
    assert all(words[1, 0] == a.view(np.uint32)[1] for words in found)


def values_as_half(value: float) -> int:
    return int(np.array([value], np.float16).view(np.uint16)[0])


@covers("v_interp_p10_rtz_f16_f32", "v_interp_p2_rtz_f16_f32")
def test_interpolation_with_rtz_truncates(amd: Executor) -> None:
    one = np.full(32, 0x3C00, np.uint16)
    almost = np.full(32, 1.5 * 2.0**-24, np.float32)  # three quarters of a unit of 1.0
    above = np.full(32, 1 + 1.5 * 2.0**-11, np.float32)
    operations = [
        Op("v_interp_p10_f16_f32 {d}, {0}, {1}, {0}"),
        Op("v_interp_p10_rtz_f16_f32 {d}, {0}, {1}, {0}"),
        Op("v_mov_b32 {d}, 0; v_mov_b32 v20, 0; v_interp_p2_f16_f32 {d}, {0}, {2}, v20"),
        Op("v_mov_b32 {d}, 0; v_interp_p2_rtz_f16_f32 {d}, {0}, {2}, v20"),
    ]
    found = batch(amd, operations, [one, almost, above])
    assert [int(words[0, 0]) for words in found] == [0x3F800001, 0x3F800000, 0x3C01, 0x3C00]
