"""Topology facts: names, order and bits transcribed from Linux, hardware ids from tinygrad's constants.

No package has the property names as data: they are strings in ``node_show`` of ``kfd_topology.c``. They are
compared with a transcription, and with the node of a real RX 7900 XTX.
"""

from __future__ import annotations

from dataclasses import fields

import pytest
from tinygrad.runtime.autogen.am import am

from ringfence.errors import UnsupportedDevice
from ringfence.hardware.amd.topology import (
    CAPABILITY,
    CAPABILITY2,
    PROPERTIES,
    Cache,
    HeapType,
    Hwid,
    IoLink,
    IoLinkType,
    IpBlock,
    MemoryBank,
    NodeProperties,
    arch_name,
    node_files,
    parse_base_addresses,
    parse_memory_bank,
    parse_properties,
    system_files,
    target_from_version,
    version_from_target,
)

# The node of an RX 7900 XTX, captured by tinygrad's authors (test/mockgpu/amd/amdgpu.py).
RX_7900_XTX = """\
cpu_cores_count 0
simd_count 192
mem_banks_count 1
caches_count 206
io_links_count 1
p2p_links_count 5
cpu_core_id_base 0
simd_id_base 2147488032
max_waves_per_simd 16
lds_size_in_kb 64
gds_size_in_kb 0
num_gws 64
wave_front_size 32
array_count 12
simd_arrays_per_engine 2
cu_per_simd_array 8
simd_per_cu 2
max_slots_scratch_cu 32
gfx_target_version 110000
vendor_id 4098
device_id 29772
location_id 34304
domain 0
drm_render_minor 128
hive_id 0
num_sdma_engines 2
num_sdma_xgmi_engines 0
num_sdma_queues_per_engine 6
num_cp_queues 8
max_engine_clk_fcompute 2482
local_mem_size 0
fw_version 2140
capability 671588992
debug_prop 1495
sdma_fw_version 20
unique_id 11673270660693242239
num_xcc 1
max_engine_clk_ccompute 2400
"""

# The strings of node_show in kfd_topology.c, Linux 6.19, in order.
NODE_SHOW = [
    "cpu_cores_count",
    "simd_count",
    "mem_banks_count",
    "caches_count",
    "io_links_count",
    "p2p_links_count",
    "cpu_core_id_base",
    "simd_id_base",
    "max_waves_per_simd",
    "lds_size_in_kb",
    "gds_size_in_kb",
    "num_gws",
    "wave_front_size",
    "array_count",
    "simd_arrays_per_engine",
    "cu_per_simd_array",
    "simd_per_cu",
    "max_slots_scratch_cu",
    "gfx_target_version",
    "vendor_id",
    "device_id",
    "location_id",
    "domain",
    "drm_render_minor",
    "hive_id",
    "num_sdma_engines",
    "num_sdma_xgmi_engines",
    "num_sdma_queues_per_engine",
    "num_cp_queues",
    "cwsr_size",
    "ctl_stack_size",
    "max_engine_clk_fcompute",
    "local_mem_size",
    "fw_version",
    "capability",
    "capability2",
    "debug_prop",
    "sdma_fw_version",
    "unique_id",
    "num_xcc",
    "max_engine_clk_ccompute",
]

# HSA_CAP_* and HSA_CAP2_* of kfd_sysfs.h as masks.
CAPABILITY_MASKS = {
    "HOT_PLUGGABLE": 0x00000001,
    "ATS_PRESENT": 0x00000002,
    "SHARED_WITH_GRAPHICS": 0x00000004,
    "QUEUE_SIZE_POW2": 0x00000008,
    "QUEUE_SIZE_32BIT": 0x00000010,
    "QUEUE_IDLE_EVENT": 0x00000020,
    "VA_LIMIT": 0x00000040,
    "WATCH_POINTS_SUPPORTED": 0x00000080,
    "WATCH_POINTS_TOTALBITS": 0x00000F00,
    "DOORBELL_TYPE_TOTALBITS": 0x00003000,
    "AQL_QUEUE_DOUBLE_MAP": 0x00004000,
    "TRAP_DEBUG_SUPPORT": 0x00008000,
    "TRAP_DEBUG_WAVE_LAUNCH_TRAP_OVERRIDE_SUPPORTED": 0x00010000,
    "TRAP_DEBUG_WAVE_LAUNCH_MODE_SUPPORTED": 0x00020000,
    "TRAP_DEBUG_PRECISE_MEMORY_OPERATIONS_SUPPORTED": 0x00040000,
    "RESERVED_WAS_SRAM_EDCSUPPORTED": 0x00080000,
    "MEM_EDCSUPPORTED": 0x00100000,
    "RASEVENTNOTIFY": 0x00200000,
    "ASIC_REVISION": 0x03C00000,
    "SRAM_EDCSUPPORTED": 0x04000000,
    "SVMAPI_SUPPORTED": 0x08000000,
    "FLAGS_COHERENTHOSTACCESS": 0x10000000,
    "TRAP_DEBUG_FIRMWARE_SUPPORTED": 0x20000000,
    "TRAP_DEBUG_PRECISE_ALU_OPERATIONS_SUPPORTED": 0x40000000,
    "PER_QUEUE_RESET_SUPPORTED": 0x80000000,
}

