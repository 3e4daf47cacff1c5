"""The scalar ALU against Python integers: results and SCC."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.harness import Op, batch, covers

EDGES = [0, 1, 2, 31, 32, 63, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF,
         0x00100008, 0x0020_0000, 0x7FFF_0004, 0xF0F0F0F0, 0x12345678]  # fmt: skip
M32, M64 = 0xFFFFFFFF, (1 << 64) - 1
Reference = Callable[[int, int, int, int], tuple[int, int | None]]
"""(S0, S1, old D, SCC before) -> D and SCC; SCC of None means that it stays."""


def s(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def rows(bits: int, count: int = 96, seed: int = 2) -> list[int]:
    rng = np.random.default_rng(seed)
    edges = [e | (e << 32 if k & 1 else 0) for k, e in enumerate(EDGES)] if bits == 64 else EDGES
    values = [edges[int(k)] for k in rng.integers(0, len(edges), count // 2)]
    while len(values) < count:
        values.append(int(rng.integers(0, 1 << 62)) * 4 + 3 >> int(rng.integers(0, 60)) & (1 << bits) - 1)
    return values


def plain(function: Callable[..., int], scc: str = "nonzero", bits: int = 32) -> Reference:
    """Return the reference of an operation whose SCC is D != 0 (or stays)."""

    def reference(a: int, b: int, d: int, c: int) -> tuple[int, int | None]:
        value = function(a, b) & (1 << bits) - 1
        return value, int(value != 0) if scc == "nonzero" else None

    return reference


def sums(function: Callable[[int, int, int], int]) -> Reference:
    """Return the reference of an unsigned sum with carry."""

    def reference(a: int, b: int, d: int, c: int) -> tuple[int, int | None]:
        exact = function(a, b, c)
        return exact & M32, int(not 0 <= exact <= M32)

    return reference


def overflowing(function: Callable[[int, int], int]) -> Reference:
    def reference(a: int, b: int, d: int, c: int) -> tuple[int, int | None]:
        exact = function(s(a), s(b))
        return exact & M32, int(not -(1 << 31) <= exact < 1 << 31)

    return reference


def chosen(function: Callable[[int, int], bool]) -> Reference:
    """Return the reference of a minimum or maximum: SCC tells that S0 was chosen."""
    return lambda a, b, d, c: (a if function(a, b) else b, int(function(a, b)))


def field(a: int, b: int, bits: int, signed: bool) -> int:
    offset, width = b & (bits - 1), min(b >> 16 & 127, bits)
    value = (s(a, bits) if signed else a) >> offset & (1 << width) - 1
    return s(value, width) if signed and width else value


def leading_signs(a: int, bits: int) -> int:
    x = a ^ (M64 >> 64 - bits if a >> bits - 1 else 0)
    return bits - x.bit_length() if x else -1


def quads(a: int, bits: int) -> int:
    return sum(bool(a >> 4 * k & 15) << k for k in range(bits // 4))


def whole_quads(a: int, bits: int) -> int:
    return sum((15 if a >> 4 * k & 15 else 0) << 4 * k for k in range(bits // 4))


LOGIC: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "nand": lambda a, b: ~(a & b),
    "nor": lambda a, b: ~(a | b),
    "xnor": lambda a, b: ~(a ^ b),
    "and_not1": lambda a, b: a & ~b,
    "or_not1": lambda a, b: a | ~b,
}


def two() -> dict[str, Reference]:
    table: dict[str, Reference] = {
        "s_add_u32": sums(lambda a, b, c: a + b),
        "s_sub_u32": sums(lambda a, b, c: a - b),
        "s_addc_u32": sums(lambda a, b, c: a + b + c),
        "s_subb_u32": sums(lambda a, b, c: a - b - c),
        "s_add_i32": overflowing(lambda a, b: a + b),
        "s_sub_i32": overflowing(lambda a, b: a - b),
        "s_absdiff_i32": plain(lambda a, b: abs(s(s(a) - s(b)))),
        "s_min_i32": chosen(lambda a, b: s(a) < s(b)),
        "s_min_u32": chosen(lambda a, b: a < b),
        "s_max_i32": chosen(lambda a, b: s(a) >= s(b)),
        "s_max_u32": chosen(lambda a, b: a >= b),
        "s_mul_i32": plain(lambda a, b: a * b, "stays"),
        "s_mul_hi_u32": plain(lambda a, b: a * b >> 32, "stays"),
        "s_mul_hi_i32": plain(lambda a, b: s(a) * s(b) >> 32, "stays"),
        "s_cselect_b32": lambda a, b, d, c: (a if c else b, None),
        "s_pack_ll_b32_b16": plain(lambda a, b: a & 0xFFFF | b << 16, "stays"),
        "s_pack_lh_b32_b16": plain(lambda a, b: a & 0xFFFF | b & 0xFFFF0000, "stays"),
        "s_pack_hh_b32_b16": plain(lambda a, b: a >> 16 | b & 0xFFFF0000, "stays"),
        "s_pack_hl_b32_b16": plain(lambda a, b: a >> 16 | b << 16, "stays"),
        "s_lshl_b32": plain(lambda a, b: a << (b & 31)),
        "s_lshr_b32": plain(lambda a, b: a >> (b & 31)),
        "s_ashr_i32": plain(lambda a, b: s(a) >> (b & 31)),
        "s_bfe_u32": plain(lambda a, b: field(a, b, 32, False)),
        "s_bfe_i32": plain(lambda a, b: field(a, b, 32, True)),
        "s_bfm_b32": plain(lambda a, b: ((1 << (a & 31)) - 1) << (b & 31), "stays"),
    }
    for k in (1, 2, 3, 4):
        table[f"s_lshl{k}_add_u32"] = sums(lambda a, b, c, k=k: (a << k) + b)
    for name, function in LOGIC.items():
        table[f"s_{name}_b32"] = plain(function)
    return table


def wide() -> dict[str, tuple[str, Reference]]:
    """Return 64-bit operations: which operands have two dwords (D S0 S1), and the reference."""
    table: dict[str, tuple[str, Reference]] = {
        "s_lshl_b64": ("221", plain(lambda a, b: a << (b & 63), bits=64)),
        "s_lshr_b64": ("221", plain(lambda a, b: a >> (b & 63), bits=64)),
        "s_ashr_i64": ("221", plain(lambda a, b: s(a, 64) >> (b & 63), bits=64)),
        "s_bfe_u64": ("221", plain(lambda a, b: field(a, b, 64, False), bits=64)),
        "s_bfe_i64": ("221", plain(lambda a, b: field(a, b, 64, True), bits=64)),
        "s_bfm_b64": ("211", plain(lambda a, b: ((1 << (a & 63)) - 1) << (b & 63), "stays", bits=64)),
        "s_cselect_b64": ("222", lambda a, b, d, c: (a if c else b, None)),
    }
    for name, function in LOGIC.items():
        table[f"s_{name}_b64"] = ("222", plain(function, bits=64))
    return table


def one() -> dict[str, tuple[str, Reference]]:
    table: dict[str, tuple[str, Reference]] = {
        "s_abs_i32": ("11", plain(lambda a, b: abs(s(a)))),
        "s_sext_i32_i8": ("11", plain(lambda a, b: s(a, 8), "stays")),
        "s_sext_i32_i16": ("11", plain(lambda a, b: s(a, 16), "stays")),
        "s_ctz_i32_b32": ("11", plain(lambda a, b: (a & -a).bit_length() - 1, "stays")),
        "s_ctz_i32_b64": ("12", plain(lambda a, b: (a & -a).bit_length() - 1, "stays")),
        "s_clz_i32_u32": ("11", plain(lambda a, b: 32 - a.bit_length() if a else -1, "stays")),
        "s_clz_i32_u64": ("12", plain(lambda a, b: 64 - a.bit_length() if a else -1, "stays")),
        "s_cls_i32": ("11", plain(lambda a, b: leading_signs(a, 32), "stays")),
        "s_cls_i32_i64": ("12", plain(lambda a, b: leading_signs(a, 64), "stays")),
        "s_bitreplicate_b64_b32": (
            "21",
            plain(lambda a, b: sum((a >> k & 1) * 3 << 2 * k for k in range(32)), "stays", bits=64),
        ),
    }
    for bits in (32, 64):
        sizes = "11" if bits == 32 else "22"
        narrow = "11" if bits == 32 else "12"
        table |= {
            f"s_mov_b{bits}": (sizes, plain(lambda a, b: a, "stays", bits)),
            f"s_cmov_b{bits}": (sizes, lambda a, b, d, c: (a if c else d, None)),
            f"s_brev_b{bits}": (sizes, plain(lambda a, b, n=bits: int(f"{a:0{n}b}"[::-1], 2), "stays", bits)),
            f"s_not_b{bits}": (sizes, plain(lambda a, b: ~a, bits=bits)),
            f"s_bcnt0_i32_b{bits}": (narrow, plain(lambda a, b, n=bits: n - a.bit_count())),
            f"s_bcnt1_i32_b{bits}": (narrow, plain(lambda a, b: a.bit_count())),
            f"s_quadmask_b{bits}": (sizes, plain(lambda a, b, n=bits: quads(a, n), bits=bits)),
            f"s_wqm_b{bits}": (sizes, plain(lambda a, b, n=bits: whole_quads(a, n), bits=bits)),
            f"s_bitset0_b{bits}": (sizes[0] + "1", lambda a, b, d, c, n=bits: (d & ~(1 << a % n), None)),
            f"s_bitset1_b{bits}": (sizes[0] + "1", lambda a, b, d, c, n=bits: (d | 1 << a % n, None)),
        }
    return table


TWO, WIDE, ONE = two(), wide(), one()
COMPARES = {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def pair(size: str, number: int) -> str:
    return f"s{number}" if size == "1" else f"s[{number}:{number + 1}]"


def check(amd: Executor, table: dict[str, tuple[str, Reference]]) -> None:
    """Run each operation on rows of scalars: S0 in s20, S1 in s22, D in s24; SCC before is a bit of S1."""
    a, b, d = rows(64, seed=1), rows(64, seed=2), rows(64, seed=3)
    names = list(table)
    operations = []
    load = "; ".join(f"v_readfirstlane_b32 s{20 + k}, v{2 + k}" for k in range(6))
    for name in names:
        sizes = table[name][0]
        sources = [pair(size, 20 + 2 * k) for k, size in enumerate(sizes[1:])]
        text = f"{load}; s_bitcmp1_b32 s22, 1; {name} {', '.join([pair(sizes[0], 24), *sources])}"
        text += "; s_cselect_b32 s26, 1, 0; v_mov_b32 v40, s24; v_mov_b32 v41, s25; v_mov_b32 v42, s26"
        operations.append(Op(text, 3))
    repeat = [np.repeat(np.array(column, np.uint64), 32) for column in (a, b, d)]
    found = batch(amd, operations, repeat)
    for name, words in zip(names, found, strict=True):
        sizes, reference = table[name]
        for k, (x, y, old) in enumerate(zip(a, b, d, strict=True)):
            before = y >> 1 & 1
            masks = [M64 if size == "2" else M32 for size in (*sizes, "1")]
            value, scc = reference(x & masks[1], y & masks[2], old & masks[0], before)
            low, high, flag = (int(w) for w in words[32 * k])
            got = low | high << 32 if sizes[0] == "2" else low
            shown = f"{name} {x & masks[1]:#x}, {y & masks[2]:#x}, D {old:#x}, SCC {before}"
            assert got == value & masks[0], f"{shown}: found {got:#x}, wanted {value & masks[0]:#x}"
            assert flag == (before if scc is None else scc), f"{shown}: SCC {flag}"


@covers(*TWO)
def test_two_operands(amd: Executor) -> None:
    check(amd, {name: ("111", reference) for name, reference in TWO.items()})


@covers(*WIDE)
def test_two_wide_operands(amd: Executor) -> None:
    check(amd, WIDE)


@covers(*ONE)
def test_one_operand(amd: Executor) -> None:
    check(amd, ONE)


@covers(*(f"s_cmp_{c}_{t}" for c in COMPARES for t in ("i32", "u32")), "s_cmp_eq_u64", "s_cmp_lg_u64")
@covers("s_bitcmp0_b32", "s_bitcmp1_b32", "s_bitcmp0_b64", "s_bitcmp1_b64")
@covers(*(f"s_cmpk_{c}_{t}" for c in COMPARES for t in ("i32", "u32")))
def test_compares_set_scc(amd: Executor) -> None:
    a, b = rows(64, seed=1), rows(64, seed=2)
    b[:10] = a[:10]
    cases: dict[str, Callable[[int, int], bool]] = {}
    for name, function in COMPARES.items():
        cases[f"s_cmp_{name}_i32 s20, s22"] = lambda x, y, f=function: f(s(x), s(y))
        cases[f"s_cmp_{name}_u32 s20, s22"] = lambda x, y, f=function: f(x & M32, y & M32)
        cases[f"s_cmpk_{name}_i32 s20, 0xff80"] = lambda x, y, f=function: f(s(x), -128)
        cases[f"s_cmpk_{name}_u32 s20, 0xff80"] = lambda x, y, f=function: f(x & M32, 0xFF80)
    cases |= {
        "s_cmp_eq_u64 s[20:21], s[22:23]": lambda x, y: x == y,
        "s_cmp_lg_u64 s[20:21], s[22:23]": lambda x, y: x != y,
        "s_bitcmp0_b32 s20, s22": lambda x, y: not x >> (y & 31) & 1,
        "s_bitcmp1_b32 s20, s22": lambda x, y: bool(x >> (y & 31) & 1),
        "s_bitcmp0_b64 s[20:21], s22": lambda x, y: not x >> (y & 63) & 1,
        "s_bitcmp1_b64 s[20:21], s22": lambda x, y: bool(x >> (y & 63) & 1),
    }
    load = "; ".join(f"v_readfirstlane_b32 s{20 + k}, v{2 + k}" for k in range(4))
    operations = [Op(f"{load}; {text}; s_cselect_b32 s24, 1, 0; v_mov_b32 {{d}}, s24") for text in cases]
    found = batch(amd, operations, [np.repeat(np.array(c, np.uint64), 32) for c in (a, b)])
    for (text, function), words in zip(cases.items(), found, strict=True):
        assert words[::32, 0].astype(bool).tolist() == [function(x, y) for x, y in zip(a, b, strict=True)], (
            text
        )


@covers("s_movk_i32", "s_cmovk_i32", "s_addk_i32", "s_mulk_i32")
def test_immediates_are_sign_extended(amd: Executor) -> None:
    text = (
        "s_movk_i32 s20, 0x8000; s_cmp_eq_u32 s20, s20; s_mov_b32 s21, 7; s_cmovk_i32 s21, 0xfffe;"
        "s_cmp_lg_u32 s20, s20; s_cmovk_i32 s21, 5; s_mov_b32 s22, 0x7fffffff; s_addk_i32 s22, 1; "
        "s_cselect_b32 s23, 1, 0; s_mov_b32 s24, 0x10001; s_mulk_i32 s24, -3; "
    )
    text += "; ".join(f"v_mov_b32 v{40 + k}, s{20 + k}" for k in range(5))
    (words,) = batch(amd, [Op(text, 5)], [np.zeros(1, np.uint32)])
    assert [s(int(w)) for w in words[0]] == [-32768, -2, -(1 << 31), 1, s(-3 * 0x10001)]


SAVE = {**LOGIC, "and_not0": lambda a, b: ~a & b, "or_not0": lambda a, b: ~a | b}


@covers(*(f"s_{name}_saveexec_{w}" for name in SAVE for w in ("b32", "b64")))
@covers(*(f"s_{name}_wrexec_{w}" for name in ("and_not0", "and_not1") for w in ("b32", "b64")))
@pytest.mark.parametrize("wave", [32, 64])
def test_exec_is_combined_and_saved(amd: Executor, wave: int) -> None:
    """S0 op EXEC goes to EXEC; the old EXEC, or for wrexec the new one, to D; and_not1 inverts EXEC."""
    bits, old, source = f"b{wave}", 0x0FF0F00F0FF0F00F & (1 << wave) - 1, 0xAAAACCCCF0F0FF00 & (1 << wave) - 1
    names = [f"s_{n}_saveexec_{bits}" for n in SAVE] + [
        f"s_{n}_wrexec_{bits}" for n in ("and_not0", "and_not1")
    ]
    full = "s_mov_b32 exec_lo, -1" if wave == 32 else "s_mov_b64 exec, -1"
    operations = []
    for name in names:
        text = f"s_mov_b32 s20, {source & M32:#x}; s_mov_b32 s21, {source >> 32:#x};"
        text += f"s_mov_b32 exec_lo, {old & M32:#x};"
        text += f"s_mov_b32 exec_hi, {old >> 32:#x};" if wave == 64 else ""
        text += f"{name} {pair('1' if wave == 32 else '2', 22)}, {pair('1' if wave == 32 else '2', 20)};"
        text += f"s_cselect_b32 s26, 1, 0; s_mov_b32 s24, exec_lo; s_mov_b32 s25, exec_hi; {full};"
        text += "; ".join(f"v_mov_b32 v{40 + k}, s{22 + k}" for k in range(5))
        operations.append(Op(text, 5))
    for name, words in zip(
        names, batch(amd, operations, [np.zeros(wave, np.uint32)], wave=wave), strict=True
    ):
        function = SAVE[name.split("_saveexec")[0].split("_wrexec")[0].removeprefix("s_")]
        new = function(source, old) & (1 << wave) - 1
        kept = new if "wrexec" in name else old
        d0, d1, e0, e1, scc = (int(w) for w in words[0])
        if wave == 32:
            d1 = e1 = 0
        assert (d0 | d1 << 32, e0 | e1 << 32, scc) == (kept, new, int(new != 0)), name


@covers("s_movrels_b32", "s_movrels_b64", "s_movreld_b32", "s_movreld_b64", "s_movrelsd_2_b32")
def test_scalar_registers_are_chosen_by_m0(amd: Executor) -> None:
    fill = "; ".join(f"s_movk_i32 s{20 + k}, {100 + k}" for k in range(8))
    read = "; ".join(f"v_mov_b32 v{40 + k}, s{20 + k}" for k in range(8))
    cases = {
        f"{fill}; s_mov_b32 m0, 3; s_movrels_b32 s20, s22; {read}": {0: 105},
        f"{fill}; s_mov_b32 m0, 4; s_movrels_b64 s[20:21], s[22:23]; {read}": {0: 106, 1: 107},
        f"{fill}; s_mov_b32 m0, 2; s_movreld_b32 s21, s27; {read}": {3: 107},
        f"{fill}; s_mov_b32 m0, 2; s_movreld_b64 s[22:23], s[26:27]; {read}": {4: 106, 5: 107},
        f"{fill}; s_mov_b32 m0, 0x20001; s_movrelsd_2_b32 s20, s24; {read}": {2: 105},
    }
    found = batch(amd, [Op(text, 8) for text in cases], [np.zeros(1, np.uint32)])
    for changes, words in zip(cases.values(), found, strict=True):
        assert words[0].tolist() == [changes.get(k, 100 + k) for k in range(8)]


def test_null_reads_zero_and_drops_writes_but_scc_is_set(amd: Executor) -> None:
    text = "s_mov_b32 s20, -1; s_add_u32 null, s20, 1; s_cselect_b32 s21, 1, 0; s_add_u32 s22, s20, null;"
    text += "v_mov_b32 v40, s21; v_mov_b32 v41, s22"
    (words,) = batch(amd, [Op(text, 2)], [np.zeros(1, np.uint32)])
    assert words[0].tolist() == [1, M32]


def test_64_bit_constants(amd: Executor) -> None:
    cases = {"16": 16, "-3": M64 - 2, "0x80000000": 0x80000000, "0xffffffff": M32, "2.0": 0x4000000000000000}
    texts = [f"s_mov_b64 s[20:21], {c}; v_mov_b32 v40, s20; v_mov_b32 v41, s21" for c in cases]
    found = batch(amd, [Op(text, 2) for text in texts], [np.zeros(1, np.uint32)])
    assert [int(w[0, 0]) | int(w[0, 1]) << 32 for w in found] == list(cases.values())
