"""The ir3 decoder against Mesa's disassembler, assembler and compiler for a630."""

from __future__ import annotations

import itertools
import math
import pickle
import random
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest
from tinygrad import Tensor, dtypes

from oracle.mesa import Kernel, assemble, compile_kernels, disassemble, is_refused
from ringfence.errors import CompileError
from ringfence.hardware.adreno.ir3 import (
    ENCODINGS,
    FLUT,
    OPCODES,
    Instruction,
    Operand,
    UnknownInstruction,
    decode,
    decode_program,
)
from ringfence.hardware.adreno.ir3.encoding import Bits, Encoding, encode
from ringfence.hardware.adreno.ir3.tables import (
    SOURCE13,
    SOURCE13_ALTERNATE,
    SOURCE13_REGISTER,
    SOURCE16,
)

# Words that Mesa's compiler made for a630 (the last three its assembler), with the disassembler's text.
COMPILED = [
    (0x0080000000000002, "br p0.x, #2"),
    (0x0090602000000103, "brao !p0.x, !p0.y, #259"),
    (0x0300000000000000, "end"),
    (0x01000000FFFFFFD1, "jump #-47"),
    (0x0000000000000000, "nop"),
    (0x0000050000000000, "(rpt5)nop"),
    (0x0782000000000000, "prede"),
    (0x0702000000000000, "predf"),
    (0x0682000000000000, "predt"),
    (0x204CC02B00000000, "mov.u32u32 r10.w, 0"),
    (0x200CC01600000011, "mov.u32u32 r5.z, r4.y"),
    (0x2048800000000080, "mov.u16u16 hr0.x, 128"),
    (0x2000C01200000006, "cov.f16u32 r4.z, hr1.z"),
    (0x2008401900000001, "cov.u16f32 r6.y, hr0.y"),
    (0x2004801400000017, "cov.f32u16 hr5.x, r5.w"),
    (0x2008000A00000001, "cov.u16f16 hr2.z, hr0.y"),
    (0x300500050000000E, "(sy)cov.f32s16 hr1.y, r3.z"),
    (0x20054A0F0000000F, "(rpt2)cov.f32s32 r3.w, (r)r3.w"),
    (0x20150A0200000012, "(rpt2)cov.s32s16 hr0.z, (r)r4.z"),
    (0x40D0001600008016, "absneg.f r5.z, (abs)r5.z"),
    (0x40D0081100004007, "(nop1) absneg.f r4.y, (neg)r1.w"),
    (0x435000260000401A, "absneg.s r9.z, (neg)r6.z"),
    (0x4340001000004010, "absneg.s hr4.x, (neg)hr4.x"),
    (0x4010000E1011000A, "add.f r3.z, r2.z, c4.y"),
    (0x50100B0A1010000A, "(sy)(rpt3)add.f r2.z, (r)r2.z, c4.x"),
    (0x4210000A20010004, "add.u r2.z, r1.x, 1"),
    (0x4218081600162005, "(nop3) add.u r5.z, 5, r5.z"),
    (0x4390001D1011000F, "and.b r7.y, r3.w, c4.y"),
    (0x4388480B00110010, "(nop3) and.b r2.w, hr4.x, hr4.y"),
    (0x47100006201F0003, "ashr.b r1.z, r0.w, 31"),
    (0x47100914201F0004, "(rpt1)ashr.b r5.x, (r)r1.x, 31"),
    (0x46B000000000002D, "clz.b r0.x, r11.y"),
    (0x56B0092A00000013, "(sy)(rpt1)clz.b r10.z, (r)r4.w"),
    (0x40B00012000E000A, "cmps.f.lt r4.z, r2.z, r3.z"),
    (0x40A000022C000002, "cmps.f.lt hr0.z, hr0.z, h(0.0)"),
    (0x42B400F820000017, "cmps.s.eq p0.x, r5.w, 0"),
    (0x42BB08F8204B0002, "(nop3) cmps.s.ge p0.x, r0.z, 75"),
    (0x4293000620200004, "cmps.u.ge r1.z, r1.x, 32"),
    (0x5290400220640005, "(sy)cmps.u.lt hr0.z, r1.y, 100"),
    (0x4130000E0000000A, "floor.f r3.z, r2.z"),
    (0x5050000800200008, "(sy)max.f r2.x, r2.x, r8.x"),
    (0x5050000E400D400C, "(sy)max.f r3.z, (neg)r3.x, (neg)r3.y"),
    (0x4330000220000002, "max.s r0.z, r0.z, 0"),
    (0x4328080800020008, "(nop3) max.s hr2.x, hr2.x, hr0.z"),
    (0x4310002B0007002B, "max.u r10.w, r10.w, r1.w"),
    (0x4310082B0014002B, "(nop1) max.u r10.w, r10.w, r5.x"),
    (0x42E00012000E0012, "min.s hr4.z, hr4.z, hr3.z"),
    (0x42E8081000040010, "(nop3) min.s hr4.x, hr4.x, hr1.x"),
    (0x42C00012000E0012, "min.u hr4.z, hr4.z, hr3.z"),
    (0x42C80811000D0011, "(nop3) min.u hr4.y, hr4.y, hr3.y"),
    (0x4070001628010016, "mul.f r5.z, r5.z, (0.5)"),
    (0x40600811000A0011, "(nop1) mul.f hr4.y, hr4.y, hr2.z"),
    (0x4620000E0012000E, "mul.s24 hr3.z, hr3.z, hr4.z"),
    (0x4620080F0013000F, "(nop1) mul.s24 hr3.w, hr3.w, hr4.w"),
    (0x4650000421040000, "mull.u r1.x, r0.x, 260"),
    (0x46580010200500C1, "(nop2) mull.u r4.x, r48.y, 5"),
    (0x43C0000400000004, "not.b hr1.x, hr1.x"),
    (0x43D0080D0000000D, "(nop1) not.b r3.y, r3.y"),
    (0x43B0000120200001, "or.b r0.y, r0.y, 32"),
    (0x43B0080621000002, "(nop1) or.b r1.z, r0.z, 256"),
    (0x46D0000320020000, "shl.b r0.w, r0.x, 2"),
    (0x46C0000420020004, "shl.b hr1.x, hr1.x, h(2)"),
    (0x46F0000A00052001, "shr.b r2.z, 1, r1.y"),
    (0x46E0000420020004, "shr.b hr1.x, hr1.x, h(2)"),
    (0x4090001100000011, "sign.f r4.y, r4.y"),
    (0x4080000200000002, "sign.f hr0.z, hr0.z"),
    (0x425000020000201F, "sub.u r0.z, 31, r0.x"),
    (0x4240100400100004, "(ss)sub.u hr1.x, hr1.x, hr4.x"),
    (0x51B0001600000011, "(sy)trunc.f r5.z, r4.y"),
    (0x51B00B0E0000000A, "(sy)(rpt3)trunc.f r3.z, (r)r2.z"),
    (0x43E0000E0012000E, "xor.b hr3.z, hr3.z, hr4.z"),
    (0x43F0081C1010001C, "(nop1) xor.b r7.x, r7.x, c4.x"),
    (0x6606800D000B200A, "andg hr3.y, hr2.z, hr3.y, hr2.w"),
    (0x6605480B000CA00B, "(nop3) andg r2.w, hr2.w, hr2.z, hr3.x"),
    (0x6303000210130002, "mad.f16 hr0.z, hr0.z, hr1.z, hc4.w"),
    (0x6304880510138005, "(nop3) mad.f16 hr1.y, hr1.y, hr2.y, hc4.w"),
    (0x638F001E00161010, "mad.f32 r7.z, c4.x, r7.z, r5.z"),
    (0x6388880D1013800D, "(nop3) mad.f32 r3.y, r3.y, r4.y, c4.w"),
    (0x618A00190018000F, "madsh.m16 r6.y, r3.w, r5.x, r6.x"),
    (0x6180080400049011, "(nop3) madsh.m16 r1.x, c4.y, r0.x, r1.x"),
    (0x6403000610111010, "sel.b16 hr1.z, hc4.x, hr1.z, hc4.y"),
    (0x6403082B00110013, "(nop1) sel.b16 hr10.w, hr4.w, hr1.z, hr4.y"),
    (0x64888027001E0002, "sel.b32 r9.w, r0.z, r4.y, r7.z"),
    (0x6485880B10111010, "(nop1) sel.b32 r2.w, c4.x, r2.w, c4.y"),
    (0x6501840C000B301E, "shrg r3.x, 30, r0.w, r2.w"),
    (0x65018C03000D301D, "(nop1) shrg r0.w, 29, r0.w, r3.y"),
    (0x8070000200000002, "exp2 r0.z, r0.z"),
    (0x80700B0E0000000A, "(rpt3)exp2 r3.z, (r)r2.z"),
    (0x8160000A0000000A, "hexp2 hr2.z, hr2.z"),
    (0x91600B0600000002, "(sy)(rpt3)hexp2 hr1.z, (r)hr0.z"),
    (0x8140000B00000002, "hlog2 hr2.w, hr0.z"),
    (0x81400B120000000B, "(rpt3)hlog2 hr4.z, (r)hr2.w"),
    (0x805000130000000A, "log2 r4.w, r2.z"),
    (0x80500B1A00000013, "(rpt3)log2 r6.z, (r)r4.w"),
    (0x8010001400000014, "rcp r5.x, r5.x"),
    (0x8000001200000012, "rcp hr4.z, hr4.z"),
    (0x8090000F0000000A, "sin r3.w, r2.z"),
    (0x80900B160000000F, "(rpt3)sin r5.z, (r)r3.w"),
    (0x80D0001A0000800A, "sqrt r6.z, (abs)r2.z"),
    (0x80C0001400008002, "sqrt hr5.x, (abs)hr0.z"),
    (0xC00600100481C001, "ldg.u32 r4.x, g[r1.w], 4"),
    (0xC00C000101824001, "ldg.u8 hr0.y, g[r2.y], 1"),
    (0xD046002A04874001, "(sy)ldl.u32 r10.z, l[r7.y], 4"),
    (0xC0CC270001800004, "stg.u8 g[r4.w], hr0.z, 1"),
    (0xC0C60F0004800020, "stg.u32 g[r1.w], r4.x, 4"),
    (0xC10607000180001C, "stl.u32 l[r0.w], r3.z, 1"),
    (0xE042000000000000, "bar.g"),
    (0x202CC00400000000, "mov.u32u32 r1.x, c0.x"),
    (0x2009400B00000000, "cov.u16s32 r2.w, hr0.x"),
    (0x30040B0200000010, "(sy)(rpt3)cov.f32f16 hr0.z, (r)r4.x"),
    (0x50180B180014000D, "(sy)(rpt3)add.f r6.x, (r)r3.y, (r)r5.x"),
    (0x638A0318200D9011, "(rpt3)mad.f32 r6.x, c4.y, (r)r5.x, (r)r3.y"),
    (0xA0001F0E00000015, "isam.1d (f32)(xyzw)r3.z, r2.z, s#0, t#0"),
    (0xA0001F3C0220006D, "isam.1d (f32)(xyzw)r15.x, r13.z, s#1, t#1"),
    (0xD022000E0C677A00, "(sy)stib.b.typed.2d.f32.4.imm r3.z, r3.x, 0"),
    (0x4010000010000001, "add.f r0.x, r0.y, c0.x"),
    (0xC02200040061BA00, "ldib.b.typed.2d.f32.4.imm r1.x, r0.x, 0"),
    (0xC036000008640000, "atomic.b.add.untyped.1d.u32.1.imm r0.x, r2.x, 0"),
]

