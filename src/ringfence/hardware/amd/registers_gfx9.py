"""Registers of gfx9.4.3 (gfx942, gfx950) that compute work touches.

Names and fields are those of the kernel's headers ``gc_9_4_3_*.h``, ``nbio_7_9_0_*.h``, without ``reg``.
Offsets are absolute dword indices: the segment of the IP block plus the offset in it.
"""

from __future__ import annotations

from ringfence.hardware.fields import Register

# ----- host data path: WAIT_REG_MEM ----------------------------------------------------------------


class BIF_BX_PF0_GPU_HDP_FLUSH_REQ(Register, offset=0x0E26):
    """Each engine has a bit: writing it flushes what the CPU wrote to VRAM through the BAR."""

    CP0 = 0
    CP1 = 1
    CP2 = 2
    CP3 = 3
    CP4 = 4
    CP5 = 5
    CP6 = 6
    CP7 = 7
    CP8 = 8
    CP9 = 9
    SDMA0 = 10
    SDMA1 = 11
    RSVD_ENG0 = 12
    RSVD_ENG1 = 13
    RSVD_ENG2 = 14
    RSVD_ENG3 = 15
    RSVD_ENG4 = 16
    RSVD_ENG5 = 17
    RSVD_ENG6 = 18
    RSVD_ENG7 = 19
    RSVD_ENG8 = 20
    RSVD_ENG9 = 21
    RSVD_ENG10 = 22
    RSVD_ENG11 = 23
    RSVD_ENG12 = 24
    RSVD_ENG13 = 25
    RSVD_ENG14 = 26
    RSVD_ENG15 = 27
    RSVD_ENG16 = 28
    RSVD_ENG17 = 29
    RSVD_ENG18 = 30
    RSVD_ENG19 = 31


class BIF_BX_PF0_GPU_HDP_FLUSH_DONE(Register, offset=0x0E27):
    """The bit of an engine is set when its flush is done."""

    CP0 = 0
    CP1 = 1
    CP2 = 2
    CP3 = 3
    CP4 = 4
    CP5 = 5
    CP6 = 6
    CP7 = 7
    CP8 = 8
    CP9 = 9
    SDMA0 = 10
    SDMA1 = 11
    RSVD_ENG0 = 12
    RSVD_ENG1 = 13
    RSVD_ENG2 = 14
    RSVD_ENG3 = 15
    RSVD_ENG4 = 16
    RSVD_ENG5 = 17
    RSVD_ENG6 = 18
    RSVD_ENG7 = 19
    RSVD_ENG8 = 20
    RSVD_ENG9 = 21
    RSVD_ENG10 = 22
    RSVD_ENG11 = 23
    RSVD_ENG12 = 24
    RSVD_ENG13 = 25
    RSVD_ENG14 = 26
    RSVD_ENG15 = 27
    RSVD_ENG16 = 28
    RSVD_ENG17 = 29
    RSVD_ENG18 = 30
    RSVD_ENG19 = 31


# ----- owned by the kernel -------------------------------------------------------------------------


class SH_MEM_BASES(Register, offset=0x230A):
    """Bits 63..48 of the apertures; the kernel owns it."""

    PRIVATE_BASE = 0, 15
    SHARED_BASE = 16, 31


class SH_MEM_CONFIG(Register, offset=0x230D):
    ADDRESS_MODE = 0
    ALIGNMENT_MODE = 3, 4
    F8_MODE = 8
    PRECISION_MODE = 9
    RETRY_DISABLE = 12
    PRIVATE_NV = 13


# ----- shader state: SET_SH_REG --------------------------------------------------------------------


class COMPUTE_DISPATCH_INITIATOR(Register, offset=0x2E00):
    """Written by the dispatch packets.

    USE_THREAD_DIMENSIONS: the dimensions count work-items, not groups; PARTIAL_TG_EN: the last groups may be
    smaller.
    """

    COMPUTE_SHADER_EN = 0
    PARTIAL_TG_EN = 1
    FORCE_START_AT_000 = 2
    ORDERED_APPEND_ENBL = 3
    ORDERED_APPEND_MODE = 4
    USE_THREAD_DIMENSIONS = 5
    ORDER_MODE = 6
    SCALAR_L1_INV_VOL = 10
    VECTOR_L1_INV_VOL = 11
    RESTORE = 14


class COMPUTE_DIM_X(Register, offset=0x2E01):
    """Written by the dispatch packets."""

    SIZE = 0, 31


class COMPUTE_DIM_Y(Register, offset=0x2E02):
    SIZE = 0, 31


class COMPUTE_DIM_Z(Register, offset=0x2E03):
    SIZE = 0, 31


class COMPUTE_START_X(Register, offset=0x2E04):
    """The first group."""

    START = 0, 31


class COMPUTE_START_Y(Register, offset=0x2E05):
    START = 0, 31


class COMPUTE_START_Z(Register, offset=0x2E06):
    START = 0, 31


