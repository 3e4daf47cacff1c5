"""The kernels that are measured on the virtual A630, each also as plain OpenCL C and as one ONNX operator.

The OpenCL kernels divide the work as tinygrad's do: the same work-groups, the same elements and the same
vector accesses for each work-item.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Size = tuple[int, int, int]

MATMUL = """
#define N4 (N / 4)
__attribute__((reqd_work_group_size(8, 16, 1)))
__kernel void matmul(__global float4 *out, __global const float4 *a, __global const float4 *b) {
  int row = get_group_id(1) * 32 + get_local_id(0) * 4, column = get_group_id(0) * 16 + get_local_id(1);
  float4 c0 = 0, c1 = 0, c2 = 0, c3 = 0;
  for (int k = 0; k < N4; k++) {
    float4 a0 = a[row * N4 + k], a1 = a[(row + 1) * N4 + k];
    float4 a2 = a[(row + 2) * N4 + k], a3 = a[(row + 3) * N4 + k];
    float4 b0 = b[4 * k * N4 + column], b1 = b[(4 * k + 1) * N4 + column];
    float4 b2 = b[(4 * k + 2) * N4 + column], b3 = b[(4 * k + 3) * N4 + column];
    c0 += a0.x * b0; c1 += a1.x * b0; c2 += a2.x * b0; c3 += a3.x * b0;
    c0 += a0.y * b1; c1 += a1.y * b1; c2 += a2.y * b1; c3 += a3.y * b1;
    c0 += a0.z * b2; c1 += a1.z * b2; c2 += a2.z * b2; c3 += a3.z * b2;
    c0 += a0.w * b3; c1 += a1.w * b3; c2 += a2.w * b3; c3 += a3.w * b3;
  }
  out[row * N4 + column] = c0; out[(row + 1) * N4 + column] = c1;
  out[(row + 2) * N4 + column] = c2; out[(row + 3) * N4 + column] = c3;
}
"""

ADD = """
__attribute__((reqd_work_group_size(32, 1, 1)))
__kernel void add(__global float4 *out, __global const float4 *a, __global const float4 *b) {
  int i = get_global_id(0);
  out[i] = a[i] + b[i];
}
"""

# 4 channels x 4 columns for each work-item.
CONVOLUTION = """
#define C 64
#define S 56
__attribute__((reqd_work_group_size(8, 8, 2)))
__kernel void convolve(__global float4 *out, __global const float *x, __global const float *w) {
  int channel = get_group_id(2) * 32 + get_local_id(0) * 4;
  int row = get_global_id(1), column = get_global_id(0) / 8 * 8 + get_local_id(2) * 4;
  float4 sum[4] = {0, 0, 0, 0};
  for (int c = 0; c < C; c++)
    for (int i = 0; i < 3; i++) {
      int y = row + i - 1;
      float line[6] = {0, 0, 0, 0, 0, 0};
      if (y >= 0 && y < S) {
        __global const float *p = x + (c * S + y) * S + column;
        float4 middle = *(__global const float4 *)p;
        if (column > 0) line[0] = p[-1];
        line[1] = middle.x; line[2] = middle.y; line[3] = middle.z; line[4] = middle.w;
        if (column + 4 < S) line[5] = p[4];
      }
      for (int j = 0; j < 3; j++) {
        float4 taps = (float4)(line[j], line[j + 1], line[j + 2], line[j + 3]);
        for (int k = 0; k < 4; k++) sum[k] += taps * w[((channel + k) * C + c) * 9 + i * 3 + j];
      }
    }
  for (int k = 0; k < 4; k++) out[(((channel + k) * S + row) * S + column) / 4] = sum[k];
}
"""

# A row for each work-group of 16, in three passes: maximum, sum, quotient.
SOFTMAX = """
#define N 1024
__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void row_max(__global float *top, __global const float *x) {
  __local float part[16];
  int row = get_group_id(0), lane = get_local_id(0);
  float m = -INFINITY;
  for (int i = 0; i < 64; i++) m = fmax(m, x[row * N + lane * 64 + i]);
  part[lane] = m;
  barrier(CLK_LOCAL_MEM_FENCE);
  m = -INFINITY;
  for (int i = 0; i < 16; i++) m = fmax(m, part[i]);
  if (lane == 0) top[row] = m;
}
__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void row_sum(__global float *total, __global const float *x, __global const float *top) {
  __local float part[16];
  int row = get_group_id(0), lane = get_local_id(0);
  float m = top[row], s = 0;
  for (int i = 0; i < 64; i++) s += exp2((x[row * N + lane * 64 + i] - m) * M_LOG2E_F);
  part[lane] = s;
  barrier(CLK_LOCAL_MEM_FENCE);
  s = 0;
  for (int i = 0; i < 16; i++) s += part[i];
  if (lane == 0) total[row] = s;
}
__attribute__((reqd_work_group_size(8, 16, 1)))
__kernel void quotient(__global float4 *out, __global const float4 *x, __global const float *top,
                       __global const float *total) {
  int row = get_global_id(0) % 8 + get_group_id(1) * 8, column = get_group_id(0) * 16 + get_local_id(1);
  float4 e = exp2((x[row * (N / 4) + column] - top[row]) * M_LOG2E_F);
  out[row * (N / 4) + column] = e * (1 / total[row]);
}
"""


@dataclass(frozen=True, slots=True)
class Launch:
    """An OpenCL kernel of the peer. ``arguments`` are named as in :class:`CompiledKernel`."""

    kernel: str
    groups: Size
    local: Size
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """What is computed: ``expression`` of tinygrad tensors and ``reference`` of float64 arrays.

    ``tolerance`` bounds the error relative to the largest value of the result; ``temporaries`` are the
    numbers of floats that the OpenCL kernels keep between them. ``operator`` and ``attributes`` are ONNX's.
    ``work`` says in units of ``work_unit`` (``FLOP`` or ``B``) what a run does.
    """

    name: str
    expression: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    reference: Callable[..., Array]
    tolerance: float
    source: str
    launches: tuple[Launch, ...]
    operator: str
    work: int
    work_unit: str
    attributes: dict[str, Any] = field(default_factory=dict)
    temporaries: dict[str, int] = field(default_factory=dict)

    @cached_property
    def inputs(self) -> dict[str, Array]:
        """Random numbers, the same in every process."""
        rng = np.random.default_rng(len(self.name))
        return {f"in{k}": rng.standard_normal(shape, np.float32) for k, shape in enumerate(self.shapes)}

    @cached_property
    def wanted(self) -> Array:
        """The result in float64."""
        return self.reference(*(value.astype(np.float64) for value in self.inputs.values()))

    def error(self, result: Array) -> float:
        """Return the largest error of ``result`` relative to the largest value wanted."""
        difference = np.abs(result.reshape(self.wanted.shape) - self.wanted)
        return float(difference.max() / np.abs(self.wanted).max())


def _matmul(n: int) -> Case:
    source = MATMUL.replace("#define", f"#define N {n}\n#define", 1)
    return Case(
        name=f"matmul{n}",
        expression=lambda a, b: a @ b,
        shapes=((n, n), (n, n)),
        reference=lambda a, b: a @ b,
        tolerance=1e-5,
        source=source,
        launches=(Launch("matmul", (n // 64, n // 32, 1), (8, 16, 1), ("out", "in0", "in1")),),
        operator="MatMul",
        work=2 * n**3,
        work_unit="FLOP",
    )


def _add() -> Case:
    n = 1 << 24
    return Case(
        name="add16m",
        expression=lambda a, b: a + b,
        shapes=((n,), (n,)),
        reference=lambda a, b: a + b,
        tolerance=1e-7,
        source=ADD,
        launches=(Launch("add", (n // 128, 1, 1), (32, 1, 1), ("out", "in0", "in1")),),
        operator="Add",
        work=12 * n,
        work_unit="B",
    )


def _convolution() -> Case:
    channels, size = 64, 56

    def reference(x: Array, w: Array) -> Array:
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded[0], (3, 3), axis=(1, 2))
        result: Array = np.einsum("cyxij,ocij->oyx", windows, w, optimize=True)
        return result[None]

    return Case(
        name="conv3x3",
        expression=lambda x, w: x.conv2d(w, padding=1),
        shapes=((1, channels, size, size), (channels, channels, 3, 3)),
        reference=reference,
        tolerance=1e-5,
        source=CONVOLUTION,
        launches=(Launch("convolve", (7, 7, 2), (8, 8, 2), ("out", "in0", "in1")),),
        operator="Conv",
        work=2 * 9 * channels * channels * size * size,
        work_unit="FLOP",
        attributes={"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    )


def _softmax() -> Case:
    n = 1024

    def reference(x: Array) -> Array:
        e = np.exp(x - x.max(-1, keepdims=True))
        quotient: Array = e / e.sum(-1, keepdims=True)
        return quotient

    return Case(
        name="softmax1024",
        expression=lambda x: x.softmax(-1),
        shapes=((n, n),),
        reference=reference,
        tolerance=1e-5,
        source=SOFTMAX,
        launches=(
            Launch("row_max", (n, 1, 1), (16, 1, 1), ("temp0", "in0")),
            Launch("row_sum", (n, 1, 1), (16, 1, 1), ("temp1", "in0", "temp0")),
            Launch("quotient", (16, 128, 1), (8, 16, 1), ("out", "in0", "temp0", "temp1")),
        ),
        operator="Softmax",
        work=4 * n * n * 4,
        work_unit="B",
        attributes={"axis": -1},
        temporaries={"temp0": n, "temp1": n},
    )


def cases() -> dict[str, Case]:
    """Return the cases in the order of the table."""
    made = (_matmul(256), _matmul(512), _convolution(), _add(), _softmax())
    return {case.name: case for case in made}
