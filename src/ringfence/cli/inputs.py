"""Input tensors of a package from files: numpy arrays and pictures."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import numpy.typing as npt

from ringfence.errors import LaunchError
from ringfence.package import Manifest

Array = npt.NDArray[Any]

MAX_PICTURE_PIXELS = 1 << 28


def assign(texts: Sequence[str], manifest: Manifest) -> dict[str, Path]:
    """Return the file of every input, from ``NAME=FILE``, or ``FILE`` for the only input.

    :class:`LaunchError` for an unknown, repeated or missing input.
    """
    names = [tensor.name for tensor in manifest.inputs]
    files: dict[str, Path] = {}
    for text in texts:
        name, file = _split(text, names)
        if name in files:
            raise LaunchError(f"input {name!r} is given twice: {files[name]} and {file}")
        files[name] = file
    if absent := [name for name in names if name not in files]:
        raise LaunchError(
            f"model {manifest.name!r} takes the inputs {', '.join(names)}; "
            f"missing: {', '.join(absent)}; give each with --input NAME=FILE"
        )
    return files


def _split(text: str, names: Sequence[str]) -> tuple[str, Path]:
    name, found, file = text.partition("=")
    if found and name in names:
        return name, Path(file)
    if len(names) == 1 and (not found or Path(text).exists()):
        return names[0], Path(text)
    known = ", ".join(names)
    if found:
        raise LaunchError(f"--input {quote(text)}: there is no input {name!r}; the package takes {known}")
    raise LaunchError(f"--input {quote(text)}: which of the inputs {known} is it? Write NAME={text}")


def read_inputs(files: Mapping[str, Path], manifest: Manifest) -> dict[str, Array]:
    """Return the tensors in ``files``: ``.npy`` as it is, others as pictures in the package's layout."""
    return {name: _read(name, path, manifest) for name, path in files.items()}


def _read(name: str, path: Path, manifest: Manifest) -> Array:
    if not path.is_file():
        raise LaunchError(f"input {name!r}: there is no file {path}")
    if path.suffix == ".npy":
        return load_array(f"input {name!r}", path)
    return _read_picture(name, path, manifest)


def load_array(what: str, path: Path) -> Array:
    """Return the array in a numpy file; :class:`LaunchError`, saying for ``what``, if it is none."""
    try:
        loaded = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, MemoryError, OverflowError, zipfile.BadZipFile) as error:
        raise LaunchError(f"{what}: {path} is not a numpy array file: {error}") from error
    except OSError as error:
        raise LaunchError(f"{what}: {path} cannot be read: {error.strerror}") from error
    if not isinstance(loaded, np.ndarray):
        loaded.close()
        raise LaunchError(f"{what}: {path} is an archive of arrays (.npz), not one array (.npy)")
    array: Array = np.ascontiguousarray(loaded).reshape(loaded.shape)
    return array


def _read_picture(name: str, path: Path, manifest: Manifest) -> Array:
    layout = manifest.layout
    if layout is None or layout.input != name:
        raise LaunchError(
            f"input {name!r} does not take a picture; give an array file (.npy), or compile the model with a "
            "shape of one picture of 1 or 3 channels"
        )
    from PIL import Image, UnidentifiedImageError

    from ringfence.package.picture import to_input

    try:
        with Image.open(path) as picture:
            if picture.width * picture.height > MAX_PICTURE_PIXELS:
                raise LaunchError(f"input {name!r}: {path} has {picture.width}x{picture.height} pixels")
            return to_input(layout, picture)
    except (UnidentifiedImageError, Image.DecompressionBombError, SyntaxError, ValueError) as error:
        raise LaunchError(
            f"input {name!r}: {path} is neither an array (.npy) nor a picture: {error}"
        ) from error
    except OSError as error:
        raise LaunchError(f"input {name!r}: {path} cannot be read as a picture: {error}") from error
