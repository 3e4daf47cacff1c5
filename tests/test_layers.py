"""The layers: each imports only from those before it, and importing the package loads nothing heavy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ringfence

SOURCE = Path(ringfence.__file__).parent

# Layers that share a place never import each other.
ORDER = (
    ("errors",),
    ("hardware",),
    ("port",),
    ("runtime",),
    ("drivers", "virtual"),
    ("package",),
    ("compile",),
    ("frames",),
    ("inspect",),
    ("api",),
    ("cli",),
)
PLACE = {layer: place for place, layers in enumerate(ORDER) for layer in layers}

HEAVY = {"llvmlite", "tinygrad", "onnx", "onnxruntime", "tinymesa", "ziglang", "PIL", "rich", "typer"}


def modules() -> list[Path]:
    """All modules but the package itself, which names what it exports and imports it on first use."""
    return sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def layer_of(path: Path) -> str:
    """The part of a file's path, or of a module's name, that says its layer."""
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imported_layers(path: Path) -> Iterator[tuple[int, str]]:
    """Line and layer of every import of ours, wherever in the file. The package itself counts as ``api``."""
    package = ["ringfence", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            first, *rest = name.split(".")
            if first == "ringfence" and rest != ["__version__"]:
                yield node.lineno, rest[0] if rest and rest[0] in PLACE else "api"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_from_earlier_layers(path: Path):
    layer = layer_of(path)
    assert layer in PLACE, f"{layer} is not a layer of the design"
    wrong = [
        f"line {line}: {layer} imports {other}"
        for line, other in imported_layers(path)
        if other != layer and PLACE[other] >= PLACE[layer]
    ]
    assert not wrong


def test_drivers_and_virtual_devices_never_import_each_other():
    pairs = {(layer_of(path), other) for path in modules() for _, other in imported_layers(path)}
    assert ("drivers", "virtual") not in pairs and ("virtual", "drivers") not in pairs


def test_the_import_scanner_sees_all_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    path = tmp_path / "virtual" / "isa" / "x.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "import ringfence.api, os\n"
        "from ringfence import drivers, __version__\n"
        "from ..adreno import kgsl\n"
        "from ...package.format import Manifest\n"
        "def later():\n    import ringfence\n"
    )
    assert [layer for _, layer in imported_layers(path)] == ["api", "drivers", "virtual", "package", "api"]


def loaded_by(statement: str) -> set[str]:
    """Names of the top-level packages that a fresh interpreter has loaded after ``statement``."""
    code = f"{statement}\nimport sys\nprint(*sys.modules, file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in result.stderr.split()}


def test_importing_the_package_loads_nothing_heavy():
    assert not loaded_by("import ringfence") & (HEAVY | {"numpy", "msgspec"})


def test_the_api_loads_no_compiler_translator_picture_or_terminal_library():
    assert not loaded_by("import ringfence; ringfence.open, ringfence.discover") & HEAVY


def test_opening_a_virtual_device_does_not_load_the_translator():
    assert not loaded_by("import ringfence\nringfence.open('virtual:a630').close()") & HEAVY


def test_the_command_line_loads_no_compiler():
    loaded = loaded_by("from ringfence.cli.app import run\nrun(['info', '--json'])")
    assert not loaded & {"tinygrad", "onnx", "onnxruntime", "tinymesa", "ziglang", "PIL"}
