"""Graphs: where barriers stand, and what capturing and replaying refuse."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from runtime_fakes import FakeBackend, FakeCompletion, FakePort, Slots

from ringfence.errors import LaunchError
from ringfence.runtime.device import Geometry
from ringfence.runtime.graph import Graph, _Spans
from ringfence.runtime.memory import Buffer, Memory, span
from ringfence.runtime.queue import Queue, State
from ringfence.runtime.stream import Access, Dispatch, Parameter
from ringfence.runtime.timeline import ClockMap, Timeline

READ, WRITE = "read", "write"


@dataclass
class Kernel:
    """A program as far as a graph cares: for each argument whether it is written."""

    written: tuple[bool, ...]
    label: str = "kernel"


@dataclass
class FakeDriver:
    """Prepares dispatches; memory is the heap's."""

    backend: FakeBackend = field(default_factory=FakeBackend)

    def __post_init__(self) -> None:
        self.memory = Memory(self.backend, FakeCompletion(), threading.RLock())
        timeline = Timeline(Slots(), domain=self)
        port: Any = FakePort()
        self.queue = Queue(port, None, timeline, ClockMap(1.0), threading.RLock(), timeout=1.0, label="gpu")  # type: ignore[arg-type]
        self.domain = self

    def prepare(self, program: Kernel, args: Sequence[Any], **_: Any) -> Dispatch:
        accesses = tuple(
            Access(value.default, written, value.name)
            if isinstance(value, Parameter)
            else Access(value, written)
            for value, written in zip(args, program.written)
        )
        return Dispatch(program, tuple(args), Geometry((1, 1, 1), (1, 1, 1)), (), accesses)

    def prepare_copy(self, destination: Any, source: Any, nbytes: int | None = None) -> Dispatch:
        return self.prepare(Kernel((True, False)), (destination, source))

    def buffer(self, nbytes: int = 64, label: str = "") -> Buffer:
        return Buffer(self.memory, self.memory.allocate(nbytes, label=label))


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def graph(driver: FakeDriver) -> Graph:
    return Graph(driver, "net")  # type: ignore[arg-type]


def launch(graph: Graph, *, write: Sequence[Any] = (), read: Sequence[Any] = ()) -> bool:
    """Capture a launch; return whether a barrier stands before it."""
    kernel = Kernel((*[True] * len(write), *[False] * len(read)))
    graph.launch(kernel, (*write, *read))
    return graph.nodes[-1].barrier


# ----- hazards ------------------------------------------------------------------------------------


def test_launches_on_different_memory_need_no_barrier(driver: FakeDriver, graph: Graph) -> None:
    a, b, c, d = (driver.buffer() for _ in range(4))
    assert not launch(graph, write=[b], read=[a])
    assert not launch(graph, write=[d], read=[c])


def test_a_reader_waits_for_the_writer(driver: FakeDriver, graph: Graph) -> None:
    a, b, c = (driver.buffer() for _ in range(3))
    launch(graph, write=[b], read=[a])
    assert launch(graph, write=[c], read=[b])


def test_a_writer_waits_for_readers_and_writers(driver: FakeDriver, graph: Graph) -> None:
    a, b, c = (driver.buffer() for _ in range(3))
    launch(graph, write=[b], read=[a])
    assert launch(graph, write=[a], read=[c])
    assert launch(graph, write=[a])


def test_readers_of_the_same_bytes_do_not_wait_for_each_other(driver: FakeDriver, graph: Graph) -> None:
    a, b, c = (driver.buffer() for _ in range(3))
    launch(graph, write=[b], read=[a])
    assert not launch(graph, write=[c], read=[a])


def test_updates_in_place_follow_each_other(driver: FakeDriver, graph: Graph) -> None:
    a = driver.buffer()
    assert not launch(graph, write=[a], read=[a]), "a launch does not wait for itself"
    assert launch(graph, write=[a], read=[a])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((0, 32), (16, 32), True),
        ((0, 32), (31, 1), True),
        ((0, 32), (32, 32), False),
        ((8, 8), (0, 64), True),
    ],
)
def test_views_count_by_their_bytes(
    driver: FakeDriver, graph: Graph, first: tuple[int, int], second: tuple[int, int], expected: bool
) -> None:
    a, b = driver.buffer(), driver.buffer()
    launch(graph, write=[a.offset_view(*first)])
    assert launch(graph, write=[b], read=[a.offset_view(*second)]) is expected


def test_memory_that_was_imported_twice_is_the_same_memory(driver: FakeDriver, graph: Graph) -> None:
    array = np.zeros(64, np.uint8)
    once, again = (Buffer(driver.memory, driver.memory.import_host(array.ctypes.data, 64)) for _ in range(2))
    assert once.gpu_address != again.gpu_address and span(once) == span(again)
    launch(graph, write=[once])
    assert launch(graph, write=[driver.buffer()], read=[again.offset_view(60)])


def test_one_barrier_serves_everything_before_it(driver: FakeDriver, graph: Graph) -> None:
    a, b, c, d = (driver.buffer() for _ in range(4))
    launch(graph, write=[a])
    launch(graph, write=[b])
    assert launch(graph, write=[c], read=[a])
    assert not launch(graph, write=[d], read=[b])
    assert graph.barriers == 1


def test_copies_are_nodes_like_launches(driver: FakeDriver, graph: Graph) -> None:
    a, b, c = (driver.buffer() for _ in range(3))
    graph.copy(b, a)
    graph.copy(c, b)
    assert [node.barrier for node in graph.nodes] == [False, True]