# The a6xx words of Mesa's own test of its disassembler (src/freedreno/ir3/tests/disasm.c), most of them seen
# in programs of Qualcomm's compiler; the last two have the offset that its generated cases add.
MESA_SUITE = [
    0x0000000000000000,
    0x0000020000000000,
    0x0001000000000000,
    0x0300000000000000,
    0x0080000000000004,
    0x00800000FFFFFFFC,
    0x0090000000000003,
    0x0382000000000015,
    0x0402100000000000,
    0x0222000000000004,
    0x0282000000000014,
    0x0090602000000007,
    0x0080404000000003,
    0x0782000000000000,
    0x008000630000001E,
    0x0682000000000000,
    0x0702000000000000,
    0x2024400000000020,
    0x2020000000000020,
    0x2015000000000000,
    0x2015600400000C11,
    0x201100F400000000,
    0x2024490500000410,
    0x2017400400000008,
    0x2013000000000005,
    0x2011000400000800,
    0x260CC3C000000000,
    0x240CC00400030201,
    0x2400C10504030201,
    0x240C020504030201,
    0x2400C20504030201,
    0x205100050000FFFF,
    0x2040000500003900,
    0x2040000600003800,
    0x204880F500000000,
    0x401040020C210001,
    0x40B8080410408004,
    0x47308A0200002000,
    0x4730880200002000,
    0x4734800000002000,
    0x473C800000002000,
    0x4348080100008001,
    0x4228080727FF0000,
    0x40A500F82C000004,
    0x438000F820010009,
    0x438000F900020001,
    0x4008090250200006,
    0x42380C0100040001,
    0x4248000048801086,
    0x46B0000100001020,
    0x4670000900000009,
    0x6600000010421041,
    0x64848109109A9099,
    0x6481090430521036,
    0x6481890220041032,
    0x6382000510315030,
    0x6205000900091000,
    0x6182800800081033,
    0x65900820100CB008,
    0x65AE085C0002A001,
    0x659008200C0AAC05,
    0x65AE0C5C0002A001,
    0x640188020002E003,
    0x646084C31FFF300A,
    0x648188020002E003,
    0x650188020002E003,
    0x660188020002E003,
    0x670188021002E003,
    0x67018C021002E003,
    0x6701C8029002A003,
    0x66818C020002E003,
    0x6681C8028002A003,
    0x7681C00200002002,
    0x8010000A00000003,
    0xA380110200000001,
    0xA3C0110200000001,
    0xA600110500000001,
    0xA620110500000001,
    0xA2802F0000000001,
    0xA0C89F04C4600005,
    0xA1C85F00C0200005,
    0xA1000F0000000004,
    0xA1000F0000000003,
    0xA0C00F0004400002,
    0xA6C02F0000000000,
    0xA3482F08C0000000,
    0xA0C81F00E0200005,
    0xA0C81108E2000001,
    0xA048D107CC080A07,
    0xA048D107E0080A07,
    0xA1481606E4803035,
    0xA0C8970720A00005,
    0xA1489F3425E06E07,
    0xA7C0310200100003,
    0xB7E0310700000401,
    0xB7E0310400180001,
    0xA700000000000000,
    0xC0D2090602800004,
    0xC0DA052E01800042,
    0xC0DC052E01800042,
    0xC0CA050503800042,
    0xC0CA050003800042,
    0xC0CA053103800242,
    0xC0D6110401800228,
    0xC0D6110401802628,
    0xC002001104C08023,
    0xC006000601C18017,
    0xC00600060181800F,
    0xC006000601818001,
    0xC00600030180C269,
    0xC00400030180C269,
    0xC002000703C1420F,
    0xC002000703C1740F,
    0xC000000601C18017,
    0xC006000601C1B017,
    0xC702002001800000,
    0xC706002003800000,
    0xC706010003800000,
    0xC706012003800000,
    0xC026020003676100,
    0xC024040200674100,
    0xC02202000361B800,
    0xC2C2110004800006,
    0xC2C20F0001800004,
    0xC286000302808011,
    0xC106050001800008,
    0xC046000101804001,
    0xC086001803820001,
    0xC042000201808019,
    0xC102171004800000,
    0xD7C6001103C00000,
    0xC02600000063C200,
    0xC02600000063C000,
    0xC02600000063C300,
    0xC02600000063C382,
    0x42B400F820010004,
    0x0280000000000000,
    0x4010000768000008,
    0x4010000768050008,
    0x40100007680B0008,
    0x506000042C000004,
    0x506000042C070004,
    0x506000042C0B0004,
    0x2044400000000000,
    0x204440003F000000,
    0x2044400040800000,
    0xC026000000C78040,
    0xC026020100C78040,
    0xC026000000C78080,
    0xC026020100C78080,
    0xC0260201FFC78080,
    0xC026000000478000,
    0xC026000000478200,
    0xC026000000478400,
    0xC026000000478600,
    0xC02600C100C7A900,
    0xC036000000C78100,
    0xC036000300C78100,
    0xC1425B5001803E02,
    0xC1425B9802803E14,
    0xC1465BA001803E2A,
    0xC086000801860001,
    0xC1465B000180022A,
    0xC016001000B001A1,
    0xC016018800B01261,
    0xD5C6000303008001,
    0xC416000202000001,
    0xC03A000301640000,
    0xC03A000301660000,
    0xC03600000365C800,
    0xA0C01F040CC00005,
    0xA0C81F070100000B,
    0xA0C81F078100000B,
    0xC0260C0A0A61B180,
    0xD0260E0A09677180,
    0xA0481F0040000405,
    0xD0360C0402640B80,
    0xA0C81F0040000005,
    0xC026000100C98000,
    0xC6E4400D05800002,
    0xC6E44017C0000018,
    0xC6E6400605800000,
    0xC6E6400705000004,
    0xC6E46011C1000014,
    0xC6E620053F800008,
    0xC6E4C012C0000020,
    0xC026000400490000,
    0xC026000500494000,
    0xE0FA000000000000,
    0xE09A000000000000,
    0xF042000000000000,
    0xE108000000000000,
    0xE208000000000000,
    0xC066080916E77100,
    0xC7E6000201E1B100,
]

