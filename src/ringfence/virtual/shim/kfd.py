"""AMD devices behind KFD, for a session."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringfence.errors import FaultReport
from ringfence.hardware.amd import kfd
from ringfence.virtual.shim.platform import plain_failure

if TYPE_CHECKING:
    from ringfence.virtual.machine import Executor, Machine


class KfdPlatform:
    """KFD tells of a fault by the events of WAIT_EVENTS, which say little: the session adds the report.

    What it knows is which queues the client has, and of whose end it was told.
    """

    prefixes = (
        "/dev/kfd",
        "/dev/dri/renderD",
        "/sys/devices/virtual/kfd/",
        "/sys/class/kfd/",
        "/sys/class/drm/renderD",
        "/sys/module/amdgpu",
    )
    fixed_mappings = True

    def __init__(self) -> None:
        self._queues: set[int] = set()

    def executor(self, *, strict: bool, seed: int) -> Executor:
        from ringfence.virtual.isa.rdna.executor import Executor as RdnaExecutor

        return RdnaExecutor(strict=strict)

    def name(self, request: int) -> str:
        declared = kfd.IOCTLS.get(request & 0xFF) if request >> 8 & 0xFF == _KFD_LETTER else None
        return f"AMDKFD_IOC_{declared.__name__}" if declared is not None else f"ioctl {request:#x}"

    def failure(self, machine: Machine, descriptor: int, request: int, address: int, code: int) -> OSError:
        return plain_failure(self.name(request), code)

    def faults(self, machine: Machine, descriptor: int, request: int, address: int) -> Iterator[FaultReport]:
        if request >> 8 & 0xFF != _KFD_LETTER:
            return
        declared = kfd.IOCTLS.get(request & 0xFF)
        if declared is kfd.CREATE_QUEUE:
            self._queues.add(kfd.CREATE_QUEUE.from_address(address).queue_id)
        elif declared is kfd.DESTROY_QUEUE:
            self._queues.discard(kfd.DESTROY_QUEUE.from_address(address).queue_id)
        elif declared is kfd.WAIT_EVENTS:
            for queue in sorted(self._queues):
                report = machine.explain(descriptor, queue)
                if report is not None:
                    self._queues.remove(queue)  # a queue that stopped never starts again
                    yield report

    def written(self, path: str, text: str) -> str:
        """Nothing can be written that this machine has."""
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


_KFD_LETTER = ord("K")
