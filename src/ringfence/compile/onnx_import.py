"""ONNX to a tinygrad graph: tinygrad's importer with its gaps filled. Runs in the compiling process only."""

from __future__ import annotations

import dataclasses
import math
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from tinygrad import Tensor
from tinygrad.helpers import IMAGE
from tinygrad.nn.onnx import OnnxRunner, required_input_python_consts
from tinygrad.uop.ops import UOp

from ringfence.errors import CompileError

# Optional inputs that exporters fill with empty tensors, which mean "absent" (ONNX Resize: roi, scales).
_PLACEHOLDER_INPUTS = {"Resize": (1, 2, 3), "Upsample": (1,)}


def without_placeholders(path: Path) -> onnx.ModelProto:
    """Return the model with external data loaded and empty placeholder tensors replaced by absent inputs.

    tinygrad's parser refuses every tensor without elements. Elsewhere than as a placeholder of Resize such
    a tensor is a :class:`CompileError`.
    """
    try:
        model = onnx.load(str(path))
    except Exception as error:  # protobuf and onnx raise many unrelated types
        raise CompileError(f"{path} is not a readable ONNX model: {error}") from error
    if not model.graph.output:  # also what an empty file says
        raise CompileError(f"{path} is not a readable ONNX model: it has no output")
    _check_names(path, model.graph, frozenset())
    empty = {t.name for t in model.graph.initializer if not math.prod(t.dims)}
    empty |= {n.output[0] for n in model.graph.node if _is_empty_constant(n)}
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            if name not in empty:
                continue
            if place not in _PLACEHOLDER_INPUTS.get(node.op_type, ()):
                raise CompileError(
                    f"{path}: node {node.name!r} ({node.op_type}) reads the empty tensor {name!r}, "
                    "which the importer does not support"
                )
            node.input[place] = ""
    _remove(model.graph.initializer, [t for t in model.graph.initializer if t.name in empty])
    _remove(model.graph.node, [n for n in model.graph.node if _is_empty_constant(n)])
    return model


def _check_names(path: Path, graph: onnx.GraphProto, outside: frozenset[str]) -> None:
    """:class:`CompileError` if a value is read that nothing makes. Inner graphs also read those outside."""
    known = {*outside, *(t.name for t in (*graph.input, *graph.initializer))}
    known |= {t.values.name for t in graph.sparse_initializer}
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                raise CompileError(
                    f"{path}: node {node.name!r} ({node.op_type}) reads {name!r}, "
                    "which nothing before it makes"
                )
        for attribute in node.attribute:
            for inner in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                _check_names(path, inner, frozenset(known))
        known.update(node.output)
    for output in graph.output:
        if output.name not in known:
            raise CompileError(f"{path}: nothing makes the output {output.name!r}")


def _is_empty_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and any(
        a.HasField("t") and not math.prod(a.t.dims) for a in node.attribute
    )


def _remove(container: Any, items: Sequence[Any]) -> None:
    for item in items:
        container.remove(item)


class Runner(OnnxRunner):  # type: ignore[misc]
    """tinygrad's runner with further operators, which notices constants that depend on an input."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.input_uops: frozenset[UOp] = frozenset()
        _use_operators(self, operators(self.onnx_ops))

    def _get_python_const(self, name: str, op: str, idx: int) -> Any:
        value = self.graph_values[name]
        if idx in required_input_python_consts.get(op, ()) and isinstance(value, Tensor):
            self._refuse_input(name, op, value)
        return super()._get_python_const(name, op, idx)

    def _refuse_input(self, name: str, op: str, value: Tensor) -> None:
        if name not in self._python_const_cache and not self.input_uops.isdisjoint(value.uop.toposort()):
            raise CompileError(
                f"operator {op} needs the value of {name!r} at compile time, but it depends on an input of "
                "the model; only models whose shapes are fixed by the input shapes can be compiled"
            )


def _use_operators(runner: OnnxRunner, ops: dict[str, Any]) -> None:
    runner.onnx_ops = ops
    for node in runner.graph_nodes:
        for value in node.opts.values():
            if isinstance(value, OnnxRunner):
                _use_operators(value, ops)


def fix_input_shapes(runner: OnnxRunner, shapes: Mapping[str, Sequence[int]]) -> None:
    """Give every input of ``runner`` a concrete shape from ``shapes`` or the model; :class:`CompileError`
    if one lacks."""
    unknown = set(shapes) - set(runner.graph_inputs)
    if unknown:
        raise CompileError(f"the model has no input {sorted(unknown)}; it has {sorted(runner.graph_inputs)}")
    for name, spec in runner.graph_inputs.items():
        if spec is None or spec.is_optional or spec.is_sequence:
            raise CompileError(
                f"input {name!r} is optional, a sequence or without a type; only plain tensors are supported"
            )
        shape = _concrete(name, spec.shape, shapes.get(name))
        runner.graph_inputs[name] = dataclasses.replace(spec, shape=shape)


def _concrete(name: str, declared: Sequence[object], given: Sequence[int] | None) -> tuple[int, ...]:
    fixed = [d if isinstance(d, int) and d > 0 else None for d in declared]
    text = "x".join(str(d) if d is not None else "?" for d in fixed)
    if given is None:
        if None in fixed:
            example = "x".join(str(d) if d is not None else "32" for d in fixed)
            raise CompileError(
                f"input {name!r} has the open shape {text}; give it, for instance "
                f"--input-shape {name}={example}"
            )
        return tuple(d for d in fixed if d is not None)
    if (
        len(given) != len(fixed)
        or any(f is not None and f != g for f, g in zip(fixed, given))
        or min(given, default=1) < 1
    ):
        raise CompileError(f"input {name!r} has shape {text}, which {'x'.join(map(str, given))} does not fit")
    return tuple(given)


# Operators that tinygrad lacks, or lacks in image mode. The importer's dict is module state: copied.


def operators(base: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with LSTM added and one-dimensional convolutions made two-dimensional.

    tinygrad's image convolution (``mixin/op.py``, ``image_conv2d``) unpacks exactly four dimensions.
    """
    convolutions = {name: _convolution(name, base[name]) for name in ("Conv", "ConvTranspose")}
    return {**base, **convolutions, "LSTM": _lstm}


