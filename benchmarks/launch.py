"""What a launch and the replay of a graph cost the host, beside tinygrad's HCQ in the same run.

Neither side has a GPU: submissions are acknowledged at once (:mod:`ringfence.cli.bench` says how ours are).
The peer is unmodified tinygrad from the checkout that ``TINYGRAD`` names, with its QCOM device and the IR3
compiler, or its AMD device and LLVM, in a process of its own on the same CPU
(``benchmarks/tinygrad_launch.py``); its replay is the call of a TinyJit, its launch that of a program object.
AMD's HCQ2, whose compiled code submits, is in the notes. Calls are timed in short windows, of which the best
counts: others use the machine too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ringfence.cli.bench import QUEUES, Row, host_costs, load_note, settings, show
from ringfence.cli.output import notice
from ringfence.compile.host_cc import write_compiler

HERE = Path(__file__).resolve().parent
PEER = HERE / "tinygrad_launch.py"
VARIABLE = "TINYGRAD"
DEV = {"kgsl": "QCOM:IR3", "pm4": "AMD:LLVM"}
PEERS = {"kgsl": ("HCQ",), "pm4": ("HCQ", "HCQ2")}

Peer = dict[str, dict[str, float]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, write the rows if asked."""
    options = _parser().parse_args(arguments)
    seconds, replays = settings(options.quick)
    _use_one_cpu()
    rows: list[Row] = []
    for queue in options.queues.split(","):
        first = list(host_costs(seconds, replays, queue))
        peers = {name: tinygrad_costs(options.tinygrad, queue, seconds, name) for name in PEERS[queue]}
        second = list(host_costs(seconds, replays, queue))
        rows += [_with_peers(min(pair, key=lambda each: each.ours), peers) for pair in zip(first, second)]
    show(rows, f"host cost, without a GPU; peer: tinygrad's HCQ ({load_note()})")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in rows], indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Host cost of launches and replays.")
    parser.add_argument("--quick", action="store_true", help="measure for a shorter time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as a list")
    parser.add_argument(
        "--queues", default=",".join(QUEUES), metavar="NAMES", help="what to measure (default: %(default)s)"
    )
    parser.add_argument(
        "--tinygrad",
        metavar="PATH",
        default=os.environ.get(VARIABLE),
        help=f"the peer's checkout (default: ${VARIABLE}); without one there is no peer",
    )
    return parser


def _use_one_cpu() -> None:
    """Stay on one CPU, the child too: both sides find the same caches, and the same neighbours."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def tinygrad_costs(checkout: str | None, queue: str, seconds: float, runtime: str) -> Peer:
    """Return what tinygrad needs, by row name; nothing without a checkout. ``runtime`` is HCQ or HCQ2."""
    if not checkout:
        notice(f"no peer: set {VARIABLE} to a checkout of tinygrad")
        return {}
    if not (Path(checkout) / "tinygrad").is_dir():
        raise SystemExit(f"{checkout} is no checkout of tinygrad: it has no folder tinygrad")
    paths = [checkout, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "DEV": DEV[queue], "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    environment["AMD_DISABLE_SDMA"] = "1"  # the virtual KFD has no copy queues
    environment["HCQ2"] = "1" if runtime == "HCQ2" else "0"
    command = [sys.executable, str(PEER), queue, str(seconds)]
    with tempfile.TemporaryDirectory() as folder:
        environment["CC"] = str(write_compiler(Path(folder)))  # for HCQ2, which compiles for the CPU
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"tinygrad failed:\n{result.stderr}")
    costs: Peer = json.loads(result.stdout)
    return costs


def _with_peers(own: Row, peers: dict[str, Peer]) -> Row:
    cost = peers["HCQ"].get(own.name)
    if cost is None:
        return own
    best = cost["best"]
    note = f"{own.note}; tinygrad's median {cost['median']:.1f}"
    other = peers.get("HCQ2", {}).get(own.name)
    if other is not None:
        note += f", with HCQ2 {other['best']:.1f} (median {other['median']:.1f})"
    return replace(own, peer=best, ratio=best / own.ours, note=note)


if __name__ == "__main__":
    sys.exit(main())
