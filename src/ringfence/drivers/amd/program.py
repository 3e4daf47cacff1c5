"""Code objects in device memory, their kernels, and the argument blocks that kernels are launched with."""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ringfence.errors import LaunchError, PackageError
from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.chips import Generation, generation_of, lds_granule
from ringfence.hardware.amd.code_object import CodeObject, Kernel
from ringfence.hardware.amd.descriptor import PROPERTIES, RSRC1
from ringfence.hardware.amd.metadata import Argument, ArgumentKind, KernelMetadata
from ringfence.hardware.amd.topology import NodeProperties
from ringfence.runtime import program as common
from ringfence.runtime.device import Geometry, Limits
from ringfence.runtime.memory import Buffer, Memory, buffer_of
from ringfence.runtime.program import Place, Spec, in_order

MAX_THREADS = 1024  # work-items of a group
DISPATCH_PACKET = struct.Struct("<HHHHHHIIIIIQQQQ")  # hsa_kernel_dispatch_packet_t of hsa.h
PACKET_GEOMETRY = 24  # bytes of it that depend on the geometry
PACKET_KERNARG = 40  # byte offset of the address of the arguments in it
PACKET_ALIGNMENT = 64
# Header of a kernel dispatch with barrier and system fences.
_PACKET_HEADER = 2 | 1 << 8 | 2 << 9 | 2 << 11

LOCAL_ALIGNMENT = 16  # of local memory that a pointer gets, unless the metadata says what it points to

# Private memory of a work-item for calls that the compiler could not follow, besides what it counted.
DYNAMIC_STACK_BYTES = 16384

_SUPPLIED_SGPRS = ("DISPATCH_PTR", "KERNARG_SEGMENT_PTR", "PRIVATE_SEGMENT_SIZE")


# ----- arguments ----------------------------------------------------------------------------------


def argument_spec(kernel: str, index: int, argument: Argument) -> Spec:
    """Return what an argument must be. :class:`PackageError` for a kind that cannot be supplied.

    Types are known from OpenCL C and ``ringfence compile`` only; a buffer of unknown elements takes any, a
    scalar of unknown type bytes.
    """
    name, dtype = argument.name or "", argument.dtype
    size = 0 if dtype is None else struct.calcsize(common.CODES[dtype])
    if argument.value_kind is ArgumentKind.GLOBAL_BUFFER:
        read_only = argument.is_const or "read_only" in (argument.access, argument.actual_access)
        mask = (argument.pointee_align or size or 1) - 1
        # Other compilers than OpenCL C's leave types out, and say nothing of what may be written.
        told = argument.type_name is not None or argument.actual_access is not None
        spec = Spec.of_buffer(kernel, index, name, dtype or "any", written=not read_only, mask=mask)
        spec.writable = spec.written and told
        return spec
    if argument.value_kind is not ArgumentKind.BY_VALUE:
        raise PackageError(
            f"argument {index} {name!r} of kernel {kernel!r} is a {argument.value_kind.value}, which cannot "
            "be given here"
        )
    if dtype is not None and size == argument.size:
        return Spec.of_scalar(kernel, index, name, dtype, size)
    return Spec.of_bytes(kernel, index, name, argument.size)


@dataclass(frozen=True, slots=True)
class _Launch:
    """What hidden arguments are made from."""

    geometry: Geometry
    dynamic_lds: int

    def dimension(self, axis: int) -> tuple[int, int, int]:
        """Return whole groups, work-items of a group, and work-items beyond whole groups."""
        return self.geometry.groups[axis], self.geometry.local[axis], 0


def _of_axis(part: int, axis: int) -> Callable[[_Launch], int]:
    return lambda launch: launch.dimension(axis)[part]


