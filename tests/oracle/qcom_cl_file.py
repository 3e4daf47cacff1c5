"""Files in the layout of Qualcomm's OpenCL compiler, around code that Mesa's assembler makes.

The layout is that of tinygrad's ``ops_qcom.py`` and ``extra/tinydreno.h``. What they do not give a meaning is
filled with noise here.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

SECTIONS = 12
HEADER_BYTES = 48 + 20 * SECTIONS
NOISE = 1729


@dataclass(frozen=True)
class Parameter:
    """A record of a parameter: the constant ``word`` of a buffer or number, or an image (kind 1 or 2)."""

    word: int = 0
    kind: int = 0
    length: int = 32


@dataclass(frozen=True)
class Constant:
    """A constant of 32 or 16 bits; ``index`` counts units of its own size."""

    value: int
    index: int
    is_32: int = 1


@dataclass(frozen=True)
class ClFile:
    """What a file holds. ``branch_stack`` is as it stands in the file."""

    name: str
    code: bytes
    full: int
    half: int = 0
    parameters: tuple[Parameter, ...] = ()
    constants: tuple[Constant, ...] = ()
    samplers: int = 0
    entry: int = 0
    private: int = 0
    shared: int = 0
    branch_stack: int = 0
    payload: list[range] = field(default_factory=list, compare=False)
    """Bytes of the file that are code or values of constants; :meth:`to_bytes` fills it."""

    def to_bytes(self) -> bytes:
        """Return the file: sections in the order registers, constants, code, kernel, without gaps."""
        registers = HEADER_BYTES
        constants = registers + 28
        code = constants + 40 * len(self.constants)
        kernel = code + len(self.code)
        offsets = {0: registers, 6: constants, 7: code, 11: kernel}
        sizes = {6: 40 * len(self.constants), 10: len(self.code)}
        self.payload[:] = [range(code, kernel), *(range(at, at + 4) for at in range(constants, code, 40))]
        return b"".join(
            (
                noise(24, 0),
                struct.pack("<I", SECTIONS),
                noise(20, 1),
                *(_section(k, offsets.get(k), sizes.get(k)) for k in range(SECTIONS)),
                noise(20, 2),
                struct.pack("<2I", self.full, self.half),
                *map(_constant, self.constants),
                self.code,
                self._kernel(kernel),
            )
        )

    def _kernel(self, start: int) -> bytes:
        fixed = bytearray(noise(0x158, 3))
        words = {
            0xC4: self.entry,
            0xC8: self.private,
            0xD8: self.shared,
            0xDC: self.samplers,
            0x108: self.branch_stack,
        }
        for at, value in words.items():
            struct.pack_into("<I", fixed, at, value)
        name = self.name.encode()
        padding = bytes(-(start + len(fixed) + len(name)) % 4)
        records = b"".join(map(_parameter, self.parameters))
        return bytes(fixed) + name + padding + noise(8 * self.samplers, 4) + records + bytes(32)


def noise(size: int, seed: int) -> bytes:
    return random.Random(NOISE + seed).randbytes(size)


def _section(index: int, offset: int | None, size: int | None) -> bytes:
    words = list(struct.unpack("<5I", noise(20, 100 + index)))
    words[1] = words[1] if offset is None else offset
    words[2] = words[2] if size is None else size
    return struct.pack("<5I", *words)


def _constant(constant: Constant) -> bytes:
    record = bytearray(noise(40, constant.index))
    struct.pack_into("<I", record, 0, constant.value)
    struct.pack_into("<I", record, 16, constant.index)
    struct.pack_into("<I", record, 24, constant.is_32)
    return bytes(record)


def _parameter(parameter: Parameter) -> bytes:
    record = bytearray(noise(parameter.length, parameter.word))
    struct.pack_into("<I", record, 0, parameter.length)
    struct.pack_into("<I", record, 12, parameter.word)
    struct.pack_into("<I", record, 28, parameter.kind)
    return bytes(record)


def flips(file: ClFile) -> Iterator[tuple[int, int, bytes]]:
    """Yield byte, bit and the file with that bit inverted, for every bit that is no payload."""
    data = file.to_bytes()
    payload = {byte for span in file.payload for byte in span}
    for byte in range(len(data)):
        if byte in payload:
            continue
        for bit in range(8):
            changed = bytearray(data)
            changed[byte] ^= 1 << bit
            yield byte, bit, bytes(changed)
