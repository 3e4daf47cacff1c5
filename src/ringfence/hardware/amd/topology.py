"""The topology that the KFD driver shows in sysfs, and the IP versions that amdgpu shows: read and written.

``/sys/devices/virtual/kfd/kfd/topology/nodes/<N>/properties`` is one ``name value`` per line in decimal;
names and order are those of ``node_show`` in Linux ``kfd_topology.c``, the bits of ``capability`` those of
``include/uapi/linux/kfd_sysfs.h``. ``/sys/class/drm/renderD<M>/device/ip_discovery`` is that of
``amdgpu_discovery.c``, its hardware ids those of ``soc15_hw_ip.h``.

A driver parses these files, a virtual device renders them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum

from ringfence.errors import UnsupportedDevice
from ringfence.hardware.fields import Word

KFD_ROOT = "/sys/devices/virtual/kfd/kfd"
TOPOLOGY_ROOT = f"{KFD_ROOT}/topology"
NODES_ROOT = f"{TOPOLOGY_ROOT}/nodes"
DRM_ROOT = "/sys/class/drm"
DRI_ROOT = "/dev/dri"
MODULE_PATH = "/sys/module/amdgpu"

FIRST_RENDER_MINOR = 128
VENDOR_AMD = 0x1002


def render_node(minor: int) -> str:
    """Return the path of the DRM render node ``minor``, such as ``/dev/dri/renderD128``."""
    return f"{DRI_ROOT}/renderD{minor}"


def drm_device_root(minor: int) -> str:
    """Return the sysfs directory of the PCI device behind render node ``minor``."""
    return f"{DRM_ROOT}/renderD{minor}/device"


# ----- properties of a node -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Property:
    """One line of ``properties``. ``newer``: kernels that are in use do not all print it yet.

    ``gpu_only``: not printed for a CPU node.
    """

    name: str
    meaning: str
    newer: bool = False
    gpu_only: bool = False


PROPERTIES = (
    Property("cpu_cores_count", "CPU cores of the node"),
    Property("simd_count", "SIMDs of the active CUs of all XCCs"),
    Property("mem_banks_count", "sub-directories of mem_banks"),
    Property("caches_count", "sub-directories of caches"),
    Property("io_links_count", "sub-directories of io_links"),
    Property("p2p_links_count", "sub-directories of p2p_links", newer=True),
    Property("cpu_core_id_base", "id of the first CPU core"),
    Property("simd_id_base", "id of the first SIMD, from 0x80000000 on"),
    Property("max_waves_per_simd", "waves that a SIMD can hold"),
    Property("lds_size_in_kb", "local memory of a CU in KiB"),
    Property("gds_size_in_kb", "global data share in KiB"),
    Property("num_gws", "global wave sync barriers"),
    Property("wave_front_size", "native wave size"),
    Property("array_count", "shader arrays of all engines of all XCCs"),
    Property("simd_arrays_per_engine", "shader arrays of one shader engine"),
    Property("cu_per_simd_array", "CUs of a shader array before any is disabled"),
    Property("simd_per_cu", "SIMDs of a CU"),
    Property("max_slots_scratch_cu", "waves of a CU that can have scratch memory at a time"),
    Property("gfx_target_version", "major * 10000 + minor * 100 + stepping"),
    Property("vendor_id", "PCI vendor"),
    Property("device_id", "PCI device"),
    Property("location_id", "PCI bus << 8 | device << 3 | function"),
    Property("domain", "PCI domain"),
    Property("drm_render_minor", "N of /dev/dri/renderDN"),
    Property("hive_id", "XGMI hive, 0: none"),
    Property("num_sdma_engines", "copy engines"),
    Property("num_sdma_xgmi_engines", "copy engines for XGMI"),
    Property("num_sdma_queues_per_engine", "queues of a copy engine"),
    Property("num_cp_queues", "compute queue slots"),
    Property("cwsr_size", "context save area of one XCC in bytes", newer=True),
    Property("ctl_stack_size", "control stack of one XCC in bytes", newer=True),
    Property("max_engine_clk_fcompute", "GPU clock in MHz", gpu_only=True),
    Property("local_mem_size", "always 0, the size is in mem_banks", gpu_only=True),
    Property("fw_version", "firmware of the compute microengine", gpu_only=True),
    Property("capability", "CAPABILITY", gpu_only=True),
    Property("capability2", "CAPABILITY2", newer=True, gpu_only=True),
    Property("debug_prop", "what the debugger needs", newer=True, gpu_only=True),
    Property("sdma_fw_version", "firmware of the copy engines", gpu_only=True),
    Property("unique_id", "serial number of the board", gpu_only=True),
    Property("num_xcc", "compute dies (XCC) of the node", newer=True, gpu_only=True),
    Property("max_engine_clk_ccompute", "CPU clock in MHz"),
)
"""Every property in the order of the file."""

_BY_NAME = {entry.name: entry for entry in PROPERTIES}


class CAPABILITY(Word):
    """``capability`` (``HSA_CAP_*`` of kfd_sysfs.h, without that prefix).

    WATCH_POINTS_TOTALBITS is the log2 of their number; DOORBELL_TYPE_TOTALBITS 2 means 64-bit doorbells.
    """

    HOT_PLUGGABLE = 0
    ATS_PRESENT = 1
    SHARED_WITH_GRAPHICS = 2
    QUEUE_SIZE_POW2 = 3
    QUEUE_SIZE_32BIT = 4
    QUEUE_IDLE_EVENT = 5
    VA_LIMIT = 6
    WATCH_POINTS_SUPPORTED = 7
    WATCH_POINTS_TOTALBITS = 8, 11
    DOORBELL_TYPE_TOTALBITS = 12, 13
    AQL_QUEUE_DOUBLE_MAP = 14
    TRAP_DEBUG_SUPPORT = 15
    TRAP_DEBUG_WAVE_LAUNCH_TRAP_OVERRIDE_SUPPORTED = 16
    TRAP_DEBUG_WAVE_LAUNCH_MODE_SUPPORTED = 17
    TRAP_DEBUG_PRECISE_MEMORY_OPERATIONS_SUPPORTED = 18
    RESERVED_WAS_SRAM_EDCSUPPORTED = 19
    MEM_EDCSUPPORTED = 20
    RASEVENTNOTIFY = 21
    ASIC_REVISION = 22, 25
    SRAM_EDCSUPPORTED = 26
    SVMAPI_SUPPORTED = 27
    FLAGS_COHERENTHOSTACCESS = 28
    TRAP_DEBUG_FIRMWARE_SUPPORTED = 29
    TRAP_DEBUG_PRECISE_ALU_OPERATIONS_SUPPORTED = 30
    PER_QUEUE_RESET_SUPPORTED = 31


class CAPABILITY2(Word):
    """``capability2`` (``HSA_CAP2_*``)."""

    PER_SDMA_QUEUE_RESET_SUPPORTED = 0


DOORBELL_TYPE_64BIT = 2


def parse_properties(text: str) -> dict[str, int]:
    """Return the properties in ``text``, one ``name value`` per line.

    ``ValueError`` names a line that is not a name and a decimal number, or a name that occurs twice.
    """
    values: dict[str, int] = {}
    for line in text.splitlines():
        name, _, value = line.strip().partition(" ")
        if not name or not value.isascii() or not value.isdigit():
            raise ValueError(f"properties: {line!r} is not a name and a decimal number")
        if name in values:
            raise ValueError(f"properties: {name} occurs twice")
        values[name] = int(value)
    return values


def render_properties(values: Mapping[str, int | None]) -> str:
    """Return the text that :func:`parse_properties` reads; a property that is ``None`` has no line."""
    return "".join(f"{name} {value}\n" for name, value in values.items() if value is not None)


@dataclass(frozen=True, slots=True)
class NodeProperties:
    """The properties of a node, named as in the file; ``None``: the kernel does not print the line.

    ``unknown`` holds lines whose names are not in :data:`PROPERTIES`.
    """

    cpu_cores_count: int = 0
    simd_count: int = 0
    mem_banks_count: int = 0
    caches_count: int = 0
    io_links_count: int = 0
    p2p_links_count: int | None = None
    cpu_core_id_base: int = 0
    simd_id_base: int = 0
    max_waves_per_simd: int = 0
    lds_size_in_kb: int = 0
    gds_size_in_kb: int = 0
    num_gws: int = 0
    wave_front_size: int = 0
    array_count: int = 0
    simd_arrays_per_engine: int = 0
    cu_per_simd_array: int = 0
    simd_per_cu: int = 0
    max_slots_scratch_cu: int = 0
    gfx_target_version: int = 0
    vendor_id: int = 0
    device_id: int = 0
    location_id: int = 0
    domain: int = 0
    drm_render_minor: int = 0
    hive_id: int = 0
    num_sdma_engines: int = 0
    num_sdma_xgmi_engines: int = 0
    num_sdma_queues_per_engine: int = 0
    num_cp_queues: int = 0
    cwsr_size: int | None = None
    ctl_stack_size: int | None = None
    max_engine_clk_fcompute: int | None = None
    local_mem_size: int | None = None
    fw_version: int | None = None
    capability: int | None = None
    capability2: int | None = None
    debug_prop: int | None = None
    sdma_fw_version: int | None = None
    unique_id: int | None = None
    num_xcc: int | None = None
    max_engine_clk_ccompute: int = 0
    unknown: tuple[tuple[str, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> NodeProperties:
        """Return the properties of a node.

        ``ValueError`` as :func:`parse_properties`; :class:`UnsupportedDevice` if a line is missing that every
        kernel prints for a GPU that this software drives.
        """
        values = parse_properties(text)
        missing = [
            entry.name
            for entry in PROPERTIES
            if entry.name not in values and not entry.newer and not (entry.gpu_only and cls._is_cpu(values))
        ]
        if missing:
            raise UnsupportedDevice(
                f"the topology node has no {', '.join(missing)}, which this software needs: "
                "the KFD driver of this kernel is too old"
            )
        unknown = tuple((name, value) for name, value in values.items() if name not in _BY_NAME)
        return cls(**{name: values[name] for name in values if name in _BY_NAME}, unknown=unknown)

    @staticmethod
    def _is_cpu(values: Mapping[str, int]) -> bool:
        return not values.get("simd_count")

    def render(self) -> str:
        """Return the text of the file ``properties``."""
        known = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "unknown"}
        return render_properties(known | dict(self.unknown))

    @property
    def is_gpu(self) -> bool:
        """Whether the node has SIMDs."""
        return self.simd_count > 0

    @property
    def xccs(self) -> int:
        """Compute dies. Kernels that do not print ``num_xcc`` know no device with several."""
        return self.num_xcc if self.num_xcc is not None else 1

    @property
    def shader_engines(self) -> int:
        """Shader engines of one XCC."""
        return self.array_count // self.simd_arrays_per_engine // self.xccs

    @property
    def cus_per_xcc(self) -> int:
        """Active compute units of one XCC."""
        return self.simd_count // self.simd_per_cu // self.xccs

    @property
    def waves_per_cu(self) -> int:
        """Waves that a compute unit can hold."""
        return self.max_waves_per_simd * self.simd_per_cu

    @property
    def lds_bytes(self) -> int:
        """Local memory of a compute unit in bytes."""
        return self.lds_size_in_kb << 10

    @property
    def target(self) -> tuple[int, int, int]:
        """Major, minor and stepping of the instruction set."""
        return target_from_version(self.gfx_target_version)

    @property
    def arch(self) -> str:
        """The name of the instruction set, such as ``gfx1100`` or ``gfx90a``."""
        return arch_name(self.target)

    @property
    def pci_address(self) -> str:
        """The PCI address, such as ``0000:86:00.0``; stable across reboots of an unchanged machine."""
        bus, device, function = self.location_id >> 8, self.location_id >> 3 & 0x1F, self.location_id & 7
        return f"{self.domain:04x}:{bus:02x}:{device:02x}.{function}"


def target_from_version(version: int) -> tuple[int, int, int]:
    """Return (major, minor, stepping) of ``gfx_target_version``."""
    return version // 10000, version // 100 % 100, version % 100


def version_from_target(target: tuple[int, int, int]) -> int:
    """Return ``gfx_target_version`` of (major, minor, stepping)."""
    major, minor, stepping = target
    return major * 10000 + minor * 100 + stepping


def arch_name(target: tuple[int, int, int]) -> str:
    """Return the name of the instruction set as compilers spell it: ``gfx942``, ``gfx1100``, ``gfx90a``."""
    major, minor, stepping = target
    return f"gfx{major}{minor:x}{stepping:x}"


def target_from_arch(name: str) -> tuple[int, int, int]:
    """Return (major, minor, stepping) of a name as :func:`arch_name` gives it."""
    return int(name[3:-2]), int(name[-2], 16), int(name[-1], 16)


# ----- sub-directories of a node ------------------------------------------------------------------


class HeapType(IntEnum):
    """``heap_type`` of a memory bank (``HSA_MEM_HEAP_TYPE_*``): FB_PUBLIC is VRAM that the CPU can reach."""

    SYSTEM = 0
    FB_PUBLIC = 1
    FB_PRIVATE = 2
    GPU_GDS = 3
    GPU_LDS = 4
    GPU_SCRATCH = 5


class IoLinkType(IntEnum):
    """``type`` of a link (``HSA_IOLINK_TYPE_*``), of those that occur."""

    PCIEXPRESS = 2
    XGMI = 11


@dataclass(frozen=True, slots=True)
class MemoryBank:
    """``mem_banks/<i>/properties``: ``width`` in bits, ``mem_clk_max`` in MHz."""

    heap_type: int
    size_in_bytes: int
    flags: int = 0
    width: int = 0
    mem_clk_max: int = 0


@dataclass(frozen=True, slots=True)
class Cache:
    """``caches/<i>/properties`` without ``sibling_map``; ``size`` in KiB."""

    processor_id_low: int
    level: int
    size: int
    cache_line_size: int = 0
    cache_lines_per_tag: int = 0
    association: int = 0
    latency: int = 0
    type: int = 0


@dataclass(frozen=True, slots=True)
class IoLink:
    """``io_links/<i>/properties`` and ``p2p_links/<i>/properties``."""

    type: int
    version_major: int
    version_minor: int
    node_from: int
    node_to: int
    weight: int = 0
    min_latency: int = 0
    max_latency: int = 0
    min_bandwidth: int = 0
    max_bandwidth: int = 0
    recommended_transfer_size: int = 0
    recommended_sdma_engine_id_mask: int = 0
    flags: int = 0


def render_record(record: MemoryBank | Cache | IoLink) -> str:
    """Return the text of the ``properties`` file of a bank, cache or link."""
    return render_properties({field.name: getattr(record, field.name) for field in fields(record)})


def parse_memory_bank(text: str) -> MemoryBank:
    """Return the memory bank that ``text`` describes; ``ValueError`` names what is missing.

    Lines that a newer kernel adds are skipped.
    """
    values = parse_properties(text)
    names = [field.name for field in fields(MemoryBank)]
    if missing := [name for name in names if name not in values]:
        raise ValueError(f"memory bank: {', '.join(missing)} missing")
    return MemoryBank(**{name: values[name] for name in names})


def node_files(
    node: NodeProperties,
    *,
    gpu_id: int,
    name: str = "",
    memory_banks: Sequence[MemoryBank] = (),
    caches: Sequence[Cache] = (),
    io_links: Sequence[IoLink] = (),
    p2p_links: Sequence[IoLink] = (),
) -> dict[str, str]:
    """Return the files of a node: path below the node's directory -> text."""
    files = {"gpu_id": f"{gpu_id}\n", "name": f"{name}\n", "properties": node.render()}
    groups: dict[str, Sequence[MemoryBank | Cache | IoLink]] = {
        "mem_banks": memory_banks,
        "caches": caches,
        "io_links": io_links,
        "p2p_links": p2p_links,
    }
    for group, records in groups.items():
        for index, record in enumerate(records):
            files[f"{group}/{index}/properties"] = render_record(record)
    return files