# HSA_MEM_HEAP_TYPE_* and HSA_IOLINK_TYPE_* of kfd_sysfs.h.
HEAP_TYPES = {
    "SYSTEM": 0,
    "FB_PUBLIC": 1,
    "FB_PRIVATE": 2,
    "GPU_GDS": 3,
    "GPU_LDS": 4,
    "GPU_SCRATCH": 5,
}
LINK_TYPES = {"PCIEXPRESS": 2, "XGMI": 11}

# The strings of mem_show, kfd_cache_show (without sibling_map) and iolink_show in kfd_topology.c, in order.
RECORDS = {
    MemoryBank: "heap_type size_in_bytes flags width mem_clk_max",
    Cache: "processor_id_low level size cache_line_size cache_lines_per_tag association latency type",
    IoLink: (
        "type version_major version_minor node_from node_to weight min_latency max_latency min_bandwidth "
        "max_bandwidth recommended_transfer_size recommended_sdma_engine_id_mask flags"
    ),
}


def test_property_names_and_order_equal_the_kernels(tally):
    assert [entry.name for entry in PROPERTIES] == NODE_SHOW
    for index, entry in enumerate(PROPERTIES):
        tally.compare(entry.name, entry.name, NODE_SHOW[index])
    tally.finish()


def test_the_dataclass_has_the_properties_in_the_order_of_the_file():
    names = [field.name for field in fields(NodeProperties)]
    assert names == [*NODE_SHOW, "unknown"]


def test_lines_that_all_kernels_print_are_not_optional():
    defaults = {field.name: field.default for field in fields(NodeProperties)}
    for entry in PROPERTIES:
        optional = entry.newer or entry.gpu_only
        assert (defaults[entry.name] is None) == optional, entry.name


def test_capability_bits(tally):
    for name, field in CAPABILITY.FIELDS.items():
        tally.compare(f"CAPABILITY.{name}", field.mask, CAPABILITY_MASKS.get(name))
    for name, field in CAPABILITY2.FIELDS.items():
        tally.compare(f"CAPABILITY2.{name}", field.mask, {"PER_SDMA_QUEUE_RESET_SUPPORTED": 1}.get(name))
    tally.finish()


def test_hardware_ids_equal_the_header(tally):
    for name, member in Hwid.__members__.items():
        tally.compare(name, int(member), getattr(am, f"{name}_HWID", None))
    tally.finish()


def test_heap_and_link_types(tally):
    for name, member in HeapType.__members__.items():
        tally.compare(f"HeapType.{name}", int(member), HEAP_TYPES.get(name))
    for name, member in IoLinkType.__members__.items():
        tally.compare(f"IoLinkType.{name}", int(member), LINK_TYPES.get(name))
    tally.finish()


def test_names_of_bank_cache_and_link(tally):
    for record, names in RECORDS.items():
        for index, field in enumerate(fields(record)):
            tally.compare(f"{record.__name__}.{field.name}", field.name, names.split()[index])
        assert len(fields(record)) == len(names.split())
    tally.finish()


# ----- reading and writing ------------------------------------------------------------------------


def test_a_real_node_is_read_and_written_unchanged():
    node = NodeProperties.parse(RX_7900_XTX)
    assert node.render() == RX_7900_XTX
    assert node.unknown == ()


def test_values_derived_from_a_real_node():
    node = NodeProperties.parse(RX_7900_XTX)
    assert node.is_gpu
    assert node.target == (11, 0, 0)
    assert node.arch == "gfx1100"
    assert (node.xccs, node.shader_engines, node.cus_per_xcc, node.waves_per_cu) == (1, 6, 96, 32)
    assert node.lds_bytes == 65536
    assert node.pci_address == "0000:86:00.0"
    assert CAPABILITY.describe(node.capability).startswith(
        "WATCH_POINTS_SUPPORTED=1 WATCH_POINTS_TOTALBITS=2"
    )


def test_a_kernel_without_num_xcc_has_one():
    text = RX_7900_XTX.replace("num_xcc 1\n", "").replace("debug_prop 1495\n", "")
    node = NodeProperties.parse(text)
    assert node.num_xcc is None
    assert node.xccs == 1
    assert node.render() == text


