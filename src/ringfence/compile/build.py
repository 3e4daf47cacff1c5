"""What the compiling process does: a package from a model, or a model's plan on the host CPU."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import numpy as np
from tinygrad import Device, Tensor
from tinygrad.device import TinyELF
from tinygrad.engine.realize import get_call_arg_uops
from tinygrad.helpers import Target
from tinygrad.uop.ops import UOp

from ringfence.compile.dtypes import numpy_name
from ringfence.compile.host_kernels import compile_for_host, host_arch
from ringfence.compile.kernel import Kernel
from ringfence.compile.onnx_import import Runner, load
from ringfence.compile.plan import Place, Plan, contents, dummy_inputs, make_plan
from ringfence.compile.request import Picture, Request
from ringfence.compile.targets import compile_kernel, device_renderer
from ringfence.compile.versions import compiler_versions
from ringfence.errors import CompileError
from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.package.files import write_arrays
from ringfence.package.format import (
    BUFFER_ALIGNMENT,
    InputLayout,
    Manifest,
    PackedProgram,
    PlannedBuffer,
    SectionName,
    Step,
    read_package,
    write_package,
)
from ringfence.package.format import Tensor as PackedTensor
from ringfence.package.programs import AmdProgram

ReportProgress = Callable[[str, int, int], None]
Task = tuple[bytes, UOp, str]
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Job:
    """A model that was imported and planned for a request."""

    request: Request
    model_sha256: str
    runner: Runner
    inputs: dict[str, Tensor]
    plan: Plan


def prepare(request: Request, model_sha256: str, scratch: Path, progress: ReportProgress) -> Job:
    """Import the model and plan its launches."""
    runner = load(Path(request.model), request.input_shapes, scratch)
    inputs = dummy_inputs(runner)
    progress("import", 1, 1)
    return Job(request, model_sha256, runner, inputs, make_plan(runner, inputs, progress))


def compile_package(job: Job, progress: ReportProgress) -> None:
    """Compile the planned kernels and write the package."""
    memory = _Memory(job)
    layout = _layout(memory.inputs, job.request.picture)
    kernels = _compile_kernels(job, progress)
    code = _Programs()
    steps = []
    for call in job.plan.calls:
        kernel = kernels[call.src[0].key]
        program = code.index(kernel.program)
        buffers = memory.arguments(job.plan.places(call))
        by_argument = tuple(buffers[slot] for slot in kernel.slots)
        steps.append(Step(program=program, buffers=by_argument, groups=kernel.groups, local=kernel.local))
    manifest = Manifest(
        name=Path(job.request.model).stem,
        target=job.request.target,
        image=job.request.image,
        float16=job.request.float16,
        compiler=compiler_versions(job.request.target),
        model_sha256=job.model_sha256,
        inputs=memory.inputs,
        outputs=memory.outputs,
        layout=layout,
        arena_bytes=memory.arena_bytes,
        buffers=tuple(memory.buffers),
        programs=tuple(code.entries),
        steps=tuple(steps),
    )
    sections: dict[SectionName, bytes] = {"programs": bytes(code.blobs), "weights": bytes(memory.weights)}
    write_package(job.request.output, manifest, sections)
    progress("write", 1, 1)


def _layout(inputs: tuple[PackedTensor, ...], picture: Picture) -> InputLayout | None:
    """Return how a picture is fed to the only input that takes one, ``None`` if there is none."""
    found = [(t.name, found) for t in inputs if (found := _picture_axes(t)) is not None]
    if len(found) != 1:
        if picture != Picture():
            raise CompileError(
                f"channels, mean or std were given, but {len(found)} inputs take a picture of 1 or 3 channels"
            )
        return None
    name, (axes, channels, height, width) = found[0]
    mean, std = (_per_channel(name, v, channels) for v in (picture.mean, picture.std))
    order = picture.channels or "RGB"
    return InputLayout(
        input=name,
        axes=axes,
        height=height,
        width=width,
        channels=order if channels == 3 else "L",
        mean=mean,
        std=std,
    )


def _picture_axes(tensor: PackedTensor) -> tuple[Literal["NCHW", "NHWC"], int, int, int] | None:
    if tensor.dtype != "float32" or len(tensor.shape) != 4 or tensor.shape[0] != 1:
        return None
    _, first, second, third = tensor.shape
    if first in (1, 3):
        return "NCHW", first, second, third
    return ("NHWC", third, first, second) if third in (1, 3) else None


def _per_channel(name: str, values: tuple[float, ...] | None, channels: int) -> tuple[float, ...]:
    if values is None:
        return (0.5,) * channels
    if len(values) not in (1, channels):
        raise CompileError(f"input {name!r} has {channels} channels, mean or std has {len(values)} numbers")
    return values if len(values) == channels else values * channels


# Code generation. A kernel depends on nothing but its AST and the settings, so processes share the work.
# Results are stored under the AST's key, which makes the order of completion irrelevant.


def _compile_kernels(job: Job, progress: ReportProgress) -> dict[bytes, Kernel]:
    kernels: dict[bytes, Kernel] = {}
    for key, kernel in _compile_all(job, _compile_one):
        kernels[key] = kernel
        progress("kernels", len(kernels), len({call.src[0].key for call in job.plan.calls}))
    return kernels


def _compile_all(job: Job, compile_one: Callable[[Task], tuple[bytes, K]]) -> Iterator[tuple[bytes, K]]:
    request = job.request
    asts = {call.src[0].key: call.src[0] for call in job.plan.calls}
    tasks = [(key, ast, request.target) for key, ast in asts.items()]
    if request.jobs <= 1 or len(tasks) < 4:
        yield from map(compile_one, tasks)
        return
    # spawn: tinygrad's CPU device has started threads, which a fork would lose
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(request.jobs, len(tasks)), mp_context=context) as pool:
        try:
            for future in as_completed([pool.submit(compile_one, task) for task in tasks]):
                yield future.result()
        except BrokenProcessPool as error:
            raise CompileError("a code-generating process died; compile with jobs=1 to see why") from error
        finally:
            pool.shutdown(cancel_futures=True)


def _compile_one(task: Task) -> tuple[bytes, Kernel]:
    key, ast, target = task
    return key, compile_kernel(ast, target)


def _compile_one_for_host(task: Task) -> tuple[bytes, TinyELF]:
    key, ast, target = task
    return key, compile_for_host(ast, Target("CPU", "CLANG", host_arch()), device_renderer(target))


@dataclass
class _Programs:
    """Program blobs, equal ones stored once."""

    blobs: bytearray = field(default_factory=bytearray)
    entries: list[PackedProgram] = field(default_factory=list)
    known: dict[bytes, int] = field(default_factory=dict)

    def index(self, program: AdrenoProgram | AmdProgram) -> int:
        """Return the number of a program. Those that differ in nothing but their names are one."""
        known = msgspec.structs.replace(program, name="") if isinstance(program, AdrenoProgram) else program
        content = known.to_bytes()
        if content not in self.known:
            self.known[content] = len(self.entries)
            blob = program.to_bytes()
            self.entries.append(PackedProgram(name=program.name, offset=len(self.blobs), nbytes=len(blob)))
            self.blobs += blob + bytes(-len(blob) % BUFFER_ALIGNMENT)
        return self.known[content]


class _Memory:
    """The manifest's buffers: every distinct range that an argument names, inputs and outputs first."""

    def __init__(self, job: Job) -> None:
        plan = job.plan
        self.buffers: list[PlannedBuffer] = []
        self.weights = bytearray()
        self.arena_bytes = 0
        self._arena: UOp | None = None
        self._index: dict[tuple[UOp, int, int], int] = {}
        self._whole: dict[UOp, Literal["input", "output"]] = dict.fromkeys(plan.inputs.values(), "input")
        self._whole |= dict.fromkeys((t.uop.base for t in plan.outputs.values()), "output")
        self._constants = plan.constants
        self._stored: dict[bytes, int] = {}
        self.inputs = tuple(self._tensor(n, job.inputs[n], base) for n, base in plan.inputs.items())
        self.outputs = tuple(self._tensor(n, t, t.uop.base) for n, t in plan.outputs.items())

    def index(self, base: UOp, offset: int, nbytes: int) -> int:
        """Return the manifest index of a range of a tinygrad buffer."""
        key = (base, offset, nbytes)
        if key not in self._index:
            self._index[key] = len(self.buffers)
            self.buffers.append(self._plan(base, offset, nbytes))
        return self._index[key]

    def arguments(self, places: tuple[Place, ...]) -> tuple[int, ...]:
        """Return the manifest indices of a call's buffers, by slot."""
        return tuple(self.index(place.base, place.offset, place.nbytes) for place in places)

    def _plan(self, base: UOp, offset: int, nbytes: int) -> PlannedBuffer:
        if base in self._whole:
            if offset or nbytes != base.buffer.nbytes:
                raise CompileError(f"a kernel uses a part of an {self._whole[base]}; this is not supported")
            return PlannedBuffer(kind=self._whole[base], nbytes=nbytes)
        if base in self._constants:
            data = contents(base)[offset : offset + nbytes]
            return PlannedBuffer(kind="const", offset=self._store(data), nbytes=nbytes)
        if self._arena not in (None, base):
            raise CompileError("the memory plan has more than one arena; this is not supported")
        self._arena, self.arena_bytes = base, base.buffer.nbytes
        return PlannedBuffer(kind="arena", offset=offset, nbytes=nbytes)

    def _store(self, data: bytes) -> int:
        """Return where ``data`` lies in the weights; equal constants are stored once."""
        if data not in self._stored:
            self.weights += bytes(-len(self.weights) % BUFFER_ALIGNMENT)
            self._stored[data] = len(self.weights)
            self.weights += data
        return self._stored[data]

    def _tensor(self, name: str, tensor: Tensor, base: UOp) -> PackedTensor:
        index = self.index(base, 0, base.buffer.nbytes)
        shape = tuple(int(n) for n in tensor.shape)
        return PackedTensor(name=name, dtype=numpy_name(tensor.dtype), shape=shape, buffer=index)


