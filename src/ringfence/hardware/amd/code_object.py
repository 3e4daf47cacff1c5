"""AMD code objects: ELF files that hold the machine code of kernels, loaded to an image of memory.

Linked files (ET_DYN) are placed by their segments, unlinked ones (ET_REL) section by section. Source: LLVM
``AMDGPUUsage.rst`` (Code Object, Relocation Records).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ringfence.errors import PackageError, UnsupportedDevice
from ringfence.hardware.amd.chips import Target, generation_of
from ringfence.hardware.amd.descriptor import SIZE, KernelDescriptor, unpack_descriptor
from ringfence.hardware.amd.elf import LARGEST_IMAGE, ElfFile, RelocationEntry, Section, Symbol, read_elf
from ringfence.hardware.amd.metadata import KernelMetadata, Metadata, decode_metadata
from ringfence.hardware.amd.topology import target_from_arch

PAGE = 4096
PREFETCH = 256
"""Bytes that the instruction fetch may read behind the code; the image is padded by as many."""

RELOCATIONS = {
    0: "R_AMDGPU_NONE",
    1: "R_AMDGPU_ABS32_LO",
    2: "R_AMDGPU_ABS32_HI",
    3: "R_AMDGPU_ABS64",
    4: "R_AMDGPU_REL32",
    5: "R_AMDGPU_REL64",
    6: "R_AMDGPU_ABS32",
    7: "R_AMDGPU_GOTPCREL",
    8: "R_AMDGPU_GOTPCREL32_LO",
    9: "R_AMDGPU_GOTPCREL32_HI",
    10: "R_AMDGPU_REL32_LO",
    11: "R_AMDGPU_REL32_HI",
    13: "R_AMDGPU_RELATIVE64",
    14: "R_AMDGPU_REL16",
}
_ABS64, _REL64, _REL32_LO, _REL32_HI, _RELATIVE64 = 3, 5, 10, 11, 13
_SIZES = {_ABS64: 8, _REL64: 8, _REL32_LO: 4, _REL32_HI: 4, _RELATIVE64: 8}


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a code object. ``descriptor_address`` and ``entry`` are offsets into the image."""

    name: str
    descriptor_address: int
    descriptor: KernelDescriptor
    entry: int
    metadata: KernelMetadata | None


@dataclass(frozen=True, slots=True)
class CodeObject:
    """A loaded code object.

    ``image`` holds what goes to GPU memory at a page boundary, ``pointers`` (offset, addend) the places of 64
    bits that get the load address added; see :meth:`at`. ``code`` are the (start, end) of executable parts,
    ``symbols`` the offsets of all named functions and objects. ``writable``: it has variables that programs
    may write.
    """

    arch: str
    version: int
    flags: int
    image: bytes
    pointers: tuple[tuple[int, int], ...]
    code: tuple[tuple[int, int], ...]
    kernels: Mapping[str, Kernel]
    symbols: Mapping[str, int]
    metadata: Metadata | None
    writable: bool

    def at(self, address: int) -> bytearray:
        """Return the image for loading at ``address``, which must be a multiple of the page size."""
        if address % PAGE:
            raise ValueError(f"a code object is loaded at a multiple of {PAGE}, not at {address:#x}")
        image = bytearray(self.image)
        for offset, addend in self.pointers:
            image[offset : offset + 8] = (address + addend & (1 << 64) - 1).to_bytes(8, "little")
        return image

    def kernel(self, name: str | None = None) -> Kernel:
        """Return a kernel by name, or the only one. Raises :class:`PackageError` if there is none such."""
        known = ", ".join(self.kernels) or "none"
        if name is None:
            if len(self.kernels) != 1:
                raise PackageError(f"the code object has {len(self.kernels)} kernels, name one of: {known}")
            return next(iter(self.kernels.values()))
        if name not in self.kernels:
            raise PackageError(f"the code object has no kernel {name!r}; it has: {known}")
        return self.kernels[name]


_WRITTEN_BY_LOADERS = (".data.rel.ro", ".relro_padding", ".got")


