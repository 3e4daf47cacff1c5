"""The peer of the virtual A630: pocl, an OpenCL implementation for the host's CPU.

Run as ``opencl_peer.py CASE SECONDS``, in a process of its own since pocl takes its number of threads from
the environment. Prints the shortest time of a run and the error of the result, or that there is no pocl.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from a630_kernels import Array, Case, Launch, cases

PLATFORM_NAME, BUILD_LOG = 0x0902, 0x1183
DEVICE_TYPE_CPU = 1 << 1
READ_WRITE, USE_HOST_PTR = 1 << 0, 1 << 3
NO_POCL = {"absent": "no pocl: neither libOpenCL nor a platform of pocl's"}

Handle = ctypes.c_void_p


class OpenCL:
    """The few functions of OpenCL that are needed, on pocl's CPU device."""

    def __init__(self, library: Any, platform: Any) -> None:
        self.library = library
        self.device = Handle()
        kind = ctypes.c_uint64(DEVICE_TYPE_CPU)
        self._call("clGetDeviceIDs", platform, kind, 1, ctypes.byref(self.device), None)
        self.context = self._make("clCreateContext", None, 1, ctypes.byref(self.device), None, None)
        self.queue = self._make("clCreateCommandQueue", self.context, self.device, ctypes.c_uint64(0))

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise SystemExit(f"{name} failed with {status}")

    def _make(self, name: str, *arguments: Any) -> Handle:
        function, status = getattr(self.library, name), ctypes.c_int32()
        function.restype = ctypes.c_void_p
        made = function(*arguments, ctypes.byref(status))
        if status.value:
            raise SystemExit(f"{name} failed with {status.value}")
        return Handle(made)

    def build(self, source: str) -> Handle:
        """Return a program."""
        text = ctypes.c_char_p(source.encode())
        program = self._make("clCreateProgramWithSource", self.context, 1, ctypes.byref(text), None)
        if self.library.clBuildProgram(program, 1, ctypes.byref(self.device), None, None, None):
            log = ctypes.create_string_buffer(1 << 16)
            self._call(
                "clGetProgramBuildInfo", program, self.device, BUILD_LOG, ctypes.c_size_t(len(log)), log, None
            )
            raise SystemExit(f"pocl refuses the kernel:\n{log.value.decode()}")
        return program

    def buffer(self, array: Array) -> Handle:
        """Return a buffer on the memory of ``array``."""
        flags, size = ctypes.c_uint64(READ_WRITE | USE_HOST_PTR), ctypes.c_size_t(array.nbytes)
        return self._make("clCreateBuffer", self.context, flags, size, Handle(array.ctypes.data))

    def kernel(self, program: Handle, launch: Launch, buffers: dict[str, Handle]) -> Handle:
        """Return a kernel with its arguments."""
        kernel = self._make("clCreateKernel", program, launch.kernel.encode())
        for index, name in enumerate(launch.arguments):
            value = ctypes.byref(buffers[name])
            self._call("clSetKernelArg", kernel, index, ctypes.c_size_t(ctypes.sizeof(Handle)), value)
        return kernel

    def enqueue(self, kernel: Handle, launch: Launch) -> None:
        """Start a launch."""
        sizes = ctypes.c_size_t * 3
        total = sizes(*(g * n for g, n in zip(launch.groups, launch.local, strict=True)))
        local = sizes(*launch.local)
        self._call("clEnqueueNDRangeKernel", self.queue, kernel, 3, None, total, local, 0, None, None)

    def finish(self) -> None:
        """Wait for all launches."""
        self._call("clFinish", self.queue)

    def read(self, buffer: Handle, array: Array) -> None:
        """Copy a buffer to ``array``."""
        size, target = ctypes.c_size_t(array.nbytes), Handle(array.ctypes.data)
        where = (ctypes.c_size_t(0), size, target)
        self._call("clEnqueueReadBuffer", self.queue, buffer, 1, *where, 0, None, None)


def find() -> OpenCL | None:
    """Return pocl, ``None`` if it is not installed."""
    name = ctypes.util.find_library("OpenCL") or "libOpenCL.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError:
        return None
    platforms, count = (Handle * 16)(), ctypes.c_uint32()
    if library.clGetPlatformIDs(16, platforms, ctypes.byref(count)):
        return None
    for platform in platforms[: count.value]:
        text = ctypes.create_string_buffer(256)
        library.clGetPlatformInfo(Handle(platform), PLATFORM_NAME, ctypes.c_size_t(256), text, None)
        if text.value == b"Portable Computing Language":
            return OpenCL(library, Handle(platform))
    return None


def measure(opencl: OpenCL, case: Case, seconds: float) -> dict[str, float]:
    """Return the shortest time of a run, and the error of its result."""
    arrays: dict[str, Array] = dict(case.inputs)
    arrays["out"] = np.zeros(case.wanted.size, np.float32)
    arrays |= {name: np.zeros(size, np.float32) for name, size in case.temporaries.items()}
    buffers = {name: opencl.buffer(array) for name, array in arrays.items()}
    program = opencl.build(case.source)
    kernels = [(opencl.kernel(program, launch, buffers), launch) for launch in case.launches]

    def run() -> float:
        begin = time.perf_counter()
        for kernel, launch in kernels:
            opencl.enqueue(kernel, launch)
        opencl.finish()
        return time.perf_counter() - begin

    run()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        times.append(run())
    result = np.zeros_like(arrays["out"])
    opencl.read(buffers["out"], result)
    return {"seconds": min(times), "error": case.error(result)}


def main(arguments: Sequence[str]) -> int:
    """Measure one case."""
    opencl = find()
    name, seconds = arguments
    result = NO_POCL if opencl is None else measure(opencl, cases()[name], float(seconds))
    json.dump(result, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