def system_files(generation: int = 1) -> dict[str, str]:
    """Return the files that the topology has beside ``nodes``; ``generation`` counts its changes."""
    properties = "platform_oem 0\nplatform_id 0\nplatform_rev 0\n"
    return {"generation_id": f"{generation}\n", "system_properties": properties}


# ----- IP discovery -------------------------------------------------------------------------------


class Hwid(IntEnum):
    """Hardware ids of IP blocks (``*_HWID`` of ``soc15_hw_ip.h``), of those that matter to compute."""

    MP1 = 1
    GC = 11
    UVD = 12
    MMHUB = 34
    ATHUB = 35
    OSSSYS = 40
    HDP = 41
    SDMA0 = 42
    SDMA1 = 43
    DF = 46
    SDMA2 = 68
    SDMA3 = 69
    NBIF = 108
    MP0 = 255


IP_FILES = (
    "hw_id",
    "num_instance",
    "major",
    "minor",
    "revision",
    "harvest",
    "num_base_addresses",
    "base_addr",
)
"""The files of ``ip_discovery/die/<die>/<hwid>/<instance>``."""

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class IpBlock:
    """An IP block: its version and where its register segments begin, in dwords."""

    hwid: int
    version: Version
    base: tuple[int, ...]
    instance: int = 0

    @property
    def directory(self) -> str:
        """Path below ``ip_discovery``."""
        return f"die/0/{self.hwid}/{self.instance}"

    def files(self) -> dict[str, str]:
        """Return the files of the block: path below ``ip_discovery`` -> text."""
        major, minor, revision = self.version
        texts = {
            "hw_id": f"{self.hwid}\n",
            "num_instance": f"{self.instance}\n",
            "major": f"{major}\n",
            "minor": f"{minor}\n",
            "revision": f"{revision}\n",
            "harvest": "0x0\n",
            "num_base_addresses": f"{len(self.base)}\n",
            "base_addr": "".join(f"0x{segment:08X}\n" for segment in self.base),
        }
        return {f"{self.directory}/{file}": text for file, text in texts.items()}


def parse_base_addresses(text: str) -> tuple[int, ...]:
    """Return the segments in ``base_addr``, a hexadecimal number per line; ``ValueError`` if not."""
    segments = []
    for line in text.split():
        try:
            segments.append(int(line, 16))
        except ValueError:
            raise ValueError(f"base_addr: {line!r} is not a hexadecimal number") from None
    return tuple(segments)
