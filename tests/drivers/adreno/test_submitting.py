"""Submission and waiting: deadlines, recovered faults, lost contexts, the timeline's move."""

from __future__ import annotations

import errno
from typing import Any

import numpy as np
import pytest
from fake_kgsl import FakeKgsl
from programs import program

import ringfence as rf
from ringfence.drivers.adreno.device import AdrenoDevice
from ringfence.hardware.adreno import kgsl as facts


def submit(device: rf.Device, **options: Any) -> rf.Submission:
    x = device.zeros(8, np.float32)
    return device.launch(device.load(program()), x, x, 1.0, groups=1, local=8, **options)


def waits(kgsl: FakeKgsl) -> list[facts.DEVICE_WAITTIMESTAMP_CTXTID]:
    return kgsl.sent(facts.DEVICE_WAITTIMESTAMP_CTXTID)  # type: ignore[return-value]


# ----- submission ---------------------------------------------------------------------------------


def test_a_submission_is_one_indirect_buffer_of_this_context(kgsl: FakeKgsl, device: rf.Device) -> None:
    submit(device).wait()
    (request,) = kgsl.sent(facts.GPU_COMMAND)
    assert (request.numcmds, request.numobjs, request.numsyncs, request.flags) == (1, 0, 0, 0)
    assert request.context_id in kgsl.contexts


def test_stores_are_fenced_before_the_kernel_is_called(kgsl: FakeKgsl, device: rf.Device) -> None:
    submit(device)
    assert kgsl.calls[kgsl.calls.index("GPU_COMMAND") - 1] == "fence"


def test_submissions_complete_in_order_on_one_timeline(kgsl: FakeKgsl, device: rf.Device) -> None:
    kgsl.hold = True
    jobs = [submit(device, label=f"job {n}") for n in range(5)]
    assert [job.point.value for job in jobs] == [1, 2, 3, 4, 5]
    assert {job.state for job in jobs} == {rf.State.SUBMITTED}
    kgsl.release()
    jobs[4].wait()
    assert [job.state for job in jobs] == ["gpu-complete"] * 4 + ["host-visible"]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ETIMEDOUT, errno.ENOMEM])
def test_a_refused_submission_is_a_port_error_and_uses_no_point_up(
    kgsl: FakeKgsl, device: rf.Device, code: int
) -> None:
    submit(device)
    kgsl.script["GPU_COMMAND"] = [code]
    with pytest.raises(rf.PortError, match=f"GPU_COMMAND.*{errno.errorcode[code]}"):
        submit(device)
    assert submit(device).point.value == 2
    assert device.lost is None


# ----- recovered faults ---------------------------------------------------------------------------


def test_eproto_means_queued_so_nothing_is_submitted_again(kgsl: FakeKgsl, device: rf.Device) -> None:
    kgsl.script["GPU_COMMAND"] = [errno.EPROTO]
    job = submit(device)
    assert job.recovered_fault and device.recovered_faults == 1
    assert kgsl.queued == 1
    job.wait()
    assert job.state is rf.State.HOST_VISIBLE


def test_the_timestamp_that_eproto_hides_is_read(kgsl: FakeKgsl, device: rf.Device) -> None:
    submit(device)
    kgsl.hold = True
    kgsl.script["GPU_COMMAND"] = [errno.EPROTO]
    job = submit(device)
    (read,) = kgsl.sent(facts.CMDSTREAM_READTIMESTAMP_CTXTID)
    assert read.type == facts.TimestampType.QUEUED
    with pytest.raises(rf.WaitTimeout):
        job.wait(timeout=0.05)
    assert waits(kgsl)[-1].timestamp == 2


