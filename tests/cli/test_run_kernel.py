"""``ringfence run`` of single kernels: what it computes and reports, and what it refuses."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from cli import kernels
from cli.test_run import refused
from package.packages import parts
from ringfence.cli.bench import COUNT, add_program
from ringfence.errors import GpuFault
from ringfence.package import encode_package

GFX1100 = ("--device", "virtual:gfx1100")
ARGUMENTS = ("--arg", "y=ones:1000", "--arg", "arange:1000", "--arg", "2.5", "--arg", "1000")
LAUNCH = ("--groups", "4", "--local", "256", *ARGUMENTS)
EXPECTED = (2.5 * np.arange(1000) + 1).astype(np.float32)
E_FLAGS = 48  # offset of the machine number in an ELF header


@pytest.fixture
def saxpy(tmp_path: Path) -> Path:
    path = tmp_path / "saxpy.co"
    path.write_bytes(kernels.saxpy())
    return path


@pytest.fixture
def several(tmp_path: Path) -> Path:
    path = tmp_path / "several.hsaco"
    path.write_bytes(kernels.several())
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "saxpy.cl"
    path.write_text(kernels.SAXPY)
    return path


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    path = tmp_path / "add.bin"
    path.write_bytes(add_program().to_bytes())
    return path


# ----- what it computes -----------------------------------------------------------------------------


def test_a_code_object_computes_and_json_says_what_is_in_the_buffers(cli, saxpy):
    result = cli("run", saxpy, *GFX1100, *LAUNCH, "--json")
    assert result.status == 0, result.err
    report = result.json
    assert report["virtual"] is True and report["device"]["chip"] == "gfx1100"
    assert (report["groups"], report["local"]) == ([4, 1, 1], [256, 1, 1])
    assert list(report["buffers"]) == ["y"]  # what the kernel cannot write is not listed
    y = report["buffers"]["y"]
    assert (y["dtype"], y["shape"], y["not_finite"]) == ("float32", [1000], 0)
    assert (y["minimum"], y["maximum"], y["mean"]) == (1.0, 2498.5, EXPECTED.mean(dtype=np.float64))
    assert y["first"] == EXPECTED[:6].tolist()
    assert y["sha256"] == hashlib.sha256(EXPECTED.tobytes()).hexdigest()


def test_source_is_compiled_for_the_chip_of_the_device(cli, source):
    report = cli("run", source, "--device", "virtual:gfx1101", *LAUNCH, "--json").json
    assert report["target"] == report["device"]["chip"] == "gfx1101"
    assert report["buffers"]["y"]["sha256"] == hashlib.sha256(EXPECTED.tobytes()).hexdigest()


def test_macros_are_for_source(cli, tmp_path):
    path = tmp_path / "fixed.cl"
    path.write_text(kernels.SAXPY + kernels.OTHERS)
    result = cli("run", path, *GFX1100, "--kernel", "fixed", "-D", "SIZE=7", "--groups", "2x1",
                 "--arg", "zeros:64", "--json")  # fmt: skip
    assert result.json["buffers"]["y"]["first"] == [7] * 6


def test_an_adreno_program_blob_runs_on_an_adreno(cli, blob, tmp_path):
    given = [part for fill in ("zeros", "arange", "ones") for part in ("--arg", f"{fill}:{COUNT}")]
    file = tmp_path / "c.npy"
    groups = ("--groups", COUNT // 64)
    result = cli("run", blob, "--device", "virtual:a630", *groups, *given, "--out", f"c={file}")
    assert result.status == 0, result.err
    np.testing.assert_array_equal(np.load(file), np.arange(COUNT, dtype=np.float32) + 1)


def test_buffers_are_saved_whether_written_or_not(cli, saxpy, tmp_path):
    files = [tmp_path / name for name in ("y.npy", "x.npy")]
    result = cli("run", saxpy, *GFX1100, *LAUNCH, "--out", f"y={files[0]}", "--out", f"x={files[1]}")
    assert result.status == 0, result.err
    np.testing.assert_array_equal(np.load(files[0]), EXPECTED)
    np.testing.assert_array_equal(np.load(files[1]), np.arange(1000, dtype=np.float32))


def test_a_buffer_is_saved_by_its_label_or_the_kernels_name_for_it(cli, saxpy, tmp_path):
    labelled = ("--arg", "result=ones:1000", *ARGUMENTS[2:])
    for name in ("result", "y"):
        file = tmp_path / f"{name}.npy"
        result = cli(
            "run", saxpy, *GFX1100, "--groups", 4, "--local", 256, *labelled, "--out", f"{name}={file}"
        )
        assert result.status == 0 and "SHA-256 of result" in result.out, result.err
        np.testing.assert_array_equal(np.load(file), EXPECTED)


def test_what_was_saved_can_be_given(cli, saxpy, tmp_path):
    file = tmp_path / "y.npy"
    cli("run", saxpy, *GFX1100, *LAUNCH, "--out", f"y={file}")
    again = ("--arg", f"y=@{file}", *ARGUMENTS[2:])
    report = cli("run", saxpy, *GFX1100, "--groups", 4, "--local", 256, *again, "--json").json
    twice = 2.5 * np.arange(1000, dtype=np.float32) + EXPECTED
    assert report["buffers"]["y"]["sha256"] == hashlib.sha256(twice.tobytes()).hexdigest()


def test_work_items_can_be_counted_instead_of_groups(cli, saxpy):
    result = cli("run", saxpy, *GFX1100, "--global-size", 1024, "--local", "256x1x1", *ARGUMENTS, "--json")
    assert result.json["groups"] == [4, 1, 1]


def test_a_group_size_that_the_compiler_fixed_can_be_left_out(cli, several):
    result = cli("run", several, *GFX1100, "--kernel", "fixed", "--global-size", "16x4",
                 "--arg", "zeros:64", "--json")  # fmt: skip
    assert (result.json["groups"], result.json["local"]) == ([2, 1, 1], [8, 4, 1])
    assert result.json["buffers"]["y"]["mean"] == 32


def test_numbers_of_all_sizes_and_values_without_a_type_name_arrive(cli, several, tmp_path):
    np.save(tmp_path / "pair.npy", np.array([0.5, 0.25], np.float32))
    result = cli("run", several, *GFX1100, "--kernel", "pieces", "--groups", 1, "--local", 1,
                 "--arg", "zeros:f32:2x4", "--arg", "-3", "--arg", "5000000000", "--arg", "1.5",
                 "--arg", f"@{tmp_path / 'pair.npy'}", "--json")  # fmt: skip
    assert result.status == 0, result.err
    assert result.json["buffers"]["y"]["first"] == [-3, 5e9, 0.5, 0.25, 1.5, 1.5]


UNTYPED = ("--groups", "1", "--local", "4")


def test_a_kernel_whose_metadata_has_no_types_takes_those_of_its_arguments(cli, tmp_path):
    path = tmp_path / "untyped.co"
    path.write_bytes(kernels.untyped())
    given = ("--arg", "out=zeros:f32:4", "--arg", "f32:2.5", "--arg", "u32:3")
    report = cli("run", path, *GFX1100, *UNTYPED, *given, "--json").json
    assert report["buffers"]["out"]["first"] == [7.5] * 4


def test_a_kernel_whose_metadata_has_no_types_needs_them(cli, tmp_path):
    path = tmp_path / "untyped.co"
    path.write_bytes(kernels.untyped())
    for wrong, words in (("zeros:4", "zeros:f32:SHAPE"), ("2.5", "f32:1.5")):
        given = {"zeros:4": ("zeros:4", "f32:2.5", "u32:3"), "2.5": ("zeros:f32:4", "2.5", "u32:3")}[wrong]
        arguments = [part for text in given for part in ("--arg", text)]
        refused(cli("run", path, *GFX1100, *UNTYPED, *arguments), words)


def test_local_memory_and_barriers(cli, several):
    result = cli("run", several, *GFX1100, "--kernel", "reverse", "--groups", 1, "--local", 64,
                 "--arg", "arange:64", "--json")  # fmt: skip
    assert result.json["buffers"]["y"]["first"] == [63, 62, 61, 60, 59, 58]


def test_values_that_are_not_finite_are_counted_and_spelled(cli, saxpy):
    result = cli("run", saxpy, *GFX1100, "--groups", 1, "--local", 64, "--arg", "ones:4", "--arg", "arange:4",
                 "--arg", "inf", "--arg", "4", "--json")  # fmt: skip
    y = result.json["buffers"]["y"]
    assert y["first"] == ["nan", "inf", "inf", "inf"] and y["not_finite"] == 4
    assert y["minimum"] is y["maximum"] is y["mean"] is None


# ----- times ----------------------------------------------------------------------------------------


def test_timed_launches_come_after_the_one_whose_results_are_shown(cli, saxpy):
    report = cli("run", saxpy, *GFX1100, *LAUNCH, "--time", 5, "--json").json
    assert report["timed_launches"] == 5
    assert report["buffers"]["y"]["sha256"] == hashlib.sha256(EXPECTED.tobytes()).hexdigest()
    assert report["stages"].keys() == report["first_launch_stages_ms"].keys()
    assert all(s["median_ms"] <= s["p99_ms"] <= s["max_ms"] for s in report["stages"].values())


def test_people_get_tables_and_the_word_virtual(cli, saxpy):
    result = cli("run", saxpy, *GFX1100, *LAUNCH, "--time", 2)
    assert result.status == 0, result.err
    for words in ("saxpy(y: float32 buffer, written; x: float32 buffer; a: float32; n: uint32)", "2498.5",
                  "SHA-256 of y", "virtual gfx1100", "its times say nothing about a GPU", "median ms",
                  "2 launches after the first one", "first elements"):  # fmt: skip
        assert words in result.out


# ----- listing --------------------------------------------------------------------------------------


def test_several_kernels_are_listed_if_none_is_chosen(cli, several):
    result = cli("run", several)
    assert result.status == 0
    for words in ("saxpy", "twice", "y: float32 buffer, written", "float4* buffer", "8x4x1", "--kernel"):
        assert words in result.out


def test_the_list_as_json(cli, several):
    found = {each["name"]: each for each in cli("run", several, "--json").json["kernels"]}
    assert [a["dtype"] for a in found["saxpy"]["arguments"]] == ["float32", "float32", "float32", "uint32"]
    assert [a["written"] for a in found["saxpy"]["arguments"]] == [True, False, False, False]
    assert found["reverse"]["shared_bytes"] == 256 and found["fixed"]["local_size"] == [8, 4, 1]
    assert "is a sampler" in found["sampled"]["arguments"][0]["problem"]
    assert [a["kind"] for a in found["backwards"]["arguments"]] == ["local", "buffer"]


# ----- devices --------------------------------------------------------------------------------------


def test_auto_falls_back_to_the_chip_that_the_file_is_for(cli, saxpy):
    if Path("/dev/kfd").exists():
        pytest.skip("this machine has a KFD node, so auto does not fall back")
    result = cli("run", saxpy, *LAUNCH, "--json")
    assert result.json["virtual"] is True and result.json["device"]["chip"] == "gfx1100"
    assert "virtual gfx1100" in result.err and "kfd" in result.err


def test_the_notice_of_a_virtual_device_is_printed_once(cli, source):
    if Path("/dev/kfd").exists():
        pytest.skip("this machine has a KFD node, so auto does not fall back")
    result = cli("run", source, *LAUNCH)  # opens a device to learn its chip, and another to run
    assert result.status == 0 and result.err.count("which is not a GPU") == 1


def test_auto_without_a_virtual_chip_says_so(cli, saxpy):
    if Path("/dev/kfd").exists():
        pytest.skip("this machine has a KFD node, so auto does not fall back")
    refused(cli("run", _for_machine(saxpy, 0x4E), *LAUNCH), "no virtual gfx1201")


# ----- what it refuses ------------------------------------------------------------------------------


def _for_machine(path: Path, number: int) -> Path:
    data = bytearray(path.read_bytes())
    data[E_FLAGS] = number
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("count", [0, 3, 5])
def test_a_wrong_number_of_arguments(cli, saxpy, count):
    given = [part for _ in range(count) for part in ("--arg", "1")]
    result = cli("run", saxpy, *GFX1100, "--groups", 4, "--local", 256, *given)
    refused(result, "takes 4 arguments", f"{count} were given", "y: float32 buffer")


def test_an_unknown_kernel(cli, several):
    refused(cli("run", several, *GFX1100, "--kernel", "thrice", *LAUNCH), "'thrice'", "saxpy, twice")


def test_a_launch_without_choosing_a_kernel(cli, several):
    refused(cli("run", several, *GFX1100, *LAUNCH), "kernels", "saxpy, twice", "--kernel")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--local", "256"), "--groups"),
        (("--groups", "4"), "--local"),
        (("--groups", "4", "--global-size", "1024", "--local", "256"), "both are given"),
        (("--groups", "four", "--local", "256"), "4x2x1"),
        (("--groups", "4x0", "--local", "256"), "at least 1"),
        (("--groups", "1x1x1x1", "--local", "256"), "4x2x1"),
        (("--groups", "", "--local", "256"), "--groups ''"),
        (("--groups", "-1", "--local", "256"), "--groups -1"),
        (("--groups", "\u0664", "--local", "256"), "4x2x1"),
        (("--groups", "4", "--local", "0"), "--local 0"),
        (("--groups", "4", "--local", 5000 * "9"), "4x2x1"),
        (("--groups", "4", "--local", "2048"), "1024"),
        (("--groups", "4", "--local", "32x16"), "512 threads"),
        (("--global-size", "1000", "--local", "256"), "not a multiple"),
        (("--groups", "4294967296", "--local", "1"), "2^32"),
        (("--groups", "4", "--local", "256", "--lds", "70000"), "65536"),
        (("--groups", "4", "--local", "256", "--out", "z=z.npy"), "no buffer 'z'"),
        (("--groups", "4", "--local", "256", "--out", "n=n.npy"), "no buffer 'n'"),
        (("--groups", "4", "--local", "256", "--out", "y"), "NAME=FILE.npy"),
        (("--groups", "4", "--local", "256", "--out", "y=a.npy", "--out", "0=b.npy"), "no buffer '0'"),
        (("--groups", "4", "--local", "256", "--out", "y=a.npy", "--out", "y=b.npy"), "already"),
        (("--groups", "4", "--local", "256", "-D", "A=1"), "--define"),
    ],
)
def test_a_launch_that_cannot_be(cli, saxpy, arguments, words):
    refused(cli("run", saxpy, *GFX1100, *arguments, *ARGUMENTS), words)


@pytest.mark.parametrize(
    ("position", "text", "words"),
    [
        (0, "1.5", "is a buffer"),
        (0, "zeros:i32:1000", "holds float32"),
        (0, "zeros:f32:4x", "zeros:f32:1024"),
        (1, "@none.npy", "none.npy"),
        (2, "u32:1", "wants float32"),
        (3, "1.5", "whole number"),
        (3, "-1", "cannot hold"),
        (3, "zeros:4", "no buffer"),
    ],
)
def test_an_argument_that_does_not_fit(cli, saxpy, position, text, words):
    given = list(ARGUMENTS)
    given[2 * position + 1] = text
    refused(cli("run", saxpy, *GFX1100, "--groups", 4, "--local", 256, *given), words)


def test_a_code_object_for_another_gpu(cli, saxpy):
    refused(cli("run", _for_machine(saxpy, 0x46), *GFX1100, *LAUNCH), "gfx1101", "gfx1100")


def test_a_code_object_for_an_unknown_gpu(cli, saxpy):
    refused(cli("run", _for_machine(saxpy, 0xEE), *GFX1100, *LAUNCH), "0xee", str(saxpy))


def test_files_for_the_other_family(cli, saxpy, blob, source):
    refused(cli("run", saxpy, "--device", "virtual:a630", *LAUNCH), "gfx1100", "a630")
    three = ("--arg", "zeros:4", "--arg", "zeros:4", "--arg", "zeros:4")
    refused(cli("run", blob, *GFX1100, "--groups", 1, *three), "a630", "gfx1100")
    refused(cli("run", source, "--device", "virtual:a630", *LAUNCH), "a630", "AMD")


def test_a_blob_for_another_chip(cli, blob):
    blob.write_bytes(msgspec.structs.replace(add_program(), chip="a660").to_bytes())
    three = ("--arg", "zeros:4", "--arg", "zeros:4", "--arg", "zeros:4")
    refused(cli("run", blob, "--device", "virtual:a630", "--groups", 1, *three), "a660", "a630")


@pytest.mark.parametrize("keep", [0, 3, 40, 64, 500, 3000])
def test_a_truncated_code_object(cli, saxpy, keep):
    saxpy.write_bytes(saxpy.read_bytes()[:keep])
    refused(cli("run", saxpy, *GFX1100, *LAUNCH), str(saxpy))


@pytest.mark.parametrize("keep", [0, 20, 100])
def test_a_truncated_blob(cli, blob, keep):
    blob.write_bytes(blob.read_bytes()[:keep])
    refused(cli("run", blob, "--device", "virtual:a630", "--groups", 1), "truncated", str(blob))


@pytest.mark.parametrize("name", ["none.co", "none.hsaco", "none.cl", "none.bin"])
def test_a_missing_file(cli, tmp_path, name):
    refused(cli("run", tmp_path / name, *GFX1100, *LAUNCH), name)


def test_a_bundle_of_code_objects(cli, tmp_path):
    path = tmp_path / "bundle.co"
    path.write_bytes(b"__CLANG_OFFLOAD_BUNDLE__" + bytes(100))
    refused(cli("run", path, *GFX1100, *LAUNCH), "clang-offload-bundler")


@pytest.mark.parametrize("text", ["", "// nothing yet\n", "void f(global float *y) { y[0] = 1; }\n"])
def test_source_without_a_kernel(cli, tmp_path, text):
    path = tmp_path / "none.cl"
    path.write_text(text)
    refused(cli("run", path, *GFX1100), f"{path}: the source has no kernel function")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('kernel void k(global float *y) { printf("%f", y[0]); }', "printf: neither the kernel nor"),
        ("#include <math.h>\n", "math.h: there is no such file to include"),
    ],
)
def test_source_that_uses_what_does_not_exist_is_told_where_the_list_is(cli, tmp_path, text, words):
    path = tmp_path / "more.cl"
    path.write_text(text)
    result = cli("run", path, *GFX1100, *LAUNCH)
    *details, last = result.err.splitlines()
    assert result.status == 1
    assert last.startswith(f"ringfence: error: {path} does not compile for gfx1100: {words}")
    assert last.endswith("are listed in ringfence.compile.opencl.BUILTINS")
    assert any(line.startswith("more.cl:1:") for line in details)
    assert not any("opencl.h" in line or "BUILTINS" in line for line in details)


def test_source_that_does_not_compile_shows_clangs_message(cli, tmp_path):
    path = tmp_path / "broken.cl"
    path.write_text("kernel void broken(global float *y) {\n  y[0] = 1\n}\n")
    refused(cli("run", path, *GFX1100, "--groups", 1), "broken.cl:2:", "expected ';'")


def test_all_messages_of_clang_are_printed_before_the_error(cli, tmp_path):
    path = tmp_path / "broken.cl"
    path.write_text('kernel void broken(global float *y) {\n  y[0] = zap(1);\n  int i = "text";\n}\n')
    result = cli("run", path, *GFX1100, "--groups", 1)
    assert result.status == 1 and result.out == ""
    assert "broken.cl:3:" in result.err and result.err.splitlines()[-1].startswith("ringfence: error: ")


def test_an_argument_of_a_kind_that_cannot_be_given(cli, several):
    given = ("--arg", "1", "--arg", "zeros:4")
    result = cli("run", several, *GFX1100, "--kernel", "sampled", "--groups", 1, "--local", 1, *given)
    refused(result, "is a sampler, which cannot be given here")


BACKWARDS = (*GFX1100, "--kernel", "backwards", "--groups", 1, "--local", 64)


def test_local_memory_is_given_in_bytes(cli, several):
    result = cli("run", several, *BACKWARDS, "--arg", "local:256", "--arg", "arange:64", "--json")
    assert result.json["buffers"]["y"]["first"] == [63, 62, 61, 60, 59, 58]


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("zeros:64", "arange:64", "is a pointer to local memory; say how many bytes"),
        ("local:256", "local:256", "is no pointer to local memory, it is uint32 buffer"),
        ("local:65540", "arange:64", "needs 65540 bytes of local memory"),
        ("local:", "arange:64", "a number of bytes"),
        ("local:-4", "arange:64", "a number of bytes"),
    ],
)
def test_local_memory_is_checked(cli, several, first, second, words):
    refused(cli("run", several, *BACKWARDS, "--arg", first, "--arg", second), words)


def test_a_kernel_that_leaves_its_memory(cli, several):
    arguments = (*GFX1100, "--kernel", "stray", "--groups", "1", "--local", "4", "--arg", "zeros:16")
    refused(cli("run", several, *arguments), "memory", "global_store_b32", "nearest allocation")
    with pytest.raises(GpuFault):
        cli("--traceback", "run", several, *arguments)


def test_a_folder_that_does_not_exist_is_wrong_usage(cli, saxpy, tmp_path):
    result = cli("run", saxpy, *GFX1100, *LAUNCH, "--out", f"y={tmp_path / 'none' / 'y.npy'}")
    assert result.status == 2 and "no folder" in result.err


@pytest.mark.parametrize("arguments", [("--frames", "1"), ("--input", "x=1.npy"), ("--outputs", "o.npz")])
def test_options_of_packages_are_wrong_usage_for_kernels(cli, saxpy, arguments):
    result = cli("run", saxpy, *GFX1100, *LAUNCH, *arguments)
    assert result.status == 2 and arguments[0] in result.err and "code object" in result.err


@pytest.mark.parametrize("arguments", [("--arg", "1"), ("--global-size", "4"), ("--time", "0")])
def test_options_of_kernels_are_wrong_usage_for_packages(cli, tmp_path, arguments):
    path = tmp_path / "tiny.rfp"
    path.write_bytes(encode_package(*parts()))
    result = cli("run", path, *arguments)
    assert result.status == 2 and arguments[0] in result.err and "package" in result.err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_timeout_that_is_none_is_wrong_usage(cli, saxpy, seconds):
    result = cli("run", saxpy, *GFX1100, *LAUNCH, "--timeout", seconds)
    assert result.status == 2 and "--timeout" in result.err


# ----- nothing stays behind -------------------------------------------------------------------------


def _held() -> tuple[int, int]:
    """Open descriptors, and mapped objects of virtual devices."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return len(os.listdir("/proc/self/fd")), sum("memfd:" in line for line in maps)


def _growth(run: Callable[[], int], status: int) -> tuple[int, int]:
    assert run() == status  # what stays for good, such as threads and caches, is there now
    before = _held()
    assert run() == status
    return tuple(after - old for after, old in zip(_held(), before))


@pytest.mark.parametrize(
    "arguments",
    [
        (*LAUNCH, "--lds", "70000"),
        ("--groups", "4", "--local", "2048", *ARGUMENTS),
        ("--kernel", "stray", "--groups", "1", "--local", "4", "--arg", "zeros:16"),
    ],
)
def test_a_failed_run_holds_no_more_than_one_that_succeeds(cli, several, arguments):
    choice = () if "--kernel" in arguments else ("--kernel", "saxpy")
    failing = _growth(lambda: cli("run", several, *GFX1100, *choice, *arguments).status, 1)
    assert failing == _growth(lambda: cli("run", several, *GFX1100, "--kernel", "saxpy", *LAUNCH).status, 0)
