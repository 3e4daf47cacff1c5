"""The machine: modes, clocks, waiting, faults of calls, several clients, shutting down."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time

import pytest

from ringfence.errors import PortError, RingfenceError, UnsupportedDevice
from ringfence.hardware.adreno import kgsl
from ringfence.hardware.adreno.packets import Opcode
from ringfence.virtual.faults import CallError, LostCompletion
from ringfence.virtual.machine import Machine
from virtual.adreno.client import (
    CONTEXT,
    PAGE,
    Client,
    FakeExecutor,
    dispatch,
    mem_write,
    op,
    refused,
    wait_mem,
)


def machine(**options) -> Machine:
    return Machine(executor_factory=FakeExecutor, **options)


# ----- construction -------------------------------------------------------------------------------


def test_unknown_devices_modes_and_clocks_are_refused():
    with pytest.raises(UnsupportedDevice, match="a999"):
        machine(devices=("a999",))
    with pytest.raises(UnsupportedDevice, match="gfx9999"):
        machine(devices=("gfx9999",))
    with pytest.raises(UnsupportedDevice, match="no virtual gfx942: only gfx11"):
        Machine(devices=("gfx942",))
    with pytest.raises(UnsupportedDevice, match="'usb'"):
        machine(devices=("usb",))
    with pytest.raises(ValueError, match="'inline' or 'async'"):
        machine(mode="threads")
    with pytest.raises(ValueError, match="no clock"):
        machine(clock="sundial")
    with pytest.raises(ValueError, match="real clock"):
        machine(mode="async", clock="virtual")


def test_a_machine_is_a_virtual_port():
    with machine() as one:
        assert one.virtual


# ----- time ---------------------------------------------------------------------------------------


def test_sleeping_costs_no_real_time_but_on_the_real_clock():
    for clock in ("hybrid", "virtual"):
        with machine(clock=clock) as one:
            before, started = one.now(), time.monotonic()
            one.sleep(3600.0)
            assert one.now() - before >= 3600.0
            assert time.monotonic() - started < 60.0
    with machine(clock="real") as one:
        before = time.monotonic()
        one.sleep(0.01)
        assert time.monotonic() - before >= 0.01


def test_the_virtual_clock_reads_the_same_for_the_same_calls():
    def times() -> list[float]:
        with machine(clock="virtual", seed=3) as one:
            client = Client(one)
            data = client.buffer()
            read = []
            for value in range(5):
                client.run(mem_write(data.gpu, value))
                one.sleep(0.25)
                read.append(one.now())
            return read

    assert times() == times()


def test_translation_takes_no_time_on_the_hybrid_clock():
    class Statistics:
        waited = 0.0

    class Translating(FakeExecutor):
        statistics = Statistics()

        def run(self, run, memory):
            time.sleep(0.2)
            self.statistics.waited += 0.2
            return None

    with Machine(executor_factory=Translating) as one:
        client = Client(one)
        code, constants = client.buffer(), client.buffer()
        timestamp = client.submit(dispatch(code.gpu, constants.gpu))
        before = one.now()
        client.wait(timestamp)
        assert one.now() - before < 0.2


def test_a_client_that_only_reads_the_clock_reaches_its_deadline():
    with machine() as one:
        deadline = one.now() + 10.0
        reads = 0
        while one.now() < deadline:
            reads += 1
        assert reads < 1_000_000


# ----- faults of calls ----------------------------------------------------------------------------


def test_the_nth_matching_call_fails_without_effect():
    with machine() as one:
        client = Client(one)
        fault = one.faults.add(CallError(errno=errno.ENOMEM, call="GPUOBJ_ALLOC", nth=2))
        client.call(kgsl.GPUOBJ_ALLOC(size=PAGE))
        with refused(errno.ENOMEM):
            client.call(kgsl.GPUOBJ_ALLOC(size=PAGE))
        assert one.live_objects().objects == 1
        client.call(kgsl.GPUOBJ_ALLOC(size=PAGE))
        assert (fault.seen, fault.fired) == (3, 1)


@pytest.mark.parametrize("call", ["open", "mmap", "munmap", "read_text"])
def test_every_call_of_the_port_can_fail(call: str):
    with machine() as one:
        client = Client(one)
        buffer = client.buffer()
        one.faults.add(CallError(errno=errno.EACCES, call=call))
        calls = {
            "open": lambda: one.open("/dev/kgsl-3d0"),
            "mmap": lambda: one.mmap(client.fd, PAGE, buffer.id << 12),
            "munmap": lambda: one.munmap(buffer.address, PAGE),
            "read_text": lambda: one.read_text("/sys/class/kgsl/kgsl-3d0/gpu_model"),
        }
        with refused(errno.EACCES):
            calls[call]()


def test_patterns_and_repetition():
    with machine() as one:
        client = Client(one)
        one.faults.add(CallError(errno=errno.EIO, call="GPUOBJ_*", times=None))
        for argument in (kgsl.GPUOBJ_ALLOC(size=PAGE), kgsl.GPUOBJ_INFO(id=1)):
            with refused(errno.EIO):
                client.call(argument)
        client.create_context()
        one.faults.clear()
        client.call(kgsl.GPUOBJ_ALLOC(size=PAGE))


def test_eintr_is_retried():
    with machine() as one:
        client = Client(one)
        fault = one.faults.add(CallError(errno=errno.EINTR, call="GPUOBJ_ALLOC", times=3))
        assert client.call(kgsl.GPUOBJ_ALLOC(size=PAGE)).id == 1
        assert fault.fired == 3


def test_an_injected_eproto_reports_work_that_was_queued():
    with machine() as one:
        client = Client(one)
        data = client.buffer()
        one.faults.add(CallError(errno=errno.EPROTO, call="GPU_COMMAND"))
        with refused(errno.EPROTO):
            client.submit(mem_write(data.gpu, 1))
        client.wait(1)
        assert data.u32() == 1


def test_faults_count_from_one():
    with pytest.raises(ValueError):
        CallError(errno=errno.EIO, nth=0)
    with pytest.raises(ValueError):
        LostCompletion(times=0)


# ----- shutting down ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_closing_releases_everything_but_the_clients_own_mappings(mode: str):
    one = machine(mode=mode)
    client = Client(one)
    buffer = client.buffer()
    client.submit(wait_mem(buffer.gpu, 1))
    one.close()
    one.close()
    assert one.live_objects().descriptors == one.live_objects().contexts == 0
    buffer.words([5])
    assert buffer.u32() == 5
    for address, size in list(_mappings(one)):
        one.munmap(address, size)
    assert one.live_objects().total == 0
    with refused(errno.EBADF):
        one.open("/dev/kgsl-3d0")
    with refused(errno.EBADF):
        client.call(kgsl.GPUOBJ_INFO(id=1))


def _mappings(one: Machine):
    starts = list(one.mappings._starts)
    return [(start, end - start) for start, (end, _) in zip(starts, one.mappings._pieces)]


def test_opening_and_closing_a_hundred_times_leaves_nothing():
    def round_trip() -> None:
        with machine() as one:
            client = Client(one)
            buffers = [client.buffer() for _ in range(3)]
            buffers[0].words(mem_write(buffers[1].gpu, 1))
            client.wait(client.call(client.command((buffers[0].gpu, 16))).timestamp)
            for buffer in buffers:
                buffer.free()
            one.close(client.fd)
            assert one.live_objects().total == 0

    def mappings() -> int:
        with open("/proc/self/maps") as maps:
            return sum(1 for _ in maps)

    round_trip()
    before = mappings()
    for _ in range(100):
        round_trip()
    assert mappings() <= before + 2


def test_the_executor_is_made_on_demand_and_closed():
    class Closing(FakeExecutor):
        closed = 0

        def close(self) -> None:
            Closing.closed += 1

    with Machine(executor_factory=Closing) as one:
        client = Client(one)
        client.run(op(Opcode.NOP))
        assert not one._executors
        code, constants = client.buffer(), client.buffer()
        client.run(dispatch(code.gpu, constants.gpu))
    assert Closing.closed == 1


def test_a_factory_makes_one_executor_for_all_families_and_else_each_has_its_own():
    pytest.importorskip("llvmlite")
    with Machine(("a630", "gfx1100"), executor_factory=FakeExecutor) as one:
        assert one.executor("ir3") is one.executor("rdna")
    with Machine(("a630", "gfx1100")) as one:
        ir3, rdna = one.executor("ir3"), one.executor("rdna")
        assert (type(ir3).__module__, type(rdna).__module__) == (
            "ringfence.virtual.isa.ir3.executor",
            "ringfence.virtual.isa.rdna.executor",
        )
        assert one.executor("rdna") is rdna


def test_kgsl_has_no_doorbells_directories_or_addresses_of_the_clients_choice():
    with machine() as one:
        client = Client(one)
        made = client.call(kgsl.GPUOBJ_ALLOC(size=4096, flags=1 << 28))
        start = one.reserve(4096)
        with refused(errno.EINVAL):
            one.mmap(client.fd, 4096, made.id << 12, address=start)
        with refused(errno.EINVAL):
            one.doorbell(start)
        with refused(errno.ENOENT):
            one.list_directory("/sys/class/kgsl")
        one.munmap(start, 4096)


# ----- async mode ---------------------------------------------------------------------------------


def test_async_work_runs_by_itself():
    with machine(mode="async") as one:
        client = Client(one)
        data = client.buffer()
        client.submit(mem_write(data.gpu, 1))
        deadline = time.monotonic() + 30.0
        while data.u32() == 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert data.u32() == 1


def test_async_waits_sleep_until_the_timestamp_retires():
    with machine(mode="async") as one:
        client = Client(one)
        data = client.buffer()
        timestamp = client.submit(wait_mem(data.gpu, 1))
        timer = threading.Timer(0.05, lambda: data.words([1]))
        timer.start()
        client.wait(timestamp)
        timer.join()
        assert client.retired() == timestamp


def test_async_waits_time_out_on_the_real_clock():
    with machine(mode="async") as one:
        client = Client(one)
        data = client.buffer()
        timestamp = client.submit(wait_mem(data.gpu, 1))
        before = time.monotonic()
        with refused(errno.ETIMEDOUT):
            client.wait(timestamp, 50)
        assert time.monotonic() - before >= 0.05
        data.words([1])
        client.wait(timestamp)


def test_async_hangs_are_detected():
    with machine(mode="async", hang_timeout=0.05) as one:
        client = Client(one)
        data = client.buffer()
        assert client.lost(wait_mem(data.gpu, 1)).kind == "hang"


def test_async_programs_run_without_the_machines_lock():
    inside, leave = threading.Event(), threading.Event()

    def action(run, memory):
        inside.set()
        assert leave.wait(30.0)
        return None

    with Machine(mode="async", executor_factory=lambda: FakeExecutor(action)) as one:
        client = Client(one)
        code, constants = client.buffer(), client.buffer()
        timestamp = client.submit(dispatch(code.gpu, constants.gpu))
        assert inside.wait(30.0)
        client.buffer().free()
        assert client.retired() == 0
        leave.set()
        client.wait(timestamp)


def test_async_mode_restores_the_switch_interval():
    before = sys.getswitchinterval()
    with machine(mode="async"):
        assert sys.getswitchinterval() <= before
    assert sys.getswitchinterval() == before


def test_a_crash_of_the_scheduler_is_told_to_every_caller():
    with machine(mode="async") as one:
        client = Client(one)

        def broken() -> bool:
            raise AssertionError("scheduler bug")

        one.devices[0].engines[0].ready = broken
        with pytest.raises(RingfenceError, match="scheduler bug"):
            for _ in range(100):
                client.call(kgsl.GPU_COMMAND(context_id=client.context))
                time.sleep(0.01)


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_several_threads_may_use_one_machine(mode: str):
    results: dict[int, int] = {}
    with machine(mode=mode) as one:

        def work(index: int) -> None:
            client = Client(one, CONTEXT & ~0xF000 | (1 + 4 * index) << 12)
            data = client.buffer()
            for value in range(1, 26):
                client.run(mem_write(data.gpu, value))
            results[index] = data.u32()

        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {0: 25, 1: 25, 2: 25}


def test_an_inline_wait_is_ended_by_another_thread():
    with machine(hang_timeout=1000.0) as one:
        first = Client(one)
        data = first.buffer()
        timestamp = first.submit(wait_mem(data.gpu, 1))

        def signal() -> None:
            one.now()
            known.set()
            time.sleep(0.05)
            data.words([1])

        known = threading.Event()
        other = threading.Thread(target=signal)
        other.start()
        assert known.wait(30.0)
        first.wait(timestamp)
        other.join()


def test_import_of_the_package_does_not_load_the_jit():
    code = "import sys; from ringfence.virtual.machine import Machine; Machine().close(); "
    code += "print('llvmlite' in sys.modules)"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


def test_errors_are_port_errors():
    with machine() as one, pytest.raises(PortError) as caught:
        one.open("/dev/dri/renderD128")
    assert isinstance(caught.value, OSError) and "/dev/kgsl-3d0" in str(caught.value)
