"""ONNX models to packages: what the package says, what is refused, and that equal input gives equal bytes."""

from __future__ import annotations

import hashlib
import math
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from compile.graphs import node, random, save
from models import MODELS
from ringfence.compile import compile_model
from ringfence.compile.versions import compiler_versions
from ringfence.errors import CompileError
from ringfence.hardware.adreno.program import read_program
from ringfence.package import InputLayout, Package, read_package

PNET = MODELS["pnet"]


@pytest.fixture(scope="module")
def pnet(tmp_path_factory: pytest.TempPathFactory) -> Package:
    output = tmp_path_factory.mktemp("pnet") / "pnet.rfp"
    return compile_model(PNET.path, output, input_shapes=PNET.input_shapes, float16=True)


@pytest.fixture
def scale(tmp_path: Path) -> Path:
    """y = 3 x over four numbers."""
    weights = {"three": np.full(4, 3, np.float32)}
    return save(tmp_path / "scale.onnx", [node("Mul", "x three", "y")], {"x": (4,)}, ["y"], weights)


# ----- what the package says ------------------------------------------------------------------------


def test_the_manifest_tells_what_it_was_made_from(pnet):
    manifest = pnet.manifest
    assert (manifest.name, manifest.target, manifest.image, manifest.float16) == ("pnet", "a630", True, True)
    assert manifest.model_sha256 == hashlib.sha256(PNET.path.read_bytes()).hexdigest()
    expected = {n: version(n) for n in ("onnx", "tinygrad", "tinymesa", "ziglang")}
    assert manifest.compiler == expected | {"ringfence": compiler_versions("a630")["ringfence"]}


def test_the_version_of_this_software_tells_its_compiling_modules_apart():
    assert re.fullmatch(
        re.escape(version("ringfence")) + r"\+[0-9a-f]{8}", compiler_versions("a630")["ringfence"]
    )


def test_inputs_and_outputs_have_the_models_names_and_shapes(pnet):
    assert [(t.name, t.dtype, t.shape) for t in pnet.manifest.inputs] == [
        ("input_1", "float32", (1, 120, 112, 3))
    ]
    assert [(t.name, t.shape) for t in pnet.manifest.outputs] == [
        ("conv2d_4", (1, 55, 51, 4)),
        ("softmax", (1, 55, 51, 2)),
    ]


def test_the_picture_layout_has_defaults(pnet):
    assert pnet.manifest.layout == InputLayout(
        input="input_1", axes="NHWC", height=120, width=112, channels="RGB", mean=(0.5,) * 3, std=(0.5,) * 3
    )


def test_every_program_writes_one_buffer_and_fits_its_launch(pnet):
    for step in pnet.manifest.steps:
        program = pnet.programs[step.program]
        assert sum(argument.written for argument in program.arguments) == 1
        assert program.local_size == step.local


def test_images_go_through_textures_and_uavs(pnet):
    slots = [(len(p.textures), len(p.uavs), p.samplers) for p in pnet.programs]
    assert any(textures for textures, _, _ in slots)
    assert any(uavs for _, uavs, _ in slots)
    assert all(textures == samplers for textures, _, samplers in slots)
    for program in pnet.programs:
        assert all(not program.arguments[k].written for k in program.textures)
        assert all(program.arguments[k].written for k in program.uavs)


def test_half_precision_images_are_stored_as_halves(pnet):
    read = {p.arguments[k].dtype for p in pnet.programs for k in p.textures}
    assert "float16" in read
    assert pnet.manifest.arena_bytes < 3417856 / 1.9, "nearly half of what single precision takes"


def test_addresses_are_consecutive_and_images_take_none(pnet):
    for program in pnet.programs:
        offsets = [a.offset for a in program.arguments if a.kind == "buffer"]
        assert sorted(offsets) == list(range(0, 8 * len(offsets), 8))
        assert not program.immediates or program.immediates_offset >= 8 * len(offsets)


def test_programs_are_stored_as_blobs(pnet):
    for program in pnet.programs:
        assert read_program(program.to_bytes()) == program
        assert (program.chip, len(program.code) % 128) == ("a630", 0)


# ----- reproducible ---------------------------------------------------------------------------------


def compiled_twice(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: object) -> int:
    """Compile in another folder, environment and number of processes; return the number of programs."""
    first = compile_model(model, tmp_path / "a.rfp", jobs=1, **options)
    monkeypatch.chdir(tmp_path)
    for name, value in (("DEBUG", "2"), ("BEAM", "2"), ("IMAGE", "0"), ("PYTHONHASHSEED", "7")):
        monkeypatch.setenv(name, value)
    compile_model(model, "b.rfp", jobs=2, **options).close()
    assert (tmp_path / "a.rfp").read_bytes() == (tmp_path / "b.rfp").read_bytes()
    return len(first.programs)


