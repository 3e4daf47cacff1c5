"""What all shader ISAs share: vectors of lanes as LLVM IR text, the work-group scheduler, and checked memory.

A *strip* is a vector of ``lanes`` threads. The translator of an ISA writes one function, ``strip``, that
runs a strip until all its threads end or wait at a barrier; :func:`module` adds the scheduler ``run`` that
walks work-groups and strips, and the slow paths. No host address is baked in: everything is reached
through a context, a block of u64 fields (:data:`CONTEXT`) that the executor fills for each host thread.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Sequence

CONTEXT_FIELDS = (
    "ranges",  # table of {start, end, host - gpu, writable}, u64 each, sorted by start
    "range_count",
    "constants",  # constant file, u32
    "state",  # strip states, ``state_stride`` bytes apart
    "state_stride",  # 0 if strips run one after the other
    "resumes",  # per strip: the block to resume at, u32; 0 at the start, -1 when ended
    "ids",  # per strip: local id x, y, z as vectors of u32
    "masks",  # per strip: the lanes that exist, MASK_BYTES each
    "strips",  # strips per work-group
    "shared",  # local memory of the work-group
    "shared_bytes",
    "private",  # private memory: per strip, dword d of lane l at (d * lanes + l) * 4
    "private_bytes",  # per thread
    "private_stride",  # bytes between strips, 0 if strips run one after the other
    "private_size",  # bytes of private memory of a strip
    "sites",  # per memory site: {start, length usable as first byte, host - gpu}
    "textures",  # image records, see images.RECORD
    "uavs",
    "counter",  # shared by all host threads: the next group to run
    "chunk",  # groups taken at a time
    "group_count",
    "groups_x",
    "groups_y",
    "group_x",  # the running group, for reports and for the id registers
    "group_y",
    "group_z",
    "local_x",
    "local_y",
    "local_z",
    "offset_x",  # global offset in threads
    "offset_y",
    "offset_z",
    "cancel",  # address of a u32 that the watchdog sets
    "zeros",  # address of 64 zero bytes, what a fetch outside an image reads
    "ubos",  # uniform buffers: {GPU address, bytes}, u64 each
    "preamble",  # non-zero once a wave has run the program's preamble
    "poison_shared",  # non-zero: fill local memory before each group
    "fault_kind",
    "fault_pc",
    "fault_lane",
    "fault_address",
    "fault_strip",
    "code",  # GPU address of the first byte of code
    "clock",  # address of a u64: ticks of the shader clock, advanced by each reading of it
    "executed",  # instructions that strips have run, if the translation counts them
)
CONTEXT = {name: 8 * i for i, name in enumerate(CONTEXT_FIELDS)}

DONE, BARRIER, FAULT = 0, 1, 2  # what ``strip`` and ``run`` return
FAULT_MEMORY_READ, FAULT_MEMORY_WRITE, FAULT_SHARED, FAULT_PRIVATE = 1, 2, 3, 4
FAULT_BARRIER, FAULT_HANG, FAULT_IMAGE, FAULT_ALIGNMENT, FAULT_RELATIVE, FAULT_CALL = 5, 6, 7, 8, 9, 10
FAULT_ILLEGAL, FAULT_JUMP, FAULT_TRAP = 11, 12, 13

MASK_BYTES = 16
STATE_MASK, STATE_REGISTERS = 0, 64
POISON = 0x7FFADEAD  # a NaN as f32; both halves are unlikely indices
POISON_BYTE = -83  # 0xAD, in local and private memory
NO_BLOCK = 0x7FFFFFFF
SITE_BYTES = 24


def f32(value: float) -> str:
    """Return an LLVM ``float`` constant: the double whose value is exactly the f32 nearest to ``value``."""
    (nearest,) = struct.unpack("<f", struct.pack("<f", value))
    (bits,) = struct.unpack("<Q", struct.pack("<d", nearest))
    return f"0x{bits:016X}"


class Emitter:
    """Writes the instructions of one function as text. Values are SSA names; vectors have ``lanes`` elements.

    With ``parent`` it is a second shape writing into the same function; ``lanes=1`` means scalars, for
    values that all lanes share.
    """

    def __init__(self, lanes: int, parent: Emitter | None = None) -> None:
        self.lanes = lanes
        self.lines: list[str] = parent.lines if parent else []
        self.declarations: dict[str, str] = parent.declarations if parent else {}
        self.helpers: set[str] = parent.helpers if parent else set()
        self._names: Iterator[int] = parent._names if parent else itertools.count()
        kinds = ("i32", "i16", "i64", "i8", "float", "half", "i1", "ptr")
        types = kinds if lanes == 1 else tuple(f"<{lanes} x {kind}>" for kind in kinds)
        self.i32, self.i16, self.i64, self.i8, self.f32, self.f16, self.mask, self.ptrs = types
        self.bits = f"i{lanes}"

    # --- text ---

    def line(self, text: str) -> None:
        self.lines.append(text)

    def new(self, text: str) -> str:
        """Emit ``%name = text`` and return the name."""
        name = f"%v{next(self._names)}"
        self.lines.append(f"{name} = {text}")
        return name

    def block(self, hint: str) -> str:
        """Return a new label."""
        return f"{hint}{next(self._names)}"

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def call(self, result: str, name: str, *arguments: tuple[str, str]) -> str:
        """Call a declared intrinsic and return the result."""
        types = ", ".join(t for t, _ in arguments)
        self.declarations[name] = f"declare {result} @{name}({types})"
        return self.new(f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in arguments)})")

    def call_void(self, name: str, *arguments: tuple[str, str]) -> None:
        types = ", ".join(t for t, _ in arguments)
        self.declarations[name] = f"declare void @{name}({types})"
        self.line(f"call void @{name}({', '.join(f'{t} {v}' for t, v in arguments)})")

    def suffix(self, vector: str) -> str:
        """Return the intrinsic suffix of a vector type, e.g. ``v16f32``."""
        element = vector.split(" x ")[1][:-1] if self.lanes > 1 else vector
        name = {"float": "f32", "half": "f16", "double": "f64", "ptr": "p0"}.get(element, element)
        return f"v{self.lanes}{name}" if self.lanes > 1 else name

    # --- vectors ---

    def splat(self, element: str, scalar: str) -> str:
        """Return a vector with ``scalar`` (a value or literal of type ``element``) in every lane."""
        if self.lanes == 1:
            return scalar
        if not scalar.startswith("%"):
            return f"splat ({element} {scalar})"
        vector = f"<{self.lanes} x {element}>"
        one = self.new(f"insertelement {vector} poison, {element} {scalar}, i64 0")
        return self.new(
            f"shufflevector {vector} {one}, {vector} poison, <{self.lanes} x i32> zeroinitializer"
        )

    def cast(self, how: str, value: str, source: str, target: str) -> str:
        return self.new(f"{how} {source} {value} to {target}")

    def op(self, name: str, vector: str, a: str, b: str) -> str:
        return self.new(f"{name} {vector} {a}, {b}")

    def select(self, mask: str, vector: str, a: str, b: str) -> str:
        return self.new(f"select {self.mask} {mask}, {vector} {a}, {vector} {b}")

    def unary(self, name: str, vector: str, a: str) -> str:
        return self.call(vector, f"llvm.{name}.{self.suffix(vector)}", (vector, a))

    def binary(self, name: str, vector: str, a: str, b: str) -> str:
        return self.call(vector, f"llvm.{name}.{self.suffix(vector)}", (vector, a), (vector, b))

    def fma(self, a: str, b: str, c: str) -> str:
        return self.call(self.f32, f"llvm.fma.{self.suffix(self.f32)}", *((self.f32, x) for x in (a, b, c)))

    def mask_bits(self, mask: str) -> str:
        return self.cast("bitcast", mask, self.mask, self.bits)

    def from_bits(self, bits: str) -> str:
        """Return the mask whose lane k is bit k of ``bits``."""
        return self.cast("bitcast", bits, self.bits, self.mask)

    def first_lane(self, bits: str) -> str:
        """Return the number of the lowest set bit of ``bits``, as ``self.bits``; lane 0 if there is none."""
        lane = self.call(self.bits, f"llvm.cttz.{self.bits}", (self.bits, bits), ("i1", "false"))
        return self.new(f"and {self.bits} {lane}, {self.lanes - 1}")

    def extract(self, vector: str, value: str, lane: str) -> str:
        """Return the element of ``value`` at ``lane`` (of type ``self.bits``, below the number of lanes)."""
        return self.new(f"extractelement {vector} {value}, {self.bits} {lane}")

    def any(self, mask: str) -> str:
        """Return an ``i1``: some lane of ``mask`` is set."""
        if self.lanes == 1:
            return mask
        return self.new(f"icmp ne {self.bits} {self.mask_bits(mask)}, 0")

    def lane_numbers(self, element: str = "i32") -> str:
        return "<" + ", ".join(f"{element} {i}" for i in range(self.lanes)) + ">"

    # --- context and memory ---

    def field(self, name: str, kind: str = "i64") -> str:
        """Load a context field."""
        return self.new(f"load {kind}, ptr {self.field_address(name)}, align 8")

    def field_address(self, name: str) -> str:
        return self.new(f"getelementptr i8, ptr %ctx, i64 {CONTEXT[name]}")

    def at(self, base: str, offset: int | str) -> str:
        """Return ``base`` + ``offset`` bytes."""
        return base if offset == 0 else self.new(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load_masked(self, vector: str, pointer: str, mask: str) -> str:
        name = f"llvm.masked.load.{self.suffix(vector)}.p0"
        return self.call(
            vector, name, ("ptr align 4", pointer), (self.mask, mask), (vector, "zeroinitializer")
        )

    def store_masked(self, vector: str, value: str, pointer: str, mask: str) -> None:
        name = f"llvm.masked.store.{self.suffix(vector)}.p0"
        self.call_void(name, (vector, value), ("ptr align 4", pointer), (self.mask, mask))

    def gather(self, vector: str, pointers: str, mask: str, align: int) -> str:
        name = f"llvm.masked.gather.{self.suffix(vector)}.{self.suffix(self.ptrs)}"
        parts = ((f"{self.ptrs} align {align}", pointers), (self.mask, mask), (vector, "zeroinitializer"))
        return self.call(vector, name, *parts)

    def scatter(self, vector: str, value: str, pointers: str, mask: str, align: int) -> None:
        name = f"llvm.masked.scatter.{self.suffix(vector)}.{self.suffix(self.ptrs)}"
        self.call_void(name, (vector, value), (f"{self.ptrs} align {align}", pointers), (self.mask, mask))

    def fault_if(self, bad: str, kind: int, pc: int, address: str | Callable[[], str]) -> None:
        """Leave ``strip`` with a fault where ``bad`` has a lane.

        ``address`` is an ``<n x i64>``, or emits it where it is needed.
        """
        hit, go = self.block("fault"), self.block("ok")
        self.line(f"br i1 {self.any(bad)}, label %{hit}, label %{go}, !prof !0")
        self.label(hit)
        self.report(kind, pc, self.mask_bits(bad), address if isinstance(address, str) else address())
        self.line(f"ret i32 {FAULT}")
        self.label(go)

    def report(self, kind: int, pc: int, bits: str, address: str) -> None:
        """Store a fault record: the first lane of ``bits`` and its address."""
        self.helpers.add("report")
        self.line(f"store {self.i64} {address}, ptr %scratch, align 64")
        self.line(f"call void @report(ptr %ctx, i64 {kind}, i64 {pc}, {self.bits} {bits}, ptr %scratch)")

    def translate(self, address: str, mask: str, length: int, write: bool, pc: int, site: int) -> str:
        """Return host addresses (``<n x i64>``) of GPU addresses; every access is checked.

        The site remembers the range it last touched. The check is one subtraction and one unsigned
        comparison a lane; a miss looks the ranges up, lane by lane if lanes touch several, and leaves with
        a fault if there is none.
        """
        sites = self.field("sites", "ptr")
        record = self.at(sites, site * SITE_BYTES)
        start = self.new(f"load i64, ptr {record}, align 8")
        size = self.new(f"load i64, ptr {self.at(record, 8)}, align 8")
        delta = self.new(f"load i64, ptr {self.at(record, 16)}, align 8")
        from_start = self.op("sub", self.i64, address, self.splat("i64", start))
        outside = self.new(f"icmp uge {self.i64} {from_start}, {self.splat('i64', size)}")
        bad = self.op("and", self.mask, outside, mask)
        fast = self.op("add", self.i64, address, self.splat("i64", delta))
        miss, again, lost, go = (self.block(h) for h in ("miss", "again", "lost", "hit"))
        before = self.block("site")
        self.line(f"br label %{before}")
        self.label(before)
        self.line(f"br i1 {self.any(bad)}, label %{miss}, label %{go}, !prof !0")
        self.label(miss)
        self.line(f"store {self.i64} {address}, ptr %scratch, align 64")
        arguments = f"ptr %ctx, ptr {record}, ptr %scratch, {self.bits} {self.mask_bits(mask)}, i64 {length}"
        self.helpers.add("lookup")
        ok = self.new(f"call i1 @lookup({arguments}, i64 {int(write)}, i64 {pc})")
        self.line(f"br i1 {ok}, label %{again}, label %{lost}")
        self.label(lost)
        self.line(f"ret i32 {FAULT}")
        self.label(again)
        slow = self.new(f"load {self.i64}, ptr %scratch, align 64")
        self.line(f"br label %{go}")
        self.label(go)
        return self.new(f"phi {self.i64} [ {fast}, %{before} ], [ {slow}, %{again} ]")


def _lane_as_bits(lanes: int) -> str:
    """Return the instruction that makes the i64 ``%lane`` an integer of ``lanes`` bits."""
    if lanes == 64:
        return "add i64 %lane, 0"
    return f"{'trunc' if lanes < 64 else 'zext'} i64 %lane to i{lanes}"


def report_function(lanes: int) -> str:
    """Return IR of ``report``: store a fault record of the first lane of %mask."""
    bits = f"i{lanes}"
    wide = "add i64 %first, 0" if lanes == 64 else f"{'zext' if lanes < 64 else 'trunc'} {bits} %first to i64"
    record = {"fault_kind": "%kind", "fault_pc": "%pc", "fault_lane": "%lane", "fault_address": "%a"}
    return f"""
