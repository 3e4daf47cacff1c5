"""The instructions of a program, decoded when control can reach them, and how a translation refuses one."""

from __future__ import annotations

from ringfence.hardware.adreno.ir3 import Instruction, UnknownInstruction, decode
from ringfence.hardware.adreno.ir3.operands import with_full_sources
from ringfence.virtual.isa.jit import TranslationError

INSTRUCTION_BYTES = 8


def refuse(instruction: Instruction, reason: str) -> TranslationError:
    """Return the error that says why ``instruction`` is not translated."""
    text = instruction.text
    return TranslationError(f"pc {instruction.pc} `{text}`: {reason}", pc=instruction.pc, instruction=text)


class Code:
    """A program as an array of instructions. What lies behind ``end`` (padding, data) is never decoded."""

    def __init__(self, code: bytes) -> None:
        if not code or len(code) % INSTRUCTION_BYTES:
            raise TranslationError(f"code of {len(code)} bytes is no sequence of 8-byte instructions")
        self._code = code
        self._decoded: dict[int, Instruction] = {}

    def __len__(self) -> int:
        return len(self._code) // INSTRUCTION_BYTES

    def word(self, pc: int) -> int:
        """Return the instruction word at ``pc``."""
        start = pc * INSTRUCTION_BYTES
        return int.from_bytes(self._code[start : start + INSTRUCTION_BYTES], "little")

    def __getitem__(self, pc: int) -> Instruction:
        """Return the instruction at ``pc``; :class:`TranslationError` if there is none."""
        if not 0 <= pc < len(self):
            raise TranslationError(
                f"control runs past the end of the program: it has {len(self)} instructions and no `end` "
                f"before pc {pc}",
                pc=pc,
            )
        known = self._decoded.get(pc)
        if known is None:
            known = self._decoded[pc] = _decode(self.word(pc), pc)
        return known


def _decode(word: int, pc: int) -> Instruction:
    try:
        return with_full_sources(decode(word, pc))
    except UnknownInstruction as error:
        raise TranslationError(str(error), pc=pc, instruction=f"{word:#018x}") from error
