"""Programs on a device: what their arguments must be, argument blocks, and prepared launches.

What is common to all families; drivers say how a launch is encoded and where arguments go.
"""

from __future__ import annotations

import functools
import itertools
import operator
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ringfence.errors import LaunchError, PackageError
from ringfence.runtime.device import Geometry, Limits, resolve_geometry
from ringfence.runtime.memory import Buffer, Mapping, Memory, UseMark
from ringfence.runtime.stream import (
    UNSHARED,
    Access,
    Dispatch,
    Encoded,
    Instance,
    Origin,
    Parameter,
    Places,
    Stack,
    StreamDriver,
    Template,
    make_instances,
)

FIRST_INSTANCES = 8
MAX_INSTANCES = 64  # more than the 50 batches that KGSL queues per context, so the kernel blocks before we do
MAX_CACHED_GEOMETRIES = 64
ADDRESS = "Q"
INTEGER_BYTES = (1, 2, 4, 8)

CODES = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}


# ----- arguments ----------------------------------------------------------------------------------


class Spec:
    """What one argument must be. ``address`` tells buffers and images from scalars.

    ``type_name`` is what errors call the type: numpy's name, or a family's own. Buffers: ``dtype`` is
    ``None`` if any will do, ``mask`` the address bits that must be zero, ``nbytes`` the least size,
    ``written`` whether the program may write it, ``writable`` whether it must lie in memory that can be
    written, because the file says that it is. Scalars: ``code`` is that of struct; a value of exactly the
    type ``native`` between ``low`` and ``high`` can be stored as it is, ``convert`` makes one of others.
    """

    __slots__ = (
        "address",
        "code",
        "convert",
        "dtype",
        "high",
        "index",
        "low",
        "mask",
        "name",
        "native",
        "nbytes",
        "program",
        "type_name",
        "writable",
        "written",
    )

    def __init__(self, program: str, index: int, name: str, type_name: str) -> None:
        self.program = program
        self.index = index
        self.name = name
        self.type_name = type_name
        self.address = True
        self.written = self.writable = False
        self.dtype = _dtype(type_name)
        self.code = ADDRESS
        self.convert: Callable[[Any], Any] = operator.index
        self.native: type[Any] = int
        self.low, self.high = 0.0, 0.0
        self.mask = 0
        self.nbytes = 1

    @classmethod
    def of_buffer(
        cls, program: str, index: int, name: str, type_name: str, *, written: bool, mask: int, nbytes: int = 1
    ) -> Spec:
        """Return the demands on a buffer; with a type that numpy does not name, any buffer will do."""
        spec = cls(program, index, name, type_name)
        spec.written = spec.writable = written
        spec.mask, spec.nbytes = mask, nbytes
        return spec

    @classmethod
    def of_scalar(cls, program: str, index: int, name: str, type_name: str, size: int) -> Spec:
        """Return the demands on a number of ``size`` bytes; :class:`PackageError` if the two do not fit."""
        spec = cls(program, index, name, type_name)
        code = CODES.get(type_name)
        if code is None:
            raise PackageError(f"{spec}: scalars of {type_name} are not supported")
        if struct.calcsize(code) != size:
            raise PackageError(f"{spec}: {type_name} has {struct.calcsize(code)} bytes, not {size}")
        spec.address = False
        spec.code = code
        if code == "?":
            spec.convert, spec.native, spec.high = _truth, bool, 1
        elif code in "efd":
            spec.convert, spec.native = _real, float
            spec.high = float(np.finfo(type_name).max)
            spec.low = -spec.high
        else:
            spec.low, spec.high = np.iinfo(type_name).min, np.iinfo(type_name).max
        return spec

    @classmethod
    def of_bytes(cls, program: str, index: int, name: str, size: int) -> Spec:
        """Return the demands on ``size`` bytes whose type nobody knows: a numpy value or array, or bytes, of
        that size; or an integer, which is stored as one, where integers have that size.
        """
        spec = cls(program, index, name, f"{size} bytes")
        spec.address = False
        spec.code = f"{size}s"
        spec.native = _NoType
        spec.convert = functools.partial(_raw, size)
        return spec

    def __str__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"argument {self.index}{name} of program {self.program!r}"

    def resolve(self, value: Any, memory: Memory) -> Any:
        """Return the address or number for ``value``; :class:`LaunchError` says why it does not fit."""
        if self.address:
            self._check_buffer(value, memory)
            return value.gpu_address
        if value.__class__ is self.native and self.low <= value <= self.high:
            return value
        try:
            number = self.convert(value)
            struct.pack("<" + self.code, number)
        except TypeError:
            hint = (
                "" if self.native is not _NoType else "; give a numpy value or array, or bytes, of that size"
            )
            raise LaunchError(
                f"{self}: {self.type_name} wanted, got {type(value).__name__} {value!r}{hint}"
            ) from None
        except (struct.error, OverflowError, ValueError):
            raise LaunchError(f"{self}: {value!r} does not fit {self.type_name}") from None
        return number

    @property
    def demand(self) -> tuple[Any, ...]:
        """What values must fulfil: arguments with equal demands accept the same ones."""
        return self.code, self.type_name, self.address, self.mask, self.nbytes

    def checker(self, memory: Memory, nbytes: int = 0) -> Callable[[Any], int]:
        """Return what checks a value and gives the unsigned number to store: an address (of at least
        ``nbytes``), or the scalar's bytes.
        """
        if self.address:
            return functools.partial(_address_of, self, memory, max(nbytes, self.nbytes))
        pack = struct.Struct("<" + self.code).pack
        return lambda value: int.from_bytes(pack(self.resolve(value, memory)), "little")

    def _check_buffer(self, value: Any, memory: Memory) -> None:
        if not isinstance(value, Buffer):
            raise LaunchError(
                f"{self}: a buffer is wanted, got {type(value).__name__}; make one with dev.array() or "
                "dev.import_array()"
            )
        if value.mapping.space is not memory:
            why = "was freed" if value.mapping.space is None else "belongs to another device"
            raise LaunchError(f"{self}: {value!r} {why}")
        if self.dtype is not None and value.dtype is not None and value.dtype != self.dtype:
            raise LaunchError(
                f"{self}: the program uses {self.dtype}, the buffer holds {value.dtype}: {value!r}"
            )
        if value.gpu_address & self.mask:
            raise LaunchError(
                f"{self}: GPU address {value.gpu_address:#x} is not a multiple of {self.mask + 1}: {value!r}"
            )
        if value.nbytes < self.nbytes:
            raise LaunchError(f"{self}: {self.nbytes} bytes are needed, {value!r} is too small")
        if self.writable and value.mapping.readonly:
            raise LaunchError(
                f"{self}: the program writes it, {value!r} is read-only memory; if it only reads it, "
                "declare it const in the source"
            )


