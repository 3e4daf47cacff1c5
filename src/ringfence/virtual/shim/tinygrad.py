"""The names through which tinygrad reaches the operating system, and what replaces them.

=======================================  =============================================================
module                                   replaced
=======================================  =============================================================
tinygrad.runtime.support.hcq             ``FileIOInterface``: open, ioctl, close, listdir, read and
                                         write of device nodes and sysfs files
tinygrad.runtime.autogen.libc            ``mmap`` of a descriptor of the machine, ``munmap`` of what it
                                         mapped
tinygrad.runtime.support.system          ``_System.write_sysfs``, which runs sudo
tinygrad.runtime.ops_qcom                ``dcache_flush``, which compiles arm64 instructions
tinygrad.runtime.ops_amd                 ``MMIOInterface``, if it is made of a doorbell: a store to it
                                         also tells the machine
tinygrad.runtime.support.compiler_llvm   ``AMDLLVMCompiler``, which needs a libLLVM: compiles with
                                         llvmlite instead, unless the variable LLVM_PATH names a library
tinygrad.renderer.llvmir                 with it, how ``AMDLLVMRenderer`` is pickled for processes that
                                         compile
=======================================  =============================================================

Other stores to mapped memory need no hook: the machine looks at memory while a queue waits for it, and at
doorbells that somebody may ring without telling it, such as the compiled programs of HCQ2. Everything else
of tinygrad runs as it is. Names are checked when a module is imported, so that a version which moved them
fails with a message instead of looking for a real device.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from ringfence.errors import PortError
from ringfence.virtual.memory import CACHE_LINE
from ringfence.virtual.shim.compiler import COMPILER_HOOKS
from ringfence.virtual.shim.hook import Hook, require
from ringfence.virtual.shim.session import Session

LLVM_VARIABLE = "LLVM_PATH"
MAP_FAILED = (1 << 8 * ctypes.sizeof(ctypes.c_void_p)) - 1


def hooks(session: Session) -> Mapping[str, Hook]:
    """Return what to do after which module was imported."""

    def hook(replace: Callable[[ModuleType, Session], None]) -> Hook:
        return lambda module: replace(module, session)

    return {
        "tinygrad.runtime.support.hcq": hook(_replace_files),
        "tinygrad.runtime.autogen.libc": hook(_replace_mappings),
        "tinygrad.runtime.support.system": hook(_replace_sysfs),
        "tinygrad.runtime.ops_qcom": hook(_replace_cache_flush),
        "tinygrad.runtime.ops_amd": hook(_replace_doorbells),
        **({} if os.environ.get(LLVM_VARIABLE) else COMPILER_HOOKS),
    }


# ----- files --------------------------------------------------------------------------------------


def _replace_files(module: ModuleType, session: Session) -> None:
    require(module, "FileIOInterface")
    require(module.FileIOInterface, "ioctl", "read", "write", "listdir", "seek", "exists")
    module.FileIOInterface = _file_class(module.FileIOInterface, session)  # type: ignore[attr-defined]


def _file_class(base: Any, session: Session) -> type:
    """Return a subclass of tinygrad's file class that sends what belongs to the machine there."""

    class FileIOInterface(base):  # type: ignore[misc]
        """tinygrad's file, or a node or sysfs file of the virtual machine: then ``virtual`` is set."""

        virtual = False

        def __init__(self, path: str = "", flags: int = os.O_RDONLY, fd: int | None = None) -> None:
            if fd or not session.owns(path):
                super().__init__(path, flags, fd)
                return
            self.virtual = True
            self.path = path
            if path.startswith("/dev/"):
                self.fd = session.open(path)
            elif not session.exists(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

        def __del__(self) -> None:
            if not self.virtual:
                super().__del__()
            elif hasattr(self, "fd"):
                session.close_descriptor(self.fd)

        def ioctl(self, request: int, arg: Any) -> int:
            if not self.virtual:
                return int(super().ioctl(request, arg))
            return session.ioctl(self.fd, request, ctypes.addressof(arg))

        def read(self, size: int | None = None, binary: bool = False, offset: int | None = None) -> Any:
            if not self.virtual:
                return super().read(size, binary, offset)
            text = session.read_text(self.path)[offset or 0 :][:size]
            return text.encode() if binary else text

        def write(self, content: Any, binary: bool = False, offset: int | None = None) -> None:
            if self.virtual:
                session.write_text(self.path, content.decode() if binary else content)
            else:
                super().write(content, binary, offset)

        def listdir(self) -> list[str]:
            return session.list_directory(self.path) if self.virtual else list(super().listdir())

        @staticmethod
        def exists(path: str) -> bool:
            return session.exists(path) if session.owns(path) else bool(base.exists(path))

    FileIOInterface.__qualname__ = base.__qualname__
    FileIOInterface.__module__ = base.__module__
    return FileIOInterface


# ----- mappings -----------------------------------------------------------------------------------


def _replace_mappings(module: ModuleType, session: Session) -> None:
    require(module, "mmap", "munmap")
    real_mmap, real_munmap = module.mmap, module.munmap

    def virtual_mmap(
        start: Any, length: int, protection: int, flags: int, descriptor: int, offset: int
    ) -> int:
        if not session.is_descriptor(descriptor):
            return int(real_mmap(start, length, protection, flags, descriptor, offset))
        address = _number(start) if flags & _FIXED else 0
        try:
            return session.mmap(
                descriptor, length, offset, writable=bool(protection & mmap.PROT_WRITE), address=address
            )
        except PortError as error:
            return _fail(error.errno or errno.EINVAL)

    def virtual_munmap(address: Any, length: int) -> int:
        if session.munmap(_number(address), length):
            return 0
        return int(real_munmap(address, length))

    module.mmap, module.munmap = virtual_mmap, virtual_munmap  # type: ignore[attr-defined]


_FIXED = 0x10  # MAP_FIXED


def _number(pointer: Any) -> int:
    return int(getattr(pointer, "value", pointer) or 0)


def _fail(code: int) -> int:
    ctypes.set_errno(code)
    return MAP_FAILED


# ----- the rest -----------------------------------------------------------------------------------


def _replace_sysfs(module: ModuleType, session: Session) -> None:
    require(module, "_System")
    require(module._System, "write_sysfs")
    real = module._System.write_sysfs

    def write_sysfs(self: Any, path: str, value: str, msg: str, expected: str | None = None) -> None:
        if not session.owns(path):
            real(self, path, value, msg, expected)
            return
        session.write_text(path, value)
        shown = session.read_text(path).splitlines()[0]
        if shown != (expected or value):
            raise RuntimeError(f"{msg}: {path} shows {shown} after {value} was written")

    module._System.write_sysfs = write_sysfs


class _CacheFlush:
    """Stands for the compiled helper: ``fxn(address, lines)`` cleans cache lines."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def fxn(self, address: Any, lines: Any) -> None:
        self._session.clean(_number(address), _number(lines) * CACHE_LINE)


def _replace_cache_flush(module: ModuleType, session: Session) -> None:
    require(module, "dcache_flush")
    helper = _CacheFlush(session)
    module.dcache_flush = lambda: helper  # type: ignore[attr-defined]


# ----- AMD ----------------------------------------------------------------------------------------


def _replace_doorbells(module: ModuleType, session: Session) -> None:
    require(module, "MMIOInterface")
    plain: Any = module.MMIOInterface

    class Doorbell(plain):  # type: ignore[misc]
        """A doorbell: what is stored is also told to the machine."""

        def __init__(self, address: int, size: int, fmt: str, ring: Callable[[int], None]) -> None:
            super().__init__(address, size, fmt)
            self._ring = ring

        def __setitem__(self, index: Any, value: Any) -> None:
            if index != 0:
                raise IndexError(f"a doorbell is one value, not {index}")
            self._ring(value)

    def mmio(addr: int, nbytes: int, fmt: str = "B") -> Any:
        ring = session.doorbell(addr) if fmt == "Q" and nbytes == _DOORBELL_BYTES else None
        return plain(addr, nbytes, fmt) if ring is None else Doorbell(addr, nbytes, fmt, ring)

    module.MMIOInterface = mmio  # type: ignore[attr-defined]


_DOORBELL_BYTES = 8
