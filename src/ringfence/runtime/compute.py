"""What devices of every family do alike: buffers, launches, streams, graphs, copies, loss and closing."""

from __future__ import annotations

import contextlib
import ctypes
import math
import operator
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringfence.errors import DeviceLost, FaultReport, LaunchError, LeaseError
from ringfence.port import Port
from ringfence.runtime import queue
from ringfence.runtime.copying import CopyPath, CopyResult, Side, copy_on_host, plan_copy
from ringfence.runtime.device import DeviceInfo, Geometry
from ringfence.runtime.encoder import Packets, StreamEncoder
from ringfence.runtime.graph import Graph
from ringfence.runtime.memory import Buffer, CacheMode, Mapping, Memory, buffer_of, data_type
from ringfence.runtime.program import LaunchPlaces, Program
from ringfence.runtime.queue import Queue, Submission, check_timeout
from ringfence.runtime.staging import Staging
from ringfence.runtime.stream import (
    BoundStream,
    Dispatch,
    Encoded,
    Guard,
    Holder,
    Instance,
    Operation,
    Origin,
    Parameter,
    Stack,
    Stream,
)
from ringfence.runtime.timeline import SLOT_LIMIT, ClockMap, Fence, Slot, Timeline

DEFAULT_TIMEOUT = 30.0
PAGE = 4096
SLOT_STRIDE = 64  # one cache line per timeline slot


Identify = Callable[[FaultReport], FaultReport]


class Engine(queue.Engine, Protocol):
    """What takes the submissions of a device."""

    recovered_faults: int

    @property
    def submit(self) -> Callable[..., bool]:
        """Queue a command that ends in a timeline value, after fences; return whether a recovered fault was
        reported.
        """


