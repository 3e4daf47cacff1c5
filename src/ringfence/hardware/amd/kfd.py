"""The user interface of KFD, Linux's compute driver of AMD GPUs: ioctls, structures, flags, queue sizes.

Names are those of ``include/uapi/linux/kfd_ioctl.h`` (interface 1.17) without their ``AMDKFD_IOC_``,
``KFD_``, ``KFD_IOC_`` or ``struct kfd_`` prefix. User pointers are plain 64-bit integers. The kernel finds an
ioctl by its number alone and copies the smaller of the two argument sizes, so that older and newer headers
work together.

``CAUSES`` of an ioctl tells what usually provokes an errno, read from ``kfd_chardev.c``, ``kfd_events.c``,
``kfd_queue.c``, ``kfd_process_queue_manager.c`` and ``amdgpu_amdkfd_gpuvm.c``.
"""

import ctypes
import errno
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Annotated, Any, ClassVar

from ringfence.hardware.amd.topology import NodeProperties
from ringfence.hardware.fields import S32, U32, U64, Direction, Ioctl, Word, ioctl, struct

MAGIC = 0x4B
DEVICE_PATH = "/dev/kfd"
VERSION_MAJOR = 1
VERSION_MINOR = 17
RUNTIME_ENABLE_SINCE = (1, 14)
"""The interface version from which RUNTIME_ENABLE exists."""

PAGE_BYTES = 4096

MAX_QUEUE_PERCENTAGE = 100
MAX_QUEUE_PRIORITY = 15
NORMAL_QUEUE_PRIORITY = 7
"""What the runtimes ask for; nothing in the header is called so."""
MIN_QUEUE_RING_SIZE = 1024
"""The kernel takes a smaller ring size for this one."""
MAX_QUEUES_PER_PROCESS = 1024
NUM_OF_SUPPORTED_GPUS = 7
"""Entries of GET_PROCESS_APERTURES."""

# An errno of the kernel that the C library does not name; CREATE_QUEUE lets it escape.
ENOTSUPP = 524


# ----- values -------------------------------------------------------------------------------------


class QueueType(IntEnum):
    """``queue_type`` of CREATE_QUEUE (``KFD_IOC_QUEUE_TYPE_*``): COMPUTE takes PM4 packets."""

    COMPUTE = 0
    SDMA = 1
    COMPUTE_AQL = 2
    SDMA_XGMI = 3
    SDMA_BY_ENG_ID = 4


class CachePolicy(IntEnum):
    """Policies of SET_MEMORY_POLICY (``KFD_IOC_CACHE_POLICY_*``)."""

    COHERENT = 0
    NONCOHERENT = 1


class AllocFlags(IntFlag):
    """``flags`` of ALLOC_MEMORY_OF_GPU (``KFD_IOC_ALLOC_MEM_FLAGS_*``).

    One of VRAM, GTT, USERPTR, DOORBELL, MMIO_REMAP says what the memory is. PUBLIC VRAM is VRAM that the CPU
    can map, which needs a large BAR. AQL_QUEUE_MEM maps an object of half the size twice.
    """

    VRAM = 1 << 0
    GTT = 1 << 1
    USERPTR = 1 << 2
    DOORBELL = 1 << 3
    MMIO_REMAP = 1 << 4
    CONTIGUOUS = 1 << 23
    EXT_COHERENT = 1 << 24
    UNCACHED = 1 << 25
    COHERENT = 1 << 26
    AQL_QUEUE_MEM = 1 << 27
    NO_SUBSTITUTE = 1 << 28
    PUBLIC = 1 << 29
    EXECUTABLE = 1 << 30
    WRITABLE = 1 << 31


DOMAINS = AllocFlags.VRAM | AllocFlags.GTT | AllocFlags.USERPTR | AllocFlags.DOORBELL | AllocFlags.MMIO_REMAP
"""The flags of which ALLOC_MEMORY_OF_GPU needs one."""


class EventType(IntEnum):
    """``event_type`` of CREATE_EVENT (``KFD_IOC_EVENT_*``)."""

    SIGNAL = 0
    NODECHANGE = 1
    DEVICESTATECHANGE = 2
    HW_EXCEPTION = 3
    SYSTEM_EVENT = 4
    DEBUG_EVENT = 5
    PROFILE_EVENT = 6
    QUEUE_EVENT = 7
    MEMORY = 8


class WaitResult(IntEnum):
    """``wait_result`` of WAIT_EVENTS (``KFD_IOC_WAIT_RESULT_*``)."""

    COMPLETE = 0
    TIMEOUT = 1
    FAIL = 2


class ResetType(IntEnum):
    """``reset_type`` of a hardware exception (``KFD_HW_EXCEPTION_*``)."""

    WHOLE_GPU_RESET = 0
    PER_ENGINE_RESET = 1


class ResetCause(IntEnum):
    """``reset_cause`` of a hardware exception (``KFD_HW_EXCEPTION_*``)."""

    GPU_HANG = 0
    ECC = 1


class MemoryError(IntEnum):
    """``ErrorType`` of a memory exception (``KFD_MEM_ERR_*``)."""

    NO_RAS = 0
    SRAM_ECC = 1
    POISON_CONSUMED = 2
    GPU_HANG = 3


class SvmOp(IntEnum):
    """``op`` of SVM (``KFD_IOCTL_SVM_OP_*``)."""

    SET_ATTR = 0
    GET_ATTR = 1


class SvmLocation(IntEnum):
    """Locations beside GPU ids (``KFD_IOCTL_SVM_LOCATION_*``)."""

    SYSMEM = 0
    UNDEFINED = 0xFFFFFFFF


class SvmAttr(IntEnum):
    """``type`` of SVM_ATTRIBUTE (``KFD_IOCTL_SVM_ATTR_*``)."""

    PREFERRED_LOC = 0
    PREFETCH_LOC = 1
    ACCESS = 2
    ACCESS_IN_PLACE = 3
    NO_ACCESS = 4
    SET_FLAGS = 5
    CLR_FLAGS = 6
    GRANULARITY = 7


class SvmFlags(IntFlag):
    """Value of SET_FLAGS and CLR_FLAGS (``KFD_IOCTL_SVM_FLAG_*``)."""

    HOST_ACCESS = 0x01
    COHERENT = 0x02
    HIVE_LOCAL = 0x04
    GPU_RO = 0x08
    GPU_EXEC = 0x10
    GPU_READ_MOSTLY = 0x20
    GPU_ALWAYS_MAPPED = 0x40
    EXT_COHERENT = 0x80


