"""The machine code in a package is what computes its outputs: changing one word of it shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

import ringfence as rf
from cli.repack import repack
from ringfence.errors import RingfenceError
from ringfence.hardware.adreno.ir3 import decode_program
from ringfence.hardware.adreno.program import AdrenoProgram

WORD = 8


@pytest.fixture(scope="module")
def inputs() -> dict[str, np.ndarray]:
    values = np.random.default_rng(5).standard_normal((1, 120, 112, 3)) * 0.5
    return {"input_1": values.astype(np.float32)}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps translations of broken programs out of the user's cache; unbroken ones are translated once."""
    monkeypatch.setenv("RINGFENCE_CACHE", str(tmp_path_factory.getbasetemp() / "honesty-cache"))


def outputs_of(package: Path, inputs: dict[str, np.ndarray]) -> dict[str, bytes] | RingfenceError:
    """The outputs' bytes, or the error that the run ended with."""
    try:
        with rf.open("virtual:a630") as device, device.load_package(package) as model:
            return {name: array.tobytes() for name, array in model.run(inputs).items()}
    except RingfenceError as error:
        return error


def flip(program: AdrenoProgram, pc: int, mask: int) -> AdrenoProgram:
    code = bytearray(program.code)
    word = int.from_bytes(code[WORD * pc : WORD * pc + WORD], "little") ^ mask
    code[WORD * pc : WORD * pc + WORD] = word.to_bytes(WORD, "little")
    return msgspec.structs.replace(program, code=bytes(code))


def replaced(
    programs: Sequence[AdrenoProgram], index: int, program: AdrenoProgram
) -> Sequence[AdrenoProgram]:
    return [*programs[:index], program, *programs[index + 1 :]]


def computing(program: AdrenoProgram) -> list[int]:
    """The pcs of the instructions that are not mere padding, waiting or the end."""
    return [i.pc for i in decode_program(program.code) if i.name not in ("nop", "end")]


def arithmetic(program: AdrenoProgram) -> list[int]:
    """The pcs of float sums and products."""
    return [i.pc for i in decode_program(program.code) if i.name in ("mad.f32", "mul.f", "add.f")]


def test_rewriting_without_a_change_changes_nothing(pnet, inputs, tmp_path):
    same = repack(pnet, tmp_path / "same.rfp", lambda programs: programs)
    assert outputs_of(same, inputs) == outputs_of(pnet, inputs)


@pytest.mark.parametrize("seed", range(12))
def test_one_changed_word_changes_the_result_or_faults(pnet, inputs, tmp_path, seed):
    random = np.random.default_rng(seed)

    def change(programs: Sequence[AdrenoProgram]) -> Sequence[AdrenoProgram]:
        index = int(random.integers(len(programs)))
        pc = int(random.choice(computing(programs[index])))
        return replaced(programs, index, flip(programs[index], pc, int(random.integers(1, 1 << 63))))

    changed = repack(pnet, tmp_path / "changed.rfp", change)
    before, after = outputs_of(pnet, inputs), outputs_of(changed, inputs)
    assert isinstance(before, dict)
    assert isinstance(after, RingfenceError) or after != before


@pytest.mark.parametrize("seed", range(12))
def test_another_destination_register_changes_the_result_or_faults(pnet, inputs, tmp_path, seed):
    """A change that still decodes: bit 32 of an ALU instruction is the lowest bit of its destination.

    Only of float arithmetic: of address arithmetic often nothing but the sign is used, and another register
    may have the same.
    """
    random = np.random.default_rng(100 + seed)

    def change(programs: Sequence[AdrenoProgram]) -> Sequence[AdrenoProgram]:
        index = int(random.choice([k for k, program in enumerate(programs) if arithmetic(program)]))
        pc = int(random.choice(arithmetic(programs[index])))
        return replaced(programs, index, flip(programs[index], pc, 1 << 32))

    changed = repack(pnet, tmp_path / "changed.rfp", change)
    before, after = outputs_of(pnet, inputs), outputs_of(changed, inputs)
    assert isinstance(before, dict)
    assert isinstance(after, RingfenceError) or after != before
