"""What the oracle tests share: a tally of declared names that were found in an independent source."""

from __future__ import annotations

import pytest

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
