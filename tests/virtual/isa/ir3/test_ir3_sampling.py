"""What samplers decide: wrap modes, border colours, filters, gathering."""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace

import numpy as np
import pytest

from ringfence.hardware.adreno.descriptors import (
    BORDER_COLOR,
    FastBorderColor,
    Filter,
    Format,
    ReductionMode,
    Sampler,
    Swizzle,
    Texture,
    TextureType,
    Wrap,
)
from virtual.isa.ir3.harness import Array, Memory, Rows, covers, same, same_floats

WIDTH, HEIGHT, DEPTH, PITCH, LAYER = 5, 4, 3, 128, 4096
WRAPS = list(Wrap)
BORDERS = {
    None: (0, 0, 0, 0),
    FastBorderColor.BORDER_COLOR_0_0_0_1: (0, 0, 0, 1),
    FastBorderColor.BORDER_COLOR_1_1_1_0: (1, 1, 1, 0),
    FastBorderColor.BORDER_COLOR_1_1_1_1: (1, 1, 1, 1),
}


class Image:
    """A float image of ``DEPTH`` layers with numbers that differ."""

    def __init__(self, memory: Memory) -> None:
        rng = np.random.default_rng(1)
        self.values = rng.uniform(-1, 1, (DEPTH, HEIGHT, WIDTH, 4)).astype(np.float32)
        data = np.zeros((DEPTH, LAYER // 4), np.float32)
        for layer, row in np.ndindex(DEPTH, HEIGHT):
            start = row * PITCH // 4
            data[layer, start : start + 4 * WIDTH] = self.values[layer, row].ravel()
        address = memory.add(data)
        self.flat = Texture(address, WIDTH, HEIGHT, 0, PITCH, Format._32_32_32_32_FLOAT)
        self.layered = replace(self.flat, depth=DEPTH, array_pitch=LAYER)
        self.solid = replace(self.layered, type=TextureType.TEX_3D)
        self.line = replace(self.flat, type=TextureType.TEX_1D, height=1)

    def texel(self, sampler: Sampler, index: tuple[int, ...], layer: int = 0) -> Array:
        """Return the texel at (x[, y[, z]]) after wrapping, or the border colour."""
        wrapped = [wrap(sampler.wrap[a], i, n) for a, (i, n) in enumerate(zip(index, (WIDTH, HEIGHT, DEPTH)))]
        if None in wrapped:
            return np.array(BORDERS[sampler.fast_border], np.float32)
        x, y, z = (*wrapped, 0, 0)[:3] if len(wrapped) < 3 else wrapped
        return self.values[layer or z, y, x]


def wrap(mode: Wrap, index: int, size: int) -> int | None:
    """Return the texel index that an index means, ``None`` for the border."""
    match mode:
        case Wrap.REPEAT:
            return index % size
        case Wrap.CLAMP_TO_EDGE:
            return min(max(index, 0), size - 1)
        case Wrap.MIRROR_REPEAT:
            folded = index % (2 * size)
            return min(folded, 2 * size - 1 - folded)
        case Wrap.MIRROR_CLAMP:
            return min(index if index >= 0 else -1 - index, size - 1)
        case _:
            return index if 0 <= index < size else None


def nearest(image: Image, sampler: Sampler, position: tuple[float, ...], layer: int = 0) -> Array:
    return image.texel(sampler, tuple(math.floor(p) for p in position), layer)


def linear(image: Image, sampler: Sampler, position: tuple[float, ...], layer: int = 0) -> Array:
    total = np.zeros(4)
    for offsets in np.ndindex(*(2,) * len(position)):
        weight, index = 1.0, []
        for p, offset in zip(position, offsets, strict=True):
            base = math.floor(p - 0.5)
            fraction = p - 0.5 - base
            weight *= fraction if offset else 1 - fraction
            index.append(base + offset)
        total += weight * image.texel(sampler, tuple(index), layer)
    return total


def positions(seed: int, axes: int) -> list[Array]:
    """Return positions in texels, multiples of 1/16 so that they are exact, many outside."""
    rng = np.random.default_rng(seed)
    return [(rng.integers(-16 * 12, 16 * 18, 256) / 16).astype(np.float32) for _ in range(axes)]


def columns(values: list[Array]) -> dict[str, Array]:
    return {f"r1.{c}": v.view(np.uint32) for c, v in zip("xyzw", values)}


def result(results: dict[str, Array], register: str) -> Array:
    return np.stack([results[f"{register}.{c}"].view(np.float32) for c in "xyzw"], 1)


def place(register: str) -> list[str]:
    return [f"{register}.{c}" for c in "xyzw"]


@covers("sam")
@pytest.mark.parametrize("mode", WRAPS)
def test_nearest_sampling_wraps_each_axis(rows: Rows, mode: Wrap) -> None:
    memory = Memory()
    image = Image(memory)
    sampler = Sampler(
        wrap=(mode, Wrap.REPEAT, Wrap.CLAMP_TO_EDGE), fast_border=FastBorderColor.BORDER_COLOR_1_1_1_0
    )
    swapped = replace(sampler, wrap=(Wrap.CLAMP_TO_EDGE, mode, mode))
    at = positions(1, 3)
    body = """
        (sy)sam (f32)(xyzw)r2.x, r1.x, s#0, t#0
        sam (f32)(xyzw)r3.x, r1.x, s#1, t#0
        sam.3d (f32)(xyzw)r4.x, r1.x, s#1, t#1
        sam (f32)(xyzw)r5.x, r1.x, s#0, t#2
    """
    results = rows(
        body, columns(at), [p for n in range(2, 6) for p in place(f"r{n}")],
        textures=(image.flat, image.solid, image.line), samplers=(sampler, swapped), memory=memory,
    )  # fmt: skip
    for n, (x, y, z) in enumerate(zip(*at, strict=True)):
        assert (result(results, "r2")[n] == nearest(image, sampler, (x, y))).all()
        assert (result(results, "r3")[n] == nearest(image, swapped, (x, y))).all()
        assert (result(results, "r4")[n] == nearest(image, swapped, (x, y, z))).all()
        assert (result(results, "r5")[n] == nearest(image, sampler, (x,))).all()


@covers("sam", "saml", "samb")
@pytest.mark.parametrize("mode", WRAPS)
def test_linear_sampling_weights_the_texels_around(rows: Rows, mode: Wrap) -> None:
    memory = Memory()
    image = Image(memory)
    sampler = Sampler(wrap=(mode,) * 3, mag=Filter.LINEAR, min=Filter.LINEAR)
    at = positions(2, 3)
    lod = np.linspace(-4, 4, 256).astype(np.float32)
    body = """
        (sy)sam (f32)(xyzw)r2.x, r1.x, s#0, t#0
        sam.3d (f32)(xyzw)r3.x, r1.x, s#0, t#1
        saml (f32)(xyzw)r4.x, r1.x, r6.x, s#0, t#0
        samb (f32)(xyzw)r5.x, r1.x, r6.x, s#0, t#0
    """
    results = rows(
        body, {**columns(at), "r6.x": lod.view(np.uint32)}, [p for n in range(2, 6) for p in place(f"r{n}")],
        textures=(image.flat, image.solid), samplers=(sampler,), memory=memory,
    )  # fmt: skip
    flat = np.array([linear(image, sampler, (x, y)) for x, y in zip(at[0], at[1], strict=True)])
    solid = np.array([linear(image, sampler, p) for p in zip(*at, strict=True)])
    for register in ("r2", "r4", "r5"):
        assert np.abs(result(results, register) - flat).max() < 1e-6
    assert np.abs(result(results, "r3") - solid).max() < 1e-6


@covers("sam")
def test_normalised_coordinates_span_the_image(rows: Rows) -> None:
    memory = Memory()
    image = Image(memory)
    sampler = Sampler(wrap=(Wrap.REPEAT,) * 3, unnormalised=False)
    at = [
        (np.random.default_rng(k).integers(-40, 40, 256) / 16 + 1 / 64).astype(np.float32) for k in range(2)
    ]
    body = "(sy)sam (f32)(xyzw)r2.x, r1.x, s#0, t#0"
    results = rows(body, columns(at), place("r2"), textures=(image.flat,), samplers=(sampler,), memory=memory)
    for n, (x, y) in enumerate(zip(*at, strict=True)):
        expected = nearest(image, sampler, (float(x) * WIDTH, float(y) * HEIGHT))
        assert (result(results, "r2")[n] == expected).all()


@covers("sam")
def test_the_layer_of_an_array_is_cut_off_and_clamped(rows: Rows) -> None:
    memory = Memory()
    image = Image(memory)
    sampler = Sampler(wrap=(Wrap.CLAMP_TO_EDGE,) * 3)
    layer = np.array([-3, -0.1, 0, 0.9, 1, 1.6, 2.5, 3, 100, np.nan], np.float32)
    at = [np.full(10, 2.5, np.float32), np.full(10, 1.5, np.float32), layer]
    body = "(sy)sam.a (f32)(xyzw)r2.x, r1.x, s#0, t#0"
    results = rows(
        body, columns(at), place("r2"), textures=(image.layered,), samplers=(sampler,), memory=memory
    )
    chosen = [0, 0, 0, 0, 1, 1, 2, 2, 2, 0]
    assert (result(results, "r2") == image.values[chosen, 1, 2]).all()


@covers("saml")
def test_the_named_level_decides_between_magnifying_and_minifying_filters(rows: Rows) -> None:
    memory = Memory()
    image = Image(memory)
    sampler = Sampler(
        wrap=(Wrap.CLAMP_TO_EDGE,) * 3, mag=Filter.LINEAR, min=Filter.NEAREST, lod_bias=128, max_lod=4095
    )
    lod = np.array([-1, -0.5, -0.25, 0, 1], np.float32)  # the bias of 128 is half a level
    at = [np.full(5, 2.25, np.float32), np.full(5, 1.25, np.float32)]
    body = "(sy)saml (f32)(xyzw)r2.x, r1.x, r3.x, s#0, t#0"
    inputs = {**columns(at), "r3.x": lod.view(np.uint32)}
    results = rows(body, inputs, place("r2"), textures=(image.flat,), samplers=(sampler,), memory=memory)
    near, far = linear(image, sampler, (2.25, 1.25)), nearest(image, sampler, (2.25, 1.25))
    assert np.abs(result(results, "r2") - np.array([near, near, far, far, far])).max() < 1e-6


@covers("gather4r", "gather4g", "gather4b", "gather4a")
def test_gather_returns_one_component_of_four_texels(rows: Rows) -> None:
    memory = Memory()
    image = Image(memory)
    sampler = Sampler(wrap=(Wrap.REPEAT, Wrap.CLAMP_TO_EDGE, Wrap.REPEAT))
    swizzled = replace(image.flat, swizzle=(Swizzle.Z, Swizzle.Y, Swizzle.X, Swizzle.W))
    at = positions(4, 2)
    body = "(sy)nop\n" + "\n".join(
        f"gather4{c} (f32)(xyzw)r{2 + k}.x, r1.x, s#0, t#{int(c == 'b')}" for k, c in enumerate("rgba")
    )
    places = [p for n in range(2, 6) for p in place(f"r{n}")]
    textures = (image.flat, swizzled)
    results = rows(body, columns(at), places, textures=textures, samplers=(sampler,), memory=memory)
    for n, (x, y) in enumerate(zip(*at, strict=True)):
        i, j = math.floor(x - 0.5), math.floor(y - 0.5)
        corners = [image.texel(sampler, c) for c in ((i, j + 1), (i + 1, j + 1), (i + 1, j), (i, j))]
        for k, component in enumerate((0, 1, 0, 3)):  # the third is swizzled from z to x
            expected = [corner[component] for corner in corners]
            assert (result(results, f"r{2 + k}")[n] == expected).all()


@covers("isam")
@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize("mode", [Wrap.CLAMP_TO_BORDER, Wrap.CLAMP_TO_EDGE])
def test_isam_in_cl_mode_reads_the_border_or_the_edge(
    rows: Rows, mode: Wrap, border: FastBorderColor | None
) -> None:
    memory = Memory()
    image = Image(memory)
    sampler = Sampler(wrap=(mode,) * 3, fast_border=border)
    x, y = (np.random.default_rng(k).integers(-3, 9, 256).astype(np.int32) for k in (1, 2))
    body = "(sy)isam (f32)(xyzw)r2.x, r1.x, s#0, t#0"
    inputs = {"r1.x": x.view(np.uint32), "r1.y": y.view(np.uint32)}
    results = rows(
        body, inputs, place("r2"), textures=(image.flat,), samplers=(sampler,), memory=memory, isam_mode="cl"
    )
    for n in range(256):
        assert (result(results, "r2")[n] == image.texel(sampler, (int(x[n]), int(y[n])))).all()


COLOUR = np.array([0.25, -3.5, 1000.0, 0.1], np.float32)


def border_entry(colour: Array) -> bytes:
    """Return a border colour in memory as floats of 32 and of 16 bits."""
    entry = BORDER_COLOR(
        fp32=(ctypes.c_float * 4)(*colour),
        fp16=(ctypes.c_uint16 * 4)(*colour.astype(np.float16).view(np.uint16)),
    )
    return bytes(entry)


@covers("sam", "isam")
def test_a_border_colour_in_memory_lies_around_textures_of_floats(rows: Rows) -> None:
    memory = Memory()
    image = Image(memory)
    halves = np.zeros((HEIGHT, PITCH // 2), np.float16)
    halves[:, : 4 * WIDTH] = image.values[0].reshape(HEIGHT, -1)
    small = replace(image.flat, address=memory.add(halves), format=Format._16_16_16_16_FLOAT)
    turned = replace(image.flat, swizzle=(Swizzle.W, Swizzle.ONE, Swizzle.X, Swizzle.ZERO))
    body = """
        (sy)sam (f32)(xyzw)r2.x, r1.x, s#0, t#0
        sam (f32)(xyzw)r3.x, r1.x, s#0, t#1
        sam (f32)(xyzw)r4.x, r1.x, s#0, t#2
        isam (f32)(xyzw)r5.x, r1.z, s#0, t#0
    """
    x, y = (np.random.default_rng(k).integers(-3, 9, 256).astype(np.int32) for k in (3, 4))
    inputs = {**columns([x.astype(np.float32), y.astype(np.float32)])}
    inputs |= {"r1.z": x.view(np.uint32), "r1.w": y.view(np.uint32)}
    fields = {"borders": (border_entry(COLOUR),), "isam_mode": "cl", "memory": memory}
    results = rows(
        body, inputs, [p for n in range(2, 6) for p in place(f"r{n}")],
        textures=(image.flat, small, turned), samplers=(Sampler(),), **fields,
    )  # fmt: skip
    outside = (x < 0) | (x >= WIDTH) | (y < 0) | (y >= HEIGHT)
    inner = image.values[0][np.clip(y, 0, HEIGHT - 1), np.clip(x, 0, WIDTH - 1)]
    expected = np.where(outside[:, None], COLOUR, inner)
    assert (result(results, "r2") == expected).all()
    assert (result(results, "r3") == expected.astype(np.float16)).all()
    assert (result(results, "r4")[:, [0, 2]] == expected[:, [3, 0]]).all()
    assert (result(results, "r4")[:, [1, 3]] == [1, 0]).all()
    assert (result(results, "r5") == expected).all()


@pytest.mark.parametrize("fmt", [Format._8_8_8_8_UNORM, Format._32_UINT, Format._11_11_10_FLOAT])
def test_which_form_of_a_border_colour_other_formats_read_is_not_known(rows: Rows, fmt: Format) -> None:
    memory = Memory()
    image = replace(Image(memory).flat, format=fmt)
    fields = {"textures": (image,), "samplers": (Sampler(),), "borders": (border_entry(COLOUR),)}
    report, _ = rows.attempt("(sy)sam (f32)(x)r2.x, r1.x, s#0, t#0", {}, [], memory=memory, **fields)
    assert report is not None and report.kind == "illegal instruction"
    assert "border colours in memory" in report.message


@covers("isam")
def test_components_that_a_format_lacks_are_constant_on_the_border_too(rows: Rows) -> None:
    memory = Memory()
    data = np.full((1, 64), 7, np.uint8)
    texture = Texture(memory.add(data), 4, 1, 0, 64, Format._8_UINT)
    sampler = Sampler(fast_border=FastBorderColor.BORDER_COLOR_1_1_1_0)
    x = np.array([-1, 0, 3, 4], np.int32).view(np.uint32)
    body = "(sy)isam (u32)(xyzw)r2.x, r1.x, s#0, t#0"
    inputs = {"r1.x": x, "r1.y": np.zeros(4, np.uint32)}
    results = rows(
        body, inputs, place("r2"), textures=(texture,), samplers=(sampler,), memory=memory, isam_mode="cl"
    )
    same(results["r2.x"], np.array([1, 7, 7, 1]))
    for c, value in (("y", 0), ("z", 0), ("w", 1)):
        same(results[f"r2.{c}"], np.full(4, value))


@covers("sam")
def test_integer_textures_and_half_results(rows: Rows) -> None:
    memory = Memory()
    data = np.arange(256, dtype=np.uint8).reshape(4, 64)
    integers = Texture(memory.add(data), 16, 4, 0, 64, Format._8_8_8_8_UINT)
    floats = replace(integers, format=Format._8_8_8_8_UNORM)
    sampler = Sampler(wrap=(Wrap.CLAMP_TO_EDGE,) * 3)
    at = [np.arange(16, dtype=np.float32) + 0.5, np.ones(16, np.float32)]
    body = """
        (sy)sam (u32)(y)r2.x, r1.x, s#0, t#0
        sam (f16)(z)hr2.x, r1.x, s#0, t#1
    """
    textures = (integers, floats)
    results = rows(
        body, columns(at), ["r2.y", "hr2.z"], textures=textures, samplers=(sampler,), memory=memory
    )
    same(results["r2.y"], data[1].reshape(16, 4)[:, 1])
    same_floats(results["hr2.z"], (data[1].reshape(16, 4)[:, 2] / np.float32(255)).astype(np.float16))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"clamp_result": True}, "clamp or compare"),
        ({"reduction": ReductionMode.MIN}, "clamp or compare"),
        ({"reduction": ReductionMode.MAX}, "clamp or compare"),
        ({"mag": Filter.CUBIC, "min": Filter.CUBIC}, "filter CUBIC"),
        ({"mag": Filter.ANISO, "min": Filter.ANISO}, "filter ANISO"),
    ],
)
def test_samplers_that_are_not_modelled_are_refused(
    rows: Rows, fields: dict[str, object], reason: str
) -> None:
    memory = Memory()
    sampler = replace(Sampler(), **fields)  # type: ignore[arg-type]
    images = {"textures": (Image(memory).flat,), "samplers": (sampler,)}
    report, _ = rows.attempt("(sy)sam (f32)(x)r2.x, r1.x, s#0, t#0", {}, [], memory=memory, **images)
    assert report is not None and report.kind == "illegal instruction"
    assert reason in report.message
