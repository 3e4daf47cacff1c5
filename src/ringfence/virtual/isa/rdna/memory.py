"""Semantics of scalar, global, flat and buffer memory instructions."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ringfence.hardware.amd.rdna import Instruction, Operand
from ringfence.virtual.isa.rdna import places
from ringfence.virtual.isa.rdna.atomics import Atomic, atomic, run_atomic
from ringfence.virtual.isa.rdna.effects import NULL
from ringfence.virtual.isa.rdna.facts import register_of
from ringfence.virtual.isa.rdna.places import Place, Values
from ringfence.virtual.isa.rdna.scratch import by_bytes, check, private_host
from ringfence.virtual.isa.rdna.translate import APERTURES, Semantics, Translator
from ringfence.virtual.isa.simt import FAULT, FAULT_PRIVATE, FAULT_SHARED, SITE_BYTES

SIGN_BIT = -(1 << 31)


@dataclass(frozen=True, slots=True)
class Access:
    """What a load or store moves: ``count`` elements of ``size`` bytes.

    ``half`` of a register is "", "lo" or "hi".
    """

    size: int
    count: int
    signed: bool = False
    half: str = ""


_NAME = re.compile(r"(?:load|store)_(d16_hi_|d16_)?([uib])(\d+)(_d16_hi|_d16)?$")


def access_of(name: str) -> Access:
    """Return what ``load_d16_hi_u8`` or ``store_b64`` moves (mnemonics without the address space)."""
    match = _NAME.search(name)
    assert match is not None, name
    bits = int(match[3])
    marked = match[1] or match[4]
    half = "" if not marked else ("hi" if "hi" in marked else "lo")
    return Access(min(bits, 32) // 8, max(1, bits // 32), match[2] == "i", half)


def put_loaded(t: Translator, destination: Operand, values: Sequence[str], access: Access) -> None:
    """Write loaded elements to registers."""
    v = t.v
    if access.signed and access.size < 4:
        narrow = v.i8 if access.size == 1 else v.i16
        values = [v.cast("sext", v.cast("trunc", value, v.i32, narrow), narrow, v.i32) for value in values]
    for k, value in enumerate(values):
        if access.half:
            t.set_vgpr16(destination.num, access.half == "hi", v.cast("trunc", value, v.i32, v.i16))
        else:
            t.set_vgpr(destination.num + k, value)


def stored_values(t: Translator, source: Operand, access: Access) -> Values:
    """Return the registers that a store writes, as i32 lanes."""
    values = [t.vgpr(source.num + k) for k in range(access.count)]
    if access.half == "hi":
        values = [t.v.op("lshr", t.v.i32, value, t.v.splat("i32", "16")) for value in values]
    return values


# --- scalar loads ---


def scalar_host(t: Translator, i: Instruction, address: str, length: int) -> str:
    """Return the host address (i64) of ``length`` bytes at a GPU address, checked."""
    s = t.s
    if t.unit.host:
        return address
    record = s.at(s.field("sites", "ptr"), t.site() * SITE_BYTES)
    start, size, delta = (s.new(f"load i64, ptr {s.at(record, 8 * k)}, align 8") for k in range(3))
    outside = s.new(f"icmp uge i64 {s.op('sub', 'i64', address, start)}, {size}")
    fast = s.op("add", "i64", address, delta)
    before, miss, lost, again, go = (s.block(n) for n in ("site", "miss", "lost", "again", "hit"))
    s.line(f"br label %{before}")
    s.label(before)
    s.line(f"br i1 {outside}, label %{miss}, label %{go}, !prof !0")
    s.label(miss)
    s.line(f"store i64 {address}, ptr %scratch, align 64")
    ok = _look_up(t, record, "1", length, False, i.pc)
    s.line(f"br i1 {ok}, label %{again}, label %{lost}")
    s.label(lost)
    s.line(f"ret i32 {FAULT}")
    s.label(again)
    slow = s.new("load i64, ptr %scratch, align 64")
    s.line(f"br label %{go}")
    s.label(go)
    return s.new(f"phi i64 [ {fast}, %{before} ], [ {slow}, %{again} ]")


def _look_up(t: Translator, record: str, bits: str, length: int, write: bool, pc: int) -> str:
    v = t.v
    v.helpers.add("lookup")
    arguments = (
        f"ptr %ctx, ptr {record}, ptr %scratch, {v.bits} {bits}, i64 {length}, i64 {int(write)}, i64 {pc}"
    )
    return v.new(f"call i1 @lookup({arguments})")


def load_scalar(t: Translator, i: Instruction) -> None:
    """s_load_*: dwords at (base + offsets) & ~3 to consecutive SGPRs."""
    s, count = t.s, i.dsts[0].size
    address = s.op("add", "i64", t.scalar_source(i.srcs[0]), str(int(i.fields["offset"])))
    if i.srcs[1].kind != "null":
        address = s.op("add", "i64", address, s.cast("zext", t.scalar_source(i.srcs[1]), "i32", "i64"))
    address = s.op("and", "i64", address, "-4")
    pointer = s.cast("inttoptr", scalar_host(t, i, address, 4 * count), "i64", "ptr")
    _put_scalars(t, i, [s.new(f"load i32, ptr {s.at(pointer, 4 * k)}, align 4") for k in range(count)])


def _put_scalars(t: Translator, i: Instruction, values: Sequence[str]) -> None:
    register = register_of(i.dsts[0])
    if register is None or register == NULL:
        return
    for k, value in enumerate(values):
        t.set_scalar(register + k, value)


def load_scalar_buffer(t: Translator, i: Instruction) -> None:
    """s_buffer_load_*: like s_load through a descriptor; dwords beyond its end read 0."""
    s, count = t.s, i.dsts[0].size
    first = register_of(i.srcs[0])
    assert first is not None
    words = [t.scalar(first + k) for k in range(4)]
    base = _buffer_base(t, words)
    stride = s.op("and", "i32", s.op("lshr", "i32", words[1], "16"), "16383")
    unit = s.cast("zext", s.binary("umax", "i32", stride, "1"), "i32", "i64")
    limit = s.op("mul", "i64", s.cast("zext", words[2], "i32", "i64"), unit)
    offset = str(int(i.fields["offset"]))
    if i.srcs[1].kind != "null":
        offset = s.op("add", "i64", s.cast("zext", t.scalar_source(i.srcs[1]), "i32", "i64"), offset)
    offset = s.op("and", "i64", offset, "-4") if offset.startswith("%") else str(int(offset) & -4)
    values = []
    for k in range(count):
        at = s.op("add", "i64", offset, str(4 * k))
        last = s.op("add", "i64", at, "4")
        inside = s.new(f"icmp ule i64 {last}, {limit}")
        values.append(_scalar_if(t, i, inside, s.op("add", "i64", base, at)))
    _put_scalars(t, i, values)


def _scalar_if(t: Translator, i: Instruction, inside: str, address: str) -> str:
    """Return the dword at an address if the i1 ``inside`` holds, else 0."""
    s = t.s
    start, fetch, done, join = (s.block(n) for n in ("range", "fetch", "fetched", "join"))
    s.line(f"br label %{start}")
    s.label(start)
    s.line(f"br i1 {inside}, label %{fetch}, label %{join}")
    s.label(fetch)
    with t.aside():
        pointer = s.cast("inttoptr", scalar_host(t, i, address, 4), "i64", "ptr")
        value = s.new(f"load i32, ptr {pointer}, align 4")
    s.line(f"br label %{done}")
    s.label(done)
    s.line(f"br label %{join}")
    s.label(join)
    return s.new(f"phi i32 [ {value}, %{done} ], [ 0, %{start} ]")


# --- global ---


def _scalar_address(t: Translator, i: Instruction) -> tuple[str, str] | None:
    """Return the scalar base (i64) and lane offsets (i32) of a global access that has a scalar address."""
    saddr = i.source("saddr")
    if saddr is None or saddr.kind == "off":
        return None
    base = t.s.op("add", "i64", t.scalar_source(saddr), str(int(i.fields["offset"])))
    address = i.source("addr")
    assert address is not None
    return base, t.vgpr(address.num)


def vector_address(t: Translator, i: Instruction) -> str:
    """Return the 64-bit GPU addresses of a global or flat access."""
    v = t.v
    near = _scalar_address(t, i)
    if near is not None:
        base, offset = near
        return v.op("add", v.i64, v.splat("i64", base), v.cast("zext", offset, v.i32, v.i64))
    address = i.source("addr")
    assert address is not None
    lanes, offset_ = t.vgpr64(address.num), int(i.fields["offset"])
    return v.op("add", v.i64, lanes, v.splat("i64", str(offset_))) if offset_ else lanes


def host_addresses(t: Translator, i: Instruction, address: str, lanes: str, length: int, write: bool) -> str:
    """Return host addresses (i64 lanes) of checked GPU addresses."""
    if t.unit.host:
        return address
    return t.v.translate(address, lanes, length, write, i.pc, t.site())


def _near(
    t: Translator,
    i: Instruction,
    base: str,
    offset: str,
    length: int,
    write: bool,
    fast: Callable[[Place], Values],
    slow: Callable[[str], Values],
) -> Values:
    """Emit an access at a scalar base plus lane offsets: ``fast`` inside one mapping, else ``slow``.

    The site remembers the mapping it last touched. Offsets of 2 GiB and more always take the slow way.
    """
    v, s = t.v, t.s
    bits = t.exec_bits()
    negative = v.op("and", v.i32, offset, v.splat("i32", str(SIGN_BIT)))
    if t.unit.host:
        record, index, pointer = "", offset, s.cast("inttoptr", base, "i64", "ptr")
        outside = v.new(f"icmp slt {v.i32} {offset}, zeroinitializer")
    else:
        record = s.at(s.field("sites", "ptr"), t.site() * SITE_BYTES)
        start, size, delta = (s.new(f"load i64, ptr {s.at(record, 8 * k)}, align 8") for k in range(3))
        relative = s.op("sub", "i64", base, start)
        close = s.new(f"icmp ult i64 {s.op('add', 'i64', relative, str(1 << 31))}, {1 << 32}")
        limit = s.cast("trunc", s.binary("umin", "i64", size, str(1 << 31)), "i64", "i32")
        limit = s.new(f"select i1 {close}, i32 {limit}, i32 0")
        index = v.op("add", v.i32, offset, v.splat("i32", s.cast("trunc", relative, "i64", "i32")))
        tested = v.op("or", v.i32, index, negative)
        outside = v.new(f"icmp uge {v.i32} {tested}, {v.splat('i32', limit)}")
        pointer = s.cast("inttoptr", s.op("add", "i64", start, delta), "i64", "ptr")
    missed = v.any(t.active(outside))

    def miss() -> Values:
        address = v.op("add", v.i64, v.splat("i64", base), v.cast("zext", offset, v.i32, v.i64))
        if t.unit.host:
            return slow(address)
        v.line(f"store {v.i64} {address}, ptr %scratch, align 64")
        found = _look_up(t, record, bits, length, write, i.pc)
        again, lost = v.block("again"), v.block("lost")
        v.line(f"br i1 {found}, label %{again}, label %{lost}")
        v.label(lost)
        v.line(f"ret i32 {FAULT}")
        v.label(again)
        return slow(v.new(f"load {v.i64}, ptr %scratch, align 64"))

    return places.branch(t, missed, miss, lambda: fast(Place(index, pointer)), rare=True)


def load_global(t: Translator, i: Instruction) -> None:
    access = access_of(i.name)
    size, count = access.size, access.count
    near = _scalar_address(t, i)
    if near is None:
        host = host_addresses(t, i, vector_address(t, i), t.exec_mask(), size * count, False)
        values = places.load(t, Place(host), size, count)
    else:
        bits = t.exec_bits()
        values = _near(
            t, i, *near, size * count, False,
            lambda where: places.load(t, where, size, count),
            lambda host: places.load_alone(t, host, bits, size, count),
        )  # fmt: skip
    put_loaded(t, i.dsts[0], values, access)


def store_global(t: Translator, i: Instruction) -> None:
    access, data = access_of(i.name), i.source("data")
    assert data is not None
    size, length = access.size, access.size * access.count
    values = stored_values(t, data, access)
    near = _scalar_address(t, i)
    if near is None:
        host = host_addresses(t, i, vector_address(t, i), t.exec_mask(), length, True)
        places.store(t, Place(host), values, size)
        return
    bits = t.exec_bits()

    def fast(where: Place) -> Values:
        places.store(t, where, values, size)
        return []

    def slow(host: str) -> Values:
        places.store_alone(t, host, bits, values, size)
        return []

    _near(t, i, *near, length, True, fast, slow)


def _lane_addresses(t: Translator, i: Instruction) -> str:
    """Return saddr + offset + 4 * lane."""
    saddr = i.source("saddr")
    base = "0" if saddr is None or saddr.kind == "off" else t.scalar_source(saddr)
    base = t.s.op("add", "i64", base, str(int(i.fields["offset"])))
    steps = "<" + ", ".join(f"i64 {4 * k}" for k in range(t.wave)) + ">"
    return t.v.op("add", t.v.i64, t.v.splat("i64", base), steps)


def load_by_lane(t: Translator, i: Instruction) -> None:
    """global_load_addtid_b32."""
    host = host_addresses(t, i, _lane_addresses(t, i), t.exec_mask(), 4, False)
    t.set_vgpr(i.dsts[0].num, places.load(t, Place(host), 4)[0])


def store_by_lane(t: Translator, i: Instruction) -> None:
    """global_store_addtid_b32."""
    data = i.source("data")
    assert data is not None
    value = t.vgpr(data.num)
    host = host_addresses(t, i, _lane_addresses(t, i), t.exec_mask(), 4, True)
    places.store(t, Place(host), [value], 4)


# --- flat ---


def _flat_masks(t: Translator, address: str) -> tuple[str, str]:
    """Return the active lanes whose address lies in the local and in the private aperture."""
    v = t.v
    high = v.cast("trunc", v.op("lshr", v.i64, address, v.splat("i64", "32")), v.i64, v.i32)
    masks = [v.new(f"icmp eq {v.i32} {high}, {v.splat('i32', str(APERTURES[name]))}")
             for name in ("shared_base", "private_base")]  # fmt: skip
    return t.active(masks[0]), t.active(masks[1])


@dataclass(frozen=True, slots=True)
class _Flat:
    """Where the lanes of a flat access go.

    ``host``: host addresses (i64 lanes) in global or local memory for the lanes of ``bits``; ``private``:
    the lanes that access private memory at the offsets ``low`` (i32 lanes).
    """

    host: str
    bits: str
    private: str
    low: str


def _apertures(t: Translator, i: Instruction, address: str, length: int, write: bool) -> _Flat:
    """Check a flat access; lanes beyond the local memory read 0 and store nothing (strict mode: a fault)."""
    v, s = t.v, t.s
    shared, private = _flat_masks(t, address)
    elsewhere = v.op("xor", v.mask, v.op("or", v.mask, shared, private), v.splat("i1", "true"))
    host = host_addresses(t, i, address, t.active(elsewhere), length, write)
    low = v.cast("trunc", address, v.i64, v.i32)
    wide = v.cast("zext", low, v.i32, v.i64)
    end = v.op("add", v.i64, wide, v.splat("i64", str(length)))
    outside = v.new(f"icmp ugt {v.i64} {end}, {v.splat('i64', s.field('shared_bytes'))}")
    beyond = v.op("and", v.mask, shared, outside)
    if t.unit.strict:
        v.fault_if(beyond, FAULT_SHARED, i.pc, wide)
    check(t, i, low, private, length)
    local = v.op("add", v.i64, wide, v.splat("i64", s.field("shared")))
    others = v.op("xor", v.mask, v.op("or", v.mask, beyond, private), v.splat("i1", "true"))
    return _Flat(v.select(shared, v.i64, local, host), v.mask_bits(t.active(others)), private, low)


def _special(t: Translator, address: str) -> str:
    """Return an i1: some active lane is not in global memory."""
    return t.v.any(t.v.op("or", t.v.mask, *_flat_masks(t, address)))


def load_flat(t: Translator, i: Instruction) -> None:
    access = access_of(i.name)
    size, count = access.size, access.count
    address = vector_address(t, i)

    def anywhere() -> Values:
        flat = _apertures(t, i, address, size * count, False)
        values = places.load_alone(t, flat.host, flat.bits, size, count)
        bits = t.v.mask_bits(flat.private)
        own = by_bytes(t, t.private_base(), flat.low, size, [None] * count, bits)
        return [t.v.select(flat.private, t.v.i32, a, b) for a, b in zip(own, values, strict=True)]

    def in_global() -> Values:
        host = host_addresses(t, i, address, t.exec_mask(), size * count, False)
        return places.load(t, Place(host), size, count)

    t.exec_mask()
    values = places.branch(t, _special(t, address), anywhere, in_global)
    put_loaded(t, i.dsts[0], values, access)


def store_flat(t: Translator, i: Instruction) -> None:
    access, data = access_of(i.name), i.source("data")
    assert data is not None
    size = access.size
    values = stored_values(t, data, access)
    address = vector_address(t, i)

    def anywhere() -> Values:
        flat = _apertures(t, i, address, size * access.count, True)
        places.store_alone(t, flat.host, flat.bits, values, size)
        by_bytes(t, t.private_base(), flat.low, size, values, t.v.mask_bits(flat.private))
        return []

    def in_global() -> Values:
        host = host_addresses(t, i, address, t.exec_mask(), size * access.count, True)
        places.store(t, Place(host), values, size)
        return []

    places.branch(t, _special(t, address), anywhere, in_global)


# --- atomics ---


def _data(t: Translator, i: Instruction, operation: Atomic) -> tuple[str, str | None]:
    """Return the operand and, of a compare-and-swap, the value to compare with."""
    data = i.source("data")
    assert data is not None
    read = t.vgpr64 if operation.bits == 64 else t.vgpr
    step = operation.bits // 32
    return read(data.num), read(data.num + step) if operation.name.startswith("cmpswap") else None


def atomic_global(t: Translator, i: Instruction) -> None:
    operation = atomic(i.name.split("_atomic_")[1])
    value, other = _data(t, i, operation)
    host = host_addresses(t, i, vector_address(t, i), t.exec_mask(), operation.bits // 8, True)
    _put_old(t, i, operation, run_atomic(t, operation, host, t.exec_bits(), value, other))


def atomic_flat(t: Translator, i: Instruction) -> None:
    """Atomics may go to private memory too, whose dwords lie apart: those of 64 bits are faults there."""
    v = t.v
    operation = atomic(i.name.split("_atomic_")[1])
    value, other = _data(t, i, operation)
    flat = _apertures(t, i, vector_address(t, i), operation.bits // 8, True)
    host, bits = flat.host, flat.bits
    if operation.bits == 64:
        v.fault_if(flat.private, FAULT_PRIVATE, i.pc, v.cast("zext", flat.low, v.i32, v.i64))
    else:
        host = v.select(flat.private, v.i64, private_host(t, flat.low), host)
        bits = t.s.op("or", v.bits, bits, v.mask_bits(flat.private))
    _put_old(t, i, operation, run_atomic(t, operation, host, bits, value, other))


def _put_old(t: Translator, i: Instruction, operation: Atomic, old: str) -> None:
    """Write the value that memory had before to the destination, if the instruction returns it."""
    if not i.dsts:
        return
    if operation.bits == 64:
        t.set_vgpr64(i.dsts[0].num, old)
    else:
        t.set_vgpr(i.dsts[0].num, old)


# --- buffers ---


def _buffer_base(t: Translator, words: Sequence[str]) -> str:
    """Return the 48-bit base address of a buffer descriptor."""
    s = t.s
    high = s.op("and", "i32", words[1], "65535")
    wide = s.op("shl", "i64", s.cast("zext", high, "i32", "i64"), "32")
    return s.op("or", "i64", wide, s.cast("zext", words[0], "i32", "i64"))


def _buffer_place(t: Translator, i: Instruction, length: int) -> tuple[str, str]:
    """Return the GPU addresses of a buffer access and the lanes that lie inside the buffer.

    The descriptor's OOB_SELECT decides what is checked: 0 index and offset, 1 the index, 2 that there is
    anything, 3 bytes. The scalar offset does not count (RDNA3 ISA manual, 9.1.5; LLVM's raw buffers).
    """
    v, s = t.v, t.s
    if int(i.fields["tfe"]):
        raise t.unsupported(i, "TFE")
    srsrc, soffset, vaddr = i.source("srsrc"), i.source("soffset"), i.source("vaddr")
    assert srsrc is not None and soffset is not None and vaddr is not None
    first = register_of(srsrc)
    assert first is not None
    words = [t.scalar(first + k) for k in range(4)]
    indexed, offset_lanes = bool(int(i.fields["idxen"])), bool(int(i.fields["offen"]))
    index = t.vgpr(vaddr.num) if indexed else "zeroinitializer"
    offset = t.vgpr(vaddr.num + int(indexed)) if offset_lanes else "zeroinitializer"
    offset = v.op("add", v.i32, offset, v.splat("i32", str(int(i.fields["offset"]))))
    stride = s.op("and", "i32", s.op("lshr", "i32", words[1], "16"), "16383")
    add_lane = s.cast("trunc", s.op("lshr", "i32", words[3], "23"), "i32", "i1")
    numbered = v.op("add", v.i32, index, v.lane_numbers())
    index = v.new(f"select i1 {add_lane}, {v.i32} {numbered}, {v.i32} {index}")
    wide_offset = v.cast("zext", offset, v.i32, v.i64)
    wide_index, wide_stride = v.cast("zext", index, v.i32, v.i64), s.cast("zext", stride, "i32", "i64")
    within = v.op("mul", v.i64, wide_index, v.splat("i64", wide_stride))
    place = v.op("add", v.i64, within, wide_offset)
    inside = _inside_buffer(t, words, wide_index, wide_offset, place, wide_stride, length)
    base = s.op("add", "i64", _buffer_base(t, words), s.cast("zext", t.scalar_source(soffset), "i32", "i64"))
    return v.op("add", v.i64, place, v.splat("i64", base)), t.active(inside)


def _inside_buffer(
    t: Translator, words: Sequence[str], index: str, offset: str, place: str, stride: str, length: int
) -> str:
    v, s = t.v, t.s
    records = v.splat("i64", s.cast("zext", words[2], "i32", "i64"))
    mode = s.op("and", "i32", s.op("lshr", "i32", words[3], "28"), "3")
    size = v.splat("i64", str(length))
    last = v.op("add", v.i64, offset, size)
    raw = v.new(f"icmp ule {v.i64} {v.op('add', v.i64, place, size)}, {records}")
    index_in = v.new(f"icmp ult {v.i64} {index}, {records}")
    offset_in = v.new(f"icmp ule {v.i64} {last}, {v.splat('i64', stride)}")
    some = v.new(f"icmp ne {v.i64} {records}, zeroinitializer")
    structured = v.op("and", v.mask, index_in, offset_in)
    unstrided = s.new(f"icmp eq i64 {stride}, 0")
    chosen = v.new(f"select i1 {unstrided}, {v.mask} {raw}, {v.mask} {structured}")
    for number, test in ((1, index_in), (2, some), (3, raw)):
        this = s.new(f"icmp eq i32 {mode}, {number}")
        chosen = v.new(f"select i1 {this}, {v.mask} {test}, {v.mask} {chosen}")
    return chosen


def load_buffer(t: Translator, i: Instruction) -> None:
    access = access_of(i.name)
    address, lanes = _buffer_place(t, i, access.size * access.count)
    host = host_addresses(t, i, address, lanes, access.size * access.count, False)
    put_loaded(
        t, i.dsts[0], places.load_alone(t, host, t.v.mask_bits(lanes), access.size, access.count), access
    )


def store_buffer(t: Translator, i: Instruction) -> None:
    access, data = access_of(i.name), i.source("data")
    assert data is not None
    values = stored_values(t, data, access)
    address, lanes = _buffer_place(t, i, access.size * access.count)
    host = host_addresses(t, i, address, lanes, access.size * access.count, True)
    places.store_alone(t, host, t.v.mask_bits(lanes), values, access.size)


def atomic_buffer(t: Translator, i: Instruction) -> None:
    operation = atomic(i.name.split("_atomic_")[1])
    value, other = _data(t, i, operation)
    address, lanes = _buffer_place(t, i, operation.bits // 8)
    host = host_addresses(t, i, address, lanes, operation.bits // 8, True)
    _put_old(t, i, operation, run_atomic(t, operation, host, t.v.mask_bits(lanes), value, other))


_LOADS = ("u8", "i8", "u16", "i16", "b32", "b64", "b96", "b128", "d16_u8", "d16_i8", "d16_b16",
          "d16_hi_u8", "d16_hi_i8", "d16_hi_b16")  # fmt: skip
_STORES = ("b8", "b16", "b32", "b64", "b96", "b128", "d16_hi_b8", "d16_hi_b16")
_ATOMICS = ("swap_b32", "cmpswap_b32", "add_u32", "sub_u32", "csub_u32", "min_i32", "min_u32", "max_i32",
            "max_u32", "and_b32", "or_b32", "xor_b32", "inc_u32", "dec_u32", "swap_b64", "cmpswap_b64",
            "add_u64", "sub_u64", "min_i64", "min_u64", "max_i64", "max_u64", "and_b64", "or_b64",
            "xor_b64", "inc_u64", "dec_u64", "cmpswap_f32", "min_f32", "max_f32", "add_f32")  # fmt: skip


def _table() -> dict[str, Semantics]:
    table: dict[str, Semantics] = {
        "global_load_addtid_b32": load_by_lane,
        "global_store_addtid_b32": store_by_lane,
    }
    for width in (32, 64, 128, 256, 512):
        table[f"s_load_b{width}"] = load_scalar
        table[f"s_buffer_load_b{width}"] = load_scalar_buffer
    families = {
        "global": (load_global, store_global, atomic_global),
        "flat": (load_flat, store_flat, atomic_flat),
        "buffer": (load_buffer, store_buffer, atomic_buffer),
    }
    for prefix, (load, store, change) in families.items():
        table.update({f"{prefix}_load_{name}": load for name in _LOADS})
        table.update({f"{prefix}_store_{name}": store for name in _STORES})
        table.update({f"{prefix}_atomic_{name}": change for name in _ATOMICS})
    return table


SEMANTICS = _table()
