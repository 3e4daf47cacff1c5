"""OpenCL C 2.0, or LLVM IR, to code objects for AMD GPUs.

Nothing of a vendor is used: clang and lld come from the wheel ``ziglang``, the functions of the language from
the header ``opencl.h`` beside this module. ``BUILTINS`` lists them; a kernel that uses another one is refused
by name. Images, pipes, printf, device-side enqueue, the work-group and sub-group collectives, lgamma, tgamma
and conversions to floats that round otherwise than to the nearest do not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources

from ringfence.compile.toolchain import CODE_OBJECT, TRIPLE, Header, clang, link
from ringfence.errors import CompileError

_INTEGERS = ("char", "uchar", "short", "ushort", "int", "uint", "long", "ulong")
_FLOATS = ("half", "float", "double")
_WIDTHS = ("", "2", "3", "4", "8", "16")
_MODES = ("_rte", "_rtz", "_rtp", "_rtn")

BUILTINS: Mapping[str, tuple[str, ...]] = {
    "work-items": (
        *("get_work_dim", "get_global_size", "get_global_id", "get_global_offset", "get_local_size"),
        *("get_enqueued_local_size", "get_local_id", "get_num_groups", "get_group_id"),
        *("get_global_linear_id", "get_local_linear_id", "get_sub_group_local_id", "get_sub_group_id"),
        *("get_max_sub_group_size", "get_num_sub_groups"),
    ),
    "synchronization": (
        *("barrier", "work_group_barrier", "sub_group_barrier", "mem_fence", "read_mem_fence"),
        *("write_mem_fence", "atomic_work_item_fence"),
    ),
    "copies": (*("async_work_group_copy", "async_work_group_strided_copy", "wait_group_events", "prefetch"),),
    "atomics": (
        *("atomic_add", "atomic_sub", "atomic_xchg", "atomic_inc", "atomic_dec", "atomic_cmpxchg"),
        *("atomic_min", "atomic_max", "atomic_and", "atomic_or", "atomic_xor"),
        *("atom_add", "atom_sub", "atom_xchg", "atom_inc", "atom_dec", "atom_cmpxchg"),
        *("atom_min", "atom_max", "atom_and", "atom_or", "atom_xor"),
        *("atomic_init", "atomic_load", "atomic_store", "atomic_exchange"),
        *("atomic_load_explicit", "atomic_store_explicit", "atomic_exchange_explicit"),
        *(f"atomic_fetch_{name}" for name in ("add", "sub", "and", "or", "xor", "min", "max")),
        *(f"atomic_fetch_{name}_explicit" for name in ("add", "sub", "and", "or", "xor", "min", "max")),
        *("atomic_compare_exchange_strong", "atomic_compare_exchange_strong_explicit"),
        *("atomic_compare_exchange_weak", "atomic_compare_exchange_weak_explicit"),
        *("atomic_flag_test_and_set", "atomic_flag_test_and_set_explicit"),
        *("atomic_flag_clear", "atomic_flag_clear_explicit"),
    ),
    "vectors": (
        *(f"vload{width}" for width in _WIDTHS[1:]),
        *(f"vstore{width}" for width in _WIDTHS[1:]),
        *(f"vload_half{width}" for width in _WIDTHS),
        *(f"vloada_half{width}" for width in _WIDTHS),
        *(f"vstore_half{width}{mode}" for width in _WIDTHS for mode in ("", *_MODES)),
        *(f"vstorea_half{width}{mode}" for width in _WIDTHS[1:] for mode in ("", *_MODES)),
        *("shuffle", "shuffle2"),
    ),
    "integers": (
        *("abs", "abs_diff", "add_sat", "sub_sat", "hadd", "rhadd", "clz", "ctz", "popcount", "rotate"),
        *("mul_hi", "mad_hi", "mad_sat", "mul24", "mad24", "upsample", "min", "max", "clamp"),
    ),
    "relations": (
        *("isequal", "isnotequal", "isgreater", "isgreaterequal", "isless", "islessequal", "islessgreater"),
        *("isfinite", "isinf", "isnan", "isnormal", "isordered", "isunordered", "signbit", "any", "all"),
        *("bitselect", "select"),
    ),
    "geometry": (
        *("cross", "dot", "distance", "length", "normalize", "fast_distance", "fast_length"),
        "fast_normalize",
    ),
    "common": ("degrees", "radians", "mix", "sign", "step", "smoothstep"),
    "mathematics": (
        *("acos", "acosh", "acospi", "asin", "asinh", "asinpi", "atan", "atan2", "atan2pi", "atanh"),
        *("atanpi", "cbrt", "ceil", "copysign", "cos", "cosh", "cospi", "erf", "erfc", "exp", "exp10"),
        *("exp2", "expm1", "fabs", "fdim", "floor", "fma", "fmax", "fmin", "fmod", "fract", "frexp"),
        *("hypot", "ilogb", "ldexp", "log", "log10", "log1p", "log2", "logb", "mad", "maxmag", "minmag"),
        *("modf", "nan", "nextafter", "pow", "pown", "powr", "remainder", "remquo", "rint", "rootn"),
        *("round", "rsqrt", "sin", "sincos", "sinh", "sinpi", "sqrt", "tan", "tanh", "tanpi", "trunc"),
    ),
    "native": tuple(
        f"{prefix}_{name}"
        for prefix in ("native", "half")
        for name in (
            *("cos", "divide", "exp", "exp10", "exp2", "log", "log10", "log2", "powr", "recip", "rsqrt"),
            *("sin", "sqrt", "tan"),
        )
    ),
    "conversions": ("as_", "convert_"),
}
"""Every function that a kernel can call, by topic.

