"""``ringfence run``: what it reports, what it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import onnxruntime
import pytest

from cli.conftest import PNET
from cli.repack import repack
from compile.graphs import node, save
from models import MODELS
from package.packages import parts
from ringfence.package import encode_package, read_package
from ringfence.package.picture import to_input

VIRTUAL = ("--device", "virtual:a630")
STAGES = {"copy_in", "host_encode", "queue", "gpu", "host_visible", "copy_out", "total"}


# ----- what it does ---------------------------------------------------------------------------------


def test_outputs_agree_with_onnxruntime_on_a_picture(cli, pnet, picture, tmp_path):
    written = tmp_path / "out.npz"
    result = cli("run", pnet, *VIRTUAL, "--input", picture, "--frames", 2, "--outputs", written)
    assert result.status == 0, result.err
    from PIL import Image

    with read_package(pnet) as package, Image.open(picture) as opened:
        inputs = {"input_1": to_input(package.manifest.layout, opened)}
    session = onnxruntime.InferenceSession(str(PNET.path), providers=["CPUExecutionProvider"])
    with np.load(written) as outputs:
        for name, reference in zip(("conv2d_4", "softmax"), session.run(["conv2d_4", "softmax"], inputs)):
            assert np.abs(outputs[name] - reference).max() <= 1e-4 * np.abs(reference).max()


def test_json_has_stages_memory_and_errors_and_nothing_else_is_on_stdout(cli, pnet, array):
    result = cli("run", pnet, *VIRTUAL, "--input", array, "--frames", 3, "--reference", PNET.path, "--json")
    assert result.status == 0, result.err
    report = result.json
    assert report["frames"] == 3
    assert report["stages"].keys() == STAGES
    assert all(s["median_ms"] <= s["p99_ms"] <= s["max_ms"] for s in report["stages"].values())
    assert report["device_bytes"] > 3 << 20 and report["peak_host_bytes"] > report["device_bytes"]
    for error in report["reference"].values():
        assert error["max_error"] <= 1e-4 * error["scale"]


def test_an_input_may_be_named(cli, pnet, array):
    assert cli("run", pnet, *VIRTUAL, "--input", f"input_1={array}").status == 0


def test_the_table_has_median_p99_and_maximum_of_the_stages(cli, pnet, array):
    result = cli("run", pnet, *VIRTUAL, "--input", array, "--frames", 2)
    for words in ("host encode", "queue", "GPU", "host-visible", "median ms", "p99 ms", "max ms", "resident"):
        assert words in result.out


def test_a_reference_that_is_another_file_is_noted(cli, pnet, array, tmp_path):
    other = tmp_path / "other.onnx"
    other.write_bytes(
        PNET.path.read_bytes() + b"\x62\x00"
    )  # an empty ``doc`` field of the same protocol buffer
    result = cli("run", pnet, *VIRTUAL, "--input", array, "--reference", other)
    assert "is not the file that the package was compiled from" in result.err


@pytest.fixture
def doubling(cli, tmp_path) -> Path:
    """A package of y = 2 relu(x), beside models of the same and of y = 2.01 relu(x)."""
    for name, factor in (("same", 2.0), ("other", 2.01)):
        nodes = [node("Relu", "x", "a"), node("Mul", "a w", "y")]
        save(tmp_path / f"{name}.onnx", nodes, {"x": (4,)}, ["y"], {"w": np.full(1, factor, np.float32)})
    assert cli("compile", tmp_path / "same.onnx", "-o", tmp_path / "m.rfp").status == 0
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.float32))
    np.save(tmp_path / "nan.npy", np.full(4, np.nan, np.float32))
    return tmp_path


@pytest.mark.parametrize(
    ("given", "reference", "tolerance", "words"),
    [
        ("x", "same", (), None),
        ("x", "other", (), "y by 5.0e-03 of its largest value, where 0.0001 is allowed"),
        ("x", "other", ("--tolerance", "0.01"), None),
        ("x", "same", ("--tolerance", "0"), None),
        ("nan", "same", (), "y is finite in one of them only"),
        ("nan", "same", ("--tolerance", "inf"), "y is finite in one of them only"),
    ],
)
def test_outputs_that_differ_from_the_reference_end_with_status_1(
    cli, doubling, given, reference, tolerance, words
):
    command = ["run", doubling / "m.rfp", *VIRTUAL, "--input", doubling / f"{given}.npy"]
    result = cli(*command, "--reference", doubling / f"{reference}.onnx", *tolerance, "--json")
    assert result.json["reference"].keys() == {"y"}  # the report is there all the same
    last = result.err.splitlines()[-1] if result.err else ""
    assert result.status == (words is not None)
    assert last.startswith("ringfence: error: outputs differ from the reference: ") == (words is not None)
    assert (words or "") in last


@pytest.mark.parametrize(
    "options", [("--tolerance", "0.1"), ("--tolerance", "nan", "--reference", PNET.path)]
)
def test_a_tolerance_without_a_reference_or_of_nan_is_wrong_usage(cli, pnet, array, options):
    result = cli("run", pnet, *VIRTUAL, "--input", array, *options)
    assert result.status == 2 and "--tolerance" in result.err


# ----- what it says about itself --------------------------------------------------------------------


def test_a_virtual_device_is_called_virtual(cli, pnet, array):
    result = cli("run", pnet, *VIRTUAL, "--input", array)
    assert "virtual a630" in result.out
    assert "its times say nothing about a GPU" in result.out


def test_json_says_that_the_device_is_virtual(cli, pnet, array):
    report = cli("run", pnet, *VIRTUAL, "--input", array, "--json").json
    assert report["virtual"] is True and report["device"]["virtual"] is True


def test_auto_says_that_it_fell_back_to_a_virtual_device(cli, pnet, array):
    if Path("/dev/kgsl-3d0").exists():
        pytest.skip("this machine has a KGSL node, so auto does not fall back")
    result = cli("run", pnet, "--device", "auto", "--input", array, "--json")
    assert result.json["virtual"] is True
    assert "virtual a630" in result.err and "kgsl" in result.err


# ----- what it refuses ------------------------------------------------------------------------------


def refused(result, *words: str) -> None:
    """One line on stderr with these words, status 1, nothing on stdout."""
    assert result.status == 1
    assert result.out == ""
    assert result.err.startswith("ringfence: error: ") and result.err.count("\n") == 1, result.err
    for word in words:
        assert word in result.err


@pytest.mark.parametrize("keep", [0, 10, 1000, 4096, 70_000])
def test_a_truncated_package(cli, pnet, array, tmp_path, keep):
    path = tmp_path / "short.rfp"
    path.write_bytes(pnet.read_bytes()[:keep])
    refused(cli("run", path, *VIRTUAL, "--input", array), "truncated")


@pytest.mark.parametrize("seed", range(8))
def test_a_package_with_one_flipped_bit(cli, pnet, array, tmp_path, seed):
    data = bytearray(pnet.read_bytes())
    bit = int(np.random.default_rng(seed).integers(len(data) * 8))
    data[bit // 8] ^= 1 << bit % 8
    path = tmp_path / "flipped.rfp"
    path.write_bytes(data)
    refused(cli("run", path, *VIRTUAL, "--input", array), str(path))


def test_a_file_that_is_no_package(cli, array):
    refused(cli("run", PNET.path, *VIRTUAL, "--input", array), "not a ringfence package")


def test_a_missing_package(cli, array, tmp_path):
    refused(cli("run", tmp_path / "none.rfp", *VIRTUAL, "--input", array), "none.rfp", "No such file")


def test_a_package_for_another_chip(cli, pnet, array, tmp_path):
    def for_a660(programs):
        return [msgspec.structs.replace(program, chip="a660") for program in programs]

    path = repack(pnet, tmp_path / "a660.rfp", for_a660, target="a660")
    refused(cli("run", path, *VIRTUAL, "--input", array), "a660", "a630")


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [
        ((1, 120, 112, 4), np.float32, "(1, 120, 112, 4)"),
        ((120, 112, 3), np.float32, "(120, 112, 3)"),
        ((1, 120, 112, 3), np.float64, "float64"),
        ((1, 120, 112, 3), np.int32, "int32"),
    ],
)
def test_an_input_of_the_wrong_shape_or_dtype(cli, pnet, tmp_path, shape, dtype, words):
    path = tmp_path / "input.npy"
    np.save(path, np.zeros(shape, dtype))
    refused(cli("run", pnet, *VIRTUAL, "--input", path), "input_1", words, "(1, 120, 112, 3)")


def test_a_missing_input_file(cli, pnet, tmp_path):
    refused(cli("run", pnet, *VIRTUAL, "--input", tmp_path / "none.png"), "none.png", "no file")


def test_no_input_at_all(cli, pnet):
    refused(cli("run", pnet, *VIRTUAL), "input_1", "--input")


def test_an_unknown_input_name(cli, pnet, array):
    refused(cli("run", pnet, *VIRTUAL, "--input", f"image={array}"), "'image'", "input_1")


def test_an_input_given_twice(cli, pnet, array):
    refused(cli("run", pnet, *VIRTUAL, "--input", array, "--input", f"input_1={array}"), "twice")


def test_a_file_that_is_neither_array_nor_picture(cli, pnet, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a picture")
    refused(cli("run", pnet, *VIRTUAL, "--input", path), "notes.txt", "picture")


def test_an_array_file_that_would_need_pickle(cli, pnet, tmp_path):
    path = tmp_path / "objects.npy"
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    refused(cli("run", pnet, *VIRTUAL, "--input", path), "objects.npy")


def test_a_picture_for_a_package_that_takes_none(cli, picture, tmp_path):
    path = tmp_path / "tiny.rfp"
    path.write_bytes(encode_package(*parts()))
    refused(cli("run", path, *VIRTUAL, "--input", picture), "does not take a picture", ".npy")


def test_a_reference_with_other_outputs(cli, pnet, array):
    refused(cli("run", pnet, *VIRTUAL, "--input", array, "--reference", MODELS["rnet"].path), "onnxruntime")


def test_a_missing_reference(cli, pnet, array, tmp_path):
    refused(cli("run", pnet, *VIRTUAL, "--input", array, "--reference", tmp_path / "none.onnx"), "none.onnx")


@pytest.mark.parametrize(
    ("device", "words"),
    [
        ("kgsl", "/dev/kgsl-3d0"),
        ("virtual:a999", "a630"),
        ("virtual:a630?strict=maybe", "strict"),
        ("toaster", "virtual:<chip>"),
    ],
)
def test_a_device_that_cannot_be_opened(cli, pnet, array, device, words):
    if device == "kgsl" and Path("/dev/kgsl-3d0").exists():
        pytest.skip("this machine has a KGSL node")
    refused(cli("run", pnet, "--device", device, "--input", array), words)


def test_outputs_into_a_folder_that_does_not_exist_is_wrong_usage(cli, pnet, array, tmp_path):
    result = cli("run", pnet, *VIRTUAL, "--input", array, "--outputs", tmp_path / "none" / "out.npz")
    assert result.status == 2 and "no folder" in result.err


def test_outputs_go_to_exactly_the_path(cli, pnet, array, tmp_path):
    path = tmp_path / "outputs"
    assert cli("run", pnet, *VIRTUAL, "--input", array, "--outputs", path).status == 0
    assert path.is_file()
    folder = cli("run", pnet, *VIRTUAL, "--input", array, "--outputs", tmp_path)
    assert folder.status == 2 and "is not a file" in folder.err


@pytest.mark.parametrize(
    "arguments", [("run",), ("run", "x.rfp", "--frames", "0"), ("walk",), ("run", "--no")]
)
def test_wrong_usage_has_status_2(cli, arguments):
    result = cli(*arguments)
    assert result.status == 2 and result.out == "" and "Traceback" not in result.err
