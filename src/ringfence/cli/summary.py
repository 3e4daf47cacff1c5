"""What a package contains, as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from rich.table import Table

from ringfence.cli.output import row, size, table
from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.package import Package
from ringfence.package.format import Tensor


def summary(package: Package) -> dict[str, Any]:
    """Return the head of the manifest and the counts of the rest, as plain data."""
    manifest = package.manifest
    return {
        "package": package.path,
        "name": manifest.name,
        "target": manifest.target,
        "image": manifest.image,
        "float16": manifest.float16,
        "model_sha256": manifest.model_sha256,
        "compiler": manifest.compiler,
        "inputs": [_tensor(t) for t in manifest.inputs],
        "outputs": [_tensor(t) for t in manifest.outputs],
        "layout": None if manifest.layout is None else msgspec.to_builtins(manifest.layout),
        "programs": len(manifest.programs),
        "steps": len(manifest.steps),
        "weights_bytes": len(package.weights()),
        "arena_bytes": manifest.arena_bytes,
    }


def summary_table(package: Package) -> Table:
    """Return the summary for people."""
    manifest = package.manifest
    made = table(f"package {manifest.name}", "what", "value")
    layout = manifest.layout
    rows = {
        "target": f"{manifest.target}, {'images' if manifest.image else 'buffers'}, "
        f"{'float16' if manifest.float16 else 'float32'} storage",
        **{f"input {t.name}": f"{t.dtype} {_shape(t)}" for t in manifest.inputs},
        **{f"output {t.name}": f"{t.dtype} {_shape(t)}" for t in manifest.outputs},
        "picture": "no input takes one"
        if layout is None
        else f"{layout.input}: {layout.width}x{layout.height} {layout.channels} as {layout.axes}, "
        f"mean {_list(layout.mean)}, std {_list(layout.std)}",
        "launches": f"{len(manifest.steps)} of {len(manifest.programs)} programs",
        "weights": size(len(package.weights())),
        "arena": size(manifest.arena_bytes),
        "compiled with": ", ".join(f"{k} {v}" for k, v in manifest.compiler.items()),
        "model SHA-256": manifest.model_sha256,
    }
    for name, value in rows.items():
        row(made, name, value)
    return made


def program_rows(package: Package) -> list[dict[str, Any]]:
    """Return one row per program."""
    launches = Counter(step.program for step in package.manifest.steps)
    return [_program(k, p, launches[k]) for k, p in enumerate(package.programs)]


def _program(index: int, program: AdrenoProgram, launches: int) -> dict[str, Any]:
    return {
        "index": index,
        "name": program.name,
        "launches": launches,
        "code_bytes": len(program.code),
        "full_registers": program.full_registers,
        "half_registers": program.half_registers,
        "shared_bytes": program.shared_bytes,
        "private_bytes": program.private_bytes,
        "local_size": program.local_size,
        "arguments": [a.kind if not a.written else f"{a.kind} (written)" for a in program.arguments],
        "textures": len(program.textures),
        "uavs": len(program.uavs),
    }


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape))


def _list(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values)
