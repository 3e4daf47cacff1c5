"""The port that acknowledges: what it receives is what a GPU would have executed."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ringfence as rf
from ringfence.cli.bench import COUNT, INSTANCES, Scene, scene
from ringfence.virtual.amd.stub import KfdStubPort
from ringfence.virtual.machine import LiveObjects, Machine
from ringfence.virtual.stub import StubPort


@pytest.fixture
def machine() -> Iterator[Machine]:
    with Machine(("a630",)) as opened:
        yield opened
        assert opened.live_objects() == LiveObjects()


def work(made: Scene) -> list[np.ndarray]:
    """Everything that the benchmarks time, a few times; return the results in between."""
    results = []
    for a in (*made.inputs, made.inputs[0]):
        made.launch(a).wait()
        results.append(made.c.numpy())
    for nodes, readers in ((10, "one"), (40, "all")):
        bound, result = made.graph(nodes, readers)
        for turn in range(3):
            jobs = [bound.replay({"x": made.inputs[(turn + k) % 2]}) for k in range(INSTANCES)]
            jobs[-1].wait()
            results.append(result.numpy())
        bound.free()
    return results


STUBS = {"kgsl": ("a630", StubPort), "kfd": ("gfx1100", KfdStubPort)}


@pytest.mark.parametrize("interface", STUBS)
def test_it_receives_dword_for_dword_what_an_executed_and_checked_run_submits(interface: str) -> None:
    pytest.importorskip("llvmlite")
    chip, stub = STUBS[interface]
    received: list[list[Any]] = []
    for execute in (True, False):
        with Machine((chip,)) as machine:
            port = stub(machine, execute=execute, record=True)
            with scene(port, interface) as made:
                results = work(made)
            received.append(port.received)
            if execute:
                assert [set(result) for result in results] == [
                    {1.0}, {11.0}, {1.0},
                    {20.0}, {10.0}, {20.0},
                    {410.0}, {0.0}, {410.0},
                ]  # fmt: skip
    executed, acknowledged = received
    assert len(executed) == 3 + 2 * 3 * INSTANCES
    assert acknowledged == executed
    if interface == "kgsl":
        assert all(each.words and each.loaded for each in executed)
    else:
        assert all(each.words and each.arguments for each in executed)


def test_a_changed_argument_changes_what_is_received(machine: Machine) -> None:
    port = StubPort(machine, record=True)
    with scene(port) as made:
        for a in made.inputs:
            made.launch(a)
    first, second = port.received
    assert first.loaded != second.loaded


def test_every_submission_counts_as_complete_at_once(machine: Machine) -> None:
    port = StubPort(machine)
    with scene(port) as made:
        jobs = [made.launch(made.inputs[0]) for _ in range(100)]
        assert {job.state for job in jobs} == {rf.State.GPU_COMPLETE}
        jobs[-1].wait(timeout=0.0)
        assert port.submissions == 100
        assert made.c.numpy().tolist() == [0.0] * COUNT, "nothing was executed"


def test_the_kernels_errors_are_still_there() -> None:
    with Machine(memory_bytes=64 << 20) as machine:
        port = StubPort(machine)
        with pytest.raises(rf.PortError, match="ENOENT"):
            port.open("/dev/none")
        with scene(port) as made, pytest.raises(rf.PortError, match="ENOMEM"):
            made.device.empty(128 << 20, np.uint8)


def test_replays_leave_nothing_behind(machine: Machine) -> None:
    with scene(StubPort(machine)) as made:
        bound, _ = made.graph(20, "all")

        def replay(count: int) -> None:
            for index in range(count):
                bound.replay({"x": made.inputs[index % 2]})
                made.launch(made.inputs[index % 2])

        replay(100)
        before = made.device.memory_bytes, made.device.mapping_count
        gc.collect()
        tracemalloc.start()
        replay(100)
        gc.collect()
        settled = tracemalloc.get_traced_memory()[0]
        replay(2000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - settled
        tracemalloc.stop()
        assert (made.device.memory_bytes, made.device.mapping_count) == before
        assert grown < 4096
