"""The ioctls of the virtual ``/dev/kfd``: argument checks, errnos and effects."""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ringfence.hardware.amd import kfd
from ringfence.hardware.amd.kfd import AllocFlags, CachePolicy, QueueType, RuntimeEnableMode
from ringfence.hardware.amd.pm4 import CLOCK_COUNTER_HZ
from ringfence.hardware.fields import Direction, Ioctl
from ringfence.virtual.amd.objects import MemoryObject
from ringfence.virtual.amd.process import Process
from ringfence.virtual.amd.queues import Queue
from ringfence.virtual.amd.topology import Card
from ringfence.virtual.checks import Refused
from ringfence.virtual.memory import BadAddress, read_user, write_user

if TYPE_CHECKING:
    from ringfence.virtual.amd.system import KfdSystem
    from ringfence.virtual.machine import Machine

# GB_ADDR_CONFIG of the captured RX 7900 XTX is not known; this is what the driver's golden settings give it.
GB_ADDR_CONFIG = 0x545
_WAITING_CALLS = (kfd.WAIT_EVENTS,)

# Calls that exist but have no model: the errno that a client can deal with.
_REFUSED: Mapping[type[Ioctl], tuple[int, str]] = {
    kfd.DBG_REGISTER_DEPRECATED: (errno.EPERM, "the old debugger calls are gone from the kernel"),
    kfd.DBG_UNREGISTER_DEPRECATED: (errno.EPERM, "the old debugger calls are gone from the kernel"),
    kfd.DBG_ADDRESS_WATCH_DEPRECATED: (errno.EPERM, "the old debugger calls are gone from the kernel"),
    kfd.DBG_WAVE_CONTROL_DEPRECATED: (errno.EPERM, "the old debugger calls are gone from the kernel"),
    kfd.GET_QUEUE_WAVE_STATE: (errno.EINVAL, "wave state of queues is not modelled"),
    kfd.GET_DMABUF_INFO: (errno.EINVAL, "DMA buffers are not modelled"),
    kfd.IMPORT_DMABUF: (errno.EINVAL, "DMA buffers are not modelled"),
    kfd.EXPORT_DMABUF: (errno.EINVAL, "DMA buffers are not modelled"),
    kfd.ALLOC_QUEUE_GWS: (errno.ENODEV, "global wave sync is not modelled"),
    kfd.SMI_EVENTS: (errno.ENOTTY, "the event stream of a GPU is not modelled"),
    kfd.SVM: (errno.EPERM, "shared virtual memory is not modelled"),
    kfd.CRIU_OP: (errno.EPERM, "checkpoints are not modelled"),
    kfd.DBG_TRAP: (errno.EPERM, "debugging is not modelled"),
}
_REALLY_GONE = (
    kfd.DBG_REGISTER_DEPRECATED,
    kfd.DBG_UNREGISTER_DEPRECATED,
    kfd.DBG_ADDRESS_WATCH_DEPRECATED,
    kfd.DBG_WAVE_CONTROL_DEPRECATED,
)


