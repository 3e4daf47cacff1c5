"""Timelines: 64-bit values over 32-bit slots, and the move to a fresh slot before 2^31."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_fakes import Slots

from ringfence.errors import WaitTimeout
from ringfence.runtime.timeline import SLOT_LIMIT, ClockMap, Slot, Timeline


def no_drain(value: int) -> None:
    raise AssertionError(f"drained at {value}")


def submit(timeline: Timeline, drain: object = no_drain) -> int:
    value = timeline.next(drain)  # type: ignore[arg-type]
    timeline.submitted = value
    return value


def test_values_count_up_from_one_and_are_reached_when_the_slot_holds_them() -> None:
    slots = Slots()
    timeline = Timeline(slots)
    assert [submit(timeline), submit(timeline)] == [1, 2]
    assert timeline.reached(0) and not timeline.reached(1)
    slots.write(1)
    assert timeline.reached(1) and not timeline.reached(2)
    assert timeline.completed == 1


def test_a_value_is_not_used_up_until_it_counts_as_submitted() -> None:
    timeline = Timeline(Slots())
    assert timeline.next(no_drain) == timeline.next(no_drain) == 1


def test_a_point_knows_whether_it_is_reached() -> None:
    slots = Slots()
    timeline = Timeline(slots)
    submit(timeline)
    point = timeline.point()
    assert point.value == 1 and not point.reached
    slots.write(1)
    assert point.reached


class Commands:
    """Commands that end with a signal: dword 3 is the number."""

    def __init__(self) -> None:
        self.slot: Slot | None = None
        self.words = memoryview(bytearray(16)).cast("I")
        self.signal = 3
        self.links = 0

    def link_slot(self, slot: Slot) -> None:
        self.slot, self.links = slot, self.links + 1


def test_commands_are_signed_with_the_number_that_goes_to_the_slot() -> None:
    slots, commands = Slots(), Commands()
    timeline = Timeline(slots, limit=3)
    for number in (1, 2, 1, 2):
        timeline.submitted = timeline.sign(commands, slots.write)
        assert commands.words.tolist() == [0, 0, 0, number]
        assert commands.slot is slots.made[-1]
        slots.write(number)
    assert timeline.submitted == 4 and commands.links == len(slots.made) == 2


def test_what_was_seen_to_be_reached_is_known_without_another_look() -> None:
    slots = Slots()
    timeline = Timeline(slots)
    timeline.submitted = 5
    slots.write(3)
    assert timeline.known == 0 and timeline.reached(2) and timeline.known == 3
    assert not timeline.reached(4) and timeline.known == 3


def test_the_timeline_drains_and_moves_before_the_slot_reaches_its_limit() -> None:
    slots = Slots()
    timeline = Timeline(slots, limit=4)
    for _ in range(3):
        submit(timeline)
    drained: list[int] = []

    def drain(value: int) -> None:
        drained.append(value)
        slots.write(value)

    assert submit(timeline, drain) == 4
    assert drained == [3]
    assert timeline.moves == 1 and len(slots.made) == 2
    assert timeline.locate(4) == (slots.made[1].gpu_address, 1)


def test_the_fresh_slot_starts_at_zero_and_the_old_one_keeps_its_last_value() -> None:
    slots = Slots()
    timeline = Timeline(slots, limit=2)
    submit(timeline)
    submit(timeline, lambda value: slots.write(1))
    assert slots.made[0].word[0] == 1
    assert slots.made[1].word[0] == 0
    assert timeline.reached(1) and not timeline.reached(2)


def test_points_of_earlier_slots_stay_reached_and_a_wait_for_them_passes_at_once() -> None:
    slots = Slots()
    timeline = Timeline(slots, limit=2)
    submit(timeline)
    first = timeline.point()
    submit(timeline, lambda value: slots.write(1))
    assert first.reached
    assert timeline.locate(first.value) == (slots.made[1].gpu_address, 0)


def test_nothing_moves_if_draining_fails() -> None:
    slots = Slots()
    timeline = Timeline(slots, limit=2)
    submit(timeline)

    def drain(value: int) -> None:
        raise WaitTimeout("no")

    with pytest.raises(WaitTimeout):
        timeline.next(drain)
    assert timeline.moves == 0 and timeline.submitted == 1


def test_values_beyond_32_bits_still_fit_the_slot() -> None:
    slots = Slots()
    timeline = Timeline(slots)
    timeline.submitted = SLOT_LIMIT - 1
    slots.write(SLOT_LIMIT - 1)
    assert submit(timeline, lambda value: None) == SLOT_LIMIT
    for _ in range(3):
        timeline.submitted += SLOT_LIMIT - 2
        assert timeline.locate(timeline.submitted)[1] < SLOT_LIMIT
        slots.write(timeline.locate(timeline.submitted)[1])
        submit(timeline, lambda value: None)
    assert timeline.submitted > 1 << 32


def test_a_closed_timeline_keeps_what_was_reached() -> None:
    slots = Slots()
    timeline = Timeline(slots)
    submit(timeline)
    submit(timeline)
    slots.write(1)
    timeline.close()
    slots.write(2)
    assert timeline.reached(1) and not timeline.reached(2)


def test_a_limit_that_leaves_no_value_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves no value"):
        Timeline(Slots(), limit=1)


@given(limit=st.integers(2, 9), count=st.integers(1, 60))
def test_whatever_the_limit_every_value_is_reached_in_order(limit: int, count: int) -> None:
    slots = Slots()
    timeline = Timeline(slots, limit=limit)

    def drain(value: int) -> None:
        slots.write(timeline.locate(value)[1])

    for expected in range(1, count + 1):
        assert submit(timeline, drain) == expected
        address, number = timeline.locate(expected)
        assert 0 < number < limit
        assert address == slots.made[-1].gpu_address
        slots.write(number)
        assert timeline.completed == expected


def test_the_clock_offset_narrows_with_every_submission() -> None:
    clock = ClockMap(1000.0)
    clock.observe(5.0, 0, 1000, 9.0)  # the offset is between 5 and 8
    assert clock.at(0) == pytest.approx(6.5)
    clock.observe(7.0, 1000, 2000, 8.5)  # between 6 and 6.5
    assert clock.at(0) == pytest.approx(6.25)
    assert clock.seconds(500) == pytest.approx(0.5)


def test_the_clock_starts_again_when_the_counter_was_reset() -> None:
    clock = ClockMap(1000.0)
    clock.observe(5.0, 5000, 5001, 5.01)
    clock.observe(6.0, 0, 1, 6.01)  # the counter fell back to zero
    assert 6.0 <= clock.at(0) <= 6.01


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=20))
def test_ticks_never_lie_before_their_submission_or_after_their_end_was_seen(
    delays: list[tuple[float, float, float]],
) -> None:
    clock, now, offset = ClockMap(1e9), 100.0, 40.0
    for queue, run, notice in delays:
        first, last = now + queue - offset, now + queue + run - offset
        end = now + queue + run + notice
        clock.observe(now, int(first * 1e9), int(last * 1e9), end)
        assert now - 1e-6 <= clock.at(int(first * 1e9))
        assert clock.at(int(last * 1e9)) <= end + 1e-6
        now = end
