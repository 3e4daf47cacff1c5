"""Files with programs: which kind each is, which kernels are in it, and what these take.

Code objects of AMD GPUs, Adreno program blobs, and OpenCL C, which is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from shlex import quote
from typing import Any

from rich.table import Table

from ringfence.cli.extras import missing, require
from ringfence.cli.output import notice, row, table
from ringfence.cli.summary import adreno_resources, amd_resources
from ringfence.errors import CompileError, PackageError
from ringfence.hardware.adreno.program import MAGIC as ADRENO_MAGIC
from ringfence.hardware.adreno.program import AdrenoProgram, read_program
from ringfence.hardware.amd.code_object import CodeObject, Kernel, load_code_object
from ringfence.hardware.amd.metadata import ArgumentKind
from ringfence.package.format import MAGIC as PACKAGE_MAGIC
from ringfence.package.programs import ELF_MAGIC
from ringfence.runtime.program import CODES, Spec


class FileKind(Enum):
    """What is in a file."""

    PACKAGE = "a package"
    CODE_OBJECT = "an AMD code object"
    ADRENO = "an Adreno program blob"
    SOURCE = "OpenCL C"


_MAGICS = {
    PACKAGE_MAGIC: FileKind.PACKAGE,
    ELF_MAGIC: FileKind.CODE_OBJECT,
    ADRENO_MAGIC: FileKind.ADRENO,
}
_SUFFIXES = {
    ".co": FileKind.CODE_OBJECT,
    ".hsaco": FileKind.CODE_OBJECT,
    ".bin": FileKind.ADRENO,
    ".cl": FileKind.SOURCE,
}
_BUNDLES = (b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB")


def kind_of(path: Path) -> FileKind:
    """Return what a file is: its first bytes decide, and its name only if they say nothing.

    Files that are neither count as packages, which tell what is wrong with them.
    """
    head = b""
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(max(map(len, (*_MAGICS, *_BUNDLES))))
    for magic, kind in _MAGICS.items():
        if head.startswith(magic):
            return kind
    if head.startswith(_BUNDLES):
        raise PackageError(
            f"{path} is an offload bundle of several code objects; take one out of it with "
            "clang-offload-bundler --unbundle"
        )
    return _SUFFIXES.get(path.suffix.lower(), FileKind.PACKAGE)


# ----- what a kernel takes ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    """What an argument must be.

    ``dtype`` is numpy's name of the numbers or elements, ``None`` if the file does not tell; ``type_text``
    is for people. ``size`` is in bytes. ``problem`` says why nothing can be given. ``local``: it is a pointer
    to local memory, for which a number of bytes is given.
    """

    index: int
    name: str
    buffer: bool
    dtype: str | None
    type_text: str
    size: int
    written: bool = False
    problem: str = ""
    local: bool = False

    def __str__(self) -> str:
        return f"argument {self.index}{f' {self.name!r}' * bool(self.name)}"

    @property
    def signature(self) -> str:
        """Return the argument as it is listed, such as ``y: float32 buffer, written``."""
        name = self.name or str(self.index)
        return f"{name}: {self.type_text}{', written' * self.written}"

    def check(self) -> None:
        """:class:`PackageError` if no value can be given."""
        if self.problem:
            raise PackageError(self.problem)


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """A kernel of a file. ``local_size`` is set if the compiler fixed it; ``problem`` says why it cannot run.

    ``resources`` are those of :func:`ringfence.cli.summary.amd_resources` or ``adreno_resources``.
    """

    name: str
    parameters: tuple[Parameter, ...]
    local_size: tuple[int, int, int] | None
    resources: Mapping[str, int]
    problem: str = ""

    @property
    def signature(self) -> str:
        """Return name and arguments."""
        return f"{self.name}({'; '.join(each.signature for each in self.parameters)})"

    def as_json(self) -> dict[str, Any]:
        """Return the facts as plain data."""
        return {
            "name": self.name,
            "arguments": [
                {
                    "name": each.name,
                    "kind": "buffer" if each.buffer else "local" if each.local else "scalar",
                    "dtype": each.dtype,
                    "type": each.type_text,
                    "written": each.written,
                    "problem": each.problem or None,
                }
                for each in self.parameters
            ],
            "local_size": self.local_size,
            **self.resources,
            "problem": self.problem or None,
        }


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A file with kernels for ``chip``. ``blob`` is what a device loads."""

    path: Path
    kind: FileKind
    chip: str
    blob: bytes
    kernels: tuple[KernelFacts, ...]

    def kernel(self, name: str | None) -> KernelFacts:
        """Return a kernel by name, or the only one; :class:`PackageError` names those that there are."""
        known = ", ".join(each.name for each in self.kernels) or "none"
        if name is None and len(self.kernels) != 1:
            raise PackageError(
                f"{self.path} has {len(self.kernels)} kernels: {known}; choose one by --kernel"
            )
        for each in self.kernels:
            if name in (None, each.name):
                return each
        raise PackageError(f"{self.path} has no kernel {name!r}; it has: {known}")


