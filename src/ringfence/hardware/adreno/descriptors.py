"""Texture, UAV, sampler and UBO descriptors of the Adreno a6xx.

Names are those of Mesa 25.2 (``src/freedreno/registers/adreno/a6xx_descriptors.xml``, ``a6xx_enums.xml``)
without ``A6XX_``. A texture or UAV descriptor has 16 dwords, a sampler 4, a UBO 2. :func:`pack_texture`,
:func:`pack_uav` and :func:`pack_sampler` make the descriptors of the 2-D images that compute programs use,
equal to those of tinygrad's ``ops_qcom.py``, which copied them from the vendor's OpenCL driver;
:func:`unpack_texture` and :func:`unpack_sampler` read any descriptor of a linear image.
"""

import ctypes
import struct as _struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, Literal, TypeVar

from ringfence.errors import LaunchError
from ringfence.hardware.fields import U16, U32, Word, struct

TEXTURE_BYTES = 64
SAMPLER_BYTES = 16
UBO_BYTES = 8
BORDER_COLOR_BYTES = 128
MAX_IMAGE_SIZE = 16384
PITCH_ALIGNMENT = 64
BASE_ALIGNMENT = 64

# The vendor's driver stores these in every texture it makes; Mesa does not name the bits, and no effect on
# linear 2-D images is known. tinygrad's ops_qcom.py copies them.
VENDOR_PLANE_PITCH = 0x400000
VENDOR_FLAG = 13


# ----- values -----------------------------------------------------------------------------------


class TileMode(IntEnum):
    """``enum a6xx_tile_mode``."""

    LINEAR = 0
    TILE6_2 = 2
    TILE6_3 = 3


class TextureType(IntEnum):
    """``enum a6xx_tex_type``."""

    TEX_1D = 0
    TEX_2D = 1
    TEX_CUBE = 2
    TEX_3D = 3
    TEX_BUFFER = 4
    TEX_IMG_BUFFER = 5


class Swizzle(IntEnum):
    """Where a component of the result comes from (``enum a6xx_tex_swiz``)."""

    X = 0
    Y = 1
    Z = 2
    W = 3
    ZERO = 4
    ONE = 5


class ColorSwap(IntEnum):
    """Order of the components in memory (``enum a3xx_color_swap``); WZYX is memory order."""

    WZYX = 0
    WXYZ = 1
    ZYXW = 2
    XYZW = 3


class Samples(IntEnum):
    """Samples per texel (``enum a3xx_msaa_samples``)."""

    MSAA_ONE = 0
    MSAA_TWO = 1
    MSAA_FOUR = 2
    MSAA_EIGHT = 3


class Filter(IntEnum):
    """``enum a6xx_tex_filter``."""

    NEAREST = 0
    LINEAR = 1
    ANISO = 2
    CUBIC = 3


class Wrap(IntEnum):
    """What lies outside the image (``enum a6xx_tex_clamp``)."""

    REPEAT = 0
    CLAMP_TO_EDGE = 1
    MIRROR_REPEAT = 2
    CLAMP_TO_BORDER = 3
    MIRROR_CLAMP = 4


class Aniso(IntEnum):
    """``enum a6xx_tex_aniso``."""

    ANISO_1 = 0
    ANISO_2 = 1
    ANISO_4 = 2
    ANISO_8 = 3
    ANISO_16 = 4


class CompareFunction(IntEnum):
    """``enum adreno_compare_func``."""

    NEVER = 0
    LESS = 1
    EQUAL = 2
    LEQUAL = 3
    GREATER = 4
    NOTEQUAL = 5
    GEQUAL = 6
    ALWAYS = 7


class ReductionMode(IntEnum):
    """``enum a6xx_reduction_mode``."""

    AVERAGE = 0
    MIN = 1
    MAX = 2


class FastBorderColor(IntEnum):
    """Border colours that need no memory (``enum a6xx_fast_border_color``)."""

    BORDER_COLOR_0_0_0_0 = 0
    BORDER_COLOR_0_0_0_1 = 1
    BORDER_COLOR_1_1_1_0 = 2
    BORDER_COLOR_1_1_1_1 = 3


