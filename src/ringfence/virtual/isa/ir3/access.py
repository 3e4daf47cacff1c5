"""Accesses of lanes to memory, as few host instructions as their addresses allow.

An access is checked once for all lanes against the range that its site touched last; lanes outside it take
a slow path, one by one. In the range addresses are 32-bit offsets. Lanes that access consecutive words do it
with one vector; vectors of two or four words are moved lane by lane and transposed, which costs half of what
gathers do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ringfence.hardware.adreno.ir3 import Instruction
from ringfence.virtual.isa.ir3.translator import Translator
from ringfence.virtual.isa.simt import FAULT, SITE_BYTES, Emitter

ROW_LANES = 16  # strips up to this wide move vectors lane by lane
FORWARDED = 32  # bytes of a store
QUARTER = 4  # dwords of the 128-bit parts in which hosts shuffle cheaply


@dataclass(frozen=True, slots=True)
class Near:
    """Where lanes access memory: ``offset`` bytes (i32 lanes, below 2^31) from the host pointer ``base``.

    Lanes that do not act have an offset that can be read, too.
    """

    base: str
    offset: str


@dataclass(frozen=True, slots=True)
class Halves:
    """64-bit GPU addresses as two i32 vectors."""

    low: str
    high: str


Address = Halves | str
"""GPU addresses: halves, or an i64 vector."""


def _wide(v: Emitter, address: Address) -> str:
    if isinstance(address, str):
        return address
    high = v.op("shl", v.i64, v.cast("zext", address.high, v.i32, v.i64), v.splat("i64", "32"))
    return v.op("or", v.i64, high, v.cast("zext", address.low, v.i32, v.i64))


def _from_start(v: Emitter, address: Address, start: str, size: str) -> tuple[str, str]:
    """Return offsets (i32) from a site's ``start``, and where they are outside its ``size``.

    A site's range does not cross a multiple of 2^31 (see ``lookup_near``): all its addresses have one high
    half.
    """
    if isinstance(address, str):
        wide = v.op("sub", v.i64, address, v.splat("i64", start))
        outside = v.new(f"icmp uge {v.i64} {wide}, {v.splat('i64', size)}")
        return v.cast("trunc", wide, v.i64, v.i32), outside
    low = v.new(f"trunc i64 {start} to i32")
    high = v.new(f"trunc i64 {v.new(f'lshr i64 {start}, 32')} to i32")
    length = v.new(f"trunc i64 {size} to i32")
    offset = v.op("sub", v.i32, address.low, v.splat("i32", low))
    outside = v.new(f"icmp uge {v.i32} {offset}, {v.splat('i32', length)}")
    elsewhere = v.new(f"icmp ne {v.i32} {address.high}, {v.splat('i32', high)}")
    return offset, v.op("or", v.mask, outside, elsewhere)


def _record(t: Translator) -> tuple[str, str, str, str]:
    """Return a new site's record, and the start, size and host - GPU distance in it."""
    record = t.s.at(t.s.field("sites", "ptr"), t.site() * SITE_BYTES)
    start, size, delta = (t.s.new(f"load i64, ptr {t.s.at(record, 8 * k)}, align 8") for k in range(3))
    return record, start, size, delta


def _look_up(
    t: Translator, i: Instruction, record: str, address: str, mask: str, length: int, write: bool
) -> None:
    """Leave host addresses of ``address`` (i64) in %scratch, or leave the strip with a fault."""
    v = t.v
    v.line(f"store {v.i64} {address}, ptr %scratch, align 64")
    v.helpers.add("lookup_near")
    parts = f"ptr %ctx, ptr {record}, ptr %scratch, {v.bits} {v.mask_bits(mask)}"
    ok = v.new(f"call i1 @lookup_near({parts}, i64 {length}, i64 {int(write)}, i64 {i.pc})")
    found, lost = v.block("found"), v.block("lost")
    v.line(f"br i1 {ok}, label %{found}, label %{lost}")
    v.label(lost)
    v.line(f"ret i32 {FAULT}")
    v.label(found)


