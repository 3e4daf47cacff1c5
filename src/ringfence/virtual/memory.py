"""GPU address spaces of the virtual devices, and memory that cannot crash the process.

Three things live here:

* :class:`AddressSpace` maps GPU addresses to host addresses. Both are never assumed to be equal.
* :class:`Backing` is the storage of one device object: a memfd that the *machine* maps. A client gets a
  second mapping of the same pages, so nothing that a client does to its own mapping can pull pages from
  under a running program.
* :class:`ImportedPages` is memory of the client that the device may use. Anonymous shared pages are mapped
  a second time; everything else (private pages, and files, which somebody could truncate) becomes a
  device-side copy.

Memory of the client is only ever touched with process_vm_readv/writev, which report a bad address instead
of dying.
"""

from __future__ import annotations

import bisect
import ctypes
import errno
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

PAGE = 4096
CACHE_LINE = 64  # bytes; the line of the Cortex-A75/A55 cores beside an A630
_WORD = 1 << 64
_REMEMBERED = 256  # ranges that were unmapped, for messages


class MemoryFault(Exception):
    """An access to a GPU address that is not mapped, or a write to a read-only one."""

    def __init__(self, address: int, write: bool, nearest: str) -> None:
        super().__init__(f"{'write to' if write else 'read from'} GPU address {address:#x}; {nearest}")
        self.address = address
        self.write = write
        self.nearest = nearest


@dataclass(frozen=True, slots=True)
class Range:
    """``length`` bytes at GPU address ``start``, backed by memory of this process at ``host_address``."""

    start: int
    length: int
    host_address: int
    writable: bool
    label: str
    object_id: int

    @property
    def end(self) -> int:
        return self.start + self.length

    def describe(self) -> str:
        name = f" {self.label!r}" if self.label else ""
        return f"object {self.object_id}{name} at {self.start:#x}..{self.end:#x}"


