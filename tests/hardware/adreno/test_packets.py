"""Packet facts against Mesa 25's generated constants and tinygrad's own header functions."""

from __future__ import annotations

from enum import IntEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tinygrad.runtime.autogen import mesa
from tinygrad.runtime.ops_qcom import pkt4_hdr, pkt7_hdr

from ringfence.hardware.adreno import packets
from ringfence.hardware.adreno.packets import (
    LAYOUT,
    PAYLOAD,
    PAYLOAD_STEP,
    STATE_UNIT_BYTES,
    WORDS,
    Event,
    Function,
    Marker,
    Opcode,
    Poll,
    StateBlock,
    StateSource,
    StateType,
    Type4,
    Type7,
    decode_header,
    odd_parity,
    payload_fits,
    type4_header,
    type7_header,
)
from ringfence.hardware.fields import Word

# How Mesa names the values of each enumeration.
MESA_NAME = {
    "Opcode": "CP_{}",
    "Event": "{}",
    "Function": "WRITE_{}",
    "Poll": "POLL_{}",
    "Marker": "RM6_{}",
    "MarkerMode": "{}",
    "IfpcMode": "IFPC_{}",
    "StateType": "ST6_{}",
    "StateSource": "SS6_{}",
    "StateBlock": "SB6_{}",
    "CompareMode": "{}",
    "SourceType": "SOURCE_{}",
    "Amble": "{}_AMBLE_TYPE",
    "RegTracker": "{}",
}

# Words whose Mesa name is not CP_<name> or A6XX_CP_<name>.
MESA_WORD = {
    "COND_REG_EXEC_THREAD_0": "CP_COND_REG_EXEC_0",
    "COND_REG_EXEC_PRED_TEST_1": "PRED_TEST_CP_COND_REG_EXEC_1",
    "COND_REG_EXEC_REG_COMPARE_1": "REG_COMPARE_CP_COND_REG_EXEC_1",
    "SET_MARKER_IFPC_0": "A6XX_CP_SET_MARKER_0",
    "EXEC_CS_INDIRECT_3": "A5XX_CP_EXEC_CS_INDIRECT_3",
    "INDIRECT_BUFFER_2": "A5XX_CP_INDIRECT_BUFFER_2",
}

# Header words of packets this software builds, computed from the format in KGSL's adreno_pm4types.h.
HEADERS = {
    0x70268000: (Opcode.WAIT_FOR_IDLE, 0),
    0x70928000: (Opcode.WAIT_MEM_WRITES, 0),
    0x70108000: (Opcode.NOP, 0),
    0x70E50001: (Opcode.SET_MARKER, 1),
    0x70460001: (Opcode.EVENT_WRITE, 1),
    0x70460004: (Opcode.EVENT_WRITE, 4),
    0x70B30004: (Opcode.EXEC_CS, 4),
    0x70310001: (Opcode.RUN_OPENCL, 1),
    0x70348003: (Opcode.LOAD_STATE6_FRAG, 3),
    0x70BC8006: (Opcode.WAIT_REG_MEM, 6),
    0x703E8003: (Opcode.REG_TO_MEM, 3),
    0x703D8003: (Opcode.MEM_WRITE, 3),
    0x70BF8003: (Opcode.INDIRECT_BUFFER, 3),
}
WRITES = {
    0x40BB0801: (0xBB08, 1),
    0x40B9908C: (0xB990, 12),
    0x40A9B08A: (0xA9B0, 10),
    0x48A9BB01: (0xA9BB, 1),
    0x48B98385: (0xB983, 5),
    0x48B99702: (0xB997, 2),
    0x40A9F202: (0xA9F2, 2),
}

# Payload sizes where Mesa's description stops short of the packet, or has two layouts of it.
LISTED_SIZES = {
    Opcode.EVENT_WRITE: "1 without a value to write, 4 with one",
    Opcode.REG_TEST: "1, or 3 with PRED_UPDATE",
    Opcode.COND_REG_EXEC: "2 for a predicate or mode, 3 for a register comparison",
    Opcode.SMMU_TABLE_UPDATE: "Mesa has 4 dwords, KGSL's adreno_a6xx_ringbuffer.c sends 3",
    Opcode.MEM_TO_MEM: "Mesa describes the first dword; the addresses follow, two dwords each",
    Opcode.EXEC_CS_INDIRECT: "Mesa has the a5xx layout under its own prefix; test_indirect_dispatch",
    Opcode.INDIRECT_BUFFER: "Mesa names its address by field, not by number; test_indirect_buffer",
}

