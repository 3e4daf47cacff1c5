"""Semantics of instructions that move values between lanes, or between registers chosen by M0."""

from __future__ import annotations

from ringfence.hardware.amd.rdna import Instruction
from ringfence.virtual.isa.rdna.effects import M0
from ringfence.virtual.isa.rdna.operands import operands, shuffled
from ringfence.virtual.isa.rdna.translate import Semantics, Translator

LAST_VGPR = 255


def read_lane(t: Translator, i: Instruction) -> None:
    """v_readlane_b32: D = the value of lane S1 (modulo the wave size), active or not."""
    s, v = t.s, t.v
    lane = s.op("and", "i32", t.scalar_source(i.srcs[1]), str(t.wave - 1))
    t.put_scalar(i.dsts[0], s.new(f"extractelement {v.i32} {t.vgpr(i.srcs[0].num)}, i32 {lane}"))


def read_first_lane(t: Translator, i: Instruction) -> None:
    """v_readfirstlane_b32: D = the value of the lowest active lane, lane 0 if there is none."""
    source = i.srcs[0]
    if source.kind != "vgpr":
        t.put_scalar(i.dsts[0], t.scalar_source(source))
        return
    lane = t.first_active()
    t.put_scalar(i.dsts[0], t.s.new(f"extractelement {t.v.i32} {t.vgpr(source.num)}, i32 {lane}"))


def write_lane(t: Translator, i: Instruction) -> None:
    """v_writelane_b32: lane S1 (modulo the wave size) of D = S0, active or not."""
    s, v, number = t.s, t.v, i.dsts[0].num
    lane = s.op("and", "i32", t.scalar_source(i.srcs[1]), str(t.wave - 1))
    here = v.new(f"icmp eq {v.i32} {v.lane_numbers()}, {t.splat('i32', lane)}")
    value = t.splat("i32", t.scalar_source(i.srcs[0]))
    t.replace_vgpr(number, v.select(here, v.i32, value, t.vgpr(number)))


def gathered(t: Translator, word: str, lanes: str) -> str:
    """Return i32 lanes rearranged at run time.

    Lane i is lane ``lanes[i]`` (below the wave size) of ``word``.
    """
    v = t.v
    buffer = t.alloca("lanes", v.i32)
    v.line(f"store {v.i32} {word}, ptr {buffer}, align 64")
    pointers = v.new(f"getelementptr i32, ptr {buffer}, {v.i32} {lanes}")
    return v.gather(v.i32, pointers, v.splat("i1", "true"), 4)


def gathered_mask(t: Translator, mask: str, lanes: str) -> str:
    """Return lane bits rearranged at run time."""
    v = t.v
    bits = v.mask_bits(mask)
    kind, number = ("i32", lanes) if t.wave == 32 else ("i64", v.cast("zext", lanes, v.i32, v.i64))
    shifted = v.op("lshr", v.i32 if kind == "i32" else v.i64, v.splat(kind, bits), number)
    return v.cast("trunc", shifted, v.i32 if kind == "i32" else v.i64, v.mask)


def permute_row(exchange: bool) -> Semantics:
    """v_permlane16, v_permlanex16 (``exchange``): lane i takes lane sel[i] of its row, or of the other.

    The selectors are the nibbles of {S2, S1}. Without FI a lane whose source is inactive gets 0 or keeps
    its value.
    """

    def semantics(t: Translator, i: Instruction) -> None:
        v, flags = t.v, int(i.fields["op_sel"])
        word = t.source(i.srcs[0])
        low, high = (t.splat("i32", t.scalar_source(s)) for s in i.srcs[1:])
        upper = ", ".join(f"i1 {'true' if k & 8 else 'false'}" for k in range(t.wave))
        places = ", ".join(f"i32 {4 * (k & 7)}" for k in range(t.wave))
        rows = ", ".join(f"i32 {(k & ~15) ^ (16 if exchange else 0)}" for k in range(t.wave))
        selectors = v.select(f"<{upper}>", v.i32, high, low)
        nibble = v.op("and", v.i32, v.op("lshr", v.i32, selectors, f"<{places}>"), v.splat("i32", "15"))
        lanes = v.op("or", v.i32, nibble, f"<{rows}>")
        value = gathered(t, word, lanes)
        if not flags & 1 and not t.full:
            valid = gathered_mask(t, t.exec_mask(), lanes)
            if flags & 2:
                value = v.select(valid, v.i32, value, "zeroinitializer")
            else:
                t.lanes = valid
        t.put(i.dsts[0], value)

    return semantics


