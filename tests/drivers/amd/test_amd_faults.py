"""What goes wrong below the driver: every fault ends in its documented error, and nothing leaks."""

from __future__ import annotations

import errno
import gc
from typing import Any

import numpy as np
import pytest
from kernels import SCALE, build, untyped

import ringfence as rf
from ringfence.drivers.amd.device import AmdDevice
from ringfence.drivers.amd.kfd import create_queue, find_gpus
from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.chips import chip_by_name
from ringfence.runtime.memory import CacheMode
from ringfence.virtual.faults import CallError, EarlyWake, Hang, LostCompletion, PageFault, Reset
from ringfence.virtual.machine import LiveObjects, Machine

pytest.importorskip("ziglang")

STORE = "kernel void store(global uint* p, ulong offset) { p[offset + get_global_id(0)] = 7; }"
LOOP = "kernel void loop(global volatile uint* p) { while (p[0] == 0) {} }"


def scale_once(device: rf.Device, factor: float = 2.0) -> np.ndarray[Any, Any]:
    kernel = device.load(build(SCALE))["scale"]
    x = device.array(np.ones(64, np.float32))
    device.launch(kernel, x, x, factor, 64, groups=1, local=64).wait()
    return x.numpy()


# ----- the program's faults -------------------------------------------------------------------------


def test_a_store_beyond_a_buffer_is_a_gpu_fault_that_says_where(device: rf.Device) -> None:
    kernel = device.load(build(STORE))["store"]
    buffer = device.zeros(1024, np.uint32, label="victim")
    job = device.launch(kernel, buffer, 1 << 20, groups=2, local=32)
    with pytest.raises(rf.GpuFault, match="memory fault in the page at 0x") as caught:
        job.wait()
    report = caught.value.report
    assert report is not None and report.kind == "memory"
    assert report.address is not None and report.address >= buffer.gpu_address + (4 << 20)
    assert report.program is not None and "global_store" in (report.instruction or "")
    assert "victim" in (report.nearest or "") or report.nearest
    assert job.state is rf.State.FAILED
    with pytest.raises(rf.GpuFault, match="is lost"):
        device.launch(kernel, buffer, 0, groups=1, local=32)


def readonly_block(device: rf.Device) -> rf.Buffer:
    block = np.zeros(4096, np.uint32)
    block.flags.writeable = False
    return device.import_array(block, label="block")


def test_a_write_to_memory_that_was_imported_for_reading_says_so(device: rf.Device) -> None:
    kernel = device.load(untyped(STORE))["store"]
    job = device.launch(kernel, readonly_block(device), np.uint64(0), groups=1, local=32)
    with pytest.raises(rf.GpuFault, match="read-only"):
        job.wait()


def test_what_the_metadata_says_is_written_must_not_be_read_only(device: rf.Device) -> None:
    store, block = device.load(build(STORE))["store"], readonly_block(device)
    message = "argument 0 'p' of program 'store': the program writes it, .*'block'.* is read-only memory"
    for buffer in (block, block.offset_view(64, 256)):
        with pytest.raises(rf.LaunchError, match=message):
            device.launch(store, buffer, 0, groups=1, local=32)
    with pytest.raises(rf.LaunchError, match=message):
        device.record().dispatch(store, (block, 0), 1, 32)
    with pytest.raises(rf.LaunchError, match="read-only memory"):
        device.copy(block, device.zeros(4096, np.uint32))
    scale = device.load(build(SCALE.replace("float*", "uint*")))["scale"]
    device.launch(scale, device.zeros(64, np.uint32), block, 1.0, 64, groups=1, local=64).wait()


def test_a_parameter_that_one_launch_reads_and_another_writes_must_be_writable(device: rf.Device) -> None:
    scale = device.load(build(SCALE.replace("float*", "uint*")))["scale"]
    block, y = readonly_block(device), device.zeros(64, np.uint32)
    for reads_first in (True, False):
        arguments = [(y, rf.Parameter("x", y), 1.0, 64), (rf.Parameter("x", y), y, 1.0, 64)]
        stream = device.record()
        for each in arguments if reads_first else arguments[::-1]:
            stream.dispatch(scale, each, 1, 64).barrier()
        bound = device.bind(stream)
        with pytest.raises(rf.LaunchError, match="read-only memory"):
            bound.submit(x=block)


