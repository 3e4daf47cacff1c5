"""The registers at each dispatch are the same after our commands and after tinygrad's, or it is known why.

``record_tinygrad_amd_dispatches.py`` runs expressions with unmodified tinygrad on a virtual GPU and records
each program run: its code object, what it was called with, and the registers that the command processor had.
Here the same code objects are loaded and launched with our driver on a machine of its own. Programs are
executed on gfx1100 only; on chips of other generations their launches are compared. gfx942 and gfx950 have
eight compute dies there, of which the first runs PM4 queues.
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
from record_tinygrad_amd_dispatches import Launch, State, make_machine, state_of

import ringfence as rf
from ringfence.drivers.amd.encode import UNLIKE_TINYGRAD, Commands, Scratch, scratch_registers
from ringfence.hardware.amd.chips import Generation, chip_by_name
from ringfence.hardware.amd.elf import read_elf

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif("TINYGRAD" not in os.environ, reason="TINYGRAD names no tinygrad checkout"),
]

SCRIPT = Path(__file__).with_name("record_tinygrad_amd_dispatches.py")
CHIPS = ("gfx1100", "gfx1102", "gfx1201", "gfx942", "gfx950")
# With more registers than the largest of the programs needs.
NOTHING_SPILLS = ("gfx1201", "gfx942", "gfx950")
SOURCES = Path(rf.__file__).parents[1]  # tinygrad's process uses the very ringfence that is tested
# Where memory is differs; what is there is compared. Arguments are behind the first two user registers.
ADDRESSES = {"COMPUTE_PGM_LO", "COMPUTE_PGM_HI", "COMPUTE_USER_DATA_0", "COMPUTE_USER_DATA_1"}


@dataclass(frozen=True)
class Pair:
    """A launch of tinygrad, and the state and the buffers after ours."""

    chip: str
    launch: Launch
    theirs: State
    ours: State
    our_addresses: list[int]
    our_after: list[bytes]


@pytest.fixture(scope="module", params=CHIPS)
def pairs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    chip: str = request.param
    path = tmp_path_factory.mktemp("tinygrad") / "launches"
    search = os.pathsep.join((os.environ["TINYGRAD"], str(SOURCES)))
    environment = {**os.environ, "DEV": "AMD:LLVM", "AMD_AQL": "0", "PYTHONPATH": search}
    environment.pop("HCQ2", None)
    subprocess.run([sys.executable, SCRIPT, path, chip], env=environment, check=True)
    launches: list[Launch] = pickle.loads(path.read_bytes())
    states: list[State] = []
    machine = make_machine(chip)
    machine.on_dispatch = lambda registers, dispatch: states.append(state_of(machine, registers, dispatch))
    with machine, rf.open("kfd", port=machine) as device:
        return [run(chip, device, launch, states) for launch in launches]


def run(chip: str, device: rf.Device, launch: Launch, states: list[State]) -> Pair:
    """Launch a program again, with our driver."""
    buffers = [device.array(np.frombuffer(data, np.uint8)).offset_view(0) for data in launch.before]
    kernel = device.load(launch.library)[launch.name]
    states.clear()
    device.launch(kernel, *buffers, *launch.values, groups=launch.groups, local=launch.local).wait()
    assert len(states) == 1
    after = [buffer.numpy().tobytes() for buffer in buffers]
    assert launch.state is not None
    return Pair(chip, launch, launch.state, states[0], [buffer.gpu_address for buffer in buffers], after)


def text_bytes(library: bytes) -> int:
    (section,) = (each for each in read_elf(library).sections if each.name == ".text")
    return section.size


def differing_registers(pair: Pair) -> Iterator[tuple[str, int | None, int | None]]:
    theirs, ours = pair.theirs.registers, pair.ours.registers
    for name in sorted(theirs.keys() | ours.keys()):
        if name not in ADDRESSES and theirs.get(name) != ours.get(name):
            yield name, theirs.get(name), ours.get(name)


def arguments(data: bytes, size: int, addresses: list[int]) -> bytes:
    """The first ``size`` bytes, with buffer k's address replaced by k + 1."""
    found = bytearray(data[:size])
    for k, address in enumerate(addresses):
        found[8 * k : 8 * k + 8] = found[8 * k : 8 * k + 8].replace(
            address.to_bytes(8, "little"), (k + 1).to_bytes(8, "little")
        )
    return bytes(found)


