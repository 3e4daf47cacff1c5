"""The programs of a package: an Adreno blob or an AMD code object, by the target's family.

:class:`Program` is what a package needs to know of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ringfence.errors import PackageError
from ringfence.hardware.adreno.program import MAGIC as ADRENO_MAGIC
from ringfence.hardware.adreno.program import AdrenoProgram, read_program
from ringfence.hardware.amd.code_object import Kernel, load_code_object
from ringfence.hardware.amd.metadata import Argument as MetadataArgument
from ringfence.hardware.amd.metadata import ArgumentKind, KernelMetadata

ELF_MAGIC = b"\x7fELF"
POINTER_BYTES = 8


class ProgramArgument(Protocol):
    """An argument: ``kind`` is ``"buffer"``, ``"image"`` or ``"scalar"``.

    Images have a ``shape`` (height, width) in texels of four ``dtype``.
    """

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, int] | None: ...
    @property
    def written(self) -> bool: ...


class Program(Protocol):
    """A program: ``chip`` is what it was compiled for, ``local_size`` is ``None`` if any will do."""

    @property
    def name(self) -> str: ...
    @property
    def chip(self) -> str: ...
    @property
    def arguments(self) -> Sequence[ProgramArgument]: ...
    @property
    def local_size(self) -> tuple[int, int, int] | None: ...
    def to_bytes(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class AmdArgument:
    """An argument of a kernel of a code object; ``dtype`` is bytes if the file does not name it."""

    kind: str
    name: str
    written: bool
    dtype: str
    shape: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class AmdProgram:
    """A code object with one kernel."""

    name: str
    chip: str
    code_object: bytes
    arguments: tuple[AmdArgument, ...]
    local_size: tuple[int, int, int] | None

    def to_bytes(self) -> bytes:
        """Return the code object, which is the blob."""
        return self.code_object


def read_blob(blob: bytes) -> AdrenoProgram | AmdProgram:
    """Return the program in ``blob``; :class:`PackageError` if it is damaged or of no known kind."""
    if blob.startswith(ELF_MAGIC):
        return read_amd_program(blob)
    if blob.startswith(ADRENO_MAGIC):
        return read_program(blob)
    raise PackageError(
        f"a program starts with {blob[:8]!r}; known are Adreno program blobs and AMD code objects"
    )


def read_amd_program(code_object: bytes) -> AmdProgram:
    """Return a code object with one kernel as a program.

    :class:`PackageError` if it is damaged, has several kernels, lacks the metadata that tells its arguments,
    or needs arguments that no package has.
    """
    loaded = load_code_object(code_object)
    kernel = loaded.kernel()
    metadata = _metadata(kernel)
    arguments = tuple(_argument(kernel.name, k, a) for k, a in enumerate(metadata.explicit))
    return AmdProgram(kernel.name, loaded.arch, code_object, arguments, metadata.reqd_workgroup_size)


def _metadata(kernel: Kernel) -> KernelMetadata:
    if kernel.metadata is None:
        raise PackageError(f"program {kernel.name!r}: its code object has no metadata on arguments")
    if kernel.metadata.hidden:
        names = ", ".join(sorted(kind.value for kind in kernel.metadata.hidden))
        raise PackageError(f"program {kernel.name!r} takes {names}, which packages cannot give")
    return kernel.metadata


def _argument(kernel: str, index: int, argument: MetadataArgument) -> AmdArgument:
    """Return argument ``index``. What is not marked as only read counts as written."""
    name, dtype = argument.name or f"argument {index}", argument.dtype or "uint8"
    if argument.value_kind is ArgumentKind.BY_VALUE:
        return AmdArgument("scalar", name, written=False, dtype=dtype)
    if argument.value_kind is not ArgumentKind.GLOBAL_BUFFER or argument.size != POINTER_BYTES:
        raise PackageError(
            f"program {kernel!r}: {name} is of kind {argument.value_kind.value!r} and {argument.size} bytes; "
            "only buffers and numbers are supported"
        )
    return AmdArgument("buffer", name, written=argument.actual_access != "read_only", dtype=dtype)
