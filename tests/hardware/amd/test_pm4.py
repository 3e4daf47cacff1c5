"""Packet facts against the kernel's packet headers as tinygrad generated them.

``pm4_soc15`` is soc15d.h with kfd_pm4_headers_ai.h (gfx9), ``pm4_nv`` nvd.h with the same (gfx10 and later),
``soc_9``, ``soc_11`` and ``soc_12`` have the event types. Layouts that these lack are compared with values
transcribed from the packet headers of AMD's PAL (``gfx9_plus_merged_mec_pm4_packets.h``).
"""

from __future__ import annotations

import inspect
from enum import IntEnum
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tinygrad.runtime.autogen.am import pm4_nv, pm4_soc15, soc_9, soc_11, soc_12

from ringfence.hardware.amd import pm4
from ringfence.hardware.amd.chips import Generation
from ringfence.hardware.amd.pm4 import (
    GRAPHICS_ONLY,
    KERNEL_ONLY,
    NOP_ALONE,
    PACKETS,
    TYPE2_FILLER,
    Event,
    Header,
    Opcode,
    decode_body,
    decode_header,
    decode_packet,
    nop,
    packet,
    set_registers,
    type3_header,
)
from ringfence.hardware.amd.registers import registers_for
from ringfence.hardware.fields import Word

HEADERS = {Generation.GFX9: pm4_soc15, Generation.GFX11: pm4_nv, Generation.GFX12: pm4_nv}
SOCS = {Generation.GFX9: soc_9, Generation.GFX11: soc_11, Generation.GFX12: soc_12}

# Prefix of the header's names, by enumeration, and names that are spelled otherwise there.
PREFIX = {
    "Opcode": "PACKET3_",
    "EventWriteIndex": "PACKET3_EVENT_WRITE__EVENT_INDEX__",
    "ReleaseIndex": "event_index__mec_release_mem__",
    "Function": "PACKET3_WAIT_REG_MEM__FUNCTION__",
    "MemSpace": "PACKET3_WAIT_REG_MEM__MEM_SPACE__",
    "WaitOperation": "PACKET3_WAIT_REG_MEM__OPERATION__",
    "CachePolicy": "PACKET3_WRITE_DATA__CACHE_POLICY__",
    "ReleaseDst": "dst_sel__mec_release_mem__",
    "IntSel": "int_sel__mec_release_mem__",
    "DataSel": "data_sel__mec_release_mem__",
    "WriteDst": "PACKET3_WRITE_DATA__DST_SEL__",
    "CopySrc": "PACKET3_COPY_DATA__SRC_SEL__",
    "CopyDst": "PACKET3_COPY_DATA__DST_SEL__",
    "AtomicCommand": "PACKET3_ATOMIC_MEM__COMMAND__",
}
RENAMED = {
    "Function.ALWAYS": "ALWAYS_PASS",
    "Function.LT": "LESS_THAN_REF_VALUE",
    "Function.LE": "LESS_THAN_EQUAL_TO_THE_REF_VALUE",
    "Function.EQ": "EQUAL_TO_THE_REFERENCE_VALUE",
    "Function.NE": "NOT_EQUAL_REFERENCE_VALUE",
    "Function.GE": "GREATER_THAN_OR_EQUAL_REFERENCE_VALUE",
    "Function.GT": "GREATER_THAN_REFERENCE_VALUE",
    "CopySrc.MEMORY": "TC_L2_OBSOLETE",
    "CopyDst.MEMORY": "TC_L2_OBSOLETE",
    "EventWriteIndex.SAMPLE_PIPELINESTATS": "SAMPLE_PIPELINESTAT",
}
# Enumerations that the headers have no values for: PAL's packet headers, or the kernel's comments.
LISTED_VALUES = {
    "GliInv": {"NOP": 0, "ALL": 1, "RANGE": 2, "FIRST_LAST": 3},  # nvd.h, comments at GCR_CNTL_GLI_INV
    "GcrRange": {"ALL": 0, "VOL": 1, "RANGE": 2, "FIRST_LAST": 3},  # nvd.h, at GCR_CNTL_GL1_RANGE, GL2_RANGE
    "GcrSeq": {"PARALLEL": 0, "FORWARD": 1, "REVERSE": 2},  # nvd.h, at GCR_CNTL_SEQ
    "DmaDst": {"DST_ADDR_USING_DAS": 0, "GDS": 1, "DST_NOWHERE": 2, "DST_ADDR_USING_L2": 3},  # PAL, DMA_DATA
    "DmaSrc": {"SRC_ADDR_USING_SAS": 0, "GDS": 1, "DATA": 2, "SRC_ADDR_USING_L2": 3},  # PAL, DMA_DATA
}