class AddressSpace:
    """A map from GPU addresses to host addresses. Every method may be called from any thread.

    ``generation`` grows with each change, so that a copy of the table can be told to be stale.
    """

    def __init__(self) -> None:
        self.generation = 0
        self._lock = threading.RLock()
        self._starts: list[int] = []
        self._ranges: list[Range] = []
        self._table: tuple[int, npt.NDArray[np.uint64]] | None = None
        self._unmapped: deque[Range] = deque(maxlen=_REMEMBERED)

    def __len__(self) -> int:
        return len(self._ranges)

    def map(
        self,
        gpu_address: int,
        length: int,
        host_address: int,
        *,
        writable: bool = True,
        label: str = "",
        object_id: int = 0,
    ) -> None:
        """Map ``length`` bytes; ``ValueError`` if any of them is mapped already or the range is not one."""
        if length <= 0 or gpu_address < 0 or gpu_address + length > _WORD:
            raise ValueError(f"cannot map {length} bytes at GPU address {gpu_address:#x}")
        new = Range(gpu_address, length, host_address, writable, label, object_id)
        with self._lock:
            if (taken := self.overlapping(gpu_address, length)) is not None:
                raise ValueError(f"cannot map {new.describe()}: it overlaps {taken.describe()}")
            index = bisect.bisect_left(self._starts, gpu_address)
            self._starts.insert(index, gpu_address)
            self._ranges.insert(index, new)
            self.generation += 1

    def unmap(self, gpu_address: int) -> None:
        """Undo the :meth:`map` that began at ``gpu_address``; ``ValueError`` if there is none."""
        with self._lock:
            index = bisect.bisect_left(self._starts, gpu_address)
            if index == len(self._starts) or self._starts[index] != gpu_address:
                raise ValueError(f"no mapping begins at GPU address {gpu_address:#x}")
            self._unmapped.append(self._ranges[index])
            del self._starts[index], self._ranges[index]
            self.generation += 1

    def relabel(self, gpu_address: int, label: str) -> None:
        """Change the label of the mapping that begins at ``gpu_address``."""
        with self._lock:
            index = bisect.bisect_left(self._starts, gpu_address)
            self._ranges[index] = replace(self._ranges[index], label=label)

    def find(self, address: int) -> Range | None:
        """Return the range that holds ``address``."""
        with self._lock:
            index = bisect.bisect_right(self._starts, address) - 1
            if index < 0 or address >= self._ranges[index].end:
                return None
            return self._ranges[index]

    def overlapping(self, address: int, length: int) -> Range | None:
        """Return the lowest range that shares a byte with ``length`` bytes at ``address``."""
        with self._lock:
            index = bisect.bisect_right(self._starts, address) - 1
            if index >= 0 and self._ranges[index].end > address:
                return self._ranges[index]
            if index + 1 < len(self._ranges) and self._ranges[index + 1].start < address + length:
                return self._ranges[index + 1]
            return None

    def nearest(self, address: int) -> str:
        """Return a sentence about where ``address`` lies, for fault messages."""
        with self._lock:
            if (inside := self.find(address)) is not None:
                access = "" if inside.writable else ", which is read-only"
                return f"{address - inside.start:#x} bytes into {inside.describe()}{access}"
            index = bisect.bisect_right(self._starts, address)
            around = [(address - r.end, "past the end of", r) for r in self._ranges[index - 1 : index]]
            around += [(r.start - address, "before", r) for r in self._ranges[index : index + 1]]
            gone = [r for r in self._unmapped if r.start <= address < r.end]
        history = f"; {gone[-1].describe()} was unmapped" if gone else ""
        if not around:
            return f"nothing is mapped{history}"
        distance, where, near = min(around, key=lambda entry: entry[0])
        return f"{distance:#x} bytes {where} {near.describe()}{history}"

    def read(self, address: int, length: int) -> bytes:
        """Return ``length`` bytes; :class:`MemoryFault` names the first byte that is not mapped."""
        with self._lock:
            chunks = [ctypes.string_at(host, n) for host, n in self._spans(address, length, False)]
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def write(self, address: int, data: bytes) -> None:
        """Store ``data``; nothing is stored if a byte of the range is not mapped or not writable."""
        with self._lock:
            offset = 0
            for host, n in self._spans(address, len(data), True):
                ctypes.memmove(host, data[offset : offset + n], n)
                offset += n

    def read_u32(self, address: int) -> int:
        """Return the dword at ``address`` (one aligned load where the address is aligned)."""
        with self._lock:
            inside = self.find(address)
            if inside is None or address + 4 > inside.end:
                return int.from_bytes(self.read(address, 4), "little")
            return ctypes.c_uint32.from_address(inside.host_address + address - inside.start).value

    def write_u32(self, address: int, value: int) -> None:
        """Store the dword ``value`` (one aligned store where the address is aligned)."""
        with self._lock:
            inside = self.find(address)
            if inside is None or address + 4 > inside.end or not inside.writable:
                self.write(address, (value & 0xFFFFFFFF).to_bytes(4, "little"))
                return
            ctypes.c_uint32.from_address(inside.host_address + address - inside.start).value = (
                value & 0xFFFFFFFF
            )

    def table(self) -> npt.NDArray[np.uint64]:
        """Return the ranges as an array of shape (n, 4): start, end, host - GPU address mod 2^64, writable.

        Rows are sorted by start. The array is made once per generation and must not be changed.
        """
        with self._lock:
            if self._table is None or self._table[0] != self.generation:
                rows = [
                    (r.start, r.end, (r.host_address - r.start) % _WORD, int(r.writable))
                    for r in self._ranges
                ]
                self._table = (self.generation, np.array(rows, dtype=np.uint64).reshape(-1, 4))
            return self._table[1]

    def _spans(self, address: int, length: int, write: bool) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        end = address + length
        while address < end:
            inside = self.find(address)
            if inside is None or (write and not inside.writable):
                raise MemoryFault(address, write, self.nearest(address))
            n = min(end, inside.end) - address
            spans.append((inside.host_address + address - inside.start, n))
            address += n
        return spans


