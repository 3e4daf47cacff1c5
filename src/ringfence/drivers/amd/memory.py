"""Memory of KFD: VRAM, memory of the host, imports of CPU memory; all at one address for CPU and GPU."""

from __future__ import annotations

import contextlib
import ctypes
import errno

from ringfence.errors import LeaseError, PortError
from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.kfd import AllocFlags
from ringfence.port import Port
from ringfence.runtime.memory import CacheMode, Mapping, MemoryBackend, Ownership

from .kfd import Gpu, KfdProcess, SharedMemory

PAGE = kfd.PAGE_BYTES
LARGE_PAGE = 2 << 20
MAX_BYTES = 1 << 40  # far above any VRAM; the kernel says when there is too little

_EVERY = AllocFlags.EXECUTABLE | AllocFlags.NO_SUBSTITUTE
_KINDS = {
    CacheMode.WRITE_COMBINE: AllocFlags.VRAM | AllocFlags.PUBLIC,
    CacheMode.DEVICE: AllocFlags.VRAM,
    CacheMode.CACHED: AllocFlags.GTT | AllocFlags.COHERENT,
    CacheMode.UNCACHED: AllocFlags.GTT | AllocFlags.COHERENT | AllocFlags.UNCACHED,
}
_IMPORT = AllocFlags.USERPTR | AllocFlags.COHERENT | AllocFlags.UNCACHED


