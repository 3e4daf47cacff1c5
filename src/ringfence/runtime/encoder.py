"""How a recorded stream becomes commands: what the encoders of all families do alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ringfence.runtime.commands import Dwords, Local, Payload
from ringfence.runtime.device import Geometry
from ringfence.runtime.program import LaunchPlaces, Program
from ringfence.runtime.stream import Barrier, Dispatch, Encoded, Operation, Signal, TimeStamp, Wait

BLOCK_ALIGNMENT = 256


class Packets(Protocol):
    """The packets of a family. Those that return something return the position of address and value."""

    @property
    def commands(self) -> Dwords:
        """What was appended so far."""

    def start(self) -> None:
        """Let programs see what the CPU wrote before the submission."""

    def finish(self) -> int:
        """Finish everything, then signal the device's timeline."""

    def barrier(self) -> None:
        """Finish everything before; later work sees its results."""

    def wait(self) -> int:
        """Wait until memory holds at least a value."""

    def signal(self) -> int:
        """Finish everything before, then store a value."""

    def time_stamp(self, address: Payload) -> None:
        """Finish everything before, then store the GPU's clock."""

    def launch(self, program: Any, geometry: Geometry, block: int) -> LaunchPlaces:
        """Launch a program whose argument block is at byte ``block`` of the data section."""

    def stack_bytes(self, program: Any) -> int:
        """Return the private memory that a program needs, in all."""


class StreamEncoder:
    """Turns operations into an :class:`Encoded`: dwords and a data section."""

    def __init__(self, packets: Packets) -> None:
        self.out = Encoded()
        self._packets = packets

    def encode(self, operations: Sequence[Operation]) -> Encoded:
        """Return the commands of a whole stream."""
        slots = sum(isinstance(operation, TimeStamp) for operation in operations)
        self._begin(slots)
        for operation in operations:
            self.out.starts.append(len(self._packets.commands.words))
            self._operation(operation)
        return self._end()

    def encode_launch(self, program: Program, geometry: Geometry) -> tuple[Encoded, int, LaunchPlaces]:
        """Return the commands of one launch, to be patched for each, and where its argument block is."""
        self._begin(0)
        block, places = self._dispatch(program, geometry)
        self.out.data[block : block + program.block_bytes] = program.block()
        return self._end(), block, places

    def _begin(self, slots: int) -> None:
        """Start with a time stamp, and a barrier: the CPU may have written what programs will read."""
        self.out.ticks = (0, 2 + slots)
        self.out.data.extend(bytes(8 * (2 + slots)))
        self._packets.time_stamp(Local(0))
        self._packets.start()

    def _end(self) -> Encoded:
        """Finish with a time stamp and the signal of the device's timeline."""
        self._packets.time_stamp(Local(8))
        self.out.signal = self._packets.finish()
        self.out.words = self._packets.commands.words
        self.out.links = self._packets.commands.links
        return self.out

    def _operation(self, operation: Operation) -> None:
        packets, out = self._packets, self.out
        match operation:
            case Dispatch():
                self._bound_dispatch(operation)
            case Wait(target):
                out.waits.append((packets.wait(), target))
            case Barrier():
                packets.barrier()
            case TimeStamp(slot):
                packets.time_stamp(Local(8 * (2 + slot)))
            case Signal(target):
                out.signals.append((packets.signal(), target))

    def _bound_dispatch(self, operation: Dispatch) -> None:
        program: Program = operation.program
        block, _ = self._dispatch(program, operation.geometry)
        program.fill(operation, self.out.data, block, self.out.parameters)
        self.out.uses += operation.uses
        self.out.keep.append(program)

    def _dispatch(self, program: Program, geometry: Geometry) -> tuple[int, LaunchPlaces]:
        """Append a dispatch and room for its argument block; return where that is, and what may change."""
        out = self.out
        block = -(-len(out.data) // BLOCK_ALIGNMENT) * BLOCK_ALIGNMENT
        out.data.extend(bytes(block + program.block_bytes - len(out.data)))
        out.data_links += [(block + at, block + offset) for at, offset in program.block_links]
        places = self._packets.launch(program, geometry, block)
        out.stack.append(places.stack)
        out.stack_bytes = max(out.stack_bytes, self._packets.stack_bytes(program))
        return block, places
