"""Run tinygrad's own tests on a device of tinygrad and on a virtual one, and compare them test by test.

    python tests/oracle/run_tinygrad_suite.py --tinygrad /path/to/tinygrad [--json results.json] [ops ...]
    python tests/oracle/run_tinygrad_suite.py --device virtual:gfx1100 --tinygrad ... [tiny ...]

The checkout (commit a9069c177) is used as it is. This Python needs pytest, pytest-xdist, numpy, hypothesis,
torch (which ``test_ops.py`` compares with; the CPU build is enough), tinymesa, ziglang and
``ringfence[virtual]``. The reference is tinygrad's CPU device, which compiles with the clang of ziglang; for
AMD chips also tinygrad's own mock of a gfx1100 behind KFD, where that is neither too slow (``test_ops.py``)
nor blind (it does not see the doorbells that HCQ2's compiled code rings). The mock, and with it the virtual
AMD device, compiles with a libLLVM that LLVM_PATH names: 18 or later, such as that of Debian's libllvm19.

A difference is expected if :mod:`tinygrad_differences` gives its reason. Exit status 1 if there is another.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).parent))

from tinygrad_differences import KNOWN, KNOWN_AMD, Known, reason

import ringfence
from ringfence.compile.host_cc import write_compiler
from ringfence.virtual.shim.command import shim_environment
from ringfence.virtual.specification import parse_virtual

TEST_TIMEOUT = (
    3600  # seconds; tinygrad's conftest.py aborts the process after 300, which a busy machine takes
)
# --capture=sys: what a library prints before it aborts a process must not vanish with the process.
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--capture=sys")
SOURCES = Path(ringfence.__file__).parents[1]  # the tests use the very ringfence that runs this


Reference = Literal["CPU", "mock"]
REFERENCES: Mapping[Reference, str] = {"CPU": "CPU", "mock": "MOCKKFD+AMD:LLVM:gfx1100"}
"""The values of DEV."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A test file of tinygrad, and what the environment must say for it (on both devices)."""

    path: str
    environment: Mapping[str, str] = field(default_factory=dict)
    reference: Reference = "CPU"


SUITES = {
    "tiny": Suite("test/test_tiny.py"),
    "ops": Suite("test/backend/test_ops.py"),
    "jit": Suite("test/backend/test_jit.py"),
    "dtype": Suite("test/backend/test_dtype.py"),
    "dtype_alu": Suite("test/backend/test_dtype_alu.py"),
    "image": Suite("test/external/external_test_image.py", {"IMAGE": "1"}),
    "ops_image": Suite("test/backend/test_ops.py", {"IMAGE": "1"}),
}
DEFAULT = ("tiny", "jit", "dtype", "dtype_alu", "image", "ops")

HCQ2 = {"HCQ2": "1"}
AMD_SUITES = {
    "tiny": Suite("test/test_tiny.py", reference="mock"),
    "tiny_hcq2": Suite("test/test_tiny.py", HCQ2),
    "hcq": Suite("test/device/test_hcq.py", reference="mock"),
    "hcq2": Suite("test/device/test_hcq2.py", HCQ2),
    "jit": Suite("test/backend/test_jit.py"),
    "ops": Suite("test/backend/test_ops.py"),
}
MOCK_CARDS = 6
DEFAULT_AMD = ("tiny", "hcq", "tiny_hcq2", "hcq2", "ops")


def is_amd(device: str) -> bool:
    """Return whether a spec is that of an AMD chip."""
    return parse_virtual(device).interface == "kfd"


def suites_of(device: str) -> Mapping[str, Suite]:
    """Return the suites that can run on a device."""
    return AMD_SUITES if is_amd(device) else SUITES


def default_suites(device: str) -> Sequence[str]:
    """Return the names of those that do unless told."""
    return DEFAULT_AMD if is_amd(device) else DEFAULT