def test_a_launch_after_a_wait_sees_what_others_wrote(driver: FakeDriver, graph: Graph) -> None:
    timeline = Timeline(Slots(), domain=driver)
    a, b = driver.buffer(), driver.buffer()
    launch(graph, write=[a])
    graph.wait(timeline)
    assert launch(graph, write=[b])
    assert not launch(graph, write=[driver.buffer()])


def test_a_signal_is_a_node_that_changes_no_barrier(driver: FakeDriver, graph: Graph) -> None:
    a, b = driver.buffer(), driver.buffer()
    launch(graph, write=[a])
    graph.signal(Timeline(Slots(), domain=driver))
    assert launch(graph, write=[b], read=[a])
    assert [node.barrier for node in graph.nodes] == [False, False, True]


# Random programs of launches (written ranges, read ranges) over a hundred bytes.
Launches = list[tuple[list[tuple[int, int]], list[tuple[int, int]]]]


def random_launches(seed: int) -> Launches:
    choose = random.Random(seed)

    def ranges(most: int) -> list[tuple[int, int]]:
        starts = [choose.randrange(90) for _ in range(choose.randint(0, most))]
        return [(start, choose.randint(1, min(40, 100 - start))) for start in starts]

    return [(ranges(1), ranges(2)) for _ in range(choose.randint(2, 12))]


def dependent(before: tuple[Any, Any], after: tuple[Any, Any]) -> bool:
    """By definition: some byte is used by both and written by one."""

    def used(ranges: list[tuple[int, int]]) -> set[int]:
        return {byte for start, size in ranges for byte in range(start, start + size)}

    (w1, r1), (w2, r2) = before, after
    return bool(used(w1) & used(w2 + r2) or used(w2) & used(w1 + r1))


def fewest_barriers(launches: Launches) -> int:
    """The least number of barriers, by looking at every way to cut the list into independent groups."""
    best = [0]
    for end in range(1, len(launches) + 1):
        costs = []
        for begin in range(end - 1, -1, -1):
            group = launches[begin:end]
            if any(dependent(a, b) for i, b in enumerate(group) for a in group[:i]):
                break
            costs.append(best[begin] + (begin > 0))
        best.append(min(costs))
    return best[-1]


@pytest.mark.parametrize("seed", range(200))
def test_barriers_are_enough_and_as_few_as_can_be(seed: int) -> None:
    driver = FakeDriver()
    graph, memory = Graph(driver), driver.buffer(100)  # type: ignore[arg-type]
    launches = random_launches(seed)
    for written, read in launches:
        views = [[memory.offset_view(*r) for r in ranges] for ranges in (written, read)]
        launch(graph, write=views[0], read=views[1])
    marks = [node.barrier for node in graph.nodes]
    for after, b in enumerate(launches):
        for before, a in enumerate(launches[:after]):
            assert not dependent(a, b) or any(marks[before + 1 : after + 1])
    assert graph.barriers == fewest_barriers(launches)


@pytest.mark.parametrize("seed", range(50))
def test_sets_of_bytes_behave_like_sets(seed: int) -> None:
    choose, spans, model = random.Random(seed), _Spans(), set()
    for _ in range(40):
        start = choose.randrange(100)
        end = start + choose.randint(1, 20)
        assert spans.overlaps(start, end) == any(byte in model for byte in range(start, end))
        if choose.random() < 0.5:
            spans.add(start, end)
            model.update(range(start, end))
        ranges = list(zip(spans._starts, spans._ends))
        assert all(before[1] < after[0] for before, after in pairwise(ranges)), "ranges do not touch"


# ----- capturing ----------------------------------------------------------------------------------


def test_what_is_captured_is_encoded_but_not_submitted(driver: FakeDriver, graph: Graph) -> None:
    job = graph.launch(Kernel((True,), "scale"), (driver.buffer(),))
    assert job.state is State.ENCODED and job.label == "scale"
    with pytest.raises(LaunchError, match="'scale' was not submitted"):
        job.wait()


def test_a_parameter_that_is_a_buffer_needs_a_default(driver: FakeDriver, graph: Graph) -> None:
    with pytest.raises(LaunchError, match=r"graph 'net', 'kernel': parameter 'x' needs a default buffer"):
        launch(graph, write=[driver.buffer()], read=[Parameter("x")])
    assert graph.nodes == []


def test_a_parameter_counts_as_its_default(driver: FakeDriver, graph: Graph) -> None:
    a, b = driver.buffer(), driver.buffer()
    launch(graph, write=[a])
    assert launch(graph, write=[b], read=[Parameter("x", a)])


def test_waits_and_signals_are_checked_like_those_of_a_stream(driver: FakeDriver, graph: Graph) -> None:
    far, half = Timeline(Slots(), domain="elsewhere", label="far"), Timeline(Slots(), domain=driver)
    for record in (graph.wait, graph.signal):
        with pytest.raises(LaunchError, match="'net': timeline 'far' lives in memory"):
            record(far)
    with pytest.raises(LaunchError, match="at its end"):
        graph.signal(driver.queue.timeline)
    graph.signal(half)
    with pytest.raises(LaunchError, match="already signals"):
        graph.signal(half)
    assert [node.label for node in graph.nodes] == ["signal"]


def test_a_graph_is_bound_when_its_capture_has_ended_and_not_empty(driver: FakeDriver, graph: Graph) -> None:
    with pytest.raises(LaunchError, match="still being captured"):
        graph.bind()
    graph.finished = True
    with pytest.raises(LaunchError, match="is empty"):
        graph.bind()
    with pytest.raises(LaunchError, match="its capture has ended"):
        launch(graph, write=[driver.buffer()])