define internal void @report(ptr %ctx, i64 %kind, i64 %pc, {bits} %mask, ptr %addresses) #1 {{
entry:
  %zeros = call {bits} @llvm.cttz.{bits}({bits} %mask, i1 false)
  %first = and {bits} %zeros, {lanes - 1}
  %lane = {wide}
  %ap = getelementptr i64, ptr %addresses, i64 %lane
  %a = load i64, ptr %ap, align 8
{_stores(record)}
  ret void
}}
"""


def _stores(record: dict[str, str]) -> str:
    """Return IR that stores values to fields of the context."""
    return "\n".join(
        f"  %fp{i} = getelementptr i8, ptr %ctx, i64 {CONTEXT[name]}\n"
        f"  store i64 {value}, ptr %fp{i}, align 8"
        for i, (name, value) in enumerate(record.items())
    )


NEAR_BITS = 31  # a window of ``lookup_near`` is a part of an aligned block of 2^31 bytes


def lookup_function(lanes: int, *, near: bool = False) -> str:
    """Return IR of ``lookup``: translate %addresses in place, or fill the fault record and return false.

    The site then holds the range of the last lane. With ``near`` the function is called ``lookup_near``, and
    the site holds only the part of the range in which the high halves of addresses are the same.
    """
    bits = f"i{lanes}"
    window = """
  %size1 = add i64 %usable, 1
  store i64 %start, ptr %site, align 8"""
    if near:
        window = f"""
  %limit = sub i64 %end, %length
  %limit1 = add i64 %limit, 1
  %block = and i64 %a, {-(1 << NEAR_BITS)}
  %next_block = add i64 %block, {1 << NEAR_BITS}
  %low_end = call i64 @llvm.umax.i64(i64 %start, i64 %block)
  %high_end = call i64 @llvm.umin.i64(i64 %limit1, i64 %next_block)
  %size1 = sub i64 %high_end, %low_end
  store i64 %low_end, ptr %site, align 8"""
    parameters = f"ptr %ctx, ptr %site, ptr %addresses, {bits} %mask, i64 %length, i64 %write, i64 %pc"
    record = {"fault_kind": "%kind", "fault_pc": "%pc", "fault_lane": "%lane", "fault_address": "%a"}
    fault = _stores(record)
    return f"""
