"""The static check for results that are used without (ss) or (sy)."""

from __future__ import annotations

import pytest
from tinygrad import Tensor

from oracle.mesa import assemble, compile_kernels
from ringfence.virtual.isa.ir3 import waits
from ringfence.virtual.isa.ir3.code import Code
from ringfence.virtual.isa.ir3.flow import analyse
from ringfence.virtual.isa.jit import TranslationError
from virtual.isa.ir3.harness import Rows, program

SY, SS = 1 << 60, 1 << 44


def check(code: bytes | str, *, merged: bool = False) -> None:
    code = assemble(program(code)) if isinstance(code, str) else code
    waits.check(analyse(Code(code), merged, frozenset()))


def complaint(code: bytes | str, *, merged: bool = False) -> str:
    with pytest.raises(TranslationError) as caught:
        check(code, merged=merged)
    return str(caught.value)


LONG = [
    "ldg.u32 r2.x, g[r0.x], 1",
    "ldg.a.u32 r2.x, g[r0.x+(r1.x<<2)], 1",
    "ldp.u32 r2.x, p[r0.x], 1",
    "ldib.b.typed.2d.u32.1.imm r2.x, r0.x, 0",
    "ldc.offset0.1.imm r2.x, 0, 0",
    "isam (f32)(x)r2.x, r0.x, s#0, t#0",
    "sam (f32)(x)r2.x, r0.x, s#0, t#0",
    "getsize (u32)(x)r2.x, r0.x, t#0",
    "quad_shuffle.horiz (u32)(x)r2.x, r0.x",
    "atomic.g.add.untyped.1d.u32.1.g r2.x, r0.x, r1.x",
    "atomic.b.add.untyped.1d.u32.1.imm r2.x, r0.x, 0",
]
SHORT = [
    "rcp r2.x, r0.x",
    "exp2 r2.x, r0.x",
    "ldl.u32 r2.x, l[r0.x], 1",
    "ldlw.u32 r2.x, l[r0.x], 1",
    "atomic.add.untyped.1d.u32.1.l r2.x, l[r0.x], r1.x",
    "shfl.xor.u32 r2.x, r0.x, 1",
    "resinfo.b.typed.2d.u32.1.imm r2.x, 0",
]


@pytest.mark.parametrize(
    ("producer", "flag", "other"), [(p, "sy", "ss") for p in LONG] + [(p, "ss", "sy") for p in SHORT]
)
def test_a_result_needs_its_own_flag_between_producer_and_use(producer: str, flag: str, other: str) -> None:
    check(f"{producer}\n({flag})add.u r3.x, r2.x, 1")
    check(f"{producer}\n({flag})nop\nadd.u r3.x, r2.x, 1")
    for wrong in ("", f"({other})"):
        message = complaint(f"{producer}\n{wrong}add.u r3.x, r2.x, 1")
        assert f"pc 1 `{wrong}add.u r3.x, r2.x, 1`" in message
        assert f"r2.x, the result of pc 0 `{producer}`" in message
        assert f"({flag})" in message


@pytest.mark.parametrize("producer", LONG + SHORT)
def test_overwriting_a_result_that_is_on_its_way_needs_a_wait_too(producer: str) -> None:
    assert "r2.x" in complaint(f"{producer}\nmov.u32u32 r2.x, 0")


def test_other_registers_may_be_used_meanwhile() -> None:
    check(
        "ldg.u32 r2.x, g[r0.x], 2\nadd.u r3.x, r2.z, r1.w\nmov.u32u32 r2.w, r3.x\n(sy)add.u r3.x, r2.x, r2.y"
    )


def test_every_register_of_a_vector_counts() -> None:
    assert "r2.z" in complaint("ldg.u32 r2.x, g[r0.x], 3\nadd.u r3.x, r2.z, 1")
    assert "r2.w" in complaint("isam (f32)(xw)r2.x, r0.x, s#0, t#0\nadd.u r3.x, r2.w, 1")
    check("isam (f32)(xw)r2.x, r0.x, s#0, t#0\nadd.u r3.x, r2.y, 1")
    assert "r2.y" in complaint("ldg.u32 r2.y, g[r0.x], 1\nstg.u32 g[r0.x], r2.x, 2")
    assert "r2.y" in complaint("ldg.u32 r2.y, g[r0.x], 1\nisam (f32)(x)r4.x, r2.x, s#0, t#0")
    assert "r2.y" in complaint("atomic.b.add.untyped.1d.u32.1.imm r2.x, r0.x, 0\nadd.u r3.x, r2.y, 1")


