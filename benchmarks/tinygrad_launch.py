"""What tinygrad's HCQ spends on the host for a launch and for the replay of a jitted chain, as JSON.

A script of its own, because tinygrad reads its settings when it is imported; ``benchmarks/launch.py`` runs
it with ``DEV=QCOM:IR3`` and the checkout on the path. Everything is executed first, on a virtual GPU and with
the results checked. Then execution is cut out: submissions are acknowledged by one Python function, and the
timeline's signal is set so high that every wait passes at the first look. No hook of the virtual GPU is left
in what is timed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import count, cycle
from typing import Any

import numpy as np

from ringfence.cli.bench import COUNT, GRAPHS, measure
from ringfence.hardware.adreno.kgsl import GPU_COMMAND
from ringfence.virtual import shim

REACHED = 1 << 62


def main(seconds: float) -> dict[str, dict[str, float]]:
    """Return best and median microseconds by name."""
    shim.install("virtual:a630?strict=0")
    from tinygrad import Device, Tensor

    ones = Tensor(np.ones(COUNT, np.float32)).realize()
    inputs = [Tensor(np.full(COUNT, 10.0 * k, np.float32)).realize() for k in range(2)]
    launch = captured_launch(inputs[0], ones)
    chains = {f"kgsl.replay{n}.{readers}": jitted_chain(n, readers, inputs, ones) for n, readers in GRAPHS}
    acknowledge(Device[Device.DEFAULT])
    rows = {"kgsl.launch": measure(launch, seconds)}
    for name, chain in chains.items():
        rows[name] = measure(replay(chain, inputs), seconds)
    return {name: asdict(timing) for name, timing in rows.items()}


def replay(chain: Callable[[Any], Any], inputs: list[Any]) -> Callable[[], object]:
    """Return a call of the chain with another input each time."""
    turn = cycle(inputs)
    return lambda: chain(next(turn))


def captured_launch(a: Any, b: Any) -> Callable[[], object]:
    """Return a call of tinygrad's program object that adds two arrays, with the arguments it was called with
    once.
    """
    import tinygrad.runtime.ops_qcom as ops_qcom

    calls: list[Any] = []
    original = ops_qcom.QCOMProgram.__call__

    def noting(self: Any, *bufs: Any, **options: Any) -> Any:
        calls.append((self, bufs, options))
        return original(self, *bufs, **options)

    ops_qcom.QCOMProgram.__call__ = noting
    result = (a + b).numpy()
    ops_qcom.QCOMProgram.__call__ = original
    if not (result == a.numpy() + b.numpy()).all():
        raise SystemExit("tinygrad's sum is wrong")
    program, bufs, options = calls[-1]
    sizes = {name: options[name] for name in ("global_size", "local_size")}
    return lambda: program(*bufs, **sizes, wait=False)


def jitted_chain(nodes: int, readers: str, inputs: list[Any], ones: Any) -> Callable[[Any], Any]:
    """Return a jitted chain of additions that was run, with its results checked."""
    from tinygrad import TinyJit

    def add_all(x: Any) -> Any:
        y = (x + (x if readers == "all" else ones)).realize()
        for _ in range(nodes - 1):
            y = (y + (x if readers == "all" else ones)).realize()
        return y

    chain: Callable[[Any], Any] = TinyJit(add_all)
    for index in range(4):
        x = inputs[index % 2]
        expected = x.numpy() * (nodes + 1) if readers == "all" else x.numpy() + nodes
        if not np.allclose(chain(x).numpy(), expected):
            raise SystemExit(f"tinygrad's chain of {nodes} is wrong")
    return chain


def acknowledge(device: Any) -> None:
    """Let submissions return at once, and every wait pass."""
    device.synchronize()
    real, submitted = device.fd.ioctl, count(1)

    def ioctl(request: int, argument: Any) -> int:
        if request != GPU_COMMAND.REQUEST:
            return int(real(request, argument))
        argument.timestamp = next(submitted)
        return 0

    device.fd.ioctl = ioctl
    device.timeline_signal.value = REACHED


if __name__ == "__main__":
    json.dump(main(float(sys.argv[1])), sys.stdout)
