"""Real networks on virtual GPUs: errors, time per frame, time to translate programs.

One row per model, target and way of storing. ``max_error`` is the largest absolute difference to the
reference on the same input, ``scale`` the largest absolute value of the reference, both of the output with
the worst ratio. The ``reference`` is ``onnxruntime``; with half storage it is ``plan``, the same launches
with the same storage on the host's CPU, and ``onnxruntime_error`` tells what halves cost.

``frame_ms`` is the median wall time of a frame on this host, which executes the GPU's machine code: it says
nothing about a real GPU. ``translate_cold_s`` and ``translate_warm_s`` are what opening the package and its
first frame take beyond an ordinary frame, in a process of its own, with an empty and with a filled cache.

Packages, and what their plans compute on the CPU, are made once, into ``out/benchmarks``.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from ringfence.cli.compare import Difference, differences, run_onnxruntime
from ringfence.cli.compile import StageBars, is_current
from ringfence.cli.output import console, row, table
from ringfence.cli.run import run_frames
from ringfence.compile import compile_model, run_reference
from ringfence.package import Manifest, read_package
from ringfence.package.format import Tensor
from ringfence.package.picture import to_input

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from demo.__main__ import PAGE  # noqa: E402
from tests.models import MODELS, ModelFile  # noqa: E402

PLAIN = (False, False)
STORAGE = {  # images, halves; halves are kept in images only
    "a630": (PLAIN, (True, False), (True, True)),
    "gfx1100": (PLAIN,),
}
QUICK_MODELS = ("pnet", "rnet", "onet", "silero")
FRAMES, QUICK_FRAMES = 10, 3
PAGE_LINE = (2, 45, 380, 70)  # a line of text on the page: left, top, right, bottom

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement."""

    model: str
    target: str
    image: bool
    float16: bool
    max_error: float | None
    scale: float
    frame_ms: float
    translate_cold_s: float
    translate_warm_s: float
    reference: str
    onnxruntime_error: float | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, write the rows if asked."""
    options = _parser().parse_args(arguments)
    out = console()
    columns = ("image", "float16", "max error", "scale", "error / scale", "frame ms", "cold s", "warm s")
    title = "networks on virtual GPUs, whose times are this host's"
    made = table(title, "model", "target", *columns, "reference", numbers=columns)
    rows = []
    for measured in _measure_all(options):
        rows.append(measured)
        row(made, *_cells(measured))
    out.print(made)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in rows], indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Real networks on a virtual GPU.")
    parser.add_argument("--quick", action="store_true", help=f"few frames of {', '.join(QUICK_MODELS)}")
    parser.add_argument("--targets", nargs="+", choices=tuple(STORAGE), help="only these; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as a list")
    parser.add_argument(
        "--models", nargs="+", choices=tuple(MODELS), metavar="NAME", help="only these models"
    )
    parser.add_argument("--frames", type=int, help=f"frames per model (default {FRAMES})")
    parser.add_argument(
        "--packages", type=Path, default=ROOT / "out" / "benchmarks", help="where packages are kept"
    )
    return parser


def _measure_all(options: argparse.Namespace) -> Iterator[Row]:
    frames = options.frames or (QUICK_FRAMES if options.quick else FRAMES)
    options.packages.mkdir(parents=True, exist_ok=True)
    for model in MODELS.values():
        if options.models is not None and model.name not in options.models:
            continue
        if options.models is None and options.quick and model.name not in QUICK_MODELS:
            continue
        try:
            path = model.path
        except FileNotFoundError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        for target in options.targets or STORAGE:
            for storage in STORAGE[target]:
                package = compiled(model, path, target, storage, options.packages)
                yield measure(model.name, path, package, frames)


def compiled(model: ModelFile, path: Path, target: str, storage: tuple[bool, bool], folder: Path) -> Path:
    """Return the model's package, which is compiled unless a current one is there."""
    image, float16 = storage
    package = folder / f"{model.name}_{target}_image{image:d}_float16{float16:d}.rfp"
    if not is_current(package, path):
        print(f"compiling {package.name}", file=sys.stderr)
        with StageBars() as bars:
            compile_model(
                path,
                package,
                target=target,
                image=image,
                float16=float16,
                input_shapes=model.input_shapes,
                progress=bars.update,
            ).close()
    return package


