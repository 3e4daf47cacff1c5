"""The kernel descriptor agrees with LLVM's assembler and with tinygrad's constants."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache

import pytest

from ringfence.errors import PackageError
from ringfence.hardware.amd.code_object import load_code_object
from ringfence.hardware.amd.descriptor import (
    KERNARG_PRELOAD,
    PROPERTIES,
    RSRC1,
    RSRC2,
    RSRC3,
    SIZE,
    KernelDescriptor,
    unpack_descriptor,
)
from ringfence.hardware.amd.registers import registers_for
from ringfence.hardware.amd.topology import target_from_arch
from ringfence.hardware.fields import Word
from tests.hardware.amd.elfwriter import DESCRIPTOR
from tests.oracle.llvm import assemble_object


def described(*kernels: tuple[str, ...]) -> list[KernelDescriptor]:
    """Return what LLVM makes of the directives of some kernel descriptors."""
    lines = [".text", "code:", "s_endpgm", ".rodata", ".p2align 6"]
    for index, directives in enumerate(kernels):
        lines += [f".set k{index}, code", f".amdhsa_kernel k{index}"]
        lines += [f".amdhsa_{line}" for line in directives]
        lines += [".amdhsa_next_free_vgpr 1", ".amdhsa_next_free_sgpr 1", ".end_amdhsa_kernel"]
    loaded = load_code_object(assemble_object("\n".join(lines)))
    return [loaded.kernel(f"k{index}").descriptor for index in range(len(kernels))]


@cache
def by_directive() -> dict[str, KernelDescriptor]:
    """Return the descriptor of each directive of ``FIELDS``; that of ``""`` has none."""
    names = ["", *(name for name, _ in FIELDS)]
    return dict(zip(names, described(*([name] if name else [] for name in names)), strict=True))


def changed(directive: str) -> dict[str, int]:
    """Return the fields that differ from a descriptor without directives."""
    before, now = by_directive()[""], by_directive()[directive]
    words: dict[str, tuple[type[Word], int, int]] = {
        "RSRC1": (RSRC1, before.rsrc1, now.rsrc1),
        "RSRC2": (RSRC2, before.rsrc2, now.rsrc2),
        "RSRC3": (RSRC3, before.rsrc3, now.rsrc3),
        "PROPERTIES": (PROPERTIES, before.properties, now.properties),
    }
    return {
        f"{name}.{field}": value
        for name, (kind, old, after) in words.items()
        for field, value in kind.unpack(after).items()
        if value != kind.get(old, field)
    }


FIELDS = (
    ("float_round_mode_32 2", {"RSRC1.FLOAT_ROUND_MODE_32": 2}),
    ("float_round_mode_16_64 1", {"RSRC1.FLOAT_ROUND_MODE_16_64": 1}),
    ("float_denorm_mode_32 3", {"RSRC1.FLOAT_DENORM_MODE_32": 3}),
    ("float_denorm_mode_16_64 0", {"RSRC1.FLOAT_DENORM_MODE_16_64": 0}),
    ("dx10_clamp 0", {"RSRC1.ENABLE_DX10_CLAMP": 0}),
    ("ieee_mode 0", {"RSRC1.ENABLE_IEEE_MODE": 0}),
    ("fp16_overflow 1", {"RSRC1.FP16_OVFL": 1}),
    ("workgroup_processor_mode 0", {"RSRC1.WGP_MODE": 0}),
    ("memory_ordered 0", {"RSRC1.MEM_ORDERED": 0}),
    ("forward_progress 0", {"RSRC1.FWD_PROGRESS": 0}),
    ("enable_private_segment 1", {"RSRC2.ENABLE_PRIVATE_SEGMENT": 1}),
    ("system_sgpr_workgroup_id_x 0", {"RSRC2.ENABLE_SGPR_WORKGROUP_ID_X": 0}),
    ("system_sgpr_workgroup_id_y 1", {"RSRC2.ENABLE_SGPR_WORKGROUP_ID_Y": 1}),
    ("system_sgpr_workgroup_id_z 1", {"RSRC2.ENABLE_SGPR_WORKGROUP_ID_Z": 1}),
    ("system_sgpr_workgroup_info 1", {"RSRC2.ENABLE_SGPR_WORKGROUP_INFO": 1}),
    ("system_vgpr_workitem_id 2", {"RSRC2.ENABLE_VGPR_WORKITEM_ID": 2}),
    ("exception_fp_ieee_invalid_op 1", {"RSRC2.ENABLE_EXCEPTION_IEEE_754_FP_INVALID_OPERATION": 1}),
    ("exception_fp_denorm_src 1", {"RSRC2.ENABLE_EXCEPTION_FP_DENORMAL_SOURCE": 1}),
    ("exception_fp_ieee_div_zero 1", {"RSRC2.ENABLE_EXCEPTION_IEEE_754_FP_DIVISION_BY_ZERO": 1}),
    ("exception_fp_ieee_overflow 1", {"RSRC2.ENABLE_EXCEPTION_IEEE_754_FP_OVERFLOW": 1}),
    ("exception_fp_ieee_underflow 1", {"RSRC2.ENABLE_EXCEPTION_IEEE_754_FP_UNDERFLOW": 1}),
    ("exception_fp_ieee_inexact 1", {"RSRC2.ENABLE_EXCEPTION_IEEE_754_FP_INEXACT": 1}),
    ("exception_int_div_zero 1", {"RSRC2.ENABLE_EXCEPTION_INT_DIVIDE_BY_ZERO": 1}),
    ("user_sgpr_count 7", {"RSRC2.USER_SGPR_COUNT": 7}),
    (
        "user_sgpr_dispatch_ptr 1",
        {"RSRC2.USER_SGPR_COUNT": 2, "PROPERTIES.ENABLE_SGPR_DISPATCH_PTR": 1},
    ),
    ("user_sgpr_queue_ptr 1", {"RSRC2.USER_SGPR_COUNT": 2, "PROPERTIES.ENABLE_SGPR_QUEUE_PTR": 1}),
    (
        "user_sgpr_kernarg_segment_ptr 1",
        {"RSRC2.USER_SGPR_COUNT": 2, "PROPERTIES.ENABLE_SGPR_KERNARG_SEGMENT_PTR": 1},
    ),
    ("user_sgpr_dispatch_id 1", {"RSRC2.USER_SGPR_COUNT": 2, "PROPERTIES.ENABLE_SGPR_DISPATCH_ID": 1}),
    (
        "user_sgpr_private_segment_size 1",
        {"RSRC2.USER_SGPR_COUNT": 1, "PROPERTIES.ENABLE_SGPR_PRIVATE_SEGMENT_SIZE": 1},
    ),
    ("uses_dynamic_stack 1", {"PROPERTIES.USES_DYNAMIC_STACK": 1}),
    ("inst_pref_size 5", {"RSRC3.INST_PREF_SIZE": 5}),
)


@pytest.mark.parametrize(("directive", "expected"), FIELDS)
def test_each_field_is_where_llvm_puts_it(directive: str, expected: dict[str, int]) -> None:
    assert changed(directive) == expected


def test_sizes_are_those_of_the_directives() -> None:
    directives = ("group_segment_fixed_size 1000", "private_segment_fixed_size 48", "kernarg_size 24")
    (found,) = described(directives)
    sizes = (found.group_segment_fixed_size, found.private_segment_fixed_size, found.kernarg_size)
    assert sizes == (1000, 48, 24)


GENERATIONS = {
    "gfx942": {
        "accum_offset 8": ("COMPUTE_PGM_RSRC3", "ACCUM_OFFSET", 1),
        "tg_split 1": ("COMPUTE_PGM_RSRC3", "TG_SPLIT", 1),
    },
    "gfx950": {
        "accum_offset 12": ("COMPUTE_PGM_RSRC3", "ACCUM_OFFSET", 2),
        "fp16_overflow 1": ("COMPUTE_PGM_RSRC1", "FP16_OVFL", 1),
    },
    "gfx1201": {
        "inst_pref_size 200": ("COMPUTE_PGM_RSRC3", "INST_PREF_SIZE", 200),
        "round_robin_scheduling 1": ("COMPUTE_PGM_RSRC1", "WG_RR_EN", 1),
    },
}


@pytest.mark.parametrize("arch", GENERATIONS)
def test_descriptors_of_other_generations_have_their_own_bits(arch: str) -> None:
    lines = [".text", "k:", "s_endpgm", ".rodata", ".p2align 6", ".amdhsa_kernel k"]
    lines += [f".amdhsa_{line}" for line in GENERATIONS[arch]]
    lines += [".amdhsa_user_sgpr_kernarg_segment_ptr 1", ".amdhsa_next_free_vgpr 16"]
    lines += [".amdhsa_next_free_sgpr 16", ".end_amdhsa_kernel"]
    descriptor = load_code_object(assemble_object("\n".join(lines), cpu=arch)).kernel("k").descriptor
    assert descriptor.wave == (32 if arch == "gfx1201" else 64)
    words = {"COMPUTE_PGM_RSRC1": descriptor.rsrc1, "COMPUTE_PGM_RSRC3": descriptor.rsrc3}
    registers = registers_for(target_from_arch(arch))
    for register, field, value in GENERATIONS[arch].values():
        assert registers[register].get(words[register], field) == value, field


def test_a_bit_of_another_generation_is_refused() -> None:
    split = replace(DESCRIPTOR, rsrc1=0, rsrc3=1 << 16)
    assert unpack_descriptor(split.pack(), target=(9, 4, 2)) == split
    with pytest.raises(PackageError, match="RSRC3 0x10000 has bits 0x10000 without meaning on gfx1100"):
        unpack_descriptor(split.pack())


def test_user_sgprs_follow_each_other_in_the_order_of_the_properties() -> None:
    properties = PROPERTIES.pack(
        ENABLE_SGPR_PRIVATE_SEGMENT_SIZE=1, ENABLE_SGPR_KERNARG_SEGMENT_PTR=1, ENABLE_SGPR_DISPATCH_PTR=1
    )
    found = replace(DESCRIPTOR, properties=properties).user_sgprs
    assert found == {"DISPATCH_PTR": 0, "KERNARG_SEGMENT_PTR": 2, "PRIVATE_SEGMENT_SIZE": 4}


def test_packing_and_unpacking_give_the_same_descriptor() -> None:
    descriptor = KernelDescriptor(1, 2, 3, -256, 0x30, 0xE0AF0001, 0x84, 0x408, 5)
    assert unpack_descriptor(descriptor.pack()) == descriptor


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((12, 1), "reserved bytes"),
        ((30, 1), "reserved bytes"),
        ((60, 1), "reserved bytes"),
        ((51, 8), "RSRC1 0xe8af0000 has bits 0x8000000 without meaning"),
        ((55, 0x80), "RSRC2 .* has bits 0x80000000"),
        ((45, 0x10), "RSRC3 .* has bits 0x1000"),
        ((57, 0x14), "PROPERTIES .* has bits 0x1000"),
        ((16, 4), "entry offset 0x4 is not a multiple of 64"),
    ],
)
def test_what_has_no_meaning_is_refused(change: tuple[int, int], message: str) -> None:
    data = bytearray(DESCRIPTOR.pack())
    data[change[0]] |= change[1]
    with pytest.raises(PackageError, match=message):
        unpack_descriptor(bytes(data))


def test_another_length_is_refused() -> None:
    with pytest.raises(PackageError, match="has 63 bytes instead of 64"):
        unpack_descriptor(bytes(63))


def test_the_layout_is_that_of_llvm() -> None:
    """tinygrad's declarations are generated from AMDHSAKernelDescriptor.h."""
    kd = pytest.importorskip("tinygrad.runtime.autogen.amdgpu_kd")
    theirs = kd.llvm_amdhsa_kernel_descriptor_t.from_buffer_copy(
        KernelDescriptor(1, 2, 3, -64, 4, 5, 6, 7, 8).pack()
    )
    assert ctypes.sizeof(theirs) == SIZE
    names = ("group_segment_fixed_size", "private_segment_fixed_size", "kernarg_size")
    assert [getattr(theirs, name) for name in names] == [1, 2, 3]
    assert theirs.kernel_code_entry_byte_offset == -64
    words = ("compute_pgm_rsrc3", "compute_pgm_rsrc1", "compute_pgm_rsrc2", "kernel_code_properties")
    assert [getattr(theirs, name) for name in words] == [4, 5, 6, 7]
    assert theirs.kernarg_preload == 8


