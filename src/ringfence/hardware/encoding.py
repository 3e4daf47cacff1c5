"""How instruction encodings are declared: the fields, and the value of every bit that no field covers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar


@dataclass(frozen=True, slots=True)
class Bits:
    """Bits ``low`` to ``high`` inclusive. ``values``, when given, lists the only legal values."""

    low: int
    high: int
    signed: bool = False
    values: frozenset[int] | None = None

    @property
    def mask(self) -> int:
        return ((1 << (self.high - self.low + 1)) - 1) << self.low

    def get(self, word: int) -> int:
        value = (word & self.mask) >> self.low
        if self.signed and value >> (self.high - self.low):
            value -= 1 << (self.high - self.low + 1)
        return value


def bit(position: int) -> Bits:
    """Return a field of one bit."""
    return Bits(position, position)


def one_of(low: int, high: int, values: Iterable[int]) -> Bits:
    """Return a field of which only some values are instructions."""
    return Bits(low, high, values=frozenset(values))


Fixed = Mapping[tuple[int, int], int]
"""(low, high) bits inclusive -> their required value."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """One row of a decode table: a word is this instruction if ``word & mask == match``.

    ``mask`` is every bit that no field covers, so each bit is part of a field or has one legal value. ``key``
    is the part of ``mask`` that tells the row from others; the rest is reserved and zero. ``form`` names how
    the fields become operands.
    """

    name: str
    form: str
    fields: Mapping[str, Bits]
    mask: int
    match: int
    key: int

    def overlaps(self, other: Encoding) -> bool:
        """Return whether some word matches both."""
        return not (self.match ^ other.match) & self.mask & other.mask

    def wrong_bits(self, word: int) -> int:
        """Return the bits of ``word`` that keep it from being this instruction."""
        return (word & self.mask) ^ self.match


def place(name: str, fields: Mapping[str, Bits], fixed: Fixed, width: int) -> tuple[int, int, int]:
    """Return ``mask``, ``match`` and ``key`` of a row; bits in neither ``fields`` nor ``fixed`` must be zero.

    Raises ``TypeError`` if two of them overlap or one does not fit ``width`` bits.
    """
    values = {f"bits {low}..{high}": (Bits(low, high), value) for (low, high), value in fixed.items()}
    taken = _cover(name, width, fields)
    key = _cover(name, width, {span: bits for span, (bits, _) in values.items()}, taken)
    match = 0
    for span, (bits, value) in values.items():
        if not 0 <= value <= bits.mask >> bits.low:
            raise TypeError(f"{name}: value {value} does not fit {span}")
        match |= value << bits.low
    return ((1 << width) - 1) & ~taken, match, key


def _cover(name: str, width: int, spans: Mapping[str, Bits], taken: int = 0) -> int:
    """Return the union of ``spans``, which must be disjoint from each other and from ``taken``."""
    union = 0
    for span, bits in spans.items():
        if bits.mask & (taken | union) or not bits.low <= bits.high < width:
            raise TypeError(f"{name}: {span} (bits {bits.low}..{bits.high}) overlaps another or does not fit")
        union |= bits.mask
    return union


Row = TypeVar("Row", bound=Encoding)


class Index(Generic[Row]):
    """Finds the row of a word through the value of ``key`` bits, among which most rows differ."""

    def __init__(self, rows: Iterable[Row], key: Bits) -> None:
        self.rows = tuple(rows)
        self._key = key
        self._buckets: list[list[Row]] = [[] for _ in range(1 << (key.high - key.low + 1))]
        for row in self.rows:
            for value in self._values(row):
                self._buckets[value].append(row)

    def _values(self, row: Row) -> Iterable[int]:
        """Return the values that the key bits of a word of ``row`` can have."""
        if not self._key.mask & ~row.mask:
            return (self._key.get(row.match),)
        return (
            value
            for value in range(len(self._buckets))
            if not row.wrong_bits(value << self._key.low) & self._key.mask
        )

    def find(self, word: int) -> Row | None:
        """Return the row that ``word`` matches, if any."""
        for row in self._buckets[self._key.get(word)]:
            if word & row.mask == row.match:
                return row
        return None

    def explain(self, word: int) -> tuple[int, str]:
        """Return, for a word without row, the bits that differ from the most similar row, and a reason."""

        def distance(row: Row) -> tuple[int, int]:
            wrong = row.wrong_bits(word)
            return (wrong & row.key).bit_count(), wrong.bit_count()

        row = min(self.rows, key=distance)
        wrong = row.wrong_bits(word)
        if wrong & row.key:
            return wrong, f"no encoding fits, the most similar is {row.name}"
        return wrong, f"reserved bits of {row.name} are set"


def bit_ranges(mask: int) -> str:
    """Return the set bits of ``mask`` in words, as in ``3, 8..11``."""
    runs = re.finditer("1+", f"{mask:b}"[::-1])
    return ", ".join(
        str(run.start()) if len(run[0]) == 1 else f"{run.start()}..{run.end() - 1}" for run in runs
    )
