"""Dwords under construction, with addresses that are known only when an instance is placed."""

from __future__ import annotations

from dataclasses import dataclass

ALL_BITS = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Local:
    """An address in the data section of the stream itself: known when an instance is placed."""

    offset: int


@dataclass(frozen=True, slots=True)
class Absolute:
    """A 64-bit address or value that is known now: two dwords."""

    value: int


Payload = int | Local | Absolute


class Dwords:
    """Dwords, low half of 64 bits first. ``links`` lists (position, offset) of every :class:`Local`."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.links: list[tuple[int, int]] = []

    def append(self, item: Payload) -> None:
        """Append one dword, or the two of an address."""
        if isinstance(item, Local):
            self.links.append((len(self.words), item.offset))
            self.words += (0, 0)
        elif isinstance(item, Absolute):
            self.words += (item.value & ALL_BITS, item.value >> 32)
        else:
            self.words.append(item)