class ComputeDevice(ABC):
    """The driver of one GPU. A family's driver says how it is opened, and how commands are encoded.

    Opening either succeeds or leaves nothing behind. ``info`` says what the device is, ``max_bytes`` is the
    largest buffer, ``copy_queue_note`` says why no copy queue moves bytes, ``program_class`` is the class of
    loaded programs.
    """

    info: DeviceInfo
    engine: Engine
    memory: Memory
    queue: Queue
    max_bytes: int
    copy_queue_note: str
    program_class: type[Program]
    buffer_cache = CacheMode.WRITE_COMBINE
    """What buffers are unless something else is asked for."""
    _stack: Stack
    _undo: contextlib.ExitStack

    def __init__(self, port: Port, label: str) -> None:
        self.port = port
        self.label = label
        self.closed = False
        self._lock = threading.RLock()
        self._copies: dict[int, Any] = {}
        self._captures: dict[int, Graph] = {}  # by the thread that captures
        self._holders: weakref.WeakSet[Holder] = weakref.WeakSet()
        self._timelines: weakref.WeakSet[Timeline] = weakref.WeakSet()

    def _make_queue(self, ticks_per_second: float, *, timeout: float, limit: int = SLOT_LIMIT) -> None:
        """Make the queue and its timeline; memory and engine are there already."""
        self.memory.staging = Staging(self._staging_memory, self._launch_staged)
        self._slots = self._pages("timelines", CacheMode.UNCACHED)
        self._next_slot = 0
        timeline = self.timeline(self.label, limit=limit)
        clock = ClockMap(ticks_per_second)
        self.queue = Queue(
            self.port, self.engine, timeline, clock, self._lock, timeout=timeout, label=self.label
        )

    # ----- what each family says -------------------------------------------------------------------

    @property
    @abstractmethod
    def domain(self) -> object:
        """Return what devices have in common that reach each other's timelines."""

    @abstractmethod
    def load(self, blob: Any, *, label: str | None = None) -> Any:
        """Return what is in a program blob, in device memory; :class:`PackageError` if it cannot run here."""

    @abstractmethod
    def find_program(self, program: Any) -> Program:
        """Return the program that a launch means; :class:`LaunchError` if it cannot run on this device."""

    @abstractmethod
    def make_command(self, gpu_address: int, nbytes: int) -> Any:
        """Return the reusable submission of commands; :class:`LaunchError` if they are too long for one."""

    @abstractmethod
    def packets(self) -> Packets:
        """Return an empty sequence of packets."""

    @abstractmethod
    def _grow_stack(self, nbytes: int) -> Stack:
        """Return new private memory; the GPU is idle."""

    @abstractmethod
    def _copy_launch(
        self, destination: Buffer, source: Buffer, nbytes: int
    ) -> tuple[Program, tuple[Buffer, Buffer, int], int]:
        """Return the program, its arguments and the number of groups that copy."""

    @abstractmethod
    def _kernel_copy_note(self, destination: Buffer, source: Buffer, nbytes: int) -> str | None:
        """Return why no kernel can copy between these; ``None`` if one can."""

    # ----- closing --------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Wait for what was submitted, then give everything back. Closing twice does nothing.

        Everything is given back even if the wait fails or the kernel refuses something; the error is raised
        at the end.
        """
        if self.closed:
            return
        self.closed = True
        with self._undo:  # runs the callbacks of opening, in reverse order, whatever happens here
            try:
                if self.queue.lost is None:
                    self.queue.wait(self.queue.timeline.submitted, timeout)
            finally:
                self.queue.fail(DeviceLost(f"{self.label} is closed"))  # what is not complete never will be

    def register(self, holder: Holder) -> None:
        """Remember, weakly, what must let go of device memory when the device is closed."""
        self._holders.add(holder)

    def identify(self, report: FaultReport) -> FaultReport:
        """Return a report of what the GPU failed at with the labels that the driver knows: those of the
        launch and its program, and of the memory next to the address.
        """
        origin = None if report.packet_address is None else self._origin(report.packet_address)
        if origin is not None and origin.program is not None:
            report = replace(report, program=origin.program)
        if origin is None:
            origin = self._origin(None)
        if origin is not None:
            program = report.program or origin.program
            report = replace(report, launch=origin.launch, submission=origin.submission, program=program)
        nearest = None if report.address is None else self.memory.nearest(report.address)
        if nearest is not None:
            report = replace(report, nearest=nearest + (f"; {report.nearest}" if report.nearest else ""))
        return report

    def _origin(self, address: int | None) -> Origin | None:
        """Return what the commands at a GPU address do; without one, those that the GPU, which works in
        order, has not finished.
        """
        value = self.queue.timeline.completed + 1
        origins = (holder.origin(address, value) for holder in list(self._holders))
        return next((origin for origin in origins if origin is not None), None)

    def _let_go(self) -> None:
        for holder in list(self._holders):
            holder.let_go()
        for timeline in list(self._timelines):
            timeline.close()
        self.memory.staging = None

    # ----- completion, for Memory -----------------------------------------------------------------

    def finished(self, value: int) -> bool:
        """Return whether the GPU does not work on anything up to ``value`` any more."""
        return value == 0 or self.queue.finished(value)

    def wait(self, value: int, timeout: float | None = None) -> None:
        """Wait until timeline ``value`` is reached; errors as :meth:`synchronize`."""
        check_timeout(timeout)
        if value:
            self.queue.wait(value, timeout)

    def synchronize(self, timeout: float | None = None) -> None:
        """Wait for everything that was submitted. :class:`WaitTimeout`, :class:`DeviceLost`."""
        self.check_open()
        self.queue.check()
        check_timeout(timeout)
        if self._captured() is not None:
            raise LaunchError(f"{self.label}: synchronize() while a graph is captured: nothing runs yet")
        self.queue.wait(self.queue.timeline.submitted, timeout)
        self.memory.reap()

    def check_open(self) -> None:
        """:class:`DeviceLost` if the device is closed."""
        if self.closed:
            raise DeviceLost(f"{self.label} is closed")

    # ----- timelines ------------------------------------------------------------------------------

    def timeline(self, label: str, *, limit: int = SLOT_LIMIT) -> Timeline:
        """Return a new timeline whose slots lie in memory of this device."""
        self.check_open()
        timeline = Timeline(self._new_slot, limit=limit, domain=self.domain, label=label)
        self._timelines.add(timeline)
        return timeline

    def _new_slot(self) -> Slot:
        if self._next_slot + SLOT_STRIDE > self._slots.nbytes:
            # The full page stays: commands that wait for its slots may still be around. close() releases it.
            self._slots = self._pages("timelines", CacheMode.UNCACHED)
            self._next_slot = 0
        offset = self._next_slot
        self._next_slot += SLOT_STRIDE
        word = memoryview(self.memory.view(self._slots, offset, 4)).cast("B").cast("I")
        return Slot(self._slots.gpu_address + offset, word)

    def _pages(self, what: str, cache: CacheMode, nbytes: int = PAGE) -> Mapping:
        return self.memory.allocate(nbytes, cache=cache, label=f"{self.label}: {what}")

    # ----- buffers --------------------------------------------------------------------------------

    def empty(
        self,
        shape: int | tuple[int, ...],
        dtype: DTypeLike,
        *,
        cache: CacheMode | None = None,
        label: str = "",
    ) -> Buffer:
        """Return a buffer for an array. The kernel hands out zeroed pages, but do not rely on it: use
        :meth:`zeros`.
        """
        self.check_open()
        kind, sizes = data_type(dtype, f"buffer {label!r}"), _sizes(shape, label)
        if kind.hasobject:
            raise LaunchError(f"buffer {label!r}: {kind} elements are Python objects, which no GPU can use")
        nbytes = kind.itemsize * math.prod(sizes)
        if nbytes <= 0 or min(sizes, default=1) < 0:
            raise LaunchError(
                f"buffer {label!r}: shape {sizes} of {kind} is empty; a buffer has at least one element"
            )
        if nbytes > self.max_bytes:
            raise LaunchError(
                f"buffer {label!r}: {nbytes} bytes; at most {self.max_bytes} can be allocated at once"
            )
        mapping = self.memory.allocate(nbytes, cache=cache or self.buffer_cache, label=label)
        return Buffer(self.memory, mapping, dtype=kind, shape=sizes)

    def zeros(
        self,
        shape: int | tuple[int, ...],
        dtype: DTypeLike,
        *,
        cache: CacheMode | None = None,
        label: str = "",
    ) -> Buffer:
        """Return a buffer filled with zeros."""
        buffer = self.empty(shape, dtype, cache=cache, label=label)
        if buffer.host_address is None:
            buffer.copy_from(np.zeros(buffer.shape or 1, buffer.dtype))
        else:
            zero(buffer.mapping)
            buffer.flush()
        return buffer

    def array(self, array: NDArray[Any], *, cache: CacheMode | None = None, label: str = "") -> Buffer:
        """Return a buffer with a copy of ``array``, and its dtype and shape."""
        source = np.asarray(array)
        buffer = self.empty(source.shape or (1,), source.dtype, cache=cache, label=label)
        buffer.copy_from(source)
        return buffer

    def import_array(
        self,
        source: NDArray[Any] | int,
        nbytes: int | None = None,
        *,
        dtype: DTypeLike | None = None,
        shape: tuple[int, ...] | None = None,
        owner: object = None,
        writable: bool = True,
        may_be_gpu_address: bool = False,
        label: str = "",
    ) -> Buffer:
        """Return CPU memory as a buffer, without a copy; see :meth:`ringfence.api.Device.import_array`."""
        self.check_open()
        if isinstance(source, np.ndarray):
            if not source.flags.c_contiguous:
                raise LeaseError(
                    f"import of {label!r}: the array is not contiguous; import np.ascontiguousarray(it)"
                )
            pointer, size, owner = source.ctypes.data, source.nbytes, source
            dtype, shape = source.dtype, source.shape
            writable = bool(writable and source.flags.writeable)
        else:
            if nbytes is None:
                raise LeaseError(f"import of {label!r}: a pointer needs nbytes")
            pointer, size = _range(source, nbytes, label)
        if dtype is not None:
            dtype = data_type(dtype, f"import of {label!r}")
        mapping = self.memory.import_host(
            pointer,
            size,
            owner=owner,
            writable=writable,
            may_be_gpu_address=may_be_gpu_address,
            label=label,
        )
        whole = buffer_of(self.memory, mapping)
        return whole if dtype is None else whole.offset_view(0, dtype=dtype, shape=shape)

    def import_buffer(self, buffer: Buffer, *, label: str = "") -> Buffer:
        """Return a buffer of another device as one of this; see
        :meth:`ringfence.api.Device.import_buffer`.
        """
        self.check_open()
        if not isinstance(buffer, Buffer):
            raise LeaseError(f"{type(buffer).__name__} is not a buffer of another device")
        name = label or buffer.label
        if buffer.freed:
            raise LeaseError(f"{buffer!r} was freed, or its device is closed")
        mapping = self.memory.share(buffer.mapping, label=name)
        whole = buffer_of(self.memory, mapping, name)
        return whole.offset_view(buffer.offset, buffer.nbytes, dtype=buffer.dtype, shape=buffer.shape)

    def _staging_memory(self, nbytes: int) -> Buffer:
        return Buffer(self.memory, self._pages("staging", CacheMode.CACHED, nbytes))

    def _launch_staged(self, destination: Buffer, source: Buffer) -> Submission:
        """Submit a copy for the CPU, at once: what the CPU reads and writes is no part of a graph."""
        thread = threading.get_ident()
        graph = self._captures.pop(thread, None)
        try:
            return self._launch_copy(destination, source)
        finally:
            if graph is not None:
                self._captures[thread] = graph

    def _launch_copy(self, destination: Buffer, source: Buffer) -> Submission:
        note = self._kernel_copy_note(destination, source, destination.nbytes)
        if note is not None:
            raise LaunchError(f"the CPU does not reach all of {destination!r} and {source!r}, and {note}")
        program, args, groups = self._copy_launch(destination, source, destination.nbytes)
        return self.launch(program, *args, groups=groups, label=f"copy to {destination.label!r}")

    # ----- private memory -------------------------------------------------------------------------

    def reserve_stack(self, nbytes: int) -> tuple[Stack, float]:
        """Return private memory of at least ``nbytes`` in all, and the seconds that growing it took.

        It grows only when it must, after everything that may use the old one has finished. Bound streams keep
        the one that they were bound with.
        """
        if nbytes <= self._stack.nbytes:
            return self._stack, 0.0
        with self._lock:
            begin = self.queue.now()
            self.queue.wait(self.queue.timeline.submitted)
            grown = self._grow_stack(nbytes)
            old, self._stack = self._stack, grown
            self.memory.free(old.mapping)
            return grown, self.queue.now() - begin

    # ----- encoding -------------------------------------------------------------------------------

    def encode(self, operations: Sequence[Operation]) -> Encoded:
        """Return the commands of a stream."""
        return StreamEncoder(self.packets()).encode(operations)

    def encode_launch(self, program: Any, geometry: Geometry) -> tuple[Encoded, int, LaunchPlaces]:
        """Return the commands of one launch of ``program``, to be patched for each."""
        return StreamEncoder(self.packets()).encode_launch(program, geometry)

    # ----- launches -------------------------------------------------------------------------------

    def launch(
        self,
        program: Any,
        *args: Any,
        groups: Any = None,
        global_size: Any = None,
        local: Any = None,
        label: str | None = None,
    ) -> Submission:
        """Submit one launch; see :meth:`ringfence.api.Device.launch`."""
        queue = self.queue
        begin = queue.now()
        if queue.lost is not None or self.closed or self._captures:
            self.check_open()
            queue.check()
            graph = self._captured()
            if graph is not None:
                return graph.launch(
                    program, args, groups=groups, global_size=global_size, local=local, label=label
                )
        memory = self.memory
        if program.__class__ is not self.program_class or program.code_mapping.space is not memory:
            program = self.find_program(program)
        shape = program.shape(groups, global_size, local)
        self._lock.acquire()  # a with statement would take twice as long
        try:
            values, uses = program.resolve(args, memory)
            pool = program.launches or program.pool()
            stack, growth = self._stack, 0.0
            if pool.stack_bytes > stack.nbytes:
                stack, growth = self.reserve_stack(pool.stack_bytes)
            instance = pool.take(shape, values, stack)
            submission = Submission(queue, memory, begin, uses, program.label if label is None else label)
            if growth:
                submission.stack_growth = growth
            self.commit(instance, submission)
            pool.mark.value = stack.mapping.last_use = value = submission.value
            for mapping in uses:
                mapping.last_use = value
        finally:
            self._lock.release()
        return submission

    def commit(self, instance: Instance, submission: Submission, fences: Sequence[Fence] = ()) -> None:
        """Submit an instance as the next point of the timeline, after ``fences``. The lock is held."""
        queue = self.queue
        timeline = queue.timeline
        value = timeline.sign(instance, queue.drain)
        try:
            if self.engine.submit(instance.command, value, fences):
                submission.recovered_fault = True
        except DeviceLost as error:
            raise queue.fail(error) from error.__cause__
        timeline.submitted = instance.value = value
        instance.submission = submission
        submission.accepted(value, queue.now(), instance)

    # ----- streams --------------------------------------------------------------------------------

    def record(self, label: str = "") -> Stream:
        """Return an empty stream."""
        self.check_open()
        return Stream(self, label)

    def bind(
        self,
        stream: Stream,
        *,
        instances: int = 1,
        label: str | None = None,
        guard: Guard | None = None,
    ) -> BoundStream:
        """Put the stream's commands and argument blocks into device memory; return what submits them."""
        self.check_open()
        self.queue.check()
        if not isinstance(stream, Stream):
            raise LaunchError(f"{type(stream).__name__} is not a stream: record one with dev.record()")
        return BoundStream(self, stream, instances=instances, label=label, guard=guard)

    # ----- graphs ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def capture(self, label: str = "") -> Iterator[Graph]:
        """Record what the calling thread asks of the device in the block; see
        :meth:`ringfence.api.Device.capture`.
        """
        self.check_open()
        thread = threading.get_ident()
        if thread in self._captures:
            raise LaunchError(f"{self.label}: a graph is being captured already: captures do not nest")
        self._captures[thread] = graph = Graph(self, label)
        try:
            yield graph
        finally:
            graph.finished = True
            del self._captures[thread]

    def _captured(self) -> Graph | None:
        """Return the graph that the calling thread is capturing."""
        return self._captures.get(threading.get_ident()) if self._captures else None

    def prepare(
        self, program: Any, args: Sequence[Any], *, groups: Any, global_size: Any, local: Any
    ) -> Dispatch:
        """Return the checked dispatch of a stream; :class:`LaunchError` if it cannot run."""
        loaded = self.find_program(program)
        shape = loaded.shape(groups, global_size, local)
        return loaded.prepare(args, shape.geometry, self.memory)

    # ----- copies ---------------------------------------------------------------------------------

    def copy(
        self, destination: Side | Parameter, source: Side | Parameter, timeout: float | None = None
    ) -> CopyResult:
        """Copy between buffers, or between a buffer and an array; see :meth:`ringfence.api.Device.copy`."""
        self.check_open()
        self.queue.check()
        graph = self._captured()
        if graph is not None:
            return self._capture_copy(graph, destination, source)
        if isinstance(destination, Parameter) or isinstance(source, Parameter):
            raise LaunchError("copy: parameters are for graphs and streams; copy their buffers")
        for side in (destination, source):
            self._check_side(side)
        note = None
        if isinstance(destination, Buffer) and isinstance(source, Buffer):
            note = self._kernel_copy_note(destination, source, destination.nbytes)
        plan = plan_copy(destination, source, copy_queue_note=self.copy_queue_note, kernel_note=note)
        submission = None
        if plan.path is CopyPath.KERNEL:
            assert isinstance(destination, Buffer) and isinstance(source, Buffer)
            submission = self._launch_copy(destination, source)
        else:
            copy_on_host(destination, source, timeout)
        return CopyResult(plan.path, plan.reason, destination.nbytes, submission)

    def _check_side(self, side: Side) -> None:
        if isinstance(side, Buffer) and side.mapping.space is not self.memory:
            why = "was freed" if side.freed else "belongs to another device"
            raise LaunchError(f"copy: {side!r} {why}")

    def _capture_copy(
        self, graph: Graph, destination: Side | Parameter, source: Side | Parameter
    ) -> CopyResult:
        if isinstance(destination, np.ndarray) or isinstance(source, np.ndarray):
            raise LaunchError(
                "copy: a graph copies between buffers of the device; write and read arrays outside of the "
                "capture"
            )
        submission = graph.copy(destination, source)
        nbytes = _buffer_of(destination).nbytes
        return CopyResult(CopyPath.KERNEL, f"captured in a graph; {self.copy_queue_note}", nbytes, submission)

    def prepare_copy(
        self, destination: Buffer | Parameter, source: Buffer | Parameter, nbytes: int | None = None
    ) -> Dispatch:
        """Return the dispatch that copies; :class:`LaunchError` says why there is none.

        Of a parameter the default is what decides how.
        """
        to, origin = _buffer_of(destination), _buffer_of(source)
        for side in (to, origin):
            self._check_side(side)
        if nbytes is not None:
            to, origin = to.offset_view(0, nbytes), origin.offset_view(0, nbytes)
        note = self._kernel_copy_note(to, origin, to.nbytes)
        if note is not None:
            raise LaunchError(f"a stream copies with a kernel, but {note}")
        plan_copy(to, origin, copy_queue_note=self.copy_queue_note, kernel_note=None)
        program, (*sides, count), groups = self._copy_launch(to, origin, to.nbytes)
        given = [
            Parameter(side.name, view) if isinstance(side, Parameter) else view
            for side, view in zip((destination, source), sides)
        ]
        dispatch = self.prepare(program, (*given, count), groups=groups, global_size=None, local=None)
        return replace(dispatch, copy=True)