# The macro of a field where it is not PACKET3_<packet>__<field>; one without mask tells the low bit alone.
MACRO = {
    "WAIT_REG_MEM_0.ENGINE": "WAIT_REG_MEM_ENGINE",
    "WAIT_REG_MEM_0_GFX9.ENGINE": "WAIT_REG_MEM_ENGINE",
    "WRITE_DATA_0.ENGINE_SEL": "WRITE_DATA_ENGINE_SEL",
    "ADDRESS_LO_4.ADDR_LO": "PACKET3_WAIT_REG_MEM__MEM_POLL_ADDR_LO",
    "ADDRESS_LO_8.ADDR_LO": "PACKET3_COPY_DATA__SRC_64B_ADDR_LO",
    "REGISTER.REG": "PACKET3_WAIT_REG_MEM__REG_POLL_ADDR",
    "GDS_ADDRESS.GDS_ADDR": "PACKET3_COPY_DATA__SRC_GDS_ADDR_LO",
    "ACQUIRE_MEM_POLL_INTERVAL.POLL_INTERVAL": "PACKET3_ACQUIRE_MEM__POLL_INTERVAL",
    "SET_BASE_0.BASE_INDEX": "PACKET3_BASE_INDEX",
    "GCR_CNTL.RANGE_IS_PA": "PACKET3_ACQUIRE_MEM_GCR_RANGE_IS_PA",
    "EVENT_WRITE_0.OFFLOAD_ENABLE": "PACKET3_EVENT_WRITE__OFFLOAD_ENABLE",
    "RELEASE_MEM_0_GFX9.EVENT_TYPE": "EVENT_TYPE",
    "RELEASE_MEM_0_GFX9.EVENT_INDEX": "EVENT_INDEX",
    "RELEASE_MEM_0_GFX9.EXEC": "EOP_EXEC",
    "RELEASE_MEM_1_GFX9.DST_SEL": "DST_SEL",
    "RELEASE_MEM_1_GFX9.INT_SEL": "INT_SEL",
    "RELEASE_MEM_1_GFX9.DATA_SEL": "DATA_SEL",
    "DMA_DATA_5.SAS": "PACKET3_DMA_DATA_CMD_SAS",
    "DMA_DATA_5.DAS": "PACKET3_DMA_DATA_CMD_DAS",
    "DMA_DATA_5.SAIC": "PACKET3_DMA_DATA_CMD_SAIC",
    "DMA_DATA_5.DAIC": "PACKET3_DMA_DATA_CMD_DAIC",
    "DMA_DATA_5.RAW_WAIT": "PACKET3_DMA_DATA_CMD_RAW_WAIT",
}
# How the headers prefix the fields of a word, beside PACKET3_<packet>__ and PACKET3_<packet>_.
WORD_PREFIX = {
    "GCR_CNTL": "PACKET3_ACQUIRE_MEM_GCR_CNTL_",
    "CP_COHER_CNTL": "PACKET3_ACQUIRE_MEM_CP_COHER_CNTL_",
    "RELEASE_MEM_0_GFX9": "EOP_",
}
# High bits of the fields whose macro has no mask, and fields without macro: PAL's packet headers if not said.
LISTED_BITS = {
    "TYPE3_HEADER.PREDICATE": (0, 0),  # PM4_ME_TYPE_3_HEADER
    "TYPE3_HEADER.SHADER_TYPE": (1, 1),  # PACKET3_COMPUTE of nvd.h
    "TYPE3_HEADER.OPCODE": (8, 15),  # CP_PACKET3_GET_OPCODE of nvd.h
    "TYPE3_HEADER.COUNT": (16, 29),  # CP_PACKET_GET_COUNT of nvd.h
    "TYPE3_HEADER.TYPE": (30, 31),  # CP_PACKET_GET_TYPE of nvd.h
    "SET_QUEUE_REG_0.REG_OFFSET": (0, 7),
    "SET_QUEUE_REG_0.DEFER_EXEC": (15, 15),
    "SET_QUEUE_REG_0.VQID": (16, 25),
    "SET_SH_REG_0.VMID_SHIFT": (23, 27),
    "SET_BASE_0.BASE_INDEX": (0, 3),
    "WAIT_REG_MEM_0.ENGINE": (8, 8),  # nvd.h, "0 - me, 1 - pfp"
    "WAIT_REG_MEM_0_GFX9.ENGINE": (8, 8),
    "WRITE_DATA_0.ENGINE_SEL": (30, 31),  # nvd.h, "0 - me, 1 - pfp, 2 - ce"
    "EVENT_WRITE_0.OFFLOAD_ENABLE": (31, 31),  # bit 0 in nvd.h, which is a slip: soc15d.h and PAL have bit 31
    "GCR_CNTL.GLI_INV": (0, 1),
    "GCR_CNTL.GL1_RANGE": (2, 3),
    "GCR_CNTL.GL2_RANGE": (11, 12),
    "GCR_CNTL.SEQ": (16, 17),
    "RELEASE_MEM_0.EVENT_TYPE": (0, 5),
    "RELEASE_MEM_0.EVENT_INDEX": (8, 11),
    "RELEASE_MEM_0.GCR_GL2_RANGE": (17, 18),
    "RELEASE_MEM_0.GCR_SEQ": (22, 23),
    "RELEASE_MEM_0.GCR_GLK_WB": (24, 24),  # gcr_cntl of gfx11 has 13 bits
    "RELEASE_MEM_0.GCR_GLK_INV": (30, 30),
    "RELEASE_MEM_0.PWS_ENABLE": (31, 31),
    "RELEASE_MEM_0.CACHE_POLICY": (25, 26),
    "RELEASE_MEM_0_GFX9.EVENT_TYPE": (0, 5),
    "RELEASE_MEM_0_GFX9.EVENT_INDEX": (8, 11),
    "RELEASE_MEM_0_GFX9.TC_WC_ACTION_EN": (20, 20),
    "RELEASE_MEM_0_GFX9.CACHE_POLICY": (25, 26),
    "RELEASE_MEM_1.DST_SEL": (16, 17),
    "RELEASE_MEM_1.INT_SEL": (24, 26),
    "RELEASE_MEM_1.DATA_SEL": (29, 31),
    "RELEASE_MEM_1.MES_INTR_PIPE": (20, 21),
    "RELEASE_MEM_1.MES_ACTION_ID": (22, 23),
    "RELEASE_MEM_1_GFX9.DST_SEL": (16, 17),
    "RELEASE_MEM_1_GFX9.INT_SEL": (24, 26),
    "RELEASE_MEM_1_GFX9.DATA_SEL": (29, 31),
    "DMA_DATA_0.ENGINE": (0, 0),  # nvd.h, "0 - ME, 1 - PFP"
    "DMA_DATA_0.SRC_CACHE_POLICY": (13, 14),
    "DMA_DATA_0.DST_SEL": (20, 21),
    "DMA_DATA_0.DST_CACHE_POLICY": (25, 26),
    "DMA_DATA_0.SRC_SEL": (29, 30),
    "DMA_DATA_5.BYTE_COUNT": (0, 25),
    "DMA_DATA_5.DIS_WC": (31, 31),
    "COND_EXEC_2.CACHE_POLICY": (25, 26),
    "COND_EXEC_3.EXEC_COUNT": (0, 13),
    "PRED_EXEC_0.EXEC_COUNT": (0, 13),  # PACKET3_PRED_EXEC__EXEC_COUNT of newer soc15d.h
    "PRED_EXEC_0.VIRTUAL_XCC_ID_SELECT": (24, 31),  # the same
    "INVALIDATE_TLBS_0.DST_SEL": (0, 2),
    "INVALIDATE_TLBS_0.ALL_HUB": (4, 4),
    "INVALIDATE_TLBS_0.PASID": (5, 20),
    "INVALIDATE_TLBS_0.FLUSH_TYPE": (29, 31),
}

