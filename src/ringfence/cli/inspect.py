"""``ringfence inspect``: what is in a package, down to the machine code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ringfence.cli.output import console, print_json, row, table
from ringfence.cli.summary import program_rows, summary, summary_table
from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.package import Package, read_package


def inspect_command(
    package: Annotated[Path, typer.Argument(help="The package file.")],
    disassemble: Annotated[
        str | None, typer.Option(metavar="PROGRAM", help="Disassemble a program, by index or name.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """List a package: inputs and outputs, programs, launches, sizes; or one program's machine code."""
    with read_package(package) as opened:
        if disassemble is not None:
            index = _find(opened, disassemble)
            _print_code(opened.programs[index], index, json)
        elif json:
            print_json({**summary(opened), "programs": program_rows(opened), "steps": _step_rows(opened)})
        else:
            out = console()
            for made in (summary_table(opened), _program_table(opened), _step_table(opened)):
                out.print(made)


def _find(package: Package, wanted: str) -> int:
    names = [program.name for program in package.programs]
    if wanted in names:
        return names.index(wanted)
    if wanted.isdigit() and int(wanted) < len(names):
        return int(wanted)
    raise typer.BadParameter(
        f"{wanted!r} is neither the name nor the index (0 to {len(names) - 1}) of a program",
        param_hint="--disassemble",
    )


def _print_code(program: AdrenoProgram, index: int, json: bool) -> None:
    lines = disassembly(program.code)
    if json:
        print_json({"program": index, "name": program.name, "code": lines})
        return
    print(f"; program {index} {program.name!r} for {program.chip}, {len(lines)} instructions")
    for line in lines:
        print(f"{line['pc']:5d}  {line['word']}  {line['text']}")


def disassembly(code: bytes) -> list[dict[str, Any]]:
    """Return pc, word and text of every instruction before the padding."""
    from ringfence.hardware.adreno.ir3 import decode_program

    instructions = decode_program(code)
    used = max((i.pc for i in instructions if i.name != "nop"), default=-1) + 1
    return [{"pc": i.pc, "word": f"{i.word:016x}", "text": i.text} for i in instructions[:used]]


def _program_table(package: Package) -> Table:
    columns = ("#", "launches", "code", "full", "half", "local mem", "private", "tex", "uav", "args")
    made = table("programs (bytes; registers in vec4)", "#", "name", *columns[1:], numbers=columns)
    for p in program_rows(package):
        cells = (p["launches"], p["code_bytes"], p["full_registers"], p["half_registers"], p["shared_bytes"])
        tail = (p["private_bytes"], p["textures"], p["uavs"], len(p["arguments"]))
        row(made, p["index"], p["name"], *cells, *tail)
    return made


def _step_rows(package: Package) -> list[dict[str, Any]]:
    return [
        {"program": s.program, "groups": list(s.groups), "local": list(s.local), "buffers": list(s.buffers)}
        for s in package.manifest.steps
    ]


def _step_table(package: Package) -> Table:
    made = table("launches", "step", "program", "groups", "local", "buffers", numbers=("step",))
    kinds = [b.kind for b in package.manifest.buffers]
    for number, step in enumerate(package.manifest.steps):
        groups, local = ("x".join(map(str, d)) for d in (step.groups, step.local))
        name = package.programs[step.program].name
        buffers = " ".join(f"{kinds[b]}:{b}" for b in step.buffers)
        row(made, number, f"{step.program} {name}", groups, local, buffers)
    return made
