"""The user interface of KGSL, the Linux driver of Qualcomm's Adreno GPUs: ioctls, structures, flags.

Names are those of ``include/uapi/linux/msm_kgsl.h`` (tree of ``qualcomm-linux/kgsl``, 2025) without their
``IOCTL_KGSL_``, ``KGSL_`` or ``struct kgsl_`` prefix. Sizes and offsets are those of a 64-bit process; user
pointers are plain 64-bit integers. ``CAUSES`` of an ioctl tells what usually provokes an errno, read from
``kgsl.c``, ``kgsl_ioctl.c``, ``kgsl_drawobj.c`` and ``adreno.c`` of the same tree.
"""

import ctypes
import errno
from enum import IntEnum, IntFlag
from typing import Annotated, Any, ClassVar

from ringfence.hardware.fields import S32, S64, U32, U64, Direction, Ioctl, Word, ioctl, struct

MAGIC = 0x09
DEVICE_PATH = "/dev/kgsl-3d0"
VERSION_MAJOR = 3
VERSION_MINOR = 14

PAGE_SHIFT = 12  # mmap offset of an object is id << PAGE_SHIFT
CONTEXT_INVALID = 0xFFFFFFFF
GPUOBJ_ALLOC_METADATA_MAX = 64
PERFCOUNTER_NOT_USED = 0xFFFFFFFF
PERFCOUNTER_BROKEN = 0xFFFFFFFE

# Limits that kgsl_drawobj.c and kgsl_ioctl.c check without a name in the header.
MAX_COMMANDS = 2000
MAX_SYNCPOINTS = 32
MAX_SYNC_OBJECTS = 128
MAX_IB_DWORDS = 0xFFFFF
MAX_OBJECT_BYTES = 0xFFFFFFFF

# An errno of the kernel that the C library does not name; kgsl_ioctl_gpuobj_import lets it escape.
ENOTSUPP = 524


# ----- values -------------------------------------------------------------------------------------


class Property(IntEnum):
    """``type`` of DEVICE_GETPROPERTY and SETPROPERTY (``KGSL_PROP_*``)."""

    DEVICE_INFO = 0x01
    DEVICE_SHADOW = 0x02
    DEVICE_POWER = 0x03
    SHMEM = 0x04
    SHMEM_APERTURES = 0x05
    MMU_ENABLE = 0x06
    INTERRUPT_WAITS = 0x07
    VERSION = 0x08
    GPU_RESET_STAT = 0x09
    PWRCTRL = 0x0E
    PWR_CONSTRAINT = 0x12
    UCHE_GMEM_VADDR = 0x13
    SP_GENERIC_MEM = 0x14
    UCODE_VERSION = 0x15
    GPMU_VERSION = 0x16
    HIGHEST_BANK_BIT = 0x17
    DEVICE_BITNESS = 0x18
    DEVICE_QDSS_STM = 0x19
    MIN_ACCESS_LENGTH = 0x1A
    UBWC_MODE = 0x1B
    DEVICE_QTIMER = 0x20
    L3_PWR_CONSTRAINT = 0x22
    SECURE_BUFFER_ALIGNMENT = 0x23
    SECURE_CTXT_SUPPORT = 0x24
    SPEED_BIN = 0x25
    GAMING_BIN = 0x26
    QUERY_CAPABILITIES = 0x27
    CONTEXT_PROPERTY = 0x28
    GPU_MODEL = 0x29
    VK_DEVICE_ID = 0x2A
    IS_LPAC_ENABLED = 0x2B
    GPU_VA64_SIZE = 0x2C
    IS_RAYTRACING_ENABLED = 0x2D
    IS_FASTBLEND_ENABLED = 0x2E
    UCHE_TRAP_BASE = 0x2F
    IS_AQE_ENABLED = 0x30
    GPU_SECURE_VA_SIZE = 0x31
    GPU_SECURE_VA_INUSE = 0x32


class DeviceFlags(IntFlag):
    """``flags`` of the DEVICE_SHADOW property (``KGSL_FLAGS_*``)."""

    NORMALMODE = 0x000
    SAFEMODE = 0x001
    INITIALIZED0 = 0x002
    INITIALIZED = 0x004
    STARTED = 0x008
    ACTIVE = 0x010
    SOFT_RESET = 0x100
    PER_CONTEXT_TIMESTAMPS = 0x200


class ResetStatus(IntEnum):
    """Value of the GPU_RESET_STAT property (``KGSL_CTX_STAT_*``). The 2025 driver has only the first two."""

    NO_ERROR = 0
    GUILTY_CONTEXT_RESET_EXT = 1
    INNOCENT_CONTEXT_RESET_EXT = 2
    UNKNOWN_CONTEXT_RESET_EXT = 3


class ConstraintType(IntEnum):
    """``type`` of DEVICE_CONSTRAINT (``KGSL_CONSTRAINT_*``)."""

    NONE = 0
    PWRLEVEL = 1
    L3_NONE = 2
    L3_PWRLEVEL = 3


class PowerLevel(IntEnum):
    """``level`` of DEVICE_CONSTRAINT_PWRLEVEL (``KGSL_CONSTRAINT_*``)."""

    PWR_MIN = 0
    PWR_MAX = 1


