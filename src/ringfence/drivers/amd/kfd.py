"""KFD as a process sees it: which GPUs there are, what a process shares, one compute queue, waiting.

The kernel knows one KFD process per address space, whatever it opens: one event page, and one render node per
GPU, which ACQUIRE_VM binds for good. So what :class:`KfdProcess` holds stays until the port goes away.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import math
import os
import re
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ringfence.errors import (
    DeviceLost,
    FaultReport,
    GpuFault,
    GpuHang,
    PortError,
    UnsupportedDevice,
    WaitTimeout,
)
from ringfence.hardware.amd import kfd, topology
from ringfence.hardware.amd.chips import Target, supported_target
from ringfence.hardware.amd.kfd import AllocFlags
from ringfence.hardware.amd.topology import HeapType, Hwid, IpBlock, NodeProperties
from ringfence.port import Port
from ringfence.port.linux import LinuxPort
from ringfence.runtime.compute import Identify
from ringfence.runtime.memory import CacheMode, Mapping, Memory
from ringfence.runtime.timeline import Fence

VISIBLE_DEVICES = "ROCR_VISIBLE_DEVICES"
UUID_PREFIX = "GPU-"
_INDEX = re.compile(r"([+-]?)(?:0X([0-9A-F]+)|(0[0-7]*)|([1-9][0-9]*))")
"""What C's strtol takes with base 0, in capitals: sign, then hexadecimal, octal or decimal digits."""
RING_BYTES = 256 << 10
PACKET_DWORDS = 4  # of the INDIRECT_BUFFER packet, the only one in the ring
POINTER_BYTES = 4096
WRITE_POINTER = 56  # byte offsets in the page of pointers, as amd_queue_t has them
READ_POINTER = 128
SHORTEST_SLEEP_MS = 1
EVENT_PAGE_FLAGS = (
    AllocFlags.GTT
    | AllocFlags.COHERENT
    | AllocFlags.UNCACHED
    | AllocFlags.WRITABLE
    | AllocFlags.EXECUTABLE
    | AllocFlags.NO_SUBSTITUTE
)


# ----- which GPUs there are -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as KFD describes it. ``index`` counts the GPUs that may be used, ``node`` is KFD's own number.

    ``visible_bytes`` is the VRAM that the CPU can reach: all of it with a large BAR, else none.
    """

    index: int
    node: int
    gpu_id: int
    properties: NodeProperties
    vram_bytes: int
    visible_bytes: int

    @property
    def large_bar(self) -> bool:
        """Whether VRAM can be mapped into the CPU."""
        return self.visible_bytes > 0

    @property
    def render_node(self) -> str:
        """The path of the GPU's render node."""
        return topology.render_node(self.properties.drm_render_minor)

    @property
    def uuid(self) -> str:
        """The name that ROCR_VISIBLE_DEVICES knows it by: stable, the board's serial number."""
        return f"{UUID_PREFIX}{self.properties.unique_id or 0:016x}"

    def __str__(self) -> str:
        return f"{self.properties.arch} at {self.properties.pci_address} ({self.uuid}, gpu_id {self.gpu_id})"


def find_gpus(port: Port, visible: str | None = None) -> list[Gpu]:
    """Return the GPUs of the system that this process may use, in KFD's order.

    ``visible`` is a list as ROCR_VISIBLE_DEVICES has it (taken from the environment if ``None``), separated
    by commas: indices (decimal, octal with a leading 0, hexadecimal with 0x) and UUIDs, of which the
    beginning is enough if it fits one GPU only. As in ROCm's runtime (RvdFilter in amd_filter_device.cpp),
    the list ends before an entry that names no GPU, or one that an earlier entry named; an empty list hides
    all GPUs. :class:`PortError` if there is no KFD.
    """
    if not isinstance(visible, str | None):
        raise TypeError(f"visible= is text as in {VISIBLE_DEVICES}, such as '0,2', not {visible!r}")
    found: list[Gpu] = []
    for name in sorted(port.list_directory(topology.NODES_ROOT), key=int):
        gpu = _read_node(port, int(name), len(found))
        if gpu is not None:
            found.append(gpu)
    wanted = os.environ.get(VISIBLE_DEVICES) if visible is None else visible
    return found if wanted is None else _visible(found, wanted)


