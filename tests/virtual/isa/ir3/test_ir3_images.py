"""Texel fetches and UAV accesses: every format against plain Python, bounds, swizzles, shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from ringfence.hardware.adreno.descriptors import (
    FORMATS,
    ColorSwap,
    Format,
    FormatInfo,
    Sampler,
    Swizzle,
    Texture,
    TextureType,
)
from virtual.isa.ir3.harness import (
    FLOATS32,
    INTEGERS32,
    Array,
    Memory,
    Rows,
    covers,
    crossed,
    same,
    same_floats,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

WIDTH, HEIGHT, PITCH = 13, 9, 256
BATCHES = [list(FORMATS)[k : k + 8] for k in range(0, len(FORMATS), 8)]
IDENTITY = (Swizzle.X, Swizzle.Y, Swizzle.Z, Swizzle.W)
"""Images of a batch share a program; one has four destination registers."""


def register_type(info: FormatInfo) -> str:
    return {"uint": "u32", "sint": "s32"}.get(info.kind, "f32")


def decoded(info: FormatInfo, texel: bytes) -> list[float | int]:
    """Return the components of a texel, in the order of its bits."""
    number, values, low = int.from_bytes(texel, "little"), [], 0
    for bits in info.bits:
        values.append(_decoded_component(info.kind, bits, number >> low & (1 << bits) - 1))
        low += bits
    return values


def _decoded_component(kind: str, bits: int, raw: int) -> float | int:
    signed = raw - (1 << bits) if raw >> bits - 1 else raw
    if kind == "uint":
        return raw
    if kind == "sint":
        return signed
    if kind == "unorm":
        return float(np.float32(raw) / np.float32((1 << bits) - 1))
    if kind == "snorm":
        return float(max(np.float32(signed) / np.float32((1 << bits - 1) - 1), np.float32(-1)))
    if bits == 32:
        return float(np.uint32(raw).view(np.float32))
    return float(np.uint16(raw << 15 - bits if bits < 16 else raw).view(np.float16))


def components(info: FormatInfo, texel: bytes, swizzle: Sequence[int] = IDENTITY) -> list[float | int]:
    """Return what a fetch delivers: missing components are 0, a missing alpha is 1."""
    values = decoded(info, texel)
    full = [0, 0, 0, 1]
    if info.alpha_only:
        full[3], full[:3] = values[0], [0, 0, 0]
    else:
        full[: len(values)] = values
    return [(*full, 0, 1)[choice] for choice in swizzle]


def column(info: FormatInfo, values: Sequence[float | int]) -> Array:
    """Return component values as 32-bit registers."""
    if info.kind in ("uint", "sint"):
        return np.array([int(v) & 0xFFFFFFFF for v in values], np.uint32)
    return np.array(values, np.float32).view(np.uint32)


def random_image(fmt: Format, seed: int, rows: int = HEIGHT) -> Array:
    """Return random bytes; floats of them are all kinds of numbers."""
    return np.random.default_rng(seed).integers(0, 256, (rows, PITCH)).astype(np.uint8)


def texture(memory: Memory, fmt: Format, data: Array, **fields: object) -> Texture:
    base = Texture(memory.add(data), WIDTH, HEIGHT, 0, PITCH, fmt)
    return replace(base, **fields)  # type: ignore[arg-type]


def coordinates(seed: int, rows: int = 256) -> tuple[Array, Array]:
    """Return x and y, a few of them outside."""
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, WIDTH, rows), rng.integers(0, HEIGHT, rows)
    x[:6], y[:6] = (WIDTH, 0, -1, 5, 1 << 20, -(1 << 31)), (0, HEIGHT, 3, -1, 2, 1)
    return x.astype(np.uint32), y.astype(np.uint32)


def texel_at(info: FormatInfo, data: Array, x: int, y: int) -> bytes:
    if x >= WIDTH or y >= HEIGHT:
        return bytes(info.texel_bytes)
    return data[y, x * info.texel_bytes : (x + 1) * info.texel_bytes].tobytes()


def check(info: FormatInfo, actual: Array, expected: Array) -> None:
    if info.kind in ("uint", "sint"):
        same(actual, expected)
    else:
        same_floats(actual, expected.view(np.float32))


@covers("isam")
@pytest.mark.parametrize("formats", BATCHES, ids=lambda b: b[0].name)
def test_isam_converts_every_format_and_reads_zero_outside(rows: Rows, formats: Sequence[Format]) -> None:
    memory, images = Memory(), [random_image(f, k) for k, f in enumerate(formats)]
    textures = tuple(texture(memory, f, data) for f, data in zip(formats, images, strict=True))
    x, y = coordinates(1)
    lines = ["(sy)nop"]
    for k, fmt in enumerate(formats):
        lines.append(f"isam ({register_type(FORMATS[fmt])})(xyzw)r{4 + k}.x, r1.x, s#0, t#{k}")
    places = [f"r{4 + k}.{c}" for k in range(len(formats)) for c in "xyzw"]
    results = rows("\n".join(lines), {"r1.x": x, "r1.y": y}, places, textures=textures, memory=memory)
    for k, (fmt, data) in enumerate(zip(formats, images, strict=True)):
        info = FORMATS[fmt]
        texels = [components(info, texel_at(info, data, int(a), int(b))) for a, b in zip(x, y, strict=True)]
        for n, c in enumerate("xyzw"):
            check(info, results[f"r{4 + k}.{c}"], column(info, [t[n] for t in texels]))


@covers("isam")
@pytest.mark.parametrize("formats", BATCHES, ids=lambda b: b[0].name)
def test_isam_at_coordinates_that_all_fibers_share(rows: Rows, formats: Sequence[Format]) -> None:
    memory, images = Memory(), [random_image(f, 50 + k) for k, f in enumerate(formats)]
    textures = tuple(texture(memory, f, data) for f, data in zip(formats, images, strict=True))
    lines = [
        "mov.u32u32 r1.x, 7",
        "mov.u32u32 r1.y, 4",
        f"mov.u32u32 r1.z, {WIDTH}",
        "mov.u32u32 r1.w, 4",
        "(rpt5)nop",
    ]
    for k, fmt in enumerate(formats):
        kind = register_type(FORMATS[fmt])
        lines.append(f"isam ({kind})(xyzw)r{4 + 2 * k}.x, r1.x, s#0, t#{k}")
        lines.append(f"isam ({kind})(xyzw)r{5 + 2 * k}.x, r1.z, s#0, t#{k}")
    places = [f"r{4 + k}.{c}" for k in range(2 * len(formats)) for c in "xyzw"]
    results = rows("\n".join(lines), {}, places, textures=textures, memory=memory)
    for k, (fmt, data) in enumerate(zip(formats, images, strict=True)):
        info = FORMATS[fmt]
        for place, texel in ((4, texel_at(info, data, 7, 4)), (5, bytes(info.texel_bytes))):
            for n, c in enumerate("xyzw"):
                expected = column(info, [components(info, texel)[n]])
                check(info, results[f"r{place + 2 * k}.{c}"][:1], expected)


@covers("isam")
def test_the_swizzle_of_a_texture_chooses_components_zero_and_one(rows: Rows) -> None:
    swizzles = [
        (Swizzle.W, Swizzle.Z, Swizzle.Y, Swizzle.X),
        (Swizzle.ONE, Swizzle.X, Swizzle.ZERO, Swizzle.X),
        (Swizzle.Y, Swizzle.ZERO, Swizzle.W, Swizzle.ONE),
    ]
    formats = (Format._16_16_16_16_FLOAT, Format._8_8_UNORM, Format._32_SINT)
    memory, images = Memory(), [random_image(f, 9 + k) for k, f in enumerate(formats)]
    cases = [(f, s, k) for k, f in enumerate(formats) for s in swizzles]
    shared = [texture(memory, f, data) for f, data in zip(formats, images, strict=True)]
    textures = tuple(replace(shared[k], swizzle=s) for _, s, k in cases)
    x, y = coordinates(2)
    lines = ["(sy)nop"]
    for n, (fmt, _, _) in enumerate(cases):
        lines.append(f"isam ({register_type(FORMATS[fmt])})(xyzw)r{4 + n}.x, r1.x, s#0, t#{n}")
    places = [f"r{4 + n}.{c}" for n in range(len(cases)) for c in "xyzw"]
    results = rows("\n".join(lines), {"r1.x": x, "r1.y": y}, places, textures=textures, memory=memory)
    for n, (fmt, swizzle, k) in enumerate(cases):
        info = FORMATS[fmt]
        pairs = zip(x, y, strict=True)
        texels = [components(info, texel_at(info, images[k], int(a), int(b)), swizzle) for a, b in pairs]
        for m, c in enumerate("xyzw"):
            check(info, results[f"r{4 + n}.{c}"], column(info, [t[m] for t in texels]))


@covers("isam")
def test_isam_writes_only_masked_components_and_half_registers(rows: Rows) -> None:
    data = random_image(Format._16_16_16_16_FLOAT, 3)
    memory = Memory()
    floats = texture(memory, Format._16_16_16_16_FLOAT, data)
    integers = replace(floats, format=Format._16_16_16_16_UINT)
    x, y = coordinates(3)
    body = """
        (sy)mov.u32u32 r2.y, 77
        isam (f32)(xz)r2.x, r1.x, s#0, t#0
        isam (f16)(yw)hr3.x, r1.x, s#0, t#0
        isam (u16)(xyzw)hr4.x, r1.x, s#0, t#1
        cov.u32u16 hr1.x, r1.x
        cov.u32u16 hr1.y, r1.y
        (rpt2)nop
        isam (u32)(x)r5.x, hr1.x, s#0, t#1
    """
    places = ["r2.x", "r2.y", "r2.z", "hr3.y", "hr3.w", *(f"hr4.{c}" for c in "xyzw"), "r5.x"]
    results = rows(body, {"r1.x": x, "r1.y": y}, places, textures=(floats, integers), memory=memory)
    raw = [
        np.frombuffer(texel_at(floats.info, data, int(a), int(b)), np.uint16)
        for a, b in zip(x, y, strict=True)
    ]
    half = np.stack(raw).view(np.float16)
    same_floats(results["r2.x"], half[:, 0].astype(np.float32))
    same(results["r2.y"], np.full(256, 77))
    same_floats(results["r2.z"], half[:, 2].astype(np.float32))
    same_floats(results["hr3.y"], np.ascontiguousarray(half[:, 1]))
    same_floats(results["hr3.w"], np.ascontiguousarray(half[:, 3]))
    for n, c in enumerate("xyzw"):
        same(results[f"hr4.{c}"], half[:, n].view(np.uint16))
    inside = (x < WIDTH) & (y < HEIGHT)
    same(results["r5.x"][inside], half[inside, 0].view(np.uint16))


@covers("isam", "isaml")
def test_isam_of_one_and_three_dimensions_and_of_arrays(rows: Rows) -> None:
    data = np.random.default_rng(5).integers(0, 1 << 32, (4, 4096 // 4), dtype=np.uint32)
    memory = Memory()
    layered = texture(memory, Format._32_UINT, data, height=4, depth=3, array_pitch=4096, pitch=64)
    solid = replace(layered, type=TextureType.TEX_3D)
    line = replace(layered, type=TextureType.TEX_1D, height=1, depth=0)
    rng = np.random.default_rng(6)
    x, y, z = (rng.integers(0, n + 1, 256).astype(np.uint32) for n in (WIDTH, 4, 3))
    level = (np.arange(256, dtype=np.uint32) % 3 == 0).astype(np.uint32)
    body = """
        (sy)isam.3d (u32)(x)r2.x, r1.x, s#0, t#0
        isam.a (u32)(x)r2.y, r1.x, s#0, t#1
        isam.1d (u32)(x)r2.z, r1.x, s#0, t#2
        isaml (u32)(x)r2.w, r1.x, r3.x, s#0, t#3
    """
    flat = replace(layered, depth=0)
    inputs = {"r1.x": x, "r1.y": y, "r1.z": z, "r3.x": level}
    textures = (solid, layered, line, flat)
    results = rows(body, inputs, ["r2.x", "r2.y", "r2.z", "r2.w"], textures=textures, memory=memory)
    padded = np.zeros((4, 5, WIDTH + 1), np.uint32)
    padded[:3, :4, :WIDTH] = data[:3, :64].reshape(3, 4, 16)[:, :, :WIDTH]
    same(results["r2.x"], padded[z, y, x])
    same(results["r2.y"], padded[z, y, x])
    same(results["r2.z"], padded[0, 0, x])
    same(results["r2.w"], np.where(level == 0, padded[0, y, x], 0))


@pytest.mark.parametrize(
    ("instruction", "kind"),
    [("isam", TextureType.TEX_CUBE), ("sam", TextureType.TEX_CUBE), ("isam.a", TextureType.TEX_1D),
     ("sam.a", TextureType.TEX_1D), ("isam.3d", TextureType.TEX_2D), ("sam", TextureType.TEX_BUFFER),
     ("isaml", TextureType.TEX_BUFFER)],
)  # fmt: skip
def test_textures_of_other_kinds_are_refused(rows: Rows, instruction: str, kind: TextureType) -> None:
    memory = Memory()
    data = random_image(Format._32_FLOAT, 12)
    image = texture(memory, Format._32_FLOAT, data, type=kind, depth=6, array_pitch=4096)
    level = ", r3.x" if instruction == "isaml" else ""
    body = f"{instruction} (f32)(x)r2.x, r1.x{level}, s#0, t#0"
    report, _ = rows.attempt(body, {}, [], textures=(image,), samplers=(Sampler(),), memory=memory)
    assert report is not None and report.kind == "illegal instruction"
    assert kind.name in report.message or "buffers as textures" in report.message


# --- UAVs ---


@covers("ldib")
@pytest.mark.parametrize("formats", BATCHES, ids=lambda b: b[0].name)
def test_typed_ldib_converts_every_format(rows: Rows, formats: Sequence[Format]) -> None:
    memory, images = Memory(), [random_image(f, 100 + k) for k, f in enumerate(formats)]
    uavs = tuple(texture(memory, f, data) for f, data in zip(formats, images, strict=True))
    x, y = coordinates(4)
    lines = ["(sy)nop"]
    for k, fmt in enumerate(formats):
        lines.append(f"ldib.b.typed.2d.{register_type(FORMATS[fmt])}.4.imm r{4 + k}.x, r1.x, {k}")
    places = [f"r{4 + k}.{c}" for k in range(len(formats)) for c in "xyzw"]
    results = rows("\n".join(lines), {"r1.x": x, "r1.y": y}, places, uavs=uavs, memory=memory)
    for k, (fmt, data) in enumerate(zip(formats, images, strict=True)):
        info = FORMATS[fmt]
        texels = [components(info, texel_at(info, data, int(a), int(b))) for a, b in zip(x, y, strict=True)]
        for n, c in enumerate("xyzw"):
            check(info, results[f"r{4 + k}.{c}"], column(info, [t[n] for t in texels]))


def encoded(info: FormatInfo, values: Sequence[int]) -> bytes:
    """Return the texel for components given as 32-bit registers."""
    number, low = 0, 0
    chosen = [values[3]] if info.alpha_only else values
    for bits, value in zip(info.bits, chosen, strict=False):
        number |= _encoded_component(info.kind, bits, value) << low
        low += bits
    return number.to_bytes(info.texel_bytes, "little")


def _encoded_component(kind: str, bits: int, register: int) -> int:
    mask = (1 << bits) - 1
    if kind in ("uint", "sint"):
        return register & mask
    value = np.uint32(register).view(np.float32)
    if kind == "float":
        return _encoded_float(value, bits)
    if np.isnan(value):
        return 0
    low, scale = (-1, (1 << bits - 1) - 1) if kind == "snorm" else (0, mask)
    scaled = np.rint(np.clip(value, np.float32(low), np.float32(1)) * np.float32(scale))
    return max(min(int(scaled), scale), -scale) & mask


def _encoded_float(value: np.float32, bits: int) -> int:
    if bits == 32:
        return int(value.view(np.uint32))
    half = value.astype(np.float16)
    if bits == 16:
        return int(half.view(np.uint16))
    if np.isnan(value):
        return 0x7E00 >> 15 - bits
    if value <= 0:
        return 0
    if half > value:  # toward zero
        half = np.nextafter(half, np.float16(0))
    return int(half.view(np.uint16)) >> 15 - bits


@covers("stib")
@pytest.mark.parametrize("formats", BATCHES, ids=lambda b: b[0].name)
def test_typed_stib_converts_to_every_format_and_drops_what_is_outside(
    rows: Rows, formats: Sequence[Format]
) -> None:
    memory, images = Memory(), [np.full((HEIGHT, PITCH), 0xEE, np.uint8) for _ in formats]
    uavs = tuple(texture(memory, f, data) for f, data in zip(formats, images, strict=True))
    x, y = (
        grid.ravel().astype(np.uint32) for grid in np.meshgrid(np.arange(WIDTH + 2), np.arange(HEIGHT + 1))
    )
    special = np.array(
        [0, 1, -1, 0.5, 0.4999, -0.5, 1.5, -7, np.nan, 65504, 70000, 1e-5, np.inf, -np.inf, 3e38], np.float32
    )
    floats = {c: np.roll(np.resize(special, len(x)), k).view(np.uint32) for k, c in enumerate("xyzw")}
    integers = {c: np.resize(np.roll(INTEGERS32, k), len(x)) for k, c in enumerate("xyzw")}
    lines = ["(sy)nop"]
    for k, fmt in enumerate(formats):
        kind = register_type(FORMATS[fmt])
        lines.append(f"stib.b.typed.2d.{kind}.4.imm {'r2.x' if kind == 'f32' else 'r3.x'}, r1.x, {k}")
    inputs = {"r1.x": x, "r1.y": y}
    inputs |= {f"r2.{c}": v for c, v in floats.items()} | {f"r3.{c}": v for c, v in integers.items()}
    rows("\n".join(lines), inputs, [], uavs=uavs, memory=memory)
    for fmt, data in zip(formats, images, strict=True):
        info, expected = FORMATS[fmt], np.full((HEIGHT, PITCH), 0xEE, np.uint8)
        source = floats if register_type(info) == "f32" else integers
        for n in range(len(x)):
            if x[n] < WIDTH and y[n] < HEIGHT:
                texel = encoded(info, [int(source[c][n]) for c in "xyzw"])
                start = x[n] * info.texel_bytes
                expected[y[n], start : start + info.texel_bytes] = np.frombuffer(texel, np.uint8)
        assert np.array_equal(_without_nan(info, data), _without_nan(info, expected)), fmt.name


def _without_nan(info: FormatInfo, data: Array) -> Array:
    """Return texels with all NaN made the same one."""
    if info.kind != "float" or info.bits[0] < 16:
        return data
    values = data[:, : WIDTH * info.texel_bytes].copy().view(f"f{info.bits[0] // 8}")
    return np.where(np.isnan(values), np.nan, values).view(f"u{info.bits[0] // 8}")


@covers("stib", "ldib")
def test_half_registers_hold_components_of_typed_accesses(rows: Rows) -> None:
    memory, data = Memory(), np.zeros((HEIGHT, PITCH), np.uint8)
    image = texture(memory, Format._32_32_FLOAT, data)
    x = np.arange(WIDTH, dtype=np.uint32)
    half = crossed(FLOATS32, 1)[0][:WIDTH].view(np.float32).astype(np.float16)
    body = """
        (sy)mov.u32u32 r1.y, 2
        (rpt2)nop
        stib.b.typed.2d.f16.2.imm hr2.x, r1.x, 0
        ldib.b.typed.2d.f16.2.imm hr3.x, r1.x, 0
    """
    inputs = {"r1.x": x, "hr2.x": half.view(np.uint16), "hr2.y": half[::-1].copy().view(np.uint16)}
    results = rows(body, inputs, ["hr3.x", "hr3.y"], uavs=(image,), memory=memory)
    same_floats(results["hr3.x"], half)
    same_floats(results["hr3.y"], half[::-1].copy())
    stored = data[2].view(np.float32)[: 2 * WIDTH].reshape(WIDTH, 2)
    assert np.array_equal(stored[:, 0], half.astype(np.float32), equal_nan=True)


@covers("stib", "ldib", "isam")
def test_colour_swaps_reorder_the_components_in_memory(rows: Rows) -> None:
    memory = Memory()
    orders = {ColorSwap.WZYX: "xyzw", ColorSwap.WXYZ: "zyxw", ColorSwap.ZYXW: "wxyz", ColorSwap.XYZW: "wzyx"}
    data = [np.zeros((HEIGHT, PITCH), np.uint8) for _ in orders]
    images = tuple(
        texture(memory, Format._8_8_8_8_UINT, d, swap=s) for d, s in zip(data, orders, strict=True)
    )
    lines = ["mov.u32u32 r1.x, 3", "mov.u32u32 r1.y, 1"]
    lines += [f"mov.u32u32 r2.{c}, {10 + k}" for k, c in enumerate("xyzw")] + ["(rpt5)nop"]
    for k in range(4):
        lines.append(f"stib.b.typed.2d.u32.4.imm r2.x, r1.x, {k}")
        lines.append(f"ldib.b.typed.2d.u32.4.imm r{4 + k}.x, r1.x, {k}")
        lines.append(f"isam (u32)(xyzw)r{8 + k}.x, r1.x, s#0, t#{k}")
    places = [f"r{n}.{c}" for n in range(4, 12) for c in "xyzw"]
    results = rows("\n".join(lines), {}, places, uavs=images, textures=images, memory=memory, local=(1, 1, 1))
    for k, order in enumerate(orders.values()):
        assert data[k][1, 12:16].tolist() == [10 + "xyzw".index(c) for c in order]
        for n, c in enumerate("xyzw"):
            assert results[f"r{4 + k}.{c}"][0] == results[f"r{8 + k}.{c}"][0] == 10 + n


UNTYPED = {"u32": np.uint32, "f32": np.uint32, "u16": np.uint16, "f16": np.uint16, "u8": np.uint8}


@covers("ldib", "stib")
@pytest.mark.parametrize("kind", UNTYPED)
def test_untyped_accesses_count_elements(rows: Rows, kind: str) -> None:
    dtype = UNTYPED[kind]
    h = "" if kind.endswith("32") else "h"
    source = np.random.default_rng(7).integers(0, 256, 4096).astype(np.uint8)
    target, memory = np.zeros(200, dtype), Memory()
    base = {"depth": 0, "pitch": 0, "height": 0, "type": TextureType.TEX_1D, "format": Format._32_UINT}
    images = (
        replace(texture(memory, Format._32_UINT, source), **base | {"width": 150}),
        replace(texture(memory, Format._32_UINT, target), **base | {"width": 180}),
    )
    body = f"""
        (sy)ldib.b.untyped.1d.{kind}.2.imm {h}r2.x, r1.x, 0
        (sy)stib.b.untyped.1d.{kind}.1.imm {h}r2.y, r1.x, 1
    """
    index = np.arange(200, dtype=np.uint32)
    results = rows(body, {"r1.x": index}, [f"{h}r2.x", f"{h}r2.y"], uavs=images, memory=memory)
    elements = np.where(np.arange(300) < 150, source.view(dtype)[:300], 0)
    same(results[f"{h}r2.x"], elements[index])
    same(results[f"{h}r2.y"], elements[index + 1])
    expected = elements[index + 1].astype(dtype)
    expected[180:] = 0
    same(target, expected)


def buffer(memory: Memory, fmt: Format, data: Array, elements: int) -> Texture:
    """Return ``elements`` texels as Mesa's descriptors of storage buffers tell them."""
    low, high = elements & 0x7FFF, elements >> 15
    return Texture(memory.add(data), low, high, 0, 0, fmt, type=TextureType.TEX_BUFFER)


