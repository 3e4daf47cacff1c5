"""Bit fields as Mesa's constants give them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from tinygrad.runtime.autogen import mesa


@pytest.fixture
def mesa_bits() -> Callable[[Iterable[str], str], tuple[int, int] | None]:
    """Look a field up under each prefix; return its lowest and highest bit, ``None`` if Mesa lacks it.

    Mesa's generated constants have ``NAME__SHIFT`` and ``NAME__MASK``, or just ``NAME`` for a single bit.
    """

    def look_up(prefixes: Iterable[str], field: str) -> tuple[int, int] | None:
        for prefix in prefixes:
            name = f"{prefix}_{field.lstrip('_')}"
            if hasattr(mesa, f"{name}__SHIFT"):
                low, mask = getattr(mesa, f"{name}__SHIFT"), getattr(mesa, f"{name}__MASK")
                high = mask.bit_length() - 1
                assert mask == (1 << high + 1) - (1 << low), f"{name} is not contiguous"
                return low, high
            if isinstance(bit := getattr(mesa, name, None), int) and bit.bit_count() == 1:
                return bit.bit_length() - 1, bit.bit_length() - 1
        return None

    return look_up
