"""Descriptor facts against Mesa 25's constants, and packed descriptors against tinygrad's own code."""

from __future__ import annotations

import ctypes
import math
import struct
from enum import IntEnum
from types import SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tinygrad import dtypes
from tinygrad.runtime.autogen import mesa
from tinygrad.runtime.ops_qcom import QCOMArgsState, qreg
from tinygrad.runtime.support.hcq import HCQBuffer, MMIOInterface

from ringfence.errors import LaunchError
from ringfence.hardware.adreno import descriptors
from ringfence.hardware.adreno.descriptors import (
    BORDER_COLOR,
    FORMATS,
    MAX_IMAGE_SIZE,
    SAMPLER_WORDS,
    TEXTURE_WORDS,
    UBO_WORDS,
    ColorSwap,
    FastBorderColor,
    Filter,
    Format,
    FormatInfo,
    ReductionMode,
    Sampler,
    Swizzle,
    TextureType,
    Wrap,
    image_pitch,
    pack_sampler,
    pack_texture,
    pack_uav,
    unpack_sampler,
    unpack_texture,
)
from ringfence.hardware.fields import Word

# Prefixes of Mesa's names, by enumeration.
PREFIX = {
    "TileMode": "TILE6_",
    "TextureType": "A6XX_",
    "Swizzle": "A6XX_TEX_",
    "Filter": "A6XX_TEX_",
    "Wrap": "A6XX_TEX_",
    "Aniso": "A6XX_TEX_",
    "CompareFunction": "COMPARE_FUNC_",
    "ReductionMode": "A6XX_REDUCTION_MODE_",
    "FastBorderColor": "A6XX_",
    "Format": "FMT6_",
}

# Enumerations that are not among the generated constants: Mesa's adreno_common.xml.
LISTED_VALUES = {
    "ColorSwap": {"WZYX": 0, "WXYZ": 1, "ZYXW": 2, "XYZW": 3},
    "Samples": {"MSAA_ONE": 0, "MSAA_TWO": 1, "MSAA_FOUR": 2, "MSAA_EIGHT": 3},
}

# Second layouts of a dword, under the name of the first in Mesa.
MESA_WORD = {"TEX_CONST_2_BUFFER": "TEX_CONST_2", "TEX_CONST_6_LOD": "TEX_CONST_6"}

# Bits that Mesa does not name; the position is where tinygrad's ops_qcom.py puts its literals 0x8 and 13.
LISTED_FIELDS = {"TEX_CONST_0.UNK3": (3, 3), "TEX_CONST_7.UNK0": (0, 4)}

# What a texel of each format is, by the meaning of its name.
LAYOUTS = {
    "A8_UNORM": (1, (8,), "unorm", True),
    **{f"_8_{k}": (1, (8,), k.lower(), False) for k in ("UNORM", "SNORM", "UINT", "SINT")},
    **{f"_8_8_{k}": (2, (8, 8), k.lower(), False) for k in ("UNORM", "SNORM", "UINT", "SINT")},
    **{f"_8_8_8_8_{k}": (4, (8,) * 4, k.lower(), False) for k in ("UNORM", "SNORM", "UINT", "SINT")},
    **{f"_16_{k}": (1, (16,), k.lower(), False) for k in ("UNORM", "SNORM", "FLOAT", "UINT", "SINT")},
    **{f"_16_16_{k}": (2, (16,) * 2, k.lower(), False) for k in ("UNORM", "SNORM", "FLOAT", "UINT", "SINT")},
    **{
        f"_16_16_16_16_{k}": (4, (16,) * 4, k.lower(), False)
        for k in ("UNORM", "SNORM", "FLOAT", "UINT", "SINT")
    },
    **{f"_32_{k}": (1, (32,), k.lower(), False) for k in ("UNORM", "SNORM", "FLOAT", "UINT", "SINT")},
    **{f"_32_32_{k}": (2, (32,) * 2, k.lower(), False) for k in ("FLOAT", "UINT", "SINT")},
    **{f"_32_32_32_{k}": (3, (32,) * 3, k.lower(), False) for k in ("FLOAT", "UINT", "SINT")},
    **{f"_32_32_32_32_{k}": (4, (32,) * 4, k.lower(), False) for k in ("FLOAT", "UINT", "SINT")},
    "_10_10_10_2_UNORM": (4, (10, 10, 10, 2), "unorm", False),
    "_11_11_10_FLOAT": (3, (11, 11, 10), "float", False),
}

