"""Which engine moves which bytes.

A copy queue is a run-time finding, never a promise of a device's name. Without one, bytes between two buffers
of a device are moved by a kernel, and everything that touches CPU memory by the CPU, after the GPU has
finished with the buffer.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import LaunchError
from ringfence.runtime.memory import Buffer, CacheMode, span
from ringfence.runtime.queue import Submission


class CopyPath(enum.StrEnum):
    """What moves the bytes."""

    HOST = "host"
    """The CPU, after waiting for the GPU; done when the call returns."""
    KERNEL = "kernel"
    """A program on the compute queue; done when the submission is."""
    STAGED = "staged"
    """The CPU and a program in turn, through memory of the host; done when the call returns."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How a copy will be done, and why so."""

    path: CopyPath
    reason: str


@dataclass(frozen=True, slots=True)
class CopyResult:
    """How a copy was done, and why so. ``submission`` is set if a queue does it; else it is done already."""

    path: CopyPath
    reason: str
    nbytes: int
    submission: Submission | None = None

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the copy is done and the CPU can read it; errors as :meth:`Submission.wait`."""
        if self.submission is not None:
            self.submission.wait(timeout)


Side = Buffer | NDArray[Any]


def plan_copy(destination: Side, source: Side, *, copy_queue_note: str, kernel_note: str | None) -> CopyPlan:
    """Return how to copy. ``kernel_note`` says why there is no kernel for it, ``None`` if there is one.

    :class:`LaunchError` if sizes differ, ranges overlap, or nothing can reach both sides.
    """
    check_sides(destination, source)
    if not isinstance(destination, Buffer) or not isinstance(source, Buffer):
        which, buffer = (
            ("source", destination) if isinstance(destination, Buffer) else ("destination", source)
        )
        if isinstance(buffer, Buffer) and buffer.mapping.cache is CacheMode.DEVICE:
            why = f"the {which} is CPU memory, and the CPU does not reach {buffer!r}"
            return CopyPlan(CopyPath.STAGED, f"{why}; {copy_queue_note}")
        return CopyPlan(CopyPath.HOST, f"the {which} is CPU memory; {copy_queue_note}")
    if kernel_note is None:
        return CopyPlan(CopyPath.KERNEL, f"both sides are buffers of this device; {copy_queue_note}")
    if destination.host_address is None or source.host_address is None:
        blind = destination if destination.host_address is None else source
        raise LaunchError(f"copy: {kernel_note}, and the CPU cannot reach {blind!r}")
    return CopyPlan(CopyPath.HOST, f"{kernel_note}; {copy_queue_note}")


def check_sides(destination: Side, source: Side) -> None:
    """:class:`LaunchError` if there is nothing to copy, the sizes differ, the ranges overlap, or the
    destination is read-only.
    """
    for side in (destination, source):
        if not isinstance(side, (Buffer, np.ndarray)):
            raise LaunchError(f"copy: {type(side).__name__} is neither a buffer nor a numpy array")
    if destination.nbytes != source.nbytes:
        raise LaunchError(
            f"copy: the destination has {destination.nbytes} bytes, the source {source.nbytes}; use "
            "offset_view() for parts"
        )
    if destination.nbytes == 0:
        raise LaunchError("copy: both sides are empty")
    if isinstance(destination, Buffer) and destination.mapping.readonly:
        raise LaunchError(f"copy: {destination!r} is read-only memory")
    if isinstance(destination, Buffer) and isinstance(source, Buffer):
        (begin, end), (other_begin, other_end) = span(destination), span(source)
        if begin < other_end and other_begin < end:
            raise LaunchError(f"copy: {destination!r} and {source!r} overlap")


def copy_on_host(destination: Side, source: Side, timeout: float | None = None) -> None:
    """Copy with the CPU. Waits for the last GPU use of both sides first; errors as :meth:`Buffer.numpy`."""
    if isinstance(destination, Buffer) and isinstance(source, Buffer):
        destination.offset_view(0).copy_from(source.offset_view(0).numpy(timeout), timeout)
    elif isinstance(destination, Buffer):
        destination.copy_from(np.asarray(source), timeout)
    elif isinstance(source, Buffer):
        _copy_out(destination, source, timeout)
    else:
        raise LaunchError("copy: neither side is a buffer; use numpy")


def _copy_out(destination: NDArray[Any], source: Buffer, timeout: float | None) -> None:
    if source.dtype is not None and source.dtype != destination.dtype:
        raise LaunchError(f"copy: {source!r} holds {source.dtype}, the array {destination.dtype}")
    if not destination.flags.writeable:
        raise LaunchError("copy: the destination array is read-only")
    destination[...] = source.numpy(timeout).view(destination.dtype).reshape(destination.shape)
