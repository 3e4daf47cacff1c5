"""The packets of a compute queue: what each does, and what is refused by name."""

from __future__ import annotations

import pytest

from ringfence.hardware.amd.pm4 import Opcode
from ringfence.virtual.faults import EarlyWake, Hang, LostCompletion
from ringfence.virtual.machine import Machine
from virtual.amd.client import (
    ACQUIRE,
    FLUSH,
    HDP_FLUSH,
    PAGE,
    Buffer,
    Client,
    FakeExecutor,
    Queue,
    halves,
    indirect,
    op,
    release,
    sh,
    wait_memory,
    write,
)

FILLER = 0x80000000
NOP_ALONE = 0xFFFF1000


@pytest.fixture
def queue(client: Client) -> Queue:
    return Queue(client)


@pytest.fixture
def data(client: Client) -> Buffer:
    return client.buffer()


# ----- indirect buffers ---------------------------------------------------------------------------


def test_an_indirect_buffer_returns_to_the_ring(client: Client, queue: Queue, data: Buffer):
    ib = client.buffer()
    ib.words(write(data.address, 1))
    queue.run([*indirect(ib.address, 5), *write(data.address + 4, 2)])
    assert (data.u32(), data.u32(4)) == (1, 2)


def test_an_indirect_buffer_does_not_nest_but_chains(client: Client, queue: Queue, data: Buffer):
    first, second = client.buffer(), client.buffer()
    second.words(write(data.address, 2))
    chain = indirect(second.address, 5, 1 << 23 | 1 << 20)
    first.words([*chain, *write(data.address + 4, 3)])
    queue.run([*indirect(first.address, 9), *write(data.address + 8, 4)])
    assert [data.u32(4 * i) for i in range(3)] == [2, 0, 4], "a chain does not come back"
    first.words(indirect(second.address, 5))
    assert "do not nest" in queue.lost(indirect(first.address, 4)).message


@pytest.mark.parametrize(
    ("flags", "size", "text"),
    [
        (0, 5, "VALID"),
        (1 << 23 | 1 << 24, 5, "VMID"),
        (1 << 23 | 1 << 31, 5, "PRIV"),
        (1 << 23, 0, "0 dwords"),
    ],
)
def test_indirect_buffers_with_wrong_flags(client: Client, queue: Queue, flags: int, size: int, text: str):
    report = queue.lost(indirect(client.buffer().address, size, flags))
    assert report.kind == "bad packet" and text in report.message


def test_an_indirect_buffer_must_hold_whole_packets(client: Client, queue: Queue, data: Buffer):
    ib = client.buffer()
    ib.words(write(data.address, 1))
    report = queue.lost(indirect(ib.address, 4))
    assert "its buffer ends after 3" in report.message
    assert report.packet is not None and report.packet.startswith(f"IB {ib.address:#x}+0x0 WRITE_DATA")


def test_changed_words_of_a_remembered_buffer_are_seen(client: Client, queue: Queue, data: Buffer):
    ib = client.buffer()
    parts = [write(data.address + 8 * i, i) for i in range(20)]
    for turn in range(3):
        parts[turn * 5] = write(data.address + 8 * turn * 5, 1000 + turn)
        ib.words([word for part in parts for word in part])
        queue.run(indirect(ib.address, 100))
        for i in range(20):
            expected = 1000 + i // 5 if i % 5 == 0 and i <= turn * 5 else i
            assert data.u32(8 * i) == expected
    ib.words([0xC0012200])
    assert "COND_EXEC has 2 body dwords" in queue.lost(indirect(ib.address, 100)).message


def test_a_buffer_whose_packets_move_is_decoded_anew(client: Client, queue: Queue, data: Buffer):
    ib = client.buffer()
    ib.words([*write(data.address, 1), *write(data.address + 4, 2)])
    queue.run(indirect(ib.address, 10))
    ib.words([FILLER, *write(data.address, 3, 4, 5, 6), FILLER])
    queue.run(indirect(ib.address, 10))
    assert [data.u32(4 * i) for i in range(4)] == [3, 4, 5, 6]


# ----- memory -------------------------------------------------------------------------------------


