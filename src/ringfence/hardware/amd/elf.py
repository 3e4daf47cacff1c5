"""Reads the ELF container of AMD code objects into plain data, and refuses what is not one.

Sources: LLVM ``AMDGPUUsage.rst`` (ELF Code Object), ``llvm/BinaryFormat/ELF.h`` for the machine numbers.
pyelftools does the parsing.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ringfence.errors import PackageError

MACHINE = 224
"""e_machine of AMD GPUs."""
OSABI_HSA = 64
ABI_VERSIONS = {2: 4, 3: 5, 4: 6}
"""EI_ABIVERSION -> version of the code object."""
MACHINES = {
    0x3F: "gfx90a",
    0x4C: "gfx942",
    0x4F: "gfx950",
    0x36: "gfx1030",
    0x41: "gfx1100",
    0x46: "gfx1101",
    0x47: "gfx1102",
    0x44: "gfx1103",
    0x43: "gfx1150",
    0x4A: "gfx1151",
    0x55: "gfx1152",
    0x58: "gfx1153",
    0x48: "gfx1200",
    0x4E: "gfx1201",
}
"""e_flags bits 7:0 -> architecture."""
LARGEST_IMAGE = 1 << 30

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the file that is loaded: ``data`` at ``address``, followed by zeros up to ``size`` bytes."""

    address: int
    size: int
    data: bytes
    executable: bool
    writable: bool


@dataclass(frozen=True, slots=True)
class Section:
    """A section; ``data`` is empty for one of zeros."""

    index: int
    name: str
    type: str
    address: int
    size: int
    align: int
    allocated: bool
    executable: bool
    writable: bool
    data: bytes


@dataclass(frozen=True, slots=True)
class Symbol:
    """A symbol. ``section`` is an index, or ``SHN_UNDEF``, ``SHN_ABS`` ..., ``type`` as in ``STT_FUNC``."""

    name: str
    value: int
    size: int
    type: str
    section: int | str


@dataclass(frozen=True, slots=True)
class RelocationEntry:
    """A relocation record as the file has it; ``section`` is the section to patch, if the file says so."""

    offset: int
    type: int
    symbol: Symbol | None
    addend: int
    section: int | None


@dataclass(frozen=True, slots=True)
class ElfFile:
    """The parts of an ELF file that loading needs."""

    arch: str
    version: int
    flags: int
    relocatable: bool
    segments: tuple[Segment, ...]
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[RelocationEntry, ...]
    notes: tuple[bytes, ...]
    """Descriptors of the AMDGPU metadata notes."""


def read_elf(data: bytes) -> ElfFile:
    """Return the contents of a code object.

    Raises :class:`PackageError` if it is not a 64-bit little-endian ELF file for the HSA of a known AMD GPU,
    or is damaged.
    """
    from elftools.elf.elffile import ELFFile

    _check_ident(data)
    file = _guard("header", lambda: ELFFile(io.BytesIO(data)))
    header = _guard("header", lambda: file.header)
    arch, version = _check_header(header, data)
    relocatable = header["e_type"] == "ET_REL"
    return ElfFile(
        arch,
        version,
        header["e_flags"],
        relocatable,
        () if relocatable else _guard("segments", lambda: tuple(_segments(file, data))),
        _guard("sections", lambda: tuple(_sections(file, data))),
        _guard("symbols", lambda: tuple(_symbols(file))),
        _guard("relocations", lambda: tuple(_relocations(file))),
        _guard("notes", lambda: tuple(_notes(file))),
    )


def _guard(what: str, read: Callable[[], _T]) -> _T:
    """Return what ``read`` returns. On damaged files pyelftools raises all kinds of exceptions."""
    try:
        return read()
    except PackageError:
        raise
    except Exception as error:
        raise PackageError(
            f"the {what} of the code object cannot be read ({type(error).__name__}: {error});"
            " the file was cut or is damaged"
        ) from error


def _check_ident(data: bytes) -> None:
    """Check the bytes that say what the rest is."""
    if data[:4] != b"\x7fELF":
        raise PackageError(f"not a code object: it starts with {data[:4].hex()} instead of 7f454c46 (ELF)")
    if len(data) < 64:
        raise PackageError(f"the code object has {len(data)} bytes, less than an ELF header; it was cut")
    if data[4:7] != b"\x02\x01\x01":
        raise PackageError(
            f"not a code object: ELF class, byte order and version are {data[4:7].hex()} instead of 020101"
            " (64-bit, little-endian, 1)"
        )


