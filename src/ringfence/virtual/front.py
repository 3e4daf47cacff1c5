"""A port in front of a machine: what a port needs that takes over some of the calls itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ringfence.errors import FaultReport
from ringfence.hardware.fields import Ioctl
from ringfence.virtual.memory import PAGE

if TYPE_CHECKING:
    from ringfence.virtual.machine import Machine


class MachineFront:
    """A :class:`~ringfence.port.Port` that passes every call on to a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    @property
    def virtual(self) -> bool:
        """Return ``True``."""
        return True

    def open(self, path: str) -> int:
        """Open a node of the machine."""
        return self.machine.open(path)

    def close(self, fd: int) -> None:
        """Close a descriptor of the machine."""
        self.machine.close(fd)

    def ioctl(self, fd: int, argument: Ioctl) -> None:
        """As the machine does."""
        self.machine.ioctl(fd, argument)

    def mmap(self, fd: int, length: int, offset: int, *, address: int = 0) -> int:
        """Map an object of the machine."""
        return self.machine.mmap(fd, length, offset, address=address)

    def reserve(self, length: int, alignment: int = PAGE) -> int:
        """As the machine does."""
        return self.machine.reserve(length, alignment)

    def munmap(self, address: int, length: int) -> None:
        """Undo :meth:`mmap` or :meth:`reserve`."""
        self.machine.munmap(address, length)

    def doorbell(self, address: int) -> Callable[[int], None]:
        """As the machine does."""
        return self.machine.doorbell(address)

    def read_text(self, path: str) -> str:
        """Return a sysfs file of the machine."""
        return self.machine.read_text(path)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a sysfs directory of the machine."""
        return self.machine.list_directory(path)

    def now(self) -> float:
        """Return the machine's time."""
        return self.machine.now()

    def sleep(self, seconds: float) -> None:
        """Let the machine's clock go on."""
        self.machine.sleep(seconds)

    def fence(self) -> None:
        """As the machine does."""
        self.machine.fence()

    def clean(self, address: int, length: int) -> None:
        """As the machine does."""
        self.machine.clean(address, length)

    def invalidate(self, address: int, length: int) -> None:
        """As the machine does."""
        self.machine.invalidate(address, length)

    def explain(self, fd: int, context: int) -> FaultReport | None:
        """As the machine does."""
        return self.machine.explain(fd, context)
