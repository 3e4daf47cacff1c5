"""Semantics of scratch (private) memory: dword d of lane l lies at (d * wave + l) * 4 of the wave's block."""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.hardware.amd.rdna import Instruction
from ringfence.virtual.isa.rdna import places
from ringfence.virtual.isa.rdna.places import Place, Values
from ringfence.virtual.isa.rdna.translate import Semantics, Translator
from ringfence.virtual.isa.simt import FAULT_PRIVATE


def check(t: Translator, i: Instruction, offset: str, lanes: str, length: int) -> None:
    """Leave with a fault where an access exceeds the private memory of a lane."""
    v = t.v
    end = v.op("add", v.i64, v.cast("zext", offset, v.i32, v.i64), v.splat("i64", str(length)))
    beyond = v.new(f"icmp ugt {v.i64} {end}, {v.splat('i64', t.s.field('private_bytes'))}")
    v.fault_if(v.op("and", v.mask, beyond, lanes), FAULT_PRIVATE, i.pc, v.cast("zext", offset, v.i32, v.i64))


def _index(t: Translator, offset: str) -> str:
    """Return the place of a byte in the wave's block, as i32 lanes."""
    v = t.v
    dword = v.op("mul", v.i32, v.op("and", v.i32, offset, v.splat("i32", "-4")), v.splat("i32", str(t.wave)))
    lane = "<" + ", ".join(f"i32 {4 * k}" for k in range(t.wave)) + ">"
    return v.op("or", v.i32, v.op("add", v.i32, dword, lane), v.op("and", v.i32, offset, v.splat("i32", "3")))


def private_host(t: Translator, offset: str) -> str:
    """Return host addresses (i64 lanes) of a dword of private memory."""
    v, s = t.v, t.s
    base = v.splat("i64", s.cast("ptrtoint", t.private_base(), "ptr", "i64"))
    return v.op("add", v.i64, v.cast("zext", _index(t, offset), v.i32, v.i64), base)


def _offset(t: Translator, i: Instruction) -> tuple[str, str | None]:
    """Return the offset into private memory.

    The scalar part (i32) and the lanes of the address register, if any.
    """
    s = t.s
    saddr, address = i.source("saddr"), i.source("addr")
    offset = str(int(i.fields["offset"]))
    if saddr is not None and saddr.kind != "off":
        base = t.scalar_source(saddr)
        known = not base.startswith("%")
        offset = str(int(base) + int(offset)) if known else s.op("add", "i32", base, offset)
    if address is None or address.kind == "off":
        return offset, None
    return offset, t.vgpr(address.num)


def load(t: Translator, i: Instruction) -> None:
    from ringfence.virtual.isa.rdna.memory import access_of, put_loaded

    access = access_of(i.name)
    offset, address = _offset(t, i)
    base = t.private_base()
    if address is None:
        values = _uniform(t, i, base, offset, access.size, [None] * access.count)
    else:
        values = _lanes(t, i, base, _plus(t, address, offset), access.size, [None] * access.count)
    put_loaded(t, i.dsts[0], values, access)


def store(t: Translator, i: Instruction) -> None:
    from ringfence.virtual.isa.rdna.memory import access_of, stored_values

    access, data = access_of(i.name), i.source("data")
    assert data is not None
    values = stored_values(t, data, access)
    offset, address = _offset(t, i)
    base = t.private_base()
    if address is None:
        _uniform(t, i, base, offset, access.size, values)
    else:
        _lanes(t, i, base, _plus(t, address, offset), access.size, values)


def _plus(t: Translator, address: str, offset: str) -> str:
    return address if offset == "0" else t.v.op("add", t.v.i32, address, t.v.splat("i32", offset))


# --- one offset for all lanes: each dword is a vector in memory ---


