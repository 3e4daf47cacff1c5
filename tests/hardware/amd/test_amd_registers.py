"""Register facts against the kernel's register headers as tinygrad generated them.

tinygrad.runtime.autogen.am.regs has (offset, segment, {field: (low, high)}) of the headers ``gc_*``,
``nbio_*`` and ``nbif_*``; the resource words are compared with LLVM's kernel descriptor as well.
"""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from tinygrad.runtime.autogen import amdgpu_kd
from tinygrad.runtime.autogen.am import regs

from ringfence.errors import UnsupportedDevice
from ringfence.hardware.amd import registers_gfx9, registers_gfx11, registers_gfx12
from ringfence.hardware.amd.chips import CHIPS, GC_BASE_GFX9, GC_BASE_GFX11, NBIO_BASE, Generation
from ringfence.hardware.amd.registers import MAPS, registers_for
from ringfence.hardware.fields import Register

# By generation: the headers of its chips, the first being the one that is declared, and where segments begin.
HEADERS = {
    Generation.GFX9: SimpleNamespace(gc=["gc_9_4_3"], nbio=["nbio_7_9_0"], base=GC_BASE_GFX9),
    Generation.GFX11: SimpleNamespace(
        gc=["gc_11_0_3", "gc_11_0_0", "gc_11_5_0"], nbio=["nbio_4_3_0", "nbio_7_11_0"], base=GC_BASE_GFX11
    ),
    Generation.GFX12: SimpleNamespace(gc=["gc_12_0_0"], nbio=["nbif_6_3_1"], base=GC_BASE_GFX11),
}
MODULES = {
    Generation.GFX9: registers_gfx9,
    Generation.GFX11: registers_gfx11,
    Generation.GFX12: registers_gfx12,
}

# How headers of one generation differ from the one that is declared.
DIFFERENCES = {
    ("gc_11_0_0", "COMPUTE_PGM_RSRC1"): "DEBUG_MODE and CDBG_USER have no name",
    ("gc_11_5_0", "COMPUTE_PGM_RSRC1"): "DEBUG_MODE and CDBG_USER have no name",
    ("gc_11_5_0", "GRBM_GFX_INDEX"): "INSTANCE_INDEX has a bit less",
}
# NBIO 7.11 has the registers under the name of its other physical function, at the offset of the first.
RENAMED = {
    ("nbio_7_11_0", f"BIF_BX_PF0_GPU_HDP_FLUSH_{name}"): f"BIF_BX_PF1_GPU_HDP_FLUSH_{name}"
    for name in ("REQ", "DONE")
}
# Registers of the header that are other names of declared ones.
ALIASES = re.compile(r"COMPUTE_DESTINATION_EN_SE\d")

