"""A port that acknowledges every submission at once, to measure what the host spends on one.

Everything but submissions and waits is done by the kernel side of a virtual machine, so addresses, objects
and errors are those of a run that is executed. With ``execute=True`` submissions are executed as well: what a
recording port received in both ways can be compared dword for dword.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringfence.hardware.adreno import kgsl
from ringfence.hardware.adreno.packets import (
    LOAD_STATE6_0,
    STATE_UNIT_BYTES,
    Opcode,
    StateBlock,
    StateSource,
    StateType,
    Type7,
    decode_header,
)
from ringfence.hardware.fields import Ioctl
from ringfence.virtual.adreno.command_processor import fetch
from ringfence.virtual.adreno.kgsl import KgslDevice
from ringfence.virtual.front import MachineFront

if TYPE_CHECKING:
    from ringfence.virtual.machine import Machine
    from ringfence.virtual.memory import AddressSpace

_LOADS = (Opcode.LOAD_STATE6, Opcode.LOAD_STATE6_FRAG, Opcode.LOAD_STATE6_GEOM)
_VALUE_EVENT_DWORDS = 4
_REACHED = 0xFFFFFFFF
_U32 = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Received:
    """One submission as the GPU would have found it: the dwords of its commands, and what they load.

    ``loaded`` are the addresses and contents of argument blocks, descriptors and machine code.
    """

    context: int
    words: tuple[int, ...]
    loaded: tuple[tuple[int, bytes], ...]


class StubPort(MachineFront):
    """A port in front of a machine with one Adreno device.

    A submission returns the next time stamp and counts as complete: every 32-bit word that its commands
    signal holds the largest value from then on, so that waits pass at the first look. Time stamps of the GPU
    are not written. ``submissions`` counts; with ``record`` each is kept in ``received``.
    """

    def __init__(self, machine: Machine, *, execute: bool = False, record: bool = False) -> None:
        super().__init__(machine)
        self.submissions = 0
        self.received: list[Received] = []
        if not execute:
            vars(self)["now"] = time.monotonic
        self._execute = execute
        self._record = record
        self._signalled: set[int] = set()

    # ----- submissions ----------------------------------------------------------------------------

    def ioctl(self, fd: int, argument: Ioctl) -> None:
        """Acknowledge submissions and waits; the machine does everything else."""
        if argument.__class__ is kgsl.GPU_COMMAND:
            if self._record or argument.cmdlist not in self._signalled:
                self._receive(argument)
            self.submissions += 1
            if self._execute:
                self.machine.ioctl(fd, argument)
            else:
                argument.timestamp = self.submissions & _U32
        elif self._execute or argument.__class__ is not kgsl.DEVICE_WAITTIMESTAMP_CTXTID:
            self.machine.ioctl(fd, argument)

    def _receive(self, argument: kgsl.GPU_COMMAND) -> None:
        entry = kgsl.COMMAND_OBJECT.from_address(argument.cmdlist)
        memory = self._memory
        words = fetch(memory, entry.gpuaddr, entry.size // 4)
        if self._record:
            loaded = tuple(_loads(memory, words))
            self.received.append(Received(argument.context_id, tuple(words), loaded))
        if not self._execute:
            for address in _signals(words):
                memory.write_u32(address, _REACHED)
            self._signalled.add(argument.cmdlist)

    @property
    def _memory(self) -> AddressSpace:
        device = self.machine.devices[0]
        assert isinstance(device, KgslDevice)
        return device.memory

    def fence(self) -> None:
        """Nothing: no device looks at memory."""


def _packets(words: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Return opcode and payload of every packet that is no register write."""
    at = 0
    while at < len(words):
        header = decode_header(words[at])
        if isinstance(header, Type7):
            yield header.opcode, words[at + 1 : at + 1 + header.count]
        at += 1 + header.count


def _signals(words: list[int]) -> Iterator[int]:
    """Return the addresses of words that events write a value other than zero to."""
    for opcode, payload in _packets(words):
        if opcode == Opcode.EVENT_WRITE and len(payload) == _VALUE_EVENT_DWORDS and payload[3]:
            yield payload[1] | payload[2] << 32


def _loads(memory: AddressSpace, words: list[int]) -> Iterator[tuple[int, bytes]]:
    for opcode, payload in _packets(words):
        get = LOAD_STATE6_0.get
        if opcode in _LOADS and get(payload[0], "STATE_SRC") == StateSource.INDIRECT:
            kind = StateBlock(get(payload[0], "STATE_BLOCK")), StateType(get(payload[0], "STATE_TYPE"))
            address = payload[1] | payload[2] << 32
            yield address, memory.read(address, get(payload[0], "NUM_UNIT") * STATE_UNIT_BYTES[kind])