class ContextType(IntEnum):
    """Field TYPE of CONTEXT_FLAGS (``KGSL_CONTEXT_TYPE_*``); statistics only."""

    ANY = 0
    GL = 1
    CL = 2
    C2D = 3
    RS = 4
    VK = 5
    UNKNOWN = 0x1E


class PreemptStyle(IntEnum):
    """Field PREEMPT_STYLE of CONTEXT_FLAGS (``KGSL_CONTEXT_PREEMPT_STYLE_*``)."""

    DEFAULT = 0
    RINGBUFFER = 1
    FINEGRAIN = 2


class CacheMode(IntEnum):
    """Field CACHEMODE of MEMFLAGS (``KGSL_CACHEMODE_*``): how the CPU maps the object."""

    WRITECOMBINE = 0
    UNCACHED = 1
    WRITETHROUGH = 2
    WRITEBACK = 3


class MemoryType(IntEnum):
    """Field MEMTYPE of MEMFLAGS (``KGSL_MEMTYPE_*``); statistics only."""

    OBJECTANY = 0
    FRAMEBUFFER = 1
    RENDERBUFFER = 2
    ARRAYBUFFER = 3
    ELEMENTARRAYBUFFER = 4
    VERTEXARRAYBUFFER = 5
    TEXTURE = 6
    SURFACE = 7
    EGL_SURFACE = 8
    GL = 9
    CL = 10
    CL_BUFFER_MAP = 11
    CL_BUFFER_NOMAP = 12
    CL_IMAGE_MAP = 13
    CL_IMAGE_NOMAP = 14
    CL_KERNEL_STACK = 15
    COMMAND = 16
    TWO_D = 17
    EGL_IMAGE = 18
    EGL_SHADOW = 19
    MULTISAMPLE = 20
    KERNEL = 255


class UserMemoryType(IntEnum):
    """``memtype`` of MAP_USER_MEM and ``type`` of GPUOBJ_IMPORT (``KGSL_USER_MEM_TYPE_*``).

    The USERMEM field of MEMFLAGS holds this plus one, 0 meaning memory that KGSL allocated.
    """

    PMEM = 0
    ASHMEM = 1
    ADDR = 2
    DMABUF = 3
    ION = 3


class CommandBatchFlags(IntFlag):
    """``flags`` of GPU_COMMAND and SUBMIT_COMMANDS (``KGSL_CMDBATCH_*``)."""

    MEMLIST = 0x0001
    MARKER = 0x0002
    SUBMIT_IB_LIST = 0x0004
    CTX_SWITCH = 0x0008
    PROFILING = 0x0010
    PROFILING_KTIME = 0x0020
    END_OF_FRAME = 0x0100
    SYNC = 0x0400
    PWR_CONSTRAINT = 0x0800
    SPARSE = 0x1000
    START_RECURRING = 0x00100000
    STOP_RECURRING = 0x00200000


class CommandListFlags(IntFlag):
    """``flags`` of a COMMAND_OBJECT in ``cmdlist`` (``KGSL_CMDLIST_*``); at least one must be set."""

    IB = 0x01
    CTXTSWITCH_PREAMBLE = 0x02
    IB_PREAMBLE = 0x04


class ObjectListFlags(IntFlag):
    """``flags`` of a COMMAND_OBJECT in ``objlist`` (``KGSL_OBJLIST_*``)."""

    MEMOBJ = 0x08
    PROFILE = 0x10


class SyncPointType(IntEnum):
    """``type`` of COMMAND_SYNCPOINT (``KGSL_CMD_SYNCPOINT_TYPE_*``)."""

    TIMESTAMP = 0
    FENCE = 1
    TIMELINE = 2


class TimestampType(IntEnum):
    """``type`` of CMDSTREAM_READTIMESTAMP_CTXTID (``KGSL_TIMESTAMP_*``): begun, finished, accepted."""

    CONSUMED = 1
    RETIRED = 2
    QUEUED = 3


class TimestampEvent(IntEnum):
    """``type`` of TIMESTAMP_EVENT (``KGSL_TIMESTAMP_EVENT_*``)."""

    GENLOCK = 1
    FENCE = 2


class GpuEvent(IntEnum):
    """``type`` of GPUOBJ_FREE with FREE_ON_EVENT (``KGSL_GPU_EVENT_*``)."""

    TIMESTAMP = 1
    FENCE = 2


class FreeFlags(IntFlag):
    """``flags`` of GPUOBJ_FREE (``KGSL_GPUOBJ_*``)."""

    FREE_ON_EVENT = 1


class SetInfoFlags(IntFlag):
    """``flags`` of GPUOBJ_SET_INFO (``KGSL_GPUOBJ_SET_INFO_*``)."""

    METADATA = 1
    TYPE = 2


class CacheOperation(IntFlag):
    """``op`` of the cache maintenance ioctls (``KGSL_GPUMEM_CACHE_*``).

    CLEAN writes CPU cache lines back (before the GPU reads), INV drops them (before the CPU reads what the
    GPU wrote); RANGE limits the operation to offset and length.
    """

    CLEAN = 1
    TO_GPU = 1
    INV = 2
    FROM_GPU = 2
    FLUSH = 3
    RANGE = 1 << 31


class TimelineWait(IntEnum):
    """``flags`` of TIMELINE_WAIT (``KGSL_TIMELINE_WAIT_*``)."""

    ALL = 1
    ANY = 2