# Fields of the resource words, and the names of the same bits in LLVM's descriptor, which may have several
# for what the header has as one.
LLVM_FIELDS = {
    ("COMPUTE_PGM_RSRC1", "VGPRS"): ["GRANULATED_WORKITEM_VGPR_COUNT"],
    ("COMPUTE_PGM_RSRC1", "SGPRS"): ["GRANULATED_WAVEFRONT_SGPR_COUNT"],
    ("COMPUTE_PGM_RSRC1", "PRIORITY"): ["PRIORITY"],
    ("COMPUTE_PGM_RSRC1", "FLOAT_MODE"): [
        "FLOAT_ROUND_MODE_32",
        "FLOAT_ROUND_MODE_16_64",
        "FLOAT_DENORM_MODE_32",
        "FLOAT_DENORM_MODE_16_64",
    ],
    ("COMPUTE_PGM_RSRC1", "PRIV"): ["PRIV"],
    ("COMPUTE_PGM_RSRC1", "DX10_CLAMP"): ["GFX6_GFX11_ENABLE_DX10_CLAMP"],
    ("COMPUTE_PGM_RSRC1", "WG_RR_EN"): ["GFX12_PLUS_ENABLE_WG_RR_EN"],
    ("COMPUTE_PGM_RSRC1", "DEBUG_MODE"): ["DEBUG_MODE"],
    ("COMPUTE_PGM_RSRC1", "IEEE_MODE"): ["GFX6_GFX11_ENABLE_IEEE_MODE"],
    ("COMPUTE_PGM_RSRC1", "DISABLE_PERF"): ["GFX12_PLUS_DISABLE_PERF"],
    ("COMPUTE_PGM_RSRC1", "BULKY"): ["BULKY"],
    ("COMPUTE_PGM_RSRC1", "CDBG_USER"): ["CDBG_USER"],
    ("COMPUTE_PGM_RSRC1", "FP16_OVFL"): ["GFX9_PLUS_FP16_OVFL"],
    ("COMPUTE_PGM_RSRC1", "WGP_MODE"): ["GFX10_PLUS_WGP_MODE"],
    ("COMPUTE_PGM_RSRC1", "MEM_ORDERED"): ["GFX10_PLUS_MEM_ORDERED"],
    ("COMPUTE_PGM_RSRC1", "FWD_PROGRESS"): ["GFX10_PLUS_FWD_PROGRESS"],
    ("COMPUTE_PGM_RSRC2", "SCRATCH_EN"): ["ENABLE_PRIVATE_SEGMENT"],
    ("COMPUTE_PGM_RSRC2", "USER_SGPR"): ["USER_SGPR_COUNT"],
    ("COMPUTE_PGM_RSRC2", "TRAP_PRESENT"): ["GFX6_GFX11_ENABLE_TRAP_HANDLER"],
    ("COMPUTE_PGM_RSRC2", "DYNAMIC_VGPR"): ["GFX12_PLUS_RESERVED1"],
    ("COMPUTE_PGM_RSRC2", "TGID_X_EN"): ["ENABLE_SGPR_WORKGROUP_ID_X"],
    ("COMPUTE_PGM_RSRC2", "TGID_Y_EN"): ["ENABLE_SGPR_WORKGROUP_ID_Y"],
    ("COMPUTE_PGM_RSRC2", "TGID_Z_EN"): ["ENABLE_SGPR_WORKGROUP_ID_Z"],
    ("COMPUTE_PGM_RSRC2", "TG_SIZE_EN"): ["ENABLE_SGPR_WORKGROUP_INFO"],
    ("COMPUTE_PGM_RSRC2", "TIDIG_COMP_CNT"): ["ENABLE_VGPR_WORKITEM_ID"],
    ("COMPUTE_PGM_RSRC2", "EXCP_EN_MSB"): ["ENABLE_EXCEPTION_ADDRESS_WATCH", "ENABLE_EXCEPTION_MEMORY"],
    ("COMPUTE_PGM_RSRC2", "LDS_SIZE"): ["GRANULATED_LDS_SIZE"],
    ("COMPUTE_PGM_RSRC2", "EXCP_EN"): [
        "ENABLE_EXCEPTION_IEEE_754_FP_INVALID_OPERATION",
        "ENABLE_EXCEPTION_FP_DENORMAL_SOURCE",
        "ENABLE_EXCEPTION_IEEE_754_FP_DIVISION_BY_ZERO",
        "ENABLE_EXCEPTION_IEEE_754_FP_OVERFLOW",
        "ENABLE_EXCEPTION_IEEE_754_FP_UNDERFLOW",
        "ENABLE_EXCEPTION_IEEE_754_FP_INEXACT",
        "ENABLE_EXCEPTION_INT_DIVIDE_BY_ZERO",
    ],
    ("COMPUTE_PGM_RSRC2", "SKIP_USGPR0"): ["RESERVED0"],
    ("COMPUTE_PGM_RSRC2", "WGP_TAKEOVER"): ["RESERVED0"],
    ("COMPUTE_PGM_RSRC3", "ACCUM_OFFSET"): ["GFX90A_ACCUM_OFFSET"],
    ("COMPUTE_PGM_RSRC3", "TG_SPLIT"): ["GFX90A_TG_SPLIT"],
}
LLVM_FIELDS_OF = {
    Generation.GFX9: {},
    Generation.GFX11: {
        ("COMPUTE_PGM_RSRC3", "SHARED_VGPR_CNT"): ["GFX10_GFX11_SHARED_VGPR_COUNT"],
        ("COMPUTE_PGM_RSRC3", "INST_PREF_SIZE"): ["GFX11_INST_PREF_SIZE"],
        ("COMPUTE_PGM_RSRC3", "TRAP_ON_START"): ["GFX11_TRAP_ON_START"],
        ("COMPUTE_PGM_RSRC3", "TRAP_ON_END"): ["GFX11_TRAP_ON_END"],
        ("COMPUTE_PGM_RSRC3", "IMAGE_OP"): ["GFX11_PLUS_IMAGE_OP"],
    },
    Generation.GFX12: {
        ("COMPUTE_PGM_RSRC3", "SHARED_VGPR_CNT"): ["GFX12_PLUS_RESERVED0"],
        ("COMPUTE_PGM_RSRC3", "INST_PREF_SIZE"): ["GFX12_PLUS_INST_PREF_SIZE"],
        ("COMPUTE_PGM_RSRC3", "GLG_EN"): ["GFX12_PLUS_GLG_EN"],
        ("COMPUTE_PGM_RSRC3", "IMAGE_OP"): ["GFX11_PLUS_IMAGE_OP"],
    },
}
# The descriptor of gfx9 has no names for these two, the register header has.
NOT_IN_LLVM = {(Generation.GFX9, "TRAP_ON_START"), (Generation.GFX9, "TRAP_ON_END")}

