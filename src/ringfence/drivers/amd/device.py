"""An AMD GPU behind KFD: its life, scratch memory, programs, and what its packets are."""

from __future__ import annotations

import contextlib
import hashlib
import weakref
from collections.abc import Callable
from typing import Any

from ringfence.errors import LaunchError, PackageError
from ringfence.hardware.amd import kfd, pm4
from ringfence.hardware.amd.chips import Generation, generation_of
from ringfence.hardware.amd.code_object import CodeObject, load_code_object
from ringfence.hardware.amd.registers import registers_for
from ringfence.hardware.amd.topology import NodeProperties
from ringfence.port import Port
from ringfence.runtime.commands import Payload
from ringfence.runtime.compute import DEFAULT_TIMEOUT, ComputeDevice
from ringfence.runtime.device import DeviceInfo, Geometry
from ringfence.runtime.memory import Buffer, CacheMode, Memory
from ringfence.runtime.program import CompiledProgram, LaunchPlaces, blob_bytes
from ringfence.runtime.stream import Stack
from ringfence.runtime.timeline import SLOT_LIMIT

from . import encode
from .copy_programs import COPY_LOCAL_SIZE, MAX_COPY_ELEMENTS, copy_element_bytes, copy_program
from .encode import NO_SCRATCH, Commands, Scratch
from .kfd import (
    RING_BYTES,
    Command,
    Events,
    Gpu,
    KfdEngine,
    choose_gpu,
    find_gpus,
    process_of,
    supported,
)
from .memory import MAX_BYTES, KfdMemory
from .program import MAX_THREADS, Module, Program

NO_COPY_QUEUE = "copy queues are not driven by this version"