define internal i1 @{"lookup_near" if near else "lookup"}({parameters}) #1 {{
entry:
  %tp = getelementptr i8, ptr %ctx, i64 {CONTEXT["ranges"]}
  %table = load ptr, ptr %tp, align 8
  %np = getelementptr i8, ptr %ctx, i64 {CONTEXT["range_count"]}
  %n = load i64, ptr %np, align 8
  br label %lanes
lanes:
  %lane = phi i64 [ 0, %entry ], [ %lane2, %next ]
  %more = icmp ult i64 %lane, {lanes}
  br i1 %more, label %test, label %good
test:
  %lb = {_lane_as_bits(lanes)}
  %sh = lshr {bits} %mask, %lb
  %bit = trunc {bits} %sh to i1
  %ap = getelementptr i64, ptr %addresses, i64 %lane
  br i1 %bit, label %search, label %next
search:
  %a = load i64, ptr %ap, align 8
  br label %walk
walk:
  %low = phi i64 [ 0, %search ], [ %low2, %step ]
  %high = phi i64 [ %n, %search ], [ %high2, %step ]
  %open = icmp ult i64 %low, %high
  br i1 %open, label %step, label %found
step:
  %sum = add i64 %low, %high
  %mid = lshr i64 %sum, 1
  %mp = getelementptr [4 x i64], ptr %table, i64 %mid
  %ms = load i64, ptr %mp, align 8
  %le = icmp ule i64 %ms, %a
  %mid1 = add i64 %mid, 1
  %low2 = select i1 %le, i64 %mid1, i64 %low
  %high2 = select i1 %le, i64 %high, i64 %mid
  br label %walk
