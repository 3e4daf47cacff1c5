"""Translate ir3 programs: the entry point that compiler processes call."""

from __future__ import annotations

import msgspec

from ringfence.hardware.adreno.chips import Chip, chip_by_name
from ringfence.hardware.adreno.ir3 import Instruction
from ringfence.hardware.adreno.ir3.operands import CONSTANT_WRITES
from ringfence.virtual.isa.ir3 import alu, constants, control, cross, images, memory, sampling, waits
from ringfence.virtual.isa.ir3.code import Code, refuse
from ringfence.virtual.isa.ir3.flow import CROSS_LANE, Flow, Key, analyse, writes_shared
from ringfence.virtual.isa.ir3.refused import CHIP_SPECIFIC, REFUSED, missing_on
from ringfence.virtual.isa.ir3.registers import UNUSED
from ringfence.virtual.isa.ir3.scalar import is_scalar
from ringfence.virtual.isa.ir3.translator import Semantics, Translator
from ringfence.virtual.isa.ir3.unit import Unit

VERSION = 7  # part of every cache key: raise it when translated code or what chips have changes

SEMANTICS: dict[str, Semantics] = {
    **alu.SEMANTICS,
    **control.SEMANTICS,
    **memory.SEMANTICS,
    **constants.SEMANTICS,
    **cross.SEMANTICS,
    **images.SEMANTICS,
    **sampling.SEMANTICS,
}


def translate(payload: bytes, lanes: int) -> tuple[str, dict[str, int | str]]:
    """Return IR text and metadata of a :class:`Unit`; :class:`CompileError` if it cannot be translated.

    ``lanes`` is the wanted strip; where fibers of a wave see each other's values, or one writes for all,
    it is the whole wave.
    """
    unit = msgspec.msgpack.decode(payload, type=Unit)
    chip = chip_by_name(unit.chip)
    ids = _id_registers(unit)
    flow = analyse(Code(unit.code), unit.merged, ids, unit.entry)
    for instruction in flow.instructions():
        _check_name(instruction, chip)
    if unit.strict:
        waits.check(flow, chip.scalar_alu)
    if _needs_whole_wave(flow, chip.scalar_alu):
        lanes = unit.wave
    return Translator(unit, lanes, flow, ids, SEMANTICS).run()


def _check_name(instruction: Instruction, chip: Chip) -> None:
    name = instruction.name
    if name in CHIP_SPECIFIC and (why := missing_on(chip, name, CHIP_SPECIFIC[name])) is not None:
        raise refuse(instruction, why)
    if name in REFUSED:
        raise refuse(instruction, f"{name} is not implemented by the virtual GPU: {REFUSED[name]}")


def _needs_whole_wave(flow: Flow, scalar_alu: bool) -> bool:
    """What the scalar ALU does gives the same results when every strip of the wave does it for itself."""
    return any(
        i.name in CROSS_LANE
        or i.name in CONSTANT_WRITES
        or (writes_shared(i) and not (scalar_alu and is_scalar(i)))
        for i in flow.instructions()
    )


def _id_registers(unit: Unit) -> frozenset[Key]:
    keys: set[Key] = set()
    if unit.local_id != UNUSED:
        keys.update(("r", unit.local_id + i) for i in range(3))
    if unit.linear_id != UNUSED:
        keys.add(("r", unit.linear_id))
    return frozenset(keys)
