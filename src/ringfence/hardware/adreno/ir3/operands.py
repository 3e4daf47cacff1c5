"""Which registers an instruction names: which operands cover several, and where the text misleads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ringfence.hardware.adreno.ir3.instruction import Instruction, Operand

SHARED_FIRST, SHARED_END = 0xC0, 0xE0
ADDRESS_PAIRS = frozenset(("ldg", "ldg.a", "ldg.k", "stg", "stg.a"))
WIDE_LOADS = frozenset(("ldg", "ldg.a", "ldl", "ldlw", "ldp"))
WIDE_STORES = frozenset(("stg", "stg.a", "stl", "stlw", "stp", "stc"))
CONSTANT_WRITES = frozenset(("stc", "ldc.k", "ldg.k"))


def source_width(instruction: Instruction, position: int) -> int:
    """Return how many consecutive registers source ``position`` names."""
    name, fields = instruction.name, instruction.fields
    if name in ADDRESS_PAIRS and position == 0:
        return 2
    if name.startswith("atomic.g.") and position == 0:
        return 2
    if name in WIDE_STORES and position == len(instruction.srcs) - 1:
        return int(fields["size"])
    if name.startswith("atomic.b.") and position == 1:
        return 3 if name.endswith("cmpxchg") else 2
    if name.startswith("atomic.") and name.endswith("cmpxchg") and position == 1:
        return 2
    if name in ("stib", "ldib") or name.startswith("atomic.b."):
        return (int(fields["dims"]), int(fields["components"]), 1)[position]
    if int(fields.get("is_vector", 0)) and position == 0:
        return 1
    if name.startswith(("isam", "sam", "gather4")) and position == 0:
        return 2 + int(fields["is_3d"]) + int(fields["is_array"])
    return 1


def destination_offsets(instruction: Instruction) -> Iterable[int]:
    """Return which registers from its destination an instruction writes."""
    name, fields = instruction.name, instruction.fields
    if instruction.category == 5:
        return (i for i in range(4) if int(fields.get("wrmask", 0)) >> i & 1)
    if name in WIDE_LOADS:
        return range(int(fields["size"]))
    if name in ("ldib", "ldc"):
        return range(int(fields["components"]))
    if name == "movmsk":
        return range(int(fields["width"]) // 32)
    if name == "resinfo":
        return range(3)
    return range(1 if name in ("swz", "gat", "sct") else instruction.repeat + 1)


def with_full_sources(instruction: Instruction) -> Instruction:
    """Return ``mad.u16`` and ``mad.s16`` with the registers that they really read.

    With a full destination (DST_CONV set) the sources are full registers too, of which the products take the
    low halves; the disassembly calls them half registers. That is how Qualcomm's OpenCL compiler uses it (the
    vectors of tinygrad's ``test/mockgpu/qcom/test_emu.py``).
    """
    if instruction.name not in ("mad.u16", "mad.s16") or instruction.dsts[0].half:
        return instruction
    return replace(instruction, srcs=tuple(_full(source) for source in instruction.srcs))


def _full(operand: Operand) -> Operand:
    return replace(operand, half=False)
