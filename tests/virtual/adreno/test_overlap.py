"""Programs in flight: in strict mode they run in any order that the commands allow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringfence.errors import FaultReport
from ringfence.hardware.adreno.packets import Opcode
from ringfence.virtual.adreno.command_processor import MAX_IN_FLIGHT
from ringfence.virtual.isa.ir3.dispatch import Dispatch
from ringfence.virtual.machine import Machine
from ringfence.virtual.memory import AddressSpace
from virtual.adreno.client import Client, FakeExecutor, dispatch, event, mem_write, op, wait_mem

CACHE_FLUSH_TS = 4
IDLE = op(Opcode.WAIT_FOR_IDLE)
SEEDS = range(12)

Action = Callable[[Dispatch, AddressSpace], FaultReport | None]


class Run:
    """A machine of its own; ``launch`` makes program n, told by its number of work-groups."""

    def __init__(self, seed: int = 0, *, strict: bool = True, action: Action | None = None) -> None:
        self.executor = FakeExecutor(action)
        self.machine = Machine(
            clock="virtual", seed=seed, strict=strict, executor_factory=lambda: self.executor
        )
        self.client = Client(self.machine)
        self.code, self.constants = self.client.buffer(flags=0), self.client.buffer(flags=0)
        self.data = self.client.buffer(flags=0)

    def launch(self, number: int) -> list[int]:
        groups = number, 1, 1
        return dispatch(self.code.gpu, self.constants.gpu, groups=groups, skip=("idle",))

    def order(self, words: list[int]) -> tuple[int, ...]:
        """The order in which the programs ran."""
        with self.machine:
            ring = self.client.buffer(max(4096, 4 * len(words)), flags=0)
            ring.words(words)
            self.client.wait(self.client.call(self.client.command((ring.gpu, 4 * len(words)))).timestamp)
            return tuple(dispatch.groups[0] for dispatch in self.executor.ran)


def orders(*parts: int | list[int], strict: bool = True) -> set[tuple[int, ...]]:
    """Every order that was seen; numbers are programs."""
    seen = set()
    for seed in SEEDS:
        run = Run(seed, strict=strict)
        seen.add(run.order([w for p in parts for w in (run.launch(p) if isinstance(p, int) else p)]))
    return seen


def test_programs_without_a_wait_between_them_run_in_any_order():
    assert orders(1, 2) == {(1, 2), (2, 1)}
    assert len(orders(1, 2, 3)) > 3


def test_the_seed_decides_the_order():
    runs = [Run(7) for _ in range(3)]
    assert len({run.order([*run.launch(1), *run.launch(2), *run.launch(3)]) for run in runs}) == 1


def test_waiting_for_idle_keeps_the_order():
    assert orders(1, IDLE, 2) == {(1, 2)}
    assert all(set(order[:2]) == {1, 2} for order in orders(1, 2, IDLE, 3))


def test_fast_mode_runs_each_program_at_once():
    assert orders(1, 2, 3, strict=False) == {(1, 2, 3)}


def test_cache_events_alone_order_nothing():
    assert len(orders(1, event(49), 2)) == 2


def test_everything_has_run_when_the_submission_retires():
    assert {len(order) for order in orders(*range(1, 3 * MAX_IN_FLIGHT))} == {3 * MAX_IN_FLIGHT - 1}


def test_no_more_programs_wait_than_a_gpu_has_in_flight():
    for order in orders(*range(1, 3 * MAX_IN_FLIGHT)):
        for place, number in enumerate(order):
            assert place + MAX_IN_FLIGHT >= number, "the command processor went on without it for too long"


@pytest.mark.parametrize("seed", SEEDS)
def test_an_event_stores_its_value_after_the_programs_before_it(seed: int):
    values: dict[int, int] = {}
    run = Run(seed, action=lambda dispatch, memory: values.update({dispatch.groups[0]: run.data.u32()}))
    stream = [*run.launch(1), *event(CACHE_FLUSH_TS, run.data.gpu, 5), *run.launch(2)]
    run.order(stream)
    assert values[1] == 0 and values[2] in (0, 5) and run.data.u32() == 5


@pytest.mark.parametrize("seed", SEEDS)
def test_a_poll_for_an_event_waits_for_the_programs_before_it(seed: int):
    run = Run(seed)
    address = run.data.gpu
    stream = [*run.launch(1), *event(CACHE_FLUSH_TS, address, 5), *wait_mem(address, 5), *run.launch(2)]
    assert run.order(stream) == (1, 2)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_poll_for_what_a_program_stores_is_no_hang(seed: int):
    run = Run(seed, action=lambda dispatch, memory: memory.write_u32(run.data.gpu, dispatch.groups[0]))
    assert run.order([*run.launch(3), *wait_mem(run.data.gpu, 3), *run.launch(4)]) == (3, 4)


def test_the_command_processor_itself_does_not_wait():
    """A store by a packet may come before the programs in front of it."""

    def seen_by_program(seed: int) -> int:
        seen: list[int] = []
        run = Run(seed, action=lambda dispatch, memory: seen.append(run.data.u32()))
        run.order([*run.launch(1), *mem_write(run.data.gpu, 7)])
        return seen[0]

    assert {seen_by_program(seed) for seed in SEEDS} == {0, 7}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fault_names_the_packet_that_started_the_program(seed: int):
    report = FaultReport("memory", "made up")
    run = Run(seed, action=lambda dispatch, memory: report if dispatch.groups[0] == 2 else None)
    found = run.client.lost([*run.launch(1), *run.launch(2), *run.launch(3), *IDLE])
    assert found.packet is not None and "EXEC_CS(0x0, 0x2, 0x1, 0x1)" in found.packet


def test_whoever_looks_at_each_program_sees_them_in_order_with_their_state():
    run = Run(3)
    seen = []
    run.machine.on_dispatch = lambda state, dispatch: seen.append(
        (dispatch.groups[0], state.launch().global_size[0])
    )
    run.order([word for number in (3, 1, 2) for word in run.launch(number)])
    assert seen == [(3, 192), (1, 64), (2, 128)]
