"""The programs of packages for AMD GPUs: what code objects say, which are refused, and on which devices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from package import packages
from package.amd import COUNT, WEIGHTS, code_object, package_bytes, parts
from package.fake import FakeDevice
from package.steps import run_steps
from ringfence.compile.opencl import compile_llvm_ir, compile_opencl
from ringfence.errors import PackageError
from ringfence.package import decode_package, encode_package
from ringfence.package.model import Model
from ringfence.package.programs import AmdProgram, read_amd_program, read_blob

X = np.linspace(0, 1, COUNT, dtype=np.float32)


def test_a_code_object_tells_its_chip_its_local_size_and_what_it_writes() -> None:
    program = read_blob(code_object("add", 2))
    assert isinstance(program, AmdProgram)
    assert (program.name, program.chip, program.local_size) == ("add", "gfx1100", (COUNT, 1, 1))
    assert [(a.kind, a.name, a.written) for a in program.arguments] == [
        ("buffer", "out", True),
        ("buffer", "in0", False),
        ("buffer", "in1", False),
    ]


def test_the_code_object_itself_is_the_blob() -> None:
    assert read_blob(code_object("add", 2)).to_bytes() == code_object("add", 2)


def test_what_is_not_marked_as_only_read_counts_as_written() -> None:
    program = read_amd_program(code_object("unmarked", 1, attributes=""))
    assert [a.written for a in program.arguments] == [True, True]


def test_the_steps_of_a_package_compute() -> None:
    outputs = run_steps(decode_package(package_bytes()), {"x": X})
    assert np.array_equal(outputs["z"], 2 * X + WEIGHTS)


def test_a_package_that_writes_its_input_is_refused() -> None:
    with pytest.raises(PackageError, match="the program writes it, but it is of kind 'input'"):
        package_bytes(code_object("unmarked", 1, attributes=""))


def test_a_kernel_that_takes_a_number_is_refused() -> None:
    with pytest.raises(PackageError, match="takes 3"):
        package_bytes(code_object("scaled", 1, more=", float %scale"))


def test_a_kernel_with_hidden_arguments_is_refused() -> None:
    source = "__kernel void f(__global float* x) { x[get_global_id(0)] = get_local_size(0); }"
    with pytest.raises(PackageError, match=r"program 'f' takes hidden_.*, which packages cannot give"):
        read_amd_program(compile_opencl(source))


def test_a_code_object_with_several_kernels_is_refused() -> None:
    two = "".join(f"define amdgpu_kernel void @{name}() {{\n  ret void\n}}\n" for name in ("a", "b"))
    with pytest.raises(PackageError, match="has 2 kernels"):
        read_amd_program(compile_llvm_ir(two))


def test_a_damaged_code_object_is_refused() -> None:
    with pytest.raises(PackageError):
        read_blob(code_object("add", 2)[:200])


@pytest.mark.parametrize(
    ("target", "blob", "words"),
    [
        ("gfx1100", packages.program("double", 1).to_bytes(), "is for a630, the package for gfx1100"),
        ("a630", None, "is for gfx1100, the package for a630"),
    ],
)
def test_a_program_of_the_other_family_is_refused(target: str, blob: bytes | None, words: str) -> None:
    manifest, sections = parts(blob)
    with pytest.raises(PackageError, match=words):
        encode_package(replace(manifest, target=target), sections)


def test_a_model_gives_the_programs_to_the_device() -> None:
    loaded: list[bytes] = []

    class AmdDevice(FakeDevice):
        def load(self, program: AmdProgram) -> AmdProgram:  # type: ignore[override]
            loaded.append(program.to_bytes())
            return program

    def double(out: np.ndarray, x: np.ndarray) -> None:
        out[:] = 2 * x

    def add(out: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        out[:] = a + b

    device = AmdDevice({"double": double, "add": add}, chip="gfx1100")
    with Model(device, decode_package(package_bytes())) as model:
        assert np.array_equal(model.run(x=X)["z"], 2 * X + WEIGHTS)
    assert loaded == [code_object("double", 1), code_object("add", 2)]


@pytest.mark.parametrize(("chip", "data"), [("a630", package_bytes), ("gfx1100", packages.package_bytes)])
def test_a_package_opens_only_on_the_chip_it_was_compiled_for(
    chip: str, data: object, tmp_path: Path
) -> None:
    path = tmp_path / "tiny.rfp"
    path.write_bytes(data())  # type: ignore[operator]
    device = FakeDevice({}, chip=chip)
    with pytest.raises(PackageError, match=rf"the chip of fake {chip} is {chip}; compile .* --target {chip}"):
        Model(device, path)
    assert device.live == []
    assert path.name not in Path("/proc/self/maps").read_text(), "the file is not left open"