def _read_node(port: Port, node: int, index: int) -> Gpu | None:
    root = f"{topology.NODES_ROOT}/{node}"
    try:
        gpu_id = int(port.read_text(f"{root}/gpu_id"))
        if gpu_id == 0:
            return None
        properties = NodeProperties.parse(port.read_text(f"{root}/properties"))
    except PortError as error:
        if error.errno == errno.EPERM:  # a cgroup hides the device
            return None
        raise
    banks = [
        topology.parse_memory_bank(port.read_text(f"{root}/mem_banks/{bank}/properties"))
        for bank in range(properties.mem_banks_count)
    ]
    public = sum(bank.size_in_bytes for bank in banks if bank.heap_type == HeapType.FB_PUBLIC)
    private = sum(bank.size_in_bytes for bank in banks if bank.heap_type == HeapType.FB_PRIVATE)
    return Gpu(index, node, gpu_id, properties, public + private, public)


def _visible(found: list[Gpu], wanted: str) -> list[Gpu]:
    chosen: list[Gpu] = []
    for entry in wanted.split(","):
        gpu = _named(found, entry.strip().upper())
        if gpu is None or gpu in chosen:
            break
        chosen.append(gpu)
    return [
        Gpu(index, gpu.node, gpu.gpu_id, gpu.properties, gpu.vram_bytes, gpu.visible_bytes)
        for index, gpu in enumerate(chosen)
    ]


def _named(found: list[Gpu], entry: str) -> Gpu | None:
    """Return the GPU that an entry of ROCR_VISIBLE_DEVICES, in capitals, names for ROCm's runtime."""
    if entry.startswith(UUID_PREFIX):
        known = [gpu for gpu in found if gpu.properties.unique_id]
        match = [gpu for gpu in known if gpu.uuid.upper().startswith(entry)]
        return match[0] if len(match) == 1 and entry != UUID_PREFIX else None
    number = _INDEX.fullmatch(entry)
    if number is None:
        return None
    sign, *digits = number.groups()
    index = next(int(sign + text, base) for text, base in zip(digits, (16, 8, 10), strict=True) if text)
    return found[index] if 0 <= index < len(found) else None


def choose_gpu(gpus: Sequence[Gpu], name: str) -> Gpu:
    """Return the GPU called ``name``: index, UUID or PCI address; :class:`UnsupportedDevice` lists them."""
    for gpu in gpus:
        if name in (str(gpu.index), gpu.uuid, gpu.properties.pci_address):
            return gpu
    known = "; ".join(f"{gpu.index}: {gpu}" for gpu in gpus) or "none that this process may use"
    raise UnsupportedDevice(f"there is no GPU {name!r} behind KFD; there are: {known}")


def ip_block(port: Port, gpu: Gpu, hwid: Hwid) -> IpBlock:
    """Return version and register segments of an IP block."""
    root = f"{topology.drm_device_root(gpu.properties.drm_render_minor)}/ip_discovery/die/0/{int(hwid)}/0"
    major, minor, revision = (
        int(port.read_text(f"{root}/{part}"), 0) for part in ("major", "minor", "revision")
    )
    return IpBlock(
        hwid, (major, minor, revision), topology.parse_base_addresses(port.read_text(f"{root}/base_addr"))
    )


def supported(gpu: Gpu) -> Target:
    """Return the target of a GPU; :class:`UnsupportedDevice` if it is none that is driven."""
    return supported_target(gpu.properties.gfx_target_version)


# ----- what a process shares ----------------------------------------------------------------------


@dataclass(slots=True)
class SharedMemory:
    """Memory that several devices map: how many still do, and how many may still use the CPU's mapping."""

    gpus: int = 1
    addresses: int = 1


