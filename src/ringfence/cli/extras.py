"""Optional dependencies: which are missing, and what to install."""

from __future__ import annotations

import importlib.util

from ringfence.errors import RingfenceError

EXTRAS = {
    "virtual": ("llvmlite",),
    "compile": ("tinygrad", "tinymesa", "ziglang", "onnx"),
    "reference": ("onnxruntime",),
}


def missing(extra: str) -> tuple[str, ...]:
    """Return the modules of an extra that are not installed, without importing any."""
    return tuple(name for name in EXTRAS[extra] if not _installed(name))


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:  # a finder refuses the name
        return False


def require(extra: str, purpose: str) -> None:
    """:class:`RingfenceError` naming the extra if one of its modules is missing."""
    if absent := missing(extra):
        raise RingfenceError(
            f"{purpose} needs {', '.join(absent)}, which is not installed; "
            f"install it with: pip install 'ringfence[{extra}]'"
        )
