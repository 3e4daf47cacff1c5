"""Single kernels from tinygrad expressions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from ringfence.compile.kernels import compile_tinygrad
from ringfence.errors import CompileError
from ringfence.hardware.adreno.ir3 import decode_program


def test_an_elementwise_expression_is_one_kernel_with_named_arguments():
    [kernel] = compile_tinygrad(lambda a, b: 2 * a + b, (1024,), (1024,))
    assert kernel.arguments == ("out", "in0", "in1")
    assert [a.name for a in kernel.program.arguments] == ["out", "in0", "in1"]
    assert [a.written for a in kernel.program.arguments] == [True, False, False]
    assert kernel.program.local_size == kernel.local


def test_a_forced_local_size_need_not_divide_the_size():
    [kernel] = compile_tinygrad(lambda a: a + 1, (1000,), local=(64,))
    assert kernel.local == (64, 1, 1)
    assert kernel.groups == (16, 1, 1)


def test_a_product_of_matrices_is_one_kernel():
    [kernel] = compile_tinygrad(lambda a, b: a @ b, (61, 48), (48, 77), local=(8, 8))
    assert kernel.arguments == ("out", "in0", "in1")
    assert kernel.local == (8, 8, 1)
    assert sorted(kernel.groups) == [1, 8, 10]


def test_several_kernels_share_temporaries_by_name():
    kernels = compile_tinygrad(lambda a: a.softmax(), (16, 128))
    assert kernels[-1].arguments[0] == "out"
    assert kernels[0].arguments == ("temp0", "in0")
    assert kernels[0].temporaries == {"temp0": 64}


def test_other_data_types_are_compiled():
    [kernel] = compile_tinygrad(lambda a: a * 2, (64,), dtype="int32")
    assert {a.dtype for a in kernel.program.arguments} == {"int32"}


def test_halves_are_rounded_to_nearest_even():
    [kernel] = compile_tinygrad(lambda a: a.half(), (64,))
    conversions = [i for i in decode_program(kernel.program.code) if i.fields.get("dst_type") == "f16"]
    assert {(i.fields["src_type"], i.fields["round"]) for i in conversions} == {("f32", 1)}


def mnemonics(kernel) -> Counter:
    return Counter(i.name for i in decode_program(kernel.program.code))


def test_sums_of_products_are_chains_of_multiply_adds():
    """Whatever the size of the unrolled sum: as many multiply-adds as products, and no separate sum."""
    [kernel] = compile_tinygrad(lambda a, b: a @ b, (64, 64), (64, 64))
    used = mnemonics(kernel)
    assert used["mad.f32"] >= 16
    assert (used["mul.f"], used["add.f"]) == (0, 0)


def test_constant_factors_come_first():
    """``(a * b) * 3`` is compiled as ``(a * 3) * b``: Mesa would do so too, a host compiler would not."""
    written, equal = (lambda a, b: a * b * 3), (lambda a, b: a * 3 * b)
    codes = [compile_tinygrad(f, (64,), (64,))[0].program.code for f in (written, equal)]
    assert codes[0] == codes[1]


def test_equal_expressions_give_equal_programs():
    first, second = (compile_tinygrad(lambda a: a.exp(), (256,))[0].program.to_bytes() for _ in range(2))
    assert first == second


def test_the_callers_tinygrad_settings_do_not_count(monkeypatch: pytest.MonkeyPatch):
    from tinygrad.helpers import Context

    plain = compile_tinygrad(lambda a, b: a @ b, (64, 64), (64, 64))
    with Context(IMAGE=1, NOOPT=1, FLOAT16=1):
        assert compile_tinygrad(lambda a, b: a @ b, (64, 64), (64, 64)) == plain


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "a730"}, "no compiler for target 'a730'; supported: a630"),
        ({"dtype": "float31"}, "unknown dtype 'float31'"),
        ({"local": (4096,)}, "local size"),
    ],
)
def test_what_cannot_be_compiled_is_refused(options, message):
    with pytest.raises(CompileError, match=message):
        compile_tinygrad(lambda a: a + 1, (64,), **options)


@pytest.mark.parametrize("target", ["a630", "gfx1100"])
@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (lambda a: 1 / 0, {}, "ZeroDivisionError: division by zero"),
        (lambda a: a + a.reshape(2, 2), {}, "IndexError: shape mismatch"),
        (lambda a: a.numpy(), {}, "RuntimeError: no copyout"),
        (lambda a, b: a, {}, "TypeError: .*missing 1 required positional argument"),
        (5, {}, "TypeError: 'int' object is not callable"),
        (lambda a: (a, a), {}, "the function returned .*, not a tinygrad tensor"),
        (lambda a: None, {}, "the function returned None, not a tinygrad tensor"),
        (lambda a: a, {}, "needs no kernel"),
        (
            lambda a: a + 1,
            {"local": (0,)},
            r"local size \(0,\) is no sequence of whole numbers of at least 1",
        ),
        (lambda a: a + 1, {"local": 4}, "local size 4 is no sequence"),
        (lambda a: a + 1, {"local": (2, 2)}, r"local size \(2, 2\) does not suit"),
    ],
)
def test_what_cannot_be_compiled_is_a_compile_error(
    function: Any, options: dict[str, Any], message: str, target: str
) -> None:
    with pytest.raises(CompileError, match=message):
        compile_tinygrad(function, (4,), target=target, **options)


@pytest.mark.parametrize("shape", [4, "ab", (-4,), (2.5,), None])
def test_a_shape_is_a_sequence_of_whole_numbers(shape: Any) -> None:
    with pytest.raises(CompileError, match="is no sequence of whole numbers of at least 0"):
        compile_tinygrad(lambda a: a + 1, shape)


def test_float64_is_refused_where_the_chip_has_none() -> None:
    with pytest.raises(CompileError, match="float64, which a630 has not"):
        compile_tinygrad(lambda a: a + 1, (4,), dtype="float64")
    compile_tinygrad(lambda a: a.double().float() + 1, (4,))  # nothing is left of it