found:
  %none = icmp eq i64 %low, 0
  br i1 %none, label %fault, label %check
check:
  %index = sub i64 %low, 1
  %rp = getelementptr [4 x i64], ptr %table, i64 %index
  %start = load i64, ptr %rp, align 8
  %ep = getelementptr i8, ptr %rp, i64 8
  %end = load i64, ptr %ep, align 8
  %dp = getelementptr i8, ptr %rp, i64 16
  %delta = load i64, ptr %dp, align 8
  %wp = getelementptr i8, ptr %rp, i64 24
  %writable = load i64, ptr %wp, align 8
  %size = sub i64 %end, %start
  %off = sub i64 %a, %start
  %begins = icmp ult i64 %off, %size
  %room = sub i64 %size, %off
  %fits = icmp ule i64 %length, %room
  %inside = and i1 %begins, %fits
  %allowed = icmp ule i64 %write, %writable
  %ok = and i1 %inside, %allowed
  br i1 %ok, label %remember, label %fault
remember:
  %usable = sub i64 %size, %length{window}
  %s1 = getelementptr i8, ptr %site, i64 8
  store i64 %size1, ptr %s1, align 8
  %s2 = getelementptr i8, ptr %site, i64 16
  store i64 %delta, ptr %s2, align 8
  %h = add i64 %a, %delta
  store i64 %h, ptr %ap, align 8
  br label %next
