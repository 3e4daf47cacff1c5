"""``ringfence compile``: options, progress, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from cli.conftest import PNET
from compile.graphs import node, save
from ringfence.cli.compile import is_current
from ringfence.package import read_package, write_package


@pytest.fixture
def scale(tmp_path: Path) -> Path:
    """y = 3 x over one small RGB picture of open size."""
    weights = {"three": np.full(1, 3, np.float32)}
    return save(tmp_path / "scale.onnx", [node("Mul", "x three", "y")], {"x": (1, 3, 4, 8)}, ["y"], weights)


def test_a_package_is_written_and_summarised(cli, scale, tmp_path):
    path = tmp_path / "scale.rfp"
    result = cli("compile", scale, "-o", path)
    assert result.status == 0, result.err
    assert f"wrote {path}" in result.out.replace("\n", "")
    with read_package(path) as package:
        assert package.manifest.target == "a630" and package.manifest.image


def test_images_are_used_where_the_target_has_them(cli, scale, tmp_path):
    path = tmp_path / "scale.rfp"
    assert cli("compile", scale, "--target", "gfx1100", "-o", path).status == 0
    with read_package(path) as package:
        assert package.manifest.target == "gfx1100" and not package.manifest.image


def test_a_package_of_other_compilers_is_not_current(cli, scale, tmp_path):
    path = tmp_path / "scale.rfp"
    assert cli("compile", scale, "-o", path, "--no-image").status == 0
    assert is_current(path, scale)
    with read_package(path) as package:
        sections = {name: bytes(data) for name, data in package.sections.items()}
        older = {**package.manifest.compiler, "ringfence": "0.0.1"}
        manifest = replace(package.manifest, compiler=older)
    write_package(path, manifest, sections)
    assert not is_current(path, scale)


def test_progress_goes_to_stderr_and_json_alone_to_stdout(cli, scale, tmp_path):
    result = cli("compile", scale, "-o", tmp_path / "scale.rfp", "--json")
    assert result.json["target"] == "a630" and result.json["steps"] >= 1
    assert "compile programs" in result.err


def test_picture_options_are_stored(cli, scale, tmp_path):
    path = tmp_path / "scale.rfp"
    options = ("--channel-order", "BGR", "--mean", "0.1,0.2,0.3", "--std", "1,2,4", "--no-image")
    assert cli("compile", scale, "-o", path, *options).status == 0
    with read_package(path) as package:
        layout = package.manifest.layout
        assert (layout.channels, layout.mean, layout.std) == ("BGR", (0.1, 0.2, 0.3), (1.0, 2.0, 4.0))
        assert not package.manifest.image


def test_the_package_is_called_like_the_model_unless_told_otherwise(cli, scale, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli("compile", scale).status == 0
    assert (tmp_path / "scale.rfp").is_file()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--target", "a999"), "a999"),
        (("--float16", "--no-image"), "float16"),
        (("--target", "gfx1100", "--image"), "no images"),
        (("--mean", "0.1,0.2"), "3 channels"),
        (("--std", "0.5,0,0.5"), "std 0: it must be a number from"),
    ],
)
def test_what_the_compiler_refuses_is_one_line(cli, scale, tmp_path, options, words):
    result = cli("compile", scale, "-o", tmp_path / "x.rfp", *options)
    assert result.status == 1 and result.out == ""
    error = result.err.splitlines()[-1]
    assert error.startswith("ringfence: error: ") and words in error
    assert not (tmp_path / "x.rfp").exists()


def test_a_missing_model(cli, tmp_path):
    result = cli("compile", tmp_path / "none.onnx", "-o", tmp_path / "x.rfp")
    assert result.status == 1 and "none.onnx" in result.err


def test_a_file_that_is_no_model(cli, tmp_path):
    path = tmp_path / "noise.onnx"
    path.write_bytes(bytes(range(256)))
    result = cli("compile", path, "-o", tmp_path / "x.rfp")
    assert result.status == 1 and "noise.onnx" in result.err.splitlines()[-1]


@pytest.mark.parametrize(
    "options",
    [
        ("--input-shape", "input_1"),
        ("--input-shape", "input_1=1x0x3"),
        ("--input-shape", "=1x2"),
        ("--input-shape", "input_1=1x\u00b2"),
        ("--input-shape", f"input_1={5000 * '9'}"),
        ("--mean", "grey"),
        ("--jobs", "0"),
        ("-o", "none/x.rfp"),
        ("-o", "."),
        ("-o", "/dev/null"),
    ],
)
def test_malformed_options_are_wrong_usage(cli, tmp_path, options, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = cli("compile", PNET.path, *options)
    assert result.status == 2 and result.out == ""
