"""What ``--arg`` means: the arguments of a kernel in text, by position.

An argument is ``[LABEL=]VALUE`` with one of these values::

    1.5   1000   0x10   true       a number of the type that the kernel's metadata names
    f32:1.5   u32:1000             a number of this type
    zeros:f32:1024                 a buffer full of zeros; likewise ``ones``
    arange:f32:1024                a buffer of 0, 1, 2, ...
    random:f32:64x64:7             a buffer of random numbers from a seed (0 if left out)
    @in.npy                        a buffer with the contents of a numpy file
    local:4096                     bytes of local memory, for a pointer to it

The type may be left out where the metadata names it. A label names the argument in results.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import numpy.typing as npt

from ringfence.cli.inputs import load_array
from ringfence.cli.programs import Parameter
from ringfence.errors import LaunchError
from ringfence.runtime.program import CODES

Array = npt.NDArray[Any]
Value = Array | np.generic | bytes | int | float | bool
"""Arrays are for buffers; everything else is for numbers."""

SYNTAX = (
    "an argument is [LABEL=]VALUE with a number (1.5, u32:1000), a buffer (zeros:f32:1024, ones:f32:1024, "
    "arange:f32:1024, random:f32:64x64:SEED), a file (@in.npy) or local memory (local:4096)"
)
MAX_BYTES = 1 << 32
"""Largest buffer that is made up."""

_SHORT = {
    "bool": "bool",
    **{f"{letter}{8 * size}": f"{name}{8 * size}" for letter, name in (("i", "int"), ("u", "uint"))
       for size in (1, 2, 4, 8)},
    **{f"f{8 * size}": f"float{8 * size}" for size in (2, 4, 8)},
}  # fmt: skip
TYPES = _SHORT | {name: name for name in _SHORT.values()}
"""The names of types: ``f32`` and ``float32`` are the same."""

_FILLS = ("zeros", "ones", "arange", "random")
_LABEL = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)=(.*)", re.DOTALL)
_SHAPE = re.compile(r"[0-9]{1,18}(x[0-9]{1,18})*")
WHOLE = re.compile(r"0*[1-9][0-9]{0,99}")
"""A number from 1 up. Python's own parser takes digits of other scripts, and gives up on long ones."""
_SEED = re.compile(r"[0-9]{1,1000}")
_NOT_FINITE = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE)
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Given:
    """An argument as it was written. One of ``number``, ``fill``, ``path`` and ``local_bytes`` is set.

    ``type_name`` is numpy's, ``None`` if it was left out.
    """

    text: str
    label: str | None = None
    type_name: str | None = None
    number: str | None = None
    fill: str | None = None
    shape: tuple[int, ...] = ()
    seed: int = 0
    path: Path | None = None
    local_bytes: int | None = None

    def refuse(self, why: str) -> LaunchError:
        """Return the error that this argument is wrong."""
        return LaunchError(f"--arg {quote(self.text)}: {why}")


# ----- reading the text ---------------------------------------------------------------------------


def parse_argument(text: str) -> Given:
    """Return what ``text`` says; :class:`LaunchError` shows what is expected."""
    labelled = _LABEL.fullmatch(text)
    label, value = labelled.groups() if labelled else (None, text)
    if value.startswith("@"):
        if len(value) == 1:
            raise _wrong(text, "a file name is missing after @")
        return Given(text, label, path=Path(value[1:]))
    word, *parts = value.split(":")
    if word in _FILLS:
        return _parse_fill(text, label, word, parts)
    if word == "local":
        if len(parts) != 1 or not WHOLE.fullmatch(parts[0]):
            raise _wrong(text, "local takes a number of bytes, such as local:4096")
        return Given(text, label, local_bytes=int(parts[0]))
    if label is None and "=" in word:
        raise _wrong(text, f"{word.partition('=')[0]!r} is no label: letters, digits, '_' and '.'")
    if not parts:
        return Given(text, label, number=_number_text(text, word))
    if word not in TYPES or len(parts) != 1:
        known = ", ".join(_SHORT)
        raise _wrong(text, f"{word!r} is neither a type ({known}) nor one of {', '.join(_FILLS)}, local")
    return Given(text, label, TYPES[word], number=_number_text(text, parts[0]))


def _parse_fill(text: str, label: str | None, fill: str, parts: list[str]) -> Given:
    type_name = TYPES.get(parts[0]) if parts else None
    rest = parts[1:] if type_name else parts
    if not rest or not _SHAPE.fullmatch(rest[0]):
        found = f"{rest[0]!r} is not one" if rest else "it is missing"
        raise _wrong(text, f"{fill} takes a shape such as 1024 or 64x64, but {found}")
    seeds = rest[1:]
    if len(seeds) > (fill == "random") or not all(map(_SEED.fullmatch, seeds)):
        raise _wrong(text, f"{':'.join(seeds)!r} after the shape is no seed of random numbers")
    shape = tuple(int(size) for size in rest[0].split("x"))
    if min(shape) < 1:
        raise _wrong(text, "a buffer has at least one element")
    return Given(text, label, type_name, fill=fill, shape=shape, seed=int(seeds[0]) if seeds else 0)


def _number_text(text: str, number: str) -> str:
    if number.lower() in _TRUTH or _is_number(number):
        return number
    raise _wrong(text, f"{number!r} is not a number")


def _is_number(number: str) -> bool:
    try:
        _parse_number(number)
    except ValueError:
        return False
    return True


def _parse_number(number: str) -> int | float:
    try:
        return int(number, 0)
    except ValueError:
        return float(number)


def _wrong(text: str, why: str) -> LaunchError:
    return LaunchError(f"--arg {quote(text)}: {why}; {SYNTAX}")


# ----- meeting the kernel -------------------------------------------------------------------------


