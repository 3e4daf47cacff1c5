"""OpenCL kernels on this host's CPU, through the ICD loader and pocl (Debian: pocl-opencl-icd).

Just enough of the OpenCL 1.2 API, through ctypes, to build a program and run a kernel on copies of arrays.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from ctypes import byref, c_char_p, c_int32, c_size_t, c_uint64, c_void_p
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Size = tuple[int, int, int]

PLATFORM = "Portable Computing Language"
SUCCESS, DEVICE_TYPE_CPU, BUILD_LOG, PLATFORM_NAME = 0, 1 << 1, 0x1183, 0x0902
READ_WRITE, COPY_HOST_POINTER = 1 << 0, 1 << 5


class BuildFailed(Exception):
    """The program cannot be built; the text is the compiler's log."""


@cache
def library() -> ctypes.CDLL | None:
    """Return the loader's library, ``None`` where there is none."""
    name = ctypes.util.find_library("OpenCL")
    if name is None:
        return None
    loaded = ctypes.CDLL(name)
    for made in ("clCreateContext", "clCreateCommandQueue", "clCreateProgramWithSource", "clCreateKernel",
                 "clCreateBuffer"):  # fmt: skip
        getattr(loaded, made).restype = c_void_p
    return loaded


def _call(name: str, *arguments: Any) -> None:
    cl = library()
    assert cl is not None
    code = getattr(cl, name)(*arguments)
    assert code == SUCCESS, f"{name} returned {code}"


def _make(name: str, *arguments: Any) -> c_void_p:
    """Call a function that returns an object and has the error as its last argument."""
    cl = library()
    assert cl is not None
    code = c_int32()
    made = getattr(cl, name)(*arguments, byref(code))
    assert code.value == SUCCESS, f"{name} returned {code.value}"
    return c_void_p(made)


@cache
def device() -> tuple[c_void_p, c_void_p, c_void_p] | None:
    """Return pocl's CPU device, a context and a queue; ``None`` where pocl is not installed."""
    cl = library()
    if cl is None:
        return None
    platforms, count = (c_void_p * 16)(), ctypes.c_uint32()
    if cl.clGetPlatformIDs(16, platforms, byref(count)) != SUCCESS:
        return None
    for platform in platforms[: count.value]:
        name = ctypes.create_string_buffer(256)
        _call("clGetPlatformInfo", c_void_p(platform), PLATFORM_NAME, c_size_t(256), name, None)
        if name.value.decode() == PLATFORM:
            found = c_void_p()
            _call("clGetDeviceIDs", c_void_p(platform), c_uint64(DEVICE_TYPE_CPU), 1, byref(found), None)
            context = _make("clCreateContext", None, 1, byref(found), None, None)
            return found, context, _make("clCreateCommandQueue", context, found, c_uint64(0))
    return None


@cache
def _program(source: str) -> c_void_p:
    place = device()
    assert place is not None
    cpu, context, _ = place
    text = c_char_p(source.encode())
    program = _make("clCreateProgramWithSource", context, 1, byref(text), None)
    cl = library()
    assert cl is not None
    if cl.clBuildProgram(program, 1, byref(cpu), b"", None, None) != SUCCESS:
        log = ctypes.create_string_buffer(1 << 16)
        _call("clGetProgramBuildInfo", program, cpu, BUILD_LOG, c_size_t(len(log)), log, None)
        raise BuildFailed(log.value.decode(errors="replace"))
    return program


def run(source: str, kernel: str, groups: Size, local: Size, *values: Array | np.generic) -> None:
    """Run a kernel; arrays are read and written in place, numbers passed by value.

    Raises :class:`BuildFailed` if pocl does not compile the source.
    """
    program, place = _program(source), device()
    assert place is not None
    _, context, queue = place
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