def _convolution(name: str, operator: Any) -> types.FunctionType:
    def convolve(X: Tensor, W: Tensor, B: Tensor | None = None, **options: Any) -> Tensor:
        if X.ndim == 3:
            return operator(X.unsqueeze(2), W.unsqueeze(2), B, **_two_dimensional(options)).squeeze(2)
        if X.ndim > 4 and IMAGE:
            raise CompileError(
                f"{name} over {X.ndim - 2} dimensions is not supported with images; compile with --no-image"
            )
        return operator(X, W, B, **options)

    return convolve  # type: ignore[return-value]


def _two_dimensional(options: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a 1-D convolution for the same convolution over images of height 1."""
    added = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0, "output_shape": 1}
    out = dict(options)
    for name, value in added.items():
        if out.get(name) is not None:
            out[name] = [value, *out[name]]
    if out.get("pads") is not None:
        begin, end = out["pads"]
        out["pads"] = [0, begin, 0, end]
    return out


def _lstm(
    X: Tensor, W: Tensor, R: Tensor, B: Tensor | None = None, sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None, initial_c: Tensor | None = None, P: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """ONNX LSTM with the default activations. Gates are stored in the order i, o, f, c.

    X (sequence, batch, input), W (directions, 4 hidden, input), R (directions, 4 hidden, hidden); returns
    Y (sequence, directions, batch, hidden), Y_h and Y_c (directions, batch, hidden).
    """
    _check_lstm(options, sequence_lens, P)
    direction = options.get("direction", "forward")
    outputs, hidden, cell = [], [], []
    for d in range(W.shape[0]):
        backwards = direction == "reverse" or d == 1
        bias = None if B is None else B[d]
        h0, c0 = (None if t is None else t[d] for t in (initial_h, initial_c))
        y, h, c = _lstm_direction(X, W[d], R[d], bias, h0, c0, backwards)
        outputs.append(y)
        hidden.append(h)
        cell.append(c)
    return Tensor.stack(*outputs, dim=1), Tensor.stack(*hidden), Tensor.stack(*cell)


def _check_lstm(options: Mapping[str, Any], sequence_lens: Tensor | None, peepholes: Tensor | None) -> None:
    default = ["sigmoid", "tanh", "tanh"]
    activations = [a.lower() for a in options.get("activations", ())]
    if activations not in ([], default, default * 2):
        raise CompileError(f"LSTM with activations {activations} is not supported, only {default}")
    for name, value in (("sequence_lens", sequence_lens), ("P (peepholes)", peepholes)):
        if value is not None:
            raise CompileError(f"LSTM with {name} is not supported")
    for name in ("clip", "input_forget", "layout"):
        if options.get(name):
            raise CompileError(f"LSTM with attribute {name}={options[name]} is not supported")


def _lstm_direction(
    x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None, h: Tensor | None, c: Tensor | None, backwards: bool
) -> tuple[Tensor, Tensor, Tensor]:
    size = r.shape[1]
    zeros = Tensor.zeros(x.shape[1], size, dtype=x.dtype)
    h, c = (zeros if t is None else t for t in (h, c))
    gates = x @ w.T
    if bias is not None:
        gates = gates + bias[: 4 * size] + bias[4 * size :]
    outputs: dict[int, Tensor] = {}
    for t in reversed(range(x.shape[0])) if backwards else range(x.shape[0]):
        i, o, f, g = (gates[t] + h @ r.T).chunk(4, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs[t] = h
    return Tensor.stack(*(outputs[t] for t in range(x.shape[0]))), h, c


def load(path: Path, shapes: Mapping[str, Sequence[int]], scratch: Path) -> Runner:
    """Return a runner for the model at ``path`` with concrete input shapes. ``scratch`` is a folder for
    its copy."""
    copy = scratch / "model.onnx"
    copy.write_bytes(without_placeholders(path).SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = Runner(copy)
    fix_input_shapes(runner, shapes)
    return runner
