"""The shape of a launch: groups, local sizes, and their limits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import LaunchError
from ringfence.runtime.device import Geometry, Limits, resolve_geometry

LIMITS = Limits(max_threads=256, max_local=1024, why="it uses 24 of 96 registers")


def resolve(**wanted: Any) -> Geometry:
    return resolve_geometry("add", LIMITS, **wanted)


def test_missing_dimensions_are_one() -> None:
    assert resolve(groups=5, local=64) == Geometry((5, 1, 1), (64, 1, 1))
    assert resolve(groups=(5, 2), local=(8, 4, 2)) == Geometry((5, 2, 1), (8, 4, 2))


@pytest.mark.parametrize(
    ("wanted", "dimensions"),
    [
        ({"groups": 5, "local": 64}, 1),
        ({"groups": (5,), "local": 64}, 1),
        ({"groups": 5, "local": (8, 8)}, 2),
        ({"groups": (5, 1, 1), "local": 64}, 3),
        ({"global_size": (64, 1), "local": 64}, 2),
        ({"groups": 5, "fixed_local": (8, 1, 1)}, 1),
        ({"groups": 5, "fixed_local": (8, 4, 1)}, 2),
    ],
)
def test_a_launch_has_the_dimensions_that_it_was_given(wanted: dict[str, Any], dimensions: int) -> None:
    assert resolve(**wanted).dimensions == dimensions


def test_numpy_integers_are_numbers_too() -> None:
    assert resolve(groups=np.int64(3), local=(np.uint8(4),)).groups == (3, 1, 1)


def test_a_global_size_counts_work_items() -> None:
    assert resolve(global_size=(128, 6), local=(64, 3)) == Geometry((2, 2, 1), (64, 3, 1))


def test_a_global_size_that_is_no_multiple_says_how_to_launch_it() -> None:
    with pytest.raises(LaunchError, match=r"1000 along x is not a multiple of the local size 64.*groups=16"):
        resolve(global_size=1000, local=64)


@pytest.mark.parametrize("wanted", [{}, {"groups": 1, "global_size": 64}])
def test_exactly_one_of_groups_and_global_size_is_wanted(wanted: dict[str, int]) -> None:
    with pytest.raises(LaunchError, match="either groups="):
        resolve(local=64, **wanted)


def test_the_local_size_may_be_left_out_if_the_compiler_fixed_it() -> None:
    assert resolve(groups=2, fixed_local=(8, 8, 1)).local == (8, 8, 1)
    with pytest.raises(LaunchError, match="local= is missing"):
        resolve(groups=2)


def test_another_local_size_than_the_compiled_one_is_refused() -> None:
    assert resolve(groups=2, local=(8, 8), fixed_local=(8, 8, 1)).local == (8, 8, 1)
    with pytest.raises(LaunchError, match=r"compiled for \(8, 8, 1\)"):
        resolve(groups=2, local=64, fixed_local=(8, 8, 1))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_dimension_of_the_local_size_is_limited(axis: int) -> None:
    limits = Limits(4096, 1024, "")
    local = [1, 1, 1]
    local[axis] = 1024
    assert resolve_geometry("add", limits, groups=1, local=tuple(local)).threads == 1024
    local[axis] = 1025
    with pytest.raises(LaunchError, match=f"1025 threads along {'xyz'[axis]}"):
        resolve_geometry("add", limits, groups=1, local=tuple(local))


def test_the_product_of_local_sizes_is_limited_by_the_registers() -> None:
    assert resolve(groups=1, local=(16, 16)).threads == 256
    with pytest.raises(LaunchError, match=r"257 threads.*at most 256.*24 of 96 registers"):
        resolve(groups=1, local=257)
    with pytest.raises(LaunchError, match="272 threads"):
        resolve(groups=1, local=(17, 16))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_work_items_are_counted_in_32_bits_per_dimension(axis: int) -> None:
    groups, local = [1, 1, 1], [1, 1, 1]
    groups[axis], local[axis] = (1 << 32) // 64 - 1, 64
    assert resolve(groups=tuple(groups), local=tuple(local)).groups[axis] == groups[axis]
    groups[axis] += 1
    with pytest.raises(LaunchError, match=f"along {'xyz'[axis]} are 4294967296 work-items"):
        resolve(groups=tuple(groups), local=tuple(local))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (0, "at least 1"),
        ((1, 0), "at least 1"),
        (-3, "at least 1"),
        ((), "0 dimensions"),
        ((1, 1, 1, 1), "4 dimensions"),
        (1.5, "neither a whole number"),
        ("4", "neither a whole number"),
        ((2, None), "neither a whole number"),
        (True, "neither a whole number"),
        ((2, True), "neither a whole number"),
    ],
)
def test_nonsense_is_refused_with_its_value(groups: Any, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        resolve(groups=groups, local=1)


@given(groups=st.tuples(*[st.integers(1, 1 << 33)] * 3), local=st.tuples(*[st.integers(1, 1100)] * 3))
def test_a_geometry_is_accepted_exactly_within_the_limits(
    groups: tuple[int, int, int], local: tuple[int, int, int]
) -> None:
    fits = (
        max(local) <= 1024
        and local[0] * local[1] * local[2] <= 256
        and all(g * n < 1 << 32 for g, n in zip(groups, local))
    )
    if fits:
        assert resolve(groups=groups, local=local) == Geometry(groups, local)
    else:
        with pytest.raises(LaunchError):
            resolve(groups=groups, local=local)
