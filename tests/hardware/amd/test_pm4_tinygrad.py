"""The commands that tinygrad's own queue encodes decode without an unknown packet, bit or register."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tinygrad.runtime.autogen.am import navi_offsets, pm4_nv, pm4_soc15, vega_offsets
from tinygrad.runtime.ops_amd import AMDComputeQueue
from tinygrad.runtime.support.amd import AMDIP, import_soc

from ringfence.hardware.amd import pm4
from ringfence.hardware.amd.chips import CHIPS, AmdChip, Generation
from ringfence.hardware.amd.pm4 import Decoded, Opcode, decode_packet
from ringfence.hardware.amd.registers import registers_for

chips = pytest.mark.parametrize("chip", CHIPS.values(), ids=lambda chip: chip.name)


def bases(offsets: object, block: str, segments: int) -> dict[int, tuple[int, ...]]:
    names = [f"{block}_BASE__INST0_SEG{segment}" for segment in range(segments)]
    return {0: tuple(getattr(offsets, name, 0) for name in names)}


def tinygrad_device(chip: AmdChip) -> SimpleNamespace:
    """What the queue asks of its device."""
    old = chip.generation == Generation.GFX9
    offsets = vega_offsets if old else navi_offsets
    return SimpleNamespace(
        target=chip.target,
        xccs=chip.xccs,
        soc=import_soc(chip.target),
        pm4=pm4_soc15 if old else pm4_nv,
        gc=AMDIP("gc", chip.gc, bases(offsets, "GC", 6)),
        nbio=AMDIP("nbif" if chip.target[0] == 12 else "nbio", chip.nbio, bases(offsets, "NBIO", 9)),
        sqtt_enabled=False,
        tmpring_size=0x00010200,
        scratch=SimpleNamespace(va_addr=0x7F1234560000, size=0xC00000 * chip.xccs),
        queue_event_mailbox_ptr=0x7F0000000008,
        queue_event=SimpleNamespace(event_id=1),
        is_am=lambda: False,
    )


def encoded(chip: AmdChip) -> list[int]:
    """A dispatch with barrier, timestamps and signals."""
    device = tinygrad_device(chip)
    queue = AMDComputeQueue(device)
    signal = SimpleNamespace(
        value_addr=0x7F0000001000, timestamp_addr=0x7F0000001008, owner=device, is_timeline=True
    )
    program = SimpleNamespace(
        dev=device,
        enable_private_segment_sgpr=False,
        enable_dispatch_ptr=False,
        prog_addr=0x7F0000002000,
        rsrc1=0xA0AF0000 if chip.target[0] == 11 else 0x000F0000,
        rsrc2=0x00000B85,
        rsrc3=0,
        wave32=chip.target[0] != 9,
    )
    arguments = SimpleNamespace(buf=SimpleNamespace(va_addr=0x7F0000003000), bind_data=[])
    queue.wait(signal, 1).memory_barrier()
    queue.timestamp(signal)
    queue.exec(program, arguments, (4, 2, 1), (64, 1, 1))
    queue.timestamp(signal)
    queue.poll_bit(SimpleNamespace(va_addr=0x7F0000004000), 1, 1)
    queue.write(SimpleNamespace(va_addr=0x7F0000004000), 7, b64=True)
    queue.signal(signal, 2)
    queue.set_grbm(se=1)
    return queue._q


def decoded(chip: AmdChip) -> list[Decoded]:
    stream, packets, at = encoded(chip), [], 0
    while at < len(stream):
        packets.append(decode_packet(chip.generation, stream, at))
        at += packets[-1].length
    return packets


@chips
def test_every_packet_decodes(chip):
    opcodes = {packet.opcode for packet in decoded(chip)}
    expected = {
        Opcode.WAIT_REG_MEM,
        Opcode.ACQUIRE_MEM,
        Opcode.RELEASE_MEM,
        Opcode.SET_SH_REG,
        Opcode.SET_UCONFIG_REG,
        Opcode.DISPATCH_DIRECT,
        Opcode.EVENT_WRITE,
    }
    assert opcodes == expected | ({Opcode.PRED_EXEC} if chip.xccs > 1 else set())


@chips
def test_every_register_that_is_written_is_declared(chip):
    registers = registers_for(chip.target)
    starts = {
        Opcode.SET_SH_REG: (pm4.SET_SH_REG_0, pm4.SH_REG_START),
        Opcode.SET_UCONFIG_REG: (pm4.SET_UCONFIG_REG_0, pm4.UCONFIG_REG_START),
    }
    written = {}
    for packet in decoded(chip):
        if packet.opcode in starts:
            word, start = starts[packet.opcode]
            first = start + packet.field(word, "REG_OFFSET")
            written |= {first + index: value for index, value in enumerate(packet.tail)}
    for offset, value in written.items():
        register = registers.at(offset)
        assert register is not None, hex(offset)
        assert not register.unknown(value), registers.describe(offset, value)
    assert written[registers.offset("COMPUTE_PGM_LO")] == 0x7F0000002000 >> 8 & 0xFFFFFFFF
    assert written[registers.offset("COMPUTE_NUM_THREAD_X")] == 64
    assert written[registers.offset("COMPUTE_USER_DATA", 1)] == 0x7F00
    assert "SE_INDEX=1" in registers.describe(0xC200, written[0xC200])


@chips
def test_the_flush_before_a_dispatch_writes_one_register_and_polls_the_next(chip):
    registers = registers_for(chip.target)
    wait = next(p for p in decoded(chip) if p.layout[1].name == "REG_WRITE_ADDR1")
    assert wait.value("REG_WRITE_ADDR1") == registers.offset("BIF_BX_PF0_GPU_HDP_FLUSH_REQ")
    assert wait.value("REG_WRITE_ADDR2") == registers.offset("BIF_BX_PF0_GPU_HDP_FLUSH_DONE")


@chips
def test_packets_encode_to_what_was_decoded(chip):
    again = [word for p in decoded(chip) for word in pm4.packet(p.opcode, *p.body)]
    assert again == encoded(chip)