# ----- the client's memory ------------------------------------------------------------------------


class BadAddress(OSError):
    """A pointer of the client does not point to memory that can be read or written (EFAULT)."""

    def __init__(self, address: int, length: int, done: int) -> None:
        super().__init__(errno.EFAULT, f"{length} bytes at {address:#x} are not accessible ({done} were)")


class _IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


_PROT_NONE, _PROT_READ, _PROT_RW = 0, 1, 3
_MAP_SHARED, _MAP_PRIVATE, _MAP_ANONYMOUS = 0x01, 0x02, 0x20
_MAP_NORESERVE, _MAP_FIXED_NOREPLACE = 0x4000, 0x100000
_MREMAP_MAYMOVE, _MREMAP_FIXED = 1, 2
_MADV_POPULATE_READ, _MADV_POPULATE_WRITE = 22, 23
_MAP_FAILED = 2 ** (8 * ctypes.sizeof(ctypes.c_void_p)) - 1
_IOV_MAX = 1024

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.mremap.restype = ctypes.c_void_p
_libc.mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
for _name in ("process_vm_readv", "process_vm_writev"):
    _function = getattr(_libc, _name)
    _function.restype = ctypes.c_ssize_t
    _function.argtypes = (
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_ulong,
        ctypes.c_void_p,
        ctypes.c_ulong,
        ctypes.c_ulong,
    )


def read_user(address: int, length: int) -> bytes:
    """Return ``length`` bytes of the client's memory; :class:`BadAddress` if any of them cannot be read."""
    data = ctypes.create_string_buffer(length)
    done = _transfer(_libc.process_vm_readv, ctypes.addressof(data), [(address, length)])
    if done != length:
        raise BadAddress(address, length, done)
    return data.raw


def write_user(address: int, data: bytes) -> None:
    """Store ``data`` in the client's memory; :class:`BadAddress` if any byte of it cannot be written."""
    local = ctypes.create_string_buffer(data, len(data))
    done = _transfer(_libc.process_vm_writev, ctypes.addressof(local), [(address, len(data))])
    if done != len(data):
        raise BadAddress(address, len(data), done)


def _transfer(call: Callable[..., int], local: int, remote: list[tuple[int, int]]) -> int:
    """Copy between ``local`` and the remote pieces, in order; return how many bytes were copied."""
    total = sum(length for _, length in remote)
    if total == 0:
        return 0
    if any(not 0 <= address < 1 << 63 for address, _ in remote):
        return 0
    pieces = (_IoVec * len(remote))(*(_IoVec(address, length) for address, length in remote))
    done = call(os.getpid(), ctypes.byref(_IoVec(local, total)), 1, pieces, len(remote), 0)
    if done >= 0:
        return done
    if (code := ctypes.get_errno()) == errno.EFAULT:
        return 0
    raise OSError(
        code, f"{call.__name__} on this process failed: {os.strerror(code)}; virtual devices need it"
    )


def unmap_pages(address: int, length: int) -> None:
    """munmap(2)."""
    if _libc.munmap(address, length):
        code = ctypes.get_errno()
        raise OSError(code, f"munmap({address:#x}, {length:#x}): {os.strerror(code)}")


def reserve_pages(length: int, alignment: int) -> int:
    """Return the address of ``length`` bytes without access, at a multiple of ``alignment``."""
    flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE
    spare = alignment - PAGE
    found = _libc.mmap(None, length + spare, _PROT_NONE, flags, -1, 0)
    if found == _MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, f"{length} bytes of addresses: {os.strerror(code)}")
    first = round_up(found, alignment)
    if first > found:
        unmap_pages(found, first - found)
    if rest := found + spare - first:
        unmap_pages(first + length, rest)
    return int(first)