# struct bcolor_entry of Mesa's fd6_emit.cc: offset of each member.
BORDER_OFFSETS = {
    "fp32": 0,
    "ui16": 16,
    "si16": 24,
    "fp16": 32,
    "rgb565": 40,
    "rgb5a1": 42,
    "rgba4": 44,
    "padding0": 46,
    "ui8": 48,
    "si8": 52,
    "rgb10a2": 56,
    "z24": 60,
    "srgb": 64,
    "padding1": 72,
}

IMAGE_DTYPES = {"float16": dtypes.half, "float32": dtypes.float}


def words() -> list[type[Word]]:
    found = [v for v in vars(descriptors).values() if isinstance(v, type) and issubclass(v, Word)]
    return [word for word in found if word is not Word]


def tinygrad_descriptor(address: int, width: int, height: int, dtype: str, written: bool) -> bytes:
    """Have tinygrad's own launch code build the descriptor of one image."""
    memory = (ctypes.c_uint8 * 4096)()
    block = HCQBuffer(
        ctypes.addressof(memory), 4096, view=MMIOInterface(ctypes.addressof(memory), 4096, fmt="B")
    )
    program = SimpleNamespace(
        kernargs_alloc_size=4096,
        signature=[(None, 0, IMAGE_DTYPES[dtype], (height, width, 4))],
        NIR=True,
        consts_info=[],
        tex_to_image=[0],
        samp_cnt=0,
        tex_cnt=0 if written else 1,
        ibo_cnt=1 if written else 0,
        buf_off=0,
        tex_off=2048,
        ibo_off=2048,
    )
    state = QCOMArgsState(block, program, (HCQBuffer(address, width * height * 16),))
    dwords = [value for values, _, fmt in state.bind_data if fmt == "I" for value in values]
    return struct.pack("<16I", *dwords)


