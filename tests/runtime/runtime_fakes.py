"""Stand-ins for what a driver gives the runtime: memory, a port with a clock, and an engine."""

from __future__ import annotations

import ctypes
import errno
from dataclasses import dataclass, field

from ringfence.errors import PortError
from ringfence.runtime.memory import CacheMode, Mapping, Ownership
from ringfence.runtime.timeline import Slot

GPU_BASE = 0x50_0000_0000


@dataclass
class FakeBackend:
    """Memory from the heap. ``refuse`` counts how many releases fail before one succeeds."""

    refuse: int = 0
    out_of_memory: int = 0
    log: list[str] = field(default_factory=list)
    live: dict[int, object] = field(default_factory=dict)

    def allocate(self, nbytes: int, *, cache: CacheMode, readonly: bool, label: str) -> Mapping:
        if self.out_of_memory:
            self.out_of_memory -= 1
            raise PortError("allocate", errno.ENOMEM)
        memory = ctypes.create_string_buffer(nbytes)
        return self._map(ctypes.addressof(memory), nbytes, Ownership.DEVICE, cache, label, memory)

    def import_host(
        self, pointer: int, nbytes: int, *, writable: bool, may_be_gpu_address: bool, label: str
    ) -> Mapping:
        return self._map(pointer, nbytes, Ownership.HOST, CacheMode.WRITE_COMBINE, label, None)

    def _map(
        self, host: int, nbytes: int, ownership: Ownership, cache: CacheMode, label: str, memory: object
    ) -> Mapping:
        handle = len(self.log) + 1
        self.log.append(f"map {label}")
        self.live[handle] = memory
        gpu = GPU_BASE + handle * 0x10000
        return Mapping(gpu, nbytes, host, ownership, cache=cache, label=label, handle=handle)

    def release(self, mapping: Mapping) -> None:
        if self.refuse:
            self.refuse -= 1
            raise PortError("release", errno.EBUSY)
        self.log.append(f"release {mapping.label}")

    def unmap(self, mapping: Mapping) -> None:
        self.log.append(f"unmap {mapping.label}")
        self.live.pop(mapping.handle, None)

    def flush(self, mapping: Mapping, offset: int, nbytes: int) -> None:
        self.log.append(f"flush {mapping.label} {offset} {nbytes}")

    def invalidate(self, mapping: Mapping, offset: int, nbytes: int) -> None:
        self.log.append(f"invalidate {mapping.label} {offset} {nbytes}")


@dataclass
class FakeCompletion:
    """GPU work up to ``done`` is finished; waiting finishes more."""

    done: int = 0
    waits: list[tuple[int, float | None]] = field(default_factory=list)

    def finished(self, value: int) -> bool:
        return value <= self.done

    def wait(self, value: int, timeout: float | None = None) -> None:
        if value > self.done:
            self.waits.append((value, timeout))
            self.done = value


@dataclass
class FakePort:
    """A clock that moves only when somebody sleeps."""

    time: float = 10.0
    naps: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.time += seconds


class Slots:
    """Makes slots, and remembers them."""

    def __init__(self) -> None:
        self.made: list[Slot] = []

    def __call__(self) -> Slot:
        slot = Slot(0x1000 + 64 * len(self.made), memoryview(bytearray(b"\xff\xff\xff\xff")).cast("I"))
        if not self.made:
            slot.word[0] = 0
        self.made.append(slot)
        return slot

    def write(self, value: int) -> None:
        """What the GPU stores to the current slot."""
        self.made[-1].word[0] = value
