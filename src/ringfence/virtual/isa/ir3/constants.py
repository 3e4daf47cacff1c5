"""Semantics of uniform buffers and of writes to the constant file (ldc, ldc.k, ldg.k, stc)."""

from __future__ import annotations

from collections.abc import Callable

from ringfence.hardware.adreno.ir3 import Instruction
from ringfence.virtual.isa.ir3.access import uniform_host
from ringfence.virtual.isa.ir3.code import refuse
from ringfence.virtual.isa.ir3.memory import TYPE_BYTES, global_address
from ringfence.virtual.isa.ir3.registers import CONSTANT_WORDS
from ringfence.virtual.isa.ir3.translator import Semantics, Translator
from ringfence.virtual.isa.simt import FAULT_RELATIVE, Emitter

RECORD_BYTES = 16  # of a uniform buffer in the context: GPU address and bytes, u64 each
VEC4_BYTES = 16


def _buffer(t: Translator, i: Instruction) -> tuple[str, str]:
    """Return the GPU address and the size in bytes of the uniform buffer that an instruction names."""
    if str(i.fields["mode"]) != "imm" or int(i.fields["bindless"]) or int(i.fields.get("unified", 0)):
        raise refuse(i, "only immediate uniform buffer slots are implemented by the virtual GPU")
    slot = int(i.fields["index"])
    if slot >= t.unit.ubos:
        raise refuse(i, f"the launch loaded {t.unit.ubos} uniform buffers, there is no number {slot}")
    record = t.s.at(t.s.field("ubos", "ptr"), slot * RECORD_BYTES)
    return tuple(t.s.new(f"load i64, ptr {t.s.at(record, o)}, align 8") for o in (0, 8))  # type: ignore[return-value]


def load_uniform(t: Translator, i: Instruction) -> None:
    """ldc: components from a uniform buffer; what lies beyond its end reads as zero."""
    e = t.shape(i)
    start, size = _buffer(t, i)
    rows = e.cast("zext", t.raw(i.srcs[0], 0, e), e.i32, e.i64)
    first = e.op("shl", e.i64, rows, e.splat("i64", "4"))
    for k in range(int(i.fields["components"])):
        offset = e.op("add", e.i64, first, e.splat("i64", str(4 * (int(i.fields["component"]) + k))))
        t.put(i.dsts[0], k, _word(t, i, start, size, offset, e), e, "i32")


def _word(t: Translator, i: Instruction, start: str, size: str, offset: str, e: Emitter) -> str:
    """Return the dword at ``offset`` (i64) of a buffer, zero beyond its ``size``."""
    v = t.v
    inside = e.new(f"icmp ult {e.i64} {offset}, {e.splat('i64', size)}")
    address = e.op("add", e.i64, offset, e.splat("i64", start))
    mask = v.op("and", v.mask, inside if e.lanes > 1 else v.splat("i1", inside), t.mask)
    if e.lanes > 1:
        host = v.translate(address, mask, 4, False, i.pc, t.site())
        return v.gather(v.i32, v.cast("inttoptr", host, v.i64, v.ptrs), mask, 1)
    host = uniform_host(t, i, address, 4, mask, inside)
    host = e.select(inside, "i64", host, e.field("zeros"))
    return e.new(f"load i32, ptr {e.cast('inttoptr', host, 'i64', 'ptr')}, align 1")


# --- writes to the constant file, which all fibers of a wave do together ---


def _of_first_lane(t: Translator, value: str, vector: str) -> str:
    """Return the value of the first lane that acts, which stands for the wave."""
    return t.v.extract(vector, value, t.v.first_lane(t.v.mask_bits(t.mask)))


def _destination(t: Translator, i: Instruction, offset: int, words: int, *, a1: bool) -> str:
    """Return the i64 index of the first word to write; the last outside the file is a fault."""
    v, s = t.v, t.s
    if not a1:
        if offset + words > CONSTANT_WORDS:
            raise refuse(i, "it writes beyond the constant file of 256 vec4")
        return str(offset)
    if offset and i.name == "ldg.k":
        raise refuse(i, "whether its offset counts beside a1.x is not known")
    base = _of_first_lane(t, t.read(("a", 1), "i32", v), v.i32)
    index = s.op("add", "i64", s.cast("zext", base, "i32", "i64"), str(offset))
    bad = s.new(f"icmp ugt i64 {index}, {CONSTANT_WORDS - words}")
    v.fault_if(v.op("and", v.mask, v.splat("i1", bad), t.mask), FAULT_RELATIVE, i.pc, v.splat("i64", index))
    return index


def _constant_pointer(t: Translator, index: str) -> str:
    return t.s.new(f"getelementptr i32, ptr {t.s.field('constants', 'ptr')}, i64 {index}")


