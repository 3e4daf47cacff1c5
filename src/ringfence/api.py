"""The public interface: opening devices, and what an open device can do."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ringfence.drivers.adreno.device import AdrenoDevice, look
from ringfence.errors import (
    CompileError,
    DeviceLost,
    LaunchError,
    RingfenceError,
    UnsupportedDevice,
    WaitTimeout,
)
from ringfence.hardware.adreno.chips import chip_from_id
from ringfence.hardware.adreno.kgsl import DEVICE_PATH
from ringfence.port import Port
from ringfence.port.linux import LinuxPort
from ringfence.runtime.compute import DEFAULT_TIMEOUT, ComputeDevice
from ringfence.runtime.copying import CopyResult
from ringfence.runtime.device import DeviceInfo
from ringfence.runtime.graph import Graph
from ringfence.runtime.memory import Buffer, CacheMode
from ringfence.runtime.program import CompiledProgram, Program
from ringfence.runtime.queue import Submission, check_timeout
from ringfence.runtime.stream import BoundStream, Parameter, Stream
from ringfence.runtime.timeline import Timeline
from ringfence.virtual.specification import VIRTUAL_CHIPS, VirtualSpec, parse_virtual

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from ringfence.hardware.amd.code_object import CodeObject
    from ringfence.virtual.machine import Machine

_FALLBACK_CHIP = "a630"
_FUTURE_INTERFACES = ("pci", "usb")
_EXTRA = "pip install 'ringfence[virtual]'"

Cache = Literal["writecombine", "uncached", "cached", "device"]


class Device:
    """An open device. :func:`open` makes one; use it in a ``with`` statement, or call :meth:`close`.

    >>> import numpy as np, ringfence as rf
    >>> with rf.open("virtual:a630") as dev:
    ...     x = dev.array(np.arange(8, dtype=np.float32), label="x")
    ...     y = dev.zeros(8, np.float32, label="y")
    ...     dev.copy(y, x).wait(timeout=1.0)
    ...     print(y.numpy().sum())
    28.0
    """

    def __init__(
        self,
        driver: ComputeDevice,
        name: str,
        machine: Machine | None = None,
        port: Port | None = None,
    ) -> None:
        self._driver = driver
        self._machine = machine
        self._port = port if port is not None else driver.port
        self.name = name
        # Calls of launch() go to the driver directly: passing everything on takes a twentieth of a launch.
        vars(self)["launch"] = driver.launch

    # ----- life -----------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Wait for everything submitted, then give everything back: memory, context, descriptor.

        Buffers, programs and streams of the device are of no use afterwards; memory that a numpy view still
        shows stays mapped until the view is gone. :class:`WaitTimeout` if the GPU does not finish within
        ``timeout`` seconds (the device's default if ``None``); everything was given back all the same.
        Closing twice does nothing.
        """
        check_timeout(timeout)
        try:
            self._driver.close(timeout)
        finally:
            machine, self._machine = self._machine, None
            if machine is not None:
                machine.close()

    def __enter__(self) -> Device:
        self._driver.check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        interrupted = error is not None and not isinstance(error, Exception)
        if interrupted and self._machine is not None:
            self._machine.cancel()
        try:
            self.close(timeout=0 if interrupted else None)
        except (DeviceLost, WaitTimeout) as failure:
            # A block that already fails does so for that very reason as a rule; one that is interrupted, as
            # by KeyboardInterrupt, must not wait.
            if error is None or (isinstance(failure, WaitTimeout) and not interrupted):
                raise

    def __repr__(self) -> str:
        return f"<Device {self.name!r}: {self.info.name}{', closed' if self._driver.closed else ''}>"

    @property
    def info(self) -> DeviceInfo:
        """Return what the device is: chip, kernel driver, limits, whether it is virtual."""
        return self._driver.info

    @property
    def port(self) -> Port:
        """Return the port below the device; of a virtual device that is its machine."""
        return self._port

    @property
    def lost(self) -> DeviceLost | None:
        """Return the error that the device was lost with, ``None`` if it lives. A lost device must be opened
        anew.
        """
        return self._driver.queue.lost

    @property
    def recovered_faults(self) -> int:
        """Return how often the kernel reported that it had recovered from a fault (EPROTO). Work went on each
        time.
        """
        return self._driver.engine.recovered_faults

    @property
    def memory_bytes(self) -> int:
        """Return how many bytes of memory the device has allocated or mapped, its own needs included."""
        return self._driver.memory.total_bytes

    @property
    def mapping_count(self) -> int:
        """Return how many allocations and imports exist, freed ones that still wait for the GPU included."""
        return self._driver.memory.mapping_count

    # ----- programs -------------------------------------------------------------------------------

    def load(self, blob: bytes | CodeObject | CompiledProgram, *, label: str | None = None) -> Any:
        """Return a program blob in device memory; index it with the name of a program in it.

        ``blob`` is the contents of a file, or a compiled program such as those of
        :func:`ringfence.compile.kernels.compile_tinygrad`. An Adreno blob is one program, which is returned.
        A code object (of clang, HIP, Triton, ...) is a :class:`ringfence.drivers.amd.program.Module`, which
        can be launched itself if it has a single kernel.

        :class:`PackageError` if the blob is damaged, of another version, or needs another chip or more than
        this one has.
        """
        return self._driver.load(blob, label=label)

    def compile(
        self,
        source: str,
        name: str | None = None,
        *,
        defines: Mapping[str, str | int] | None = None,
        options: Sequence[str] = (),
        label: str | None = None,
    ) -> Program:
        """Return a kernel of OpenCL C source by name, or its only one, compiled for this device and loaded.

        AMD only: no compiler of OpenCL C for Adreno is at hand. Needs ``ringfence[compile]``. ``defines`` are
        macros, ``options`` those of clang. :class:`CompileError` with clang's messages, or if there is no
        compiler for the device.
        """
        self._driver.check_open()
        if self.info.family != "amd":
            raise CompileError(
                f"OpenCL C cannot be compiled for {self.info.chip}: load a program blob, or compile a model"
            )
        from ringfence.compile.opencl import compile_opencl

        data = compile_opencl(source, arch=self.info.chip, defines=defines, options=options)
        program: Program = self._driver.load(data, label=label).kernel(name)
        return program

    def launch(
        self,
        program: Program,
        *args: Any,
        groups: Any = None,
        global_size: Any = None,
        local: Any = None,
        label: str | None = None,
    ) -> Submission:
        """Run ``program`` once and return the submission; it does not wait.

        ``args`` are buffers and numbers, in the order of the program's signature. ``groups`` counts
        work-groups and ``local`` the threads in each, as a number or a tuple of up to three (x, y, z);
        ``global_size`` counts work-items instead, and must be a multiple of ``local``, which may be left out
        if the compiler fixed it.

        :class:`LaunchError` for wrong arguments, geometry or resources: nothing was encoded then.
        :class:`DeviceLost` if the device is lost, :class:`PortError` if the kernel refuses. Each launch sees
        the results of earlier ones.
        """
        return self._driver.launch(
            program, *args, groups=groups, global_size=global_size, local=local, label=label
        )

    def synchronize(self, timeout: float | None = None) -> None:
        """Wait for everything that was submitted. :class:`WaitTimeout` after ``timeout`` seconds,
        :class:`DeviceLost`.
        """
        self._driver.synchronize(timeout)

    # ----- streams --------------------------------------------------------------------------------

    def record(self, label: str = "") -> Stream:
        """Return an empty stream to record commands into; :meth:`bind` makes it ready to be submitted."""
        return self._driver.record(label)

    def bind(self, stream: Stream, *, instances: int = 1, label: str | None = None) -> BoundStream:
        """Put the commands of ``stream`` into device memory, once; return what submits them.

        ``instances`` copies can be in flight at once; a submit waits if all of them are. Private memory is
        grown now if a program of the stream needs more, never when the stream is submitted.
        """
        return self._driver.bind(stream, instances=instances, label=label)

    def timeline(self, label: str = "") -> Timeline:
        """Return a new timeline for streams to signal and to wait for."""
        return self._driver.timeline(label)

    def capture(self, label: str = "") -> AbstractContextManager[Graph]:
        """Record what this thread launches and copies in the block, instead of submitting it.

        The block's target is the graph: :meth:`Graph.bind` makes it ready to be replayed, once the block has
        ended. Launches return submissions that stay encoded. Arguments that are a :class:`Parameter` with a
        default can be given anew at each replay. Where one launch needs the results of another, a barrier is
        put between them; others may run at the same time. Other threads are not concerned: they can capture
        too. See :class:`Graph` for an example.
        """
        return self._driver.capture(label)

    # ----- memory ---------------------------------------------------------------------------------

    def array(self, array: NDArray[Any], label: str | None = None, *, cache: Cache | None = None) -> Buffer:
        """Return a buffer with a copy of ``array``, and its dtype and shape."""
        return self._driver.array(array, cache=_cache_mode(cache), label=label or "")

    def empty(
        self,
        shape: int | tuple[int, ...],
        dtype: DTypeLike,
        label: str | None = None,
        *,
        cache: Cache | None = None,
    ) -> Buffer:
        """Return a buffer for an array of ``shape`` and ``dtype``, with contents that nobody promises.

        ``cache`` is how the CPU maps it: ``"writecombine"`` is fast to write and slow to read, ``"cached"``
        fast both ways but each transfer costs a cache maintenance call; on AMD it is memory of the host.
        ``"device"`` (AMD) is memory that the CPU does not reach: contents are copied through the host's. The
        default is ``"writecombine"``, or ``"device"`` where the CPU reaches no memory of the GPU.
        :class:`PortError` (ENOMEM) if there is no memory.
        """
        return self._driver.empty(shape, dtype, cache=_cache_mode(cache), label=label or "")

    def zeros(
        self,
        shape: int | tuple[int, ...],
        dtype: DTypeLike,
        label: str | None = None,
        *,
        cache: Cache | None = None,
    ) -> Buffer:
        """Return a buffer full of zeros; otherwise as :meth:`empty`."""
        return self._driver.zeros(shape, dtype, cache=_cache_mode(cache), label=label or "")

    def import_array(
        self,
        source: NDArray[Any] | int,
        nbytes: int | None = None,
        *,
        dtype: DTypeLike | None = None,
        shape: tuple[int, ...] | None = None,
        owner: object = None,
        writable: bool = True,
        may_be_gpu_address: bool = False,
        label: str | None = None,
    ) -> Buffer:
        """Return CPU memory as a buffer, without a copy: an array, or ``nbytes`` bytes at an address.

        Neither address nor size need be aligned. The array, or ``owner`` of a bare address, is kept alive
        until the buffer is freed and the GPU has finished with it. A read-only array, or ``writable=False``,
        is mapped read-only; a launch whose program says that it writes such memory is refused.

        What the CPU writes into the memory later is seen by the GPU after :meth:`Buffer.flush`; what the GPU
        writes is seen by the CPU after :meth:`Submission.wait`, :meth:`Buffer.numpy` or
        :meth:`Buffer.invalidate`. While the GPU writes, the CPU must leave the first and last 64-byte line of
        the buffer alone, neighbours included.

        If the kernel cannot map the range because it is GPU memory already, the address is used as a GPU
        address, but only if ``may_be_gpu_address`` says that it may be one; the buffer is then foreign, never
        freed by this library, and not readable from the CPU. :class:`LeaseError` for a null pointer, an empty
        or an unmapped range.
        """
        return self._driver.import_array(
            source,
            nbytes,
            dtype=dtype,
            shape=shape,
            owner=owner,
            writable=writable,
            may_be_gpu_address=may_be_gpu_address,
            label=label or "",
        )

    def import_buffer(self, buffer: Buffer, label: str | None = None) -> Buffer:
        """Return a buffer of another device as a buffer of this one, without a copy: both map the memory.

        It is foreign to this device. Either device may be closed, and either buffer freed, first: the memory
        lives until the last of them lets go. Devices do not wait for each other: before one uses what the
        other writes, wait for the other's :class:`Submission`. The CPU waits for both by itself
        (:meth:`Buffer.numpy`).

        AMD only, for GPUs behind the same KFD: memory of the host (``cache="cached"``) can always be shared,
        VRAM where the kernel has peer-to-peer access. :class:`LeaseError` if it cannot be.
        """
        return self._driver.import_buffer(buffer, label=label or "")

    def copy(
        self,
        destination: Buffer | NDArray[Any] | Parameter,
        source: Buffer | NDArray[Any] | Parameter,
        timeout: float | None = None,
    ) -> CopyResult:
        """Copy between two buffers, or between a buffer and an array, of the same size in bytes.

        The result says which path was taken and why: two buffers of the device are copied by a kernel
        (``result.submission``, or ``result.wait()``), everything else by the CPU after waiting for the GPU's
        last use, with ``timeout``. While a graph is captured, sides are buffers, or parameters with one as
        their default. :class:`LaunchError` if sizes or types differ or the ranges overlap.
        """
        return self._driver.copy(destination, source, timeout)

    # ----- packages -------------------------------------------------------------------------------

    def load_package(self, path: str | os.PathLike[str]) -> Any:
        """Return the model in a package file, ready to run: ``model.run(x=array)`` gives its outputs by name.

        :class:`PackageError` if the file is damaged or was compiled for another device.
        """
        self._driver.check_open()
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"a package is named by its path, not by {type(path).__name__}")
        from ringfence.package.model import Model

        return Model(self, path)


