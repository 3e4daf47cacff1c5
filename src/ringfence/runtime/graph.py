"""Graphs: what a device was asked to do, captured once and replayed.

While a device is captured, launches, copies and waits are recorded instead of submitted. A node waits for
earlier ones only where their bytes demand it: a barrier stands before a node that reads what a node since the
last barrier wrote, or writes what one read or wrote. For a fixed order of nodes this puts as few barriers as
there can be. A bound graph is a bound stream (:mod:`ringfence.runtime.stream`) with these barriers.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ringfence.errors import LaunchError
from ringfence.runtime.memory import Buffer, Ownership, span
from ringfence.runtime.memory import Mapping as MemoryMapping
from ringfence.runtime.queue import Submission
from ringfence.runtime.stream import (
    Access,
    BoundStream,
    Dispatch,
    Operation,
    Parameter,
    Stream,
    StreamDriver,
)
from ringfence.runtime.timeline import Point, Timeline

MAX_KNOWN_ASSIGNMENTS = 256


@dataclass(frozen=True, slots=True)
class Node:
    """One thing that a graph does. ``barrier``: it waits for everything since the last such node."""

    label: str
    operation: Operation
    accesses: tuple[Access, ...] = ()
    barrier: bool = False


class Graph:
    """What was captured; ``dev.capture()`` makes one.

    >>> import numpy as np, ringfence as rf
    >>> with rf.open("virtual:a630") as dev:
    ...     x, y, z = (dev.zeros(16, np.float32) for _ in range(3))
    ...     with dev.capture() as graph:
    ...         _ = dev.copy(y, rf.Parameter("x", x))
    ...         _ = dev.copy(z, y)
    ...     bound = graph.bind(instances=2)
    ...     frame = dev.array(np.ones(16, np.float32))
    ...     bound.replay(inputs={"x": frame}).wait(timeout=1.0)
    ...     print([node.barrier for node in graph.nodes], z.numpy()[0])
    [False, True] 1.0
    """

    def __init__(self, driver: StreamDriver, label: str = "") -> None:
        self.label = label
        self.nodes: list[Node] = []
        self.finished = False
        self._driver = driver
        self._stream = Stream(driver, label)
        self._hazards = _Hazards()
        self._acquire = False

    # ----- capturing ------------------------------------------------------------------------------

    def launch(
        self,
        program: Any,
        args: Sequence[Any],
        *,
        groups: Any = None,
        global_size: Any = None,
        local: Any = None,
        label: str | None = None,
    ) -> Submission:
        """Record a launch; return a submission that is only encoded. :class:`LaunchError` on bad input.

        An argument that is a :class:`Parameter` with a default can be given anew at each replay.
        """
        self._stream.dispatch(program, args, groups, local, global_size=global_size)
        return self._add(program.label if label is None else label)

    def copy(self, destination: Buffer | Parameter, source: Buffer | Parameter) -> Submission:
        """Record a copy between buffers of the device; :class:`LaunchError` if a kernel cannot do it."""
        self._stream.copy(destination, source)
        return self._add("copy")

    def wait(self, target: Point | Timeline) -> None:
        """Record: nodes after this one start only when ``target`` is reached (see
        :class:`~ringfence.runtime.stream.Wait`), and see what was written before.
        """
        self._stream.wait(target)
        self._add("wait")
        self._acquire = True

    def signal(self, target: Timeline) -> None:
        """Record: signal the next point of ``target`` once every node before is finished."""
        self._stream.signal(target)
        self._add("signal")

    def _add(self, label: str) -> Submission:
        """Make a node of what the stream, which checks it, has just recorded."""
        operation = self._stream.operations[-1]
        accesses: tuple[Access, ...] = ()
        if isinstance(operation, Dispatch):
            operation, accesses = replace(operation, label=label), operation.accesses
        if self.finished:
            raise LaunchError(f"graph {self.label!r}: its capture has ended")
        for access in accesses:
            if access.buffer is None:
                raise LaunchError(
                    f"graph {self.label!r}, {label!r}: parameter {access.parameter!r} needs a default buffer "
                    "in a graph: it shows where barriers are needed"
                )
        uses = [_Use.of(access) for access in accesses]
        barrier = bool(uses) and (self._acquire or self._hazards.conflict(uses))
        if barrier:
            self._hazards.clear()
            self._acquire = False
        self._hazards.add(uses)
        self.nodes.append(Node(label, operation, accesses, barrier))
        return Submission(self._driver.queue, self._driver.memory, self._driver.queue.now(), (), label)

    # ----- using ----------------------------------------------------------------------------------

    @property
    def barriers(self) -> int:
        """Return how many barriers the nodes need."""
        return sum(node.barrier for node in self.nodes)

    def bind(self, *, instances: int = 1, timestamps: bool = False, label: str | None = None) -> BoundGraph:
        """Put the graph into device memory, ready to be replayed.

        ``instances`` replays can be in flight at once. With ``timestamps`` each node is timed (see
        :meth:`BoundGraph.node_seconds`), which makes the nodes run one after the other. Private memory that
        the programs need is reserved now. Everything that the graph uses stays alive and mapped as long as
        the result does. :class:`LaunchError` if something was freed meanwhile.
        """
        if not self.finished:
            raise LaunchError(f"graph {self.label!r} is still being captured: bind it after the with block")
        if not self.nodes:
            raise LaunchError(f"graph {self.label!r} is empty: nothing was launched while it was captured")
        return BoundGraph(self._driver, self, instances, timestamps, self.label if label is None else label)

    def __repr__(self) -> str:
        return f"<Graph {self.label!r}: {len(self.nodes)} nodes, {self.barriers} barriers>"


class BoundGraph:
    """A graph in device memory; :meth:`Graph.bind` makes one."""

    def __init__(
        self, driver: StreamDriver, graph: Graph, instances: int, timestamps: bool, label: str
    ) -> None:
        self.nodes = tuple(graph.nodes)
        self.label = label
        self._timestamps = timestamps
        self._timed: weakref.WeakSet[Submission] = weakref.WeakSet()
        self._aliases = _Aliases(self.nodes, label)
        stream = Stream(driver, label)
        for index, node in enumerate(self.nodes):
            if node.barrier:
                stream.barrier()
            stream.operations.append(node.operation)
            if timestamps:
                stream.timestamp(index)
        guard = self._aliases.check if self._aliases.names else None
        self.stream: BoundStream = driver.bind(stream, instances=instances, guard=guard)
        """What the graph was bound as."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names that :meth:`replay` takes."""
        return self.stream.parameters

    @property
    def instances(self) -> int:
        """Return how many replays can be in flight at once."""
        return self.stream.instances

    def replay(
        self, inputs: Mapping[str, Any] | None = None, *, label: str | None = None, **scalars: Any
    ) -> Submission:
        """Submit the graph once more; return the submission.

        ``inputs`` and ``scalars`` give buffers and numbers by the names of the graph's parameters; what is
        left out has its default. A replay that is still running is not disturbed: this one takes another
        instance, and waits, with the device's default deadline, only if all of them are in flight.

        :class:`LaunchError` for a value that does not fit, or a buffer that shares bytes with others of the
        graph in a way that no barrier was captured for; :class:`DeviceLost`, :class:`PortError`.
        """
        given = scalars if not inputs else self._merge(inputs, scalars) if scalars else inputs
        job = self.stream.submit_with(given, label)
        if self._timestamps:
            self._timed.add(job)
        return job

    def _merge(self, inputs: Mapping[str, Any], scalars: Mapping[str, Any]) -> Mapping[str, Any]:
        twice = sorted(inputs.keys() & scalars.keys())
        if twice:
            names = ", ".join(map(repr, twice))
            raise LaunchError(f"graph {self.label!r}: {names} given twice, in inputs= and as a keyword")
        return {**inputs, **scalars}

    def node_seconds(self, submission: Submission) -> tuple[float, ...]:
        """Return how long each node of a replay took, which must be complete: a wait makes sure of that.

        :class:`LaunchError` if it is not, if it is no replay of this bound graph, or if the graph was bound
        without ``timestamps``.
        """
        if not self._timestamps:
            raise LaunchError(f"graph {self.label!r} was bound without timestamps=True")
        if submission not in self._timed:
            raise LaunchError(f"graph {self.label!r}: {submission!r} is no replay of this bound graph")
        ends = submission.read_timestamps()
        return tuple(end - begin for begin, end in zip((0.0, *ends), ends))

    def free(self) -> None:
        """Give the device memory back, once the GPU has finished with it. Freeing twice does nothing."""
        self.stream.free()

    def __repr__(self) -> str:
        return f"<BoundGraph {self.label!r}: {len(self.nodes)} nodes, {self.instances} instances>"


