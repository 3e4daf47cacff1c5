"""Adreno devices behind KGSL, for a session."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringfence.errors import FaultReport
from ringfence.hardware.adreno import kgsl
from ringfence.virtual.shim.platform import ClientDeviceLost, plain_failure
from ringfence.virtual.specification import VirtualSpec

if TYPE_CHECKING:
    from ringfence.virtual.machine import Executor, Machine

IDLE_TIMER = "/sys/class/kgsl/kgsl-3d0/idle_timer"
# What a 4.9 kernel with HZ=100 shows after it was told more milliseconds than fit a signed integer:
# msecs_to_jiffies gives MAX_JIFFY_OFFSET, and jiffies_to_msecs of that, in 32 bits. tinygrad's ops_qcom.py
# expects it.
ENDLESS_MS = 4_294_967_276


class KgslPlatform:
    """KGSL tells of a fault by EDEADLK from the calls that name a context."""

    prefixes = ("/dev/kgsl-3d", "/sys/class/kgsl/")
    fixed_mappings = False

    def __init__(self, specification: VirtualSpec) -> None:
        self._device = f"virtual:{specification.chip}"

    def executor(self, *, strict: bool, seed: int) -> Executor:
        from ringfence.virtual.isa.ir3.executor import Executor as Ir3Executor

        return Ir3Executor(strict=strict, seed=seed)

    def name(self, request: int) -> str:
        declared = kgsl.IOCTLS.get(request & 0xFF)
        return f"IOCTL_KGSL_{declared.__name__}" if declared is not None else f"ioctl {request:#x}"

    def failure(self, machine: Machine, descriptor: int, request: int, address: int, code: int) -> OSError:
        if code != errno.EDEADLK:
            return plain_failure(self.name(request), code)
        declared = kgsl.IOCTLS.get(request & 0xFF)
        report = None
        if declared is not None and hasattr(declared, "context_id"):
            report = machine.explain(descriptor, declared.from_address(address).context_id)
        return ClientDeviceLost(f"{self._device} is lost, {self.name(request)} says", code, report)

    def faults(self, machine: Machine, descriptor: int, request: int, address: int) -> Iterator[FaultReport]:
        return iter(())

    def written(self, path: str, text: str) -> str:
        """Only the idle timer can be written."""
        if path != IDLE_TIMER:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        value = int(text)
        return f"{value if value < 1 << 31 else ENDLESS_MS}\n"
