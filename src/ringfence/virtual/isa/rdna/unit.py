"""What determines the translation of an RDNA program: its code and the launch state it depends on."""

from __future__ import annotations

import msgspec

# MODE register (hwreg 1): rounding and denormals of f32, then of f16 and f64, 2 bits each, then flags.
ROUND_F32, ROUND_F16_F64, DENORM_F32, DENORM_F16_F64 = 0, 2, 4, 6
DX10_CLAMP, IEEE, FP16_OVFL = 8, 9, 23
ALLOW_INPUT, ALLOW_OUTPUT = 1, 2  # bits of a denorm field

UNUSED = -1


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One translation unit.

    ``entry`` and ``functions`` are byte offsets into ``code``: where a wave starts, and where else code may
    begin (functions whose address is taken). ``wave`` is 32 or 64 lanes. ``mode`` is the initial MODE
    register. ``user`` counts the SGPRs that the launch sets; ``group_ids`` and ``group_info`` are the numbers
    of the SGPRs that follow them, or ``UNUSED``. ``full`` says that no wave of the launch has missing lanes,
    ``host`` that addresses are host addresses, unchecked. ``single`` says that each work-group has one wave,
    which never waits at a barrier. ``count`` makes the code count the instructions that it runs.
    """

    code: bytes
    entry: int
    functions: tuple[int, ...]
    wave: int
    mode: int
    user: int
    group_ids: tuple[int, int, int]
    group_info: int
    full: bool
    host: bool
    strict: bool
    single: bool
    count: bool = False


def initial_mode(rsrc1: int) -> int:
    """Return the MODE register that COMPUTE_PGM_RSRC1 asks for (its bits 19:12, 21, 23 and 26)."""
    mode = rsrc1 >> 12 & 0xFF
    for source, target in ((21, DX10_CLAMP), (23, IEEE), (26, FP16_OVFL)):
        mode |= (rsrc1 >> source & 1) << target
    return mode