@dataclass(frozen=True, slots=True)
class Outcome:
    """``result`` is passed, failed or skipped; ``message`` the first line of why."""

    result: str
    seconds: float
    message: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """A test that does not end the same way on both devices; ``reason`` is empty if nobody knows why."""

    suite: str
    test: str
    reference: str
    virtual: str
    message: str
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """One suite on one device: outcomes by test id, wall time, and CPU time of all processes."""

    outcomes: dict[str, Outcome]
    seconds: float
    cpu_seconds: float

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(outcome.result for outcome in self.outcomes.values()))

    def __str__(self) -> str:
        counts = ", ".join(f"{self.counts.get(name, 0)} {name}" for name in ("passed", "failed", "skipped"))
        return f"{counts:40} {self.seconds:8.1f} s  ({self.cpu_seconds:.1f} s of CPU)"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One suite on both devices. ``device`` is what the shim counted."""

    suite: str
    path: str
    against: str
    reference: Run
    virtual: Run
    device: dict[str, float]
    differences: list[Difference]

    @property
    def unexplained(self) -> list[Difference]:
        return [difference for difference in self.differences if not difference.reason]


@dataclass(frozen=True, slots=True)
class Runner:
    """How the tests are run. ``scratch`` holds the compiler wrapper, caches and reports."""

    tinygrad: Path
    scratch: Path
    device: str = "virtual:a630"
    workers: int = 2
    select: str = ""
    reuse_reference: bool = False

    def compare(self, name: str) -> Comparison:
        """Run one suite on both devices."""
        suite = suites_of(self.device)[name]
        reference = self.reference(name, suite)
        report = self.scratch / f"{name}.jsonl"
        report.unlink(missing_ok=True)
        virtual = self.run(suite, self.virtual_environment(suite, report))
        known = KNOWN_AMD if is_amd(self.device) else KNOWN
        different = differences(name, reference.outcomes, virtual.outcomes, known)
        text = " ".join([suite.path, *(f"{k}={v}" for k, v in suite.environment.items())])
        return Comparison(name, text, suite.reference, reference, virtual, add_reports(report), different)

    def reference(self, name: str, suite: Suite) -> Run:
        """Return the run on tinygrad's device: the last one that was kept, if wanted and if there is one."""
        kept = self.scratch / f"{name}.{suite.reference}.json"
        if self.reuse_reference and kept.exists():
            data = json.loads(kept.read_text())
            outcomes = {test: Outcome(**outcome) for test, outcome in data.pop("outcomes").items()}
            return Run(outcomes, **data)
        run = self.run(suite, self.environment(suite) | {"DEV": REFERENCES[suite.reference]})
        kept.write_text(json.dumps(asdict(run)))
        return run

    def environment(self, suite: Suite) -> dict[str, str]:
        """Return the environment without a device."""
        compiler = self.scratch / "clang"
        if not compiler.exists():
            write_compiler(self.scratch)
        own = ("DEV", "PYTHONPATH", "IMAGE", "HCQ2", "AMD_DISABLE_SDMA")
        inherited = {name: value for name, value in os.environ.items() if name not in own}
        return inherited | {
            "PYTHONPATH": os.pathsep.join((str(self.tinygrad), str(SOURCES))),
            "CC": str(compiler),
            "XDG_CACHE_HOME": str(self.scratch / "cache"),
            "TEST_TIMEOUT": str(TEST_TIMEOUT),
            **suite.environment,
        }

    def virtual_environment(self, suite: Suite, report: Path) -> dict[str, str]:
        """Return the environment with the virtual device under tinygrad."""
        count = MOCK_CARDS if is_amd(self.device) else 1
        return shim_environment(self.environment(suite), self.device, count=count, report=str(report))

    def run(self, suite: Suite, environment: Mapping[str, str]) -> Run:
        """Run pytest on a suite."""
        started, cpu = time.monotonic(), cpu_seconds()
        outcomes = self.outcomes(suite, environment)
        return Run(outcomes, time.monotonic() - started, cpu_seconds() - cpu)

    def outcomes(self, suite: Suite, environment: Mapping[str, str]) -> dict[str, Outcome]:
        """Run pytest on a suite; return the outcome of each test by id."""
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            results = Path(folder) / "results.xml"
            command = [*PYTEST, f"--junitxml={results}", suite.path]
            command += ["-n", str(self.workers)] if self.workers > 1 else []
            command += ["-k", self.select] if self.select else []
            log = Path(folder) / "log"
            with log.open("w") as output:
                subprocess.run(
                    command,
                    cwd=self.tinygrad,
                    env=dict(environment),
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
            if not results.exists():
                raise RuntimeError(
                    f"pytest wrote no results for {suite.path}; it printed:\n{log.read_text()[-4000:]}"
                )
            outcomes = read_results(results)
            if "node down" in (text := log.read_text()):
                print(f"a process of {suite.path} died:\n{last_words(text)}", file=sys.stderr)
            return outcomes


def last_words(text: str) -> str:
    """Return what the dying process printed: the report of Python's fault handler, or else the end of all."""
    at = text.find("Fatal Python error")
    return text[-20000:] if at < 0 else text[max(0, at - 4000) : at + 8000]


def cpu_seconds() -> float:
    """Return the CPU time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def read_results(path: Path) -> dict[str, Outcome]:
    """Return the outcomes in a JUnit file by test id. Of a test with subtests the worst counts."""
    out: dict[str, Outcome] = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        outcome = _outcome(case)
        if name not in out or _SEVERITY[outcome.result] > _SEVERITY[out[name].result]:
            out[name] = outcome
    return out


_SEVERITY = {"skipped": 0, "passed": 1, "failed": 2}


def _outcome(case: ElementTree.Element) -> Outcome:
    result, message = "passed", ""
    for child in case:
        if child.tag in ("failure", "error"):
            result, message = "failed", (child.get("message") or child.text or "")
        elif child.tag == "skipped":
            result, message = "skipped", child.get("message") or ""
    return Outcome(result, float(case.get("time") or 0), message.strip().partition("\n")[0][:300])


def differences(
    suite: str,
    reference: Mapping[str, Outcome],
    virtual: Mapping[str, Outcome],
    known: Sequence[Known] = KNOWN,
) -> list[Difference]:
    """Return every test that did not end the same way."""
    missing = Outcome("absent", 0.0)
    out = []
    for test in sorted({*reference, *virtual}):
        expected, got = reference.get(test, missing), virtual.get(test, missing)
        if expected.result != got.result:
            message = got.message or expected.message
            why = reason(suite, test, expected.result, got.result, known)
            out.append(Difference(suite, test, expected.result, got.result, message, why))
    return out


def add_reports(path: Path) -> dict[str, float]:
    """Add up what the processes of a run reported."""
    total: Counter[str] = Counter()
    for line in path.read_text().splitlines() if path.exists() else ():
        total.update(
            {k: v for k, v in json.loads(line).items() if isinstance(v, (int, float)) and k != "process"}
        )
    return {
        name: round(total[name], 1)
        for name in ("dispatches", "gpu_seconds", "compilations", "translate_seconds")
    }


def show(c: Comparison) -> None:
    """Print a comparison."""
    print(f"\n{c.suite}: {c.path}")
    print(f"  {c.against:8} {c.reference}")
    print(f"  virtual  {c.virtual}  {c.device}")
    for d in c.differences:
        mark, why = ("  ", d.reason) if d.reason else ("! ", d.message)
        print(f"  {mark}{d.test}: {c.against} {d.reference}, virtual {d.virtual}: {why}")


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(list(arguments))
    if options.tinygrad is None:
        print("no tinygrad checkout: give --tinygrad PATH or set TINYGRAD", file=sys.stderr)
        return 2
    known = suites_of(options.device)
    if unknown := [name for name in options.suites if name not in known]:
        print(
            f"no suite {', '.join(unknown)} for {options.device}; there are {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    if is_amd(options.device) and "LLVM_PATH" not in os.environ:
        print("LLVM_PATH names no libLLVM, which tinygrad's mock compiles with", file=sys.stderr)
        return 2
    scratch = Path(options.scratch or tempfile.mkdtemp(prefix="ringfence-suite-"))
    scratch.mkdir(parents=True, exist_ok=True)
    runner = Runner(
        Path(options.tinygrad).resolve(),
        scratch,
        options.device,
        options.workers,
        options.select,
        options.reuse_reference,
    )
    started = time.monotonic()
    comparisons = []
    for name in options.suites or default_suites(options.device):
        comparisons.append(runner.compare(name))
        show(comparisons[-1])
    total = time.monotonic() - started
    unexplained = sum(len(c.unexplained) for c in comparisons)
    virtual = sum(c.virtual.seconds for c in comparisons)
    print(f"\n{total:.1f} s in all, {virtual:.1f} s on {options.device}")
    print(f"{unexplained} differences without a reason")
    if options.json:
        document = {"device": options.device, "seconds": total, "suites": [asdict(c) for c in comparisons]}
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n")
    return 1 if unexplained else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tinygrad", default=os.environ.get("TINYGRAD"), metavar="PATH", help="the checkout")
    parser.add_argument("--device", default="virtual:a630", metavar="SPEC")
    parser.add_argument(
        "--workers", type=int, default=2, help="processes of pytest-xdist (default: %(default)s)"
    )
    parser.add_argument(
        "--select", default="", metavar="EXPRESSION", help="only tests that match (pytest -k)"
    )
    parser.add_argument(
        "--scratch", metavar="PATH", help="folder for caches, to be warm next time (default: a new one)"
    )
    parser.add_argument(
        "--reuse-reference",
        action="store_true",
        help="take the outcomes of tinygrad's device from the last run with this --scratch",
    )
    parser.add_argument("--json", metavar="FILE", help="also write the results to FILE")
    parser.add_argument(
        "suites",
        nargs="*",
        help=f"default: {' '.join(DEFAULT)}; for AMD chips {' '.join(DEFAULT_AMD)}",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
