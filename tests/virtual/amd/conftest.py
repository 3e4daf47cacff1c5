"""Machines for the tests of the virtual KFD."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ringfence.virtual.machine import LiveObjects, Machine
from virtual.amd.client import Client, FakeExecutor


@pytest.fixture
def executor() -> FakeExecutor:
    return FakeExecutor()


@pytest.fixture
def machine(executor: FakeExecutor) -> Iterator[Machine]:
    """An inline machine on the virtual clock.

    At its end nothing but the client's own mappings, which end with its process, may be left.
    """
    with Machine(("gfx1100",), clock="virtual", executor_factory=lambda: executor) as machine:
        yield machine
    machine.mappings.unmap(0, 1 << 48)
    assert machine.live_objects() == LiveObjects()


@pytest.fixture
def client(machine: Machine) -> Client:
    return Client(machine)