def test_an_unreadable_timestamp_does_not_turn_queued_work_into_an_error(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    submit(device)
    kgsl.hold = True
    kgsl.script = {"GPU_COMMAND": [errno.EPROTO], "CMDSTREAM_READTIMESTAMP_CTXTID": [errno.EINVAL]}
    job, later = submit(device), submit(device)
    with pytest.raises(rf.WaitTimeout):
        job.wait(timeout=0.05)
    assert waits(kgsl)[-1].timestamp == 2
    assert (job.point.value, later.point.value) == (2, 3)


def test_a_recovered_fault_that_a_wait_reports_is_counted(kgsl: FakeKgsl, device: rf.Device) -> None:
    kgsl.hold = True
    job = submit(device)
    kgsl.hold = False
    kgsl.script["DEVICE_WAITTIMESTAMP_CTXTID"] = [errno.EPROTO]

    def run(argument: facts.DEVICE_WAITTIMESTAMP_CTXTID) -> None:
        kgsl.release()

    kgsl._device_waittimestamp_ctxtid = run  # type: ignore[method-assign]
    job.wait()
    assert device.recovered_faults == 1 and device.lost is None


# ----- waiting ------------------------------------------------------------------------------------


def test_a_wait_sleeps_on_the_timestamp_of_its_own_submission(kgsl: FakeKgsl, device: rf.Device) -> None:
    kgsl.hold = True
    jobs = [submit(device) for _ in range(3)]
    for job, timestamp in ((jobs[1], 2), (jobs[0], 1), (jobs[2], 3)):
        with pytest.raises(rf.WaitTimeout):
            job.wait(timeout=0.01)
        assert waits(kgsl)[-1].timestamp == timestamp


@pytest.mark.parametrize("timeout", [2e-5, 0.0004, 0.0011, 0.35])
def test_a_deadline_is_never_rounded_to_zero_milliseconds(
    kgsl: FakeKgsl, device: rf.Device, timeout: float
) -> None:
    kgsl.hold = True
    job = submit(device)
    with pytest.raises(rf.WaitTimeout):
        job.wait(timeout=timeout)
    assert waits(kgsl)
    assert all(1 <= wait.timeout <= 100 for wait in waits(kgsl))


def test_a_deadline_of_zero_only_looks(kgsl: FakeKgsl, device: rf.Device) -> None:
    kgsl.hold = True
    job = submit(device)
    with pytest.raises(rf.WaitTimeout, match="within 0 s"):
        job.wait(timeout=0)
    assert waits(kgsl) == []
    kgsl.release()
    job.wait(timeout=0)


def test_the_default_deadline_is_the_devices(kgsl: FakeKgsl, device: rf.Device) -> None:
    kgsl.hold = True
    submit(device)
    begin = kgsl.clock
    with pytest.raises(rf.WaitTimeout, match="within 5 s"):
        device.synchronize()
    assert kgsl.clock - begin == pytest.approx(5, abs=0.2)


def test_memory_is_polled_if_the_kernel_says_retired_before_the_signal_is_seen(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    kgsl.lost_signal = True
    job = submit(device)
    with pytest.raises(rf.WaitTimeout, match="the GPU is at 0 of 1"):
        job.wait(timeout=0.05)
    assert 0 < sum(kgsl.sleeps) <= 0.05
    kgsl.lost_signal = False
    submit(device)
    job.wait(timeout=0.05)


def test_stage_times_come_from_the_gpus_clock(kgsl: FakeKgsl, device: rf.Device) -> None:
    kgsl.shader = lambda dispatch, gpu: setattr(gpu, "clock", gpu.clock + 0.125)
    job = submit(device)
    job.wait()
    assert job.timings.gpu == pytest.approx(0.125, abs=1e-4)
    assert job.timings.queue is not None and 0 <= job.timings.queue < 1e-3
    assert job.timings.host_visible is not None and 0 <= job.timings.host_visible < 1e-3


def test_time_stamps_survive_the_reuse_of_their_memory(kgsl: FakeKgsl, device: rf.Device) -> None:
    x = device.zeros(8, np.float32)
    kernel = device.load(program())
    durations = [0.01 * n for n in range(1, 100)]
    jobs = []
    for seconds in durations:
        kgsl.shader = lambda dispatch, gpu, seconds=seconds: setattr(gpu, "clock", gpu.clock + seconds)
        jobs.append(device.launch(kernel, x, x, 1.0, groups=1, local=8))
    device.synchronize()
    settled = [job.timings.gpu for job in jobs if job.timings.gpu is not None]
    assert settled == pytest.approx(durations[: len(settled)], abs=1e-4)
    assert len(settled) >= 35, "at most 64 launches are prepared"
    jobs[-1].wait()
    assert jobs[-1].timings.gpu == pytest.approx(durations[-1], abs=1e-4)


# ----- lost contexts ------------------------------------------------------------------------------


def lose(kgsl: FakeKgsl, report: rf.FaultReport | None) -> None:
    kgsl.report = report
    kgsl.dead |= kgsl.contexts.keys()


FAULT = rf.FaultReport(
    "memory",
    "write",
    program="conv",
    pc=12,
    instruction="stg.f32",
    address=0x123000,
    nearest="'x' ends 4096 bytes below",
)


def test_a_fault_is_told_with_everything_the_port_can_explain(kgsl: FakeKgsl, device: rf.Device) -> None:
    kgsl.hold = True
    job = submit(device)
    lose(kgsl, FAULT)
    with pytest.raises(rf.GpuFault, match=r"'conv'.*pc 12 `stg.f32`.*0x123000.*'x' ends 4096") as caught:
        job.wait()
    report = caught.value.report
    assert report is not None and (report.launch, report.program) == ("scale", "conv")
    assert (report.pc, report.instruction, report.address) == (12, "stg.f32", 0x123000)
    assert isinstance(caught.value, rf.DeviceLost)
    assert job.state is rf.State.FAILED


def test_a_hang_is_a_gpu_hang(kgsl: FakeKgsl, device: rf.Device) -> None:
    kgsl.hold = True
    job = submit(device)
    lose(kgsl, rf.FaultReport("hang", "no progress at WAIT_REG_MEM", packet="WAIT_REG_MEM"))
    with pytest.raises(rf.GpuHang, match="WAIT_REG_MEM"):
        job.wait()


def test_a_submission_to_a_lost_context_reports_the_loss(kgsl: FakeKgsl, device: rf.Device) -> None:
    submit(device)
    lose(kgsl, FAULT)
    with pytest.raises(rf.GpuFault):
        submit(device)
    assert isinstance(device.lost, rf.GpuFault)


def test_a_loss_that_nobody_explains_is_reported_with_the_kernels_reset_status(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    kgsl.hold = True
    job = submit(device)
    lose(kgsl, None)
    with pytest.raises(rf.DeviceLost, match="GPU_RESET_STAT GUILTY_CONTEXT_RESET_EXT") as caught:
        job.wait()
    report = caught.value.report
    assert type(caught.value) is rf.DeviceLost and report is not None
    assert (report.kind, report.launch, report.program) == ("unknown", "scale", "scale")


@pytest.mark.parametrize("call", ["GPU_COMMAND", "DEVICE_WAITTIMESTAMP_CTXTID"])
def test_a_context_that_was_destroyed_is_lost(kgsl: FakeKgsl, device: rf.Device, call: str) -> None:
    kgsl.hold = True
    job = submit(device)
    kgsl.script[call] = [errno.ENOENT]
    with pytest.raises(rf.DeviceLost, match="was destroyed"):
        job.wait() if call != "GPU_COMMAND" else submit(device)


def test_a_lost_device_stays_lost_and_makes_no_more_submissions(kgsl: FakeKgsl, device: rf.Device) -> None:
    x = device.zeros(8, np.float32)
    kernel = device.load(program())
    bound = device.bind(device.record().dispatch(kernel, (x, x, 1.0), 1, 8))
    device.launch(kernel, x, x, 1.0, groups=1, local=8)
    lose(kgsl, FAULT)
    with pytest.raises(rf.GpuFault):
        bound.submit()
    kgsl.dead.clear()
    before = kgsl.count
    uses = (
        lambda: device.launch(kernel, x, x, 1.0, groups=1, local=8),
        bound.submit,
        device.synchronize,
        lambda: device.bind(device.record()),
        lambda: device.copy(x, np.zeros(8, np.float32)),
    )
    for use in uses:
        with pytest.raises(rf.GpuFault, match="is lost"):
            use()
    assert kgsl.count == before


def test_memory_of_a_lost_device_can_be_read_and_freed(kgsl: FakeKgsl, device: rf.Device) -> None:
    x, other = device.array(np.arange(8, dtype=np.float32)), device.zeros(8, np.float32)
    kernel = device.load(program())
    kgsl.hold = True
    device.launch(kernel, other, other, 1.0, groups=1, local=8)
    lose(kgsl, FAULT)
    with pytest.raises(rf.GpuFault):
        device.synchronize()
    assert x.numpy().tolist() == list(range(8)), "no lost work names it"
    with pytest.raises(rf.GpuFault):
        other.numpy()
    before = kgsl.live["objects"]
    other.free()
    assert kgsl.live["objects"] == before - 1


def test_another_device_goes_on(kgsl: FakeKgsl, device: rf.Device) -> None:
    with rf.open("kgsl", port=kgsl, label="second") as second:
        kgsl.hold = True
        job = submit(device)
        kgsl.dead.add(min(kgsl.contexts))
        with pytest.raises(rf.DeviceLost):
            job.wait()
        kgsl.release()
        submit(second).wait()
        assert second.lost is None


def test_a_lost_device_closes_without_waiting(kgsl: FakeKgsl) -> None:
    device = rf.open("kgsl", port=kgsl)
    kgsl.hold = True
    job = submit(device)
    lose(kgsl, FAULT)
    with pytest.raises(rf.GpuFault):
        job.wait()
    begin = kgsl.clock
    device.close()
    assert kgsl.clock - begin < 0.01
    assert not any(kgsl.live.values())


# ----- the timeline's move ------------------------------------------------------------------------


def test_the_timeline_moves_to_a_fresh_slot_after_draining(kgsl: FakeKgsl) -> None:
    driver = AdrenoDevice(kgsl, timeline_limit=8)
    device = rf.Device(driver, "kgsl")
    x = device.zeros(8, np.float32)
    kernel = device.load(program())
    bound = device.bind(device.record().dispatch(kernel, (x, x, 2.0), 1, 8), instances=3)
    jobs = []
    for turn in range(100):
        jobs.append(bound.submit() if turn % 3 else device.launch(kernel, x, x, 1.0, groups=1, local=8))
    assert driver.queue.timeline.moves == 14
    assert [job.value for job in jobs] == list(range(1, 101))
    assert {job.state for job in jobs} == {rf.State.GPU_COMPLETE}
    for job in jobs:
        job.wait(timeout=0)
    assert x.numpy().shape == (8,)
    device.close()
    assert not any(kgsl.live.values())


def test_the_move_waits_with_the_default_deadline(kgsl: FakeKgsl) -> None:
    driver = AdrenoDevice(kgsl, timeline_limit=3, timeout=2.0)
    device = rf.Device(driver, "kgsl")
    kgsl.hold = True
    submit(device)
    submit(device)
    with pytest.raises(rf.WaitTimeout, match="within 2 s"):
        submit(device)
    assert driver.queue.timeline.moves == 0
    kgsl.release()
    submit(device).wait()
    assert driver.queue.timeline.moves == 1
    device.close()


def test_a_full_page_of_slots_is_followed_by_another(kgsl: FakeKgsl) -> None:
    driver = AdrenoDevice(kgsl, timeline_limit=2)
    device = rf.Device(driver, "kgsl")
    x, kernel = device.zeros(8, np.float32), device.load(program())
    for _ in range(130):
        device.launch(kernel, x, x, 1.0, groups=1, local=8)
    assert driver.queue.timeline.moves == 129
    device.synchronize()
    device.close()
    assert not any(kgsl.live.values())
