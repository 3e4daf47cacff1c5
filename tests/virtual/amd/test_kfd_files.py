"""The sysfs files and nodes of virtual AMD GPUs."""

from __future__ import annotations

import errno

import pytest

from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.chips import chip_by_name
from ringfence.hardware.amd.topology import (
    NODES_ROOT,
    TOPOLOGY_ROOT,
    HeapType,
    NodeProperties,
    parse_base_addresses,
    parse_memory_bank,
)
from ringfence.virtual.machine import Machine
from virtual.amd.client import Client, FakeExecutor, refused

DRM = "/sys/class/drm/renderD128/device"


def gpu_ids(machine: Machine) -> list[int]:
    return [
        int(machine.read_text(f"{NODES_ROOT}/{name}/gpu_id")) for name in machine.list_directory(NODES_ROOT)
    ]


def test_the_topology_has_a_cpu_node_and_one_for_each_gpu(machine: Machine):
    assert machine.list_directory(NODES_ROOT) == ["0", "1"]
    cpu, gpu = (NodeProperties.parse(machine.read_text(f"{NODES_ROOT}/{i}/properties")) for i in range(2))
    assert not cpu.is_gpu
    assert gpu.arch == "gfx1100" and gpu.cus_per_xcc == 96 and gpu.shader_engines == 6
    assert gpu_ids(machine)[0] == 0 and 0 < gpu_ids(machine)[1] < 1 << 16


def test_the_class_directory_is_another_name_of_the_topology(machine: Machine):
    path = f"{NODES_ROOT}/1/properties"
    alias = path.replace("/sys/devices/virtual/kfd/kfd", "/sys/class/kfd/kfd")
    assert machine.read_text(alias) == machine.read_text(path)
    assert machine.list_directory("/sys/class/kfd/kfd/topology") == machine.list_directory(TOPOLOGY_ROOT)
    assert machine.list_directory(TOPOLOGY_ROOT) == ["generation_id", "nodes", "system_properties"]


def test_several_gpus_differ_in_gpu_id_node_bus_and_serial_number():
    with Machine(("gfx1100", "gfx1100", "gfx1102"), executor_factory=FakeExecutor) as machine:
        nodes = [NodeProperties.parse(machine.read_text(f"{NODES_ROOT}/{i}/properties")) for i in (1, 2, 3)]
        assert [node.arch for node in nodes] == ["gfx1100", "gfx1100", "gfx1102"]
        assert [node.drm_render_minor for node in nodes] == [128, 129, 130]
        for values in (
            gpu_ids(machine),
            [node.location_id for node in nodes],
            [node.unique_id for node in nodes],
        ):
            assert len(set(values)) == len(values)


def test_ip_blocks_are_listed_by_number_and_by_name(machine: Machine):
    root = f"{DRM}/ip_discovery/die/0"
    assert machine.list_directory(root) == ["108", "11", "42", "GC", "NBIF", "SDMA0"]
    for name in ("11", "GC"):
        version = [
            int(machine.read_text(f"{root}/{name}/0/{part}")) for part in ("major", "minor", "revision")
        ]
        assert version == [11, 0, 0]
    bases = parse_base_addresses(machine.read_text(f"{root}/11/0/base_addr"))
    assert bases == chip_by_name("gfx1100").gc_base


def test_what_runtimes_look_at_besides(machine: Machine):
    assert machine.read_text(f"{DRM}/vendor") == "0x1002\n"
    assert machine.read_text(f"{DRM}/device") == "0x744c\n"
    assert machine.read_text(f"{DRM}/power_dpm_force_performance_level") == "profile_standard\n"
    assert machine.read_text("/sys/module/amdgpu/parameters/ppfeaturemask") == "0xffff3fff\n"
    assert machine.list_directory("/sys/module/amdgpu") == ["parameters"]


def test_the_memory_bank_is_what_can_be_allocated_and_says_whether_the_bar_is_large():
    for large, heap in ((True, HeapType.FB_PUBLIC), (False, HeapType.FB_PRIVATE)):
        with Machine(("gfx1100",), memory_bytes=1 << 30, large_bar=large) as machine:
            bank = parse_memory_bank(machine.read_text(f"{NODES_ROOT}/1/mem_banks/0/properties"))
            assert (bank.size_in_bytes, bank.heap_type) == (1 << 30, heap)


def test_files_and_directories_that_do_not_exist_are_enoent(machine: Machine):
    for path in (f"{NODES_ROOT}/9/properties", "/sys/class/kgsl/kgsl-3d0/gpu_model", "/etc/passwd", "/"):
        with refused(errno.ENOENT):
            machine.read_text(path)
        with refused(errno.ENOENT):
            machine.list_directory(path)
    with refused(errno.ENOENT):
        machine.list_directory(f"{NODES_ROOT}/1/properties")


def test_a_machine_has_the_nodes_of_its_devices_only(machine: Machine):
    for path in ("/dev/kfd", "/dev/dri/renderD128"):
        machine.close(machine.open(path))
    for path in ("/dev/dri/renderD129", "/dev/kgsl-3d0", "/dev/dri/card0"):
        with refused(errno.ENOENT, "/dev/kfd, /dev/dri/renderD128"):
            machine.open(path)


def test_both_families_live_in_one_machine():
    with Machine(("a630", "gfx1100", "a660", "gfx1101"), executor_factory=FakeExecutor) as machine:
        for path in (
            "/dev/kgsl-3d0",
            "/dev/kgsl-3d1",
            "/dev/kfd",
            "/dev/dri/renderD128",
            "/dev/dri/renderD129",
        ):
            machine.open(path)
        assert "630" in machine.read_text("/sys/class/kgsl/kgsl-3d0/gpu_model")
        assert machine.list_directory(NODES_ROOT) == ["0", "1", "2"]


@pytest.mark.parametrize("name", ["gfx942", "gfx1201"])
def test_chips_without_a_translator_are_refused(name: str):
    with pytest.raises(Exception, match=f"no virtual {name}: only gfx11"):
        Machine((name,))


def test_profilers_can_ask_the_render_node_for_the_compute_units(client: Client):
    import ctypes
    import struct

    data = ctypes.create_string_buffer(448)
    request = ctypes.create_string_buffer(struct.pack("<QII16x", ctypes.addressof(data), len(data), 0x16))
    assert client.machine.raw_ioctl(client.drm, 0x40206445, ctypes.addressof(request)) == 0
    words = struct.unpack("<112I", data.raw)
    assert words[0] == 0x744C and words[5:7] == (6, 2) and words[12] == 96
    bitmap = words[14:30]
    assert sum(word.bit_count() for word in bitmap) == 96
    assert bitmap[0] == bitmap[1] == bitmap[2] == bitmap[3] == 0xFF, "engines 0 and 4 share a row"


def test_other_drm_calls_are_refused_and_noted(client: Client):
    import ctypes

    buffer = ctypes.create_string_buffer(64)
    assert client.machine.raw_ioctl(client.drm, 0xC0406400, ctypes.addressof(buffer)) == -errno.EINVAL
    assert [note.topic for note in client.machine.notes] == ["DRM ioctl 0x00"]


def test_the_version_is_the_one_that_is_declared(client: Client):
    made = client.call(kfd.GET_VERSION())
    assert (made.major_version, made.minor_version) == (1, 17)
