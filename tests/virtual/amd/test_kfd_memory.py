"""Memory of the virtual KFD: allocation, mapping, import, and every errno of those calls."""

from __future__ import annotations

import ctypes
import errno
import mmap

import numpy as np
import pytest

from ringfence.errors import PortError
from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.kfd import AllocFlags
from ringfence.hardware.amd.pm4 import Opcode
from ringfence.hardware.amd.topology import NODES_ROOT
from ringfence.virtual.machine import LiveObjects, Machine
from virtual.amd.client import (
    GTT,
    PAGE,
    USERPTR,
    USUAL,
    VRAM,
    Client,
    FakeExecutor,
    Queue,
    halves,
    op,
    refused,
    wait_memory,
    write,
)

UNKNOWN_GPU = 0x1234


def private_page(pages: int = 1) -> tuple[mmap.mmap, int]:
    memory = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


def shared_page(pages: int = 1) -> tuple[mmap.mmap, int]:
    memory = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
    return memory, ctypes.addressof(ctypes.c_char.from_buffer(memory))


# ----- ACQUIRE_VM ---------------------------------------------------------------------------------


def test_acquire_vm_takes_the_render_node_of_the_gpu_once(client: Client):
    client.call(kfd.ACQUIRE_VM(drm_fd=client.drm, gpu_id=client.gpu_id))
    other = client.machine.open("/dev/dri/renderD128")
    with refused(errno.EBUSY, "another descriptor"):
        client.call(kfd.ACQUIRE_VM(drm_fd=other, gpu_id=client.gpu_id))


@pytest.mark.parametrize("which", ["nothing", "kfd"])
def test_acquire_vm_refuses_what_is_no_render_node(client: Client, which: str):
    fd = 99 if which == "nothing" else client.fd
    with refused(errno.EINVAL, "no render node"):
        client.call(kfd.ACQUIRE_VM(drm_fd=fd, gpu_id=client.gpu_id))
    with refused(errno.EINVAL, "gpu_id"):
        client.call(kfd.ACQUIRE_VM(drm_fd=client.drm, gpu_id=UNKNOWN_GPU))


def test_memory_needs_an_address_space_first(machine: Machine):
    fd = machine.open("/dev/kfd")
    gpu_id = int(machine.read_text("/sys/devices/virtual/kfd/kfd/topology/nodes/1/gpu_id"))
    with refused(errno.ENODEV, "ACQUIRE_VM comes first"):
        machine.ioctl(fd, kfd.ALLOC_MEMORY_OF_GPU(size=PAGE, flags=VRAM, gpu_id=gpu_id))


# ----- ALLOC --------------------------------------------------------------------------------------


def test_an_object_is_reached_by_cpu_and_gpu_at_the_address_that_the_client_chose(client: Client):
    buffer = client.buffer(3 * PAGE)
    Queue(client).run(write(buffer.address + 2 * PAGE, 0x1234))
    assert buffer.u32(2 * PAGE) == 0x1234


def test_the_gpus_address_need_not_be_the_hosts(client: Client):
    made = client.alloc(va_addr=0x20_0000_0000)
    client.map(made.handle)
    host = client.machine.mmap(client.drm, PAGE, made.mmap_offset)
    assert host != 0x20_0000_0000
    Queue(client).run(write(0x20_0000_0010, 0x1234))
    assert ctypes.c_uint32.from_address(host + 0x10).value == 0x1234


def test_handles_name_the_gpu_and_sizes_are_rounded_to_pages(client: Client):
    made = client.alloc(100)
    assert made.handle >> 32 == client.gpu_id and made.size == 100
    with refused(errno.EINVAL, "exceed"):
        client.machine.mmap(client.drm, 2 * PAGE, made.mmap_offset)
    address = client.machine.mmap(client.drm, PAGE, made.mmap_offset)
    assert ctypes.string_at(address, PAGE) == bytes(PAGE)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"size": 0}, "size is 0"),
        ({"gpu_id": UNKNOWN_GPU}, "gpu_id"),
        ({"flags": USUAL}, "do not say what memory"),
        ({"flags": USERPTR, "mmap_offset": 0}, "host address"),
        ({"flags": USERPTR, "mmap_offset": 0x12345}, "multiple of 4096"),
        ({"flags": USUAL | AllocFlags.DOORBELL, "size": PAGE}, "doorbells have 0x2000"),
        ({"flags": USUAL | AllocFlags.MMIO_REMAP | AllocFlags.GTT, "size": 2 * PAGE}, "0x1000"),
        ({"flags": VRAM | AllocFlags.AQL_QUEUE_MEM}, "not modelled"),
    ],
)
def test_alloc_refuses_with_einval(client: Client, fields: dict[str, int], text: str):
    with refused(errno.EINVAL, text):
        client.alloc(**{"size": PAGE, "flags": VRAM} | fields)