_HIDDEN: dict[ArgumentKind, Callable[[_Launch], int]] = {
    ArgumentKind.HIDDEN_NONE: lambda _: 0,
    ArgumentKind.HIDDEN_GRID_DIMS: lambda launch: launch.geometry.dimensions,
    ArgumentKind.HIDDEN_DYNAMIC_LDS_SIZE: lambda launch: launch.dynamic_lds,
    ArgumentKind.HIDDEN_SHARED_BASE: lambda _: kfd.LDS_APERTURE_BASE >> 32,
    ArgumentKind.HIDDEN_PRIVATE_BASE: lambda _: kfd.SCRATCH_APERTURE_BASE >> 32,
}
for _axis, _letter in enumerate("XYZ"):
    _HIDDEN[ArgumentKind[f"HIDDEN_BLOCK_COUNT_{_letter}"]] = _of_axis(0, _axis)
    _HIDDEN[ArgumentKind[f"HIDDEN_GROUP_SIZE_{_letter}"]] = _of_axis(1, _axis)
    _HIDDEN[ArgumentKind[f"HIDDEN_REMAINDER_{_letter}"]] = _of_axis(2, _axis)
    _HIDDEN[ArgumentKind[f"HIDDEN_GLOBAL_OFFSET_{_letter}"]] = lambda _: 0
"""How each hidden argument that can be supplied is found. Launches have whole groups and no offset."""


def hidden_arguments(kernel: KernelMetadata) -> list[Argument]:
    """Return the hidden arguments; :class:`PackageError` names those that cannot be supplied."""
    hidden = kernel.hidden
    unknown = [kind.value for kind in hidden if kind not in _HIDDEN]
    if unknown:
        raise PackageError(
            f"kernel {kernel.name!r} needs {', '.join(unknown)}, which cannot be supplied here: printf, "
            "malloc, host calls and queues of the device need a vendor's runtime"
        )
    return sorted(hidden.values(), key=lambda argument: argument.offset)


LocalSizes = Mapping[str | int, int]
"""Bytes of local memory that pointers to it get, by the name or the index of the argument."""


@dataclass(frozen=True, slots=True)
class LocalArgument:
    """A pointer to ``nbytes`` of local memory, ``offset`` bytes into that of the group."""

    argument: Argument
    offset: int
    nbytes: int


def local_arguments(kernel: KernelMetadata, first: int, sizes: LocalSizes) -> list[LocalArgument]:
    """Return the pointers to local memory, one after the other from offset ``first`` on.

    :class:`LaunchError` if one has no size or a size no such argument, or is 0.
    """
    left = dict(sizes)
    found: list[LocalArgument] = []
    missing: list[str] = []
    for index, argument in enumerate(kernel.explicit):
        if argument.value_kind is not ArgumentKind.DYNAMIC_SHARED_POINTER:
            continue
        name = argument.name or f"argument {index}"
        key = argument.name if argument.name in left else index
        nbytes = left.pop(key, None)
        if nbytes is None:
            missing.append(name)
            continue
        if not nbytes:
            raise LaunchError(f"kernel {kernel.name!r}: the local memory of {name!r} has 0 bytes")
        first = _round_up(first, argument.pointee_align or LOCAL_ALIGNMENT)
        found.append(LocalArgument(argument, first, nbytes))
        first += nbytes
    if missing:
        raise LaunchError(
            f"kernel {kernel.name!r} leaves sizes of local memory to the launch: say how many bytes "
            f"{', '.join(missing)} get, with local_bytes= of Module.kernel()"
        )
    if left:
        raise LaunchError(
            f"kernel {kernel.name!r} has no pointer to local memory called {', '.join(map(repr, left))}"
        )
    return found