# Body sizes: *_SIZEDW__CORE - 1 of PAL's packet headers if not said; None: the size varies.
BODY_SIZES = {
    "NOP": None,
    "SET_BASE": (3,),  # PM4_PFP_SET_BASE
    "DISPATCH_DIRECT": (4,),
    "DISPATCH_INDIRECT": (3,),
    "ATOMIC_MEM": (8,),
    "COND_EXEC": (4,),
    "PRED_EXEC": (1,),  # tinygrad's ops_amd.py
    "WRITE_DATA": None,
    "WAIT_REG_MEM": (6,),
    "INDIRECT_BUFFER": (3,),
    "COPY_DATA": (5,),
    "PFP_SYNC_ME": (1,),  # PM4_PFP_PFP_SYNC_ME
    "EVENT_WRITE": (1, 3),  # with an address for SAMPLE_PIPELINESTATS
    "RELEASE_MEM": (7,),
    "DMA_DATA": (6,),
    "ACQUIRE_MEM": (7,),
    "SET_SH_REG": None,
    "SET_QUEUE_REG": None,
    "SET_UCONFIG_REG": None,
    "WAIT_REG_MEM64": (8,),
    "HDP_FLUSH": (1,),
    "INVALIDATE_TLBS": (1,),
}
BODY_SIZES_GFX9 = BODY_SIZES | {"ACQUIRE_MEM": (6,)}

