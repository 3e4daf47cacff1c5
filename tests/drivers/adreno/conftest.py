"""A driver on a port that acknowledges."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fake_kgsl import FakeKgsl

import ringfence as rf


@pytest.fixture
def kgsl() -> FakeKgsl:
    return FakeKgsl()


@pytest.fixture
def device(kgsl: FakeKgsl) -> Iterator[rf.Device]:
    with rf.open("kgsl", port=kgsl, timeout=5.0) as opened:
        yield opened
        kgsl.release()
