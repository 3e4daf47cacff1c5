"""Events of the virtual KFD: slots, ages, waiting, payloads, and every errno."""

from __future__ import annotations

import errno
import threading

import pytest

from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.kfd import EventType, WaitResult
from ringfence.hardware.amd.topology import NODES_ROOT
from ringfence.virtual.faults import EarlyWake, LostCompletion
from ringfence.virtual.machine import Machine
from virtual.amd.client import GTT, PAGE, Client, FakeExecutor, Queue, refused, release, write

FOREVER = kfd.EVENT_TIMEOUT_INFINITE


def slot(client: Client, event: kfd.CREATE_EVENT) -> int:
    return client.page.u64(8 * event.event_slot_index)


# ----- creation -----------------------------------------------------------------------------------


def test_signal_events_have_the_lowest_free_ids_from_1_and_slots_of_the_same_number(client: Client):
    more = [client.create_event() for _ in range(3)]
    assert [event.event_id for event in (client.event, *more)] == [1, 2, 3, 4]
    assert all(event.event_slot_index == event.event_id == event.event_trigger_data for event in more)
    client.call(kfd.DESTROY_EVENT(event_id=2))
    assert client.create_event().event_id == 2


def test_other_events_have_ids_of_their_own(client: Client):
    assert client.memory_event.event_id == kfd.FIRST_NONSIGNAL_EVENT_ID
    assert client.exception_event.event_id == kfd.FIRST_NONSIGNAL_EVENT_ID + 1
    assert client.memory_event.event_page_offset == 0


def test_the_kernel_fills_the_page_of_the_client(client: Client):
    assert client.page.read(kfd.EVENT_PAGE_BYTES) == b"\xff" * kfd.EVENT_PAGE_BYTES


def test_a_second_event_page_is_refused(client: Client):
    with refused(errno.EINVAL, "already"):
        client.create_event(event_page_offset=client.buffer(flags=GTT).handle)


def test_an_unknown_page_or_type_is_refused(machine: Machine):
    fd = machine.open("/dev/kfd")
    with refused(errno.EINVAL):
        machine.ioctl(fd, kfd.CREATE_EVENT(event_page_offset=1 << 32 | 5))
    with refused(errno.EINVAL, "event type 77"):
        machine.ioctl(fd, kfd.CREATE_EVENT(event_type=77))


def test_a_page_that_is_too_small_is_refused(machine: Machine):
    fd = machine.open("/dev/kfd")
    gpu_id = int(machine.read_text(f"{NODES_ROOT}/1/gpu_id"))
    machine.ioctl(fd, kfd.ACQUIRE_VM(drm_fd=machine.open("/dev/dri/renderD128"), gpu_id=gpu_id))
    page = kfd.ALLOC_MEMORY_OF_GPU(size=PAGE, flags=GTT, gpu_id=gpu_id)
    machine.ioctl(fd, page)
    with refused(errno.EINVAL, "expected 0x8000"):
        machine.ioctl(fd, kfd.CREATE_EVENT(event_page_offset=page.handle))


def test_4095_signal_events_are_the_limit(client: Client):
    for _ in range(kfd.SIGNAL_EVENT_LIMIT - 2):
        last = client.create_event()
    assert last.event_id == kfd.SIGNAL_EVENT_LIMIT - 1
    with refused(errno.ENOSPC, "slots"):
        client.create_event()


def test_without_a_page_of_the_client_the_kernel_makes_one(machine: Machine):
    fd = machine.open("/dev/kfd")
    event = kfd.CREATE_EVENT(event_type=EventType.SIGNAL)
    machine.ioctl(fd, event)
    assert kfd.MMAP_OFFSET.get(event.event_page_offset, "TYPE") == kfd.MmapType.EVENTS
    with refused(errno.EINVAL):
        machine.mmap(fd, PAGE, event.event_page_offset)
    machine.mmap(fd, kfd.EVENT_PAGE_BYTES, event.event_page_offset)


@pytest.mark.parametrize("kind", [kfd.DESTROY_EVENT, kfd.SET_EVENT, kfd.RESET_EVENT])
def test_unknown_events_are_refused(client: Client, kind):
    with refused(errno.EINVAL, "no event"):
        client.call(kind(event_id=99))


@pytest.mark.parametrize("kind", [kfd.SET_EVENT, kfd.RESET_EVENT])
def test_only_signal_events_are_set_by_hand(client: Client, kind):
    with refused(errno.EINVAL, "MEMORY"):
        client.call(kind(event_id=client.memory_event.event_id))


# ----- waiting ------------------------------------------------------------------------------------


def test_a_timeout_is_no_error_and_takes_machine_time(client: Client):
    before = client.machine.now()
    argument, _ = client.wait_for(client.event, timeout=30_000)
    assert argument.wait_result == WaitResult.TIMEOUT
    assert 30.0 <= client.machine.now() - before < 30.1


def test_timeout_0_polls(client: Client):
    argument, _ = client.wait_for(client.event, timeout=0)
    assert argument.wait_result == WaitResult.TIMEOUT
    client.call(kfd.SET_EVENT(event_id=client.event.event_id))
    argument, _ = client.wait_for(client.event, timeout=0)
    assert argument.wait_result == WaitResult.COMPLETE


def test_auto_reset_events_are_cleared_by_the_wait_and_others_are_not(client: Client):
    manual = client.create_event(auto_reset=0)
    for event in (client.event, manual):
        client.call(kfd.SET_EVENT(event_id=event.event_id))
    results = [
        client.wait_for(event, timeout=0)[0].wait_result for event in (client.event, manual) for _ in range(2)
    ]
    complete, timeout = WaitResult.COMPLETE, WaitResult.TIMEOUT
    assert results == [complete, timeout, complete, complete]
    client.call(kfd.RESET_EVENT(event_id=manual.event_id))
    assert client.wait_for(manual, timeout=0)[0].wait_result == timeout