generations = pytest.mark.parametrize("generation", Generation, ids=lambda g: g.name)


def words() -> list[type[Word]]:
    return [
        value
        for value in vars(pm4).values()
        if isinstance(value, type) and issubclass(value, Word) and value.__module__ == pm4.__name__
    ]


def macro_bits(header: ModuleType, name: str) -> tuple[int, int | None] | None:
    """Lowest and highest bit of a field's macro; no highest if it is a bit or does not mask its argument."""
    macro = getattr(header, name, None)
    if isinstance(macro, int):
        return (macro.bit_length() - 1, None) if macro.bit_count() == 1 else None
    if not callable(macro):
        return None
    # The generated macros cast with the name of a C type.
    globals_ = {**vars(header), "unsigned": int}
    function = type(macro)(macro.__code__, globals_)
    mask = function((1 << 40) - 1)
    low = (mask & -mask).bit_length() - 1
    return low, mask.bit_length() - 1 if mask < 1 << 32 else None


def field_oracle(word: type[Word], name: str) -> tuple[int, int] | None:
    """The bits of a field: of its macro, or listed. A listed field must agree with what its macro tells."""
    key = f"{word.__name__}.{name}"
    header = pm4_soc15 if word.__name__.endswith("_GFX9") or word is pm4.CP_COHER_CNTL else pm4_nv
    stem = word.__name__.removesuffix("_GFX9").rstrip("0123456789").rstrip("_")
    prefixes = [f"PACKET3_{stem}__", f"PACKET3_{stem}_", WORD_PREFIX.get(word.__name__, "\0")]
    names = [MACRO[key]] if key in MACRO else [prefix + name for prefix in prefixes]
    found = next((bits for n in names if (bits := macro_bits(header, n)) is not None), None)
    listed = LISTED_BITS.get(key)
    if listed is None:
        # A flag needs no mask.
        if found is not None and found[1] is None and word.FIELDS[name].max == 1:
            return found[0], found[0]
        return found if found is None or found[1] is not None else None
    if found is not None and key != "EVENT_WRITE_0.OFFLOAD_ENABLE":
        assert found[0] == listed[0] and found[1] in (None, listed[1]), key
    return listed


