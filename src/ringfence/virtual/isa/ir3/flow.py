"""Control flow and register flow of an ir3 program: blocks, liveness, uniformity.

Register keys: ``("r", n)`` full, ``("h", n)`` half, ``("p", c)`` predicate, ``("a", n)`` address register.
With merged register files half register n is a part of ``("r", n // 2)``. Shared registers (r48 and up),
which have one value for the wave, are ``("s", n)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ringfence.hardware.adreno.ir3 import Instruction, Operand
from ringfence.hardware.adreno.ir3.operands import (
    CONSTANT_WRITES,
    SHARED_END,
    SHARED_FIRST,
    destination_offsets,
    source_width,
)
from ringfence.virtual.isa.ir3.code import Code, refuse

Key = tuple[str, int]

CONDITIONAL = frozenset(("br", "brao", "braa"))
WAVE_JUMPS = frozenset(("bany", "ball", "getone", "getlast", "shps"))
QUAD_SHUFFLES = frozenset(
    ("quad_shuffle.brcst", "quad_shuffle.horiz", "quad_shuffle.vert", "quad_shuffle.diag")
)
CROSS_LANE = WAVE_JUMPS | QUAD_SHUFFLES | {"shfl", "movmsk", "brcst.active", "shpe", "movs"}
STOPS = frozenset(("jump", "end", "ret", "call"))
UNIFORM_LOADS = frozenset(("ldg", "ldg.a", "ldl", "ldlw", "isam", "ldc"))
"""Loads that give all lanes one value if the address is the same in all of them."""


@dataclass(slots=True)
class Block:
    """A run of instructions entered only at the top. ``index`` orders blocks like their code."""

    index: int
    instructions: list[Instruction]
    successors: list[int] = field(default_factory=list)
    live_in: frozenset[Key] = frozenset()
    live_out: frozenset[Key] = frozenset()
    reads: set[Key] = field(default_factory=set)
    writes: set[Key] = field(default_factory=set)


@dataclass(slots=True)
class Flow:
    """The control-flow graph. Control starts at block ``entry``.

    ``region[pc]`` is the pc of the predt or predf that governs an instruction; ``others[start]`` is the
    start of the region that covers exactly the other lanes, if one does. ``divergent``: lanes of a strip
    may be at different places. ``relative``: some register is addressed through a0.x. ``crosses``: a
    predicated region continues in another block.
    """

    blocks: list[Block]
    block_at: dict[int, int]
    entry: int
    merged: bool
    region: dict[int, int]
    others: dict[int, int]
    divergent: bool = False
    relative: bool = False
    crosses: bool = False
    _sources: dict[int, tuple[Key, ...]] = field(default_factory=dict)
    _results: dict[int, tuple[Key, ...]] = field(default_factory=dict)

    def sources(self, instruction: Instruction) -> tuple[Key, ...]:
        """Return the registers that an instruction of the program reads."""
        known = self._sources.get(instruction.pc)
        if known is None:
            known = self._sources[instruction.pc] = tuple(source_registers(instruction, self.merged))
        return known

    def results(self, instruction: Instruction) -> tuple[Key, ...]:
        """Return the registers that an instruction of the program may write."""
        known = self._results.get(instruction.pc)
        if known is None:
            known = self._results[instruction.pc] = tuple(destination_registers(instruction, self.merged))
        return known

    def instructions(self) -> Iterator[Instruction]:
        """Yield every instruction that control can reach."""
        for block in self.blocks:
            yield from block.instructions


def shifted(operand: Operand, k: int) -> Operand:
    """Return ``operand`` for repetition ``k``."""
    if not k or not operand.r or operand.kind == "imm":
        return operand
    return replace(operand, num=operand.num + k)


def register_key(operand: Operand, offset: int, merged: bool) -> Key | None:
    """Return the key of a register operand (``offset`` registers on), ``None`` for other operands."""
    number = operand.num + offset
    if operand.kind == "pred":
        return ("p", number)
    if operand.kind == "addr":
        return ("a", operand.num)
    if operand.kind != "gpr":
        return None
    if SHARED_FIRST <= number < SHARED_END:
        # Half registers are halves of full ones here even if the files are not merged (Mesa ir3.h,
        # ir3_reg_file_offset).
        return ("s", SHARED_FIRST + (number - SHARED_FIRST) // 2 if operand.half else number)
    if operand.half:
        return ("r", number >> 1) if merged else ("h", number)
    return ("r", number)


def destination_registers(instruction: Instruction, merged: bool) -> Iterator[Key]:
    """Yield the keys that ``instruction`` may write."""
    for operand in instruction.dsts:
        for offset in destination_offsets(instruction):
            if (key := register_key(operand, offset, merged)) is not None:
                yield key


def source_registers(instruction: Instruction, merged: bool) -> Iterator[Key]:
    """Yield the keys that ``instruction`` reads."""
    for position, operand in enumerate(instruction.srcs):
        if operand.kind in ("rel_gpr", "rel_const"):
            yield ("a", 0)
        repeats = instruction.repeat + 1 if operand.r else 1
        for k in range(max(repeats, source_width(instruction, position))):
            if (key := register_key(operand, k, merged)) is not None:
                yield key
    yield from _implied_sources(instruction)
    if _keeps_old_bits(instruction, merged):
        yield from destination_registers(instruction, merged)


def _keeps_old_bits(instruction: Instruction, merged: bool) -> bool:
    """Return whether an instruction replaces only a part of its destination."""
    halves = (d for d in instruction.dsts if d.half)
    return instruction.name == "brcst.active" or any(merged or d.num >= SHARED_FIRST for d in halves)


def _implied_sources(instruction: Instruction) -> Iterator[Key]:
    name, fields = instruction.name, instruction.fields
    if any(d.kind == "rel_gpr" for d in instruction.dsts):
        yield ("a", 0)
    if name == "ldc.k" or (name in CONSTANT_WRITES and int(fields.get("a1", 0))):
        yield ("a", 1)
    if name in ("predt", "predf"):
        yield ("p", 0)
    if name in CONDITIONAL or name in ("bany", "ball"):
        yield ("p", int(fields["comp1"]))
        if name in ("brao", "braa"):
            yield ("p", int(fields["comp2"]))


def writes_shared(instruction: Instruction) -> bool:
    """Return whether an instruction writes a register that has one value for the whole wave."""
    return any(key[0] == "s" for key in destination_registers(instruction, False))


def analyse(code: Code, merged: bool, varying: frozenset[Key], entry: int = 0) -> Flow:
    """Return the flow of a program that starts at pc ``entry``.

    ``varying`` are the registers that differ between lanes at the start.
    """
    blocks, block_at = _blocks(code, entry)
    flow = Flow(blocks, block_at, block_at[entry], merged, *_regions(blocks))
    flow.relative = any(o.kind == "rel_gpr" for i in flow.instructions() for o in (*i.srcs, *i.dsts))
    flow.crosses = any(b.instructions[0].pc in flow.region for b in blocks)
    for block in blocks:
        _summarise(block, flow)
    _liveness(blocks)
    flow.divergent = _divergent(flow, varying)
    return flow


def _regions(blocks: list[Block]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the ``region`` and ``others`` of a :class:`Flow`."""
    region: dict[int, int] = {}
    others: dict[int, int] = {}
    current: Instruction | None = None
    for instruction in (i for block in blocks for i in block.instructions):
        if instruction.name in ("predt", "predf"):
            if current is not None and current.name != instruction.name:
                others |= {instruction.pc: current.pc, current.pc: instruction.pc}
            current = instruction
        elif instruction.name == "prede":
            current = None
        elif current is not None:
            if ends_block(instruction):
                raise refuse(instruction, "flow control inside a predicated region is not modelled")
            region[instruction.pc] = current.pc
    changed = {region[i.pc] for block in blocks for i in block.instructions if i.pc in region and _sets_p0(i)}
    return region, {a: b for a, b in others.items() if min(a, b) not in changed}