@dataclass(slots=True, eq=False)
class KfdProcess:
    """What all devices of a port share: the descriptor of ``/dev/kfd``, the render nodes, the event page."""

    fd: int
    version: tuple[int, int]
    render_fds: dict[int, int] = field(default_factory=dict)
    event_page: int = 0
    """Address of the event page, 0 until there is one."""
    event_handle: int = 0
    event_page_known: bool = False
    users: int = 0
    lost: bool = False
    """Whether a GPU was reset: the kernel accepts nothing more, the next device needs a new process."""
    event_gpus: set[int] = field(default_factory=set)
    shared: dict[int, SharedMemory] = field(default_factory=dict)
    """Memory that more than one device maps or has mapped, by address."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def leave(self, port: Port) -> None:
        """A device of the port was closed. The last one takes the process with it, if the kernel can make a
        new one: a virtual kernel does, the real one only gets a chance when this one is lost.
        """
        self.users -= 1
        if self.users or not (self.lost or port.virtual):
            return
        _forget(self)
        with contextlib.ExitStack() as undo:
            undo.callback(port.close, self.fd)
            for fd in self.render_fds.values():
                undo.callback(port.close, fd)
            if self.event_page:
                undo.callback(port.munmap, self.event_page, kfd.EVENT_PAGE_BYTES)

    def render_fd(self, port: Port, gpu: Gpu) -> int:
        """Return the descriptor of the GPU's render node, whose address space is that of the process."""
        if gpu.gpu_id not in self.render_fds:
            fd = port.open(gpu.render_node)
            try:
                port.ioctl(self.fd, kfd.ACQUIRE_VM(drm_fd=fd, gpu_id=gpu.gpu_id))
            except BaseException:
                port.close(fd)
                raise
            self.render_fds[gpu.gpu_id] = fd
        return self.render_fds[gpu.gpu_id]

    def share_event_page(self, port: Port, gpu: Gpu) -> None:
        """Let the GPU reach the event page; the first GPU allocates it."""
        ids = (ctypes.c_uint32 * 1)(gpu.gpu_id)
        if gpu.gpu_id in self.event_gpus:
            return
        if not self.event_page:
            self._allocate_event_page(port, gpu)
        port.ioctl(
            self.fd,
            kfd.MAP_MEMORY_TO_GPU(
                handle=self.event_handle, device_ids_array_ptr=ctypes.addressof(ids), n_devices=1
            ),
        )
        self.event_gpus.add(gpu.gpu_id)

    def _allocate_event_page(self, port: Port, gpu: Gpu) -> None:
        address = port.reserve(kfd.EVENT_PAGE_BYTES)
        flags = EVENT_PAGE_FLAGS
        request = kfd.ALLOC_MEMORY_OF_GPU(
            va_addr=address, size=kfd.EVENT_PAGE_BYTES, gpu_id=gpu.gpu_id, flags=flags
        )
        with contextlib.ExitStack() as undo:
            undo.callback(port.munmap, address, kfd.EVENT_PAGE_BYTES)
            port.ioctl(self.fd, request)
            undo.callback(port.ioctl, self.fd, kfd.FREE_MEMORY_OF_GPU(handle=request.handle))
            port.mmap(self.render_fd(port, gpu), kfd.EVENT_PAGE_BYTES, request.mmap_offset, address=address)
            undo.pop_all()
        self.event_page, self.event_handle = address, request.handle

    def create_event(self, port: Port, kind: kfd.EventType, *, auto_reset: bool = False) -> kfd.CREATE_EVENT:
        """Return a new event. The first one makes the event page known to the kernel."""
        page = 0 if self.event_page_known else self.event_handle
        request = kfd.CREATE_EVENT(event_type=kind, auto_reset=int(auto_reset), event_page_offset=page)
        port.ioctl(self.fd, request)
        self.event_page_known = True
        return request


_VIRTUAL: weakref.WeakKeyDictionary[Port, KfdProcess] = weakref.WeakKeyDictionary()
_REAL: list[KfdProcess] = []
"""The KFD process of this process, and those of virtual machines by port: the kernel has one of each."""


def _forget(process: KfdProcess) -> None:
    if process in _REAL:
        _REAL.remove(process)
    for port, known in list(_VIRTUAL.items()):
        if known is process:
            del _VIRTUAL[port]


