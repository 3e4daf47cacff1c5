"""The virtual KGSL's calls: argument checks and errnos, properties, contexts, memory objects, mappings."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct

import pytest

from ringfence.errors import PortError
from ringfence.hardware.adreno import kgsl
from ringfence.hardware.adreno.kgsl import Property
from ringfence.virtual.machine import Machine
from virtual.adreno.client import CONTEXT, PAGE, SVM, Client, FakeExecutor, mem_write, refused

WRITE_BACK = 3 << 26


def address_of(thing) -> int:
    return ctypes.addressof(thing)


# ----- argument copies ----------------------------------------------------------------------------


def request(nr: int, size: int, direction: int = 3) -> int:
    return direction << 30 | size << 16 | 0x09 << 8 | nr


def test_handlers_are_selected_by_number_alone(client: Client):
    argument = kgsl.GPUOBJ_ALLOC(size=PAGE)
    wrong_magic = request(0x45, 48) & ~0xFF00
    assert client.machine.raw_ioctl(client.fd, wrong_magic, address_of(argument)) == 0
    assert argument.id == 1


def test_a_shorter_argument_is_zero_filled_and_only_its_part_comes_back(client: Client):
    argument = kgsl.GPUOBJ_ALLOC(size=PAGE, flags=0, id=77)
    assert client.machine.raw_ioctl(client.fd, request(0x45, 32), address_of(argument)) == 0
    assert argument.mmapsize == PAGE and argument.id == 77


def test_a_longer_argument_keeps_its_tail(client: Client):
    data = (ctypes.c_uint64 * 8)(PAGE, 0, 0, 0, 0, 0, 0xAA, 0xBB)
    assert client.machine.raw_ioctl(client.fd, request(0x45, 64), address_of(data)) == 0
    assert data[0] == PAGE and (data[6], data[7]) == (0xAA, 0xBB)


def test_nothing_is_copied_back_when_the_call_fails(client: Client):
    argument = kgsl.DRAWCTXT_CREATE(flags=0x2, drawctxt_id=9)
    assert client.machine.raw_ioctl(client.fd, argument.REQUEST, address_of(argument)) == -errno.EINVAL
    assert (argument.flags, argument.drawctxt_id) == (0x2, 9)


@pytest.mark.parametrize("pointer", [0, 0x1000, 1 << 63])
def test_bad_argument_pointers_give_efault(client: Client, pointer: int):
    assert client.machine.raw_ioctl(client.fd, kgsl.GPUOBJ_ALLOC.REQUEST, pointer) == -errno.EFAULT


def test_an_argument_in_read_only_memory_gives_efault(client: Client):
    with mmap.mmap(-1, PAGE) as page:
        argument = kgsl.GPUOBJ_ALLOC.from_buffer(page)
        argument.size = PAGE
        address = address_of(argument)
        libc = ctypes.CDLL(None)
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        assert libc.mprotect(address, PAGE, 1) == 0
        assert client.machine.raw_ioctl(client.fd, argument.REQUEST, address) == -errno.EFAULT
        assert libc.mprotect(address, PAGE, 3) == 0
        del argument


@pytest.mark.parametrize("nr", [0x01, 0x06, 0x11, 0x3B, 0x3D, 0x40, 0x58, 0x7F])
def test_unknown_and_unmodelled_numbers_give_enotty_and_a_note(client: Client, nr: int):
    data = (ctypes.c_uint64 * 16)()
    assert client.machine.raw_ioctl(client.fd, request(nr, 16), address_of(data)) == -errno.ENOTTY
    assert any(note.kind == "unsupported" and "ioctl" in note.topic for note in client.machine.notes)


def test_errors_carry_call_errno_and_reason(client: Client):
    with refused(errno.EINVAL) as caught:
        client.call(kgsl.GPUOBJ_INFO(id=99))
    assert "GPUOBJ_INFO(" in str(caught.value) and "id=0x63" in str(caught.value)
    assert "no memory object has the id 99" in str(caught.value)


def test_a_closed_descriptor_gives_ebadf(machine: Machine):
    fd = machine.open("/dev/kgsl-3d0")
    machine.close(fd)
    with refused(errno.EBADF):
        machine.ioctl(fd, kgsl.GPUOBJ_INFO(id=1))
    with refused(errno.EBADF):
        machine.mmap(fd, PAGE, PAGE)
    with refused(errno.ENOENT):
        machine.open("/dev/kgsl-3d1")


# ----- properties ---------------------------------------------------------------------------------


def get_property(client: Client, kind: int, size: int) -> bytes:
    data = (ctypes.c_uint8 * max(1, size))()
    client.call(kgsl.DEVICE_GETPROPERTY(type=kind, value=address_of(data), sizebytes=size))
    return bytes(data)[:size]


def test_device_info(client: Client):
    info = kgsl.DEVINFO.from_buffer_copy(get_property(client, Property.DEVICE_INFO, 40))
    assert (info.device_id, info.chip_id, info.mmu_enabled) == (1, 0x06030001, 1)
    assert (info.gmem_gpubaseaddr, info.gpu_id, info.gmem_sizebytes) == (0, 0, 1 << 20)


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [
        (Property.DEVICE_SHADOW, 24, struct.pack("<QQIxxxx", 0xEFFFF000, 8 * PAGE, 0x204)),
        (Property.VERSION, 16, struct.pack("<4I", 3, 14, 3, 1)),
        (Property.MMU_ENABLE, 4, struct.pack("<I", 1)),
        (Property.HIGHEST_BANK_BIT, 4, struct.pack("<I", 15)),
        (Property.DEVICE_BITNESS, 4, struct.pack("<I", 48)),
        (Property.IS_LPAC_ENABLED, 4, struct.pack("<I", 0)),
        (Property.GPU_MODEL, 11, b"Adreno630v2"),
        (Property.UCHE_GMEM_VADDR, 8, bytes(8)),
        (Property.DEVICE_INFO, 8, struct.pack("<II", 1, 0x06030001)),  # as much as was asked for
    ],
)
def test_properties(client: Client, kind, size, expected):
    assert get_property(client, kind, size) == expected


@pytest.mark.parametrize(
    ("kind", "size", "value", "code"),
    [
        (0x99, 4, None, errno.ENODEV),
        (Property.PWR_CONSTRAINT, 24, None, errno.ENODEV),
        (Property.VERSION, 12, None, errno.EINVAL),
        (Property.GPU_RESET_STAT, 8, None, errno.EINVAL),
        (Property.GPU_RESET_STAT, 4, None, errno.EINVAL),  # context 0 does not exist
        (Property.DEVICE_INFO, 40, 0, errno.EFAULT),
    ],
)
def test_property_errors(client: Client, kind, size, value, code):
    data = (ctypes.c_uint8 * 64)()
    address = address_of(data) if value is None else value
    with refused(code):
        client.call(kgsl.DEVICE_GETPROPERTY(type=kind, value=address, sizebytes=size))


def constraint(client: Client, *, kind=1, context=None, level=1, data=None, size=4, sizebytes=24, prop=0x12):
    word = ctypes.c_uint32(level)
    value = kgsl.DEVICE_CONSTRAINT(
        type=kind,
        context_id=client.context if context is None else context,
        data=address_of(word) if data is None else data,
        size=size,
    )
    client.call(kgsl.SETPROPERTY(type=prop, value=address_of(value), sizebytes=sizebytes))


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_power_constraints_are_accepted(client: Client, kind: int):
    constraint(client, kind=kind)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"sizebytes": 16}, errno.EINVAL),
        ({"kind": 4}, errno.EINVAL),
        ({"context": 99}, errno.EINVAL),
        ({"size": 8}, errno.EINVAL),
        ({"level": 2}, errno.EINVAL),
        ({"data": 0}, errno.EFAULT),
        ({"prop": 0x01}, errno.ENODEV),
    ],
)
def test_power_constraint_errors(client: Client, changes, code):
    with refused(code):
        constraint(client, **changes)


# ----- contexts -----------------------------------------------------------------------------------


def test_context_flags_are_completed_and_written_back(client: Client):
    assert client.call(kgsl.DRAWCTXT_CREATE(flags=CONTEXT)).flags == CONTEXT | 0x40
    assert client.call(kgsl.DRAWCTXT_CREATE(flags=0x12)).flags == 0x12 | 0x40 | 8 << 12
    assert client.call(kgsl.DRAWCTXT_CREATE(flags=0x12 | 1 << 31 | 1)).flags == 0x12 | 0x40 | 8 << 12


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (0x02, errno.EINVAL),
        (0x10, errno.EINVAL),
        (0x12 | 0x20000, errno.EOPNOTSUPP),
        (0x12 | 0x20000000, errno.EOPNOTSUPP),
    ],
)
def test_context_creation_errors(client: Client, flags, code):
    with refused(code):
        client.call(kgsl.DRAWCTXT_CREATE(flags=flags))


def test_context_ids_start_at_one_and_are_reused(client: Client):
    assert client.context == 1
    second = client.create_context()
    client.call(kgsl.DRAWCTXT_DESTROY(drawctxt_id=second))
    assert client.create_context() == second == 2


def test_a_process_may_have_about_200_contexts(client: Client):
    with refused(errno.ENOSPC):
        for _ in range(1000):
            client.create_context()
    assert client.machine.live_objects().contexts == 201


def test_contexts_belong_to_the_descriptor_that_made_them(client: Client):
    other = Client(client.machine)
    for argument in (
        kgsl.DRAWCTXT_DESTROY(drawctxt_id=client.context),
        kgsl.CMDSTREAM_READTIMESTAMP_CTXTID(context_id=client.context, type=2),
        kgsl.DEVICE_WAITTIMESTAMP_CTXTID(context_id=client.context, timestamp=0),
        kgsl.GPU_COMMAND(context_id=client.context),
    ):
        with refused(errno.EINVAL):
            other.call(argument)


def test_a_destroyed_context_is_unknown(client: Client):
    client.call(kgsl.DRAWCTXT_DESTROY(drawctxt_id=client.context))
    with refused(errno.EINVAL):
        client.call(kgsl.DRAWCTXT_DESTROY(drawctxt_id=client.context))
    with refused(errno.EINVAL):
        client.call(kgsl.GPU_COMMAND(context_id=client.context))


# ----- memory objects -----------------------------------------------------------------------------


def test_allocation_rounds_up_and_reports_the_accepted_flags(client: Client):
    made = client.call(kgsl.GPUOBJ_ALLOC(size=5000, flags=12 << 16 | SVM | 1 << 50 | 7 << 5))
    assert (made.id, made.size, made.mmapsize, made.flags) == (1, 8192, 8192, 12 << 16 | SVM)
    through = client.call(kgsl.GPUOBJ_ALLOC(size=1, flags=2 << 26 | 40 << 16 | 1 << 31))
    assert through.flags == WRITE_BACK | 25 << 16  # write-through is write-back on arm64, no I/O coherence


@pytest.mark.parametrize(
    ("size", "flags", "code"),
    [
        (0, 0, errno.EINVAL),
        (1 << 32, 0, errno.EINVAL),
        ((1 << 32) - 1, 0, errno.ENOMEM),
        (PAGE, 1 << 3, errno.EOPNOTSUPP),
        (PAGE, 1 << 30, errno.EOPNOTSUPP),
        (PAGE, 1 << 34, errno.EOPNOTSUPP),
    ],
)
def test_allocation_errors(executor: FakeExecutor, size, flags, code):
    with Machine(memory_bytes=1 << 30, executor_factory=lambda: executor) as machine:
        client = Client(machine)
        with refused(code):
            client.call(kgsl.GPUOBJ_ALLOC(size=size, flags=flags))
        with refused(code if flags < 1 << 32 else errno.EINVAL):
            client.call(kgsl.GPUMEM_ALLOC_ID(size=size if flags < 1 << 32 else 0, flags=flags & 0xFFFFFFFF))


def test_device_memory_runs_out_and_comes_back(executor: FakeExecutor):
    with Machine(memory_bytes=4 * PAGE, executor_factory=lambda: executor) as machine:
        client = Client(machine)
        made = [client.call(kgsl.GPUOBJ_ALLOC(size=PAGE)) for _ in range(4)]
        with refused(errno.ENOMEM):
            client.call(kgsl.GPUOBJ_ALLOC(size=1))
        client.call(kgsl.GPUOBJ_FREE(id=made[0].id))
        assert client.call(kgsl.GPUOBJ_ALLOC(size=1)).id == made[0].id


def test_without_cpu_map_the_gpu_address_is_known_at_once_and_differs_from_the_cpus(client: Client):
    made = client.call(kgsl.GPUOBJ_ALLOC(size=PAGE, flags=16 << 16))
    gpu = client.call(kgsl.GPUOBJ_INFO(id=made.id)).gpuaddr
    assert 0x40_0000_0000 <= gpu < 0x80_0000_0000 and gpu % (1 << 16) == 0
    cpu = client.machine.mmap(client.fd, PAGE, made.id << 12)
    assert cpu != gpu
    client.run(mem_write(gpu, 0x55))
    assert ctypes.string_at(cpu, 4) == b"U\0\0\0"


def test_with_cpu_map_the_address_comes_with_mmap_and_is_the_cpus(client: Client):
    made = client.call(kgsl.GPUOBJ_ALLOC(size=PAGE, flags=SVM))
    assert client.call(kgsl.GPUOBJ_INFO(id=made.id)).gpuaddr == 0
    cpu = client.machine.mmap(client.fd, PAGE, made.id << 12)
    info = client.call(kgsl.GPUOBJ_INFO(id=made.id))
    assert info.gpuaddr == cpu and 0x10_0000_0000 <= cpu < 0x40_0000_0000
    assert (info.size, info.va_len, info.va_addr, info.flags) == (PAGE, PAGE, 0, SVM | 12 << 16)


def test_shared_addresses_avoid_what_the_process_has_mapped(client: Client):
    first = client.buffer()
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    )
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    squatter = libc.mmap(first.gpu + 0x11000, 1 << 20, 3, 0x100022, -1, 0)
    assert squatter == first.gpu + 0x11000
    second = client.buffer()
    assert not squatter <= second.gpu < squatter + (1 << 20)
    libc.munmap(squatter, 1 << 20)


def test_32_bit_objects_lie_below_4_gib(client: Client):
    made = client.call(kgsl.GPUOBJ_ALLOC(size=PAGE, flags=1 << 32))
    assert client.call(kgsl.GPUOBJ_INFO(id=made.id)).gpuaddr < 1 << 32


def test_memory_is_zeroed_even_if_it_was_used_before(client: Client):
    first = client.buffer()
    first.write(b"x" * PAGE)
    first.free()
    assert client.buffer().read(PAGE) == bytes(PAGE)


def mapped(client: Client, flags: int = 0, size: int = PAGE) -> int:
    return client.call(kgsl.GPUOBJ_ALLOC(size=size, flags=flags)).id


@pytest.mark.parametrize(
    ("flags", "length", "offset", "code"),
    [
        (0, PAGE, 99 << 12, errno.EINVAL),
        (0, 0, None, errno.EINVAL),
        (0, PAGE, 0x1001, errno.EINVAL),
        (SVM, 2 * PAGE, None, errno.ERANGE),
        (0, 2 * PAGE, None, errno.ERANGE),
        (0, PAGE, 0xEFFFF000, errno.EPERM),
    ],
)
def test_mmap_errors(client: Client, flags, length, offset, code):
    number = mapped(client, flags)
    with refused(code):
        client.machine.mmap(client.fd, length, number << 12 if offset is None else offset)


def test_a_length_below_a_page_is_a_page(client: Client):
    assert client.machine.mmap(client.fd, 10, mapped(client) << 12)


def test_a_shared_object_can_be_mapped_once_others_again_and_again(client: Client):
    shared, plain = mapped(client, SVM), mapped(client)
    client.machine.mmap(client.fd, PAGE, shared << 12)
    with refused(errno.EBUSY):
        client.machine.mmap(client.fd, PAGE, shared << 12)
    assert len({client.machine.mmap(client.fd, PAGE, plain << 12) for _ in range(3)}) == 3


def test_an_offset_that_is_no_id_is_tried_as_a_gpu_address(client: Client):
    gpu = client.call(kgsl.GPUOBJ_INFO(id=mapped(client))).gpuaddr
    assert client.machine.mmap(client.fd, PAGE, gpu)


def test_the_memory_store_is_mapped_for_reading_and_shows_timestamps(client: Client):
    with refused(errno.EINVAL):
        client.machine.mmap(client.fd, PAGE, 0xEFFFF000, writable=False)
    address = client.machine.mmap(client.fd, 8 * PAGE, 0xEFFFF000, writable=False)
    client.run(mem_write(client.buffer().gpu, 1))
    record = kgsl.DEVMEMSTORE.from_buffer_copy(ctypes.string_at(address + 40 * client.context, 40))
    assert (record.soptimestamp, record.eoptimestamp) == (1, 1)
    client.machine.munmap(address, 8 * PAGE)


def test_free_errors(client: Client):
    with refused(errno.EINVAL):
        client.call(kgsl.GPUOBJ_FREE(id=99))
    with refused(errno.EINVAL):
        client.call(kgsl.GPUMEM_FREE_ID(id=99))
    with refused(errno.EINVAL):
        client.call(kgsl.SHAREDMEM_FREE(gpuaddr=0x40_0000_0000))
    with refused(errno.EINVAL):
        client.call(kgsl.GPUOBJ_FREE(id=mapped(client), flags=2))
    number = mapped(client)
    client.call(kgsl.GPUOBJ_FREE(id=number))
    with refused(errno.EINVAL):
        client.call(kgsl.GPUOBJ_FREE(id=number))


def test_a_mapping_outlives_the_free_and_keeps_the_gpu_mapping(client: Client):
    buffer = client.buffer()
    client.call(kgsl.GPUOBJ_FREE(id=buffer.id))
    with refused(errno.EBUSY):
        client.call(kgsl.GPUOBJ_FREE(id=buffer.id))
    client.run(mem_write(buffer.gpu, 7))
    assert buffer.u32() == 7
    client.machine.munmap(buffer.address, buffer.size)
    with refused(errno.EINVAL):
        client.call(kgsl.GPUOBJ_INFO(id=buffer.id))
    report = client.lost(mem_write(buffer.gpu, 7))
    assert "was unmapped" in report.nearest


def test_munmap_may_take_a_mapping_apart(client: Client):
    buffer = client.buffer(3 * PAGE)
    client.call(kgsl.GPUOBJ_FREE(id=buffer.id))
    before = client.machine.live_objects()
    client.machine.munmap(buffer.address + PAGE, PAGE)
    buffer.write(b"ab")
    assert client.machine.live_objects().client_mappings == before.client_mappings
    client.machine.munmap(buffer.address, PAGE)
    client.machine.munmap(buffer.address + 2 * PAGE, PAGE)
    assert client.machine.live_objects().client_mappings == before.client_mappings - 1
    with refused(errno.EINVAL):
        client.machine.munmap(buffer.address, PAGE)


def test_addresses_are_reused_late(client: Client):
    seen = set()
    for _ in range(100):
        buffer = client.buffer()
        seen.add(buffer.gpu)
        buffer.free()
    assert len(seen) == 100


def test_older_allocation_calls(client: Client):
    old = client.call(kgsl.GPUMEM_ALLOC(size=100, flags=SVM))
    assert old.size == PAGE and old.gpuaddr and not old.flags & SVM
    made = client.call(kgsl.GPUMEM_ALLOC_ID(size=100))
    assert (made.size, made.mmapsize) == (PAGE, PAGE) and made.gpuaddr
    by_id = client.call(kgsl.GPUMEM_GET_INFO(id=made.id))
    by_address = client.call(kgsl.GPUMEM_GET_INFO(gpuaddr=made.gpuaddr + 100))
    assert bytes(by_id) == bytes(by_address)
    assert (by_id.id, by_id.size, by_id.mmapsize, by_id.useraddr) == (made.id, PAGE, PAGE, 0)
    for argument in (
        kgsl.GPUMEM_GET_INFO(id=99),
        kgsl.GPUMEM_GET_INFO(),
        kgsl.GPUMEM_GET_INFO(gpuaddr=0x1000),
    ):
        with refused(errno.EINVAL):
            client.call(argument)
    client.call(kgsl.GPUMEM_FREE_ID(id=made.id))
    client.call(kgsl.SHAREDMEM_FREE(gpuaddr=old.gpuaddr + 0x123))


def test_metadata_names_objects_in_fault_reports(client: Client):
    buffer = client.buffer(label="first name")
    name = ctypes.create_string_buffer(b"second name")
    client.call(
        kgsl.GPUOBJ_SET_INFO(id=buffer.id, flags=1, metadata=address_of(name), metadata_len=len(name))
    )
    assert "'second name'" in client.lost(mem_write(buffer.gpu + PAGE, 1)).nearest
    with refused(errno.EINVAL):
        client.call(kgsl.GPUOBJ_SET_INFO(id=99, flags=1))
    with refused(errno.EFAULT):
        client.call(kgsl.GPUOBJ_ALLOC(size=PAGE, metadata=1, metadata_len=8))


def test_objects_are_shared_by_the_descriptors_of_a_process_and_freed_with_the_last(machine: Machine):
    first, second = Client(machine), Client(machine)
    number = mapped(first)
    assert second.call(kgsl.GPUOBJ_INFO(id=number)).size == PAGE
    machine.close(first.fd)
    assert second.call(kgsl.GPUOBJ_INFO(id=number)).size == PAGE
    assert machine.live_objects().contexts == 1
    machine.close(second.fd)
    assert machine.live_objects().total == 0


# ----- cache maintenance --------------------------------------------------------------------------


@pytest.fixture
def cached(client: Client) -> int:
    return mapped(client, WRITE_BACK, 2 * PAGE)


RANGE = 1 << 31


@pytest.mark.parametrize(
    ("op", "offset", "length", "code"),
    [
        (0, 0, 0, errno.EINVAL),
        (RANGE, 0, 64, errno.EINVAL),
        (RANGE | 1, 0, 0, errno.EINVAL),
        (RANGE | 1, PAGE, PAGE + 1, errno.ERANGE),
        (RANGE | 2, 1 << 63, 1 << 63, errno.ERANGE),
        (1, 1 << 40, 1 << 40, 0),  # without RANGE the whole object
        (RANGE | 3, PAGE, PAGE, 0),
    ],
)
def test_cache_ranges(client: Client, cached: int, op, offset, length, code):
    entry = kgsl.GPUOBJ_SYNC_OBJ(offset=offset, length=length, id=cached, op=op)
    calls = (
        kgsl.GPUMEM_SYNC_CACHE(id=cached, op=op, offset=offset, length=length),
        kgsl.GPUOBJ_SYNC(objs=address_of(entry), obj_len=24, count=1),
    )
    for argument in calls:
        if code:
            with refused(code):
                client.call(argument)
        else:
            client.call(argument)


def test_objects_that_are_not_cached_need_no_maintenance(client: Client):
    number = mapped(client)
    client.call(kgsl.GPUMEM_SYNC_CACHE(id=number, op=RANGE | 1, offset=1 << 40, length=1))
    with refused(errno.EINVAL):
        client.call(kgsl.GPUMEM_SYNC_CACHE(id=number, op=0))


def test_cache_maintenance_finds_objects_by_id_or_address(client: Client, cached: int):
    gpu = client.call(kgsl.GPUOBJ_INFO(id=cached)).gpuaddr
    client.call(kgsl.GPUMEM_SYNC_CACHE(gpuaddr=gpu + 5, op=1))
    for argument in (kgsl.GPUMEM_SYNC_CACHE(op=1), kgsl.GPUMEM_SYNC_CACHE(id=99, gpuaddr=gpu, op=1)):
        with refused(errno.EINVAL):
            client.call(argument)


def test_lists_of_ranges(client: Client, cached: int):
    entries = (kgsl.GPUOBJ_SYNC_OBJ * 129)()
    for i in range(129):
        entries[i] = kgsl.GPUOBJ_SYNC_OBJ(id=cached if i % 2 else 99, op=1)  # unknown ids are skipped
    client.call(kgsl.GPUOBJ_SYNC(objs=address_of(entries), obj_len=24, count=128))
    for count in (0, 129):
        with refused(errno.EINVAL):
            client.call(kgsl.GPUOBJ_SYNC(objs=address_of(entries), obj_len=24, count=count))
    with refused(errno.EFAULT):
        client.call(kgsl.GPUOBJ_SYNC(objs=0x1000, obj_len=24, count=1))


def test_bulk_lists(client: Client, cached: int):
    ids = (ctypes.c_uint32 * 1025)(*([cached, 99] * 512))
    client.call(kgsl.GPUMEM_SYNC_CACHE_BULK(id_list=address_of(ids), count=1024, op=3))
    for argument, code in (
        (kgsl.GPUMEM_SYNC_CACHE_BULK(id_list=address_of(ids), count=0, op=3), errno.EINVAL),
        (kgsl.GPUMEM_SYNC_CACHE_BULK(id_list=address_of(ids), count=1025, op=3), errno.EINVAL),
        (kgsl.GPUMEM_SYNC_CACHE_BULK(id_list=0, count=1, op=3), errno.EINVAL),
        (kgsl.GPUMEM_SYNC_CACHE_BULK(id_list=0x1000, count=1, op=3), errno.EFAULT),
        (kgsl.GPUMEM_SYNC_CACHE_BULK(id_list=address_of(ids), count=1, op=0), errno.EINVAL),
    ):
        with refused(code):
            client.call(argument)


# ----- sysfs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpu_model", "Adreno630v2\n"),
        ("idle_timer", "80000\n"),
        ("max_pwrlevel", "0\n"),
        ("force_clk_on", "0\n"),
        ("devfreq/governor", "msm-adreno-tz\n"),
        ("gpubusy", "      0 1000000\n"),
    ],
)
def test_sysfs(machine: Machine, name, text):
    assert machine.read_text(f"/sys/class/kgsl/kgsl-3d0/{name}") == text


def test_unknown_sysfs_files_do_not_exist(machine: Machine):
    for path in ("/sys/class/kgsl/kgsl-3d0/nonsense", "/sys/class/kgsl/kgsl-3d9/gpu_model", "/etc/passwd"):
        with refused(errno.ENOENT):
            machine.read_text(path)


def test_several_devices_have_nodes_and_address_spaces_of_their_own(executor: FakeExecutor):
    with Machine(("a630", "a660"), executor_factory=lambda: executor) as machine:
        first, second = machine.open("/dev/kgsl-3d0"), machine.open("/dev/kgsl-3d1")
        data = (ctypes.c_uint32 * 10)()
        machine.ioctl(second, kgsl.DEVICE_GETPROPERTY(type=1, value=address_of(data), sizebytes=40))
        assert data[1] == 0x06060001
        argument = kgsl.GPUOBJ_ALLOC(size=PAGE)
        machine.ioctl(first, argument)
        with pytest.raises(PortError):
            machine.ioctl(second, kgsl.GPUOBJ_INFO(id=argument.id))


def test_objects_take_no_descriptors_of_the_process(client: Client):
    before = len(os.listdir("/proc/self/fd"))
    buffers = [client.buffer() for _ in range(50)]
    assert len(os.listdir("/proc/self/fd")) == before
    for buffer in buffers:
        buffer.free()
