"""Atomics of global, flat, buffer and local memory: lanes take turns, each sees what the one before left."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.harness import EITHER_WAVE, Array, Memory, Op, batch, covers, run

Change = Callable[[int, int, int, int], int]
"""(old, data, compared or second operand, width) -> new."""
DATA = 0x4000_0000
PLACES = 8
"""Lanes share this many places, of eight bytes each."""
WAITS = "s_waitcnt vmcnt(0) lgkmcnt(0)"


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def real(value: int, bits: int) -> float:
    found: float = struct.unpack("<f" if bits == 32 else "<d", value.to_bytes(bits // 8, "little"))[0]
    return found


def bits_of(value: float, bits: int) -> int:
    return int.from_bytes(struct.pack("<f" if bits == 32 else "<d", value), "little")


def inverse(value: int, bits: int) -> int:
    return ~value & (1 << bits) - 1


CHANGES: dict[str, Change] = {
    "swap": lambda o, d, c, w: d,
    "cmpswap": lambda o, d, c, w: d if o == c else o,
    "add": lambda o, d, c, w: o + d,
    "sub": lambda o, d, c, w: o - d,
    "rsub": lambda o, d, c, w: d - o,
    "csub": lambda o, d, c, w: max(0, o - d),
    "min_i": lambda o, d, c, w: min(o, d, key=lambda x: signed(x, w)),
    "max_i": lambda o, d, c, w: max(o, d, key=lambda x: signed(x, w)),
    "min_u": lambda o, d, c, w: min(o, d),
    "max_u": lambda o, d, c, w: max(o, d),
    "and": lambda o, d, c, w: o & d,
    "or": lambda o, d, c, w: o | d,
    "xor": lambda o, d, c, w: o ^ d,
    "inc": lambda o, d, c, w: 0 if o >= d else o + 1,
    "dec": lambda o, d, c, w: d if o == 0 or o > d else o - 1,
    "mskor": lambda o, d, c, w: o & inverse(d, w) | c,
    "wrap": lambda o, d, c, w: o - d if o >= d else o + c,
    "condxchg": lambda o, d, c, w: sum(
        (d >> k & 0x7FFFFFFF if d >> k & 1 << 31 else o >> k & 0xFFFFFFFF) << k for k in (0, 32)
    ),
    "add_f": lambda o, d, c, w: bits_of(float(np.float32(real(o, w)) + np.float32(real(d, w))), w),
    "min_f": lambda o, d, c, w: min(o, d, key=lambda x: real(x, w)),
    "max_f": lambda o, d, c, w: max(o, d, key=lambda x: real(x, w)),
    "cmpswap_f": lambda o, d, c, w: d if real(o, w) == real(c, w) else o,
}
INTEGER = ("swap_b", "cmpswap_b", "add_u", "sub_u", "min_i", "min_u", "max_i", "max_u", "and_b", "or_b",
           "xor_b", "inc_u", "dec_u")  # fmt: skip
MEMORY = [f"{name}{bits}" for name in INTEGER for bits in (32, 64)]
MEMORY += ["csub_u32", "cmpswap_f32", "min_f32", "max_f32", "add_f32"]
LOCAL = [f"{name}{bits}" for name in (*INTEGER, "rsub_u", "mskor_b") for bits in (32, 64)]
LOCAL = [n.replace("cmpswap", "cmpstore").replace("swap", "storexchg") for n in LOCAL]
LOCAL += [f"{name}_f{bits}" for name in ("min", "max", "cmpstore") for bits in (32, 64)] + ["add_f32"]
ONLY_RETURNING = ("storexchg_b32", "storexchg_b64", "csub_u32")


def parse(name: str) -> tuple[Change, int, bool]:
    """Return what an atomic does, its width, and whether it works on floats."""
    operation, kind = name.rsplit("_", 1)
    operation = operation.replace("cmpstore", "cmpswap").replace("storexchg", "swap")
    operation = "condxchg" if operation.startswith("condxchg") else operation
    if operation in ("min", "max"):
        operation += f"_{kind[0]}"
    elif kind[0] == "f":
        operation += "_f"
    return CHANGES[operation], int(kind[1:]), kind[0] == "f"


FEW = 0xF0FF0FF5
"""The active lanes of each group of 32."""
AREA = 8 * PLACES
INTEGERS = [0, 1, 2, 5, 9, 1 << 30, 1 << 31, (1 << 31) - 1, (1 << 32) - 1, 0x80000001]
REALS = [0.0, 1.5, -2.25, 3e5, -7e-3, 100.0]


@dataclass(frozen=True)
class Column:
    """The numbers that atomics of one kind get: where memory starts, data, second operand."""

    start: Array
    data: Array
    second: Array


def columns(rows: int) -> dict[tuple[int, bool], Column]:
    """Return numbers by width and whether they are floats; a few values, so that compares meet."""
    rng = np.random.default_rng(6)
    wide = np.array([a << 32 | b for a in (0, 1, 1 << 31, (1 << 32) - 1) for b in INTEGERS[::3]], np.uint64)
    choices = {
        (32, False): np.array(INTEGERS, np.uint32),
        (64, False): wide,
        (32, True): np.array(REALS, np.float32).view(np.uint32),
        (64, True): np.array(REALS, np.float64).view(np.uint64),
    }
    return {key: Column(*(rng.choice(c, n) for n in (PLACES, rows, rows))) for key, c in choices.items()}


def expected(name: str, column: Column, active: list[bool]) -> tuple[list[int], list[int]]:
    """Return the values of the places afterwards, and what each lane saw."""
    change, width, _ = parse(name)
    memory, seen = [int(x) for x in column.start], []
    for lane, (d, c) in enumerate(zip(column.data.tolist(), column.second.tolist(), strict=True)):
        seen.append(memory[lane % PLACES])
        if active[lane]:
            memory[lane % PLACES] = change(seen[-1], d, c, width) & (1 << width) - 1
    return memory, seen


# Where the harness puts the numbers: v2 is the place, then data and second operand of each kind.
REGISTERS = {
    (32, False): ("v3", "v4", "v[3:4]"),
    (32, True): ("v5", "v6", "v[5:6]"),
    (64, False): ("v[7:8]", "v[9:10]", "v[7:10]"),
    (64, True): ("v[11:12]", "v[13:14]", "v[11:14]"),
}


def inputs(wave: int, numbers: dict[tuple[int, bool], Column]) -> list[Array]:
    """Return the input arrays of a batch in the order of REGISTERS."""
    place = np.arange(wave, dtype=np.uint32) % PLACES * 8
    return [place, *(array for key in REGISTERS for array in (numbers[key].data, numbers[key].second))]


def few(text: str, wave: int) -> str:
    narrow, wide = f"s_mov_b32 exec_lo, {FEW:#x}", "s_mov_b32 exec_lo, -1"
    if wave == 64:
        narrow, wide = f"{narrow}; s_mov_b32 exec_hi, {FEW:#x}", f"{wide}; s_mov_b32 exec_hi, -1"
    return f"{narrow}; {text}; {WAITS} vscnt(0); {wide}".replace(" vscnt(0)", "; s_waitcnt_vscnt null, 0x0")


def check(
    names: list[str],
    wave: int,
    numbers: dict[tuple[int, bool], Column],
    memory: Array,
    found: list[Array],
    kept: bool,
) -> None:
    """Compare the places of each atomic, and what came back; ``kept``: inactive lanes keep their register."""
    active = [bool(FEW >> lane % 32 & 1) for lane in range(wave)]
    for k, name in enumerate(names):
        _, width, is_float = parse(name)
        places, seen = expected(name, numbers[width, is_float], active)
        assert memory[k].view(f"u{width // 8}")[:: 64 // width].tolist() == places, name
        if k < len(found):
            for lane, words in enumerate(found[k].tolist()):
                got = words[0] | (words[1] << 32 if width == 64 else 0)
                if active[lane]:
                    assert got == seen[lane], (name, lane)
                elif kept:
                    assert words[0] == lane % PLACES * 8, (name, lane)


def starts(names: list[str], numbers: dict[tuple[int, bool], Column]) -> Array:
    """Return the memory before: a row of 64-bit places for each atomic."""
    return np.array([numbers[parse(name)[1:]].start.astype(np.uint64) for name in names])


def memory_operation(path: str, name: str, number: int, returning: bool) -> str:
    _, width, is_float = parse(name)
    first, _, both = REGISTERS[width, is_float]
    data = both if "cmpswap" in name else first
    target = "{d}, " if returning else ""
    glc = " glc" if returning else ""
    offset = AREA * number
    if path == "buffer":  # what it returns replaces its data
        moves = [f"v_mov_b32 v{40 + k}, v{int(data.strip('v[').split(':')[0]) + k}" for k in range(4)]
        moved = f"v[40:{39 + width // 32 * (2 if 'cmpswap' in name else 1)}]"
        moved = "v40" if moved == "v[40:40]" else moved
        setup = "; ".join(moves[: width // 16])
        return f"{setup}; buffer_atomic_{name} {moved}, v2, s[24:27], 0 offen offset:{offset}{glc}"
    if path == "global":
        return f"global_atomic_{name} {target}v2, {data}, s[20:21] offset:{offset}{glc}"
    address = f"v_add_nc_u32 v30, {DATA:#x}, v2; v_mov_b32 v31, 0"
    off = ", off" if path == "global off" else ""
    return f"{address}; {path.split()[0]}_atomic_{name} {target}v[30:31], {data}{off} offset:{offset}{glc}"


FAMILIES = ("global", "flat", "buffer")
NO_CSUB = [name for name in MEMORY if not name.startswith("csub")]


@covers(*(f"{family}_atomic_{name}" for family in FAMILIES for name in NO_CSUB))
@covers("global_atomic_csub_u32", "buffer_atomic_csub_u32")
@pytest.mark.parametrize("wave", EITHER_WAVE)
@pytest.mark.parametrize("path", ["global", "global off", "flat", "buffer"])
def test_atomics_on_memory(amd: Executor, path: str, wave: int) -> None:
    names = NO_CSUB if path == "flat" else MEMORY
    silent = [name for name in NO_CSUB if wave == 32]
    numbers = columns(wave)
    memory = starts([*names, *silent], numbers)
    operations = []
    for k, name in enumerate([*names, *silent]):
        returning = k < len(names)
        text = memory_operation(path, name, k, returning)
        if not returning or path != "buffer":
            operations.append(Op(few(text, wave), parse(name)[1] // 32, start=0))
            continue
        setup, atomic = text.rsplit("; ", 1)
        operations.append(Op(f"{setup}; {few(atomic, wave)}", parse(name)[1] // 32))
    before = [f"s_mov_b32 s20, {DATA:#x}", "s_mov_b32 s21, 0", "s_mov_b64 s[24:25], s[20:21]",
              "s_mov_b32 s26, 0x10000", "s_mov_b32 s27, 0x30000000"]  # fmt: skip
    found = batch(amd, operations, inputs(wave, numbers), wave=wave, before=before, arrays={DATA: memory})
    check([*names, *silent], wave, numbers, memory, found[: len(names)], path != "buffer")


@covers(*(f"ds_{name.replace('_', '_rtn_', 1)}" for name in LOCAL))
@covers(*(f"ds_{name}" for name in LOCAL if not name.startswith("storexchg")))
@covers("ds_wrap_rtn_b32", "ds_condxchg32_rtn_b64")
@pytest.mark.parametrize("wave", [32, 64])
def test_atomics_on_local_memory(amd: Executor, wave: int) -> None:
    names = [*LOCAL, "wrap_b32", "condxchg32_b64"]
    silent = [name for name in LOCAL if wave == 32 and not name.startswith("storexchg")]
    numbers = columns(wave)
    every = [*names, *silent]
    memory = starts(every, numbers)
    operations = []
    for k, name in enumerate(every):
        _, width, is_float = parse(name)
        returning = k < len(names)
        first, second, _ = REGISTERS[width, is_float]
        two = name.startswith(("cmpstore", "mskor", "wrap"))
        operation, kind = name.rsplit("_", 1)
        text = f"ds_{operation}{'_rtn' if returning else ''}_{kind} {'{d}, ' if returning else ''}v2, {first}"
        text += f"{f', {second}' if two else ''} offset:{AREA * k}"
        operations.append(Op(few(text, wave), width // 32, start=0))
    size = AREA * len(every)
    lane = ["v_mbcnt_lo_u32_b32 v39, -1, 0", *(["v_mbcnt_hi_u32_b32 v39, -1, v39"] if wave == 64 else [])]
    before = [*lane, f"s_mov_b32 s20, {DATA:#x}", "s_mov_b32 s21, 0", "v_lshlrev_b32 v38, 3, v39"]
    back = []
    copies = -(-size // (8 * wave))
    for k in range(copies):
        address = f"v_add_nc_u32 v37, {8 * wave * k}, v38"
        before += [address, "global_load_b64 v[35:36], v37, s[20:21]", WAITS, "ds_store_b64 v37, v[35:36]"]
        back += [address, "ds_load_b64 v[35:36], v37", WAITS, "global_store_b64 v37, v[35:36], s[20:21]"]
    operations.append(Op("; ".join([*back, "v_mov_b32 {d}, 0"])))
    rest = np.zeros((copies * wave // PLACES - len(every), PLACES), np.uint64)
    memory = np.concatenate([memory, rest])
    found = batch(
        amd,
        operations,
        inputs(wave, numbers),
        wave=wave,
        before=before,
        arrays={DATA: memory},
        lds_bytes=8192,
    )
    check(every, wave, numbers, memory, found[: len(names)], True)


@covers("flat_atomic_add_u32", "flat_atomic_add_u64")
def test_flat_atomics_reach_local_and_private_memory(amd: Executor) -> None:
    lines = [
        "v_mov_b32 v30, 0x20; v_mov_b32 v32, 5; v_mov_b32 v33, 0; s_mov_b64 s[20:21], src_shared_base",
        "v_mov_b32 v31, s21; ds_store_b64 v30, v[32:33]",
        f"{WAITS}; flat_atomic_add_u64 v[40:41], v[30:31], v[32:33] glc; {WAITS}",
        "s_mov_b64 s[20:21], src_private_base; v_mov_b32 v31, s21; scratch_store_b32 off, {0}, off offset:32",
        f"flat_atomic_add_u32 v[30:31], {{0}}; {WAITS}; scratch_load_b32 v42, off, off offset:32; {WAITS}",
    ]
    lanes = np.arange(32, dtype=np.uint32)
    (words,) = batch(amd, [Op("; ".join(lines), 3)], [lanes])
    assert words.tolist() == [[5 + 5 * k, 0, 2 * k] for k in range(32)]


def test_a_64_bit_atomic_on_private_memory_is_a_fault(amd: Executor) -> None:
    lines = [
        "s_mov_b64 s[20:21], src_private_base",
        "v_mov_b32 v30, 8",
        "v_mov_b32 v31, s21",
        "v_mov_b32 v32, 1",
    ]
    lines += ["v_mov_b32 v33, 0", "flat_atomic_add_u64 v[30:31], v[32:33]", "s_endpgm"]
    report = run(amd, lines, Memory())
    assert report is not None and report.kind == "memory" and report.address == 8


def test_atomics_of_many_groups_lose_nothing(amd: Executor) -> None:
    lines = [
        "s_load_b64 s[4:5], s[0:1], 0x0", "v_mov_b32 v1, 1", "v_mov_b32 v2, 0", "s_movk_i32 s6, 200",
        "s_waitcnt lgkmcnt(0)", "again:", "global_atomic_add_u32 v2, v1, s[4:5]", "s_sub_i32 s6, s6, 1",
        "s_cmp_lg_u32 s6, 0", "s_cbranch_scc1 @again", "s_endpgm",
    ]  # fmt: skip
    memory, out = Memory(), np.zeros(1, np.uint32)
    memory.add(0x1000_0000, np.array([DATA], np.uint64))
    memory.add(DATA, out)
    assert run(amd, lines, memory, groups=(64, 1, 1), local=(256, 1, 1)) is None
    assert out[0] == 200 * 64 * 256