def _if_any_acts(t: Translator, body: Callable[[], None]) -> None:
    """Emit ``body``, which must not read registers, for the case that some lane acts."""
    act, over = t.s.block("act"), t.s.block("over")
    t.s.line(f"br i1 {t.v.any(t.mask)}, label %{act}, label %{over}")
    t.s.label(act)
    body()
    t.s.line(f"br label %{over}")
    t.s.label(over)


def store_constant(t: Translator, i: Instruction) -> None:
    """stc: registers to constants; 16-bit elements lie close to each other (Mesa ir3-cat6.xml)."""
    kind, count = str(i.fields["type"]), int(i.fields["size"])
    size = TYPE_BYTES.get(kind, 0)
    if size < 2:
        raise refuse(i, f"constants of type {kind} are not known")
    values = [t.raw(i.srcs[0], 0, t.v, k) for k in range(count)]
    words = -(-count * size // 4)
    pointer = _constant_pointer(t, _destination(t, i, i.dsts[0].num, words, a1=bool(i.fields["a1"])))

    def body() -> None:
        element, vector = ("i16", t.v.i16) if size == 2 else ("i32", t.v.i32)
        for k, value in enumerate(values):
            scalar = _of_first_lane(t, value, vector)
            t.s.line(f"store {element} {scalar}, ptr {t.s.at(pointer, size * k)}, align {size}")

    _if_any_acts(t, body)
    t.forget_constants()


def _copy(t: Translator, words: int, pointer: str, word: Callable[[str], str]) -> None:
    """Emit a loop that stores ``word(k)`` to ``pointer`` for k (i64) below ``words``."""
    s = t.s
    before, head, latch, over = (s.block(n) for n in ("before", "copy", "latch", "copied"))
    index, following = (f"%{s.block('k')}" for _ in range(2))
    s.line(f"br label %{before}")
    s.label(before)
    s.line(f"br label %{head}")
    s.label(head)
    s.line(f"{index} = phi i64 [ 0, %{before} ], [ {following}, %{latch} ]")
    value = word(index)
    s.line(f"store i32 {value}, ptr {s.new(f'getelementptr i32, ptr {pointer}, i64 {index}')}, align 4")
    s.line(f"br label %{latch}")
    s.label(latch)
    s.line(f"{following} = add i64 {index}, 1")
    s.line(f"br i1 {s.new(f'icmp ult i64 {following}, {words}')}, label %{head}, label %{over}")
    s.label(over)


def copy_uniform(t: Translator, i: Instruction) -> None:
    """ldc.k: vec4s of a uniform buffer to the constants from a1.x on."""
    v, s, words = t.v, t.s, 4 * int(i.fields["size"])
    start, size = _buffer(t, i)
    row = t.raw(i.srcs[0], 0, v)
    if words > CONSTANT_WORDS:
        raise refuse(i, "it writes more than the constant file of 256 vec4")

    first = s.op("shl", "i64", s.cast("zext", _of_first_lane(t, row, v.i32), "i32", "i64"), "4")
    pointer = _constant_pointer(t, _destination(t, i, 0, words, a1=True))

    def word(k: str) -> str:
        offset = s.op("add", "i64", first, s.op("shl", "i64", k, "2"))
        return _word(t, i, start, size, offset, s)

    _if_any_acts(t, lambda: _copy(t, words, pointer, word))
    t.forget_constants()


def copy_global(t: Translator, i: Instruction) -> None:
    """ldg.k: vec4s from a 64-bit address to constants.

    The size field holds twice the number of vec4s minus one; Mesa prints it as it is.
    """
    v, s, raw = t.v, t.s, int(i.fields["size"])
    if not raw & 1:
        raise refuse(i, "an even size is not known")
    words = 4 * (raw // 2 + 1)
    address = _of_first_lane(t, global_address(t, i, v), v.i64)
    pointer = _constant_pointer(t, _destination(t, i, i.dsts[0].num, words, a1=bool(i.fields["a1"])))

    def body() -> None:
        host = uniform_host(t, i, address, 4 * words, t.mask)

        def word(k: str) -> str:
            at = s.op("add", "i64", host, s.op("shl", "i64", k, "2"))
            return s.new(f"load i32, ptr {s.cast('inttoptr', at, 'i64', 'ptr')}, align 1")

        _copy(t, words, pointer, word)

    _if_any_acts(t, body)
    t.forget_constants()


SEMANTICS: dict[str, Semantics] = {
    "ldc": load_uniform,
    "ldc.k": copy_uniform,
    "ldg.k": copy_global,
    "stc": store_constant,
}
