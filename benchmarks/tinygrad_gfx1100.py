"""Runs launches on tinygrad's RDNA3 emulator, ``test/mockgpu/amd/emu.py``, and tells what each took.

A script of its own, because tinygrad reads its settings when it is imported; ``virtual_gfx1100.py`` runs it
with the checkout on the path. Standard input holds case names, one a line; the answers are lines of JSON.
Each case runs its small grid several times: in the first run the emulator translates what it meets, the best
of the others counts.
"""

from __future__ import annotations

import importlib
import json
import sys
import time

import gfx1100_kernels as kernels
import numpy as np

from ringfence.virtual.isa.rdna.dispatch import LDS_GRANULE, Dispatch
from ringfence.virtual.isa.rdna.executor import Executor

TIMED = 3  # runs of each small grid
LDS_SHIFT = 15  # of rsrc2.LDS_SIZE, which the command processor fills in


run_asm = importlib.import_module("test.mockgpu.amd.emu").run_asm


class Emulator:
    """An executor that hands launches to the emulator."""

    statistics = None

    def run(self, dispatch: Dispatch, memory: object) -> None:
        assert memory == "host"
        granules = -(-dispatch.shared_bytes // LDS_GRANULE)
        run_asm(
            dispatch.address + dispatch.entry,
            len(dispatch.code) - dispatch.entry,
            *dispatch.groups,
            *dispatch.local,
            0,
            rsrc2=dispatch.rsrc2 | granules << LDS_SHIFT,
            scratch_size=dispatch.scratch_bytes,
            arch="rdna3",
            user_data=list(dispatch.user_data),
        )


def measure(case: kernels.Case, own: Executor) -> dict[str, object]:
    """Return the processor time that the small grid takes, and whether ringfence computes the same."""
    emulator, times = Emulator(), []
    for _ in range(1 + TIMED):
        begin = time.process_time()
        kernels.launch(case.code, case.few, case.local, case.arrays, case.numbers, emulator, memory="host")
        times.append(time.process_time() - begin)
    found = [array.copy() for array in case.arrays]
    for array in case.arrays[-1:]:
        array[...] = 0
    case.run(own, case.few)
    agree = all(np.allclose(a, b, rtol=1e-5) for a, b in zip(found, case.arrays, strict=True))
    return {"name": case.name, "seconds": min(times[1:]), "agree": agree and bool(found[-1].any())}


def main() -> None:
    """Answer until the input ends."""
    own, makers = Executor(threads=1), kernels.cases()
    for line in sys.stdin:
        print(json.dumps(measure(makers[line.strip()](), own)), flush=True)
    own.close()


if __name__ == "__main__":
    main()