class Ioctls:
    """Dispatch by number alone, with size-tolerant copies, as ``kfd_ioctl`` does."""

    def __init__(self, machine: Machine, system: KfdSystem) -> None:
        self._machine = machine
        self._system = system
        self._handlers: dict[type[Ioctl], Callable[[Any], None]] = {
            kfd.GET_VERSION: self.get_version,
            kfd.CREATE_QUEUE: self.create_queue,
            kfd.DESTROY_QUEUE: self.destroy_queue,
            kfd.UPDATE_QUEUE: self.update_queue,
            kfd.SET_CU_MASK: self.set_cu_mask,
            kfd.SET_MEMORY_POLICY: self.set_memory_policy,
            kfd.GET_CLOCK_COUNTERS: self.get_clock_counters,
            kfd.GET_PROCESS_APERTURES: self.get_process_apertures,
            kfd.GET_PROCESS_APERTURES_NEW: self.get_process_apertures_new,
            kfd.CREATE_EVENT: self.create_event,
            kfd.DESTROY_EVENT: self.destroy_event,
            kfd.SET_EVENT: self.set_event,
            kfd.RESET_EVENT: self.reset_event,
            kfd.WAIT_EVENTS: self.wait_events,
            kfd.SET_SCRATCH_BACKING_VA: self.set_scratch_backing_va,
            kfd.GET_TILE_CONFIG: self.get_tile_config,
            kfd.SET_TRAP_HANDLER: self.set_trap_handler,
            kfd.ACQUIRE_VM: self.acquire_vm,
            kfd.ALLOC_MEMORY_OF_GPU: self.alloc_memory,
            kfd.FREE_MEMORY_OF_GPU: self.free_memory,
            kfd.MAP_MEMORY_TO_GPU: self.map_memory,
            kfd.UNMAP_MEMORY_FROM_GPU: self.unmap_memory,
            kfd.SET_XNACK_MODE: self.set_xnack_mode,
            kfd.AVAILABLE_MEMORY: self.available_memory,
            kfd.RUNTIME_ENABLE: self.runtime_enable,
        }

    @property
    def _process(self) -> Process:
        return self._system.process

    def call(self, handle: int, request: int, address: int) -> tuple[int, str]:
        """Execute an ioctl; return the errno (0: success) and its reason."""
        declared = kfd.IOCTLS.get(request & 0xFF)
        if declared is None:
            number = request & 0xFF
            self._machine.notes.unsupported(f"KFD ioctl {number:#04x}", "answered with EINVAL")
            return errno.EINVAL, f"this kernel has no KFD ioctl {number:#04x}"
        fault = self._machine.faults.call(declared.__name__) if self._machine.faults.active else None
        if fault is not None and not fault.after_effect:
            return fault.errno, "a fault of this machine says so"
        code, reason = self._call(handle, declared, request >> 16 & 0x3FFF, address)
        if fault is not None and not code:
            return fault.errno, "a fault of this machine says so"
        return code, reason

    def _call(self, handle: int, declared: type[Ioctl], size: int, address: int) -> tuple[int, str]:
        size = min(size, ctypes.sizeof(declared))
        argument = declared()
        try:
            if declared.DIRECTION & Direction.WRITE:
                ctypes.memmove(ctypes.addressof(argument), read_user(address, size), size)
            if declared not in _WAITING_CALLS:
                self._machine.wander()
            if not self._system.is_open(handle):
                return errno.EBADF, "the descriptor was closed meanwhile"
            code, reason = self._handle(declared, argument)
            # The kernel copies the outputs back even if the call fails.
            if declared.DIRECTION & Direction.READ:
                write_user(address, bytes(argument)[:size])
        except BadAddress as error:
            return errno.EFAULT, str(error)
        return code, reason

    def _handle(self, declared: type[Ioctl], argument: Ioctl) -> tuple[int, str]:
        handler = self._handlers.get(declared)
        try:
            if handler is None:
                self._refuse(declared)
            else:
                handler(argument)
        except Refused as refused:
            return refused.errno, refused.reason
        except BadAddress as error:
            return errno.EFAULT, str(error)
        return 0, ""

    def _refuse(self, declared: type[Ioctl]) -> None:
        code, reason = _REFUSED[declared]
        if declared not in _REALLY_GONE:
            name = errno.errorcode[code]
            self._machine.notes.unsupported(f"KFD ioctl {declared.__name__}", f"answered with {name}")
        raise Refused(code, reason)

    # ----- the process ------------------------------------------------------------------------

    def get_version(self, argument: kfd.GET_VERSION) -> None:
        argument.major_version, argument.minor_version = kfd.VERSION_MAJOR, kfd.VERSION_MINOR

    def acquire_vm(self, argument: kfd.ACQUIRE_VM) -> None:
        card = self._process.card(argument.gpu_id)
        handle = self._machine.handle_of(self._system, argument.drm_fd)
        if handle is None or self._system.render_card(handle) is not card:
            raise Refused(errno.EINVAL, f"descriptor {argument.drm_fd} is no render node of {card.name}")
        if self._process.vms.setdefault(card.index, handle) != handle:
            raise Refused(
                errno.EBUSY, f"the process has the address space of another descriptor of {card.name} already"
            )

    def runtime_enable(self, argument: kfd.RUNTIME_ENABLE) -> None:
        process = self._process
        argument.capabilities_mask = 0
        if not argument.mode_mask & RuntimeEnableMode.ENABLE:
            process.runtime_enabled = False
            return
        if process.runtime_enabled:
            raise Refused(errno.EBUSY, "a runtime has enabled itself already")
        if process.queues:
            raise Refused(errno.EEXIST, f"the process has {len(process.queues)} queues already")
        process.runtime_enabled = True

    def set_xnack_mode(self, argument: kfd.SET_XNACK_MODE) -> None:
        if argument.xnack_enabled < 0:
            argument.xnack_enabled = 0
        elif self._process.queues:
            raise Refused(errno.EBUSY, "the process has queues")
        elif argument.xnack_enabled:
            raise Refused(errno.EPERM, "the GPUs of this machine do not retry page faults")

    def get_clock_counters(self, argument: kfd.GET_CLOCK_COUNTERS) -> None:
        now = self._machine.clock.now()
        known = any(card.gpu_id == argument.gpu_id for card in self._process.cards)
        argument.gpu_clock_counter = int(now * CLOCK_COUNTER_HZ) if known else 0
        argument.cpu_clock_counter = argument.system_clock_counter = int(now * kfd.CLOCK_FREQUENCY_HZ)
        argument.system_clock_freq = kfd.CLOCK_FREQUENCY_HZ

    def get_process_apertures(self, argument: kfd.GET_PROCESS_APERTURES) -> None:
        cards = self._process.cards[: kfd.NUM_OF_SUPPORTED_GPUS]
        for index, card in enumerate(cards):
            argument.process_apertures[index] = _apertures(card)
        argument.num_of_nodes = len(cards)

    def get_process_apertures_new(self, argument: kfd.GET_PROCESS_APERTURES_NEW) -> None:
        cards = self._process.cards
        if argument.num_of_nodes:
            shown = cards[: argument.num_of_nodes]
            data = b"".join(bytes(_apertures(card)) for card in shown)
            write_user(argument.kfd_process_device_apertures_ptr, data)
            argument.num_of_nodes = len(shown)
        else:
            argument.num_of_nodes = len(cards)

    # ----- settings ---------------------------------------------------------------------------

    def set_memory_policy(self, argument: kfd.SET_MEMORY_POLICY) -> None:
        for name in ("default_policy", "alternate_policy"):
            value = getattr(argument, name)
            if value not in CachePolicy._value2member_map_:
                raise Refused(errno.EINVAL, f"{name} is {value}, expected 0 (coherent) or 1 (non-coherent)")
        self._process.bound(argument.gpu_id, errno.ESRCH)

    def set_scratch_backing_va(self, argument: kfd.SET_SCRATCH_BACKING_VA) -> None:
        self._process.bound(argument.gpu_id, errno.ESRCH)  # matters to GPUs before gfx9 only

    def set_trap_handler(self, argument: kfd.SET_TRAP_HANDLER) -> None:
        self._process.bound(argument.gpu_id, errno.ESRCH)
        self._machine.notes.approximate("KFD trap handlers", "accepted; nothing ever traps into them")

    def get_tile_config(self, argument: kfd.GET_TILE_CONFIG) -> None:
        self._process.card(argument.gpu_id)
        argument.num_tile_configs = argument.num_macro_tile_configs = 0
        argument.gb_addr_config, argument.num_banks, argument.num_ranks = GB_ADDR_CONFIG, 0, 0
        self._machine.notes.approximate("KFD tile configuration", "GB_ADDR_CONFIG was not read from hardware")

    # ----- memory -----------------------------------------------------------------------------

    def alloc_memory(self, argument: kfd.ALLOC_MEMORY_OF_GPU) -> None:
        if argument.size == 0:
            raise Refused(errno.EINVAL, "size is 0")
        process = self._process
        card = process.bound(argument.gpu_id)
        process.usable(card)
        if argument.flags & AllocFlags.MMIO_REMAP and not argument.flags & (
            kfd.DOMAINS ^ AllocFlags.MMIO_REMAP
        ):
            self._machine.notes.unsupported("KFD remapped registers", "ALLOC_MEMORY_OF_GPU answers ENOMEM")
            raise Refused(errno.ENOMEM, "the page of remapped registers is not modelled")
        created = process.objects.allocate(card, argument, lambda: process.doorbells(card))
        argument.handle, argument.mmap_offset = created.handle, created.mmap_offset

    def free_memory(self, argument: kfd.FREE_MEMORY_OF_GPU) -> None:
        process = self._process
        entry = process.objects.find(argument.handle)
        if process.events.is_page(entry):
            raise Refused(errno.EPERM, "the memory is the event page")
        process.objects.free(entry)

    def map_memory(self, argument: kfd.MAP_MEMORY_TO_GPU) -> None:
        self._each_device(argument, self._process.objects.map)

    def unmap_memory(self, argument: kfd.UNMAP_MEMORY_FROM_GPU) -> None:
        self._each_device(argument, self._process.objects.unmap)

    def _each_device(
        self,
        argument: kfd.MAP_MEMORY_TO_GPU | kfd.UNMAP_MEMORY_FROM_GPU,
        action: Callable[[MemoryObject, Card], None],
    ) -> None:
        if argument.n_devices == 0:
            raise Refused(errno.EINVAL, "n_devices is 0")
        if argument.n_success > argument.n_devices:
            raise Refused(errno.EINVAL, f"n_success is {argument.n_success} of {argument.n_devices} devices")
        data = read_user(argument.device_ids_array_ptr, 4 * argument.n_devices)
        gpu_ids = struct.unpack(f"<{argument.n_devices}I", data)
        process = self._process
        process.card(argument.handle >> 32)
        entry = process.objects.find(argument.handle, errno.ENOMEM)
        for gpu_id in gpu_ids[argument.n_success :]:
            action(entry, process.bound(gpu_id))
            argument.n_success += 1

    def available_memory(self, argument: kfd.AVAILABLE_MEMORY) -> None:
        argument.available = self._process.objects.available(self._process.card(argument.gpu_id))

    # ----- events -----------------------------------------------------------------------------

    def create_event(self, argument: kfd.CREATE_EVENT) -> None:
        process = self._process
        if argument.event_page_offset:
            process.card(argument.event_page_offset >> 32)
            process.events.set_page(process.objects.find(argument.event_page_offset))
        argument.event_page_offset = 0
        event = process.events.create(argument.event_type, bool(argument.auto_reset))
        argument.event_id = argument.event_trigger_data = event.id
        if event.has_slot:
            argument.event_page_offset = kfd.MMAP_OFFSET.pack(TYPE=kfd.MmapType.EVENTS)
            argument.event_slot_index = event.id

    def destroy_event(self, argument: kfd.DESTROY_EVENT) -> None:
        self._process.events.destroy(argument.event_id)

    def set_event(self, argument: kfd.SET_EVENT) -> None:
        self._process.events.set(argument.event_id)

    def reset_event(self, argument: kfd.RESET_EVENT) -> None:
        self._process.events.reset(argument.event_id)

    def wait_events(self, argument: kfd.WAIT_EVENTS) -> None:
        self._process.events.wait(argument)

    # ----- queues -----------------------------------------------------------------------------

    def create_queue(self, argument: kfd.CREATE_QUEUE) -> None:
        process = self._process
        refusal = kfd.argument_refusal(argument)
        if refusal is not None:
            raise Refused(refusal.errno, str(refusal))
        card = process.bound(argument.gpu_id, errno.ESRCH)
        process.usable(card)
        self._check_type(argument)
        queue = process.create_queue(card, argument)
        argument.queue_id = queue.id
        slice_offset = kfd.MMAP_OFFSET.pack(TYPE=kfd.MmapType.DOORBELL, GPU_ID=card.gpu_id)
        argument.doorbell_offset = slice_offset | queue.doorbell_offset

    def _check_type(self, argument: kfd.CREATE_QUEUE) -> None:
        kind = QueueType(argument.queue_type)
        if kind is QueueType.COMPUTE_AQL:
            self._machine.notes.unsupported("KFD AQL queues", "CREATE_QUEUE answers EINVAL")
            raise Refused(errno.EINVAL, "AQL queues are not modelled: use a PM4 queue")
        if kind is not QueueType.COMPUTE:
            self._machine.notes.unsupported("KFD copy queues", "CREATE_QUEUE answers ENOMEM")
            raise Refused(errno.ENOMEM, "no copy engine has a queue left: they are not modelled")
        if kfd.QUEUE_PERCENTAGE.get(argument.queue_percentage, "PM4_TARGET_XCC"):
            raise Refused(errno.EINVAL, "only XCC 0 has queues: PM4_TARGET_XCC of queue_percentage must be 0")

    def _queue(self, number: int, code: int) -> Queue:
        queue = self._process.queues.get(number)
        if queue is None:
            raise Refused(code, f"no queue has the id {number}")
        return queue

    def destroy_queue(self, argument: kfd.DESTROY_QUEUE) -> None:
        self._process.destroy_queue(self._queue(argument.queue_id, errno.EINVAL).id)

    def update_queue(self, argument: kfd.UPDATE_QUEUE) -> None:
        percent = kfd.QUEUE_PERCENTAGE.get(argument.queue_percentage, "PERCENT")
        if percent > kfd.MAX_QUEUE_PERCENTAGE or argument.queue_priority > kfd.MAX_QUEUE_PRIORITY:
            raise Refused(
                errno.EINVAL, f"percentage {percent} or priority {argument.queue_priority} is out of range"
            )
        if argument.ring_size & (argument.ring_size - 1):
            raise Refused(errno.EINVAL, f"ring_size {argument.ring_size:#x} is no power of two")
        queue = self._queue(argument.queue_id, errno.EFAULT)
        ring = queue.processor.ring
        stopped = argument.ring_base_address == 0 or percent == 0
        if not stopped and (argument.ring_base_address, argument.ring_size) != (
            ring.address,
            ring.dwords * 4,
        ):
            self._machine.notes.unsupported("KFD UPDATE_QUEUE with another ring", "answered with EINVAL")
            raise Refused(errno.EINVAL, "moving a queue to another ring is not modelled")
        queue.active = not stopped
        self._machine.notify()

    def set_cu_mask(self, argument: kfd.SET_CU_MASK) -> None:
        if argument.num_cu_mask == 0 or argument.num_cu_mask % 32:
            raise Refused(
                errno.EINVAL, f"num_cu_mask is {argument.num_cu_mask}, expected a multiple of 32 above 0"
            )
        read_user(argument.cu_mask_ptr, argument.num_cu_mask // 8)
        self._queue(argument.queue_id, errno.EFAULT)
        self._machine.notes.approximate("KFD CU masks", "accepted; programs run the same on all CUs")


def _apertures(card: Card) -> kfd.PROCESS_DEVICE_APERTURES:
    limit = kfd.APERTURE_LIMIT_MASK
    return kfd.PROCESS_DEVICE_APERTURES(
        lds_base=kfd.LDS_APERTURE_BASE,
        lds_limit=kfd.LDS_APERTURE_BASE | limit,
        scratch_base=kfd.SCRATCH_APERTURE_BASE,
        scratch_limit=kfd.SCRATCH_APERTURE_BASE | limit,
        gpuvm_base=kfd.GPUVM_APERTURE_BASE,
        gpuvm_limit=kfd.GPUVM_APERTURE_LIMIT,
        gpu_id=card.gpu_id,
    )
