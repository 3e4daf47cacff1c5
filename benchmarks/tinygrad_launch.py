"""What tinygrad's HCQ spends on the host for a launch and for the replay of a jitted chain, as JSON.

A script of its own, because tinygrad reads its settings when it is imported; ``benchmarks/launch.py`` runs
it with ``DEV`` set and the checkout on the path. Everything is executed first, on a virtual GPU and with the
results checked. Then execution is cut out: submissions are acknowledged by one Python function (KGSL), or the
doorbell becomes a word of ordinary memory (KFD; with HCQ2, whose code keeps the real one, the queue is
stopped), and the timeline's signal is set so high that every wait passes at the first look. No hook of the
virtual GPU is left in what is timed.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
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
DEVICES = {
    "kgsl": ("virtual:a630?strict=0", "tinygrad.runtime.ops_qcom", "QCOMProgram"),
    "pm4": ("virtual:gfx1100?strict=0", "tinygrad.runtime.ops_amd", "AMDProgram"),
}
"""By queue: the device under tinygrad, and where its class of programs is."""


def main(queue: str, seconds: float) -> dict[str, dict[str, float]]:
    """Return best and median microseconds by name."""
    spec, module, name = DEVICES[queue]
    shim.install(spec)
    from tinygrad import Device, Tensor

    hcq2 = os.environ.get("HCQ2", "0") != "0"
    ones = Tensor(np.ones(COUNT, np.float32)).realize()
    inputs = [Tensor(np.full(COUNT, 10.0 * k, np.float32)).realize() for k in range(2)]
    launch = None if hcq2 else captured_launch(importlib.import_module(module), name, inputs[0], ones)
    chains = {f"{queue}.replay{n}.{readers}": jitted_chain(n, readers, inputs, ones) for n, readers in GRAPHS}
    acknowledge(Device[Device.DEFAULT], queue, hcq2)
    rows = {} if launch is None else {f"{queue}.launch": measure(launch, seconds)}
    for name, chain in chains.items():
        rows[name] = measure(replay(chain, inputs), seconds)
    return {name: asdict(timing) for name, timing in rows.items()}


def replay(chain: Callable[[Any], Any], inputs: list[Any]) -> Callable[[], object]:
    """Return a call of the chain with another input each time."""
    turn = cycle(inputs)
    return lambda: chain(next(turn))


def captured_launch(module: Any, name: str, a: Any, b: Any) -> Callable[[], object]:
    """Return a call of tinygrad's program object that adds two arrays, with the arguments it was called with
    once.
    """
    programs = getattr(module, name)
    calls: list[Any] = []
    original = programs.__call__

    def noting(self: Any, *bufs: Any, **options: Any) -> Any:
        calls.append((self, bufs, options))
        return original(self, *bufs, **options)

    programs.__call__ = noting
    result = (a + b).numpy()
    programs.__call__ = original
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


def acknowledge(device: Any, queue: str, hcq2: bool) -> None:
    """Let submissions return at once, and every wait pass."""
    device.synchronize()
    if queue == "kgsl":
        acknowledge_ioctls(device)
    elif hcq2:
        stop_queue()
    else:
        from tinygrad.runtime.support.hcq import MMIOInterface

        word = ctypes.c_uint64()
        device.ringfence_doorbell = word  # kept alive
        device.compute_queue.doorbell = MMIOInterface(ctypes.addressof(word), 8, fmt="Q")
    if hcq2:
        device.signal("timeline").as_memoryview(force_zero_copy=True, no_sync=True).cast("Q")[0] = REACHED
    else:
        device.timeline_signal.value = REACHED


def acknowledge_ioctls(device: Any) -> None:
    """Answer KGSL's submissions."""
    real, submitted = device.fd.ioctl, count(1)

    def ioctl(request: int, argument: Any) -> int:
        if request != GPU_COMMAND.REQUEST:
            return int(real(request, argument))
        argument.timestamp = next(submitted)
        return 0

    device.fd.ioctl = ioctl


def stop_queue() -> None:
    """Let the kernel stop the compute queue: nobody looks at its doorbell any more."""
    from tinygrad.runtime.autogen import kfd
    from tinygrad.runtime.ops_amd import KFDIface

    kfd.AMDKFD_IOC_UPDATE_QUEUE(KFDIface.kfd, queue_id=0, ring_base_address=0, queue_percentage=0)


if __name__ == "__main__":
    json.dump(main(sys.argv[1], float(sys.argv[2])), sys.stdout)
