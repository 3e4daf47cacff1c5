"""The port that acknowledges, for KFD: what :mod:`ringfence.virtual.stub` is for KGSL.

A rung doorbell counts as a completed submission: the read pointer of the queue stands at the end of time, and
every 32-bit word that the commands signal holds the largest value from then on. Everything else is done by
the kernel side of a virtual machine.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringfence.hardware.amd import kfd, pm4
from ringfence.hardware.amd.chips import Generation
from ringfence.hardware.amd.pm4 import Opcode
from ringfence.hardware.fields import Ioctl
from ringfence.virtual.amd.system import KfdSystem
from ringfence.virtual.front import MachineFront

if TYPE_CHECKING:
    from ringfence.virtual.machine import Machine
    from ringfence.virtual.memory import AddressSpace

_REACHED = 0xFFFFFFFF
_FAR_AHEAD = 1 << 62
_PACKET_DWORDS = 4

Word = int | tuple[str, int]
"""A dword, or of an address: the label of the buffer that it points into, and the offset there."""


@dataclass(frozen=True, slots=True)
class Received:
    """One submission as the GPU would have found it: its commands, and the argument blocks that they name.

    The addresses of two runs differ, so addresses are given as places in buffers.
    """

    words: tuple[Word, ...]
    arguments: tuple[tuple[Word, ...], ...]


class _Queue:
    """A queue that was created: what of its ring the port looks at."""

    def __init__(self, request: kfd.CREATE_QUEUE, memory: AddressSpace) -> None:
        self.memory = memory
        self.ring = request.ring_base_address
        self.dwords = request.ring_size // 4
        self.seen: set[int] = set()

    def command(self, value: int) -> tuple[int, int]:
        """Return address and dwords of the indirect buffer that ends at write pointer ``value``."""
        at = self.ring + 4 * ((value - _PACKET_DWORDS) % self.dwords)
        header, low, high, size = (
            int.from_bytes(self.memory.read(at + 4 * k, 4), "little") for k in range(_PACKET_DWORDS)
        )
        if header != pm4.type3_header(Opcode.INDIRECT_BUFFER, _PACKET_DWORDS - 1):
            raise ValueError(f"the ring holds packet {header:#010x}, where an INDIRECT_BUFFER was expected")
        return low | high << 32, pm4.INDIRECT_BUFFER_2.get(size, "IB_SIZE")


class KfdStubPort(MachineFront):
    """A port in front of a machine with one AMD GPU.

    ``submissions`` counts; with ``record`` each is kept in ``received``. With ``execute`` the machine does
    everything, and what it was given can be compared with what was acknowledged.
    """

    def __init__(self, machine: Machine, *, execute: bool = False, record: bool = False) -> None:
        super().__init__(machine)
        self.submissions = 0
        self.received: list[Received] = []
        if not execute:
            vars(self)["now"] = time.monotonic
        self._execute = execute
        self._record = record
        self._queues: list[_Queue] = []

    # ----- submissions ----------------------------------------------------------------------------

    def ioctl(self, fd: int, argument: Ioctl) -> None:
        """Acknowledge waits; the machine does everything else."""
        if argument.__class__ is kfd.WAIT_EVENTS and not self._execute:
            argument.wait_result = kfd.WaitResult.TIMEOUT
            return
        self.machine.ioctl(fd, argument)
        if isinstance(argument, kfd.CREATE_QUEUE):
            self._queues.append(_Queue(argument, self._memory))
            if not self._execute:
                ctypes.c_uint64.from_address(argument.read_pointer_address).value = _FAR_AHEAD

    def doorbell(self, address: int) -> Callable[[int], None]:
        """Return what takes a submission: it looks at commands that it has not seen before."""
        queue = self._queues[-1]
        host = queue.memory.find(queue.ring)
        assert host is not None
        ring = (
            memoryview((ctypes.c_uint32 * queue.dwords).from_address(host.host_address)).cast("B").cast("I")
        )
        seen, mask = queue.seen, queue.dwords - 1
        executed = self.machine.doorbell(address) if self._execute else None
        always = self._record or self._execute

        def acknowledge(value: int) -> None:
            self.submissions += 1
            if always or ring[(value - 3) & mask] not in seen:
                seen.add(ring[(value - 3) & mask])
                self._receive(queue, value)
                if executed is not None:
                    executed(value)

        return acknowledge

    def _receive(self, queue: _Queue, value: int) -> None:
        address, count = queue.command(value)
        memory = queue.memory
        words = _dwords(memory, address, count)
        if self._record:
            arguments = tuple(_placed(memory, block) for block in _arguments(memory, words))
            self.received.append(Received(_placed(memory, words), arguments))
        if not self._execute:
            for signal in _signals(words):
                memory.write_u32(signal, _REACHED)

    @property
    def _memory(self) -> AddressSpace:
        system = self.machine.devices[0]
        assert isinstance(system, KfdSystem)
        return system.process.objects.spaces[0]

    def fence(self) -> None:
        """Nothing: no device looks at memory."""


def _dwords(memory: AddressSpace, address: int, count: int) -> list[int]:
    return list(memoryview(memory.read(address, 4 * count)).cast("I"))


def _packets(words: list[int]) -> Iterator[pm4.Decoded]:
    at = 0
    while at < len(words):
        packet = pm4.decode_packet(Generation.GFX11, words, at)
        at += 1 if packet is None else packet.length
        if packet is not None:
            yield packet


def _signals(words: list[int]) -> Iterator[int]:
    """Return the addresses of 32-bit words that the commands store to."""
    for packet in _packets(words):
        if packet.opcode is Opcode.RELEASE_MEM:
            data = packet.field(pm4.RELEASE_MEM_1, "DATA_SEL")
            if data == pm4.DataSel.SEND_32_BIT_LOW:
                yield packet.value("ADDRESS_LO") | packet.value("ADDRESS_HI") << 32


def _arguments(memory: AddressSpace, words: list[int]) -> Iterator[list[int]]:
    """Return 64 dwords at each address that is loaded into the first registers of a launch."""
    first = pm4.SET_SH_REG_0.pack(REG_OFFSET=0x240)  # COMPUTE_USER_DATA_0
    for packet in _packets(words):
        if packet.opcode is Opcode.SET_SH_REG and packet.body[0] == first:
            low, high = packet.tail[:2]
            yield _dwords(memory, low | high << 32, 64)


def _placed(memory: AddressSpace, words: list[int]) -> tuple[Word, ...]:
    """Return dwords with addresses replaced by places in buffers."""
    out: list[Word] = []
    at = 0
    while at < len(words):
        inside = memory.find(words[at] | words[at + 1] << 32) if at + 1 < len(words) else None
        if inside is None:
            out.append(words[at])
            at += 1
        else:
            out.append((inside.label, (words[at] | words[at + 1] << 32) - inside.start))
            at += 2
    return tuple(out)