def _sizes(shape: Any, label: str) -> tuple[int, ...]:
    """Return a shape as a tuple; :class:`LaunchError` if it is none."""
    try:
        sizes = shape if isinstance(shape, (tuple, list, np.ndarray)) else (shape,)
        return tuple(map(operator.index, sizes))
    except TypeError:
        raise LaunchError(
            f"buffer {label!r}: shape {shape!r} is neither a whole number nor a tuple of them"
        ) from None


def _range(pointer: Any, nbytes: Any, label: str) -> tuple[int, int]:
    try:
        return operator.index(pointer), operator.index(nbytes)
    except TypeError:
        raise LeaseError(
            f"import of {label!r}: {nbytes!r} bytes at {pointer!r} is no range of memory; both are whole "
            "numbers, unless an array is given"
        ) from None


def _buffer_of(side: Any) -> Buffer:
    """Return a side of a copy that a stream does: a buffer, or the default of a parameter."""
    buffer = side.default if isinstance(side, Parameter) else side
    if isinstance(buffer, Buffer):
        return buffer
    if isinstance(side, Parameter):
        raise LaunchError(f"copy: parameter {side.name!r} needs a default buffer, which shows how to copy")
    raise LaunchError(f"copy: {type(side).__name__} is no buffer")


def zero(mapping: Mapping) -> None:
    """Fill device memory with zeros from the CPU."""
    assert mapping.host_address is not None
    ctypes.memset(mapping.host_address, 0, mapping.nbytes)