# Packets that Mesa names but does not describe: the size in the streams of the driver that sends them.
STREAM_SIZES = {
    Opcode.WAIT_MEM_WRITES: ((0,), "tinygrad ops_qcom.py, KGSL adreno_a6xx_ringbuffer.c"),
    Opcode.WAIT_FOR_ME: ((0,), "KGSL adreno_a5xx.c"),
    Opcode.WAIT_FOR_IDLE: ((0,), "tinygrad ops_qcom.py, KGSL adreno_a6xx.c"),
    Opcode.RUN_OPENCL: ((1,), "tinygrad ops_qcom.py"),
    Opcode.YIELD_ENABLE: ((1,), "KGSL adreno_a5xx_preempt.c"),
    Opcode.SKIP_IB2_ENABLE_GLOBAL: ((1,), "Mesa tu_cmd_buffer.c, fd6_gmem.cc"),
    Opcode.SKIP_IB2_ENABLE_LOCAL: ((1,), "Mesa fd6_gmem.cc"),
    Opcode.INVALIDATE_STATE: ((1,), "Mesa fd3_emit.c (no newer sender)"),
    Opcode.INDIRECT_BUFFER_CHAIN: ((3,), "Mesa tu_device_generated_commands.cc"),
    Opcode.SET_PROTECTED_MODE: ((1,), "KGSL adreno_a6xx_ringbuffer.c"),
    Opcode.WHERE_AM_I: ((2,), "KGSL adreno_a6xx_ringbuffer.c"),
    Opcode.SET_MODE: ((1,), "Mesa tu_cmd_buffer.cc"),
    Opcode.SET_SECURE_MODE: ((1,), "KGSL adreno_a6xx.c"),
    Opcode.PREEMPT_ENABLE_GLOBAL: ((1,), "KGSL adreno_a5xx_preempt.c"),
    Opcode.PREEMPT_ENABLE_LOCAL: ((1,), "KGSL adreno_a5xx_preempt.c"),
    Opcode.CONTEXT_SWITCH_YIELD: ((4,), "KGSL adreno_a6xx_preempt.c"),
    Opcode.INTERRUPT: ((1,), "Mesa adreno_pm4.xml names the packet only"),
}

# Dword names that Mesa does not have.
LISTED_DWORDS = {
    ("EVENT_WRITE", "VALUE"): "dword 3 is nameless in Mesa",
    ("EXEC_CS", "RESERVED"): "dword 0 is nameless in Mesa",
    ("EXEC_CS_INDIRECT", "RESERVED"): "dword 0 is nameless in Mesa",
    ("RUN_OPENCL", "RESERVED"): "Mesa does not describe the packet",
    ("REG_WRITE", "REG"): "dword 1 is nameless in Mesa",
    ("REG_WRITE", "VALUE"): "dword 2 is nameless in Mesa",
    ("REG_TEST", "PRED_MASK"): "REG_A6XX_CP_REG_TEST_PRED_MASK, a dword without fields",
    ("REG_TEST", "PRED_VAL"): "REG_A6XX_CP_REG_TEST_PRED_VAL, a dword without fields",
    ("INDIRECT_BUFFER", "IB_BASE_LO"): "half of REG_A5XX_CP_INDIRECT_BUFFER_IB_BASE",
    ("INDIRECT_BUFFER", "IB_BASE_HI"): "half of REG_A5XX_CP_INDIRECT_BUFFER_IB_BASE",
    **{
        ("MEM_TO_MEM", f"{operand}_{half}"): "Mesa describes the first dword only"
        for operand in ("DST", "SRC_A", "SRC_B", "SRC_C")
        for half in ("LO", "HI")
    },
}


def mesa_prefixes(word: str) -> list[str]:
    return [MESA_WORD[word]] if word in MESA_WORD else [f"CP_{word}", f"A6XX_CP_{word}"]


def test_enumerated_values_equal_mesas(tally):
    enums = [
        v
        for v in vars(packets).values()
        if isinstance(v, type) and issubclass(v, IntEnum) and v is not IntEnum
    ]
    for values in enums:
        for name, member in values.__members__.items():
            oracle = getattr(mesa, MESA_NAME[values.__name__].format(name), None)
            tally.compare(f"{values.__name__}.{name}", int(member), oracle)
    tally.finish()