def _sets_p0(instruction: Instruction) -> bool:
    return ("p", 0) in destination_registers(instruction, False)


def _targets(instruction: Instruction, size: int, returns: Iterable[int]) -> list[int]:
    """Return the pcs at which control may go on."""
    name = instruction.name
    if name == "end":
        return []
    if name == "ret":
        return sorted(returns)
    if "target" not in instruction.fields:
        return [instruction.pc + 1]
    target = int(instruction.fields["target"])
    if not 0 <= target < size:
        raise refuse(instruction, f"the target {target} lies outside the program's 0..{size - 1}")
    return [target] if name in ("jump", "call") else [target, instruction.pc + 1]


def ends_block(instruction: Instruction) -> bool:
    """Return whether control may go elsewhere after ``instruction`` than to the next one."""
    name = instruction.name
    return name in CONDITIONAL or name in WAVE_JUMPS or name in STOPS or name == "bar"


def _reachable(code: Code, entry: int) -> tuple[set[int], set[int], set[int]]:
    """Return the pcs that control can reach, those that begin blocks, and those after calls."""
    leaders, seen, returns = {entry}, set[int](), set[int]()
    work = [entry]
    while work:
        pc = work.pop()
        while pc not in seen:
            seen.add(pc)
            instruction = code[pc]
            if not ends_block(instruction):
                pc += 1
                continue
            following = _targets(instruction, len(code), ())
            if instruction.name == "call":
                returns.add(pc + 1)
                following.append(pc + 1)
            leaders.update(following)
            work.extend(following)
            break
    return seen, leaders, returns


