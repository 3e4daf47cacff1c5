"""Programs on a device: checks, machine code in device memory, argument blocks, and prepared launches."""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import operator
import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ringfence.errors import LaunchError, PackageError
from ringfence.hardware.adreno import registers as reg
from ringfence.hardware.adreno.chips import Chip
from ringfence.hardware.adreno.descriptors import (
    BASE_ALIGNMENT,
    FORMATS,
    IMAGE_FORMATS,
    pack_sampler,
    pack_texture,
    pack_uav,
)
from ringfence.hardware.adreno.program import INSTRUCTION_UNIT, AdrenoProgram, Argument
from ringfence.runtime.device import Geometry, Limits, resolve_geometry
from ringfence.runtime.memory import Buffer, Mapping, Memory, UseMark
from ringfence.runtime.stream import (
    UNSHARED,
    Access,
    Dispatch,
    Encoded,
    Instance,
    Parameter,
    Places,
    StreamDriver,
    Template,
    make_instances,
)

from .encode import CONSTANT_BYTES, PRIVATE_UNIT, BlockLayout, DispatchPlaces, geometry_words

MAX_LOCAL_SIZE = 1024  # SP_CS_NDRANGE_0 holds 10 bits per dimension, minus one
MAX_THREADS = 1024
WAVE_SLOT_THREADS = 128
MAX_SAMPLERS = 16
FIRST_INSTANCES = 8
MAX_INSTANCES = 64  # more than the 50 batches that KGSL queues per context, so the kernel blocks before we do
DESCRIPTOR_ADDRESS = (
    16  # byte offset of the 64-bit base address in a texture or UAV descriptor (dwords 4 and 5)
)
MAX_CACHED_GEOMETRIES = 64
_ADDRESS = "Q"

