"""Submissions and waits: states, stage times, deadlines, and what the loss of a device means."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from runtime_fakes import FakePort, Slots

from ringfence.errors import DeviceLost, FaultReport, GpuFault, GpuHang, LaunchError, WaitTimeout
from ringfence.runtime.memory import Mapping, Ownership
from ringfence.runtime.queue import SLICE_SECONDS, Queue, State, Submission
from ringfence.runtime.timeline import ClockMap, Timeline

RATE = 1000.0


@dataclass
class FakeEngine:
    """Sleeps through the port's clock; ``retires`` says whether the kernel claims that a value retired."""

    port: FakePort
    retires: Callable[[int], bool] = lambda value: False
    error: DeviceLost | None = None
    sleeps: list[tuple[int, float]] = field(default_factory=list)

    def sleep(self, value: int, seconds: float) -> bool:
        self.sleeps.append((value, seconds))
        if self.error is not None:
            raise self.error
        if self.retires(value):
            return True
        self.port.time += seconds
        return False


@dataclass
class FakeMemory:
    visible: list[tuple[Mapping, int]] = field(default_factory=list)

    def make_visible(self, mapping: Mapping, use: int) -> None:
        self.visible.append((mapping, use))


@dataclass
class Ticks:
    ticks: tuple[int, ...]

    def read_ticks(self) -> tuple[int, ...]:
        return self.ticks


class World:
    def __init__(self) -> None:
        self.port = FakePort()
        self.engine = FakeEngine(self.port)
        self.slots = Slots()
        self.timeline = Timeline(self.slots)
        self.memory = FakeMemory()
        self.queue = Queue(
            self.port,  # type: ignore[arg-type]
            self.engine,
            self.timeline,
            ClockMap(RATE),
            threading.RLock(),
            timeout=30.0,
            label="gpu",
        )

    def submit(self, *uses: Mapping, ticks: tuple[int, ...] = (0, 0), label: str = "job") -> Submission:
        job = Submission(self.queue, self.memory, self.port.time, uses, label)
        self.timeline.submitted += 1
        self.port.time += 0.5
        job.accepted(self.timeline.submitted, self.port.time, Ticks(ticks))
        return job


@pytest.fixture
def world() -> World:
    return World()


# ----- states -------------------------------------------------------------------------------------


def test_a_submission_goes_through_its_states(world: World) -> None:
    job = Submission(world.queue, world.memory, 0.0, ())
    assert job.state is State.ENCODED
    world.timeline.submitted = 1
    job.accepted(1, 1.0, Ticks((0, 0)))
    assert job.state is State.SUBMITTED
    world.slots.write(1)
    assert job.state is State.GPU_COMPLETE
    job.wait()
    assert job.state is State.HOST_VISIBLE
    assert [state.value for state in State] == [
        "encoded",
        "submitted",
        "gpu-complete",
        "host-visible",
        "failed",
    ]


def test_only_waiting_makes_results_visible_to_the_host(world: World) -> None:
    imported = Mapping(0x1000, 64, 0x2000, Ownership.HOST)
    ours = Mapping(0x9000, 64, 0x8000, Ownership.DEVICE)
    job = world.submit(imported, ours)
    world.slots.write(1)
    assert world.memory.visible == []
    job.wait()
    assert world.memory.visible == [(imported, 1)]


def test_what_was_never_submitted_cannot_be_waited_for(world: World) -> None:
    job = Submission(world.queue, world.memory, 0.0, (), "draft")
    with pytest.raises(LaunchError, match="'draft' was not submitted"):
        job.wait()
    with pytest.raises(LaunchError, match="nothing can wait for it"):
        _ = job.point


def test_a_submission_has_a_point_that_others_can_wait_for(world: World) -> None:
    job = world.submit()
    assert (job.point.timeline, job.point.value) == (world.timeline, 1)
    assert not job.point.reached
    world.slots.write(1)
    assert job.point.reached


# ----- waits --------------------------------------------------------------------------------------


def test_a_reached_value_needs_no_sleep(world: World) -> None:
    world.submit()
    world.slots.write(1)
    world.queue.wait(1)
    assert world.engine.sleeps == []