def test_opcodes_equal_the_headers(tally):
    for opcode in Opcode:
        tally.compare(opcode.name, int(opcode), getattr(pm4_nv, f"PACKET3_{opcode.name}", None))
    tally.finish()


def test_every_opcode_of_the_header_has_a_name():
    known = {int(opcode) for opcode in Opcode}
    for name, value in vars(pm4_nv).items():
        is_opcode = name.startswith("PACKET3_") and "__" not in name and isinstance(value, int)
        if is_opcode and 0x10 <= value <= 0xFF and value.bit_count() > 1:
            assert value in known, name


@generations
def test_every_packet_exists_on_its_generation(tally, generation):
    for opcode in PACKETS[generation]:
        expected = getattr(HEADERS[generation], f"PACKET3_{opcode.name}", None)
        tally.compare(opcode.name, int(opcode), expected)
    tally.finish()


@generations
def test_event_types_are_the_same_everywhere(tally, generation):
    for event in Event:
        tally.compare(event.name, int(event), getattr(SOCS[generation], event.name, None))
    tally.finish()


def test_every_event_type_that_the_generations_share_is_declared():
    def events(soc: ModuleType) -> set[tuple[str, int]]:
        return {(name, value) for value, name in soc.enum_VGT_EVENT_TYPE.items()}

    shared = events(soc_9) & events(soc_11) & events(soc_12)
    assert {name for name, _ in shared if not name.startswith("Reserved")} == set(Event.__members__)


def test_enumerated_values(tally):
    enums = [
        value
        for value in vars(pm4).values()
        if inspect.isclass(value) and issubclass(value, IntEnum) and value.__module__ == pm4.__name__
    ]
    for values in enums:
        if values in (Opcode, Event):
            continue
        for name, member in values.__members__.items():
            key = f"{values.__name__}.{name}"
            if values.__name__ in LISTED_VALUES:
                expected = LISTED_VALUES[values.__name__].get(name)
            else:
                prefix = PREFIX[values.__name__]
                header = RENAMED.get(key, name)
                header = header.lower() if prefix.islower() else header
                expected = getattr(pm4_nv, prefix + header, None)
            tally.compare(key, int(member), expected)
    tally.finish()


def test_fields(tally):
    for word in words():
        for name, field in word.FIELDS.items():
            tally.compare(f"{word.__name__}.{name}", (field.low, field.high), field_oracle(word, name))
    tally.finish()


@generations
def test_body_sizes(tally, generation):
    sizes = BODY_SIZES_GFX9 if generation == Generation.GFX9 else BODY_SIZES
    for opcode, layout in PACKETS[generation].items():
        declared = "any" if layout.tail else layout.sizes
        expected = sizes.get(opcode.name, ()) or ("any" if opcode.name in sizes else None)
        tally.compare(opcode.name, declared, expected)
    tally.finish()


def test_register_ranges_equal_the_header():
    assert pm4.SH_REG_START == pm4_nv.PACKET3_SET_SH_REG_START
    assert pm4.SH_REG_END == pm4_nv.PACKET3_SET_SH_REG_END
    assert pm4.UCONFIG_REG_START == pm4_nv.PACKET3_SET_UCONFIG_REG_START
    assert pm4.UCONFIG_REG_END == pm4_nv.PACKET3_SET_UCONFIG_REG_END


def test_restricted_packets_are_declared():
    everywhere = set().union(*PACKETS.values())
    assert everywhere >= KERNEL_ONLY
    assert everywhere >= GRAPHICS_ONLY


