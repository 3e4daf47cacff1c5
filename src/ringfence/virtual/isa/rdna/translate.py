"""Translate an RDNA3 program to LLVM IR: registers, masks, control flow; other modules have semantics.

A strip is a wave. SGPRs are scalars, VGPRs vectors with one lane per thread, EXEC and VCC are integers
whose bits are lanes, as on the hardware. Inside a block registers are SSA values; registers that live
across blocks have a slot in the strip's state. A write leaves inactive lanes alone only where somebody will
read them (:mod:`flow` knows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from ringfence.errors import CompileError
from ringfence.hardware.amd.rdna import Instruction, Operand
from ringfence.virtual.isa.jit import TranslationError
from ringfence.virtual.isa.rdna import effects, facts, waits
from ringfence.virtual.isa.rdna import flow as flow_module
from ringfence.virtual.isa.rdna.effects import EXEC, M0, MODE, NULL, SCC, VCC
from ringfence.virtual.isa.rdna.facts import Facts
from ringfence.virtual.isa.rdna.flow import Block
from ringfence.virtual.isa.rdna.mode import Mode
from ringfence.virtual.isa.rdna.unit import UNUSED, Unit
from ringfence.virtual.isa.simt import (
    BARRIER,
    DONE,
    FAULT,
    FAULT_HANG,
    FAULT_ILLEGAL,
    MASK_BYTES,
    POISON,
    STATE_REGISTERS,
    Emitter,
    lane_loop,
    module,
)

if TYPE_CHECKING:
    from ringfence.virtual.isa.rdna.windows import Window

VERSION = 6  # part of every cache key: raise it when translated code changes
ALIGN = 64
MANY_ACCESSES = 24

Semantics = Callable[["Translator", Instruction], None]

KINDS = {
    "b16": "i16", "i16": "i16", "u16": "i16", "f16": "f16", "bf16": "i16",
    "b32": "i32", "i32": "i32", "u32": "i32", "f32": "f32",
    "b64": "i64", "i64": "i64", "u64": "i64", "f64": "f64",
    "v2f16": "i32", "v2i16": "i32", "v2u16": "i32", "v2bf16": "i32", "v4i8": "i32", "v8i4": "i32",
}  # fmt: skip
INTEGER_OF = {"f16": "i16", "f32": "i32", "f64": "i64"}
ELEMENTS = {
    "i1": "i1",
    "i8": "i8",
    "i16": "i16",
    "i32": "i32",
    "i64": "i64",
    "f16": "half",
    "f32": "float",
    "f64": "double",
}
FLOAT_CONSTANTS = {
    240: (0x3F000000, 0x3800, 0x3FE0000000000000),
    241: (0xBF000000, 0xB800, 0xBFE0000000000000),
    242: (0x3F800000, 0x3C00, 0x3FF0000000000000),
    243: (0xBF800000, 0xBC00, 0xBFF0000000000000),
    244: (0x40000000, 0x4000, 0x4000000000000000),
    245: (0xC0000000, 0xC000, 0xC000000000000000),
    246: (0x40800000, 0x4400, 0x4010000000000000),
    247: (0xC0800000, 0xC400, 0xC010000000000000),
    248: (0x3E22F983, 0x3118, 0x3FC45F306DC9C882),
}  # source code: f32, f16 and f64 bits
APERTURES = {
    "shared_base": 0x00010000,
    "private_base": 0x00020000,
    "shared_limit": 0x00010000,
    "private_limit": 0x00020000,
}


def translate(payload: bytes, lanes: int) -> tuple[str, dict[str, int | str]]:
    """Return IR text and metadata of a :class:`Unit`; :class:`CompileError` if it cannot be translated.

    ``lanes`` (the host's width) does not matter: a strip is always a wave.
    """
    return Translator(msgspec.msgpack.decode(payload, type=Unit)).run()


def signed(value: int, bits: int) -> str:
    """Return an integer constant of ``bits`` bits as LLVM writes it."""
    value &= (1 << bits) - 1
    return str(value - (1 << bits) if value >> (bits - 1) else value)


def constant_bits(operand: Operand) -> int | None:
    """Return the bits of a constant source in the width of its type, ``None`` for registers.

    Integers are not converted for float types; a 32-bit literal is the high half of an f64 and the low half
    of other 64-bit values (ISA manual, table of operand constants).
    """
    kind, wide = operand.type, operand.type.endswith("64")
    if operand.kind == "int":
        return operand.num & ((1 << 64) - 1 if wide else (1 << 32) - 1)
    if operand.kind == "float":
        f32, f16, f64 = FLOAT_CONSTANTS[operand.num]
        if wide:
            return f64
        return f16 if kind in ("f16", "v2f16") else f32
    if operand.kind == "literal":
        if kind == "f64":
            return operand.num << 32
        if kind == "i64" and operand.num >> 31:
            return operand.num | 0xFFFFFFFF << 32
        return operand.num
    if operand.kind == "null":
        return 0
    if operand.kind in APERTURES:
        high = APERTURES[operand.kind]
        limit = 0xFFFFFFFF if operand.kind.endswith("limit") else 0
        return high << 32 | limit if wide or operand.size == 2 else high
    return None


class Translator:
    """Translates one program.

    ``v`` emits vectors of lanes, ``s`` scalars, ``p`` vectors of 16-bit halves (two a lane).
    """

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.wave = unit.wave
        self.v = Emitter(unit.wave)
        self.s = Emitter(1, self.v)
        self.p = Emitter(2 * unit.wave, self.v)
        self.flow = flow_module.analyse(unit)
        self.helpers: dict[str, str] = {}
        self.allocas: dict[str, str] = {}
        self.sites = 0
        self.instruction: Instruction
        self.lanes: str | None = None  # of the instruction: which lanes write, besides EXEC
        self.truncating = False  # whether the instruction rounds toward zero whatever MODE says
        self._scalars: dict[int, str] = {}
        self._vectors: dict[int, tuple[str, str]] = {}
        self._memo: dict[tuple[str, ...], str] = {}
        self._dirty_scalars = 0
        self._dirty_vectors = 0
        self._windows: dict[int, Window] = {}
        self._facts: Facts = {}
        self._merge = 0
        self._block = self.flow.blocks[0]
        accesses = sum(
            1 for i in flow_module.every_instruction(self.flow) if i.format in effects.VECTOR_MEMORY
        )
        self.compact = (
            accesses > MANY_ACCESSES
        )  # memory accesses become calls, to bound the time of translation
        # Operands of matrix instructions are the same in both halves of a wave.
        self.mirrored = flow_module.uses(self.flow, lambda i: i.name.startswith("v_wmma"))
        self._scalar_slots: dict[int, int] = {}
        self._vector_slots: dict[int, int] = {}
        self._state_bytes = self._allocate()

    # --- layout of the state ---

    def _allocate(self) -> int:
        scalars = vectors = 0
        for block in self.flow.blocks:
            scalars |= block.live_in
            vectors |= block.vector_in
        if self.flow.relative:
            vectors = effects.ALL_VECTORS
        offset = STATE_REGISTERS
        for number in bit_numbers(vectors):
            self._vector_slots[number] = offset
            offset += 4 * self.wave
        if self.flow.relative_scalars:
            scalars |= effects.ALL_SGPRS
        for number in bit_numbers(scalars):
            self._scalar_slots[number] = offset
            offset += 4
        return (offset + ALIGN - 1) // ALIGN * ALIGN

    # --- the whole function ---

    def run(self) -> tuple[str, dict[str, int | str]]:
        """Return IR text and metadata."""
        v = self.v
        if self.unit.strict:
            waits.check(self.flow, self.wave, self.unit.entry)
        self._prologue()
        for block in self.flow.blocks:
            self._translate_block(block)
        allocas = [
            f"%scratch = alloca {v.i64}, align 64",
            *(f"%{name} = alloca {kind}, align 64" for name, kind in self.allocas.items()),
        ]
        text = module(v, allocas, list(self.helpers.values()))
        meta: dict[str, int | str] = {
            "lanes": self.wave,
            "sites": self.sites,
            "state_bytes": self._state_bytes,
            "barriers": int(bool(self._resumes())),
            "instructions": sum(len(b.instructions) for b in self.flow.blocks),
        }
        return text, meta

    def _resumes(self) -> list[int]:
        if self.unit.single:
            return []
        return sorted(
            b.successors[0]
            for b in self.flow.blocks
            if b.instructions and b.instructions[-1].name == "s_barrier"
        )

    def _resume_address(self) -> str:
        return self.s.new(f"getelementptr i32, ptr {self.s.field('resumes', 'ptr')}, i64 %strip")

    def _prologue(self) -> None:
        """Give the registers that live at the start their values; then enter or resume."""
        s = self.s
        entry = self.flow.blocks[self.flow.block_at[self.unit.entry]]
        if resumes := self._resumes():
            resume = s.new(f"load i32, ptr {self._resume_address()}, align 4")
            cases = " ".join(f"i32 {b + 1}, label %block{b}" for b in resumes)
            s.line(f"switch i32 {resume}, label %fresh [ {cases} ]")
        else:
            s.line("br label %fresh")
        s.label("fresh")
        if self.unit.strict and flow_module.uses(self.flow, lambda i: i.format in ("scratch", "flat")):
            base, size = self.private_base(), s.field("private_size")
            s.call_void("llvm.memset.p0.i64", ("ptr", base), ("i8", "-83"), ("i64", size), ("i1", "false"))
        vectors = self._vector_slots if self.flow.relative else bit_numbers(entry.vector_in)
        for number in sorted(vectors):
            value = self._initial_vector(number)
            s.line(f"store {self.v.i32} {value}, ptr {self._vector_slot(number)}, align {ALIGN}")
        scalars = self._scalar_slots if self.flow.relative_scalars else bit_numbers(entry.live_in)
        for number in sorted(scalars):
            s.line(f"store i32 {self._initial_scalar(number)}, ptr {self._scalar_slot(number)}, align 4")
        s.line(f"br label %block{entry.index}")

    def _initial_vector(self, number: int) -> str:
        """Return a VGPR at wave start: v0 has the packed work-item ids, the others are poisoned."""
        if number:
            return self.v.splat("i32", str(POISON))
        ids = self.v.field("ids", "ptr")
        row = self.s.new(f"mul i64 %strip, {4 * self.wave}")
        return self.v.new(f"load {self.v.i32}, ptr {self.v.at(ids, row)}, align 4")

    def _initial_scalar(self, number: int) -> str:
        """Return a scalar register at wave start: what the launch grants, else poison."""
        unit, s = self.unit, self.s
        if number < unit.user:
            return s.new(f"load i32, ptr {s.at(s.field('constants', 'ptr'), 4 * number)}, align 4")
        if number in unit.group_ids:
            name = "xyz"[unit.group_ids.index(number)]
            return s.cast("trunc", s.field(f"group_{name}"), "i64", "i32")
        if number == unit.group_info != UNUSED:
            first = s.cast("zext", s.new("icmp eq i64 %strip, 0"), "i1", "i32")
            waves = s.cast("trunc", s.field("strips"), "i64", "i32")
            return s.op("or", "i32", s.op("shl", "i32", first, "31"), s.op("and", "i32", waves, "63"))
        if number in (EXEC, EXEC + 1):
            mask = s.at(s.field("masks", "ptr"), s.new(f"mul i64 %strip, {MASK_BYTES}"))
            return s.new(f"load i32, ptr {s.at(mask, 4 * (number - EXEC))}, align 4")
        if number == MODE:
            return str(unit.mode)
        if number == SCC:
            return "0"
        return str(POISON)

    def _vector_slot(self, number: int) -> str:
        return self.v.at("%state", self._vector_slots[number])

    def _scalar_slot(self, number: int) -> str:
        return self.s.at("%state", self._scalar_slots[number])

    # --- blocks ---

    def _translate_block(self, block: Block) -> None:
        """Translate a block; twice if it has loads that may be checked all at once (:mod:`windows`)."""
        from ringfence.virtual.isa.rdna import windows

        self._block = block
        self._scalars, self._vectors, self._memo = {}, {}, {}
        self._facts = dict(block.facts)
        self.v.label(f"block{block.index}")
        ends = windows.planned(block, self.wave)
        if not ends:
            self._translate_body(block)
            return
        good, found = windows.check(self, ends)
        quick, plain = self.v.block("quick"), self.v.block("plain")
        self.v.line(f"br i1 {good}, label %{quick}, label %{plain}")
        for label, using in ((quick, found), (plain, {})):
            with self.aside():
                self._windows = using
                self.v.label(label)
                self._translate_body(block)
        self._windows = {}

    def _translate_body(self, block: Block) -> None:
        self._dirty_scalars = self._dirty_vectors = 0
        self._facts = dict(block.facts)
        if self.unit.count:
            self._count(len(block.instructions))
        for i, e in zip(block.instructions, block.effects):
            self._translate(i)
            facts.advance(i, e, self._facts)
        if block.illegal:
            self.fault(FAULT_ILLEGAL, block.end)
        elif not block.instructions or not flow_module.ends_block(block.instructions[-1]):
            self.flush()
            self.goto(block.successors[0])

    def window(self, register: int) -> Window | None:
        """Return the window that the addresses in a VGPR are known to lie in."""
        found = self._windows.get(register)
        return found if found is not None and self._vectors.get(register) == ("i32", found.value) else None

    def _count(self, instructions: int) -> None:
        s, pointer = self.s, self.s.field_address("executed")
        total = s.op("add", "i64", s.new(f"load i64, ptr {pointer}, align 8"), str(instructions))
        s.line(f"store i64 {total}, ptr {pointer}, align 8")

    def _translate(self, i: Instruction) -> None:
        from ringfence.virtual.isa.rdna.table import semantics_of

        self.instruction = i
        self._merge = self.flow.merges.get(i.pc, 0)
        self.lanes, self.truncating = None, False
        semantics_of(i)(self, i)

    @property
    def facts(self) -> Facts:
        """What is known about scalar registers at the running instruction."""
        return self._facts

    @property
    def mode(self) -> Mode:
        """The MODE register at the running instruction, as far as it is known."""
        return Mode(facts.mode_of(self._facts), self.truncating)

    def unsupported(self, i: Instruction, what: str) -> TranslationError:
        """Return the error for a form of an instruction that the virtual GPU does not have."""
        message = f"byte {i.pc:#x} `{i.text}`: the virtual GPU has no {what}"
        return TranslationError(message, pc=i.pc, instruction=i.text)

    @contextmanager
    def shape(self, e: Emitter) -> Iterator[Emitter]:
        """Let the float operations work on vectors of another shape."""
        wave, self.v = self.v, e
        try:
            yield e
        finally:
            self.v = wave

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Emit code of a side block.

        Values made there are forgotten, since they do not reach the main path.
        """
        saved = dict(self._memo), dict(self._scalars), dict(self._vectors)
        try:
            yield
        finally:
            self._memo, self._scalars, self._vectors = saved

    # --- memoised values ---

    def memo(self, key: tuple[str, ...], make: Callable[[], str]) -> str:
        """Return the value made for ``key`` in this block. Only for code on the main path of the block."""
        name = self._memo.get(key)
        if name is None:
            name = self._memo[key] = make()
        return name

    def convert(self, e: Emitter, value: str, kind: str, target: str) -> str:
        """Return the bits of a value as another kind of the same width."""
        if kind == target:
            return value
        shape = str(e.lanes)
        name = self.memo(
            ("bits", shape, target, value),
            lambda: e.cast("bitcast", value, vector_type(e, kind), vector_type(e, target)),
        )
        self._memo[("bits", shape, kind, name)] = value
        return name

    def splat(self, kind: str, scalar: str) -> str:
        """Return a scalar (i32, i64, i16) in every lane."""
        if not scalar.startswith("%"):
            return self.v.splat(kind, scalar)
        return self.memo(("splat", str(self.v.lanes), kind, scalar), lambda: self.v.splat(kind, scalar))

    def constant(self, kind: str, bits: int) -> str:
        """Return a constant in every lane as ``kind``, given its bits."""
        integer = INTEGER_OF.get(kind, kind)
        value = self.v.splat(integer, signed(bits, int(integer[1:])))
        return self.convert(self.v, value, integer, kind)

    def join(self, e: Emitter, low: str, high: str) -> str:
        """Return the i64 of two i32."""

        def make() -> str:
            wide = e.op("shl", e.i64, e.cast("zext", high, e.i32, e.i64), e.splat("i64", "32"))
            return e.op("or", e.i64, wide, e.cast("zext", low, e.i32, e.i64))

        return self.memo(("join", str(e.lanes), low, high), make)

    def halves(self, e: Emitter, value: str) -> tuple[str, str]:
        """Return the two i32 of an i64."""
        low = e.cast("trunc", value, e.i64, e.i32)
        high = e.cast("trunc", e.op("lshr", e.i64, value, e.splat("i64", "32")), e.i64, e.i32)
        self._memo[("join", str(e.lanes), low, high)] = value
        return low, high

    # --- scalar registers ---

    def scalar(self, register: int) -> str:
        """Return a scalar register (by operand code) as i32."""
        if register == NULL:
            return "0"
        known = self._facts.get(register)
        if isinstance(known, int):
            return signed(known, 32)
        value = self._scalars.get(register)
        if value is None:
            if register in self._scalar_slots:
                value = self.s.new(f"load i32, ptr {self._scalar_slot(register)}, align 4")
            else:
                value = str(POISON)  # never written on any way here
            self._scalars[register] = value
        return value

    def set_scalar(self, register: int, value: str) -> None:
        """Set a scalar register to an i32."""
        if register == NULL:
            return
        self._facts.pop(register, None)
        self._scalars[register] = value
        self._dirty_scalars |= 1 << register

    def scalar64(self, register: int) -> str:
        """Return a pair of scalar registers as i64."""
        low, high = self.scalar(register), self.scalar(register + 1)
        if not low.startswith("%") and not high.startswith("%"):
            return signed(int(low) & 0xFFFFFFFF | int(high) << 32, 64)
        return self.join(self.s, low, high)

    def set_scalar64(self, register: int, value: str) -> None:
        """Set a pair of scalar registers to an i64."""
        if register == NULL:
            return
        if not value.startswith("%"):
            low, high = signed(int(value), 32), signed(int(value) >> 32, 32)
        else:
            low, high = self.halves(self.s, value)
        self.set_scalar(register, low)
        self.set_scalar(register + 1, high)

    def scc(self) -> str:
        """Return SCC as i1."""
        value = self._scalars.get(SCC)
        if value is None:
            word = (
                self.s.new(f"load i32, ptr {self._scalar_slot(SCC)}, align 4")
                if SCC in self._scalar_slots
                else "0"
            )
            value = self._scalars[SCC] = self.s.cast("trunc", word, "i32", "i1")
        return value

    def set_scc(self, value: str) -> None:
        """Set SCC to an i1."""
        self._scalars[SCC] = value
        self._dirty_scalars |= 1 << SCC

    def mode_register(self) -> str:
        """Return the MODE register as i32."""
        return self.scalar(MODE)

    # --- lane masks ---

    def wave_bits(self, register: int) -> str:
        """Return the lane bits in one (wave32) or two scalar registers as iN."""
        return self.scalar(register) if self.wave == 32 else self.scalar64(register)

    def set_wave_bits(self, register: int, bits: str) -> None:
        if self.wave == 32:
            self.set_scalar(register, bits)
        else:
            self.set_scalar64(register, bits)

    def mask(self, register: int) -> str:
        """Return the lanes whose bit is set in one (wave32) or two scalar registers."""
        bits, v = self.wave_bits(register), self.v
        return self.memo(("mask", bits), lambda: v.cast("bitcast", bits, v.bits, v.mask))

    def set_mask(self, register: int, mask: str) -> None:
        """Set a lane mask; the bits of inactive lanes must be clear in ``mask``."""
        bits = self.v.mask_bits(mask)
        self._memo[("mask", bits)] = mask
        self.set_wave_bits(register, bits)

    @property
    def full(self) -> bool:
        """Whether all lanes are known to be active."""
        return facts.exec_full(self._facts, self.wave)

    def exec_mask(self) -> str:
        """Return the active lanes."""
        return self.v.splat("i1", "true") if self.full else self.mask(EXEC)

    def exec_bits(self) -> str:
        return "-1" if self.full else self.wave_bits(EXEC)

    def active(self, mask: str) -> str:
        """Return ``mask`` without inactive lanes."""
        return mask if self.full else self.v.op("and", self.v.mask, mask, self.mask(EXEC))

    def first_active(self) -> str:
        """Return the number of the lowest active lane as i32, 0 if there is none."""
        if self.full:
            return "0"

        def make() -> str:
            v, bits = self.v, self.wave_bits(EXEC)
            lane = v.call(v.bits, f"llvm.cttz.{v.bits}", (v.bits, bits), ("i1", "false"))
            bounded = self.s.op("and", v.bits, lane, str(self.wave - 1))
            return bounded if self.wave == 32 else self.s.cast("trunc", bounded, "i64", "i32")

        return self.memo(("first active", self.wave_bits(EXEC)), make)

    # --- vector registers ---

    def vgpr(self, number: int, kind: str = "i32") -> str:
        """Return a VGPR as ``i32`` or ``f32`` lanes."""
        found = self._vectors.get(number)
        if found is None:
            if number in self._vector_slots:
                value = self.v.new(f"load {self.v.i32}, ptr {self._vector_slot(number)}, align {ALIGN}")
            else:
                value = self.v.splat("i32", str(POISON))
            found = self._vectors[number] = ("i32", value)
        return self.convert(self.v, found[1], found[0], kind)

    def set_vgpr(self, number: int, value: str, kind: str = "i32") -> None:
        """Write a VGPR in the lanes that the instruction writes; other lanes are kept where that matters."""
        condition = self.lanes
        if self._merge >> number & 1:
            condition = self.mask(EXEC) if condition is None else self.active(condition)
        if condition is not None:
            value = self.v.select(condition, vector_type(self.v, kind), value, self.vgpr(number, kind))
        self.replace_vgpr(number, value, kind)

    def replace_vgpr(self, number: int, value: str, kind: str = "i32") -> None:
        """Write all lanes of a VGPR."""
        self._vectors[number] = (kind, value)
        self._dirty_vectors |= 1 << number

    def vgpr64(self, number: int, kind: str = "i64") -> str:
        """Return a pair of VGPRs as i64 or f64 lanes."""
        return self.convert(self.v, self.join(self.v, self.vgpr(number), self.vgpr(number + 1)), "i64", kind)

    def set_vgpr64(self, number: int, value: str, kind: str = "i64") -> None:
        """Write a pair of VGPRs."""
        low, high = self.halves(self.v, self.convert(self.v, value, kind, "i64"))
        self.set_vgpr(number, low)
        self.set_vgpr(number + 1, high)

    def vgpr16(self, number: int, high: bool, kind: str = "i16") -> str:
        """Return a half of a VGPR as i16 or f16 lanes."""
        v, word = self.v, self.vgpr(number)
        return self.convert(v, self.half_of(word, high), "i16", kind)

    def half_of(self, word: str, high: bool) -> str:
        """Return a half of i32 lanes as i16 lanes."""
        v = self.v

        def make() -> str:
            shifted = v.op("lshr", v.i32, word, v.splat("i32", "16")) if high else word
            return v.cast("trunc", shifted, v.i32, v.i16)

        return self.memo(("half", str(high), word), make)

    def set_vgpr16(self, number: int, high: bool, value: str, kind: str = "i16") -> None:
        """Write a half of a VGPR; the other half is kept."""
        v = self.v
        part = v.cast("zext", self.convert(v, value, kind, "i16"), v.i16, v.i32)
        if high:
            part = v.op("shl", v.i32, part, v.splat("i32", "16"))
        kept = v.op("and", v.i32, self.vgpr(number), v.splat("i32", "65535" if high else "-65536"))
        self.set_vgpr(number, v.op("or", v.i32, kept, part))

    # --- operands of scalar instructions ---

    def scalar_source(self, operand: Operand) -> str:
        """Return a scalar source as i32 or, if it has two dwords, i64."""
        wide = operand.size == 2 or operand.type in ("b64", "i64", "u64", "f64")
        if operand.type == "mask":
            wide = self.wave == 64
        bits = constant_bits(operand)
        if bits is not None:
            return signed(bits, 64 if wide else 32)
        if operand.kind == "scc":
            return self.s.cast("zext", self.scc(), "i1", "i64" if wide else "i32")
        if operand.kind in ("vccz", "execz"):
            zero = self.is_zero(VCC if operand.kind == "vccz" else EXEC)
            return self.s.cast("zext", zero, "i1", "i64" if wide else "i32")
        register = facts.register_of(operand)
        if register is None:
            raise CompileError(f"operand kind {operand.kind} is not a scalar source")
        return self.scalar64(register) if wide else self.scalar(register)

    def is_zero(self, register: int) -> str:
        """Return an i1: no lane bit is set in a mask register."""
        return self.s.new(f"icmp eq {self.v.bits} {self.wave_bits(register)}, 0")

    def put_scalar(self, operand: Operand, value: str) -> None:
        """Write an i32, or the i64 of a two-dword operand, to a scalar destination."""
        register = facts.register_of(operand)
        if operand.kind == "null":
            return
        if register is None:
            raise CompileError(f"operand kind {operand.kind} is not a scalar destination")
        if operand.size == 2:
            self.set_scalar64(register, value)
        else:
            self.set_scalar(register, value)

    # --- operands of vector instructions ---

    def kind(self, operand: Operand) -> str:
        """Return the kind of lane values that an operand's type means."""
        return KINDS[operand.type]

    def source(self, operand: Operand, kind: str | None = None) -> str:
        """Return a vector source with its abs and neg modifiers, in the kind of its type (or ``kind``)."""
        natural = self.kind(operand)
        value = self._raw_source(operand, natural)
        value = self.modified(operand, value, natural)
        return self.convert(self.v, value, natural, kind or natural)

    def modified(self, operand: Operand, value: str, kind: str) -> str:
        """Apply abs and neg, which act on the sign bit."""
        if not operand.abs and not operand.neg:
            return value
        v = self.v
        real = {"i16": "f16", "i32": "f32", "i64": "f64"}.get(kind, kind)
        value = self.convert(v, value, kind, real)
        if operand.abs:
            value = v.unary("fabs", vector_type(v, real), value)
        if operand.neg:
            value = v.new(f"fneg {vector_type(v, real)} {value}")
        return self.convert(v, value, real, kind)

    def _raw_source(self, operand: Operand, kind: str) -> str:
        v = self.v
        bits = constant_bits(operand)
        if bits is not None:
            return self.constant(kind, bits)
        integer = INTEGER_OF.get(kind, kind)
        if operand.kind == "vgpr":
            if integer == "i16":
                return self.vgpr16(operand.num, operand.hi, kind)
            if integer == "i64":
                return self.vgpr64(operand.num, kind)
            return self.vgpr(operand.num, kind)
        if integer == "i64":
            return self.convert(v, self.splat("i64", self._wide_scalar(operand)), "i64", kind)
        word = self.scalar_source(operand)
        if integer == "i16":
            if operand.hi:
                word = self.s.op("lshr", "i32", word, "16")
            return self.convert(v, self.splat("i16", self.s.cast("trunc", word, "i32", "i16")), "i16", kind)
        return self.convert(v, self.splat("i32", word), "i32", kind)

    def _wide_scalar(self, operand: Operand) -> str:
        register = facts.register_of(operand)
        if register is None:
            return self.s.cast("zext", self.scalar_source(operand), "i32", "i64")
        return self.scalar64(register)

    def mask_source(self, operand: Operand) -> str:
        """Return a lane mask source (VCC or an SGPR) as i1 lanes."""
        v = self.v
        register = facts.register_of(operand)
        if register is not None:
            return self.mask(register)
        return v.cast("bitcast", self.scalar_source(operand), v.bits, v.mask)

    def put(self, operand: Operand, value: str, kind: str | None = None) -> None:
        """Write lanes of the kind of the destination's type (or ``kind``) to a VGPR destination."""
        kind = kind or self.kind(operand)
        width = int(INTEGER_OF.get(kind, kind)[1:])
        if operand.kind != "vgpr":
            raise CompileError(f"operand kind {operand.kind} is not a vector destination")
        if width == 16:
            self.set_vgpr16(operand.num, operand.hi, value, kind)
        elif width == 64:
            self.set_vgpr64(operand.num, value, kind)
        else:
            self.set_vgpr(operand.num, value, kind)

    def put_mask(self, operand: Operand, mask: str) -> None:
        """Write a lane mask destination; inactive lanes get 0."""
        if operand.kind == "null":
            return
        if self.lanes is not None:
            mask = self.v.op("and", self.v.mask, mask, self.lanes)
        register = facts.register_of(operand)
        assert register is not None
        self.set_mask(register, self.active(mask))

    # --- registers in memory ---

    def flush(self) -> None:
        """Store the changed registers that other blocks read."""
        live = self._block.live_out | (effects.ALL_SGPRS if self.flow.relative_scalars else 0)
        vectors = self._block.vector_out | (effects.ALL_VECTORS if self.flow.relative else 0)
        self._store_scalars(self._dirty_scalars & live)
        self._store_vectors(self._dirty_vectors & vectors)
        self._dirty_scalars = self._dirty_vectors = 0

    def spill(self) -> None:
        """Bring the slots of all registers up to date, for accesses by index."""
        vectors, scalars = bits_of(self._vector_slots), bits_of(self._scalar_slots)
        self._store_vectors(self._dirty_vectors & vectors)
        self._store_scalars(self._dirty_scalars & scalars)
        self._dirty_vectors &= ~vectors
        self._dirty_scalars &= ~scalars

    def forget_vectors(self) -> None:
        """Drop cached VGPRs: memory holds newer values."""
        self._vectors.clear()

    def forget_scalars(self) -> None:
        """Drop cached SGPRs: memory holds newer values."""
        self._scalars = {k: v for k, v in self._scalars.items() if k > 105}
        self._facts = {k: f for k, f in self._facts.items() if k > 105}

    def _store_scalars(self, registers: int) -> None:
        s = self.s
        for number in bit_numbers(registers):
            value = self._scalars[number]
            if number == SCC:
                value = s.cast("zext", value, "i1", "i32")
            s.line(f"store i32 {value}, ptr {self._scalar_slot(number)}, align 4")

    def _store_vectors(self, registers: int) -> None:
        for number in bit_numbers(registers):
            kind, value = self._vectors[number]
            vector = vector_type(self.v, kind)
            self.v.line(f"store {vector} {value}, ptr {self._vector_slot(number)}, align {ALIGN}")

    def vector_file(self) -> str:
        """Return the address of VGPR 0; register n of lane l lies 4 * (n * wave + l) bytes further."""
        return self.v.at("%state", self._vector_slots[0])

    def scalar_file(self) -> str:
        """Return the address of SGPR 0."""
        return self.s.at("%state", self._scalar_slots[0])

    # --- memory bases and helpers ---

    def site(self) -> int:
        """Return the number of a new memory site."""
        self.sites += 1
        return self.sites - 1

    def alloca(self, name: str, kind: str) -> str:
        """Return stack memory of the strip function, shared by all who ask for the same name."""
        self.allocas.setdefault(name, kind)
        return f"%{name}"

    def private_base(self) -> str:
        """Return the wave's private memory: dword d of lane l lies at (d * wave + l) * 4."""
        s = self.s
        offset = s.op("mul", "i64", s.field("private_stride"), "%strip")
        return s.new(f"getelementptr i8, ptr {s.field('private', 'ptr')}, i64 {offset}")

    def lane_helper(self, name: str, arguments: str, body: str) -> None:
        """Make sure that the module has the lane loop ``name``."""
        if name not in self.helpers:
            self.helpers[name] = lane_loop(name, self.wave, arguments, body)

    def code_address(self, offset: int) -> str:
        """Return the GPU address of a code byte."""
        return self.s.op("add", "i64", self.s.field("code"), str(offset))

    # --- control flow ---

    def goto(self, target: int) -> None:
        """Continue at block ``target``."""
        if target <= self._block.index:
            self._check_cancelled()
        self.v.line(f"br label %block{target}")

    def _check_cancelled(self) -> None:
        v = self.v
        flag = v.new(f"load volatile i32, ptr {v.field('cancel', 'ptr')}, align 4")
        hit, go = v.block("cancelled"), v.block("go")
        stop = v.new(f"icmp ne i32 {flag}, 0")
        v.line(f"br i1 {stop}, label %{hit}, label %{go}, !prof !0")
        v.label(hit)
        self.fault(FAULT_HANG, self.instruction.pc)
        v.label(go)

    def fault(self, kind: int, pc: int, address: str = "0") -> None:
        """Leave with a fault of the first active lane; ``address`` (i64) is what the report shows."""
        v = self.v
        with self.aside():
            lane = self.s.cast("zext", self.first_active(), "i32", "i64")
        for name, value in (("kind", str(kind)), ("pc", str(pc)), ("lane", lane), ("address", address)):
            v.line(f"store i64 {value}, ptr {v.field_address('fault_' + name)}, align 8")
        v.line(f"ret i32 {FAULT}")

    def barrier(self, successor: int) -> None:
        """Wait for the other waves of the work-group."""
        v = self.v
        self.flush()
        if self.unit.single:
            self.goto(successor)
            return
        v.line("fence seq_cst")
        v.line(f"store i32 {successor + 1}, ptr {self._resume_address()}, align 4")
        v.line(f"ret i32 {BARRIER}")

    def end(self) -> None:
        self.v.line(f"ret i32 {DONE}")

    @property
    def block(self) -> Block:
        """The block that is being translated."""
        return self._block

    def branch(self, condition: str, target: int, otherwise: int) -> None:
        """Go to ``target`` if the i1 ``condition`` holds."""
        s = self.s
        taken, fall = s.block("taken"), s.block("fall")
        s.line(f"br i1 {condition}, label %{taken}, label %{fall}")
        for label, where in ((taken, target), (fall, otherwise)):
            s.label(label)
            self.goto(where)


def vector_type(e: Emitter, kind: str) -> str:
    """Return the LLVM type of lanes of ``kind`` (``i32``, ``f64``, ...)."""
    element = ELEMENTS[kind]
    return element if e.lanes == 1 else f"<{e.lanes} x {element}>"


def bit_numbers(bits: int) -> list[int]:
    """Return the numbers of the set bits."""
    numbers = []
    while bits:
        low = bits & -bits
        numbers.append(low.bit_length() - 1)
        bits ^= low
    return numbers


def bits_of(numbers: dict[int, int]) -> int:
    return sum(1 << n for n in numbers)


__all__ = ["M0", "Semantics", "Translator", "constant_bits", "translate", "vector_type"]