def test_every_program_was_launched_and_some_use_everything(pairs: list[Pair]) -> None:
    assert len({pair.launch.library for pair in pairs}) >= 12
    assert any(pair.theirs.shared_bytes for pair in pairs)
    assert any(pair.theirs.scratch_bytes for pair in pairs) or pairs[0].chip in NOTHING_SPILLS
    assert any(pair.launch.values for pair in pairs)
    assert any(pair.launch.local[1] > 1 for pair in pairs)


def test_registers_are_tinygrads_except_where_it_is_said_why(pairs: list[Pair]) -> None:
    unexplained = [
        (pair.launch.name, *difference)
        for pair in pairs
        for difference in differing_registers(pair)
        if difference[0] not in UNLIKE_TINYGRAD
    ]
    compared = {name for pair in pairs for name in pair.theirs.registers}
    print(f"{len(pairs)} launches, {len(compared)} registers, {len(compared & ADDRESSES)} of them addresses")
    assert unexplained == []


def test_the_same_registers_are_written(pairs: list[Pair]) -> None:
    for pair in pairs:
        assert pair.theirs.registers.keys() == pair.ours.registers.keys()


def test_the_launch_is_the_same(pairs: list[Pair]) -> None:
    for pair in pairs:
        theirs, ours = pair.theirs, pair.ours
        assert (theirs.groups, theirs.local, theirs.wave) == (ours.groups, ours.local, ours.wave)
        assert theirs.shared_bytes == ours.shared_bytes
        assert len(theirs.user_data) == len(ours.user_data)


def test_scratch_memory_is_enough_for_what_the_program_asks_for(pairs: list[Pair]) -> None:
    for pair in pairs:
        for state in (pair.theirs, pair.ours):
            assert bool(state.scratch_bytes) == bool(state.registers["COMPUTE_PGM_RSRC2"] & 1)
        assert pair.ours.scratch_bytes <= pair.theirs.scratch_bytes


def test_the_size_of_scratch_memory_is_encoded_as_tinygrad_does(pairs: list[Pair]) -> None:
    register, private = "COMPUTE_TMPRING_SIZE", 128  # bytes per work-item that tinygrad begins with
    chip = chip_by_name(pairs[0].chip)
    commands = Commands(chip.target)
    scratch_registers(commands, 0, Scratch.of(chip.node(), private))
    theirs = {pair.theirs.registers[register] for pair in pairs if pair.theirs.scratch_bytes <= private}
    assert theirs == {commands.words[-1]}


def test_the_code_is_the_same(pairs: list[Pair]) -> None:
    for pair in pairs:
        theirs, ours = pair.theirs.code, pair.ours.code
        if chip_by_name(pair.chip).generation is not Generation.GFX11:  # nothing tells where code ends
            size = text_bytes(pair.launch.library)
            theirs, ours = theirs[:size], ours[:size]
        assert theirs == ours and any(ours)


def test_arguments_are_the_same(pairs: list[Pair]) -> None:
    for pair in pairs:
        size = pair.launch.argument_bytes
        theirs = arguments(pair.theirs.arguments, size, pair.launch.addresses)
        assert theirs == arguments(pair.ours.arguments, size, pair.our_addresses), pair.launch.name


def test_results_are_the_same(pairs: list[Pair]) -> None:
    for pair in pairs:
        assert pair.launch.after == pair.our_after, pair.launch.name
        assert pair.chip != "gfx1100" or pair.our_after != pair.launch.before, pair.launch.name
