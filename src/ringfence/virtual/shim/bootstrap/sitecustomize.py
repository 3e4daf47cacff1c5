"""Runs before anything else in a Python process under ``ringfence shim``.

Installs the hooks, then steps aside.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def _step_aside() -> None:
    """Remove this folder from the path and run the ``sitecustomize`` that it hides, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    hidden = PathFinder.find_spec("sitecustomize")
    if hidden is not None and hidden.loader is not None:
        hidden.loader.exec_module(module_from_spec(hidden))


def _install() -> None:
    try:
        from ringfence.virtual import shim
    except ImportError as error:
        # Some other Python that the program starts, perhaps; it may have no business with GPUs.
        print(f"ringfence shim: no virtual devices for {sys.executable}: {error}", file=sys.stderr)
        return
    shim.install_from_environment()


_step_aside()
_install()
