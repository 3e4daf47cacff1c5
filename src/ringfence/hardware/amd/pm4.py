"""PM4 packets of the compute microengine (MEC) of gfx9.4, gfx11 and gfx12.

Names are those of the kernel's ``soc15d.h`` (gfx9) and ``nvd.h`` (gfx10 and later) without ``PACKET3_``;
fields that these lack are named as in ``kfd_pm4_headers_ai.h`` and in the packet headers of AMD's PAL
(``gfx9_plus_merged_mec_pm4_packets.h``). A packet is a header dword and its body; a Word called
``WAIT_REG_MEM_0`` is body dword 0 of packet WAIT_REG_MEM. A suffix ``_GFX9`` marks a layout that gfx9 alone
has. Addresses are two dwords, low first. Registers are absolute dword indices.

    type 3:  3 << 30 | (body dwords - 1) << 16 | opcode << 8 | shader type << 1 | predicate
    type 2:  2 << 30, a filler of one dword

A ring is an array of dwords, a power of two long, indexed by free-running 64-bit dword counts. A packet may
wrap around its end. The write pointer is stored to memory, then to the doorbell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache

from ringfence.hardware.amd import registers_gfx9, registers_gfx11, registers_gfx12
from ringfence.hardware.amd.chips import Generation
from ringfence.hardware.fields import Word

TYPE2 = 2
TYPE3 = 3
TYPE2_FILLER = 0x80000000
MAX_BODY = 0x4000
MAX_NOP_BODY = 0x3FFF
NOP_ALONE = 0xFFFF1000
"""A NOP of one dword: the count that would be 0x4000 means that there is no body."""

SH_REG_START = 0x2C00
SH_REG_END = 0x3000
UCONFIG_REG_START = 0xC000
UCONFIG_REG_END = 0xC400
"""End of the range in the kernel's header; the microengine takes more, see MAX_UCONFIG_REG."""
MAX_UCONFIG_REG = 0xFFFF

DISPATCH_DIMENSIONS_BYTES = 12
MAX_IB_DWORDS = 0xFFFFF
MAX_EXEC_COUNT = 0x3FFF
SHADER_ADDRESS_SHIFT = 8
"""Registers hold addresses of code and scratch memory shifted by this."""
COHER_UNIT_SHIFT = 8
"""ACQUIRE_MEM counts base and size in units of 256 bytes."""
CLOCK_COUNTER_HZ = 100_000_000
"""How fast the counter runs that RELEASE_MEM and COPY_DATA store."""


# ----- headers ------------------------------------------------------------------------------------


class TYPE3_HEADER(Word):
    """COUNT is the number of body dwords minus one. The compute microengine ignores SHADER_TYPE."""

    PREDICATE = 0
    SHADER_TYPE = 1
    OPCODE = 8, 15
    COUNT = 16, 29
    TYPE = 30, 31


@dataclass(frozen=True, slots=True)
class Header:
    """A decoded header: ``count`` body dwords follow. ``opcode`` is ``None`` for a type-2 filler."""

    opcode: Opcode | None
    count: int


