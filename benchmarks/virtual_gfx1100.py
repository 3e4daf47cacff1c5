"""How fast the virtual gfx1100 runs kernels compiled from OpenCL C, beside tinygrad's RDNA3 emulator.

The unit is a million wave instructions a second of processor time on one core, counted in an untimed run. The
peer runs the same code objects in the same run, if the checkout of tinygrad is given; since it is slow, only
a few work-groups. All results are compared with numpy.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import gfx1100_kernels as kernels

from ringfence.cli.bench import Row
from ringfence.compile.host_cc import write_compiler
from ringfence.virtual.isa.rdna.executor import Executor

HERE = Path(__file__).resolve().parent
PEER = HERE / "tinygrad_gfx1100.py"
PREFIX = "gfx1100."
BEST_OF = "blocked"  # the variant that stands for the product of its size
SECONDS, QUICK_SECONDS = 2.0, 0.5
UNIT = "M/s"


class Options(Protocol):
    """What :func:`rows` is told: measure briefly, and the path of tinygrad's checkout or ``None``."""

    quick: bool
    tinygrad: str | None


@dataclass(frozen=True, slots=True)
class Figures:
    """What a case took: ``instructions`` of waves, in ``fast`` and ``strict`` seconds."""

    instructions: int
    fast: float
    strict: float


def rows(options: Options) -> list[Row]:
    """Measure all kernels; raises ``AssertionError`` where a result is wrong."""
    seconds = QUICK_SECONDS if options.quick else SECONDS
    found = []
    with Peer(options.tinygrad) as peer:
        for name, make in kernels.cases().items():
            case = make()
            row = _row(case, _figures(case, seconds), peer)
            found.append(row)
            size, _, variant = name.partition(".")
            if variant == BEST_OF:
                found.append(Row(PREFIX + size, row.ours, row.peer, row.ratio, row.unit, f"as .{BEST_OF}"))
    return found


def _figures(case: kernels.Case, seconds: float) -> Figures:
    instructions = _count(case, case.groups)
    times = {strict: _best(case, strict, seconds) for strict in (False, True)}
    return Figures(instructions, times[False], times[True])


def _count(case: kernels.Case, groups: kernels.Size) -> int:
    """Return the instructions that waves execute in a grid."""
    executor = Executor(count=True)
    case.run(executor, groups)
    executor.close()
    return executor.instructions


def _best(case: kernels.Case, strict: bool, seconds: float) -> float:
    """Return the shortest time of a run on one thread; the first one, which translates, does not count."""
    executor = Executor(strict=strict, threads=1)
    case.arrays[-1][...] = 0
    case.run(executor)
    case.check()
    end = time.perf_counter() + seconds
    times: list[float] = []
    while len(times) < 3 or time.perf_counter() < end:
        times.append(_seconds(lambda: case.run(executor)))
    executor.close()
    return min(times)


def _seconds(call: Callable[[], object]) -> float:
    """Return the processor time of a call, which does not count what others take from a busy machine."""
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def _row(case: kernels.Case, figures: Figures, peer: Peer) -> Row:
    rate = figures.instructions / figures.fast / 1e6
    notes = [
        f"{case.operations / figures.fast / 1e9:.2f} GFLOP/s",
        f"strict {figures.instructions / figures.strict / 1e6:.0f} {UNIT}",
        f"{figures.instructions / 1e6:.2f} M wave instructions",
    ]
    theirs = peer.seconds(case)
    if theirs is None:
        return Row(PREFIX + case.name, rate, None, None, UNIT, "; ".join(notes))
    few = _count(case, case.few)
    groups = case.few[0] * case.few[1] * case.few[2]
    total = case.groups[0] * case.groups[1] * case.groups[2]
    other = few / theirs / 1e6
    notes.append(f"tinygrad's emulator ran {groups} of {total} groups")
    return Row(PREFIX + case.name, rate, other, rate / other, UNIT, "; ".join(notes))


class Peer:
    """tinygrad's emulator in a process of its own; without a checkout there is no answer."""

    def __init__(self, checkout: str | None) -> None:
        self._process: subprocess.Popen[str] | None = None
        if not checkout:
            return
        if not (Path(checkout) / "tinygrad").is_dir():
            raise SystemExit(f"{checkout} is no checkout of tinygrad: it has no folder tinygrad")
        self._scratch = tempfile.TemporaryDirectory()
        environment = {
            **{name: value for name, value in os.environ.items() if name != "DEV"},
            "PYTHONPATH": os.pathsep.join(filter(None, [checkout, os.environ.get("PYTHONPATH", "")])),
            "CC": str(write_compiler(Path(self._scratch.name))),
        }
        self._process = subprocess.Popen(
            [sys.executable, PEER],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def seconds(self, case: kernels.Case) -> float | None:
        """Return how long the emulator takes for the small grid of a case."""
        if self._process is None:
            return None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{case.name}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"tinygrad's emulator ended while it ran {case.name}")
        answer = json.loads(line)
        if not answer["agree"]:
            raise AssertionError(f"tinygrad's emulator and ringfence disagree about {case.name}")
        return float(answer["seconds"])

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(30)
            self._scratch.cleanup()