class Format(IntEnum):
    """Texel formats whose layout is known here (``enum a6xx_format``, there called FMT6_*).

    A name that would start with a digit has an underscore in front.
    """

    A8_UNORM = 2
    _8_UNORM = 3
    _8_SNORM = 4
    _8_UINT = 5
    _8_SINT = 6
    _8_8_UNORM = 15
    _8_8_SNORM = 16
    _8_8_UINT = 17
    _8_8_SINT = 18
    _16_UNORM = 21
    _16_SNORM = 22
    _16_FLOAT = 23
    _16_UINT = 24
    _16_SINT = 25
    _8_8_8_8_UNORM = 48
    _8_8_8_8_SNORM = 50
    _8_8_8_8_UINT = 51
    _8_8_8_8_SINT = 52
    _10_10_10_2_UNORM = 54
    _11_11_10_FLOAT = 66
    _16_16_UNORM = 67
    _16_16_SNORM = 68
    _16_16_FLOAT = 69
    _16_16_UINT = 70
    _16_16_SINT = 71
    _32_UNORM = 72
    _32_SNORM = 73
    _32_FLOAT = 74
    _32_UINT = 75
    _32_SINT = 76
    _16_16_16_16_UNORM = 96
    _16_16_16_16_SNORM = 97
    _16_16_16_16_FLOAT = 98
    _16_16_16_16_UINT = 99
    _16_16_16_16_SINT = 100
    _32_32_FLOAT = 103
    _32_32_UINT = 104
    _32_32_SINT = 105
    _32_32_32_UINT = 114
    _32_32_32_SINT = 115
    _32_32_32_FLOAT = 116
    _32_32_32_32_FLOAT = 130
    _32_32_32_32_UINT = 131
    _32_32_32_32_SINT = 132


Kind = Literal["unorm", "snorm", "uint", "sint", "float"]


@dataclass(frozen=True, slots=True)
class FormatInfo:
    """The layout of a texel.

    ``components`` of ``kind``, each with its own number of ``bits``, the first one in the lowest bits.
    ``alpha_only`` formats have one component that is read as W.
    """

    components: int
    bits: tuple[int, ...]
    kind: Kind
    alpha_only: bool = False

    @property
    def texel_bytes(self) -> int:
        return sum(self.bits) // 8

    @property
    def bits_per_component(self) -> int:
        """The common width of the components; ``ValueError`` if they differ (10_10_10_2, 11_11_10)."""
        if len(set(self.bits)) != 1:
            raise ValueError(f"components have different widths: {self.bits}")
        return self.bits[0]


def _format_info(fmt: Format) -> FormatInfo:
    *bits, kind = fmt.name.lstrip("_").removeprefix("A").split("_")
    widths = tuple(int(bit) for bit in bits)
    return FormatInfo(len(widths), widths, _KINDS[kind], fmt.name.startswith("A"))


_KINDS: dict[str, Kind] = {
    "UNORM": "unorm",
    "SNORM": "snorm",
    "UINT": "uint",
    "SINT": "sint",
    "FLOAT": "float",
}

FORMATS: dict[Format, FormatInfo] = {fmt: _format_info(fmt) for fmt in Format}


# ----- descriptor dwords ------------------------------------------------------------------------


class TEX_CONST_0(Word):
    TILE_MODE = 0, 1, TileMode
    SRGB = 2
    UNK3 = 3  # set in the vendor driver's textures
    SWIZ_X = 4, 6, Swizzle
    SWIZ_Y = 7, 9, Swizzle
    SWIZ_Z = 10, 12, Swizzle
    SWIZ_W = 13, 15, Swizzle
    MIPLVLS = 16, 19
    SAMPLES = 20, 21, Samples
    FMT = 22, 29, Format
    SWAP = 30, 31, ColorSwap


class TEX_CONST_1(Word):
    WIDTH = 0, 14
    HEIGHT = 15, 29
    MUTABLEEN = 31


class TEX_CONST_2(Word):
    """PITCH counts bytes per row, PITCHALIGN is log2 of its alignment in units of 64 bytes."""

    PITCHALIGN = 0, 3
    PITCH = 7, 28
    TYPE = 29, 31, TextureType


class TEX_CONST_2_BUFFER(Word):
    """The layout for TEX_BUFFER."""

    STRUCTSIZETEXELS = 4, 15
    STARTOFFSETTEXELS = 16, 21
    TYPE = 29, 31, TextureType


