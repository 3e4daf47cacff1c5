"""What becomes of a command whose stdout is closed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ringfence.cli.output import console

COMMAND = (sys.executable, "-m", "ringfence.cli")


def shell(redirection: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command with a redirection of the shell; what it prints is captured."""
    command = ["bash", "-c", f'"$@" {redirection}', "bash", *COMMAND, *map(str, arguments)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("arguments", [("info",), ("info", "--json"), ("run", "--help")])
def test_a_reader_that_went_away_ends_the_command_without_a_word(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        result = subprocess.run(
            [*COMMAND, *arguments], stdout=pipe, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (result.returncode, result.stderr) == (1, "")


@pytest.mark.parametrize("command", [("info", "--json"), ("inspect", "absent.rfp")])
def test_closed_stdout_is_an_error(command):
    result = shell(">&-", *command)
    assert result.returncode == 1
    assert result.stderr == "ringfence: error: stdout is closed, so there is nowhere to print to\n"


def test_a_program_under_the_shim_may_have_closed_streams():
    program = "import os; os.write(2, b'runs')"
    result = shell(">&- <&-", "shim", "--", sys.executable, "-S", "-c", program)
    assert (result.returncode, result.stderr) == (0, "runs")


def test_a_stream_has_one_console():
    """So that a notice is printed above a bar that moves, not into it."""
    assert console(stderr=True) is console(stderr=True)
    assert console() is not console(stderr=True)
