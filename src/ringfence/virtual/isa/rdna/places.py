"""Loads and stores of a wave at addresses of the host: contiguous, uniform or scattered, decided at run time.

Lanes of one access usually touch neighbours (then it is a vector load), one place (a scalar load) or,
rarely, anything (a gather). That is decided for each 16 lanes on their own, since rows of 16 work-items are
common. Addresses come as :class:`Place`; checks of addresses are made before, see memory.py, lds.py and
scratch.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ringfence.virtual.isa.rdna.translate import Translator
from ringfence.virtual.isa.simt import Emitter

STRIP = 16  # lanes that are looked at together
Values = list[str]


@dataclass(frozen=True, slots=True)
class Place:
    """Where lanes access memory.

    At host addresses ``offset`` (i64 lanes) or, with ``base`` (a pointer), that many bytes behind it (i32
    lanes, below 2^31). ``lanes`` are the lanes that take part, the active ones if that is ``None``.
    ``room`` (i32, may be negative) says that only so many bytes lie behind ``base``: dwords beyond read 0
    and are not stored.
    """

    offset: str
    base: str | None = None
    lanes: str | None = None
    room: str | None = None

    @property
    def kind(self) -> str:
        """The type of an offset."""
        return "i64" if self.base is None else "i32"


def all_lanes(t: Translator, where: Place) -> bool:
    """Return whether the whole wave is known to take part."""
    return where.lanes is None and t.full


def taking_part(t: Translator, where: Place) -> str:
    """Return the lanes of an access."""
    return t.exec_mask() if where.lanes is None else where.lanes


def hosts(t: Translator, where: Place) -> str:
    """Return the host addresses as i64 lanes."""
    if where.base is None:
        return where.offset
    v = t.v
    base = t.s.cast("ptrtoint", where.base, "ptr", "i64")
    return v.op("add", v.i64, v.cast("zext", where.offset, v.i32, v.i64), v.splat("i64", base))


def pointers(t: Translator, where: Place) -> str:
    """Return the pointers of all lanes."""
    v = t.v
    if where.base is None:
        return v.cast("inttoptr", where.offset, v.i64, v.ptrs)
    return v.new(f"getelementptr i8, ptr {where.base}, {v.i32} {where.offset}")


def branch(
    t: Translator, condition: str, yes: Callable[[], Values], no: Callable[[], Values], *, rare: bool = False
) -> Values:
    """Return the i32 lanes that ``yes`` or ``no`` emit, depending on the i1 ``condition``."""
    v = t.v
    first, second, join = v.block("yes"), v.block("no"), v.block("join")
    v.line(f"br i1 {condition}, label %{first}, label %{second}{', !prof !0' if rare else ''}")
    results, ends = [], []
    for label, emit in ((first, yes), (second, no)):
        v.label(label)
        with t.aside():
            results.append(emit())
        end = v.block("end")
        v.line(f"br label %{end}")
        v.label(end)
        v.line(f"br label %{join}")
        ends.append(end)
    v.label(join)
    return [
        v.new(f"phi {v.i32} [ {a}, %{ends[0]} ], [ {b}, %{ends[1]} ]") for a, b in zip(*results, strict=True)
    ]


# --- patterns of addresses ---


def _heads(t: Translator, where: Place) -> list[str]:
    """Return the offsets of the first lanes of all strips."""
    vector = t.v.i64 if where.base is None else t.v.i32
    return [
        t.s.new(f"extractelement {vector} {where.offset}, i32 {lane}") for lane in range(0, t.wave, STRIP)
    ]


def _deviates(t: Translator, where: Place, stride: int) -> str:
    """Return an i1: some lane is not ``stride`` bytes behind the lane before it in its strip."""
    v, kind = t.v, where.kind
    vector = v.i64 if where.base is None else v.i32
    heads = ", ".join(f"i32 {lane & -STRIP}" for lane in range(t.wave))
    expected = v.new(f"shufflevector {vector} {where.offset}, {vector} poison, <{t.wave} x i32> <{heads}>")
    if stride:
        steps = "<" + ", ".join(f"{kind} {stride * (k % STRIP)}" for k in range(t.wave)) + ">"
        expected = v.op("add", vector, expected, steps)
    wrong = v.new(f"icmp ne {vector} {where.offset}, {expected}")
    if not all_lanes(t, where):
        wrong = v.op("and", v.mask, wrong, taking_part(t, where))
    return v.any(wrong)


def _differs(t: Translator, where: Place) -> str:
    """Return an i1: lanes of a strip access different places, or the first lane of a strip takes no part."""
    wrong = _deviates(t, where, 0)
    if all_lanes(t, where):
        return wrong
    v, firsts = t.v, sum(1 << lane for lane in range(0, t.wave, STRIP))
    present = t.s.op("and", v.bits, v.mask_bits(taking_part(t, where)), str(firsts))
    return t.s.op("or", "i1", wrong, t.s.new(f"icmp ne {v.bits} {present}, {firsts}"))


def _head_pointers(t: Translator, where: Place) -> list[str]:
    s = t.s
    if where.base is None:
        return [s.cast("inttoptr", head, "i64", "ptr") for head in _heads(t, where)]
    return [s.new(f"getelementptr i8, ptr {where.base}, i32 {head}") for head in _heads(t, where)]


def _strip_masks(t: Translator, where: Place) -> list[str]:
    v = t.v
    return [strip_part(t, v.mask, taking_part(t, where), s) for s in range(t.wave // STRIP)]


def strip_part(t: Translator, vector: str, value: str, strip: int) -> str:
    """Return the lanes of a strip."""
    listed = ", ".join(f"i32 {STRIP * strip + k}" for k in range(STRIP))
    return t.v.new(f"shufflevector {vector} {value}, {vector} poison, <{STRIP} x i32> <{listed}>")


def joined(t: Translator, parts: list[str], element: str = "i32") -> str:
    """Return the lanes of several strips as one vector."""
    width = STRIP
    while len(parts) > 1:
        vector = f"<{width} x {element}>"
        listed = ", ".join(f"i32 {k}" for k in range(2 * width))
        parts = [
            t.v.new(f"shufflevector {vector} {a}, {vector} {b}, <{2 * width} x i32> <{listed}>")
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
        width *= 2
    return parts[0]


# --- loads ---


def load(t: Translator, where: Place, size: int, count: int = 1) -> Values:
    """Return ``count`` elements of ``size`` bytes per lane as i32 lanes, zero-extended.

    Other lanes have anything.
    """
    if by_strips(t, count, size):
        return _load_strips(t, where, count)

    def uniform() -> Values:
        return branch(
            t, _differs(t, where), lambda: _gather(t, where, size), lambda: _broadcast(t, where, size)
        )

    return branch(t, _deviates(t, where, size), uniform, lambda: _load_contiguous(t, where, size))


def _load_contiguous(t: Translator, where: Place, size: int) -> Values:
    v, e = t.v, Emitter(STRIP, t.v)
    vector, element = {1: (e.i8, "i8"), 2: (e.i16, "i16"), 4: (e.i32, "i32")}[size]
    masks = None if all_lanes(t, where) else _strip_masks(t, where)
    parts = []
    for k, pointer in enumerate(_head_pointers(t, where)):
        if masks is None:
            parts.append(e.new(f"load {vector}, ptr {pointer}, align 1"))
        else:
            name = f"llvm.masked.load.{e.suffix(vector)}.p0"
            place = ("ptr align 1", pointer), (e.mask, masks[k]), (vector, "zeroinitializer")
            parts.append(e.call(vector, name, *place))
    value = joined(t, parts, element)
    return [value if size == 4 else v.cast("zext", value, f"<{t.wave} x {element}>", v.i32)]


def _broadcast(t: Translator, where: Place, size: int) -> Values:
    s, e, kind = t.s, Emitter(STRIP, t.v), f"i{8 * size}"
    parts = []
    for pointer in _head_pointers(t, where):
        scalar = s.new(f"load {kind}, ptr {pointer}, align 1")
        parts.append(e.splat("i32", scalar if size == 4 else s.cast("zext", scalar, kind, "i32")))
    return [joined(t, parts)]


def _gather(t: Translator, where: Place, size: int) -> Values:
    v = t.v
    if size == 4:
        return [v.gather(v.i32, pointers(t, where), taking_part(t, where), 1)]
    return [_gather_narrow(t, where, size)]


def _gather_narrow(t: Translator, where: Place, size: int) -> str:
    """Gather the dwords around the elements (x86 has no narrow gather).

    Elements that cross dwords go one by one.
    """
    v = t.v
    host = hosts(t, where)
    if size == 1:
        return _around(t, host, where, size)
    odd = v.new(f"icmp ne {v.i64} {v.op('and', v.i64, host, v.splat('i64', '1'))}, zeroinitializer")
    crossing = v.any(v.op("and", v.mask, odd, taking_part(t, where)))

    def alone() -> Values:
        return load_alone(t, host, v.mask_bits(taking_part(t, where)), size, 1)

    return branch(t, crossing, alone, lambda: [_around(t, host, where, size)], rare=True)[0]


def _around(t: Translator, host: str, where: Place, size: int) -> str:
    v = t.v
    aligned = v.op("and", v.i64, host, v.splat("i64", "-4"))
    word = v.gather(v.i32, v.cast("inttoptr", aligned, v.i64, v.ptrs), taking_part(t, where), 4)
    place = v.op("and", v.i32, v.cast("trunc", host, v.i64, v.i32), v.splat("i32", "3"))
    shifted = v.op("lshr", v.i32, word, v.op("shl", v.i32, place, v.splat("i32", "3")))
    return v.op("and", v.i32, shifted, v.splat("i32", str((1 << 8 * size) - 1)))


def load_alone(t: Translator, host: str, bits: str, size: int, count: int) -> Values:
    """Load lane by lane from host addresses, for the lanes of ``bits``; other lanes get 0."""
    v = t.v
    name = f"load_{size}x{count}"
    t.lane_helper(name, "ptr %addresses, ptr %results", _load_body(t.wave, size, count))
    data = t.alloca("data", f"[4 x {v.i32}]")
    v.line(f"store {v.i64} {host}, ptr %scratch, align 64")
    for k in range(count):
        v.line(f"store {v.i32} zeroinitializer, ptr {v.at(data, 4 * t.wave * k)}, align 64")
    v.line(f"call void @{name}(ptr %scratch, ptr {data}, {v.bits} {bits})")
    return [v.new(f"load {v.i32}, ptr {v.at(data, 4 * t.wave * k)}, align 64") for k in range(count)]


def _load_body(wave: int, size: int, count: int) -> str:
    kind = f"i{8 * size}"
    lines = ["  %ap = getelementptr i64, ptr %addresses, i64 %lane", "  %a = load ptr, ptr %ap, align 8"]
    for k in range(count):
        extend = f"zext {kind} %w{k} to i32" if size < 4 else f"add i32 %w{k}, 0"
        lines += [
            f"  %p{k} = getelementptr i8, ptr %a, i64 {4 * k}",
            f"  %w{k} = load {kind}, ptr %p{k}, align 1",
            f"  %v{k} = {extend}",
            f"  %i{k} = add i64 %lane, {wave * k}",
            f"  %r{k} = getelementptr i32, ptr %results, i64 %i{k}",
            f"  store i32 %v{k}, ptr %r{k}, align 4",
        ]
    return "\n".join(lines)


# --- stores ---


def store(t: Translator, where: Place, values: Sequence[str], size: int) -> None:
    """Store i32 lanes, ``size`` bytes of each, one dword after the other."""
    if by_strips(t, len(values), size):
        _store_strips(t, where, values)
        return
    (value,) = values

    def scattered() -> Values:
        _scatter(t, where, value, size)
        return []

    def contiguous() -> Values:
        _store_contiguous(t, where, value, size)
        return []

    branch(t, _deviates(t, where, size), scattered, contiguous)


def _store_contiguous(t: Translator, where: Place, value: str, size: int) -> None:
    v, e = t.v, Emitter(STRIP, t.v)
    vector, element = {1: (e.i8, "i8"), 2: (e.i16, "i16"), 4: (e.i32, "i32")}[size]
    whole = f"<{t.wave} x {element}>"
    if size < 4:
        value = v.cast("trunc", value, v.i32, whole)
    masks = None if all_lanes(t, where) else _strip_masks(t, where)
    for k, pointer in enumerate(_head_pointers(t, where)):
        part = strip_part(t, whole, value, k)
        if masks is None:
            e.line(f"store {vector} {part}, ptr {pointer}, align 1")
        else:
            name = f"llvm.masked.store.{e.suffix(vector)}.p0"
            e.call_void(name, (vector, part), ("ptr align 1", pointer), (e.mask, masks[k]))


def _scatter(t: Translator, where: Place, value: str, size: int) -> None:
    v = t.v
    if size < 4:
        store_alone(t, hosts(t, where), v.mask_bits(taking_part(t, where)), [value], size)
    else:
        v.scatter(v.i32, value, pointers(t, where), taking_part(t, where), 1)


def store_alone(t: Translator, host: str, bits: str, values: Sequence[str], size: int) -> None:
    """Store lane by lane at host addresses, for the lanes of ``bits``, lowest first."""
    v, count = t.v, len(values)
    name = f"store_{size}x{count}"
    t.lane_helper(name, "ptr %addresses, ptr %values", _store_body(t.wave, size, count))
    data = t.alloca("data", f"[4 x {v.i32}]")
    v.line(f"store {v.i64} {host}, ptr %scratch, align 64")
    for k, value in enumerate(values):
        v.line(f"store {v.i32} {value}, ptr {v.at(data, 4 * t.wave * k)}, align 64")
    v.line(f"call void @{name}(ptr %scratch, ptr {data}, {v.bits} {bits})")


def _store_body(wave: int, size: int, count: int) -> str:
    kind = f"i{8 * size}"
    lines = ["  %ap = getelementptr i64, ptr %addresses, i64 %lane", "  %a = load ptr, ptr %ap, align 8"]
    for k in range(count):
        narrow = f"trunc i32 %v{k} to {kind}" if size < 4 else f"add i32 %v{k}, 0"
        lines += [
            f"  %i{k} = add i64 %lane, {wave * k}",
            f"  %r{k} = getelementptr i32, ptr %values, i64 %i{k}",
            f"  %v{k} = load i32, ptr %r{k}, align 4",
            f"  %w{k} = {narrow}",
            f"  %p{k} = getelementptr i8, ptr %a, i64 {4 * k}",
            f"  store {kind} %w{k}, ptr %p{k}, align 1",
        ]
    return "\n".join(lines)


# --- several dwords a lane, and programs with many accesses: a function, since it is too much code to
# repeat ---


def by_strips(t: Translator, count: int, size: int) -> bool:
    """Return whether an access is done by a function for each strip."""
    return count > 1 or (size == 4 and t.compact)


@dataclass(frozen=True, slots=True)
class _StripArguments:
    """What says where a strip accesses: ``offsets`` (lanes of type ``vector``) and the ``bits`` of its lanes.

    ``text`` is all of it as arguments: base, offsets, mask and, if limited, room.
    """

    vector: str
    offsets: str
    bits: str
    text: str


def _strip_arguments(t: Translator, where: Place) -> list[_StripArguments]:
    """Return the arguments for each strip."""
    e = Emitter(STRIP, t.v)
    vector = e.i64 if where.base is None else e.i32
    whole = t.v.i64 if where.base is None else t.v.i32
    masks = None if all_lanes(t, where) else _strip_masks(t, where)
    found = []
    for s in range(t.wave // STRIP):
        bits = "-1" if masks is None else e.mask_bits(masks[s])
        offsets = strip_part(t, whole, where.offset, s)
        room = "" if where.room is None else f", i32 {where.room}"
        text = f"ptr {where.base or 'null'}, {vector} {offsets}, i{STRIP} {bits}{room}"
        found.append(_StripArguments(vector, offsets, bits, text))
    return found


def _variant(where: Place) -> str:
    return where.kind if where.room is None else "limited"


def _load_strips(t: Translator, where: Place, count: int) -> Values:
    e = Emitter(STRIP, t.v)
    strips = _strip_arguments(t, where)
    name = f"load_strip_{_variant(where)}x{count}"
    if name not in t.helpers:
        t.helpers[name] = _load_function(name, where, count, t.v)
    result = "{ " + ", ".join([e.i32] * count) + " }"
    loaded: list[str] = []
    for k, arguments in enumerate(strips):
        call = f"call {result} @{name}({arguments.text})"
        if k and t.mirrored:
            loaded.append(_unless_equal(e, arguments, strips[k - 1], result, call, loaded[-1]))
        else:
            loaded.append(e.new(call))
    return [
        joined(t, [e.new(f"extractvalue {result} {packed}, {k}") for packed in loaded]) for k in range(count)
    ]


def _unless_equal(
    e: Emitter, here: _StripArguments, before: _StripArguments, result: str, call: str, loaded: str
) -> str:
    """Return what was ``loaded`` for the strip before if this one has the same addresses, else ``call``.

    The upper lanes of a wave hold the same rows of a matrix as the lower ones.
    """
    compared, other, join = e.block("compared"), e.block("other"), e.block("join")
    differs = e.any(e.new(f"icmp ne {here.vector} {here.offsets}, {before.offsets}"))
    unlike = e.new(f"icmp ne i{STRIP} {here.bits}, {before.bits}")
    either = e.new(f"or i1 {differs}, {unlike}")
    e.line(f"br label %{compared}")
    e.label(compared)
    e.line(f"br i1 {either}, label %{other}, label %{join}")
    e.label(other)
    fetched = e.new(call)
    e.line(f"br label %{join}")
    e.label(join)
    return e.new(f"phi {result} [ {loaded}, %{compared} ], [ {fetched}, %{other} ]")


def _store_strips(t: Translator, where: Place, values: Sequence[str]) -> None:
    v, e, count = t.v, Emitter(STRIP, t.v), len(values)
    strips = _strip_arguments(t, where)
    name = f"store_strip_{_variant(where)}x{count}"
    if name not in t.helpers:
        t.helpers[name] = _store_function(name, where, count, v)
    for s, arguments in enumerate(strips):
        data = ", ".join(f"{e.i32} {strip_part(t, v.i32, value, s)}" for value in values)
        e.line(f"call void @{name}({arguments.text}, {data})")


class _Function:
    """Writes the body of a strip function: the checks for its address patterns, and addresses."""

    def __init__(self, where: Place, parent: Emitter) -> None:
        self.e = Emitter(STRIP)
        self.e.declarations = parent.declarations
        self.s = Emitter(1, self.e)
        self.kind = kind = where.kind
        self.limited = where.room is not None
        self.vector = self.e.i64 if kind == "i64" else self.e.i32
        self.mask = self.e.cast("bitcast", "%bits", f"i{STRIP}", self.e.mask)

    def deviates(self, stride: int) -> str:
        """Return an i1: a lane that takes part is not ``stride`` bytes behind the one before it."""
        e = self.e
        head = e.new(f"extractelement {self.vector} %offsets, i32 0")
        steps = "<" + ", ".join(f"{self.kind} {stride * k}" for k in range(STRIP)) + ">"
        expected = e.op("add", self.vector, e.splat(self.kind, head), steps)
        wrong = e.new(f"icmp ne {self.vector} %offsets, {expected}")
        return e.any(e.op("and", e.mask, wrong, self.mask))

    def head_pointer(self) -> str:
        head = self.s.new(f"extractelement {self.vector} %offsets, i32 0")
        if self.kind == "i64":
            return self.s.cast("inttoptr", head, "i64", "ptr")
        return self.s.new(f"getelementptr i8, ptr %base, i32 {head}")

    def pointers(self, further: int) -> str:
        e = self.e
        if self.kind == "i64":
            moved = e.op("add", e.i64, "%offsets", e.splat("i64", str(further)))
            return e.cast("inttoptr", moved, e.i64, e.ptrs)
        return e.new(f"getelementptr i8, ptr {e.at('%base', further)}, {e.i32} %offsets")

    def inside(self, further: int) -> str:
        """Return the lanes of which the dword ``further`` bytes on lies inside the limits."""
        e, s = self.e, self.s
        last = s.op("sub", "i32", "%room", str(further + 4))
        some = s.new(f"icmp sge i32 {last}, 0")
        within = e.new(f"icmp ule {e.i32} %offsets, {e.splat('i32', last)}")
        return e.op("and", e.mask, self.mask, e.op("and", e.mask, within, e.splat("i1", some)))

    def check_limits(self, count: int) -> None:
        """Go to ``beyond`` if a lane that takes part exceeds the limits."""
        if not self.limited:
            return
        e = self.e
        outside = e.op("xor", e.mask, self.mask, self.inside(4 * (count - 1)))
        exceeded, go = "beyond", "within"
        e.line(f"br i1 {e.any(outside)}, label %{exceeded}, label %{go}, !prof !0")
        e.label(go)

    def either(self, condition: str, yes: str, no: str) -> None:
        self.e.line(f"br i1 {condition}, label %{yes}, label %{no}")
        self.e.label(yes)

    def text(self, result: str, name: str, arguments: str) -> str:
        body = "\n".join(self.e.lines)
        room = ", i32 %room" if self.limited else ""
        head = f"ptr %base, {self.vector} %offsets, i{STRIP} %bits{room}{arguments}"
        return f"define internal {result} @{name}({head}) #2 {{\n{body}\n}}"


def _load_function(name: str, where: Place, count: int, parent: Emitter) -> str:
    """Return a function that loads ``count`` dwords for each of 16 lanes."""
    f = _Function(where, parent)
    e, s = f.e, f.s
    result = "{ " + ", ".join([e.i32] * count) + " }"

    def give(values: Values) -> None:
        packed = "poison"
        for k, value in enumerate(values):
            packed = e.new(f"insertvalue {result} {packed}, {e.i32} {value}, {k}")
        e.line(f"ret {result} {packed}")

    f.check_limits(count)
    whole = s.new(f"icmp eq i{STRIP} %bits, -1")
    inner = s.op("xor", "i1", f.deviates(4 * count), "true")
    f.either(s.op("and", "i1", whole, inner) if count != 3 else "false", "contiguous", "other")
    give(_load_interleaved(e, f.head_pointer(), count) if count != 3 else [e.splat("i32", "0")] * count)
    e.label("other")
    first = s.cast("trunc", "%bits", f"i{STRIP}", "i1")
    same = s.op("xor", "i1", f.deviates(0), "true")
    f.either(s.op("and", "i1", first, same), "uniform", "scattered")
    pointer = f.head_pointer()
    give([e.splat("i32", s.new(f"load i32, ptr {s.at(pointer, 4 * k)}, align 1")) for k in range(count)])
    e.label("scattered")
    if count == 4:
        f.either(whole, "rows", "gathered")
        give(_load_rows(f))
        e.label("gathered")
    give([e.gather(e.i32, f.pointers(4 * k), f.mask, 1) for k in range(count)])
    if f.limited:
        e.label("beyond")
        give([e.gather(e.i32, f.pointers(4 * k), f.inside(4 * k), 1) for k in range(count)])
    return f.text(result, name, "")


def _store_function(name: str, where: Place, count: int, parent: Emitter) -> str:
    """Return a function that stores ``count`` dwords for each of 16 lanes."""
    f = _Function(where, parent)
    e, s = f.e, f.s
    values = [f"%value{k}" for k in range(count)]
    f.check_limits(count)
    whole = s.new(f"icmp eq i{STRIP} %bits, -1")
    inner = s.op("xor", "i1", f.deviates(4 * count), "true")
    f.either(s.op("and", "i1", whole, inner) if count != 3 else "false", "contiguous", "scattered")
    if count != 3:
        _store_interleaved(e, f.head_pointer(), values)
    e.line("ret void")
    e.label("scattered")
    for k, value in enumerate(values):
        e.scatter(e.i32, value, f.pointers(4 * k), f.mask, 1)
    e.line("ret void")
    if f.limited:
        e.label("beyond")
        for k, value in enumerate(values):
            e.scatter(e.i32, value, f.pointers(4 * k), f.inside(4 * k), 1)
        e.line("ret void")
    return f.text("void", name, "".join(f", {e.i32} {value}" for value in values))


def _shuffle(e: Emitter, a: str, b: str, indices: Sequence[int]) -> str:
    listed = ", ".join(f"i32 {k}" for k in indices)
    return e.new(f"shufflevector {e.i32} {a}, {e.i32} {b}, <{len(indices)} x i32> <{listed}>")


def _unzip(e: Emitter, a: str, b: str) -> tuple[str, str]:
    """Return the elements of {a, b} at even and at odd places."""
    return _shuffle(e, a, b, range(0, 2 * STRIP, 2)), _shuffle(e, a, b, range(1, 2 * STRIP, 2))


def _zip(e: Emitter, a: str, b: str) -> tuple[str, str]:
    """Return a and b interleaved: the lower and the upper half."""
    order = [k // 2 + STRIP * (k & 1) for k in range(2 * STRIP)]
    return _shuffle(e, a, b, order[:STRIP]), _shuffle(e, a, b, order[STRIP:])


def _load_interleaved(e: Emitter, pointer: str, count: int) -> Values:
    """Return 1, 2 or 4 dwords of each lane from consecutive memory."""
    rows = [e.new(f"load {e.i32}, ptr {e.at(pointer, 4 * STRIP * k)}, align 1") for k in range(count)]
    if count == 1:
        return rows
    if count == 2:
        return list(_unzip(e, *rows))
    low, high = _unzip(e, rows[0], rows[1]), _unzip(e, rows[2], rows[3])
    even, odd = _unzip(e, low[0], high[0]), _unzip(e, low[1], high[1])
    return [even[0], odd[0], even[1], odd[1]]


def _load_rows(f: _Function) -> Values:
    """Return 4 dwords of each lane, from anywhere: a load for each lane, then a transposition.

    That is faster than gathers, which load dword by dword.
    """
    e, s = f.e, f.s
    rows = []
    for lane in range(STRIP):
        offset = s.new(f"extractelement {f.vector} %offsets, i32 {lane}")
        if f.kind == "i64":
            pointer = s.cast("inttoptr", offset, "i64", "ptr")
        else:
            pointer = s.new(f"getelementptr i8, ptr %base, i32 {offset}")
        rows.append(s.new(f"load <4 x i32>, ptr {pointer}, align 1"))
    quads = []
    for j in range(4):  # quad j has the rows j, 4 + j, 8 + j and 12 + j
        low, high = (_concatenated(e, rows[k + j], rows[k + 4 + j], 4) for k in (0, 8))
        quads.append(_concatenated(e, low, high, 8))
    first, second = (_unpack(e, quads[k], quads[k + 1], 1) for k in (0, 2))
    return [part for a, b in zip(first, second, strict=True) for part in _unpack(e, a, b, 2)]


def _concatenated(e: Emitter, a: str, b: str, width: int) -> str:
    listed = ", ".join(f"i32 {k}" for k in range(2 * width))
    kind = f"<{width} x i32>"
    return e.new(f"shufflevector {kind} {a}, {kind} {b}, <{2 * width} x i32> <{listed}>")


def _unpack(e: Emitter, a: str, b: str, unit: int) -> tuple[str, str]:
    """Return, of each 4 elements, the lower ones of a and b in turn, ``unit`` at a time; the upper ones."""
    low = [
        quad + half + k
        for quad in range(0, STRIP, 4)
        for part in range(0, 2, unit)
        for half in (0, STRIP)
        for k in range(part, part + unit)
    ]
    return _shuffle(e, a, b, low), _shuffle(e, a, b, [k + 2 for k in low])


def _store_interleaved(e: Emitter, pointer: str, values: Sequence[str]) -> None:
    if len(values) == 1:
        rows = list(values)
    elif len(values) == 2:
        rows = list(_zip(e, *values))
    else:
        low, high = _zip(e, values[0], values[2]), _zip(e, values[1], values[3])
        rows = [*_zip(e, low[0], high[0]), *_zip(e, low[1], high[1])]
    for k, row in enumerate(rows):
        e.line(f"store {e.i32} {row}, ptr {e.at(pointer, 4 * STRIP * k)}, align 1")
