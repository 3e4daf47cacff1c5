"""Writes code objects from a description, so that tests can also write wrong ones."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from ringfence.hardware.amd.descriptor import KernelDescriptor
from ringfence.hardware.amd.metadata import Metadata, encode_metadata

PROGBITS, SYMTAB, STRTAB, RELA, NOBITS, NOTE, DYNSYM = 1, 2, 3, 4, 8, 7, 11
WRITE, ALLOC, EXEC = 1, 2, 4
OBJECT, FUNC = 1, 2
REL, DYN = 1, 3

DESCRIPTOR = KernelDescriptor(
    group_segment_fixed_size=0,
    private_segment_fixed_size=0,
    kernarg_size=16,
    entry_offset=0,
    rsrc3=0,
    rsrc1=0xE0AF0000,
    rsrc2=0x84,
    properties=0x408,
)
END = (0xBFB00000).to_bytes(4, "little")


@dataclass
class Part:
    """A section. ``size`` may exceed the data of a section of zeros."""

    name: str
    data: bytes = b""
    kind: int = PROGBITS
    flags: int = ALLOC
    align: int = 8
    address: int = 0
    size: int | None = None
    link: str = ""
    info: str = ""
    entry: int = 0


@dataclass
class Elf:
    """A whole file; the attributes are the fields of its header and what follows it."""

    parts: list[Part] = field(default_factory=list)
    symbols: list[tuple[str, str, int, int, int]] = field(default_factory=list)
    """(name, section or "" if undefined, value, size, type)"""
    relocations: dict[str, list[tuple[int, int, str, int]]] = field(default_factory=dict)
    """section to patch -> (offset, type, symbol, addend)"""
    segments: list[tuple[int, int, bytes, int]] = field(default_factory=list)
    """(address, size, data, flags: 1 executable, 2 writable, 4 readable)"""
    metadata: Metadata | bytes | None = None
    kind: int = REL
    machine: int = 224
    osabi: int = 64
    abi: int = 3
    flags: int = 0x41
    class_: int = 2

    def write(self) -> bytes:
        """Return the file."""
        parts = [Part("", kind=0, flags=0, align=0), *self.parts, *self._notes()]
        names = [part.name for part in parts]
        for name, records in self.relocations.items():
            data = b"".join(self._record(*record) for record in records)
            parts.append(Part(f".rela{name}", data, RELA, 0, link=".symtab", info=name, entry=24))
        table, strings = self._table(names)
        parts += [Part(".symtab", table, SYMTAB, 0, link=".strtab", entry=24)]
        parts += [Part(".strtab", strings, STRTAB, 0, align=1)]
        return self._assemble(parts)

    def _notes(self) -> list[Part]:
        if self.metadata is None:
            return []
        data = self.metadata if isinstance(self.metadata, bytes) else encode_metadata(self.metadata)
        note = struct.pack("<III8s", 7, len(data), 32, b"AMDGPU") + data + bytes(-len(data) % 4)
        return [Part(".note", note, NOTE, ALLOC, 4)]

    def _record(self, offset: int, kind: int, symbol: str, addend: int) -> bytes:
        index = 1 + [name for name, *_ in self.symbols].index(symbol) if symbol else 0
        return struct.pack("<QQq", offset, index << 32 | kind, addend)

    def _table(self, names: list[str]) -> tuple[bytes, bytes]:
        table, strings = bytes(24), b"\0"
        for name, section, value, size, kind in self.symbols:
            index = names.index(section) if section else 0
            table += struct.pack("<IBBHQQ", len(strings), 1 << 4 | kind, 0, index, value, size)
            strings += name.encode() + b"\0"
        return table, strings

    def _assemble(self, parts: list[Part]) -> bytes:
        parts.append(Part(".shstrtab", b"", STRTAB, 0, align=1))
        names = "\0".join(part.name for part in parts) + "\0"
        parts[-1].data = names.encode()
        body, headers, programs = bytearray(64 + 56 * len(self.segments)), b"", b""
        for address, size, data, flags in self.segments:
            programs += struct.pack("<IIQQQQQQ", 1, flags, len(body), address, address, len(data), size, 4096)
            body += data
        index = {part.name: number for number, part in enumerate(parts)}
        place = 0
        for part in parts:
            size = len(part.data) if part.size is None else part.size
            headers += struct.pack(
                "<IIQQQQIIQQ",
                place,
                part.kind,
                part.flags,
                part.address,
                len(body),
                size,
                index[part.link] if part.link else 0,
                index[part.info] if part.info else 0,
                part.align,
                part.entry,
            )
            place += len(part.name) + 1
            body += part.data
        body[64 : 64 + len(programs)] = programs
        ident = bytes([0x7F, *b"ELF", self.class_, 1, 1, self.osabi, self.abi]).ljust(16, b"\0")
        numbers = (
            64 if self.segments else 0,
            len(body),
            self.flags,
            64,
            56,
            len(self.segments),
            64,
            len(parts),
        )
        body[:64] = struct.pack(
            "<16sHHIQQQIHHHHHH", ident, self.kind, self.machine, 1, 0, *numbers, len(parts) - 1
        )
        return bytes(body + headers)


def kernel_object(name: str = "k", **changes: object) -> Elf:
    """Return an unlinked file with one kernel, which ends at once."""
    elf = Elf(
        [
            Part(".text", END * 64, flags=ALLOC | EXEC, align=256),
            Part(".rodata", DESCRIPTOR.pack(), align=64),
        ],
        [(name, ".text", 0, 4, FUNC), (f"{name}.kd", ".rodata", 0, 64, OBJECT)],
        {".rodata": [(16, 5, name, 16)]},
    )
    for key, value in changes.items():
        setattr(elf, key, value)
    return elf
