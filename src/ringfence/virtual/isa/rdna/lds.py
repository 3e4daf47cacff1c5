"""Semantics of the DS instructions: local memory, its atomics, and permutations that use its crossbar.

Lanes whose access lies beyond the work-group's local memory read 0 and store nothing; in strict mode they
are a fault.
"""

from __future__ import annotations

from ringfence.hardware.amd.rdna import Instruction
from ringfence.virtual.isa.rdna import places, windows
from ringfence.virtual.isa.rdna.atomics import atomic, run_atomic
from ringfence.virtual.isa.rdna.crosslane import gathered, gathered_mask
from ringfence.virtual.isa.rdna.effects import M0
from ringfence.virtual.isa.rdna.memory import access_of, put_loaded, stored_values
from ringfence.virtual.isa.rdna.operands import mask_constant, shuffled
from ringfence.virtual.isa.rdna.places import Place, Values
from ringfence.virtual.isa.rdna.translate import Semantics, Translator
from ringfence.virtual.isa.simt import FAULT_SHARED, lane_loop

PERMUTE_LANES = 32  # ds_permute and ds_bpermute stay inside half a wave64 on gfx11
FFT, ROTATE = 0xE000, 0xC000


def _lanes(t: Translator, i: Instruction) -> str:
    """Return the i32 lanes of the address register."""
    if int(i.fields.get("gds", 0)):
        raise t.unsupported(i, "global data share")
    address = i.source("addr")
    assert address is not None
    return t.vgpr(address.num)


def _moved(t: Translator, address: str, offset: int) -> str:
    """Return the addresses ``offset`` bytes further: they are 32 bits, so a negative one with an offset
    beyond it is legal (LLVM's ``isDSOffsetLegal`` counts on that from gfx7 on).
    """
    v = t.v
    return v.op("add", v.i32, address, v.splat("i32", str(offset))) if offset else address


def _beyond(t: Translator, address: str, length: int) -> str:
    """Return the lanes whose access exceeds the local memory."""
    v, s = t.v, t.s
    room = s.op("sub", "i64", s.field("shared_bytes"), str(length))
    none = s.new(f"icmp slt i64 {room}, 0")
    limit = s.cast("trunc", s.binary("umin", "i64", room, str((1 << 31) - 1)), "i64", "i32")
    beyond = v.new(f"icmp ugt {v.i32} {address}, {v.splat('i32', limit)}")
    return v.new(f"select i1 {none}, {v.mask} {v.splat('i1', 'true')}, {v.mask} {beyond}")


def _place(t: Translator, address: str, *, limited: bool) -> Place:
    """Return the place of an access; ``limited``: lanes beyond the end are left to it."""
    s = t.s
    base = s.field("shared", "ptr")
    if not limited:
        return Place(address, base)
    return Place(address, base, room=s.cast("trunc", s.field("shared_bytes"), "i64", "i32"))


def _check(t: Translator, i: Instruction, address: str, length: int) -> str:
    """Return the active lanes whose access exceeds the local memory.

    In strict mode leave with a fault if there are.
    """
    v = t.v
    beyond = v.op("and", v.mask, _beyond(t, address, length), t.exec_mask())
    if t.unit.strict:
        v.fault_if(beyond, FAULT_SHARED, i.pc, v.cast("zext", address, v.i32, v.i64))
    return beyond


def _load(t: Translator, i: Instruction, address: str, offset: int, size: int, count: int) -> Values:
    v = t.v
    address = _moved(t, address, offset)
    if t.unit.strict or not places.by_strips(t, count, size):
        beyond = _check(t, i, address, size * count)
    if t.unit.strict:
        with t.aside():
            return places.load(t, _place(t, address, limited=False), size, count)
    if places.by_strips(t, count, size):
        with t.aside():
            return places.load(t, _place(t, address, limited=True), size, count)

    def slow() -> Values:
        inside = v.op("and", v.mask, v.op("xor", v.mask, beyond, v.splat("i1", "true")), t.exec_mask())
        host = places.hosts(t, _place(t, address, limited=False))
        return places.load_alone(t, host, v.mask_bits(inside), size, count)

    def fast() -> Values:
        return places.load(t, _place(t, address, limited=False), size, count)

    return places.branch(t, v.any(beyond), slow, fast, rare=True)


