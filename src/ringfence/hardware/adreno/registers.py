"""Registers of the Adreno a6xx that compute work touches.

Names and fields are those of Mesa 25.2 (``src/freedreno/registers/adreno/a6xx.xml``) without ``A6XX_``; a
comment gives the older name where it changed. Offsets count dwords. 64-bit registers are pairs, low dword
first. A register that Mesa declares without fields has one field of ours: VALUE, or ADDRESS for a memory
address.
"""

from __future__ import annotations

from enum import IntEnum

from ringfence.hardware.fields import Register

UNUSED_REGISTER_ID = 0xFC  # r63.x in a register-id field, (num << 2) | component: "not used"


class ThreadMode(IntEnum):
    """``enum a3xx_threadmode``: one wave or several per shader processor."""

    MULTI = 0
    SINGLE = 1


class ThreadSize(IntEnum):
    """Fibers per wave (``enum a6xx_threadsize``)."""

    THREAD64 = 0
    THREAD128 = 1


class ConstantRamMode(IntEnum):
    """Size of the constant file in vec4 (``enum a6xx_const_ram_mode``)."""

    CONSTLEN_128 = 0
    CONSTLEN_192 = 1
    CONSTLEN_256 = 2
    CONSTLEN_512 = 3


class DescriptorSize(IntEnum):
    """Size of the descriptors that a bindless base points to (``enum a6xx_bindless_descriptor_size``)."""

    BINDLESS_DESCRIPTOR_16B = 1
    BINDLESS_DESCRIPTOR_64B = 3


class IsamMode(IntEnum):
    """What an integer texel fetch outside the image returns (``enum a6xx_isam_mode``): GL gives zeros."""

    ISAMMODE_CL = 1
    ISAMMODE_GL = 2


class CoordRound(IntEnum):
    """``enum a6xx_coord_round``."""

    COORD_TRUNCATE = 0
    COORD_ROUND_NEAREST_EVEN = 1


class NearestMode(IntEnum):
    """``enum a6xx_nearest_mode``."""

    ROUND_CLAMP_TRUNCATE = 0
    CLAMP_ROUND_TRUNCATE = 1


# ----- command processor ------------------------------------------------------------------------


class CP_ALWAYS_ON_COUNTER(Register, offset=0x0980, width=64):
    """Counts at 19.2 MHz, shared by all contexts."""

    VALUE = 0, 63


class CP_SCRATCH(Register, offset=0x0883, count=8):
    """Scratch registers of the packets SCRATCH_WRITE, REG_TO_SCRATCH and SCRATCH_TO_REG."""

    VALUE = 0, 31


# ----- shader processor: the program ------------------------------------------------------------


class SP_CS_CNTL_0(Register, offset=0xA9B0):  # SP_CS_CTRL_REG0
    """Footprints are the highest register plus one, in vec4."""

    THREADMODE = 0, 0, ThreadMode
    HALFREGFOOTPRINT = 1, 6
    FULLREGFOOTPRINT = 7, 12
    UNK13 = 13
    BRANCHSTACK = 14, 19
    THREADSIZE = 20, 20, ThreadSize
    UNK21 = 21
    UNK22 = 22
    EARLYPREAMBLE = 23
    MERGEDREGS = 31


class SP_CS_CNTL_1(Register, offset=0xA9B1):  # SP_CS_UNKNOWN_A9B1
    """SHARED_SIZE: local memory in KiB, minus one; 0 means all 32 KiB. CONSTLEN_512 exists from a7xx on."""

    SHARED_SIZE = 0, 4
    CONSTANTRAMMODE = 5, 6, ConstantRamMode


class SP_CS_BOOLEAN_CF_MASK(Register, offset=0xA9B2):  # SP_CS_BRANCH_COND
    VALUE = 0, 31


class SP_CS_PROGRAM_COUNTER_OFFSET(Register, offset=0xA9B3):  # SP_CS_OBJ_FIRST_EXEC_OFFSET
    """Entry point relative to SP_CS_BASE, in instructions.

    Mesa writes 0 and does not say in what unit the offset is. Programs of Qualcomm's OpenCL compiler have
    functions before the kernel, and models of the chip that run them (test/mockgpu/qcom of tinygrad branches)
    count instructions.
    """

    VALUE = 0, 31


class SP_CS_BASE(Register, offset=0xA9B4, width=64):  # SP_CS_OBJ_START
    """Address of the machine code."""

    ADDRESS = 0, 63


class SP_CS_PVT_MEM_PARAM(Register, offset=0xA9B6):
    """MEMSIZEPERITEM: private bytes per fiber, in units of 512."""

    MEMSIZEPERITEM = 0, 7
    HWSTACKSIZEPERTHREAD = 24, 31


