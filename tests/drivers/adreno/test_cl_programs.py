"""Programs of Qualcomm's OpenCL compiler on the virtual a630, and what becomes of damaged files."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest

import ringfence as rf
from oracle.qcom_cl_file import flips
from oracle.qcom_cl_kernels import KERNELS, Array, Kernel, blur, ids, reverse, scale
from ringfence.drivers.adreno.encode import BlockLayout
from ringfence.hardware.adreno import qcom_cl
from ringfence.hardware.adreno import registers as reg
from ringfence.hardware.adreno.descriptors import pack_sampler
from ringfence.hardware.adreno.packets import StateBlock, StateType
from ringfence.virtual.adreno.state import Snapshot
from ringfence.virtual.machine import Machine

pytest.importorskip("llvmlite")


@pytest.fixture(scope="module")
def device() -> Iterator[rf.Device]:
    with rf.open("virtual:a630", timeout=20.0) as opened:
        yield opened


def read(kernel: Kernel) -> rf.AdrenoProgram:
    return rf.read_qcom_cl(kernel.file.to_bytes(), kernel.file.name, kernel.arguments)


def run(device: rf.Device, kernel: Kernel, source: rf.AdrenoProgram) -> Array:
    program = device.load(source)
    args = [device.array(x) if isinstance(x, np.ndarray) else x for x in kernel.inputs]
    device.launch(program, *args, groups=kernel.groups, local=kernel.local).wait()
    result: Array = args[0].numpy()
    for buffer in args:
        if isinstance(buffer, rf.Buffer):
            buffer.free()
    program.free()
    return result.reshape(kernel.expected.shape)


# ----- launches -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", KERNELS)
def test_results(device: rf.Device, make: Callable[[], Kernel]) -> None:
    kernel = make()
    np.testing.assert_array_equal(run(device, kernel, read(kernel)), kernel.expected)


def test_each_launch_has_its_own_geometry_and_arguments(device: rf.Device) -> None:
    kernel = scale()
    program = device.load(read(kernel))
    values = kernel.inputs[1]
    assert isinstance(values, np.ndarray)
    x = device.array(values)
    for groups, local, factor in ((1, 64, 2), (3, 64, 5), (2, 32, -1), (6, 32, 7)):
        out = device.zeros(192, np.float32)
        device.launch(program, out, x, factor, groups=groups, local=local).wait()
        halves = (values * np.float32(factor)).astype(np.float16) * np.float16(1.5) + np.float16(-0.25)
        expected = np.where(np.arange(192) < groups * local, halves.astype(np.float32) + 3, 0)
        np.testing.assert_array_equal(out.numpy(), expected.astype(np.float32))


def test_launches_in_a_stream(device: rf.Device) -> None:
    kernel = reverse()
    program = device.load(read(kernel))
    values = kernel.inputs[1]
    assert isinstance(values, np.ndarray)
    buffers = [device.array(values), device.zeros(128, np.uint32), device.zeros(128, np.uint32)]
    stream = device.record()
    stream.dispatch(program, (buffers[1], buffers[0]), groups=2, local=64).barrier()
    stream.dispatch(program, (buffers[2], buffers[1]), groups=2, local=64)
    device.bind(stream).submit().wait()
    once = values.reshape(2, 64)[:, ::-1].ravel() + values
    np.testing.assert_array_equal(buffers[2].numpy(), once.reshape(2, 64)[:, ::-1].ravel() + once)


def test_other_chips_refuse_the_program() -> None:
    with (
        rf.open("virtual:a640") as other,
        pytest.raises(rf.PackageError, match="compiled for a630, this device is an a640"),
    ):
        other.load(read(scale()))


# ----- the state at the dispatch ------------------------------------------------------------------


def state_of(kernel: Kernel) -> Snapshot:
    states: list[Snapshot] = []
    machine = Machine(("a630",))
    machine.on_dispatch = lambda state, _: states.append(state.snapshot())
    with machine, rf.open("kgsl", port=machine) as device:
        run(device, kernel, read(kernel))
    return states[-1]


def test_modes_and_ids() -> None:
    registers = state_of(ids()).registers
    assert reg.SP_MODE_CNTL.get(registers[reg.SP_MODE_CNTL.OFFSET], "ISAMMODE") == reg.IsamMode.ISAMMODE_CL
    assert reg.SP_MODE_CNTL.get(registers[reg.SP_MODE_CNTL.OFFSET], "CONSTANT_DEMOTION_ENABLE") == 0
    assert (
        reg.TPL1_MODE_CNTL.get(registers[reg.TPL1_MODE_CNTL.OFFSET], "ISAMMODE") == reg.IsamMode.ISAMMODE_CL
    )
    assert registers[reg.SP_CS_CONST_CONFIG_0.OFFSET] == 0xCCC0CF
    assert registers[reg.SP_CS_PROGRAM_COUNTER_OFFSET.OFFSET] == ids().file.entry
    assert reg.SP_CS_CNTL_0.get(registers[reg.SP_CS_CNTL_0.OFFSET], "BRANCHSTACK") == 2


def test_constants() -> None:
    kernel = scale()
    constants = np.frombuffer(state_of(kernel).constants[:2048], np.uint32)
    assert constants[36] == 5
    assert list(constants[40:42]) == [0xB400_3E00, 0x40400000]
    assert not constants[:32].any()
    assert not constants[42:].any()


def test_images_and_the_empty_sampler() -> None:
    kernel = blur()
    layout = BlockLayout.of(read(kernel), 0)
    assert (layout.uavs, layout.textures, layout.samplers) == (2048, 2048 + 64, 2048 + 3 * 64)
    state = state_of(kernel)
    config = state.registers[reg.SP_CS_CONFIG.OFFSET]
    assert [reg.SP_CS_CONFIG.get(config, name) for name in ("NTEX", "NSAMP", "NUAV")] == [2, 2, 1]
    samplers = state.units[StateBlock.CS_TEX, StateType.SHADER]
    assert samplers == {0: pack_sampler(), 1: bytes(16)}


# ----- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", KERNELS)
def test_no_inverted_bit_makes_a_wrong_result(
    make: Callable[[], Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bits of code and values of constants are what the program computes; all others are inverted in turn."""
    monkeypatch.setattr(qcom_cl, "usage", functools.lru_cache(qcom_cl.usage))
    kernel = make()
    whole = read(kernel)
    seen: Counter[str] = Counter()
    with ExitStack() as devices:
        opened: list[rf.Device] = []
        for byte, bit, data in flips(kernel.file):
            seen[outcome(kernel, whole, data, opened, devices, f"bit {bit} of byte {byte:#x}")] += 1
    print(kernel.file.name, dict(seen))
    assert min(seen["refused"], seen["same program"], seen["same result"]) > 10


def outcome(
    kernel: Kernel,
    whole: rf.AdrenoProgram,
    data: bytes,
    opened: list[rf.Device],
    devices: ExitStack,
    where: str,
) -> str:
    """Return what becomes of a damaged file; anything but an error and the right result fails."""
    try:
        source = rf.read_qcom_cl(data, kernel.file.name, kernel.arguments)
    except rf.PackageError:
        return "refused"
    if source == whole:
        return "same program"
    if not opened:
        opened.append(devices.enter_context(rf.open("virtual:a630", timeout=20.0)))
    try:
        result = run(opened[0], kernel, source)
    except (rf.PackageError, rf.LaunchError):
        return "refused"
    except rf.GpuFault:
        opened.clear()
        return "fault"
    np.testing.assert_array_equal(result, kernel.expected, err_msg=where)
    return "same result"
