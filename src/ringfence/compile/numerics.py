"""Sums and products in an order that every compiler behind tinygrad keeps.

Mesa reassociates inexact arithmetic (``nir_opt_algebraic.py``). It turns ``a + (b*c + d*e)`` into a chain
of multiply-adds that begins with ``a``, in an order of its own choosing, and moves constant factors to the
front. Written like that from the start there is nothing to reassociate, the instructions are as few, and a
host compiler gives the same bits. With half-precision storage that matters: each difference of one
rounding is amplified by the layers behind.
"""

from __future__ import annotations

from tinygrad import dtypes
from tinygrad.uop.ops import Ops, PatternMatcher, UOp, UPat


def _into_chain(first: UOp, rest: UOp) -> UOp | None:
    """Return ``(first + a) + b`` for ``first + (a + b)`` if ``b`` is a product."""
    a, b = rest.src
    return (first + a) + b if b.op is Ops.MUL else None


def _constant_first(product: UOp, other: UOp) -> UOp | None:
    """Return ``(a * other) * b`` for ``(a * b) * other`` if only ``other`` is constant."""
    a, b = product.src
    if not _is_constant(other) or _is_constant(a) or _is_constant(b):
        return None
    return (a * other) * b


def _is_constant(value: UOp) -> bool:
    return value.op is Ops.CONST or (value.op is Ops.CAST and value.src[0].op is Ops.CONST)


_SUM = UPat(Ops.ADD, dtypes.float, name="rest")
_PRODUCT = UPat(Ops.MUL, dtypes.float, name="product")

IN_ORDER = PatternMatcher(
    [
        (UPat(Ops.ADD, dtypes.float, src=(UPat.var("first"), _SUM)), _into_chain),
        # an accumulator on the right
        (UPat(Ops.ADD, dtypes.float, src=(_SUM, UPat(Ops.LOAD, name="first"))), _into_chain),
        (UPat(Ops.MUL, dtypes.float, src=(_PRODUCT, UPat.var("other"))), _constant_first),
        (UPat(Ops.MUL, dtypes.float, src=(UPat.var("other"), _PRODUCT)), _constant_first),
    ]
)