def whole_bytes(kernel: str, what: str, value: Any) -> int:
    """Return a number of bytes; :class:`LaunchError` if it is no whole number or less than 0."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0 or isinstance(value, bool):
        raise LaunchError(f"kernel {kernel!r}: {value!r} is no number of bytes for {what}")
    return number


def local_sizes(kernel: str, sizes: Any) -> dict[str | int, int]:
    """Return what is given as ``local_bytes=``, checked; :class:`LaunchError` if it is nothing such."""
    if not isinstance(sizes, Mapping):
        raise LaunchError(
            f"kernel {kernel!r}: local_bytes= maps names or numbers of arguments to bytes, as "
            f"{{'tmp': 1024}}, not {sizes!r}"
        )
    return {
        name: whole_bytes(kernel, f"the local memory of {name!r}", nbytes) for name, nbytes in sizes.items()
    }


# ----- programs -----------------------------------------------------------------------------------


class ProgramDriver(common.ProgramDriver, Protocol):
    """What a program needs of its device."""

    properties: NodeProperties


class Module:
    """A code object in device memory. Index it with a kernel's name; a lone kernel can be launched directly.

    ``arch`` is what it was compiled for, ``kernels`` are the names of its kernels.
    """

    def __init__(self, driver: ProgramDriver, source: CodeObject, label: str | None = None) -> None:
        arch = driver.properties.arch
        if source.arch != arch:
            raise PackageError(
                f"the code object was compiled for {source.arch}, this device is a {arch}: compile it for "
                f"{arch}"
            )
        self.source = source
        self.arch = source.arch
        self.label = label or next(iter(source.kernels), "code object")
        self._driver = driver
        self._programs: dict[tuple[str, int, tuple[tuple[str | int, int], ...]], Program] = {}
        self.code = _upload(driver.memory, source, self.label)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Return the names of the kernels."""
        return tuple(self.source.kernels)

    def __iter__(self) -> Iterator[str]:
        return iter(self.source.kernels)

    def __getitem__(self, name: str) -> Program:
        return self.kernel(name)

    def kernel(
        self,
        name: str | None = None,
        *,
        dynamic_lds_bytes: int = 0,
        local_bytes: LocalSizes | None = None,
    ) -> Program:
        """Return a kernel by name, or the only one, ready to launch.

        ``local_bytes`` says how much local memory each argument gets that is a pointer to it
        (``local float *`` in OpenCL C), by name or index; a launch does not take these arguments.
        ``dynamic_lds_bytes`` of local memory are there beyond all that, for kernels whose compiler leaves the
        size to the launch (HIP's ``extern __shared__``, Triton). :class:`PackageError` if it cannot run here,
        :class:`LaunchError` for sizes that are missing or wrong.
        """
        found = self.source.kernel(name)
        sizes = local_sizes(found.name, {} if local_bytes is None else local_bytes)
        dynamic = whole_bytes(found.name, "dynamic local memory", dynamic_lds_bytes)
        key = found.name, dynamic, tuple(sizes.items())
        if key not in self._programs:
            self._programs[key] = Program(self._driver, self, found, dynamic, sizes)
        return self._programs[key]

    def free(self) -> None:
        """Give the device memory of the code object back, once the GPU has finished with it."""
        for program in self._programs.values():
            program.let_go()
        self.code.free()

    def __repr__(self) -> str:
        return f"<Module {self.label!r} for {self.arch}: {', '.join(self.kernels)}>"


