"""Launches compiled kernels through ``run_amdgpu``: argument blocks, hidden arguments included."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ringfence.hardware.amd.code_object import load_code_object
from ringfence.hardware.amd.metadata import KernelMetadata
from ringfence.virtual import run_amdgpu
from ringfence.virtual.isa.rdna.arguments import argument_block
from ringfence.virtual.isa.rdna.executor import Executor

Array = npt.NDArray[Any]
Size = tuple[int, int, int]

ARGUMENT_BLOCK, FIRST_ARRAY, APART = 0x7D00_0000_0000, 0x1_0000_0000, 0x1_0000_0000


@cache
def _metadata(code: bytes, kernel: str | None) -> KernelMetadata:
    found = load_code_object(code).kernel(kernel).metadata
    assert found is not None
    return found


def launch(
    executor: Executor,
    code: bytes,
    groups: Size,
    local: Size,
    *values: Array | np.generic,
    kernel: str | None = None,
) -> None:
    """Run a kernel; arrays are mapped and passed by address, numbers by value."""
    metadata = _metadata(code, kernel)
    memory: dict[int, Array] = {}
    data = []
    for value in values:
        if isinstance(value, np.ndarray):
            address = FIRST_ARRAY + APART * len(memory)
            memory[address] = value
            data.append(address.to_bytes(8, "little"))
        else:
            data.append(value.tobytes())
    memory[ARGUMENT_BLOCK] = argument_block(metadata, data, groups, local)
    run_amdgpu(
        code,
        "gfx1100",
        groups=groups,
        local=local,
        kernel=kernel,
        kernarg_address=ARGUMENT_BLOCK,
        memory=memory,
        executor=executor,
    )