def test_constants_written_by_the_program_are_results() -> None:
    check("stc.u32 c[4], r2.x, 1\n(ss)add.u r3.x, c1.x, r0.x")
    assert "constant" in complaint("stc.u32 c[4], r2.x, 1\nadd.u r3.x, c1.x, r0.x")
    assert "constant" in complaint("ldc.4.k.imm c[a1.x], 0, 0\n(ss)add.u r3.x, c1.x, r0.x")
    check("ldc.4.k.imm c[a1.x], 0, 0\n(sy)add.u r3.x, c1.x, r0.x")


def test_shared_registers_need_a_short_wait() -> None:
    assert "r50.x" in complaint("mov.u32u32 r50.x, r1.x\nadd.u r3.x, r50.x, 1")
    check("mov.u32u32 r50.x, r1.x\n(ss)add.u r3.x, r50.x, 1")


def test_merged_files_know_that_halves_are_parts_of_full_registers() -> None:
    code = "ldg.u32 r2.x, g[r0.x], 1\nadd.u hr3.x, hr4.y, 1"
    check(code)
    assert "hr4.y" in complaint(code, merged=True)
    assert "r2.x" in complaint("ldg.u16 hr4.y, g[r0.x], 1\nadd.u r3.x, r2.x, 1", merged=True)
    check("ldg.u16 hr4.y, g[r0.x], 1\nadd.u hr3.x, hr4.x, 1", merged=True)


def test_a_wait_is_needed_on_every_way_to_the_use() -> None:
    one_way = """
        ldg.u32 r2.x, g[r0.x], 1
        br p0.x, #over
        nop
        (sy)nop
        over:
        (jp)add.u r3.x, r2.x, 1
    """
    assert "pc 4" in complaint(one_way)
    check(one_way.replace("br p0.x", "(sy)br p0.x"))


def test_results_stay_on_their_way_around_a_loop() -> None:
    loop = """
        mov.u32u32 r2.x, 0
        loop:
        (jp)add.u r3.x, r2.x, 1
        ldg.u32 r2.x, g[r0.x], 1
        br p0.x, #loop
        nop
        (sy)nop
    """
    message = complaint(loop)
    assert "pc 1" in message and "pc 2" in message
    check(loop.replace("(jp)add", "(sy)(jp)add"))


def test_both_sides_of_a_predicate_may_write_the_same_register() -> None:
    region = "predt\nldg.u32 r2.x, g[r0.x], 1\npredf\nmov.u32u32 r2.x, 0\nprede\n"
    check(region + "(sy)add.u r3.x, r2.x, 1")
    assert "pc 5" in complaint(region + "add.u r3.x, r2.x, 1")
    changed = region.replace("predf", "cmps.u.ne p0.x, r1.x, 0\npredf")
    assert "pc 4" in complaint(changed + "(sy)add.u r3.x, r2.x, 1")


@pytest.fixture(scope="module")
def kernels() -> list[bytes]:
    built = [
        compile_kernels(lambda: Tensor.empty(33, 17).softmax()),
        compile_kernels(lambda: Tensor.empty(1, 8, 12, 12).conv2d(Tensor.empty(8, 8, 3, 3)), image=True),
    ]
    return [kernel.code for kernels in built for kernel in kernels]


def test_programs_of_mesas_compiler_pass(kernels: list[bytes]) -> None:
    for code in kernels:
        check(code)


def test_programs_of_mesas_compiler_do_not_pass_without_any_one_of_their_waits(kernels: list[bytes]) -> None:
    """Flags that nothing needs, as compilers set before the end or on what waits for all, may be left out."""
    found = waits_in = 0
    for code in kernels:
        for at in range(0, len(code), 8):
            word = int.from_bytes(code[at : at + 8], "little")
            if not word & SY or word >> 61 > 4:
                continue
            waits_in += 1
            changed = code[:at] + (word & ~SY).to_bytes(8, "little") + code[at + 8 :]
            try:
                check(changed)
            except TranslationError as error:
                found += 1
                assert error.pc is not None and error.pc >= at // 8
    assert waits_in > 5
    assert found >= 0.8 * waits_in


def test_execution_is_strict_about_waits_only_if_asked(rows: Rows) -> None:
    body = """
        mov.u32u32 r1.x, c200.x
        mov.u32u32 r1.y, c200.y
        (rpt2)nop
        ldg.u32 r2.x, g[r1.x], 1
        add.u r2.x, r2.x, 1
    """
    report, _ = rows.attempt(body, {}, ["r2.x"])
    assert report is not None
    assert report.kind == "illegal instruction"
    assert "(sy)" in report.message
    rows.executor.strict = False
    try:
        report, results = rows.attempt(body, {}, ["r2.x"])
    finally:
        rows.executor.strict = True
    assert report is None
    assert results["r2.x"][0] == 1
