"""The state at every dispatch equals that of unmodified tinygrad, except where the encoder says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringfence.drivers.adreno.encode import UNLIKE_TINYGRAD

pytest.importorskip("tinygrad")
pytest.importorskip("tinymesa")

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def comparison() -> Any:
    environment = {**os.environ, "DEV": "QCOM:IR3", "IMAGE": "1", "CACHELEVEL": "0", "PYTHONPATH": str(HERE)}
    command = [sys.executable, HERE / "tinygrad_dispatches.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_state_at_dispatch_is_tinygrads_except_where_it_says_why(comparison: Any) -> None:
    unexplained = [each for each in comparison["differences"] if each[1] not in UNLIKE_TINYGRAD]
    assert unexplained == []


def test_the_programs_cover_images_and_private_memory(comparison: Any) -> None:
    assert len(comparison["programs"]) >= 6
    assert comparison["private"] >= 1
    assert 5 <= comparison["images"] < comparison["launches"], "some use none"


def test_differences_are_what_their_reasons_say(comparison: Any) -> None:
    for _, name, theirs, ours in comparison["differences"]:
        if name == "SP_CS_CONST_CONFIG":
            assert (theirs, ours) == (0x100, 0x140)
        if name == "SP_CS_PVT_MEM_STACK_OFFSET" and theirs > 4096:
            assert ours == theirs >> 11