def labels(given: Sequence[Given], parameters: Sequence[Parameter]) -> tuple[str, ...]:
    """Return a name per argument: its label, or else the kernel's name for it, or else ``argK``.

    :class:`LaunchError` for a label that the kernel uses for another argument, or that is there twice.
    """
    own = {parameter.name: parameter.index for parameter in parameters if parameter.name}
    found: dict[str, int] = {}
    for parameter, each in zip(parameters, given, strict=True):
        name = each.label or parameter.name or f"arg{parameter.index}"
        if own.get(name, parameter.index) != parameter.index:
            raise each.refuse(f"{name!r} is argument {own[name]} of the kernel, this is {parameter}")
        if name in found:
            raise each.refuse(f"argument {found[name]} is called {name!r} already")
        found[name] = parameter.index
    return tuple(found)


def value_of(given: Given, parameter: Parameter) -> Value:
    """Return what to pass; :class:`LaunchError` if it does not fit what the kernel's metadata says."""
    parameter.check()
    if parameter.local:
        if given.local_bytes is None:
            raise given.refuse(
                f"{parameter} is a pointer to local memory; say how many bytes, as in local:4096"
            )
        return given.local_bytes
    if given.local_bytes is not None:
        raise given.refuse(f"{parameter} is no pointer to local memory, it is {parameter.type_text}")
    if parameter.buffer:
        return _array(given, parameter)
    if given.fill is not None:
        raise given.refuse(f"{parameter} is no buffer; give a number such as 1.5 or u32:1000")
    if given.path is not None:
        return _bytes(given, parameter)
    return _number(given, parameter)


def _array(given: Given, parameter: Parameter) -> Array:
    if given.number is not None:
        raise given.refuse(f"{parameter} is a buffer; give one such as zeros:f32:1024 or @in.npy")
    array = _filled(given, parameter) if given.path is None else load_array(str(parameter), given.path)
    wanted = parameter.dtype
    if wanted is not None and array.dtype != np.dtype(wanted):
        raise given.refuse(f"{parameter} holds {wanted}, this is {array.dtype}")
    if not array.dtype.isnative or array.dtype.hasobject:
        raise given.refuse(f"elements of type {array.dtype} are not what a GPU reads")
    return array


def _filled(given: Given, parameter: Parameter) -> Array:
    type_name = given.type_name or parameter.dtype
    if type_name is None:
        raise given.refuse(
            f"the metadata does not name the type of {parameter}: write {given.fill}:f32:SHAPE"
        )
    dtype = np.dtype(type_name)
    if math.prod(given.shape) * dtype.itemsize > MAX_BYTES:
        raise given.refuse(f"the buffer is larger than {MAX_BYTES} bytes")
    try:
        return _fill(given, dtype)
    except MemoryError:
        raise given.refuse("this host lacks the memory for that") from None


def _fill(given: Given, dtype: np.dtype[Any]) -> Array:
    if given.fill == "zeros":
        return np.zeros(given.shape, dtype)
    if given.fill == "ones":
        return np.ones(given.shape, dtype)
    if given.fill == "arange":
        with np.errstate(over="ignore"):
            return np.arange(math.prod(given.shape)).astype(dtype).reshape(given.shape)
    generator = np.random.default_rng(given.seed)
    if dtype.kind == "f":
        return generator.random(given.shape).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(2, size=given.shape).astype(dtype)
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max, size=given.shape, dtype=dtype, endpoint=True)


def _bytes(given: Given, parameter: Parameter) -> bytes:
    assert given.path is not None
    if parameter.dtype is not None:
        raise given.refuse(f"{parameter} is no buffer; give a number such as 1.5 or {parameter.dtype}:1")
    data = load_array(str(parameter), given.path).tobytes()
    if len(data) != parameter.size:
        raise given.refuse(f"{parameter} has {parameter.size} bytes, the file holds {len(data)}")
    return data


def _number(given: Given, parameter: Parameter) -> np.generic | int | float | bool:
    assert given.number is not None
    wanted = parameter.dtype
    if given.type_name and wanted and given.type_name != wanted:
        raise given.refuse(f"{parameter} wants {wanted}, not {given.type_name}")
    type_name = given.type_name or wanted
    if type_name is None:
        raise given.refuse(f"the metadata does not name the type of {parameter}: write it, as in f32:1.5")
    value = _typed(given, parameter, type_name)
    if wanted is not None:
        return value
    raw: np.generic = np.dtype(type_name).type(value)
    if raw.nbytes != parameter.size:
        raise given.refuse(f"{parameter} has {parameter.size} bytes, a {type_name} has {raw.nbytes}")
    return raw


def _typed(given: Given, parameter: Parameter, type_name: str) -> int | float | bool:
    """Return the number; :class:`LaunchError` if the type cannot hold it."""
    assert given.number is not None
    code = CODES[type_name]
    text = given.number.lower()
    value: int | float | bool = _TRUTH[text] if text in _TRUTH else _parse_number(given.number)
    if code == "?":
        if value not in (0, 1):
            raise given.refuse(f"{parameter} is a truth value: true, false, 0 or 1")
        return bool(value)
    if code not in "efd" and not isinstance(value, int):
        raise given.refuse(f"{parameter} is {type_name}, and {given.number} is not a whole number")
    try:
        value = _finite(value, text) if code in "efd" else value
        struct.pack("<" + code, value)
    except (struct.error, OverflowError):
        raise given.refuse(f"{parameter} is {type_name}, which cannot hold {given.number}") from None
    return value


def _finite(value: float, text: str) -> float:
    """Return a float; ``OverflowError`` if it is only too large, not called infinite in ``text``."""
    number = float(value)
    if not math.isfinite(number) and not _NOT_FINITE.fullmatch(text.strip()):
        raise OverflowError
    return number
