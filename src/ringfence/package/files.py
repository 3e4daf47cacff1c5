"""Files that results go to: whether they can be written, and archives of arrays."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def why_not_writable(path: Path) -> str:
    """Return why no file can be written at ``path``, nothing if one can. For use before long work."""
    folder = path.absolute().parent
    try:
        if not folder.is_dir():
            return f"there is no folder {folder}"
        if path.exists():
            if not path.is_file():
                return f"{path} is not a file"
            return "" if os.access(path, os.W_OK) else f"{path} is read-only"
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write an archive for :func:`numpy.load`, at exactly this path and with any names.

    :func:`numpy.savez` adds a suffix to the path and has parameters with names of their own.
    """
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.save(member, array, allow_pickle=False)
