"""Random programs against an interpreter in Python: what single instructions do, in all combinations.

Some registers hold the same value in all fibers, others differ, and predicates of both kinds govern regions,
so that values computed once for all fibers and values computed for each meet everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from virtual.isa.ir3.harness import INTEGERS32, Array, Rows, crossed, same, words
from virtual.isa.ir3.test_ir3_integers import BINARY, COMPARISONS, signed

REGISTERS = [f"r{n}.{c}" for n in (1, 2, 3) for c in "xyzw"]
VARYING = REGISTERS[:4]  # inputs; the others start with what all fibers share
CONSTANTS = [0, 1, 5, 0xFFFFFFFF, 0x80000000, 31]
ROWS = 128
MASK = 0xFFFFFFFF

Machine = dict[str, Array]
OPERATIONS: dict[str, Callable[[Array, Array, int], Array]] = {
    k: f for k, f in BINARY.items() if k != "mgen.b"
}


@dataclass(frozen=True)
class Operation:
    """``name`` of ``a`` and ``b`` to ``target``; ``repeat`` more times with the next registers."""

    name: str
    target: str
    a: str
    b: str
    repeat: int = 0


registers = st.sampled_from(REGISTERS)
sources = st.one_of(registers, st.integers(0, len(CONSTANTS) - 1).map(lambda k: f"c{k >> 2}.{'xyzw'[k & 3]}"),
                    st.integers(-1023, 1023).map(str))  # fmt: skip
operations = st.builds(Operation, st.sampled_from(sorted(OPERATIONS)), registers, registers, sources)
repeated = st.builds(
    Operation, st.sampled_from(sorted(OPERATIONS)), st.sampled_from(["r1.x", "r2.y"]), st.just("r2.x"),
    st.sampled_from(["r1.y", "r3.w"]), st.integers(1, 3),
)  # fmt: skip
moves = st.builds(lambda t, a: Operation("mov", t, a, ""), registers, sources)
bodies = st.lists(st.one_of(operations, repeated, moves), min_size=1, max_size=6)
regions = st.tuples(st.sampled_from(sorted(COMPARISONS)), registers, sources, bodies, bodies)
programs = st.lists(st.one_of(bodies, regions), min_size=1, max_size=5)


def _next(register: str, k: int) -> str:
    return REGISTERS[REGISTERS.index(register) + k]


def _value(machine: Machine, source: str) -> Array:
    if source in machine:
        return machine[source].astype(np.int64)
    if source.startswith("c"):
        return np.full(ROWS, CONSTANTS[4 * int(source[1]) + "xyzw".index(source[3])], np.int64)
    return np.full(ROWS, int(source) & MASK, np.int64)


def _interpret(body: list[Operation], machine: Machine, where: Array) -> None:
    for operation in body:
        for k in range(operation.repeat + 1):
            target = _next(operation.target, k)
            a = _value(machine, _next(operation.a, k) if operation.repeat else operation.a)
            if operation.name == "mov":
                result = a
            else:
                result = OPERATIONS[operation.name](a, _value(machine, operation.b), 32)
            machine[target] = np.where(where, result & MASK, machine[target].astype(np.int64)).astype(
                np.uint32
            )


def _text(body: list[Operation]) -> list[str]:
    lines = []
    for o in body:
        if o.name == "mov":
            lines.append(f"mov.u32u32 {o.target}, {o.a}")
        elif o.repeat:
            lines.append(f"(rpt{o.repeat}){o.name} {o.target}, (r){o.a}, {o.b}")
        else:
            lines.append(f"{o.name} {o.target}, {o.a}, {o.b}")
    return lines


@settings(max_examples=25, deadline=None, derandomize=True)
@given(program=programs)
def test_random_programs_do_what_an_interpreter_does(
    rows: Rows, program: list[list[Operation] | tuple[str, str, str, list[Operation], list[Operation]]]
) -> None:
    inputs = dict(zip(VARYING, (c[:ROWS] for c in crossed(INTEGERS32, 4)), strict=True))
    machine: Machine = {
        **inputs,
        **{r: np.full(ROWS, k * 77, np.uint32) for k, r in enumerate(REGISTERS[4:])},
    }
    lines = ["(sy)nop"] + [f"mov.u32u32 {r}, {k * 77}" for k, r in enumerate(REGISTERS[4:])]
    everywhere = np.ones(ROWS, bool)
    for part in program:
        if isinstance(part, list):
            lines += _text(part)
            _interpret(part, machine, everywhere)
            continue
        condition, a, b, true, false = part
        lines += [
            f"cmps.s.{condition} p0.x, {a}, {b}",
            "(rpt5)nop",
            "predt",
            *_text(true),
            "predf",
            *_text(false),
        ]
        lines.append("prede")
        where = COMPARISONS[condition](signed(_value(machine, a), 32), signed(_value(machine, b), 32))
        _interpret(true, machine, where)
        _interpret(false, machine, ~where)
    results = rows("\n".join(lines), inputs, REGISTERS, constants=words(*CONSTANTS))
    for register in REGISTERS:
        same(results[register], machine[register])