class SP_CS_PVT_MEM_BASE(Register, offset=0xA9B7, width=64):
    """Address of the private memory of all fibers."""

    ADDRESS = 0, 63


class SP_CS_PVT_MEM_SIZE(Register, offset=0xA9B9):
    """TOTALPVTMEMSIZE: private bytes per shader processor, in units of 4096."""

    TOTALPVTMEMSIZE = 0, 17
    PERWAVEMEMLAYOUT = 31


class SP_CS_TSIZE(Register, offset=0xA9BA):  # SP_CS_TEX_COUNT
    """Upper bound of the texture count."""

    VALUE = 0, 7


class SP_CS_CONFIG(Register, offset=0xA9BB):
    BINDLESS_TEX = 0
    BINDLESS_SAMP = 1
    BINDLESS_UAV = 2
    BINDLESS_UBO = 3
    ENABLED = 8
    NTEX = 9, 16
    NSAMP = 17, 21
    NUAV = 22, 28


class SP_CS_INSTR_SIZE(Register, offset=0xA9BC):  # SP_CS_INSTRLEN
    """Code size in units of 16 instructions (128 bytes)."""

    VALUE = 0, 27


class SP_CS_PVT_MEM_STACK_OFFSET(Register, offset=0xA9BD):  # SP_CS_PVT_MEM_HW_STACK_OFFSET
    """OFFSET: where the hardware stack starts, in units of 2048 bytes."""

    # The hardware calls this field OFFSET, as Register calls the place of the register; both are kept, since
    # fields live in FIELDS.
    OFFSET = 0, 18  # type: ignore[assignment]


class SP_CS_WIE_CNTL_0(Register, offset=0xA9C2):
    """Copy of SP_CS_CONST_CONFIG_0 that chips with a second compute pipe (LPAC: a660, a643) need."""

    WGIDCONSTID = 0, 7
    WGSIZECONSTID = 8, 15
    WGOFFSETCONSTID = 16, 23
    LOCALIDREGID = 24, 31


class SP_CS_WIE_CNTL_1(Register, offset=0xA9C3):
    """Copy of SP_CS_WGE_CNTL that chips with a second compute pipe (LPAC: a660, a643) need."""

    LINEARLOCALIDREGID = 0, 7
    SINGLE_SP_CORE = 8
    THREADSIZE = 9, 9, ThreadSize
    THREADSIZE_SCALAR = 10


class SP_CS_SAMPLER_BASE(Register, offset=0xA9E2, width=64):  # SP_CS_TEX_SAMP
    ADDRESS = 0, 63


class SP_CS_TEXMEMOBJ_BASE(Register, offset=0xA9E6, width=64):  # SP_CS_TEX_CONST
    ADDRESS = 0, 63


class SP_CS_BINDLESS_BASE(Register, offset=0xA9E8, count=5, stride=2, width=64):
    """ADDR holds address bits 2 and up."""

    DESC_SIZE = 0, 1, DescriptorSize
    ADDR = 2, 63


class SP_CS_UAV_BASE(Register, offset=0xA9F2, width=64):  # SP_CS_IBO
    ADDRESS = 0, 63


class SP_CS_USIZE(Register, offset=0xAA00):  # SP_CS_IBO_COUNT
    """Upper bound of the UAV count."""

    VALUE = 0, 6


# ----- shader processor and texture pipe: modes -------------------------------------------------


class SP_MODE_CNTL(Register, offset=0xAB00):  # SP_MODE_CONTROL
    """CONSTANT_DEMOTION_ENABLE: a half constant operand reads a 32-bit constant and converts it."""

    CONSTANT_DEMOTION_ENABLE = 0
    ISAMMODE = 1, 2, IsamMode
    SHARED_CONSTS_ENABLE = 3


class SP_NC_MODE_CNTL_2(Register, offset=0xAE04):  # SP_FLOAT_CNTL
    F16_NO_INF = 3


class SP_PERFCTR_SHADER_MASK(Register, offset=0xAE0F):  # SP_PERFCTR_ENABLE
    VS = 0
    HS = 1
    DS = 2
    GS = 3
    FS = 4
    CS = 5


class TPL1_CS_BORDER_COLOR_BASE(Register, offset=0xB180, width=64):  # SP_PS_TP_BORDER_COLOR_BASE_ADDR
    """Address of the border colour entries."""

    ADDRESS = 0, 63


class TPL1_MODE_CNTL(Register, offset=0xB309):  # SP_TP_MODE_CNTL
    ISAMMODE = 0, 1, IsamMode
    TEXCOORDROUNDMODE = 2, 2, CoordRound
    NEARESTMIPSNAP = 5, 5, NearestMode
    DESTDATATYPEOVERRIDE = 7


