"""Semantics of the interpolations between the corners of a triangle (VINTERP).

A kernel has no triangles, but the instructions work on any registers: S0 and S2 are read from fixed lanes
of each quad, active or not (ISA manual, V_INTERP_*; wait_exp counts exports, which kernels do not do).
"""

from __future__ import annotations

from ringfence.hardware.amd.rdna import Instruction, Operand
from ringfence.virtual.isa.rdna import floats
from ringfence.virtual.isa.rdna.operands import shuffled
from ringfence.virtual.isa.rdna.translate import Semantics, Translator


def _source(t: Translator, source: Operand, lane: int | None) -> str:
    """Return a source as f32; with ``lane`` that of one lane of each quad."""
    v, kind = t.v, t.kind(source)
    value = floats.operand(t, t.source(source), kind)
    if kind == "f16":
        value = floats.extend(t, value)
    if lane is None:
        return value
    word = shuffled(t, t.convert(v, value, "f32", "i32"), [(k & ~3) + lane for k in range(t.wave)])
    return t.convert(v, word, "i32", "f32")


def interpolation(first: int, last: int | None, *, truncating: bool = False) -> Semantics:
    """Return the semantics of D = fma(S0 of quad lane ``first``, S1, S2 of quad lane ``last``)."""

    def semantics(t: Translator, i: Instruction) -> None:
        if truncating:
            t.truncating = True
        lanes = (first, None, last)
        values = [_source(t, source, lane) for source, lane in zip(i.srcs, lanes, strict=True)]
        total = floats.fma(t, "f32", values[0], values[1], values[2])
        kind = t.kind(i.dsts[0])
        floats.put(t, i, floats.narrow(t, total) if kind == "f16" else total, kind)

    return semantics


SEMANTICS: dict[str, Semantics] = {
    "v_interp_p10_f32": interpolation(1, 0),
    "v_interp_p2_f32": interpolation(2, None),
    "v_interp_p10_f16_f32": interpolation(1, 0),
    "v_interp_p2_f16_f32": interpolation(2, None),
    "v_interp_p10_rtz_f16_f32": interpolation(1, 0, truncating=True),
    "v_interp_p2_rtz_f16_f32": interpolation(2, None, truncating=True),
}
