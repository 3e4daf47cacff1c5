"""Semantics of the instructions by which fibers of a wave see each other: shfl, movmsk, movs, brcst.active,
quad_shuffle; and of getfiberid.

Programs with them (but for getfiberid) are translated with the whole wave as one strip.
"""

from __future__ import annotations

from ringfence.hardware.adreno.ir3 import Instruction
from ringfence.virtual.isa.ir3 import alu, memory
from ringfence.virtual.isa.ir3.code import refuse
from ringfence.virtual.isa.ir3.flow import writes_shared
from ringfence.virtual.isa.ir3.translator import Semantics, Translator
from ringfence.virtual.isa.simt import POISON, Emitter

QUAD = 4
QUAD_MASKS = {"quad_shuffle.horiz": 1, "quad_shuffle.vert": 2, "quad_shuffle.diag": 3}


def _permuted(t: Translator, value: str, kind: str, lanes: str, known: str) -> str:
    """Return per lane the value of lane ``lanes`` (i32); poison where not ``known`` or where that lane is
    inactive.

    The values pass through memory: LLVM has no shuffle by variable lanes.
    """
    v = t.v
    vector = getattr(v, kind)
    safe = v.op("and", v.i32, lanes, v.splat("i32", str(v.lanes - 1)))
    active = v.select(t.mask, v.i32, v.splat("i32", "-1"), v.splat("i32", "0"))
    v.line(f"store {v.i32} {active}, ptr %data, align 64")
    everywhere = v.splat("i1", "true")
    asked = v.gather(v.i32, v.new(f"getelementptr i32, ptr %data, {v.i32} {safe}"), everywhere, 4)
    v.line(f"store {vector} {value}, ptr %data, align 64")
    pointers = v.new(f"getelementptr {kind}, ptr %data, {v.i32} {safe}")
    moved = v.gather(vector, pointers, everywhere, 2 if kind == "i16" else 4)
    valid = v.op("and", v.mask, known, v.new(f"icmp ne {v.i32} {asked}, zeroinitializer"))
    poison = v.splat(kind, str(POISON & 0xFFFF if kind == "i16" else POISON))
    return v.select(valid, vector, moved, poison)


def shuffle(t: Translator, i: Instruction) -> None:
    """shfl: the value of another fiber: this one's number xor, plus (down) or minus (up) the second source.

    The rotating forms (rup, rdown) stay inside the wave; what a fiber outside the wave or an inactive one
    would give is undefined.
    """
    v, mode = t.v, str(i.fields["mode"])
    kind = "i16" if i.dsts[0].half else "i32"
    value, distance = t.raw(i.srcs[0], 0, v), t.raw(i.srcs[1], 0, v)
    operation = {"xor": "xor", "up": "sub", "rup": "sub"}.get(mode, "add")
    lanes = v.op(operation, v.i32, v.lane_numbers(), distance)
    if mode in ("rup", "rdown"):
        known = v.splat("i1", "true")
    else:
        known = v.new(f"icmp ult {v.i32} {lanes}, {v.splat('i32', str(v.lanes))}")
    t.put(i.dsts[0], 0, _permuted(t, value, kind, lanes, known), v, kind)