@st.composite
def images(draw):
    """Address, width, height and dtype of an image that the hardware can express."""
    dtype = draw(st.sampled_from(sorted(IMAGE_DTYPES)))
    step = 64 // (8 if dtype == "float16" else 16)
    width = draw(st.integers(1, MAX_IMAGE_SIZE // step)) * step
    address = draw(st.integers(1, (1 << 43) - 1)) * 64
    return address, width, draw(st.integers(1, MAX_IMAGE_SIZE)), dtype


# ----- facts -------------------------------------------------------------------------------------


def test_enumerated_values_equal_mesas(tally):
    enums = [v for v in vars(descriptors).values() if isinstance(v, type) and issubclass(v, IntEnum)]
    for values in enums:
        if values is IntEnum:
            continue
        for name, member in values.__members__.items():
            if values.__name__ in LISTED_VALUES:
                value = LISTED_VALUES[values.__name__].get(name)
            else:
                plain = name.lstrip("_").removeprefix("TILE6_")
                value = getattr(mesa, PREFIX[values.__name__] + plain, None)
            tally.compare(f"{values.__name__}.{name}", int(member), value)
    tally.finish()


def test_fields_equal_mesas(tally, mesa_bits):
    for word in words():
        for name, field in word.FIELDS.items():
            full = f"{word.__name__}.{name}"
            prefix = f"A6XX_{MESA_WORD.get(word.__name__, word.__name__)}"
            bits = LISTED_FIELDS.get(full) or mesa_bits([prefix], name)
            tally.compare(full, (field.low, field.high), bits)
    tally.finish()


def test_every_word_has_its_dword(tally):
    for prefix, declared in {"TEX_CONST": TEXTURE_WORDS, "TEX_SAMP": SAMPLER_WORDS, "UBO": UBO_WORDS}.items():
        for index, word in enumerate(declared):
            tally.compare(word.__name__, index, getattr(mesa, f"REG_A6XX_{prefix}_{index}", None))
            assert word.__name__ == f"{prefix}_{index}"
    tally.finish()


def test_sizes_are_the_number_of_dwords_mesa_has():
    assert mesa.REG_A6XX_TEX_CONST_15 == 15 and not hasattr(mesa, "REG_A6XX_TEX_CONST_16")
    assert descriptors.TEXTURE_BYTES == 16 * 4
    assert mesa.REG_A6XX_TEX_SAMP_3 == 3 and not hasattr(mesa, "REG_A6XX_TEX_SAMP_4")
    assert descriptors.SAMPLER_BYTES == 4 * 4
    assert mesa.REG_A6XX_UBO_1 == 1 and not hasattr(mesa, "REG_A6XX_UBO_2")
    assert descriptors.UBO_BYTES == 2 * 4


def test_format_layouts(tally):
    for fmt, info in FORMATS.items():
        expected = LAYOUTS.get(fmt.name)
        tally.compare(fmt.name, info, FormatInfo(*expected) if expected else None)
    tally.finish()


def test_every_format_has_a_layout():
    assert set(FORMATS) == set(Format)


def test_texel_sizes():
    assert FORMATS[Format._32_32_32_32_FLOAT].texel_bytes == 16
    assert FORMATS[Format._10_10_10_2_UNORM].texel_bytes == 4
    assert FORMATS[Format._16_16_FLOAT].bits_per_component == 16
    with pytest.raises(ValueError, match="different widths"):
        _ = FORMATS[Format._11_11_10_FLOAT].bits_per_component


def test_border_colour_entry(tally):
    for name, *_ in BORDER_COLOR._fields_:
        tally.compare(name, getattr(BORDER_COLOR, name).offset, BORDER_OFFSETS.get(name))
    assert ctypes.sizeof(BORDER_COLOR) == descriptors.BORDER_COLOR_BYTES == 128
    tally.finish()


# ----- packing -----------------------------------------------------------------------------------


@given(images())
def test_texture_descriptors_are_tinygrads_byte_for_byte(image):
    assert pack_texture(*image) == tinygrad_descriptor(*image, written=False)


@given(images())
def test_uav_descriptors_are_tinygrads_byte_for_byte(image):
    assert pack_uav(*image) == tinygrad_descriptor(*image, written=True)


def test_the_sampler_is_tinygrads():
    border = mesa.A6XX_TEX_CLAMP_TO_BORDER
    dwords = (
        qreg.a6xx_tex_samp_0(wrap_s=border, wrap_t=border, wrap_r=border),
        qreg.a6xx_tex_samp_1(unnorm_coords=True, cubemapseamlessfiltoff=True),
        0,
        0,
    )
    assert pack_sampler() == struct.pack("<4I", *dwords) == struct.pack("<4I", 0x1B60, 0x30, 0, 0)


def test_first_dwords_of_known_descriptors():
    assert pack_texture(0x1000, 64, 64, "float32")[:4] == struct.pack("<I", 0x20806888)
    assert pack_uav(0x1000, 64, 64, "float32")[:4] == struct.pack("<I", 0x20800000)
    assert pack_uav(0x1000, 64, 64, "float16")[:4] == struct.pack("<I", 0x18800000)


@given(images())
def test_a_packed_texture_unpacks_to_the_same_image(image):
    address, width, height, dtype = image
    texture = unpack_texture(pack_texture(*image))
    assert (texture.address, texture.width, texture.height) == (address, width, height)
    assert texture.pitch == image_pitch(width, height, dtype) == width * texture.info.texel_bytes
    assert texture.info.kind == "float" and texture.info.bits_per_component == int(dtype[-2:])
    assert texture.swizzle == (Swizzle.X, Swizzle.Y, Swizzle.Z, Swizzle.W)
    assert (texture.type, texture.swap) == (TextureType.TEX_2D, ColorSwap.WZYX)


@given(images())
def test_a_packed_uav_unpacks_to_the_same_image(image):
    address, width, height, _ = image
    texture = unpack_texture(pack_uav(*image))
    assert (texture.address, texture.width, texture.height) == (address, width, height)


@given(st.integers(1, MAX_IMAGE_SIZE), st.integers(2, MAX_IMAGE_SIZE), st.sampled_from(sorted(IMAGE_DTYPES)))
def test_rows_that_are_not_64_byte_multiples_are_refused(width, height, dtype):
    pitch = width * (8 if dtype == "float16" else 16)
    assume(pitch % 64)
    with pytest.raises(LaunchError, match=f"rows of {pitch} bytes"):
        pack_texture(0x1000, width, height, dtype)


@given(st.integers(1, MAX_IMAGE_SIZE), st.sampled_from(sorted(IMAGE_DTYPES)))
def test_a_single_row_may_have_any_width(width, dtype):
    assert unpack_texture(pack_texture(0x1000, width, 1, dtype)).width == width


@pytest.mark.parametrize(("width", "height"), [(0, 1), (64, 0), (16388, 4), (64, 16385), (-64, 4)])
def test_sizes_beyond_the_hardware_are_refused(width, height):
    with pytest.raises(LaunchError, match="each side must be 1 to 16384"):
        pack_uav(0x1000, width, height, "float32")


def test_other_texel_types_are_refused():
    with pytest.raises(LaunchError, match="image of int32"):
        pack_texture(0x1000, 64, 64, "int32")


@pytest.mark.parametrize("address", [0x1020, 0x1001, 1 << 49], ids=hex)
def test_addresses_that_the_descriptor_cannot_hold_are_refused(address):
    with pytest.raises(LaunchError, match=f"image at {address:#x}"):
        pack_texture(address, 64, 64, "float32")


# ----- unpacking ---------------------------------------------------------------------------------


def altered(index: int, dword: int) -> bytes:
    """A good texture descriptor with one dword replaced."""
    dwords = list(struct.unpack("<16I", pack_texture(0x1000, 64, 64, "float32")))
    dwords[index] = dword
    return struct.pack("<16I", *dwords)


@pytest.mark.parametrize(
    ("index", "dword", "message"),
    [
        (0, 0x20806888 | 1 << 2, "TEX_CONST_0.SRGB = 1 is not supported"),
        (0, 0x20806888 | 3, "TEX_CONST_0.TILE_MODE = 3 is not supported"),
        (0, 0x20806888 | 1 << 16, "TEX_CONST_0.MIPLVLS = 1 is not supported"),
        (0, 0x20806888 | 1 << 20, "TEX_CONST_0.SAMPLES = 1 is not supported"),
        (0, 0x20806888 & ~(0xFF << 22) | 160 << 22, "TEX_CONST_0.FMT = 160 is unknown"),
        (0, 0x20806888 & ~(0xFF << 22) | 8 << 22, "FMT = 8 is unknown"),  # 4_4_4_4_UNORM
        (0, 0x20806888 & ~(0xFF << 22) | 10 << 22, "FMT = 10 is unknown"),  # 5_5_5_1_UNORM
        (0, 0x20806888 & ~(0xFF << 22) | 14 << 22, "FMT = 14 is unknown"),  # 5_6_5_UNORM
        (0, 0x20806888 & ~(0xFF << 22) | 58 << 22, "FMT = 58 is unknown"),  # 10_10_10_2_UINT
        (0, 0x20806888 | 7 << 13, "TEX_CONST_0.SWIZ_W = 7 is unknown"),
        (1, 64 | 64 << 15 | 1 << 30, "TEX_CONST_1 = .* unknown bits 0x40000000"),
        (2, 5 << 29, "TEX_CONST_2.TYPE = 5 is not supported"),
        (2, 4 << 29 | 2 << 4, "TEX_CONST_2_BUFFER.STRUCTSIZETEXELS = 2 is not supported"),
        (2, 4 << 29 | 1 << 4 | 1, "TEX_CONST_2_BUFFER = .* unknown bits 0x1"),
        (2, 1 << 29 | 1 << 4, "TEX_CONST_2 = .* unknown bits 0x10"),
        (3, 1 << 28, "TEX_CONST_3.FLAG = 1 is not supported"),
        (4, 0x1010, "TEX_CONST_4 = .* unknown bits 0x10"),
        (6, 0x40000001, "TEX_CONST_6 = .* unknown bits 0x1"),
        (7, 1, "TEX_CONST_7.UNK0 = 1 is not supported"),
        (7, 1 << 5, "TEX_CONST_7.FLAG_LO = 1 is not supported"),
        (15, 5, "dword 15 = 0x5: it must be zero"),
    ],
)
def test_what_is_unknown_or_unsupported_is_named(index, dword, message):
    with pytest.raises(ValueError, match=message):
        unpack_texture(altered(index, dword))


def test_the_fields_of_other_linear_images_are_read():
    dwords = [0] * 16
    dwords[0] = Format._8_8_8_8_UNORM << 22 | ColorSwap.ZYXW << 30 | Swizzle.ONE << 13 | Swizzle.ZERO << 10
    dwords[1] = 100 | 30 << 15
    dwords[2] = TextureType.TEX_3D << 29 | 448 << 7
    dwords[3] = 5
    dwords[4] = 0x40
    dwords[5] = 0x1F | 7 << 17
    texture = unpack_texture(struct.pack("<16I", *dwords))
    assert (texture.width, texture.height, texture.depth, texture.pitch) == (100, 30, 7, 448)
    assert (texture.format, texture.type) == (Format._8_8_8_8_UNORM, TextureType.TEX_3D)
    assert (texture.swap, texture.swizzle) == (
        ColorSwap.ZYXW,
        (Swizzle.X, Swizzle.X, Swizzle.ZERO, Swizzle.ONE),
    )
    assert texture.address == 0x1F_0000_0040
    assert texture.array_pitch == 5 * 4096


def test_a_buffer_begins_at_its_start_offset():
    """As Mesa's fdl6_buffer_view_init makes it of 70000 halfs at 0x1_0000_1006."""
    dwords = [0] * 16
    dwords[0] = Format._16_UINT << 22 | Swizzle.Y << 7 | Swizzle.Z << 10 | Swizzle.W << 13
    dwords[1] = 70000 & 0x7FFF | (70000 >> 15) << 15
    dwords[2] = TextureType.TEX_BUFFER << 29 | 3 << 16 | 1 << 4
    dwords[4] = 0x1000
    dwords[5] = 1
    texture = unpack_texture(struct.pack("<16I", *dwords))
    assert (texture.address, texture.type) == (0x1_0000_1006, TextureType.TEX_BUFFER)
    assert (texture.height << 15 | texture.width, texture.pitch) == (70000, 0)


@given(st.binary(min_size=64, max_size=64))
def test_any_descriptor_unpacks_or_says_why_not(descriptor):
    try:
        texture = unpack_texture(descriptor)
    except ValueError as error:
        assert "TEX_CONST" in str(error) or "dword" in str(error)
        return
    assert texture.format in FORMATS


@pytest.mark.parametrize("size", [0, 4, 63, 65])
def test_a_texture_descriptor_of_another_size_is_refused(size):
    with pytest.raises(ValueError, match=f"has {size} bytes, expected 64"):
        unpack_texture(bytes(size))


def test_the_packed_sampler_unpacks_to_what_programs_use():
    sampler = unpack_sampler(pack_sampler())
    assert sampler == Sampler()
    assert sampler.wrap == (Wrap.CLAMP_TO_BORDER,) * 3
    assert sampler.unnormalised and not sampler.seamless_cube
    assert (sampler.mag, sampler.min) == (Filter.NEAREST, Filter.NEAREST)


def test_the_fields_of_other_samplers_are_read():
    word0 = Filter.LINEAR << 1 | Wrap.CLAMP_TO_EDGE << 5 | Wrap.MIRROR_REPEAT << 8 | (-128 & 0x1FFF) << 19 | 1
    word1 = 1 | 512 << 8 | 256 << 20
    word2 = ReductionMode.MAX | FastBorderColor.BORDER_COLOR_1_1_1_1 << 2 | 1 << 4 | 3 << 7
    sampler = unpack_sampler(struct.pack("<4I", word0, word1, word2, 0))
    assert sampler == Sampler(
        wrap=(Wrap.CLAMP_TO_EDGE, Wrap.MIRROR_REPEAT, Wrap.REPEAT),
        mag=Filter.LINEAR,
        unnormalised=False,
        seamless_cube=True,
        border=3 * 128,
        fast_border=FastBorderColor.BORDER_COLOR_1_1_1_1,
        min_lod=256,
        max_lod=512,
        clamp_result=True,
        lod_bias=-128,
        mip_linear_near=True,
        reduction=ReductionMode.MAX,
    )


@pytest.mark.parametrize(
    ("dwords", "message"),
    [
        ((7 << 5, 0, 0, 0), "TEX_SAMP_0.WRAP_S = 7 is unknown"),
        ((1 << 14, 0, 0, 0), "TEX_SAMP_0.ANISO = 1 is not supported"),
        ((0, 1 << 1, 0, 0), "TEX_SAMP_1.COMPARE_FUNC = 1 is not supported"),
        ((0, 1 << 7, 0, 0), "TEX_SAMP_1 = .* unknown bits 0x80"),
        ((0, 0, 1 << 5, 0), "TEX_SAMP_2.CHROMA_LINEAR = 1 is not supported"),
        ((0, 0, 3, 0), "TEX_SAMP_2.REDUCTION_MODE = 3 is unknown"),
        ((0, 0, 0, 1), "TEX_SAMP_3 = .* unknown bits 0x1"),
    ],
)
def test_what_is_unknown_in_a_sampler_is_named(dwords, message):
    with pytest.raises(ValueError, match=message):
        unpack_sampler(struct.pack("<4I", *dwords))


@given(st.binary(min_size=16, max_size=16))
def test_any_sampler_unpacks_or_says_why_not(descriptor):
    try:
        unpack_sampler(descriptor)
    except ValueError as error:
        assert "TEX_SAMP" in str(error)


def test_a_pitch_alignment_is_the_largest_power_of_two_in_the_pitch():
    for width in (4, 8, 12, 64, 1024, 16384):
        pitch = width * 16
        assert 64 << unpack_texture(pack_texture(0x1000, width, 4, "float32")).pitch_align == math.gcd(
            pitch, 1 << 30
        )
