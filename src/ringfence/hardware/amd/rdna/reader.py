"""Reads the words of one instruction: which row they match, and what its fields name as operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from ringfence.hardware.amd.rdna import encoding
from ringfence.hardware.amd.rdna.encoding import (
    DPP16,
    DPP_CONTROLS,
    FORMATS,
    HALVES,
    SIZES,
    UNSUPPORTED,
    Format,
    Row,
    Slot,
)
from ringfence.hardware.amd.rdna.instruction import Dpp, Operand, UnknownInstruction
from ringfence.hardware.amd.rdna.tables import rows
from ringfence.hardware.encoding import Bits, Index

_LITERAL = 255
_DPP8 = (233, 234)
_DPP16 = 250
DPP_CODES = (*_DPP8, _DPP16)
_NULL = 124
_EXEC_LO = 126
_LAST_SGPR = 105
_FIRST_TTMP = 108
_LAST_TTMP = 123

# Registers of one dword by source code. The halves of VCC and EXEC are operands of their own.
_SINGLES: dict[int, tuple[str, int]] = {
    106: ("vcc", 0),
    107: ("vcc", 1),
    124: ("null", 0),
    125: ("m0", 0),
    126: ("exec", 0),
    127: ("exec", 1),
}
_PAIRS = {106: "vcc", 124: "null", 126: "exec"}
_SPECIAL = {
    235: "shared_base",
    236: "shared_limit",
    237: "private_base",
    238: "private_limit",
    252: "execz",
    253: "scc",
}


@cache
def _index(format_name: str) -> Index[Row]:
    table = rows()
    entries = table["vop3"] + table["vop3sd"] if format_name == "vop3" else table[format_name]
    return Index(entries, FORMATS[format_name].opcode)


def _identifying(fmt: Format) -> tuple[int, int]:
    """Return mask and match of the first word of a format."""
    mask = match = 0
    for (low, high), value in fmt.prefix.items():
        mask |= Bits(low, high).mask
        match |= value << low
    return mask, match


_PREFIXES = tuple((*_identifying(fmt), fmt) for fmt in FORMATS.values())


class Reader:
    """The words of one instruction together with the row that they match."""

    __slots__ = (
        "_code",
        "_literal",
        "dpp",
        "dpp_modifiers",
        "format",
        "pc",
        "row",
        "size",
        "unused",
        "wave",
        "word",
    )

    def __init__(self, code: bytes | memoryview, pc: int, wave: int) -> None:
        self._code = code
        self.pc = pc
        self.wave = wave
        self.size = 4
        self._literal: int | None = None
        self.dpp: Dpp | None = None
        self.dpp_modifiers: dict[str, int] = {}
        self.word = int.from_bytes(code[pc : pc + 4], "little")
        self.format = self._find_format()
        if self.format.width == 64:
            self.word |= self.more("the second half of the instruction") << 32
        self.row = self._find_row()
        self.unused = self.word & self.row.unused if self.row else 0

    def _find_format(self) -> Format:
        for mask, match, fmt in _PREFIXES:
            if self.word & mask == match:
                return fmt
        for (mask, match), what in UNSUPPORTED.items():
            if self.word & mask == match:
                raise self.refuse(mask, f"{what} instructions are not supported")
        raise self.refuse(0xFF800000, "no instruction format has these bits")

    def _find_row(self) -> Row | None:
        if self.format is encoding.VOPD:
            return None
        index = _index(self.format.name)
        row = index.find(self.word)
        if row is not None:
            return row
        opcode = self.format.opcode
        same = [row for row in index.rows if not row.wrong_bits(self.word) & opcode.mask]
        if not same:
            raise self.refuse(
                opcode.mask, f"{self.format.name.upper()} has no opcode {opcode.get(self.word)}"
            )
        wrong = min((row.wrong_bits(self.word) for row in same), key=int.bit_count)
        raise self.refuse(wrong, f"reserved bits of {same[0].name} are set")

    def more(self, what: str) -> int:
        """Return the next dword."""
        start = self.pc + self.size
        if start + 4 > len(self._code):
            raise self.refuse(0, f"the code ends before {what}")
        self.size += 4
        return int.from_bytes(self._code[start : start + 4], "little")

    @property
    def words(self) -> tuple[int, ...]:
        data = bytes(self._code[self.pc : self.pc + self.size])
        return tuple(int.from_bytes(data[k : k + 4], "little") for k in range(0, len(data), 4))

    @property
    def name(self) -> str:
        return self.row.name if self.row else "vopd"

    def refuse(self, bits: int, reason: str) -> UnknownInstruction:
        """Return the error that says that ``bits`` have no legal value."""
        return UnknownInstruction(self.pc, self.words, bits, reason)

    def refuse_field(self, name: str, reason: str) -> UnknownInstruction:
        row = self.row
        bits = row.fields[name].mask if row and name in row.fields else 0
        return self.refuse(bits, f"{name.lower()} of {self.name} {reason}")

    def ignore(self, name: str) -> None:
        """Note that the value of a field has no effect."""
        if self.row is not None:
            self.unused |= self.word & self.row.fields[name].mask

    def __contains__(self, name: str) -> bool:
        return self.row is not None and name in self.row.fields

    def __getitem__(self, name: str) -> int:
        assert self.row is not None
        bits = self.row.fields[name]
        value = bits.get(self.word)
        if bits.values is not None and value not in bits.values:
            raise self.refuse_field(name, f"cannot be {value}")
        return value

    def get(self, name: str, default: int = 0) -> int:
        """Return a field, ``default`` if this row does not have it."""
        return self[name] if name in self else default  # noqa: SIM401

    def literal(self) -> int:
        """Return the literal dword that follows the instruction, which all operands share."""
        if self._literal is None:
            self._literal = self.more("the literal of the instruction")
        return self._literal

    def operands(self) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
        """Return destinations and sources with their modifiers; reads the dwords after the instruction."""
        row = self.row
        assert row is not None
        self._read_dpp(row)
        dsts = tuple(self._half(slot, _READERS[slot.reader](self, slot), "HI_DST") for slot in row.dsts)
        srcs = tuple(self._modified(index, slot) for index, slot in enumerate(row.srcs))
        for name in row.fields:
            self[name]  # refuse values that are not in the field's list
        return dsts, srcs

    def _modified(self, index: int, slot: Slot) -> Operand:
        operand = _READERS[slot.reader](self, slot)
        number = slot.field[-1:]
        if not number.isdigit():
            return operand
        neg = self.get(f"NEG{number}") or self.dpp_modifiers.get(f"NEG{index}", 0)
        magnitude = self.get(f"ABS{number}") or self.dpp_modifiers.get(f"ABS{index}", 0)
        if neg or magnitude:
            operand = replace(operand, neg=bool(neg), abs=bool(magnitude))
        return self._half(slot, operand, f"HI{number}")

    def _half(self, slot: Slot, operand: Operand, field: str) -> Operand:
        return replace(operand, hi=True) if slot.field and self.get(field) else operand

    def _read_dpp(self, row: Row) -> None:
        """Read the permutation dword if the first source is one, before the other operands."""
        if "SRC0" not in row.fields:
            return
        code = self["SRC0"]
        if code not in DPP_CODES:
            return
        if not row.dpp:
            raise self.refuse_field("SRC0", "is a DPP permutation, which the instruction does not have")
        if "SRC1" in row.fields and self["SRC1"] < 256 and row.srcs[1].reader == "src":
            raise self.refuse_field("SRC1", "must be a vector register beside a DPP permutation")
        word = self.more("the DPP dword")
        self._read_dpp16(row, word) if code == _DPP16 else self._read_dpp8(code, word)

    def _read_dpp8(self, code: int, word: int) -> None:
        lanes = tuple(word >> (8 + 3 * k) & 7 for k in range(8))
        self.dpp = Dpp("dpp8", lanes=lanes, fetch_inactive=code == _DPP8[1])
        self._literal = word

    def _read_dpp16(self, row: Row, word: int) -> None:
        """Read a dpp16 dword; its modifiers belong to the 32-bit form of instructions on floats."""
        values = {name: bits.get(word) for name, bits in DPP16.items()}
        if values["CONTROL"] not in DPP_CONTROLS or word >> 17 & 1:
            raise self.refuse(
                (DPP16["CONTROL"].mask | 1 << 17) << self._dpp_shift,
                f"{row.name} has no permutation dpp_ctrl {values['CONTROL']:#x}",
            )
        allowed = _dpp_modifiers(row)
        wrong = [name for name in ("NEG0", "ABS0", "NEG1", "ABS1") if values[name] and name not in allowed]
        if wrong:
            raise self.refuse(
                sum(DPP16[name].mask for name in wrong) << self._dpp_shift,
                f"{row.name} does not have the modifiers {', '.join(wrong).lower()}",
            )
        self.dpp_modifiers = {name: values[name] for name in allowed}
        self.dpp = Dpp(
            "dpp16",
            values["CONTROL"],
            row_mask=values["ROW_MASK"],
            bank_mask=values["BANK_MASK"],
            bound_ctrl=bool(values["BOUND_CTRL"]),
            fetch_inactive=bool(values["FI"]),
        )
        self._literal = word

    @property
    def _dpp_shift(self) -> int:
        return self.format.width

    def vector(self, slot: Slot, number: int) -> Operand:
        """Return VGPR ``number``; 16-bit operands of the 32-bit formats name halves of the first 128."""
        size = self.size_of(slot.type)
        if number + size > 256:
            raise self.refuse_field(slot.field, f"is v[{number}:{number + size - 1}], which does not exist")
        if slot.type in HALVES and self.format.width == 32:
            return Operand("vgpr", number & 127, hi=bool(number >> 7), type=slot.type)
        return Operand("vgpr", number, size, type=slot.type)

    def scalar(self, slot: Slot, code: int) -> Operand:
        """Return the scalar register (group) that a code from 0 to 127 names."""
        size = self.size_of(slot.type)
        if size == 1 and code in _SINGLES:
            kind, number = _SINGLES[code]
            return Operand(kind, number, type=slot.type)
        if size == 2 and code in _PAIRS:
            return Operand(_PAIRS[code], 0, 2, type=slot.type)
        if code == _NULL and slot.reader == "sdst":
            return Operand("null", 0, size, type=slot.type)
        if code % min(size, 4):
            raise self.refuse_field(slot.field, f"is register {code}, not aligned for {size} dwords")
        if code + size - 1 <= _LAST_SGPR:
            return Operand("sgpr", code, size, type=slot.type)
        if code >= _FIRST_TTMP and code + size - 1 <= _LAST_TTMP:
            return Operand("ttmp", code - _FIRST_TTMP, size, type=slot.type)
        raise self.refuse_field(slot.field, f"names no register of {size} dwords ({code})")

    def constant(self, slot: Slot, code: int) -> Operand:
        """Return the constant that a source code from 128 to 255 names."""
        size = self.size_of(slot.type)
        if 128 <= code <= 208:
            return Operand("int", code - 128 if code <= 192 else 192 - code, size, type=slot.type)
        if 240 <= code <= 248:
            return Operand("float", code, size, type=slot.type)
        if code == _LITERAL:
            if self.dpp is not None:
                raise self.refuse_field(slot.field, "is a literal beside a DPP permutation")
            return Operand("literal", self.literal(), size, type=slot.type)
        if code in _SPECIAL:
            return Operand(_SPECIAL[code], 0, size, type=slot.type)
        raise self.refuse_field(slot.field, f"is source {code}, which does not exist")

    def source(self, slot: Slot, code: int) -> Operand:
        """Return what a 9-bit source code names."""
        if code >= 256:
            return self.vector(slot, code - 256)
        return self.scalar(slot, code) if code < 128 else self.constant(slot, code)

    def size_of(self, type_: str) -> int:
        """Return the dwords of a type, of which the mask and the matrix depend on the wave."""
        if type_ == "matrix":
            return 256 // self.wave
        return self.wave // 32 if type_ == "mask" else SIZES.get(type_, 1)


def _dpp_modifiers(row: Row) -> tuple[str, ...]:
    """Return the modifiers that the DPP dword of a row has: those of its 64-bit form have their own bits."""
    if row.format in ("vop3", "vop3sd", "vop3p"):
        return ()
    wide = _index("vop3")
    offsets = {"vop1": 384, "vop2": 256, "vopc": 0}
    opcode = FORMATS[row.format].opcode.get(row.match) + offsets[row.format]
    for other in wide.rows:
        if encoding.VOP3.opcode.get(other.match) == opcode:
            return tuple(name for name in ("NEG0", "ABS0", "NEG1", "ABS1") if name in other.fields)
    return ()


# Readers of operands, by Slot.reader


def _sdst(d: Reader, slot: Slot) -> Operand:
    return d.scalar(slot, d[slot.field])


def _ssrc(d: Reader, slot: Slot) -> Operand:
    return d.source(slot, d[slot.field])


def _sreg(d: Reader, slot: Slot) -> Operand:
    code = d[slot.field]
    if code > 127:
        raise d.refuse_field(slot.field, "must be a register")
    return d.scalar(slot, code)


def _sdata(d: Reader, slot: Slot) -> Operand:
    """Return the destination of a scalar load, which can be neither M0 nor EXEC."""
    if d[slot.field] > _NULL:
        raise d.refuse_field(slot.field, "cannot be M0 or EXEC")
    return d.scalar(Slot("sdst", slot.field, slot.type), d[slot.field])


def _vgpr(d: Reader, slot: Slot) -> Operand:
    return d.vector(slot, d[slot.field])


def _src(d: Reader, slot: Slot) -> Operand:
    code = d[slot.field]
    if slot.field == "SRC0" and d.dpp is not None:
        return d.vector(slot, d.literal() & 0xFF)
    return d.source(slot, code)


def _src_vector(d: Reader, slot: Slot) -> Operand:
    operand = _src(d, slot)
    if operand.kind != "vgpr":
        raise d.refuse_field(slot.field, "must be a vector register")
    return operand


def _src_vector_or_inline(d: Reader, slot: Slot) -> Operand:
    code = d[slot.field]
    if code < 128 or code == _LITERAL or code in _SPECIAL:
        raise d.refuse_field(slot.field, "must be a vector register or an inline constant")
    return d.source(slot, code)


def _src_scalar(d: Reader, slot: Slot) -> Operand:
    code = d[slot.field]
    if code >= 256:
        raise d.refuse_field(slot.field, "must be a scalar register or a constant")
    return d.source(slot, code)


def _src_scalar_or_inline(d: Reader, slot: Slot) -> Operand:
    if d[slot.field] == _LITERAL:
        raise d.refuse_field(slot.field, "cannot be a literal")
    return _src_scalar(d, slot)


def _mask(d: Reader, slot: Slot) -> Operand:
    code = d[slot.field]
    if code > 125:
        raise d.refuse_field(slot.field, "must be a scalar register other than EXEC, which holds a mask")
    return d.scalar(slot, code)


def _literal_operand(d: Reader, slot: Slot) -> Operand:
    return Operand("literal", d.literal(), type=slot.type)


def _vcc(d: Reader, slot: Slot) -> Operand:
    return Operand("vcc", 0, d.size_of("mask"), type="mask")


def _exec(d: Reader, slot: Slot) -> Operand:
    return Operand("exec", 0, d.size_of("mask"), type="mask")


def _sbase(d: Reader, slot: Slot) -> Operand:
    return d.scalar(slot, d[slot.field] * 2)


def _srsrc(d: Reader, slot: Slot) -> Operand:
    return d.scalar(slot, d[slot.field] * 4)


def _soffset8(d: Reader, slot: Slot) -> Operand:
    code = d[slot.field]
    if code == _LITERAL or code in _SPECIAL:
        raise d.refuse_field(slot.field, "must be a scalar register or an inline constant")
    return d.source(slot, code)


def _saddr(d: Reader, slot: Slot) -> Operand:
    if d[slot.field] == _NULL:
        return Operand("off", 0, type=slot.type)
    if d[slot.field] > (_NULL if slot.type == "b64" else _EXEC_LO):
        raise d.refuse_field(slot.field, "cannot be this register")
    return d.scalar(slot, d[slot.field])


def _global_address(d: Reader, slot: Slot) -> Operand:
    """Return 64 bits of address, or the 32-bit offset to the scalar address."""
    if d["SADDR"] == _NULL:
        return d.vector(slot, d["ADDR"])
    return Operand("vgpr", d["ADDR"])


def _scratch_address(d: Reader, slot: Slot) -> Operand:
    if d["SVE"]:
        return d.vector(slot, d["ADDR"])
    d.ignore(slot.field)
    return Operand("off", 0)


def _buffer_address(d: Reader, slot: Slot) -> Operand:
    count = d["OFFEN"] + d["IDXEN"]
    if count:
        return d.vector(Slot(slot.reader, slot.field, "b64" if count == 2 else "b32"), d["VADDR"])
    d.ignore(slot.field)
    return Operand("off", 0)


_READERS: dict[str, Callable[[Reader, Slot], Operand]] = {
    "sdst": _sdst,
    "ssrc": _ssrc,
    "sdata": _sdata,
    "sreg": _sreg,
    "vgpr": _vgpr,
    "src": _src,
    "src_v": _src_vector,
    "src_vi": _src_vector_or_inline,
    "src_s": _src_scalar,
    "src_si": _src_scalar_or_inline,
    "mask": _mask,
    "literal": _literal_operand,
    "vcc": _vcc,
    "exec": _exec,
    "sbase": _sbase,
    "srsrc": _srsrc,
    "soffset8": _soffset8,
    "saddr": _saddr,
    "addr_global": _global_address,
    "addr_scratch": _scratch_address,
    "vaddr": _buffer_address,
}
