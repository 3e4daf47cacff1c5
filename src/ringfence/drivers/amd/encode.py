"""PM4 commands of the compute queue: dispatches, barriers, signals, waits, time stamps.

Order and values of a dispatch's packets are those of tinygrad's ``AMDComputeQueue`` (``ops_amd.py``), except
that caches are acquired at barriers instead of before every dispatch. Where the registers of a dispatch
differ, :data:`UNLIKE_TINYGRAD` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ringfence.hardware.amd import pm4
from ringfence.hardware.amd.chips import SCRATCH_UNIT, Generation, Target, generation_of
from ringfence.hardware.amd.pm4 import Opcode
from ringfence.hardware.amd.registers import RegisterMap, registers_for
from ringfence.hardware.amd.topology import NodeProperties
from ringfence.hardware.fields import Register, Word
from ringfence.runtime.commands import ALL_BITS, Absolute, Dwords, Local, Payload
from ringfence.runtime.device import Geometry
from ringfence.runtime.program import LaunchPlaces

POLL_INTERVAL = 4  # in units of 16 clocks, as tinygrad has it
ACQUIRE_INTERVAL = 10  # of gfx9's ACQUIRE_MEM, in the same units
WHOLE_MEMORY = (ALL_BITS, ALL_BITS, 0, 0)  # size and base of an ACQUIRE_MEM for everything
LANES = 64  # a wave's part of scratch memory is counted for 64 lanes, whatever the wave

UNLIKE_TINYGRAD: dict[str, str] = dict.fromkeys(
    ("COMPUTE_DISPATCH_SCRATCH_BASE_LO", "COMPUTE_DISPATCH_SCRATCH_BASE_HI", "COMPUTE_TMPRING_SIZE"),
    "tinygrad always gives scratch memory for 128 bytes per work-item, or for the most that a program has "
    "asked for; ours is what the device has for the programs so far, and 0 until one asks for some",
)
"""Registers whose value at a dispatch differs from tinygrad's, and why."""


@dataclass(frozen=True, slots=True)
class _Sync:
    """What synchronises in a generation.

    ``acquire_all`` is the body of an ACQUIRE_MEM after which everything is visible that the CPU, a copy or
    another GPU wrote: every level, memory included. ``acquire_shader`` is for what earlier dispatches of this
    GPU wrote, which share the L2. ``flush`` and ``no_flush`` are first dwords of RELEASE_MEM.
    """

    acquire_all: tuple[int, ...]
    acquire_shader: tuple[int, ...]
    flush: int
    no_flush: int
    release: type[Word]
    wait: type[Word]


_END_OF_PIPE = {
    "EVENT_TYPE": pm4.Event.CACHE_FLUSH_AND_INV_TS_EVENT,
    "EVENT_INDEX": pm4.ReleaseIndex.END_OF_PIPE,
}
_GFX9 = _Sync(
    acquire_all=(
        pm4.CP_COHER_CNTL.pack(
            SH_ICACHE_ACTION_ENA=1,
            SH_KCACHE_ACTION_ENA=1,
            TCL1_ACTION_ENA=1,
            TC_ACTION_ENA=1,
            TC_WB_ACTION_ENA=1,
        ),
        *WHOLE_MEMORY,
        ACQUIRE_INTERVAL,
    ),
    acquire_shader=(
        pm4.CP_COHER_CNTL.pack(SH_KCACHE_ACTION_ENA=1, TCL1_ACTION_ENA=1),
        *WHOLE_MEMORY,
        ACQUIRE_INTERVAL,
    ),
    flush=pm4.RELEASE_MEM_0_GFX9.pack(**_END_OF_PIPE, TC_WB_ACTION_EN=1, TC_NC_ACTION_EN=1),
    no_flush=pm4.RELEASE_MEM_0_GFX9.pack(**_END_OF_PIPE),
    release=pm4.RELEASE_MEM_1_GFX9,
    wait=pm4.WAIT_REG_MEM_0_GFX9,
)
_GFX11 = _Sync(
    acquire_all=(
        0,
        *WHOLE_MEMORY,
        0,
        pm4.GCR_CNTL.pack(
            GLI_INV=pm4.GliInv.ALL,
            GLM_WB=1,
            GLM_INV=1,
            GLK_WB=1,
            GLK_INV=1,
            GLV_INV=1,
            GL1_INV=1,
            GL2_INV=1,
            GL2_WB=1,
        ),
    ),
    acquire_shader=(
        0,
        *WHOLE_MEMORY,
        0,
        pm4.GCR_CNTL.pack(GLM_WB=1, GLM_INV=1, GLK_WB=1, GLK_INV=1, GLV_INV=1, GL1_INV=1),
    ),
    flush=pm4.RELEASE_MEM_0.pack(
        **_END_OF_PIPE,
        GCR_GLM_WB=1,
        GCR_GLM_INV=1,
        GCR_GLV_INV=1,
        GCR_GL1_INV=1,
        GCR_GL2_INV=1,
        GCR_GL2_WB=1,
        GCR_SEQ=pm4.GcrSeq.FORWARD,
    ),
    no_flush=pm4.RELEASE_MEM_0.pack(**_END_OF_PIPE),
    release=pm4.RELEASE_MEM_1,
    wait=pm4.WAIT_REG_MEM_0,
)
_SYNC = {Generation.GFX9: _GFX9, Generation.GFX11: _GFX11, Generation.GFX12: _GFX11}