# What the decoder takes although the disassembler does not.
NOT_PRINTED = {"brax": "the instruction exists, but Mesa has no display template for it"}

# What the decoder refuses although the disassembler prints it, other than bits that leave no trace in the
# text: a pattern of "Mesa's text | our reason", and why.
STRICTER = {
    "works on general registers": "Mesa prints any register; addresses and predicates have no meaning there",
    "has only the components x": "a0 and a1 are the only address registers",
    "r61 is not a destination": "it encodes the scalar predicates of a7xx (up0)",
    "beyond the register file": "Mesa prints the offset unsigned; whether large ones are negative is unknown",
    "is written with type": "a0.x and a1.x are 16 bits wide, signed and unsigned",
    "has no float_imm": "the table of constants has twelve entries, Mesa prints the index of the others",
    "the precision of the constant": "Mesa lets a half constant meet full registers",
    "has no COND": "Mesa prints the number of an unknown condition",
    "has no MODE": "Mesa prints the number of an unknown descriptor or shuffle mode",
    "atomic.* has no TYPE": "64-bit atomics came with a7xx, 8-bit ones do not exist",
    r"movmsk.* r<a0\.x": "Mesa prints a destination relative to a0.x",
    r"dp[24]acc.*\(r\)": "not on a630; Mesa prints (r) although it hides the repetition count",
    r"(ds[xy]|rget).*(s2en|\.base)": "Mesa prints a descriptor for opcodes that use none",
    r"quad_shuffle\.(horiz|vert|diag).*,.*,": "Mesa prints an offset register, the shuffle has none",
    r"resinfo\.(?!b)": "the form of a3xx to a5xx, which a6xx replaced by resinfo.b",
}


