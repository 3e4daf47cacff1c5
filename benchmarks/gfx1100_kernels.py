"""OpenCL C kernels for the virtual gfx1100, with the data that they run on and what must come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ringfence.compile.opencl import compile_opencl
from ringfence.hardware.amd.code_object import load_code_object
from ringfence.hardware.amd.metadata import KernelMetadata
from ringfence.virtual import run_amdgpu
from ringfence.virtual.isa.rdna.arguments import argument_block

Array = npt.NDArray[Any]
Size = tuple[int, int, int]

# A barrier for local memory alone: the one of the language also invalidates caches of global memory, with an
# instruction that tinygrad's emulator does not know.
BARRIER = """
void local_barrier(void) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}
"""

NAIVE = """
__kernel void matmul(__global const float *a, __global const float *b, __global float *c, int n) {
  int row = get_global_id(1), column = get_global_id(0);
  float sum = 0;
  for (int k = 0; k < n; k++) sum = fma(a[row * n + k], b[k * n + column], sum);
  c[row * n + column] = sum;
}
"""

LDS = """
#define TILE 16
__attribute__((reqd_work_group_size(TILE, TILE, 1)))
__kernel void matmul(__global const float *a, __global const float *b, __global float *c, int n) {
  __local float ta[TILE][TILE], tb[TILE][TILE];
  int x = get_local_id(0), y = get_local_id(1);
  int column = get_global_id(0), row = get_global_id(1);
  float sum = 0;
  for (int t = 0; t < n; t += TILE) {
    ta[y][x] = a[row * n + t + x];
    tb[y][x] = b[(t + y) * n + column];
    local_barrier();
    for (int k = 0; k < TILE; k++) sum = fma(ta[y][k], tb[k][x], sum);
    local_barrier();
  }
  c[row * n + column] = sum;
}
"""

# 4 x 4 elements for each work-item; its columns are 16 apart, so that neighbours read neighbours.
BLOCKED = """
#define K 16
#define TILE 64
__attribute__((reqd_work_group_size(16, 16, 1)))
__kernel void matmul(__global const float *a, __global const float *b, __global float *c, int n) {
  __local float ta[K][TILE], tb[K][TILE];
  int x = get_local_id(0), y = get_local_id(1);
  int row = get_group_id(1) * TILE, column = get_group_id(0) * TILE;
  float sum[4][4] = {};
  for (int t = 0; t < n; t += K) {
    for (int k = 0; k < 4; k++) {
      ta[x][y + 16 * k] = a[(row + y + 16 * k) * n + t + x];
      tb[y][x + 16 * k] = b[(t + y) * n + column + x + 16 * k];
    }
    local_barrier();
    for (int k = 0; k < K; k++)
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) sum[i][j] = fma(ta[k][4 * y + i], tb[k][x + 16 * j], sum[i][j]);
    local_barrier();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) c[(row + 4 * y + i) * n + column + x + 16 * j] = sum[i][j];
}
"""

# One wave for each 16 x 16 tile of C; A is row-major, B column-major.
WMMA = """
__attribute__((reqd_work_group_size(32, 1, 1)))
__kernel void matmul(__global const half *a, __global const half *b, __global float *c, int n) {
  int lane = get_local_id(0), l = lane & 15;
  int row = get_group_id(1) * 16, column = get_group_id(0) * 16;
  float8 sum = 0;
  for (int k = 0; k < n; k += 16) {
    half16 fa = vload16(0, a + (row + l) * n + k), fb = vload16(0, b + (column + l) * n + k);
    sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(fa, fb, sum);
  }
  for (int v = 0; v < 8; v++) c[(row + 2 * v + (lane >> 4)) * n + column + l] = sum[v];
}
"""

ADD = """
__kernel void add(__global const float *a, __global const float *b, __global float *c) {
  int i = get_global_id(0);
  c[i] = a[i] + b[i];
}
"""

# A group for each row of 1024.
SOFTMAX = """
#define SIZE 256
float reduced(__local float *shared, float value, int larger) {
  int i = get_local_id(0);
  shared[i] = value;
  local_barrier();
  for (int step = SIZE / 2; step; step >>= 1) {
    if (i < step) shared[i] = larger ? fmax(shared[i], shared[i + step]) : shared[i] + shared[i + step];
    local_barrier();
  }
  float result = shared[0];
  local_barrier();
  return result;
}
__attribute__((reqd_work_group_size(SIZE, 1, 1)))
__kernel void softmax(__global const float *in, __global float *out) {
  __local float shared[SIZE];
  int i = get_local_id(0), row = get_group_id(0) * 1024;
  float x[4];
  for (int k = 0; k < 4; k++) x[k] = in[row + i + SIZE * k];
  float top = reduced(shared, fmax(fmax(x[0], x[1]), fmax(x[2], x[3])), 1);
  for (int k = 0; k < 4; k++) x[k] = exp(x[k] - top);
  float sum = reduced(shared, x[0] + x[1] + x[2] + x[3], 0);
  for (int k = 0; k < 4; k++) out[row + i + SIZE * k] = x[k] / sum;
}
"""

# 3 x 3 kernels over 32 channels of 130 x 130 (a border of one around 128 x 128), for 32 channels.
CONVOLUTION = """
#define SIZE 128
#define CHANNELS 32
__kernel void convolve(__global const float *in, __global const float *weights, __global float *out) {
  int x = get_global_id(0), y = get_global_id(1), channel = get_global_id(2);
  float sum = 0;
  for (int c = 0; c < CHANNELS; c++)
    for (int dy = 0; dy < 3; dy++)
      for (int dx = 0; dx < 3; dx++)
        sum = fma(in[(c * (SIZE + 2) + y + dy) * (SIZE + 2) + x + dx],
                  weights[((channel * CHANNELS + c) * 3 + dy) * 3 + dx], sum);
  out[(channel * SIZE + y) * SIZE + x] = sum;
}
"""


@dataclass(frozen=True)
class Case:
    """A launch: ``arrays`` in the order of the kernel's arguments, then ``numbers``.

    ``check`` raises if the arrays are not as they must be after the whole grid has run. ``operations`` counts
    the floating-point operations that the kernel is for, ``few`` is a smaller grid for slow executors.
    """

    name: str
    source: str
    groups: Size
    local: Size
    arrays: tuple[Array, ...]
    numbers: tuple[np.generic, ...]
    operations: int
    few: Size
    check: Callable[[], None]

    @property
    def code(self) -> bytes:
        """The code object."""
        return _compiled(self.source)

    def run(self, executor: Any, groups: Size | None = None) -> None:
        """Run the grid, or another number of ``groups``."""
        launch(self.code, groups or self.groups, self.local, self.arrays, self.numbers, executor)


@cache
def _metadata(code: bytes) -> KernelMetadata:
    found = load_code_object(code).kernel().metadata
    assert found is not None
    return found


@cache
def _compiled(source: str) -> bytes:
    return compile_opencl(BARRIER + source)


def launch(
    code: bytes,
    groups: Size,
    local: Size,
    arrays: tuple[Array, ...],
    numbers: tuple[np.generic, ...],
    executor: Any,
    *,
    memory: str | None = None,
) -> None:
    """Run the only kernel of a code object; with ``memory`` of ``"host"`` accesses are not checked."""
    addresses = [int(array.ctypes.data) for array in arrays]
    values = [*(address.to_bytes(8, "little") for address in addresses), *(n.tobytes() for n in numbers)]
    block = argument_block(_metadata(code), values, groups, local)
    place = int(block.ctypes.data)
    run_amdgpu(
        code,
        "gfx1100",
        groups=groups,
        local=local,
        kernarg_address=place,
        memory=memory or {place: block, **dict(zip(addresses, arrays, strict=True))},
        executor=executor,
    )


def matmul(variant: str, n: int) -> Case:
    """Return an n x n matrix product: ``naive``, ``lds``, ``blocked`` or ``wmma``."""
    rng = np.random.default_rng(0)
    # Small whole numbers, whose sums are exact in any order.
    a, b = (rng.integers(-8, 9, (n, n)).astype(np.float32) for _ in "ab")
    c, wanted = np.zeros((n, n), np.float32), a @ b
    source, tile, local = {
        "naive": (NAIVE, 16, (16, 16, 1)),
        "lds": (LDS, 16, (16, 16, 1)),
        "blocked": (BLOCKED, 64, (16, 16, 1)),
        "wmma": (WMMA, 16, (32, 1, 1)),
    }[variant]
    if variant == "wmma":
        a, b = a.astype(np.float16), np.ascontiguousarray(b.T.astype(np.float16))
    few = {"blocked": (1, 1, 1), "wmma": (16, 2, 1)}.get(variant, (2, 1, 1))
    groups = (n // tile, n // tile, 1)

    def check() -> None:
        np.testing.assert_array_equal(c, wanted)

    numbers = (np.int32(n),)
    return Case(f"matmul{n}.{variant}", source, groups, local, (a, b, c), numbers, 2 * n**3, few, check)


def add() -> Case:
    """Return the sum of two arrays of 16 Mi elements."""
    n = 1 << 24
    a, b = (np.random.default_rng(k).random(n, np.float32) for k in range(2))
    c = np.zeros(n, np.float32)

    def check() -> None:
        np.testing.assert_array_equal(c, a + b)

    return Case("add16m", ADD, (n // 256, 1, 1), (256, 1, 1), (a, b, c), (), n, (64, 1, 1), check)


def softmax() -> Case:
    """Return the softmax of 1024 rows of 1024."""
    n = 1024
    x = np.random.default_rng(0).normal(0, 3, (n, n)).astype(np.float32)
    out = np.zeros((n, n), np.float32)

    def check() -> None:
        e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        np.testing.assert_allclose(out, e / e.sum(axis=1, keepdims=True), rtol=1e-5)

    return Case("softmax1024", SOFTMAX, (n, 1, 1), (256, 1, 1), (x, out), (), 5 * n * n, (4, 1, 1), check)


def convolution() -> Case:
    """Return a 3 x 3 convolution of 32 to 32 channels of 128 x 128."""
    size, channels = 128, 32
    rng = np.random.default_rng(0)
    x = np.zeros((channels, size + 2, size + 2), np.float32)
    x[:, 1:-1, 1:-1] = rng.integers(-4, 5, (channels, size, size))
    w = rng.integers(-4, 5, (channels, channels, 3, 3)).astype(np.float32)
    out = np.zeros((channels, size, size), np.float32)

    def check() -> None:
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
        np.testing.assert_array_equal(out, np.einsum("cyxij,ocij->oyx", windows, w, optimize=True))

    operations = 2 * 9 * channels * channels * size * size
    groups, few = (size // 32, size // 8, channels), (1, 1, 1)
    return Case("conv3x3", CONVOLUTION, groups, (32, 8, 1), (x, w, out), (), operations, few, check)


VARIANTS = ("naive", "lds", "blocked", "wmma")


def cases() -> dict[str, Callable[[], Case]]:
    """Return what makes each case, in the order of the table."""
    makers: dict[str, Callable[[], Case]] = {}
    for n in (256, 512):
        for variant in VARIANTS:
            makers[f"matmul{n}.{variant}"] = partial(matmul, variant, n)
    return {**makers, "add16m": add, "softmax1024": softmax, "conv3x3": convolution}
