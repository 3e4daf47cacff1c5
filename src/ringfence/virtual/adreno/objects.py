"""Memory objects of the virtual KGSL: allocation, import of user memory, mapping, and when they go away.

Every descriptor of the process shares one :class:`ObjectTable`: one id space, one GPU address space. Rules
are those of ``kgsl.c`` and ``kgsl_iommu.c`` of the 2025 driver.
"""

from __future__ import annotations

import errno
import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringfence.hardware.adreno import kgsl
from ringfence.hardware.adreno.kgsl import MEMFLAGS, CacheMode, CacheOperation, UserMemoryType
from ringfence.virtual.checks import Refused
from ringfence.virtual.memory import (
    PAGE,
    AddressSpace,
    Backing,
    BadAddress,
    ImportedPages,
    round_up,
)

if TYPE_CHECKING:
    from ringfence.virtual.machine import Machine

# Address windows of the 2025 driver for 64-bit processes; 32-bit objects go where its 32-bit window is.
SVM_WINDOW = range(0x10_0000_0000, 0x40_0000_0000)
KERNEL_WINDOW = range(0x40_0000_0000, 0x80_0000_0000)
LOW_WINDOW = range(0x8000_0000, 0xEFFF_F000)
GUARD = 0x1_0000  # unmapped bytes between objects, so that overruns fault
MIN_ALIGN = 12
MAX_ALIGN = 25
SVM_ATTEMPTS = 256
SVM_STRIDE = 2 << 20


def _mask(*names: str) -> int:
    return sum(MEMFLAGS.FIELDS[name].mask for name in names)


_ALLOC_FLAGS = _mask(
    "GPUREADONLY",
    "GPUWRITEONLY",
    "CACHEMODE",
    "MEMTYPE",
    "MEMALIGN",
    "USE_CPU_MAP",
    "FORCE_32BIT",
    "GUARD_PAGE",
)
_IMPORT_FLAGS = _mask("GPUREADONLY", "MEMTYPE", "MEMALIGN", "USE_CPU_MAP")


@dataclass(slots=True)
class MemoryObject:
    """An object. It lives until it was freed and its last CPU mapping is gone: ``references`` counts both.

    ``gpu_address`` is 0 as long as an object made with USE_CPU_MAP was not mapped. ``pages`` is set for
    imported user memory, ``backing`` for memory of the device.
    """

    id: int
    size: int
    flags: int
    label: str = ""
    gpu_address: int = 0
    backing: Backing | None = None
    pages: ImportedPages | None = None
    user_address: int = 0
    free_pending: bool = False
    references: int = 1

    @property
    def host_address(self) -> int:
        source = self.backing if self.backing is not None else self.pages
        assert source is not None
        return source.host_address

    @property
    def uses_cpu_map(self) -> bool:
        return bool(MEMFLAGS.get(self.flags, "USE_CPU_MAP"))

    @property
    def writable(self) -> bool:
        return not MEMFLAGS.get(self.flags, "GPUREADONLY")

    def release(self) -> None:
        """Give the pages back."""
        source = self.backing if self.backing is not None else self.pages
        assert source is not None
        source.release()


