"""A static check of ir3 programs: which registers are read that nothing can have written."""

from __future__ import annotations

from ringfence.hardware.adreno.program import UNUSED_REGISTER, AdrenoProgram
from ringfence.virtual.isa.ir3.code import Code
from ringfence.virtual.isa.ir3.flow import Block, Flow, Key, analyse


def never_written(program: AdrenoProgram) -> list[tuple[int, str, Key]]:
    """Return pc, text and register of every read that no write reaches, on any path.

    An instruction that replaces a half of a merged register counts as reading the rest of it, which need not
    hold anything; such a read is left out.
    """
    flow = analyse(Code(program.code), program.merged_registers, frozenset(), program.entry)
    found = []
    for block, written in zip(flow.blocks, _written_before(flow, _given(program)), strict=True):
        for instruction in block.instructions:
            results = set(flow.results(instruction))
            kept = results if program.merged_registers and any(d.half for d in instruction.dsts) else set()
            for key in flow.sources(instruction):
                if key not in written and key not in kept:
                    found.append((instruction.pc, instruction.text, key))
            written |= results
    return found


def _given(program: AdrenoProgram) -> set[Key]:
    """Return the registers that the hardware fills at the start."""
    ids = (program.workgroup_id_register, program.local_id_register)
    return {(file, n + k) for file in ("r", "s") for n in ids if n != UNUSED_REGISTER for k in range(3)}


def _written_before(flow: Flow, given: set[Key]) -> list[set[Key]]:
    """Return per block what may have been written when it starts."""
    before: list[set[Key]] = [set() for _ in flow.blocks]
    before[flow.entry] = set(given)
    work = [flow.entry]
    seen = {flow.entry}
    while work:
        block: Block = flow.blocks[work.pop()]
        after = before[block.index].union(*(flow.results(i) for i in block.instructions))
        for successor in block.successors:
            if successor not in seen or not after <= before[successor]:
                seen.add(successor)
                before[successor] |= after
                work.append(successor)
    return before
