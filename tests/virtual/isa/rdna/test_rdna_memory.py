"""Loads and stores of every width through every path to memory, against the bytes of an array."""

from __future__ import annotations

import numpy as np
import pytest

from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.harness import SLOW, Array, Memory, Op, batch, covers, run

DATA = 0x4000_0000
AREA = 4096
"""Bytes that one wave may touch."""
FEW = 0x0FF0F00F_0FF0F00F
"""Active lanes of the tests where not all are."""
M32 = 0xFFFFFFFF

LOADS = ("u8", "i8", "u16", "i16", "b32", "b64", "b96", "b128", "d16_u8", "d16_i8", "d16_b16",
         "d16_hi_u8", "d16_hi_i8", "d16_hi_b16")  # fmt: skip
STORES = ("b8", "b16", "b32", "b64", "b96", "b128", "d16_hi_b8", "d16_hi_b16")
FAMILIES = ("global", "flat", "buffer")
PATHS = ("global", "global off", "flat", "buffer")
CASES = [(path, 32) for path in PATHS] + [("global", 64)]
CASES += [pytest.param(path, 64, marks=SLOW) for path in PATHS[1:]]
BEFORE = [
    f"s_mov_b32 s20, {DATA:#x}",
    "s_mov_b32 s21, 0",
    f"s_mov_b32 s24, {DATA:#x}",
    "s_mov_b32 s25, 0",
    "s_mov_b32 s26, 0x100000",
    "s_mov_b32 s27, 0x30000000",  # OOB_SELECT 3: the offset counts against the size
]
WAITS = "s_waitcnt vmcnt(0) lgkmcnt(0)"


def access(path: str, kind: str, register: str, offset: str = "{0}", address: str = "{1}") -> str:
    """Return the assembly of ``load_u8``, ``store_b32``, ...; five bytes are added to the address."""
    if path == "buffer":
        return f"buffer_{kind} {register}, {offset}, s[24:27], 0 offen offset:5"
    place = offset if path == "global" else address
    first, second = (place, register) if kind.startswith("store") else (register, place)
    rest = {"global": ", s[20:21]", "global off": ", off", "flat": ""}[path]
    return f"{path.split()[0]}_{kind} {first}, {second}{rest} offset:5"


def size_of(kind: str) -> int:
    """Return the bytes of a load or store."""
    return int(kind.rsplit("_", 1)[-1][1:]) // 8


