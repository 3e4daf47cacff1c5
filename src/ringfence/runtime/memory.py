"""Buffers, who owns the memory behind them, and when it may be given back.

Three objects share the work. A :class:`Mapping` is a range that the GPU can address. A :class:`Buffer` is
what users hold: a view of a mapping with a type and a label. :class:`Memory` is a device's list of mappings;
it releases one when nobody wants it any more, the GPU has finished with it, and no view of it lives in this
process.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import operator
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringfence.errors import LaunchError, LeaseError, PortError

_HOST_SPACE = 1 << 64  # beyond every GPU address


class Ownership(enum.Enum):
    """Who frees the memory behind a buffer."""

    DEVICE = "device"
    """The device allocated it, and frees it."""
    HOST = "host"
    """CPU memory of someone else that is mapped into the GPU; the mapping is ours, the memory is not."""
    FOREIGN = "foreign"
    """A GPU address that someone else owns; never freed by us."""


class CacheMode(enum.Enum):
    """How the CPU sees device memory."""

    WRITE_COMBINE = "writecombine"
    """Not cached; stores are gathered. Fast to write, slow to read, always coherent."""
    UNCACHED = "uncached"
    """Not cached at all."""
    CACHED = "cached"
    """Cached; needs maintenance around GPU use, which :class:`Buffer` does."""
    DEVICE = "device"
    """Not mapped into the CPU at all: only GPUs reach it, and copies through other memory."""


@dataclass(slots=True, eq=False)
class UseMark:
    """The latest GPU use of everything that one bound stream refers to, kept in one place."""

    value: int = 0


@dataclass(slots=True, eq=False, weakref_slot=True)
class Mapping:
    """A range of memory that the GPU can address, and what is needed to give it back.

    ``gpu_address`` and ``host_address`` name the same byte; they are never assumed equal. ``host_address`` is
    ``None`` if the CPU cannot reach it. ``handle`` and ``map_bytes`` belong to the backend. ``last_use`` is
    the timeline value of the last GPU work that names this mapping, ``visible`` the one up to which CPU
    caches were invalidated. ``space`` is the device memory that accepts the mapping in commands, ``None``
    once it was freed. ``readonly``: the GPU cannot write it. ``sharers`` is one list for all devices that map
    the same memory, empty if only one does.
    """

    gpu_address: int
    nbytes: int
    host_address: int | None
    ownership: Ownership
    cache: CacheMode = CacheMode.WRITE_COMBINE
    label: str = ""
    handle: int = 0
    map_bytes: int = 0
    owner: object = None
    space: Memory | None = None
    last_use: int = 0
    visible: int = 0
    pins: int = 0
    views: int = 0
    released: bool = False
    readonly: bool = False
    marks: list[UseMark] = field(default_factory=list)
    sharers: list[tuple[Memory, Mapping]] = field(default_factory=list)

    @property
    def use(self) -> int:
        """The timeline value after which the GPU does not touch this mapping any more."""
        return max([self.last_use, *(mark.value for mark in self.marks)])

    @property
    def cpu_cached(self) -> bool:
        """Whether the CPU may hold cache lines of it, so that reads and writes need maintenance."""
        return self.ownership is not Ownership.DEVICE or self.cache is CacheMode.CACHED

    def __str__(self) -> str:
        name = f"{self.label!r} " if self.label else ""
        return f"{name}({self.ownership.value}, {self.nbytes} bytes at GPU {self.gpu_address:#x})"


class MemoryBackend(Protocol):
    """What a driver does for :class:`Memory`. Addresses are those of the byte that the mapping begins
    with.
    """

    def allocate(self, nbytes: int, *, cache: CacheMode, readonly: bool, label: str) -> Mapping:
        """Return new zero-filled device memory; with ``readonly`` the GPU cannot write it."""

    def import_host(
        self, pointer: int, nbytes: int, *, writable: bool, may_be_gpu_address: bool, label: str
    ) -> Mapping:
        """Return CPU memory of this process mapped into the GPU."""

    def share(self, mapping: Mapping, home: MemoryBackend, *, label: str) -> Mapping:
        """Return memory of another device, whose backend is ``home``, mapped into the GPU;
        :class:`LeaseError` if it cannot be. What is shared is freed with the last device that releases it.
        """

    def release(self, mapping: Mapping) -> None:
        """Take the mapping away from the GPU. Foreign memory is left alone."""

    def unmap(self, mapping: Mapping) -> None:
        """Take the CPU mapping of device memory away."""

    def flush(self, mapping: Mapping, offset: int, nbytes: int) -> None:
        """Make earlier CPU stores to the range visible to the GPU."""

    def invalidate(self, mapping: Mapping, offset: int, nbytes: int) -> None:
        """Make GPU stores to the range visible to later CPU loads."""


class Completion(Protocol):
    """What :class:`Memory` asks about GPU work."""

    def finished(self, value: int) -> bool:
        """Return whether the GPU does not work on anything up to timeline ``value`` any more."""

    def wait(self, value: int, timeout: float | None = None) -> None:
        """Wait for timeline ``value``; :class:`WaitTimeout` or :class:`DeviceLost` if it does not come."""


class Transfers(Protocol):
    """Copies between CPU memory and buffers that the CPU does not reach."""

    def write(self, buffer: Buffer, address: int, timeout: float | None) -> None:
        """Replace the contents of ``buffer`` by those of CPU memory at ``address``."""

    def read(self, buffer: Buffer, address: int, timeout: float | None) -> None:
        """Copy the contents of ``buffer`` to CPU memory at ``address``."""


class Memory:
    """All mappings of one device.

    Buffers may be dropped by the garbage collector in any thread at any moment, so finalisers only append to
    a queue; everything else happens in :meth:`reap`, which every call that allocates, frees or waits goes
    through. ``lock`` is held while work is submitted, so that nothing can be released between its check and
    its use.
    """

    def __init__(self, backend: MemoryBackend, completion: Completion, lock: threading.RLock) -> None:
        self._backend = backend
        self._completion = completion
        self._lock = lock
        self._live: dict[int, Mapping] = {}
        self._condemned: list[Mapping] = []
        self._dropped: deque[Mapping] = deque()
        self._unviewed: deque[Mapping] = deque()
        self._unpinned: deque[tuple[Mapping, UseMark]] = deque()
        self.closed = False
        self.reachable = CacheMode.WRITE_COMBINE
        """The fastest memory that the CPU reaches."""
        self.staging: Transfers | None = None
        """What copies to and from memory that the CPU does not reach."""

    # ----- acquiring ------------------------------------------------------------------------------

    def allocate(
        self,
        nbytes: int,
        *,
        cache: CacheMode | None = None,
        readonly: bool = False,
        label: str = "",
    ) -> Mapping:
        """Return new zero-filled device memory of at least ``nbytes``, by default such that the CPU reaches.
        Raises PortError (ENOMEM) when there is none.
        """
        if cache is None:
            cache = self.reachable
        if nbytes <= 0:
            raise LaunchError(f"buffer {label!r}: asked for {nbytes} bytes; a buffer has at least one byte")
        with self._lock:
            self.reap()
            try:
                mapping = self._backend.allocate(nbytes, cache=cache, readonly=readonly, label=label)
            except PortError as error:
                if error.errno != errno.ENOMEM:
                    raise
                mapping = self._allocate_again(error, nbytes, cache, readonly, label)
            mapping.readonly = readonly
            return self._adopt(mapping)

    def _allocate_again(
        self, error: PortError, nbytes: int, cache: CacheMode, readonly: bool, label: str
    ) -> Mapping:
        """Freed memory that only waits for the GPU may be what is missing."""
        if self._condemned:
            self._finish_condemned()
            try:
                return self._backend.allocate(nbytes, cache=cache, readonly=readonly, label=label)
            except PortError as again:
                error = again
        raise PortError(error.call, error.errno or 0, f"{label!r}: {self.report()}") from None

    def import_host(
        self,
        pointer: int,
        nbytes: int,
        *,
        owner: object = None,
        writable: bool = True,
        may_be_gpu_address: bool = False,
        label: str = "",
    ) -> Mapping:
        """Return the CPU memory at ``pointer`` mapped into the GPU; ``owner`` lives as long as that.

        :class:`LeaseError` if the pointer is null, the range empty, or the memory cannot be mapped.
        """
        if pointer <= 0:
            raise LeaseError(f"import of {label!r}: the pointer is null")
        if nbytes <= 0:
            raise LeaseError(f"import of {label!r}: the range at {pointer:#x} has {nbytes} bytes")
        with self._lock:
            self.reap()
            mapping = self._backend.import_host(
                pointer, nbytes, writable=writable, may_be_gpu_address=may_be_gpu_address, label=label
            )
            mapping.owner, mapping.readonly = owner, not writable
            return self._adopt(mapping)

    def share(self, source: Mapping, *, label: str = "") -> Mapping:
        """Return memory of another device mapped into this one too; :class:`LeaseError` if it cannot be."""
        home, mark = source.space, UseMark()
        if home is None:
            raise LeaseError(f"{label!r} was freed, or its device is closed")
        if home is self or any(memory is self for memory, _ in source.sharers):
            raise LeaseError(f"{label!r} is memory of this device already")
        home.pin(source, mark)
        try:
            with self._lock:
                self.reap()
                mapping = self._backend.share(source, home._backend, label=label)
                mapping.owner, mapping.readonly = source.owner, source.readonly
                if not source.sharers:
                    source.sharers.append((home, source))
                mapping.sharers = source.sharers
                mapping.sharers.append((self, mapping))
                return self._adopt(mapping)
        finally:
            home.unpin(source, mark)

    def _adopt(self, mapping: Mapping) -> Mapping:
        mapping.space = self
        self._live[id(mapping)] = mapping
        return mapping

    # ----- giving back ----------------------------------------------------------------------------

    def free(self, mapping: Mapping) -> None:
        """Give the mapping back: now if nothing uses it, else as soon as that is so. Freeing twice does
        nothing.
        """
        with self._lock:
            if mapping.space is not None:
                mapping.space = None
                self._condemned.append(mapping)
            self.reap()

    def drop(self, mapping: Mapping) -> None:
        """As :meth:`free`, for finalisers: takes no lock and makes no system call."""
        self._dropped.append(mapping)

    def pin(self, mapping: Mapping, mark: UseMark) -> None:
        """Keep the mapping until :meth:`unpin`, even if it is freed; ``mark`` tells of its latest use."""
        with self._lock:
            mapping.pins += 1
            mapping.marks.append(mark)

    def unpin(self, mapping: Mapping, mark: UseMark) -> None:
        """Undo :meth:`pin`; takes effect at the next :meth:`reap`, so that finalisers may call it."""
        self._unpinned.append((mapping, mark))

    def reap(self) -> None:
        """Release every freed mapping that nothing uses any more. The first error is raised after all were
        tried.
        """
        if not (self._dropped or self._unviewed or self._unpinned or self._condemned):
            return
        with self._lock:
            self._count_down()
            while self._dropped:
                mapping = self._dropped.popleft()
                if mapping.space is not None:
                    mapping.space = None
                    self._condemned.append(mapping)
            candidates, self._condemned = self._condemned, []
            self._release_all(candidates)

    def _count_down(self) -> None:
        while self._unviewed:
            self._unviewed.popleft().views -= 1
        while self._unpinned:
            mapping, mark = self._unpinned.popleft()
            mapping.pins -= 1
            mapping.marks.remove(mark)
            mapping.last_use = max(mapping.last_use, mark.value)

    def _finish_condemned(self) -> None:
        for mapping in self._condemned:
            if not (mapping.pins or mapping.views):
                self._completion.wait(mapping.use)
        self.reap()

    def _release_all(self, candidates: list[Mapping]) -> None:
        first: PortError | None = None
        for mapping in candidates:
            if mapping.pins or mapping.views or not self._completion.finished(mapping.use):
                self._condemned.append(mapping)
                continue
            try:
                self._release(mapping)
            except PortError as error:
                first = first or error
        if first is not None:
            raise first

    def _release(self, mapping: Mapping) -> None:
        # If the kernel refuses, the mapping stays in _live (with its owner), and close() tries once more.
        self._take_away(mapping)
        self._backend.unmap(mapping)
        mapping.owner = None
        del self._live[id(mapping)]

    def _take_away(self, mapping: Mapping) -> None:
        if not mapping.released:
            self._backend.release(mapping)
            mapping.released = True
            if mapping.sharers:
                mapping.sharers.remove((self, mapping))

    def close(self) -> None:
        """Release everything; the GPU must have stopped. Memory that a view still shows is unmapped with the
        last view.

        The first error is raised after everything was tried.
        """
        with self._lock:
            self.closed = True
            first: PortError | None = None
            self._count_down()
            for mapping in list(self._live.values()):
                mapping.space = None
                try:
                    self._close_one(mapping)
                except PortError as error:
                    first = first or error
            self._live.clear()
            self._condemned.clear()
            self._dropped.clear()
        if first is not None:
            raise first

    def _close_one(self, mapping: Mapping) -> None:
        try:
            self._take_away(mapping)
        finally:
            if not mapping.views:
                self._backend.unmap(mapping)
                mapping.owner = None

    # ----- CPU access -----------------------------------------------------------------------------

    def view(self, mapping: Mapping, offset: int, nbytes: int) -> ctypes.Array[ctypes.c_uint8]:
        """Return the bytes as a ctypes array. The memory stays mapped as long as it, or a view of it,
        lives.
        """
        assert mapping.host_address is not None
        array = (ctypes.c_uint8 * nbytes).from_address(mapping.host_address + offset)
        with self._lock:
            mapping.views += 1
        weakref.finalize(array, self._view_gone, mapping).atexit = False
        return array

    def _view_gone(self, mapping: Mapping) -> None:
        self._unviewed.append(mapping)
        if not self.closed:
            return
        # The device is closed, so nothing calls reap() any more: the last view takes the mapping with it.
        with self._lock:
            while self._unviewed:
                gone = self._unviewed.popleft()
                gone.views -= 1
                if not gone.views:
                    self._backend.unmap(gone)
                    gone.owner = None

    def wait(self, mapping: Mapping, timeout: float | None = None) -> None:
        """Wait until every GPU has finished with the mapping, and let the CPU see what it wrote."""
        use = mapping.use
        self._completion.wait(use, timeout)
        self.make_visible(mapping, use)
        if mapping.sharers:
            self.wait_for_others(mapping, timeout)

    def wait_for_others(self, mapping: Mapping, timeout: float | None = None) -> None:
        """Wait until the other devices that map the same memory have finished with it."""
        for memory, other in tuple(mapping.sharers):
            if memory is not self:
                memory.wait_for(other, timeout)

    def wait_for(self, mapping: Mapping, timeout: float | None = None) -> None:
        """Wait until the GPU has finished with the mapping."""
        self._completion.wait(mapping.use, timeout)

    def make_visible(self, mapping: Mapping, use: int) -> None:
        """Drop stale CPU cache lines of a mapping that finished GPU work up to ``use`` may have written."""
        if use > mapping.visible and mapping.cpu_cached:
            self._backend.invalidate(mapping, 0, mapping.nbytes)
        mapping.visible = max(use, mapping.visible)

    def flush(self, mapping: Mapping, offset: int, nbytes: int) -> None:
        """Let the GPU see what the CPU wrote to the range."""
        if mapping.cpu_cached:
            self._backend.flush(mapping, offset, nbytes)

    def invalidate(self, mapping: Mapping, offset: int, nbytes: int) -> None:
        """Let the CPU see what the GPU wrote to the range, whether or not this process submitted the work."""
        if mapping.cpu_cached:
            self._backend.invalidate(mapping, offset, nbytes)

    # ----- diagnosis ------------------------------------------------------------------------------

    def nearest(self, address: int) -> str | None:
        """Return a sentence about where a GPU address lies among the mappings, ``None`` if there are none."""

        def distance(mapping: Mapping) -> int:
            end = mapping.gpu_address + mapping.nbytes
            return max(mapping.gpu_address - address, address - end + 1, 0)

        mapping = min(self._live.copy().values(), key=distance, default=None)
        if mapping is None:
            return None
        offset = address - mapping.gpu_address
        if offset < 0:
            where = f"{-offset:#x} bytes before"
        elif offset < mapping.nbytes:
            where = f"{offset:#x} bytes into"
        else:
            where = f"{offset - mapping.nbytes:#x} bytes past the end of"
        note = "" if mapping.space is not None else ", which was freed"
        return f"{where} {mapping}{note}"

    # ----- figures --------------------------------------------------------------------------------

    def report(self, most: int = 5) -> str:
        """Return a sentence that tells who holds the memory of the device, the largest owners first."""
        owners: dict[str, int] = {}
        for mapping in list(self._live.values()):
            owners[mapping.label] = owners.get(mapping.label, 0) + mapping.nbytes
        ranked = sorted(owners.items(), key=lambda owner: -owner[1])
        named = [f"{nbytes} of {label!r}" for label, nbytes in ranked[:most]]
        if rest := sum(nbytes for _, nbytes in ranked[most:]):
            named.append(f"{rest} of {len(ranked) - most} others")
        held = ", ".join(named) or "nothing"
        return f"this process holds {self.total_bytes} bytes on the device: {held}"

    @property
    def mapping_count(self) -> int:
        """How many mappings exist, freed ones that wait for the GPU included."""
        return len(self._live)

    @property
    def total_bytes(self) -> int:
        """How many bytes the mappings of :attr:`mapping_count` span."""
        return sum(mapping.nbytes for mapping in list(self._live.values()))


class _Handle:
    """Shared by a buffer and its views: when the last of them is collected, the mapping is dropped."""

    __slots__ = ("mapping", "memory")

    def __init__(self, memory: Memory, mapping: Mapping) -> None:
        self.memory = memory
        self.mapping = mapping

    def __del__(self) -> None:
        if self.mapping.space is not None:
            self.memory.drop(self.mapping)


class Buffer:
    """Typed memory that programs of one device can use.

    Buffers come from a device (``dev.array``, ``dev.empty``, ``dev.import_array``). ``dtype`` and ``shape``
    are ``None`` for raw bytes, which fit any buffer argument. Reading waits for the GPU by itself, with a
    deadline; writing waits for the GPU's last use first.

    >>> import numpy as np, ringfence as rf
    >>> with rf.open("virtual:a630") as dev:
    ...     x = dev.array(np.arange(4, dtype=np.float32))
    ...     x.copy_from(np.ones(4, np.float32))
    ...     print(x.numpy())
    [1. 1. 1. 1.]
    """

    __slots__ = (
        "__weakref__",
        "_handle",
        "dtype",
        "gpu_address",
        "label",
        "mapping",
        "nbytes",
        "offset",
        "shape",
    )

    def __init__(
        self,
        memory: Memory,
        mapping: Mapping,
        *,
        offset: int = 0,
        nbytes: int | None = None,
        dtype: DTypeLike | None = None,
        shape: tuple[int, ...] | None = None,
        label: str | None = None,
        _handle: _Handle | None = None,
    ) -> None:
        self._handle = _handle or _Handle(memory, mapping)
        self.mapping = mapping
        self.offset = offset
        self.nbytes = mapping.nbytes - offset if nbytes is None else nbytes
        self.gpu_address = mapping.gpu_address + offset
        self.dtype = None if dtype is None else np.dtype(dtype)
        self.shape = shape
        self.label = mapping.label if label is None else label

    # ----- what it is -----------------------------------------------------------------------------

    @property
    def ownership(self) -> Ownership:
        """Return who frees the memory."""
        return self.mapping.ownership

    @property
    def freed(self) -> bool:
        """Return whether the buffer was freed, or its device closed. It may still be mapped for running GPU
        work.
        """
        return self.mapping.space is None

    @property
    def host_address(self) -> int | None:
        """Return the CPU address of the first byte, ``None`` if the CPU cannot reach it."""
        base = self.mapping.host_address
        return None if base is None else base + self.offset

    def __repr__(self) -> str:
        kind = "raw" if self.dtype is None else f"{self.dtype.name}{list(self.shape or ())}"
        state = ", freed" if self.freed else ""
        return (
            f"<Buffer {self.label!r} {kind}, {self.nbytes} bytes at GPU {self.gpu_address:#x}, "
            f"{self.ownership.value}{state}>"
        )

    def offset_view(
        self,
        offset: int,
        nbytes: int | None = None,
        *,
        dtype: DTypeLike | None = None,
        shape: tuple[int, ...] | None = None,
        label: str | None = None,
    ) -> Buffer:
        """Return a buffer of the same memory that begins ``offset`` bytes in. :class:`LaunchError` if it does
        not fit.

        Without ``dtype`` it is raw bytes. It is freed together with the buffer that it was made from.
        """
        self._check_alive()
        try:
            offset = operator.index(offset)
            size = self.nbytes - offset if nbytes is None else operator.index(nbytes)
        except TypeError:
            raise LaunchError(
                f"view of {nbytes!r} bytes at byte {offset!r} of {self!r}: both are whole numbers"
            ) from None
        if offset < 0 or size <= 0 or offset + size > self.nbytes:
            raise LaunchError(f"view of {size} bytes at byte {offset} does not lie inside {self!r}")
        if dtype is not None:
            shape = _fit_shape(size, data_type(dtype, f"view of {self!r}"), shape)
        return type(self)(
            self._handle.memory,
            self.mapping,
            offset=self.offset + offset,
            nbytes=size,
            dtype=dtype,
            shape=shape,
            label=self.label if label is None else label,
            _handle=self._handle,
        )

    # ----- contents -------------------------------------------------------------------------------

    def numpy(self, timeout: float | None = None) -> NDArray[Any]:
        """Return a copy of the contents, with the buffer's dtype and shape (raw buffers: bytes).

        Waits for the last GPU work that uses the buffer; :class:`WaitTimeout` after ``timeout`` seconds (the
        device's default if ``None``), :class:`DeviceLost` if the device failed.
        """
        dtype: np.dtype[Any] = np.dtype(np.uint8) if self.dtype is None else self.dtype
        shape = self.shape if self.shape is not None else (self.nbytes // dtype.itemsize,)
        out: NDArray[Any] = np.empty(shape, dtype)
        staging = self._staging(timeout)
        if staging is not None:
            staging.read(self, out.ctypes.data, timeout)
        else:
            ctypes.memmove(out.ctypes.data, self._readable(timeout), self.nbytes)
        return out

    def copy_from(self, array: NDArray[Any], timeout: float | None = None) -> None:
        """Replace the contents by those of ``array``, which has the same dtype and size in bytes.

        Waits for the last GPU work that uses the buffer (see :meth:`numpy` for the errors), so that a running
        program never sees half of the new contents. :class:`LeaseError` if the memory is read-only.
        """
        if self.mapping.readonly:
            raise LeaseError(f"{self!r} is read-only memory")
        source = np.ascontiguousarray(array)
        if self.dtype is not None and source.dtype != self.dtype:
            raise LaunchError(
                f"{self!r} cannot take an array of {source.dtype}: convert it with "
                f".astype({self.dtype.name!r})"
            )
        if source.nbytes != self.nbytes:
            raise LaunchError(
                f"{self!r} cannot take an array of shape {source.shape}, which has {source.nbytes} bytes"
            )
        staging = self._staging(timeout)
        if staging is not None:
            staging.write(self, source.ctypes.data, timeout)
            return
        address = self._readable(timeout)
        ctypes.memmove(address, source.ctypes.data, source.nbytes)
        self._handle.memory.flush(self.mapping, self.offset, self.nbytes)

    def view(self, timeout: float | None = None) -> memoryview:
        """Return the memory itself as bytes, without a copy; waits as :meth:`numpy` does. They are writable
        unless the memory is read-only.

        The memory stays mapped as long as the view lives. The CPU sees later GPU writes only after another
        :meth:`invalidate`, the GPU sees CPU writes to imported or cached memory only after :meth:`flush`.
        """
        self._readable(timeout)
        view = memoryview(self._handle.memory.view(self.mapping, self.offset, self.nbytes)).cast("B")
        return view.toreadonly() if self.mapping.readonly else view

    def flush(self) -> None:
        """Let the GPU see what the CPU wrote through the array or a view. Only imported and cached memory
        needs it.
        """
        self._check_alive()
        self._handle.memory.flush(self.mapping, self.offset, self.nbytes)

    def invalidate(self) -> None:
        """Let the CPU see what the GPU wrote. :meth:`numpy` and :meth:`view` do so by themselves."""
        self._check_alive()
        self._handle.memory.invalidate(self.mapping, self.offset, self.nbytes)

    def free(self) -> None:
        """Give the memory back. Running GPU work and bound streams keep it mapped until they are done with
        it.

        Views made with :meth:`offset_view` are freed with it. Freeing twice does nothing.
        """
        self._handle.memory.free(self.mapping)

    def _array_view(self) -> NDArray[Any]:
        array = np.frombuffer(self.view(), np.uint8 if self.dtype is None else self.dtype)
        return array if self.shape is None else array.reshape(self.shape)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        array = self._array_view()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"{self!r} cannot become {np.dtype(dtype)} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __buffer__(self, flags: int) -> memoryview:
        return self.view()

    def __dlpack__(self, **options: Any) -> Any:
        """Return a DLPack capsule of the memory as the CPU sees it, without a copy."""
        return self._array_view().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # kDLCPU: the pointer that is handed out is a CPU address

    def _staging(self, timeout: float | None) -> Transfers | None:
        """Return what must copy, ``None`` if the CPU reaches the memory (or nothing does)."""
        self._check_alive()
        if self.mapping.cache is not CacheMode.DEVICE:
            return None
        if self.mapping.sharers:
            self._handle.memory.wait_for_others(self.mapping, timeout)
        return self._handle.memory.staging

    def _readable(self, timeout: float | None) -> int:
        self._check_alive()
        address = self.host_address
        if address is None:
            raise LeaseError(f"{self!r} is not mapped into the CPU: copy it to a buffer of the device first")
        self._handle.memory.wait(self.mapping, timeout)
        return address

    def _check_alive(self) -> None:
        if self.mapping.space is None:
            raise LeaseError(f"{self!r} was freed, or its device is closed")


class ReadOnlyBuffer(Buffer):
    """A buffer that the GPU cannot write. It is a class of its own for the sake of launches: looking at the
    class of an argument sorts those out that must be compared with what the program writes.
    """

    __slots__ = ()


def buffer_of(memory: Memory, mapping: Mapping, label: str | None = None) -> Buffer:
    """Return all of a mapping as a buffer of raw bytes."""
    return (ReadOnlyBuffer if mapping.readonly else Buffer)(memory, mapping, label=label)


def span(buffer: Buffer) -> tuple[int, int]:
    """Return the bytes of a buffer as numbers that are equal for equal memory.

    CPU memory can be imported several times, at several GPU addresses, so it counts by its CPU address.
    """
    if buffer.ownership is Ownership.HOST and buffer.host_address is not None:
        start = _HOST_SPACE + buffer.host_address
    else:
        start = buffer.gpu_address
    return start, start + buffer.nbytes


def data_type(dtype: Any, what: str) -> np.dtype[Any]:
    """Return numpy's data type; :class:`TypeError` if it has none of that name. ``None`` is no default."""
    try:
        found: np.dtype[Any] | None = None if dtype is None else np.dtype(dtype)
    except TypeError:
        found = None
    if found is None:
        raise TypeError(f"{what}: {dtype!r} is not a data type of numpy such as 'float32'")
    return found


def _fit_shape(nbytes: int, dtype: np.dtype[Any], shape: Sequence[int] | None) -> tuple[int, ...]:
    wanted = (nbytes // dtype.itemsize,) if shape is None else tuple(shape)
    if int(np.prod(wanted, dtype=np.int64)) * dtype.itemsize != nbytes:
        raise LaunchError(f"{nbytes} bytes do not hold an array of {dtype} with shape {wanted}")
    return wanted