def protect_pages(address: int, length: int) -> None:
    """Make pages read-only (mprotect(2))."""
    if _libc.mprotect(address, length, _PROT_READ):
        code = ctypes.get_errno()
        raise OSError(code, f"mprotect({address:#x}, {length:#x}): {os.strerror(code)}")


def round_up(value: int, unit: int = PAGE) -> int:
    """Return the smallest multiple of ``unit`` (a power of two) that is not below ``value``."""
    return (value + unit - 1) & -unit


# ----- storage of objects -------------------------------------------------------------------------


class Backing:
    """Zeroed storage of ``length`` bytes (page multiple) that the machine maps at ``host_address``.

    The pages belong to a memfd whose descriptor is closed again at once: :meth:`duplicate` maps them a
    second time with mremap(2), so that thousands of objects do not exhaust the descriptors of the process.
    ``OSError`` (ENOMEM) if there is no memory or no address range.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        descriptor = os.memfd_create("ringfence", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, length)
            address = _libc.mmap(None, length, _PROT_RW, _MAP_SHARED | _MAP_NORESERVE, descriptor, 0)
        finally:
            os.close(descriptor)
        if address == _MAP_FAILED:
            code = ctypes.get_errno()
            raise OSError(code, f"mmap of {length} bytes for a virtual object: {os.strerror(code)}")
        self.host_address = address

    def duplicate(self, address: int | None = None, length: int | None = None) -> int:
        """Map the pages once more, for a client, and return where.

        With ``address`` the mapping is made exactly there, or ``OSError`` (EEXIST) says that something else
        lives there.
        """
        length = self.length if length is None else length
        if address is None:
            return _remap(self.host_address, length)
        flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED_NOREPLACE
        reserved = _libc.mmap(address, length, _PROT_NONE, flags, -1, 0)
        if reserved == _MAP_FAILED:
            code = ctypes.get_errno()
            raise OSError(code, f"{length} bytes at {address:#x} are not free: {os.strerror(code)}")
        if reserved != address:  # kernels before 4.17 take the flag for a hint
            unmap_pages(reserved, length)
            raise OSError(errno.EEXIST, f"{length} bytes at {address:#x} are not free")
        return _remap(self.host_address, length, address)

    def replace(self, address: int, length: int) -> None:
        """Map the pages once more at ``address``, in place of whatever is mapped there."""
        _remap(self.host_address, length, address)

    def release(self) -> None:
        unmap_pages(self.host_address, self.length)


def _remap(source: int, length: int, address: int | None = None) -> int:
    """Map shared pages a second time (mremap with old size 0); ``OSError`` EINVAL if they are private."""
    flags = _MREMAP_MAYMOVE | (_MREMAP_FIXED if address is not None else 0)
    result = _libc.mremap(source, 0, length, flags, address)
    if result == _MAP_FAILED:
        code = ctypes.get_errno()
        raise OSError(code, f"mremap({source:#x}, 0, {length:#x}): {os.strerror(code)}")
    return int(result)


class ImportedPages:
    """``length`` bytes of the client at page-aligned ``address``, as a device may use them.

    If the pages are anonymous and shared, ``host_address`` is a second mapping of them: what a client does
    to its own mapping later does not matter, and both sides see each other's stores at once. Everything
    else is copied once, now, and then synchronised only where the client maintains its caches:
    :meth:`clean` carries what the CPU changed to the device, :meth:`invalidate` carries what the device
    changed to the CPU. That is what non-coherent caches do at their worst. Only changed bytes are ever
    written to the client, so its neighbouring data is safe.
    """

    def __init__(self, address: int, length: int, *, writable: bool = True) -> None:
        _pin(address, length, writable)
        self.address = address
        self.length = length
        self.writable = writable
        shared = _duplicate_shared(address, length)
        self.copied = shared is None
        if shared is not None:
            self.host_address = shared
            return
        content = np.frombuffer(read_user(address, length), np.uint8)
        self._storage = Backing(length)
        self.host_address = self._storage.host_address
        self._device = _bytes_at(self.host_address, length)
        self._device[:] = content
        self._synced = content.copy()

    def clean(self, offset: int, length: int) -> None:
        """Write the CPU's cache lines that touch the range back: the device sees what the CPU stored."""
        lines, cpu = self._read_lines(offset, length)
        if cpu is None:
            return
        dirty = cpu != self._synced[lines]
        self._device[lines][dirty] = cpu[dirty]
        self._synced[lines][dirty] = cpu[dirty]

    def invalidate(self, offset: int, length: int) -> None:
        """Write back what the CPU stored, then drop its lines: the CPU sees what the device stored.

        On arm64 user space can only clean *and* invalidate (dc civac), so a byte that both sides stored
        keeps the CPU's value.
        """
        self.clean(offset, length)
        lines, cpu = self._read_lines(offset, length)
        if cpu is None:
            return
        device = self._device[lines]
        stored = np.flatnonzero((device != self._synced[lines]) & (cpu == self._synced[lines]))
        if stored.size:
            self._store(lines.start, device, stored)
            self._synced[lines][stored] = device[stored]

    def release(self) -> None:
        """Unmap the device's side. The client's own pages are not touched."""
        unmap_pages(self.host_address, self.length)

    def _read_lines(self, offset: int, length: int) -> tuple[slice, npt.NDArray[np.uint8] | None]:
        """Return the cache lines of a range and the CPU's view of them; ``None``: nothing to synchronise.

        The kernel keeps imported pages alive, so maintenance of pages that the client has unmapped is no
        error there; here there is no CPU view to synchronise with any more.
        """
        start = offset & -CACHE_LINE
        end = min(round_up(offset + length, CACHE_LINE), self.length)
        lines = slice(start, end)
        if not self.copied or end <= start:
            return lines, None
        try:
            return lines, np.frombuffer(read_user(self.address + start, end - start), np.uint8)
        except BadAddress:
            return lines, None

    def _store(self, base: int, device: npt.NDArray[np.uint8], stored: npt.NDArray[np.intp]) -> None:
        breaks = np.flatnonzero(np.diff(stored) != 1)
        firsts = stored[np.concatenate(([0], breaks + 1))]
        lasts = stored[np.concatenate((breaks, [stored.size - 1]))]
        runs = [(int(first), int(last) + 1) for first, last in zip(firsts, lasts, strict=True)]
        for i in range(0, len(runs), _IOV_MAX):
            some = runs[i : i + _IOV_MAX]
            data = np.concatenate([device[first:end] for first, end in some])
            remote = [(self.address + base + first, end - first) for first, end in some]
            _transfer(_libc.process_vm_writev, data.ctypes.data, remote)


