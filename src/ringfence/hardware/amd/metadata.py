"""The metadata of a code object: which kernels it has, and which arguments each takes.

A note of the ELF file (owner ``AMDGPU``, type 32) holds one MessagePack map. Source: LLVM ``AMDGPUUsage.rst``
(Code Object V3 to V6 Metadata). Keys that are not listed here are ignored, as the format asks of readers.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from ringfence.errors import PackageError

NUMPY_NAMES = {
    "bool": "bool",
    "char": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "uchar": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "ushort": "uint16",
    "int": "int32",
    "unsigned int": "uint32",
    "uint": "uint32",
    "long": "int64",
    "unsigned long": "uint64",
    "ulong": "uint64",
    "half": "float16",
    "_Float16": "float16",
    "float": "float32",
    "double": "float64",
}
"""numpy's names of the types that ``.type_name`` spells as OpenCL C does."""


class ArgumentKind(Enum):
    """What an argument holds; ``HIDDEN_*`` are filled by whoever launches, not by the caller."""

    BY_VALUE = "by_value"
    GLOBAL_BUFFER = "global_buffer"
    DYNAMIC_SHARED_POINTER = "dynamic_shared_pointer"
    SAMPLER = "sampler"
    IMAGE = "image"
    PIPE = "pipe"
    QUEUE = "queue"
    HIDDEN_GLOBAL_OFFSET_X = "hidden_global_offset_x"
    HIDDEN_GLOBAL_OFFSET_Y = "hidden_global_offset_y"
    HIDDEN_GLOBAL_OFFSET_Z = "hidden_global_offset_z"
    HIDDEN_NONE = "hidden_none"
    HIDDEN_PRINTF_BUFFER = "hidden_printf_buffer"
    HIDDEN_HOSTCALL_BUFFER = "hidden_hostcall_buffer"
    HIDDEN_DEFAULT_QUEUE = "hidden_default_queue"
    HIDDEN_COMPLETION_ACTION = "hidden_completion_action"
    HIDDEN_MULTIGRID_SYNC_ARG = "hidden_multigrid_sync_arg"
    HIDDEN_BLOCK_COUNT_X = "hidden_block_count_x"
    HIDDEN_BLOCK_COUNT_Y = "hidden_block_count_y"
    HIDDEN_BLOCK_COUNT_Z = "hidden_block_count_z"
    HIDDEN_GROUP_SIZE_X = "hidden_group_size_x"
    HIDDEN_GROUP_SIZE_Y = "hidden_group_size_y"
    HIDDEN_GROUP_SIZE_Z = "hidden_group_size_z"
    HIDDEN_REMAINDER_X = "hidden_remainder_x"
    HIDDEN_REMAINDER_Y = "hidden_remainder_y"
    HIDDEN_REMAINDER_Z = "hidden_remainder_z"
    HIDDEN_GRID_DIMS = "hidden_grid_dims"
    HIDDEN_HEAP_V1 = "hidden_heap_v1"
    HIDDEN_DYNAMIC_LDS_SIZE = "hidden_dynamic_lds_size"
    HIDDEN_PRIVATE_BASE = "hidden_private_base"
    HIDDEN_SHARED_BASE = "hidden_shared_base"
    HIDDEN_QUEUE_PTR = "hidden_queue_ptr"

    @property
    def hidden(self) -> bool:
        return self.value.startswith("hidden_")


class Argument(msgspec.Struct, frozen=True, omit_defaults=True, rename=lambda name: f".{name}"):
    """One argument: ``size`` bytes at byte ``offset`` of the argument block.

    ``value_kind`` is that of :class:`ArgumentKind`, ``address_space`` (of pointers) one of ``private``,
    ``global``, ``constant``, ``local``, ``generic``, ``region``.
    """

    offset: int
    size: int
    value_kind: ArgumentKind
    name: str | None = None
    type_name: str | None = None
    address_space: str | None = None
    access: str | None = None
    actual_access: str | None = None
    pointee_align: int | None = None
    is_const: bool = False
    is_restrict: bool = False
    is_volatile: bool = False
    is_pipe: bool = False

    @property
    def dtype(self) -> str | None:
        """Return numpy's name of a number, or of a buffer's elements; ``None`` if the type is not known."""
        name = self.type_name or ""
        if self.value_kind is ArgumentKind.GLOBAL_BUFFER and not name.endswith("*"):
            return None
        return NUMPY_NAMES.get(name.removesuffix("*").strip())