class Opcode(IntEnum):
    """Type-3 opcodes (``nvd.h``; of gfx9 those that ``soc15d.h`` has, see :data:`PACKETS`)."""

    NOP = 0x10
    SET_BASE = 0x11
    CLEAR_STATE = 0x12
    INDEX_BUFFER_SIZE = 0x13
    DISPATCH_DIRECT = 0x15
    DISPATCH_INDIRECT = 0x16
    INDIRECT_BUFFER_END = 0x17
    INDIRECT_BUFFER_CNST_END = 0x19
    ATOMIC_GDS = 0x1D
    ATOMIC_MEM = 0x1E
    OCCLUSION_QUERY = 0x1F
    SET_PREDICATION = 0x20
    REG_RMW = 0x21
    COND_EXEC = 0x22
    PRED_EXEC = 0x23
    DRAW_INDIRECT = 0x24
    DRAW_INDEX_INDIRECT = 0x25
    INDEX_BASE = 0x26
    DRAW_INDEX_2 = 0x27
    CONTEXT_CONTROL = 0x28
    INDEX_TYPE = 0x2A
    DRAW_INDIRECT_MULTI = 0x2C
    DRAW_INDEX_AUTO = 0x2D
    NUM_INSTANCES = 0x2F
    DRAW_INDEX_MULTI_AUTO = 0x30
    INDIRECT_BUFFER_PRIV = 0x32
    INDIRECT_BUFFER_CNST = 0x33
    STRMOUT_BUFFER_UPDATE = 0x34
    DRAW_INDEX_OFFSET_2 = 0x35
    DRAW_PREAMBLE = 0x36
    WRITE_DATA = 0x37
    DRAW_INDEX_INDIRECT_MULTI = 0x38
    MEM_SEMAPHORE = 0x39
    DRAW_INDEX_MULTI_INST = 0x3A
    COPY_DW = 0x3B
    WAIT_REG_MEM = 0x3C
    INDIRECT_BUFFER = 0x3F
    COPY_DATA = 0x40
    CP_DMA = 0x41
    PFP_SYNC_ME = 0x42
    SURFACE_SYNC = 0x43
    ME_INITIALIZE = 0x44
    COND_WRITE = 0x45
    EVENT_WRITE = 0x46
    EVENT_WRITE_EOP = 0x47
    EVENT_WRITE_EOS = 0x48
    RELEASE_MEM = 0x49
    PREAMBLE_CNTL = 0x4A
    DMA_DATA = 0x50
    CONTEXT_REG_RMW = 0x51
    GFX_CNTX_UPDATE = 0x52
    BLK_CNTX_UPDATE = 0x53
    INCR_UPDT_STATE = 0x55
    ACQUIRE_MEM = 0x58
    REWIND = 0x59
    INTERRUPT = 0x5A
    GEN_PDEPTE = 0x5B
    INDIRECT_BUFFER_PASID = 0x5C
    PRIME_UTCL2 = 0x5D
    LOAD_UCONFIG_REG = 0x5E
    LOAD_SH_REG = 0x5F
    LOAD_CONFIG_REG = 0x60
    LOAD_CONTEXT_REG = 0x61
    LOAD_COMPUTE_STATE = 0x62
    LOAD_SH_REG_INDEX = 0x63
    SET_CONFIG_REG = 0x68
    SET_CONTEXT_REG = 0x69
    SET_CONTEXT_REG_INDEX = 0x6A
    SET_VGPR_REG_DI_MULTI = 0x71
    SET_SH_REG_DI = 0x72
    SET_CONTEXT_REG_INDIRECT = 0x73
    SET_SH_REG_DI_MULTI = 0x74
    GFX_PIPE_LOCK = 0x75
    SET_SH_REG = 0x76
    SET_SH_REG_OFFSET = 0x77
    SET_QUEUE_REG = 0x78
    SET_UCONFIG_REG = 0x79
    SET_UCONFIG_REG_INDEX = 0x7A
    FORWARD_HEADER = 0x7C
    SCRATCH_RAM_WRITE = 0x7D
    SCRATCH_RAM_READ = 0x7E
    LOAD_CONST_RAM = 0x80
    WRITE_CONST_RAM = 0x81
    DUMP_CONST_RAM = 0x83
    INCREMENT_CE_COUNTER = 0x84
    INCREMENT_DE_COUNTER = 0x85
    WAIT_ON_CE_COUNTER = 0x86
    WAIT_ON_DE_COUNTER_DIFF = 0x88
    SWITCH_BUFFER = 0x8B
    DISPATCH_DRAW_PREAMBLE = 0x8C
    DISPATCH_DRAW = 0x8D
    GET_LOD_STATS = 0x8E
    DRAW_MULTI_PREAMBLE = 0x8F
    FRAME_CONTROL = 0x90
    INDEX_ATTRIBUTES_INDIRECT = 0x91
    WAIT_REG_MEM64 = 0x93
    COND_PREEMPT = 0x94
    HDP_FLUSH = 0x95
    COPY_DATA_RB = 0x96
    INVALIDATE_TLBS = 0x98
    AQL_PACKET = 0x99
    DMA_DATA_FILL_MULTI = 0x9A
    SET_SH_REG_INDEX = 0x9B
    DRAW_INDIRECT_COUNT_MULTI = 0x9C
    DRAW_INDEX_INDIRECT_COUNT_MULTI = 0x9D
    DUMP_CONST_RAM_OFFSET = 0x9E
    LOAD_CONTEXT_REG_INDEX = 0x9F
    SET_RESOURCES = 0xA0
    MAP_PROCESS = 0xA1
    MAP_QUEUES = 0xA2
    UNMAP_QUEUES = 0xA3
    QUERY_STATUS = 0xA4
    RUN_LIST = 0xA5
    MAP_PROCESS_VM = 0xA6
    RUN_CLEANER_SHADER = 0xD2
    SET_Q_PREEMPTION_MODE = 0xF0


_OPCODES = {int(opcode): opcode for opcode in Opcode}


def type3_header(opcode: int, count: int) -> int:
    """Return the header of packet ``opcode`` with ``count`` body dwords; a NOP alone may have none."""
    if opcode == Opcode.NOP and count == 0:
        return NOP_ALONE
    limit = MAX_NOP_BODY if opcode == Opcode.NOP else MAX_BODY
    if not 1 <= count <= limit:
        raise ValueError(f"a packet {opcode:#04x} cannot have {count} body dwords; it may have 1..{limit}")
    return TYPE3_HEADER.pack(TYPE=TYPE3, OPCODE=opcode, COUNT=count - 1)


@lru_cache(maxsize=4096)
def decode_header(word: int) -> Header:
    """Return the decoded header; ``ValueError`` says why the microengine would reject it.

    Headers of a stream repeat: the results are kept, by header.
    """
    kind = word >> 30
    if kind == TYPE2:
        if word != TYPE2_FILLER:
            raise ValueError(f"packet header {word:#010x}: reserved bits {word & ~TYPE2_FILLER:#x} are set")
        return Header(None, 0)
    if kind != TYPE3:
        raise ValueError(f"packet header {word:#010x} has type {kind}; the microengine knows types 2 and 3")
    if unknown := TYPE3_HEADER.unknown(word):
        raise ValueError(f"packet header {word:#010x}: reserved bits {unknown:#x} are set")
    if TYPE3_HEADER.get(word, "PREDICATE"):
        raise ValueError(f"packet header {word:#010x}: PREDICATE is set, a compute queue has no predication")
    value = TYPE3_HEADER.get(word, "OPCODE")
    opcode = _OPCODES.get(value)
    if opcode is None:
        raise ValueError(f"packet header {word:#010x}: opcode {value:#04x} is unknown")
    count = TYPE3_HEADER.get(word, "COUNT") + 1
    return Header(opcode, 0 if word & ~0x3 == NOP_ALONE else count)


# ----- values -------------------------------------------------------------------------------------