def test_an_endless_loop_is_a_hang(machine: Machine) -> None:
    with Machine(("gfx1100",), hang_timeout=0.2) as own, rf.open("kfd", port=own, timeout=20.0) as device:
        kernel = device.load(build(LOOP))["loop"]
        with pytest.raises((rf.GpuHang, rf.GpuFault), match=r"loop|hang|HANG"):
            device.launch(kernel, device.zeros(1, np.uint32), groups=1, local=32).wait()


def test_one_device_faults_and_the_frames_of_another_family_go_on() -> None:
    with Machine(("a630", "gfx1100")) as machine, rf.open("kgsl", port=machine) as adreno:
        x = adreno.array(np.arange(64, dtype=np.float32))
        y = adreno.zeros(64, np.float32)
        frame = adreno.bind(adreno.record("frame").copy(y, x))
        frame.submit().wait(timeout=5.0)
        with rf.open("kfd", port=machine) as amd:
            kernel = amd.load(build(STORE))["store"]
            job = amd.launch(kernel, amd.zeros(16, np.uint32), 1 << 30, groups=1, local=32)
            with pytest.raises(rf.GpuFault):
                job.wait()
            for number in range(5):
                x.copy_from(np.full(64, number, np.float32))
                frame.submit().wait(timeout=5.0)
                assert y.numpy().tolist() == [number] * 64
            assert adreno.lost is None and amd.lost is not None


def test_one_gpu_faults_and_another_of_the_same_family_goes_on(machine: Machine, device: rf.Device) -> None:
    with rf.open("kfd:1", port=machine) as other:
        kernel = device.load(build(STORE))["store"]
        with pytest.raises(rf.GpuFault):
            device.launch(kernel, device.zeros(16, np.uint32), 1 << 30, groups=1, local=32).wait()
        assert scale_once(other).tolist() == [2.0] * 64
        assert other.lost is None


# ----- faults on demand -----------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["packet", "dispatch"])
def test_a_hang_on_demand_ends_within_its_deadline(machine: Machine, device: rf.Device, at: Any) -> None:
    machine.faults.add(Hang(at=at))
    with pytest.raises(rf.DeviceLost):
        scale_once(device)
    assert device.lost is not None


def test_a_lost_interrupt_costs_time_but_no_result(machine: Machine, device: rf.Device) -> None:
    fault = machine.faults.add(LostCompletion(what="timestamp"))
    assert scale_once(device).tolist() == [2.0] * 64
    assert fault.fired == 1


def test_a_lost_signal_is_a_time_out_and_the_next_submission_makes_up_for_it(machine: Machine) -> None:
    with rf.open("kfd:0", port=machine, timeout=20.0) as device:
        kernel = device.load(build(SCALE))["scale"]
        x = device.array(np.ones(64, np.float32))
        # Of the values that a launch stores, the second is the signal: time stamps come first and in between.
        machine.faults.add(LostCompletion(what="signal", nth=3))
        job = device.launch(kernel, x, x, 2.0, 64, groups=1, local=64)
        with pytest.raises(rf.WaitTimeout, match="not reached within"):
            job.wait(timeout=0.5)
        device.launch(kernel, x, x, 2.0, 64, groups=1, local=64).wait()
        assert x.numpy().tolist() == [4.0] * 64


def test_waking_too_early_is_noticed(machine: Machine, device: rf.Device) -> None:
    machine.faults.add(EarlyWake(what="call"))
    assert scale_once(device).tolist() == [2.0] * 64


def test_a_page_fault_on_demand_is_a_gpu_fault(machine: Machine, device: rf.Device) -> None:
    machine.faults.add(PageFault(address=0xDEAD0000))
    with pytest.raises(rf.GpuFault, match="0xdead0000"):
        scale_once(device)


