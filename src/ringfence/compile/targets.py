"""One interface to the compilers of all families: a target's name picks the module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinygrad.uop.ops import UOp

from ringfence.compile.kernel import Kernel, check_tinygrad
from ringfence.compile.request import AMD_TARGETS, check_target


def check_installation(target: str) -> None:
    """:class:`CompileError` if nothing here compiles for ``target``."""
    check_target(target)
    check_tinygrad()


def compile_kernel(ast: UOp, target: str, names: Sequence[str] = ()) -> Kernel:
    """Compile one kernel (a SINK node) whose buffers have ``names`` by slot, else ``data0``, ...;
    :class:`CompileError` if the chip could not run the result.
    """
    check_installation(target)
    if target in AMD_TARGETS:
        from ringfence.compile import amd

        return amd.compile_kernel(ast, target, names)
    from ringfence.compile import ir3

    return ir3.compile_kernel(ast, target, names)


def device_renderer(target: str) -> Any:
    """Return the tinygrad renderer whose limits and options schedule the kernels of ``target``."""
    check_installation(target)
    if target in AMD_TARGETS:
        from ringfence.compile import amd

        return amd.CodeObjectRenderer(target)
    from ringfence.compile import ir3

    return ir3.renderer(target)
