"""The RDNA3 opcodes agree with tinygrad's tables, which are generated from AMD's machine-readable ISA."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

from ringfence.hardware.amd.rdna.encoding import FORMATS, SIZES, Row
from ringfence.hardware.amd.rdna.opcodes import VOPD_OPCODES
from ringfence.hardware.amd.rdna.tables import rows

enum = pytest.importorskip("tinygrad.runtime.autogen.amd.rdna3.enum")
operands = pytest.importorskip("tinygrad.runtime.autogen.amd.rdna3.operands")

_ENUMS = {
    "sop1": enum.SOP1Op,
    "sop2": enum.SOP2Op,
    "sopc": enum.SOPCOp,
    "sopk": enum.SOPKOp,
    "sopp": enum.SOPPOp,
    "smem": enum.SMEMOp,
    "vop1": enum.VOP1Op,
    "vop2": enum.VOP2Op,
    "vopc": enum.VOPCOp,
    "vop3": enum.VOP3Op,
    "vop3sd": enum.VOP3SDOp,
    "vop3p": enum.VOP3POp,
    "vinterp": enum.VINTERPOp,
    "ds": enum.DSOp,
    "flat": enum.FLATOp,
    "global": enum.GLOBALOp,
    "scratch": enum.SCRATCHOp,
    "mubuf": enum.MUBUFOp,
}

# What tinygrad lists and we do not, with the reason.
_ABSENT = {
    "sop1": "scalar float exists from gfx11.5 on",
    "sop2": "scalar float exists from gfx11.5 on",
    "sopc": "scalar float exists from gfx11.5 on",
    "vop3": "no 64-bit form in LLVM: v_nop, v_pipeflush, v_readfirstlane_b32",
    "flat": "listed there for FLAT, but only GLOBAL has them in LLVM",
    "global": "loads into LDS, which LLVM refuses for gfx11",
    "scratch": "loads into LDS, which LLVM refuses for gfx11",
}
_FLOAT = ("_f16", "_f32", "s_cvt_")


def _is_absent(name: str, format_name: str) -> bool:
    if format_name in ("sop1", "sop2", "sopc"):
        return any(part in name for part in _FLOAT)
    if format_name == "vop3":
        return name in ("v_nop", "v_pipeflush", "v_readfirstlane_b32")
    if format_name == "flat":
        return name == "flat_atomic_csub_u32" or name.startswith("global_")
    return format_name in ("global", "scratch") and "load_lds" in name


# Spelled differently there: the suffix tells the encoding.
def _name(op: Enum) -> str:
    return op.name.lower().removesuffix("_e32").removesuffix("_e64")


def _declared(format_name: str) -> dict[str, int]:
    opcode = FORMATS[format_name].opcode
    return {row.name: opcode.get(row.match) for row in rows()[format_name]}


@pytest.mark.parametrize("format_name", list(_ENUMS))
def test_names_and_opcodes_agree(format_name: str) -> None:
    theirs = {_name(op): op.value for op in _ENUMS[format_name]}
    ours = _declared(format_name)
    wanted = {name: value for name, value in theirs.items() if not _is_absent(name, format_name)}
    assert ours == wanted, _ABSENT.get(format_name, "")


def test_the_halves_of_pairs_agree() -> None:
    assert {_name(op): op.value for op in enum.VOPDOp} == dict(VOPD_OPCODES)


_FIELDS = {
    "ssrc0": "SSRC0",
    "ssrc1": "SSRC1",
    "src0": "SRC0",
    "vsrc0": "SRC0",
    "src1": "SRC1",
    "vsrc1": "VSRC1",
    "src2": "SRC2",
    "sdst": "SDST",
    "vdst": "VDST",
    "sdata": "SDATA",
    "data0": "DATA0",
    "data1": "DATA1",
    "data": "DATA",
    "vdata": "VDATA",
    "srsrc": "SRSRC",
}


def _sizes(row: Row) -> dict[str, int]:
    """Return the dwords of each encoded operand."""
    return {
        slot.field: 8 if slot.type == "matrix" else SIZES.get(slot.type, 1)
        for slot in (*row.srcs, *row.dsts)
        if slot.type != "mask"
    }


def _compared() -> Iterator[tuple[str, str, int, int]]:
    """Yield instruction, field, our size and theirs, in dwords."""
    for format_name, kinds in _ENUMS.items():
        ops = {_name(op): op for op in kinds}
        for row in rows()[format_name]:
            theirs: dict[str, Any] = operands.OPERANDS.get(ops[row.name], {})
            ours = _sizes(row)
            for name, (_, bits, _) in theirs.items():
                field = _FIELDS.get(name)
                if field in ours:
                    yield f"{format_name} {row.name}", field, ours[field], max(1, bits // 32)


# Where AMD's table and LLVM differ, LLVM is right about the registers that are read or written.
_SIZE_EXCEPTIONS = {
    ("global global_atomic_cmpswap_b32", "VDST"),
    ("global global_atomic_cmpswap_f32", "VDST"),
    ("global global_atomic_cmpswap_b64", "VDST"),
}


def test_operand_sizes_agree() -> None:
    compared = [
        entry
        for entry in _compared()
        if entry[:2] not in _SIZE_EXCEPTIONS
        and not (entry[0].startswith("mubuf") and entry[1] == "VDATA")  # atomics, tfe: one row per case
    ]
    assert [entry for entry in compared if entry[2] != entry[3]] == []
    assert len(compared) > 2000
