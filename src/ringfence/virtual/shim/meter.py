"""Counts what a virtual GPU executed for a client, and how long that took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from ringfence.errors import FaultReport
from ringfence.virtual.memory import AddressSpace


class Meter:
    """An executor factory for a machine whose executor, which ``make`` makes, is counted."""

    def __init__(self, make: Callable[[], Any], *, strict: bool) -> None:
        self._make, self._strict = make, strict
        self._executor: Any = None
        self.dispatches = 0
        self.seconds = 0.0
        self.codes: set[bytes] = set()

    def __call__(self) -> Meter:
        self._executor = self._make()
        return self

    @property
    def statistics(self) -> Any:
        """The executor's own counts."""
        assert self._executor is not None
        return self._executor.statistics

    def prepare(self, dispatches: Iterable[Any]) -> None:
        assert self._executor is not None
        self._executor.prepare(dispatches)

    def run(self, dispatch: Any, memory: AddressSpace) -> FaultReport | None:
        assert self._executor is not None
        self.dispatches += 1
        self.codes.add(dispatch.code)
        started = time.perf_counter()
        try:
            report: FaultReport | None = self._executor.run(dispatch, memory)
            return report
        finally:
            self.seconds += time.perf_counter() - started

    def cancel(self) -> None:
        if self._executor is not None:
            self._executor.cancel()

    def close(self) -> None:
        if self._executor is not None:
            self._executor.close()

    def summary(self) -> dict[str, Any]:
        """Return the counts; ``gpu_seconds`` includes waiting for translation."""
        out: dict[str, Any] = {
            "strict": self._strict,
            "dispatches": self.dispatches,
            "programs": len(self.codes),
            "gpu_seconds": round(self.seconds, 3),
        }
        if self._executor is not None:
            counts = self._executor.statistics
            out |= {
                "compilations": counts.compilations,
                "cache_hits": counts.cache_hits,
                "translate_seconds": round(counts.seconds, 3),
            }
        return out