class Event(IntEnum):
    """Event types that are the same on gfx9, gfx11 and gfx12 (``enum VGT_EVENT_TYPE``)."""

    SAMPLE_STREAMOUTSTATS1 = 0x01
    SAMPLE_STREAMOUTSTATS2 = 0x02
    SAMPLE_STREAMOUTSTATS3 = 0x03
    CACHE_FLUSH_TS = 0x04
    CONTEXT_DONE = 0x05
    CACHE_FLUSH = 0x06
    CS_PARTIAL_FLUSH = 0x07
    VGT_STREAMOUT_SYNC = 0x08
    VGT_STREAMOUT_RESET = 0x0A
    END_OF_PIPE_INCR_DE = 0x0B
    END_OF_PIPE_IB_END = 0x0C
    RST_PIX_CNT = 0x0D
    BREAK_BATCH = 0x0E
    VS_PARTIAL_FLUSH = 0x0F
    PS_PARTIAL_FLUSH = 0x10
    FLUSH_HS_OUTPUT = 0x11
    FLUSH_DFSM = 0x12
    RESET_TO_LOWEST_VGT = 0x13
    CACHE_FLUSH_AND_INV_TS_EVENT = 0x14
    CACHE_FLUSH_AND_INV_EVENT = 0x16
    PERFCOUNTER_START = 0x17
    PERFCOUNTER_STOP = 0x18
    PIPELINESTAT_START = 0x19
    PIPELINESTAT_STOP = 0x1A
    PERFCOUNTER_SAMPLE = 0x1B
    SAMPLE_PIPELINESTAT = 0x1E
    SO_VGTSTREAMOUT_FLUSH = 0x1F
    SAMPLE_STREAMOUTSTATS = 0x20
    RESET_VTX_CNT = 0x21
    BLOCK_CONTEXT_DONE = 0x22
    CS_CONTEXT_DONE = 0x23
    VGT_FLUSH = 0x24
    TGID_ROLLOVER = 0x25
    SQ_NON_EVENT = 0x26
    SC_SEND_DB_VPZ = 0x27
    BOTTOM_OF_PIPE_TS = 0x28
    FLUSH_SX_TS = 0x29
    DB_CACHE_FLUSH_AND_INV = 0x2A
    FLUSH_AND_INV_DB_DATA_TS = 0x2B
    FLUSH_AND_INV_DB_META = 0x2C
    FLUSH_AND_INV_CB_DATA_TS = 0x2D
    FLUSH_AND_INV_CB_META = 0x2E
    CS_DONE = 0x2F
    PS_DONE = 0x30
    FLUSH_AND_INV_CB_PIXEL_DATA = 0x31
    SX_CB_RAT_ACK_REQUEST = 0x32
    THREAD_TRACE_START = 0x33
    THREAD_TRACE_STOP = 0x34
    THREAD_TRACE_MARKER = 0x35
    THREAD_TRACE_FINISH = 0x37
    PIXEL_PIPE_STAT_CONTROL = 0x38
    PIXEL_PIPE_STAT_DUMP = 0x39
    PIXEL_PIPE_STAT_RESET = 0x3A
    CONTEXT_SUSPEND = 0x3B
    OFFCHIP_HS_DEALLOC = 0x3C
    ENABLE_NGG_PIPELINE = 0x3D


class EventWriteIndex(IntEnum):
    """EVENT_INDEX of EVENT_WRITE: CS_PARTIAL_FLUSH waits until the waves of the queue are done."""

    OTHER = 0
    SAMPLE_PIPELINESTAT = 2
    CS_PARTIAL_FLUSH = 4


class ReleaseIndex(IntEnum):
    """EVENT_INDEX of RELEASE_MEM: after which stage of earlier work."""

    END_OF_PIPE = 5
    SHADER_DONE = 6


class Function(IntEnum):
    """Comparison of WAIT_REG_MEM: (value & mask) FUNCTION reference, unsigned."""

    ALWAYS = 0
    LT = 1
    LE = 2
    EQ = 3
    NE = 4
    GE = 5
    GT = 6


class MemSpace(IntEnum):
    """What WAIT_REG_MEM polls."""

    REGISTER_SPACE = 0
    MEMORY_SPACE = 1


class WaitOperation(IntEnum):
    """OPERATION of WAIT_REG_MEM: WR_WAIT_WR_REG first writes the reference to another register."""

    WAIT_REG_MEM = 0
    WR_WAIT_WR_REG = 1
    WAIT_MEM_PREEMPTABLE = 3


class CachePolicy(IntEnum):
    """Cache policies; gfx9 knows the first two, gfx12 calls them temporal hints RT, NT, HT, LU."""

    LRU = 0
    STREAM = 1
    NOA = 2
    BYPASS = 3


class ReleaseDst(IntEnum):
    """DST_SEL of RELEASE_MEM."""

    MEMORY_CONTROLLER = 0
    TC_L2 = 1
    QUEUE_WRITE_POINTER_REGISTER = 2
    QUEUE_WRITE_POINTER_POLL_MASK_BIT = 3


class IntSel(IntEnum):
    """INT_SEL of RELEASE_MEM: whether and when to interrupt."""

    NONE = 0
    SEND_INTERRUPT_ONLY = 1
    SEND_INTERRUPT_AFTER_WRITE_CONFIRM = 2
    SEND_DATA_AFTER_WRITE_CONFIRM = 3
    UNCONDITIONALLY_SEND_INT_CTXID = 4
    CONDITIONALLY_SEND_INT_CTXID_BASED_ON_32_BIT_COMPARE = 5
    CONDITIONALLY_SEND_INT_CTXID_BASED_ON_64_BIT_COMPARE = 6


class DataSel(IntEnum):
    """DATA_SEL of RELEASE_MEM: what to write. The GPU clock counter is 64 bits wide and runs at 100 MHz."""

    NONE = 0
    SEND_32_BIT_LOW = 1
    SEND_64_BIT_DATA = 2
    SEND_GPU_CLOCK_COUNTER = 3
    SEND_CP_PERFCOUNTER_HI_LO = 4
    STORE_GDS_DATA_TO_MEMORY = 5


class WriteDst(IntEnum):
    """DST_SEL of WRITE_DATA."""

    MEM_MAPPED_REGISTER = 0
    TC_L2 = 2
    GDS = 3
    MEMORY = 5
    MEMORY_MAPPED_ADC_PERSISTENT_STATE = 6


class CopySrc(IntEnum):
    """SRC_SEL of COPY_DATA. gfx10 and later read MEMORY through the L2."""

    MEM_MAPPED_REGISTER = 0
    MEMORY = 1
    TC_L2 = 2
    GDS = 3
    PERFCOUNTERS = 4
    IMMEDIATE_DATA = 5
    ATOMIC_RETURN_DATA = 6
    GDS_ATOMIC_RETURN_DATA0 = 7
    GDS_ATOMIC_RETURN_DATA1 = 8
    GPU_CLOCK_COUNT = 9


