"""Compile LLVM IR text to host code: worker processes, a disk cache of objects, and a loader.

Translators turn a program into IR text plus a small metadata map. llvmlite holds one global lock, so
threads do not help: :class:`Pool` keeps worker *processes*, which also contains an abort inside LLVM.
Objects are cached on disk under a hash of everything that determines them, and no host address is baked
into code.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

import msgspec

from ringfence.errors import CompileError

CACHE_MAGIC = b"RFJITOBJ"
# -P: a folder of the same name where the user happens to be is not the package.
WORKER_COMMAND = (sys.executable, "-P", "-m", "ringfence.virtual.isa.worker")
_FRAME = struct.Struct("<I")


class TranslationError(CompileError):
    """A program cannot be translated. ``pc`` and ``instruction`` say where, as far as one instruction is
    to blame.

    ``internal``: not the program but the translator failed.
    """

    def __init__(
        self, message: str, *, pc: int | None = None, instruction: str | None = None, internal: bool = False
    ) -> None:
        super().__init__(message)
        self.pc = pc
        self.instruction = instruction
        self.internal = internal


class WorkerDied(TranslationError):
    """The compiler process ended before it answered."""


class Compiled(msgspec.Struct, frozen=True):
    """A translated program: the object file and what the executor must know about it."""

    object: bytes
    meta: dict[str, int | str]


class Request(msgspec.Struct, frozen=True):
    """A translation to do: ``isa`` names the translator module, ``payload`` is what it translates."""

    isa: str
    payload: bytes
    lanes: int


class Reply(msgspec.Struct, frozen=True):
    """What the compiler process answers: a program, or the fields of a :class:`TranslationError`."""

    compiled: Compiled | None = None
    error: str = ""
    pc: int | None = None
    instruction: str | None = None
    internal: bool = False


@dataclass(slots=True)
class Statistics:
    """Counts of one executor. ``seconds`` is wall time spent in translation, summed over workers, ``waited``
    that of launches until their programs were there.
    """

    compilations: int = 0
    cache_hits: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)


@cache
def host() -> Any:
    """Return the initialised llvmlite binding, a target machine for this CPU, and a description of both."""
    try:
        import llvmlite
        import llvmlite.binding as llvm
    except ImportError as error:
        raise CompileError("virtual GPUs need llvmlite: pip install 'ringfence[virtual]'") from error
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="pic", codemodel="default", jit=True
    )
    return llvm, machine, f"{llvmlite.__version__} {llvm.llvm_version_info} {cpu} {features}"


@cache
def host_description() -> str:
    """Return what, of the host, determines object code."""
    return str(host()[2])


@cache
def native_lanes() -> int:
    """Return the number of 32-bit lanes of the host's widest vectors (16 with AVX-512, else 8)."""
    llvm, _, _ = host()
    return 16 if llvm.get_host_cpu_features().get("avx512f") else 8


def compile_ir(text: str) -> bytes:
    """Return the object file for ``text``; :class:`CompileError` if LLVM refuses it."""
    llvm, machine, _ = host()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise TranslationError(f"LLVM refuses the translated program: {error}", internal=True) from error
    return bytes(machine.emit_object(module))


def default_cache_dir() -> Path:
    """Return ``$RINGFENCE_CACHE``, else ``$XDG_CACHE_HOME/ringfence``, else ``~/.cache/ringfence``."""
    if explicit := os.environ.get("RINGFENCE_CACHE"):
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "ringfence"


