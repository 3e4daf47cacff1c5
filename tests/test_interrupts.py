"""Ctrl-C: a client gets control back at once, whatever a virtual GPU is doing, and is told what was lost."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from oracle.mesa import assemble
from ringfence.hardware.adreno.program import AdrenoProgram, Argument

AT_ONCE = 20.0  # seconds: far below the minute after which an endless program is stopped anyway

# Write a one, then loop for ever.
IR3 = """
    mov.u32u32 r1.x, c0.x
    mov.u32u32 r1.y, c0.y
    mov.u32u32 r2.x, 1
    (rpt5)nop
    stg.u32 g[r1.x], r2.x, 1
    loop:
    jump #loop
    end
"""
OPENCL = "kernel void forever(global volatile uint *p) { p[0] = 1; while (p[1] == 0) { } }"

CLIENT = """
import os, signal, sys, threading, time
import ringfence as rf

def interrupt(view):
    while not view[0]:
        time.sleep(0.01)
    time.sleep(0.1)
    print("interrupted", flush=True)
    os.kill(os.getpid(), signal.SIGINT)

def start(device, groups):
    loaded = device.load(open({path!r}, "rb").read())
    program = loaded["forever"] if isinstance(loaded, dict) else loaded
    buffer = device.zeros(4, "uint32")
    threading.Thread(target=interrupt, args=(buffer.view(),), daemon=True).start()
    return buffer, device.launch(program, buffer, groups=groups, local=1)
"""

CAUGHT = """
with rf.open({spec!r}, timeout=60.0) as device:
    buffer, job = start(device, {groups})
    began = time.monotonic()
    try:
        job.wait()
    except KeyboardInterrupt:
        pass
    else:
        sys.exit("no KeyboardInterrupt")
    try:
        buffer.numpy()
    except rf.GpuHang as error:
        print(error)
    print(job.state)
    assert time.monotonic() - began < {limit}, time.monotonic() - began
"""

NOT_CAUGHT = """
with rf.open({spec!r}, timeout=60.0) as device:
    buffer, job = start(device, {groups})
    job.wait()
"""


@pytest.fixture(params=["a630", "gfx1100"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The chip, and a file with a program for it that loops for ever."""
    chip, path = request.param, tmp_path / f"forever.{request.param}"
    if chip == "a630":
        pointer = Argument(kind="buffer", name="p", dtype="uint32", offset=0, size=8, written=True)
        made = AdrenoProgram(
            name="forever",
            chip=chip,
            code=assemble(IR3),
            full_registers=3,
            half_registers=0,
            arguments=(pointer,),
        )
        path.write_bytes(made.to_bytes())
    else:
        pytest.importorskip("ziglang")
        from ringfence.compile.opencl import compile_opencl

        path.write_bytes(compile_opencl(OPENCL, arch=chip))
    return chip, str(path)


def run(script: str, **values: object) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run a client; return what it printed and how long it took."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", (CLIENT + script).format(**values, limit=AT_ONCE)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done, time.monotonic() - began


@pytest.mark.parametrize("groups", [1, 1_000_000], ids=["one thread", "every core"])
def test_an_interrupted_program_loses_its_device(program: tuple[str, str], groups: int) -> None:
    chip, path = program
    done, _ = run(CAUGHT, path=path, spec=f"virtual:{chip}", groups=groups)
    assert done.returncode == 0, done.stderr
    assert "the program was interrupted by KeyboardInterrupt" in done.stdout
    assert done.stdout.endswith("failed\n")


@pytest.mark.parametrize("mode", ["inline", "async"])
@pytest.mark.parametrize("groups", [1, 1_000_000], ids=["one thread", "every core"])
def test_an_interrupt_ends_the_client(program: tuple[str, str], groups: int, mode: str) -> None:
    chip, path = program
    done, seconds = run(NOT_CAUGHT, path=path, spec=f"virtual:{chip}?mode={mode}", groups=groups)
    assert done.returncode == -2, done  # SIGINT
    assert done.stdout == "interrupted\n" and done.stderr.strip().endswith("KeyboardInterrupt"), done.stderr
    assert seconds < AT_ONCE