@covers("ldib", "stib")
@pytest.mark.parametrize("kind", UNTYPED)
def test_untyped_accesses_add_a_constant_to_the_coordinate(rows: Rows, kind: str) -> None:
    dtype, h = UNTYPED[kind], "" if kind.endswith("32") else "h"
    source = np.random.default_rng(8).integers(0, 256, 4096).astype(np.uint8)
    target, memory = np.zeros(400, dtype), Memory()
    uavs = (
        buffer(memory, Format._32_UINT, source, 300),
        buffer(memory, Format._32_UINT, target, 280),
    )
    body = f"""
        (sy)ldib.b.untyped.1d.{kind}.2.imm {h}r2.x, r1.x+127, 0
        (sy)stib.b.untyped.1d.{kind}.2.imm {h}r2.x, r1.x+5, 1
    """
    index = np.arange(0, 300, 2, dtype=np.uint32)
    index[-1] = 0xFFFFFFF0  # the sum does not wrap around
    fields = {"uavs": uavs, "memory": memory, "chip": "a660"}
    results = rows(body, {"r1.x": index}, [f"{h}r2.x", f"{h}r2.y"], **fields)
    elements = np.where(np.arange(600) < 300, source.view(dtype)[:600], 0).astype(dtype)
    first, second = elements[index[:-1] + 127], elements[index[:-1] + 128]
    same(results[f"{h}r2.x"], np.append(first, 0))
    same(results[f"{h}r2.y"], np.append(second, 0))
    expected = np.zeros(400, dtype)
    expected[5:303:2], expected[6:304:2] = first, second
    expected[280:] = 0
    same(target, expected)


