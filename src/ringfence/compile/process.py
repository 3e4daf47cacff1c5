"""Starts the compiling process with a clean environment and relays its progress and errors."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from ringfence.compile.host_cc import write_compiler
from ringfence.compile.request import Failure, Report, Request
from ringfence.errors import CompileError

ProgressCallback = Callable[[str, int, int], None]

# Everything else of the caller's environment is dropped: tinygrad reads over a hundred variables, and DEBUG
# or BEAM in someone's shell must not change what a package contains.
_KEEP = (
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONUSERBASE",
    "VIRTUAL_ENV",
)


def environment(request: Request, compiler: Path) -> dict[str, str]:
    """Return the environment of the compiling process.

    MAX_KERNEL_BUFFERS: 0 would mean 31 buffers per kernel on the CPU device; 60 is what its 63 arguments
    allow (tinygrad ``runtime/ops_cpu.py``). CACHELEVEL and CCACHE: tinygrad's disk cache would hide a
    compiler that is not deterministic. THREADS: split kernels would make constants depend on the number of
    CPUs. UNSAFE_ALLOW_JIT_BUFFER: reading while capturing is checked by :mod:`ringfence.compile.plan`
    instead.
    """
    kept = {name: os.environ[name] for name in _KEEP if name in os.environ}
    return kept | {
        "DEV": "CPU",
        "CC": str(compiler),
        "IMAGE": str(int(request.image)),
        "FLOAT16": str(int(request.float16)),
        "MAX_KERNEL_BUFFERS": "60",
        "CACHELEVEL": "0",
        "CCACHE": "0",
        "THREADS": "0",
        "UNSAFE_ALLOW_JIT_BUFFER": "1",
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",
    }


def run(request: Request, progress: ProgressCallback | None) -> None:
    """Run ``request`` in a child process; :class:`CompileError` carries the child's reason."""
    with tempfile.TemporaryDirectory(prefix="ringfence-cc-") as scratch, tempfile.TemporaryFile() as printed:
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb") as reports:
            try:
                child = _start(request, writer, Path(scratch), printed)
            finally:
                os.close(writer)
            try:
                failure = _converse(child, request, reports, progress)
            except BaseException:
                _kill(child)
                raise
        _check(child.wait(), failure, printed, request)


def _start(request: Request, writer: int, scratch: Path, printed: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # -P: a folder named tinygrad where the user happens to be is not what the package index has
        [sys.executable, "-P", "-m", "ringfence.compile.worker", str(writer)],
        stdin=subprocess.PIPE,
        stdout=printed,
        stderr=printed,
        env=environment(request, write_compiler(scratch)),
        pass_fds=(writer,),
        start_new_session=True,
    )


def _converse(
    child: subprocess.Popen[bytes], request: Request, reports: IO[bytes], progress: ProgressCallback | None
) -> Failure | None:
    assert child.stdin is not None
    # A child that ends before it has read anything is reported by its exit status.
    with contextlib.suppress(BrokenPipeError), child.stdin as pipe:
        pipe.write(msgspec.json.encode(request))
    failure = None
    for line in reports:
        report = msgspec.json.decode(line, type=Report)
        if isinstance(report, Failure):
            failure = report
        elif progress is not None:
            progress(report.stage, report.done, report.total)
    return failure


def _kill(child: subprocess.Popen[bytes]) -> None:
    os.killpg(child.pid, signal.SIGKILL)  # with its code-generating children; they share its session
    child.wait()


def _check(status: int, failure: Failure | None, printed: IO[bytes], request: Request) -> None:
    if failure is not None and failure.expected:
        raise CompileError(failure.message)
    if failure is not None:
        raise CompileError(f"{request.model} cannot be compiled: {failure.message}\n{failure.detail}")
    if status:
        printed.seek(0)
        tail = printed.read().decode(errors="replace")[-2000:]
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        raise CompileError(f"the compiler ended with {how} on {request.model}; it printed: {tail}")
