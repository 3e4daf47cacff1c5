"""One executor for all RDNA tests of a process, with an empty cache of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ringfence.virtual.isa.rdna.executor import Executor


@pytest.fixture(scope="session")
def amd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    executor = Executor(cache_dir=tmp_path_factory.mktemp("cache"), threads=2, hang_seconds=20.0)
    yield executor
    executor.close()
