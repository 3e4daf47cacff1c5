"""Compiling for every chip: Mesa is asked by chip id, and what it makes runs on the chip's virtual device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tinygrad.runtime.autogen import mesa

import ringfence as rf
from oracle.mesa import disassemble
from ringfence.compile import chip_compiler
from ringfence.compile.kernels import CompiledKernel, compile_tinygrad
from ringfence.errors import CompileError
from ringfence.hardware.adreno.chips import CHIPS, chip_by_name
from ringfence.hardware.adreno.ir3 import decode_program

Array = np.ndarray[Any, Any]
NAMES = [chip.name for chip in CHIPS.values()]


def run(device: rf.Device, kernels: list[CompiledKernel], output: Array, *inputs: Array) -> Array:
    """Launch kernels on arrays, in their order."""
    buffers = {f"in{k}": device.array(array) for k, array in enumerate(inputs)}
    buffers["out"] = device.array(output)
    for kernel in kernels:
        for name, size in kernel.temporaries.items():
            buffers.setdefault(name, device.zeros(size, np.uint8).offset_view(0))
    for kernel in kernels:
        args = [buffers[name] for name in kernel.arguments]
        device.launch(device.load(kernel.program), *args, groups=kernel.groups, local=kernel.local)
    return buffers["out"].numpy()


@pytest.mark.parametrize("name", NAMES)
def test_kernels_compute_on_the_chip_that_they_were_compiled_for(name: str) -> None:
    random = np.random.default_rng(3)
    a, b = random.standard_normal((17, 24), np.float32), random.standard_normal((24, 10), np.float32)
    n = random.integers(1, 1000, 50, np.int32)
    with rf.open(f"virtual:{name}") as device:
        product = compile_tinygrad(lambda a, b: a @ b, a.shape, b.shape, target=name)
        assert np.allclose(run(device, product, np.zeros((17, 10), np.float32), a, b), a @ b, atol=1e-5)
        divided = compile_tinygrad(lambda n: (n * n) // (n + 7), n.shape, dtype="int32", target=name)
        assert (run(device, divided, np.zeros_like(n), n) == n * n // (n + 7)).all()
        half = compile_tinygrad(lambda a: (a * 2).exp(), a.shape, dtype="float16", target=name)
        expected = np.exp(a.astype(np.float16).astype(np.float32) * 2)
        found = run(device, half, np.zeros(a.shape, np.float16), a.astype(np.float16))
        assert np.allclose(found, expected, rtol=4e-3)


@pytest.mark.parametrize("name", NAMES)
def test_programs_name_their_chip_and_its_way_of_numbering_registers(name: str) -> None:
    [kernel] = compile_tinygrad(lambda a: a.exp() * 2, (1024,), target=name)
    assert kernel.program.chip == name
    assert kernel.program.merged_registers == (name != "a630")
    [half] = compile_tinygrad(lambda a: a.cast("half") * 2, (1024,), target=name)
    assert half.program.merged_registers


@pytest.mark.parametrize("name", NAMES)
def test_code_for_every_chip_decodes_as_mesa_prints_it(name: str) -> None:
    for expression in (lambda a: a.softmax(), lambda a: a @ a, lambda a: a.cast("int64").sum()):
        for kernel in compile_tinygrad(expression, (64, 64), target=name):
            decoded = [instruction.text for instruction in decode_program(kernel.program.code)]
            printed = disassemble(kernel.program.code, int(name[1:]))
            flow = [k for k, text in enumerate(printed) if "#" in text]  # relative there, absolute here
            assert [t for k, t in enumerate(decoded) if k not in flow] == [
                t for k, t in enumerate(printed) if k not in flow
            ]


def test_code_for_an_a630_is_what_tinygrads_own_compiler_makes() -> None:
    from tinygrad.helpers import Context, Target
    from tinygrad.renderer.nir import IR3Renderer

    kernels = compile_tinygrad(lambda a: a.exp().sum(), (64, 64))
    arch = "a630,IMAGE_PITCH_ALIGNMENT=64"
    with pytest.MonkeyPatch.context() as patch, Context(CACHELEVEL=0):
        patch.setattr(
            "ringfence.compile.ir3.make_renderer",
            lambda chip, narrow: IR3Renderer(Target("QCOM", "IR3", arch)),
        )
        assert compile_tinygrad(lambda a: a.exp().sum(), (64, 64)) == kernels


def test_a_chip_that_mesa_does_not_know_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[[Any], Any] = mesa.fd_dev_info
    monkeypatch.setattr(mesa, "fd_dev_info", lambda identity: real(mesa.struct_fd_dev_id(0, 0x06990000)))
    with pytest.raises(CompileError, match=r"Mesa does not know the chip a643 \(chip id 0x06030500\)"):
        compile_tinygrad(lambda a: a + 1, (64,), target="a643")


def test_mesa_answers_an_unknown_chip_id_with_zeros() -> None:
    assert not any(bytes(mesa.fd_dev_info(mesa.struct_fd_dev_id(0, 0x06990000))))
    assert any(bytes(chip_compiler.device_info(chip_by_name("a643"))))


def test_a_kernel_that_the_chip_cannot_run_is_refused_when_it_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chip_compiler.ChipCompiler, "compile", _with_registers(60))
    with pytest.raises(CompileError, match=r"needs \d+ registers \(vec4\); a650 has 64"):
        compile_tinygrad(lambda a: a * 3, (64,), dtype="float16", target="a650")


def _with_registers(vec4: int) -> Callable[[Any, str], bytes]:
    """Mesa's result, with more half registers than it really uses."""
    real = chip_compiler.ChipCompiler.compile

    def compile_(self: Any, source: str) -> bytes:
        lib = real(self, source)
        variant = mesa.struct_ir3_shader_variant.from_buffer_copy(lib)
        variant.info.max_half_reg = variant.info.max_reg = vec4 - 1
        return bytes(variant) + lib[len(bytes(variant)) :]

    return compile_