class CopyDst(IntEnum):
    """DST_SEL of COPY_DATA. gfx10 and later write MEMORY through the L2."""

    MEM_MAPPED_REGISTER = 0
    TC_L2 = 2
    GDS = 3
    PERFCOUNTERS = 4
    MEMORY = 5
    MEM_MAPPED_REG_DC = 6


class AtomicCommand(IntEnum):
    """COMMAND of ATOMIC_MEM; the last two exist from gfx10 on."""

    SINGLE_PASS_ATOMIC = 0
    LOOP_UNTIL_COMPARE_SATISFIED = 1
    WAIT_FOR_WRITE_CONFIRMATION = 2
    SEND_AND_CONTINUE = 3


class GliInv(IntEnum):
    """What of the instruction cache to invalidate."""

    NOP = 0
    ALL = 1
    RANGE = 2
    FIRST_LAST = 3


class GcrRange(IntEnum):
    """Which lines of GL1 or GL2 an action is for."""

    ALL = 0
    VOL = 1
    RANGE = 2
    FIRST_LAST = 3


class GcrSeq(IntEnum):
    """In which order caches are flushed: all at a time, or from the shader to memory or back."""

    PARALLEL = 0
    FORWARD = 1
    REVERSE = 2


class DmaDst(IntEnum):
    """DST_SEL of DMA_DATA."""

    DST_ADDR_USING_DAS = 0
    GDS = 1
    DST_NOWHERE = 2
    DST_ADDR_USING_L2 = 3


class DmaSrc(IntEnum):
    """SRC_SEL of DMA_DATA."""

    SRC_ADDR_USING_SAS = 0
    GDS = 1
    DATA = 2
    SRC_ADDR_USING_L2 = 3


# ----- body dwords --------------------------------------------------------------------------------


class ADDRESS_LO_4(Word):
    """Low half of an address of a dword."""

    ADDR_LO = 2, 31


class ADDRESS_LO_8(Word):
    """Low half of an address of 64 bits."""

    ADDR_LO = 3, 31


class REGISTER(Word):
    """A register's absolute dword index."""

    REG = 0, 17


class GDS_ADDRESS(Word):
    """An offset into the global data share."""

    GDS_ADDR = 0, 15


class RESERVED(Word):
    """A dword that must be zero."""


class SET_SH_REG_0(Word):
    """REG_OFFSET counts from SH_REG_START. INDEX 1 inserts the VMID at VMID_SHIFT, kernel queues only."""

    REG_OFFSET = 0, 15
    VMID_SHIFT = 23, 27
    INDEX = 28, 31


class SET_UCONFIG_REG_0(Word):
    """REG_OFFSET counts from UCONFIG_REG_START."""

    REG_OFFSET = 0, 15


class SET_QUEUE_REG_0(Word):
    REG_OFFSET = 0, 7
    DEFER_EXEC = 15
    VQID = 16, 25


class SET_BASE_0(Word):
    BASE_INDEX = 0, 3


class WAIT_REG_MEM_0(Word):
    """Wait until ``(value & mask) FUNCTION reference``. ENGINE: 0 on compute queues."""

    FUNCTION = 0, 2, Function
    MEM_SPACE = 4, 5, MemSpace
    OPERATION = 6, 7, WaitOperation
    ENGINE = 8
    MES_INTR_PIPE = 22, 23
    MES_ACTION = 24
    CACHE_POLICY = 25, 26, CachePolicy


class WAIT_REG_MEM_0_GFX9(Word):
    FUNCTION = 0, 2, Function
    MEM_SPACE = 4, 5, MemSpace
    OPERATION = 6, 7, WaitOperation
    ENGINE = 8


class WAIT_REG_MEM_5(Word):
    """POLL_INTERVAL in units of 16 clocks."""

    POLL_INTERVAL = 0, 15
    OPTIMIZE_ACE_OFFLOAD_MODE = 31


class GCR_CNTL(Word):
    """Last dword of ACQUIRE_MEM from gfx10 on: which caches to write back (WB) and to invalidate (INV).

    GLI: instructions, GLK: scalar data, GLV: vector L0, GL1, GL2, GLM: metadata. That gfx12 accepts the bits
    of GL1 and GLM is unverified; it has no separate cache behind some of them.
    """

    GLI_INV = 0, 1, GliInv
    GL1_RANGE = 2, 3, GcrRange
    GLM_WB = 4
    GLM_INV = 5
    GLK_WB = 6
    GLK_INV = 7
    GLV_INV = 8
    GL1_INV = 9
    GL2_US = 10
    GL2_RANGE = 11, 12, GcrRange
    GL2_DISCARD = 13
    GL2_INV = 14
    GL2_WB = 15
    SEQ = 16, 17, GcrSeq
    RANGE_IS_PA = 18


class CP_COHER_CNTL(Word):
    """First dword of ACQUIRE_MEM on gfx9: which caches act.

    TC is the L2, TCL1 the vector cache, SH_KCACHE the scalar and SH_ICACHE the instruction cache.
    """

    TC_NC_ACTION_ENA = 3
    TC_WC_ACTION_ENA = 4
    TC_INV_METADATA_ACTION_ENA = 5
    TCL1_VOL_ACTION_ENA = 15
    TC_WB_ACTION_ENA = 18
    TCL1_ACTION_ENA = 22
    TC_ACTION_ENA = 23
    CB_ACTION_ENA = 25
    DB_ACTION_ENA = 26
    SH_KCACHE_ACTION_ENA = 27
    SH_KCACHE_VOL_ACTION_ENA = 28
    SH_ICACHE_ACTION_ENA = 29
    SH_KCACHE_WB_ACTION_ENA = 30


class ACQUIRE_MEM_POLL_INTERVAL(Word):
    POLL_INTERVAL = 0, 15


