"""Work-groups of kernels whose sizes no small number divides."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ringfence as rf
from compile.test_target_chips import run
from ringfence.compile.kernels import compile_tinygrad

PRIME = 10961


@pytest.mark.parametrize("target", ["a630", "gfx1100"])
@pytest.mark.parametrize("shape", [(PRIME,), (PRIME, 3)])
def test_prime_sizes_are_padded_to_full_groups(shape: tuple[int, ...], target: str) -> None:
    for kernel in compile_tinygrad(lambda a: a * 3, shape, target=target):
        threads = math.prod(kernel.local)
        assert threads >= 32
        assert math.prod(kernel.groups) * threads < 1.1 * math.prod(shape)


def test_work_items_beyond_the_end_store_nothing() -> None:
    a = np.random.default_rng(2).standard_normal((PRIME, 5), np.float32)
    [kernel] = compile_tinygrad(lambda a: a.sum(axis=1), a.shape)
    assert math.prod(kernel.groups) * math.prod(kernel.local) > PRIME
    with rf.open("virtual:a630") as device:
        guarded = device.array(np.full(PRIME + 64, 7, np.float32))
        program = device.load(kernel.program)
        memory = {"out": guarded.offset_view(0, 4 * PRIME), "in0": device.array(a)}
        device.launch(
            program, *(memory[n] for n in kernel.arguments), groups=kernel.groups, local=kernel.local
        )
        found = guarded.numpy()
    assert np.allclose(found[:PRIME], a.sum(axis=1), atol=1e-5)
    assert (found[PRIME:] == 7).all()


def test_a_half_kernel_of_a_prime_size_computes() -> None:
    a = np.random.default_rng(3).standard_normal(PRIME).astype(np.float16)
    kernels = compile_tinygrad(lambda a: a * 2 + 1, a.shape, dtype="float16")
    with rf.open("virtual:a630") as device:
        assert np.array_equal(run(device, kernels, np.zeros_like(a), a), a * 2 + 1)


def test_kernels_that_fill_their_groups_stay_as_they_are() -> None:
    [kernel] = compile_tinygrad(lambda a: a * 3, (8192,))
    assert math.prod(kernel.groups) * math.prod(kernel.local) * 4 == 8192
