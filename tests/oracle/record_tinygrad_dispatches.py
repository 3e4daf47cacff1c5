"""Run expressions with unmodified tinygrad on a virtual device and record every program run.

A script of its own: tinygrad reads its settings (``DEV``, ``IMAGE``, ``FLOAT16``) when it is imported. The
file named by the first argument gets a pickled list of :class:`Launch`.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, field
from typing import Any

from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.virtual.adreno.state import Snapshot


@dataclass
class Launch:
    """A program run.

    ``before`` and ``after`` are the contents of its buffers in the order of its arguments.
    """

    program: AdrenoProgram
    values: tuple[int, ...] = ()
    before: list[bytes] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)
    addresses: list[int] = field(default_factory=list)
    argument_bytes: int = 0
    groups: tuple[int, int, int] = (1, 1, 1)
    local: tuple[int, int, int] = (1, 1, 1)
    state: Snapshot | None = None


def main(path: str) -> None:
    from ringfence.virtual import shim

    session = shim.install("virtual:a630")
    launches: list[Launch] = []
    watch(launches)
    session.machine.on_dispatch = lambda state, _: setattr(launches[-1], "state", state.snapshot())
    work()
    with open(path, "wb") as file:
        pickle.dump(launches, file)


def watch(launches: list[Launch]) -> None:
    """Note what tinygrad's program objects are made from and called with."""
    import tinygrad.runtime.ops_qcom as ops_qcom

    make, call = ops_qcom.QCOMProgram.__init__, ops_qcom.QCOMProgram.__call__

    def noting_make(self: Any, dev: Any, obj: Any) -> None:
        make(self, dev, obj)
        self.extracted = extract(obj)

    def noting_call(
        self: Any, *bufs: Any, global_size: Any, local_size: Any, vals: Any = (), **options: Any
    ) -> Any:
        program, slots = self.extracted
        used = [bufs[slot] for slot in slots if slot < len(bufs)]
        self.dev.synchronize()
        launch = Launch(program, vals, [contents(b) for b in used], [], [b.va_addr for b in used])
        launch.argument_bytes, launch.groups, launch.local = self.kernargs_alloc_size, global_size, local_size
        launches.append(launch)
        result = call(
            self, *bufs, global_size=global_size, local_size=local_size, vals=vals, **options | {"wait": True}
        )
        launch.after = [contents(b) for b in used]
        return result

    ops_qcom.QCOMProgram.__init__, ops_qcom.QCOMProgram.__call__ = noting_make, noting_call


def contents(buffer: Any) -> bytes:
    return bytes(buffer.cpu_view().view(size=buffer.size, fmt="B")[:])


def extract(elf: Any) -> tuple[AdrenoProgram, tuple[int, ...]]:
    """Return our program blob for what tinygrad compiled. Of its images, the written ones come first."""
    from tinygrad.helpers import is_image_shape
    from tinygrad.runtime.support.compiler_mesa import IR3Compiler

    from ringfence.compile.ir3 import _extract

    variant = IR3Compiler.unpack_lib(elf.lib)[0]
    images = [slot for _, slot, _, shape in elf.signature if is_image_shape(shape)]
    written = images[: variant.num_uavs - variant.image_mapping.num_tex]
    return _extract(elf, frozenset((0, *written)), "a630", None)


def work() -> None:
    """Kernels that use everything a dispatch has.

    Scalars, local and private memory, half registers, images.
    """
    import numpy as np
    from tinygrad import Tensor, Variable, dtypes

    random = np.random.default_rng(1)

    def tensor(*shape: int, dtype: Any = np.float32) -> Any:
        return Tensor((random.standard_normal(shape) * 50 + 60).astype(dtype)).realize()

    a, b = tensor(64, 64), tensor(64, 64)
    (a + b).realize()
    (a @ b).relu().realize()
    a.sum().realize()
    a.max(axis=0).realize()
    (a.cast(dtypes.half) * 2).exp2().realize()
    a.cast(dtypes.uint8).cast(dtypes.half).realize()
    (tensor(1000) > 60).realize()
    wide = tensor(128, dtype=np.int64)
    (wide // (wide + 3)).realize()
    (tensor(2, 3, 40, dtype=np.int32) % 7).realize()
    offset = Variable("offset", 0, 50).bind(20)
    tensor(100)[offset : offset + 10].contiguous().realize()
    (tensor(16, dtype=np.int32) + Variable("step", 1, 9).bind(5)).realize()
    tensor(1, 8, 16, 32).conv2d(tensor(16, 8, 3, 3), padding=1).realize()
    a.softmax().realize()
    a.sort()[0].realize()


if __name__ == "__main__":
    import record_tinygrad_dispatches  # again, under the name that the reader of the pickle knows it by

    record_tinygrad_dispatches.main(sys.argv[1])
