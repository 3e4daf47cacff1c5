"""What a package contains, as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
from rich.table import Table

from ringfence.cli.output import row, size, table
from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.hardware.amd.code_object import CodeObject, Kernel, load_code_object
from ringfence.package import Package
from ringfence.package.format import Tensor
from ringfence.package.programs import AmdProgram

_CODE_END = (0xBF9F0000).to_bytes(4, "little")
"""s_code_end of gfx10 and later, which LLVM pads code with for the prefetch."""


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


def _program(index: int, program: AdrenoProgram | AmdProgram, launches: int) -> dict[str, Any]:
    if isinstance(program, AmdProgram):
        loaded = load_code_object(program.code_object)
        resources = amd_resources(loaded, loaded.kernel())
    else:
        resources = adreno_resources(program)
    return {
        "index": index,
        "name": program.name,
        "launches": launches,
        **resources,
        "local_size": program.local_size,
        "arguments": [a.kind if not a.written else f"{a.kind} (written)" for a in program.arguments],
    }


def adreno_resources(program: AdrenoProgram) -> dict[str, int]:
    """Return what a program takes: bytes, registers in vec4, slots."""
    return {
        "code_bytes": len(program.code),
        "full_registers": program.full_registers,
        "half_registers": program.half_registers,
        "shared_bytes": program.shared_bytes,
        "private_bytes": program.private_bytes,
        "textures": len(program.textures),
        "uavs": len(program.uavs),
    }


def amd_resources(loaded: CodeObject, kernel: Kernel) -> dict[str, int]:
    """Return what a kernel of a code object takes: bytes, registers, lanes of a wave.

    ``shared_bytes`` is the local memory of a group (LDS), ``private_bytes`` the scratch of a work-item.
    """
    descriptor, metadata = kernel.descriptor, kernel.metadata
    registers = {} if metadata is None else {"vgprs": metadata.vgpr_count, "sgprs": metadata.sgpr_count}
    return {
        "code_bytes": code_end(loaded, kernel) - kernel.entry,
        **registers,
        "wave": descriptor.wave,
        "shared_bytes": descriptor.group_segment_fixed_size,
        "private_bytes": descriptor.private_segment_fixed_size,
    }


def code_end(loaded: CodeObject, kernel: Kernel) -> int:
    """Return where a kernel's code ends: at the next function, or with all code but its padding."""
    end = next(end for start, end in loaded.code if start <= kernel.entry < end)
    entries = (each.entry for each in loaded.kernels.values())
    end = min((at for at in (*loaded.symbols.values(), *entries) if kernel.entry < at < end), default=end)
    while end > kernel.entry and loaded.image[end - 4 : end] == _CODE_END:
        end -= 4
    return end


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": list(tensor.shape)}


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape))


def _list(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values)
