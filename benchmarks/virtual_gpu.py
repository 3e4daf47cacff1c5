"""How fast virtual GPUs run real kernels, beside peers on the same machine in the same run.

Each chip has a module of its own, which says what its figures are: ``virtual_a630.py``,
``virtual_gfx1100.py``. Every result is checked; a wrong one ends the run with exit status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from ringfence.cli.bench import Row, load_note, show
from ringfence.cli.output import notice

CHIPS = ("a630", "gfx1100")
VARIABLE = "TINYGRAD"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table per chip, write the rows if asked."""
    options = _parser().parse_args(arguments)
    found: list[Row] = []
    for chip in options.chips:
        measure: Callable[[argparse.Namespace], list[Row]] = import_module(f"virtual_{chip}").rows
        try:
            rows = measure(options)
        except AssertionError as error:
            notice(f"{chip}: wrong result: {error}")
            return 1
        show(rows, f"virtual {chip} ({load_note()})")
        found += rows
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Kernels on virtual GPUs.")
    parser.add_argument("--quick", action="store_true", help="measure for a shorter time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as a list")
    known = ", ".join(CHIPS)
    parser.add_argument(
        "--chips", type=_chips, default=list(CHIPS), metavar="A,B", help=f"of {known} (default: all)"
    )
    parser.add_argument(
        "--tinygrad",
        metavar="PATH",
        default=os.environ.get(VARIABLE),
        help=f"the checkout of tinygrad whose emulator is gfx1100's peer (default: ${VARIABLE})",
    )
    return parser


def _chips(text: str) -> list[str]:
    chips = text.split(",")
    for chip in chips:
        if chip not in CHIPS:
            raise argparse.ArgumentTypeError(f"unknown chip {chip!r}; known: {', '.join(CHIPS)}")
    return chips


if __name__ == "__main__":
    sys.exit(main())