def _address_of(spec: Spec, memory: Memory, nbytes: int, value: Any) -> int:
    # The common case in one expression; everything else goes through resolve(), which explains.
    if not (
        value.__class__ is Buffer
        and value.mapping.space is memory
        and (value.dtype is spec.dtype or value.dtype is None or spec.dtype is None)
        and not value.gpu_address & spec.mask
        and value.nbytes >= nbytes
    ):
        spec.resolve(value, memory)
        if value.nbytes < nbytes:
            raise LaunchError(f"{spec}: it was recorded with {nbytes} bytes, {value!r} is too small")
    address: int = value.gpu_address
    return address


class _NoType:
    """The type of nothing: every value of a scalar without a type has to be converted."""


def _raw(size: int, value: Any) -> bytes:
    if isinstance(value, (np.generic, np.ndarray)):
        if value.dtype.hasobject:
            raise TypeError("Python objects")
        data = value.tobytes()
    elif isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
    else:
        if size not in INTEGER_BYTES:
            raise TypeError(f"no integer has {size} bytes")
        number = operator.index(value)
        return number.to_bytes(size, "little", signed=number < 0)
    if len(data) != size:
        raise ValueError(f"{len(data)} bytes")
    return data


def _truth(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)) or value in (0, 1):
        return bool(value)
    raise TypeError("not a truth value")


