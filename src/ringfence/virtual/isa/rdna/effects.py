"""Which registers an RDNA3 instruction reads and writes, as bit sets.

Scalar bits are the codes of the scalar operands (SGPR0..105, VCC 106 and 107, TTMP0..15 from 108, M0 125,
EXEC 126 and 127), then SCC and MODE. Vector bits are VGPR numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ringfence.hardware.amd.rdna import Dpp, Instruction, Operand

VCC, TTMP, NULL, M0, EXEC, SCC, MODE = 106, 108, 124, 125, 126, 128, 129
BASES = {"sgpr": 0, "vcc": VCC, "ttmp": TTMP, "m0": M0, "exec": EXEC}
SCC_BIT, MODE_BIT, M0_BIT = 1 << SCC, 1 << MODE, 1 << M0

VALU_FORMATS = frozenset(("vop1", "vop2", "vopc", "vop3", "vop3sd", "vop3p", "vopd", "vinterp"))
VECTOR_MEMORY = frozenset(("ds", "flat", "global", "scratch", "mubuf"))
HALF_TYPES = frozenset(("b16", "i16", "u16", "f16", "bf16"))

SCC_READERS = re.compile(r"s_(cselect_|cmov|addc_|subb_|cbranch_scc)")
SCC_WRITERS = re.compile(
    r"s_(add_[ui]32|sub_[ui]32|addc_|subb_|absdiff_|lsh[lr]_b|ashr_|lshl[1-4]_add|min_[iu]|max_[iu]|n?and_b|n?or_b|xn?or_b"
    r"|and_not1_b|or_not1_b|bfe_|abs_|bcnt[01]_|quadmask_|wqm_|not_b|cmp|bitcmp|addk_"
    r"|\w+_saveexec_|\w+_wrexec_)"
)
ACCUMULATES = re.compile(r"v_(dual_)?(fmac|dot2acc|pk_fmac)")
KEEPS_DESTINATION = re.compile(r"(ds_load_\w+_d16|\w+_load_d16_|v_fma_mix(lo|hi)_|v_wmma_b?f16_)")
HALF_LOADS = re.compile(r"(\w+_load_d16_(hi_)?[uib]\d+|ds_load_[ui]\d+_d16(_hi)?)$")
HALF_STORES = re.compile(r"\w+_store_(b8|b16|d16_hi_b8|d16_hi_b16|b8_d16_hi|b16_d16_hi)$")
HALF_RESULTS = re.compile(r"v_fma_mix(lo|hi)_f16$")
STORED = ("data", "data0")
BOTH_HALVES = (0, 1)
RELATIVE = re.compile(r"v_(movrel|swaprel)")
RELATIVE_SCALAR = re.compile(r"s_movrel")
ALL_VECTORS = (1 << 256) - 1
ALL_SGPRS = (1 << 106) - 1
WHOLE_WAVE = re.compile(r"v_wmma_")

ExecChange = Literal["", "narrow", "widen"]


@dataclass(frozen=True, slots=True)
class Effect:
    """What an instruction reads and writes.

    ``wide`` are VGPRs that it reads from inactive lanes too, ``partial`` those of ``vector_writes`` of
    which active lanes keep some bits. ``whole`` says that it writes all lanes whatever EXEC says;
    ``change`` how EXEC may change: to a subset of what it was, or to anything.
    """

    reads: int
    writes: int
    vector_reads: int
    wide: int
    vector_writes: int
    partial: int
    whole: bool
    change: ExecChange


def _bits(first: int, count: int) -> int:
    return ((1 << count) - 1) << first


def scalar_bits(operand: Operand, wave: int) -> int:
    """Return the scalar registers that an operand names."""
    base = BASES.get(operand.kind)
    if base is not None:
        return _bits(base + operand.num, operand.size)
    if operand.kind == "scc":
        return SCC_BIT
    if operand.kind in ("vccz", "execz"):
        return _bits(VCC if operand.kind == "vccz" else EXEC, wave // 32)
    return 0


def vector_bits(operand: Operand) -> int:
    """Return the VGPRs that an operand names."""
    return _bits(operand.num, operand.size) if operand.kind == "vgpr" else 0


def read_halves(i: Instruction, position: int) -> tuple[int, ...]:
    """Return which halves of its VGPRs source ``position`` is read from: 0 is the low one, 1 the high one."""
    source = i.srcs[position]
    if i.format in VALU_FORMATS:
        return (int(source.hi),) if source.type in HALF_TYPES else BOTH_HALVES
    if i.format in VECTOR_MEMORY and HALF_STORES.match(i.name) and i.fields["layout"][position] in STORED:
        return (int("_hi" in i.name),)
    return BOTH_HALVES


def written_halves(i: Instruction, position: int) -> tuple[int, ...]:
    """Return which halves of its VGPRs destination ``position`` is written to; the others are kept."""
    destination = i.dsts[position]
    if i.format in VALU_FORMATS and destination.type in HALF_TYPES:
        return (int(destination.hi),)
    if HALF_RESULTS.match(i.name):
        return (int(i.name.startswith("v_fma_mixhi")),)
    return (int("_hi" in i.name),) if HALF_LOADS.match(i.name) else BOTH_HALVES


def needs_exec(i: Instruction) -> bool:
    """Return whether EXEC decides what ``i`` does."""
    return i.format in VALU_FORMATS or i.format in VECTOR_MEMORY


def keeps_old_bits(i: Instruction) -> bool:
    """Return whether active lanes keep some bits of the vector destination."""
    if KEEPS_DESTINATION.match(i.name):
        return True
    if i.format in VALU_FORMATS and any(d.type in HALF_TYPES for d in i.dsts):
        return True
    if i.name.startswith(("v_permlane16", "v_permlanex16")):
        return not int(i.fields["op_sel"]) & 2
    dpp: Dpp | None = i.fields.get("dpp")
    if dpp is None or dpp.kind == "dpp8":
        return False
    return not dpp.bound_ctrl or dpp.row_mask != 15 or dpp.bank_mask != 15


def _reads_inactive(i: Instruction) -> bool:
    """Return whether ``i`` reads its vector sources in lanes that are not active."""
    if i.name in ("v_readlane_b32", "v_readfirstlane_b32", "v_permlane64_b32") or WHOLE_WAVE.match(i.name):
        return True
    if i.format == "vinterp":
        return True
    if i.name.startswith(("v_permlane16", "v_permlanex16")):
        return bool(int(i.fields["op_sel"]) & 1)
    dpp: Dpp | None = i.fields.get("dpp")
    return dpp is not None and dpp.fetch_inactive


def exec_change(i: Instruction) -> ExecChange:
    """Return how ``i`` may change EXEC."""
    name = i.name
    if "_saveexec_" in name or "_wrexec_" in name:
        narrows = name.startswith(("s_and_saveexec", "s_and_not0_saveexec", "s_and_not0_wrexec"))
        return "narrow" if narrows else "widen"
    if not any(d.kind == "exec" for d in i.dsts):
        return ""
    if name.startswith("v_cmpx"):
        return "narrow"
    if name.startswith("s_and_b") and any(s.kind == "exec" for s in i.srcs):
        return "narrow"
    if name.startswith("s_and_not1_b") and i.srcs[0].kind == "exec":
        return "narrow"
    return "widen"


def _implicit_reads(i: Instruction, wave: int) -> int:
    name = i.name
    mask = _bits(0, wave // 32)
    reads = 0
    if needs_exec(i) or "_saveexec_" in name or "_wrexec_" in name or name.startswith("s_cbranch_exec"):
        reads |= mask << EXEC
    if name.startswith(("v_div_fmas", "s_cbranch_vcc")):
        reads |= mask << VCC
    if SCC_READERS.match(name):
        reads |= SCC_BIT
    if "movrel" in name or "swaprel" in name or name in ("ds_append", "ds_consume") or "addtid" in name:
        reads |= M0_BIT
    if name.startswith(("s_getreg", "s_setreg")):
        reads |= SCC_BIT | MODE_BIT | mask << EXEC | mask << VCC
    if name in ("s_round_mode", "s_denorm_mode"):
        reads |= MODE_BIT
    return reads


def _implicit_writes(i: Instruction, wave: int) -> int:
    writes = SCC_BIT if SCC_WRITERS.match(i.name) else 0
    if "_saveexec_" in i.name or "_wrexec_" in i.name:
        writes |= _bits(EXEC, 2 if i.name.endswith("b64") else 1)
    if i.name.startswith("s_setreg") or i.name in ("s_round_mode", "s_denorm_mode"):
        writes |= MODE_BIT
    return writes


def effect(i: Instruction, wave: int) -> Effect:
    """Return what ``i`` reads and writes in a wave of ``wave`` lanes."""
    reads, writes = _implicit_reads(i, wave), _implicit_writes(i, wave)
    vector_reads = vector_writes = 0
    for operand in i.srcs:
        reads |= scalar_bits(operand, wave)
        vector_reads |= vector_bits(operand)
    for operand in i.dsts:
        writes |= scalar_bits(operand, wave)
        vector_writes |= vector_bits(operand)
    parts = (i.fields["x"], i.fields["y"]) if i.format == "vopd" and "x" in i.fields else (i,)
    partial = vector_writes if keeps_old_bits(i) else 0
    for part in parts:
        if ACCUMULATES.match(part.name):
            vector_reads |= vector_bits(part.dsts[0])
    if i.name.startswith(("s_cmov_", "s_bitset")):
        reads |= scalar_bits(i.dsts[0], wave)
    if RELATIVE.match(i.name):
        return Effect(reads, writes, ALL_VECTORS, ALL_VECTORS, 0, 0, False, "")
    if RELATIVE_SCALAR.match(i.name):
        reads, writes = reads | ALL_SGPRS, writes & ~ALL_SGPRS
    wide = vector_reads if _reads_inactive(i) else 0
    if i.name == "v_writelane_b32":
        partial, wide = vector_writes, vector_writes
    return Effect(
        reads,
        writes & ~(1 << NULL),
        vector_reads | wide,
        wide,
        vector_writes,
        partial,
        bool(WHOLE_WAVE.match(i.name)),
        exec_change(i),
    )
