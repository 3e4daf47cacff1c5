"""The RDNA3 (gfx11) opcodes: names, numbers and signatures.

Sources: AMD "RDNA3 Instruction Set Architecture", chapters 6 to 16, and AMD's machine-readable ISA (operand
types and sizes). Which modifiers and permutations an instruction has follows LLVM's assembler for gfx1100.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ringfence.hardware.amd.rdna.encoding import HALVES, Group


def _count(first: int, *names: str) -> dict[str, int]:
    """Return consecutive opcodes from ``first``."""
    return {name: first + k for k, name in enumerate(names)}


# Scalar

_LOGIC = ("and", "or", "xor", "nand", "nor", "xnor")

SOP2_OPCODES = (
    Group(
        "u32 = u32 u32",
        "",
        {
            "s_add_u32": 0,
            "s_sub_u32": 1,
            "s_addc_u32": 4,
            "s_subb_u32": 5,
            "s_lshl_b32": 8,
            "s_lshr_b32": 10,
            **_count(14, "s_lshl1_add_u32", "s_lshl2_add_u32", "s_lshl3_add_u32", "s_lshl4_add_u32"),
            "s_min_u32": 19,
            "s_max_u32": 21,
            **{f"s_{name}_b32": 22 + 2 * k for k, name in enumerate((*_LOGIC, "and_not1", "or_not1"))},
            "s_bfe_u32": 38,
            "s_bfm_b32": 42,
            "s_mul_hi_u32": 45,
        },
    ),
    Group(
        "i32 = i32 i32",
        "",
        {
            "s_add_i32": 2,
            "s_sub_i32": 3,
            "s_absdiff_i32": 6,
            "s_min_i32": 18,
            "s_max_i32": 20,
            "s_mul_i32": 44,
            "s_mul_hi_i32": 46,
        },
    ),
    Group("i32 = i32 u32", "", {"s_ashr_i32": 12, "s_bfe_i32": 39}),
    Group("i64 = i64 u32", "", {"s_ashr_i64": 13, "s_bfe_i64": 41}),
    Group("u64 = u64 u32", "", {"s_lshl_b64": 9, "s_lshr_b64": 11, "s_bfe_u64": 40}),
    Group("b64 = u32 u32", "", {"s_bfm_b64": 43}),
    Group(
        "b64 = b64 b64",
        "",
        {
            **{f"s_{name}_b64": 23 + 2 * k for k, name in enumerate((*_LOGIC, "and_not1", "or_not1"))},
            "s_cselect_b64": 49,
        },
    ),
    Group(
        "b32 = b32 b32",
        "",
        {
            "s_cselect_b32": 48,
            **_count(50, *(f"s_pack_{halves}_b32_b16" for halves in ("ll", "lh", "hh", "hl"))),
        },
    ),
)

_SAVEEXEC = (
    *(f"{name}_saveexec" for name in _LOGIC),
    "and_not0_saveexec",
    "or_not0_saveexec",
    "and_not1_saveexec",
    "or_not1_saveexec",
    "and_not0_wrexec",
    "and_not1_wrexec",
)

SOP1_OPCODES = (
    Group(
        "b32 = b32",
        "",
        {
            "s_mov_b32": 0,
            "s_cmov_b32": 2,
            "s_brev_b32": 4,
            "s_ctz_i32_b32": 8,
            "s_clz_i32_u32": 10,
            "s_bcnt0_i32_b32": 22,
            "s_bcnt1_i32_b32": 24,
            "s_quadmask_b32": 26,
            "s_wqm_b32": 28,
            "s_not_b32": 30,
            **{f"s_{name}_b32": 32 + 2 * k for k, name in enumerate(_SAVEEXEC)},
        },
    ),
    Group("i32 = i32", "", {"s_cls_i32": 12, "s_abs_i32": 21}),
    Group("i32 = b32", "", {"s_sext_i32_i8": 14, "s_sext_i32_i16": 15}),
    Group("u32 = u32", "", {"s_bitset0_b32": 16, "s_bitset1_b32": 18}),
    Group(
        "b64 = b64",
        "",
        {
            "s_mov_b64": 1,
            "s_cmov_b64": 3,
            "s_brev_b64": 5,
            "s_quadmask_b64": 27,
            "s_wqm_b64": 29,
            "s_not_b64": 31,
            **{f"s_{name}_b64": 33 + 2 * k for k, name in enumerate(_SAVEEXEC)},
        },
    ),
    Group(
        "i32 = b64",
        "",
        {"s_ctz_i32_b64": 9, "s_clz_i32_u64": 11, "s_bcnt0_i32_b64": 23, "s_bcnt1_i32_b64": 25},
    ),
    Group("i32 = i64", "", {"s_cls_i32_i64": 13}),
    Group("b64 = u32", "", {"s_bitset0_b64": 17, "s_bitset1_b64": 19, "s_bitreplicate_b64_b32": 20}),
    Group("b32 = b32.s", "", {"s_movrels_b32": 64, "s_movrelsd_2_b32": 68}),
    Group("b64 = b64.s", "", {"s_movrels_b64": 65, "s_swappc_b64": 73}),
    Group("b32 = b32", "", {"s_movreld_b32": 66}),
    Group("b64 = b64", "", {"s_movreld_b64": 67}),
    Group("b64 =", "", {"s_getpc_b64": 71}),
    Group("= b64.s", "", {"s_setpc_b64": 72, "s_rfe_b64": 74}),
)
MESSAGES_RETURN = {"s_sendmsg_rtn_b32": (76, "b32"), "s_sendmsg_rtn_b64": (77, "b64")}

SOPC_OPCODES = (
    Group("= i32 i32", "", _count(0, *(f"s_cmp_{c}_i32" for c in ("eq", "lg", "gt", "ge", "lt", "le")))),
    Group("= u32 u32", "", _count(6, *(f"s_cmp_{c}_u32" for c in ("eq", "lg", "gt", "ge", "lt", "le")))),
    Group("= u32 u32", "", _count(12, "s_bitcmp0_b32", "s_bitcmp1_b32")),
    Group("= u64 u32", "", _count(14, "s_bitcmp0_b64", "s_bitcmp1_b64")),
    Group("= u64 u64", "", _count(16, "s_cmp_eq_u64", "s_cmp_lg_u64")),
)

SOPK_COMPARES = _count(
    3, *(f"s_cmpk_{c}_{t}" for t in ("i32", "u32") for c in ("eq", "lg", "gt", "ge", "lt", "le"))
)
SOPK_UPDATES = {"s_cmovk_i32": 2, "s_addk_i32": 15, "s_mulk_i32": 16}
SOPK_BRANCHES = {
    "s_call_b64": (20, "b64"),
    "s_subvector_loop_begin": (22, "b32"),
    "s_subvector_loop_end": (23, "b32"),
}
SOPK_WAITS = _count(24, "s_waitcnt_vscnt", "s_waitcnt_vmcnt", "s_waitcnt_expcnt", "s_waitcnt_lgkmcnt")

SOPP_PLAIN = {
    "s_nop": 0,
    "s_setkill": 1,
    "s_sethalt": 2,
    "s_sleep": 3,
    "s_set_inst_prefetch_distance": 4,
    "s_clause": 5,
    "s_delay_alu": 7,
    "s_waitcnt_depctr": 8,
    "s_waitcnt": 9,
    "s_wait_event": 11,
    "s_trap": 16,
    "s_round_mode": 17,
    "s_denorm_mode": 18,
    "s_setprio": 53,
    "s_sendmsg": 54,
    "s_sendmsghalt": 55,
    "s_incperflevel": 56,
    "s_decperflevel": 57,
    "s_ttracedata_imm": 59,
}
SOPP_BARE = {
    "s_wait_idle": 10,
    "s_code_end": 31,
    "s_endpgm_saved": 49,
    "s_endpgm_ordered_ps_done": 50,
    "s_wakeup": 52,
    "s_ttracedata": 58,
    "s_icache_inv": 60,
    "s_barrier": 61,
}
SOPP_BRANCHES = _count(
    32,
    "s_branch",
    *(f"s_cbranch_{c}" for c in ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz")),
    *(f"s_cbranch_cdbg{c}" for c in ("sys", "user", "sys_or_user", "sys_and_user")),
)

SMEM_LOADS = {
    **{f"s_load_b{32 << k}": (k, f"b{32 << k}") for k in range(5)},
    **{f"s_buffer_load_b{32 << k}": (8 + k, f"b{32 << k}") for k in range(5)},
}
SMEM_PROBES = {"s_atc_probe": (34, "b64"), "s_atc_probe_buffer": (35, "b128")}
SMEM_BARE = {"s_gl1_inv": 32, "s_dcache_inv": 33}

# Vector

VOP1_OPCODES = (
    Group("=", "nodpp e32", {"v_nop": 0, "v_pipeflush": 27}),
    Group(
        "b32 = b32",
        "",
        {
            "v_mov_b32": 1,
            "v_not_b32": 55,
            "v_bfrev_b32": 56,
            "v_clz_i32_u32": 57,
            "v_ctz_i32_b32": 58,
            "v_movreld_b32": 66,
        },
    ),
    Group("i32 = i32", "", {"v_cls_i32": 59}),
    Group("b32 = b32.v", "", {"v_movrels_b32": 67, "v_movrelsd_b32": 68, "v_movrelsd_2_b32": 72}),
    Group("b32 = b32.v", "nodpp e32", {"v_permlane64_b32": 103}),
    Group("b16 = b16", "", {"v_mov_b16": 28, "v_not_b16": 105}),
    Group("i32 = f64", "clamp omod", {"v_cvt_i32_f64": 3, "v_frexp_exp_i32_f64": 60}),
    Group("u32 = f64", "clamp omod", {"v_cvt_u32_f64": 21}),
    Group("f64 = i32", "clamp omod", {"v_cvt_f64_i32": 4}),
    Group("f64 = u32", "clamp omod", {"v_cvt_f64_u32": 22}),
    Group("f32 = i32", "clamp omod", {"v_cvt_f32_i32": 5}),
    Group("f32 = u32", "clamp omod", {"v_cvt_f32_u32": 6}),
    Group("f32 = b32", "clamp omod", {"v_cvt_off_f32_i4": 14}),
    Group("f32 = b32", "clamp omod", _count(17, *(f"v_cvt_f32_ubyte{k}" for k in range(4)))),
    Group("u32 = f32", "clamp omod", {"v_cvt_u32_f32": 7}),
    Group("i32 = f32", "clamp omod", {"v_cvt_i32_f32": 8}),
    Group(
        "i32 = f32",
        "clamp",
        {"v_cvt_nearest_i32_f32": 12, "v_cvt_floor_i32_f32": 13, "v_frexp_exp_i32_f32": 63},
    ),
    Group("f16 = f32", "clamp omod", {"v_cvt_f16_f32": 10}),
    Group("f32 = f16", "clamp omod", {"v_cvt_f32_f16": 11}),
    Group("f32 = f64", "clamp omod", {"v_cvt_f32_f64": 15}),
    Group("f64 = f32", "clamp omod", {"v_cvt_f64_f32": 16}),
    Group(
        "f64 = f64",
        "clamp omod",
        {
            **_count(23, "v_trunc_f64", "v_ceil_f64", "v_rndne_f64", "v_floor_f64"),
            "v_rcp_f64": 47,
            "v_rsq_f64": 49,
            "v_sqrt_f64": 52,
            "v_frexp_mant_f64": 61,
            "v_fract_f64": 62,
        },
    ),
    Group(
        "f32 = f32",
        "clamp omod",
        {
            **_count(32, "v_fract_f32", "v_trunc_f32", "v_ceil_f32", "v_rndne_f32", "v_floor_f32"),
            "v_exp_f32": 37,
            "v_log_f32": 39,
            "v_rcp_f32": 42,
            "v_rcp_iflag_f32": 43,
            "v_rsq_f32": 46,
            "v_sqrt_f32": 51,
            "v_sin_f32": 53,
            "v_cos_f32": 54,
            "v_frexp_mant_f32": 64,
        },
    ),
    Group("f16 = u16", "clamp omod", {"v_cvt_f16_u16": 80}),
    Group("f16 = i16", "clamp omod", {"v_cvt_f16_i16": 81}),
    Group("u16 = f16", "clamp omod", {"v_cvt_u16_f16": 82, "v_cvt_norm_u16_f16": 100}),
    Group(
        "i16 = f16",
        "clamp omod",
        {"v_cvt_i16_f16": 83, "v_frexp_exp_i16_f16": 90, "v_cvt_norm_i16_f16": 99},
    ),
    Group(
        "f16 = f16",
        "clamp omod",
        {
            **_count(
                84, "v_rcp_f16", "v_sqrt_f16", "v_rsq_f16", "v_log_f16", "v_exp_f16", "v_frexp_mant_f16"
            ),
            **_count(91, "v_floor_f16", "v_ceil_f16", "v_trunc_f16", "v_rndne_f16", "v_fract_f16"),
            **_count(96, "v_sin_f16", "v_cos_f16"),
        },
    ),
    Group("b16 = v2i16", "", {"v_sat_pk_u8_i16": 98}),
    Group("i32 = i16", "", {"v_cvt_i32_i16": 106}),
    Group("u32 = u16", "", {"v_cvt_u32_u16": 107}),
)
VOP1_SWAPS = {"v_swap_b32": (101, "b32"), "v_swap_b16": (102, "b16"), "v_swaprel_b32": (104, "b32")}

VOP2_OPCODES = (
    Group("f32 = v2f16 v2f16", "e32", {"v_dot2acc_f32_f16": 2}),
    Group(
        "f32 = f32 f32",
        "clamp omod",
        {
            **_count(3, "v_add_f32", "v_sub_f32", "v_subrev_f32"),
            **_count(7, "v_mul_dx9_zero_f32", "v_mul_f32"),
            **_count(15, "v_min_f32", "v_max_f32"),
            "v_fmac_f32": 43,
        },
    ),
    Group("f32 = f32 f32", "clamp omod nodpp", {"v_fmac_dx9_zero_f32": 6}),
    Group("i32 = i32 i32", "clamp", {"v_mul_i32_i24": 9}),
    Group("i32 = i32 i32", "", {"v_mul_hi_i32_i24": 10, "v_min_i32": 17, "v_max_i32": 18}),
    Group(
        "u32 = u32 u32",
        "clamp",
        {"v_mul_u32_u24": 11, **_count(37, "v_add_nc_u32", "v_sub_nc_u32", "v_subrev_nc_u32")},
    ),
    Group(
        "u32 = u32 u32",
        "",
        {
            "v_mul_hi_u32_u24": 12,
            **_count(19, "v_min_u32", "v_max_u32"),
            **_count(24, "v_lshlrev_b32", "v_lshrrev_b32"),
            **_count(27, "v_and_b32", "v_or_b32", "v_xor_b32", "v_xnor_b32"),
        },
    ),
    Group("i32 = u32 i32", "", {"v_ashrrev_i32": 26}),
    Group("v2f16 = f32 f32", "clamp omod", {"v_cvt_pk_rtz_f16_f32": 47}),
    Group(
        "f16 = f16 f16",
        "clamp omod",
        {
            **_count(50, "v_add_f16", "v_sub_f16", "v_subrev_f16", "v_mul_f16", "v_fmac_f16"),
            **_count(57, "v_max_f16", "v_min_f16"),
        },
    ),
    Group("f16 = f16 i16", "clamp omod", {"v_ldexp_f16": 59}),
    Group("v2f16 = v2f16 v2f16", "e32 nodpp", {"v_pk_fmac_f16": 60}),
)
VOP2_CARRIES = _count(32, "v_add_co_ci_u32", "v_sub_co_ci_u32", "v_subrev_co_ci_u32")
VOP2_LITERALS = {
    "v_fmamk_f32": (44, "f32"),
    "v_fmaak_f32": (45, "f32"),
    "v_fmamk_f16": (55, "f16"),
    "v_fmaak_f16": (56, "f16"),
}

_FLOAT_CONDITIONS = (
    *("f", "lt", "eq", "le", "gt", "lg", "ge", "o"),
    *("u", "nge", "nlg", "ngt", "nle", "neq", "nlt", "t"),
)
_INTEGER_CONDITIONS = ("f", "lt", "eq", "le", "gt", "ne", "ge", "t")


def _compares() -> Iterator[tuple[str, str, str, int]]:
    """Yield the rest of the mnemonic, the types of both sources and the opcode of each v_cmp."""
    for base, type_ in ((0, "f16"), (16, "f32"), (32, "f64")):
        for k, condition in enumerate(_FLOAT_CONDITIONS):
            yield f"{condition}_{type_}", type_, type_, base + k
    for base, type_ in ((48, "i16"), (56, "u16"), (64, "i32"), (72, "u32"), (80, "i64"), (88, "u64")):
        for k, condition in enumerate(_INTEGER_CONDITIONS):
            if type_ not in HALVES or condition not in ("f", "t"):
                yield f"{condition}_{type_}", type_, type_, base + k
    for opcode, type_ in ((125, "f16"), (126, "f32"), (127, "f64")):
        yield f"class_{type_}", type_, "b16" if type_ == "f16" else "b32", opcode


VOPC_OPCODES = tuple(_compares())

VOP3_OPCODES = (
    Group("f32 = f32 f32 f32", "clamp omod nodpp", {"v_fma_dx9_zero_f32": 521}),
    Group("f32 = f32 f32 f32", "clamp omod nodpp", {"v_div_fixup_f32": 551, "v_div_fmas_f32": 567}),
    Group("i32 = i32 i32 i32", "clamp", {"v_mad_i32_i24": 522}),
    Group("u32 = u32 u32 u32", "clamp", {"v_mad_u32_u24": 523}),
    Group(
        "f32 = f32 f32 f32",
        "clamp omod",
        {
            **_count(524, "v_cubeid_f32", "v_cubesc_f32", "v_cubetc_f32", "v_cubema_f32"),
            "v_fma_f32": 531,
            "v_mullit_f32": 536,
            "v_min3_f32": 537,
            "v_max3_f32": 540,
            "v_med3_f32": 543,
            **_count(606, "v_maxmin_f32", "v_minmax_f32"),
        },
    ),
    Group(
        "f64 = f64 f64 f64",
        "clamp omod",
        {"v_fma_f64": 532, "v_div_fixup_f64": 552, "v_div_fmas_f64": 568},
    ),
    Group(
        "f16 = f16 f16 f16",
        "clamp omod",
        {
            "v_fma_f16": 584,
            "v_min3_f16": 585,
            "v_max3_f16": 588,
            "v_med3_f16": 591,
            "v_div_fixup_f16": 596,
            **_count(608, "v_maxmin_f16", "v_minmax_f16"),
        },
    ),
    Group("i32 = i32 u32 u32", "", {"v_bfe_i32": 529}),
    Group(
        "u32 = u32 u32 u32",
        "",
        {
            "v_bfe_u32": 528,
            "v_bfi_b32": 530,
            "v_lerp_u8": 533,
            "v_min3_u32": 539,
            "v_max3_u32": 542,
            "v_med3_u32": 545,
            "v_xor3_b32": 576,
            "v_perm_b32": 580,
            **_count(581, "v_xad_u32", "v_lshl_add_u32", "v_add_lshl_u32"),
            **_count(597, "v_add3_u32", "v_lshl_or_b32", "v_and_or_b32", "v_or3_b32"),
            **_count(610, "v_maxmin_u32", "v_minmax_u32"),
        },
    ),
    Group(
        "i32 = i32 i32 i32",
        "",
        {
            "v_min3_i32": 538,
            "v_max3_i32": 541,
            "v_med3_i32": 544,
            **_count(612, "v_maxmin_i32", "v_minmax_i32"),
        },
    ),
    Group("u32 = u32 u32 u16", "", {"v_alignbit_b32": 534, "v_alignbyte_b32": 535}),
    Group(
        "u32 = u32 u32 u32",
        "clamp",
        {**_count(546, "v_sad_u8", "v_sad_hi_u8", "v_sad_u16", "v_sad_u32"), "v_msad_u8": 569},
    ),
    Group("u32 = f32 u32 u32", "clamp", {"v_cvt_pk_u8_f32": 550}),
    Group("b64 = b64 b32 b64", "clamp", {"v_qsad_pk_u16_u8": 570, "v_mqsad_pk_u16_u8": 571}),
    Group("b128 = b64 b32 b128.v", "clamp", {"v_mqsad_u32_u8": 573}),
    Group("u16 = u16 u16 u16", "clamp", {"v_mad_u16": 577}),
    Group("i16 = i16 i16 i16", "clamp", {"v_mad_i16": 595}),
    Group("i16 = i16 i16 i16", "clamp", {"v_min3_i16": 586, "v_max3_i16": 589, "v_med3_i16": 592}),
    Group("u16 = u16 u16 u16", "clamp", {"v_min3_u16": 587, "v_max3_u16": 590, "v_med3_u16": 593}),
    Group("u32 = u16 u16 u32", "clamp", {"v_mad_u32_u16": 601}),
    Group("i32 = i16 i16 i32", "clamp", {"v_mad_i32_i16": 602}),
    Group("b32 = b32.v b32.s b32.s", "op_sel nodpp", {"v_permlane16_b32": 603, "v_permlanex16_b32": 604}),
    Group("b16 = b16.m b16.m mask", "", {"v_cndmask_b16": 605}),
    Group("f16 = v2f16.m v2f16.m f16", "", {"v_dot2_f16_f16": 614}),
    Group("b16 = v2bf16.m v2bf16.m b16.m", "", {"v_dot2_bf16_bf16": 615}),
    Group("u16 = u16 u16", "clamp", _count(771, "v_add_nc_u16", "v_sub_nc_u16")),
    Group("u16 = u16 u16", "", {"v_mul_lo_u16": 773, "v_max_u16": 777, "v_min_u16": 779}),
    Group("i16 = i16 i16", "", {"v_max_i16": 778, "v_min_i16": 780}),
    Group("i16 = i16 i16", "clamp", _count(781, "v_add_nc_i16", "v_sub_nc_i16")),
    Group("v2i16 = f32 f32", "clamp", {"v_cvt_pk_i16_f32": 774, "v_cvt_pk_norm_i16_f32": 801}),
    Group("v2u16 = f32 f32", "clamp", {"v_cvt_pk_u16_f32": 775, "v_cvt_pk_norm_u16_f32": 802}),
    Group("v2f16 = f16 f16", "clamp", {"v_pack_b32_f16": 785}),
    Group("v2i16 = f16 f16", "clamp", {"v_cvt_pk_norm_i16_f16": 786}),
    Group("v2u16 = f16 f16", "clamp", {"v_cvt_pk_norm_u16_f16": 787}),
    Group("f32 = f32 i32", "clamp omod", {"v_ldexp_f32": 796}),
    Group(
        "u32 = u32 u32",
        "",
        _count(797, "v_bfm_b32", "v_bcnt_u32_b32", "v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32"),
    ),
    Group("v2u16 = u32 u32", "", {"v_cvt_pk_u16_u32": 803}),
    Group("v2i16 = i32 i32", "", {"v_cvt_pk_i16_i32": 804}),
    Group("i32 = i32 i32", "clamp", _count(805, "v_sub_nc_i32", "v_add_nc_i32")),
    Group("f64 = f64 f64", "clamp omod", _count(807, "v_add_f64", "v_mul_f64", "v_min_f64", "v_max_f64")),
    Group("f64 = f64 i32", "clamp omod", {"v_ldexp_f64": 811}),
    Group("u32 = u32 u32", "nodpp", _count(812, "v_mul_lo_u32", "v_mul_hi_u32")),
    Group("i32 = i32 i32", "nodpp", {"v_mul_hi_i32": 814}),
    Group("f64 = f64 b32", "clamp omod", {"v_trig_preop_f64": 815}),
    Group("u16 = u16 u16", "", _count(824, "v_lshlrev_b16", "v_lshrrev_b16")),
    Group("i16 = u16 i16", "", {"v_ashrrev_i16": 826}),
    Group("u64 = u32 u64", "", _count(828, "v_lshlrev_b64", "v_lshrrev_b64")),
    Group("i64 = u32 i64", "", {"v_ashrrev_i64": 830}),
    Group("b32.s = b32.v b32.i", "nodpp", {"v_readlane_b32": 864}),
    Group("b32 = b32.s b32.i", "nodpp", {"v_writelane_b32": 865}),
    Group("b16 = b16 b16", "", _count(866, "v_and_b16", "v_or_b16", "v_xor_b16")),
)

VOP3SD_OPCODES = (
    Group("u32 mask = u32 u32 mask", "clamp", {name: 256 + op for name, op in VOP2_CARRIES.items()}),
    Group("f32 mask = f32 f32 f32", "clamp omod nodpp", {"v_div_scale_f32": 764}),
    Group("f64 mask = f64 f64 f64", "clamp omod nodpp", {"v_div_scale_f64": 765}),
    Group("u64 mask = u32 u32 u64", "clamp nodpp", {"v_mad_u64_u32": 766}),
    Group("i64 mask = i32 i32 i64", "clamp nodpp", {"v_mad_i64_i32": 767}),
    Group("u32 mask = u32 u32", "clamp", _count(768, "v_add_co_u32", "v_sub_co_u32", "v_subrev_co_u32")),
)

# ``neg`` allows neg_lo and neg_hi, ``neg_lo`` the first two bits of neg_lo only (signedness).
VOP3P_OPCODES = (
    Group("v2i16 = v2i16 v2i16 v2i16", "clamp op_sel", {"v_pk_mad_i16": 0}),
    Group("v2u16 = v2u16 v2u16 v2u16", "clamp op_sel", {"v_pk_mad_u16": 9}),
    Group("v2u16 = v2u16 v2u16", "op_sel", {"v_pk_mul_lo_u16": 1, "v_pk_max_u16": 12, "v_pk_min_u16": 13}),
    Group("v2u16 = v2u16 v2u16", "clamp op_sel", {"v_pk_add_u16": 10, "v_pk_sub_u16": 11}),
    Group("v2u16 = v2u16 v2u16", "op_sel", {"v_pk_lshlrev_b16": 4, "v_pk_lshrrev_b16": 5}),
    Group("v2i16 = v2i16 v2i16", "clamp op_sel", {"v_pk_add_i16": 2, "v_pk_sub_i16": 3}),
    Group("v2i16 = v2i16 v2i16", "op_sel", {"v_pk_max_i16": 7, "v_pk_min_i16": 8}),
    Group("v2i16 = v2u16 v2i16", "op_sel", {"v_pk_ashrrev_i16": 6}),
    Group("v2f16 = v2f16 v2f16 v2f16", "clamp op_sel neg", {"v_pk_fma_f16": 14}),
    Group(
        "v2f16 = v2f16 v2f16",
        "clamp op_sel neg",
        {"v_pk_add_f16": 15, "v_pk_mul_f16": 16, "v_pk_min_f16": 17, "v_pk_max_f16": 18},
    ),
    Group("f32 = v2f16 v2f16 f32", "clamp neg dpp", {"v_dot2_f32_f16": 19}),
    Group("f32 = v2bf16 v2bf16 f32", "clamp neg", {"v_dot2_f32_bf16": 26}),
    Group("i32 = v4i8 v4i8 i32", "clamp neg_lo", {"v_dot4_i32_iu8": 22}),
    Group("u32 = v4i8 v4i8 u32", "clamp", {"v_dot4_u32_u8": 23}),
    Group("i32 = v8i4 v8i4 i32", "clamp neg_lo", {"v_dot8_i32_iu4": 24}),
    Group("u32 = v8i4 v8i4 u32", "clamp", {"v_dot8_u32_u4": 25}),
    Group("f32 = b32 b32 b32", "clamp op_sel neg dpp", {"v_fma_mix_f32": 32}),
    Group("b32 = b32 b32 b32", "clamp op_sel neg dpp", {"v_fma_mixlo_f16": 33, "v_fma_mixhi_f16": 34}),
)
# Interpolation between the corners of a triangle, whose lanes are quads.
VINTERP_OPCODES = (
    Group("f32 = f32.v f32 f32.v", "", {"v_interp_p10_f32": 0}),
    Group("f32 = f32.v f32 f32.v", "", {"v_interp_p2_f32": 1}),
    Group("f32 = f16.v f32 f16.v", "", {"v_interp_p10_f16_f32": 2, "v_interp_p10_rtz_f16_f32": 4}),
    Group("f16 = f16.v f32 f32.v", "", {"v_interp_p2_f16_f32": 3, "v_interp_p2_rtz_f16_f32": 5}),
)
VOP3P_MATRICES = {
    # name: (opcode, type of A and B, flags)
    "v_wmma_f32_16x16x16_f16": (64, "b256", "neg"),
    "v_wmma_f32_16x16x16_bf16": (65, "b256", "neg"),
    "v_wmma_f16_16x16x16_f16": (66, "b256", "neg op_sel"),
    "v_wmma_bf16_16x16x16_bf16": (67, "b256", "neg op_sel"),
    "v_wmma_i32_16x16x16_iu8": (68, "b128", "neg_lo clamp"),
    "v_wmma_i32_16x16x16_iu4": (69, "b64", "neg_lo clamp"),
}

VOPD_OPCODES: Mapping[str, int] = {
    **_count(0, "v_dual_fmac_f32", "v_dual_fmaak_f32", "v_dual_fmamk_f32", "v_dual_mul_f32"),
    **_count(4, "v_dual_add_f32", "v_dual_sub_f32", "v_dual_subrev_f32", "v_dual_mul_dx9_zero_f32"),
    **_count(8, "v_dual_mov_b32", "v_dual_cndmask_b32", "v_dual_max_f32", "v_dual_min_f32"),
    **_count(12, "v_dual_dot2acc_f32_f16", "v_dual_dot2acc_f32_bf16"),
    **_count(16, "v_dual_add_nc_u32", "v_dual_lshlrev_b32", "v_dual_and_b32"),
}
"""The X half has the first 14 of them, the Y half all."""

# Memory. The types of loads, stores and atomics by the rest of the mnemonic.

LOADS = {
    **_count(16, "load_u8", "load_i8", "load_u16", "load_i16"),
    **_count(20, "load_b32", "load_b64", "load_b96", "load_b128"),
    **_count(30, "load_d16_u8", "load_d16_i8", "load_d16_b16"),
    **_count(33, "load_d16_hi_u8", "load_d16_hi_i8", "load_d16_hi_b16"),
}
STORES = {
    **_count(24, "store_b8", "store_b16", "store_b32", "store_b64", "store_b96", "store_b128"),
    **_count(36, "store_d16_hi_b8", "store_d16_hi_b16"),
}
ATOMICS = {
    **_count(51, "swap_b32", "cmpswap_b32", "add_u32", "sub_u32", "csub_u32"),
    **_count(
        56, "min_i32", "min_u32", "max_i32", "max_u32", "and_b32", "or_b32", "xor_b32", "inc_u32", "dec_u32"
    ),
    **_count(65, "swap_b64", "cmpswap_b64", "add_u64", "sub_u64", "min_i64", "min_u64", "max_i64", "max_u64"),
    **_count(73, "and_b64", "or_b64", "xor_b64", "inc_u64", "dec_u64"),
    **_count(80, "cmpswap_f32", "min_f32", "max_f32"),
    "add_f32": 86,
}
LDS_LOADS = _count(45, "load_lds_u8", "load_lds_i8", "load_lds_u16", "load_lds_i16", "load_lds_b32")

_DS32 = ("add_u32", "sub_u32", "rsub_u32", "inc_u32", "dec_u32")
_DS_MINMAX = ("min_i32", "max_i32", "min_u32", "max_u32")
_DS_LOGIC = ("and_b32", "or_b32", "xor_b32")


def _wide(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.replace("32", "64") for name in names)


def _returning(name: str) -> str:
    """Return the name of the form of a ds atomic that returns the old value."""
    operation, _, type_ = name.rpartition("_")
    return f"{operation}_rtn_{type_}"


# Layout of a ds instruction: "destination = sources", two-address forms have "2" in front.
_DS_ONE = {
    **_count(0, *_DS32, *_DS_MINMAX, *_DS_LOGIC),
    **_count(18, "min_f32", "max_f32"),
    "add_f32": 21,
    **_count(64, *_wide(_DS32), *_wide(_DS_MINMAX), *_wide(_DS_LOGIC)),
    **_count(82, "min_f64", "max_f64"),
}
_DS_TWO = {
    "mskor_b32": 12,
    "cmpstore_b32": 16,
    "cmpstore_f32": 17,
    "mskor_b64": 76,
    "cmpstore_b64": 80,
    "cmpstore_f64": 81,
}


def register_type(name: str) -> str:
    """Return the register type of the data that a mnemonic ends with."""
    suffix = name.rsplit("_", 1)[1]
    return suffix if int(suffix[1:]) >= 32 else "b32"


def _ds() -> Iterator[Group]:
    for name, op in _DS_ONE.items():
        type_ = register_type(name)
        returning = 121 if name == "add_f32" else op + 32
        yield Group(f"= addr:b32 data0:{type_}", "", {f"ds_{name}": op})
        yield Group(f"{type_} = addr:b32 data0:{type_}", "", {f"ds_{_returning(name)}": returning})
    for name, op in _DS_TWO.items():
        type_ = register_type(name)
        yield Group(f"= addr:b32 data0:{type_} data1:{type_}", "", {f"ds_{name}": op})
        yield Group(
            f"{type_} = addr:b32 data0:{type_} data1:{type_}", "", {f"ds_{_returning(name)}": op + 32}
        )
    for base, type_, wide in ((0, "b32", "b64"), (64, "b64", "b128")):
        yield Group(f"= addr:b32 data0:{type_}", "", {f"ds_store_{type_}": base + 13})
        yield Group(
            f"= addr:b32 data0:{type_} data1:{type_}",
            "pair",
            _count(base + 14, f"ds_store_2addr_{type_}", f"ds_store_2addr_stride64_{type_}"),
        )
        yield Group(f"{type_} = addr:b32 data0:{type_}", "", {f"ds_storexchg_rtn_{type_}": base + 45})
        yield Group(
            f"{wide} = addr:b32 data0:{type_} data1:{type_}",
            "pair",
            _count(base + 46, f"ds_storexchg_2addr_rtn_{type_}", f"ds_storexchg_2addr_stride64_rtn_{type_}"),
        )
        yield Group(f"{type_} = addr:b32", "", {f"ds_load_{type_}": base + 54})
        yield Group(
            f"{wide} = addr:b32",
            "pair",
            _count(base + 55, f"ds_load_2addr_{type_}", f"ds_load_2addr_stride64_{type_}"),
        )
    yield from _DS_REST


_DS_REST = (
    Group("=", "bare", {"ds_nop": 20}),
    Group("=", "gws", {"ds_gws_sema_release_all": 24, "ds_gws_sema_v": 26, "ds_gws_sema_p": 28}),
    Group("= addr:b32", "gws", {"ds_gws_init": 25, "ds_gws_sema_br": 27, "ds_gws_barrier": 29}),
    Group("= addr:b32 data0:b32", "", {"ds_store_b8": 30, "ds_store_b16": 31}),
    Group("b32 = addr:b32 data0:b32 data1:b32", "", {"ds_wrap_rtn_b32": 52}),
    Group("b32 = addr:b32", "", {"ds_swizzle_b32": 53}),
    Group("b32 = addr:b32", "", _count(57, "ds_load_i8", "ds_load_u8", "ds_load_i16", "ds_load_u16")),
    Group("b32 =", "", _count(61, "ds_consume", "ds_append")),
    Group("b32 = addr:b32", "gds", {"ds_ordered_count": 63}),
    Group("b64 = data0:b32", "gds", _count(122, "ds_add_gs_reg_rtn", "ds_sub_gs_reg_rtn")),
    Group("b64 = addr:b32 data0:b64", "", {"ds_condxchg32_rtn_b64": 126}),
    Group("= addr:b32 data0:b32", "", _count(160, "ds_store_b8_d16_hi", "ds_store_b16_d16_hi")),
    Group(
        "b32 = addr:b32",
        "",
        _count(162, *(f"ds_load_{t}_d16{half}" for t in ("u8", "i8", "u16") for half in ("", "_hi"))),
    ),
    Group("b32 = addr:b32 data0:b32 data1:b128", "nogds", {"ds_bvh_stack_rtn_b32": 173}),
    Group("= data0:b32", "", {"ds_store_addtid_b32": 176}),
    Group("b32 =", "", {"ds_load_addtid_b32": 177}),
    Group("b32 = addr:b32 data0:b32", "nogds", {"ds_permute_b32": 178, "ds_bpermute_b32": 179}),
    Group("= addr:b32 data0:b96", "", {"ds_store_b96": 222}),
    Group("= addr:b32 data0:b128", "", {"ds_store_b128": 223}),
    Group("b96 = addr:b32", "", {"ds_load_b96": 254}),
    Group("b128 = addr:b32", "", {"ds_load_b128": 255}),
)
DS_OPCODES = tuple(_ds())

FORMAT_WIDTHS = {"x": 1, "xy": 2, "xyz": 3, "xyzw": 4}
BY_SIZE = {1: "b32", 2: "b64", 3: "b96", 4: "b128", 5: "b160"}