class TPL1_DBG_ECO_CNTL(Register, offset=0xB600):
    VALUE = 0, 31


# ----- high-level sequencer ---------------------------------------------------------------------


class SP_REG_PROG_ID_0(Register, offset=0xB983):  # HLSQ_CONTROL_2_REG
    """Register ids of fragment inputs; compute work writes "not used" to all of SP_REG_PROG_ID_*."""

    FACEREGID = 0, 7
    SAMPLEID = 8, 15
    SAMPLEMASK = 16, 23
    CENTERRHW = 24, 31


class SP_REG_PROG_ID_1(Register, offset=0xB984):  # HLSQ_CONTROL_3_REG
    IJ_PERSP_PIXEL = 0, 7
    IJ_LINEAR_PIXEL = 8, 15
    IJ_PERSP_CENTROID = 16, 23
    IJ_LINEAR_CENTROID = 24, 31


class SP_REG_PROG_ID_2(Register, offset=0xB985):  # HLSQ_CONTROL_4_REG
    IJ_PERSP_SAMPLE = 0, 7
    IJ_LINEAR_SAMPLE = 8, 15
    XYCOORDREGID = 16, 23
    ZWCOORDREGID = 24, 31


class SP_REG_PROG_ID_3(Register, offset=0xB986):  # HLSQ_CONTROL_5_REG
    LINELENGTHREGID = 0, 7
    FOVEATIONQUALITYREGID = 8, 15


class SP_CS_CONST_CONFIG(Register, offset=0xB987):  # HLSQ_CS_CNTL
    """CONSTLEN counts units of 4 vec4."""

    CONSTLEN = 0, 7
    ENABLED = 8
    READ_IMM_SHARED_CONSTS = 9


class SP_CS_NDRANGE_0(Register, offset=0xB990):  # HLSQ_CS_NDRANGE_0
    """Number of dimensions, and local sizes minus one."""

    KERNELDIM = 0, 1
    LOCALSIZEX = 2, 11
    LOCALSIZEY = 12, 21
    LOCALSIZEZ = 22, 31


class SP_CS_NDRANGE_1(Register, offset=0xB991):
    """Global size in work-items."""

    GLOBALSIZE_X = 0, 31


class SP_CS_NDRANGE_2(Register, offset=0xB992):
    """Global offset in work-items."""

    GLOBALOFF_X = 0, 31


class SP_CS_NDRANGE_3(Register, offset=0xB993):
    GLOBALSIZE_Y = 0, 31


class SP_CS_NDRANGE_4(Register, offset=0xB994):
    GLOBALOFF_Y = 0, 31


class SP_CS_NDRANGE_5(Register, offset=0xB995):
    GLOBALSIZE_Z = 0, 31


class SP_CS_NDRANGE_6(Register, offset=0xB996):
    GLOBALOFF_Z = 0, 31


class SP_CS_CONST_CONFIG_0(Register, offset=0xB997):  # HLSQ_CS_CNTL_0
    """Each field names the first of three scalar registers (x, y, z) that a wave finds filled in.

    They hold the work-group id, the local size, the offset of the work-group in work-items (all three in
    shared registers) and the local id.
    """

    WGIDCONSTID = 0, 7
    WGSIZECONSTID = 8, 15
    WGOFFSETCONSTID = 16, 23
    LOCALIDREGID = 24, 31


class SP_CS_WGE_CNTL(Register, offset=0xB998):  # HLSQ_CS_CNTL_1
    LINEARLOCALIDREGID = 0, 7
    SINGLE_SP_CORE = 8
    THREADSIZE = 9, 9, ThreadSize
    THREADSIZE_SCALAR = 10


class SP_CS_KERNEL_GROUP_X(Register, offset=0xB999):  # HLSQ_CS_KERNEL_GROUP_X
    VALUE = 0, 31


class SP_CS_KERNEL_GROUP_Y(Register, offset=0xB99A):  # HLSQ_CS_KERNEL_GROUP_Y
    VALUE = 0, 31


class SP_CS_KERNEL_GROUP_Z(Register, offset=0xB99B):  # HLSQ_CS_KERNEL_GROUP_Z
    VALUE = 0, 31


class HLSQ_CS_BINDLESS_BASE(Register, offset=0xB9C0, count=5, stride=2, width=64):
    """Copy of SP_CS_BINDLESS_BASE."""

    DESC_SIZE = 0, 1, DescriptorSize
    ADDR = 2, 63