def _store(t: Translator, i: Instruction, address: str, offset: int, values: Values, size: int) -> None:
    v = t.v
    address = _moved(t, address, offset)
    by_strips = places.by_strips(t, len(values), size)
    if t.unit.strict or not by_strips:
        beyond = _check(t, i, address, size * len(values))
    if t.unit.strict or by_strips:
        with t.aside():
            places.store(t, _place(t, address, limited=not t.unit.strict), values, size)
        return

    def slow() -> Values:
        inside = v.op("and", v.mask, v.op("xor", v.mask, beyond, v.splat("i1", "true")), t.exec_mask())
        host = places.hosts(t, _place(t, address, limited=False))
        places.store_alone(t, host, v.mask_bits(inside), values, size)
        return []

    def fast() -> Values:
        places.store(t, _place(t, address, limited=False), values, size)
        return []

    places.branch(t, v.any(beyond), slow, fast, rare=True)


def _windowed(t: Translator, i: Instruction) -> Values | None:
    """Return what a load gives if its addresses have been checked already."""
    address = i.source("addr")
    assert address is not None
    window, offsets = t.window(address.num), windows.offsets_of(i)
    return [windows.load(t, window, offset) for offset in offsets] if window and offsets else None


def load(t: Translator, i: Instruction) -> None:
    access = access_of(i.name)
    if (known := _windowed(t, i)) is not None:
        put_loaded(t, i.dsts[0], known, access)
        return
    values = _load(t, i, _lanes(t, i), int(i.fields["offset"]), access.size, access.count)
    put_loaded(t, i.dsts[0], values, access)


def store(t: Translator, i: Instruction) -> None:
    access, data = access_of(i.name), i.source("data0")
    assert data is not None
    _store(t, i, _lanes(t, i), int(i.fields["offset"]), stored_values(t, data, access), access.size)


def _pair_offsets(i: Instruction) -> tuple[int, int, int]:
    """Return the dwords of an element and the byte offsets of a two-address instruction."""
    dwords = 2 if i.name.endswith("b64") else 1
    scale = 4 * dwords * (64 if "stride64" in i.name else 1)
    return dwords, int(i.fields["offset0"]) * scale, int(i.fields["offset1"]) * scale


def load_pair(t: Translator, i: Instruction) -> None:
    """ds_load_2addr(_stride64)_*: the address is read before any result is written."""
    dwords, *offsets = _pair_offsets(i)
    address = _lanes(t, i)
    if (known := _windowed(t, i)) is not None:
        values = known
    elif dwords == 1 and offsets[1] == offsets[0] + 4:
        values = _load(t, i, address, offsets[0], 4, 2)
    else:
        values = [value for offset in offsets for value in _load(t, i, address, offset, 4, dwords)]
    for k, value in enumerate(values):
        t.set_vgpr(i.dsts[0].num + k, value)


def store_pair(t: Translator, i: Instruction) -> None:
    dwords, *offsets = _pair_offsets(i)
    address = _lanes(t, i)
    for role, offset in zip(("data0", "data1"), offsets, strict=True):
        data = i.source(role)
        assert data is not None
        _store(t, i, address, offset, [t.vgpr(data.num + k) for k in range(dwords)], 4)


# --- atomics ---


def _hosts(t: Translator, i: Instruction, address: str, offset: int, length: int) -> tuple[str, str]:
    """Return host addresses of an access and the bits of the lanes that lie inside."""
    v, s = t.v, t.s
    address = _moved(t, address, offset)
    beyond = v.op("and", v.mask, _beyond(t, address, length), t.exec_mask())
    if t.unit.strict:
        v.fault_if(beyond, FAULT_SHARED, i.pc, v.cast("zext", address, v.i32, v.i64))
    inside = t.active(v.op("xor", v.mask, beyond, v.splat("i1", "true")))
    return places.hosts(t, Place(address, s.field("shared", "ptr"))), v.mask_bits(inside)


