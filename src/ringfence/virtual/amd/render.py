"""The DRM render node of a virtual AMD GPU: mmap of buffer objects, and AMDGPU_INFO for profilers.

Layouts are those of ``include/uapi/drm/amdgpu_drm.h``.
"""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING

from ringfence.virtual.amd.topology import Card
from ringfence.virtual.checks import Refused
from ringfence.virtual.memory import read_user, write_user

if TYPE_CHECKING:
    from ringfence.virtual.machine import Machine

DRM_MAGIC = 0x64
COMMAND_BASE = 0x40
AMDGPU_INFO = COMMAND_BASE + 5
INFO_DEV_INFO = 0x16
FAMILY_GC_11_0_0 = 145
CLOCK_KHZ = 100_000
_REQUEST = struct.Struct("<QII16x")
_DEVICE_BYTES = 448
_ENGINES_OF_BITMAP = 4


def ioctl(machine: Machine, card: Card, request: int, address: int) -> None:
    """Answer an ioctl of the render node; :class:`Refused` for what is not modelled."""
    number = request & 0xFF
    if request >> 8 & 0xFF != DRM_MAGIC or number != AMDGPU_INFO:
        machine.notes.unsupported(f"DRM ioctl {number:#04x}", "answered with EINVAL")
        raise Refused(errno.EINVAL, f"the render node has no ioctl {request:#010x}: only AMDGPU_INFO")
    pointer, size, query = _REQUEST.unpack(read_user(address, _REQUEST.size))
    if query != INFO_DEV_INFO:
        machine.notes.unsupported(f"AMDGPU_INFO query {query:#x}", "answered with EINVAL")
        raise Refused(
            errno.EINVAL, f"AMDGPU_INFO answers query {INFO_DEV_INFO:#x} (DEV_INFO), not {query:#x}"
        )
    write_user(pointer, device_info(card)[:size])


def device_info(card: Card) -> bytes:
    """Return ``struct drm_amdgpu_info_device``, as far as it is known; the rest is zero."""
    node, chip = card.node, card.chip
    data = bytearray(_DEVICE_BYTES)
    engines, arrays = node.shader_engines, node.simd_arrays_per_engine
    struct.pack_into("<I", data, 0, node.device_id)
    struct.pack_into("<IIII", data, 16, FAMILY_GC_11_0_0, engines, arrays, CLOCK_KHZ)
    struct.pack_into("<QQ", data, 32, chip.engine_clock * 1000, chip.memory_clock * 1000)
    struct.pack_into("<I", data, 48, node.cus_per_xcc)
    for engine in range(engines):
        for array in range(arrays):
            index = engine % _ENGINES_OF_BITMAP * 4 + array + 2 * (engine // _ENGINES_OF_BITMAP)
            struct.pack_into("<I", data, 56 + 4 * index, _active_units(card, engine, array))
    struct.pack_into("<I", data, 180, chip.memory_width)
    struct.pack_into("<I", data, 240, node.wave_front_size)
    struct.pack_into("<I", data, 248, node.cu_per_simd_array)
    return bytes(data)


def _active_units(card: Card, engine: int, array: int) -> int:
    """Return the mask of a shader array's compute units; disabled ones are spread over the last arrays."""
    node = card.node
    arrays = node.array_count
    number = engine * node.simd_arrays_per_engine + array
    base, more = divmod(node.cus_per_xcc, arrays)
    return (1 << base + (number < more)) - 1
