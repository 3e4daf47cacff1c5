"""``ringfence run``: a package on a device, frame after frame."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.text import Text

from ringfence.cli.compare import (
    Difference,
    check_reference,
    difference_table,
    differences,
    file_sha256,
    run_onnxruntime,
)
from ringfence.cli.inputs import assign, read_inputs
from ringfence.cli.output import console, notice, print_json, row, size, table
from ringfence.cli.stages import as_json, stage_table, summarise
from ringfence.package import Manifest, read_package
from ringfence.package.model import FrameTimings
from ringfence.runtime.device import DeviceInfo

Array = npt.NDArray[Any]
Differences = dict[str, Difference]

FIRST_FRAME_TIMEOUT = 600.0  # a virtual device translates the programs of the first frame while it runs
VIRTUAL_NOTICE = (
    "virtual device: this host executes the command stream and the machine code; "
    "its times say nothing about a GPU"
)


@dataclass(frozen=True, slots=True)
class Report:
    """What running a package for some frames showed. Seconds and bytes.

    ``frames`` are the timings after the first frame, or the first frame's if there is no other. ``outputs``
    are the last frame's.
    """

    device: DeviceInfo
    load_seconds: float
    first_seconds: float
    frames: tuple[FrameTimings, ...]
    outputs: dict[str, Array]
    device_bytes: int
    peak_bytes: int


def run_frames(device_name: str, package: Path, inputs: Mapping[str, Array], frames: int) -> Report:
    """Bind ``package`` once on the device and run it for ``frames`` frames on the same inputs."""
    import ringfence

    with ringfence.open(device_name) as device:
        begin = time.perf_counter()
        with device.load_package(package) as model:
            loaded = time.perf_counter()
            model.timeout = FIRST_FRAME_TIMEOUT
            outputs = model.run(inputs)
            model.timeout = None
            first = time.perf_counter()
            timings = [model.timings]
            for _ in range(frames - 1):
                outputs = model.run(inputs)
                timings.append(model.timings)
            return Report(
                device=device.info,
                load_seconds=loaded - begin,
                first_seconds=first - loaded,
                frames=tuple(timings[1:] or timings),
                outputs=outputs,
                device_bytes=device.memory_bytes,
                peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            )


def run_command(
    package: Annotated[Path, typer.Argument(help="The package file.")],
    device: Annotated[
        str, typer.Option(help="auto, kgsl, or virtual:a630 (with settings: virtual:a630?strict=0&seed=7).")
    ] = "auto",
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="[NAME=]FILE", help="A picture or an array (.npy) for an input; repeatable."),
    ] = None,
    frames: Annotated[int, typer.Option(min=1, help="How often to run.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
    outputs: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Write the last frame's outputs.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(metavar="MODEL.onnx", help="Compare with onnxruntime; needs ringfence[reference]."),
    ] = None,
) -> None:
    """Run a package on a device: bound once, then one submission per frame.

    Prints how long the stages of a frame took. The first frame stands apart: on a virtual device it includes
    the translation of the programs, unless an earlier run left them in the cache.
    """
    if outputs is not None and not outputs.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {outputs.absolute().parent}", param_hint="--outputs")
    with read_package(package) as opened:
        manifest = opened.manifest
    tensors = read_inputs(assign(input or (), manifest), manifest)
    if reference is not None:
        check_reference(reference)
    with _status(f"running {frames} frame{'s' * (frames > 1)} on {device}"):
        report = run_frames(device, package, tensors, frames)
    found = None if reference is None else _compare(reference, tensors, report, manifest)
    if outputs is not None:
        np.savez(outputs, allow_pickle=False, **report.outputs)
    if json:
        print_json(_as_json(package, manifest, frames, report, found))
    else:
        _print(manifest, frames, report, found, outputs)


def _compare(path: Path, inputs: Mapping[str, Array], report: Report, manifest: Manifest) -> Differences:
    found = differences(report.outputs, run_onnxruntime(path, inputs))
    if file_sha256(path) != manifest.model_sha256:
        notice(f"note: {path} is not the file that the package was compiled from")
    return found


def _status(text: str) -> AbstractContextManager[object]:
    err = console(stderr=True)
    return err.status(Text(text)) if err.is_terminal else nullcontext()


def _as_json(
    package: Path, manifest: Manifest, frames: int, report: Report, found: Differences | None
) -> dict[str, Any]:
    return {
        "package": str(package),
        "model": manifest.name,
        "device": asdict(report.device),
        "virtual": report.device.virtual,
        "frames": frames,
        "load_ms": report.load_seconds * 1e3,
        "first_frame_ms": report.first_seconds * 1e3,
        "stages": as_json(summarise(report.frames)),
        "device_bytes": report.device_bytes,
        "peak_host_bytes": report.peak_bytes,
        "outputs": {k: {"dtype": v.dtype.name, "shape": list(v.shape)} for k, v in report.outputs.items()},
        "reference": None
        if found is None
        else {k: {**asdict(d), "relative": d.relative} for k, d in found.items()},
    }


def _print(
    manifest: Manifest,
    frames: int,
    report: Report,
    found: Differences | None,
    outputs: Path | None,
) -> None:
    out = console()
    for line in describe(manifest, report):
        out.print(Text(line), soft_wrap=True)
    out.print(stages_of(report, frames))
    made = table("memory at its peak", "what", "bytes", numbers=("bytes",))
    row(made, "device: weights, arena, inputs, outputs, programs, commands", size(report.device_bytes))
    row(made, "this process, resident", size(report.peak_bytes))
    out.print(made)
    if found is not None:
        out.print(difference_table(found))
    if outputs is not None:
        out.print(Text(f"wrote {outputs}"), soft_wrap=True)


def describe(manifest: Manifest, report: Report) -> list[str]:
    """Return what ran on what, in lines for people."""
    info = report.device
    kind = "virtual" if info.virtual else "real"
    lines = [
        f"model   {manifest.name}: {len(manifest.steps)} launches of {len(manifest.programs)} programs for "
        f"{manifest.target}",
        f"device  {info.name}: {kind} {info.chip}, chip id {info.chip_id:#010x}, through {info.interface}",
    ]
    if info.virtual:
        lines.append(VIRTUAL_NOTICE)
    lines.append(
        f"loaded and bound in {report.load_seconds * 1e3:.1f} ms, "
        f"first frame {report.first_seconds * 1e3:.1f} ms"
        + (" (with translation, if the cache had none)" if info.virtual else "")
    )
    return lines


def stages_of(report: Report, frames: int) -> Any:
    """Return the stage table of a report."""
    where = "virtual " * report.device.virtual + report.device.chip
    which = "the first frame" if frames == 1 else f"frames 2 to {frames}"
    return stage_table(f"stages on the {where}, {which}", summarise(report.frames))
