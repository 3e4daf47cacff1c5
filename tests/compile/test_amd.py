"""Compiling for AMD GPUs: what code objects say, and that their machine code computes what it should."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import ringfence as rf
from compile.graphs import node, random, save
from models import MODELS
from package.steps import BASE, run_steps
from ringfence.compile import compile_model, run_reference
from ringfence.compile.kernels import CompiledKernel, compile_tinygrad
from ringfence.compile.request import AMD_TARGETS
from ringfence.errors import CompileError, LaunchError
from ringfence.hardware.amd.code_object import load_code_object
from ringfence.package import Package
from ringfence.package.programs import AmdProgram
from ringfence.virtual import run_amdgpu

Array = np.ndarray[Any, Any]
BOUND = 1e-4  # of the largest value of an output


def launch(kernels: list[CompiledKernel], output: Array, *inputs: Array) -> Array:
    """Run kernels on arrays in their order, every access checked; return the output."""
    memory = {"out": output, **{f"in{k}": array for k, array in enumerate(inputs)}}
    for kernel in kernels:
        for name, size in kernel.temporaries.items():
            memory.setdefault(name, np.full(size, 0xFF, np.uint8))
    place = {name: BASE + (k << 32) for k, name in enumerate(memory)}
    for kernel in kernels:
        arguments = np.array([place[name] for name in kernel.arguments], np.uint64)
        ranges = {place[name]: array for name, array in memory.items()}
        run_amdgpu(
            kernel.program.to_bytes(),
            "gfx1100",
            groups=kernel.groups,
            local=kernel.local,
            kernarg_address=BASE - 4096,
            memory={**ranges, BASE - 4096: arguments},
        )
    return output


def compiled(function: Callable[..., Any], *arrays: Array, dtype: str = "float32") -> list[CompiledKernel]:
    return compile_tinygrad(function, *(a.shape for a in arrays), dtype=dtype, target="gfx1100")


# ----- kernels --------------------------------------------------------------------------------------

A, B = random(37, 24, seed=1), random(24, 19, seed=2)
C = abs(A) + np.float32(0.1)


@pytest.mark.parametrize(
    ("function", "inputs", "expected"),
    [
        (lambda a: 2 * a + 1, (A,), 2 * A + 1),
        (lambda a, b: a @ b, (A, B), A @ B),
        (lambda a: a.sum(axis=0), (A,), A.sum(axis=0)),
        (lambda a: a.softmax(), (A,), np.exp(A) / np.exp(A).sum(axis=1, keepdims=True)),
        (lambda a: a.sin() * a.sqrt().log(), (C,), np.sin(C) * np.log(np.sqrt(C))),
        (lambda a: (a > 0.2).where(a.exp(), -a), (A,), np.where(A > 0.2, np.exp(A), -A)),
        (lambda a: a.cumsum(axis=0), (A,), A.cumsum(axis=0)),
        (lambda a: a.transpose().pad(((1, 2), (3, 0))), (A,), np.pad(A.T, ((1, 2), (3, 0)))),
    ],
    ids=["scale", "matmul", "sum", "softmax", "functions", "where", "cumsum", "pad"],
)  # fmt: skip
def test_float_kernels_compute(function: Any, inputs: tuple[Array, ...], expected: Array) -> None:
    found = launch(compiled(function, *inputs), np.zeros(expected.shape, np.float32), *inputs)
    assert np.allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_integer_kernels_compute() -> None:
    n = np.random.default_rng(4).integers(-1000, 1000, 300).astype(np.int32)
    found = launch(compiled(lambda n: (n * n) // 7 + (n % 5), n, dtype="int32"), np.zeros_like(n), n)
    assert np.array_equal(found, n * n // 7 + n % 5)


def test_half_kernels_compute() -> None:
    h = random(130, seed=5).astype(np.float16)
    found = launch(compiled(lambda h: h * h + 1, h, dtype="float16"), np.zeros_like(h), h)
    assert np.allclose(found, h.astype(np.float32) ** 2 + 1, rtol=2e-3)


def test_sums_through_local_memory_and_barriers_compute() -> None:
    a = random(5, 2048, seed=6)
    kernels = compiled(lambda a: a.sum(axis=1), a)
    objects = [load_code_object(k.program.to_bytes()).kernel().descriptor for k in kernels]
    assert any(d.group_segment_fixed_size for d in objects)
    assert np.allclose(launch(kernels, np.zeros(5, np.float32), a), a.sum(axis=1), atol=1e-4)


def test_a_code_object_says_what_a_launch_must_know() -> None:
    [kernel] = compiled(lambda a, b: a @ b, A, B)
    program = kernel.program
    assert isinstance(program, AmdProgram)
    loaded = load_code_object(program.code_object)
    metadata = loaded.kernel().metadata
    assert metadata is not None
    assert (loaded.arch, metadata.wavefront_size) == ("gfx1100", 32)
    assert metadata.reqd_workgroup_size == kernel.local == program.local_size
    assert [a.offset for a in metadata.explicit] == [0, 8, 16] and not metadata.hidden
    assert [a.written for a in program.arguments] == [True, False, False]


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint16", "int64", "bool", "float64"])
def test_a_code_object_names_its_arguments_and_their_types(dtype: str) -> None:
    [kernel] = compile_tinygrad(lambda a, b: a + b, (8,), (8,), dtype=dtype, target="gfx1100")
    program = kernel.program
    assert [(a.name, a.dtype, a.written) for a in program.arguments] == [
        ("out", dtype, True),
        ("in0", dtype, False),
        ("in1", dtype, False),
    ]
    with rf.open("virtual:gfx1100") as device:
        loaded = device.load(program.to_bytes()).kernel()
        assert [(s.name, s.type_name, s.written) for s in loaded.specs] == [
            ("out", dtype, True),
            ("in0", dtype, False),
            ("in1", dtype, False),
        ]
        right, wrong = device.zeros(8, dtype), device.zeros(8, np.uint32)
        device.launch(loaded, right, right, right, groups=kernel.groups, local=kernel.local)
        with pytest.raises(
            LaunchError, match=f"argument 2 'in1' of .*: the program uses {dtype}, the buffer"
        ):
            device.launch(loaded, right, right, wrong, groups=kernel.groups, local=kernel.local)


def test_a_type_that_numpy_does_not_name_takes_any_buffer() -> None:
    [kernel] = compile_tinygrad(lambda a: a + 1, (8,), dtype="bfloat16", target="gfx1100")
    assert [a.dtype for a in kernel.program.arguments] == ["uint8", "uint8"]


def test_kernels_are_named_in_their_errors() -> None:
    with pytest.raises(CompileError, match=r"no compiler for target 'gfx906'; supported: .*gfx1100"):
        compile_tinygrad(lambda a: a + 1, (4,), target="gfx906")


# ----- networks -------------------------------------------------------------------------------------


def package_of(name: str, folder: Path) -> Package:
    model = MODELS[name]
    return compile_model(
        model.path, folder / f"{name}.rfp", target="gfx1100", input_shapes=model.input_shapes
    )


def realistic(name: str, package: Package) -> dict[str, Array]:
    """A gradient with a disc for pictures, noise for sound and states."""
    if package.manifest.layout is None:
        return {t.name: random(*t.shape, seed=7) for t in package.manifest.inputs}
    layout = package.manifest.layout
    y, x = np.mgrid[0 : layout.height, 0 : layout.width]
    disc = np.hypot(x - layout.width / 2, y - layout.height / 3) < layout.height / 4
    picture = np.stack([x / layout.width, y / layout.height, disc]).astype(np.float32) * 2 - 1
    return {layout.input: (picture if layout.axes == "NCHW" else picture.transpose(1, 2, 0))[None].copy()}


@pytest.mark.parametrize(
    "name",
    [
        "pnet",
        "silero",
        *(pytest.param(n, marks=pytest.mark.conformance) for n in ("rnet", "onet", "ocr_det")),
    ],
)
def test_the_steps_of_a_network_compute_what_onnxruntime_does(name: str, tmp_path: Path) -> None:
    with package_of(name, tmp_path) as package:
        inputs = realistic(name, package)
        outputs = run_steps(package, inputs)
    session = onnxruntime.InferenceSession(str(MODELS[name].path), providers=["CPUExecutionProvider"])
    expected = dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True))
    for key, values in outputs.items():
        # Where a detector finds nothing, its map is as small as onnxruntime's own error in a sigmoid.
        scale = max(float(abs(expected[key]).max()), 2e-3)
        assert float(abs(values - expected[key]).max()) <= BOUND * scale, key


@pytest.fixture
def small(tmp_path: Path) -> Path:
    nodes = [
        node("Conv", "x v", "a"),
        node("Relu", "a", "b"),
        node("Conv", "b w", "c"),
        node("Softmax", "c", "y"),
    ]
    weights = {"v": random(8, 4, 3, 3), "w": random(4, 8, 3, 3, seed=1)}
    return save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 16, 16)}, ["y"], weights)  # fmt: skip


@pytest.mark.parametrize("target", AMD_TARGETS)
def test_a_network_runs_on_the_chip_that_it_was_compiled_for(
    target: str, small: Path, tmp_path: Path
) -> None:
    inputs = {"x": random(1, 4, 16, 16, seed=3)}
    with compile_model(small, tmp_path / "a.rfp", target=target) as package:
        assert {load_code_object(p.to_bytes()).arch for p in package.programs} == {target}
    with rf.open(f"virtual:{target}") as device, device.load_package(tmp_path / "a.rfp") as model:
        found = model.run(inputs)
    expected = run_reference(tmp_path / "a.rfp", small, inputs)
    assert np.allclose(found["y"], expected["y"], atol=1e-6)


def test_the_manifest_names_target_and_compilers(small: Path, tmp_path: Path) -> None:
    with compile_model(small, tmp_path / "a.rfp", target="gfx1100") as package:
        manifest = package.manifest
    assert (manifest.target, manifest.image, manifest.float16) == ("gfx1100", False, False)
    assert sorted(manifest.compiler) == ["llvmlite", "onnx", "ringfence", "tinygrad", "ziglang"]


def test_the_same_model_compiles_to_the_same_bytes(small: Path, tmp_path: Path) -> None:
    for name, jobs in (("a.rfp", 1), ("b.rfp", 2)):
        compile_model(small, tmp_path / name, target="gfx1100", jobs=jobs).close()
    assert (tmp_path / "a.rfp").read_bytes() == (tmp_path / "b.rfp").read_bytes()


def test_the_plan_runs_on_the_cpu_as_well(small: Path, tmp_path: Path) -> None:
    inputs = {"x": random(1, 4, 16, 16, seed=3)}
    with compile_model(small, tmp_path / "a.rfp", target="gfx1100") as package:
        found = run_steps(package, inputs)
    expected = run_reference(tmp_path / "a.rfp", small, inputs)
    assert np.allclose(found["y"], expected["y"], atol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"image": True}, "gfx1100 has no images for a network"), ({"float16": True}, "needs images")],
)
def test_images_and_halves_are_refused(small: Path, tmp_path: Path, options: Any, words: str) -> None:
    with pytest.raises(CompileError, match=words):
        compile_model(small, tmp_path / "a.rfp", target="gfx1100", **options)
