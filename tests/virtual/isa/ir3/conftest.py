"""One executor for all tests of a process, with an empty cache of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ringfence.virtual.isa.ir3.executor import Executor
from virtual.isa.ir3.harness import Rows


@pytest.fixture(scope="session")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    executor = Executor(cache_dir=tmp_path_factory.mktemp("cache"), threads=2, hang_seconds=20.0)
    yield executor
    executor.close()


@pytest.fixture(scope="session")
def rows(executor: Executor) -> Rows:
    return Rows(executor)
