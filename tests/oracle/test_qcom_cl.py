"""Unmodified tinygrad loads the same OpenCL files to the same dispatch state and results as we do.

tinygrad runs under the shim on one machine, our loader and driver on another.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from record_tinygrad_cl import Result, Run
from test_dispatch_state import ADDRESSES, without_addresses

import ringfence as rf
from oracle.qcom_cl_kernels import KERNELS, Kernel
from ringfence.drivers.adreno.encode import UNLIKE_TINYGRAD
from ringfence.hardware.adreno import registers as reg
from ringfence.virtual.adreno.state import Snapshot
from ringfence.virtual.machine import Machine

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif("TINYGRAD" not in os.environ, reason="TINYGRAD names no tinygrad checkout"),
]

SCRIPT = Path(__file__).with_name("record_tinygrad_cl.py")
SOURCES = Path(rf.__file__).parents[1]
DIFFERENT = UNLIKE_TINYGRAD.keys() - {"SP_CS_CONST_CONFIG_0"}  # that one is a matter of Mesa's code


@dataclass(frozen=True)
class Pair:
    """A kernel as tinygrad ran it, and as we did."""

    kernel: Kernel
    theirs: Result
    ours: Result


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    kernels = [make() for make in KERNELS]
    folder = tmp_path_factory.mktemp("tinygrad")
    runs = [Run(k.file.to_bytes(), k.file.name, k.arguments, k.inputs, k.groups, k.local) for k in kernels]
    (folder / "runs").write_bytes(pickle.dumps(runs))
    search = os.pathsep.join((os.environ["TINYGRAD"], str(SOURCES)))
    environment = {**os.environ, "DEV": "QCOM:CL", "PYTHONPATH": search}
    subprocess.run([sys.executable, SCRIPT, folder / "runs", folder / "results"], env=environment, check=True)
    theirs: list[Result] = pickle.loads((folder / "results").read_bytes())
    states: list[Snapshot] = []
    machine = Machine()
    machine.on_dispatch = lambda state, _: states.append(state.snapshot())
    with machine, rf.open("kgsl", port=machine) as device:
        return [Pair(k, t, run(device, k, states, t)) for k, t in zip(kernels, theirs, strict=True)]


def run(device: rf.Device, kernel: Kernel, states: list[Snapshot], theirs: Result) -> Result:
    source = rf.read_qcom_cl(kernel.file.to_bytes(), kernel.file.name, kernel.arguments)
    program = device.load(source)
    args = [device.array(x) if isinstance(x, np.ndarray) else x for x in kernel.inputs]
    device.launch(program, *args, groups=kernel.groups, local=kernel.local).wait()
    buffers = [buffer for buffer in args if isinstance(buffer, rf.Buffer)]
    after = [buffer.numpy().tobytes() for buffer in buffers]
    return Result(states[-1], [buffer.gpu_address for buffer in buffers], theirs.argument_bytes, after)


def differing_registers(pair: Pair) -> Iterator[tuple[str, int | None, int | None]]:
    theirs, ours = pair.theirs.state.registers, pair.ours.state.registers
    for offset in sorted(theirs.keys() | ours.keys()):
        if offset not in ADDRESSES and theirs.get(offset) != ours.get(offset):
            yield reg.register_name(offset), theirs.get(offset), ours.get(offset)


def test_registers_are_tinygrads_except_where_the_encoder_says_why(pairs: list[Pair]) -> None:
    unexplained = [
        (pair.kernel.file.name, *difference)
        for pair in pairs
        for difference in differing_registers(pair)
        if difference[0] not in DIFFERENT
    ]
    assert unexplained == []
    print(f"{len(pairs)} launches, {len({o for p in pairs for o in p.theirs.state.registers})} registers")


def test_code_and_constants_are_the_same(pairs: list[Pair]) -> None:
    for pair in pairs:
        assert pair.theirs.state.code == pair.ours.state.code
        assert constants(pair.theirs) == constants(pair.ours), pair.kernel.file.name


def constants(result: Result) -> bytes:
    """The constants of the argument block, with the address of buffer k replaced by k + 1."""
    found = result.state.constants[: result.argument_bytes]
    for k, address in enumerate(result.addresses):
        found = found.replace(address.to_bytes(8, "little"), (k + 1).to_bytes(8, "little"))
    return found


def test_descriptors_and_samplers_are_the_same(pairs: list[Pair]) -> None:
    for pair in pairs:
        theirs, ours = pair.theirs.state.units, pair.ours.state.units
        assert theirs.keys() == ours.keys()
        for key, units in theirs.items():
            assert without_addresses(key, units) == without_addresses(key, ours[key])
    assert any(pair.theirs.state.units for pair in pairs)


def test_results_are_the_same_and_right(pairs: list[Pair]) -> None:
    for pair in pairs:
        assert pair.theirs.after == pair.ours.after
        assert pair.ours.after[0] == pair.kernel.expected.tobytes()