# --- buffers as textures ---


@covers("isam")
@pytest.mark.parametrize("offset", [0, 5, 255])
@pytest.mark.parametrize(
    ("fmt", "dtype", "r"),
    [(Format._32_UINT, np.uint32, "r"), (Format._16_UINT, np.uint16, "hr")],
    ids=["32 bits", "16 bits"],
)
def test_isam_v_reads_consecutive_elements(rows: Rows, fmt: Format, dtype: type, r: str, offset: int) -> None:
    data = np.random.default_rng(9).integers(0, 1 << 16, 70_000).astype(dtype)
    memory, count = Memory(), 69_990
    image = buffer(memory, fmt, data, count)
    index = np.random.default_rng(10).integers(0, count, 256).astype(np.uint32)
    index[:6] = (count - 1, count - 2, count - offset - 3, count, 0xFFFFFFFF, 40_000)
    kind, where = ("u32" if r == "r" else "u16"), f"r1.x+{offset}" if offset else "r1.x"
    body = f"""
        (sy)isam.v ({kind})(xyzw){r}4.x, {where}, s#0, t#0
        isam.v ({kind})(xz){r}5.x, {where}, s#0, t#0
        mov.u32u32 r1.y, 1000
        (rpt2)nop
        isam.v ({kind})(xy){r}6.x, {where.replace("r1.x", "r1.y")}, s#0, t#0
    """
    places = [*(f"{r}4.{c}" for c in "xyzw"), f"{r}5.x", f"{r}5.z", f"{r}6.x", f"{r}6.y"]
    fields = {"textures": (image,), "memory": memory, "chip": "a643"}
    results = rows(body, {"r1.x": index}, places, **fields)

    def element(k: int) -> Array:
        at = index.astype(np.int64) + offset + k
        return np.where(at < count, data[np.minimum(at, count - 1)], 0)

    for k, c in enumerate("xyzw"):
        same(results[f"{r}4.{c}"], element(k))
    same(results[f"{r}5.x"], element(0))
    same(results[f"{r}5.z"], element(2))
    for k, c in enumerate("xy"):
        same(results[f"{r}6.{c}"], np.full(256, data[1000 + offset + k]))


