"""The plan on the host: the same work-groups and order of operations as on the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compile.graphs import node, random, save
from ringfence.compile import compile_model, run_reference
from ringfence.errors import CompileError


def test_partial_sums_in_local_memory_are_added_after_the_barrier(tmp_path: Path):
    nodes = [node("ReduceMean", "x", "y", axes=[1], keepdims=0)]
    model = save(tmp_path / "mean.onnx", nodes, {"x": (3, 2048)}, ["y"])
    package = compile_model(model, tmp_path / "mean.rfp", image=False)
    assert any(program.shared_bytes for program in package.programs)
    x = random(3, 2048)
    y = run_reference(tmp_path / "mean.rfp", model, {"x": x})["y"]
    np.testing.assert_allclose(y, x.mean(axis=1), atol=1e-6)


def test_products_are_rounded_before_they_are_added(tmp_path: Path):
    """A fused multiply-add would give 2**-46 here, rounding the product first gives zero."""
    nodes = [node("MatMul", "x w", "y")]
    tiny = np.float32(2**-23)
    w = np.array([[1], [1 + tiny]], np.float32)
    model = save(tmp_path / "fma.onnx", nodes, {"x": (1, 2)}, ["y"], {"w": w})
    compile_model(model, tmp_path / "fma.rfp", image=False).close()
    x = np.array([[-(1 + 2 * tiny), 1 + tiny]], np.float32)
    assert run_reference(tmp_path / "fma.rfp", model, {"x": x})["y"] == 0


def test_a_reference_of_another_model_is_refused(tmp_path: Path):
    first = save(tmp_path / "a.onnx", [node("Relu", "x", "y")], {"x": (4,)}, ["y"])
    other = save(tmp_path / "b.onnx", [node("Abs", "x", "y")], {"x": (4,)}, ["y"])
    compile_model(first, tmp_path / "a.rfp").close()
    with pytest.raises(CompileError, match=r"a.rfp was not compiled from .*b.onnx"):
        run_reference(tmp_path / "a.rfp", other, {"x": random(4)})


def test_a_reference_checks_its_inputs(tmp_path: Path):
    model = save(tmp_path / "a.onnx", [node("Relu", "x", "y")], {"x": (4,)}, ["y"])
    compile_model(model, tmp_path / "a.rfp").close()
    with pytest.raises(CompileError, match="takes inputs"):
        run_reference(tmp_path / "a.rfp", model, {"x": random(5)})
