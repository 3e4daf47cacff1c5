"""Floating point by exact rational arithmetic, as a reference.

Every rounding mode, denormals kept or flushed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
NEAREST, UP, DOWN, ZERO = range(4)


@dataclass(frozen=True)
class Format:
    """A binary format: its size and the bits of its mantissa."""

    name: str
    bits: int
    mantissa: int

    @property
    def exponent_bits(self) -> int:
        return self.bits - 1 - self.mantissa

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def lowest(self) -> int:
        """The exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.mantissa

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def quiet(self) -> int:
        return 1 << (self.mantissa - 1)

    @property
    def unsigned(self) -> type[np.unsignedinteger[Any]]:
        return {16: np.uint16, 32: np.uint32, 64: np.uint64}[self.bits]

    @property
    def real(self) -> type[np.floating[Any]]:
        return {16: np.float16, 32: np.float32, 64: np.float64}[self.bits]

    def is_nan(self, bits: int) -> bool:
        return bits & ~self.sign > self.infinity

    def is_signalling(self, bits: int) -> bool:
        return self.is_nan(bits) and not bits & self.quiet

    def is_infinite(self, bits: int) -> bool:
        return bits & ~self.sign == self.infinity

    def is_denormal(self, bits: int) -> bool:
        return 0 < bits & ~self.sign < 1 << self.mantissa

    def flush(self, bits: int) -> int:
        """Return a number with a denormal replaced by the zero of its sign."""
        return bits & self.sign if self.is_denormal(bits) else bits

    def value(self, bits: int) -> Fraction:
        """Return the value of a finite number."""
        exponent = bits >> self.mantissa & ((1 << self.exponent_bits) - 1)
        fraction = bits & ((1 << self.mantissa) - 1)
        if exponent:
            fraction |= 1 << self.mantissa
        power = max(exponent, 1) - self.bias - self.mantissa
        magnitude = Fraction(fraction) * Fraction(2) ** power
        return -magnitude if bits & self.sign else magnitude

    def round(self, value: Fraction, mode: int = NEAREST, *, negative_zero: bool = False) -> int:
        """Return the bits of the number that ``value`` rounds to."""
        if value == 0:
            return self.sign if negative_zero else 0
        negative, magnitude = value < 0, abs(value)
        exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
        if magnitude < Fraction(2) ** exponent:
            exponent -= 1
        exponent = max(exponent, self.lowest)
        units = magnitude / Fraction(2) ** (exponent - self.mantissa)
        whole = units.numerator // units.denominator
        rest = units - whole
        up = {
            NEAREST: rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1 == 1),
            UP: rest > 0 and not negative,
            DOWN: rest > 0 and negative,
            ZERO: False,
        }[mode]
        # Numbers of one sign are ordered like their bits, so a carry into the exponent is right.
        bits = ((exponent + self.bias - 1) << self.mantissa) + whole + up
        if bits >= self.infinity:
            stays = mode == ZERO or (mode == UP and negative) or (mode == DOWN and not negative)
            bits = self.infinity - stays
        return bits | (self.sign if negative else 0)


F16, F32, F64 = Format("f16", 16, 10), Format("f32", 32, 23), Format("f64", 64, 52)
FORMATS = {"f16": F16, "f32": F32, "f64": F64}


