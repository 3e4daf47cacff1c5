"""Adreno programs: their arguments, checks, machine code in device memory, and argument blocks."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ringfence.errors import LaunchError, PackageError
from ringfence.hardware.adreno import registers as reg
from ringfence.hardware.adreno.chips import Chip
from ringfence.hardware.adreno.descriptors import (
    BASE_ALIGNMENT,
    FORMATS,
    IMAGE_FORMATS,
    pack_sampler,
    pack_texture,
    pack_uav,
)
from ringfence.hardware.adreno.program import INSTRUCTION_UNIT, AdrenoProgram, Argument
from ringfence.runtime import program as common
from ringfence.runtime.device import Geometry, Limits
from ringfence.runtime.memory import Buffer, Memory, buffer_of
from ringfence.runtime.program import ADDRESS, Place, Spec, in_order

from .encode import CONSTANT_BYTES, PRIVATE_UNIT, BlockLayout, geometry_words

MAX_LOCAL_SIZE = 1024  # SP_CS_NDRANGE_0 holds 10 bits per dimension, minus one
MAX_THREADS = 1024
WAVE_SLOT_THREADS = 128
MAX_SAMPLERS = 16
DESCRIPTOR_ADDRESS = (
    16  # byte offset of the 64-bit base address in a texture or UAV descriptor (dwords 4 and 5)
)


def argument_spec(program: str, index: int, argument: Argument) -> Spec:
    """Return what an argument must be; :class:`PackageError` if the program asks for something impossible."""
    name, type_name, written = argument.name, argument.dtype, argument.written
    if argument.kind == "scalar":
        return Spec.of_scalar(program, index, name, type_name, argument.size)
    if argument.kind == "image":
        assert argument.shape is not None
        height, width = argument.shape
        nbytes = height * width * FORMATS[IMAGE_FORMATS[type_name]].texel_bytes
        return Spec.of_buffer(
            program, index, name, type_name, written=written, mask=BASE_ALIGNMENT - 1, nbytes=nbytes
        )
    spec = Spec.of_buffer(program, index, name, type_name, written=written, mask=0)
    if spec.dtype is not None:
        # Loads and stores are of 1, 2 or 4 bytes per component, so 64-bit elements need no more than 4.
        spec.mask = min(spec.dtype.itemsize, 4) - 1
    return spec


def argument_places(program: AdrenoProgram, specs: Sequence[Spec], layout: BlockLayout) -> list[Place]:
    """Return where each argument goes, by offset. Images go where their slot's descriptor has its address."""
    places = [
        Place(argument.offset, specs[index].code, index)
        for index, argument in enumerate(program.arguments)
        if argument.kind != "image"
    ]
    for base, slots in ((layout.textures, program.textures), (layout.uavs, program.uavs)):
        places += [
            Place(base + 64 * slot + DESCRIPTOR_ADDRESS, ADDRESS, index) for slot, index in enumerate(slots)
        ]
    return in_order(program.name, places)


class ProgramDriver(common.ProgramDriver, Protocol):
    """What a program needs of its device."""

    @property
    def chip(self) -> Chip:
        """The chip of the device."""


class Program(common.Program):
    """An Adreno program on a device. ``source`` is what it was loaded from."""

    def __init__(self, driver: ProgramDriver, source: AdrenoProgram, label: str | None = None) -> None:
        check_program(source, driver.chip)
        self.source = source
        self.layout = BlockLayout.of(source, constants_end(source))
        specs = [argument_spec(source.name, index, each) for index, each in enumerate(source.arguments)]
        name = source.name if label is None else label
        super().__init__(
            driver,
            name=source.name,
            chip=source.chip,
            label=name,
            specs=specs,
            places=argument_places(source, specs, self.layout),
            block_bytes=self.layout.nbytes,
            limits=thread_limits(source, driver.chip),
            fixed_local=source.local_size,
            code=_upload(driver.memory, source, name),
        )

    @property
    def code_address(self) -> int:
        """Return the GPU address of the machine code."""
        return self.code.gpu_address

    def geometry_words(self, geometry: Geometry) -> Sequence[int]:
        """Return the dwords of a launch that depend on its geometry."""
        return geometry_words(self.source, geometry)

    def geometry_bytes(self, geometry: Geometry) -> bytes:
        """Return the local size as the constants hold it."""
        return struct.pack("<III", *geometry.local)

    def store_geometry(self, block: Any, offset: int, argument_bytes: bytes) -> None:
        """Store the local size where the program expects it in its constants, if it does."""
        if self.source.local_size_offset >= 0:
            at = offset + self.source.local_size_offset
            block[at : at + len(argument_bytes)] = argument_bytes

    def block(self) -> bytearray:
        """Return an argument block without arguments: immediates, descriptors with address zero, samplers.

        :class:`LaunchError` if an image cannot be expressed, for instance because its rows are no multiple of
        64 bytes.
        """
        source, layout = self.source, self.layout
        block = bytearray(layout.nbytes)
        first = source.immediates_offset
        block[first : first + len(source.immediates)] = source.immediates
        for base, slots, pack in (
            (layout.textures, source.textures, pack_texture),
            (layout.uavs, source.uavs, pack_uav),
        ):
            for slot, index in enumerate(slots):
                descriptor = self._descriptor(pack, index)
                block[base + 64 * slot : base + 64 * slot + len(descriptor)] = descriptor
        samplers = pack_sampler() * (source.samplers if source.dialect == "mesa" else min(source.samplers, 1))
        block[layout.samplers : layout.samplers + len(samplers)] = samplers
        return block

    def _descriptor(self, pack: Callable[[int, int, int, str], bytes], index: int) -> bytes:
        argument = self.source.arguments[index]
        assert argument.shape is not None
        height, width = argument.shape
        try:
            return pack(0, width, height, argument.dtype)
        except LaunchError as error:
            raise LaunchError(f"{self.specs[index]}: {error}") from None