# ----- which bytes --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Use:
    """Bytes that a node reads, or (``written``) may write."""

    start: int
    end: int
    written: bool

    @classmethod
    def of(cls, access: Access) -> _Use:
        assert access.buffer is not None
        return cls(*span(access.buffer), access.written)


class _Spans:
    """A set of bytes, as ranges that do not touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        low = bisect_left(self._ends, start)
        high = bisect_right(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high] = [start]
        self._ends[low:high] = [end]

    def overlaps(self, start: int, end: int) -> bool:
        at = bisect_right(self._ends, start)
        return at < len(self._starts) and self._starts[at] < end

    def clear(self) -> None:
        self._starts.clear()
        self._ends.clear()


class _Hazards:
    """The bytes that were used since the last barrier."""

    def __init__(self) -> None:
        self._used = _Spans()
        self._written = _Spans()

    def conflict(self, uses: Iterable[_Use]) -> bool:
        """Return whether these uses must come after those before."""
        return any(
            (self._used if use.written else self._written).overlaps(use.start, use.end) for use in uses
        )

    def add(self, uses: Iterable[_Use]) -> None:
        for use in uses:
            self._used.add(use.start, use.end)
            if use.written:
                self._written.add(use.start, use.end)

    def clear(self) -> None:
        self._used.clear()
        self._written.clear()


class _Aliases:
    """Whether the captured barriers are enough for other buffers than those that were captured.

    Nearly always a replay gets memory that nothing else in the graph names, which a look at each buffer's
    mapping shows. Everything else is checked node by node, once per assignment.
    """

    def __init__(self, nodes: Sequence[Node], label: str) -> None:
        self._nodes = nodes
        self._label = label
        self._captured: dict[str, tuple[int, int]] = {}  # all that the parameter was captured with
        self._mappings: set[MemoryMapping] = set()
        self._written = False
        # Foreign addresses may be anybody's; CPU memory may have been imported twice.
        self._doubtful = {Ownership.FOREIGN}
        for access in (access for node in nodes for access in node.accesses):
            assert access.buffer is not None
            if access.parameter is not None:
                start, end = span(access.buffer)
                _, before = self._captured.get(access.parameter, (start, end))
                self._captured[access.parameter] = start, max(end, before)
                self._written |= access.written
            else:
                self._mappings.add(access.buffer.mapping)
                if access.buffer.ownership is Ownership.HOST:
                    self._doubtful.add(Ownership.HOST)
        self.names = tuple(self._captured)
        self._known: set[tuple[tuple[int, int], ...]] = {tuple(self._captured.values())}

    def check(self, given: Mapping[str, Any], mappings: Sequence[MemoryMapping]) -> None:
        """:class:`LaunchError` if these buffers, which lie in ``mappings``, or the defaults of those left
        out, need a barrier that was not captured.
        """
        if not self._written:
            for mapping in mappings:
                if mapping in self._mappings or mapping.ownership in self._doubtful:
                    break
            else:
                return
        spans = {name: span(given[name]) if name in given else self._captured[name] for name in self.names}
        assignment = tuple(spans.values())
        if assignment not in self._known:
            self._check_nodes({name: spans[name] for name in self.names if self._moved(name, spans[name])})
            if len(self._known) >= MAX_KNOWN_ASSIGNMENTS:
                self._known.clear()
            self._known.add(assignment)

    def _moved(self, name: str, given: tuple[int, int]) -> bool:
        """Return whether a parameter may stand for other bytes than the barriers were captured for."""
        start, end = self._captured[name]
        return given[0] != start or given[1] > end

    def _check_nodes(self, moved: Mapping[str, tuple[int, int]]) -> None:
        """Of a parameter that has moved every node may use all; others are used as they were captured."""

        def used(access: Access) -> _Use:
            if access.parameter is not None and access.parameter in moved:
                return _Use(*moved[access.parameter], access.written)
            return _Use.of(access)

        hazards = _Hazards()
        for node in self._nodes:
            uses = [used(access) for access in node.accesses]
            if node.barrier:
                hazards.clear()
            elif hazards.conflict(uses):
                raise LaunchError(
                    f"graph {self._label!r}: with these inputs, node {node.label!r} uses bytes that a node "
                    "before it also uses, and no barrier was captured between them; capture the graph with "
                    "these buffers"
                )
            hazards.add(uses)
