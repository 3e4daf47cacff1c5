"""Semantics of flow control, barriers, messages, waits and the hardware registers.

SOPP and the rest of SOPK and SOP1.
"""

from __future__ import annotations

from ringfence.hardware.amd.rdna import Instruction
from ringfence.virtual.isa.rdna import facts, flow
from ringfence.virtual.isa.rdna.effects import EXEC, MODE, SCC, VCC
from ringfence.virtual.isa.rdna.facts import MODE_HWREG
from ringfence.virtual.isa.rdna.translate import Semantics, Translator
from ringfence.virtual.isa.simt import FAULT_HANG, FAULT_ILLEGAL, FAULT_JUMP, FAULT_TRAP

STATUS, TRAPSTS, GPR_ALLOC, LDS_ALLOC, IB_STS, SH_MEM_BASES, HW_ID1, HW_ID2, CYCLES = (
    2,
    3,
    5,
    6,
    7,
    15,
    23,
    24,
    29,
)
ZERO_REGISTERS = (
    TRAPSTS,
    GPR_ALLOC,
    IB_STS,
    HW_ID2,
)  # no exceptions, nothing outstanding, the first of everything
BASES = 0x00010002  # bits 63:48 of the shared and private apertures
STATUS_SCC, STATUS_EXECZ, STATUS_VCCZ = 0, 9, 10
REALTIME, DOORBELL, DDID, TMA, SAVE_WAVE, TBA, SE_AID = 0x83, 0x80, 0x81, 0x82, 0x84, 0x85, 0x87


def _target(t: Translator, i: Instruction) -> int:
    return t.flow.block_at[int(i.fields["target"])]


def _following(t: Translator, i: Instruction) -> int:
    return t.flow.block_at[i.pc + i.size]


def jump(t: Translator, i: Instruction) -> None:
    t.flush()
    t.goto(_target(t, i))


def conditional(t: Translator, i: Instruction) -> None:
    """s_cbranch_*: scc0 scc1 vccz vccnz execz execnz; the masks count with the bits of the wave size."""
    condition = i.name.removeprefix("s_cbranch_")
    if condition.startswith("scc"):
        taken = t.scc()
        inverted = condition == "scc0"
    else:
        taken = t.is_zero(VCC if condition.startswith("vcc") else EXEC)
        inverted = condition.endswith("nz")
    if inverted:
        taken = t.s.op("xor", "i1", taken, "true")
    t.flush()
    t.branch(taken, _target(t, i), _following(t, i))


def never(t: Translator, i: Instruction) -> None:
    """s_cbranch_cdbg*: the debug flags are clear."""
    t.flush()
    t.goto(_following(t, i))


def call(t: Translator, i: Instruction) -> None:
    """s_call_b64: D = next PC; jump to a place relative to it."""
    t.put_scalar(i.dsts[0], t.code_address(i.pc + i.size))
    t.flush()
    t.goto(_target(t, i))


def jump_register(t: Translator, i: Instruction) -> None:
    """s_setpc_b64, s_swappc_b64, s_rfe_b64: go to the address in a register.

    A place that is no code is a fault.
    """
    address = t.scalar_source(i.srcs[0])
    if i.name == "s_swappc_b64":
        t.put_scalar(i.dsts[0], t.code_address(i.pc + i.size))
    t.flush()
    block = t.block
    if not block.indirect:
        t.goto(block.successors[0])
        return
    _switch(t, i, address)


def _switch(t: Translator, i: Instruction, address: str) -> None:
    s = t.s
    offset = s.op("sub", "i64", address, s.field("code"))
    lost = s.block("lost")
    labels = {place: s.block("place") for place in t.flow.places[i.name in flow.CALLS]}
    cases = " ".join(f"i64 {place}, label %{label}" for place, label in labels.items())
    s.line(f"switch i64 {offset}, label %{lost} [ {cases} ]")
    for place, label in labels.items():
        s.label(label)
        t.goto(t.flow.block_at[place])
    s.label(lost)
    t.fault(FAULT_JUMP, i.pc, address)


def end(t: Translator, i: Instruction) -> None:
    t.end()


def trap(t: Translator, i: Instruction) -> None:
    """s_trap: there is no trap handler, so the wave is aborted."""
    t.fault(FAULT_TRAP, i.pc, str(int(i.fields["simm16"]) & 0xFF))


def illegal(t: Translator, i: Instruction) -> None:
    """s_code_end: the padding after a program."""
    t.fault(FAULT_ILLEGAL, i.pc)


def halt(t: Translator, i: Instruction) -> None:
    """s_sethalt 1, s_sendmsghalt: the wave stops and never goes on."""
    if not flow.ends_block(i):
        return
    t.fault(FAULT_HANG, i.pc)


def barrier(t: Translator, i: Instruction) -> None:
    t.barrier(_following(t, i))


def nothing(t: Translator, i: Instruction) -> None:
    """Hints, waits (memory operations complete at once), cache control, messages that nobody awaits."""


# --- hardware registers ---


def get_register(t: Translator, i: Instruction) -> None:
    """s_getreg_b32: D = a field of a hardware register."""
    s, number = t.s, int(i.fields["hwreg"])
    offset, size = int(i.fields["hwreg_offset"]), int(i.fields["hwreg_size"])
    value = _hardware_register(t, i, number)
    shifted = s.op("lshr", "i32", value, str(offset))
    t.put_scalar(i.dsts[0], s.op("and", "i32", shifted, str((1 << size) - 1)) if size < 32 else shifted)


