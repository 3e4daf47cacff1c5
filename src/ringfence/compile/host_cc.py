"""A host C compiler for tinygrad's CPU device on a machine that may have none.

tinygrad 0.14.0 (``runtime/support/compiler_cpu.py``) starts the program named by ``CC`` for every CPU
kernel, as one word without arguments. The wheel ``ziglang`` contains clang as a subcommand of ``zig``,
hence a wrapper script.
"""

from __future__ import annotations

import importlib.util
import shlex
import stat
from pathlib import Path

from ringfence.errors import CompileError


def zig_executable() -> Path:
    """Return the ``zig`` executable of the installed wheel; :class:`CompileError` if it is missing."""
    spec = importlib.util.find_spec("ziglang")
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        zig = Path(folder) / "zig"
        if zig.is_file():
            return zig
    raise CompileError(
        "compiling a model needs clang for the host, taken from the package ziglang, which is not installed; "
        "install ringfence[compile]"
    )


def write_compiler(folder: Path) -> Path:
    """Write a script into ``folder`` that behaves like ``clang``; return its path.

    Products are rounded before they are added, as by ir3's ``mad`` and whether or not this CPU has fused
    instructions.
    """
    wrapper = folder / "clang"
    wrapper.write_text(
        f'#!/bin/sh\nexec {shlex.quote(str(zig_executable()))} clang -w -ffp-contract=off "$@"\n'
    )
    wrapper.chmod(stat.S_IRWXU)
    return wrapper
