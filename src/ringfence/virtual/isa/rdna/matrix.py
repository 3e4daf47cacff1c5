"""Semantics of the matrix instructions (WMMA): D = A * B + C, 16 x 16 tiles spread over a wave.

Lane L holds row L % 16 of A and column L % 16 of B, all 16 elements of k packed in its registers. Register
v of C and D in lane L is row 2v + L / 16 (wave64: 4v + L / 16), column L % 16. EXEC does not matter.
"""

from __future__ import annotations

from ringfence.hardware.amd.rdna import Instruction
from ringfence.virtual.isa.rdna.floats import extend
from ringfence.virtual.isa.rdna.packed import bf16, element, round_bf16
from ringfence.virtual.isa.rdna.translate import Semantics, Translator, constant_bits, vector_type
from ringfence.virtual.isa.simt import Emitter

SIZE = 16


def _registers(t: Translator) -> int:
    """Return the registers of an accumulator tile."""
    return SIZE * SIZE // t.wave


def _bit(i: Instruction, field: str, position: int) -> bool:
    return bool(int(i.fields.get(field, 0)) >> position & 1)


def _elements(t: Translator, e: Emitter, i: Instruction, position: int, kind: str) -> list[str]:
    """Return the 16 elements of A or B that a lane holds, as f32 or i32 lanes of shape ``e``."""
    first = i.srcs[position].num
    words = [_lower(t, e, t.vgpr(first + k)) for k in range(i.srcs[position].size)]
    if kind in ("u8", "u4"):
        bits = int(kind[1:])
        per, is_signed = 32 // bits, _bit(i, "neg_lo", position)
        return [element(e, words[k // per], k % per, bits, is_signed) for k in range(SIZE)]
    values = []
    with t.shape(e):
        for k in range(SIZE):
            word, high = words[k // 2], bool(k & 1)
            if kind == "bf16":
                value = bf16(t, word, high)
            else:
                value = extend(t, t.convert(e, t.half_of(word, high), "i16", "f16"))
            if _bit(i, "neg_hi" if high else "neg_lo", position):
                value = e.new(f"fneg {e.f32} {value}")
            values.append(value)
    return values


def _lower(t: Translator, e: Emitter, word: str) -> str:
    """Return the lower lanes of a register, as many as ``e`` has."""
    if e.lanes == t.wave:
        return word
    listed = ", ".join(f"i32 {k}" for k in range(e.lanes))
    return t.memo(
        ("lower", word),
        lambda: e.new(f"shufflevector {t.v.i32} {word}, {t.v.i32} poison, <{e.lanes} x i32> <{listed}>"),
    )


def _accumulators(t: Translator, i: Instruction, kind: str, high: bool) -> list[str]:
    """Return the registers of C as f32 or i32 lanes."""
    source = i.srcs[2]
    bits = constant_bits(source)
    values = []
    for k in range(_registers(t)):
        if bits is not None:
            value = t.constant("f32" if kind != "i32" else "i32", bits)
        elif kind == "f16":
            value = extend(t, t.vgpr16(source.num + k, high, "f16"))
        elif kind == "bf16":
            value = bf16(t, t.vgpr(source.num + k), high)
        else:
            value = t.vgpr(source.num + k, kind)
        if kind != "i32":
            if _bit(i, "neg_hi", 2):
                value = t.v.unary("fabs", t.v.f32, value)
            if _bit(i, "neg_lo", 2):
                value = t.v.new(f"fneg {t.v.f32} {value}")
        values.append(value)
    return values


def multiply(inputs: str, output: str) -> Semantics:
    """Return the semantics of D[row][column] += A[row][k] * B[k][column]."""

    def semantics(t: Translator, i: Instruction) -> None:
        a = _elements(t, Emitter(SIZE, t.v), i, 0, inputs)
        b = _elements(t, t.v, i, 1, inputs)
        high = _bit(i, "op_sel", 2)
        c = _accumulators(t, i, output, high)
        kind = "i32" if output == "i32" else "f32"
        results = _product(t, kind, a, b, c, clamp=bool(int(i.fields.get("clamp", 0))))
        for k, value in enumerate(results):
            _put(t, i.dsts[0].num + k, value, output, high)

    return semantics


def _product(t: Translator, kind: str, a: list[str], b: list[str], c: list[str], *, clamp: bool) -> list[str]:
    """Call the function that multiplies; matrices go through memory."""
    v = t.v
    name = f"multiply_{kind}{'_clamped' if clamp else ''}"
    if name not in t.helpers:
        t.helpers[name] = _function(name, kind, t.wave, clamp, v)
    vector = vector_type(v, kind)
    buffers = [t.alloca(f"matrix{k}", f"[{SIZE} x {v.i32}]") for k in range(3)]
    for e, buffer, values in zip((Emitter(SIZE, v), v, v), buffers, (a, b, c), strict=True):
        for k, value in enumerate(values):
            place = e.at(buffer, 4 * e.lanes * k)
            e.line(f"store {vector_type(e, kind)} {value}, ptr {place}, align 64")
    v.line(f"call void @{name}({', '.join(f'ptr {buffer}' for buffer in buffers)})")
    return [v.new(f"load {vector}, ptr {v.at(buffers[2], 4 * t.wave * k)}, align 64") for k in range(len(c))]


def _function(name: str, kind: str, wave: int, clamp: bool, parent: Emitter) -> str:
    """Return a function that adds the product of two matrices to the third.

    It works on strips of 16 lanes, which share a row of A: its elements are broadcast from memory.
    """
    e = Emitter(SIZE)
    e.declarations = parent.declarations
    strips, vector = wave // SIZE, vector_type(e, kind)
    element_type = "float" if kind == "f32" else "i32"
    for s in range(strips):
        columns = [
            e.new(f"load {vector}, ptr {e.at('%b', 4 * (wave * k + SIZE * s))}, align 64")
            for k in range(SIZE)
        ]
        places = [e.at("%c", 4 * (wave * register + SIZE * s)) for register in range(SIZE // strips)]
        starts = [e.new(f"load {vector}, ptr {place}, align 64") for place in places]
        totals = starts if kind == "f32" else ["zeroinitializer"] * len(starts)
        for k in range(SIZE):  # all registers at once: sums that do not wait for each other
            pointers = [e.at("%a", 4 * (SIZE * k + strips * r + s)) for r in range(len(totals))]
            scalars = [e.new(f"load {element_type}, ptr {pointer}, align 4") for pointer in pointers]
            totals = [
                _step(e, kind, e.splat(element_type, scalar), columns[k], total)
                for scalar, total in zip(scalars, totals, strict=True)
            ]
        for place, start, total in zip(places, starts, totals, strict=True):
            if kind == "i32":
                total = (
                    e.binary("sadd.sat", e.i32, total, start) if clamp else e.op("add", e.i32, total, start)
                )
            e.line(f"store {vector} {total}, ptr {place}, align 64")
    e.line("ret void")
    body = "\n".join(e.lines)
    return f"define internal void @{name}(ptr noalias %a, ptr noalias %b, ptr noalias %c) #2 {{\n{body}\n}}"


def _step(e: Emitter, kind: str, x: str, y: str, total: str) -> str:
    return e.fma(x, y, total) if kind == "f32" else e.op("add", e.i32, total, e.op("mul", e.i32, x, y))


def _put(t: Translator, register: int, value: str, output: str, high: bool) -> None:
    """Write all lanes of an accumulator register; 16-bit results keep the other half."""
    v = t.v
    if output in ("f32", "i32"):
        t.replace_vgpr(register, value, output)
        return
    half = (
        round_bf16(t, value)
        if output == "bf16"
        else v.cast("bitcast", v.cast("fptrunc", value, v.f32, v.f16), v.f16, v.i16)
    )
    part = v.cast("zext", half, v.i16, v.i32)
    if high:
        part = v.op("shl", v.i32, part, v.splat("i32", "16"))
    kept = v.op("and", v.i32, t.vgpr(register), v.splat("i32", "65535" if high else "-65536"))
    t.replace_vgpr(register, v.op("or", v.i32, kept, part))


SEMANTICS: dict[str, Semantics] = {
    "v_wmma_f32_16x16x16_f16": multiply("f16", "f32"),
    "v_wmma_f32_16x16x16_bf16": multiply("bf16", "f32"),
    "v_wmma_f16_16x16x16_f16": multiply("f16", "f16"),
    "v_wmma_bf16_16x16x16_bf16": multiply("bf16", "bf16"),
    "v_wmma_i32_16x16x16_iu8": multiply("u8", "i32"),
    "v_wmma_i32_16x16x16_iu4": multiply("u4", "i32"),
}
