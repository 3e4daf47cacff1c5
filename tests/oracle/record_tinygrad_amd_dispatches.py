"""Run expressions with unmodified tinygrad on a virtual AMD GPU and record every program run.

A script of its own: tinygrad reads its settings (``DEV``) when it is imported. The file named by the first
argument gets a pickled list of :class:`Launch`, the second names the chip. The programs of chips other than
gfx1100 are not executed, only their launches count.
"""

from __future__ import annotations

import pickle
import sys
from dataclasses import dataclass, field
from typing import Any

ARGUMENT_BYTES = 4096


@dataclass
class State:
    """The registers at a dispatch, the launch that they are, and what its pointer to arguments points to."""

    registers: dict[str, int]
    code: bytes
    wave: int
    groups: tuple[int, int, int]
    local: tuple[int, int, int]
    user_data: tuple[int, ...]
    shared_bytes: int
    scratch_bytes: int
    arguments: bytes

    @property
    def user_registers(self) -> int:
        """How many user registers RSRC2 asks for."""
        return self.registers["COMPUTE_PGM_RSRC2"] >> 1 & 31


@dataclass
class Launch:
    """A program run: code object, what it was called with, and buffers before and after."""

    name: str
    library: bytes
    values: tuple[bytes, ...] = ()
    before: list[bytes] = field(default_factory=list)
    after: list[bytes] = field(default_factory=list)
    addresses: list[int] = field(default_factory=list)
    argument_bytes: int = 0
    groups: tuple[int, int, int] = (1, 1, 1)
    local: tuple[int, int, int] = (1, 1, 1)
    state: State | None = None


def state_of(machine: Any, registers: Any, dispatch: Any) -> State:
    """Return what ``Machine.on_dispatch`` shows. The first two user registers point to the arguments."""
    space = machine.devices[0].process.objects.spaces[0]
    address = dispatch.user_data[0] | dispatch.user_data[1] << 32
    inside = space.find(address)
    size = 0 if inside is None else min(ARGUMENT_BYTES, inside.end - address)
    return State(
        registers.snapshot(),
        dispatch.code,
        dispatch.wave,
        dispatch.groups,
        dispatch.local,
        dispatch.user_data,
        dispatch.shared_bytes,
        dispatch.scratch_bytes,
        space.read(address, size),
    )


class NoExecutor:
    """Runs nothing."""

    def prepare(self, dispatches: Any) -> None:
        pass

    def run(self, dispatch: Any, memory: Any) -> None:
        pass

    def close(self) -> None:
        pass


def make_machine(chip: str, mode: Any = "inline") -> Any:
    """Return a machine with one GPU, which executes programs if it can."""
    from ringfence.virtual.machine import Machine

    return Machine((chip,), mode=mode, executor_factory=None if chip == "gfx1100" else NoExecutor)


def main(path: str, chip: str) -> None:
    from ringfence.virtual import shim

    session = shim.install("virtual:gfx1100")
    session._machine = make_machine(chip, "async")
    launches: list[Launch] = []
    watch(launches)
    machine = session.machine
    machine.on_dispatch = lambda registers, dispatch: setattr(
        launches[-1], "state", state_of(machine, registers, dispatch)
    )
    work()
    with open(path, "wb") as file:
        pickle.dump(launches, file)


def watch(launches: list[Launch]) -> None:
    """Note what tinygrad's program objects are made from and called with."""
    import tinygrad.runtime.ops_amd as ops_amd

    make, call = ops_amd.AMDProgram.__init__, ops_amd.AMDProgram.__call__

    def noting_make(self: Any, dev: Any, obj: Any) -> None:
        make(self, dev, obj)
        self.object = obj

    def noting_call(self: Any, *bufs: Any, vals: Any = (), **options: Any) -> Any:
        self.dev.synchronize()
        types = [entry[2] for entry in self.object.signature[len(self.object.signature) - len(vals) :]]
        values = tuple(
            int(v).to_bytes(t.itemsize, "little", signed=v < 0) for v, t in zip(vals, types, strict=True)
        )
        launch = Launch(self.name, self.lib, values, [contents(b) for b in bufs])
        launch.addresses = [b.va_addr for b in bufs]
        launch.argument_bytes = self.kernargs_segment_size
        launch.groups = options.get("global_size", (1, 1, 1))
        launch.local = options.get("local_size") or (1, 1, 1)
        launches.append(launch)
        result = call(self, *bufs, vals=vals, **options | {"wait": True})
        launch.after = [contents(b) for b in bufs]
        return result

    ops_amd.AMDProgram.__init__, ops_amd.AMDProgram.__call__ = noting_make, noting_call


def contents(buffer: Any) -> bytes:
    return bytes(buffer.cpu_view().view(size=buffer.size, fmt="B")[:])


def work() -> None:
    """Kernels that use everything a dispatch has: scalars, local and private memory, 1 to 3 dimensions."""
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
    (tensor(1000) > 60).realize()
    wide = tensor(128, dtype=np.int64)
    (wide // (wide + 3)).realize()
    (tensor(16, dtype=np.float64) / 3).realize()
    offset = Variable("offset", 0, 50).bind(20)
    tensor(100)[offset : offset + 10].contiguous().realize()
    (tensor(16, dtype=np.int32) + Variable("step", 1, 9).bind(5)).realize()
    tensor(1, 8, 16, 32).conv2d(tensor(16, 8, 3, 3), padding=1).realize()
    a.softmax().realize()
    tensor(4, 1024).sum(axis=1).realize()
    (tensor(64) * 1e6).sin().realize()
    spill(a)


def spill(a: Any) -> None:
    """Multiply with 256 results per work-item, which takes more registers than there are."""
    from dataclasses import replace

    from tinygrad import Device
    from tinygrad.codegen import to_program
    from tinygrad.codegen.opt import Opt, OptOps
    from tinygrad.engine.realize import get_runtime

    product = a @ a.T
    ast = product.schedule_linear().src[-1].src[0]
    options = tuple(Opt(OptOps.UPCAST, axis, 16) for axis in range(2))
    program = to_program(ast.replace(arg=replace(ast.arg, opts_to_apply=options)), Device["AMD"].renderer)
    out = product.uop.buffer.allocate()
    get_runtime("AMD", program)(
        out._buf, a.uop.buffer._buf, global_size=program.arg.global_size, local_size=(1, 1, 1), wait=True
    )


if __name__ == "__main__":
    import record_tinygrad_amd_dispatches  # again, under the name that the reader of the pickle knows it by

    record_tinygrad_amd_dispatches.main(*sys.argv[1:])