class TEX_CONST_3(Word):
    """ARRAY_PITCH counts 4096 bytes per layer."""

    ARRAY_PITCH = 0, 22
    MIN_LAYERSZ = 23, 26
    TILE_ALL = 27
    FLAG = 28


class TEX_CONST_4(Word):
    BASE_LO = 5, 31


class TEX_CONST_5(Word):
    BASE_HI = 0, 16
    DEPTH = 17, 29


class TEX_CONST_6(Word):
    """The layout of planar formats; others use TEX_CONST_6_LOD."""

    PLANE_PITCH = 8, 31


class TEX_CONST_6_LOD(Word):
    MIN_LOD_CLAMP = 0, 11


class TEX_CONST_7(Word):
    UNK0 = 0, 4  # 13 in the vendor driver's textures
    FLAG_LO = 5, 31


class TEX_CONST_8(Word):
    FLAG_HI = 0, 16


class TEX_CONST_9(Word):
    FLAG_BUFFER_ARRAY_PITCH = 0, 16


class TEX_CONST_10(Word):
    FLAG_BUFFER_PITCH = 0, 6
    FLAG_BUFFER_LOGW = 8, 11
    FLAG_BUFFER_LOGH = 12, 15


class TEX_SAMP_0(Word):
    """LOD_BIAS is signed with 8 fraction bits."""

    MIPFILTER_LINEAR_NEAR = 0
    XY_MAG = 1, 2, Filter
    XY_MIN = 3, 4, Filter
    WRAP_S = 5, 7, Wrap
    WRAP_T = 8, 10, Wrap
    WRAP_R = 11, 13, Wrap
    ANISO = 14, 16, Aniso
    LOD_BIAS = 19, 31


class TEX_SAMP_1(Word):
    """MAX_LOD and MIN_LOD are unsigned with 8 fraction bits."""

    CLAMPENABLE = 0
    COMPARE_FUNC = 1, 3, CompareFunction
    CUBEMAPSEAMLESSFILTOFF = 4
    UNNORM_COORDS = 5
    MIPFILTER_LINEAR_FAR = 6
    MAX_LOD = 8, 19
    MIN_LOD = 20, 31


class TEX_SAMP_2(Word):
    """BCOLOR is the offset of a border colour entry in units of 128 bytes."""

    REDUCTION_MODE = 0, 1, ReductionMode
    FASTBORDERCOLOR = 2, 3, FastBorderColor
    FASTBORDERCOLOREN = 4
    CHROMA_LINEAR = 5
    BCOLOR = 7, 31


class TEX_SAMP_3(Word):
    """No fields: zero."""


class UBO_0(Word):
    BASE_LO = 0, 31


class UBO_1(Word):
    """SIZE counts vec4."""

    BASE_HI = 0, 16
    SIZE = 17, 31


TEXTURE_WORDS: tuple[type[Word], ...] = (
    TEX_CONST_0,
    TEX_CONST_1,
    TEX_CONST_2,
    TEX_CONST_3,
    TEX_CONST_4,
    TEX_CONST_5,
    TEX_CONST_6,
    TEX_CONST_7,
    TEX_CONST_8,
    TEX_CONST_9,
    TEX_CONST_10,
)  # dwords 11 to 15 are zero
SAMPLER_WORDS: tuple[type[Word], ...] = (TEX_SAMP_0, TEX_SAMP_1, TEX_SAMP_2, TEX_SAMP_3)
UBO_WORDS: tuple[type[Word], ...] = (UBO_0, UBO_1)


@struct
class BORDER_COLOR(ctypes.Structure):
    """One border colour in every representation that a format may need (128 bytes)."""

    fp32: Annotated[Any, ctypes.c_float * 4]
    ui16: Annotated[Any, ctypes.c_uint16 * 4]
    si16: Annotated[Any, ctypes.c_int16 * 4]
    fp16: Annotated[Any, ctypes.c_uint16 * 4]
    rgb565: U16
    rgb5a1: U16
    rgba4: U16
    padding0: U16
    ui8: Annotated[Any, ctypes.c_uint8 * 4]
    si8: Annotated[Any, ctypes.c_int8 * 4]
    rgb10a2: U32
    z24: U32
    srgb: Annotated[Any, ctypes.c_uint16 * 4]
    padding1: Annotated[Any, ctypes.c_uint8 * 56]


