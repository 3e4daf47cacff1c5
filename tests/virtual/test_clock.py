"""The clocks of a machine."""

from __future__ import annotations

import time

import pytest

from ringfence.virtual.clock import ALWAYS_ON_HZ, always_on_ticks, make_clock


def test_the_virtual_clock_moves_by_jumps_and_charges_only():
    clock = make_clock("virtual")
    start = clock.now()
    assert clock.now() == start
    clock.charge(0.5)
    clock.jump(start + 2.0)
    clock.jump(start + 1.0)
    clock.exclude(1.0)
    assert clock.now() == start + 2.0


def test_the_hybrid_clock_runs_and_jumps_and_leaves_time_out():
    clock = make_clock("hybrid")
    before = clock.now()
    clock.jump(before + 100.0)
    assert clock.now() >= before + 100.0
    clock.exclude(50.0)
    assert before + 50.0 <= clock.now() < before + 100.0
    clock.charge(1000.0)
    assert clock.now() < before + 100.0


def test_the_real_clock_cannot_jump():
    clock = make_clock("real")
    assert clock.now() <= time.monotonic()
    assert not clock.jumps
    with pytest.raises(RuntimeError):
        clock.jump(0.0)


def test_the_always_on_counter_counts_at_19_2_mhz_and_wraps_at_64_bits():
    assert always_on_ticks(2.0) == 2 * ALWAYS_ON_HZ == 38_400_000
    assert always_on_ticks(2.0**64) < 1 << 64