def code(words: Iterable[int]) -> bytes:
    return b"".join(struct.pack("<Q", word) for word in words)


def is_qualcomms(word: int) -> bool:
    """Return whether ``word`` is a barrier or fence as Qualcomm's compiler makes them, without bit 49."""
    return word >> 56 & 0xE7 == 0xE0 and not word >> 49 & 1


def text_or_refusal(word: int) -> str | UnknownInstruction:
    try:
        return decode(word).text
    except UnknownInstruction as error:
        return error


class TestTables:
    ROWS = [pytest.param(rows, 64, id=f"category {category}") for category, rows in ENCODINGS.items()]
    SOURCES = [
        pytest.param(SOURCE16, 16, id="source16"),
        pytest.param(SOURCE13, 13, id="source13"),
        pytest.param(SOURCE13_ALTERNATE, 13, id="source13 alternate"),
        pytest.param(SOURCE13_REGISTER, 13, id="source13 register"),
    ]

    @pytest.mark.parametrize(("rows", "width"), ROWS + SOURCES)
    def test_no_word_matches_two_rows(self, rows: Sequence[Encoding], width: int) -> None:
        overlaps = [(a, b) for a, b in itertools.combinations(rows, 2) if a.overlaps(b)]
        assert overlaps == []

    @pytest.mark.parametrize(("rows", "width"), ROWS + SOURCES)
    def test_each_bit_is_in_one_field_or_has_one_value(self, rows: Sequence[Encoding], width: int) -> None:
        for row in rows:
            masks = [row.mask, *(bits.mask for bits in row.fields.values())]
            assert sum(masks) == (1 << width) - 1, row.name
            assert row.match & ~row.mask == 0, row.name

    def test_rows_carry_their_category_in_the_top_bits(self) -> None:
        for category, rows in ENCODINGS.items():
            assert {row.category for row in rows} == {category}
            assert {row.match >> 61 for row in rows} == {category}

    def test_a_row_with_overlapping_fields_cannot_be_declared(self) -> None:
        with pytest.raises(TypeError, match=r"bits 3\.\.4 .* overlaps"):
            encode("wrong", 0, "bare", {"BIG": Bits(0, 7)}, {(3, 4): 1})

    def test_float_constants_are_the_values_they_are_named_after(self) -> None:
        known = {"e": math.e, "pi": math.pi, "log2(e)": math.log2(math.e), "log2(10)": math.log2(10)}
        for name, value in FLUT:
            _, slash, divisor = name.partition("/")
            wanted = 1 / known[divisor] if slash else known.get(name) or float(name)
            assert value == pytest.approx(wanted, rel=1e-15)


