"""The driver on the virtual machine: real commands, real machine code, the kernel's own errors."""

from __future__ import annotations

import ctypes
import errno
import gc
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from programs import program, scale_program

import ringfence as rf
from ringfence.drivers.adreno.device import AdrenoDevice
from ringfence.virtual.faults import CallError, EarlyWake, Hang, LostCompletion
from ringfence.virtual.machine import Machine

pytest.importorskip("llvmlite")


@pytest.fixture
def machine() -> Iterator[Machine]:
    with Machine(("a630", "a630")) as opened:
        yield opened


@pytest.fixture
def device(machine: Machine) -> Iterator[rf.Device]:
    with rf.open("kgsl", port=machine, timeout=20.0) as opened:
        yield opened


def run_scale(
    device: rf.Device, count: int, factor: float, values: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    kernel = device.load(scale_program())
    x, y = device.array(values, label="x"), device.zeros(values.size, np.float32, label="y")
    device.launch(kernel, y, x, factor, count, groups=-(-count // 64)).wait()
    return y.numpy()


# ----- results ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000])
def test_an_elementwise_kernel_of_any_size(device: rf.Device, count: int) -> None:
    values = np.random.default_rng(count).standard_normal(1024).astype(np.float32)
    result = run_scale(device, count, 2.5, values)
    expected = np.where(np.arange(1024) < count, values * np.float32(2.5), np.float32(0))
    assert (result == expected).all()


def test_results_follow_the_arguments_of_each_launch(device: rf.Device) -> None:
    kernel = device.load(scale_program())
    x = device.array(np.ones(64, np.float32))
    outputs = [device.zeros(64, np.float32) for _ in range(10)]
    for factor, y in enumerate(outputs):
        device.launch(kernel, y, x, float(factor), 64, groups=1)
    assert [y.numpy()[63] for y in outputs] == list(range(10))


def test_a_bound_chain_runs_frame_after_frame(device: rf.Device) -> None:
    kernel = device.load(scale_program())
    x, y, z = (device.zeros(256, np.float32) for _ in range(3))
    stream = device.record("chain").dispatch(kernel, (y, x, rf.Parameter("a"), 256), 4).barrier().timestamp(0)
    stream.dispatch(kernel, (z, y, 0.5, 256), 4).barrier().copy(x, z)
    bound = device.bind(stream, instances=2)
    x.copy_from(np.arange(256, dtype=np.float32))
    for frame in range(8):
        job = bound.submit(a=4.0, label=f"frame {frame}")
    job.wait()
    assert (x.numpy() == np.arange(256, dtype=np.float32) * 2.0**8).all()
    assert len(job.timestamps) == 1 and 0 < job.timestamps[0] < (job.timings.gpu or 0)


@pytest.mark.parametrize(("offset", "nbytes"), [(0, 4096), (4, 100), (1, 999), (3, 1)])
def test_kernel_copies_are_exact(device: rf.Device, offset: int, nbytes: int) -> None:
    source = np.random.default_rng(nbytes).integers(0, 256, 5000, np.uint8)
    x, y = device.array(source), device.zeros(5000, np.uint8)
    result = device.copy(y.offset_view(offset, nbytes), x.offset_view(offset, nbytes))
    assert result.path is rf.CopyPath.KERNEL
    expected = np.zeros(5000, np.uint8)
    expected[offset : offset + nbytes] = source[offset : offset + nbytes]
    assert (y.numpy() == expected).all()


@pytest.mark.parametrize(("offset", "count"), [(0, 64), (4, 1000), (4092, 33), (12, 1)])
def test_imported_memory_is_computed_on_in_place(device: rf.Device, offset: int, count: int) -> None:
    block = np.zeros(16384, np.uint8)
    start = -block.ctypes.data % 4096 + offset
    array = block[start : start + 4 * count].view(np.float32)
    array[:] = np.arange(count)
    kernel, y = device.load(scale_program()), device.import_array(array)
    device.launch(kernel, y, y, 3.0, count, groups=-(-count // 64)).wait()
    assert (array == np.arange(count) * 3).all()
    assert block[:start].sum() + block[start + 4 * count :].sum() == 0


def test_what_the_cpu_writes_later_is_seen_after_a_flush(device: rf.Device) -> None:
    array, y = np.zeros(64, np.float32), device.zeros(64, np.float32)
    kernel, x = device.load(scale_program()), device.import_array(array)
    for value in (1.0, 2.0):
        array[:] = value
        x.flush()
        device.launch(kernel, y, x, 10.0, 64, groups=1).wait()
        assert y.numpy().tolist() == [10 * value] * 64


def test_cached_memory_works_like_any_other(device: rf.Device) -> None:
    x = device.array(np.ones(64, np.float32), cache="cached")
    y = device.zeros(64, np.float32, cache="cached")
    kernel = device.load(scale_program())
    for factor in (2.0, 5.0):
        device.launch(kernel, y, x, factor, 64, groups=1).wait()
        assert y.numpy().tolist() == [factor] * 64


def test_private_memory_grows_between_launches(device: rf.Device) -> None:
    values = np.ones(64, np.float32)
    x, y = device.array(values), device.zeros(64, np.float32)
    kernels = [device.load(scale_program(private_bytes=size)) for size in (0, 600, 5000, 600)]
    growth = [device.launch(kernel, y, x, 2.0, 64, groups=1) for kernel in kernels]
    growth[-1].wait()
    assert [job.stack_growth > 0 for job in growth] == [False, True, True, False]
    assert y.numpy().tolist() == [2.0] * 64


def test_contexts_of_one_process_can_wait_for_each_other(machine: Machine, device: rf.Device) -> None:
    with rf.open("kgsl", port=machine, label="second") as second:
        kernel = device.load(scale_program())
        x, y = device.array(np.ones(64, np.float32)), device.zeros(64, np.float32)
        first = device.launch(kernel, y, x, 7.0, 64, groups=1)
        after = second.bind(second.record().wait(first.point)).submit()
        after.wait()
        assert first.state in ("gpu-complete", "host-visible")
        assert y.numpy()[0] == 7


def test_the_timeline_moves_while_work_goes_on(machine: Machine) -> None:
    with rf.Device(AdrenoDevice(machine, timeline_limit=5), "kgsl") as device:
        kernel = device.load(scale_program())
        x = device.array(np.ones(64, np.float32))
        for _ in range(23):
            job = device.launch(kernel, x, x, 2.0, 64, groups=1)
        assert x.numpy()[0] == 2.0**23
        assert job.point.timeline.moves == 5


def test_async_mode_gives_the_same_results() -> None:
    with rf.open("virtual:a630?mode=async") as device:
        values = np.arange(1024, dtype=np.float32)
        assert (run_scale(device, 1024, 0.25, values) == values * np.float32(0.25)).all()


def test_stage_times_fit_into_the_wall_time(device: rf.Device) -> None:
    kernel, x = device.load(scale_program()), device.array(np.ones(64, np.float32))
    clock = device.port.now
    begin = clock()
    job = device.launch(kernel, x, x, 1.0, 64, groups=1)
    job.wait()
    wall = clock() - begin
    assert 0 < (job.timings.gpu or 0) < wall
    assert job.timings.total <= wall * 1.01 + 1e-3


# ----- errors -------------------------------------------------------------------------------------


def fault(device: rf.Device, label: str = "y") -> rf.GpuFault:
    """Let a kernel write far behind its buffer; return the error."""
    kernel = device.load(scale_program(name="runaway"))
    x, y = device.array(np.ones(1024, np.float32), label="x"), device.zeros(64, np.float32, label=label)
    with pytest.raises(rf.GpuFault) as caught:
        device.launch(kernel, y, x, 1.0, 1 << 24, groups=1 << 18).wait()
    return caught.value


def test_a_kernel_that_leaves_its_buffer_is_a_fault_that_tells_where(device: rf.Device) -> None:
    report = fault(device).report
    assert report is not None and report.kind == "memory"
    assert report.pc is not None and report.instruction is not None
    assert report.instruction.split()[0].strip("()sy") in ("ldg.u32", "stg.u32")
    assert report.address is not None and report.nearest


def test_only_the_device_that_faulted_is_lost(machine: Machine, device: rf.Device) -> None:
    with rf.open("kgsl", port=machine, path="/dev/kgsl-3d1") as other:
        fault(device)
        assert isinstance(device.lost, rf.GpuFault) and other.lost is None
        with pytest.raises(rf.GpuFault, match="is lost"):
            device.synchronize()
        assert run_scale(other, 64, 3.0, np.ones(64, np.float32))[5] == 3


def test_a_lost_device_can_be_opened_anew(machine: Machine) -> None:
    with rf.open("kgsl", port=machine) as device:
        fault(device)
    with rf.open("kgsl", port=machine) as device:
        assert run_scale(device, 64, 3.0, np.ones(64, np.float32))[5] == 3
    assert machine.live_objects().total == 0


def test_a_hang_is_found_within_its_deadline(machine: Machine, device: rf.Device) -> None:
    machine.faults.add(Hang(at="dispatch"))
    kernel, x = device.load(scale_program()), device.array(np.ones(64, np.float32))
    job = device.launch(kernel, x, x, 1.0, 64, groups=1)
    with pytest.raises(rf.GpuHang) as caught:
        job.wait(timeout=60.0)
    assert caught.value.report is not None and caught.value.report.kind == "hang"
    assert job.state is rf.State.FAILED


def test_a_deadline_that_passes_first_is_a_time_out_and_the_hang_comes_later(
    machine: Machine, device: rf.Device
) -> None:
    machine.faults.add(Hang(at="dispatch"))
    kernel, x = device.load(scale_program()), device.array(np.ones(64, np.float32))
    job = device.launch(kernel, x, x, 1.0, 64, groups=1)
    with pytest.raises(rf.WaitTimeout):
        job.wait(timeout=0.5)
    with pytest.raises(rf.GpuHang):
        job.wait(timeout=60.0)


def test_a_lost_completion_interrupt_costs_a_slice_of_time(machine: Machine, device: rf.Device) -> None:
    kernel, x = device.load(scale_program()), device.array(np.ones(64, np.float32))
    device.launch(kernel, x, x, 1.0, 64, groups=1).wait()
    lost = machine.faults.add(LostCompletion(what="timestamp"))
    begin = machine.now()
    device.launch(kernel, x, x, 2.0, 64, groups=1).wait(timeout=10.0)
    assert x.numpy()[0] == 2 and lost.fired == 1
    assert machine.now() - begin < 5


def test_a_lost_signal_is_a_time_out_and_the_next_submission_makes_up_for_it(
    machine: Machine, device: rf.Device
) -> None:
    kernel, x = device.load(scale_program()), device.array(np.ones(64, np.float32))
    machine.faults.add(LostCompletion(what="signal", nth=2, times=1))
    first = device.launch(kernel, x, x, 2.0, 64, groups=1)
    machine.faults.clear()
    second = device.launch(kernel, x, x, 2.0, 64, groups=1)
    second.wait()
    first.wait(timeout=1.0)
    assert x.numpy()[0] == 4


def test_a_wait_that_wakes_too_early_goes_on_waiting(machine: Machine, device: rf.Device) -> None:
    machine.faults.add(EarlyWake(what="call", times=3))
    assert run_scale(device, 64, 3.0, np.ones(64, np.float32))[63] == 3


def test_a_recovered_fault_is_reported_and_nothing_runs_twice(machine: Machine, device: rf.Device) -> None:
    kernel, x = device.load(scale_program()), device.array(np.ones(64, np.float32))
    machine.faults.add(CallError(errno=errno.EPROTO, call="GPU_COMMAND"))
    jobs = [device.launch(kernel, x, x, 2.0, 64, groups=1) for _ in range(3)]
    jobs[-1].wait()
    assert [job.recovered_fault for job in jobs] == [True, False, False]
    assert x.numpy()[0] == 8 and device.recovered_faults == 1


# ----- nothing leaks ------------------------------------------------------------------------------


def session(machine: Machine) -> None:
    """A bit of everything that a program may do."""
    with rf.open("kgsl", port=machine) as device:
        kernel = device.load(scale_program(private_bytes=600))
        x = device.array(np.ones(64, np.float32), cache="cached")
        y = device.import_array(np.zeros(64, np.float32))
        device.launch(kernel, y, x, 2.0, 64, groups=1).wait()
        bound = device.bind(device.record().dispatch(kernel, (x, y, 0.5, 64), 1).barrier().copy(y, x))
        bound.submit().wait()
        assert y.numpy()[0] == 1.0
        x.free()


@pytest.mark.parametrize(("calls", "count"), [("[!m]*", 40), ("mmap", 8)])
def test_whatever_call_fails_nothing_stays_behind(machine: Machine, calls: str, count: int) -> None:
    """Every ioctl and open, and every mmap; the names are shell patterns."""
    failures = 0
    for nth in range(1, 400):
        injected = machine.faults.add(CallError(errno=errno.ENOMEM, call=calls, nth=nth))
        try:
            session(machine)
        except rf.RingfenceError as error:
            assert isinstance(error, rf.PortError) and error.errno == errno.ENOMEM
            failures += 1
        machine.faults.clear()
        gc.collect()
        assert machine.live_objects().total == 0, f"call {nth}: {machine.live_objects()}"
        if not injected.fired:
            break
    assert failures >= count


def test_opening_and_closing_leaves_no_mapping_of_the_process(machine: Machine) -> None:
    session(machine)
    before = _map_count()
    for _ in range(50):
        rf.open("kgsl", port=machine).close()
    assert machine.live_objects().total == 0
    assert _map_count() <= before + 2


def test_ten_thousand_rounds_of_import_and_free_leave_no_mapping(machine: Machine, device: rf.Device) -> None:
    array = np.zeros(5000, np.uint8)
    device.import_array(array).free()
    before, maps = machine.live_objects(), _map_count()
    for size in range(10_000):
        device.import_array(array[size % 7 : 10 + size % 4000]).free()
    assert machine.live_objects() == before
    assert _map_count() <= maps + 2


def _map_count() -> int:
    with open("/proc/self/maps") as file:
        return sum(1 for _ in file)


@pytest.mark.parametrize("how", ["free", "unmap", "remap"])
def test_taking_imported_memory_away_during_a_dispatch_does_not_crash(how: str) -> None:
    with rf.open("virtual:a630?mode=async", timeout=20.0) as device:
        kernel, count = device.load(scale_program()), 16384
        x = device.array(np.ones(count, np.float32))
        for _ in range(334):
            memory = mmap.mmap(-1, 4 * count)
            view = np.frombuffer(memory, np.float32)
            address = view.ctypes.data
            imported = device.import_array(address, 4 * count, dtype=np.float32)
            del view
            job = device.launch(kernel, imported, x, 2.0, count, groups=count // 64)
            if how == "remap":
                _remap(address, 4 * count)
            elif how == "unmap":
                memory.close()
            imported.free()
            job.wait()
        assert device.lost is None
        assert run_scale(device, 64, 3.0, np.ones(64, np.float32))[0] == 3


def _remap(address: int, length: int) -> None:
    """Put fresh pages in the place of what is mapped at ``address``."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    fixed = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10
    arguments = ctypes.c_void_p(address), ctypes.c_size_t(length), mmap.PROT_READ | mmap.PROT_WRITE, fixed, -1
    assert libc.mmap(*arguments, ctypes.c_long(0)) == address


def test_an_address_that_is_not_mapped_cannot_be_imported(device: rf.Device) -> None:
    memory = mmap.mmap(-1, 4096)
    view = np.frombuffer(memory, np.uint8)
    address = view.ctypes.data
    del view
    memory.close()
    with pytest.raises(rf.LeaseError, match="EFAULT"):
        device.import_array(address, 4096)


def test_a_program_for_another_chip_never_reaches_the_machine(device: rf.Device) -> None:
    with pytest.raises(rf.PackageError, match="compiled for a650, this device is an a630"):
        device.load(program(chip="a650"))
