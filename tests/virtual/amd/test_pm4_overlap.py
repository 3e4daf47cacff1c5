"""Programs in flight: in strict mode they run in any order that the packets allow."""

from __future__ import annotations

from ringfence.virtual.amd.command_processor import MAX_IN_FLIGHT
from ringfence.virtual.machine import Machine
from virtual.amd.client import FLUSH, Client, FakeExecutor, Queue, dispatch, release, wait_memory, write

SEEDS = range(12)
END = 0xBFB00000


class Run:
    """A machine of its own; ``launch`` makes program n, told by its number of work-groups."""

    def __init__(self, seed: int, strict: bool = True) -> None:
        self.executor = FakeExecutor()
        self.machine = Machine(
            ("gfx1100",), clock="virtual", seed=seed, strict=strict, executor_factory=lambda: self.executor
        )
        self.client = Client(self.machine)
        self.queue = Queue(self.client, 16 << 10)
        self.code, self.data = self.client.buffer(), self.client.buffer()
        self.code.words([END])

    def order(self, *parts: int | str) -> tuple[int, ...]:
        """The order in which the programs ran."""
        words: list[int] = []
        with self.machine:
            for part in parts:
                words += self.words(part)
            self.queue.run(words)
            self.client.machine.sleep(0.1)
            return tuple(dispatch.groups[0] for dispatch in self.executor.ran)

    def words(self, part: int | str) -> list[int]:
        address = self.data.address
        if isinstance(part, int):
            return dispatch(self.code.address, groups=(part, 1, 1))
        return {
            "flush": FLUSH,
            "release": release(address, 1),
            "release and wait": [*release(address, 1), *wait_memory(address, 1)],
            "wait": wait_memory(address, 0, 0),
            "write": write(address + 8, 1),
        }[part]


def orders(*parts: int | str, strict: bool = True) -> set[tuple[int, ...]]:
    return {Run(seed, strict).order(*parts) for seed in SEEDS}


def test_programs_without_a_wait_between_them_run_in_any_order():
    assert orders(1, 2) == {(1, 2), (2, 1)}
    assert len(orders(1, 2, 3)) > 3


def test_a_partial_flush_separates():
    assert orders(1, "flush", 2) == {(1, 2)}
    assert orders(1, 2, "flush", 3) == {(1, 2, 3), (2, 1, 3)}


def test_a_release_that_is_waited_for_separates_and_one_alone_does_not():
    assert orders(1, "release and wait", 2) == {(1, 2)}
    assert orders(1, "release", 2) == {(1, 2), (2, 1)}


def test_other_packets_do_not_separate():
    assert orders(1, "write", 2) == {(1, 2), (2, 1)}
    assert orders(1, "wait", 2) == {(1, 2), (2, 1)}


def test_fast_mode_keeps_the_order():
    assert orders(1, 2, 3, strict=False) == {(1, 2, 3)}


def test_whoever_watches_sees_the_order_of_the_packets():
    seen = set()
    for seed in SEEDS:
        run = Run(seed)
        run.machine.on_dispatch = lambda registers, launch: None
        seen.add(run.order(1, 2, 3))
    assert seen == {(1, 2, 3)}


def test_only_so_many_programs_are_in_flight():
    for seed in SEEDS:
        ran = Run(seed).order(*range(1, 40))
        assert sorted(ran) == list(range(1, 40))
        late = [place + 1 - number for place, number in enumerate(ran)]
        assert min(late) >= -MAX_IN_FLIGHT


def test_a_release_takes_effect_after_all_programs_before_it():
    for seed in SEEDS:
        run = Run(seed)
        assert seen_by_programs(run, 1, 2, 3, "release") == [0, 0, 0]


def seen_by_programs(run: Run, *parts: int | str) -> list[int]:
    """Return the word that the release writes, as each program sees it."""
    seen: list[int] = []
    run.executor.action = lambda launch, memory: seen.append(run.data.u32())
    run.order(*parts)
    return seen