generations = pytest.mark.parametrize("generation", Generation, ids=lambda g: g.name)


def header_registers(generation: Generation, register: type[Register]) -> dict[str, list]:
    """Header name -> the header's entries for the elements of a register, with their segments' bases."""
    kind = "nbio" if register.__name__.startswith("BIF_") else "gc"
    base = NBIO_BASE if kind == "nbio" else HEADERS[generation].base
    found = {}
    for header in getattr(HEADERS[generation], kind):
        name = RENAMED.get((header, register.__name__), register.__name__)
        suffixes = [f"_{i}" for i in range(register.COUNT)] if register.COUNT > 1 else [""]
        entries = [getattr(regs, header).get(f"reg{name}{suffix}") for suffix in suffixes]
        found[header] = [(base[e[1]] + e[0], e[2]) if e else None for e in entries]
    return found


def test_every_register_is_in_the_table():
    for generation, module in MODULES.items():
        declared = {v for v in vars(module).values() if isinstance(v, type) and issubclass(v, Register)}
        assert declared - {Register} == set(MAPS[generation].declared)


@generations
def test_offsets_equal_the_headers(tally, generation):
    for register in MAPS[generation]:
        for header, entries in header_registers(generation, register).items():
            offsets = [entry[0] if entry else None for entry in entries]
            expected = None if None in offsets else offsets
            tally.compare(f"{header} {register.__name__}", register.offsets(), expected)
    tally.finish()


@generations
def test_fields_equal_the_headers(tally, generation):
    for register in MAPS[generation]:
        for header, entries in header_registers(generation, register).items():
            if (header, register.__name__) in DIFFERENCES:
                continue
            for name, field in register.FIELDS.items():
                spans = {entry[1].get(name.lower()) for entry in entries if entry}
                expected = spans.pop() if len(spans) == 1 else None
                tally.compare(f"{header} {register.__name__}.{name}", (field.low, field.high), expected)
            named = {name.upper() for name in entries[0][1] if not name.startswith("reserved")}
            assert named == set(register.FIELDS), register.__name__
    tally.finish()


def test_the_listed_differences_exist():
    for header, name in DIFFERENCES:
        register = MAPS[Generation.GFX11][name]
        fields = getattr(regs, header)[f"reg{name}"][2]
        assert fields != {field.lower(): (f.low, f.high) for field, f in register.FIELDS.items()}
        assert set(fields) <= {field.lower() for field in register.FIELDS}


