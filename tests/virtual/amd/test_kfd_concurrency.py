"""What clients do to memory and queues while programs run, and several threads at once."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable

import pytest

from ringfence.hardware.amd import kfd
from ringfence.virtual.isa.rdna.dispatch import Dispatch
from ringfence.virtual.machine import Machine
from ringfence.virtual.memory import AddressSpace
from virtual.amd.client import PAGE, Buffer, Client, FakeExecutor, Queue, dispatch, refused, write

END = 0xBFB00000


class Paused:
    """An async machine whose program waits inside, with the host address of a buffer in its hands."""

    def __init__(self, make: Callable[[Client], Buffer]) -> None:
        self.inside, self.leave = threading.Event(), threading.Event()
        self.seen = b""
        self.machine = Machine(("gfx1100",), mode="async", executor_factory=lambda: FakeExecutor(self.run))
        self.client = Client(self.machine)
        self.queue, self.code = Queue(self.client), self.client.buffer()
        self.code.words([END])
        self.data = make(self.client)
        self.data.write(b"data")

    def run(self, launch: Dispatch, memory: AddressSpace) -> None:
        start, _, delta, _ = (
            int(each) for each in next(row for row in memory.table() if int(row[0]) == self.data.address)
        )
        self.inside.set()
        assert self.leave.wait(30.0)
        self.seen = ctypes.string_at(start + delta & (1 << 64) - 1, 4)

    def during(self, action: Callable[[], None]) -> None:
        """Do something while the program runs, then let it end."""
        with self.machine:
            self.queue.submit([*dispatch(self.code.address), *self.client.signal()])
            assert self.inside.wait(30.0)
            action()
            self.leave.set()
            self.client.wait()


def private(client: Client) -> Buffer:
    memory = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    buffer = client.imported(ctypes.addressof(ctypes.c_char.from_buffer(memory)), PAGE)
    buffer.memory = memory
    return buffer


@pytest.mark.parametrize("make", [Client.buffer, private])
def test_memory_that_is_freed_while_a_program_runs_goes_away_afterwards(make):
    paused = Paused(make)

    def free() -> None:
        paused.data.free()
        assert paused.machine.live_objects().deferred == 1
        with refused(22):
            paused.client.call(kfd.FREE_MEMORY_OF_GPU(handle=paused.data.handle))

    paused.during(free)
    assert paused.seen == b"data"
    assert paused.machine.live_objects().deferred == 0


def test_pages_that_a_client_unmaps_itself_stay_for_the_program():
    paused = Paused(Client.buffer)
    paused.during(lambda: paused.machine.munmap(paused.data.address, paused.data.size))
    assert paused.seen == b"data"


def test_a_queue_can_be_destroyed_while_its_program_runs():
    paused = Paused(Client.buffer)
    other = Queue(paused.client)

    def destroy() -> None:
        paused.queue.destroy()
        other.submit(paused.client.signal())

    paused.during(destroy)
    assert paused.seen == b"data"


def test_kfd_can_be_closed_while_a_program_runs():
    paused = Paused(Client.buffer)
    with paused.machine as machine:
        paused.queue.submit(dispatch(paused.code.address))
        assert paused.inside.wait(30.0)
        paused.client.close()
        paused.leave.set()
        again = Client(machine)
        data = again.buffer()
        Queue(again).run(write(data.address, 1))
        assert data.u32() == 1
    assert paused.seen == b"data"


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_several_threads_may_use_one_machine(mode: str):
    with Machine(("gfx1100",), mode=mode, executor_factory=FakeExecutor) as machine:
        client = Client(machine)
        done: list[int] = []

        def work(number: int) -> None:
            queue, data = Queue(client), client.buffer()
            event = client.create_event(auto_reset=1)
            for turn in range(20):
                queue.submit([*write(data.address, number * 100 + turn), *client.signal(event)])
                argument, _ = client.wait_for(event, timeout=60_000)
                assert argument.wait_result == kfd.WaitResult.COMPLETE
                assert data.u32() == number * 100 + turn
            done.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
        assert sorted(done) == [0, 1, 2, 3]


def test_objects_come_and_go_a_thousand_times_while_programs_run():
    with Machine(("gfx1100",), mode="async", executor_factory=lambda: FakeExecutor(_touch)) as machine:
        client = Client(machine)
        queue, code = Queue(client, 64 << 10), client.buffer()
        code.words([END])
        before = machine.live_objects()
        for _ in range(1000):
            buffer = client.buffer()
            queue.submit(dispatch(code.address))
            buffer.free()
        queue.submit(client.signal())
        client.wait()
        after = machine.live_objects()
        assert (after.objects, after.backings, after.deferred) == (before.objects, before.backings, 0)


def _touch(launch: Dispatch, memory: AddressSpace) -> None:
    """Read a byte of every range, as a program may with the table that it was given."""
    for start, _, delta, _ in memory.table():
        ctypes.string_at((int(start) + int(delta)) & (1 << 64) - 1, 1)
