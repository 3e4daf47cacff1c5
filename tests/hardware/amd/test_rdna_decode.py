"""The RDNA3 decoder: operands, fields, text and what it refuses.

The words of ``VECTORS`` come from LLVM's assembler for gfx1100 (llvm-mc 19 and clang 22).
"""

from __future__ import annotations

import pickle
import struct
from typing import Any

import pytest

from ringfence.errors import CompileError
from ringfence.hardware.amd.rdna import (
    Dpp,
    Instruction,
    Operand,
    UnknownInstruction,
    decode,
    decode_program,
)
from ringfence.hardware.amd.rdna.tables import rows

VECTORS = (
    ("s_add_u32 s0, s1, 0x12345678", "8000FF01 12345678"),
    ("s_movk_i32 s0, 0x1234", "B0001234"),
    ("s_mov_b32 s0, 0.5", "BE8000F0"),
    ("s_cmp_eq_u64 s[0:1], s[2:3]", "BF100200"),
    ("s_waitcnt vmcnt(0)", "BF8903F7"),
    ("s_waitcnt lgkmcnt(0)", "BF89FC07"),
    ("s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_2)", "BF870111"),
    ("s_load_b64 s[4:5], s[0:1], 0x10", "F4040100 F8000010"),
    ("s_load_b64 s[4:5], s[0:1], s7 offset:0x10", "F4040100 0E000010"),
    ("s_load_b32 s4, s[0:1], null", "F4000100 F8000000"),
    ("v_mov_b32_e32 v0, v1", "7E000301"),
    ("v_mov_b32_e32 v0, 0x12345678", "7E0002FF 12345678"),
    ("v_mov_b32_dpp v0, v1 quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf", "7E0002FA FF001B01"),
    ("v_mov_b32_dpp v0, v1 row_shl:1 row_mask:0xf bank_mask:0xf", "7E0002FA FF010101"),
    ("v_mov_b32_dpp v0, v1 row_half_mirror row_mask:0xf bank_mask:0xf bound_ctrl:1", "7E0002FA FF094101"),
    ("v_mov_b32_dpp v0, v1 row_share:5 row_mask:0xf bank_mask:0xf fi:1", "7E0002FA FF055501"),
    ("v_mov_b32_dpp v0, v1 dpp8:[7,6,5,4,3,2,1,0]", "7E0002E9 05397701"),
    ("v_mov_b32_dpp v0, v1 dpp8:[7,6,5,4,3,2,1,0] fi:1", "7E0002EA 05397701"),
    (
        "v_add_f32_e64_dpp v0, -v1, |v2| clamp mul:2 quad_perm:[0,1,2,3] row_mask:0x5 bank_mask:0xa",
        "D5038200 280204FA 5A00E401",
    ),
    ("v_add_f32_e32 v0, s1, v2", "06000401"),
    ("v_fmaak_f32 v0, v1, v2, 0x40000000", "5A000501 40000000"),
    ("v_fmamk_f32 v0, v1, 0x40000000, v2", "58000501 40000000"),
    ("v_add_co_u32 v0, vcc_lo, v1, v2", "D7006A00 00020501"),
    ("v_add_co_ci_u32_e32 v0, vcc_lo, v1, v2, vcc_lo", "40000501"),
    ("v_add_co_ci_u32_e64 v0, s4, v1, v2, s6", "D5200400 001A0501"),
    ("v_cmp_lt_f32_e32 vcc_lo, v1, v2", "7C220501"),
    ("v_cmp_lt_f32_e64 s4, |v1|, -v2", "D4110104 40020501"),
    ("v_cmpx_eq_u32_e64 v1, v2", "D4CA007E 00020501"),
    ("v_fma_f32 v0, -v1, |v2|, v3 clamp mul:4", "D6138200 340E0501"),
    ("v_mad_u64_u32 v[0:1], s4, v2, v3, v[4:5]", "D6FE0400 04120702"),
    ("v_mad_u64_u32 v[0:1], null, v2, v3, v[4:5]", "D6FE7C00 04120702"),
    ("v_div_scale_f32 v0, vcc_lo, v1, v2, v3", "D6FC6A00 040E0501"),
    ("v_readlane_b32 s0, v1, s2", "D7600000 00000501"),
    ("v_writelane_b32 v0, s1, 5", "D7610000 00010A01"),
    (
        "v_pk_fma_f16 v0, v1, v2, v3 op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[1,0,0] neg_hi:[0,1,0]",
        "CC0E4A00 340E0501",
    ),
    ("v_fma_mix_f32 v0, v1, v2, v3 op_sel_hi:[1,0,0]", "CC200000 0C0E0501"),
    ("v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", "CC404000 1C022108"),
    ("v_wmma_i32_16x16x16_iu8 v[0:7], v[8:11], v[12:15], v[0:7] neg_lo:[1,1,0]", "CC444000 7C021908"),
    ("v_wmma_f16_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7] op_sel:[0,0,1]", "CC426000 1C022108"),
    ("v_pk_add_f16 v0, v1, 2.0 op_sel_hi:[1,0]", "CC0F4000 0801E901"),
    ("v_dual_mul_f32 v0, v1, v2 :: v_dual_add_f32 v3, v4, v5", "C8C80501 00020B04"),
    ("v_dual_mov_b32 v0, v1 :: v_dual_add_nc_u32 v3, v4, v5", "CA200101 00020B04"),
    ("v_dual_fmaak_f32 v0, v1, v2, 0x40000000 :: v_dual_mov_b32 v3, v4", "C8500501 00020104 40000000"),
    ("v_dual_cndmask_b32 v0, v1, v2 :: v_dual_lshlrev_b32 v3, v4, v5", "CA620501 00020B04"),
    ("v_dual_dot2acc_f32_f16 v0, v1, v2 :: v_dual_and_b32 v3, v4, v5", "CB240501 00020B04"),
    ("ds_load_b32 v0, v1 offset:16", "D8D80010 00000001"),
    ("ds_store_b64 v0, v[2:3] offset:8", "D9340008 00000200"),
    ("ds_load_2addr_b32 v[0:1], v2 offset0:1 offset1:2", "D8DC0201 00000002"),
    ("ds_add_rtn_u32 v0, v1, v2", "D8800000 00000201"),
    ("ds_swizzle_b32 v0, v1 offset:swizzle(QUAD_PERM,1,1,1,1)", "D8D48055 00000001"),
    ("ds_bpermute_b32 v0, v1, v2 offset:4", "DACC0004 00000201"),
    ("global_load_b32 v0, v1, s[2:3] offset:-16", "DC521FF0 00020001"),
    ("global_load_b128 v[0:3], v[4:5], off", "DC5E0000 007C0004"),
    ("global_store_b32 v[0:1], v2, off offset:4095", "DC6A0FFF 007C0200"),
    ("global_atomic_add_u32 v0, v[1:2], v3, off glc", "DCD64000 007C0301"),
    ("flat_load_b32 v0, v[1:2]", "DC500000 007C0001"),
    ("scratch_load_b32 v0, off, s4 offset:4", "DC510004 00040000"),
    ("scratch_load_b32 v0, v1, off offset:4", "DC510004 00FC0001"),
    ("scratch_store_b32 v1, v0, s4", "DC690000 00840001"),
    ("scratch_store_b32 off, v0, off offset:8", "DC690008 007C0000"),
    ("buffer_load_b32 v0, v1, s[4:7], s8 offen offset:16", "E0500010 08410001"),
    ("buffer_store_b32 v0, off, s[4:7], 0 offset:4", "E0680004 80010000"),
    ("s_getreg_b32 s0, hwreg(HW_REG_MODE)", "B880F801"),
    ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 8), 0xf0", "B9803801 000000F0"),
    ("s_endpgm", "BFB00000"),
    ("s_barrier", "BFBD0000"),
    ("s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)", "BFB60003"),
    ("s_branch 4", "BFA00004"),
    ("v_add_f16_e32 v0.h, v1.l, v2.h", "65010501"),
    ("v_fma_f16 v0.h, v1.l, v2.h, v3.l op_sel:[0,1,0,1]", "D6485000 040E0501"),
    ("v_cmp_lt_f16_e32 vcc_lo, v1.h, v2.l", "7C020581"),
    ("v_cvt_f16_f32_e64 v130.h, v1 op_sel:[0,1]", "D58A4082 00000101"),
    ("s_mov_b64 s[0:1], 0x12345678", "BE8001FF 12345678"),
    ("s_waitcnt_vscnt null, 0x0", "BC7C0000"),
    ("s_sendmsg_rtn_b64 s[0:1], sendmsg(MSG_RTN_GET_REALTIME)", "BE804D83"),
    ("v_cndmask_b32_e64 v0, v1, v2, s4", "D5010000 00120501"),
)


