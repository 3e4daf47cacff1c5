"""Chip facts against the device tables of Mesa 25 (tinymesa) and KGSL."""

from __future__ import annotations

import ctypes
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinygrad.runtime.autogen import mesa

from ringfence.errors import UnsupportedDevice
from ringfence.hardware.adreno.chips import CHIPS, Chip, chip_by_name, chip_from_id

KIB = 1024

# gmem_size of adreno-gpulist.h in the 2025 tree of qualcomm-linux/kgsl.
KGSL_GMEM_BYTES = {
    "a630": 1024 * KIB,
    "a640": 1024 * KIB,
    "a650": 1152 * KIB,
    "a660": 1536 * KIB,
    "a643": 512 * KIB,
}

# Chip ids as seen on devices; a630 is the v2 part that tinygrad's compiler_mesa.py compiles for. KGSL takes
# any patch level (ANY_ID in adreno-gpulist.h).
SEEN_CHIP_IDS = {
    "a630": 0x06030001,
    "a640": 0x06040001,
    "a650": 0x06050000,
    "a660": 0x06060001,
    "a643": 0x06030500,
}

# Mesa's names of what is not called after its chip id: the a643 is the same chip as the a635.
NAMES = {"Adreno 7c+ Gen 3": "a643"}

# Where KGSL is followed, because it is KGSL that reports the value: (KGSL's, Mesa's). KGSL's a6xx_init()
# takes 14 instead of 15 with LPDDR4X, which is what Mesa's table assumes for this chip.
KGSL_INSTEAD_OF_MESA = {("a643", "highest_bank_bit"): (15, 14)}

# What tinygrad's ops_qcom.py does on an a630, where Mesa stops at the instruction cache: all that the 10 bits
# of NUM_UNIT can count.
TINYGRAD_INSTEAD_OF_MESA = {("a630", "preload_units"): (1023, 64)}

INSTEAD_OF_MESA = KGSL_INSTEAD_OF_MESA | TINYGRAD_INSTEAD_OF_MESA


def mesa_name(identity: object) -> str:
    text = ctypes.cast(mesa.fd_dev_name(identity), ctypes.c_char_p).value.decode()
    return NAMES.get(text, text.replace("FD", "a"))


def mesa_facts(chip: Chip) -> dict[str, object]:
    """The same fields from Mesa's tables, by chip id alone."""
    identity = mesa.struct_fd_dev_id(0, chip.chip_id)
    info = mesa.fd_dev_info(identity)
    options = mesa.struct_ir3_compiler_options()
    compiler = mesa.ir3_compiler_create(None, identity, info, options)
    return {
        "name": mesa_name(identity),
        "chip_id": SEEN_CHIP_IDS.get(chip.name),
        "gmem_bytes": KGSL_GMEM_BYTES.get(chip.name),
        "sp_cores": info.num_sp_cores,
        "fibers_per_sp": info.fibers_per_sp,
        "registers_vec4": info.a6xx.reg_size_vec4,
        "highest_bank_bit": info.highest_bank_bit,
        "shared_bytes": info.cs_shared_mem_size,
        "wave_threads": info.threadsize_base,
        "max_waves": info.max_waves,
        "wave_granularity": info.wave_granularity,
        "constants_vec4": compiler.contents.max_const_compute,
        "instruction_cache_units": info.a6xx.instr_cache_size,
        "preload_units": info.a6xx.instr_cache_size,
        "lpac": info.a6xx.has_lpac,
        "scalar_alu": info.a6xx.has_scalar_alu,
        "dp2acc": info.a6xx.has_dp2acc,
        "dp4acc": info.a6xx.has_dp4acc,
        "getfiberid": info.a6xx.has_getfiberid,
        "movs": info.a6xx.has_movs,
        "isam_v": info.a6xx.has_isam_v,
        "ssbo_offsets": info.a6xx.has_ssbo_imm_offsets,
        "nops_after_prede": 6 if info.a6xx.prede_nop_quirk else 0,  # freedreno_dev_info.h counts them
    }


def test_every_field_of_every_chip(tally):
    for chip in CHIPS.values():
        facts = mesa_facts(chip)
        for field in dataclasses.fields(Chip):
            declared, oracle = getattr(chip, field.name), facts.get(field.name)
            if (chip.name, field.name) in INSTEAD_OF_MESA:
                declared, oracle = (declared, oracle), INSTEAD_OF_MESA[chip.name, field.name]
            tally.compare(f"{chip.name}.{field.name}", declared, oracle)
    tally.finish()


def test_the_key_is_core_major_minor():
    for key, chip in CHIPS.items():
        assert key == (chip.core, chip.major, chip.minor)
        assert chip.chip_id == chip.core << 24 | chip.major << 16 | chip.minor << 8 | chip.patch


@pytest.mark.parametrize(("name", "chip_id"), SEEN_CHIP_IDS.items())
def test_every_chip_is_found_by_its_chip_id(name, chip_id):
    assert chip_from_id(chip_id).name == name


@given(st.integers(0, 0xFF))
def test_the_patch_level_does_not_matter(patch):
    assert chip_from_id(0x06030000 | patch) is CHIPS[6, 3, 0]


def test_a_chip_is_found_by_name():
    assert chip_by_name("a650").chip_id == 0x06050000
    with pytest.raises(UnsupportedDevice, match=r"'a999'.*a630"):
        chip_by_name("a999")


@pytest.mark.parametrize("chip_id", [0x07030001, 0x43050A01, 0x43051401], ids=hex)
def test_a7xx_is_refused_as_such(chip_id):
    with pytest.raises(UnsupportedDevice, match=rf"{chip_id:#010x} is an a7xx"):
        chip_from_id(chip_id)


@pytest.mark.parametrize("chip_id", [0x06010800, 0x07000200, 0x05030002, 0], ids=hex)
def test_an_unknown_chip_is_refused_with_its_id(chip_id):
    with pytest.raises(UnsupportedDevice, match=rf"{chip_id:#010x} .*unknown"):
        chip_from_id(chip_id)


@given(st.integers(0, 0xFFFFFFFF))
def test_every_chip_id_is_driven_or_refused(chip_id):
    try:
        assert chip_from_id(chip_id) in CHIPS.values()
    except UnsupportedDevice as error:
        assert f"{chip_id:#010x}" in str(error)
