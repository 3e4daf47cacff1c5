"""Command stream packets of the Adreno a6xx command processor.

Names are those of Mesa (``src/freedreno/registers/adreno/adreno_pm4.xml``, release 25.2) without ``CP_`` and
chip prefixes. A packet is a header dword and its payload; a Word called ``WAIT_REG_MEM_0`` is payload dword 0
of packet WAIT_REG_MEM. Addresses are two dwords, low first.

Type 4 writes registers, type 7 runs an opcode:

    type 4:  4 << 28 | P(register) << 27 | register << 8 | P(count) << 7 | count
    type 7:  7 << 28 | P(opcode) << 23 | opcode << 16 | P(count) << 15 | count

where P makes the number of ones in the value and itself odd.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ringfence.hardware.fields import Word

TYPE4 = 4
TYPE7 = 7
MAX_TYPE4_COUNT = 0x7F
MAX_TYPE4_REGISTER = 0x3FFFF
MAX_TYPE7_COUNT = 0x3FFF
MAX_LOAD_STATE_UNITS = 0x3FF


# ----- headers ------------------------------------------------------------------------------------


class TYPE4_HEADER(Word):
    """Header of a register write: ``COUNT`` payload dwords go to consecutive registers."""

    COUNT = 0, 6
    COUNT_PARITY = 7
    REGISTER = 8, 25
    REGISTER_PARITY = 27
    TYPE = 28, 31


class TYPE7_HEADER(Word):
    """Header of an opcode packet with ``COUNT`` payload dwords."""

    COUNT = 0, 13
    COUNT_PARITY = 15
    OPCODE = 16, 22
    OPCODE_PARITY = 23
    TYPE = 28, 31


@dataclass(frozen=True, slots=True)
class Type4:
    """A decoded register write header."""

    register: int
    count: int


@dataclass(frozen=True, slots=True)
class Type7:
    """A decoded opcode header; ``opcode`` need not be a known :class:`Opcode`."""

    opcode: int
    count: int


def odd_parity(value: int) -> int:
    """Return the bit that makes the number of ones in ``value`` and itself odd."""
    return value.bit_count() & 1 ^ 1


def type4_header(register: int, count: int) -> int:
    """Return the header that writes ``count`` dwords to ``register`` and the ones after it."""
    return TYPE4_HEADER.pack(
        TYPE=TYPE4,
        REGISTER=register,
        REGISTER_PARITY=odd_parity(register),
        COUNT=count,
        COUNT_PARITY=odd_parity(count),
    )


def type7_header(opcode: int, count: int) -> int:
    """Return the header of packet ``opcode`` with ``count`` payload dwords."""
    return TYPE7_HEADER.pack(
        TYPE=TYPE7,
        OPCODE=opcode,
        OPCODE_PARITY=odd_parity(opcode),
        COUNT=count,
        COUNT_PARITY=odd_parity(count),
    )


def decode_header(word: int) -> Type4 | Type7:
    """Return the decoded header; ``ValueError`` says why the command processor would reject it."""
    kind = word >> 28
    if kind == TYPE4:
        register, count = TYPE4_HEADER.get(word, "REGISTER"), TYPE4_HEADER.get(word, "COUNT")
        _check_header(TYPE4_HEADER, word, REGISTER_PARITY=register, COUNT_PARITY=count)
        return Type4(register, count)
    if kind == TYPE7:
        opcode, count = TYPE7_HEADER.get(word, "OPCODE"), TYPE7_HEADER.get(word, "COUNT")
        _check_header(TYPE7_HEADER, word, OPCODE_PARITY=opcode, COUNT_PARITY=count)
        return Type7(opcode, count)
    raise ValueError(f"packet header {word:#010x} has type {kind}; the a6xx command processor knows 4 and 7")


def _check_header(layout: type[Word], word: int, **protected: int) -> None:
    for parity, value in protected.items():
        if layout.get(word, parity) != odd_parity(value):
            part = parity.removesuffix("_PARITY").lower()
            raise ValueError(f"packet header {word:#010x}: wrong parity bit of its {part} {value:#x}")
    if unknown := layout.unknown(word):
        raise ValueError(f"packet header {word:#010x}: reserved bits {unknown:#x} are set")


# ----- opcodes and values -------------------------------------------------------------------------


class Opcode(IntEnum):
    """Type-7 opcodes of a6xx (``enum adreno_pm4_type3_packets``)."""

    NOP = 0x10
    RECORD_PFP_TIMESTAMP = 0x11
    WAIT_MEM_WRITES = 0x12
    WAIT_FOR_ME = 0x13
    WAIT_MEM_GTE = 0x14
    DRAW_PRED_ENABLE_GLOBAL = 0x19
    DRAW_PRED_ENABLE_LOCAL = 0x1A
    YIELD_ENABLE = 0x1C
    SKIP_IB2_ENABLE_GLOBAL = 0x1D
    REG_RMW = 0x21
    SKIP_IB2_ENABLE_LOCAL = 0x23
    WAIT_FOR_IDLE = 0x26
    BLIT = 0x2C
    RUN_OPENCL = 0x31
    LOAD_STATE6_GEOM = 0x32
    EXEC_CS = 0x33
    LOAD_STATE6_FRAG = 0x34
    LOAD_STATE6 = 0x36
    REG_TEST = 0x39
    INVALIDATE_STATE = 0x3B
    WAIT_REG_MEM = 0x3C
    MEM_WRITE = 0x3D
    REG_TO_MEM = 0x3E
    INDIRECT_BUFFER = 0x3F
    INTERRUPT = 0x40
    EXEC_CS_INDIRECT = 0x41
    MEM_TO_REG = 0x42
    SET_DRAW_STATE = 0x43
    COND_EXEC = 0x44
    COND_WRITE5 = 0x45
    EVENT_WRITE = 0x46
    COND_REG_EXEC = 0x47
    ME_INIT = 0x48
    REG_TO_SCRATCH = 0x4A
    SCRATCH_WRITE = 0x4C
    SCRATCH_TO_REG = 0x4D
    START_BIN = 0x50
    END_BIN = 0x51
    WAIT_REG_EQ = 0x52
    SMMU_TABLE_UPDATE = 0x53
    SET_AMBLE = 0x55
    SET_PSEUDO_REG = 0x56
    INDIRECT_BUFFER_CHAIN = 0x57
    CONTEXT_REG_BUNCH = 0x5C
    SET_PROTECTED_MODE = 0x5F
    WHERE_AM_I = 0x62
    SET_MODE = 0x63
    SET_MARKER = 0x65
    SET_SECURE_MODE = 0x66
    PREEMPT_ENABLE_GLOBAL = 0x69
    PREEMPT_ENABLE_LOCAL = 0x6A
    CONTEXT_SWITCH_YIELD = 0x6B
    PREEMPT_DISABLE = 0x6C
    REG_WRITE = 0x6D
    COMPUTE_CHECKPOINT = 0x6E
    WAIT_TWO_REGS = 0x70
    REG_TO_MEM_OFFSET_REG = 0x72
    MEM_TO_MEM = 0x73
    REG_TO_MEM_OFFSET_MEM = 0x74
    MEMCPY = 0x75
    REG_WR_NO_CTXT = 0x78


class Event(IntEnum):
    """Events of EVENT_WRITE on a6xx (``enum vgt_event_type``).

    Those called ``_TS`` write a value when they occur. CACHE_FLUSH_TS writes dirty lines of the unified
    cache (UCHE) back and is the usual "done" event of compute work; CACHE_INVALIDATE drops clean lines so
    that later reads see memory.
    """

    VS_DONE_TS = 2
    PS_DONE_TS = 3
    CACHE_FLUSH_TS = 4
    CONTEXT_DONE = 5
    CACHE_FLUSH = 6
    WT_DONE_TS = 8
    START_PRIMITIVE_CTRS = 11
    STOP_PRIMITIVE_CTRS = 12
    START_FRAGMENT_CTRS = 13
    STOP_FRAGMENT_CTRS = 14
    START_COMPUTE_CTRS = 15
    STOP_COMPUTE_CTRS = 16
    FLUSH_SO_0 = 17
    FLUSH_SO_1 = 18
    FLUSH_SO_2 = 19
    FLUSH_SO_3 = 20
    ZPASS_DONE = 21
    RB_DONE_TS = 22
    PC_CCU_INVALIDATE_DEPTH = 24
    PC_CCU_INVALIDATE_COLOR = 25
    PC_CCU_RESOLVE_TS = 26
    PC_CCU_FLUSH_DEPTH_TS = 28
    PC_CCU_FLUSH_COLOR_TS = 29
    BLIT = 30
    LRZ_CLEAR = 37
    LRZ_FLUSH = 38
    CACHE_INVALIDATE = 49
    LABEL = 63


class Function(IntEnum):
    """Comparison of a masked value with REF (``enum cp_cond_function``, there called WRITE_*)."""

    ALWAYS = 0
    LT = 1
    LE = 2
    EQ = 3
    NE = 4
    GE = 5
    GT = 6


class Poll(IntEnum):
    """What WAIT_REG_MEM and COND_WRITE5 look at (``enum poll_memory_type``)."""

    REGISTER = 0
    MEMORY = 1
    SCRATCH = 2
    ON_CHIP = 3


class Marker(IntEnum):
    """MODE of SET_MARKER (``enum a6xx_marker``, there called RM6_*)."""

    DIRECT_RENDER = 1
    BIN_VISIBILITY = 2
    BIN_DIRECT = 3
    BIN_RENDER_START = 4
    BIN_END_OF_DRAWS = 5
    BIN_RESOLVE = 6
    BIN_RENDER_END = 7
    COMPUTE = 8
    BLIT2DSCALE = 12
    IB1LIST_START = 13
    IB1LIST_END = 14


class MarkerMode(IntEnum):
    """Which of the two layouts SET_MARKER has (``enum set_marker_mode``)."""

    SET_RENDER_MODE = 0
    SET_IFPC_MODE = 1


class IfpcMode(IntEnum):
    """Inter-frame power collapse, set by the kernel (``enum a6xx_ifpc_mode``)."""

    ENABLE = 0
    DISABLE = 1


class StateType(IntEnum):
    """STATE_TYPE of LOAD_STATE6 (``enum a6xx_state_type``). What it means depends on :class:`StateBlock`."""

    SHADER = 0
    CONSTANTS = 1
    UBO = 2
    UAV = 3


class StateSource(IntEnum):
    """STATE_SRC of LOAD_STATE6 (``enum a6xx_state_src``)."""

    DIRECT = 0
    BINDLESS = 1
    INDIRECT = 2
    UBO = 3


class StateBlock(IntEnum):
    """STATE_BLOCK of LOAD_STATE6 (``enum a6xx_state_block``)."""

    VS_TEX = 0
    HS_TEX = 1
    DS_TEX = 2
    GS_TEX = 3
    FS_TEX = 4
    CS_TEX = 5
    VS_SHADER = 8
    HS_SHADER = 9
    DS_SHADER = 10
    GS_SHADER = 11
    FS_SHADER = 12
    CS_SHADER = 13
    UAV = 14
    CS_UAV = 15


class CompareMode(IntEnum):
    """MODE of COND_REG_EXEC (``enum compare_mode``)."""

    PRED_TEST = 1
    REG_COMPARE = 2
    RENDER_MODE = 3
    REG_COMPARE_IMM = 4
    THREAD_MODE = 5


class SourceType(IntEnum):
    """SOURCE of REG_TEST (``enum source_type``)."""

    REG = 0
    SCRATCH_MEM = 1


class Amble(IntEnum):
    """TYPE of SET_AMBLE (``enum amble_type``)."""

    PREAMBLE = 0
    BIN_PREAMBLE = 1
    POSTAMBLE = 2
    KMD = 3


class RegTracker(IntEnum):
    """TRACKER bits of REG_WRITE (``enum reg_tracker``)."""

    TRACK_CNTL_REG = 1
    TRACK_RENDER_CNTL = 2
    UNK_EVENT_WRITE = 4
    TRACK_LRZ = 8


# Bytes per unit of NUM_UNIT and DST_OFF, by (block, type), for compute state.
STATE_UNIT_BYTES: dict[tuple[StateBlock, StateType], int] = {
    (StateBlock.CS_SHADER, StateType.SHADER): 128,
    (StateBlock.CS_SHADER, StateType.CONSTANTS): 16,
    (StateBlock.CS_SHADER, StateType.UBO): 8,
    (StateBlock.CS_SHADER, StateType.UAV): 64,
    (StateBlock.CS_TEX, StateType.SHADER): 16,
    (StateBlock.CS_TEX, StateType.CONSTANTS): 64,
}


# ----- payload dwords -----------------------------------------------------------------------------


class EVENT_WRITE_0(Word):
    """TIMESTAMP stores the always-on counter (64 bits) instead of payload dword 3."""

    EVENT = 0, 7, Event
    TIMESTAMP = 30
    IRQ = 31


class WAIT_REG_MEM_0(Word):
    """Wait until ``(value & MASK) FUNCTION REF``; the comparison is unsigned unless SIGNED_COMPARE is set."""

    FUNCTION = 0, 2, Function
    SIGNED_COMPARE = 3
    POLL = 4, 5, Poll
    WRITE_MEMORY = 8


class COND_WRITE5_0(Word):
    """As WAIT_REG_MEM_0, but nothing waits: the write happens if the test passes."""

    FUNCTION = 0, 2, Function
    SIGNED_COMPARE = 3
    POLL = 4, 5, Poll
    WRITE_MEMORY = 8


class REG_TO_MEM_0(Word):
    """CNT counts dwords; 64B copies at least one low/high pair; ACCUMULATE adds to memory."""

    REG = 0, 17
    CNT = 18, 29
    _64B = 30
    ACCUMULATE = 31


class REG_TO_MEM_OFFSET_REG_0(Word):
    REG = 0, 17
    CNT = 18, 29
    _64B = 30
    ACCUMULATE = 31


class REG_TO_MEM_OFFSET_REG_3(Word):
    OFFSET0 = 0, 17
    OFFSET0_SCRATCH = 19


class REG_TO_MEM_OFFSET_MEM_0(Word):
    REG = 0, 17
    CNT = 18, 29
    _64B = 30
    ACCUMULATE = 31


class MEM_TO_REG_0(Word):
    REG = 0, 17
    CNT = 19, 29
    SHIFT_BY_2 = 30
    UNK31 = 31


class MEM_TO_MEM_0(Word):
    """Destination := sum of one to three sources, each negated on demand; DOUBLE makes them 64-bit."""

    NEG_A = 0
    NEG_B = 1
    NEG_C = 2
    DOUBLE = 29
    WAIT_FOR_MEM_WRITES = 30
    UNK31 = 31


class REG_RMW_0(Word):
    """Register := rotate_left(register & SRC0, ROTATE), then OR (or plus, with SRC1_ADD) SRC1."""

    DST_REG = 0, 17
    DST_SCRATCH = 19
    SKIP_WAIT_FOR_ME = 23
    ROTATE = 24, 28
    SRC1_ADD = 29
    SRC1_IS_REG = 30
    SRC0_IS_REG = 31


class REG_WRITE_0(Word):
    TRACKER = 0, 3


class REG_TEST_0(Word):
    """Predicate bit PRED_BIT := bit BIT of the register. PRED_UPDATE: two more dwords, mask and value."""

    REG = 0, 17
    SOURCE = 18, 18, SourceType
    BIT = 20, 24
    SKIP_WAIT_FOR_ME = 25
    PRED_BIT = 26, 30
    PRED_UPDATE = 31


class COND_REG_EXEC_0(Word):
    """Skip the DWORDS that follow unless the test of MODE passes. Layout of every mode but THREAD_MODE."""

    REG0 = 0, 17
    PRED_BIT = 18, 22
    SKIP_WAIT_FOR_ME = 23
    ONCHIP_MEM = 24
    BINNING = 25
    GMEM = 26
    SYSMEM = 27
    MODE = 28, 31, CompareMode


class COND_REG_EXEC_THREAD_0(Word):
    """COND_REG_EXEC_0 in THREAD_MODE: which command processor threads run the dwords."""

    REG0 = 0, 17
    PRED_BIT = 18, 22
    SKIP_WAIT_FOR_ME = 23
    ONCHIP_MEM = 24
    BV = 25
    BR = 26
    LPAC = 27
    MODE = 28, 31, CompareMode


class COND_REG_EXEC_PRED_TEST_1(Word):
    DWORDS = 0, 23


class COND_REG_EXEC_REG_COMPARE_1(Word):
    REG1 = 0, 17
    ONCHIP_MEM = 24


class COND_REG_EXEC_2(Word):
    DWORDS = 0, 23


class WAIT_TWO_REGS_0(Word):
    REG0 = 0, 17


class WAIT_TWO_REGS_1(Word):
    REG1 = 0, 17


class LOAD_STATE6_0(Word):
    """Load NUM_UNIT units of state at DST_OFF units. The unit depends on block and type: STATE_UNIT_BYTES."""

    DST_OFF = 0, 13
    STATE_TYPE = 14, 15, StateType
    STATE_SRC = 16, 17, StateSource
    STATE_BLOCK = 18, 21, StateBlock
    NUM_UNIT = 22, 31


class LOAD_STATE6_1(Word):
    """Low address bits; zero for DIRECT state, which follows inline."""

    EXT_SRC_ADDR = 2, 31


class SET_MARKER_0(Word):
    """The layout of MARKER_MODE 0. The last three fields exist from a7xx on."""

    MODE = 0, 3, Marker
    USES_GMEM = 4
    MARKER_MODE = 8, 8, MarkerMode
    SHADER_USES_RT = 9
    RT_WA_START = 10
    RT_WA_END = 11


class SET_MARKER_IFPC_0(Word):
    """The layout of MARKER_MODE 1, which only the kernel sends."""

    IFPC_MODE = 0, 0, IfpcMode
    MARKER_MODE = 8, 8, MarkerMode


class EXEC_CS_INDIRECT_3(Word):
    """Local sizes minus one; the group counts are three dwords in memory."""

    LOCALSIZEX = 2, 11
    LOCALSIZEY = 12, 21
    LOCALSIZEZ = 22, 31


class INDIRECT_BUFFER_2(Word):
    """Length in dwords."""

    IB_SIZE = 0, 19


class SET_AMBLE_2(Word):
    DWORDS = 0, 19
    TYPE = 20, 21, Amble


class SCRATCH_WRITE_0(Word):
    SCRATCH = 20, 22


class REG_TO_SCRATCH_0(Word):
    REG = 0, 17
    SCRATCH = 20, 22
    CNT = 24, 26
    SKIP_WAIT_FOR_ME = 27


class SCRATCH_TO_REG_0(Word):
    REG = 0, 17
    UNK18 = 18
    SCRATCH = 20, 22
    CNT = 24, 26


class SET_PSEUDO_REG__0(Word):
    PSEUDO_REG = 0, 10


class DRAW_PRED_ENABLE_GLOBAL_0(Word):
    ENABLE = 0


class DRAW_PRED_ENABLE_LOCAL_0(Word):
    ENABLE = 0


WORDS: dict[str, type[Word]] = {
    word.__name__: word
    for word in (
        EVENT_WRITE_0,
        WAIT_REG_MEM_0,
        COND_WRITE5_0,
        REG_TO_MEM_0,
        REG_TO_MEM_OFFSET_REG_0,
        REG_TO_MEM_OFFSET_REG_3,
        REG_TO_MEM_OFFSET_MEM_0,
        MEM_TO_REG_0,
        MEM_TO_MEM_0,
        REG_RMW_0,
        REG_WRITE_0,
        REG_TEST_0,
        COND_REG_EXEC_0,
        COND_REG_EXEC_THREAD_0,
        COND_REG_EXEC_PRED_TEST_1,
        COND_REG_EXEC_REG_COMPARE_1,
        COND_REG_EXEC_2,
        WAIT_TWO_REGS_0,
        WAIT_TWO_REGS_1,
        LOAD_STATE6_0,
        LOAD_STATE6_1,
        SET_MARKER_0,
        SET_MARKER_IFPC_0,
        EXEC_CS_INDIRECT_3,
        INDIRECT_BUFFER_2,
        SET_AMBLE_2,
        SCRATCH_WRITE_0,
        REG_TO_SCRATCH_0,
        SCRATCH_TO_REG_0,
        SET_PSEUDO_REG__0,
        DRAW_PRED_ENABLE_GLOBAL_0,
        DRAW_PRED_ENABLE_LOCAL_0,
    )
}


# ----- payload sizes ------------------------------------------------------------------------------

# Allowed payload sizes in dwords. None: the size varies (see PAYLOAD_STEP) or is not documented.
PAYLOAD: dict[Opcode, tuple[int, ...] | None] = {
    Opcode.NOP: None,
    Opcode.RECORD_PFP_TIMESTAMP: None,
    Opcode.WAIT_MEM_WRITES: (0,),
    Opcode.WAIT_FOR_ME: (0,),
    Opcode.WAIT_MEM_GTE: (4,),
    Opcode.DRAW_PRED_ENABLE_GLOBAL: (1,),
    Opcode.DRAW_PRED_ENABLE_LOCAL: (1,),
    Opcode.YIELD_ENABLE: (1,),
    Opcode.SKIP_IB2_ENABLE_GLOBAL: (1,),
    Opcode.REG_RMW: (3,),
    Opcode.SKIP_IB2_ENABLE_LOCAL: (1,),
    Opcode.WAIT_FOR_IDLE: (0,),
    Opcode.BLIT: None,
    Opcode.RUN_OPENCL: (1,),
    Opcode.LOAD_STATE6_GEOM: None,
    Opcode.EXEC_CS: (4,),
    Opcode.LOAD_STATE6_FRAG: None,
    Opcode.LOAD_STATE6: None,
    Opcode.REG_TEST: (1, 3),
    Opcode.INVALIDATE_STATE: (1,),
    Opcode.WAIT_REG_MEM: (6,),
    Opcode.MEM_WRITE: None,
    Opcode.REG_TO_MEM: (3,),
    Opcode.INDIRECT_BUFFER: (3,),
    Opcode.INTERRUPT: (1,),
    Opcode.EXEC_CS_INDIRECT: (4,),
    Opcode.MEM_TO_REG: (3,),
    Opcode.SET_DRAW_STATE: None,
    Opcode.COND_EXEC: (6,),
    Opcode.COND_WRITE5: (8,),
    Opcode.EVENT_WRITE: (1, 4),
    Opcode.COND_REG_EXEC: (2, 3),
    Opcode.ME_INIT: None,
    Opcode.REG_TO_SCRATCH: (1,),
    Opcode.SCRATCH_WRITE: None,
    Opcode.SCRATCH_TO_REG: (1,),
    Opcode.START_BIN: None,
    Opcode.END_BIN: None,
    Opcode.WAIT_REG_EQ: None,
    Opcode.SMMU_TABLE_UPDATE: (3, 4),
    Opcode.SET_AMBLE: (3,),
    Opcode.SET_PSEUDO_REG: None,
    Opcode.INDIRECT_BUFFER_CHAIN: (3,),
    Opcode.CONTEXT_REG_BUNCH: None,
    Opcode.SET_PROTECTED_MODE: (1,),
    Opcode.WHERE_AM_I: (2,),
    Opcode.SET_MODE: (1,),
    Opcode.SET_MARKER: (1,),
    Opcode.SET_SECURE_MODE: (1,),
    Opcode.PREEMPT_ENABLE_GLOBAL: (1,),
    Opcode.PREEMPT_ENABLE_LOCAL: (1,),
    Opcode.CONTEXT_SWITCH_YIELD: (4,),
    Opcode.PREEMPT_DISABLE: None,
    Opcode.REG_WRITE: (3,),
    Opcode.COMPUTE_CHECKPOINT: None,
    Opcode.WAIT_TWO_REGS: (3,),
    Opcode.REG_TO_MEM_OFFSET_REG: (4,),
    Opcode.MEM_TO_MEM: (5, 7, 9),
    Opcode.REG_TO_MEM_OFFSET_MEM: (5,),
    Opcode.MEMCPY: (5,),
    Opcode.REG_WR_NO_CTXT: None,
}

# Smallest payload and step of the packets whose size varies.
PAYLOAD_STEP: dict[Opcode, tuple[int, int]] = {
    Opcode.NOP: (0, 1),
    Opcode.LOAD_STATE6_GEOM: (3, 1),
    Opcode.LOAD_STATE6_FRAG: (3, 1),
    Opcode.LOAD_STATE6: (3, 1),
    Opcode.MEM_WRITE: (2, 1),
    Opcode.SET_DRAW_STATE: (3, 3),
    Opcode.SCRATCH_WRITE: (1, 1),
    Opcode.SET_PSEUDO_REG: (3, 3),
    Opcode.CONTEXT_REG_BUNCH: (2, 2),
    Opcode.REG_WR_NO_CTXT: (2, 1),
}


def payload_fits(opcode: Opcode, count: int) -> bool:
    """Return whether packet ``opcode`` may have ``count`` payload dwords; true if nothing is documented."""
    sizes = PAYLOAD[opcode]
    if sizes is not None:
        return count in sizes
    smallest, step = PAYLOAD_STEP.get(opcode, (0, 1))
    return count >= smallest and (count - smallest) % step == 0


# Names of the payload dwords, for decoders and the inspector; a dword with a Word of its own is named by it.
LAYOUT: dict[Opcode, tuple[str, ...]] = {
    Opcode.EVENT_WRITE: ("EVENT_WRITE_0", "ADDR_0_LO", "ADDR_0_HI", "VALUE"),
    Opcode.WAIT_REG_MEM: (
        "WAIT_REG_MEM_0",
        "POLL_ADDR_LO",
        "POLL_ADDR_HI",
        "REF",
        "MASK",
        "DELAY_LOOP_CYCLES",
    ),
    Opcode.WAIT_MEM_GTE: ("RESERVED", "POLL_ADDR_LO", "POLL_ADDR_HI", "REF"),
    Opcode.COND_WRITE5: (
        "COND_WRITE5_0",
        "POLL_ADDR_LO",
        "POLL_ADDR_HI",
        "REF",
        "MASK",
        "WRITE_ADDR_LO",
        "WRITE_ADDR_HI",
        "WRITE_DATA",
    ),
    Opcode.REG_TO_MEM: ("REG_TO_MEM_0", "DEST", "DEST_HI"),
    Opcode.REG_TO_MEM_OFFSET_REG: ("REG_TO_MEM_OFFSET_REG_0", "DEST", "DEST_HI", "REG_TO_MEM_OFFSET_REG_3"),
    Opcode.REG_TO_MEM_OFFSET_MEM: ("REG_TO_MEM_OFFSET_MEM_0", "DEST", "DEST_HI", "OFFSET_LO", "OFFSET_HI"),
    Opcode.MEM_TO_REG: ("MEM_TO_REG_0", "SRC", "SRC_HI"),
    Opcode.MEM_WRITE: ("ADDR_LO", "ADDR_HI"),
    Opcode.MEM_TO_MEM: (
        "MEM_TO_MEM_0",
        "DST_LO",
        "DST_HI",
        "SRC_A_LO",
        "SRC_A_HI",
        "SRC_B_LO",
        "SRC_B_HI",
        "SRC_C_LO",
        "SRC_C_HI",
    ),
    Opcode.MEMCPY: ("DWORDS", "SRC_LO", "SRC_HI", "DST_LO", "DST_HI"),
    Opcode.REG_RMW: ("REG_RMW_0", "SRC0", "SRC1"),
    Opcode.REG_WRITE: ("REG_WRITE_0", "REG", "VALUE"),
    Opcode.REG_TEST: ("REG_TEST_0", "PRED_MASK", "PRED_VAL"),
    Opcode.COND_EXEC: ("ADDR0_LO", "ADDR0_HI", "ADDR1_LO", "ADDR1_HI", "REF", "DWORDS"),
    Opcode.WAIT_TWO_REGS: ("WAIT_TWO_REGS_0", "WAIT_TWO_REGS_1", "REF"),
    Opcode.LOAD_STATE6: ("LOAD_STATE6_0", "LOAD_STATE6_1", "EXT_SRC_ADDR_HI"),
    Opcode.LOAD_STATE6_FRAG: ("LOAD_STATE6_0", "LOAD_STATE6_1", "EXT_SRC_ADDR_HI"),
    Opcode.LOAD_STATE6_GEOM: ("LOAD_STATE6_0", "LOAD_STATE6_1", "EXT_SRC_ADDR_HI"),
    Opcode.SET_MARKER: ("SET_MARKER_0",),
    Opcode.EXEC_CS: ("RESERVED", "NGROUPS_X", "NGROUPS_Y", "NGROUPS_Z"),
    Opcode.EXEC_CS_INDIRECT: ("RESERVED", "ADDR_LO", "ADDR_HI", "EXEC_CS_INDIRECT_3"),
    Opcode.RUN_OPENCL: ("RESERVED",),
    Opcode.INDIRECT_BUFFER: ("IB_BASE_LO", "IB_BASE_HI", "INDIRECT_BUFFER_2"),
    Opcode.SET_AMBLE: ("ADDR_LO", "ADDR_HI", "SET_AMBLE_2"),
    Opcode.SCRATCH_WRITE: ("SCRATCH_WRITE_0",),
    Opcode.REG_TO_SCRATCH: ("REG_TO_SCRATCH_0",),
    Opcode.SCRATCH_TO_REG: ("SCRATCH_TO_REG_0",),
}