@dataclass(frozen=True)
class Rules:
    """Rounding and denormals of one format: what a MODE register says about it."""

    format: Format
    rounding: int = NEAREST
    keep_inputs: bool = True
    keep_results: bool = True

    @classmethod
    def of(cls, mode: int, kind: str) -> Rules:
        shift = 0 if kind == "f32" else 2
        denormals = mode >> (4 + shift) & 3
        return cls(FORMATS[kind], mode >> shift & 3, bool(denormals & 1), bool(denormals & 2))

    def operand(self, bits: int) -> int:
        return bits if self.keep_inputs else self.format.flush(bits)

    def result(self, value: Fraction, *, negative_zero: bool = False) -> int:
        return self.finish(self.format.round(value, self.rounding, negative_zero=negative_zero))

    def finish(self, bits: int) -> int:
        return bits if self.keep_results else self.format.flush(bits)

    @property
    def nan(self) -> int:
        return self.format.infinity | self.format.quiet

    def fma(self, a: int, b: int, c: int) -> int:
        """Return a * b + c rounded once; any NaN stands for a NaN."""
        f = self.format
        a, b, c = (self.operand(x) for x in (a, b, c))
        if any(f.is_nan(x) for x in (a, b, c)):
            return self.nan
        sign = (a ^ b) & f.sign
        if f.is_infinite(a) or f.is_infinite(b):
            if not (a & ~f.sign and b & ~f.sign) or (f.is_infinite(c) and (c ^ sign) & f.sign):
                return self.nan
            return f.infinity | sign
        if f.is_infinite(c):
            return c
        product, addend = f.value(a) * f.value(b), f.value(c)
        total = product + addend
        negative = bool(sign and c & f.sign) if product == addend == 0 else self.rounding == DOWN
        if total == 0 and product == 0 and addend == 0 and bool(sign) != bool(c & f.sign):
            negative = self.rounding == DOWN
        return self.result(total, negative_zero=negative)

    def add(self, a: int, b: int) -> int:
        return self.fma(a, self.format.round(Fraction(1)), b)

    def subtract(self, a: int, b: int) -> int:
        return self.add(a, b ^ self.format.sign)

    def multiply(self, a: int, b: int) -> int:
        """Return a * b: adding a zero of the product's sign does not change it."""
        f = self.format
        return self.fma(a, b, (a ^ b) & f.sign)

    def convert(self, bits: int, source: Rules) -> int:
        """Return a number of another format in this one."""
        f, s = self.format, source.format
        bits = source.operand(bits)
        sign = f.sign if bits & s.sign else 0
        if s.is_nan(bits):
            return self.nan
        if s.is_infinite(bits):
            return f.infinity | sign
        return self.result(s.value(bits), negative_zero=bool(sign))

    def square_root(self, bits: int) -> int:
        f = self.format
        bits = self.operand(bits)
        if f.is_nan(bits) or (bits & f.sign and bits != f.sign):
            return self.nan
        if f.is_infinite(bits) or not bits & ~f.sign:
            return bits
        value = f.value(bits)
        scale = 1 << 2 * (f.bits + f.mantissa)
        root = isqrt(value.numerator * scale * scale // value.denominator)
        exact = Fraction(root, scale)
        if exact * exact != value:
            exact += Fraction(1, 2 * scale)  # between this and the next: no tie
        return self.result(exact)

    def divide(self, a: int, b: int) -> int:
        f = self.format
        a, b = self.operand(a), self.operand(b)
        sign = (a ^ b) & f.sign
        if f.is_nan(a) or f.is_nan(b) or (f.is_infinite(a) and f.is_infinite(b)) or not (a | b) & ~f.sign:
            return self.nan
        if f.is_infinite(a) or not b & ~f.sign:
            return f.infinity | sign
        if f.is_infinite(b):
            return sign
        return self.result(f.value(a) / f.value(b), negative_zero=bool(sign))

    def extreme(self, which: str, a: int, b: int, *, ieee: bool = True) -> int:
        """Return the minimum or maximum.

        A number beats a NaN, -0 < +0, a signalling NaN is quieted in IEEE mode.
        """
        f = self.format
        a, b = self.operand(a), self.operand(b)
        for x in (a, b):
            if ieee and f.is_signalling(x):
                return x | f.quiet
        if f.is_nan(a) or f.is_nan(b):
            return self.finish(b if f.is_nan(a) else a)
        order = sorted((a, b), key=lambda x: -(x & ~f.sign) - 1 if x & f.sign else x)
        return self.finish(order[0] if which == "min" else order[1])


def each(function: Callable[..., int], *arrays: Array) -> Array:
    """Apply a function of bits to rows of unsigned arrays."""
    rows = zip(*(a.tolist() for a in arrays), strict=True)
    return np.array([function(*row) & 0xFFFFFFFFFFFFFFFF for row in rows], np.uint64)


def same(kind: str, found: Array, wanted: Array) -> npt.NDArray[np.bool_]:
    """Return where numbers agree: any NaN equals any other."""
    f = FORMATS[kind]
    a, b = found.astype(np.uint64), wanted.astype(np.uint64)
    magnitude = np.uint64(f.sign - 1)
    nan = (a & magnitude > f.infinity) & (b & magnitude > f.infinity)
    return (a == b) | nan


def special(kind: str) -> Array:
    """Return numbers at which arithmetic goes wrong, of both signs."""
    f = FORMATS[kind]
    one, top = f.round(Fraction(1)), f.infinity
    positive = [
        *(0, 1, 2, 3, 1 << (f.mantissa - 1), (1 << f.mantissa) - 1, 1 << f.mantissa, (1 << f.mantissa) + 1),
        *(one, one + 1, one - 1, f.round(Fraction(2)), f.round(Fraction(3)), f.round(Fraction(1, 3))),
        *(f.round(Fraction(1, 2)), f.round(Fraction(5, 2)), f.round(Fraction(355, 113)), top - 1, top - 2),
        *(top, top | f.quiet, top | f.quiet | 5, top | 1),
        *(f.round(Fraction(2) ** (f.lowest // 2)), f.round(Fraction(3) * Fraction(2) ** (-f.lowest // 2))),
    ]
    values = [*positive, *(x | f.sign for x in positive)]
    return np.array(values, f.unsigned)


def pairs(kind: str, count: int = 2, rows: int = 700, seed: int = 5) -> list[Array]:
    """Return ``count`` columns: combinations of special numbers, and random ones of similar exponents."""
    f, rng, values = FORMATS[kind], np.random.default_rng(seed), special(kind)
    if count == 2:
        first, second = np.meshgrid(values, values)
        chosen = [first.ravel(), second.ravel()]
        keep = rng.permutation(len(chosen[0]))[: rows // 2]
        chosen = [c[keep] for c in chosen]
    else:
        chosen = [rng.choice(values, rows // 2) for _ in range(count)]
    columns = []
    for column in chosen:
        bits = rng.integers(0, 1 << 63, rows // 2, dtype=np.uint64) * np.uint64(2)
        bits >>= np.uint64(64 - f.bits)
        near = rng.integers(-4, 5, rows // 2) + f.bias
        shaped = bits & np.uint64(f.sign | (1 << f.mantissa) - 1) | near.astype(np.uint64) << np.uint64(
            f.mantissa
        )
        mixed = np.where(rng.random(rows // 2) < 0.7, shaped, bits).astype(f.unsigned)
        columns.append(np.concatenate([column, mixed]))
    return columns


def report(kind: str, inputs: Sequence[Array], found: Array, wanted: Array) -> str:
    """Return '' if results agree, else the first row that does not."""
    good = same(kind, found, wanted)
    if good.all():
        return ""
    row = int(np.flatnonzero(~good)[0])
    shown = ", ".join(hex(int(a[row])) for a in inputs)
    return f"{(~good).sum()} rows differ; {shown}: found {int(found[row]):#x}, wanted {int(wanted[row]):#x}"
