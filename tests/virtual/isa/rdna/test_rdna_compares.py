"""v_cmp and v_cmpx: every condition and type."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.harness import Array, Op, batch, covers
from virtual.isa.rdna.soft import FORMATS, Rules, pairs, special

ORDERED = {"lt": operator.lt, "eq": operator.eq, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
FLOAT = ("f", *ORDERED, "lg", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt", "t")
INTEGER = ("f", *ORDERED, "ne", "t")
INTEGER_TYPES = ("i16", "u16", "i32", "u32", "i64", "u64")
NAMES = [f"{p}_{c}_{k}" for p in ("v_cmp", "v_cmpx") for k in FORMATS for c in FLOAT]
NAMES += [
    f"{p}_{c}_{k}"
    for p in ("v_cmp", "v_cmpx")
    for k in INTEGER_TYPES
    for c in INTEGER
    if not (k.endswith("16") and c in "ft")
]
CLASSES = [f"{p}_class_{k}" for p in ("v_cmp", "v_cmpx") for k in FORMATS]


def holds(condition: str, a: float, b: float) -> bool:
    """Return whether a float comparison holds: n* are the complements, so true with a NaN."""
    unordered = a != a or b != b
    if condition in ("f", "t"):
        return condition == "t"
    if condition in ("o", "u"):
        return unordered == (condition == "u")
    if condition.startswith("n"):
        return not holds({"neq": "eq"}.get(condition, condition[1:]), a, b)
    if unordered:
        return False
    return a != b if condition == "lg" else ORDERED[condition](a, b)


def compare(
    amd: Executor, names: list[str], inputs: list[Array], *, mode: int = 0xF0, half: str = ""
) -> list[Array]:
    """Return for each name a row of truth values; v_cmpx is undone before the result is stored."""
    operations = []
    for name in names:
        operands = f"{{0}}{half}, {{1}}{half}"
        if name.startswith("v_cmpx"):
            text = f"v_mov_b32 {{d}}, 0; {name} {operands}; v_mov_b32 {{d}}, 1; s_mov_b32 exec_lo, -1"
        else:
            text = f"{name} s20, {operands}; v_cndmask_b32 {{d}}, 0, 1, s20"
        operations.append(Op(text))
    return [words[:, 0] for words in batch(amd, operations, inputs, mode=mode)]


@covers(*(n for n in NAMES if n.rsplit("_", 1)[1] in FORMATS))
@pytest.mark.parametrize("mode", [0xF0, 0x00], ids=hex)
@pytest.mark.parametrize("kind", list(FORMATS))
def test_float_conditions(amd: Executor, kind: str, mode: int) -> None:
    f, rules = FORMATS[kind], Rules.of(mode, kind)
    inputs = pairs(kind, rows=600)
    inputs[1][:50] = inputs[0][:50]
    names = [n for n in NAMES if n.endswith(kind)]
    found = compare(amd, names, inputs, mode=mode, half=".l" if kind == "f16" else "")
    columns = [
        np.array([rules.operand(x) for x in c.tolist()], f.unsigned).view(f.real).tolist() for c in inputs
    ]
    for name, result in zip(names, found, strict=True):
        condition = name.split("_")[2]
        wanted = [holds(condition, a, b) for a, b in zip(*columns, strict=True)]
        assert result.astype(bool).tolist() == wanted, name


@covers(*(n for n in NAMES if n.rsplit("_", 1)[1] in INTEGER_TYPES))
@pytest.mark.parametrize("kind", INTEGER_TYPES)
def test_integer_conditions(amd: Executor, kind: str) -> None:
    rng = np.random.default_rng(7)
    dtype = np.dtype(kind[0] + str(int(kind[1:]) // 8))
    edges = np.array([0, 1, 2, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    inputs = [
        np.concatenate([rng.choice(edges, 200), rng.integers(-9, 9, 200).astype(dtype)]) for _ in range(2)
    ]
    names = [n for n in NAMES if n.endswith(kind)]
    found = compare(amd, names, inputs, half=".l" if kind.endswith("16") else "")
    for name, result in zip(names, found, strict=True):
        condition = name.split("_")[2]
        truth = {"f": lambda a, b: a != a, "t": lambda a, b: a == a, "ne": operator.ne, **ORDERED}[condition]
        assert (result.astype(bool) == truth(*inputs)).all(), name


def classes(kind: str, bits: int) -> int:
    """Return the bit of a number's class."""
    f = FORMATS[kind]
    magnitude, negative = bits & ~f.sign, bool(bits & f.sign)
    if f.is_nan(bits):
        return 1 if f.is_signalling(bits) else 2
    order = ["inf", "normal", "denormal", "zero"]
    what = (
        "inf"
        if magnitude == f.infinity
        else ("zero" if not magnitude else "denormal" if f.is_denormal(bits) else "normal")
    )
    return 1 << (2 + order.index(what) if negative else 9 - order.index(what))


@covers(*CLASSES)
@pytest.mark.parametrize("kind", list(FORMATS))
def test_classes_see_denormals_even_where_they_are_flushed(amd: Executor, kind: str) -> None:
    rng = np.random.default_rng(3)
    bits = np.resize(special(kind), 480)
    masks = np.concatenate([1 << rng.integers(0, 10, 240), rng.integers(0, 1 << 12, 240)])
    column = masks.astype(np.uint16 if kind == "f16" else np.uint32)
    names = [n for n in CLASSES if n.endswith(kind)]
    found = compare(amd, names, [bits, column], mode=0, half=".l" if kind == "f16" else "")
    wanted = [bool(classes(kind, x) & m) for x, m in zip(bits.tolist(), masks.tolist(), strict=True)]
    assert all(result.astype(bool).tolist() == wanted for result in found)


def test_a_constant_class_mask_is_the_same(amd: Executor) -> None:
    bits = special("f32")
    (words,) = batch(amd, [Op("v_cmp_class_f32 s20, {0}, 0x1f8; v_cndmask_b32 {d}, 0, 1, s20")], [bits])
    assert words[:, 0].tolist() == [bool(classes("f32", x) & 0x1F8) for x in bits.tolist()]


def test_inactive_lanes_get_0_and_cmpx_only_takes_lanes_away(amd: Executor) -> None:
    lanes = np.arange(32, dtype=np.uint32)
    text = (
        "s_mov_b32 exec_lo, 0x0000ffff; s_mov_b32 vcc_lo, -1; v_cmp_gt_u32 vcc_lo, 8, {0}; "
        "s_mov_b32 s20, vcc_lo;"
        "v_cmpx_lt_u32 3, {0}; s_mov_b32 s21, exec_lo; s_mov_b32 exec_lo, -1; v_mov_b32 v40, s20; "
        "v_mov_b32 v41, s21"
    )
    (words,) = batch(amd, [Op(text, 2)], [lanes])
    assert words[0].tolist() == [0xFF, 0xFFF0]