class FaultType(IntEnum):
    """``type`` of FAULT (``KGSL_FAULT_TYPE_*``)."""

    NO_FAULT = 0
    PAGEFAULT = 1


class CONTEXT_FLAGS(Word):
    """``flags`` of DRAWCTXT_CREATE (``KGSL_CONTEXT_*``). PREAMBLE and NO_GMEM_ALLOC are mandatory.

    PRIORITY 0 means unspecified (8); lower numbers are more urgent.
    """

    SAVE_GMEM = 0
    NO_GMEM_ALLOC = 1
    SUBMIT_IB_LIST = 2
    CTX_SWITCH = 3
    PREAMBLE = 4
    TRASH_STATE = 5
    PER_CONTEXT_TS = 6
    USER_GENERATED_TS = 7
    END_OF_FRAME = 8
    NO_FAULT_TOLERANCE = 9
    SYNC = 10
    PWR_CONSTRAINT = 11
    PRIORITY = 12, 15
    IFH_NOP = 16
    SECURE = 17
    NO_SNAPSHOT = 18
    SPARSE = 19
    TYPE = 20, 24, ContextType
    PREEMPT_STYLE = 25, 27, PreemptStyle
    INVALIDATE_ON_FAULT = 28
    LPAC = 29
    FAULT_INFO = 30


class MEMFLAGS(Word, width=64):
    """``flags`` of memory objects (``KGSL_MEMFLAGS_*``, ``KGSL_MEMTYPE_*``, ``KGSL_CACHEMODE_*``).

    MEMALIGN is the log2 of the alignment of the GPU address. USE_CPU_MAP makes the GPU address equal to the
    CPU address that mmap returns. USERMEM is an output: :class:`UserMemoryType` + 1.
    """

    SECURE = 3
    USERMEM = 5, 7
    MEMTYPE = 8, 15, MemoryType
    MEMALIGN = 16, 23
    GPUREADONLY = 24
    GPUWRITEONLY = 25
    CACHEMODE = 26, 27, CacheMode
    USE_CPU_MAP = 28
    SPARSE_PHYS = 29
    SPARSE_VIRT = 30
    IOCOHERENT = 31
    FORCE_32BIT = 32
    GUARD_PAGE = 33
    VBO = 34
    VBO_NO_MAP_ZERO = 35


# ----- plain structures ---------------------------------------------------------------------------


@struct
class DEVINFO(ctypes.Structure):
    """Payload of property DEVICE_INFO (``struct kgsl_devinfo``, 40 bytes)."""

    device_id: U32
    chip_id: U32
    mmu_enabled: U32
    gmem_gpubaseaddr: U64
    gpu_id: U32
    gmem_sizebytes: U64


@struct
class DEVMEMSTORE(ctypes.Structure):
    """One context's record in the memory store that DEVICE_SHADOW names (40 bytes)."""

    soptimestamp: U32
    sbz: U32
    eoptimestamp: U32
    sbz2: U32
    preempted: U32
    sbz3: U32
    ref_wait_ts: U32
    sbz4: U32
    current_context: U32
    sbz5: U32


@struct
class SHADOWPROP(ctypes.Structure):
    """Payload of property DEVICE_SHADOW (24 bytes). ``gpuaddr`` is an mmap token, not a GPU address."""

    gpuaddr: U64
    size: U64
    flags: U32


@struct
class VERSION(ctypes.Structure):
    """Payload of property VERSION (16 bytes); the driver insists on exactly this size."""

    drv_major: U32
    drv_minor: U32
    dev_major: U32
    dev_minor: U32


@struct
class UCODE_VERSION(ctypes.Structure):
    """Payload of property UCODE_VERSION (8 bytes)."""

    pfp: U32
    pm4: U32


@struct
class QTIMER_PROP(ctypes.Structure):
    """Payload of property DEVICE_QTIMER (16 bytes)."""

    gpuaddr: U64
    size: U64


@struct
class CAPABILITIES(ctypes.Structure):
    """Payload of property QUERY_CAPABILITIES (24 bytes): ``data`` points to what ``querytype`` selects."""

    data: U64
    size: U64
    querytype: U32


@struct
class CAPABILITIES_PROPERTIES(ctypes.Structure):
    """What CAPABILITIES.data points to for query type 1: a list of u32 property ids (16 bytes)."""

    list: U64
    count: U32


@struct
class CONTEXT_PROPERTY(ctypes.Structure):
    """Payload of property CONTEXT_PROPERTY (24 bytes)."""

    data: U64
    size: U32
    type: U32
    contextid: U32


@struct
class CONTEXT_PROPERTY_FAULT(ctypes.Structure):
    """What CONTEXT_PROPERTY.data points to for type 1 (8 bytes)."""

    faults: S32
    timestamp: U32


@struct
class GPU_MODEL(ctypes.Structure):
    """Payload of property GPU_MODEL (32 bytes), a zero-terminated name."""

    gpu_model: Annotated[Any, ctypes.c_char * 32]


@struct
class DEVICE_CONSTRAINT(ctypes.Structure):
    """Payload of property PWR_CONSTRAINT (24 bytes): ``data`` points to DEVICE_CONSTRAINT_PWRLEVEL."""

    type: U32
    context_id: U32
    data: U64
    size: U64