class RuntimeEnableMode(IntFlag):
    """``mode_mask`` of RUNTIME_ENABLE (``KFD_RUNTIME_ENABLE_MODE_*_MASK``)."""

    ENABLE = 1
    TTMP_SAVE = 2


class ExceptionCode(IntEnum):
    """Why a queue, a device or a process is in error (``EC_*``); its bit in masks is the code minus one."""

    NONE = 0
    QUEUE_WAVE_ABORT = 1
    QUEUE_WAVE_TRAP = 2
    QUEUE_WAVE_MATH_ERROR = 3
    QUEUE_WAVE_ILLEGAL_INSTRUCTION = 4
    QUEUE_WAVE_MEMORY_VIOLATION = 5
    QUEUE_WAVE_APERTURE_VIOLATION = 6
    QUEUE_PACKET_DISPATCH_DIM_INVALID = 16
    QUEUE_PACKET_DISPATCH_GROUP_SEGMENT_SIZE_INVALID = 17
    QUEUE_PACKET_DISPATCH_CODE_INVALID = 18
    QUEUE_PACKET_RESERVED = 19
    QUEUE_PACKET_UNSUPPORTED = 20
    QUEUE_PACKET_DISPATCH_WORK_GROUP_SIZE_INVALID = 21
    QUEUE_PACKET_DISPATCH_REGISTER_INVALID = 22
    QUEUE_PACKET_VENDOR_UNSUPPORTED = 23
    QUEUE_PREEMPTION_ERROR = 30
    QUEUE_NEW = 31
    DEVICE_QUEUE_DELETE = 32
    DEVICE_MEMORY_VIOLATION = 33
    DEVICE_RAS_ERROR = 34
    DEVICE_FATAL_HALT = 35
    DEVICE_NEW = 36
    PROCESS_RUNTIME = 48
    PROCESS_DEVICE_REMOVE = 49


class CriuOp(IntEnum):
    """``op`` of CRIU_OP (``KFD_CRIU_OP_*``)."""

    PROCESS_INFO = 0
    CHECKPOINT = 1
    UNPAUSE = 2
    RESTORE = 3
    RESUME = 4


class DbgTrapOp(IntEnum):
    """``op`` of DBG_TRAP (``KFD_IOC_DBG_TRAP_*``)."""

    ENABLE = 0
    DISABLE = 1
    SEND_RUNTIME_EVENT = 2
    SET_EXCEPTIONS_ENABLED = 3
    SET_WAVE_LAUNCH_OVERRIDE = 4
    SET_WAVE_LAUNCH_MODE = 5
    SUSPEND_QUEUES = 6
    RESUME_QUEUES = 7
    SET_NODE_ADDRESS_WATCH = 8
    CLEAR_NODE_ADDRESS_WATCH = 9
    SET_FLAGS = 10
    QUERY_DEBUG_EVENT = 11
    QUERY_EXCEPTION_INFO = 12
    GET_QUEUE_SNAPSHOT = 13
    GET_DEVICE_SNAPSHOT = 14


class MmioRemap(IntEnum):
    """Byte offsets into the page of an MMIO_REMAP allocation (``KFD_MMIO_REMAP_*``)."""

    HDP_MEM_FLUSH_CNTL = 0
    HDP_REG_FLUSH_CNTL = 4


class MmapType(IntEnum):
    """Field TYPE of MMAP_OFFSET (``KFD_MMAP_TYPE_*`` of ``kfd_priv.h``)."""

    MMIO = 0
    RESERVED_MEM = 1
    EVENTS = 2
    DOORBELL = 3


class MMAP_OFFSET(Word, width=64):
    """The offset that mmap of ``/dev/kfd`` takes (``kfd_priv.h``). ``gpu_id`` is a 16-bit hash."""

    OFFSET = 0, 45
    GPU_ID = 46, 61
    TYPE = 62, 63, MmapType


class HANDLE(Word, width=64):
    """``handle`` of an allocation (``MAKE_HANDLE`` of ``kfd_priv.h``): its GPU, and an index on that GPU."""

    IDR_HANDLE = 0, 31
    GPU_ID = 32, 63


class QUEUE_PERCENTAGE(Word):
    """``queue_percentage`` of CREATE_QUEUE and UPDATE_QUEUE: PM4_TARGET_XCC is the XCC of a PM4 queue."""

    PERCENT = 0, 7
    PM4_TARGET_XCC = 8, 15


# ----- doorbells ----------------------------------------------------------------------------------

DOORBELL_BYTES = 8
DOORBELL_SLICE_BYTES = MAX_QUEUES_PER_PROCESS * DOORBELL_BYTES
"""The only length that mmap takes for doorbells, and the alignment of the slice."""


def split_doorbell_offset(doorbell_offset: int) -> tuple[int, int]:
    """Return the mmap offset of the slice and the byte offset of the doorbell in it."""
    return doorbell_offset & ~(DOORBELL_SLICE_BYTES - 1), doorbell_offset & (DOORBELL_SLICE_BYTES - 1)


# ----- events -------------------------------------------------------------------------------------

SIGNAL_EVENT_LIMIT = 4096
"""Slots of the event page. Slot index is event id; id 0 is never used."""
SIGNAL_SLOT_BYTES = 8
EVENT_PAGE_BYTES = SIGNAL_EVENT_LIMIT * SIGNAL_SLOT_BYTES
UNSIGNALED_EVENT_SLOT = 0xFFFFFFFFFFFFFFFF
"""What a slot holds while its event is not signalled (``kfd_events.h``)."""
FIRST_NONSIGNAL_EVENT_ID = 0x40000000
LAST_NONSIGNAL_EVENT_ID = 0x7FFFFFFF
EVENT_TIMEOUT_IMMEDIATE = 0
EVENT_TIMEOUT_INFINITE = 0xFFFFFFFF
"""``timeout`` of WAIT_EVENTS that never ends; every other value counts milliseconds."""


# ----- apertures ----------------------------------------------------------------------------------

# kfd_flat_memory.c for gfx9 and later. Flat addresses in the LDS and scratch apertures reach local and
# private memory; SH_MEM_BASES holds bits 63..48 of both bases.
LDS_APERTURE_BASE = 0x0001_0000_0000_0000
SCRATCH_APERTURE_BASE = 0x0002_0000_0000_0000
APERTURE_LIMIT_MASK = 0xFFFFFFFF
GPUVM_APERTURE_BASE = 0x1000000
GPUVM_APERTURE_LIMIT = (1 << 47) - 1
CLOCK_FREQUENCY_HZ = 1_000_000_000
"""``system_clock_freq`` of GET_CLOCK_COUNTERS."""


