"""What the executors of all shader ISAs share on the host's side: aligned memory and the watchdog."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from ringfence.virtual.isa import simt

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


def aligned(size: int) -> Bytes:
    """Return zeroed bytes that start at a multiple of 64."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def context(values: dict[str, int]) -> Words:
    """Return a context for translated code: see :data:`simt.CONTEXT_FIELDS`."""
    words = np.zeros(len(simt.CONTEXT_FIELDS), np.uint64)
    for name, value in values.items():
        words[simt.CONTEXT[name] // 8] = value
    return words


def field(words: Words, name: str) -> int:
    """Return a field of a context."""
    return int(words[simt.CONTEXT[name] // 8])


class Watchdog:
    """Sets a flag that running code polls when a deadline passes. Its thread starts with the first launch."""

    def __init__(self) -> None:
        self.flag: npt.NDArray[Any] = np.zeros(16, np.uint32)
        self._deadline = float("inf")
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, seconds: float) -> None:
        """Clear the flag and set it when ``seconds`` have passed."""
        with self._lock:
            self.flag[0] = 0
            self._deadline = time.monotonic() + seconds
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="ringfence-watchdog", daemon=True)
            self._thread.start()

    def disarm(self) -> None:
        """Let nothing stop what starts next without a deadline of its own."""
        with self._lock:
            self._deadline = float("inf")

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            with self._lock:
                if time.monotonic() > self._deadline:
                    self.flag[0] = 1

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
