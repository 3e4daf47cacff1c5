"""A small KGSL client for tests of the virtual device, and command streams written by hand.

It encodes with the packet headers of ``hardware/adreno`` and its own register numbers: it is no driver.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Callable, Iterable
from contextlib import contextmanager

import pytest

from ringfence.errors import FaultReport, PortError
from ringfence.hardware.adreno import kgsl
from ringfence.hardware.adreno.packets import Opcode, type4_header, type7_header
from ringfence.virtual.isa.ir3.dispatch import Dispatch
from ringfence.virtual.machine import Machine
from ringfence.virtual.memory import AddressSpace

CONTEXT = 0x04008A12  # what tinygrad's ops_qcom.py asks for
TOLERANT = CONTEXT & ~0x200  # without NO_FAULT_TOLERANCE
SVM = 1 << 28  # MEMFLAGS.USE_CPU_MAP
PAGE = 4096


class FakeExecutor:
    """Runs no shader: it records dispatches and calls ``action`` for each."""

    def __init__(self, action: Callable[[Dispatch, AddressSpace], FaultReport | None] | None = None) -> None:
        self.action = action
        self.ran: list[Dispatch] = []
        self.prepared: list[Dispatch] = []

    def prepare(self, dispatches: Iterable[Dispatch]) -> None:
        self.prepared.extend(dispatches)

    def run(self, dispatch: Dispatch, memory: AddressSpace) -> FaultReport | None:
        self.ran.append(dispatch)
        return self.action(dispatch, memory) if self.action is not None else None


class Buffer:
    """A mapped object of the client."""

    def __init__(self, client: Client, number: int, address: int, gpu: int, size: int) -> None:
        self.client, self.id, self.address, self.gpu, self.size = client, number, address, gpu, size

    def write(self, data: bytes, offset: int = 0) -> None:
        ctypes.memmove(self.address + offset, data, len(data))

    def read(self, size: int, offset: int = 0) -> bytes:
        return ctypes.string_at(self.address + offset, size)

    def u32(self, offset: int = 0) -> int:
        return int.from_bytes(self.read(4, offset), "little")

    def u64(self, offset: int = 0) -> int:
        return int.from_bytes(self.read(8, offset), "little")

    def words(self, words: Iterable[int], offset: int = 0) -> None:
        words = list(words)
        self.write(struct.pack(f"<{len(words)}I", *words), offset)

    def free(self) -> None:
        self.client.call(kgsl.GPUOBJ_FREE(id=self.id))
        self.client.machine.munmap(self.address, self.size)


class Client:
    """A descriptor, a context, and the usual calls."""

    def __init__(self, machine: Machine, flags: int = CONTEXT) -> None:
        self.machine = machine
        self.fd = machine.open("/dev/kgsl-3d0")
        self.context = self.create_context(flags)

    def call(self, argument):
        self.machine.ioctl(self.fd, argument)
        return argument

    def create_context(self, flags: int = CONTEXT) -> int:
        return self.call(kgsl.DRAWCTXT_CREATE(flags=flags)).drawctxt_id

    def buffer(self, size: int = PAGE, flags: int = SVM, label: str = "") -> Buffer:
        name = ctypes.create_string_buffer(label.encode())
        made = self.call(
            kgsl.GPUOBJ_ALLOC(
                size=size,
                flags=flags,
                metadata=ctypes.addressof(name),
                metadata_len=len(name) if label else 0,
            )
        )
        address = self.machine.mmap(self.fd, made.mmapsize, made.id << 12)
        gpu = self.call(kgsl.GPUOBJ_INFO(id=made.id)).gpuaddr
        return Buffer(self, made.id, address, gpu, made.mmapsize)

    def command(self, *buffers: tuple[int, int], context: int | None = None, **fields) -> kgsl.GPU_COMMAND:
        """Return a GPU_COMMAND of buffers (address, bytes). It keeps what it points to alive."""
        entries = (kgsl.COMMAND_OBJECT * max(1, len(buffers)))(
            *(kgsl.COMMAND_OBJECT(gpuaddr=address, size=size, flags=1) for address, size in buffers)
        )
        argument = kgsl.GPU_COMMAND(
            cmdlist=ctypes.addressof(entries) if buffers else 0,
            cmdsize=32 if buffers else 0,
            numcmds=len(buffers),
            context_id=self.context if context is None else context,
        )
        for name, value in fields.items():
            setattr(argument, name, value)
        argument.keep = entries
        return argument

    def submit(self, words: Iterable[int], context: int | None = None) -> int:
        """Run dwords from a buffer of their own; return the timestamp."""
        words = list(words)
        ring = self.buffer(max(PAGE, 4 * len(words)))
        ring.words(words)
        return self.call(self.command((ring.gpu, 4 * len(words)), context=context)).timestamp

    def wait(self, timestamp: int, timeout: int = 0, context: int | None = None) -> None:
        number = self.context if context is None else context
        self.call(kgsl.DEVICE_WAITTIMESTAMP_CTXTID(context_id=number, timestamp=timestamp, timeout=timeout))

    def run(self, words: Iterable[int]) -> None:
        """Submit and wait."""
        self.wait(self.submit(words))

    def retired(self, context: int | None = None) -> int:
        number = self.context if context is None else context
        return self.call(kgsl.CMDSTREAM_READTIMESTAMP_CTXTID(context_id=number, type=2)).timestamp

    def lost(self, words: Iterable[int]) -> FaultReport:
        """Submit words that make the context fail; return the report."""
        timestamp = self.submit(words)
        with refused(errno.EDEADLK):
            self.wait(timestamp)
        report = self.machine.explain(self.fd, self.context)
        assert report is not None
        return report


@contextmanager
def refused(code: int):
    """Expect a call of the port to fail with an errno."""
    with pytest.raises(PortError) as caught:
        yield caught
    assert caught.value.errno == code, f"{caught.value}"


# ----- streams ------------------------------------------------------------------------------------


def op(opcode: Opcode, *payload: int) -> list[int]:
    return [type7_header(opcode, len(payload)), *payload]


def reg(register: int, *values: int) -> list[int]:
    return [type4_header(register, len(values)), *values]


def halves(address: int) -> tuple[int, int]:
    return address & 0xFFFFFFFF, address >> 32


def mem_write(address: int, *values: int) -> list[int]:
    return op(Opcode.MEM_WRITE, *halves(address), *values)


def event(number: int, address: int | None = None, value: int = 0, flags: int = 0) -> list[int]:
    if address is None:
        return op(Opcode.EVENT_WRITE, number | flags)
    return op(Opcode.EVENT_WRITE, number | flags, *halves(address), value)


def wait_mem(address: int, reference: int, function: int = 5, mask: int = 0xFFFFFFFF) -> list[int]:
    return op(Opcode.WAIT_REG_MEM, function | 1 << 4, *halves(address), reference, mask, 32)


def indirect(address: int, dwords: int) -> list[int]:
    return op(Opcode.INDIRECT_BUFFER, *halves(address), dwords)


def load_state(dword0: int, address: int) -> list[int]:
    return op(Opcode.LOAD_STATE6_FRAG, dword0, *halves(address))


LOAD_CONSTANTS = 0x40364000  # 256 vec4, indirect, to the constants of the compute shader
LOAD_SHADER = 0x00760000  # one unit, indirect
LOAD_SAMPLER, LOAD_TEXTURE, LOAD_UAV = 0x00560000, 0x00564000, 0x0076C000


def dispatch(
    code: int,
    constants: int,
    /,
    *,
    groups: tuple[int, int, int] = (2, 1, 1),
    local: tuple[int, int, int] = (64, 1, 1),
    skip: tuple[str, ...] = (),
    **changed: list[int],
) -> list[int]:
    """Return what tinygrad sends for one NIR program, by named parts.

    ``changed`` replaces parts, ``skip`` drops some.
    """
    gx, gy, gz = (g * n for g, n in zip(groups, local))
    lx, ly, lz = (n - 1 for n in local)
    parts = {
        "marker": op(Opcode.SET_MARKER, 8),
        "invalidate": reg(0xBB08, 0x60),
        "revalidate": reg(0xBB08, 0),
        "tsize": reg(0xA9BA, 0x80),
        "usize": reg(0xAA00, 0x40),
        "mode": reg(0xAB00, 5),
        "perf": reg(0xAE0F, 0x20),
        "tpl1": reg(0xB309, 2),
        "eco": reg(0xB600, 0),
        "idle": op(Opcode.WAIT_FOR_IDLE),
        "ndrange": reg(
            0xB990, 3 | lx << 2 | ly << 12 | lz << 22, gx, 0, gy, 0, gz, 0, 0x00CCC0CF, 0xFC, *groups
        ),
        "program": reg(0xA9B0, 4 << 7 | 2 << 1, 0x41, 0, 0, *halves(code), 0, 0, 0, 0),
        "constants": load_state(LOAD_CONSTANTS, constants),
        "shader": load_state(LOAD_SHADER, code),
        "config_regs": reg(0xB983, 0xFCFCFCFC, 0xFCFCFCFC, 0xFCFCFCFC, 0xFC, 0x100),
        "stack": reg(0xA9BD, 0x100000),
        "size": reg(0xA9BC, 1),
        "resources": [],
        "config": reg(0xA9BB, 0x100),
        "ids": reg(0xB997, 0x00FCFCC0, 0xFC),
        "exec": op(Opcode.EXEC_CS, 0, *groups),
    }
    parts.update(changed)
    return [word for name, words in parts.items() if name not in skip for word in words]
