"""How long the stages of frames and launches took, over many of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.table import Table

from ringfence.cli.output import row, table
from ringfence.package.model import FrameTimings
from ringfence.runtime.queue import Timings

TITLES = {
    "copy_in": "copy in",
    "host_encode": "host encode",
    "stack_growth": "private memory growth",
    "queue": "queue",
    "gpu": "GPU",
    "host_visible": "host-visible",
    "copy_out": "copy out",
    "total": "total",
}
FRAME_STAGES = ("copy_in", "host_encode", "queue", "gpu", "host_visible", "copy_out", "total")
LAUNCH_STAGES = ("host_encode", "stack_growth", "queue", "gpu", "host_visible", "total")


@dataclass(frozen=True, slots=True)
class Stage:
    """Milliseconds of one stage over all runs."""

    median_ms: float
    p99_ms: float
    max_ms: float


def summarise(
    runs: Sequence[FrameTimings] | Sequence[Timings], names: Sequence[str] = FRAME_STAGES
) -> dict[str, Stage | None]:
    """Return every stage's statistics by name; ``None`` for a stage that the device could not tell.

    ``runs`` are frames, or with :data:`LAUNCH_STAGES` launches.
    """
    return {name: _stage([getattr(run, name) for run in runs]) for name in names}


def _stage(seconds: Sequence[float | None]) -> Stage | None:
    known = [value * 1e3 for value in seconds if value is not None]
    if not known:
        return None
    return Stage(float(np.median(known)), float(np.percentile(known, 99)), max(known))


def as_json(stages: dict[str, Stage | None]) -> dict[str, Any]:
    """Return :func:`summarise`'s result as plain data."""
    return {name: None if stage is None else asdict(stage) for name, stage in stages.items()}


def stage_table(title: str, stages: dict[str, Stage | None]) -> Table:
    """Return the table of median, 99th percentile and maximum, in milliseconds."""
    columns = ("median ms", "p99 ms", "max ms")
    made = table(title, "stage", *columns, numbers=columns)
    for name, stage in stages.items():
        values = ("unknown",) * 3 if stage is None else (stage.median_ms, stage.p99_ms, stage.max_ms)
        row(made, TITLES[name], *(v if isinstance(v, str) else f"{v:.3f}" for v in values))
    return made
