"""What the compiling process is asked and what it reports. Imports nothing heavy: both sides use it."""

from __future__ import annotations

from typing import Literal

import msgspec

from ringfence.errors import CompileError
from ringfence.hardware.adreno.chips import CHIPS

Shape = tuple[int, ...]

ADRENO_TARGETS = tuple(chip.name for chip in CHIPS.values())
AMD_TARGETS = ("gfx1100", "gfx1101", "gfx1102")
TARGETS = ADRENO_TARGETS + AMD_TARGETS


def check_target(target: str) -> None:
    """:class:`CompileError` if there is no compiler for ``target``."""
    if target not in TARGETS:
        raise CompileError(f"no compiler for target {target!r}; supported: {', '.join(TARGETS)}")


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller said about pictures; ``None`` where nothing was said."""

    channels: Literal["RGB", "BGR"] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the compiling process.

    ``compile`` writes a package to ``output``. ``reference`` reads named inputs from ``inputs`` (npz),
    runs the plan of ``package`` on tinygrad's CPU device and writes the named outputs to ``output`` (npz).
    ``jobs`` counts the processes that generate code.
    """

    action: Literal["compile", "reference"]
    model: str
    output: str
    target: str
    image: bool
    float16: bool
    input_shapes: dict[str, Shape] = {}
    picture: Picture = Picture()
    jobs: int = 1
    inputs: str = ""
    package: str = ""


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """``done`` of ``total`` units of ``stage`` are finished."""

    stage: str
    done: int
    total: int


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """Why the job failed. ``expected`` failures are about the input, others carry a traceback in
    ``detail``."""

    message: str
    expected: bool
    detail: str = ""


Report = Progress | Failure
