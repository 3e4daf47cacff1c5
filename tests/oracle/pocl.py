"""OpenCL kernels on this host's CPU, through the ICD loader and pocl (Debian: pocl-opencl-icd).

Just enough of the OpenCL 1.2 API, through ctypes, to build a program and run a kernel on copies of arrays. It
all happens in a process of its own: pocl brings an LLVM, which must not meet llvmlite's.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Size = tuple[int, int, int]

VENDORS = Path("/etc/OpenCL/vendors")  # where the loader looks for implementations
PLATFORM = "Portable Computing Language"
SUCCESS, DEVICE_TYPE_CPU, BUILD_LOG, PLATFORM_NAME = 0, 1 << 1, 0x1183, 0x0902
READ_WRITE, COPY_HOST_POINTER = 1 << 0, 1 << 5


class BuildFailed(Exception):
    """The program cannot be built; the text is the compiler's log."""


def installed() -> bool:
    """Return whether the loader and pocl are there."""
    return ctypes.util.find_library("OpenCL") is not None and any(VENDORS.glob("*pocl*"))


def run(source: str, kernel: str, groups: Size, local: Size, *values: Array | np.generic) -> None:
    """Run a kernel; arrays are read and written in place, numbers passed by value.

    Raises :class:`BuildFailed` if pocl does not compile the source.
    """
    results = _process().submit(_run, source, kernel, groups, local, values).result()
    for value, result in zip(values, results, strict=True):
        if isinstance(value, np.ndarray):
            value[...] = result


@cache
def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


# ----- in the other process -----------------------------------------------------------------------


@cache
def _library() -> ctypes.CDLL:
    loaded = ctypes.CDLL(ctypes.util.find_library("OpenCL"))
    for made in ("clCreateContext", "clCreateCommandQueue", "clCreateProgramWithSource", "clCreateKernel",
                 "clCreateBuffer"):  # fmt: skip
        getattr(loaded, made).restype = c_void_p
    return loaded


def _call(name: str, *arguments: Any) -> None:
    cl = _library()
    code = getattr(cl, name)(*arguments)
    assert code == SUCCESS, f"{name} returned {code}"


def _make(name: str, *arguments: Any) -> c_void_p:
    """Call a function that returns an object and has the error as its last argument."""
    cl = _library()
    code = c_int32()
    made = getattr(cl, name)(*arguments, byref(code))
    assert code.value == SUCCESS, f"{name} returned {code.value}"
    return c_void_p(made)


@cache
def _device() -> tuple[c_void_p, c_void_p, c_void_p]:
    """Return pocl's CPU device, a context and a queue."""
    platforms, count = (c_void_p * 16)(), ctypes.c_uint32()
    _call("clGetPlatformIDs", 16, platforms, byref(count))
    for platform in platforms[: count.value]:
        name = ctypes.create_string_buffer(256)
        _call("clGetPlatformInfo", c_void_p(platform), PLATFORM_NAME, c_size_t(256), name, None)
        if name.value.decode() == PLATFORM:
            found = c_void_p()
            _call("clGetDeviceIDs", c_void_p(platform), c_uint64(DEVICE_TYPE_CPU), 1, byref(found), None)
            context = _make("clCreateContext", None, 1, byref(found), None, None)
            return found, context, _make("clCreateCommandQueue", context, found, c_uint64(0))
    raise LookupError("the loader knows no pocl")


@cache
def _program(source: str) -> c_void_p:
    cpu, context, _ = _device()
    text = c_char_p(source.encode())
    program = _make("clCreateProgramWithSource", context, 1, byref(text), None)
    cl = _library()
    if cl.clBuildProgram(program, 1, byref(cpu), b"", None, None) != SUCCESS:
        log = ctypes.create_string_buffer(1 << 16)
        _call("clGetProgramBuildInfo", program, cpu, BUILD_LOG, c_size_t(len(log)), log, None)
        raise BuildFailed(log.value.decode(errors="replace"))
    return program


def _run(
    source: str, kernel: str, groups: Size, local: Size, values: tuple[Array | np.generic, ...]
) -> tuple[Array | np.generic, ...]:
    """Run a kernel; return the arguments as it left them."""
    program, (_, context, queue) = _program(source), _device()
    made = _make("clCreateKernel", program, kernel.encode())
    buffers: list[tuple[c_void_p, Array]] = []
    for number, value in enumerate(values):
        if isinstance(value, np.ndarray):
            flags = c_uint64(READ_WRITE | COPY_HOST_POINTER)
            pointer = c_void_p(value.ctypes.data)
            buffer = _make("clCreateBuffer", context, flags, c_size_t(value.nbytes), pointer)
            buffers.append((buffer, value))
            _call("clSetKernelArg", made, number, c_size_t(8), byref(buffer))
        else:
            data = value.tobytes()
            _call("clSetKernelArg", made, number, c_size_t(len(data)), data)
    sizes = (c_size_t * 3)(*(g * size for g, size in zip(groups, local, strict=True)))
    _call("clEnqueueNDRangeKernel", queue, made, 3, None, sizes, (c_size_t * 3)(*local), 0, None, None)
    _call("clFinish", queue)
    for buffer, array in buffers:
        target = c_void_p(array.ctypes.data)
        size = c_size_t(array.nbytes)
        _call("clEnqueueReadBuffer", queue, buffer, 1, c_size_t(0), size, target, 0, None, None)
        _call("clReleaseMemObject", buffer)
    _call("clReleaseKernel", made)
    return values