def _join(t: Translator, cases: Sequence[tuple[str, Callable[[], list[str]]]], vector: str) -> list[str]:
    """Emit each case at its label, and return the values, of type ``vector``, of the one that runs."""
    v = t.v
    over = v.block("over")
    incoming = []
    for label, emit in cases:
        v.label(label)
        values, last = emit(), v.block("from")
        v.line(f"br label %{last}")
        v.label(last)
        v.line(f"br label %{over}")
        incoming.append((values, last))
    v.label(over)
    count = len(incoming[0][0])
    return [
        v.new(f"phi {vector} " + ", ".join(f"[ {values[k]}, %{last} ]" for values, last in incoming))
        for k in range(count)
    ]


def _checked(
    t: Translator,
    i: Instruction,
    address: Address,
    length: int,
    write: bool,
    fast: Callable[[Near], list[str]],
    slow: Callable[[], list[str]],
) -> list[str]:
    """Emit an access of ``length`` bytes a lane: ``fast`` if all are in the site's range.

    Else ``slow``, which finds host addresses in %scratch. Neither may read registers.
    """
    v = t.v
    mask = t.mask
    record, start, size, delta = _record(t)
    offset, outside = _from_start(v, address, start, size)
    bad = v.op("and", v.mask, outside, mask)
    hit, miss = v.block("hit"), v.block("miss")
    v.line(f"br i1 {v.any(bad)}, label %{miss}, label %{hit}, !prof !0")

    def in_range() -> list[str]:
        base = t.s.cast("inttoptr", t.s.op("add", "i64", start, delta), "i64", "ptr")
        return fast(Near(base, acting(t, offset)))

    def elsewhere() -> list[str]:
        _look_up(t, i, record, _wide(v, address), mask, length, write)
        return slow()

    return _join(t, ((hit, in_range), (miss, elsewhere)), v.i32)


def acting(t: Translator, offset: str) -> str:
    """Return ``offset`` (i32) with 0 in lanes that do not act."""
    return offset if t.every_lane_acts else t.v.select(t.mask, t.v.i32, offset, t.v.splat("i32", "0"))


def uniform_host(
    t: Translator, i: Instruction, address: str, length: int, mask: str, enabled: str | None = None
) -> str:
    """Return the host address (i64) of a read of ``length`` bytes that is the same in all lanes of ``mask``.

    Where ``enabled`` (i1) is false the address is not looked at, and the result is of no use.
    """
    v, s = t.v, t.s
    record, start, size, delta = _record(t)
    bad = s.new(f"icmp uge i64 {s.op('sub', 'i64', address, start)}, {size}")
    if enabled is not None:
        bad = s.op("and", "i1", bad, enabled)
    hit, miss = v.block("hit"), v.block("miss")
    v.line(f"br i1 {bad}, label %{miss}, label %{hit}, !prof !0")

    def elsewhere() -> list[str]:
        _look_up(t, i, record, v.splat("i64", address), mask, length, False)
        return [s.new("load i64, ptr %scratch, align 64")]

    cases = ((hit, lambda: [s.op("add", "i64", address, delta)]), (miss, elsewhere))
    return _join(t, cases, "i64")[0]


def load(t: Translator, i: Instruction, address: Address, size: int, count: int) -> list[str]:
    """Return ``count`` consecutive elements of ``size`` bytes from GPU addresses, as zero-extended i32."""

    def slow() -> list[str]:
        name = f"copy_in{8 * size}x{count}"
        t.helper(name, "ptr %addresses, ptr %values", _copy_in(t.lanes, size, count))
        t.v.line(f"call void @{name}(ptr %scratch, ptr %data, {t.v.bits} {t.v.mask_bits(t.mask)})")
        return [t.v.new(f"load {t.v.i32}, ptr {_row(t, k)}, align 4") for k in range(count)]

    return _checked(t, i, address, size * count, False, lambda near: load_near(t, near, size, count), slow)


