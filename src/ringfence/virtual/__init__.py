"""Virtual GPUs: machines that stand for a kernel driver and its device, and shader execution by itself."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.virtual.isa.ir3.run import run_ir3
    from ringfence.virtual.isa.rdna.run import run_amdgpu

__all__ = ["run_amdgpu", "run_ir3"]

_LAZY = {  # what needs numpy and llvmlite
    "run_amdgpu": "ringfence.virtual.isa.rdna.run",
    "run_ir3": "ringfence.virtual.isa.ir3.run",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
