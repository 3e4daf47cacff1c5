"""Sync files: descriptors of this process that become readable when a timestamp retires.

A real sync file is a descriptor of its own kind; here it is an eventfd, which polls the same way. The
kernel numbers eventfds (``eventfd-id`` in /proc/self/fdinfo, since Linux 5.2), so that a descriptor that
was duplicated, or reused for something else, is told apart.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

_ID = re.compile(r"^eventfd-id:\s*(\d+)", re.MULTILINE)


class Fences:
    """The fences of one device that have not signalled yet, and those that have."""

    def __init__(self) -> None:
        self._pending: dict[int, int] = {}  # eventfd-id -> our duplicate, with which we signal
        self._signalled: set[int] = set()
        self._actions: dict[int, list[Callable[[], None]]] = {}

    def create(self, signalled: bool) -> tuple[int, int]:
        """Return a new descriptor for the client and the fence's number.

        ``OSError`` if there are too many files.
        """
        descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        number = fence_number(descriptor)
        if number is None:
            os.close(descriptor)
            raise OSError("this kernel does not number eventfds (Linux 5.2 does), which sync files need")
        self._pending[number] = os.dup(descriptor)
        if signalled:
            self.signal(number)
        return descriptor, number

    def signal(self, number: int) -> None:
        """Make the descriptor readable."""
        ours = self._pending.pop(number, None)
        if ours is not None:
            os.eventfd_write(ours, 1)
            os.close(ours)
            self._signalled.add(number)
            for action in self._actions.pop(number, ()):
                action()

    def when_signalled(self, number: int, action: Callable[[], None]) -> None:
        """Do ``action`` when a fence signals, or at once if it has."""
        if self.has_signalled(number):
            action()
        else:
            self._actions.setdefault(number, []).append(action)

    def known(self, number: int | None) -> bool:
        return number in self._pending or number in self._signalled

    def has_signalled(self, number: int) -> bool:
        return number not in self._pending

    def close(self) -> None:
        """Signal everything that is pending: nothing will do it later."""
        for number in list(self._pending):
            self.signal(number)


def fence_number(descriptor: int) -> int | None:
    """Return the number of the eventfd behind a descriptor; ``None`` if it is none."""
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as info:
            found = _ID.search(info.read())
    except OSError:
        return None
    return int(found[1]) if found else None