def read_programs(path: Path, kind: FileKind, data: bytes | None = None) -> ProgramFile:
    """Return the kernels in a code object or a program blob; :class:`PackageError` if it is damaged.

    ``data`` is used instead of the file's.
    """
    blob = path.read_bytes() if data is None else data
    try:
        if kind is FileKind.ADRENO:
            program = read_program(blob)
            return ProgramFile(path, kind, program.chip, blob, (_adreno_kernel(program),))
        loaded = load_code_object(blob)
    except PackageError as error:
        raise PackageError(f"{path}: {error}") from error
    kernels = tuple(_amd_kernel(loaded, kernel) for kernel in loaded.kernels.values())
    if not kernels:
        what = (
            "the source has no kernel function"
            if kind is FileKind.SOURCE
            else "the code object has no kernel"
        )
        raise PackageError(f"{path}: {what}")
    return ProgramFile(path, kind, loaded.arch, blob, kernels)


def _adreno_kernel(program: AdrenoProgram) -> KernelFacts:
    from ringfence.drivers.adreno.program import argument_spec

    specs = [argument_spec(program.name, index, each) for index, each in enumerate(program.arguments)]
    parameters = tuple(
        _parameter(
            spec, each.size if each.kind != "image" else spec.nbytes, _adreno_type(each.kind, spec, each)
        )
        for spec, each in zip(specs, program.arguments, strict=True)
    )
    return KernelFacts(program.name, parameters, program.local_size, adreno_resources(program))


def _adreno_type(kind: str, spec: Spec, argument: Any) -> str:
    if kind == "image":
        height, width = argument.shape
        return f"{spec.type_name} image {height}x{width}x4"
    return f"{spec.type_name} buffer" if spec.address else spec.type_name


def _amd_kernel(loaded: CodeObject, kernel: Kernel) -> KernelFacts:
    metadata = kernel.metadata
    resources = amd_resources(loaded, kernel)
    if metadata is None:
        problem = f"kernel {kernel.name!r} has no metadata, so its arguments are not known"
        return KernelFacts(kernel.name, (), None, resources, problem)
    parameters = tuple(_amd_parameter(kernel.name, k, each) for k, each in enumerate(metadata.explicit))
    fixed = metadata.reqd_workgroup_size
    return KernelFacts(kernel.name, parameters, fixed, resources)


def _amd_parameter(kernel: str, index: int, argument: Any) -> Parameter:
    from ringfence.drivers.amd.program import argument_spec

    name, declared = argument.name or "", argument.type_name
    if argument.value_kind is ArgumentKind.DYNAMIC_SHARED_POINTER:
        return Parameter(index, name, False, None, "local memory", argument.size, local=True)
    try:
        spec = argument_spec(kernel, index, argument)
    except PackageError as error:
        text = f"{declared or argument.value_kind.value}, which cannot be given"
        return Parameter(index, name, False, None, text, argument.size, problem=str(error))
    known = spec.type_name if spec.type_name in CODES else declared or spec.type_name
    return _parameter(spec, argument.size, f"{known} buffer" if spec.address else known)


