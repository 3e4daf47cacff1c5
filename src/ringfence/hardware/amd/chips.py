"""The AMD GPUs that this software knows, and which targets it drives.

A target is the instruction set that ``gfx_target_version`` of the topology names; a chip is one product with
it. The driver works with the target and with what the topology says; rows are what virtual devices are made
from.

Sources: ``gfx_target_version`` and IP versions from ``amdgpu_discovery.c`` and ``kfd_device.c``; segments
from the headers ``*_ip_offset.h``; counts, device ids and memory from the products' published specifications.
The row of gfx1100 is a captured topology node of an RX 7900 XTX.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ringfence.errors import UnsupportedDevice
from ringfence.hardware.amd.topology import (
    CAPABILITY,
    DOORBELL_TYPE_64BIT,
    FIRST_RENDER_MINOR,
    VENDOR_AMD,
    HeapType,
    Hwid,
    IpBlock,
    MemoryBank,
    NodeProperties,
    Version,
    arch_name,
    target_from_version,
)

_GIB = 1 << 30

Target = tuple[int, int, int]


class Generation(IntEnum):
    """Chips with the same registers and packets; the value is the major number of the target."""

    GFX9 = 9
    GFX11 = 11
    GFX12 = 12


_GFX9_TARGETS = ((9, 4, 2), (9, 5, 0))
SUPPORTED = "gfx942, gfx950, gfx11xx and gfx120x"


def generation_of(target: Target) -> Generation:
    """Return the generation of a target; :class:`UnsupportedDevice` if this software does not drive it.

    gfx11.x is one generation; of gfx12 only 12.0.x is known, gfx1250 has another compute unit.
    """
    if target in _GFX9_TARGETS:
        return Generation.GFX9
    if target[0] == 11:
        return Generation.GFX11
    if target[:2] == (12, 0):
        return Generation.GFX12
    raise UnsupportedDevice(
        f"GPU target {arch_name(target)} (version {'.'.join(map(str, target))}) is not driven "
        f"by this software; supported: {SUPPORTED}"
    )


SCRATCH_UNIT = {Generation.GFX9: 1024, Generation.GFX11: 256, Generation.GFX12: 256}
"""Bytes of a unit of TMPRING_SIZE.WAVESIZE, which is the scratch memory of a wave of 64 lanes.