def load_code_object(data: bytes) -> CodeObject:
    """Return a code object from the bytes of its file.

    Raises :class:`PackageError` if the file is damaged, for an unknown GPU, or needs a relocation or symbol
    that only a linker can resolve.
    """
    elf = read_elf(bytes(data))
    image = _relocatable(elf) if elf.relocatable else _linked(elf)
    image.relocate()
    metadata = _metadata(elf)
    kernels = {kernel.name: kernel for kernel in _kernels(elf, image, metadata)}
    return CodeObject(
        elf.arch,
        elf.version,
        elf.flags,
        bytes(image.data),
        tuple(image.pointers),
        tuple(image.code),
        kernels,
        _named(elf, image),
        metadata,
        any(map(_is_variable, elf.sections)) or not elf.sections,
    )


def _is_variable(section: Section) -> bool:
    """Return whether a section holds variables of programs, not only what a loader writes once."""
    data = section.allocated and section.writable and section.type in ("SHT_PROGBITS", "SHT_NOBITS")
    return data and section.size > 0 and not section.name.startswith(_WRITTEN_BY_LOADERS)


@dataclass(slots=True)
class _Image:
    """Memory under construction. ``places`` are the offsets of the sections of an unlinked file."""

    elf: ElfFile
    data: bytearray
    code: list[tuple[int, int]]
    places: Mapping[int, int] | None
    pointers: list[tuple[int, int]]

    def address(self, symbol: Symbol) -> int | None:
        """Return the offset of a symbol, ``None`` if it is not defined in this file or not in memory."""
        if not isinstance(symbol.section, int):
            return None
        if self.places is None:
            return symbol.value
        place = self.places.get(symbol.section)
        return None if place is None else place + symbol.value

    def relocate(self) -> None:
        for entry in self.elf.relocations:
            if self.places is None:
                self._apply(entry, entry.offset)
            elif entry.section is not None and entry.section in self.places:  # others are not loaded
                self._apply(entry, self.places[entry.section] + entry.offset)

    def _apply(self, entry: RelocationEntry, place: int) -> None:
        name = RELOCATIONS.get(entry.type, f"number {entry.type}")
        if entry.type == 0:
            return
        if entry.type not in _SIZES:
            raise PackageError(
                f"the code object needs relocation {name} at {place:#x}; only"
                f" {', '.join(RELOCATIONS[kind] for kind in _SIZES)} can be applied here, so link it first"
            )
        size = _SIZES[entry.type]
        if not 0 <= place <= len(self.data) - size:
            raise PackageError(f"relocation {name} at {place:#x} is outside the image; the file is damaged")
        value = self._target(entry, name) + entry.addend
        if entry.type in (_ABS64, _RELATIVE64):
            self.pointers.append((place, value))
        else:
            shifted = value - place >> (32 if entry.type == _REL32_HI else 0)
            self.data[place : place + size] = (shifted & (1 << 8 * size) - 1).to_bytes(size, "little")

    def _target(self, entry: RelocationEntry, name: str) -> int:
        """Return the offset that the symbol of a relocation has; RELATIVE64 is relative to the image."""
        if entry.type == _RELATIVE64:
            return 0
        address = self.address(entry.symbol) if entry.symbol is not None else None
        if address is None:
            what = repr(entry.symbol.name) if entry.symbol is not None else "no symbol"
            raise PackageError(
                f"relocation {name} at {entry.offset:#x} refers to {what}, which the code object does not"
                " define; link it with what does"
            )
        return address


def _linked(elf: ElfFile) -> _Image:
    """Return the image of a linked file: its segments, which must not overlap."""
    if not elf.segments:
        raise PackageError("the code object has no segment to load; it is damaged")
    end = 0
    for segment in sorted(elf.segments, key=lambda segment: segment.address):
        if segment.address < end:
            raise PackageError(f"two segments overlap at {segment.address:#x}; the file is damaged")
        end = segment.address + segment.size
    data = bytearray(_padded(end))
    for segment in elf.segments:
        data[segment.address : segment.address + len(segment.data)] = segment.data
    code = [(s.address, s.address + s.size) for s in elf.segments if s.executable]
    return _Image(elf, data, code, None, [])


