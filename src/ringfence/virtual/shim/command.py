"""The command ``ringfence shim``: runs a program whose Python processes see a virtual device."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ringfence.errors import RingfenceError
from ringfence.virtual.shim import REPORT_VARIABLE, VARIABLE
from ringfence.virtual.specification import parse_virtual

BOOTSTRAP = Path(__file__).with_name("bootstrap")

_EPILOG = """\
examples:
  ringfence shim -- python -c "from tinygrad import Tensor; print((Tensor([1, 2]) + 1).tolist())"
  ringfence shim --device 'virtual:a630?strict=0' -- python -m pytest test/test_tiny.py

tinygrad picks its device by the variable DEV; unless it is set, it is set to QCOM:IR3, which needs the
package tinymesa.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command line.

    It returns only if the program cannot be started; the status is then 2, 126 or 127.
    """
    options = _parser().parse_args(list(arguments))
    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not program:
        print(
            "ringfence shim: no program to run: put it after --, as in  ringfence shim -- python",
            file=sys.stderr,
        )
        return 2
    try:
        parse_virtual(options.device)
        environment = shim_environment(os.environ, options.device, report=options.report)
    except RingfenceError as error:
        print(f"ringfence shim: error: {error}", file=sys.stderr)
        return 2
    return _become(program, environment)


def shim_environment(base: Mapping[str, str], device: str, *, report: str | None = None) -> dict[str, str]:
    """Return ``base`` with what makes Python processes, and their children, see ``device``."""
    environment = dict(base)
    environment[VARIABLE] = device
    if report is not None:
        environment[REPORT_VARIABLE] = os.path.abspath(report)
    inherited = base.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join((str(BOOTSTRAP), *([inherited] if inherited else ())))
    environment.setdefault("DEV", "QCOM:IR3")
    return environment


def _become(program: Sequence[str], environment: Mapping[str, str]) -> int:
    """Replace this process, so that signals and exit statuses are the program's own."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(program[0], list(program), dict(environment))
    except OSError as error:
        print(f"ringfence shim: cannot run {program[0]!r}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ringfence shim",
        description="Run a program, such as unmodified tinygrad, on a virtual device.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--device",
        default="virtual:a630",
        metavar="SPEC",
        help="virtual:CHIP[?strict=0&seed=7&coherent=1] (default: %(default)s); coherent=1: imported CPU "
        "memory needs no cache maintenance",
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="append a line of JSON to FILE when a process that used the device ends: programs run, times, "
        "what the run relied on",
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="what to run")
    return parser
