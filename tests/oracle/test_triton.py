"""Kernels of Triton, compiled for gfx1100, compute on a virtual device what numpy computes.

Triton puts two pointers behind the arguments of the source, to scratch memory that kernels here do not have,
and leaves the size of local memory to the launch. Needs the wheel ``triton`` (3.9), which compiles without a
GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import ringfence as rf
from ringfence.errors import PackageError

triton = pytest.importorskip("triton", reason="triton is not installed (pip install triton)")
tl = pytest.importorskip("triton.language")
ASTSource = pytest.importorskip("triton.compiler").ASTSource
GPUTarget = pytest.importorskip("triton.backends.compiler").GPUTarget

pytestmark = pytest.mark.conformance

Array = npt.NDArray[Any]
EPSILON = float(np.finfo(np.float32).eps)
TILE = 32
LANES, WARPS = 32, 4
# Triton's names of types -> the instruction that multiplies matrices of it.
MULTIPLIES = {
    "fp16": "v_wmma_f32_16x16x16_f16",
    "bf16": "v_wmma_f32_16x16x16_bf16",
    "i8": "v_wmma_i32_16x16x16_iu8",
    "fp32": "v_dual_fmac_f32",
}


# ----- kernels ------------------------------------------------------------------------------------


@triton.jit
def matmul(c, a, b, rows, columns, inner, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), c.dtype.element_ty)
    for start in range(0, inner, BLOCK):
        across = start + tl.arange(0, BLOCK)[None, :]
        down = start + tl.arange(0, BLOCK)[:, None]
        left = tl.load(a + m * inner + across, mask=(m < rows) & (across < inner), other=0)
        right = tl.load(b + down * columns + n, mask=(down < inner) & (n < columns), other=0)
        total += tl.dot(left, right)
    tl.store(c + m * columns + n, total, mask=(m < rows) & (n < columns))


@triton.jit
def softmax(out, x, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    place = tl.program_id(0) * columns + at
    row = tl.load(x + place, mask=at < columns, other=-float("inf"))
    powers = tl.exp(row - tl.max(row, 0))
    tl.store(out + place, powers / tl.sum(powers, 0), mask=at < columns)


@triton.jit
def attention(out, q, k, v, count, scale, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    feature = tl.arange(0, WIDTH)
    head = tl.program_id(1) * count * WIDTH
    place = head + row[:, None] * WIDTH + feature[None, :]
    query = tl.load(q + place, mask=row[:, None] < count, other=0.0)
    highest = tl.full((BLOCK,), float("-inf"), tl.float32)
    weight = tl.zeros((BLOCK,), tl.float32)
    total = tl.zeros((BLOCK, WIDTH), tl.float32)
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        across, down = at[None, :], at[:, None]
        keys = tl.load(k + head + across * WIDTH + feature[:, None], mask=across < count, other=0.0)
        scores = tl.where(across < count, tl.dot(query, keys) * scale, float("-inf"))
        above = tl.maximum(highest, tl.max(scores, 1))
        powers = tl.exp(scores - above[:, None])
        shrink = tl.exp(highest - above)
        values = tl.load(v + head + down * WIDTH + feature[None, :], mask=down < count, other=0.0)
        total = total * shrink[:, None] + tl.dot(powers.to(tl.float16), values)
        weight = weight * shrink + tl.sum(powers, 1)
        highest = above
    tl.store(out + place, total / weight[:, None], mask=row[:, None] < count)


@triton.jit
def sums(out, x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.cumsum(tl.load(x + at), 0))


@triton.jit
def ordered(out, x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.sort(tl.load(x + at)))


@triton.jit
def histogram(out, x, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(x + at, mask=at < count, other=0), 1, mask=at < count)


@triton.jit
def programs(out):
    tl.store(out + tl.program_id(0), tl.num_programs(0) * 1000 + tl.num_programs(1))


@triton.jit
def printing(out):
    tl.device_print("out", tl.load(out))


# ----- running them -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rf.Device]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        with rf.open("virtual:gfx1100") as opened:
            yield opened


def compiled(function: Any, types: str, **constants: int) -> Any:
    """Return Triton's compiled kernel; ``types`` are those of the arguments that are no constants."""
    signature = dict(zip(function.arg_names, types.split())) | dict.fromkeys(constants, "constexpr")
    source = ASTSource(fn=function, signature=signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("hip", "gfx1100", LANES), options={"num_warps": WARPS})


def launch(device: rf.Device, kernel: Any, groups: tuple[int, int, int], out: Array, *inputs: Any) -> Array:
    """Launch a kernel; return what it made of ``out``, its first argument."""
    metadata = kernel.metadata
    assert (metadata.global_scratch_size, metadata.profile_scratch_size) == (0, 0)
    program = device.load(kernel.asm["hsaco"]).kernel(metadata.name, dynamic_lds_bytes=metadata.shared)
    result = device.array(out)
    arguments = [device.array(value) if isinstance(value, np.ndarray) else value for value in inputs]
    unused = [device.zeros(1, np.uint64)] * 2
    local = (LANES * WARPS, 1, 1)
    device.launch(program, result, *arguments, *unused, groups=groups, local=local).wait(timeout=300.0)
    return result.numpy().copy()


# ----- matrices -----------------------------------------------------------------------------------


