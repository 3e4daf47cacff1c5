"""Small ONNX models, built node by node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Any],
    outputs: list[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 14,
) -> Path:
    """Write a float32 model. Output shapes are left open; onnxruntime and the compiler infer them."""
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(v, n) for n, v in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Return small normal random numbers, float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * np.float32(0.5)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """Return a node; names are separated by blanks, ``-`` is an absent input."""
    names = ["" if n == "-" else n for n in inputs.split()]
    return helper.make_node(op, names, outputs.split(), **attributes)
