"""The translation of one ir3 program: blocks, masks and control flow. What single instructions do is in
other modules.

Where lanes may take different ways, the lowest waiting block runs first, which brings lanes together again
where compilers meant them to meet (Mesa lays blocks out in reverse post-order).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ringfence.hardware.adreno.ir3 import Instruction
from ringfence.hardware.adreno.ir3.operands import CONSTANT_WRITES
from ringfence.virtual.isa.ir3 import flow as flow_module
from ringfence.virtual.isa.ir3.code import refuse
from ringfence.virtual.isa.ir3.flow import Block, Flow, Key
from ringfence.virtual.isa.ir3.registers import Registers
from ringfence.virtual.isa.ir3.unit import Unit
from ringfence.virtual.isa.simt import (
    BARRIER,
    DONE,
    FAULT,
    FAULT_BARRIER,
    FAULT_CALL,
    FAULT_HANG,
    MASK_BYTES,
    NO_BLOCK,
    POISON_BYTE,
    STATE_MASK,
    Emitter,
    lane_loop,
    module,
)

CALL_DEPTH = 16  # return addresses that a fiber can hold; deeper calls are a fault
PRIVATE_ACCESSES = frozenset(("ldp", "stp"))

Semantics = Callable[["Translator", Instruction], None]


class Translator(Registers):
    """Translates one program with the instruction semantics of a table."""

    def __init__(
        self, unit: Unit, lanes: int, flow: Flow, ids: frozenset[Key], table: Mapping[str, Semantics]
    ) -> None:
        super().__init__(unit, lanes, flow, ids)
        self._table = table
        self._helpers: dict[str, str] = {}
        self._sites = 0
        self.data_rows = 4  # vectors that %data holds
        self._after: set[Key] = set()
        names = {i.name for i in flow.instructions()}
        self._barriers = "bar" in names
        self._calls = "call" in names or "ret" in names
        self._private = not names.isdisjoint(PRIVATE_ACCESSES)
        self._writes_constants = not names.isdisjoint(CONSTANT_WRITES)
        if not flow.divergent:
            self._entry_varying = flow_module.varying_at_entry(flow, ids)[0]
        self._stack = self.state_bytes  # per lane: the depth, then the return blocks
        if self._calls:
            self.state_bytes += 4 * lanes * (1 + CALL_DEPTH)

    # --- the whole function ---

    def run(self) -> tuple[str, dict[str, int | str]]:
        """Return the IR text of the program and what the executor must know about it."""
        v = self.v
        self._prologue()
        for block in self.flow.blocks:
            self._translate_block(block)
        if self.flow.divergent:
            self._dispatcher()
        allocas = [
            f"%scratch = alloca {v.i64}, align 64",
            f"%data = alloca [{self.data_rows} x {v.i32}], align 64",
            f"%waiting = alloca {v.i32}, align 64",
            "%next = alloca i32, align 4",
            "%target = alloca i32, align 4",
            f"%active = alloca {v.bits}, align 16",
            f"%governor = alloca {v.bits}, align 16",
        ]
        return module(v, allocas, list(self._helpers.values())), self._meta()

    def _meta(self) -> dict[str, int | str]:
        return {
            "lanes": self.lanes,
            "sites": self._sites,
            "state_bytes": self.state_bytes,
            "barriers": int(self._barriers),
            "divergent": int(self.flow.divergent),
            "writes_constants": int(self._writes_constants),
            "instructions": sum(len(b.instructions) for b in self.flow.blocks),
        }

    def _prologue(self) -> None:
        """Enter the first block with fresh registers, or resume after a barrier."""
        v, s = self.v, self.s
        masks = v.field("masks", "ptr")
        position = s.new(f"mul i64 %strip, {MASK_BYTES}")
        present = s.new(f"load {v.bits}, ptr {v.at(masks, position)}, align 16")
        s.line(f"store {v.bits} {present}, ptr %active, align 16")
        s.line(f"store {v.bits} -1, ptr %governor, align 16")
        s.line(f"store {v.i32} {v.splat('i32', str(NO_BLOCK))}, ptr %waiting, align 64")
        s.line(f"store i32 {NO_BLOCK}, ptr %next, align 4")
        if self._barriers:
            self._resume()
        else:
            s.line("br label %fresh")
        s.label("fresh")
        if self.unit.strict and self._private:
            self._poison_private()
        if self._calls:
            s.line(f"store {v.i32} zeroinitializer, ptr {v.at('%state', self._stack)}, align 4")
        first = self.flow.blocks[self.flow.entry]
        live = set(self._slots) if self.flow.relative else first.live_in | self._everywhere
        for key in sorted(live & self._slots.keys()):
            self._initialise(key)
        s.line(f"br label %block{first.index}")

    def _resume(self) -> None:
        v, s = self.v, self.s
        resume = s.new(f"load i32, ptr {self._resume_address()}, align 4")
        fresh = s.new(f"icmp eq i32 {resume}, 0")
        s.line(f"br i1 {fresh}, label %fresh, label %resumed")
        s.label("resumed")
        kept = s.new(f"load {v.bits}, ptr {v.at('%state', STATE_MASK)}, align 16")
        s.line(f"store {v.bits} {kept}, ptr %active, align 16")
        after = {b.successors[0] for b in self.flow.blocks if b.instructions[-1].name == "bar"}
        cases = " ".join(f"i32 {b}, label %block{b}" for b in sorted(after))
        s.line(f"switch i32 {resume}, label %fresh [ {cases} ]")

    def _resume_address(self) -> str:
        return self.s.new(f"getelementptr i32, ptr {self.s.field('resumes', 'ptr')}, i64 %strip")

    def _poison_private(self) -> None:
        parts = (
            ("ptr", self.private_base()),
            ("i8", str(POISON_BYTE)),
            ("i64", self.s.field("private_size")),
        )
        self.s.call_void("llvm.memset.p0.i64", *parts, ("i1", "false"))

    # --- blocks and instructions ---

    def _translate_block(self, block: Block) -> None:
        v = self.v
        self._begin_registers(block)
        v.label(f"block{block.index}")
        if self.unit.count:
            self._count(block)
        if self._full:
            self._mask = v.splat("i1", "true")
        else:
            self._mask = v.from_bits(v.new(f"load {v.bits}, ptr %active, align 16"))
        if block.instructions[0].pc in self.flow.region:
            governor = v.from_bits(v.new(f"load {v.bits}, ptr %governor, align 16"))
            self._write_mask = v.op("and", v.mask, governor, self._mask)
        for instruction in block.instructions:
            self._translate_instruction(instruction)
        if not flow_module.ends_block(block.instructions[-1]):
            self.flush()
            self.goto(block.successors[0])

    def _count(self, block: Block) -> None:
        """Add the instructions of a block, each for every lane of the strip; see :class:`Executor`."""
        s, pointer = self.s, self.s.field_address("executed")
        issued = sum(i.repeat + 1 for i in block.instructions if i.name != "nop")
        total = s.op("add", "i64", s.new(f"load i64, ptr {pointer}, align 8"), str(issued * self.lanes))
        s.line(f"store i64 {total}, ptr {pointer}, align 8")

    def _translate_instruction(self, instruction: Instruction) -> None:
        self._instruction = instruction
        if instruction.name == "nop":
            return
        semantics = self._table.get(instruction.name)
        if semantics is None:
            raise refuse(instruction, f"{instruction.name} is not implemented by the virtual GPU")
        if not self.flow.divergent:
            self._after = set(self.varying)
            flow_module.step(instruction, self._after, self.flow)
        semantics(self, instruction)
        if not self.flow.divergent:
            self.varying = self._after

    def shape(self, instruction: Instruction) -> Emitter:
        """Return the scalar emitter if all lanes share an instruction's results, else the vector one."""
        if self.flow.divergent:
            return self.v
        governed = self._write_mask is not None
        if flow_module.per_lane(instruction, governed):
            return self.v
        if not self.varying.isdisjoint(self.flow.sources(instruction)):
            return self.v
        return self.v if governed and not self._after.isdisjoint(self.flow.results(instruction)) else self.s

    # --- memory bases ---

    def site(self) -> int:
        """Return the number of a new memory site."""
        self._sites += 1
        return self._sites - 1

    def private_base(self) -> str:
        """Return the strip's private memory."""
        s = self.s
        offset = s.op("mul", "i64", s.field("private_stride"), "%strip")
        return s.new(f"getelementptr i8, ptr {s.field('private', 'ptr')}, i64 {offset}")

    def helper(self, name: str, arguments: str, body: str) -> None:
        """Make sure that the module has the lane loop ``name``."""
        self._helpers.setdefault(name, lane_loop(name, self.lanes, arguments, body))

    # --- control flow ---

    def goto(self, target: int) -> None:
        """Continue the active lanes at block ``target``, unless lanes wait at an earlier block."""
        v = self.v
        if target <= self._block.index:
            self._check_cancelled()
        if not self.flow.divergent:
            v.line(f"br label %block{target}")
            return
        following = v.new("load i32, ptr %next, align 4")
        v.line(f"store i32 {target}, ptr %target, align 4")
        free = v.new(f"icmp ult i32 {target}, {following}")
        v.line(f"br i1 {free}, label %block{target}, label %park")

    def _check_cancelled(self) -> None:
        v = self.v
        flag = v.new(f"load volatile i32, ptr {v.field('cancel', 'ptr')}, align 4")
        hit, go = v.block("cancelled"), v.block("go")
        stop = v.new(f"icmp ne i32 {flag}, 0")
        v.line(f"br i1 {stop}, label %{hit}, label %{go}, !prof !0")
        v.label(hit)
        self._leave(FAULT_HANG)
        v.label(go)

    def _leave(self, kind: int) -> None:
        """Report a fault of the active lanes at the block's last instruction."""
        v = self.v
        v.report(kind, self._block.instructions[-1].pc, v.mask_bits(self._mask), "zeroinitializer")
        v.line(f"ret i32 {FAULT}")

    def branch(self, condition: str, e: Emitter, target: int, otherwise: int) -> None:
        """Send the active lanes where ``condition`` holds to ``target`` and the others to ``otherwise``."""
        v = self.v
        if self.flow.divergent:
            self._branch_by_lane(condition if e.lanes > 1 else v.splat("i1", condition), target, otherwise)
            return
        if e.lanes > 1:
            condition = v.new(f"extractelement {v.mask} {condition}, i64 0")
        taken, fall = v.block("taken"), v.block("fall")
        v.line(f"br i1 {condition}, label %{taken}, label %{fall}")
        for label, where in ((taken, target), (fall, otherwise)):
            v.label(label)
            self.goto(where)

    def _branch_by_lane(self, condition: str, target: int, otherwise: int) -> None:
        v = self.v
        active = v.mask_bits(self._mask)
        jumping = v.mask_bits(v.op("and", v.mask, condition, self._mask))
        staying = v.op("xor", v.bits, active, jumping)
        taken, mixed_or_fall, fall, mixed = (v.block(n) for n in ("taken", "some", "fall", "mixed"))
        none_stay = v.new(f"icmp eq {v.bits} {staying}, 0")
        v.line(f"br i1 {none_stay}, label %{taken}, label %{mixed_or_fall}")
        v.label(taken)
        self.goto(target)
        v.label(mixed_or_fall)
        none_jump = v.new(f"icmp eq {v.bits} {jumping}, 0")
        v.line(f"br i1 {none_jump}, label %{fall}, label %{mixed}")
        v.label(fall)
        self.goto(otherwise)
        v.label(mixed)
        early, late = (target, otherwise) if target < otherwise else (otherwise, target)
        early_bits, late_bits = (jumping, staying) if target < otherwise else (staying, jumping)
        self._park_bits(late_bits, late)
        v.line(f"store {v.bits} {early_bits}, ptr %active, align 16")
        self.goto(early)

    def _park_bits(self, bits: str, target: int) -> None:
        """Let the lanes of ``bits`` wait at block ``target``."""
        v = self.v
        waiting = v.new(f"load {v.i32}, ptr %waiting, align 64")
        updated = v.select(v.from_bits(bits), v.i32, v.splat("i32", str(target)), waiting)
        v.line(f"store {v.i32} {updated}, ptr %waiting, align 64")
        following = v.new("load i32, ptr %next, align 4")
        least = self.s.binary("umin", "i32", following, str(target))
        v.line(f"store i32 {least}, ptr %next, align 4")

    def finish_lanes(self) -> None:
        """The active lanes have ended: run those that wait, or end the strip."""
        v = self.v
        if not self.flow.divergent:
            v.line(f"ret i32 {DONE}")
            return
        following = v.new("load i32, ptr %next, align 4")
        done = v.block("done")
        none = v.new(f"icmp eq i32 {following}, {NO_BLOCK}")
        v.line(f"br i1 {none}, label %{done}, label %pick")
        v.label(done)
        v.line(f"ret i32 {DONE}")

    def barrier(self, successor: int) -> None:
        """Wait for the other strips of the work-group; a barrier that only some lanes reach is a fault."""
        v = self.v
        if self.flow.divergent:
            following = v.new("load i32, ptr %next, align 4")
            bad, good = v.block("split"), v.block("joined")
            split = v.new(f"icmp ne i32 {following}, {NO_BLOCK}")
            v.line(f"br i1 {split}, label %{bad}, label %{good}, !prof !0")
            v.label(bad)
            self._leave(FAULT_BARRIER)
            v.label(good)
        v.line("fence seq_cst")
        v.line(f"store {v.bits} {v.mask_bits(self._mask)}, ptr {v.at('%state', STATE_MASK)}, align 16")
        v.line(f"store i32 {successor}, ptr {self._resume_address()}, align 4")
        v.line(f"ret i32 {BARRIER}")

    def _dispatcher(self) -> None:
        """Emit ``park`` (active lanes wait at %target) and ``pick`` (lanes of the lowest block run)."""
        v = self.v
        v.label("park")
        bits = v.new(f"load {v.bits}, ptr %active, align 16")
        target = v.new("load i32, ptr %target, align 4")
        waiting = v.new(f"load {v.i32}, ptr %waiting, align 64")
        parked = v.select(v.from_bits(bits), v.i32, v.splat("i32", target), waiting)
        v.line(f"store {v.i32} {parked}, ptr %waiting, align 64")
        v.line("br label %pick")
        v.label("pick")
        waiting = v.new(f"load {v.i32}, ptr %waiting, align 64")
        reduce = f"llvm.vector.reduce.umin.{v.suffix(v.i32)}"
        lowest = v.call("i32", reduce, (v.i32, waiting))
        chosen = v.new(f"icmp eq {v.i32} {waiting}, {v.splat('i32', lowest)}")
        rest = v.select(chosen, v.i32, v.splat("i32", str(NO_BLOCK)), waiting)
        v.line(f"store {v.i32} {rest}, ptr %waiting, align 64")
        v.line(f"store i32 {v.call('i32', reduce, (v.i32, rest))}, ptr %next, align 4")
        v.line(f"store {v.bits} {v.mask_bits(chosen)}, ptr %active, align 16")
        cases = " ".join(f"i32 {b.index}, label %block{b.index}" for b in self.flow.blocks)
        v.line(f"switch i32 {lowest}, label %lost [ {cases} ]")
        v.label("lost")
        v.line("unreachable")

    # --- calls ---

    def _stack_pointers(self, depth: str) -> str:
        """Return pointers to the return block number ``depth`` of each lane."""
        v = self.v
        row = v.op("mul", v.i32, depth, v.splat("i32", str(self.lanes)))
        index = v.op("add", v.i32, row, v.lane_numbers())
        base = v.at("%state", self._stack + 4 * self.lanes)
        return v.new(f"getelementptr i32, ptr {base}, {v.i32} {index}")

    def call(self, target: int, successor: int) -> None:
        """Send the active lanes to ``target``; their next return leads to ``successor``."""
        v, depth = self.v, self._depth()
        self._check_depth(v.new(f"icmp uge {v.i32} {depth}, {v.splat('i32', str(CALL_DEPTH))}"))
        v.scatter(v.i32, v.splat("i32", str(successor)), self._stack_pointers(depth), self._mask, 4)
        self._set_depth(v.op("add", v.i32, depth, v.splat("i32", "1")))
        self.goto(target)

    def give_back(self) -> None:
        """Send each active lane to where its last call came from."""
        v, depth = self.v, self._depth()
        self._check_depth(v.new(f"icmp eq {v.i32} {depth}, zeroinitializer"))
        depth = v.op("sub", v.i32, depth, v.splat("i32", "1"))
        targets = v.gather(v.i32, self._stack_pointers(depth), self._mask, 4)
        self._set_depth(depth)
        waiting = v.new(f"load {v.i32}, ptr %waiting, align 64")
        v.line(f"store {v.i32} {v.select(self._mask, v.i32, targets, waiting)}, ptr %waiting, align 64")
        v.line("br label %pick")

    def _depth(self) -> str:
        return self.v.new(f"load {self.v.i32}, ptr {self.v.at('%state', self._stack)}, align 4")

    def _set_depth(self, depth: str) -> None:
        v = self.v
        kept = v.select(self._mask, v.i32, depth, self._depth())
        v.line(f"store {v.i32} {kept}, ptr {v.at('%state', self._stack)}, align 4")

    def _check_depth(self, wrong: str) -> None:
        v = self.v
        bad = v.op("and", v.mask, wrong, self._mask)
        v.fault_if(bad, FAULT_CALL, self._instruction.pc, "zeroinitializer")

    # --- predicated regions ---

    def enter_region(self, inverted: bool) -> None:
        """Restrict writes to the lanes whose p0.x is set (predt) or clear (predf)."""
        v = self.v
        predicate = self.every_lane(("p", 0))
        if inverted:
            predicate = v.op("xor", v.mask, predicate, v.splat("i1", "true"))
        if self.flow.crosses:
            v.line(f"store {v.bits} {v.mask_bits(predicate)}, ptr %governor, align 16")
        self._write_mask = v.op("and", v.mask, predicate, self._mask)

    def leave_region(self) -> None:
        """Let every active lane write again."""
        if self.flow.crosses:
            self.v.line(f"store {self.v.bits} -1, ptr %governor, align 16")
        self._write_mask = None
