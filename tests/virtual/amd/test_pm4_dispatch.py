"""From registers to launches: what a dispatch needs, what it becomes, and what is refused by name."""

from __future__ import annotations

import struct

import pytest

from ringfence.errors import FaultReport
from ringfence.hardware.amd.pm4 import Opcode
from ringfence.virtual.machine import Machine
from virtual.amd.client import (
    FLUSH,
    PAGE,
    RSRC1,
    RSRC2,
    WAVE32,
    WAVE64,
    Buffer,
    Client,
    FakeExecutor,
    Queue,
    dispatch,
    halves,
    indirect,
    op,
    sh,
    wait_memory,
    write,
)

END = 0xBFB00000  # s_endpgm
NOP = 0xBF800000  # s_nop 0
SETPC = 0xBE804800  # s_setpc_b64 s[0:1]


@pytest.fixture
def queue(client: Client) -> Queue:
    return Queue(client)


@pytest.fixture
def code(client: Client) -> Buffer:
    """An object with a program of three instructions at its beginning and another at 0x200."""
    buffer = client.buffer(2 * PAGE)
    buffer.words([NOP, NOP, END])
    buffer.words([NOP, END], 0x200)
    return buffer


# ----- what becomes of registers ------------------------------------------------------------------


def test_a_launch_has_what_the_registers_say(
    client: Client, queue: Queue, code: Buffer, executor: FakeExecutor
):
    queue.run([*dispatch(code.address, 0x1234_5678_9ABC, groups=(2, 3, 4), local=(8, 4, 2)), *FLUSH])
    (ran,) = executor.ran
    assert (ran.groups, ran.local, ran.wave) == ((2, 3, 4), (8, 4, 2), 32)
    assert (ran.rsrc1, ran.rsrc2) == (RSRC1, RSRC2)
    assert ran.user_data == (0x5678_9ABC, 0x1234)
    assert (ran.address, ran.entry, ran.scratch_bytes) == (code.address, 0, 0)


def test_wave64_comes_from_the_initiator(client: Client, queue: Queue, code: Buffer, executor: FakeExecutor):
    queue.run(dispatch(code.address, initiator=WAVE64))
    assert executor.ran[0].wave == 64


def test_the_code_is_what_control_can_reach(
    client: Client, queue: Queue, code: Buffer, executor: FakeExecutor
):
    queue.run([*dispatch(code.address), *FLUSH, *dispatch(code.address + 0x200)])
    assert [ran.code for ran in executor.ran] == [
        struct.pack("<3I", NOP, NOP, END),
        struct.pack("<2I", NOP, END),
    ]
    assert executor.ran[1].address == code.address + 0x200


def test_code_with_indirect_jumps_is_the_object_and_pointers_in_it_are_functions(
    client: Client, queue: Queue, code: Buffer, executor: FakeExecutor
):
    code.words([SETPC])
    code.write((code.address + 0x200).to_bytes(8, "little"), 0x800)
    code.write((code.address + 0x300).to_bytes(8, "little"), 0x808)
    code.words([0xFFFFFFFF], 0x300)
    queue.run(dispatch(code.address))
    ran = executor.ran[0]
    assert len(ran.code) == 2 * PAGE and ran.functions == (0x200,)


def test_code_that_ends_just_before_unmapped_memory_is_noted(client: Client, queue: Queue, code: Buffer):
    def noted() -> bool:
        return "AMD instruction prefetch" in [note.topic for note in client.machine.notes]

    queue.run(dispatch(code.address))
    assert not noted()
    code.words([END], 2 * PAGE - 256)
    queue.run(dispatch(code.address + 2 * PAGE - 256))
    assert noted()


def test_changed_code_is_noticed(client: Client, queue: Queue, code: Buffer, executor: FakeExecutor):
    queue.run(dispatch(code.address))
    code.words([NOP, END])
    queue.run(dispatch(code.address))
    assert [len(ran.code) for ran in executor.ran] == [12, 8]


def test_another_object_at_the_same_address_is_noticed(
    client: Client, queue: Queue, code: Buffer, executor: FakeExecutor
):
    queue.run(dispatch(code.address))
    address = code.address
    code.free()
    report = queue.lost(dispatch(address))
    assert report.kind == "memory" and report.address == address


def test_registers_keep_their_values(client: Client, queue: Queue, code: Buffer, executor: FakeExecutor):
    queue.run(dispatch(code.address, 5))
    queue.run(op(Opcode.DISPATCH_DIRECT, 9, 1, 1, WAVE32))
    assert [ran.groups[0] for ran in executor.ran] == [1, 9]
    assert executor.ran[1].user_data == (5, 0)


def test_every_queue_has_registers_of_its_own(client: Client, queue: Queue, code: Buffer):
    queue.run(dispatch(code.address))
    report = Queue(client).lost(op(Opcode.DISPATCH_DIRECT, 1, 1, 1, WAVE32))
    assert "which nothing has written" in report.message


