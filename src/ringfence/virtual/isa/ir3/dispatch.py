"""A launch as the shader core sees it: code, geometry, constants, descriptors; no packets, no registers."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from ringfence.hardware.adreno.descriptors import BORDER_COLOR, FastBorderColor, Sampler, Texture
from ringfence.virtual.isa.ir3.unit import ImageSpec, SamplerSpec, Unit

UNUSED = 0xFC
VEC4_BYTES = 16
WIDEST_WAVE = 128

_BORDERS = {
    None: (0, 0, 0, 0),  # unless memory says otherwise
    FastBorderColor.BORDER_COLOR_0_0_0_0: (0, 0, 0, 0),
    FastBorderColor.BORDER_COLOR_0_0_0_1: (0, 0, 0, 1),
    FastBorderColor.BORDER_COLOR_1_1_1_0: (1, 1, 1, 0),
    FastBorderColor.BORDER_COLOR_1_1_1_1: (1, 1, 1, 1),
}


@dataclass(frozen=True, slots=True)
class UniformBuffer:
    """A uniform buffer (UBO) as its descriptor tells it: GPU ``address`` and size in ``vec4`` (16 bytes)."""

    address: int
    vec4: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One launch of an ir3 program.

    ``groups`` counts work-groups, ``local`` threads of a group, ``threads`` fibers of a wave (64 or 128).
    ``constants`` is the constant file (at most 4096 bytes). Footprints are vec4 counts. Register ids are
    ``num << 2 | component``, 0xFC means unused. ``private_bytes`` is per fiber. ``isam_mode`` is ``"gl"``
    or ``"cl"``. ``demote_constants``: a half constant is a demoted 32-bit word, else a 16-bit word. The
    program starts at instruction ``entry``. ``chip`` is the name of the chip that runs it. ``borders`` has
    for each sampler the bytes of the :class:`BORDER_COLOR` that it uses, ``None`` if none or transparent
    black.
    """

    name: str
    code: bytes
    groups: tuple[int, int, int]
    local: tuple[int, int, int]
    constants: bytes = b""
    full_registers: int = 48
    half_registers: int = 48
    merged: bool = False
    threads: int = 64
    workgroup_id_register: int = UNUSED
    local_id_register: int = UNUSED
    workgroup_size_register: int = UNUSED
    workgroup_offset_register: int = UNUSED
    linear_id_register: int = UNUSED
    shared_bytes: int = 0
    private_bytes: int = 0
    demote_constants: bool = True
    chip: str = "a630"
    entry: int = 0
    isam_mode: str = "gl"
    textures: tuple[Texture | None, ...] = ()
    uavs: tuple[Texture | None, ...] = ()
    samplers: tuple[Sampler | None, ...] = ()
    borders: tuple[bytes | None, ...] = ()
    ubos: tuple[UniformBuffer | None, ...] = ()
    global_offset: tuple[int, int, int] = (0, 0, 0)

    def unit(self, strict: bool, *, count: bool = False) -> Unit:
        """Return what determines the translation of this launch's code."""
        fibers = self.local[0] * self.local[1] * self.local[2]
        return Unit(
            code=self.code,
            merged=self.merged,
            wave=self.threads,
            demote=self.demote_constants,
            gl=self.isam_mode == "gl",
            strict=strict,
            workgroup_id=self.workgroup_id_register,
            local_id=self.local_id_register,
            workgroup_size=self.workgroup_size_register,
            workgroup_offset=self.workgroup_offset_register,
            linear_id=self.linear_id_register,
            textures=tuple(_image_spec(t) for t in self.textures),
            uavs=tuple(_image_spec(t) for t in self.uavs),
            samplers=tuple(
                _sampler_spec(s, b)
                for s, b in zip(self.samplers, self.borders or (None,) * len(self.samplers), strict=True)
            ),
            ubos=len(self.ubos),
            chip=self.chip,
            entry=self.entry,
            granule=min(fibers & -fibers, WIDEST_WAVE),
            count=count,
        )


@lru_cache(maxsize=1024)
def _image_spec(texture: Texture | None) -> ImageSpec | None:
    if texture is None:
        return None
    x, y, z, w = (int(s) for s in texture.swizzle)
    return ImageSpec(int(texture.format), (x, y, z, w), int(texture.swap), int(texture.type))


@lru_cache(maxsize=256)
def _sampler_spec(sampler: Sampler | None, border: bytes | None) -> SamplerSpec | None:
    if sampler is None:
        return None
    s, t, r = (int(w) for w in sampler.wrap)
    return SamplerSpec(
        wrap=(s, t, r),
        mag=int(sampler.mag),
        min=int(sampler.min),
        unnormalised=sampler.unnormalised,
        reduction=int(sampler.reduction),
        border=_BORDERS[sampler.fast_border],
        clamp=sampler.clamp_result,
        lod_bias=sampler.lod_bias,
        min_lod=sampler.min_lod,
        max_lod=sampler.max_lod,
        colour=None if border is None else (_bits(border, "fp32", "f"), _bits(border, "fp16", "e")),
    )


def _bits(border: bytes, name: str, kind: str) -> tuple[int, int, int, int]:
    """Return the bits, as f32, of the representation ``name`` of a border colour, as signed numbers."""
    colour = struct.unpack_from(f"<4{kind}", border, getattr(BORDER_COLOR, name).offset)
    x, y, z, w = struct.unpack("<4i", struct.pack("<4f", *colour))
    return x, y, z, w
