"""Run launches of ir3 programs: translate or fetch from the cache, fill contexts, call on all cores."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ringfence.errors import CompileError, FaultReport
from ringfence.hardware.adreno.descriptors import Texture
from ringfence.hardware.adreno.ir3 import decode
from ringfence.virtual.isa import jit, simt
from ringfence.virtual.isa.ir3 import constants, images
from ringfence.virtual.isa.ir3.dispatch import VEC4_BYTES, Dispatch
from ringfence.virtual.isa.ir3.translate import VERSION
from ringfence.virtual.isa.ir3.unit import Unit
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
from ringfence.virtual.memory import AddressSpace

CONSTANT_BYTES = 4096
IMAGE_LIMIT = 1 << 31
# Instructions of one strip x strips: below this a second thread costs more than it gains.
PARALLEL_WORK = 200_000
PADDING = 64  # of local and private memory: reads of narrow elements fetch the dword around them
NO_PC = (1 << 64) - 1
WAVE_FIBERS = 64  # what ``instructions`` counts by

_FAULTS = {
    simt.FAULT_MEMORY_READ: ("memory", "read of memory that is not mapped"),
    simt.FAULT_MEMORY_WRITE: ("memory", "write to memory that is not mapped for writing"),
    simt.FAULT_SHARED: ("memory", "local memory access beyond the configured size"),
    simt.FAULT_PRIVATE: ("memory", "private memory access beyond the configured size or not aligned"),
    simt.FAULT_BARRIER: ("bad state", "barrier reached by only some fibers of a wave"),
    simt.FAULT_HANG: ("hang", "the program had not ended when it was stopped: "),
    simt.FAULT_IMAGE: ("memory", "texel of an image that is not mapped"),
    simt.FAULT_ALIGNMENT: ("memory", "atomic access that is not aligned to 4 bytes"),
    simt.FAULT_RELATIVE: ("bad state", "register or constant index outside its file"),
    simt.FAULT_CALL: ("bad state", "call stack overflow, or return without call"),
}
_HAS_GPU_ADDRESS = (simt.FAULT_MEMORY_READ, simt.FAULT_MEMORY_WRITE, simt.FAULT_IMAGE)
_HAS_NO_ADDRESS = (simt.FAULT_BARRIER, simt.FAULT_HANG, simt.FAULT_CALL)


@dataclass(slots=True)
class _Program:
    """Loaded code and the metadata that the translator gave."""

    entry: Any
    lanes: int
    sites: int
    state_bytes: int
    barriers: bool
    instructions: int
    writes_constants: bool


@lru_cache(maxsize=64)
def _lane_ids(local: tuple[int, int, int], lanes: int) -> tuple[Bytes, Bytes, int]:
    """Return ids (x, y, z, linear per strip), the masks of existing lanes, and the number of strips."""
    total = local[0] * local[1] * local[2]
    strips = -(-total // lanes)
    linear = np.arange(strips * lanes, dtype=np.uint32)
    rows = (linear % local[0], linear // local[0] % local[1], linear // (local[0] * local[1]), linear)
    ids = np.stack([row.reshape(strips, lanes) for row in rows], axis=1).astype(np.uint32)
    masks = np.zeros((strips, simt.MASK_BYTES), np.uint8)
    present = np.packbits((linear < total).reshape(strips, lanes), axis=1, bitorder="little")
    masks[:, : present.shape[1]] = present
    aligned_ids, aligned_masks = aligned(ids.nbytes), aligned(masks.nbytes)
    aligned_ids[:] = ids.view(np.uint8).ravel()
    aligned_masks[:] = masks.ravel()
    return aligned_ids, aligned_masks, strips


class Executor:
    """Executes dispatches.

    ``strict`` poisons registers, local and private memory, and refuses programs that use results without
    waiting for them. ``threads`` host threads share the work-groups of a launch. A launch that loops for
    more than ``hang_seconds`` is stopped and reported as a hang. ``lanes`` sets how many fibers are
    computed at once; without it that is what suits the host.

    With ``count`` (which costs speed) ``instructions`` counts what has run, in instructions of a wave of 64
    fibers: one that is issued for 64 fibers counts one, for a strip of 16 a quarter, whether its fibers are
    active or not. Each repetition of (rpt) counts, ``nop`` does not. A wave that has only some of its fibers,
    or whose strips go different ways, counts as the strips that ran, which is less than hardware issues.
    """

    def __init__(
        self,
        *,
        strict: bool = True,
        seed: int = 0,
        threads: int | None = None,
        cache_dir: Path | None = None,
        hang_seconds: float = 60.0,
        lanes: int | None = None,
        count: bool = False,
    ) -> None:
        self.strict = strict
        self.count = count
        self.instructions = 0.0
        self.seed = seed
        self.hang_seconds = hang_seconds
        self._lanes = lanes
        self._cache = jit.Cache(jit.DiskCache(cache_dir))
        self._loader = jit.Loader()
        self._programs: dict[Unit, _Program] = {}
        self._threads = threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="ringfence-gpu")
        self._watchdog = Watchdog()
        self._zeros = aligned(64)

    @property
    def statistics(self) -> jit.Statistics:
        """Compilations, cache hits and translation time so far."""
        return self._cache.statistics

    def prepare(self, dispatches: Iterable[Dispatch]) -> None:
        """Start the translation of the programs of ``dispatches`` in worker processes; do not wait."""
        for dispatch in dispatches:
            unit = dispatch.unit(self.strict, count=self.count)
            if unit not in self._programs:
                self._request(unit)

    def _request(self, unit: Unit) -> tuple[str, Future[jit.Compiled]]:
        payload = msgspec.msgpack.encode(unit)
        lanes = self._lanes or jit.native_lanes()
        identity = f"ir3 {VERSION} {lanes} {jit.host_description()} ".encode()
        key = hashlib.sha256(identity + payload).hexdigest()
        return key, self._cache.request(key, lambda: jit.Request("ir3", payload, lanes))

    def _program(self, unit: Unit) -> _Program:
        program = self._programs.get(unit)
        if program is not None:
            return program
        with self._cache.waiting():
            key, future = self._request(unit)
            compiled = future.result()
            entry = self._loader.load(key, compiled.object, "run")
            program = self._programs[unit] = _loaded(entry, compiled.meta)
        return program

    def run(self, dispatch: Dispatch, memory: AddressSpace) -> FaultReport | None:
        """Run a launch to its end. A fault is returned, and so is why a program cannot be translated."""
        try:
            program = self._program(dispatch.unit(self.strict, count=self.count))
        except CompileError as error:
            return _refusal(error, dispatch.name)
        if 0 in dispatch.groups:
            return None
        launch = _Launch(self, dispatch, program, memory)
        if launch.refused is not None:
            return launch.refused
        self._watchdog.start(self.hang_seconds)
        try:
            return launch.run()
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


def _loaded(entry: int, meta: Mapping[str, int | str]) -> _Program:
    return _Program(
        entry=ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(entry),
        lanes=int(meta["lanes"]),
        sites=int(meta["sites"]),
        state_bytes=int(meta["state_bytes"]),
        barriers=bool(meta["barriers"]),
        instructions=int(meta["instructions"]),
        writes_constants=bool(meta["writes_constants"]),
    )


def _refusal(error: CompileError, program: str) -> FaultReport:
    """Return the report of a program that cannot be translated."""
    if not isinstance(error, jit.TranslationError):
        return FaultReport("internal", str(error), program=program)
    kind = "internal" if error.internal else "illegal instruction"
    return FaultReport(kind, str(error), program=program, pc=error.pc, instruction=error.instruction)


class _Launch:
    """The buffers and contexts of one launch."""

    def __init__(
        self, executor: Executor, dispatch: Dispatch, program: _Program, memory: AddressSpace
    ) -> None:
        self.executor, self.dispatch, self.program, self.memory = executor, dispatch, program, memory
        self.ids, self.masks, self.strips = _lane_ids(dispatch.local, program.lanes)
        self.group_count = group_count(dispatch.groups)
        self.counter = np.zeros(8, np.uint64)
        self.constants = aligned(CONSTANT_BYTES)
        self.constants[: len(dispatch.constants)] = np.frombuffer(dispatch.constants, np.uint8)
        self.table = memory.table()
        self.refused: FaultReport | None = None
        self.textures = self._records(dispatch.textures, "texture", write=False)
        self.uavs = self._records(dispatch.uavs, "UAV", write=True)
        self.ubos = self._uniform_buffers()
        self.keep: list[npt.NDArray[Any]] = []

    def _records(self, images_: tuple[Texture | None, ...], what: str, *, write: bool) -> Bytes:
        records = aligned(max(1, len(images_)) * images.RECORD_BYTES)
        words = records.view(np.uint64).reshape(-1, len(images.RECORD_FIELDS))
        for slot, image in enumerate(images_):
            if image is None:
                continue
            if (
                image.pitch * max(1, image.height) >= IMAGE_LIMIT
                or image.array_pitch * image.depth >= IMAGE_LIMIT
            ):
                message = f"{what} {slot} has 2 GiB or more, which the virtual GPU does not address"
                self.refused = FaultReport("bad state", message, program=self.dispatch.name)
            found = self.memory.find(image.address)
            host = limit = 0
            if found is not None and (found.writable or not write):
                host = found.host_address + (image.address - found.start)
                limit = found.end - image.address
            depth, layer = max(1, image.depth), image.array_pitch
            words[slot] = (host, image.address, image.width, image.height, depth, image.pitch, layer, limit)
        return records

    def _uniform_buffers(self) -> Bytes:
        records = aligned(max(1, len(self.dispatch.ubos)) * constants.RECORD_BYTES)
        words = records.view(np.uint64).reshape(-1, 2)
        for slot, buffer in enumerate(self.dispatch.ubos):
            if buffer is not None:
                words[slot] = (buffer.address, buffer.vec4 * VEC4_BYTES)
        return records

    def _buffers(self) -> dict[str, Bytes]:
        """Return the memory of one host thread. Strips that wait for each other need their own."""
        program, dispatch = self.program, self.dispatch
        apart = self.strips if program.barriers else 1
        file = self.constants
        if program.writes_constants:
            file = aligned(CONSTANT_BYTES)
            file[:] = self.constants
        return {
            "state": aligned(program.state_bytes * apart),
            "resumes": aligned(4 * self.strips),
            "shared": aligned(dispatch.shared_bytes + PADDING),
            "private": aligned(_private_bytes(dispatch) * program.lanes * apart + PADDING),
            "sites": self._sites(),
            "constants": file,
        }

    def _sites(self) -> Bytes:
        """Return sites that know no range yet. Lanes that do not act may read at their base: zeros."""
        sites = aligned(max(1, self.program.sites) * simt.SITE_BYTES)
        sites.view(np.uint64).reshape(-1, 3)[:, 2] = self.executor._zeros.ctypes.data
        return sites

    def _context(self, chunk: int) -> Words:
        program, dispatch = self.program, self.dispatch
        private = _private_bytes(dispatch) * program.lanes
        buffers = self._buffers()
        self.keep.extend(buffers.values())
        values = {
            **self._geometry(),
            **{name: buffer.ctypes.data for name, buffer in buffers.items()},
            "ranges": self.table.ctypes.data,
            "range_count": len(self.table),
            "state_stride": program.state_bytes if program.barriers else 0,
            "ids": self.ids.ctypes.data,
            "masks": self.masks.ctypes.data,
            "strips": self.strips,
            "shared_bytes": dispatch.shared_bytes,
            "private_bytes": dispatch.private_bytes,
            "private_stride": private if program.barriers else 0,
            "private_size": private,
            "textures": self.textures.ctypes.data,
            "uavs": self.uavs.ctypes.data,
            "ubos": self.ubos.ctypes.data,
            "counter": self.counter.ctypes.data,
            "chunk": chunk,
            "cancel": self.executor._watchdog.flag.ctypes.data,
            "zeros": self.executor._zeros.ctypes.data,
            "poison_shared": int(self.executor.strict and dispatch.shared_bytes > 0),
        }
        return context(values)

    def _geometry(self) -> dict[str, int]:
        dispatch = self.dispatch
        values = {
            "group_count": self.group_count,
            "groups_x": dispatch.groups[0],
            "groups_y": dispatch.groups[1],
        }
        for axis, local, offset in zip("xyz", dispatch.local, dispatch.global_offset, strict=True):
            values |= {f"local_{axis}": local, f"offset_{axis}": offset}
        return values

    def run(self) -> FaultReport | None:
        work = self.program.instructions * self.strips * self.group_count
        threads = min(self.executor._threads, self.group_count) if work > PARALLEL_WORK else 1
        chunk = max(1, self.group_count // (threads * 16))
        contexts = [self._context(chunk) for _ in range(threads)]
        if threads == 1:
            codes = [self.program.entry(contexts[0].ctypes.data)]
        else:
            codes = call_all(self.executor._pool, self.executor._watchdog, self._call, contexts)
        executed = sum(field(words, "executed") for words in contexts)
        self.executor.instructions += executed / WAVE_FIBERS
        reports = [self._report(c) for c, code in zip(contexts, codes) if code != simt.DONE]
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
        return FaultReport(
            kind,
            message,
            program=self.dispatch.name,
            group=(field(words, "group_x"), field(words, "group_y"), field(words, "group_z")),
            lane=field(words, "fault_strip") * self.program.lanes + field(words, "fault_lane"),
            pc=None if pc == NO_PC else pc,
            instruction=None if pc == NO_PC else self._text(pc),
            address=None if number in _HAS_NO_ADDRESS else address,
            nearest=self.memory.nearest(address) if number in _HAS_GPU_ADDRESS else None,
        )

    def _text(self, pc: int) -> str:
        word = int.from_bytes(self.dispatch.code[8 * pc : 8 * pc + 8], "little")
        return decode(word, pc).text


def _private_bytes(dispatch: Dispatch) -> int:
    """Return the private memory to keep for a fiber: whole dwords."""
    return -(-dispatch.private_bytes // 4) * 4
