"""Help, version and the handling of errors that is common to all commands."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ringfence
from ringfence.cli import main
from ringfence.errors import PackageError


@pytest.mark.parametrize("command", ["compile", "run", "info", "inspect", "bench", "shim"])
def test_every_command_has_help_with_examples(cli, command):
    result = cli(command, "--help")
    assert result.status == 0
    assert "xamples:" in result.out and f"  ringfence {command} " in f"{result.out} "


def test_the_version(cli):
    assert cli("--version").out.strip() == f"ringfence {ringfence.__version__}"


def test_main_exits_with_the_status(tmp_path):
    with pytest.raises(SystemExit) as end:
        main(["inspect", str(tmp_path / "none.rfp")])
    assert end.value.code == 1


def test_the_traceback_is_there_for_who_asks(cli, tmp_path):
    with pytest.raises(PackageError):
        cli("--traceback", "inspect", tmp_path / "none.rfp")


@pytest.mark.parametrize("separator", [(), ("--",)])
def test_the_shim_gets_the_programs_options_untouched(separator):
    program = (sys.executable, "-c", "import sys; print(sys.argv[1:])", "--json", "--", "-x")
    command = [
        sys.executable,
        "-m",
        "ringfence.cli",
        "shim",
        "--device",
        "virtual:a630",
        *separator,
        *program,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "['--json', '--', '-x']"


def test_the_shim_refuses_an_unknown_device(cli):
    result = cli("shim", "--device", "virtual:a999", "--", "true")
    assert result.status == 2 and "a999" in result.err