class RELEASE_MEM_0(Word):
    """Cache actions as in GCR_CNTL. GLK_WB, GLK_INV and PWS_ENABLE exist from gfx11 on."""

    EVENT_TYPE = 0, 5, Event
    EVENT_INDEX = 8, 11, ReleaseIndex
    GCR_GLM_WB = 12
    GCR_GLM_INV = 13
    GCR_GLV_INV = 14
    GCR_GL1_INV = 15
    GCR_GL2_US = 16
    GCR_GL2_RANGE = 17, 18, GcrRange
    GCR_GL2_DISCARD = 19
    GCR_GL2_INV = 20
    GCR_GL2_WB = 21
    GCR_SEQ = 22, 23, GcrSeq
    GCR_GLK_WB = 24
    CACHE_POLICY = 25, 26, CachePolicy
    EXECUTE = 28
    GCR_GLK_INV = 30
    PWS_ENABLE = 31


class RELEASE_MEM_0_GFX9(Word):
    """The names of the cache actions are those of ``EOP_*_EN``."""

    EVENT_TYPE = 0, 5, Event
    EVENT_INDEX = 8, 11, ReleaseIndex
    TCL1_VOL_ACTION_EN = 12
    TC_VOL_ACTION_EN = 13
    TC_WB_ACTION_EN = 15
    TCL1_ACTION_EN = 16
    TC_ACTION_EN = 17
    TC_NC_ACTION_EN = 19
    TC_WC_ACTION_EN = 20
    TC_MD_ACTION_EN = 21
    CACHE_POLICY = 25, 26, CachePolicy
    EXEC = 28


class RELEASE_MEM_1(Word):
    DST_SEL = 16, 17, ReleaseDst
    MES_INTR_PIPE = 20, 21
    MES_ACTION_ID = 22, 23
    INT_SEL = 24, 26, IntSel
    DATA_SEL = 29, 31, DataSel


class RELEASE_MEM_1_GFX9(Word):
    DST_SEL = 16, 17, ReleaseDst
    INT_SEL = 24, 26, IntSel
    DATA_SEL = 29, 31, DataSel


class INDIRECT_BUFFER_2(Word):
    """VALID must be set. CHAIN: jump, do not return. VMID and PRIV are the kernel's."""

    IB_SIZE = 0, 19
    CHAIN = 20
    OFFLOAD_POLLING = 21
    VALID = 23
    VMID = 24, 27
    CACHE_POLICY = 28, 29, CachePolicy
    PRIV = 31


class EVENT_WRITE_0(Word):
    EVENT_TYPE = 0, 5, Event
    EVENT_INDEX = 8, 11, EventWriteIndex
    SAMP_PLST_CNTR_MODE = 29, 30
    OFFLOAD_ENABLE = 31


class WRITE_DATA_0(Word):
    """ADDR_INCR set: write every dword to the same address. ENGINE_SEL: 0 on compute queues."""

    DST_SEL = 8, 11, WriteDst
    ADDR_INCR = 16
    WR_CONFIRM = 20
    CACHE_POLICY = 25, 26, CachePolicy
    ENGINE_SEL = 30, 31


class COPY_DATA_0(Word):
    """COUNT_SEL: 0 copies 32 bits, 1 copies 64."""

    SRC_SEL = 0, 3, CopySrc
    DST_SEL = 8, 11, CopyDst
    SRC_CACHE_POLICY = 13, 14, CachePolicy
    COUNT_SEL = 16
    WR_CONFIRM = 20
    DST_CACHE_POLICY = 25, 26, CachePolicy
    PQ_EXE_STATUS = 29


class ATOMIC_MEM_0(Word):
    """ATOMIC is an operation of the L2, such as 0x2F, 64-bit add that returns the old value."""

    ATOMIC = 0, 6
    COMMAND = 8, 11, AtomicCommand
    CACHE_POLICY = 25, 26, CachePolicy


class ATOMIC_MEM_7(Word):
    LOOP_INTERVAL = 0, 12


class DMA_DATA_0(Word):
    ENGINE = 0
    SRC_CACHE_POLICY = 13, 14, CachePolicy
    DST_SEL = 20, 21, DmaDst
    DST_CACHE_POLICY = 25, 26, CachePolicy
    SRC_SEL = 29, 30, DmaSrc
    CP_SYNC = 31


class DMA_DATA_5(Word):
    """SAS, DAS: 1 selects registers; SAIC, DAIC: the address does not count up."""

    BYTE_COUNT = 0, 25
    SAS = 26
    DAS = 27
    SAIC = 28
    DAIC = 29
    RAW_WAIT = 30
    DIS_WC = 31


class COND_EXEC_2(Word):
    CACHE_POLICY = 25, 26, CachePolicy


class COND_EXEC_3(Word):
    """EXEC_COUNT dwords are skipped if the dword in memory is zero."""

    EXEC_COUNT = 0, 13


class PRED_EXEC_0(Word):
    """XCCs whose bit is not in VIRTUAL_XCC_ID_SELECT skip the next EXEC_COUNT dwords.

    It works in indirect buffers only, not in the ring.
    """

    EXEC_COUNT = 0, 13
    VIRTUAL_XCC_ID_SELECT = 24, 31


class INVALIDATE_TLBS_0(Word):
    DST_SEL = 0, 2
    ALL_HUB = 4
    PASID = 5, 20
    FLUSH_TYPE = 29, 31


# ----- layouts ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dword:
    """A body dword: its name, and its layout if not every value is legal.

    ``reserved`` bits must be zero; ``named`` has shift, mask and legal values of each enumerated field.
    """

    name: str
    word: type[Word] | None = None
    reserved: int = field(init=False)
    named: tuple[tuple[int, int, frozenset[int]], ...] = field(init=False)

    def __post_init__(self) -> None:
        fields = self.word.FIELDS.values() if self.word is not None else ()
        named = tuple((f.low, f.max, frozenset(map(int, f.enum))) for f in fields if f.enum is not None)
        object.__setattr__(self, "reserved", self.word.unknown(0xFFFFFFFF) if self.word is not None else 0)
        object.__setattr__(self, "named", named)

    def is_legal(self, value: int) -> bool:
        """Return whether no reserved bit is set and every enumerated field has a value with a name."""
        if value & self.reserved:
            return False
        return not self.named or all(value >> low & mask in legal for low, mask, legal in self.named)

    def fault(self, value: int) -> str:
        """Return what makes ``value`` illegal."""
        if unknown := value & self.reserved:
            return f"reserved bits {unknown:#x} of {self.name} are set (value {value:#010x})"
        fields = self.word.FIELDS.values() if self.word is not None else ()
        wrong = [f for f in fields if f.enum is not None and f.get(value) not in f.enum._value2member_map_]
        return f"field {wrong[0].name} of {self.name} has unknown value {wrong[0].get(value)}"