def test_every_payload_word_is_in_the_table():
    declared = {v.__name__ for v in vars(packets).values() if isinstance(v, type) and issubclass(v, Word)}
    assert declared - {"Word", "TYPE4_HEADER", "TYPE7_HEADER"} == set(WORDS)


def test_fields_equal_mesas(tally, mesa_bits):
    for word in WORDS.values():
        for name, field in word.FIELDS.items():
            oracle = mesa_bits(mesa_prefixes(word.__name__), name)
            tally.compare(f"{word.__name__}.{name}", (field.low, field.high), oracle)
    tally.finish()


def test_payload_sizes_equal_the_dwords_mesa_describes(tally):
    for opcode, sizes in PAYLOAD.items():
        prefixes = [f"REG_CP_{opcode.name}_", f"REG_A6XX_CP_{opcode.name}_"]
        dwords = [
            int(number)
            for name in vars(mesa)
            for prefix in prefixes
            if name.startswith(prefix) and (number := name.removeprefix(prefix)).isdigit()
        ]
        if sizes is None or opcode in LISTED_SIZES:
            continue
        described = (max(dwords) + 1,) if dwords else None
        tally.compare(opcode.name, sizes, described or STREAM_SIZES.get(opcode, (None, ""))[0])
    tally.finish()


def test_every_opcode_has_a_payload_rule():
    assert set(PAYLOAD) == set(Opcode)
    assert all(PAYLOAD[opcode] is None for opcode in PAYLOAD_STEP)


def test_dword_names_equal_mesas(tally):
    for opcode, dwords in LAYOUT.items():
        packet = "LOAD_STATE6" if opcode.name.startswith("LOAD_STATE6") else opcode.name
        for index, name in enumerate(dwords):
            if name in WORDS or (packet, name) in LISTED_DWORDS:
                continue
            prefixes = [f"CP_{packet}", f"A6XX_CP_{packet}", f"A5XX_CP_{packet}"]
            names = [f"{prefix}_{index}_{name}__MASK" for prefix in prefixes]
            found = next((getattr(mesa, full) for full in names if hasattr(mesa, full)), None)
            tally.compare(f"{packet}[{index}] {name}", 0xFFFFFFFF, found)
    tally.finish()


def test_layouts_are_as_long_as_the_payload():
    for opcode, dwords in LAYOUT.items():
        sizes = PAYLOAD[opcode]
        assert len(dwords) == (max(sizes) if sizes else PAYLOAD_STEP[opcode][0]), opcode.name


def test_indirect_dispatch_ends_with_the_local_size():
    assert LAYOUT[Opcode.EXEC_CS_INDIRECT][mesa.REG_A5XX_CP_EXEC_CS_INDIRECT_3] == "EXEC_CS_INDIRECT_3"
    assert PAYLOAD[Opcode.EXEC_CS_INDIRECT] == (mesa.REG_A5XX_CP_EXEC_CS_INDIRECT_3 + 1,)


def test_indirect_buffer_is_an_address_and_a_length():
    assert PAYLOAD[Opcode.INDIRECT_BUFFER] == (mesa.REG_A5XX_CP_INDIRECT_BUFFER_2 + 1,)


@pytest.mark.parametrize(("word", "packet"), HEADERS.items())
def test_opcode_header_words(word, packet):
    assert type7_header(*packet) == word
    assert decode_header(word) == Type7(*packet)


@pytest.mark.parametrize(("word", "write"), WRITES.items())
def test_register_header_words(word, write):
    assert type4_header(*write) == word
    assert decode_header(word) == Type4(*write)


@given(st.integers(0, 0x7F), st.integers(0, 0x3FFF))
def test_opcode_headers_equal_tinygrads_and_decode(opcode, count):
    word = type7_header(opcode, count)
    assert word == pkt7_hdr(opcode, count)
    assert decode_header(word) == Type7(opcode, count)


@given(st.integers(0, 0x3FFFF), st.integers(0, 0x7F))
def test_register_headers_equal_tinygrads_and_decode(register, count):
    word = type4_header(register, count)
    assert word == pkt4_hdr(register, count)
    assert decode_header(word) == Type4(register, count)


@given(st.integers(0, 0xFFFFFFFF))
def test_parity_bit_makes_the_number_of_ones_odd(value):
    assert (value.bit_count() + odd_parity(value)) % 2 == 1


@given(st.integers(0, 0xFFFFFFFF))
def test_every_word_is_a_header_that_encodes_back_or_an_error(word):
    try:
        header = decode_header(word)
    except ValueError:
        return
    again = (
        type4_header(header.register, header.count)
        if isinstance(header, Type4)
        else type7_header(header.opcode, header.count)
    )
    assert again == word