def swap_halves(t: Translator, i: Instruction) -> None:
    """v_permlane64_b32: wave64 exchanges the halves; wave32 does nothing."""
    if t.wave == 32:
        return
    t.put(i.dsts[0], shuffled(t, t.source(i.srcs[0]), [lane ^ 32 for lane in range(64)]))


# --- registers chosen by M0 ---


def _register_pointer(t: Translator, number: int, index: str) -> str:
    """Return the address of VGPR ``number`` + ``index``; beyond the last it is the last."""
    s = t.s
    bounded = s.binary("umin", "i32", s.op("add", "i32", index, str(number)), str(LAST_VGPR))
    return s.new(
        f"getelementptr i8, ptr {t.vector_file()}, i32 {s.op('mul', 'i32', bounded, str(4 * t.wave))}"
    )


def _read_relative(t: Translator, number: int, index: str) -> str:
    t.spill()
    return t.v.new(f"load {t.v.i32}, ptr {_register_pointer(t, number, index)}, align 64")


def _write_relative(t: Translator, number: int, index: str, value: str) -> None:
    t.spill()
    pointer = _register_pointer(t, number, index)
    mask = t.exec_mask() if t.lanes is None else t.active(t.lanes)
    t.v.store_masked(t.v.i32, value, pointer, mask)
    t.forget_vectors()


def _offsets(t: Translator) -> tuple[str, str]:
    """Return the source and destination offsets of the _2 forms: M0[9:0] and M0[25:16]."""
    s, m0 = t.s, t.scalar(M0)
    return s.op("and", "i32", m0, "1023"), s.op("and", "i32", s.op("lshr", "i32", m0, "16"), "1023")


def move_relative_destination(t: Translator, i: Instruction) -> None:
    """v_movreld_b32: VGPR[D + M0] = S."""
    (value,) = operands(t, i)
    _write_relative(t, i.dsts[0].num, t.scalar(M0), value)


def move_relative_source(t: Translator, i: Instruction) -> None:
    """v_movrels_b32: D = VGPR[S + M0]."""
    value = _read_relative(t, i.srcs[0].num, t.scalar(M0))
    mask = t.exec_mask()
    old = t.vgpr(i.dsts[0].num)
    t.replace_vgpr(i.dsts[0].num, t.v.select(mask, t.v.i32, value, old))


def move_relative(t: Translator, i: Instruction) -> None:
    """v_movrelsd_b32: VGPR[D + M0] = VGPR[S + M0]; v_movrelsd_2_b32 with an offset for each."""
    source, target = _offsets(t) if i.name.endswith("_2_b32") else (t.scalar(M0), t.scalar(M0))
    _write_relative(t, i.dsts[0].num, target, _read_relative(t, i.srcs[0].num, source))


def swap_relative(t: Translator, i: Instruction) -> None:
    """v_swaprel_b32: exchange VGPR[D + M0[25:16]] and VGPR[S + M0[9:0]]."""
    source, target = _offsets(t)
    first, second = i.dsts[0].num, i.srcs[0].num  # dsts[0] receives srcs[0]
    old_source = _read_relative(t, second, source)
    old_target = _read_relative(t, first, target)
    _write_relative(t, first, target, old_source)
    _write_relative(t, second, source, old_target)


SEMANTICS: dict[str, Semantics] = {
    "v_readlane_b32": read_lane,
    "v_readfirstlane_b32": read_first_lane,
    "v_writelane_b32": write_lane,
    "v_permlane16_b32": permute_row(False),
    "v_permlanex16_b32": permute_row(True),
    "v_permlane64_b32": swap_halves,
    "v_movreld_b32": move_relative_destination,
    "v_movrels_b32": move_relative_source,
    "v_movrelsd_b32": move_relative,
    "v_movrelsd_2_b32": move_relative,
    "v_swaprel_b32": swap_relative,
}