def test_nops_and_fillers_do_nothing(client: Client, queue: Queue, data: Buffer):
    queue.run([FILLER, NOP_ALONE, *op(Opcode.NOP, 1, 2, 3), *ACQUIRE, *HDP_FLUSH, *write(data.address, 1)])
    assert data.u32() == 1


def test_write_data_to_one_address(client: Client, queue: Queue, data: Buffer):
    queue.run(op(Opcode.WRITE_DATA, 5 << 8 | 1 << 16, *halves(data.address), 1, 2, 3))
    assert (data.u32(), data.u32(4)) == (3, 0)


def test_release_mem_writes_32_bits_64_bits_or_the_clock(client: Client, queue: Queue, data: Buffer):
    a = data.address
    queue.run(
        [
            *release(a, 0x1_2345_6789, data=1),
            *release(a + 8, 0x1_2345_6789, data=2),
            *release(a + 16, 5, data=3),
            *release(a + 24, 7, data=0),
        ]
    )
    assert (data.u64(), data.u64(8), data.u64(24)) == (0x2345_6789, 0x1_2345_6789, 0)
    assert 0 <= client.machine.now() * 100e6 - data.u64(16) < 100e6


def test_copy_data_copies_memory_immediates_registers_and_the_clock(
    client: Client, queue: Queue, data: Buffer
):
    a = data.address
    data.words([11, 22])
    user = 0x2E40

    def copy(selects: int, source: tuple[int, int], target: tuple[int, int]) -> list[int]:
        return op(Opcode.COPY_DATA, selects, *source, *target)

    wide = 1 << 16
    queue.run(
        [
            *copy(1 | 5 << 8, halves(a), halves(a + 16)),
            *copy(1 | 2 << 8 | wide, halves(a), halves(a + 24)),
            *copy(5 | 5 << 8 | wide, (33, 44), halves(a + 32)),
            *copy(5 | 0 << 8, (55, 0), (user, 0)),
            *copy(0 | 5 << 8, (user, 0), halves(a + 40)),
            *copy(9 | 5 << 8 | wide, (0, 0), halves(a + 48)),
        ]
    )
    assert (data.u64(16), data.u64(24)) == (11, 22 << 32 | 11)
    assert (data.u64(32), data.u32(40)) == (44 << 32 | 33, 55)
    assert 0 <= client.machine.now() * 100e6 - data.u64(48) < 100e6


def test_dma_data_copies_and_fills(client: Client, queue: Queue, data: Buffer):
    data.write(bytes(range(64)))
    a = data.address
    queue.run(
        [
            *op(Opcode.DMA_DATA, 3 << 29 | 3 << 20, *halves(a), *halves(a + 100), 61),
            *op(Opcode.DMA_DATA, 2 << 29 | 3 << 20, 0x01020304, 0, *halves(a + 200), 6),
        ]
    )
    assert data.read(61, 100) == bytes(range(61))
    assert data.read(8, 200) == bytes((4, 3, 2, 1, 4, 3, 0, 0))


def test_atomic_mem_adds_64_bits(client: Client, queue: Queue, data: Buffer):
    data.write((0xFFFFFFFF).to_bytes(8, "little"))
    queue.run(op(Opcode.ATOMIC_MEM, 0x2F, *halves(data.address), 2, 0, 0, 0, 0))
    assert data.u64() == 0x1_0000_0001
    assert "0x2d" in queue.lost(op(Opcode.ATOMIC_MEM, 0x2D, *halves(data.address), 2, 0, 0, 0, 0)).message


# ----- waiting ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "value", "passes"),
    [
        (0, 9, True), (1, 4, True), (1, 5, False), (2, 5, True), (2, 6, False), (3, 5, True), (3, 6, False),
        (4, 6, True), (4, 5, False), (5, 5, True), (5, 4, False), (6, 6, True), (6, 5, False),
        (5, 0x80000000, True),
    ],
)  # fmt: skip
def test_wait_reg_mem_compares_unsigned(
    client: Client, queue: Queue, data: Buffer, function: int, value: int, passes: bool
):
    data.words([value])
    queue.submit([*wait_memory(data.address, 5, function), *write(data.address + 4, 1)])
    client.machine.sleep(0.1)
    assert data.u32(4) == int(passes)


