"""The register file and the loaded state at dispatch equal unmodified tinygrad's, and so do the results.

tinygrad runs under the shim on one machine, our driver launches the same programs with the same arguments
on another.
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
from record_tinygrad_dispatches import Launch

import ringfence as rf
from ringfence.drivers.adreno.encode import UNLIKE_TINYGRAD
from ringfence.hardware.adreno import registers as reg
from ringfence.hardware.adreno.descriptors import TEXTURE_BYTES
from ringfence.hardware.adreno.packets import StateBlock, StateType
from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.virtual.adreno.state import Snapshot
from ringfence.virtual.machine import Machine

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif("TINYGRAD" not in os.environ, reason="TINYGRAD names no tinygrad checkout"),
]

SCRIPT = Path(__file__).with_name("record_tinygrad_dispatches.py")
SOURCES = Path(rf.__file__).parents[1]  # tinygrad's process uses the very ringfence that is tested
TEXTURES, UAVS = (StateBlock.CS_TEX, StateType.CONSTANTS), (StateBlock.CS_SHADER, StateType.UAV)
# Where memory is differs; what is there is compared, as the loaded state. The machine checks that state is
# loaded from where the register points.
ADDRESSES = frozenset(
    offset
    for register in (
        reg.SP_CS_BASE,
        reg.SP_CS_PVT_MEM_BASE,
        reg.SP_CS_SAMPLER_BASE,
        reg.SP_CS_TEXMEMOBJ_BASE,
        reg.SP_CS_UAV_BASE,
        reg.TPL1_CS_BORDER_COLOR_BASE,
    )
    for offset in register.offsets()
)


@dataclass(frozen=True)
class Pair:
    """A launch of tinygrad, and the state and the buffers after ours."""

    launch: Launch
    theirs: Snapshot
    ours: Snapshot
    our_addresses: list[int]
    our_after: list[bytes]


@pytest.fixture(
    scope="module",
    params=[{}, {"IMAGE": "1"}, {"IMAGE": "1", "FLOAT16": "1"}],
    ids=["plain", "image", "half"],
)
def pairs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    path = tmp_path_factory.mktemp("tinygrad") / "launches"
    search = os.pathsep.join((os.environ["TINYGRAD"], str(SOURCES)))
    environment = {**os.environ, "DEV": "QCOM:IR3", "PYTHONPATH": search, **request.param}
    subprocess.run([sys.executable, SCRIPT, path], env=environment, check=True)
    launches: list[Launch] = pickle.loads(path.read_bytes())
    snapshots: list[Snapshot] = []
    machine = Machine()
    machine.on_dispatch = lambda state, _: snapshots.append(state.snapshot())
    with machine, rf.open("kgsl", port=machine) as device:
        return [run(device, launch, snapshots) for launch in launches]


def run(device: rf.Device, launch: Launch, snapshots: list[Snapshot]) -> Pair:
    """Launch a program again, with our driver."""
    buffers = [device.array(np.frombuffer(data, np.uint8)).offset_view(0) for data in launch.before]
    scalars = iter(launch.values)
    memory = iter(buffers)
    args = [next(scalars) if a.kind == "scalar" else next(memory) for a in launch.program.arguments]
    program = device.load(launch.program)
    device.launch(program, *args, groups=launch.groups, local=launch.local).wait()
    after = [buffer.numpy().tobytes() for buffer in buffers]
    addresses = [buffer.gpu_address for buffer in buffers]
    assert launch.state is not None
    return Pair(launch, launch.state, snapshots[-1], addresses, after)


def differing_registers(pair: Pair) -> Iterator[tuple[str, int | None, int | None]]:
    for offset in sorted(pair.theirs.registers.keys() | pair.ours.registers.keys()):
        if offset not in ADDRESSES:
            theirs, ours = pair.theirs.registers.get(offset), pair.ours.registers.get(offset)
            if theirs != ours:
                yield reg.register_name(offset), theirs, ours


def constants(program: AdrenoProgram, data: bytes, addresses: list[int], size: int) -> bytes:
    """The first ``size`` bytes, with buffer k's address replaced by k + 1."""
    found = bytearray(data[:size])
    for k, address in enumerate(addresses):
        found = found.replace(address.to_bytes(8, "little"), (k + 1).to_bytes(8, "little"))
    return bytes(found)


def test_every_program_was_launched_and_some_use_everything(pairs: list[Pair]) -> None:
    programs = {pair.launch.program.code: pair.launch.program for pair in pairs}
    assert len(programs) >= 14
    assert any(program.private_bytes for program in programs.values())
    assert any(program.shared_bytes for program in programs.values())
    assert any(program.half_registers for program in programs.values())
    assert any(a.kind == "scalar" for program in programs.values() for a in program.arguments)


def test_images_are_among_the_programs_when_asked_for(
    pairs: list[Pair], request: pytest.FixtureRequest
) -> None:
    wanted = request.node.callspec.id != "plain"
    assert any(pair.launch.program.textures for pair in pairs) == wanted
    assert any(pair.launch.program.uavs for pair in pairs) == wanted


def test_registers_are_tinygrads_except_where_the_encoder_says_why(pairs: list[Pair]) -> None:
    unexplained = [
        (pair.launch.program.name, *difference)
        for pair in pairs
        for difference in differing_registers(pair)
        if difference[0] not in UNLIKE_TINYGRAD
    ]
    compared = {offset for pair in pairs for offset in pair.theirs.registers}
    print(f"{len(pairs)} launches, {len(compared)} registers, {len(compared & ADDRESSES)} of them addresses")
    assert unexplained == []


def test_the_same_registers_are_written(pairs: list[Pair]) -> None:
    for pair in pairs:
        assert pair.theirs.registers.keys() == pair.ours.registers.keys()


def test_the_code_is_the_same(pairs: list[Pair]) -> None:
    for pair in pairs:
        assert pair.theirs.code == pair.ours.code


def test_constants_and_descriptors_in_the_argument_block_are_the_same(pairs: list[Pair]) -> None:
    for pair in pairs:
        size = min(pair.launch.argument_bytes, len(pair.theirs.constants))
        program = pair.launch.program
        theirs = constants(program, pair.theirs.constants, pair.launch.addresses, size)
        ours = constants(program, pair.ours.constants, pair.our_addresses, size)
        assert theirs == ours, program.name


def test_loaded_descriptors_and_samplers_are_the_same(pairs: list[Pair]) -> None:
    for pair in pairs:
        assert pair.theirs.units.keys() == pair.ours.units.keys()
        for key, theirs in pair.theirs.units.items():
            assert without_addresses(key, theirs) == without_addresses(key, pair.ours.units[key])


def without_addresses(key: tuple[StateBlock, StateType], units: dict[int, bytes]) -> dict[int, bytes]:
    """Descriptors with the 64-bit address in dwords 4 and 5 masked."""
    if key not in (TEXTURES, UAVS):
        return units
    assert all(len(data) == TEXTURE_BYTES for data in units.values())
    return {unit: data[:16] + bytes(8) + data[24:] for unit, data in units.items()}


def test_results_are_the_same(pairs: list[Pair]) -> None:
    for pair in pairs:
        assert pair.launch.after == pair.our_after, pair.launch.program.name
