"""What the kinds of virtual devices have in common for a session, and which kind a spec asks for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol
from urllib.parse import parse_qsl

from ringfence.errors import DeviceLost, FaultReport, PortError, UnsupportedDevice
from ringfence.virtual.specification import VirtualSpec, parse_virtual

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.virtual.machine import Executor, Machine


class ClientDeviceLost(DeviceLost, OSError, RuntimeError):
    """The virtual device is lost; ``report`` says why, with the traceback if the virtual GPU itself failed.

    An ``OSError`` because the call that failed is an ioctl, and a ``RuntimeError`` because that is what
    tinygrad's ``HCQSignal._sleep`` promises for a fault, and what makes it mark its device as failed.
    """

    def __init__(self, message: str, code: int, report: FaultReport | None) -> None:
        DeviceLost.__init__(self, message, report)
        self.errno = code


class Platform(Protocol):
    """The files of one kind of device, and what its ioctls mean. A platform holds no machine.

    ``prefixes`` begin the paths that belong to the machine. ``fixed_mappings`` tells whether a client says
    where objects are mapped (MAP_FIXED).
    """

    @property
    def prefixes(self) -> tuple[str, ...]: ...

    @property
    def fixed_mappings(self) -> bool: ...

    def executor(self, *, strict: bool, seed: int) -> Executor:
        """Return what runs programs."""

    def name(self, request: int) -> str:
        """Return what an ioctl is called."""

    def failure(self, machine: Machine, descriptor: int, request: int, address: int, code: int) -> OSError:
        """Return what to raise for an ioctl that failed with an errno."""

    def faults(self, machine: Machine, descriptor: int, request: int, address: int) -> Iterator[FaultReport]:
        """An ioctl succeeded: yield the faults that it was the first to tell the client of."""

    def written(self, path: str, text: str) -> str:
        """Return what a sysfs file shows after ``text`` was written to it; ``OSError`` EACCES if it cannot
        be.
        """


def requested(device: str, count: int) -> VirtualSpec:
    """Return what a spec asks for; :class:`UnsupportedDevice` if there cannot be ``count`` of it."""
    if count < 1:
        raise UnsupportedDevice(f"{count} devices {device!r}: a machine has at least one")
    wanted = parse_virtual(device)
    given = dict(parse_qsl(device.partition("?")[2]))
    if given.get("mode", "async") != "async" or given.get("clock", "real") != "real":
        raise UnsupportedDevice(
            f"device {device!r}: under a client the machine has its own thread and the real clock; leave "
            "mode and clock out"
        )
    return wanted


def report_path(path: str) -> str:
    """Return the absolute path of a file that reports can be appended to, which is made if there is none.

    :class:`PortError` if that fails: better now than when the program ends.
    """
    found = os.path.abspath(path)
    try:
        with open(found, "ab"):
            return found
    except OSError as error:
        raise PortError(f"open({found!r})", error.errno or 0, "the report cannot go there") from error


def client_settings(specification: VirtualSpec) -> dict[str, str]:
    """Return the variables that make tinygrad use a device, unless the user has set them."""
    if specification.interface == "kgsl":
        return {"DEV": "QCOM:IR3"}
    return {"DEV": "AMD:LLVM", "AMD_DISABLE_SDMA": "1"}


def platform_of(specification: VirtualSpec) -> Platform:
    """Return the platform of a device."""
    if specification.interface == "kgsl":
        from ringfence.virtual.shim.kgsl import KgslPlatform

        return KgslPlatform(specification)
    from ringfence.virtual.shim.kfd import KfdPlatform

    return KfdPlatform()


def plain_failure(name: str, code: int) -> OSError:
    """Return the error of an ioctl that says no more than its errno."""
    return OSError(code, f"{name}: {os.strerror(code)}")
