"""Queues of the virtual KFD: creation with all of the kernel's checks, doorbells, ring, limits."""

from __future__ import annotations

import ctypes
import errno
import time

import pytest

from ringfence.errors import PortError
from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.kfd import ENOTSUPP, QueueType, RuntimeEnableMode
from ringfence.virtual.machine import Machine
from virtual.amd.client import GTT, PAGE, Client, FakeExecutor, Queue, refused, wait_memory, write


@pytest.fixture
def queue(client: Client) -> Queue:
    return Queue(client)


# ----- CREATE_QUEUE -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "fields", "text"),
    [
        (errno.EINVAL, {"queue_percentage": 101}, "queue_percentage is 0x65"),
        (errno.EINVAL, {"queue_percentage": 100 | 1 << 8}, "PM4_TARGET_XCC"),
        (errno.EINVAL, {"queue_priority": 16}, "queue_priority"),
        (errno.EINVAL, {"ring_size": 3 * PAGE}, "power of two"),
        (errno.EINVAL, {"ring_size": 2 * PAGE}, "ring_base_address"),
        (errno.EINVAL, {"gpu_id": 5}, "gpu_id"),
        (errno.EINVAL, {"eop_buffer_size": 2 * PAGE}, "eop_buffer_size is 0x2000, expected 0x1000"),
        (errno.EINVAL, {"ctl_stack_size": 0x9000}, "ctl_stack_size is 0x9000, expected 0xa000"),
        (errno.EINVAL, {"ctx_save_restore_size": PAGE}, "expected 0x2bea000"),
        (errno.EINVAL, {"ctx_save_restore_address": 0}, "ctx_save_restore_address"),
        (errno.EINVAL, {"read_pointer_address": 0}, "read_pointer_address"),
        (errno.EINVAL, {"write_pointer_address": 0x10_0000_0000}, "write_pointer_address"),
        (errno.EFAULT, {"ring_base_address": 1 << 60}, "ring_base_address"),
        (errno.EFAULT, {"read_pointer_address": 1 << 60}, "read_pointer_address"),
        (ENOTSUPP, {"queue_type": 9}, "queue_type"),
        (errno.ENOMEM, {"queue_type": QueueType.SDMA}, "copy engine"),
        (errno.EINVAL, {"queue_type": QueueType.COMPUTE_AQL}, "AQL"),
    ],
)
def test_create_queue_refuses(client: Client, queue: Queue, code: int, fields: dict[str, int], text: str):
    with refused(code, text):
        client.call(queue.argument(**fields))


@pytest.mark.parametrize("field", ["ring_base_address", "ctx_save_restore_address", "eop_buffer_address"])
def test_every_buffer_must_be_a_mapping_of_its_own(client: Client, queue: Queue, field: str):
    large = client.buffer(128 << 20)
    with refused(errno.EINVAL, field):
        client.call(queue.argument(**{field: large.address}))
    with refused(errno.EINVAL, field):
        client.call(queue.argument(**{field: large.address + PAGE}))


def test_buffers_must_be_mapped_on_the_gpu(client: Client, queue: Queue):
    ring = client.buffer(PAGE, GTT)
    client.unmap(ring.handle)
    with refused(errno.EINVAL, "mapped on the GPU"):
        client.call(queue.argument(ring_base_address=ring.address))


@pytest.mark.parametrize("field", ["read_pointer_address", "write_pointer_address"])
def test_pointers_are_aligned(client: Client, queue: Queue, field: str):
    with refused(errno.EINVAL, f"{field} is"):
        client.call(queue.argument(**{field: queue.pointers.address + PAGE - 4}))


def test_that_caches_are_not_modelled_is_noted(client: Client, queue: Queue):
    assert ("approximate", "AMD caches") in [(note.kind, note.topic) for note in client.machine.notes]


def test_a_process_without_address_space_has_no_queues(machine: Machine):
    fd = machine.open("/dev/kfd")
    gpu_id = int(machine.read_text("/sys/devices/virtual/kfd/kfd/topology/nodes/1/gpu_id"))
    with refused(errno.ESRCH, "ACQUIRE_VM"):
        machine.ioctl(fd, kfd.CREATE_QUEUE(gpu_id=gpu_id, ring_size=PAGE))


