"""The command line: ``ringfence compile``, ``run``, ``info`` and ``inspect``."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit.

    Exit status: 0 done, 1 an error (one line on stderr), 2 wrong usage, 130 interrupted.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # as stderr: what the locale cannot show is escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        from ringfence.cli.app import run  # takes a moment, in which one may change one's mind

        status = run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
