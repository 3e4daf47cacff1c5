"""Semantics of global, local and private memory and of atomics: category 6 but for images and constants."""

from __future__ import annotations

from ringfence.hardware.adreno.ir3 import Instruction, Operand
from ringfence.virtual.isa import simt
from ringfence.virtual.isa.ir3 import access
from ringfence.virtual.isa.ir3.access import Address, Halves, Near
from ringfence.virtual.isa.ir3.code import refuse
from ringfence.virtual.isa.ir3.translator import Semantics, Translator
from ringfence.virtual.isa.simt import FAULT_ALIGNMENT, FAULT_PRIVATE, FAULT_SHARED, Emitter

TYPE_BYTES = {"f16": 2, "f32": 4, "u16": 2, "u32": 4, "s16": 2, "s32": 4, "u8": 1}
ATOMICS = {"add": "add", "sub": "sub", "xchg": "xchg", "inc": "add", "dec": "sub", "cmpxchg": "cmpxchg",
           "and": "and", "or": "or", "xor": "xor"}  # fmt: skip
STEPS = frozenset(("inc", "dec"))  # add and subtract one (atomics of one source in Mesa's ir3-cat6.xml)


def element_bytes(i: Instruction) -> int:
    """Return the size of what an instruction moves."""
    kind = str(i.fields["type"])
    if kind not in TYPE_BYTES:
        raise refuse(i, f"which registers type {kind} uses in memory accesses is not known")
    return TYPE_BYTES[kind]


# --- global ---


def _global_lanes(t: Translator, i: Instruction) -> Address:
    """Return the GPU addresses of an instruction, as halves if nothing is added to them."""
    if i.name.endswith(".a") or int(i.fields.get("offset", 0)):
        return global_address(t, i, t.v)
    low, high = (t.raw(i.srcs[0], 0, t.v, offset) for offset in (0, 1))
    return Halves(low, high)


def global_address(t: Translator, i: Instruction, e: Emitter) -> str:
    """Return the 64-bit GPU addresses of an instruction in the shape of ``e``.

    The forms ending in ``.a`` add (index << shift) + offset, counted in elements.
    """
    low, high = (t.raw(i.srcs[0], 0, e, offset) for offset in (0, 1))
    wide = e.op("shl", e.i64, e.cast("zext", high, e.i32, e.i64), e.splat("i64", "32"))
    address = e.op("or", e.i64, wide, e.cast("zext", low, e.i32, e.i64))
    offset = int(i.fields.get("offset", 0))
    if i.name.endswith(".a"):
        scale = element_bytes(i).bit_length() - 1
        index = e.cast("zext", t.raw(i.srcs[1], 0, e), e.i32, e.i64)
        scaled = e.op("shl", e.i64, index, e.splat("i64", str(int(i.fields["shift"]) + scale)))
        address = e.op("add", e.i64, address, scaled)
        offset <<= scale
    return e.op("add", e.i64, address, e.splat("i64", str(offset))) if offset else address


def load_global(t: Translator, i: Instruction) -> None:
    """ldg, ldg.a: consecutive elements from a 64-bit address to consecutive registers."""
    e, size, count = t.shape(i), element_bytes(i), int(i.fields["size"])
    if e.lanes == 1:
        host = access.uniform_host(t, i, global_address(t, i, e), size * count, t.mask)
        elements = [_load_uniform(e, host, size, k) for k in range(count)]
    else:
        elements = access.load(t, i, _global_lanes(t, i), size, count)
    for k, element in enumerate(elements):
        put_element(t, i.dsts[0], k, element, e)


def _load_uniform(s: Emitter, host: str, size: int, k: int) -> str:
    """Return an i32 with the zero-extended element number ``k`` from a host address."""
    pointer = s.at(s.cast("inttoptr", host, "i64", "ptr"), size * k)
    value = s.new(f"load i{8 * size}, ptr {pointer}, align 1")
    return value if size == 4 else s.cast("zext", value, f"i{8 * size}", "i32")


def load_element(t: Translator, host: str, size: int, e: Emitter) -> str:
    """Return an i32 with the zero-extended element at a host address."""
    if e.lanes == 1:
        return _load_uniform(e, host, size, 0)
    if size == 4:
        return e.gather(e.i32, e.cast("inttoptr", host, e.i64, e.ptrs), t.mask, 1)
    return access.load_narrow(e, host, t.mask, size)


def put_element(t: Translator, operand: Operand, k: int, value: str, e: Emitter) -> None:
    """Write a loaded element (i32) to its full or half register."""
    if operand.half:
        t.put(operand, k, e.cast("trunc", value, e.i32, e.i16), e, "i16")
    else:
        t.put(operand, k, value, e, "i32")


def data_element(t: Translator, operand: Operand, k: int) -> str:
    """Return register ``k`` of a data vector as i32 lanes."""
    v = t.v
    value = t.raw(operand, 0, v, k)
    return v.cast("zext", value, v.i16, v.i32) if operand.half else value


