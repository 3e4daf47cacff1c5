"""``ringfence info``: what there is, what was tried, and the fidelity statement."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ringfence import api
from ringfence.cli.fidelity import STATEMENT
from ringfence.errors import PortError
from ringfence.virtual.machine import Machine

DOCUMENT = Path(__file__).parents[2] / "docs" / "virtual-gpu.md"


def test_every_unavailable_device_says_why(cli):
    devices = cli("info", "--json").json["devices"]
    assert {"kgsl", "virtual:a630"} <= {device["spec"] for device in devices}
    assert all(device["available"] or device["reason"] for device in devices)


def test_the_virtual_device_is_available_and_called_virtual(cli):
    devices = {device["spec"]: device for device in cli("info", "--json").json["devices"]}
    assert devices["virtual:a630"]["available"] and devices["virtual:a630"]["kind"] == "virtual"


def test_the_virtual_amd_device_is_available(cli):
    devices = {device["spec"]: device for device in cli("info", "--json").json["devices"]}
    assert devices["virtual:gfx1100"]["available"] and devices["virtual:gfx1100"]["kind"] == "virtual"
    assert "kfd" in devices or "kfd:0" in devices


def test_every_gpu_of_kfd_is_a_row_with_chip_and_address(cli, monkeypatch):
    with Machine(("gfx1100", "gfx1101")) as machine:
        found = api.discover(port=machine, visible="0,1")
        monkeypatch.setattr(api, "discover", lambda: found)
        devices = {device["spec"]: device for device in cli("info", "--json").json["devices"]}
        table = cli("info").out
    for spec, chip in (("kfd:0", "gfx1100"), ("kfd:1", "gfx1101")):
        assert devices[spec]["available"] and devices[spec]["kind"] == "real"
        assert chip in devices[spec]["detail"] and "0000:" in devices[spec]["detail"]
        assert spec in table


def test_the_table_names_what_was_tried(cli):
    result = cli("info")
    assert result.status == 0
    assert "virtual:a630" in result.out and "tried: open /dev/kgsl-3d0" in " ".join(result.out.split())


@pytest.mark.parametrize(
    "error", [PortError("open", errno.EACCES), OSError(errno.EIO, "broken"), ValueError("odd")]
)
def test_a_failing_search_is_reported_not_raised(cli, monkeypatch, error):
    def fail(**_: object) -> list[object]:
        raise error

    monkeypatch.setattr(api, "discover", fail)
    result = cli("info", "--json")
    assert result.status == 0 and type(error).__name__ in result.json["devices"][0]["reason"]


def test_fidelity_is_part_of_the_report_on_request(cli):
    assert "fidelity" not in cli("info", "--json").json
    claims = cli("info", "--json", "--fidelity").json["fidelity"]
    for family in ("adreno", "amd"):
        found = {claim["status"] for claim in claims if claim["family"] == family}
        assert found == {"implemented", "approximate", "unsupported"}


def test_the_tables_of_both_families_end_with_what_nothing_has_done(cli):
    result = cli("info", "--fidelity")
    assert "virtual Adreno GPUs" in result.out and "virtual AMD GPUs" in result.out
    assert result.out.rstrip().endswith("Nothing has run on silicon yet.")


def test_implemented_claims_name_their_oracle():
    assert all(claim.oracle for claim in STATEMENT if claim.status == "implemented")


def test_the_document_makes_the_same_statement():
    rows = [
        tuple(cell.strip() for cell in line.strip("| \n").split("|"))
        for line in DOCUMENT.open()
        if "|" in line
    ]
    documented = {cells for cells in rows if len(cells) == 4}
    assert {(c.subject, c.status, c.text, c.oracle or "none") for c in STATEMENT} <= documented