class COMPUTE_NUM_THREAD_X(Register, offset=0x2E07):
    """Work-items of a group, not minus one; the second field is the size of the last group."""

    NUM_THREAD_FULL = 0, 15
    NUM_THREAD_PARTIAL = 16, 31


class COMPUTE_NUM_THREAD_Y(Register, offset=0x2E08):
    NUM_THREAD_FULL = 0, 15
    NUM_THREAD_PARTIAL = 16, 31


class COMPUTE_NUM_THREAD_Z(Register, offset=0x2E09):
    NUM_THREAD_FULL = 0, 15
    NUM_THREAD_PARTIAL = 16, 31


class COMPUTE_PIPELINESTAT_ENABLE(Register, offset=0x2E0A):
    PIPELINESTAT_ENABLE = 0


class COMPUTE_PERFCOUNT_ENABLE(Register, offset=0x2E0B):
    PERFCOUNT_ENABLE = 0


class COMPUTE_PGM_LO(Register, offset=0x2E0C):
    """Address of the code >> 8."""

    DATA = 0, 31


class COMPUTE_PGM_HI(Register, offset=0x2E0D):
    DATA = 0, 7


class COMPUTE_DISPATCH_PKT_ADDR_LO(Register, offset=0x2E0E):
    DATA = 0, 31


class COMPUTE_DISPATCH_PKT_ADDR_HI(Register, offset=0x2E0F):
    DATA = 0, 7


class COMPUTE_DISPATCH_SCRATCH_BASE_LO(Register, offset=0x2E10):
    """Address of the scratch memory >> 8."""

    DATA = 0, 31


class COMPUTE_DISPATCH_SCRATCH_BASE_HI(Register, offset=0x2E11):
    DATA = 0, 7


class COMPUTE_PGM_RSRC1(Register, offset=0x2E12):
    VGPRS = 0, 5
    SGPRS = 6, 9
    PRIORITY = 10, 11
    FLOAT_MODE = 12, 19
    PRIV = 20
    DX10_CLAMP = 21
    DEBUG_MODE = 22
    IEEE_MODE = 23
    BULKY = 24
    CDBG_USER = 25
    FP16_OVFL = 26


class COMPUTE_PGM_RSRC2(Register, offset=0x2E13):
    """LDS_SIZE in units of 512 bytes on gfx942.

    On gfx950 LLVM counts in 1280 bytes, another runtime in 512: unverified.
    """

    SCRATCH_EN = 0
    USER_SGPR = 1, 5
    TRAP_PRESENT = 6
    TGID_X_EN = 7
    TGID_Y_EN = 8
    TGID_Z_EN = 9
    TG_SIZE_EN = 10
    TIDIG_COMP_CNT = 11, 12
    EXCP_EN_MSB = 13, 14
    LDS_SIZE = 15, 23
    EXCP_EN = 24, 30
    SKIP_USGPR0 = 31


class COMPUTE_VMID(Register, offset=0x2E14):
    DATA = 0, 3


class COMPUTE_RESOURCE_LIMITS(Register, offset=0x2E15):
    """0: no limits."""

    WAVES_PER_SH = 0, 9
    TG_PER_CU = 12, 15
    LOCK_THRESHOLD = 16, 21
    SIMD_DEST_CNTL = 22
    FORCE_SIMD_DIST = 23
    CU_GROUP_COUNT = 24, 26
    SIMD_DISABLE = 27, 30


class COMPUTE_STATIC_THREAD_MGMT_SE0(Register, offset=0x2E16):
    """Which compute units may be used; the kernel owns it."""

    SH0_CU_EN = 0, 15
    SH1_CU_EN = 16, 31


class COMPUTE_STATIC_THREAD_MGMT_SE1(Register, offset=0x2E17):
    SH0_CU_EN = 0, 15
    SH1_CU_EN = 16, 31


class COMPUTE_TMPRING_SIZE(Register, offset=0x2E18):
    """WAVES of an XCC, WAVESIZE in units of 1024 bytes."""

    WAVES = 0, 11
    WAVESIZE = 12, 24


class COMPUTE_STATIC_THREAD_MGMT_SE2(Register, offset=0x2E19):
    SH0_CU_EN = 0, 15
    SH1_CU_EN = 16, 31


class COMPUTE_STATIC_THREAD_MGMT_SE3(Register, offset=0x2E1A):
    SH0_CU_EN = 0, 15
    SH1_CU_EN = 16, 31


class COMPUTE_RESTART_X(Register, offset=0x2E1B):
    """Where a preempted dispatch goes on."""

    RESTART = 0, 31


class COMPUTE_RESTART_Y(Register, offset=0x2E1C):
    RESTART = 0, 31


class COMPUTE_RESTART_Z(Register, offset=0x2E1D):
    RESTART = 0, 31


class COMPUTE_THREAD_TRACE_ENABLE(Register, offset=0x2E1E):
    THREAD_TRACE_ENABLE = 0


