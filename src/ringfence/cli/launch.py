"""``ringfence run`` of a file with kernels: one kernel, launched once, or again and again to time it."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from rich.text import Text

from ringfence.cli.arguments import WHOLE, Given, Value, labels, parse_argument, value_of
from ringfence.cli.devices import chip_of, open_device
from ringfence.cli.output import VIRTUAL_NOTICE, check_output, console, print_json, row, table
from ringfence.cli.programs import (
    FileKind,
    KernelFacts,
    ProgramFile,
    compile_source,
    kernel_table,
    parse_defines,
    read_programs,
)
from ringfence.cli.stages import LAUNCH_STAGES, as_json, stage_table, summarise
from ringfence.errors import LaunchError, PackageError
from ringfence.runtime.device import DeviceInfo, Geometry
from ringfence.runtime.memory import Buffer
from ringfence.runtime.queue import Timings

if TYPE_CHECKING:
    from ringfence.api import Device

Array = npt.NDArray[Any]
Sizes = tuple[int, ...]

FIRST_LAUNCH_TIMEOUT = 600.0  # a virtual device translates the program while the first launch runs
FIRST_ELEMENTS = 6
_SIZE_SYNTAX = "sizes are written 4, 4x2 or 4x2x1"


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says about a launch, as it was written.

    ``again`` is how often to launch once more, to time it; ``lds`` the bytes of dynamic local memory.
    """

    kernel: str | None = None
    groups: str | None = None
    global_size: str | None = None
    local: str | None = None
    arguments: Sequence[str] = ()
    out: Sequence[str] = ()
    defines: Sequence[str] = ()
    lds: int = 0
    timeout: float | None = None
    again: int = 0

    @property
    def launches(self) -> bool:
        """Return whether anything but the choice of a kernel says that it is to run."""
        return bool(self.groups or self.global_size or self.arguments or self.out)


@dataclass(frozen=True, slots=True)
class Plan:
    """A launch that was checked as far as that goes without a device.

    ``sizes`` are work-groups, or else work-items, and work-items of a group. ``saves`` are files by argument.
    """

    file: ProgramFile
    kernel: KernelFacts
    labels: Sequence[str]
    values: Sequence[Value]
    sizes: tuple[Sizes | None, Sizes | None, Sizes | None]
    saves: Mapping[int, Path]

    @property
    def local_bytes(self) -> dict[str | int, int]:
        """Return how much local memory pointers to it get, by argument."""
        pairs = zip(self.kernel.parameters, self.values, strict=True)
        return {parameter.index: int(value) for parameter, value in pairs if parameter.local}


