"""What devices of every family share: how they describe themselves, and the shape of a launch."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import Any

from ringfence.errors import LaunchError

Size = int | tuple[int, ...]
"""Work-items or work-groups in one to three dimensions; a bare number is one dimension."""

AXES = "xyz"
MAX_GLOBAL_SIZE = 1 << 32


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a device is. ``chip`` is the name that programs are compiled for."""

    name: str
    family: str
    interface: str
    chip: str
    chip_id: int
    virtual: bool
    driver_version: str
    shared_bytes: int
    max_threads: int
    copy_queue: bool
    copy_note: str
    priority: int


@dataclass(frozen=True, slots=True)
class Geometry:
    """How many work-groups, and how many threads in each, per dimension x, y, z.

    ``dimensions`` is how many were asked for, which OpenCL C calls ``get_work_dim()``.
    """

    groups: tuple[int, int, int]
    local: tuple[int, int, int]
    dimensions: int = field(default=3, compare=False)

    @property
    def threads(self) -> int:
        """Return the threads of one work-group."""
        return math.prod(self.local)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program on a chip allows: threads per work-group, and threads per work-group and dimension."""

    max_threads: int
    max_local: int
    why: str


def resolve_geometry(
    name: str,
    limits: Limits,
    *,
    groups: Any = None,
    global_size: Any = None,
    local: Any = None,
    fixed_local: tuple[int, int, int] | None = None,
) -> Geometry:
    """Return the checked geometry of a launch of program ``name``; :class:`LaunchError` says what is wrong.

    Exactly one of ``groups`` (work-groups) and ``global_size`` (work-items) is given. ``local`` may be left
    out if the compiler fixed it (``fixed_local``).
    """
    shape = _local_size(name, local, fixed_local)
    _check_local(name, shape, limits)
    if (groups is None) == (global_size is None):
        raise LaunchError(
            f"launch of {name!r}: give either groups= (work-groups) or global_size= (work-items), "
            f"not {'neither' if groups is None else 'both'}"
        )
    if groups is not None:
        counts = _triple(name, "groups", groups)
    else:
        counts = _whole_groups(name, _triple(name, "global_size", global_size), shape)
    for axis, count, size in zip(AXES, counts, shape):
        if count * size >= MAX_GLOBAL_SIZE:
            raise LaunchError(
                f"launch of {name!r}: {count} groups of {size} threads along {axis} are {count * size} "
                f"work-items; the hardware counts up to 2^32 - 1"
            )
    asked = max(map(_axes, (groups, global_size, local)))
    return Geometry(counts, shape, max(asked, _last_axis(counts), _last_axis(shape)))


def _axes(size: Any) -> int:
    """Return for how many dimensions a size was given."""
    return len(size) if isinstance(size, (tuple, list)) else int(size is not None)


def _last_axis(sizes: tuple[int, int, int]) -> int:
    """Return the last dimension, counted from 1, that is more than one wide."""
    return max((axis for axis, size in enumerate(sizes, 1) if size > 1), default=1)


def _local_size(name: str, local: Any, fixed: tuple[int, int, int] | None) -> tuple[int, int, int]:
    if local is None:
        if fixed is None:
            raise LaunchError(
                f"launch of {name!r}: local= is missing, and the compiler did not fix the local size"
            )
        return fixed
    shape = _triple(name, "local", local)
    if fixed is not None and shape != fixed:
        raise LaunchError(
            f"launch of {name!r}: local size {shape} was asked for, but the program was compiled for {fixed}"
        )
    return shape


def _check_local(name: str, shape: tuple[int, int, int], limits: Limits) -> None:
    for axis, size in zip(AXES, shape):
        if size > limits.max_local:
            raise LaunchError(
                f"launch of {name!r}: {size} threads along {axis}; a work-group has at most "
                f"{limits.max_local} per dimension"
            )
    if math.prod(shape) > limits.max_threads:
        raise LaunchError(
            f"launch of {name!r}: a work-group of {shape} has {math.prod(shape)} threads; this program can "
            f"have at most {limits.max_threads} ({limits.why})"
        )


def _whole_groups(
    name: str, items: tuple[int, int, int], shape: tuple[int, int, int]
) -> tuple[int, int, int]:
    for axis, count, size in zip(AXES, items, shape):
        if count % size:
            raise LaunchError(
                f"launch of {name!r}: global_size {count} along {axis} is not a multiple of the local size "
                f"{size}; launch groups={-(-count // size)} and let the program skip the work-items beyond "
                f"{count}"
            )
    return items[0] // shape[0], items[1] // shape[1], items[2] // shape[2]


def _triple(name: str, what: str, value: Any) -> tuple[int, int, int]:
    given = value if isinstance(value, (tuple, list)) else (value,)
    try:
        if any(isinstance(size, bool) for size in given):
            raise TypeError("a truth value")
        sizes = list(map(operator.index, given))
    except TypeError:
        raise LaunchError(
            f"launch of {name!r}: {what}={value!r} is neither a whole number nor a tuple of them"
        ) from None
    if not 1 <= len(sizes) <= 3:
        raise LaunchError(
            f"launch of {name!r}: {what}={value!r} has {len(sizes)} dimensions, expected 1 to 3"
        )
    if min(sizes) < 1:
        raise LaunchError(f"launch of {name!r}: {what}={value!r}; every dimension is at least 1")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