def test_an_element_of_a_buffer_that_is_not_mapped_is_a_fault(rows: Rows) -> None:
    memory, data = Memory(), np.zeros(1024, np.uint32)
    image = buffer(memory, Format._32_UINT, data, 2000)
    index = np.array([0, 1020, 1021], np.uint32)
    body = "(sy)isam.v (u32)(xyzw)r2.x, r1.x, s#0, t#0"
    fields = {"textures": (image,), "memory": memory, "chip": "a660"}
    report, _ = rows.attempt(body, {"r1.x": index}, [], **fields)
    assert report is not None
    assert (report.kind, report.lane, report.address) == ("memory", 2, image.address + 4096)


@covers("ldib", "stib", "isam")
def test_accesses_to_buffers_convert_texels(rows: Rows) -> None:
    data = np.random.default_rng(11).integers(0, 256, (40_000, 4)).astype(np.uint8)
    copy, memory = np.zeros_like(data), Memory()
    uavs = tuple(buffer(memory, Format._8_8_8_8_UINT, d, 40_000) for d in (data, copy))
    body = """
        (sy)ldib.b.typed.1d.u32.4.imm r2.x, r1.x, 0
        mov.u32u32 r1.y, 0
        (rpt2)nop
        isam (f32)(xyzw)r3.x, r1.x, s#0, t#0
        (sy)stib.b.typed.1d.u32.4.imm r2.x, r1.x, 1
    """
    index = np.array([0, 1, 32_767, 32_768, 39_999, 40_000, 0xFFFFFFFF], np.uint32)
    fractions = replace(uavs[0], format=Format._8_8_8_8_UNORM)
    fields = {"uavs": uavs, "textures": (fractions,), "memory": memory}
    results = rows(body, {"r1.x": index}, ["r2.x", "r2.w", "r3.x", "r3.w"], **fields)
    inside = index[:5]
    for k, c in ((0, "x"), (3, "w")):
        component = np.append(data[inside, k], [0, 0])
        same(results[f"r2.{c}"], component)
        same_floats(results[f"r3.{c}"], component.astype(np.float32) / np.float32(255))
    assert np.array_equal(copy[inside], data[inside])
    copy[inside] = 0
    assert not copy.any()


