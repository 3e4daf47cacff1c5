"""The command line: ``ringfence compile``, ``run``, ``info`` and ``inspect``."""

from __future__ import annotations

import io
import os
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
    flushed = _flush()
    sys.exit(status or flushed)


def _flush() -> int:
    """Write out what is left; return 1 if the reader went away, which Python would complain of at its end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0