class DiskCache:
    """Compiled programs on disk, one file each, written atomically; a damaged file is deleted."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = (directory or default_cache_dir()) / "jit"

    def get(self, key: str) -> Compiled | None:
        """Return the entry of ``key``, ``None`` if there is none that can be read."""
        path = self.directory / key
        try:
            data = path.read_bytes()
        except OSError:
            return None
        body = data[len(CACHE_MAGIC) + 32 :]
        if data[:8] != CACHE_MAGIC or hashlib.sha256(body).digest() != data[8:40]:
            path.unlink(missing_ok=True)
            return None
        return msgspec.msgpack.decode(body, type=Compiled)

    def put(self, key: str, entry: Compiled) -> None:
        """Store ``entry``. A full or read-only disk costs the cache entry, not the run."""
        body = msgspec.msgpack.encode(entry)
        with contextlib.suppress(OSError):
            self.directory.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.directory, delete=False) as temporary:
                temporary.write(CACHE_MAGIC + hashlib.sha256(body).digest() + body)
            os.replace(temporary.name, self.directory / key)


class _Worker:
    """One compiler process, used by one thread at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._replies: IO[bytes] | None = None
        self._killed = False
        self._lock = threading.Lock()

    def compile(self, request: Request) -> Compiled:
        process = self._start()
        assert process.stdin is not None and self._replies is not None
        try:
            write_frame(process.stdin, msgspec.msgpack.encode(request))
            data = read_frame(self._replies)
        except BrokenPipeError:
            data = None
        if data is None:
            self.close()
            message = f"the compiler process died (exit status {process.returncode}) on this program"
            raise WorkerDied(message, internal=True)
        reply = msgspec.msgpack.decode(data, type=Reply)
        if reply.compiled is None:
            raise TranslationError(
                reply.error, pc=reply.pc, instruction=reply.instruction, internal=reply.internal
            )
        return reply.compiled

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._killed:
                raise WorkerDied("the compiler process was stopped", internal=True)
            if self._process is None:
                self._process = self._spawn()
            return self._process

    def _spawn(self) -> subprocess.Popen[bytes]:
        """Start the process. Replies have a pipe of their own: anything may print when Python starts."""
        reader, writer = os.pipe()
        self._replies = os.fdopen(reader, "rb")
        try:
            return subprocess.Popen(
                [*WORKER_COMMAND, str(writer)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(writer,),
            )
        finally:
            os.close(writer)

    def kill(self) -> None:
        """End the process whatever it does, from another thread; it is not started again."""
        with self._lock:
            self._killed = True
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        process, self._process = self._process, None
        replies, self._replies = self._replies, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            if replies is not None:
                replies.close()
            process.wait()


class Pool:
    """Compiles requests on ``workers`` processes, each started when first needed."""

    def __init__(self, workers: int | None = None) -> None:
        count = workers or os.cpu_count() or 1
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="ringfence-jit")
        self._workers = [_Worker() for _ in range(count)]
        self._free = queue.SimpleQueue[_Worker]()
        for worker in self._workers:
            self._free.put(worker)

    def submit(self, request: Request, keep: Callable[[Compiled], None]) -> Future[Compiled]:
        """Return a future of the compiled program, which ``keep`` has seen, or of :class:`CompileError`."""
        return self._threads.submit(self._compile, request, keep)

    def _compile(self, request: Request, keep: Callable[[Compiled], None]) -> Compiled:
        worker = self._free.get_nowait()  # there are as many as threads
        try:
            compiled = worker.compile(request)
        finally:
            self._free.put(worker)
        keep(compiled)
        return compiled

    def cancel(self) -> None:
        """Kill the processes: what they compile fails, and so does what waits for them."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._workers:
            worker.kill()

    def close(self) -> None:
        """Finish what is running and end the processes."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.close()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Return the next length-prefixed frame, or ``None`` at the end of the stream."""
    head = stream.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    (length,) = _FRAME.unpack(head)
    data = stream.read(length)
    return data if len(data) == length else None


def write_frame(stream: IO[bytes], data: bytes) -> None:
    """Write one length-prefixed frame."""
    stream.write(_FRAME.pack(len(data)) + data)
    stream.flush()


class Loader:
    """Holds loaded object code; functions stay valid as long as the loader."""

    def __init__(self) -> None:
        llvm, machine, _ = host()
        self._llvm = llvm
        # JITLink puts code and constants of an object next to each other. The older loader maps each apart,
        # and aborts if they end up more than 2 GiB apart, as where much address space is reserved.
        self._jit = llvm.create_lljit_compiler(machine, use_jit_link=True)
        self._libraries: list[Any] = []

    def load(self, name: str, object_code: bytes, symbol: str) -> int:
        """Return the address of ``symbol`` in ``object_code``; ``name`` must be new."""
        builder = self._llvm.JITLibraryBuilder()
        library = builder.add_object_img(object_code).export_symbol(symbol).link(self._jit, name)
        self._libraries.append(library)
        return int(library[symbol])


class Cache:
    """Programs by key: in memory, then on disk, then compiled by the pool. Thread safe."""

    def __init__(self, disk: DiskCache | None = None, workers: int | None = None) -> None:
        self.statistics = Statistics()
        self._disk = disk or DiskCache()
        self._pool = Pool(workers)
        self._pending: dict[str, Future[Compiled]] = {}
        self._lock = threading.Lock()

    def request(self, key: str, make: Callable[[], Request]) -> Future[Compiled]:
        """Return a future of the program of ``key``; ``make`` gives the request if it must be compiled.

        A refused program stays refused; after a death of the compiler process the next request tries again.
        """
        with self._lock:
            known = self._pending.get(key)
            if known is None or _died(known):
                known = self._pending[key] = self._find(key) or self._compile(key, make())
            return known

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time in the block: a launch waits for its program."""
        started = time.monotonic()
        try:
            yield
        finally:
            with self.statistics.lock:
                self.statistics.waited += time.monotonic() - started

    def _find(self, key: str) -> Future[Compiled] | None:
        if (entry := self._disk.get(key)) is None:
            return None
        self.statistics.cache_hits += 1
        future: Future[Compiled] = Future()
        future.set_result(entry)
        return future

    def _compile(self, key: str, request: Request) -> Future[Compiled]:
        def keep(compiled: Compiled) -> None:
            self._disk.put(key, compiled)
            with self.statistics.lock:
                self.statistics.compilations += 1
                self.statistics.seconds += float(compiled.meta.get("milliseconds", 0)) / 1e3

        return self._pool.submit(request, keep)

    def cancel(self) -> None:
        """Kill the worker processes; what they compile fails."""
        self._pool.cancel()

    def close(self) -> None:
        """End the worker processes."""
        self._pool.close()


def _died(future: Future[Compiled]) -> bool:
    return future.done() and not future.cancelled() and isinstance(future.exception(), WorkerDied)
