"""The RDNA3 (gfx11) instruction set: decoding, which refuses what it does not know, and disassembly text."""

from ringfence.hardware.amd.rdna.decoder import decode, decode_program
from ringfence.hardware.amd.rdna.instruction import Dpp, Instruction, Operand, UnknownInstruction

__all__ = ["Dpp", "Instruction", "Operand", "UnknownInstruction", "decode", "decode_program"]
