"""OpenCL C and LLVM IR to code objects for gfx1100, and what the functions of the builtin header compute."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest

from ringfence.compile.opencl import BUILTINS, compile_llvm_ir, compile_opencl, header
from ringfence.compile.toolchain import clang, link
from ringfence.errors import CompileError, PackageError
from ringfence.hardware.amd.code_object import CodeObject, load_code_object
from ringfence.hardware.amd.metadata import ArgumentKind
from ringfence.hardware.amd.rdna import Instruction, decode_program
from tests.compile.opencl_kernels import FUNCTION_TABLE, KERNELS
from tests.oracle.host_opencl import HostLibrary, element_wise
from tests.oracle.llvm import Assembled, assemble

COPY = """
__kernel void copy(__global float *out, __global const float *in, float scale) {
  size_t i = get_global_id(0);
  out[i] = in[i] * scale;
}
"""

MACROS = """
#if __OPENCL_VERSION__ != 200 || __OPENCL_C_VERSION__ != 200 || !__ENDIAN_LITTLE__
#error a version
#endif
#if FLT_MAX_10_EXP != 38 || FLT_MIN_10_EXP != -37 || DBL_MAX_10_EXP != 308 || DBL_MIN_10_EXP != -307
#error an exponent
#endif
#if HALF_DIG != 3 || HALF_MANT_DIG != 11 || HALF_MAX_EXP != 16 || HALF_MIN_10_EXP != -4 || HALF_RADIX != 2
#error a limit of half
#endif
#if !defined cl_khr_fp16 || !defined cl_khr_fp64 || !defined cl_khr_int64_extended_atomics
#error an extension that exists
#endif
#if defined __IMAGE_SUPPORT__ || defined __FAST_RELAXED_MATH__ || defined cl_khr_3d_image_writes
#error what does not exist
#endif
#if defined cl_khr_subgroups || defined cl_khr_mipmap_image || defined cl_khr_mipmap_image_writes
#error an extension that does not exist
#endif
kernel_exec(64, float4) void k(global half *x) { x[0] = M_PI_H + M_SQRT1_2_H; }
"""


def instructions(loaded: CodeObject) -> Iterator[Instruction]:
    """Yield all instructions, the halves of pairs one by one."""
    for start, end in loaded.code:
        for i in decode_program(loaded.image, start, end, wave=loaded.kernel().descriptor.wave):
            yield from (i.fields["x"], i.fields["y"]) if i.format == "vopd" else (i,)


def calls(loaded: CodeObject) -> list[str]:
    """Return what each ``s_getpc_b64; s_add_u32; s_addc_u32`` computes the address of, by symbol."""
    names = {place: name for name, place in loaded.symbols.items()}
    code = list(instructions(loaded))
    found = []
    for first, low, high in zip(code, code[1:], code[2:], strict=False):
        if (first.name, low.name, high.name) == ("s_getpc_b64", "s_add_u32", "s_addc_u32"):
            distance = low.srcs[1].num | high.srcs[1].num << 32
            found.append(names.get(first.pc + 4 + distance & (1 << 64) - 1, "elsewhere"))
    return found


class TestCompile:
    def test_a_kernel_has_its_name_and_arguments(self) -> None:
        kernel = load_code_object(compile_opencl(COPY)).kernel("copy")
        assert kernel.metadata is not None
        explicit = kernel.metadata.explicit
        assert [(argument.name, argument.offset, argument.size) for argument in explicit] == [
            ("out", 0, 8),
            ("in", 8, 8),
            ("scale", 16, 4),
        ]
        assert ArgumentKind.HIDDEN_GROUP_SIZE_X in kernel.metadata.hidden

    def test_the_same_source_gives_the_same_bytes(self) -> None:
        assert compile_opencl(FUNCTION_TABLE) == compile_opencl(FUNCTION_TABLE)

    def test_nothing_of_the_environment_is_needed(self) -> None:
        script = "from ringfence.compile.opencl import compile_opencl; import sys;"
        script += f"sys.stdout.buffer.write(compile_opencl({COPY!r}))"
        result = subprocess.run([sys.executable, "-c", script], env={}, capture_output=True, check=True)
        assert result.stdout == compile_opencl(COPY)

    def test_a_wave_can_have_64_lanes(self) -> None:
        assert load_code_object(compile_opencl(COPY, wave=64)).kernel().descriptor.wave == 64

    def test_another_wave_size_is_an_error_of_the_caller(self) -> None:
        with pytest.raises(ValueError, match="32 or 64 lanes, not 16"):
            compile_opencl(COPY, wave=16)

    def test_defines_and_options_reach_the_compiler(self) -> None:
        source = "__kernel void k(__global float *x) { x[0] = VALUE / x[1]; }"
        exact = load_code_object(compile_opencl(source, defines={"VALUE": 2}))
        fast = load_code_object(
            compile_opencl(source, defines={"VALUE": 2}, options=["-cl-fast-relaxed-math"])
        )
        assert "v_div_fixup_f32" in {i.name for i in instructions(exact)}
        assert "v_div_fixup_f32" not in {i.name for i in instructions(fast)}

    @pytest.mark.parametrize(
        ("source", "given", "message"),
        [
            (None, {}, "OpenCL C is text, not NoneType"),
            ("", {"defines": "N=1"}, "defines='N=1' is no mapping"),
            ("", {"options": "-O3"}, "options='-O3' is no list"),
        ],
    )
    def test_arguments_of_another_kind_are_type_errors(
        self, source: Any, given: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(TypeError, match=message):
            compile_opencl(source, **given)

    def test_another_architecture_is_in_the_file(self) -> None:
        assert load_code_object(compile_opencl(COPY, arch="gfx1151")).arch == "gfx1151"

    def test_macros_tell_the_version_and_what_exists(self) -> None:
        compile_opencl(MACROS)
        fast = "#ifndef __FAST_RELAXED_MATH__\n#error\n#endif"
        compile_opencl(fast, options=["-cl-fast-relaxed-math"])

    def test_several_kernels_share_a_code_object(self) -> None:
        source = (
            "__kernel void one(__global int *x) { *x = 1; } __kernel void two(__global int *x) { *x = 2; }"
        )
        assert list(load_code_object(compile_opencl(source)).kernels) == ["one", "two"]


class TestErrors:
    def test_a_function_that_does_not_exist_is_named(self) -> None:
        source = "__kernel void k(__global float *x) {\n  x[0] = lgamma(x[0]);\n}"
        with pytest.raises(CompileError, match=r"(?s)^lgamma: neither .*BUILTINS\n.*kernel\.cl:2:\d+: error"):
            compile_opencl(source)

    def test_a_function_that_is_only_declared_is_named(self) -> None:
        source = "float secret(int); __kernel void k(__global float *x) { x[0] = secret(1); }"
        with pytest.raises(CompileError, match=r"(?s)^secret: neither .*undefined symbol: secret"):
            compile_opencl(source)

    @pytest.mark.parametrize("name", ["<math.h>", '"opencl.h"'])
    def test_headers_of_the_host_do_not_exist(self, name: str) -> None:
        with pytest.raises(CompileError, match=rf"^{name[1:-1]}: there is no such file .*BUILTINS\n"):
            compile_opencl(f"#include {name}\nkernel void k(global float *x) {{}}")

    def test_what_a_builtin_function_takes_is_said_once_and_without_the_header(self) -> None:
        with pytest.raises(CompileError) as refused:
            compile_opencl("kernel void k(global float *x) { x[0] = sin(1, 2); }")
        assert str(refused.value).splitlines()[1:] == [
            "kernel.cl:1:41: error: no matching function for call to 'sin'",
            "note: candidate function not viable: requires single argument "
            "'x', but 2 arguments were provided",
        ]

    def test_a_note_on_another_function_of_the_header_is_left_out(self) -> None:
        with pytest.raises(CompileError) as refused:
            compile_opencl('kernel void k(global float *x) { printf("%f", x[0]); }')
        text = str(refused.value)
        assert text.startswith("printf: neither ") and "builtin header>" not in text and "note: " not in text

    def test_a_syntax_error_has_its_place(self) -> None:
        with pytest.raises(
            CompileError, match=r"clang could not compile mine\.cl:\nmine\.cl:1:\d+: error: expected"
        ):
            compile_opencl("__kernel void k() { int x = ; }", name="mine.cl")

    def test_an_unknown_architecture_is_named(self) -> None:
        with pytest.raises(CompileError, match="gfx9999"):
            compile_opencl(COPY, arch="gfx9999")

    def test_what_is_no_object_cannot_be_linked(self) -> None:
        with pytest.raises(CompileError, match=r"lld could not link junk:(?s:.*)0\.o"):
            link([b"not an object"], what="junk")


class TestLlvmIr:
    SOURCE = """
