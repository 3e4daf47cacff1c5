"""Memory of KGSL: allocation, import of CPU memory, cache maintenance, release by ownership."""

from __future__ import annotations

import ctypes
import errno
import gc

import numpy as np
import pytest
from fake_kgsl import PAGE, FakeKgsl
from programs import program

import ringfence as rf
from ringfence.hardware.adreno import kgsl as facts


def last(kgsl: FakeKgsl, kind: type) -> object:
    return kgsl.sent(kind)[-1]


# ----- allocation ---------------------------------------------------------------------------------


def test_allocation_asks_for_whole_pages_and_4_kib_alignment(kgsl: FakeKgsl, device: rf.Device) -> None:
    buffer = device.empty(1025, np.float32)
    request = last(kgsl, facts.GPUOBJ_ALLOC)
    assert request.size == 2 * PAGE
    assert facts.MEMFLAGS.unpack(request.flags)["MEMALIGN"] == 12
    assert buffer.gpu_address % PAGE == 0 and buffer.nbytes == 4100


def test_the_gpu_address_is_the_kernels_and_not_the_cpus(kgsl: FakeKgsl, device: rf.Device) -> None:
    buffer = device.zeros(4, np.float32)
    thing = list(kgsl.objects.values())[-1]
    assert buffer.gpu_address == thing.gpu
    assert buffer.host_address != buffer.gpu_address
    assert not facts.MEMFLAGS.unpack(thing.flags)["USE_CPU_MAP"]
    buffer.copy_from(np.arange(4, dtype=np.float32))
    assert np.frombuffer(kgsl.read(buffer.gpu_address, 16), np.float32).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("cache", "mode"),
    [
        ("writecombine", facts.CacheMode.WRITECOMBINE),
        ("uncached", facts.CacheMode.UNCACHED),
        ("cached", facts.CacheMode.WRITEBACK),
    ],
)
def test_the_cache_mode_is_an_option(
    kgsl: FakeKgsl, device: rf.Device, cache: str, mode: facts.CacheMode
) -> None:
    device.empty(4, np.float32, cache=cache)  # type: ignore[arg-type]
    assert facts.MEMFLAGS.unpack(last(kgsl, facts.GPUOBJ_ALLOC).flags)["CACHEMODE"] == mode


