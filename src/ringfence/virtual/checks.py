"""What a virtual device checks and what a run relied on.

Checks that fail become a :class:`BadState` or :class:`BadPacket`, which the device turns into a fault that
names the packet. Things that a run used although the model of them is approximate, or that were refused
because there is no model, are collected as notes for the fidelity statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal


class Refused(Exception):
    """A call fails with ``errno``; ``reason`` says why, which a real kernel would at most log."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.errno = code
        self.reason = reason


class BadState(Exception):
    """State that the hardware needs is missing, stale, contradictory or beyond the chip's limits."""


class BadPacket(Exception):
    """A packet that the command processor cannot execute."""


@dataclass(frozen=True, slots=True)
class Note:
    """``approximate``: executed, but the model is a guess; ``unsupported``: refused for want of a model."""

    kind: Literal["approximate", "unsupported"]
    topic: str
    text: str


class Notes:
    """The notes of one machine, each once, in the order in which they came up."""

    def __init__(self) -> None:
        self._notes: dict[tuple[str, str], Note] = {}

    def approximate(self, topic: str, text: str) -> None:
        """Record that the run relied on an approximation."""
        self._notes.setdefault(("approximate", topic), Note("approximate", topic, text))

    def unsupported(self, topic: str, text: str) -> None:
        """Record that something was refused because the machine has no model of it."""
        self._notes.setdefault(("unsupported", topic), Note("unsupported", topic, text))

    def __iter__(self) -> Iterator[Note]:
        return iter(self._notes.values())
