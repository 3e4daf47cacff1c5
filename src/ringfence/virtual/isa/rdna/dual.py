"""Semantics of VOPD: two operations whose sources are all read before either result is written."""

from __future__ import annotations

from collections.abc import Callable

from ringfence.hardware.amd.rdna import Instruction
from ringfence.virtual.isa.rdna import floats
from ringfence.virtual.isa.rdna.integer import shift
from ringfence.virtual.isa.rdna.packed import dot_bf16, dot_f16
from ringfence.virtual.isa.rdna.real import accumulator, multiply_dx9
from ringfence.virtual.isa.rdna.translate import Semantics, Translator
from ringfence.virtual.isa.rdna.unit import ALLOW_OUTPUT

Compute = Callable[[Translator, Instruction], tuple[str, str]]  # -> value and its kind


def _sources(t: Translator, i: Instruction) -> list[str]:
    return [floats.operand(t, t.source(s), "f32") for s in i.srcs]


def _finished(t: Translator, value: str) -> tuple[str, str]:
    return floats.flushed(t, value, "f32", ALLOW_OUTPUT), "f32"


def _arithmetic(name: str, *, reverse: bool = False) -> Compute:
    def compute(t: Translator, i: Instruction) -> tuple[str, str]:
        values = _sources(t, i)
        return _finished(t, floats.binary(t, name, "f32", *(values[::-1] if reverse else values)))

    return compute


def _fma(t: Translator, i: Instruction) -> tuple[str, str]:
    a, b, c = _sources(t, i)
    return _finished(t, floats.fma(t, "f32", a, b, c))


def _accumulate(t: Translator, i: Instruction) -> tuple[str, str]:
    a, b = _sources(t, i)
    return _finished(t, floats.fma(t, "f32", a, b, accumulator(t, i.dsts[0])))


def _multiply_dx9(t: Translator, i: Instruction) -> tuple[str, str]:
    return _finished(t, multiply_dx9(t, "f32", _sources(t, i)))


def _extreme(which: str) -> Compute:
    def compute(t: Translator, i: Instruction) -> tuple[str, str]:
        return _finished(t, floats.extreme(t, which, "f32", *_sources(t, i)))

    return compute


def _move(t: Translator, i: Instruction) -> tuple[str, str]:
    return t.source(i.srcs[0]), t.kind(i.srcs[0])


def _select(t: Translator, i: Instruction) -> tuple[str, str]:
    no, yes = t.source(i.srcs[0], "i32"), t.source(i.srcs[1], "i32")
    return t.v.select(t.mask_source(i.srcs[2]), t.v.i32, yes, no), "i32"


def _dot(products: Callable[[Translator, str, str, str], str]) -> Compute:
    def compute(t: Translator, i: Instruction) -> tuple[str, str]:
        a, b = (t.source(s, "i32") for s in i.srcs)
        return _finished(t, products(t, a, b, accumulator(t, i.dsts[0])))

    return compute


def _add(t: Translator, i: Instruction) -> tuple[str, str]:
    return t.v.op("add", t.v.i32, *(t.source(s, "i32") for s in i.srcs)), "i32"


def _and(t: Translator, i: Instruction) -> tuple[str, str]:
    return t.v.op("and", t.v.i32, *(t.source(s, "i32") for s in i.srcs)), "i32"


def _shift_left(t: Translator, i: Instruction) -> tuple[str, str]:
    count, value = (t.source(s, "i32") for s in i.srcs)
    return shift(t.v, "shl", t.v.i32, value, count), "i32"


OPERATIONS: dict[str, Compute] = {
    "v_dual_fmac_f32": _accumulate,
    "v_dual_fmaak_f32": _fma,
    "v_dual_fmamk_f32": _fma,
    "v_dual_mul_f32": _arithmetic("fmul"),
    "v_dual_add_f32": _arithmetic("fadd"),
    "v_dual_sub_f32": _arithmetic("fsub"),
    "v_dual_subrev_f32": _arithmetic("fsub", reverse=True),
    "v_dual_mul_dx9_zero_f32": _multiply_dx9,
    "v_dual_mov_b32": _move,
    "v_dual_cndmask_b32": _select,
    "v_dual_max_f32": _extreme("max"),
    "v_dual_min_f32": _extreme("min"),
    "v_dual_dot2acc_f32_f16": _dot(dot_f16),
    "v_dual_dot2acc_f32_bf16": _dot(dot_bf16),
    "v_dual_add_nc_u32": _add,
    "v_dual_lshlrev_b32": _shift_left,
    "v_dual_and_b32": _and,
}


def pair(t: Translator, i: Instruction) -> None:
    """vopd: compute both halves, then write both."""
    halves: tuple[Instruction, Instruction] = (i.fields["x"], i.fields["y"])
    results = [OPERATIONS[half.name](t, half) for half in halves]
    for half, (value, kind) in zip(halves, results, strict=True):
        t.set_vgpr(half.dsts[0].num, value, kind)


SEMANTICS: dict[str, Semantics] = {"vopd": pair}
