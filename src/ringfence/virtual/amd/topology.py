"""The sysfs files of virtual AMD GPUs: the topology of KFD, and the PCI devices behind the render nodes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ringfence.hardware.amd.chips import AmdChip
from ringfence.hardware.amd.kfd import QueueSizes, queue_sizes
from ringfence.hardware.amd.topology import (
    DRM_ROOT,
    FIRST_RENDER_MINOR,
    MODULE_PATH,
    NODES_ROOT,
    TOPOLOGY_ROOT,
    HeapType,
    Hwid,
    IoLink,
    IoLinkType,
    MemoryBank,
    NodeProperties,
    drm_device_root,
    node_files,
    render_node,
    system_files,
)

_KFD_CLASS = "/sys/class/kfd/kfd/"  # a link to the other name
_KFD_DEVICE = "/sys/devices/virtual/kfd/kfd/"
_FIRST_BUS = 3
_CPU_CORES = 8
_CPU_CLOCK = 2400
_SYSTEM_MEMORY = 16 << 30
_PCIE_WEIGHT = 20


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU of the machine: node ``index + 1`` of the topology."""

    index: int
    chip: AmdChip
    gpu_id: int
    node: NodeProperties
    sizes: QueueSizes
    memory_bytes: int
    large_bar: bool

    @property
    def render_path(self) -> str:
        return render_node(self.node.drm_render_minor)

    @property
    def name(self) -> str:
        """The name in messages: chip and gpu_id."""
        return f"{self.chip.name} {self.gpu_id:#x}"


def make_cards(chips: Sequence[AmdChip], memory_bytes: int, large_bar: bool) -> tuple[Card, ...]:
    """Return the GPUs of a machine; they differ in bus, render node, serial number and gpu_id."""
    cards: list[Card] = []
    taken = {0}
    for index, chip in enumerate(chips):
        node = chip.node(
            render_minor=FIRST_RENDER_MINOR + index,
            location_id=(_FIRST_BUS + index) << 8,
            unique_id=0x5246_0000_0000_0000 + index + 1,
            p2p_links=len(chips) - 1 if large_bar else 0,
        )
        gpu_id = _gpu_id(node, taken)
        taken.add(gpu_id)
        cards.append(Card(index, chip, gpu_id, node, queue_sizes(node), memory_bytes, large_bar))
    return tuple(cards)


def _gpu_id(node: NodeProperties, taken: set[int]) -> int:
    """Return a 16-bit hash of what tells GPUs apart, as kfd_generate_gpu_id does."""
    text = f"{node.unique_id}:{node.location_id}:{node.device_id}:{node.gfx_target_version}"
    number = zlib.crc32(text.encode()) & 0xFFFF
    while number in taken:
        number = (number + 1) & 0xFFFF
    return number


def system_tree(cards: Sequence[Card]) -> dict[str, str]:
    """Return every file of the machine: absolute path -> text."""
    files = {f"{TOPOLOGY_ROOT}/{path}": text for path, text in system_files().items()}
    files |= _below(f"{NODES_ROOT}/0", _cpu_node(cards))
    for card in cards:
        files |= _below(f"{NODES_ROOT}/{card.index + 1}", _gpu_node(card, cards))
        files |= _below(drm_device_root(card.node.drm_render_minor), _pci_device(card))
    files[f"{MODULE_PATH}/parameters/ppfeaturemask"] = "0xffff3fff\n"
    return files


def _below(root: str, files: Mapping[str, str]) -> dict[str, str]:
    return {f"{root}/{path}": text for path, text in files.items()}


def _cpu_node(cards: Sequence[Card]) -> dict[str, str]:
    node = NodeProperties(
        cpu_cores_count=_CPU_CORES,
        mem_banks_count=1,
        io_links_count=len(cards),
        max_engine_clk_ccompute=_CPU_CLOCK,
    )
    bank = MemoryBank(HeapType.SYSTEM, _SYSTEM_MEMORY, width=64)
    return node_files(
        node, gpu_id=0, memory_banks=[bank], io_links=[_link(0, card.index + 1) for card in cards]
    )


def _gpu_node(card: Card, cards: Sequence[Card]) -> dict[str, str]:
    peers = [other for other in cards if other is not card and can_reach(other, card)]
    heap = HeapType.FB_PUBLIC if card.large_bar else HeapType.FB_PRIVATE
    banks = [
        replace(bank, heap_type=heap, size_in_bytes=card.memory_bytes) for bank in card.chip.memory_banks()
    ]
    return node_files(
        card.node,
        gpu_id=card.gpu_id,
        name=card.chip.name,
        memory_banks=banks,
        io_links=[_link(card.index + 1, 0)],
        p2p_links=[_link(card.index + 1, peer.index + 1, 2 * _PCIE_WEIGHT) for peer in peers],
    )


def can_reach(card: Card, owner: Card) -> bool:
    """Return whether a card can reach another's VRAM: the rule of ``amdgpu_device_is_peer_accessible``, for
    a kernel with peer-to-peer access.
    """
    return card is owner or owner.large_bar


def _link(source: int, target: int, weight: int = _PCIE_WEIGHT) -> IoLink:
    return IoLink(IoLinkType.PCIEXPRESS, 0, 0, source, target, weight=weight)


def _pci_device(card: Card) -> dict[str, str]:
    node = card.node
    files = {
        "vendor": f"{node.vendor_id:#06x}\n",
        "device": f"{node.device_id:#06x}\n",
        "unique_id": f"{node.unique_id:016x}\n",
        "power_dpm_force_performance_level": "profile_standard\n",
        "mem_info_vram_total": f"{card.memory_bytes}\n",
    }
    for block in card.chip.ip_blocks():
        named = replace(block)
        for path, text in named.files().items():
            files[f"ip_discovery/{path}"] = text
            number, name = f"die/0/{block.hwid}/", f"die/0/{Hwid(block.hwid).name}/"
            files[f"ip_discovery/{path.replace(number, name, 1)}"] = text
    return files


class Tree:
    """A directory tree of text files, looked up by absolute path."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = dict(files)
        self._directories: dict[str, set[str]] = {}
        for path in self._files:
            while "/" in path.rstrip("/") and path.startswith(("/sys/",)):
                parent, _, name = path.rpartition("/")
                self._directories.setdefault(parent, set()).add(name)
                path = parent
        self._roots = (TOPOLOGY_ROOT, DRM_ROOT, MODULE_PATH)

    def read(self, path: str) -> str | None:
        """Return the text of a file; ``None`` if there is no such file."""
        return self._files.get(_canonical(path))

    def list(self, path: str) -> list[str] | None:
        """Return the names in a directory, sorted; ``None`` if there is no such directory here."""
        path = _canonical(path)
        if not path.startswith(self._roots):
            return None
        names = self._directories.get(path)
        return None if names is None else sorted(names)


def _canonical(path: str) -> str:
    path = path.rstrip("/")
    return _KFD_DEVICE + path.removeprefix(_KFD_CLASS) if path.startswith(_KFD_CLASS) else path