def _blocks(code: Code, entry: int) -> tuple[list[Block], dict[int, int]]:
    seen, leaders, returns = _reachable(code, entry)
    starts = sorted(leaders & seen)
    block_at = {pc: index for index, pc in enumerate(starts)}
    blocks = []
    for index, start in enumerate(starts):
        body = [code[start]]
        while not ends_block(body[-1]) and body[-1].pc + 1 not in block_at:
            body.append(code[body[-1].pc + 1])
        targets = _targets(body[-1], len(code), returns)
        blocks.append(Block(index, body, [block_at[t] for t in targets]))
    return blocks, block_at


def _summarise(block: Block, flow: Flow) -> None:
    """Collect what a block reads before writing it, and what it surely writes."""
    for instruction in block.instructions:
        block.reads.update(k for k in flow.sources(instruction) if k not in block.writes)
        written = set(flow.results(instruction))
        if instruction.pc in flow.region:
            block.reads |= written - block.writes
        else:
            block.writes |= written


def _liveness(blocks: list[Block]) -> None:
    live_in: list[frozenset[Key]] = [frozenset(b.reads) for b in blocks]
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            block.live_out = frozenset().union(*(live_in[s] for s in block.successors))
            new = frozenset(block.reads) | (block.live_out - block.writes)
            if new != live_in[block.index]:
                live_in[block.index] = new
                changed = True
    for block in blocks:
        block.live_in = live_in[block.index]


def varying_at_entry(flow: Flow, varying: frozenset[Key]) -> tuple[list[set[Key]], bool]:
    """Return per block the registers that differ between lanes on entry, and whether a branch depends on one.

    Forward data flow under the assumption that no branch diverges; the first branch on a register that
    differs refutes it, and then the sets mean nothing.
    """
    entry: list[set[Key] | None] = [None] * len(flow.blocks)
    entry[flow.entry] = set(varying)
    work = [flow.entry]
    while work:
        block = flow.blocks[work.pop()]
        state = set(entry[block.index] or ())
        for instruction in block.instructions:
            if step(instruction, state, flow):
                return [], True
        for successor in block.successors:
            old = entry[successor]
            if old is None or not state <= old:
                entry[successor] = state | (old or set())
                work.append(successor)
    return [e or set() for e in entry], False


def _divergent(flow: Flow, varying: frozenset[Key]) -> bool:
    """Return whether lanes of a strip may take different ways at some branch."""
    return flow.relative or varying_at_entry(flow, varying)[1]


def per_lane(instruction: Instruction, governed: bool) -> bool:
    """Return whether an instruction is carried out lane by lane even if its operands are uniform.

    A load in a predicated region is, since it must not happen at all where the predicate is false.
    """
    if instruction.category not in (5, 6) and instruction.name not in CROSS_LANE:
        return False
    return governed or instruction.name not in UNIFORM_LOADS


def step(instruction: Instruction, state: set[Key], flow: Flow) -> bool:
    """Advance ``state`` over one instruction; return whether it is a branch that may diverge."""
    name = instruction.name
    if name in CROSS_LANE or name in ("call", "ret"):
        return True
    governed = instruction.pc in flow.region
    reads_varying = not state.isdisjoint(flow.sources(instruction))
    differs = per_lane(instruction, governed) or reads_varying
    if name in CONDITIONAL and differs:
        return True
    partial = governed and ("p", 0) in state
    for key in flow.results(instruction):
        if key[0] == "s":
            continue
        if differs or partial:
            state.add(key)
        elif not governed:
            state.discard(key)
    return False
