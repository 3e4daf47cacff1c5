"""What the oracle tests share: a tally of declared names, and bit fields as Mesa's constants give them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from tinygrad.runtime.autogen import mesa

_lines: list[str] = []


class Tally:
    """Compares declared facts with an independent source and reports how many names it has covered."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.agreed = 0
        self.problems: list[str] = []

    def compare(self, name: str, declared: object, oracle: object) -> None:
        """Count one name; an ``oracle`` of ``None`` means that the source does not know the name."""
        if oracle is None:
            self.problems.append(f"{name}: no oracle value and no listed reason")
        elif declared != oracle:
            self.problems.append(f"{name}: declared {declared}, oracle says {oracle}")
        else:
            self.agreed += 1

    def finish(self) -> None:
        """Print "N of N" and fail on every name that disagreed or had no oracle."""
        line = f"{self.what}: {self.agreed} of {self.agreed + len(self.problems)}"
        print(line)
        _lines.append(line)
        assert not self.problems, "\n".join([line, *self.problems])
        assert self.agreed, f"{self.what}: nothing was compared"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _lines:
        terminalreporter.section("names checked against an independent source")
        for line in _lines:
            terminalreporter.line(line)
        _lines.clear()


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    return Tally(f"{request.path.stem}::{request.node.name}")


@pytest.fixture
def mesa_bits() -> Callable[[Iterable[str], str], tuple[int, int] | None]:
    """Look a field up under each prefix; return its lowest and highest bit, ``None`` if Mesa lacks it.

    Mesa's generated constants have ``NAME__SHIFT`` and ``NAME__MASK``, or just ``NAME`` for a single bit.
    """

    def look_up(prefixes: Iterable[str], field: str) -> tuple[int, int] | None:
        for prefix in prefixes:
            name = f"{prefix}_{field.lstrip('_')}"
            if hasattr(mesa, f"{name}__SHIFT"):
                low, mask = getattr(mesa, f"{name}__SHIFT"), getattr(mesa, f"{name}__MASK")
                high = mask.bit_length() - 1
                assert mask == (1 << high + 1) - (1 << low), f"{name} is not contiguous"
                return low, high
            if isinstance(bit := getattr(mesa, name, None), int) and bit.bit_count() == 1:
                return bit.bit_length() - 1, bit.bit_length() - 1
        return None

    return look_up
