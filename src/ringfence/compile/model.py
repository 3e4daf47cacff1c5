"""ONNX models to packages: the side that needs neither tinygrad nor onnx imported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from ringfence.compile.process import ProgressCallback, run
from ringfence.compile.request import ADRENO_TARGETS, Picture, Request, check_target
from ringfence.errors import CompileError
from ringfence.package.format import Package, read_package, why_no_package

_SMALLEST, _LARGEST = 1e-30, 1e30
"""What pixels may be divided by, or have subtracted."""


def compile_model(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    target: str = "a630",
    image: bool | None = None,
    float16: bool = False,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    channels: Literal["RGB", "BGR"] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    jobs: int | None = None,
    progress: ProgressCallback | None = None,
) -> Package:
    """Compile the ONNX model at ``path`` into the package ``output`` and return the package, opened.

    ``target`` is a chip: an Adreno (``"a630"``) or an AMD GPU (``"gfx1100"``), one of
    :data:`~ringfence.compile.request.TARGETS`. ``image`` keeps weights and activations of convolutions in
    images (textures), by default on all targets that have them: the Adrenos. ``float16`` stores those as
    halves; it has no effect, and is refused, without images. ``input_shapes`` fixes open dimensions by input
    name.

    ``channels``, ``mean`` and ``std`` (of pixels from 0 to 1; one number, or one per channel) are stored for
    those who feed pictures; the defaults are RGB, 0.5 and 0.5. They apply to the only input that is one
    picture of one or three channels.

    ``progress(stage, done, total)`` is called from this thread. ``jobs`` counts code-generating processes,
    one per usable CPU by default. The same arguments and versions give the same bytes.

    :class:`CompileError`: the file is no ONNX model, uses what the importer does not support, has open
    shapes, or the compiler failed.
    """
    source = Path(path)
    if not source.is_file():
        raise CompileError(f"there is no model file {source}")
    check_target(target)
    with_images = target in ADRENO_TARGETS if image is None else image
    if with_images and target not in ADRENO_TARGETS:
        raise CompileError(f"{target} has no images for a network; compile without (--no-image)")
    if float16 and not with_images:
        raise CompileError(
            "float16 storage needs images (--float16 with --image, for an Adreno): tinygrad halves image "
            "storage only"
        )
    _check_pixels("mean", mean, low=-_LARGEST)
    _check_pixels("std", std, low=_SMALLEST)
    if problem := why_no_package(output):
        raise CompileError(f"no package can be written: {problem}")
    request = Request(
        action="compile",
        model=str(source.resolve()),
        output=str(Path(output).absolute()),
        target=target,
        image=with_images,
        float16=float16,
        input_shapes={name: tuple(shape) for name, shape in (input_shapes or {}).items()},
        picture=Picture(
            channels=channels,
            mean=None if mean is None else tuple(mean),
            std=None if std is None else tuple(std),
        ),
        jobs=len(os.sched_getaffinity(0)) if jobs is None else jobs,
    )
    run(request, progress)
    return read_package(output)


def _check_pixels(name: str, values: Sequence[float] | None, low: float) -> None:
    """Refuse numbers that would make pixels, which are 32-bit floats, anything but numbers."""
    for value in values or ():
        if not low <= value <= _LARGEST:
            raise CompileError(f"{name} {value:g}: it must be a number from {low:g} to {_LARGEST:g}")
