"""Faults, hangs and resets: which queues stop, which event tells of it, and what the report says."""

from __future__ import annotations

import errno
import time

import pytest

from ringfence.errors import FaultReport
from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.kfd import AllocFlags, ResetCause, ResetType, WaitResult
from ringfence.virtual.faults import CallError, Hang, PageFault, Reset
from ringfence.virtual.machine import Machine
from virtual.amd.client import (
    FLUSH,
    GTT,
    VRAM,
    Buffer,
    Client,
    FakeExecutor,
    Queue,
    dispatch,
    refused,
    wait_memory,
    write,
)

END = 0xBFB00000


@pytest.fixture
def queue(client: Client) -> Queue:
    return Queue(client)


@pytest.fixture
def code(client: Client) -> Buffer:
    buffer = client.buffer()
    buffer.words([END])
    return buffer


def test_an_unmapped_address_sets_the_memory_event(client: Client, queue: Queue):
    address = 0x10_0000_0123 & ~3
    queue.submit(write(address, 1))
    payload = client.wait(failing=True)[1].memory_exception_data
    failure = payload.failure
    assert (failure.NotPresent, failure.ReadOnly, failure.NoExecute, failure.imprecise) == (1, 0, 0, 0)
    assert (payload.va, payload.gpu_id, payload.ErrorType) == (0x10_0000_0000, client.gpu_id, 0)
    report = client.machine.explain(client.fd, queue.id)
    assert report is not None and report.kind == "memory" and report.address == address
    assert report.packet is not None and "WRITE_DATA" in report.packet


def test_a_write_to_read_only_memory_says_so(client: Client, queue: Queue):
    constant = client.buffer(flags=VRAM & ~AllocFlags.WRITABLE)
    queue.submit(write(constant.address, 1))
    failure = client.wait(failing=True)[1].memory_exception_data.failure
    assert (failure.NotPresent, failure.ReadOnly) == (0, 1)


def test_code_in_memory_that_is_not_executable(client: Client, queue: Queue):
    data = client.buffer(flags=VRAM & ~AllocFlags.EXECUTABLE)
    data.words([END])
    queue.submit(dispatch(data.address))
    failure = client.wait(failing=True)[1].memory_exception_data.failure
    assert (failure.NotPresent, failure.ReadOnly, failure.NoExecute) == (0, 0, 1)
    assert "not executable" in (client.machine.explain(client.fd, queue.id).nearest or "")


def test_a_fault_of_memory_stops_all_queues_of_the_process_on_that_gpu(client: Client, queue: Queue):
    other, data = Queue(client), client.buffer()
    queue.lost(write(0x10_0000_0000, 1))
    other.submit(write(data.address, 1))
    client.machine.sleep(0.1)
    assert data.u32() == 0
    report = client.machine.explain(client.fd, other.id)
    assert report is not None and f"stopped with queue {queue.id}" in report.message


def test_queues_of_another_gpu_go_on():
    with Machine(("gfx1100", "gfx1100"), executor_factory=FakeExecutor) as machine:
        one = Client(machine)
        two = Client(machine, 1, beside=one)
        first, second, data = Queue(one), Queue(two), two.buffer()
        first.lost(write(0x10_0000_0000, 1))
        second.submit([*write(data.address, 1)])
        machine.sleep(0.1)
        assert data.u32() == 1
        assert machine.explain(one.fd, second.id) is None


def test_a_bad_packet_stops_its_queue_only_and_sets_the_exception_event(client: Client, queue: Queue):
    other, data = Queue(client), client.buffer()
    queue.submit([0])
    payload = client.wait(failing=True)[2].hw_exception_data
    assert (payload.reset_type, payload.reset_cause) == (ResetType.PER_ENGINE_RESET, ResetCause.GPU_HANG)
    assert (payload.memory_lost, payload.gpu_id) == (0, client.gpu_id)
    other.submit(write(data.address, 1))
    client.machine.sleep(0.1)
    assert data.u32() == 1


def test_a_stopped_queue_can_be_destroyed_and_a_new_one_works(client: Client, queue: Queue):
    queue.lost(write(0x10_0000_0000, 1))
    queue.destroy()
    assert client.machine.explain(client.fd, queue.id) is None
    data = client.buffer()
    Queue(client).submit(write(data.address, 1))
    client.machine.sleep(0.1)
    assert data.u32() == 1


def test_a_queue_that_waits_for_ever_counts_as_hung(client: Client, queue: Queue):
    data = client.buffer(flags=GTT)
    before = client.machine.now()
    report = queue.lost(wait_memory(data.address, 7))
    assert (
        report.kind == "hang"
        and f"(memory {data.address:#x} & 0xffffffff) GE 0x7, it is 0x0" in report.message
    )
    assert client.machine.now() - before == pytest.approx(client.machine.hang_timeout, abs=0.1)


def test_progress_restarts_the_clock_of_the_hang_detector():
    with Machine(("gfx1100",), hang_timeout=1.0, clock="virtual", executor_factory=FakeExecutor) as machine:
        client = Client(machine)
        queue, data = Queue(client), client.buffer()
        for step in (1, 2, 3):
            queue.submit(wait_memory(data.address, step))
            machine.sleep(0.7)
            data.words([step])
        queue.run([])


