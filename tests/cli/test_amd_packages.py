"""The commands on packages for AMD GPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from package.amd import code_object, package_bytes
from package.packages import COUNT
from ringfence.hardware.amd.code_object import load_code_object


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.rfp"
    path.write_bytes(package_bytes())
    return path


def test_inspect_lists_registers_and_memory_of_programs(cli, tiny):
    rows = cli("inspect", tiny, "--json").json["programs"]
    metadata = load_code_object(code_object("double", 1)).kernel().metadata
    assert [row["name"] for row in rows] == ["double", "add"]
    assert (rows[0]["vgprs"], rows[0]["sgprs"]) == (metadata.vgpr_count, metadata.sgpr_count)
    assert (rows[0]["shared_bytes"], rows[0]["private_bytes"]) == (0, 0)
    assert rows[1]["arguments"] == ["buffer (written)", "buffer", "buffer"]


def test_the_table_has_the_familys_columns(cli, tiny):
    out = cli("inspect", tiny).out
    assert "vgprs" in out and "tex" not in out.split("launches")[0]


def test_inspect_disassembles_a_kernel_to_its_end(cli, tiny):
    lines = cli("inspect", tiny, "--disassemble", "add", "--json").json["code"]
    assert sum("global_load_b32" in line["text"] for line in lines) == 2
    assert any(line["text"].startswith("s_endpgm") for line in lines)
    assert not any("s_code_end" in line["text"] for line in lines)


def test_a_package_is_refused_on_another_chip_with_what_to_do(cli, tiny, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(COUNT, np.float32))
    result = cli("run", tiny, "--device", "virtual:a630", "--input", f"x={tmp_path / 'x.npy'}")
    assert result.status == 1
    assert "was compiled for gfx1100" in result.err and "--target a630" in result.err
