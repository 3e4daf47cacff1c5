"""Finds the lines of text on a photograph of a page, on virtual GPUs of both families, and compares with
onnxruntime.

``make demo`` runs it; ``python -m demo --help`` lists its options.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from rich.text import Text

import ringfence as rf
from demo.drawing import draw
from demo.regions import Region, best_matches, find_regions
from ringfence.cli.compare import Difference, difference_table, differences, run_onnxruntime
from ringfence.cli.compile import StageBars, is_current
from ringfence.cli.output import console, row, table
from ringfence.cli.run import Report, describe, run_frames, stages_of
from ringfence.errors import RingfenceError
from ringfence.package import Manifest, read_package
from ringfence.package.picture import to_input
from tests.models import MODELS, ModelFile

PAGE = ModelFile("page", "scikit-image==0.26.0", "skimage/data/page.png")
INPUT = "x"
MULTIPLE = 32  # the network halves its input five times
ERROR_LIMIT = {
    False: 1e-4,
    True: None,
}  # of the scale, by float16; half storage is judged by the regions alone
IOU_LIMIT = 0.9
DEVICES = ("virtual:a630", "virtual:gfx1100")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a device made of the picture: a row of the last table."""

    kind: str
    storage: str
    frame_ms: float
    regions: int
    expected: int
    worst_iou: float
    error: float | None
    passed: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; return 0 if the result agrees with onnxruntime's."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except (RingfenceError, OSError) as error:
        print(f"demo: error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--device",
        action="append",
        metavar="SPEC",
        help=f"device to run on; repeatable (default: {' and '.join(DEVICES)})",
    )
    parser.add_argument("--frames", type=int, default=10, help="how often to run (default: %(default)s)")
    parser.add_argument(
        "--float16", action="store_true", help="store images as halves, on devices that have images"
    )
    parser.add_argument("--picture", type=Path, help="another picture (default: scikit-image's page.png)")
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="folder for results (default: %(default)s)"
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    detector, picture = MODELS["ocr_det"].path, options.picture or PAGE.path
    with Image.open(picture) as opened:
        page = opened.convert("RGB")
    outcomes = [_on_device(spec, detector, page, options) for spec in options.device or DEVICES]
    if len(outcomes) > 1:
        _print_outcomes(outcomes)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _on_device(spec: str, detector: Path, page: Image.Image, options: argparse.Namespace) -> Outcome:
    """Run the picture on one device and compare."""
    out = console()
    with rf.open(spec) as device:
        chip, images = device.info.chip, device.info.family == "adreno"
    package = _package(detector, page, chip, images, options.float16 and images, options.out)
    with read_package(package) as read:
        manifest = read.manifest
    assert manifest.layout is not None
    inputs = {INPUT: to_input(manifest.layout, page)}
    frames = max(1, options.frames)
    report = run_frames(spec, package, inputs, frames)
    reference = run_onnxruntime(detector, inputs)
    for line in describe(manifest, report):
        out.print(Text(line), soft_wrap=True)
    out.print(stages_of(report, frames))
    return _compare(out, page, report, reference, manifest, options.out)


def _package(detector: Path, page: Image.Image, chip: str, images: bool, float16: bool, folder: Path) -> Path:
    """Return the package for pictures of this size; it is compiled unless an earlier run left it."""
    height, width = (max(1, round(n / MULTIPLE)) * MULTIPLE for n in (page.height, page.width))
    path = folder / f"text_detector_{chip}_{width}x{height}{'_float16' * float16}.rfp"
    if is_current(path, detector):
        print(f"{path} is there from an earlier run")
        return path
    from ringfence.compile import compile_model

    storage = ", with images" * images
    print(f"compiling {detector.name} for {chip}{storage}, for pictures of {width}x{height}")
    with StageBars() as bars:
        compile_model(
            detector,
            path,
            target=chip,
            image=images,
            float16=float16,
            input_shapes={INPUT: (1, 3, height, width)},
            channels="BGR",
            progress=bars.update,
        ).close()
    return path


def _compare(
    out: Any,
    page: Image.Image,
    report: Report,
    reference: dict[str, npt.NDArray[Any]],
    manifest: Manifest,
    folder: Path,
) -> Outcome:
    (name,) = report.outputs
    found = differences(report.outputs, reference)
    out.print(difference_table(found))
    ours, theirs = (_regions(maps[name], page) for maps in (report.outputs, reference))
    matches = best_matches(ours, theirs)
    _print_regions(out, ours, theirs, matches)
    worst = min(matches, default=0.0)
    chip = report.device.chip
    kind = "virtual " * report.device.virtual + (chip if chip.startswith("gfx") else chip.upper())
    storage = "float16" if manifest.float16 else "float32"
    caption = (
        f"PP-OCRv4 text detector, {storage}, on a {kind}"
        f"{': no GPU was involved' if report.device.virtual else ''}",
        f"{len(ours)} regions, onnxruntime {len(theirs)}; least IoU {worst:.4f}; "
        f"largest error {found[name].max_error or 0:.1e} of {found[name].scale:.3g}",
    )
    path = folder / f"text_regions_{chip}{'_float16' * manifest.float16}.png"
    draw(page, ours, theirs, caption, kind).save(path)
    print(f"wrote {path}")
    return Outcome(
        kind,
        storage,
        1000 * median(frame.total for frame in report.frames),
        len(ours),
        len(theirs),
        worst,
        found[name].relative,
        _verdict(found[name], worst, manifest.float16),
    )


def _print_outcomes(outcomes: Sequence[Outcome]) -> None:
    numbers = ("frame ms", "regions", "onnxruntime's", "least IoU", "error / scale")
    made = table("the same picture on every device", "device", "storage", *numbers, numbers=numbers)
    for each in outcomes:
        error = "" if each.error is None else f"{each.error:.1e}"
        figures = (
            f"{each.frame_ms:.0f}",
            str(each.regions),
            str(each.expected),
            f"{each.worst_iou:.4f}",
            error,
        )
        row(made, each.kind, each.storage, *figures)
    console().print(made)


def _regions(maps: npt.NDArray[Any], page: Image.Image) -> list[Region]:
    height, width = maps.shape[-2:]
    found = find_regions(np.asarray(maps[0, 0], np.float64))
    return [region.scaled(page.width / width, page.height / height) for region in found]


def _print_regions(
    out: Any, ours: Sequence[Region], theirs: Sequence[Region], matches: Sequence[float]
) -> None:
    numbers = ("score", "IoU with onnxruntime's")
    made = table(
        f"text regions: {len(ours)}, onnxruntime {len(theirs)}",
        "#",
        "corners (x, y)",
        *numbers,
        numbers=numbers,
    )
    for number, match in enumerate(matches):
        if number < len(ours):
            corners = "  ".join(f"{x:.1f},{y:.1f}" for x, y in ours[number].corners)
            row(made, number + 1, corners, f"{ours[number].score:.4f}", f"{match:.4f}")
        else:
            row(made, "-", "only onnxruntime found it", "", f"{match:.4f}")
    out.print(made)


def _verdict(found: Difference, worst: float, float16: bool) -> bool:
    limit = ERROR_LIMIT[float16]
    failures = []
    if found.relative is None or (limit is not None and found.relative > limit):
        failures.append(f"the error is {found.relative} of the scale, more than {limit}")
    if worst < IOU_LIMIT:
        failures.append(
            f"a region agrees with onnxruntime's only to an IoU of {worst:.3f}, less than {IOU_LIMIT}"
        )
    for failure in failures:
        print(f"demo: {failure}", file=sys.stderr)
    return not failures


if __name__ == "__main__":
    sys.exit(main())
