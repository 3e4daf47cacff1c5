"""From a tinygrad graph to a launch list over planned memory. Runs in the compiling process only.

tinygrad hands the kernel list of a graph to an object in ``engine.realize.capturing`` instead of running
it. The kernels that read no input run here once, the others become the package's steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from tinygrad import Tensor
from tinygrad.engine.realize import capturing, get_call_arg_uops, run_linear
from tinygrad.nn.onnx import OnnxValue
from tinygrad.schedule.memory import memory_plan_rewrite
from tinygrad.uop.ops import Ops, UOp

from ringfence.compile.onnx_import import Runner
from ringfence.errors import CompileError


@dataclass(frozen=True, slots=True)
class Place:
    """Where an argument lies: ``base`` is a buffer node, ``offset`` and ``nbytes`` a range of it."""

    base: UOp
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A launch list. ``calls`` are tinygrad CALL nodes, ``inputs`` and ``outputs`` map names to buffer nodes.

    ``constants`` are the buffers whose contents are known; everything else is the arena.
    """

    calls: tuple[UOp, ...]
    inputs: Mapping[str, UOp]
    outputs: Mapping[str, Tensor]
    constants: frozenset[UOp]

    def places(self, call: UOp) -> tuple[Place, ...]:
        return tuple(_place(u) for u in get_call_arg_uops(call))


def make_plan(
    runner: Runner, inputs: Mapping[str, Tensor], progress: Callable[[str, int, int], None]
) -> Plan:
    """Return the plan of ``runner``'s model for realized ``inputs``. Runs the constant kernels."""
    input_uops = {name: tensor.uop.base for name, tensor in inputs.items()}
    runner.input_uops = frozenset(input_uops.values())
    with _Reading(runner.input_uops):
        outputs = _build_graph(runner, inputs)
    progress("schedule", 0, 1)
    calls = _capture(outputs.values())
    progress("schedule", 1, 1)
    once, kept = _split(calls, runner.input_uops, {t.uop.base for t in outputs.values()})
    _run_once(once, progress)
    held = _held(kept, once, input_uops.values(), outputs.values())
    planned = memory_plan_rewrite(UOp(Ops.LINEAR, src=tuple(kept)), held)
    return Plan(tuple(planned.src), input_uops, outputs, _constants(planned.src, input_uops, outputs))


