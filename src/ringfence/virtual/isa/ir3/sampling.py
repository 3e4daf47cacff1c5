"""Semantics of what a sampler decides: isam in CL mode, isaml, sam, samb, saml and gather4.

Textures have one level. Filters are computed in f32, with more precision than a texture unit has.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from ringfence.hardware.adreno.descriptors import Filter, ReductionMode, Wrap
from ringfence.hardware.adreno.ir3 import Instruction
from ringfence.virtual.isa import functions
from ringfence.virtual.isa.ir3 import images, texels
from ringfence.virtual.isa.ir3.code import refuse
from ringfence.virtual.isa.ir3.images import Image
from ringfence.virtual.isa.ir3.texels import Value
from ringfence.virtual.isa.ir3.translator import Semantics, Translator
from ringfence.virtual.isa.ir3.unit import SamplerSpec
from ringfence.virtual.isa.simt import Emitter

AXES = ("width", "height", "depth")
LOD_UNIT = 256.0  # levels of detail and bias are in 1/256
GATHER_ORDER = (
    (0, 1),
    (1, 1),
    (1, 0),
    (0, 0),
)  # x, y of the texels of components x, y, z, w (OpenGL's order)
GATHERS = {"gather4r": 0, "gather4g": 1, "gather4b": 2, "gather4a": 3}


@dataclass(slots=True)
class _Source:
    """A texture, its sampler and the instruction that reads through them."""

    t: Translator
    i: Instruction
    image: Image
    sampler: SamplerSpec
    e: Emitter

    def size(self, axis: int) -> str:
        return self.e.splat("i32", self.image.size(self.t, AXES[axis]))


def _source(t: Translator, i: Instruction, e: Emitter) -> _Source:
    image, slot = images.texture(t, i), int(i.fields["samp"])
    sampler = t.unit.samplers[slot] if slot < len(t.unit.samplers) else None
    if sampler is None:
        raise refuse(i, f"the launch loaded no sampler {slot} ({len(t.unit.samplers)} loaded)")
    if sampler.clamp or sampler.reduction != ReductionMode.AVERAGE:
        raise refuse(i, "samplers that clamp or compare are not implemented by the virtual GPU")
    return _Source(t, i, image, sampler, e)


# --- coordinates ---


def _wrapped(s: _Source, index: str, axis: int) -> tuple[str, str]:
    """Return a texel index (i32) after wrapping, and the mask of the lanes that see a texel."""
    e, size, mode = s.e, s.size(axis), Wrap(s.sampler.wrap[axis])
    last = e.op("sub", e.i32, size, e.splat("i32", "1"))
    zero, everywhere = e.splat("i32", "0"), e.splat("i1", "true")
    if mode == Wrap.CLAMP_TO_BORDER:
        return index, e.new(f"icmp ult {e.i32} {index}, {size}")
    if mode == Wrap.REPEAT:
        return _modulo(e, index, size), everywhere
    if mode == Wrap.MIRROR_REPEAT:
        folded = _modulo(e, index, e.op("shl", e.i32, size, e.splat("i32", "1")))
        back = e.op("sub", e.i32, e.op("add", e.i32, size, last), folded)
        return e.binary("smin", e.i32, folded, back), everywhere
    if mode == Wrap.MIRROR_CLAMP:
        index = e.binary("smax", e.i32, index, e.op("xor", e.i32, index, e.splat("i32", "-1")))
    return e.binary("smin", e.i32, e.binary("smax", e.i32, index, zero), last), everywhere


def _modulo(e: Emitter, index: str, size: str) -> str:
    """Return ``index`` modulo ``size`` (at least 1), never negative."""
    safe = e.binary("umax", e.i32, size, e.splat("i32", "1"))
    rest = e.op("srem", e.i32, index, safe)
    negative = e.new(f"icmp slt {e.i32} {rest}, {e.splat('i32', '0')}")
    return e.select(negative, e.i32, e.op("add", e.i32, rest, safe), rest)


def _texel_position(s: _Source, axis: int) -> str:
    """Return coordinate ``axis`` in texels (f32)."""
    e = s.e
    value = s.t.real(images.register(s.i.srcs[0], axis), 0, e)
    if s.sampler.unnormalised:
        return value
    return e.op("fmul", e.f32, value, e.cast("uitofp", s.size(axis), e.i32, e.f32))


def _floor(e: Emitter, value: str) -> tuple[str, str]:
    """Return the floor as f32 and as i32; NaN gives 0."""
    whole = e.unary("floor", e.f32, value)
    index = e.call(e.i32, f"llvm.fptosi.sat.{e.suffix(e.i32)}.{e.suffix(e.f32)}", (e.f32, whole))
    return whole, index


def _layer(s: _Source) -> list[str]:
    """Return the clamped layer of an array; compilers add the half that rounds (Mesa ir3_compiler.c)."""
    if not int(s.i.fields["is_array"]):
        return []
    e, axis = s.e, images.dimensions(s.image)
    _, index = _floor(e, s.t.real(images.register(s.i.srcs[0], axis), 0, e))
    low = e.binary("smax", e.i32, index, e.splat("i32", "0"))
    return [e.binary("smin", e.i32, low, e.op("sub", e.i32, s.size(axis), e.splat("i32", "1")))]


# --- texels ---


def _texel(s: _Source, indices: list[str], layer: list[str], wanted: list[int]) -> list[Value]:
    """Return the swizzled components ``wanted`` of the texel at unwrapped ``indices``, or of the border."""
    pairs = [_wrapped(s, index, axis) for axis, index in enumerate(indices)]
    within = s.e.splat("i1", "true")
    for _, inside in pairs:
        within = s.e.op("and", s.e.mask, within, inside)
    return _read(s, [index for index, _ in pairs] + layer, within, wanted)


def _read(s: _Source, coordinates: list[str], within: str, wanted: list[int]) -> list[Value]:
    e = s.e
    found, inside = images.addresses(s.t, s.i, s.image, coordinates, e)
    words = images.load_words(s.t, s.image, found, inside, e)
    return [_or_border(s, images.swizzled(e, s.image, words, k), within, k) for k in wanted]


def _or_border(s: _Source, value: Value, within: str, wanted: int) -> Value:
    """Return ``value`` where the texel lies ``within`` the image, else the border colour of the component."""
    e, (bits, real) = s.e, value
    place = s.image.spec.swizzle[wanted]
    if place >= (4 if s.image.info.alpha_only else s.image.info.components):
        return value  # a constant, inside and outside
    return e.select(within, e.f32 if real else e.i32, bits, _border(s, place)), real


def _border(s: _Source, place: int) -> str:
    """Return component ``place`` of the border colour.

    An entry in memory has the colour in every form that some format reads (Mesa's ``struct bcolor_entry``);
    which of them a format reads is only plain for floats of 32 and of 16 bits.
    """
    e, info, colour = s.e, s.image.info, s.sampler.colour
    if colour is None:
        return texels.default(e, info, one=bool(s.sampler.border[place]))[0]
    if info.kind != "float" or info.bits[0] not in (32, 16):
        raise refuse(
            s.i,
            "border colours in memory are implemented by the virtual GPU for textures of 32-bit and 16-bit "
            f"floats, not for {info.kind} of {info.bits[0]} bits",
        )
    word = colour[0 if info.bits[0] == 32 else 1][place]
    return e.cast("bitcast", e.splat("i32", str(word)), e.i32, e.f32)


def _written(i: Instruction) -> list[int]:
    return [k for k in range(4) if int(i.fields["wrmask"]) >> k & 1]


# --- instructions ---


def fetch(t: Translator, i: Instruction) -> None:
    """isam: a texel by integer coordinates; outside the image zero, or in CL mode what the sampler says."""
    if t.unit.gl:
        images.fetch(t, i)
        return
    e = t.shape(i)
    s = _source(t, i, e)
    coordinates, axes = images.fetch_coordinates(t, i, s.image, e), images.dimensions(s.image)
    values = _texel(s, coordinates[:axes], coordinates[axes:], _written(i))
    for k, value in zip(_written(i), values, strict=True):
        images.put_component(t, i, k, value, e)


def fetch_level(t: Translator, i: Instruction) -> None:
    """isaml: a texel by integer coordinates of the level in the second source; zero beyond level 0."""
    e = t.shape(i)
    image = images.texture(t, i)
    if not t.unit.gl:
        raise refuse(i, "isaml in CL mode is not implemented by the virtual GPU")
    level = t.wide(i.srcs[1], 0, e)
    only = e.new(f"icmp eq {e.i32} {level}, {e.splat('i32', '0')}")
    found, inside = images.addresses(t, i, image, images.fetch_coordinates(t, i, image, e), e)
    words = images.load_words(t, image, found, e.op("and", e.mask, inside, only), e)
    for k in _written(i):
        images.put_component(t, i, k, images.swizzled(e, image, words, k), e)


def sample(t: Translator, i: Instruction) -> None:
    """sam, samb, saml: a filtered texel.

    What level of detail a compute kernel has implicitly is not known. It matters only if the sampler
    magnifies and minifies by different filters; then only saml, which names the level, is translated.
    """
    s = _source(t, i, t.v)
    values = _filtered(s, Filter(s.sampler.mag))
    if s.sampler.mag != s.sampler.min:
        minified, far = _minified(s), _filtered(s, Filter(s.sampler.min))
        values = [_select(s, minified, b, a) for a, b in zip(values, far, strict=True)]
    for k, value in zip(_written(i), values, strict=True):
        images.put_component(t, i, k, value, t.v)


def _select(s: _Source, mask: str, a: Value, b: Value) -> Value:
    return s.e.select(mask, s.e.f32 if a[1] else s.e.i32, a[0], b[0]), a[1]


def _minified(s: _Source) -> str:
    """Return the mask of the lanes whose level of detail is above 0."""
    if s.i.name != "saml":
        raise refuse(s.i, "the implicit level of detail decides on the filter, and it is not modelled")
    e, sampler = s.e, s.sampler
    lod = s.t.real(s.i.srcs[1], 0, e)
    biased = e.op("fadd", e.f32, lod, functions.constant(e, sampler.lod_bias / LOD_UNIT))
    low = e.binary("maxnum", e.f32, biased, functions.constant(e, sampler.min_lod / LOD_UNIT))
    clamped = e.binary("minnum", e.f32, low, functions.constant(e, sampler.max_lod / LOD_UNIT))
    return e.new(f"fcmp ogt {e.f32} {clamped}, zeroinitializer")


def _filtered(s: _Source, how: Filter) -> list[Value]:
    """Return the written components, filtered."""
    axes = range(images.dimensions(s.image))
    positions = [_texel_position(s, axis) for axis in axes]
    if how == Filter.NEAREST:
        return _texel(s, [_floor(s.e, x)[1] for x in positions], _layer(s), _written(s.i))
    if how != Filter.LINEAR or s.image.info.kind in ("uint", "sint"):
        raise refuse(
            s.i, f"filter {how.name} of {s.image.info.kind} texels is not implemented by the virtual GPU"
        )
    return _linear(s, positions)


def _linear(s: _Source, positions: list[str]) -> list[Value]:
    """Return the mean of the 2, 4 or 8 texels around a position, weighted by distance."""
    e, layer = s.e, _layer(s)
    corners = [_corner(e, x) for x in positions]
    sums = [functions.constant(e, 0.0) for _ in _written(s.i)]
    for offsets in product((0, 1), repeat=len(positions)):
        indices, weight = [], functions.constant(e, 1.0)
        for (index, fraction), offset in zip(corners, offsets, strict=True):
            indices.append(e.op("add", e.i32, index, e.splat("i32", str(offset))))
            part = fraction if offset else e.op("fsub", e.f32, functions.constant(e, 1.0), fraction)
            weight = e.op("fmul", e.f32, weight, part)
        texel = _texel(s, indices, layer, _written(s.i))
        sums = [e.fma(weight, value, total) for (value, _), total in zip(texel, sums, strict=True)]
    return [(total, True) for total in sums]


def _corner(e: Emitter, position: str) -> tuple[str, str]:
    """Return the index of the texel before a position, and how far the position is from its centre."""
    shifted = e.op("fsub", e.f32, position, functions.constant(e, 0.5))
    whole, index = _floor(e, shifted)
    return index, e.op("fsub", e.f32, shifted, whole)


def gather(t: Translator, i: Instruction) -> None:
    """gather4: one component of the four texels that a linear filter would use."""
    s = _source(t, i, t.v)
    if images.dimensions(s.image) != 2:
        raise refuse(i, "gathering is for two-dimensional textures")
    e = s.e
    corners = [_corner(e, _texel_position(s, axis))[0] for axis in range(2)]
    layer = _layer(s)
    for k in _written(i):
        steps = GATHER_ORDER[k]
        indices = [e.op("add", e.i32, c, e.splat("i32", str(d))) for c, d in zip(corners, steps, strict=True)]
        (value,) = _texel(s, indices, layer, [GATHERS[i.name]])
        images.put_component(t, i, k, value, e)


SEMANTICS: dict[str, Semantics] = {
    "isam": fetch,
    "isaml": fetch_level,
    **dict.fromkeys(("sam", "samb", "saml"), sample),
    **dict.fromkeys(GATHERS, gather),
}
