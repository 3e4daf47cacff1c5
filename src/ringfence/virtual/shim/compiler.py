"""LLVM for tinygrad's AMD renderer, from the wheel that the virtual devices need anyway."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ringfence.errors import CompileError
from ringfence.virtual.shim.hook import Hook, require

TRIPLE = "amdgcn-amd-amdhsa"
OPTIMIZATION = 2
FEATURES = "+cumode"  # as tinygrad's AMDLLVMCompiler asks for


def compile_object(text: str, chip: str, features: str) -> bytes:
    """Return the relocatable object of a module of LLVM IR, optimised as tinygrad's ``default<O2>``.

    ``features`` are the target's, as in ``"+cumode"``. The module gets neither triple nor data layout before
    the optimiser runs: tinygrad's private arrays are in the generic address space, where LLVM's verifier
    takes none for AMD GPUs, until the optimiser has turned them into registers. :class:`CompileError` with
    LLVM's message.
    """
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_triple(TRIPLE).create_target_machine(
        cpu=chip, features=features, opt=OPTIMIZATION, reloc="pic"
    )
    options = binding.create_pipeline_tuning_options(speed_level=OPTIMIZATION)
    builder = binding.create_pass_builder(machine, options)
    try:
        module = binding.parse_assembly(text)
        module.verify()
        builder.getModulePassManager().run(module, builder)
        return bytes(machine.emit_object(module))
    except RuntimeError as error:
        raise CompileError(f"LLVM could not compile for {chip}: {error}") from error


def replace_compiler(module: ModuleType) -> None:
    """Let ``AMDLLVMCompiler`` of tinygrad's ``compiler_llvm`` compile with llvmlite."""
    require(module, "AMDLLVMCompiler", "LLVMCompiler", "CompileError", "Compiler")
    original: Any = module.AMDLLVMCompiler
    if not issubclass(original, module.LLVMCompiler):
        return  # done already
    base, failed = module.Compiler, module.CompileError

    class AMDLLVMCompiler(base):  # type: ignore[misc, valid-type]
        """tinygrad's compiler for AMD GPUs, with the LLVM of llvmlite."""

        def __init__(self, arch: str) -> None:
            self.arch = arch
            super().__init__(f"compile_llvmlite_{arch}_{FEATURES}")

        def __reduce__(self) -> tuple[type, tuple[str]]:
            return type(self), (self.arch,)

        def compile(self, src: str) -> bytes:
            try:
                return compile_object(src, self.arch, FEATURES)
            except CompileError as error:
                raise failed(str(error)) from error

        def disassemble(self, lib: bytes) -> None:
            original.disassemble(self, lib)

    AMDLLVMCompiler.__qualname__ = original.__qualname__
    AMDLLVMCompiler.__module__ = original.__module__
    module.AMDLLVMCompiler = AMDLLVMCompiler  # type: ignore[attr-defined]


def amd_renderer(target: Any) -> Any:
    """Return tinygrad's LLVM renderer for AMD GPUs, in a process that has not installed the shim.

    tinygrad compiles in processes that it spawns, and sends them its renderers.
    """
    from tinygrad.renderer.llvmir import AMDLLVMRenderer
    from tinygrad.runtime.support import compiler_llvm

    replace_compiler(compiler_llvm)
    return AMDLLVMRenderer(target)


def _replace_pickling(module: ModuleType) -> None:
    require(module, "AMDLLVMRenderer")
    module.AMDLLVMRenderer.__reduce__ = lambda self: (amd_renderer, (self.target,))


COMPILER_HOOKS: Mapping[str, Hook] = {
    "tinygrad.runtime.support.compiler_llvm": replace_compiler,
    "tinygrad.renderer.llvmir": _replace_pickling,
}
