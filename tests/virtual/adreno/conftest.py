"""Machines for the tests of the virtual KGSL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ringfence.virtual.machine import LiveObjects, Machine
from virtual.adreno.client import Client, FakeExecutor


@pytest.fixture
def executor() -> FakeExecutor:
    return FakeExecutor()


@pytest.fixture
def machine(executor: FakeExecutor) -> Iterator[Machine]:
    """An inline machine on the virtual clock.

    At its end nothing but the client's own mappings may be left. They end with a client's process, here with
    the test: else the addresses that the next machines try first would run out.
    """
    with Machine(clock="virtual", executor_factory=lambda: executor) as machine:
        yield machine
    left = machine.live_objects()
    assert left == LiveObjects(
        client_mappings=left.client_mappings, objects=left.objects, backings=left.backings
    )
    machine.mappings.unmap(0, 1 << 48)


@pytest.fixture
def client(machine: Machine) -> Client:
    return Client(machine)
