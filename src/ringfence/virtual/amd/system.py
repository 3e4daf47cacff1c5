"""The virtual KFD: ``/dev/kfd``, the render nodes, and the sysfs files of all AMD GPUs of a machine.

It models the driver of Linux 6.12 (interface 1.17) with a 64-bit client, hardware scheduling and one
process: ``kfd_chardev.c``, ``kfd_queue.c``, ``kfd_events.c``, ``amdgpu_amdkfd_gpuvm.c``. Copy queues, AQL
queues, shared virtual memory, DMA buffers and debugging are not modelled: they are refused, with a note.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringfence.errors import FaultReport, UnsupportedDevice
from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.chips import AmdChip, Generation
from ringfence.virtual.amd import render
from ringfence.virtual.amd.ioctls import Ioctls
from ringfence.virtual.amd.objects import map_backing
from ringfence.virtual.amd.process import Process
from ringfence.virtual.amd.queues import HangDetector
from ringfence.virtual.amd.topology import Card, Tree, make_cards, system_tree
from ringfence.virtual.checks import Refused
from ringfence.virtual.memory import PAGE, BadAddress, protect_pages, round_up

if TYPE_CHECKING:
    from ringfence.virtual.machine import Engine, LiveObjects, Machine


@dataclass(frozen=True, slots=True)
class _File:
    """An open node; ``card`` is that of a render node, ``None`` for ``/dev/kfd``."""

    card: Card | None


class KfdSystem:
    """All AMD GPUs of a machine."""

    def __init__(self, machine: Machine, chips: Sequence[AmdChip]) -> None:
        for chip in chips:
            if chip.generation is not Generation.GFX11 and not machine.custom_executor:
                raise UnsupportedDevice(f"there is no virtual {chip.name}: only gfx11 chips can be executed")
        self.machine = machine
        self.cards = make_cards(chips, machine.memory_bytes, machine.large_bar)
        self.paths = (kfd.DEVICE_PATH, *(card.render_path for card in self.cards))
        self._tree = Tree(system_tree(self.cards))
        self._files: dict[int, _File] = {}
        self._last_handle = 0
        self._process: Process | None = None
        self._ended: list[Process] = []
        self._ioctls = Ioctls(machine, self)
        self._engines: tuple[Engine, ...] = ()
        self._detector = HangDetector(machine, lambda: () if self._process is None else self._process.engines)

    @property
    def engines(self) -> Sequence[Engine]:
        process = self._process
        if process is None or not process.engines:
            return ()
        if self._engines[:-1] != process.engines:
            self._engines = (*process.engines, self._detector)
        return self._engines

    @property
    def process(self) -> Process:
        """The client; ``/dev/kfd`` must be open."""
        assert self._process is not None
        return self._process

    # ----- nodes ------------------------------------------------------------------------------

    def open(self, path: str) -> int:
        """Return a new handle of ``/dev/kfd`` or a render node."""
        card = next((card for card in self.cards if card.render_path == path), None)
        if card is None and self._process is None:
            self._process = Process(self.machine, self.cards)
        self._last_handle += 1
        self._files[self._last_handle] = _File(card)
        return self._last_handle

    def close(self, handle: int) -> None:
        """Close a handle; the process ends with its last one of ``/dev/kfd``."""
        del self._files[handle]
        if self._process is not None and all(file.card is not None for file in self._files.values()):
            self._process.close()
            self._ended.append(self._process)
            self._process = None

    def is_open(self, handle: int) -> bool:
        """Return whether a handle was not closed."""
        return handle in self._files

    def render_card(self, handle: int) -> Card | None:
        """Return the card whose render node a handle is."""
        file = self._files.get(handle)
        return None if file is None else file.card

    def read_text(self, path: str) -> str | None:
        return self._tree.read(path)

    def list_directory(self, path: str) -> list[str] | None:
        return self._tree.list(path)

    # ----- calls ------------------------------------------------------------------------------

    def ioctl(self, handle: int, request: int, address: int) -> tuple[int, str]:
        card = self._files[handle].card
        try:
            if card is not None:
                render.ioctl(self.machine, card, request, address)
            else:
                return self._ioctls.call(handle, request, address)
        except Refused as refused:
            return refused.errno, refused.reason
        except BadAddress as error:
            return errno.EFAULT, str(error)
        return 0, ""

    def mmap(
        self, handle: int, length: int, offset: int, writable: bool, address: int
    ) -> tuple[int, int, str]:
        try:
            return self._mmap(handle, length, offset, writable, address), 0, ""
        except Refused as refused:
            return 0, refused.errno, refused.reason

    def _mmap(self, handle: int, length: int, offset: int, writable: bool, address: int) -> int:
        if length <= 0 or offset % PAGE:
            raise Refused(errno.EINVAL, f"length {length:#x} is 0 or offset {offset:#x} is not page aligned")
        length = round_up(length)
        card = self._files[handle].card
        if card is None:
            found = self._mmap_kfd(length, offset, address)
        elif self._process is None:
            raise Refused(errno.EINVAL, f"nothing of this render node has the mmap offset {offset:#x}")
        else:
            found = self._process.objects.mmap(offset, length, address, lambda entry: entry.card is card)
        if not writable:
            protect_pages(found, length)
        return found

    def _mmap_kfd(self, length: int, offset: int, address: int) -> int:
        kind = kfd.MMAP_OFFSET.get(offset, "TYPE")
        gpu_id = kfd.MMAP_OFFSET.get(offset, "GPU_ID")
        if kind == kfd.MmapType.DOORBELL:
            return self._mmap_doorbells(self.process.card(gpu_id), length, address)
        if kind == kfd.MmapType.EVENTS:
            return self._mmap_events(length, address)
        name = kfd.MmapType(kind).name
        self.machine.notes.unsupported(f"KFD mmap of {name}", "answered with EINVAL")
        raise Refused(errno.EINVAL, f"mmap of {name} ({offset:#x}) is not modelled")

    def _mmap_doorbells(self, card: Card, length: int, address: int) -> int:
        if length != kfd.DOORBELL_SLICE_BYTES:
            raise Refused(
                errno.EINVAL, f"the doorbells have {kfd.DOORBELL_SLICE_BYTES:#x} bytes, not {length:#x}"
            )
        process = self.process
        found = map_backing(process.doorbells(card), length, address)
        process.doorbell_pages[found] = card
        self.machine.mappings.add(found, length, lambda: process.forget_doorbells(found))
        return found

    def _mmap_events(self, length: int, address: int) -> int:
        page = self.process.events.own_page
        if page is None or length != kfd.EVENT_PAGE_BYTES:
            raise Refused(
                errno.EINVAL,
                f"there is no event page of the kernel's, or {length:#x} is not "
                f"{kfd.EVENT_PAGE_BYTES:#x} bytes",
            )
        found = map_backing(page, length, address)
        self.machine.mappings.add(found, length, lambda: None)
        return found

    def doorbell(self, address: int) -> Callable[[int], None] | None:
        return None if self._process is None else self._process.bell(address)

    def clean(self, address: int, length: int) -> None:
        """PCIe accesses to host memory are coherent: nothing to do."""

    def invalidate(self, address: int, length: int) -> None:
        """As :meth:`clean`."""

    # ----- accounting -------------------------------------------------------------------------

    def explain(self, handle: int, context: int) -> FaultReport | None:
        queue = None if self._process is None else self._process.queues.get(context)
        return None if queue is None else queue.report

    def live(self) -> LiveObjects:
        from ringfence.virtual.machine import LiveObjects

        # Objects of a process that has ended live on while the client has them mapped.
        self._ended = [process for process in self._ended if process.objects.backing_count]
        total = LiveObjects()
        current = [] if self._process is None else [self._process]
        for process in (*self._ended, *current):
            total += LiveObjects(
                contexts=len(process.queues),
                objects=process.objects.object_count,
                imports=process.objects.import_count,
                backings=process.objects.backing_count + process.doorbell_backings,
                events=len(process.events),
            )
        return total