def test_ids_are_the_lowest_free_and_doorbells_follow(client: Client):
    queues = [Queue(client) for _ in range(3)]
    assert [queue.id for queue in queues] == [0, 1, 2]
    offsets = [kfd.split_doorbell_offset(queue.doorbell_offset) for queue in queues]
    assert [place for _, place in offsets] == [0, 8, 16]
    mapping = offsets[0][0]
    assert kfd.MMAP_OFFSET.get(mapping, "TYPE") == kfd.MmapType.DOORBELL
    assert kfd.MMAP_OFFSET.get(mapping, "GPU_ID") == client.gpu_id
    queues[1].destroy()
    assert Queue(client).id == 1


def test_127_queues_are_the_limit_and_300_can_be_made_one_after_the_other(client: Client):
    sizes = client.sizes
    save = [client.buffer(sizes.cwsr_allocation) for _ in range(2)]
    shared = Queue(client)
    made = [client.call(shared.argument()).queue_id for _ in range(126)]
    with refused(errno.ENOSPC, "127 queues"):
        client.call(shared.argument())
    for number in made:
        client.call(kfd.DESTROY_QUEUE(queue_id=number))
    del save
    before = client.machine.live_objects()
    for _ in range(300):
        queue = Queue(client)
        queue.run(write(client.page.address + 4000, 1))
        queue.destroy()
    assert client.machine.live_objects() == before


def test_a_queue_without_eop_buffer_cannot_release(client: Client):
    queue = Queue(client, eop_buffer_address=0, eop_buffer_size=0)
    assert "EOP buffer" in queue.lost(client.signal()).message


def test_a_new_queue_does_not_see_what_was_rung_for_an_old_one(client: Client):
    first = Queue(client)
    first.run(write(client.buffer().address, *range(50)))
    first.destroy()
    second = Queue(client)
    data = client.buffer()
    second.run(write(data.address, 9))
    assert data.u32() == 9


# ----- DESTROY, UPDATE and the rest ---------------------------------------------------------------


def test_unknown_queues(client: Client):
    with refused(errno.EINVAL, "no queue"):
        client.call(kfd.DESTROY_QUEUE(queue_id=7))
    with refused(errno.EFAULT, "no queue"):
        client.call(kfd.UPDATE_QUEUE(queue_id=7))
    mask = ctypes.c_uint32(1)
    with refused(errno.EFAULT, "no queue"):
        client.call(kfd.SET_CU_MASK(queue_id=7, num_cu_mask=32, cu_mask_ptr=ctypes.addressof(mask)))


def test_update_queue_stops_and_continues(client: Client, queue: Queue):
    data = client.buffer()
    client.call(kfd.UPDATE_QUEUE(queue_id=queue.id, ring_base_address=0, ring_size=0, queue_percentage=100))
    queue.submit([*write(data.address, 1), *client.signal()])
    client.machine.sleep(0.1)
    assert data.u32() == 0
    client.call(
        kfd.UPDATE_QUEUE(
            queue_id=queue.id, ring_base_address=queue.ring.address, ring_size=PAGE, queue_percentage=100
        )
    )
    client.wait()
    assert data.u32() == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"queue_percentage": 101},
        {"queue_priority": 16},
        {"ring_size": 3000},
        {"ring_size": 2 * PAGE, "queue_percentage": 100},
    ],
)
def test_update_queue_refuses(client: Client, queue: Queue, fields: dict[str, int]):
    usual = {"queue_id": queue.id, "ring_base_address": queue.ring.address, "ring_size": PAGE}
    with refused(errno.EINVAL):
        client.call(kfd.UPDATE_QUEUE(**usual | fields))


