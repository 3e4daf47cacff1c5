"""The machine: virtual devices behind one port, and the scheduler that runs them.

Engines (command processors, the hang detector) do their work in small steps. In *inline* mode the steps run
inside port calls of the client, in a seeded order, and time jumps when nobody can go on; in *async* mode a
thread of the machine runs them on the real clock, and clients that wait in an ioctl sleep. A program runs
without the machine's lock, so that clients go on meanwhile; what they free is unmapped when the program has
ended.
"""

from __future__ import annotations

import ctypes
import errno
import math
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from ringfence.errors import FaultReport, PortError, RingfenceError, UnsupportedDevice
from ringfence.hardware.fields import Ioctl
from ringfence.virtual.checks import Notes
from ringfence.virtual.clock import ClockName, Costs, make_clock
from ringfence.virtual.faults import Faults
from ringfence.virtual.memory import (
    PAGE,
    AddressSpace,
    ClientMappings,
    read_user,
    reserve_pages,
)

FIRST_DESCRIPTOR = 1 << 20  # far from the descriptors of the real kernel, so that mixing them up is noticed
DEFAULT_MEMORY = 4 << 30
HANG_TIMEOUT = 2.0
SLOWER = 30  # so much longer than a GPU a host may take for something before it counts as hung
POLL_SECONDS = 0.001  # how often a blocked poll of memory is looked at in async mode
SWITCH_INTERVAL = 0.0005  # a spinning client would otherwise keep the machine's thread waiting for 5 ms
SPINS_BEFORE_STEP = 16  # reads of the clock in a row after which a client is taken to be waiting
SPIN_JUMP = 0.001
PATIENCE = 0.02  # real seconds that a waiting client leaves a working one before virtual time jumps
WANDER = 0.25  # how often a call that does not wait runs a step

Mode = Literal["inline", "async"]
Isa = Literal["ir3", "rdna"]
T = TypeVar("T")


class Executor(Protocol):
    """What runs shader programs: launches (``Dispatch``) of one instruction set."""

    def prepare(self, dispatches: Iterable[Any]) -> None: ...

    def run(self, dispatch: Any, memory: AddressSpace) -> FaultReport | None: ...


@runtime_checkable
class Cancellable(Protocol):
    def cancel(self) -> None: ...


