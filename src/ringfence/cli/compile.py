"""``ringfence compile``: an ONNX model to a package."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ringfence.cli.arguments import WHOLE
from ringfence.cli.extras import require
from ringfence.cli.output import check_output, console, print_json, size
from ringfence.cli.summary import summary, summary_table
from ringfence.compile.request import TARGETS
from ringfence.errors import PackageError
from ringfence.package import Package, read_package

_TITLES = {
    "import": "import the model",
    "schedule": "plan the launches",
    "constants": "fold constants",
    "kernels": "compile programs",
    "write": "write the package",
}


def compile_command(
    model: Annotated[Path, typer.Argument(help="The ONNX file.")],
    target: Annotated[
        str, typer.Option(metavar="CHIP", help=f"The chip to compile for: {', '.join(TARGETS)}.")
    ] = "a630",
    image: Annotated[
        bool | None,
        typer.Option(
            "--image/--no-image",
            help="Keep weights and activations in images (textures)  [default: where the target has them]",
        ),
    ] = None,
    float16: Annotated[
        bool, typer.Option("--float16", help="Store images as halves; needs --image.")
    ] = False,
    input_shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=1x3x320x320", help="Fix an input's open dimensions; repeatable."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The package to write  [default: MODEL.rfp]")
    ] = None,
    channel_order: Annotated[
        Literal["RGB", "BGR"] | None, typer.Option(help="Channel order of the picture input.")
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(
            metavar="R,G,B",
            help="Subtracted from pixels (0 to 1), one number or one per channel  [default: 0.5]",
        ),
    ] = None,
    std: Annotated[
        str | None,
        typer.Option(
            metavar="R,G,B", help="Divides pixels after that, one number or one per channel  [default: 0.5]"
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Compiling processes  [default: one per CPU]")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """Compile an ONNX model into a package for one chip.

    Needs the extra ringfence[compile]. The same input gives the same bytes every time. Mean, std and channel
    order are stored in the package; `ringfence run` applies them to pictures.
    """
    shapes = dict(_shape(text) for text in input_shape or ())
    path = output or Path(f"{model.stem}.rfp")
    check_output(path, "--output")
    require("compile", "compiling a model")
    from ringfence.compile import compile_model

    with StageBars() as bar:
        package = compile_model(
            model,
            path,
            target=target,
            image=image,
            float16=float16,
            input_shapes=shapes,
            channels=channel_order,
            mean=_numbers(mean, "--mean"),
            std=_numbers(std, "--std"),
            jobs=jobs,
            progress=bar.update,
        )
    with package:
        _report(package, path, json)


def is_current(package: Path, model: Path) -> bool:
    """Return whether ``package`` is whole and was made from ``model`` by the compilers installed here."""
    from ringfence.compile.versions import compiler_versions

    if not package.exists():
        return False
    try:
        with read_package(package) as opened:
            manifest = opened.manifest
        installed = compiler_versions(manifest.target)
    except (PackageError, PackageNotFoundError):
        return False
    return (
        manifest.compiler == installed
        and manifest.model_sha256 == hashlib.sha256(model.read_bytes()).hexdigest()
    )


def _report(package: Package, path: Path, json: bool) -> None:
    if json:
        print_json(summary(package))
        return
    out = console()
    out.print(summary_table(package))
    out.print(f"wrote {path} ({size(path.stat().st_size)})", markup=False)


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, found, dims = text.rpartition("=")
    numbers = dims.lower().split("x")
    if not found or not name or not all(map(WHOLE.fullmatch, numbers)):
        raise typer.BadParameter(
            f"{text!r} is not of the form NAME=1x3x320x320 with dimensions from 1 up",
            param_hint="--input-shape",
        )
    return name, tuple(map(int, numbers))


def _numbers(text: str | None, option: str) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of numbers such as 0.5,0.5,0.5", param_hint=option
        ) from None


class StageBars:
    """A progress bar on stderr, one line per stage."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<20}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console(stderr=True),
        )
        self._tasks: dict[str, TaskID] = {}

    def update(self, stage: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` units of ``stage`` are finished."""
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(_TITLES.get(stage, stage), total=total)
        self._progress.update(self._tasks[stage], completed=done, total=total)

    def __enter__(self) -> StageBars:
        self._progress.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._progress.stop()