def _build_graph(runner: Runner, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    try:
        runner(inputs)  # fills the runner's cache of shapes, so that the next pass reads nothing
        _realize_weights(runner)
        return {name: _own_buffer(value) for name, value in runner(inputs).items()}
    except NotImplementedError as error:
        raise CompileError(f"the importer (tinygrad) does not support this model: {error}") from error


class _Reading:
    """While the graph is built, run what the importer wants to read, unless it depends on an input.

    tinygrad's importer reads tensors when an operator needs a Python value (``Reshape``, ``If``,
    ``NonZero``). A value that depends on an input would silently be baked in with the value it has for the
    dummy input.
    """

    def __init__(self, inputs: frozenset[UOp]) -> None:
        self.inputs = inputs

    def add_linear(self, linear: UOp, var_vals: dict[str, int]) -> None:
        for call in linear.src:
            if not self.inputs.isdisjoint(_place(u).base for u in get_call_arg_uops(call)):
                raise CompileError(
                    "an operator of the model needs at compile time a value that depends on an input (as "
                    "If, NonZero or Reshape may); "
                    "only models whose shapes are fixed by the input shapes can be compiled"
                )
        run_linear(linear, var_vals)

    def __enter__(self) -> None:
        capturing.append(self)

    def __exit__(self, *_: object) -> None:
        capturing.remove(self)


def _realize_weights(runner: Runner) -> None:
    for name in sorted(runner.const_names):
        if isinstance(weight := runner.graph_values[name], Tensor):
            weight.realize()


def _own_buffer(value: Tensor) -> Tensor:
    """Return ``value`` such that realizing it writes memory of its own, not an input's or a weight's."""
    return value.clone() if value.uop.base.op is Ops.BUFFER else value.contiguous()


class _Capture:
    def __init__(self) -> None:
        self.calls: list[UOp] = []

    def add_linear(self, linear: UOp, var_vals: dict[str, int]) -> None:
        if var_vals:
            raise CompileError(
                f"the model has symbolic sizes {sorted(var_vals)}; give every input a fixed shape"
            )
        self.calls.extend(linear.src)


def _capture(outputs: Iterable[Tensor]) -> list[UOp]:
    capture = _Capture()
    capturing.append(capture)
    try:
        Tensor.realize(*outputs)
    finally:
        capturing.remove(capture)
    return capture.calls


def _place(argument: UOp) -> Place:
    if argument.op is Ops.BUFFER:
        return Place(argument, 0, argument.max_numel() * argument.dtype.itemsize)
    buffer = argument.buffer
    node = argument
    while node.op is not Ops.BUFFER:
        node = node.src[0]
    return Place(node, buffer.offset, buffer.nbytes)


def _written(call: UOp) -> set[int]:
    """Return the indices of the arguments that a kernel (or copy) writes."""
    if call.src[0].op is Ops.COPY:
        return {0}
    return {
        u.src[0].buf_uop.arg.slot
        for u in call.src[0].toposort()
        if u.op is Ops.STORE and u.src[0].buf_uop.op is Ops.PARAM
    }


def _split(calls: list[UOp], inputs: frozenset[UOp], outputs: set[UOp]) -> tuple[list[UOp], list[UOp]]:
    """Split into kernels whose results never change and the kernels of every run; writers of outputs
    always run."""
    varying, once, kept = set(inputs), [], []
    for call in calls:
        arguments = [_place(u).base for u in get_call_arg_uops(call)]
        written = {arguments[i] for i in _written(call)}
        if varying.isdisjoint(arguments) and outputs.isdisjoint(written):
            once.append(call)
            continue
        if call.src[0].op is not Ops.SINK:
            raise CompileError(
                f"the model needs a {call.src[0].op.name} step that is not a kernel; this is not supported"
            )
        varying |= written
        kept.append(call)
    return once, kept


def _run_once(calls: list[UOp], progress: Callable[[str, int, int], None]) -> None:
    for done, call in enumerate(calls):
        progress("constants", done, len(calls))
        run_linear(UOp(Ops.LINEAR, src=(call,)))
    progress("constants", len(calls), len(calls))


def _held(kept: list[UOp], once: list[UOp], inputs: Iterable[UOp], outputs: Iterable[Tensor]) -> set[UOp]:
    """Return the buffers that are not part of the arena: inputs, outputs and everything that has contents
    by now."""
    held = set(inputs) | {t.uop.base for t in outputs}
    held |= {_place(u).base for call in once for u in get_call_arg_uops(call)}
    held |= {
        b for call in kept for u in get_call_arg_uops(call) if (b := _place(u).base).buffer.is_allocated()
    }
    return held


def _constants(
    calls: Iterable[UOp], inputs: Mapping[str, UOp], outputs: Mapping[str, Tensor]
) -> frozenset[UOp]:
    used = {_place(u).base for call in calls for u in get_call_arg_uops(call)}
    used -= {*inputs.values(), *(t.uop.base for t in outputs.values())}
    return frozenset(base for base in used if base.buffer.is_allocated())


def contents(buffer: UOp) -> bytes:
    """Return the bytes of a realized buffer."""
    return bytes(np.frombuffer(buffer.buffer.as_memoryview(), np.uint8))


def dummy_inputs(runner: Runner) -> dict[str, Tensor]:
    """Return a zero tensor in a buffer of its own per input of ``runner``."""
    return {name: _zeros(spec) for name, spec in runner.graph_inputs.items()}


def _zeros(spec: OnnxValue) -> Tensor:
    tensor = Tensor.empty(*spec.shape, dtype=spec.dtype)
    memory = tensor.uop.base.buffer.allocate().as_memoryview(force_zero_copy=True)
    np.frombuffer(memory, np.uint8)[:] = 0
    return tensor