# ----- headers ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.sampled_from([o for o in Opcode if o != Opcode.NOP]), st.integers(1, 0x4000))
def test_headers_decode_to_what_was_encoded(opcode, count):
    header = type3_header(opcode, count)
    assert header == pm4_nv.PACKET3(opcode, count - 1)
    assert decode_header(header) == Header(opcode, count)


@pytest.mark.parametrize(
    ("header", "opcode", "count"),
    [
        (0xC0031500, Opcode.DISPATCH_DIRECT, 4),
        (0xC0053C00, Opcode.WAIT_REG_MEM, 6),
        (0xC0064900, Opcode.RELEASE_MEM, 7),
        (0xC0023F00, Opcode.INDIRECT_BUFFER, 3),
        (0xC0087600, Opcode.SET_SH_REG, 9),
        (0xFFFF1000, Opcode.NOP, 0),
        (0xFFFE1000, Opcode.NOP, 0x3FFF),
    ],
)
def test_headers_of_packets_that_runtimes_send(header, opcode, count):
    assert decode_header(header) == Header(opcode, count)
    assert type3_header(opcode, count) == header


def test_the_shader_type_is_ignored():
    assert decode_header(type3_header(Opcode.NOP, 4) | 2) == Header(Opcode.NOP, 4)


def test_a_type_2_filler_is_one_dword():
    assert decode_header(TYPE2_FILLER) == Header(None, 0)
    assert decode_packet(Generation.GFX11, [TYPE2_FILLER]) is None


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (0x00000000, "has type 0"),
        (0x40001000, "has type 1"),
        (0x80000001, "reserved bits 0x1"),
        (0xC0001004, "reserved bits 0x4"),
        (0xC0001001, "PREDICATE"),
        (0xC000FF00, "opcode 0xff is unknown"),
    ],
)
def test_a_bad_header_says_why(word, message):
    with pytest.raises(ValueError, match=message):
        decode_header(word)


@pytest.mark.parametrize(("opcode", "count"), [(Opcode.DISPATCH_DIRECT, 0), (Opcode.NOP, 0x4000)])
def test_a_body_that_no_header_can_announce_is_refused(opcode, count):
    with pytest.raises(ValueError, match=f"cannot have {count} body dwords"):
        type3_header(opcode, count)


# ----- packets ------------------------------------------------------------------------------------


def test_a_nop_is_as_long_as_asked_for():
    assert nop(1) == (NOP_ALONE,)
    assert [len(nop(length)) for length in (1, 2, 17)] == [1, 2, 17]
    assert decode_packet(Generation.GFX9, nop(17)).length == 17


def test_registers_are_set_by_the_packet_that_reaches_them():
    assert set_registers(0x2E0C, 1, 2) == (0xC0027600, 0x20C, 1, 2)
    assert set_registers(0xC200, 0xE0000000) == (0xC0017900, 0x200, 0xE0000000)


@pytest.mark.parametrize(("offset", "count"), [(0x0E26, 1), (0x2BFF, 2), (0x2FFF, 2), (0xFFFF, 2)])
def test_registers_that_no_packet_reaches_are_refused(offset, count):
    with pytest.raises(ValueError, match=f"writes registers {offset:#x}"):
        set_registers(offset, *(0,) * count)