def test_public_vram_needs_a_large_bar():
    with Machine(("gfx1100",), large_bar=False, executor_factory=FakeExecutor) as machine:
        client = Client(machine)
        with refused(errno.EINVAL, "large BAR"):
            client.alloc(flags=VRAM)
        client.alloc(flags=VRAM & ~AllocFlags.PUBLIC)


def test_memory_runs_out_and_comes_back():
    with Machine(("gfx1100",), memory_bytes=64 << 20, executor_factory=FakeExecutor) as machine:
        client = Client(machine)
        assert client.call(kfd.AVAILABLE_MEMORY(gpu_id=client.gpu_id)).available == 64 << 20
        made = client.alloc(40 << 20)
        assert client.call(kfd.AVAILABLE_MEMORY(gpu_id=client.gpu_id)).available == 24 << 20
        with refused(errno.ENOMEM, "exceed"):
            client.alloc(40 << 20)
        client.call(kfd.FREE_MEMORY_OF_GPU(handle=made.handle))
        client.alloc(40 << 20)
    with refused(errno.EBADF):
        client.alloc(PAGE)


def test_available_memory_of_an_unknown_gpu(client: Client):
    with refused(errno.EINVAL):
        client.call(kfd.AVAILABLE_MEMORY(gpu_id=UNKNOWN_GPU))


def test_remapped_registers_are_refused_and_noted(client: Client):
    with refused(errno.ENOMEM):
        client.alloc(flags=USUAL | AllocFlags.MMIO_REMAP)
    assert "KFD remapped registers" in [note.topic for note in client.machine.notes]


def test_the_gpu_can_ring_doorbells_that_are_mapped_for_it(client: Client):
    queue, data = Queue(client), client.buffer()
    address = client.machine.reserve(kfd.DOORBELL_SLICE_BYTES)
    flags = USUAL | AllocFlags.DOORBELL
    made = client.alloc(kfd.DOORBELL_SLICE_BYTES, flags, va_addr=address)
    client.map(made.handle)
    second = Queue(client)
    second.put([*write(data.address, 7), *client.signal()])
    second.pointers.write(second.wptr.to_bytes(8, "little"), 56)
    bell = address + kfd.split_doorbell_offset(second.doorbell_offset)[1]
    queue.submit(write(bell, second.wptr))
    client.wait()
    assert data.u32() == 7


# ----- MAP, UNMAP, FREE ---------------------------------------------------------------------------


def test_map_and_unmap_count_the_devices_that_they_did(client: Client):
    made = client.alloc(va_addr=0x10_0000_0000)
    assert client.map(made.handle).n_success == 1
    assert client.map(made.handle).n_success == 1, "mapping twice is no error"
    with refused(errno.EBUSY, "still maps"):
        client.call(kfd.FREE_MEMORY_OF_GPU(handle=made.handle))
    assert client.unmap(made.handle).n_success == 1
    assert client.unmap(made.handle).n_success == 1
    client.call(kfd.FREE_MEMORY_OF_GPU(handle=made.handle))
    with refused(errno.EINVAL, "handle"):
        client.call(kfd.FREE_MEMORY_OF_GPU(handle=made.handle))


@pytest.mark.parametrize("kind", [kfd.MAP_MEMORY_TO_GPU, kfd.UNMAP_MEMORY_FROM_GPU])
def test_map_and_unmap_refuse(client: Client, kind):
    handle = client.alloc(va_addr=0x10_0000_0000).handle
    array = (ctypes.c_uint32 * 2)(client.gpu_id, UNKNOWN_GPU)
    pointer = ctypes.addressof(array)
    for code, fields in (
        (errno.EINVAL, {"n_devices": 0}),
        (errno.EINVAL, {"n_success": 2}),
        (errno.EFAULT, {"device_ids_array_ptr": 8}),
        (errno.ENOMEM, {"handle": handle + 1}),
        (errno.EINVAL, {"handle": 5}),
    ):
        usual = {"handle": handle, "device_ids_array_ptr": pointer, "n_devices": 1, "n_success": 0}
        with refused(code):
            client.call(kind(**usual | fields))
    argument = kind(handle=handle, device_ids_array_ptr=pointer, n_devices=2)
    with refused(errno.EINVAL):
        client.call(argument)
    assert argument.n_success == 1, "outputs are copied back although the call failed"


