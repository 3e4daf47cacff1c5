"""What determines the translation of an ir3 program: its code and the launch state that matters to it."""

from __future__ import annotations

import msgspec


class ImageSpec(msgspec.Struct, frozen=True):
    """The part of a texture or UAV descriptor that translated code depends on.

    The values are those of ``hardware/adreno/descriptors.py``.
    """

    format: int
    swizzle: tuple[int, int, int, int] = (0, 1, 2, 3)
    swap: int = 0
    type: int = 1


class SamplerSpec(msgspec.Struct, frozen=True):
    """The part of a sampler that translated code depends on.

    ``border``: the border colour, before the texture's swizzle. ``colour`` overrides it: the bits of a colour
    in memory, as signed numbers, for textures of 32-bit and of 16-bit floats. ``clamp``: results are clamped.
    Levels of detail and bias are in 1/256.
    """

    wrap: tuple[int, int, int]
    mag: int
    min: int
    unnormalised: bool
    reduction: int
    border: tuple[int, int, int, int]
    clamp: bool
    lod_bias: int
    min_lod: int
    max_lod: int
    colour: tuple[tuple[int, int, int, int], tuple[int, int, int, int]] | None = None


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """One translation unit. Register ids are ``num << 2 | component``; 0xFC means unused.

    ``wave`` is the number of fibers of a wave (64 or 128). ``demote``: half constants are demoted 32-bit
    words, else 16-bit words. ``gl``: texel fetches outside an image return zero, else the sampler decides.
    ``ubos`` counts the uniform buffers that are loaded. ``chip`` names the chip, which decides what
    instructions there are. Control starts at instruction ``entry``. ``granule``: a power of two that divides
    the number of fibers of a work-group; strips no wider than it have no missing lanes. ``count``: the code
    counts the instructions that it runs.
    """

    code: bytes
    merged: bool
    wave: int
    demote: bool
    gl: bool
    strict: bool
    workgroup_id: int
    local_id: int
    workgroup_size: int
    workgroup_offset: int
    linear_id: int
    textures: tuple[ImageSpec | None, ...] = ()
    uavs: tuple[ImageSpec | None, ...] = ()
    samplers: tuple[SamplerSpec | None, ...] = ()
    ubos: int = 0
    chip: str = "a630"
    entry: int = 0
    granule: int = 1
    count: bool = False
