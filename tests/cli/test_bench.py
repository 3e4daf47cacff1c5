"""``ringfence bench``: which figures there are. What they are is nobody's business here."""

from __future__ import annotations

import pytest

from ringfence.cli import bench

NAMES = [
    f"{queue}.{figure}"
    for queue in ("kgsl", "pm4")
    for figure in ("launch", "replay10.one", "replay200.one", "replay200.all", "replay200.endurance")
]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK_SECONDS", 0.01)
    monkeypatch.setattr(bench, "QUICK_REPLAYS", 400)


def test_json_has_a_row_per_figure_without_a_peer(cli):
    rows = cli("bench", "--quick", "--json").json
    assert [each["name"] for each in rows] == NAMES
    assert all(each.keys() == {"name", "ours", "peer", "ratio", "unit", "note"} for each in rows)
    assert all(each["ours"] > 0 and each["peer"] is each["ratio"] is None for each in rows)
    assert {each["unit"] for each in rows} == {"us"}


def test_people_get_a_table_that_says_how_busy_the_machine_is(cli):
    result = cli("bench", "--quick")
    assert result.status == 0
    assert "load" in result.out and all(name in result.out for name in NAMES)