class Program(common.Program):
    """A kernel of a :class:`Module` on a device.

    ``private_bytes`` is the scratch memory of a work-item, ``lds_bytes`` the local memory of a group. An
    argument block holds the arguments, explicit and hidden, and the dispatch packet if the kernel asks for
    it.
    """

    def __init__(
        self,
        driver: ProgramDriver,
        module: Module,
        kernel: Kernel,
        dynamic_lds_bytes: int,
        local_bytes: LocalSizes,
    ) -> None:
        metadata = _checked(kernel, driver.properties)
        self._target = driver.properties.target
        self.has_variables = module.source.writable
        self.module = module
        self.kernel = kernel
        self.descriptor = descriptor = kernel.descriptor
        self._local = local_arguments(metadata, descriptor.group_segment_fixed_size, local_bytes)
        self.lds_bytes = _lds_bytes(kernel, driver.properties, self._local, dynamic_lds_bytes)
        self.private_bytes = private_bytes(kernel)
        self.user_sgprs = descriptor.user_sgprs
        self._dynamic_lds = dynamic_lds_bytes
        self._hidden = hidden_arguments(metadata)
        self._hidden_at = self._hidden[0].offset if self._hidden else 0
        self._hidden_bytes = (
            max((each.offset + each.size for each in self._hidden), default=0) - self._hidden_at
        )
        arguments = max(descriptor.kernarg_size, metadata.kernarg_segment_size)
        packet = "DISPATCH_PTR" in self.user_sgprs
        self.packet_offset = _round_up(arguments, PACKET_ALIGNMENT) if packet else None
        """Where the dispatch packet is in an argument block, ``None`` if there is none."""
        if self.packet_offset is not None:
            self.block_links = ((self.packet_offset + PACKET_KERNARG, 0),)
        given = [a for a in metadata.explicit if a.value_kind is not ArgumentKind.DYNAMIC_SHARED_POINTER]
        specs = [argument_spec(metadata.name, index, each) for index, each in enumerate(given)]
        places = [
            Place(argument.offset, spec.code, index)
            for index, (argument, spec) in enumerate(zip(given, specs))
        ]
        reqd = metadata.reqd_workgroup_size
        super().__init__(
            driver,
            name=kernel.name,
            chip=module.arch,
            label=module.label if len(module.kernels) == 1 else kernel.name,
            specs=specs,
            places=in_order(kernel.name, places),
            block_bytes=max(_end(self.packet_offset, arguments), PACKET_ALIGNMENT),
            limits=_limits(metadata),
            fixed_local=(reqd[0], reqd[1], reqd[2]) if reqd else None,
            code=module.code,
        )

    @property
    def entry_address(self) -> int:
        """Return the GPU address of the first instruction."""
        return self.code.gpu_address + self.kernel.entry

    @property
    def wave(self) -> int:
        """Return the number of lanes of a wave."""
        return self.descriptor.wave

    def free(self) -> None:
        """Give the device memory of the whole code object back, once the GPU has finished with it."""
        self.module.free()

    def let_go(self) -> None:
        """Give the memory of prepared launches back."""
        launches, self.launches = self.launches, None
        if launches is not None:
            launches.free()

    # ----- geometry -------------------------------------------------------------------------------

    def geometry_words(self, geometry: Geometry) -> Sequence[int]:
        """Return the size of a group, and the number of groups."""
        return (*geometry.local, *geometry.groups)

    def geometry_bytes(self, geometry: Geometry) -> bytes:
        """Return the hidden arguments, then the head of the dispatch packet, as far as there are any."""
        launch = _Launch(geometry, self._dynamic_lds)
        hidden = bytearray(self._hidden_bytes)
        for argument in self._hidden:
            value = _HIDDEN[argument.value_kind](launch)
            at = argument.offset - self._hidden_at
            hidden[at : at + argument.size] = value.to_bytes(argument.size, "little")
        packet = b"" if self.packet_offset is None else self._packet(geometry)[:PACKET_GEOMETRY]
        return bytes(hidden) + packet

    def store_geometry(self, block: Any, offset: int, argument_bytes: bytes) -> None:
        """Store the hidden arguments, and the head of the dispatch packet."""
        count = self._hidden_bytes
        if count:
            at = offset + self._hidden_at
            block[at : at + count] = argument_bytes[:count]
        if self.packet_offset is not None:
            at = offset + self.packet_offset
            block[at : at + PACKET_GEOMETRY] = argument_bytes[count:]

    def _packet(self, geometry: Geometry) -> bytes:
        """Return the packet of a dispatch; the address of the arguments is linked later."""
        grid = [count * size for count, size in zip(geometry.groups, geometry.local)]
        handle = self.code.gpu_address + self.kernel.descriptor_address
        return DISPATCH_PACKET.pack(
            _PACKET_HEADER,
            geometry.dimensions,
            *geometry.local,
            0,
            *grid,
            self.private_bytes,
            self.lds_bytes,
            handle,
            0,
            0,
            0,
        )

    def block(self) -> bytearray:
        """Return an argument block without arguments and geometry."""
        block = bytearray(self.block_bytes)
        for each in self._local:
            at, size = each.argument.offset, each.argument.size
            block[at : at + size] = each.offset.to_bytes(size, "little")
        if self.packet_offset is not None:
            packet = self._packet(Geometry((1, 1, 1), (1, 1, 1)))
            block[self.packet_offset : self.packet_offset + len(packet)] = packet
        return block

    # ----- registers ------------------------------------------------------------------------------

    @property
    def resources(self) -> tuple[int, int, int]:
        """Return RSRC1, RSRC2 without the size of local memory, and RSRC3.

        PRIV is set on gfx11 as tinygrad does: without it the save of a wave's context goes wrong.
        """
        descriptor = self.descriptor
        priv = RSRC1.pack(PRIV=int(generation_of(self._target) is Generation.GFX11))
        return descriptor.rsrc1 | priv, descriptor.rsrc2, descriptor.rsrc3

    @property
    def lds_granules(self) -> int:
        """Return the local memory of a group in units of RSRC2.LDS_SIZE."""
        return -(-self.lds_bytes // lds_granule(self._target))


def private_bytes(kernel: Kernel) -> int:
    """Return the scratch memory of a work-item."""
    fixed = kernel.descriptor.private_segment_fixed_size
    dynamic = PROPERTIES.get(kernel.descriptor.properties, "USES_DYNAMIC_STACK")
    return fixed + (DYNAMIC_STACK_BYTES if dynamic else 0)


def _checked(kernel: Kernel, properties: NodeProperties) -> KernelMetadata:
    """Return the metadata of a kernel that can run; :class:`PackageError` says why it cannot."""
    if kernel.metadata is None:
        raise PackageError(f"kernel {kernel.name!r} has no metadata, so its arguments are not known")
    descriptor = kernel.descriptor
    unsupplied = [name for name in descriptor.user_sgprs if name not in _SUPPLIED_SGPRS]
    if unsupplied:
        raise PackageError(
            f"kernel {kernel.name!r} wants {', '.join(unsupplied)} in its first registers, which cannot be "
            "supplied here; LLVM asks for it where it does not know what a kernel calls, unless functions "
            "have attributes such as amdgpu-no-queue-ptr"
        )
    # Where arguments can be preloaded (gfx9), a kernel loads them itself if it starts at its plain entry.
    if descriptor.kernarg_preload and generation_of(properties.target) is not Generation.GFX9:
        raise PackageError(
            f"kernel {kernel.name!r} wants preloaded arguments, which {properties.arch} has not"
        )
    return kernel.metadata


def _lds_bytes(
    kernel: Kernel, properties: NodeProperties, local: Sequence[LocalArgument], dynamic: int
) -> int:
    """Return the local memory of a group; :class:`PackageError` if it is more than one can have."""
    end = local[-1].offset + local[-1].nbytes if local else kernel.descriptor.group_segment_fixed_size
    needed = end + dynamic
    if needed > properties.lds_bytes:
        raise PackageError(
            f"kernel {kernel.name!r} needs {needed} bytes of local memory; a group on {properties.arch} has "
            f"{properties.lds_bytes}"
        )
    return needed


def _limits(metadata: KernelMetadata) -> Limits:
    threads = min(MAX_THREADS, metadata.max_flat_workgroup_size or MAX_THREADS)
    why = "it was compiled for that" if threads < MAX_THREADS else "as many as a group can have"
    return Limits(threads, MAX_THREADS, why)


def _upload(memory: Memory, source: CodeObject, label: str) -> Buffer:
    """Put the image into memory that the GPU can write only if there are variables in it."""
    mapping = memory.allocate(len(source.image), readonly=not source.writable, label=f"code of {label}")
    assert mapping.host_address is not None
    image = bytes(source.at(mapping.gpu_address))
    ctypes.memmove(mapping.host_address, image, len(image))
    return buffer_of(memory, mapping)


def _end(packet_offset: int | None, arguments: int) -> int:
    return arguments if packet_offset is None else packet_offset + DISPATCH_PACKET.size


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
