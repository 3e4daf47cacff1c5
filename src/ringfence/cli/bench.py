"""``ringfence bench``: what a launch and the replay of a graph cost the host.

A port takes the GPU's place that acknowledges every submission at once (:mod:`ringfence.virtual.stub`), so
what is timed is checking, encoding, patching and the call of the port, not a GPU and not the kernel's driver.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from ringfence.cli.output import console, print_json, row, table

if TYPE_CHECKING:
    from ringfence.api import Device
    from ringfence.hardware.adreno.program import AdrenoProgram
    from ringfence.hardware.amd.code_object import CodeObject
    from ringfence.port import Port
    from ringfence.runtime.graph import BoundGraph
    from ringfence.runtime.memory import Buffer

COUNT = 256
LOCAL = 64
GROUPS = (COUNT // LOCAL, 1, 1)
INSTANCES = 2
SECONDS = 1.0
QUICK_SECONDS = 0.2
WINDOW_MICROSECONDS = 200.0
ENDURANCE_WINDOW = 40  # replays timed together
REPLAYS, QUICK_REPLAYS = 100_000, 10_000
GRAPHS = ((10, "one"), (200, "one"), (200, "all"))

# `c[i] = a[i] + b[i]`, compiled for a630 by Mesa 25.2.7 (tinymesa) through tinygrad; comments are Mesa's
# disassembly.
_ADD = (
    0x46D80803200600C0,  # (nop3) shl.b r0.w, r48.x, 6
    0x4218080000030000,  # (nop3) add.u r0.x, r0.x, r0.w
    0x47180804201F0000,  # (nop3) ashr.b r1.x, r0.x, 31
    0x46D8080420020004,  # (nop3) shl.b r1.x, r1.x, 2
    0x650004040004301E,  # shrg r1.x, 30, r0.x, r1.x
    0x46D8000020020000,  # (nop2) shl.b r0.x, r0.x, 2
    0x4210000900041003,  # add.u r2.y, c0.w, r1.x
    0x4210000500001002,  # add.u r1.y, c0.z, r0.x
    0x4210000E00001004,  # add.u r3.z, c1.x, r0.x
    0x4210000A00041001,  # add.u r2.z, c0.y, r1.x
    0x4210000400041005,  # add.u r1.x, c1.y, r1.x
    0x4290400010020005,  # cmps.u.lt hr0.x, r1.y, c0.z
    0x429840021004000E,  # (nop2) cmps.u.lt hr0.z, r3.z, c1.x
    0x2009400B00000000,  # cov.u16s32 r2.w, hr0.x
    0x2009401000000002,  # cov.u16s32 r4.x, hr0.z
    0x0000000000000000,  # nop
    0x4210000700001000,  # add.u r1.w, c0.x, r0.x
    0x421000060009000B,  # add.u r1.z, r2.w, r2.y
    0x4210080F00040010,  # (nop1) add.u r3.w, r4.x, r1.x
    0x4298480110000007,  # (nop3) cmps.u.lt hr0.y, r1.w, c0.x
    0xC006000C01814001,  # ldg.u32 r3.x, g[r1.y], 1
    0x2009400D00000001,  # cov.u16s32 r3.y, hr0.y
    0xC006001101838001,  # ldg.u32 r4.y, g[r3.z], 1
    0x0000020000000000,  # (rpt2)nop
    0x42100008000A000D,  # add.u r2.x, r3.y, r2.z
    0x5018080C0011000C,  # (sy)(nop3) add.f r3.x, r3.x, r4.y
    0x0000020000000000,  # (rpt2)nop
    0xC0C60F0001800018,  # stg.u32 g[r1.w], r3.x, 1
    0x0300000000000000,  # end
)
_CODE_BYTES = 384


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. ``ratio`` is how many times better it is than the peer's, ``None`` without one."""

    name: str
    ours: float
    peer: float | None
    ratio: float | None
    unit: str
    note: str


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds per call: of the best window of calls, and of the median one."""

    best: float
    median: float


def add_program() -> AdrenoProgram:
    """Return the program that is launched: it adds two arrays of float32, one element per thread."""
    from ringfence.hardware.adreno.program import AdrenoProgram, Argument

    names = ("c", "a", "b")
    return AdrenoProgram(
        name="add",
        chip="a630",
        code=b"".join(word.to_bytes(8, "little") for word in _ADD).ljust(_CODE_BYTES, b"\0"),
        immediates_offset=64,
        full_registers=5,
        half_registers=1,
        workgroup_id_register=0xC0,
        local_id_register=0,
        arguments=tuple(
            Argument(kind="buffer", name=name, offset=8 * index, written=not index)
            for index, name in enumerate(names)
        ),
        local_size=(LOCAL, 1, 1),
        compiler="Mesa 25.2.7",
    )


# The same for gfx11, as LLVM's disassembler prints it; the group id is in s15.
_ADD_GFX11 = (
    0xF4080100, 0xF8000000,  # s_load_b128 s[4:7], s[0:1], null
    0xF4040200, 0xF8000010,  # s_load_b64 s[8:9], s[0:1], 0x10
    0x8402860F,  # s_lshl_b32 s2, s15, 6
    0x4A000002,  # v_add_nc_u32_e32 v0, s2, v0
    0x30000082,  # v_lshlrev_b32_e32 v0, 2, v0
    0xBF89FC07,  # s_waitcnt lgkmcnt(0)
    0xDC520000, 0x01060000,  # global_load_b32 v1, v0, s[6:7]
    0xDC520000, 0x02080000,  # global_load_b32 v2, v0, s[8:9]
    0xBF8903F7,  # s_waitcnt vmcnt(0)
    0x06020501,  # v_add_f32_e32 v1, v1, v2
    0xDC6A0000, 0x00040100,  # global_store_b32 v0, v1, s[4:5]
    0xBFB00000,  # s_endpgm
)  # fmt: skip


def add_code_object() -> CodeObject:
    """Return the program as a code object for gfx1100."""
    from ringfence.drivers.amd.copy_programs import code_object_of
    from ringfence.hardware.amd.metadata import Argument, ArgumentKind

    arguments = tuple(
        Argument(
            8 * index, 8, ArgumentKind.GLOBAL_BUFFER, name=name, type_name="float*", is_const=bool(index)
        )
        for index, name in enumerate(("c", "a", "b"))
    )
    return code_object_of("add", "gfx1100", _ADD_GFX11, arguments, LOCAL)


class Scene:
    """A device with a program and arrays: ``b`` is full of ones, ``inputs`` have different values."""

    def __init__(self, device: Device) -> None:
        self.device = device
        if device.info.family == "amd":
            self.program = device.load(add_code_object())["add"]
        else:
            self.program = device.load(add_program())
        self.b = self._array(1.0)
        self.c = self._array(0.0)
        self.inputs = [self._array(float(10 * index)) for index in range(2)]

    def _array(self, value: float) -> Buffer:
        return self.device.array(np.full(COUNT, value, np.float32))

    def launch(self, a: Buffer) -> Any:
        """Launch ``c = a + b``."""
        return self.device.launch(self.program, self.c, a, self.b, groups=GROUPS)

    def graph(self, nodes: int, readers: str) -> tuple[BoundGraph, Buffer]:
        """Return a chain of launches, and its result: ``one`` reads the input ``x`` and every node adds
        ``b``, or ``all`` add the input.
        """
        from ringfence.runtime.stream import Parameter

        x = Parameter("x", self.inputs[0])
        results = [self._array(0.0) for _ in range(2)]
        with self.device.capture(f"chain of {nodes}") as graph:
            for index in range(nodes):
                before = results[index % 2] if index else x
                other = x if readers == "all" else self.b
                result = results[(index + 1) % 2]
                self.device.launch(self.program, result, before, other, groups=GROUPS)
        return graph.bind(instances=INSTANCES), result


QUEUES = {"kgsl": "kgsl", "pm4": "kfd"}
"""The queues that are measured, and the interfaces that they are reached through."""


@contextmanager
def scene(port: Port, interface: str = "kgsl") -> Iterator[Scene]:
    """Open the port's device and set the scene."""
    from ringfence.api import open as open_device

    with open_device(interface, port=port, visible="0") as device:
        yield Scene(device)


