"""The one tree of exceptions. Every error that a user can meet derives from :class:`RingfenceError`, but for
a plain ``TypeError`` or ``ValueError`` where an argument is of a wrong kind.
"""

from __future__ import annotations

import errno as _errno
import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FaultReport:
    """What is known about the moment a device failed; fields that the device cannot tell are ``None``.

    ``kind`` is one of ``"memory"``, ``"hang"``, ``"illegal instruction"``, ``"bad packet"``, ``"bad state"``,
    ``"internal"``, ``"unknown"``. ``pc`` counts instructions from the start of the program. ``launch`` is the
    label of the launch, or of the node of a graph, and ``submission`` that of what was submitted;
    ``packet_address`` is where the GPU has the packet.
    """

    kind: str
    message: str
    program: str | None = None
    packet: str | None = None
    group: tuple[int, int, int] | None = None
    lane: int | None = None
    pc: int | None = None
    instruction: str | None = None
    address: int | None = None
    nearest: str | None = None
    packet_address: int | None = None
    launch: str | None = None
    submission: str | None = None

    def __str__(self) -> str:
        parts = [f"{self.kind}: {self.message}"]
        if self.launch is not None:
            parts.append(f"launch {self.launch!r}")
        if self.submission not in (None, self.launch):
            parts.append(f"submission {self.submission!r}")
        if self.program is not None:
            parts.append(f"program {self.program!r}")
        if self.pc is not None:
            parts.append(f"pc {self.pc}" + (f" `{self.instruction}`" if self.instruction else ""))
        if self.packet is not None:
            parts.append(f"packet {self.packet}")
        if self.group is not None:
            parts.append(f"work-group {self.group}")
        if self.lane is not None:
            parts.append(f"lane {self.lane}")
        if self.address is not None:
            parts.append(f"address {self.address:#x}")
        if self.nearest is not None:
            parts.append(f"nearest allocation: {self.nearest}")
        return "; ".join(parts)


class RingfenceError(Exception):
    """Base of every error raised by ringfence."""


class UnsupportedDevice(RingfenceError):
    """The device exists but this software does not drive it; the message carries its id."""


class LaunchError(RingfenceError, ValueError):
    """A launch was refused before anything was encoded: wrong arguments, geometry or resources."""


class CompileError(RingfenceError):
    """A compiler, or the translator of a virtual GPU, could not process its input."""


class PackageError(RingfenceError):
    """A package or program blob is damaged, of another version, or does not fit the device."""


class LeaseError(RingfenceError):
    """Memory of someone else cannot be used: the lease ended, or the pointer is null, empty or not theirs."""


class DeviceLost(RingfenceError):
    """The device (context) cannot run anything any more. ``report`` tells why, as far as it is known."""

    def __init__(self, message: str, report: FaultReport | None = None) -> None:
        super().__init__(message if report is None else f"{message}: {report}")
        self.report = report


class GpuHang(DeviceLost):
    """The GPU made no progress and was stopped by the kernel or by us."""


class GpuFault(DeviceLost):
    """The GPU touched memory it must not touch, or met an instruction or packet it cannot execute."""


class Disconnected(DeviceLost):
    """The device was unplugged."""


class WaitTimeout(RingfenceError, TimeoutError):
    """A deadline passed before the awaited point was reached; the work may still complete."""


class PortError(RingfenceError, OSError):
    """The operating system refused a call. ``call`` names it with its decoded arguments.

    Being an ``OSError`` it carries ``errno`` and ``strerror``.
    """

    def __init__(self, call: str, errno: int, hint: str = "") -> None:
        name = _errno.errorcode.get(errno, str(errno))
        text = f"{call} failed with {name} ({os.strerror(errno)})" + (f"; {hint}" if hint else "")
        OSError.__init__(self, errno, text)
        self.call = call
        self.hint = hint

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> tuple[type[PortError], tuple[str, int, str]]:
        return type(self), (self.call, self.errno or 0, self.hint)
