"""An Adreno device behind KGSL: its life, submission, waiting, private memory, launches and streams."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ringfence.errors import DeviceLost, FaultReport, GpuFault, GpuHang, LaunchError, PortError
from ringfence.hardware.adreno import kgsl
from ringfence.hardware.adreno.chips import Chip, chip_from_id
from ringfence.hardware.adreno.program import AdrenoProgram, read_program
from ringfence.port import Port
from ringfence.runtime.commands import Payload
from ringfence.runtime.compute import DEFAULT_TIMEOUT, ComputeDevice, Identify, zero
from ringfence.runtime.device import DeviceInfo, Geometry
from ringfence.runtime.memory import Buffer, CacheMode, Memory
from ringfence.runtime.program import CompiledProgram, LaunchPlaces, blob_bytes
from ringfence.runtime.stream import Stack
from ringfence.runtime.timeline import SLOT_LIMIT, Fence

from . import encode
from .copy_programs import (
    COPY_LOCAL_SIZE,
    MAX_COPY_ELEMENTS,
    copy_element_bytes,
    copy_program,
)
from .encode import Commands, PrivateMemory
from .memory import MAX_BYTES, PAGE, KgslMemory
from .program import MAX_THREADS, Program

GPU_TICKS_PER_SECOND = (
    19_200_000  # CP_ALWAYS_ON_COUNTER; tinygrad's ops_qcom.py divides its ticks by 19.2 for us
)
DEFAULT_PRIORITY = 8
MAX_PRIORITY = 15
FIRST_STACK_BYTES = 4 * PAGE
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
    """One KGSL context: submission, sleeping on its time stamps, and what its loss means.

    ``identify`` adds labels to a report.
    """

    def __init__(self, port: Port, fd: int, label: str, *, priority: int, identify: Identify) -> None:
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
        self._identify = identify
        self._last_value = 0  # timeline value of the last submission, whose request holds its timestamp
        self._last = kgsl.GPU_COMMAND()
        self._ioctl = port.ioctl
        self._fence = port.fence

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
        self._fence()
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
        explained = self._port.explain(self._fd, self.context)
        if explained is None:
            text = (
                f"the kernel invalidated context {self.context} after a hang or a fault "
                f"({self._reset_status()}); the kernel log and its snapshot say more"
            )
            report = self._identify(FaultReport("unknown", text))
            raise DeviceLost(f"{self._label} is lost", report) from error
        report = self._identify(explained)
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


class AdrenoDevice(ComputeDevice):
    """The driver of one Adreno GPU. :class:`ringfence.api.Device` is what users see of it.

    Opening either succeeds or leaves nothing behind: no descriptor, context, memory object or mapping.
    """

    engine: KgslEngine
    max_bytes = MAX_BYTES
    copy_queue_note = NO_COPY_QUEUE
    program_class = Program

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
        if not isinstance(priority, int) or isinstance(priority, bool) or not 1 <= priority <= MAX_PRIORITY:
            raise LaunchError(
                f"context priority {priority!r}: 1 (most urgent) to {MAX_PRIORITY} are possible"
            )
        super().__init__(port, label or path)
        self.path = path
        with contextlib.ExitStack() as undo:
            self._fd = port.open(path)
            undo.callback(port.close, self._fd)
            self.found = look(port, self._fd)
            self.chip: Chip = chip_from_id(self.found.chip_id)
            # Undone in reverse order: the context dies, memory is released, the descriptor is closed.
            self.memory = Memory(KgslMemory(port, self._fd), self, self._lock)
            undo.callback(self.memory.close)
            undo.callback(self._let_go)
            self.engine = KgslEngine(port, self._fd, self.label, priority=priority, identify=self.identify)
            undo.callback(self.engine.destroy)
            if power is not None:
                self.engine.set_power(power)
            self._make_queue(GPU_TICKS_PER_SECOND, timeout=timeout, limit=timeline_limit)
            self.queue.timeline.fence = self.engine.fence
            self._scratch = self._pages("scratch and border colours", CacheMode.WRITE_COMBINE, 2 * PAGE)
            self._stack = self._grow_stack(FIRST_STACK_BYTES)
            zero(self._scratch)
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

    @property
    def domain(self) -> object:
        """Return what contexts of one address space have in common: the node, and whose process it is."""
        return ("kgsl", self.path, id(self.port) if self.port.virtual else "this process")

    # ----- private memory -------------------------------------------------------------------------

    def _grow_stack(self, nbytes: int) -> Stack:
        mapping = self._pages("private memory", CacheMode.WRITE_COMBINE, nbytes)
        return Stack(mapping, mapping.nbytes, mapping.gpu_address.to_bytes(8, "little"))

    def stack_bytes(self, private_bytes: int) -> int:
        """Return how much private memory a program with ``private_bytes`` per thread needs on this chip."""
        return PrivateMemory.of(self.chip, private_bytes).bytes_per_sp * self.chip.sp_cores

    # ----- programs -------------------------------------------------------------------------------

    def load(self, blob: bytes | CompiledProgram, *, label: str | None = None) -> Program:
        """Return a program in device memory; :class:`PackageError` if it cannot run here."""
        self.check_open()
        source = blob if isinstance(blob, AdrenoProgram) else read_program(blob_bytes(blob, self.chip.name))
        return Program(self, source, label)

    def find_program(self, program: Any) -> Program:
        """Return ``program``; :class:`LaunchError` if it is none, was freed, or is another device's."""
        if not isinstance(program, Program):
            raise LaunchError(f"{type(program).__name__} is not a program; load one with dev.load()")
        program.check_alive(self.memory)
        return program

    # ----- encoding -------------------------------------------------------------------------------

    def make_command(self, gpu_address: int, nbytes: int) -> Command:
        """Return the reusable submission of commands; :class:`LaunchError` if they are too long for one."""
        if nbytes > 4 * kgsl.MAX_IB_DWORDS:
            raise LaunchError(
                f"{self.label}: {nbytes} bytes of commands; KGSL takes {4 * kgsl.MAX_IB_DWORDS} at once: "
                "split the stream"
            )
        return self.engine.make_command(gpu_address, nbytes)

    def packets(self) -> AdrenoPackets:
        """Return an empty sequence of packets."""
        return AdrenoPackets(self)

    def border_address(self) -> int:
        """Return the GPU address of the border colours, all zero."""
        return self._scratch.gpu_address + PAGE

    def scratch_address(self) -> int:
        """Return the GPU address that cache flushes store their value to when nobody wants it."""
        return self._scratch.gpu_address

    # ----- copies ---------------------------------------------------------------------------------

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


