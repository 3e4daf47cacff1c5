"""A package's step list on bare machine code: no driver, no command stream, every access checked."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np

from ringfence.package import Package
from ringfence.virtual import run_amdgpu
from ringfence.virtual.isa.rdna.executor import Executor

Array = np.ndarray[Any, Any]
BASE = 0x1_0000_0000
POISON = 0xFF  # bytes of ones are a NaN


class Memory:
    """The buffers of a package at GPU addresses, as memory that ``run_amdgpu`` takes."""

    def __init__(self, package: Package) -> None:
        self.ranges: dict[int, Array] = {}
        manifest = package.manifest
        bases = {"arena": self._place(np.full(manifest.arena_bytes, POISON, np.uint8))}
        weights = package.weights().copy()
        weights.flags.writeable = False
        bases["const"] = self._place(weights)
        self.tensors: dict[str, Array] = {}
        placed: dict[int, int] = {}
        for tensor in (*manifest.inputs, *manifest.outputs):
            self.tensors[tensor.name] = np.full(tensor.nbytes, POISON, np.uint8)
            placed[tensor.buffer] = self._place(self.tensors[tensor.name])
        self.addresses = [
            placed[k] if k in placed else bases[b.kind] + b.offset for k, b in enumerate(manifest.buffers)
        ]

    def _place(self, array: Array) -> int:
        address = BASE + (len(self.ranges) << 32)
        if array.nbytes:
            self.ranges[address] = array
        return address


def run_steps(package: Package, inputs: dict[str, Array], *, strict: bool = True) -> dict[str, Array]:
    """Return the outputs of a package for an AMD GPU; everything that steps do not write is NaN."""
    memory = Memory(package)
    for name, array in inputs.items():
        memory.tensors[name][:] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        memory.tensors[name].flags.writeable = False
    with closing(Executor(strict=strict)) as executor:
        for step in package.manifest.steps:
            addresses = np.array([memory.addresses[k] for k in step.buffers], np.uint64)
            addresses.flags.writeable = False
            run_amdgpu(
                package.programs[step.program].to_bytes(),
                package.manifest.target,
                groups=step.groups,
                local=step.local,
                kernarg_address=BASE - (1 << 16),
                memory={**memory.ranges, BASE - (1 << 16): addresses},
                executor=executor,
            )
    return {t.name: memory.tensors[t.name].view(t.dtype).reshape(t.shape) for t in package.manifest.outputs}