# --- sizes ---


@covers("getsize", "resinfo", "getinfo")
def test_sizes_and_kinds_of_images(rows: Rows) -> None:
    memory = Memory()
    data = random_image(Format._8_8_UNORM, 1, 64)
    flat = texture(memory, Format._8_8_UNORM, data)
    solid = replace(flat, type=TextureType.TEX_3D, depth=5, format=Format._32_32_32_32_FLOAT)
    buffer = replace(flat, type=TextureType.TEX_1D, width=3, height=2)
    body = """
        mov.u32u32 r1.x, 0
        (rpt2)nop
        getsize (u32)(xyzw)r2.x, r1.x, t#0
        getsize.3d (u32)(xyzw)r3.x, r1.x, t#1
        getsize (u16)(xy)hr2.x, r1.x, t#0
        getinfo (u32)(xyzw)r4.x, t#0
        getinfo.3d (u32)(xyzw)r5.x, t#1
        resinfo.b.typed.3d.u32.1.imm r6.x, 1
        resinfo.b.untyped.1d.u32.1.imm r7.x, 2
    """
    places = [f"r{n}.{c}" for n in (2, 3, 4, 5) for c in "xyzw"]
    places += ["hr2.x", "hr2.y", "r6.x", "r6.y", "r6.z", "r7.x"]
    results = rows(body, {}, places, textures=(flat, solid), uavs=(None, solid, buffer), memory=memory)
    assert {p: int(v[0]) for p, v in results.items()} == {
        "r2.x": WIDTH, "r2.y": HEIGHT, "r2.z": 1, "r2.w": 1,
        "r3.x": WIDTH, "r3.y": HEIGHT, "r3.z": 5, "r3.w": 5,
        "r4.x": 2, "r4.y": 3, "r4.z": 1, "r4.w": 1,
        "r5.x": 14, "r5.y": 8, "r5.z": 1, "r5.w": 1,
        "hr2.x": WIDTH, "hr2.y": HEIGHT,
        "r6.x": WIDTH, "r6.y": HEIGHT, "r6.z": 5, "r7.x": 3 | 2 << 15,
    }  # fmt: skip