class HLSQ_CS_CTRL_REG1(Register, offset=0xB9D0):
    """Copy of SP_CS_CNTL_1 that chips with a second compute pipe (LPAC: a660, a643) need."""

    SHARED_SIZE = 0, 4
    CONSTANTRAMMODE = 5, 6, ConstantRamMode


class SP_UPDATE_CNTL(Register, offset=0xBB08):  # HLSQ_INVALIDATE_CMD
    """Invalidates state; cancels pending LOAD_STATE6 loads of it, so it is written before they are sent."""

    VS_STATE = 0
    HS_STATE = 1
    DS_STATE = 2
    GS_STATE = 3
    FS_STATE = 4
    CS_STATE = 5
    CS_UAV = 6
    GFX_UAV = 7
    GFX_SHARED_CONST = 8
    CS_BINDLESS = 9, 13
    GFX_BINDLESS = 14, 18
    CS_SHARED_CONST = 19


DECLARED: tuple[type[Register], ...] = (
    CP_ALWAYS_ON_COUNTER,
    CP_SCRATCH,
    SP_CS_CNTL_0,
    SP_CS_CNTL_1,
    SP_CS_BOOLEAN_CF_MASK,
    SP_CS_PROGRAM_COUNTER_OFFSET,
    SP_CS_BASE,
    SP_CS_PVT_MEM_PARAM,
    SP_CS_PVT_MEM_BASE,
    SP_CS_PVT_MEM_SIZE,
    SP_CS_TSIZE,
    SP_CS_CONFIG,
    SP_CS_INSTR_SIZE,
    SP_CS_PVT_MEM_STACK_OFFSET,
    SP_CS_WIE_CNTL_0,
    SP_CS_WIE_CNTL_1,
    SP_CS_SAMPLER_BASE,
    SP_CS_TEXMEMOBJ_BASE,
    SP_CS_BINDLESS_BASE,
    SP_CS_UAV_BASE,
    SP_CS_USIZE,
    SP_MODE_CNTL,
    SP_NC_MODE_CNTL_2,
    SP_PERFCTR_SHADER_MASK,
    TPL1_CS_BORDER_COLOR_BASE,
    TPL1_MODE_CNTL,
    TPL1_DBG_ECO_CNTL,
    SP_REG_PROG_ID_0,
    SP_REG_PROG_ID_1,
    SP_REG_PROG_ID_2,
    SP_REG_PROG_ID_3,
    SP_CS_CONST_CONFIG,
    SP_CS_NDRANGE_0,
    SP_CS_NDRANGE_1,
    SP_CS_NDRANGE_2,
    SP_CS_NDRANGE_3,
    SP_CS_NDRANGE_4,
    SP_CS_NDRANGE_5,
    SP_CS_NDRANGE_6,
    SP_CS_CONST_CONFIG_0,
    SP_CS_WGE_CNTL,
    SP_CS_KERNEL_GROUP_X,
    SP_CS_KERNEL_GROUP_Y,
    SP_CS_KERNEL_GROUP_Z,
    HLSQ_CS_BINDLESS_BASE,
    HLSQ_CS_CTRL_REG1,
    SP_UPDATE_CNTL,
)

# Alignment in bytes that the hardware expects of the addresses in these registers.
ALIGNMENT: dict[type[Register], int] = {
    SP_CS_BASE: 32,
    SP_CS_PVT_MEM_BASE: 32,
    SP_CS_SAMPLER_BASE: 16,
    SP_CS_TEXMEMOBJ_BASE: 64,
    SP_CS_UAV_BASE: 16,
    TPL1_CS_BORDER_COLOR_BASE: 128,
}

REGISTERS: dict[int, type[Register]] = {
    offset: register for register in DECLARED for offset in register.offsets()
}


def register_name(offset: int) -> str:
    """Return the name of the register at dword ``offset``, such as ``NAME``, ``NAME_LO`` or ``NAME[2]_HI``.

    An unknown offset is named by its number.
    """
    register = REGISTERS.get(offset)
    if register is None:
        return f"register {offset:#06x}"
    index, dword = divmod(offset - register.OFFSET, register.STRIDE)
    suffix = f"[{index}]" if register.COUNT > 1 else ""
    if register.WIDTH_BITS == 64:
        suffix += ("_LO", "_HI")[dword]
    return register.__name__ + suffix


def describe_register(offset: int, value: int) -> str:
    """Return ``NAME: FIELD=value ...`` for dword ``value`` of the register at ``offset``.

    The dwords of a 64-bit register are shown as plain numbers, since a field may span both.
    """
    register = REGISTERS.get(offset)
    if register is None or register.WIDTH_BITS == 64:
        return f"{register_name(offset)}: {value:#x}"
    return f"{register_name(offset)}: {register.describe(value) or '0'}"
