"""A pytest plugin for tinygrad's ``test/amd/hw``: its emulator is replaced by ``run_amdgpu``.

The helpers of that directory assemble a few instructions, run them through ``test.mockgpu.amd.emu.run_asm``
and compare the registers that the program stores with what real hardware gave.
"""

from __future__ import annotations

import sys
import types
import unittest

from ringfence.virtual import run_amdgpu
from ringfence.virtual.isa.rdna.executor import Executor

RSRC1 = 0x00AC0000
"""What the suite was recorded with: f32 denormals flushed, those of f16 and f64 kept; IEEE mode."""

_executor = Executor(strict=True, threads=1)


def run_asm(
    lib: int,
    lib_sz: int,
    gx: int,
    gy: int,
    gz: int,
    lx: int,
    ly: int,
    lz: int,
    args_ptr: int,
    rsrc2: int = 0x19C,
    scratch_size: int = 0,
    arch: str = "rdna3",
    user_data: list[int] | None = None,
) -> int:
    """Stand in for the emulator's function of this name and signature: ``lib`` is the address of the code."""
    if arch != "rdna3":
        raise unittest.SkipTest(f"the program is for {arch}")
    run_amdgpu(
        (lib, lib_sz),
        arch,
        groups=(gx, gy, gz),
        local=(lx, ly, lz),
        kernarg_address=args_ptr,
        user_data=None if user_data is None else tuple(user_data),
        rsrc1=RSRC1,
        rsrc2=rsrc2,
        scratch_bytes=scratch_size,
        memory="host",
        executor=_executor,
    )
    return 0


_emulator = types.ModuleType("test.mockgpu.amd.emu")
_emulator.run_asm = run_asm  # type: ignore[attr-defined]
sys.modules[_emulator.__name__] = _emulator
