"""What the code of a program needs from whoever launches it: registers, constants and descriptors.

Only instructions that control can reach count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ringfence.hardware.adreno.ir3.decoder import decode
from ringfence.hardware.adreno.ir3.instruction import Instruction, Operand, UnknownInstruction
from ringfence.hardware.adreno.ir3.operands import (
    CONSTANT_WRITES,
    SHARED_FIRST,
    destination_offsets,
    source_width,
    with_full_sources,
)

INSTRUCTION_BYTES = 8
_SAMPLING = ("isam", "sam", "gather4")
_NO_WAY_ON = ("end", "ret", "jump")


class BrokenCode(ValueError):
    """The code cannot be what a compiler made for that entry point."""


@dataclass(slots=True)
class Usage:
    """What a program names.

    ``full`` and ``half`` are the vec4 of the register files that it needs. ``constants`` are the 16-bit words
    of the constant file that it reads by their numbers, not through a0.x; a half constant is one of them.
    ``writes_constants`` says that it fills some itself. The other numbers count descriptors: the highest slot
    that an instruction names, + 1. ``bindless`` descriptors are found in another way.
    """

    full: int = 0
    half: int = 0
    constants: set[int] = field(default_factory=set)
    writes_constants: bool = False
    textures: int = 0
    samplers: int = 0
    uavs: int = 0
    uniform_buffers: int = 0
    bindless: bool = False


def usage(code: bytes, entry: int = 0) -> Usage:
    """Return what the program in ``code`` that starts at instruction ``entry`` needs.

    Half constants are taken for 16-bit words, and the register files for separate. :class:`BrokenCode` if an
    instruction that control reaches does not decode, if control leaves the code, or if ``entry`` is not the
    beginning of a function.
    """
    reader = _Reader(code)
    reader.check_entry(entry)
    found = Usage()
    for instruction in reader.reachable(entry):
        _add(found, instruction)
    return found


class _Reader:
    def __init__(self, code: bytes) -> None:
        self._code = code
        self._size = len(code) // INSTRUCTION_BYTES
        self._decoded: dict[int, Instruction] = {}

    def __getitem__(self, pc: int) -> Instruction:
        if not 0 <= pc < self._size:
            raise BrokenCode(f"control leaves its {self._size} instructions, to {pc}")
        known = self._decoded.get(pc)
        if known is None:
            start = pc * INSTRUCTION_BYTES
            word = int.from_bytes(self._code[start : start + INSTRUCTION_BYTES], "little")
            try:
                known = self._decoded[pc] = with_full_sources(decode(word, pc))
            except UnknownInstruction as error:
                raise BrokenCode(str(error)) from error
        return known

    def check_entry(self, entry: int) -> None:
        """Compilers put functions behind each other: control does not run into the entry from before it."""
        before = entry - 1
        while before >= 0 and self[before].name == "nop":
            before -= 1
        if before >= 0 and self[before].name not in _NO_WAY_ON:
            raise BrokenCode(
                f"the entry, instruction {entry}, is in the middle of a function: `{self[before].text}` is "
                "before it"
            )

    def reachable(self, entry: int) -> Iterator[Instruction]:
        """Yield each instruction that control can reach, once."""
        seen: set[int] = set()
        for called, start in self._functions(entry):
            for instruction in self._function(start):
                if instruction.name == "ret" and not called:
                    raise BrokenCode(f"instruction {instruction.pc} returns, but nothing called")
                if instruction.pc not in seen:
                    seen.add(instruction.pc)
                    yield instruction

    def _functions(self, entry: int) -> Iterator[tuple[bool, int]]:
        """Yield the kernel and the functions that it calls, by whether it was called and its first pc."""
        yield False, entry
        seen: set[int] = set()
        work = [entry]
        while work:
            calls = [i for i in self._function(work.pop()) if i.name == "call"]
            for target in sorted({int(i.fields["target"]) for i in calls} - seen):
                seen.add(target)
                work.append(target)
                yield True, target

    def _function(self, start: int) -> Iterator[Instruction]:
        """Yield the instructions that are reached from ``start`` without those of called functions."""
        seen: set[int] = set()
        work = [start]
        while work:
            pc = work.pop()
            while pc not in seen:
                seen.add(pc)
                instruction = self[pc]
                yield instruction
                name = instruction.name
                if "target" in instruction.fields and name != "call":
                    work.append(int(instruction.fields["target"]))
                if name in _NO_WAY_ON:
                    break
                pc += 1


def _add(found: Usage, instruction: Instruction) -> None:
    for operand, offset in _registers(instruction):
        if operand.kind == "const":
            found.constants.update(_constant_words(operand, offset))
        elif operand.kind == "gpr" and operand.num + offset < SHARED_FIRST:
            vec4 = (operand.num + offset) // 4 + 1
            if operand.half:
                found.half = max(found.half, vec4)
            else:
                found.full = max(found.full, vec4)
    if instruction.name in CONSTANT_WRITES:
        found.writes_constants = True
    _add_descriptors(found, instruction)


def _constant_words(operand: Operand, offset: int) -> tuple[int, ...]:
    number = operand.num + offset
    return (number,) if operand.half else (2 * number, 2 * number + 1)


def _registers(instruction: Instruction) -> Iterator[tuple[Operand, int]]:
    """Yield the operands that an instruction reads, and the registers that it writes, with their offsets."""
    for position, operand in enumerate(instruction.srcs):
        repeats = instruction.repeat + 1 if operand.r else 1
        for k in range(max(repeats, source_width(instruction, position))):
            yield operand, k
    if instruction.fields.get("type") == "u8_32":
        return  # whether loads of this type write half or full registers is not known
    for operand in instruction.dsts:
        if operand.kind == "gpr":
            for offset in destination_offsets(instruction):
                yield operand, offset


def _add_descriptors(found: Usage, instruction: Instruction) -> None:
    name, fields = instruction.name, instruction.fields
    if int(fields.get("bindless", 0)):
        found.bindless = True
        return
    if instruction.category == 5 and "tex" in fields:
        found.textures = max(found.textures, int(fields["tex"]) + 1)
    if name.startswith(_SAMPLING) and "samp" in fields:
        found.samplers = max(found.samplers, int(fields["samp"]) + 1)
    if fields.get("mode") != "imm":
        return
    slots = int(fields["index"]) + 1
    if name in ("ldc", "ldc.k"):
        found.uniform_buffers = max(found.uniform_buffers, slots)
    else:
        found.uavs = max(found.uavs, slots)
