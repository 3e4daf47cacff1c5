"""Which RDNA3 instructions the virtual GPU executes, how faithfully, and what checks that."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ringfence.hardware.amd.rdna.opcodes import VOPD_OPCODES
from ringfence.hardware.amd.rdna.tables import rows
from ringfence.virtual.isa.rdna import (
    compare,
    control,
    convert,
    crosslane,
    divide,
    integer,
    interpolate,
    lds,
    matrix,
    memory,
    packed,
    real,
    salu,
    scratch,
)
from ringfence.virtual.isa.rdna.refused import REFUSED

ASSEMBLER = "LLVM 22 assembler"
TABLES = "AMD's ISA description (tinygrad's tables)"
EXACT, APPROXIMATE = "exact", "approximate"

# LLVM 22 does not know the loads from buffers into local memory any more.
_WITHOUT_ASSEMBLER = re.compile(r"buffer_load_lds_")
_TEST_DIRECTORY = "tests/virtual/isa/rdna"
# Hardware approximates these to about one unit in the last place; here they are closer.
_APPROXIMATED = re.compile(r"v_(rcp|rcp_iflag|rsq|sqrt|exp|log|sin|cos)_f(16|32|64)$")


@dataclass(frozen=True, slots=True)
class Coverage:
    """What is known about one instruction.

    ``formats`` are its encodings, ``decode_oracle`` what they are compared with. ``refused`` says why a
    program with it is not run; ``None`` if it is. ``fidelity`` is ``"exact"`` if results have the bits of
    the hardware as far as those are documented, ``"approximate"`` if they are closer to the exact value than
    those of the hardware. ``semantic_test`` is the file of the tests of what it computes.
    """

    name: str
    formats: tuple[str, ...]
    decode_oracle: str
    refused: str | None = None
    fidelity: str | None = None
    semantic_test: str | None = None

    @property
    def implemented(self) -> bool:
        return self.refused is None


def names() -> dict[str, tuple[str, ...]]:
    """Return the formats of every instruction that the decoder knows, by name."""
    found: dict[str, list[str]] = {}
    for format_name, table_rows in rows().items():
        for name in dict.fromkeys(row.name for row in table_rows):
            found.setdefault(name, []).append(format_name)
    for name in VOPD_OPCODES:
        found.setdefault(name, []).append("vopd")
    return {name: tuple(formats) for name, formats in found.items()}


def table() -> tuple[Coverage, ...]:
    """Return a row for every instruction that the decoder knows, by format and name."""
    order = sorted(names().items(), key=lambda item: (item[1], item[0]))
    return tuple(_row(name, formats) for name, formats in order)


def _row(name: str, formats: tuple[str, ...]) -> Coverage:
    oracle = TABLES if _WITHOUT_ASSEMBLER.match(name) else f"{ASSEMBLER}, {TABLES}"
    if name in REFUSED:
        return Coverage(name, formats, oracle, refused=REFUSED[name])
    fidelity = APPROXIMATE if _APPROXIMATED.match(name) else EXACT
    return Coverage(name, formats, oracle, None, fidelity, f"{_TEST_DIRECTORY}/test_rdna_{_topic(name)}.py")


def _topic(name: str) -> str:
    """Return what the test file of an implemented instruction is about."""
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    if name in VOPD_OPCODES:
        return "packed"
    if name in memory.SEMANTICS:
        return "atomics" if "_atomic_" in name else "memory"
    if name in lds.SEMANTICS:
        return "local" if _is_plain_local(name) else "atomics"
    if name in real.SEMANTICS:
        return "functions" if _APPROXIMATED.match(name) or name == "v_trig_preop_f64" else "floats"
    for topic, semantics in _TOPICS:
        if name in semantics:
            return topic
    raise KeyError(f"{name} has no semantics and no reason why not")


def _is_plain_local(name: str) -> bool:
    return name.startswith(("ds_load", "ds_store", "ds_append", "ds_consume"))


_ELSEWHERE = {
    "s_getpc_b64": "control",
    "v_cvt_i32_i16": "integers",
    **dict.fromkeys(("ds_swizzle_b32", "ds_permute_b32", "ds_bpermute_b32"), "lanes"),
    **dict.fromkeys(("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32"), "lanes"),
    **{f"ds_storexchg_{kind}": "atomics" for kind in ("rtn_b32", "rtn_b64")},
}
_TOPICS = (
    ("scalar", salu.SEMANTICS),
    ("control", control.SEMANTICS),
    ("integers", integer.SEMANTICS),
    ("conversions", convert.SEMANTICS),
    ("compares", compare.SEMANTICS),
    ("functions", divide.SEMANTICS),
    ("packed", packed.SEMANTICS),
    ("packed", matrix.SEMANTICS),
    ("lanes", crosslane.SEMANTICS),
    ("lanes", interpolate.SEMANTICS),
    ("local", scratch.SEMANTICS),
)


def lines() -> list[str]:
    """Return the table as text, columns parted by tabs, with a heading and a last line of totals."""
    found = ["instruction\tformats\tdecode oracle\tfidelity\tsemantic oracle or why it is refused"]
    for row in table():
        last = row.semantic_test if row.refused is None else f"refused: {row.refused}"
        found.append(
            "\t".join((row.name, " ".join(row.formats), row.decode_oracle, row.fidelity or "-", str(last)))
        )
    done = sum(row.implemented for row in table())
    found.append(f"{len(table())} instructions, {done} executed, {len(table()) - done} refused")
    return found


if __name__ == "__main__":
    print("\n".join(lines()))
