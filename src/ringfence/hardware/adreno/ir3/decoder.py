"""Turns instruction words into :class:`Instruction`, by the tables."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from ringfence.hardware.adreno.ir3.encoding import Bits, Encoding, Index
from ringfence.hardware.adreno.ir3.instruction import Instruction, Operand, UnknownInstruction
from ringfence.hardware.adreno.ir3.tables import (
    A1_MODES,
    CONDITIONS,
    DESCRIPTOR_MODES,
    ENCODINGS,
    GL_MODES,
    SHUFFLE_MODES,
    SOURCE13,
    SOURCE13_ALTERNATE,
    SOURCE13_REGISTER,
    SOURCE16,
    TYPES,
)

# The bits by which the rows of a category differ most.
_KEYS = {
    0: Bits(55, 58),
    1: Bits(53, 58),
    2: Bits(53, 58),
    3: Bits(55, 58),
    4: Bits(53, 58),
    5: Bits(51, 58),
    6: Bits(52, 58),
    7: Bits(55, 58),
}
_SOURCE16 = Index(SOURCE16, Bits(10, 13))
_SOURCE13 = Index(SOURCE13, Bits(10, 12))
_SOURCE13_ALTERNATE = Index(SOURCE13_ALTERNATE, Bits(10, 12))
_SOURCE13_REGISTER = Index(SOURCE13_REGISTER, Bits(10, 12))

_A0 = 0xF4
_A1 = 0xF5
_P0 = 0xF8
_INVALID = 0xFC
_MAX_ARRAY_OFFSET = 0xC0

HALF_TYPES = ("f16", "u16", "s16", "u8")
"""Types that live in half registers; in category 1 ``u8_32`` does too."""


@cache
def _index(category: int) -> Index[Encoding]:
    return Index(ENCODINGS[category], _KEYS[category])


def decode(word: int, pc: int = 0) -> Instruction:
    """Return the instruction that the 64-bit ``word`` at instruction index ``pc`` encodes.

    Raises :class:`UnknownInstruction` if it encodes none.
    """
    if not 0 <= word < 1 << 64:
        raise ValueError(f"instruction word {word:#x} at {pc} is not an unsigned 64-bit number")
    index = _index(word >> 61)
    row = index.find(word)
    if row is None:
        raise UnknownInstruction(pc, word, *index.explain(word))
    return _Reader(pc, word, row).instruction()


def decode_program(code: bytes) -> tuple[Instruction, ...]:
    """Return all instructions of ``code`` (a multiple of 8 bytes), padding after ``end`` included."""
    if len(code) % 8:
        raise ValueError(
            f"code of {len(code)} bytes does not consist of 8-byte instructions; it was cut or is not code"
        )
    return tuple(decode(word, pc) for pc, (word,) in enumerate(struct.iter_unpack("<Q", code)))


Extras = dict[str, int | str]


@dataclass(slots=True)
class _Parts:
    """What the builders of the forms return; the modifiers that all forms share are added by the reader."""

    dsts: tuple[Operand, ...] = ()
    srcs: tuple[Operand, ...] = ()
    fields: Extras | None = None
    name: str | None = None
    nop: int = 0


class _Reader:
    """One word together with the row that it matched."""

    __slots__ = ("_values", "pc", "row", "word")

    def __init__(self, pc: int, word: int, row: Encoding) -> None:
        self.pc = pc
        self.word = word
        self.row = row
        self._values = {name: bits.get(word) for name, bits in row.fields.items()}
        for name, bits in row.fields.items():
            if bits.values is not None and self._values[name] not in bits.values:
                raise self.refuse(name, f"{row.name} has no {name} {self._values[name]}")

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str) -> int:
        """Return a field, 0 if this row does not have it."""
        return self._values.get(name, 0)

    def refuse(self, name: str, reason: str) -> UnknownInstruction:
        """Return the error that says that field ``name`` has no legal value."""
        return self.refuse_bits(self.row.fields[name].mask, reason)

    def refuse_bits(self, bits: int, reason: str) -> UnknownInstruction:
        return UnknownInstruction(self.pc, self.word, bits, reason)

    def instruction(self) -> Instruction:
        parts = _BUILDERS[self.row.form](self)
        return Instruction(
            self.pc,
            self.word,
            self.row.category,
            parts.name or self.row.name,
            parts.dsts,
            parts.srcs,
            self.get("REPEAT"),
            parts.nop,
            bool(self.get("SY")),
            bool(self.get("SS")),
            bool(self.get("JP")),
            bool(self.get("SAT")),
            bool(self.get("UL")),
            bool(self.get("EQ")),
            bool(self.get("EI")),
            parts.fields or {},
        )

    # Operands

    def type(self, name: str = "TYPE") -> str:
        return TYPES[self[name]]

    def register(self, name: str, half: bool = False, **modifiers: bool) -> Operand:
        """Return an operand that may also be a predicate (r62) or address register (r61.x, r61.y)."""
        return self._operand(name, self[name], half, **modifiers)

    def _operand(self, name: str, num: int, half: bool, **modifiers: bool) -> Operand:
        if _A1 < num < _P0:
            raise self.refuse(name, "r61 has only the components x (a0) and y (a1)")
        if _A0 <= num <= _A1:
            return Operand("addr", num - _A0, half, **modifiers)
        if _P0 <= num < _INVALID:
            return Operand("pred", num - _P0, half, **modifiers)
        return Operand("gpr", num, half, **modifiers)

    def gpr(self, name: str, half: bool = False) -> Operand:
        """Return an operand that is always a general register."""
        if _A0 <= self[name] < _INVALID:
            raise self.refuse(name, f"{self.row.name} works on general registers, not r61 or r62")
        return Operand("gpr", self[name], half)

    def gpr_or_immediate(self, name: str, immediate: int, half: bool = False) -> Operand:
        return Operand("imm", self[name]) if immediate else self.gpr(name, half)

    def source(
        self, name: str, index: Index[Encoding], half: bool, *, r: bool = False, neg: bool = False
    ) -> Operand:
        """Return a source operand whose kind is encoded in field ``name``."""
        row, sub = self._source_row(name, index)
        low = self.row.fields[name].low
        if "HALF" in sub and bool(sub["HALF"]) != half:
            bits = row.fields["HALF"].mask << low
            raise self.refuse_bits(
                bits, f"the precision of the constant {name} is not that of the other sources"
            )
        signs = {"neg": neg or bool(sub.get("NEG")), "abs": bool(sub.get("ABS")), "r": r}
        if row.form == "gpr":
            return self._operand(name, sub["NUM"], half, **signs, last=bool(sub["LAST"]))
        return Operand(row.form, sub["NUM"], half, **signs)

    def _source_row(self, name: str, index: Index[Encoding]) -> tuple[Encoding, dict[str, int]]:
        """Return the row of the source table that field ``name`` matches, and the fields by that row."""
        value, low = self[name], self.row.fields[name].low
        row = index.find(value)
        if row is None:
            bits, reason = index.explain(value)
            raise self.refuse_bits(bits << low, f"{name} is no operand: {reason}")
        sub = {key: bits.get(value) for key, bits in row.fields.items()}
        legal = row.fields["NUM"].values
        if legal is not None and sub["NUM"] not in legal:
            raise self.refuse_bits(row.fields["NUM"].mask << low, f"{name} has no {row.name} {sub['NUM']}")
        return row, sub

    def alu_destination(self, full: bool, convert: bool) -> Operand:
        """Return the destination of categories 2 to 4; predicates are never half."""
        if _A0 <= self["DST"] <= _A0 + 3:
            # Mesa prints up0 in category 2: the scalar ALU of a7xx writes a predicate.
            raise self.refuse("DST", "r61 is not a destination of arithmetic on a6xx")
        return self.register("DST", half=full == convert and self["DST"] < _P0)


def _delay(d: _Reader) -> int:
    """Return N of (nopN), which an instruction without repetition carries in the (r) bits of two sources."""
    return 0 if d.get("REPEAT") else d.get("SRC1_R") | d.get("SRC2_R") << 1


# Category 0


def _plain(d: _Reader) -> _Parts:
    return _Parts(fields=_conditions(d))


def _branch(d: _Reader) -> _Parts:
    fields: Extras = {"target": d.pc + d["IMMED"], **_conditions(d)}
    if "INDEX" in d:
        fields["index"] = d["INDEX"]
    if "W" in d:
        fields["width"] = 2 << d["W"]
    return _Parts(fields=fields)


def _conditions(d: _Reader) -> Extras:
    names = ("COMP1", "INV1", "COMP2", "INV2")
    return {name.lower(): d[name] for name in names if name in d}


# Category 1


def _move_half(type_: str) -> bool:
    return type_ in HALF_TYPES or type_ == "u8_32"


def _move_fields(d: _Reader) -> Extras:
    return {"src_type": d.type("SRC_TYPE"), "dst_type": d.type("DST_TYPE"), "round": d["ROUND"]}


def _move_destination(d: _Reader) -> Operand:
    source, target = d.type("SRC_TYPE"), d.type("DST_TYPE")
    half = _move_half(target)
    if d["DST_REL"]:
        if d["DST"] >= _MAX_ARRAY_OFFSET:
            raise d.refuse("DST", "the offset to a0.x is beyond the register file")
        return Operand("rel_gpr", d["DST"], half)
    address_type = {_A0: "s16", _A1: "u16"}.get(d["DST"])
    if address_type and not source == target == address_type:
        raise d.refuse("DST", "a0.x is written with type s16 and a1.x with u16")
    return d.register("DST", half)


def _move(d: _Reader, source: Operand, *more: Operand) -> _Parts:
    """Return a mov, cov or movs; what makes a cov is that the types differ."""
    fields = _move_fields(d)
    name = "cov" if d.row.name == "mov" and fields["src_type"] != fields["dst_type"] else None
    return _Parts((_move_destination(d),), (source, *more), fields, name)


def _mov_gpr(d: _Reader) -> _Parts:
    return _move(d, _move_source(d))


def _move_source(d: _Reader) -> Operand:
    half = _move_half(d.type("SRC_TYPE"))
    return d.register("SRC", half, r=bool(d["SRC_R"]), last=bool(d["LAST"]))


def _mov_rel(kind: str) -> Callable[[_Reader], _Parts]:
    def build(d: _Reader) -> _Parts:
        return _move(d, Operand(kind, d["OFFSET"], _move_half(d.type("SRC_TYPE")), r=bool(d["SRC_R"])))

    return build


def _mov_const(d: _Reader) -> _Parts:
    return _move(d, Operand("const", d["SRC"], _move_half(d.type("SRC_TYPE")), r=bool(d["SRC_R"])))


def _mov_imm(d: _Reader) -> _Parts:
    type_ = d.type("SRC_TYPE")
    parts = _move(d, Operand("imm", d["IMMED"], _move_half(type_), r=bool(d["SRC_R"])))
    # (r) on the immediate of a mova works around a hazard (ir3-cat1.xml); other moves have no use for it.
    if d["SRC_R"] and parts.dsts[0].kind != "addr":
        raise d.refuse("SRC_R", "an immediate does not repeat")
    if type_ in ("f16", "s16") and d.word >> 16 & 0xFFFF:
        raise d.refuse_bits(0xFFFF0000, "a 16-bit immediate has more than 16 bits")
    return parts


def _movs_imm(d: _Reader) -> _Parts:
    return _move(d, _move_source(d), Operand("imm", d["FIBER"]))


def _movs_addr(d: _Reader) -> _Parts:
    return _move(d, _move_source(d), Operand("addr", 0))


def _following(first: Operand) -> tuple[Operand, ...]:
    return tuple(Operand("gpr", first.num + k, first.half) for k in range(4))


def _parallel(d: _Reader) -> _Parts:
    """Return swz, gat or sct; where only the first of four registers is encoded, the others follow it."""
    fields = _move_fields(d)
    source_half, target_half = _move_half(d.type("SRC_TYPE")), _move_half(d.type("DST_TYPE"))
    dsts = tuple(d.gpr(name, target_half) for name in ("DST0", "DST1", "DST2", "DST3") if name in d)
    srcs = tuple(d.gpr(name, source_half) for name in ("SRC0", "SRC1", "SRC2", "SRC3") if name in d)
    if d.row.name == "gat":
        dsts = _following(dsts[0])
    if d.row.name == "sct":
        srcs = _following(srcs[0])
    return _Parts(dsts, srcs, fields)


def _movmsk(d: _Reader) -> _Parts:
    return _Parts((d.gpr("DST"),), fields={"width": 32 * (d["W"] + 1)})


# Categories 2 and 4


def _alu(d: _Reader) -> _Parts:
    full, delay = bool(d["FULL"]), _delay(d) if d.row.category == 2 else 0
    repeats = [bool(d.get(name)) and not delay for name in ("SRC1_R", "SRC2_R")]
    srcs = [d.source("SRC1", _SOURCE16, not full, r=repeats[0])]
    if "SRC2" in d:
        srcs.append(d.source("SRC2", _SOURCE16, not full, r=repeats[1]))
    elif repeats[1]:
        raise d.refuse("SRC2_R", f"{d.row.name} has no second source to repeat")
    fields: Extras = {"full": int(full)}
    if "COND" in d:
        fields["cond"] = CONDITIONS[d["COND"]]
    return _Parts((d.alu_destination(full, bool(d["DST_CONV"])),), tuple(srcs), fields, nop=delay)


# Category 3


def _ternary_sources(
    d: _Reader, half: bool, index: Index[Encoding], index3: Index[Encoding]
) -> tuple[Operand, Operand, Operand]:
    delay = _delay(d)
    if delay and d["SRC3_R"]:
        raise d.refuse("SRC3_R", "the (r) bits of the first two sources hold (nop), the third cannot repeat")
    return (
        d.source("SRC1", index, half, r=bool(d["SRC1_R"]) and not delay, neg=bool(d.get("SRC1_NEG"))),
        d.register("SRC2", half, r=bool(d["SRC2_R"]) and not delay, neg=bool(d.get("SRC2_NEG"))),
        d.source("SRC3", index3, half, r=bool(d["SRC3_R"]), neg=bool(d.get("SRC3_NEG"))),
    )


def _ternary(d: _Reader, full: bool, index: Index[Encoding]) -> _Parts:
    srcs = _ternary_sources(d, not full, index, index)
    return _Parts((d.alu_destination(full, bool(d["DST_CONV"])),), srcs, {"full": int(full)}, nop=_delay(d))


def _dot(d: _Reader) -> _Parts:
    srcs = _ternary_sources(d, False, _SOURCE13_REGISTER, _SOURCE13_REGISTER)
    fields: Extras = {"full": 1, "mixed": d["MIXED"], "high": d["HIGH"]}
    return _Parts((d.gpr("DST"),), srcs, fields, nop=_delay(d))


def _wmm(d: _Reader) -> _Parts:
    full = bool(d["FULL"])
    srcs = _ternary_sources(d, not full, _SOURCE13_REGISTER, _SOURCE13_ALTERNATE)
    fields: Extras = {"full": int(full), "accumulate": int(d.row.name == "wmm.accu")}
    return _Parts((d.gpr("DST", not d["DST_FULL"]),), srcs, fields, nop=_delay(d))


# Category 5


def _texture(coordinates: int) -> Callable[[_Reader], _Parts]:
    def build(d: _Reader) -> _Parts:
        half = not d["FULL"]
        srcs = [d.gpr("SRC1", half)] if coordinates else []
        if coordinates == 2 or d["HAS_OFFSET"]:
            srcs.append(d.gpr("SRC2", half))
            if d.get("IMM_OFFSET"):
                raise d.refuse("IMM_OFFSET", "the second source is a register and an immediate at once")
        elif d["SRC2"] and not d.get("IMM_OFFSET"):
            raise d.refuse("SRC2", f"{d.row.name} has no second source")
        fields = _texture_fields(d) | _descriptor(d)
        if "SRC3" in d:
            srcs.append(d.gpr("SRC3", half=not fields["bindless"]))
        return _Parts((_result(d),), tuple(srcs), fields)

    return build


def _result(d: _Reader) -> Operand:
    return d.gpr("DST", d.type() in HALF_TYPES)


def _texture_fields(d: _Reader) -> Extras:
    fields: Extras = {
        "type": d.type(),
        "wrmask": d["WRMASK"],
        "is_3d": d["IS_3D"],
        "is_array": d["IS_ARRAY"],
        "is_shadow": d.get("IS_SHADOW"),
        "is_vector": d.get("IS_VECTOR"),
        "has_offset": d["HAS_OFFSET"],
        "proj": d.get("PROJ"),
        "full_coords": d["FULL"],
        "s2en": d.row.match >> 51 & 1,
    }
    if "NOT_1D" in d:
        fields["is_1d"] = 1 - d["NOT_1D"]
        fields["imm_offset"] = d["SRC2"] if d["IMM_OFFSET"] else 0
    return fields


def _descriptor(d: _Reader) -> Extras:
    fields: Extras = {name.lower(): d[name] for name in ("SAMP", "TEX") if name in d}
    if d.row.match >> 51 & 1:
        mode = d.row.match >> 29 & 7
        fields["desc_mode"] = mode
        fields["bindless"] = int(mode not in GL_MODES)
        fields["base"] = d.get("BASE_HI") << 1 | d.get("BASE_LO")
        fields["a1"] = int(mode in A1_MODES)
    return fields


def _lanes(d: _Reader) -> _Parts:
    fields: Extras = {"type": d.type(), "wrmask": d["WRMASK"], "full_coords": d["FULL"]}
    if "W" in d:
        fields["width"] = 2 << d["W"]
    half = not d["FULL"]
    srcs = tuple(d.gpr(name, half) for name in ("SRC1", "SRC2") if name in d)
    return _Parts((_result(d),), srcs, fields)


# Category 6


def _half(d: _Reader) -> bool:
    return d.type() in HALF_TYPES


def _load(d: _Reader) -> _Parts:
    fields: Extras = {"type": d.type(), "offset": d["OFFSET"], "size": d["SIZE"]}
    return _Parts((d.gpr("DST", _half(d)),), (d.gpr("SRC1"),), fields)


def _load_scaled(d: _Reader) -> _Parts:
    fields: Extras = {"type": d.type(), "offset": d["OFFSET"], "shift": d["SHIFT"], "size": d["SIZE"]}
    return _Parts((d.gpr("DST", _half(d)),), (d.gpr("SRC1"), d.gpr("SRC2")), fields)


def _load_const(d: _Reader) -> _Parts:
    fields: Extras = {"type": d.type(), "offset": d["OFFSET"], "size": d["SIZE"], "a1": d["A1"]}
    return _Parts((Operand("const", d["DST"]),), (d.gpr("SRC1"),), fields)


def _load_varying(d: _Reader) -> _Parts:
    fields: Extras = {"type": d.type(), "offset": d["OFFSET"], "size": d["SIZE"]}
    return _Parts((d.gpr("DST", _half(d)),), fields=fields)


def _store(d: _Reader) -> _Parts:
    fields: Extras = {"type": d.type(), "offset": d["OFFSET_HI"] << 8 | d["OFFSET_LO"], "size": d["SIZE"]}
    return _Parts(srcs=(d.gpr("SRC1"), d.gpr("DATA", _half(d))), fields=fields)


def _store_scaled(d: _Reader) -> _Parts:
    fields: Extras = {"type": d.type(), "offset": d["OFFSET"], "shift": d["SHIFT"], "size": d["SIZE"]}
    return _Parts(srcs=(d.gpr("SRC1"), d.gpr("SRC2"), d.gpr("DATA", _half(d))), fields=fields)


def _store_const(d: _Reader) -> _Parts:
    fields: Extras = {"type": d.type(), "size": d["SIZE"], "a1": d["A1"]}
    return _Parts((Operand("const", d["DST"]),), (d.gpr("SRC1", _half(d)),), fields)


def _shuffle(d: _Reader) -> _Parts:
    srcs = (d.gpr("SRC1", _half(d)), d.gpr_or_immediate("SRC2", d["SRC2_IM"]))
    return _Parts((d.gpr("DST", _half(d)),), srcs, {"type": d.type(), "mode": SHUFFLE_MODES[d["MODE"]]})


def _image_shape(d: _Reader) -> Extras:
    return {
        "type": d.type(),
        "dims": d["DIMS"] + 1,
        "typed": d["TYPED"],
        "components": d["COMPONENTS"] + 1,
    }


def _atomic(d: _Reader) -> _Parts:
    srcs = (d.gpr_or_immediate("SRC1", d["SRC1_IM"]), d.gpr_or_immediate("SRC2", d["SRC2_IM"], _half(d)))
    return _Parts((d.gpr("DST", _half(d)),), srcs, _image_shape(d))


def _resource_index(d: _Reader) -> tuple[Extras, tuple[Operand, ...]]:
    """Return the fields that name a descriptor, and the register that holds its index, if one does."""
    if d["BASE"] and not d["BINDLESS"]:
        raise d.refuse("BASE", "a base is given for a descriptor that is not bindless")
    mode = DESCRIPTOR_MODES[d["MODE"]]
    fields: Extras = {"mode": mode, "index": d["INDEX"], "base": d["BASE"], "bindless": d["BINDLESS"]}
    return fields, () if mode == "imm" else (d.gpr("INDEX"),)


def _image(d: _Reader) -> _Parts:
    descriptor, index = _resource_index(d)
    offset = d.get("OFFSET_HI") << 5 | d.get("OFFSET_LO")
    fields: Extras = {**_image_shape(d), **descriptor, "offset": offset}
    coordinates, data = d.gpr("COORDS"), d.gpr("DATA", _half(d))
    if d.row.name == "ldib":
        return _Parts((data,), (coordinates, *index), fields)
    return _Parts(srcs=(coordinates, data, *index), fields=fields)


def _image_atomic(d: _Reader) -> _Parts:
    """Return an atomic whose register vector holds the result (first) and the data (second and third)."""
    descriptor, index = _resource_index(d)
    vector = d.gpr("DATA", _half(d))
    return _Parts((vector,), (d.gpr("COORDS"), vector, *index), {**_image_shape(d), **descriptor})


def _resource(d: _Reader) -> _Parts:
    descriptor, index = _resource_index(d)
    return _Parts((d.gpr("DST", _half(d)),), index, {**_image_shape(d), **descriptor})


def _ubo_load(d: _Reader) -> _Parts:
    descriptor, index = _resource_index(d)
    fields: Extras = {
        "type": "u32",
        "component": d["COMPONENT"],
        "components": d["COMPONENTS"] + 1,
        "unified": d["UNIFIED"],
        **descriptor,
    }
    return _Parts((d.gpr("DST"),), (d.gpr_or_immediate("OFFSET", d["OFFSET_IM"]), *index), fields)


def _ubo_copy(d: _Reader) -> _Parts:
    descriptor, index = _resource_index(d)
    fields: Extras = {"type": "u32", "size": d["SIZE"] + 1, **descriptor}
    return _Parts(srcs=(d.gpr_or_immediate("OFFSET", d["OFFSET_IM"]), *index), fields=fields)


def _identity(d: _Reader) -> _Parts:
    return _Parts((d.gpr("DST", _half(d)),), fields={"type": d.type()})


# Category 7


def _barrier(d: _Reader) -> _Parts:
    return _Parts(fields={flag.lower(): d[flag] for flag in ("W", "R", "L", "G")})


def _bare(d: _Reader) -> _Parts:
    return _Parts()


_BUILDERS: dict[str, Callable[[_Reader], _Parts]] = {
    "plain": _plain,
    "branch": _branch,
    "mov_gpr": _mov_gpr,
    "mov_rel_gpr": _mov_rel("rel_gpr"),
    "mov_rel_const": _mov_rel("rel_const"),
    "mov_const": _mov_const,
    "mov_imm": _mov_imm,
    "movs_imm": _movs_imm,
    "movs_addr": _movs_addr,
    "parallel": _parallel,
    "movmsk": _movmsk,
    "alu": _alu,
    "ternary_half": lambda d: _ternary(d, False, _SOURCE13),
    "ternary_full": lambda d: _ternary(d, True, _SOURCE13),
    "ternary_alternate": lambda d: _ternary(d, bool(d["FULL"]), _SOURCE13_ALTERNATE),
    "dot": _dot,
    "wmm": _wmm,
    "texture0": _texture(0),
    "texture1": _texture(1),
    "texture2": _texture(2),
    "lanes1": _lanes,
    "lanes2": _lanes,
    "load": _load,
    "load_scaled": _load_scaled,
    "load_const": _load_const,
    "load_varying": _load_varying,
    "store": _store,
    "store_scaled": _store_scaled,
    "store_const": _store_const,
    "shuffle": _shuffle,
    "atomic": _atomic,
    "image": _image,
    "image_atomic": _image_atomic,
    "resource": _resource,
    "ubo_load": _ubo_load,
    "ubo_copy": _ubo_copy,
    "identity": _identity,
    "barrier": _barrier,
    "sleep": lambda d: _Parts(fields={"long": d["LONG"]}),
    "cache": lambda d: _Parts(fields={"all": d["ALL"]}),
    "bare": _bare,
}
