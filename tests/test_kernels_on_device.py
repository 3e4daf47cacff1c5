"""Kernels through the public API: load, launch, read; also sizes that are no multiple of the work-group."""

from __future__ import annotations

import numpy as np
import pytest

import ringfence as rf
from ringfence.compile.kernels import compile_tinygrad

CHIPS = ("a630", "gfx1100")


def launched(
    chip: str, function, *shapes: tuple[int, ...], out: tuple[int, ...], local: tuple[int, ...]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the inputs and what ``function``, compiled as one kernel, made of them on a virtual device."""
    [kernel] = compile_tinygrad(function, *shapes, local=local, target=chip)
    rng = np.random.default_rng(7)
    inputs = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    with rf.open(f"virtual:{chip}") as dev:
        program = dev.load(kernel.program)
        buffers = {"out": dev.zeros(out, np.float32)}
        buffers |= {f"in{k}": dev.array(value) for k, value in enumerate(inputs)}
        arguments = [buffers[name] for name in kernel.arguments]
        dev.launch(program, *arguments, groups=kernel.groups, local=kernel.local).wait(timeout=60.0)
        return inputs, buffers["out"].numpy().copy()


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("size", [64, 1000, 65])
def test_an_elementwise_kernel_gives_what_numpy_gives(size, chip):
    (a, b), result = launched(chip, lambda a, b: a * b + a, (size,), (size,), out=(size,), local=(64,))
    np.testing.assert_allclose(result, a * b + a, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("rows, inner, columns", [(64, 64, 64), (61, 48, 77)])
def test_a_product_of_matrices_is_within_rounding_of_float64(rows, inner, columns, chip):
    shapes = ((rows, inner), (inner, columns))
    (a, b), result = launched(chip, lambda a, b: a @ b, *shapes, out=(rows, columns), local=(8, 8))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    bound = inner * np.finfo(np.float32).eps * (np.abs(a).astype(np.float64) @ np.abs(b))
    assert np.all(np.abs(result - exact) <= bound)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_device_loads_bytes_and_compiled_programs_of_its_chip_only(chip):
    own, other = (
        compile_tinygrad(lambda a: a + 1, (64,), target=each)[0].program
        for each in (chip, *(c for c in CHIPS if c != chip))
    )
    with rf.open(f"virtual:{chip}") as dev:
        data = own.to_bytes()
        for blob in (own, data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
            assert dev.load(blob)[own.name].chip == chip
        with pytest.raises(
            rf.PackageError, match=f"was compiled for {other.chip}, this device is (an )?{chip}"
        ):
            dev.load(other)
        for nothing in (None, "kernel.co", 5, object(), dev.load(own)):
            with pytest.raises(
                TypeError, match=f"{type(nothing).__name__} cannot be loaded: give a compiled"
            ):
                dev.load(nothing)


@pytest.mark.parametrize("target", CHIPS)
def test_an_overrun_is_a_fault_where_the_last_page_of_the_buffer_ends(target):
    """As on hardware, protection is by pages; docs/virtual-gpu.md says so."""
    numbers, page = 4096, 1024
    [kernel] = compile_tinygrad(lambda a: a + 1, (numbers,), target=target)
    for size, notices in ((numbers - page + 1, False), (numbers - page, True)):
        with rf.open(f"virtual:{target}") as dev:
            buffers = {"out": dev.empty(size, np.float32), "in0": dev.zeros(numbers, np.float32)}
            arguments = [buffers[name] for name in kernel.arguments]
            program = dev.load(kernel.program.to_bytes())
            job = dev.launch(program, *arguments, groups=kernel.groups, local=kernel.local)
            if notices:
                with pytest.raises(rf.GpuFault):
                    job.wait(timeout=60.0)
            else:
                job.wait(timeout=60.0)