@dataclass(frozen=True, slots=True)
class Contents:
    """What is in a buffer after the first launch. ``minimum`` to ``mean`` are of the finite elements, and
    ``None`` if there are none, or elements are no numbers.
    """

    dtype: str
    shape: Sizes
    minimum: float | int | None
    maximum: float | int | None
    mean: float | None
    not_finite: int
    first: tuple[float | int | str, ...]
    sha256: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What running showed. Seconds; ``timed`` are the launches after the first one."""

    device: DeviceInfo
    geometry: Geometry
    load_seconds: float
    first_seconds: float
    first: Timings
    timed: tuple[Timings, ...]
    written: Mapping[str, Contents]
    notes: tuple[str, ...]


# ----- the command --------------------------------------------------------------------------------


def launch_command(path: Path, kind: FileKind, device: str, options: Options, json: bool) -> None:
    """Run a kernel of a file, or list the kernels if none is chosen.

    :class:`LaunchError`, :class:`PackageError` and :class:`CompileError` for bad input.
    """
    given = [parse_argument(text) for text in options.arguments]
    file = _read(path, kind, device, options)
    if options.kernel is None and len(file.kernels) > 1 and not options.launches:
        _print_kernels(file, json)
        return
    plan = make_plan(file, given, options)
    outcome = run_plan(plan, device, options)
    if json:
        print_json(_as_json(plan, outcome))
    else:
        _print(plan, outcome)


def _read(path: Path, kind: FileKind, device: str, options: Options) -> ProgramFile:
    if kind is FileKind.SOURCE:
        if not path.is_file():
            raise LaunchError(f"there is no file {path}")
        return compile_source(path, chip_of(device), parse_defines(options.defines))
    if options.defines:
        raise LaunchError(f"--define is for OpenCL C; {path} is {kind.value}, compiled already")
    return read_programs(path, kind)


# ----- before a device is opened ------------------------------------------------------------------


def make_plan(file: ProgramFile, given: Sequence[Given], options: Options) -> Plan:
    """Return the checked launch; the error says what is wrong or missing."""
    kernel = file.kernel(options.kernel)
    if kernel.problem:
        raise PackageError(kernel.problem)
    if len(given) != len(kernel.parameters):
        raise LaunchError(
            f"kernel {kernel.name!r} takes {len(kernel.parameters)} arguments, {len(given)} were given with "
            f"--arg; it is {kernel.signature}"
        )
    names = labels(given, kernel.parameters)
    sizes = _sizes(kernel, options)
    saves = _saves(options.out, kernel, names)
    values = [value_of(each, parameter) for each, parameter in zip(given, kernel.parameters, strict=True)]
    return Plan(file, kernel, names, values, sizes, saves)


def _sizes(kernel: KernelFacts, options: Options) -> tuple[Sizes | None, Sizes | None, Sizes | None]:
    groups, items = _size("--groups", options.groups), _size("--global-size", options.global_size)
    local = _size("--local", options.local)
    if (groups is None) == (items is None):
        which = "neither is given" if groups is None else "both are given"
        raise LaunchError(
            f"kernel {kernel.name!r}: give the number of work-groups with --groups, or of work-items with "
            f"--global-size; {which}"
        )
    if local is None and kernel.local_size is None:
        raise LaunchError(
            f"kernel {kernel.name!r}: give the work-items of a group with --local, such as 64 or 16x16; the "
            "compiler did not fix it"
        )
    return groups, items, local


def _size(option: str, text: str | None) -> Sizes | None:
    if text is None:
        return None
    parts = text.split("x")
    if len(parts) > 3 or not all(map(WHOLE.fullmatch, parts)):
        raise LaunchError(f"{option} {quote(text)}: {_SIZE_SYNTAX}, each at least 1")
    return tuple(map(int, parts))


def _saves(texts: Sequence[str], kernel: KernelFacts, names: Sequence[str]) -> dict[int, Path]:
    own = {each.name: each.index for each in kernel.parameters if each.name}
    known = {**own, **{name: index for index, name in enumerate(names)}}
    buffers = ", ".join(name for name, each in zip(names, kernel.parameters) if each.buffer) or "none"
    found: dict[int, Path] = {}
    for text in texts:
        name, given, file = text.partition("=")
        if not given or not file:
            raise LaunchError(
                f"--out {quote(text)}: write NAME=FILE.npy with the name of a buffer: {buffers}"
            )
        index = known.get(name)
        if index is None or not kernel.parameters[index].buffer:
            raise LaunchError(f"--out {quote(text)}: there is no buffer {name!r}, only {buffers}")
        if index in found:
            raise LaunchError(f"--out {quote(text)}: {name!r} goes to {found[index]} already")
        check_output(Path(file), "--out")
        found[index] = Path(file)
    return found


# ----- on a device --------------------------------------------------------------------------------


def run_plan(plan: Plan, spec: str, options: Options) -> Outcome:
    """Launch on a device, read the buffers that the kernel may write, then launch again for the timings."""
    timeout = FIRST_LAUNCH_TIMEOUT if options.timeout is None else options.timeout
    with open_device(spec, plan.file.chip, timeout=timeout) as device:
        begin = time.perf_counter()
        program = _load(device, plan, spec, options.lds)
        loaded = time.perf_counter()
        arguments = [
            device.array(value, label=name) if isinstance(value, np.ndarray) else value
            for name, value in zip(plan.labels, plan.values, strict=True)
        ]
        given = [a for a, p in zip(arguments, plan.kernel.parameters, strict=True) if not p.local]
        geometry = program.shape(*plan.sizes).geometry
        start = time.perf_counter()
        first = _launch(device, program, given, geometry)
        done = time.perf_counter()
        written = _results(plan, arguments)
        timed = [_launch(device, program, given, geometry) for _ in range(options.again)]
        return Outcome(
            device=device.info,
            geometry=geometry,
            load_seconds=loaded - begin,
            first_seconds=done - start,
            first=first,
            timed=tuple(timed),
            written=written,
            notes=_notes(device),
        )


def _load(device: Device, plan: Plan, spec: str, lds: int) -> Any:
    """Return the program; :class:`PackageError` if it is for another device."""
    file, info = plan.file, device.info
    amd = file.kind is not FileKind.ADRENO
    if amd != (info.family == "amd"):
        raise PackageError(f"{file.path} is for {file.chip}, but {spec} is a {info.chip}")
    module: Any = device.load(file.blob, label=file.path.name)
    if amd:
        return module.kernel(plan.kernel.name, dynamic_lds_bytes=lds, local_bytes=plan.local_bytes)
    if lds:
        raise LaunchError(f"--lds is for AMD GPUs; {file.path} is for {file.chip}")
    return module[plan.kernel.name]


def _launch(device: Device, program: Any, arguments: Sequence[Any], geometry: Geometry) -> Timings:
    job = device.launch(program, *arguments, groups=geometry.groups, local=geometry.local)
    job.wait()
    return job.timings


def _notes(device: Device) -> tuple[str, ...]:
    """Return what the run relied on, if the device is virtual."""
    return tuple(f"{each.kind}: {each.topic}: {each.text}" for each in getattr(device.port, "notes", ()))


def _results(plan: Plan, arguments: Sequence[Any]) -> dict[str, Contents]:
    """Return the contents of what may have been written; save what is to be saved."""
    found = {}
    for name, parameter, value in zip(plan.labels, plan.kernel.parameters, arguments, strict=True):
        if not isinstance(value, Buffer) or not (parameter.written or parameter.index in plan.saves):
            continue
        array = value.numpy()
        if parameter.index in plan.saves:
            with plan.saves[parameter.index].open("wb") as file:
                np.save(file, array, allow_pickle=False)
        if parameter.written:
            found[name] = describe(array)
    return found


def describe(array: Array) -> Contents:
    """Return what is in an array."""
    sha256 = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    shape, dtype = tuple(array.shape), array.dtype.name
    if array.dtype.kind not in "biuf":
        first = tuple(str(value) for value in array.flat[:FIRST_ELEMENTS])
        return Contents(dtype, shape, None, None, None, 0, first, sha256)
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array.reshape(-1)
    some = finite.size > 0
    return Contents(
        dtype=dtype,
        shape=shape,
        minimum=_plain(finite.min()) if some else None,
        maximum=_plain(finite.max()) if some else None,
        mean=float(finite.mean(dtype=np.float64)) if some else None,
        not_finite=array.size - finite.size,
        first=tuple(_element(value) for value in array.flat[:FIRST_ELEMENTS]),
        sha256=sha256,
    )


def _plain(value: np.generic) -> float | int:
    return float(value) if value.dtype.kind == "f" else int(value)


def _element(value: np.generic) -> float | int | str:
    """Return a number; JSON has none for what is not finite."""
    return _plain(value) if np.isfinite(value) else str(value)


# ----- reports ------------------------------------------------------------------------------------


def _print_kernels(file: ProgramFile, json: bool) -> None:
    if json:
        print_json(kernels_as_json(file))
        return
    console().print(kernel_table(file))
    console().print(Text("choose one with --kernel"), soft_wrap=True)


def kernels_as_json(file: ProgramFile) -> dict[str, Any]:
    """Return a file's kernels as plain data."""
    return {
        "file": str(file.path),
        "kind": file.kind.value,
        "target": file.chip,
        "kernels": [each.as_json() for each in file.kernels],
    }


