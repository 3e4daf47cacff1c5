"""Loads from local memory whose addresses are checked once for a whole block.

Kernels keep tiles in local memory and read them in long unrolled loops: many loads with the same address
registers and different offsets. A block with such loads is translated twice. At its start it is decided
whether, for each of these registers, the lanes of every strip of 16 point into 64 bytes that begin at the
first lane's place, dword by dword, and whether all loads lie inside the local memory. Then each load is one
vector load and one permutation, which covers neighbours, one place for all and anything between. Else the
other translation of the block runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ringfence.hardware.amd.rdna import Instruction
from ringfence.virtual.isa import jit
from ringfence.virtual.isa.rdna import facts
from ringfence.virtual.isa.rdna.effects import EXEC
from ringfence.virtual.isa.rdna.flow import Block
from ringfence.virtual.isa.rdna.places import STRIP, joined, strip_part
from ringfence.virtual.isa.rdna.translate import Translator
from ringfence.virtual.isa.simt import Emitter

FEWEST = 4  # dwords loaded in a block: below this the check costs more than it saves
BYTES = 4 * STRIP
_DWORDS = {"b32": 1, "b64": 2, "b96": 3, "b128": 4}


@dataclass(frozen=True, slots=True)
class Window:
    """Where the lanes of an address register point: ``bases`` (i32) of the strips, and which dword behind
    them each lane takes. ``value`` is the register's content that this holds for.
    """

    value: str
    bases: tuple[str, ...]
    indices: tuple[str, ...]


@cache
def available() -> bool:
    """Return whether the host permutes 16 dwords at once."""
    llvm, _, _ = jit.host()
    return bool(llvm.get_host_cpu_features().get("avx512f"))


def offsets_of(i: Instruction) -> tuple[int, ...]:
    """Return the byte offsets of the dwords that a DS load takes; none if it is not such a load."""
    kind = i.name.rsplit("_", 1)[-1]
    if not i.name.startswith("ds_load_") or kind not in _DWORDS or int(i.fields.get("gds", 0)):
        return ()
    dwords = _DWORDS[kind]
    if i.name == f"ds_load_{kind}":
        firsts = [int(i.fields["offset"])]
    elif i.name in (f"ds_load_2addr_{kind}", f"ds_load_2addr_stride64_{kind}"):
        scale = 4 * dwords * (64 if "stride64" in i.name else 1)
        firsts = [int(i.fields[name]) * scale for name in ("offset0", "offset1")]
    else:
        return ()
    return tuple(first + 4 * k for first in firsts for k in range(dwords))


def planned(block: Block, wave: int) -> dict[int, int]:
    """Return the address registers of a block's loads that can be checked at its start.

    With each the end of its farthest load, in bytes behind the address. Empty if that is not worth while.
    """
    if not available() or not facts.exec_full(block.facts, wave):
        return {}
    ends: dict[int, int] = {}
    written = dwords = 0
    for i, e in zip(block.instructions, block.effects):
        if e.writes >> EXEC & 3:
            break
        offsets, address = offsets_of(i), i.source("addr") if i.format == "ds" else None
        if offsets and address is not None and not written >> address.num & 1:
            ends[address.num] = max(ends.get(address.num, 0), max(offsets) + 4)
            dwords += len(offsets)
        written |= e.vector_writes
    return ends if dwords >= FEWEST else {}


def check(t: Translator, ends: dict[int, int]) -> tuple[str, dict[int, Window]]:
    """Return an i1, whether all loads can be done so, and the windows by register."""
    s, e = t.s, Emitter(STRIP, t.v)
    size = s.field("shared_bytes")
    good, windows = "true", {}
    for register, end in ends.items():
        value = t.vgpr(register)
        room = s.op("sub", "i64", size, str(end))
        bases, indices = [], []
        for strip in range(t.wave // STRIP):
            part = strip_part(t, t.v.i32, value, strip)
            base = s.new(f"extractelement {e.i32} {part}, i32 0")
            left = s.op("sub", "i64", room, s.cast("zext", base, "i32", "i64"))
            distance = e.op("sub", e.i32, part, e.splat("i32", base))
            index = _rotated(e, distance)  # beyond the window also where a lane is off the dwords
            limit = s.cast("trunc", s.binary("umin", "i64", left, str(BYTES - 4)), "i64", "i32")
            outside = e.new(f"icmp ugt {e.i32} {distance}, {e.splat('i32', limit)}")
            odd = e.new(f"icmp ugt {e.i32} {index}, {e.splat('i32', str(STRIP - 1))}")
            wrong = e.any(e.op("or", e.mask, outside, odd))
            fits = s.new(f"icmp sge i64 {left}, 0")
            good = s.op("and", "i1", good, s.op("and", "i1", fits, s.op("xor", "i1", wrong, "true")))
            bases.append(base)
            indices.append(index)
        windows[register] = Window(value, tuple(bases), tuple(indices))
    return good, windows


def _rotated(e: Emitter, value: str) -> str:
    """Return i32 lanes rotated right by two bits."""
    arguments = (e.i32, value), (e.i32, value), (e.i32, e.splat("i32", "30"))
    return e.call(e.i32, f"llvm.fshl.{e.suffix(e.i32)}", *arguments)


def load(t: Translator, window: Window, offset: int) -> str:
    """Return the dword ``offset`` bytes behind the addresses of a checked register, as i32 lanes."""
    s, e = t.s, Emitter(STRIP, t.v)
    shared = t.memo(("shared",), lambda: s.field("shared", "ptr"))
    parts = []
    for base, index in zip(window.bases, window.indices, strict=True):
        wide = t.memo(("window", base), lambda: s.cast("zext", base, "i32", "i64"))  # noqa: B023
        start = t.memo(("window", shared, wide), lambda: s.at(shared, wide))  # noqa: B023
        row = e.new(f"load {e.i32}, ptr {s.at(start, offset)}, align 1")
        parts.append(e.call(e.i32, "llvm.x86.avx512.permvar.si.512", (e.i32, row), (e.i32, index)))
    return joined(t, parts)