Variant = Callable[[Sequence[int]], Mapping[int, Dword]]
"""Returns the dwords of a body, by index, that mean something else because of what others say."""


@dataclass(frozen=True, slots=True)
class Packet:
    """The layout of a packet's body: ``dwords``, then any number of ``tail`` dwords.

    ``sizes`` lists the body sizes that are legal without tail; with one, the smallest.
    """

    opcode: Opcode
    dwords: tuple[Dword, ...]
    tail: str = ""
    sizes: tuple[int, ...] = ()
    variant: Variant | None = None

    def fits(self, count: int) -> bool:
        """Return whether the packet may have ``count`` body dwords."""
        return count >= self.sizes[0] if self.tail else count in self.sizes

    def expected(self) -> str:
        """Return the legal body sizes in words."""
        text = " or ".join(map(str, self.sizes))
        return f"{text} or more" if self.tail else text

    def layout(self, body: Sequence[int]) -> tuple[Dword, ...]:
        """Return what the dwords of ``body`` mean, without those of the tail."""
        dwords = self.dwords if len(body) >= len(self.dwords) else self.dwords[: len(body)]
        if self.variant is None:
            return dwords
        changed = self.variant(body)
        if not changed:
            return dwords
        return tuple([changed.get(index, dword) for index, dword in enumerate(dwords)])


def _packet(
    opcode: Opcode,
    *dwords: str | tuple[str, type[Word]] | type[Word],
    tail: str = "",
    sizes: tuple[int, ...] = (),
    variant: Variant | None = None,
) -> Packet:
    layout = tuple(_dword(entry) for entry in dwords)
    return Packet(opcode, layout, tail, sizes or (len(layout) + bool(tail),), variant)


def _dword(entry: str | tuple[str, type[Word]] | type[Word]) -> Dword:
    if isinstance(entry, str):
        return Dword(entry)
    if isinstance(entry, tuple):
        return Dword(*entry)
    return Dword(entry.__name__, entry)


_ZERO = Dword("RESERVED", RESERVED)
_WAIT_TWO_REGISTERS = {1: Dword("REG_WRITE_ADDR1", REGISTER), 2: Dword("REG_WRITE_ADDR2", REGISTER)}
_WAIT_REGISTER = {1: Dword("REG_POLL_ADDR", REGISTER), 2: _ZERO}
_WRITE_REGISTER = {1: Dword("DST_MMREG_ADDR", REGISTER), 2: _ZERO}
_WRITE_GDS = {1: Dword("DST_GDS_ADDR", GDS_ADDRESS), 2: _ZERO}
# Of 32 bits and of 64.
_COPY_SRC_MEMORY = [{1: Dword("SRC_ADDR_LO", word)} for word in (ADDRESS_LO_4, ADDRESS_LO_8)]
_COPY_DST_MEMORY = [{3: Dword("DST_ADDR_LO", word)} for word in (ADDRESS_LO_4, ADDRESS_LO_8)]
_COPY_SRC_REGISTER = {1: Dword("SRC_REG_OFFSET", REGISTER), 2: _ZERO}
_COPY_SRC_GDS = {1: Dword("SRC_GDS_ADDR_LO", GDS_ADDRESS), 2: _ZERO}
_COPY_SRC_DATA = {1: Dword("IMM_DATA"), 2: Dword("SRC_IMM_DATA")}
_COPY_DST_REGISTER = {3: Dword("DST_REG_OFFSET", REGISTER), 4: _ZERO}
_COPY_DST_GDS = {3: Dword("DST_GDS_ADDR_LO", GDS_ADDRESS), 4: _ZERO}
_RELEASE_32_BITS = {2: Dword("ADDRESS_LO", ADDRESS_LO_4)}
_RELEASE_64_BITS = {2: Dword("ADDRESS_LO", ADDRESS_LO_8)}


def _wait_dwords(body: Sequence[int]) -> Mapping[int, Dword]:
    if WAIT_REG_MEM_0.get(body[0], "OPERATION") == WaitOperation.WR_WAIT_WR_REG:
        return _WAIT_TWO_REGISTERS
    in_memory = WAIT_REG_MEM_0.get(body[0], "MEM_SPACE") == MemSpace.MEMORY_SPACE
    return {} if in_memory else _WAIT_REGISTER


def _write_dwords(body: Sequence[int]) -> Mapping[int, Dword]:
    match WRITE_DATA_0.get(body[0], "DST_SEL"):
        case WriteDst.MEM_MAPPED_REGISTER | WriteDst.MEMORY_MAPPED_ADC_PERSISTENT_STATE:
            return _WRITE_REGISTER
        case WriteDst.GDS:
            return _WRITE_GDS
    return {}


def _copy_dwords(body: Sequence[int]) -> Mapping[int, Dword]:
    return _copy_source(body[0]) | _copy_destination(body[0])


def _copy_source(selectors: int) -> dict[int, Dword]:
    match COPY_DATA_0.get(selectors, "SRC_SEL"):
        case CopySrc.MEMORY | CopySrc.TC_L2:
            return _COPY_SRC_MEMORY[COPY_DATA_0.get(selectors, "COUNT_SEL")]
        case CopySrc.GDS:
            return _COPY_SRC_GDS
        case CopySrc.MEM_MAPPED_REGISTER | CopySrc.PERFCOUNTERS:
            return _COPY_SRC_REGISTER
        case CopySrc.IMMEDIATE_DATA:
            return _COPY_SRC_DATA
    return {}