def process_of(port: Port) -> KfdProcess:
    """Return the KFD process behind a port; the first call opens it. :class:`PortError` if it cannot."""
    real = isinstance(port, LinuxPort)
    known = (_REAL[0] if _REAL else None) if real else _VIRTUAL.get(port)
    if known is not None:
        return known
    fd = port.open(kfd.DEVICE_PATH)
    try:
        version = kfd.GET_VERSION()
        port.ioctl(fd, version)
        process = KfdProcess(fd, (version.major_version, version.minor_version))
        if process.version >= kfd.RUNTIME_ENABLE_SINCE:
            port.ioctl(fd, kfd.RUNTIME_ENABLE(mode_mask=0))
    except BaseException:
        port.close(fd)
        raise
    if real:
        _REAL.append(process)
    else:
        _VIRTUAL[port] = process
    return process


# ----- the compute queue --------------------------------------------------------------------------


Command = tuple[int, int]
"""The packet that lets the ring run the commands of one instance, as two 64-bit words."""


@dataclass(frozen=True, slots=True)
class _Ring:
    """A compute queue: 64-bit words of the ring, the pointers, the doorbell."""

    queue_id: int
    words: memoryview
    write_pointer: memoryview
    read_pointer: memoryview
    ring: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Events:
    """The events that a device waits for, and where and what the GPU stores to signal the first."""

    signal: int
    slot_address: int
    trigger: int
    memory: int
    exception: int


