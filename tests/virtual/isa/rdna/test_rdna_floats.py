"""Arithmetic on f16, f32 and f64 in every rounding mode, with denormals kept and flushed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ringfence.virtual.isa.rdna.executor import Executor
from virtual.isa.rdna.harness import CLAMP_IEEE, SLOW, Array, Op, batch, covers
from virtual.isa.rdna.soft import FORMATS, Rules, each, pairs, report, special

KEEP, FLUSH = 0xF0, 0x00
MODES = [KEEP, FLUSH, 0x50, 0xA0, 0xC0, 0x30, 0xF5, 0xFA, 0xFF, 0x05, 0x0F]
"""Denormals kept, flushed, flushed in inputs or results only, of one half only; then the rounding modes."""
KINDS = ("f16", "f32", "f64")
SOME_MODES = (KEEP, FLUSH, 0xF5)
KINDS_AND_MODES = [
    pytest.param(kind, mode, id=f"{kind}-{mode:#x}", marks=() if mode in modes else SLOW)
    for kind, modes in (("f16", SOME_MODES[:1]), ("f32", SOME_MODES), ("f64", SOME_MODES[1:2]))
    for mode in MODES
]


def values(kind: str, words: Array) -> Array:
    """Return results as unsigned numbers of their format."""
    if kind == "f64":
        return words[:, 0].astype(np.uint64) | words[:, 1].astype(np.uint64) << np.uint64(32)
    return words[:, 0].astype(np.uint64) & np.uint64((1 << FORMATS[kind].bits) - 1)


def width(kind: str) -> int:
    return 2 if kind == "f64" else 1


Case = tuple[str, Callable[[Rules], Callable[..., int]]]


def check(
    amd: Executor,
    kind: str,
    mode: int,
    count: int,
    cases: list[Case],
    *,
    flags: int = CLAMP_IEEE,
    start: int | None = None,
) -> None:
    """Run instructions with ``count`` operands and compare them with their references."""
    inputs = pairs(kind, count)
    rules = Rules.of(mode, kind)
    operations = [Op(text, width(kind), start) for text, _ in cases]
    found = batch(amd, operations, inputs, mode=mode, flags=flags)
    for (text, reference), words in zip(cases, found, strict=True):
        wanted = each(reference(rules), *inputs)
        problem = report(kind, inputs, values(kind, words), wanted)
        assert not problem, f"{text} in MODE {mode:#x}: {problem}"


TWO: dict[str, list[Case]] = {
    "f16": [
        ("v_add_f16 {d}, {0}, {1}", lambda r: r.add),
        ("v_sub_f16 {d}, {0}, {1}", lambda r: r.subtract),
        ("v_subrev_f16 {d}, {0}, {1}", lambda r: lambda a, b: r.subtract(b, a)),
        ("v_mul_f16 {d}, {0}, {1}", lambda r: r.multiply),
    ],
    "f32": [
        ("v_add_f32 {d}, {0}, {1}", lambda r: r.add),
        ("v_sub_f32 {d}, {0}, {1}", lambda r: r.subtract),
        ("v_subrev_f32 {d}, {0}, {1}", lambda r: lambda a, b: r.subtract(b, a)),
        ("v_mul_f32 {d}, {0}, {1}", lambda r: r.multiply),
        ("v_mul_dx9_zero_f32 {d}, {0}, {1}", lambda r: lambda a, b: dx9(r, a, b, r.multiply(a, b), 0)),
        ("v_fmamk_f32 {d}, {0}, 0x40400000, {1}", lambda r: lambda a, b: r.fma(a, 0x40400000, b)),
        ("v_fmaak_f32 {d}, {0}, {1}, 0x40400000", lambda r: lambda a, b: r.fma(a, b, 0x40400000)),
    ],
    "f64": [
        ("v_add_f64 {d}, {0}, {1}", lambda r: r.add),
        ("v_mul_f64 {d}, {0}, {1}", lambda r: r.multiply),
    ],
}  # fmt: skip
TWO["f16"] += [
    ("v_fmamk_f16 {d}, {0}, 0x4200, {1}", lambda r: lambda a, b: r.fma(a, 0x4200, b)),
    ("v_fmaak_f16 {d}, {0}, {1}, 0x4200", lambda r: lambda a, b: r.fma(a, b, 0x4200)),
]


def dx9(rules: Rules, a: int, b: int, value: int, zero: int) -> int:
    """Return ``zero`` if either operand is 0."""
    sign = rules.format.sign
    return zero if not (rules.operand(a) & ~sign and rules.operand(b) & ~sign) else value


@covers("v_add_f16", "v_sub_f16", "v_subrev_f16", "v_mul_f16", "v_fmamk_f16", "v_fmaak_f16")
@covers("v_add_f32", "v_sub_f32", "v_subrev_f32", "v_mul_f32", "v_mul_dx9_zero_f32", "v_fmamk_f32")
@covers("v_fmaak_f32", "v_add_f64", "v_mul_f64")
@pytest.mark.parametrize(("kind", "mode"), KINDS_AND_MODES)
def test_sums_and_products(amd: Executor, kind: str, mode: int) -> None:
    check(amd, kind, mode, 2, TWO[kind])


@covers("v_fma_f16", "v_fma_f32", "v_fma_f64", "v_fma_dx9_zero_f32", "v_fmac_f16", "v_fmac_f32")
@covers("v_fmac_dx9_zero_f32")
@pytest.mark.parametrize(("kind", "mode"), KINDS_AND_MODES)
def test_fused_multiply_add(amd: Executor, kind: str, mode: int) -> None:
    cases: list[Case] = [(f"v_fma_{kind} {{d}}, {{0}}, {{1}}, {{2}}", lambda r: r.fma)]
    if kind == "f32":
        text = "v_fma_dx9_zero_f32 {d}, {0}, {1}, {2}"
        cases.append((text, lambda r: lambda a, b, c: dx9(r, a, b, r.fma(a, b, c), r.finish(r.operand(c)))))
    check(amd, kind, mode, 3, cases)
    if kind == "f64":
        return
    cases = [(f"v_fmac_{kind} {{d}}, {{0}}, {{1}}", lambda r: r.fma)]
    if kind == "f32":
        text = "v_fmac_dx9_zero_f32 {d}, {0}, {1}"
        cases.append((text, lambda r: lambda a, b, c: dx9(r, a, b, r.fma(a, b, c), r.finish(r.operand(c)))))
    check(amd, kind, mode, 3, cases, start=2)


def arithmetic(kind: str) -> list[Case]:
    return [
        (f"v_add_{kind} {{d}}, {{0}}, {{1}}", lambda r: r.add),
        (f"v_mul_{kind} {{d}}, {{0}}, {{1}}", lambda r: r.multiply),
        (f"v_fma_{kind} {{d}}, {{0}}, {{1}}, {{0}}", lambda r: lambda a, b: r.fma(a, b, a)),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_of_mode_at_run_time(amd: Executor, kind: str) -> None:
    """Each of 256 waves sets rounding and denormals of all formats to its own number."""
    rng, columns = np.random.default_rng(6), pairs(kind, 2, rows=5000)
    order = np.resize(rng.permutation(len(columns[0])), 256 * 32)
    inputs = [column[order] for column in columns]
    cases = arithmetic(kind)
    before = ["s_setreg_b32 hwreg(HW_REG_MODE, 0, 8), s8"]
    found = batch(amd, [Op(text, width(kind)) for text, _ in cases], inputs, before=before)
    for (text, reference), words in zip(cases, found, strict=True):
        results = values(kind, words)
        for mode in range(256):
            rows = slice(32 * mode, 32 * mode + 32)
            mine = [column[rows] for column in inputs]
            problem = report(kind, mine, results[rows], each(reference(Rules.of(mode, kind)), *mine))
            assert not problem, f"{text} in MODE {mode:#x}: {problem}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_of_denormals_that_is_known_ahead(amd: Executor, kind: str) -> None:
    inputs = pairs(kind, 2, rows=200)
    cases = [(setting, text, reference) for setting in range(16) for text, reference in arithmetic(kind)]
    operations = [Op(f"s_denorm_mode {setting}; {text}", width(kind)) for setting, text, _ in cases]
    found = batch(amd, operations, inputs)
    for (setting, text, reference), words in zip(cases, found, strict=True):
        wanted = each(reference(Rules.of(setting << 4, kind)), *inputs)
        problem = report(kind, inputs, values(kind, words), wanted)
        assert not problem, f"{text} after s_denorm_mode {setting}: {problem}"


def minmax(which: str, *, ieee: bool = True) -> Callable[[Rules], Callable[[int, int], int]]:
    return lambda r: lambda a, b: r.extreme(which, a, b, ieee=ieee)


@covers("v_min_f16", "v_max_f16", "v_min_f32", "v_max_f32", "v_min_f64", "v_max_f64")
@pytest.mark.parametrize("ieee", [True, False])
@pytest.mark.parametrize("mode", [KEEP, FLUSH], ids=hex)
@pytest.mark.parametrize("kind", KINDS)
def test_minimum_and_maximum(amd: Executor, kind: str, mode: int, ieee: bool) -> None:
    cases: list[Case] = [(f"v_{w}_{kind} {{d}}, {{0}}, {{1}}", minmax(w, ieee=ieee)) for w in ("min", "max")]
    check(amd, kind, mode, 2, cases, flags=CLAMP_IEEE if ieee else 1 << 21)


def chain(first: str, second: str) -> Callable[[Rules], Callable[[int, int, int], int]]:
    return lambda r: lambda a, b, c: r.extreme(second, r.extreme(first, a, b), c)


def middle(r: Rules) -> Callable[[int, int, int], int]:
    def reference(a: int, b: int, c: int) -> int:
        a, b, c = (r.operand(x) for x in (a, b, c))
        if any(r.format.is_nan(x) for x in (a, b, c)):
            return r.extreme("min", r.extreme("min", a, b), c)
        low, high = r.extreme("min", a, b), r.extreme("max", a, b)
        return r.extreme("max", low, r.extreme("min", high, c))

    return reference


@covers("v_min3_f32", "v_max3_f32", "v_maxmin_f32", "v_minmax_f32", "v_med3_f32")
@covers("v_min3_f16", "v_max3_f16", "v_maxmin_f16", "v_minmax_f16", "v_med3_f16")
@pytest.mark.parametrize("mode", [KEEP, FLUSH], ids=hex)
@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_minimum_and_maximum_of_three(amd: Executor, kind: str, mode: int) -> None:
    names = {
        "min3": ("min", "min"),
        "max3": ("max", "max"),
        "maxmin": ("max", "min"),
        "minmax": ("min", "max"),
    }
    cases: list[Case] = [
        (f"v_{name}_{kind} {{d}}, {{0}}, {{1}}, {{2}}", chain(*order)) for name, order in names.items()
    ]
    cases.append((f"v_med3_{kind} {{d}}, {{0}}, {{1}}, {{2}}", middle))
    check(amd, kind, mode, 3, cases)


def test_modifiers_act_on_the_sign_bit_before_the_operation(amd: Executor) -> None:
    cases: list[Case] = [
        ("v_add_f32 {d}, -{0}, {1}", lambda r: lambda a, b: r.add(a ^ 1 << 31, b)),
        ("v_add_f32 {d}, |{0}|, -|{1}|", lambda r: lambda a, b: r.add(a & ~(1 << 31), b | 1 << 31)),
        ("v_mul_f32 {d}, -{0}, |{1}|", lambda r: lambda a, b: r.multiply(a ^ 1 << 31, b & ~(1 << 31))),
        ("v_fma_f32 {d}, {0}, -{1}, -|{0}|", lambda r: lambda a, b: r.fma(a, b ^ 1 << 31, a | 1 << 31)),
    ]
    check(amd, "f32", KEEP, 2, cases)


def clamped(rules: Rules, bits: int, *, dx10: bool) -> int:
    f = rules.format
    if f.is_nan(bits):
        return 0 if dx10 else bits
    return min(bits, f.round(f.value(0) + 1)) if not bits & f.sign else 0


@pytest.mark.parametrize("dx10", [True, False])
def test_clamp_limits_to_0_and_1_and_a_nan_becomes_0_only_under_dx10_clamp(amd: Executor, dx10: bool) -> None:
    cases: list[Case] = [
        ("v_add_f32 {d}, {0}, {1} clamp", lambda r: lambda a, b: clamped(r, r.add(a, b), dx10=dx10)),
        ("v_mul_f32 {d}, {0}, {1} clamp", lambda r: lambda a, b: clamped(r, r.multiply(a, b), dx10=dx10)),
    ]
    check(amd, "f32", KEEP, 2, cases, flags=1 << 23 | dx10 << 21)
    half: list[Case] = [
        ("v_mul_f16_e64 {d}, {0}, {1} clamp", lambda r: lambda a, b: clamped(r, r.multiply(a, b), dx10=dx10))
    ]
    check(amd, "f16", KEEP, 2, half, flags=1 << 23 | dx10 << 21)


@pytest.mark.parametrize(
    ("mode", "flags", "works"),
    [(0xC0, 1 << 21, True), (0xD0, 1 << 21, True), (KEEP, 1 << 21, False), (0xC0, CLAMP_IEEE, False)],
)
def test_output_modifiers_work_only_if_denormals_are_flushed_and_ieee_is_off(
    amd: Executor, mode: int, flags: int, works: bool
) -> None:
    inputs = [np.array([0.5, 1.5, -3.0, 100.0], np.float32), np.array([1.0, 2.0, 3.0, 4.0], np.float32)]
    texts = [f"v_add_f32 {{d}}, {{0}}, {{1}} {m}" for m in ("mul:2", "mul:4", "div:2")]
    found = batch(amd, [Op(t) for t in texts], inputs, mode=mode, flags=flags)
    total = inputs[0] + inputs[1]
    for words, factor in zip(found, (2.0, 4.0, 0.5), strict=True):
        assert (words[:, 0].view(np.float32) == total * np.float32(factor if works else 1.0)).all()


@covers("v_trunc_f16", "v_ceil_f16", "v_floor_f16", "v_rndne_f16", "v_trunc_f32", "v_ceil_f32")
@covers("v_floor_f32", "v_rndne_f32", "v_trunc_f64", "v_ceil_f64", "v_floor_f64", "v_rndne_f64")
@covers("v_fract_f16", "v_fract_f32", "v_fract_f64")
@pytest.mark.parametrize("kind", KINDS)
def test_rounding_to_whole_numbers_keeps_the_sign_of_zero(amd: Executor, kind: str) -> None:
    f = FORMATS[kind]
    halves = np.arange(-6, 7, 0.5).astype(f.real).view(f.unsigned)
    bits = np.concatenate([special(kind), halves, pairs(kind)[0]])
    real = bits.view(f.real)
    with np.errstate(invalid="ignore"):
        fraction = np.minimum(real - np.floor(real), np.array([f.round(1) - 1], f.unsigned).view(f.real))
        wanted = {
            "trunc": np.trunc(real),
            "ceil": np.ceil(real),
            "floor": np.floor(real),
            "rndne": np.rint(real),
            "fract": fraction,
        }
    found = batch(amd, [Op(f"v_{name}_{kind} {{d}}, {{0}}", width(kind)) for name in wanted], [bits])
    for (name, numbers), words in zip(wanted.items(), found, strict=True):
        problem = report(kind, [bits], values(kind, words), numbers.astype(f.real).view(f.unsigned))
        assert not problem, f"v_{name}_{kind}: {problem}"


@covers("v_frexp_mant_f16", "v_frexp_mant_f32", "v_frexp_mant_f64", "v_frexp_exp_i16_f16")
@covers("v_frexp_exp_i32_f32", "v_frexp_exp_i32_f64")
@pytest.mark.parametrize("kind", KINDS)
def test_frexp_splits_denormals_too(amd: Executor, kind: str) -> None:
    f = FORMATS[kind]
    bits = np.concatenate([special(kind), pairs(kind)[0]])
    real = bits.view(f.real)
    integer = "i16" if kind == "f16" else "i32"
    texts = [
        Op(f"v_frexp_mant_{kind} {{d}}, {{0}}", width(kind)),
        Op(f"v_frexp_exp_{integer}_{kind} {{d}}, {{0}}"),
    ]
    found = batch(amd, texts, [bits])
    mantissa, exponent = np.frexp(real.astype(np.float64))
    finite = np.isfinite(real)
    wanted = np.where(finite, mantissa, real.astype(np.float64)).astype(f.real).view(f.unsigned)
    assert not report(kind, [bits], values(kind, found[0]), wanted)
    signed = found[1][:, 0].astype(np.uint32).view(np.int32)
    if kind == "f16":
        signed = (signed & 0xFFFF).astype(np.uint16).view(np.int16).astype(np.int32)
    assert (signed == np.where(finite, exponent, 0)).all()


@covers("v_ldexp_f16", "v_ldexp_f32", "v_ldexp_f64")
@pytest.mark.parametrize("mode", [KEEP, FLUSH, 0xFF, 0xF5], ids=hex)
@pytest.mark.parametrize("kind", KINDS)
def test_ldexp_rounds_once(amd: Executor, kind: str, mode: int) -> None:
    f, rules = FORMATS[kind], Rules.of(mode, kind)
    rng = np.random.default_rng(8)
    bits = np.concatenate([special(kind), pairs(kind)[0]])
    limit = 2 * (f.bias + f.mantissa) + 10
    powers = rng.integers(-limit, limit, len(bits)).astype(np.int32)
    powers[:40] = np.resize([0, 1, -1, 32767, -32768, 100, -100], 40)

    def reference(x: int, n: int) -> int:
        x = rules.operand(x)
        if f.is_nan(x) or f.is_infinite(x) or not x & ~f.sign:
            return x
        n = n - (1 << 32) if n >> 31 else n
        return rules.result(f.value(x) * type(f.value(x))(2) ** n)

    operand = powers.astype(np.int16) if kind == "f16" else powers
    (words,) = batch(
        amd, [Op(f"v_ldexp_{kind} {{d}}, {{0}}, {{1}}", width(kind))], [bits, operand], mode=mode
    )
    wanted = each(reference, bits, powers.view(np.uint32))
    assert not report(kind, [bits, powers], values(kind, words), wanted)


@covers("v_mullit_f32")
def test_mullit_guards_the_second_and_third_operand(amd: Executor) -> None:
    def reference(r: Rules) -> Callable[[int, int, int], int]:
        f = r.format

        def compute(a: int, b: int, c: int) -> int:
            least = 0xFF7FFFFF
            bad = f.is_nan(b) or b in (least, 0xFF800000) or f.is_nan(c) or c & f.sign or not c
            return least if bad else r.multiply(a, b)

        return compute

    check(amd, "f32", KEEP, 3, [("v_mullit_f32 {d}, {0}, {1}, {2}", reference)])


@covers("v_cubeid_f32", "v_cubesc_f32", "v_cubetc_f32", "v_cubema_f32")
def test_cube_map_coordinates(amd: Executor) -> None:
    rng = np.random.default_rng(2)
    x, y, z = (rng.integers(-3, 4, 400).astype(np.float32) for _ in range(3))
    found = batch(
        amd, [Op(f"v_cube{n}_f32 {{d}}, {{0}}, {{1}}, {{2}}") for n in ("id", "sc", "tc", "ma")], [x, y, z]
    )
    face, s, t, major = (words[:, 0].view(np.float32) for words in found)
    for row in range(400):
        direction = x[row], y[row], z[row]
        a = [abs(float(c)) for c in direction]
        axis = 2 if a[2] >= a[0] and a[2] >= a[1] else (1 if a[1] >= a[0] else 0)
        negative = direction[axis] < 0
        assert face[row] == 2 * axis + negative
        assert major[row] == 2 * direction[axis]
        wanted_s = {0: z[row] if negative else -z[row], 1: x[row], 2: -x[row] if negative else x[row]}[axis]
        wanted_t = {0: -y[row], 1: -z[row] if negative else z[row], 2: -y[row]}[axis]
        assert (s[row], t[row]) == (wanted_s, wanted_t)