@pytest.mark.parametrize("seed", range(4))
def test_a_queue_that_waits_for_a_program_of_another_does_not_hang(seed: int):
    executor = FakeExecutor(lambda launch, memory: time.sleep(0.2))
    with Machine(("gfx1100",), hang_timeout=0.1, seed=seed, executor_factory=lambda: executor) as machine:
        client = Client(machine)
        code, data = client.buffer(), client.buffer()
        code.words([END])
        waiting, working = Queue(client), Queue(client)
        waiting.submit([*wait_memory(data.address, 1), *client.signal()])
        working.submit([*dispatch(code.address), *FLUSH, *write(data.address, 1)])
        client.wait()


def test_a_queue_waits_longer_for_a_client_that_works():
    with Machine(("gfx1100",), mode="async", hang_timeout=0.1, executor_factory=FakeExecutor) as machine:
        client = Client(machine)
        queue, data = Queue(client), client.buffer()
        queue.submit([*wait_memory(data.address, 1), *client.signal()])
        time.sleep(0.5)
        data.words([1])
        client.wait()


def test_an_idle_queue_never_hangs(client: Client, queue: Queue):
    queue.run([])
    client.machine.sleep(100.0)
    queue.run([])


def test_a_program_can_hang(client: Client, queue: Queue, code: Buffer):
    client.machine.faults.add(Hang(at="dispatch"))
    assert queue.lost(dispatch(code.address)).kind == "hang"


def test_a_program_can_fault(client: Client, queue: Queue, code: Buffer):
    client.machine.faults.add(PageFault(address=0x1000))
    report = queue.lost(dispatch(code.address))
    assert (report.kind, report.address) == ("memory", 0x1000)


def test_a_program_that_leaves_its_memory_sets_the_memory_event(
    client: Client, queue: Queue, code: Buffer, executor: FakeExecutor
):
    executor.action = lambda run, memory: FaultReport(
        "memory",
        "write to memory that is not mapped for writing",
        run.name,
        address=0x10_0000_0008,
        nearest=memory.nearest(0x10_0000_0008),
    )
    queue.submit(dispatch(code.address))
    payload = client.wait(failing=True)[1].memory_exception_data
    assert (payload.va, payload.failure.NotPresent) == (0x10_0000_0000, 1)


def test_local_memory_of_a_program_is_no_fault_of_the_gpus_memory(
    client: Client, queue: Queue, code: Buffer, executor: FakeExecutor
):
    executor.action = lambda run, memory: FaultReport("memory", "beyond the local memory", address=70000)
    queue.submit(dispatch(code.address))
    entries = client.wait(failing=True)
    assert entries[1].memory_exception_data.gpu_id == 0 and entries[2].hw_exception_data.gpu_id


def test_a_bug_of_the_virtual_gpu_is_told_as_such(
    client: Client, queue: Queue, code: Buffer, executor: FakeExecutor
):
    def action(run, memory):
        raise AssertionError("surprise")

    executor.action = action
    report = queue.lost(dispatch(code.address))
    assert report.kind == "internal" and "surprise" in report.message


def test_a_reset_takes_all_queues_and_the_content_of_memory(client: Client, queue: Queue, code: Buffer):
    data, other = client.buffer(), Queue(client)
    host = client.buffer(flags=GTT)
    data.words([5])
    host.words([6])
    client.machine.faults.add(Reset())
    queue.submit(dispatch(code.address))
    payload = client.wait(failing=True)[2].hw_exception_data
    assert (payload.reset_type, payload.reset_cause) == (ResetType.WHOLE_GPU_RESET, ResetCause.GPU_HANG)
    assert (payload.memory_lost, payload.gpu_id) == (1, client.gpu_id)
    assert (data.u32(), host.u32()) == (0, 6)
    assert client.machine.explain(client.fd, other.id) is not None
    with refused(errno.EIO, "was reset"):
        client.alloc()
    with refused(errno.EIO, "was reset"):
        client.call(queue.argument())
    for each in (queue, other):
        client.call(kfd.DESTROY_QUEUE(queue_id=each.id))
    client.alloc()
    client.call(queue.argument())


def test_after_a_reset_a_new_process_begins_anew(client: Client, queue: Queue, code: Buffer):
    client.machine.faults.add(Reset())
    queue.lost(dispatch(code.address))
    client.close()
    again = Client(client.machine)
    Queue(again).run([])


def test_calls_can_be_made_to_fail(client: Client):
    client.machine.faults.add(CallError(errno=errno.ENOMEM, call="ALLOC_MEMORY_OF_GPU", nth=2))
    client.alloc()
    with refused(errno.ENOMEM, "fault of this machine"):
        client.alloc()
    client.alloc()


def test_a_client_that_looks_at_a_set_event_again_and_again_lets_the_gpu_work():
    with Machine(("gfx1100", "gfx1100"), executor_factory=FakeExecutor) as machine:
        one = Client(machine)
        two = Client(machine, 1, beside=one)
        first, second, data = Queue(one), Queue(two), two.buffer()
        first.lost(write(0x10_0000_0000, 1))
        second.submit(write(data.address, 1))
        for _ in range(100):
            one.wait_for(one.memory_event, timeout=1000)
        assert data.u32() == 1


def test_the_memory_event_stays_set_until_it_is_gone(client: Client, queue: Queue):
    queue.lost(write(0x10_0000_0000, 1))
    argument, entries = client.wait_for(client.memory_event, timeout=0)
    assert argument.wait_result == WaitResult.COMPLETE
    assert entries[0].memory_exception_data.gpu_id == client.gpu_id
    client.call(kfd.DESTROY_EVENT(event_id=client.memory_event.event_id))