class TestVectors:
    @pytest.mark.parametrize(("word", "text"), COMPILED, ids=[f"{word:016x}" for word, _ in COMPILED])
    def test_text_of_compiled_words(self, word: int, text: str) -> None:
        assert decode(word).text == text

    def test_the_disassembler_agrees_with_the_listed_texts(self) -> None:
        assert disassemble(code(word for word, _ in COMPILED)) == [text for _, text in COMPILED]

    def test_the_assembler_makes_the_words_back_from_our_text(self) -> None:
        for word, _ in COMPILED:
            assert assemble(decode(word).text + "\n")[:8] == code([word])

    def test_words_of_mesas_own_suite(self) -> None:
        assert [decode(word).text for word in MESA_SUITE] == disassemble(code(MESA_SUITE))


class TestInstruction:
    """The parts of an instruction, where its text alone could hide a mistake."""

    def test_branch_target_counts_from_the_start_of_the_program(self) -> None:
        branch = decode(0x0090602000000103, pc=1000)
        assert branch.fields == {"target": 1259, "comp1": 0, "inv1": 1, "comp2": 1, "inv2": 1}
        assert branch.text == "brao !p0.x, !p0.y, #259"
        assert decode(0x01000000FFFFFFD1, pc=50).fields["target"] == 3

    def test_conversion_has_another_name_than_a_move(self) -> None:
        move, conversion = decode(0x202CC00400000000), decode(0x20150A0200000012)
        assert (move.name, conversion.name) == ("mov", "cov")
        assert move.srcs == (Operand("const", 0),)
        assert conversion.dsts == (Operand("gpr", 2, half=True),)
        assert conversion.srcs == (Operand("gpr", 0x12, r=True),)
        assert conversion.repeat == 2
        assert conversion.fields == {"src_type": "s32", "dst_type": "s16", "round": 0}

    @pytest.mark.parametrize(("line", "number"), [("mova a0.x, hr0.x", 0), ("mova1 a1.x, 17", 1)])
    def test_address_registers_are_written_by_moves(self, line: str, number: int) -> None:
        move = first(line)
        assert move.name == "mov"
        assert move.dsts == (Operand("addr", number, half=True),)

    @pytest.mark.parametrize("line", ["mov.s32s32 r0.x, -5", "mov.u32u32 r0.x, 4294967291"])
    def test_immediate_of_a_move_is_signed_32_bits(self, line: str) -> None:
        assert first(line).srcs == (Operand("imm", -5),)

    def test_relative_operands_keep_their_offset(self) -> None:
        move = decode(0x20156004_00000C11)
        assert move.srcs == (Operand("rel_const", 17),)
        assert move.ul
        assert decode(0x20174004_00000008).dsts == (Operand("rel_gpr", 4),)

    def test_parallel_moves_list_every_register(self) -> None:
        swap = first("swz.u32u32 r1.x, r0.w, r0.y, r0.z")
        assert [o.num for o in swap.dsts] == [4, 3]
        assert [o.num for o in swap.srcs] == [1, 2]
        gather = first("gat.f16u32 r1.y, hr0.y, hr0.z, hr0.w, hr1.x")
        assert [o.num for o in gather.dsts] == [5, 6, 7, 8]
        assert gather.srcs == tuple(Operand("gpr", num, half=True) for num in (1, 2, 3, 4))
        scatter = first("sct.u32f16 hr1.y, hr0.z, hr0.w, hr1.x, r0.y")
        assert [o.num for o in scatter.dsts] == [5, 2, 3, 4]
        assert [o.num for o in scatter.srcs] == [1, 2, 3, 4]

    def test_delay_and_repetition_share_bits(self) -> None:
        delayed, repeated = decode(0x4218081600162005), decode(0x50180B180014000D)
        assert (delayed.nop, delayed.repeat, [o.r for o in delayed.srcs]) == (3, 0, [False, False])
        assert (repeated.nop, repeated.repeat, [o.r for o in repeated.srcs]) == (0, 3, [True, True])
        assert repeated.sy

    def test_predicates_are_never_half(self) -> None:
        compare = decode(0x42B400F820000017)
        assert compare.dsts == (Operand("pred", 0),)
        assert compare.srcs == (Operand("gpr", 0x17), Operand("imm", 0))
        assert compare.fields == {"full": 1, "cond": "eq"}

    def test_signs_and_float_constants_of_sources(self) -> None:
        add = first("add.f hr0.x, (neg)hr0.y, h(0.5)")
        assert add.srcs == (Operand("gpr", 1, half=True, neg=True), Operand("float_imm", 1, half=True))
        assert first("absneg.f r0.x, (absneg)r0.y").srcs == (Operand("gpr", 1, neg=True, abs=True),)

    def test_three_source_operands(self) -> None:
        mad = decode(0x6388880D1013800D)
        assert (mad.name, mad.nop) == ("mad.f32", 3)
        assert mad.srcs == (Operand("gpr", 13), Operand("gpr", 17), Operand("const", 19))
        shift = decode(0x6501840C000B301E)
        assert shift.srcs == (Operand("imm", 30), Operand("gpr", 3), Operand("gpr", 11))

    def test_texel_fetch(self) -> None:
        fetch = decode(0xA0001F3C0220006D)
        assert fetch.dsts == (Operand("gpr", 60),)
        assert fetch.srcs == (Operand("gpr", 54),)
        wanted = {"type": "f32", "wrmask": 15, "samp": 1, "tex": 1, "full_coords": 1, "s2en": 0, "is_1d": 1}
        assert wanted.items() <= fetch.fields.items()

    def test_descriptor_register_is_the_last_source(self) -> None:
        sample = decode(0xA1489F34_25E06E07)
        assert sample.text == "saml.s2en.uniform.base1 (f32)(xyzw)r13.x, r0.w, r13.w, r11.w, a1.x"
        assert [o.num for o in sample.srcs] == [3, 55, 47]
        assert {"desc_mode": 1, "base": 1, "bindless": 1, "a1": 1}.items() <= sample.fields.items()
        assert "samp" not in sample.fields

    def test_global_load_and_store(self) -> None:
        load, store = decode(0xC00C000101824001), decode(0xC0CC270001800004)
        assert load.dsts == (Operand("gpr", 1, half=True),)
        assert load.srcs == (Operand("gpr", 9),)
        assert load.fields == {"type": "u8", "offset": 0, "size": 1}
        assert store.dsts == ()
        assert store.srcs == (Operand("gpr", 19), Operand("gpr", 2, half=True))

    def test_negative_offset_of_a_store(self) -> None:
        assert decode(0xC1425B50_01803E02).fields["offset"] == -176
        assert decode(0xC1465B00_0180022A).fields["offset"] == 256

    def test_half_registers_that_the_text_does_not_show(self) -> None:
        load = first("ldl.u16 r0.x, l[r0.y], 1")
        assert load.dsts == (Operand("gpr", 0, half=True),)

    def test_scaled_address(self) -> None:
        load = decode(0xC0020007_03C1740F)
        assert [o.num for o in load.srcs] == [5, 7]
        assert load.fields == {"type": "f32", "offset": 2, "shift": 3, "size": 3}

    def test_image_store(self) -> None:
        store = decode(0xD022000E0C677A00)
        assert store.srcs == (Operand("gpr", 12), Operand("gpr", 14))
        assert store.fields == {
            "type": "f32",
            "dims": 2,
            "typed": 1,
            "components": 4,
            "mode": "imm",
            "index": 0,
            "base": 0,
            "bindless": 0,
            "offset": 0,
        }

    def test_resource_index_in_a_register(self) -> None:
        load = decode(0xC0260C0A_0A61B180)
        assert [o.num for o in load.srcs] == [10, 6]
        assert {"mode": "nonuniform", "index": 6, "bindless": 1, "base": 0}.items() <= load.fields.items()

    def test_atomics_by_memory(self) -> None:
        local, global_ = decode(0xD5C60003_03008001), decode(0xC4160002_02000001)
        image = decode(0xC036000008640000)
        assert [i.name for i in (local, global_, image)] == ["atomic.l.max", "atomic.g.add", "atomic.b.add"]
        assert local.srcs == (Operand("gpr", 2), Operand("gpr", 3))
        assert image.dsts == (Operand("gpr", 0),)
        assert image.srcs == (Operand("gpr", 8), Operand("gpr", 0))

    def test_barrier_scopes(self) -> None:
        assert decode(0xE0FA0000_00000000).fields == {"w": 1, "r": 1, "l": 1, "g": 1}
        assert decode(0xE042000000000000).fields == {"w": 0, "r": 0, "l": 0, "g": 1}

    def test_barriers_of_qualcomms_compiler(self) -> None:
        # The words are in tinygrad's test/mockgpu/qcom/test_qcomcl.py; Mesa sets bit 49 in all it makes.
        assert decode(0xF000000000000000).text == decode(0xF002000000000000).text == "(sy)bar"
        assert decode(0xE098000000000000).text == decode(0xE09A000000000000).text == "fence.r.w"
        assert all(is_qualcomms(word) for word in (0xF000000000000000, 0xE098000000000000))
        assert all(is_refused(text) for text in disassemble(code((0xF000000000000000, 0xE098000000000000))))

    def test_instructions_can_be_keys_and_pickled(self) -> None:
        branch = decode(0x0090602000000103, pc=7)
        assert {branch: 1}[decode(0x0090602000000103, pc=7)] == 1
        assert pickle.loads(pickle.dumps(branch)) == branch