def _real(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise TypeError("text is not a number")
    return float(value)


def _dtype(name: str) -> np.dtype[Any] | None:
    try:
        return np.dtype(name)
    except TypeError:
        return None  # a type that numpy has no name for, such as bfloat16: any buffer will do


@dataclass(frozen=True, slots=True)
class Place:
    """A spot in the argument block: ``code`` (of struct) at byte ``offset`` for argument ``index``."""

    offset: int
    code: str
    index: int

    @property
    def end(self) -> int:
        return self.offset + struct.calcsize("<" + self.code)


def in_order(name: str, places: Sequence[Place]) -> list[Place]:
    """Return the places by offset; :class:`PackageError` if two overlap."""
    ordered = sorted(places, key=lambda place: place.offset)
    for before, after in itertools.pairwise(ordered):
        if after.offset < before.end:
            raise PackageError(
                f"program {name!r}: arguments {before.index} and {after.index} overlap in the constants"
            )
    return ordered


Run = tuple[Callable[..., None], int, tuple[int, ...]]


def pack_runs(places: Sequence[Place]) -> list[Run]:
    """Return (pack_into, offset, argument indices) for each run of places without a gap."""
    runs: list[list[Place]] = []
    for place in places:
        if runs and runs[-1][-1].end == place.offset:
            runs[-1].append(place)
        else:
            runs.append([place])
    return [
        (
            struct.Struct("<" + "".join(place.code for place in run)).pack_into,
            run[0].offset,
            tuple(place.index for place in run),
        )
        for run in runs
    ]


def _alike(specs: Sequence[Spec]) -> tuple[int, tuple[np.dtype[Any] | None, int, int]]:
    """Return how many arguments at the beginning are buffers with the demands of the first, and these: dtype,
    address bits that must be zero, size.
    """
    if not specs or not specs[0].address:
        return 0, (None, 0, 0)
    first = specs[0]
    same = itertools.takewhile(lambda spec: spec.demand == first.demand, specs)
    return len(list(same)), (first.dtype, first.mask, first.nbytes)


# ----- blobs ----------------------------------------------------------------------------------------


@runtime_checkable
class CompiledProgram(Protocol):
    """What a compiler made for ``chip``; ``to_bytes`` gives its blob."""

    @property
    def chip(self) -> str: ...
    def to_bytes(self) -> bytes: ...


def blob_bytes(given: object, chip: str) -> bytes:
    """Return the blob that is given, as bytes or as a compiled program. :class:`TypeError` for anything else,
    :class:`PackageError` for a program of another chip.
    """
    if isinstance(given, CompiledProgram):
        if given.chip != chip:
            raise PackageError(
                f"the program was compiled for {given.chip}, this device is {chip}: compile it for {chip}"
            )
        return given.to_bytes()
    try:
        return bytes(memoryview(given))  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"{type(given).__name__} cannot be loaded: give a compiled program, or the bytes of its file"
        ) from None


# ----- programs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaunchPlaces:
    """Positions of the dwords of an encoded launch that may change: geometry, and private memory."""

    geometry: tuple[int, ...]
    stack: int


class ProgramDriver(StreamDriver, Protocol):
    """What a program needs of its device."""

    def encode_launch(self, program: Any, geometry: Geometry) -> tuple[Encoded, int, LaunchPlaces]:
        """Return the commands of one launch, where its argument block is in the data, and what may change."""


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """A checked geometry as it is stored: dwords of the commands, and bytes of the argument block."""

    geometry: Geometry
    words: np.ndarray[Any, np.dtype[np.uint32]]
    argument_bytes: bytes


