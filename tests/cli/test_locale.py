"""Names and texts that the locale cannot show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli import kernels

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
COMMENTED = f"// größer × kleiner\n{kernels.SAXPY}"
LAUNCH = ("--groups", 1, "--local", 8, "--arg", "y=zeros:8", "--arg", "zeros:8", "--arg", 1, "--arg", 8)


def ringfence(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "ringfence.cli", *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, **ASCII}, capture_output=True, check=False)


def test_what_stdout_cannot_show_is_escaped(tmp_path: Path):
    path = tmp_path / "größe.co"
    path.write_bytes(kernels.saxpy())
    result = ringfence("inspect", path)
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"gr\\udcc3\\udcb6\\udcc3\\udc9fe.co" in result.stdout.replace(b"\n", b"")


@pytest.mark.parametrize("name", [b"gr\xc3\xb6\xc3\x9fe.cl", b"\xff.cl", b'a"b\\c.cl'])
def test_source_is_utf8_whatever_the_locale_and_may_have_any_name(name, tmp_path: Path):
    path = tmp_path / os.fsdecode(name)
    path.write_text(COMMENTED, encoding="utf-8")
    result = ringfence("run", path, "--device", "virtual:gfx1100", *LAUNCH)
    assert (result.returncode, result.stderr) == (0, b"")


def test_source_that_is_no_text_is_refused(cli, tmp_path: Path):
    path = tmp_path / "latin.cl"
    path.write_bytes(COMMENTED.encode("latin-1"))
    result = cli("run", path, "--device", "virtual:gfx1100", *LAUNCH)
    assert result.status == 1
    assert f"{path} is not UTF-8 text, so no OpenCL C" in result.err