class ObjectTable:
    """The objects of one process on one device."""

    def __init__(self, machine: Machine) -> None:
        self.memory = AddressSpace()
        self._machine = machine
        self._objects: dict[int, MemoryObject] = {}
        self._bytes = 0
        self._free_ids: list[int] = []  # a heap: ids are given out lowest first
        self._next: dict[range, int] = {}
        self.backing_count = 0

    # ----- lookup -----------------------------------------------------------------------------

    def by_id(self, number: int) -> MemoryObject:
        """Return an object; :class:`Refused` EINVAL if there is none."""
        found = self._objects.get(number)
        if found is None:
            raise Refused(errno.EINVAL, f"no memory object has the id {number}")
        return found

    def by_address(self, gpu_address: int) -> MemoryObject:
        """Return the object that contains a GPU address; :class:`Refused` EINVAL if there is none."""
        inside = self.memory.find(gpu_address) if gpu_address else None
        found = self._objects.get(inside.object_id) if inside is not None else None
        if found is None:
            raise Refused(errno.EINVAL, f"no memory object contains GPU address {gpu_address:#x}")
        return found

    def existing(self, numbers: list[int]) -> list[MemoryObject]:
        """Return the objects among ``numbers`` that exist."""
        return [self._objects[number] for number in numbers if number in self._objects]

    def rename(self, entry: MemoryObject, label: str) -> None:
        """Change an object's label, which fault messages show."""
        entry.label = label
        if entry.gpu_address:
            self.memory.relabel(entry.gpu_address, label)

    # ----- allocation -------------------------------------------------------------------------

    def allocate(self, size: int, flags: int, label: str = "") -> MemoryObject:
        """GPUOBJ_ALLOC and its older relatives: a zeroed object, mapped unless it wants the CPU's address."""
        if MEMFLAGS.get(flags, "SECURE"):
            raise Refused(errno.EOPNOTSUPP, "this device has no secure memory")
        if any(MEMFLAGS.get(flags, name) for name in ("SPARSE_PHYS", "SPARSE_VIRT", "VBO")):
            self._machine.notes.unsupported("KGSL sparse objects", "GPUOBJ_ALLOC answers EOPNOTSUPP")
            raise Refused(errno.EOPNOTSUPP, "sparse and virtual buffer objects are not modelled")
        if not 0 < size <= kgsl.MAX_OBJECT_BYTES:
            raise Refused(errno.EINVAL, f"size {size:#x} is not 1 to {kgsl.MAX_OBJECT_BYTES:#x} bytes")
        length = round_up(size)
        if self._bytes + length > self._machine.memory_bytes:
            raise Refused(
                errno.ENOMEM,
                f"{length} bytes more than the {self._bytes} in use exceed the "
                f"{self._machine.memory_bytes} bytes of the device",
            )
        try:
            backing = Backing(length)
        except OSError as error:
            raise Refused(errno.ENOMEM, str(error)) from error
        created = self._add(MemoryObject(0, length, _accepted(flags), label, backing=backing))
        self._bytes += length
        if not created.uses_cpu_map:
            self._map(created, self._free_range(created))
        return created

    def import_user(self, address: int, length: int, flags: int) -> MemoryObject:
        """Import ``length`` bytes of the client at ``address`` (MAP_USER_MEM, GPUOBJ_IMPORT)."""
        if MEMFLAGS.get(flags, "SECURE"):
            raise Refused(errno.EOPNOTSUPP, "this device has no secure memory")
        if address == 0 or address % PAGE or length == 0 or length % PAGE:
            raise Refused(
                errno.EINVAL, f"{length:#x} bytes at {address:#x}: both must be multiples of {PAGE} and not 0"
            )
        if self._machine.mappings.overlaps(address, length):
            raise Refused(errno.EFAULT, f"part of {address:#x}..{address + length:#x} is KGSL memory already")
        accepted = flags & _IMPORT_FLAGS | MEMFLAGS.pack(
            USERMEM=UserMemoryType.ADDR + 1, CACHEMODE=CacheMode.WRITEBACK
        )
        new = MemoryObject(0, length, accepted, user_address=address)
        if new.uses_cpu_map:
            self._check_svm(address, length)
        try:
            new.pages = ImportedPages(address, length, writable=new.writable)
        except BadAddress as error:
            raise Refused(
                errno.EFAULT, f"{address:#x}..{address + length:#x} is not all accessible"
            ) from error
        except OSError as error:
            raise Refused(errno.ENOMEM, str(error)) from error
        self._add(new)
        self._map(new, address if new.uses_cpu_map else self._free_range(new))
        return new

    def _check_svm(self, address: int, length: int) -> None:
        if address not in SVM_WINDOW or address + length > SVM_WINDOW.stop:
            raise Refused(errno.ENOMEM, f"{address:#x} lies outside the shared window {_window(SVM_WINDOW)}")
        if (taken := self.memory.overlapping(address, length)) is not None:
            raise Refused(errno.ENOMEM, f"the GPU range is in use: {taken.describe()}")

    def _add(self, new: MemoryObject) -> MemoryObject:
        new.id = heapq.heappop(self._free_ids) if self._free_ids else len(self._objects) + 1
        self._objects[new.id] = new
        self.backing_count += 1
        return new

    def _map(self, entry: MemoryObject, gpu_address: int) -> None:
        self.memory.map(
            gpu_address,
            entry.size,
            entry.host_address,
            writable=entry.writable,
            label=entry.label,
            object_id=entry.id,
        )
        entry.gpu_address = gpu_address

    def _free_range(self, entry: MemoryObject) -> int:
        window = LOW_WINDOW if MEMFLAGS.get(entry.flags, "FORCE_32BIT") else KERNEL_WINDOW
        alignment = 1 << min(max(MEMFLAGS.get(entry.flags, "MEMALIGN"), MIN_ALIGN), MAX_ALIGN)
        address = self._search(window, entry.size, alignment)
        if address is None:
            self.free(entry)
            raise Refused(
                errno.ENOMEM, f"no {entry.size:#x} bytes of GPU addresses are free in {_window(window)}"
            )
        return address

    def _search(self, window: range, length: int, alignment: int) -> int | None:
        """Return a free range; addresses are reused as late as possible, so that stale pointers fault."""
        start = self._next.get(window, window.start)
        for begin in (start, window.start):
            address = round_up(begin, alignment)
            while address + length <= window.stop:
                taken = self.memory.overlapping(address, length + GUARD)
                if taken is None:
                    self._next[window] = address + length + GUARD
                    return address
                address = round_up(taken.end + GUARD, alignment)
        return None

    # ----- CPU mappings -----------------------------------------------------------------------

    def mmap(self, number: int, offset: int, length: int) -> int:
        """Map an object for the CPU and return where.

        ``number`` is the page offset, ``offset`` the same in bytes.
        """
        entry = self._objects.get(number)
        if entry is None:
            entry = self.by_address(offset)  # kernels try the offset as a GPU address
        if entry.backing is None:
            raise Refused(
                errno.EBUSY, f"object {entry.id} is imported user memory: the client has it mapped already"
            )
        if entry.uses_cpu_map and entry.gpu_address:
            raise Refused(errno.EBUSY, f"object {entry.id} was mapped before and its address is fixed")
        if length != entry.size:
            raise Refused(
                errno.ERANGE, f"object {entry.id} has {entry.size:#x} bytes, {length:#x} were asked for"
            )
        address = self._map_shared(entry) if entry.uses_cpu_map else _duplicate(entry.backing)
        entry.references += 1
        self._machine.mappings.add(address, length, lambda: self._drop(entry))
        return address

    def _map_shared(self, entry: MemoryObject) -> int:
        """Map an object at an address that is free for the CPU and for the GPU."""
        assert entry.backing is not None
        alignment = 1 << min(max(MEMFLAGS.get(entry.flags, "MEMALIGN"), MIN_ALIGN), MAX_ALIGN)
        for _ in range(SVM_ATTEMPTS):
            address = self._search(SVM_WINDOW, entry.size, alignment)
            if address is None:
                break
            try:
                entry.backing.duplicate(address)
            except OSError:  # something else of this process lives there
                self._next[SVM_WINDOW] = address + SVM_STRIDE
                continue
            self._map(entry, address)
            return address
        raise Refused(errno.ENOMEM, f"no {entry.size:#x} bytes are free for both CPU and GPU")

    # ----- freeing ----------------------------------------------------------------------------

    def mark_free(self, entry: MemoryObject) -> None:
        """Claim the right to free an object; :class:`Refused` EBUSY if somebody else has it."""
        if entry.free_pending:
            raise Refused(errno.EBUSY, f"object {entry.id} is being freed already")
        entry.free_pending = True

    def free(self, entry: MemoryObject) -> None:
        """Drop the client's reference."""
        entry.free_pending = True
        self._drop(entry)

    def free_all(self) -> None:
        """The last descriptor of the process was closed."""
        for entry in list(self._objects.values()):
            if not entry.free_pending:
                self.free(entry)

    def _drop(self, entry: MemoryObject) -> None:
        entry.references -= 1
        if entry.references == 0:
            del self._objects[entry.id]
            heapq.heappush(self._free_ids, entry.id)
            if entry.backing is not None:
                self._bytes -= entry.size
            self._machine.defer(lambda: self._destroy(entry))

    def _destroy(self, entry: MemoryObject) -> None:
        if entry.gpu_address:
            self.memory.unmap(entry.gpu_address)
        entry.release()
        self.backing_count -= 1

    # ----- caches -----------------------------------------------------------------------------

    def maintain(self, entry: MemoryObject, operation: int, offset: int, length: int) -> None:
        """Cache maintenance of one object (``kgsl_cache_range_op``)."""
        if not operation & CacheOperation.FLUSH:
            raise Refused(errno.EINVAL, f"operation {operation:#x} is neither CLEAN nor INV")
        if not operation & CacheOperation.RANGE:
            offset, length = 0, entry.size
        if MEMFLAGS.get(entry.flags, "CACHEMODE") not in (CacheMode.WRITETHROUGH, CacheMode.WRITEBACK):
            return
        if length == 0:
            raise Refused(errno.EINVAL, "the range is empty")
        if offset + length > entry.size:
            raise Refused(
                errno.ERANGE,
                f"{length:#x} bytes at {offset:#x} exceed the {entry.size:#x} bytes of object {entry.id}",
            )
        if entry.pages is not None:
            if operation & CacheOperation.CLEAN:
                entry.pages.clean(offset, length)
            if operation & CacheOperation.INV:
                entry.pages.invalidate(offset, length)

    def clean(self, address: int, length: int) -> None:
        """Maintain the imports that hold a range of CPU addresses, as ``dc cvac`` does."""
        for pages, offset, size in self._imports(address, length):
            pages.clean(offset, size)

    def invalidate(self, address: int, length: int) -> None:
        """The same for ``dc civac``."""
        for pages, offset, size in self._imports(address, length):
            pages.invalidate(offset, size)

    def acquire(self) -> None:
        """The GPU is about to read: bring every import up to date (machines with coherent imports)."""
        for entry in self._objects.values():
            if entry.pages is not None:
                entry.pages.clean(0, entry.size)

    def publish(self) -> None:
        """The GPU has written: show it to the CPU (machines with coherent imports)."""
        for entry in self._objects.values():
            if entry.pages is not None:
                entry.pages.invalidate(0, entry.size)

    def _imports(self, address: int, length: int) -> list[tuple[ImportedPages, int, int]]:
        found = []
        for entry in self._objects.values():
            if entry.pages is None:
                continue
            first, last = (
                max(address, entry.user_address),
                min(address + length, entry.user_address + entry.size),
            )
            if first < last:
                found.append((entry.pages, first - entry.user_address, last - first))
        return found

    # ----- accounting -------------------------------------------------------------------------

    @property
    def object_count(self) -> int:
        return sum(entry.pages is None for entry in self._objects.values())

    @property
    def import_count(self) -> int:
        return sum(entry.pages is not None for entry in self._objects.values())


def _duplicate(backing: Backing) -> int:
    try:
        return backing.duplicate()
    except OSError as error:
        raise Refused(errno.ENOMEM, str(error)) from error


def _accepted(flags: int) -> int:
    """Return the flags that the driver keeps: unknown ones go, write-through becomes write-back (arm64)."""
    flags &= _ALLOC_FLAGS
    if MEMFLAGS.get(flags, "CACHEMODE") == CacheMode.WRITETHROUGH:
        flags = flags & ~_mask("CACHEMODE") | MEMFLAGS.pack(CACHEMODE=CacheMode.WRITEBACK)
    align = min(max(MEMFLAGS.get(flags, "MEMALIGN"), MIN_ALIGN), MAX_ALIGN)
    return flags & ~_mask("MEMALIGN") | MEMFLAGS.pack(MEMALIGN=align)


def _window(window: range) -> str:
    return f"{window.start:#x}..{window.stop:#x}"