def test_cu_masks_are_checked_and_noted(client: Client, queue: Queue):
    mask = ctypes.c_uint32(1)
    pointer = ctypes.addressof(mask)
    client.call(kfd.SET_CU_MASK(queue_id=queue.id, num_cu_mask=32, cu_mask_ptr=pointer))
    assert "KFD CU masks" in [note.topic for note in client.machine.notes]
    for count in (0, 33):
        with refused(errno.EINVAL):
            client.call(kfd.SET_CU_MASK(queue_id=queue.id, num_cu_mask=count, cu_mask_ptr=pointer))
    with refused(errno.EFAULT):
        client.call(kfd.SET_CU_MASK(queue_id=queue.id, num_cu_mask=32, cu_mask_ptr=8))


def test_runtime_enable(client: Client):
    client.call(kfd.RUNTIME_ENABLE(mode_mask=0))
    client.call(kfd.RUNTIME_ENABLE(mode_mask=RuntimeEnableMode.ENABLE))
    with refused(errno.EBUSY):
        client.call(kfd.RUNTIME_ENABLE(mode_mask=RuntimeEnableMode.ENABLE))
    client.call(kfd.RUNTIME_ENABLE(mode_mask=0))
    Queue(client)
    with refused(errno.EEXIST):
        client.call(kfd.RUNTIME_ENABLE(mode_mask=RuntimeEnableMode.ENABLE))


def test_xnack_is_off_and_stays_off(client: Client):
    assert client.call(kfd.SET_XNACK_MODE(xnack_enabled=-1)).xnack_enabled == 0
    client.call(kfd.SET_XNACK_MODE(xnack_enabled=0))
    with refused(errno.EPERM):
        client.call(kfd.SET_XNACK_MODE(xnack_enabled=1))
    Queue(client)
    with refused(errno.EBUSY):
        client.call(kfd.SET_XNACK_MODE(xnack_enabled=0))


def test_clock_counters_are_one_moment_of_the_machines_clock(client: Client):
    counters = client.call(kfd.GET_CLOCK_COUNTERS(gpu_id=client.gpu_id))
    assert counters.system_clock_freq == 1_000_000_000
    assert counters.cpu_clock_counter == counters.system_clock_counter
    assert counters.gpu_clock_counter == counters.cpu_clock_counter // 10
    assert client.call(kfd.GET_CLOCK_COUNTERS(gpu_id=1)).gpu_clock_counter == 0


def test_apertures(client: Client):
    old = client.call(kfd.GET_PROCESS_APERTURES())
    assert old.num_of_nodes == 1
    new = client.call(kfd.GET_PROCESS_APERTURES_NEW())
    assert new.num_of_nodes == 1
    data = (kfd.PROCESS_DEVICE_APERTURES * 4)()
    new = client.call(
        kfd.GET_PROCESS_APERTURES_NEW(kfd_process_device_apertures_ptr=ctypes.addressof(data), num_of_nodes=4)
    )
    assert new.num_of_nodes == 1
    assert bytes(data[0]) == bytes(old.process_apertures[0])
    assert (data[0].gpu_id, data[0].gpuvm_base) == (client.gpu_id, 0x1000000)
    assert (data[0].lds_base >> 48, data[0].scratch_base >> 48) == (1, 2)
    with refused(errno.EFAULT):
        client.call(kfd.GET_PROCESS_APERTURES_NEW(kfd_process_device_apertures_ptr=8, num_of_nodes=1))


def test_settings_check_the_gpu_and_the_values(client: Client):
    for kind in (
        kfd.SET_MEMORY_POLICY,
        kfd.SET_SCRATCH_BACKING_VA,
        kfd.SET_TRAP_HANDLER,
        kfd.GET_TILE_CONFIG,
    ):
        client.call(kind(gpu_id=client.gpu_id))
        with refused(errno.EINVAL):
            client.call(kind(gpu_id=1))
    with refused(errno.EINVAL, "default_policy"):
        client.call(kfd.SET_MEMORY_POLICY(gpu_id=client.gpu_id, default_policy=2))


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (kfd.SMI_EVENTS, errno.ENOTTY),
        (kfd.SVM, errno.EPERM),
        (kfd.EXPORT_DMABUF, errno.EINVAL),
        (kfd.IMPORT_DMABUF, errno.EINVAL),
        (kfd.GET_DMABUF_INFO, errno.EINVAL),
        (kfd.ALLOC_QUEUE_GWS, errno.ENODEV),
        (kfd.GET_QUEUE_WAVE_STATE, errno.EINVAL),
        (kfd.CRIU_OP, errno.EPERM),
        (kfd.DBG_TRAP, errno.EPERM),
    ],
)
def test_what_is_not_modelled_is_refused_and_noted(client: Client, kind, code: int):
    with refused(code):
        client.call(kind())
    notes = [(note.kind, note.topic) for note in client.machine.notes]
    assert ("unsupported", f"KFD ioctl {kind.__name__}") in notes


