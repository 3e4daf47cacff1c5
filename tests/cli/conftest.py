"""The command line in this process, and the small network that most tests run."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from models import MODELS
from ringfence.cli.app import run
from ringfence.cli.output import notice_once

PNET = MODELS["pnet"]


@dataclass(frozen=True)
class Result:
    """What a command left: exit status, stdout, stderr."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    def call(*arguments: object) -> Result:
        capsys.readouterr()
        notice_once.cache_clear()  # as in a process of its own
        status = run([str(argument) for argument in arguments])
        return Result(status, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def pnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of pnet for the a630 with images, compiled once, as a rule for all worker processes."""
    from ringfence.compile import compile_model

    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "pnet.rfp"
    if not shared.exists():  # packages are written in one step, so a race only costs a second compilation
        compile_model(PNET.path, shared, input_shapes=PNET.input_shapes).close()
    return shared


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """A small photograph-like picture: gradients with a bright disc."""
    y, x = np.mgrid[0:90, 0:80]
    disc = (np.hypot(x - 45, y - 40) < 22) * 120
    pixels = np.stack([x * 2 + disc / 2, y * 2 + disc / 3, 60 + disc], axis=-1)
    path = tmp_path / "picture.png"
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
    return path


@pytest.fixture
def array(tmp_path: Path) -> Path:
    """A random input of pnet's shape and dtype."""
    path = tmp_path / "input.npy"
    values = np.random.default_rng(3).standard_normal((1, 120, 112, 3)) * 0.5
    np.save(path, values.astype(np.float32))
    return path
