"""Faults on demand: what a test or a report tells a machine to do wrong.

``machine.faults.add(CallError(errno=errno.ENOMEM, call="GPUOBJ_ALLOC", nth=3))`` makes the third such call
fail. Events are counted from the moment a fault is added; ``fired`` tells how often it struck.
"""

from __future__ import annotations

import errno
import fnmatch
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from ringfence.errors import FaultReport


class GpuFailure(Exception):
    """Raised inside a virtual GPU when it cannot go on; carries the report that the client may ask for."""

    def __init__(self, report: FaultReport) -> None:
        super().__init__(str(report))
        self.report = report


class GpuWasReset(GpuFailure):
    """The whole GPU was reset: everything that ran there is lost."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """Strikes at the ``nth`` matching event (1 = the next) and the ``times - 1`` after it.

    ``times`` of ``None``: at all that follow.
    """

    nth: int = 1
    times: int | None = 1
    seen: int = field(default=0, init=False)
    fired: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.nth < 1 or (self.times is not None and self.times < 1):
            raise ValueError(f"nth and times count from 1, got nth={self.nth}, times={self.times}")

    def strike(self) -> bool:
        """Count one matching event; return whether the fault strikes at it."""
        self.seen += 1
        if self.seen < self.nth or (self.times is not None and self.seen >= self.nth + self.times):
            return False
        self.fired += 1
        return True


@dataclass(slots=True, kw_only=True)
class CallError(Fault):
    """A call of the port fails with ``errno``.

    ``call`` is a shell pattern over the names of ioctls (without ``IOCTL_KGSL_`` or ``AMDKFD_IOC_``) and
    ``open``, ``mmap``, ``munmap``, ``reserve``, ``read_text``, ``list_directory``. The call has no effect,
    except for EPROTO, which by its meaning reports an error of work that was accepted.
    """

    errno: int
    call: str = "*"

    @property
    def after_effect(self) -> bool:
        return self.errno == errno.EPROTO


@dataclass(slots=True, kw_only=True)
class Hang(Fault):
    """The command processor stops before the nth packet, or in the nth dispatch, and never goes on."""

    at: Literal["packet", "dispatch"] = "packet"


@dataclass(slots=True, kw_only=True)
class LostCompletion(Fault):
    """A completion never arrives.

    ``timestamp``: the nth finished submission is not seen as retired (a later one retires it too); with KFD,
    which knows no submissions, the nth interrupt gets lost. ``signal``: the nth value that a stream writes
    with an event (KFD: a RELEASE_MEM) is dropped.
    """

    what: Literal["timestamp", "signal"] = "timestamp"


@dataclass(slots=True, kw_only=True)
class EarlyWake(Fault):
    """A wait ends too early.

    ``call``: the nth wait of the client that would have slept returns success. ``poll``: the nth poll of a
    stream that would have blocked passes.
    """

    what: Literal["call", "poll"] = "call"


@dataclass(slots=True, kw_only=True)
class PageFault(Fault):
    """The nth dispatch faults on ``address`` before it runs."""

    address: int = 0


@dataclass(slots=True, kw_only=True)
class Reset(Fault):
    """The GPU is reset at the nth dispatch: its queues and the content of its memory are lost (KFD only)."""


F = TypeVar("F", bound=Fault)


class Faults:
    """The faults of one machine.

    ``active`` is false as long as none was added, which keeps the checks cheap.
    """

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self.active = False

    def add(self, fault: F) -> F:
        """Arm ``fault`` and return it."""
        self._faults.append(fault)
        self.active = True
        return fault

    def clear(self) -> None:
        """Disarm every fault."""
        self._faults.clear()
        self.active = False

    def call(self, name: str) -> CallError | None:
        """Return the fault that strikes at a call of ``name``."""
        return self._strike(
            [f for f in self._faults if isinstance(f, CallError) and fnmatch.fnmatchcase(name, f.call)]
        )

    def hang(self, at: Literal["packet", "dispatch"]) -> Hang | None:
        """Return the fault that strikes at this packet or dispatch."""
        return self._strike([f for f in self._faults if isinstance(f, Hang) and f.at == at])

    def lost(self, what: Literal["timestamp", "signal"]) -> LostCompletion | None:
        """Return the fault that strikes at this completion."""
        return self._strike([f for f in self._faults if isinstance(f, LostCompletion) and f.what == what])

    def early(self, what: Literal["call", "poll"]) -> EarlyWake | None:
        """Return the fault that strikes at this wait."""
        return self._strike([f for f in self._faults if isinstance(f, EarlyWake) and f.what == what])

    def page_fault(self) -> PageFault | None:
        """Return the fault that strikes at this dispatch."""
        return self._strike([f for f in self._faults if isinstance(f, PageFault)])

    def reset(self) -> Reset | None:
        """Return the fault that resets the GPU at this dispatch."""
        return self._strike([f for f in self._faults if isinstance(f, Reset)])

    @staticmethod
    def _strike(matching: list[F]) -> F | None:
        struck = [fault for fault in matching if fault.strike()]
        return struck[0] if struck else None