# ----- plain structures ---------------------------------------------------------------------------


@struct
class PROCESS_DEVICE_APERTURES(ctypes.Structure):
    """Element of GET_PROCESS_APERTURES and of what GET_PROCESS_APERTURES_NEW fills in (56 bytes)."""

    lds_base: U64
    lds_limit: U64
    scratch_base: U64
    scratch_limit: U64
    gpuvm_base: U64
    gpuvm_limit: U64
    gpu_id: U32
    padding: U32


@struct
class MEMORY_EXCEPTION_FAILURE(ctypes.Structure):
    """Why an access failed, each 0 or 1 (16 bytes)."""

    NotPresent: U32
    ReadOnly: U32
    NoExecute: U32
    imprecise: U32


@struct
class HSA_MEMORY_EXCEPTION_DATA(ctypes.Structure):
    """Payload of a MEMORY event (32 bytes): a page address, and a :class:`MemoryError`."""

    failure: Annotated[Any, MEMORY_EXCEPTION_FAILURE]
    va: U64
    gpu_id: U32
    ErrorType: U32


@struct
class HSA_HW_EXCEPTION_DATA(ctypes.Structure):
    """Payload of a HW_EXCEPTION event (16 bytes): a :class:`ResetType` and a :class:`ResetCause`."""

    reset_type: U32
    reset_cause: U32
    memory_lost: U32
    gpu_id: U32


@struct
class HSA_SIGNAL_EVENT_DATA(ctypes.Structure):
    """Payload of a SIGNAL event (8 bytes).

    A non-zero age that is not the event's current age counts as signalled; the current age is copied back.
    """

    last_event_age: U64


class EVENT_PAYLOAD(ctypes.Union):
    """The union of EVENT_DATA (32 bytes)."""

    _fields_ = [
        ("memory_exception_data", HSA_MEMORY_EXCEPTION_DATA),
        ("hw_exception_data", HSA_HW_EXCEPTION_DATA),
        ("signal_event_data", HSA_SIGNAL_EVENT_DATA),
    ]


@struct
class EVENT_DATA(ctypes.Structure):
    """Element of ``events_ptr`` of WAIT_EVENTS (48 bytes).

    The payload is filled in for the events that are signalled only: zero it first, and test its ``gpu_id``.
    """

    _anonymous_ = ("payload",)
    payload: Annotated[Any, EVENT_PAYLOAD]
    kfd_event_data_ext: U64
    event_id: U32
    padding: U32


@struct
class CONTEXT_SAVE_AREA_HEADER(ctypes.Structure):
    """Begins the context save area of every XCC (40 bytes); user space fills in what follows the first four.

    Queue errors set bit code - 1 (:class:`ExceptionCode`) of the u64 at ``err_payload_addr`` and signal
    ``err_event_id``.
    """

    control_stack_offset: U32
    control_stack_size: U32
    wave_state_offset: U32
    wave_state_size: U32
    debug_offset: U32
    debug_size: U32
    err_payload_addr: U64
    err_event_id: U32
    reserved1: U32


@struct
class SVM_ATTRIBUTE(ctypes.Structure):
    """Follows the argument of SVM, ``nattr`` times (8 bytes)."""

    type: U32
    value: U32


@struct
class CRIU_DEVICE_BUCKET(ctypes.Structure):
    """Element of ``devices`` of CRIU_OP (16 bytes)."""

    user_gpu_id: U32
    actual_gpu_id: U32
    drm_fd: U32
    padding: U32


@struct
class CRIU_BO_BUCKET(ctypes.Structure):
    """Element of ``bos`` of CRIU_OP (48 bytes)."""

    addr: U64
    size: U64
    offset: U64
    restored_offset: U64
    gpu_id: U32
    alloc_flags: U32
    dmabuf_fd: U32
    padding: U32


@struct
class RUNTIME_INFO(ctypes.Structure):
    """What ``rinfo_ptr`` of DBG_TRAP_ENABLE points to (16 bytes)."""

    r_debug: U64
    runtime_state: U32
    ttmp_setup: U32


@struct
class QUEUE_SNAPSHOT_ENTRY(ctypes.Structure):
    """What GET_QUEUE_SNAPSHOT fills in (64 bytes)."""

    exception_status: U64
    ring_base_address: U64
    write_pointer_address: U64
    read_pointer_address: U64
    ctx_save_restore_address: U64
    queue_id: U32
    gpu_id: U32
    ring_size: U32
    queue_type: U32
    ctx_save_restore_area_size: U32
    reserved: U32


@struct
class DBG_DEVICE_INFO_ENTRY(ctypes.Structure):
    """What GET_DEVICE_SNAPSHOT fills in (120 bytes)."""

    exception_status: U64
    lds_base: U64
    lds_limit: U64
    scratch_base: U64
    scratch_limit: U64
    gpuvm_base: U64
    gpuvm_limit: U64
    gpu_id: U32
    location_id: U32
    vendor_id: U32
    device_id: U32
    revision_id: U32
    subsystem_vendor_id: U32
    subsystem_device_id: U32
    fw_version: U32
    gfx_target_version: U32
    simd_count: U32
    max_waves_per_simd: U32
    array_count: U32
    simd_arrays_per_engine: U32
    num_xcc: U32
    capability: U32
    debug_prop: U32


@struct
class DBG_TRAP_ENABLE(ctypes.Structure):
    exception_mask: U64
    rinfo_ptr: U64
    rinfo_size: U32
    dbg_fd: U32


@struct
class DBG_TRAP_SEND_RUNTIME_EVENT(ctypes.Structure):
    exception_mask: U64
    gpu_id: U32
    queue_id: U32


@struct
class DBG_TRAP_SET_EXCEPTIONS_ENABLED(ctypes.Structure):
    exception_mask: U64


@struct
class DBG_TRAP_SET_WAVE_LAUNCH_OVERRIDE(ctypes.Structure):
    override_mode: U32
    enable_mask: U32
    support_request_mask: U32
    padding: U32


@struct
class DBG_TRAP_SET_WAVE_LAUNCH_MODE(ctypes.Structure):
    launch_mode: U32
    padding: U32