class Program(ABC):
    """A program on a device: ``dev.load(blob)`` makes one, ``dev.launch(program, ...)`` runs it.

    ``chip`` is what it was compiled for. ``limits.max_threads`` is how many threads a work-group may have,
    ``fixed_local`` the local size that the compiler fixed. ``block_bytes`` is the size of an argument block,
    ``places``, by offset, say where the arguments go in it. Indexing with the program's own name returns the
    program itself, as for files that hold several. ``block_links`` are the places in an argument block that
    hold the address of another place in it: (byte offset, byte offset of what it points to).
    ``has_variables``: its code lies among variables that launches may write.
    """

    block_links: Sequence[tuple[int, int]] = ()
    has_variables = False

    def __init__(
        self,
        driver: ProgramDriver,
        *,
        name: str,
        chip: str,
        label: str,
        specs: Sequence[Spec],
        places: Sequence[Place],
        block_bytes: int,
        limits: Limits,
        fixed_local: tuple[int, int, int] | None,
        code: Buffer,
    ) -> None:
        self.name = name
        self.chip = chip
        self.label = label
        self.specs = specs
        self.block_bytes = block_bytes
        self.limits = limits
        self.fixed_local = fixed_local
        self.code = code
        self.code_mapping = code.mapping
        """The device memory that holds the machine code."""
        self._driver = driver
        self._places = places
        self.runs = pack_runs(self._places)
        self.one_run = len(self.runs) == 1 and self.runs[0][2] == tuple(range(len(specs)))
        """Whether all arguments lie next to each other in their order, so that one store writes them."""
        self._alike, self._demand = _alike(specs)
        self._shapes: dict[Any, LaunchShape] = {}
        self._last: tuple[Any, Any, Any, LaunchShape | None] = (None, None, None, None)
        self.launches: LaunchPool | None = None
        """The prepared launches, once there are any."""

    @property
    def max_threads(self) -> int:
        """Return the largest product of local sizes."""
        return self.limits.max_threads

    # ----- what each family says -------------------------------------------------------------------

    @abstractmethod
    def block(self) -> bytearray:
        """Return an argument block without arguments; :class:`LaunchError` if it cannot be expressed."""

    @abstractmethod
    def geometry_words(self, geometry: Geometry) -> Sequence[int]:
        """Return the dwords that :attr:`LaunchPlaces.geometry` are the positions of."""

    @abstractmethod
    def geometry_bytes(self, geometry: Geometry) -> bytes:
        """Return what :meth:`store_geometry` stores for a geometry."""

    @abstractmethod
    def store_geometry(self, block: Any, offset: int, argument_bytes: bytes) -> None:
        """Store what the program reads of its geometry into its argument block at ``offset``."""

    # -----------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Program:
        if name != self.name:
            raise LaunchError(f"there is no program {name!r} in this blob, only {self.name!r}")
        return self

    def __repr__(self) -> str:
        return f"<Program {self.label!r} for {self.chip}, {len(self.specs)} arguments>"

    def free(self) -> None:
        """Give the device memory of the program back, once the GPU has finished with it."""
        if self.launches is not None:
            self.launches.free()
            self.launches = None
        self.code.free()

    def check_alive(self, memory: Memory) -> None:
        """:class:`LaunchError` if the program was freed, or belongs to another device."""
        space = self.code_mapping.space
        if space is not memory:
            why = "was freed, or its device is closed" if space is None else "was loaded on another device"
            raise LaunchError(f"program {self.label!r} {why}")

    # ----- geometry -------------------------------------------------------------------------------

    def shape(self, groups: Any, global_size: Any, local: Any) -> LaunchShape:
        """Return the checked shape of a launch; shapes that were asked for before are remembered."""
        a, b, c, last = self._last
        if last is not None and groups is a and global_size is b and local is c:
            return last
        key: tuple[Any, ...] = (groups, global_size, local)
        if not _plain(key):
            key += _types(groups), _types(global_size), _types(local)
        try:
            known = self._shapes.get(key)
        except TypeError:  # a list instead of a tuple, which may change
            return self._make_shape(groups, global_size, local)
        if known is None:
            known = self._make_shape(groups, global_size, local)
            if len(self._shapes) >= MAX_CACHED_GEOMETRIES:
                self._shapes.clear()
            self._shapes[key] = known
        self._last = groups, global_size, local, known
        return known

    def _make_shape(self, groups: Any, global_size: Any, local: Any) -> LaunchShape:
        geometry = resolve_geometry(
            self.name,
            self.limits,
            groups=groups,
            global_size=global_size,
            local=local,
            fixed_local=self.fixed_local,
        )
        words = np.array(self.geometry_words(geometry), np.uint32)
        return LaunchShape(geometry, words, self.geometry_bytes(geometry))

    # ----- arguments ------------------------------------------------------------------------------

    def resolve(self, args: Sequence[Any], memory: Memory) -> tuple[list[Any], list[Mapping]]:
        """Return an address or number per argument, and the mappings that the launch uses."""
        if len(args) != len(self.specs):
            raise LaunchError(
                f"program {self.name!r} takes {len(self.specs)} arguments, {len(args)} were given"
            )
        values: list[Any] = []
        uses: list[Mapping] = []
        # Nearly always the buffers come first and must all be alike: no need to look at each one's spec.
        dtype, mask, nbytes = self._demand
        for value in args[: self._alike]:
            # The common case in one expression; everything else goes through resolve(), which explains.
            if not (
                value.__class__ is Buffer
                and value.mapping.space is memory
                and (value.dtype is dtype or value.dtype is None or dtype is None)
                and not value.gpu_address & mask
                and value.nbytes >= nbytes
            ):
                self.specs[len(values)].resolve(value, memory)
            values.append(value.gpu_address)
            uses.append(value.mapping)
        if len(values) != len(args):
            self._resolve_rest(args, memory, values, uses)
        return values, uses

    def _resolve_rest(
        self, args: Sequence[Any], memory: Memory, values: list[Any], uses: list[Mapping]
    ) -> None:
        for spec, value in zip(self.specs[self._alike :], args[self._alike :]):
            if not spec.address and value.__class__ is spec.native and spec.low <= value <= spec.high:
                values.append(value)
            else:
                values.append(spec.resolve(value, memory))
                if spec.address:
                    uses.append(value.mapping)

    def prepare(self, args: Sequence[Any], geometry: Geometry, memory: Memory) -> Dispatch:
        """Return the checked dispatch of a stream; arguments may be :class:`Parameter`."""
        if len(args) != len(self.specs):
            raise LaunchError(
                f"program {self.name!r} takes {len(self.specs)} arguments, {len(args)} were given"
            )
        values: list[Any] = []
        accesses: list[Access] = []
        for spec, value in zip(self.specs, args):
            name, given = (value.name, value.default) if isinstance(value, Parameter) else (None, value)
            number = spec.resolve(given, memory) if name is None or given is not None else None
            values.append(number if name is None else value)
            if spec.address:
                accesses.append(Access(given, spec.written, name))
        if self.has_variables:
            accesses.append(Access(self.code, written=True))
        self.block()  # the images' descriptors may not be expressible
        uses = [access.buffer.mapping for access in accesses if access.buffer is not None]
        return Dispatch(self, tuple(values), geometry, (*uses, self.code_mapping), tuple(accesses))

    # ----- argument blocks ------------------------------------------------------------------------

    def fill(self, dispatch: Dispatch, data: bytearray, offset: int, parameters: dict[str, Places]) -> None:
        """Append the block of a dispatch at ``offset`` of ``data``; list the places of its parameters."""
        data[offset : offset + self.block_bytes] = self.block()
        self.store_geometry(data, offset, self.geometry_bytes(dispatch.geometry))
        for place in self._places:
            value = dispatch.values[place.index]
            if isinstance(value, Parameter):
                self._add_parameter(value, place, offset, parameters)
            else:
                struct.pack_into("<" + place.code, data, offset + place.offset, value)

    def _add_parameter(
        self, parameter: Parameter, place: Place, offset: int, parameters: dict[str, Places]
    ) -> None:
        spec, memory, name = self.specs[place.index], self._driver.memory, parameter.name
        width = struct.calcsize("<" + place.code)
        given = parameter.default
        nbytes = given.nbytes if spec.address and given is not None else 0
        check = spec.checker(memory, nbytes)
        default = None if given is None else check(given)
        places = parameters.setdefault(name, Places(width, place.code, spec.address, default))
        if places.code != place.code or places.address != spec.address:
            raise LaunchError(f"{spec}: parameter {name!r} already stands for an argument of another type")
        if places.default != default:
            raise LaunchError(f"{spec}: parameter {name!r} already has another default")
        places.offsets.append(offset + place.offset)
        key = (*spec.demand, nbytes)
        if spec.writable or key not in places.checks:
            places.checks[key] = check

    # ----- launches -------------------------------------------------------------------------------

    def pool(self) -> LaunchPool:
        """Return the prepared launches of the program; the first call makes them."""
        if self.launches is None:
            self.launches = LaunchPool(self._driver, self)
        return self.launches


