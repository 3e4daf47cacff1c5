"""What the executors of all shader ISAs share on the host's side: aligned memory, threads, the watchdog."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ringfence.virtual.isa import simt

WATCH_SECONDS = 0.05
ANOTHER_PART = "another part of the launch had failed"

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


def group_count(groups: Sequence[int]) -> int:
    """Return how many work-groups a launch has, or a number of them that takes years and fits a context."""
    return min(math.prod(groups), 1 << 62)


class Interrupts:
    """How often this process was asked to stop (SIGINT), known at once although the main thread is busy.

    Python tells its main thread, between two of its own instructions: not while machine code runs. But it
    writes to the descriptor of :func:`signal.set_wakeup_fd` at once. Whoever has set one, or handles SIGINT
    in another way than by KeyboardInterrupt, is left alone.
    """

    def __init__(self) -> None:
        self.count = 0
        self._descriptors: tuple[int, int] | None = None

    def install(self) -> None:
        """Begin to look; does nothing from another than the main thread, or the second time."""
        if self._descriptors is not None or threading.current_thread() is not threading.main_thread():
            return
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        other = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if other >= 0:
            signal.set_wakeup_fd(other)
            os.close(reader)
            os.close(writer)
            return
        self._descriptors = reader, writer
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A child has signals of its own; nothing runs in it."""
        if self._descriptors is not None:
            signal.set_wakeup_fd(-1)
            for descriptor in self._descriptors:
                os.close(descriptor)
            self._descriptors = None

    def look(self) -> int:
        """Return the count as it is now."""
        if self._descriptors is not None:
            with contextlib.suppress(BlockingIOError):
                signals = os.read(self._descriptors[0], 4096)
                if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                    self.count += signals.count(signal.SIGINT)
        return self.count


@cache
def interrupts() -> Interrupts:
    """Return those of this process: there is one wake-up descriptor."""
    return Interrupts()


class Watchdog:
    """Sets a flag that running code polls: when a deadline passes, or when the main thread runs the code and
    the process is interrupted. ``why`` says what for. Its thread starts with the first launch.
    """

    def __init__(self) -> None:
        self.flag: npt.NDArray[Any] = np.zeros(16, np.uint32)
        self.why = ""
        self._deadline = float("inf")
        self._seconds = 0.0
        self._interrupts: int | None = None  # so many when the main thread began to run code
        self._cancelled = False
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, seconds: float) -> None:
        """Clear the flag and set it when ``seconds`` have passed."""
        if self._thread is None:
            interrupts().install()
            self._thread = threading.Thread(target=self._watch, name="ringfence-watchdog", daemon=True)
            self._thread.start()
        main = threading.current_thread() is threading.main_thread()
        with self._lock:
            self._interrupts = interrupts().look() if main else None
            self._seconds, self._deadline = seconds, time.monotonic() + seconds
            self.flag[0] = int(self._cancelled)

    def disarm(self) -> None:
        """Let nothing stop what starts next without a deadline of its own."""
        with self._lock:
            self._deadline, self._interrupts = float("inf"), None

    def cancel(self) -> None:
        """Stop what runs, and whatever starts later."""
        with self._lock:
            self._cancelled = True
            self._set("the virtual machine was told to end")

    def stop(self, why: str) -> None:
        """Stop what runs."""
        with self._lock:
            self._set(why)

    def _set(self, why: str) -> None:
        if not self.flag[0]:
            self.why = why
        self.flag[0] = 1

    def _watch(self) -> None:
        while not self._stop.wait(WATCH_SECONDS):
            with self._lock:
                if self._interrupts is not None and interrupts().look() != self._interrupts:
                    self._set("the process was interrupted")
                elif time.monotonic() > self._deadline:
                    self._set(f"it had run for {self._seconds:g} s of this host's time")

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()


def call_all(
    pool: ThreadPoolExecutor, watchdog: Watchdog, call: Callable[[Words], int], contexts: Sequence[Words]
) -> list[int]:
    """Call with each context on a thread of its own; return the results. Nothing runs any more if this
    raises.
    """
    futures = [pool.submit(call, words) for words in contexts]
    try:
        return [future.result() for future in futures]
    except BaseException:
        watchdog.stop("the process was interrupted")
        while not all(future.done() for future in futures):
            with contextlib.suppress(KeyboardInterrupt):
                wait(futures)
        raise
