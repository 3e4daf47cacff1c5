"""The virtual KGSL: the kernel's side of ``/dev/kgsl-3d0``.

It models Qualcomm's out-of-tree driver of 2025 (``qualcomm-linux/kgsl``, interface version 3.14) with a
64-bit client and per-process page tables: ``kgsl.c``, ``kgsl_ioctl.c``, ``kgsl_drawobj.c``,
``adreno_drawctxt.c``, ``adreno_dispatch.c``. There is no secure memory, no LPAC, no I/O coherence and there
are no DMA buffers. Not modelled, and answered with ENOTTY and a note: the submission ioctls before
GPU_COMMAND, sync sources, timelines, performance and preemption counters and fault reports.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from ringfence.errors import FaultReport
from ringfence.hardware.adreno import kgsl
from ringfence.hardware.adreno.chips import Chip
from ringfence.hardware.adreno.kgsl import (
    CONTEXT_FLAGS,
    MEMFLAGS,
    CommandBatchFlags,
    CommandListFlags,
    ConstraintType,
    FreeFlags,
    GpuEvent,
    ObjectListFlags,
    PowerLevel,
    Property,
    ResetStatus,
    SetInfoFlags,
    SyncPointType,
    TimestampEvent,
    TimestampType,
    UserMemoryType,
)
from ringfence.hardware.fields import Direction, Ioctl
from ringfence.virtual.adreno.command_processor import Services, look_ahead
from ringfence.virtual.adreno.contexts import (
    QUEUE_DEPTH,
    RINGS,
    Batch,
    Context,
    Event,
    HangDetector,
    Ring,
    SyncPoint,
    newer_or_equal,
)
from ringfence.virtual.adreno.fences import Fences, fence_number
from ringfence.virtual.adreno.objects import (
    KERNEL_WINDOW,
    LOW_WINDOW,
    SVM_WINDOW,
    MemoryObject,
    ObjectTable,
)
from ringfence.virtual.adreno.properties import MEMSTORE_BYTES, MEMSTORE_TOKEN, property_data, sysfs
from ringfence.virtual.checks import Refused
from ringfence.virtual.clock import always_on_ticks
from ringfence.virtual.memory import (
    PAGE,
    AddressSpace,
    Backing,
    BadAddress,
    protect_pages,
    read_user,
    round_up,
    write_user,
)

if TYPE_CHECKING:
    from ringfence.virtual.machine import Engine, LiveObjects, Machine

MAX_CONTEXTS_PER_PROCESS = 200
MEMSTORE_RECORD = ctypes.sizeof(kgsl.DEVMEMSTORE)
MAX_CONTEXT_ID = MEMSTORE_BYTES // MEMSTORE_RECORD - 19  # the rest of the memstore is the kernel's own
DEFAULT_PRIORITY = 8
QUEUE_TIMEOUT = 10.0
DETACH_TIMEOUT = 30.0
INT_MAX = 0x7FFFFFFF
MAX_BULK = PAGE // 4
LOOKED_AT = 4096  # buffers that were looked into, so that a replayed one is not looked into again
SYSFS = "/sys/class/kgsl/"

_CONTEXT_FLAGS = sum(
    CONTEXT_FLAGS.FIELDS[name].mask
    for name in (
        "NO_GMEM_ALLOC",
        "CTX_SWITCH",
        "PREAMBLE",
        "PER_CONTEXT_TS",
        "USER_GENERATED_TS",
        "NO_FAULT_TOLERANCE",
        "PWR_CONSTRAINT",
        "PRIORITY",
        "IFH_NOP",
        "NO_SNAPSHOT",
        "TYPE",
        "PREEMPT_STYLE",
        "INVALIDATE_ON_FAULT",
        "FAULT_INFO",
    )
)
_IB_KINDS = CommandListFlags.IB | CommandListFlags.CTXTSWITCH_PREAMBLE | CommandListFlags.IB_PREAMBLE

S = TypeVar("S", bound=ctypes.Structure)


@dataclass(slots=True)
class Process:
    """What all descriptors of the client share."""

    objects: ObjectTable
    contexts: dict[int, Context] = field(default_factory=dict)
    looked_at: set[tuple[int, int]] = field(default_factory=set)


class KgslDevice:
    """One GPU behind ``/dev/kgsl-3d<index>``."""

    def __init__(self, machine: Machine, chip: Chip, index: int) -> None:
        self.machine = machine
        self.chip = chip
        self.name = f"kgsl-3d{index}"
        self.paths = (f"/dev/{self.name}",)
        self._process: Process | None = None
        self._tables: list[ObjectTable] = []
        self._handles: set[int] = set()
        self._last_handle = 0
        self._memstore: Backing | None = None
        self._fences = Fences()
        self.engines: Sequence[Engine] = ()
        self._handlers = _handlers(self)

    # ----- device node ------------------------------------------------------------------------

    def open(self, path: str) -> int:
        if self._process is None:
            self._process = Process(ObjectTable(self.machine))
            self._tables.append(self._process.objects)
            self._memstore = Backing(MEMSTORE_BYTES)
            self._make_engines(self._process)
        self._last_handle += 1
        self._handles.add(self._last_handle)
        return self._last_handle

    def close(self, handle: int) -> None:
        """Destroy the contexts of a descriptor; with the last one, the objects of the process."""
        process = self._current
        for context in [c for c in process.contexts.values() if c.handle == handle]:
            self._destroy_context(context)
        self._handles.discard(handle)
        if not self._handles:
            process.objects.free_all()
            self._fences.close()
            assert self._memstore is not None
            self.machine.defer(self._memstore.release)
            self._process, self._memstore, self.engines = None, None, ()

    def _make_engines(self, process: Process) -> None:
        machine = self.machine
        services = Services(
            self.chip,
            process.objects.memory,
            machine.faults,
            lambda: always_on_ticks(machine.clock.now()),
            (lambda: machine.clock.charge(machine.costs.packet)) if machine.clock.modelled else None,
        )

        def contexts_of(ring: int) -> Callable[[], list[Context]]:
            return lambda: [c for c in process.contexts.values() if c.queue and c.ring == ring]

        rings = [
            Ring(machine, services, process.objects, contexts_of(i), self._changed) for i in range(RINGS)
        ]
        self._rings = rings
        self.engines = [*rings, HangDetector(machine, rings)]

    @property
    def _current(self) -> Process:
        assert self._process is not None
        return self._process

    @property
    def memory(self) -> AddressSpace:
        """What the GPU can address; the device must be open."""
        return self._current.objects.memory

    def doorbell(self, address: int) -> None:
        """KGSL has no doorbells."""

    def list_directory(self, path: str) -> list[str] | None:
        """The files of KGSL are looked up by name."""
        return None

    def read_text(self, path: str) -> str | None:
        prefix = f"{SYSFS}{self.name}/"
        if not path.startswith(prefix):
            return None
        busy = any(context.queue or context.running for context in self._all_contexts())
        return sysfs(self.chip, path.removeprefix(prefix), float(busy))

    def _all_contexts(self) -> list[Context]:
        return [] if self._process is None else list(self._process.contexts.values())

    def explain(self, handle: int, context: int) -> FaultReport | None:
        found = self._process.contexts.get(context) if self._process is not None else None
        return found.report if found is not None and found.handle == handle else None

    def live(self) -> LiveObjects:
        from ringfence.virtual.machine import LiveObjects

        # Objects of a closed process live on while the client has them mapped.
        self._tables = [table for table in self._tables if table.backing_count]
        return LiveObjects(
            contexts=len(self._all_contexts()),
            objects=sum(table.object_count for table in self._tables),
            imports=sum(table.import_count for table in self._tables),
            backings=sum(table.backing_count for table in self._tables),
        )

    def clean(self, address: int, length: int) -> None:
        if self._process is not None:
            self._process.objects.clean(address, length)

    def invalidate(self, address: int, length: int) -> None:
        if self._process is not None:
            self._process.objects.invalidate(address, length)

    # ----- mmap -------------------------------------------------------------------------------

    def mmap(
        self, handle: int, length: int, offset: int, writable: bool, address: int
    ) -> tuple[int, int, str]:
        try:
            if address:
                raise Refused(errno.EINVAL, "KGSL chooses the addresses of its mappings")
            return self._mmap(length, offset, writable), 0, ""
        except Refused as refused:
            return 0, refused.errno, refused.reason

    def _mmap(self, length: int, offset: int, writable: bool) -> int:
        if length <= 0 or offset % PAGE:
            raise Refused(errno.EINVAL, f"length {length:#x} is 0 or offset {offset:#x} is not page aligned")
        length = round_up(length)
        if offset == MEMSTORE_TOKEN:
            return self._mmap_memstore(length, writable)
        address = self._current.objects.mmap(offset >> kgsl.PAGE_SHIFT, offset, length)
        if not writable:
            protect_pages(address, length)
        return address

    def _mmap_memstore(self, length: int, writable: bool) -> int:
        if writable:
            raise Refused(errno.EPERM, "the memory store can only be mapped for reading")
        if length != MEMSTORE_BYTES:
            raise Refused(errno.EINVAL, f"the memory store has {MEMSTORE_BYTES} bytes, not {length}")
        assert self._memstore is not None
        address = self._memstore.duplicate()
        protect_pages(address, length)
        self.machine.mappings.add(address, length, lambda: None)
        return address

    # ----- ioctl ------------------------------------------------------------------------------

    def ioctl(self, handle: int, request: int, address: int) -> tuple[int, str]:
        """Dispatch by number alone, with size-tolerant copies, as ``kgsl_ioctl_helper`` does."""
        declared = kgsl.IOCTLS.get(request & 0xFF)
        fault = None
        if declared is not None and self.machine.faults.active:
            fault = self.machine.faults.call(declared.__name__)
        if fault is not None and not fault.after_effect:
            return fault.errno, "a fault of this machine says so"
        try:
            self._ioctl(handle, request, address, declared, copy_back=fault is None)
        except Refused as refused:
            return refused.errno, refused.reason
        except BadAddress as error:
            return errno.EFAULT, str(error)
        if fault is not None:
            return fault.errno, "a fault of this machine says so"
        return 0, ""

    def _ioctl(
        self, handle: int, request: int, address: int, declared: type[Ioctl] | None, copy_back: bool
    ) -> None:
        handler = self._handlers.get(declared) if declared is not None else None
        if declared is None or handler is None:
            self._unknown(request, declared)
            return
        size = min(request >> 16 & 0x3FFF, ctypes.sizeof(declared))
        argument = declared()
        if declared.DIRECTION & Direction.WRITE:
            ctypes.memmove(ctypes.addressof(argument), read_user(address, size), size)
        if declared is kgsl.CMDSTREAM_READTIMESTAMP_CTXTID:
            self.machine.progress()
        elif declared is not kgsl.GPU_COMMAND:
            self.machine.wander()
        if handle not in self._handles:
            raise Refused(errno.EBADF, "the descriptor was closed meanwhile")
        handler(handle, argument)
        if declared.DIRECTION & Direction.READ and copy_back:
            write_user(address, bytes(argument)[:size])

    def _unknown(self, request: int, declared: type[Ioctl] | None) -> None:
        name = declared.__name__ if declared is not None else f"{request & 0xFF:#04x}"
        self.machine.notes.unsupported(f"KGSL ioctl {name}", "answered with ENOTTY")
        raise Refused(errno.ENOTTY, f"this kernel has no ioctl {name}")

    # ----- properties -------------------------------------------------------------------------

    def get_property(self, handle: int, argument: kgsl.DEVICE_GETPROPERTY) -> None:
        if argument.type == Property.GPU_RESET_STAT:
            self._reset_status(handle, argument)
            return
        data = property_data(self.chip, argument.type)
        if data is None:
            raise Refused(errno.ENODEV, f"property {argument.type:#x} is not known or can only be set")
        if argument.type == Property.VERSION and argument.sizebytes != len(data):
            raise Refused(errno.EINVAL, f"VERSION has {len(data)} bytes, not {argument.sizebytes}")
        write_user(argument.value, data[: argument.sizebytes])

    def _reset_status(self, handle: int, argument: kgsl.DEVICE_GETPROPERTY) -> None:
        if argument.sizebytes != 4:
            raise Refused(errno.EINVAL, f"GPU_RESET_STAT has 4 bytes, not {argument.sizebytes}")
        number = int.from_bytes(read_user(argument.value, 4), "little")
        context = self._context(handle, number)
        write_user(argument.value, int(context.reset_status).to_bytes(4, "little"))
        context.reset_status = ResetStatus.NO_ERROR

    def set_property(self, handle: int, argument: kgsl.SETPROPERTY) -> None:
        if argument.type not in (Property.PWR_CONSTRAINT, Property.L3_PWR_CONSTRAINT):
            raise Refused(errno.ENODEV, f"property {argument.type:#x} cannot be set")
        size = ctypes.sizeof(kgsl.DEVICE_CONSTRAINT)
        if argument.sizebytes != size:
            raise Refused(errno.EINVAL, f"the constraint has {size} bytes, not {argument.sizebytes}")
        constraint = _read(kgsl.DEVICE_CONSTRAINT, argument.value)
        context = self._context(handle, constraint.context_id)
        if constraint.type in (ConstraintType.NONE, ConstraintType.L3_NONE):
            context.power_level = None
            return
        if constraint.type not in (ConstraintType.PWRLEVEL, ConstraintType.L3_PWRLEVEL):
            raise Refused(errno.EINVAL, f"constraint type {constraint.type} does not exist")
        if constraint.size != ctypes.sizeof(kgsl.DEVICE_CONSTRAINT_PWRLEVEL):
            raise Refused(errno.EINVAL, f"the power level has 4 bytes, not {constraint.size}")
        level = _read(kgsl.DEVICE_CONSTRAINT_PWRLEVEL, constraint.data).level
        if level > PowerLevel.PWR_MAX:
            raise Refused(errno.EINVAL, f"power level {level} does not exist: 0 is minimum, 1 maximum")
        context.power_level = level
        self.machine.notes.approximate("power constraints", "accepted; the virtual GPU has one speed")

    # ----- contexts ---------------------------------------------------------------------------

    def _context(self, handle: int, number: int) -> Context:
        context = self._current.contexts.get(number)
        if context is None:
            raise Refused(errno.EINVAL, f"no context has the id {number}")
        if context.handle != handle:
            raise Refused(errno.EINVAL, f"context {number} belongs to another descriptor")
        return context

    def create_context(self, handle: int, argument: kgsl.DRAWCTXT_CREATE) -> None:
        flags = argument.flags
        contexts = self._current.contexts
        if len(contexts) > MAX_CONTEXTS_PER_PROCESS:
            raise Refused(errno.ENOSPC, f"this process has {len(contexts)} contexts")
        if not CONTEXT_FLAGS.get(flags, "PREAMBLE") or not CONTEXT_FLAGS.get(flags, "NO_GMEM_ALLOC"):
            raise Refused(errno.EINVAL, "the flags PREAMBLE and NO_GMEM_ALLOC are mandatory")
        for name in ("SECURE", "LPAC"):
            if CONTEXT_FLAGS.get(flags, name):
                raise Refused(errno.EOPNOTSUPP, f"this device has no {name} contexts")
        number = next((i for i in range(1, MAX_CONTEXT_ID + 1) if i not in contexts), None)
        if number is None:
            raise Refused(errno.ENOSPC, "no context id is free")
        accepted = flags & _CONTEXT_FLAGS | CONTEXT_FLAGS.pack(PER_CONTEXT_TS=1)
        if not CONTEXT_FLAGS.get(accepted, "PRIORITY"):
            accepted |= CONTEXT_FLAGS.pack(PRIORITY=DEFAULT_PRIORITY)
        contexts[number] = context = Context(number, handle, accepted)
        self._store_timestamps(context)
        argument.flags, argument.drawctxt_id = accepted, number

    def destroy_context(self, handle: int, argument: kgsl.DRAWCTXT_DESTROY) -> None:
        self._destroy_context(self._context(handle, argument.drawctxt_id))

    def _destroy_context(self, context: Context) -> None:
        """Detach.

        What is queued is dropped, what runs is waited for (or, at the end of its patience, stopped).
        """
        context.detached = True
        context.queue.clear()
        self.machine.notify()
        if context.running is not None and not self.machine.closed:
            deadline = self.machine.clock.now() + DETACH_TIMEOUT
            self.machine.wait_until(lambda: context.running is None, deadline)
        for ring in self._rings:
            ring.abandon(context)
        context.consumed = context.retired = context.queued
        self._changed(context)
        self._current.contexts.pop(context.id, None)

    def _changed(self, context: Context) -> None:
        """Timestamps of a context moved: show them, and do what waited for them."""
        self._store_timestamps(context)
        due = [event for event in context.events if context.has_retired(event.timestamp)]
        context.events = [event for event in context.events if not context.has_retired(event.timestamp)]
        for event in due:
            event.action()
        self.machine.notify()

    def _store_timestamps(self, context: Context) -> None:
        assert self._memstore is not None
        record = kgsl.DEVMEMSTORE.from_address(self._memstore.host_address + context.id * MEMSTORE_RECORD)
        record.soptimestamp, record.eoptimestamp = context.consumed, context.retired

    # ----- timestamps -------------------------------------------------------------------------

    def read_timestamp(self, handle: int, argument: kgsl.CMDSTREAM_READTIMESTAMP_CTXTID) -> None:
        context = self._context(handle, argument.context_id)
        values = {
            TimestampType.CONSUMED: context.consumed,
            TimestampType.RETIRED: context.retired,
            TimestampType.QUEUED: context.queued,
        }
        if argument.type not in values:
            raise Refused(errno.EINVAL, f"timestamp type {argument.type} does not exist")
        argument.timestamp = values[TimestampType(argument.type)]

    def wait_timestamp(self, handle: int, argument: kgsl.DEVICE_WAITTIMESTAMP_CTXTID) -> None:
        context = self._context(handle, argument.context_id)
        if context.invalid:
            raise Refused(errno.EDEADLK, f"context {context.id} is invalid: {context.report}")
        self._check_not_future(context, argument.timestamp)
        endless = argument.timeout == 0 or argument.timeout > INT_MAX
        deadline = None if endless else self.machine.clock.now() + argument.timeout / 1000
        retired = self._sleep(context, argument.timestamp, deadline)
        if context.invalid:
            raise Refused(errno.EDEADLK, f"context {context.id} is invalid: {context.report}")
        if context.detached:
            raise Refused(errno.ENOENT, f"context {context.id} was destroyed meanwhile")
        if not retired:
            raise Refused(
                errno.ETIMEDOUT,
                f"timestamp {argument.timestamp} did not retire; {context.retired} has, "
                f"{context.queued} is queued",
            )
        self._report_recovery(context)

    def _sleep(self, context: Context, timestamp: int, deadline: float | None) -> bool:
        faults = self.machine.faults
        if faults.active and not context.has_retired(timestamp) and faults.early("call"):
            return True
        return self.machine.wait_until(
            lambda: context.invalid or context.detached or context.has_retired(timestamp), deadline
        )

    def _check_not_future(self, context: Context, timestamp: int) -> None:
        if not context.flag("USER_GENERATED_TS") and not newer_or_equal(context.queued, timestamp):
            raise Refused(
                errno.EINVAL, f"timestamp {timestamp} is newer than the last one queued, {context.queued}"
            )

    def _report_recovery(self, context: Context) -> None:
        if context.recovered:
            context.recovered = False
            raise Refused(errno.EPROTO, f"context {context.id} recovered from a fault: {context.report}")

    def timestamp_event(self, handle: int, argument: kgsl.TIMESTAMP_EVENT) -> None:
        if argument.type != TimestampEvent.FENCE:
            raise Refused(errno.EINVAL, f"timestamp event {argument.type} is not supported: 2 (fence) is")
        if argument.len != ctypes.sizeof(kgsl.TIMESTAMP_EVENT_FENCE):
            raise Refused(errno.EINVAL, f"the fence has 4 bytes, not {argument.len}")
        context = self._context(handle, argument.context_id)
        self._check_not_future(context, argument.timestamp)
        try:
            descriptor, number = self._fences.create(context.has_retired(argument.timestamp))
        except OSError as error:
            raise Refused(error.errno or errno.ENOMEM, str(error)) from error
        try:
            write_user(argument.priv, descriptor.to_bytes(4, "little"))
        except BadAddress:
            os.close(descriptor)
            self._fences.signal(number)
            raise
        if not self._fences.has_signalled(number):
            context.events.append(Event(argument.timestamp, lambda: self._fences.signal(number)))

    # ----- submission -------------------------------------------------------------------------

    def gpu_command(self, handle: int, argument: kgsl.GPU_COMMAND) -> None:
        if (
            argument.numcmds > kgsl.MAX_COMMANDS
            or argument.numobjs > kgsl.MAX_COMMANDS
            or argument.numsyncs > kgsl.MAX_SYNCPOINTS
        ):
            raise Refused(
                errno.EINVAL,
                f"{argument.numcmds} commands, {argument.numobjs} objects, {argument.numsyncs} sync points: "
                f"at most {kgsl.MAX_COMMANDS}, {kgsl.MAX_COMMANDS} and {kgsl.MAX_SYNCPOINTS} are allowed",
            )
        context = self._context(handle, argument.context_id)
        sync, marker, command = _batch_kinds(argument)
        points = self._sync_points(context, argument) if sync else []
        commands = self._commands(argument) if command else []
        if command or marker:
            self._check_objects(argument)
        self._check_alive(context)
        buffers = [self._check_buffer(entry) for entry in commands]
        self._wait_for_room(context)
        self._enqueue(context, argument, points, buffers if command else None, command or marker)
        self._look_ahead(buffers)
        self._report_recovery(context)

    def _enqueue(
        self,
        context: Context,
        argument: kgsl.GPU_COMMAND,
        points: list[SyncPoint],
        buffers: list[tuple[int, int]] | None,
        takes_timestamp: bool,
    ) -> None:
        timestamp = self._next_timestamp(context, argument.timestamp) if takes_timestamp else 0
        context.queue.extend(points)
        if takes_timestamp:
            context.queue.append(Batch(timestamp, buffers or ()))
            context.queued = timestamp
        argument.timestamp = timestamp
        self.machine.notify()

    def _next_timestamp(self, context: Context, given: int) -> int:
        if not context.flag("USER_GENERATED_TS"):
            return (context.queued + 1) & 0xFFFFFFFF
        if newer_or_equal(context.queued, given):
            raise Refused(errno.ERANGE, f"timestamp {given} is not newer than the last one, {context.queued}")
        return given

    def _check_alive(self, context: Context) -> None:
        if context.detached:
            raise Refused(errno.ENOENT, f"context {context.id} was destroyed")
        if context.invalid:
            raise Refused(errno.EDEADLK, f"context {context.id} is invalid: {context.report}")

    def _wait_for_room(self, context: Context) -> None:
        if context.full:
            deadline = self.machine.clock.now() + QUEUE_TIMEOUT
            ended = self.machine.wait_until(
                lambda: not context.full or context.invalid or context.detached, deadline
            )
            if not ended:
                raise Refused(
                    errno.ETIMEDOUT, f"the queue of {QUEUE_DEPTH} batches stayed full for {QUEUE_TIMEOUT:g} s"
                )
            self._check_alive(context)

    def _commands(self, argument: kgsl.GPU_COMMAND) -> list[kgsl.COMMAND_OBJECT]:
        entries = _read_list(
            kgsl.COMMAND_OBJECT, argument.cmdlist, argument.cmdsize, argument.numcmds, "command"
        )
        for entry in entries:
            if not entry.flags & _IB_KINDS:
                raise Refused(errno.EINVAL, f"a command has flags {entry.flags:#x}: it is no indirect buffer")
        return entries

    def _check_objects(self, argument: kgsl.GPU_COMMAND) -> None:
        if not (argument.numobjs or argument.objlist or argument.objsize):
            return
        entries = _read_list(
            kgsl.COMMAND_OBJECT, argument.objlist, argument.objsize, argument.numobjs, "object"
        )
        for entry in entries:
            if entry.flags & ObjectListFlags.PROFILE:
                self.machine.notes.unsupported("KGSL profiling buffers", "GPU_COMMAND answers EOPNOTSUPP")
                raise Refused(errno.EOPNOTSUPP, "profiling buffers are not modelled")
            if not entry.flags & ObjectListFlags.MEMOBJ:
                raise Refused(errno.EINVAL, f"an object has flags {entry.flags:#x}: it is no memory object")

    def _check_buffer(self, entry: kgsl.COMMAND_OBJECT) -> tuple[int, int]:
        dwords = entry.size >> 2
        if entry.size == 0 or not 0 < dwords <= kgsl.MAX_IB_DWORDS:
            raise Refused(errno.EINVAL, f"an indirect buffer has {entry.size} bytes")
        if entry.gpuaddr % 4:
            raise Refused(errno.EINVAL, f"indirect buffer address {entry.gpuaddr:#x} is not 4-byte aligned")
        if not any(entry.gpuaddr in window for window in (SVM_WINDOW, KERNEL_WINDOW, LOW_WINDOW)):
            raise Refused(
                errno.EINVAL, f"indirect buffer address {entry.gpuaddr:#x} is outside the GPU's range"
            )
        return entry.gpuaddr, dwords * 4

    def _look_ahead(self, buffers: list[tuple[int, int]]) -> None:
        """Have the programs translated while the submission waits for its turn."""
        process = self._current
        new = [buffer for buffer in buffers if buffer not in process.looked_at]
        if not new:
            return
        if len(process.looked_at) > LOOKED_AT:
            process.looked_at.clear()
        process.looked_at.update(new)
        dispatches = look_ahead(self.chip, process.objects.memory, new)
        if dispatches:
            self.machine.executor("ir3").prepare(dispatches)

    def _sync_points(self, context: Context, argument: kgsl.GPU_COMMAND) -> list[SyncPoint]:
        entries = _read_list(
            kgsl.COMMAND_SYNCPOINT, argument.synclist, argument.syncsize, argument.numsyncs, "sync point"
        )
        return [self._sync_point(context, entry) for entry in entries]

    def _sync_point(self, context: Context, entry: kgsl.COMMAND_SYNCPOINT) -> SyncPoint:
        if entry.type == SyncPointType.TIMESTAMP:
            return self._timestamp_point(context, _read(kgsl.CMD_SYNCPOINT_TIMESTAMP, entry.priv, entry.size))
        if entry.type == SyncPointType.FENCE:
            number = fence_number(_read(kgsl.CMD_SYNCPOINT_FENCE, entry.priv, entry.size).fd)
            if number is None or not self._fences.known(number):
                raise Refused(
                    errno.EINVAL, "the descriptor of a fence sync point is no sync file of this device"
                )
            return SyncPoint(lambda: self._fences.has_signalled(number), f"fence {number}")
        if entry.type == SyncPointType.TIMELINE:
            self.machine.notes.unsupported("KGSL timelines", "sync points on them answer EINVAL")
            raise Refused(errno.EINVAL, "timelines are not modelled")
        raise Refused(errno.EINVAL, f"sync point type {entry.type} does not exist")

    def _timestamp_point(self, context: Context, point: kgsl.CMD_SYNCPOINT_TIMESTAMP) -> SyncPoint:
        other = self._current.contexts.get(point.context_id)
        if other is None:
            raise Refused(
                errno.EINVAL, f"a sync point names context {point.context_id}, which does not exist"
            )
        if other is context and not newer_or_equal(context.queued, point.timestamp):
            raise Refused(
                errno.EINVAL,
                f"a sync point waits for timestamp {point.timestamp} of its own context, "
                "which is not queued yet",
            )
        timestamp = point.timestamp
        return SyncPoint(
            lambda: other.detached or other.invalid or other.has_retired(timestamp),
            f"timestamp {timestamp} of context {other.id}",
        )

    # ----- memory -----------------------------------------------------------------------------

    def gpuobj_alloc(self, handle: int, argument: kgsl.GPUOBJ_ALLOC) -> None:
        label = _label(argument.metadata, argument.metadata_len)
        created = self._current.objects.allocate(argument.size, argument.flags, label)
        argument.size = argument.mmapsize = created.size
        argument.flags, argument.id = created.flags, created.id

    def gpuobj_free(self, handle: int, argument: kgsl.GPUOBJ_FREE) -> None:
        if argument.flags & ~int(FreeFlags.FREE_ON_EVENT):
            raise Refused(errno.EINVAL, f"unknown flags {argument.flags:#x}")
        entry = self._current.objects.by_id(argument.id)
        if not argument.flags & FreeFlags.FREE_ON_EVENT:
            self._free(entry)
        elif argument.type == GpuEvent.TIMESTAMP:
            event = _read(kgsl.GPU_EVENT_TIMESTAMP, argument.priv, argument.len)
            self._free_on_timestamp(handle, entry, event.context_id, event.timestamp)
        elif argument.type == GpuEvent.FENCE:
            self._free_on_fence(entry, _read(kgsl.GPU_EVENT_FENCE, argument.priv, argument.len).fd)
        else:
            raise Refused(errno.EINVAL, f"event type {argument.type} does not exist")

    def _free(self, entry: MemoryObject) -> None:
        objects = self._current.objects
        objects.mark_free(entry)
        objects.free(entry)

    def _free_on_timestamp(self, handle: int, entry: MemoryObject, number: int, timestamp: int) -> None:
        context = self._context(handle, number)
        self._check_not_future(context, timestamp)
        objects = self._current.objects
        objects.mark_free(entry)
        if context.has_retired(timestamp):
            objects.free(entry)
        else:
            context.events.append(Event(timestamp, lambda: objects.free(entry)))

    def _free_on_fence(self, entry: MemoryObject, descriptor: int) -> None:
        number = fence_number(descriptor)
        if number is None or not self._fences.known(number):
            raise Refused(errno.EINVAL, f"descriptor {descriptor} is no sync file of this device")
        objects = self._current.objects
        objects.mark_free(entry)
        self._fences.when_signalled(number, lambda: objects.free(entry))

    def gpuobj_info(self, handle: int, argument: kgsl.GPUOBJ_INFO) -> None:
        entry = self._current.objects.by_id(argument.id)
        argument.gpuaddr, argument.flags = entry.gpu_address, entry.flags
        argument.size = argument.va_len = entry.size
        argument.va_addr = 0

    def gpuobj_set_info(self, handle: int, argument: kgsl.GPUOBJ_SET_INFO) -> None:
        entry = self._current.objects.by_id(argument.id)
        if argument.flags & SetInfoFlags.METADATA:
            self._current.objects.rename(entry, _label(argument.metadata, argument.metadata_len))
        if argument.flags & SetInfoFlags.TYPE:
            entry.flags &= ~MEMFLAGS.FIELDS["MEMTYPE"].mask
            entry.flags |= MEMFLAGS.pack(MEMTYPE=argument.type & 0xFF)

    def gpuobj_import(self, handle: int, argument: kgsl.GPUOBJ_IMPORT) -> None:
        if argument.type == UserMemoryType.ADDR:
            size = min(argument.priv_len, ctypes.sizeof(kgsl.GPUOBJ_IMPORT_USERADDR))
            address = _read(kgsl.GPUOBJ_IMPORT_USERADDR, argument.priv, size).virtaddr
            entry = self._current.objects.import_user(address, argument.priv_len, argument.flags)
            argument.id, argument.flags = entry.id, entry.flags
        elif argument.type == UserMemoryType.DMABUF:
            self._refuse_dma_buf(_read(kgsl.GPUOBJ_IMPORT_DMA_BUF, argument.priv, argument.priv_len).fd)
        else:
            raise Refused(errno.EOPNOTSUPP, f"memory type {argument.type} is not supported")

    def map_user_mem(self, handle: int, argument: kgsl.MAP_USER_MEM) -> None:
        if argument.memtype == UserMemoryType.DMABUF:
            self._refuse_dma_buf(argument.fd)
        if argument.memtype != UserMemoryType.ADDR:
            raise Refused(errno.EOPNOTSUPP, f"memory type {argument.memtype} is not supported")
        if argument.offset:
            raise Refused(errno.EINVAL, f"offset {argument.offset:#x} must be 0 for user memory")
        entry = self._current.objects.import_user(argument.hostptr, argument.len, argument.flags)
        argument.gpuaddr, argument.flags = entry.gpu_address, entry.flags & 0xFFFFFFFF

    def _refuse_dma_buf(self, descriptor: int) -> None:
        self.machine.notes.unsupported("DMA buffers", "imports answer EBADF or EINVAL")
        try:
            os.fstat(descriptor)
        except OSError as error:
            raise Refused(errno.EBADF, f"descriptor {descriptor} is not open") from error
        raise Refused(errno.EINVAL, f"descriptor {descriptor} is no DMA buffer: this machine has none")

    def sharedmem_free(self, handle: int, argument: kgsl.SHAREDMEM_FREE) -> None:
        self._free(self._current.objects.by_address(argument.gpuaddr))

    def free_on_timestamp(self, handle: int, argument: kgsl.CMDSTREAM_FREEMEMONTIMESTAMP_CTXTID) -> None:
        if argument.type != TimestampType.RETIRED:
            raise Refused(errno.EINVAL, f"timestamp type {argument.type}: only RETIRED frees memory")
        self._context(handle, argument.context_id)
        entry = self._current.objects.by_address(argument.gpuaddr)
        self._free_on_timestamp(handle, entry, argument.context_id, argument.timestamp)

    def gpumem_alloc(self, handle: int, argument: kgsl.GPUMEM_ALLOC) -> None:
        # The oldest call returns the address at once, so the CPU cannot choose it.
        flags = argument.flags & ~MEMFLAGS.FIELDS["USE_CPU_MAP"].mask
        created = self._current.objects.allocate(argument.size, flags)
        argument.gpuaddr, argument.size = created.gpu_address, created.size
        argument.flags = created.flags & 0xFFFFFFFF

    def gpumem_alloc_id(self, handle: int, argument: kgsl.GPUMEM_ALLOC_ID) -> None:
        created = self._current.objects.allocate(argument.size, argument.flags)
        argument.id, argument.flags = created.id, created.flags & 0xFFFFFFFF
        argument.size = argument.mmapsize = created.size
        argument.gpuaddr = created.gpu_address

    def gpumem_free_id(self, handle: int, argument: kgsl.GPUMEM_FREE_ID) -> None:
        self._free(self._current.objects.by_id(argument.id))

    def gpumem_get_info(self, handle: int, argument: kgsl.GPUMEM_GET_INFO) -> None:
        objects = self._current.objects
        entry = objects.by_id(argument.id) if argument.id else objects.by_address(argument.gpuaddr)
        argument.gpuaddr, argument.id = entry.gpu_address, entry.id
        argument.flags = entry.flags & 0xFFFFFFFF
        argument.size = argument.mmapsize = entry.size
        argument.useraddr = entry.user_address

    def sync_cache(self, handle: int, argument: kgsl.GPUMEM_SYNC_CACHE) -> None:
        objects = self._current.objects
        entry = objects.by_id(argument.id) if argument.id else objects.by_address(argument.gpuaddr)
        objects.maintain(entry, argument.op, argument.offset, argument.length)

    def sync_cache_bulk(self, handle: int, argument: kgsl.GPUMEM_SYNC_CACHE_BULK) -> None:
        if not argument.id_list or not 0 < argument.count <= MAX_BULK:
            raise Refused(errno.EINVAL, f"{argument.count} ids: 1 to {MAX_BULK} are allowed")
        data = read_user(argument.id_list, 4 * argument.count)
        ids = [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]
        objects = self._current.objects
        for entry in objects.existing(ids):
            objects.maintain(entry, argument.op & ~int(kgsl.CacheOperation.RANGE), 0, 0)

    def gpuobj_sync(self, handle: int, argument: kgsl.GPUOBJ_SYNC) -> None:
        if not 0 < argument.count <= kgsl.MAX_SYNC_OBJECTS:
            raise Refused(errno.EINVAL, f"{argument.count} ranges: 1 to {kgsl.MAX_SYNC_OBJECTS} are allowed")
        ranges = _read_list(kgsl.GPUOBJ_SYNC_OBJ, argument.objs, argument.obj_len, argument.count, "range")
        objects = self._current.objects
        for one in ranges:
            for entry in objects.existing([one.id]):
                objects.maintain(entry, one.op, one.offset, one.length)


_Handler = Callable[[int, Any], None]


def _handlers(device: KgslDevice) -> dict[type[Ioctl], _Handler]:
    return {
        kgsl.DEVICE_GETPROPERTY: device.get_property,
        kgsl.SETPROPERTY: device.set_property,
        kgsl.DRAWCTXT_CREATE: device.create_context,
        kgsl.DRAWCTXT_DESTROY: device.destroy_context,
        kgsl.CMDSTREAM_READTIMESTAMP_CTXTID: device.read_timestamp,
        kgsl.DEVICE_WAITTIMESTAMP_CTXTID: device.wait_timestamp,
        kgsl.TIMESTAMP_EVENT: device.timestamp_event,
        kgsl.GPU_COMMAND: device.gpu_command,
        kgsl.GPUOBJ_ALLOC: device.gpuobj_alloc,
        kgsl.GPUOBJ_FREE: device.gpuobj_free,
        kgsl.GPUOBJ_INFO: device.gpuobj_info,
        kgsl.GPUOBJ_SET_INFO: device.gpuobj_set_info,
        kgsl.GPUOBJ_IMPORT: device.gpuobj_import,
        kgsl.GPUOBJ_SYNC: device.gpuobj_sync,
        kgsl.MAP_USER_MEM: device.map_user_mem,
        kgsl.SHAREDMEM_FREE: device.sharedmem_free,
        kgsl.CMDSTREAM_FREEMEMONTIMESTAMP_CTXTID: device.free_on_timestamp,
        kgsl.GPUMEM_ALLOC: device.gpumem_alloc,
        kgsl.GPUMEM_ALLOC_ID: device.gpumem_alloc_id,
        kgsl.GPUMEM_FREE_ID: device.gpumem_free_id,
        kgsl.GPUMEM_GET_INFO: device.gpumem_get_info,
        kgsl.GPUMEM_SYNC_CACHE: device.sync_cache,
        kgsl.GPUMEM_SYNC_CACHE_BULK: device.sync_cache_bulk,
    }


def _batch_kinds(argument: kgsl.GPU_COMMAND) -> tuple[bool, bool, bool]:
    """Return whether a submission has sync points, is a marker, has commands (``_process_command_input``)."""
    if argument.flags & CommandBatchFlags.MARKER:
        return False, True, False
    if argument.flags & CommandBatchFlags.SYNC:
        return True, False, False
    sync, command = argument.numsyncs > 0, argument.numcmds > 0
    return sync, not sync and not command, command


def _read(layout: type[S], address: int, size: int | None = None) -> S:
    """Return a structure of the client; a ``size`` that it gave must be the structure's."""
    if size is not None and size != ctypes.sizeof(layout):
        raise Refused(errno.EINVAL, f"{layout.__name__} has {ctypes.sizeof(layout)} bytes, not {size}")
    return layout.from_buffer_copy(read_user(address, ctypes.sizeof(layout)))


def _read_list(layout: type[S], address: int, size: int, count: int, what: str) -> list[S]:
    """Return a list of structures of the client's ``size``, at the kernel's distance."""
    known = ctypes.sizeof(layout)
    if count == 0 or address == 0 or size == 0:
        raise Refused(errno.EINVAL, f"a {what} list of {count} elements of {size} bytes at {address:#x}")
    entries = []
    for i in range(count):
        data = read_user(address + i * known, size)
        if any(data[known:]):
            raise Refused(errno.EFAULT, f"{what} {i} has bytes beyond the {known} known that are not zero")
        entries.append(layout.from_buffer_copy(data[:known].ljust(known, b"\0")))
    return entries


def _label(address: int, length: int) -> str:
    """Return the metadata string of an object, which serves as its label."""
    if not address or not length:
        return ""
    data = read_user(address, min(length, kgsl.GPUOBJ_ALLOC_METADATA_MAX))
    return data.split(b"\0", 1)[0].decode("utf-8", "replace")