def test_addresses_cannot_be_mapped_twice_or_outside_the_aperture(client: Client):
    first, second = (client.alloc(va_addr=0x10_0000_0000) for _ in range(2))
    client.map(first.handle)
    with refused(errno.EINVAL, "overlaps"):
        client.map(second.handle)
    for address in (0, 0x1000, 0x10_0000_0010, 1 << 47):
        with refused(errno.EINVAL, "are not pages of"):
            client.map(client.alloc(va_addr=address).handle)


def test_the_event_page_cannot_be_freed(client: Client):
    client.unmap(client.page.handle)
    with refused(errno.EPERM, "event page"):
        client.call(kfd.FREE_MEMORY_OF_GPU(handle=client.page.handle))


def test_what_a_queue_uses_cannot_be_unmapped(client: Client):
    queue = Queue(client)
    for buffer in queue.buffers:
        with refused(errno.EBUSY, "a queue uses"):
            client.unmap(buffer.handle)
    queue.destroy()


def test_a_freed_object_lives_as_long_as_the_client_has_it_mapped(client: Client):
    buffer = client.buffer()
    before = client.machine.live_objects().backings
    client.unmap(buffer.handle)
    client.call(kfd.FREE_MEMORY_OF_GPU(handle=buffer.handle))
    buffer.write(b"still here")
    assert client.machine.live_objects().backings == before
    client.machine.munmap(buffer.address, buffer.size)
    assert client.machine.live_objects().backings == before - 1


def test_memory_of_one_gpu_can_be_mapped_on_another():
    with Machine(("gfx1100", "gfx1100"), executor_factory=FakeExecutor) as machine:
        one = Client(machine)
        two = Client(machine, 1, beside=one)
        buffer = one.buffer()
        assert one.map(buffer.handle, one.gpu_id, two.gpu_id).n_success == 2
        Queue(two).run(write(buffer.address, 5))
        assert buffer.u32() == 5


@pytest.mark.parametrize(
    ("flags", "large_bar", "reached"),
    [(AllocFlags.VRAM, True, True), (AllocFlags.VRAM, False, False), (GTT, False, True)],
)
def test_vram_of_another_gpu_is_reached_with_a_large_bar(flags: int, large_bar: bool, reached: bool):
    with Machine(("gfx1100", "gfx1100"), executor_factory=FakeExecutor, large_bar=large_bar) as machine:
        one = Client(machine)
        two = Client(machine, 1, beside=one)
        memory = one.alloc(PAGE, flags | kfd.AllocFlags.WRITABLE, va_addr=machine.reserve(PAGE))
        for node, peer in ((1, 2), (2, 1)):
            link = f"{NODES_ROOT}/{node}/p2p_links/0/properties"
            if large_bar:
                assert f"node_to {peer}\n" in machine.read_text(link)
            else:
                with pytest.raises(PortError):
                    machine.read_text(link)
        if reached:
            assert one.map(memory.handle, two.gpu_id).n_success == 1
        else:
            with refused(errno.EINVAL, "no large BAR"):
                one.map(memory.handle, two.gpu_id)


def test_memory_that_a_gpu_does_not_map_is_not_there_for_it():
    with Machine(("gfx1100", "gfx1100"), executor_factory=FakeExecutor) as machine:
        one = Client(machine)
        two = Client(machine, 1, beside=one)
        report = Queue(two).lost(write(one.buffer().address, 5))
        assert report.kind == "memory"


# ----- mmap ---------------------------------------------------------------------------------------


def test_mmap_refuses_unknown_offsets_and_imports(client: Client):
    memory, address = shared_page()
    imported = client.alloc(PAGE, USERPTR, va_addr=address, mmap_offset=address)
    with refused(errno.EPERM, "client's own"):
        client.machine.mmap(client.drm, PAGE, imported.mmap_offset)
    with refused(errno.EINVAL, "mmap offset"):
        client.machine.mmap(client.drm, PAGE, 0x7000)
    with refused(errno.EINVAL, "page aligned"):
        client.machine.mmap(client.drm, PAGE, imported.mmap_offset + 1)
    del memory


def test_a_mapping_at_an_address_must_lie_in_a_reserved_range(client: Client):
    made = client.alloc(2 * PAGE)
    start = client.machine.reserve(4 * PAGE)
    with refused(errno.EINVAL, "reserved"):
        client.machine.mmap(client.drm, 2 * PAGE, made.mmap_offset, address=start + 3 * PAGE)
    with refused(errno.EINVAL, "multiple"):
        client.machine.mmap(client.drm, PAGE, made.mmap_offset, address=start + 8)
    address = client.machine.mmap(client.drm, 2 * PAGE, made.mmap_offset, address=start + PAGE)
    ctypes.memset(address, 1, 2 * PAGE)
    assert address == start + PAGE


