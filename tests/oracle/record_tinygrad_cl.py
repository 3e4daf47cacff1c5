"""Run files of Qualcomm's OpenCL compiler with unmodified tinygrad on a virtual device.

A script of its own, as tinygrad must not be imported before the shim. The first argument names a file with a
pickled list of :class:`Run`; the second gets a pickled list of :class:`Result`.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ringfence.hardware.adreno.program import Argument
from ringfence.virtual.adreno.state import Snapshot


@dataclass(frozen=True)
class Run:
    """A launch: the file, and the types and values of its arguments, buffers and images before numbers."""

    lib: bytes
    name: str
    arguments: tuple[Argument, ...]
    inputs: tuple[npt.NDArray[Any] | int, ...]
    groups: tuple[int, int, int]
    local: tuple[int, int, int]


@dataclass(frozen=True)
class Result:
    """The state at the dispatch, where buffers are, and what they hold afterwards."""

    state: Snapshot
    addresses: list[int]
    argument_bytes: int
    after: list[bytes]


def main(path: str, out: str) -> None:
    from ringfence.virtual import shim

    session = shim.install("virtual:a630")
    replace_compiler()
    from tinygrad import Device

    device: Any = Device["QCOM"]
    states: list[Snapshot] = []
    session.machine.on_dispatch = lambda state, _: states.append(state.snapshot())
    runs: list[Run] = pickle.loads(Path(path).read_bytes())
    results = [run(device, each, states) for each in runs]
    Path(out).write_bytes(pickle.dumps(results))


def replace_compiler() -> None:
    """tinygrad's compiler class starts the vendor's compiler, which loading a file does not need."""
    from tinygrad.device import Compiler
    from tinygrad.runtime.support import compiler_qcom

    class NoCompiler(Compiler):
        def __init__(self, _arch: str) -> None:
            super().__init__()

    compiler_qcom.QCOMCompiler = NoCompiler


def run(device: Any, run: Run, states: list[Snapshot]) -> Result:
    from tinygrad.device import BufferSpec, TinyELF

    signature = tuple(entry(slot, argument) for slot, argument in enumerate(run.arguments))
    program = device.runtime(TinyELF(run.lib, run.name, device.renderer.target, signature))
    assert not program.NIR
    arrays = [value for value in run.inputs if isinstance(value, np.ndarray)]
    buffers = [device.allocator.alloc(array.nbytes, BufferSpec()) for array in arrays]
    for buffer, array in zip(buffers, arrays):
        device.allocator._copyin(buffer, memoryview(bytearray(array)))
    values = tuple(value for value in run.inputs if not isinstance(value, np.ndarray))
    program(*buffers, global_size=run.groups, local_size=run.local, vals=values, wait=True)
    after = [bytes(buffer.cpu_view().view(size=buffer.size, fmt="B")[:]) for buffer in buffers]
    addresses = [buffer.va_addr for buffer in buffers]
    return Result(states[-1], addresses, program.kernargs_alloc_size, after)


def entry(slot: int, argument: Argument) -> tuple[str | None, int, Any, tuple[int, ...]]:
    """An entry of the signature that tinygrad's renderer makes for a kernel."""
    from tinygrad import dtypes
    from tinygrad.dtype import DType

    known: dict[str, DType] = {
        "float16": dtypes.half,
        "float32": dtypes.float,
        "int32": dtypes.int,
        "uint32": dtypes.uint,
    }
    shape = (*argument.shape, 4) if argument.shape else ()
    return None, slot, known[argument.dtype], shape


if __name__ == "__main__":
    import record_tinygrad_cl  # again, under the name that the reader of the pickle knows it by

    record_tinygrad_cl.main(*sys.argv[1:])