def store_global(t: Translator, i: Instruction) -> None:
    """stg, stg.a: consecutive registers to consecutive elements at a 64-bit address."""
    values = [data_element(t, i.srcs[-1], k) for k in range(int(i.fields["size"]))]
    access.store(t, i, _global_lanes(t, i), values, element_bytes(i))


def store_element(t: Translator, host: str, value: str, size: int) -> None:
    """Store the low ``size`` bytes of i32 lanes at host addresses."""
    v = t.v
    if size == 4:
        v.scatter(v.i32, value, v.cast("inttoptr", host, v.i64, v.ptrs), t.mask, 1)
    else:
        access.scatter_narrow(t, host, value, size)


# --- local ---


def _fault_lanes(t: Translator, i: Instruction, wrong: str, offset: str, e: Emitter, kind: int) -> None:
    """Leave with a fault where ``wrong``; ``offset`` (i32) is reported."""
    v = t.v
    if e.lanes == 1:
        wrong = v.splat("i1", wrong)

    def address() -> str:
        return v.cast("zext", offset if e.lanes > 1 else v.splat("i32", offset), v.i32, v.i64)

    v.fault_if(v.op("and", v.mask, wrong, t.mask), kind, i.pc, address)


def _beyond(t: Translator, offset: str, e: Emitter, length: int, field: str) -> str:
    """Return where ``length`` bytes at ``offset`` (i32) exceed the size in context field ``field``."""
    s = t.s
    starts = s.binary(
        "usub.sat", "i64", s.field(field), str(length - 1)
    )  # bytes at which an access may begin
    limit = s.cast("trunc", starts, "i64", "i32")
    return e.new(f"icmp uge {e.i32} {offset}, {e.splat('i32', limit)}")


def _local_offset(t: Translator, i: Instruction, e: Emitter, length: int) -> str:
    """Return offsets (i32) in local memory; an access beyond the configured size is a fault."""
    offset = _offset(t, i, i.srcs[0], e)
    _fault_lanes(t, i, _beyond(t, offset, e, length, "shared_bytes"), offset, e, FAULT_SHARED)
    return offset


def _local(t: Translator, i: Instruction, length: int) -> Near:
    return Near(t.s.field("shared", "ptr"), access.acting(t, _local_offset(t, i, t.v, length)))


def _offset(t: Translator, i: Instruction, operand: Operand, e: Emitter) -> str:
    address = t.raw(operand, 0, e)
    offset = int(i.fields.get("offset", 0))
    return e.op("add", e.i32, address, e.splat("i32", str(offset))) if offset else address


def load_local(t: Translator, i: Instruction) -> None:
    """ldl, ldlw: from the work-group's local memory."""
    e, size, count = t.shape(i), element_bytes(i), int(i.fields["size"])
    if e.lanes == 1:
        offset = _local_offset(t, i, e, size * count)
        host = e.op("add", "i64", e.cast("zext", offset, "i32", "i64"), e.field("shared"))
        elements = [_load_uniform(e, host, size, k) for k in range(count)]
    else:
        elements = access.load_near(t, _local(t, i, size * count), size, count)
    for k, element in enumerate(elements):
        put_element(t, i.dsts[0], k, element, e)


def store_local(t: Translator, i: Instruction) -> None:
    """stl, stlw: to the work-group's local memory."""
    size, count = element_bytes(i), int(i.fields["size"])
    values = [data_element(t, i.srcs[-1], k) for k in range(count)]
    access.store_near(t, _local(t, i, size * count), values, size)


# --- private ---


def _private(t: Translator, i: Instruction, size: int, count: int) -> list[Near]:
    """Return where to find ``count`` elements of private memory, ``size`` bytes apart.

    Dword d of lane l lies at (d * lanes + l) * 4, so an element must not straddle dwords.
    """
    v = t.v
    offset = _offset(t, i, i.srcs[0], v)
    wrong = _beyond(t, offset, v, size * count, "private_bytes")
    if size > 1:
        odd = v.op("and", v.i32, offset, v.splat("i32", str(size - 1)))
        wrong = v.op("or", v.mask, wrong, v.new(f"icmp ne {v.i32} {odd}, zeroinitializer"))
    _fault_lanes(t, i, wrong, offset, v, FAULT_PRIVATE)
    base = t.private_base()
    return [Near(base, access.acting(t, _interleaved(t, offset, size * k))) for k in range(count)]


def _interleaved(t: Translator, offset: str, more: int) -> str:
    v = t.v
    at = v.op("add", v.i32, offset, v.splat("i32", str(more))) if more else offset
    row = v.op("mul", v.i32, v.op("lshr", v.i32, at, v.splat("i32", "2")), v.splat("i32", str(t.lanes)))
    word = v.op("shl", v.i32, v.op("add", v.i32, row, v.lane_numbers()), v.splat("i32", "2"))
    return v.op("or", v.i32, word, v.op("and", v.i32, at, v.splat("i32", "3")))