def loaded(kind: str, data: Array, at: int, old: int) -> list[int]:
    """Return the dwords that a load leaves in a register that held ``old``."""
    size = size_of(kind)
    value = int.from_bytes(data[at : at + size].tobytes(), "little")
    if kind.rsplit("_", 1)[-1][0] == "i":
        value = (value ^ 1 << 8 * size - 1) - (1 << 8 * size - 1) & M32
    if kind.startswith("d16_hi"):
        return [old & 0xFFFF | (value & 0xFFFF) << 16]
    if kind.startswith("d16"):
        return [old & 0xFFFF0000 | value & 0xFFFF]
    return [value >> 32 * k & M32 for k in range(max(1, size // 4))]


def places(wave: int, step: int) -> Array:
    """Return offsets of five waves: side by side, the same unaligned, one place, anywhere, backwards."""
    lanes = np.arange(wave)
    scattered = np.random.default_rng(5).permutation(AREA // 32 - 1)[:wave] * 32 + lanes % 7
    rows = [lanes * step, lanes * step + 3, np.full(wave, 68), scattered, (wave - 1 - lanes) * step]
    return np.concatenate([row + AREA * k for k, row in enumerate(rows)]).astype(np.uint32)


def some_bytes(count: int = 6 * AREA) -> Array:
    return np.random.default_rng(8).integers(0, 256, count).astype(np.uint8)


def few(text: str, wave: int) -> str:
    """Return assembly that runs with the lanes of FEW only."""
    narrow, wide = f"s_mov_b32 exec_lo, {FEW & M32:#x}", "s_mov_b32 exec_lo, -1"
    if wave == 64:
        narrow += f"; s_mov_b32 exec_hi, {FEW >> 32:#x}"
        wide += "; s_mov_b32 exec_hi, -1"
    return f"{narrow}; {text}; {wide}"


@covers(*(f"{family}_load_{kind}" for family in FAMILIES for kind in LOADS))
@pytest.mark.parametrize(("path", "wave"), CASES)
def test_loads(amd: Executor, path: str, wave: int) -> None:
    data = some_bytes()
    for step, kinds in ((1, LOADS[:4]), (4, LOADS[4:5]), (16, LOADS[5:])):
        offsets = places(wave, step)
        inputs = [
            offsets,
            offsets.astype(np.uint64) + DATA,
            np.arange(len(offsets), dtype=np.uint32) * 0x10001,
        ]
        operations = []
        for kind in kinds:
            dwords = max(1, size_of(kind) // 4)
            text = f"{access(path, f'load_{kind}', '{d}')}; {WAITS}"
            operations.append(Op(text, dwords, start=2))
            operations.append(Op(few(text, wave), dwords, start=2))
        found = batch(amd, operations, inputs, wave=wave, before=BEFORE, arrays={DATA: data})
        for k, kind in enumerate(kinds):
            old = [int(x) for x in inputs[2]]
            wanted = [loaded(kind, data, int(at) + 5, o) for at, o in zip(offsets, old, strict=True)]
            assert found[2 * k].tolist() == wanted, kind
            for lane, words in enumerate(found[2 * k + 1].tolist()):
                active = FEW >> lane % wave & 1
                first, kept = words[0], old[lane]  # of the registers behind the first nothing is known
                assert words == wanted[lane] if active else first == kept, (kind, lane)


def test_loads_beside_matrix_instructions_look_at_both_halves_of_a_wave(amd: Executor) -> None:
    """Programs with matrices mostly load the same for both halves, which must not be taken for granted."""
    data, lanes = some_bytes(), np.arange(32)
    rows = [lanes % 16 * 64, lanes * 64, lanes % 16 * 64 + (lanes == 20) * 32, lanes * 16, lanes % 16 * 16]
    offsets = np.concatenate(rows).astype(np.uint32)
    inputs = [offsets, offsets.astype(np.uint64) + DATA, np.full(len(offsets), 7, np.uint32)]
    operations = []
    for kind in ("b64", "b96", "b128"):
        text = f"{access('global off', f'load_{kind}', '{d}')}; {WAITS}"
        operations += [Op(text, size_of(kind) // 4, start=2), Op(few(text, 32), size_of(kind) // 4, start=2)]
    operations.append(
        Op("v_wmma_f32_16x16x16_f16 v[60:67], v[70:77], v[80:87], v[60:67]; v_mov_b32 {d}, 0", 1)
    )
    found = batch(amd, operations, inputs, arrays={DATA: data})
    for k, kind in enumerate(("b64", "b96", "b128")):
        wanted = [loaded(kind, data, int(at) + 5, 7) for at in offsets]
        assert found[2 * k].tolist() == wanted, kind
        for lane, words in enumerate(found[2 * k + 1].tolist()):
            assert words == wanted[lane] if FEW >> lane % 32 & 1 else words[0] == 7, (kind, lane)


@covers(*(f"{family}_store_{kind}" for family in FAMILIES for kind in STORES))
@pytest.mark.parametrize(("path", "wave"), CASES)
def test_stores(amd: Executor, path: str, wave: int) -> None:
    rng = np.random.default_rng(9)
    for step, kinds in ((1, STORES[:1]), (2, STORES[1:2]), (4, STORES[2:3]), (16, STORES[3:])):
        offsets = places(wave, step)
        columns = [rng.integers(0, 1 << 32, len(offsets)).astype(np.uint32) for _ in range(4)]
        areas = [(kind, part) for kind in kinds for part in (False, True)]
        lines = "; ".join(f"v_mov_b32 v{30 + k}, {{{2 + k}}}" for k in range(4))
        operations = []
        for area, (kind, part) in enumerate(areas):
            dwords = max(1, size_of(kind) // 4)
            register = "v30" if dwords == 1 else f"v[30:{29 + dwords}]"
            # The inputs are the offset in v2 and the address in v[3:4].
            move = f"v_add_nc_u32 v34, {6 * AREA * area}, v2; v_add_nc_u32 v36, {6 * AREA * area}, v3"
            store = access(path, f"store_{kind}", register, "v34", "v[36:37]")
            text = f"{lines}; {move}; v_mov_b32 v37, v4; {few(store, wave) if part else store}"
            operations.append(Op(f"{text}; v_mov_b32 {{d}}, 0"))
        data = np.zeros(len(areas) * 6 * AREA, np.uint8)
        inputs = [offsets, offsets.astype(np.uint64) + DATA, *columns]
        batch(amd, operations, inputs, wave=wave, before=BEFORE, arrays={DATA: data})
        for area, (kind, part) in enumerate(areas):
            wanted = np.zeros(6 * AREA, np.uint8)
            size = size_of(kind)
            for lane, at in enumerate(offsets):
                value = sum(int(c[lane]) << 32 * k for k, c in enumerate(columns))
                value >>= 16 if kind.startswith("d16_hi") else 0
                if not part or FEW >> lane % wave & 1:
                    new = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
                    wanted[at + 5 : at + 5 + size] = np.frombuffer(new, np.uint8)
            got = data[area * 6 * AREA : (area + 1) * 6 * AREA]
            assert got.tolist() == wanted.tolist(), (kind, part)


# --- addresses ---


@covers("global_load_b32", "global_store_b32")
def test_a_negative_offset_and_a_scalar_base_add_up_in_64_bits(amd: Executor) -> None:
    data = np.arange(64, dtype=np.uint32)
    far = 0x12_FFFF_FF00  # the sum with the offset crosses 4 GiB
    before = [f"s_mov_b32 s20, {far & M32:#x}", f"s_mov_b32 s21, {far >> 32:#x}"]
    lanes = np.arange(32, dtype=np.uint32)
    text = f"global_load_b32 {{d}}, {{0}}, s[20:21] offset:-8; {WAITS}"
    (found,) = batch(amd, [Op(text)], [lanes * 4 + 0x108], before=before, arrays={far + 0x100: data})
    assert found[:, 0].tolist() == lanes.tolist()


def test_the_offset_register_of_a_scalar_base_is_unsigned(amd: Executor) -> None:
    data = np.arange(64, dtype=np.uint32)
    base = 0x5000_0000
    before = [f"s_mov_b32 s20, {base:#x}", "s_mov_b32 s21, 0"]
    offsets = 0xF000_0000 + 4 * np.arange(32, dtype=np.uint32)
    text = f"global_load_b32 {{d}}, {{0}}, s[20:21]; {WAITS}"
    (found,) = batch(amd, [Op(text)], [offsets], before=before, arrays={base + 0xF000_0000: data})
    assert found[:, 0].tolist() == list(range(32))


@covers("global_load_addtid_b32", "global_store_addtid_b32")
def test_addtid_adds_four_times_the_lane(amd: Executor) -> None:
    data = np.arange(128, dtype=np.uint32)
    operations = [
        Op(f"global_load_addtid_b32 {{d}}, s[20:21] offset:8; {WAITS}"),
        Op("global_store_addtid_b32 {0}, s[20:21] offset:256; v_mov_b32 {d}, 0"),
    ]
    values = np.arange(32, dtype=np.uint32) + 500
    found = batch(amd, operations, [values], before=BEFORE, arrays={DATA: data})
    assert found[0][:, 0].tolist() == list(range(2, 34))
    assert data[64:96].tolist() == values.tolist()


def test_mappings_next_to_each_other_and_far_apart_serve_one_access(amd: Executor) -> None:
    first, second, third = (np.arange(16, dtype=np.uint32) + 100 * k for k in (1, 2, 3))
    arrays = {DATA: first, DATA + 64: second, DATA + (1 << 40): third}
    addresses = np.array(
        [(DATA, DATA + 64, DATA + (1 << 40))[k % 3] + 4 * (k // 3) for k in range(32)], np.uint64
    )
    text = f"global_load_b32 {{d}}, {{0}}, off; {WAITS}"
    (found,) = batch(amd, [Op(text)], [addresses], arrays=arrays)
    assert found[:, 0].tolist() == [100 * (k % 3 + 1) + k // 3 for k in range(32)]


def test_loads_and_stores_without_active_lanes_touch_nothing(amd: Executor) -> None:
    lines = ["s_mov_b32 exec_lo, 0"]
    for path in ("global", "flat", "buffer"):
        for kind in ("load_b32", "load_u8", "store_b8", "store_b128"):
            register = "v[20:23]" if "128" in kind else "v20"
            lines += [access(path, kind, register, "v10", "v[10:11]"), WAITS]
    lines += [
        "ds_load_b32 v20, v10",
        WAITS,
        "ds_store_b64 v10, v[20:21]",
        "scratch_load_b32 v20, v10, off",
        WAITS,
    ]
    before = ["v_mov_b32 v10, 0", "v_mov_b32 v11, 0", *(f"v_mov_b32 v{k}, 1" for k in range(20, 24)), *BEFORE]
    assert run(amd, [*before, *lines, "s_endpgm"], Memory()) is None


# --- scalar loads ---


@covers("s_load_b32", "s_load_b64", "s_load_b128", "s_load_b256", "s_load_b512")
def test_scalar_loads_fill_consecutive_registers(amd: Executor) -> None:
    data = np.random.default_rng(4).integers(0, 1 << 32, 64).astype(np.uint32)
    operations = []
    for dwords in (1, 2, 4, 8, 16):
        register = "s32" if dwords == 1 else f"s[32:{31 + dwords}]"
        moves = "; ".join(f"v_mov_b32 v{40 + k}, s{32 + k}" for k in range(dwords))
        text = f"s_mov_b32 s28, 24; s_load_b{32 * dwords} {register}, s[20:21], s28 offset:0x12; {WAITS}"
        operations.append(Op(f"{text}; {moves}", dwords))
    found = batch(amd, operations, [np.zeros(1, np.uint32)], before=BEFORE, arrays={DATA: data})
    for dwords, words in zip((1, 2, 4, 8, 16), found, strict=True):
        assert words[0].tolist() == data[10 : 10 + dwords].tolist()  # the address is rounded down to dwords


def test_scalar_loads_take_negative_offsets_and_write_vcc(amd: Executor) -> None:
    data = np.arange(100, 132, dtype=np.uint32)
    text = f"s_add_u32 s20, s20, 64; s_load_b64 vcc, s[20:21], -0x8; {WAITS}; v_mov_b32 v40, vcc_lo"
    operation = Op(f"{text}; v_mov_b32 v41, vcc_hi", 2)
    (found,) = batch(amd, [operation], [np.zeros(1, np.uint32)], before=BEFORE, arrays={DATA: data})
    assert found[0].tolist() == [114, 115]


@covers(*(f"s_buffer_load_b{bits}" for bits in (32, 64, 128, 256, 512)))
def test_scalar_buffer_loads_give_zero_beyond_the_end(amd: Executor) -> None:
    data = np.random.default_rng(4).integers(1, 1 << 32, 64).astype(np.uint32)
    operations = []
    for dwords in (1, 2, 4, 8, 16):
        register = "s32" if dwords == 1 else f"s[32:{31 + dwords}]"
        moves = "; ".join(f"v_mov_b32 v{40 + k}, s{32 + k}" for k in range(dwords))
        load = f"s_buffer_load_b{32 * dwords} {register}, s[24:27], s28"
        text = f"s_mov_b32 s26, 46; s_mov_b32 s28, 33; {load}; {WAITS}; {moves}"
        operations.append(Op(text, dwords))
        text = (
            f"s_mov_b32 s25, 0x100000; s_mov_b32 s26, 5; {load} offset:4; {WAITS}; {moves}; s_mov_b32 s25, 0"
        )
        operations.append(Op(text, dwords))
    found = batch(amd, operations, [np.zeros(1, np.uint32)], before=BEFORE, arrays={DATA: data})
    for k, dwords in enumerate((1, 2, 4, 8, 16)):
        assert found[2 * k][0].tolist() == [*data[8:11], *[0] * 16][:dwords]
        # With a stride of 16 the size counts elements: 5 of them are 80 bytes.
        assert found[2 * k + 1][0].tolist() == [*data[9:20], *[0] * 16][:dwords]


# --- buffers ---


def descriptor(size: int, stride: int = 0, select: int = 3, swizzle: int = 0) -> list[str]:
    """Return the code that puts a buffer descriptor into s[24:27]."""
    return [
        f"s_mov_b32 s24, {DATA:#x}",
        f"s_mov_b32 s25, {stride << 16 | swizzle:#x}",
        f"s_mov_b32 s26, {size}",
        f"s_mov_b32 s27, {select << 28:#x}",
    ]


@pytest.mark.parametrize(
    ("select", "stride", "size", "inside"),
    [
        (0, 16, 3, lambda index, offset: index < 3 and offset + 4 <= 16),
        (1, 16, 3, lambda index, offset: index < 3),
        (2, 16, 3, lambda index, offset: True),
        (2, 16, 0, lambda index, offset: False),
        (3, 16, 40, lambda index, offset: index * 16 + offset + 4 <= 40),
    ],
)
@covers("buffer_load_b32", "buffer_store_b32")
def test_oob_select_says_what_lies_outside_a_buffer(amd: Executor, select, stride, size, inside) -> None:  # type: ignore[no-untyped-def]
    data = np.arange(1, 65, dtype=np.uint32)
    index = np.arange(32, dtype=np.uint32) // 8
    offset = np.arange(32, dtype=np.uint32) % 8 * 4
    pair = (offset.astype(np.uint64) << np.uint64(32)) | index
    setup = "; ".join(descriptor(size, stride, select))
    load = f"{setup}; buffer_load_b32 {{d}}, {{0}}, s[24:27], 0 idxen offen; {WAITS}"
    store = "buffer_store_b32 {1}, {0}, s[24:27], 0 idxen offen; v_mov_b32 {d}, 0"
    values = np.arange(32, dtype=np.uint32) + 1000
    before = data.copy()
    found = batch(amd, [Op(load), Op(store)], [pair, values], arrays={DATA: data})
    wanted = before.copy()
    for lane, (i, o) in enumerate(zip(index.tolist(), offset.tolist(), strict=True)):
        place = (i * stride + o) // 4
        assert found[0][lane, 0] == (before[place] if inside(i, o) else 0), (i, o)
        if inside(i, o):
            wanted[place] = values[lane]
    assert data.tolist() == wanted.tolist()


@covers("buffer_load_b64")
def test_a_buffer_address_is_base_scalar_offset_index_and_offset(amd: Executor) -> None:
    data = np.arange(256, dtype=np.uint32)
    index = np.arange(32, dtype=np.uint32)
    setup = "; ".join([*descriptor(1000, 12), "s_mov_b32 s28, 40"])
    operations = [
        Op(f"{setup}; buffer_load_b64 {{d}}, {{0}}, s[24:27], s28 idxen offset:8; {WAITS}", 2),
        Op(f"buffer_load_b64 {{d}}, off, s[24:27], 64; {WAITS}", 2),
    ]
    found = batch(amd, operations, [index], arrays={DATA: data})
    assert found[0].tolist() == [[(40 + 8 + 12 * k) // 4, (40 + 8 + 12 * k) // 4 + 1] for k in range(32)]
    assert found[1].tolist() == [[16, 17]] * 32
