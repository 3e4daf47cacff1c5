"""Semantics of texel fetches and UAV accesses. Images are reached only through their descriptors.

The layout-defining part of a descriptor (format, swizzle, type) is part of the translation; size, pitch
and address come from a record per slot, :data:`RECORD`, which the executor fills at dispatch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ringfence.hardware.adreno.descriptors import FORMATS, Format, FormatInfo, TextureType
from ringfence.hardware.adreno.ir3 import Instruction, Operand
from ringfence.virtual.isa.ir3 import access, memory, texels
from ringfence.virtual.isa.ir3.code import refuse
from ringfence.virtual.isa.ir3.refused import missing_on
from ringfence.virtual.isa.ir3.texels import ALPHA, ONE, ZERO, Value
from ringfence.virtual.isa.ir3.translator import Semantics, Translator
from ringfence.virtual.isa.ir3.unit import ImageSpec
from ringfence.virtual.isa.simt import FAULT_IMAGE, Emitter

RECORD_FIELDS = ("host", "gpu", "width", "height", "depth", "pitch", "layer", "limit")  # u64 each
RECORD = {name: 8 * i for i, name in enumerate(RECORD_FIELDS)}
RECORD_BYTES = 8 * len(RECORD_FIELDS)
"""``host`` and ``gpu``: the first texel. ``limit``: bytes from there that are mapped for such accesses."""

OFFSET_LIMIT = 1 << 31  # bytes of an image
_HEIGHT_SHIFT = 15  # the length of an untyped buffer is width | height << 15 (Mesa's computerator/a6xx.c)
_CHANNEL_TYPES = {
    ("snorm", 8): 0,
    ("snorm", 16): 1,
    ("unorm", 8): 2,
    ("unorm", 16): 3,
    ("unorm", 10): 6,
    ("sint", 8): 7,
    ("sint", 16): 8,
    ("sint", 32): 9,
    ("uint", 8): 10,
    ("uint", 16): 11,
    ("uint", 32): 12,
    ("float", 16): 13,
    ("float", 32): 14,
    ("float", 11): 15,
}
"""What getinfo returns for a kind and the width of the first component (Mesa ir3-cat5.xml, A5xx and A6xx)."""

_CHANNEL_ORDERS = {1: 1, 2: 3, 3: 6, 4: 8}
_ALPHA_ORDER = 0


@dataclass(slots=True)
class Image:
    """An image of this program: what the translation knows and where its record is."""

    spec: ImageSpec
    info: FormatInfo
    record: str
    positions: tuple[int, ...]

    def field(self, t: Translator, name: str) -> str:
        """Return a field of the record, i64."""
        return t.s.new(f"load i64, ptr {t.s.at(self.record, RECORD[name])}, align 8")

    @property
    def is_buffer(self) -> bool:
        return self.spec.type == TextureType.TEX_BUFFER

    def size(self, t: Translator, name: str) -> str:
        """Return a field of the record, i32."""
        return t.s.new(f"load i32, ptr {t.s.at(self.record, RECORD[name])}, align 8")


@dataclass(frozen=True, slots=True)
class Texels:
    """Where texels are: ``offset`` bytes (i32, below 2^31 where one exists) from the pointer ``base``."""

    base: str
    offset: str

    def hosts(self, e: Emitter) -> str:
        """Return host addresses (i64)."""
        base = e.splat("i64", e.new(f"ptrtoint ptr {self.base} to i64"))
        return e.op("add", e.i64, e.cast("zext", self.offset, e.i32, e.i64), base)


def find_image(
    t: Translator, i: Instruction, table: str, slot: int, specs: tuple[ImageSpec | None, ...]
) -> Image:
    """Return the image in ``slot`` of the context's ``table``."""
    spec = specs[slot] if slot < len(specs) else None
    if spec is None:
        raise refuse(i, f"the launch loaded no descriptor for {table[:-1]} {slot} ({len(specs)} loaded)")
    info = FORMATS[Format(spec.format)]
    record = t.s.at(t.s.field(table, "ptr"), slot * RECORD_BYTES)
    return Image(spec, info, record, texels.memory_positions(i, spec, info))