def store(t: Translator, i: Instruction, address: Address, values: Sequence[str], size: int) -> None:
    """Store the low ``size`` bytes of i32 vectors to consecutive elements at GPU addresses."""
    count = len(values)

    def fast(near: Near) -> list[str]:
        store_near(t, near, values, size)
        return []

    def slow() -> list[str]:
        name = f"copy_out{8 * size}x{count}"
        t.helper(name, "ptr %addresses, ptr %values", _copy_out(t.lanes, size, count))
        for k, value in enumerate(values):
            t.v.line(f"store {t.v.i32} {value}, ptr {_row(t, k)}, align 4")
        t.v.line(f"call void @{name}(ptr %scratch, ptr %data, {t.v.bits} {t.v.mask_bits(t.mask)})")
        return []

    _checked(t, i, address, size * count, True, fast, slow)


def _row(t: Translator, k: int) -> str:
    """Return a pointer to vector ``k`` of %data."""
    t.data_rows = max(t.data_rows, k + 1)
    return t.v.at("%data", 4 * t.lanes * k)


def _copy_in(lanes: int, size: int, count: int) -> str:
    """Return the body of the slow load: elements at %addresses[lane] to %values[k][lane]."""
    lines = ["  %ap = getelementptr i64, ptr %addresses, i64 %lane", "  %a = load ptr, ptr %ap, align 8"]
    for k in range(count):
        lines += [
            f"  %e{k} = getelementptr i8, ptr %a, i64 {size * k}",
            f"  %n{k} = load i{8 * size}, ptr %e{k}, align 1",
            f"  %w{k} = zext i{8 * size} %n{k} to i64",
            f"  %x{k} = trunc i64 %w{k} to i32",
            f"  %i{k} = add i64 %lane, {lanes * k}",
            f"  %p{k} = getelementptr i32, ptr %values, i64 %i{k}",
            f"  store i32 %x{k}, ptr %p{k}, align 4",
        ]
    return "\n".join(lines)


def _copy_out(lanes: int, size: int, count: int) -> str:
    """Return the body of the slow store: elements from %values[k][lane] to %addresses[lane]."""
    lines = ["  %ap = getelementptr i64, ptr %addresses, i64 %lane", "  %a = load ptr, ptr %ap, align 8"]
    for k in range(count):
        lines += [
            f"  %i{k} = add i64 %lane, {lanes * k}",
            f"  %p{k} = getelementptr i32, ptr %values, i64 %i{k}",
            f"  %x{k} = load i32, ptr %p{k}, align 4",
            f"  %w{k} = zext i32 %x{k} to i64",
            f"  %n{k} = trunc i64 %w{k} to i{8 * size}",
            f"  %e{k} = getelementptr i8, ptr %a, i64 {size * k}",
            f"  store i{8 * size} %n{k}, ptr %e{k}, align 1",
        ]
    return "\n".join(lines)


# --- loads ---