define amdgpu_kernel void @store(ptr addrspace(1) %out, i32 %value) {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  %place = getelementptr i32, ptr addrspace(1) %out, i32 %id
  store i32 %value, ptr addrspace(1) %place
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
"""

    def test_a_module_becomes_a_code_object(self) -> None:
        loaded = load_code_object(compile_llvm_ir(self.SOURCE))
        assert "global_store_b32" in {i.name for i in instructions(loaded)}

    def test_the_wave_size_is_chosen(self) -> None:
        waves = [
            load_code_object(compile_llvm_ir(self.SOURCE, wave=w)).kernel().descriptor.wave for w in (32, 64)
        ]
        assert waves == [32, 64]

    def test_wrong_ir_is_a_compile_error(self) -> None:
        with pytest.raises(CompileError, match=r"LLVM could not compile kernel\.ll"):
            compile_llvm_ir("define void @f( {")


class TestKernels:
    @pytest.mark.parametrize("name", list(KERNELS))
    def test_the_code_is_what_it_is_meant_to_test(self, name: str) -> None:
        source, wanted = KERNELS[name]
        names = {i.name for i in instructions(load_code_object(compile_opencl(source)))}
        missing = [start for start in wanted if not any(found.startswith(start) for found in names)]
        assert missing == []

    @pytest.mark.conformance
    @pytest.mark.parametrize("wave", [32, 64])
    def test_the_disassembly_is_that_of_llvm(self, wave: int) -> None:
        found: dict[str, tuple[int, ...]] = {}
        for name, (source, _) in KERNELS.items():
            if wave == 64 and name == "WMMA matmul":
                continue
            loaded = load_code_object(compile_opencl(source, wave=wave))
            for start, end in loaded.code:
                found |= {i.text: i.words for i in decode_program(loaded.image, start, end, wave=wave)}
        features = [] if wave == 32 else ["+wavefrontsize64", "-wavefrontsize32"]
        expected = [Assembled(text, words) for text, words in found.items()]
        assert assemble(list(found), features=features) == expected
        assert len(found) > 2500


class TestUnlinked:
    """Objects that no linker has seen, as compilers that stop there make them."""

    ARGUMENTS = (
        *("-target-cpu", "gfx1100", "-x", "cl", "-cl-std=CL2.0", "-mcode-object-version=5", "-O2", "-w"),
        *("-fvisibility=hidden", "-mrelocation-model", "pic", "-pic-level", "2"),
    )

    @pytest.mark.parametrize("name", ["function table", "calls", "tiled matmul"])
    def test_the_instructions_are_those_of_the_linked_object(self, name: str) -> None:
        """Both resolve the same references, to places that are laid out differently."""
        source = f"{header()}{KERNELS[name][0]}"
        unlinked = clang([*self.ARGUMENTS, "-emit-obj"], source.encode(), what=name)
        loaded, linked = load_code_object(unlinked), load_code_object(link([unlinked], what=name))
        assert [i.name for i in instructions(loaded)] == [i.name for i in instructions(linked)]
        assert loaded.symbols.keys() == linked.symbols.keys()
        assert calls(loaded) == calls(linked)

    def test_what_only_a_linker_can_resolve_is_refused_by_name(self) -> None:
        visible = [argument for argument in self.ARGUMENTS if "visibility" not in argument]
        source = f"{header()}{FUNCTION_TABLE}"
        unlinked = clang([*visible, "-emit-obj"], source.encode(), what="table")
        with pytest.raises(PackageError, match=r"relocation R_AMDGPU_GOTPCREL32_LO at .*link it first"):
            load_code_object(unlinked)

    def test_a_table_of_functions_points_to_them(self) -> None:
        source = f"{header()}{FUNCTION_TABLE}"
        loaded = load_code_object(clang([*self.ARGUMENTS, "-emit-obj"], source.encode(), what="table"))
        image = loaded.at(0x40000)
        place = loaded.symbols["table"]
        found = [int.from_bytes(image[place + 8 * k : place + 8 * k + 8], "little") for k in range(3)]
        assert found == [0x40000 + loaded.symbols[name] for name in ("add", "subtract", "multiply")]


class TestBuiltins:
    LANGUAGE = ("-target-cpu", "gfx1100", "-x", "cl", "-cl-std=CL2.0", "-w")

    def declared(self) -> set[str]:
        """Return every name that the header declares as a function or as a macro with arguments."""
        text = clang([*self.LANGUAGE, "-E", "-dD"], header().encode(), what="the header").decode()
        functions = re.findall(r"static inline [a-z_]+\d* (\w+)\(", text)
        macros = re.findall(r"^#define (\w+)\(", text, re.MULTILINE)
        own = {name for name in (*functions, *macros) if not re.match(r"rf_|RF_|_|[A-Z]", name)}
        return {re.sub(r"^(as|convert)_\w+$", r"\1_", name) for name in own}

    def test_the_list_is_what_the_header_declares(self) -> None:
        listed = [name for names in BUILTINS.values() for name in names]
        assert len(listed) == len(set(listed))
        assert set(listed) == self.declared()

    def test_functions_exist_for_vectors_too(self) -> None:
        unary = ["exp", "sin", "tanh", "cbrt", "erf", "floor", "rsqrt", "sign", "degrees"]
        binary = ["pow", "atan2", "fmod", "hypot", "fmin", "copysign", "nextafter", "fdim"]
        lines = []
        for type_ in ("half", "float", "double"):
            for width in (2, 3, 4, 8, 16):
                lines += [f"*({type_}{width} *)p = {name}(*({type_}{width} *)p);" for name in unary]
                lines += [
                    f"*({type_}{width} *)p = {name}(*({type_}{width} *)p, *({type_}{width} *)q);"
                    for name in binary
                ]
        source = f"{header()} void f(void *p, void *q) {{ {' '.join(lines)} }}"
        clang([*self.LANGUAGE, "-fsyntax-only"], source.encode(), what="the calls")


FLOAT_FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[float, float]]] = {
    "exp": (np.exp, (-80, 80)),
    "exp2": (np.exp2, (-120, 120)),
    "exp10": (lambda x: np.longdouble(10) ** x, (-35, 35)),
    "expm1": (np.expm1, (-10, 10)),
    "log": (np.log, (0, 1e6)),
    "log2": (np.log2, (0, 1e6)),
    "log10": (np.log10, (0, 1e6)),
    "log1p": (np.log1p, (-0.99, 1e3)),
    "sin": (np.sin, (-1e4, 1e4)),
    "cos": (np.cos, (-1e4, 1e4)),
    "tan": (np.tan, (-1e3, 1e3)),
    "asin": (np.arcsin, (-1, 1)),
    "acos": (np.arccos, (-1, 1)),
    "atan": (np.arctan, (-1e3, 1e3)),
    "sinh": (np.sinh, (-80, 80)),
    "cosh": (np.cosh, (-80, 80)),
    "tanh": (np.tanh, (-10, 10)),
    "asinh": (np.arcsinh, (-1e4, 1e4)),
    "acosh": (np.arccosh, (1, 1e4)),
    "atanh": (np.arctanh, (-1, 1)),
    "cbrt": (np.cbrt, (-1e6, 1e6)),
    "sqrt": (np.sqrt, (0, 1e6)),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (0, 1e6)),
    "erf": (np.vectorize(math.erf), (-4, 4)),
    "erfc": (np.vectorize(math.erfc), (-4, 9)),
    "atan2": (np.arctan2, (-1e3, 1e3)),
    "hypot": (np.hypot, (-1e3, 1e3)),
    "pow": (lambda x, y: np.power(np.abs(x), y), (-16, 16)),
    "fmod": (np.fmod, (-1e6, 1e6)),
    "remainder": (np.vectorize(math.remainder), (-1e6, 1e6)),
}
TWO = ("atan2", "hypot", "pow", "fmod", "remainder")
EXACT = ("fmod", "remainder")
# The largest error of double results in units of the last place; 64-bit mantissas of long double judge them.
ULP = {"erf": 8.0, "erfc": 16.0, "default": 2.5}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> HostLibrary:
    """The functions that the tests below call, compiled once."""
    source = ""
    for type_ in ("float", "double"):
        for name in FLOAT_FUNCTIONS:
            expression = "pow(fabs(x), y)" if name == "pow" else None
            source += element_wise(name, type_, *([type_] * (2 if name in TWO else 1)), expression=expression)
    source += element_wise("tanpi", "double", "double") + element_wise("rsqrt", "half", "half")
    source += "".join(element_wise(*row) for row in INTEGER_ROWS)
    source += "".join(
        element_wise(name, *types, expression=expression) for name, types, expression in EXPRESSION_ROWS
    )
    return HostLibrary(source, tmp_path_factory.mktemp("host"))


_INT = {"char": np.int8, "uchar": np.uint8, "short": np.int16, "int": np.int32, "uint": np.uint32}
DTYPES: dict[str, Any] = {
    **_INT,
    "long": np.int64,
    "ulong": np.uint64,
    "float": np.float32,
    "double": np.float64,
}
DTYPES |= {"half": np.float16, "ushort": np.uint16}

INTEGER_ROWS = (
    ("add_sat", "char", "char", "char"),
    ("sub_sat", "uchar", "uchar", "uchar"),
    ("mul_hi", "ulong", "ulong", "ulong"),
    ("mul_hi", "long", "long", "long"),
    ("mul_hi", "int", "int", "int"),
    ("hadd", "int", "int", "int"),
    ("rhadd", "uchar", "uchar", "uchar"),
    ("abs_diff", "uint", "int", "int"),
    ("abs", "uchar", "char"),
    ("clz", "short", "short"),
    ("ctz", "int", "int"),
    ("popcount", "ulong", "ulong"),
    ("rotate", "uint", "uint", "uint"),
    ("mul24", "int", "int", "int"),
    ("upsample", "int", "short", "ushort"),
    ("min", "long", "long", "long"),
    ("clamp", "int", "int", "int", "int"),
    ("bitselect", "uint", "uint", "uint", "uint"),
    *(("mad_sat", t, t, t, t) for t in ("char", "ushort", "int", "uint", "long", "ulong")),
)
EXPRESSION_ROWS = (
    ("to_uchar_sat", ("uchar", "float"), "convert_uchar_sat(x)"),
    ("to_char_rte", ("char", "float"), "convert_char_sat_rte(x)"),
    ("to_int_rtn", ("int", "double"), "convert_int_rtn(x)"),
    ("to_long_sat", ("long", "double"), "convert_long_sat(x)"),
    ("to_uint_sat", ("uint", "long"), "convert_uint_sat(x)"),
    ("to_short_sat", ("short", "ulong"), "convert_short_sat(x)"),
    ("to_half", ("half", "float"), "convert_half(x)"),
    ("reinterpreted", ("uint", "float"), "as_uint(x)"),
    ("is_nan", ("int", "float"), "isnan((float4)(x)).s2 + 2 * isnan(x)"),
    ("is_normal", ("int", "double"), "isnormal(x)"),
    ("sign_bit", ("int", "half"), "signbit(x)"),
    ("frexp_sum", ("double", "double"), "({ int e; double m = frexp(x, &e); m + e; })"),
    ("fract_whole", ("float", "float"), "({ float w, f = fract(x, &w); f + 2 * w; })"),
    ("scaled", ("float", "float", "int"), "ldexp(x, y)"),
    ("after", ("float", "float", "float"), "nextafter(x, y)"),
    (
        "cross_dot",
        ("float", "float", "float"),
        "dot(cross((float3)(x, y, 1), (float3)(y, 1, x)), (float3)(1, 2, 3))",
    ),
    ("unit", ("float", "float", "float"), "length(normalize((float2)(x, y)))"),
    *((f"length_of_{t}", (t, t, t), f"length(({t}2)(x, y))") for t in ("half", "float", "double")),
    *((f"unit_of_{t}", (t, t, t), f"normalize(({t}3)(0, x, y)).y") for t in ("half", "float", "double")),
    ("far", ("float", "float", "float"), "distance((float4)(x), (float4)(y))"),
    ("smooth", ("float", "float"), "smoothstep(-1.0f, 3.0f, (float4)x).s3"),
    ("shuffled", ("int", "int"), "((int4)(x, 1, 2, 3)).wzyx.s3"),
    ("loaded", ("float", "float"), "vload3(0, (float *)&(float4){x, x + 1, x + 2, 0}).s2"),
    ("any_all", ("int", "int"), "any((int3)(0, x, 0)) + 2 * all((int4)(x, -1, x, -1))"),
    (
        "quotients",
        ("int", "float", "float"),
        "({ int3 q; float3 r = remquo((float3)(x, 1, x), (float3)(y), &q); q.s2 * 100 + (int)r.s2; })",
    ),
    ("chosen", ("int", "int", "uint"), "shuffle((int4)(x, 1, 2, 3) + (int4)(0, x, x, x), (uint2)(0, y)).y"),
    ("chosen_of_two", ("int", "int", "uint"), "shuffle2((int2)(x, 1), (int2)(2, 3), (uint8)(y)).s6"),
    *(
        (
            f"stored{mode}",
            ("half", type_),
            f"({{ half h[3]; vstore_half3{mode}(({type_}3)(0, 0, x), 0, h); h[2]; }})",
        )
        for type_ in ("float", "double")
        for mode in ("_rtz", "_rtp", "_rtn")
    ),
    ("quotient", ("int", "double", "double"), "({ int q; remquo(x, y, &q); q; })"),
    ("integer_log", ("int", "float"), "ilogb(x)"),
)


def apply(library: HostLibrary, name: str, result: str, *arrays: Any, types: tuple[str, ...]) -> Any:
    out = np.empty(len(arrays[0]), DTYPES[result])
    converted = [np.ascontiguousarray(array, DTYPES[t]) for array, t in zip(arrays, types, strict=True)]
    library.call("_".join([name, *types]), *converted, out, len(out))
    return out


def whole_range(type_: str, count: int, seed: int) -> Any:
    """Return integers of all magnitudes, with the extremes."""
    rng = np.random.default_rng(seed)
    info = np.iinfo(DTYPES[type_])
    values = rng.integers(info.min, info.max, count, dtype=DTYPES[type_], endpoint=True)
    values >>= rng.integers(0, info.bits, count).astype(values.dtype)
    values[:4] = [info.min, info.max, 0, 1]
    return values


class TestMathematics:
    def arguments(self, name: str, type_: str) -> list[Any]:
        rng = np.random.default_rng(3)
        low, high = FLOAT_FUNCTIONS[name][1]
        return [rng.uniform(low, high, 4000).astype(DTYPES[type_]) for _ in range(2 if name in TWO else 1)]

    @pytest.mark.parametrize("name", list(FLOAT_FUNCTIONS))
    def test_float_results_are_rounded_correctly(self, host: HostLibrary, name: str) -> None:
        arrays = self.arguments(name, "float")
        found = apply(host, name, "float", *arrays, types=("float",) * len(arrays))
        exact = FLOAT_FUNCTIONS[name][0](*(array.astype(np.longdouble) for array in arrays))
        wrong = found != exact.astype(np.float32)
        spacing = np.spacing(np.abs(exact).astype(np.float32)).astype(np.longdouble)
        assert np.all(np.abs(found[wrong] - exact[wrong]) < 0.501 * spacing[wrong])

    @pytest.mark.parametrize("name", list(FLOAT_FUNCTIONS))
    def test_double_results_are_within_the_bound(self, host: HostLibrary, name: str) -> None:
        arrays = self.arguments(name, "double")
        found = apply(host, name, "double", *arrays, types=("double",) * len(arrays))
        exact = FLOAT_FUNCTIONS[name][0](*(array.astype(np.longdouble) for array in arrays))
        spacing = np.spacing(np.abs(exact).astype(np.float64)).astype(np.longdouble)
        error = np.max(np.abs(found - exact) / spacing)
        assert error <= (0 if name in EXACT else ULP.get(name, ULP["default"]))

    def test_large_angles_are_reduced_exactly(self, host: HostLibrary) -> None:
        x = np.float64([1e10, 3.4e38, 1.7e20, -8.6e30, 1e300, 2.0**30])
        found = apply(host, "sin", "double", x, types=("double",))
        assert np.allclose(found, [sine_of(value) for value in x.tolist()], rtol=1e-15, atol=0)

    @pytest.mark.parametrize(
        ("name", "arguments", "expected"),
        [
            ("exp", [np.inf, -np.inf, np.nan, 0.0], [np.inf, 0, np.nan, 1]),
            ("log", [0.0, -1.0, np.inf, 1.0], [-np.inf, np.nan, np.inf, 0]),
            ("sin", [np.inf, -0.0, np.nan, 0.0], [np.nan, -0.0, np.nan, 0]),
            ("atan", [np.inf, -np.inf, -0.0, np.nan], [np.pi / 2, -np.pi / 2, -0.0, np.nan]),
            ("tanh", [np.inf, -np.inf, -0.0, np.nan], [1, -1, -0.0, np.nan]),
            ("tanpi", [0.5, 1.5, -0.5, -1.5], [np.inf, -np.inf, -np.inf, np.inf]),
            ("tanpi", [1.0, 2.0, -1.0, -2.0, 3.0, -0.0], [-0.0, 0.0, 0.0, -0.0, -0.0, -0.0]),
            ("tanpi", [0.25, 0.75, -0.25, np.inf], [1, -1, -1, np.nan]),
            ("cbrt", [-8.0, np.inf, -0.0, 27.0], [-2, np.inf, -0.0, 3]),
            ("acos", [2.0, 1.0, -1.0, np.nan], [np.nan, 0, np.pi, np.nan]),
            ("erf", [np.inf, -np.inf, -0.0, np.nan], [1, -1, -0.0, np.nan]),
            ("asinh", [np.inf, -np.inf, -0.0, np.nan], [np.inf, -np.inf, -0.0, np.nan]),
            ("log1p", [-1.0, -2.0, np.inf, -0.0], [-np.inf, np.nan, np.inf, -0.0]),
        ],
    )
    def test_special_values_follow_c(
        self, host: HostLibrary, name: str, arguments: list[float], expected: list[float]
    ) -> None:
        found = apply(host, name, "double", np.array(arguments), types=("double",))
        assert np.array_equal(found, expected, equal_nan=True)
        assert np.array_equal(np.signbit(found), np.signbit(expected)) or np.isnan(expected).any()

    def test_rsqrt_of_every_half_is_rounded_correctly(self, host: HostLibrary) -> None:
        x = np.arange(1, 0x7C00, dtype=np.uint16).view(np.float16)
        found = apply(host, "rsqrt", "half", x, types=("half",))
        assert np.array_equal(found, (1 / np.sqrt(x.astype(np.longdouble))).astype(np.float16))

    def test_denormals_are_kept(self, host: HostLibrary) -> None:
        x = np.float32([1e-40, -3e-45])
        assert np.array_equal(apply(host, "sin", "float", x, types=("float",)), x)
        assert (
            apply(host, "scaled", "float", np.float32([1]), np.int32([-149]), types=("float", "int"))[0] > 0
        )


def sine_of(x: float) -> float:
    """Return the sine of the exact value of ``x``, with 800 digits."""
    with localcontext() as context:
        context.prec = 800
        pi = pi_of_800_digits()
        turns = (Decimal(x) / pi).to_integral_value()
        rest = float(Decimal(x) - turns * pi)
        return math.sin(rest) * (-1 if turns % 2 else 1)


def pi_of_800_digits() -> Decimal:
    """Return pi by Machin's formula."""

    def arctangent_of_inverse(n: int) -> Decimal:
        term = total = Decimal(1) / n
        k = 1
        while abs(term) > Decimal(10) ** -798:
            term = -term / (n * n)
            k += 2
            total += term / k
        return total

    return 4 * (4 * arctangent_of_inverse(5) - arctangent_of_inverse(239))


def big(array: Any) -> Any:
    """Return the numbers as Python integers, which do not overflow."""
    return array.astype(object)


class TestIntegers:
    @pytest.mark.parametrize(
        ("row", "expected"),
        [
            (INTEGER_ROWS[0], lambda x, y: np.clip(x + y, -128, 127)),
            (INTEGER_ROWS[1], lambda x, y: np.clip(x - y, 0, 255)),
            (INTEGER_ROWS[2], lambda x, y: x * y >> 64),
            (INTEGER_ROWS[3], lambda x, y: x * y >> 64),
            (INTEGER_ROWS[4], lambda x, y: x * y >> 32),
            (INTEGER_ROWS[5], lambda x, y: x + y >> 1),
            (INTEGER_ROWS[6], lambda x, y: x + y + 1 >> 1),
            (INTEGER_ROWS[7], lambda x, y: abs(x - y)),
            (INTEGER_ROWS[8], abs),
            (INTEGER_ROWS[9], np.vectorize(lambda x: 16 - (x & 0xFFFF).bit_length(), otypes=[object])),
            (
                INTEGER_ROWS[10],
                np.vectorize(lambda x: (x & -x).bit_length() - 1 if x else 32, otypes=[object]),
            ),
            (INTEGER_ROWS[11], np.vectorize(lambda x: x.bit_count(), otypes=[object])),
            (INTEGER_ROWS[12], lambda x, y: (x << (y & 31) | x >> (-y & 31)) & 0xFFFFFFFF),
            (INTEGER_ROWS[14], lambda x, y: x * 65536 + y),
            (INTEGER_ROWS[15], np.minimum),
            (INTEGER_ROWS[17], lambda x, y, mask: x & ~mask | y & mask),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
    )
    def test_results_are_exact(
        self, host: HostLibrary, row: tuple[str, ...], expected: Callable[..., Any]
    ) -> None:
        name, result, *types = row
        arrays = [whole_range(type_, 500, seed) for seed, type_ in enumerate(types)]
        found = apply(host, name, result, *arrays, types=tuple(types))
        assert np.array_equal(big(found), expected(*map(big, arrays)))

    def test_mul24_uses_24_bits(self, host: HostLibrary) -> None:
        x, y = np.int32([0x7F00FFFF, -3]), np.int32([2, 5])
        found = apply(host, "mul24", "int", x, y, types=("int", "int"))
        assert found.tolist() == [0x00FFFF * 2, -15]

    @pytest.mark.parametrize("type_", ["char", "ushort", "int", "uint", "long", "ulong"])
    def test_mad_sat_saturates_the_sum(self, host: HostLibrary, type_: str) -> None:
        arrays = [whole_range(type_, 2000, seed) for seed in range(3)]
        found = apply(host, "mad_sat", type_, *arrays, types=(type_,) * 3)
        x, y, z = map(big, arrays)
        info = np.iinfo(DTYPES[type_])
        assert np.array_equal(big(found), np.clip(x * y + z, info.min, info.max))

    def test_clamp_has_both_ends(self, host: HostLibrary) -> None:
        ends = np.int32([-5, -5, -5]), np.int32([9, 9, 9])
        found = apply(host, "clamp", "int", np.int32([-9, 3, 20]), *ends, types=("int",) * 3)
        assert found.tolist() == [-5, 3, 9]


class TestConversions:
    @pytest.mark.parametrize(
        ("index", "values", "expected"),
        [
            (0, [-1.0, 3.7, 300.0, math.nan, math.inf], [0, 3, 255, 0, 255]),
            (1, [2.5, 3.5, -2.5, 200.0, -200.0], [2, 4, -2, 127, -128]),
            (2, [2.5, -2.5, -0.1, 7.0, 1e9], [2, -3, -1, 7, 10**9]),
            (3, [1e30, -1e30, -1.5, math.nan, 2.0**62], [2**63 - 1, -(2**63), -1, 0, 2**62]),
            (4, [-5, 7, 2**40, 2**32 - 1, -(2**63)], [0, 7, 2**32 - 1, 2**32 - 1, 0]),
            (5, [5, 40000, 2**64 - 1, 32767, 32768], [5, 32767, 32767, 32767, 32767]),
            (6, [1.0, 65520.0, 1e-8, 2049.0, -0.0], [1.0, math.inf, 0.0, 2048.0, -0.0]),
            (7, [1.0, -2.0, 0.0], [0x3F800000, 0xC0000000, 0]),
        ],
    )
    def test_values_saturate_and_round(
        self, host: HostLibrary, index: int, values: list[float], expected: list[float]
    ) -> None:
        name, (result, *types), _ = EXPRESSION_ROWS[index]
        array = np.array(values, dtype=DTYPES[types[0]])
        assert apply(host, name, result, array, types=tuple(types)).tolist() == expected

    @pytest.mark.parametrize("type_", ["float", "double"])
    @pytest.mark.parametrize(
        ("mode", "expected"),
        [
            ("_rtz", [1, -1, 65504, -65504, 0, -0.0, 2048, math.inf, 1]),
            ("_rtp", [1 + 2**-10, -1, math.inf, -65504, 2**-24, -0.0, 2050, math.inf, 1]),
            ("_rtn", [1, -1 - 2**-10, 65504, -math.inf, 0, -(2**-24), 2048, math.inf, 1]),
        ],
    )
    def test_stores_of_half_round_in_a_direction(
        self, host: HostLibrary, type_: str, mode: str, expected: list[float]
    ) -> None:
        values = np.array([1.0001, -1.0001, 65519, -1e9, 1e-9, -1e-9, 2049, math.inf, 1], DTYPES[type_])
        found = apply(host, f"stored{mode}", "half", values, types=(type_,))
        assert np.array_equal(found, expected)
        assert np.array_equal(np.signbit(found), np.signbit(expected))


class TestOthers:
    def one(self, host: HostLibrary, name: str, *values: Any) -> Any:
        _, (result, *types), _ = next(row for row in EXPRESSION_ROWS if row[0] == name)
        arrays = [np.array([value], DTYPES[type_]) for value, type_ in zip(values, types, strict=True)]
        return apply(host, name, result, *arrays, types=tuple(types))[0]

    def test_relations_are_1_for_scalars_and_minus_1_for_vectors(self, host: HostLibrary) -> None:
        assert self.one(host, "is_nan", math.nan) == 2 - 1
        assert self.one(host, "is_nan", 1.0) == 0

    def test_a_denormal_is_not_normal(self, host: HostLibrary) -> None:
        assert [self.one(host, "is_normal", x) for x in (1e-310, 1.0, 0.0, math.inf)] == [0, 1, 0, 0]

    def test_signbit_sees_the_sign_of_zero(self, host: HostLibrary) -> None:
        assert [self.one(host, "sign_bit", x) for x in (-0.0, 0.0, -2.0)] == [1, 0, 1]

    def test_results_through_pointers(self, host: HostLibrary) -> None:
        assert self.one(host, "frexp_sum", 48.0) == 0.75 + 6
        assert self.one(host, "frexp_sum", 5e-324) == 0.5 - 1073
        assert self.one(host, "fract_whole", -1.25) == 0.75 - 4
        assert self.one(host, "quotient", 17.0, 3.0) == 6
        assert self.one(host, "quotients", 17.0, 3.0) == 600 - 1

    def test_steps_between_floats(self, host: HostLibrary) -> None:
        assert self.one(host, "after", 1.0, 2.0) == np.nextafter(np.float32(1), np.float32(2))
        assert self.one(host, "after", 0.0, -1.0) == np.nextafter(np.float32(0), np.float32(-1))
        assert self.one(host, "integer_log", 0.3) == -2

    def test_geometry(self, host: HostLibrary) -> None:
        expected = np.dot(np.cross([2, 5, 1], [5, 1, 2]), [1, 2, 3])
        assert self.one(host, "cross_dot", 2.0, 5.0) == expected
        assert self.one(host, "unit", 3.0, 4.0) == 1
        assert self.one(host, "smooth", 1.0) == 0.5

    @pytest.mark.parametrize(
        ("type_", "large", "small"),
        [("half", 300.0, 2.0**-24), ("float", 1e30, 1e-44), ("double", 1e300, 1e-323)],
    )
    def test_squares_neither_overflow_nor_vanish(
        self, host: HostLibrary, type_: str, large: float, small: float
    ) -> None:
        dtype = DTYPES[type_]
        unit = pytest.approx(math.sqrt(0.5), rel=float(np.finfo(dtype).eps))
        for x in map(dtype, (large, small)):
            length = dtype(np.hypot(np.longdouble(x), np.longdouble(x)))
            assert self.one(host, f"length_of_{type_}", x, x) == length
            assert self.one(host, f"unit_of_{type_}", x, x) == unit
            assert self.one(host, f"unit_of_{type_}", x, 0.0) == 1
        assert self.one(host, "far", 1e30, -1e30) == np.float32(4e30)

    @pytest.mark.parametrize("type_", ["half", "float", "double"])
    def test_lengths_are_rounded_as_documented(self, host: HostLibrary, type_: str) -> None:
        dtype = DTYPES[type_]
        info = np.finfo(dtype)
        rng = np.random.default_rng(2)
        x = np.ldexp(rng.uniform(0.5, 1, 4000), rng.integers(info.minexp, info.maxexp, 4000)).astype(dtype)
        y = (x * rng.uniform(-1, 1, 4000)).astype(dtype)
        exact = np.hypot(x.astype(np.longdouble), y.astype(np.longdouble))
        found = apply(host, f"length_of_{type_}", type_, x, y, types=(type_, type_))
        fits = exact < info.max
        error = (np.abs(found - exact) / np.spacing(exact.astype(dtype)))[fits]
        assert np.max(error) < (2.5 if type_ == "double" else 0.501)

    @pytest.mark.parametrize("type_", ["half", "float", "double"])
    def test_infinite_components_decide_the_direction(self, host: HostLibrary, type_: str) -> None:
        pairs = [(math.inf, 1.0), (-math.inf, math.inf), (-7.0, math.inf), (math.inf, math.nan), (0.0, 0.0)]
        found = [self.one(host, f"unit_of_{type_}", x, y) for x, y in pairs]
        expected = [1, -math.sqrt(0.5), 0, math.nan, 0]
        assert np.allclose(found, expected, rtol=float(np.finfo(DTYPES[type_]).eps), atol=0, equal_nan=True)

    def test_vectors(self, host: HostLibrary) -> None:
        assert self.one(host, "shuffled", 7) == 7
        assert [self.one(host, "chosen", 7, k) for k in (0, 2, 3, 5)] == [7, 9, 10, 8]
        assert [self.one(host, "chosen_of_two", 7, k) for k in (0, 1, 2, 3, 4)] == [7, 1, 2, 3, 7]
        assert self.one(host, "loaded", 1.5) == 3.5
        assert [self.one(host, "any_all", x) for x in (-1, 0)] == [3, 0]