def _cache_mode(name: Cache | None) -> CacheMode | None:
    try:
        return None if name is None else CacheMode(name)
    except ValueError:
        known = ", ".join(mode.value for mode in CacheMode)
        raise LaunchError(f"cache={name!r}: known are {known}") from None


# ----- opening ------------------------------------------------------------------------------------


def open(
    spec: str = "auto",
    *,
    port: Port | None = None,
    path: str = DEVICE_PATH,
    visible: str | None = None,
    priority: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    label: str | None = None,
) -> Device:
    """Open a device. The result is a context manager.

    ``spec`` is one of

    * ``"kgsl"``: the Adreno GPU behind ``path``,
    * ``"kfd"`` or ``"kfd:0"``: an AMD GPU, by number, UUID (``kfd:GPU-...``) or PCI address
      (``kfd:0000:03:00.0``), of those that ``visible`` names; by default ROCR_VISIBLE_DEVICES says which,
    * ``"virtual:a630"`` (or a640, a643, a650, a660, gfx1100, gfx1101, gfx1102): a virtual device, with
      options as in a URL: ``strict`` (1, or 0 to skip the checks), ``seed``, ``mode`` (``inline`` or
      ``async``), ``clock`` (``hybrid``, ``virtual`` or ``real``), ``coherent`` (1: imported memory needs no
      cache maintenance, as always on AMD),
    * ``"auto"``: the first real device, or else a virtual one, with a notice on stderr.

    ``priority`` of the context is 1 (most urgent) to 15 for KGSL, of the queue 0 to 15 (most urgent) for KFD;
    ``None`` is the middle. ``timeout`` is the deadline in seconds of every wait that has none of its own.
    ``port`` is used instead of the operating system: a machine with several devices, say.

    :class:`PortError` tells why the kernel refused (EACCES, ENOENT, ...), :class:`UnsupportedDevice` names
    the chip id of a GPU that is not driven, or what is wrong with ``spec``. Nothing is left behind.
    """
    if not isinstance(spec, str):
        raise TypeError(f"a device is named by text such as 'auto' or 'virtual:a630', not by {spec!r}")
    kind = spec.partition(":")[0]
    options: dict[str, Any] = {"timeout": timeout, "label": label or spec}
    if priority is not None:
        options["priority"] = priority
    if spec == "auto":
        return _open_auto(path=path, visible=visible, priority=priority, timeout=timeout, label=label)
    if spec == "kgsl":
        return Device(AdrenoDevice(port or LinuxPort(), path=path, **options), spec)
    if kind == "kfd":
        name = spec.partition(":")[2] or "0"
        return Device(_amd_device(port or LinuxPort(), name=name, visible=visible, **options), spec)
    if kind == "virtual":
        return _open_virtual(parse_virtual(spec), spec, options)
    if kind in _FUTURE_INTERFACES:
        raise UnsupportedDevice(f"device {spec!r}: AMD GPUs are not reached through {kind} by this version")
    raise UnsupportedDevice(f"device {spec!r}: not one of auto, kgsl, kfd:<number>, virtual:<chip>")