def test_wait_reg_mem_masks_and_goes_on_when_memory_changes(client: Client, queue: Queue, data: Buffer):
    queue.submit([*wait_memory(data.address, 2, function=3, mask=0xF), *client.signal()])
    client.machine.sleep(0.1)
    data.words([0xF2])
    client.wait()


def test_wait_reg_mem_64(client: Client, queue: Queue, data: Buffer):
    body = 5 | 1 << 4, *halves(data.address), 0, 1, 0xFFFFFFFF, 0xFFFFFFFF, 4
    queue.submit([*op(Opcode.WAIT_REG_MEM64, *body), *client.signal()])
    client.machine.sleep(0.1)
    data.words([0xFFFFFFFF])
    client.machine.sleep(0.1)
    data.words([0, 1])
    client.wait()


def test_a_register_that_is_right_passes_and_an_unwritten_one_is_an_error(
    client: Client, queue: Queue, data: Buffer
):
    wait = op(Opcode.WAIT_REG_MEM, 3, 0x2E40, 0, 7, 0xFFFFFFFF, 4)
    queue.run([*sh(0x2E40, 7), *wait])
    report = Queue(client).lost(wait)
    assert "COMPUTE_USER_DATA_0 was read, but nothing has written it" in report.message


def test_two_queues_wait_for_each_other(client: Client, data: Buffer):
    one, two = Queue(client), Queue(client)
    a = data.address
    one.submit([*write(a, 1), *wait_memory(a + 4, 1), *write(a + 8, 1), *client.signal()])
    two.submit([*wait_memory(a, 1), *write(a + 4, 1)])
    client.wait()
    assert data.u32(8) == 1


def test_cond_exec_and_pred_exec_skip(client: Client, queue: Queue, data: Buffer):
    ib, a = client.buffer(), data.address
    data.words([0, 1])
    words = [
        *op(Opcode.COND_EXEC, *halves(a), 0, 5),
        *write(a + 16, 1),
        *op(Opcode.COND_EXEC, *halves(a + 4), 0, 5),
        *write(a + 20, 1),
        *op(Opcode.PRED_EXEC, 2 << 24 | 5),
        *write(a + 24, 1),
        *op(Opcode.PRED_EXEC, 1 << 24 | 5),
        *write(a + 28, 1),
    ]
    ib.words(words)
    queue.run(indirect(ib.address, len(words)))
    assert [data.u32(16 + 4 * i) for i in range(4)] == [0, 1, 0, 1]
    assert "in indirect buffers only" in queue.lost(op(Opcode.PRED_EXEC, 1 << 24 | 5)).message


def test_skipping_past_the_end_is_an_error(client: Client, queue: Queue, data: Buffer):
    ib = client.buffer()
    ib.words(op(Opcode.COND_EXEC, *halves(data.address), 0, 1))
    assert "past the end" in queue.lost(indirect(ib.address, 5)).message


