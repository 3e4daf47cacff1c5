"""What a process under the shim shares: its machine, and the calls of a client that are meant for it."""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringfence.errors import FaultReport, PortError, RingfenceError
from ringfence.virtual.memory import round_up
from ringfence.virtual.shim.platform import ClientDeviceLost, Platform, platform_of, report_path, requested
from ringfence.virtual.specification import VirtualSpec

if TYPE_CHECKING:
    from ringfence.virtual.machine import Machine
    from ringfence.virtual.shim.meter import Meter

_LOOK_SECONDS = 0.001


def _before_pools_end(action: Callable[[], None]) -> None:
    """Do something after the main thread has ended, while pools of threads and processes still take work.

    :mod:`concurrent.futures` shuts them down before anything registered with :mod:`atexit` runs: programs
    could not be translated any more. What was registered later is called earlier, so its modules are imported
    first.
    """
    import concurrent.futures.process
    import concurrent.futures.thread  # noqa: F401

    register: Callable[[Callable[[], None]], None] = threading._register_atexit  # type: ignore[attr-defined]
    register(action)


class Session:
    """The virtual device of this process, or ``count`` of them.

    Its machine is made when a node is first opened, and lives until the process exits. A child made by
    fork(2) has no share in its parent's machine, whose thread it did not inherit; it gets its own when it
    opens a node.

    ``faults`` are the reports of what failed, for the report at exit. Where the interface of the device has
    no room for them they are also printed to stderr.
    """

    def __init__(self, device: str, *, count: int = 1, report: str | None = None) -> None:
        self.device = device
        self.count = count
        self.specification: VirtualSpec = requested(device, count)
        self.faults: list[FaultReport] = []
        self._platform: Platform = platform_of(self.specification)
        self._report = None if report is None else report_path(report)
        self._lock = threading.Lock()
        self._machine: Machine | None = None
        self._meter: Meter | None = None
        self._files: dict[str, str] = {}
        # Registered before any client registers what it does at exit, which therefore still finds the
        # machine.
        atexit.register(self.close)
        _before_pools_end(self._drain)
        os.register_at_fork(after_in_child=self._forget)

    # ----- the machine ------------------------------------------------------------------------

    @property
    def machine(self) -> Machine:
        """Return the machine of this process; it is made now if there is none."""
        with self._lock:
            if self._machine is None:
                self._machine = self._make()
            return self._machine

    @property
    def running(self) -> bool:
        """Return whether there is a machine."""
        return self._machine is not None

    def _make(self) -> Machine:
        from ringfence.virtual.machine import Machine
        from ringfence.virtual.shim.meter import Meter

        wanted = self.specification
        self._meter = Meter(
            lambda: self._platform.executor(strict=wanted.strict, seed=wanted.seed), strict=wanted.strict
        )
        return Machine(
            (wanted.chip,) * self.count,
            mode="async",
            seed=wanted.seed,
            strict=wanted.strict,
            coherent=wanted.coherent,
            executor_factory=self._meter,
        )

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._machine, self._meter = None, None
        self._platform = platform_of(self.specification)
        self.faults = []

    def _drain(self) -> None:
        """The main thread has ended: let the machine finish what it was given."""
        machine = self._machine
        while machine is not None and machine.busy:
            time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Shut the machine down; later calls of the client fail."""
        machine = self._machine
        if machine is None or machine.closed:
            return
        self._write_report(machine)
        machine.close()

    def _write_report(self, machine: Machine) -> None:
        if self._report is None or self._meter is None:
            return
        line = {"process": os.getpid(), "device": self.device, **self._meter.summary()}
        line["notes"] = [
            {"kind": note.kind, "topic": note.topic, "text": note.text} for note in machine.notes
        ]
        line["faults"] = [str(fault) for fault in self.faults]
        try:
            with open(self._report, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            print(f"ringfence shim: error: no report in {self._report}: {error.strerror}", file=sys.stderr)

    # ----- calls ------------------------------------------------------------------------------

    def owns(self, path: str) -> bool:
        """Return whether a path is one of the machine's."""
        return path.startswith(self._platform.prefixes)

    def exists(self, path: str) -> bool:
        """Return whether the machine has this node, sysfs file or sysfs directory."""
        if path.startswith("/dev/"):
            return any(path in device.paths for device in self.machine.devices)
        return self._has(self.read_text, path) or self._has(self.list_directory, path)

    @staticmethod
    def _has(read: Callable[[str], object], path: str) -> bool:
        try:
            read(path)
        except PortError as error:
            if error.errno != errno.ENOENT:
                raise
            return False
        return True

    def open(self, path: str) -> int:
        """Open a device node; ``OSError`` as open(2)."""
        return self.machine.open(path)

    def close_descriptor(self, descriptor: int) -> None:
        """Close a descriptor.

        After the end of the machine, or in a forked child, there is nothing left to close.
        """
        machine = self._machine
        if machine is None or machine.closed:
            return
        with contextlib.suppress(PortError):
            machine.close(descriptor)

    def is_descriptor(self, descriptor: int) -> bool:
        """Return whether a descriptor belongs to a machine rather than to the kernel."""
        from ringfence.virtual.machine import FIRST_DESCRIPTOR

        return descriptor >= FIRST_DESCRIPTOR

    def ioctl(self, descriptor: int, request: int, address: int) -> int:
        """ioctl(2): return 0. ``OSError`` with the errno, :class:`ClientDeviceLost` if the device is lost."""
        machine, platform = self.machine, self._platform
        try:
            code = -machine.raw_ioctl(descriptor, request, address)
        except RingfenceError as error:
            raise ClientDeviceLost(f"the virtual device cannot go on: {error}", errno.EIO, None) from error
        if code:
            failure = platform.failure(machine, descriptor, request, address, code)
            report = failure.report if isinstance(failure, ClientDeviceLost) else None
            if report is not None and report not in self.faults:
                self.faults.append(report)
            raise failure
        for fault in platform.faults(machine, descriptor, request, address):
            self.faults.append(fault)
            print(f"ringfence shim: {self.device} failed: {fault}", file=sys.stderr, flush=True)
        return 0

    def mmap(self, descriptor: int, length: int, offset: int, *, writable: bool, address: int = 0) -> int:
        """mmap(2) of a node; ``OSError`` with the errno.

        ``address``, if not 0, is where to map, in place of what is there (MAP_FIXED).
        """
        if address and not self._platform.fixed_mappings:
            call = f"mmap(fd={descriptor}, length={length:#x}, address={address:#x}, MAP_FIXED)"
            raise PortError(call, errno.EINVAL, "the virtual kernel chooses where its objects are mapped")
        return self.machine.mmap(
            descriptor, length, offset, writable=writable, address=address, anywhere=True
        )

    def munmap(self, address: int, length: int) -> bool:
        """Undo :meth:`mmap`; whole pages are unmapped, as munmap(2) does it.

        Return ``False`` if (part of) the range is none of the machine's: the kernel's then.
        """
        if self._machine is None:
            return False
        try:
            self._machine.munmap(address, round_up(length))
        except PortError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
        return True

    def doorbell(self, address: int) -> Callable[[int], None] | None:
        """Return what a store to a mapped doorbell does; ``None`` if ``address`` is none."""
        machine = self._machine
        if machine is None:
            return None
        try:
            return machine.doorbell(address)
        except PortError as error:
            if error.errno != errno.EINVAL:
                raise
            return None

    def clean(self, address: int, length: int) -> None:
        """The client wrote its cache lines of this range back to memory."""
        if self._machine is not None:
            self._machine.clean(address, length)

    # ----- sysfs ------------------------------------------------------------------------------

    def read_text(self, path: str) -> str:
        """Return a sysfs file; ``OSError`` ENOENT."""
        return self._files.get(path) or self.machine.read_text(path)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a sysfs directory; ``OSError`` ENOENT."""
        return self.machine.list_directory(path)

    def write_text(self, path: str, text: str) -> None:
        """Write a sysfs file, as root could; ``OSError`` EACCES if the machine has none that can be."""
        self._files[path] = self._platform.written(path, text)
