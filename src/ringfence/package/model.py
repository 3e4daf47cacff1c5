"""A package on a device: memory allocated once, the launch list captured and bound once, then one replay per
frame.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ringfence.errors import LaunchError, PackageError
from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.package.format import Manifest, Package, Tensor, read_package
from ringfence.package.programs import AmdProgram
from ringfence.runtime.device import DeviceInfo
from ringfence.runtime.graph import BoundGraph, Graph
from ringfence.runtime.memory import Buffer
from ringfence.runtime.queue import Submission, check_timeout

Array = npt.NDArray[Any]

POISON = 0xFF  # as float16 and as float32, bytes of ones are a NaN


class Device(Protocol):
    """What a model needs of a device."""

    @property
    def info(self) -> DeviceInfo: ...
    def load(self, blob: AdrenoProgram | AmdProgram, /) -> Any: ...
    def array(self, array: Array, /, label: str | None = None) -> Buffer: ...
    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike, /, label: str | None = None) -> Buffer: ...
    def launch(self, program: Any, /, *args: Buffer, groups: Any, local: Any) -> Submission: ...
    def capture(self, label: str, /) -> AbstractContextManager[Graph]: ...


@dataclass(frozen=True, slots=True)
class FrameTimings:
    """Seconds that the stages of one run took; see :class:`ringfence.runtime.queue.Timings` for the middle
    four.

    ``copy_in`` writes the inputs, ``copy_out`` reads the outputs. ``total`` is the wall time of the call.
    """

    copy_in: float
    host_encode: float
    queue: float | None
    gpu: float | None
    host_visible: float | None
    copy_out: float
    total: float


class Model:
    """A compiled model, ready to run on one device.

    ``package`` is a path or an opened package. ``poison`` fills the arena and the outputs with NaN before
    the first run, which no result may depend on. ``timeout`` (seconds) bounds each run; ``None`` means the
    device's default. Threads may share a model: it runs their frames one after the other.

    :class:`PackageError` if the package is damaged or was compiled for another chip, PortError if memory
    lacks; then nothing stays allocated.
    """

    def __init__(
        self,
        device: Device,
        package: Package | str | os.PathLike[str],
        *,
        poison: bool = False,
        timeout: float | None = None,
    ) -> None:
        check_timeout(timeout)
        self.manifest: Manifest
        self.timeout = timeout
        self.closed = False
        self.submission: Submission | None = None
        """The latest run's submission."""
        self.timings: FrameTimings | None = None
        """Of the latest run."""
        self.device_bytes = 0
        """Device memory of weights, arena, inputs and outputs."""
        self.graph: Graph
        """The launches, with their barriers."""
        self._resources = ExitStack()
        self._lock = threading.RLock()  # inputs and outputs have one place each
        if isinstance(package, Package):
            self.manifest = package.manifest
            self._open(device, package, poison)
            return
        with read_package(package) as opened:
            self.manifest = opened.manifest
            self._open(device, opened, poison)

    def _open(self, device: Device, package: Package, poison: bool) -> None:
        if device.info.chip != self.manifest.target:
            raise PackageError(
                f"{package.path} was compiled for {self.manifest.target}, the chip of {device.info.name} is "
                f"{device.info.chip}; compile the model with --target {device.info.chip}, or open a "
                f"{self.manifest.target} device"
            )
        with ExitStack() as stack:
            memory = self._allocate(device, package, poison, stack)
            self._inputs = {t.name: memory[t.buffer] for t in self.manifest.inputs}
            self._outputs = {t.name: memory[t.buffer] for t in self.manifest.outputs}
            self._bound = self._bind(device, package.programs, memory)
            stack.callback(self._bound.free)
            self._resources = stack.pop_all()

    # ----- memory ---------------------------------------------------------------------------------

    def _allocate(self, device: Device, package: Package, poison: bool, stack: ExitStack) -> list[Buffer]:
        def own(buffer: Buffer) -> Buffer:
            stack.callback(buffer.free)
            self.device_bytes += buffer.nbytes
            return buffer

        manifest = self.manifest
        weights, arena = package.weights(), manifest.arena_bytes
        whole: dict[str, Buffer] = {}
        if len(weights):
            whole["const"] = own(device.array(weights, label=f"{manifest.name} weights"))
        if arena:
            whole["arena"] = own(device.empty((arena,), np.uint8, label=f"{manifest.name} arena"))
        tensors: dict[int, Buffer] = {}
        for tensor in (*manifest.inputs, *manifest.outputs):
            if tensor.buffer not in tensors:
                buffer = device.empty(tensor.shape, tensor.dtype, label=f"{manifest.name} {tensor.name}")
                tensors[tensor.buffer] = own(buffer)
        if poison:
            _poison([*([whole["arena"]] if arena else []), *(tensors[t.buffer] for t in manifest.outputs)])
        return [
            tensors[k] if k in tensors else whole[b.kind].offset_view(b.offset, b.nbytes)
            for k, b in enumerate(manifest.buffers)
        ]

    # ----- launches -------------------------------------------------------------------------------

    def _bind(
        self, device: Device, programs: Sequence[AdrenoProgram | AmdProgram], memory: Sequence[Buffer]
    ) -> BoundGraph:
        loaded = [device.load(program) for program in programs]
        with device.capture(self.manifest.name) as graph:
            for step in self.manifest.steps:
                arguments = [memory[k].offset_view(0) for k in step.buffers]
                device.launch(loaded[step.program], *arguments, groups=step.groups, local=step.local)
        self.graph = graph
        return graph.bind()

    def run(self, inputs: Mapping[str, Array] | None = None, /, **named: Array) -> dict[str, Array]:
        """Run one frame and return new arrays by output name. Inputs are given by name, as a mapping or as
        keywords. Calls of several threads take turns; :attr:`timings` are those of the latest.

        :class:`LaunchError` names a missing, unknown or ill-shaped input; WaitTimeout or DeviceLost if the
        device did not finish.
        """
        if inputs is not None and not isinstance(inputs, Mapping):
            raise TypeError(
                f"the inputs of model {self.manifest.name!r} are a mapping of names to arrays, not "
                f"{type(inputs).__name__}; they are called {sorted(t.name for t in self.inputs)}"
            )
        given = {**(inputs or {}), **named}
        _check_inputs(self.manifest, given)
        with self._lock:
            return self._run(given)

    def _run(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """Run one frame. The lock is held."""
        if self.closed:
            raise LaunchError(f"model {self.manifest.name!r} was closed")
        begin = time.perf_counter()
        for name, array in given.items():
            self._inputs[name].copy_from(array, self.timeout)
        written = time.perf_counter()
        self.submission = submission = self._bound.replay()
        submission.wait(timeout=self.timeout)
        visible = time.perf_counter()
        outputs = {name: buffer.numpy(self.timeout) for name, buffer in self._outputs.items()}
        end = time.perf_counter()
        stages = submission.timings
        self.timings = FrameTimings(
            copy_in=written - begin,
            host_encode=stages.host_encode,
            queue=stages.queue,
            gpu=stages.gpu,
            host_visible=stages.host_visible,
            copy_out=end - visible,
            total=end - begin,
        )
        return outputs

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Return name, dtype and shape of every input."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Return name, dtype and shape of every output."""
        return self.manifest.outputs

    def close(self) -> None:
        """Free everything on the device, after a run of another thread. Closing twice does nothing."""
        with self._lock:
            self.closed = True
            self._resources.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        m = self.manifest
        return f"<Model {m.name!r} for {m.target}, {len(m.steps)} launches of {len(m.programs)} programs>"


def _poison(buffers: Iterable[Buffer]) -> None:
    for buffer in buffers:
        pattern = np.full(buffer.nbytes, POISON, np.uint8)
        buffer.copy_from(pattern.view(buffer.dtype or np.uint8))


def _check_inputs(manifest: Manifest, given: Mapping[str, Array]) -> None:
    expected = {tensor.name: tensor for tensor in manifest.inputs}
    if given.keys() != expected.keys():
        missing, unknown = sorted(expected.keys() - given.keys()), sorted(given.keys() - expected.keys())
        raise LaunchError(
            f"model {manifest.name!r} takes the inputs {sorted(expected)}"
            + (f"; missing: {missing}" if missing else "")
            + (f"; unknown: {unknown}" if unknown else "")
        )
    for name, array in given.items():
        tensor = expected[name]
        if (
            not isinstance(array, np.ndarray)
            or array.shape != tensor.shape
            or array.dtype != np.dtype(tensor.dtype)
        ):
            found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            raise LaunchError(
                f"input {name!r} of model {manifest.name!r} is an array of {tensor.dtype} {tensor.shape}, "
                f"got {found}; convert it with .astype() and .reshape(), "
                "or compile the model for another input shape"
            )
