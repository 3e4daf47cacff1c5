"""What the commands share for output: tables and notices for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ringfence.package.files import why_not_writable

PIPE_WIDTH = 120
VIRTUAL_NOTICE = (
    "virtual device: this host executes the command stream and the machine code; "
    "its times say nothing about a GPU"
)


@cache
def console(*, stderr: bool = False) -> Console:
    """Return the console, of which there is one: a notice is printed above a bar that moves.

    Tables keep their width when the output is a pipe or a file.
    """
    made = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not made.is_terminal:
        made = Console(stderr=stderr, highlight=False, width=PIPE_WIDTH)
    return made


def notice(text: str) -> None:
    """Print a line to stderr."""
    console(stderr=True).print(Text(text), soft_wrap=True)


@cache
def notice_once(text: str) -> None:
    """Print a line to stderr, unless this process has printed this very line."""
    notice(text)


def print_json(value: Any) -> None:
    """Print ``value`` as JSON to stdout."""
    json.dump(value, sys.stdout, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def check_output(path: Path, option: str) -> None:
    """Refuse, as wrong usage of an option, a path that no file can be written to."""
    if problem := why_not_writable(path):
        raise typer.BadParameter(problem, param_hint=option)


def table(title: str, *columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """Return an empty table; ``numbers`` names the columns to align to the right."""
    made = Table(title=Text(title), title_justify="left", title_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return made


def row(made: Table, *cells: object) -> None:
    """Add a row; the cells' text is not interpreted as markup."""
    made.add_row(*(Text(str(cell)) for cell in cells))


def size(nbytes: int) -> str:
    """Return a number of bytes for people."""
    if nbytes < 1 << 10:
        return f"{nbytes} B"
    if nbytes < 1 << 20:
        return f"{nbytes / (1 << 10):.1f} KiB"
    return f"{nbytes / (1 << 20):.1f} MiB"