def _uniform(
    t: Translator, i: Instruction, base: str, offset: str, size: int, values: Sequence[str | None]
) -> Values:
    """Load (values of ``None``) or store at a scalar offset."""
    length = size * len(values)
    t.exec_mask()
    _check_scalar(t, i, offset, length)
    if not offset.startswith("%"):
        if int(offset) % size:
            return by_bytes(t, base, t.v.splat("i32", offset), size, values)
        return _rows(t, base, offset, size, values)
    if size == 1:
        return _rows(t, base, offset, size, values)
    low = t.s.op("and", "i32", offset, str(size - 1))
    return places.branch(
        t,
        t.s.new(f"icmp ne i32 {low}, 0"),
        lambda: by_bytes(t, base, t.v.splat("i32", offset), size, values),
        lambda: _rows(t, base, offset, size, values),
        rare=True,
    )


def _check_scalar(t: Translator, i: Instruction, offset: str, length: int) -> None:
    s = t.s
    end = s.op("add", "i64", s.cast("zext", offset, "i32", "i64"), str(length))
    beyond = s.new(f"icmp ugt i64 {end}, {s.field('private_bytes')}")
    hit, go = s.block("fault"), s.block("ok")
    some = s.new(f"icmp ne {t.v.bits} {t.exec_bits()}, 0")
    s.line(f"br i1 {s.op('and', 'i1', beyond, some)}, label %{hit}, label %{go}, !prof !0")
    s.label(hit)
    t.fault(FAULT_PRIVATE, i.pc, s.cast("zext", offset, "i32", "i64"))
    s.label(go)


def _rows(t: Translator, base: str, offset: str, size: int, values: Sequence[str | None]) -> Values:
    """Access dwords that do not cross rows of the wave's block."""
    v, s = t.v, t.s
    row = s.op("mul", "i32", s.op("lshr", "i32", offset, "2"), str(4 * t.wave))
    start = s.new(f"getelementptr i8, ptr {base}, i32 {row}")
    shift = s.op("shl", "i32", s.op("and", "i32", offset, "3"), "3")
    results: Values = []
    for k, value in enumerate(values):
        pointer = v.at(start, 4 * t.wave * k)
        if value is None:
            word = v.new(f"load {v.i32}, ptr {pointer}, align 4")
            if size < 4:
                word = v.op("lshr", v.i32, word, v.splat("i32", shift))
                word = v.op("and", v.i32, word, v.splat("i32", str((1 << 8 * size) - 1)))
            results.append(word)
            continue
        if size < 4:
            mask = s.op("shl", "i32", str((1 << 8 * size) - 1), shift)
            old = v.new(f"load {v.i32}, ptr {pointer}, align 4")
            kept = v.op("and", v.i32, old, v.splat("i32", s.op("xor", "i32", mask, "-1")))
            new = v.op("and", v.i32, v.op("shl", v.i32, value, v.splat("i32", shift)), v.splat("i32", mask))
            value = v.op("or", v.i32, kept, new)
        if t.full:
            v.line(f"store {v.i32} {value}, ptr {pointer}, align 4")
        else:
            v.store_masked(v.i32, value, pointer, t.exec_mask())
    return results


# --- an offset for each lane ---


def _lanes(
    t: Translator, i: Instruction, base: str, offset: str, size: int, values: Sequence[str | None]
) -> Values:
    """Load (values of ``None``) or store at an offset for each lane."""
    v = t.v
    check(t, i, offset, t.exec_mask(), size * len(values))

    def dwords() -> Values:
        results: Values = []
        for k, value in enumerate(values):
            moved = v.op("add", v.i32, offset, v.splat("i32", str(4 * k))) if k else offset
            where = Place(_index(t, moved), base)
            if value is None:
                results += places.load(t, where, size)
            else:
                places.store(t, where, [value], size)
        return results

    if size == 1:
        with t.aside():
            return dwords()
    low = v.op("and", v.i32, offset, v.splat("i32", str(size - 1)))
    wrong = v.any(t.active(v.new(f"icmp ne {v.i32} {low}, zeroinitializer")))
    return places.branch(t, wrong, lambda: by_bytes(t, base, offset, size, values), dwords, rare=True)


