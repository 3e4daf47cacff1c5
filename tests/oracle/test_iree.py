"""Dispatches of IREE, compiled for gfx1100, compute on a virtual device what numpy computes.

IREE decides on the host how many groups a dispatch has; that is read from the program it compiles. Needs the
wheel ``iree-base-compiler`` (3.13).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import ringfence as rf

compiler = pytest.importorskip(
    "iree.compiler", reason="IREE's compiler is not installed (pip install iree-base-compiler)"
)

pytestmark = pytest.mark.conformance

Array = npt.NDArray[Any]
EPSILON = float(np.finfo(np.float32).eps)

MATMUL = """
func.func @product(%a: tensor<64x96x{t}>, %b: tensor<96x48x{t}>) -> tensor<64x48xf32> {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64x48xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x48xf32>) -> tensor<64x48xf32>
  %c = linalg.matmul ins(%a, %b : tensor<64x96x{t}>, tensor<96x48x{t}>)
                     outs(%start : tensor<64x48xf32>) -> tensor<64x48xf32>
  return %c : tensor<64x48xf32>
}}
"""
SOFTMAX = """
func.func @softmax(%x: tensor<33x200xf32>) -> tensor<33x200xf32> {
  %empty = tensor.empty() : tensor<33x200xf32>
  %y = linalg.softmax dimension(1) ins(%x : tensor<33x200xf32>)
                                   outs(%empty : tensor<33x200xf32>) -> tensor<33x200xf32>
  return %y : tensor<33x200xf32>
}
"""
CONVOLUTION = """
func.func @convolution(%x: tensor<1x18x18x16xf16>, %w: tensor<3x3x16x32xf16>) -> tensor<1x16x16x32xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<1x16x16x32xf32>
  %start = linalg.fill ins(%zero : f32)
                       outs(%empty : tensor<1x16x16x32xf32>) -> tensor<1x16x16x32xf32>
  %y = linalg.conv_2d_nhwc_hwcf ins(%x, %w : tensor<1x18x18x16xf16>, tensor<3x3x16x32xf16>)
                                outs(%start : tensor<1x16x16x32xf32>) -> tensor<1x16x16x32xf32>
  return %y : tensor<1x16x16x32xf32>
}
"""
# The sum of exp(a) * b over the columns, of any number of rows.
REDUCTION = """
#whole = affine_map<(i, j) -> (i, j)>
#rows = affine_map<(i, j) -> (i)>
func.func @reduction(%a: tensor<?x96xf32>, %b: tensor<?x96xf32>) -> tensor<?xf32> {
  %first = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %count = tensor.dim %a, %first : tensor<?x96xf32>
  %empty = tensor.empty(%count) : tensor<?xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<?xf32>) -> tensor<?xf32>
  %y = linalg.generic {indexing_maps = [#whole, #whole, #rows], iterator_types = ["parallel", "reduction"]}
      ins(%a, %b : tensor<?x96xf32>, tensor<?x96xf32>) outs(%start : tensor<?xf32>) {
  ^bb0(%x: f32, %w: f32, %sum: f32):
    %power = math.exp %x : f32
    %product = arith.mulf %power, %w : f32
    %next = arith.addf %sum, %product : f32
    linalg.yield %next : f32
  } -> tensor<?xf32>
  return %y : tensor<?xf32>
}
"""


# ----- running them -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A compiled dispatch: the code object, and the number of groups as the host program has it."""

    code: bytes
    groups: tuple[str, ...]

    @property
    def count(self) -> tuple[int, ...]:
        """Return the number of groups; IREE names constants after their values."""
        return tuple(int(name.removeprefix("%c")) for name in self.groups)


def compiled(source: str, folder: Path) -> Dispatch:
    """Return the only dispatch of a program."""
    options = ["--iree-hal-target-device=hip", "--iree-rocm-target=gfx1100", "--compile-to=hal"]
    options.append(f"--iree-hal-dump-executable-binaries-to={folder}")
    host = compiler.compile_str(source, extra_args=options).decode()
    [code] = folder.glob("*.hsaco")
    [groups] = re.findall(r"hal\.command_buffer\.dispatch<.*workgroups\(\[(.*?)\]\)", host)
    return Dispatch(code.read_bytes(), tuple(groups.split(", ")))


@pytest.fixture(scope="module")
def device() -> Iterator[rf.Device]:
    with rf.open("virtual:gfx1100") as opened:
        yield opened


def run(device: rf.Device, code: bytes, groups: tuple[int, ...], *arguments: Any) -> None:
    """Launch the only kernel of a code object; IREE fixes the size of its groups."""
    device.launch(device.load(code).kernel(), *arguments, groups=groups).wait(timeout=300.0)


# ----- dispatches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_a_product_of_matrices_is_within_rounding_of_float64(
    device: rf.Device, tmp_path: Path, kind: str
) -> None:
    dispatch = compiled(MATMUL.format(t=kind), tmp_path)
    rng = np.random.default_rng(3)
    dtype = np.float16 if kind == "f16" else np.float32
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((64, 96), (96, 48)))
    out = device.array(np.full((64, 48), np.nan, np.float32))
    run(device, dispatch.code, dispatch.count, device.array(a), device.array(b), out)
    a, b = a.astype(np.float64), b.astype(np.float64)
    assert np.all(np.abs(out.numpy() - a @ b) <= 96 * EPSILON * (np.abs(a) @ np.abs(b)))


