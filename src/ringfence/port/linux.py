"""The port of a real Linux system: system calls, and cache maintenance by address on arm64."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import mmap
import os
import platform
import time
from collections.abc import Callable, Sequence
from typing import Final

from ringfence.errors import FaultReport, PortError, UnsupportedDevice
from ringfence.hardware.fields import Ioctl

_OPEN_HINTS = {
    errno.EACCES: "this user may not open the node: check its group and mode, or the SELinux policy",
    errno.EPERM: "this user may not open the node: check its group and mode, or the SELinux policy",
    errno.ENOENT: "there is no such node: no KGSL driver is loaded, or this container does not show it",
    errno.ENODEV: "the kernel driver knows the node but found no GPU behind it",
    errno.ENXIO: "the kernel driver knows the node but found no GPU behind it",
    errno.ENOMEM: "the kernel has no memory left, or the GPU firmware could not be loaded",
}
_MAP_FAILED: Final = ctypes.c_void_p(-1).value
_PAGE: Final = 4096
_PROT_NONE: Final = 0
_MAP_FIXED: Final = 0x10
_MAP_NORESERVE: Final = 0x4000

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
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class LinuxPort:
    """The calls of :class:`ringfence.port.Port`, done by the Linux kernel of this machine."""

    virtual = False

    def __init__(self) -> None:
        machine = platform.machine()
        self._caches = Arm64Caches() if machine == "aarch64" else None
        self._fences = Fences(machine) if machine in RING else None

    def open(self, path: str) -> int:
        """Open a device node for reading and writing; return the descriptor. :class:`PortError` tells why
        not.
        """
        try:
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            code = error.errno or 0
            raise PortError(f"open({path!r})", code, _OPEN_HINTS.get(code, "")) from None

    def close(self, fd: int) -> None:
        """Close a descriptor returned by :meth:`open`."""
        try:
            os.close(fd)
        except OSError as error:
            raise PortError(f"close({fd})", error.errno or 0) from None

    def ioctl(self, fd: int, argument: Ioctl) -> None:
        """Issue ``argument``; its outputs are filled in. Repeats the call when a signal interrupts it
        (EINTR).
        """
        while True:
            try:
                fcntl.ioctl(fd, argument.REQUEST, argument, True)
                return
            except OSError as error:
                code = error.errno or 0
            if code != errno.EINTR:
                raise PortError(argument.describe(), code, argument.CAUSES.get(code, ""))

    def mmap(self, fd: int, length: int, offset: int, *, address: int = 0) -> int:
        """Map ``length`` bytes at ``offset`` of ``fd``, shared, readable and writable; return the address."""
        flags = mmap.MAP_SHARED | (_MAP_FIXED if address else 0)
        return _map(address or None, length, mmap.PROT_READ | mmap.PROT_WRITE, flags, fd, offset)

    def reserve(self, length: int, alignment: int = _PAGE) -> int:
        """Reserve address space: pages without access, at a multiple of ``alignment`` (a power of two)."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        spare = alignment - _PAGE
        found = _map(None, length + spare, _PROT_NONE, flags, -1, 0)
        first = (found + alignment - 1) & -alignment
        if first > found:
            self.munmap(found, first - found)
        if rest := found + spare - first:
            self.munmap(first + length, rest)
        return first

    def munmap(self, address: int, length: int) -> None:
        """Undo :meth:`mmap` or :meth:`reserve`."""
        if _libc.munmap(address, length):
            raise PortError(f"munmap({address:#x}, {length:#x})", ctypes.get_errno())

    def doorbell(self, address: int) -> Callable[[int], None]:
        """Return what rings the doorbell at ``address``: a fence, and one aligned 64-bit store."""
        if self._fences is None:
            raise UnsupportedDevice(
                f"doorbells need a store fence, which is not known for {platform.machine()}"
            )
        return functools.partial(self._fences.ring, address)

    def read_text(self, path: str) -> str:
        """Return the text of a sysfs file."""
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError as error:
            raise PortError(f"read({path!r})", error.errno or 0) from None

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a sysfs directory, sorted."""
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            raise PortError(f"listdir({path!r})", error.errno or 0) from None

    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def fence(self) -> None:
        """Complete all earlier stores before any later one, as a device sees them."""
        if self._fences is not None:
            self._fences.barrier()

    def clean(self, address: int, length: int) -> None:
        """Write the CPU cache lines that hold this range back to memory. Nothing to do where caches are
        coherent.
        """
        if self._caches is not None:
            self._caches.clean(address, length)

    def invalidate(self, address: int, length: int) -> None:
        """Drop the CPU cache lines that hold this range, dirty ones after writing them back."""
        if self._caches is not None:
            self._caches.invalidate(address, length)

    def explain(self, fd: int, context: int) -> FaultReport | None:
        """Return ``None``: KGSL tells user space that a context was lost, but not why."""
        return None


def _map(address: int | None, length: int, access: int, flags: int, fd: int, offset: int) -> int:
    found = _libc.mmap(address, length, access, flags, fd, offset)
    if found is None or found == _MAP_FAILED:
        raise PortError(f"mmap(length={length:#x}, offset={offset:#x})", ctypes.get_errno())
    return int(found)


def touched_lines(address: int, length: int, line: int) -> tuple[int, int]:
    """Return the addresses of the first cache line that holds the range and of the first one after it."""
    return address & -line, (address + length + line - 1) & -line


# Machine code of the arm64 helper, little-endian words. x0 = first line, x1 = end, x2 = line size. User space
# may execute `dc cvac`, `dc civac` and read ctr_el0: Linux sets SCTLR_EL1.UCI and .UCT
# (arch/arm64/include/asm/sysreg.h).
_ADD_LINE = 0x8B020000  # add  x0, x0, x2
_COMPARE = 0xEB01001F  # cmp  x0, x1
_LOOP = 0x54FFFFA3  # b.lo three instructions back
_DSB_SY = 0xD5033F9F  # dsb  sy: maintenance and stores are complete, for the GPU too
_RET = 0xD65F03C0  # ret
_DC_CVAC_X0 = 0xD50B7A20  # dc   cvac, x0
_DC_CIVAC_X0 = 0xD50B7E20  # dc   civac, x0
_MRS_X0_CTR = 0xD53B0020  # mrs  x0, ctr_el0

ARM64_CLEAN: Final = (_DC_CVAC_X0, _ADD_LINE, _COMPARE, _LOOP, _DSB_SY, _RET)
ARM64_INVALIDATE: Final = (_DC_CIVAC_X0, _ADD_LINE, _COMPARE, _LOOP, _DSB_SY, _RET)
ARM64_CACHE_TYPE: Final = (_MRS_X0_CTR, _RET)


class Arm64Caches:
    """Cache maintenance by virtual address, from a page of machine code of our own."""

    def __init__(self) -> None:
        page = _map_code(_code(ARM64_CLEAN + ARM64_INVALIDATE + ARM64_CACHE_TYPE))
        span = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)
        entry = page
        self._clean = span(entry)
        entry += 4 * len(ARM64_CLEAN)
        self._invalidate = span(entry)
        entry += 4 * len(ARM64_INVALIDATE)
        cache_type = ctypes.CFUNCTYPE(ctypes.c_uint64)(entry)
        self.line = line_bytes(cache_type())

    def clean(self, address: int, length: int) -> None:
        """``dc cvac`` on exactly the lines that hold the range, then a full barrier."""
        if length > 0:
            self._clean(*touched_lines(address, length, self.line), self.line)

    def invalidate(self, address: int, length: int) -> None:
        """``dc civac`` on exactly the lines that hold the range, then a full barrier."""
        if length > 0:
            self._invalidate(*touched_lines(address, length, self.line), self.line)


def _code(words: Sequence[int]) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in words)


_STR_X1_X0 = 0xF9000001  # str  x1, [x0]

BARRIER: Final = {
    "aarch64": _code((_DSB_SY, _RET)),
    "x86_64": bytes.fromhex("0faef8 c3"),  # sfence; ret
}
RING: Final = {
    "aarch64": _code((_DSB_SY, _STR_X1_X0, _RET)),
    "x86_64": bytes.fromhex("0faef8 488937 c3"),  # sfence; mov [rdi], rsi; ret
}
"""Machine code by ``platform.machine()``: complete all earlier stores; and then store a 64-bit value.

x86 keeps the order of ordinary stores, but not of those to write-combining memory, which the mappings of a
GPU's memory are; ``sfence`` empties the buffers that combine them (Intel SDM, volume 3, 12.3.1).
"""


class Fences:
    """Store fences, from a page of machine code of our own."""

    def __init__(self, machine: str) -> None:
        page = _map_code(RING[machine] + BARRIER[machine])
        self.ring = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)(page)
        self.barrier = ctypes.CFUNCTYPE(None)(page + len(RING[machine]))


def line_bytes(cache_type: int) -> int:
    """Return the smallest data cache line in bytes from CTR_EL0 (DminLine: log2 of words)."""
    return 4 << (cache_type >> 16 & 0xF)


def _map_code(code: bytes) -> int:
    """Map ``code`` readable and executable for the life of the process; return its address.

    The page comes from a memory file: it is never writable and executable at once, and the kernel makes the
    instruction cache coherent when it maps a file page executable.
    """
    fd = os.memfd_create("ringfence-code", os.MFD_CLOEXEC)
    try:
        os.write(fd, code.ljust(_PAGE, b"\0"))
        return _map(None, _PAGE, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, fd, 0)
    finally:
        os.close(fd)
