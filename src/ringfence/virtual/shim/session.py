"""What a process under the shim shares: its machine, and the calls of a client that are meant for it."""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import threading
from typing import TYPE_CHECKING

from ringfence.errors import DeviceLost, FaultReport, PortError, RingfenceError
from ringfence.hardware.adreno import kgsl
from ringfence.virtual.specification import VirtualSpec, parse_virtual

if TYPE_CHECKING:
    from ringfence.virtual.machine import Machine
    from ringfence.virtual.shim.meter import Meter

PREFIXES = ("/dev/kgsl-3d", "/sys/class/kgsl/")
IDLE_TIMER = "/sys/class/kgsl/kgsl-3d0/idle_timer"
# What a 4.9 kernel with HZ=100 shows after it was told more milliseconds than fit a signed integer:
# msecs_to_jiffies gives MAX_JIFFY_OFFSET, and jiffies_to_msecs of that, in 32 bits. tinygrad's ops_qcom.py
# expects it.
ENDLESS_MS = 4_294_967_276


class ClientDeviceLost(DeviceLost, OSError, RuntimeError):
    """The virtual device is lost; ``report`` says why, with the traceback if the virtual GPU itself failed.

    An ``OSError`` because the call that failed is an ioctl, and a ``RuntimeError`` because that is what
    tinygrad's ``HCQSignal._sleep`` promises for a fault, and what makes it mark its device as failed.
    """

    def __init__(self, message: str, code: int, report: FaultReport | None) -> None:
        DeviceLost.__init__(self, message, report)
        self.errno = code


class Session:
    """The virtual device of this process.

    Its machine is made when a node is first opened, and lives until the process exits. A child made by
    fork(2) has no share in its parent's machine, whose thread it did not inherit; it gets its own when it
    opens a node.
    """

    def __init__(self, device: str, *, report: str | None = None) -> None:
        self.device = device
        self.specification: VirtualSpec = parse_virtual(device)
        self._report = report
        self._lock = threading.Lock()
        self._machine: Machine | None = None
        self._meter: Meter | None = None
        self._files: dict[str, str] = {}
        # Registered before any client registers what it does at exit, which therefore still finds the
        # machine.
        atexit.register(self.close)
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
        self._meter = Meter(strict=wanted.strict, seed=wanted.seed)
        return Machine(
            (wanted.chip,),
            mode="async",
            seed=wanted.seed,
            strict=wanted.strict,
            coherent=wanted.coherent,
            executor_factory=self._meter,
        )

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._machine, self._meter = None, None

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
        with open(self._report, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    # ----- calls ------------------------------------------------------------------------------

    def owns(self, path: str) -> bool:
        """Return whether a path is one of the machine's."""
        return path.startswith(PREFIXES)

    def exists(self, path: str) -> bool:
        """Return whether the machine has this node or sysfs file."""
        if path.startswith("/dev/"):
            return path == kgsl.DEVICE_PATH
        try:
            self.read_text(path)
        except FileNotFoundError:
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
        machine = self.machine
        try:
            code = -machine.raw_ioctl(descriptor, request, address)
        except RingfenceError as error:
            raise ClientDeviceLost(f"the virtual device cannot go on: {error}", errno.EIO, None) from error
        if code == 0:
            return 0
        if code == errno.EDEADLK:
            raise self._lost(machine, descriptor, request, address)
        raise OSError(code, f"{_name(request)}: {os.strerror(code)}")

    def _lost(self, machine: Machine, descriptor: int, request: int, address: int) -> ClientDeviceLost:
        declared = kgsl.IOCTLS.get(request & 0xFF)
        report = None
        if declared is not None and hasattr(declared, "context_id"):
            report = machine.explain(descriptor, declared.from_address(address).context_id)
        return ClientDeviceLost(f"{self.device} is lost, {_name(request)} says", errno.EDEADLK, report)

    def mmap(self, descriptor: int, length: int, offset: int, *, writable: bool) -> int:
        """mmap(2) of a node; ``OSError`` with the errno."""
        return self.machine.mmap(descriptor, length, offset, writable=writable)

    def munmap(self, address: int, length: int) -> bool:
        """Undo :meth:`mmap`.

        Return ``False`` if (part of) the range is none of the machine's: the kernel's then.
        """
        if self._machine is None:
            return False
        try:
            self._machine.munmap(address, length)
        except PortError as error:
            if error.errno != errno.EINVAL:
                raise
            return False
        return True

    def clean(self, address: int, length: int) -> None:
        """The client wrote its cache lines of this range back to memory."""
        if self._machine is not None:
            self._machine.clean(address, length)

    # ----- sysfs ------------------------------------------------------------------------------

    def read_text(self, path: str) -> str:
        """Return a sysfs file; ``OSError`` ENOENT."""
        return self._files.get(path) or self.machine.read_text(path)

    def write_text(self, path: str, text: str) -> None:
        """Write a sysfs file, as root could. Only the idle timer can be written.

        ``OSError`` EACCES otherwise.
        """
        if path != IDLE_TIMER:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        value = int(text)
        self._files[path] = f"{value if value < 1 << 31 else ENDLESS_MS}\n"


def _name(request: int) -> str:
    declared = kgsl.IOCTLS.get(request & 0xFF)
    return f"IOCTL_KGSL_{declared.__name__}" if declared is not None else f"ioctl {request:#x}"
