"""The driver on every chip: what it writes for some of them only, and what each can run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from fake_kgsl import Dispatch, FakeKgsl
from programs import program

import ringfence as rf
from ringfence.hardware.adreno import registers as reg
from ringfence.hardware.adreno.chips import CHIPS, Chip
from ringfence.hardware.adreno.packets import StateBlock, StateType

COPIES = (
    (reg.SP_CS_WIE_CNTL_0, reg.SP_CS_CONST_CONFIG_0),
    (reg.SP_CS_WIE_CNTL_1, reg.SP_CS_WGE_CNTL),
    (reg.HLSQ_CS_CTRL_REG1, reg.SP_CS_CNTL_1),
)


@pytest.fixture(params=CHIPS.values(), ids=lambda chip: chip.name)
def chip(request: pytest.FixtureRequest) -> Chip:
    return request.param


@pytest.fixture
def kgsl(chip: Chip) -> FakeKgsl:
    return FakeKgsl(chip_id=chip.chip_id)


@pytest.fixture
def device(kgsl: FakeKgsl) -> Iterator[rf.Device]:
    with rf.open("kgsl", port=kgsl, timeout=5.0) as opened:
        yield opened
        kgsl.release()


def launch(device: rf.Device, kgsl: FakeKgsl, **changes: object) -> Dispatch:
    kernel = device.load(program(chip=device.info.chip, **changes))
    x, y = device.zeros(64, np.float32), device.zeros(64, np.float32)
    device.launch(kernel, y, x, 2.0, groups=1, local=64).wait()
    return kgsl.dispatches[-1]


def test_copies_of_the_launch_state_are_written_where_the_chip_reads_them(
    chip: Chip, kgsl: FakeKgsl, device: rf.Device
) -> None:
    state = launch(device, kgsl, shared_bytes=5000, double_threads=True)
    for copy, original in COPIES:
        if chip.lpac:
            assert state.value(copy) == state.value(original)
        else:
            assert copy.OFFSET not in state.registers


def test_private_memory_has_room_for_every_fiber_of_the_chip(
    chip: Chip, kgsl: FakeKgsl, device: rf.Device
) -> None:
    before = device.memory_bytes
    state = launch(device, kgsl, private_bytes=600)
    per_processor = 1024 * chip.fibers_per_sp
    assert state.field(reg.SP_CS_PVT_MEM_SIZE, "TOTALPVTMEMSIZE") * 4096 == per_processor
    assert state.field(reg.SP_CS_PVT_MEM_STACK_OFFSET, "OFFSET") * 2048 == per_processor
    assert device.memory_bytes - before > per_processor * chip.sp_cores


@pytest.mark.parametrize("units", [1, 64, 65, 127, 128, 1023, 1024])
def test_no_more_code_is_loaded_ahead_than_the_chip_can_take(
    units: int, chip: Chip, kgsl: FakeKgsl, device: rf.Device
) -> None:
    state = launch(device, kgsl, code=bytes(units * 128))
    loaded = state.state[StateBlock.CS_SHADER, StateType.SHADER]
    assert len(loaded) == 128 * min(units, chip.preload_units)
    assert state.value(reg.SP_CS_INSTR_SIZE) == units


def test_a_work_group_has_as_many_threads_as_the_register_file_can_hold(
    chip: Chip, device: rf.Device
) -> None:
    kernel = device.load(program(chip=chip.name, full_registers=24, half_registers=0))
    assert kernel.max_threads == {96: 512, 64: 256}[chip.registers_vec4]


def test_a_program_with_more_registers_than_the_chip_has_is_refused(chip: Chip, device: rf.Device) -> None:
    wide = program(chip=chip.name, full_registers=48, half_registers=48)
    if chip.registers_vec4 < 72:
        with pytest.raises(rf.PackageError, match=rf"needs 72 registers \(vec4\); {chip.name} has 64"):
            device.load(wide)
    else:
        assert device.load(wide).max_threads == 128


def test_a_program_for_another_chip_is_refused_by_the_pair(chip: Chip, device: rf.Device) -> None:
    other = next(name for name in ("a630", "a650") if name != chip.name)
    with pytest.raises(rf.PackageError, match=f"compiled for {other}, this device is an {chip.name}"):
        device.load(program(chip=other))
