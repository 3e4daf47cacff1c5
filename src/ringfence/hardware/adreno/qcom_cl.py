"""Programs of Qualcomm's OpenCL compiler, which makes code for the a630.

There is no description of these files. What is known comes from tinygrad, which loads them: ``_parse_lib`` of
``ops_qcom.py``, and the structures of ``extra/tinydreno.h``. Everything else in a file is not looked at.

All numbers are little-endian dwords. The file begins with 12 dwords, of which the seventh counts the sections
in the table behind them; an entry of the table has five dwords, the second its offset in the file and the
third its size. The sections, by index:

* 0: a record with the footprints of the full and half registers.
* 6: constants, records of 40 bytes, up to the code.
* 7: the code; its size stands in section 10.
* 11: the kernel: numbers, its name, 8 bytes per sampler, and a record per parameter.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from msgspec.structs import replace

from ringfence.errors import PackageError
from ringfence.hardware.adreno.ir3.usage import BrokenCode, Usage, usage
from ringfence.hardware.adreno.program import (
    CONSTANT_FILE_BYTES,
    INSTRUCTION_BYTES,
    INSTRUCTION_UNIT,
    AdrenoProgram,
    Argument,
    check,
)

CHIP = "a630"
COMPILER = "Qualcomm OpenCL"

HEADER_BYTES = 48
SECTION_COUNT = 0x18
SECTION_BYTES = 20
FOOTPRINTS, CONSTANTS, CODE, CODE_SIZE, KERNEL = 0, 6, 7, 10, 11
SECTIONS = KERNEL + 1

FULL_REGISTERS, HALF_REGISTERS, FOOTPRINT_BYTES = 0x14, 0x18, 0x1C

CONSTANT_BYTES = 40
CONSTANT_VALUE, CONSTANT_INDEX, CONSTANT_IS_32 = 0, 16, 24

ENTRY, PRIVATE, SHARED, SAMPLERS, BRANCH_STACK, NAME = 0xC4, 0xC8, 0xD8, 0xDC, 0x108, 0x158
SAMPLER_BYTES = 8
PARAMETER_BYTES = 32
PARAMETER_LENGTH, PARAMETER_WORD, PARAMETER_KIND = 0, 12, 28
VALUE, TEXTURE, UAV = 0, 1, 2  # kinds of parameters

# Where the code expects what the hardware knows. The numbers are tinygrad's value 0xccc0cf of
# SP_CS_CONST_CONFIG_0.
WORKGROUP_ID, WORKGROUP_SIZE, WORKGROUP_OFFSET, LOCAL_ID = 0xCF, 0xC0, 0xCC, 0x00

# Constants that the vendor's driver fills, by dword, as a public model of the a630 has them that runs the
# compiler's output (test/mockgpu/qcom/emu.py of a tinygrad branch). Some are zero for launches without an
# offset, which all of ours are; tinygrad leaves them zero, too. The others nothing fills here.
ZERO_CONSTANTS = {*range(8, 11), *range(28, 31)}  # c2.xyz: global offset, c7.xyz: offset of the work-groups
LAUNCH_CONSTANTS = {
    **dict.fromkeys(range(3), "get_global_size()"),
    18: "get_work_dim()",
    **dict.fromkeys(range(20, 23), "get_num_groups()"),
}


def read_qcom_cl(data: bytes, name: str, arguments: Sequence[Argument] = ()) -> AdrenoProgram:
    """Return kernel ``name`` of a file that Qualcomm's OpenCL compiler made.

    The file says where the kernel expects its arguments, but not their types: ``arguments`` describes them in
    the order of the parameters. Their ``offset`` is taken from the file.

    :class:`PackageError` says what is damaged, what does not fit ``arguments``, or what the code uses that
    the file does not provide.
    """
    try:
        return _read(_File(bytes(data)), name, arguments)
    except _Damaged as damaged:
        raise PackageError(f"OpenCL program {name!r}: {damaged}") from None


class _Damaged(Exception):
    """Why a file cannot be used."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Bytes of the file that something takes up."""

    start: int
    end: int
    what: str


@dataclass(frozen=True, slots=True)
class _Section:
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class _Filled:
    """Bytes of the constant file that an argument or a constant fills."""

    start: int
    end: int
    what: str


@dataclass(frozen=True, slots=True)
class _Constant:
    value: int
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class _Parameter:
    word: int
    kind: int


