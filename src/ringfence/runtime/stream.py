"""Streams: recorded commands, and what becomes of them when they are bound to a device.

A :class:`Stream` is device-neutral. The driver's encoder turns it into an :class:`Encoded`: dwords, a data
section (argument blocks and time stamps) and lists of patches. :class:`Template` does the link-time patches,
:class:`BoundStream` the submit-time ones. Nothing on the submit path loops over commands: patches are grouped
per value, and one vectorised store writes each group.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ringfence.errors import LaunchError
from ringfence.runtime.device import Geometry
from ringfence.runtime.memory import Buffer, Mapping, Memory, UseMark, span
from ringfence.runtime.queue import Queue, Submission
from ringfence.runtime.timeline import Fence, Point, Slot, Timeline

SECTION_ALIGNMENT = 256
SIGNAL = struct.Struct(
    "<QI"
)  # address and 32-bit value, as signals and waits hold them in consecutive dwords
_WIDTHS = (1, 2, 4, 8)
RESERVED_NAMES = ("label", "inputs", "self")  # what submit() and replay() already take
UNSHARED = 2
"""``sys.getrefcount`` of what only an instance refers to, besides the call: nobody is left to ask such a
submission for its times."""


# ----- what is recorded ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument whose value is given at each submit, as the keyword ``name``.

    ``default`` is taken where none is given: a buffer or a number, ``None`` if something must be given.
    """

    name: str
    default: Any = None

    def __post_init__(self) -> None:
        name = self.name
        if not isinstance(name, str) or not name.isidentifier() or name in RESERVED_NAMES:
            reserved = ", ".join(map(repr, RESERVED_NAMES))
            raise LaunchError(
                f"parameter {name!r}: the name must be a Python identifier other than {reserved}"
            )


@dataclass(frozen=True, slots=True)
class Barrier:
    """Everything before is finished, written back and visible before anything after."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until a point is reached; of a timeline: its last point that was submitted when this stream is."""

    target: Point | Timeline


@dataclass(frozen=True, slots=True)
class Signal:
    """Signal the next point of a timeline, once everything before is finished."""

    target: Timeline


@dataclass(frozen=True, slots=True)
class TimeStamp:
    """Record the GPU's clock in a slot of the submission, once everything before is finished."""

    slot: int


@dataclass(frozen=True, slots=True)
class Access:
    """A buffer that a launch reads, and (``written``) may write.

    For a :class:`Parameter` it is the default, ``None`` if there is none.
    """

    buffer: Buffer | None
    written: bool
    parameter: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Dispatch:
    """One launch, already checked. ``values`` hold an address, a number or a Parameter per argument.

    ``uses`` are the mappings that it names, ``accesses`` the buffers, which it keeps alive. Without a
    ``label`` it is called as its program. The buffers of a ``copy``, destination and source, never overlap.
    """

    program: Any
    values: tuple[Any, ...]
    geometry: Geometry
    uses: tuple[Mapping, ...] = ()
    accesses: tuple[Access, ...] = ()
    label: str = ""
    copy: bool = False


