"""Real models: the compiled plan, run on the host, against onnxruntime. No GPU code runs here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from models import MODELS
from ringfence.compile import compile_model, run_reference

pytestmark = pytest.mark.conformance

# model -> launches without and with images
LAUNCHES = {"pnet": (9, 10), "rnet": (11, 12), "onet": (14, 15), "silero": (8, 12), "ocr_det": (80, 84)}


def errors(name: str, tmp_path: Path, *, image: bool, float16: bool) -> float:
    """Return the largest error of the outputs relative to their scale."""
    model = MODELS[name]
    package = tmp_path / "model.rfp"
    options = {"image": image, "float16": float16, "input_shapes": model.input_shapes}
    manifest = compile_model(model.path, package, **options).manifest
    assert len(manifest.steps) == LAUNCHES[name][image]
    random = np.random.default_rng(1)
    inputs = {t.name: (random.standard_normal(t.shape) * 0.5).astype(t.dtype) for t in manifest.inputs}
    ours = run_reference(package, model.path, inputs)
    session = onnxruntime.InferenceSession(str(model.path), providers=["CPUExecutionProvider"])
    names = [t.name for t in manifest.outputs]
    theirs = dict(zip(names, session.run(names, inputs)))
    return max(float(np.abs(ours[n] - theirs[n]).max() / np.abs(theirs[n]).max()) for n in names)


@pytest.mark.parametrize("image", [False, True], ids=["buffers", "images"])
@pytest.mark.parametrize("name", ["pnet", "rnet", "onet", "silero"])
def test_single_precision(name: str, image: bool, tmp_path: Path):
    assert errors(name, tmp_path, image=image, float16=False) < 1e-5


@pytest.mark.parametrize("name", ["pnet", "rnet", "onet", "silero"])
def test_half_precision_storage(name: str, tmp_path: Path):
    assert errors(name, tmp_path, image=True, float16=True) < 1e-2


@pytest.mark.parametrize("image", [False, True], ids=["buffers", "images"])
def test_text_detector(image: bool, tmp_path: Path):
    """On noise its map is nearly empty (1e-4), where onnxruntime's sigmoid itself is off by 1.4e-7."""
    assert errors("ocr_det", tmp_path, image=image, float16=False) < 5e-3