def test_user_registers_that_nothing_wrote_hold_a_pattern(
    client: Client, queue: Queue, code: Buffer, executor: FakeExecutor
):
    queue.run(dispatch(code.address, 7, rsrc2=RSRC2 & ~0x3E | 4 << 1))
    assert executor.ran[0].user_data == (7, 0, 0xDEADBEEF, 0xDEADBEEF)


def test_the_dimensions_may_come_from_memory(
    client: Client, queue: Queue, code: Buffer, executor: FakeExecutor
):
    sizes = client.buffer()
    sizes.words([3, 2, 1])
    queue.run(dispatch(code.address, dispatch=op(Opcode.DISPATCH_INDIRECT, *halves(sizes.address), WAVE32)))
    assert executor.ran[0].groups == (3, 2, 1)


def test_dimensions_in_work_items(client: Client, queue: Queue, code: Buffer, executor: FakeExecutor):
    queue.run(dispatch(code.address, groups=(128, 2, 1), local=(32, 2, 1), initiator=WAVE32 | 1 << 5))
    assert executor.ran[0].groups == (4, 1, 1)


@pytest.mark.parametrize("groups", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_no_groups_run_nothing(
    client: Client, queue: Queue, code: Buffer, executor: FakeExecutor, groups: tuple[int, int, int]
):
    queue.run(dispatch(code.address, groups=groups))
    assert executor.ran == []


# ----- scratch memory -----------------------------------------------------------------------------

ENGINES = 6


def scratch(base: int, waves: int, size: int) -> dict[str, list[int]]:
    return {"ring": sh(0x2E18, waves | size << 12), "scratch": sh(0x2E10, *halves(base >> 8))}


def test_private_memory_comes_from_the_scratch_ring(
    client: Client, queue: Queue, code: Buffer, executor: FakeExecutor
):
    memory = client.buffer(ENGINES * 32 * 4 * 256)
    queue.run(dispatch(code.address, rsrc2=RSRC2 | 1, **scratch(memory.address, 32, 4)))
    assert executor.ran[0].scratch_bytes == 16


def test_scratch_memory_must_be_mapped_whole(client: Client, queue: Queue, code: Buffer):
    memory = client.buffer(ENGINES * 32 * 4 * 256 - PAGE)
    report = queue.lost(dispatch(code.address, rsrc2=RSRC2 | 1, **scratch(memory.address, 32, 4)))
    assert report.kind == "memory" and report.address == memory.address + memory.size
    assert "scratch memory" in (report.nearest or "")


def test_scratch_without_a_size_is_an_error(client: Client, queue: Queue, code: Buffer):
    assert "WAVESIZE=0" in queue.lost(dispatch(code.address, rsrc2=RSRC2 | 1)).message


@pytest.mark.parametrize(
    ("part", "name"), [("ring", "COMPUTE_TMPRING_SIZE"), ("scratch", "COMPUTE_DISPATCH_SCRATCH_BASE_HI")]
)
def test_scratch_registers_that_nothing_wrote(
    client: Client, queue: Queue, code: Buffer, part: str, name: str
):
    memory = client.buffer(ENGINES * 32 * 4 * 256)
    parts = scratch(memory.address, 32, 4)
    del parts[part]
    report = queue.lost(dispatch(code.address, rsrc2=RSRC2 | 1, skip=(part,), **parts))
    assert report.kind == "bad state" and f"needs {name}" in report.message


# ----- what is missing or wrong -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("program", "COMPUTE_PGM_HI"),
        ("resources", "COMPUTE_PGM_RSRC1"),
        ("threads", "COMPUTE_NUM_THREAD_X"),
    ],
)
def test_a_dispatch_says_which_register_nothing_has_written(
    client: Client, queue: Queue, code: Buffer, part: str, name: str
):
    report = queue.lost(dispatch(code.address, skip=(part,)))
    assert report.kind == "bad state" and f"the dispatch needs {name}" in report.message
    assert report.packet is not None and "DISPATCH_DIRECT(0x1, 0x1, 0x1, 0x8005)" in report.packet


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"local": (0, 1, 1)}, "0x1x1 work-items"),
        ({"local": (1025, 1, 1)}, "1025x1x1"),
        ({"local": (64, 4, 5)}, "64x4x5"),
        ({"initiator": 0x8004}, "COMPUTE_SHADER_EN"),
        ({"initiator": WAVE32 | 1 << 12}, "reserved bits"),
        ({"initiator": WAVE32 | 1 << 3}, "ORDERED_APPEND_ENBL"),
        ({"initiator": WAVE32 | 1 << 20}, "reserved bits"),
        ({"initiator": WAVE32 | 1 << 5, "groups": (100, 1, 1)}, "partial work-groups"),
        ({"restart": sh(0x2E1B, 0, 1, 0)}, "COMPUTE_RESTART_Y is 1"),
        ({"initiator": 0x8001, "threads": sh(0x2E04, 2, 0, 0, 64, 1, 1)}, "COMPUTE_START_X is 2"),
        ({"rsrc2": RSRC2 | 129 << 15}, "LDS_SIZE asks for 66048"),
        ({"rsrc2": RSRC2 | 1 << 6}, "TRAP_PRESENT"),
        ({"rsrc2": RSRC2 | 1 << 24}, "EXCP_EN"),
        ({"resource3": sh(0x2E28, 1 << 10)}, "TRAP_ON_START"),
        ({"resource3": sh(0x2E28, 2)}, "SHARED_VGPR_CNT"),
        ({"rsrc2": RSRC2 | 31 << 1}, "USER_SGPR=31"),
        ({"rsrc1": RSRC1 & ~(1 << 29) | 31, "local": (1024, 1, 1)}, "256 VGPRs each: a CU can hold 10"),
    ],
)  # fmt: skip
def test_what_no_compute_unit_can_do_is_refused(
    client: Client, queue: Queue, code: Buffer, changed: dict, text: str
):
    report = queue.lost(dispatch(code.address, **changed))
    assert report.kind in ("bad state", "bad packet") and text in report.message, report