def _amd_device(port: Port, **options: Any) -> ComputeDevice:
    from ringfence.drivers.amd.device import AmdDevice

    return AmdDevice(port, **options)


def _open_auto(**options: Any) -> Device:
    reasons = []
    for spec in ("kgsl", "kfd"):
        try:
            return open(spec, **options)
        except RingfenceError as error:
            reasons.append(str(error))
    device = open(f"virtual:{_FALLBACK_CHIP}", **options)
    _say_once(
        f"ringfence: no real device ({'; '.join(reasons)}); using a virtual {_FALLBACK_CHIP}, which is not a "
        "GPU"
    )
    return device


@cache
def _say_once(text: str) -> None:
    """Print a line to stderr, unless this process has printed this very line."""
    print(text, file=sys.stderr)


def _open_virtual(wanted: VirtualSpec, name: str, options: dict[str, Any]) -> Device:
    machine = make_machine(wanted)
    try:
        if wanted.interface == "kfd":
            driver = _amd_device(machine, visible="0", **options)
        else:
            driver = AdrenoDevice(machine, **options)
    except BaseException:
        machine.close()
        raise
    return Device(driver, name, machine)


def make_machine(wanted: VirtualSpec) -> Machine:
    """Return a machine with one device. :class:`UnsupportedDevice` if something that it needs is not
    installed.
    """
    if importlib.util.find_spec("llvmlite") is None:
        raise UnsupportedDevice(f"virtual:{wanted.chip} needs llvmlite, which is not installed: {_EXTRA}")
    from ringfence.virtual.machine import Machine

    return Machine(
        (wanted.chip,),
        mode=wanted.mode,
        clock=wanted.clock,
        seed=wanted.seed,
        strict=wanted.strict,
        coherent=wanted.coherent,
    )