@struct
class DBG_TRAP_SUSPEND_QUEUES(ctypes.Structure):
    exception_mask: U64
    queue_array_ptr: U64
    num_queues: U32
    grace_period: U32


@struct
class DBG_TRAP_RESUME_QUEUES(ctypes.Structure):
    queue_array_ptr: U64
    num_queues: U32
    padding: U32


@struct
class DBG_TRAP_SET_NODE_ADDRESS_WATCH(ctypes.Structure):
    address: U64
    mode: U32
    mask: U32
    gpu_id: U32
    id: U32


@struct
class DBG_TRAP_CLEAR_NODE_ADDRESS_WATCH(ctypes.Structure):
    gpu_id: U32
    id: U32


@struct
class DBG_TRAP_SET_FLAGS(ctypes.Structure):
    flags: U32
    padding: U32


@struct
class DBG_TRAP_QUERY_DEBUG_EVENT(ctypes.Structure):
    exception_mask: U64
    gpu_id: U32
    queue_id: U32


@struct
class DBG_TRAP_QUERY_EXCEPTION_INFO(ctypes.Structure):
    info_ptr: U64
    info_size: U32
    source_id: U32
    exception_code: U32
    clear_exception: U32


@struct
class DBG_TRAP_QUEUE_SNAPSHOT(ctypes.Structure):
    exception_mask: U64
    snapshot_buf_ptr: U64
    num_queues: U32
    entry_size: U32


@struct
class DBG_TRAP_DEVICE_SNAPSHOT(ctypes.Structure):
    exception_mask: U64
    snapshot_buf_ptr: U64
    num_devices: U32
    entry_size: U32


class DBG_TRAP_ARGUMENTS(ctypes.Union):
    """The union of DBG_TRAP (24 bytes), by :class:`DbgTrapOp`."""

    _fields_ = [
        ("enable", DBG_TRAP_ENABLE),
        ("send_runtime_event", DBG_TRAP_SEND_RUNTIME_EVENT),
        ("set_exceptions_enabled", DBG_TRAP_SET_EXCEPTIONS_ENABLED),
        ("launch_override", DBG_TRAP_SET_WAVE_LAUNCH_OVERRIDE),
        ("launch_mode", DBG_TRAP_SET_WAVE_LAUNCH_MODE),
        ("suspend_queues", DBG_TRAP_SUSPEND_QUEUES),
        ("resume_queues", DBG_TRAP_RESUME_QUEUES),
        ("set_node_address_watch", DBG_TRAP_SET_NODE_ADDRESS_WATCH),
        ("clear_node_address_watch", DBG_TRAP_CLEAR_NODE_ADDRESS_WATCH),
        ("set_flags", DBG_TRAP_SET_FLAGS),
        ("query_debug_event", DBG_TRAP_QUERY_DEBUG_EVENT),
        ("query_exception_info", DBG_TRAP_QUERY_EXCEPTION_INFO),
        ("queue_snapshot", DBG_TRAP_QUEUE_SNAPSHOT),
        ("device_snapshot", DBG_TRAP_DEVICE_SNAPSHOT),
    ]


# ----- ioctls -------------------------------------------------------------------------------------

_NO_GPU = "gpu_id is not that of a GPU that this process may use"
_POINTER = "a pointer in the argument is not readable or writable memory of this process"
_NO_EVENT = "the event id is unknown in this process"
_NO_QUEUE = "the queue id is unknown in this process"
_FORKED = "the file descriptor was opened by another process, as after a fork"
_HANDLE = "the handle is unknown in this process"
_DEBUGGER = "the old debugger calls are gone from the kernel"
_UNBOUND = "the process has no address space on the GPU: ACQUIRE_VM comes first"


@ioctl(MAGIC, 0x01, Direction.READ)
class GET_VERSION(Ioctl):
    """Return the version of this interface."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EBADF: _FORKED}
    major_version: U32
    minor_version: U32


@ioctl(MAGIC, 0x02, Direction.READ_WRITE)
class CREATE_QUEUE(Ioctl):
    """Create a queue; see :func:`queue_refusal` for what the kernel checks.

    ``doorbell_offset`` is what mmap takes plus the byte offset of the doorbell, which
    :func:`split_doorbell_offset` tells apart. ``queue_percentage`` is a QUEUE_PERCENTAGE. ``sdma_engine_id``
    matters to SDMA_BY_ENG_ID alone.
    """

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: (
            "ring_size, queue_percentage, queue_priority or gpu_id is out of range, a size is not what "
            "the kernel expects of the GPU, or a buffer is not one mapping of the size it should have"
        ),
        errno.EFAULT: _POINTER,
        errno.ENOMEM: "no copy engine queue or no memory is left",
        errno.EPERM: "the GPU has as many queues as the driver allows",
        errno.ENOSPC: "no compute queue is left",
        errno.ESRCH: _UNBOUND,
        ENOTSUPP: "queue_type is unknown to this kernel",
    }
    ring_base_address: U64
    write_pointer_address: U64
    read_pointer_address: U64
    doorbell_offset: U64
    ring_size: U32
    gpu_id: U32
    queue_type: U32
    queue_percentage: U32
    queue_priority: U32
    queue_id: U32
    eop_buffer_address: U64
    eop_buffer_size: U64
    ctx_save_restore_address: U64
    ctx_save_restore_size: U32
    ctl_stack_size: U32
    sdma_engine_id: U32
    padding: U32


@ioctl(MAGIC, 0x03, Direction.READ_WRITE)
class DESTROY_QUEUE(Ioctl):
    """Destroy a queue. One that hangs takes seconds, and may get the GPU reset."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: _NO_QUEUE,
        errno.ETIME: "the queue could not be preempted: the GPU hangs",
    }
    queue_id: U32
    padding: U32