@generations
def test_no_compute_register_of_the_header_is_missing(generation):
    header = getattr(regs, HEADERS[generation].gc[0])
    names = {name.removeprefix("reg") for name in header if name.startswith("regCOMPUTE_")}
    elements = {
        f"{register.__name__}_{index}" if register.COUNT > 1 else register.__name__
        for register in MAPS[generation]
        for index in range(register.COUNT)
    }
    assert {name for name in names if not ALIASES.fullmatch(name)} <= elements


@generations
def test_resource_words_equal_llvms(tally, generation):
    names = LLVM_FIELDS | LLVM_FIELDS_OF[generation]
    for word in ("COMPUTE_PGM_RSRC1", "COMPUTE_PGM_RSRC2", "COMPUTE_PGM_RSRC3"):
        for name, field in MAPS[generation][word].FIELDS.items():
            if (generation, name) in NOT_IN_LLVM:
                continue
            masks = [getattr(amdgpu_kd, f"{word}_{llvm}", None) for llvm in names.get((word, name), [])]
            expected = sum(mask & 0xFFFFFFFF for mask in masks) if masks and None not in masks else None
            tally.compare(f"{word}.{name}", field.mask, expected)
    tally.finish()


@generations
def test_no_two_registers_share_an_offset(generation):
    offsets = [offset for register in MAPS[generation] for offset in register.offsets()]
    assert len(offsets) == len(set(offsets))


@pytest.mark.parametrize("chip", CHIPS.values(), ids=lambda chip: chip.name)
def test_every_chip_has_the_registers_of_its_generation(chip):
    assert registers_for(chip.target).generation == chip.generation
    assert registers_for(chip.target).offset("COMPUTE_PGM_LO") == 0x2E0C
    assert registers_for(chip.target).offset("BIF_BX_PF0_GPU_HDP_FLUSH_REQ") == 0x0E26


@pytest.mark.parametrize("target", [(9, 0, 10), (9, 4, 3), (10, 3, 0), (12, 5, 0), (13, 0, 0), (0, 0, 0)])
def test_an_unknown_generation_is_refused(target):
    with pytest.raises(UnsupportedDevice, match=r"\.".join(map(str, target))):
        registers_for(target)


def test_registers_move_between_generations():
    assert registers_for((9, 4, 2)).offset("COMPUTE_PGM_RSRC3") == 0x2E2D
    assert registers_for((11, 0, 0)).offset("COMPUTE_PGM_RSRC3") == 0x2E28
    assert "COMPUTE_DISPATCH_INTERLEAVE" not in registers_for((9, 4, 2))
    with pytest.raises(KeyError, match="GFX9 has no register COMPUTE_DISPATCH_INTERLEAVE"):
        registers_for((9, 4, 2))["COMPUTE_DISPATCH_INTERLEAVE"]


def test_names_tell_the_element_of_an_array():
    registers = registers_for((11, 0, 0))
    assert registers.name_at(0x2E0C) == "COMPUTE_PGM_LO"
    assert registers.name_at(0x2E43) == "COMPUTE_USER_DATA_3"
    assert registers.offset("COMPUTE_USER_DATA", 3) == 0x2E43
    assert registers.name_at(0x1234) == "register 0x1234"
    with pytest.raises(IndexError, match="COMPUTE_USER_DATA has 16 elements, no 16"):
        registers.offset("COMPUTE_USER_DATA", 16)


def test_description_decodes_fields_and_marks_unknown_bits():
    registers = registers_for((11, 0, 0))
    assert registers.describe(0x2E18, 0x00010200) == "COMPUTE_TMPRING_SIZE: WAVES=0x200 WAVESIZE=0x10"
    assert registers.describe(0x2E18, 1 << 27).endswith("?=0x8000000")
    assert registers.describe(0x2E1B, 0) == "COMPUTE_RESTART_X: 0"
    assert registers.describe(0x1234, 5) == "register 0x1234: 0x5"