def _check_header(header: Any, data: bytes) -> tuple[str, int]:
    """Return architecture and code object version."""
    machine = header["e_machine"]
    if machine not in ("EM_AMDGPU", MACHINE):
        raise PackageError(f"the ELF file is for machine {machine}, not for AMD GPUs ({MACHINE})")
    osabi, abi = data[7:9]
    if osabi != OSABI_HSA:
        raise PackageError(
            f"the ELF file is for OS ABI {osabi}, not for HSA ({OSABI_HSA}); compile for amdhsa"
        )
    version = ABI_VERSIONS.get(abi)
    if version is None:
        known = ", ".join(f"{number} (V{name})" for number, name in ABI_VERSIONS.items())
        raise PackageError(f"the code object has ABI version {abi}; known are {known}")
    arch = MACHINES.get(header["e_flags"] & 0xFF)
    if arch is None:
        raise PackageError(
            f"the code object is for GPU {header['e_flags'] & 0xFF:#x}, which is not among"
            f" {', '.join(MACHINES.values())}"
        )
    if header["e_type"] not in ("ET_DYN", "ET_REL"):
        raise PackageError(
            f"the ELF file has type {header['e_type']}; a code object is ET_DYN (linked) or ET_REL (not yet)"
        )
    return arch, version


def _segments(file: Any, data: bytes) -> Iterator[Segment]:
    for segment in file.iter_segments("PT_LOAD"):
        header = segment.header
        address, size, start, held = (header[k] for k in ("p_vaddr", "p_memsz", "p_offset", "p_filesz"))
        if held > size or start + held > len(data):
            raise PackageError(
                f"a segment of {held} bytes at {start:#x} for {size} bytes of memory does not fit the file"
                f" of {len(data)} bytes; it was cut"
            )
        if address + size > LARGEST_IMAGE:
            raise PackageError(f"a segment ends at address {address + size:#x}; the file is damaged")
        content, flags = data[start : start + held], header["p_flags"]
        yield Segment(address, size, content, bool(flags & 1), bool(flags & 2))


def _sections(file: Any, data: bytes) -> Iterator[Section]:
    for index in range(file.num_sections()):
        section = file.get_section(index)
        header = section.header
        start, size, flags = header["sh_offset"], header["sh_size"], header["sh_flags"]
        held = 0 if header["sh_type"] in ("SHT_NOBITS", "SHT_NULL") else size
        if start + held > len(data) or size > LARGEST_IMAGE:
            raise PackageError(
                f"section {section.name!r} of {size} bytes at {start:#x} does not fit the file of {len(data)}"
                " bytes; it was cut"
            )
        yield Section(
            index,
            section.name,
            str(header["sh_type"]),
            header["sh_addr"],
            size,
            max(1, header["sh_addralign"]),
            bool(flags & 2),
            bool(flags & 4),
            bool(flags & 1),
            data[start : start + held],
        )


def _symbol(symbol: Any) -> Symbol:
    entry = symbol.entry
    return Symbol(
        symbol.name, entry["st_value"], entry["st_size"], str(entry["st_info"]["type"]), entry["st_shndx"]
    )


def _symbols(file: Any) -> Iterator[Symbol]:
    """Yield the symbols of the full table, or of the dynamic one if the file was stripped."""
    for name in (".symtab", ".dynsym"):
        table = file.get_section_by_name(name)
        if table is not None:
            for symbol in table.iter_symbols():
                yield _symbol(symbol)
            return


def _relocations(file: Any) -> Iterator[RelocationEntry]:
    relocatable = file.header["e_type"] == "ET_REL"
    for section in file.iter_sections("SHT_RELA"):
        table = file.get_section(section["sh_link"]) if section["sh_link"] else None
        for record in section.iter_relocations():
            index = record["r_info_sym"]
            symbol = _symbol(table.get_symbol(index)) if index and table is not None else None
            target = section["sh_info"] if relocatable else None
            yield RelocationEntry(
                record["r_offset"], record["r_info_type"], symbol, record["r_addend"], target
            )
    for section in file.iter_sections("SHT_REL"):
        raise PackageError(
            f"section {section.name!r} has relocations without addend, which code objects do not use"
        )


def _notes(file: Any) -> Iterator[bytes]:
    for section in file.iter_sections("SHT_NOTE"):
        for note in section.iter_notes():
            if note["n_name"] == "AMDGPU" and note["n_type"] in (32, "NT_AMDGPU_METADATA"):
                description = note["n_descdata"]
                yield description if isinstance(description, bytes) else description.encode("latin-1")
