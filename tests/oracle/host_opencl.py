"""The functions of the builtin header, compiled for the host: what they compute without a GPU.

Kernels become functions that loop over their elements themselves. The work-item functions and the native ones
do not exist here.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from ringfence.compile.host_cc import zig_executable
from ringfence.compile.opencl import header


class HostLibrary:
    """A shared library of OpenCL C functions, whose arguments are arrays and numbers."""

    def __init__(self, source: str, folder: Path) -> None:
        unlinked, linked = folder / "host.o", folder / "host.so"
        zig = str(zig_executable())
        compiled = subprocess.run(
            [
                *(
                    zig,
                    "clang",
                    "-cc1",
                    "-triple",
                    "x86_64-linux-gnu",
                    "-target-cpu",
                    "x86-64-v3",
                    "-x",
                    "cl",
                ),
                *("-cl-std=CL2.0", "-O1", "-mrelocation-model", "pic", "-pic-level", "2", "-w", "-emit-obj"),
                *("-o", str(unlinked), "-"),
            ],
            input=header() + source,
            text=True,
            capture_output=True,
            check=False,
        )
        assert compiled.returncode == 0, compiled.stderr[:4000]
        subprocess.run([zig, "ld.lld", "-shared", "-o", str(linked), str(unlinked)], check=True)
        self._library = ctypes.CDLL(str(linked))

    def call(self, name: str, *arguments: np.ndarray[Any, Any] | int) -> None:
        """Call a function; arrays are passed by address."""
        converted = [
            argument if isinstance(argument, int) else argument.ctypes.data_as(ctypes.c_void_p)
            for argument in arguments
        ]
        getattr(self._library, name)(*converted)


def element_wise(name: str, result: str, *types: str, expression: str | None = None) -> str:
    """Return a function that applies ``name``, or an expression in ``x y z``, to the elements of arrays."""
    letters = "xyz"[: len(types)]
    parameters = "".join(f"__global const {t} *{p}s, " for t, p in zip(types, letters, strict=True))
    loads = " ".join(f"{t} {p} = {p}s[i];" for t, p in zip(types, letters, strict=True))
    call = expression or f"{name}({', '.join(letters)})"
    symbol = "_".join([name, *types])
    body = f"for (int i = 0; i < n; i++) {{ {loads} out[i] = {call}; }}"
    return f"__kernel void {symbol}({parameters}__global {result} *out, int n) {{ {body} }}\n"
