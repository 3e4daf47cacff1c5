"""Packed 16-bit math, mixed precision, dot products and the matrix instructions."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.harness import CLAMP_IEEE, EITHER_WAVE, Array, Op, batch, covers
from virtual.isa.rdna.soft import F16, F32, Rules, each, pairs, report

Half = Callable[..., int]
SELECTS = ["", " op_sel:[1,0] op_sel_hi:[0,1]", " op_sel:[1,1] op_sel_hi:[1,0]", " op_sel_hi:[0,0]"]


def words(count: int, rows: int = 400, seed: int = 11) -> list[Array]:
    rng = np.random.default_rng(seed)
    edges = [0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x8001, 5]
    return [
        (rng.choice(edges, rows) | rng.choice(edges, rows) << 16 if k % 2 else rng.integers(0, 1 << 32, rows))
        .astype(np.uint32)
        for k in range(count)
    ]  # fmt: skip


def s16(x: int) -> int:
    return (x & 0xFFFF) - ((x & 0x8000) << 1)


def limit(x: int, low: int, high: int) -> int:
    return min(max(x, low), high)


TWO: dict[str, Half] = {
    "v_pk_mul_lo_u16": lambda a, b: a * b,
    "v_pk_add_i16": lambda a, b: a + b,
    "v_pk_add_u16": lambda a, b: a + b,
    "v_pk_sub_i16": lambda a, b: a - b,
    "v_pk_sub_u16": lambda a, b: a - b,
    "v_pk_lshlrev_b16": lambda a, b: b << (a & 15),
    "v_pk_lshrrev_b16": lambda a, b: b >> (a & 15),
    "v_pk_ashrrev_i16": lambda a, b: s16(b) >> (a & 15),
    "v_pk_max_i16": lambda a, b: max(s16(a), s16(b)),
    "v_pk_min_i16": lambda a, b: min(s16(a), s16(b)),
    "v_pk_max_u16": max,
    "v_pk_min_u16": min,
}
CLAMPED: dict[str, Half] = {
    "v_pk_add_i16": lambda a, b: limit(s16(a) + s16(b), -32768, 32767),
    "v_pk_add_u16": lambda a, b: min(a + b, 65535),
    "v_pk_sub_i16": lambda a, b: limit(s16(a) - s16(b), -32768, 32767),
    "v_pk_sub_u16": lambda a, b: max(a - b, 0),
}


def picks(select: str) -> list[tuple[int, ...]]:
    """Return which half of each source goes to the low and to the high result."""
    low, high = (0, 0, 0), (1, 1, 1)
    for part in select.split():
        name, _, listed = part.partition(":")
        chosen = tuple(int(x) for x in listed.strip("[]").split(","))
        if name == "op_sel":
            low = (*chosen, 0)[:3]
        elif name == "op_sel_hi":
            high = (*chosen, 1)[:3]
    return [low, high]


def packed(half: Half, select: str, *row: int) -> int:
    result = 0
    for place, chosen in enumerate(picks(select)):
        operands = [x >> 16 * h & 0xFFFF for x, h in zip(row, chosen, strict=False)]
        result |= (half(*operands) & 0xFFFF) << 16 * place
    return result


@covers(*TWO, "v_pk_mad_i16", "v_pk_mad_u16")
@pytest.mark.parametrize("select", SELECTS)
def test_integer_halves(amd: Executor, select: str) -> None:
    a, b, c = words(3)
    cases = {f"{name} {{d}}, {{0}}, {{1}}{select}": half for name, half in TWO.items()}
    cases |= {f"{name} {{d}}, {{0}}, {{1}}{select} clamp": half for name, half in CLAMPED.items()}
    for text, result in zip(cases, batch(amd, [Op(t) for t in cases], [a, b]), strict=True):
        wanted = [packed(cases[text], select, x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        assert result[:, 0].tolist() == wanted, text
    third = select.replace("]", ",0]").replace("op_sel_hi:[0,0,0]", "op_sel_hi:[0,0,1]")
    three: dict[str, Half] = {
        f"v_pk_mad_u16 {{d}}, {{0}}, {{1}}, {{2}}{third}": lambda x, y, z: x * y + z,
        f"v_pk_mad_i16 {{d}}, {{0}}, {{1}}, {{2}}{third}": lambda x, y, z: x * y + z,
        f"v_pk_mad_u16 {{d}}, {{0}}, {{1}}, {{2}}{third} clamp": lambda x, y, z: min(x * y + z, 65535),
        f"v_pk_mad_i16 {{d}}, {{0}}, {{1}}, {{2}}{third} clamp": lambda x, y, z: limit(
            s16(x) * s16(y) + s16(z), -32768, 32767
        ),
    }
    for text, result in zip(three, batch(amd, [Op(t) for t in three], [a, b, c]), strict=True):
        rows = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
        assert result[:, 0].tolist() == [packed(three[text], third, *row) for row in rows], text


def join(columns: list[Array]) -> Array:
    """Return f16 columns as packed words: each row and the one after it."""
    return (columns[0].astype(np.uint32) | np.roll(columns[0], 1).astype(np.uint32) << np.uint32(16)).astype(
        np.uint32
    )


@covers("v_pk_add_f16", "v_pk_mul_f16", "v_pk_fma_f16", "v_pk_fmac_f16", "v_pk_min_f16", "v_pk_max_f16")
@pytest.mark.parametrize("mode", [0xF0, 0x00, 0xFA], ids=hex)
def test_float_halves(amd: Executor, mode: int) -> None:
    rules, columns = Rules.of(mode, "f16"), pairs("f16", 3, rows=600)
    a, b, c = (join([column]) for column in columns)
    flip = 0x8000
    cases: dict[str, Half] = {
        "v_pk_add_f16 {d}, {0}, {1}": lambda x, y, z: rules.add(x, y),
        "v_pk_mul_f16 {d}, {0}, {1}": lambda x, y, z: rules.multiply(x, y),
        "v_pk_fma_f16 {d}, {0}, {1}, {2}": rules.fma,
        "v_pk_fmac_f16 {d}, {0}, {1}": rules.fma,
        "v_pk_min_f16 {d}, {0}, {1}": lambda x, y, z: rules.extreme("min", x, y),
        "v_pk_max_f16 {d}, {0}, {1}": lambda x, y, z: rules.extreme("max", x, y),
        "v_pk_add_f16 {d}, {0}, {1} neg_lo:[1,0] neg_hi:[1,0]": lambda x, y, z: rules.add(x ^ flip, y),
    }
    found = batch(amd, [Op(t, start=2) for t in cases], [a, b, c], mode=mode)
    for (text, half), result in zip(cases.items(), found, strict=True):
        for shift in (0, 16):
            rows = [(w >> np.uint32(shift) & np.uint32(0xFFFF)).astype(np.uint32) for w in (a, b, c)]
            got = result[:, 0] >> np.uint32(shift) & np.uint32(0xFFFF)
            problem = report("f16", rows, got, each(half, *rows))
            assert not problem, f"{text} in MODE {mode:#x}: {problem}"


def test_negation_and_constants_of_packed_floats(amd: Executor) -> None:
    word = np.array([0x40003C00], np.uint32)  # 2.0 and 1.0
    cases = {
        "v_pk_add_f16 {d}, {0}, {0} neg_lo:[1,0]": 0x4400_0000,
        "v_pk_mul_f16 {d}, {0}, 2.0 op_sel_hi:[1,0]": 0x4400_4000,
        "v_pk_add_u16 {d}, {0}, 1 op_sel_hi:[1,0]": 0x4001_3C01,
        "v_pk_mul_f16 {d}, {0}, {0} clamp": 0x3C00_3C00,
    }
    found = batch(amd, [Op(t) for t in cases], [word])
    assert [int(r[0, 0]) for r in found] == list(cases.values())


@covers("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
@pytest.mark.parametrize("mode", [0xF0, 0x00], ids=hex)
def test_mixed_precision_takes_halves_and_floats(amd: Executor, mode: int) -> None:
    single, half = Rules.of(mode, "f32"), Rules.of(mode, "f16")
    floats, halves = pairs("f32", 3, rows=300), pairs("f16", 3, rows=300)
    inputs = [*floats, *(join([h]) for h in halves)]
    for kinds in itertools.product((0, 1), repeat=3):
        names = [f"{{{3 + k}}}" if is_half else f"{{{k}}}" for k, is_half in enumerate(kinds)]
        listed = ",".join(map(str, kinds))
        tail = f"{', '.join(names)} op_sel:[{listed}] op_sel_hi:[{listed}]"
        texts = [f"v_fma_mix{which} {{d}}, {tail}" for which in ("_f32", "lo_f16", "hi_f16")]
        found = batch(amd, [Op(text, start=0) for text in texts], inputs, mode=mode)
        operands = []
        for k, is_half in enumerate(kinds):
            column = np.roll(halves[k], 1) if is_half else floats[k]
            operands.append(
                each(lambda x: Rules(F32).convert(half.operand(x), Rules(F16)), column) if is_half else column
            )
        exact = each(Rules(F32, keep_inputs=single.keep_inputs).fma, *operands)
        assert not report("f32", operands, found[0][:, 0], each(lambda x: single.finish(x), exact)), kinds
        narrow = each(lambda x: half.convert(x, Rules(F32)), exact)
        assert not report("f16", operands, found[1][:, 0] & np.uint32(0xFFFF), narrow), kinds
        assert not report("f16", operands, found[2][:, 0] >> np.uint32(16), narrow), kinds
        assert (found[1][:, 0] >> np.uint32(16) == inputs[0] >> np.uint32(16)).all()
        assert (found[2][:, 0] & np.uint32(0xFFFF) == inputs[0] & np.uint32(0xFFFF)).all()


def test_mixed_precision_modifiers(amd: Executor) -> None:
    a, b = np.array([3.0], np.float32), np.array([0xC4003C00], np.uint32)  # 1.0, -4.0
    texts = {
        "v_fma_mix_f32 {d}, -{0}, |{1}|, {0} op_sel:[0,1,0] op_sel_hi:[0,1,0]": -9.0,
        "v_fma_mix_f32 {d}, {0}, {1}, {0} op_sel_hi:[0,1,0] clamp": 1.0,
    }
    found = batch(amd, [Op(t) for t in texts], [a, b])
    assert [float(np.ascontiguousarray(r[0]).view(np.float32)[0]) for r in found] == list(texts.values())


def small_halves(rows: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return (
        rng.integers(-16, 17, (rows, 2))
        .astype(np.float16)
        .view(np.uint16)
        .copy()
        .view(np.uint32)[:, 0]
        .copy()
    )


@covers("v_dot2_f32_f16", "v_dot2acc_f32_f16", "v_dot2_f16_f16", "v_dot2_f32_bf16", "v_dot2_bf16_bf16")
def test_float_dot_products(amd: Executor) -> None:
    a, b = small_halves(64, 1), small_halves(64, 2)
    c = np.random.default_rng(3).integers(-9, 9, 64).astype(np.float32)
    x, y = (w.view(np.float16).reshape(-1, 2).astype(np.float32) for w in (a, b))
    wanted = (x * y).sum(1) + c
    texts = [
        Op("v_dot2_f32_f16 {d}, {0}, {1}, {2}"),
        Op("v_dot2acc_f32_f16 {d}, {0}, {1}", start=2),
        Op("v_cvt_f16_f32 v20.l, {2}; v_dot2_f16_f16 {d}.l, {0}, {1}, v20.l", start=2),
        Op("v_dot2_f32_f16 {d}, {0}, {1}, {2} neg_lo:[1,0,0] neg_hi:[1,0,0]"),
    ]
    found = batch(amd, texts, [a, b, c])
    assert (found[0][:, 0].view(np.float32) == wanted).all()
    assert (found[1][:, 0].view(np.float32) == wanted).all()
    assert ((found[2][:, 0] & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16) == wanted).all()
    assert (found[3][:, 0].view(np.float32) == c - (x * y).sum(1)).all()
    brain = [
        (w.view(np.uint32) >> np.uint32(16)).astype(np.uint32) for w in (x[:, 0], x[:, 1], y[:, 0], y[:, 1])
    ]
    p, q = brain[0] | brain[1] << np.uint32(16), brain[2] | brain[3] << np.uint32(16)
    texts = [
        Op("v_dot2_f32_bf16 {d}, {0}, {1}, {2}"),
        Op("v_lshrrev_b32 v20, 16, {2}; v_dot2_bf16_bf16 {d}.l, {0}, {1}, v20.l", start=2),
    ]
    wide, narrow = batch(amd, texts, [p, q, c])
    assert (wide[:, 0].view(np.float32) == wanted).all()
    rounded = (narrow[:, 0] << np.uint32(16)).view(np.float32)
    assert (np.abs(rounded - wanted) <= np.abs(wanted) / 256).all()


@covers("v_dot4_i32_iu8", "v_dot4_u32_u8", "v_dot8_i32_iu4", "v_dot8_u32_u4")
def test_integer_dot_products(amd: Executor) -> None:
    a, b, c = (np.random.default_rng(k).integers(0, 1 << 32, 200).astype(np.uint32) for k in range(3))

    def dot(x: int, y: int, z: int, bits: int, signed: tuple[int, int]) -> int:
        total = z
        for k in range(32 // bits):
            product = 1
            for value, is_signed in ((x, signed[0]), (y, signed[1])):
                e = value >> bits * k & (1 << bits) - 1
                product *= e - (1 << bits) if is_signed and e >> (bits - 1) else e
            total += product
        return total

    cases: dict[str, Callable[[int, int, int], int]] = {
        "v_dot4_u32_u8 {d}, {0}, {1}, {2}": lambda x, y, z: dot(x, y, z, 8, (0, 0)),
        "v_dot8_u32_u4 {d}, {0}, {1}, {2}": lambda x, y, z: dot(x, y, z, 4, (0, 0)),
        "v_dot4_u32_u8 {d}, {0}, {1}, {2} clamp": lambda x, y, z: min(dot(x, y, z, 8, (0, 0)), (1 << 32) - 1),
    }
    for signs in itertools.product((0, 1), repeat=2):
        neg = f" neg_lo:[{signs[0]},{signs[1]},0]"
        cases[f"v_dot4_i32_iu8 {{d}}, {{0}}, {{1}}, {{2}}{neg}"] = lambda x, y, z, w=signs: dot(x, y, z, 8, w)
        cases[f"v_dot8_i32_iu4 {{d}}, {{0}}, {{1}}, {{2}}{neg}"] = lambda x, y, z, w=signs: dot(x, y, z, 4, w)
        clamped = f"v_dot4_i32_iu8 {{d}}, {{0}}, {{1}}, {{2}}{neg} clamp"
        cases[clamped] = lambda x, y, z, w=signs: limit(
            dot(x, y, z - ((z >> 31) << 32), 8, w), -(1 << 31), (1 << 31) - 1
        )
    found = batch(amd, [Op(t) for t in cases], [a, b, c])
    for (text, reference), result in zip(cases.items(), found, strict=True):
        rows = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
        assert result[:, 0].tolist() == [reference(*row) & 0xFFFFFFFF for row in rows], text


# --- matrices ---


def spread(rows: Array, wave: int) -> list[Array]:
    """Return the registers that hold a 16 x 16 matrix's rows (of A) or columns (of B).

    One row a lane, repeated.
    """
    words = np.ascontiguousarray(rows).view(np.uint32)
    return [np.tile(words[:, k], wave // 16).copy() for k in range(words.shape[1])]


def tile(matrix: Array, wave: int) -> list[Array]:
    """Return the registers of an accumulator.

    Lane L of register v is row (wave / 16) v + L / 16, column L % 16.
    """
    per = wave // 16
    return [matrix[per * v : per * v + per].reshape(-1).copy() for v in range(16 // per)]


def untile(registers: Array, wave: int) -> Array:
    """Return the matrix in the results of shape (lanes, registers)."""
    return registers.T.reshape(-1, 16)


def matrix_text(name: str, sizes: tuple[int, int], count: int, modifiers: str = "") -> Op:
    first = 2
    a = f"v[{first}:{first + sizes[0] - 1}]"
    b = f"v[{first + sizes[0]}:{first + sum(sizes) - 1}]"
    c = first + sum(sizes)
    moves = "; ".join(f"v_mov_b32 v{40 + k}, v{c + k}" for k in range(count))
    d = f"v[40:{39 + count}]"
    return Op(f"{moves}; {name} {d}, {a}, {b}, {d}{modifiers}", count)


@covers(
    "v_wmma_f32_16x16x16_f16",
    "v_wmma_f32_16x16x16_bf16",
    "v_wmma_f16_16x16x16_f16",
    "v_wmma_bf16_16x16x16_bf16",
)
@pytest.mark.parametrize("wave", EITHER_WAVE)
def test_float_matrices(amd: Executor, wave: int) -> None:
    rng, count = np.random.default_rng(5), 256 // wave
    a, b = rng.integers(-8, 9, (16, 16)).astype(np.float32), rng.integers(-8, 9, (16, 16)).astype(np.float32)
    c = rng.integers(-100, 101, (16, 16)).astype(np.float32)
    wanted = a @ b + c
    brain = [(m.view(np.uint32) >> np.uint32(16)).astype(np.uint16) for m in (a, b.T.copy())]
    halves = [m.astype(np.float16).view(np.uint16) for m in (a, b.T.copy())]
    for name, rows in (("f16", halves), ("bf16", brain)):
        inputs = [*spread(rows[0], wave), *spread(rows[1], wave), *tile(c, wave)]
        operation = matrix_text(f"v_wmma_f32_16x16x16_{name}", (8, 8), count)
        before = ["s_mov_b32 exec_lo, 1"] if wave == 32 else ["s_mov_b64 exec, 1"]
        after = "s_mov_b32 exec_lo, -1" if wave == 32 else "s_mov_b64 exec, -1"
        text = Op(operation.text.replace("v_wmma", f"{before[0]}; v_wmma") + f"; {after}", count)
        for op in (operation, text):  # EXEC does not matter
            (words,) = batch(amd, [op], inputs, wave=wave)
            assert (untile(words.view(np.float32), wave) == wanted).all(), name
    small = rng.integers(-50, 51, (16, 16)).astype(np.float16)
    other = rng.integers(0, 1 << 16, (16, 16)).astype(np.uint32)
    for high in (0, 1):
        packed = small.view(np.uint16).astype(np.uint32) << np.uint32(16 * high) | other << np.uint32(
            16 - 16 * high
        )
        inputs = [*spread(halves[0], wave), *spread(halves[1], wave), *tile(packed.astype(np.uint32), wave)]
        operation = matrix_text("v_wmma_f16_16x16x16_f16", (8, 8), count, f" op_sel:[0,0,{high}]")
        (words,) = batch(amd, [operation], inputs, wave=wave)
        result = untile(words, wave)
        got = (result >> np.uint32(16 * high) & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16)
        assert (got == (a @ b + small).astype(np.float16)).all()
        assert (result >> np.uint32(16 - 16 * high) & np.uint32(0xFFFF) == other).all()
    inputs = [
        *spread(brain[0], wave),
        *spread(brain[1], wave),
        *tile(c.view(np.uint32) >> np.uint32(16), wave),
    ]
    (words,) = batch(amd, [matrix_text("v_wmma_bf16_16x16x16_bf16", (8, 8), count)], inputs, wave=wave)
    got = (untile(words, wave) << np.uint32(16)).view(np.float32)
    assert (np.abs(got - wanted) <= np.abs(wanted) / 256).all()


@covers("v_wmma_i32_16x16x16_iu8", "v_wmma_i32_16x16x16_iu4")
@pytest.mark.parametrize("wave", EITHER_WAVE)
def test_integer_matrices(amd: Executor, wave: int) -> None:
    rng, count = np.random.default_rng(5), 256 // wave
    c = rng.integers(-1000, 1000, (16, 16)).astype(np.int32)
    for bits, signs in itertools.product((8, 4), itertools.product((0, 1), repeat=2)):
        low = [-(1 << (bits - 1)) if s else 0 for s in signs]
        a, b = (rng.integers(lo, lo + (1 << bits), (16, 16)) for lo in low)
        packed = []
        for m in (a, b.T):
            unsigned = (m & (1 << bits) - 1).astype(np.uint8)
            packed.append(
                unsigned if bits == 8 else (unsigned[:, ::2] | unsigned[:, 1::2] << 4).astype(np.uint8)
            )
        registers = 16 * bits // 32
        inputs = [*spread(packed[0], wave), *spread(packed[1], wave), *tile(c, wave)]
        name = f"v_wmma_i32_16x16x16_iu{bits}"
        operation = matrix_text(name, (registers, registers), count, f" neg_lo:[{signs[0]},{signs[1]},0]")
        (words,) = batch(amd, [operation], inputs, wave=wave)
        assert (untile(words.view(np.int32), wave) == a @ b + c).all()


def test_integer_matrices_saturate_with_clamp(amd: Executor) -> None:
    ones = np.ones((16, 16), np.uint8)
    c = np.full((16, 16), (1 << 31) - 3, np.int32)
    inputs = [*spread(ones, 32), *spread(ones, 32), *tile(c, 32)]
    (words,) = batch(amd, [matrix_text("v_wmma_i32_16x16x16_iu8", (4, 4), 8, " clamp")], inputs)
    assert (words == np.uint32((1 << 31) - 1)).all()


# --- pairs of operations ---


DUAL = ("mul_f32", "add_f32", "sub_f32", "subrev_f32", "max_f32", "min_f32", "mul_dx9_zero_f32",
        "fmac_f32", "fmaak_f32", "fmamk_f32", "mov_b32", "cndmask_b32", "add_nc_u32", "lshlrev_b32",
        "and_b32")  # fmt: skip


@covers(*(f"v_dual_{name}" for name in DUAL))
def test_dual_operations_compute_both_halves(amd: Executor) -> None:
    a, b = pairs("f32", 2, rows=300)
    r = Rules(F32)
    each_half: dict[str, Half] = {
        "v_dual_mul_f32 {d}, {x}, {y}": r.multiply,
        "v_dual_add_f32 {d}, {x}, {y}": r.add,
        "v_dual_sub_f32 {d}, {x}, {y}": r.subtract,
        "v_dual_subrev_f32 {d}, {x}, {y}": lambda x, y: r.subtract(y, x),
        "v_dual_max_f32 {d}, {x}, {y}": lambda x, y: r.extreme("max", x, y),
        "v_dual_min_f32 {d}, {x}, {y}": lambda x, y: r.extreme("min", x, y),
        "v_dual_mul_dx9_zero_f32 {d}, {x}, {y}": lambda x, y: (
            r.multiply(x, y) if x & 0x7FFFFFFF and y & 0x7FFFFFFF else 0
        ),
        "v_dual_fmac_f32 {d}, {x}, {y}": lambda x, y: r.fma(x, y, x),
        "v_dual_fmaak_f32 {d}, {x}, {y}, 0x40400000": lambda x, y: r.fma(x, y, 0x40400000),
        "v_dual_fmamk_f32 {d}, {x}, 0x40400000, {y}": lambda x, y: r.fma(x, 0x40400000, y),
        "v_dual_mov_b32 {d}, {x}": lambda x, y: x,
        "v_dual_cndmask_b32 {d}, {x}, {y}": lambda x, y: y,
    }
    only_second: dict[str, Half] = {
        "v_dual_add_nc_u32 {d}, {x}, {y}": lambda x, y: x + y & 0xFFFFFFFF,
        "v_dual_lshlrev_b32 {d}, {x}, {y}": lambda x, y: y << (x & 31) & 0xFFFFFFFF,
        "v_dual_and_b32 {d}, {x}, {y}": lambda x, y: x & y,
    }
    first, second = list(each_half), [*each_half, *only_second]
    order = [(first[k % len(first)], text) for k, text in enumerate(reversed(second))]
    operations = []
    for x, y in order:
        pair = [
            part.format(d=f"v{40 + k}", x="v4" if k else "v2", y="v5" if k else "v3")
            for k, part in enumerate((x, y))
        ]
        setup = "; ".join(f"v_mov_b32 v{k}, {{{c}}}" for k, c in ((4, 0), (5, 1), (40, 0), (41, 0)))
        setup += "; s_mov_b32 vcc_lo, -1"
        operations.append(Op(f"{setup}; {pair[0]} :: {pair[1]}", 2))
    for (x, y), result in zip(order, batch(amd, operations, [a, b]), strict=True):
        for k, text in enumerate((x, y)):
            wanted = each((each_half | only_second)[text], a, b)
            problem = report("f32", [a, b], result[:, k], wanted)
            assert not problem, f"{text}: {problem}"


@covers("v_dual_dot2acc_f32_f16", "v_dual_dot2acc_f32_bf16")
def test_dual_dot_products_accumulate(amd: Executor) -> None:
    a, b = small_halves(32, 1), small_halves(32, 2)
    text = "v_mov_b32 v4, {0}; v_mov_b32 v5, {1}; v_mov_b32 v40, 1.0; v_mov_b32 v41, 2.0;"
    text += "v_dual_dot2acc_f32_f16 v40, v2, v3 :: v_dual_dot2acc_f32_f16 v41, v4, v5"
    (words,) = batch(amd, [Op(text, 2)], [a, b])
    x, y = (w.view(np.float16).reshape(-1, 2).astype(np.float32) for w in (a, b))
    sums = (x * y).sum(1)
    assert (words.view(np.float32) == sums[:, None] + np.array([1.0, 2.0], np.float32)).all()
    a, b = (
        (w.view(np.uint32) >> 16).reshape(-1, 2) for w in (np.ascontiguousarray(x), np.ascontiguousarray(y))
    )
    packed = [(w[:, 0] | w[:, 1] << 16).astype(np.uint32) for w in (a, b)]
    text = text.replace("dot2acc_f32_f16 v40", "dot2acc_f32_bf16 v40")
    text = text.replace(":: v_dual_dot2acc_f32_f16 v41, v4, v5", ":: v_dual_mov_b32 v41, v4")
    (words,) = batch(amd, [Op(text, 2)], packed)
    assert (words[:, 0].view(np.float32) == sums + 1).all()


def test_dual_operations_read_all_sources_before_they_write(amd: Executor) -> None:
    a = np.arange(32, dtype=np.uint32)
    text = "v_mov_b32 v40, {0}; v_mov_b32 v41, 7; v_dual_mov_b32 v40, v41 :: v_dual_add_nc_u32 v41, v40, v40"
    (words,) = batch(amd, [Op(text, 2)], [a], flags=CLAMP_IEEE)
    assert (words[:, 0] == 7).all() and (words[:, 1] == 2 * a).all()
