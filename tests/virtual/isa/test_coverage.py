"""The coverage table tells the truth: every instruction is executed and tested, or refused with a reason."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path

import pytest

from ringfence.hardware.adreno.ir3 import OPCODES
from ringfence.virtual.isa import coverage
from ringfence.virtual.isa.ir3.refused import REFUSED
from ringfence.virtual.isa.ir3.translate import SEMANTICS
from virtual.isa.ir3.harness import COVERED

TESTS = Path(__file__).parents[3]


def _module(path: str) -> str:
    return ".".join(Path(path).with_suffix("").parts[1:])


@cache
def _covered() -> dict[str, set[str]]:
    """Import the test modules that the table names; they record what they check."""
    for path in sorted({row.semantic_test for row in coverage.table() if row.semantic_test is not None}):
        importlib.import_module(_module(path))
    return COVERED


def test_the_table_has_every_instruction_of_the_decoder_once() -> None:
    rows = coverage.table()
    assert {row.name: row.category for row in rows} == OPCODES
    assert len(rows) == len(OPCODES)


def test_an_instruction_is_executed_or_refused_with_a_reason() -> None:
    for row in coverage.table():
        assert row.implemented == (row.name in SEMANTICS or row.name == "nop")
        assert row.implemented == (row.name not in REFUSED)
        assert (row.refused is None) == row.implemented
        assert (row.fidelity is not None) == row.implemented


@pytest.mark.parametrize("row", [r for r in coverage.table() if r.implemented], ids=lambda r: r.name)
def test_every_executed_instruction_has_a_semantic_test_in_the_file_that_the_table_names(
    row: coverage.Coverage,
) -> None:
    assert row.semantic_test is not None
    assert (TESTS / row.semantic_test).is_file()
    tests = _covered().get(row.name, set())
    assert any(test.startswith(f"{_module(row.semantic_test)}.") for test in tests), tests


def test_tests_cover_only_instructions_that_exist() -> None:
    assert set(_covered()) <= set(OPCODES)