Operation = Barrier | Wait | Signal | TimeStamp | Dispatch
Guard = Callable[[MappingOf[str, Any], Sequence[Mapping]], None]
"""Raises :class:`LaunchError` if parameters, each of which fits its arguments, do not fit together. It also
gets the mappings of the buffers among them."""


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Private memory that the programs of a device share: it serves those that need up to ``nbytes`` in all.

    ``dwords`` are what commands say of it: consecutive dwords, as bytes.
    """

    mapping: Mapping
    nbytes: int
    dwords: bytes


class StreamDriver(Protocol):
    """What streams need of a device's driver."""

    @property
    def memory(self) -> Memory:
        """The memory of the device."""

    @property
    def queue(self) -> Queue:
        """The compute queue of the device."""

    @property
    def domain(self) -> object:
        """Timelines with an equal domain can be reached from this device."""

    def prepare(
        self, program: Any, args: Sequence[Any], *, groups: Any, global_size: Any, local: Any
    ) -> Dispatch:
        """Return the checked dispatch; :class:`LaunchError` if it cannot run."""

    def prepare_copy(
        self, destination: Buffer | Parameter, source: Buffer | Parameter, nbytes: int | None = None
    ) -> Dispatch:
        """Return the dispatch that copies ``nbytes``, by default all; :class:`LaunchError` says why there is
        none.
        """

    def encode(self, operations: Sequence[Operation]) -> Encoded:
        """Return the commands, with time stamps, a barrier and the final signal around them."""

    def bind(
        self,
        stream: Stream,
        *,
        instances: int = 1,
        label: str | None = None,
        guard: Guard | None = None,
    ) -> BoundStream:
        """Put the stream's commands into device memory; see :class:`BoundStream`."""

    def make_command(self, gpu_address: int, nbytes: int) -> Any:
        """Return what :meth:`commit` needs to submit the commands at an address."""

    def reserve_stack(self, nbytes: int) -> tuple[Stack, float]:
        """Return private memory of at least ``nbytes`` in all, and the seconds that growing it took."""

    def register(self, holder: Holder) -> None:
        """Remember, weakly, what must let go of device memory when the device is closed."""

    def commit(self, instance: Instance, submission: Submission, fences: Sequence[Fence] = ()) -> None:
        """Submit an instance as the next point of the device's timeline. The queue's lock is held.

        The kernel holds it back until ``fences`` have retired.
        """


@dataclass(frozen=True, slots=True)
class Origin:
    """What commands belong to, by labels: the submission, and the launch and its program if that is known."""

    submission: str
    launch: str | None
    program: str | None


class Holder(Protocol):
    """Something that holds views of device memory."""

    def origin(self, address: int | None, value: int) -> Origin | None:
        """Return what the commands at a GPU address, or if it is ``None`` those of timeline ``value``, do;
        ``None`` if they are not here.
        """

    def let_go(self) -> None:
        """Drop them. Nothing can be submitted with it afterwards."""


class Stream:
    """Recorded commands for one device. Every method checks at once, so a wrong launch is reported where it
    is recorded.

    Dispatches without a barrier between them may run at the same time, and need not see each other's results.

    >>> import numpy as np, ringfence as rf
    >>> with rf.open("virtual:a630") as dev:
    ...     x, y, z = (dev.zeros(16, np.float32) for _ in range(3))
    ...     bound = dev.bind(dev.record().copy(y, x).barrier().copy(z, y))
    ...     bound.submit().wait(timeout=1.0)
    """

    def __init__(self, driver: StreamDriver, label: str = "") -> None:
        self._driver = driver
        self.label = label
        self.operations: list[Operation] = []
        self._slots = 0  # time stamps that were recorded: looking for them each time would be quadratic

    def dispatch(
        self,
        program: Any,
        args: Sequence[Any],
        groups: Any = None,
        local: Any = None,
        *,
        global_size: Any = None,
    ) -> Stream:
        """Record a launch of ``program``. Arguments may be :class:`Parameter`; :class:`LaunchError` on bad
        input.
        """
        self.operations.append(
            self._driver.prepare(program, args, groups=groups, global_size=global_size, local=local)
        )
        return self

    def copy(
        self, destination: Buffer | Parameter, source: Buffer | Parameter, nbytes: int | None = None
    ) -> Stream:
        """Record a copy between buffers of the device, by a kernel. :class:`LaunchError` if there is none for
        them.
        """
        self.operations.append(self._driver.prepare_copy(destination, source, nbytes))
        return self

    def barrier(self) -> Stream:
        """Record: finish everything before, write back and invalidate caches, then go on."""
        self.operations.append(Barrier())
        return self

    def timestamp(self, slot: int) -> Stream:
        """Record the GPU's clock in ``slot`` (0, 1, ...) of each submission's ``timestamps``."""
        if slot != self._slots:
            raise LaunchError(
                f"stream {self.label!r}: time stamp slot {slot}; the next free one is {self._slots}"
            )
        self.operations.append(TimeStamp(slot))
        self._slots += 1
        return self

    def wait(self, target: Point | Timeline) -> Stream:
        """Record: go on only when ``target`` is reached (see :class:`Wait`).

        The device that ``target`` belongs to must stay open until the submission is complete.
        """
        self._check_domain(target.timeline if isinstance(target, Point) else target)
        self.operations.append(Wait(target))
        return self

    def signal(self, target: Timeline) -> Stream:
        """Record: signal the next point of ``target``; each submission has it in ``points``.

        The device's own timeline is signalled at the end of every submission by itself.
        """
        self._check_domain(target)
        if target is self._driver.queue.timeline:
            raise LaunchError(
                f"stream {self.label!r}: every submission signals the device's timeline at its end"
            )
        if any(isinstance(op, Signal) and op.target is target for op in self.operations):
            raise LaunchError(f"stream {self.label!r} already signals timeline {target.label!r}")
        self.operations.append(Signal(target))
        return self

    def _check_domain(self, timeline: Timeline) -> None:
        if not isinstance(timeline, Timeline):
            raise LaunchError(
                f"stream {self.label!r}: {type(timeline).__name__} is no timeline, or its point"
            )
        if timeline.domain != self._driver.domain:
            raise LaunchError(
                f"stream {self.label!r}: timeline {timeline.label!r} lives in memory that this device cannot "
                "reach"
            )


