"""The command processor: every packet that compute streams use, from hand-encoded dwords."""

from __future__ import annotations

import struct

import pytest

from ringfence.hardware.adreno.packets import Opcode, type4_header, type7_header
from ringfence.virtual.machine import Machine
from virtual.adreno.client import (
    Buffer,
    Client,
    FakeExecutor,
    event,
    halves,
    indirect,
    mem_write,
    op,
    reg,
    wait_mem,
)

TICKS = 19_200_000


@pytest.fixture
def data(client: Client) -> Buffer:
    return client.buffer(label="data")


def test_literal_stream_from_the_register_documentation(client: Client, data: Buffer):
    low, high = halves(data.gpu)
    client.run([0x70108000, 0x70928000, 0x70268000, 0x70E50001, 8, 0x70460004, 4, low, high, 7])
    assert data.u32() == 7


def test_nop_ignores_its_payload(client: Client, data: Buffer):
    client.run(op(Opcode.NOP, 0xFFFFFFFF, 0) + mem_write(data.gpu, 1))
    assert data.u32() == 1


def test_mem_write_stores_every_payload_dword(client: Client, data: Buffer):
    client.run(mem_write(data.gpu + 4, 1, 2, 3))
    assert data.read(20) == struct.pack("<5I", 0, 1, 2, 3, 0)


def test_memcpy_copies_dwords(client: Client, data: Buffer):
    data.words(range(16))
    client.run(op(Opcode.MEMCPY, 4, *halves(data.gpu + 8), *halves(data.gpu + 0x100)))
    assert data.read(20, 0x100) == struct.pack("<5I", 2, 3, 4, 5, 0)


@pytest.mark.parametrize(
    ("flags", "sources", "size", "result"),
    [
        (0, (10,), 4, 10),
        (0, (10, 20, 30), 4, 60),
        (2, (10, 3), 4, 7),
        (1, (1,), 4, 0xFFFFFFFF),
        (1 << 29, (0xFFFFFFFF, 1), 8, 0x1_0000_0000),
        (1 << 29 | 4, (5, 1, 7), 8, 0xFFFF_FFFF_FFFF_FFFF),
        (1 << 30, (1, 2), 4, 3),
    ],
)
def test_mem_to_mem_adds_and_negates(client: Client, data: Buffer, flags, sources, size, result):
    addresses = []
    for i, value in enumerate(sources):
        data.write(value.to_bytes(8, "little"), 0x100 + 8 * i)
        addresses += halves(data.gpu + 0x100 + 8 * i)
    client.run(op(Opcode.MEM_TO_MEM, flags, *halves(data.gpu), *addresses))
    assert int.from_bytes(data.read(size), "little") == result
    assert data.read(8 - size, size) == bytes(8 - size)


def test_registers_go_to_memory_and_back(client: Client, data: Buffer):
    data.words([0x11, 0x22])
    client.run(
        op(Opcode.MEM_TO_REG, 0xB991 | 2 << 19, *halves(data.gpu))
        + op(Opcode.REG_TO_MEM, 0xB991 | 3 << 18, *halves(data.gpu + 0x20))
        + op(Opcode.REG_TO_MEM, 0xB992, *halves(data.gpu + 0x40))
    )
    assert data.read(8, 0x20) == struct.pack("<2I", 0x11, 0x22)
    assert data.u32(0x28) == 0xDEADBEEF  # a register that this submission did not write holds leftovers
    assert data.read(8, 0x40) == struct.pack("<2I", 0x22, 0)


def test_reg_to_mem_accumulates(client: Client, data: Buffer):
    data.write((0x1_0000_0005).to_bytes(8, "little"))
    stream = reg(0xB991, 0xFFFFFFFF, 1)
    stream += op(Opcode.REG_TO_MEM, 0xB991 | 1 << 30 | 1 << 31, *halves(data.gpu))
    stream += op(Opcode.REG_TO_MEM, 0xB991 | 1 << 31, *halves(data.gpu + 0x10))
    client.run(stream)
    assert data.u64() == 0x1_0000_0005 + 0x1_FFFF_FFFF
    assert data.u64(0x10) == 0xFFFFFFFF


