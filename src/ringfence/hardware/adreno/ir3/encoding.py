"""How ir3 encodings are declared: the general :mod:`ringfence.hardware.encoding` plus the category."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ringfence.hardware import encoding
from ringfence.hardware.encoding import Bits, Fixed, Index, bit, one_of, place

__all__ = ["Bits", "Encoding", "Fixed", "Index", "bit", "encode", "one_of"]


@dataclass(frozen=True, slots=True)
class Encoding(encoding.Encoding):
    """A row of the decode table of one instruction category."""

    category: int


def encode(
    name: str, category: int, form: str, fields: Mapping[str, Bits], fixed: Fixed, width: int = 64
) -> Encoding:
    """Return a row; bits in neither ``fields`` nor ``fixed`` must be zero. ``TypeError`` if two overlap."""
    mask, match, key = place(name, fields, fixed, width)
    return Encoding(name, form, dict(fields), mask, match, key, category)