def code_of(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def read(*words: int, wave: int = 32) -> Instruction:
    """Return the instruction that takes up all of the words."""
    instruction = decode(code_of(*words), wave=wave)
    assert instruction.size == 4 * len(words)
    return instruction


def vgpr(number: int, type_: str = "b32", **more: Any) -> Operand:
    return Operand("vgpr", number, type=type_, **more)


@pytest.mark.parametrize(("text", "words"), VECTORS, ids=[text for text, _ in VECTORS])
def test_reference_words_read_as_their_text(text: str, words: str) -> None:
    assert read(*(int(word, 16) for word in words.split())).text == text


class TestOperands:
    def test_an_inline_integer_keeps_its_value(self) -> None:
        assert [read(0xBE800000 | code).srcs[0].num for code in (128, 192, 193, 208)] == [0, 64, -1, -16]

    def test_an_inline_float_keeps_its_code(self) -> None:
        assert read(0xBE8000F8).srcs == (Operand("float", 248),)

    def test_a_literal_is_shared_by_the_operands_that_name_it(self) -> None:
        i = read(0x8000FFFF, 0xFFFFFFFF)
        assert [(o.kind, o.num) for o in i.srcs] == [("literal", 0xFFFFFFFF)] * 2

    def test_a_pair_is_named_by_its_first_register(self) -> None:
        assert read(0xBE840102).dsts == (Operand("sgpr", 4, 2, type="b64"),)

    def test_vcc_and_exec_have_halves(self) -> None:
        found = [read(0xBE800000 | code).srcs[0] for code in (106, 107, 126, 127)]
        assert [(o.kind, o.num) for o in found] == [("vcc", 0), ("vcc", 1), ("exec", 0), ("exec", 1)]

    def test_special_registers_have_their_names(self) -> None:
        codes = {108: "ttmp", 124: "null", 125: "m0", 235: "shared_base", 252: "execz", 253: "scc"}
        assert {code: read(0xBE800000 | code).srcs[0].kind for code in codes} == codes

    def test_a_16_bit_operand_of_a_short_form_names_a_half(self) -> None:
        i = read(0x65010501)
        assert i.dsts == (vgpr(0, "f16", hi=True),)
        assert i.srcs == (vgpr(1, "f16"), vgpr(2, "f16", hi=True))

    def test_op_sel_of_a_long_form_names_halves(self) -> None:
        i = read(0xD6485000, 0x040E0501)
        assert i.dsts == (vgpr(0, "f16", hi=True),)
        assert [o.hi for o in i.srcs] == [False, True, False]

    def test_neg_and_abs_belong_to_their_source(self) -> None:
        i = read(0xD6138200, 0x340E0501)
        assert [(o.neg, o.abs) for o in i.srcs] == [(True, False), (False, True), (False, False)]
        assert (i.fields["clamp"], i.fields["omod"]) == (1, 2)

    def test_a_mask_has_one_register_per_32_lanes(self) -> None:
        assert read(0xD4110104, 0x40020501).dsts == (Operand("sgpr", 4, 1, type="mask"),)
        assert read(0xD4110104, 0x40020501, wave=64).dsts == (Operand("sgpr", 4, 2, type="mask"),)

    def test_a_short_compare_writes_vcc(self) -> None:
        assert read(0x7C220501).dsts == (Operand("vcc", 0, type="mask"),)

    def test_a_cmpx_writes_exec(self) -> None:
        assert read(0xD4CA007E, 0x00020501).dsts == (Operand("exec", 0, type="mask"),)

    def test_a_carry_is_listed_as_destination_and_source(self) -> None:
        i = read(0xD5200400, 0x001A0501)
        assert i.dsts == (vgpr(0, "u32"), Operand("sgpr", 4, type="mask"))
        assert i.srcs[2] == Operand("sgpr", 6, type="mask")

    def test_a_swap_lists_what_each_register_receives(self) -> None:
        i = read(0x7E00CB01)
        assert i.dsts == (vgpr(0), vgpr(1))
        assert i.srcs == (vgpr(1), vgpr(0))

    def test_the_sources_of_fma_mix_are_resolved(self) -> None:
        i = read(0xCC200900, 0x0C0E0501)
        assert i.srcs[0] == vgpr(1, "f16", hi=True, abs=True)
        assert i.srcs[1] == vgpr(2, "f32")

    def test_a_wmma_has_half_the_result_registers_in_wave64(self) -> None:
        words = 0xCC404000, 0x1C022108
        assert [read(*words, wave=wave).dsts[0].size for wave in (32, 64)] == [8, 4]


class TestFields:
    def test_a_branch_has_its_target_in_bytes(self) -> None:
        code = code_of(0xBF800000, 0xBFA0FFFE)
        assert decode(code, 4).fields["target"] == 0
        assert decode(code_of(0xBFA00004)).fields["target"] == 20

    def test_a_hardware_register_is_taken_apart(self) -> None:
        fields = read(0xB9803801, 0xF0).fields
        assert [fields[name] for name in ("hwreg", "hwreg_offset", "hwreg_size")] == [1, 0, 8]

    def test_a_dpp16_dword_becomes_a_permutation(self) -> None:
        i = read(0x7E0002FA, 0xA5055501)
        assert i.fields["dpp"] == Dpp(
            "dpp16", 0x155, row_mask=0xA, bank_mask=0x5, bound_ctrl=False, fetch_inactive=True
        )
        assert i.srcs == (vgpr(1),)

    def test_a_dpp8_dword_becomes_a_permutation(self) -> None:
        i = read(0x7E0002E9, 0x05397701)
        assert i.fields["dpp"] == Dpp("dpp8", lanes=(7, 6, 5, 4, 3, 2, 1, 0))

    def test_the_modifiers_of_a_short_form_are_in_the_dpp_dword(self) -> None:
        i = read(0x060004FA, 0xFF90E401)
        assert [(o.neg, o.abs) for o in i.srcs] == [(True, False), (False, True)]

    def test_a_pair_holds_two_instructions(self) -> None:
        i = read(0xC8500501, 0x00020104, 0x40000000)
        x, y = i.fields["x"], i.fields["y"]
        assert (x.name, y.name) == ("v_dual_fmaak_f32", "v_dual_mov_b32")
        assert x.srcs[2] == Operand("literal", 0x40000000, type="f32")
        assert i.dsts == x.dsts + y.dsts == (vgpr(0, "f32"), vgpr(3))

    def test_the_destinations_of_a_pair_differ_in_parity(self) -> None:
        assert [o.num for o in read(0xC8C80501, 0x01020B04).dsts] == [1, 2]

    def test_memory_sources_have_roles(self) -> None:
        i = read(0xDCD64000, 0x007C0301)
        assert i.fields["layout"] == ("addr", "data", "saddr")
        assert i.source("addr") == vgpr(1, "b64", size=2)
        assert i.source("saddr") == Operand("off", 0, type="b64")
        assert i.source("data1") is None

    def test_a_scalar_address_makes_the_vector_address_an_offset(self) -> None:
        i = read(0xDC521FF0, 0x00020001)
        assert i.source("addr") == vgpr(1)
        assert i.source("saddr") == Operand("sgpr", 2, 2, type="b64")
        assert i.fields["offset"] == -16

    def test_glc_makes_an_atomic_return(self) -> None:
        assert read(0xDCD60000, 0x007C0301).dsts == ()
        assert read(0xDCD64000, 0x007C0301).dsts == (vgpr(0, "u32"),)

    def test_a_compare_and_swap_has_twice_the_data(self) -> None:
        assert read(0xDCD24000, 0x007C0301).source("data") == vgpr(3, "b64", size=2)

    def test_the_offset_of_flat_is_unsigned(self) -> None:
        assert read(0xDC500FFF, 0x007C0001).fields["offset"] == 4095

    def test_tfe_adds_a_register_to_a_buffer_load(self) -> None:
        assert read(0xE0500000, 0x08610001).dsts[0].size == 2

    def test_the_data_of_a_buffer_store_comes_first(self) -> None:
        i = read(0xE0680004, 0x80010000)
        assert i.fields["layout"] == ("data", "vaddr", "srsrc", "soffset")

    def test_bits_of_unused_operand_fields_are_reported(self) -> None:
        i = read(0xDC520100, 0x03020300)
        assert i.text == "global_load_b32 v3, v0, s[2:3] offset:256"
        assert i.fields["unused"] == 0x300 << 32
        assert "unused" not in read(0xDC520100, 0x03020000).fields


class TestInterpolation:
    def test_the_middle_source_may_be_a_scalar(self) -> None:
        i = read(0xCD000704, 0xA40C0501)
        assert i.text == "v_interp_p10_f32 v4, -v1, s2, -v3 wait_exp:7"

    def test_the_others_may_not(self) -> None:
        with pytest.raises(UnknownInstruction, match="src0 of v_interp_p2_f32 must be a vector register"):
            decode(code_of(0xCD010004, 0x040C0401))


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "what"),
        [
            ((0xCE000000, 0), "LDSDIR"),
            ((0xE8000000, 0), "MTBUF"),
            ((0xF0000000, 0), "MIMG"),
            ((0xF8000000, 0), "EXP"),
        ],
    )
    def test_graphics_formats_are_refused_by_name(self, words: tuple[int, ...], what: str) -> None:
        with pytest.raises(UnknownInstruction, match=f"{what}.*not supported"):
            decode(code_of(*words))

    def test_an_unknown_opcode_names_offset_words_and_bits(self) -> None:
        with pytest.raises(UnknownInstruction) as caught:
            decode(code_of(0xBF800000, 0xBE803F80), 4)
        error = caught.value
        assert (error.pc, error.words, error.bits) == (4, (0xBE803F80,), 0xFF00)
        assert str(error).startswith(
            "byte 0x4: be803f80 does not decode as gfx11 code: SOP1 has no opcode 63"
        )

    def test_a_reserved_bit_is_refused_by_position(self) -> None:
        with pytest.raises(
            UnknownInstruction, match=r"reserved bits of v_xor3_b32 are set \(bits 15\)"
        ) as caught:
            decode(code_of(0xD6408000, 0x040E0501))
        assert caught.value.bits == 1 << 15

    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            ((0xBE8000D1,), "source 209, which does not exist"),
            ((0xBE8000FB,), "source 251, which does not exist"),
            ((0xBE810101,), "not aligned for 2 dwords"),
            ((0xBE80016B,), "not aligned"),
            ((0xF4081A00, 0xF8000000), "names no register of 4 dwords"),
            ((0xF4001F40, 0xF8000000), "cannot be M0 or EXEC"),
            ((0xDC5E0000, 0xFE7C0004), r"v\[254:257\], which does not exist"),
            ((0x7E000400,), "must be a vector register"),
            ((0xD7600000, 0x00020501), "must be a scalar register"),
            ((0xD5010000, 0x05020501), "must be a scalar register other than EXEC"),
            ((0x7E0002FA, 0xFF013001), "no permutation dpp_ctrl 0x130"),
            ((0x7E0002FA, 0xFF101B01), "does not have the modifiers neg0"),
            ((0x7E002EFA, 0xFF001B01), "DPP permutation, which the instruction does not have"),
            ((0xD5030000, 0x000004FA, 0xFF001B01), "must be a vector register beside a DPP permutation"),
            ((0xBC000000,), "sdst of s_waitcnt_vscnt cannot be 0"),
            ((0xD4CA006A, 0x00020501), "exec of v_cmpx_eq_u32 cannot be 106"),
            ((0xC9F80501, 0x00020B04), "VOPD has no opcode 28 there"),
            ((0xC8C804FA, 0x00020B04), "no DPP permutation"),
        ],
        ids=lambda value: value if isinstance(value, str) else " ".join(f"{word:08x}" for word in value),
    )
    def test_impossible_operands_are_refused(self, words: tuple[int, ...], reason: str) -> None:
        with pytest.raises(UnknownInstruction, match=reason):
            decode(code_of(*words))

    def test_a_pair_is_refused_in_wave64(self) -> None:
        with pytest.raises(UnknownInstruction, match="wave32 only"):
            decode(code_of(0xC8C80501, 0x00020B04), wave=64)

    @pytest.mark.parametrize(
        ("words", "what"),
        [
            ((0xD8D80010,), "second half"),
            ((0x8000FF01,), "literal"),
            ((0x7E0002FA,), "DPP dword"),
        ],
    )
    def test_code_that_ends_early_is_refused(self, words: tuple[int, ...], what: str) -> None:
        with pytest.raises(UnknownInstruction, match=f"code ends before .*{what}"):
            decode(code_of(*words))

    def test_an_offset_outside_the_code_is_an_error_of_the_caller(self) -> None:
        with pytest.raises(ValueError, match="offset 0x4"):
            decode(code_of(0xBF800000), 4)
        with pytest.raises(ValueError, match="offset 0x2"):
            decode(code_of(0xBF800000), 2)

    def test_a_wave_of_16_is_an_error_of_the_caller(self) -> None:
        with pytest.raises(ValueError, match="32 or 64 lanes, not 16"):
            decode(code_of(0xBF800000), wave=16)

    def test_the_error_is_a_compile_error_and_survives_pickling(self) -> None:
        with pytest.raises(CompileError) as caught:
            decode(code_of(0xBE803F80))
        again = pickle.loads(pickle.dumps(caught.value))
        assert str(again) == str(caught.value)
        assert again.words == (0xBE803F80,)