# ----- what the encoder makes of it ---------------------------------------------------------------


@dataclass(slots=True)
class Places:
    """Where the value of a parameter goes: byte offsets in the data section, all ``width`` bytes wide.

    ``code`` is its struct code; ``address`` says that buffers are given for it. ``checks`` turn what the user
    gave into the number to store (for floats: into their bit pattern) and raise :class:`LaunchError` if it
    does not fit; there is one per distinct demand of the arguments that take the parameter, not one per
    argument. ``default`` is the number to store if nothing is given.
    """

    width: int
    code: str
    address: bool
    default: int | None = None
    offsets: list[int] = field(default_factory=list)
    checks: dict[Any, Callable[[Any], int]] = field(default_factory=dict)


@dataclass(slots=True)
class Encoded:
    """A stream as dwords and data. Positions count dwords; an address or 64-bit value is two, low first.

    ``links`` are the positions of addresses in the data section, with the offset there; ``data_links`` are
    those in the data section itself, in bytes. ``signal`` is the
    position of address and value of the final signal, ``waits`` and ``signals`` those of other points.
    ``stack`` are the positions of :attr:`Stack.dwords`; of private memory the programs need ``stack_bytes``
    in all. ``ticks`` are offset and number of the 64-bit time stamps: begin, end, then the stream's own.
    ``starts`` are the positions at which the commands of the operations begin.
    ``uses`` must stay mapped, ``keep`` alive.
    """

    words: list[int] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    links: list[tuple[int, int]] = field(default_factory=list)
    data_links: list[tuple[int, int]] = field(default_factory=list)
    signal: int = 0
    waits: list[tuple[int, Point | Timeline]] = field(default_factory=list)
    signals: list[tuple[int, Timeline]] = field(default_factory=list)
    stack: list[int] = field(default_factory=list)
    stack_bytes: int = 0
    ticks: tuple[int, int] = (0, 2)
    parameters: dict[str, Places] = field(default_factory=dict)
    uses: list[Mapping] = field(default_factory=list)
    keep: list[Any] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)