def test_a_client_that_reserves_by_itself_says_so(client: Client):
    memory, address = private_page(2)
    address = (address + PAGE - 1) & -PAGE
    made = client.alloc(PAGE)
    assert client.machine.mmap(client.drm, PAGE, made.mmap_offset, address=address, anywhere=True) == address
    client.machine.munmap(address, PAGE)
    del memory


def test_reserved_addresses_are_counted_until_everything_is_unmapped(client: Client):
    machine = client.machine
    before = machine.live_objects()
    start = machine.reserve(8 * PAGE, alignment=2 << 20)
    assert start % (2 << 20) == 0
    made = client.alloc(2 * PAGE)
    machine.mmap(client.drm, 2 * PAGE, made.mmap_offset, address=start + PAGE)
    assert machine.live_objects().reservations == before.reservations + 1
    machine.munmap(start, 8 * PAGE)
    client.call(kfd.FREE_MEMORY_OF_GPU(handle=made.handle))
    assert machine.live_objects() == before
    with refused(errno.EINVAL):
        machine.munmap(start, 8 * PAGE)


def test_reserve_refuses_sizes_that_are_no_pages(machine: Machine):
    for length, alignment in ((0, PAGE), (100, PAGE), (PAGE, 100), (PAGE, 3 * PAGE)):
        with refused(errno.EINVAL):
            machine.reserve(length, alignment)


# ----- USERPTR ------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [private_page, shared_page])
def test_gpu_and_cpu_see_each_others_stores_to_imported_memory(client: Client, page):
    memory, address = page()
    array = np.frombuffer(memory, np.uint32)
    imported = client.imported(address, PAGE)
    queue, out = Queue(client), client.buffer()
    array[0] = 11
    queue.run([*copy(address, out.address), *write(address + 4, 22)])
    assert out.u32() == 11 and array[1] == 22
    array[0] = 33
    queue.run(copy(address, out.address))
    assert out.u32() == 33
    imported.free()
    del array


def copy(source: int, destination: int) -> list[int]:
    return op(Opcode.COPY_DATA, 1 | 5 << 8, *halves(source), *halves(destination))


def test_a_poll_of_imported_private_memory_sees_what_the_cpu_stores(client: Client):
    memory, address = private_page()
    array = np.frombuffer(memory, np.uint32)
    client.imported(address, PAGE)
    queue, out = Queue(client), client.buffer()
    queue.submit([*wait_memory(address, 5), *write(out.address, 1), *client.signal()])
    client.machine.step()
    client.machine.sleep(0.001)
    assert out.u32() == 0
    array[0] = 5
    client.wait()
    assert out.u32() == 1
    del array


def test_ring_and_pointers_may_be_private_memory_of_the_client(client: Client):
    queue = Queue(client)
    memory = [private_page() for _ in range(2)]
    ring, pointers = (client.imported(address, PAGE) for _, address in memory)
    client.call(kfd.DESTROY_QUEUE(queue_id=queue.id))
    made = client.call(
        queue.argument(
            ring_base_address=ring.address,
            read_pointer_address=pointers.address + 128,
            write_pointer_address=pointers.address + 56,
        )
    )
    queue.ring, queue.pointers = ring, pointers
    queue.bell = client.machine.doorbell(client.doorbell_address(made.doorbell_offset))
    data = client.buffer()
    for number in range(1, 4):
        queue.run(write(data.address, number))
        assert (data.u32(), queue.rptr) == (number, queue.wptr)
    del memory


def test_memory_that_is_not_there_cannot_be_imported(client: Client):
    with refused(errno.EFAULT):
        client.alloc(PAGE, USERPTR, mmap_offset=0x7000_0000_0000)


def test_imports_and_objects_are_counted(client: Client):
    before = client.machine.live_objects()
    memory, address = private_page()
    imported = client.imported(address, PAGE)
    buffer = client.buffer(flags=GTT)
    after = client.machine.live_objects()
    assert (after.imports, after.objects) == (before.imports + 1, before.objects + 1)
    imported.free()
    buffer.free()
    assert client.machine.live_objects() == before
    del memory


def test_closing_kfd_releases_everything_but_the_clients_mappings(client: Client):
    machine = client.machine
    Queue(client).run(write(client.buffer().address, 1))
    client.close()
    left = machine.live_objects()
    assert left == LiveObjects(
        client_mappings=left.client_mappings, objects=left.objects, backings=left.backings
    )
    machine.mappings.unmap(0, 1 << 48)
    assert machine.live_objects() == LiveObjects()