# ----- discovery ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Candidate:
    """A device that was looked for. ``spec`` opens it if it is ``available``.

    ``tried`` lists what was done to find out, ``detail`` what was found, ``reason`` why it is not available.
    """

    spec: str
    kind: Literal["real", "virtual"]
    available: bool
    tried: tuple[str, ...]
    detail: str = ""
    reason: str = ""


def discover(
    *, port: Port | None = None, path: str = DEVICE_PATH, visible: str | None = None
) -> list[Candidate]:
    """Return every real and virtual device that could be opened, or why it cannot. Never raises for a missing
    device. ``visible`` is as in :func:`open`.
    """
    real = [_discover_kgsl(port or LinuxPort(), path), *_discover_kfd(port or LinuxPort(), visible)]
    virtual = [_discover_virtual(chip) for chip in VIRTUAL_CHIPS]
    future = [
        Candidate(spec, "real", False, (), reason="AMD GPUs are not reached this way by this version")
        for spec in _FUTURE_INTERFACES
    ]
    return [*real, *future, *virtual]


def _discover_kgsl(port: Port, path: str) -> Candidate:
    tried = [f"open {path}"]
    detail = ""
    try:
        fd = port.open(path)
        try:
            tried.append("read device info, driver version and model")
            found = look(port, fd)
            detail = ", ".join(
                filter(None, (f"chip id {found.chip_id:#x}", found.driver_version, found.model))
            )
            tried.append("look the chip id up")
            chip = chip_from_id(found.chip_id)
        finally:
            port.close(fd)
    except Exception as error:  # a diagnosis survives whatever is broken, and shows it
        return Candidate("kgsl", "real", False, tuple(tried), detail, _text(error))
    return Candidate("kgsl", "real", True, tuple(tried), f"{chip.name}: {detail}")