class LoadedProgram(Protocol):
    """What the encoder needs of a program that is in device memory."""

    private_bytes: int
    packet_offset: int | None
    user_sgprs: dict[str, int]

    @property
    def entry_address(self) -> int:
        """The GPU address of the first instruction."""

    @property
    def lds_granules(self) -> int:
        """The local memory of a group in units of RSRC2.LDS_SIZE."""

    @property
    def wave(self) -> int:
        """The number of lanes of a wave."""

    @property
    def resources(self) -> tuple[int, int, int]:
        """RSRC1, RSRC2 without the size of local memory, and RSRC3."""


class Commands(Dwords):
    """Type-3 packets for the registers of one generation."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.generation = generation_of(target)
        self.sync = _SYNC[self.generation]
        self.registers: RegisterMap = registers_for(target)

    def packet(self, opcode: Opcode, *payload: Payload) -> int:
        """Append a packet; return the position of its first body dword."""
        header = len(self.words)
        self.words.append(0)
        for item in payload:
            self.append(item)
        self.words[header] = pm4.type3_header(opcode, len(self.words) - header - 1)
        return header + 1

    def write(self, name: str, *values: Payload, index: int = 0) -> int:
        """Append a write of consecutive shader registers from ``name`` on; return the position of the first
        value.
        """
        offset = self.registers.offset(name, index) - pm4.SH_REG_START
        return self.packet(Opcode.SET_SH_REG, pm4.SET_SH_REG_0.pack(REG_OFFSET=offset), *values) + 1

    def register(self, name: str) -> type[Register]:
        """Return a register of the generation."""
        return self.registers[name]


# ----- synchronisation ----------------------------------------------------------------------------


def idle(commands: Commands) -> None:
    """Finish every dispatch before."""
    event = pm4.EVENT_WRITE_0.pack(
        EVENT_TYPE=pm4.Event.CS_PARTIAL_FLUSH, EVENT_INDEX=pm4.EventWriteIndex.CS_PARTIAL_FLUSH
    )
    commands.packet(Opcode.EVENT_WRITE, event)


def acquire(commands: Commands, *, everything: bool) -> None:
    """Let later work see what earlier dispatches wrote, or (``everything``) what anybody did."""
    sync = commands.sync
    commands.packet(Opcode.ACQUIRE_MEM, *(sync.acquire_all if everything else sync.acquire_shader))


def begin(commands: Commands) -> None:
    """Let later work see what the CPU wrote, also through the BAR: that is what flushing the HDP is for."""
    wait = commands.sync.wait.pack(FUNCTION=pm4.Function.EQ, OPERATION=pm4.WaitOperation.WR_WAIT_WR_REG)
    request, done = (
        commands.registers.offset(f"BIF_BX_PF0_GPU_HDP_FLUSH_{what}") for what in ("REQ", "DONE")
    )
    commands.packet(Opcode.WAIT_REG_MEM, wait, request, done, ALL_BITS, ALL_BITS, POLL_INTERVAL)
    acquire(commands, everything=True)


def barrier(commands: Commands) -> None:
    """Finish every dispatch before, and let later ones see what they wrote."""
    idle(commands)
    acquire(commands, everything=False)


def release(
    commands: Commands,
    address: Payload,
    value: Payload,
    data: pm4.DataSel,
    *,
    flush: bool,
    interrupt: int | None = None,
) -> int:
    """Store a value once everything before is finished; return the position of address and value.

    With ``flush`` caches are written back first. ``interrupt`` is what the interrupt that follows carries.
    """
    sync = commands.sync
    select = pm4.IntSel.NONE if interrupt is None else pm4.IntSel.SEND_INTERRUPT_AFTER_WRITE_CONFIRM
    return (
        commands.packet(
            Opcode.RELEASE_MEM,
            sync.flush if flush else sync.no_flush,
            sync.release.pack(DATA_SEL=data, INT_SEL=select),
            address,
            value,
            0 if interrupt is None else interrupt,
        )
        + 2
    )


def signal(commands: Commands) -> int:
    """Finish everything before, write caches back, then store a value; return the position of address and
    value.
    """
    return release(commands, Absolute(0), Absolute(0), pm4.DataSel.SEND_32_BIT_LOW, flush=True)


def interrupt(commands: Commands, slot_address: int, trigger: int) -> None:
    """Signal an event: store to its slot, then interrupt."""
    data = pm4.DataSel.SEND_32_BIT_LOW
    release(commands, Absolute(slot_address), Absolute(trigger), data, flush=False, interrupt=trigger)


def wait(commands: Commands) -> int:
    """Poll memory until it is at least a value (unsigned); return the position of address and value."""
    test = commands.sync.wait.pack(FUNCTION=pm4.Function.GE, MEM_SPACE=pm4.MemSpace.MEMORY_SPACE)
    position = commands.packet(Opcode.WAIT_REG_MEM, test, Absolute(0), 0, ALL_BITS, POLL_INTERVAL)
    acquire(commands, everything=True)
    return position + 1


def time_stamp(commands: Commands, address: Payload) -> None:
    """Finish everything before, then store the 64-bit clock counter at ``address``."""
    idle(commands)
    release(commands, address, Absolute(0), pm4.DataSel.SEND_GPU_CLOCK_COUNTER, flush=False)


def indirect_buffer(address: int, nbytes: int) -> tuple[int, ...]:
    """Return the packet that runs ``nbytes`` of commands at ``address``."""
    size = pm4.INDIRECT_BUFFER_2.pack(IB_SIZE=nbytes // 4, VALID=1)
    return pm4.packet(Opcode.INDIRECT_BUFFER, address & ALL_BITS, address >> 32, size)


# ----- scratch memory -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scratch:
    """Scratch memory for up to ``per_item`` bytes of each work-item, on all of an XCC: ``nbytes`` in all.

    As many waves as can be resident have a place: ``max_slots_scratch_cu`` on every compute unit. ``waves``
    and ``wave_units`` are the fields of TMPRING_SIZE.
    """

    per_item: int
    nbytes: int
    waves: int
    wave_units: int

    @classmethod
    def of(cls, gpu: NodeProperties, private_bytes: int) -> Scratch:
        """Return what programs with up to ``private_bytes`` per work-item need."""
        generation = generation_of(gpu.target)
        unit = SCRATCH_UNIT[generation]
        per_item = -(-private_bytes // (unit // LANES)) * (unit // LANES)
        slots = gpu.max_slots_scratch_cu * gpu.cus_per_xcc
        waves = slots if generation is Generation.GFX9 else slots // gpu.shader_engines
        return cls(per_item, per_item * LANES * slots, waves if per_item else 0, per_item * LANES // unit)


NO_SCRATCH = Scratch(0, 0, 0, 0)


def max_private_bytes(registers: RegisterMap) -> int:
    """Return the most scratch memory that a work-item can have: what WAVESIZE can say."""
    unit = SCRATCH_UNIT[registers.generation]
    return registers["COMPUTE_TMPRING_SIZE"].FIELDS["WAVESIZE"].max * unit // LANES


def scratch_registers(commands: Commands, address: int, scratch: Scratch) -> int:
    """Append where scratch memory is; return the position of the first dword that depends on it.

    From there to the end are the dwords that another scratch memory replaces.
    """
    shifted = address >> pm4.SHADER_ADDRESS_SHIFT
    position = commands.write("COMPUTE_DISPATCH_SCRATCH_BASE_LO", Absolute(shifted))
    size = commands.register("COMPUTE_TMPRING_SIZE").pack(WAVES=scratch.waves, WAVESIZE=scratch.wave_units)
    commands.write("COMPUTE_TMPRING_SIZE", size)
    return position


def scratch_dwords(target: Target, address: int, scratch: Scratch) -> bytes:
    """Return the dwords that :func:`scratch_registers` appends from its position on."""
    commands = Commands(target)
    first = scratch_registers(commands, address, scratch)
    return b"".join(word.to_bytes(4, "little") for word in commands.words[first:])


# ----- dispatch -----------------------------------------------------------------------------------


def dispatch(commands: Commands, program: LoadedProgram, geometry: Geometry, block: int) -> LaunchPlaces:
    """Append a launch whose argument block is at byte ``block`` of the data section.

    Scratch memory is left out, to be stored at the returned position.
    """
    rsrc1, rsrc2, rsrc3 = program.resources
    word = commands.register("COMPUTE_PGM_RSRC2")
    assert not word.get(rsrc2, "LDS_SIZE")
    rsrc2 |= word.pack(LDS_SIZE=program.lds_granules)
    commands.write("COMPUTE_PGM_LO", Absolute(program.entry_address >> pm4.SHADER_ADDRESS_SHIFT))
    commands.write("COMPUTE_PGM_RSRC1", rsrc1, rsrc2)
    commands.write("COMPUTE_PGM_RSRC3", rsrc3)
    stack = scratch_registers(commands, 0, NO_SCRATCH)
    commands.write("COMPUTE_RESTART_X", 0, 0, 0)
    _user_data(commands, program, block)
    commands.write("COMPUTE_RESOURCE_LIMITS", 0)
    # COMPUTE_START_X..Z, COMPUTE_NUM_THREAD_X..Z, COMPUTE_PIPELINESTAT_ENABLE, COMPUTE_PERFCOUNT_ENABLE
    local = commands.write("COMPUTE_START_X", 0, 0, 0, *geometry.local, 0, 0) + 3
    initiator = commands.register("COMPUTE_DISPATCH_INITIATOR").pack(
        COMPUTE_SHADER_EN=1, FORCE_START_AT_000=1, **({"CS_W32_EN": 1} if program.wave == 32 else {})
    )
    groups = commands.packet(Opcode.DISPATCH_DIRECT, *geometry.groups, initiator)
    return LaunchPlaces((local, local + 1, local + 2, groups, groups + 1, groups + 2), stack)


def _user_data(commands: Commands, program: LoadedProgram, block: int) -> None:
    """Append the first scalar registers, in the order that the kernel descriptor demands."""
    values: list[Payload] = []
    for name in sorted(program.user_sgprs, key=program.user_sgprs.__getitem__):
        match name:
            case "KERNARG_SEGMENT_PTR":
                values.append(Local(block))
            case "DISPATCH_PTR":
                assert program.packet_offset is not None
                values.append(Local(block + program.packet_offset))
            case "PRIVATE_SEGMENT_SIZE":
                values.append(program.private_bytes)
            case _:
                raise AssertionError(f"{name} was refused when the program was loaded")
    if values:
        commands.write("COMPUTE_USER_DATA", *values)