@struct
class DEVICE_CONSTRAINT_PWRLEVEL(ctypes.Structure):
    """A :class:`PowerLevel` (4 bytes)."""

    level: U32


@struct
class IBDESC(ctypes.Structure):
    """Indirect buffer of the old submission ioctls (32 bytes)."""

    gpuaddr: U64
    padding: U64
    sizedwords: U64
    ctrl: U32


@struct
class CMD_SYNCPOINT(ctypes.Structure):
    """Sync point of SUBMIT_COMMANDS (24 bytes)."""

    type: S32
    priv: U64
    size: U64


@struct
class CMD_SYNCPOINT_TIMESTAMP(ctypes.Structure):
    """What a sync point of type TIMESTAMP points to (8 bytes)."""

    context_id: U32
    timestamp: U32


@struct
class CMD_SYNCPOINT_FENCE(ctypes.Structure):
    """What a sync point of type FENCE points to: a sync file (4 bytes)."""

    fd: S32


@struct
class CMD_SYNCPOINT_TIMELINE(ctypes.Structure):
    """What a sync point of type TIMELINE points to (16 bytes): an array of TIMELINE_VAL."""

    timelines: U64
    count: U32
    timelines_size: U32


@struct
class CMDBATCH_PROFILING_BUFFER(ctypes.Structure):
    """What a profiled submission fills in (40 bytes)."""

    wall_clock_s: U64
    wall_clock_ns: U64
    gpu_ticks_queued: U64
    gpu_ticks_submitted: U64
    gpu_ticks_retired: U64


@struct
class COMMAND_OBJECT(ctypes.Structure):
    """Element of ``cmdlist`` and ``objlist`` of GPU_COMMAND (32 bytes); ``size`` counts bytes."""

    offset: U64
    gpuaddr: U64
    size: U64
    flags: U32
    id: U32


@struct
class COMMAND_SYNCPOINT(ctypes.Structure):
    """Element of ``synclist`` of GPU_COMMAND (24 bytes)."""

    priv: U64
    size: U64
    type: U32


@struct
class GPU_EVENT_TIMESTAMP(ctypes.Structure):
    """What ``priv`` of GPUOBJ_FREE points to for a timestamp event (8 bytes)."""

    context_id: U32
    timestamp: U32


@struct
class GPU_EVENT_FENCE(ctypes.Structure):
    """What ``priv`` of GPUOBJ_FREE points to for a fence event (4 bytes)."""

    fd: S32


@struct
class TIMESTAMP_EVENT_FENCE(ctypes.Structure):
    """What TIMESTAMP_EVENT writes for a fence: a sync file (4 bytes)."""

    fence_fd: S32


@struct
class GPUOBJ_IMPORT_DMA_BUF(ctypes.Structure):
    """What ``priv`` of GPUOBJ_IMPORT points to for a DMA buffer (4 bytes)."""

    fd: S32


@struct
class GPUOBJ_IMPORT_USERADDR(ctypes.Structure):
    """What ``priv`` of GPUOBJ_IMPORT points to for user memory (8 bytes)."""

    virtaddr: U64


@struct
class GPUOBJ_SYNC_OBJ(ctypes.Structure):
    """Element of ``objs`` of GPUOBJ_SYNC (24 bytes)."""

    offset: U64
    length: U64
    id: U32
    op: U32


@struct
class PERFCOUNTER_READ_GROUP(ctypes.Structure):
    """Element of ``reads`` of PERFCOUNTER_READ (16 bytes)."""

    groupid: U32
    countable: U32
    value: U64


@struct
class TIMELINE_VAL(ctypes.Structure):
    """A timeline and a sequence number (16 bytes)."""

    seqno: U64
    timeline: U32
    padding: U32


@struct
class FAULT(ctypes.Structure):
    """Element of ``faultlist`` of GET_FAULT_REPORT (24 bytes)."""

    fault: U64
    type: U32
    count: U32
    size: U32
    padding: U32


# ----- ioctls -------------------------------------------------------------------------------------

_NOT_OURS = "the context id is unknown, or belongs to another file descriptor"
_DETACHED = "the context was destroyed meanwhile"
_DEAD = "the context hung or faulted and is invalid: only a new context helps"
_PROTO = "a fault was recovered since the last report; the work itself was accepted"
_POINTER = "a pointer in the argument is not readable or writable memory of this process"


@ioctl(MAGIC, 0x02, Direction.READ_WRITE)
class DEVICE_GETPROPERTY(Ioctl):
    """Read a :class:`Property` into the ``sizebytes`` bytes at ``value``."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.ENODEV: "this kernel does not know the property, or it can only be set",
        errno.EFAULT: _POINTER,
        errno.EINVAL: "sizebytes does not fit the property, or GPU_RESET_STAT named an unknown context",
    }
    type: U32
    value: U64
    sizebytes: U64


@ioctl(MAGIC, 0x07, Direction.WRITE)
class DEVICE_WAITTIMESTAMP_CTXTID(Ioctl):
    """Sleep until ``timestamp`` of the context retired, for ``timeout`` ms; 0 or above INT_MAX: forever."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.ETIMEDOUT: "the timestamp did not retire in time",
        errno.EINVAL: f"{_NOT_OURS}; or the timestamp is newer than the last one queued",
        errno.ENOENT: _DETACHED,
        errno.EDEADLK: _DEAD,
        errno.EPROTO: "the timestamp retired, but a fault was recovered since the last report",
        errno.EINTR: "a signal arrived: repeat the call",
    }
    context_id: U32
    timestamp: U32
    timeout: U32


