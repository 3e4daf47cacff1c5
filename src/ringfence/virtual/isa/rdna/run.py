"""Run RDNA3 machine code and code objects, without a kernel driver or command stream."""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ringfence.errors import GpuFault, GpuHang, LaunchError, UnsupportedDevice
from ringfence.hardware.amd.chips import SCRATCH_UNIT, Generation
from ringfence.hardware.amd.code_object import PAGE, CodeObject, Kernel, load_code_object
from ringfence.virtual.isa.jit import Statistics
from ringfence.virtual.isa.rdna.dispatch import Dispatch
from ringfence.virtual.isa.rdna.executor import HOST, Executor, Memory
from ringfence.virtual.memory import AddressSpace

ARCHITECTURES = frozenset(("gfx1100", "gfx1101", "gfx1102", "gfx1103", "rdna3"))
RSRC1 = 0x00AF0000
"""Denormals kept, nearest even, DX10_CLAMP and IEEE: what compilers ask for."""
RSRC2 = 0x00001385
"""Private memory, two user registers, the three ids of the group behind them, all components in v0."""
CODE_ADDRESS = 0x7E00_0000_0000
PACKET_ADDRESS = 0x7DFF_FFFF_0000
DYNAMIC_STACK = 16384
"""Private memory of a work-item whose code calls functions that the compiler could not follow."""
MAX_GRID = (1 << 32) - 1
"""Work-items of a launch in each dimension, as a dispatch packet counts them."""
MAX_LDS_BYTES = 64 << 10
"""Local memory of a work-group."""
MAX_SCRATCH_BYTES = 0x7FFF * SCRATCH_UNIT[Generation.GFX11] // 64
"""Private memory of a work-item: what TMPRING_SIZE.WAVESIZE can say."""
_INSTRUCTION = 4  # bytes; every instruction is a multiple of it
_WORD, _ADDRESS = (1 << 32) - 1, (1 << 64) - 1
_ELF = b"\x7fELF"
_PACKET = struct.Struct("<HHHHHHIIIIIQQQQ")  # hsa_kernel_dispatch_packet_t


def run_amdgpu(
    code: bytes | bytearray | memoryview | tuple[int, int],
    arch: str,
    *,
    groups: tuple[int, int, int],
    local: tuple[int, int, int],
    kernarg_address: int = 0,
    kernel: str | None = None,
    rsrc1: int | None = None,
    rsrc2: int | None = None,
    wave: int | None = None,
    scratch_bytes: int | None = None,
    lds_bytes: int | None = None,
    memory: Mapping[int, npt.NDArray[Any]] | AddressSpace | str = HOST,
    user_data: tuple[int, ...] | None = None,
    executor: Executor | None = None,
    strict: bool = True,
) -> Statistics:
    """Run AMD GPU code on this host and return the executor's statistics.

    ``code`` is a code object (of which ``kernel`` runs, or the only one), bare machine code, or the host
    address and size of bare code. ``kernarg_address`` is the GPU address of the arguments, hidden ones
    included. ``groups`` counts work-groups, ``local`` work-items of a group; if one of ``groups`` is 0,
    nothing runs.

    A code object's descriptor says the rest; for bare code, or to overrule it: ``rsrc1`` and ``rsrc2`` are
    COMPUTE_PGM_RSRC1 and 2 (rounding and denormals; user registers, group ids, local memory in units of 512
    bytes), ``user_data`` are the user registers (without it SGPR0 and 1 are ``kernarg_address``), ``wave``
    is 32 or 64, ``scratch_bytes`` the private memory of a work-item and ``lds_bytes`` the local memory of a
    group.

    ``memory`` maps GPU addresses to contiguous arrays, which the code reads and writes in place, every access
    checked. The string ``"host"`` makes GPU addresses those of this process *without any check*: a wrong one
    crashes or corrupts it.

    Raises :class:`GpuFault` or :class:`GpuHang` if the program fails, :class:`UnsupportedDevice` for another
    GPU, :class:`LaunchError` for a launch that cannot be, :class:`PackageError` for a damaged code object or
    one without such a kernel.
    """
    if arch not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedDevice(f"run_amdgpu was asked for {arch!r}; it executes {known}")
    program = _code(code)
    launch = _Launch.of(groups, local, kernarg_address)
    changes: dict[str, Any] = {
        "rsrc1": _optional("rsrc1", rsrc1, _WORD),
        "rsrc2": _optional("rsrc2", rsrc2, _WORD),
        "wave": _optional("wave", wave, _WORD),
        "scratch_bytes": _optional("scratch_bytes", scratch_bytes, MAX_SCRATCH_BYTES),
        "lds_bytes": _optional("lds_bytes", lds_bytes, MAX_LDS_BYTES),
        "user_data": None if user_data is None else _numbers("user_data", user_data, _WORD),
    }
    loader = _Loader(_space(memory))
    runner = executor or Executor(strict=strict)
    try:
        if isinstance(program, bytes) and program[:4] == _ELF:
            dispatch = _from_object(_parsed(program), kernel, arch, launch, loader)
        else:
            dispatch = _from_code(program, launch, loader)
        dispatch = replace(dispatch, **{name: value for name, value in changes.items() if value is not None})
        _number("local memory of a work-group", dispatch.shared_bytes, MAX_LDS_BYTES)
        _number("private memory of a work-item", dispatch.scratch_bytes, MAX_SCRATCH_BYTES)
        report = runner.run(dispatch, loader.space)
    finally:
        loader.unload()
        if executor is None:
            runner.close()
    if report is not None:
        raise (GpuHang if report.kind == "hang" else GpuFault)("AMD GPU program failed", report)
    return runner.statistics


