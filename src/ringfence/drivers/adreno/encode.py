"""Commands of an a6xx compute queue: how launches, barriers, signals and time stamps become packets.

The order of a dispatch is that of tinygrad's ``ops_qcom.py`` (``QCOMComputeQueue.exec``), which runs on an
a630; values and units are those of Mesa's ``a6xx.xml``. Where the two differ, :data:`UNLIKE_TINYGRAD` says
what is written here and why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ringfence.hardware.adreno import registers as reg
from ringfence.hardware.adreno.chips import Chip
from ringfence.hardware.adreno.descriptors import SAMPLER_BYTES, TEXTURE_BYTES
from ringfence.hardware.adreno.packets import (
    EVENT_WRITE_0,
    LOAD_STATE6_0,
    REG_TO_MEM_0,
    SET_MARKER_0,
    STATE_UNIT_BYTES,
    WAIT_REG_MEM_0,
    Event,
    Function,
    Marker,
    Opcode,
    Poll,
    StateBlock,
    StateSource,
    StateType,
    type4_header,
    type7_header,
)
from ringfence.hardware.adreno.program import INSTRUCTION_UNIT, AdrenoProgram
from ringfence.hardware.fields import Register
from ringfence.runtime.commands import ALL_BITS, Absolute, Dwords, Local, Payload
from ringfence.runtime.device import Geometry
from ringfence.runtime.program import LaunchPlaces

UNLIKE_TINYGRAD: dict[str, str] = {
    "SP_CS_CONST_CONFIG": (
        "CONSTLEN counts units of 4 vec4 (a6xx.xml: shr 2). tinygrad writes the number of vec4, 256, whose "
        "only bit falls on ENABLED, so that CONSTLEN is 0"
    ),
    "SP_CS_PVT_MEM_STACK_OFFSET": (
        "OFFSET counts units of 2048 bytes (a6xx.xml: shr 11) of the private memory of one shader processor. "
        "tinygrad writes bytes, which does not fit the 19 bits of the field from 512 bytes per thread on, "
        "and 4096 without any"
    ),
    "SP_CS_CONST_CONFIG_0": (
        "WGSIZECONSTID names a register, and Mesa writes 'unused' there. tinygrad writes the index of the "
        "constant that holds the local size, which from c48.x on would name the register of the work-group id"
    ),
}

CONSTANT_VEC4 = 256
CONSTANT_BYTES = CONSTANT_VEC4 * 16
VEC4_PER_CONSTLEN = 4
PRIVATE_UNIT = 512
PRIVATE_TOTAL_UNIT = 4096
STACK_OFFSET_UNIT = 2048
SHARED_UNIT = 1024
MAX_PRELOADED_TEXTURES = 16
# Upper bounds that tinygrad writes whatever the program has; Mesa writes the counts.
TEXTURE_BOUND = 0x80
UAV_BOUND = 0x40
KERNEL_DIMENSIONS = 3
POLL_DELAY_CYCLES = 32
UNUSED = reg.UNUSED_REGISTER_ID
_ALL_UNUSED = UNUSED * 0x01010101  # four register ids in one dword


class Commands(Dwords):
    """Packets and register writes."""

    def packet(self, opcode: Opcode, *payload: Payload) -> int:
        """Append a type-7 packet; return the position of its first payload dword."""
        header = len(self.words)
        self.words.append(0)
        for item in payload:
            self.append(item)
        self.words[header] = type7_header(opcode, len(self.words) - header - 1)
        return header + 1

    def write(self, *values: tuple[type[Register], Payload]) -> int:
        """Append a write of consecutive registers; return the position of the first value."""
        header = len(self.words)
        self.words.append(0)
        first = values[0][0].OFFSET
        for register, value in values:
            assert first + len(self.words) - header - 1 == register.OFFSET, f"{register.__name__} is not next"
            self.append(Absolute(value) if register.WIDTH_BITS == 64 and isinstance(value, int) else value)
        self.words[header] = type4_header(first, len(self.words) - header - 1)
        return header + 1


# ----- synchronisation ----------------------------------------------------------------------------


def flush_event(commands: Commands, address: Payload, value: int = 0) -> int:
    """Write dirty cache lines back, then store ``value``; return the position of the address."""
    event = EVENT_WRITE_0.pack(EVENT=Event.CACHE_FLUSH_TS)
    return commands.packet(Opcode.EVENT_WRITE, event, address, value) + 1


def barrier(commands: Commands, scratch: int) -> None:
    """Write back, invalidate and wait: later work sees what earlier work, the CPU and the CP wrote."""
    flush_event(commands, Absolute(scratch))
    commands.packet(Opcode.EVENT_WRITE, EVENT_WRITE_0.pack(EVENT=Event.CACHE_INVALIDATE))
    commands.packet(Opcode.WAIT_MEM_WRITES)
    commands.packet(Opcode.WAIT_FOR_IDLE)


def signal(commands: Commands, scratch: int) -> int:
    """Finish everything before, then store a value; return the position of address and value.

    The second flush makes sure that the first store has left the cache before anything after it.
    """
    commands.packet(Opcode.WAIT_FOR_IDLE)
    position = flush_event(commands, Absolute(0))
    flush_event(commands, Absolute(scratch))
    return position


def wait(commands: Commands) -> int:
    """Poll memory until it is at least a value (unsigned); return the position of address and value."""
    test = WAIT_REG_MEM_0.pack(FUNCTION=Function.GE, POLL=Poll.MEMORY)
    return commands.packet(Opcode.WAIT_REG_MEM, test, Absolute(0), 0, ALL_BITS, POLL_DELAY_CYCLES) + 1


def idle(commands: Commands) -> None:
    """Finish everything before."""
    commands.packet(Opcode.WAIT_FOR_IDLE)


def time_stamp(commands: Commands, address: Payload) -> None:
    """Finish everything before, then store the 64-bit always-on counter at ``address``."""
    counter = reg.CP_ALWAYS_ON_COUNTER.OFFSET
    idle(commands)
    commands.packet(Opcode.REG_TO_MEM, REG_TO_MEM_0.pack(REG=counter, CNT=2, _64B=1), address)
    commands.packet(Opcode.WAIT_MEM_WRITES)


# ----- dispatch -----------------------------------------------------------------------------------


class LoadedProgram(Protocol):
    """What the encoder needs of a program that is in device memory."""

    @property
    def source(self) -> AdrenoProgram:
        """The program."""

    @property
    def code_address(self) -> int:
        """Where its machine code is."""

    @property
    def layout(self) -> BlockLayout:
        """Where things are in its argument block."""


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """Byte offsets in an argument block: constants from 0, then textures, UAVs, samplers.

    In blocks of OpenCL programs the UAVs come before the textures, as in tinygrad.
    """

    textures: int
    uavs: int
    samplers: int
    nbytes: int

    @classmethod
    def of(cls, program: AdrenoProgram, constants_end: int) -> BlockLayout:
        """Return the layout for a program whose constants end at byte ``constants_end``.

        The hardware always loads all 4096 bytes of constants. Descriptors follow the constants at byte 2048
        as tinygrad has them, unless the constants need the room.
        """
        first = CONSTANT_BYTES // 2 if constants_end <= CONSTANT_BYTES // 2 else CONSTANT_BYTES
        for_textures = TEXTURE_BYTES * len(program.textures)
        for_uavs = TEXTURE_BYTES * len(program.uavs)
        opencl = program.dialect == "opencl"
        textures = first + (for_uavs if opencl else 0)
        uavs = first + (0 if opencl else for_textures)
        samplers = first + for_textures + for_uavs
        return cls(textures, uavs, samplers, max(CONSTANT_BYTES, samplers + SAMPLER_BYTES * program.samplers))


@dataclass(frozen=True, slots=True)
class PrivateMemory:
    """Private memory of a program on a chip; both values are zero if it has none."""

    bytes_per_fiber: int
    bytes_per_sp: int

    @classmethod
    def of(cls, chip: Chip, private_bytes: int) -> PrivateMemory:
        """Return what a program with ``private_bytes`` per thread needs, in whole units."""
        per_fiber = _round_up(private_bytes, PRIVATE_UNIT)
        return cls(per_fiber, _round_up(per_fiber * chip.fibers_per_sp, PRIVATE_TOTAL_UNIT))


def geometry_words(source: AdrenoProgram, geometry: Geometry) -> tuple[int, ...]:
    """Return the dwords that :attr:`LaunchPlaces.geometry` are the positions of.

    RUN_OPENCL takes the number of work-groups from the registers, EXEC_CS also has it itself.
    """
    (gx, gy, gz), (lx, ly, lz) = geometry.groups, geometry.local
    local = reg.SP_CS_NDRANGE_0.pack(
        KERNELDIM=KERNEL_DIMENSIONS, LOCALSIZEX=lx - 1, LOCALSIZEY=ly - 1, LOCALSIZEZ=lz - 1
    )
    registers = local, gx * lx, gy * ly, gz * lz, gx, gy, gz
    return registers if source.dialect == "opencl" else (*registers, gx, gy, gz)


def dispatch(
    commands: Commands,
    chip: Chip,
    program: LoadedProgram,
    geometry: Geometry,
    block: int,
    *,
    scratch: int,
    border: int,
    modes: bool = True,
) -> LaunchPlaces:
    """Append a launch whose argument block is at byte ``block`` of the data section.

    ``scratch`` takes the value of the closing cache flush, ``border`` holds border colours. The address of
    private memory is left zero, to be stored at the returned position. Without ``modes`` those of the
    previous launch stay, and this one may run at the same time.
    """
    source = program.source
    _forget(commands)
    if modes:
        _modes(commands, source)
    places = _geometry(commands, chip, source, geometry)
    stack = _program(commands, chip, program)
    _load(commands, StateBlock.CS_SHADER, StateType.CONSTANTS, CONSTANT_VEC4, Local(block))
    units = len(source.code) // INSTRUCTION_UNIT
    # What is not loaded ahead is fetched from SP_CS_BASE when it is reached.
    preloaded = min(units, chip.preload_units)
    _load(commands, StateBlock.CS_SHADER, StateType.SHADER, preloaded, Absolute(program.code_address))
    _constants_and_size(commands, chip, source, units)
    _images(commands, program, block, border)
    if source.dialect == "opencl":
        commands.packet(Opcode.RUN_OPENCL, 0)
    else:
        launch = commands.packet(Opcode.EXEC_CS, 0, *geometry.groups)
        places = (*places, launch + 1, launch + 2, launch + 3)
    flush_event(commands, Absolute(scratch))
    return LaunchPlaces(places, stack)


def _forget(commands: Commands) -> None:
    """Drop the loaded state of the previous program, which may still be running."""
    commands.packet(Opcode.SET_MARKER, SET_MARKER_0.pack(MODE=Marker.COMPUTE))
    commands.write((reg.SP_UPDATE_CNTL, reg.SP_UPDATE_CNTL.pack(CS_STATE=1, CS_UAV=1)))
    commands.write((reg.SP_UPDATE_CNTL, 0))


def _modes(commands: Commands, source: AdrenoProgram) -> None:
    """Set what all shader processors share, and wait until it holds.

    tinygrad does so, and waits, before every launch. Mesa does it once (``fd6_launch_grid`` and what it calls
    in ``fd6_compute.cc`` write none of these registers and no WAIT_FOR_IDLE), so that launches overlap.
    """
    commands.write((reg.SP_CS_TSIZE, TEXTURE_BOUND))
    commands.write((reg.SP_CS_USIZE, UAV_BOUND))
    opencl = source.dialect == "opencl"
    mode = reg.IsamMode.ISAMMODE_CL if opencl else reg.IsamMode.ISAMMODE_GL
    demotion = not opencl
    commands.write(
        (reg.SP_MODE_CNTL, reg.SP_MODE_CNTL.pack(ISAMMODE=mode, CONSTANT_DEMOTION_ENABLE=demotion))
    )
    commands.write((reg.SP_PERFCTR_SHADER_MASK, reg.SP_PERFCTR_SHADER_MASK.pack(CS=1)))
    commands.write((reg.TPL1_MODE_CNTL, reg.TPL1_MODE_CNTL.pack(ISAMMODE=mode)))
    commands.write((reg.TPL1_DBG_ECO_CNTL, 0))
    idle(commands)


def _geometry(commands: Commands, chip: Chip, source: AdrenoProgram, geometry: Geometry) -> tuple[int, ...]:
    local, *rest = geometry_words(source, geometry)
    # Both registers have the same fields as their copies for chips with LPAC.
    ids = reg.SP_CS_CONST_CONFIG_0.pack(
        WGIDCONSTID=source.workgroup_id_register,
        WGSIZECONSTID=source.workgroup_size_register,
        WGOFFSETCONSTID=source.workgroup_offset_register,
        LOCALIDREGID=source.local_id_register,
    )
    threads = reg.SP_CS_WGE_CNTL.pack(LINEARLOCALIDREGID=UNUSED, THREADSIZE=_thread_size(source))
    if chip.lpac:
        commands.write((reg.SP_CS_WIE_CNTL_0, ids), (reg.SP_CS_WIE_CNTL_1, threads))
    at = commands.write(
        (reg.SP_CS_NDRANGE_0, local),
        (reg.SP_CS_NDRANGE_1, rest[0]),
        (reg.SP_CS_NDRANGE_2, 0),
        (reg.SP_CS_NDRANGE_3, rest[1]),
        (reg.SP_CS_NDRANGE_4, 0),
        (reg.SP_CS_NDRANGE_5, rest[2]),
        (reg.SP_CS_NDRANGE_6, 0),
        (reg.SP_CS_CONST_CONFIG_0, ids),
        (reg.SP_CS_WGE_CNTL, threads),
        (reg.SP_CS_KERNEL_GROUP_X, rest[3]),
        (reg.SP_CS_KERNEL_GROUP_Y, rest[4]),
        (reg.SP_CS_KERNEL_GROUP_Z, rest[5]),
    )
    changing: Sequence[type[Register]] = (
        reg.SP_CS_NDRANGE_0,
        reg.SP_CS_NDRANGE_1,
        reg.SP_CS_NDRANGE_3,
        reg.SP_CS_NDRANGE_5,
        reg.SP_CS_KERNEL_GROUP_X,
        reg.SP_CS_KERNEL_GROUP_Y,
        reg.SP_CS_KERNEL_GROUP_Z,
    )
    return tuple(at + register.OFFSET - reg.SP_CS_NDRANGE_0.OFFSET for register in changing)


def _thread_size(source: AdrenoProgram) -> reg.ThreadSize:
    return reg.ThreadSize.THREAD128 if source.double_threads else reg.ThreadSize.THREAD64


def _program(commands: Commands, chip: Chip, program: LoadedProgram) -> int:
    source = program.source
    private = PrivateMemory.of(chip, source.private_bytes)
    sizes = reg.SP_CS_CNTL_1.pack(
        CONSTANTRAMMODE=reg.ConstantRamMode.CONSTLEN_256,
        SHARED_SIZE=max(1, (source.shared_bytes - 1) // SHARED_UNIT),
    )
    if chip.lpac:
        commands.write((reg.HLSQ_CS_CTRL_REG1, sizes))
    at = commands.write(
        (
            reg.SP_CS_CNTL_0,
            reg.SP_CS_CNTL_0.pack(
                THREADSIZE=_thread_size(source),
                HALFREGFOOTPRINT=source.half_registers,
                FULLREGFOOTPRINT=source.full_registers,
                BRANCHSTACK=source.branch_stack,
                MERGEDREGS=source.merged_registers,
            ),
        ),
        (reg.SP_CS_CNTL_1, sizes),
        (reg.SP_CS_BOOLEAN_CF_MASK, 0),
        (reg.SP_CS_PROGRAM_COUNTER_OFFSET, source.entry),
        (reg.SP_CS_BASE, program.code_address),
        (
            reg.SP_CS_PVT_MEM_PARAM,
            reg.SP_CS_PVT_MEM_PARAM.pack(MEMSIZEPERITEM=private.bytes_per_fiber // PRIVATE_UNIT),
        ),
        (reg.SP_CS_PVT_MEM_BASE, 0),
        (
            reg.SP_CS_PVT_MEM_SIZE,
            reg.SP_CS_PVT_MEM_SIZE.pack(TOTALPVTMEMSIZE=private.bytes_per_sp // PRIVATE_TOTAL_UNIT),
        ),
    )
    return at + reg.SP_CS_PVT_MEM_BASE.OFFSET - reg.SP_CS_CNTL_0.OFFSET


def _constants_and_size(commands: Commands, chip: Chip, source: AdrenoProgram, units: int) -> None:
    commands.write(
        (reg.SP_REG_PROG_ID_0, _ALL_UNUSED),
        (reg.SP_REG_PROG_ID_1, _ALL_UNUSED),
        (reg.SP_REG_PROG_ID_2, _ALL_UNUSED),
        (reg.SP_REG_PROG_ID_3, UNUSED),
        (
            reg.SP_CS_CONST_CONFIG,
            reg.SP_CS_CONST_CONFIG.pack(CONSTLEN=CONSTANT_VEC4 // VEC4_PER_CONSTLEN, ENABLED=1),
        ),
    )
    private = PrivateMemory.of(chip, source.private_bytes)
    commands.write(
        (
            reg.SP_CS_PVT_MEM_STACK_OFFSET,
            reg.SP_CS_PVT_MEM_STACK_OFFSET.pack(OFFSET=private.bytes_per_sp // STACK_OFFSET_UNIT),
        )
    )
    commands.write((reg.SP_CS_INSTR_SIZE, reg.SP_CS_INSTR_SIZE.pack(VALUE=units)))


def _images(commands: Commands, program: LoadedProgram, block: int, border: int) -> None:
    source, layout = program.source, program.layout
    samplers, textures, uavs = source.samplers, len(source.textures), len(source.uavs)
    if samplers:
        address = Local(block + layout.samplers)
        _load(commands, StateBlock.CS_TEX, StateType.SHADER, samplers, address)
        commands.write((reg.SP_CS_SAMPLER_BASE, address))
        commands.write((reg.TPL1_CS_BORDER_COLOR_BASE, border))
    if textures:
        address = Local(block + layout.textures)
        preloaded = min(textures, MAX_PRELOADED_TEXTURES)
        _load(commands, StateBlock.CS_TEX, StateType.CONSTANTS, preloaded, address)
        commands.write((reg.SP_CS_TEXMEMOBJ_BASE, address))
    if uavs:
        address = Local(block + layout.uavs)
        _load(commands, StateBlock.CS_SHADER, StateType.UAV, uavs, address)
        commands.write((reg.SP_CS_UAV_BASE, address))
    config = reg.SP_CS_CONFIG.pack(ENABLED=1, NTEX=textures, NSAMP=samplers, NUAV=uavs)
    commands.write((reg.SP_CS_CONFIG, config))


def _load(commands: Commands, block: StateBlock, kind: StateType, units: int, address: Payload) -> None:
    assert (block, kind) in STATE_UNIT_BYTES
    word = LOAD_STATE6_0.pack(
        STATE_TYPE=kind, STATE_SRC=StateSource.INDIRECT, STATE_BLOCK=block, NUM_UNIT=units
    )
    commands.packet(Opcode.LOAD_STATE6_FRAG, word, address)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
