"""Semantics of v_cmp and v_cmpx: one bit per lane, clear in inactive lanes."""

from __future__ import annotations

from collections.abc import Callable

from ringfence.hardware.amd.rdna import Instruction
from ringfence.virtual.isa.rdna import floats
from ringfence.virtual.isa.rdna.operands import operands
from ringfence.virtual.isa.rdna.real import sources
from ringfence.virtual.isa.rdna.translate import Semantics, Translator, constant_bits, vector_type

FLOAT_CONDITIONS = {
    "f": "false", "lt": "olt", "eq": "oeq", "le": "ole", "gt": "ogt", "lg": "one", "ge": "oge",
    "o": "ord", "u": "uno",
    "nge": "ult", "nlg": "ueq", "ngt": "ule", "nle": "ugt", "neq": "une", "nlt": "uge", "t": "true",
}  # fmt: skip
INTEGER_CONDITIONS = {"lt": "lt", "eq": "eq", "le": "le", "gt": "gt", "ne": "ne", "ge": "ge"}
CLASSES = 10

Test = Callable[[Translator, Instruction], str]


def _result(test: Test) -> Semantics:
    def semantics(t: Translator, i: Instruction) -> None:
        t.put_mask(i.dsts[0], test(t, i))

    return semantics


def _real(condition: str) -> Test:
    def test(t: Translator, i: Instruction) -> str:
        a, b = sources(t, i)
        return t.v.new(f"fcmp {FLOAT_CONDITIONS[condition]} {vector_type(t.v, t.kind(i.srcs[0]))} {a}, {b}")

    return test


def _integer(condition: str) -> Test:
    def test(t: Translator, i: Instruction) -> str:
        a, b = operands(t, i)
        if condition in ("f", "t"):
            return t.v.splat("i1", "true" if condition == "t" else "false")
        name = INTEGER_CONDITIONS[condition]
        sign = "" if name in ("eq", "ne") else ("u" if i.srcs[0].type.startswith("u") else "s")
        return t.v.new(f"icmp {sign}{name} {vector_type(t.v, t.kind(i.srcs[0]))} {a}, {b}")

    return test


def _class(t: Translator, i: Instruction) -> str:
    """S0 is in one of the classes of the mask S1; denormals count as such whatever MODE says."""
    v, kind = t.v, t.kind(i.srcs[0])
    value, wanted = operands(t, i)
    known = constant_bits(i.srcs[1])
    if known is not None:
        return floats.is_class(t, value, kind, known & (1 << CLASSES) - 1)
    vector = vector_type(v, t.kind(i.srcs[1]))
    element = "i16" if vector == v.i16 else "i32"
    found = v.splat("i1", "false")
    for bit in range(CLASSES):
        asked = v.new(
            f"icmp ne {vector} {v.op('and', vector, wanted, v.splat(element, str(1 << bit)))}, "
            f"zeroinitializer"
        )
        found = v.op(
            "or", v.mask, found, v.op("and", v.mask, asked, floats.is_class(t, value, kind, 1 << bit))
        )
    return found


def _table() -> dict[str, Semantics]:
    table: dict[str, Semantics] = {}
    for prefix in ("v_cmp", "v_cmpx"):
        for kind in ("f16", "f32", "f64"):
            table[f"{prefix}_class_{kind}"] = _result(_class)
            for condition in FLOAT_CONDITIONS:
                table[f"{prefix}_{condition}_{kind}"] = _result(_real(condition))
        for kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
            for condition in ("f", *INTEGER_CONDITIONS, "t"):
                table[f"{prefix}_{condition}_{kind}"] = _result(_integer(condition))
    return table


SEMANTICS = _table()