_GENERATIONS = (
    *("", "GFX6_GFX8_", "GFX6_GFX11_", "GFX9_PLUS_", "GFX10_PLUS_", "GFX10_GFX11_", "GFX11_", "GFX11_PLUS_"),
)


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        (RSRC1, "COMPUTE_PGM_RSRC1_"),
        (RSRC2, "COMPUTE_PGM_RSRC2_"),
        (RSRC3, "COMPUTE_PGM_RSRC3_"),
        (PROPERTIES, "KERNEL_CODE_PROPERTY_"),
        (KERNARG_PRELOAD, "KERNARG_PRELOAD_SPEC_"),
    ],
)
def test_the_fields_are_those_of_llvm(kind: type[Word], prefix: str) -> None:
    kd = pytest.importorskip("tinygrad.runtime.autogen.amdgpu_kd")
    for name, field in kind.FIELDS.items():
        names = [f"{prefix}{generation}{name}" for generation in _GENERATIONS]
        found = [name for name in names if hasattr(kd, f"{name}_SHIFT")]
        assert found, f"{kind.__name__}.{name} is not among the constants of LLVM"
        low, width = getattr(kd, f"{found[0]}_SHIFT"), getattr(kd, f"{found[0]}_WIDTH")
        assert (field.low, field.high) == (low, low + width - 1), name