def test_a_newer_kernel_tells_the_sizes_of_the_save_area():
    text = RX_7900_XTX.replace(
        "num_cp_queues 8\n", "num_cp_queues 8\ncwsr_size 46047232\nctl_stack_size 40960\n"
    )
    node = NodeProperties.parse(text)
    assert (node.cwsr_size, node.ctl_stack_size) == (46047232, 40960)
    assert node.render() == text


def test_a_property_that_is_unknown_is_kept():
    node = NodeProperties.parse(RX_7900_XTX + "num_flux_capacitors 3\n")
    assert node.unknown == (("num_flux_capacitors", 3),)
    assert node.render().endswith("num_flux_capacitors 3\n")


def test_a_cpu_node_has_no_gpu_lines():
    text = "".join(f"{entry.name} 0\n" for entry in PROPERTIES if not (entry.newer or entry.gpu_only))
    node = NodeProperties.parse(text)
    assert not node.is_gpu
    assert node.capability is None
    assert node.render() == text


def test_a_missing_property_is_named():
    with pytest.raises(UnsupportedDevice, match="no gfx_target_version, capability"):
        text = RX_7900_XTX.replace("gfx_target_version 110000\n", "")
        NodeProperties.parse(text.replace("capability 671588992\n", ""))


@pytest.mark.parametrize(
    "line", ["simd_count", "simd_count many", "simd_count -1", "simd_count 0x10", "", " 1"]
)
def test_a_line_that_is_no_property_is_named(line):
    with pytest.raises(ValueError, match=r"is not a name and a decimal number"):
        parse_properties(f"{line}\n")


def test_a_property_that_occurs_twice_is_refused():
    with pytest.raises(ValueError, match="simd_count occurs twice"):
        parse_properties("simd_count 1\nsimd_count 2\n")


@pytest.mark.parametrize(
    ("version", "target", "arch"),
    [
        (110000, (11, 0, 0), "gfx1100"),
        (120001, (12, 0, 1), "gfx1201"),
        (90402, (9, 4, 2), "gfx942"),
        (90010, (9, 0, 10), "gfx90a"),
        (110501, (11, 5, 1), "gfx1151"),
    ],
)
def test_versions_targets_and_names(version, target, arch):
    assert target_from_version(version) == target
    assert version_from_target(target) == version
    assert arch_name(target) == arch


def test_the_files_of_a_node():
    bank = MemoryBank(HeapType.FB_PUBLIC, 1 << 30, width=384, mem_clk_max=1249)
    link = IoLink(IoLinkType.PCIEXPRESS, 0, 0, node_from=1, node_to=0, weight=20)
    cache = Cache(0x80000000, 1, 32)
    files = node_files(
        NodeProperties.parse(RX_7900_XTX),
        gpu_id=35826,
        name="ip discovery",
        memory_banks=[bank],
        caches=[cache],
        io_links=[link],
    )
    assert files["gpu_id"] == "35826\n"
    assert files["name"] == "ip discovery\n"
    assert files["properties"] == RX_7900_XTX
    assert parse_memory_bank(files["mem_banks/0/properties"]) == bank
    assert files["caches/0/properties"].startswith("processor_id_low 2147483648\nlevel 1\nsize 32\n")
    assert files["io_links/0/properties"].startswith(
        "type 2\nversion_major 0\nversion_minor 0\nnode_from 1\n"
    )
    assert "p2p_links/0/properties" not in files


def test_a_memory_bank_may_have_lines_that_are_new_but_lack_none():
    text = "heap_type 1\nsize_in_bytes 4096\nflags 0\nwidth 384\nmem_clk_max 1249\n"
    assert parse_memory_bank(text + "colour 3\n").size_in_bytes == 4096
    with pytest.raises(ValueError, match="size_in_bytes, width missing"):
        parse_memory_bank("heap_type 1\nflags 0\nmem_clk_max 1249\n")


def test_the_files_beside_the_nodes():
    files = system_files(generation=3)
    assert files["generation_id"] == "3\n"
    assert parse_properties(files["system_properties"]) == {
        "platform_oem": 0,
        "platform_id": 0,
        "platform_rev": 0,
    }


def test_the_files_of_an_ip_block():
    files = IpBlock(Hwid.GC, (11, 0, 3), (0x1260, 0xA000)).files()
    assert files["die/0/11/0/major"] == "11\n"
    assert files["die/0/11/0/minor"] == "0\n"
    assert files["die/0/11/0/revision"] == "3\n"
    assert files["die/0/11/0/hw_id"] == "11\n"
    assert files["die/0/11/0/num_base_addresses"] == "2\n"
    assert parse_base_addresses(files["die/0/11/0/base_addr"]) == (0x1260, 0xA000)


def test_a_base_address_that_is_no_number_is_named():
    with pytest.raises(ValueError, match="'0xZZ' is not a hexadecimal number"):
        parse_base_addresses("0x00001260\n0xZZ\n")