def _relocatable(elf: ElfFile) -> _Image:
    """Return the image of an unlinked file: its sections one after the other, code last."""
    sections = sorted((s for s in elf.sections if s.allocated and s.size), key=lambda s: s.executable)
    places: dict[int, int] = {}
    end = 0
    for section in sections:
        end = _aligned(end, section)
        places[section.index] = end
        end += section.size
        if end > LARGEST_IMAGE:
            raise PackageError(f"the sections of the code object take {end} bytes; the file is damaged")
    data = bytearray(_padded(end))
    for section in sections:
        place = places[section.index]
        data[place : place + len(section.data)] = section.data
    code = [(places[s.index], places[s.index] + s.size) for s in sections if s.executable]
    return _Image(elf, data, code, places, [])


def _aligned(end: int, section: Section) -> int:
    if section.align & (section.align - 1) or section.align > PAGE:
        raise PackageError(
            f"section {section.name!r} is aligned to {section.align}, which is no power of two up to {PAGE}"
        )
    return (end + section.align - 1) // section.align * section.align


def _padded(end: int) -> int:
    return (end + PREFETCH + PAGE - 1) // PAGE * PAGE


def _metadata(elf: ElfFile) -> Metadata | None:
    if len(elf.notes) > 1:
        raise PackageError(f"the code object has {len(elf.notes)} notes with metadata instead of one")
    return decode_metadata(elf.notes[0]) if elf.notes else None


def _named(elf: ElfFile, image: _Image) -> dict[str, int]:
    found = {}
    for symbol in elf.symbols:
        address = image.address(symbol)
        if symbol.name and symbol.type in ("STT_FUNC", "STT_OBJECT") and address is not None:
            found[symbol.name] = address
    return found


def _kernels(elf: ElfFile, image: _Image, metadata: Metadata | None) -> Iterator[Kernel]:
    """Yield a kernel for each descriptor; each kernel of the metadata must have one."""
    described = {kernel.symbol: kernel for kernel in metadata.kernels} if metadata else {}
    names = set()
    for symbol in elf.symbols:
        address = image.address(symbol)
        if not symbol.name.endswith(".kd") or symbol.type != "STT_OBJECT" or address is None:
            continue
        names.add(symbol.name)
        yield _kernel(symbol.name, address, image, described.get(symbol.name))
    missing = described.keys() - names
    if missing:
        raise PackageError(f"the metadata names descriptors that do not exist: {', '.join(sorted(missing))}")


def _driven(arch: str) -> Target:
    """Return the target of an architecture; :class:`PackageError` if its registers are not known here."""
    try:
        target = target_from_arch(arch)
        generation_of(target)
    except UnsupportedDevice as error:
        raise PackageError(f"the code object cannot be used here: {error}") from None
    return target


def _kernel(symbol: str, address: int, image: _Image, metadata: KernelMetadata | None) -> Kernel:
    name = metadata.name if metadata else symbol.removesuffix(".kd")
    where = f"descriptor of kernel {name!r}"
    if not 0 <= address <= len(image.data) - SIZE or address % 64:
        raise PackageError(
            f"the {where} at {address:#x} is outside the image or not aligned to 64; damaged file"
        )
    data = bytes(image.data[address : address + SIZE])
    descriptor = unpack_descriptor(data, target=_driven(image.elf.arch), where=where)
    entry = address + descriptor.entry_offset
    if not any(start <= entry < end for start, end in image.code):
        raise PackageError(f"kernel {name!r} starts at {entry:#x}, which is no code; the file is damaged")
    if metadata and metadata.wavefront_size != descriptor.wave:
        raise PackageError(
            f"kernel {name!r} has waves of {descriptor.wave} lanes by its descriptor and of"
            f" {metadata.wavefront_size} by the metadata"
        )
    return Kernel(name, address, descriptor, entry, metadata)
