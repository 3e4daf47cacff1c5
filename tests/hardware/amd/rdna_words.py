"""Makes instruction words from the decode tables: each field gets values that are likely to be legal."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from itertools import islice

from ringfence.hardware.amd.rdna import Instruction, UnknownInstruction, decode
from ringfence.hardware.amd.rdna.encoding import Row
from ringfence.hardware.amd.rdna.tables import rows
from ringfence.hardware.encoding import Bits

_WIDE_SOURCES = ("SRC0", "SRC1", "SRC2")
_SCALAR_SOURCES = ("SSRC0", "SSRC1")
_SCALARS = ("SDST", "SDATA", "SOFFSET", "SADDR")
_VECTORS = ("VDST", "VSRC1", "ADDR", "DATA", "DATA0", "DATA1", "VADDR", "VDATA")
_CONSTANTS = (128, 129, 192, 193, 208, 240, 242, 243, 248, 253, 255)
_LONG = ("smem", "vop3", "vop3sd", "vop3p", "vinterp", "ds", "flat", "global", "scratch", "mubuf")
_PERMUTATIONS = (0, 0xE4, 0x1B, 0x101, 0x118, 0x12F, 0x140, 0x141, 0x150, 0x16F)


def _value(rng: random.Random, name: str, bits: Bits) -> int:
    """Return a value for a field; those that the instruction cannot have are only sometimes among them."""
    full = bits.mask >> bits.low
    if bits.values is not None:
        return rng.choice(sorted(bits.values))
    if name in _WIDE_SOURCES:
        vector, scalar = 256 + rng.randrange(0, 240, 8), rng.randrange(0, 104, 4)
        return rng.choice([vector, vector, vector + 5, scalar, 106, 124, rng.choice(_CONSTANTS), 233, 250])
    if name in _SCALAR_SOURCES:
        return rng.choice([rng.randrange(0, 104, 4), 106, 124, 125, 126, rng.choice(_CONSTANTS)])
    if name in _SCALARS:
        return rng.choice([0, 4, 16, 32, 100, 106, 108, 124, rng.randrange(full + 1)]) & full
    if name in _VECTORS:
        return rng.choice([0, 1, 8, 127, 128, 200, rng.randrange(full + 1)])
    return rng.choice([0, 1, full, rng.randrange(full + 1), rng.randrange(full + 1)])


def _extra(rng: random.Random) -> int:
    """Return a dword that serves as literal or as permutation."""
    literal = rng.choice([0, 1, 0x3C00, 0x3F800000, 0x12345678, rng.getrandbits(32)])
    flags = rng.choice([0, 0, 1 << 18, 1 << 19])
    control = rng.choice(_PERMUTATIONS) << 8
    return rng.choice([literal, rng.randrange(256) | control | flags | rng.randrange(256) << 24])


def words_of(rng: random.Random, row: Row) -> bytes:
    """Return code that starts with an instruction of the row, followed by a literal or permutation."""
    word = row.match
    for name, bits in row.fields.items():
        value = _value(rng, name, bits)
        if row.format == "vinterp" and name in _WIDE_SOURCES:
            value |= 256  # LLVM takes vector registers only
        word |= (value << bits.low) & bits.mask
    return word.to_bytes(8 if row.format in _LONG else 4, "little") + struct.pack("<II", _extra(rng), 0)


def pair_of(rng: random.Random) -> bytes:
    """Return a VOPD, whose halves are not rows of a table."""
    sources = [256 + rng.randrange(0, 240, 4) + bank for bank in (0, 1)]
    if rng.random() < 0.3:
        sources[rng.randrange(2)] = rng.choice([4, 106, *_CONSTANTS])
    registers = [rng.randrange(0, 252, 4) + bank for bank in (0, 1)]
    first = 0xC8000000 | sources[0] | registers[0] << 9 | rng.randrange(19) << 17 | rng.randrange(14) << 22
    second = sources[1] | registers[1] << 9 | rng.randrange(128) << 17 | rng.randrange(256) << 24
    return struct.pack("<IIII", first, second, _extra(rng), 0)


def instructions(seed: int, per_row: int, *, wave: int = 32) -> Iterator[Instruction]:
    """Yield ``per_row`` instructions for each row, and pairs; words that are none are skipped."""
    rng = random.Random(seed)
    for table in rows().values():
        for row in table:
            made = (decoded for _ in range(60 * per_row) for decoded in _decoded(words_of(rng, row), wave))
            yield from islice(made, per_row)
    for _ in range(100 * per_row if wave == 32 else 0):
        yield from _decoded(pair_of(rng), wave)


def _decoded(code: bytes, wave: int) -> Iterator[Instruction]:
    try:
        yield decode(code, wave=wave)
    except UnknownInstruction:
        return