def test_a_wait_sleeps_in_the_kernel_in_slices_until_its_deadline(world: World) -> None:
    world.submit()
    begin = world.port.time
    with pytest.raises(WaitTimeout, match=r"point 1 was not reached within 0.25 s; the GPU is at 0 of 1"):
        world.queue.wait(1, 0.25)
    assert world.port.time == pytest.approx(begin + 0.25)
    assert [seconds for _, seconds in world.engine.sleeps] == pytest.approx(
        [SLICE_SECONDS, SLICE_SECONDS, 0.05]
    )


def test_a_time_out_is_also_a_builtin_timeout_error_and_the_work_may_still_complete(world: World) -> None:
    job = world.submit()
    with pytest.raises(TimeoutError):
        job.wait(timeout=0.01)
    assert job.state is State.SUBMITTED and world.queue.lost is None
    world.slots.write(1)
    job.wait(timeout=0.01)
    assert job.state is State.HOST_VISIBLE


def test_the_value_is_read_once_more_before_a_time_out_is_reported(world: World) -> None:
    world.submit()

    def last_moment(value: int) -> bool:
        world.port.time += 100
        world.slots.write(1)
        return False

    world.engine.retires = last_moment
    world.queue.wait(1, 0.01)


def test_a_lost_interrupt_costs_at_most_a_slice(world: World) -> None:
    """The kernel never says "retired", but memory shows the value."""
    world.submit()
    seen: list[float] = []

    def never(value: int) -> bool:
        seen.append(world.port.time)
        if len(seen) == 2:
            world.slots.write(1)
        return False

    world.engine.retires = never
    world.queue.wait(1, 10.0)
    assert len(seen) == 2


def test_memory_is_polled_with_growing_naps_if_the_kernel_is_ahead_of_it(world: World) -> None:
    world.submit()
    world.engine.retires = lambda value: True
    with pytest.raises(WaitTimeout):
        world.queue.wait(1, 0.02)
    naps = world.port.naps
    assert naps[0] < naps[5] and max(naps) <= 1e-3
    assert sum(naps) == pytest.approx(0.02)


def test_a_wait_that_wakes_too_early_goes_on(world: World) -> None:
    world.submit()
    world.engine.retires = lambda value: True

    def nap(seconds: float) -> None:
        world.port.time += seconds
        if world.port.time > 10.52:
            world.slots.write(1)

    world.port.sleep = nap  # type: ignore[method-assign]
    world.queue.wait(1, 1.0)
    assert world.timeline.reached(1)


def test_no_deadline_means_the_default_one(world: World) -> None:
    world.submit()
    begin = world.port.time
    with pytest.raises(WaitTimeout, match="within 30 s"):
        world.queue.wait(1)
    assert world.port.time == pytest.approx(begin + 30.0)


def test_draining_waits_for_the_last_submission(world: World) -> None:
    world.submit()
    world.submit()
    world.engine.retires = lambda value: bool(world.slots.write(value)) or True
    world.queue.drain()
    assert [value for value, _ in world.engine.sleeps] == [2]


# ----- loss ---------------------------------------------------------------------------------------


def lose(world: World, error: DeviceLost) -> None:
    world.engine.error = error


def test_a_lost_device_is_reported_with_its_report(world: World) -> None:
    job = world.submit()
    lose(world, GpuFault("gpu stopped", FaultReport("memory", "write to 0x10", program="conv", pc=7)))
    with pytest.raises(GpuFault, match=r"memory: write to 0x10.*program 'conv'.*pc 7") as caught:
        job.wait()
    assert caught.value.report is not None and caught.value.report.pc == 7
    assert job.state is State.FAILED


def test_loss_is_sticky(world: World) -> None:
    first = world.submit()
    lose(world, GpuHang("gpu hung"))
    with pytest.raises(GpuHang):
        first.wait()
    world.engine.error = None
    for again in (first.wait, world.queue.check, lambda: world.queue.wait(1), world.queue.drain):
        with pytest.raises(GpuHang, match="gpu is lost: gpu hung"):
            again()