@ioctl(MAGIC, 0x10, Direction.READ_WRITE)
class RINGBUFFER_ISSUEIBCMDS(Ioctl):
    """Submit indirect buffers, the oldest way; use GPU_COMMAND."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: f"{_NOT_OURS}; or an indirect buffer is empty, too long or outside the GPU's range",
        errno.EFAULT: _POINTER,
        errno.ENOENT: _DETACHED,
        errno.EDEADLK: _DEAD,
        errno.EPROTO: _PROTO,
    }
    drawctxt_id: U32
    ibdesc_addr: U64
    numibs: U32
    timestamp: U32
    flags: U32


@ioctl(MAGIC, 0x13, Direction.READ_WRITE)
class DRAWCTXT_CREATE(Ioctl):
    """Create a context with CONTEXT_FLAGS; the accepted set is written back."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "the mandatory flags PREAMBLE and NO_GMEM_ALLOC are missing",
        errno.ENOSPC: "no context id is free, or this process has too many contexts",
        errno.EOPNOTSUPP: "SECURE or LPAC contexts are not available on this device",
        errno.ENOMEM: "the kernel has no memory left",
    }
    flags: U32
    drawctxt_id: U32


@ioctl(MAGIC, 0x14, Direction.WRITE)
class DRAWCTXT_DESTROY(Ioctl):
    """Destroy a context; queued batches are dropped, running ones are waited for."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EINVAL: _NOT_OURS}
    drawctxt_id: U32


@ioctl(MAGIC, 0x15, Direction.READ_WRITE)
class MAP_USER_MEM(Ioctl):
    """Map memory of this process, or a DMA buffer, for the GPU; released with SHAREDMEM_FREE."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "pointer or length is zero or not page aligned, offset is not zero, or a page is gone",
        errno.EFAULT: "a page of the range is not mapped, or the range already is KGSL memory",
        errno.ENOMEM: "with USE_CPU_MAP: the range is outside the shared window or in use; or no memory",
        errno.EOPNOTSUPP: "this memory type, or SECURE memory, is not supported",
    }
    fd: S32
    gpuaddr: U64
    len: U64
    offset: U64
    hostptr: U64
    memtype: U32
    flags: U32


@ioctl(MAGIC, 0x16, Direction.READ_WRITE)
class CMDSTREAM_READTIMESTAMP_CTXTID(Ioctl):
    """Read a timestamp of a context, of :class:`TimestampType`."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EINVAL: f"{_NOT_OURS}; or the timestamp type is not 1 to 3"}
    context_id: U32
    type: U32
    timestamp: U32


@ioctl(MAGIC, 0x17, Direction.WRITE)
class CMDSTREAM_FREEMEMONTIMESTAMP_CTXTID(Ioctl):
    """Free the memory at ``gpuaddr`` once a timestamp retired."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: f"{_NOT_OURS}; or no memory object lies at the address, or type is not RETIRED",
        errno.EBUSY: "a free of this object is already pending",
    }
    context_id: U32
    gpuaddr: U64
    type: U32
    timestamp: U32


@ioctl(MAGIC, 0x21, Direction.WRITE)
class SHAREDMEM_FREE(Ioctl):
    """Free the object that contains ``gpuaddr``."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "no memory object of this process contains the address",
        errno.EBUSY: "a free of this object is already pending",
    }
    gpuaddr: U64


_ALLOCATION_CAUSES = {
    errno.EINVAL: "the size is zero or above 4 GiB - 1",
    errno.ENOMEM: "no memory, or no free range of GPU addresses",
    errno.EOPNOTSUPP: "SECURE memory is not available on this device",
}


@ioctl(MAGIC, 0x2F, Direction.READ_WRITE)
class GPUMEM_ALLOC(Ioctl):
    """Allocate memory, the oldest way; use GPUOBJ_ALLOC."""

    CAUSES: ClassVar[dict[int, str]] = _ALLOCATION_CAUSES
    gpuaddr: U64
    size: U64
    flags: U32


@ioctl(MAGIC, 0x32, Direction.WRITE)
class SETPROPERTY(Ioctl):
    """Set a :class:`Property` from the ``sizebytes`` bytes at ``value``."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: f"wrong sizebytes, unknown constraint type or level, or {_NOT_OURS}",
        errno.ENODEV: "this kernel cannot set the property",
        errno.EFAULT: _POINTER,
    }
    type: U32
    value: U64
    sizebytes: U64