class KfdMemory:
    """The :class:`ringfence.runtime.memory.MemoryBackend` of one GPU.

    Addresses are reserved in this process first, and given to the kernel: a GPU address is never used for
    something else by the CPU. PCI Express keeps the CPU's caches coherent, so nothing has to be maintained.
    """

    def __init__(self, port: Port, process: KfdProcess, gpu: Gpu) -> None:
        self._port = port
        self._process = process
        self._fd = process.fd
        self._render_fd = process.render_fd(port, gpu)
        self._gpu = gpu
        self._ids = (ctypes.c_uint32 * 1)(gpu.gpu_id)

    # ----- acquiring ------------------------------------------------------------------------------

    def allocate(self, nbytes: int, *, cache: CacheMode, readonly: bool, label: str) -> Mapping:
        """Return new memory, in whole pages; :class:`PortError` if the kernel refuses (ENOMEM, EINVAL for
        VRAM that the CPU cannot reach). Nothing is left behind then.
        """
        size = -(-nbytes // PAGE) * PAGE
        flags = _KINDS[cache] | _EVERY | (AllocFlags(0) if readonly else AllocFlags.WRITABLE)
        with contextlib.ExitStack() as undo:
            address = self._port.reserve(size, LARGE_PAGE if size >= LARGE_PAGE else PAGE)
            undo.callback(self._port.munmap, address, size)
            made = self._allocate(
                kfd.ALLOC_MEMORY_OF_GPU(va_addr=address, size=size, gpu_id=self._gpu.gpu_id, flags=flags)
            )
            undo.callback(self._free, made.handle)
            visible = cache is not CacheMode.DEVICE
            if visible:
                self._port.mmap(self._render_fd, size, made.mmap_offset, address=address)
            self._map(made.handle)
            undo.pop_all()
        return Mapping(
            gpu_address=address,
            nbytes=nbytes,
            host_address=address if visible else None,
            ownership=Ownership.DEVICE,
            cache=cache,
            label=label,
            handle=made.handle,
            map_bytes=size,
        )

    def _allocate(self, request: kfd.ALLOC_MEMORY_OF_GPU) -> kfd.ALLOC_MEMORY_OF_GPU:
        try:
            self._port.ioctl(self._fd, request)
        except PortError as error:
            public = request.flags & AllocFlags.PUBLIC and request.flags & AllocFlags.VRAM
            if error.errno == errno.EINVAL and public and not self._gpu.large_bar:
                hint = (
                    "this GPU has no large BAR, so the CPU reaches none of its VRAM: switch Resizable BAR on "
                    "in the firmware setup, or take cache='cached' (memory of the host) or cache='device' "
                    "(VRAM that copies reach)"
                )
                raise PortError(error.call, errno.EINVAL, hint) from None
            raise
        return request

    def import_host(
        self, pointer: int, nbytes: int, *, writable: bool, may_be_gpu_address: bool, label: str
    ) -> Mapping:
        """Return the CPU memory at ``pointer`` mapped into the GPU, at an address of its own; neither pointer
        nor size need be aligned.

        If the kernel cannot map the range (EFAULT, EINVAL) and the caller says that it may be GPU memory, the
        pointer is used as a GPU address; the mapping is foreign then.
        """
        first = pointer & -PAGE
        span = -(-(pointer + nbytes - first) // PAGE) * PAGE
        flags = _IMPORT | _EVERY | (AllocFlags.WRITABLE if writable else AllocFlags(0))
        with contextlib.ExitStack() as undo:
            address = self._port.reserve(span, PAGE)
            undo.callback(self._port.munmap, address, span)
            request = kfd.ALLOC_MEMORY_OF_GPU(
                va_addr=address, size=span, mmap_offset=first, gpu_id=self._gpu.gpu_id, flags=flags
            )
            try:
                self._port.ioctl(self._fd, request)
                undo.callback(self._free, request.handle)
                self._map(request.handle)
            except PortError as error:
                if error.errno not in (errno.EFAULT, errno.EINVAL, errno.EPERM):
                    raise
                if not may_be_gpu_address:
                    raise _not_mappable(pointer, nbytes, writable, label, error) from error
                return Mapping(
                    gpu_address=pointer,
                    nbytes=nbytes,
                    host_address=None,
                    ownership=Ownership.FOREIGN,
                    label=label,
                )
            undo.pop_all()
        return Mapping(
            gpu_address=address + (pointer - first),
            nbytes=nbytes,
            host_address=pointer,
            ownership=Ownership.HOST,
            label=label,
            handle=request.handle,
            map_bytes=span,
        )

    def share(self, mapping: Mapping, home: MemoryBackend, *, label: str) -> Mapping:
        """Return memory of another GPU of the process mapped into this one, at the same address.

        :class:`LeaseError` if it is foreign, or if this GPU cannot reach the other's VRAM (EINVAL).
        """
        if not isinstance(home, KfdMemory) or home._process is not self._process:
            raise LeaseError(f"{label!r} is memory of a device that is not behind the same KFD")
        if not mapping.handle:
            raise LeaseError(f"{label!r} is a foreign address: import it here, with may_be_gpu_address=True")
        start = mapping.gpu_address & -PAGE
        with self._process.lock:
            if mapping.released:
                raise LeaseError(f"{label!r} was freed, or its device is closed")
            try:
                self._map(mapping.handle)
            except PortError as error:
                if error.errno != errno.EINVAL:
                    raise
                raise LeaseError(
                    f"{label!r} cannot be mapped into {self._gpu}: GPUs reach each other's VRAM only where "
                    "the kernel has peer-to-peer access and the owner a large BAR; share memory of the host "
                    f"instead (cache='cached'): {error}"
                ) from error
            shared = self._process.shared.setdefault(start, SharedMemory())
            shared.gpus += 1
            shared.addresses += 1
        return Mapping(
            gpu_address=mapping.gpu_address,
            nbytes=mapping.nbytes,
            host_address=mapping.host_address,
            ownership=Ownership.FOREIGN,
            cache=mapping.cache,
            label=label,
            handle=mapping.handle,
            map_bytes=mapping.map_bytes,
        )

    def _map(self, handle: int) -> None:
        request = kfd.MAP_MEMORY_TO_GPU(
            handle=handle, device_ids_array_ptr=ctypes.addressof(self._ids), n_devices=len(self._ids)
        )
        self._port.ioctl(self._fd, request)

    # ----- giving back ----------------------------------------------------------------------------

    def release(self, mapping: Mapping) -> None:
        """Take the mapping away from the GPU, and free it unless another GPU maps it. A foreign address that
        was not mapped is left alone.
        """
        if not mapping.handle:
            return
        request = kfd.UNMAP_MEMORY_FROM_GPU(
            handle=mapping.handle,
            device_ids_array_ptr=ctypes.addressof(self._ids),
            n_devices=len(self._ids),
        )
        with self._process.lock:
            self._port.ioctl(self._fd, request)
            shared = self._process.shared.get(mapping.gpu_address & -PAGE)
            if shared is None or shared.gpus == 1:
                self._free(mapping.handle)
            if shared is not None:
                shared.gpus -= 1

    def unmap(self, mapping: Mapping) -> None:
        """Give the address range back, unless another device uses it: of imported memory only the GPU's, the
        CPU's is its owner's.

        A range that the kernel did not release stays reserved, since the GPU may still map it.
        """
        if not (mapping.map_bytes and mapping.released):
            return
        start = mapping.gpu_address & -PAGE
        with self._process.lock:
            shared = self._process.shared.get(start)
            if shared is not None:
                shared.addresses -= 1
            if shared is None or not shared.addresses:
                self._process.shared.pop(start, None)
                self._port.munmap(start, mapping.map_bytes)
        mapping.map_bytes = 0
        if mapping.ownership is not Ownership.HOST:
            mapping.host_address = None

    def _free(self, handle: int) -> None:
        self._port.ioctl(self._fd, kfd.FREE_MEMORY_OF_GPU(handle=handle))

    # ----- caches ---------------------------------------------------------------------------------

    def flush(self, mapping: Mapping, offset: int, nbytes: int) -> None:
        """Nothing: the GPU snoops the CPU's caches."""

    def invalidate(self, mapping: Mapping, offset: int, nbytes: int) -> None:
        """Nothing: what the GPU writes to memory of the host invalidates the CPU's cache lines."""


def _not_mappable(pointer: int, nbytes: int, writable: bool, label: str, error: PortError) -> LeaseError:
    return LeaseError(
        f"import of {label!r}: the kernel cannot map {nbytes} bytes at {pointer:#x} ({error}). Either part "
        f"of the range is not {'writable' if writable else 'readable'} memory of this process, or it is GPU "
        "memory already; if the pointer is a GPU address, say so with may_be_gpu_address=True"
    )
