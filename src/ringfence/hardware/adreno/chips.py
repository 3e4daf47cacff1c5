"""The Adreno chips that this software knows, and how a KGSL ``chip_id`` names them.

``chip_id`` is ``core << 24 | major << 16 | minor << 8 | patch``. Sizes and quirks come from the device tables
of Mesa (``src/freedreno/common/freedreno_devices.py``), GMEM sizes and bank bits from KGSL
(``adreno-gpulist.h``), which says of what memory the bank bit depends.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringfence.errors import UnsupportedDevice

_KIB = 1024
_FIRST_A7XX = (7, 3)


@dataclass(frozen=True, slots=True)
class Chip:
    """One chip.

    ``sp_cores`` counts shader processors, ``fibers_per_sp`` the fibers that private memory is laid out
    for. ``registers_vec4`` is the size of the register file of one wave slot in vec4. ``highest_bank_bit``
    is the address bit that selects the memory bank, with the faster of the memories that the chip is built
    with. ``wave_threads`` is the base wave size, ``max_waves`` and ``wave_granularity`` bound the waves that
    are resident. ``instruction_cache_units`` is how much code (in units of 128 bytes) the instruction cache
    holds, ``preload_units`` how much a command may load ahead of a launch.

    ``lpac``: the chip has a second, low-priority compute pipe, and takes the state of a launch also from
    SP_CS_WIE_CNTL_0/1 and HLSQ_CS_CTRL_REG1 (Mesa's ``fd6_compute.cc``). ``scalar_alu``: instructions whose
    registers have one value for the whole wave run on an ALU of their own. ``nops_after_prede`` is how many
    idle instructions must follow ``prede``.

    ``dp2acc``, ``dp4acc``, ``getfiberid`` and ``movs``: the chip has these instructions. ``isam_v``: texel
    fetches can return consecutive elements of a buffer. ``ssbo_offsets``: ``ldib`` and ``stib`` can add a
    constant to the coordinate.
    """

    name: str
    chip_id: int
    gmem_bytes: int
    sp_cores: int
    fibers_per_sp: int
    registers_vec4: int
    highest_bank_bit: int
    shared_bytes: int = 32 * _KIB
    wave_threads: int = 64
    max_waves: int = 16
    wave_granularity: int = 2
    constants_vec4: int = 256
    instruction_cache_units: int = 127
    preload_units: int = 127
    lpac: bool = False
    scalar_alu: bool = False
    nops_after_prede: int = 0
    dp2acc: bool = False
    dp4acc: bool = False
    getfiberid: bool = False
    movs: bool = False
    isam_v: bool = False
    ssbo_offsets: bool = False

    @property
    def core(self) -> int:
        return self.chip_id >> 24

    @property
    def major(self) -> int:
        return self.chip_id >> 16 & 0xFF

    @property
    def minor(self) -> int:
        return self.chip_id >> 8 & 0xFF

    @property
    def patch(self) -> int:
        return self.chip_id & 0xFF

    @property
    def key(self) -> tuple[int, int, int]:
        """The fields of the chip id that select the chip: core, major, minor."""
        return self.core, self.major, self.minor

    @property
    def constant_bytes(self) -> int:
        """The size of the constant file of a compute program in bytes."""
        return self.constants_vec4 * 16


# Mesa loads no more ahead than the instruction cache holds, and saw chips from the a650 on hang beyond it
# (freedreno_devices.py). tinygrad's ops_qcom.py loads whole programs on an a630, as far as the packet can
# count.
_KNOWN = (
    Chip(
        "a630", 0x06030001, 1024 * _KIB, 2, 2048, 96, 15,
        instruction_cache_units=64, preload_units=1023,
    ),
    Chip(
        "a640", 0x06040001, 1024 * _KIB, 2, 8192, 96, 15,
        instruction_cache_units=64, preload_units=64,
    ),
    Chip(
        "a650", 0x06050000, 1152 * _KIB, 3, 4096, 64, 16,
        scalar_alu=True, nops_after_prede=6, dp2acc=True,
    ),
    Chip(
        "a660", 0x06060001, 1536 * _KIB, 3, 4096, 64, 16,
        lpac=True, scalar_alu=True, nops_after_prede=6, dp2acc=True, dp4acc=True, getfiberid=True, movs=True,
        isam_v=True, ssbo_offsets=True,
    ),
    Chip(
        "a643", 0x06030500, 512 * _KIB, 2, 4096, 64, 15,
        lpac=True, scalar_alu=True, nops_after_prede=6, dp2acc=True, dp4acc=True, getfiberid=True, movs=True,
        isam_v=True, ssbo_offsets=True,
    ),
)  # fmt: skip

CHIPS: dict[tuple[int, int, int], Chip] = {chip.key: chip for chip in _KNOWN}


def chip_from_id(chip_id: int) -> Chip:
    """Return the chip that KGSL reports as ``chip_id``; :class:`UnsupportedDevice` if there is none to drive.

    The patch level is ignored. Chips from 7.3 on have another command stream (CP_EVENT_WRITE7 instead of
    CP_EVENT_WRITE, moved registers) and are refused as such; 7.0.2 (a702) is an a6xx-class part.
    """
    key = chip_id >> 24, chip_id >> 16 & 0xFF, chip_id >> 8 & 0xFF
    if key[:2] >= _FIRST_A7XX:
        raise UnsupportedDevice(
            f"GPU with chip id {chip_id:#010x} is an a7xx or later, whose command stream differs; "
            f"supported: {_names()}"
        )
    chip = CHIPS.get(key)
    if chip is None:
        raise UnsupportedDevice(
            f"GPU with chip id {chip_id:#010x} (core {key[0]}, major {key[1]}, minor {key[2]}) is unknown; "
            f"supported: {_names()}"
        )
    return chip


def chip_by_name(name: str) -> Chip:
    """Return the chip called ``name`` (``"a630"``); :class:`UnsupportedDevice` if there is none."""
    for chip in CHIPS.values():
        if chip.name == name:
            return chip
    raise UnsupportedDevice(f"no Adreno chip is called {name!r}; known: {_names()}")


def _names() -> str:
    return ", ".join(chip.name for chip in CHIPS.values())
