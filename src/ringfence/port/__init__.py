"""What drivers ask of the operating system: ``LinuxPort`` does it for real, else a virtual ``Machine``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ringfence.errors import FaultReport
from ringfence.hardware.fields import Ioctl


class Port(Protocol):
    """The calls that cross the boundary between a driver and the system.

    Failures raise :class:`ringfence.errors.PortError` with the errno; addresses are those of this process.
    """

    @property
    def virtual(self) -> bool:
        """Return whether devices behind this port are virtual."""

    def open(self, path: str) -> int:
        """Open a device node for reading and writing; return a file descriptor of this port."""

    def close(self, fd: int) -> None:
        """Close a descriptor returned by :meth:`open`."""

    def ioctl(self, fd: int, argument: Ioctl) -> None:
        """Issue ``argument.REQUEST``; outputs are in ``argument`` afterwards. EINTR is retried here."""

    def mmap(self, fd: int, length: int, offset: int, *, address: int = 0) -> int:
        """Map ``length`` bytes at ``offset`` of ``fd``, shared, readable and writable; return the address.

        With ``address`` the mapping replaces that part of a range from :meth:`reserve`.
        """

    def reserve(self, length: int, alignment: int = 4096) -> int:
        """Return the address of ``length`` bytes of address space that nothing else will be mapped into."""

    def munmap(self, address: int, length: int) -> None:
        """Undo :meth:`mmap`, or :meth:`reserve` with everything that was mapped into the range since."""

    def doorbell(self, address: int) -> Callable[[int], None]:
        """Return what rings the doorbell at ``address``, which was mapped by :meth:`mmap`.

        It orders all earlier stores before one 64-bit store of its argument.
        """

    def read_text(self, path: str) -> str:
        """Return the text of a sysfs file."""

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a sysfs directory, sorted."""

    def now(self) -> float:
        """Return monotonic seconds. On a virtual machine this is the machine's clock."""

    def sleep(self, seconds: float) -> None:
        """Sleep. On a virtual machine in inline mode this lets its engines run."""

    def fence(self) -> None:
        """Order all earlier stores of this thread before all later ones, as seen by a device."""

    def clean(self, address: int, length: int) -> None:
        """Write the CPU cache lines that hold this range back to memory, so that a device sees them."""

    def invalidate(self, address: int, length: int) -> None:
        """Drop the CPU cache lines that hold this range, so that reads see what a device wrote."""

    def explain(self, fd: int, context: int) -> FaultReport | None:
        """Return why ``context`` was lost, if this port can tell (a virtual one always can)."""
