"""The kernel descriptor: the 64 bytes from which a dispatch takes a kernel's registers, sizes and entry.

Source: LLVM ``AMDGPUUsage.rst`` (Kernel Descriptor) and ``AMDHSAKernelDescriptor.h``. The fields that are
named here are those of gfx11; which bits have a meaning is looked up in the registers of each generation.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from enum import IntEnum

from ringfence.errors import PackageError
from ringfence.hardware.amd.chips import Target
from ringfence.hardware.amd.registers import registers_for
from ringfence.hardware.amd.topology import arch_name
from ringfence.hardware.fields import Word

SIZE = 64


class RoundMode(IntEnum):
    """How results are rounded."""

    NEAR_EVEN = 0
    PLUS_INFINITY = 1
    MINUS_INFINITY = 2
    ZERO = 3


class DenormMode(IntEnum):
    """Which denormals are replaced by zero."""

    FLUSH_SRC_DST = 0
    FLUSH_DST = 1
    FLUSH_SRC = 2
    FLUSH_NONE = 3


class RSRC1(Word):
    """COMPUTE_PGM_RSRC1. Registers come in granules: 8 of them in wave32, 4 in wave64."""

    GRANULATED_WORKITEM_VGPR_COUNT = 0, 5
    GRANULATED_WAVEFRONT_SGPR_COUNT = 6, 9
    PRIORITY = 10, 11
    FLOAT_ROUND_MODE_32 = 12, 13, RoundMode
    FLOAT_ROUND_MODE_16_64 = 14, 15, RoundMode
    FLOAT_DENORM_MODE_32 = 16, 17, DenormMode
    FLOAT_DENORM_MODE_16_64 = 18, 19, DenormMode
    PRIV = 20
    ENABLE_DX10_CLAMP = 21
    DEBUG_MODE = 22
    ENABLE_IEEE_MODE = 23
    BULKY = 24
    CDBG_USER = 25
    FP16_OVFL = 26
    WGP_MODE = 29
    MEM_ORDERED = 30
    FWD_PROGRESS = 31


class RSRC2(Word):
    """COMPUTE_PGM_RSRC2. GRANULATED_LDS_SIZE is zero in a descriptor; the dispatcher fills it."""

    ENABLE_PRIVATE_SEGMENT = 0
    USER_SGPR_COUNT = 1, 5
    ENABLE_TRAP_HANDLER = 6
    ENABLE_SGPR_WORKGROUP_ID_X = 7
    ENABLE_SGPR_WORKGROUP_ID_Y = 8
    ENABLE_SGPR_WORKGROUP_ID_Z = 9
    ENABLE_SGPR_WORKGROUP_INFO = 10
    ENABLE_VGPR_WORKITEM_ID = 11, 12
    ENABLE_EXCEPTION_ADDRESS_WATCH = 13
    ENABLE_EXCEPTION_MEMORY = 14
    GRANULATED_LDS_SIZE = 15, 23
    ENABLE_EXCEPTION_IEEE_754_FP_INVALID_OPERATION = 24
    ENABLE_EXCEPTION_FP_DENORMAL_SOURCE = 25
    ENABLE_EXCEPTION_IEEE_754_FP_DIVISION_BY_ZERO = 26
    ENABLE_EXCEPTION_IEEE_754_FP_OVERFLOW = 27
    ENABLE_EXCEPTION_IEEE_754_FP_UNDERFLOW = 28
    ENABLE_EXCEPTION_IEEE_754_FP_INEXACT = 29
    ENABLE_EXCEPTION_INT_DIVIDE_BY_ZERO = 30


class RSRC3(Word):
    """COMPUTE_PGM_RSRC3 of gfx11. INST_PREF_SIZE counts lines of 128 bytes."""

    SHARED_VGPR_COUNT = 0, 3
    INST_PREF_SIZE = 4, 9
    TRAP_ON_START = 10
    TRAP_ON_END = 11
    IMAGE_OP = 31


class PROPERTIES(Word, width=16):
    """kernel_code_properties: which user SGPRs a wave starts with, and the wave size."""

    ENABLE_SGPR_PRIVATE_SEGMENT_BUFFER = 0
    ENABLE_SGPR_DISPATCH_PTR = 1
    ENABLE_SGPR_QUEUE_PTR = 2
    ENABLE_SGPR_KERNARG_SEGMENT_PTR = 3
    ENABLE_SGPR_DISPATCH_ID = 4
    ENABLE_SGPR_FLAT_SCRATCH_INIT = 5
    ENABLE_SGPR_PRIVATE_SEGMENT_SIZE = 6
    ENABLE_WAVEFRONT_SIZE32 = 10
    USES_DYNAMIC_STACK = 11


class KERNARG_PRELOAD(Word, width=16):
    """How many dwords of arguments are loaded into user SGPRs, and from which dword on (gfx90a and later)."""

    LENGTH = 0, 6
    OFFSET = 7, 15


USER_SGPRS = {
    "ENABLE_SGPR_PRIVATE_SEGMENT_BUFFER": 4,
    "ENABLE_SGPR_DISPATCH_PTR": 2,
    "ENABLE_SGPR_QUEUE_PTR": 2,
    "ENABLE_SGPR_KERNARG_SEGMENT_PTR": 2,
    "ENABLE_SGPR_DISPATCH_ID": 2,
    "ENABLE_SGPR_FLAT_SCRATCH_INIT": 2,
    "ENABLE_SGPR_PRIVATE_SEGMENT_SIZE": 1,
}
"""Property -> how many SGPRs it fills, in the order in which they follow each other from s0 on."""

_LAYOUT = struct.Struct("<IIII q 20s III HH I")


@dataclass(frozen=True, slots=True)
class KernelDescriptor:
    """A kernel descriptor. Sizes are in bytes, ``entry_offset`` counts from the descriptor's own address."""

    group_segment_fixed_size: int
    private_segment_fixed_size: int
    kernarg_size: int
    entry_offset: int
    rsrc3: int
    rsrc1: int
    rsrc2: int
    properties: int
    kernarg_preload: int = 0

    @property
    def wave(self) -> int:
        """Return the number of lanes of a wave."""
        return 32 if PROPERTIES.get(self.properties, "ENABLE_WAVEFRONT_SIZE32") else 64

    @property
    def user_sgprs(self) -> dict[str, int]:
        """Return the first SGPR of each enabled property, without the ``ENABLE_SGPR_`` of its name."""
        found, place = {}, 0
        for name, count in USER_SGPRS.items():
            if PROPERTIES.get(self.properties, name):
                found[name.removeprefix("ENABLE_SGPR_")] = place
                place += count
        return found

    def pack(self) -> bytes:
        """Return the 64 bytes."""
        group, private, kernarg, entry, *words, properties, preload = astuple(self)
        return _LAYOUT.pack(group, private, kernarg, 0, entry, bytes(20), *words, properties, preload, 0)


