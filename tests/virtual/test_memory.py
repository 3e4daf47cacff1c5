"""GPU address spaces."""

import ctypes
import errno

import numpy as np
import pytest

from ringfence.virtual.memory import (
    PAGE,
    AddressSpace,
    Backing,
    BadAddress,
    ClientMappings,
    MemoryFault,
    read_user,
    reserve_pages,
    unmap_pages,
    write_user,
)


@pytest.fixture
def storage() -> ctypes.Array:
    return (ctypes.c_uint8 * 8192)()


def test_reads_and_writes_reach_the_host_memory(storage):
    space = AddressSpace()
    space.map(0x10000, 4096, ctypes.addressof(storage))
    space.write(0x10010, b"abcd")
    assert bytes(storage[16:20]) == b"abcd"
    assert space.read(0x1000F, 6) == b"\0abcd\0"
    space.write_u32(0x10020, 0x1_2345_6789)
    assert space.read_u32(0x10020) == 0x2345_6789


def test_adjacent_ranges_are_read_and_written_as_one(storage):
    space = AddressSpace()
    base = ctypes.addressof(storage)
    space.map(0x10000, 4096, base + 4096)
    space.map(0x11000, 4096, base)
    space.write(0x10FFE, b"abcd")
    assert space.read(0x10FFE, 4) == b"abcd"
    assert space.read_u32(0x10FFE) == int.from_bytes(b"abcd", "little")
    assert bytes(storage[0:2]) == b"cd"


def test_unmapped_access_names_address_and_nearest_allocation(storage):
    space = AddressSpace()
    space.map(0x10000, 4096, ctypes.addressof(storage), label="weights", object_id=7)
    with pytest.raises(MemoryFault) as caught:
        space.read(0x10FFC, 8)
    assert caught.value.address == 0x11000
    assert not caught.value.write
    assert "0x0 bytes past the end of object 7 'weights'" in caught.value.nearest
    assert "0x10 bytes before" in space.nearest(0xFFF0)
    assert space.nearest(0x10004).startswith("0x4 bytes into")


def test_write_to_read_only_memory_faults_and_stores_nothing(storage):
    space = AddressSpace()
    base = ctypes.addressof(storage)
    space.map(0x10000, 4096, base)
    space.map(0x11000, 4096, base + 4096, writable=False)
    with pytest.raises(MemoryFault) as caught:
        space.write(0x10FFE, b"abcd")
    assert caught.value.write and caught.value.address == 0x11000
    assert not any(storage)
    with pytest.raises(MemoryFault):
        space.write_u32(0x11000, 1)


def test_overlap_is_refused(storage):
    space = AddressSpace()
    space.map(0x10000, 4096, ctypes.addressof(storage))
    for start in (0xF001, 0x10000, 0x10800):
        with pytest.raises(ValueError, match="overlaps"):
            space.map(start, 4096, 0)
    with pytest.raises(ValueError):
        space.map(0x20000, 0, 0)


def test_table_is_sorted_and_cached_per_generation(storage):
    space = AddressSpace()
    base = ctypes.addressof(storage)
    space.map(0x20000, 4096, base, writable=False)
    space.map(0x10000, 4096, base + 4096)
    table = space.table()
    assert table is space.table()
    assert table.dtype == np.uint64
    assert table[:, 0].tolist() == [0x10000, 0x20000]
    assert table[:, 1].tolist() == [0x11000, 0x21000]
    assert (int(table[0, 0]) + int(table[0, 2])) % 2**64 == base + 4096
    assert table[:, 3].tolist() == [1, 0]
    space.unmap(0x10000)
    assert space.table().shape == (1, 4)
    assert space.find(0x10000) is None
    with pytest.raises(ValueError):
        space.unmap(0x10000)


def test_addresses_that_were_unmapped_are_remembered_and_labels_can_change(storage):
    space = AddressSpace()
    space.map(0x10000, 4096, ctypes.addressof(storage), label="old", object_id=3)
    space.relabel(0x10000, "new")
    space.unmap(0x10000)
    assert space.nearest(0x10010) == "nothing is mapped; object 3 'new' at 0x10000..0x11000 was unmapped"


def test_storage_is_zeroed_and_can_be_mapped_twice_but_not_over_something_else():
    backing = Backing(8192)
    second = backing.duplicate()
    ctypes.memset(backing.host_address, 0x5A, 16)
    assert ctypes.string_at(second, 17) == b"Z" * 16 + b"\0"
    with pytest.raises(OSError) as caught:
        backing.duplicate(second)
    assert caught.value.errno == errno.EEXIST
    unmap_pages(second, 8192)
    assert backing.duplicate(second) == second
    unmap_pages(second, 8192)
    backing.release()


def test_client_memory_is_read_and_written_without_dying():
    data = ctypes.create_string_buffer(b"abc", 8)
    assert read_user(ctypes.addressof(data), 3) == b"abc"
    write_user(ctypes.addressof(data), b"xyz")
    assert data.value == b"xyz"
    for address in (0, 0x1000, 2**64 - 8):
        with pytest.raises(BadAddress):
            read_user(address, 8)
        with pytest.raises(BadAddress):
            write_user(address, b"12345678")
    assert read_user(0, 0) == b""


# ----- mappings of clients ------------------------------------------------------------------------


def test_a_mapping_into_a_reserved_range_takes_its_place() -> None:
    mappings, released = ClientMappings(), []
    start, backing = reserve_pages(4 * PAGE, PAGE), Backing(PAGE)
    mappings.add(start, 4 * PAGE, lambda: released.append("range"), reserved=True)
    assert mappings.covers(start, 4 * PAGE) and not mappings.covers(start, 5 * PAGE)
    backing.replace(start + PAGE, PAGE)
    mappings.add(start + PAGE, PAGE, lambda: released.append("object"))
    assert (len(mappings), mappings.reservations, released) == (1, 1, [])
    assert mappings.covers(start, 4 * PAGE), "replaced pages still count"
    assert mappings.unmap(start + PAGE, PAGE) and released == ["object"]
    assert not mappings.covers(start, 4 * PAGE)
    assert not mappings.unmap(start, 4 * PAGE), "there is a hole"
    assert released == ["object", "range"]
    assert (len(mappings), mappings.reservations) == (0, 0)
    backing.release()


def test_replacing_the_last_page_of_a_mapping_releases_it() -> None:
    mappings, released = ClientMappings(), []
    start = reserve_pages(PAGE, PAGE)
    for name in "ab":
        mappings.add(start, PAGE, lambda name=name: released.append(name))
    assert released == ["a"]
    mappings.unmap(start, PAGE)
    assert released == ["a", "b"]


@pytest.mark.parametrize("alignment", [PAGE, 64 << 10, 2 << 20])
def test_reserved_addresses_are_aligned_and_without_access(alignment: int) -> None:
    start = reserve_pages(3 * PAGE, alignment)
    assert start % alignment == 0
    with pytest.raises(BadAddress):
        read_user(start, 1)
    unmap_pages(start, 3 * PAGE)
