"""The clocks of a machine.

``real``    the monotonic clock of the host; nothing is ever skipped.
``hybrid``  the monotonic clock plus jumps: when every engine and every client waits, it jumps to the next
            event, so a time-out of 30 seconds takes milliseconds. Time that the host spends on translating
            programs, which no GPU does, is left out. ``virtual`` only jumps and modelled costs: the same
            calls always read the same times.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal, Protocol

ClockName = Literal["real", "hybrid", "virtual"]

ALWAYS_ON_HZ = 19_200_000  # the crystal that the always-on counter of Adreno GPUs counts


@dataclass(frozen=True, slots=True)
class Costs:
    """Modelled durations in seconds, charged by the virtual clock only.

    Plausible, not measured on a device.
    """

    call: float = 1e-6
    packet: float = 2e-7
    dispatch: float = 5e-6
    group: float = 2e-7


class Clock(Protocol):
    """Machine time in seconds. ``jumps``: :meth:`jump` works.

    ``modelled``: only :meth:`charge` and jumps move it.
    """

    jumps: bool
    modelled: bool

    def now(self) -> float: ...

    def jump(self, when: float) -> None:
        """Let time be ``when`` if it is earlier than that."""

    def charge(self, seconds: float) -> None:
        """Account for work whose duration is modelled."""

    def exclude(self, seconds: float) -> None:
        """Take back time that only the simulation needed."""


class RealClock:
    jumps = False
    modelled = False

    def now(self) -> float:
        return time.monotonic()

    def jump(self, when: float) -> None:
        raise RuntimeError("the real clock cannot jump")

    def charge(self, seconds: float) -> None:
        pass

    def exclude(self, seconds: float) -> None:
        pass


class HybridClock:
    jumps = True
    modelled = False

    def __init__(self) -> None:
        self._offset = 0.0

    def now(self) -> float:
        return time.monotonic() + self._offset

    def jump(self, when: float) -> None:
        self._offset += max(0.0, when - self.now())

    def charge(self, seconds: float) -> None:
        pass

    def exclude(self, seconds: float) -> None:
        self._offset -= seconds


class VirtualClock:
    jumps = True
    modelled = True

    def __init__(self) -> None:
        self._now = 1.0

    def now(self) -> float:
        return self._now

    def jump(self, when: float) -> None:
        self._now = max(self._now, when)

    def charge(self, seconds: float) -> None:
        self._now += seconds

    def exclude(self, seconds: float) -> None:
        pass


def make_clock(name: ClockName) -> Clock:
    """Return a new clock; ``ValueError`` if there is none of that name."""
    if name == "real":
        return RealClock()
    if name == "hybrid":
        return HybridClock()
    if name == "virtual":
        return VirtualClock()
    raise ValueError(f"no clock is called {name!r}; there are 'real', 'hybrid' and 'virtual'")


def always_on_ticks(now: float) -> int:
    """Return the 64-bit always-on counter at machine time ``now``."""
    return int(now * ALWAYS_ON_HZ) & 0xFFFF_FFFF_FFFF_FFFF