def test_every_declared_ioctl_is_handled_or_refused(client: Client):
    from ringfence.virtual.amd.ioctls import _REFUSED

    handled = set(client.machine.devices[0]._ioctls._handlers)
    assert handled | set(_REFUSED) == set(kfd.IOCTLS.values())
    assert not handled & set(_REFUSED)


def test_the_old_debugger_calls_are_gone(client: Client):
    with refused(errno.EPERM):
        client.call(kfd.DBG_REGISTER_DEPRECATED())


def test_unknown_numbers_are_einval_and_sizes_are_tolerant(client: Client):
    data = ctypes.create_string_buffer(64)
    address = ctypes.addressof(data)
    assert client.machine.raw_ioctl(client.fd, 0xC0084B7F, address) == -errno.EINVAL
    assert client.machine.raw_ioctl(client.fd, 0x80044B01, address) == 0
    assert data.raw[:8] == (1).to_bytes(8, "little"), "a shorter argument gets what fits"
    assert client.machine.raw_ioctl(client.fd, kfd.GET_VERSION.REQUEST, 8) == -errno.EFAULT


# ----- ring and doorbell --------------------------------------------------------------------------


def test_only_what_was_rung_for_is_executed(client: Client, queue: Queue):
    data = client.buffer()
    queue.put([*write(data.address, 1)])
    queue.ring_bell()
    queue.put(write(data.address + 4, 2))
    queue.pointers.write(queue.wptr.to_bytes(8, "little"), 56)
    client.machine.sleep(0.01)
    assert (data.u32(), data.u32(4)) == (1, 0)
    queue.ring_bell()
    client.machine.sleep(0.01)
    assert data.u32(4) == 2


def test_the_ring_wraps_and_counters_keep_growing(client: Client, queue: Queue):
    data = client.buffer()
    for number in range(400):
        queue.run(write(data.address + 4 * (number % 1000), number))
    assert queue.wptr == queue.rptr > 4 * 1024
    assert data.u32(4 * 399) == 399


def test_a_packet_may_wrap_around_the_end(client: Client, queue: Queue):
    data = client.buffer()
    queue.run(nops(1020 - 8))
    assert queue.wptr == 1020
    queue.run(write(data.address, 1, 2, 3, 4, 5, 6))
    assert [data.u32(4 * i) for i in range(6)] == [1, 2, 3, 4, 5, 6]


def nops(dwords: int) -> list[int]:
    return [0xC0001000 | (dwords - 2) << 16, *[0] * (dwords - 1)]


def test_a_packet_may_arrive_in_parts(client: Client, queue: Queue):
    data = client.buffer()
    words = write(data.address, 1, 2)
    queue.submit(words[:3])
    client.machine.sleep(0.01)
    assert queue.rptr == 0
    queue.submit([*words[3:], *client.signal()])
    client.wait()
    assert (data.u32(), data.u32(4)) == (1, 2)


def test_a_full_ring_is_executed_and_one_dword_more_is_an_error(client: Client, queue: Queue):
    queue.run([*nops(1024 - 8)])
    report = Queue(client).lost(nops(1025))
    assert report.kind == "bad state" and "1025" in report.message


def test_a_doorbell_that_goes_back_is_an_error(client: Client, queue: Queue):
    queue.run(write(client.buffer().address, 1))
    queue.wptr -= 4
    assert "the doorbell was rung with 9, but 13" in queue.lost([]).message


def test_the_write_pointer_in_memory_comes_before_the_doorbell(client: Client, queue: Queue):
    queue.put(client.signal())
    queue.bell(queue.wptr)
    client.wait(failing=True)
    assert "write pointer in memory is 0" in client.machine.explain(client.fd, queue.id).message


