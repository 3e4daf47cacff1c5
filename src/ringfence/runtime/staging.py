"""Copies between CPU memory and buffers that the CPU does not reach, through memory that both reach.

Two pieces of host memory are used in turn: while a kernel copies between one and the buffer, the CPU copies
between the other and its own memory. A piece fits the last-level cache of any CPU that has one.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ringfence.runtime.memory import Buffer, CacheMode
from ringfence.runtime.queue import Submission

PIECE_BYTES = 2 << 20


class Staging:
    """Double-buffered copies of one device. ``allocate`` returns host memory, ``launch`` copies by a kernel
    (destination, source).
    """

    def __init__(
        self,
        allocate: Callable[[int], Buffer],
        launch: Callable[[Buffer, Buffer], Submission],
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._allocate = allocate
        self._launch = launch
        self._bytes = piece_bytes
        self._pieces: tuple[Buffer, ...] = ()
        self._lock = threading.Lock()

    def _ready(self) -> tuple[Buffer, ...]:
        if not self._pieces or any(piece.freed for piece in self._pieces):
            self._pieces = tuple(self._allocate(self._bytes) for _ in range(2))
        return self._pieces

    def _parts(self, buffer: Buffer) -> Iterator[tuple[int, Buffer, Buffer, int]]:
        """Yield byte offset, part of the buffer, the piece for it, and which of the two that is."""
        pieces = self._ready()
        for number, offset in enumerate(range(0, buffer.nbytes, self._bytes)):
            count = min(self._bytes, buffer.nbytes - offset)
            which = number % 2
            yield offset, buffer.offset_view(offset, count), pieces[which].offset_view(0, count), which

    def write(self, buffer: Buffer, address: int, timeout: float | None) -> None:
        """Replace the contents of ``buffer`` by those of CPU memory at ``address``."""
        with self._lock:
            jobs: list[Submission | None] = [None, None]
            for offset, part, piece, which in self._parts(buffer):
                before = jobs[which]
                if before is not None:
                    before.wait(timeout)
                ctypes.memmove(_address(piece), address + offset, piece.nbytes)
                jobs[which] = self._launch(part, piece)
            for job in jobs:
                if job is not None:
                    job.wait(timeout)

    def read(self, buffer: Buffer, address: int, timeout: float | None) -> None:
        """Copy the contents of ``buffer`` to CPU memory at ``address``."""
        with self._lock:
            running: tuple[Any, ...] | None = None
            for offset, part, piece, _ in self._parts(buffer):
                started = (self._launch(piece, part), piece, offset)
                if running is not None:
                    _take(running, address, timeout)
                running = started
            if running is not None:
                _take(running, address, timeout)


def _take(running: tuple[Any, ...], address: int, timeout: float | None) -> None:
    job, piece, offset = running
    job.wait(timeout)
    ctypes.memmove(address + offset, _address(piece), piece.nbytes)


def _address(piece: Buffer) -> int:
    address = piece.host_address
    assert address is not None and piece.mapping.cache is not CacheMode.DEVICE
    return address