def load_private(t: Translator, i: Instruction) -> None:
    """ldp: from the fiber's private memory."""
    size, count = element_bytes(i), int(i.fields["size"])
    for k, near in enumerate(_private(t, i, size, count)):
        put_element(t, i.dsts[0], k, access.load_near(t, near, size, 1)[0], t.v)


def store_private(t: Translator, i: Instruction) -> None:
    """stp: to the fiber's private memory."""
    size, count = element_bytes(i), int(i.fields["size"])
    for k, near in enumerate(_private(t, i, size, count)):
        access.store_near(t, near, [data_element(t, i.srcs[-1], k)], size)


# --- atomics ---


def run_atomic(t: Translator, i: Instruction, address: str, host: str, data: str, compare: str) -> str:
    """Do a 32-bit atomic for each active lane and return the old values (i32). ``address`` is for reports."""
    v, operation = t.v, i.name.split(".")[-1]
    if element_bytes(i) != 4:
        raise refuse(i, "only 32-bit atomics exist on this hardware")
    low = v.op("and", v.i64, host, v.splat("i64", "3"))
    odd = v.op("and", v.mask, v.new(f"icmp ne {v.i64} {low}, zeroinitializer"), t.mask)
    v.fault_if(odd, FAULT_ALIGNMENT, i.pc, address)
    if operation in STEPS:
        data = v.splat("i32", "1")
    signed = str(i.fields["type"])[0] == "s"
    extremum = {"min": "min" if signed else "umin", "max": "max" if signed else "umax"}
    return _atomic_loop(t, extremum.get(operation) or ATOMICS[operation], host, data, compare)


def _atomic_loop(t: Translator, operation: str, host: str, data: str, compare: str) -> str:
    v = t.v
    name = f"atomic_{operation}"
    arguments = "ptr %addresses, ptr %values, ptr %compares, ptr %results"
    t.helper(name, arguments, simt.atomic_function(operation))
    row = v.new(f"getelementptr {v.i32}, ptr %data, i64 1")
    result = v.new(f"getelementptr {v.i32}, ptr %data, i64 2")
    v.line(f"store {v.i64} {host}, ptr %scratch, align 64")
    v.line(f"store {v.i32} {data}, ptr %data, align 64")
    v.line(f"store {v.i32} {compare}, ptr {row}, align 4")
    v.line(f"store {v.i32} zeroinitializer, ptr {result}, align 4")
    bits = v.mask_bits(t.mask)
    v.line(f"call void @{name}(ptr %scratch, ptr %data, ptr {row}, ptr {result}, {v.bits} {bits})")
    return v.new(f"load {v.i32}, ptr {result}, align 4")


def _atomic_operands(t: Translator, i: Instruction) -> tuple[str, str]:
    """Return data and compare value: cmpxchg names the pair (new value, compare value).

    Mesa's ir3_compiler_nir.c collects the second and the first data source of the NIR atomic, and the
    first is SPIR-V's comparator (``fill_common_atomic_sources``).
    """
    data = t.raw(i.srcs[1], 0, t.v)
    if not i.name.endswith("cmpxchg"):
        return data, data
    if i.srcs[1].kind == "imm":
        raise refuse(i, "an immediate is no pair of values")
    return data, t.raw(i.srcs[1], 0, t.v, 1)


def atomic_local(t: Translator, i: Instruction) -> None:
    """atomic.l: on local memory; the destination receives the old value."""
    v = t.v
    address = v.cast("zext", _local_offset(t, i, v, 4), v.i32, v.i64)
    host = v.op("add", v.i64, address, v.splat("i64", t.s.field("shared")))
    old = run_atomic(t, i, address, host, *_atomic_operands(t, i))
    t.put(i.dsts[0], 0, old, v, "i32")


def atomic_global(t: Translator, i: Instruction) -> None:
    """atomic.g: on global memory; the destination receives the old value."""
    v = t.v
    if i.srcs[0].kind == "imm":
        raise refuse(i, "an immediate is no 64-bit address")
    address = global_address(t, i, v)
    host = v.translate(address, t.mask, 4, True, i.pc, t.site())
    t.put(i.dsts[0], 0, run_atomic(t, i, address, host, *_atomic_operands(t, i)), v, "i32")


_OPERATIONS = (*ATOMICS, "min", "max")

SEMANTICS: dict[str, Semantics] = {
    "ldg": load_global,
    "ldg.a": load_global,
    "stg": store_global,
    "stg.a": store_global,
    "ldl": load_local,
    "ldlw": load_local,
    "stl": store_local,
    "stlw": store_local,
    "ldp": load_private,
    "stp": store_private,
    **{f"atomic.l.{op}": atomic_local for op in _OPERATIONS},
    **{f"atomic.g.{op}": atomic_global for op in _OPERATIONS},
}