class TestProgram:
    def test_instructions_follow_each_other(self) -> None:
        code = code_of(0x8000FF01, 0x12345678, 0xD6138200, 0x340E0501, 0xBFB00000)
        assert [(i.pc, i.name) for i in decode_program(code)] == [
            (0, "s_add_u32"),
            (8, "v_fma_f32"),
            (16, "s_endpgm"),
        ]

    def test_decoding_can_start_and_end_anywhere(self) -> None:
        code = code_of(0xFFFFFFFF, 0xBF800000, 0xBFB00000, 0xFFFFFFFF)
        assert [i.name for i in decode_program(memoryview(code), 4, 12)] == ["s_nop", "s_endpgm"]


class TestTables:
    def test_no_word_matches_two_rows(self) -> None:
        found = [
            (first.name, second.name)
            for table in (
                *[rows()[name] for name in rows() if name != "vop3sd"],
                rows()["vop3"] + rows()["vop3sd"],
            )
            for index, first in enumerate(table)
            for second in table[index + 1 :]
            if first.overlaps(second)
        ]
        assert found == []

    def test_every_bit_is_a_field_fixed_or_unused(self) -> None:
        for table in rows().values():
            for row in table:
                fields = sum(bits.mask for bits in row.fields.values())
                whole = fields | row.mask | row.unused
                assert whole in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF), row.name
                assert fields & row.mask == 0, row.name