# ----- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "kind", "text"),
    [
        ([0x00000000], "bad packet", "type 0"),
        ([0x80000001], "bad packet", "reserved bits"),
        ([0xC0000300, 0], "bad packet", "opcode 0x03"),
        (op(Opcode.SET_BASE, 0, 0, 0), "bad packet", "SET_BASE"),
        (op(Opcode.HDP_FLUSH, 0), "bad packet", "queues of the kernel"),
        (op(Opcode.SET_CONTEXT_REG, 0, 0), "bad packet", "SET_CONTEXT_REG"),
        (op(Opcode.ACQUIRE_MEM, 0, 0, 0, 0, 0, 0), "bad packet", "expected 7"),
        (op(Opcode.ACQUIRE_MEM, 0, 0, 0, 0, 0, 0, 1 << 20), "bad packet", "reserved bits"),
        (op(Opcode.ACQUIRE_MEM, 0, 0, 0, 0, 0, 0, 3 << 16), "bad packet", "SEQ"),
        (op(Opcode.EVENT_WRITE, 0x407 + 1), "bad packet", "not modelled"),
        (op(Opcode.EVENT_WRITE, 7), "bad packet", "EVENT_INDEX 4"),
        (op(Opcode.RELEASE_MEM, 0x514, 6 << 24, 0, 0, 0, 0, 0), "bad packet", "INT_SEL"),
        (op(Opcode.RELEASE_MEM, 0x514, 4 << 29, 0, 0, 0, 0, 0), "bad packet", "DATA_SEL"),
        (op(Opcode.RELEASE_MEM, 0x614, 0, 0, 0, 0, 0, 0), "bad packet", "EVENT_INDEX 5"),
        (op(Opcode.RELEASE_MEM, 0x514, 2 << 29, 4, 0, 0, 0, 0), "bad packet", "ADDRESS_LO"),
        (op(Opcode.WAIT_REG_MEM, 7 | 1 << 4, 0, 0, 0, 0, 0), "bad packet", "FUNCTION"),
        (op(Opcode.WAIT_REG_MEM, 5 | 1 << 4 | 1 << 8, 0, 0, 0, 0, 0), "bad packet", "ENGINE"),
        (op(Opcode.WAIT_REG_MEM, 5 | 1 << 6, 0xE26, 0xE28, 1, 1, 4), "bad packet", "HDP"),
        (op(Opcode.WRITE_DATA, 3 << 8, 0, 0, 1), "bad packet", "GDS"),
        (op(Opcode.WRITE_DATA, 0, 0x1234, 0, 1), "bad state", "register 0x1234"),
        (op(Opcode.WRITE_DATA, 0, 0xA9E3, 0, 1), "bad state", "SH_MEM_BASES cannot be written"),
        (op(Opcode.COPY_DATA, 4, 0, 0, 0, 0), "bad packet", "PERFCOUNTERS"),
        (op(Opcode.DMA_DATA, 1 << 29, 0, 0, 0, 0, 4), "bad packet", "GDS"),
        (sh(0x2C01, 0), "bad state", "register 0x2c01"),
        (sh(0x2E0D, 0x100), "bad state", "COMPUTE_PGM_HI"),
        (sh(0x2E00, 5), "bad state", "only dispatch packets write it"),
        (sh(0x2E14, 1), "bad state", "belongs to the kernel"),
        (op(Opcode.SET_SH_REG, 1 << 28 | 0x20C, 0), "bad packet", "INDEX"),
        (op(Opcode.SET_UCONFIG_REG, 0x1, 0), "bad state", "register 0xc001"),
    ],
)  # fmt: skip
def test_what_is_wrong_or_not_modelled_stops_the_queue_and_is_named(
    client: Client, queue: Queue, words: list[int], kind: str, text: str
):
    report = queue.lost(words)
    assert (report.kind, text in report.message) == (kind, True), report
    assert report.packet is not None and report.packet.startswith("ring")


def test_a_known_user_configuration_register_may_be_written(client: Client, queue: Queue):
    queue.run(op(Opcode.SET_UCONFIG_REG, 0x200, 0xE0000000))


# ----- faults on demand ---------------------------------------------------------------------------


def test_a_value_can_get_lost(client: Client, queue: Queue, data: Buffer):
    client.machine.faults.add(LostCompletion(what="signal"))
    queue.run([*release(data.address, 1), *release(data.address + 8, 2)])
    assert (data.u64(), data.u64(8)) == (0, 2)


def test_a_poll_can_pass_early(client: Client, queue: Queue, data: Buffer):
    client.machine.faults.add(EarlyWake(what="poll"))
    queue.run(wait_memory(data.address, 1))


def test_a_queue_can_hang_before_a_packet(client: Client, queue: Queue, data: Buffer):
    client.machine.faults.add(Hang(nth=2))
    report = queue.lost([*write(data.address, 1), *write(data.address + 4, 2)])
    assert report.kind == "hang" and "it stopped" in report.message
    assert (data.u32(), data.u32(4)) == (1, 0)


def test_flush_without_programs_does_nothing(client: Client, queue: Queue):
    queue.run(FLUSH)


def test_packets_cost_time_on_the_virtual_clock():
    def seconds(count: int) -> float:
        with Machine(("gfx1100",), clock="virtual", executor_factory=FakeExecutor) as machine:
            client = Client(machine)
            queue, data = Queue(client), client.buffer(PAGE)
            before = machine.now()
            queue.run([w for _ in range(count) for w in write(data.address, 1)])
            return machine.now() - before

    assert seconds(150) > seconds(10)
