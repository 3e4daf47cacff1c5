"""The Adreno program blob, version 1: machine code plus what a launch must know.

Layout: the 8 bytes ``RFADRENO``, a little-endian u32 version, a u32 payload length, the SHA-256 of the
payload, then the payload: one MessagePack map with the fields of :class:`AdrenoProgram`. Nothing in it
depends on a host address.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Literal

import msgspec

from ringfence.errors import PackageError

MAGIC = b"RFADRENO"
VERSION = 1
_HEADER = struct.Struct("<8sII32s")

UNUSED_REGISTER = 0xFC  # r63.x: "no register" in register-id fields
INSTRUCTION_BYTES = 8
CONSTANT_FILE_BYTES = 4096  # 256 vec4 (CONSTLEN_256)
INSTRUCTION_UNIT = 128  # SP_CS_INSTR_SIZE and LOAD_STATE6 count code in units of 16 instructions


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One launch argument, in signature order.

    ``buffer``: a 64-bit address at byte ``offset`` of the constant file. ``scalar``: ``size`` bytes (1, 2,
    4 or 8) at ``offset``, ``dtype`` its numpy name. ``image``: a 2-D four-component image of ``shape``
    (height, width) in texels of ``dtype`` (float16 or float32); it takes no constants, but a texture or
    UAV slot (see :class:`AdrenoProgram`). ``written`` says whether the program may write it.
    """

    kind: Literal["buffer", "scalar", "image"]
    name: str = ""
    dtype: str = "float32"
    offset: int = 0
    size: int = 8
    shape: tuple[int, int] | None = None
    written: bool = False


class AdrenoProgram(msgspec.Struct, frozen=True, kw_only=True):
    """An ir3 program for one chip.

    ``code`` is padded to 128 bytes; control starts at instruction ``entry``. ``immediates`` are dwords that
    go to the constant file at byte ``immediates_offset``. Footprints are vec4 counts (highest register + 1).
    ``textures[k]`` / ``uavs[k]`` are the argument indices whose image goes to texture slot k / UAV slot k.
    ``samplers`` counts samplers, all nearest, clamp to border, unnormalised. Register ids are
    ``num << 2 | component``, 0xFC = unused.
    ``local_size_offset`` is the byte offset in the constant file where the program expects its local size
    (three dwords), or -1. ``local_size`` is set if the compiler fixed it.

    ``dialect`` says by which conventions the code was compiled: ``"mesa"``, or ``"opencl"`` for code of
    Qualcomm's OpenCL compiler. There half constants are 16-bit words instead of demoted 32-bit words, texel
    fetches outside an image follow the sampler, of the samplers only the first is one and the others are
    empty, and CP_RUN_OPENCL starts the work-groups.
    """

    name: str
    chip: str
    code: bytes
    immediates: bytes = b""
    immediates_offset: int = 0
    constant_bytes: int = 4096
    full_registers: int
    half_registers: int
    merged_registers: bool = False
    double_threads: bool = False
    branch_stack: int = 0
    entry: int = 0
    private_bytes: int = 0
    shared_bytes: int = 0
    workgroup_id_register: int = UNUSED_REGISTER
    workgroup_size_register: int = UNUSED_REGISTER
    workgroup_offset_register: int = UNUSED_REGISTER
    local_id_register: int = UNUSED_REGISTER
    local_size_offset: int = -1
    arguments: tuple[Argument, ...] = ()
    textures: tuple[int, ...] = ()
    uavs: tuple[int, ...] = ()
    samplers: int = 0
    local_size: tuple[int, int, int] | None = None
    dialect: Literal["mesa", "opencl"] = "mesa"
    compiler: str = ""

    def to_bytes(self) -> bytes:
        """Return the blob. Equal programs give equal bytes."""
        payload = msgspec.msgpack.encode(self)
        return _HEADER.pack(MAGIC, VERSION, len(payload), hashlib.sha256(payload).digest()) + payload


