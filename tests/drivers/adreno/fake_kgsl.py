"""A port that acknowledges: KGSL as far as the driver sees it, and a command processor that only signals.

Objects are memory files, so that CPU and GPU addresses differ; imported memory is used in place. Submissions
run at once, or when :attr:`FakeKgsl.hold` is off again. Every dispatch is recorded with its registers and
loaded state; a test may play the shader by setting :attr:`FakeKgsl.shader`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from ringfence.errors import FaultReport, PortError
from ringfence.hardware.adreno import kgsl
from ringfence.hardware.adreno import registers as reg
from ringfence.hardware.adreno.packets import (
    EVENT_WRITE_0,
    LOAD_STATE6_0,
    REG_TO_MEM_0,
    STATE_UNIT_BYTES,
    WAIT_REG_MEM_0,
    Event,
    Opcode,
    StateBlock,
    StateType,
    Type4,
    decode_header,
)
from ringfence.hardware.fields import Ioctl
from ringfence.port.linux import LinuxPort

PAGE = 4096
A630 = 0x06030001
TICKS = 19_200_000
KERNEL_QUEUE = 50


@dataclass
class Object:
    gpu: int
    size: int
    fd: int = -1
    host: int = 0
    flags: int = 0


@dataclass
class Dispatch:
    """The state at one EXEC_CS: register dwords by offset, loaded bytes by (block, type), group counts."""

    registers: dict[int, int]
    state: dict[tuple[StateBlock, StateType], bytes]
    groups: tuple[int, int, int]

    def field(self, register: type[reg.Register], name: str) -> int:
        return register.get(self.value(register), name)

    def value(self, register: type[reg.Register]) -> int:
        low = self.registers[register.OFFSET]
        return low | self.registers[register.OFFSET + 1] << 32 if register.WIDTH_BITS == 64 else low

    @property
    def constants(self) -> bytes:
        return self.state[StateBlock.CS_SHADER, StateType.CONSTANTS]


@dataclass
class FakeKgsl:
    """``script`` maps names of calls to errnos, one per call; ``fail_at`` fails the n-th call of all."""

    chip_id: int = A630
    hold: bool = False
    script: dict[str, list[int]] = field(default_factory=dict)
    fail_at: tuple[int, int] | None = None
    report: FaultReport | None = None
    shader: Callable[[Dispatch, FakeKgsl], None] | None = None
    lost_signal: bool = False
    virtual: bool = True

    def __post_init__(self) -> None:
        self.linux = LinuxPort()
        self.calls: list[str] = []
        self.requests: list[Ioctl] = []
        self.counted: list[str] = []
        self.fds: set[int] = set()
        self.contexts: dict[int, int] = {}
        self.dead: set[int] = set()
        self.objects: dict[int, Object] = {}
        self.imports: dict[int, Object] = {}
        self.maps: dict[int, int] = {}
        self.foreign: set[int] = set()
        self.cleaned: list[tuple[int, int]] = []
        self.invalidated: list[tuple[int, int]] = []
        self.synced: list[tuple[int, int]] = []
        self.sleeps: list[float] = []
        self.dispatches: list[Dispatch] = []
        self.streams: list[list[int]] = []
        self.queued = 0
        self.retired = 0
        self.pending: list[tuple[int, int, int]] = []
        self.clock = 100.0
        self._next_id = 0
        self._next_gpu = 0x70_0000_0000
        self._registers: dict[int, int] = {}
        self._state: dict[tuple[StateBlock, StateType], bytes] = {}

    # ----- what tests ask -------------------------------------------------------------------------

    @property
    def live(self) -> dict[str, int]:
        """What exists, by kind: all zero when nothing leaks."""
        return {
            "fds": len(self.fds),
            "contexts": len(self.contexts),
            "objects": len(self.objects),
            "imports": len(self.imports),
            "maps": len(self.maps),
        }

    def sent(self, kind: type[Ioctl]) -> list[Ioctl]:
        return [request for request in self.requests if isinstance(request, kind)]

    def release(self) -> None:
        """Let held submissions run."""
        self.hold = False
        self._run()

    @property
    def count(self) -> int:
        """How many calls could have failed so far."""
        return len(self.counted)

    # ----- port -----------------------------------------------------------------------------------

    def open(self, path: str) -> int:
        self._call("open", f"open({path!r})")
        fd = os.open("/dev/null", os.O_RDWR)
        self.fds.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self.calls.append("close")
        self.fds.remove(fd)
        os.close(fd)
        self.contexts = {context: owner for context, owner in self.contexts.items() if owner != fd}

    def ioctl(self, fd: int, argument: Ioctl) -> None:
        assert fd in self.fds
        self._fd = fd
        name = type(argument).__name__
        after = self._call(name, argument.describe(), argument)
        self.requests.append(type(argument).from_buffer_copy(argument))
        getattr(self, "_" + name.lower())(argument)
        if after:
            raise PortError(argument.describe(), after)

    def mmap(self, fd: int, length: int, offset: int) -> int:
        self._call("mmap", f"mmap({length:#x}, {offset:#x})")
        thing = self.objects[offset >> 12]
        assert length == thing.size
        address = self.linux.mmap(thing.fd, length, 0)
        self.maps[address] = length
        return address

    def munmap(self, address: int, length: int) -> None:
        self._call("munmap", f"munmap({address:#x})")
        assert self.maps.pop(address) == length
        self.linux.munmap(address, length)

    def read_text(self, path: str) -> str:
        raise PortError(f"read({path!r})", errno.ENOENT)

    def now(self) -> float:
        self.clock += 1e-6
        return self.clock

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.clock += seconds

    def fence(self) -> None:
        self.calls.append("fence")

    def clean(self, address: int, length: int) -> None:
        self.calls.append("clean")
        self.cleaned.append((address, length))

    def invalidate(self, address: int, length: int) -> None:
        self.calls.append("invalidate")
        self.invalidated.append((address, length))

    def explain(self, fd: int, context: int) -> FaultReport | None:
        return self.report

    def _call(self, name: str, text: str, argument: Ioctl | None = None) -> int:
        """Count a call; raise what was asked for, or return EPROTO, which comes after the effect."""
        self.calls.append(name)
        self.counted.append(name)
        code = 0
        if self.script.get(name):
            code = self.script[name].pop(0)
        if self.fail_at is not None and self.count == self.fail_at[0]:
            code = self.fail_at[1]
        if code == errno.EPROTO:
            return code
        if code:
            causes = argument.CAUSES if argument is not None else {}
            raise PortError(text, code, causes.get(code, ""))
        return 0

    # ----- ioctls ---------------------------------------------------------------------------------

    def _device_getproperty(self, a: kgsl.DEVICE_GETPROPERTY) -> None:
        payloads = {
            kgsl.Property.DEVICE_INFO: lambda: bytes(kgsl.DEVINFO(device_id=1, chip_id=self.chip_id)),
            kgsl.Property.VERSION: lambda: bytes(kgsl.VERSION(3, 14, 3, 1)),
            kgsl.Property.GPU_MODEL: lambda: b"Adreno630v2".ljust(32, b"\0"),
            kgsl.Property.GPU_RESET_STAT: lambda: struct.pack("<I", 1),
        }
        data = payloads[kgsl.Property(a.type)]()
        assert len(data) == a.sizebytes
        ctypes.memmove(a.value, data, len(data))

    def _setproperty(self, a: kgsl.SETPROPERTY) -> None:
        constraint = kgsl.DEVICE_CONSTRAINT.from_address(a.value)
        self.power = kgsl.DEVICE_CONSTRAINT_PWRLEVEL.from_address(constraint.data).level
        assert constraint.context_id in self.contexts

    def _drawctxt_create(self, a: kgsl.DRAWCTXT_CREATE) -> None:
        a.drawctxt_id = self._next_id = self._next_id + 1
        self.contexts[a.drawctxt_id] = self._fd

    def _drawctxt_destroy(self, a: kgsl.DRAWCTXT_DESTROY) -> None:
        del self.contexts[a.drawctxt_id]
        self.pending.clear()

    def _gpuobj_alloc(self, a: kgsl.GPUOBJ_ALLOC) -> None:
        assert a.size % PAGE == 0
        fd = os.memfd_create("object")
        os.truncate(fd, a.size)
        gpu = self._place(a.size)
        a.id = self._next_id = self._next_id + 1
        a.mmapsize = a.size
        self.objects[a.id] = Object(gpu, a.size, fd, self.linux.mmap(fd, a.size, 0), a.flags)

    def _gpuobj_info(self, a: kgsl.GPUOBJ_INFO) -> None:
        a.gpuaddr, a.size = self.objects[a.id].gpu, self.objects[a.id].size

    def _gpuobj_free(self, a: kgsl.GPUOBJ_FREE) -> None:
        gone = self.objects.pop(a.id)
        self.linux.munmap(gone.host, gone.size)
        os.close(gone.fd)

    def _map_user_mem(self, a: kgsl.MAP_USER_MEM) -> None:
        assert a.hostptr % PAGE == 0 and a.len % PAGE == 0 and a.len and a.memtype == kgsl.UserMemoryType.ADDR
        if any(a.hostptr <= address < a.hostptr + a.len for address in self.foreign):
            raise PortError(a.describe(), errno.EFAULT)
        a.gpuaddr = self._place(a.len)
        self.imports[a.gpuaddr] = Object(a.gpuaddr, a.len, host=a.hostptr, flags=a.flags)

    def _sharedmem_free(self, a: kgsl.SHAREDMEM_FREE) -> None:
        del self.imports[a.gpuaddr]

    def _gpumem_sync_cache(self, a: kgsl.GPUMEM_SYNC_CACHE) -> None:
        assert a.id in self.objects and a.op & kgsl.CacheOperation.RANGE

    def _gpu_command(self, a: kgsl.GPU_COMMAND) -> None:
        if a.context_id in self.dead:
            raise PortError(a.describe(), errno.EDEADLK)
        entry = kgsl.COMMAND_OBJECT.from_address(a.cmdlist)
        assert (
            a.numcmds == 1 and a.cmdsize == ctypes.sizeof(entry) and entry.flags == kgsl.CommandListFlags.IB
        )
        syncs = (kgsl.COMMAND_SYNCPOINT * a.numsyncs).from_address(a.synclist or 1) if a.numsyncs else ()
        for sync in syncs:
            assert (sync.type, sync.size) == (kgsl.SyncPointType.TIMESTAMP, 8)
            point = kgsl.CMD_SYNCPOINT_TIMESTAMP.from_address(sync.priv)
            assert point.context_id in self.contexts and point.timestamp <= self.queued
            self.synced.append((point.context_id, point.timestamp))
        self.queued += 1
        a.timestamp = self.queued
        self.pending.append((entry.gpuaddr, entry.size, self.queued))
        if not self.hold:
            self._run()

    def _cmdstream_readtimestamp_ctxtid(self, a: kgsl.CMDSTREAM_READTIMESTAMP_CTXTID) -> None:
        a.timestamp = self.queued if a.type == kgsl.TimestampType.QUEUED else self.retired

    def _device_waittimestamp_ctxtid(self, a: kgsl.DEVICE_WAITTIMESTAMP_CTXTID) -> None:
        assert 0 < a.timeout < 1 << 31, "0 ms would wait for ever"
        assert a.timestamp <= self.queued, "newer than queued is EINVAL"
        if a.context_id in self.dead:
            raise PortError(a.describe(), errno.EDEADLK)
        if a.timestamp > self.retired:
            self.clock += a.timeout / 1000
            raise PortError(a.describe(), errno.ETIMEDOUT)

    def _place(self, size: int) -> int:
        address = self._next_gpu
        self._next_gpu += size + PAGE
        return address

    # ----- the GPU --------------------------------------------------------------------------------

    def host(self, gpu: int, size: int = 1) -> int:
        """The host address of a GPU address; a fault is a failed test."""
        for thing in (*self.objects.values(), *self.imports.values()):
            if thing.gpu <= gpu and gpu + size <= thing.gpu + thing.size:
                return thing.host + gpu - thing.gpu
        raise AssertionError(f"GPU address {gpu:#x} is not mapped")

    def read(self, gpu: int, size: int) -> bytes:
        return ctypes.string_at(self.host(gpu, size), size)

    def write(self, gpu: int, data: bytes) -> None:
        ctypes.memmove(self.host(gpu, len(data)), data, len(data))

    def _run(self) -> None:
        while self.pending and not self.hold:
            address, size, timestamp = self.pending.pop(0)
            words = list(struct.unpack(f"<{size // 4}I", self.read(address, size)))
            self.streams.append(words)
            self.clock += 5e-6
            self._execute(words)
            self.retired = timestamp

    def _execute(self, words: list[int]) -> None:
        at = 0
        while at < len(words):
            header = decode_header(words[at])
            payload = words[at + 1 : at + 1 + header.count]
            at += 1 + header.count
            if isinstance(header, Type4):
                self._registers.update(enumerate(payload, header.register))
            else:
                self._packet(Opcode(header.opcode), payload)

    def _packet(self, opcode: Opcode, p: list[int]) -> None:
        self.clock += 1e-7
        address = p[1] | p[2] << 32 if len(p) > 2 else 0
        match opcode:
            case Opcode.EVENT_WRITE if (
                len(p) == 4 and EVENT_WRITE_0.get(p[0], "EVENT") == Event.CACHE_FLUSH_TS
            ):
                if not (self.lost_signal and p[3]):
                    self.write(address, struct.pack("<I", p[3]))
            case Opcode.REG_TO_MEM:
                assert REG_TO_MEM_0.get(p[0], "REG") == reg.CP_ALWAYS_ON_COUNTER.OFFSET
                self.write(address, struct.pack("<Q", int(self.clock * TICKS)))
            case Opcode.WAIT_REG_MEM:
                assert WAIT_REG_MEM_0.describe(p[0]) == "FUNCTION=GE POLL=MEMORY"
                assert struct.unpack("<I", self.read(address, 4))[0] >= p[3], "the GPU would hang"
            case Opcode.LOAD_STATE6_FRAG:
                key = (
                    StateBlock(LOAD_STATE6_0.get(p[0], "STATE_BLOCK")),
                    StateType(LOAD_STATE6_0.get(p[0], "STATE_TYPE")),
                )
                size = LOAD_STATE6_0.get(p[0], "NUM_UNIT") * STATE_UNIT_BYTES[key]
                self._state[key] = self.read(address, size)
            case Opcode.EXEC_CS:
                done = Dispatch(dict(self._registers), dict(self._state), (p[1], p[2], p[3]))
                self.dispatches.append(done)
                if self.shader is not None:
                    self.shader(done, self)
