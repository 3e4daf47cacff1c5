"""What every family's compiler makes of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from ringfence.errors import CompileError
from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.package.programs import AmdProgram

TINYGRAD = "0.14.0"  # whose internals the modules of this package use

Dimensions = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled kernel and the size it is launched with.

    Argument k of the program is the kernel's buffer (or scalar) in slot ``slots[k]``.
    """

    program: AdrenoProgram | AmdProgram
    slots: tuple[int, ...]
    groups: Dimensions
    local: Dimensions


def check_tinygrad() -> None:
    """:class:`CompileError` if another tinygrad is installed than this package was written for."""
    if version("tinygrad") != TINYGRAD:
        raise CompileError(
            f"tinygrad {version('tinygrad')} is installed, {TINYGRAD} is needed; install ringfence[compile]"
        )


def launch_size(info: Any) -> tuple[Dimensions, Dimensions | None]:
    """Return groups and local size of a compiled kernel (tinygrad's ProgramInfo); ``None``: any will do."""
    local = None if info.local_size is None else _dimensions(info.local_size)
    return _dimensions(info.global_size), local


def _dimensions(size: tuple[Any, ...]) -> Dimensions:
    if len(size) != 3 or not all(isinstance(n, int) for n in size):
        raise CompileError(f"kernel with the launch size {size}; only three fixed integers are supported")
    return size