# --- faults ---


@pytest.mark.parametrize(
    "instruction",
    ["isam (f32)(xyzw)r2.x, r1.x, s#0, t#0", "ldib.b.typed.2d.f32.4.imm r2.x, r1.x, 0",
     "stib.b.typed.2d.f32.4.imm r2.x, r1.x, 0"],
)  # fmt: skip
def test_a_texel_of_an_image_that_is_not_wholly_mapped_is_a_fault(rows: Rows, instruction: str) -> None:
    memory, data = Memory(), np.zeros((4, PITCH), np.uint8)
    image = texture(memory, Format._32_32_32_32_FLOAT, data)  # HEIGHT is more than 4
    y = np.array([0, 3, 3, 4, 8], np.uint32)
    inputs = {"r1.x": np.ones(5, np.uint32), "r1.y": y}
    report, _ = rows.attempt(
        f"(sy){instruction}", inputs, [], textures=(image,), uavs=(image,), memory=memory
    )
    assert report is not None
    assert (report.kind, report.lane, report.address) == ("memory", 3, image.address + 4 * PITCH + 16)
    assert report.instruction == f"(sy){instruction}"


def test_stores_to_an_image_in_memory_that_is_not_writable_are_a_fault(rows: Rows) -> None:
    memory, data = Memory(), np.zeros((HEIGHT, PITCH), np.uint8)
    image = Texture(memory.add(data, writable=False), WIDTH, HEIGHT, 0, PITCH, Format._8_UINT)
    inputs = {"r1.x": np.ones(5, np.uint32), "r1.y": np.ones(5, np.uint32)}
    report, _ = rows.attempt(
        "(sy)stib.b.typed.2d.u32.1.imm r1.x, r1.x, 0", inputs, [], uavs=(image,), memory=memory
    )
    assert report is not None
    assert report.kind == "memory"
