"""Registers and operands of an ir3 program while it is translated.

Inside a block registers are SSA values; registers that live across blocks have a slot in the strip's state. A
register whose value all lanes share (see :mod:`flow`) is a scalar.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ringfence.hardware.adreno.chips import chip_by_name
from ringfence.hardware.adreno.ir3 import FLUT, Operand
from ringfence.virtual.isa.ir3.code import refuse
from ringfence.virtual.isa.ir3.flow import (
    Block,
    Flow,
    Key,
    register_key,
    shifted,
)
from ringfence.virtual.isa.ir3.unit import Unit
from ringfence.virtual.isa.jit import TranslationError
from ringfence.virtual.isa.simt import (
    FAULT_RELATIVE,
    MASK_BYTES,
    POISON,
    STATE_REGISTERS,
    Emitter,
    f32,
)

UNUSED = 0xFC
FILE_REGISTERS = 0xC0  # r0.x to r47.w; shared registers begin here
CONSTANT_WORDS = 1024
_OTHER_FORM = {"i32": "f32", "f32": "i32", "i16": "f16", "f16": "i16"}


def natural_kind(key: Key) -> str:
    """Return the kind in which a register is kept in memory."""
    return {"p": "mask", "h": "i16"}.get(key[0], "i32")


class Registers:
    """The register file of one program. ``v`` emits vectors of lanes, ``s`` scalars, into one function."""

    def __init__(self, unit: Unit, lanes: int, flow: Flow, ids: frozenset[Key]) -> None:
        self.unit = unit
        self.chip = chip_by_name(unit.chip)
        self.lanes = lanes
        self.flow = flow
        self.ids = ids
        self.v = Emitter(lanes)
        self.s = Emitter(1, self.v)
        self.varying: set[Key] = set()
        self._entry_varying: list[set[Key]] = []
        self._values: dict[Key, dict[str, str]] = {}
        self._dirty: set[Key] = set()
        self._constants: dict[tuple[str, int], str] = {}
        self._everywhere: frozenset[Key] = self._kept_everywhere()
        self._slots = self._allocate()
        self._block = flow.blocks[flow.entry]
        self._mask = ""
        self._full = not flow.divergent and unit.granule % lanes == 0
        self._write_mask: str | None = None
        self._instruction = self._block.instructions[0]

    # --- layout ---

    def _kept_everywhere(self) -> frozenset[Key]:
        """Return the registers whose slots must be right at every block boundary, read or not.

        Relative operands may read any register. The predication mask of a region takes p0.x of the lanes that
        wait elsewhere, too.
        """
        if self.flow.relative:
            files = "r" if self.unit.merged else "rh"
            return frozenset((f, n) for f in files for n in range(FILE_REGISTERS)) | self._named()
        return frozenset({("p", 0)} if self.flow.crosses and self.flow.divergent else ())

    def _named(self) -> frozenset[Key]:
        keys: set[Key] = set()
        for instruction in self.flow.instructions():
            keys.update(self.flow.sources(instruction))
            keys.update(self.flow.results(instruction))
        return frozenset(keys)

    def _allocate(self) -> dict[Key, int]:
        """Return the byte offset of each register that has a slot; those of a file follow each other."""
        keys = set(self._everywhere).union(*(block.live_in for block in self.flow.blocks))
        slots: dict[Key, int] = {}
        offset = STATE_REGISTERS
        for key in sorted(keys, key=lambda k: (k[0], k[1])):
            slots[key] = offset
            offset += self._slot_bytes(key)
        self.state_bytes = (offset + 127) // 64 * 64
        return slots

    def _slot_bytes(self, key: Key) -> int:
        if key[0] == "p":  # the lanes as bits, then the value that all lanes share as a byte
            return 2 * MASK_BYTES
        if key[0] == "s":
            return 4
        return self.lanes * (2 if key[0] == "h" else 4)

    def _initialise(self, key: Key) -> None:
        """Give a register that lives at the start its value: an id, or poison."""
        v, s, slot = self.v, self.s, self._slots[key]
        if key in self.ids:
            ids = v.field("ids", "ptr")
            row = 3 if key == ("r", self.unit.linear_id) else key[1] - self.unit.local_id
            strip = s.new(f"mul i64 %strip, {16 * self.lanes}")
            value = s.new(f"load {v.i32}, ptr {v.at(v.at(ids, strip), 4 * self.lanes * row)}, align 4")
            s.line(f"store {v.i32} {value}, ptr {v.at('%state', slot)}, align 4")
        elif key[0] == "s":
            s.line(f"store i32 {self._shared_initial(key[1])}, ptr {v.at('%state', slot)}, align 4")
        elif key[0] == "p":
            s.line(f"store {v.bits} 0, ptr {v.at('%state', slot)}, align 16")
            s.line(f"store i8 0, ptr {v.at('%state', slot + MASK_BYTES)}, align 1")
        else:
            e, kind = s if self._is_scalar(key) else v, natural_kind(key)
            poison = e.splat(kind, self._poison(kind))
            s.line(f"store {getattr(e, kind)} {poison}, ptr {v.at('%state', slot)}, align 4")

    @staticmethod
    def _poison(kind: str) -> str:
        return str(POISON & 0xFFFF if kind == "i16" else POISON)

    def _is_scalar(self, key: Key) -> bool:
        return not self.flow.divergent and key not in self.varying

    def _begin_registers(self, block: Block) -> None:
        """Forget what was known of registers: a block begins."""
        self._block = block
        self._values, self._dirty, self._constants = {}, set(), {}
        self.varying = set() if self.flow.divergent else set(self._entry_varying[block.index])
        self._write_mask = None

    @property
    def mask(self) -> str:
        """The lanes that an instruction acts on here."""
        return self._mask if self._write_mask is None else self._write_mask

    @property
    def every_lane_acts(self) -> bool:
        """Whether instructions surely act on all lanes of the strip here."""
        return self._full and self._write_mask is None

    @contextmanager
    def restricted(self, mask: str) -> Iterator[None]:
        """Let instructions act only on the lanes of ``mask``, which is a part of :attr:`mask`."""
        saved, self._write_mask = self._write_mask, mask
        try:
            yield
        finally:
            self._write_mask = saved

    # --- registers ---

    def read(self, key: Key, kind: str, e: Emitter) -> str:
        """Return register ``key`` as ``i32``, ``f32``, ``i16``, ``f16`` or ``mask`` in the shape of ``e``."""
        forms = self._values.get(key)
        if forms is None:
            forms = self._values[key] = self._load(key)
        name = f"{'s' if e.lanes == 1 else 'v'}.{kind}"
        if name not in forms:
            forms[name] = self._convert(key, forms, kind, e)
        return forms[name]

    def _convert(self, key: Key, forms: dict[str, str], kind: str, e: Emitter) -> str:
        """Return a known register in another form, from the same shape if possible, else from the scalar."""
        prefix, natural = "s" if e.lanes == 1 else "v", natural_kind(key)
        other = _OTHER_FORM.get(kind)
        if other is not None and (have := forms.get(f"{prefix}.{other}")) is not None:
            return e.cast("bitcast", have, getattr(e, other), getattr(e, kind))
        if e.lanes == 1:
            raise TranslationError(
                f"register {key} differs between lanes but is read as uniform at pc {self._instruction.pc}",
                pc=self._instruction.pc,
                internal=True,
            )
        scalar = self.read(key, natural, self.s)
        have = forms[f"{prefix}.{natural}"] = e.splat({"mask": "i1"}.get(natural, natural), scalar)
        return have if kind == natural else e.cast("bitcast", have, getattr(e, natural), getattr(e, kind))

    def _load(self, key: Key) -> dict[str, str]:
        v, s, kind = self.v, self.s, natural_kind(key)
        if key[0] == "s":
            return {"s.i32": self._load_shared(key)}
        slot = self._slots.get(key)
        if slot is None:  # never written on any way here
            return self._unwritten(key)
        if key[0] == "p":
            if self._is_scalar(key):
                byte = s.new(f"load i8, ptr {v.at('%state', slot + MASK_BYTES)}, align 1")
                return {"s.mask": s.new(f"trunc i8 {byte} to i1")}
            return {"v.mask": v.from_bits(s.new(f"load {v.bits}, ptr {v.at('%state', slot)}, align 16"))}
        if self._is_scalar(key):
            return {f"s.{kind}": s.new(f"load {kind}, ptr {v.at('%state', slot)}, align 4")}
        return {f"v.{kind}": v.new(f"load {getattr(v, kind)}, ptr {v.at('%state', slot)}, align 4")}

    def _unwritten(self, key: Key) -> dict[str, str]:
        if key[0] == "p":
            return {"v.mask": "zeroinitializer"} if self.flow.divergent else {"s.mask": "false"}
        kind = natural_kind(key)
        poison = self._poison(kind)
        return {f"s.{kind}": poison, f"v.{kind}": self.v.splat(kind, poison)}

    def _load_shared(self, key: Key) -> str:
        if (slot := self._slots.get(key)) is not None:
            return self.s.new(f"load i32, ptr {self.v.at('%state', slot)}, align 4")
        return self._shared_initial(key[1])

    def _shared_initial(self, number: int) -> str:
        """Return what a shared register holds at wave start: an id where configured, or poison."""
        unit, s = self.unit, self.s
        for i, c in enumerate("xyz"):
            if unit.workgroup_id != UNUSED and number == unit.workgroup_id + i:
                return s.cast("trunc", s.field(f"group_{c}"), "i64", "i32")
            if unit.workgroup_size != UNUSED and number == unit.workgroup_size + i:
                return s.cast("trunc", s.field(f"local_{c}"), "i64", "i32")
            if unit.workgroup_offset != UNUSED and number == unit.workgroup_offset + i:
                size = s.op("mul", "i64", s.field(f"group_{c}"), s.field(f"local_{c}"))
                return s.cast("trunc", s.op("add", "i64", size, s.field(f"offset_{c}")), "i64", "i32")
        return str(POISON)

    def write(self, key: Key, kind: str, value: str, e: Emitter) -> None:
        """Set register ``key`` for the lanes of :attr:`mask` to a value of ``kind`` in the shape of ``e``."""
        if key[0] == "s":
            self._write_shared(key, kind, value, e)
            return
        if self._write_mask is not None:
            allowed = self._write_mask if e.lanes > 1 else self._governor_scalar()
            value = e.select(allowed, getattr(e, kind), value, self.read(key, kind, e))
        self._values[key] = {f"{'s' if e.lanes == 1 else 'v'}.{kind}": value}
        self._dirty.add(key)

    def _governor_scalar(self) -> str:
        """Return the write mask of a region that all lanes share; lane 0 always exists."""
        return self.s.new(f"extractelement {self.v.mask} {self._write_mask}, i64 0")

    def _write_shared(self, key: Key, kind: str, value: str, e: Emitter) -> None:
        """Store the one value of a shared register: that of the first active lane."""
        v, s = self.v, self.s
        if e.lanes > 1:
            value = v.extract(getattr(v, kind), value, v.first_lane(v.mask_bits(self.mask)))
        if kind in ("f32", "f16"):
            value = s.cast("bitcast", value, getattr(s, kind), getattr(s, _OTHER_FORM[kind]))
        if kind in ("i16", "f16"):
            value = s.cast("zext", value, "i16", "i32")
        if self._write_mask is not None:
            value = s.select(v.any(self._write_mask), "i32", value, self.read(key, "i32", s))
        self._values[key] = {"s.i32": value}
        if key in self._slots:
            self._dirty.add(key)

    def flush(self) -> None:
        """Store the changed registers that other blocks read."""
        wanted = self._everywhere | self._block.live_out
        for key in sorted(self._dirty & wanted & self._slots.keys()):
            self._store(key)
        self._dirty.clear()

    def _store(self, key: Key) -> None:
        v, s, slot = self.v, self.s, self._slots[key]
        if key[0] == "s":
            s.line(f"store i32 {self.read(key, 'i32', s)}, ptr {v.at('%state', slot)}, align 4")
            return
        later = any(key in self._entry_varying[b] for b in self._block.successors if self._entry_varying)
        scalar = not self.flow.divergent and not later
        if key[0] == "p":
            self._store_predicate(key, slot, scalar)
            return
        e, kind = s if scalar else v, natural_kind(key)
        element, pointer = getattr(e, kind), v.at("%state", slot)
        value = self.read(key, kind, e)
        if self.flow.divergent:
            value = v.select(self._mask, element, value, v.new(f"load {element}, ptr {pointer}, align 4"))
        s.line(f"store {element} {value}, ptr {pointer}, align 4")

    def _store_predicate(self, key: Key, slot: int, scalar: bool) -> None:
        v, s = self.v, self.s
        if scalar:
            byte = s.cast("zext", self.read(key, "mask", s), "i1", "i8")
            s.line(f"store i8 {byte}, ptr {v.at('%state', slot + MASK_BYTES)}, align 1")
            return
        bits = v.mask_bits(self.every_lane(key))
        s.line(f"store {v.bits} {bits}, ptr {v.at('%state', slot)}, align 16")

    def every_lane(self, key: Key) -> str:
        """Return a predicate of all lanes: those that are elsewhere have the value that memory holds."""
        v, slot = self.v, self._slots.get(key)
        value = self.read(key, "mask", v)
        if not self.flow.divergent or slot is None:
            return value
        old = v.from_bits(v.new(f"load {v.bits}, ptr {v.at('%state', slot)}, align 16"))
        return v.select(self._mask, v.mask, value, old)

    # --- operands ---

    def key(self, operand: Operand, offset: int = 0) -> Key:
        """Return the key of a register operand."""
        key = register_key(operand, offset, self.unit.merged)
        if key is None:
            raise refuse(self._instruction, f"an operand of kind {operand.kind} is not a register here")
        return key

    def constant(self, index: int, e: Emitter) -> str:
        """Return word ``index`` of the constant file as i32."""
        if not 0 <= index < CONSTANT_WORDS:
            name = f"c{index >> 2}.{'xyzw'[index & 3]}"
            raise refuse(self._instruction, f"{name} lies outside the constant file of 256 vec4")
        cached = self._constants.get(("i32", index))
        if cached is None:
            base = self._constants.get(("base", 0))
            if base is None:
                base = self._constants[("base", 0)] = self.s.field("constants", "ptr")
            cached = self.s.new(f"load i32, ptr {self.s.at(base, 4 * index)}, align 4")
            self._constants[("i32", index)] = cached
        if e.lanes == 1:
            return cached
        splat = self._constants.get(("splat", index))
        if splat is None:
            splat = self._constants[("splat", index)] = e.splat("i32", cached)
        return splat

    def forget_constants(self) -> None:
        """Load constants anew: the program has written to the constant file."""
        self._constants.clear()

    def raw(self, operand: Operand, k: int, e: Emitter, offset: int = 0) -> str:
        """Return a 32-bit or 16-bit (``operand.half``) source without its modifiers, as i32 or i16."""
        operand = shifted(operand, k)
        kind, bits = ("i16", 16) if operand.half else ("i32", 32)
        match operand.kind:
            case "gpr":
                return self._read_gpr(operand, offset, e)
            case "const":
                return self._read_constant(operand, offset, e)
            case "imm":
                value = operand.num & ((1 << bits) - 1)
                return e.splat(kind, str(value - (1 << bits) if value >> (bits - 1) else value))
            case "rel_const" | "rel_gpr":
                return self._read_relative(operand, e)
            case "addr":
                wide = self.read(("a", operand.num), "i32", e)
                return e.cast("trunc", wide, e.i32, e.i16) if operand.half else wide
        raise refuse(self._instruction, f"a source of kind {operand.kind} has no integer value")

    def _read_constant(self, operand: Operand, offset: int, e: Emitter) -> str:
        """Return a constant. Half constants are 16-bit words, or with demotion low halves of words."""
        index = operand.num + offset
        if not operand.half:
            return self.constant(index, e)
        word = self.constant(index if self.unit.demote else index >> 1, e)
        if index & 1 and not self.unit.demote:
            word = e.op("lshr", e.i32, word, e.splat("i32", "16"))
        return e.cast("trunc", word, e.i32, e.i16)

    def _read_gpr(self, operand: Operand, offset: int, e: Emitter) -> str:
        key = self.key(operand, offset)
        if not operand.half:
            return self.read(key, "i32", e)
        if key[0] == "h":
            return self.read(key, "i16", e)
        word = self.read(key, "i32", e)
        if (operand.num + offset) & 1:
            word = e.op("lshr", e.i32, word, e.splat("i32", "16"))
        return e.cast("trunc", word, e.i32, e.i16)

    # --- relative operands ---

    def _relative_index(self, operand: Operand, k: int, limit: int) -> str:
        """Return a0.x + offset per lane; leave with a fault where that is not in 0..limit-1."""
        v = self.v
        base = self.read(("a", 0), "i32", v)
        index = v.op("add", v.i32, base, v.splat("i32", str(operand.num + k)))
        outside = v.new(f"icmp uge {v.i32} {index}, {v.splat('i32', str(limit))}")
        bad = v.op("and", v.mask, outside, self.mask)
        v.fault_if(bad, FAULT_RELATIVE, self._instruction.pc, v.cast("sext", index, v.i32, v.i64))
        return index

    def _read_relative(self, operand: Operand, e: Emitter) -> str:
        if e.lanes == 1:
            raise TranslationError("a relative operand was taken for uniform", internal=True)
        if operand.kind == "rel_const":
            return self._read_relative_constant(operand)
        v = self.v
        word, pointers = self._relative_pointers(operand, 0)
        value = v.gather(word, pointers, self.mask, 2 if word == v.i16 else 4)
        if not operand.half or word == v.i16:
            return value
        return self._halves(value, self._relative_index(operand, 0, 2 * FILE_REGISTERS))

    def _read_relative_constant(self, operand: Operand) -> str:
        v = self.v
        half_words = operand.half and not self.unit.demote
        index = self._relative_index(operand, 0, CONSTANT_WORDS * (2 if half_words else 1))
        word_index = v.op("lshr", v.i32, index, v.splat("i32", "1")) if half_words else index
        base = self.s.field("constants", "ptr")
        word = v.gather(v.i32, v.new(f"getelementptr i32, ptr {base}, {v.i32} {word_index}"), self.mask, 4)
        if half_words:
            return self._halves(word, index)
        return v.cast("trunc", word, v.i32, v.i16) if operand.half else word

    def _halves(self, word: str, index: str) -> str:
        """Return as i16 the low or high half of each word, by bit 0 of ``index``."""
        v = self.v
        odd = v.op("and", v.i32, index, v.splat("i32", "1"))
        shift = v.op("shl", v.i32, odd, v.splat("i32", "4"))
        return v.cast("trunc", v.op("lshr", v.i32, word, shift), v.i32, v.i16)

    def _relative_pointers(self, operand: Operand, k: int) -> tuple[str, str]:
        """Return the type of the register slots that a relative operand names, and pointers to them."""
        v = self.v
        merged_half = operand.half and self.unit.merged
        index = self._relative_index(operand, k, FILE_REGISTERS * (2 if merged_half else 1))
        self._spill()
        if merged_half:
            index = v.op("lshr", v.i32, index, v.splat("i32", "1"))
        file, kind = ("h", "i16") if operand.half and not self.unit.merged else ("r", "i32")
        scaled = v.op("mul", v.i32, index, v.splat("i32", str(self.lanes)))
        lane = v.op("add", v.i32, scaled, v.lane_numbers())
        first = v.at("%state", self._slots[(file, 0)])
        return getattr(v, kind), v.new(f"getelementptr {kind}, ptr {first}, {v.i32} {lane}")

    def _spill(self) -> None:
        """Bring the register slots up to date."""
        for key in sorted(self._dirty & self._slots.keys()):
            self._store(key)
        self._dirty.clear()

    def _put_relative(self, operand: Operand, k: int, value: str, e: Emitter, kind: str) -> None:
        v = self.v
        if kind in ("f32", "f16"):
            other = _OTHER_FORM[kind]
            value, kind = v.cast("bitcast", value, getattr(v, kind), getattr(v, other)), other
        word, pointers = self._relative_pointers(operand, k)
        if operand.half and word == v.i32:
            raise refuse(self._instruction, "a relative half destination in merged registers is not modelled")
        v.scatter(word, value, pointers, self.mask, 2 if word == v.i16 else 4)
        self._values.clear()  # memory holds newer values

    # --- sources ---

    def integer(self, operand: Operand, k: int, e: Emitter, *, bitwise: bool = False) -> str:
        """Return a source with integer modifiers (``bitwise``: neg means not)."""
        value = self.raw(operand, k, e)
        kind, element = (e.i16, "i16") if operand.half else (e.i32, "i32")
        if operand.abs and bitwise:
            raise refuse(self._instruction, "(abs) has no known meaning for bit operations")
        if operand.abs:
            value = e.call(kind, f"llvm.abs.{e.suffix(kind)}", (kind, value), ("i1", "false"))
        if operand.neg and bitwise:
            return e.op("xor", kind, value, e.splat(element, "-1"))
        if operand.neg:
            return e.op("sub", kind, e.splat(element, "0"), value)
        return value

    def wide(self, operand: Operand, k: int, e: Emitter, *, signed: bool = False) -> str:
        """Return an integer source as i32, half registers extended."""
        value = self.integer(operand, k, e)
        return e.cast("sext" if signed else "zext", value, e.i16, e.i32) if operand.half else value

    def real(self, operand: Operand, k: int, e: Emitter) -> str:
        """Return a float source as f32 (half values are exact in f32) with its modifiers."""
        operand = shifted(operand, k)
        value = self._real(operand, e)
        if operand.abs:
            value = e.unary("fabs", e.f32, value)
        if operand.neg:
            value = e.new(f"fneg {e.f32} {value}")
        return value

    def _real(self, operand: Operand, e: Emitter) -> str:
        if operand.kind == "float_imm":
            return e.splat("float", f32(_table_value(operand)))
        if operand.kind == "imm" and self._instruction.category != 1:
            raise refuse(self._instruction, "a float instruction has an integer immediate")
        if operand.half and operand.kind in ("const", "rel_const") and self.unit.demote:
            word = self.raw(replace(operand, half=False), 0, e)
            half = e.cast("fptrunc", e.cast("bitcast", word, e.i32, e.f32), e.f32, e.f16)
            return e.cast("fpext", half, e.f16, e.f32)
        if operand.kind == "gpr":
            key = self.key(operand)
            if key[0] == "r" and not operand.half:
                return self.read(key, "f32", e)
            if key[0] == "h":
                return e.cast("fpext", self.read(key, "f16", e), e.f16, e.f32)
        raw = self.raw(operand, 0, e)
        if operand.half:
            return e.cast("fpext", e.cast("bitcast", raw, e.i16, e.f16), e.f16, e.f32)
        return e.cast("bitcast", raw, e.i32, e.f32)

    # --- results ---

    def put(self, operand: Operand, k: int, value: str, e: Emitter, kind: str) -> None:
        """Write ``value`` (``i32``, ``i16``, ``f32``, ``f16``) to ``operand`` + ``k`` without conversion."""
        if operand.kind == "pred":
            self._put_predicate(operand.num + k, value, e, kind)
        elif operand.kind == "addr":
            wide = e.cast("zext" if operand.num else "sext", value, e.i16, e.i32) if kind == "i16" else value
            self.write(("a", operand.num), "i32", wide, e)
        elif operand.kind == "rel_gpr":
            self._put_relative(operand, k, value, e, kind)
        elif operand.half and self.key(operand, k)[0] != "h":
            self._put_part(self.key(operand, k), operand.num + k, value, e, kind)
        else:
            self.write(self.key(operand, k), kind, value, e)

    def _put_predicate(self, component: int, value: str, e: Emitter, kind: str) -> None:
        """Set a predicate where the bits of ``value`` are not all zero.

        Mesa's ir3_opt_predicates.c relies on that: it lets any bit operation write the predicate that a
        comparison of its result with 0 wrote before.
        """
        if kind in ("f32", "f16"):
            other = _OTHER_FORM[kind]
            value, kind = e.cast("bitcast", value, getattr(e, kind), getattr(e, other)), other
        self.put_flag(component, e.new(f"icmp ne {getattr(e, kind)} {value}, {e.splat(kind, '0')}"), e)

    def put_flag(self, component: int, flag: str, e: Emitter) -> None:
        """Set predicate ``component``, a mask."""
        if component > 3:
            raise refuse(self._instruction, "the repetition runs past p0.w")
        self.write(("p", component), "mask", flag, e)

    def _put_part(self, key: Key, number: int, value: str, e: Emitter, kind: str) -> None:
        """Write half register ``number``, which is a part of the full register ``key``."""
        if kind == "f16":
            value = e.cast("bitcast", value, e.f16, e.i16)
        old = self.read(key, "i32", e)
        part = e.cast("zext", value, e.i16, e.i32)
        if number & 1:
            part = e.op("shl", e.i32, part, e.splat("i32", "16"))
        kept = e.op("and", e.i32, old, e.splat("i32", "65535" if number & 1 else "-65536"))
        self.write(key, "i32", e.op("or", e.i32, kept, part), e)

    def put_real(self, operand: Operand, k: int, value: str, e: Emitter, *, half_source: bool) -> None:
        """Write an f32 result; it is rounded to the precision of the operation, then of the destination.

        Both to nearest even: Mesa merge request 4737 saw that of the arithmetic of an A650.
        """
        if half_source or operand.half:
            narrow = e.cast("fptrunc", value, e.f32, e.f16)
            if operand.half:
                self.put(operand, k, narrow, e, "f16")
                return
            value = e.cast("fpext", narrow, e.f16, e.f32)
        self.put(operand, k, value, e, "f32")

    def put_integer(
        self, operand: Operand, k: int, value: str, e: Emitter, *, half_source: bool, signed: bool
    ) -> None:
        """Write an integer result of the operation's width to a destination of another or the same width.

        Widening extends by sign or zero, narrowing truncates (Mesa ir3.h ``ir3_output_conv_type``).
        """
        kind = "i16" if half_source else "i32"
        if operand.kind not in ("pred", "addr") and operand.half != half_source:
            if operand.half:
                value, kind = e.cast("trunc", value, e.i32, e.i16), "i16"
            else:
                value, kind = e.cast("sext" if signed else "zext", value, e.i16, e.i32), "i32"
        self.put(operand, k, value, e, kind)


def _table_value(operand: Operand) -> float:
    return FLUT[operand.num][1]
