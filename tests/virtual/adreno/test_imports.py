"""Imported user memory.

What is accepted, what goes stale without cache maintenance, and that nothing can crash.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import random
import threading

import numpy as np
import pytest

from ringfence.hardware.adreno import kgsl
from ringfence.hardware.adreno.packets import Opcode
from ringfence.virtual.machine import Machine
from ringfence.virtual.memory import AddressSpace
from virtual.adreno.client import PAGE, SVM, Client, FakeExecutor, dispatch, halves, mem_write, op, refused

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
libc.mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)

PRIVATE, SHARED = 0x22, 0x21  # MAP_ANONYMOUS with MAP_PRIVATE or MAP_SHARED


def pages(count: int = 1, *, kind: int = PRIVATE, protection: int = 3, at: int | None = None) -> int:
    flags = kind if at is None else kind | 0x100000
    address = libc.mmap(at, count * PAGE, protection, flags, -1, 0)
    assert address != 2**64 - 1
    return address


def unmap(address: int, count: int = 1) -> None:
    assert libc.munmap(address, count * PAGE) == 0


def load(address: int) -> int:
    return ctypes.c_uint32.from_address(address).value


def store(address: int, value: int) -> None:
    ctypes.c_uint32.from_address(address).value = value


def imported(client: Client, address: int, length: int = PAGE, **fields) -> kgsl.MAP_USER_MEM:
    return client.call(kgsl.MAP_USER_MEM(**{"hostptr": address, "len": length, "memtype": 2, **fields}))


@pytest.fixture
def private() -> int:
    address = pages(4)
    yield address
    libc.munmap(address, 4 * PAGE)


# ----- what is accepted ---------------------------------------------------------------------------


def test_the_gpu_address_differs_from_the_cpus_and_each_import_has_its_own(client: Client, private: int):
    first, second = imported(client, private), imported(client, private)
    assert first.gpuaddr not in (0, private) and first.gpuaddr != second.gpuaddr
    assert first.flags == 3 << 5 | 3 << 26  # user memory by address, always cached
    for one in (first, second):
        client.call(kgsl.SHAREDMEM_FREE(gpuaddr=one.gpuaddr + 5))
    with refused(errno.EINVAL):
        client.call(kgsl.SHAREDMEM_FREE(gpuaddr=first.gpuaddr))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"hostptr": 0}, errno.EINVAL),
        ({"offset_pointer": 64}, errno.EINVAL),
        ({"len": 0}, errno.EINVAL),
        ({"len": 100}, errno.EINVAL),
        ({"offset": PAGE}, errno.EINVAL),
        ({"len": 64 * PAGE}, errno.EFAULT),
        ({"hostptr": 0x1000}, errno.EFAULT),
        ({"memtype": 0}, errno.EOPNOTSUPP),
        ({"memtype": 1}, errno.EOPNOTSUPP),
        ({"memtype": 9}, errno.EOPNOTSUPP),
        ({"memtype": 3, "fd": 0}, errno.EINVAL),
        ({"memtype": 3, "fd": 9999}, errno.EBADF),
        ({"flags": 8}, errno.EOPNOTSUPP),
        ({"flags": SVM}, errno.ENOMEM),
    ],
)
def test_import_errors(client: Client, private: int, fields, code):
    fields = dict(fields)
    shift = fields.pop("offset_pointer", 0)
    if fields.get("len") == 64 * PAGE:
        unmap(private + PAGE, 3)
    with refused(code):
        imported(client, private + shift, **fields)
    assert client.machine.live_objects().imports == 0


def test_part_of_a_range_that_is_not_mapped_is_efault(client: Client):
    address = pages(4)
    unmap(address + 2 * PAGE)
    with refused(errno.EFAULT):
        imported(client, address, 4 * PAGE)
    unmap(address, 2)
    unmap(address + 3 * PAGE)


def test_memory_of_kgsl_itself_is_efault(client: Client):
    buffer = client.buffer(2 * PAGE)
    with refused(errno.EFAULT):
        imported(client, buffer.address + PAGE)


def test_read_only_memory_needs_a_read_only_import(client: Client):
    address = pages(protection=1)
    with refused(errno.EFAULT):
        imported(client, address)
    gpu = imported(client, address, flags=1 << 24).gpuaddr
    report = client.lost(mem_write(gpu, 1))
    assert report.kind == "memory" and "read-only" in report.nearest
    unmap(address)


def test_with_cpu_map_the_gpu_address_is_the_pointer(client: Client):
    address = pages(at=0x20_0000_0000)
    assert imported(client, address, flags=SVM).gpuaddr == address
    with refused(errno.ENOMEM):
        imported(client, address, flags=SVM)
    unmap(address)


def test_gpuobj_import_gives_an_id(client: Client, private: int):
    where = kgsl.GPUOBJ_IMPORT_USERADDR(virtaddr=private)
    made = client.call(kgsl.GPUOBJ_IMPORT(priv=ctypes.addressof(where), priv_len=2 * PAGE, type=2))
    assert client.call(kgsl.GPUOBJ_INFO(id=made.id)).size == 2 * PAGE
    with refused(errno.EBUSY):
        client.machine.mmap(client.fd, 2 * PAGE, made.id << 12)
    client.call(kgsl.GPUOBJ_FREE(id=made.id))


def test_gpuobj_import_errors(client: Client, private: int):
    where = kgsl.GPUOBJ_IMPORT_USERADDR(virtaddr=private)
    file = kgsl.GPUOBJ_IMPORT_DMA_BUF(fd=0)
    for fields, code in (
        ({"priv": 0x1000, "priv_len": PAGE, "type": 2}, errno.EFAULT),
        ({"priv": ctypes.addressof(where), "priv_len": 0, "type": 2}, errno.EINVAL),
        ({"priv": ctypes.addressof(where), "priv_len": 100, "type": 2}, errno.EINVAL),
        ({"priv": ctypes.addressof(file), "priv_len": 4, "type": 3}, errno.EINVAL),
        ({"type": 0}, errno.EOPNOTSUPP),
    ):
        with refused(code):
            client.call(kgsl.GPUOBJ_IMPORT(**fields))


# ----- caches -------------------------------------------------------------------------------------


def gpu_copy(client: Client, source: int) -> int:
    """Return the dword that the GPU sees at ``source``."""
    out = client.buffer()
    client.run(op(Opcode.MEMCPY, 1, *halves(source), *halves(out.gpu)))
    return out.u32()


def test_the_gpu_sees_what_was_there_at_map_time(client: Client, private: int):
    store(private + 8, 0x1234)
    assert gpu_copy(client, imported(client, private).gpuaddr + 8) == 0x1234


def test_later_stores_of_the_cpu_are_stale_until_cleaned(client: Client, private: int):
    gpu = imported(client, private).gpuaddr
    store(private + 8, 1)
    assert gpu_copy(client, gpu + 8) == 0
    client.machine.clean(private + 8, 4)
    assert gpu_copy(client, gpu + 8) == 1


def test_stores_of_the_gpu_are_stale_until_invalidated(client: Client, private: int):
    gpu = imported(client, private).gpuaddr
    client.run(mem_write(gpu + 8, 7))
    assert load(private + 8) == 0
    client.machine.invalidate(private + 8, 4)
    assert load(private + 8) == 7


def test_maintenance_covers_whole_cache_lines_and_no_more(client: Client, private: int):
    gpu = imported(client, private).gpuaddr
    for offset in (0, 60, 64, 128):
        store(private + offset, 9)
    client.machine.clean(private + 62, 4)
    assert [gpu_copy(client, gpu + offset) for offset in (0, 60, 64, 128)] == [9, 9, 9, 0]


@pytest.mark.parametrize("call", ["object", "address", "list", "bulk"])
def test_the_cache_ioctls_do_the_same(client: Client, private: int, call: str):
    gpu = imported(client, private, 2 * PAGE).gpuaddr
    number = client.call(kgsl.GPUMEM_GET_INFO(gpuaddr=gpu)).id
    ids = ctypes.c_uint32(number)

    def maintain(op: int) -> None:
        entry = kgsl.GPUOBJ_SYNC_OBJ(id=number, op=op | 1 << 31, offset=PAGE, length=PAGE)
        client.call(
            {
                "object": kgsl.GPUMEM_SYNC_CACHE(id=number, op=op),
                "address": kgsl.GPUMEM_SYNC_CACHE(gpuaddr=gpu, op=op | 1 << 31, offset=PAGE, length=PAGE),
                "list": kgsl.GPUOBJ_SYNC(objs=ctypes.addressof(entry), obj_len=24, count=1),
                "bulk": kgsl.GPUMEM_SYNC_CACHE_BULK(id_list=ctypes.addressof(ids), count=1, op=op),
            }[call]
        )

    store(private + PAGE, 3)
    maintain(1)
    assert gpu_copy(client, gpu + PAGE) == 3
    client.run(mem_write(gpu + PAGE, 4))
    maintain(2)
    assert load(private + PAGE) == 4
    with refused(errno.ERANGE):
        client.call(kgsl.GPUMEM_SYNC_CACHE(id=number, op=1 << 31 | 1, offset=2 * PAGE, length=1))


def test_cleaning_does_not_undo_what_the_gpu_stored(client: Client, private: int):
    gpu = imported(client, private).gpuaddr
    client.run(mem_write(gpu, 5))
    client.machine.clean(private, PAGE)
    client.machine.invalidate(private, PAGE)
    assert load(private) == 5


def test_invalidating_writes_only_what_the_gpu_stored(client: Client, private: int):
    gpu = imported(client, private).gpuaddr
    client.run(mem_write(gpu + 16, 5))
    store(private + 12, 0xAAAA)  # a neighbour of the CPU's in the same line
    client.machine.invalidate(private, PAGE)
    assert (load(private + 12), load(private + 16)) == (0xAAAA, 5)
    assert gpu_copy(client, gpu + 12) == 0xAAAA  # dc civac cleans first


def test_many_scattered_stores_come_back(client: Client, private: int):
    gpu = imported(client, private, 4 * PAGE).gpuaddr
    space = client.machine.devices[0]._process.objects.memory
    values = np.random.default_rng(0).integers(0, 256, 4 * PAGE, dtype=np.uint8)
    values[::3] = 0
    space.write(gpu, values.tobytes())
    client.machine.invalidate(private, 4 * PAGE)
    assert ctypes.string_at(private, 4 * PAGE) == values.tobytes()


def test_anonymous_shared_memory_is_the_same_memory(client: Client):
    address = pages(kind=SHARED)
    gpu = imported(client, address).gpuaddr
    client.run(mem_write(gpu, 5))
    assert load(address) == 5
    store(address, 6)
    assert gpu_copy(client, gpu) == 6
    unmap(address)


def test_a_file_that_is_truncated_cannot_hurt(client: Client, tmp_path):
    path = tmp_path / "frame"
    path.write_bytes(bytes(PAGE))
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), PAGE) as view:
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        gpu = imported(client, address).gpuaddr
        file.truncate(0)
        client.run(mem_write(gpu, 5))
        client.machine.invalidate(address, PAGE)


def test_memory_that_is_gone_is_not_maintained(client: Client):
    address = pages(2)
    gpu = imported(client, address, 2 * PAGE).gpuaddr
    unmap(address, 2)
    client.run(mem_write(gpu, 5))
    client.machine.invalidate(address, 2 * PAGE)
    client.machine.clean(address, 2 * PAGE)
    client.call(kgsl.GPUMEM_SYNC_CACHE(gpuaddr=gpu, op=3))
    client.call(kgsl.SHAREDMEM_FREE(gpuaddr=gpu))


# ----- nothing leaks, nothing crashes -------------------------------------------------------------


def mapping_count() -> int:
    with open("/proc/self/maps") as maps:
        return sum(1 for _ in maps)


def test_10_000_rounds_of_import_and_free_leave_no_mapping(client: Client, private: int):
    def rounds(count: int) -> None:
        for _ in range(count):
            client.call(kgsl.SHAREDMEM_FREE(gpuaddr=imported(client, private).gpuaddr))

    rounds(10)
    before = mapping_count()
    rounds(10_000)
    assert mapping_count() <= before + 2
    assert client.machine.live_objects().imports == 0


def test_imports_freed_unmapped_or_remapped_during_a_dispatch_1_000_times():
    """A program keeps touching memory through the machine's mapping while the client takes it away."""
    started, go_on = threading.Semaphore(0), threading.Semaphore(0)
    target: list[int] = []

    def touch(run, memory: AddressSpace):
        rows = memory.table()
        row = next(row for row in rows if row[0] <= target[0] < row[1])
        host = (target[0] + int(row[2])) % 2**64
        started.release()
        for _ in range(20):
            ctypes.memset(host, 0x5A, PAGE)
            ctypes.string_at(host, PAGE)
        go_on.acquire()
        ctypes.memset(host, 0xA5, PAGE)  # after the client's free, unmap or remap
        return None

    order = random.Random(1)
    with Machine(mode="async", executor_factory=lambda: FakeExecutor(touch)) as machine:
        client = Client(machine)
        code, constants, ring = client.buffer(), client.buffer(), client.buffer()
        words = dispatch(code.gpu, constants.gpu)
        ring.words(words)
        command = client.command((ring.gpu, 4 * len(words)))
        before = None
        for i in range(1000):
            if i == 20:
                before = mapping_count()
            address = pages(kind=order.choice((PRIVATE, SHARED)))
            gpu = imported(client, address).gpuaddr
            target[:] = [gpu]
            timestamp = client.call(command).timestamp
            started.acquire()
            how = order.choice(("free", "unmap", "remap", "free and unmap"))
            size = PAGE
            if "free" in how:
                client.call(kgsl.SHAREDMEM_FREE(gpuaddr=gpu))
            if "unmap" in how:
                unmap(address)
            elif how == "remap":
                address = libc.mremap(address, PAGE, 2 * PAGE, 1, None)
                size = 2 * PAGE
            go_on.release()
            client.wait(timestamp)
            if "free" not in how:
                client.call(kgsl.SHAREDMEM_FREE(gpuaddr=gpu))
            if "unmap" not in how:
                unmap(address, size // PAGE)
        assert mapping_count() <= before + 4
        left = machine.live_objects()
        assert (left.imports, left.deferred, left.objects) == (0, 0, 3)


def test_a_buffer_unmapped_by_its_client_during_a_dispatch_stays_for_the_program():
    started, go_on = threading.Semaphore(0), threading.Semaphore(0)
    seen = []

    def touch(run, memory: AddressSpace):
        started.release()
        go_on.acquire()
        memory.write_u32(target.gpu, 5)
        seen.append(memory.read_u32(target.gpu))
        return None

    with Machine(mode="async", executor_factory=lambda: FakeExecutor(touch)) as machine:
        client = Client(machine)
        code, constants, target = client.buffer(), client.buffer(), client.buffer()
        timestamp = client.submit(dispatch(code.gpu, constants.gpu))
        started.acquire()
        target.free()
        assert machine.live_objects().deferred == 1
        go_on.release()
        client.wait(timestamp)
        assert seen == [5]
        assert machine.live_objects().deferred == 0
        report = client.lost(mem_write(target.gpu, 1))
        assert "was unmapped" in report.nearest


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_a_coherent_machine_needs_no_maintenance(mode: str):
    def add(run, memory: AddressSpace):
        memory.write_u32(gpu + 4, memory.read_u32(gpu) + 1)
        return None

    with Machine(mode=mode, coherent=True, executor_factory=lambda: FakeExecutor(add)) as machine:
        client = Client(machine)
        code, constants, address = client.buffer(), client.buffer(), pages()
        gpu = imported(client, address).gpuaddr
        store(address, 41)
        client.run(dispatch(code.gpu, constants.gpu) + mem_write(gpu + 8, 7))
        assert (load(address + 4), load(address + 8)) == (42, 7)
    unmap(address)
