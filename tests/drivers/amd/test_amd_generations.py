"""Launches on GPUs of other generations: their commands reach the command processor as what was asked for.

Nothing here executes their machine code, so an executor that only notes launches takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from kernels import LOCAL, PRIVATE, SCALE, build

import ringfence as rf
from ringfence.hardware.amd.chips import chip_by_name
from ringfence.virtual.machine import Machine
from virtual.amd.client import FakeExecutor

pytest.importorskip("ziglang")

WAVES = {"gfx1102": 32, "gfx1200": 32, "gfx1201": 32, "gfx942": 64, "gfx950": 64}


@dataclass
class Bench:
    chip: str
    machine: Machine
    device: rf.Device
    executor: FakeExecutor


@pytest.fixture(params=WAVES)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    executor = FakeExecutor()
    with (
        Machine((request.param,), executor_factory=lambda: executor) as machine,
        rf.open("kfd", port=machine, timeout=20.0) as device,
    ):
        yield Bench(request.param, machine, device, executor)


def test_a_launch_is_what_was_asked_for(bench: Bench) -> None:
    device = bench.device
    y, x = device.zeros(1000, np.float32), device.array(np.ones(1000, np.float32))
    arguments: list[bytes] = []
    bench.executor.action = lambda dispatch, memory: arguments.append(
        memory.read(dispatch.user_data[0] | dispatch.user_data[1] << 32, 24)
    )
    code = build(SCALE, arch=bench.chip)
    device.launch(device.load(code)["scale"], y, x, 2.0, 1000, groups=(5, 1, 1), local=(200, 1, 1)).wait()
    (dispatch,) = bench.executor.ran
    assert (dispatch.groups, dispatch.local) == ((5, 1, 1), (200, 1, 1))
    assert dispatch.wave == WAVES[bench.chip]
    expected = np.array([y.gpu_address, x.gpu_address], np.uint64).tobytes()
    assert arguments[0] == expected + np.float32(2.0).tobytes() + np.uint32(1000).tobytes()


@pytest.mark.parametrize("words", [128, 129, 16384])
def test_local_memory_is_given_in_whole_units(bench: Bench, words: int) -> None:
    device = bench.device
    kernel = device.load(build(LOCAL, arch=bench.chip, WORDS=words)).kernel()
    device.launch(kernel, device.zeros(64, np.uint32), groups=1, local=64).wait()
    (dispatch,) = bench.executor.ran
    granule = 1280 if bench.chip == "gfx950" else 512
    assert dispatch.shared_bytes == -(-4 * words // granule) * granule


def test_scratch_memory_is_there_for_every_wave(bench: Bench) -> None:
    device = bench.device
    before = device.memory_bytes
    kernel = device.load(build(PRIVATE, arch=bench.chip, WORDS=65)).kernel()
    device.launch(kernel, device.zeros(64, np.uint32), 3, groups=1, local=64).wait()
    (dispatch,) = bench.executor.ran
    assert dispatch.scratch_bytes >= kernel.private_bytes >= 260
    node = chip_by_name(bench.chip).node()
    slots = node.max_slots_scratch_cu * node.cus_per_xcc
    assert device.memory_bytes - before >= 64 * dispatch.scratch_bytes * slots


def test_code_of_another_generation_is_refused(bench: Bench) -> None:
    other = "gfx942" if bench.chip.startswith("gfx1") else "gfx1201"
    with pytest.raises(rf.PackageError, match=f"compiled for {other}, this device is a {bench.chip}"):
        bench.device.load(build(SCALE, arch=other))


def test_streams_with_barriers_time_stamps_and_waits_run(bench: Bench) -> None:
    device = bench.device
    kernel = device.load(build(SCALE, arch=bench.chip))["scale"]
    x, y = device.zeros(64, np.float32), device.zeros(64, np.float32)
    with device.capture() as graph:
        device.launch(kernel, y, x, 2.0, 64, groups=1, local=64)
        device.launch(kernel, x, y, 2.0, 64, groups=1, local=64)
    bound = graph.bind(instances=2, timestamps=True)
    for _ in range(5):
        bound.replay().wait()
    assert len(bench.executor.ran) == 10


@pytest.mark.parametrize("chip", ["gfx942", "gfx950"])
def test_a_gpu_of_several_dies_says_that_one_of_them_works(chip: str) -> None:
    with (
        Machine((chip,), executor_factory=FakeExecutor) as machine,
        rf.open("kfd", port=machine) as device,
    ):
        assert "one of 8 compute dies" in device.info.name


def test_without_an_executor_there_are_no_such_machines() -> None:
    with pytest.raises(rf.UnsupportedDevice, match="no virtual gfx1201: only gfx11"):
        Machine(("gfx1201",))