next:
  %lane2 = add i64 %lane, 1
  br label %lanes
fault:
  %kind = select i1 %is_write, i64 {FAULT_MEMORY_WRITE}, i64 {FAULT_MEMORY_READ}
{fault}
  ret i1 false
good:
  ret i1 true
}}
""".replace("entry:\n", "entry:\n  %is_write = icmp ne i64 %write, 0\n")


def lane_loop(name: str, lanes: int, arguments: str, body: str) -> str:
    """Return IR of a function that runs ``body`` for each set lane of %mask, in ``%lane`` (i64)."""
    bits = f"i{lanes}"
    return f"""
define internal void @{name}({arguments}, {bits} %mask) #1 {{
entry:
  br label %lanes
lanes:
  %lane = phi i64 [ 0, %entry ], [ %lane2, %next ]
  %more = icmp ult i64 %lane, {lanes}
  br i1 %more, label %test, label %done
test:
  %lb = {_lane_as_bits(lanes)}
  %sh = lshr {bits} %mask, %lb
  %bit = trunc {bits} %sh to i1
  br i1 %bit, label %body, label %next
body:
{body}
  br label %next
next:
  %lane2 = add i64 %lane, 1
  br label %lanes
done:
  ret void
}}
"""


def atomic_function(operation: str) -> str:
    """Return the body of a 32-bit atomic: %results[lane] = old value at %addresses[lane]."""
    head = """  %ap = getelementptr i64, ptr %addresses, i64 %lane
  %a = load ptr, ptr %ap, align 8
  %vp = getelementptr i32, ptr %values, i64 %lane
  %v = load i32, ptr %vp, align 4
  %rp = getelementptr i32, ptr %results, i64 %lane