def test_the_read_pointer_shows_how_far_a_blocked_queue_came(client: Client, queue: Queue):
    data = client.buffer()
    first = write(data.address + 8, 1)
    queue.submit([*first, *wait_memory(data.address, 1), *client.signal()])
    client.machine.sleep(0.01)
    assert queue.rptr == len(first)
    data.words([1])
    client.wait()
    assert queue.rptr == queue.wptr


def test_doorbells_are_stored_in_the_page_that_the_client_mapped(client: Client, queue: Queue):
    address = client.doorbell_address(queue.doorbell_offset)
    queue.run([])
    assert ctypes.c_uint64.from_address(address).value == queue.wptr


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_a_store_to_the_page_without_a_call_is_noticed(mode: str):
    with Machine(("gfx1100",), mode=mode, executor_factory=FakeExecutor) as machine:
        client = Client(machine)
        queue, data = Queue(client), client.buffer()
        client.call(kfd.DESTROY_QUEUE(queue_id=queue.id))
        made = client.call(queue.argument())
        word = ctypes.c_uint64.from_address(client.doorbell_address(made.doorbell_offset))
        queue.put([*write(data.address, 5), *client.signal()])
        queue.pointers.write(queue.wptr.to_bytes(8, "little"), 56)
        word.value = queue.wptr
        deadline = time.monotonic() + 20.0
        while data.u32() != 5 and time.monotonic() < deadline:
            machine.now()
        assert data.u32() == 5


def test_doorbell_needs_a_mapping_of_doorbells(client: Client, queue: Queue):
    buffer = client.buffer()
    for address in (buffer.address, client.doorbell_address(queue.doorbell_offset) + 4):
        with refused(errno.EINVAL, "doorbell"):
            client.machine.doorbell(address)


def test_doorbells_are_mapped_whole_and_for_a_gpu_that_is_there(client: Client, queue: Queue):
    offset, _ = kfd.split_doorbell_offset(queue.doorbell_offset)
    with refused(errno.EINVAL, "0x2000"):
        client.machine.mmap(client.fd, PAGE, offset)
    other = kfd.MMAP_OFFSET.pack(TYPE=kfd.MmapType.DOORBELL, GPU_ID=1)
    with refused(errno.EINVAL, "gpu_id"):
        client.machine.mmap(client.fd, kfd.DOORBELL_SLICE_BYTES, other)
    for kind in (kfd.MmapType.MMIO, kfd.MmapType.RESERVED_MEM):
        with refused(errno.EINVAL, kind.name):
            client.machine.mmap(client.fd, PAGE, kfd.MMAP_OFFSET.pack(TYPE=kind, GPU_ID=client.gpu_id))


def test_a_doorbell_of_a_closed_machine_is_an_error(executor: FakeExecutor):
    with Machine(("gfx1100",), executor_factory=lambda: executor) as machine:
        queue = Queue(Client(machine))
    with pytest.raises(PortError, match="closed"):
        queue.bell(1)


def test_a_doorbell_of_a_closed_process_is_an_error(client: Client, queue: Queue):
    client.close()
    with pytest.raises(PortError, match="closed"):
        queue.bell(1)


def test_several_queues_of_a_process_are_interleaved():
    def order(seed: int) -> tuple[int, ...]:
        with Machine(("gfx1100",), clock="virtual", seed=seed, executor_factory=FakeExecutor) as machine:
            client = Client(machine)
            queues, data = [Queue(client) for _ in range(2)], client.buffer()
            for number, queue in enumerate(queues):
                queue.put([w for _ in range(50) for w in atomic_log(data.address, number)])
            for queue in queues:
                queue.ring_bell()
            machine.sleep(0.01)
            return tuple(data.u32(4 * i) for i in range(10))

    seen = {order(seed) for seed in range(6)}
    assert len(seen) > 1


def atomic_log(address: int, number: int) -> list[int]:
    """Write the number of a queue to a place of its own and the last writer to the first word."""
    return [*write(address, number), *write(address + 4 + 4 * number, number + 1)]