class AdrenoPackets:
    """The packets of a stream, and what is in flight while they are appended."""

    def __init__(self, device: AdrenoDevice) -> None:
        self.commands = Commands()
        self._device = device
        self._scratch = device.scratch_address()
        self._dialect = ""  # whose modes are set
        self._in_flight: set[int] = set()  # private memory per thread of the launches since the GPU was idle

    def start(self) -> None:
        """Let programs see what the CPU wrote before the submission."""
        encode.barrier(self.commands, self._scratch)

    def finish(self) -> int:
        """Finish everything, then signal the device's timeline."""
        return encode.signal(self.commands, self._scratch)

    def barrier(self) -> None:
        """Finish everything before; later work sees its results."""
        encode.barrier(self.commands, self._scratch)
        self._in_flight.clear()

    def wait(self) -> int:
        """Wait until memory holds at least a value."""
        return encode.wait(self.commands)

    def signal(self) -> int:
        """Finish everything before, then store a value."""
        self._in_flight.clear()
        return encode.signal(self.commands, self._scratch)

    def time_stamp(self, address: Payload) -> None:
        """Finish everything before, then store the GPU's clock."""
        self._in_flight.clear()
        encode.time_stamp(self.commands, address)

    def stack_bytes(self, program: Program) -> int:
        """Return the private memory that a program needs, in all."""
        return self._device.stack_bytes(program.source.private_bytes)

    def launch(self, program: Program, geometry: Geometry, block: int) -> LaunchPlaces:
        """Launch a program whose argument block is at byte ``block`` of the data section."""
        modes = self._separate(program)
        return encode.dispatch(
            self.commands,
            self._device.chip,
            program,
            geometry,
            block,
            scratch=self._scratch,
            border=self._device.border_address(),
            modes=modes,
        )

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
            encode.idle(self.commands)
            self._in_flight.clear()
        self._dialect = source.dialect
        self._in_flight.add(private)
        return modes
