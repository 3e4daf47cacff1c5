"""``ringfence inspect``: a package's manifest and machine code."""

from __future__ import annotations

import pytest

from ringfence.hardware.adreno.ir3 import decode_program
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


@pytest.mark.parametrize("program", ["99", "-1", "nobody"])
def test_an_unknown_program_is_wrong_usage(cli, pnet, program):
    result = cli("inspect", pnet, f"--disassemble={program}")
    assert result.status == 2 and repr(program) in result.err


def test_a_damaged_package_is_one_line(cli, tmp_path):
    path = tmp_path / "x.rfp"
    path.write_bytes(b"RFPACKGE" + bytes(100))
    result = cli("inspect", path)
    assert result.status == 1 and result.err.count("\n") == 1 and str(path) in result.err
