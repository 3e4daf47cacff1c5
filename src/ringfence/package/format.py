"""The package file: a compiled model that any machine can map and run.

Layout (little endian)::

    0     8s   magic ``RFPACKGE``
    8     u32  format version
    12    u32  zero
    16    u64  manifest bytes
    24    32s  SHA-256 of the manifest
    56         manifest (JSON), zeros up to the next multiple of 4096
    ...        sections, each starting at a multiple of 4096, zeros up to the next one

The manifest names every section with its place and SHA-256, so that the header's digest covers the whole
file; the bytes between the parts must be zero. Weights start at a page boundary and map without a copy.
Nothing is executable on the host and nothing is pickled. Equal contents give equal bytes.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from ringfence.errors import PackageError
from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.package.files import why_not_writable
from ringfence.package.programs import AmdProgram, ProgramArgument, read_blob

MAGIC = b"RFPACKGE"
VERSION = 1
ALIGNMENT = 4096
_HEADER = struct.Struct("<8sIIQ32s")

BUFFER_ALIGNMENT = (
    256  # of constants and arena ranges; descriptors drop the low address bits (DESC: BASE_LO 5:31)
)
DTYPES = frozenset(
    {"bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"}
    | {"float16", "float32", "float64"}
)

SectionName = Literal["programs", "weights"]
Dimensions = tuple[int, int, int]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a section lies: ``offset`` counts from the first section, ``nbytes`` without padding."""

    name: SectionName
    offset: int
    nbytes: int
    sha256: str


class Tensor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named input or output in C order; ``buffer`` is an index into the manifest's buffers."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    buffer: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class InputLayout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a picture becomes input ``input``: see :func:`ringfence.package.picture.to_input`.

    ``mean`` and ``std`` have one number per channel, in the order of ``channels``; pixels count from 0 to 1.
    """

    input: str
    axes: Literal["NCHW", "NHWC"]
    height: int
    width: int
    channels: Literal["RGB", "BGR", "L"]
    mean: tuple[float, ...]
    std: tuple[float, ...]


class PlannedBuffer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory that steps use. ``const`` lies in the section ``weights``, ``arena`` in the scratch arena."""

    kind: Literal["input", "output", "const", "arena"]
    offset: int = 0
    nbytes: int