class KfdEngine:
    """The compute queue of a device, made when it is first used, and the events that end a sleep.

    Submitting writes one packet of four dwords: the ring is a multiple of that, so none ever straddles its
    end. The read pointer tells how much room there is. ``identify`` adds labels to the report of a fault.
    """

    def __init__(
        self,
        port: Port,
        process: KfdProcess,
        gpu: Gpu,
        memory: Memory,
        label: str,
        *,
        ring_bytes: int = RING_BYTES,
        priority: int = kfd.NORMAL_QUEUE_PRIORITY,
        timeout: float,
        identify: Identify,
    ) -> None:
        self.recovered_faults = 0
        self.queue: _Ring | None = None
        self.submit: Callable[..., bool] = self._first_submit
        """Let the ring run commands that end in a timeline value; KFD never reports a recovered fault."""
        self._port = port
        self._process = process
        self._gpu = gpu
        self._memory = memory
        self._label = label
        self._identify = identify
        self._ring_bytes = ring_bytes
        self._priority = priority
        self._timeout = timeout
        self._buffers: list[Mapping] = []
        self.events = self._make_events()
        self._waits = (kfd.EVENT_DATA * 3)()
        self._request = kfd.WAIT_EVENTS(events_ptr=ctypes.addressof(self._waits), num_events=3)

    # ----- events ---------------------------------------------------------------------------------

    def _make_events(self) -> Events:
        process, port = self._process, self._port
        made: list[int] = []
        with contextlib.ExitStack() as undo:
            for kind in (kfd.EventType.SIGNAL, kfd.EventType.MEMORY, kfd.EventType.HW_EXCEPTION):
                # Of the kernel's faults, every event of the process gets those of all GPUs: one that stayed
                # set would keep other devices from sleeping.
                event = process.create_event(port, kind, auto_reset=True)
                undo.callback(port.ioctl, process.fd, kfd.DESTROY_EVENT(event_id=event.event_id))
                made.append(event.event_id)
                if kind is kfd.EventType.SIGNAL:
                    slot = process.event_page + kfd.SIGNAL_SLOT_BYTES * event.event_slot_index
                    trigger = event.event_trigger_data
            undo.pop_all()
        return Events(made[0], slot, trigger, made[1], made[2])

    # ----- the queue ------------------------------------------------------------------------------

    def _create(self) -> _Ring:
        """Make the queue: ring, pointers, end-of-pipe buffer, context save area, doorbell."""
        sizes = kfd.queue_sizes(self._gpu.properties)
        ring = self._buffer("ring", self._ring_bytes, CacheMode.UNCACHED)
        pointers = self._buffer("queue pointers", POINTER_BYTES, CacheMode.UNCACHED)
        eop = self._buffer("end of pipe", sizes.eop_buffer_size, CacheMode.DEVICE)
        save = self._buffer("context save area", sizes.cwsr_allocation, CacheMode.DEVICE)
        request = kfd.CREATE_QUEUE(
            ring_base_address=ring.gpu_address,
            ring_size=self._ring_bytes,
            write_pointer_address=pointers.gpu_address + WRITE_POINTER,
            read_pointer_address=pointers.gpu_address + READ_POINTER,
            gpu_id=self._gpu.gpu_id,
            queue_type=kfd.QueueType.COMPUTE,
            queue_percentage=kfd.MAX_QUEUE_PERCENTAGE,
            queue_priority=self._priority,
            eop_buffer_address=eop.gpu_address,
            eop_buffer_size=sizes.eop_buffer_size,
            ctx_save_restore_address=save.gpu_address,
            ctx_save_restore_size=sizes.cwsr_size,
            ctl_stack_size=sizes.ctl_stack_size,
        )
        create_queue(self._port, self._process.fd, request, sizes, self._mapping_at)
        try:
            base, place = kfd.split_doorbell_offset(request.doorbell_offset)
            doorbells = self._port.mmap(self._process.fd, kfd.DOORBELL_SLICE_BYTES, base)
        except BaseException:
            self._port.ioctl(self._process.fd, kfd.DESTROY_QUEUE(queue_id=request.queue_id))
            raise
        self._doorbells = doorbells
        words = memoryview(self._memory.view(ring, 0, self._ring_bytes)).cast("B").cast("Q")
        pair = memoryview(self._memory.view(pointers, 0, POINTER_BYTES)).cast("B").cast("Q")
        return _Ring(
            request.queue_id,
            words,
            pair[WRITE_POINTER // 8 : WRITE_POINTER // 8 + 1],
            pair[READ_POINTER // 8 : READ_POINTER // 8 + 1],
            self._port.doorbell(doorbells + place),
        )

    def _buffer(self, what: str, nbytes: int, cache: CacheMode) -> Mapping:
        mapping = self._memory.allocate(nbytes, cache=cache, label=f"{self._label}: {what}")
        self._buffers.append(mapping)
        return mapping

    def _mapping_at(self, address: int) -> tuple[int, int] | None:
        for mapping in self._buffers:
            if mapping.gpu_address <= address < mapping.gpu_address + mapping.map_bytes:
                return mapping.gpu_address, mapping.map_bytes
        return None

    def destroy(self) -> None:
        """Destroy queue and events. The buffers go with the memory of the device."""
        port, fd = self._port, self._process.fd
        with contextlib.ExitStack() as undo:
            for event in (self.events.signal, self.events.memory, self.events.exception):
                undo.callback(port.ioctl, fd, kfd.DESTROY_EVENT(event_id=event))
            queue, self.queue = self.queue, None
            self.submit = self._first_submit  # the other one holds views of the ring, which keep it mapped
            if queue is not None:
                undo.callback(port.munmap, self._doorbells, kfd.DOORBELL_SLICE_BYTES)
                undo.callback(port.ioctl, fd, kfd.DESTROY_QUEUE(queue_id=queue.queue_id))

    # ----- submitting -----------------------------------------------------------------------------

    def _first_submit(self, command: Command, value: int, fences: Sequence[Fence] = ()) -> bool:
        self.queue = queue = self._create()
        self.submit = self._submitter(queue)
        return self.submit(command, value)

    def _submitter(self, queue: _Ring) -> Callable[..., bool]:
        """Return what submits to a queue. Its names are local: that is what is fast."""
        words, mask, ring = queue.words, self._ring_bytes // 8 - 1, queue.ring
        write_pointer, read_pointer = queue.write_pointer, queue.read_pointer
        room = self._ring_bytes // 4 - PACKET_DWORDS
        written = 0

        def submit(command: Command, value: int, fences: Sequence[Fence] = ()) -> bool:
            nonlocal written
            if written - read_pointer[0] >= room:
                self._wait_for_room(queue, written - room)
            place = written >> 1 & mask
            words[place], words[place + 1] = command
            write_pointer[0] = written = written + PACKET_DWORDS
            ring(written)
            return False

        return submit

    def _wait_for_room(self, queue: _Ring, target: int) -> None:
        """Wait until the GPU has read more than ``target`` dwords of the ring."""
        deadline = self._port.now() + self._timeout
        while queue.read_pointer[0] <= target:
            if self._port.now() >= deadline:
                raise WaitTimeout(
                    f"{self._label}: the ring of {self._ring_bytes} bytes stayed full for {self._timeout:g} s"
                )
            self.sleep(0, 0.001)

    # ----- waiting --------------------------------------------------------------------------------

    def sleep(self, value: int, seconds: float) -> bool:
        """Sleep until the GPU signals or ``seconds`` passed. The signal is not that of a certain value, so
        memory has to be looked at again: always ``False``. :class:`DeviceLost` for a fault or a reset.
        """
        events, waits = self.events, self._waits
        ctypes.memset(waits, 0, ctypes.sizeof(waits))
        for wait, event in zip(waits, (events.signal, events.memory, events.exception)):
            wait.event_id = event
        request = self._request
        request.timeout = max(SHORTEST_SLEEP_MS, math.ceil(seconds * 1000))
        self._port.ioctl(self._process.fd, request)
        if request.wait_result == kfd.WaitResult.COMPLETE:
            self._raise_if_lost(waits)
        return False

    def _raise_if_lost(self, waits: Any) -> None:
        fault, reset = waits[1].memory_exception_data, waits[2].hw_exception_data
        if self._gpu.gpu_id not in (fault.gpu_id, reset.gpu_id):
            return
        queue_id = self.queue.queue_id if self.queue is not None else 0
        explained = self._port.explain(self._process.fd, queue_id)
        untold = "the kernel tells no more"
        if fault.gpu_id:
            report = self._identify(explained or FaultReport("memory", untold, address=fault.va))
            raise GpuFault(f"{self._label} stopped: {describe_fault(fault)}", report)
        self._process.lost = self._process.lost or bool(reset.memory_lost)
        report = self._identify(explained or FaultReport("hang", untold))
        error = GpuHang if report.kind == "hang" else GpuFault
        raise error(f"{self._label}: {describe_reset(reset)}", report)


def create_queue(
    port: Port,
    fd: int,
    request: kfd.CREATE_QUEUE,
    sizes: kfd.QueueSizes,
    mapping_at: Callable[[int], tuple[int, int] | None],
) -> None:
    """Issue CREATE_QUEUE; a refusal names the argument that the kernel's own rules object to."""
    try:
        port.ioctl(fd, request)
    except PortError as error:
        refusal = kfd.queue_refusal(request, sizes, mapping_at)
        if refusal is None:
            raise
        raise PortError(error.call, error.errno or 0, str(refusal)) from None


def describe_fault(fault: kfd.HSA_MEMORY_EXCEPTION_DATA) -> str:
    """Return what a memory exception says."""
    failure = fault.failure
    why = [
        text
        for flag, text in (
            (failure.NotPresent, "no page is mapped there"),
            (failure.ReadOnly, "the page is read-only"),
            (failure.NoExecute, "the page is not executable"),
            (failure.imprecise, "the address is imprecise"),
        )
        if flag
    ]
    ras = "" if fault.ErrorType == kfd.MemoryError.NO_RAS else f", {kfd.MemoryError(fault.ErrorType).name}"
    return f"memory fault in the page at {fault.va:#x} ({', '.join(why) or 'no reason given'}{ras})"


def describe_reset(reset: kfd.HSA_HW_EXCEPTION_DATA) -> str:
    """Return what a hardware exception says."""
    what = kfd.ResetType(reset.reset_type).name.lower().replace("_", " ")
    lost = ", its memory is lost" if reset.memory_lost else ""
    return f"{what} because of {kfd.ResetCause(reset.reset_cause).name}{lost}"


def lost_because(error: PortError) -> DeviceLost | None:
    """Return the loss that a refused call means, ``None`` if it means none (``kfd_ioctl`` of a removed or
    reset GPU)."""
    if error.errno in (errno.EIO, errno.ENODEV):
        return DeviceLost(f"the GPU is gone or was reset: {error}")
    return None
