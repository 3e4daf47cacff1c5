"""Memory objects of KGSL: allocation, import of CPU memory, cache maintenance, release."""

from __future__ import annotations

import contextlib
import errno

from ringfence.errors import LaunchError, LeaseError, PortError
from ringfence.hardware.adreno import kgsl
from ringfence.port import Port
from ringfence.runtime.memory import CacheMode, Mapping, MemoryBackend, Ownership

PAGE = 1 << kgsl.PAGE_SHIFT
MAX_BYTES = kgsl.MAX_OBJECT_BYTES & -PAGE

_CACHE_MODES = {
    CacheMode.WRITE_COMBINE: kgsl.CacheMode.WRITECOMBINE,
    CacheMode.UNCACHED: kgsl.CacheMode.UNCACHED,
    CacheMode.CACHED: kgsl.CacheMode.WRITEBACK,
}


class KgslMemory:
    """The :class:`ringfence.runtime.memory.MemoryBackend` of one open KGSL descriptor.

    GPU addresses are chosen by the kernel and differ from CPU addresses: USE_CPU_MAP is not used.
    """

    def __init__(self, port: Port, fd: int) -> None:
        self._port = port
        self._fd = fd

    # ----- acquiring ------------------------------------------------------------------------------

    def allocate(self, nbytes: int, *, cache: CacheMode, readonly: bool, label: str) -> Mapping:
        """Return new memory, in whole 4 KiB pages that the kernel has zeroed, mapped into GPU and CPU.

        :class:`PortError` if the kernel refuses (ENOMEM, or EINVAL for 4 GiB and more); nothing is left
        behind.
        """
        if cache not in _CACHE_MODES:
            raise LaunchError(
                f"buffer {label!r}: cache={cache.value!r}; the CPU reaches all memory of an Adreno"
            )
        flags = kgsl.MEMFLAGS.pack(
            MEMALIGN=kgsl.PAGE_SHIFT, CACHEMODE=_CACHE_MODES[cache], GPUREADONLY=int(readonly)
        )
        size = -(-nbytes // PAGE) * PAGE
        made = kgsl.GPUOBJ_ALLOC(size=size, flags=flags, mmapsize=size)
        self._port.ioctl(self._fd, made)
        with contextlib.ExitStack() as undo:
            undo.callback(self._free_object, made.id)
            host = self._port.mmap(self._fd, made.mmapsize, made.id << kgsl.PAGE_SHIFT)
            undo.callback(self._port.munmap, host, made.mmapsize)
            info = kgsl.GPUOBJ_INFO(id=made.id)
            self._port.ioctl(self._fd, info)
            undo.pop_all()
        return Mapping(
            gpu_address=info.gpuaddr,
            nbytes=nbytes,
            host_address=host,
            ownership=Ownership.DEVICE,
            cache=cache,
            label=label,
            handle=made.id,
            map_bytes=made.mmapsize,
        )

    def import_host(
        self, pointer: int, nbytes: int, *, writable: bool, may_be_gpu_address: bool, label: str
    ) -> Mapping:
        """Return the CPU memory at ``pointer`` mapped into the GPU; neither pointer nor size need be aligned.

        The mapping spans whole pages; the CPU's cache lines of exactly the range are written back, since the
        GPU does not look into them. That comes after the mapping, because maintenance by address faults on
        memory that does not exist, which the kernel reports instead.

        EFAULT has two meanings: the range is not mapped, or it belongs to KGSL already, whose shared virtual
        memory has the same address on both sides. Only if the caller said that the pointer may be such an
        address is it used as one. The memory is then foreign, and not accessed from the CPU.
        """
        first = pointer & -PAGE
        span = -(-(pointer + nbytes - first) // PAGE) * PAGE
        request = kgsl.MAP_USER_MEM(
            hostptr=first,
            len=span,
            memtype=kgsl.UserMemoryType.ADDR,
            flags=kgsl.MEMFLAGS.pack(GPUREADONLY=int(not writable)),
        )
        try:
            self._port.ioctl(self._fd, request)
        except PortError as error:
            if error.errno != errno.EFAULT:
                raise
            if not may_be_gpu_address:
                raise LeaseError(
                    f"import of {label!r}: the kernel cannot map {nbytes} bytes at {pointer:#x} (EFAULT). "
                    f"Either part of the range is not {'writable' if writable else 'readable'} memory of "
                    "this process, or it is GPU memory already; if the pointer is a GPU address, say so "
                    "with may_be_gpu_address=True"
                ) from error
            return Mapping(
                gpu_address=pointer,
                nbytes=nbytes,
                host_address=None,
                ownership=Ownership.FOREIGN,
                label=label,
            )
        with contextlib.ExitStack() as undo:
            undo.callback(self._port.ioctl, self._fd, kgsl.SHAREDMEM_FREE(gpuaddr=request.gpuaddr))
            self._port.clean(pointer, nbytes)
            undo.pop_all()
        return Mapping(
            gpu_address=request.gpuaddr + (pointer - first),
            nbytes=nbytes,
            host_address=pointer,
            ownership=Ownership.HOST,
            label=label,
            handle=request.gpuaddr,
        )

    def share(self, mapping: Mapping, home: MemoryBackend, *, label: str) -> Mapping:
        """:class:`LeaseError`: KGSL contexts do not map each other's memory here."""
        raise LeaseError(f"{label!r} belongs to another device, and memory of KGSL is not shared here")

    # ----- giving back ----------------------------------------------------------------------------

    def release(self, mapping: Mapping) -> None:
        """Free the object of device memory, or the mapping of CPU memory; foreign memory is left alone."""
        if mapping.ownership is Ownership.DEVICE:
            self._free_object(mapping.handle)
        elif mapping.ownership is Ownership.HOST:
            self._port.ioctl(self._fd, kgsl.SHAREDMEM_FREE(gpuaddr=mapping.handle))

    def unmap(self, mapping: Mapping) -> None:
        """Unmap device memory from the CPU. The kernel keeps the pages until this, even if the object is
        freed.
        """
        if mapping.ownership is Ownership.DEVICE and mapping.host_address is not None:
            self._port.munmap(mapping.host_address, mapping.map_bytes)
            mapping.host_address = None

    def _free_object(self, object_id: int) -> None:
        self._port.ioctl(self._fd, kgsl.GPUOBJ_FREE(id=object_id))

    # ----- caches ---------------------------------------------------------------------------------

    def flush(self, mapping: Mapping, offset: int, nbytes: int) -> None:
        """Write CPU cache lines back: through the kernel for our objects, by address for everything else."""
        if mapping.ownership is Ownership.DEVICE:
            self._sync(mapping, offset, nbytes, kgsl.CacheOperation.TO_GPU)
        elif mapping.host_address is not None:
            self._port.clean(mapping.host_address + offset, nbytes)

    def invalidate(self, mapping: Mapping, offset: int, nbytes: int) -> None:
        """Drop CPU cache lines: through the kernel for our objects, by address for everything else.

        The first and the last line of imported memory may hold neighbours' data; what the CPU wrote there is
        written back, so the CPU must not write next to a buffer while the GPU writes into it.
        """
        if mapping.ownership is Ownership.DEVICE:
            self._sync(mapping, offset, nbytes, kgsl.CacheOperation.FROM_GPU)
        elif mapping.host_address is not None:
            self._port.invalidate(mapping.host_address + offset, nbytes)

    def _sync(self, mapping: Mapping, offset: int, nbytes: int, operation: kgsl.CacheOperation) -> None:
        self._port.ioctl(
            self._fd,
            kgsl.GPUMEM_SYNC_CACHE(
                id=mapping.handle, op=operation | kgsl.CacheOperation.RANGE, offset=offset, length=nbytes
            ),
        )