def run_reference(job: Job) -> None:
    """Run the plan on tinygrad's CPU device, from the request's npz file of inputs to that of outputs."""
    _check_same_plan(job)
    with np.load(job.request.inputs) as given:
        for name, tensor in job.inputs.items():
            view = np.frombuffer(tensor.uop.base.buffer.as_memoryview(force_zero_copy=True), np.uint8)
            view[:] = np.ascontiguousarray(given[name]).view(np.uint8).reshape(-1)
    programs = {key: Device["CPU"].runtime(elf) for key, elf in _compile_all(job, _compile_one_for_host)}
    for call in job.plan.calls:
        program = programs[call.src[0].key]
        buffers = [u.buffer.ensure_allocated()._buf for u in get_call_arg_uops(call)]
        program(*(buffers[slot] for _, slot, _, _ in program.signature))
    outputs = {name: tensor.numpy() for name, tensor in job.plan.outputs.items()}
    write_arrays(Path(job.request.output), outputs)


def _check_same_plan(job: Job) -> None:
    """Refuse a package that was not made from this plan: then a comparison would say nothing."""
    with read_package(job.request.package) as package:
        manifest = package.manifest
    memory = _Memory(job)
    steps = [set(memory.arguments(job.plan.places(call))) for call in job.plan.calls]
    same = manifest.buffers == tuple(memory.buffers) and [set(s.buffers) for s in manifest.steps] == steps
    if manifest.model_sha256 != job.model_sha256 or not same:
        raise CompileError(
            f"{job.request.package} was not compiled from {job.request.model} with these settings and "
            f"versions: it has {len(manifest.steps)} steps, the plan {len(steps)}; compile it again"
        )