@runtime_checkable
class Closeable(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """Work that runs without the machine's lock; ``done`` gets its result, with the lock."""

    run: Callable[[], FaultReport | None]
    done: Callable[[FaultReport | None], None]


class Engine(Protocol):
    """Something that works by itself. Every method is called with the machine's lock."""

    def ready(self) -> bool:
        """Return whether :meth:`step` would get anywhere."""

    def polling(self) -> bool:
        """Return whether the engine waits for memory that a client may change without telling anybody."""

    def next_event(self) -> float | None:
        """Return the machine time at which the engine becomes ready by itself."""

    def step(self) -> Job | None:
        """Do a little work."""

    def abort(self, report: FaultReport) -> bool:
        """Fail what a step or job was doing that raised an exception; return whether it did anything."""


@dataclass(frozen=True, slots=True)
class LiveObjects:
    """What a machine holds for its clients; everything is 0 when nothing leaked.

    ``contexts`` counts KGSL contexts and KFD queues, ``backings`` memfds and copies of imported memory,
    ``client_mappings`` what clients have mapped and not unmapped, ``reservations`` ranges of addresses that
    they have reserved, ``deferred`` unmappings that wait for a running program.
    """

    descriptors: int = 0
    contexts: int = 0
    objects: int = 0
    imports: int = 0
    backings: int = 0
    client_mappings: int = 0
    deferred: int = 0
    reservations: int = 0
    events: int = 0

    def __add__(self, other: LiveObjects) -> LiveObjects:
        return LiveObjects(*(getattr(self, n) + getattr(other, n) for n in self.__slots__))

    @property
    def total(self) -> int:
        return sum(getattr(self, name) for name in self.__slots__)


class VirtualDevice(Protocol):
    """Device nodes and what is behind them. Every method is called with the machine's lock."""

    @property
    def paths(self) -> Sequence[str]:
        """The device nodes."""

    @property
    def engines(self) -> Sequence[Engine]:
        """What works by itself at the moment."""

    def open(self, path: str) -> int:
        """Return a new handle of one of ``paths``."""

    def close(self, handle: int) -> None: ...

    def ioctl(self, handle: int, request: int, address: int) -> tuple[int, str]:
        """Return the errno (0: success) and, for a failure, its reason."""

    def mmap(
        self, handle: int, length: int, offset: int, writable: bool, address: int
    ) -> tuple[int, int, str]:
        """Return the address, the errno and its reason. ``address``, if not 0, is where to map."""

    def doorbell(self, address: int) -> Callable[[int], None] | None:
        """Return what rings the doorbell that the client has mapped at ``address``.

        ``None`` if there is none. The function is called with the lock, and returns without waiting.
        """

    def read_text(self, path: str) -> str | None:
        """Return a sysfs file of the device; ``None`` if it has no such file."""

    def list_directory(self, path: str) -> list[str] | None:
        """Return the names in a sysfs directory of the device; ``None`` if it has no such directory."""

    def clean(self, address: int, length: int) -> None: ...

    def invalidate(self, address: int, length: int) -> None: ...

    def explain(self, handle: int, context: int) -> FaultReport | None: ...

    def live(self) -> LiveObjects: ...


class Machine:
    """Virtual devices behind a :class:`~ringfence.port.Port`.

    ``devices`` names chips. Adreno chips are ``/dev/kgsl-3d0``, ``/dev/kgsl-3d1``, ...; AMD chips are
    ``/dev/dri/renderD128``, ``/dev/dri/renderD129``, ... behind one ``/dev/kfd``. ``executor_factory`` makes
    what runs programs, one for all (default: the JIT of :mod:`ringfence.virtual.isa` for each instruction
    set); with one, there can also be AMD chips whose commands are modelled but whose machine code is not
    executed here. ``coherent`` makes memory imported through KGSL coherent with the CPU's caches, as on a
    platform with I/O coherence: the machine maintains them itself around every submission and program, as it
    always does for KFD. ``memory_bytes`` is what a process can allocate on a device, ``hang_timeout`` the
    time without progress after which a GPU counts as hung (a program may run 30 times as long on the host,
    and an AMD queue may wait as long for a client that is not waiting itself). ``large_bar`` lets the CPU
    reach all memory of AMD cards. Async mode always uses the real clock.

    ``on_dispatch``, if set, is called with the state of the command processor and the program run before
    each program, with the machine's lock: it must not call the machine. While it is set, programs run in the
    order of the commands; in strict mode, those that no wait for idle separates are shuffled otherwise.
    """

    def __init__(
        self,
        devices: Sequence[str] = ("a630",),
        *,
        mode: Mode = "inline",
        clock: ClockName = "hybrid",
        seed: int = 0,
        strict: bool = True,
        coherent: bool = False,
        executor_factory: Callable[[], Executor] | None = None,
        hang_timeout: float = HANG_TIMEOUT,
        memory_bytes: int = DEFAULT_MEMORY,
        large_bar: bool = True,
    ) -> None:
        if mode not in ("inline", "async"):
            raise ValueError(f"mode is 'inline' or 'async', not {mode!r}")
        if mode == "async" and clock == "virtual":
            raise ValueError("async mode runs on the real clock: clock='virtual' needs mode='inline'")
        _check_host()
        self.mode = mode
        self.strict = strict
        self.coherent = coherent
        self.seed = seed
        self.hang_timeout = hang_timeout
        self.memory_bytes = memory_bytes
        self.large_bar = large_bar
        self.on_dispatch: Callable[[Any, Any], None] | None = None
        self.clock = make_clock("real" if mode == "async" else clock)
        self.costs = Costs()
        self.faults = Faults()
        self.notes = Notes()
        self.mappings = ClientMappings()
        self.random = random.Random(seed)
        self.steps = 0
        self.runnable = 0  # engines that could do something when the last step began
        self.custom_executor = executor_factory is not None
        self._executor_factory = executor_factory
        self._executors: dict[Isa, Executor] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._stepping = False
        self._busy = False
        self._deferred: list[Callable[[], None]] = []
        self._descriptors: dict[int, tuple[VirtualDevice, int]] = {}
        self._next_descriptor = FIRST_DESCRIPTOR
        self._spins = 0
        self._clients: dict[int, threading.Thread] = {}
        self._waiting = 0
        self._closed = False
        self._broken: str | None = None
        self.devices = _make_devices(self, devices)
        self._nodes = {path: device for device in self.devices for path in device.paths}
        self._thread: threading.Thread | None = None
        if mode == "async":
            self._start_thread()

    # ----- port: descriptors ------------------------------------------------------------------

    @property
    def virtual(self) -> bool:
        return True

    def open(self, path: str) -> int:
        """Open a device node; :class:`~ringfence.errors.PortError` ENOENT if the machine has none there."""
        with self._call():
            call = f"open({path!r})"
            self._refuse_if_faulty("open", call)
            device = self._nodes.get(path)
            if device is None:
                raise PortError(
                    call, errno.ENOENT, f"this machine has {', '.join(self._nodes) or 'no devices'}"
                )
            self._next_descriptor += 1
            self._descriptors[self._next_descriptor] = device, device.open(path)
            return self._next_descriptor

    def close(self, fd: int | None = None) -> None:
        """Close a descriptor; without one, shut the machine down.

        Shutting down ends the machine's thread and releases every context, object and import. Mappings that
        a client still has stay valid, as they do when a process closes a device: they are the client's to
        unmap.
        """
        if fd is None:
            self._shut_down()
            return
        with self._call():
            device, handle = self._descriptor(fd, f"close({fd})")
            del self._descriptors[fd]
            device.close(handle)

    def cancel(self) -> None:
        """Stop programs that run, and whatever is launched later: their devices are lost."""
        for executor in self._each_executor():
            if isinstance(executor, Cancellable):
                executor.cancel()

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ----- port: calls ------------------------------------------------------------------------

    def ioctl(self, fd: int, argument: Ioctl) -> None:
        while True:
            code, reason = self._ioctl(fd, argument.REQUEST, ctypes.addressof(argument))
            if code != errno.EINTR:
                break
        if code:
            raise PortError(argument.describe(), code, reason or argument.CAUSES.get(code, ""))

    def raw_ioctl(self, fd: int, request: int, argument_address: int) -> int:
        """ioctl(2) for clients that have only a number and a pointer: return 0 or a negative errno."""
        return -self._ioctl(fd, request, argument_address)[0]

    def mmap(
        self,
        fd: int,
        length: int,
        offset: int,
        *,
        address: int = 0,
        writable: bool = True,
        anywhere: bool = False,
    ) -> int:
        """Map memory of a device. ``address`` must lie in a range from :meth:`reserve`.

        With ``anywhere`` it need not: mmap(2) with MAP_FIXED, for clients that reserve by themselves.
        """
        with self._call():
            call = f"mmap(fd={fd}, length={length:#x}, offset={offset:#x}, address={address:#x})"
            self._refuse_if_faulty("mmap", call)
            device, handle = self._descriptor(fd, call)
            if address % PAGE:
                raise PortError(call, errno.EINVAL, f"the address is no multiple of {PAGE}")
            if address and not anywhere and not self.mappings.covers(address, length):
                raise PortError(call, errno.EINVAL, "the address is not in a range that was reserved")
            found, code, reason = device.mmap(handle, length, offset, writable, address)
            if code:
                raise PortError(call, code, reason)
            return found

    def reserve(self, length: int, alignment: int = PAGE) -> int:
        """Reserve address space: pages without access, at a multiple of ``alignment`` (a power of two)."""
        with self._call():
            call = f"reserve({length:#x}, {alignment:#x})"
            self._refuse_if_faulty("reserve", call)
            if length <= 0 or length % PAGE or alignment < PAGE or alignment & (alignment - 1):
                raise PortError(call, errno.EINVAL, f"both must be multiples of {PAGE}, the second 2^n")
            try:
                address = reserve_pages(length, alignment)
            except OSError as error:
                raise PortError(call, error.errno or errno.ENOMEM, str(error)) from error
            self.mappings.add(address, length, lambda: None, reserved=True)
            return address

    def doorbell(self, address: int) -> Callable[[int], None]:
        """Return what rings the doorbell at ``address``: one 64-bit store, and the engine knows."""
        with self._call():
            call = f"doorbell({address:#x})"
            found = (device.doorbell(address) for device in self.devices)
            store = next((each for each in found if each is not None), None)
            if store is None or address % 8:
                raise PortError(call, errno.EINVAL, "no doorbell is mapped there")
        lock, chance, step = self._lock, self.random.random, self._step
        if self.mode == "async":
            changed = self._changed

            def ring_async(value: int) -> None:
                with lock:
                    if self._closed:
                        self._check_alive()
                    store(value)
                    changed.notify_all()

            return ring_async

        def ring(value: int) -> None:
            with lock:
                if self._closed:
                    self._check_alive()
                store(value)
                if chance() < WANDER and not self._stepping:
                    step()

        return ring

    def munmap(self, address: int, length: int) -> None:
        with self._lock:
            call = f"munmap({address:#x}, {length:#x})"
            self._refuse_if_faulty("munmap", call)
            if not self.mappings.unmap(address, length):
                raise PortError(call, errno.EINVAL, "the range is not (all) a mapping that this machine made")

    def read_text(self, path: str) -> str:
        with self._call():
            call = f"read({path!r})"
            self._refuse_if_faulty("read_text", call)
            for device in self.devices:
                text = device.read_text(path)
                if text is not None:
                    return text
            raise PortError(call, errno.ENOENT, "this machine has no such file")

    def list_directory(self, path: str) -> list[str]:
        with self._call():
            call = f"listdir({path!r})"
            self._refuse_if_faulty("list_directory", call)
            for device in self.devices:
                names = device.list_directory(path)
                if names is not None:
                    return names
            raise PortError(call, errno.ENOENT, "this machine has no such directory")

    def clean(self, address: int, length: int) -> None:
        with self._lock:
            for device in self.devices:
                device.clean(address, length)

    def invalidate(self, address: int, length: int) -> None:
        with self._lock:
            for device in self.devices:
                device.invalidate(address, length)

    def fence(self) -> None:
        """Devices run on this host's CPUs and see every store after the lock that they take."""
        with self._lock:
            pass

    def explain(self, fd: int, context: int) -> FaultReport | None:
        with self._lock:
            device, handle = self._descriptor(fd, f"explain({fd}, {context})")
            return device.explain(handle, context)

    # ----- port: time -------------------------------------------------------------------------

    def now(self) -> float:
        self._clients[threading.get_ident()] = threading.current_thread()
        with self._lock:
            if self.mode == "inline" and not self._closed:
                self._spin()
            return self.clock.now()

    def sleep(self, seconds: float) -> None:
        if self.mode == "async":
            time.sleep(seconds)
            return
        with self._call():
            self.wait_until(lambda: False, self.clock.now() + seconds)

    def _spin(self) -> None:
        """A client that reads the clock again and again polls memory.

        Let the engines, and the time, go on.
        """
        self.clock.charge(self.costs.call)
        self._spins += 1
        if self._spins <= SPINS_BEFORE_STEP or self._stepping or self._step():
            return
        if self.clock.jumps:
            event = self._next_event()
            horizon = self.clock.now() + SPIN_JUMP
            self.clock.jump(horizon if event is None else min(event, horizon))

    # ----- scheduler --------------------------------------------------------------------------

    def step(self) -> bool:
        """Let one engine, chosen by the seed among those that can, do a step.

        Return whether there was one.
        """
        with self._lock:
            self._check_alive()
            return not self._stepping and self._step()

    def wait_until(self, done: Callable[[], bool], deadline: float | None) -> bool:
        """Wait, with the lock held, until ``done()`` or machine time ``deadline``; return whether it is done.

        A wait without a deadline that nothing can end raises :class:`~ringfence.errors.RingfenceError`.
        """
        self._waiting += 1
        try:
            return self._wait(done, deadline)
        finally:
            self._waiting -= 1

    def _wait(self, done: Callable[[], bool], deadline: float | None) -> bool:
        first = True
        while not done():
            self._check_alive()
            late = deadline is not None and self.clock.now() >= deadline
            if late and not first:
                return False
            first = False
            if self.mode == "async" or self._stepping:
                self._changed.wait(None if deadline is None else max(0.0, deadline - self.clock.now()))
            elif not self._step():
                if late:
                    return False
                self._idle(deadline)
        return True

    def progress(self) -> None:
        """Run a step for a client that asks how far things are."""
        if self.mode == "inline" and not self._stepping:
            self._step()

    def wander(self) -> None:
        """Run a step now and then, so that work also proceeds while a client does something else."""
        waiting = self.mode == "inline" and not self._stepping and self._runnable()
        if waiting and self.random.random() < WANDER:
            self._step()

    def notify(self) -> None:
        """Wake whoever waits: something changed."""
        self._changed.notify_all()

    def defer(self, action: Callable[[], None]) -> None:
        """Do ``action`` when no program is running: at once, or at the end of the running one."""
        if self._busy:
            self._deferred.append(action)
        else:
            action()

    def executor(self, isa: Isa) -> Executor:
        """Return what runs programs of an instruction set."""
        executor = self._executors.get(isa)
        if executor is None:
            executor = self._executors[isa] = self._make_executor(isa)
        return executor

    def _make_executor(self, isa: Isa) -> Executor:
        if self._executor_factory is not None:
            made = next(iter(self._executors.values()), None)
            return made if made is not None else self._executor_factory()
        if isa == "ir3":
            from ringfence.virtual.isa.ir3.executor import Executor as Ir3Executor

            return Ir3Executor(strict=self.strict, seed=self.seed, hang_seconds=SLOWER * self.hang_timeout)
        from ringfence.virtual.isa.rdna.executor import Executor as RdnaExecutor

        return RdnaExecutor(strict=self.strict, hang_seconds=SLOWER * self.hang_timeout)

    def _each_executor(self) -> list[Executor]:
        return list({id(each): each for each in self._executors.values()}.values())

    def _runnable(self) -> list[Engine]:
        return [engine for device in self.devices for engine in device.engines if engine.ready()]

    def _step(self) -> bool:
        engines = self._runnable()
        self.runnable = len(engines)
        if not engines:
            return False
        engine = engines[0] if len(engines) == 1 else self.random.choice(engines)
        self.steps += 1
        self._spins = 0
        self._stepping = True
        try:
            self._step_engine(engine)
        finally:
            self._stepping = False
            self._changed.notify_all()
        return True

    def _step_engine(self, engine: Engine) -> None:
        try:
            job = engine.step()
            if job is not None:
                job.done(self._run(job))
        except Exception:
            report = FaultReport("internal", f"the virtual GPU has a bug:\n{traceback.format_exc()}")
            if not engine.abort(report):
                raise
        except BaseException as error:  # such as KeyboardInterrupt
            engine.abort(FaultReport("hang", f"the program was interrupted by {type(error).__name__}"))
            raise

    def _run(self, job: Job) -> FaultReport | None:
        translated = self._translate_seconds()
        started = self.clock.now()
        self._busy = True
        self._lock.release()
        try:
            return job.run()
        finally:
            self._lock.acquire()
            self._busy = False
            spent = self._translate_seconds() - translated
            if spent:
                self.clock.exclude(min(self.clock.now() - started, spent))
            if self._deferred:
                deferred, self._deferred = self._deferred, []
                for action in deferred:
                    action()

    def _translate_seconds(self) -> float:
        """Return how long launches have waited for translation, as far as executors say: no GPU does it."""
        total = 0.0
        for executor in self._executors.values():
            total += getattr(getattr(executor, "statistics", None), "waited", 0.0)
        return total

    def _next_event(self) -> float | None:
        events = (engine.next_event() for device in self.devices for engine in device.engines)
        return min((event for event in events if event is not None), default=None)

    def _idle(self, deadline: float | None) -> None:
        """No engine can go on: let time pass until the next event, or until another client does something."""
        ends = [when for when in (deadline, self._next_event()) if when is not None]
        if self._somebody_works():
            # Its next call, or a store to memory, may end the wait. The virtual clock would stand still.
            changed = self._changed.wait(PATIENCE if self.clock.modelled else POLL_SECONDS)
            if changed or not ends or not self.clock.modelled:
                return
        if not ends:
            raise RingfenceError(
                "the virtual machine waits for ever: no engine can go on, nothing is scheduled, "
                "and the wait has no time-out"
            )
        if self.clock.jumps:
            self.clock.jump(min(ends))
        else:
            self._changed.wait(max(0.0, min(POLL_SECONDS, min(ends) - self.clock.now())))

    def clients_work(self) -> bool:
        """Return whether a client may still do what a device waits for; devices call this, with the lock."""
        return self._somebody_works()

    def _somebody_works(self) -> bool:
        """Return whether a thread that has called this machine is not waiting in it."""
        for ident, thread in list(self._clients.items()):
            if not thread.is_alive():
                self._clients.pop(ident, None)
        return len(self._clients) > self._waiting

    # ----- the machine's thread (async mode) --------------------------------------------------

    def _start_thread(self) -> None:
        self._switch_interval = sys.getswitchinterval()
        sys.setswitchinterval(min(SWITCH_INTERVAL, self._switch_interval))
        self._thread = threading.Thread(target=self._serve, name="ringfence-machine", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with self._lock:
            try:
                while not self._closed:
                    if not self._step():
                        self._changed.wait(self._idle_seconds())
            except Exception:
                self._broken = traceback.format_exc()
                self._changed.notify_all()

    def _idle_seconds(self) -> float | None:
        event = self._next_event()
        seconds = math.inf if event is None else max(0.0, event - self.clock.now())
        if any(engine.polling() for device in self.devices for engine in device.engines):
            seconds = min(seconds, POLL_SECONDS)
        return None if seconds == math.inf else seconds

    def _shut_down(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self.cancel()
        with self._lock:
            while self._stepping:  # another client's call is running a program
                self._changed.wait()
        if self._thread is not None:
            self._thread.join()
            sys.setswitchinterval(self._switch_interval)
        with self._lock:
            for device, handle in self._descriptors.values():
                device.close(handle)
            self._descriptors.clear()
        for executor in self._each_executor():
            if isinstance(executor, Closeable):
                executor.close()

    # ----- accounting and checks --------------------------------------------------------------

    def live_objects(self) -> LiveObjects:
        """Return what is held for clients, so that tests can see that nothing leaks."""
        with self._lock:
            own = LiveObjects(
                descriptors=len(self._descriptors),
                client_mappings=len(self.mappings),
                deferred=len(self._deferred),
                reservations=self.mappings.reservations,
            )
            for device in self.devices:
                own += device.live()
            return own

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def busy(self) -> bool:
        """Return whether an engine does something, or could."""
        with self._lock:
            if self._closed or self._broken is not None:
                return False
            return self._stepping or bool(self._runnable())

    def _ioctl(self, fd: int, request: int, address: int) -> tuple[int, str]:
        with self._call():
            entry = self._descriptors.get(fd)
            if entry is None:
                return errno.EBADF, "the descriptor is not open on this machine"
            device, handle = entry
            self.clock.charge(self.costs.call)
            return device.ioctl(handle, request, address)

    @contextmanager
    def _call(self) -> Iterator[None]:
        """A call of a client: it counts as one of those that have to wait before time jumps."""
        self._clients[threading.get_ident()] = threading.current_thread()
        with self._lock:
            self._check_alive()
            self._spins = 0
            yield

    def _check_alive(self) -> None:
        if self._broken is not None:
            raise RingfenceError(f"the virtual machine's scheduler crashed:\n{self._broken}")
        if self._closed:
            raise PortError("call of a virtual machine", errno.EBADF, "the machine was closed")

    def handle_of(self, device: VirtualDevice, fd: int) -> int | None:
        """Return which handle of ``device`` a descriptor is, or ``None``; for devices, with the lock."""
        owner, handle = self._descriptors.get(fd, (None, 0))
        return handle if owner is device else None

    def _descriptor(self, fd: int, call: str) -> tuple[VirtualDevice, int]:
        entry = self._descriptors.get(fd)
        if entry is None:
            raise PortError(call, errno.EBADF, "the descriptor is not open on this machine")
        return entry

    def _refuse_if_faulty(self, name: str, call: str) -> None:
        if self.faults.active and (fault := self.faults.call(name)):
            raise PortError(call, fault.errno, "a fault of this machine says so")


def _check_host() -> None:
    """Reading memory of this process safely must work, or virtual kernels cannot check pointers."""
    probe = ctypes.c_uint32(0x1234)
    try:
        read_user(ctypes.addressof(probe), 4)
    except OSError as error:
        raise RingfenceError(
            f"virtual devices need process_vm_readv(2) on their own process, which fails here: {error}; "
            "a container or seccomp policy may forbid it"
        ) from error


def _make_devices(machine: Machine, names: Sequence[str]) -> tuple[VirtualDevice, ...]:
    """Return a device for each Adreno chip, and one for all AMD chips together, where the first stands."""
    from ringfence.hardware.adreno.chips import chip_by_name
    from ringfence.virtual.adreno.kgsl import KgslDevice

    devices: list[VirtualDevice] = []
    cards = [name for name in names if name.startswith("gfx")]
    adrenos = 0
    for name in names:
        if name.startswith("a"):
            devices.append(KgslDevice(machine, chip_by_name(name), adrenos))
            adrenos += 1
        elif not name.startswith("gfx"):
            raise UnsupportedDevice(
                f"no virtual device is called {name!r}; Adreno chips are, such as 'a630', and AMD chips, "
                "such as 'gfx1100'"
            )
        elif cards:
            devices.append(_make_kfd(machine, cards))
            cards = []
    return tuple(devices)


def _make_kfd(machine: Machine, names: Sequence[str]) -> VirtualDevice:
    from ringfence.hardware.amd.chips import chip_by_name
    from ringfence.virtual.amd.system import KfdSystem

    return KfdSystem(machine, [chip_by_name(name) for name in names])