def _copy_destination(selectors: int) -> dict[int, Dword]:
    match COPY_DATA_0.get(selectors, "DST_SEL"):
        case CopyDst.TC_L2 | CopyDst.MEMORY:
            return _COPY_DST_MEMORY[COPY_DATA_0.get(selectors, "COUNT_SEL")]
        case CopyDst.GDS:
            return _COPY_DST_GDS
    return _COPY_DST_REGISTER


def _release_dwords(body: Sequence[int]) -> Mapping[int, Dword]:
    match RELEASE_MEM_1.get(body[1], "DATA_SEL"):
        case DataSel.NONE:
            return {}
        case DataSel.SEND_32_BIT_LOW | DataSel.STORE_GDS_DATA_TO_MEMORY:
            return _RELEASE_32_BITS
    return _RELEASE_64_BITS


def _common(initiator: type[Word]) -> tuple[Packet, ...]:
    """The packets that all generations share; the layout of the dispatch initiator is a register's."""
    return (
        _packet(Opcode.NOP, tail="DATA", sizes=(0,)),
        _packet(Opcode.SET_BASE, SET_BASE_0, ("ADDRESS_LO", ADDRESS_LO_8), "ADDRESS_HI"),
        _packet(Opcode.DISPATCH_DIRECT, "DIM_X", "DIM_Y", "DIM_Z", initiator),
        _packet(Opcode.DISPATCH_INDIRECT, ("ADDR_LO", ADDRESS_LO_4), "ADDR_HI", initiator),
        _packet(
            Opcode.ATOMIC_MEM,
            ATOMIC_MEM_0,
            ("ADDR_LO", ADDRESS_LO_4),
            "ADDR_HI",
            "SRC_DATA_LO",
            "SRC_DATA_HI",
            "CMP_DATA_LO",
            "CMP_DATA_HI",
            ATOMIC_MEM_7,
        ),
        _packet(Opcode.COND_EXEC, ("ADDR_LO", ADDRESS_LO_4), "ADDR_HI", COND_EXEC_2, COND_EXEC_3),
        _packet(Opcode.PRED_EXEC, PRED_EXEC_0),
        _packet(
            Opcode.WRITE_DATA,
            WRITE_DATA_0,
            ("DST_MEM_ADDR_LO", ADDRESS_LO_4),
            "DST_MEM_ADDR_HI",
            tail="DATA",
            variant=_write_dwords,
        ),
        _packet(Opcode.INDIRECT_BUFFER, ("IB_BASE_LO", ADDRESS_LO_4), "IB_BASE_HI", INDIRECT_BUFFER_2),
        _packet(
            Opcode.COPY_DATA,
            COPY_DATA_0,
            "SRC_LO",
            "SRC_HI",
            "DST_LO",
            "DST_ADDR_HI",
            variant=_copy_dwords,
        ),
        _packet(Opcode.PFP_SYNC_ME, "DUMMY"),
        _packet(Opcode.EVENT_WRITE, EVENT_WRITE_0, ("ADDRESS_LO", ADDRESS_LO_8), "ADDRESS_HI", sizes=(1, 3)),
        _packet(
            Opcode.DMA_DATA,
            DMA_DATA_0,
            "SRC_ADDR_LO_OR_DATA",
            "SRC_ADDR_HI",
            "DST_ADDR_LO",
            "DST_ADDR_HI",
            DMA_DATA_5,
        ),
        _packet(Opcode.SET_SH_REG, SET_SH_REG_0, tail="REG_DATA"),
        _packet(Opcode.SET_QUEUE_REG, SET_QUEUE_REG_0, tail="REG_DATA"),
        _packet(Opcode.SET_UCONFIG_REG, SET_UCONFIG_REG_0, tail="REG_DATA"),
        _packet(Opcode.INVALIDATE_TLBS, INVALIDATE_TLBS_0),
    )


# COHER_SIZE_HI and COHER_BASE_HI have 8 and 24 bits; runtimes send all ones for "everything", which works.
_COHER_RANGE = ("COHER_SIZE", "COHER_SIZE_HI", "COHER_BASE_LO", "COHER_BASE_HI")
_RELEASE_TAIL = ("ADDRESS_LO", "ADDRESS_HI", "DATA_LO", "DATA_HI", "INT_CTXID")
_WAIT_TAIL = ("REFERENCE", "MASK", WAIT_REG_MEM_5)
_WAIT_ADDRESS = (("MEM_POLL_ADDR_LO", ADDRESS_LO_4), "MEM_POLL_ADDR_HI")

_GFX9 = (
    _packet(Opcode.WAIT_REG_MEM, WAIT_REG_MEM_0_GFX9, *_WAIT_ADDRESS, *_WAIT_TAIL, variant=_wait_dwords),
    _packet(
        Opcode.RELEASE_MEM, RELEASE_MEM_0_GFX9, RELEASE_MEM_1_GFX9, *_RELEASE_TAIL, variant=_release_dwords
    ),
    _packet(Opcode.ACQUIRE_MEM, CP_COHER_CNTL, *_COHER_RANGE, ACQUIRE_MEM_POLL_INTERVAL),
)

_GFX10_PLUS = (
    _packet(Opcode.WAIT_REG_MEM, WAIT_REG_MEM_0, *_WAIT_ADDRESS, *_WAIT_TAIL, variant=_wait_dwords),
    _packet(Opcode.RELEASE_MEM, RELEASE_MEM_0, RELEASE_MEM_1, *_RELEASE_TAIL, variant=_release_dwords),
    _packet(Opcode.ACQUIRE_MEM, RESERVED, *_COHER_RANGE, ACQUIRE_MEM_POLL_INTERVAL, GCR_CNTL),
    _packet(
        Opcode.WAIT_REG_MEM64,
        WAIT_REG_MEM_0,
        ("MEM_POLL_ADDR_LO", ADDRESS_LO_8),
        "MEM_POLL_ADDR_HI",
        "REFERENCE",
        "REFERENCE_HI",
        "MASK",
        "MASK_HI",
        WAIT_REG_MEM_5,
        variant=_wait_dwords,
    ),
    _packet(Opcode.HDP_FLUSH, "DUMMY"),
)