def _parameter(spec: Spec, size: int, type_text: str) -> Parameter:
    dtype = spec.type_name if spec.type_name in CODES else None
    return Parameter(spec.index, spec.name, spec.address, dtype, type_text, size, spec.written)


# ----- source -------------------------------------------------------------------------------------


def compile_source(path: Path, chip: str, defines: Mapping[str, str]) -> ProgramFile:
    """Return the kernels of a file of OpenCL C, compiled for ``chip``.

    :class:`CompileError` with the compiler's first message; the others are printed before.
    """
    if not chip.startswith("gfx"):
        raise CompileError(
            f"{path}: OpenCL C is compiled for AMD GPUs only, not for {chip}; "
            "give a virtual:gfx1100, or a program blob for an Adreno"
        )
    if "ziglang" in missing("compile"):
        require("compile", "compiling OpenCL C")
    from ringfence.compile.opencl import compile_opencl

    try:
        source = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CompileError(f"{path} is not UTF-8 text, so no OpenCL C: {error}") from error
    try:
        code_object = compile_opencl(source, arch=chip, defines=defines, name=path.name)
    except CompileError as error:
        raise CompileError(f"{path} does not compile for {chip}: {_first_message(error)}") from error
    return read_programs(path, FileKind.SOURCE, code_object)


def _first_message(error: CompileError) -> str:
    """Return what to put in one line; if there is more, print it all before."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    messages = [line for line in lines if not line.endswith(":")]  # the others are headings
    first = messages[0]
    if len(messages) > 1:
        for line in lines[1:] if first == lines[0] else lines:
            notice(line)
    return first


def parse_defines(texts: Sequence[str]) -> dict[str, str]:
    """Return the macros of ``NAME`` or ``NAME=VALUE``; :class:`CompileError` for what is no name."""
    found = {}
    for text in texts:
        name, given, value = text.partition("=")
        if not name.isidentifier():
            raise CompileError(f"--define {quote(text)}: {name!r} is no name of a macro; write NAME=VALUE")
        found[name] = value if given else "1"
    return found


# ----- for people ---------------------------------------------------------------------------------

COLUMNS = {
    "launches": "launches",
    "code": "code_bytes",
    "full": "full_registers",
    "half": "half_registers",
    "vgprs": "vgprs",
    "sgprs": "sgprs",
    "wave": "wave",
    "local mem": "shared_bytes",
    "private": "private_bytes",
    "tex": "textures",
    "uav": "uavs",
}
"""Titles of the tables of programs and kernels, and the keys of their rows; a family has some of them."""
_AMD_TITLES = {"local mem": "LDS", "private": "scratch"}


def kernel_table(file: ProgramFile) -> Table:
    """Return the kernels with what they take."""
    keys = {key for each in file.kernels for key in each.resources}
    shown = {_title(title, file.kind): key for title, key in COLUMNS.items() if key in keys}
    heading = f"kernels of {file.path} for {file.chip} ({_units(file.kind)})"
    made = table(heading, "kernel", "arguments", "group", *shown, numbers=tuple(shown))
    for each in file.kernels:
        arguments = each.problem or "\n".join(a.signature for a in each.parameters) or "none"
        local = "any" if each.local_size is None else "x".join(map(str, each.local_size))
        row(made, each.name, arguments, local, *(each.resources.get(key, "") for key in shown.values()))
    return made


def _title(title: str, kind: FileKind) -> str:
    return title if kind is FileKind.ADRENO else _AMD_TITLES.get(title, title)


def _units(kind: FileKind) -> str:
    return "bytes; registers in vec4" if kind is FileKind.ADRENO else "bytes"
