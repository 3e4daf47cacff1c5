"""Local memory (DS) and private memory (scratch): every width, bounds, and the flat way to both."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.harness import EITHER_WAVE, Array, Memory, Op, batch, code, covers, dispatch, run
from virtual.isa.rdna.test_rdna_memory import LOADS, M32, STORES, few, loaded, size_of

LDS = 4096
WAIT = "s_waitcnt lgkmcnt(0)"
SCRATCH = 1024

DS_LOADS = {"u8": "u8", "i8": "i8", "u16": "u16", "i16": "i16", "b32": "b32", "b64": "b64", "b96": "b96",
            "b128": "b128", "u8_d16": "d16_u8", "u8_d16_hi": "d16_hi_u8", "i8_d16": "d16_i8",
            "i8_d16_hi": "d16_hi_i8", "u16_d16": "d16_b16", "u16_d16_hi": "d16_hi_b16"}  # fmt: skip
DS_STORES = {"b8": "b8", "b16": "b16", "b32": "b32", "b64": "b64", "b96": "b96", "b128": "b128",
             "b8_d16_hi": "d16_hi_b8", "b16_d16_hi": "d16_hi_b16"}  # fmt: skip


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    """An executor that does what hardware does with accesses beyond local memory."""
    executor = Executor(cache_dir=tmp_path_factory.mktemp("cache"), threads=1, strict=False)
    yield executor
    executor.close()


def fill(wave: int = 32) -> list[str]:
    """Return code that fills local memory with dwords: 0x01010101 times a number that is not linear."""
    lines = ["v_mbcnt_lo_u32_b32 v10, -1, 0"]
    lines += ["v_mbcnt_hi_u32_b32 v10, -1, v10"] if wave == 64 else []
    for k in range(LDS // 4 // wave):
        lines += [
            f"v_add_nc_u32 v11, {k * wave}, v10",
            "v_mul_lo_u32 v12, v11, 0x9e3779b1",
            "v_lshlrev_b32 v11, 2, v11",
            "ds_store_b32 v11, v12",
        ]
    return [*lines, WAIT]


def filled() -> Array:
    return (np.arange(LDS // 4, dtype=np.uint64) * 0x9E3779B1).astype(np.uint32).view(np.uint8)


def offsets(wave: int, step: int) -> Array:
    """Return offsets of four waves: side by side, unaligned, one place, anywhere."""
    lanes = np.arange(wave)
    scattered = np.random.default_rng(5).permutation(LDS // 32 - 1)[:wave] * 32 + lanes % 7
    rows = [lanes * step, lanes * step + 3, np.full(wave, 68), scattered]
    return np.concatenate(rows).astype(np.uint32)


@covers(*(f"ds_load_{kind}" for kind in DS_LOADS))
@pytest.mark.parametrize("wave", [32, 64])
def test_ds_loads(amd: Executor, wave: int) -> None:
    data = filled()
    for step, kinds in ((1, list(DS_LOADS)[:4]), (4, ["b32"]), (16, list(DS_LOADS)[5:])):
        places = offsets(wave, step)
        old = np.arange(len(places), dtype=np.uint32) * 0x10001
        operations = []
        for kind in kinds:
            dwords = max(1, size_of(DS_LOADS[kind]) // 4)
            text = f"ds_load_{kind} {{d}}, {{0}} offset:5; {WAIT}"
            operations += [Op(text, dwords, start=1), Op(few(text, wave), dwords, start=1)]
        found = batch(amd, operations, [places, old], wave=wave, before=fill(wave))
        for k, kind in enumerate(kinds):
            wanted = [
                loaded(DS_LOADS[kind], data, int(at) + 5, int(o)) for at, o in zip(places, old, strict=True)
            ]
            assert found[2 * k].tolist() == wanted, kind
            for lane, words in enumerate(found[2 * k + 1].tolist()):
                if 0x0FF0F00F >> lane % 32 & 1:
                    assert words == wanted[lane], kind
                else:
                    assert words[0] == old[lane], kind


def dumped(wave: int, area: int = LDS) -> str:
    """Return code that stores local memory to the array at s[20:21], whole dwords side by side."""
    lines = ["v_mbcnt_lo_u32_b32 v10, -1, 0"]
    lines += ["v_mbcnt_hi_u32_b32 v10, -1, v10"] if wave == 64 else []
    lines += ["v_lshlrev_b32 v10, 2, v10", WAIT]
    for k in range(area // 4 // wave):
        lines += [
            f"v_add_nc_u32 v11, {4 * k * wave}, v10",
            "ds_load_b32 v12, v11",
            WAIT,
            "global_store_b32 v11, v12, s[20:21]",
        ]
    return "; ".join(lines)


DUMP = 0x4000_0000
TO_DUMP = [f"s_mov_b32 s20, {DUMP:#x}", "s_mov_b32 s21, 0"]


@covers(*(f"ds_store_{kind}" for kind in DS_STORES))
@pytest.mark.parametrize("wave", EITHER_WAVE)
def test_ds_stores(amd: Executor, wave: int) -> None:
    rng = np.random.default_rng(9)
    columns = [rng.integers(0, 1 << 32, wave).astype(np.uint32) for _ in range(4)]
    for kind, name in DS_STORES.items():
        size = size_of(name)
        places = offsets(wave, size)  # each of its waves is a group
        register = "v30" if size <= 4 else f"v[30:{29 + size // 4}]"
        lines = [f"v_mov_b32 v{30 + k}, {{{1 + k}}}" for k in range(4)]
        lines += [few(f"ds_store_{kind} {{0}}, {register} offset:5", wave), dumped(wave), "v_mov_b32 {d}, 0"]
        data = np.zeros((4, LDS), np.uint8)
        before = [*TO_DUMP, f"s_mul_i32 s9, s8, {LDS}", "s_add_u32 s20, s20, s9", *fill(wave)]
        inputs = [places, *(np.tile(column, 4) for column in columns)]
        batch(amd, [Op("; ".join(lines))], inputs, wave=wave, before=before, arrays={DUMP: data})
        for pattern in (0, 1, 3):  # in pattern 2 all lanes store at one place
            wanted = filled().copy()
            for lane, at in enumerate(places[wave * pattern : wave * (pattern + 1)]):
                value = sum(int(c[lane]) << 32 * k for k, c in enumerate(columns))
                value >>= 16 if "d16_hi" in kind else 0
                if 0x0FF0F00F >> lane % 32 & 1:
                    new = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
                    wanted[at + 5 : at + 5 + size] = np.frombuffer(new, np.uint8)
            assert data[pattern].tolist() == wanted.tolist(), (kind, pattern)


@covers(*(f"ds_load_2addr{stride}_{kind}" for stride in ("", "_stride64") for kind in ("b32", "b64")))
def test_ds_load_2addr_counts_offsets_in_elements(amd: Executor) -> None:
    words = filled().view(np.uint32)
    places = np.arange(32, dtype=np.uint32) * 8
    operations = []
    for kind, stride in (("b32", ""), ("b64", ""), ("b32", "_stride64"), ("b64", "_stride64")):
        dwords = 2 if kind == "b32" else 4
        text = f"ds_load_2addr{stride}_{kind} {{d}}, {{0}} offset0:3 offset1:1; {WAIT}"
        operations.append(Op(text, dwords))
    found = batch(amd, operations, [places], before=fill())
    for operation, values in zip(operations, found, strict=True):
        unit = (64 if "stride64" in operation.text else 1) * (2 if "b64" in operation.text else 1)
        width = operation.dwords // 2
        for lane in range(32):
            wanted = [words[2 * lane + unit * o + k] for o in (3, 1) for k in range(width)]
            assert values[lane].tolist() == wanted, operation.text


@covers(*(f"ds_store_2addr{stride}_{kind}" for stride in ("", "_stride64") for kind in ("b32", "b64")))
def test_ds_store_2addr_counts_offsets_in_elements(amd: Executor) -> None:
    values = [np.arange(32, dtype=np.uint32) + 1000 * k for k in range(1, 5)]
    places = np.arange(32, dtype=np.uint32) * 4
    for kind, stride in (("b32", ""), ("b64", ""), ("b32", "_stride64"), ("b64", "_stride64")):
        lines = [f"v_mov_b32 v{30 + k}, {{{1 + k}}}" for k in range(4)]
        lines += [f"v_lshlrev_b32 v34, {1 if kind == 'b64' else 0}, {{0}}"]
        first, second = ("v30", "v31") if kind == "b32" else ("v[30:31]", "v[32:33]")
        lines += [
            f"ds_store_2addr{stride}_{kind} v34, {first}, {second} offset0:2 offset1:{1 if stride else 40}"
        ]
        data = np.zeros(LDS, np.uint32)
        operation = Op("; ".join([*lines, dumped(32), "v_mov_b32 {d}, 0"]))
        batch(amd, [operation], [places, *values], before=[*TO_DUMP, *fill()], arrays={DUMP: data})
        wanted = filled().view(np.uint32).copy()
        width, unit = (1, 1) if kind == "b32" else (2, 2)
        unit *= 64 if stride else 1
        for lane in range(32):
            for k in range(2):
                at = lane * width + unit * (2, 1 if stride else 40)[k]
                wanted[at : at + width] = [values[k * width + j][lane] for j in range(width)]
        assert data[: LDS // 4].tolist() == wanted.tolist(), (kind, stride)


@covers("ds_storexchg_2addr_rtn_b32", "ds_storexchg_2addr_rtn_b64")
@covers("ds_storexchg_2addr_stride64_rtn_b32", "ds_storexchg_2addr_stride64_rtn_b64")
@pytest.mark.parametrize("stride", ["", "_stride64"])
@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_ds_storexchg_2addr_returns_what_was_there(amd: Executor, kind: str, stride: str) -> None:
    values = [np.arange(32, dtype=np.uint32) + 1000 * k for k in range(1, 5)]
    width = 1 if kind == "b32" else 2
    places = np.arange(32, dtype=np.uint32) * (4 * width if stride else 8 * width)
    lines = [f"v_mov_b32 v{30 + k}, {{{1 + k}}}" for k in range(4)]
    first, second = ("v30", "v31") if kind == "b32" else ("v[30:31]", "v[32:33]")
    lines += [
        f"ds_storexchg_2addr{stride}_rtn_{kind} {{d}}, {{0}}, {first}, {second} offset0:0 offset1:1",
        WAIT,
    ]
    again = f"ds_load_2addr{stride}_{kind} {{d}}, {{0}} offset0:0 offset1:1; {WAIT}"
    operations = [Op("; ".join(lines), 2 * width), Op(again, 2 * width)]
    old, new = batch(amd, operations, [places, *values], before=fill())
    words = filled().view(np.uint32)
    unit = width * (64 if stride else 1)
    for lane in range(32):
        at = int(places[lane]) // 4
        assert old[lane].tolist() == [words[at + o * unit + k] for o in (0, 1) for k in range(width)]
        assert new[lane].tolist() == [values[k][lane] for k in range(2 * width)]


@covers("ds_load_addtid_b32", "ds_store_addtid_b32")
def test_ds_addtid_adds_m0_and_four_times_the_lane(amd: Executor) -> None:
    words = filled().view(np.uint32)
    operations = [
        Op(f"s_mov_b32 m0, 16; ds_load_addtid_b32 {{d}} offset:8; {WAIT}"),
        Op(f"ds_store_addtid_b32 {{0}} offset:128; ds_load_b32 {{d}}, {{1}} offset:144; {WAIT}"),
    ]
    values = np.arange(32, dtype=np.uint32) + 77
    found = batch(amd, operations, [values, np.arange(32, dtype=np.uint32) * 4], before=fill())
    assert found[0][:, 0].tolist() == words[6:38].tolist()
    assert found[1][:, 0].tolist() == values.tolist()


@covers("ds_append", "ds_consume")
def test_append_and_consume_count_the_active_lanes(amd: Executor) -> None:
    lines = [
        "s_mov_b32 m0, 0x00400000; v_mov_b32 v30, 0x48; v_mov_b32 v31, 100; ds_store_b32 v30, v31",
        f"s_waitcnt lgkmcnt(0); s_mov_b32 exec_lo, 0xff; ds_append v40 offset:8; {WAIT}",
        f"s_mov_b32 exec_lo, 0x7; ds_consume v41 offset:8; {WAIT}; s_mov_b32 exec_lo, -1",
        f"ds_load_b32 v42, v30; {WAIT}",
    ]
    (words,) = batch(amd, [Op("; ".join(lines), 3)], [np.zeros(32, np.uint32)])
    assert words[0].tolist() == [100, 108, 105]


@pytest.mark.parametrize("strict", [True, False])
def test_an_address_and_its_offset_are_added_in_32_bits(
    amd: Executor, lenient: Executor, strict: bool
) -> None:
    """LLVM reads ``shared[63 - i]`` at -4 i with offset 252."""
    words = filled().view(np.uint32)
    addresses = (-4 * np.arange(32)).astype(np.uint32)
    operations = [
        Op(f"ds_load_b32 {{d}}, {{0}} offset:252; {WAIT}"),
        Op(f"ds_load_2addr_b32 {{d}}, {{0}} offset0:63 offset1:64; {WAIT}", 2),
        Op(f"v_mov_b32 v30, 5; ds_add_rtn_u32 {{d}}, {{0}}, v30 offset:512; {WAIT}"),
        Op(
            "v_mov_b32 v30, 9; ds_store_b32 {0}, v30 offset:1024; "
            f"ds_load_b32 {{d}}, {{0}} offset:1024; {WAIT}"
        ),
    ]
    found = batch(amd if strict else lenient, operations, [addresses], before=fill())
    lanes = np.arange(32)
    assert found[0][:, 0].tolist() == words[63 - lanes].tolist()
    assert found[1].tolist() == np.stack([words[63 - lanes], words[64 - lanes]], axis=1).tolist()
    assert found[2][:, 0].tolist() == words[128 - lanes].tolist()
    assert found[3][:, 0].tolist() == [9] * 32


OUTSIDE = {
    "ds_load_b32 {d}, {0}": 4,
    "ds_load_u8 {d}, {0}": 1,
    "ds_load_b32 {d}, {0} offset:16": 4,
}


def test_loads_beyond_local_memory_give_zero(lenient: Executor) -> None:
    words = filled().view(np.uint32)
    places = np.array([0, LDS - 20, LDS - 4, LDS - 3, LDS, LDS + 4, 0x7FFFFFFC, 0xFFFFFFF0] * 4, np.uint32)
    operations = [Op(f"{text}; {WAIT}") for text in OUTSIDE]
    found = batch(lenient, operations, [places], before=fill())
    raw = filled()
    for (text, size), got in zip(OUTSIDE.items(), found, strict=True):
        add = 16 if "offset" in text else 0
        for at, value in zip(places.tolist(), got[:, 0].tolist(), strict=True):
            place = at + add & M32
            inside = place + size <= LDS
            wanted = int.from_bytes(raw[place : place + size].tobytes(), "little") if inside else 0
            assert value == wanted, (text, hex(at))
    assert words[0] == 0


def test_stores_and_atomics_beyond_local_memory_do_nothing(lenient: Executor) -> None:
    places = np.array([LDS, LDS - 3, 0xFFFFFFF0, 8] * 8, np.uint32)
    text = "v_mov_b32 v30, -1; ds_store_b32 {0}, v30; ds_add_u32 {0}, v30; ds_store_b8 {0}, v30 offset:65535"
    data = np.zeros(LDS, np.uint8)
    operation = Op(f"{text}; {dumped(32)}; v_mov_b32 {{d}}, 0")
    batch(lenient, [operation], [places], before=[*TO_DUMP, *fill()], arrays={DUMP: data})
    wanted = filled().copy()
    wanted[8:12].view(np.uint32)[0] = M32 - 8
    assert data.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    "text",
    [
        "ds_load_b32 v20, v10",
        "ds_store_b8 v10, v11",
        "ds_add_u32 v10, v11",
        "ds_load_2addr_b32 v[20:21], v10",
    ],
)
def test_strict_mode_reports_accesses_beyond_local_memory(amd: Executor, text: str) -> None:
    lines = ["v_mov_b32 v12, 0x1000", "v_mov_b32 v11, 1", "v_cmp_eq_u32 vcc_lo, 7, v0"]
    lines += ["v_cndmask_b32 v10, 0, v12, vcc_lo", text, "s_endpgm"]
    report = run(amd, lines, Memory())
    assert report is not None
    assert (report.kind, report.lane, report.address) == ("memory", 7, LDS)
    assert report.instruction == text and "local memory" in report.message


def test_group_memory_is_shared_by_waves_and_new_for_each_group(amd: Executor) -> None:
    lines = [
        "v_lshlrev_b32 v1, 2, v0",
        "ds_store_b32 v1, v0",
        "s_waitcnt lgkmcnt(0)",
        "s_barrier",
        "v_xor_b32 v2, 0xfc, v1",
        "ds_load_b32 v3, v2",
        f"s_mul_i32 s9, s8, {64 * 4}",
        "s_load_b64 s[4:5], s[0:1], 0x0",
        "s_waitcnt lgkmcnt(0)",
        "v_add_nc_u32 v1, s9, v1",
        "global_store_b32 v1, v3, s[4:5]",
        "s_endpgm",
    ]
    memory, out = Memory(), np.zeros((3, 64), np.uint32)
    memory.add(0x1000_0000, np.array([0x3000_0000], np.uint64))
    memory.add(0x3000_0000, out)
    assert run(amd, lines, memory, groups=(3, 1, 1), local=(64, 1, 1), rsrc2=8 << 1 | 7 << 7) is None
    assert out.tolist() == [list(range(63, -1, -1))] * 3


# --- private memory ---


def private_fill(wave: int) -> list[str]:
    """Return code that fills the private memory of each lane: dword k holds k * 0x9E3779B1 + lane."""
    lines = ["v_mbcnt_lo_u32_b32 v10, -1, 0"]
    lines += ["v_mbcnt_hi_u32_b32 v10, -1, v10"] if wave == 64 else []
    for k in range(32):
        lines += [
            f"v_add_nc_u32 v11, {k * 0x9E3779B1 & M32:#x}, v10",
            f"scratch_store_b32 off, v11, off offset:{4 * k}",
        ]
    return lines


def private(lane: int) -> Array:
    return ((np.arange(32, dtype=np.uint64) * 0x9E3779B1 + lane) & M32).astype(np.uint32).view(np.uint8)


SCRATCH_PATHS = ("off", "saddr", "vaddr", "both", "flat")


def private_access(path: str, kind: str, register: str, at: int) -> str:
    """Return a scratch access at ``at`` plus, where lanes have addresses, the input {0}."""
    store = kind.startswith("store")
    vector, scalar, offset = {
        "off": ("off", "off", at),
        "saddr": ("off", "s28", at - 40),
        "vaddr": ("{0}", "off", at),
        "both": ("{0}", "s28", at - 40),
        "flat": ("{1}", "", at),
    }[path]
    first, second = (vector, register) if store else (register, vector)
    if path == "flat":
        return f"flat_{kind} {first}, {second} offset:{offset}"
    return f"s_mov_b32 s28, 40; scratch_{kind} {first}, {second}, {scalar} offset:{offset}"


@covers(*(f"scratch_load_{kind}" for kind in LOADS))
@pytest.mark.parametrize("wave", EITHER_WAVE)
@pytest.mark.parametrize("path", SCRATCH_PATHS)
def test_scratch_loads(amd: Executor, path: str, wave: int) -> None:
    moves = np.random.default_rng(3).integers(0, 40, wave).astype(np.uint32)
    if path in ("off", "saddr"):
        moves[:] = 0
    old = np.arange(wave, dtype=np.uint32) * 0x10001
    # private_base is the upper half of an address into the private aperture
    base = ["s_mov_b64 s[20:21], src_private_base"]
    for at in (48, 49, 51):
        operations = []
        kinds = LOADS if at == 48 else LOADS[::3]
        for kind in kinds:
            dwords = max(1, size_of(kind) // 4)
            text = (
                f"v_mov_b32 v30, {{0}}; v_mov_b32 v31, s21; {private_access(path, f'load_{kind}', '{d}', at)}"
            )
            text = text.replace("{1}", "v[30:31]")
            operations.append(Op(few(f"{text}; s_waitcnt vmcnt(0) lgkmcnt(0)", wave), dwords, start=1))
        found = batch(amd, operations, [moves, old], wave=wave, before=[*base, *private_fill(wave)])
        for kind, words in zip(kinds, found, strict=True):
            for lane in range(wave):
                if 0x0FF0F00F >> lane % 32 & 1:
                    wanted = loaded(kind, private(lane), at + int(moves[lane]), int(old[lane]))
                    assert words[lane].tolist() == wanted, (kind, lane, at)
                else:
                    assert words[lane, 0] == old[lane]


@covers(*(f"scratch_store_{kind}" for kind in STORES))
@pytest.mark.parametrize("wave", EITHER_WAVE)
@pytest.mark.parametrize("path", SCRATCH_PATHS)
def test_scratch_stores(amd: Executor, path: str, wave: int) -> None:
    rng = np.random.default_rng(3)
    moves = rng.integers(0, 5, wave).astype(np.uint32)
    if path in ("off", "saddr"):
        moves[:] = 0
    columns = [rng.integers(0, 1 << 32, wave).astype(np.uint32) for _ in range(4)]
    operations = []
    cases = [(kind, at) for kind in STORES for at in ((48, 49, 51) if kind in STORES[1:4] else (48,))]
    for kind, at in cases:
        size = size_of(kind)
        register = "v32" if size <= 4 else f"v[32:{31 + size // 4}]"
        store = private_access(path, f"store_{kind}", register, at).replace("{1}", "v[30:31]")
        lines = [
            "v_mov_b32 v30, {0}",
            "v_mov_b32 v31, s21",
            *(f"v_mov_b32 v{32 + k}, {{{1 + k}}}" for k in range(4)),
        ]
        lines += [
            few(store, wave),
            *(f"scratch_load_b32 v{40 + k}, off, off offset:{44 + 4 * k}" for k in range(8)),
        ]
        lines += ["s_waitcnt vmcnt(0)"]
        for k in range(8):
            lines += [f"v_add_nc_u32 v50, {(11 + k) * 0x9E3779B1 & M32:#x}, v10"]
            lines += [f"scratch_store_b32 off, v50, off offset:{44 + 4 * k}"]
        operations.append(Op("; ".join(lines), 8))
    before = ["s_mov_b64 s[20:21], src_private_base", *private_fill(wave)]
    found = batch(amd, operations, [moves, *columns], wave=wave, before=before)
    for (kind, at), words in zip(cases, found, strict=True):
        size = size_of(kind)
        for lane in range(wave):
            wanted = private(lane).copy()
            value = sum(int(c[lane]) << 32 * k for k, c in enumerate(columns)) >> (16 if "hi" in kind else 0)
            if 0x0FF0F00F >> lane % 32 & 1:
                start = at + int(moves[lane])
                new = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
                wanted[start : start + size] = np.frombuffer(new, np.uint8)
            assert words[lane].tolist() == wanted[44:76].view(np.uint32).tolist(), (kind, at, lane)


@pytest.mark.parametrize(
    "text",
    [
        f"scratch_load_b32 v20, off, off offset:{SCRATCH}",
        f"scratch_load_b64 v[20:21], off, off offset:{SCRATCH - 4}",
        "scratch_store_b8 v10, v11, off",
        "scratch_load_u8 v20, off, s20",
        "flat_load_b32 v20, v[10:11]",
    ],
)
def test_accesses_beyond_private_memory_are_faults(amd: Executor, text: str) -> None:
    lines = [f"v_mov_b32 v10, {SCRATCH}", "s_mov_b64 s[20:21], src_private_base", "v_mov_b32 v11, s21"]
    lines += [f"s_mov_b32 s20, {SCRATCH}", text, "s_endpgm"]
    report = run(amd, lines, Memory(), scratch_bytes=SCRATCH)
    assert report is not None and report.kind == "memory" and "private memory" in report.message
    assert report.instruction == text


def test_every_work_item_has_private_memory_of_its_own_across_barriers(amd: Executor) -> None:
    lines = [
        "scratch_store_b32 off, v0, off offset:4",
        "s_barrier",
        "scratch_load_b32 v1, off, off offset:4",
        "s_load_b64 s[4:5], s[0:1], 0x0",
        "v_lshlrev_b32 v2, 2, v0",
        "s_waitcnt vmcnt(0) lgkmcnt(0)",
        "global_store_b32 v2, v1, s[4:5]",
        "s_endpgm",
    ]
    memory, out = Memory(), np.zeros(256, np.uint32)
    memory.add(0x1000_0000, np.array([0x3000_0000], np.uint64))
    memory.add(0x3000_0000, out)
    assert run(amd, lines, memory, local=(256, 1, 1), rsrc2=8 << 1, scratch_bytes=8) is None
    assert out.tolist() == list(range(256))


# --- flat addresses ---


@covers("flat_load_b32", "flat_store_b32", "flat_load_b64")
def test_flat_lanes_may_go_to_global_local_and_private_memory_at_once(amd: Executor) -> None:
    data = np.arange(100, 164, dtype=np.uint32)
    kind = np.arange(32, dtype=np.uint32) % 3
    lines = [
        "s_mov_b64 s[22:23], src_shared_base; s_mov_b64 s[24:25], src_private_base",
        f"v_mov_b32 v30, {DUMP:#x}; v_mov_b32 v31, 0; v_lshlrev_b32 v32, 2, {{1}}",
        "v_cmp_eq_u32 vcc_lo, 1, {0}; v_mov_b32 v33, s23; v_cndmask_b32 v31, v31, v33, vcc_lo",
        "v_cndmask_b32 v30, v30, v34, vcc_lo; v_cmp_eq_u32 vcc_lo, 2, {0}; v_mov_b32 v33, s25",
        "v_cndmask_b32 v31, v31, v33, vcc_lo; v_cndmask_b32 v30, v30, v34, vcc_lo",
        "v_add_nc_u32 v30, v30, v32",
        f"flat_load_b64 v[40:41], v[30:31]; {WAIT} vmcnt(0)",
        f"flat_store_b32 v[30:31], {{1}} offset:4; flat_load_b32 v42, v[30:31] offset:4; {WAIT} vmcnt(0)",
    ]
    lanes = np.arange(32, dtype=np.uint32)
    operation = Op("v_mov_b32 v34, 0; " + "; ".join(lines), 3)
    before = [*fill(), *private_fill(32)]
    # Lanes go to places two apart, so that no store meets another lane's load.
    (words,) = batch(amd, [operation], [kind, lanes * 2 % 31], before=before, arrays={DUMP: data})
    local = filled().view(np.uint32)
    for lane in range(32):
        at = int(lanes[lane] * 2 % 31)
        memory = {0: np.arange(100, 164), 1: local, 2: private(lane).view(np.uint32)}[int(kind[lane])]
        assert words[lane].tolist() == [memory[at], memory[at + 1], at], lane


def test_flat_accesses_beyond_local_memory_read_zero(lenient: Executor) -> None:
    places = np.array([0, 8, LDS, LDS + 100] * 8, np.uint32)
    text = f"v_mov_b32 v30, {{0}}; v_mov_b32 v31, s21; flat_load_b32 {{d}}, v[30:31]; {WAIT} vmcnt(0)"
    before = ["s_mov_b64 s[20:21], src_shared_base", *fill()]
    (words,) = batch(lenient, [Op(text)], [places], before=before)
    local = filled().view(np.uint32)
    assert words[:, 0].tolist() == [local[0], local[2], 0, 0] * 8


def test_local_memory_of_the_descriptor_counts_in_512_bytes() -> None:
    launch = dispatch(code(("s_endpgm",)), lds_bytes=None, rsrc2=8 << 1 | 3 << 15)
    assert launch.shared_bytes == 1536