# ----- textures and UAVs ------------------------------------------------------------------------

IMAGE_FORMATS: dict[str, Format] = {
    "float16": Format._16_16_16_16_FLOAT,
    "float32": Format._32_32_32_32_FLOAT,
}

_IMAGE_TYPES = (TextureType.TEX_1D, TextureType.TEX_2D, TextureType.TEX_CUBE, TextureType.TEX_3D)

IDENTITY = (Swizzle.X, Swizzle.Y, Swizzle.Z, Swizzle.W)


@dataclass(frozen=True, slots=True)
class Texture:
    """A linear image as a descriptor tells it.

    Sizes are in texels, ``pitch`` in bytes per row, ``array_pitch`` in bytes per layer. ``depth`` may be 0
    for a 2-D image. ``swizzle`` gives for each component of a fetched texel where it comes from; UAV
    accesses ignore it. A buffer (TEX_BUFFER) has ``height << 15 | width`` elements (Mesa's ``fd6_view.cc``)
    and no pitch.
    """

    address: int
    width: int
    height: int
    depth: int
    pitch: int
    format: Format
    swizzle: tuple[Swizzle, Swizzle, Swizzle, Swizzle] = IDENTITY
    swap: ColorSwap = ColorSwap.WZYX
    type: TextureType = TextureType.TEX_2D
    tile_mode: TileMode = TileMode.LINEAR
    array_pitch: int = 0
    pitch_align: int = 0

    @property
    def info(self) -> FormatInfo:
        return FORMATS[self.format]


def image_pitch(width: int, height: int, dtype: str) -> int:
    """Return the bytes per row of a 2-D four-component image; :class:`LaunchError` if it cannot be one.

    Rows follow each other without padding, so the pitch must be a multiple of 64 bytes unless there is only
    one row. ``dtype`` is ``"float16"`` or ``"float32"``.
    """
    if dtype not in IMAGE_FORMATS:
        raise LaunchError(f"image of {dtype}: only float16 and float32 texels are supported")
    if not 1 <= width <= MAX_IMAGE_SIZE or not 1 <= height <= MAX_IMAGE_SIZE:
        raise LaunchError(f"image of {width} x {height} texels: each side must be 1 to {MAX_IMAGE_SIZE}")
    texel_bytes = FORMATS[IMAGE_FORMATS[dtype]].texel_bytes
    pitch = width * texel_bytes
    if height > 1 and pitch % PITCH_ALIGNMENT:
        raise LaunchError(
            f"image of {width} x {height} {dtype} texels: its rows of {pitch} bytes are not a multiple of "
            f"{PITCH_ALIGNMENT} bytes; make the width a multiple of {PITCH_ALIGNMENT // texel_bytes}"
        )
    return pitch


def pack_texture(address: int, width: int, height: int, dtype: str) -> bytes:
    """Return the descriptor of a read-only 2-D four-component image.

    Sizes in texels; :class:`LaunchError` for sizes, types or addresses that the hardware cannot express.
    """
    dword0 = TEX_CONST_0.pack(
        UNK3=1,
        SWIZ_X=Swizzle.X,
        SWIZ_Y=Swizzle.Y,
        SWIZ_Z=Swizzle.Z,
        SWIZ_W=Swizzle.W,
        FMT=_image_format(dtype),
    )
    return _pack_image(dword0, address, width, height, dtype)


def pack_uav(address: int, width: int, height: int, dtype: str) -> bytes:
    """Return the descriptor of a written 2-D four-component image; errors as :func:`pack_texture`."""
    return _pack_image(TEX_CONST_0.pack(FMT=_image_format(dtype)), address, width, height, dtype)


def _image_format(dtype: str) -> Format:
    fmt = IMAGE_FORMATS.get(dtype)
    if fmt is None:
        raise LaunchError(f"image of {dtype}: only float16 and float32 texels are supported")
    return fmt