"""
    if operation == "cmpxchg":
        return (
            head
            + """  %cp = getelementptr i32, ptr %compares, i64 %lane
  %c = load i32, ptr %cp, align 4
  %pair = cmpxchg ptr %a, i32 %c, i32 %v seq_cst seq_cst, align 4
  %old = extractvalue { i32, i1 } %pair, 0
  store i32 %old, ptr %rp, align 4"""
        )
    return (
        head
        + f"""  %old = atomicrmw {operation} ptr %a, i32 %v seq_cst, align 4
  store i32 %old, ptr %rp, align 4"""
    )


def run_function(lanes: int) -> str:
    """Return IR of ``run``: take groups from the shared counter, run their strips from barrier to barrier."""

    def field(name: str, kind: str = "i64") -> str:
        return (
            f"  %{name}_p = getelementptr i8, ptr %ctx, i64 {CONTEXT[name]}\n"
            f"  %{name} = load {kind}, ptr %{name}_p, align 8\n"
        )

    names = (
        "strips",
        "state_stride",
        "chunk",
        "group_count",
        "groups_x",
        "groups_y",
        "shared_bytes",
        "poison_shared",
    )
    pointers = ("state", "resumes", "counter", "shared", "cancel")
    loads = "".join(field(n) for n in names) + "".join(field(n, "ptr") for n in pointers)
    places = {"x": "group_x", "y": "group_y", "z": "group_z", "kind": "fault_kind", "pc": "fault_pc"}
    ids = "".join(f"  %p_{p} = getelementptr i8, ptr %ctx, i64 {CONTEXT[f]}\n" for p, f in places.items())
    return f"""
define i32 @run(ptr %ctx) #0 {{
entry:
{loads}{ids}  br label %take
take:
  %first = atomicrmw add ptr %counter, i64 %chunk seq_cst, align 8
  %limit0 = add i64 %first, %chunk
  %limit = call i64 @llvm.umin.i64(i64 %limit0, i64 %group_count)
  br label %groups
groups:
  %g = phi i64 [ %first, %take ], [ %g2, %group_done ]
  %in = icmp ult i64 %g, %limit
  br i1 %in, label %poll, label %taken
poll:
  %flag = load volatile i32, ptr %cancel, align 4
  %stop = icmp ne i32 %flag, 0
  br i1 %stop, label %stopped, label %group, !prof !0
stopped:
  store i64 {FAULT_HANG}, ptr %p_kind, align 8
  store i64 -1, ptr %p_pc, align 8
  ret i32 {FAULT}
taken:
  %rest = icmp ult i64 %limit0, %group_count
  br i1 %rest, label %take, label %finished
finished:
  ret i32 {DONE}