# A dispatch as tinygrad's ops_amd.py sends it on gfx11, one packet per line.
DISPATCH_GFX11 = """
C0065800 00000000 FFFFFFFF FFFFFFFF 00000000 00000000 00000000 000003F0
C0027600 0000020C 00001000 00000000
C0027600 00000212 60AF0000 0000001E
C0017600 00000228 00000020
C0017600 00000218 00010200
C0027600 00000210 00002000 00000000
C0037600 0000021B 00000000 00000000 00000000
C0027600 00000240 00003000 00007F00
C0017600 00000215 00000000
C0087600 00000204 00000000 00000000 00000000 00000040 00000001 00000001 00000000 00000000
C0031500 00000004 00000001 00000001 00008005
C0004600 00000407
C0064900 0070F514 20000000 00004000 00007F00 00000001 00000000 00000000
C0064900 00000514 22000000 00005008 00007F00 00000001 00000000 00000001
C0053C00 00000015 00004000 00007F00 00000001 FFFFFFFF 00000004
C0053C00 00000045 00000E26 00000E27 FFFFFFFF FFFFFFFF 00000004
C0064900 00000514 60000000 00004008 00007F00 00000000 00000000 00000000
C0023F00 00006000 00007F00 00800040
"""
# The same where gfx9 differs.
DISPATCH_GFX9 = """
C0055800 08400000 FFFFFFFF FFFFFFFF 00000000 00000000 0000000A
C0017600 0000022D 00000001
C0031500 00000004 00000001 00000001 00000005
C0064900 00088514 20000000 00004000 00007F00 00000001 00000000 00000000
C0002300 01000008
"""


@pytest.mark.parametrize(
    ("generation", "text"),
    [
        (Generation.GFX11, DISPATCH_GFX11),
        (Generation.GFX12, DISPATCH_GFX11),
        (Generation.GFX9, DISPATCH_GFX9),
    ],
)
def test_the_packets_of_a_dispatch_decode(generation, text):
    for line in text.split("\n"):
        if line:
            stream = [int(word, 16) for word in line.split()]
            decoded = decode_packet(generation, stream)
            assert decoded.length == len(stream)
            assert packet(decoded.opcode, *decoded.body) == tuple(stream)


def test_a_stream_decodes_from_any_position():
    stream = [*nop(3), *packet(Opcode.EVENT_WRITE, 0x407)]
    decoded = decode_packet(Generation.GFX11, stream, 3)
    assert decoded.opcode == Opcode.EVENT_WRITE
    assert decoded.field(pm4.EVENT_WRITE_0, "EVENT_TYPE") == Event.CS_PARTIAL_FLUSH


def test_the_values_of_registers_are_the_tail():
    decoded = decode_packet(Generation.GFX11, set_registers(0x2E0C, 5, 6))
    assert decoded.field(pm4.SET_SH_REG_0, "REG_OFFSET") == 0x20C
    assert decoded.tail == (5, 6)
    assert decoded.describe() == "SET_SH_REG SET_SH_REG_0=(REG_OFFSET=0x20c) 0x5 0x6"


def test_the_initiator_is_that_of_the_generation():
    body = (1, 1, 1, 0x8005)
    decoded = decode_body(Generation.GFX11, Opcode.DISPATCH_DIRECT, body)
    initiator = registers_for((11, 0, 0))["COMPUTE_DISPATCH_INITIATOR"]
    assert decoded.field(initiator, "CS_W32_EN") == 1
    with pytest.raises(ValueError, match="reserved bits 0x8000 of COMPUTE_DISPATCH_INITIATOR"):
        decode_body(Generation.GFX9, Opcode.DISPATCH_DIRECT, body)


@pytest.mark.parametrize(
    ("select", "name"),
    [
        (0x15, "MEM_POLL_ADDR_LO"),  # memory, GE
        (0x03, "REG_POLL_ADDR"),  # register, EQ
        (0x45, "REG_WRITE_ADDR1"),  # write, then poll another register
    ],
)
def test_what_a_wait_polls_depends_on_its_selectors(select, name):
    body = (select, 0xE24, 0xE27 if select == 0x45 else 0, 1, 1, 4)
    assert decode_body(Generation.GFX11, Opcode.WAIT_REG_MEM, body).value(name) == 0xE24


