"""The shader instruction set ir3 of Adreno a6xx: decoding and disassembly of compute code."""

from ringfence.hardware.adreno.ir3.decoder import HALF_TYPES, decode, decode_program
from ringfence.hardware.adreno.ir3.instruction import Instruction, Operand, UnknownInstruction
from ringfence.hardware.adreno.ir3.tables import ENCODINGS, FLUT, OPCODES, TYPES

__all__ = [
    "ENCODINGS",
    "FLUT",
    "HALF_TYPES",
    "OPCODES",
    "TYPES",
    "Instruction",
    "Operand",
    "UnknownInstruction",
    "decode",
    "decode_program",
]
