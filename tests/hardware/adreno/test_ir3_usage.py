"""What a program uses, found from its code."""

from __future__ import annotations

import pytest
from tinygrad import Tensor, dtypes

from oracle.mesa import assemble, compile_kernels
from ringfence.hardware.adreno.ir3.usage import BrokenCode, Usage, usage


def of(body: str, entry: int = 0) -> Usage:
    return usage(assemble(f"{body}\nend"), entry)


@pytest.mark.parametrize(
    ("body", "full", "half"),
    [
        ("nop", 0, 0),
        ("mov.u32u32 r3.w, r0.x", 4, 0),
        ("mov.u32u32 r0.x, r7.x", 8, 0),
        ("(rpt3)mov.u32u32 r1.z, (r)r0.x", 3, 0),
        ("(rpt3)add.u r0.x, (r)r2.w, 1", 4, 0),
        ("cov.f32f16 hr5.y, r0.x", 1, 6),
        ("ldg.u32 r1.y, g[r0.x], 4", 3, 0),
        ("ldg.u16 hr0.x, g[r2.w], 1", 4, 1),
        ("stg.a.u16 g[r0.x+(r1.x<<1)], hr2.y, 4", 2, 4),
        ("isam (f16)(w)hr1.x, r2.w, s#0, t#0", 4, 2),
        ("stib.b.typed.2d.f32.4.imm r2.y, r0.x, 0", 4, 0),
        ("ldib.b.typed.2d.f16.4.imm hr0.z, r0.x, 0", 1, 2),
        ("swz.u32u32 r1.x, r2.x, r2.x, r1.x", 3, 0),
        ("gat.f32f32 r1.x, r0.x, r0.y, r0.z, r0.w", 2, 0),
        ("add.u r0.x, r51.x, r48.y", 1, 0),
        ("mov.u32u32 r0.x, r<a0.x + 20>", 1, 0),
        ("atomic.g.add.untyped.1d.u32.1.g r3.w, r0.x, r1.x", 4, 0),
    ],
)
def test_registers(body: str, full: int, half: int) -> None:
    found = of(body)
    assert (found.full, found.half) == (full, half)


def test_registers_of_a_wide_integer_product_are_full() -> None:
    word = (0x6004C80900068005).to_bytes(
        8, "little"
    )  # mad.u16 of Qualcomm's compiler, printed with half registers
    found = usage(word + assemble("end"))
    assert (found.full, found.half) == (3, 0)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("mov.u32u32 r0.x, c1.y", {10, 11}),
        ("add.f hr0.x, hr0.x, hc1.y", {5}),
        ("(rpt2)mov.u32u32 r0.x, (r)c0.x", {0, 1, 2, 3, 4, 5}),
        ("(rpt2)mov.u32u32 r0.x, c0.x", {0, 1}),
        ("mov.u32u32 r0.x, c<a0.x + 20>", set()),
        ("jump #over\nmov.u32u32 r0.x, c1.x\nover:\nnop", set()),
    ],
)
def test_constants(body: str, words: set[int]) -> None:
    found = of(body)
    assert found.constants == words
    assert not found.writes_constants


@pytest.mark.parametrize("body", ["stc.u32 c[8], r0.x, 1", "ldg.k.u32 c[0], g[r0.x], 1"])
def test_constants_that_the_program_writes(body: str) -> None:
    assert of(body).writes_constants


def test_descriptors() -> None:
    assert of("isam (f32)(x)r0.x, r0.x, s#3, t#5").textures == 6
    assert of("sam (f32)(x)r0.x, r0.x, s#3, t#5").samplers == 4
    assert of("getsize (u32)(xy)r0.x, r0.x, t#2").textures == 3
    assert of("getsize (u32)(xy)r0.x, r0.x, t#2").samplers == 0
    assert of("resinfo.b.typed.2d.u32.2.imm r0.x, 6").uavs == 7
    assert of("atomic.b.add.untyped.1d.u32.1.imm r0.x, r1.x, 2").uavs == 3
    assert of("ldc.offset0.4.imm r0.x, 0, 1").uniform_buffers == 2
    assert of("stib.b.typed.2d.f32.4.imm.base0 r0.x, r0.x, 3") == Usage(full=1, bindless=True)


# ----- control ------------------------------------------------------------------------------------

FUNCTIONS = """
    first:
    mov.u32u32 r5.x, 1
    ret
    nop
    second:
    mov.u32u32 r7.x, 1
    call #first
    ret
    kernel:
    call #second
    cmps.u.eq p0.x, r0.x, 0
    (rpt5)nop
    br p0.x, #over
    mov.u32u32 r1.x, 0
    over:
    mov.u32u32 r2.x, 0
"""


@pytest.mark.parametrize(("entry", "full"), [(6, 8)])
def test_functions_that_are_called_count(entry: int, full: int) -> None:
    assert of(FUNCTIONS, entry).full == full


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (0, "instruction 1 returns, but nothing called"),
        (3, "instruction 5 returns"),
        (1, "the entry, instruction 1, is in the middle of a function: `mov.u32u32 r5.x, 1` is before it"),
        (4, "in the middle of a function: `mov.u32u32 r7.x, 1`"),
        (7, "in the middle of a function: `call #-3`"),
        (11, "in the middle of a function: `mov"),
        (32, "control leaves its 32 instructions, to 32"),
        (100, "control leaves its 32 instructions, to 99"),
    ],
)
def test_an_entry_that_is_no_function_of_its_own(entry: int, reason: str) -> None:
    with pytest.raises(BrokenCode) as error:
        of(FUNCTIONS, entry)
    assert reason in str(error.value)


def test_nops_before_the_entry_do_not_matter() -> None:
    assert of("nop\nnop\nmov.u32u32 r1.x, 1", 2).full == 2


def test_recursion_ends() -> None:
    assert of("jump #kernel\nagain:\nmov.u32u32 r1.x, 1\ncall #again\nret\nkernel:\ncall #again", 4).full == 2


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (bytes(8), "control leaves its 1 instructions, to 1"),
        (b"\xff" * 8, "does not decode"),
        (assemble("jump #-4\nend"), "control leaves its 16 instructions, to -4"),
    ],
)
def test_code_that_does_not_end(code: bytes, reason: str) -> None:
    with pytest.raises(BrokenCode, match=reason):
        usage(code)


def test_what_is_behind_the_end_is_not_looked_at() -> None:
    assert usage(assemble("end") + b"\xff" * 8) == Usage()


def test_compiled_programs_use_what_their_compiler_says() -> None:
    from tinygrad.runtime.support.compiler_mesa import IR3Compiler

    def outputs() -> list[Tensor]:
        a = Tensor.empty(64, 64)
        return [a @ a, a.softmax(), (a.cast(dtypes.half) * 2).exp2(), a.sum(), Tensor.empty(24).sort()[0]]

    kernels = compile_kernels(outputs)
    assert len(kernels) > 5
    for kernel in kernels:
        variant, found = IR3Compiler.unpack_lib(kernel.lib)[0], usage(kernel.code)
        assert (found.full, found.half) == (variant.info.max_reg + 1, variant.info.max_half_reg + 1), (
            kernel.name
        )
        assert max(found.constants) // 8 < variant.constlen
