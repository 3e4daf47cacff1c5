"""Finds the programs that an indirect buffer will run, so that they are translated before they are needed.

It walks over the packets without side effects. What it cannot know it skips, and where it fails it ends: the
real execution reports the error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ringfence.virtual.amd.command_processor import CommandProcessor, Services, make_dispatch
from ringfence.virtual.amd.packets import Do, packets
from ringfence.virtual.amd.state import Registers
from ringfence.virtual.checks import BadState
from ringfence.virtual.isa.rdna.dispatch import Dispatch
from ringfence.virtual.memory import MemoryFault

REMEMBERED = 4096
Buffer = tuple[int, int]


class LookAhead:
    """Looks into the indirect buffers that queues of a card will execute, each once."""

    def __init__(self) -> None:
        self._seen: set[Buffer] = set()

    def dispatches(self, processor: CommandProcessor, words: Sequence[int]) -> list[Dispatch]:
        """Return the launches of new indirect buffers that ``words`` of the ring refer to."""
        services = processor.services
        new = [buffer for buffer in buffers(services, words) if buffer not in self._seen]
        if not new:
            return []
        if len(self._seen) > REMEMBERED:
            self._seen.clear()
        self._seen.update(new)
        registers = processor.registers.copy()
        found: list[Dispatch] = []
        for address, count in new:
            try:
                data = services.memory.read(address, 4 * count)
            except MemoryFault:
                continue
            found.extend(launches(services, registers, memoryview(data).cast("I")))
        return found


def buffers(services: Services, words: Sequence[int]) -> Iterator[Buffer]:
    """Return address and dwords of the indirect buffers that packets refer to."""
    for what, argument in packets(services.generation, words):
        if what is Do.INDIRECT_BUFFER:
            yield argument[0], argument[1]


def launches(services: Services, registers: Registers, words: Sequence[int]) -> Iterator[Dispatch]:
    """Return the launches of packets that are executed with ``registers``, which change accordingly."""
    for what, argument in packets(services.generation, words):
        if what is Do.SET_SH:
            first, end, values = argument
            registers.sh[first:end] = values
        elif what is Do.DISPATCH_DIRECT:
            x, y, z, initiator = argument
            try:
                yield make_dispatch(services, registers, registers.launch((x, y, z), initiator))
            except (BadState, MemoryFault):
                return