def test_any_or_all(client: Client):
    other = client.create_event()
    client.call(kfd.SET_EVENT(event_id=other.event_id))
    assert client.wait_for(client.event, other, timeout=0)[0].wait_result == WaitResult.COMPLETE
    assert client.wait_for(client.event, other, timeout=0, every=True)[0].wait_result == WaitResult.TIMEOUT


def test_no_events_at_all_are_complete(client: Client):
    assert client.wait_for(timeout=FOREVER)[0].wait_result == WaitResult.COMPLETE


def test_waits_refuse_unknown_events_and_bad_pointers(client: Client):
    with refused(errno.EINVAL, "no event"):
        client.wait_for(99)
    with refused(errno.EFAULT):
        client.call(kfd.WAIT_EVENTS(events_ptr=8, num_events=1))


def test_destroying_an_event_ends_a_wait_with_eio():
    with Machine(("gfx1100",), mode="async", executor_factory=FakeExecutor) as machine:
        client = Client(machine)
        ended: list[int] = []

        def wait() -> None:
            with refused(errno.EIO, "destroyed"):
                client.wait_for(client.event, timeout=20_000)
            ended.append(1)

        thread = threading.Thread(target=wait)
        thread.start()
        while not machine.devices[0].process.events._events[1].waiters:
            pass
        client.call(kfd.DESTROY_EVENT(event_id=client.event.event_id))
        thread.join(20.0)
        assert ended == [1]


def test_one_set_wakes_every_waiter_and_leaves_an_auto_reset_event_clear():
    with Machine(("gfx1100",), mode="async", executor_factory=FakeExecutor) as machine:
        client = Client(machine)
        results: list[int] = []
        threads = [
            threading.Thread(
                target=lambda: results.append(client.wait_for(client.event, timeout=20_000)[0].wait_result)
            )
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        while len(machine.devices[0].process.events._events[1].waiters) < 3:
            pass
        client.call(kfd.SET_EVENT(event_id=client.event.event_id))
        for thread in threads:
            thread.join(20.0)
        assert results == [WaitResult.COMPLETE] * 3
        assert client.wait_for(client.event, timeout=0)[0].wait_result == WaitResult.TIMEOUT


# ----- ages ---------------------------------------------------------------------------------------


def test_an_age_that_is_not_the_current_one_counts_as_signalled(client: Client):
    argument, entries = client.wait_for(client.event, timeout=0, age=1)
    assert argument.wait_result == WaitResult.TIMEOUT, "events begin with age 1"
    client.call(kfd.SET_EVENT(event_id=client.event.event_id))
    client.wait_for(client.event, timeout=0)
    argument, entries = client.wait_for(client.event, timeout=0, age=1)
    assert argument.wait_result == WaitResult.COMPLETE
    assert entries[0].signal_event_data.last_event_age == 2
    argument, _ = client.wait_for(client.event, timeout=0, age=2)
    assert argument.wait_result == WaitResult.TIMEOUT


def test_without_an_age_none_is_copied_back(client: Client):
    client.call(kfd.SET_EVENT(event_id=client.event.event_id))
    _, entries = client.wait_for(client.event, timeout=0)
    assert entries[0].signal_event_data.last_event_age == 0


# ----- interrupts ---------------------------------------------------------------------------------


def test_a_release_with_interrupt_signals_the_event_and_the_kernel_puts_the_slot_back(client: Client):
    Queue(client).run([])
    assert slot(client, client.event) == kfd.UNSIGNALED_EVENT_SLOT


def test_an_interrupt_without_event_id_scans_all_slots(client: Client):
    other = client.create_event(auto_reset=1)
    address = client.page.address + 8 * other.event_slot_index
    Queue(client).submit(release(address, other.event_id, interrupt=2, context=0))
    assert client.wait_for(other)[0].wait_result == WaitResult.COMPLETE


def test_an_interrupt_of_a_slot_that_holds_nothing_signals_nothing(client: Client):
    queue, data = Queue(client), client.buffer()
    queue.submit([*release(data.address, 1, interrupt=2, context=client.event.event_id)])
    assert client.wait_for(client.event, timeout=10)[0].wait_result == WaitResult.TIMEOUT
    assert data.u64() == 1


def test_a_store_without_interrupt_signals_nothing(client: Client):
    address = client.page.address + 8 * client.event.event_slot_index
    Queue(client).submit(release(address, client.event.event_id))
    assert client.wait_for(client.event, timeout=10)[0].wait_result == WaitResult.TIMEOUT


def test_an_event_may_be_signalled_before_anybody_waits(client: Client):
    queue = Queue(client)
    queue.submit(client.signal())
    client.machine.sleep(0.01)
    client.wait()


# ----- faults on demand ---------------------------------------------------------------------------


def test_an_interrupt_can_get_lost(client: Client):
    client.machine.faults.add(LostCompletion())
    queue, data = Queue(client), client.buffer()
    queue.submit([*write(data.address, 1), *client.signal()])
    assert client.wait_for(client.event, timeout=100)[0].wait_result == WaitResult.TIMEOUT
    assert data.u32() == 1 and slot(client, client.event) == client.event.event_id


def test_a_wait_can_end_early(client: Client):
    client.machine.faults.add(EarlyWake())
    assert client.wait_for(client.event, timeout=100)[0].wait_result == WaitResult.COMPLETE
    assert client.wait_for(client.event, timeout=100)[0].wait_result == WaitResult.TIMEOUT