def by_bytes(
    t: Translator, base: str, offset: str, size: int, values: Sequence[str | None], bits: str | None = None
) -> Values:
    """Access what may cross dwords byte by byte, for the active lanes or those of ``bits``."""
    v, count, loads = t.v, len(values), values[0] is None
    name = f"scratch_{'load' if loads else 'store'}_{size}x{count}"
    t.lane_helper(name, "ptr %base, ptr %offsets, ptr %data", _bytes_body(t.wave, size, count, loads))
    offsets, data = t.alloca("offsets", v.i32), t.alloca("data", f"[4 x {v.i32}]")
    v.line(f"store {v.i32} {offset}, ptr {offsets}, align 64")
    for k, value in enumerate(values):
        v.line(f"store {v.i32} {value or 'zeroinitializer'}, ptr {v.at(data, 4 * t.wave * k)}, align 64")
    v.line(f"call void @{name}(ptr {base}, ptr {offsets}, ptr {data}, {v.bits} {bits or t.exec_bits()})")
    if not loads:
        return []
    return [v.new(f"load {v.i32}, ptr {v.at(data, 4 * t.wave * k)}, align 64") for k in range(count)]


def _bytes_body(wave: int, size: int, count: int, loads: bool) -> str:
    lines = [
        "  %op = getelementptr i32, ptr %offsets, i64 %lane",
        "  %o = load i32, ptr %op, align 4",
        "  %l32 = trunc i64 %lane to i32",
        "  %l4 = shl i32 %l32, 2",
    ]
    for k in range(count):
        lines += [
            f"  %i{k} = add i64 %lane, {wave * k}",
            f"  %r{k} = getelementptr i32, ptr %data, i64 %i{k}",
            f"  %t{k}_0 = " + ("add i32 0, 0" if loads else f"load i32, ptr %r{k}, align 4"),
        ]
        for b in range(size):
            n = f"{k}_{b}"
            lines += [
                f"  %a{n} = add i32 %o, {4 * k + b}",
                f"  %d{n} = and i32 %a{n}, -4",
                f"  %m{n} = mul i32 %d{n}, {wave}",
                f"  %b{n} = and i32 %a{n}, 3",
                f"  %x{n} = add i32 %m{n}, %l4",
                f"  %y{n} = add i32 %x{n}, %b{n}",
                f"  %p{n} = getelementptr i8, ptr %base, i32 %y{n}",
            ]
            if loads:
                lines += [
                    f"  %v{n} = load i8, ptr %p{n}, align 1",
                    f"  %z{n} = zext i8 %v{n} to i32",
                    f"  %s{n} = shl i32 %z{n}, {8 * b}",
                    f"  %t{k}_{b + 1} = or i32 %t{k}_{b}, %s{n}",
                ]
            else:
                lines += [
                    f"  %s{n} = lshr i32 %t{k}_0, {8 * b}",
                    f"  %z{n} = trunc i32 %s{n} to i8",
                    f"  store i8 %z{n}, ptr %p{n}, align 1",
                ]
        if loads:
            lines.append(f"  store i32 %t{k}_{size}, ptr %r{k}, align 4")
    return "\n".join(lines)


def _table() -> dict[str, Semantics]:
    loads = ("u8", "i8", "u16", "i16", "b32", "b64", "b96", "b128", "d16_u8", "d16_i8", "d16_b16",
             "d16_hi_u8", "d16_hi_i8", "d16_hi_b16")  # fmt: skip
    stores = ("b8", "b16", "b32", "b64", "b96", "b128", "d16_hi_b8", "d16_hi_b16")
    table: dict[str, Semantics] = {f"scratch_load_{n}": load for n in loads}
    return table | {f"scratch_store_{n}": store for n in stores}


SEMANTICS = _table()