def _as_json(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    return {
        "file": str(plan.file.path),
        "target": plan.file.chip,
        "kernel": plan.kernel.as_json(),
        "device": asdict(outcome.device),
        "virtual": outcome.device.virtual,
        "groups": outcome.geometry.groups,
        "local": outcome.geometry.local,
        "load_ms": outcome.load_seconds * 1e3,
        "first_launch_ms": outcome.first_seconds * 1e3,
        "first_launch_stages_ms": {
            name: None if (value := getattr(outcome.first, name)) is None else value * 1e3
            for name in LAUNCH_STAGES
        },
        "timed_launches": len(outcome.timed),
        "stages": as_json(summarise(outcome.timed, LAUNCH_STAGES)) if outcome.timed else None,
        "buffers": {name: asdict(each) for name, each in outcome.written.items()},
        "saved": {plan.labels[index]: str(path) for index, path in plan.saves.items()},
        "notes": outcome.notes,
    }


def _print(plan: Plan, outcome: Outcome) -> None:
    out = console()
    for line in _head(plan, outcome):
        out.print(Text(line), soft_wrap=True)
    out.print(_buffer_table(outcome.written))
    for name, each in outcome.written.items():
        out.print(Text(f"SHA-256 of {name}: {each.sha256}"), soft_wrap=True)
    for index, path in plan.saves.items():
        out.print(Text(f"wrote {plan.labels[index]} to {path}"), soft_wrap=True)
    runs = outcome.timed or (outcome.first,)
    which = f"{len(runs)} launches after the first one" if outcome.timed else "the first launch"
    out.print(stage_table(f"stages: {which}", summarise(runs, LAUNCH_STAGES)))
    for note in outcome.notes:
        out.print(Text(f"note: {note}"), soft_wrap=True)


def _head(plan: Plan, outcome: Outcome) -> list[str]:
    info, geometry = outcome.device, outcome.geometry
    groups, local = ("x".join(map(str, sizes)) for sizes in (geometry.groups, geometry.local))
    kind = "virtual" if info.virtual else "real"
    lines = [
        f"kernel  {plan.kernel.signature}",
        f"launch  {groups} groups of {local} work-items, for {plan.file.chip}",
        f"device  {info.name}: {kind} {info.chip}, through {info.interface}",
    ]
    if info.virtual:
        lines.append(VIRTUAL_NOTICE)
    lines.append(
        f"loaded in {outcome.load_seconds * 1e3:.1f} ms, first launch {outcome.first_seconds * 1e3:.1f} ms"
        + " (with translation, if the cache had none)" * info.virtual
    )
    return lines


def _buffer_table(written: Mapping[str, Contents]) -> Any:
    numbers = ("min", "max", "mean", "not finite")
    made = table(
        "buffers after the first launch", "buffer", "type", *numbers, "first elements", numbers=numbers
    )
    for name, each in written.items():
        values = (each.minimum, each.maximum, each.mean)
        shape = "x".join(map(str, each.shape))
        first = " ".join(_short(value, 5) for value in each.first) + " ..." * (
            math.prod(each.shape) > len(each.first)
        )
        row(made, name, f"{each.dtype} {shape}", *map(_short, values), each.not_finite or "", first)
    return made


def _short(value: float | int | str | None, digits: int = 7) -> str:
    if value is None:
        return ""
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)
