"""The compiling process: ``python -m ringfence.compile.worker FD`` reads one request from stdin, reports
to FD.

tinygrad reads its settings from the environment when it is imported and keeps global state, hence a
process of its own with a clean environment (:mod:`ringfence.compile.process`).
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec

from ringfence.compile.request import Failure, Progress, Report, Request
from ringfence.errors import CompileError

ReportProgress = Callable[[str, int, int], None]


def main(descriptor: int) -> int:
    """Run the request on stdin; return the exit status."""
    with os.fdopen(descriptor, "wb") as pipe:

        def send(report: Report) -> None:
            pipe.write(msgspec.json.encode(report) + b"\n")
            pipe.flush()

        try:
            request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
            _run(request, lambda stage, done, total: send(Progress(stage, done, total)))
        except CompileError as error:
            send(Failure(str(error), expected=True))
            return 1
        except ModuleNotFoundError as error:
            message = f"compiling needs the package {error.name}, which is not installed"
            send(Failure(f"{message}; install ringfence[compile]", expected=True))
            return 1
        except Exception as error:
            send(Failure(f"{type(error).__name__}: {error}", expected=False, detail=traceback.format_exc()))
            return 1
    return 0


def _run(request: Request, progress: ReportProgress) -> None:
    progress("import", 0, 1)
    from ringfence.compile import build  # tinygrad: only now, the environment is as it must be

    model = Path(request.model)
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    with tempfile.TemporaryDirectory(prefix="ringfence-") as scratch:
        job = build.prepare(request, digest, Path(scratch), progress)
        if request.action == "compile":
            build.compile_package(job, progress)
        else:
            build.run_reference(job)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