def test_reg_rmw_masks_rotates_and_combines(client: Client, data: Buffer):
    client.run(
        reg(0xB991, 0x8000_00F0)
        + op(Opcode.REG_RMW, 0xB991 | 4 << 24, 0x8000_00FF, 1)
        + op(Opcode.REG_TO_MEM, 0xB991, *halves(data.gpu))
        + reg(0xB993, 0x10)
        + op(Opcode.REG_RMW, 0xB991 | 1 << 29 | 1 << 30, 0xFFFFFFFF, 0xB993)
        + op(Opcode.REG_TO_MEM, 0xB991, *halves(data.gpu + 4))
        + op(Opcode.REG_RMW, 0xB991 | 1 << 31, 0xB993, 2)
        + op(Opcode.REG_TO_MEM, 0xB991, *halves(data.gpu + 8))
    )
    assert data.u32(0) == 0xF08 | 1
    assert data.u32(4) == 0xF09 + 0x10
    assert data.u32(8) == 0x10 | 2


def test_reg_write_writes_one_register(client: Client, data: Buffer):
    client.run(op(Opcode.REG_WRITE, 2, 0xB991, 0x77) + op(Opcode.REG_TO_MEM, 0xB991, *halves(data.gpu)))
    assert data.u32() == 0x77


@pytest.mark.parametrize(
    ("first", "second", "runs"), [(1, 4, True), (0, 4, False), (1, 5, False), (1, 0xFFFFFFFF, True)]
)
def test_cond_exec_skips_dwords(client: Client, data: Buffer, first, second, runs):
    data.words([first, second])
    body = mem_write(data.gpu + 0x20, 1)
    client.run(
        op(Opcode.COND_EXEC, *halves(data.gpu), *halves(data.gpu + 4), 5, len(body))
        + body
        + mem_write(data.gpu + 0x24, 2)
    )
    assert data.u32(0x20) == int(runs)
    assert data.u32(0x24) == 2


def test_cond_exec_past_the_end_is_an_error(client: Client, data: Buffer):
    report = client.lost(op(Opcode.COND_EXEC, *halves(data.gpu), *halves(data.gpu + 4), 5, 9))
    assert report.kind == "bad packet" and "past the end" in report.message


@pytest.mark.parametrize(("value", "written"), [(5, True), (4, False)])
def test_cond_write5_writes_if_the_test_passes(client: Client, data: Buffer, value, written):
    data.words([value])
    client.run(
        op(Opcode.COND_WRITE5, 5 | 1 << 4 | 1 << 8, *halves(data.gpu), 5, 0xFF, *halves(data.gpu + 8), 9)
    )
    assert data.u32(8) == (9 if written else 0)


def test_event_writes_value_or_timestamp(client: Client, data: Buffer, machine: Machine):
    before = machine.now()
    client.run(
        event(4, data.gpu, 0x1234)
        + event(49)
        + event(22, data.gpu + 8, 5)
        + event(4, data.gpu + 16, 0xFFFF, flags=1 << 30)
    )
    assert (data.u32(), data.u32(4), data.u32(8)) == (0x1234, 0, 5)
    assert int(before * TICKS) <= data.u64(16) <= int(machine.now() * TICKS)


def test_always_on_counter_is_read_as_a_pair_and_counts_machine_time(
    client: Client, data: Buffer, machine: Machine
):
    client.run([0x703E8003, 0x40080980, *halves(data.gpu)])
    machine.sleep(2.0)
    client.run([0x703E8003, 0x40080980, *halves(data.gpu + 8)])
    ticks = data.u64(8) - data.u64()
    assert 2.0 * TICKS <= ticks <= 2.001 * TICKS


def test_indirect_buffers_nest_two_deep(client: Client, data: Buffer):
    inner = client.buffer()
    inner.words(mem_write(data.gpu, 1))
    client.run(indirect(inner.gpu, 4) + mem_write(data.gpu + 4, 2))
    assert (data.u32(), data.u32(4)) == (1, 2)
    inner.words(indirect(data.gpu, 1))
    report = client.lost(indirect(inner.gpu, 4))
    assert report.kind == "bad packet" and "nest 2 deep" in report.message


