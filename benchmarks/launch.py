"""What a launch and the replay of a graph cost the host, beside tinygrad's HCQ in the same run.

Neither side has a GPU: submissions are acknowledged at once (:mod:`ringfence.cli.bench` says how ours are).
The peer is unmodified tinygrad from the checkout that ``TINYGRAD`` names, with its QCOM device and the IR3
compiler, in a process of its own on the same CPU (``benchmarks/tinygrad_launch.py``); its replay is the call
of a TinyJit, its launch that of a program object. Calls are timed in short windows, of which the best counts:
others use the machine too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ringfence.cli.bench import Row, host_costs, load_note, settings, show
from ringfence.cli.output import notice

HERE = Path(__file__).resolve().parent
PEER = HERE / "tinygrad_launch.py"
VARIABLE = "TINYGRAD"

Peer = dict[str, dict[str, float]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, write the rows if asked."""
    options = _parser().parse_args(arguments)
    seconds, replays = settings(options.quick)
    _use_one_cpu()
    first = list(host_costs(seconds, replays))
    peer = tinygrad_costs(options.tinygrad, seconds)
    second = list(host_costs(seconds, replays))
    rows = [_with_peer(min(pair, key=lambda each: each.ours), peer) for pair in zip(first, second)]
    show(rows, f"host cost, without a GPU; peer: tinygrad HCQ, QCOM with IR3 ({load_note()})")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in rows], indent=1) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Host cost of launches and replays.")
    parser.add_argument("--quick", action="store_true", help="measure for a shorter time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as a list")
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


def tinygrad_costs(checkout: str | None, seconds: float) -> Peer:
    """Return what tinygrad needs, by row name; nothing without a checkout."""
    if not checkout:
        notice(f"no peer: set {VARIABLE} to a checkout of tinygrad")
        return {}
    if not (Path(checkout) / "tinygrad").is_dir():
        raise SystemExit(f"{checkout} is no checkout of tinygrad: it has no folder tinygrad")
    paths = [checkout, os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "DEV": "QCOM:IR3", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    result = subprocess.run(
        [sys.executable, PEER, str(seconds)], env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise SystemExit(f"tinygrad failed:\n{result.stderr}")
    costs: Peer = json.loads(result.stdout)
    return costs


def _with_peer(own: Row, peer: Peer) -> Row:
    cost = peer.get(own.name)
    if cost is None:
        return own
    best = cost["best"]
    note = f"{own.note}; tinygrad's median {cost['median']:.1f}"
    return replace(own, peer=best, ratio=best / own.ours, note=note)


if __name__ == "__main__":
    sys.exit(main())