def test_the_same_model_compiles_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    nodes = [node("Conv", "x v", "a"), node("Conv", "a w", "b"), node("Softmax", "b", "y")]
    weights = {"v": random(8, 4, 3, 3), "w": random(4, 8, 3, 3, seed=1)}
    model = save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 16, 16)}, ["y"], weights)
    assert compiled_twice(model, tmp_path, monkeypatch, image=False) >= 4, (
        "too few to share between processes"
    )


@pytest.mark.conformance
def test_real_models_with_images_compile_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rnet = MODELS["rnet"]
    compiled_twice(rnet.path, tmp_path, monkeypatch, input_shapes=rnet.input_shapes, float16=True)


def test_no_compiler_is_needed_on_the_path(scale: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    empty = tmp_path / "bin"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert compile_model(scale, tmp_path / "scale.rfp").manifest.steps
    assert not (tmp_path / "home").exists()


def test_nothing_is_imported_into_the_calling_process():
    script = "import sys, ringfence.compile; print({'tinygrad', 'onnx', 'llvmlite'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "set()"


# ----- progress -------------------------------------------------------------------------------------


def test_progress_runs_through_the_stages(scale: Path, tmp_path: Path):
    seen: list[tuple[str, int, int]] = []
    compile_model(scale, tmp_path / "scale.rfp", progress=lambda *step: seen.append(step))
    assert list(dict.fromkeys(stage for stage, _, _ in seen)) == [
        "import", "schedule", "constants", "kernels", "write",
    ]  # fmt: skip
    assert all(done <= total for _, done, total in seen)
    assert ("kernels", 1, 1) in seen


def test_an_exception_in_the_progress_callback_stops_the_compiler(scale: Path, tmp_path: Path):
    def stop(stage: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_model(scale, tmp_path / "scale.rfp", progress=stop)
    assert not (tmp_path / "scale.rfp").exists()
    with pytest.raises(ChildProcessError):  # no child is left, not even a dead one
        os.waitpid(-1, os.WNOHANG)


# ----- pictures -------------------------------------------------------------------------------------


def test_picture_options_are_recorded(tmp_path: Path):
    model = save(tmp_path / "m.onnx", [node("Relu", "x", "y")], {"x": (1, 3, 4, 6)}, ["y"])
    options = {"channels": "BGR", "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    layout = compile_model(model, tmp_path / "m.rfp", **options).manifest.layout
    assert (layout.axes, layout.height, layout.width) == ("NCHW", 4, 6)
    assert (layout.channels, layout.mean, layout.std) == tuple(options.values())


def test_one_number_is_for_all_channels(tmp_path: Path):
    model = save(tmp_path / "m.onnx", [node("Relu", "x", "y")], {"x": (1, 3, 4, 6)}, ["y"])
    layout = compile_model(model, tmp_path / "m.rfp", mean=(0.25,), std=(2,)).manifest.layout
    assert (layout.mean, layout.std) == ((0.25,) * 3, (2.0,) * 3)


@pytest.mark.parametrize("std", [0, -1, math.nan, math.inf, 1e-40])
def test_pixels_cannot_be_divided_by_this(std: float, scale: Path):
    refused(scale, f"std {std:g}: it must be a number from 1e-30 to", std=(1.0, std, 1.0))


@pytest.mark.parametrize("mean", [math.nan, math.inf, -math.inf, 1e39])
def test_this_cannot_be_subtracted_from_pixels(mean: float, scale: Path):
    refused(scale, "mean .*: it must be a number from -1e", mean=(mean,))


def test_models_without_a_picture_input_have_no_layout(scale: Path, tmp_path: Path):
    assert compile_model(scale, tmp_path / "scale.rfp").manifest.layout is None
    with pytest.raises(CompileError, match="mean or std were given, but 0 inputs take a picture"):
        compile_model(scale, tmp_path / "scale.rfp", mean=(0.5,))


# ----- refused --------------------------------------------------------------------------------------


def refused(model: Path, message: str, **options: object) -> None:
    output = model.with_suffix(".rfp")
    with pytest.raises(CompileError, match=message):
        compile_model(model, output, **options)
    assert not output.exists()


def test_a_missing_model_is_named(tmp_path: Path):
    refused(tmp_path / "none.onnx", "there is no model file .*none.onnx")


def test_a_package_that_cannot_be_written_is_refused_before_the_model_is_read(tmp_path: Path):
    model = tmp_path / "noise.onnx"
    model.write_text("not a model")
    for output, words in ((tmp_path / "none" / "m.rfp", "no folder"), (tmp_path, "not a file")):
        with pytest.raises(CompileError, match=f"no package can be written: .*{words}"):
            compile_model(model, output)


def test_a_file_that_is_no_onnx_model_is_named(tmp_path: Path):
    (tmp_path / "text.onnx").write_text("not a model")
    refused(tmp_path / "text.onnx", r"text.onnx is not a readable ONNX model")


@pytest.mark.parametrize("content", [b"", PNET.path.read_bytes()[:1000], PNET.path.read_bytes()[:-1]])
def test_an_empty_or_truncated_model_is_named(content: bytes, tmp_path: Path):
    (tmp_path / "cut.onnx").write_bytes(content)
    refused(tmp_path / "cut.onnx", "cut.onnx is not a readable ONNX model")


@pytest.mark.parametrize(
    ("nodes", "outputs", "words"),
    [
        ([node("Relu", "x", "y")], [], "has no output"),
        ([node("Relu", "z", "y")], ["y"], r"node '' \(Relu\) reads 'z', which nothing before it makes"),
        ([node("Relu", "a", "y"), node("Abs", "x", "a")], ["y"], "reads 'a', which nothing before it makes"),
        ([node("Relu", "x", "a")], ["y"], "nothing makes the output 'y'"),
    ],
)
def test_a_graph_that_does_not_hang_together_is_refused(nodes, outputs, words: str, tmp_path: Path):
    refused(save(tmp_path / "m.onnx", nodes, {"x": (4,)}, outputs), words)


def test_an_unknown_target_lists_the_known_ones(scale: Path):
    refused(scale, "no compiler for target 'a999'; supported: a630", target="a999")


def test_halves_without_images_are_refused(scale: Path):
    refused(scale, "float16 storage needs images", float16=True, image=False)


def test_open_dimensions_ask_for_a_shape(tmp_path: Path):
    model = save(tmp_path / "open.onnx", [node("Relu", "x", "y")], {"x": ("N", 3)}, ["y"])
    refused(model, r"input 'x' has the open shape \?x3; give it, for instance --input-shape x=32x3")


def test_a_shape_that_contradicts_the_model_is_refused(scale: Path):
    refused(scale, "input 'x' has shape 4, which 5 does not fit", input_shapes={"x": (5,)})


def test_a_shape_for_an_unknown_input_is_refused(scale: Path):
    refused(scale, r"the model has no input \['q'\]; it has \['x'\]", input_shapes={"q": (5,)})


def test_an_unsupported_operator_is_named(tmp_path: Path):
    model = save(tmp_path / "m.onnx", [node("Bernoulli", "x", "y")], {"x": (4,)}, ["y"], opset=15)
    refused(model, "Bernoulli.*is not supported")


@pytest.mark.parametrize(
    "nodes",
    [
        [node("NonZero", "x", "i"), node("Cast", "i", "y", to=1)],
        [node("Cast", "x", "n", to=7), node("Reshape", "w n", "y")],
        [node("Abs", "x", "a"), node("Cast", "a", "n", to=7), node("Reshape", "w n", "y")],
    ],
    ids=["nonzero", "reshape-input", "reshape-computed"],
)
def test_shapes_that_depend_on_an_input_are_refused(tmp_path: Path, nodes):
    model = save(tmp_path / "dynamic.onnx", nodes, {"x": (2,)}, ["y"], {"w": random(4)})
    refused(model, "at compile time.*depends on an input")


def test_a_compiler_that_dies_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: Path):
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\ncat > /dev/null\necho last words >&2\nkill -SEGV $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(dying))
    refused(scale, "the compiler ended with signal SIGSEGV on .*scale.onnx; it printed: last words")


def test_a_failed_compilation_leaves_an_older_package_alone(scale: Path, tmp_path: Path):
    compile_model(scale, tmp_path / "scale.rfp").close()
    before = (tmp_path / "scale.rfp").read_bytes()
    with pytest.raises(CompileError):
        compile_model(scale, tmp_path / "scale.rfp", input_shapes={"x": (5,)})
    assert (tmp_path / "scale.rfp").read_bytes() == before
    read_package(tmp_path / "scale.rfp").close()
