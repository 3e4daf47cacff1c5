"""Mesa's ir3 compiler for any a6xx chip, in the place of tinygrad's, which accepts an a630 only.

Mesa is asked by chip id, as KGSL reports it. For a chip that it does not know it answers with a device
description of zeros, and would compile something all the same.

Mesa's own drivers compile for merged register files, where half registers are halves of full ones. So does
this module, but for kernels without 8- and 16-bit numbers on an a630: their code is that of tinygrad, which
runs on such a chip with two files. With 16-bit values two files are not safe. Mesa's register allocation
(``is_subreg_move`` of ir3.h) lets the low half of a full register stand for a half one all the same, and the
program reads a half register that nothing wrote. On chips with 64 vec4 of registers a program with two files
need not fit either.
"""

from __future__ import annotations

import ctypes
from typing import Any

from tinygrad import dtypes
from tinygrad.device import Compiler
from tinygrad.helpers import Target
from tinygrad.renderer import Renderer
from tinygrad.renderer.nir import IR3Renderer
from tinygrad.runtime.autogen import mesa
from tinygrad.runtime.support.compiler_mesa import IR3Compiler, deserialize, rzalloc
from tinygrad.uop.ops import UOp

from ringfence.errors import CompileError
from ringfence.hardware.adreno.chips import Chip, chip_by_name

_OPTIONS = "IMAGE_PITCH_ALIGNMENT=64"
_ACCEPTED_BY_TINYGRAD = "a630"


def device_info(chip: Chip) -> Any:
    """Return Mesa's description of a chip (``fd_dev_info``); :class:`CompileError` if it has none."""
    info = mesa.fd_dev_info(_identity(chip))
    if not any(bytes(info)):
        raise CompileError(
            f"Mesa does not know the chip {chip.name} (chip id {chip.chip_id:#010x}); install the tinymesa "
            "of ringfence[compile]"
        )
    return info


def _identity(chip: Chip) -> Any:
    return mesa.struct_fd_dev_id(0, chip.chip_id)  # gpu_id 0: look the chip id up


class ChipCompiler(IR3Compiler):  # type: ignore[misc]
    """tinygrad's ir3 compiler, for the chip that ``arch`` (``"a650,..."``) names.

    ``narrow`` says that kernels have 8- or 16-bit numbers.
    """

    def __init__(self, arch: str, narrow: bool) -> None:
        chip = chip_by_name(arch.split(",")[0])
        self.chip = chip.name
        self.arch, self.narrow, self.dev_id = arch, narrow, _identity(chip)
        options = mesa.struct_ir3_compiler_options(disable_cache=True)
        self.cc = mesa.ir3_compiler_create(None, self.dev_id, device_info(chip), options).contents
        self.cc.has_preamble = False  # a launch loads all constants itself
        self.nir_options = bytes(mesa.ir3_get_compiler_options(self.cc).contents)
        self.merged = bool(self.cc.mergedregs) and (narrow or chip.name != _ACCEPTED_BY_TINYGRAD)
        Compiler.__init__(self, f"compile_ir3_{arch}")

    def compile(self, src: str) -> bytes:
        """Return the bytes of the variant, its constants' state, its immediates and its code.

        ``src`` is a serialised NIR shader. :class:`CompileError` if Mesa fails.
        """
        nir = deserialize(src, self.nir_options)
        mesa.ir3_nir_lower_io_vars_to_temporaries(nir)
        mesa.ir3_finalize_nir(self.cc, mesa.struct_ir3_shader_nir_options(), nir)
        common = {"type": mesa.MESA_SHADER_COMPUTE, "compiler": ctypes.pointer(self.cc)}
        shader = rzalloc(mesa.struct_ir3_shader, nir=nir, **common)
        mesa.ir3_nir_post_finalize(shader)
        variant = rzalloc(mesa.struct_ir3_shader_variant, mergedregs=self.merged, **common)
        try:
            return self._assemble(shader, variant)
        finally:
            mesa.ralloc_free(variant)
            mesa.ralloc_free(shader)

    def _assemble(self, shader: Any, variant: Any) -> bytes:
        v, info = variant.contents, shader.contents.nir.contents.info
        v.const_state = rzalloc(mesa.struct_ir3_const_state, variant)
        v.num_uavs = info.num_ssbos + info.num_images
        shader.contents.variants, shader.contents.variant_count = variant, 1
        if mesa.ir3_compile_shader_nir(self.cc, shader.contents, v):
            raise CompileError(f"Mesa could not compile a kernel for {self.arch}")
        code = ctypes.string_at(ctypes.cast(mesa.ir3_shader_assemble(v), ctypes.c_void_p), v.info.size)
        immediates = ctypes.string_at(v.imm_state.values, 4 * v.imm_state.count)
        return bytes(v) + bytes(v.const_state.contents) + immediates + code

    def __del__(self) -> None:
        if hasattr(self, "cc"):
            super().__del__()

    def __reduce__(self) -> tuple[type[ChipCompiler], tuple[str, bool]]:
        return ChipCompiler, (self.arch, self.narrow)


class ChipRenderer(IR3Renderer):  # type: ignore[misc]
    """tinygrad's renderer of NIR with the compiler of ``chip``, whose errors it has.

    ``narrow``: for kernels with 8- or 16-bit numbers.
    """

    def __init__(self, chip: Chip, narrow: bool) -> None:
        # Not IR3Renderer's own, whose compiler accepts an a630 only. The device must be QCOM, or tinygrad's
        # image rewrite (codegen/late/coalesce.py) silently does nothing.
        Renderer.__init__(self, Target("QCOM", "IR3", f"{chip.name},{_OPTIONS}"))
        self.compiler = ChipCompiler(self.target.arch, narrow)
        self.nir_options = self.compiler.nir_options
        mesa.glsl_type_singleton_init_or_ref()
        self._deinit_types = True  # what IR3Renderer undoes at its end

    def render(self, uops: list[UOp]) -> Any:
        """Return the serialised shader; :class:`CompileError` for what Mesa would abort at."""
        if any(u.dtype == dtypes.double for u in uops):
            raise CompileError(f"a kernel computes with float64, which {self.compiler.chip} has not")
        return super().render(uops)


def make_renderer(chip: Chip, *, narrow: bool) -> IR3Renderer:
    """Return tinygrad's renderer with the compiler of ``chip``; errors as :func:`device_info`.

    ``narrow``: for kernels with 8- or 16-bit numbers.
    """
    return ChipRenderer(chip, narrow)