# ----- what a launch is given ---------------------------------------------------------------------


def _number(name: str, value: Any, most: int) -> int:
    """Return a whole number from 0 to ``most``; :class:`LaunchError` if it is none."""
    try:
        number = operator.index(value)
    except TypeError:
        raise LaunchError(f"run_amdgpu: {name} is a whole number, not {value!r}") from None
    if isinstance(value, bool) or not 0 <= number <= most:
        raise LaunchError(f"run_amdgpu: {name} is {value!r}; 0 to {most:#x} are possible")
    return number


def _optional(name: str, value: Any, most: int) -> int | None:
    return None if value is None else _number(name, value, most)


def _numbers(name: str, values: Any, most: int) -> tuple[int, ...]:
    try:
        given = tuple(values)
    except TypeError:
        raise LaunchError(f"run_amdgpu: {name} is a tuple of whole numbers, not {values!r}") from None
    return tuple(_number(name, value, most) for value in given)


def _code(code: Any) -> bytes | tuple[int, int]:
    """Return the bytes of a code object or of bare code, or where the latter is and its size."""
    if isinstance(code, tuple):
        place = _numbers("the address and size of code", code, _ADDRESS)
        if len(place) != 2:
            raise LaunchError(f"run_amdgpu: code in memory is given as (address, size), not {code!r}")
        _check_size(place[1])
        return place[0], place[1]
    if not isinstance(code, bytes | bytearray | memoryview):
        raise LaunchError(f"run_amdgpu: code is bytes or (address, size), not {type(code).__name__}")
    data = bytes(code)
    if data[:4] != _ELF:
        _check_size(len(data))
    return data


def _check_size(nbytes: int) -> None:
    if not nbytes or nbytes % _INSTRUCTION:
        raise LaunchError(
            f"run_amdgpu: {nbytes} bytes of machine code; it is a multiple of {_INSTRUCTION} bytes, and not "
            "empty"
        )


@lru_cache(maxsize=16)
def _parsed(code: bytes) -> CodeObject:
    """Return a code object; those of recent launches are remembered."""
    return load_code_object(code)