def load_near(t: Translator, near: Near, size: int, count: int) -> list[str]:
    """Return elements as zero-extended i32; undefined in lanes that do not act."""
    if size * count % 4 == 0:
        return _unpacked(t.v, _load_words(t, near, size * count // 4), size)
    return [_load_element(t, _further(t.v, near, size * k), size) for k in range(count)]


def _further(v: Emitter, near: Near, more: int) -> Near:
    return Near(v.at(near.base, more), near.offset)


def pointers(v: Emitter, near: Near) -> str:
    """Return pointers; the signed index lets x86 use 32-bit ones, for twice as many lanes at once."""
    index = v.cast("sext", near.offset, v.i32, v.i64)
    return v.new(f"getelementptr i8, ptr {near.base}, {v.i64} {index}")


def _hosts(v: Emitter, near: Near) -> str:
    """Return host addresses (i64)."""
    base = v.splat("i64", v.new(f"ptrtoint ptr {near.base} to i64"))
    return v.op("add", v.i64, v.cast("zext", near.offset, v.i32, v.i64), base)


def _unpacked(v: Emitter, words: list[str], size: int) -> list[str]:
    """Return the elements of dwords."""
    if size == 4:
        return words
    elements = []
    for word in words:
        for k in range(4 // size):
            shifted = v.op("lshr", v.i32, word, v.splat("i32", str(8 * size * k))) if k else word
            elements.append(v.op("and", v.i32, shifted, v.splat("i32", str((1 << 8 * size) - 1))))
    return elements


def _load_words(t: Translator, near: Near, count: int) -> list[str]:
    v = t.v
    if count in (2, 4) and t.lanes <= ROW_LANES:
        return _load_rows(v, _lane_pointers(v, near), count)
    if count == 1:
        return [_load_element(t, near, 4)]
    return [v.gather(v.i32, pointers(v, _further(v, near, 4 * k)), t.mask, 1) for k in range(count)]


def _load_element(t: Translator, near: Near, size: int) -> str:
    """Return one element a lane: with a plain load if they are consecutive."""
    v = t.v
    first, straight = _consecutive(v, near.offset, size)
    line, spread = v.block("line"), v.block("spread")
    v.line(f"br i1 {straight}, label %{line}, label %{spread}")

    def plain() -> list[str]:
        vector = {1: v.i8, 2: v.i16, 4: v.i32}[size]
        value = v.new(f"load {vector}, ptr {_at(v, near.base, first)}, align 1")
        return [value if size == 4 else v.cast("zext", value, vector, v.i32)]

    def each() -> list[str]:
        if size == 4:
            return [v.gather(v.i32, pointers(v, near), t.mask, 1)]
        return [load_narrow(v, _hosts(v, near), t.mask, size)]

    return _join(t, ((line, plain), (spread, each)), v.i32)[0]


def _at(v: Emitter, base: str, offset: str) -> str:
    """Return ``base`` + ``offset``, an i32 below 2^31."""
    return v.new(f"getelementptr i8, ptr {base}, i32 {offset}")


def _consecutive(v: Emitter, offset: str, size: int) -> tuple[str, str]:
    """Return lane 0's offset, and an i1: the others follow it, ``size`` bytes apart."""
    first = v.new(f"extractelement {v.i32} {offset}, i64 0")
    steps = "<" + ", ".join(f"i32 {size * lane}" for lane in range(v.lanes)) + ">"
    expected = v.op("add", v.i32, v.splat("i32", first), steps)
    differs = v.any(v.new(f"icmp ne {v.i32} {offset}, {expected}"))
    return first, v.new(f"xor i1 {differs}, true")


def load_narrow(e: Emitter, host: str, mask: str, size: int) -> str:
    """Return an i32 with the zero-extended element of one or two bytes at host addresses.

    x86 has no narrow gather: fetch four bytes with the element among them, all in pages that it touches
    itself.
    """
    place = e.op("and", e.i32, e.cast("trunc", host, e.i64, e.i32), e.splat("i32", "3"))
    back = place if size == 1 else e.binary("umin", e.i32, place, e.splat("i32", "2"))
    start = e.op("sub", e.i64, host, e.cast("zext", back, e.i32, e.i64))
    word = e.gather(e.i32, e.cast("inttoptr", start, e.i64, e.ptrs), mask, 1)
    shifted = e.op("lshr", e.i32, word, e.op("shl", e.i32, back, e.splat("i32", "3")))
    return e.op("and", e.i32, shifted, e.splat("i32", str((1 << 8 * size) - 1)))


# --- rows: vectors of two or four dwords a lane ---


def _lane_pointers(v: Emitter, near: Near) -> list[str]:
    """Return a pointer per lane.

    The offsets pass through memory, which costs less than extracting them, in parts of 32 bytes: a host with
    AVX-512 forwards the upper half of a 64-byte store to loads only slowly (measured: a product of matrices
    takes 1.8 times as long). Volatile keeps LLVM from joining the parts.
    """
    per = min(v.lanes, FORWARDED // 4)
    for first in range(0, v.lanes, per):
        part = _shuffled(v, v.i32, near.offset, near.offset, range(first, first + per))
        v.line(f"store volatile <{per} x i32> {part}, ptr {v.at('%scratch', 4 * first)}, align 32")
    offsets = (v.new(f"load i32, ptr {v.at('%scratch', 4 * lane)}, align 4") for lane in range(v.lanes))
    return [_at(v, near.base, offset) for offset in offsets]


def _load_rows(v: Emitter, pointers: Sequence[str], count: int) -> list[str]:
    """Return ``count`` vectors: dword k at each lane's pointer. ``count`` is 2 or 4."""
    row = f"<{count} x i32>"
    rows = [v.new(f"load {row}, ptr {pointer}, align 1") for pointer in pointers]
    if count == 4:
        columns = [_concatenated(v, rows[j::QUARTER], 4) for j in range(QUARTER)]
        return _transposed(v, columns)
    joined = _concatenated(v, rows, 2)
    wide = f"<{2 * v.lanes} x i32>"
    return [_shuffled(v, wide, joined, joined, range(k, 2 * v.lanes, 2)) for k in range(2)]


def _store_rows(v: Emitter, pointers: Sequence[str], values: Sequence[str]) -> None:
    """Store vector k of ``values``, which are 2 or 4, to dword k at each lane's pointer."""
    count, n = len(values), v.lanes
    if count == 4:
        columns = _transposed(v, values)
        places = [(columns[lane % QUARTER], v.i32, lane // QUARTER * QUARTER) for lane in range(n)]
    else:
        order = [k * n + lane for lane in range(n) for k in range(2)]
        pairs = _shuffled(v, v.i32, values[0], values[1], order)
        places = [(pairs, f"<{2 * n} x i32>", 2 * lane) for lane in range(n)]
    for pointer, (vector, kind, start) in zip(pointers, places, strict=True):
        row = _shuffled(v, kind, vector, vector, range(start, start + count))
        v.line(f"store <{count} x i32> {row}, ptr {pointer}, align 1")


def _shuffled(v: Emitter, vector: str, a: str, b: str, order: Sequence[int]) -> str:
    indices = ", ".join(f"i32 {index}" for index in order)
    return v.new(f"shufflevector {vector} {a}, {vector} {b}, <{len(order)} x i32> <{indices}>")


def _concatenated(v: Emitter, parts: Sequence[str], width: int) -> str:
    """Return the vector of all ``parts``, ``width`` dwords each; their number is a power of two."""
    parts = list(parts)
    while len(parts) > 1:
        vector = f"<{width} x i32>"
        parts = [_shuffled(v, vector, a, b, range(2 * width)) for a, b in zip(parts[::2], parts[1::2])]
        width *= 2
    return parts[0]


def _transposed(v: Emitter, columns: Sequence[str]) -> list[str]:
    """Transpose the 4 x 4 dwords in each 128-bit part of four vectors; it is its own inverse."""
    quarters = range(0, v.lanes, QUARTER)

    def mixed(a: str, b: str, pattern: tuple[int, ...]) -> str:
        order = [q + p if p < QUARTER else v.lanes + q + p - QUARTER for q in quarters for p in pattern]
        return _shuffled(v, v.i32, a, b, order)

    a, b, c, d = columns
    low, high = (0, 4, 1, 5), (2, 6, 3, 7)
    ab, cd, ab2, cd2 = mixed(a, b, low), mixed(c, d, low), mixed(a, b, high), mixed(c, d, high)
    first, second = (0, 1, 4, 5), (2, 3, 6, 7)
    return [mixed(ab, cd, first), mixed(ab, cd, second), mixed(ab2, cd2, first), mixed(ab2, cd2, second)]


# --- stores ---


def store_near(t: Translator, near: Near, values: Sequence[str], size: int) -> None:
    """Store the low ``size`` bytes of i32 vectors to consecutive elements."""
    if size * len(values) % 4 == 0:
        _store_words(t, near, _packed(t.v, values, size))
        return
    for k, value in enumerate(values):
        _store_element(t, _further(t.v, near, size * k), value, size)


def _packed(v: Emitter, values: Sequence[str], size: int) -> list[str]:
    """Return the dwords that consecutive elements make."""
    if size == 4:
        return list(values)
    words, per = [], 4 // size
    for first in range(0, len(values), per):
        word = ""
        for k in range(per):
            part = v.op("and", v.i32, values[first + k], v.splat("i32", str((1 << 8 * size) - 1)))
            if k:
                part = v.op("shl", v.i32, part, v.splat("i32", str(8 * size * k)))
            word = v.op("or", v.i32, word, part) if k else part
        words.append(word)
    return words


def _store_words(t: Translator, near: Near, words: list[str]) -> None:
    v = t.v
    if len(words) == 1:
        _store_element(t, near, words[0], 4)
        return

    def scattered() -> list[str]:
        for k, word in enumerate(words):
            v.scatter(v.i32, word, pointers(v, _further(v, near, 4 * k)), t.mask, 1)
        return []

    def rows() -> list[str]:
        _store_rows(v, _lane_pointers(v, near), words)
        return []

    if len(words) not in (2, 4) or t.lanes > ROW_LANES:
        scattered()
    elif t.every_lane_acts:
        rows()
    else:
        _if(t, _all_act(t), rows, scattered)


def _if(t: Translator, condition: str, then: Callable[[], list[str]], other: Callable[[], list[str]]) -> None:
    yes, no = t.v.block("yes"), t.v.block("no")
    t.v.line(f"br i1 {condition}, label %{yes}, label %{no}")
    _join(t, ((yes, then), (no, other)), t.v.i32)


def _all_act(t: Translator) -> str:
    return t.v.new(f"icmp eq {t.v.bits} {t.v.mask_bits(t.mask)}, -1")


def _store_element(t: Translator, near: Near, value: str, size: int) -> None:
    """Store one element a lane: with a plain store if they are consecutive and all lanes act."""
    v = t.v
    first, straight = _consecutive(v, near.offset, size)
    if not t.every_lane_acts:
        straight = v.new(f"and i1 {straight}, {_all_act(t)}")

    def plain() -> list[str]:
        vector = {1: v.i8, 2: v.i16, 4: v.i32}[size]
        narrow = value if size == 4 else v.cast("trunc", value, v.i32, vector)
        v.line(f"store {vector} {narrow}, ptr {_at(v, near.base, first)}, align 1")
        return []

    def each() -> list[str]:
        if size == 4:
            v.scatter(v.i32, value, pointers(v, near), t.mask, 1)
        else:
            scatter_narrow(t, _hosts(v, near), value, size)
        return []

    _if(t, straight, plain, each)


def scatter_narrow(t: Translator, host: str, value: str, size: int) -> None:
    """Store the low ``size`` bytes (1 or 2) of i32 lanes at host addresses (i64), lane by lane."""
    v, name = t.v, f"copy_out{8 * size}x1"
    t.helper(name, "ptr %addresses, ptr %values", _copy_out(t.lanes, size, 1))
    v.line(f"store {v.i64} {host}, ptr %scratch, align 64")
    v.line(f"store {v.i32} {value}, ptr %data, align 64")
    v.line(f"call void @{name}(ptr %scratch, ptr %data, {v.bits} {v.mask_bits(t.mask)})")