class Template:
    """An :class:`Encoded` as it is copied into device memory: dwords, then the data section."""

    def __init__(self, encoded: Encoded) -> None:
        self.encoded = encoded
        self.words: NDArray[np.uint32] = np.array(encoded.words, np.uint32)
        self.data_offset = _round_up(self.words.nbytes, SECTION_ALIGNMENT)
        self.nbytes = self.data_offset + _round_up(len(encoded.data), SECTION_ALIGNMENT)
        self._low = np.array([position for position, _ in encoded.links], np.intp)
        self._offsets = np.array([offset for _, offset in encoded.links], np.uint64)

    def write(self, memory: NDArray[np.uint8], gpu_address: int) -> None:
        """Write commands and data to ``memory``, which the GPU has at ``gpu_address``."""
        words = self.words.copy()
        addresses = self._offsets + np.uint64(gpu_address + self.data_offset)
        words[self._low] = (addresses & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        words[self._low + 1] = (addresses >> np.uint64(32)).astype(np.uint32)
        memory[: words.nbytes] = words.view(np.uint8)
        memory[self.data_offset : self.data_offset + len(self.encoded.data)] = np.frombuffer(
            bytes(self.encoded.data), np.uint8
        )
        for at, offset in self.encoded.data_links:
            address = gpu_address + self.data_offset + offset
            place = self.data_offset + at
            memory[place : place + 8] = np.frombuffer(address.to_bytes(8, "little"), np.uint8)


class Instance:
    """One copy of commands and data in device memory. Only one submission at a time may be using it.

    ``memory`` and the views of it keep the device memory mapped. ``value`` is the timeline value after which
    the GPU has finished with it. ``store`` writes all arguments of a launch. ``setters`` store the value of a
    parameter, ``parameters`` are the values that were stored last.
    """

    __slots__ = (
        "command",
        "geometry",
        "gpu_address",
        "memory",
        "parameters",
        "setters",
        "signal",
        "slot",
        "stack",
        "store",
        "submission",
        "ticks",
        "value",
        "views",
        "words",
    )

    def __init__(
        self, template: Template, memory: ctypes.Array[ctypes.c_uint8], gpu_address: int, command: Any
    ) -> None:
        whole: NDArray[np.uint8] = np.frombuffer(memoryview(memory), np.uint8)
        template.write(whole, gpu_address)
        first, count = template.encoded.ticks
        begin = template.data_offset + first
        self.memory = memoryview(memory).cast("B")
        self.ticks = self.memory[begin : begin + 8 * count].cast("Q")
        self.views: dict[int, NDArray[Any]] = {width: whole.view(f"<u{width}") for width in _WIDTHS}
        self.words = self.memory.cast("I")
        self.signal = template.encoded.signal + 2
        self.slot: Slot | None = None
        self.gpu_address = gpu_address
        self.command = command
        self.value = 0
        self.submission: Submission | None = None
        self.geometry: object = None
        self.stack: Stack | None = None
        self.parameters: dict[str, int] = {}
        self.setters: dict[str, Callable[[int], None]] = {}
        self.store: Callable[..., None] = _nothing_to_store

    def link_slot(self, slot: Slot) -> None:
        """Let the commands end with a store to a timeline's slot."""
        struct.pack_into("<Q", self.memory, 4 * self.signal - 8, slot.gpu_address)
        self.slot = slot

    def read_ticks(self) -> tuple[int, ...]:
        """Return the time stamps that the GPU wrote."""
        return tuple(self.ticks)

    def holds(self, address: int | None, value: int) -> bool:
        """Return whether a GPU address, or if it is ``None`` the last submission by its value, is here."""
        if address is None:
            return self.value == value
        return self.gpu_address <= address < self.gpu_address + self.memory.nbytes

    def settle(self, now: Callable[[], float]) -> None:
        """Hand the time stamps of the last submission, which must be complete, over to it."""
        if self.submission is not None and sys.getrefcount(self.submission) > UNSHARED:
            self.submission.settle(now())
        self.submission = None

    def retire(self, queue: Queue) -> None:
        """Part from the last submission for good: it keeps this instance if it is not complete."""
        if self.submission is not None and queue.completed(self.value):
            self.settle(queue.now)
        elif self.submission is not None and queue.lost is not None:
            self.submission.abandon()
        self.submission = None

    def link_stack(self, positions: Sequence[int], stack: Stack) -> None:
        """Store where private memory is at dword ``positions``."""
        for position in positions:
            self.memory[4 * position : 4 * position + len(stack.dwords)] = stack.dwords
        self.stack = stack


def _nothing_to_store() -> None:
    """A launch without arguments."""


def make_instances(
    driver: StreamDriver, template: Template, count: int, label: str
) -> tuple[Buffer, list[Instance]]:
    """Return ``count`` instances of ``template``, and the buffer that they live in."""
    mapping = driver.memory.allocate(count * template.nbytes, label=label)
    buffer = Buffer(driver.memory, mapping)
    instances = []
    for index in range(count):
        offset = index * template.nbytes
        address = mapping.gpu_address + offset
        command = driver.make_command(address, template.words.nbytes)
        memory = driver.memory.view(mapping, offset, template.nbytes)
        instances.append(Instance(template, memory, address, command))
    return buffer, instances


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


# ----- bound streams ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Patch:
    """One parameter: the bytes of an instance to store to.

    ``check`` turns what the user gives into the number to store. ``default`` is the number to store if
    nothing is given; ``None``: something must be.
    """

    width: int
    offsets: NDArray[np.intp]
    check: Callable[[Any], int]
    address: bool
    default: int | None

    def setter(self, instance: Instance) -> Callable[[int], None]:
        """Return what stores a value to all places of an instance at once."""
        width, offsets = self.width, self.offsets
        if width not in _WIDTHS or (offsets % width).any():  # a structure
            return functools.partial(_store_bytes, instance.memory, offsets.tolist(), width)
        view, index = instance.views[width], offsets // width
        steps = np.unique(np.diff(index))
        if len(steps) > 1:
            return functools.partial(view.__setitem__, index)
        step = int(steps[0]) if len(steps) else 1
        fill: Callable[[int], None] = view[index[0] : index[-1] + 1 : step].fill
        return fill


def _store_bytes(memory: memoryview, offsets: Sequence[int], width: int, number: int) -> None:
    data = number.to_bytes(width, "little")
    for offset in offsets:
        memory[offset : offset + width] = data


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy of which a side can be given at a submit: of each side the parameter, if it is one, and where
    what was recorded begins.
    """

    destination: tuple[str | None, int]
    source: tuple[str | None, int]
    nbytes: int

    def overlaps(self, given: MappingOf[str, Any]) -> bool:
        """Return whether the sides overlap if these parameters are given."""
        return abs(_begin(self.destination, given) - _begin(self.source, given)) < self.nbytes


def _begin(side: tuple[str | None, int], given: MappingOf[str, Any]) -> int:
    name, recorded = side
    return span(given[name])[0] if name is not None and name in given else recorded


def _open_copies(operations: Sequence[Operation]) -> tuple[_Copy, ...]:
    """Return the copies whose sides parameters may bring together, each once."""
    copies: dict[_Copy, None] = {}
    for operation in operations:
        if isinstance(operation, Dispatch) and operation.copy:
            sides, sizes = [], []
            for access in operation.accesses:
                assert access.buffer is not None
                begin, end = span(access.buffer)
                sides.append((access.parameter, begin))
                sizes.append(end - begin)
            if sides[0][0] is not None or sides[1][0] is not None:
                copies[_Copy(sides[0], sides[1], sizes[0])] = None
    return tuple(copies)


class BoundStream:
    """A stream whose commands and argument blocks lie in device memory.

    Everything that it refers to stays alive and mapped as long as it does, even if it is freed meanwhile. The
    largest private memory of its programs was reserved when it was bound. ``instances`` copies can be in
    flight at once. ``guard`` is asked about the buffers that a submit gives.
    """

    def __init__(
        self,
        driver: StreamDriver,
        stream: Stream,
        *,
        instances: int = 1,
        label: str | None = None,
        guard: Guard | None = None,
    ) -> None:
        if not isinstance(instances, (int, np.integer)) or instances < 1:
            raise LaunchError(
                f"stream {stream.label!r}: bind with {instances!r} instances; a whole number of at "
                "least one is needed"
            )
        self.label = stream.label if label is None else label
        self._driver = driver
        self._guard = guard
        self._queue = driver.queue
        self._memory = driver.memory
        self._timeline = driver.queue.timeline
        self._now = driver.queue.now
        encoded = driver.encode(stream.operations)
        self._encoded = encoded
        self._operations = tuple(stream.operations)
        self._copies = _open_copies(self._operations)
        self.stack_growth = 0.0
        """Seconds that growing the device's private memory took when the stream was bound."""
        template = Template(encoded)
        self.command_bytes = template.words.nbytes
        """Size of the commands, in bytes."""
        self._mark = UseMark()
        self._pinned: list[Mapping] = []
        self._instances: list[Instance] = []
        self._next = 0
        self._patches = {name: _patch(template, places) for name, places in encoded.parameters.items()}
        with driver.queue.lock:
            self._check_mapped(encoded.uses)
            stack, self.stack_growth = driver.reserve_stack(encoded.stack_bytes)
            self._buffer, self._instances = make_instances(
                driver, template, instances, f"stream {self.label}"
            )
            for instance in self._instances:
                instance.link_stack(encoded.stack, stack)
                instance.setters = {name: patch.setter(instance) for name, patch in self._patches.items()}
            self._pin([*encoded.uses, stack.mapping, self._buffer.mapping])
        self._cached = tuple(mapping for mapping in self._pinned if mapping.cpu_cached)
        driver.register(self)

    def _check_mapped(self, mappings: Sequence[Mapping]) -> None:
        for mapping in mappings:
            if mapping.space is not self._memory:
                raise LaunchError(
                    f"bind of stream {self.label!r}: {mapping}, which it uses, was freed meanwhile"
                )

    def _pin(self, mappings: Sequence[Mapping]) -> None:
        for mapping in {id(mapping): mapping for mapping in mappings}.values():
            self._memory.pin(mapping, self._mark)
            self._pinned.append(mapping)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Return the names of the parameters that :meth:`submit` takes."""
        return tuple(self._patches)

    @property
    def instances(self) -> int:
        """Return how many submissions can be in flight at once."""
        return len(self._instances)

    def submit(self, *, label: str | None = None, **parameters: Any) -> Submission:
        """Submit the stream once more; return the submission.

        Waits, with the device's default deadline, only if every instance is still in flight. Each
        :class:`Parameter` of the stream is given by name; those with a default may be left out.
        :class:`LaunchError` on bad parameters, :class:`DeviceLost`, :class:`PortError`.
        """
        return self.submit_with(parameters, label)

    def submit_with(self, given: MappingOf[str, Any], label: str | None = None) -> Submission:
        """As :meth:`submit`, with the parameters in a mapping."""
        begin = self._now()
        queue = self._queue
        if queue.lost is not None:
            queue.check()
        queue.lock.acquire()  # a with statement would take twice as long
        try:
            instance = self._take()
            uses: Sequence[Mapping] = self._cached
            named: Sequence[Mapping] = ()
            if given or self._patches:
                named = self._store_parameters(instance, given)
                if named:
                    uses = (*uses, *named)
                    if self._copies:
                        self._check_copies(given)
                    if self._guard is not None:
                        self._guard(given, named)
            submission = Submission(queue, self._memory, begin, uses, self.label if label is None else label)
            fences = self._store_waits(instance) if self._encoded.waits else ()
            if self._encoded.signals:
                self._store_signals(instance, submission)
            self._driver.commit(instance, submission, fences)
            self._mark.value = value = submission.value
            for mapping in named:
                mapping.last_use = value
            if self._encoded.signals:
                self._note_signals(submission)
            self._next = (self._next + 1) % len(self._instances)
        finally:
            queue.lock.release()
        return submission

    def _take(self) -> Instance:
        if not self._instances:
            raise LaunchError(f"bound stream {self.label!r} was freed")
        instance = self._instances[self._next]
        if instance.value > self._timeline.known and not self._timeline.reached(instance.value):
            self._queue.wait(instance.value)
        if sys.getrefcount(instance.submission) > UNSHARED:
            instance.settle(self._now)
        return instance

    def _store_parameters(self, instance: Instance, given: MappingOf[str, Any]) -> list[Mapping]:
        """Check what was given, patch what changed, and return the mappings of the buffers among it."""
        named: list[Mapping] = []
        last, setters = instance.parameters, instance.setters
        missing = len(given)
        for name, patch in self._patches.items():
            if name in given:
                value = given[name]
                number = patch.check(value)
                missing -= 1
                if patch.address:
                    named.append(value.mapping)
            elif patch.default is not None:
                number = patch.default
            else:
                raise self._wrong_parameters(given)
            if last.get(name) != number:
                setters[name](number)
                last[name] = number
        if missing:
            raise self._wrong_parameters(given)
        return named

    def _check_copies(self, given: MappingOf[str, Any]) -> None:
        for copy in self._copies:
            if copy.overlaps(given):
                names = [repr(name) for name, _ in (copy.destination, copy.source) if name is not None]
                raise LaunchError(
                    f"bound stream {self.label!r}: with parameter {' and '.join(names)} as given, the "
                    f"destination and the source of a copy of {copy.nbytes} bytes overlap"
                )

    def _wrong_parameters(self, given: MappingOf[str, Any]) -> LaunchError:
        optional = sorted(name for name, patch in self._patches.items() if patch.default is not None)
        note = f" ({', '.join(optional)} may be left out)" if optional else ""
        return LaunchError(
            f"bound stream {self.label!r} takes the parameters {sorted(self._patches)}{note}, "
            f"but {sorted(given)} were given"
        )

    def _store_waits(self, instance: Instance) -> list[Fence]:
        """Patch what the GPU waits for; return what the kernel must wait for before it may start.

        The kernel does not order contexts among each other: a stream that polls for a point of a context that
        has not run yet would keep that one from running. So the kernel waits first, and the poll passes at
        once.
        """
        fences: list[Fence] = []
        for position, target in self._encoded.waits:
            timeline, value = (
                (target.timeline, target.value) if isinstance(target, Point) else (target, target.submitted)
            )
            if timeline.reached(value):
                # Nothing of the other timeline is touched: its memory may be gone soon.
                timeline, value = self._queue.timeline, 0
            elif timeline.closed:
                raise LaunchError(
                    f"bound stream {self.label!r} would wait for timeline {timeline.label!r}, whose device "
                    "is closed"
                )
            elif value > timeline.submitted:
                raise LaunchError(
                    f"bound stream {self.label!r} would wait for point {value} of timeline "
                    f"{timeline.label!r}, of which only {timeline.submitted} was submitted: the GPU would "
                    "hang"
                )
            elif timeline.fence is not None:
                fences.append(timeline.fence(value))
            SIGNAL.pack_into(instance.memory, 4 * position, *timeline.locate(value))
        return fences

    def _store_signals(self, instance: Instance, submission: Submission) -> None:
        for position, timeline in self._encoded.signals:
            value = timeline.next(lambda _: self._queue.drain())
            submission.points = {**submission.points, timeline: timeline.point(value)}
            SIGNAL.pack_into(instance.memory, 4 * position, *timeline.locate(value))

    def _note_signals(self, submission: Submission) -> None:
        """The signalled points are submitted; the kernel can wait for this submission instead of them."""
        own = submission.value
        for timeline, point in submission.points.items():
            timeline.submitted = point.value
            if self._timeline.fence is not None:
                timeline.fence = functools.partial(_fence_of, self._timeline.fence, own)

    def origin(self, address: int | None, value: int) -> Origin | None:
        """Return what commands do; see :meth:`Holder.origin`."""
        for instance in tuple(self._instances):
            if instance.holds(address, value):
                label = self.label if instance.submission is None else instance.submission.label
                at = -1 if address is None else (address - instance.gpu_address) // 4
                index = bisect_right(self._encoded.starts, at) - 1
                operation = self._operations[index] if index >= 0 else None
                if isinstance(operation, Dispatch):
                    program = operation.program.label
                    return Origin(label, operation.label or program, program)
                return Origin(label, None, None)
        return None

    def free(self) -> None:
        """Give the device memory back, once the GPU has finished with it. Freeing twice does nothing."""
        self.let_go()
        self._memory.reap()

    def let_go(self) -> None:
        """As :meth:`free`, but leave the releasing to the next call that allocates, frees or waits."""
        for instance in self._instances:
            instance.retire(self._queue)
        self._instances = []
        for mapping in self._pinned:
            self._memory.unpin(mapping, self._mark)
        if self._pinned:
            self._memory.drop(self._buffer.mapping)
        self._pinned = []

    def __del__(self) -> None:
        if not sys.is_finalizing() and getattr(self, "_pinned", None):
            self.let_go()


def _fence_of(fence: Callable[[int], Fence], own: int, value: int) -> Fence:
    return fence(own)


def _patch(template: Template, places: Places) -> _Patch:
    offsets = np.array(places.offsets, np.intp) + template.data_offset
    checks = tuple(places.checks.values())
    check = checks[0] if len(checks) == 1 else _all_of(checks)
    return _Patch(places.width, offsets, check, places.address, places.default)


def _all_of(checks: Sequence[Callable[[Any], int]]) -> Callable[[Any], int]:
    """Return a check that asks all; they agree on the number."""

    def check(value: Any) -> int:
        for each in checks:
            number = each(value)
        return number

    return check
