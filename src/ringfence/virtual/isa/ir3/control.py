"""Semantics of flow control, predication, barriers and cache control: categories 0 and 7."""

from __future__ import annotations

from ringfence.hardware.adreno.ir3 import Instruction
from ringfence.virtual.isa.ir3.translator import Semantics, Translator
from ringfence.virtual.isa.simt import CONTEXT, Emitter

CLUSTER = 8  # fibers; getlast behaves as if its cluster size were always 8 (Mesa ir3-cat0.xml)


def _condition(t: Translator, i: Instruction, which: int, e: Emitter) -> str:
    predicate = t.read(("p", int(i.fields[f"comp{which}"])), "mask", e)
    if not int(i.fields[f"inv{which}"]):
        return predicate
    return e.op("xor", e.mask, predicate, e.splat("i1", "true"))


def _target(t: Translator, i: Instruction) -> int:
    return t.flow.block_at[int(i.fields["target"])]


def _following(t: Translator, i: Instruction) -> int:
    return t.flow.block_at[i.pc + 1]


def branch(t: Translator, i: Instruction) -> None:
    """br, brao, braa: each fiber jumps where its condition holds."""
    e = t.shape(i)
    condition = _condition(t, i, 1, e)
    if i.name in ("brao", "braa"):
        condition = e.op("or" if i.name == "brao" else "and", e.mask, condition, _condition(t, i, 2, e))
    t.flush()
    t.branch(condition, e, _target(t, i), _following(t, i))


def wave_branch(t: Translator, i: Instruction) -> None:
    """bany, ball: all active fibers jump if any, or all, of their conditions hold."""
    v = t.v
    condition = _condition(t, i, 1, v)
    t.flush()
    if i.name == "bany":
        decided = v.any(v.op("and", v.mask, condition, t.mask))
    else:
        missing = v.op("and", v.mask, v.op("xor", v.mask, condition, v.splat("i1", "true")), t.mask)
        decided = v.op("xor", "i1", v.any(missing), "true")
    t.branch(decided, t.s, _target(t, i), _following(t, i))


def elect(t: Translator, i: Instruction) -> None:
    """getone: the first active fiber falls through, the others jump."""
    v = t.v
    t.flush()
    bits = v.mask_bits(t.mask)
    lowest = v.op("and", v.bits, bits, v.op("sub", v.bits, "0", bits))
    others = v.from_bits(v.op("xor", v.bits, bits, lowest))
    t.branch(others, v, _target(t, i), _following(t, i))


def elect_last(t: Translator, i: Instruction) -> None:
    """getlast: of the first cluster with active fibers all jump but the last; other clusters fall through."""
    v = t.v
    t.flush()
    bits = v.mask_bits(t.mask)
    first = v.op("and", v.bits, v.first_lane(bits), str(-CLUSTER))
    cluster = v.op("and", v.bits, bits, v.op("shl", v.bits, str((1 << CLUSTER) - 1), first))
    zeros = v.call(v.bits, f"llvm.ctlz.{v.bits}", (v.bits, cluster), ("i1", "false"))
    last = v.op("lshr", v.bits, str(-(1 << v.lanes - 1)), v.op("and", v.bits, zeros, str(v.lanes - 1)))
    t.branch(v.from_bits(v.op("xor", v.bits, cluster, last)), v, _target(t, i), _following(t, i))


def preamble_start(t: Translator, i: Instruction) -> None:
    """shps: the first wave falls into the preamble, waves that find it done jump over it."""
    t.flush()
    done = t.s.new(f"icmp ne i64 {t.s.field('preamble')}, 0")
    t.branch(done, t.s, _target(t, i), _following(t, i))


def preamble_end(t: Translator, i: Instruction) -> None:
    """shpe: the preamble is done."""
    t.s.line(f"store i64 1, ptr {t.s.at('%ctx', CONTEXT['preamble'])}, align 8")


def jump(t: Translator, i: Instruction) -> None:
    t.flush()
    t.goto(_target(t, i))


def call(t: Translator, i: Instruction) -> None:
    """call: push the address of the next instruction and jump."""
    t.flush()
    t.call(_target(t, i), _following(t, i))


def give_back(t: Translator, i: Instruction) -> None:
    """ret: jump to the address that the last call of each fiber pushed."""
    t.flush()
    t.give_back()


def end(t: Translator, i: Instruction) -> None:
    t.finish_lanes()


def predicate_true(t: Translator, i: Instruction) -> None:
    t.enter_region(False)


def predicate_false(t: Translator, i: Instruction) -> None:
    t.enter_region(True)


def predicate_end(t: Translator, i: Instruction) -> None:
    t.leave_region()


def barrier(t: Translator, i: Instruction) -> None:
    t.flush()
    t.barrier(_following(t, i))


def fence(t: Translator, i: Instruction) -> None:
    t.v.line("fence seq_cst")


def nothing(t: Translator, i: Instruction) -> None:
    """sleep, cache control: no effect on results; the host is coherent with itself."""


SEMANTICS: dict[str, Semantics] = {
    "br": branch,
    "brao": branch,
    "braa": branch,
    "bany": wave_branch,
    "ball": wave_branch,
    "getone": elect,
    "getlast": elect_last,
    "shps": preamble_start,
    "shpe": preamble_end,
    "jump": jump,
    "call": call,
    "ret": give_back,
    "end": end,
    "predt": predicate_true,
    "predf": predicate_false,
    "prede": predicate_end,
    "bar": barrier,
    "fence": fence,
    **dict.fromkeys(("sleep", "icinv", "dccln", "dcinv", "dcflu", "tcinv"), nothing),
}