@ioctl(MAGIC, 0x04, Direction.WRITE)
class SET_MEMORY_POLICY(Ioctl):
    """Set :class:`CachePolicy` of ordinary memory and of the alternate aperture."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: f"a policy is unknown, or {_NO_GPU}",
        errno.ESRCH: _UNBOUND,
    }
    alternate_aperture_base: U64
    alternate_aperture_size: U64
    gpu_id: U32
    default_policy: U32
    alternate_policy: U32
    padding: U32


@ioctl(MAGIC, 0x05, Direction.READ_WRITE)
class GET_CLOCK_COUNTERS(Ioctl):
    """Return the GPU counter, CLOCK_MONOTONIC_RAW and CLOCK_BOOTTIME (both in ns) of about the same moment.

    The GPU counter is 0 for a ``gpu_id`` that is none.
    """

    CAUSES: ClassVar[dict[int, str]] = {errno.EBADF: _FORKED}
    gpu_clock_counter: U64
    cpu_clock_counter: U64
    system_clock_counter: U64
    system_clock_freq: U64
    gpu_id: U32
    padding: U32


@ioctl(MAGIC, 0x06, Direction.READ)
class GET_PROCESS_APERTURES(Ioctl):
    """Return the apertures of the first NUM_OF_SUPPORTED_GPUS devices."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EBADF: _FORKED}
    process_apertures: Annotated[Any, PROCESS_DEVICE_APERTURES * NUM_OF_SUPPORTED_GPUS]
    num_of_nodes: U32
    padding: U32


@ioctl(MAGIC, 0x07, Direction.WRITE)
class UPDATE_QUEUE(Ioctl):
    """Change a queue. A ring address or a percentage of 0 stops it."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "ring_size, queue_percentage or queue_priority is out of range",
        errno.EFAULT: f"{_NO_QUEUE}, or {_POINTER}",
    }
    ring_base_address: U64
    queue_id: U32
    ring_size: U32
    queue_percentage: U32
    queue_priority: U32


@ioctl(MAGIC, 0x08, Direction.READ_WRITE)
class CREATE_EVENT(Ioctl):
    """Create an event. ``auto_reset``: waking a waiter clears it.

    The first call passes the handle of the buffer that becomes the event page in ``event_page_offset``. A
    SIGNAL event has slot ``event_slot_index`` of that page; the GPU interrupts with ``event_trigger_data``.
    """

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "event_type is unknown, or the process has an event page already",
        errno.ENOSPC: "every slot of the event page is taken",
        errno.ENOMEM: "the event page is too small, or no memory is left",
    }
    event_page_offset: U64
    event_trigger_data: U32
    event_type: U32
    auto_reset: U32
    node_id: U32
    event_id: U32
    event_slot_index: U32


@ioctl(MAGIC, 0x09, Direction.WRITE)
class DESTROY_EVENT(Ioctl):
    """Destroy an event; who waits for it gets EIO."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EINVAL: _NO_EVENT}
    event_id: U32
    padding: U32


@ioctl(MAGIC, 0x0A, Direction.WRITE)
class SET_EVENT(Ioctl):
    """Signal an event from the CPU."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EINVAL: f"{_NO_EVENT}, or it is not a SIGNAL event"}
    event_id: U32
    padding: U32


@ioctl(MAGIC, 0x0B, Direction.WRITE)
class RESET_EVENT(Ioctl):
    """Clear an event."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EINVAL: f"{_NO_EVENT}, or it is not a SIGNAL event"}
    event_id: U32
    padding: U32


@ioctl(MAGIC, 0x0C, Direction.READ_WRITE)
class WAIT_EVENTS(Ioctl):
    """Sleep until one (or with ``wait_for_all`` every) of ``num_events`` EVENT_DATA is signalled.

    ``timeout`` counts milliseconds. A timeout is no error: ``wait_result`` says so.
    """

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: _NO_EVENT,
        errno.EFAULT: _POINTER,
        errno.EIO: "an event was destroyed meanwhile",
        errno.EINTR: "a signal arrived",
        errno.ENOMEM: "no memory is left for so many events",
    }
    events_ptr: U64
    num_events: U32
    wait_for_all: U32
    timeout: U32
    wait_result: U32


@ioctl(MAGIC, 0x0D, Direction.WRITE)
class DBG_REGISTER_DEPRECATED(Ioctl):
    CAUSES: ClassVar[dict[int, str]] = {errno.EPERM: _DEBUGGER}
    gpu_id: U32
    padding: U32


@ioctl(MAGIC, 0x0E, Direction.WRITE)
class DBG_UNREGISTER_DEPRECATED(Ioctl):
    CAUSES: ClassVar[dict[int, str]] = {errno.EPERM: _DEBUGGER}
    gpu_id: U32
    padding: U32


@ioctl(MAGIC, 0x0F, Direction.WRITE)
class DBG_ADDRESS_WATCH_DEPRECATED(Ioctl):
    CAUSES: ClassVar[dict[int, str]] = {errno.EPERM: _DEBUGGER}
    content_ptr: U64
    gpu_id: U32
    buf_size_in_bytes: U32


@ioctl(MAGIC, 0x10, Direction.WRITE)
class DBG_WAVE_CONTROL_DEPRECATED(Ioctl):
    CAUSES: ClassVar[dict[int, str]] = {errno.EPERM: _DEBUGGER}
    content_ptr: U64
    gpu_id: U32
    buf_size_in_bytes: U32


@ioctl(MAGIC, 0x11, Direction.READ_WRITE)
class SET_SCRATCH_BACKING_VA(Ioctl):
    """Tell where scratch memory is; only matters to GPUs before gfx9."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EINVAL: _NO_GPU, errno.ESRCH: _UNBOUND}
    va_addr: U64
    gpu_id: U32
    padding: U32


@ioctl(MAGIC, 0x12, Direction.READ_WRITE)
class GET_TILE_CONFIG(Ioctl):
    """Return how textures are tiled."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EINVAL: _NO_GPU, errno.EFAULT: _POINTER}
    tile_config_ptr: U64
    macro_tile_config_ptr: U64
    num_tile_configs: U32
    num_macro_tile_configs: U32
    gpu_id: U32
    gb_addr_config: U32
    num_banks: U32
    num_ranks: U32


@ioctl(MAGIC, 0x13, Direction.WRITE)
class SET_TRAP_HANDLER(Ioctl):
    """Install a second-level trap handler."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EINVAL: _NO_GPU, errno.ESRCH: _UNBOUND}
    tba_addr: U64
    tma_addr: U64
    gpu_id: U32
    padding: U32


@ioctl(MAGIC, 0x14, Direction.READ_WRITE)
class GET_PROCESS_APERTURES_NEW(Ioctl):
    """Fill in PROCESS_DEVICE_APERTURES of up to ``num_of_nodes`` devices; 0 asks how many there are."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.ENOMEM: "no memory is left for so many devices",
        errno.EFAULT: _POINTER,
    }
    kfd_process_device_apertures_ptr: U64
    num_of_nodes: U32
    padding: U32