``as_`` and ``convert_`` stand for ``as_float4(x)`` and the like: all types and widths, for integers also
``_sat`` and the rounding modes ``_rte _rtz _rtp _rtn``, for floats ``_rte``.
"""


def compile_opencl(
    source: str,
    *,
    arch: str = "gfx1100",
    wave: int | None = None,
    defines: Mapping[str, str | int] | None = None,
    options: Sequence[str] = (),
    optimization: int = 3,
    name: str = "kernel.cl",
) -> bytes:
    """Return the code object of OpenCL C, for waves of 32 or 64 lanes (default: what the GPU prefers).

    The same arguments give the same bytes. Divisions and square roots are correctly rounded and denormals
    kept, which ``options`` (of ``clang -cc1``, such as ``-cl-fast-relaxed-math``) can change. ``defines`` are
    macros, ``name`` stands for the source in messages.

    Raises :class:`CompileError` with clang's or lld's messages; functions that do not exist are named first.
    """
    if not isinstance(source, str):
        raise TypeError(f"OpenCL C is text, not {type(source).__name__}")
    if not isinstance(defines or {}, Mapping):
        raise TypeError(f"defines={defines!r} is no mapping of macros to their values")
    if isinstance(options, str):
        raise TypeError(f"options={options!r} is no list of options")
    lanes = _wave_choice(arch, wave)
    features = () if lanes is None else ("-target-feature", f"+wavefrontsize{lanes}")
    target = [
        *("-target-cpu", arch, f"-mcode-object-version={CODE_OBJECT}", *features, f"-O{optimization}", "-w"),
        *("-fvisibility=hidden", "-mrelocation-model", "pic", "-pic-level", "2"),
    ]
    language = [
        *(*target, "-x", "cl", "-cl-std=CL2.0", "-cl-fp32-correctly-rounded-divide-sqrt"),
        *("-fno-caret-diagnostics", "-fshow-overloads=best", "-nostdsysteminc", *options),
    ]
    macros = [f"-D{key}={value}" for key, value in (defines or {}).items()]
    text = f"#line 1 {_literal(name)}\n{source}\n".encode(errors="surrogateescape")
    try:
        front = [*language, *_builtins().include(language), *macros, "-main-file-name", name]
        module = clang([*front, "-emit-llvm", "-disable-llvm-passes"], text, what=name)
        back = [*target, "-x", "ir", *options, "-main-file-name", name, "-emit-obj"]
        return link([clang(back, _without_runtime(module), what=name)], what=name)
    except CompileError as error:
        raise _explained(error) from None


def compile_llvm_ir(
    text: str,
    *,
    arch: str = "gfx1100",
    wave: int | None = None,
    features: Sequence[str] = (),
    passes: bool = False,
    optimization: int = 3,
    name: str = "kernel.ll",
) -> bytes:
    """Return the code object of a module of LLVM IR, as llvmlite's LLVM reads it.

    Kernels are functions with the calling convention ``amdgpu_kernel``. ``passes`` runs LLVM's default
    pipeline of level ``optimization`` before the code is generated, for text that no compiler has optimised;
    without it functions need the attributes ``amdgpu-no-...`` for what they do not use.
    ``features`` are of the target, such as ``"+cumode"``. Raises :class:`CompileError` with LLVM's or lld's
    messages.
    """
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    lanes = _wave_choice(arch, wave)
    wave_features = () if lanes is None else (f"+wavefrontsize{lanes}", f"-wavefrontsize{96 - lanes}")
    given = (*wave_features, *features)
    machine = binding.Target.from_triple(TRIPLE).create_target_machine(
        cpu=arch, features=",".join(given), opt=optimization, reloc="pic"
    )
    try:
        module = binding.parse_assembly(text)
        module.triple = TRIPLE
        module.data_layout = str(machine.target_data)
        module.verify()
        if passes:
            options = binding.create_pipeline_tuning_options(speed_level=optimization)
            builder = binding.create_pass_builder(machine, options)
            builder.getModulePassManager().run(module, builder)
        unlinked = machine.emit_object(module)
    except RuntimeError as error:
        raise CompileError(f"LLVM could not compile {name}: {error}") from error
    return link([unlinked], what=name)


# What LLVM otherwise assumes of a kernel that calls a function which it does not know (LLVM,
# AMDGPUAttributes.def): the builtin header has nothing that needs it.
_NO_RUNTIME = " ".join(
    f'"amdgpu-no-{what}"'
    for what in (
        *("queue-ptr", "dispatch-id", "hostcall-ptr", "heap-ptr", "default-queue", "completion-action"),
        "multigrid-sync-arg",
    )
).encode()
_ATTRIBUTES = re.compile(rb"^(attributes #\d+ = \{)", re.MULTILINE)


def _without_runtime(module: bytes) -> bytes:
    """Return a module whose functions need nothing of a vendor's runtime."""
    return _ATTRIBUTES.sub(rb"\1 " + _NO_RUNTIME, module)