@pytest.mark.parametrize("bit", range(24))
def test_one_flipped_bit_below_the_type_is_found(bit):
    with pytest.raises(ValueError, match=r"parity|reserved"):
        decode_header(type7_header(Opcode.EXEC_CS, 4) ^ 1 << bit)


def test_header_errors_say_what_is_wrong():
    with pytest.raises(ValueError, match="wrong parity bit of its count 0x1"):
        decode_header(type7_header(Opcode.SET_MARKER, 1) ^ 1 << 15)
    with pytest.raises(ValueError, match="wrong parity bit of its opcode 0x65"):
        decode_header(type7_header(Opcode.SET_MARKER, 1) ^ 1 << 23)
    with pytest.raises(ValueError, match="wrong parity bit of its register 0xbb08"):
        decode_header(type4_header(0xBB08, 1) ^ 1 << 27)
    with pytest.raises(ValueError, match="has type 0"):
        decode_header(0)
    with pytest.raises(ValueError, match="reserved bits 0x1000000"):
        decode_header(type7_header(Opcode.NOP, 0) | 1 << 24)


def test_a_count_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="COUNT"):
        type4_header(0xB990, 0x80)
    with pytest.raises(ValueError, match="COUNT"):
        type7_header(Opcode.NOP, 0x4000)


def test_payload_rules():
    assert payload_fits(Opcode.WAIT_FOR_IDLE, 0) and not payload_fits(Opcode.WAIT_FOR_IDLE, 1)
    assert payload_fits(Opcode.EVENT_WRITE, 1) and payload_fits(Opcode.EVENT_WRITE, 4)
    assert not payload_fits(Opcode.EVENT_WRITE, 2)
    assert payload_fits(Opcode.NOP, 17)
    assert payload_fits(Opcode.MEM_WRITE, 3) and not payload_fits(Opcode.MEM_WRITE, 1)
    assert payload_fits(Opcode.SET_DRAW_STATE, 6) and not payload_fits(Opcode.SET_DRAW_STATE, 4)


def test_state_units_are_the_sizes_of_what_they_hold():
    descriptor = {
        "texture": 4 * (mesa.REG_A6XX_TEX_CONST_15 + 1),
        "sampler": 4 * (mesa.REG_A6XX_TEX_SAMP_3 + 1),
    }
    expected = {
        (StateBlock.CS_SHADER, StateType.SHADER): 16 * 8,  # 16 instructions
        (StateBlock.CS_SHADER, StateType.CONSTANTS): 4 * 4,  # one vec4
        (StateBlock.CS_SHADER, StateType.UBO): 4 * (mesa.REG_A6XX_UBO_1 + 1),
        (StateBlock.CS_SHADER, StateType.UAV): descriptor["texture"],
        (StateBlock.CS_TEX, StateType.SHADER): descriptor["sampler"],
        (StateBlock.CS_TEX, StateType.CONSTANTS): descriptor["texture"],
    }
    assert expected == STATE_UNIT_BYTES


@pytest.mark.parametrize(
    ("word", "block", "kind", "units"),
    [
        (0x40364000, StateBlock.CS_SHADER, StateType.CONSTANTS, 256),
        (0x00760000, StateBlock.CS_SHADER, StateType.SHADER, 1),
        (0x00560000, StateBlock.CS_TEX, StateType.SHADER, 1),
        (0x00564000, StateBlock.CS_TEX, StateType.CONSTANTS, 1),
        (0x0076C000, StateBlock.CS_SHADER, StateType.UAV, 1),
    ],
)
def test_load_state_words(word, block, kind, units):
    packed = packets.LOAD_STATE6_0.pack(
        STATE_BLOCK=block, STATE_TYPE=kind, STATE_SRC=StateSource.INDIRECT, NUM_UNIT=units
    )
    assert packed == word


def test_words_of_tinygrads_streams():
    assert packets.REG_TO_MEM_0.pack(REG=0x980, CNT=2, _64B=1) == 0x40080980
    assert packets.WAIT_REG_MEM_0.pack(FUNCTION=Function.GE, POLL=Poll.MEMORY) == 0x15
    assert packets.EVENT_WRITE_0.pack(EVENT=Event.CACHE_FLUSH_TS) == 4
    assert packets.SET_MARKER_0.pack(MODE=Marker.COMPUTE) == 8