class COMPUTE_MISC_RESERVED(Register, offset=0x2E1F):
    SEND_SEID = 0, 1
    WAVE_ID_BASE = 5, 16


class COMPUTE_DISPATCH_ID(Register, offset=0x2E20):
    DISPATCH_ID = 0, 31


class COMPUTE_THREADGROUP_ID(Register, offset=0x2E21):
    THREADGROUP_ID = 0, 31


class COMPUTE_RELAUNCH(Register, offset=0x2E22):
    PAYLOAD = 0, 29
    IS_EVENT = 30
    IS_STATE = 31


class COMPUTE_WAVE_RESTORE_ADDR_LO(Register, offset=0x2E23):
    ADDR = 0, 31


class COMPUTE_WAVE_RESTORE_ADDR_HI(Register, offset=0x2E24):
    ADDR = 0, 15


class COMPUTE_TG_CHUNK_SIZE(Register, offset=0x2E27):
    TG_CHUNK_SIZE = 0, 15


class COMPUTE_SHADER_CHKSUM(Register, offset=0x2E2C):
    CHECKSUM = 0, 31


class COMPUTE_PGM_RSRC3(Register, offset=0x2E2D):
    ACCUM_OFFSET = 0, 5
    TRAP_ON_START = 10
    TRAP_ON_END = 11
    TG_SPLIT = 16


class COMPUTE_USER_DATA(Register, offset=0x2E40, count=16):
    """The user SGPRs at the start of a wave."""

    DATA = 0, 31


class COMPUTE_DISPATCH_END(Register, offset=0x2E7E):
    DATA = 0, 31


class COMPUTE_NOWHERE(Register, offset=0x2E7F):
    DATA = 0, 31


# ----- user configuration: SET_UCONFIG_REG ---------------------------------------------------------


class GRBM_GFX_INDEX(Register, offset=0xC200):
    """Which engine, array and instance the following register accesses reach."""

    INSTANCE_INDEX = 0, 7
    SH_INDEX = 8, 15
    SE_INDEX = 16, 23
    SH_BROADCAST_WRITES = 29
    INSTANCE_BROADCAST_WRITES = 30
    SE_BROADCAST_WRITES = 31


class SQ_THREAD_TRACE_USERDATA(Register, offset=0xC340, count=4):
    DATA = 0, 31


DECLARED: tuple[type[Register], ...] = (
    BIF_BX_PF0_GPU_HDP_FLUSH_REQ,
    BIF_BX_PF0_GPU_HDP_FLUSH_DONE,
    SH_MEM_BASES,
    SH_MEM_CONFIG,
    COMPUTE_DISPATCH_INITIATOR,
    COMPUTE_DIM_X,
    COMPUTE_DIM_Y,
    COMPUTE_DIM_Z,
    COMPUTE_START_X,
    COMPUTE_START_Y,
    COMPUTE_START_Z,
    COMPUTE_NUM_THREAD_X,
    COMPUTE_NUM_THREAD_Y,
    COMPUTE_NUM_THREAD_Z,
    COMPUTE_PIPELINESTAT_ENABLE,
    COMPUTE_PERFCOUNT_ENABLE,
    COMPUTE_PGM_LO,
    COMPUTE_PGM_HI,
    COMPUTE_DISPATCH_PKT_ADDR_LO,
    COMPUTE_DISPATCH_PKT_ADDR_HI,
    COMPUTE_DISPATCH_SCRATCH_BASE_LO,
    COMPUTE_DISPATCH_SCRATCH_BASE_HI,
    COMPUTE_PGM_RSRC1,
    COMPUTE_PGM_RSRC2,
    COMPUTE_VMID,
    COMPUTE_RESOURCE_LIMITS,
    COMPUTE_STATIC_THREAD_MGMT_SE0,
    COMPUTE_STATIC_THREAD_MGMT_SE1,
    COMPUTE_TMPRING_SIZE,
    COMPUTE_STATIC_THREAD_MGMT_SE2,
    COMPUTE_STATIC_THREAD_MGMT_SE3,
    COMPUTE_RESTART_X,
    COMPUTE_RESTART_Y,
    COMPUTE_RESTART_Z,
    COMPUTE_THREAD_TRACE_ENABLE,
    COMPUTE_MISC_RESERVED,
    COMPUTE_DISPATCH_ID,
    COMPUTE_THREADGROUP_ID,
    COMPUTE_RELAUNCH,
    COMPUTE_WAVE_RESTORE_ADDR_LO,
    COMPUTE_WAVE_RESTORE_ADDR_HI,
    COMPUTE_TG_CHUNK_SIZE,
    COMPUTE_SHADER_CHKSUM,
    COMPUTE_PGM_RSRC3,
    COMPUTE_USER_DATA,
    COMPUTE_DISPATCH_END,
    COMPUTE_NOWHERE,
    GRBM_GFX_INDEX,
    SQ_THREAD_TRACE_USERDATA,
)