def matrices(kind: str, *shapes: tuple[int, int]) -> list[tuple[Array, Array]]:
    """Return matrices as their kernels read them, and the same values as numpy has them."""
    rng = np.random.default_rng(3)
    if kind == "i8":
        return [
            (value, value) for value in (rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes)
        ]
    made = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    if kind == "bf16":  # the high half of a float32
        halves = [(value.view(np.uint32) >> 16).astype(np.uint16) for value in made]
        return [(half, (half.astype(np.uint32) << 16).view(np.float32)) for half in halves]
    made = [value.astype(np.float16 if kind == "fp16" else np.float32) for value in made]
    return [(value, value) for value in made]


@pytest.mark.parametrize("kind", MULTIPLIES)
def test_a_product_of_matrices_is_within_rounding_of_float64(device: rf.Device, kind: str) -> None:
    """Products are exact in float32 but those of float32, so what remains are ``inner`` roundings of sums."""
    rows, columns, inner = 50, 70, 90
    (stored_a, a), (stored_b, b) = matrices(kind, (rows, inner), (inner, columns))
    out = np.zeros((rows, columns), np.int32 if kind == "i8" else np.float32)
    types = f"*{'i32' if kind == 'i8' else 'fp32'} *{kind} *{kind} i32 i32 i32"
    kernel = compiled(matmul, types, BLOCK=TILE)
    assert MULTIPLIES[kind] in kernel.asm["amdgcn"]
    sizes = [np.int32(size) for size in (rows, columns, inner)]
    found = launch(
        device, kernel, (-(-rows // TILE), -(-columns // TILE), 1), out, stored_a, stored_b, *sizes
    )
    a, b = a.astype(np.float64), b.astype(np.float64)
    bound = 0.0 if kind == "i8" else inner * EPSILON * (np.abs(a) @ np.abs(b))
    assert np.all(np.abs(found - a @ b) <= bound)


@pytest.mark.parametrize("columns", [777, 1024])
def test_softmax_is_within_rounding_of_float64(device: rf.Device, columns: int) -> None:
    """The rounding of x - max(x) becomes a relative error of its power; the rest are a few roundings."""
    x = 4 * np.random.default_rng(4).standard_normal((7, columns), dtype=np.float32)
    kernel = compiled(softmax, "*fp32 *fp32 i32", BLOCK=1024)
    found = launch(device, kernel, (len(x), 1, 1), np.zeros_like(x), x, np.int32(columns))
    away = x.astype(np.float64) - x.max(1, keepdims=True)
    exact = np.exp(away) / np.exp(away).sum(1, keepdims=True)
    assert np.all(np.abs(found - exact) <= (16 + np.abs(away)) * EPSILON * exact)


def test_attention_is_within_the_rounding_of_its_weights(device: rf.Device) -> None:
    """Weights, of which the largest is 1, are rounded to half precision before they are multiplied."""
    count, width = 50, 32
    q, k, v = np.random.default_rng(5).standard_normal((3, 2, count, width)).astype(np.float16)
    scale = np.float32(width**-0.5)
    kernel = compiled(attention, "*fp32 *fp16 *fp16 *fp16 i32 fp32", BLOCK=TILE, WIDTH=width)
    out = np.zeros((2, count, width), np.float32)
    found = launch(device, kernel, (2, 2, 1), out, q, k, v, np.int32(count), scale)
    q, k, v = (value.astype(np.float64) for value in (q, k, v))
    scores = q @ k.swapaxes(1, 2) * np.float64(scale)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    bound = float(np.finfo(np.float16).eps) * (weights @ np.abs(v))
    assert np.all(np.abs(found - weights @ v) <= bound)


# ----- exact kernels ------------------------------------------------------------------------------


def test_a_scan_gives_running_sums(device: rf.Device) -> None:
    x = np.random.default_rng(6).integers(-9, 10, 512).astype(np.float32)
    found = launch(device, compiled(sums, "*fp32 *fp32", BLOCK=512), (1, 1, 1), np.zeros_like(x), x)
    np.testing.assert_array_equal(found, np.cumsum(x))


def test_a_sort_sorts(device: rf.Device) -> None:
    x = np.random.default_rng(7).standard_normal(256, dtype=np.float32)
    found = launch(device, compiled(ordered, "*fp32 *fp32", BLOCK=256), (1, 1, 1), np.zeros_like(x), x)
    np.testing.assert_array_equal(found, np.sort(x))


def test_atomics_of_several_groups_count_all(device: rf.Device) -> None:
    x = np.random.default_rng(8).integers(0, 16, 1000).astype(np.int32)
    kernel = compiled(histogram, "*i32 *i32 i32", BLOCK=256)
    found = launch(device, kernel, (4, 1, 1), np.zeros(16, np.int32), x, np.int32(x.size))
    np.testing.assert_array_equal(found, np.bincount(x, minlength=16))


# ----- hidden arguments ---------------------------------------------------------------------------


def test_the_number_of_programs_comes_in_hidden_arguments(device: rf.Device) -> None:
    found = launch(device, compiled(programs, "*i32"), (6, 7, 1), np.zeros(6, np.int32))
    assert found.tolist() == [6007] * 6


def test_printing_needs_a_host_that_answers_and_is_refused(device: rf.Device) -> None:
    module = device.load(compiled(printing, "*i32").asm["hsaco"])
    with pytest.raises(PackageError, match="kernel 'printing' needs hidden_hostcall_buffer"):
        module["printing"]
