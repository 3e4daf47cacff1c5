"""Puts this directory on the import path, so that tests find the package ``oracle``.

It also gives the run a translation cache of its own: what another version of the code left behind must not be
what is tested.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest

_made: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """Make the cache; the workers of pytest-xdist inherit it."""
    if "RINGFENCE_CACHE" not in os.environ:
        _made.append(tempfile.mkdtemp(prefix="ringfence-tests-"))
        os.environ["RINGFENCE_CACHE"] = _made[0]


def pytest_unconfigure(config: pytest.Config) -> None:
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)