def change(t: Translator, i: Instruction) -> None:
    """DS atomics; the forms with rtn return the old value."""
    operation = atomic(i.name.removeprefix("ds_"))
    read = t.vgpr64 if operation.bits == 64 else t.vgpr
    first, second = i.source("data0"), i.source("data1")
    assert first is not None
    value, other = read(first.num), None if second is None else read(second.num)
    host, bits = _hosts(t, i, _lanes(t, i), int(i.fields["offset"]), operation.bits // 8)
    old = run_atomic(t, operation, host, bits, value, other)
    if i.dsts:
        (t.set_vgpr64 if operation.bits == 64 else t.set_vgpr)(i.dsts[0].num, old)


def exchange_pair(t: Translator, i: Instruction) -> None:
    """ds_storexchg_2addr(_stride64)_rtn_*: two swaps."""
    dwords, *offsets = _pair_offsets(i)
    operation = atomic(f"swap_b{32 * dwords}")
    read = t.vgpr64 if dwords == 2 else t.vgpr
    address, old = _lanes(t, i), []
    values = []
    for role in ("data0", "data1"):
        data = i.source(role)
        assert data is not None
        values.append(read(data.num))
    for offset, value in zip(offsets, values, strict=True):
        host, bits = _hosts(t, i, address, offset, 4 * dwords)
        old.append(run_atomic(t, operation, host, bits, value, None))
    for k, result in enumerate(old):
        (t.set_vgpr64 if dwords == 2 else t.set_vgpr)(i.dsts[0].num + k * dwords, result)


def count(sign: int) -> Semantics:
    """ds_append, ds_consume: the counter at M0[31:16] + offset changes by the number of active lanes.

    D = its old value.
    """

    def semantics(t: Translator, i: Instruction) -> None:
        v, s = t.v, t.s
        if int(i.fields["gds"]):
            raise t.unsupported(i, "global data share")
        active = s.unary("ctpop", v.bits, t.exec_bits())
        amount = active if t.wave == 32 else s.cast("trunc", active, "i64", "i32")
        base = s.op("add", "i32", s.op("lshr", "i32", t.scalar(M0), "16"), str(int(i.fields["offset"])))
        inside = v.op("xor", v.mask, _beyond(t, v.splat("i32", base), 4), v.splat("i1", "true"))
        if t.unit.strict:
            outside = v.op("xor", v.mask, inside, v.splat("i1", "true"))
            v.fault_if(
                t.active(outside), FAULT_SHARED, i.pc, v.splat("i64", s.cast("zext", base, "i32", "i64"))
            )
        host = places.hosts(t, Place(v.splat("i32", base), s.field("shared", "ptr")))
        delta = amount if sign > 0 else s.op("sub", "i32", "0", amount)
        one = v.op("and", v.mask, inside, mask_constant(t, [lane == 0 for lane in range(t.wave)]))
        old = run_atomic(t, atomic("add_u32"), host, v.mask_bits(one), v.splat("i32", delta), None)
        t.set_vgpr(i.dsts[0].num, v.splat("i32", s.new(f"extractelement {v.i32} {old}, i32 0")))

    return semantics


# --- by lane number ---


def _lane_addresses(t: Translator, i: Instruction) -> str:
    """Return M0[15:0] + 4 * lane."""
    v = t.v
    base = t.s.op("and", "i32", t.scalar(M0), "65535")
    steps = "<" + ", ".join(f"i32 {4 * k}" for k in range(t.wave)) + ">"
    return v.op("add", v.i32, v.splat("i32", base), steps)


def load_by_lane(t: Translator, i: Instruction) -> None:
    """ds_load_addtid_b32."""
    value = _load(t, i, _lane_addresses(t, i), int(i.fields["offset"]), 4, 1)[0]
    t.set_vgpr(i.dsts[0].num, value)


def store_by_lane(t: Translator, i: Instruction) -> None:
    """ds_store_addtid_b32."""
    data = i.source("data0")
    assert data is not None
    _store(t, i, _lane_addresses(t, i), int(i.fields["offset"]), [t.vgpr(data.num)], 4)


# --- permutations ---


def swizzle_lane(offset: int, lane: int) -> int:
    """Return the lane that ``lane`` reads in ds_swizzle_b32 (RDNA3 ISA manual, DS_SWIZZLE_B32)."""
    if offset >= FFT:
        mask = offset & 31
        reversed_ = int(f"{lane & 31:05b}"[::-1], 2) >> mask.bit_count()
        return (reversed_ | (lane & mask) | (lane & 32)) if mask else (reversed_ | (lane & 32))
    if offset >= ROTATE:
        amount, mask = offset >> 5 & 31, offset & 31
        moved = (lane - amount) if offset >> 10 & 1 else (lane + amount)
        return (lane & mask) | (moved & ~mask & 31) | (lane & 32)
    if offset >> 15:
        return (lane & ~3) + (offset >> 2 * (lane & 3) & 3)
    return (((lane & offset & 31) | (offset >> 5 & 31)) ^ (offset >> 10 & 31)) | (lane & 32)


def swizzle(t: Translator, i: Instruction) -> None:
    """ds_swizzle_b32: a fixed permutation; sources that are not active give 0."""
    v = t.v
    plan = [swizzle_lane(int(i.fields["offset"]), lane) for lane in range(t.wave)]
    value = shuffled(t, _lanes(t, i), plan)
    if not t.full:
        indices = ", ".join(f"i32 {lane}" for lane in plan)
        valid = v.new(
            f"shufflevector {v.mask} {t.exec_mask()}, {v.mask} poison, <{t.wave} x i32> <{indices}>"
        )
        value = v.select(valid, v.i32, value, "zeroinitializer")
    t.set_vgpr(i.dsts[0].num, value)


def _permute_lanes(t: Translator, i: Instruction) -> str:
    """Return ((address + offset) / 4) modulo 32, within the half wave of the lane."""
    v = t.v
    address = v.op("add", v.i32, _lanes(t, i), v.splat("i32", str(int(i.fields["offset"]))))
    number = v.op(
        "and",
        v.i32,
        v.op("lshr", v.i32, address, v.splat("i32", "2")),
        v.splat("i32", str(PERMUTE_LANES - 1)),
    )
    if t.wave == 32:
        return number
    half = "<" + ", ".join(f"i32 {lane & 32}" for lane in range(t.wave)) + ">"
    return v.op("or", v.i32, number, half)


def permute_backward(t: Translator, i: Instruction) -> None:
    """ds_bpermute_b32: each lane reads the lane that its address names; one that is not active gives 0."""
    v, data = t.v, i.source("data0")
    assert data is not None
    lanes = _permute_lanes(t, i)
    value = gathered(t, t.vgpr(data.num), lanes)
    if not t.full:
        valid = gathered_mask(t, t.exec_mask(), lanes)
        value = v.select(valid, v.i32, value, "zeroinitializer")
    t.set_vgpr(i.dsts[0].num, value)


def permute_forward(t: Translator, i: Instruction) -> None:
    """ds_permute_b32: each active lane sends to the lane that its address names.

    The highest sender wins, others get 0.
    """
    v, data = t.v, i.source("data0")
    assert data is not None
    lanes = _permute_lanes(t, i)
    source, targets, result = (t.alloca(name, v.i32) for name in ("permute0", "permute1", "permute2"))
    t.helpers.setdefault(
        "permute", lane_loop("permute", t.wave, "ptr %from, ptr %to, ptr %results", _PERMUTE)
    )
    for buffer, content in ((source, t.vgpr(data.num)), (targets, lanes), (result, "zeroinitializer")):
        v.line(f"store {v.i32} {content}, ptr {buffer}, align 64")
    bits = v.mask_bits(t.exec_mask())
    v.line(f"call void @permute(ptr {source}, ptr {targets}, ptr {result}, {v.bits} {bits})")
    t.set_vgpr(i.dsts[0].num, v.new(f"load {v.i32}, ptr {result}, align 64"))


_PERMUTE = """  %vp = getelementptr i32, ptr %from, i64 %lane
  %v = load i32, ptr %vp, align 4
  %tp = getelementptr i32, ptr %to, i64 %lane
  %t = load i32, ptr %tp, align 4
  %rp = getelementptr i32, ptr %results, i32 %t
  store i32 %v, ptr %rp, align 4"""


def _changes() -> list[str]:
    names = []
    for rtn in ("", "_rtn"):
        for width in (32, 64):
            names += [f"{n}{rtn}_u{width}" for n in ("add", "sub", "rsub", "inc", "dec")]
            names += [f"{n}{rtn}_{k}{width}" for n in ("min", "max") for k in "iuf"]
            names += [f"{n}{rtn}_b{width}" for n in ("and", "or", "xor", "mskor", "cmpstore")]
            names.append(f"cmpstore{rtn}_f{width}")
        names.append(f"add{rtn}_f32")
    return [*names, "storexchg_rtn_b32", "storexchg_rtn_b64", "wrap_rtn_b32", "condxchg32_rtn_b64"]


def _table() -> dict[str, Semantics]:
    table: dict[str, Semantics] = {f"ds_{name}": change for name in _changes()}
    for name in ("u8", "i8", "u16", "i16", "b32", "b64", "b96", "b128"):
        table[f"ds_load_{name}"] = load
    for name in ("u8", "i8", "u16"):
        table[f"ds_load_{name}_d16"] = table[f"ds_load_{name}_d16_hi"] = load
    for name in ("b8", "b16", "b32", "b64", "b96", "b128", "b8_d16_hi", "b16_d16_hi"):
        table[f"ds_store_{name}"] = store
    for width in ("b32", "b64"):
        for stride in ("", "_stride64"):
            table[f"ds_load_2addr{stride}_{width}"] = load_pair
            table[f"ds_store_2addr{stride}_{width}"] = store_pair
            table[f"ds_storexchg_2addr{stride}_rtn_{width}"] = exchange_pair
    table.update(
        {
            "ds_append": count(1),
            "ds_consume": count(-1),
            "ds_load_addtid_b32": load_by_lane,
            "ds_store_addtid_b32": store_by_lane,
            "ds_swizzle_b32": swizzle,
            "ds_permute_b32": permute_forward,
            "ds_bpermute_b32": permute_backward,
        }
    )
    return table


SEMANTICS = _table()