def test_cached_memory_is_synchronised_by_the_kernel_around_gpu_use(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    x = device.array(np.zeros(8, np.float32), cache="cached")
    sync = last(kgsl, facts.GPUMEM_SYNC_CACHE)
    assert sync.op == facts.CacheOperation.TO_GPU | facts.CacheOperation.RANGE
    assert (sync.offset, sync.length) == (0, 32)
    device.launch(device.load(program()), x, x, 1.0, groups=1, local=8)
    x.numpy()
    assert (
        last(kgsl, facts.GPUMEM_SYNC_CACHE).op == facts.CacheOperation.FROM_GPU | facts.CacheOperation.RANGE
    )


def test_machine_code_cannot_be_overwritten_by_the_gpu(kgsl: FakeKgsl, device: rf.Device) -> None:
    device.load(program())
    assert facts.MEMFLAGS.unpack(last(kgsl, facts.GPUOBJ_ALLOC).flags)["GPUREADONLY"] == 1


def test_zeros_are_zero_even_if_the_pages_were_used(kgsl: FakeKgsl, device: rf.Device) -> None:
    assert device.zeros((3, 4), np.int16).numpy().tolist() == [[0] * 4] * 3


@pytest.mark.parametrize("shape", [0, (4, 0), (-1,), (2, -2)])
def test_empty_shapes_are_refused(device: rf.Device, shape: int | tuple[int, ...]) -> None:
    with pytest.raises(rf.LaunchError, match="at least one element"):
        device.empty(shape, np.float32)


def test_more_than_4_gib_at_once_is_refused_before_the_kernel_is_asked(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    before = kgsl.count
    with pytest.raises(rf.LaunchError, match="at most"):
        device.empty(1 << 30, np.float32)
    assert kgsl.count == before


def test_arrays_of_python_objects_are_refused(device: rf.Device) -> None:
    with pytest.raises(rf.LaunchError, match="Python objects"):
        device.array(np.array([object()]))


@pytest.mark.parametrize("call", ["GPUOBJ_ALLOC", "mmap", "GPUOBJ_INFO"])
def test_a_failed_allocation_leaves_nothing_behind(kgsl: FakeKgsl, device: rf.Device, call: str) -> None:
    before = kgsl.live
    kgsl.script[call] = [errno.ENOMEM]
    with pytest.raises(rf.PortError, match="ENOMEM"):
        device.empty(4, np.float32)
    assert kgsl.live == before


def test_freeing_frees_the_object_and_then_the_mapping(kgsl: FakeKgsl, device: rf.Device) -> None:
    before = kgsl.live
    buffer = device.zeros(4, np.float32)
    kgsl.calls.clear()
    buffer.free()
    assert kgsl.calls == ["GPUOBJ_FREE", "munmap"]
    assert kgsl.live == before


def test_a_buffer_in_use_is_freed_after_the_gpu_has_finished(kgsl: FakeKgsl, device: rf.Device) -> None:
    x, y = device.zeros(8, np.float32), device.zeros(8, np.float32)
    kernel = device.load(program())
    kgsl.hold = True
    job = device.launch(kernel, y, x, 1.0, groups=1, local=8)
    kgsl.calls.clear()
    x.free()
    del y
    gc.collect()
    assert "GPUOBJ_FREE" not in kgsl.calls
    kgsl.release()
    job.wait()
    device.synchronize()
    assert kgsl.calls.count("GPUOBJ_FREE") == 2


# ----- import -------------------------------------------------------------------------------------


def test_an_import_spans_whole_pages_but_cleans_exactly_the_range(kgsl: FakeKgsl, device: rf.Device) -> None:
    array = np.arange(3 * PAGE, dtype=np.uint8)[100 : 100 + PAGE + 1]
    buffer = device.import_array(array)
    pointer = array.ctypes.data
    request = last(kgsl, facts.MAP_USER_MEM)
    assert request.hostptr == pointer & -PAGE
    assert request.hostptr + request.len == (pointer + PAGE + 1 + PAGE - 1) & -PAGE
    assert kgsl.cleaned == [(pointer, PAGE + 1)]
    assert buffer.gpu_address % PAGE == pointer % PAGE
    assert kgsl.read(buffer.gpu_address, 4) == array[:4].tobytes()
    assert buffer.ownership is rf.Ownership.HOST and buffer.host_address == pointer


@pytest.mark.parametrize(("offset", "nbytes"), [(1, 1), (63, 2), (4095, 2), (7, 12345)])
def test_unaligned_pointers_and_odd_sizes_work(
    kgsl: FakeKgsl, device: rf.Device, offset: int, nbytes: int
) -> None:
    block = np.zeros(5 * PAGE, np.uint8)
    start = -block.ctypes.data % PAGE + offset
    part = block[start : start + nbytes]
    buffer = device.import_array(part)
    buffer.copy_from(np.full(nbytes, 7, np.uint8))
    assert part.tolist() == [7] * nbytes
    assert block.sum() == 7 * nbytes


def test_a_pointer_with_a_length_can_be_imported(device: rf.Device) -> None:
    memory = ctypes.create_string_buffer(b"0123456789", 10)
    buffer = device.import_array(
        ctypes.addressof(memory), 8, dtype=np.uint8, shape=(2, 4), owner=memory, label="raw"
    )
    assert buffer.numpy().tolist() == [[48, 49, 50, 51], [52, 53, 54, 55]]
    assert buffer.label == "raw"


@pytest.mark.parametrize(
    ("source", "nbytes", "message"),
    [
        (0, 16, "pointer is null"),
        (4096, 0, "0 bytes"),
        (4096, -1, "-1 bytes"),
        (4096, None, "needs nbytes"),
        (np.zeros(0, np.float32), None, "0 bytes"),
        (np.zeros((4, 4))[:, ::2], None, "not contiguous"),
    ],
)
def test_what_cannot_be_imported_is_refused_before_the_kernel_is_asked(
    kgsl: FakeKgsl, device: rf.Device, source: object, nbytes: int | None, message: str
) -> None:
    before = kgsl.count
    with pytest.raises(rf.LeaseError, match=message):
        device.import_array(source, nbytes, label="frame")  # type: ignore[arg-type]
    assert kgsl.count == before and kgsl.cleaned == []


def test_read_only_memory_is_mapped_read_only(kgsl: FakeKgsl, device: rf.Device) -> None:
    array = np.zeros(8, np.float32)
    device.import_array(array)
    assert not facts.MEMFLAGS.unpack(last(kgsl, facts.MAP_USER_MEM).flags)["GPUREADONLY"]
    array.flags.writeable = False
    device.import_array(array)
    assert facts.MEMFLAGS.unpack(last(kgsl, facts.MAP_USER_MEM).flags)["GPUREADONLY"]


def test_read_only_memory_is_not_written_by_the_cpu_either(device: rf.Device) -> None:
    array = np.arange(8, dtype=np.float32)
    array.flags.writeable = False
    for buffer in (device.import_array(array, label="frame"), device.import_array(array).offset_view(0)):
        with pytest.raises(rf.LeaseError, match="is read-only memory"):
            buffer.copy_from(np.zeros(8, np.float32) if buffer.dtype else np.zeros(32, np.uint8))
        with pytest.raises(rf.LaunchError, match="is read-only memory"):
            device.copy(buffer, np.zeros(8, np.float32))
        assert buffer.view().readonly and not np.asarray(buffer).flags.writeable
    assert array.tolist() == list(range(8))


def test_read_only_memory_is_no_output(device: rf.Device) -> None:
    array = np.arange(8, dtype=np.float32)
    array.flags.writeable = False
    with pytest.raises(rf.LaunchError, match="is read-only memory"):
        device.copy(device.import_array(array), device.zeros(8, np.float32))


def test_efault_is_an_error_unless_the_pointer_was_declared_a_gpu_address(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    kgsl.foreign.add(0x7000)
    with pytest.raises(rf.LeaseError, match=r"EFAULT.*may_be_gpu_address=True") as caught:
        device.import_array(0x7000, 64, label="frame")
    assert isinstance(caught.value.__cause__, rf.PortError)
    assert kgsl.cleaned == []


def test_a_declared_gpu_address_becomes_foreign_memory(kgsl: FakeKgsl, device: rf.Device) -> None:
    kgsl.foreign.add(0x7000)
    buffer = device.import_array(0x7010, 64, may_be_gpu_address=True)
    assert buffer.ownership is rf.Ownership.FOREIGN
    assert buffer.gpu_address == 0x7010
    with pytest.raises(rf.LeaseError, match="not mapped into the CPU"):
        buffer.numpy()


def test_foreign_memory_is_never_freed(kgsl: FakeKgsl, device: rf.Device) -> None:
    kgsl.foreign.add(0x7000)
    buffer = device.import_array(0x7000, 64, may_be_gpu_address=True)
    kgsl.calls.clear()
    buffer.free()
    assert kgsl.calls == []
    assert buffer.freed


@pytest.mark.parametrize("code", [errno.ENOMEM, errno.EINVAL, errno.EPERM])
def test_no_other_error_makes_a_pointer_a_gpu_address(kgsl: FakeKgsl, device: rf.Device, code: int) -> None:
    kgsl.script["MAP_USER_MEM"] = [code]
    before = kgsl.live
    with pytest.raises(rf.PortError, match=errno.errorcode[code]):
        device.import_array(np.zeros(8), may_be_gpu_address=True)
    assert kgsl.live == before


def test_cpu_pages_are_imported_even_if_they_were_declared_a_gpu_address(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    buffer = device.import_array(np.zeros(8), may_be_gpu_address=True)
    assert buffer.ownership is rf.Ownership.HOST


def test_freeing_an_import_frees_the_mapping_only(kgsl: FakeKgsl, device: rf.Device) -> None:
    buffer = device.import_array(np.zeros(8)[1:])
    kgsl.calls.clear()
    buffer.free()
    assert kgsl.calls == ["SHAREDMEM_FREE"]
    assert kgsl.imports == {}


def test_the_imported_array_lives_until_the_gpu_has_finished(kgsl: FakeKgsl, device: rf.Device) -> None:
    import sys

    array = np.zeros(8, np.float32)
    x = device.import_array(array)
    kernel = device.load(program())
    kgsl.hold = True
    device.launch(kernel, x, x, 1.0, groups=1, local=8)
    x.free()
    held = sys.getrefcount(array)
    kgsl.release()
    device.synchronize()
    assert sys.getrefcount(array) < held
    assert kgsl.imports == {}


def test_what_the_gpu_wrote_to_imported_memory_is_invalidated_before_the_cpu_reads(
    kgsl: FakeKgsl, device: rf.Device
) -> None:
    array = np.zeros(8, np.float32)
    y = device.import_array(array)
    job = device.launch(device.load(program()), y, y, 1.0, groups=1, local=8)
    assert kgsl.invalidated == []
    job.wait()
    assert kgsl.invalidated == [(array.ctypes.data, 32)]
    y.numpy()
    assert len(kgsl.invalidated) == 1, "nothing was written in between"


def test_a_read_without_a_wait_waits_and_invalidates_too(kgsl: FakeKgsl, device: rf.Device) -> None:
    array = np.zeros(8, np.float32)
    y = device.import_array(array)
    kgsl.shader = lambda dispatch, gpu: gpu.write(
        int.from_bytes(dispatch.constants[:8], "little"), np.float32(5).tobytes()
    )
    device.launch(device.load(program()), y, y, 1.0, groups=1, local=8)
    assert y.numpy()[0] == 5
    assert kgsl.invalidated == [(array.ctypes.data, 32)]


def test_a_thousand_rounds_of_import_and_free_leave_no_mapping(kgsl: FakeKgsl, device: rf.Device) -> None:
    array = np.zeros(5000, np.uint8)
    before, known = kgsl.live, device.mapping_count
    for size in range(1000):
        device.import_array(array[size % 7 : 10 + size % 4000]).free()
        kgsl.requests.clear()
    assert kgsl.live == before
    assert device.mapping_count == known


def test_rounds_of_import_launch_and_free_leave_no_mapping(kgsl: FakeKgsl, device: rf.Device) -> None:
    kernel, array = device.load(program()), np.zeros(8, np.float32)
    device.launch(kernel, *[device.import_array(array)] * 2, 1.0, groups=1, local=8).wait()
    gc.collect()
    device.synchronize()
    before = kgsl.live
    for _ in range(500):
        x = device.import_array(array)
        device.launch(kernel, x, x, 1.0, groups=1, local=8)
        x.free()
        kgsl.requests.clear()
    device.synchronize()
    assert kgsl.live == before


def test_memory_figures_include_what_the_device_needs_itself(device: rf.Device) -> None:
    count, size = device.mapping_count, device.memory_bytes
    held = device.zeros(1024, np.float32)
    assert (device.mapping_count, device.memory_bytes) == (count + 1, size + 4096)
    held.free()
    assert (device.mapping_count, device.memory_bytes) == (count, size)
