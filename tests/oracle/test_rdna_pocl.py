"""Kernels compiled to gfx1100 and run by the executor compute what pocl computes on the host's CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from compile.opencl_kernels import KERNELS
from oracle import pocl
from ringfence.compile.opencl import compile_opencl
from ringfence.hardware.amd.code_object import load_code_object
from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.launch import launch
from virtual.isa.rdna.test_rdna_kernels import CHECKS

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not pocl.installed(), reason="pocl is not installed (Debian: pocl-opencl-icd)"),
]

Array = npt.NDArray[Any]
# What pocl 3.1 cannot build for x86-64; test_rdna_kernels.py compares these with numpy.
ABSENT = {
    "WMMA matmul": "matrix instructions of AMD",
    "dot products": "dot products of AMD",
    "half": "no cl_khr_fp16",
    "function table": "no function pointers",
}
# Kernels whose functions differ in the last places; the others must agree bit by bit.
TOLERANCE = {"double": 1e-14}


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = Executor(cache_dir=tmp_path_factory.mktemp("cache"), threads=1)
    yield made
    made.close()


def arguments_of(name: str) -> tuple[tuple[int, int, int], tuple[int, int, int], list[Array | np.generic]]:
    """Return groups, local size and arguments with which the check of a kernel runs it."""
    found: list[Any] = []

    class Enough(Exception):
        pass

    def note(groups: Any, local: Any, *values: Any) -> None:
        found.extend((groups, local, list(values)))
        raise Enough

    with pytest.raises(Enough):
        CHECKS[name](note)
    return found[0], found[1], found[2]


@pytest.mark.parametrize("name", [name for name in KERNELS if name not in ABSENT])
def test_a_kernel_computes_what_pocl_computes(executor: Executor, name: str) -> None:
    source = KERNELS[name][0]
    code = compile_opencl(source)
    (kernel,) = load_code_object(code).kernels
    groups, local, values = arguments_of(name)
    others = [v.copy() for v in values]
    launch(executor, code, groups, local, *values)
    pocl.run(source, kernel, groups, local, *others)
    for ours, theirs in zip(values, others, strict=True):
        if name in TOLERANCE:
            np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE[name], atol=1e-15)
        else:
            assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("name", ABSENT)
def test_what_pocl_cannot_build_is_known(name: str) -> None:
    groups, local, values = arguments_of(name)
    with pytest.raises(pocl.BuildFailed):
        pocl.run(KERNELS[name][0], "any", groups, local, *values)