def test_a_reset_is_a_loss_and_the_gpu_can_be_opened_again(machine: Machine) -> None:
    with rf.open("kfd:0", port=machine, timeout=20.0) as device:
        machine.faults.add(Reset())
        with pytest.raises(rf.DeviceLost, match="whole gpu reset"):
            scale_once(device)
    with rf.open("kfd:0", port=machine, timeout=20.0) as device:
        assert scale_once(device).tolist() == [2.0] * 64


# ----- calls that fail ------------------------------------------------------------------------------

OPENING = ["open", "list_directory", "read_text", "GET_VERSION", "ACQUIRE_VM", "ALLOC_MEMORY_OF_GPU",
           "MAP_MEMORY_TO_GPU", "CREATE_EVENT", "reserve", "mmap"]  # fmt: skip


@pytest.mark.parametrize("call", OPENING)
@pytest.mark.parametrize("nth", [1, 2])
def test_opening_either_succeeds_or_leaves_nothing_new_behind(call: str, nth: int) -> None:
    with Machine(("gfx1100",)) as machine:
        before = machine.live_objects()
        fault = machine.faults.add(CallError(call=call, errno=errno.ENOMEM, nth=nth))
        try:
            with rf.open("kfd", port=machine):
                pass
        except rf.PortError as error:
            assert error.errno == errno.ENOMEM
        else:
            assert not fault.fired
        machine.faults.clear()
        gc.collect()
        assert machine.live_objects() == before == LiveObjects()
        with rf.open("kfd", port=machine) as device:
            assert scale_once(device).tolist() == [2.0] * 64


def test_the_first_opening_can_fail_anywhere_and_be_repeated() -> None:
    for nth in range(1, 60):
        with Machine(("gfx1100",)) as machine:
            fault = machine.faults.add(CallError(call="*", errno=errno.ENOMEM, nth=nth))
            try:
                with rf.open("kfd", port=machine):
                    pass
            except rf.PortError:
                pass
            if not fault.fired:
                return
            with rf.open("kfd", port=machine) as device:
                assert scale_once(device).tolist() == [2.0] * 64
    raise AssertionError("opening makes fewer calls than that")


@pytest.mark.parametrize("call", ["CREATE_QUEUE", "mmap", "ALLOC_MEMORY_OF_GPU"])
def test_a_queue_that_cannot_be_made_is_a_port_error_and_can_be_made_later(
    machine: Machine, device: rf.Device, call: str
) -> None:
    kernel = device.load(build(SCALE))["scale"]
    x = device.array(np.ones(64, np.float32))
    machine.faults.add(CallError(call=call, errno=errno.ENOMEM))
    with pytest.raises(rf.PortError, match="ENOMEM"):
        device.launch(kernel, x, x, 2.0, 64, groups=1, local=64)
    device.launch(kernel, x, x, 2.0, 64, groups=1, local=64).wait()
    assert x.numpy().tolist() == [2.0] * 64


def test_a_refused_queue_names_the_argument_and_what_the_kernel_expects(machine: Machine) -> None:
    with rf.open("kfd", port=machine) as device:
        driver = device._driver
        assert isinstance(driver, AmdDevice)
        sizes = kfd.queue_sizes(chip_by_name("gfx1100").node())
        engine = driver.engine
        ring = engine._buffer("ring", 4096, CacheMode.UNCACHED)
        request = kfd.CREATE_QUEUE(
            ring_base_address=ring.gpu_address,
            ring_size=8192,
            write_pointer_address=ring.gpu_address,
            read_pointer_address=ring.gpu_address,
            gpu_id=driver.gpu.gpu_id,
            queue_percentage=100,
        )
        with pytest.raises(
            rf.PortError, match=r"EINVAL.*ring_base_address is 0x.*expected a mapping of 0x2000"
        ):
            create_queue(machine, driver.process.fd, request, sizes, engine._mapping_at)


def test_three_hundred_queues_are_made_and_destroyed(machine: Machine) -> None:
    def once() -> None:
        with rf.open("kfd:0", port=machine) as device:
            x = device.zeros(16, np.uint8)
            device.copy(x.offset_view(0, 8), x.offset_view(8, 8)).wait()

    for _ in range(300):
        once()
    gc.collect()
    assert machine.live_objects() == LiveObjects()


# ----- choosing a GPU -------------------------------------------------------------------------------


