"""Outputs against onnxruntime's for the same inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from ringfence.cli.extras import require
from ringfence.cli.output import row, table
from ringfence.errors import LaunchError, RingfenceError

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """``max_error`` is the largest absolute difference, ``scale`` that of the reference's values.

    ``max_error`` is ``None`` if either side holds a number that is not finite where the other differs.
    """

    max_error: float | None
    scale: float

    @property
    def relative(self) -> float | None:
        """Return the error in units of the scale."""
        if self.max_error is None:
            return None
        return self.max_error / self.scale if self.scale else float(self.max_error > 0)


def check_reference(model: Path) -> None:
    """:class:`RingfenceError` if there is no such model or onnxruntime is not installed."""
    require("reference", "comparing with a reference")
    if not model.is_file():
        raise LaunchError(f"there is no reference model {model}")


def run_onnxruntime(model: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs that onnxruntime computes on this host's CPU.

    :class:`LaunchError` if it cannot load the model or the model does not take these inputs.
    """
    import onnxruntime

    errors: tuple[type[Exception], ...] = (RuntimeError, ValueError, TypeError, *_error_types(onnxruntime))
    try:
        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(inputs))))
    except errors as error:
        raise LaunchError(f"onnxruntime cannot run {model} on these inputs: {error}") from error


def _error_types(onnxruntime: Any) -> tuple[type[Exception], ...]:
    """onnxruntime's exceptions have no common base but ``Exception``."""
    state = onnxruntime.capi.onnxruntime_pybind11_state
    return tuple(
        kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception)
    )


def difference(ours: Array, reference: Array, name: str = "output") -> Difference:
    """Return how far ``ours`` is from ``reference``; :class:`LaunchError` if the shapes differ."""
    if ours.shape != reference.shape:
        raise LaunchError(f"output {name!r} has shape {ours.shape}, the reference {reference.shape}")
    a, b = ours.astype(np.float64), reference.astype(np.float64)
    finite = np.abs(b[np.isfinite(b)])
    scale = float(finite.max()) if finite.size else 0.0
    unlike = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not np.isfinite(a[unlike]).all() or not np.isfinite(b[unlike]).all():
        return Difference(None, scale)
    return Difference(float(np.abs(a[unlike] - b[unlike]).max()) if unlike.any() else 0.0, scale)


def differences(ours: Mapping[str, Array], reference: Mapping[str, Array]) -> dict[str, Difference]:
    """Compare every output of ``ours``; :class:`LaunchError` if the reference lacks one."""
    if absent := sorted(ours.keys() - reference.keys()):
        raise LaunchError(f"the reference model has no output {', '.join(absent)}")
    return {name: difference(array, reference[name], name) for name, array in ours.items()}


def check_agreement(found: Mapping[str, Difference], tolerance: float | None) -> None:
    """:class:`RingfenceError` names the outputs that differ by more than ``tolerance``, a fraction of their
    largest value. With ``None`` any finite difference will do.
    """
    problems = []
    for name, d in found.items():
        if d.relative is None:
            problems.append(f"{name} is finite in one of them only")
        elif tolerance is not None and not d.relative <= tolerance:
            problems.append(
                f"{name} by {d.relative:.1e} of its largest value, where {tolerance:g} is allowed"
            )
    if problems:
        raise RingfenceError(f"outputs differ from the reference: {'; '.join(problems)}")


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def difference_table(found: Mapping[str, Difference]) -> Table:
    """Return the table of errors per output."""
    numbers = ("largest error", "scale", "error / scale")
    made = table("against onnxruntime on this host's CPU", "output", *numbers, numbers=numbers)
    for name, d in found.items():
        if d.max_error is None or d.relative is None:
            row(made, name, "not finite", f"{d.scale:.6g}", "")
        else:
            row(made, name, f"{d.max_error:.3e}", f"{d.scale:.6g}", f"{d.relative:.2e}")
    return made