@ioctl(MAGIC, 0x15, Direction.WRITE)
class ACQUIRE_VM(Ioctl):
    """Make the address space of an open render node that of the process on this GPU."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: f"drm_fd is not an open render node, or {_NO_GPU}",
        errno.EBUSY: "the process has the address space of another file descriptor of the GPU already",
    }
    drm_fd: U32
    gpu_id: U32


@ioctl(MAGIC, 0x16, Direction.READ_WRITE)
class ALLOC_MEMORY_OF_GPU(Ioctl):
    """Allocate memory at address ``va_addr``, or with USERPTR make memory of the process known to the GPU.

    ``mmap_offset`` is an output that mmap of the render node takes, but with USERPTR the host address.
    """

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: (
            "size is 0, no flag says what memory to allocate, VRAM with PUBLIC needs a large BAR "
            f"(Resizable BAR in the firmware setup), USERPTR has no host address, or {_NO_GPU}"
        ),
        errno.ENOMEM: "the GPU or the system has not that much memory left",
        errno.EADDRINUSE: "the address range overlaps one that SVM manages",
        errno.EFAULT: _POINTER,
    }
    va_addr: U64
    size: U64
    handle: U64
    mmap_offset: U64
    gpu_id: U32
    flags: U32


@ioctl(MAGIC, 0x17, Direction.WRITE)
class FREE_MEMORY_OF_GPU(Ioctl):
    """Free memory that no GPU maps."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: _HANDLE,
        errno.EBUSY: "a GPU still maps the memory, or a queue uses it",
        errno.EPERM: "the memory is the event page",
    }
    handle: U64


@ioctl(MAGIC, 0x18, Direction.READ_WRITE)
class MAP_MEMORY_TO_GPU(Ioctl):
    """Map memory on the ``n_devices`` GPUs (u32 ids) from index ``n_success`` on, which counts up."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: f"n_devices is 0, n_success is above it, or {_NO_GPU}",
        errno.ENOMEM: f"{_HANDLE}, or no memory is left for page tables",
        errno.EFAULT: _POINTER,
        errno.EINTR: "a signal arrived; n_success tells how far the call came",
    }
    handle: U64
    device_ids_array_ptr: U64
    n_devices: U32
    n_success: U32


@ioctl(MAGIC, 0x19, Direction.READ_WRITE)
class UNMAP_MEMORY_FROM_GPU(Ioctl):
    """Mirror image of MAP_MEMORY_TO_GPU."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: f"n_devices is 0, n_success is above it, or {_NO_GPU}",
        errno.ENOMEM: _HANDLE,
        errno.EBUSY: "a queue uses the memory",
        errno.EFAULT: _POINTER,
    }
    handle: U64
    device_ids_array_ptr: U64
    n_devices: U32
    n_success: U32


@ioctl(MAGIC, 0x1A, Direction.WRITE)
class SET_CU_MASK(Ioctl):
    """Limit a queue to compute units: ``num_cu_mask`` bits, a multiple of 32."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "num_cu_mask is 0 or no multiple of 32",
        errno.EFAULT: f"{_NO_QUEUE}, or {_POINTER}",
    }
    queue_id: U32
    num_cu_mask: U32
    cu_mask_ptr: U64


@ioctl(MAGIC, 0x1B, Direction.READ_WRITE)
class GET_QUEUE_WAVE_STATE(Ioctl):
    """Copy the saved control stack of a queue that is not active."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EFAULT: f"{_NO_QUEUE}, or {_POINTER}",
        errno.EBUSY: "the queue is active",
        errno.EINVAL: "the queue has no wave state",
    }
    ctl_stack_address: U64
    ctl_stack_used_size: U32
    save_area_used_size: U32
    queue_id: U32
    padding: U32


@ioctl(MAGIC, 0x1C, Direction.READ_WRITE)
class GET_DMABUF_INFO(Ioctl):
    """Describe a DMA buffer of a GPU."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "dmabuf_fd is no DMA buffer of a GPU of KFD",
        errno.EFAULT: _POINTER,
    }
    size: U64
    metadata_ptr: U64
    metadata_size: U32
    gpu_id: U32
    flags: U32
    dmabuf_fd: U32


@ioctl(MAGIC, 0x1D, Direction.READ_WRITE)
class IMPORT_DMABUF(Ioctl):
    """Make a DMA buffer an allocation of this process at ``va_addr``."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: f"dmabuf_fd is no DMA buffer of a GPU, or {_NO_GPU}",
        errno.ENOMEM: "no memory is left",
    }
    va_addr: U64
    handle: U64
    gpu_id: U32
    dmabuf_fd: U32


@ioctl(MAGIC, 0x1E, Direction.READ_WRITE)
class ALLOC_QUEUE_GWS(Ioctl):
    """Give a queue the barriers of the whole GPU."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: _NO_QUEUE,
        errno.ENODEV: "the GPU has no such barriers for user queues",
        errno.EBUSY: "another queue has them",
    }
    queue_id: U32
    num_gws: U32
    first_gws: U32
    padding: U32


@ioctl(MAGIC, 0x1F, Direction.READ_WRITE)
class SMI_EVENTS(Ioctl):
    """Return a file descriptor from which the events of a GPU are read."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EINVAL: _NO_GPU}
    gpuid: U32
    anon_fd: U32


@ioctl(MAGIC, 0x20, Direction.READ_WRITE)
class SVM(Ioctl):
    """Set or get attributes of a range of addresses; ``nattr`` SVM_ATTRIBUTE follow the argument."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "the range is empty or not aligned to pages, or op or an attribute is unknown",
        errno.EFAULT: "the range is not memory of the process",
        errno.EPERM: "the devices of the process cannot share addresses",
    }
    start_addr: U64
    size: U64
    op: U32
    nattr: U32


@ioctl(MAGIC, 0x21, Direction.READ_WRITE)
class SET_XNACK_MODE(Ioctl):
    """Enable (1) or disable (0) retry of page faults; a negative value asks for the mode."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EPERM: "a GPU cannot retry page faults",
        errno.EBUSY: "the process has queues",
    }
    xnack_enabled: S32


@ioctl(MAGIC, 0x22, Direction.READ_WRITE)
class CRIU_OP(Ioctl):
    """Checkpoint and restore a process (:class:`CriuOp`)."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "op is unknown, or a number does not match what was checkpointed",
        errno.EFAULT: _POINTER,
        errno.ESRCH: "pid is not a process that uses KFD",
    }
    devices: U64
    bos: U64
    priv_data: U64
    priv_data_size: U64
    num_devices: U32
    num_bos: U32
    num_objects: U32
    pid: U32
    op: U32


@ioctl(MAGIC, 0x23, Direction.READ_WRITE)
class AVAILABLE_MEMORY(Ioctl):
    """Return how many bytes of VRAM can be allocated."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EINVAL: _NO_GPU}
    available: U64
    gpu_id: U32
    padding: U32


