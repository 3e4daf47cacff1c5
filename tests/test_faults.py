"""What a fault tells on both families: the labels of the launch and of the memory next to the address."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest

import ringfence as rf
from ringfence.compile.kernels import CompiledKernel, compile_tinygrad

COUNT = 1 << 14


@pytest.fixture(params=["a630", "gfx1100"])
def device(request: pytest.FixtureRequest) -> Iterator[rf.Device]:
    with rf.open(f"virtual:{request.param}") as opened:
        yield opened


@cache
def double(chip: str) -> CompiledKernel:
    return compile_tinygrad(lambda a: 2 * a, (COUNT,), local=(64,), target=chip)[0]


Run = Callable[[rf.Buffer, str], object]


def runner(device: rf.Device, launch: Callable[..., rf.Submission] | None = None) -> Run:
    """Return what writes ``COUNT`` elements to a buffer, in a launch with a label."""
    kernel = double(device.info.chip)
    program = device.load(kernel.program, label="double")
    source = device.zeros(COUNT, np.float32, label="source")
    size = {"groups": kernel.groups, "local": kernel.local}
    return lambda out, label: (launch or device.launch)(program, out, source, label=label, **size)


def faulted(wait: Callable[[], object]) -> rf.FaultReport:
    with pytest.raises(rf.GpuFault) as caught:
        wait()
    report = caught.value.report
    assert report is not None and str(report) in str(caught.value)
    return report


def buffers(device: rf.Device) -> tuple[rf.Buffer, rf.Buffer]:
    """Return a buffer that is large enough, and one that is not and has nothing behind it."""
    large = device.zeros(COUNT, np.float32, label="large")
    for _ in range(16):
        gap = device.zeros(1000, np.float32, label="gap")  # KFD: the next one goes below it
        small = device.zeros(1000, np.float32, label="victim")
        gap.free()
        if device.info.family != "amd" or reserved(small.gpu_address + 4096):
            break
    return large, small


def reserved(address: int) -> bool:
    """Keep a page of addresses, which a KFD client's GPU shares, from becoming memory, if it is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000  # MAP_FIXED_NOREPLACE
    return libc.mmap(address, 4096, 0, flags, -1, 0) == address


def test_a_fault_names_launch_program_and_buffer(device: rf.Device) -> None:
    large, small = buffers(device)
    run = runner(device)
    run(large, "step 1")
    run(small, "step 2")
    run(large, "step 3")
    report = faulted(device.synchronize)
    assert (report.launch, report.program) == ("step 2", "double")
    assert "0x60 bytes past the end of 'victim'" in (report.nearest or "")
    assert "launch 'step 2'; program 'double'; pc " in str(report)
    assert "submission" not in str(report)


def test_a_fault_in_a_graph_names_the_node_and_the_replay(device: rf.Device) -> None:
    large, small = buffers(device)
    run = runner(device)
    with device.capture("network") as graph:
        for number, out in enumerate((large, large, small, large)):
            run(out, f"layer {number}")
    bound = graph.bind(timestamps=True)
    report = faulted(bound.replay(label="frame 7").wait)
    assert (report.launch, report.submission, report.program) == ("layer 2", "frame 7", "double")
    assert "launch 'layer 2'; submission 'frame 7'; program 'double'" in str(report)


def test_a_fault_in_a_stream_names_the_program_and_the_submission(device: rf.Device) -> None:
    large, small = buffers(device)
    stream = device.record("chain")

    def record(program: rf.Program, *args: rf.Buffer, label: str, groups: object, local: object) -> None:
        stream.dispatch(program, args, groups, local).barrier()

    run = runner(device, record)  # type: ignore[arg-type]
    run(large, "")
    run(small, "")
    bound = device.bind(stream)
    report = faulted(bound.submit().wait)
    assert (report.launch, report.submission, report.program) == ("double", "chain", "double")


def test_a_kernel_that_tells_nothing_leaves_what_the_driver_knows(
    device: rf.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device.port, "explain", lambda descriptor, context: None)
    large, small = buffers(device)
    run = runner(device)
    run(large, "step 1")
    run(small, "step 2")
    with pytest.raises(rf.DeviceLost) as caught:
        device.synchronize()
    report = caught.value.report
    assert report is not None
    assert (report.launch, report.program) == ("step 2", "double")
    if device.info.family == "amd":  # KFD tells the page
        assert report.kind == "memory" and "'victim'" in (report.nearest or "")
