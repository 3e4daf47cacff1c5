"""Virtual devices of every chip: what they say of themselves, and the limits of each."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

from ringfence.hardware.adreno import kgsl
from ringfence.hardware.adreno.chips import CHIPS, Chip
from ringfence.hardware.adreno.packets import Opcode
from ringfence.virtual.machine import Machine
from virtual.adreno.client import LOAD_SHADER, Client, FakeExecutor, dispatch, halves, load_state, op, reg

BY_NAME = {chip.name: chip for chip in CHIPS.values()}
LPAC = [name for name, chip in BY_NAME.items() if chip.lpac]
UNIT = 128  # bytes of code
IDS, THREADS, SIZES = 0x00FCFCC0, 0xFC, 0x41  # what dispatch() writes to 0xB997, 0xB998 and 0xA9B1


@pytest.fixture
def executor() -> FakeExecutor:
    return FakeExecutor()


@pytest.fixture(params=BY_NAME)
def chip(request: pytest.FixtureRequest) -> Chip:
    return BY_NAME[request.param]


@pytest.fixture
def client(chip: Chip, executor: FakeExecutor) -> Iterator[Client]:
    with Machine((chip.name,), clock="virtual", executor_factory=lambda: executor) as machine:
        yield Client(machine)
    machine.mappings.unmap(0, 1 << 48)


def stream(client: Client, chip: Chip, code_units: int = 1, /, **changes: list[int]) -> list[int]:
    """One dispatch as each chip wants it."""
    code, constants = client.buffer(code_units * UNIT), client.buffer()
    copies = [*reg(0xA9C2, IDS, THREADS), *reg(0xB9D0, SIZES)] if chip.lpac else []
    parts = {"resources": copies, "size": reg(0xA9BC, code_units), **changes}
    loaded = min(code_units, chip.preload_units)
    shader = load_state(LOAD_SHADER & ~(0x3FF << 22) | loaded << 22, code.gpu)
    return dispatch(code.gpu, constants.gpu, **{"shader": shader, **parts})


def property_of(client: Client, kind: kgsl.Property, into: ctypes.Structure) -> ctypes.Structure:
    client.call(
        kgsl.DEVICE_GETPROPERTY(type=kind, value=ctypes.addressof(into), sizebytes=ctypes.sizeof(into))
    )
    return into


def test_the_device_reports_its_chip(client: Client, chip: Chip):
    info = property_of(client, kgsl.Property.DEVICE_INFO, kgsl.DEVINFO())
    assert (info.chip_id, info.gmem_sizebytes) == (chip.chip_id, chip.gmem_bytes)
    model = property_of(client, kgsl.Property.GPU_MODEL, kgsl.GPU_MODEL())
    assert bytes(model.gpu_model).decode().startswith(f"Adreno{chip.name[1:]}v")


def test_a_plain_launch_runs(client: Client, chip: Chip, executor: FakeExecutor):
    client.run(stream(client, chip))
    (run,) = executor.ran
    assert run.chip == chip.name


def test_the_register_file_bounds_the_work_group(client: Client, chip: Chip, executor: FakeExecutor):
    """24 vec4 of full registers: 4 or 2 waves of 128 threads."""
    threads = {96: 512, 64: 256}[chip.registers_vec4]

    def launch(size: int) -> list[int]:
        wide = 1 << 20 | 24 << 7  # THREAD128
        return stream(
            client,
            chip,
            ndrange=reg(0xB990, 3 | (size - 1) << 2, size, 0, 1, 0, 1, 0, IDS, THREADS | 1 << 9, 1, 1, 1),
            program=reg(0xA9B0, wide, SIZES, 0, 0, *halves(code.gpu), 0, 0, 0, 0),
            ids=reg(0xB997, IDS, THREADS | 1 << 9),
            resources=copies,
            shader=load_state(LOAD_SHADER, code.gpu),
            exec=op(Opcode.EXEC_CS, 0, 1, 1, 1),
        )

    code = client.buffer()
    copies = [*reg(0xA9C2, IDS, THREADS | 1 << 9), *reg(0xB9D0, SIZES)] if chip.lpac else []
    client.run(launch(threads))
    report = client.lost(launch(threads + 1))
    assert f"{chip.name} holds {threads}" in report.message


def test_private_memory_is_laid_out_for_the_fibers_and_processors_of_the_chip(
    client: Client, chip: Chip, executor: FakeExecutor
):
    per_processor = 512 * chip.fibers_per_sp
    stack = client.buffer(per_processor * chip.sp_cores)

    def launch(base: int, units: int) -> list[int]:
        code = client.buffer()
        registers = [4 << 7, SIZES, 0, 0, *halves(code.gpu), 1, *halves(base), units]
        shader = load_state(LOAD_SHADER, code.gpu)
        return stream(client, chip, program=reg(0xA9B0, *registers), shader=shader)

    client.run(launch(stack.gpu, per_processor // 4096))
    assert executor.ran[0].private_bytes == 512
    report = client.lost(launch(stack.gpu, per_processor // 4096 - 1))
    assert f"for each of {chip.fibers_per_sp} fibers" in report.message
    client.context = client.create_context()
    report = client.lost(launch(stack.gpu + 4096, per_processor // 4096))
    assert "is not mapped for writing" in report.message


def test_code_beyond_the_instruction_cache_is_fetched(client: Client, chip: Chip, executor: FakeExecutor):
    units = chip.preload_units + 3
    client.run(stream(client, chip, units))
    assert len(executor.ran[0].code) == units * UNIT


@pytest.mark.parametrize(
    "chip", [chip for chip in CHIPS.values() if chip.preload_units < 1023], ids=lambda chip: chip.name
)
def test_more_code_than_the_chip_can_be_loaded_with_is_refused(client: Client, chip: Chip):
    units = chip.preload_units + 1
    code = client.buffer(units * UNIT)
    shader = load_state(LOAD_SHADER & ~(0x3FF << 22) | units << 22, code.gpu)
    program = reg(0xA9B0, 4 << 7, SIZES, 0, 0, *halves(code.gpu), 0, 0, 0, 0)
    report = client.lost(stream(client, chip, units, shader=shader, program=program))
    assert f"{units} units of code were loaded; {chip.name} can be loaded {units - 1}" in report.message


@pytest.mark.parametrize("chip", [BY_NAME[name] for name in LPAC], ids=LPAC)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ([*reg(0xB9D0, SIZES)], "SP_CS_WIE_CNTL_0 was not written"),
        ([*reg(0xA9C2, IDS, THREADS)], "HLSQ_CS_CTRL_REG1 was not written"),
        ([*reg(0xA9C2, IDS | 1, THREADS), *reg(0xB9D0, SIZES)], "SP_CS_WIE_CNTL_0 is 0xfcfcc1"),
        ([*reg(0xA9C2, IDS, THREADS | 1 << 9), *reg(0xB9D0, SIZES)], "SP_CS_WIE_CNTL_1 is 0x2fc"),
        ([*reg(0xA9C2, IDS, THREADS), *reg(0xB9D0, SIZES + 1)], "HLSQ_CS_CTRL_REG1 is 0x42"),
    ],
)
def test_chips_with_two_compute_pipes_need_both_copies_of_their_state(
    client: Client, chip: Chip, changed: list[int], message: str
):
    report = client.lost(stream(client, chip, resources=changed))
    assert message in report.message and f"on {chip.name} it must be" in report.message
