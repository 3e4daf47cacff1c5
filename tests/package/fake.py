"""A device made of numpy arrays, with as much behaviour as a model relies on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.runtime.queue import Timings


@dataclass
class FakeBuffer:
    memory: np.ndarray
    dtype: Any = None
    shape: Any = None
    label: str = ""
    device: Any = None

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes

    def offset_view(self, offset: int, nbytes: int | None = None) -> FakeBuffer:
        end = None if nbytes is None else offset + nbytes
        return FakeBuffer(self.memory[offset:end])

    def copy_from(self, array: np.ndarray, timeout: float | None = None) -> None:
        self.memory[:] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)

    def numpy(self, timeout: float | None = None) -> np.ndarray:
        return self.memory.copy().view(self.dtype).reshape(self.shape)

    def free(self) -> None:
        self.device.live.remove(self.label)


@dataclass
class FakeGraph:
    device: FakeDevice
    launches: list[Any] = field(default_factory=list)

    def bind(self) -> Any:
        self.device.bound += 1
        return SimpleNamespace(replay=self._replay, free=self._free)

    def _free(self) -> None:
        self.device.bound -= 1

    def _replay(self) -> Any:
        for name, args, *_ in self.launches:
            self.device.programs[name](*(a.memory.view(np.float32) for a in args))
        return SimpleNamespace(wait=lambda timeout: None, timings=Timings(1e-3, 0.0, 2e-3, 3e-3, 4e-3))


@dataclass
class FakeDevice:
    """``programs`` are the semantics by program name; ``fail_at`` makes the n-th allocation fail."""

    programs: dict[str, Callable[..., None]]
    chip: str = "a630"
    fail_at: int = 0
    live: list[str] = field(default_factory=list)
    graphs: list[FakeGraph] = field(default_factory=list)
    bound: int = 0

    @property
    def info(self) -> Any:
        return SimpleNamespace(name=f"fake {self.chip}", chip=self.chip)

    def load(self, program: AdrenoProgram) -> AdrenoProgram:
        return program

    def array(self, data: np.ndarray, *, label: str) -> FakeBuffer:
        return self._allocate(np.array(data).view(np.uint8).reshape(-1), np.uint8, None, label)

    def empty(self, shape: Any, dtype: Any, *, label: str) -> FakeBuffer:
        memory = np.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize, np.uint8)
        return self._allocate(memory, np.dtype(dtype), shape, label)

    def _allocate(self, memory: np.ndarray, dtype: Any, shape: Any, label: str) -> FakeBuffer:
        if self.fail_at == len(self.live) + 1:
            raise MemoryError(label)
        self.live.append(label)
        return FakeBuffer(memory, dtype, shape, label, self)

    @contextmanager
    def capture(self, label: str) -> Iterator[FakeGraph]:
        self.graphs.append(FakeGraph(self))
        yield self.graphs[-1]

    def launch(self, program: AdrenoProgram, *args: FakeBuffer, groups: Any, local: Any) -> None:
        self.graphs[-1].launches.append((program.name, args, groups, local))