@dataclass(frozen=True, slots=True)
class _Launch:
    groups: tuple[int, int, int]
    local: tuple[int, int, int]
    kernarg_address: int

    @classmethod
    def of(cls, groups: Any, local: Any, kernarg_address: Any) -> _Launch:
        """Return a launch whose numbers can be; what a group can be at most is for :class:`Dispatch`."""
        counts = _numbers("groups", groups, MAX_GRID)
        sizes = _numbers("local", local, MAX_GRID)
        if len(counts) != 3 or len(sizes) != 3:
            raise LaunchError(f"run_amdgpu: groups={groups!r}, local={local!r}: both have three dimensions")
        if any(count * size > MAX_GRID for count, size in zip(counts, sizes, strict=True)):
            raise LaunchError(
                f"run_amdgpu: {counts} groups of {sizes} work-items: a launch has at most {MAX_GRID} "
                "work-items in each dimension"
            )
        x, y, z = counts
        address = _number("kernarg_address", kernarg_address, _ADDRESS)
        return cls((x, y, z), (sizes[0], sizes[1], sizes[2]), address)

    @property
    def kernarg(self) -> tuple[int, int]:
        return self.kernarg_address & 0xFFFFFFFF, self.kernarg_address >> 32


class _Loader:
    """What a launch adds to the memory of its program, for as long as it runs."""

    def __init__(self, space: Memory) -> None:
        self.space = space
        self._placed: list[npt.NDArray[np.uint8]] = []
        self._mapped: list[int] = []

    def place(self, memory: npt.NDArray[np.uint8], wanted: int, label: str) -> int:
        """Return the GPU address of host memory: ``wanted``, or the first free megabyte behind it."""
        self._placed.append(memory)
        host = int(memory.ctypes.data)
        if isinstance(self.space, str):
            return host
        while self.space.overlapping(wanted, len(memory)) is not None:
            wanted += 1 << 20
        self.space.map(wanted, len(memory), host, writable=False, label=label)
        self._mapped.append(wanted)
        return wanted

    def unload(self) -> None:
        """Take it away again."""
        if not isinstance(self.space, str):
            for address in self._mapped:
                self.space.unmap(address)
        self._mapped.clear()
        self._placed.clear()


def _from_code(code: bytes | tuple[int, int], launch: _Launch, loader: _Loader) -> Dispatch:
    """Return a launch of bare code."""
    if isinstance(code, tuple):
        address, size = code
        data = ctypes.string_at(address, size)
    else:
        data = code
        address = loader.place(np.frombuffer(code, np.uint8), CODE_ADDRESS, "code")
    return Dispatch(
        name="program",
        code=data,
        address=address,
        groups=launch.groups,
        local=launch.local,
        user_data=launch.kernarg,
        rsrc1=RSRC1,
        rsrc2=RSRC2,
    )


def _from_object(
    loaded: CodeObject, name: str | None, arch: str, launch: _Launch, loader: _Loader
) -> Dispatch:
    """Return a launch of a kernel of a code object."""
    if loaded.arch not in ARCHITECTURES or arch not in ("rdna3", loaded.arch):
        raise UnsupportedDevice(f"the code object is for {loaded.arch}, but {arch} was asked for")
    kernel = loaded.kernel(name)
    address = _load(loaded, loader)
    packet_address = loader.place(
        _dispatch_packet(kernel, address, launch), PACKET_ADDRESS, "dispatch packet"
    )
    return _kernel_dispatch(loaded, kernel, address, launch, packet_address)


