"""Queues, and submissions: handles of work that was given to a GPU."""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping as MappingOf
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from types import MappingProxyType
from typing import Protocol, TypeVar

from ringfence.errors import DeviceLost, LaunchError, WaitTimeout
from ringfence.port import Port
from ringfence.runtime.memory import Mapping
from ringfence.runtime.timeline import ClockMap, Point, Timeline

SLICE_SECONDS = 0.1  # longest sleep in the kernel before memory is looked at again: bounds a lost interrupt
FIRST_NAP_SECONDS = 20e-6
LONGEST_NAP_SECONDS = 1e-3


class State(enum.StrEnum):
    """How far a submission came. Encoding or submitting never means that the output is there."""

    ENCODED = "encoded"
    SUBMITTED = "submitted"
    GPU_COMPLETE = "gpu-complete"
    HOST_VISIBLE = "host-visible"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds that the stages of a submission took; ``None`` where a stage is not finished or cannot be told.

    ``host_encode``: from the call until the kernel accepted the work, without ``stack_growth``.
    ``stack_growth``: waiting for the GPU and reallocating its private memory, because a program needed more.
    ``queue``: from acceptance until the GPU began. ``gpu``: between the GPU's own time stamps.
    ``host_visible``: from the GPU's end, or from the call of ``wait`` if that came later, until the CPU could
    read.
    """

    host_encode: float
    stack_growth: float = 0.0
    queue: float | None = None
    gpu: float | None = None
    host_visible: float | None = None

    @property
    def total(self) -> float:
        """Return the sum of the stages that are known."""
        parts = (self.host_encode, self.stack_growth, self.queue, self.gpu, self.host_visible)
        return sum(part for part in parts if part is not None)


class Engine(Protocol):
    """What a driver does for a :class:`Queue`."""

    def sleep(self, value: int, seconds: float) -> bool:
        """Sleep in the kernel until timeline ``value`` retires or ``seconds`` passed.

        Returns whether the kernel says that it retired. :class:`DeviceLost` if the device cannot go on.
        """


class Visibility(Protocol):
    """What a submission asks of the memory that it used."""

    def make_visible(self, mapping: Mapping, use: int) -> None:
        """Let the CPU see what GPU work up to ``use`` wrote."""


L = TypeVar("L", bound=DeviceLost)


def check_timeout(timeout: object) -> None:
    """:class:`TypeError` or :class:`ValueError` unless ``timeout`` is ``None`` or a time in seconds."""
    if timeout is None:
        return
    if not isinstance(timeout, Real):
        raise TypeError(f"timeout={timeout!r} is no number of seconds")
    if not float(timeout) >= 0:  # neither is a NaN
        raise ValueError(f"timeout={timeout!r}: a time in seconds is 0 or more")


class Queue:
    """A device's only compute queue: its timeline, its waits, and whether the device still lives.

    Losing the device is sticky: every later call raises the same error again. Other devices are not
    concerned.
    """

    def __init__(
        self,
        port: Port,
        engine: Engine,
        timeline: Timeline,
        clock: ClockMap,
        lock: threading.RLock,
        *,
        timeout: float,
        label: str,
    ) -> None:
        check_timeout(timeout)
        self.timeline = timeline
        self.clock = clock
        self.timeout = timeout
        self.label = label
        self.lock = lock
        self.now = port.now
        self.lost: DeviceLost | None = None
        self._port = port
        self._engine = engine
        self._final = 0

    # ----- loss -----------------------------------------------------------------------------------

    def fail(self, error: L) -> L:
        """Mark the device as lost because of ``error``, unless it already is; return ``error``."""
        if self.lost is None:
            self._final = self.timeline.completed
            self.lost = error
        return error

    def check(self) -> None:
        """Raise the error that the device was lost with, if it was."""
        if self.lost is not None:
            # A new object each time: raising the same one again would pile up its tracebacks.
            again = type(self.lost)(f"{self.label} is lost: {self.lost}")
            again.report = self.lost.report
            raise again from self.lost

    # ----- completion -----------------------------------------------------------------------------

    def finished(self, value: int) -> bool:
        """Return whether the GPU is done with everything up to ``value``: reached, or died."""
        return self.lost is not None or self.timeline.reached(value)

    def completed(self, value: int) -> bool:
        """Return whether ``value`` was reached, on a device that is lost now: before it was lost."""
        return value <= self._final if self.lost is not None else self.timeline.reached(value)

    def wait(self, value: int, timeout: float | None = None) -> None:
        """Wait until ``value`` is reached.

        Asleep in the kernel first, in slices; then by polling memory, should the kernel say "retired" before
        the value is seen. :class:`WaitTimeout` after ``timeout`` seconds (the queue's default if ``None``)
        and one last look; :class:`DeviceLost` if the device was lost before the value was reached.
        """
        if self.completed(value):
            return
        now = self.now
        limit = self.timeout if timeout is None else timeout
        deadline = now() + limit
        nap = FIRST_NAP_SECONDS
        while not self.completed(value):
            self.check()
            remaining = deadline - now()
            if remaining <= 0:
                if self.completed(value):
                    return
                raise WaitTimeout(
                    f"{self.label}: point {value} was not reached within {limit:g} s; the GPU is at "
                    f"{self.timeline.completed} of {self.timeline.submitted}, and may still complete"
                )
            if self._sleep(value, min(remaining, SLICE_SECONDS)) and not self.completed(value):
                self._port.sleep(min(nap, remaining))
                nap = min(2 * nap, LONGEST_NAP_SECONDS)

    def _sleep(self, value: int, seconds: float) -> bool:
        try:
            return self._engine.sleep(value, seconds)
        except DeviceLost as error:
            if self.timeline.reached(value):
                self.fail(error)  # later calls will say so; this value was reached all the same
                return True
            raise self.fail(error) from None

    def drain(self, value: int | None = None) -> None:
        """Wait until ``value``, by default everything that was submitted, is reached."""
        self.wait(self.timeline.submitted if value is None else value)


class TimeStamps(Protocol):
    """Where the GPU's time stamps of a submission are while it is in flight."""

    def read_ticks(self) -> tuple[int, ...]:
        """Return the ticks: begin, end, then those of the stream's own time stamp slots."""


class Submission:
    """Work that was encoded for, and as a rule given to, a GPU.

    >>> import numpy as np, ringfence as rf
    >>> with rf.open("virtual:a630") as dev:
    ...     x, y = dev.zeros(64, np.float32), dev.empty(64, np.float32)
    ...     job = dev.copy(y, x).submission
    ...     job.wait(timeout=1.0)
    ...     job.state.value
    'host-visible'
    """

    # What most submissions never change lives in the class: making one is part of every launch.
    value = 0
    stack_growth = 0.0
    recovered_fault = False
    """Whether the kernel reported, with this submission, that it had recovered from a fault (EPROTO)."""
    points: MappingOf[Timeline, Point] = MappingProxyType({})
    """The points that this submission signals, by the timelines that its stream signals."""
    _submitted: float | None = None
    _source: TimeStamps | None = None
    _ticks: tuple[int, ...] | None = None
    _observed: float | None = None
    _wait_begin: float | None = None
    _visible: float | None = None

    def __init__(
        self, queue: Queue, memory: Visibility, begin: float, uses: Sequence[Mapping], label: str = ""
    ) -> None:
        self.queue = queue
        self.label = label
        self._memory = memory
        self._begin = begin
        self._uses = uses

    # ----- for the driver -------------------------------------------------------------------------

    def accepted(self, value: int, now: float, source: TimeStamps) -> None:
        """Note that the kernel took the work as timeline ``value``."""
        self.value = value
        self._submitted = now
        self._source = source

    def settle(self, now: float) -> None:
        """Take the time stamps over, before the memory that they are in is used again. The work must be
        complete.
        """
        source = self._source
        if source is None or self._submitted is None:
            return
        self._ticks = ticks = source.read_ticks()
        self._source = None
        self._observed = now
        if ticks[1] >= ticks[0]:
            self.queue.clock.observe(self._submitted, ticks[0], ticks[1], now)

    def abandon(self) -> None:
        """Let go of the memory of the time stamps: the work was lost, so nobody will write them."""
        self._source = None

    # ----- for users ------------------------------------------------------------------------------

    @property
    def point(self) -> Point:
        """Return the point at which this work is complete; streams can wait for it."""
        if not self.value:
            raise LaunchError(f"submission {self.label!r} was not submitted, so nothing can wait for it")
        return Point(self.queue.timeline, self.value)

    @property
    def state(self) -> State:
        """Return how far the work came, without waiting."""
        if self._visible is not None:
            return State.HOST_VISIBLE
        if not self.value:
            return State.FAILED if self.queue.lost is not None else State.ENCODED
        if self.queue.completed(self.value):
            return State.GPU_COMPLETE
        return State.FAILED if self.queue.lost is not None else State.SUBMITTED

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the CPU can read what the work wrote.

        :class:`WaitTimeout` after ``timeout`` seconds (the device's default if ``None``): the work may still
        complete, and waiting again is fine. :class:`DeviceLost` (GpuHang, GpuFault) if the device failed.
        """
        check_timeout(timeout)
        if self._visible is not None:
            return
        queue = self.queue
        if not self.value:
            queue.check()
            raise LaunchError(f"submission {self.label!r} was not submitted, so there is nothing to wait for")
        now = queue.now
        self._wait_begin = now()
        queue.wait(self.value, timeout)
        self.settle(now())
        for mapping in self._uses:
            if mapping.cpu_cached:
                self._memory.make_visible(mapping, self.value)
        self._visible = now()
        self._uses = ()

    @property
    def timings(self) -> Timings:
        """Return how long the stages took; stages that are not finished yet are ``None``."""
        if self._submitted is None:
            return Timings(0.0, self.stack_growth)
        encode = max(0.0, self._submitted - self._begin - self.stack_growth)
        ticks = self._ticks
        if ticks is None or self._observed is None:
            return Timings(encode, self.stack_growth)
        if ticks[1] < ticks[0]:  # the counter was reset in between
            return Timings(encode, self.stack_growth)
        clock = self.queue.clock
        queued = max(0.0, clock.at(ticks[0]) - self._submitted)
        gpu = clock.seconds(ticks[1] - ticks[0])
        if self._visible is None or self._wait_begin is None:
            return Timings(encode, self.stack_growth, queued, gpu)
        visible = max(0.0, self._visible - max(clock.at(ticks[1]), self._wait_begin))
        return Timings(encode, self.stack_growth, queued, gpu, visible)

    @property
    def timestamps(self) -> tuple[float, ...]:
        """Return the stream's own time stamps in seconds after the GPU began; empty until then."""
        if self._ticks is None:
            return ()
        first = self._ticks[0]
        return tuple(self.queue.clock.seconds(tick - first) for tick in self._ticks[2:])

    def read_timestamps(self) -> tuple[float, ...]:
        """As :attr:`timestamps`, without a wait; :class:`LaunchError` if the work is not complete."""
        queue = self.queue
        with queue.lock:
            if self._ticks is None and self.value and queue.completed(self.value):
                self.settle(queue.now())
        if self._ticks is None:
            raise LaunchError(f"{self!r} is not complete, so it has no time stamps: wait for it first")
        return self.timestamps

    def __repr__(self) -> str:
        return f"<Submission {self.label!r} {self.state.value}, point {self.value} of {self.queue.label}>"