WAVES counts the waves of a whole XCC on gfx9, those of one shader engine on gfx11 and gfx12.
"""


def lds_granule(target: Target) -> int:
    """Return the bytes of a unit of COMPUTE_PGM_RSRC2.LDS_SIZE.

    On gfx950 that is LLVM's value (``getLdsDwGranularity``); tinygrad counts in 512 bytes there, and nobody
    has tried it for us.
    """
    return 1280 if target == (9, 5, 0) else 512


def supported_target(gfx_target_version: int) -> Target:
    """Return the target of ``gfx_target_version``; :class:`UnsupportedDevice` names the value otherwise."""
    target = target_from_version(gfx_target_version)
    try:
        generation_of(target)
    except UnsupportedDevice as error:
        raise UnsupportedDevice(f"gfx_target_version {gfx_target_version}: {error}") from None
    return target


# ----- segments of the register space -------------------------------------------------------------

GC_BASE_GFX11 = (0x1260, 0xA000, 0x1C000, 0x2402C00)
GC_BASE_GFX9 = (0x2000, 0xA000)
SDMA_BASE_GFX9 = (0x1260,)
NBIO_BASE = (0x0, 0x14, 0xD20, 0x10400, 0x241B000, 0x4040000)
NBIO_BASE_GFX9 = NBIO_BASE[:4]


@dataclass(frozen=True, slots=True)
class AmdChip:
    """One product. Counts are those of the whole GPU unless the name says otherwise.

    ``gfx_target_version`` selects the instruction set, ``gc`` the registers: they differ on gfx1101, whose GC
    is 11.0.3. ``cu_per_simd_array`` counts the compute units before any is disabled. ``device_ids`` begins
    with the one that a virtual device reports.
    """

    name: str
    product: str
    gfx_target_version: int
    device_ids: tuple[int, ...]
    compute_units: int
    shader_engines_per_xcc: int
    arrays_per_engine: int
    cu_per_simd_array: int
    gc: Version
    sdma: Version
    nbio: Version
    gc_base: tuple[int, ...]
    vram_bytes: int
    memory_width: int
    memory_clock: int
    engine_clock: int
    simd_per_cu: int = 2
    max_waves_per_simd: int = 16
    wave_front_size: int = 32
    lds_kib: int = 64
    xccs: int = 1
    scratch_slots_per_cu: int = 32
    sdma_engines: int = 2
    sdma_xgmi_engines: int = 0
    sdma_queues_per_engine: int = 6
    cp_queues: int = 8
    mec_firmware: int = 2140
    sdma_firmware: int = 20

    @property
    def target(self) -> Target:
        return target_from_version(self.gfx_target_version)

    @property
    def generation(self) -> Generation:
        return generation_of(self.target)

    @property
    def array_count(self) -> int:
        """Shader arrays of all XCCs."""
        return self.shader_engines_per_xcc * self.arrays_per_engine * self.xccs

    @property
    def cus_per_xcc(self) -> int:
        return self.compute_units // self.xccs

    @property
    def max_waves_per_cu(self) -> int:
        return self.max_waves_per_simd * self.simd_per_cu

    @property
    def lds_bytes(self) -> int:
        """Local memory of a compute unit."""
        return self.lds_kib << 10

    def node(
        self,
        *,
        render_minor: int = FIRST_RENDER_MINOR,
        location_id: int = 0x0300,
        unique_id: int = 0,
        io_links: int = 1,
        p2p_links: int = 0,
        caches: int = 0,
    ) -> NodeProperties:
        """Return the topology node of this chip as the kernel would show it."""
        return NodeProperties(
            simd_count=self.compute_units * self.simd_per_cu,
            mem_banks_count=1,
            caches_count=caches,
            io_links_count=io_links,
            p2p_links_count=p2p_links,
            simd_id_base=_SIMD_ID_BASE,
            max_waves_per_simd=self.max_waves_per_simd,
            lds_size_in_kb=self.lds_kib,
            num_gws=64,
            wave_front_size=self.wave_front_size,
            array_count=self.array_count,
            simd_arrays_per_engine=self.arrays_per_engine,
            cu_per_simd_array=self.cu_per_simd_array,
            simd_per_cu=self.simd_per_cu,
            max_slots_scratch_cu=self.scratch_slots_per_cu,
            gfx_target_version=self.gfx_target_version,
            vendor_id=VENDOR_AMD,
            device_id=self.device_ids[0],
            location_id=location_id,
            drm_render_minor=render_minor,
            num_sdma_engines=self.sdma_engines,
            num_sdma_xgmi_engines=self.sdma_xgmi_engines,
            num_sdma_queues_per_engine=self.sdma_queues_per_engine,
            num_cp_queues=self.cp_queues,
            max_engine_clk_fcompute=self.engine_clock,
            local_mem_size=0,
            fw_version=self.mec_firmware,
            capability=_CAPABILITY,
            debug_prop=_DEBUG_PROP,
            sdma_fw_version=self.sdma_firmware,
            unique_id=unique_id,
            num_xcc=self.xccs,
            max_engine_clk_ccompute=2400,
        )

    def memory_banks(self) -> tuple[MemoryBank, ...]:
        """Return the memory banks of the node: all VRAM, reachable for the CPU."""
        bank = MemoryBank(
            heap_type=HeapType.FB_PUBLIC,
            size_in_bytes=self.vram_bytes,
            width=self.memory_width,
            mem_clk_max=self.memory_clock,
        )
        return (bank,)

    def ip_blocks(self) -> tuple[IpBlock, ...]:
        """Return the IP blocks that a compute driver looks up."""
        old = self.generation == Generation.GFX9
        return (
            IpBlock(Hwid.GC, self.gc, self.gc_base),
            IpBlock(Hwid.SDMA0, self.sdma, SDMA_BASE_GFX9 if old else self.gc_base),
            IpBlock(Hwid.NBIF, self.nbio, NBIO_BASE_GFX9 if old else NBIO_BASE),
        )


_SIMD_ID_BASE = 0x80001000
# Of the captured node: 0x2807A280.
_CAPABILITY = CAPABILITY.pack(
    WATCH_POINTS_SUPPORTED=1,
    WATCH_POINTS_TOTALBITS=2,
    DOORBELL_TYPE_TOTALBITS=DOORBELL_TYPE_64BIT,
    TRAP_DEBUG_SUPPORT=1,
    TRAP_DEBUG_WAVE_LAUNCH_TRAP_OVERRIDE_SUPPORTED=1,
    TRAP_DEBUG_WAVE_LAUNCH_MODE_SUPPORTED=1,
    TRAP_DEBUG_PRECISE_MEMORY_OPERATIONS_SUPPORTED=1,
    SVMAPI_SUPPORTED=1,
    TRAP_DEBUG_FIRMWARE_SUPPORTED=1,
)
_DEBUG_PROP = 1495

# Only the node of gfx1100 was seen. What other rows have beyond compute units, engines, arrays, IP versions
# and memory size (clocks, firmware versions, numbers of copy queues) was not checked on hardware.
_KNOWN = (
    AmdChip(
        "gfx1100", "Radeon RX 7900 XTX", 110000, (0x744C,), 96, 6, 2, 8,
        gc=(11, 0, 0), sdma=(6, 0, 0), nbio=(4, 3, 0), gc_base=GC_BASE_GFX11,
        vram_bytes=24 * _GIB, memory_width=384, memory_clock=1249, engine_clock=2482,
    ),
    # Unverified: NBIO 4.3.0 or 4.3.1. The kernel treats both alike.
    AmdChip(
        "gfx1101", "Radeon RX 7800 XT", 110001, (0x747E,), 60, 3, 2, 10,
        gc=(11, 0, 3), sdma=(6, 0, 3), nbio=(4, 3, 0), gc_base=GC_BASE_GFX11,
        vram_bytes=16 * _GIB, memory_width=256, memory_clock=1218, engine_clock=2430,
    ),
    AmdChip(
        "gfx1102", "Radeon RX 7600", 110002, (0x7480,), 32, 2, 2, 8,
        gc=(11, 0, 2), sdma=(6, 0, 2), nbio=(4, 3, 0), gc_base=GC_BASE_GFX11,
        vram_bytes=8 * _GIB, memory_width=128, memory_clock=1124, engine_clock=2655,
    ),
    AmdChip(
        "gfx1200", "Radeon RX 9060 XT", 120000, (0x7590,), 32, 2, 2, 8,
        gc=(12, 0, 0), sdma=(7, 0, 0), nbio=(6, 3, 1), gc_base=GC_BASE_GFX11,
        vram_bytes=16 * _GIB, memory_width=128, memory_clock=1258, engine_clock=3130,
    ),
    AmdChip(
        "gfx1201", "Radeon RX 9070 XT", 120001, (0x7550,), 64, 4, 2, 8,
        gc=(12, 0, 1), sdma=(7, 0, 1), nbio=(6, 3, 1), gc_base=GC_BASE_GFX11,
        vram_bytes=16 * _GIB, memory_width=256, memory_clock=1258, engine_clock=2970,
    ),
    AmdChip(
        "gfx942", "Instinct MI300X", 90402, (0x74A1,), 304, 4, 1, 10,
        gc=(9, 4, 3), sdma=(4, 4, 2), nbio=(7, 9, 0), gc_base=GC_BASE_GFX9,
        vram_bytes=192 * _GIB, memory_width=8192, memory_clock=1300, engine_clock=2100,
        simd_per_cu=4, max_waves_per_simd=8, wave_front_size=64, xccs=8,
        sdma_xgmi_engines=14, sdma_queues_per_engine=8, cp_queues=24,
    ),
    # Unverified: the second device id, NBIO 7.9.0 or 7.9.1, SDMA 4.4.4 or 4.4.5, and nine units per array.
    AmdChip(
        "gfx950", "Instinct MI350X", 90500, (0x75A0, 0x75A3), 256, 4, 1, 9,
        gc=(9, 5, 0), sdma=(4, 4, 4), nbio=(7, 9, 0), gc_base=GC_BASE_GFX9,
        vram_bytes=288 * _GIB, memory_width=8192, memory_clock=2000, engine_clock=2200,
        simd_per_cu=4, max_waves_per_simd=8, wave_front_size=64, lds_kib=160, xccs=8,
        sdma_xgmi_engines=14, sdma_queues_per_engine=8, cp_queues=24,
    ),
)  # fmt: skip

CHIPS: dict[str, AmdChip] = {chip.name: chip for chip in _KNOWN}


def chip_by_name(name: str) -> AmdChip:
    """Return the chip called ``name`` (``"gfx1100"``); :class:`UnsupportedDevice` if there is none."""
    chip = CHIPS.get(name)
    if chip is None:
        raise UnsupportedDevice(f"no AMD chip is called {name!r}; known: {', '.join(CHIPS)}")
    return chip


def chip_by_target(gfx_target_version: int) -> AmdChip:
    """Return the chip with ``gfx_target_version``; :class:`UnsupportedDevice` if there is none.

    A device may be driven without a row here: :func:`supported_target`.
    """
    for chip in CHIPS.values():
        if chip.gfx_target_version == gfx_target_version:
            return chip
    raise UnsupportedDevice(
        f"no AMD chip with gfx_target_version {gfx_target_version} is known; known: {', '.join(CHIPS)}"
    )
