"""``ringfence run``: a package on a device, frame after frame; or a single kernel, see ``launch.py``."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy.typing as npt
import typer
from rich.text import Text

from ringfence.cli.compare import (
    Difference,
    check_agreement,
    check_reference,
    difference_table,
    differences,
    file_sha256,
    run_onnxruntime,
)
from ringfence.cli.devices import DEVICES, open_device
from ringfence.cli.inputs import assign, read_inputs
from ringfence.cli.launch import Options, launch_command
from ringfence.cli.output import VIRTUAL_NOTICE, check_output, console, notice, print_json, row, size, table
from ringfence.cli.programs import FileKind, kind_of
from ringfence.cli.stages import as_json, stage_table, summarise
from ringfence.package import Manifest, read_package
from ringfence.package.files import write_arrays
from ringfence.package.model import FrameTimings
from ringfence.runtime.device import DeviceInfo

Array = npt.NDArray[Any]
Differences = dict[str, Difference]

FIRST_FRAME_TIMEOUT = 600.0  # a virtual device translates the programs of the first frame while it runs


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


def run_frames(
    device_name: str, package: Path, inputs: Mapping[str, Array], frames: int, chip: str = "a630"
) -> Report:
    """Bind ``package`` once on the device and run it for ``frames`` frames on the same inputs.

    ``chip`` is what ``auto`` looks for.
    """
    with open_device(device_name, chip) as device:
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


TOLERANCE = 1e-4
"""Of the largest value of an output, in single precision. What halves cost is a property of the model."""

_OF_PACKAGES = ("input", "frames", "outputs", "reference", "tolerance")
_OF_KERNELS = ("kernel", "arg", "groups", "global_size", "local", "define", "lds", "out", "time", "timeout")


def run_command(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A package, a code object (.co), an Adreno program blob, or OpenCL C (.cl)."
        ),
    ],
    device: Annotated[str, typer.Option(help=f"{DEVICES}.")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
    input: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FILE", help="Package: a picture or an array (.npy) for an input; repeatable."
        ),
    ] = None,
    frames: Annotated[int, typer.Option(min=1, help="Package: how often to run.")] = 1,
    outputs: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="Package: write the last frame's outputs.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL.onnx",
            help="Package: compare with onnxruntime; needs ringfence[reference]. The exit status is 1 if "
            "outputs differ by more than --tolerance.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="FRACTION",
            help="Package: how much an output may differ from the reference, as a fraction of its largest "
            f"value  [default: {TOLERANCE:g}; with halves any finite difference]",
        ),
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(metavar="NAME", help="Kernel: which one, if the file has several.")
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[LABEL=]VALUE",
            help="Kernel: the next argument: 1.5, u32:1000, zeros:f32:1024 (or ones, arange), "
            "random:f32:64x64:SEED, @in.npy, or local:4096 bytes of local memory. Types may be left out "
            "where the file names them.",
        ),
    ] = None,
    groups: Annotated[str | None, typer.Option(metavar="4x2x1", help="Kernel: how many work-groups.")] = None,
    global_size: Annotated[
        str | None,
        typer.Option(metavar="1024x64x1", help="Kernel: how many work-items, instead of --groups."),
    ] = None,
    local: Annotated[
        str | None, typer.Option(metavar="256x1x1", help="Kernel: work-items of a work-group.")
    ] = None,
    define: Annotated[
        list[str] | None,
        typer.Option(
            "--define", "-D", metavar="NAME=VALUE", help="Kernel: a macro for OpenCL C; repeatable."
        ),
    ] = None,
    lds: Annotated[
        int, typer.Option(min=0, metavar="BYTES", help="Kernel: local memory beyond what it names (AMD).")
    ] = 0,
    out: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL=FILE.npy", help="Kernel: write a buffer's contents; repeatable."),
    ] = None,
    time: Annotated[
        int, typer.Option(min=0, metavar="N", help="Kernel: launch N times more and print median times.")
    ] = 0,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Kernel: how long to wait for each launch.")
    ] = None,
) -> None:
    """Run a package, or a single kernel.

    A package is bound once, then submitted once per frame. A kernel is launched once with the arguments of
    --arg, in order; the contents of the buffers that it may write are summed up. A file with several kernels
    is listed if none is chosen.

    Prints how long the stages took. The first frame or launch stands apart: on a virtual device it includes
    the translation of the programs, unless an earlier run left them in the cache.
    """
    kind = kind_of(file)
    _refuse(context, file, kind)
    if kind is FileKind.PACKAGE:
        run_package(file, device, input or (), frames, json, outputs, reference, tolerance)
        return
    if timeout is not None and not 0 < timeout < float("inf"):
        raise typer.BadParameter(f"{timeout:g} is no time to wait", param_hint="--timeout")
    options = Options(
        kernel=kernel,
        groups=groups,
        global_size=global_size,
        local=local,
        arguments=arg or (),
        out=out or (),
        defines=define or (),
        lds=lds,
        timeout=timeout,
        again=time,
    )
    launch_command(file, kind, device, options, json)


def _refuse(context: typer.Context, file: Path, kind: FileKind) -> None:
    """Refuse options that the file has no use for."""
    package = kind is FileKind.PACKAGE
    for name in _OF_KERNELS if package else _OF_PACKAGES:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            what = "kernels" if package else "packages"
            raise typer.BadParameter(
                f"this is for {what}; {file} is {kind.value}", param_hint=f"--{name.replace('_', '-')}"
            )


def run_package(
    path: Path,
    device: str,
    input: Sequence[str],
    frames: int,
    json: bool,
    outputs: Path | None,
    reference: Path | None,
    tolerance: float | None,
) -> None:
    """Run a package for some frames and print what that showed.

    :class:`RingfenceError` if the outputs are not those of the reference.
    """
    if tolerance is not None and (reference is None or math.isnan(tolerance)):
        problem = "this is for --reference" if reference is None else "nan is no fraction"
        raise typer.BadParameter(problem, param_hint="--tolerance")
    if outputs is not None:
        check_output(outputs, "--outputs")
    with read_package(path) as opened:
        manifest = opened.manifest
    tensors = read_inputs(assign(input, manifest), manifest)
    if reference is not None:
        check_reference(reference)
    with _status(f"running {frames} frame{'s' * (frames > 1)} on {device}"):
        report = run_frames(device, path, tensors, frames, manifest.target)
    found = None if reference is None else _compare(reference, tensors, report, manifest)
    if outputs is not None:
        write_arrays(outputs, report.outputs)
    if json:
        print_json(_as_json(path, manifest, frames, report, found))
    else:
        _print(manifest, frames, report, found, outputs)
    if found is not None:
        check_agreement(found, _default_tolerance(manifest) if tolerance is None else tolerance)


def _default_tolerance(manifest: Manifest) -> float | None:
    halves = manifest.float16 or any(tensor.dtype == "float16" for tensor in manifest.outputs)
    return None if halves else TOLERANCE


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
