"""Single kernels from tinygrad expressions, for those who launch programs themselves.

Unlike models they are compiled in this process: nothing runs, so neither a device nor a host compiler is
needed.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tinygrad import Tensor
from tinygrad.codegen.opt import KernelOptError, Opt, OptOps
from tinygrad.dtype import DTYPES_DICT
from tinygrad.engine.realize import get_call_arg_uops
from tinygrad.helpers import Context
from tinygrad.uop.ops import Ops, UOp

from ringfence.compile.targets import check_installation, compile_kernel
from ringfence.errors import CompileError
from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.package.programs import AmdProgram

Dimensions = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A program and its launch. ``arguments`` are ``out``, ``in0``, ``in1``, ... or ``temp0``, ...

    ``temporaries`` are the sizes of the latter in bytes; kernels of one expression share them by name.
    """

    program: AdrenoProgram | AmdProgram
    groups: Dimensions
    local: Dimensions
    arguments: tuple[str, ...]
    temporaries: dict[str, int]


def compile_tinygrad(
    function: Callable[..., Tensor],
    *shapes: Sequence[int],
    dtype: str = "float32",
    target: str = "a630",
    local: Sequence[int] | None = None,
) -> list[CompiledKernel]:
    """Compile ``function``, which makes one tinygrad tensor from tensors of the given shapes and dtype, for
    the chip ``target``, an Adreno or an AMD GPU.

    Returns its kernels in launch order, for elementwise functions and products of matrices exactly one.
    ``local`` forces the local size along the first axes of the result; the code then skips work-items
    beyond its end, so that a size need not be a multiple. :class:`CompileError` if the target is unknown,
    the function fails, or its expression cannot be compiled.

    >>> kernel = compile_tinygrad(lambda a, b: 2 * a + b, (1000,), (1000,), local=(64,))[0]
    >>> kernel.arguments, kernel.groups, kernel.local
    (('out', 'in0', 'in1'), (16, 1, 1), (64, 1, 1))
    """
    check_installation(target)
    if dtype not in DTYPES_DICT:
        raise CompileError(f"unknown dtype {dtype!r}; known: {', '.join(sorted(DTYPES_DICT))}")
    sizes = [_whole_numbers("shape", shape, least=0) for shape in shapes]
    threads = None if local is None else _whole_numbers("local size", local, least=1)
    try:
        kernels = _compile_all(function, sizes, dtype, target, threads)
    except CompileError:
        raise
    except Exception as error:  # of the caller's function, or of tinygrad, which raises whatever it likes
        raise CompileError(
            f"the expression cannot be compiled for {target}: {type(error).__name__}: {error}"
        ) from error
    if not kernels:
        raise CompileError("the expression needs no kernel: it is one of its inputs, or nothing")
    return kernels


def _whole_numbers(what: str, given: Any, *, least: int) -> tuple[int, ...]:
    try:
        numbers = tuple(map(operator.index, given))
    except TypeError:
        numbers = (-1,)
    if min(numbers, default=least) < least:
        raise CompileError(f"{what} {given!r} is no sequence of whole numbers of at least {least}")
    return numbers


def _compile_all(
    function: Callable[..., Tensor],
    shapes: Sequence[tuple[int, ...]],
    dtype: str,
    target: str,
    local: tuple[int, ...] | None,
) -> list[CompiledKernel]:
    # NULL: a device that allocates and runs nothing. The settings are those of an empty environment.
    with Context(
        DEV="NULL",
        IMAGE=0,
        FLOAT16=0,
        BEAM=0,
        NOOPT=0,
        DEBUG=0,
        CACHELEVEL=0,
        NOLOCALS=0,
        NO_MEMORY_PLANNER=1,
    ):
        inputs = [Tensor.empty(*shape, dtype=dtype) for shape in shapes]
        names = {t.uop.base: f"in{k}" for k, t in enumerate(inputs)}
        made = function(*inputs)
        if not isinstance(made, Tensor):
            raise CompileError(f"the function returned {made!r}, not a tinygrad tensor")
        output = made.contiguous()
        calls = output.schedule_linear().src
        names[output.uop.base] = "out"
        return [_compile(call, target, names, local) for call in calls]


def _compile(call: UOp, target: str, names: dict[UOp, str], local: tuple[int, ...] | None) -> CompiledKernel:
    ast = call.src[0]
    if ast.op is not Ops.SINK:
        raise CompileError(f"the expression needs a {ast.op.name} step, which is not a kernel")
    if local is not None:
        ast = ast.replace(arg=replace(ast.arg, opts_to_apply=_local_options(local)))
    buffers = [buffer.base for buffer in get_call_arg_uops(call)]
    for base in buffers:
        names.setdefault(base, f"temp{sum(n.startswith('temp') for n in names.values())}")
    try:
        kernel = compile_kernel(ast, target, [names[base] for base in buffers])
    except KernelOptError as error:
        raise CompileError(f"local size {local} does not suit the kernel: {error}") from error
    used = [buffers[slot] for slot in kernel.slots]
    temporaries = {
        names[base]: math.prod(base.shape) * base.dtype.itemsize
        for base in used
        if names[base].startswith("temp")
    }
    arguments = tuple(names[base] for base in used)
    return CompiledKernel(kernel.program, kernel.groups, kernel.local, arguments, temporaries)


def _local_options(local: Sequence[int]) -> tuple[Opt, ...]:
    pad = [Opt(OptOps.PADTO, axis, size) for axis, size in enumerate(local)]
    return (*pad, *(Opt(OptOps.LOCAL, axis, size) for axis, size in enumerate(local)))
