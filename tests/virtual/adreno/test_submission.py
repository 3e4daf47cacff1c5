"""Submitting and waiting.

GPU_COMMAND, queues, timestamps, sync points, fences, frees that wait, and lost contexts.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import threading
import time

import pytest

from ringfence.errors import FaultReport, RingfenceError
from ringfence.hardware.adreno import kgsl
from ringfence.hardware.adreno.packets import Opcode
from ringfence.virtual.faults import EarlyWake, Hang, LostCompletion, PageFault
from ringfence.virtual.machine import Machine
from virtual.adreno.client import (
    CONTEXT,
    PAGE,
    TOLERANT,
    Buffer,
    Client,
    FakeExecutor,
    dispatch,
    event,
    halves,
    mem_write,
    op,
    refused,
    wait_mem,
)

SUPPLIED = 0x80  # USER_GENERATED_TS


def address_of(thing) -> int:
    return ctypes.addressof(thing)


@pytest.fixture
def data(client: Client) -> Buffer:
    return client.buffer()


# ----- submission is not completion ---------------------------------------------------------------


def test_nothing_has_run_when_the_submission_returns(client: Client, data: Buffer, machine: Machine):
    timestamp = client.submit(mem_write(data.gpu, 1))
    assert timestamp == 1 and data.u32() == 0
    client.wait(timestamp)
    assert data.u32() == 1 and client.retired() == 1


def test_asking_for_the_timestamp_again_and_again_makes_progress(client: Client, data: Buffer):
    client.submit(mem_write(data.gpu, 1))
    assert any(client.retired() == 1 for _ in range(10))


def test_reading_the_clock_again_and_again_makes_progress(client: Client, data: Buffer, machine: Machine):
    client.submit(wait_mem(data.gpu, 1) + mem_write(data.gpu + 4, 1))
    data.words([1])
    for _ in range(1000):
        machine.now()
    assert data.u32(4) == 1


def test_explicit_steps(client: Client, data: Buffer, machine: Machine):
    client.submit(mem_write(data.gpu, 1))
    assert machine.step()
    while machine.step():
        pass
    assert data.u32() == 1 and not machine.step()


def test_timestamps_count_up_per_context(client: Client, data: Buffer):
    other = client.create_context()
    assert [client.submit(mem_write(data.gpu, 1)) for _ in range(3)] == [1, 2, 3]
    assert client.submit(mem_write(data.gpu, 1), context=other) == 1
    client.wait(3)
    assert client.call(kgsl.CMDSTREAM_READTIMESTAMP_CTXTID(context_id=client.context, type=3)).timestamp == 3
    assert client.call(kgsl.CMDSTREAM_READTIMESTAMP_CTXTID(context_id=client.context, type=1)).timestamp == 3


def test_the_buffers_of_a_submission_run_in_order(client: Client, data: Buffer):
    ring = client.buffer()
    ring.words(mem_write(data.gpu, 1) + mem_write(data.gpu, 2))
    client.wait(client.call(client.command((ring.gpu + 16, 16), (ring.gpu, 16))).timestamp)
    assert data.u32() == 1


def test_markers_take_a_timestamp_and_run_nothing(client: Client, data: Buffer):
    ring = client.buffer()
    ring.words(mem_write(data.gpu, 1))
    assert client.call(kgsl.GPU_COMMAND(context_id=client.context)).timestamp == 1
    assert client.call(client.command((ring.gpu, 16), flags=2)).timestamp == 2
    client.wait(2)
    assert data.u32() == 0


def test_a_context_made_to_skip_submissions_skips_them(client: Client, data: Buffer):
    skipping = client.create_context(CONTEXT | 0x10000)
    client.wait(client.submit(mem_write(data.gpu, 1), context=skipping), context=skipping)
    assert data.u32() == 0


# ----- argument checks ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"numcmds": 2001}, errno.EINVAL),
        ({"numobjs": 2001}, errno.EINVAL),
        ({"numsyncs": 33}, errno.EINVAL),
        ({"context_id": 99}, errno.EINVAL),
        ({"cmdlist": 0}, errno.EINVAL),
        ({"cmdsize": 0}, errno.EINVAL),
        ({"cmdlist": 0x1000}, errno.EFAULT),
        ({"objlist": 8}, errno.EINVAL),
        ({"numsyncs": 1}, errno.EINVAL),
        ({"numsyncs": 1, "synclist": 0x1000, "syncsize": 24}, errno.EFAULT),
    ],
)
def test_submission_errors(client: Client, data: Buffer, fields, code):
    with refused(code):
        client.call(client.command((data.gpu, 16), **fields))
    assert client.call(kgsl.GPU_COMMAND(context_id=client.context)).timestamp == 1


@pytest.mark.parametrize(
    ("offset", "size", "flags", "code"),
    [
        (0, 0, 1, errno.EINVAL),
        (0, 3, 1, errno.EINVAL),
        (0, 0x100000 * 4, 1, errno.EINVAL),
        (2, 16, 1, errno.EINVAL),
        (-0x10_0000_0000, 16, 1, errno.EINVAL),
        (0, 16, 0, errno.EINVAL),
        (0, 16, 8, errno.EINVAL),
        (0, 16, 4, 0),
    ],
)
def test_command_object_checks(client: Client, data: Buffer, offset, size, flags, code):
    entry = kgsl.COMMAND_OBJECT(gpuaddr=data.gpu + offset, size=size, flags=flags)
    argument = kgsl.GPU_COMMAND(cmdlist=address_of(entry), cmdsize=32, numcmds=1, context_id=client.context)
    if code:
        with refused(code):
            client.call(argument)
    else:
        assert client.call(argument).timestamp == 1


def test_list_elements_may_be_larger_if_the_rest_is_zero(client: Client, data: Buffer):
    data.words(op(Opcode.NOP))
    entry = (ctypes.c_uint64 * 5)(0, data.gpu, 4, 1, 0)
    argument = kgsl.GPU_COMMAND(cmdlist=address_of(entry), cmdsize=40, numcmds=1, context_id=client.context)
    client.wait(client.call(argument).timestamp)
    entry[4] = 1
    with refused(errno.EFAULT):
        client.call(argument)


def test_object_lists(client: Client, data: Buffer):
    entry = kgsl.COMMAND_OBJECT(gpuaddr=data.gpu, size=PAGE, flags=8)
    data.words(op(Opcode.NOP))
    argument = client.command((data.gpu, 4), objlist=address_of(entry), objsize=32, numobjs=1)
    client.call(argument)
    for flags, code in ((0, errno.EINVAL), (0x10, errno.EOPNOTSUPP)):
        entry.flags = flags
        with refused(code):
            client.call(argument)


def test_supplied_timestamps_must_grow(client: Client, data: Buffer):
    context = client.create_context(CONTEXT | SUPPLIED)
    client.call(kgsl.GPU_COMMAND(context_id=context, timestamp=10))
    for stale in (10, 9, 10 - 0x7FFFFFFF & 0xFFFFFFFF):
        with refused(errno.ERANGE):
            client.call(kgsl.GPU_COMMAND(context_id=context, timestamp=stale))
    client.call(kgsl.GPU_COMMAND(context_id=context, timestamp=10 + 0x7FFFFFFF))
    client.wait(10 + 0x7FFFFFFF, context=context)


# ----- waiting ------------------------------------------------------------------------------------


def test_wait_times_out_in_virtual_time(client: Client, data: Buffer, machine: Machine):
    timestamp = client.submit(wait_mem(data.gpu, 1))
    before = machine.now()
    with refused(errno.ETIMEDOUT):
        client.wait(timestamp, 1500)
    assert machine.now() - before == pytest.approx(1.5, abs=0.01)


def test_a_wait_of_30_seconds_on_the_hybrid_clock_takes_milliseconds(executor: FakeExecutor):
    with Machine(executor_factory=lambda: executor, hang_timeout=100.0) as machine:
        client = Client(machine)
        data = client.buffer()
        timestamp = client.submit(wait_mem(data.gpu, 1))
        before = machine.now()
        with refused(errno.ETIMEDOUT):
            client.wait(timestamp, 30_000)
        assert machine.now() - before >= 30.0


@pytest.mark.parametrize("timeout", [0, 0x80000000, 0xFFFFFFFF])
def test_time_out_0_and_beyond_int_max_mean_for_ever(client: Client, data: Buffer, timeout: int):
    timestamp = client.submit(wait_mem(data.gpu, 1))
    with refused(errno.EDEADLK):  # it waits until the hang detector ends the context
        client.wait(timestamp, timeout)


def test_a_wait_that_nothing_can_end_is_reported_instead_of_hanging(client: Client, machine: Machine):
    machine.faults.add(LostCompletion())
    timestamp = client.submit(op(Opcode.NOP))
    with pytest.raises(RingfenceError, match="waits for ever"):
        client.wait(timestamp)


def test_waiting_for_what_was_not_queued_is_an_error(client: Client):
    client.wait(0)
    with refused(errno.EINVAL):
        client.wait(1)
    with refused(errno.EINVAL):
        client.call(kgsl.CMDSTREAM_READTIMESTAMP_CTXTID(context_id=client.context, type=4))
    supplied = client.create_context(CONTEXT | SUPPLIED)
    with refused(errno.ETIMEDOUT):
        client.wait(5, 10, context=supplied)


def test_timestamps_compare_modulo_2_to_the_32(client: Client):
    context = client.create_context(CONTEXT | SUPPLIED)
    for timestamp in (0x7FFFFFFF, 0xFFFFFFF0, 5):
        client.call(kgsl.GPU_COMMAND(context_id=context, timestamp=timestamp))
    client.wait(5, context=context)
    client.wait(0xFFFFFFF0, context=context)
    assert client.retired(context) == 5


# ----- queue --------------------------------------------------------------------------------------


def test_the_queue_holds_50_batches_and_then_waits_10_seconds(executor: FakeExecutor):
    with Machine(clock="virtual", executor_factory=lambda: executor, hang_timeout=60.0) as machine:
        client = Client(machine)
        data = client.buffer()
        client.submit(wait_mem(data.gpu, 1))
        machine.sleep(0.1)
        for _ in range(50):
            client.call(kgsl.GPU_COMMAND(context_id=client.context))
        before = machine.now()
        with refused(errno.ETIMEDOUT):
            client.call(kgsl.GPU_COMMAND(context_id=client.context))
        assert machine.now() - before == pytest.approx(10.0, abs=0.01)
        data.words([1])
        assert client.call(kgsl.GPU_COMMAND(context_id=client.context)).timestamp == 52


def test_one_ring_runs_one_submission_at_a_time(client: Client, data: Buffer):
    other = client.create_context()
    blocked = client.submit(wait_mem(data.gpu, 1))
    client.machine.sleep(0.1)
    behind = client.submit(mem_write(data.gpu, 1), context=other)
    with refused(errno.EDEADLK):
        client.wait(blocked)
    client.wait(behind, context=other)


# ----- sync points --------------------------------------------------------------------------------


def synced(client: Client, *points: kgsl.COMMAND_SYNCPOINT, buffers=(), **fields) -> kgsl.GPU_COMMAND:
    entries = (kgsl.COMMAND_SYNCPOINT * len(points))(*points)
    argument = client.command(
        *buffers, synclist=address_of(entries), syncsize=24, numsyncs=len(points), **fields
    )
    argument.keep_points = entries, points
    return argument


def timestamp_point(context: int, timestamp: int) -> kgsl.COMMAND_SYNCPOINT:
    where = kgsl.CMD_SYNCPOINT_TIMESTAMP(context_id=context, timestamp=timestamp)
    point = kgsl.COMMAND_SYNCPOINT(priv=address_of(where), size=8, type=0)
    point.keep = where
    return point


def test_a_sync_point_holds_a_queue_until_another_contexts_timestamp(
    client: Client, data: Buffer, machine: Machine
):
    other = client.create_context()
    ring = client.buffer()
    ring.words(mem_write(data.gpu, 1))
    argument = synced(client, timestamp_point(other, 1), buffers=[(ring.gpu, 16)])
    timestamp = client.call(argument).timestamp  # the point lies in the other context's future
    assert timestamp == 1
    machine.sleep(0.1)
    assert data.u32() == 0
    client.call(kgsl.GPU_COMMAND(context_id=other))
    client.wait(timestamp)
    assert data.u32() == 1


def test_only_sync_points_give_timestamp_0(client: Client):
    client.call(kgsl.GPU_COMMAND(context_id=client.context))
    argument = synced(client, timestamp_point(client.context, 1), timestamp=77)
    assert client.call(argument).timestamp == 0
    client.wait(client.call(kgsl.GPU_COMMAND(context_id=client.context)).timestamp)


def bad_points(client: Client) -> dict[str, tuple[kgsl.COMMAND_SYNCPOINT, int]]:
    own_future = timestamp_point(client.context, 5)
    size = timestamp_point(client.context, 0)
    size.size = 4
    pointer = timestamp_point(client.context, 0)
    pointer.priv = 0x1000
    not_a_fence = kgsl.CMD_SYNCPOINT_FENCE(fd=0)
    fence = kgsl.COMMAND_SYNCPOINT(priv=address_of(not_a_fence), size=4, type=1)
    fence.keep = not_a_fence
    return {
        "own future": (own_future, errno.EINVAL),
        "unknown context": (timestamp_point(99, 0), errno.EINVAL),
        "size": (size, errno.EINVAL),
        "pointer": (pointer, errno.EFAULT),
        "fence": (fence, errno.EINVAL),
        "timeline": (kgsl.COMMAND_SYNCPOINT(type=2), errno.EINVAL),
        "type": (kgsl.COMMAND_SYNCPOINT(type=3), errno.EINVAL),
    }


@pytest.mark.parametrize(
    "name", ["own future", "unknown context", "size", "pointer", "fence", "timeline", "type"]
)
def test_sync_point_errors(client: Client, name: str):
    point, code = bad_points(client)[name]
    with refused(code):
        client.call(synced(client, point))


def test_sync_points_of_a_destroyed_context_pass(client: Client):
    other = client.create_context()
    client.call(synced(client, timestamp_point(other, 5)))
    timestamp = client.call(kgsl.GPU_COMMAND(context_id=client.context)).timestamp
    client.call(kgsl.DRAWCTXT_DESTROY(drawctxt_id=other))
    client.wait(timestamp)


# ----- fences -------------------------------------------------------------------------------------


def fence(client: Client, timestamp: int, /, **changes) -> int:
    out = ctypes.c_int(-1)
    fields = {
        "type": 2,
        "timestamp": timestamp,
        "context_id": client.context,
        "priv": address_of(out),
        "len": 4,
    }
    client.call(kgsl.TIMESTAMP_EVENT(**{**fields, **changes}))
    return out.value


def readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def test_a_fence_becomes_readable_when_its_timestamp_retires(client: Client, data: Buffer):
    timestamp = client.submit(mem_write(data.gpu, 1))
    descriptor = fence(client, timestamp)
    assert not readable(descriptor)
    client.wait(timestamp)
    assert readable(descriptor)
    late = fence(client, timestamp)
    assert readable(late)
    os.close(descriptor)
    os.close(late)


def test_a_fence_is_a_sync_point(client: Client, data: Buffer, machine: Machine):
    other = client.create_context(0x04001A12)
    descriptor = fence(client, client.submit(wait_mem(data.gpu, 1)))
    duplicate = os.dup(descriptor)
    where = kgsl.CMD_SYNCPOINT_FENCE(fd=duplicate)
    point = kgsl.COMMAND_SYNCPOINT(priv=address_of(where), size=4, type=1)
    client.call(synced(client, point, context=other))
    timestamp = client.call(kgsl.GPU_COMMAND(context_id=other)).timestamp
    machine.sleep(0.1)
    assert client.retired(other) == 0
    data.words([1])
    client.wait(timestamp, context=other)
    os.close(descriptor)
    os.close(duplicate)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"type": 1}, errno.EINVAL),
        ({"len": 8}, errno.EINVAL),
        ({"context_id": 99}, errno.EINVAL),
        ({"timestamp": 1}, errno.EINVAL),
        ({"priv": 0}, errno.EFAULT),
    ],
)
def test_fence_errors_leave_no_descriptor(client: Client, changes, code):
    before = len(os.listdir("/proc/self/fd"))
    with refused(code):
        fence(client, 0, **changes)
    assert len(os.listdir("/proc/self/fd")) == before


# ----- frees that wait ----------------------------------------------------------------------------


def test_free_on_timestamp_waits_for_the_gpu(client: Client, data: Buffer, machine: Machine):
    victim = client.call(kgsl.GPUOBJ_ALLOC(size=PAGE))
    gpu = client.call(kgsl.GPUOBJ_INFO(id=victim.id)).gpuaddr
    timestamp = client.submit(wait_mem(data.gpu, 1) + mem_write(gpu, 1))
    when = kgsl.GPU_EVENT_TIMESTAMP(context_id=client.context, timestamp=timestamp)
    argument = kgsl.GPUOBJ_FREE(id=victim.id, flags=1, type=1, priv=address_of(when), len=8)
    client.call(argument)
    with refused(errno.EBUSY):
        client.call(kgsl.GPUOBJ_FREE(id=victim.id))
    assert client.call(kgsl.GPUOBJ_INFO(id=victim.id)).gpuaddr == gpu
    data.words([1])
    client.wait(timestamp)
    with refused(errno.EINVAL):
        client.call(kgsl.GPUOBJ_INFO(id=victim.id))


def test_free_on_fence_waits_for_the_fence(client: Client, data: Buffer):
    victim = client.call(kgsl.GPUOBJ_ALLOC(size=PAGE)).id
    timestamp = client.submit(wait_mem(data.gpu, 1))
    descriptor = fence(client, timestamp)
    when = kgsl.GPU_EVENT_FENCE(fd=descriptor)
    client.call(kgsl.GPUOBJ_FREE(id=victim, flags=1, type=2, priv=address_of(when), len=4))
    assert client.call(kgsl.GPUOBJ_INFO(id=victim)).size == PAGE
    data.words([1])
    client.wait(timestamp)
    with refused(errno.EINVAL):
        client.call(kgsl.GPUOBJ_INFO(id=victim))
    os.close(descriptor)


def test_free_on_event_errors(client: Client):
    victim = client.call(kgsl.GPUOBJ_ALLOC(size=PAGE)).id
    future = kgsl.GPU_EVENT_TIMESTAMP(context_id=client.context, timestamp=9)
    unknown = kgsl.GPU_EVENT_TIMESTAMP(context_id=99, timestamp=0)
    no_fence = kgsl.GPU_EVENT_FENCE(fd=0)
    for kind, pointer, size, code in (
        (1, address_of(future), 8, errno.EINVAL),
        (1, address_of(unknown), 8, errno.EINVAL),
        (1, 0x1000, 8, errno.EFAULT),
        (2, address_of(no_fence), 4, errno.EINVAL),
        (3, 0, 0, errno.EINVAL),
    ):
        with refused(code):
            client.call(kgsl.GPUOBJ_FREE(id=victim, flags=1, type=kind, priv=pointer, len=size))
    client.call(kgsl.GPUOBJ_FREE(id=victim))


def test_the_older_free_on_timestamp(client: Client):
    gpu = client.call(kgsl.GPUMEM_ALLOC(size=PAGE)).gpuaddr
    for fields, code in (
        ({"type": 1}, errno.EINVAL),
        ({"context_id": 99}, errno.EINVAL),
        ({"gpuaddr": 0x1000}, errno.EINVAL),
        ({}, 0),
    ):
        argument = kgsl.CMDSTREAM_FREEMEMONTIMESTAMP_CTXTID(
            **{"context_id": client.context, "gpuaddr": gpu, "type": 2, "timestamp": 0, **fields}
        )
        if code:
            with refused(code):
                client.call(argument)
        else:
            client.call(argument)
    with refused(errno.EINVAL):
        client.call(kgsl.SHAREDMEM_FREE(gpuaddr=gpu))


# ----- lost contexts ------------------------------------------------------------------------------


def reset_status(client: Client, context: int) -> int:
    value = ctypes.c_uint32(context)
    client.call(kgsl.DEVICE_GETPROPERTY(type=9, value=address_of(value), sizebytes=4))
    return value.value


def test_a_fault_retires_everything_and_makes_every_later_call_fail(client: Client, data: Buffer):
    bad, behind = client.submit([0]), client.submit(mem_write(data.gpu, 1))
    with refused(errno.EDEADLK):
        client.wait(bad)
    assert client.retired() == behind == 2 and data.u32() == 0
    with refused(errno.EDEADLK):
        client.wait(bad)
    with refused(errno.EDEADLK):
        client.submit([0])
    assert client.machine.explain(client.fd, client.context).kind == "bad packet"


def test_reset_status_tells_guilt_once_and_others_go_on(client: Client, data: Buffer):
    other = client.create_context()
    client.lost([0])
    assert [reset_status(client, client.context), reset_status(client, client.context)] == [1, 0]
    assert reset_status(client, other) == 0
    client.wait(client.submit(mem_write(data.gpu, 1), context=other), context=other)
    assert client.machine.explain(client.fd, other) is None
    assert data.u32() == 1


def test_a_poll_that_never_passes_is_a_hang(client: Client, data: Buffer, machine: Machine):
    before = machine.now()
    report = client.lost(wait_mem(data.gpu, 5))
    assert report.kind == "hang"
    assert f"memory {data.gpu:#x}" in report.message and "GE 0x5, it is 0x0" in report.message
    assert "WAIT_REG_MEM" in report.packet
    assert machine.now() - before == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("nth", [1, 3])
def test_a_hang_can_be_asked_for_at_a_packet(client: Client, data: Buffer, machine: Machine, nth: int):
    fault = machine.faults.add(Hang(nth=nth))
    report = client.lost(mem_write(data.gpu, 1) + mem_write(data.gpu + 4, 1) + mem_write(data.gpu + 8, 1))
    assert report.kind == "hang" and fault.fired == 1
    assert sum(data.u32(4 * i) for i in range(3)) == nth - 1


def test_a_hang_can_be_asked_for_at_a_dispatch(client: Client, machine: Machine, executor: FakeExecutor):
    code, constants = client.buffer(), client.buffer()
    machine.faults.add(Hang(at="dispatch", nth=2))
    report = client.lost(dispatch(code.gpu, constants.gpu) * 3)
    assert report.kind == "hang" and "EXEC_CS" in report.packet
    assert len(executor.ran) == 1


def test_a_page_fault_can_be_asked_for_at_a_dispatch(client: Client, machine: Machine):
    code, constants = client.buffer(), client.buffer()
    machine.faults.add(PageFault(address=0x1234000))
    report = client.lost(dispatch(code.gpu, constants.gpu))
    assert (report.kind, report.address) == ("memory", 0x1234000)


def test_a_lost_timestamp_is_made_up_by_the_next(client: Client, data: Buffer, machine: Machine):
    machine.faults.add(LostCompletion())
    first = client.submit(mem_write(data.gpu, 1))
    with refused(errno.ETIMEDOUT):
        client.wait(first, 100)
    assert data.u32() == 1
    client.wait(client.submit(op(Opcode.NOP)))
    client.wait(first)


def test_a_lost_signal_leaves_memory_as_it_was(client: Client, data: Buffer, machine: Machine):
    machine.faults.add(LostCompletion(what="signal", nth=2))
    client.run(event(4, data.gpu, 1) + event(4, data.gpu + 4, 2) + event(4, data.gpu + 8, 3))
    assert [data.u32(4 * i) for i in range(3)] == [1, 0, 3]


def test_an_early_wake_reports_success_before_completion(client: Client, data: Buffer, machine: Machine):
    machine.faults.add(EarlyWake())
    timestamp = client.submit(mem_write(data.gpu, 1))
    client.wait(timestamp)
    assert data.u32() == 0
    client.wait(timestamp)
    assert data.u32() == 1


def test_an_early_poll_passes_although_the_value_is_not_there(client: Client, data: Buffer, machine: Machine):
    machine.faults.add(EarlyWake(what="poll"))
    client.run(wait_mem(data.gpu, 1) + mem_write(data.gpu + 4, 1))
    assert (data.u32(), data.u32(4)) == (0, 1)


def test_a_tolerant_context_replays_once_and_reports_eproto_once(
    client: Client, data: Buffer, machine: Machine
):
    context = client.create_context(TOLERANT)
    machine.faults.add(Hang(nth=2))
    timestamp = client.submit(mem_write(data.gpu, 1) + mem_write(data.gpu + 4, 1), context=context)
    with refused(errno.EPROTO):
        client.wait(timestamp, context=context)
    client.wait(timestamp, context=context)
    assert (data.u32(), data.u32(4)) == (1, 1)
    assert reset_status(client, context) == 1


def test_eproto_from_a_submission_means_that_it_was_queued(client: Client, data: Buffer, machine: Machine):
    context = client.create_context(TOLERANT)
    machine.faults.add(Hang())
    client.submit(op(Opcode.NOP), context=context)
    machine.sleep(5.0)
    ring = client.buffer()
    ring.words(mem_write(data.gpu, 1))
    argument = client.command((ring.gpu, 16), context=context, timestamp=77)
    with refused(errno.EPROTO):
        client.call(argument)
    assert argument.timestamp == 77  # outputs are not copied back
    queued = client.call(kgsl.CMDSTREAM_READTIMESTAMP_CTXTID(context_id=context, type=3)).timestamp
    assert queued == 2
    client.wait(queued, context=context)
    assert data.u32() == 1


def test_a_fault_that_repeats_kills_a_tolerant_context_too(client: Client):
    client.context = client.create_context(TOLERANT)
    assert client.lost([0]).kind == "bad packet"


def test_invalidate_on_fault_kills_the_context_after_the_replay(
    client: Client, data: Buffer, machine: Machine
):
    client.context = client.create_context(TOLERANT | 1 << 28)
    machine.faults.add(Hang())
    assert client.lost(mem_write(data.gpu, 1)).kind == "hang"
    assert data.u32() == 1


def test_a_bug_in_the_virtual_gpu_is_a_lost_context_with_its_traceback(
    client: Client, executor: FakeExecutor
):
    def broken(run, memory):
        raise ZeroDivisionError("no such luck")

    executor.action = broken
    code, constants = client.buffer(), client.buffer()
    report = client.lost(dispatch(code.gpu, constants.gpu))
    assert report.kind == "internal"
    assert "Traceback" in report.message and "no such luck" in report.message
    assert "EXEC_CS" in report.packet


def test_a_fault_of_a_program_is_explained(client: Client, executor: FakeExecutor):
    executor.action = lambda run, memory: FaultReport("illegal instruction", "word 0", pc=2)
    code, constants = client.buffer(), client.buffer()
    assert client.lost(dispatch(code.gpu, constants.gpu)).pc == 2


def test_after_a_lost_context_a_new_one_works_with_the_same_memory(client: Client, data: Buffer):
    client.lost([0])
    client.context = client.create_context()
    client.run(mem_write(data.gpu, 3))
    assert data.u32() == 3


# ----- destruction --------------------------------------------------------------------------------


def test_destroying_a_context_drops_its_queue_and_waits_for_what_runs(client: Client, data: Buffer):
    client.submit(mem_write(data.gpu, 1))
    assert client.machine.step()
    client.submit(mem_write(data.gpu + 4, 1))
    client.call(kgsl.DRAWCTXT_DESTROY(drawctxt_id=client.context))
    client.machine.sleep(1.0)
    assert data.u32(4) == 0


def test_destroying_a_hanging_context_ends(client: Client, data: Buffer, machine: Machine):
    client.submit(wait_mem(data.gpu, 1))
    machine.sleep(0.1)
    client.call(kgsl.DRAWCTXT_DESTROY(drawctxt_id=client.context))
    client.context = client.create_context()
    client.run(mem_write(data.gpu + 4, 1))
    assert data.u32(4) == 1


def test_closing_the_descriptor_destroys_its_contexts(machine: Machine):
    client = Client(machine)
    buffer = client.buffer()
    buffer.words(mem_write(buffer.gpu, 1))
    client.call(client.command((buffer.gpu, 16)))
    machine.close(client.fd)
    left = machine.live_objects()
    assert (left.contexts, left.descriptors, left.client_mappings, left.backings) == (0, 0, 1, 1)
    assert buffer.u32(4) == buffer.gpu & 0xFFFFFFFF  # the mapping is still the client's
    machine.munmap(buffer.address, buffer.size)
    assert machine.live_objects().total == 0


def test_explaining_a_context_that_does_not_exist_says_nothing(client: Client):
    assert client.machine.explain(client.fd, 99) is None


def test_whoever_waits_for_a_context_that_is_destroyed_gets_enoent(executor: FakeExecutor):
    codes: list[int] = []
    with Machine(mode="async", executor_factory=lambda: executor) as machine:
        client = Client(machine)
        data = client.buffer()
        running = client.submit(wait_mem(data.gpu, 1))
        behind = client.submit(op(Opcode.NOP))

        def wait() -> None:
            try:
                client.wait(behind)
            except OSError as error:
                codes.append(error.errno)

        thread = threading.Thread(target=wait)
        thread.start()
        destroyer = threading.Thread(
            target=lambda: client.call(kgsl.DRAWCTXT_DESTROY(drawctxt_id=client.context))
        )
        while machine.mappings and not machine._waiting:
            time.sleep(0.001)
        destroyer.start()
        thread.join()
        data.words([1])
        destroyer.join()
    assert codes == [errno.ENOENT] and running == 1


# ----- seeds --------------------------------------------------------------------------------------


def interleaving(seed: int) -> list[int]:
    """Return the order in which four contexts on two rings append to a log, by their marks."""
    with Machine(clock="virtual", seed=seed, executor_factory=FakeExecutor) as machine:
        client = Client(machine)
        log = client.buffer()
        contexts = [client.create_context(CONTEXT & ~0xF000 | priority << 12) for priority in (1, 1, 8, 8)]
        for mark, context in enumerate(contexts, 1):
            append = op(Opcode.MEM_TO_MEM, 0, *halves(log.gpu), *halves(log.gpu), *halves(log.gpu + 8))
            write = op(Opcode.MEM_WRITE, *halves(log.gpu + 0x100 + 4 * mark), mark)
            client.submit(
                (append + write + op(Opcode.REG_TO_MEM, 0x980, *halves(log.gpu + 0x200 + 4 * mark))) * 4,
                context,
            )
        for context in contexts:
            client.wait(1, context=context)
        return sorted(range(1, 5), key=lambda mark: log.u32(0x200 + 4 * mark))


def test_the_same_seed_gives_the_same_order_and_seeds_differ():
    orders = [interleaving(seed) for seed in range(8)]
    assert orders == [interleaving(seed) for seed in range(8)]
    assert len({tuple(order) for order in orders}) > 1