def measure(name: str, model: Path, package: Path, frames: int) -> Row:
    """Run the package in two processes, the first with an empty cache, and compare its outputs."""
    with read_package(package) as opened:
        manifest = opened.manifest
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as scratch:
        folder = Path(scratch)
        inputs = realistic_inputs(name, manifest)
        np.savez(folder / "inputs.npz", allow_pickle=False, **inputs)
        cold = _run(package, folder, 2)
        warm = _run(package, folder, 1 + frames)
        with np.load(folder / "outputs.npz") as loaded:
            outputs = dict(loaded)
    exact = _worst(differences(outputs, run_onnxruntime(model, inputs)))
    worst, reference = exact, "onnxruntime"
    if manifest.float16:
        worst, reference = _worst(differences(outputs, on_cpu(package, model, inputs))), "plan"
    frame = warm["frame_s"]
    return Row(
        model=name,
        target=manifest.target,
        image=manifest.image,
        float16=manifest.float16,
        max_error=worst.max_error,
        scale=worst.scale,
        frame_ms=frame * 1e3,
        translate_cold_s=max(0.0, cold["first_s"] - frame),
        translate_warm_s=max(0.0, warm["first_s"] - frame),
        reference=reference,
        onnxruntime_error=exact.max_error,
    )


def on_cpu(package: Path, model: Path, inputs: dict[str, Array]) -> dict[str, Array]:
    """Return what the package's plan computes on the host's CPU; it is kept beside the package."""
    digest = hashlib.sha256(package.read_bytes())
    for name, array in sorted(inputs.items()):
        digest.update(name.encode() + array.tobytes())
    kept = package.with_name(f"{package.stem}_{digest.hexdigest()[:16]}.npz")
    if not kept.exists():
        print(f"running the plan of {package.name} on the CPU", file=sys.stderr)
        for old in package.parent.glob(f"{package.stem}_*.npz"):
            old.unlink()
        np.savez(kept, allow_pickle=False, **run_reference(package, model, inputs))
    with np.load(kept) as loaded:
        return dict(loaded)


def _worst(found: dict[str, Difference]) -> Difference:
    return max(found.values(), key=lambda d: float("inf") if d.relative is None else d.relative)


def _run(package: Path, folder: Path, frames: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--child", str(package), str(folder), str(frames)]
    environment = {**os.environ, "RINGFENCE_CACHE": str(folder / "cache")}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"{package.name}: the run failed:\n{result.stderr}")
    times: dict[str, float] = json.loads(result.stdout)
    return times


def child(package: Path, folder: Path, frames: int) -> None:
    """Run the package; print how long opening it with the first frame, and a median frame, took."""
    with np.load(folder / "inputs.npz") as loaded:
        inputs = dict(loaded)
    with read_package(package) as opened:
        device = f"virtual:{opened.manifest.target}"
    report = run_frames(device, package, inputs, frames)
    np.savez(folder / "outputs.npz", allow_pickle=False, **report.outputs)
    frame = float(np.median([timings.total for timings in report.frames]))
    json.dump({"first_s": report.load_seconds + report.first_seconds, "frame_s": frame}, sys.stdout)


# ----- inputs ---------------------------------------------------------------------------------------


def realistic_inputs(name: str, manifest: Manifest) -> dict[str, Array]:
    """Return a picture of printed text, sound, or a file's bytes: what the network is made for."""
    if manifest.layout is not None:
        return {manifest.layout.input: to_input(manifest.layout, _picture(name))}
    make = _file_bytes if name == "magika" else _sound
    return {tensor.name: make(tensor).astype(tensor.dtype) for tensor in manifest.inputs}


def _picture(name: str) -> Image.Image:
    with Image.open(PAGE.path) as page:
        text = page.convert("RGB")
    return text.crop(PAGE_LINE) if name in ("ocr_cls", "ocr_rec") else text


def _sound(tensor: Tensor) -> Array:
    """Return vowel-like sound (16 kHz) for silero, a chord (22.05 kHz) for basic_pitch, zeros for a state."""
    if tensor.name == "state":
        return np.zeros(tensor.shape)
    rate, notes = (22050, (220.0, 277.2, 329.6)) if tensor.shape[-1] == 1 else (16000, (140.0,))
    time = np.arange(math.prod(tensor.shape)) / rate
    sound = np.zeros_like(time)
    for note, k in itertools.product(notes, range(1, 12)):
        sound += np.sin(2 * np.pi * note * k * time) / k
    noise = np.random.default_rng(0).standard_normal(len(time)) * 0.003  # of a microphone: no band is silent
    return (0.2 / len(notes) * sound + noise).reshape(tensor.shape)


def _file_bytes(tensor: Tensor) -> Array:
    """Return the first and the last bytes of a text, as magika reads a file."""
    text = np.frombuffer(Path(__file__).read_bytes(), np.uint8)
    half = tensor.shape[-1] // 2
    return np.concatenate([text[:half], text[-half:]]).reshape(tensor.shape)


def _cells(r: Row) -> tuple[object, ...]:
    error = "not finite" if r.max_error is None else f"{r.max_error:.2e}"
    ratio = "" if r.max_error is None else f"{r.max_error / r.scale:.1e}"
    return (
        r.model,
        r.target,
        int(r.image),
        int(r.float16),
        error,
        f"{r.scale:.4g}",
        ratio,
        f"{r.frame_ms:.1f}",
        f"{r.translate_cold_s:.2f}",
        f"{r.translate_warm_s:.2f}",
        r.reference,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main())