def test_the_report_is_in_every_later_error(world: World) -> None:
    report = FaultReport("hang", "no progress")
    world.queue.fail(GpuHang("gpu hung", report))
    with pytest.raises(GpuHang) as caught:
        world.queue.check()
    assert caught.value.report is report
    assert str(caught.value).count("no progress") == 1


def test_only_the_first_loss_counts(world: World) -> None:
    world.queue.fail(GpuHang("first"))
    world.queue.fail(GpuFault("second"))
    with pytest.raises(GpuHang, match="first"):
        world.queue.check()


def test_what_was_complete_before_the_loss_stays_complete(world: World) -> None:
    done, lost = world.submit(), world.submit()
    world.slots.write(1)
    world.queue.fail(GpuHang("gpu hung"))
    world.slots.write(2)  # whatever the memory says later
    done.wait()
    assert done.state is State.HOST_VISIBLE
    assert lost.state is State.FAILED


def test_a_value_reached_by_a_context_that_died_since_is_reached(world: World) -> None:
    job = world.submit()

    def die(value: int, seconds: float) -> bool:
        world.slots.write(1)
        raise GpuFault("a later submission faulted")

    world.engine.sleep = die  # type: ignore[method-assign]
    job.wait()
    assert job.state is State.HOST_VISIBLE
    with pytest.raises(GpuFault):
        world.queue.check()


def test_memory_of_a_lost_device_counts_as_unused(world: World) -> None:
    world.submit()
    assert not world.queue.finished(1)
    world.queue.fail(DeviceLost("gone"))
    assert world.queue.finished(1)


def test_an_unsubmitted_submission_of_a_lost_device_has_failed(world: World) -> None:
    job = Submission(world.queue, world.memory, 0.0, ())
    world.queue.fail(GpuHang("gpu hung"))
    assert job.state is State.FAILED
    with pytest.raises(GpuHang):
        job.wait()


# ----- stage times --------------------------------------------------------------------------------


def test_stage_times_are_known_one_after_the_other(world: World) -> None:
    job = world.submit(ticks=(1000, 1250))
    assert job.timings.host_encode == pytest.approx(0.5)
    assert job.timings.queue is job.timings.gpu is job.timings.host_visible is None
    world.slots.write(1)
    world.port.time += 1.0
    job.wait()
    stages = job.timings
    assert stages.gpu == pytest.approx(0.25)
    assert stages.queue == pytest.approx(
        0.375
    )  # the clocks may differ by 0.75 s; half of it is the best guess
    assert stages.host_visible == pytest.approx(0.0)
    assert stages.total == pytest.approx(0.5 + 0.375 + 0.25)


def test_stack_growth_is_a_stage_of_its_own(world: World) -> None:
    job = world.submit()
    job.stack_growth = 0.2
    assert job.timings.host_encode == pytest.approx(0.3)
    assert job.timings.stack_growth == pytest.approx(0.2)


def test_time_stamps_are_taken_over_before_their_memory_is_used_again(world: World) -> None:
    source = Ticks((100, 200, 150))
    job = Submission(world.queue, world.memory, 0.0, ())
    job.accepted(1, 0.0, source)
    world.slots.write(1)
    job.settle(1.0)
    source.ticks = (0, 0, 0)
    assert job.timings.gpu == pytest.approx(0.1)
    assert job.timestamps == pytest.approx((0.05,))


def test_a_counter_that_was_reset_gives_no_gpu_time_rather_than_a_wrong_one(world: World) -> None:
    job = world.submit(ticks=(5000, 3))
    world.slots.write(1)
    job.wait()
    assert job.timings.gpu is None and job.timings.queue is None


def test_time_stamps_are_empty_until_the_work_is_complete(world: World) -> None:
    job = world.submit(ticks=(0, 0, 5))
    assert job.timestamps == ()
    world.slots.write(1)
    job.wait()
    assert job.timestamps == pytest.approx((0.005,))


def test_the_text_of_a_submission_tells_its_state(world: World) -> None:
    assert repr(world.submit(label="frame 3")) == "<Submission 'frame 3' submitted, point 1 of gpu>"
