"""Graphs under adversarial order: a virtual GPU that overlaps whatever no barrier keeps apart.

The programs are played by numpy, so that a thousand machines take seconds: ``out = 3 out + 5 x + k`` on
32-bit integers, which shows every change of order. The expected memory comes from doing the same on arrays,
one after the other.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from programs import program

import ringfence as rf
from ringfence.drivers.adreno.copy_programs import copy_program
from ringfence.hardware.adreno.chips import chip_by_name
from ringfence.hardware.adreno.program import AdrenoProgram, Argument
from ringfence.runtime.timeline import Timeline
from ringfence.virtual.machine import Machine

CELLS = 96
COPIES = {copy_program(size, chip_by_name("a630")).code: size for size in (1, 4, 16)}
Array = np.ndarray[Any, np.dtype[np.uint32]]


def step_program() -> AdrenoProgram:
    return program(
        name="step",
        local_size=(64, 1, 1),
        arguments=(
            Argument(kind="buffer", name="out", dtype="uint32", offset=0, written=True),
            Argument(kind="buffer", name="x", dtype="uint32", offset=8),
            Argument(kind="scalar", name="k", dtype="uint32", offset=16, size=4),
            Argument(kind="scalar", name="cells", dtype="uint32", offset=20, size=4),
        ),
    )


def step(out: Array, x: Array, k: int) -> Array:
    return out * np.uint32(3) + x * np.uint32(5) + np.uint32(k)


class Player:
    """Executes ``step`` and the copies of the driver."""

    def prepare(self, dispatches: Iterable[Any]) -> None:
        pass

    def run(self, dispatch: Any, memory: Any) -> None:
        out, x, third, cells = struct.unpack_from("<QQII", dispatch.constants)
        element_bytes = COPIES.get(dispatch.code)
        if element_bytes is not None:
            memory.write(out, memory.read(x, third * element_bytes))
            return
        values = [np.frombuffer(memory.read(address, 4 * cells), np.uint32) for address in (out, x)]
        memory.write(out, step(*values, third).tobytes())


@contextmanager
def opened(seed: int) -> Iterator[rf.Device]:
    with (
        Machine(seed=seed, clock="virtual", executor_factory=Player) as machine,
        rf.open("kgsl", port=machine, timeout=20.0) as device,
    ):
        yield device


# ----- random graphs ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """``out`` and ``x`` are cells of the memory, or ``x`` is the input; no ``k`` means a copy."""

    out: slice
    x: slice | None
    k: int | None
    rebound: bool = False


def random_calls(choose: random.Random) -> list[Call]:
    calls = []
    for _ in range(choose.randint(2, 7)):
        cells = choose.choice((8, 16, 24))
        out, x = (choose.randrange(0, CELLS - cells, 4) for _ in range(2))
        kind = choose.choice(("step", "step", "in place", "input", "copy"))
        source = slice(out, out + cells) if kind == "in place" else slice(x, x + cells)
        if kind != "in place" and abs(out - x) < cells and kind != "input":
            continue  # one launch that overwrites what it reads has no defined result
        if kind == "input":
            calls.append(Call(slice(out, out + cells), None, choose.randrange(100), choose.random() < 0.5))
        else:
            k = None if kind == "copy" else choose.randrange(100)
            calls.append(Call(slice(out, out + cells), source, k, k is not None and choose.random() < 0.3))
    return calls


def size(part: slice) -> int:
    return int(part.stop - part.start)


def capture(device: rf.Device, calls: list[Call], memory: rf.Buffer, frame: rf.Buffer) -> rf.Graph:
    kernel = device.load(step_program())

    def view(part: slice) -> rf.Buffer:
        return memory.offset_view(4 * part.start, 4 * size(part))

    with device.capture() as graph:
        for index, call in enumerate(calls):
            x = rf.Parameter("frame", frame) if call.x is None else view(call.x)
            if call.k is None:
                device.copy(view(call.out), x)
            else:
                k = rf.Parameter(f"k{index}", call.k) if call.rebound else call.k
                device.launch(kernel, view(call.out), x, k, size(call.out), groups=1)
    return graph


def expect(calls: list[Call], memory: Array, frame: Array, scalars: dict[str, int]) -> None:
    """Do the calls on arrays, one after the other."""
    for index, call in enumerate(calls):
        x = frame[: size(call.out)] if call.x is None else memory[call.x]
        k = scalars.get(f"k{index}", call.k)
        memory[call.out] = x if k is None else step(memory[call.out], x, k)


def run_graph(seed: int, instances: int) -> tuple[Array, Array]:
    """Replay a random graph a few times without waiting; return the memory as it is and as it should be."""
    choose = random.Random(seed)
    calls = random_calls(choose)
    with opened(seed) as device:
        start = np.random.default_rng(seed).integers(0, 1 << 32, CELLS, np.uint32)
        frames = np.random.default_rng(seed + 1).integers(0, 1 << 32, (instances + 1, CELLS), np.uint32)
        memory, buffers = device.array(start), [device.array(frame) for frame in frames]
        graph = capture(device, calls, memory, buffers[0])
        if not calls:
            return start, start
        bound, expected = graph.bind(instances=instances), start.copy()
        for frame, buffer in zip(frames, buffers):
            scalars = {name: choose.randrange(100) for name in bound.parameters if name != "frame"}
            inputs = {"frame": buffer} if "frame" in bound.parameters else {}
            bound.replay(inputs, **scalars)
            expect(calls, expected, frame, scalars)
        return memory.numpy(), expected


@pytest.mark.parametrize("block", range(10))
def test_graphs_give_the_results_of_their_launches_in_order(block: int) -> None:
    """A thousand seeds: random graphs, random orders, several replays in flight, inputs changed each time."""
    for seed in range(100 * block, 100 * block + 100):
        memory, expected = run_graph(seed, instances=1 + seed % 2)
        assert (memory == expected).all(), f"seed {seed}"


def test_a_missing_barrier_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.runtime.stream.Stream.barrier", lambda stream: stream)
    results = [run_graph(seed, 1) for seed in range(40)]
    assert sum((memory != expected).any() for memory, expected in results) >= 10


def test_one_missing_barrier_is_caught() -> None:
    """Of ``y = f(x); z = g(y)``, recorded by hand without the barrier, some orders give the wrong result."""
    kernel_k, seen = 7, set()
    for seed in range(16):
        with opened(seed) as device:
            kernel, zero = device.load(step_program()), np.zeros(8, np.uint32)
            x, y, z = device.array(zero + np.uint32(1)), device.array(zero), device.array(zero)
            stream = device.record().dispatch(kernel, (y, x, kernel_k, 8), 1)
            stream.dispatch(kernel, (z, y, 0, 8), 1)
            device.bind(stream).submit()
            seen.add(int(z.numpy()[0]))
    assert seen == {5 * (5 * 1 + kernel_k), 0}


# ----- replays in flight --------------------------------------------------------------------------


def blocked_by(timeline: Timeline) -> Any:
    """The word by which the CPU lets the GPU go on."""
    timeline.submitted = 1
    return timeline._epoch[1].word


@pytest.mark.parametrize("instances", [1, 2, 3])
def test_a_replay_that_follows_a_blocked_one_has_its_own_inputs(instances: int) -> None:
    with opened(instances) as device:
        kernel = device.load(step_program())
        gate = device.timeline("gate")
        total = device.array(np.zeros(8, np.uint32))
        frames = [device.array(np.full(8, value, np.uint32)) for value in (1, 10, 100)]
        with device.capture() as graph:
            graph.wait(gate)
            device.launch(kernel, total, rf.Parameter("x", frames[0]), rf.Parameter("k", 0), 8, groups=1)
        bound = graph.bind(instances=instances)
        word = blocked_by(gate)
        jobs = []
        for index, frame in enumerate(frames):
            if index == instances:  # the next one has to wait for the first
                with pytest.raises(rf.WaitTimeout):
                    device._driver.queue.wait(jobs[0].value, 0.01)
                word[0] = 1
            jobs.append(bound.replay({"x": frame}, k=index))
        if instances == len(frames):
            assert [job.state for job in jobs] == ["submitted"] * 3
            word[0] = 1
        expected = np.uint32(0)
        for index, value in enumerate((1, 10, 100)):
            expected = step(np.array([expected]), np.array([value], np.uint32), index)[0]
        jobs[-1].wait(timeout=5.0)
        assert total.numpy().tolist() == [expected] * 8
