"""Run bare ir3 machine code, without a kernel driver or command stream."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ringfence.errors import GpuFault, GpuHang, LaunchError
from ringfence.hardware.adreno.descriptors import Sampler, Texture
from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.virtual.isa.ir3.dispatch import Dispatch, UniformBuffer
from ringfence.virtual.isa.ir3.executor import CONSTANT_BYTES, Executor
from ringfence.virtual.isa.jit import Statistics
from ringfence.virtual.memory import AddressSpace


def run_ir3(
    program: AdrenoProgram | bytes,
    *,
    groups: tuple[int, int, int],
    local: tuple[int, int, int],
    constants: bytes = b"",
    memory: Mapping[int, npt.NDArray[Any]] | AddressSpace | None = None,
    textures: tuple[Texture | None, ...] = (),
    uavs: tuple[Texture | None, ...] = (),
    samplers: tuple[Sampler | None, ...] = (),
    ubos: tuple[UniformBuffer | None, ...] = (),
    executor: Executor | None = None,
    strict: bool = True,
    cache_dir: Path | None = None,
    **fields: Any,
) -> Statistics:
    """Run ir3 code on this host and return the executor's statistics.

    ``program`` is a program blob's content or bare code, padded with nops to any multiple of 8 bytes; of
    bare code, ``fields`` give what a launch must know (see :class:`Dispatch`: registers of the ids,
    ``shared_bytes``, ...). ``constants`` is the start of the constant file; a program's immediates are
    added. ``memory`` maps GPU addresses to contiguous arrays, which the code reads and writes in place.
    ``strict`` and ``cache_dir`` are for the executor that is made if none is given. Raises
    :class:`GpuFault` or :class:`GpuHang`.
    """
    if isinstance(program, AdrenoProgram):
        fields = {**_fields(program), **fields}
    else:
        fields = {"name": "program", "code": program, **fields}
    dispatch = Dispatch(
        groups=groups,
        local=local,
        constants=_constant_file(program, constants),
        textures=textures,
        uavs=uavs,
        samplers=samplers,
        **fields,
    )
    own = executor is None
    runner = executor or Executor(strict=strict, cache_dir=cache_dir)
    try:
        report = runner.run(dispatch, _space(memory))
    finally:
        if own:
            runner.close()
    if report is not None:
        raise (GpuHang if report.kind == "hang" else GpuFault)("ir3 program failed", report)
    return runner.statistics


def _constant_file(program: AdrenoProgram | bytes, constants: bytes) -> bytes:
    file = bytearray(CONSTANT_BYTES)
    if len(constants) > CONSTANT_BYTES:
        raise LaunchError(f"constants have {len(constants)} bytes, the constant file {CONSTANT_BYTES}")
    file[: len(constants)] = constants
    if isinstance(program, AdrenoProgram):
        start, end = program.immediates_offset, program.immediates_offset + len(program.immediates)
        if end > CONSTANT_BYTES:
            raise LaunchError(
                f"immediates of {program.name!r} end at byte {end} of a file of {CONSTANT_BYTES}"
            )
        file[start:end] = program.immediates
    return bytes(file)


def _fields(program: AdrenoProgram) -> dict[str, Any]:
    return {
        "name": program.name,
        "code": program.code,
        "full_registers": program.full_registers,
        "half_registers": program.half_registers,
        "merged": program.merged_registers,
        "entry": program.entry,
        "chip": program.chip,
        "threads": 128 if program.double_threads else 64,
        "workgroup_id_register": program.workgroup_id_register,
        "workgroup_size_register": program.workgroup_size_register,
        "workgroup_offset_register": program.workgroup_offset_register,
        "local_id_register": program.local_id_register,
        "shared_bytes": program.shared_bytes,
        "private_bytes": program.private_bytes,
        "demote_constants": program.dialect == "mesa",
        "isam_mode": "gl" if program.dialect == "mesa" else "cl",
    }


def _space(memory: Mapping[int, npt.NDArray[Any]] | AddressSpace | None) -> AddressSpace:
    if isinstance(memory, AddressSpace):
        return memory
    space = AddressSpace()
    for address, array in (memory or {}).items():
        if not array.flags.c_contiguous:
            raise LaunchError(f"the array at GPU address {address:#x} is not contiguous")
        host = int(np.asarray(array).ctypes.data)
        space.map(address, array.nbytes, host, writable=array.flags.writeable, label=f"array at {address:#x}")
    return space
