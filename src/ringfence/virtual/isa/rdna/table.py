"""The semantics of every instruction by name."""

from __future__ import annotations

from functools import cache

from ringfence.hardware.amd.rdna import Instruction
from ringfence.hardware.amd.rdna.tables import rows
from ringfence.virtual.isa.jit import TranslationError
from ringfence.virtual.isa.rdna.refused import REFUSED
from ringfence.virtual.isa.rdna.translate import Semantics


@cache
def semantics() -> dict[str, Semantics]:
    """Return the semantics by mnemonic."""
    from ringfence.virtual.isa.rdna import (
        compare,
        control,
        convert,
        crosslane,
        divide,
        dual,
        integer,
        interpolate,
        lds,
        matrix,
        memory,
        packed,
        real,
        salu,
        scratch,
    )

    modules = (
        salu,
        control,
        integer,
        real,
        convert,
        compare,
        divide,
        packed,
        matrix,
        interpolate,
        crosslane,
        dual,
        memory,
        lds,
        scratch,
    )
    table: dict[str, Semantics] = {}
    for module in modules:
        table.update(module.SEMANTICS)
    # The modules combine operations and types; not every combination is an instruction.
    known = {row.name for entries in rows().values() for row in entries} | {"vopd"}
    return {name: function for name, function in table.items() if name in known}


def semantics_of(i: Instruction) -> Semantics:
    """Return the semantics of an instruction; :class:`TranslationError` names one that there is none for."""
    found = semantics().get(i.name)
    if found is None:
        reason = REFUSED.get(i.name, "the virtual GPU does not implement it")
        raise TranslationError(f"byte {i.pc:#x} `{i.text}`: {reason}", pc=i.pc, instruction=i.text)
    return found