def test_start_is_ignored_if_the_initiator_says_so(client: Client, queue: Queue, code: Buffer):
    queue.run(dispatch(code.address, threads=sh(0x2E04, 2, 0, 0, 64, 1, 1)))


def test_limits_are_allowed_exactly(client: Client, queue: Queue, code: Buffer, executor: FakeExecutor):
    queue.run(dispatch(code.address, rsrc2=RSRC2 | 128 << 15, local=(1024, 1, 1)))
    assert executor.ran[0].shared_bytes == 64 << 10


def test_code_that_is_not_mapped(client: Client, queue: Queue):
    report = queue.lost(dispatch(0x10_0000_0000))
    assert report.kind == "memory" and report.address == 0x10_0000_0000


# ----- graphs -------------------------------------------------------------------------------------


def test_a_replayed_buffer_with_another_argument_block_is_another_launch(
    client: Client, queue: Queue, code: Buffer, executor: FakeExecutor
):
    ib = client.buffer(2 * PAGE)
    for base in (0x1000, 0x2000, 0x1000):
        words = [w for i in range(10) for w in (*dispatch(code.address, base + i), *FLUSH)]
        ib.words(words)
        queue.run(indirect(ib.address, len(words)))
    assert [ran.user_data[0] for ran in executor.ran] == [
        base + i for base in (0x1000, 0x2000, 0x1000) for i in range(10)
    ]


def test_programs_are_translated_ahead(client: Client, queue: Queue, code: Buffer, executor: FakeExecutor):
    ib, gate = client.buffer(), client.buffer()
    words = [*dispatch(code.address), *FLUSH, *dispatch(code.address + 0x200)]
    ib.words(words)
    queue.submit([*wait_memory(gate.address, 1), *indirect(ib.address, len(words)), *client.signal()])
    client.machine.sleep(0.01)
    assert executor.ran == []
    assert [len(each.code) for each in executor.prepared] == [12, 8]
    gate.words([1])
    client.wait()
    assert len(executor.ran) == 2


def test_whoever_looks_at_dispatches_sees_the_registers(client: Client, queue: Queue, code: Buffer):
    seen = []
    client.machine.on_dispatch = lambda registers, launch: seen.append((registers.snapshot(), launch.groups))
    queue.run(dispatch(code.address, 5, groups=(7, 1, 1)))
    ((registers, groups),) = seen
    assert registers["COMPUTE_USER_DATA_0"] == 5 and registers["COMPUTE_NUM_THREAD_X"] == 64
    assert groups == (7, 1, 1)


def test_dispatches_take_time_on_the_virtual_clock():
    with Machine(("gfx1100",), clock="virtual", executor_factory=FakeExecutor) as machine:
        client = Client(machine)
        queue, code = Queue(client), client.buffer()
        code.words([END])
        stamps = client.buffer()
        clock = [
            w
            for i in range(2)
            for w in (
                *FLUSH,
                *op(Opcode.COPY_DATA, 9 | 5 << 8 | 1 << 16, 0, 0, *halves(stamps.address + 8 * i)),
                *dispatch(code.address, groups=(1000, 1, 1)),
            )
        ]
        queue.run(clock)
        assert 20_000 <= stamps.u64(8) - stamps.u64() < 30_000, "1000 groups of 0.2 us at 100 MHz"


def test_a_program_that_fails_stops_the_queue(queue: Queue, client: Client, code: Buffer, executor):
    executor.action = lambda run, memory: FaultReport("illegal instruction", "no such thing", run.name, pc=8)
    report = queue.lost([*dispatch(code.address), *FLUSH, *write(code.address, 1)])
    assert report.kind == "illegal instruction" and report.program == f"program {code.address:#x}"
    assert report.packet is not None and "DISPATCH_DIRECT" in report.packet
