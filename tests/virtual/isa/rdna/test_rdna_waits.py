"""Strict mode refuses programs that use a result before they have waited for it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.harness import ARGUMENTS, Memory, run

SETUP = ["v_lshlrev_b32 v1, 2, v0", "v_mov_b32 v10, 0", "v_mov_b32 v11, 0", "s_mov_b64 s[4:5], s[0:1]"]
LOAD, SECOND = "global_load_b32 v2, v1, s[4:5]", "global_load_b32 v3, v1, s[4:5] offset:4"
SCALAR, SCALAR2 = "s_load_b32 s10, s[4:5], 0x0", "s_load_b32 s11, s[4:5], 0x4"
LOCAL, LOCAL2 = "ds_load_b32 v2, v1", "ds_load_b32 v3, v1 offset:4"
FLAT = "flat_load_b32 v2, v[10:11]"
CLOCK = "s_sendmsg_rtn_b64 s[10:11], sendmsg(MSG_RTN_GET_REALTIME)"
HIGH, LOW = "global_load_d16_hi_b16 v2, v1, s[4:5]", "global_load_d16_b16 v2, v1, s[4:5]"
LOCAL_HIGH = "ds_load_u16_d16_hi v2, v1"
USE, USE2, USE_SCALAR, USE_SCALAR2 = (
    "v_add_nc_u32 v4, 1, v2",
    "v_add_nc_u32 v4, 1, v3",
    "s_add_i32 s12, s10, 1",
    "s_add_i32 s12, s11, 1",
)

REFUSED = {
    "a vector load": [LOAD, USE],
    "a vector load with a wait for one of one": [LOAD, "s_waitcnt vmcnt(1)", USE],
    "the second of two": [LOAD, SECOND, "s_waitcnt vmcnt(1)", USE2],
    "the wait of another counter": [LOAD, "s_waitcnt lgkmcnt(0)", USE],
    "a scalar load": [SCALAR, USE_SCALAR],
    "scalar loads come in any order": [SCALAR, SCALAR2, "s_waitcnt lgkmcnt(1)", USE_SCALAR],
    "local memory": [LOCAL, USE],
    "local memory beside scalar loads": [LOCAL, SCALAR, "s_waitcnt lgkmcnt(1)", USE],
    "a flat load counts twice": [FLAT, "s_waitcnt vmcnt(0)", USE],
    "a register that is overwritten meanwhile": [LOAD, "v_mov_b32 v2, 0"],
    "a store of what is loading": [LOAD, "global_store_b32 v1, v2, s[4:5]"],
    "an address that is loading": [SCALAR.replace("b32 s10", "b64 s[4:5]"), LOAD],
    "a message": [CLOCK, "s_mov_b32 s12, s10"],
    "an atomic's old value": ["global_atomic_add_u32 v2, v1, v0, s[4:5] glc", USE],
    "a buffer load": ["buffer_load_b32 v2, v1, s[4:7], 0 offen", USE],
    "private memory": ["scratch_load_b32 v2, off, off", USE],
    "one way of two": ["s_cmp_eq_u32 s0, s1", "s_cbranch_scc1 @over", LOAD, "over:", USE],
    "around a loop": ["again:", USE, LOAD, "s_cmp_eq_u32 s0, s1", "s_cbranch_scc1 @again"],
    "the high half of a register": [LOW, HIGH, "s_waitcnt vmcnt(1)", "ds_store_b8_d16_hi v1, v2"],
    "the high half in arithmetic": [LOW, HIGH, "s_waitcnt vmcnt(1)", "v_mov_b16 v4.l, v2.h"],
    "both halves of a register": [HIGH, USE],
    "an address of which half is loading": [HIGH, "ds_store_b16 v2, v1"],
    "the low half": [HIGH, LOW, "s_waitcnt vmcnt(1)", "global_store_b16 v1, v2, s[4:5]"],
    "a half that is overwritten meanwhile": [HIGH, "v_fma_mixhi_f16 v2, v0, v0, v0"],
    "the first of two that may be one": [
        LOAD,
        "s_cbranch_scc1 @over",
        SECOND,
        "over:",
        "s_waitcnt vmcnt(1)",
        USE,
    ],
    "the second of two, blocks later": [
        LOAD,
        SECOND,
        "s_cbranch_scc1 @over",
        "over:",
        "s_waitcnt vmcnt(1)",
        USE2,
    ],
    "half of a pair": ["global_load_b64 v[2:3], v1, s[4:5]", USE2],
}
ACCEPTED = {
    "waited": [LOAD, "s_waitcnt vmcnt(0)", USE],
    "the first of two": [LOAD, SECOND, "s_waitcnt vmcnt(1)", USE],
    "the counters' own instruction": [LOAD, "s_waitcnt_vmcnt null, 0x0", USE],
    "everything idle": [LOAD, SCALAR, "s_wait_idle", USE, USE_SCALAR],
    "the first of two, blocks later": [
        LOAD,
        "s_cbranch_scc1 @here",
        "here:",
        SECOND,
        "s_cbranch_scc1 @over",
        "over:",
        "s_waitcnt vmcnt(1)",
        USE,
    ],
    "local memory keeps its order": [LOCAL, LOCAL2, "s_waitcnt lgkmcnt(1)", USE],
    "a flat load": [FLAT, "s_waitcnt vmcnt(0) lgkmcnt(0)", USE],
    "a load over a load": [LOAD, LOAD.replace("v1", "v0"), "s_waitcnt vmcnt(0)", USE],
    "another register": [LOAD, "v_add_nc_u32 v4, 1, v3"],
    "the half that has come": [LOW, HIGH, "s_waitcnt vmcnt(1)", "ds_store_b8 v1, v2"],
    "the half that no load writes": [LOCAL_HIGH, "global_store_b16 v1, v2, s[4:5]"],
    "the high half that has come": [
        HIGH,
        LOW,
        "s_waitcnt vmcnt(1)",
        "global_store_d16_hi_b16 v1, v2, s[4:5]",
    ],
    "half a source of arithmetic": [
        HIGH,
        "v_mov_b16 v4.h, v2.l",
        "v_fma_mix_f32 v4, v2, v2, v0 op_sel_hi:[1,1,0]",
    ],
    "half a result of arithmetic": [HIGH, "v_mov_b16 v2.l, 0", "v_fma_mixlo_f16 v2, v0, v0, v0"],
    "stores": ["global_store_b32 v1, v0, s[4:5]", "v_mov_b32 v0, 0"],
    "an atomic without a result": ["global_atomic_add_u32 v1, v0, s[4:5]", "v_mov_b32 v0, 0"],
    "in a loop": ["again:", LOAD, "s_waitcnt vmcnt(0)", USE, "s_cmp_lg_u32 s0, s0", "s_cbranch_scc1 @again"],
}


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    executor = Executor(cache_dir=tmp_path_factory.mktemp("cache"), threads=1, strict=False)
    yield executor
    executor.close()


def memory() -> Memory:
    found = Memory()
    found.add(ARGUMENTS, np.zeros(1024, np.uint32))
    found.add(0, np.zeros(1024, np.uint32))
    return found


@pytest.mark.parametrize("case", REFUSED)
def test_missing_waits_are_refused(amd: Executor, case: str) -> None:
    report = run(amd, [*SETUP, *REFUSED[case], "s_endpgm"], memory())
    assert report is not None and report.kind == "illegal instruction"
    assert "an s_waitcnt" in report.message and "is missing" in report.message
    assert report.instruction is not None


@pytest.mark.parametrize("case", ACCEPTED)
def test_sufficient_waits_are_accepted(amd: Executor, case: str) -> None:
    assert run(amd, [*SETUP, *ACCEPTED[case], "s_endpgm"], memory()) is None


def test_without_strict_mode_nobody_looks(lenient: Executor) -> None:
    assert run(lenient, [*SETUP, LOAD, USE, "s_endpgm"], memory()) is None


def test_the_message_names_both_instructions(amd: Executor) -> None:
    report = run(amd, [*SETUP, SCALAR, USE_SCALAR, "s_endpgm"], memory())
    assert report is not None
    assert (
        "`s_add_i32 s12, s10, 1` reads s10, which `s_load_b32 s10, s[4:5], null` at byte 0x10"
        in report.message
    )
    assert "s_waitcnt lgkmcnt" in report.message