def active_mask(t: Translator, i: Instruction) -> None:
    """movmsk: the active fibers as bits, 32 to a register."""
    v, s, width = t.v, t.s, int(i.fields["width"])
    if width > v.lanes:
        raise refuse(i, f"a wave has {v.lanes} fibers")
    bits = v.mask_bits(t.mask)
    for k in range(width // 32):
        part = v.op("lshr", v.bits, bits, str(32 * k)) if k else bits
        t.put(i.dsts[0], k, v.splat("i32", s.cast("trunc", part, v.bits, "i32")), v, "i32")


def broadcast_half(t: Translator, i: Instruction) -> None:
    """brcst.active: the last active fiber of a cluster's lower half gives its value to the upper half.

    Where the lower half has no active fiber the destination stays as it is (Mesa ir3-cat5.xml).
    """
    v, kind, vector, value = _plain_source(t, i)
    half = int(i.fields["width"]) // 2
    if 2 * half > v.lanes:
        raise refuse(i, f"a wave has {v.lanes} fibers")
    numbers = v.lane_numbers()
    start = v.op("and", v.i32, numbers, v.splat("i32", str(-2 * half)))
    lanes = v.op("or", v.i32, start, v.op("sub", v.i32, v.splat("i32", str(half)), v.splat("i32", "1")))
    giver = _last_active(t, lanes, half)
    upper = v.new(
        f"icmp ne {v.i32} {v.op('and', v.i32, numbers, v.splat('i32', str(half)))}, zeroinitializer"
    )
    found = v.op("and", v.mask, upper, v.new(f"icmp sge {v.i32} {giver}, zeroinitializer"))
    moved = _permuted(t, value, kind, giver, found)
    old = t.raw(i.dsts[0], 0, v)
    t.put(i.dsts[0], 0, v.select(found, vector, moved, old), v, kind)


def _last_active(t: Translator, lanes: str, count: int) -> str:
    """Return the last active lane among ``count`` lanes up to ``lanes`` (i32), -1 if there is none."""
    v = t.v
    bits = v.splat(v.bits, v.mask_bits(t.mask))
    wide = f"<{v.lanes} x {v.bits}>"
    how = "zext" if v.lanes > 32 else "trunc"
    number = v.new(f"{how} {v.i32} {lanes} to {wide}")
    top = v.op("sub", wide, v.splat(v.bits, str(v.lanes - 1)), number)
    window = v.op("shl", wide, bits, top)  # bit ``lanes`` is now the highest
    kept = v.op("and", wide, window, v.splat(v.bits, str(-(1 << v.lanes - count))))
    zeros = v.call(wide, f"llvm.ctlz.v{v.lanes}{v.bits}", (wide, kept), ("i1", "false"))
    distance = v.new(f"trunc {wide} {zeros} to {v.i32}")
    none = v.new(f"icmp eq {wide} {kept}, zeroinitializer")
    return v.select(none, v.i32, v.splat("i32", "-1"), v.op("sub", v.i32, lanes, distance))


def _plain_source(t: Translator, i: Instruction) -> tuple[Emitter, str, str, str]:
    """Return emitter, kind, vector type and value of the one register that is moved."""
    if int(i.fields["wrmask"]) != 1:
        raise refuse(i, "only one component moves between fibers")
    if i.srcs[0].half != i.dsts[0].half:
        raise refuse(i, "source and destination differ in size")
    kind = "i16" if i.dsts[0].half else "i32"
    return t.v, kind, getattr(t.v, kind), t.raw(i.srcs[0], 0, t.v)


def quad_swap(t: Translator, i: Instruction) -> None:
    """quad_shuffle.horiz, .vert, .diag: the value of the neighbour in a group of four fibers."""
    v, kind, _, value = _plain_source(t, i)
    lanes = v.op("xor", v.i32, v.lane_numbers(), v.splat("i32", str(QUAD_MASKS[i.name])))
    t.put(i.dsts[0], 0, _permuted(t, value, kind, lanes, v.splat("i1", "true")), v, kind)


def quad_broadcast(t: Translator, i: Instruction) -> None:
    """quad_shuffle.brcst: the value of the fiber of the group of four that the second source names."""
    v, kind, _, value = _plain_source(t, i)
    wanted = t.wide(i.srcs[1], 0, v)
    known = v.new(f"icmp ult {v.i32} {wanted}, {v.splat('i32', str(QUAD))}")
    start = v.op("and", v.i32, v.lane_numbers(), v.splat("i32", str(-QUAD)))
    lanes = v.op("add", v.i32, start, wanted)
    t.put(i.dsts[0], 0, _permuted(t, value, kind, lanes, known), v, kind)


def broadcast(t: Translator, i: Instruction) -> None:
    """movs: a shared register gets the value of the fiber that the second source names, converted as by cov.

    With another destination it is a move. Conversions from u8 do not work (both Mesa ir3-cat1.xml); a fiber
    outside the wave or an inactive one has no defined value.
    """
    if i.fields["src_type"] in ("u8", "u8_32"):
        raise refuse(i, "movs from 8-bit types does not work on hardware")
    v, source = t.v, i.srcs[0]
    shared = writes_shared(i)
    fibers = t.raw(i.srcs[1], 0, v)
    known = v.new(f"icmp ult {v.i32} {fibers}, {v.splat('i32', str(v.lanes))}")
    for k in range(i.repeat + 1):
        value, kind = alu.moved(t, i, source, k, v)
        if shared:
            value, kind = _bits(v, value, kind)
            value = _permuted(t, value, kind, fibers, known)
        t.put(i.dsts[0], k, value, v, kind)


def _bits(e: Emitter, value: str, kind: str) -> tuple[str, str]:
    """Return a value as an integer of its width."""
    if kind not in ("f32", "f16"):
        return value, kind
    integer = "i" + kind[1:]
    return e.cast("bitcast", value, getattr(e, kind), getattr(e, integer)), integer


def fiber_number(t: Translator, i: Instruction) -> None:
    """getfiberid: the fiber's number in its wave."""
    v, s = t.v, t.s
    first = s.cast("trunc", s.op("mul", "i64", "%strip", str(v.lanes)), "i64", "i32")
    linear = v.op("add", v.i32, v.splat("i32", first), v.lane_numbers())
    number = v.op("and", v.i32, linear, v.splat("i32", str(t.unit.wave - 1)))
    memory.put_element(t, i.dsts[0], 0, number, v)


SEMANTICS: dict[str, Semantics] = {
    "shfl": shuffle,
    "movs": broadcast,
    "getfiberid": fiber_number,
    "movmsk": active_mask,
    "brcst.active": broadcast_half,
    "quad_shuffle.brcst": quad_broadcast,
    **dict.fromkeys(QUAD_MASKS, quad_swap),
}