def texture(t: Translator, i: Instruction, *, buffers: bool = False) -> Image:
    """Return the texture of a category-5 instruction. Those that do not take ``buffers`` refuse them."""
    for name in ("imm_offset", "is_vector"):
        if int(i.fields.get(name, 0)):
            raise refuse(i, f"the form with {name} is not implemented by the virtual GPU")
    image = _texture_or_buffer(t, i)
    kind = TextureType(image.spec.type)
    if image.is_buffer and not buffers:
        raise refuse(i, "buffers as textures are not implemented by the virtual GPU for this instruction")
    if kind == TextureType.TEX_CUBE or (kind == TextureType.TEX_3D) != bool(i.fields["is_3d"]):
        raise refuse(i, f"the instruction does not fit its texture, which is {kind.name}")
    if int(i.fields["is_array"]) and kind != TextureType.TEX_2D:
        raise refuse(i, f"arrays of {kind.name} are not implemented by the virtual GPU")
    return image


def _texture_or_buffer(t: Translator, i: Instruction) -> Image:
    if int(i.fields["s2en"]):
        raise refuse(i, "descriptors named by registers or bindless are not implemented by the virtual GPU")
    for name in ("is_shadow", "has_offset", "proj"):
        if int(i.fields.get(name, 0)):
            raise refuse(i, f"the form with {name} is not implemented by the virtual GPU")
    return find_image(t, i, "textures", int(i.fields["tex"]), t.unit.textures)


def dimensions(image: Image) -> int:
    """Return how many coordinates an image has, without the layer."""
    return {TextureType.TEX_2D: 2, TextureType.TEX_3D: 3}.get(TextureType(image.spec.type), 1)


def register(operand: Operand, offset: int) -> Operand:
    """Return the register ``offset`` after ``operand``."""
    return Operand(operand.kind, operand.num + offset, operand.half)


# --- addresses ---


def addresses(
    t: Translator, i: Instruction, image: Image, coordinates: list[str], e: Emitter
) -> tuple[Texels, str]:
    """Return where the texels are and the mask of the lanes whose texel exists, in the shape of ``e``.

    Offsets are 32 bits wide: the executor refuses images of 2 GiB and more. A texel inside the image but
    beyond mapped memory is a fault.
    """
    inside = t.mask if e.lanes > 1 else "true"
    offset = e.op("mul", e.i32, coordinates[0], e.splat("i32", str(image.info.texel_bytes)))
    for value, size, step in zip(coordinates, ("width", "height", "depth"), ("", "pitch", "layer")):
        bound = e.splat("i32", image.size(t, size))
        inside = e.op("and", e.mask, inside, e.new(f"icmp ult {e.i32} {value}, {bound}"))
        if step:
            stride = e.splat("i32", image.size(t, step))
            offset = e.op("add", e.i32, offset, e.op("mul", e.i32, value, stride))
    starts = t.s.binary("umin", "i64", _starts(t, image, image.info.texel_bytes), str(OFFSET_LIMIT))
    limit = e.splat("i32", t.s.cast("trunc", starts, "i64", "i32"))
    beyond = e.op("and", e.mask, e.new(f"icmp uge {e.i32} {offset}, {limit}"), inside)
    _fault_beyond(t, i, image, beyond, lambda: e.cast("zext", offset, e.i32, e.i64), e)
    return Texels(t.s.cast("inttoptr", image.field(t, "host"), "i64", "ptr"), offset), inside


def buffer_addresses(
    t: Translator, i: Instruction, image: Image, index: str, more: int, e: Emitter
) -> tuple[Texels, str]:
    """Return where texel number ``index`` (i32) + ``more`` of a buffer is, as :func:`addresses` does."""
    wide = e.cast("zext", index, e.i32, e.i64)
    wide = e.op("add", e.i64, wide, e.splat("i64", str(more))) if more else wide
    exists = e.new(f"icmp ult {e.i64} {wide}, {e.splat('i64', _elements(t, image))}")
    inside = e.op("and", e.mask, t.mask, exists) if e.lanes > 1 else exists
    offset = e.op("mul", e.i64, wide, e.splat("i64", str(image.info.texel_bytes)))
    starts = t.s.binary("umin", "i64", _starts(t, image, image.info.texel_bytes), str(OFFSET_LIMIT))
    late = e.new(f"icmp uge {e.i64} {offset}, {e.splat('i64', starts)}")
    _fault_beyond(t, i, image, e.op("and", e.mask, late, inside), lambda: offset, e)
    base = t.s.cast("inttoptr", image.field(t, "host"), "i64", "ptr")
    return Texels(base, e.cast("trunc", offset, e.i64, e.i32)), inside


def _starts(t: Translator, image: Image, length: int) -> str:
    """Return the number of mapped bytes of an image at which an access of ``length`` bytes may begin."""
    return t.s.binary("usub.sat", "i64", image.field(t, "limit"), str(length - 1))