def _hardware_register(t: Translator, i: Instruction, number: int) -> str:
    s = t.s
    if number == MODE_HWREG:
        known = facts.mode_of(t.facts)
        return t.mode_register() if known is None else str(known)
    if number == STATUS:
        bits = (
            (SCC, STATUS_SCC, t.scc()),
            (EXEC, STATUS_EXECZ, t.is_zero(EXEC)),
            (VCC, STATUS_VCCZ, t.is_zero(VCC)),
        )
        value = "0"
        for _, position, bit in bits:
            value = s.op(
                "or", "i32", value, s.op("shl", "i32", s.cast("zext", bit, "i1", "i32"), str(position))
            )
        return value
    if number == SH_MEM_BASES:
        return str(BASES)
    if number == HW_ID1:
        return s.op("and", "i32", s.cast("trunc", "%strip", "i64", "i32"), "31")
    if number == LDS_ALLOC:
        size = s.cast("trunc", s.field("shared_bytes"), "i64", "i32")
        return s.op("shl", "i32", s.op("lshr", "i32", size, "9"), "12")
    if number == CYCLES:
        return s.op("and", "i32", s.cast("trunc", _clock(t), "i64", "i32"), str((1 << 20) - 1))
    if number in ZERO_REGISTERS:
        return "0"
    raise t.unsupported(i, f"hardware register {number}")


def _clock(t: Translator) -> str:
    """Return the clock and let it tick, so that time passes for a program that waits."""
    s = t.s
    pointer = s.field("clock", "ptr")
    return s.new(f"atomicrmw add ptr {pointer}, i64 1 monotonic, align 8")


def set_register(t: Translator, i: Instruction) -> None:
    """s_setreg_b32, s_setreg_imm32_b32: write a field of MODE."""
    if int(i.fields["hwreg"]) != MODE_HWREG:
        if int(i.fields["hwreg"]) == TRAPSTS:
            return  # clears exception flags, of which none are ever set
        raise t.unsupported(i, f"writing hardware register {int(i.fields['hwreg'])}")
    _write_mode(t, t.scalar_source(i.srcs[0]), int(i.fields["hwreg_offset"]), int(i.fields["hwreg_size"]))


def _write_mode(t: Translator, value: str, offset: int, size: int) -> None:
    if not t.flow.dynamic_mode:
        return  # facts.py knows MODE everywhere
    s = t.s
    field = ((1 << size) - 1) << offset
    placed = s.op("and", "i32", s.op("shl", "i32", value, str(offset)), facts.signed32(field))
    kept = s.op("and", "i32", t.mode_register(), facts.signed32(~field))
    t.set_scalar(MODE, s.op("or", "i32", kept, placed))


def round_mode(t: Translator, i: Instruction) -> None:
    _write_mode(t, str(int(i.fields["simm16"]) & 15), 0, 4)


def denorm_mode(t: Translator, i: Instruction) -> None:
    _write_mode(t, str(int(i.fields["simm16"]) & 15), 4, 4)


def message_return(t: Translator, i: Instruction) -> None:
    """s_sendmsg_rtn: the real-time clock; other answers (doorbell, trap handler and its memory) are 0."""
    message = int(i.fields["message"])
    if message not in (REALTIME, DOORBELL, DDID, TMA, SAVE_WAVE, TBA, SE_AID):
        raise t.unsupported(i, f"message {message:#x}")
    value = _clock(t) if message == REALTIME else "0"
    if i.dsts[0].size == 1 and value != "0":
        value = t.s.cast("trunc", value, "i64", "i32")
    t.put_scalar(i.dsts[0], value)


_HINTS = ("s_nop", "s_setkill", "s_sleep", "s_set_inst_prefetch_distance", "s_clause", "s_delay_alu",
          "s_waitcnt_depctr", "s_waitcnt", "s_wait_idle", "s_wait_event", "s_setprio", "s_sendmsg",
          "s_incperflevel", "s_decperflevel", "s_ttracedata", "s_ttracedata_imm", "s_icache_inv",
          "s_version", "s_waitcnt_vscnt", "s_waitcnt_vmcnt", "s_waitcnt_expcnt", "s_waitcnt_lgkmcnt",
          "s_gl1_inv", "s_dcache_inv", "buffer_gl0_inv", "buffer_gl1_inv", "v_nop", "v_pipeflush",
          "ds_nop", "s_wakeup", "s_atc_probe", "s_atc_probe_buffer")  # fmt: skip

SEMANTICS: dict[str, Semantics] = {
    **dict.fromkeys(_HINTS, nothing),
    "s_branch": jump,
    **{f"s_cbranch_{c}": conditional for c in ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz")},
    **dict.fromkeys(flow.NEVER_TAKEN, never),
    "s_call_b64": call,
    **dict.fromkeys(("s_setpc_b64", "s_swappc_b64", "s_rfe_b64"), jump_register),
    **dict.fromkeys(("s_endpgm", "s_endpgm_saved"), end),
    "s_trap": trap,
    "s_code_end": illegal,
    **dict.fromkeys(("s_sethalt", "s_sendmsghalt"), halt),
    "s_barrier": barrier,
    "s_getreg_b32": get_register,
    "s_setreg_b32": set_register,
    "s_setreg_imm32_b32": set_register,
    "s_round_mode": round_mode,
    "s_denorm_mode": denorm_mode,
    **dict.fromkeys(("s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64"), message_return),
}
