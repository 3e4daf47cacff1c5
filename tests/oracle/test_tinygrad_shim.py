"""tinygrad's own tests end on a virtual GPU as on a device of tinygrad, or the reason is known."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from run_tinygrad_suite import (
    AMD_SUITES,
    DEFAULT,
    DEFAULT_AMD,
    SUITES,
    Comparison,
    Difference,
    Outcome,
    Runner,
    default_suites,
    differences,
    read_results,
    suites_of,
)
from tinygrad_differences import KNOWN, KNOWN_AMD, Known, reason

conformance = [
    pytest.mark.conformance,
    pytest.mark.skipif("TINYGRAD" not in os.environ, reason="TINYGRAD names no tinygrad checkout"),
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None,
        reason="torch, which tinygrad's tests need, is not installed",
    ),
]


DEVICES = ("virtual:a630", "virtual:gfx1100")


@pytest.fixture(
    scope="module", params=[(device, name) for device in DEVICES for name in default_suites(device)], ids=str
)
def comparison(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    device, name = request.param
    if device == "virtual:gfx1100" and "LLVM_PATH" not in os.environ:
        pytest.skip("LLVM_PATH names no libLLVM, which tinygrad's mock compiles with")
    scratch = tmp_path_factory.getbasetemp() / device.partition(":")[2]
    scratch.mkdir(exist_ok=True)
    return Runner(Path(os.environ["TINYGRAD"]).resolve(), scratch, device).compare(name)


class TestOnBothDevices:
    """What ``make conformance`` runs; ``run_tinygrad_suite.py`` prints the same as a table."""

    pytestmark = conformance

    def test_every_difference_has_a_reason(self, comparison: Comparison) -> None:
        assert comparison.unexplained == []

    def test_most_tests_pass_on_the_virtual_device(self, comparison: Comparison) -> None:
        """Of those that it runs; that one is skipped is a difference, which needs a reason."""
        counts = comparison.virtual.counts
        assert counts["passed"] > (sum(counts.values()) - counts.get("skipped", 0)) / 2

    def test_the_virtual_device_did_the_work(self, comparison: Comparison) -> None:
        assert comparison.device["dispatches"] > 0


# ----- the comparison itself ----------------------------------------------------------------------


def test_only_tests_that_end_differently_are_differences() -> None:
    passed, failed = Outcome("passed", 0.1), Outcome("failed", 0.1, "why")
    found = differences("tiny", {"T.a": passed, "T.b": passed}, {"T.a": passed, "T.b": failed})
    assert found == [Difference("tiny", "T.b", "passed", "failed", "why", "")]


def test_a_test_that_did_not_run_is_a_difference() -> None:
    (found,) = differences("tiny", {"T.a": Outcome("passed", 0.1)}, {})
    assert (found.reference, found.virtual) == ("passed", "absent")


def test_one_failed_subtest_fails_its_test(tmp_path: Path) -> None:
    results = tmp_path / "results.xml"
    results.write_text(
        '<testsuites><testsuite><testcase classname="test.T" name="a"><failure message="bad"/></testcase>'
        '<testcase classname="test.T" name="a"/></testsuite></testsuites>'
    )
    assert read_results(results) == {"T.a": Outcome("failed", 0.0, "bad")}


@pytest.mark.parametrize("table", [KNOWN, KNOWN_AMD], ids=["a630", "gfx1100"])
def test_a_reason_holds_for_the_change_that_it_was_given_for(table: tuple[Known, ...]) -> None:
    for known in table:
        test = known.tests.replace("*", "x")
        suite = known.suites.replace("*", "ops")
        assert reason(suite, test, known.reference, known.virtual, table) == known.reason
        assert reason(suite, test, known.reference, "absent", table) == ""


def test_suites_that_run_by_default_exist() -> None:
    assert set(DEFAULT) <= set(SUITES)
    assert set(DEFAULT_AMD) <= set(AMD_SUITES)


def test_each_family_has_suites_and_differences_of_its_own() -> None:
    assert suites_of("virtual:a630?strict=0") is SUITES
    assert suites_of("virtual:gfx1101") is AMD_SUITES
    assert reason("hcq", "TestHCQ.test_copy", "passed", "skipped") == ""
    assert reason("hcq", "TestHCQ.test_copy", "passed", "skipped", KNOWN_AMD)
