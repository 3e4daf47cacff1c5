"""Kernels through the public API: load, launch, read; also sizes that are no multiple of the work-group."""

from __future__ import annotations

import numpy as np
import pytest

import ringfence as rf
from ringfence.compile.kernels import compile_tinygrad


def launched(function, *shapes: tuple[int, ...], out: tuple[int, ...], local: tuple[int, ...]):
    """Return the inputs and what ``function``, compiled as one kernel, made of them on a virtual A630."""
    [kernel] = compile_tinygrad(function, *shapes, local=local)
    rng = np.random.default_rng(7)
    inputs = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    with rf.open("virtual:a630") as dev:
        program = dev.load(kernel.program)
        buffers = {"out": dev.zeros(out, np.float32)}
        buffers |= {f"in{k}": dev.array(value) for k, value in enumerate(inputs)}
        arguments = [buffers[name] for name in kernel.arguments]
        dev.launch(program, *arguments, groups=kernel.groups, local=kernel.local).wait(timeout=60.0)
        return inputs, buffers["out"].numpy().copy()


@pytest.mark.parametrize("size", [64, 1000, 65])
def test_an_elementwise_kernel_gives_what_numpy_gives(size):
    (a, b), result = launched(lambda a, b: a * b + a, (size,), (size,), out=(size,), local=(64,))
    np.testing.assert_allclose(result, a * b + a, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rows, inner, columns", [(64, 64, 64), (61, 48, 77)])
def test_a_product_of_matrices_is_within_rounding_of_float64(rows, inner, columns):
    shapes = ((rows, inner), (inner, columns))
    (a, b), result = launched(lambda a, b: a @ b, *shapes, out=(rows, columns), local=(8, 8))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = inner * np.finfo(np.float32).eps * (np.abs(a).astype(np.float64) @ np.abs(b))
    assert np.all(np.abs(result - exact) <= bound)
