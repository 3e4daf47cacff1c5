"""What DEVICE_GETPROPERTY answers, and the sysfs files of the virtual KGSL (2025 driver)."""

from __future__ import annotations

import ctypes
import struct

from ringfence.hardware.adreno import kgsl
from ringfence.hardware.adreno.chips import Chip
from ringfence.hardware.adreno.kgsl import DeviceFlags, Property

DEVICE_ID_3D0 = 1
MEMSTORE_TOKEN = 0xEFFF_F000
MEMSTORE_BYTES = 8 * 4096
DEVICE_VERSION = 3, 1
DEVICE_BITNESS = 48
VA64_BYTES = 0x40_0000_0000  # the kernel-chosen window
MIN_ACCESS_LENGTH = 32  # a630: LPDDR4X, 32-byte accesses
UBWC_MODE = 2
IDLE_TIMER_US = 80_000

_U32 = struct.Struct("<I")


def model_name(chip: Chip) -> str:
    """Return what gpu_model says: the chip and its revision."""
    return f"Adreno{chip.name[1:]}v{chip.patch + 1}"


def property_data(chip: Chip, kind: int) -> bytes | None:
    """Return the payload of a property that does not depend on the caller; ``None`` if it is unknown."""
    words: dict[int, int] = {
        Property.MMU_ENABLE: 1,
        Property.INTERRUPT_WAITS: 1,
        Property.HIGHEST_BANK_BIT: chip.highest_bank_bit,
        Property.DEVICE_BITNESS: DEVICE_BITNESS,
        Property.MIN_ACCESS_LENGTH: MIN_ACCESS_LENGTH,
        Property.UBWC_MODE: UBWC_MODE,
        Property.SECURE_BUFFER_ALIGNMENT: 4096,
        Property.SECURE_CTXT_SUPPORT: 0,
        Property.SPEED_BIN: 0,
        Property.VK_DEVICE_ID: chip.chip_id,
        Property.IS_LPAC_ENABLED: 0,
        Property.IS_RAYTRACING_ENABLED: 0,
        Property.IS_FASTBLEND_ENABLED: 0,
        Property.IS_AQE_ENABLED: 0,
    }
    if kind in words:
        return _U32.pack(words[kind])
    if kind == Property.DEVICE_INFO:
        return bytes(
            kgsl.DEVINFO(
                device_id=DEVICE_ID_3D0, chip_id=chip.chip_id, mmu_enabled=1, gmem_sizebytes=chip.gmem_bytes
            )
        )
    if kind == Property.DEVICE_SHADOW:
        flags = DeviceFlags.INITIALIZED | DeviceFlags.PER_CONTEXT_TIMESTAMPS
        return bytes(kgsl.SHADOWPROP(gpuaddr=MEMSTORE_TOKEN, size=MEMSTORE_BYTES, flags=int(flags)))
    if kind == Property.VERSION:
        return bytes(kgsl.VERSION(kgsl.VERSION_MAJOR, kgsl.VERSION_MINOR, *DEVICE_VERSION))
    if kind == Property.UCODE_VERSION:
        return bytes(kgsl.UCODE_VERSION(0, 0))
    if kind == Property.GPU_MODEL:
        return bytes(kgsl.GPU_MODEL(model_name(chip).encode()))
    if kind == Property.GPU_VA64_SIZE:
        return struct.pack("<Q", VA64_BYTES)
    if kind in (Property.UCHE_GMEM_VADDR, Property.GPU_SECURE_VA_SIZE, Property.GPU_SECURE_VA_INUSE):
        return struct.pack("<Q", 0)
    return None


def sysfs(chip: Chip, name: str, busy: float) -> str | None:
    """Return file ``name`` below ``/sys/class/kgsl/kgsl-3d0``.

    ``busy`` is the share of time that the GPU worked.
    """
    window = 1_000_000  # microseconds
    files = {
        "idle_timer": f"{IDLE_TIMER_US}\n",
        "gpu_model": f"{model_name(chip)}\n",
        "gpubusy": f"{int(window * busy):7d} {window:7d}\n",
        "max_pwrlevel": "0\n",
        "force_clk_on": "0\n",
        "devfreq/governor": "msm-adreno-tz\n",
    }
    return files.get(name)


assert ctypes.sizeof(kgsl.DEVINFO) == 40
