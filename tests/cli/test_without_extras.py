"""An environment with only ringfence[virtual], and one with only ringfence.

Subprocesses get a ``sitecustomize`` that hides modules, so that their own subprocesses lack them too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli import kernels
from cli.conftest import PNET

HIDE = """\
import sys

hidden = {hidden!r}


class Hiding:
    def __init__(self, finder):
        self._finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self._finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self._finder, name)


sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
"""
COMPILERS = ("tinygrad", "tinymesa", "ziglang", "onnx")
MEASURES = ("onnxruntime",)


class Environment:
    """Runs the command line where some modules are not installed."""

    def __init__(self, folder: Path, hidden: tuple[str, ...]) -> None:
        (folder / "sitecustomize.py").write_text(HIDE.format(hidden=set(hidden)))
        path = os.pathsep.join((str(folder), *filter(None, [os.environ.get("PYTHONPATH")])))
        self._variables = {**os.environ, "PYTHONPATH": path}

    def __call__(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ringfence.cli", *map(str, arguments)]
        return subprocess.run(command, env=self._variables, capture_output=True, text=True, check=False)


@pytest.fixture
def virtual_only(tmp_path: Path) -> Environment:
    return Environment(tmp_path, (*COMPILERS, *MEASURES))


@pytest.fixture
def nothing(tmp_path: Path) -> Environment:
    return Environment(tmp_path, (*COMPILERS, *MEASURES, "llvmlite"))


def one_error(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 1 and result.stdout == "" and "Traceback" not in result.stderr
    assert all(word in result.stderr.splitlines()[-1] for word in words), result.stderr


def test_a_package_runs_without_any_compiler(virtual_only, pnet, array):
    result = virtual_only("run", pnet, "--device", "virtual:a630", "--input", array, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["virtual"] is True


def test_a_cold_translation_needs_no_compiler_either(virtual_only, pnet, array, tmp_path, monkeypatch):
    virtual_only._variables["RINGFENCE_CACHE"] = str(tmp_path / "cache")
    result = virtual_only("run", pnet, "--device", "virtual:a630", "--input", array)
    assert result.returncode == 0, result.stderr
    assert any((tmp_path / "cache").rglob("*"))


def test_inspect_works_without_any_compiler(virtual_only, pnet):
    result = virtual_only("inspect", pnet, "--disassemble", "0")
    assert result.returncode == 0 and "end" in result.stdout


KERNEL = ("--device", "virtual:gfx1100", "--groups", "1", "--local", "64", "--arg", "ones:64", "--arg",
          "arange:64", "--arg", "2", "--arg", "64")  # fmt: skip


def test_a_code_object_runs_without_any_compiler(virtual_only, tmp_path):
    path = tmp_path / "saxpy.co"
    path.write_bytes(kernels.saxpy())
    result = virtual_only("run", path, *KERNEL, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["buffers"]["y"]["first"] == [1, 3, 5, 7, 9, 11]


def test_kernels_are_inspected_without_anything(nothing, tmp_path):
    path = tmp_path / "saxpy.co"
    path.write_bytes(kernels.saxpy())
    result = nothing("inspect", path, "--disassemble", "saxpy")
    assert result.returncode == 0 and "s_endpgm" in result.stdout


def test_source_names_the_extra(virtual_only, tmp_path):
    path = tmp_path / "saxpy.cl"
    path.write_text(kernels.SAXPY)
    one_error(virtual_only("run", path, *KERNEL), "ziglang", "ringfence[compile]")


@pytest.mark.parametrize("environment", ["virtual_only", "nothing"])
def test_info_names_what_is_missing(request, environment):
    result = request.getfixturevalue(environment)("info", "--json")
    assert result.returncode == 0, result.stderr
    extras = json.loads(result.stdout)["software"]["extras"]
    assert extras["compile"]["missing"] == list(COMPILERS)
    assert extras["virtual"]["installed"] is (environment == "virtual_only")


def test_compile_names_the_extra(virtual_only, tmp_path):
    one_error(virtual_only("compile", PNET.path, "-o", tmp_path / "x.rfp"), "tinygrad", "ringfence[compile]")


def test_a_reference_names_the_extra(virtual_only, pnet, array):
    result = virtual_only("run", pnet, "--device", "virtual:a630", "--input", array, "--reference", PNET.path)
    one_error(result, "onnxruntime", "ringfence[reference]")


def test_a_virtual_device_names_the_extra(nothing, pnet, array):
    result = nothing("run", pnet, "--device", "virtual:a630", "--input", array)
    one_error(result, "llvmlite", "ringfence[virtual]")