@ioctl(MAGIC, 0x33, Direction.READ_WRITE)
class TIMESTAMP_EVENT(Ioctl):
    """Get a sync file that signals when a timestamp retires; written to ``*(int *)priv``."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: f"{_NOT_OURS}; or the event type or length is wrong",
        errno.EFAULT: _POINTER,
    }
    type: S32
    timestamp: U32
    context_id: U32
    priv: U64
    len: U64


@ioctl(MAGIC, 0x34, Direction.READ_WRITE)
class GPUMEM_ALLOC_ID(Ioctl):
    """Allocate memory with an id; GPUOBJ_ALLOC has 64-bit flags."""

    CAUSES: ClassVar[dict[int, str]] = _ALLOCATION_CAUSES
    id: U32
    flags: U32
    size: U64
    mmapsize: U64
    gpuaddr: U64
    padding: Annotated[Any, ctypes.c_uint64 * 2]


@ioctl(MAGIC, 0x35, Direction.READ_WRITE)
class GPUMEM_FREE_ID(Ioctl):
    """Free an object by id."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "no memory object of this process has the id",
        errno.EBUSY: "a free of this object is already pending",
    }
    id: U32
    padding: U32


@ioctl(MAGIC, 0x36, Direction.READ_WRITE)
class GPUMEM_GET_INFO(Ioctl):
    """Look up an object by id or GPU address."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "no memory object has the id or contains the address",
        errno.ERANGE: "address or size of the object do not fit the fields",
    }
    gpuaddr: U64
    id: U32
    flags: U32
    size: U64
    mmapsize: U64
    useraddr: U64
    padding: Annotated[Any, ctypes.c_uint64 * 4]


_SYNC_CAUSES = {
    errno.EINVAL: "no such memory object, or no cache operation was asked for",
    errno.ERANGE: "the range does not lie inside the object",
}


@ioctl(MAGIC, 0x37, Direction.WRITE)
class GPUMEM_SYNC_CACHE(Ioctl):
    """Cache maintenance of one object, by id or else by GPU address."""

    CAUSES: ClassVar[dict[int, str]] = _SYNC_CAUSES
    gpuaddr: U64
    id: U32
    op: U32
    offset: U64
    length: U64


@ioctl(MAGIC, 0x38, Direction.READ_WRITE)
class PERFCOUNTER_GET(Ioctl):
    """Reserve a performance counter; its register offsets are returned."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "unknown counter group or countable",
        errno.EBUSY: "no counter of the group is free",
    }
    groupid: U32
    countable: U32
    offset: U32
    offset_hi: U32
    padding: U32


@ioctl(MAGIC, 0x39, Direction.WRITE)
class PERFCOUNTER_PUT(Ioctl):
    """Give a performance counter back."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "unknown counter group, or the counter is not in use",
        errno.ENODEV: "the counter was not reserved through this file descriptor",
    }
    groupid: U32
    countable: U32
    padding: Annotated[Any, ctypes.c_uint32 * 2]


@ioctl(MAGIC, 0x3A, Direction.READ_WRITE)
class PERFCOUNTER_QUERY(Ioctl):
    """List what the counters of a group count."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EINVAL: "unknown counter group", errno.EFAULT: _POINTER}
    groupid: U32
    countables: U64
    count: U32
    max_counters: U32
    padding: Annotated[Any, ctypes.c_uint32 * 2]


@ioctl(MAGIC, 0x3B, Direction.READ_WRITE)
class PERFCOUNTER_READ(Ioctl):
    """Read performance counters."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "unknown counter group, or the list is empty or has more than 100 entries",
        errno.EPERM: "counters are cleared at each context switch on this device and cannot be read",
        errno.EFAULT: _POINTER,
    }
    reads: U64
    count: U32
    padding: Annotated[Any, ctypes.c_uint32 * 2]


@ioctl(MAGIC, 0x3C, Direction.READ_WRITE)
class GPUMEM_SYNC_CACHE_BULK(Ioctl):
    """Cache maintenance of whole objects, by id."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "the list is empty or too long, or no cache operation was asked for",
        errno.EFAULT: _POINTER,
    }
    id_list: U64
    count: U32
    op: U32
    padding: Annotated[Any, ctypes.c_uint32 * 2]


@ioctl(MAGIC, 0x3D, Direction.READ_WRITE)
class SUBMIT_COMMANDS(Ioctl):
    """Submit indirect buffers, the older way; use GPU_COMMAND."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: f"{_NOT_OURS}; or an indirect buffer is empty, too long or outside the GPU's range",
        errno.EFAULT: _POINTER,
        errno.ENOENT: _DETACHED,
        errno.EDEADLK: _DEAD,
        errno.EPROTO: _PROTO,
    }
    context_id: U32
    flags: U32
    cmdlist: U64
    numcmds: U32
    synclist: U64
    numsyncs: U32
    timestamp: U32
    padding: Annotated[Any, ctypes.c_uint32 * 4]


@ioctl(MAGIC, 0x40, Direction.READ_WRITE)
class SYNCSOURCE_CREATE(Ioctl):
    """Create a source of fences that the CPU signals."""

    CAUSES: ClassVar[dict[int, str]] = {errno.ENOMEM: "the kernel has no memory or id left"}
    id: U32
    padding: Annotated[Any, ctypes.c_uint32 * 3]


@ioctl(MAGIC, 0x41, Direction.READ_WRITE)
class SYNCSOURCE_DESTROY(Ioctl):
    """Destroy a source of fences; its fences signal."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EINVAL: "no sync source has the id"}
    id: U32
    padding: Annotated[Any, ctypes.c_uint32 * 3]