def _fault_beyond(
    t: Translator, i: Instruction, image: Image, beyond: str, offset: Callable[[], str], e: Emitter
) -> None:
    """Leave with a fault where ``beyond``; ``offset`` emits byte offsets (i64) into the image."""
    v = t.v
    bad = beyond if e.lanes > 1 else v.op("and", v.mask, v.splat("i1", beyond), t.mask)

    def address() -> str:
        gpu = e.op("add", e.i64, offset(), e.splat("i64", image.field(t, "gpu")))
        return gpu if e.lanes > 1 else v.splat("i64", gpu)

    v.fault_if(bad, FAULT_IMAGE, i.pc, address)


def load_words(t: Translator, image: Image, texels_: Texels, inside: str, e: Emitter) -> list[str]:
    """Return the dwords of a texel (i32), zero where there is none."""
    size = image.info.texel_bytes
    if e.lanes == 1:
        host = e.select(inside, "i64", texels_.hosts(e), t.s.field("zeros"))
        if size < 4:
            return [memory.load_element(t, host, size, e)]
        pointer = e.cast("inttoptr", host, "i64", "ptr")
        return [e.new(f"load i32, ptr {e.at(pointer, 4 * k)}, align 4") for k in range(size // 4)]
    if size < 4:
        return [access.load_narrow(e, texels_.hosts(e), inside, size)]
    places = (access.Near(e.at(texels_.base, 4 * k), texels_.offset) for k in range(size // 4))
    return [e.gather(e.i32, access.pointers(e, place), inside, 4) for place in places]


# --- components ---


def put_component(t: Translator, i: Instruction, k: int, value: Value, e: Emitter) -> None:
    """Write a component to destination ``k`` in the instruction's type."""
    operand, (bits, real) = i.dsts[0], value
    if real and str(i.fields["type"]) == "f16":
        t.put(operand, k, e.cast("fptrunc", bits, e.f32, e.f16), e, "f16")
        return
    memory.put_element(t, operand, k, e.cast("bitcast", bits, e.f32, e.i32) if real else bits, e)


def component(e: Emitter, image: Image, words: list[str], wanted: int) -> Value:
    """Return component ``wanted`` of a texel without the swizzle: missing ones are 0, a missing alpha 1."""
    info = image.info
    if info.alpha_only and wanted < ZERO:
        wanted = 0 if wanted == ALPHA else ZERO
    if wanted < info.components:
        return texels.decode(e, info, words, image.positions[wanted])
    return texels.default(e, info, one=wanted in (ALPHA, ONE))


def swizzled(e: Emitter, image: Image, words: list[str], wanted: int) -> Value:
    """Return what the descriptor's swizzle puts into component ``wanted``."""
    return component(e, image, words, image.spec.swizzle[wanted])


# --- textures ---


def fetch(t: Translator, i: Instruction) -> None:
    """isam in GL mode: a texel by integer coordinates, level 0, no filter; zero outside the image."""
    if int(i.fields["is_vector"]):
        _fetch_elements(t, i)
        return
    image, e = texture(t, i, buffers=True), t.shape(i)
    coordinates = fetch_coordinates(t, i, image, e)
    if image.is_buffer:  # Mesa adds a second coordinate that is zero
        host, inside = buffer_addresses(t, i, image, coordinates[0], 0, e)
    else:
        host, inside = addresses(t, i, image, coordinates, e)
    words = load_words(t, image, host, inside, e)
    for k in range(4):
        if int(i.fields["wrmask"]) >> k & 1:
            put_component(t, i, k, swizzled(e, image, words, k), e)


def _fetch_elements(t: Translator, i: Instruction) -> None:
    """isam.v: component k is element coordinate + constant + k of a buffer; zero beyond its end.

    So Mesa reads SSBOs that are not written (``emit_readonly_load_uav`` of ir3_compiler_nir.c). The
    coordinate is one register.
    """
    if (why := missing_on(t.chip, "isam.v", "isam_v")) is not None:
        raise refuse(i, why)
    if int(i.fields["is_1d"]):
        raise refuse(i, "isam.v does not work with the bit that makes it .1d (Mesa ir3-cat5.xml)")
    image, e = _texture_or_buffer(t, i), t.shape(i)
    if (
        not image.is_buffer
        or image.info.components != 1
        or int(i.fields["is_3d"]) | int(i.fields["is_array"])
    ):
        kind = TextureType(image.spec.type).name
        raise refuse(i, f"isam.v reads buffers of one component, not a {kind} of {image.info.components}")
    index = t.wide(i.srcs[0], 0, e)
    values = []
    for k in _components(i):
        found, inside = buffer_addresses(t, i, image, index, int(i.fields["imm_offset"]) + k, e)
        words = load_words(t, image, found, inside, e)
        values.append(swizzled(e, image, words, 0))
    for k, value in zip(_components(i), values, strict=True):
        put_component(t, i, k, value, e)


def _components(i: Instruction) -> list[int]:
    return [k for k in range(4) if int(i.fields["wrmask"]) >> k & 1]


def fetch_coordinates(t: Translator, i: Instruction, image: Image, e: Emitter) -> list[str]:
    """Return the integer coordinates of an isam, and the layer of an array."""
    count = dimensions(image) + int(i.fields["is_array"])
    return [t.wide(register(i.srcs[0], d), 0, e, signed=True) for d in range(count)]


def texture_size(t: Translator, i: Instruction) -> None:
    """getsize: width, height and depth of a texture, whose only level is 0; the layers also as the fourth."""
    image = texture(t, i)
    for k, name in enumerate(("width", "height", "depth", "depth")):
        if int(i.fields["wrmask"]) >> k & 1:
            memory.put_element(t, i.dsts[0], k, t.v.splat("i32", image.size(t, name)), t.v)


def texture_info(t: Translator, i: Instruction) -> None:
    """getinfo: OpenCL's channel type and channel order, the number of levels and of samples."""
    image = texture(t, i)
    info = image.info
    kind = _CHANNEL_TYPES.get((info.kind, info.bits[0]))
    if kind is None or image.spec.swap:
        raise refuse(i, "what it returns for this image's format is not known")
    order = _ALPHA_ORDER if info.alpha_only else _CHANNEL_ORDERS[info.components]
    for k, value in enumerate((kind, order, 1, 1)):
        if int(i.fields["wrmask"]) >> k & 1:
            memory.put_element(t, i.dsts[0], k, t.v.splat("i32", str(value)), t.v)


# --- UAVs ---


def _uav(t: Translator, i: Instruction) -> Image:
    if str(i.fields["mode"]) != "imm" or int(i.fields.get("bindless", 0)):
        raise refuse(i, "only immediate UAV slots are implemented by the virtual GPU")
    if int(i.fields.get("offset", 0)):
        if (why := missing_on(t.chip, "coordinate offsets", "ssbo_offsets")) is not None:
            raise refuse(i, why)
        if int(i.fields["typed"]):
            raise refuse(i, "what a coordinate offset means for typed accesses is not known")
    return find_image(t, i, "uavs", int(i.fields["index"]), t.unit.uavs)


def _coordinates(t: Translator, i: Instruction) -> list[str]:
    return [t.wide(register(i.srcs[0], d), 0, t.v) for d in range(int(i.fields["dims"]))]


def _element_addresses(
    t: Translator, i: Instruction, image: Image, element: int, more: int = 0
) -> tuple[str, str]:
    """Return addresses of element number coordinate + ``more``, of ``element`` bytes, of an untyped UAV."""
    v = t.v
    if int(i.fields["dims"]) != 1:
        raise refuse(i, "untyped accesses have one coordinate")
    wide = v.cast("zext", _coordinates(t, i)[0], v.i32, v.i64)
    wide = v.op("add", v.i64, wide, v.splat("i64", str(more))) if more else wide
    total = v.splat("i64", _elements(t, image))
    inside = v.op("and", v.mask, v.new(f"icmp ult {v.i64} {wide}, {total}"), t.mask)
    offset = v.op("mul", v.i64, wide, v.splat("i64", str(element)))
    starts = v.splat("i64", _starts(t, image, element))
    beyond = v.op("and", v.mask, v.new(f"icmp uge {v.i64} {offset}, {starts}"), inside)
    _fault_beyond(t, i, image, beyond, lambda: offset, v)
    return v.op("add", v.i64, offset, v.splat("i64", image.field(t, "host"))), inside


def _elements(t: Translator, image: Image) -> str:
    high = t.s.op("shl", "i64", image.field(t, "height"), str(_HEIGHT_SHIFT))
    return t.s.op("or", "i64", image.field(t, "width"), high)


def _texels(t: Translator, i: Instruction, image: Image) -> tuple[Texels, str]:
    coordinates = _coordinates(t, i)
    if image.is_buffer:
        return buffer_addresses(t, i, image, coordinates[0], 0, t.v)
    if len(coordinates) < dimensions(image):
        raise refuse(i, f"a UAV of type {TextureType(image.spec.type).name} has more coordinates")
    return addresses(t, i, image, coordinates, t.v)


def _texel_addresses(t: Translator, i: Instruction, image: Image) -> tuple[str, str]:
    """Return the host addresses (i64) of texels, and which of them exist."""
    found, inside = _texels(t, i, image)
    return found.hosts(t.v), inside


def load(t: Translator, i: Instruction) -> None:
    """ldib: a typed texel or an untyped element of a UAV; zero outside."""
    v, image, count = t.v, _uav(t, i), int(i.fields["components"])
    if int(i.fields["typed"]):
        found, inside = _texels(t, i, image)
        words = load_words(t, image, found, inside, v)
        for k in range(count):
            put_component(t, i, k, component(v, image, words, k), v)
        return
    size, offset = memory.element_bytes(i), int(i.fields["offset"])
    elements = []
    for k in range(count):
        host, inside = _element_addresses(t, i, image, size, offset + k)
        with t.restricted(inside):
            elements.append(memory.load_element(t, host, size, v))
    for k, element in enumerate(elements):
        memory.put_element(t, i.dsts[0], k, element, v)


def store(t: Translator, i: Instruction) -> None:
    """stib: to a typed texel or an untyped element of a UAV; dropped outside."""
    image, data, count = _uav(t, i), i.srcs[1], int(i.fields["components"])
    if int(i.fields["typed"]):
        host, inside = _texel_addresses(t, i, image)
        with t.restricted(inside):
            for k, word in enumerate(_texel_words(t, image, data, count)):
                memory.store_element(t, _plus(t, host, 4 * k), word, min(4, image.info.texel_bytes))
        return
    size, offset = memory.element_bytes(i), int(i.fields["offset"])
    for k in range(count):
        host, inside = _element_addresses(t, i, image, size, offset + k)
        with t.restricted(inside):
            memory.store_element(t, host, memory.data_element(t, data, k), size)


def _plus(t: Translator, host: str, offset: int) -> str:
    return host if not offset else t.v.op("add", t.v.i64, host, t.v.splat("i64", str(offset)))


def _texel_words(t: Translator, image: Image, data: Operand, count: int) -> list[str]:
    """Return the dwords of a texel made from the components in ``data``, converted to the format."""
    v, info = t.v, image.info

    def bits(position: int) -> str:
        k = ALPHA if info.alpha_only else image.positions.index(position)
        if k >= count:
            return "zeroinitializer"
        if info.kind in ("uint", "sint"):
            return memory.data_element(t, data, k)
        return texels.encode(v, info, t.real(register(data, k), 0, v), position)

    return texels.pack(v, info, bits)


def atomic(t: Translator, i: Instruction) -> None:
    """atomic.b: on a dword of a UAV. Its vector holds old value, data and, for cmpxchg, the compare value.

    The order of data and compare value is that of the pair of local atomics (Mesa's ir3_a6xx.c).
    """
    v, image = t.v, _uav(t, i)
    if not int(i.fields["typed"]):
        host, inside = _element_addresses(t, i, image, 4)
    elif image.info.bits == (32,):
        host, inside = _texel_addresses(t, i, image)
    else:
        raise refuse(i, "atomics need texels of one 32-bit component")
    data = t.raw(i.srcs[1], 0, v, 1)
    compare = t.raw(i.srcs[1], 0, v, 2) if i.name.endswith("cmpxchg") else data
    address = v.op("sub", v.i64, host, v.splat("i64", image.field(t, "host")))
    address = v.op("add", v.i64, address, v.splat("i64", image.field(t, "gpu")))
    with t.restricted(inside):
        old = memory.run_atomic(t, i, address, host, data, compare)
    t.put(i.dsts[0], 0, v.select(inside, v.i32, old, v.splat("i32", "0")), v, "i32")


def resource_size(t: Translator, i: Instruction) -> None:
    """resinfo: width, height and depth of a UAV, or the number of elements of an untyped one."""
    v, image = t.v, _uav(t, i)
    values = [image.size(t, name) for name in ("width", "height", "depth")]
    if image.is_buffer or not int(i.fields["typed"]):
        values[0] = t.s.cast("trunc", _elements(t, image), "i64", "i32")
    for k, value in enumerate(values):
        memory.put_element(t, i.dsts[0], k, v.splat("i32", value), v)


_OPERATIONS = ("add", "sub", "xchg", "cmpxchg", "min", "max", "and", "or", "xor")

SEMANTICS: dict[str, Semantics] = {
    "ldib": load,
    "stib": store,
    "resinfo": resource_size,
    "getsize": texture_size,
    "getinfo": texture_info,
    **{f"atomic.b.{op}": atomic for op in _OPERATIONS},
}