def first(line: str) -> Instruction:
    """Return what Mesa's assembler makes of ``line``, decoded."""
    return decode(int.from_bytes(assemble(line + "\n")[:8], "little"))


class TestRefusal:
    def test_error_of_reserved_bits_says_which(self) -> None:
        with pytest.raises(UnknownInstruction, match=r"reserved bits of rcp are set \(bits 16, 20..21\)"):
            decode(0x8010000A00310003)

    def test_image_size_of_older_generations_is_refused(self) -> None:
        assert disassemble(code([0xC3E60000_00000200])) == ["resinfo.u32.2d r0.x, g[0]"]
        assert isinstance(text_or_refusal(0xC3E60000_00000200), UnknownInstruction)

    def test_error_names_place_word_and_bits(self) -> None:
        with pytest.raises(UnknownInstruction) as caught:
            decode(0x8010000A00010003, pc=12)
        assert caught.value.bits == 0x10000
        assert "instruction 12: 0x8010000a00010003" in str(caught.value)
        assert "reserved bits of rcp are set (bits 16)" in str(caught.value)

    def test_bits_of_a_source_are_those_of_the_word(self) -> None:
        with pytest.raises(UnknownInstruction, match="SRC2 has no float_imm 12") as caught:
            decode(0x401000072C0C0008 & ~(1 << 26))
        assert caught.value.bits == 0x3FF << 16

    def test_error_is_a_compile_error_and_survives_pickling(self) -> None:
        error = text_or_refusal(0xFFFFFFFFFFFFFFFF)
        assert isinstance(error, CompileError)
        copy = pickle.loads(pickle.dumps(error))
        assert (str(copy), copy.bits) == (str(error), error.bits)

    @pytest.mark.parametrize("word", [-1, 1 << 64])
    def test_words_have_64_bits(self, word: int) -> None:
        with pytest.raises(ValueError, match="64-bit"):
            decode(word)

    def test_program_is_a_whole_number_of_instructions(self) -> None:
        with pytest.raises(ValueError, match="12 bytes"):
            decode_program(bytes(12))

    def test_program_gives_the_pc_of_the_bad_word(self) -> None:
        with pytest.raises(UnknownInstruction) as caught:
            decode_program(code([0, 0x0300000000000000, 0x8070000A_00000003, 0x80F0000A_00000003]))
        assert caught.value.pc == 3

    def test_program_decodes_padding_too(self) -> None:
        program = decode_program(code([0x4010000010000001, 0x0300000000000000, 0, 0]))
        assert [i.name for i in program] == ["add.f", "end", "nop", "nop"]
        assert [i.pc for i in program] == [0, 1, 2, 3]