class _File:
    """The bytes, and which of them are accounted for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.parts: list[_Part] = []

    def take(self, start: int, size: int, what: str) -> None:
        """Account for ``size`` bytes at ``start``."""
        if start % 4:
            raise _Damaged(f"{what} at byte {start:#x} is not at a multiple of 4")
        if start + size > len(self.data):
            raise _Damaged(
                f"{what} at bytes {start:#x}..{start + size:#x} ends behind the file of {len(self.data):#x}"
            )
        self.parts.append(_Part(start, start + size, what))

    def word(self, offset: int) -> int:
        """Return a dword of a part that was accounted for."""
        (value,) = struct.unpack_from("<I", self.data, offset)
        return int(value)

    def section(self, index: int) -> _Section:
        at = HEADER_BYTES + SECTION_BYTES * index
        return _Section(self.word(at + 4), self.word(at + 8))

    def check_apart(self) -> None:
        """No two parts may share bytes."""
        ordered = sorted(self.parts, key=lambda part: (part.start, part.end))
        for before, after in pairwise(ordered):
            if after.start < before.end:
                raise _Damaged(
                    f"{before.what}, which ends at byte {before.end:#x}, and {after.what}, which begins at "
                    f"{after.start:#x}, overlap"
                )


def _read(file: _File, name: str, arguments: Sequence[Argument]) -> AdrenoProgram:
    _take_header(file)
    kernel = file.section(KERNEL).offset
    code = _code(file)
    constants = _constants(file)
    full, half = _footprints(file)
    parameters = _kernel(file, kernel, name)
    file.check_apart()
    placed = tuple(_place(arguments, parameters))
    filled = list(_filled(placed, constants))
    start, immediates = _immediates(constants)
    textures = tuple(k for k, p in enumerate(parameters) if p.kind == TEXTURE)
    uavs = tuple(k for k, p in enumerate(parameters) if p.kind == UAV)
    declared = file.word(kernel + SAMPLERS)
    program = AdrenoProgram(
        name=name,
        chip=CHIP,
        code=code + bytes(-len(code) % INSTRUCTION_UNIT),
        immediates=immediates,
        immediates_offset=start,
        full_registers=full,
        half_registers=half,
        branch_stack=file.word(kernel + BRANCH_STACK) // 2,
        entry=file.word(kernel + ENTRY),
        private_bytes=file.word(kernel + PRIVATE),
        shared_bytes=file.word(kernel + SHARED),
        workgroup_id_register=WORKGROUP_ID,
        workgroup_size_register=WORKGROUP_SIZE,
        workgroup_offset_register=WORKGROUP_OFFSET,
        local_id_register=LOCAL_ID,
        arguments=placed,
        textures=textures,
        uavs=uavs,
        samplers=2 * declared,  # as tinygrad has it: an empty one behind the sampler
        dialect="opencl",
        compiler=COMPILER,
    )
    check(program)
    try:
        used = usage(code, program.entry)
    except BrokenCode as broken:
        raise _Damaged(str(broken)) from broken
    for problem in (*_exceeded(program, used, declared), *_unfilled(used, filled)):
        raise _Damaged(problem)
    return program


# ----- parts of the file --------------------------------------------------------------------------


def _take_header(file: _File) -> None:
    if len(file.data) < HEADER_BYTES:
        raise _Damaged(f"a file of {len(file.data)} bytes, its header alone has {HEADER_BYTES}")
    count = file.word(SECTION_COUNT)
    if count < SECTIONS:
        raise _Damaged(f"it has {count} sections, the kernel is in section {KERNEL}")
    file.take(0, HEADER_BYTES + SECTION_BYTES * count, f"the table of {count} sections")


def _code(file: _File) -> bytes:
    start, size = file.section(CODE).offset, file.section(CODE_SIZE).size
    if not size or size % INSTRUCTION_BYTES:
        raise _Damaged(f"code of {size} bytes is no sequence of {INSTRUCTION_BYTES}-byte instructions")
    file.take(start, size, "the code")
    return file.data[start : start + size]


def _footprints(file: _File) -> tuple[int, int]:
    start = file.section(FOOTPRINTS).offset
    file.take(start, FOOTPRINT_BYTES, "the record of the registers")
    return file.word(start + FULL_REGISTERS), file.word(start + HALF_REGISTERS)


def _constants(file: _File) -> list[_Constant]:
    """Return the constants. Their records fill the file up to the code."""
    section, code = file.section(CONSTANTS), file.section(CODE).offset
    if not section.size:
        return []
    room = code - section.offset
    if room < CONSTANT_BYTES:
        raise _Damaged(f"the constants at byte {section.offset:#x} have no room before the code at {code:#x}")
    file.take(section.offset, room, "the table of constants")
    starts = range(section.offset, section.offset + room - CONSTANT_BYTES + 1, CONSTANT_BYTES)
    return [_constant(file, k, start) for k, start in enumerate(starts)]


def _constant(file: _File, number: int, start: int) -> _Constant:
    value, index, is_32 = (file.word(start + at) for at in (CONSTANT_VALUE, CONSTANT_INDEX, CONSTANT_IS_32))
    if is_32 > 1:
        raise _Damaged(f"constant {number} is neither 16 nor 32 bits wide: its record says {is_32}")
    size = 4 if is_32 else 2
    if value >> 8 * size:
        raise _Damaged(f"constant {number} is {value:#x}, but {8 * size} bits wide")
    if (index + 1) * size > CONSTANT_FILE_BYTES:
        raise _Damaged(
            f"constant {number} at byte {index * size} lies outside the constant file of "
            f"{CONSTANT_FILE_BYTES} bytes"
        )
    return _Constant(value, index * size, size)


def _kernel(file: _File, start: int, name: str) -> list[_Parameter]:
    """Account for the kernel section, and return the parameters."""
    wanted = name.encode()
    if not wanted:
        raise _Damaged("it has no name")
    fixed = NAME + len(wanted)
    file.take(start, fixed, "the kernel")
    found = file.data[start + NAME : start + fixed]
    if found != wanted:
        raise _Damaged(f"the file is of kernel {found.decode(errors='replace')!r}")
    samplers = file.word(start + SAMPLERS)
    if samplers > 1:
        raise _Damaged(f"it has {samplers} samplers; how more than one are described is not known")
    at = start + fixed
    at += -at % 4 + SAMPLER_BYTES * samplers
    parameters, end = _parameters(file, at)
    del file.parts[-1]
    file.take(start, end - start, "the kernel")
    return parameters


def _parameters(file: _File, start: int) -> tuple[list[_Parameter], int]:
    """Return the parameters and where their records end: at a length of 0, or with the file."""
    parameters: list[_Parameter] = []
    while start + PARAMETER_BYTES <= len(file.data):
        length = file.word(start + PARAMETER_LENGTH)
        if not length:
            break
        if length < PARAMETER_BYTES or length % 4:
            raise _Damaged(f"the record of parameter {len(parameters)} has {length} bytes")
        parameters.append(_Parameter(file.word(start + PARAMETER_WORD), file.word(start + PARAMETER_KIND)))
        start += length
    return parameters, start


# ----- arguments and constants --------------------------------------------------------------------


def _place(arguments: Sequence[Argument], parameters: Sequence[_Parameter]) -> Iterator[Argument]:
    """Yield the arguments where the parameters are."""
    if len(arguments) != len(parameters):
        raise _Damaged(f"it has {len(parameters)} parameters, but {len(arguments)} arguments are described")
    for k, (argument, parameter) in enumerate(zip(arguments, parameters)):
        what = {VALUE: "a buffer or number", TEXTURE: "an image to read", UAV: "an image to write"}
        if parameter.kind not in what:
            raise _Damaged(f"parameter {k} is of kind {parameter.kind}, which is not known")
        if (argument.kind == "image") != (parameter.kind != VALUE):
            raise _Damaged(
                f"parameter {k} is {what[parameter.kind]}, argument {k} is described as {argument.kind}"
            )
        if parameter.kind == TEXTURE and argument.written:
            raise _Damaged(f"parameter {k} is an image to read, argument {k} is described as written")
        yield argument if argument.kind == "image" else replace(argument, offset=4 * parameter.word)


def _filled(arguments: Sequence[Argument], constants: Sequence[_Constant]) -> Iterator[_Filled]:
    """Yield what is in the constant file, in order; no two may share bytes.

    Behind arguments of less than a dword is zero.
    """
    spans = [
        _Filled(a.offset, a.offset + a.size + -a.size % 4, f"argument {k}")
        for k, a in enumerate(arguments)
        if a.kind != "image"
    ]
    spans += [_Filled(c.start, c.end, f"constant {k}") for k, c in enumerate(constants)]
    spans.sort(key=lambda span: span.start)
    for before, after in pairwise(spans):
        if after.start < before.end:
            raise _Damaged(f"{before.what} and {after.what} overlap in the constant file")
    yield from spans


def _immediates(constants: Sequence[_Constant]) -> tuple[int, bytes]:
    """Return the first byte and the bytes of the span of whole dwords with all constants."""
    if not constants:
        return 0, b""
    start = min(c.start for c in constants) & ~3
    end = max(c.end for c in constants) + 3 & ~3
    data = bytearray(end - start)
    for c in constants:
        data[c.start - start : c.end - start] = c.value.to_bytes(c.size, "little")
    return start, bytes(data)


# ----- what the code uses -------------------------------------------------------------------------


def _exceeded(program: AdrenoProgram, used: Usage, samplers: int) -> Iterator[str]:
    """Say what the code uses that the file does not have."""
    for what, needed, there in (
        ("full registers (vec4)", used.full, program.full_registers),
        ("half registers (vec4)", used.half, program.half_registers),
        ("textures", used.textures, len(program.textures)),
        ("UAVs", used.uavs, len(program.uavs)),
        ("samplers", used.samplers, samplers),
        ("uniform buffers", used.uniform_buffers, 0),
    ):
        if needed > there:
            yield f"its code uses {needed} {what}, the file has {there}"
    if used.bindless:
        yield "its code uses bindless descriptors, which the file does not have"


def _unfilled(used: Usage, filled: Sequence[_Filled]) -> Iterator[str]:
    """Say which constant the code reads that nothing fills."""
    if used.writes_constants:
        return
    there = {word for span in filled for word in range(span.start // 2, span.end // 2)}
    for word in sorted(used.constants - there):
        dword = word // 2
        if dword in ZERO_CONSTANTS:
            continue
        where = f"constant c{dword // 4}.{'xyzw'[dword % 4]}"
        if dword in LAUNCH_CONSTANTS:
            yield f"its code uses {LAUNCH_CONSTANTS[dword]}, which is in {where}; that is not supported"
        yield f"its code reads {where}, which neither an argument nor a constant of the file fills"
