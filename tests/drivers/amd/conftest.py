"""The KFD driver on a virtual machine with one or two GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ringfence as rf
from ringfence.virtual.machine import Machine


@pytest.fixture
def machine() -> Iterator[Machine]:
    with Machine(("gfx1100", "gfx1100")) as opened:
        yield opened


@pytest.fixture
def device(machine: Machine) -> Iterator[rf.Device]:
    with rf.open("kfd:0", port=machine, timeout=20.0) as opened:
        yield opened