def _kernel_dispatch(
    loaded: CodeObject, kernel: Kernel, address: int, launch: _Launch, packet_address: int
) -> Dispatch:
    """Return the launch of a kernel whose code object was loaded at ``address``."""
    start = min(s for s, _ in loaded.code)
    end = max(e for _, e in loaded.code)
    descriptor = kernel.descriptor
    targets = {*loaded.symbols.values(), *(addend for _, addend in loaded.pointers)}
    private = descriptor.private_segment_fixed_size
    if kernel.metadata is not None and kernel.metadata.uses_dynamic_stack:
        private += DYNAMIC_STACK
    return Dispatch(
        name=kernel.name,
        code=loaded.image[start:end],
        address=address + start,
        entry=kernel.entry - start,
        functions=tuple(sorted(t - start for t in targets if start <= t < end and t != kernel.entry)),
        groups=launch.groups,
        local=launch.local,
        user_data=_user_data(kernel, launch, packet_address),
        rsrc1=descriptor.rsrc1,
        rsrc2=descriptor.rsrc2,
        wave=descriptor.wave,
        scratch_bytes=private,
        lds_bytes=descriptor.group_segment_fixed_size,
    )


def _user_data(kernel: Kernel, launch: _Launch, packet_address: int) -> tuple[int, ...]:
    """Return the user registers that the descriptor asks for; the queue and what only it knows are zero."""
    contents = {
        "DISPATCH_PTR": (packet_address & 0xFFFFFFFF, packet_address >> 32),
        "KERNARG_SEGMENT_PTR": launch.kernarg,
        "PRIVATE_SEGMENT_SIZE": (kernel.descriptor.private_segment_fixed_size,),
    }
    registers = [0] * (kernel.descriptor.rsrc2 >> 1 & 31)
    for name, place in kernel.descriptor.user_sgprs.items():
        words = contents.get(name, ())
        registers[place : place + len(words)] = words
    return tuple(registers)


def _dispatch_packet(kernel: Kernel, address: int, launch: _Launch) -> npt.NDArray[np.uint8]:
    """Return the AQL packet that a kernel may read through its dispatch pointer."""
    grid = [g * size for g, size in zip(launch.groups, launch.local, strict=True)]
    descriptor = kernel.descriptor
    sizes = descriptor.private_segment_fixed_size, descriptor.group_segment_fixed_size
    handle = address + kernel.descriptor_address
    packed = _PACKET.pack(2, 3, *launch.local, 0, *grid, *sizes, handle, launch.kernarg_address, 0, 0)
    return np.frombuffer(packed, np.uint8)


def _load(loaded: CodeObject, loader: _Loader) -> int:
    """Place the image of a code object; return its GPU address."""
    raw = np.zeros(len(loaded.image) + PAGE, np.uint8)
    skip = -raw.ctypes.data % PAGE
    memory = raw[skip : skip + len(loaded.image)]
    address = loader.place(memory, CODE_ADDRESS, "code object")
    memory[:] = np.frombuffer(loaded.at(address), np.uint8)
    return address


def _space(memory: Mapping[int, npt.NDArray[Any]] | AddressSpace | str) -> Memory:
    if isinstance(memory, AddressSpace):
        return memory
    if isinstance(memory, str):
        if memory != HOST:
            raise LaunchError(f"memory is a mapping, an AddressSpace or 'host', not {memory!r}")
        return HOST
    if not isinstance(memory, Mapping):
        kind = type(memory).__name__
        raise LaunchError(f"run_amdgpu: memory is a mapping, an AddressSpace or 'host', not {kind}")
    space = AddressSpace()
    for address, array in memory.items():
        _map(space, _number("an address of memory", address, _ADDRESS), array)
    return space


def _map(space: AddressSpace, address: int, array: Any) -> None:
    label = f"array at {address:#x}"
    if not isinstance(array, np.ndarray):
        kind = type(array).__name__
        raise LaunchError(f"run_amdgpu: what memory has at GPU address {address:#x} is no array, but {kind}")
    if not array.flags.c_contiguous:
        raise LaunchError(f"the array at GPU address {address:#x} is not contiguous")
    try:
        space.map(address, array.nbytes, array.ctypes.data, writable=array.flags.writeable, label=label)
    except ValueError as error:
        raise LaunchError(f"run_amdgpu: {error}") from None
