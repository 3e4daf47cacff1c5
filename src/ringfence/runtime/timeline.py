"""Timelines: monotonic 64-bit counters that a GPU advances, although it writes and compares 32 bits.

All of the narrowing lives here. The counter of a timeline is kept in a *slot*, one 32-bit word of memory that
both sides see. A value is reached when the slot holds ``value - base`` or more, where ``base`` is what the
timeline had reached when it moved to this slot. Before the difference reaches ``limit`` (2^31) the timeline
drains, and moves to a fresh slot; the old slot keeps its last value for ever, so that a wait that was encoded
before still passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

SLOT_LIMIT = 1 << 31


@dataclass(slots=True)
class Slot:
    """One 32-bit word: its GPU address, and a view of one dword for the CPU."""

    gpu_address: int
    word: memoryview


Fence = tuple[int, int]
"""A context of the kernel driver, and one of its time stamps."""


@dataclass(frozen=True, slots=True)
class Point:
    """A moment of a timeline: it is reached when the timeline's counter is at least ``value``."""

    timeline: Timeline
    value: int

    @property
    def reached(self) -> bool:
        """Return whether the point is reached, by a look at memory."""
        return self.timeline.reached(self.value)


class Signed(Protocol):
    """Commands that end with the signal of a timeline: dword ``signal`` of ``words`` is the number that goes
    to ``slot``.
    """

    slot: Slot | None
    words: memoryview
    signal: int

    def link_slot(self, slot: Slot) -> None:
        """Let the number go to ``slot`` from now on."""


class Timeline:
    """One counter. ``submitted`` is the last value that was given to the GPU to write.

    ``domain`` tells which GPUs see its slots: those of devices with an equal domain. ``fence`` returns what
    the kernel can wait for instead of a value: the context, and the time stamp of the context, whose
    retirement implies it.
    """

    def __init__(
        self,
        new_slot: Callable[[], Slot],
        *,
        limit: int = SLOT_LIMIT,
        domain: object = None,
        label: str = "",
    ) -> None:
        if limit < 2:
            raise ValueError(f"timeline {label!r}: a limit of {limit} leaves no value to count to")
        self._new_slot = new_slot
        self._limit = limit
        self._epoch = (0, new_slot())
        self.submitted = 0
        self.known = 0
        """A value that was seen to be reached: up to it nobody has to look at memory again."""
        self.moves = 0
        self.fence: Callable[[int], Fence] | None = None
        self.closed = False
        self.domain = domain
        self.label = label

    @property
    def completed(self) -> int:
        """Return the highest value that is known to be reached."""
        base, slot = self._epoch
        return base + slot.word[0]

    def reached(self, value: int) -> bool:
        """Return whether ``value`` is reached."""
        if value <= self.known:
            return True
        base, slot = self._epoch
        self.known = base + slot.word[0]
        return value <= self.known

    def point(self, value: int | None = None) -> Point:
        """Return the point of ``value``, by default of the last submitted one."""
        return Point(self, self.submitted if value is None else value)

    def locate(self, value: int) -> tuple[int, int]:
        """Return the GPU address and the 32-bit number that a wait for, or signal of, ``value`` names."""
        base, slot = self._epoch
        return slot.gpu_address, max(0, value - base)

    def next(self, drain: Callable[[int], None]) -> int:
        """Return the value after the last submitted one, having moved to a fresh slot if this one is used up.

        ``drain(value)`` must return only when ``value`` is reached; what it raises passes through, and
        nothing moves. The value counts as submitted only after ``submitted`` is set to it.
        """
        base, _ = self._epoch
        if self.submitted + 1 - base >= self._limit:
            drain(self.submitted)
            self._move()
        return self.submitted + 1

    def sign(self, signed: Signed, drain: Callable[[int], None]) -> int:
        """Let commands signal the :meth:`next` value, and return it."""
        base, slot = self._epoch
        value = self.submitted + 1
        if value - base >= self._limit:
            value = self.next(drain)
            base, slot = self._epoch
        if signed.slot is not slot:
            signed.link_slot(slot)
        signed.words[signed.signal] = value - base
        return value

    def close(self) -> None:
        """Let go of the slot's memory; what was reached stays reached, and nothing more will be."""
        self._epoch = (self.completed, Slot(0, memoryview(bytes(4)).cast("I")))
        self.closed = True

    def _move(self) -> None:
        slot = self._new_slot()
        slot.word[0] = 0
        # One store of a tuple: a reader in another thread sees the old slot with its base or the new one with
        # its.
        self._epoch = (self.submitted, slot)
        self.moves += 1


class ClockMap:
    """Where GPU ticks lie on the port's clock.

    Nothing calibrates; every finished submission tells that its first tick came after it was submitted, and
    its last tick before it was seen to be finished. The offset between the clocks lies in the intersection of
    these intervals. If an interval contradicts the earlier ones (power collapse may reset the counter) the
    search starts again from it.
    """

    def __init__(self, ticks_per_second: float) -> None:
        self._period = 1.0 / ticks_per_second
        self._low = float("-inf")
        self._high = float("inf")

    def seconds(self, ticks: int) -> float:
        """Return the length of ``ticks`` in seconds."""
        return ticks * self._period

    def observe(self, submitted: float, first_tick: int, last_tick: int, finished: float) -> None:
        """Narrow the offset by one submission."""
        low = submitted - first_tick * self._period
        high = finished - last_tick * self._period
        if max(low, self._low) > min(high, self._high):
            self._low, self._high = low, high
        else:
            self._low, self._high = max(low, self._low), min(high, self._high)

    def at(self, tick: int) -> float:
        """Return the time of ``tick`` on the port's clock."""
        return (self._low + self._high) / 2 + tick * self._period
