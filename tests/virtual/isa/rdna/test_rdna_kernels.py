"""Kernels compiled from OpenCL C, whose results are computed again with numpy and Python integers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from compile.opencl_kernels import KERNELS
from ringfence.compile.opencl import compile_opencl
from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.launch import launch

Array = npt.NDArray[Any]
Check = Callable[[Callable[..., None]], None]
"""Gets a function (groups, local, arguments) that runs the kernel."""


@cache
def compiled(name: str, wave: int, optimization: int) -> bytes:
    return compile_opencl(KERNELS[name][0], wave=wave, optimization=optimization)


def whole(rng: np.random.Generator, *shape: int) -> Array:
    """Return small whole numbers, of which all products and sums are exact."""
    return rng.integers(-8, 9, shape).astype(np.float32)


def matmul(block: int, groups_of: int) -> Check:
    def check(run: Callable[..., None]) -> None:
        rng, n = np.random.default_rng(1), 64
        a, b = whole(rng, n, n), whole(rng, n, n)
        c = np.zeros((n, n), np.float32)
        run((n // groups_of, n // groups_of, 1), (block, block, 1), a, b, c, np.int32(n))
        assert (c == a @ b).all()

    return check


def wmma(run: Callable[..., None]) -> None:
    rng, n = np.random.default_rng(1), 64
    a, b = whole(rng, n, n).astype(np.float16), whole(rng, n, n).astype(np.float16)
    c = np.zeros((n, n), np.float32)
    run((4, 4, 1), (32, 1, 1), a, b, c, np.int32(n))
    assert (c == a.astype(np.float32) @ b.astype(np.float32).T).all()


def barrier_loop(run: Callable[..., None]) -> None:
    rng = np.random.default_rng(2)
    data = rng.integers(-1000, 1000, (5, 256)).astype(np.int32)
    rounds = np.array([0, 3, 17, 1, 8], np.int32)
    wanted = data.copy()
    for row, count in zip(wanted, rounds, strict=True):
        for _ in range(count):
            other = np.roll(row, -1)
            row[1::2] += other[1::2]
            row[::2] -= other[::2]
    run((5, 1, 1), (256, 1, 1), data, rounds)
    assert (data == wanted).all()


def atomics(run: Callable[..., None]) -> None:
    data = np.random.default_rng(3).integers(7, 256, 4096).astype(np.uint8)
    bins, low, total = np.zeros(256, np.uint32), np.array([99], np.int32), np.array([-5], np.int64)
    seen = np.zeros(1, np.int32)
    run((32, 1, 1), (128, 1, 1), data, bins, low, total, seen)
    assert (bins == np.bincount(data, minlength=256)).all()
    assert low[0] == data.min() and total[0] == data.sum() - 5
    assert seen[0] == np.bitwise_or.reduce(np.int32(1) << (data & 31).astype(np.int32))


def compare_exchange(run: Callable[..., None]) -> None:
    data, total = np.arange(256, dtype=np.float32), np.array([0.5], np.float32)
    run((4, 1, 1), (64, 1, 1), total, data)
    assert total[0] == data.sum() + 0.5


def half(run: Callable[..., None]) -> None:
    rng = np.random.default_rng(4)
    x = rng.uniform(-3, 3, 128).astype(np.float16)
    wide = rng.uniform(-3, 3, (128, 4)).astype(np.float16)
    out, f = np.zeros(128, np.float16), np.zeros(128, np.float32)
    run((2, 1, 1), (64, 1, 1), out, x, wide, f)
    exact = x.astype(np.float64)
    v = (wide.astype(np.float64) * exact[:, None] + 1).astype(np.float16)
    first = (exact * exact + v[:, 0]).astype(np.float16)
    wanted = first + np.maximum(v[:, 1], v[:, 2]) - np.sqrt(np.abs(v[:, 3]))
    assert (out == wanted).all()
    assert (f == x.astype(np.float32) + wanted.astype(np.float32)).all()


def double(run: Callable[..., None]) -> None:
    x = np.random.default_rng(5).uniform(0, 20, 256)
    out = np.zeros(256)
    run((2, 1, 1), (128, 1, 1), out, x)
    wanted = np.sqrt(x) / (x + 1) + np.exp(-x) * np.sin(x) + np.trunc(x * 1000)
    assert np.allclose(out, wanted, rtol=1e-15, atol=1e-16)


def int64(run: Callable[..., None]) -> None:
    rng = np.random.default_rng(6)
    a, b = (
        rng.integers(0, 1 << 63, 128, dtype=np.uint64) >> rng.integers(0, 60, 128, dtype=np.uint64)
        for _ in "ab"
    )
    a[::3] |= np.uint64(1 << 63)
    out = np.zeros(128, np.uint64)
    run((2, 1, 1), (64, 1, 1), out, a, b)
    mask = (1 << 64) - 1
    for x, y, got in zip(a.tolist(), b.tolist(), out.tolist(), strict=True):
        y |= 1
        arithmetic = (x - (1 << 64) if x >> 63 else x) >> (y & 31) & mask
        rotated = (x << (y & 63) | x >> (-y & 63)) & mask
        rotated = x if not y & 63 else rotated
        wanted = x // y + x % y + (x * y >> 64) + arithmetic + rotated + x.bit_count() + 64 - y.bit_length()
        assert got == wanted & mask


def vectors(run: Callable[..., None]) -> None:
    rng, n = np.random.default_rng(7), 64
    data = rng.integers(-128, 128, (n, 8)).astype(np.int8)
    three = rng.integers(-5000, 5000, (n, 4)).astype(np.int32)  # int3 takes four places
    pixels = rng.integers(0, 256, (n, 4)).astype(np.uint8)
    out = np.zeros((n, 16), np.float32)
    run((1, 1, 1), (n, 1, 1), out, data, three, pixels)
    f = data.astype(np.float32)
    t = np.concatenate([three[:, :3], np.ones((n, 1), np.int32)], axis=1)
    p = np.minimum(pixels[:, ::-1].astype(np.int32) + 100, 255)
    g = (p + t[:, ::-1]).astype(np.float32)
    last = np.clip(np.trunc(g * 2), 0, 255)
    assert (out == np.concatenate([f[:, ::2], f[:, 1::2], g, last], axis=1)).all()


def private_array(run: Callable[..., None]) -> None:
    rng = np.random.default_rng(8)
    index, out = rng.integers(0, 1 << 16, 40).astype(np.int32), np.zeros(64, np.int32)
    run((1, 1, 1), (64, 1, 1), out, index, np.int32(40))
    for i in range(64):
        table = [k * 3 + i for k in range(256)]
        for packed in index.tolist():
            a, b = packed & 255, packed >> 8 & 255
            table[a], table[b] = table[b], table[a]
        total = 0
        for value in table:
            total = (total * 31 + value) & 0xFFFFFFFF
        assert int(out[i]) & 0xFFFFFFFF == total


def function_table(run: Callable[..., None]) -> None:
    rng = np.random.default_rng(9)
    a, b = (rng.normal(size=128).astype(np.float32) for _ in "ab")
    which, out = rng.integers(0, 3, 128).astype(np.int32), np.zeros(128, np.float32)
    run((2, 1, 1), (64, 1, 1), out, a, b, which)
    assert (out == np.choose(which, [a + b, a - b, a * b])).all()


def calls(run: Callable[..., None]) -> None:
    numbers, out = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    run((1, 1, 1), (64, 1, 1), out, numbers)
    fibonacci = [0, 1]
    while len(fibonacci) < 20:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    assert out.tolist() == [(fibonacci[k & 15] + fibonacci[(k & 15) + 1]) * 2 + 2 for k in range(64)]


def dot_products(run: Callable[..., None]) -> None:
    rng, n = np.random.default_rng(10), 64
    a, b = (rng.integers(-128, 128, (n, 4)).astype(np.int8) for _ in "ab")
    h = rng.integers(-50, 50, (n + 1, 2)).astype(np.float16)
    out, f = np.zeros(n, np.int32), np.zeros(n, np.float32)
    run((1, 1, 1), (n, 1, 1), out, a, b, f, h)
    signed = (a.astype(np.int64) * b).sum(axis=1) + 7
    unsigned = (a.view(np.uint8).astype(np.int64) * b.view(np.uint8)).sum(axis=1) + 7
    assert (out == (signed + unsigned).astype(np.int32)).all()
    assert (f == (h[:-1].astype(np.float32) * h[1:]).sum(axis=1) + 1).all()


def copies(run: Callable[..., None]) -> None:
    rng = np.random.default_rng(3)
    data, out, once = whole(rng, 100, 4), np.zeros((250, 4), np.float32), np.zeros(1, np.int32)
    run((1, 1, 1), (40, 1, 1), out, data, once)
    odd = data[1::2]
    assert (out[:100] == data + np.repeat(odd, 2, axis=0)).all()
    assert (out[100:][::3] == odd).all()
    assert (out[101] == 7).all() and (out[104::3] == 0).all() and once[0] == 1


CHECKS: dict[str, Check] = {
    "naive matmul": matmul(16, 16),
    "tiled matmul": matmul(16, 16),
    "register-blocked matmul": matmul(8, 64),
    "WMMA matmul": wmma,
    "barrier in a loop": barrier_loop,
    "atomics": atomics,
    "compare and exchange": compare_exchange,
    "half": half,
    "double": double,
    "64-bit integers": int64,
    "vectors": vectors,
    "private array": private_array,
    "function table": function_table,
    "calls": calls,
    "copies": copies,
    "dot products": dot_products,
}


def check(executor: Executor, name: str, wave: int, optimization: int) -> None:
    code = compiled(name, wave, optimization)
    CHECKS[name](lambda groups, local, *values: launch(executor, code, groups, local, *values))


def test_every_kernel_has_a_check() -> None:
    assert set(CHECKS) == set(KERNELS)


@pytest.mark.parametrize("name", CHECKS)
def test_a_kernel_computes_what_the_host_computes(amd: Executor, name: str) -> None:
    check(amd, name, 32, 3)


@pytest.mark.conformance
@pytest.mark.parametrize("name", CHECKS)
def test_so_it_does_without_strict_checks(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    executor = Executor(cache_dir=tmp_path_factory.mktemp("cache"), threads=2, strict=False)
    check(executor, name, 32, 3)
    executor.close()


@pytest.mark.conformance
@pytest.mark.parametrize("optimization", [0, 1, 3])
@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("name", CHECKS)
def test_so_it_does_with_either_wave_and_any_optimization(
    amd: Executor, name: str, wave: int, optimization: int
) -> None:
    if name == "WMMA matmul" and wave == 64:
        pytest.skip("the kernel is written for wave32")
    check(amd, name, wave, optimization)