class AmdDevice(ComputeDevice):
    """The driver of one AMD GPU. :class:`ringfence.api.Device` is what users see of it.

    ``name`` chooses among the GPUs of the system: index, UUID or PCI address. ``visible`` is as
    ROCR_VISIBLE_DEVICES, which counts if it is ``None``. What belongs to the process (the descriptor of KFD,
    the render node, the event page) stays open for the next device, if the kernel is a real one.
    """

    engine: KfdEngine
    max_bytes = MAX_BYTES
    copy_queue_note = NO_COPY_QUEUE
    program_class = Program

    def __init__(
        self,
        port: Port,
        *,
        name: str = "0",
        visible: str | None = None,
        priority: int = kfd.NORMAL_QUEUE_PRIORITY,
        timeout: float = DEFAULT_TIMEOUT,
        label: str | None = None,
        timeline_limit: int = SLOT_LIMIT,
        ring_bytes: int = RING_BYTES,
    ) -> None:
        if (
            not isinstance(priority, int)
            or isinstance(priority, bool)
            or not 0 <= priority <= kfd.MAX_QUEUE_PRIORITY
        ):
            raise LaunchError(
                f"queue priority {priority!r}: 0 to {kfd.MAX_QUEUE_PRIORITY} (most urgent) are possible"
            )
        super().__init__(port, label or f"kfd:{name}")
        self.gpu: Gpu = choose_gpu(find_gpus(port, visible), name)
        self.target = supported(self.gpu)
        self.properties: NodeProperties = self.gpu.properties
        self._modules: weakref.WeakValueDictionary[bytes, Module] = weakref.WeakValueDictionary()
        process = self.process = process_of(port)
        with contextlib.ExitStack() as undo:
            # Undone in reverse order: the queue dies, then memory is released.
            process.users += 1
            undo.callback(process.leave, port)
            self.memory = Memory(KfdMemory(port, process, self.gpu), self, self._lock)
            undo.callback(self.memory.close)
            undo.callback(self._let_go)
            if not self.gpu.large_bar:
                self.memory.reachable = CacheMode.CACHED
                self.buffer_cache = CacheMode.DEVICE
            process.share_event_page(port, self.gpu)
            self.engine = KfdEngine(
                port,
                process,
                self.gpu,
                self.memory,
                self.label,
                ring_bytes=ring_bytes,
                priority=priority,
                timeout=timeout,
                identify=self.identify,
            )
            undo.callback(self.engine.destroy)
            self._make_queue(pm4.CLOCK_COUNTER_HZ, timeout=timeout, limit=timeline_limit)
            self._stack = self._no_stack()
            self._undo = undo.pop_all()
        self.info = self._describe(priority)

    def _describe(self, priority: int) -> DeviceInfo:
        properties = self.properties
        return DeviceInfo(
            name=f"{properties.arch} {self.gpu.uuid} at {properties.pci_address}{_dies(properties.xccs)}",
            family="amd",
            interface="kfd",
            chip=properties.arch,
            chip_id=properties.device_id,
            virtual=self.port.virtual,
            driver_version="KFD {}.{}".format(*self.process.version),
            shared_bytes=properties.lds_bytes,
            max_threads=MAX_THREADS,
            copy_queue=False,
            copy_note=f"{NO_COPY_QUEUE}: {self._kernel_refusal() or 'kernels copy between buffers'}, "
            "the CPU copies everything else",
            priority=priority,
        )

    @property
    def domain(self) -> object:
        """Return what devices have in common that see each other's timelines: only itself does."""
        return ("kfd", self.gpu.gpu_id, id(self))

    # ----- scratch memory -------------------------------------------------------------------------

    def _no_stack(self) -> Stack:
        mapping = self._pages("no scratch memory", CacheMode.UNCACHED)
        return Stack(mapping, 0, encode.scratch_dwords(self.target, 0, NO_SCRATCH))

    def _grow_stack(self, nbytes: int) -> Stack:
        slots = self.properties.max_slots_scratch_cu * self.properties.cus_per_xcc
        scratch = Scratch.of(self.properties, nbytes // (encode.LANES * slots))
        mapping = self._pages("scratch memory", CacheMode.DEVICE, scratch.nbytes)
        dwords = encode.scratch_dwords(self.target, mapping.gpu_address, scratch)
        return Stack(mapping, scratch.nbytes, dwords)

    def stack_bytes(self, private_bytes: int) -> int:
        """Return how much scratch memory a program with ``private_bytes`` per work-item needs in all."""
        return Scratch.of(self.properties, private_bytes).nbytes

    def _stack_of(self, program: Program) -> int:
        """Return the same of a program; :class:`LaunchError` if the card has not so much memory."""
        total = self.stack_bytes(program.private_bytes)
        if total > self.gpu.vram_bytes:
            waves = self.properties.max_slots_scratch_cu * self.properties.cus_per_xcc
            raise LaunchError(
                f"kernel {program.name!r} has {program.private_bytes} bytes of private memory per work-item: "
                f"for the {waves} waves of {encode.LANES} that can be resident these are {total} bytes, but "
                f"{self.label} has {self.gpu.vram_bytes}; use smaller private arrays"
            )
        return total

    # ----- programs -------------------------------------------------------------------------------

    def load(self, blob: bytes | CodeObject | CompiledProgram, *, label: str | None = None) -> Module:
        """Return a code object in device memory; :class:`PackageError` if it cannot run here.

        Loading the same bytes again returns the same module while it lives.
        """
        self.check_open()
        if isinstance(blob, CodeObject):
            return self._check_scratch(Module(self, blob, label))
        data = blob_bytes(blob, self.properties.arch)
        digest = hashlib.sha256(data).digest()
        module = self._modules.get(digest)
        if module is None or module.code.freed:
            module = self._check_scratch(Module(self, load_code_object(data), label))
            self._modules[digest] = module
        return module

    def _check_scratch(self, module: Module) -> Module:
        limit = encode.max_private_bytes(registers_for(self.target))
        for kernel in module.source.kernels.values():
            private = kernel.descriptor.private_segment_fixed_size
            if private > limit:
                module.free()
                raise PackageError(
                    f"kernel {kernel.name!r} needs {private} bytes of private memory per work-item; "
                    f"{self.properties.arch} has at most {limit}"
                )
        return module

    def find_program(self, program: Any) -> Program:
        """Return the kernel; of a module its only one. :class:`LaunchError` if it cannot run here."""
        if isinstance(program, Module):
            if len(program.kernels) != 1:
                raise LaunchError(f"{program!r} has {len(program.kernels)} kernels: launch module['name']")
            program = program.kernel()
        if not isinstance(program, Program):
            raise LaunchError(f"{type(program).__name__} is not a program; load one with dev.load()")
        program.check_alive(self.memory)
        return program

    # ----- encoding -------------------------------------------------------------------------------

    def make_command(self, gpu_address: int, nbytes: int) -> Command:
        """Return the packet that runs commands; :class:`LaunchError` if they are too long for one."""
        if nbytes > 4 * pm4.MAX_IB_DWORDS:
            raise LaunchError(
                f"{self.label}: {nbytes} bytes of commands; an indirect buffer has at most "
                f"{4 * pm4.MAX_IB_DWORDS}: split the stream"
            )
        first, second, third, fourth = encode.indirect_buffer(gpu_address, nbytes)
        return first | second << 32, third | fourth << 32

    def packets(self) -> AmdPackets:
        """Return an empty sequence of packets."""
        return AmdPackets(Commands(self.target), self.engine.events, self._stack_of)

    # ----- copies ---------------------------------------------------------------------------------

    def _kernel_refusal(self) -> str | None:
        if generation_of(self.target) is Generation.GFX11:
            return None
        return f"there is no copy program for {self.properties.arch}"

    def _kernel_copy_note(self, destination: Buffer, source: Buffer, nbytes: int) -> str | None:
        refusal = self._kernel_refusal()
        if refusal is not None:
            return refusal
        element = copy_element_bytes(destination.gpu_address, source.gpu_address, nbytes)
        if nbytes // element > MAX_COPY_ELEMENTS:
            return f"{nbytes} bytes at these addresses are more than {MAX_COPY_ELEMENTS} elements"
        return None

    def _copy_launch(
        self, destination: Buffer, source: Buffer, nbytes: int
    ) -> tuple[Program, tuple[Buffer, Buffer, int], int]:
        element = copy_element_bytes(destination.gpu_address, source.gpu_address, nbytes)
        program: Program | None = self._copies.get(element)
        if program is None:
            program = self.load(copy_program(element, self.properties.arch)).kernel()
            self._copies[element] = program
        count = nbytes // element
        args = destination.offset_view(0, nbytes), source.offset_view(0, nbytes), count
        return program, args, -(-count // COPY_LOCAL_SIZE)


def _dies(xccs: int) -> str:
    """Say that a PM4 queue runs on one compute die (``kfd_mqd_manager_v9.c``, ``pm4_target_xcc``)."""
    return "" if xccs == 1 else f", one of {xccs} compute dies: all of them need an AQL queue"


class AmdPackets:
    """The packets of a stream."""

    def __init__(self, commands: Commands, events: Events, stack_bytes: Callable[[Program], int]) -> None:
        self.commands = commands
        self._events = events
        self._stack_bytes = stack_bytes

    def start(self) -> None:
        """Let programs see what the CPU wrote before the submission."""
        encode.begin(self.commands)

    def finish(self) -> int:
        """Finish everything, signal the device's timeline, then the event that wakes who sleeps."""
        position = encode.signal(self.commands)
        encode.interrupt(self.commands, self._events.slot_address, self._events.trigger)
        return position

    def barrier(self) -> None:
        """Finish everything before; later work sees its results."""
        encode.barrier(self.commands)

    def wait(self) -> int:
        """Wait until memory holds at least a value."""
        return encode.wait(self.commands)

    def signal(self) -> int:
        """Finish everything before, then store a value."""
        encode.idle(self.commands)
        return encode.signal(self.commands)

    def time_stamp(self, address: Payload) -> None:
        """Finish everything before, then store the GPU's clock."""
        encode.time_stamp(self.commands, address)

    def launch(self, program: Program, geometry: Geometry, block: int) -> LaunchPlaces:
        """Launch a program whose argument block is at byte ``block`` of the data section."""
        return encode.dispatch(self.commands, program, geometry, block)

    def stack_bytes(self, program: Program) -> int:
        """Return the scratch memory that a program needs, in all."""
        return self._stack_bytes(program)