@ioctl(MAGIC, 0x42, Direction.READ_WRITE)
class SYNCSOURCE_CREATE_FENCE(Ioctl):
    """Create a fence of a source."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "no sync source has the id",
        errno.ENOMEM: "the kernel has no memory left",
        errno.EBADF: "this process has too many open files",
    }
    id: U32
    fence_fd: S32
    padding: Annotated[Any, ctypes.c_uint32 * 4]


@ioctl(MAGIC, 0x43, Direction.READ_WRITE)
class SYNCSOURCE_SIGNAL_FENCE(Ioctl):
    """Signal a fence of a source."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "no sync source has the id, or the fence is not one of its own",
        errno.EBADF: "fence_fd is not a sync file",
    }
    id: U32
    fence_fd: S32
    padding: Annotated[Any, ctypes.c_uint32 * 4]


@ioctl(MAGIC, 0x45, Direction.READ_WRITE)
class GPUOBJ_ALLOC(Ioctl):
    """Allocate memory with MEMFLAGS. ``size`` is returned page aligned; ``mmapsize`` is what mmap must map.

    With USE_CPU_MAP the object has no GPU address before mmap.
    """

    CAUSES: ClassVar[dict[int, str]] = _ALLOCATION_CAUSES
    size: U64
    flags: U64
    va_len: U64
    mmapsize: U64
    id: U32
    metadata_len: U32
    metadata: U64


@ioctl(MAGIC, 0x46, Direction.WRITE)
class GPUOBJ_FREE(Ioctl):
    """Free an object, at once or after a :class:`GpuEvent`. Mappings live on until munmap."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "no memory object of this process has the id, or the event is unknown",
        errno.EBUSY: "a free of this object is already pending",
        errno.EFAULT: _POINTER,
    }
    flags: U64
    priv: U64
    id: U32
    type: U32
    len: U32


@ioctl(MAGIC, 0x47, Direction.READ_WRITE)
class GPUOBJ_INFO(Ioctl):
    """Look up an object by id."""

    CAUSES: ClassVar[dict[int, str]] = {errno.EINVAL: "no memory object of this process has the id"}
    gpuaddr: U64
    flags: U64
    size: U64
    va_len: U64
    va_addr: U64
    id: U32


@ioctl(MAGIC, 0x48, Direction.READ_WRITE)
class GPUOBJ_IMPORT(Ioctl):
    """Import user memory or a DMA buffer as an object with an id."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "pointer or length is zero or not page aligned, or the descriptor is no DMA buffer",
        errno.EFAULT: "a page of the range is not mapped, the range already is KGSL memory, or priv is bad",
        errno.ENOMEM: "no memory, or no free range of GPU addresses",
        ENOTSUPP: "this memory type, or SECURE memory, is not supported",
    }
    priv: U64
    priv_len: U64
    flags: U64
    type: U32
    id: U32


@ioctl(MAGIC, 0x49, Direction.WRITE)
class GPUOBJ_SYNC(Ioctl):
    """Cache maintenance of 1 to 128 ranges (GPUOBJ_SYNC_OBJ)."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "the number of ranges is not 1 to 128, or no cache operation was asked for",
        errno.ERANGE: "a range does not lie inside its object",
        errno.EFAULT: _POINTER,
    }
    objs: U64
    obj_len: U32
    count: U32


@ioctl(MAGIC, 0x4A, Direction.READ_WRITE)
class GPU_COMMAND(Ioctl):
    """Submit indirect buffers, sync points or a marker. ``timestamp`` is returned when the call succeeds.

    EPROTO means that the work was queued all the same, but the timestamp was not returned.
    """

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: (
            f"{_NOT_OURS}; or more than 2000 commands or 32 sync points; or an indirect buffer is empty, "
            "longer than 1048575 dwords, not 4-byte aligned or outside the GPU's range"
        ),
        errno.EFAULT: f"{_POINTER}, or an element size is wrong",
        errno.ENOENT: _DETACHED,
        errno.EDEADLK: _DEAD,
        errno.EPROTO: _PROTO,
        errno.ETIMEDOUT: "the context's queue of 50 batches stayed full for 10 s",
        errno.EINTR: "a signal arrived: repeat the call",
        errno.ERANGE: "USER_GENERATED_TS: the timestamp is not newer than the last one",
        errno.ENOMEM: "the kernel has no memory left",
    }
    flags: U64
    cmdlist: U64
    cmdsize: U32
    numcmds: U32
    objlist: U64
    objsize: U32
    numobjs: U32
    synclist: U64
    syncsize: U32
    numsyncs: U32
    context_id: U32
    timestamp: U32


@ioctl(MAGIC, 0x4B, Direction.READ_WRITE)
class PREEMPTIONCOUNTER_QUERY(Ioctl):
    """Read preemption counters per priority level."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EOPNOTSUPP: "preemption is not enabled, or the chip is not an a5xx",
        errno.EINVAL: "size_user is smaller than the counters of one level",
        errno.EFAULT: _POINTER,
    }
    counters: U64
    size_user: U32
    size_priority_level: U32
    max_priority_level: U32


