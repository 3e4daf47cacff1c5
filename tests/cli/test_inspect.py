"""``ringfence inspect``: a package's manifest and machine code."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import kernels
from ringfence.cli.bench import add_program
from ringfence.hardware.adreno.ir3 import decode_program
from ringfence.hardware.amd.code_object import load_code_object
from ringfence.hardware.amd.rdna import decode
from ringfence.package import read_package


def test_tables_list_programs_and_launches(cli, pnet):
    result = cli("inspect", pnet)
    assert result.status == 0
    with read_package(pnet) as package:
        assert all(program.name in result.out for program in package.programs)
    for words in ("input_1", "float32 1x120x112x3", "softmax", "arena", "launches", "compiled with"):
        assert words in result.out


def test_json_has_every_program_and_step(cli, pnet):
    found = cli("inspect", pnet, "--json").json
    with read_package(pnet) as package:
        assert [p["name"] for p in found["programs"]] == [p.name for p in package.programs]
        assert [s["program"] for s in found["steps"]] == [s.program for s in package.manifest.steps]
        assert sum(p["launches"] for p in found["programs"]) == len(package.manifest.steps)


def test_disassembly_is_the_decoders_text_up_to_the_padding(cli, pnet):
    found = cli("inspect", pnet, "--disassemble", "3", "--json").json
    with read_package(pnet) as package:
        instructions = decode_program(package.programs[3].code)
    assert [line["text"] for line in found["code"]] == [i.text for i in instructions[: len(found["code"])]]
    assert all(i.name == "nop" for i in instructions[len(found["code"]) :])
    assert any(line["text"].endswith("end") for line in found["code"])


def test_a_program_can_be_named(cli, pnet):
    by_index = cli("inspect", pnet, "--disassemble", "0").out
    with read_package(pnet) as package:
        assert cli("inspect", pnet, "--disassemble", package.programs[0].name).out == by_index


@pytest.mark.parametrize("program", ["99", "-1", "nobody", "\u00b2"])
def test_an_unknown_program_is_wrong_usage(cli, pnet, program):
    result = cli("inspect", pnet, f"--disassemble={program}")
    assert result.status == 2 and repr(program) in result.err


def test_a_damaged_package_is_one_line(cli, tmp_path):
    path = tmp_path / "x.rfp"
    path.write_bytes(b"RFPACKGE" + bytes(100))
    result = cli("inspect", path)
    assert result.status == 1 and result.err.count("\n") == 1 and str(path) in result.err


# ----- files with kernels ---------------------------------------------------------------------------

E_FLAGS = 48  # offset of the machine number in an ELF header


@pytest.fixture
def code_object(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.co"
    path.write_bytes(kernels.several())
    return path


def test_a_code_objects_kernels_are_listed_with_arguments_and_resources(cli, code_object):
    result = cli("inspect", code_object)
    assert result.status == 0
    for words in ("saxpy", "reverse", "x: float32 buffer", "vgprs", "sgprs", "LDS", "scratch", "gfx1100"):
        assert words in result.out


def test_resources_are_those_of_the_metadata(cli, code_object):
    found = {each["name"]: each for each in cli("inspect", code_object, "--json").json["kernels"]}
    for name, kernel in load_code_object(code_object.read_bytes()).kernels.items():
        row, metadata = found[name], kernel.metadata
        assert (row["vgprs"], row["sgprs"]) == (metadata.vgpr_count, metadata.sgpr_count)
        assert row["shared_bytes"] == metadata.group_segment_fixed_size
        assert row["private_bytes"] == metadata.private_segment_fixed_size
        assert row["wave"] == 32


@pytest.mark.parametrize("kernel", ["saxpy", "reverse"])
def test_the_disassembly_of_a_kernel_begins_at_its_entry_and_ends_with_it(cli, code_object, kernel):
    code = cli("inspect", code_object, "--disassemble", kernel, "--json").json["code"]
    loaded = load_code_object(code_object.read_bytes())
    assert code[0]["pc"] == loaded.kernels[kernel].entry
    assert [line["text"] for line in code] == [decode(loaded.image, line["pc"]).text for line in code]
    assert [line["text"] for line in code].count("s_endpgm") == 1
    others = {each.entry for name, each in loaded.kernels.items() if name != kernel}
    assert not others & {line["pc"] for line in code}


def test_a_kernel_may_be_numbered(cli, code_object):
    assert cli("inspect", code_object, "--disassemble", "0").out == (
        cli("inspect", code_object, "--disassemble", "saxpy").out
    )


def test_code_of_another_instruction_set_is_not_disassembled(cli, code_object):
    data = bytearray(code_object.read_bytes())
    data[E_FLAGS] = 0x4E
    code_object.write_bytes(data)
    result = cli("inspect", code_object, "--disassemble", "saxpy")
    assert result.status == 1 and "gfx1201" in result.err and "gfx11" in result.err


def test_an_adreno_program_blob(cli, tmp_path):
    path = tmp_path / "add.bin"
    path.write_bytes(add_program().to_bytes())
    assert "a: float32 buffer" in cli("inspect", path).out
    code = cli("inspect", path, "--disassemble", "add", "--json").json["code"]
    assert [line["text"] for line in code] == [
        i.text for i in decode_program(add_program().code)[: len(code)]
    ]


def test_source_is_not_inspected(cli, tmp_path):
    path = tmp_path / "saxpy.cl"
    path.write_text(kernels.SAXPY)
    result = cli("inspect", path)
    assert result.status == 1 and "ringfence run" in result.err


@pytest.mark.parametrize("keep", [0, 40, 500])
def test_a_truncated_code_object_is_one_line(cli, code_object, keep):
    code_object.write_bytes(code_object.read_bytes()[:keep])
    result = cli("inspect", code_object)
    assert result.status == 1 and result.err.count("\n") == 1 and str(code_object) in result.err