def _by_opcode(*packets: Packet) -> dict[Opcode, Packet]:
    return {packet.opcode: packet for packet in packets}


PACKETS: dict[Generation, dict[Opcode, Packet]] = {
    Generation.GFX9: _by_opcode(*_common(registers_gfx9.COMPUTE_DISPATCH_INITIATOR), *_GFX9),
    Generation.GFX11: _by_opcode(*_common(registers_gfx11.COMPUTE_DISPATCH_INITIATOR), *_GFX10_PLUS),
    Generation.GFX12: _by_opcode(*_common(registers_gfx12.COMPUTE_DISPATCH_INITIATOR), *_GFX10_PLUS),
}
"""The packets with a known layout, by generation."""

KERNEL_ONLY = frozenset({Opcode.INVALIDATE_TLBS, Opcode.HDP_FLUSH, Opcode.SET_QUEUE_REG})
"""Packets that the microengine takes from queues of the kernel only."""

GRAPHICS_ONLY = frozenset({Opcode.SET_BASE, Opcode.PFP_SYNC_ME})
"""Packets that graphics rings know and compute queues have no use for."""


# ----- encoding -----------------------------------------------------------------------------------


def packet(opcode: Opcode, *body: int) -> tuple[int, ...]:
    """Return header and body of a packet."""
    return type3_header(opcode, len(body)), *body


def nop(dwords: int) -> tuple[int, ...]:
    """Return a NOP that is ``dwords`` long with its header; at least 1."""
    return type3_header(Opcode.NOP, dwords - 1), *(0,) * (dwords - 1)


def set_registers(offset: int, *values: int) -> tuple[int, ...]:
    """Return the packet that writes ``values`` to the registers from absolute dword index ``offset`` on.

    ``ValueError`` if neither SET_SH_REG nor SET_UCONFIG_REG reaches them.
    """
    end = offset + len(values)
    if offset >= SH_REG_START and end <= SH_REG_END:
        return packet(Opcode.SET_SH_REG, SET_SH_REG_0.pack(REG_OFFSET=offset - SH_REG_START), *values)
    if offset >= UCONFIG_REG_START and end <= MAX_UCONFIG_REG + 1:
        word = SET_UCONFIG_REG_0.pack(REG_OFFSET=offset - UCONFIG_REG_START)
        return packet(Opcode.SET_UCONFIG_REG, word, *values)
    raise ValueError(f"no packet of a compute queue writes registers {offset:#x}..{end - 1:#x}")


# ----- decoding -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Decoded:
    """A packet: its body, and what its dwords but those of the tail mean."""

    opcode: Opcode
    body: tuple[int, ...]
    layout: tuple[Dword, ...]

    @property
    def length(self) -> int:
        """Dwords with the header."""
        return len(self.body) + 1

    @property
    def tail(self) -> tuple[int, ...]:
        """The dwords that follow the fixed ones, such as the values of registers."""
        return self.body[len(self.layout) :]

    def value(self, name: str) -> int:
        """Return the dword called ``name``; ``KeyError`` if this packet has none."""
        for dword, value in zip(self.layout, self.body):
            if dword.name == name:
                return value
        raise KeyError(f"{self.opcode.name} has no dword {name}")

    def field(self, word: type[Word], name: str) -> int:
        """Return field ``name`` of the dword that has layout ``word``."""
        for dword, value in zip(self.layout, self.body):
            if dword.word is word:
                return word.get(value, name)
        raise KeyError(f"{self.opcode.name} has no dword of layout {word.__name__}")

    def describe(self) -> str:
        """Return ``OPCODE DWORD=value ...`` with the fields of the dwords that have some."""
        parts = [self.opcode.name]
        for dword, value in zip(self.layout, self.body):
            has_fields = dword.word is not None and len(dword.word.FIELDS) > 1
            text = f"({dword.word.describe(value)})" if dword.word and has_fields else f"{value:#x}"
            parts.append(f"{dword.name}={text}")
        parts += [f"{value:#x}" for value in self.tail]
        return " ".join(parts)


def packet_layout(generation: Generation, opcode: Opcode) -> Packet:
    """Return the layout of a packet; ``ValueError`` if none is known for the generation."""
    layout = PACKETS[generation].get(opcode)
    if layout is None:
        raise ValueError(
            f"packet {opcode.name} ({opcode:#04x}) is not one of a compute queue on {generation.name}"
        )
    return layout


def decode_body(generation: Generation, opcode: Opcode, body: Sequence[int]) -> Decoded:
    """Return the decoded packet.

    ``ValueError`` names a body size that the packet cannot have, reserved bits that are set, or a field
    with a value that has no meaning.
    """
    layout = packet_layout(generation, opcode)
    if not layout.fits(len(body)):
        raise ValueError(f"{opcode.name} has {len(body)} body dwords, expected {layout.expected()}")
    dwords = layout.layout(body)
    for dword, value in zip(dwords, body):
        if not dword.is_legal(value):
            raise ValueError(f"{opcode.name}: {dword.fault(value)}")
    return Decoded(opcode, tuple(body), dwords)


def decode_packet(generation: Generation, words: Sequence[int], at: int = 0) -> Decoded | None:
    """Return the packet at ``words[at]``, ``None`` for a type-2 filler; ``ValueError`` as `decode_body`."""
    header = decode_header(words[at])
    if header.opcode is None:
        return None
    body = words[at + 1 : at + 1 + header.count]
    if len(body) < header.count:
        raise ValueError(
            f"{header.opcode.name} has {header.count} body dwords, but only {len(body)} are left"
        )
    return decode_body(generation, header.opcode, body)