def _pack_image(dword0: int, address: int, width: int, height: int, dtype: str) -> bytes:
    pitch = image_pitch(width, height, dtype)
    if address % BASE_ALIGNMENT or address >> 49:
        raise LaunchError(
            f"image at {address:#x}: the address must be a multiple of {BASE_ALIGNMENT} below 2^49"
        )
    dwords = [0] * 16
    dwords[0] = dword0
    dwords[1] = TEX_CONST_1.pack(WIDTH=width, HEIGHT=height)
    dwords[2] = TEX_CONST_2.pack(TYPE=TextureType.TEX_2D, PITCH=pitch, PITCHALIGN=_pitch_align(pitch))
    dwords[4] = TEX_CONST_4.pack(BASE_LO=(address & 0xFFFFFFFF) >> 5)
    dwords[5] = TEX_CONST_5.pack(BASE_HI=address >> 32)
    dwords[6] = TEX_CONST_6.pack(PLANE_PITCH=VENDOR_PLANE_PITCH)
    dwords[7] = TEX_CONST_7.pack(UNK0=VENDOR_FLAG)
    return _struct.pack("<16I", *dwords)


def _pitch_align(pitch: int) -> int:
    """log2 of the largest power of two that divides the pitch, in units of 64 bytes."""
    return max((pitch & -pitch).bit_length() - 1 - 6, 0)


def unpack_texture(descriptor: bytes) -> Texture:
    """Return what a texture or UAV descriptor of a buffer or a linear, plain, single-sample image says.

    ``ValueError`` names the field and the value that is unknown or not supported.
    """
    dwords = _dwords(descriptor, TEXTURE_BYTES, "texture")
    for index, dword in enumerate(dwords[len(TEXTURE_WORDS) :], len(TEXTURE_WORDS)):
        if dword:
            raise ValueError(f"texture descriptor dword {index} = {dword:#x}: it must be zero")
    buffer = TEX_CONST_2_BUFFER.get(dwords[2], "TYPE") == TextureType.TEX_BUFFER
    layouts = (*TEXTURE_WORDS[:2], TEX_CONST_2_BUFFER, *TEXTURE_WORDS[3:]) if buffer else TEXTURE_WORDS
    const = [_fields(layout, dword) for layout, dword in zip(layouts, dwords)]
    _expect(TEX_CONST_0, const[0], TILE_MODE=(TileMode.LINEAR,), SRGB=(0,), MIPLVLS=(0,), SAMPLES=(0,))
    _expect(TEX_CONST_3, const[3], TILE_ALL=(0,), FLAG=(0,))
    _expect(TEX_CONST_7, const[7], FLAG_LO=(0,), UNK0=(0, VENDOR_FLAG))
    x, y, z, w = (_enum(Swizzle, TEX_CONST_0, const[0], f"SWIZ_{component}") for component in "XYZW")
    fmt = _enum(Format, TEX_CONST_0, const[0], "FMT")
    address = const[5]["BASE_HI"] << 32 | const[4]["BASE_LO"] << 5
    if buffer:
        _expect(TEX_CONST_2_BUFFER, const[2], STRUCTSIZETEXELS=(1,))
        _expect(TEX_CONST_3, const[3], ARRAY_PITCH=(0,), MIN_LAYERSZ=(0,))
        address += const[2]["STARTOFFSETTEXELS"] * FORMATS[fmt].texel_bytes
    else:
        _expect(TEX_CONST_2, const[2], TYPE=_IMAGE_TYPES)
    return Texture(
        address=address,
        width=const[1]["WIDTH"],
        height=const[1]["HEIGHT"],
        depth=const[5]["DEPTH"],
        pitch=const[2].get("PITCH", 0),
        format=fmt,
        swizzle=(x, y, z, w),
        swap=ColorSwap(const[0]["SWAP"]),
        type=TextureType(const[2]["TYPE"]),
        array_pitch=const[3]["ARRAY_PITCH"] << 12,
        pitch_align=const[2].get("PITCHALIGN", 0),
    )