def test_wait_reg_mem_blocks_until_the_client_writes(client: Client, data: Buffer, machine: Machine):
    timestamp = client.submit(wait_mem(data.gpu, 5) + mem_write(data.gpu + 4, 1))
    machine.sleep(0.5)
    assert data.u32(4) == 0 and client.retired() == 0
    data.words([5])
    client.wait(timestamp)
    assert data.u32(4) == 1


@pytest.mark.parametrize(
    ("function", "reference", "passes"),
    [
        (0, 0, True),
        (1, 8, True),
        (1, 7, False),
        (2, 7, True),
        (3, 7, True),
        (4, 7, False),
        (5, 7, True),
        (6, 7, False),
    ],
)
def test_wait_reg_mem_functions(client: Client, data: Buffer, machine: Machine, function, reference, passes):
    data.words([0xF7])
    client.submit(wait_mem(data.gpu, reference, function, 0x0F))
    machine.sleep(0.1)
    assert client.retired() == int(passes)


def test_wait_reg_mem_compares_signed_on_demand(client: Client, data: Buffer, machine: Machine):
    data.words([0xFFFFFFFF])
    client.submit(op(Opcode.WAIT_REG_MEM, 1 | 8 | 1 << 4, *halves(data.gpu), 0, 0xFFFFFFFF, 0))
    machine.sleep(0.1)
    assert client.retired() == 1


def test_wait_reg_mem_polls_registers(client: Client, data: Buffer):
    client.run(reg(0xB991, 3) + op(Opcode.WAIT_REG_MEM, 3, 0xB991, 0, 3, 0xFF, 0))


def test_wait_mem_gte_compares_signed(client: Client, data: Buffer, machine: Machine):
    data.words([0xFFFFFFFF])
    timestamp = client.submit(op(Opcode.WAIT_MEM_GTE, 0, *halves(data.gpu), 1))
    machine.sleep(0.1)
    assert client.retired() == 0
    data.words([1])
    client.wait(timestamp)


def test_contexts_of_other_priority_go_on_while_one_waits(client: Client, data: Buffer):
    other = client.create_context(0x04001A12)
    waiting = client.submit(wait_mem(data.gpu, 1))
    client.wait(client.submit(mem_write(data.gpu, 1), context=other), context=other)
    client.wait(waiting)