@ioctl(MAGIC, 0x24, Direction.READ_WRITE)
class EXPORT_DMABUF(Ioctl):
    """Return a DMA buffer for an allocation; ``flags`` are those of open (O_CLOEXEC)."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EINVAL: _HANDLE}
    handle: U64
    flags: U32
    dmabuf_fd: U32


@ioctl(MAGIC, 0x25, Direction.READ_WRITE)
class RUNTIME_ENABLE(Ioctl):
    """Tell that a runtime is there (:class:`RuntimeEnableMode`); a mask of 0 tells that it has gone."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EBUSY: "a runtime of this process has told so already",
        errno.EEXIST: "the process has queues: RUNTIME_ENABLE comes first",
    }
    r_debug: U64
    mode_mask: U32
    capabilities_mask: U32


@ioctl(MAGIC, 0x26, Direction.READ_WRITE)
class DBG_TRAP(Ioctl):
    """Debug process ``pid``: ``op`` (:class:`DbgTrapOp`) selects the member of ``arguments``."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "op is unknown, or the GPU cannot be debugged",
        errno.ESRCH: "pid is not a process that uses KFD",
        errno.EPERM: "the caller does not trace the process",
    }
    pid: U32
    op: U32
    arguments: Annotated[Any, DBG_TRAP_ARGUMENTS]


IOCTLS: dict[int, type[Ioctl]] = {
    argument.NR: argument
    for argument in (
        GET_VERSION,
        CREATE_QUEUE,
        DESTROY_QUEUE,
        SET_MEMORY_POLICY,
        GET_CLOCK_COUNTERS,
        GET_PROCESS_APERTURES,
        UPDATE_QUEUE,
        CREATE_EVENT,
        DESTROY_EVENT,
        SET_EVENT,
        RESET_EVENT,
        WAIT_EVENTS,
        DBG_REGISTER_DEPRECATED,
        DBG_UNREGISTER_DEPRECATED,
        DBG_ADDRESS_WATCH_DEPRECATED,
        DBG_WAVE_CONTROL_DEPRECATED,
        SET_SCRATCH_BACKING_VA,
        GET_TILE_CONFIG,
        SET_TRAP_HANDLER,
        GET_PROCESS_APERTURES_NEW,
        ACQUIRE_VM,
        ALLOC_MEMORY_OF_GPU,
        FREE_MEMORY_OF_GPU,
        MAP_MEMORY_TO_GPU,
        UNMAP_MEMORY_FROM_GPU,
        SET_CU_MASK,
        GET_QUEUE_WAVE_STATE,
        GET_DMABUF_INFO,
        IMPORT_DMABUF,
        ALLOC_QUEUE_GWS,
        SMI_EVENTS,
        SVM,
        SET_XNACK_MODE,
        CRIU_OP,
        AVAILABLE_MEMORY,
        EXPORT_DMABUF,
        RUNTIME_ENABLE,
        DBG_TRAP,
    )
}

COMMAND_END = 0x27
"""First number that a mainline kernel does not know; the ROCm driver has more from 0x80 on."""


# ----- sizes of a queue's buffers -----------------------------------------------------------------

# kfd_queue.c, kfd_queue_ctx_save_restore_size(): what a context switch saves.
SGPR_SIZE_PER_CU = 0x4000
LDS_SIZE_PER_CU = 0x10000
HWREG_SIZE_PER_CU = 0x1000
DEBUGGER_BYTES_ALIGN = 64
DEBUGGER_BYTES_PER_WAVE = 32
EOP_BUFFER_BYTES = 4096
_LARGE_VGPR_FILE = {110000, 110001, 110501, 120000, 120001}
_CDNA_VGPR_FILE = {90008, 90010, 90402, 90500}
_GFX950 = 90500


@dataclass(frozen=True, slots=True)
class QueueSizes:
    """What the kernel expects of a compute queue's buffers, in bytes; of one XCC unless said otherwise.

    ``waves`` can be resident. ``cwsr_size`` is ``ctx_save_restore_size`` of CREATE_QUEUE and consists of the
    control stack and ``wg_data_size``; the buffer is ``cwsr_allocation`` bytes long, for all XCCs, and holds
    the debugger's area as well.
    """

    waves: int
    wg_data_size: int
    ctl_stack_size: int
    cwsr_size: int
    debug_memory_size: int
    cwsr_allocation: int
    eop_buffer_size: int


def vgpr_bytes_per_cu(gfx_target_version: int) -> int:
    """Return the size of the vector registers of a compute unit."""
    if gfx_target_version in _CDNA_VGPR_FILE:
        return 0x80000
    return 0x60000 if gfx_target_version in _LARGE_VGPR_FILE else 0x40000


def saved_bytes_per_cu(node: NodeProperties) -> int:
    """Return what a context switch saves of a compute unit."""
    version = node.gfx_target_version
    lds = node.lds_bytes if version == _GFX950 else LDS_SIZE_PER_CU
    return vgpr_bytes_per_cu(version) + SGPR_SIZE_PER_CU + lds + HWREG_SIZE_PER_CU


def resident_waves(node: NodeProperties) -> int:
    """Return how many waves of one XCC the kernel makes room for."""
    if node.target[0] >= 10:
        return node.cus_per_xcc * 32
    # The kernel's array_count is that of one XCC, before sysfs multiplies it.
    return min(node.cus_per_xcc * 40, node.shader_engines * 512)


def queue_sizes(node: NodeProperties) -> QueueSizes:
    """Return the buffer sizes of a compute queue on ``node``, which is a gfx9, gfx11 or gfx12.0."""
    major = node.target[0]
    waves = resident_waves(node)
    data = _align(node.cus_per_xcc * saved_bytes_per_cu(node), PAGE_BYTES)
    stack = waves * (12 if major >= 10 else 8) + 8
    stack = _align(ctypes.sizeof(CONTEXT_SAVE_AREA_HEADER) + stack, PAGE_BYTES)
    debug = _align(waves * DEBUGGER_BYTES_PER_WAVE, DEBUGGER_BYTES_ALIGN)
    return QueueSizes(
        waves=waves,
        wg_data_size=data,
        ctl_stack_size=stack,
        cwsr_size=data + stack,
        debug_memory_size=debug,
        cwsr_allocation=_align((data + stack + debug) * node.xccs, PAGE_BYTES),
        eop_buffer_size=EOP_BUFFER_BYTES,
    )


def _align(size: int, granule: int) -> int:
    return -(-size // granule) * granule


# ----- what CREATE_QUEUE checks -------------------------------------------------------------------

USER_ADDRESS_LIMIT = (1 << 47) - PAGE_BYTES
"""First address that a process cannot have (x86-64, four-level page tables)."""


@dataclass(frozen=True, slots=True)
class QueueRefusal:
    """Why CREATE_QUEUE fails: the errno, the argument at fault, what it is and what it should be."""

    errno: int
    field: str
    found: int
    expected: str

    def __str__(self) -> str:
        return f"{self.field} is {self.found:#x}, expected {self.expected}"


MappingLookup = Callable[[int], tuple[int, int] | None]
"""Returns (address, bytes) of the GPU mapping that covers an address; ``None`` if there is none."""


def argument_refusal(argument: CREATE_QUEUE) -> QueueRefusal | None:
    """Return what ``set_queue_properties_from_user`` of kfd_chardev.c objects to first, if anything.

    A ring size below MIN_QUEUE_RING_SIZE is no error: the kernel takes the minimum, and writes it back.
    """
    percent = QUEUE_PERCENTAGE.get(argument.queue_percentage, "PERCENT")
    if percent > MAX_QUEUE_PERCENTAGE:
        return QueueRefusal(errno.EINVAL, "queue_percentage", percent, f"at most {MAX_QUEUE_PERCENTAGE}")
    if argument.queue_priority > MAX_QUEUE_PRIORITY:
        expected = f"at most {MAX_QUEUE_PRIORITY}"
        return QueueRefusal(errno.EINVAL, "queue_priority", argument.queue_priority, expected)
    if (bad := _bad_address(argument, "ring_base_address", 8)) is not None:
        return bad
    if argument.ring_size & (argument.ring_size - 1):
        return QueueRefusal(errno.EINVAL, "ring_size", argument.ring_size, "a power of two")
    for field in _POINTERS:
        if (bad := _bad_address(argument, field, 4)) is not None:
            return bad
    if argument.queue_type not in QueueType._value2member_map_:
        known = ", ".join(f"{kind.value} ({kind.name})" for kind in QueueType)
        return QueueRefusal(ENOTSUPP, "queue_type", argument.queue_type, f"one of {known}")
    return None


_POINTERS = (
    "read_pointer_address",
    "write_pointer_address",
    "eop_buffer_address",
    "ctx_save_restore_address",
)


def _bad_address(argument: CREATE_QUEUE, field: str, size: int) -> QueueRefusal | None:
    address: int = getattr(argument, field)
    if address + size <= USER_ADDRESS_LIMIT:
        return None
    return QueueRefusal(errno.EFAULT, field, address, "an address of the process")


def buffer_refusal(
    argument: CREATE_QUEUE, sizes: QueueSizes, mapping_at: MappingLookup
) -> QueueRefusal | None:
    """Return what ``kfd_queue_acquire_buffers`` of kfd_queue.c (since Linux 6.12) objects to first.

    Every buffer must be a mapping of its own: begin where it begins and be as long. Pointers of both
    directions may share a page. The kernel that introduced the check wants ``ctx_save_restore_size`` to be
    exactly what it computed, newer ones take more: this check is the stricter one.
    """
    buffers = [
        ("write_pointer_address", PAGE_BYTES),
        ("read_pointer_address", PAGE_BYTES),
        ("ring_base_address", max(argument.ring_size, MIN_QUEUE_RING_SIZE)),
    ]
    if (bad := _bad_buffer(argument, buffers, mapping_at)) is not None:
        return bad
    if argument.queue_type not in (QueueType.COMPUTE, QueueType.COMPUTE_AQL):
        return None
    if argument.eop_buffer_address:
        if argument.eop_buffer_size != sizes.eop_buffer_size:
            return _bad_size("eop_buffer_size", argument.eop_buffer_size, sizes.eop_buffer_size)
        buffers = [("eop_buffer_address", sizes.eop_buffer_size)]
        if (bad := _bad_buffer(argument, buffers, mapping_at)) is not None:
            return bad
    if argument.ctl_stack_size != sizes.ctl_stack_size:
        return _bad_size("ctl_stack_size", argument.ctl_stack_size, sizes.ctl_stack_size)
    if argument.ctx_save_restore_size != sizes.cwsr_size:
        return _bad_size("ctx_save_restore_size", argument.ctx_save_restore_size, sizes.cwsr_size)
    return _bad_buffer(argument, [("ctx_save_restore_address", sizes.cwsr_allocation)], mapping_at)


def queue_refusal(
    argument: CREATE_QUEUE, sizes: QueueSizes, mapping_at: MappingLookup
) -> QueueRefusal | None:
    """Return why the kernel refuses ``argument`` for a GPU with ``sizes``; ``None`` if it does not.

    Not covered: an unknown ``gpu_id`` (EINVAL), a process without address space (ESRCH), an engine id that
    the GPU does not have (EINVAL), and no slot left (ENOSPC, or ENOMEM for copy engines).
    """
    return argument_refusal(argument) or buffer_refusal(argument, sizes, mapping_at)


def _bad_size(field: str, found: int, expected: int) -> QueueRefusal:
    return QueueRefusal(errno.EINVAL, field, found, f"{expected:#x}")


def _bad_buffer(
    argument: CREATE_QUEUE, buffers: list[tuple[str, int]], mapping_at: MappingLookup
) -> QueueRefusal | None:
    """The kernel compares page numbers, and does not compare the end of a buffer below one page."""
    for field, size in buffers:
        address: int = getattr(argument, field)
        mapping = mapping_at(address)
        if mapping is None:
            return QueueRefusal(errno.EINVAL, field, address, "an address that is mapped on the GPU")
        start, length = mapping
        pages = size // PAGE_BYTES
        if address // PAGE_BYTES != start // PAGE_BYTES or (pages and length != pages * PAGE_BYTES):
            expected = f"a mapping of {size:#x} bytes that begins there; it is in {start:#x}+{length:#x}"
            return QueueRefusal(errno.EINVAL, field, address, expected)
    return None