def _literal(text: str) -> str:
    """Return ``text`` as a string of C on one line."""
    return '"' + text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") + '"'


def _wave_choice(arch: str, wave: int | None) -> int | None:
    """Return how many lanes a wave gets; ``None`` on gfx9, where there is nothing to choose."""
    if wave not in (None, 32, 64):
        raise ValueError(f"a wave has 32 or 64 lanes, not {wave}")
    if arch.startswith("gfx9"):
        if wave == 32:
            raise CompileError(f"a wave has 64 lanes on {arch}, not 32")
        return None
    return wave or 32


@cache
def _builtins() -> Header:
    return Header(header())


def header() -> str:
    """Return the builtin header together with the macros that it cannot define itself."""
    text = resources.files("ringfence.compile").joinpath("opencl.h").read_text(encoding="utf-8")
    return "\n".join([f'#line 1 "{_HEADER_NAME}"', text, *_macros(), ""])


def _macros() -> Iterator[str]:
    for type_ in (*_INTEGERS, *_FLOATS):
        for width in _WIDTHS:
            full = f"{type_}{width}"
            yield f"#define as_{full}(x) __builtin_astype((x), {full})"
            yield from _conversions(type_, width)


def _conversions(type_: str, width: str) -> Iterator[str]:
    """Yield convert_T: integers round toward zero unless a mode says otherwise, floats to the nearest."""
    full = f"{type_}{width}"
    plain = f"__builtin_convertvector({{}}, {full})" if width else f"(({full}){{}})"
    yield f"#define convert_{full}(x) {plain.format('(x)')}"
    if type_ in _FLOATS:
        yield f"#define convert_{full}_rte(x) {plain.format('(x)')}"
        return
    for mode in ("rte", "rtz", "rtp", "rtn"):
        rounded = f"rf_{mode}(x)"
        yield f"#define convert_{full}_{mode}(x) {plain.format(rounded)}"
        yield f"#define convert_{full}_sat_{mode}(x) rf_sat_{type_}({rounded})"
    yield f"#define convert_{full}_sat(x) rf_sat_{type_}(x)"


# How clang and lld say that something does not exist.
_MISSING = re.compile(
    r"(?:use of undeclared identifier|call to undeclared function|implicit declaration of function"
    r"|undefined symbol:) '?([A-Za-z_]\w*)'?"
)
_NO_FILE = re.compile(r"fatal error: '(.*)' file not found")
_LIST = "the functions that exist are listed in ringfence.compile.opencl.BUILTINS"

_HEADER_NAME = "<builtin header>"
_NOTE_IN_HEADER = re.compile(rf".*{_HEADER_NAME}:\d+:\d+: note: (?:(candidate .*)|.*)")


def _explained(error: CompileError) -> CompileError:
    """Return the error with what does not exist first, and without the insides of the builtin header."""
    text = "\n".join(_messages(str(error)))
    missing = list(dict.fromkeys(_MISSING.findall(text)))
    if missing:
        names = ", ".join(missing)
        return CompileError(f"{names}: neither the kernel nor the builtin header has that; {_LIST}\n{text}")
    if absent := _NO_FILE.search(text):
        return CompileError(
            f"{absent[1]}: there is no such file to include, and the functions of OpenCL C need none; {_LIST}"
            f"\n{text}"
        )
    return CompileError(text)


def _messages(text: str) -> Iterator[str]:
    """Yield the lines of an error. Of notes on the builtin header only what it expects, once each."""
    seen = set()
    for line in text.splitlines():
        note = _NOTE_IN_HEADER.fullmatch(line)
        if note is None:
            yield line
        elif note[1] and note[1] not in seen:
            seen.add(note[1])
            yield f"note: {note[1]}"