def _discover_kfd(port: Port, visible: str | None) -> list[Candidate]:
    from ringfence.drivers.amd.kfd import find_gpus, supported

    tried = ["read the topology of KFD"]
    try:
        gpus = find_gpus(port, visible)
        if not gpus:
            raise UnsupportedDevice("KFD has no GPU that this process may use")
    except Exception as error:  # a diagnosis survives whatever is broken, and shows it
        return [Candidate("kfd", "real", False, tuple(tried), reason=_text(error))]
    found = []
    for gpu in gpus:
        spec = f"kfd:{gpu.index}"
        try:
            supported(gpu)
            found.append(Candidate(spec, "real", True, (*tried, "look the target up"), str(gpu)))
        except Exception as error:  # as above
            found.append(Candidate(spec, "real", False, tuple(tried), str(gpu), _text(error)))
    return found


def _discover_virtual(chip: str) -> Candidate:
    tried = ("find llvmlite", "start a machine")
    spec = f"virtual:{chip}"
    try:
        make_machine(VirtualSpec(chip)).close()
    except Exception as error:  # as above
        return Candidate(spec, "virtual", False, tried, reason=_text(error))
    return Candidate(
        spec, "virtual", True, tried, f"{chip}: executes the real commands and machine code on this CPU"
    )


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, RingfenceError) else f"{type(error).__name__}: {error}"
