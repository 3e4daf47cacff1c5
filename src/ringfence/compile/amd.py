"""Kernels to AMD code objects through tinygrad's LLVM renderer, and LLVM and lld from wheels.

tinygrad's own way needs a shared library of LLVM, or ROCm's comgr. Its text is the same here; what differs is
what the code object says of a launch: names and types of the arguments, which of them are only read, and the
size of a work-group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from tinygrad.codegen import do_to_program
from tinygrad.codegen.opt.tc import TensorCore
from tinygrad.device import Compiler
from tinygrad.dtype import AddrSpace
from tinygrad.helpers import Target
from tinygrad.renderer import Renderer
from tinygrad.renderer.llvmir import AMDLLVMRenderer, ldt
from tinygrad.uop.ops import Ops, UOp

from ringfence.compile.kernel import Kernel, launch_size
from ringfence.compile.opencl import compile_llvm_ir
from ringfence.compile.workgroups import fill_groups
from ringfence.errors import CompileError, PackageError
from ringfence.package.programs import read_amd_program

POINTER_ALIGNMENT = 16
"""What the code may rely on. Ranges of a package are aligned to more."""

_METADATA = ("reqd_work_group_size", "kernel_arg_name", "kernel_arg_type", "kernel_arg_type_qual")
"""What is said of a kernel, for LLVM to copy to the code object (``AMDGPUHSAMetadataStreamer.cpp``)."""

# tinygrad writes private arrays into the default address space, where AMD GPUs have none.
_PRIVATE_ARRAY = re.compile(r"^  (%\S+) = alloca (\[[^\]]*\])(?:, align \d+)?$", re.MULTILINE)
_IN_ITS_SPACE = (
    r"  \1_private = alloca \2, align 16, addrspace(5)"
    "\n"
    r"  \1 = addrspacecast ptr addrspace(5) \1_private to ptr"
)


class CodeObjectCompiler(Compiler):  # type: ignore[misc]
    """LLVM IR to the code object of one kernel, for the chip ``arch``."""

    def __init__(self, arch: str) -> None:
        self.arch = arch
        super().__init__(f"compile_code_object_{arch}")

    def compile(self, src: str) -> bytes:
        """Return a linked code object; :class:`CompileError` if LLVM or lld refuse ``src``."""
        return compile_llvm_ir(src, arch=self.arch, features=("+cumode",), passes=True)

    def __reduce__(self) -> tuple[type[CodeObjectCompiler], tuple[str]]:
        return CodeObjectCompiler, (self.arch,)


class CodeObjectRenderer(AMDLLVMRenderer):  # type: ignore[misc]
    """tinygrad's renderer of LLVM IR for AMD GPUs, without its compiler and without matrix instructions.

    ``names`` are those of the buffers by slot; without them they are called ``data0``, ...
    """

    def __init__(self, arch: str, names: Sequence[str] = ()) -> None:
        Renderer.__init__(self, Target("AMD", "LLVM", arch))  # AMDLLVMRenderer's own loads a libLLVM
        self.compiler = CodeObjectCompiler(arch)
        self.tensor_cores: list[TensorCore] = []
        self.is_cdna = False
        self._names = tuple(names)
        self._written: frozenset[int] = frozenset()
        self._arguments: list[UOp] = []

    def __reduce__(self) -> tuple[type[CodeObjectRenderer], tuple[str, tuple[str, ...]]]:
        return CodeObjectRenderer, (self.target.arch, self._names)

    def render(self, uops: list[UOp]) -> str:
        """Return the module of one kernel."""
        self._written = frozenset(_written(uops))
        sizes = {u.arg: int(u.src[0].vmax) for u in uops if u.op is Ops.SPECIAL and u.arg[0] == "l"}
        local = [f"i32 {sizes.get(f'lidx{axis}', 1)}" for axis in range(3)]
        text = _PRIVATE_ARRAY.sub(_IN_ITS_SPACE, str(super().render(uops)))
        nodes = [local, *([f'!"{word}"' for word in words] for words in self._argument_metadata())]
        return "\n".join([text, *(f"!{k} = !{{{', '.join(node)}}}" for k, node in enumerate(nodes))])

    def _argument_metadata(self) -> Iterator[list[str]]:
        """Yield what the nodes of :data:`_METADATA`, all but the first, say of each argument."""
        buffers = [u.addrspace == AddrSpace.GLOBAL for u in self._arguments]
        slots = [u.arg.slot for u in self._arguments]
        yield [self._names[slot] if self._names else f"data{slot}" for slot in slots]
        yield [u.dtype.name + "*" * buffer for u, buffer in zip(self._arguments, buffers)]
        yield [
            "const" if buffer and slot not in self._written else "" for slot, buffer in zip(slots, buffers)
        ]

    def _render_fn(
        self, name: str, args: list[tuple[str, UOp]], kernel: list[str], prefix: list[str] | None = None
    ) -> str:
        self._arguments = [u for _, u in args]
        parameters = ", ".join(self._parameter(name, u) for name, u in args)
        metadata = " ".join(f"!{node} !{k}" for k, node in enumerate(_METADATA))
        head = f"define {self.abi} void @{name}({parameters}) #0 {metadata}"
        return "\n".join([*(prefix or []), head, "{", *kernel, "  ret void\n}"])

    def _parameter(self, name: str, u: UOp) -> str:
        if u.addrspace != AddrSpace.GLOBAL:
            return f"{ldt(u.dtype)} {name}"
        access = "" if u.arg.slot in self._written else " readonly"
        return f"{ldt(u.dtype, ptr=True)} noalias{access} align {POINTER_ALIGNMENT} {name}"


def _written(uops: list[UOp]) -> Any:
    """Yield the slots of the buffers that a kernel stores to."""
    for u in uops:
        if u.op is Ops.STORE and (buffer := u.src[0].buf_uop).op is Ops.PARAM:
            yield buffer.arg.slot


def compile_kernel(ast: UOp, target: str, names: Sequence[str] = ()) -> Kernel:
    """Compile one kernel (a SINK node) whose buffers have ``names`` by slot; :class:`CompileError` if LLVM
    fails or the chip could not run it.
    """
    renderer = CodeObjectRenderer(target, names)
    compiled = do_to_program(fill_groups(ast, renderer), renderer)
    info = compiled.arg
    elf = compiled.to_elf()
    if any(name is not None for name, *_ in elf.signature):
        raise CompileError(f"kernel {elf.name} takes numbers; only buffers are supported for {target}")
    groups, local = launch_size(info)
    try:
        program = read_amd_program(elf.lib)
    except PackageError as error:
        raise CompileError(str(error)) from error
    slots = tuple(slot for _, slot, _, _ in elf.signature)
    written = [k for k, slot in enumerate(slots) if slot in info.outs]
    if [k for k, a in enumerate(program.arguments) if a.written] != written:
        raise CompileError(f"kernel {elf.name}: LLVM's metadata does not tell which arguments are written")
    return Kernel(program, slots, groups, local or (1, 1, 1))
