"""The coverage table tells the truth: every instruction is executed and tested, or refused with a reason."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path

import pytest

from ringfence.hardware.amd.rdna.opcodes import VOPD_OPCODES
from ringfence.virtual.isa.rdna import coverage
from ringfence.virtual.isa.rdna.refused import REFUSED
from ringfence.virtual.isa.rdna.table import semantics
from virtual.isa.rdna.harness import COVERED

ROOT = Path(__file__).parents[4]


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
    assert {row.name: row.formats for row in rows} == coverage.names()
    assert len(rows) == len(coverage.names())


def test_an_instruction_is_executed_or_refused_with_a_reason() -> None:
    for row in coverage.table():
        assert row.implemented == (row.name in semantics() or row.name in VOPD_OPCODES)
        assert row.implemented == (row.name not in REFUSED)
        assert (row.fidelity is not None) == row.implemented


def test_every_instruction_names_what_its_decoding_is_compared_with() -> None:
    for row in coverage.table():
        assert coverage.TABLES in row.decode_oracle
        assert (coverage.ASSEMBLER in row.decode_oracle) == (not row.name.startswith("buffer_load_lds_"))


def test_the_table_as_text_has_a_line_for_each_instruction() -> None:
    heading, *lines, totals = coverage.lines()
    assert [line.split("\t")[0] for line in lines] == [row.name for row in coverage.table()]
    assert {line.count("\t") for line in lines} == {heading.count("\t")}
    assert totals.startswith(f"{len(lines)} instructions")


def test_semantics_exist_for_instructions_that_decode_only() -> None:
    assert set(semantics()) - {"vopd"} <= set(coverage.names())
    assert set(REFUSED) <= set(coverage.names())


@pytest.mark.parametrize("file", sorted({r.semantic_test for r in coverage.table() if r.semantic_test}))
def test_every_executed_instruction_has_a_semantic_test_in_the_file_that_the_table_names(file: str) -> None:
    assert (ROOT / file).is_file()
    for row in coverage.table():
        if row.semantic_test == file:
            tests = _covered().get(row.name, set())
            assert any(test.startswith(f"{_module(file)}.") for test in tests), (row.name, tests)


def test_tests_cover_only_instructions_that_exist() -> None:
    assert set(_covered()) <= set(coverage.names())