FLOATS = (dtypes.float, dtypes.half)
INTEGERS = (
    dtypes.int,
    dtypes.uint,
    dtypes.short,
    dtypes.ushort,
    dtypes.char,
    dtypes.uchar,
    dtypes.long,
    dtypes.ulong,
)
FUNCTIONS = (
    "sin",
    "exp",
    "exp2",
    "log",
    "log2",
    "sqrt",
    "rsqrt",
    "tanh",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sign",
)


def empty(*shape: int, dtype: object = dtypes.float) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype)  # type: ignore[arg-type]


KERNELS: dict[str, Callable[[], list[Tensor] | Tensor]] = {
    "arithmetic": lambda: [
        empty(256, dtype=d) * empty(256, dtype=d) + empty(256, dtype=d) for d in FLOATS + INTEGERS
    ],
    "comparison": lambda: [
        (empty(99, dtype=d) < empty(99, dtype=d)).where(empty(99, dtype=d), 3).maximum(1)
        for d in FLOATS + INTEGERS
    ],
    "bits": lambda: [
        (empty(64, dtype=d) ^ empty(64, dtype=d)) & 77 | (empty(64, dtype=d) << 3) for d in INTEGERS
    ],
    "division": lambda: [
        empty(64, dtype=d) // empty(64, dtype=d) for d in (dtypes.int, dtypes.uchar, dtypes.long)
    ],
    "negative constants": lambda: [
        empty(64, dtype=d) * -12345 - 7 for d in (dtypes.short, dtypes.int, dtypes.half)
    ],
    "functions": lambda: [getattr(empty(100, dtype=d), name)() for d in FLOATS for name in FUNCTIONS],
    "casts": lambda: [
        empty(64, dtype=a).cast(b)
        for a in (*FLOATS, *INTEGERS[:6], dtypes.bool)
        for b in (*FLOATS, *INTEGERS[1:7:2], dtypes.bool)
        if a != b
    ],
    "reductions": lambda: [empty(64, 64).sum(1), empty(64, 64).max(0), empty(64, 64, dtype=dtypes.int).min()],
    "large reduction": lambda: empty(1 << 16).sum(),
    "softmax": lambda: empty(64, 1024).softmax(1),
    "scan": lambda: empty(300).cumsum(),
    "matmul": lambda: [empty(64, 64, dtype=d) @ empty(64, 64, dtype=d) for d in FLOATS],
    "odd matmul": lambda: empty(17, 33) @ empty(33, 5),
    "convolution": lambda: empty(1, 4, 16, 16).conv2d(empty(8, 4, 3, 3)).relu(),
    "sort": lambda: empty(24).sort()[0],
    "gather": lambda: empty(64, 16)[empty(8, dtype=dtypes.int)],
    "random numbers": lambda: Tensor.rand(100),
}
IMAGE_KERNELS: dict[str, Callable[[], list[Tensor] | Tensor]] = {
    "convolution": lambda: empty(1, 8, 16, 16).conv2d(empty(8, 8, 3, 3), padding=1).relu(),
    "matmul": lambda: empty(64, 64) @ empty(64, 64),
}


