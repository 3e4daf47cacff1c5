"""How RDNA3 encodings are declared: the bits of each format, and rows made from a signature.

Source of the bit positions: AMD "RDNA3 Instruction Set Architecture", chapter 15; which bits of an
instruction must be zero follows LLVM (``VOPInstructions.td``, ``SOPInstructions.td`` and their like).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ringfence.hardware import encoding
from ringfence.hardware.encoding import Bits, Fixed, bit, place

SIZES = {
    "b64": 2,
    "i64": 2,
    "u64": 2,
    "f64": 2,
    "b96": 3,
    "b128": 4,
    "b160": 5,
    "b256": 8,
    "b512": 16,
}
"""Dwords of the types that are wider than one; a ``mask`` has one per 32 lanes."""
HALVES = frozenset({"b16", "i16", "u16", "f16"})
FLOATS = frozenset({"f16", "f32", "f64"})


@dataclass(frozen=True, slots=True)
class Slot:
    """Where an operand is encoded.

    ``reader`` says how the field becomes an operand, ``field`` names it (empty for an implicit operand) and
    ``type`` is that of :class:`Operand`.
    """

    reader: str
    field: str
    type: str


@dataclass(frozen=True, slots=True)
class Row(encoding.Encoding):
    """A row of the decode table of one format.

    ``unused`` are the bits of operand fields that the format has but this instruction does not use: hardware
    ignores them, so they are neither in ``mask`` nor refused. ``dpp`` says whether the first source can be a
    permutation.
    """

    format: str
    unused: int
    dsts: tuple[Slot, ...]
    srcs: tuple[Slot, ...]
    dpp: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Instructions that have the same signature.

    ``signature`` reads ``destinations = sources``. A type followed by ``.s`` is a scalar register or constant
    (``.i``: but no literal), by ``.v`` a vector register, by ``.m`` has the modifiers neg and abs although it
    is no float. ``flags`` are the optional fields: ``clamp``, ``omod``, ``op_sel``; ``nodpp`` forbids a
    permutation and ``e32`` the 64-bit form of a VOP1 or VOP2.
    """

    signature: str
    flags: str
    opcodes: Mapping[str, int]

    @property
    def dsts(self) -> list[str]:
        return self.signature.split("=")[0].split()

    @property
    def srcs(self) -> list[str]:
        return self.signature.split("=")[1].split()

    def has(self, flag: str) -> bool:
        return flag in self.flags.split()


Fields = Mapping[str, Bits]


@dataclass(frozen=True, slots=True)
class Format:
    """One instruction format: how its first word is recognised, and the bits that differ between rows.

    ``prefix`` holds the identifying bits, ``width`` is 32 or 64, ``opcode`` locates the opcode, ``operands``
    are the register and immediate fields, which an instruction may leave unused.
    """

    name: str
    prefix: Fixed
    opcode: Bits
    width: int
    operands: tuple[Bits, ...] = ()

    def row(
        self,
        name: str,
        opcode: int,
        form: str,
        fields: Fields,
        dsts: Iterable[Slot] = (),
        srcs: Iterable[Slot] = (),
        *,
        fixed: Fixed | None = None,
        dpp: bool = False,
    ) -> Row:
        """Return a row; other bits must be zero, but those of operand fields that it does not use."""
        values = {**self.prefix, (self.opcode.low, self.opcode.high): opcode, **(fixed or {})}
        mask, match, key = place(name, fields, values, self.width)
        unused = mask & ~key & sum(bits.mask for bits in self.operands)
        return Row(
            name,
            form,
            dict(fields),
            mask & ~unused,
            match,
            key,
            self.name,
            unused,
            tuple(dsts),
            tuple(srcs),
            dpp,
        )


# Operand fields by format. Vector registers and scalar registers are numbers, sources are codes.
SDST: Fields = {"SDST": Bits(16, 22)}
SSRC: Fields = {"SSRC0": Bits(0, 7), "SSRC1": Bits(8, 15)}
SIMM16: Fields = {"SIMM16": Bits(0, 15)}
VECTOR32: Fields = {"SRC0": Bits(0, 8), "VSRC1": Bits(9, 16), "VDST": Bits(17, 24)}
SOURCES: Fields = {"SRC0": Bits(32, 40), "SRC1": Bits(41, 49), "SRC2": Bits(50, 58)}
VDST: Fields = {"VDST": Bits(0, 7)}
VOP3_SDST: Fields = {"SDST": Bits(0, 6)}
VOP3SD_SDST: Fields = {"SDST": Bits(8, 14)}
SMEM_OPERANDS: Fields = {
    "SBASE": Bits(0, 5),
    "SDATA": Bits(6, 12),
    "OFFSET": Bits(32, 52, signed=True),
    "SOFFSET": Bits(57, 63),
}
DS_OPERANDS: Fields = {
    "OFFSET": Bits(0, 15),
    "ADDR": Bits(32, 39),
    "DATA0": Bits(40, 47),
    "DATA1": Bits(48, 55),
    "VDST": Bits(56, 63),
}
FLAT_OPERANDS: Fields = {"ADDR": Bits(32, 39), "DATA": Bits(40, 47), "VDST": Bits(56, 63)}
MUBUF_OPERANDS: Fields = {
    "OFFSET": Bits(0, 11),
    "VADDR": Bits(32, 39),
    "VDATA": Bits(40, 47),
    "SRSRC": Bits(48, 52),
    "SOFFSET": Bits(56, 63),
}
# Modifier fields of the 64-bit vector formats.
CLAMP: Fields = {"CLAMP": bit(15)}
OMOD: Fields = {"OMOD": Bits(59, 60)}