# ----- checks -------------------------------------------------------------------------------------


def thread_limits(source: AdrenoProgram, chip: Chip) -> Limits:
    """Return how many threads a work-group can have, given the registers of the program.

    A wave slot has ``chip.registers_vec4`` vec4 for 128 threads; half registers take half the room. Same rule
    as tinygrad's ``QCOMProgram.max_threads``.
    """
    vec4 = max(1, source.full_registers + -(-source.half_registers // 2))
    threads = min(MAX_THREADS, chip.registers_vec4 // vec4 * WAVE_SLOT_THREADS)
    return Limits(
        threads, MAX_LOCAL_SIZE, f"it uses {vec4} of {chip.registers_vec4} vec4 registers of {chip.name}"
    )


def constants_end(source: AdrenoProgram) -> int:
    """Return the end of what a launch stores in the constants, in bytes."""
    ends = [argument.offset + argument.size for argument in source.arguments if argument.kind != "image"]
    if source.immediates:
        ends.append(source.immediates_offset + len(source.immediates))
    if source.local_size_offset >= 0:
        ends.append(source.local_size_offset + 12)
    return max(ends, default=0)


def check_program(source: AdrenoProgram, chip: Chip) -> None:
    """:class:`PackageError` if the program cannot run on the chip, whatever its arguments are."""
    if source.chip != chip.name:
        raise PackageError(
            f"program {source.name!r} was compiled for {source.chip}, this device is an {chip.name}: compile "
            f"it for {chip.name}"
        )
    layout = reg.SP_CS_CONFIG.FIELDS
    limits = (
        (
            "private bytes per thread",
            source.private_bytes,
            reg.SP_CS_PVT_MEM_PARAM.FIELDS["MEMSIZEPERITEM"].max * PRIVATE_UNIT,
        ),
        ("bytes of local memory", source.shared_bytes, chip.shared_bytes),
        ("levels of branch stack", source.branch_stack, reg.SP_CS_CNTL_0.FIELDS["BRANCHSTACK"].max),
        ("samplers", source.samplers, MAX_SAMPLERS),
        ("textures", len(source.textures), layout["NTEX"].max),
        ("UAVs", len(source.uavs), layout["NUAV"].max),
        ("bytes of constants", constants_end(source), CONSTANT_BYTES),
        ("registers (vec4)", source.full_registers + -(-source.half_registers // 2), chip.registers_vec4),
        ("bytes of code", len(source.code), reg.SP_CS_INSTR_SIZE.FIELDS["VALUE"].max * INSTRUCTION_UNIT),
    )
    for what, needed, available in limits:
        if needed > available:
            raise PackageError(f"program {source.name!r} needs {needed} {what}; {chip.name} has {available}")
    if source.local_size is not None:
        threads = thread_limits(source, chip)
        if min(source.local_size) < 1 or math.prod(source.local_size) > threads.max_threads:
            raise PackageError(
                f"program {source.name!r} was compiled for a local size of {source.local_size}; "
                f"it can have 1 to {threads.max_threads} threads ({threads.why})"
            )


def _upload(memory: Memory, source: AdrenoProgram, label: str) -> Buffer:
    """Put the machine code into memory that the GPU cannot write."""
    mapping = memory.allocate(len(source.code), readonly=True, label=f"code of {label}")
    assert mapping.host_address is not None
    ctypes.memmove(mapping.host_address, source.code, len(source.code))
    return buffer_of(memory, mapping)