def unpack_descriptor(
    data: bytes, *, target: Target = (11, 0, 0), where: str = "kernel descriptor"
) -> KernelDescriptor:
    """Return the descriptor in 64 bytes of ``data``, for GPUs of ``target``.

    ``where`` names it in errors. Raises :class:`PackageError` if the length is wrong, a reserved byte or bit
    is set, or the entry is not aligned: the descriptor is damaged or of another generation.
    """
    if len(data) != SIZE:
        raise PackageError(f"{where} has {len(data)} bytes instead of {SIZE}; the file was cut or is damaged")
    group, private, kernarg, zero, entry, zeros, *words, properties, preload, last = _LAYOUT.unpack(data)
    if zero or any(zeros) or last:
        raise PackageError(
            f"{where} has reserved bytes that are not zero; it is damaged or of another version"
        )
    rsrc3, rsrc1, rsrc2 = words
    known = registers_for(target)
    for word, kind in (
        (rsrc1, known["COMPUTE_PGM_RSRC1"]),
        (rsrc2, known["COMPUTE_PGM_RSRC2"]),
        (rsrc3, known["COMPUTE_PGM_RSRC3"]),
        (properties, PROPERTIES),
    ):
        if unknown := kind.unknown(word):
            raise PackageError(
                f"{where}: {kind.__name__} {word:#x} has bits {unknown:#x} without meaning on"
                f" {arch_name(target)}; check the target of the compiler"
            )
    if entry % 64:
        raise PackageError(f"{where}: the entry offset {entry:#x} is not a multiple of 64; it is damaged")
    return KernelDescriptor(group, private, kernarg, entry, rsrc3, rsrc1, rsrc2, properties, preload)
