"""Control flow and register flow of an RDNA program: blocks, known scalars, liveness."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ringfence.errors import CompileError
from ringfence.hardware.amd.rdna import Instruction, UnknownInstruction, decode
from ringfence.virtual.isa.rdna.effects import (
    EXEC,
    MODE,
    MODE_BIT,
    RELATIVE,
    RELATIVE_SCALAR,
    Effect,
    effect,
)
from ringfence.virtual.isa.rdna.facts import (
    FULL,
    CodeAddress,
    Facts,
    advance,
    code_target,
    exec_full,
    merge,
    mode_of,
)
from ringfence.virtual.isa.rdna.unit import Unit

CALLS = frozenset(("s_swappc_b64", "s_call_b64"))
REGISTER_JUMPS = frozenset(("s_setpc_b64", "s_swappc_b64", "s_rfe_b64"))
ENDS = frozenset(("s_endpgm", "s_endpgm_saved", "s_trap", "s_code_end", "s_sethalt", "s_sendmsghalt"))
NEVER_TAKEN = frozenset(
    ("s_cbranch_cdbgsys", "s_cbranch_cdbguser", "s_cbranch_cdbgsys_or_user", "s_cbranch_cdbgsys_and_user")
)  # the debug flags are clear

# LLVM's time grows faster than a block: one of 29,000 instructions took 58 s, its pieces take 22 s and run in
# half the time. The shorter ones of loops run a little faster whole.
LONGEST_BLOCK = 2500
PIECE = 125

Places = dict[bool, tuple[int, ...]]


@dataclass(slots=True)
class Block:
    """A run of instructions entered only at the top.

    ``illegal`` tells what stands after the last instruction if that is no instruction. ``indirect``: the
    block ends with a jump to a place that is not known; its successors are all places it may be. ``facts``
    are the scalars known on entry. Live sets are bit sets, see :mod:`effects`.
    """

    index: int
    start: int
    instructions: list[Instruction]
    effects: list[Effect]
    illegal: str = ""
    indirect: bool = False
    successors: list[int] = field(default_factory=list)
    facts: Facts = field(default_factory=dict)
    live_in: int = 0
    live_out: int = 0
    vector_in: int = 0
    vector_out: int = 0
    wide_in: int = 0

    @property
    def end(self) -> int:
        """Return the byte offset after the last instruction."""
        last = self.instructions[-1] if self.instructions else None
        return self.start if last is None else last.pc + last.size


@dataclass(slots=True)
class Flow:
    """The control-flow graph.

    ``merges[pc]`` are the VGPRs whose old value in inactive lanes is needed when the instruction at ``pc``
    writes them. ``places`` are the code offsets that a jump through a register may go to, and (``True``)
    those of a call.
    """

    blocks: list[Block]
    block_at: dict[int, int]
    places: Places
    merges: dict[int, int]
    dynamic_mode: bool
    relative: bool
    relative_scalars: bool


def analyse(unit: Unit) -> Flow:
    """Return the flow of a program; :class:`CompileError` if it begins outside the code."""
    return _Analysis(unit).run()


class _Analysis:
    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self._decoded: dict[int, Instruction | str] = {}
        self._effects: dict[int, Effect] = {}
        self._targets: dict[int, int] = {}  # register jumps whose target is known
        self._open: set[int] = set()  # register jumps that may go to several places
        self._addresses: set[int] = set()  # code offsets that the program computes
        self._returns: set[int] = set()  # where calls return to

    def run(self) -> Flow:
        if not 0 <= self.unit.entry < len(self.unit.code):
            raise CompileError(
                f"entry {self.unit.entry:#x} lies outside the {len(self.unit.code)} bytes of code"
            )
        while True:
            known = (dict(self._targets), set(self._addresses), set(self._returns))
            flow = self._graph()
            self._constants(flow)
            if known == (self._targets, self._addresses, self._returns):
                break
        flow.dynamic_mode = self._mode_varies(flow)
        _liveness(flow, self.unit.wave)
        return flow

    # --- instructions ---

    def instruction(self, pc: int) -> Instruction | str:
        """Return the instruction at ``pc``, or why there is none."""
        found = self._decoded.get(pc)
        if found is None:
            if not 0 <= pc < len(self.unit.code) or pc & 3:
                found = f"byte {pc:#x} lies outside the {len(self.unit.code)} bytes of code"
            else:
                try:
                    found = decode(self.unit.code, pc, wave=self.unit.wave)
                except UnknownInstruction as error:
                    found = str(error)
            self._decoded[pc] = found
        return found

    def effect(self, i: Instruction) -> Effect:
        e = self._effects.get(i.pc)
        if e is None:
            e = self._effects[i.pc] = effect(i, self.unit.wave)
        return e

    # --- blocks ---

    def _graph(self) -> Flow:
        leaders, returns, unresolved = self._walk({self.unit.entry})
        functions: set[int] = set()
        if unresolved:
            computed = {a for a in self._addresses - self._returns if self._is_code(a)}
            functions = set(self.unit.functions) | computed
            leaders, returns, _ = self._walk({self.unit.entry} | functions | returns)
        self._returns |= returns
        starts = sorted(leaders | self._cuts(leaders))
        block_at = {pc: index for index, pc in enumerate(starts)}
        blocks = [self._block(index, start, block_at) for index, start in enumerate(starts)]
        places = {False: tuple(sorted(functions | returns)), True: tuple(sorted(functions))}
        for block in blocks:
            self._connect(block, block_at, places)
        every = [i for b in blocks for i in b.instructions]
        return Flow(
            blocks,
            block_at,
            places,
            {},
            False,
            any(RELATIVE.match(i.name) for i in every),
            any(RELATIVE_SCALAR.match(i.name) for i in every),
        )

    def _walk(self, roots: set[int]) -> tuple[set[int], set[int], bool]:
        """Return the blocks reachable from ``roots``, the return points of calls, whether a jump is open."""
        leaders, returns, work, seen = set(roots), set[int](), list(roots), set[int]()
        unresolved = False
        while work:
            pc = work.pop()
            while pc not in seen:
                seen.add(pc)
                i = self.instruction(pc)
                if isinstance(i, str):
                    break
                if not ends_block(i):
                    pc += i.size
                    continue
                following = self._following(i)
                unresolved |= i.name in REGISTER_JUMPS and i.pc not in self._targets
                if i.name in CALLS:
                    returns.add(i.pc + i.size)
                    following = [*following, i.pc + i.size]
                leaders.update(following)
                work.extend(following)
                break
        return leaders, returns, unresolved

    def _cuts(self, leaders: set[int]) -> set[int]:
        """Return where to cut blocks that are too long."""
        cuts = set[int]()
        for start in leaders:
            pc, inside = start, list[int]()
            while not isinstance(i := self.instruction(pc), str) and not ends_block(i):
                pc += i.size
                if pc in leaders:
                    break
                inside.append(pc)
            if len(inside) > LONGEST_BLOCK:
                cuts.update(inside[PIECE::PIECE])
        return cuts

    def _following(self, i: Instruction) -> list[int]:
        """Return where control may go after the last instruction of a block, as far as that is known."""
        if _ends(i):
            return []
        if i.name in REGISTER_JUMPS:
            return [self._targets[i.pc]] if i.pc in self._targets else []
        if i.name in ("s_branch", "s_call_b64"):
            return [int(i.fields["target"])]
        if i.name.startswith("s_cbranch") and i.name not in NEVER_TAKEN:
            return [int(i.fields["target"]), i.pc + i.size]
        return [i.pc + i.size]

    def _is_code(self, start: int) -> bool:
        """Return whether a computed address can be a function: everything from there decodes."""
        seen: set[int] = set()
        work = [start]
        while work:
            pc = work.pop()
            while pc not in seen:
                seen.add(pc)
                i = self.instruction(pc)
                if isinstance(i, str) or i.name == "s_code_end":
                    return False
                if ends_block(i):
                    work.extend(self._following(i))
                    break
                pc += i.size
        return True

    def _block(self, index: int, start: int, block_at: dict[int, int]) -> Block:
        body: list[Instruction] = []
        pc, illegal = start, ""
        while True:
            i = self.instruction(pc)
            if isinstance(i, str):
                illegal = i
                break
            body.append(i)
            pc += i.size
            if ends_block(i) or pc in block_at:
                break
        return Block(index, start, body, [self.effect(i) for i in body], illegal)

    def _connect(self, block: Block, block_at: dict[int, int], places: Places) -> None:
        if block.illegal:
            return
        last = block.instructions[-1]
        if not ends_block(last):
            block.successors = [block_at[block.end]]
            return
        block.successors = [block_at[pc] for pc in self._following(last)]
        if last.name in REGISTER_JUMPS and last.pc not in self._targets:
            block.indirect = True
            block.successors = [block_at[p] for p in places[last.name in CALLS]]

    # --- constants ---

    def _constants(self, flow: Flow) -> None:
        """Find the facts at the entry of every block."""
        entry: Facts = {MODE: self.unit.mode}
        if self.unit.full:
            entry.update({EXEC + k: FULL for k in range(self.unit.wave // 32)})
        states: list[Facts | None] = [None] * len(flow.blocks)
        first = flow.block_at[self.unit.entry]
        states[first] = entry
        work = [first]
        while work:
            block = flow.blocks[work.pop()]
            facts = dict(states[block.index] or {})
            for i, e in zip(block.instructions, block.effects):
                if i.name in REGISTER_JUMPS:
                    self._resolve(i, facts)
                advance(i, e, facts)
            self._addresses.update(
                f.offset for f in facts.values() if isinstance(f, CodeAddress) and not f.high
            )
            for successor in block.successors:
                old = states[successor]
                new = facts if old is None else merge(old, facts)
                if old is None or new != old:
                    states[successor] = dict(new)
                    work.append(successor)
        for block in flow.blocks:
            block.facts = states[block.index] or {}

    def _resolve(self, i: Instruction, facts: Facts) -> None:
        """Remember where a register jump goes, or that it is open after all."""
        target = code_target(i.srcs[0], facts)
        known = self._targets.get(i.pc, target)
        if target is None or target != known or isinstance(self.instruction(target), str):
            self._targets.pop(i.pc, None)
            self._open.add(i.pc)
        elif i.pc not in self._open:
            self._targets[i.pc] = target

    def _mode_varies(self, flow: Flow) -> bool:
        """Return whether MODE is unknown anywhere, so that it must be kept at run time."""
        for block in flow.blocks:
            facts = dict(block.facts)
            for i, e in zip(block.instructions, block.effects):
                if mode_of(facts) is None:
                    return True
                advance(i, e, facts)
            if mode_of(facts) is None and block.successors:
                return True
        return False


def _ends(i: Instruction) -> bool:
    """Whether the wave goes no further; s_sethalt 0 lets a halted wave go on, so it does nothing here."""
    return i.name in ENDS and not (i.name == "s_sethalt" and not int(i.fields["simm16"]) & 1)


def ends_block(i: Instruction) -> bool:
    name = i.name
    return (
        _ends(i)
        or name in REGISTER_JUMPS
        or name.startswith(("s_cbranch", "s_branch", "s_call", "s_barrier"))
    )


# --- liveness ---


def _liveness(flow: Flow, wave: int) -> None:
    """Fill the live sets and the merges.

    A VGPR is *wide* where a lane that is inactive now may read it later, that is, where EXEC grows between
    here and the next read. A write kills a register that is not wide, although it leaves inactive lanes
    alone.
    """
    full = [_full_at(block, wave) for block in flow.blocks]
    always = MODE_BIT if flow.dynamic_mode else 0
    changed = True
    while changed:
        changed = False
        for block in reversed(flow.blocks):
            scalars, vectors, wide = always, 0, 0
            for successor in block.successors:
                after = flow.blocks[successor]
                scalars |= after.live_in
                vectors |= after.vector_in
                wide |= after.wide_in
            block.live_out, block.vector_out = scalars, vectors
            before = _backward(block, full[block.index], scalars, vectors, wide, flow.merges)
            before = (before[0] | always, before[1], before[2])
            if before != (block.live_in, block.vector_in, block.wide_in):
                block.live_in, block.vector_in, block.wide_in = before
                changed = True


def _full_at(block: Block, wave: int) -> list[bool]:
    facts = dict(block.facts)
    full = []
    for i, e in zip(block.instructions, block.effects):
        full.append(exec_full(facts, wave))
        advance(i, e, facts)
    return full


def _backward(
    block: Block, full: list[bool], scalars: int, vectors: int, wide: int, merges: dict[int, int]
) -> tuple[int, int, int]:
    """Carry the live sets from the end of a block to its start and note the merges on the way."""
    for position in range(len(block.instructions) - 1, -1, -1):
        e = block.effects[position]
        scalars = (scalars & ~e.writes) | e.reads
        if e.change == "widen":
            wide |= vectors
        if e.vector_writes:
            whole = e.whole or full[position]
            merges[block.instructions[position].pc] = 0 if whole else e.vector_writes & wide
            killed = e.vector_writes & ~e.partial & (-1 if whole else ~wide)
            vectors &= ~killed
            if whole:
                wide &= ~killed
        vectors |= e.vector_reads | e.partial
        wide |= e.wide
    return scalars, vectors, wide


def every_instruction(flow: Flow) -> Iterable[Instruction]:
    """Yield the instructions that may run."""
    for block in flow.blocks:
        yield from block.instructions


def uses(flow: Flow, test: Callable[[Instruction], bool]) -> bool:
    """Return whether some instruction passes ``test``."""
    return any(test(i) for i in every_instruction(flow))