def _plain(sizes: tuple[Any, ...]) -> bool:
    """Return whether sizes are what they compare equal to, and not 8.0 or True; nearly always they are."""
    for size in sizes:
        if size.__class__ is tuple:
            for each in size:
                if each.__class__ is not int:
                    return False
        elif size is not None and size.__class__ is not int:
            return False
    return True


def _types(size: Any) -> Any:
    """Return what tells a size from others that compare equal."""
    return tuple(map(type, size)) if isinstance(size, tuple) else type(size)


class LaunchPool:
    """Instances of a program's launch, used in turn; more are made while all of them are in flight."""

    def __init__(self, driver: ProgramDriver, program: Program) -> None:
        geometry = Geometry((1, 1, 1), program.fixed_local or (1, 1, 1))
        encoded, block, places = driver.encode_launch(program, geometry)
        self._driver = driver
        self._program = program
        self._template = Template(encoded)
        self._block = self._template.data_offset + block
        self._in_order = program.one_run
        self._geometry = np.array(places.geometry, np.intp)
        self._stack = (places.stack,)
        self.stack_bytes = encoded.stack_bytes
        """Private memory that the program needs, in all."""
        self.mark = UseMark()
        """The latest use of the program's code and of the launches' memory."""
        self._buffers: list[Buffer] = []
        self._instances: list[Instance] = []
        self._next = 0
        self._queue = driver.queue
        self._timeline = driver.queue.timeline
        program.code_mapping.marks.append(self.mark)
        driver.register(self)

    def take(self, shape: LaunchShape, values: Sequence[Any], stack: Stack) -> Instance:
        """Return an instance that is not in flight, patched for one launch.

        Arguments are stored always, geometry and private memory if they changed. Waits, with the default
        deadline, only if all instances are in flight.
        """
        if not self._instances:
            self._grow(FIRST_INSTANCES)
        instance = self._instances[self._next]
        if instance.value > self._timeline.known and not self._timeline.reached(instance.value):
            instance = self._another(instance)
        if sys.getrefcount(instance.submission) > UNSHARED:
            instance.settle(self._queue.now)
        self._next = (self._next + 1) % len(self._instances)
        if self._in_order:
            instance.store(*values)
        else:
            for pack_into, begin, picked in self._program.runs:
                pack_into(instance.memory, self._block + begin, *[values[index] for index in picked])
        if instance.geometry is not shape:
            self._set_shape(instance, shape)
        if instance.stack is not stack:
            instance.link_stack(self._stack, stack)
        return instance

    def _another(self, instance: Instance) -> Instance:
        """The next instance is in flight: make more, or wait for it."""
        if len(self._instances) < MAX_INSTANCES:
            self._grow(len(self._instances))
            return self._instances[self._next]
        self._queue.wait(instance.value)
        return instance

    def _grow(self, count: int) -> None:
        # The new ones come before the oldest one in flight, so that turns stay in the order of submission.
        label = f"launches of {self._program.label}"
        buffer, made = make_instances(self._driver, self._template, count, label)
        buffer.mapping.marks.append(self.mark)
        self._buffers.append(buffer)
        if self._in_order:
            pack_into, begin, _ = self._program.runs[0]
            for instance in made:
                instance.store = functools.partial(pack_into, instance.memory, self._block + begin)
        self._instances[self._next : self._next] = made

    def _set_shape(self, instance: Instance, shape: LaunchShape) -> None:
        instance.views[4][self._geometry] = shape.words
        self._program.store_geometry(instance.memory, self._block, shape.argument_bytes)
        instance.geometry = shape

    def origin(self, address: int | None, value: int) -> Origin | None:
        """Return what commands do; see :meth:`ringfence.runtime.stream.Holder.origin`."""
        program = self._program.label
        for instance in tuple(self._instances):
            if instance.holds(address, value):
                label = program if instance.submission is None else instance.submission.label
                return Origin(label, label, program)
        return None

    def free(self) -> None:
        """Give the device memory back, once the GPU has finished with it."""
        self.let_go()
        for buffer in self._buffers:
            buffer.free()
        self._buffers = []

    def let_go(self) -> None:
        """Drop the views of device memory."""
        for instance in self._instances:
            instance.retire(self._driver.queue)
        self._instances = []

    def __del__(self) -> None:
        if not sys.is_finalizing() and getattr(self, "_instances", None):
            self.let_go()
