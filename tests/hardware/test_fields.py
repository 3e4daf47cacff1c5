"""How facts are declared: words, registers, structures, ioctls."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.hardware.fields import (
    S32,
    U16,
    U32,
    U64,
    Direction,
    Field,
    Ioctl,
    Register,
    Word,
    ioctl,
    struct,
)


class Colour(IntEnum):
    RED = 0
    BLUE = 2


class PAINT(Word):
    WET = 0
    LAYERS = 4, 7
    COLOUR = 8, 10, Colour


class WIDE(Word, width=64):
    LOW = 0, 31
    TOP = 63


def test_fields_are_the_capital_attributes():
    fields = [Field("WET", 0, 0), Field("LAYERS", 4, 7), Field("COLOUR", 8, 10, Colour)]
    assert list(PAINT.FIELDS.items()) == [(field.name, field) for field in fields]


def test_pack_puts_each_value_at_its_bits():
    assert PAINT.pack(WET=True, LAYERS=5, COLOUR=Colour.BLUE) == 1 | 5 << 4 | 2 << 8
    assert WIDE.pack(TOP=1) == 1 << 63


def test_pack_leaves_out_fields_as_zero():
    assert PAINT.pack() == 0


@pytest.mark.parametrize("value", [16, -1])
def test_pack_refuses_a_value_that_does_not_fit(value):
    with pytest.raises(ValueError, match=r"PAINT\.LAYERS = .* does not fit bits 4\.\.7"):
        PAINT.pack(LAYERS=value)


def test_pack_refuses_an_unknown_field_and_names_the_known_ones():
    with pytest.raises(TypeError, match="PAINT has no field GLOSS; it has WET, LAYERS, COLOUR"):
        PAINT.pack(GLOSS=1)


def test_unknown_returns_the_bits_outside_all_fields():
    assert PAINT.unknown(0xFFFFFFFF) == 0xFFFFFFFF & ~(1 | 0xF << 4 | 7 << 8)


def test_describe_names_values_and_marks_unknown_bits():
    assert PAINT.describe(PAINT.pack(LAYERS=12, COLOUR=Colour.BLUE)) == "LAYERS=0xc COLOUR=BLUE"
    assert PAINT.describe(1 << 20) == "COLOUR=RED ?=0x100000"
    assert PAINT.describe(7 << 8) == "COLOUR=7"


@given(st.integers(0, 0xFFFFFFFF))
def test_fields_and_unknown_bits_make_up_the_word(word):
    fields = PAINT.unpack(word)
    assert PAINT.pack(**fields) | PAINT.unknown(word) == word
    assert all(PAINT.get(word, name) == value for name, value in fields.items())


@given(st.data())
def test_any_layout_packs_and_unpacks(data):
    edges = sorted(data.draw(st.sets(st.integers(0, 64), min_size=2, max_size=12)))
    spans = {f"F{low}": (low, high - 1) for low, high in pairwise(edges)}
    layout = type("LAYOUT", (Word,), dict(spans), width=64)
    values = {
        name: data.draw(st.integers(0, (1 << high - low + 1) - 1)) for name, (low, high) in spans.items()
    }
    assert layout.unpack(layout.pack(**values)) == values


@pytest.mark.parametrize("spans", [{"A": (0, 4), "B": 4}, {"A": (3, 2)}, {"A": 32}])
def test_overlapping_reversed_or_too_high_fields_are_refused(spans):
    with pytest.raises(TypeError, match="overlap or do not fit"):
        type("BROKEN", (Word,), spans)


def test_a_register_knows_its_place():
    class PLAIN(Register, offset=0x10):
        VALUE = 0, 31

    assert (PLAIN.OFFSET, PLAIN.COUNT, PLAIN.STRIDE) == (0x10, 1, 1)
    assert PLAIN.offsets() == [0x10]


def test_an_array_of_64_bit_registers_covers_both_halves_of_each_element():
    class BASES(Register, offset=0x20, count=3, stride=2, width=64):
        SIZE = 0, 1
        ADDR = 2, 63

    assert BASES.offsets() == [0x20, 0x21, 0x22, 0x23, 0x24, 0x25]
    assert BASES.unpack(0x1_0000_0003) == {"SIZE": 3, "ADDR": 0x4000_0000}


def test_a_field_may_be_called_as_a_property_of_registers():
    class STACK(Register, offset=0x30):
        OFFSET = 0, 18
        COUNT = 20, 21

    assert STACK.OFFSET == 0x30
    assert STACK.pack(OFFSET=5, COUNT=2) == 5 | 2 << 20


def test_an_array_whose_elements_overlap_is_refused():
    with pytest.raises(TypeError, match="overlap with a stride of 1"):
        type("BROKEN", (Register,), {}, offset=0, count=2, width=64)


# Annotations of structures must not be postponed, which this module does; so they are made here.
def _structure(base, decorate, name, **annotations):
    return decorate(type(name, (base,), {"__annotations__": annotations, "__module__": __name__}))


def test_a_structure_has_the_c_layout():
    pair = _structure(ctypes.Structure, struct, "PAIR", small=U16, large=U64, fd=S32)
    assert (pair.small.offset, pair.large.offset, pair.fd.offset) == (0, 8, 16)
    assert ctypes.sizeof(pair) == 24


def test_a_structure_with_postponed_annotations_is_refused():
    with pytest.raises(TypeError, match="PAIR: annotations of a structure must not be postponed"):
        _structure(ctypes.Structure, struct, "PAIR", small="U16")


def test_an_ioctl_knows_its_request_number():
    declare = ioctl(0x09, 0x45, Direction.READ_WRITE)
    argument = _structure(Ioctl, declare, "MAKE", size=U64, id=U32, padding=U32)
    assert (argument.NR, argument.DIRECTION) == (0x45, Direction.READ_WRITE)
    assert argument.REQUEST == 3 << 30 | 16 << 16 | 0x09 << 8 | 0x45
    assert argument(size=4096, id=3).describe() == "MAKE(size=0x1000, id=0x3)"


@pytest.mark.parametrize(("direction", "bits"), [("NONE", 0), ("WRITE", 1), ("READ", 2), ("READ_WRITE", 3)])
def test_direction_bits_are_those_of_linux(direction, bits):
    assert Direction[direction] == bits