class PackedProgram(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program in the section ``programs``: an Adreno program blob, or an AMD code object."""

    name: str
    offset: int
    nbytes: int


class Step(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One launch: ``buffers[k]`` is the buffer of argument k."""

    program: int
    buffers: tuple[int, ...]
    groups: Dimensions
    local: Dimensions


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a package contains and what it was made from."""

    name: str
    target: str
    image: bool
    float16: bool
    compiler: dict[str, str]
    model_sha256: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    layout: InputLayout | None = None
    arena_bytes: int = 0
    buffers: tuple[PlannedBuffer, ...] = ()
    programs: tuple[PackedProgram, ...] = ()
    steps: tuple[Step, ...] = ()
    sections: tuple[Section, ...] = ()


def encode_package(manifest: Manifest, sections: Mapping[SectionName, bytes]) -> bytes:
    """Return the bytes of a package; the manifest's own list of sections is replaced.

    :class:`PackageError` if the manifest contradicts itself or the sections.
    """
    placed, end = [], 0
    for name in sorted(sections):
        data = sections[name]
        placed.append(
            Section(name=name, offset=end, nbytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        )
        end = _align(end + len(data))
    manifest = msgspec.structs.replace(
        manifest, sections=tuple(placed), compiler=dict(sorted(manifest.compiler.items()))
    )
    views = {name: memoryview(data) for name, data in sections.items()}
    _check(manifest, views)
    return _assemble(msgspec.json.encode(manifest), placed, sections)


def write_package(
    path: str | os.PathLike[str], manifest: Manifest, sections: Mapping[SectionName, bytes]
) -> None:
    """Write a package; an existing file is replaced in one step, so that nobody sees half of it."""
    path = Path(path)
    scratch = _scratch(path)
    try:
        scratch.write_bytes(encode_package(manifest, sections))
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def why_no_package(path: str | os.PathLike[str]) -> str:
    """Return why :func:`write_package` would fail to write a file, nothing if it would not."""
    return why_not_writable(Path(path)) or why_not_writable(_scratch(Path(path)))


def _scratch(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _assemble(head: bytes, placed: list[Section], sections: Mapping[SectionName, bytes]) -> bytes:
    header = _HEADER.pack(MAGIC, VERSION, 0, len(head), hashlib.sha256(head).digest())
    base = _align(len(header) + len(head))
    out = bytearray(base + (placed[-1].offset + placed[-1].nbytes if placed else 0))
    out[: len(header) + len(head)] = header + head
    for section in placed:
        start = base + section.offset
        out[start : start + section.nbytes] = sections[section.name]
    return bytes(out)


def _align(n: int) -> int:
    return -(-n // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Package:
    """A verified package. Sections are views of the mapped file; use it as a context manager or
    ``close()`` it."""

    path: str
    manifest: Manifest
    sections: Mapping[SectionName, memoryview]
    programs: tuple[AdrenoProgram | AmdProgram, ...]
    _mapping: mmap.mmap | None = None

    def weights(self) -> npt.NDArray[np.uint8]:
        """Return the whole section ``weights`` as bytes: a read-only view of the file, empty if there is
        none."""
        return np.frombuffer(self.sections.get("weights", memoryview(b"")), np.uint8)

    def close(self) -> None:
        """Unmap the file. Arrays that came from it keep it mapped as long as they live."""
        for view in self.sections.values():
            _release(view)
        if self._mapping is not None:
            try:
                self._mapping.close()
            except BufferError:
                return  # an array still looks at the file; the mapping goes when the array goes

    def __enter__(self) -> Package:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _release(view: memoryview) -> None:
    try:
        view.release()
    except BufferError:
        return  # an array still looks at the section


def read_package(path: str | os.PathLike[str]) -> Package:
    """Map and verify the package at ``path``; :class:`PackageError` tells what is wrong with it."""
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else None
    except OSError as error:
        raise PackageError(f"cannot read package {name}: {error.strerror}; check the path") from error
    data = memoryview(mapping) if mapping is not None else memoryview(b"")
    try:
        return _decode(name, data, mapping)
    except PackageError:
        data.release()
        raise


def decode_package(data: bytes, name: str = "package") -> Package:
    """Verify a package that is already in memory; see :func:`read_package`."""
    return _decode(name, memoryview(data), None)


def _decode(name: str, data: memoryview, mapping: mmap.mmap | None) -> Package:
    try:
        manifest, base = _read_manifest(data)
        views = _read_sections(manifest, data, base)
        programs = _check(manifest, views)
    except PackageError as error:
        raise PackageError(f"{name}: {error}") from error
    return Package(name, manifest, views, programs, mapping)


def _read_manifest(data: memoryview) -> tuple[Manifest, int]:
    if len(data) < _HEADER.size:
        raise PackageError(f"truncated: {len(data)} bytes, the header alone has {_HEADER.size}")
    magic, version, zero, length, digest = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise PackageError(f"not a ringfence package: it starts with {magic!r}, expected {MAGIC!r}")
    if version != VERSION:
        raise PackageError(
            f"package format version {version}, this software reads {VERSION}; compile the model again"
        )
    if zero:
        raise PackageError("damaged: reserved header bytes are not zero")
    end = _HEADER.size + length
    if end > len(data):
        raise PackageError(f"truncated: the manifest ends at byte {end}, the file has {len(data)} bytes")
    text = data[_HEADER.size : end]
    if hashlib.sha256(text).digest() != digest:
        raise PackageError(
            "damaged: the manifest's SHA-256 does not match the header; copy or compile it again"
        )
    _check_zero(data, end, min(_align(end), len(data)), "after the manifest")
    try:
        return msgspec.json.decode(text, type=Manifest), _align(end)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PackageError(f"the manifest does not decode: {error}") from error


def _read_sections(manifest: Manifest, data: memoryview, base: int) -> dict[SectionName, memoryview]:
    views: dict[SectionName, memoryview] = {}
    end = 0
    for section in sorted(manifest.sections, key=lambda s: s.offset):
        label = f"section {section.name!r}"
        if section.name in views:
            raise PackageError(f"{label} is listed twice")
        if section.nbytes < 0 or section.offset % ALIGNMENT:
            raise PackageError(
                f"{label}: offset {section.offset} is not a multiple of {ALIGNMENT}, or its size is negative"
            )
        if section.offset < end:
            raise PackageError(f"{label} at {section.offset} overlaps what ends at {end}")
        start = base + section.offset
        if start + section.nbytes > len(data):
            raise PackageError(
                f"truncated: {label} ends at byte {start + section.nbytes}, the file has {len(data)} bytes"
            )
        _check_zero(data, base + end, start, f"before {label}")
        view = data[start : start + section.nbytes]
        if hashlib.sha256(view).hexdigest() != section.sha256:
            raise PackageError(
                f"damaged: the SHA-256 of {label} does not match the manifest; copy or compile it again"
            )
        views[section.name] = view
        end = section.offset + section.nbytes
    if manifest.sections and base + end != len(data):
        raise PackageError(f"{len(data) - base - end} unexpected bytes after the last section")
    return views


def _check_zero(data: memoryview, start: int, end: int, where: str) -> None:
    if any(data[start:end]):
        raise PackageError(f"damaged: the padding {where} is not zero")


# Consistency: everything a launch relies on is checked here once, so that a bad file never reaches a device.


def _check(
    manifest: Manifest, sections: Mapping[SectionName, memoryview]
) -> tuple[AdrenoProgram | AmdProgram, ...]:
    _check_buffers(manifest, len(sections.get("weights", b"")))
    _check_tensors(manifest)
    programs = _read_programs(manifest, sections.get("programs", memoryview(b"")))
    written = {t.buffer for t in manifest.inputs}
    for number, step in enumerate(manifest.steps):
        _check_step(manifest, programs, number, step, written)
    for tensor in manifest.outputs:
        if tensor.buffer not in written:
            raise PackageError(f"no step writes output {tensor.name!r} (buffer {tensor.buffer})")
    return programs


def _check_buffers(manifest: Manifest, weights: int) -> None:
    if manifest.arena_bytes < 0:
        raise PackageError(f"the arena has {manifest.arena_bytes} bytes")
    limits = {"const": (weights, "section 'weights'"), "arena": (manifest.arena_bytes, "the arena")}
    for index, buffer in enumerate(manifest.buffers):
        label, end = f"buffer {index} ({buffer.kind})", buffer.offset + buffer.nbytes
        limit, what = limits.get(buffer.kind, (buffer.nbytes, "the buffer"))
        if buffer.nbytes <= 0 or buffer.offset < 0 or end > limit:
            raise PackageError(f"{label} covers bytes {buffer.offset} to {end}, {what} has {limit}")
        if buffer.offset % BUFFER_ALIGNMENT:
            raise PackageError(f"{label}: offset {buffer.offset} is not a multiple of {BUFFER_ALIGNMENT}")


def _check_tensors(manifest: Manifest) -> None:
    for kind, tensors in (("input", manifest.inputs), ("output", manifest.outputs)):
        names = [t.name for t in tensors]
        if len(set(names)) != len(names):
            raise PackageError(f"{kind} names are not unique: {names}")
        for tensor in tensors:
            _check_tensor(manifest, kind, tensor)
    shared = [t.buffer for t in manifest.inputs]
    if len(set(shared)) != len(shared):
        raise PackageError(f"inputs share a buffer: {dict(zip((t.name for t in manifest.inputs), shared))}")
    layout = manifest.layout
    if layout is not None:
        _check_layout(manifest, layout)


def _check_tensor(manifest: Manifest, kind: str, tensor: Tensor) -> None:
    label = f"{kind} {tensor.name!r}"
    if tensor.dtype not in DTYPES or any(d <= 0 for d in tensor.shape):
        raise PackageError(f"{label}: dtype {tensor.dtype!r} is unknown or shape {tensor.shape} is empty")
    buffer = _buffer(manifest, tensor.buffer, label)
    if buffer.kind != kind or buffer.nbytes != tensor.nbytes:
        raise PackageError(
            f"{label} needs {tensor.nbytes} bytes of kind {kind!r}, its buffer {tensor.buffer} has "
            f"{buffer.nbytes} of kind {buffer.kind!r}"
        )


def _check_layout(manifest: Manifest, layout: InputLayout) -> None:
    channels = len(layout.channels)
    size = (layout.height, layout.width)
    shape = (1, channels, *size) if layout.axes == "NCHW" else (1, *size, channels)
    found = {t.name: t.shape for t in manifest.inputs}.get(layout.input)
    if found != shape or not len(layout.mean) == len(layout.std) == channels or 0 in layout.std:
        raise PackageError(
            f"the picture layout {layout} does not describe an input; {layout.input!r} has shape {found}"
        )


def _read_programs(manifest: Manifest, section: memoryview) -> tuple[AdrenoProgram | AmdProgram, ...]:
    programs = []
    for index, entry in enumerate(manifest.programs):
        if entry.nbytes < 0 or entry.offset < 0 or entry.offset + entry.nbytes > len(section):
            raise PackageError(
                f"program {index} ({entry.name!r}) covers bytes {entry.offset} to "
                f"{entry.offset + entry.nbytes}, section 'programs' has {len(section)}"
            )
        program = read_blob(bytes(section[entry.offset : entry.offset + entry.nbytes]))
        if program.chip != manifest.target:
            raise PackageError(
                f"program {index} ({entry.name!r}) is for {program.chip}, the package for {manifest.target}"
            )
        programs.append(program)
    return tuple(programs)


def _buffer(manifest: Manifest, index: int, who: str) -> PlannedBuffer:
    if not 0 <= index < len(manifest.buffers):
        raise PackageError(f"{who} names buffer {index}, the package has {len(manifest.buffers)}")
    return manifest.buffers[index]


def _check_step(
    manifest: Manifest,
    programs: tuple[AdrenoProgram | AmdProgram, ...],
    number: int,
    step: Step,
    written: set[int],
) -> None:
    if not 0 <= step.program < len(programs):
        raise PackageError(f"step {number} names program {step.program}, the package has {len(programs)}")
    program = programs[step.program]
    label = f"step {number} ({program.name!r})"
    if len(step.buffers) != len(program.arguments):
        raise PackageError(
            f"{label} has {len(step.buffers)} arguments, its program takes {len(program.arguments)}"
        )
    if any(not 0 < n < 1 << 32 for n in (*step.groups, *step.local)):
        raise PackageError(f"{label}: groups {step.groups} x local {step.local} is not a launch size")
    if program.local_size is not None and program.local_size != step.local:
        raise PackageError(
            f"{label} has local size {step.local}, its program was compiled for {program.local_size}"
        )
    arguments: Sequence[ProgramArgument] = program.arguments
    for index, argument in zip(step.buffers, arguments, strict=True):
        _check_argument(_buffer(manifest, index, label), argument, f"{label}, buffer {index}")
        if argument.written:
            written.add(index)


def _check_argument(buffer: PlannedBuffer, argument: ProgramArgument, label: str) -> None:
    if argument.kind == "scalar":
        raise PackageError(f"{label}: argument {argument.name!r} is a scalar, packages carry none")
    if argument.written and buffer.kind in ("input", "const"):
        raise PackageError(f"{label}: the program writes it, but it is of kind {buffer.kind!r}")
    if argument.shape is not None:
        height, width = argument.shape
        needed = height * width * 4 * np.dtype(argument.dtype).itemsize
        if needed > buffer.nbytes:
            raise PackageError(
                f"{label}: image {height}x{width} of {argument.dtype} needs {needed} bytes, "
                f"the buffer has {buffer.nbytes}"
            )
