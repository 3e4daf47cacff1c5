"""How hardware facts are declared: words with bit fields, registers, packets, structures and ioctls.

A declaration is read four ways: drivers encode with it, virtual devices decode with it, the inspector prints
it and the docs list it. Declarations use the hardware's own names, so that a test can look each of them up in
an independent source.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, ClassVar, TypeVar


@dataclass(frozen=True, slots=True)
class Field:
    """Bits ``low`` to ``high`` inclusive of a word; ``enum`` names the values where they have names."""

    name: str
    low: int
    high: int
    enum: type[IntEnum] | None = None

    @property
    def max(self) -> int:
        return (1 << (self.high - self.low + 1)) - 1

    @property
    def mask(self) -> int:
        return self.max << self.low

    def get(self, word: int) -> int:
        return (word >> self.low) & self.max


class Word:
    """The bit layout of one word.

    Class attributes in capitals are the fields: ``NAME = bit``, ``NAME = low, high`` or
    ``NAME = low, high, Enum`` (bits inclusive). Overlapping fields are an error when the class is made.
    """

    FIELDS: ClassVar[dict[str, Field]] = {}
    WIDTH_BITS: ClassVar[int] = 32

    def __init_subclass__(cls, width: int | None = None) -> None:
        if width is not None:
            cls.WIDTH_BITS = width
        cls.FIELDS = dict(cls.FIELDS)
        taken = 0
        for name, spec in list(vars(cls).items()):
            if not name.isupper() or name in ("FIELDS", "WIDTH_BITS"):
                continue
            field = _field(name, spec)
            if field is not None:
                cls.FIELDS[name] = field
        for field in cls.FIELDS.values():
            if field.mask & taken or field.high >= cls.WIDTH_BITS or field.low > field.high:
                raise TypeError(
                    f"{cls.__name__}.{field.name}: bits {field.low}..{field.high} overlap or do not fit"
                )
            taken |= field.mask

    @classmethod
    def pack(cls, **values: int) -> int:
        """Return the word with the given field values; ``ValueError`` if a value does not fit its field."""
        word = 0
        for name, value in values.items():
            field = cls.FIELDS.get(name)
            if field is None:
                raise TypeError(f"{cls.__name__} has no field {name}; it has {', '.join(cls.FIELDS)}")
            if not 0 <= value <= field.max:
                raise ValueError(
                    f"{cls.__name__}.{name} = {value:#x} does not fit bits {field.low}..{field.high}"
                )
            word |= int(value) << field.low
        return word

    @classmethod
    def get(cls, word: int, name: str) -> int:
        """Return field ``name`` of ``word``."""
        return cls.FIELDS[name].get(word)

    @classmethod
    def unpack(cls, word: int) -> dict[str, int]:
        """Return every field of ``word`` by name."""
        return {name: field.get(word) for name, field in cls.FIELDS.items()}

    @classmethod
    def unknown(cls, word: int) -> int:
        """Return the set bits of ``word`` that no field covers."""
        for field in cls.FIELDS.values():
            word &= ~field.mask
        return word

    @classmethod
    def describe(cls, word: int) -> str:
        """Return ``NAME=value`` for every non-zero field, enumerated values by name."""
        parts = []
        for name, field in cls.FIELDS.items():
            value = field.get(word)
            if not value and field.enum is None:
                continue
            parts.append(f"{name}={_enum_name(field.enum, value)}")
        if rest := cls.unknown(word):
            parts.append(f"?={rest:#x}")
        return " ".join(parts)


def _field(name: str, spec: object) -> Field | None:
    match spec:
        case bool():
            return None
        case int():
            return Field(name, int(spec), int(spec))
        case (int(low), int(high)):
            return Field(name, low, high)
        case (int(low), int(high), type() as values) if issubclass(values, IntEnum):
            return Field(name, low, high, values)
    return None


def _enum_name(values: type[IntEnum] | None, value: int) -> str:
    if values is not None and value in values._value2member_map_:
        return values(value).name
    return str(value) if value < 10 else hex(value)


class Register(Word):
    """A register: a word at a dword offset.

    ``count`` > 1 declares an array with ``stride`` dwords between its elements. ``width=64`` declares a pair
    of dwords, low dword first, whose fields count bits across both.
    """

    OFFSET: ClassVar[int]
    COUNT: ClassVar[int]
    STRIDE: ClassVar[int]

    def __init_subclass__(cls, offset: int, count: int = 1, stride: int = 1, width: int = 32) -> None:
        super().__init_subclass__(width=width)
        if stride * 32 < width:
            if count > 1:
                raise TypeError(f"{cls.__name__}: elements of {width} bits overlap with a stride of {stride}")
            stride = width // 32
        cls.OFFSET, cls.COUNT, cls.STRIDE = offset, count, stride

    @classmethod
    def offsets(cls) -> list[int]:
        """Return every dword offset that the register or the array occupies, in order."""
        dwords = range(cls.WIDTH_BITS // 32)
        return [cls.OFFSET + index * cls.STRIDE + dword for index in range(cls.COUNT) for dword in dwords]


U8 = Annotated[int, ctypes.c_uint8]
U16 = Annotated[int, ctypes.c_uint16]
U32 = Annotated[int, ctypes.c_uint32]
S32 = Annotated[int, ctypes.c_int32]
U64 = Annotated[int, ctypes.c_uint64]
S64 = Annotated[int, ctypes.c_int64]

S = TypeVar("S", bound=type[ctypes.Structure])


def struct(cls: S) -> S:
    """Class decorator: make a C structure (natural alignment) from annotations U8, U16, U32, S32, U64, S64.

    An array or a nested structure is ``Annotated[Any, ctypes.c_uint32 * 2]``: the metadata is the C type.
    The module must not postpone annotations (no ``from __future__ import annotations``); ``TypeError`` if
    it does.
    """
    if any(isinstance(note, str) for note in cls.__annotations__.values()):
        raise TypeError(f"{cls.__name__}: annotations of a structure must not be postponed in its module")
    cls._fields_ = [
        (n, note.__metadata__[0]) for n, note in cls.__annotations__.items() if hasattr(note, "__metadata__")
    ]
    return cls


class Direction(IntEnum):
    """Direction bits of a Linux ioctl number: what user space does with the argument."""

    NONE = 0
    WRITE = 1
    READ = 2
    READ_WRITE = 3


class Ioctl(ctypes.Structure):
    """The argument of an ioctl. Subclasses are declared with :func:`ioctl`.

    ``CAUSES`` maps an errno to what usually causes it, for error messages.
    """

    NR: ClassVar[int]
    REQUEST: ClassVar[int]
    DIRECTION: ClassVar[Direction]
    CAUSES: ClassVar[dict[int, str]] = {}

    def describe(self) -> str:
        """Return ``NAME(field=value, ...)`` without padding; of arrays and structures the size."""
        names = (field[0] for field in self._fields_ if field[0] != "padding")
        parts = (f"{name}={_value_text(getattr(self, name))}" for name in names)
        return f"{type(self).__name__}({', '.join(parts)})"


def _value_text(value: object) -> str:
    if isinstance(value, ctypes.Array | ctypes.Structure | ctypes.Union):
        return f"<{ctypes.sizeof(value)} bytes>"
    return f"{value:#x}"


I = TypeVar("I", bound=type[Ioctl])  # noqa: E741


def ioctl(magic: int, nr: int, direction: Direction) -> Callable[[I], I]:
    """Class decorator: :func:`struct` plus the number ``direction << 30 | size << 16 | magic << 8 | nr``."""

    def declare(cls: I) -> I:
        struct(cls)
        cls.NR, cls.DIRECTION = nr, direction
        cls.REQUEST = direction << 30 | ctypes.sizeof(cls) << 16 | magic << 8 | nr
        return cls

    return declare