@contextmanager
def stub_scene(interface: str = "kgsl") -> Iterator[Scene]:
    """A scene on a port that acknowledges."""
    from ringfence.virtual.amd.stub import KfdStubPort
    from ringfence.virtual.machine import Machine
    from ringfence.virtual.stub import StubPort

    chip, stub = ("a630", StubPort) if interface == "kgsl" else ("gfx1100", KfdStubPort)
    with Machine((chip,)) as machine, scene(stub(machine), interface) as made:
        yield made


# ----- measuring ----------------------------------------------------------------------------------


def measure(call: Callable[[], object], seconds: float) -> Timing:
    """Time ``call`` again and again for ``seconds``, in windows so short that others disturb only some."""
    calls = max(1, round(WINDOW_MICROSECONDS / min(_window(call, 1) for _ in range(20))))
    windows = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        windows.append(_window(call, calls))
    return Timing(min(windows), median(windows))


def _window(call: Callable[[], object], calls: int) -> float:
    """Return microseconds per call."""
    begin = time.perf_counter_ns()
    for _ in range(calls):
        call()
    return (time.perf_counter_ns() - begin) / calls / 1000


def host_costs(seconds: float, replays: int, queue: str = "kgsl") -> Iterator[Row]:
    """Measure a queue; the rows have no peer."""
    with stub_scene(QUEUES[queue]) as made:
        inputs = cycle(made.inputs)
        yield _row(f"{queue}.launch", measure(lambda: made.launch(next(inputs)), seconds), "3 buffers")
        for nodes, readers in GRAPHS:
            bound, _ = made.graph(nodes, readers)
            timing = measure(lambda: bound.replay({"x": next(inputs)}), seconds)  # noqa: B023
            yield _row(
                f"{queue}.replay{nodes}.{readers}",
                timing,
                f"another input each time, read by {readers} of {nodes}",
            )
        yield endurance(made, replays, queue)


