"""How fast the virtual A630 runs kernels that tinygrad compiles, beside pocl and onnxruntime on the same CPU.

A time is the shortest of a run of all kernels of a case, launches by the executor included. pocl runs the
same computation as plain OpenCL C with the same work-groups and vector accesses (``a630_kernels.py``),
onnxruntime the operator that ONNX has for it. Either runs on as many threads as ours. Every result, the
peers' too, is compared with float64. Rates are those of one thread, by its CPU time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from a630_kernels import Array, Case, cases

from ringfence.cli.bench import Row
from ringfence.compile.kernels import CompiledKernel, compile_tinygrad
from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.virtual import run_ir3
from ringfence.virtual.isa.ir3.executor import Executor
from ringfence.virtual.memory import AddressSpace

PEER = Path(__file__).resolve().parent / "opencl_peer.py"
PREFIX = "a630."
SECONDS, QUICK_SECONDS = 2.0, 0.3
BASE, PAGE = 0x1000_0000, 0x1000


class Options(Protocol):
    """What :func:`rows` is told: measure briefly."""

    quick: bool


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: on the clock, and of the calling thread on a CPU."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Times:
    """Times by number of threads; a peer that is not installed has none."""

    fast: dict[int, Timing]
    strict: dict[int, Timing]
    pocl: dict[int, float]
    onnxruntime: dict[int, float]


class Scene:
    """The kernels of a case and their arrays at GPU addresses."""

    def __init__(self, case: Case) -> None:
        self.case = case
        kernels = compile_tinygrad(case.expression, *case.shapes)
        self.arrays: dict[str, Array] = dict(case.inputs)
        self.arrays["out"] = np.zeros(case.wanted.size, np.float32)
        for kernel in kernels:
            self.arrays |= {n: np.zeros(size // 4, np.float32) for n, size in kernel.temporaries.items()}
        self.space = AddressSpace()
        self.addresses: dict[str, int] = {}
        address = BASE
        for name, array in self.arrays.items():
            self.space.map(address, array.nbytes, array.ctypes.data, label=name)
            self.addresses[name] = address
            address += -(-array.nbytes // PAGE) * PAGE + PAGE
        self._launches = [self._launch(kernel) for kernel in kernels]

    def _launch(self, kernel: CompiledKernel) -> dict[str, Any]:
        """Return the arguments of :func:`run_ir3` for a kernel."""
        program = kernel.program
        assert isinstance(program, AdrenoProgram)
        file = bytearray(max(argument.offset for argument in program.arguments) + 8)
        for argument, name in zip(program.arguments, kernel.arguments, strict=True):
            file[argument.offset : argument.offset + 8] = self.addresses[name].to_bytes(8, "little")
        return {
            "program": program,
            "groups": kernel.groups,
            "local": kernel.local,
            "constants": bytes(file),
            "memory": self.space,
        }

    def run(self, executor: Executor) -> None:
        """Run all kernels once."""
        for launch in self._launches:
            run_ir3(executor=executor, **launch)

    def best(self, seconds: float, threads: int) -> tuple[Timing, Timing]:
        """Return the shortest times of a run in fast and in strict mode, which take turns.

        First runs, which translate, do not count; their results must be right, and the same in both modes.
        """
        executors = [Executor(strict=strict, threads=threads) for strict in (False, True)]
        results = [self._checked(executor) for executor in executors]
        if results[0] != results[1]:
            raise AssertionError(f"{self.case.name}: fast and strict mode differ")
        fast, strict = _best([lambda e=e: self.run(e) for e in executors], 2 * seconds)  # type: ignore[misc]
        for executor in executors:
            executor.close()
        return fast, strict

    def _checked(self, executor: Executor) -> bytes:
        """Run, check the result and return it."""
        out = self.arrays["out"]
        out[...] = np.nan
        self.run(executor)
        _check(self.case.name, self.case, out)
        return out.tobytes()

    def instructions(self) -> float:
        """Return the number of instructions of a wave of 64 that a run executes."""
        executor = Executor(strict=False, count=True)
        self.run(executor)
        executor.close()
        return executor.instructions


def _best(calls: Sequence[Callable[[], object]], seconds: float) -> list[Timing]:
    """Return the shortest times of each call; they take turns."""
    rounds: list[list[Timing]] = []
    end = time.perf_counter() + seconds
    while len(rounds) < 3 or time.perf_counter() < end:
        rounds.append([_timing(call) for call in calls])
    return [
        Timing(min(timing.wall for timing in taken), min(timing.cpu for timing in taken))
        for taken in zip(*rounds, strict=True)
    ]


def _timing(call: Callable[[], object]) -> Timing:
    wall, cpu = time.perf_counter(), time.thread_time()
    call()
    return Timing(time.perf_counter() - wall, time.thread_time() - cpu)


def _check(what: str, case: Case, result: Array) -> None:
    _check_error(what, case, case.error(result))


def _check_error(what: str, case: Case, error: float) -> None:
    # Written so that NaN fails, too.
    if not error <= case.tolerance:
        raise AssertionError(f"{what}: relative error {error:.1e}, allowed are {case.tolerance:.0e}")


def rows(options: Options) -> list[Row]:
    """Measure all kernels; raises ``AssertionError`` where a result is wrong."""
    seconds = QUICK_SECONDS if options.quick else SECONDS
    return [row for case in cases().values() for row in _measured(case, seconds)]


def _measured(case: Case, seconds: float) -> Iterator[Row]:
    counts = sorted({1, os.cpu_count() or 1})
    scene = Scene(case)
    own = {n: scene.best(seconds, n) for n in counts}
    times = Times(
        fast={n: fast for n, (fast, _) in own.items()},
        strict={n: strict for n, (_, strict) in own.items()},
        pocl=_by_threads(counts, lambda n: pocl(case, seconds, n)),
        onnxruntime=_by_threads(counts, lambda n: onnxruntime(case, seconds, n)),
    )
    error = case.error(scene.arrays["out"])
    yield from _rows(case, times, scene.instructions(), error)


def _by_threads(counts: list[int], measure: Callable[[int], float | None]) -> dict[int, float]:
    found = {n: measure(n) for n in counts}
    return {n: seconds for n, seconds in found.items() if seconds is not None}


def _rows(case: Case, times: Times, instructions: float, error: float) -> Iterator[Row]:
    """Yield the rows of a case: against each peer on one core and on all, strict mode, the rate."""
    name = PREFIX + case.name
    for n, timing in times.fast.items():
        fast = timing.wall
        cores = "" if n == 1 else f".cores{n}"
        where = "1 core" if n == 1 else f"{n} cores"
        speed = f"{case.work / fast / 1e9:.1f} G{case.work_unit}/s"
        note = f"{where}, fast; {speed}; relative error {error:.0e}; peer: pocl, same work-groups"
        yield _row(name + cores, fast, times.pocl.get(n), note)
        theirs = times.onnxruntime.get(n)
        note = f"{where}, fast; peer: onnxruntime {case.operator}"
        yield _row(f"{name}{cores}.onnxruntime", fast, theirs, note)
        strict = times.strict[n].wall
        note = f"{where}, strict: {strict / fast:.2f} times fast mode's"
        yield _row(f"{name}{cores}.strict", strict, None, note)
    rate, slower = (instructions / by_threads[1].cpu / 1e6 for by_threads in (times.fast, times.strict))
    count = f"{instructions / 1e6:.2f} M wave-64 instructions"
    note = f"{count}, fast; strict {slower:.0f} M/s: takes {rate / slower:.2f} times as long"
    yield Row(f"{name}.rate", rate, None, None, "M/s", note)


def _row(name: str, ours: float, peer: float | None, note: str) -> Row:
    ratio = None if peer is None else peer / ours
    return Row(name, ours * 1e3, None if peer is None else peer * 1e3, ratio, "ms", note)


# ----- peers --------------------------------------------------------------------------------------


def pocl(case: Case, seconds: float, threads: int) -> float | None:
    """Return the shortest time of pocl's run, ``None`` if it is not installed."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "POCL_MAX_PTHREAD_COUNT": str(threads), "POCL_CACHE_DIR": cache}
        command = [sys.executable, str(PEER), case.name, str(seconds)]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"pocl failed on {case.name}:\n{result.stderr}")
    answer = json.loads(result.stdout)
    if "absent" in answer:
        return None
    _check_error(f"pocl's {case.name}", case, answer["error"])
    return float(answer["seconds"])


def onnxruntime(case: Case, seconds: float, threads: int) -> float | None:
    """Return the shortest time of a one-operator model, ``None`` without onnx and onnxruntime."""
    try:
        import onnxruntime as ort
        from onnx import TensorProto, helper
    except ImportError:
        return None
    kind = TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info(n, kind, a.shape) for n, a in case.inputs.items()]
    output = helper.make_tensor_value_info("out", kind, case.wanted.shape)
    node = helper.make_node(case.operator, list(case.inputs), ["out"], **case.attributes)
    graph = helper.make_graph([node], case.name, inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    code, providers = model.SerializeToString(), ["CPUExecutionProvider"]
    session: Any = ort.InferenceSession(code, settings, providers=providers)
    binding = session.io_binding()
    result = np.zeros(case.wanted.shape, np.float32)
    for name, array in case.inputs.items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("out", "cpu", 0, np.float32, result.shape, result.ctypes.data)
    session.run_with_iobinding(binding)
    _check(f"onnxruntime's {case.name}", case, result)
    return _best([lambda: session.run_with_iobinding(binding)], seconds)[0].wall