class KernelMetadata(msgspec.Struct, frozen=True, omit_defaults=True, rename=lambda name: f".{name}"):
    """What a launch must know of a kernel. Sizes are in bytes; ``symbol`` names the descriptor."""

    name: str
    symbol: str
    kernarg_segment_size: int
    kernarg_segment_align: int
    group_segment_fixed_size: int
    private_segment_fixed_size: int
    wavefront_size: int
    sgpr_count: int
    vgpr_count: int
    max_flat_workgroup_size: int
    args: tuple[Argument, ...] = ()
    kind: str = "normal"
    agpr_count: int = 0
    sgpr_spill_count: int = 0
    vgpr_spill_count: int = 0
    reqd_workgroup_size: tuple[int, int, int] | None = None
    workgroup_size_hint: tuple[int, int, int] | None = None
    vec_type_hint: str | None = None
    language: str | None = None
    language_version: tuple[int, int] | None = None
    uses_dynamic_stack: bool = False
    uniform_work_group_size: int = 0
    workgroup_processor_mode: int = 0
    device_enqueue_symbol: str | None = None

    @property
    def explicit(self) -> tuple[Argument, ...]:
        """Return the arguments that the caller gives, in order."""
        return tuple(argument for argument in self.args if not argument.value_kind.hidden)

    @property
    def hidden(self) -> dict[ArgumentKind, Argument]:
        """Return the arguments that the launch fills, by kind."""
        return {argument.value_kind: argument for argument in self.args if argument.value_kind.hidden}


class Metadata(msgspec.Struct, frozen=True, omit_defaults=True, rename=lambda name: f"amdhsa.{name}"):
    """The whole note. ``target`` is as in ``amdgcn-amd-amdhsa--gfx1100``."""

    version: tuple[int, int]
    target: str
    kernels: tuple[KernelMetadata, ...] = ()
    printf: tuple[str, ...] = ()


def decode_metadata(data: bytes) -> Metadata:
    """Return the metadata of a note's descriptor.

    Raises :class:`PackageError` if it is no MessagePack, lacks a key or has an argument kind that nobody here
    knows how to fill.
    """
    try:
        metadata = msgspec.msgpack.decode(data, type=Metadata)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PackageError(
            f"the metadata of the code object cannot be read: {error}; it is damaged"
        ) from error
    if metadata.version[0] != 1:
        raise PackageError(
            f"the metadata has version {metadata.version[0]}.{metadata.version[1]}; only 1.x is known"
        )
    for kernel in metadata.kernels:
        _check(kernel)
    return metadata


def encode_metadata(metadata: Metadata) -> bytes:
    """Return the note's descriptor; keys whose value is the default are left out."""
    return msgspec.msgpack.encode(metadata)


def _check(kernel: KernelMetadata) -> None:
    if kernel.wavefront_size not in (32, 64):
        raise PackageError(f"kernel {kernel.name!r} has waves of {kernel.wavefront_size} lanes, not 32 or 64")
    for argument in kernel.args:
        end = argument.offset + argument.size
        if argument.offset < 0 or argument.size < 0 or end > kernel.kernarg_segment_size:
            raise PackageError(
                f"kernel {kernel.name!r}: argument {argument.name or argument.value_kind.value!r} at"
                f" {argument.offset}+{argument.size} does not fit the {kernel.kernarg_segment_size} bytes of"
                " arguments; the metadata is damaged"
            )