def _all(fields: Fields) -> tuple[Bits, ...]:
    return tuple(fields.values())


SOP2 = Format("sop2", {(30, 31): 0b10}, Bits(23, 29), 32)
SOPK = Format("sopk", {(28, 31): 0b1011}, Bits(23, 27), 32, _all(SDST))
SOP1 = Format("sop1", {(23, 31): 0b101111101}, Bits(8, 15), 32, (SDST["SDST"], SSRC["SSRC0"]))
SOPC = Format("sopc", {(23, 31): 0b101111110}, Bits(16, 22), 32)
SOPP = Format("sopp", {(23, 31): 0b101111111}, Bits(16, 22), 32, _all(SIMM16))
SMEM = Format("smem", {(26, 31): 0b111101}, Bits(18, 25), 64, _all(SMEM_OPERANDS))
VOP1 = Format("vop1", {(25, 31): 0b0111111}, Bits(9, 16), 32, (VECTOR32["SRC0"], VECTOR32["VDST"]))
VOP2 = Format("vop2", {(31, 31): 0}, Bits(25, 30), 32)
VOPC = Format("vopc", {(25, 31): 0b0111110}, Bits(17, 24), 32)
VOP3 = Format("vop3", {(26, 31): 0b110101}, Bits(16, 25), 64, _all(SOURCES))
VOP3SD = Format("vop3sd", {(26, 31): 0b110101}, Bits(16, 25), 64, _all(SOURCES))
VOP3P = Format("vop3p", {(23, 31): 0b110011000}, Bits(16, 22), 64, _all(SOURCES))
VINTERP = Format("vinterp", {(24, 31): 0b11001101}, Bits(16, 22), 64, _all(SOURCES))
VOPD = Format("vopd", {(26, 31): 0b110010}, Bits(22, 25), 64)
DS = Format("ds", {(26, 31): 0b110110}, Bits(18, 25), 64, _all(DS_OPERANDS))
FLAT = Format("flat", {(26, 31): 0b110111, (16, 17): 0}, Bits(18, 24), 64, _all(FLAT_OPERANDS))
SCRATCH = Format("scratch", {(26, 31): 0b110111, (16, 17): 1}, Bits(18, 24), 64, _all(FLAT_OPERANDS))
GLOBAL = Format("global", {(26, 31): 0b110111, (16, 17): 2}, Bits(18, 24), 64, _all(FLAT_OPERANDS))
MUBUF = Format("mubuf", {(26, 31): 0b111000}, Bits(18, 25), 64, _all(MUBUF_OPERANDS))

# Most specific first: SOP1, SOPC, SOPP and SOPK are SOP2 with otherwise unused opcodes, VOP1 and VOPC VOP2.
FORMATS: Mapping[str, Format] = {
    fmt.name: fmt
    for fmt in (
        *(SOP1, SOPC, SOPP, SOPK, SOP2, VOP1, VOPC, VOP2, SMEM, VOP3, VOP3SD, VOP3P, VOPD, DS, FLAT, SCRATCH),
        *(GLOBAL, MUBUF, VINTERP),
    )
}
"""The formats by name, in the order in which the first word is compared with their prefixes."""

UNSUPPORTED = {
    (0xFF000000, 0xCE000000): "LDSDIR (parameter load)",
    (0xFC000000, 0xE8000000): "MTBUF (typed buffer)",
    (0xFC000000, 0xF0000000): "MIMG (image)",
    (0xFC000000, 0xF8000000): "EXP (export)",
}
"""(mask, match) of the first word -> what the instruction is. No compute kernel without images uses them."""

DPP16: Fields = {
    "VSRC0": Bits(0, 7),
    "CONTROL": Bits(8, 16),
    "FI": bit(18),
    "BOUND_CTRL": bit(19),
    "NEG0": bit(20),
    "ABS0": bit(21),
    "NEG1": bit(22),
    "ABS1": bit(23),
    "BANK_MASK": Bits(24, 27),
    "ROW_MASK": Bits(28, 31),
}
"""The dword after an instruction whose first source is 250."""
DPP_CONTROLS = frozenset(
    [
        *range(0x100),
        *range(0x101, 0x110),
        *range(0x111, 0x120),
        *range(0x121, 0x130),
        *range(0x140, 0x144),
        *range(0x150, 0x170),
    ]
)
"""The values of dpp_ctrl that are permutations.

0x142 and 0x143 (row_bcast:15 and :31) are documented for gfx9 only; tinygrad's instruction tests use them.
"""


def split(type_: str) -> tuple[str, str]:
    """Return the type and the suffix of a signature word."""
    name, _, suffix = type_.partition(".")
    return name, suffix


def modifiers(srcs: Iterable[str]) -> Fields:
    """Return the neg and abs bits of the sources that have them."""
    fields: dict[str, Bits] = {}
    for index, word in enumerate(srcs):
        name, suffix = split(word)
        if name in FLOATS or suffix == "m":
            fields[f"ABS{index}"] = bit(8 + index)
            fields[f"NEG{index}"] = bit(61 + index)
    return fields


def half_selects(dsts: Iterable[str], srcs: Iterable[str]) -> Fields:
    """Return the op_sel bits of a VOP3 instruction: one for each operand of 16 bits."""
    fields = {f"HI{i}": bit(11 + i) for i, word in enumerate(srcs) if split(word)[0] in HALVES}
    if any(split(word)[0] in HALVES for word in dsts):
        fields["HI_DST"] = bit(14)
    return fields
