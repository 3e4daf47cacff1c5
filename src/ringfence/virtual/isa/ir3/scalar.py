"""The scalar ALU, which chips have from the a650 on.

It carries out instructions whose registers all are shared, in their order. The next one has its result at
once, if it names the register in the same size; everything else waits for results with (ss) (Mesa
``ir3_legalize.c``).
"""

from __future__ import annotations

from ringfence.hardware.adreno.ir3 import Instruction, Operand
from ringfence.hardware.adreno.ir3.operands import SHARED_END, SHARED_FIRST
from ringfence.virtual.isa.ir3.flow import Key, register_key

_ALU = (1, 2, 3)
_REGISTERS = ("gpr", "pred", "addr", "rel_gpr", "rel_const")


def is_scalar(instruction: Instruction) -> bool:
    """Return whether the scalar ALU carries out ``instruction``, on a chip that has one."""
    if instruction.category not in _ALU or not instruction.dsts:
        return False
    return all(_shared(o) for o in (*instruction.dsts, *instruction.srcs) if o.kind in _REGISTERS)


def _shared(operand: Operand) -> bool:
    return operand.kind == "gpr" and SHARED_FIRST <= operand.num < SHARED_END


def forwards(producer: Instruction, consumer: Instruction, key: Key) -> bool:
    """Return whether ``consumer`` gets what ``producer`` wrote to shared register ``key`` without a wait."""
    if not is_scalar(producer) or not is_scalar(consumer):
        return False
    half = producer.dsts[0].half
    return all(o.half == half for o in (*consumer.dsts, *consumer.srcs) if _names(o, consumer, key))


def _names(operand: Operand, instruction: Instruction, key: Key) -> bool:
    return any(register_key(operand, k, False) == key for k in range(instruction.repeat + 1))
