"""Streams: what recording checks, what binding prepares, and that submitting only patches."""

from __future__ import annotations

import errno
import gc
import struct
from typing import Any

import numpy as np
import pytest
from fake_kgsl import FakeKgsl
from programs import image_program, program

import ringfence as rf
from ringfence.hardware.adreno import registers as reg
from ringfence.hardware.adreno.descriptors import unpack_texture
from ringfence.hardware.adreno.packets import StateBlock, StateType
from ringfence.hardware.adreno.program import Argument


def floats(device: rf.Device, count: int, label: str = "") -> list[rf.Buffer]:
    return [device.zeros(64, np.float32, label=label) for _ in range(count)]


def scalars(kgsl: FakeKgsl) -> list[float]:
    return [struct.unpack_from("<f", dispatch.constants, 16)[0] for dispatch in kgsl.dispatches]


# ----- recording ----------------------------------------------------------------------------------


def test_commands_run_in_the_order_they_were_recorded(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    stream = device.record("chain")
    for value in range(5):
        stream.dispatch(kernel, (x, y, float(value)), groups=(value + 1, 2), local=(8, 2)).barrier()
    device.bind(stream).submit().wait()
    assert scalars(kgsl) == [0, 1, 2, 3, 4]
    assert [dispatch.groups for dispatch in kgsl.dispatches] == [(value + 1, 2, 1) for value in range(5)]


def test_a_wrong_dispatch_is_refused_where_it_is_recorded(device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    stream = device.record()
    with pytest.raises(rf.LaunchError, match="takes 3 arguments, 2"):
        stream.dispatch(kernel, (x, y), 1, 8)
    with pytest.raises(rf.LaunchError, match="float32 wanted"):
        stream.dispatch(kernel, (x, y, None), 1, 8)
    with pytest.raises(rf.LaunchError, match="local= is missing"):
        stream.dispatch(kernel, (x, y, 1.0), 1)
    with pytest.raises(rf.LaunchError, match="is not a program"):
        stream.dispatch("scale", (x, y, 1.0), 1, 8)
    assert stream.operations == []


def test_a_launch_and_a_bound_dispatch_reach_the_gpu_alike(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel = device.load(
        image_program(local_size_offset=128, immediates=bytes(range(16)), immediates_offset=64)
    )
    args = [device.zeros(4 * 16 * 4, argument.dtype) for argument in kernel.source.arguments]
    device.launch(kernel, *args, groups=(3, 2), local=(4, 4)).wait()
    device.bind(device.record().dispatch(kernel, args, (3, 2), (4, 4))).submit().wait()
    launched, bound = kgsl.dispatches
    assert launched.state == bound.state and launched.groups == bound.groups
    addresses = {
        offset + half
        for register in (reg.SP_CS_SAMPLER_BASE, reg.SP_CS_TEXMEMOBJ_BASE, reg.SP_CS_UAV_BASE)
        for offset in (register.OFFSET,)
        for half in (0, 1)
    }
    assert {k: v for k, v in launched.registers.items() if k not in addresses} == {
        k: v for k, v in bound.registers.items() if k not in addresses
    }


def test_time_stamps_are_numbered_from_zero(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    kgsl.shader = lambda dispatch, gpu: setattr(gpu, "clock", gpu.clock + 0.5)
    stream = device.record().timestamp(0).dispatch(kernel, (x, y, 1.0), 1, 8).timestamp(1)
    stream.dispatch(kernel, (x, y, 1.0), 1, 8)
    job = device.bind(stream).submit()
    job.wait()
    first, second = job.timestamps
    assert second - first == pytest.approx(0.5, abs=1e-4)
    assert job.timings.gpu == pytest.approx(1.0, abs=1e-4)
    with pytest.raises(rf.LaunchError, match="slot 5; the next free one is 2"):
        stream.timestamp(5)


# ----- binding ------------------------------------------------------------------------------------


def test_a_time_stamp_is_recorded_without_a_look_at_what_was_recorded_before(device: rf.Device) -> None:
    class Unread(list[Any]):
        def __iter__(self) -> Any:
            raise AssertionError("a look at all operations for each time stamp is quadratic")

    stream = device.record()
    stream.operations = Unread()
    assert len(stream.timestamp(0).barrier().timestamp(1).operations) == 3


def test_submitting_makes_no_allocation_and_one_ioctl(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    stream = device.record()
    for _ in range(50):
        stream.dispatch(kernel, (x, y, 1.0), 1, 8)
    bound = device.bind(stream)
    kgsl.calls.clear()
    for _ in range(10):
        bound.submit()
    assert kgsl.calls == ["fence", "GPU_COMMAND"] * 10
    assert len(kgsl.dispatches) == 500


def test_a_submit_waits_for_a_free_instance_with_a_deadline(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    bound = device.bind(device.record().dispatch(kernel, (x, y, 1.0), 1, 8), instances=2)
    kgsl.hold = True
    bound.submit()
    bound.submit()
    with pytest.raises(rf.WaitTimeout):
        bound.submit()
    assert len(kgsl.pending) == 2
    kgsl.release()
    bound.submit().wait()


def test_an_instance_count_below_one_is_refused(device: rf.Device) -> None:
    with pytest.raises(rf.LaunchError, match="0 instances"):
        device.bind(device.record("s"), instances=0)


def test_an_empty_stream_is_a_point_to_wait_for(device: rf.Device) -> None:
    job = device.bind(device.record()).submit()
    job.wait()
    assert job.state is rf.State.HOST_VISIBLE


def test_binding_reserves_the_largest_private_memory(kgsl: FakeKgsl, device: rf.Device) -> None:
    small, large = device.load(program(private_bytes=512)), device.load(program(private_bytes=2048))
    x, y = floats(device, 2)
    stream = device.record()
    for kernel in (small, large, small):
        stream.dispatch(kernel, (x, y, 1.0), 1, 8)
    bound = device.bind(stream)
    assert bound.stack_growth > 0
    objects = kgsl.live["objects"]
    bound.submit().wait()
    assert kgsl.live["objects"] == objects
    bases = {dispatch.value(reg.SP_CS_PVT_MEM_BASE) for dispatch in kgsl.dispatches}
    assert len(bases) == 1
    assert kgsl.host(bases.pop(), 2048 * 2048 * 2)


def test_a_bound_stream_keeps_the_private_memory_it_was_bound_with(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program(private_bytes=512)), floats(device, 2)
    bound = device.bind(device.record().dispatch(kernel, (x, y, 1.0), 1, 8))
    device.launch(device.load(program(private_bytes=8192)), x, y, 1.0, groups=1, local=8).wait()
    bound.submit().wait()
    assert kgsl.host(kgsl.dispatches[-1].value(reg.SP_CS_PVT_MEM_BASE), 512 * 2048 * 2)
    before = kgsl.live["objects"]
    bound.free()
    assert kgsl.live["objects"] == before - 2, "its instances and the old private memory"


def test_what_a_bound_stream_refers_to_stays_mapped_after_it_was_freed(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    imported = device.import_array(np.zeros(64, np.float32))
    stream = device.record().dispatch(kernel, (x, imported, 1.0), 1, 8)
    bound = device.bind(stream)
    before = kgsl.live
    addresses = x.gpu_address, imported.gpu_address
    x.free()
    imported.free()
    kernel.free()
    del kernel, x, imported, stream
    gc.collect()
    device.synchronize()
    assert kgsl.live == before
    bound.submit().wait()
    assert struct.unpack_from("<QQ", kgsl.dispatches[-1].constants) == addresses
    bound.free()
    assert kgsl.live["imports"] == 0
    assert kgsl.live["objects"] == before["objects"] - 3, "instances, code, x"
    y.free()


def test_a_recorded_stream_keeps_its_buffers_until_it_is_bound(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel = device.load(program())
    stream = device.record().dispatch(
        kernel, (device.zeros(8, np.float32), device.zeros(8, np.float32), 1.0), 1, 8
    )
    gc.collect()
    device.synchronize()
    bound = device.bind(stream)
    del stream
    gc.collect()
    device.synchronize()
    bound.submit().wait()
    for address in struct.unpack_from("<QQ", kgsl.dispatches[-1].constants):
        assert kgsl.host(address, 32)


@pytest.mark.parametrize("which", ["buffer", "program"])
def test_a_stream_cannot_be_bound_when_what_it_uses_was_freed(
    kgsl: FakeKgsl, device: rf.Device, which: str
) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2, label="floats")
    stream = device.record("net").dispatch(kernel, (x, y, 1.0), 1, 8)
    before = kgsl.live["objects"]
    (x if which == "buffer" else kernel).free()
    name = "floats" if which == "buffer" else "code of scale"
    with pytest.raises(rf.LaunchError, match=f"'net': '{name}' .*was freed meanwhile"):
        device.bind(stream)
    assert kgsl.live["objects"] == before - 1


def test_a_bound_stream_that_is_freed_in_flight_is_released_after_the_gpu_has_finished(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    before = kgsl.live["objects"]
    bound = device.bind(device.record().dispatch(kernel, (x, y, 1.0), 1, 8))
    kgsl.hold = True
    job = bound.submit()
    bound.free()
    device.zeros(1, np.uint8).free()
    assert kgsl.live["objects"] == before + 1
    kgsl.release()
    job.wait()
    assert job.timings.gpu is not None
    device.synchronize()
    assert kgsl.live["objects"] == before
    with pytest.raises(rf.LaunchError, match="was freed"):
        bound.submit()


def test_a_collected_bound_stream_gives_its_memory_back(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    before = kgsl.live
    for _ in range(20):
        device.bind(device.record().dispatch(kernel, (x, y, 1.0), 1, 8)).submit()
    gc.collect()
    device.synchronize()
    assert kgsl.live == before


def test_time_stamps_of_a_collected_bound_stream_can_still_be_read(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    kgsl.hold = True
    job = device.bind(device.record().dispatch(kernel, (x, y, 1.0), 1, 8)).submit()
    gc.collect()
    kgsl.release()
    device.synchronize()
    job.wait()
    assert job.timings.gpu is not None and job.timings.gpu > 0


@pytest.mark.parametrize("call", ["GPUOBJ_ALLOC", "mmap", "GPUOBJ_INFO"])
def test_a_failed_bind_leaves_nothing_behind(kgsl: FakeKgsl, device: rf.Device, call: str) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    before = kgsl.live
    kgsl.script[call] = [errno.ENOMEM]
    with pytest.raises(rf.PortError, match="ENOMEM"):
        device.bind(device.record().dispatch(kernel, (x, y, 1.0), 1, 8))
    assert kgsl.live == before
    x.free()
    assert kgsl.live["objects"] == before["objects"] - 1, "nothing is pinned"


def test_reading_a_buffer_waits_for_the_bound_stream(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    bound = device.bind(device.record().dispatch(kernel, (y, x, 1.0), 1, 8))
    kgsl.hold = True
    bound.submit()
    with pytest.raises(rf.WaitTimeout):
        y.numpy(timeout=0.01)
    kgsl.release()
    y.numpy(timeout=0.01)


def test_imported_outputs_are_invalidated_once_per_submission(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, x = device.load(program()), device.zeros(64, np.float32)
    out = np.zeros(64, np.float32)
    bound = device.bind(device.record().dispatch(kernel, (device.import_array(out), x, 1.0), 1, 8))
    for count in (1, 2, 3):
        bound.submit().wait()
        assert kgsl.invalidated == [(out.ctypes.data, 256)] * count


def test_commands_longer_than_one_submission_are_refused(
    kgsl: FakeKgsl, device: rf.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ringfence.hardware.adreno import kgsl as facts

    before = kgsl.live
    monkeypatch.setattr(facts, "MAX_IB_DWORDS", 20)
    with pytest.raises(rf.LaunchError, match="split the stream"):
        device.bind(device.record())
    gc.collect()
    device.synchronize()
    assert kgsl.live == before


# ----- parameters ---------------------------------------------------------------------------------


def test_parameters_are_given_at_each_submit(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y, z) = device.load(program()), floats(device, 3)
    stream = device.record()
    for _ in range(3):
        stream.dispatch(kernel, (y, rf.Parameter("input"), rf.Parameter("factor")), 1, 8)
    bound = device.bind(stream, instances=2)
    assert set(bound.parameters) == {"input", "factor"}
    for buffer, factor in ((x, 1.5), (z, -2.0), (x, 1.5), (x, 0.25)):
        kgsl.dispatches.clear()
        bound.submit(input=buffer, factor=factor).wait()
        seen = [struct.unpack_from("<Qf", dispatch.constants, 8) for dispatch in kgsl.dispatches]
        assert seen == [(buffer.gpu_address, factor)] * 3


def test_missing_and_unknown_parameters_are_refused(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    bound = device.bind(device.record("net").dispatch(kernel, (y, rf.Parameter("input"), 1.0), 1, 8))
    for given in ({}, {"input": x, "more": x}, {"inptu": x}):
        with pytest.raises(rf.LaunchError, match=r"'net' takes the parameters \['input'\]"):
            bound.submit(**given)
    assert kgsl.queued == 0


def test_parameters_are_checked_like_arguments(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    stream = device.record().dispatch(kernel, (y, rf.Parameter("x"), rf.Parameter("a")), 1, 8)
    bound = device.bind(stream)
    freed = device.zeros(8, np.float32)
    freed.free()
    bad: list[tuple[Any, Any, str]] = [
        (x, "no", "float32 wanted"),
        (device.zeros(8, np.int32), 1.0, "holds int32"),
        (freed, 1.0, "was freed"),
        (1, 1.0, "a buffer is wanted"),
    ]
    for buffer, value, message in bad:
        with pytest.raises(rf.LaunchError, match=message):
            bound.submit(x=buffer, a=value)
    assert kgsl.queued == 0


@pytest.mark.parametrize("name", ["label", "inputs", "self", "", "a b", "1st"])
def test_a_parameter_has_a_name_that_submit_can_take(name: str) -> None:
    with pytest.raises(rf.LaunchError, match="must be a Python identifier"):
        rf.Parameter(name)


def test_one_parameter_cannot_stand_for_different_types(device: rf.Device) -> None:
    kernel, (_, y) = device.load(program()), floats(device, 2)
    stream = device.record().dispatch(kernel, (y, rf.Parameter("p"), rf.Parameter("p")), 1, 8)
    with pytest.raises(rf.LaunchError, match="'p' already stands for an argument of another type"):
        device.bind(stream)


def test_images_can_be_parameters(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel = device.load(image_program())
    out, left, right, bias = (device.zeros(256, a.dtype) for a in kernel.source.arguments)
    bound = device.bind(device.record().dispatch(kernel, (out, rf.Parameter("frame"), right, bias), 1, 8))
    for frame in (left, device.zeros(256, np.float32)):
        bound.submit(frame=frame).wait()
        textures = kgsl.dispatches[-1].state[StateBlock.CS_TEX, StateType.CONSTANTS]
        assert unpack_texture(textures[64:]).address == frame.gpu_address
    with pytest.raises(rf.LaunchError, match="1024 bytes are needed"):
        bound.submit(frame=device.zeros(4, np.float32))


@pytest.mark.parametrize(
    ("dtype", "value"), [("uint8", 200), ("int16", -3), ("float64", 0.1), ("bool", True)]
)
def test_scalar_parameters_of_every_width(kgsl: FakeKgsl, device: rf.Device, dtype: str, value: Any) -> None:
    kind = np.dtype(dtype)
    argument = Argument(kind="scalar", dtype=dtype, offset=3 * kind.itemsize, size=kind.itemsize)
    kernel = device.load(program(arguments=(argument,)))
    device.bind(device.record().dispatch(kernel, (rf.Parameter("v"),), 1, 8)).submit(v=value).wait()
    assert kgsl.dispatches[-1].constants[: 4 * kind.itemsize] == np.array([0, 0, 0, value], kind).tobytes()


def test_a_parameter_buffer_is_in_use_until_the_submission_is_complete(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    kernel, (x, y) = device.load(program()), floats(device, 2)
    bound = device.bind(device.record().dispatch(kernel, (y, rf.Parameter("x"), 1.0), 1, 8))
    kgsl.hold = True
    bound.submit(x=x)
    before = kgsl.live["objects"]
    x.free()
    assert kgsl.live["objects"] == before
    kgsl.release()
    device.synchronize()
    assert kgsl.live["objects"] == before - 1


# ----- points -------------------------------------------------------------------------------------


def test_a_stream_can_wait_for_a_point_of_another_device(kgsl: FakeKgsl, device: rf.Device) -> None:
    with rf.open("kgsl", port=kgsl) as camera:
        frame = camera.bind(camera.record("frame")).submit()
        job = device.bind(device.record().wait(frame.point)).submit()
        job.wait()
        assert frame.state == "gpu-complete"
        assert kgsl.synced == [], "the point was reached already"


def test_the_kernel_keeps_a_stream_back_until_another_context_has_got_so_far(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    """Polling for it on the GPU could keep the other context from running."""
    with rf.open("kgsl", port=kgsl) as camera:
        bound = camera.bind(camera.record("frame"), instances=2)
        waiting = device.bind(device.record().wait(bound.submit().point.timeline), instances=2)
        kgsl.hold = True
        bound.submit()
        waiting.submit()
        context = max(kgsl.contexts)
        assert kgsl.synced == [(context, 2)]
        waiting.submit()
        assert kgsl.synced == [(context, 2)] * 2
        kgsl.release()
        device.synchronize()


def test_waiting_for_ones_own_earlier_work_needs_no_help_of_the_kernel(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    half = device.timeline("half")
    kgsl.hold = True
    signal, wait = device.bind(device.record().signal(half)), device.bind(device.record().wait(half))
    signal.submit()
    wait.submit()
    assert kgsl.synced == []
    with rf.open("kgsl", port=kgsl) as other:
        other.bind(other.record().wait(half)).submit()
        assert kgsl.synced == [(min(kgsl.contexts), 1)]
        kgsl.release()
        other.synchronize()


def test_a_point_that_was_never_submitted_is_refused_instead_of_hanging_the_gpu(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    timeline = device.timeline("frames")
    bound = device.bind(device.record("net").wait(timeline.point(3)))
    with pytest.raises(
        rf.LaunchError, match=r"'net' would wait for point 3 of timeline 'frames'.*GPU would hang"
    ):
        bound.submit()
    assert kgsl.queued == 0


def test_a_closed_device_is_not_waited_for_unless_its_point_was_reached(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    camera = rf.open("kgsl", port=kgsl)
    done = camera.bind(camera.record()).submit().point
    never = camera.timeline("never")
    never.submitted = 1
    camera.close()
    device.bind(device.record().wait(done)).submit().wait()
    with pytest.raises(rf.LaunchError, match="'never', whose device is closed"):
        device.bind(device.record().wait(never.point(1))).submit()


def test_a_stream_signals_the_next_point_of_a_timeline_at_each_submit(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    half = device.timeline("half")
    producer = device.bind(device.record().signal(half).barrier())
    consumer = device.bind(device.record().wait(half))
    points = [producer.submit().points[half] for _ in range(3)]
    assert [point.value for point in points] == [1, 2, 3]
    consumer.submit().wait()
    assert all(point.reached for point in points)
    assert half.submitted == 3


def test_the_devices_own_timeline_is_signalled_by_itself(device: rf.Device) -> None:
    own = device.bind(device.record()).submit().point.timeline
    with pytest.raises(rf.LaunchError, match="at its end"):
        device.record().signal(own)


def test_a_timeline_is_signalled_once_per_stream(device: rf.Device) -> None:
    half = device.timeline("half")
    with pytest.raises(rf.LaunchError, match="already signals timeline 'half'"):
        device.record().signal(half).signal(half)


def test_a_timeline_of_another_address_space_is_refused(device: rf.Device) -> None:
    with rf.open("kgsl", port=FakeKgsl()) as far, pytest.raises(rf.LaunchError, match="cannot reach"):
        device.record().wait(far.timeline("elsewhere"))


def test_a_refused_submission_signals_nothing(kgsl: FakeKgsl, device: rf.Device) -> None:
    half = device.timeline("half")
    bound = device.bind(device.record().signal(half))
    kgsl.script["GPU_COMMAND"] = [errno.EINVAL]
    with pytest.raises(rf.PortError):
        bound.submit()
    assert half.submitted == 0
    assert bound.submit().points[half].value == 1
