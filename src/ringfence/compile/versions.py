"""Which software made a package: what its manifest records, and what tells that a package is out of date."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from importlib.metadata import version

from ringfence import __version__
from ringfence.compile.request import AMD_TARGETS

_PACKAGES = ("tinygrad", "tinymesa", "ziglang", "onnx")
_AMD_PACKAGES = ("tinygrad", "llvmlite", "ziglang", "onnx")


def compiler_versions(target: str) -> dict[str, str]:
    """Return the versions of everything that influences the code generated for ``target``.

    This software's has a digest of the modules that compile. Raises PackageNotFoundError if a compiler is not
    installed.
    """
    names = _AMD_PACKAGES if target in AMD_TARGETS else _PACKAGES
    return {"ringfence": f"{__version__}+{_digest()}", **{name: version(name) for name in names}}


@cache
def _digest() -> str:
    """Return eight digits that change with the sources of this package."""
    found = hashlib.sha256()
    files = resources.files("ringfence.compile").iterdir()
    for file in sorted((f for f in files if f.name.endswith((".py", ".h"))), key=lambda f: f.name):
        found.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()[:8]
