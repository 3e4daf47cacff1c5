"""Buffers: contents, ownership, caches, and when memory is given back."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
from runtime_fakes import FakeBackend, FakeCompletion

from ringfence.errors import LaunchError, LeaseError, PortError
from ringfence.runtime.memory import Buffer, CacheMode, Memory, Ownership, UseMark


class World:
    """A memory with its backend and its GPU."""

    def __init__(self) -> None:
        self.backend = FakeBackend()
        self.gpu = FakeCompletion()
        self.memory = Memory(self.backend, self.gpu, threading.RLock())

    def buffer(self, nbytes: int = 16, **options: Any) -> Buffer:
        cache = options.pop("cache", CacheMode.WRITE_COMBINE)
        mapping = self.memory.allocate(nbytes, cache=cache, label=options.pop("label", "b"))
        return Buffer(self.memory, mapping, **options)

    def imported(self, array: np.ndarray[Any, Any], **options: Any) -> Buffer:
        mapping = self.memory.import_host(array.ctypes.data, array.nbytes, owner=array, label="i")
        return Buffer(self.memory, mapping, dtype=array.dtype, shape=array.shape, **options)

    def log(self, word: str) -> list[str]:
        return [line for line in self.backend.log if line.startswith(word)]


@pytest.fixture
def world() -> World:
    return World()


# ----- contents -----------------------------------------------------------------------------------


def test_contents_come_back_with_dtype_and_shape(world: World) -> None:
    buffer = world.buffer(24, dtype=np.float32, shape=(2, 3))
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer.copy_from(values)
    assert buffer.numpy().tolist() == values.tolist()
    assert buffer.numpy().dtype == np.float32


def test_numpy_is_a_copy(world: World) -> None:
    buffer = world.buffer(4, dtype=np.uint8, shape=(4,))
    buffer.copy_from(np.ones(4, np.uint8))
    copy = buffer.numpy()
    copy[:] = 7
    assert buffer.numpy().tolist() == [1, 1, 1, 1]


def test_raw_buffers_are_bytes(world: World) -> None:
    buffer = world.buffer(4)
    buffer.copy_from(np.array([0x04030201], np.uint32))
    assert buffer.numpy().tolist() == [1, 2, 3, 4]


def test_a_buffer_refuses_an_array_of_another_type(world: World) -> None:
    buffer = world.buffer(8, dtype=np.float32, shape=(2,), label="x")
    with pytest.raises(LaunchError, match=r"'x'.*float64.*astype\('float32'\)"):
        buffer.copy_from(np.zeros(1))


def test_a_buffer_refuses_an_array_of_another_size(world: World) -> None:
    buffer = world.buffer(8, dtype=np.float32, shape=(2,))
    with pytest.raises(LaunchError, match="12 bytes"):
        buffer.copy_from(np.zeros(3, np.float32))


def test_strided_arrays_are_copied_in_order(world: World) -> None:
    buffer = world.buffer(4, dtype=np.uint8, shape=(4,))
    buffer.copy_from(np.arange(8, dtype=np.uint8)[::2])
    assert buffer.numpy().tolist() == [0, 2, 4, 6]


def test_a_view_is_the_memory_itself(world: World) -> None:
    buffer = world.buffer(4, dtype=np.uint8, shape=(4,))
    view = buffer.view()
    view[2] = 9
    assert buffer.numpy().tolist() == [0, 0, 9, 0]


def test_numpy_and_dlpack_see_the_memory_without_a_copy(world: World) -> None:
    buffer = world.buffer(8, dtype=np.float32, shape=(2,))
    shared = np.asarray(buffer)
    through_dlpack = np.from_dlpack(buffer)
    buffer.copy_from(np.array([1, 2], np.float32))
    assert shared.tolist() == [1, 2]
    assert through_dlpack.tolist() == [1, 2]
    assert buffer.__dlpack_device__() == (1, 0)


def test_array_conversion_copies_only_when_it_must(world: World) -> None:
    buffer = world.buffer(8, dtype=np.float32, shape=(2,))
    assert np.array(buffer, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="without a copy"):
        buffer.__array__(np.float64, copy=False)


# ----- views of a part ----------------------------------------------------------------------------


def test_a_part_has_its_own_address_and_contents(world: World) -> None:
    buffer = world.buffer(16, label="all")
    part = buffer.offset_view(8, 8, dtype=np.uint32)
    part.copy_from(np.array([1, 2], np.uint32))
    assert part.gpu_address == buffer.gpu_address + 8
    assert part.shape == (2,)
    assert buffer.numpy()[8:].view(np.uint32).tolist() == [1, 2]
    assert part.offset_view(4).numpy().view(np.uint32).tolist() == [2]


@pytest.mark.parametrize(("offset", "nbytes"), [(-1, 4), (0, 0), (8, 9), (16, None), (0, 17)])
def test_a_part_must_lie_inside(world: World, offset: int, nbytes: int | None) -> None:
    with pytest.raises(LaunchError, match="does not lie inside"):
        world.buffer(16).offset_view(offset, nbytes)


def test_a_part_must_hold_its_shape(world: World) -> None:
    with pytest.raises(LaunchError, match=r"do not hold an array of float32 with shape \(3,\)"):
        world.buffer(16).offset_view(0, 8, dtype=np.float32, shape=(3,))


def test_parts_keep_the_memory_alive(world: World) -> None:
    part = world.buffer(16).offset_view(4)
    gc.collect()
    world.memory.reap()
    assert world.log("release") == []
    del part
    gc.collect()
    world.memory.reap()
    assert world.log("release") == ["release b"]


# ----- waiting and caches -------------------------------------------------------------------------


def test_reading_waits_for_the_last_use(world: World) -> None:
    buffer = world.buffer()
    buffer.mapping.last_use = 5
    buffer.numpy(timeout=0.25)
    assert world.gpu.waits == [(5, 0.25)]


def test_writing_waits_for_the_last_use_too(world: World) -> None:
    buffer = world.buffer()
    buffer.mapping.last_use = 5
    buffer.copy_from(np.zeros(16, np.uint8))
    assert world.gpu.waits == [(5, None)]


def test_the_use_by_a_bound_stream_counts(world: World) -> None:
    buffer, mark = world.buffer(), UseMark()
    world.memory.pin(buffer.mapping, mark)
    mark.value = 9
    buffer.numpy()
    assert world.gpu.waits == [(9, None)]


def test_imported_memory_is_invalidated_before_the_cpu_reads_what_the_gpu_wrote(world: World) -> None:
    buffer = world.imported(np.zeros(10, np.uint8))
    buffer.numpy()
    assert world.log("invalidate") == []
    buffer.mapping.last_use = 1
    buffer.numpy()
    buffer.numpy()
    assert world.log("invalidate") == ["invalidate i 0 10"]
    buffer.mapping.last_use = 2
    buffer.view()
    assert len(world.log("invalidate")) == 2


def test_imported_memory_is_flushed_after_the_cpu_wrote(world: World) -> None:
    array = np.zeros(10, np.uint8)
    buffer = world.imported(array)
    buffer.offset_view(2, 4).copy_from(np.ones(4, np.uint8))
    assert world.log("flush") == ["flush i 2 4"]
    array[0] = 1
    buffer.flush()
    assert world.log("flush")[-1] == "flush i 0 10"
    assert array.tolist() == [1, 0, 1, 1, 1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("cache", "lines"), [(CacheMode.WRITE_COMBINE, 0), (CacheMode.UNCACHED, 0), (CacheMode.CACHED, 2)]
)
def test_only_cached_device_memory_needs_maintenance(world: World, cache: CacheMode, lines: int) -> None:
    buffer = world.buffer(cache=cache)
    buffer.copy_from(np.zeros(16, np.uint8))
    buffer.mapping.last_use = 1
    buffer.numpy()
    assert len(world.log("flush") + world.log("invalidate")) == lines


def test_memory_that_the_cpu_cannot_reach_says_so(world: World) -> None:
    buffer = world.buffer()
    buffer.mapping.host_address = None
    with pytest.raises(LeaseError, match="not mapped into the CPU"):
        buffer.numpy()


# ----- importing ----------------------------------------------------------------------------------


def test_a_null_pointer_and_an_empty_range_are_refused(world: World) -> None:
    with pytest.raises(LeaseError, match=r"'camera'.*null"):
        world.memory.import_host(0, 16, label="camera")
    with pytest.raises(LeaseError, match="0 bytes"):
        world.memory.import_host(0x1000, 0)
    assert world.backend.log == []


def test_the_owner_lives_until_the_mapping_is_released(world: World) -> None:
    import weakref

    class Owner:
        memory = np.zeros(8, np.uint8)

    owner = Owner()
    gone = weakref.ref(owner)
    mapping = world.memory.import_host(owner.memory.ctypes.data, 8, owner=owner)
    buffer = Buffer(world.memory, mapping)
    del owner
    mapping.last_use = 3
    buffer.free()
    assert gone() is not None, "the GPU still uses it"
    world.gpu.done = 3
    world.memory.reap()
    assert gone() is None


# ----- giving back --------------------------------------------------------------------------------


def test_free_gives_idle_memory_back_at_once(world: World) -> None:
    buffer = world.buffer()
    buffer.free()
    assert world.backend.log == ["map b", "release b", "unmap b"]
    assert buffer.freed and world.memory.mapping_count == 0


def test_freeing_twice_does_nothing(world: World) -> None:
    buffer = world.buffer()
    buffer.free()
    buffer.free()
    assert world.log("release") == ["release b"]


def test_memory_in_use_is_given_back_after_the_last_use(world: World) -> None:
    buffer = world.buffer()
    buffer.mapping.last_use = 4
    buffer.free()
    assert world.log("release") == [] and world.memory.mapping_count == 1
    world.gpu.done = 4
    world.memory.reap()
    assert world.log("release") == ["release b"]


def test_a_freed_buffer_is_of_no_use(world: World) -> None:
    buffer = world.buffer(label="x")
    part = buffer.offset_view(0)
    buffer.free()
    for use in (buffer.numpy, buffer.view, buffer.flush, part.numpy, lambda: buffer.offset_view(0)):
        with pytest.raises(LeaseError, match=r"'x'.*freed"):
            use()


def test_a_collected_buffer_is_given_back_at_the_next_opportunity(world: World) -> None:
    world.buffer(label="lost")
    gc.collect()
    other = world.buffer(label="next")
    assert world.log("release") == ["release lost"]
    assert not other.freed


def test_collection_in_another_thread_makes_no_calls_there(world: World) -> None:
    held = [world.buffer()]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert world.log("release") == []
    world.memory.reap()
    assert world.log("release") == ["release b"]


def test_pinned_memory_outlives_its_free(world: World) -> None:
    buffer, mark = world.buffer(), UseMark()
    world.memory.pin(buffer.mapping, mark)
    mark.value = 2
    buffer.free()
    world.gpu.done = 1
    world.memory.unpin(buffer.mapping, mark)
    world.memory.reap()
    assert world.log("release") == []
    world.gpu.done = 2
    world.memory.reap()
    assert world.log("release") == ["release b"]


def test_a_view_keeps_freed_memory_mapped(world: World) -> None:
    buffer = world.buffer(4)
    array = np.frombuffer(buffer.view(), np.uint8)
    buffer.free()
    assert world.log("unmap") == []
    assert array.tolist() == [0, 0, 0, 0]
    del array
    world.memory.reap()
    assert world.log("unmap") == ["unmap b"]


def test_a_refused_release_is_reported_and_tried_again_at_close(world: World) -> None:
    buffer = world.buffer()
    world.backend.refuse = 1
    with pytest.raises(PortError, match="EBUSY"):
        buffer.free()
    assert world.memory.mapping_count == 1
    world.memory.close()
    assert world.backend.live == {}


def test_one_refused_release_does_not_stop_the_others(world: World) -> None:
    held = [world.buffer(label=name) for name in "abc"]
    world.backend.refuse = 1
    with pytest.raises(PortError):
        world.memory.close()
    assert world.log("release") == ["release b", "release c"]
    assert world.backend.live == {}
    assert all(buffer.freed for buffer in held)


def test_closing_leaves_what_a_view_shows_until_the_view_is_gone(world: World) -> None:
    view = world.buffer(4).view()
    world.memory.close()
    assert world.log("release") == ["release b"]
    assert bytes(view) == bytes(4)
    assert world.log("unmap") == []
    del view
    gc.collect()
    assert world.log("unmap") == ["unmap b"]


def test_memory_that_only_waits_for_the_gpu_is_used_before_giving_up(world: World) -> None:
    buffer = world.buffer()
    buffer.mapping.last_use = 7
    buffer.free()
    world.backend.out_of_memory = 1
    assert not world.buffer(label="new").freed
    assert world.gpu.waits == [(7, None)]
    assert world.backend.log == ["map b", "release b", "unmap b", "map new"]


def test_out_of_memory_is_reported_when_nothing_can_be_given_back(world: World) -> None:
    world.backend.out_of_memory = 1
    with pytest.raises(PortError, match="ENOMEM"):
        world.buffer()
    assert world.memory.mapping_count == 0


def test_an_empty_buffer_is_refused(world: World) -> None:
    with pytest.raises(LaunchError, match="at least one byte"):
        world.memory.allocate(0, label="none")


def test_figures_count_what_exists(world: World) -> None:
    held = [world.buffer(16), world.buffer(8)]
    assert (world.memory.mapping_count, world.memory.total_bytes) == (2, 24)
    held.pop().free()
    assert (world.memory.mapping_count, world.memory.total_bytes) == (1, 16)


def test_the_text_of_a_buffer_tells_what_it_is(world: World) -> None:
    buffer = world.buffer(16, dtype=np.float32, shape=(4,), label="x")
    assert repr(buffer) == f"<Buffer 'x' float32[4], 16 bytes at GPU {buffer.gpu_address:#x}, device>"
    assert buffer.ownership is Ownership.DEVICE
    buffer.free()
    assert repr(buffer).endswith("freed>")


def test_ten_thousand_rounds_of_import_and_free_leave_nothing(world: World) -> None:
    array = np.zeros(64, np.uint8)
    for use in range(10_000):
        buffer = world.imported(array)
        buffer.mapping.last_use = use
        buffer.free()
        world.gpu.done = use
    world.memory.reap()
    assert world.memory.mapping_count == 0 and world.backend.live == {}
