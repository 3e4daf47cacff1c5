"""Programs with 16-bit numbers: Mesa's code for them is consistent only with merged register files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tinygrad.helpers import Context

from compile.half_registers import never_written
from models import MODELS
from ringfence.compile import chip_compiler, compile_model
from ringfence.compile.kernels import CompiledKernel, compile_tinygrad
from ringfence.hardware.adreno.program import AdrenoProgram


def emulated_half(monkeypatch: pytest.MonkeyPatch, *, merged: bool | None = None) -> CompiledKernel:
    """Return a kernel that packs and unpacks halves in integer registers; ``merged`` overrules the choice."""
    real = chip_compiler.ChipCompiler.__init__

    def init(self: chip_compiler.ChipCompiler, arch: str, narrow: bool) -> None:
        real(self, arch, narrow)
        self.merged = self.merged if merged is None else merged

    monkeypatch.setattr(chip_compiler.ChipCompiler, "__init__", init)
    with Context(EMULATED_DTYPES="half"):
        [kernel] = compile_tinygrad(lambda a: a.asin(), (256,), dtype="float16")
    return kernel


def test_with_files_of_their_own_a_half_register_is_read_that_nothing_wrote(monkeypatch) -> None:
    program = emulated_half(monkeypatch, merged=False).program
    assert isinstance(program, AdrenoProgram) and not program.merged_registers
    [(_, text, key)] = never_written(program)
    assert key[0] == "h" and "hr" in text


def test_kernels_with_halves_are_compiled_for_merged_files(monkeypatch) -> None:
    program = emulated_half(monkeypatch).program
    assert isinstance(program, AdrenoProgram) and program.merged_registers
    assert program.half_registers == 0, "halves are counted with the full registers"
    assert never_written(program) == []


@pytest.mark.parametrize("dtype", ["float16", "int16", "uint8"])
def test_every_narrow_type_counts(dtype: str) -> None:
    [kernel] = compile_tinygrad(lambda a: a * 2, (256,), dtype=dtype)
    assert isinstance(kernel.program, AdrenoProgram) and kernel.program.merged_registers


def test_a_truth_value_is_no_narrow_number() -> None:
    [kernel] = compile_tinygrad(lambda a: (a > 0).where(a, a * 2), (256,))
    assert isinstance(kernel.program, AdrenoProgram) and not kernel.program.merged_registers


@pytest.mark.parametrize(
    "name", ["pnet", "silero", *(pytest.param(n, marks=pytest.mark.conformance) for n in ("onet", "ocr_det"))]
)
def test_no_program_of_a_half_precision_network_reads_what_nothing_wrote(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    with compile_model(
        model.path, tmp_path / "m.rfp", input_shapes=model.input_shapes, float16=True
    ) as package:
        programs = [p for p in package.programs if isinstance(p, AdrenoProgram)]
    assert any(p.merged_registers for p in programs)
    assert {p.name: found for p in programs if (found := never_written(p))} == {}