def read_program(blob: bytes) -> AdrenoProgram:
    """Return the program in ``blob``; :class:`PackageError` if it is damaged or of another version."""
    if len(blob) < _HEADER.size:
        raise PackageError(
            f"program blob is truncated: {len(blob)} bytes, its header alone has {_HEADER.size}"
        )
    magic, version, length, digest = _HEADER.unpack_from(blob)
    if magic != MAGIC:
        raise PackageError(f"not an Adreno program blob: it starts with {magic!r}, expected {MAGIC!r}")
    if version != VERSION:
        raise PackageError(f"program blob has version {version}, this software reads version {VERSION}")
    payload = blob[_HEADER.size :]
    if len(payload) != length:
        raise PackageError(
            f"program blob is truncated or padded: {len(payload)} payload bytes, header says {length}"
        )
    if hashlib.sha256(payload).digest() != digest:
        raise PackageError("program blob is damaged: its SHA-256 does not match")
    try:
        program = msgspec.msgpack.decode(payload, type=AdrenoProgram)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PackageError(f"program blob does not decode: {error}") from error
    check(program)
    return program


# Largest value of each number of a program: what the register field that takes it can hold (a6xx.xml of
# Mesa), or the end of the constant file. A chip may have less, which the driver checks.
_LIMITS = {
    "immediates_offset": CONSTANT_FILE_BYTES,
    "constant_bytes": CONSTANT_FILE_BYTES,
    "full_registers": 48,
    "half_registers": 48,
    "branch_stack": 0x3F,
    "private_bytes": 0xFF * 512,
    "shared_bytes": 32 * 1024,
    "workgroup_id_register": 0xFF,
    "workgroup_size_register": 0xFF,
    "workgroup_offset_register": 0xFF,
    "local_id_register": 0xFF,
    "samplers": 0x1F,
}
_MAX_LOCAL_SIZE = 1024
_MAX_IMAGE_SIZE = 16384
_SCALAR_SIZES = (1, 2, 4, 8)
_ADDRESS_SIZE = 8


def check(program: AdrenoProgram) -> None:
    """:class:`PackageError` if the parts of a program do not fit each other or any a6xx."""
    for problem in (*_number_problems(program), *_argument_problems(program), *_slot_problems(program)):
        raise PackageError(f"program {program.name!r}: {problem}")


def _number_problems(program: AdrenoProgram) -> Iterator[str]:
    if not program.code or len(program.code) % INSTRUCTION_UNIT:
        yield f"code has {len(program.code)} bytes, not a positive multiple of {INSTRUCTION_UNIT}"
    if not 0 <= program.entry * INSTRUCTION_BYTES < len(program.code):
        yield f"it starts at instruction {program.entry}, which its code does not have"
    for name, limit in _LIMITS.items():
        if not 0 <= getattr(program, name) <= limit:
            yield f"{name} is {getattr(program, name)}, out of range 0..{limit}"
    if program.immediates_offset % 4 or len(program.immediates) % 4:
        yield "immediates are not whole dwords"
    if program.immediates_offset + len(program.immediates) > CONSTANT_FILE_BYTES:
        yield f"immediates do not fit the {CONSTANT_FILE_BYTES}-byte constant file"
    at = program.local_size_offset
    if at != -1 and (at % 4 or not 0 <= at <= CONSTANT_FILE_BYTES - 12):
        yield f"local size at byte {at} lies outside the constant file or between dwords"
    if program.local_size and not all(1 <= size <= _MAX_LOCAL_SIZE for size in program.local_size):
        yield f"local size {program.local_size} is out of range 1..{_MAX_LOCAL_SIZE}"


def _argument_problems(program: AdrenoProgram) -> Iterator[str]:
    for argument in program.arguments:
        if argument.kind == "image":
            if argument.dtype not in ("float16", "float32"):
                yield f"image {argument.name!r} has texels of {argument.dtype!r}, not float16 or float32"
            if not argument.shape or not all(1 <= size <= _MAX_IMAGE_SIZE for size in argument.shape):
                yield f"image {argument.name!r} has the shape {argument.shape}, not 1..{_MAX_IMAGE_SIZE} each"
            continue
        sizes = (_ADDRESS_SIZE,) if argument.kind == "buffer" else _SCALAR_SIZES
        if argument.size not in sizes:
            yield f"{argument.kind} {argument.name!r} has {argument.size} bytes, not one of {sizes}"
        if not 0 <= argument.offset <= CONSTANT_FILE_BYTES - argument.size:
            yield f"argument {argument.name!r} lies outside the constant file"


def _slot_problems(program: AdrenoProgram) -> Iterator[str]:
    for slot in (*program.textures, *program.uavs):
        if not 0 <= slot < len(program.arguments) or program.arguments[slot].kind != "image":
            yield f"image slot names argument {slot}, which is not an image"