# ----- samplers ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sampler:
    """A sampler as its descriptor tells it.

    ``wrap`` is for s, t, r. ``border`` is the offset in bytes of its entry in the border colour buffer, which
    ``fast_border``, a fixed colour, overrides. Levels of detail are in 1/256.
    """

    wrap: tuple[Wrap, Wrap, Wrap] = (Wrap.CLAMP_TO_BORDER,) * 3
    mag: Filter = Filter.NEAREST
    min: Filter = Filter.NEAREST
    unnormalised: bool = True
    seamless_cube: bool = False
    border: int = 0
    fast_border: FastBorderColor | None = None
    min_lod: int = 0
    max_lod: int = 0
    clamp_result: bool = False
    lod_bias: int = 0
    mip_linear_near: bool = False
    mip_linear_far: bool = False
    reduction: ReductionMode = ReductionMode.AVERAGE


def pack_sampler() -> bytes:
    """Return the sampler that programs use for images: nearest, clamp to border, coordinates in texels."""
    dword0 = TEX_SAMP_0.pack(
        WRAP_S=Wrap.CLAMP_TO_BORDER, WRAP_T=Wrap.CLAMP_TO_BORDER, WRAP_R=Wrap.CLAMP_TO_BORDER
    )
    dword1 = TEX_SAMP_1.pack(UNNORM_COORDS=1, CUBEMAPSEAMLESSFILTOFF=1)
    return _struct.pack("<4I", dword0, dword1, 0, 0)


def unpack_sampler(descriptor: bytes) -> Sampler:
    """Return what a sampler descriptor says; ``ValueError`` names what is unknown or not supported."""
    dwords = _dwords(descriptor, SAMPLER_BYTES, "sampler")
    word0, word1, word2, _ = (_fields(layout, dword) for layout, dword in zip(SAMPLER_WORDS, dwords))
    _expect(TEX_SAMP_0, word0, ANISO=(0,))
    _expect(TEX_SAMP_1, word1, COMPARE_FUNC=(0,))
    _expect(TEX_SAMP_2, word2, CHROMA_LINEAR=(0,))
    s, t, r = (_enum(Wrap, TEX_SAMP_0, word0, f"WRAP_{axis}") for axis in "STR")
    bias = word0["LOD_BIAS"]
    return Sampler(
        wrap=(s, t, r),
        mag=Filter(word0["XY_MAG"]),
        min=Filter(word0["XY_MIN"]),
        unnormalised=bool(word1["UNNORM_COORDS"]),
        seamless_cube=not word1["CUBEMAPSEAMLESSFILTOFF"],
        border=word2["BCOLOR"] * BORDER_COLOR_BYTES,
        fast_border=FastBorderColor(word2["FASTBORDERCOLOR"]) if word2["FASTBORDERCOLOREN"] else None,
        min_lod=word1["MIN_LOD"],
        max_lod=word1["MAX_LOD"],
        clamp_result=bool(word1["CLAMPENABLE"]),
        lod_bias=bias - (1 << 13) if bias >> 12 else bias,
        mip_linear_near=bool(word0["MIPFILTER_LINEAR_NEAR"]),
        mip_linear_far=bool(word1["MIPFILTER_LINEAR_FAR"]),
        reduction=_enum(ReductionMode, TEX_SAMP_2, word2, "REDUCTION_MODE"),
    )


# ----- what both share --------------------------------------------------------------------------

E = TypeVar("E", bound=IntEnum)


def _dwords(descriptor: bytes, size: int, what: str) -> tuple[int, ...]:
    if len(descriptor) != size:
        raise ValueError(f"{what} descriptor has {len(descriptor)} bytes, expected {size}")
    return _struct.unpack(f"<{size // 4}I", descriptor)


def _fields(layout: type[Word], dword: int) -> dict[str, int]:
    """The fields of a dword; ``ValueError`` if bits outside all fields are set."""
    if unknown := layout.unknown(dword):
        raise ValueError(f"{layout.__name__} = {dword:#010x}: unknown bits {unknown:#x} are set")
    return layout.unpack(dword)


def _expect(layout: type[Word], fields: dict[str, int], **supported: tuple[int, ...]) -> None:
    for name, values in supported.items():
        if fields[name] not in values:
            shown = ", ".join(str(int(value)) for value in values)
            raise ValueError(f"{layout.__name__}.{name} = {fields[name]} is not supported (only {shown})")


def _enum(values: type[E], layout: type[Word], fields: dict[str, int], name: str) -> E:
    try:
        return values(fields[name])
    except ValueError:
        raise ValueError(f"{layout.__name__}.{name} = {fields[name]} is unknown") from None