@ioctl(MAGIC, 0x4C, Direction.WRITE)
class GPUOBJ_SET_INFO(Ioctl):
    """Change metadata or type of an object."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EINVAL: "no memory object of this process has the id, or the type is above 255",
        errno.EFAULT: _POINTER,
    }
    flags: U64
    metadata: U64
    id: U32
    metadata_len: U32
    type: U32


@ioctl(MAGIC, 0x58, Direction.READ_WRITE)
class TIMELINE_CREATE(Ioctl):
    """Create a timeline that starts at ``seqno``."""

    CAUSES: ClassVar[dict[int, str]] = {errno.ENOMEM: "the kernel has no memory or id left"}
    seqno: U64
    id: U32
    padding: U32


@ioctl(MAGIC, 0x59, Direction.WRITE)
class TIMELINE_WAIT(Ioctl):
    """Sleep until all or any (:class:`TimelineWait`) of ``count`` TIMELINE_VAL are reached."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.ETIMEDOUT: "the sequence numbers were not reached in time",
        errno.EINVAL: "unknown flags, an empty list, or padding that is not zero",
        errno.ENOENT: "a timeline does not exist",
        errno.EBUSY: "the time was zero and the sequence numbers are not reached",
        errno.EFAULT: _POINTER,
        errno.EINTR: "a signal arrived: repeat the call",
    }
    tv_sec: S64
    tv_nsec: S64
    timelines: U64
    count: U32
    timelines_size: U32
    flags: U32
    padding: U32


@ioctl(MAGIC, 0x5A, Direction.READ_WRITE)
class TIMELINE_QUERY(Ioctl):
    """Read the sequence number of a timeline."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.ENODEV: "the timeline does not exist",
        errno.EINVAL: "the padding is not zero",
    }
    seqno: U64
    timeline: U32
    padding: U32


@ioctl(MAGIC, 0x5B, Direction.WRITE)
class TIMELINE_SIGNAL(Ioctl):
    """Advance ``count`` timelines (TIMELINE_VAL)."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.EAGAIN: "timelines_size was zero and has been filled in: repeat the call",
        errno.EINVAL: "an empty list, or padding that is not zero",
        errno.ENODEV: "a timeline does not exist",
        errno.EFAULT: _POINTER,
    }
    timelines: U64
    count: U32
    timelines_size: U32


@ioctl(MAGIC, 0x5C, Direction.READ_WRITE)
class TIMELINE_FENCE_GET(Ioctl):
    """Get a sync file that signals when a timeline reaches ``seqno``."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.ENODEV: "the timeline does not exist",
        errno.ENOMEM: "the kernel has no memory left",
        errno.EMFILE: "this process has too many open files",
    }
    seqno: U64
    timeline: U32
    handle: S32


@ioctl(MAGIC, 0x5D, Direction.WRITE)
class TIMELINE_DESTROY(Ioctl):
    """Destroy a timeline; the argument is its bare id."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.ENODEV: "the timeline does not exist",
        errno.EINVAL: "the timeline belongs to another file descriptor",
    }
    id: U32


@ioctl(MAGIC, 0x5E, Direction.READ_WRITE)
class GET_FAULT_REPORT(Ioctl):
    """Read the fault records of an invalidated context made with FAULT_INFO. Newer kernels only."""

    CAUSES: ClassVar[dict[int, str]] = {
        errno.ENOTTY: "this kernel has no fault reports",
        errno.EINVAL: f"{_NOT_OURS}; or it is not invalid, or was made without FAULT_INFO",
        errno.EFAULT: _POINTER,
    }
    faultlist: U64
    faultnents: U32
    faultsize: U32
    context_id: U32
    padding: U32


_DECLARED: tuple[type[Ioctl], ...] = (
    DEVICE_GETPROPERTY,
    DEVICE_WAITTIMESTAMP_CTXTID,
    RINGBUFFER_ISSUEIBCMDS,
    DRAWCTXT_CREATE,
    DRAWCTXT_DESTROY,
    MAP_USER_MEM,
    CMDSTREAM_READTIMESTAMP_CTXTID,
    CMDSTREAM_FREEMEMONTIMESTAMP_CTXTID,
    SHAREDMEM_FREE,
    GPUMEM_ALLOC,
    SETPROPERTY,
    TIMESTAMP_EVENT,
    GPUMEM_ALLOC_ID,
    GPUMEM_FREE_ID,
    GPUMEM_GET_INFO,
    GPUMEM_SYNC_CACHE,
    PERFCOUNTER_GET,
    PERFCOUNTER_PUT,
    PERFCOUNTER_QUERY,
    PERFCOUNTER_READ,
    GPUMEM_SYNC_CACHE_BULK,
    SUBMIT_COMMANDS,
    SYNCSOURCE_CREATE,
    SYNCSOURCE_DESTROY,
    SYNCSOURCE_CREATE_FENCE,
    SYNCSOURCE_SIGNAL_FENCE,
    GPUOBJ_ALLOC,
    GPUOBJ_FREE,
    GPUOBJ_INFO,
    GPUOBJ_IMPORT,
    GPUOBJ_SYNC,
    GPU_COMMAND,
    PREEMPTIONCOUNTER_QUERY,
    GPUOBJ_SET_INFO,
    TIMELINE_CREATE,
    TIMELINE_WAIT,
    TIMELINE_QUERY,
    TIMELINE_SIGNAL,
    TIMELINE_FENCE_GET,
    TIMELINE_DESTROY,
    GET_FAULT_REPORT,
)

IOCTLS: dict[int, type[Ioctl]] = {argument.NR: argument for argument in _DECLARED}