class TestCompiledKernels:
    @pytest.mark.parametrize("name", KERNELS)
    def test_text_equals_the_disassemblers(self, name: str) -> None:
        assert_same_text(compile_kernels(KERNELS[name]))

    @pytest.mark.parametrize("float16", [False, True], ids=["float32", "float16"])
    @pytest.mark.parametrize("name", IMAGE_KERNELS)
    def test_text_equals_the_disassemblers_for_images(self, name: str, float16: bool) -> None:
        found = compile_kernels(IMAGE_KERNELS[name], image=True, float16=float16)
        assert_same_text(found)
        assert any(i.name == "isam" for kernel in found for i in decode_program(kernel.code))


def assert_same_text(kernels: Sequence[Kernel]) -> None:
    assert kernels
    for kernel in kernels:
        assert [i.text for i in decode_program(kernel.code)] == disassemble(kernel.code), kernel.name


class TestAgainstDisassembler:
    @pytest.mark.parametrize("category", ENCODINGS)
    def test_random_words(self, category: int) -> None:
        compare(random_words(category, 10000, seed=category), minimum=0.1)

    @pytest.mark.conformance
    @pytest.mark.parametrize("category", ENCODINGS)
    @pytest.mark.parametrize("seed", range(100, 110))
    def test_many_random_words(self, category: int, seed: int) -> None:
        compare(random_words(category, 30000, seed), minimum=0.1)

    def test_every_opcode_was_printed_by_the_disassembler(self) -> None:
        seen = Counter(name for category in ENCODINGS for name in printed_names(sample_words(category)))
        missing = set(OPCODES) - set(seen)
        assert missing == set(NOT_PRINTED)
        print(f"{len(seen)} of {len(OPCODES)} opcodes compared; not printed: {NOT_PRINTED}")

    def test_opcodes_are_listed_with_their_category(self) -> None:
        listed = {(name, category) for name, category in OPCODES.items()}
        assert listed == {(row.name, row.category) for rows in ENCODINGS.values() for row in rows} | {
            ("cov", 1)
        }


def sample_words(category: int) -> list[int]:
    """Return words that decode, several of every row."""
    rng = random.Random(category)
    words = []
    for row in ENCODINGS[category]:
        legal = [
            w for w in (row_word(row, rng, 0.8) for _ in range(30)) if isinstance(text_or_refusal(w), str)
        ]
        assert legal, f"no random word of {row.name} decodes"
        words += legal
    return words


def printed_names(words: Sequence[int]) -> Iterator[str]:
    """Yield the name of each word that the disassembler prints, and prints as we do."""
    for word, text in zip(words, disassemble(code(words)), strict=True):
        instruction = decode(word)
        if instruction.name not in NOT_PRINTED and not is_qualcomms(word):
            assert instruction.text == text
            yield instruction.name


def row_word(row: Encoding, rng: random.Random, zeros: float) -> int:
    """Return a word of ``row`` with random fields, each zero with probability ``zeros``."""
    word = row.match
    for bits in row.fields.values():
        if rng.random() >= zeros:
            word |= rng.getrandbits(64) & bits.mask
    return word


def random_words(category: int, count: int, seed: int) -> list[int]:
    """Return words of a category: of its rows, mutations of those and of compiled words, and plain noise."""
    rng = random.Random(seed)
    known = [word for word in [w for w, _ in COMPILED] + MESA_SUITE if word >> 61 == category]
    makers = [
        lambda: rng.getrandbits(61) | category << 61,
        lambda: row_word(rng.choice(ENCODINGS[category]), rng, 0.0),
        lambda: row_word(rng.choice(ENCODINGS[category]), rng, 0.5),
        lambda: row_word(rng.choice(ENCODINGS[category]), rng, 0.7) ^ 1 << rng.randrange(61),
        lambda: rng.choice(known) ^ 1 << rng.randrange(61),
        lambda: rng.choice(known) ^ 1 << rng.randrange(61) ^ 1 << rng.randrange(61),
    ]
    return [rng.choice(makers)() for _ in range(count)]


def compare(words: list[int], minimum: float) -> None:
    """Check the decoder against the disassembler; at least ``minimum`` of ``words`` must be instructions."""
    refused: list[tuple[int, UnknownInstruction, str]] = []
    equal = 0
    for word, text in zip(words, disassemble(code(words)), strict=True):
        found = text_or_refusal(word)
        if is_qualcomms(word):
            continue
        if isinstance(found, UnknownInstruction):
            if not is_refused(text):
                refused.append((word, found, text))
        elif decode(word).name not in NOT_PRINTED:
            assert found == text, f"{word:#018x}"
            equal += 1
    assert equal >= minimum * len(words)
    assert unexplained(refused) == []


def unexplained(refused: list[tuple[int, UnknownInstruction, str]]) -> list[str]:
    """Return the refusals that neither a listed reason nor bits without effect on Mesa's text explain."""
    rest = []
    for word, error, text in refused:
        line = f"{text} | {error.reason}"
        if not any(re.search(pattern, line) for pattern in STRICTER):
            rest.append((word, error.bits, text, line))
    cleared = disassemble(code(word & ~bits for word, bits, _, _ in rest))
    return [
        f"{word:#018x} {line}"
        for (word, _, text, line), other in zip(rest, cleared, strict=True)
        if other != text
    ]