@pytest.mark.parametrize(
    ("name", "stream", "kind", "message"),
    [
        ("zero header", [0], "bad packet", "type 0"),
        ("opcode parity", [type7_header(Opcode.NOP, 0) ^ 1 << 23], "bad packet", "parity bit of its opcode"),
        ("count parity", [type7_header(Opcode.NOP, 0) ^ 1 << 15], "bad packet", "parity bit of its count"),
        (
            "register parity",
            [type4_header(0xB991, 1) ^ 1 << 27, 0],
            "bad packet",
            "parity bit of its register",
        ),
        (
            "type 4 count parity",
            [type4_header(0xB991, 1) ^ 1 << 7, 0],
            "bad packet",
            "parity bit of its count",
        ),
        ("unknown opcode", [type7_header(0x7E, 0)], "bad packet", "opcode 0x7e is not known"),
        ("graphics opcode", [type7_header(Opcode.BLIT, 0)], "bad packet", "BLIT is not modelled"),
        (
            "payload size",
            [type7_header(Opcode.EXEC_CS, 2), 0, 0],
            "bad packet",
            "EXEC_CS with 2 payload dwords",
        ),
        ("truncated", [type7_header(Opcode.EXEC_CS, 4), 0], "bad packet", "buffer ends after 1"),
        ("unknown register", reg(0x1234, 1), "bad state", "register 0x1234"),
        ("read-only register", reg(0x0980, 1), "bad state", "CP_ALWAYS_ON_COUNTER_LO is read-only"),
        ("end of an array", reg(0xA9B9, 0, 0, 0, 0, 0, 0), "bad state", "register 0xa9be"),
        ("reserved register bits", reg(0xA9B1, 1 << 20), "bad state", "SP_CS_CNTL_1 := 0x100000"),
        ("read of unknown register", op(Opcode.REG_TO_MEM, 0x1234, 0, 0), "bad state", "register 0x1234"),
        ("graphics event", event(30), "bad packet", "event BLIT"),
        ("event without value", event(4), "bad packet", "takes an address and a value"),
        ("event with needless value", event(49, 0x40_0000_0000), "bad packet", "takes no address"),
        ("reserved event bits", event(4, 0x40_0000_0000, flags=1 << 20), "bad packet", "reserved bits"),
        ("unaligned write", mem_write(0x40_0000_0002, 1), "bad packet", "not 4-byte aligned"),
        ("scratch poll", op(Opcode.WAIT_REG_MEM, 2 << 4, 0, 0, 0, 0, 0), "bad packet", "polling of SCRATCH"),
        ("poll that writes", op(Opcode.WAIT_REG_MEM, 1 << 8, 0, 0, 0, 0, 0), "bad packet", "WRITE_MEMORY"),
        ("comparison 7", op(Opcode.WAIT_REG_MEM, 7 | 1 << 4, 0, 0, 0, 0, 0), "bad packet", "function 7"),
        ("graphics marker", op(Opcode.SET_MARKER, 4), "bad packet", "only MODE=COMPUTE"),
        ("kernel marker", op(Opcode.SET_MARKER, 0x101), "bad packet", "for the kernel only"),
        (
            "yield with operands",
            op(Opcode.CONTEXT_SWITCH_YIELD, 1, 0, 0, 0),
            "bad packet",
            "operands of zero",
        ),
        ("shifted MEM_TO_REG", op(Opcode.MEM_TO_REG, 1 << 30, 0, 0), "bad packet", "SHIFT_BY_2"),
        ("empty buffer", indirect(0x40_0000_0000, 0), "bad packet", "0 dwords"),
        ("launch without state", op(Opcode.EXEC_CS, 0, 1, 1, 1), "bad state", "launch without SP_CS_CNTL_0"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_bad_streams_lose_the_context_with_a_named_error(client: Client, name, stream, kind, message):
    report = client.lost(op(Opcode.NOP) + stream)
    assert report.kind == kind
    assert message in report.message
    assert "IB1" in report.packet and "+0x4" in report.packet


def test_page_faults_name_address_packet_and_nearest_allocation(client: Client, data: Buffer):
    report = client.lost(mem_write(data.gpu + 0x1000, 1))
    assert report.kind == "memory" and "write" in report.message
    assert report.address == data.gpu + 0x1000
    assert "MEM_WRITE" in report.packet
    assert "0x0 bytes past the end of object" in report.nearest and "'data'" in report.nearest


def test_an_unbacked_indirect_buffer_faults_when_it_is_fetched(client: Client):
    timestamp = client.call(client.command((0x40_0000_0000, 64))).timestamp
    assert timestamp == 1
    with pytest.raises(OSError):
        client.wait(1)
    report = client.machine.explain(client.fd, client.context)
    assert report.kind == "memory" and report.address == 0x40_0000_0000


def test_writes_to_gpu_read_only_memory_fault(client: Client):
    constant = client.buffer(flags=1 << 24)
    report = client.lost(mem_write(constant.gpu, 1))
    assert report.kind == "memory" and "read-only" in report.nearest
    assert constant.u32() == 0


def test_packets_that_change_nothing_are_accepted(client: Client, executor: FakeExecutor):
    client.run(
        op(Opcode.YIELD_ENABLE, 1)
        + op(Opcode.PREEMPT_ENABLE_GLOBAL, 0)
        + op(Opcode.PREEMPT_ENABLE_LOCAL, 1)
        + op(Opcode.PREEMPT_DISABLE, 1)
        + op(Opcode.SKIP_IB2_ENABLE_GLOBAL, 0)
        + op(Opcode.SET_MODE, 0)
        + op(Opcode.CONTEXT_SWITCH_YIELD, 0, 0, 0, 0)
        + op(Opcode.INTERRUPT, 7)
        + op(Opcode.WAIT_FOR_ME)
        + op(Opcode.INVALIDATE_STATE, 0)
    )
    assert not executor.ran
