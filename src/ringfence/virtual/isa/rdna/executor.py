"""Run launches of RDNA3 programs.

Translate (or fetch from the cache), fill contexts, call the code on all cores.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from ringfence.errors import CompileError, FaultReport
from ringfence.hardware.amd.rdna import UnknownInstruction, decode
from ringfence.virtual.isa import jit, simt
from ringfence.virtual.isa.launch import (
    ANOTHER_PART,
    Bytes,
    Watchdog,
    Words,
    aligned,
    call_all,
    context,
    field,
    group_count,
)
from ringfence.virtual.isa.rdna.dispatch import Dispatch
from ringfence.virtual.isa.rdna.translate import VERSION
from ringfence.virtual.isa.rdna.unit import Unit
from ringfence.virtual.memory import AddressSpace

PARALLEL_WORK = 200_000  # instructions of a wave x waves: below this a second thread costs more than it gains
PADDING = 64  # of local and private memory: reads of narrow elements fetch the dword around them
NO_PC = (1 << 64) - 1
HOST: Literal["host"] = "host"

Memory = AddressSpace | Literal["host"]

_FAULTS = {
    simt.FAULT_MEMORY_READ: ("memory", "read of memory that is not mapped"),
    simt.FAULT_MEMORY_WRITE: ("memory", "write to memory that is not mapped for writing"),
    simt.FAULT_SHARED: ("memory", "access beyond the local memory of the work-group"),
    simt.FAULT_PRIVATE: ("memory", "access beyond the private memory of the work-item"),
    simt.FAULT_HANG: ("hang", "the program had not ended when it was stopped: "),
    simt.FAULT_ILLEGAL: ("illegal instruction", "the program ran into something that is no instruction"),
    simt.FAULT_JUMP: ("illegal instruction", "jump to an address where no code begins"),
    simt.FAULT_TRAP: ("bad state", "s_trap without a trap handler; the address is the trap id"),
}
_HAS_GPU_ADDRESS = (simt.FAULT_MEMORY_READ, simt.FAULT_MEMORY_WRITE)
_HAS_NO_ADDRESS = (simt.FAULT_HANG, simt.FAULT_ILLEGAL)


@dataclass(slots=True)
class _Program:
    """Loaded code and the metadata that the translator gave."""

    entry: Any
    sites: int
    state_bytes: int
    barriers: bool
    instructions: int


@lru_cache(maxsize=64)
def _lane_ids(local: tuple[int, int, int], components: int, wave: int) -> tuple[Bytes, Bytes, int]:
    """Return v0 of every wave, the masks of existing lanes, and the number of waves.

    v0 packs x in bits 9:0, y in 19:10 and z in 29:20, as far as the launch asks for them.
    """
    total = local[0] * local[1] * local[2]
    waves = -(-total // wave)
    linear = np.arange(waves * wave, dtype=np.uint32)
    packed = linear % np.uint32(local[0])
    if components >= 1:
        packed = packed | (linear // np.uint32(local[0]) % np.uint32(local[1])) << np.uint32(10)
    if components >= 2:
        packed = packed | (linear // np.uint32(local[0] * local[1])) << np.uint32(20)
    masks = np.zeros((waves, simt.MASK_BYTES), np.uint8)
    present = np.packbits((linear < total).reshape(waves, wave), axis=1, bitorder="little")
    masks[:, : present.shape[1]] = present
    ids, mask_bytes = aligned(packed.nbytes), aligned(masks.nbytes)
    ids[:] = packed.view(np.uint8)
    mask_bytes[:] = masks.ravel()
    return ids, mask_bytes, waves


class Executor:
    """Executes dispatches.

    Registers that nothing wrote hold a pattern. ``strict`` fills local and private memory with it too, makes
    accesses beyond local memory a fault, and refuses programs that use results without waiting for them.
    ``threads`` host threads share the work-groups of a launch; one that loops for more than
    ``hang_seconds`` is stopped and reported as a hang. With ``count``, ``instructions`` counts the
    instructions that waves have run, which costs speed.
    """

    def __init__(
        self,
        *,
        strict: bool = True,
        threads: int | None = None,
        cache_dir: Path | None = None,
        hang_seconds: float = 60.0,
        count: bool = False,
    ) -> None:
        self.strict = strict
        self.count = count
        self.instructions = 0
        self.hang_seconds = hang_seconds
        self._cache = jit.Cache(jit.DiskCache(cache_dir))
        self._loader = jit.Loader()
        self._programs: dict[Unit, _Program] = {}
        self._threads = threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="ringfence-gpu")
        self._watchdog = Watchdog()
        self._clock = np.zeros(8, np.uint64)

    @property
    def statistics(self) -> jit.Statistics:
        """Compilations, cache hits and translation time so far."""
        return self._cache.statistics

    def prepare(self, dispatches: Iterable[Dispatch]) -> None:
        """Start the translation of the programs of ``dispatches`` in worker processes; do not wait."""
        for dispatch in dispatches:
            unit = dispatch.unit(strict=self.strict, host=False, count=self.count)
            if unit not in self._programs:
                self._request(unit)

    def _request(self, unit: Unit) -> tuple[str, Future[jit.Compiled]]:
        payload = msgspec.msgpack.encode(unit)
        identity = f"rdna {VERSION} {jit.host_description()} ".encode()
        key = hashlib.sha256(identity + payload).hexdigest()
        return key, self._cache.request(key, lambda: jit.Request("rdna", payload, unit.wave))

    def _program(self, unit: Unit) -> _Program:
        program = self._programs.get(unit)
        if program is not None:
            return program
        with self._cache.waiting():
            key, future = self._request(unit)
            compiled = future.result()
            entry = self._loader.load(key, compiled.object, "run")
            meta = {name: int(value) for name, value in compiled.meta.items()}
            program = self._programs[unit] = _Program(
                ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(entry),
                meta["sites"],
                meta["state_bytes"],
                bool(meta["barriers"]),
                meta["instructions"],
            )
        return program

    def run(self, dispatch: Dispatch, memory: Memory) -> FaultReport | None:
        """Run a launch to its end; return a fault of the program, or why it cannot be translated.

        ``memory`` maps GPU addresses, and every access is checked; ``"host"`` means that addresses are
        those of this process, unchecked: a wrong one crashes it.
        """
        try:
            program = self._program(dispatch.unit(strict=self.strict, host=memory == HOST, count=self.count))
        except CompileError as error:
            return _refusal(dispatch, error)
        if 0 in dispatch.groups:
            return None
        self._watchdog.start(self.hang_seconds)
        try:
            return _Launch(self, dispatch, program, memory).run()
        finally:
            self._watchdog.disarm()

    def cancel(self) -> None:
        """Stop what is running or being translated, from another thread; nothing runs afterwards."""
        self._watchdog.cancel()
        self._cache.cancel()

    def close(self) -> None:
        """End worker processes and threads."""
        self._cache.close()
        self._pool.shutdown()
        self._watchdog.close()


def _refusal(dispatch: Dispatch, error: CompileError) -> FaultReport:
    pc = error.pc if isinstance(error, jit.TranslationError) else None
    instruction = error.instruction if isinstance(error, jit.TranslationError) else None
    internal = isinstance(error, jit.TranslationError) and error.internal
    kind = "internal" if internal else "illegal instruction"
    return FaultReport(kind, str(error), program=dispatch.name, pc=pc, instruction=instruction)


class _Launch:
    """The buffers and contexts of one launch."""

    def __init__(self, executor: Executor, dispatch: Dispatch, program: _Program, memory: Memory) -> None:
        self.executor, self.dispatch, self.program, self.memory = executor, dispatch, program, memory
        self.ids, self.masks, self.waves = _lane_ids(dispatch.local, dispatch.id_components, dispatch.wave)
        self.group_count = group_count(dispatch.groups)
        self.counter = np.zeros(8, np.uint64)
        self.user = np.zeros(64, np.uint32)
        self.user[: len(dispatch.user_data)] = dispatch.user_data
        self.table = np.zeros((0, 4), np.uint64) if isinstance(memory, str) else memory.table()
        self.keep: list[Bytes] = []

    def _context(self) -> Words:
        program, dispatch, executor = self.program, self.dispatch, self.executor
        private = (dispatch.scratch_bytes + 3) // 4 * 4 * dispatch.wave
        apart = self.waves if program.barriers else 1
        buffers = {
            "state": aligned(program.state_bytes * apart),
            "resumes": aligned(4 * self.waves),
            "shared": aligned(dispatch.shared_bytes + PADDING),
            "private": aligned(private * apart + PADDING),
            "sites": aligned(max(1, program.sites) * simt.SITE_BYTES),
        }
        self.keep.extend(buffers.values())
        gx, gy, _ = dispatch.groups
        return context(
            {
                **{name: buffer.ctypes.data for name, buffer in buffers.items()},
                "ranges": self.table.ctypes.data,
                "range_count": len(self.table),
                "constants": self.user.ctypes.data,
                "state_stride": program.state_bytes if program.barriers else 0,
                "ids": self.ids.ctypes.data,
                "masks": self.masks.ctypes.data,
                "strips": self.waves,
                "shared_bytes": dispatch.shared_bytes,
                "private_bytes": dispatch.scratch_bytes,
                "private_stride": private if program.barriers else 0,
                "private_size": private,
                "counter": self.counter.ctypes.data,
                "group_count": self.group_count,
                "groups_x": gx,
                "groups_y": gy,
                "cancel": executor._watchdog.flag.ctypes.data,
                "poison_shared": int(executor.strict and dispatch.shared_bytes > 0),
                "code": dispatch.address,
                "clock": executor._clock.ctypes.data,
            }
        )

    def run(self) -> FaultReport | None:
        work = self.program.instructions * self.waves * self.group_count
        threads = min(self.executor._threads, self.group_count) if work > PARALLEL_WORK else 1
        contexts = [self._context() for _ in range(threads)]
        for words in contexts:
            words[simt.CONTEXT["chunk"] // 8] = max(1, self.group_count // (threads * 16))
        if threads == 1:
            codes = [self.program.entry(contexts[0].ctypes.data)]
        else:
            codes = call_all(self.executor._pool, self.executor._watchdog, self._call, contexts)
        self.executor.instructions += sum(field(words, "executed") for words in contexts)
        reports = [self._report(c) for c, code in zip(contexts, codes, strict=True) if code != simt.DONE]
        reports.sort(key=lambda r: r.kind == "hang")  # a thread stopped for another's fault looks like a hang
        return reports[0] if reports else None

    def _call(self, words: Words) -> int:
        code = int(self.program.entry(words.ctypes.data))
        if code != simt.DONE:
            self.executor._watchdog.stop(ANOTHER_PART)
        return code

    def _report(self, words: Words) -> FaultReport:
        number, pc, address = (field(words, f"fault_{name}") for name in ("kind", "pc", "address"))
        kind, message = _FAULTS[number]
        if number == simt.FAULT_HANG:
            message += self.executor._watchdog.why
        instruction = None
        if pc == NO_PC:
            pc = 0
        else:
            try:
                instruction = decode(self.dispatch.code, pc, wave=self.dispatch.wave).text
            except (UnknownInstruction, ValueError) as error:
                message = f"{message}: {error}"
        checked = number in _HAS_GPU_ADDRESS and not isinstance(self.memory, str)
        return FaultReport(
            kind,
            message,
            program=self.dispatch.name,
            group=(field(words, "group_x"), field(words, "group_y"), field(words, "group_z")),
            lane=field(words, "fault_strip") * self.dispatch.wave + field(words, "fault_lane"),
            pc=pc,
            instruction=instruction,
            address=None if number in _HAS_NO_ADDRESS else address,
            nearest=self.memory.nearest(address) if checked and not isinstance(self.memory, str) else None,
        )
