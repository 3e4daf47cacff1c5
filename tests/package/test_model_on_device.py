"""Compiled models on a virtual A630: its real command streams and machine code, against independent results.

Single precision is compared with onnxruntime; half-precision storage with the same plan on the host,
because what halves cost is a property of the plan and not of the device.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from models import MODELS, ModelFile
from ringfence import api
from ringfence.compile import compile_model, run_reference
from ringfence.package.model import Model

Arrays = dict[str, np.ndarray]


def compiled(model: ModelFile, folder: Path, *, image: bool, float16: bool) -> Path:
    package = folder / f"{model.name}.rfp"
    options = {"image": image, "float16": float16, "input_shapes": model.input_shapes}
    compile_model(model.path, package, **options).close()
    return package


def on_device(package: Path) -> tuple[Arrays, Arrays]:
    """Return random inputs and the outputs for them, from memory full of NaNs."""
    with api.open("virtual:a630") as device, Model(device, package, poison=True) as model:
        generator = np.random.default_rng(1)
        inputs = {t.name: (generator.standard_normal(t.shape) * 0.5).astype(t.dtype) for t in model.inputs}
        return inputs, model.run(inputs)


def relative_error(ours: Arrays, theirs: Arrays) -> float:
    """Return the largest difference relative to the scale of its output."""
    assert ours.keys() == theirs.keys()
    return max(float(np.abs(ours[n] - theirs[n]).max() / np.abs(theirs[n]).max()) for n in ours)


def onnxruntime_outputs(model: ModelFile, inputs: Arrays) -> Arrays:
    session = onnxruntime.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs)))


def cases(*quick: tuple[str, ...]) -> list:
    every = [(name, kind) for name in ("pnet", "rnet", "onet", "silero") for kind in ("buffers", "images")]
    return [pytest.param(*c, marks=() if c in quick else pytest.mark.conformance) for c in every]


@pytest.mark.parametrize(("name", "kind"), cases(("pnet", "buffers"), ("rnet", "images")))
def test_single_precision_agrees_with_onnxruntime(name: str, kind: str, tmp_path: Path):
    package = compiled(MODELS[name], tmp_path, image=kind == "images", float16=False)
    inputs, outputs = on_device(package)
    assert relative_error(outputs, onnxruntime_outputs(MODELS[name], inputs)) < 1e-4


@pytest.mark.parametrize("name", [
    "rnet", *(pytest.param(n, marks=pytest.mark.conformance) for n in ("pnet", "onet", "silero"))
])  # fmt: skip
def test_half_precision_storage_agrees_with_the_plan_on_the_host(name: str, tmp_path: Path):
    package = compiled(MODELS[name], tmp_path, image=True, float16=True)
    inputs, outputs = on_device(package)
    assert relative_error(outputs, run_reference(package, MODELS[name].path, inputs)) < 1e-3
