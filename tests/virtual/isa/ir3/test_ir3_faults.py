"""What programs do wrong, and what is reported about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from oracle.mesa import assemble
from ringfence.errors import FaultReport
from ringfence.hardware.adreno.chips import CHIPS, Chip
from ringfence.virtual.isa.ir3.dispatch import Dispatch
from ringfence.virtual.isa.ir3.executor import Executor
from virtual.isa.ir3.harness import Memory, Rows, pair, program, words

LANES = np.arange(64, dtype=np.uint32)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    executor = Executor(cache_dir=tmp_path_factory.mktemp("cache"), threads=2, hang_seconds=0.2)
    yield executor
    executor.close()


def run(
    executor: Executor, code: bytes | str, memory: Memory | None = None, **fields: Any
) -> FaultReport | None:
    code = assemble(program(code)) if isinstance(code, str) else code
    defaults: dict[str, Any] = {"groups": (1, 1, 1), "local": (64, 1, 1), "local_id_register": 0}
    return executor.run(
        Dispatch(name="wrong", code=code, **{**defaults, **fields}), (memory or Memory()).space
    )


def bare(text: str) -> bytes:
    return assemble(text.strip() + "\n")


@pytest.mark.parametrize("access", ["ldg.u32 r2.x, g[r1.x+4], 2", "stg.u32 g[r1.x+4], r2.x, 2"])
def test_a_memory_fault_names_program_instruction_group_lane_address_and_neighbour(
    executor: Executor, access: str
) -> None:
    memory = Memory()
    data = np.zeros(64, np.uint32)
    address = memory.add(data, label="weights")
    body = f"""
        shl.b r1.x, r0.x, 3
        mov.u32u32 r1.y, c0.y
        shl.b r1.z, r48.x, 7
        (rpt2)nop
        add.u r1.x, r1.x, c0.x
        (rpt2)nop
        add.u r1.x, r1.x, r1.z
        (rpt2)nop
        {access}
    """
    report = run(
        executor, body, memory, constants=words(*pair(address)), local=(16, 1, 1), groups=(3, 1, 1),
        workgroup_id_register=0xC0,
    )  # fmt: skip
    assert report is not None
    assert report.kind == "memory"
    assert ("write" if access.startswith("stg") else "read") in report.message
    assert report.program == "wrong"
    assert report.pc == 8
    assert report.instruction == access
    assert report.group == (1, 0, 0)
    assert report.lane == 15
    assert report.address == address + 128 + 15 * 8 + 4
    assert report.nearest is not None and "weights" in report.nearest


def test_writes_to_read_only_memory_are_a_fault_and_reads_are_not(executor: Executor) -> None:
    memory = Memory()
    address = memory.add(np.zeros(64, np.uint32), writable=False)
    start = "mov.u32u32 r1.x, c0.x\nmov.u32u32 r1.y, c0.y\n(rpt2)nop\n"
    constants = words(*pair(address))
    assert run(executor, start + "ldg.u32 r2.x, g[r1.x], 1", memory, constants=constants) is None
    report = run(executor, start + "stg.u32 g[r1.x], r1.x, 1", memory, constants=constants)
    assert report is not None
    assert report.address == address


@pytest.mark.parametrize("access", ["ldl.u32 r2.x, l[r1.x], 2", "stl.u32 l[r1.x], r2.x, 2"])
def test_local_memory_ends_where_the_launch_says(executor: Executor, access: str) -> None:
    body = f"shl.b r1.x, r0.x, 2\n(rpt2)nop\n{access}"
    assert run(executor, body, shared_bytes=65 * 4) is None
    report = run(executor, body, shared_bytes=65 * 4 - 1)
    assert report is not None
    assert (report.kind, report.pc, report.lane, report.address) == ("memory", 2, 63, 63 * 4)
    assert "local memory" in report.message


@pytest.mark.parametrize("access", ["ldp.u32 r2.x, p[r1.x], 1", "stp.u32 p[r1.x], r2.x, 1"])
@pytest.mark.parametrize(("place", "bytes_"), [("r0.x", 64 * 4), ("c0.x", 16)])
def test_private_memory_has_a_size_and_aligned_elements(
    executor: Executor, access: str, place: str, bytes_: int
) -> None:
    body = f"mov.u32u32 r1.x, {place}\n(rpt2)nop\n{access}"
    report = run(executor, body, private_bytes=bytes_, constants=words(16))
    assert report is not None
    assert (report.kind, report.pc) == ("memory", 2)
    assert (report.lane, report.address) == ((1, 1) if place == "r0.x" else (0, 16))
    assert "private memory" in report.message


@pytest.mark.parametrize("divergent", [False, True])
def test_a_loop_without_end_is_stopped_and_reported_as_a_hang(impatient: Executor, divergent: bool) -> None:
    condition = "cmps.u.lt p0.x, r0.x, 7\n(rpt5)nop\nbr p0.x, #forever\nnop\n" if divergent else ""
    body = f"{condition}forever:\n(jp)add.u r1.x, r1.x, 1\njump #forever"
    started = time.monotonic()
    report = run(impatient, body)
    assert report is not None
    assert report.kind == "hang"
    assert report.instruction == "jump #-1"
    assert time.monotonic() - started < 10
    assert run(impatient, "mov.u32u32 r1.x, 0") is None  # the device works on


@pytest.mark.parametrize("groups", [(1 << 16, 1 << 15, 1), ((1 << 32) - 1,) * 3])
def test_a_launch_with_too_many_groups_is_stopped_between_them(
    impatient: Executor, groups: tuple[int, int, int]
) -> None:
    report = run(impatient, "mov.u32u32 r1.x, 0", groups=groups)
    assert report is not None
    assert (report.kind, report.pc) == ("hang", None)


def test_a_barrier_that_only_some_fibers_reach_is_a_fault(executor: Executor) -> None:
    body = "cmps.u.lt p0.x, r0.x, 7\n(rpt5)nop\nbr p0.x, #over\nnop\nbar.g\nover:\n(jp)nop"
    report = run(executor, body)
    assert report is not None
    assert (report.kind, report.pc, report.instruction) == ("bad state", 4, "bar.g")
    assert "barrier" in report.message


def test_code_that_runs_past_its_end_is_refused(executor: Executor) -> None:
    report = run(executor, bare("add.u r1.x, r1.x, 1\nadd.u r1.x, r1.x, 1")[:16])
    assert report is not None
    assert (report.kind, report.pc) == ("illegal instruction", 2)
    assert "past the end" in report.message


def test_a_jump_out_of_the_program_is_refused(executor: Executor) -> None:
    report = run(executor, bare("jump #100\nend")[:16])
    assert report is not None
    assert (report.kind, report.pc, report.instruction) == ("illegal instruction", 0, "jump #100")


@pytest.mark.parametrize("code", [b"", b"\0" * 12])
def test_bytes_that_are_no_sequence_of_instructions_are_refused(executor: Executor, code: bytes) -> None:
    report = run(executor, code)
    assert report is not None
    assert report.kind == "illegal instruction"
    assert f"{len(code)} bytes" in report.message


def test_a_word_that_is_no_instruction_is_refused_with_its_place(executor: Executor) -> None:
    report = run(executor, bare("nop\nend")[:8] + b"\xff" * 8 + bare("end")[:8])
    assert report is not None
    assert (report.kind, report.pc, report.instruction) == ("illegal instruction", 1, "0xffffffffffffffff")


def test_what_lies_behind_the_end_is_not_looked_at(executor: Executor) -> None:
    assert run(executor, bare("end")[:8] + b"\xff" * 64) is None


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("kill p0.x", "graphics"),
        ("brac.1 #0", "not documented"),
        ("dsx (f32)(x)r2.x, r1.x", "derivatives"),
        ("getspid.u32 r1.x", "not modelled"),
        ("getfiberid.u32 r1.x", "a630 does not have getfiberid"),
        ("(sat)min.u r2.x, r1.x, r1.y", "(sat)"),
        ("(sat)and.b r2.x, r1.x, r1.y", "(sat)"),
        ("sub.u (ei)r2.x, r1.x, r1.y", "(ei)"),
        ("sel.b32 r2.x, (neg)r1.x, r1.y, r1.z", "(neg)"),
        ("cov.f32u8 hr2.x, r1.x", "8-bit"),
        ("isam (f32)(x)r2.x, r1.x, s#0, t#0", "no descriptor"),
        ("isam.s2en.nonuniform (f32)(x)r2.x, r1.x, hr2.x", "not implemented"),
        ("ldib.b.typed.2d.f32.1.imm r2.x, r1.x, 3", "no descriptor"),
        ("ldib.b.typed.2d.f32.1.uniform r2.x, r1.x, r2.x", "immediate"),
        ("ldc.offset0.1.imm r2.x, 0, 2", "uniform buffer"),
        ("ldc.offset0.1.uniform r2.x, r1.x, r2.x", "immediate"),
        ("ldg.u8_32 r2.x, g[r1.x], 1", "u8_32"),
        ("movmsk.w128 r2.x", "64 fibers"),
        ("add.u r2.x, c300.x, r1.x", "constant file"),
        ("predt\njump #1\nprede", "predicated region"),
    ],
)
def test_what_is_not_modelled_is_refused_with_the_instruction_and_the_reason(
    executor: Executor, instruction: str, reason: str
) -> None:
    report = run(executor, instruction)
    assert report is not None
    assert report.kind == "illegal instruction"
    pc = 1 if instruction.startswith("predt") else 0
    assert (report.pc, report.instruction) == (pc, instruction.splitlines()[pc])
    assert reason in report.message


CHIP_SPECIFIC = {
    "dp2acc.unsigned.low r2.x, r1.x, r1.y, r1.z": ("dp2acc", {"a650", "a660", "a643"}),
    "dp4acc.unsigned.low r2.x, r1.x, r1.y, r1.z": ("dp4acc", {"a660", "a643"}),
    "getfiberid.u32 r2.x": ("getfiberid", {"a660", "a643"}),
    "movs.u32u32 r2.x, r1.x, 3": ("movs", {"a660", "a643"}),
}


@pytest.mark.parametrize("chip", CHIPS.values(), ids=lambda chip: chip.name)
@pytest.mark.parametrize("instruction", CHIP_SPECIFIC, ids=lambda text: str(text).split(".")[0])
def test_what_only_some_chips_have_runs_there_and_is_refused_elsewhere(
    executor: Executor, instruction: str, chip: Chip
) -> None:
    what, chips = CHIP_SPECIFIC[instruction]
    report = run(executor, instruction, chip=chip.name)
    if chip.name in chips:
        assert report is None, str(report)
        return
    assert report is not None and report.kind == "illegal instruction"
    assert f"{chip.name} does not have {what}" in report.message and "a660, a643" in report.message


@pytest.mark.parametrize("chip", ["a630", "a640", "a650"])
@pytest.mark.parametrize(
    ("instruction", "what"),
    [
        ("isam.v (u32)(xy)r2.x, r1.x, s#0, t#0", "isam.v"),
        ("ldib.b.untyped.1d.u32.1.imm r2.x, r1.x+4, 0", "coordinate offsets"),
        ("stib.b.untyped.1d.u32.1.imm r2.x, r1.x+4, 0", "coordinate offsets"),
    ],
    ids=["isam.v", "ldib", "stib"],
)
def test_forms_that_only_some_chips_have_are_refused_elsewhere(
    executor: Executor, instruction: str, what: str, chip: str
) -> None:
    report = run(executor, instruction, chip=chip)
    assert report is not None and report.kind == "illegal instruction"
    assert f"{chip} does not have {what}" in report.message and "a660, a643" in report.message


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("isam.v.1d (u32)(xy)r2.x, r1.x, s#0, t#0", "does not work"),
        ("isam.v (u32)(xy)r2.x, r1.x, s#0, t#0", "no descriptor"),
        ("ldib.b.typed.1d.u32.1.imm r2.x, r1.x+4, 0", "typed"),
        ("(sat)dp4acc.unsigned.low r2.x, r1.x, r1.y, r1.z", "(sat)"),
        ("(sat)dp2acc.mixed.low r2.x, r1.x, r1.y, r1.z", "(sat)"),
        ("dp4acc.mixed.high r2.x, r1.x, r1.y, r1.z", ".high"),
        ("movs.u8u32 r49.x, hr1.x, 3", "8-bit"),
    ],
)
def test_unknown_forms_of_instructions_of_the_a660_are_refused(
    executor: Executor, instruction: str, reason: str
) -> None:
    report = run(executor, instruction, chip="a660")
    assert report is not None and report.kind == "illegal instruction"
    assert reason in report.message


def test_a_fault_of_one_host_thread_stops_the_others_and_is_what_is_reported(rows: Rows) -> None:
    """One group of many reads outside; the other thread is stopped, which must not look like a hang."""
    groups = 2000
    body = """
        (sy)mov.u32u32 r2.y, 0
        mov.u32u32 r3.x, r1.x
        mov.u32u32 r3.y, 0
        loop:
        (jp)add.u r2.y, r2.y, 1
        (rpt2)nop
        cmps.u.lt p0.x, r2.y, 300
        (rpt5)nop
        br p0.x, #loop
        nop
        cmps.u.ne p0.x, r1.x, 0
        (rpt5)nop
        br !p0.x, #fine
        nop
        ldg.u32 r4.x, g[r3.x], 1
        fine:
        (jp)nop
    """
    wild = np.zeros(64 * groups, np.uint32)
    wild[64 * 700 + 5] = 0x1234
    report, _ = rows.attempt(body, {"r1.x": wild}, [], groups=groups)
    assert report is not None
    assert (report.kind, report.group, report.lane, report.address) == ("memory", (700, 0, 0), 5, 0x1234)
