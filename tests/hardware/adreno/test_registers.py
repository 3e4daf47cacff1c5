"""Register facts against Mesa 25's generated constants (tinygrad.runtime.autogen.mesa)."""

from __future__ import annotations

from enum import IntEnum

from tinygrad.runtime.autogen import mesa

from ringfence.hardware.adreno import registers
from ringfence.hardware.adreno.registers import (
    ALIGNMENT,
    DECLARED,
    REGISTERS,
    describe_register,
    register_name,
)
from ringfence.hardware.fields import Register

# Registers that Mesa declares without bit fields: its constants do not tell their width, a6xx.xml does
# (low and high of the reg32, otherwise the whole register).
FIELDLESS_BITS = {"SP_CS_TSIZE": (0, 7), "SP_CS_INSTR_SIZE": (0, 27), "SP_CS_USIZE": (0, 6)}
OUR_FIELDS = ("VALUE", "ADDRESS")

# Arrays have their fields under the name of their element.
ELEMENT = {"SP_CS_BINDLESS_BASE": "DESCRIPTOR", "HLSQ_CS_BINDLESS_BASE": "DESCRIPTOR"}

# enum a3xx_threadmode is not among the generated constants; adreno_common.xml has it.
LISTED_VALUES = {("ThreadMode", "MULTI"): 0, ("ThreadMode", "SINGLE"): 1}

# Alignment of the address registers, from the align attribute of a6xx.xml.
XML_ALIGNMENT = {
    "SP_CS_BASE": 32,
    "SP_CS_PVT_MEM_BASE": 32,
    "SP_CS_SAMPLER_BASE": 16,
    "SP_CS_TEXMEMOBJ_BASE": 64,
    "SP_CS_UAV_BASE": 16,
    "TPL1_CS_BORDER_COLOR_BASE": 128,
}


def mesa_prefix(register: type[Register]) -> str:
    element = ELEMENT.get(register.__name__)
    return f"A6XX_{register.__name__}" + (f"_{element}" if element else "")


def mesa_fields(register: type[Register]) -> set[str]:
    """The field names that Mesa's constants have under this register's name and no longer one."""
    prefix = mesa_prefix(register) + "_"
    longer = tuple(mesa_prefix(other) + "_" for other in DECLARED if mesa_prefix(other).startswith(prefix))
    names = {name for name in vars(mesa) if name.startswith(prefix) and not name.startswith(longer or "\0")}
    return {name.removeprefix(prefix).split("__")[0] for name in names}


def test_every_register_is_in_the_table():
    declared = {
        value
        for value in vars(registers).values()
        if isinstance(value, type) and issubclass(value, Register) and value is not Register
    }
    assert declared == set(DECLARED)


def test_offsets_equal_mesas(tally):
    for register in DECLARED:
        oracle = getattr(mesa, f"REG_A6XX_{register.__name__}", None)
        if callable(oracle):
            offsets = [register.OFFSET + index * register.STRIDE for index in range(register.COUNT)]
            tally.compare(register.__name__, offsets, [oracle(index) for index in range(register.COUNT)])
        else:
            tally.compare(
                register.__name__, (register.OFFSET, register.COUNT), (oracle, 1) if oracle else None
            )
    tally.finish()


def test_fields_equal_mesas(tally, mesa_bits):
    for register in DECLARED:
        for name, field in register.FIELDS.items():
            full = f"{register.__name__}.{name}"
            if name in OUR_FIELDS:
                assert not mesa_fields(register), f"{full}: Mesa has fields for this register"
                oracle = FIELDLESS_BITS.get(register.__name__, (0, register.WIDTH_BITS - 1))
            else:
                oracle = mesa_bits([mesa_prefix(register)], name)
            tally.compare(full, (field.low, field.high), oracle)
    tally.finish()


def test_no_field_that_mesa_knows_is_missing():
    for register in DECLARED:
        assert mesa_fields(register) <= set(register.FIELDS), register.__name__


def test_no_64_bit_register_covers_another_register_of_mesa():
    taken = {
        value: name
        for name, value in vars(mesa).items()
        if name.startswith("REG_A6XX_") and isinstance(value, int) and value > 0x100
    }
    for register in DECLARED:
        if register.WIDTH_BITS == 64:
            assert register.OFFSET + 1 not in taken, register.__name__


def test_enumerated_values_equal_mesas(tally):
    enums = [
        value for value in vars(registers).values() if isinstance(value, type) and issubclass(value, IntEnum)
    ]
    for values in enums:
        if values is IntEnum:
            continue
        for name, member in values.__members__.items():
            oracle = LISTED_VALUES.get((values.__name__, name), getattr(mesa, name, None))
            tally.compare(f"{values.__name__}.{name}", int(member), oracle)
    tally.finish()


def test_alignments_equal_those_of_the_register_description():
    assert {register.__name__: alignment for register, alignment in ALIGNMENT.items()} == XML_ALIGNMENT


def test_every_64_bit_address_has_an_alignment():
    addresses = {register for register in DECLARED if "ADDRESS" in register.FIELDS}
    assert addresses == set(ALIGNMENT)


def test_no_two_registers_share_an_offset():
    assert len(REGISTERS) == sum(len(register.offsets()) for register in DECLARED)


def test_names_tell_array_index_and_half():
    assert register_name(0xA9B0) == "SP_CS_CNTL_0"
    assert register_name(0xA9B4) == "SP_CS_BASE_LO"
    assert register_name(0xA9B5) == "SP_CS_BASE_HI"
    assert register_name(0xA9EC) == "SP_CS_BINDLESS_BASE[2]_LO"
    assert register_name(0xA9ED) == "SP_CS_BINDLESS_BASE[2]_HI"
    assert register_name(0x0885) == "CP_SCRATCH[2]"
    assert register_name(0x1234) == "register 0x1234"


def test_description_decodes_fields_and_marks_unknown_bits():
    assert describe_register(0xB990, 3 | 63 << 2) == "SP_CS_NDRANGE_0: KERNELDIM=3 LOCALSIZEX=0x3f"
    assert describe_register(0xAB00, 5) == "SP_MODE_CNTL: CONSTANT_DEMOTION_ENABLE=1 ISAMMODE=ISAMMODE_GL"
    assert describe_register(0xB309, 0x402).endswith("?=0x400")
    assert describe_register(0xA9B4, 0x1000) == "SP_CS_BASE_LO: 0x1000"


def test_values_of_a_tinygrad_dispatch_use_declared_bits_only():
    # What tinygrad's ops_qcom.py writes for an NIR program, by register.
    written = {
        0xBB08: 0x60,
        0xA9BA: 0x80,
        0xAA00: 0x40,
        0xAB00: 5,
        0xAE0F: 0x20,
        0xB309: 2,
        0xB600: 0,
        0xB990: 3 | 31 << 2 | 7 << 12 | 3 << 22,
        0xB997: 0x00CCC0CF,
        0xB998: 0xFC,
        0xA9B1: 0x41,
        0xB983: 0xFCFCFCFC,
        0xB986: 0xFC,
        0xB987: 0x100,
    }
    for offset, value in written.items():
        assert REGISTERS[offset].unknown(value) == 0, register_name(offset)
