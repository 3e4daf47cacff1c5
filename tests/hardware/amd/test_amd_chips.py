"""The rows of the chip table against what is known of the products, and against tinygrad's base segments."""

from __future__ import annotations

import pytest
from tinygrad.runtime.autogen.am import navi_offsets, vega_offsets

from ringfence.errors import UnsupportedDevice
from ringfence.hardware.amd.chips import (
    CHIPS,
    Generation,
    chip_by_name,
    chip_by_target,
    generation_of,
    supported_target,
)
from ringfence.hardware.amd.topology import HeapType, Hwid, NodeProperties

# gfx_target_version and IP versions GC, SDMA0, NBIO: amdgpu_discovery.c and kfd_device.c of Linux.
VERSIONS = {
    "gfx1100": (110000, (11, 0, 0), (6, 0, 0), (4, 3, 0)),
    "gfx1101": (110001, (11, 0, 3), (6, 0, 3), (4, 3, 0)),
    "gfx1102": (110002, (11, 0, 2), (6, 0, 2), (4, 3, 0)),
    "gfx1200": (120000, (12, 0, 0), (7, 0, 0), (6, 3, 1)),
    "gfx1201": (120001, (12, 0, 1), (7, 0, 1), (6, 3, 1)),
    "gfx942": (90402, (9, 4, 3), (4, 4, 2), (7, 9, 0)),
    "gfx950": (90500, (9, 5, 0), (4, 4, 4), (7, 9, 0)),
}

# Lines that real nodes of these products show, as their owners published them: an RX 7900 XTX, a Radeon AI
# PRO R9700 (as many units as an RX 9070 XT), an MI300X and an MI350X, all in one partition.
PUBLISHED = {
    "gfx1100": {
        "simd_count": 192,
        "array_count": 12,
        "simd_arrays_per_engine": 2,
        "cu_per_simd_array": 8,
        "simd_per_cu": 2,
        "max_waves_per_simd": 16,
        "lds_size_in_kb": 64,
        "wave_front_size": 32,
        "max_slots_scratch_cu": 32,
        "device_id": 29772,
        "capability": 671588992,
        "num_sdma_engines": 2,
        "num_sdma_queues_per_engine": 6,
        "num_cp_queues": 8,
        "num_gws": 64,
    },
    "gfx1201": {
        "simd_count": 128,
        "array_count": 8,
        "simd_arrays_per_engine": 2,
        "cu_per_simd_array": 8,
        "simd_per_cu": 2,
        "max_waves_per_simd": 16,
        "lds_size_in_kb": 64,
        "max_slots_scratch_cu": 32,
        "num_xcc": 1,
    },
    "gfx942": {
        "simd_count": 1216,
        "array_count": 32,
        "simd_arrays_per_engine": 1,
        "simd_per_cu": 4,
        "max_waves_per_simd": 8,
        "lds_size_in_kb": 64,
        "wave_front_size": 64,
        "device_id": 29857,
        "num_xcc": 8,
        "num_sdma_engines": 2,
        "num_sdma_xgmi_engines": 14,
        "num_sdma_queues_per_engine": 8,
        "num_cp_queues": 24,
    },
    "gfx950": {"simd_count": 1024, "lds_size_in_kb": 160, "wave_front_size": 64, "device_id": 30112},
}

chips = pytest.mark.parametrize("chip", CHIPS.values(), ids=lambda chip: chip.name)


def test_versions(tally):
    for name, chip in CHIPS.items():
        found = chip.gfx_target_version, chip.gc, chip.sdma, chip.nbio
        tally.compare(name, found, VERSIONS.get(name))
    tally.finish()


def test_nodes_show_what_real_ones_show(tally):
    for name, lines in PUBLISHED.items():
        node = CHIPS[name].node()
        for line, value in lines.items():
            tally.compare(f"{name} {line}", getattr(node, line), value)
    tally.finish()


def test_base_segments_equal_the_headers(tally):
    names = {Hwid.GC: "GC", Hwid.SDMA0: "SDMA0", Hwid.NBIF: "NBIO"}
    # navi_offsets has five segments of each block; the sixth of NBIO is that of a captured ip_discovery.
    listed = {(Hwid.NBIF, 5): 0x4040000}
    for chip in CHIPS.values():
        header = vega_offsets if chip.generation == Generation.GFX9 else navi_offsets
        for block in chip.ip_blocks():
            for index, segment in enumerate(block.base):
                known = getattr(header, f"{names[block.hwid]}_BASE__INST0_SEG{index}", None)
                tally.compare(
                    f"{chip.name} {block.hwid.name}[{index}]", segment, listed.get((block.hwid, index), known)
                )
    tally.finish()


@chips
def test_a_row_is_consistent(chip):
    assert chip.compute_units % chip.xccs == 0
    assert chip.cus_per_xcc <= chip.shader_engines_per_xcc * chip.arrays_per_engine * chip.cu_per_simd_array
    assert chip.name == chip.node().arch
    assert chip.max_waves_per_cu == chip.node().waves_per_cu == 32
    assert chip.cus_per_xcc == chip.node().cus_per_xcc
    assert chip.shader_engines_per_xcc == chip.node().shader_engines
    assert chip.lds_bytes == chip.node().lds_bytes


@chips
def test_a_node_is_read_as_it_was_written(chip):
    node = chip.node(render_minor=130, location_id=0x8600, unique_id=7)
    assert NodeProperties.parse(node.render()) == node
    assert (node.drm_render_minor, node.pci_address, node.unique_id) == (130, "0000:86:00.0", 7)


@chips
def test_a_chip_has_one_bank_that_the_cpu_reaches(chip):
    (bank,) = chip.memory_banks()
    assert bank.heap_type == HeapType.FB_PUBLIC
    assert bank.size_in_bytes == chip.vram_bytes
    assert chip.node().mem_banks_count == 1


@chips
def test_chips_are_found_by_name_and_by_target(chip):
    assert chip_by_name(chip.name) is chip
    assert chip_by_target(chip.gfx_target_version) is chip
    assert supported_target(chip.gfx_target_version) == chip.target


def test_an_unknown_chip_is_named():
    with pytest.raises(UnsupportedDevice, match="'gfx906'; known: gfx1100, "):
        chip_by_name("gfx906")
    with pytest.raises(UnsupportedDevice, match="gfx_target_version 90006 is known"):
        chip_by_target(90006)


@pytest.mark.parametrize(
    ("version", "generation"),
    [
        (90402, Generation.GFX9),
        (90500, Generation.GFX9),
        (110000, Generation.GFX11),
        (110003, Generation.GFX11),
        (110501, Generation.GFX11),
        (120001, Generation.GFX12),
    ],
)
def test_targets_on_the_allow_list(version, generation):
    assert generation_of(supported_target(version)) == generation


@pytest.mark.parametrize("version", [80003, 90006, 90010, 90400, 100300, 120500, 130000, 0])
def test_a_target_that_is_not_on_the_allow_list_is_refused_with_its_value(version):
    with pytest.raises(
        UnsupportedDevice, match=rf"gfx_target_version {version}: .*supported: gfx942, gfx950"
    ):
        supported_target(version)