def _bytes_at(address: int, length: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(memoryview((ctypes.c_uint8 * length).from_address(address)), np.uint8)


def _pin(address: int, length: int, writable: bool) -> None:
    """Check what pinning the pages would check, and break copy-on-write as it would.

    :class:`BadAddress` if it fails.
    """
    advice = _MADV_POPULATE_WRITE if writable else _MADV_POPULATE_READ
    if _libc.madvise(address, length, advice) == 0:
        return
    # EINVAL: no permission, special pages, or a kernel before 5.14, which does not know the advice.
    if ctypes.get_errno() != errno.EINVAL or not _allows(address, length, writable):
        raise BadAddress(address, length, 0)


def _allows(address: int, length: int, writable: bool) -> bool:
    end = address + length
    for area in _areas():
        if area.start <= address < area.end:
            if not area.readable or (writable and not area.writable):
                return False
            address = area.end
            if address >= end:
                return True
    return False


def _duplicate_shared(address: int, length: int) -> int | None:
    """Return a second mapping of the pages if they are shared anonymous memory, which nobody can truncate."""
    try:
        duplicate = _remap(address, length)
    except OSError:
        return None
    for area in _areas():
        if area.start <= address < area.end:
            if area.shared and area.anonymous and address + length <= area.end:
                return duplicate
            break
    unmap_pages(duplicate, length)
    return None


@dataclass(frozen=True, slots=True)
class _Area:
    start: int
    end: int
    readable: bool
    writable: bool
    shared: bool
    anonymous: bool


def _areas() -> Iterable[_Area]:
    """Yield the mappings of this process in order (proc(5), /proc/pid/maps)."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            span, permissions, _offset, _device, _inode, *path = line.split(None, 5)
            start, _, end = span.partition("-")
            yield _Area(
                int(start, 16),
                int(end, 16),
                permissions[0] == "r",
                permissions[1] == "w",
                permissions[3] == "s",
                bool(path) and path[0].strip() == "/dev/zero (deleted)",
            )


class ClientMappings:
    """Which addresses of this process are a client's mappings of device objects, and whose.

    Not thread safe: the machine's lock protects it.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._pieces: list[tuple[int, ClientMapping]] = []  # end and owner, sorted by start

    def __len__(self) -> int:
        return len({id(mapping) for _, mapping in self._pieces if not mapping.reserved})

    @property
    def reservations(self) -> int:
        """How many reserved ranges have pages left that nothing was mapped into."""
        return len({id(mapping) for _, mapping in self._pieces if mapping.reserved})

    def add(self, address: int, length: int, released: Callable[[], None], *, reserved: bool = False) -> None:
        """Record a mapping; ``released`` is called when its last page was unmapped or replaced.

        It takes the place of what was recorded for these pages.
        """
        replaced = self._cut(address, address + length)
        self._insert(address, address + length, ClientMapping(length, released, reserved))
        for start, stop, mapping in replaced:
            mapping.shrink(stop - start)

    def covers(self, address: int, length: int) -> bool:
        """Return whether the whole range was reserved or mapped."""
        end = address + length
        index = bisect.bisect_right(self._starts, address) - 1
        while 0 <= index < len(self._starts) and self._starts[index] <= address:
            address = max(address, self._pieces[index][0])
            if address >= end:
                return True
            index += 1
        return False

    def overlaps(self, address: int, length: int) -> bool:
        """Return whether a byte of the range is a mapping of a device object, or reserved for one."""
        index = bisect.bisect_right(self._starts, address) - 1
        if index >= 0 and self._pieces[index][0] > address:
            return True
        return index + 1 < len(self._starts) and self._starts[index + 1] < address + length

    def unmap(self, address: int, length: int) -> bool:
        """munmap the part of the range that is recorded here; return whether all of it was."""
        found = 0
        for start, stop, mapping in self._cut(address, address + length):
            unmap_pages(start, stop - start)
            found += stop - start
            mapping.shrink(stop - start)
        return found == length

    def _insert(self, start: int, end: int, mapping: ClientMapping) -> None:
        index = bisect.bisect_left(self._starts, start)
        self._starts.insert(index, start)
        self._pieces.insert(index, (end, mapping))

    def _cut(self, address: int, end: int) -> list[tuple[int, int, ClientMapping]]:
        first = max(0, bisect.bisect_right(self._starts, address) - 1)
        last = bisect.bisect_left(self._starts, end)
        found = list(zip(self._starts[first:last], self._pieces[first:last], strict=True))
        cut = []
        for start, (stop, mapping) in found:
            begin, finish = max(start, address), min(stop, end)
            if begin >= finish:
                continue
            index = bisect.bisect_left(self._starts, start)
            del self._starts[index], self._pieces[index]
            if start < begin:
                self._insert(start, begin, mapping)
            if finish < stop:
                self._insert(finish, stop, mapping)
            cut.append((begin, finish, mapping))
        return cut


@dataclass(slots=True)
class ClientMapping:
    """``mapped`` counts the bytes that are still mapped."""

    mapped: int
    released: Callable[[], None]
    reserved: bool = False

    def shrink(self, length: int) -> None:
        """Account for pages that are gone."""
        self.mapped -= length
        if self.mapped == 0:
            self.released()