def test_softmax_is_within_rounding_of_float64(device: rf.Device, tmp_path: Path) -> None:
    """The rounding of x - max(x) becomes a relative error of its power; the rest are a few roundings, of
    which one for each of up to 200 sums.
    """
    dispatch = compiled(SOFTMAX, tmp_path)
    x = 4 * np.random.default_rng(4).standard_normal((33, 200), dtype=np.float32)
    out = device.array(np.full_like(x, np.nan))
    run(device, dispatch.code, dispatch.count, device.array(x), out)
    away = x.astype(np.float64) - x.max(1, keepdims=True)
    exact = np.exp(away) / np.exp(away).sum(1, keepdims=True)
    assert np.all(np.abs(out.numpy() - exact) <= (216 + np.abs(away)) * EPSILON * exact)


def test_a_convolution_is_within_rounding_of_float64(device: rf.Device, tmp_path: Path) -> None:
    dispatch = compiled(CONVOLUTION, tmp_path)
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((1, 18, 18, 16), (3, 3, 16, 32)))
    out = device.array(np.full((1, 16, 16, 32), np.nan, np.float32))
    run(device, dispatch.code, dispatch.count, device.array(x), device.array(w), out)
    windows = np.lib.stride_tricks.sliding_window_view(x[0].astype(np.float64), (3, 3), (0, 1))
    exact = np.einsum("hwcij,ijco->hwo", windows, w.astype(np.float64))
    bound = (
        w[..., 0].size * EPSILON * np.einsum("hwcij,ijco->hwo", np.abs(windows), np.abs(w).astype(np.float64))
    )
    assert np.all(np.abs(out.numpy()[0] - exact) <= bound)


@pytest.mark.parametrize("groups", [1, 5, 37])
def test_a_dispatch_of_any_number_of_rows_reads_the_number_of_groups(
    device: rf.Device, tmp_path: Path, groups: int
) -> None:
    """Groups step by how many there are, which is a hidden argument; sizes are pairs of 32 bits."""
    dispatch = compiled(REDUCTION, tmp_path)
    rows = 37
    a, b = np.random.default_rng(6).standard_normal((2, rows, 96), dtype=np.float32)
    out = device.array(np.full(rows, np.nan, np.float32))
    sizes = [np.uint32(value) for value in (rows, 0, rows, 0)]
    run(device, dispatch.code, (groups, 1, 1), device.array(a), device.array(b), out, *sizes)
    products = np.exp(a.astype(np.float64)) * b
    # Each power is rounded, as is its argument, and its product, and up to 96 sums.
    bound = (100 + np.abs(a).max()) * EPSILON * np.abs(products).sum(1)
    assert np.all(np.abs(out.numpy() - products.sum(1)) <= bound)
