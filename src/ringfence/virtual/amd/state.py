"""The compute registers of a queue, and the launch that they amount to.

A dispatch reads the registers at the moment of its packet. Everything that would make the hardware do
something this model does not do, or that exceeds what a compute unit has, is an error that names the
register. Layouts are those of the kernel's headers of each generation, limits those of LLVM's
``AMDGPUUsage`` and of the context save area (``kfd_queue.c``).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from ringfence.hardware.amd.chips import SCRATCH_UNIT, AmdChip, Generation, lds_granule
from ringfence.hardware.amd.registers import RegisterMap
from ringfence.virtual.amd.topology import Card
from ringfence.virtual.checks import BadState

SH_FIRST = 0x2C00
SH_COUNT = 0x400
USER_DATA_COUNT = 16
UNWRITTEN = 0xDEADBEEF
LANES = 64  # that a wave's part of scratch memory is for
MAX_WORK_ITEMS = 1024
_U32 = 0xFFFFFFFF
Size = tuple[int, int, int]

# Vector registers of a SIMD for one lane of a wave32 (of a wave64 on gfx9), and how many are handed out at a
# time.
_LARGE_FILE = (1536, 24)
_SMALL_FILE = (1024, 16)
_GFX9_FILE = (512, 8)
_LARGE_FILE_TARGETS = ((11, 0, 0), (11, 0, 1), (12, 0, 0), (12, 0, 1))

_NOT_MODELLED = ("ORDERED_APPEND_ENBL", "ORDERED_APPEND_MODE", "TUNNEL_ENABLE", "RESTORE", "AMP_SHADER_EN")


@dataclass(frozen=True, slots=True)
class Launch:
    """What the registers say about a launch, except its user data.

    ``scratch_bytes`` is the private memory of a work-item, ``scratch_total`` that of all waves at
    ``scratch_base``.
    """

    entry: int
    rsrc1: int
    rsrc2: int
    wave: int
    groups: Size
    local: Size
    user_count: int
    lds_bytes: int
    scratch_bytes: int = 0
    scratch_base: int = 0
    scratch_total: int = 0


class Registers:
    """The registers that command streams of one queue can write; ``None`` is one that nothing has written."""

    def __init__(self, card: Card, declared: RegisterMap) -> None:
        self.sh: list[int | None] = [None] * SH_COUNT
        self.uconfig: dict[int, int] = {}
        self._card = card
        self._map = declared
        self._first = declared.offset("COMPUTE_DISPATCH_INITIATOR") - SH_FIRST
        self._user = declared.offset("COMPUTE_USER_DATA") - SH_FIRST
        self._launches: dict[tuple[object, ...], Launch] = {}

    def copy(self) -> Registers:
        """Return registers with the same values."""
        made = Registers(self._card, self._map)
        made.sh, made.uconfig, made._launches = list(self.sh), dict(self.uconfig), self._launches
        return made

    def launch(self, dims: Size, initiator: int) -> Launch:
        """Return the launch of a dispatch packet; :class:`BadState` says why there can be none."""
        key = (dims, initiator, *self.sh[self._first : self._user])
        found = self._launches.get(key)
        if found is None:
            if len(self._launches) > 4096:
                self._launches.clear()
            found = self._launches[key] = _Reader(self, self._card, self._map).launch(dims, initiator)
        return found

    def user_data(self, count: int) -> tuple[int, ...]:
        """Return the first user registers; those that nothing has written hold a pattern."""
        values = self.sh[self._user : self._user + count]
        if None in values:
            return tuple(UNWRITTEN if value is None else value for value in values)
        return tuple(values)  # type: ignore[arg-type]

    def read(self, offset: int) -> int:
        """Return a register by absolute offset; :class:`BadState` if nothing has written it."""
        value = (
            self.sh[offset - SH_FIRST]
            if SH_FIRST <= offset < SH_FIRST + SH_COUNT
            else self.uconfig.get(offset)
        )
        if value is None:
            raise BadState(f"{self._map.name_at(offset)} was read, but nothing has written it")
        return value

    def snapshot(self) -> dict[str, int]:
        """Return every register that was written, by name."""
        written = {SH_FIRST + i: value for i, value in enumerate(self.sh) if value is not None}
        return {self._map.name_at(offset): value for offset, value in (written | self.uconfig).items()}


class _Reader:
    """Reads one launch out of the registers."""

    def __init__(self, registers: Registers, card: Card, declared: RegisterMap) -> None:
        self._sh = registers.sh
        self._card = card
        self._map = declared
        self._target = card.chip.target

    def launch(self, dims: Size, initiator: int) -> Launch:
        self._check_initiator(initiator)
        self._check_start(initiator)
        wave = 32 if self._flag(initiator, "CS_W32_EN") else 64
        local = self._local()
        groups = self._groups(dims, local, initiator)
        rsrc1, rsrc2 = self._need("COMPUTE_PGM_RSRC1"), self._need("COMPUTE_PGM_RSRC2")
        self._check_flags(rsrc2)
        self._check_waves(rsrc1, local, wave)
        entry = self._address("COMPUTE_PGM_LO", "COMPUTE_PGM_HI")
        user = self._field("COMPUTE_PGM_RSRC2", "USER_SGPR", rsrc2)
        if user > USER_DATA_COUNT:
            raise BadState(f"COMPUTE_PGM_RSRC2: USER_SGPR={user}, there are {USER_DATA_COUNT} user registers")
        scratch = self._scratch() if self._field("COMPUTE_PGM_RSRC2", "SCRATCH_EN", rsrc2) else (0, 0, 0)
        return Launch(entry, rsrc1, rsrc2, wave, groups, local, user, self._lds(rsrc2), *scratch)

    # ----- single registers -------------------------------------------------------------------

    def _get(self, name: str) -> int | None:
        return self._sh[self._map.offset(name) - SH_FIRST]

    def _need(self, name: str) -> int:
        value = self._get(name)
        if value is None:
            raise BadState(f"the dispatch needs {name}, which nothing has written")
        return value

    def _field(self, register: str, field: str, value: int) -> int:
        return self._map[register].get(value, field)

    def _address(self, low: str, high: str) -> int:
        return (self._need(high) << 32 | self._need(low)) << 8

    def _flag(self, initiator: int, name: str) -> int:
        """Return a bit of the initiator; 0 for one that the generation does not have."""
        return self._bit("COMPUTE_DISPATCH_INITIATOR", name, initiator)

    def _bit(self, register: str, field: str, value: int) -> int:
        declared = self._map[register]
        return declared.get(value, field) if field in declared.FIELDS else 0

    # ----- geometry ---------------------------------------------------------------------------

    def _check_initiator(self, initiator: int) -> None:
        register = self._map["COMPUTE_DISPATCH_INITIATOR"]
        if unknown := register.unknown(initiator):
            raise BadState(f"dispatch initiator {initiator:#x} sets reserved bits {unknown:#x}")
        if not self._flag(initiator, "COMPUTE_SHADER_EN"):
            raise BadState(f"dispatch initiator {initiator:#x} does not set COMPUTE_SHADER_EN")
        for name in _NOT_MODELLED:
            if self._flag(initiator, name):
                raise BadState(f"dispatch initiator {initiator:#x}: {name} is not modelled")

    def _check_start(self, initiator: int) -> None:
        names = [f"COMPUTE_RESTART_{axis}" for axis in "XYZ"]
        if not self._flag(initiator, "FORCE_START_AT_000"):
            names += [f"COMPUTE_START_{axis}" for axis in "XYZ"]
        for name in names:
            if value := self._get(name):
                raise BadState(f"{name} is {value}: only launches that begin at group 0 are modelled")

    def _local(self) -> Size:
        sizes = []
        for axis in "XYZ":
            name = f"COMPUTE_NUM_THREAD_{axis}"
            sizes.append(self._field(name, "NUM_THREAD_FULL", self._need(name)))
        x, y, z = sizes
        if not 0 < x * y * z <= MAX_WORK_ITEMS:
            raise BadState(f"a work-group of {x}x{y}x{z} work-items: it has 1 to {MAX_WORK_ITEMS}")
        return x, y, z

    def _groups(self, dims: Size, local: Size, initiator: int) -> Size:
        if not self._flag(initiator, "USE_THREAD_DIMENSIONS"):
            return dims
        if any(total % size for total, size in zip(dims, local, strict=True)):
            raise BadState(
                f"{_by(dims)} work-items in groups of {_by(local)}: partial work-groups are not modelled"
            )
        x, y, z = (total // size for total, size in zip(dims, local, strict=True))
        return x, y, z

    # ----- resources --------------------------------------------------------------------------

    def _lds(self, rsrc2: int) -> int:
        lds = self._field("COMPUTE_PGM_RSRC2", "LDS_SIZE", rsrc2) * lds_granule(self._target)
        limit = self._card.chip.lds_bytes
        if lds > limit:
            raise BadState(f"COMPUTE_PGM_RSRC2: LDS_SIZE asks for {lds} bytes, a group has {limit}")
        return lds

    def _check_waves(self, rsrc1: int, local: Size, wave: int) -> None:
        chip = self._card.chip
        waves = -(-local[0] * local[1] * local[2] // wave)
        granule = 8 if wave == 32 or chip.generation is Generation.GFX9 else 4
        vgprs = (self._field("COMPUTE_PGM_RSRC1", "VGPRS", rsrc1) + 1) * granule
        wgp = bool(self._bit("COMPUTE_PGM_RSRC1", "WGP_MODE", rsrc1))
        room = resident_waves(chip, vgprs, wave, wgp)
        if waves > room:
            raise BadState(
                f"a work-group of {waves} waves with {vgprs} VGPRs each: {'two CUs' if wgp else 'a CU'} can "
                f"hold {room} such waves"
            )

    def _check_flags(self, rsrc2: int) -> None:
        """Refuse what would trap or share registers: there are no trap handlers and no shared VGPRs here."""
        rsrc3 = self._get("COMPUTE_PGM_RSRC3") or 0
        for name, value, fields in (
            ("COMPUTE_PGM_RSRC2", rsrc2, ("TRAP_PRESENT", "EXCP_EN_MSB", "EXCP_EN")),
            ("COMPUTE_PGM_RSRC3", rsrc3, ("TRAP_ON_START", "TRAP_ON_END", "SHARED_VGPR_CNT")),
        ):
            for field in fields:
                if set_to := self._bit(name, field, value):
                    raise BadState(f"{name}: {field}={set_to} is not modelled")

    def _scratch(self) -> tuple[int, int, int]:
        name = "COMPUTE_TMPRING_SIZE"
        ring = self._need(name)
        size, waves = self._field(name, "WAVESIZE", ring), self._field(name, "WAVES", ring)
        if not size or not waves:
            raise BadState(f"the program uses scratch memory, but {name} has WAVES={waves} WAVESIZE={size}")
        base = self._address("COMPUTE_DISPATCH_SCRATCH_BASE_LO", "COMPUTE_DISPATCH_SCRATCH_BASE_HI")
        generation = self._card.chip.generation
        unit = SCRATCH_UNIT[generation]
        if generation is not Generation.GFX9:
            waves *= self._card.node.shader_engines
        return size * unit // LANES, base, size * unit * waves


@functools.lru_cache(256)
def resident_waves(chip: AmdChip, vgprs: int, wave: int, wgp: bool) -> int:
    """Return how many waves of one work-group with so many VGPRs a CU (or a WGP, two of them) can hold."""
    registers, granule = _register_file(chip)
    if wave != chip.wave_front_size:
        registers, granule = registers // 2, granule // 2
    allocated = -(-vgprs // granule) * granule
    return min(chip.max_waves_per_simd, registers // allocated) * chip.simd_per_cu * (2 if wgp else 1)


def _register_file(chip: AmdChip) -> tuple[int, int]:
    if chip.generation is Generation.GFX9:
        return _GFX9_FILE
    return _LARGE_FILE if chip.target in _LARGE_FILE_TARGETS else _SMALL_FILE


def _by(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))