@pytest.mark.parametrize(
    ("generation", "opcode", "body", "message"),
    [
        (Generation.GFX11, Opcode.ACQUIRE_MEM, (0,) * 6, "has 6 body dwords, expected 7"),
        (Generation.GFX9, Opcode.ACQUIRE_MEM, (0,) * 7, "has 7 body dwords, expected 6"),
        (Generation.GFX11, Opcode.SET_SH_REG, (0x20C,), "has 1 body dwords, expected 2 or more"),
        (Generation.GFX11, Opcode.EVENT_WRITE, (0x407, 0), "has 2 body dwords, expected 1 or 3"),
        (Generation.GFX11, Opcode.ACQUIRE_MEM, (0,) * 6 + (1 << 19,), "reserved bits 0x80000 of GCR_CNTL"),
        (Generation.GFX11, Opcode.ACQUIRE_MEM, (1,) + (0,) * 6, "reserved bits 0x1 of RESERVED"),
        (Generation.GFX9, Opcode.ACQUIRE_MEM, (1,) + (0,) * 5, "reserved bits 0x1 of CP_COHER_CNTL"),
        (
            Generation.GFX11,
            Opcode.WAIT_REG_MEM,
            (0x17, 0, 0, 0, 0, 4),
            "FUNCTION of WAIT_REG_MEM_0 .* value 7",
        ),
        (
            Generation.GFX11,
            Opcode.WAIT_REG_MEM,
            (0x15, 2, 0, 0, 0, 4),
            "reserved bits 0x2 of MEM_POLL_ADDR_LO",
        ),
        (
            Generation.GFX11,
            Opcode.WAIT_REG_MEM,
            (0x03, 1 << 18, 0, 0, 0, 4),
            "reserved bits 0x40000 of REG_POLL",
        ),
        (Generation.GFX11, Opcode.EVENT_WRITE, (0x3F,), "EVENT_TYPE of EVENT_WRITE_0 has unknown value 63"),
        (Generation.GFX11, Opcode.RELEASE_MEM, (0x514, 7 << 24, 0, 0, 0, 0, 0), "INT_SEL .* unknown value 7"),
        (
            Generation.GFX11,
            Opcode.RELEASE_MEM,
            (0x514, 2 << 29, 4, 0, 0, 0, 0),
            "reserved bits 0x4 of ADDRESS_LO",
        ),
        (
            Generation.GFX9,
            Opcode.RELEASE_MEM,
            (0x4514, 0, 0, 0, 0, 0, 0),
            "reserved bits 0x4000 of RELEASE_MEM_0_GFX9",
        ),
        (Generation.GFX11, Opcode.INDIRECT_BUFFER, (2, 0, 1 << 23), "reserved bits 0x2 of IB_BASE_LO"),
        (Generation.GFX11, Opcode.COPY_DATA, (0x10501, 4, 0, 8, 0), "reserved bits 0x4 of SRC_ADDR_LO"),
        (
            Generation.GFX11,
            Opcode.DRAW_INDEX_2,
            (0,) * 5,
            "DRAW_INDEX_2 .* not one of a compute queue on GFX11",
        ),
        (Generation.GFX9, Opcode.HDP_FLUSH, (0,), "HDP_FLUSH .* not one of a compute queue on GFX9"),
    ],
)
def test_a_bad_body_says_what_is_wrong(generation, opcode, body, message):
    with pytest.raises(ValueError, match=message):
        decode_body(generation, opcode, body)


def test_a_packet_that_is_cut_off_is_refused():
    with pytest.raises(ValueError, match="has 4 body dwords, but only 2 are left"):
        decode_packet(Generation.GFX11, packet(Opcode.DISPATCH_DIRECT, 1, 1, 1, 5)[:3])


def test_a_32_bit_value_may_be_written_to_any_dword():
    body = (0x514, 1 << 29, 4, 0, 7, 0, 0)
    assert decode_body(Generation.GFX11, Opcode.RELEASE_MEM, body).value("ADDRESS_LO") == 4


@generations
def test_unknown_dwords_and_layouts_have_no_value(generation):
    decoded = decode_packet(generation, nop(2))
    with pytest.raises(KeyError, match="NOP has no dword ADDR"):
        decoded.value("ADDR")
    with pytest.raises(KeyError, match="NOP has no dword of layout GCR_CNTL"):
        decoded.field(pm4.GCR_CNTL, "SEQ")
