"""Gaps of tinygrad's ONNX importer: the plan, run on the host, computes what onnxruntime computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from compile.graphs import node, random, save
from ringfence.compile import compile_model, run_reference
from ringfence.errors import CompileError


def check(model: Path, *, image: bool = True, **inputs: np.ndarray) -> None:
    """Compile, run the plan on the host, and compare every output with onnxruntime."""
    package = model.with_suffix(".rfp")
    shapes = {name: value.shape for name, value in inputs.items()}
    compile_model(model, package, image=image, input_shapes=shapes, jobs=1).close()
    ours = run_reference(package, model, inputs)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    for output, expected in zip(session.get_outputs(), session.run(None, inputs)):
        assert ours[output.name].shape == expected.shape
        np.testing.assert_allclose(ours[output.name], expected, atol=2e-6, rtol=1e-5)


def lstm(tmp_path: Path, directions: int, **attributes: object) -> Path:
    size, features = 4, 4
    weights = {
        "w": random(directions, 4 * size, features, seed=1),
        "r": random(directions, 4 * size, size, seed=2),
        "b": random(directions, 8 * size, seed=3),
    }
    inputs = {"x": (2, 2, features), "h": (directions, 2, size), "c": (directions, 2, size)}
    nodes = [node("LSTM", "x w r b - h c", "y yh yc", hidden_size=size, **attributes)]
    return save(tmp_path / "lstm.onnx", nodes, inputs, ["y", "yh", "yc"], weights)


@pytest.mark.parametrize(
    ("directions", "attributes"),
    [
        (1, {}),
        pytest.param(1, {"direction": "reverse"}, marks=pytest.mark.conformance),
        pytest.param(2, {"direction": "bidirectional"}, marks=pytest.mark.conformance),
    ],
)
def test_lstm(tmp_path: Path, directions: int, attributes: dict[str, str]):
    model = lstm(tmp_path, directions, **attributes)
    state = {"h": random(directions, 2, 4, seed=4), "c": random(directions, 2, 4, seed=5)}
    check(model, image=False, x=random(2, 2, 4), **state)


def test_lstm_without_state_or_bias_begins_with_zeros(tmp_path: Path):
    weights = {"w": random(1, 8, 3, seed=1), "r": random(1, 8, 2, seed=2)}
    nodes = [node("LSTM", "x w r", "y yh yc", hidden_size=2)]
    check(save(tmp_path / "m.onnx", nodes, {"x": (1, 1, 3)}, ["y", "yc"], weights), x=random(1, 1, 3))


@pytest.mark.parametrize(
    "attributes", [{"clip": 1.0}, {"layout": 1}, {"activations": ["Relu", "Tanh", "Tanh"]}]
)
def test_lstm_variants_that_would_change_the_result_are_refused(tmp_path: Path, attributes):
    with pytest.raises(CompileError, match=f"LSTM with .*{next(iter(attributes))}"):
        compile_model(lstm(tmp_path, 1, **attributes), tmp_path / "lstm.rfp")


def test_one_dimensional_convolutions_in_images(tmp_path: Path):
    weights = {
        "v": random(8, 4, 3, seed=1),
        "b": random(8, seed=2),
        "w": random(4, 8, 3, seed=3),
        "u": random(4, 4, 3),
    }
    nodes = [
        node("Conv", "x v b", "a", kernel_shape=[3], pads=[2, 1], strides=[2]),
        node("Conv", "a w", "c", auto_pad="SAME_UPPER"),
        node("ConvTranspose", "c u", "y", strides=[2], pads=[1, 0], output_padding=[1]),
    ]
    check(save(tmp_path / "conv.onnx", nodes, {"x": (1, 4, 17)}, ["y"], weights), x=random(1, 4, 17))


def test_empty_placeholders_of_resize_are_absent_inputs(tmp_path: Path):
    weights = {
        "roi": np.zeros(0, np.float32),
        "scales": np.zeros(0, np.float32),
        "sizes": np.array([1, 4, 8, 8], np.int64),
    }
    nodes = [node("Resize", "x roi scales sizes", "y", mode="nearest", nearest_mode="floor",
                  coordinate_transformation_mode="asymmetric")]  # fmt: skip
    check(save(tmp_path / "resize.onnx", nodes, {"x": (1, 4, 4, 4)}, ["y"], weights), x=random(1, 4, 4, 4))


def test_empty_tensors_elsewhere_are_refused(tmp_path: Path):
    nodes = [node("Concat", "x nothing", "y", axis=0)]
    model = save(tmp_path / "m.onnx", nodes, {"x": (4,)}, ["y"], {"nothing": np.zeros(0, np.float32)})
    with pytest.raises(CompileError, match=r"\(Concat\) reads the empty tensor 'nothing'"):
        compile_model(model, tmp_path / "m.rfp")


def test_open_dimensions_take_the_given_shape(tmp_path: Path):
    model = save(tmp_path / "open.onnx", [node("Relu", "x", "y")], {"x": (-1, "n", 3)}, ["y"])
    check(model, x=random(2, 5, 3))


def test_scalar_inputs_are_inputs(tmp_path: Path):
    model = save(tmp_path / "m.onnx", [node("Mul", "x s", "y")], {"x": (4,), "s": ()}, ["y"])
    check(model, x=random(4), s=np.array(3, np.float32))


def test_outputs_that_are_inputs_weights_or_views_get_memory_of_their_own(tmp_path: Path):
    nodes = [
        node("Identity", "x", "same"),
        node("Reshape", "x shape", "view"),
        node("Add", "w w", "fixed"),
        node("Mul", "x x", "square"),
    ]
    weights = {"w": random(4), "shape": np.array([2, 2], np.int64)}
    outputs = ["same", "view", "fixed", "square"]
    check(save(tmp_path / "outputs.onnx", nodes, {"x": (4,)}, outputs, weights), x=random(4))


def test_what_no_input_reaches_is_computed_once(tmp_path: Path):
    nodes = [node("Mul", "w w", "v"), node("Conv", "x v", "y")]
    model = save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 8, 8)}, ["y"], {"w": random(4, 4, 3, 3)})
    package = compile_model(model, tmp_path / "m.rfp", image=False)
    assert len(package.manifest.steps) == 1


def test_three_dimensional_convolutions_need_no_images(tmp_path: Path):
    weights = {"w": random(2, 3, 2, 2, 2)}
    model = save(tmp_path / "m.onnx", [node("Conv", "x w", "y")], {"x": (1, 3, 4, 4, 4)}, ["y"], weights)
    with pytest.raises(CompileError, match=r"Conv over 3 dimensions .* images.*--no-image"):
        compile_model(model, tmp_path / "m.rfp")
    check(model, image=False, x=random(1, 3, 4, 4, 4))