group:
  %gx = urem i64 %g, %groups_x
  %gyz = udiv i64 %g, %groups_x
  %gy = urem i64 %gyz, %groups_y
  %gz = udiv i64 %gyz, %groups_y
  store i64 %gx, ptr %p_x, align 8
  store i64 %gy, ptr %p_y, align 8
  store i64 %gz, ptr %p_z, align 8
  %fill = icmp ne i64 %poison_shared, 0
  br i1 %fill, label %poison, label %reset
poison:
  call void @llvm.memset.p0.i64(ptr %shared, i8 {POISON_BYTE}, i64 %shared_bytes, i1 false)
  br label %reset
reset:
  %r = phi i64 [ 0, %group ], [ 0, %poison ], [ %r2, %reset ]
  %rp = getelementptr i32, ptr %resumes, i64 %r
  store i32 0, ptr %rp, align 4
  %r2 = add i64 %r, 1
  %rm = icmp ult i64 %r2, %strips
  br i1 %rm, label %reset, label %round
round:
  br label %strip_loop
strip_loop:
  %s = phi i64 [ 0, %round ], [ %s2, %strip_next ]
  %waiting = phi i1 [ false, %round ], [ %waiting2, %strip_next ]
  %so = mul i64 %s, %state_stride
  %sp = getelementptr i8, ptr %state, i64 %so
  %qp = getelementptr i32, ptr %resumes, i64 %s
  %resume = load i32, ptr %qp, align 4
  %ended = icmp eq i32 %resume, -1
  br i1 %ended, label %strip_next, label %strip_run
strip_run:
  %code = call i32 @strip(ptr %ctx, ptr %sp, i64 %s)
  switch i32 %code, label %failed [ i32 {DONE}, label %strip_end
                                    i32 {BARRIER}, label %strip_wait ]
strip_end:
  store i32 -1, ptr %qp, align 4
  br label %strip_next
strip_wait:
  br label %strip_next
failed:
  %fsp = getelementptr i8, ptr %ctx, i64 {CONTEXT["fault_strip"]}
  store i64 %s, ptr %fsp, align 8
  ret i32 {FAULT}
strip_next:
  %waiting2 = phi i1 [ %waiting, %strip_loop ], [ %waiting, %strip_end ], [ true, %strip_wait ]
  %s2 = add i64 %s, 1
  %sm = icmp ult i64 %s2, %strips
  br i1 %sm, label %strip_loop, label %round_end
round_end:
  br i1 %waiting2, label %round, label %group_done
group_done:
  %g2 = add i64 %g, 1
  br label %groups
}}
"""


def module(emitter: Emitter, strip_allocas: Sequence[str], helper_texts: Sequence[str]) -> str:
    """Return the whole module: ``strip`` with the emitter's body, ``run``, helpers and declarations."""
    n = emitter.lanes
    allocas = "\n".join(strip_allocas)
    body = "\n".join(emitter.lines)
    declarations = dict(emitter.declarations)
    for name in ("llvm.umin.i64", "llvm.umax.i64"):
        declarations[name] = f"declare i64 @{name}(i64, i64)"
    declarations[f"llvm.cttz.i{n}"] = f"declare i{n} @llvm.cttz.i{n}(i{n}, i1)"
    declarations["llvm.memset.p0.i64"] = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
    width = min(512, 32 * n)
    vector = f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"'
    parts = [
        f"define internal i32 @strip(ptr %ctx, ptr %state, i64 %strip) #0 {{\nstart:\n{allocas}\n{body}\n}}",
        run_function(n),
        *helper_texts,
        *declarations.values(),
        f"attributes #0 = {{ nounwind {vector} }}",
        f"attributes #1 = {{ nounwind noinline cold {vector} }}",
        f"attributes #2 = {{ nounwind noinline {vector} }}",
        '!0 = !{!"branch_weights", i32 1, i32 1000000}',
    ]
    for name, near in (("lookup", False), ("lookup_near", True)):
        if name in emitter.helpers:
            parts.insert(2, lookup_function(n, near=near))
    if "report" in emitter.helpers:
        parts.insert(2, report_function(n))
    return "\n".join(parts)