def test_gpus_are_chosen_by_number_uuid_or_address(machine: Machine) -> None:
    with rf.open("kfd:1", port=machine) as device:
        name = device.info.name
    uuid = name.split()[1]
    address = name.split()[3]
    for spec in (f"kfd:{uuid}", f"kfd:{address}"):
        with rf.open(spec, port=machine) as device:
            assert device.info.name == name
    with rf.open("kfd:0", port=machine, visible=uuid) as device:
        assert device.info.name == name


def test_rocr_visible_devices_is_honoured(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    names = []
    for visible in ("0", "1", "1,0", "0,7,1"):
        monkeypatch.setenv("ROCR_VISIBLE_DEVICES", visible)
        found = rf.discover(port=machine)
        names.append([each.detail for each in found if each.spec.startswith("kfd:")])
    first, second = names[0][0], names[1][0]
    assert first != second
    assert names == [[first], [second], [second, first], [first]]
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1")
    with pytest.raises(rf.UnsupportedDevice, match="no GPU '1' behind KFD"):
        rf.open("kfd:1", port=machine)


UUIDS = ("GPU-5246000000000001", "GPU-52460000000000a2", "GPU-0000000000000000")
VISIBLE: dict[str, list[int]] = {
    "2,0": [2, 0],
    " 1 , 0 ": [1, 0],
    # An entry that names nothing, or a GPU that is in the list, ends it.
    "": [],
    ",0": [],
    "0,,1": [0],
    "0,x,1": [0],
    "0,-1,1": [0],
    "0,3,1": [0],
    "0,0,1": [0],
    "0;1": [],
    "0 1": [],
    "None": [],
    # Numbers as C reads them.
    "01,0x2,+0": [1, 2, 0],
    "08": [],
    "0x": [],
    "1.0": [],
    "0_1": [],
    # UUIDs in any case, or their beginning; one that is 0 names nothing.
    UUIDS[1]: [1],
    f"{UUIDS[1].lower()},{UUIDS[0].upper()}": [1, 0],
    f"{UUIDS[1]},{UUIDS[1]},0": [1],
    f"0,{UUIDS[0]},1": [0],
    "gpu-52460000000000A": [1],
    "GPU-5246": [],
    "GPU-": [],
    "G": [],
    UUIDS[1] + "0": [],
    UUIDS[2]: [],
}


@pytest.mark.parametrize(("text", "expected"), VISIBLE.items())
def test_a_list_of_visible_gpus_means_what_it_does_to_rocm(
    text: str, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROCR_VISIBLE_DEVICES", raising=False)
    with Machine(("gfx1100", "gfx1101", "gfx1102")) as machine:
        read = machine.read_text

        def renumbered(path: str) -> str:
            text = read(path)
            for index, uuid in enumerate(UUIDS):
                text = text.replace(
                    f"unique_id {0x5246_0000_0000_0000 + index + 1}", f"unique_id {int(uuid[4:], 16)}"
                )
            return text

        monkeypatch.setattr(machine, "read_text", renumbered)
        assert [gpu.uuid for gpu in find_gpus(machine)] == list(UUIDS)
        places = [gpu.node for gpu in find_gpus(machine)]
        assert [places.index(gpu.node) for gpu in find_gpus(machine, text)] == expected
        monkeypatch.setenv("ROCR_VISIBLE_DEVICES", text)
        assert [places.index(gpu.node) for gpu in find_gpus(machine)] == expected


def test_an_empty_list_of_gpus_hides_all(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(rf.UnsupportedDevice, match="none that this process may use"):
        rf.open("kfd:0", port=machine, visible="")
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "")
    with pytest.raises(rf.UnsupportedDevice, match="none that this process may use"):
        rf.open("kfd:0", port=machine)
    with pytest.raises(TypeError, match="visible= is text as in ROCR_VISIBLE_DEVICES, such as '0,2', not 3"):
        rf.open("kfd:0", port=machine, visible=3)  # type: ignore[arg-type]


def test_without_kfd_the_error_says_so() -> None:
    with Machine(("a630",)) as machine, pytest.raises(rf.PortError, match="topology"):
        rf.open("kfd", port=machine)
