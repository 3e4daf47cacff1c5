"""The MODE register as the translator sees it: rounding, denormals and flags, known or not."""

from __future__ import annotations

from dataclasses import dataclass

from ringfence.virtual.isa.rdna import unit

NEAREST, TOWARD_ZERO = 0, 3


@dataclass(frozen=True, slots=True)
class Mode:
    """``bits`` is MODE at an instruction, ``None`` if it is only known at run time.

    ``truncating`` says that the instruction rounds toward zero whatever MODE says.
    """

    bits: int | None
    truncating: bool = False

    def rounding(self, kind: str) -> int | None:
        """Return how ``kind`` (f16, f32, f64) rounds: 0 nearest even, 1 up, 2 down, 3 toward zero."""
        if self.truncating:
            return TOWARD_ZERO
        return self._field(unit.ROUND_F32 if kind == "f32" else unit.ROUND_F16_F64, 2)

    def denormals(self, kind: str) -> int | None:
        """Return which denormals of ``kind`` are kept: bit 0 inputs, bit 1 results."""
        return self._field(self.denormal_shift(kind), 2)

    @staticmethod
    def rounding_shift(kind: str) -> int:
        return unit.ROUND_F32 if kind == "f32" else unit.ROUND_F16_F64

    @staticmethod
    def denormal_shift(kind: str) -> int:
        return unit.DENORM_F32 if kind == "f32" else unit.DENORM_F16_F64

    def flag(self, bit: int) -> bool | None:
        """Return a flag of the register (DX10_CLAMP, IEEE, FP16_OVFL)."""
        return None if self.bits is None else bool(self.bits >> bit & 1)

    def _field(self, shift: int, width: int) -> int | None:
        return None if self.bits is None else self.bits >> shift & ((1 << width) - 1)
