"""The command ``ringfence shim``: runs a program whose Python processes see a virtual device."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ringfence.errors import RingfenceError
from ringfence.virtual.shim import COUNT_VARIABLE, REPORT_VARIABLE, VARIABLE
from ringfence.virtual.shim.platform import client_settings, report_path, requested

BOOTSTRAP = Path(__file__).with_name("bootstrap")

_EPILOG = """\
examples:
  ringfence shim -- python -c "from tinygrad import Tensor; print((Tensor([1, 2]) + 1).tolist())"
  ringfence shim --device 'virtual:a630?strict=0' -- python -m pytest test/test_tiny.py
  ringfence shim --device virtual:gfx1100 -- python script.py

tinygrad picks its device by the variable DEV. Unless it is set, it is set to QCOM:IR3, which needs the
package tinymesa, or for AMD chips to AMD:LLVM. That compiles with llvmlite; set LLVM_PATH to a libLLVM
(18 or later, such as Debian's libllvm19) to have tinygrad's own compiler. A virtual AMD GPU has no queues
for its copy engines: AMD_DISABLE_SDMA is set to 1 unless it is set, so that tinygrad copies otherwise (its
HCQ finds out by itself, its HCQ2 does not). HCQ2=1 asks a checkout of tinygrad for HCQ2, which needs a C
compiler (CC).
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
        environment = shim_environment(os.environ, options.device, count=options.count, report=options.report)
    except RingfenceError as error:
        print(f"ringfence shim: error: {error}", file=sys.stderr)
        return 2
    return _become(program, environment)


def shim_environment(
    base: Mapping[str, str], device: str, *, count: int = 1, report: str | None = None
) -> dict[str, str]:
    """Return ``base`` with what makes Python processes, and their children, see ``count`` such devices.

    :class:`RingfenceError` if there are no such devices, or the report cannot be written.
    """
    environment = dict(base)
    environment[VARIABLE] = device
    environment[COUNT_VARIABLE] = str(count)
    if report is not None:
        environment[REPORT_VARIABLE] = report_path(report)
    inherited = base.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join((str(BOOTSTRAP), *([inherited] if inherited else ())))
    for name, value in client_settings(requested(device, count)).items():
        environment.setdefault(name, value)
    return environment


def _become(program: Sequence[str], environment: Mapping[str, str]) -> int:
    """Replace this process, so that signals and exit statuses are the program's own."""
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
        "memory needs no cache maintenance; CHIP is an Adreno such as a630 or an AMD chip such as gfx1100",
    )
    parser.add_argument(
        "--count", type=int, default=1, metavar="N", help="how many such devices there are (default: 1)"
    )
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="append a line of JSON to FILE when a process that used the device ends: programs run, times, "
        "faults, what the run relied on",
    )
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ...", help="what to run")
    return parser
