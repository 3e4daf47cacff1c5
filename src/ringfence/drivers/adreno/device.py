"""An Adreno device behind KGSL: its life, submission, waiting, private memory, launches and streams."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringfence.errors import DeviceLost, GpuFault, GpuHang, LaunchError, LeaseError, PortError
from ringfence.hardware.adreno import kgsl
from ringfence.hardware.adreno.chips import Chip, chip_from_id
from ringfence.hardware.adreno.program import AdrenoProgram, read_program
from ringfence.port import Port
from ringfence.runtime.copying import CopyPath, CopyResult, Side, copy_on_host, plan_copy
from ringfence.runtime.device import DeviceInfo, Geometry
from ringfence.runtime.graph import Graph
from ringfence.runtime.memory import Buffer, CacheMode, Mapping, Memory
from ringfence.runtime.queue import Queue, Submission
from ringfence.runtime.stream import (
    Barrier,
    BoundStream,
    Dispatch,
    Encoded,
    Guard,
    Holder,
    Instance,
    Operation,
    Parameter,
    Signal,
    Stream,
    TimeStamp,
    Wait,
)
from ringfence.runtime.timeline import SLOT_LIMIT, ClockMap, Fence, Slot, Timeline

from . import encode
from .copy_programs import (
    COPY_LOCAL_SIZE,
    MAX_COPY_ELEMENTS,
    copy_element_bytes,
    copy_program,
)
from .encode import Commands, DispatchPlaces, Local, PrivateMemory
from .memory import MAX_BYTES, PAGE, KgslMemory, zero
from .program import MAX_THREADS, Program

GPU_TICKS_PER_SECOND = (
    19_200_000  # CP_ALWAYS_ON_COUNTER; tinygrad's ops_qcom.py divides its ticks by 19.2 for us
)
DEFAULT_TIMEOUT = 30.0
DEFAULT_PRIORITY = 8
MAX_PRIORITY = 15
FIRST_STACK_BYTES = 4 * PAGE
SLOT_STRIDE = 64  # one cache line per timeline slot
BLOCK_ALIGNMENT = 256
NO_COPY_QUEUE = "this family has no copy queue"
_TIMESTAMP_MASK = 0xFFFFFFFF


@dataclass(slots=True, eq=False)
class Command:
    """The arguments of GPU_COMMAND for one instance, made once and used again."""

    entry: kgsl.COMMAND_OBJECT
    request: kgsl.GPU_COMMAND


@dataclass(frozen=True, slots=True)
class Found:
    """What a KGSL node says about itself."""

    chip_id: int
    driver_version: str
    model: str


def look(port: Port, fd: int) -> Found:
    """Return what the kernel tells about the GPU behind an open descriptor; :class:`PortError`."""
    info, version, model = kgsl.DEVINFO(), kgsl.VERSION(), kgsl.GPU_MODEL()
    _get_property(port, fd, kgsl.Property.DEVICE_INFO, info)
    _get_property(port, fd, kgsl.Property.VERSION, version)
    try:
        _get_property(port, fd, kgsl.Property.GPU_MODEL, model)
        name = bytes(model.gpu_model).decode(errors="replace")
    except PortError as error:
        if error.errno not in (errno.ENODEV, errno.EINVAL):
            raise
        name = ""  # kernels before this property
    return Found(info.chip_id, f"KGSL {version.drv_major}.{version.drv_minor}", name)


def _get_property(port: Port, fd: int, which: kgsl.Property, into: ctypes.Structure) -> None:
    address, size = ctypes.addressof(into), ctypes.sizeof(into)
    port.ioctl(fd, kgsl.DEVICE_GETPROPERTY(type=which, value=address, sizebytes=size))


class KgslEngine:
    """One KGSL context: submission, sleeping on its time stamps, and what its loss means."""

    def __init__(self, port: Port, fd: int, label: str, *, priority: int) -> None:
        flags = kgsl.CONTEXT_FLAGS.pack(
            PREAMBLE=1,
            PWR_CONSTRAINT=1,
            NO_FAULT_TOLERANCE=1,
            NO_GMEM_ALLOC=1,
            PRIORITY=priority,
            PREEMPT_STYLE=kgsl.PreemptStyle.FINEGRAIN,
        )
        request = kgsl.DRAWCTXT_CREATE(flags=flags)
        port.ioctl(fd, request)
        self.context: int = request.drawctxt_id
        self.recovered_faults = 0
        self._port = port
        self._fd = fd
        self._label = label
        self._last_value = 0  # timeline value of the last submission, whose request holds its timestamp
        self._last = kgsl.GPU_COMMAND()
        self._ioctl = port.ioctl

    def destroy(self) -> None:
        """Destroy the context: the kernel drops what is queued, and waits a while for what is running."""
        self._port.ioctl(self._fd, kgsl.DRAWCTXT_DESTROY(drawctxt_id=self.context))

    def set_power(self, level: kgsl.PowerLevel) -> None:
        """Ask for a power level while work of this context runs."""
        wanted = kgsl.DEVICE_CONSTRAINT_PWRLEVEL(level=level)
        constraint = kgsl.DEVICE_CONSTRAINT(
            type=kgsl.ConstraintType.PWRLEVEL,
            context_id=self.context,
            data=ctypes.addressof(wanted),
            size=ctypes.sizeof(wanted),
        )
        request = kgsl.SETPROPERTY(
            type=kgsl.Property.PWR_CONSTRAINT,
            value=ctypes.addressof(constraint),
            sizebytes=ctypes.sizeof(constraint),
        )
        self._port.ioctl(self._fd, request)

    def make_command(self, gpu_address: int, nbytes: int) -> Command:
        """Return the reusable arguments that submit ``nbytes`` of commands at an address."""
        entry = kgsl.COMMAND_OBJECT(gpuaddr=gpu_address, size=nbytes, flags=kgsl.CommandListFlags.IB)
        request = kgsl.GPU_COMMAND(
            cmdlist=ctypes.addressof(entry),
            cmdsize=ctypes.sizeof(entry),
            numcmds=1,
            context_id=self.context,
        )
        return Command(entry, request)

    def fence(self, value: int) -> Fence:
        """Return context and KGSL timestamp whose retirement means that timeline ``value`` is reached.

        Every submission takes one timeline value and one timestamp, so earlier timestamps follow from the
        last.
        """
        return self.context, (self._last.timestamp - max(0, self._last_value - value)) & _TIMESTAMP_MASK

    def submit(self, command: Command, value: int, fences: Sequence[Fence] = ()) -> bool:
        """Queue the commands that end in timeline ``value``; return whether a recovered fault was reported.

        That report (EPROTO) is not a failure: the work was queued, and must not be submitted again. But the
        kernel did not return the timestamp then, so it is read. :class:`DeviceLost` if the context is dead.
        """
        try:
            if fences:
                self._submit_after(command.request, fences)
            else:
                self._ioctl(self._fd, command.request)
        except PortError as error:
            if error.errno != errno.EPROTO:
                self._raise_if_lost(error)
                raise
            self.recovered_faults += 1
            command.request.timestamp = self._queued_timestamp()
            self._last_value, self._last = value, command.request
            return True
        self._last_value, self._last = value, command.request
        return False

    def _submit_after(self, request: kgsl.GPU_COMMAND, fences: Sequence[Fence]) -> None:
        """Submit with sync points: the kernel keeps the commands back until other contexts have got so
        far.
        """
        others = [fence for fence in fences if fence[0] != self.context]  # our own are in order anyway
        points = (kgsl.CMD_SYNCPOINT_TIMESTAMP * len(others))(
            *(kgsl.CMD_SYNCPOINT_TIMESTAMP(context, timestamp) for context, timestamp in others)
        )
        syncs = (kgsl.COMMAND_SYNCPOINT * len(others))()
        for index, sync in enumerate(syncs):
            sync.type = kgsl.SyncPointType.TIMESTAMP
            sync.size = ctypes.sizeof(kgsl.CMD_SYNCPOINT_TIMESTAMP)
            sync.priv = ctypes.addressof(points) + index * sync.size
        request.synclist, request.syncsize = ctypes.addressof(syncs), ctypes.sizeof(kgsl.COMMAND_SYNCPOINT)
        request.numsyncs = len(others)
        try:
            self._port.ioctl(self._fd, request)
        finally:
            request.synclist = request.numsyncs = 0  # the request is used again, without these

    def _queued_timestamp(self) -> int:
        request = kgsl.CMDSTREAM_READTIMESTAMP_CTXTID(context_id=self.context, type=kgsl.TimestampType.QUEUED)
        try:
            self._port.ioctl(self._fd, request)
        except PortError:
            # The work is queued all the same, so this cannot be an error of the submission; the kernel counts
            # by one.
            return (self._last.timestamp + 1) & _TIMESTAMP_MASK
        return int(request.timestamp)

    def sleep(self, value: int, seconds: float) -> bool:
        """Sleep until timeline ``value`` retires or ``seconds`` passed; return whether it retired.

        The time-out is never rounded to 0 ms, which would mean "for ever".
        """
        context, timestamp = self.fence(value)
        request = kgsl.DEVICE_WAITTIMESTAMP_CTXTID(
            context_id=context, timestamp=timestamp, timeout=max(1, math.ceil(seconds * 1000))
        )
        try:
            self._port.ioctl(self._fd, request)
        except PortError as error:
            if error.errno == errno.ETIMEDOUT:
                return False
            if error.errno != errno.EPROTO:
                self._raise_if_lost(error)
                raise
            self.recovered_faults += 1  # retired, and a fault was recovered meanwhile
        return True

    def _raise_if_lost(self, error: PortError) -> None:
        """Raise :class:`DeviceLost`, with a report if there is one, if ``error`` means that."""
        if error.errno == errno.ENOENT:
            raise DeviceLost(
                f"{self._label}: its context {self.context} was destroyed ({error.call})"
            ) from error
        if error.errno != errno.EDEADLK:
            return
        report = self._port.explain(self._fd, self.context)
        if report is None:
            raise DeviceLost(
                f"{self._label}: the kernel invalidated context {self.context} after a hang or a fault "
                f"({self._reset_status()}); the kernel log and its snapshot say more"
            ) from error
        if report.kind == "hang":
            raise GpuHang(f"{self._label} hung", report) from error
        raise GpuFault(f"{self._label} stopped", report) from error

    def _reset_status(self) -> str:
        status = ctypes.c_uint32(self.context)
        request = kgsl.DEVICE_GETPROPERTY(
            type=kgsl.Property.GPU_RESET_STAT,
            value=ctypes.addressof(status),
            sizebytes=ctypes.sizeof(status),
        )
        try:
            self._port.ioctl(self._fd, request)
            return f"GPU_RESET_STAT {kgsl.ResetStatus(status.value).name}"
        except (PortError, ValueError) as error:
            return f"GPU_RESET_STAT not readable: {error}"


class AdrenoDevice:
    """The driver of one Adreno GPU. :class:`ringfence.api.Device` is what users see of it.

    Opening either succeeds or leaves nothing behind: no descriptor, context, memory object or mapping.
    """

    def __init__(
        self,
        port: Port,
        *,
        path: str = kgsl.DEVICE_PATH,
        priority: int = DEFAULT_PRIORITY,
        power: kgsl.PowerLevel | None = kgsl.PowerLevel.PWR_MAX,
        timeout: float = DEFAULT_TIMEOUT,
        label: str | None = None,
        timeline_limit: int = SLOT_LIMIT,
    ) -> None:
        if not 1 <= priority <= MAX_PRIORITY:
            raise LaunchError(f"context priority {priority}: 1 (most urgent) to {MAX_PRIORITY} are possible")
        self.port = port
        self.path = path
        self.label = label or path
        self.closed = False
        self._fence = port.fence
        self._lock = threading.RLock()
        self._copies: dict[int, Program] = {}
        self._capture: tuple[int, Graph] | None = None
        self._holders: weakref.WeakSet[Holder] = weakref.WeakSet()
        self._timelines: weakref.WeakSet[Timeline] = weakref.WeakSet()
        with contextlib.ExitStack() as undo:
            self._fd = port.open(path)
            undo.callback(port.close, self._fd)
            self.found = look(port, self._fd)
            self.chip: Chip = chip_from_id(self.found.chip_id)
            # Undone in reverse order: the context dies, memory is released, the descriptor is closed.
            self.memory = Memory(KgslMemory(port, self._fd), self, self._lock)
            undo.callback(self.memory.close)
            undo.callback(self._let_go)
            self.engine = KgslEngine(port, self._fd, self.label, priority=priority)
            undo.callback(self.engine.destroy)
            if power is not None:
                self.engine.set_power(power)
            self._slots = self._pages("timelines", CacheMode.UNCACHED)
            self._next_slot = 0
            self._scratch = self._pages("scratch and border colours", CacheMode.WRITE_COMBINE, 2 * PAGE)
            self._stack = self._pages("private memory", CacheMode.WRITE_COMBINE, FIRST_STACK_BYTES)
            zero(self._scratch)
            timeline = self.timeline(self.label, limit=timeline_limit)
            timeline.fence = self.engine.fence
            clock = ClockMap(GPU_TICKS_PER_SECOND)
            self.queue = Queue(
                port, self.engine, timeline, clock, self._lock, timeout=timeout, label=self.label
            )
            self._undo = undo.pop_all()
        self.info = self._describe(priority)

    def _describe(self, priority: int) -> DeviceInfo:
        return DeviceInfo(
            name=self.found.model or self.chip.name,
            family="adreno",
            interface="kgsl",
            chip=self.chip.name,
            chip_id=self.found.chip_id,
            virtual=self.port.virtual,
            driver_version=self.found.driver_version,
            shared_bytes=self.chip.shared_bytes,
            max_threads=MAX_THREADS,
            copy_queue=False,
            copy_note=f"{NO_COPY_QUEUE}: kernels copy between buffers, the CPU copies everything else",
            priority=priority,
        )

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

    def _let_go(self) -> None:
        for holder in list(self._holders):
            holder.let_go()
        for timeline in list(self._timelines):
            timeline.close()

    # ----- completion, for Memory -----------------------------------------------------------------

    def finished(self, value: int) -> bool:
        """Return whether the GPU does not work on anything up to ``value`` any more."""
        return value == 0 or self.queue.finished(value)

    def wait(self, value: int, timeout: float | None = None) -> None:
        """Wait until timeline ``value`` is reached; errors as :meth:`synchronize`."""
        if value:
            self.queue.wait(value, timeout)

    def synchronize(self, timeout: float | None = None) -> None:
        """Wait for everything that was submitted. :class:`WaitTimeout`, :class:`DeviceLost`."""
        self._check_open()
        self.queue.check()
        if self._captured() is not None:
            raise LaunchError(f"{self.label}: synchronize() while a graph is captured: nothing runs yet")
        self.queue.wait(self.queue.timeline.submitted, timeout)
        self.memory.reap()

    def _check_open(self) -> None:
        if self.closed:
            raise DeviceLost(f"{self.label} is closed")

    # ----- timelines ------------------------------------------------------------------------------

    @property
    def domain(self) -> object:
        """Return what contexts of one address space have in common: the node, and whose process it is."""
        return ("kgsl", self.path, id(self.port) if self.port.virtual else "this process")

    def timeline(self, label: str, *, limit: int = SLOT_LIMIT) -> Timeline:
        """Return a new timeline whose slots lie in memory of this device."""
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
        cache: CacheMode = CacheMode.WRITE_COMBINE,
        label: str = "",
    ) -> Buffer:
        """Return a buffer for an array. The kernel hands out zeroed pages, but do not rely on it: use
        :meth:`zeros`.
        """
        self._check_open()
        kind = np.dtype(dtype)
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        if kind.hasobject:
            raise LaunchError(f"buffer {label!r}: {kind} elements are Python objects, which no GPU can use")
        nbytes = kind.itemsize * math.prod(sizes)
        if nbytes <= 0 or min(sizes, default=1) < 0:
            raise LaunchError(
                f"buffer {label!r}: shape {sizes} of {kind} is empty; a buffer has at least one element"
            )
        if nbytes > MAX_BYTES:
            raise LaunchError(f"buffer {label!r}: {nbytes} bytes; KGSL allocates at most {MAX_BYTES} at once")
        mapping = self.memory.allocate(nbytes, cache=cache, label=label)
        return Buffer(self.memory, mapping, dtype=kind, shape=sizes)

    def zeros(
        self,
        shape: int | tuple[int, ...],
        dtype: DTypeLike,
        *,
        cache: CacheMode = CacheMode.WRITE_COMBINE,
        label: str = "",
    ) -> Buffer:
        """Return a buffer filled with zeros."""
        buffer = self.empty(shape, dtype, cache=cache, label=label)
        zero(buffer.mapping)
        buffer.flush()
        return buffer

    def array(
        self, array: NDArray[Any], *, cache: CacheMode = CacheMode.WRITE_COMBINE, label: str = ""
    ) -> Buffer:
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
        self._check_open()
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
            pointer, size = source, nbytes
        mapping = self.memory.import_host(
            pointer,
            size,
            owner=owner,
            writable=writable,
            may_be_gpu_address=may_be_gpu_address,
            label=label,
        )
        whole = Buffer(self.memory, mapping)
        return whole if dtype is None else whole.offset_view(0, dtype=dtype, shape=shape)

    # ----- private memory -------------------------------------------------------------------------

    def reserve_stack(self, nbytes: int) -> tuple[Mapping, float]:
        """Return private memory of at least ``nbytes`` in all, and the seconds that growing it took.

        It grows only when it must, after everything that may use the old one has finished. Bound streams keep
        the one that they were bound with.
        """
        if nbytes <= self._stack.nbytes:
            return self._stack, 0.0
        with self._lock:
            begin = self.queue.now()
            self.queue.wait(self.queue.timeline.submitted)
            grown = self._pages("private memory", CacheMode.WRITE_COMBINE, nbytes)
            old, self._stack = self._stack, grown
            self.memory.free(old)
            return grown, self.queue.now() - begin

    def stack_bytes(self, private_bytes: int) -> int:
        """Return how much private memory a program with ``private_bytes`` per thread needs on this chip."""
        return PrivateMemory.of(self.chip, private_bytes).bytes_per_sp * self.chip.sp_cores

    # ----- programs and launches ------------------------------------------------------------------

    def load(self, blob: bytes | AdrenoProgram, *, label: str | None = None) -> Program:
        """Return a program in device memory; :class:`PackageError` if it cannot run here."""
        self._check_open()
        source = blob if isinstance(blob, AdrenoProgram) else read_program(bytes(blob))
        return Program(self, source, label)

    def launch(
        self,
        program: Program,
        *args: Any,
        groups: Any = None,
        global_size: Any = None,
        local: Any = None,
        label: str | None = None,
    ) -> Submission:
        """Submit one launch; see :meth:`ringfence.api.Device.launch`."""
        queue = self.queue
        begin = queue.now()
        if queue.lost is not None or self.closed or self._capture is not None:
            self._check_open()
            queue.check()
            graph = self._captured()
            if graph is not None:
                return graph.launch(
                    program, args, groups=groups, global_size=global_size, local=local, label=label
                )
        memory = self.memory
        if program.__class__ is not Program or program.code_mapping.space is not memory:
            _check_program(program, memory)
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
            pool.mark.value = stack.last_use = value = submission.value
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
        self._fence()
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
        self._check_open()
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
        self._check_open()
        self.queue.check()
        return BoundStream(self, stream, instances=instances, label=label, guard=guard)

    # ----- graphs ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def capture(self, label: str = "") -> Iterator[Graph]:
        """Record what the calling thread asks of the device in the block; see
        :meth:`ringfence.api.Device.capture`.
        """
        self._check_open()
        with self._lock:
            if self._capture is not None:
                raise LaunchError(f"{self.label}: a graph is being captured already: captures do not nest")
            graph = Graph(self, label)
            self._capture = threading.get_ident(), graph
        try:
            yield graph
        finally:
            graph.finished = True
            self._capture = None

    def _captured(self) -> Graph | None:
        """Return the graph that the calling thread is capturing."""
        capture = self._capture
        return capture[1] if capture is not None and capture[0] == threading.get_ident() else None

    def make_command(self, gpu_address: int, nbytes: int) -> Command:
        """Return the reusable submission of commands; :class:`LaunchError` if they are too long for one."""
        if nbytes > 4 * kgsl.MAX_IB_DWORDS:
            raise LaunchError(
                f"{self.label}: {nbytes} bytes of commands; KGSL takes {4 * kgsl.MAX_IB_DWORDS} at once: "
                "split the stream"
            )
        return self.engine.make_command(gpu_address, nbytes)

    def prepare(
        self, program: Any, args: Sequence[Any], *, groups: Any, global_size: Any, local: Any
    ) -> Dispatch:
        """Return the checked dispatch of a stream; :class:`LaunchError` if it cannot run."""
        loaded = _check_program(program, self.memory)
        shape = loaded.shape(groups, global_size, local)
        return loaded.prepare(args, shape.geometry, self.memory)

    def encode(self, operations: Sequence[Operation]) -> Encoded:
        """Return the commands of a stream."""
        return StreamEncoder(self).encode(operations)

    def encode_launch(self, program: Program, geometry: Geometry) -> tuple[Encoded, int, DispatchPlaces]:
        """Return the commands of one launch of ``program``, to be patched for each."""
        encoder = StreamEncoder(self)
        encoder.begin()
        block, places = encoder.dispatch(program, geometry)
        encoder.out.data[block : block + program.layout.nbytes] = program.block()
        return encoder.end(), block, places

    def border_address(self) -> int:
        """Return the GPU address of the border colours, all zero."""
        return self._scratch.gpu_address + PAGE

    def scratch_address(self) -> int:
        """Return the GPU address that cache flushes store their value to when nobody wants it."""
        return self._scratch.gpu_address

    # ----- copies ---------------------------------------------------------------------------------

    def copy(
        self, destination: Side | Parameter, source: Side | Parameter, timeout: float | None = None
    ) -> CopyResult:
        """Copy between buffers, or between a buffer and an array; see :meth:`ringfence.api.Device.copy`."""
        self._check_open()
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
        plan = plan_copy(destination, source, copy_queue_note=NO_COPY_QUEUE, kernel_note=note)
        submission = None
        if plan.path is CopyPath.KERNEL:
            assert isinstance(destination, Buffer) and isinstance(source, Buffer)
            program, args, groups = self._copy_launch(destination, source, destination.nbytes)
            submission = self.launch(program, *args, groups=groups, label=f"copy to {destination.label!r}")
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
        return CopyResult(CopyPath.KERNEL, f"captured in a graph; {NO_COPY_QUEUE}", nbytes, submission)

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
        plan_copy(to, origin, copy_queue_note=NO_COPY_QUEUE, kernel_note=None)
        program, (*sides, count), groups = self._copy_launch(to, origin, to.nbytes)
        given = [
            Parameter(side.name, view) if isinstance(side, Parameter) else view
            for side, view in zip((destination, source), sides)
        ]
        return self.prepare(program, (*given, count), groups=groups, global_size=None, local=None)

    def _kernel_copy_note(self, destination: Buffer, source: Buffer, nbytes: int) -> str | None:
        element = copy_element_bytes(destination.gpu_address, source.gpu_address, nbytes)
        if nbytes // element > MAX_COPY_ELEMENTS:
            return f"{nbytes} bytes at these addresses are more than {MAX_COPY_ELEMENTS} elements"
        return None

    def _copy_launch(
        self, destination: Buffer, source: Buffer, nbytes: int
    ) -> tuple[Program, tuple[Buffer, Buffer, int], int]:
        element = copy_element_bytes(destination.gpu_address, source.gpu_address, nbytes)
        program = self._copies.get(element)
        if program is None:
            program = self._copies[element] = self.load(copy_program(element, self.chip))
            for spec in program.specs[:2]:  # what sides must be that are given later, as parameters
                spec.dtype, spec.mask = None, min(element, 4) - 1
        count = nbytes // element
        args = destination.offset_view(0, nbytes), source.offset_view(0, nbytes), count
        return program, args, -(-count // COPY_LOCAL_SIZE)


def _check_program(program: Any, memory: Memory) -> Program:
    if not isinstance(program, Program):
        raise LaunchError(f"{type(program).__name__} is not a program; load one with dev.load()")
    program.check_alive(memory)
    return program


def _buffer_of(side: Any) -> Buffer:
    """Return a side of a copy that a stream does: a buffer, or the default of a parameter."""
    buffer = side.default if isinstance(side, Parameter) else side
    if isinstance(buffer, Buffer):
        return buffer
    if isinstance(side, Parameter):
        raise LaunchError(f"copy: parameter {side.name!r} needs a default buffer, which shows how to copy")
    raise LaunchError(f"copy: {type(side).__name__} is no buffer")


class StreamEncoder:
    """Turns operations into an :class:`Encoded`: dwords and a data section."""

    def __init__(self, device: AdrenoDevice) -> None:
        self.out = Encoded()
        self._device = device
        self._commands = Commands()
        self._scratch = device.scratch_address()
        self._dialect = ""  # whose modes are set
        self._in_flight: set[int] = set()  # private memory per thread of the launches since the GPU was idle

    def encode(self, operations: Sequence[Operation]) -> Encoded:
        """Return the commands of a whole stream."""
        slots = sum(isinstance(operation, TimeStamp) for operation in operations)
        self.begin(slots)
        for operation in operations:
            self._operation(operation)
        return self.end()

    def begin(self, slots: int = 0) -> None:
        """Start with a time stamp, and a barrier: the CPU may have written what programs will read."""
        self.out.ticks = (0, 2 + slots)
        self.out.data.extend(bytes(8 * (2 + slots)))
        encode.time_stamp(self._commands, Local(0))
        encode.barrier(self._commands, self._scratch)

    def end(self) -> Encoded:
        """Finish with a time stamp and the signal of the device's timeline."""
        encode.time_stamp(self._commands, Local(8))
        self.out.signal = encode.signal(self._commands, self._scratch)
        self.out.words = self._commands.words
        self.out.links = self._commands.links
        return self.out

    def _operation(self, operation: Operation) -> None:
        match operation:
            case Dispatch():
                self._bound_dispatch(operation)
            case Wait(target):
                self.out.waits.append((encode.wait(self._commands), target))
            case Barrier():
                encode.barrier(self._commands, self._scratch)
                self._in_flight.clear()
            case TimeStamp(slot):
                encode.time_stamp(self._commands, Local(8 * (2 + slot)))
                self._in_flight.clear()
            case Signal(target):
                self.out.signals.append((encode.signal(self._commands, self._scratch), target))
                self._in_flight.clear()

    def _bound_dispatch(self, operation: Dispatch) -> None:
        program: Program = operation.program
        block, _ = self.dispatch(program, operation.geometry)
        program.fill(operation, self.out.data, block, self.out.parameters)
        self.out.uses += operation.uses
        self.out.keep.append(program)

    def dispatch(self, program: Program, geometry: Geometry) -> tuple[int, DispatchPlaces]:
        """Append a dispatch and room for its argument block; return where that is, and what may change."""
        device, out = self._device, self.out
        modes = self._separate(program)
        block = -(-len(out.data) // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT
        out.data.extend(bytes(block + program.layout.nbytes - len(out.data)))
        places = encode.dispatch(
            self._commands,
            device.chip,
            program,
            geometry,
            block,
            scratch=self._scratch,
            border=device.border_address(),
            modes=modes,
        )
        out.stack.append(places.stack)
        out.stack_bytes = max(out.stack_bytes, device.stack_bytes(program.source.private_bytes))
        return block, places

    def _separate(self, program: Program) -> bool:
        """Wait for the launches in flight if the next one must not overlap with them; return whether it needs
        other modes.

        Modes are common to all of them. Private memory is placed by thread slot and size per thread, so
        launches share it only if their sizes are equal.
        """
        source = program.source
        modes = source.dialect != self._dialect
        private = PrivateMemory.of(self._device.chip, source.private_bytes).bytes_per_fiber
        clash = private and self._in_flight - {0, private}
        if self._in_flight and (modes or clash):
            encode.idle(self._commands)
            self._in_flight.clear()
        self._dialect = source.dialect
        self._in_flight.add(private)
        return modes