_CODES = {
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

    Buffers: ``dtype`` is ``None`` if any will do, ``mask`` the address bits that must be zero, ``nbytes`` the
    least size. Scalars: a value of exactly the type ``native`` between ``low`` and ``high`` can be stored as
    it is.
    """

    __slots__ = (
        "address",
        "argument",
        "code",
        "convert",
        "dtype",
        "high",
        "index",
        "low",
        "mask",
        "native",
        "nbytes",
        "program",
    )

    def __init__(self, program: str, index: int, argument: Argument) -> None:
        self.program = program
        self.index = index
        self.argument = argument
        self.address = argument.kind != "scalar"
        self.dtype = _dtype(argument.dtype)
        self.code = _ADDRESS
        self.convert: Callable[[Any], Any] = operator.index
        self.native: type[Any] = int
        self.low, self.high = 0.0, 0.0
        self.mask = 0
        self.nbytes = 1
        if argument.kind == "scalar":
            self._init_scalar(argument)
        elif argument.kind == "image":
            self._init_image(argument)
        elif self.dtype is not None:
            # Loads and stores are of 1, 2 or 4 bytes per component, so 64-bit elements need no more than 4.
            self.mask = min(self.dtype.itemsize, 4) - 1

    def _init_scalar(self, argument: Argument) -> None:
        code = _CODES.get(argument.dtype)
        if code is None:
            raise PackageError(f"{self}: scalars of {argument.dtype} are not supported")
        if struct.calcsize(code) != argument.size:
            raise PackageError(
                f"{self}: {argument.dtype} has {struct.calcsize(code)} bytes, not {argument.size}"
            )
        self.code = code
        if code == "?":
            self.convert, self.native, self.high = _truth, bool, 1
        elif code in "efd":
            self.convert, self.native = _real, float
            self.high = float(np.finfo(argument.dtype).max)
            self.low = -self.high
        else:
            self.low, self.high = np.iinfo(argument.dtype).min, np.iinfo(argument.dtype).max

    def _init_image(self, argument: Argument) -> None:
        assert argument.shape is not None
        height, width = argument.shape
        self.mask = BASE_ALIGNMENT - 1
        texel = FORMATS[IMAGE_FORMATS[argument.dtype]].texel_bytes
        self.nbytes = height * width * texel

    def __str__(self) -> str:
        name = f" {self.argument.name!r}" if self.argument.name else ""
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
            raise LaunchError(
                f"{self}: {self.argument.dtype} wanted, got {type(value).__name__} {value!r}"
            ) from None
        except (struct.error, OverflowError, ValueError):
            raise LaunchError(f"{self}: {value!r} does not fit {self.argument.dtype}") from None
        return number

    @property
    def demand(self) -> tuple[Any, ...]:
        """What values must fulfil: arguments with equal demands accept the same ones."""
        return self.code, self.argument.dtype, self.address, self.mask, self.nbytes

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


def _address_of(spec: Spec, memory: Memory, nbytes: int, value: Any) -> int:
    # The common case in one expression; everything else goes through resolve(), which explains.
    if not (
        value.__class__ is Buffer
        and value.mapping.space is memory
        and (value.dtype is spec.dtype or value.dtype is None)
        and not value.gpu_address & spec.mask
        and value.nbytes >= nbytes
    ):
        spec.resolve(value, memory)
        if value.nbytes < nbytes:
            raise LaunchError(f"{spec}: it was recorded with {nbytes} bytes, {value!r} is too small")
    address: int = value.gpu_address
    return address


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


def argument_places(program: AdrenoProgram, specs: Sequence[Spec], layout: BlockLayout) -> list[Place]:
    """Return where each argument goes, by offset. Images go where their slot's descriptor has its address."""
    places = [
        Place(argument.offset, specs[index].code, index)
        for index, argument in enumerate(program.arguments)
        if argument.kind != "image"
    ]
    for base, slots in ((layout.textures, program.textures), (layout.uavs, program.uavs)):
        places += [
            Place(base + 64 * slot + DESCRIPTOR_ADDRESS, _ADDRESS, index) for slot, index in enumerate(slots)
        ]
    places.sort(key=lambda place: place.offset)
    for before, after in itertools.pairwise(places):
        if after.offset < before.end:
            raise PackageError(
                f"program {program.name!r}: arguments {before.index} and {after.index} overlap in the "
                "constants"
            )
    return places


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


# ----- programs -----------------------------------------------------------------------------------


class ProgramDriver(StreamDriver, Protocol):
    """What a program needs of its device."""

    @property
    def chip(self) -> Chip:
        """The chip of the device."""

    def stack_bytes(self, private_bytes: int) -> int:
        """Return how much private memory a program needs in all."""

    def encode_launch(self, program: Program, geometry: Geometry) -> tuple[Encoded, int, DispatchPlaces]:
        """Return the commands of one launch, where its argument block is in the data, and what may change."""


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """A checked geometry as it is stored: dwords of the commands, and the local size for the constants."""

    geometry: Geometry
    words: np.ndarray[Any, np.dtype[np.uint32]]
    local_bytes: bytes


class Program:
    """A program on a device: ``dev.load(blob)`` makes one, ``dev.launch(program, ...)`` runs it.

    ``max_threads`` is how many threads a work-group may have, given the registers that the program uses.
    Indexing with the program's own name returns the program itself, as for files that hold several.
    """

    def __init__(self, driver: ProgramDriver, source: AdrenoProgram, label: str | None = None) -> None:
        check_program(source, driver.chip)
        self.source = source
        self.label = source.name if label is None else label
        self.specs = [Spec(source.name, index, argument) for index, argument in enumerate(source.arguments)]
        self.layout = BlockLayout.of(source, constants_end(source))
        self.limits = thread_limits(source, driver.chip)
        self._driver = driver
        self._places = argument_places(source, self.specs, self.layout)
        self.runs = pack_runs(self._places)
        self.one_run = len(self.runs) == 1 and self.runs[0][2] == tuple(range(len(self.specs)))
        """Whether all arguments lie next to each other in their order, so that one store writes them."""
        self._alike, self._demand = _alike(self.specs)
        self._shapes: dict[Any, LaunchShape] = {}
        self._last_asked: tuple[Any, Any, Any] = (None, None, None)
        self._last_shape: LaunchShape | None = None
        self.launches: LaunchPool | None = None
        """The prepared launches, once there are any."""
        self._code = _upload(driver.memory, source, self.label)
        self.code_mapping = self._code.mapping
        """The device memory that holds the machine code."""

    @property
    def name(self) -> str:
        """Return the name that the compiler gave the program."""
        return self.source.name

    @property
    def max_threads(self) -> int:
        """Return the largest product of local sizes."""
        return self.limits.max_threads

    @property
    def code_address(self) -> int:
        """Return the GPU address of the machine code."""
        return self._code.gpu_address

    def __getitem__(self, name: str) -> Program:
        if name != self.source.name:
            raise LaunchError(f"there is no program {name!r} in this blob, only {self.source.name!r}")
        return self

    def __repr__(self) -> str:
        return f"<Program {self.label!r} for {self.source.chip}, {len(self.specs)} arguments>"

    def free(self) -> None:
        """Give the device memory of the program back, once the GPU has finished with it."""
        if self.launches is not None:
            self.launches.free()
            self.launches = None
        self._code.free()

    def check_alive(self, memory: Memory) -> None:
        """:class:`LaunchError` if the program was freed, or belongs to another device."""
        space = self._code.mapping.space
        if space is not memory:
            why = "was freed, or its device is closed" if space is None else "was loaded on another device"
            raise LaunchError(f"program {self.label!r} {why}")

    # ----- geometry -------------------------------------------------------------------------------

    def shape(self, groups: Any, global_size: Any, local: Any) -> LaunchShape:
        """Return the checked shape of a launch; shapes that were asked for before are remembered."""
        asked, last = self._last_asked, self._last_shape
        if last is not None and groups is asked[0] and global_size is asked[1] and local is asked[2]:
            return last
        key = (groups, global_size, local)
        try:
            known = self._shapes.get(key)
        except TypeError:  # a list instead of a tuple, which may change
            return self._make_shape(groups, global_size, local)
        if known is None:
            known = self._make_shape(groups, global_size, local)
            if len(self._shapes) >= MAX_CACHED_GEOMETRIES:
                self._shapes.clear()
            self._shapes[key] = known
        self._last_asked, self._last_shape = key, known
        return known

    def _make_shape(self, groups: Any, global_size: Any, local: Any) -> LaunchShape:
        geometry = resolve_geometry(
            self.name,
            self.limits,
            groups=groups,
            global_size=global_size,
            local=local,
            fixed_local=self.source.local_size,
        )
        words = np.array(geometry_words(self.source, geometry), np.uint32)
        return LaunchShape(geometry, words, struct.pack("<III", *geometry.local))

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
                and (value.dtype is dtype or value.dtype is None)
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
                accesses.append(Access(given, spec.argument.written, name))
        self.block()  # the images' descriptors may not be expressible
        uses = [access.buffer.mapping for access in accesses if access.buffer is not None]
        return Dispatch(self, tuple(values), geometry, (*uses, self.code_mapping), tuple(accesses))

    # ----- argument blocks ------------------------------------------------------------------------

    def block(self) -> bytearray:
        """Return an argument block without arguments: immediates, descriptors with address zero, samplers.

        :class:`LaunchError` if an image cannot be expressed, for instance because its rows are no multiple of
        64 bytes.
        """
        source, layout = self.source, self.layout
        block = bytearray(layout.nbytes)
        first = source.immediates_offset
        block[first : first + len(source.immediates)] = source.immediates
        for base, slots, pack in (
            (layout.textures, source.textures, pack_texture),
            (layout.uavs, source.uavs, pack_uav),
        ):
            for slot, index in enumerate(slots):
                descriptor = self._descriptor(pack, index)
                block[base + 64 * slot : base + 64 * slot + len(descriptor)] = descriptor
        samplers = pack_sampler() * (source.samplers if source.dialect == "mesa" else min(source.samplers, 1))
        block[layout.samplers : layout.samplers + len(samplers)] = samplers
        return block

    def _descriptor(self, pack: Callable[[int, int, int, str], bytes], index: int) -> bytes:
        argument = self.source.arguments[index]
        assert argument.shape is not None
        height, width = argument.shape
        try:
            return pack(0, width, height, argument.dtype)
        except LaunchError as error:
            raise LaunchError(f"{self.specs[index]}: {error}") from None

    def store_local_size(self, block: Any, offset: int, local_bytes: bytes) -> None:
        """Store the local size where the program expects it in its constants, if it does."""
        if self.source.local_size_offset >= 0:
            at = offset + self.source.local_size_offset
            block[at : at + len(local_bytes)] = local_bytes

    def fill(self, dispatch: Dispatch, data: bytearray, offset: int, parameters: dict[str, Places]) -> None:
        """Append the block of a dispatch at ``offset`` of ``data``; list the places of its parameters."""
        data[offset : offset + self.layout.nbytes] = self.block()
        self.store_local_size(data, offset, struct.pack("<III", *dispatch.geometry.local))
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
        places.checks.setdefault((*spec.demand, nbytes), check)

    # ----- launches -------------------------------------------------------------------------------

    def pool(self) -> LaunchPool:
        """Return the prepared launches of the program; the first call makes them."""
        if self.launches is None:
            self.launches = LaunchPool(self._driver, self)
        return self.launches


class LaunchPool:
    """Instances of a program's launch, used in turn; more are made while all of them are in flight."""

    def __init__(self, driver: ProgramDriver, program: Program) -> None:
        geometry = Geometry((1, 1, 1), program.source.local_size or (1, 1, 1))
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

    def take(self, shape: LaunchShape, values: Sequence[Any], stack: Mapping) -> Instance:
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
        self._program.store_local_size(instance.memory, self._block, shape.local_bytes)
        instance.geometry = shape

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


# ----- checks -------------------------------------------------------------------------------------


def thread_limits(source: AdrenoProgram, chip: Chip) -> Limits:
    """Return how many threads a work-group can have, given the registers of the program.

    A wave slot has ``chip.registers_vec4`` vec4 for 128 threads; half registers take half the room. Same rule
    as tinygrad's ``QCOMProgram.max_threads``.
    """
    vec4 = max(1, source.full_registers + -(-source.half_registers // 2))
    threads = min(MAX_THREADS, chip.registers_vec4 // vec4 * WAVE_SLOT_THREADS)
    return Limits(
        threads, MAX_LOCAL_SIZE, f"it uses {vec4} of {chip.registers_vec4} vec4 registers of {chip.name}"
    )


def constants_end(source: AdrenoProgram) -> int:
    """Return the end of what a launch stores in the constants, in bytes."""
    ends = [argument.offset + argument.size for argument in source.arguments if argument.kind != "image"]
    if source.immediates:
        ends.append(source.immediates_offset + len(source.immediates))
    if source.local_size_offset >= 0:
        ends.append(source.local_size_offset + 12)
    return max(ends, default=0)


def check_program(source: AdrenoProgram, chip: Chip) -> None:
    """:class:`PackageError` if the program cannot run on the chip, whatever its arguments are."""
    if source.chip != chip.name:
        raise PackageError(
            f"program {source.name!r} was compiled for {source.chip}, this device is an {chip.name}: compile "
            f"it for {chip.name}"
        )
    layout = reg.SP_CS_CONFIG.FIELDS
    limits = (
        (
            "private bytes per thread",
            source.private_bytes,
            reg.SP_CS_PVT_MEM_PARAM.FIELDS["MEMSIZEPERITEM"].max * PRIVATE_UNIT,
        ),
        ("bytes of local memory", source.shared_bytes, chip.shared_bytes),
        ("levels of branch stack", source.branch_stack, reg.SP_CS_CNTL_0.FIELDS["BRANCHSTACK"].max),
        ("samplers", source.samplers, MAX_SAMPLERS),
        ("textures", len(source.textures), layout["NTEX"].max),
        ("UAVs", len(source.uavs), layout["NUAV"].max),
        ("bytes of constants", constants_end(source), CONSTANT_BYTES),
        ("registers (vec4)", source.full_registers + -(-source.half_registers // 2), chip.registers_vec4),
        ("bytes of code", len(source.code), reg.SP_CS_INSTR_SIZE.FIELDS["VALUE"].max * INSTRUCTION_UNIT),
    )
    for what, needed, available in limits:
        if needed > available:
            raise PackageError(f"program {source.name!r} needs {needed} {what}; {chip.name} has {available}")
    if source.local_size is not None:
        threads = thread_limits(source, chip)
        if min(source.local_size) < 1 or math.prod(source.local_size) > threads.max_threads:
            raise PackageError(
                f"program {source.name!r} was compiled for a local size of {source.local_size}; "
                f"it can have 1 to {threads.max_threads} threads ({threads.why})"
            )


def _upload(memory: Memory, source: AdrenoProgram, label: str) -> Buffer:
    """Put the machine code into memory that the GPU cannot write."""
    mapping = memory.allocate(len(source.code), readonly=True, label=f"code of {label}")
    assert mapping.host_address is not None
    ctypes.memmove(mapping.host_address, source.code, len(source.code))
    return Buffer(memory, mapping)
