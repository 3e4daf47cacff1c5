"""The RDNA3 executor gives what tinygrad's tests recorded from real hardware, ``test/amd/hw`` there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from run_tinygrad_suite import Outcome, read_results

import ringfence

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif("TINYGRAD" not in os.environ, reason="TINYGRAD names no tinygrad checkout"),
]

FILES = ("sop", "smem", "vop1", "vop2", "vop3", "vopc", "vop3p", "vopd", "dpp", "vinterp", "ds", "flat",
         "global", "scratch")  # fmt: skip
OTHER_HARDWARE = {
    "test_cdna_sdwa.py": "CDNA",
    "test_cdna_vop3.py": "CDNA",
    "test_rdna4_permlane_var.py": "RDNA4",
}
# Test -> why gfx1100 cannot pass it. The suite skips them on hardware before gfx11.5 too.
ABSENT = dict.fromkeys(
    ("TestBasicScalar.test_s_fmamk_f32", "TestBasicScalar.test_s_fmamk_f32_negative"),
    "scalar float instructions exist from gfx11.5 on",
)


def _run(name: str, work: Path) -> Mapping[str, Outcome]:
    """Run one file of the suite and return how each of its tests ended."""
    checkout = Path(os.environ["TINYGRAD"]).resolve()
    paths = [checkout, Path(__file__).parent, Path(ringfence.__file__).parents[1]]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "RINGFENCE_CACHE": str(work / "cache"),
    }
    results = work / "results.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "rdna_hw_plugin"]
    command += [f"--junitxml={results}", f"test/amd/hw/test_{name}.py"]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert results.exists(), done.stdout + done.stderr
    return read_results(results)


@pytest.mark.parametrize("name", FILES)
def test_instructions_do_what_the_hardware_did(name: str, tmp_path: Path) -> None:
    outcomes = _run(name, tmp_path)
    failed = {test: outcome.message for test, outcome in outcomes.items() if outcome.result == "failed"}
    assert {test: message for test, message in failed.items() if test not in ABSENT} == {}
    assert all("illegal instruction" in message for message in failed.values())
    counts = Counter(outcome.result for outcome in outcomes.values())
    assert counts["passed"] > counts["skipped"]


def test_every_file_of_the_suite_is_run_or_for_other_hardware() -> None:
    found = {path.name for path in (Path(os.environ["TINYGRAD"]) / "test/amd/hw").glob("test_*.py")}
    assert found == {f"test_{name}.py" for name in FILES} | set(OTHER_HARDWARE)