def _row(name: str, timing: Timing, note: str) -> Row:
    return Row(name, timing.best, None, None, "us", f"median {timing.median:.2f}; {note}")


def endurance(made: Scene, replays: int, queue: str = "kgsl") -> Row:
    """Replay again and again; neither time nor memory may grow."""
    bound, _ = made.graph(200, "one")
    inputs = cycle(made.inputs)
    count = replays // ENDURANCE_WINDOW
    windows = np.empty(count)
    gc.collect()
    before = _resident_bytes(), made.device.memory_bytes
    for index in range(count):
        windows[index] = _window(lambda: bound.replay({"x": next(inputs)}), ENDURANCE_WINDOW)
    gc.collect()
    grown = _resident_bytes() - before[0], made.device.memory_bytes - before[1]
    first, last = np.sort(windows[: count // 10]), np.sort(windows[-(count // 10) :])
    return Row(
        f"{queue}.replay200.endurance",
        float(last[0]),
        None,
        None,
        "us",
        f"{ENDURANCE_WINDOW * count} replays: the first tenth took {first[0]:.2f} (median "
        f"{np.median(first):.2f}), the last {last[0]:.2f} (median {np.median(last):.2f}); the process grew "
        f"by {grown[0] / 1024:.0f} KiB, device memory by {grown[1]} bytes",
    )


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ----- the command --------------------------------------------------------------------------------


def show(rows: list[Row], title: str) -> None:
    """Print rows as a table."""
    columns = ("ours", "peer", "times better", "unit")
    made = table(title, "what", *columns, "note", numbers=columns[:3])
    for each in rows:
        peer = "" if each.peer is None else f"{each.peer:.2f}"
        ratio = "" if each.ratio is None else f"{each.ratio:.1f}"
        row(made, each.name, f"{each.ours:.2f}", peer, ratio, each.unit, each.note)
    console().print(made)


def load_note() -> str:
    """Return how busy the machine is: figures of a busy one are worse than those of an idle one."""
    return f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"


def bench_command(
    json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Measure for a shorter time.")] = False,
) -> None:
    """Measure what launches and replays cost the host, on a port that acknowledges."""
    rows = [each for queue in QUEUES for each in host_costs(*settings(quick), queue)]
    if json:
        print_json([asdict(each) for each in rows])
    else:
        show(rows, f"host cost, without a GPU ({load_note()})")


def settings(quick: bool) -> tuple[float, int]:
    """Return seconds per figure, and how many replays the endurance test does."""
    return (QUICK_SECONDS, QUICK_REPLAYS) if quick else (SECONDS, REPLAYS)
