"""Branches, calls, barriers, the hardware registers, and everything that ends a wave early."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ringfence.errors import FaultReport
from ringfence.virtual.isa.rdna.executor import Executor
from ringfence.virtual.isa.rdna.flow import LONGEST_BLOCK
from virtual.isa.rdna.harness import (
    ARGUMENTS,
    CODE,
    OUTPUT,
    Array,
    Memory,
    Op,
    batch,
    code,
    covers,
    dispatch,
    rsrc1,
    run,
)

START = [
    "s_load_b64 s[4:5], s[0:1], 0x0",
    "v_mov_b32 v3, v0",
    "v_lshlrev_b32 v1, 2, v0",
    "s_waitcnt lgkmcnt(0)",
]
"""Puts the address of the results into s[4:5], the lane into v3 and its offset into v1."""


def results(executor: Executor, lines: Sequence[str], count: int = 32, **changes: object) -> Array:
    """Run lines between START and the end; return the results."""
    memory, out = Memory(), np.zeros(count, np.uint32)
    memory.add(ARGUMENTS, np.array([OUTPUT], np.uint64))
    memory.add(OUTPUT, out)
    report = run(executor, [*START, *lines, "s_endpgm"], memory, **changes)
    assert report is None, report
    return out


def scalar(register: str = "s10") -> list[str]:
    """Return code that stores a scalar as the result of every lane."""
    return [f"v_mov_b32 v2, {register}", "global_store_b32 v1, v2, s[4:5]"]


# --- blocks ---


@pytest.mark.parametrize("scalars", [False, True], ids=["vectors", "scalars and flags"])
def test_a_program_without_branches_may_be_long(amd: Executor, scalars: bool) -> None:
    """It is cut into pieces, between which registers, SCC and VCC go through memory."""
    count = 2 * LONGEST_BLOCK
    if scalars:
        again = ["s_addc_u32 s10, s10, s11", "s_xor_b32 s11, s11, s10"]
        lines = ["s_mov_b32 s10, 1", "s_mov_b32 s11, 0xdeadbeef", "s_cmp_eq_u32 s0, s0"]
        lines += [*again * (count // 2), *scalar()]
        first, second, carry = 1, 0xDEADBEEF, 1
        for _ in range(count // 2):
            first = (first + second + carry) & 0xFFFFFFFF
            second ^= first
            carry = int(second != 0)
        expected = np.full(32, first, np.uint32)
    else:
        again = ["v_mad_u32_u24 v4, v3, 3, v4", "v_xor_b32 v3, v4, v3"]
        lines = ["v_mov_b32 v4, 0", *again * (count // 2), "global_store_b32 v1, v3, s[4:5]"]
        value, total = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
        for _ in range(count // 2):
            total = (value & np.uint32(0xFFFFFF)) * np.uint32(3) + total
            value = total ^ value
        expected = value
    assert (results(amd, lines) == expected).all()


# --- branches ---


@covers("s_branch", *(f"s_cbranch_{c}" for c in ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz")))
@pytest.mark.parametrize("wave", [32, 64])
def test_conditional_branches(amd: Executor, wave: int) -> None:
    """s10 collects a bit for each branch that is taken."""
    cases = [
        ("s_cmp_eq_u32 s0, s0", "scc1", True),
        ("s_cmp_eq_u32 s0, s0", "scc0", False),
        ("s_cmp_lg_u32 s0, s0", "scc0", True),
        ("s_mov_b32 vcc_lo, 0", "vccz", True),
        ("s_mov_b32 vcc_lo, 2", "vccz", False),
        ("s_mov_b32 vcc_lo, 2", "vccnz", True),
        ("s_mov_b32 exec_lo, 0", "execz", wave == 32),
        ("s_mov_b32 exec_lo, 0", "execnz", wave == 64),
        ("s_mov_b32 exec_lo, 4", "execnz", True),
        ("s_mov_b32 exec_hi, 0", "execz", False),
    ]
    lines = ["s_mov_b32 s10, 0", "s_mov_b32 vcc_hi, 0"]
    for k, (setup, condition, _) in enumerate(cases):
        lines += [setup, f"s_cbranch_{condition} @yes{k}", f"s_branch @no{k}"]
        lines += [f"yes{k}:", f"s_bitset1_b32 s10, {k}", f"no{k}:"]
        lines += ["s_mov_b32 exec_lo, -1", "s_mov_b32 exec_hi, -1"]
    out = results(amd, [*lines, *scalar()], wave, wave=wave, local=(wave, 1, 1))
    assert out[0] == sum(taken << k for k, (_, _, taken) in enumerate(cases))


def test_a_loop_ends_for_each_lane_in_its_own_time(amd: Executor) -> None:
    lines = [
        "v_mov_b32 v2, 0",
        "s_mov_b32 s10, exec_lo",
        "again:",
        "v_add_nc_u32 v2, v2, v3",
        "v_add_nc_u32 v3, -1, v3",
        "v_cmp_lt_i32 vcc_lo, 0, v3",
        "s_and_b32 exec_lo, exec_lo, vcc_lo",
        "s_cbranch_execnz @again",
        "s_mov_b32 exec_lo, s10",
        "global_store_b32 v1, v2, s[4:5]",
    ]
    assert results(amd, lines).tolist() == [k * (k + 1) // 2 for k in range(32)]


def test_values_survive_a_branch_only_in_the_lanes_that_wrote_them(amd: Executor) -> None:
    lines = [
        "v_mov_b32 v2, 7",
        "v_cmp_gt_u32 vcc_lo, 10, v3",
        "s_and_saveexec_b32 s10, vcc_lo",
        "s_cbranch_execz @join",
        "v_mov_b32 v2, v3",
        "join:",
        "s_mov_b32 exec_lo, s10",
        "global_store_b32 v1, v2, s[4:5]",
    ]
    assert results(amd, lines).tolist() == [k if k < 10 else 7 for k in range(32)]


@covers(*(f"s_cbranch_{c}" for c in ("cdbgsys", "cdbguser", "cdbgsys_or_user", "cdbgsys_and_user")))
def test_debug_branches_are_never_taken(amd: Executor) -> None:
    lines = ["s_movk_i32 s10, 5"]
    for condition in ("cdbgsys", "cdbguser", "cdbgsys_or_user", "cdbgsys_and_user"):
        lines.append(f"s_cbranch_{condition} @end")
    assert results(amd, [*lines, *scalar(), "end:"])[0] == 5


# --- addresses of code ---


@covers("s_getpc_b64", "s_setpc_b64", "s_swappc_b64", "s_call_b64", "s_rfe_b64")
def test_calls_return_behind_themselves(amd: Executor) -> None:
    lines = [
        "s_mov_b32 s10, 0",
        "s_branch @main",
        "double:",
        "s_lshl_b32 s10, s10, 1",
        "s_add_u32 s10, s10, 1",
        "s_setpc_b64 s[14:15]",
        "main:",
        "s_getpc_b64 s[12:13]",
        "s_sub_u32 s12, s12, 16",  # four instructions back
        "s_subb_u32 s13, s13, 0",
        "s_swappc_b64 s[14:15], s[12:13]",
        "s_swappc_b64 s[14:15], s[12:13]",
        "s_call_b64 s[14:15], @double",
        "s_getpc_b64 s[14:15]",
        "s_add_u32 s14, s14, 12",  # three instructions on
        "s_addc_u32 s15, s15, 0",
        "s_rfe_b64 s[12:13]",
    ]
    assert results(amd, [*lines, *scalar()])[0] == 0b1111


def test_function_pointers_from_memory_reach_the_functions_of_the_unit(amd: Executor) -> None:
    lines = [
        *START,
        "s_load_b128 s[16:19], s[0:1], 0x8",
        "s_mov_b32 s10, 3",
        "s_waitcnt lgkmcnt(0)",
        "s_swappc_b64 s[14:15], s[16:17]",
        "s_swappc_b64 s[14:15], s[18:19]",
        *scalar(),
        "s_endpgm",
    ]
    functions = [
        ["s_mul_i32 s10, s10, s10", "s_setpc_b64 s[14:15]"],
        ["s_addk_i32 s10, 0x64", "s_setpc_b64 s[14:15]"],
    ]
    first = len(code(tuple(lines)))
    second = first + len(code(tuple(functions[0])))
    program = code((*lines, *functions[0], *functions[1]))
    memory, out = Memory(), np.zeros(32, np.uint32)
    memory.add(ARGUMENTS, np.array([OUTPUT, CODE + second, CODE + first], np.uint64))
    memory.add(OUTPUT, out)
    assert amd.run(dispatch(program, functions=(first, second)), memory.space) is None
    assert out[0] == (3 + 100) ** 2
    memory.keep[0][1] = CODE + first + 4  # not the start of anything
    report = amd.run(dispatch(program, functions=(first, second)), memory.space)
    assert report is not None
    assert (report.kind, report.address) == ("illegal instruction", CODE + first + 4)
    assert "jump to an address where no code begins" in report.message


# --- barriers ---


@covers("s_barrier")
@pytest.mark.parametrize("wave", [32, 64])
def test_barriers_in_a_loop_that_runs_differently_often_per_wave(amd: Executor, wave: int) -> None:
    """Each round, wave 0 adds up what all waves stored; waves that leave early no longer count."""
    lines = [
        "v_readfirstlane_b32 s11, v3",  # 0, 32 or 64, ...: the wave
        "s_lshr_b32 s11, s11, 5" if wave == 32 else "s_lshr_b32 s11, s11, 6",
        "s_mov_b32 s12, 0",
        "v_mov_b32 v2, 0",
        "again:",
        "v_add_nc_u32 v4, s12, v3",
        "ds_store_b32 v1, v4",
        "s_waitcnt lgkmcnt(0)",
        "s_barrier",
        "v_xor_b32 v5, 0x80, v1" if wave == 32 else "v_xor_b32 v5, 0x100, v1",
        "ds_load_b32 v6, v5",
        "s_waitcnt lgkmcnt(0)",
        "s_barrier",
        "v_add_nc_u32 v2, v2, v6",
        "s_add_i32 s12, s12, 1",
        "s_cmp_lt_u32 s12, 5",
        "s_cbranch_scc1 @again",
        "s_cmp_eq_u32 s11, 1",
        "s_cbranch_scc1 @store",
        "s_barrier",  # the other waves meet once more
        "store:",
        "global_store_b32 v1, v2, s[4:5]",
    ]
    count = 4 * wave
    out = results(amd, lines, count, wave=wave, local=(count, 1, 1))
    assert out.tolist() == [5 * (k ^ wave) + 10 for k in range(count)]


def test_a_barrier_of_a_single_wave_does_nothing(amd: Executor) -> None:
    assert results(amd, ["s_movk_i32 s10, 9", "s_barrier", *scalar()])[31] == 9


# --- hardware registers ---


@covers("s_getreg_b32")
def test_getreg_reads_mode_status_and_sizes(amd: Executor) -> None:
    reads = {
        "hwreg(HW_REG_MODE)": 0xF0 | 1 << 8 | 1 << 9,
        "hwreg(HW_REG_MODE, 4, 2)": 3,
        "hwreg(HW_REG_TRAPSTS)": 0,
        "hwreg(HW_REG_SH_MEM_BASES, 16, 16)": 1,
        "hwreg(HW_REG_LDS_ALLOC, 12, 9)": 8,
    }
    text = "; ".join(f"s_getreg_b32 s20, {r}; v_mov_b32 v{40 + k}, s20" for k, r in enumerate(reads))
    (words,) = batch(amd, [Op(text, len(reads))], [np.zeros(32, np.uint32)])
    assert words[0].tolist() == list(reads.values())
    text = (
        "s_mov_b32 vcc_lo, 0; s_cmp_eq_u32 s0, s0; s_getreg_b32 s20, hwreg(HW_REG_STATUS); v_mov_b32 {d}, s20"
    )
    (words,) = batch(amd, [Op(text)], [np.zeros(32, np.uint32)])
    assert words[0, 0] & (1 | 1 << 9 | 1 << 10) == 1 | 1 << 10  # SCC, EXECZ, VCCZ


def test_the_cycle_counter_goes_on(amd: Executor) -> None:
    text = "; ".join(f"s_getreg_b32 s{k}, hwreg(HW_REG_SHADER_CYCLES, 0, 20)" for k in (20, 21))
    (words,) = batch(
        amd, [Op(f"{text}; v_mov_b32 v40, s20; v_mov_b32 v41, s21", 2)], [np.zeros(32, np.uint32)]
    )
    assert words[0, 1] > words[0, 0]


DENORMAL, NORMAL = 0x00000100, 0x3F800000
TINY = np.array([DENORMAL], np.uint32)


@covers("s_setreg_b32", "s_setreg_imm32_b32", "s_denorm_mode", "s_round_mode")
@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ("s_denorm_mode 0", False),
        ("s_denorm_mode 15", True),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0", False),
        ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3", True),
        ("s_mov_b32 s20, 0; s_setreg_b32 hwreg(HW_REG_MODE, 4, 2), s20", False),
        ("s_lshr_b32 s20, s9, 16; s_and_b32 s20, s20, 3; s_setreg_b32 hwreg(HW_REG_MODE, 4, 2), s20", False),
        ("s_or_b32 s20, s9, 3; s_setreg_b32 hwreg(HW_REG_MODE, 4, 2), s20", True),
    ],
)
def test_mode_changes_at_run_time_or_ahead(amd: Executor, change: str, kept: bool) -> None:
    for mode in (0x00, 0xF0):
        text = f"s_mov_b32 s9, 0; {change}; v_add_f32 {{d}}, 0, {{0}}; s_denorm_mode {mode >> 4}"
        (words,) = batch(amd, [Op(text)], [TINY], mode=mode)
        assert words[0, 0] == (DENORMAL if kept else 0)


def test_mode_that_depends_on_a_branch_is_known_at_run_time_only(amd: Executor) -> None:
    """Rounding goes up in wave 1 only; then all of them add with one instruction."""
    lines = [
        "v_readfirstlane_b32 s11, v3",
        "s_cmp_eq_u32 s11, 32",
        "s_cbranch_scc0 @join",
        "s_round_mode 1",
        "join:",
        "v_mov_b32 v4, 1.0",
        "v_add_f32 v2, 0x2f800000, v4",
        "s_getreg_b32 s12, hwreg(HW_REG_MODE, 0, 2)",
        "v_add_nc_u32 v2, s12, v2",
        "global_store_b32 v1, v2, s[4:5]",
    ]
    out = results(amd, lines, 64, local=(64, 1, 1))
    assert out[0] == NORMAL and out[32] == NORMAL + 2  # one unit more, and MODE itself


HINTS = ("s_nop 3", "s_sleep 1", "s_setprio 2", "s_clause 0x1", "s_delay_alu 0x1",
         "s_set_inst_prefetch_distance 0x2", "s_wait_idle", "s_waitcnt_depctr 0xffff",
         "s_waitcnt_vscnt null, 0x0", "s_waitcnt_vmcnt null, 0x0", "s_waitcnt_expcnt null, 0x0",
         "s_waitcnt_lgkmcnt null, 0x0", "s_icache_inv", "s_dcache_inv", "s_gl1_inv", "buffer_gl0_inv",
         "buffer_gl1_inv", "v_nop", "v_pipeflush", "s_incperflevel 1", "s_decperflevel 1",
         "s_ttracedata", "s_ttracedata_imm 0x1", "s_version 0x1", "s_setkill 0x0", "s_wakeup", "ds_nop",
         "s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)", "s_sethalt 0", "s_wait_event 0x0", "s_waitcnt 0x0",
         "s_atc_probe 0, s[0:1], 0x0", "s_atc_probe_buffer 0, s[0:3], 0x0")  # fmt: skip


@covers(*(hint.split()[0] for hint in HINTS))
def test_hints_and_waits_change_nothing(amd: Executor) -> None:
    assert results(amd, ["s_movk_i32 s10, 0x55", *HINTS, *scalar()]).tolist() == [0x55] * 32


@covers("s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64")
def test_sendmsg_rtn_gives_the_clock_and_zero_for_what_does_not_exist(amd: Executor) -> None:
    text = (
        "s_sendmsg_rtn_b64 s[20:21], sendmsg(MSG_RTN_GET_REALTIME); s_sendmsg_rtn_b64 s[22:23], "
        "sendmsg(MSG_RTN_GET_REALTIME); s_sendmsg_rtn_b32 s24, sendmsg(MSG_RTN_GET_DOORBELL); "
        "s_waitcnt lgkmcnt(0)"
    )
    moves = "; ".join(f"v_mov_b32 v{40 + k}, s{20 + k}" for k in range(5))
    (words,) = batch(amd, [Op(f"{text}; {moves}", 5)], [np.zeros(32, np.uint32)])
    first, second = (int(words[0, k]) | int(words[0, k + 1]) << 32 for k in (0, 2))
    assert second > first and words[0, 4] == 0


# --- what ends a wave ---


@covers("s_endpgm", "s_endpgm_saved")
@pytest.mark.parametrize("end", ["s_endpgm", "s_endpgm_saved"])
def test_the_program_ends_where_it_says(amd: Executor, end: str) -> None:
    assert results(amd, ["s_movk_i32 s10, 1", *scalar(), end, "s_movk_i32 s10, 2", *scalar()])[0] == 1


def failure(executor: Executor, lines: Sequence[str], **changes: object) -> FaultReport:
    report = run(executor, lines, Memory(), **changes)
    assert report is not None
    return report


@covers("s_trap")
def test_a_trap_aborts_with_its_number(amd: Executor) -> None:
    report = failure(amd, ["s_nop 0", "s_trap 2", "s_endpgm"])
    assert (report.kind, report.pc, report.address, report.instruction) == ("bad state", 4, 2, "s_trap 2")


@covers("s_code_end")
def test_padding_is_no_instruction(amd: Executor) -> None:
    report = failure(amd, ["s_nop 0", "s_code_end"])
    assert (report.kind, report.pc, report.instruction) == ("illegal instruction", 4, "s_code_end")


def test_words_that_do_not_decode_are_faults_when_they_are_reached(amd: Executor) -> None:
    program = code(("s_cmp_eq_u32 s0, s0", "s_cbranch_scc1 @end", "s_nop 0", "end:", "s_endpgm"))
    broken = program[:8] + (0xBE803F80).to_bytes(4, "little") + program[12:]
    assert amd.run(dispatch(broken), Memory().space) is None
    report = amd.run(dispatch(broken.replace(program[:4], code(("s_cmp_lg_u32 s0, s0",)))), Memory().space)
    assert report is not None
    assert (report.kind, report.pc) == ("illegal instruction", 8)
    assert "SOP1 has no opcode 63" in report.message


def test_code_that_runs_off_its_end_is_a_fault(amd: Executor) -> None:
    report = failure(amd, ["s_nop 0", "s_nop 0"])
    assert (report.kind, report.pc) == ("illegal instruction", 8)


@covers("s_sethalt", "s_sendmsghalt")
@pytest.mark.parametrize("text", ["s_sethalt 1", "s_sendmsghalt sendmsg(MSG_INTERRUPT)"])
def test_a_halted_wave_is_a_hang(amd: Executor, text: str) -> None:
    report = failure(amd, ["s_nop 0", text, "s_endpgm"])
    assert (report.kind, report.pc) == ("hang", 4)


def test_the_watchdog_stops_an_endless_loop(tmp_path: Path) -> None:
    executor = Executor(cache_dir=tmp_path, threads=2, hang_seconds=0.3)
    try:
        report = run(executor, ["again:", "s_branch @again"], Memory(), groups=(4, 1, 1))
        assert report is not None and report.kind == "hang"
        assert run(executor, ["s_endpgm"], Memory()) is None
    finally:
        executor.close()


def test_a_launch_with_more_groups_than_anything_counts_is_stopped(tmp_path: Path) -> None:
    executor = Executor(cache_dir=tmp_path, threads=2, hang_seconds=0.3)
    try:
        report = run(executor, ["s_endpgm"], Memory(), groups=((1 << 32) - 1,) * 3)
        assert report is not None and report.kind == "hang"
    finally:
        executor.close()


def test_a_fault_names_program_place_group_and_lane(amd: Executor) -> None:
    lines = [
        "v_mov_b32 v1, 0x5000",
        "v_mov_b32 v2, 0x77",
        "v_cmp_eq_u32 vcc_lo, 5, v0",
        "s_cmp_eq_u32 s8, 2",
        "s_cselect_b32 s10, -1, 0",
        "s_and_b32 exec_lo, vcc_lo, s10",
        "global_load_b32 v3, v[1:2], off offset:16",
        "s_endpgm",
    ]
    memory = Memory()
    memory.add(0x77_0000_6000, np.zeros(4, np.uint32), label="elsewhere")
    report = run(amd, lines, memory, groups=(4, 1, 1), rsrc2=8 << 1 | 1 << 7, name="reader")
    assert report is not None
    assert (report.kind, report.program, report.group, report.lane) == ("memory", "reader", (2, 0, 0), 5)
    assert report.address == 0x77_0000_5010
    assert report.instruction == "global_load_b32 v3, v[1:2], off offset:16"
    assert "read of memory that is not mapped" in report.message
    assert report.nearest is not None and "elsewhere" in report.nearest


def test_memory_that_is_not_writable_refuses_stores_only(amd: Executor) -> None:
    memory, data = Memory(), np.arange(32, dtype=np.uint32)
    memory.add(OUTPUT, data, writable=False)
    address = ["v_lshlrev_b32 v1, 2, v0", f"s_mov_b32 s4, {OUTPUT:#x}", "s_mov_b32 s5, 0"]
    load, store = "global_load_b32 v2, v1, s[4:5]", "global_store_b32 v1, v0, s[4:5]"
    assert run(amd, [*address, load, "s_endpgm"], memory) is None
    report = run(amd, [*address, store, "s_endpgm"], memory)
    assert report is not None and "not mapped for writing" in report.message
    assert data.tolist() == list(range(32))


def test_an_access_across_the_end_of_memory_is_a_fault(amd: Executor) -> None:
    memory = Memory()
    memory.add(OUTPUT, np.zeros(4, np.uint32))
    lines = [f"s_mov_b32 s4, {OUTPUT:#x}", "s_mov_b32 s5, 0", "v_mov_b32 v1, 12", "s_mov_b32 exec_lo, 1"]
    for text, bad in (
        ("global_load_b32 v2, v1, s[4:5]", False),
        ("global_load_b64 v[2:3], v1, s[4:5]", True),
        ("global_load_b32 v2, v1, s[4:5] offset:1", True),
        ("s_load_b128 s[20:23], s[4:5], 0x0", False),
        ("s_load_b256 s[20:27], s[4:5], 0x0", True),
    ):
        assert (run(amd, [*lines, text, "s_endpgm"], memory) is not None) == bad, text


def test_an_instruction_without_semantics_is_refused_by_name(amd: Executor) -> None:
    report = failure(amd, ["ds_gws_barrier v0 gds", "s_endpgm"])
    assert report.kind == "illegal instruction" and "kernel driver" in report.message


# --- how a wave starts ---


@pytest.mark.parametrize(("components", "packed"), [(0, lambda x, y, z: x), (1, lambda x, y, z: x | y << 10),
                                                    (2, lambda x, y, z: x | y << 10 | z << 20)])  # fmt: skip
def test_v0_packs_the_ids_that_the_launch_asks_for(amd: Executor, components, packed) -> None:  # type: ignore[no-untyped-def]
    local = (5, 3, 4)
    lines = [
        "s_load_b64 s[4:5], s[0:1], 0x0", "s_waitcnt lgkmcnt(0)", "v_mov_b32 v1, 1", "v_mov_b32 v2, 0",
        "global_atomic_add_u32 v1, v2, v1, s[4:5] glc", "s_waitcnt vmcnt(0)", "v_lshlrev_b32 v1, 2, v1",
        "global_store_b32 v1, v0, s[4:5] offset:4", "s_endpgm",
    ]  # fmt: skip
    memory, out = Memory(), np.zeros(61, np.uint32)
    memory.add(ARGUMENTS, np.array([OUTPUT], np.uint64))
    memory.add(OUTPUT, out)
    assert run(amd, lines, memory, local=local, rsrc2=8 << 1 | components << 11) is None
    x, y, z = local
    wanted = [packed(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
    assert sorted(out[1:].tolist()) == sorted(wanted) and out[0] == 60


@pytest.mark.parametrize("enabled", [(1, 0, 0), (0, 1, 0), (1, 0, 1), (1, 1, 1)])
def test_group_ids_follow_the_user_registers(amd: Executor, enabled: tuple[int, int, int]) -> None:
    groups = (2, 3, 2)
    rsrc2 = 8 << 1 | sum(bit << 7 + k for k, bit in enumerate(enabled))
    used = sum(enabled)
    lines = ["s_load_b64 s[4:5], s[0:1], 0x0", "v_mov_b32 v2, 0", "s_mov_b32 exec_lo, 1", "v_mov_b32 v1, 1",
             "s_waitcnt lgkmcnt(0)", "global_atomic_add_u32 v1, v2, v1, s[4:5] glc", "s_waitcnt vmcnt(0)",
             "v_mul_u32_u24 v1, 12, v1"]  # fmt: skip
    for k in range(used):
        lines += [f"v_mov_b32 v3, s{8 + k}", f"global_store_b32 v1, v3, s[4:5] offset:{4 + 4 * k}"]
    memory, out = Memory(), np.zeros(1 + 3 * 12, np.uint32)
    memory.add(ARGUMENTS, np.array([OUTPUT], np.uint64))
    memory.add(OUTPUT, out)
    assert run(amd, [*lines, "s_endpgm"], memory, groups=groups, rsrc2=rsrc2) is None
    x, y, z = groups
    ids = [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
    wanted = [[v for v, e in zip(found, enabled, strict=True) if e] for found in ids]
    assert sorted(row[:used] for row in out[1:].reshape(12, 3).tolist()) == sorted(wanted)


def test_exec_of_the_last_wave_has_the_lanes_that_exist(amd: Executor) -> None:
    out = results(amd, ["s_mov_b32 s10, exec_lo", *scalar()], 64, local=(45, 1, 1))
    assert out[0] == 0xFFFFFFFF and out[32] == (1 << 13) - 1 and not out[45:].any()


def test_what_nothing_wrote_holds_a_pattern(tmp_path: Path) -> None:
    """Registers always, local and private memory in strict mode."""
    lines = [
        *("v_add_nc_u32 v2, s90, v200", "ds_load_b32 v4, v1", "scratch_load_b32 v5, off, off"),
        *("s_waitcnt vmcnt(0) lgkmcnt(0)", "global_store_b32 v1, v2, s[4:5]"),
        *("global_store_b32 v1, v4, s[4:5] offset:128", "global_store_b32 v1, v5, s[4:5] offset:256"),
    ]
    for strict in (True, False):
        executor = Executor(cache_dir=tmp_path, threads=1, strict=strict)
        registers, local, private = results(executor, lines, 96).reshape(3, 32)
        executor.close()
        assert registers.all()
        assert local.all() == private.all() == strict


def test_dispatches_without_groups_do_nothing(amd: Executor) -> None:
    assert run(amd, ["s_trap 1"], Memory(), groups=(0, 1, 1)) is None


def test_flags_of_the_descriptor_reach_mode() -> None:
    unit = dispatch(code(("s_endpgm",)), rsrc1=rsrc1(0xAC) | 1 << 26).unit(strict=True, host=False)
    assert unit.mode == 0xAC | 1 << 8 | 1 << 9 | 1 << 23
