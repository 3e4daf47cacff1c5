"""Buffer objects of the virtual KFD: allocation, import of host memory, page tables, and when they go away.

Rules are those of ``kfd_chardev.c`` and ``amdgpu_amdkfd_gpuvm.c`` (Linux 6.12 and later): an object belongs
to a GPU, has a virtual address from its birth on, and is reached by the GPUs that map it. Each GPU has an
address space of its own. An object lives until it was freed and its last CPU mapping is gone.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.kfd import AllocFlags
from ringfence.virtual.amd.topology import Card, can_reach
from ringfence.virtual.checks import Refused
from ringfence.virtual.memory import PAGE, AddressSpace, Backing, BadAddress, ImportedPages, Range, round_up

if TYPE_CHECKING:
    from ringfence.virtual.machine import Machine

FIRST_MMAP_OFFSET = 1 << 32  # DRM_FILE_PAGE_OFFSET_START
AVAILABLE_ALIGN = 2 << 20  # VRAM_AVAILABLITY_ALIGN


@dataclass(slots=True, eq=False)
class MemoryObject:
    """An object of ``size`` bytes (whole pages) at GPU address ``address``, owned by ``card``.

    ``number`` names it in the address spaces. ``backing`` holds device memory, ``pages`` imported memory of
    the client; a DOORBELL object is the page of the card's doorbells, which the card owns. ``maps`` are the
    cards that map it, ``queues`` how many queues of each card use it. ``references`` counts the client's
    handle and its CPU mappings.
    """

    number: int
    handle: int
    card: Card
    address: int
    size: int
    flags: AllocFlags
    mmap_offset: int
    backing: Backing | None = None
    pages: ImportedPages | None = None
    user_address: int = 0
    owns_backing: bool = True
    maps: list[int] = field(default_factory=list)
    queues: dict[int, int] = field(default_factory=dict)
    freed: bool = False
    references: int = 1

    @property
    def host_address(self) -> int:
        source = self.backing if self.backing is not None else self.pages
        assert source is not None
        return source.host_address

    @property
    def is_vram(self) -> bool:
        return AllocFlags.VRAM in self.flags

    @property
    def writable(self) -> bool:
        return AllocFlags.WRITABLE in self.flags

    @property
    def label(self) -> str:
        kinds = (AllocFlags.VRAM, AllocFlags.GTT, AllocFlags.USERPTR, AllocFlags.DOORBELL)
        return next((str(kind.name) for kind in kinds if kind in self.flags), "MMIO")

    def release(self) -> None:
        """Give the pages back."""
        if self.pages is not None:
            self.pages.release()
        elif self.owns_backing and self.backing is not None:
            self.backing.release()


class ObjectTable:
    """The objects of the process on all cards, and the address space of each card."""

    def __init__(self, machine: Machine, cards: tuple[Card, ...]) -> None:
        self.spaces = tuple(AddressSpace() for _ in cards)
        self.backing_count = 0
        self._machine = machine
        self._cards = cards
        self._objects: dict[int, MemoryObject] = {}
        self._by_offset: dict[int, MemoryObject] = {}
        self._copied: list[MemoryObject] = []
        self._used = {(card.index, vram): 0 for card in cards for vram in (False, True)}
        self._next_index = [1] * len(cards)
        self._next_offset = FIRST_MMAP_OFFSET
        self._ids: dict[int, MemoryObject] = {}  # object ids of the address spaces
        self._last_id = 0

    # ----- lookup -----------------------------------------------------------------------------

    def find(self, handle: int, code: int = errno.EINVAL) -> MemoryObject:
        """Return an object; :class:`Refused` with ``code`` if there is none."""
        found = self._objects.get(handle)
        if found is None:
            raise Refused(code, f"no memory has the handle {handle:#x}")
        return found

    def mapped_at(self, card: Card, address: int) -> MemoryObject | None:
        """Return the object that a card has mapped at an address."""
        inside = self.spaces[card.index].find(address)
        return None if inside is None else self._ids.get(inside.object_id)

    def by_range(self, inside: Range) -> MemoryObject | None:
        """Return the object of a range of an address space."""
        return self._ids.get(inside.object_id)

    # ----- allocation -------------------------------------------------------------------------

    def allocate(
        self, card: Card, argument: kfd.ALLOC_MEMORY_OF_GPU, doorbells: Callable[[], Backing]
    ) -> MemoryObject:
        """Allocate or import memory, as ``kfd_ioctl_alloc_memory_of_gpu`` does."""
        flags = AllocFlags(argument.flags)
        self._check(card, argument, flags)
        size = round_up(argument.size)
        vram = AllocFlags.VRAM in flags
        self._reserve(card, size, vram, flags)
        self._last_id += 1
        new = MemoryObject(
            self._last_id, self._new_handle(card), card, argument.va_addr, size, flags, self._next_offset
        )
        try:
            if AllocFlags.USERPTR in flags:
                new.user_address = argument.mmap_offset
                new.pages = _import(new)
            elif AllocFlags.DOORBELL in flags:
                new.backing, new.owns_backing = doorbells(), False
            else:
                new.backing = _back(size)
        except Refused:
            self._unreserve(new)
            raise
        self._next_offset += size
        self._objects[new.handle] = self._by_offset[new.mmap_offset] = new
        self._ids[new.number] = new
        self.backing_count += new.owns_backing
        if new.pages is not None and new.pages.copied:
            self._copied.append(new)
        return new

    def _check(self, card: Card, argument: kfd.ALLOC_MEMORY_OF_GPU, flags: AllocFlags) -> None:
        if argument.size == 0:
            raise Refused(errno.EINVAL, "size is 0")
        if not flags & kfd.DOMAINS:
            raise Refused(errno.EINVAL, f"flags {argument.flags:#x} do not say what memory to allocate")
        if AllocFlags.AQL_QUEUE_MEM in flags:
            self._machine.notes.unsupported("KFD AQL queue memory", "ALLOC_MEMORY_OF_GPU answers EINVAL")
            raise Refused(errno.EINVAL, "objects that are mapped twice (AQL_QUEUE_MEM) are not modelled")
        if AllocFlags.VRAM in flags and AllocFlags.PUBLIC in flags and not card.large_bar:
            raise Refused(errno.EINVAL, f"{card.name} has no large BAR, so its VRAM cannot be PUBLIC")
        if AllocFlags.DOORBELL in flags and argument.size != kfd.DOORBELL_SLICE_BYTES:
            raise Refused(
                errno.EINVAL,
                f"the doorbells have {kfd.DOORBELL_SLICE_BYTES:#x} bytes, not {argument.size:#x}",
            )
        if AllocFlags.MMIO_REMAP in flags and argument.size != PAGE:
            raise Refused(
                errno.EINVAL, f"the remapped registers have {PAGE:#x} bytes, not {argument.size:#x}"
            )
        if AllocFlags.USERPTR in flags and argument.mmap_offset == 0:
            raise Refused(errno.EINVAL, "USERPTR takes a host address in mmap_offset")
        if AllocFlags.USERPTR in flags and argument.mmap_offset % PAGE:
            raise Refused(
                errno.EINVAL, f"the host address {argument.mmap_offset:#x} is no multiple of {PAGE}"
            )

    def _reserve(self, card: Card, size: int, vram: bool, flags: AllocFlags) -> None:
        used = self._used[card.index, vram]
        if used + size > card.memory_bytes:
            kind = "VRAM" if vram else "system memory for the GPU"
            raise Refused(
                errno.ENOMEM,
                f"{size} bytes more than the {used} in use exceed the {card.memory_bytes} bytes of {kind}",
            )
        if flags & (AllocFlags.DOORBELL | AllocFlags.MMIO_REMAP):
            return
        self._used[card.index, vram] = used + size

    def _unreserve(self, entry: MemoryObject) -> None:
        if not entry.flags & (AllocFlags.DOORBELL | AllocFlags.MMIO_REMAP):
            self._used[entry.card.index, entry.is_vram] -= entry.size

    def _new_handle(self, card: Card) -> int:
        index = self._next_index[card.index]
        self._next_index[card.index] = index + 1
        return card.gpu_id << 32 | index

    def available(self, card: Card) -> int:
        """Return how much VRAM is left, in units of 2 MiB."""
        return (card.memory_bytes - self._used[card.index, True]) & -AVAILABLE_ALIGN

    # ----- page tables ------------------------------------------------------------------------

    def map(self, entry: MemoryObject, card: Card) -> None:
        """Map an object on a card; nothing to do if it is."""
        if card.index in entry.maps:
            return
        local = entry.flags & (AllocFlags.VRAM | AllocFlags.DOORBELL | AllocFlags.MMIO_REMAP)
        if local and not can_reach(card, entry.card):
            raise Refused(errno.EINVAL, f"{entry.card.name} has no large BAR: {card.name} cannot reach it")
        end = entry.address + entry.size
        if entry.address % PAGE or not kfd.GPUVM_APERTURE_BASE <= entry.address <= end <= GPUVM_END:
            raise Refused(
                errno.EINVAL,
                f"GPU addresses {entry.address:#x}..{end:#x} are not pages of "
                f"{kfd.GPUVM_APERTURE_BASE:#x}..{GPUVM_END:#x}",
            )
        try:
            self.spaces[card.index].map(
                entry.address,
                entry.size,
                entry.host_address,
                writable=entry.writable,
                label=entry.label,
                object_id=entry.number,
            )
        except ValueError as error:
            raise Refused(errno.EINVAL, str(error)) from error
        entry.maps.append(card.index)

    def unmap(self, entry: MemoryObject, card: Card) -> None:
        """Undo :meth:`map`; nothing to do if the card does not map the object."""
        if card.index not in entry.maps:
            return
        if entry.queues.get(card.index):
            raise Refused(errno.EBUSY, f"a queue uses the memory at {entry.address:#x}")
        # A running program has a page table of its own, and the pages stay until it ends.
        self.spaces[card.index].unmap(entry.address)
        entry.maps.remove(card.index)

    # ----- CPU mappings -----------------------------------------------------------------------

    def mmap(self, offset: int, length: int, address: int, handled: Callable[[MemoryObject], bool]) -> int:
        """Map an object for the CPU and return where."""
        entry = self._by_offset.get(offset)
        if entry is None or not handled(entry):
            raise Refused(errno.EINVAL, f"nothing of this render node has the mmap offset {offset:#x}")
        if entry.pages is not None:
            raise Refused(errno.EPERM, "imported memory is the client's own, which has it mapped already")
        if length > entry.size:
            raise Refused(errno.EINVAL, f"{length:#x} bytes exceed the {entry.size:#x} of the object")
        found = self.map_pages(entry, length, address)
        entry.references += 1
        self._machine.mappings.add(found, length, lambda: self._drop(entry))
        return found

    @staticmethod
    def map_pages(entry: MemoryObject, length: int, address: int) -> int:
        assert entry.backing is not None
        return map_backing(entry.backing, length, address)

    # ----- freeing ----------------------------------------------------------------------------

    def free(self, entry: MemoryObject) -> None:
        """Drop the client's handle."""
        if entry.maps:
            raise Refused(errno.EBUSY, f"a GPU still maps the memory at {entry.address:#x}")
        self._forget(entry)

    def _forget(self, entry: MemoryObject) -> None:
        del self._objects[entry.handle]
        entry.freed = True
        self._drop(entry)

    def free_all(self) -> None:
        """The process closed its last descriptor."""
        for entry in list(self._objects.values()):
            entry.queues.clear()
            for index in list(entry.maps):
                self.unmap(entry, self._cards[index])
            self._forget(entry)

    def _drop(self, entry: MemoryObject) -> None:
        entry.references -= 1
        if entry.references:
            return
        self._by_offset.pop(entry.mmap_offset, None)
        del self._ids[entry.number]
        self._unreserve(entry)
        if entry in self._copied:
            self._copied.remove(entry)
        self._machine.defer(lambda: self._destroy(entry))

    def _destroy(self, entry: MemoryObject) -> None:
        entry.release()
        self.backing_count -= entry.owns_backing

    # ----- imported copies --------------------------------------------------------------------

    def acquire(self) -> None:
        """A GPU is about to read: bring copies of private client memory up to date."""
        for entry in self._copied:
            assert entry.pages is not None
            entry.pages.clean(0, entry.size)

    def publish(self) -> None:
        """A GPU has written: show it in the client's memory."""
        for entry in self._copied:
            assert entry.pages is not None
            entry.pages.invalidate(0, entry.size)

    @property
    def has_copies(self) -> bool:
        """Whether :meth:`acquire` and :meth:`publish` have anything to do."""
        return bool(self._copied)

    # ----- accounting -------------------------------------------------------------------------

    def __iter__(self) -> Iterator[MemoryObject]:
        return iter(self._ids.values())

    @property
    def object_count(self) -> int:
        return sum(entry.pages is None for entry in self)

    @property
    def import_count(self) -> int:
        return sum(entry.pages is not None for entry in self)


GPUVM_END = kfd.GPUVM_APERTURE_LIMIT + 1


def map_backing(backing: Backing, length: int, address: int) -> int:
    """Map pages for the client, at ``address`` in place of what is there unless it is 0; return where."""
    try:
        if not address:
            return backing.duplicate(length=length)
        backing.replace(address, length)
        return address
    except OSError as error:
        raise Refused(errno.ENOMEM, str(error)) from error


def _back(size: int) -> Backing:
    try:
        return Backing(size)
    except OSError as error:
        raise Refused(errno.ENOMEM, str(error)) from error


def _import(new: MemoryObject) -> ImportedPages:
    try:
        return ImportedPages(new.user_address, new.size, writable=new.writable)
    except BadAddress as error:
        end = new.user_address + new.size
        raise Refused(errno.EFAULT, f"{new.user_address:#x}..{end:#x} is not all accessible") from error
    except OSError as error:
        raise Refused(errno.ENOMEM, str(error)) from error
