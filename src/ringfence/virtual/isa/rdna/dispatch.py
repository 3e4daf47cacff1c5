"""A launch as the compute units see it: code, geometry, registers at wave start, memory sizes.

Free of packets.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringfence.errors import LaunchError
from ringfence.hardware.amd.chips import lds_granule
from ringfence.virtual.isa.rdna.unit import UNUSED, Unit, initial_mode

LDS_GRANULE = lds_granule((11, 0, 0))  # bytes of a unit of rsrc2.LDS_SIZE
MAX_USER = 16  # registers that a dispatch can load before the wave starts
MAX_WORK_ITEMS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One launch of an RDNA3 program.

    ``code`` are the bytes at GPU ``address``; the wave starts ``entry`` bytes into them, and ``functions``
    are the other offsets where code may begin. ``groups`` counts work-groups, ``local`` work-items of a
    group, ``wave`` lanes (32 or 64). ``user_data`` is the content of SGPR0 and up. ``rsrc1`` and ``rsrc2``
    are COMPUTE_PGM_RSRC1 and 2: MODE, the number of user SGPRs, which ids follow them, which components v0
    has, and (``lds_bytes`` of ``None``) the local memory. ``scratch_bytes`` is the private memory of a
    work-item.
    """

    name: str
    code: bytes
    address: int
    groups: tuple[int, int, int]
    local: tuple[int, int, int]
    user_data: tuple[int, ...] = ()
    rsrc1: int
    rsrc2: int
    entry: int = 0
    functions: tuple[int, ...] = ()
    wave: int = 32
    scratch_bytes: int = 0
    lds_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.wave not in (32, 64):
            raise LaunchError(f"a wave of RDNA has 32 or 64 lanes, not {self.wave}")
        if not 0 < self.work_items <= MAX_WORK_ITEMS or min(self.groups) < 0:
            raise LaunchError(
                f"{self.groups} groups of {self.local} work-items: a group has 1 to {MAX_WORK_ITEMS} "
                f"work-items"
            )
        if len(self.user_data) > self.user:
            raise LaunchError(
                f"{len(self.user_data)} user registers, but rsrc2 {self.rsrc2:#x} has room for {self.user}"
            )

    @property
    def work_items(self) -> int:
        x, y, z = self.local
        return x * y * z if min(self.local) > 0 else 0

    @property
    def user(self) -> int:
        """How many SGPRs the launch sets before the work-group ids."""
        return self.rsrc2 >> 1 & 31

    @property
    def shared_bytes(self) -> int:
        """Local memory of a work-group."""
        return (self.rsrc2 >> 15 & 0x1FF) * LDS_GRANULE if self.lds_bytes is None else self.lds_bytes

    @property
    def id_components(self) -> int:
        """How many of x, y and z are in v0, less one."""
        return self.rsrc2 >> 11 & 3

    def unit(self, *, strict: bool, host: bool, count: bool = False) -> Unit:
        """Return what determines the translation of this launch's code."""
        number = self.user
        ids = []
        for bit in (7, 8, 9):
            enabled = bool(self.rsrc2 >> bit & 1)
            ids.append(number if enabled else UNUSED)
            number += enabled
        return Unit(
            code=self.code,
            entry=self.entry,
            functions=self.functions,
            wave=self.wave,
            mode=initial_mode(self.rsrc1),
            user=len(self.user_data),
            group_ids=(ids[0], ids[1], ids[2]),
            group_info=number if self.rsrc2 >> 10 & 1 else UNUSED,
            full=self.work_items % self.wave == 0,
            host=host,
            strict=strict,
            single=self.work_items <= self.wave,
            count=count,
        )
