"""The machine code of launches: registers give an entry address, and code is what can be reached from it.

A program without indirect jumps is the bytes between the first and the last instruction that control can
reach: so it is the same program wherever it lies and whatever is around it. One that jumps to computed
addresses (calls of functions) is the whole object that holds it, as far as one megabyte around the entry.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ringfence.hardware.amd.code_object import PREFETCH
from ringfence.hardware.amd.rdna import Instruction, UnknownInstruction, decode
from ringfence.virtual.checks import Notes
from ringfence.virtual.isa.rdna.flow import CALLS, ENDS, NEVER_TAKEN, REGISTER_JUMPS
from ringfence.virtual.memory import PAGE, AddressSpace, MemoryFault, Range

REACH = 1 << 20  # bytes around the entry that a program may consist of
_LONGEST = 24  # bytes of an instruction and a little more: what a message about a bad one needs
_REMEMBERED = 4096

_libc = ctypes.CDLL(None)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)


@dataclass(frozen=True, slots=True)
class Program:
    """``code`` are the bytes at GPU ``address``; a wave starts ``entry`` bytes into them.

    ``functions`` are other offsets where code may begin.
    """

    code: bytes
    address: int
    entry: int
    functions: tuple[int, ...]


@dataclass(slots=True)
class _Known:
    """A program that was taken from memory: ``host`` is where its code lies, in ``inside``."""

    program: Program
    host: int
    inside: Range
    generation: int


class NotExecutable(MemoryFault):
    """A program lies in memory that was mapped without permission to execute."""


class Programs:
    """The programs that were run from one address space; ``executable`` tells where there may be some.

    ``known`` says whether the instructions are those of RDNA3. Of others nothing tells where a program ends:
    it is then all that lies behind its entry, as far as one megabyte.
    """

    def __init__(
        self, memory: AddressSpace, executable: Callable[[Range], bool], notes: Notes, *, known: bool = True
    ) -> None:
        self._memory = memory
        self._decodes = known
        self._executable = executable
        self._notes = notes
        self._known: dict[tuple[int, int], _Known] = {}

    def at(self, entry: int, wave: int) -> Program:
        """Return the program that starts at ``entry``.

        :class:`MemoryFault` if nothing is mapped there. What memory holds now is compared with what it held
        when the program was run last.
        """
        known = self._known.get((entry, wave))
        if known is not None and self._valid(known, entry):
            return known.program
        return self._take(entry, wave)

    def _valid(self, known: _Known, entry: int) -> bool:
        memory = self._memory
        if known.generation != memory.generation:
            if memory.find(entry) != known.inside:
                return False
            known.generation = memory.generation
        code = known.program.code
        return not _libc.memcmp(known.host, code, len(code))

    def _take(self, entry: int, wave: int) -> Program:
        memory = self._memory
        inside = memory.find(entry)
        if inside is None:
            raise MemoryFault(entry, False, memory.nearest(entry))
        if not self._executable(inside):
            raise NotExecutable(entry, False, f"{memory.nearest(entry)}, which is not executable")
        start = max(inside.start, entry - REACH & -PAGE) if self._decodes else entry
        data = memory.read(start, min(inside.end, entry + REACH) - start)
        program = _program(data, start, entry - start, wave) if self._decodes else Program(data, entry, 0, ())
        self._note_prefetch(program)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[entry, wave] = _Known(
            program, inside.host_address + program.address - inside.start, inside, memory.generation
        )
        return program

    def _note_prefetch(self, program: Program) -> None:
        """Compute units fetch instructions ahead of those that they execute, whatever lies there."""
        end = program.address + len(program.code)
        if self._memory.find(end + PREFETCH - 1) is None:
            self._notes.approximate(
                "AMD instruction prefetch",
                f"a program ends less than {PREFETCH} bytes before memory that is not mapped, which a GPU "
                "may fetch; here it has no effect",
            )


def _program(data: bytes, start: int, entry: int, wave: int) -> Program:
    reach = _Reach(data, entry, wave)
    if reach.open:
        return Program(data, start, entry, _functions(data, start, entry, wave))
    first, end = reach.first & -4, min(len(data), reach.end)
    return Program(data[first:end], start + first, entry - first, ())


class _Reach:
    """What control reaches from an entry: bytes ``first`` to ``end``; ``open``: and what no one can tell."""

    def __init__(self, data: bytes, entry: int, wave: int) -> None:
        self._data, self._wave = data, wave
        self.first, self.end, self.open = entry, entry, False
        self._walk(entry)

    def _walk(self, entry: int) -> None:
        work, seen = [entry], set[int]()
        while work and not self.open:
            pc = work.pop()
            while pc not in seen:
                seen.add(pc)
                i = self._instruction(pc)
                if i is None:
                    self.end = max(self.end, pc + _LONGEST)
                    break
                self.first, self.end = min(self.first, pc), max(self.end, pc + i.size)
                if i.name in REGISTER_JUMPS or i.name in CALLS:
                    self.open = True
                    return
                if "target" in i.fields and i.name not in NEVER_TAKEN:
                    target = int(i.fields["target"])
                    if not 0 <= target < len(self._data):
                        self.open = True
                        return
                    work.append(target)
                if i.name in ENDS or i.name == "s_branch":
                    break
                pc += i.size

    def _instruction(self, pc: int) -> Instruction | None:
        try:
            return decode(self._data, pc, wave=self._wave)
        except (UnknownInstruction, ValueError):
            return None


def _functions(data: bytes, start: int, entry: int, wave: int) -> tuple[int, ...]:
    """Return the offsets that 64-bit values in ``data`` point to and where an instruction stands."""
    skip = -start % 8
    words = np.frombuffer(data[skip : skip + (len(data) - skip) // 8 * 8], "<u8")
    inside = np.unique(words[(words >= start) & (words < start + len(data)) & (words % 4 == 0)])
    return tuple(_code_offsets(data, (int(word) - start for word in inside), entry, wave))


def _code_offsets(data: bytes, offsets: Iterator[int], entry: int, wave: int) -> Iterator[int]:
    for offset in offsets:
        try:
            decode(data, offset, wave=wave)
        except (UnknownInstruction, ValueError):
            continue
        if offset != entry:
            yield offset
