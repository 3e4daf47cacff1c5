"""``ringfence inspect``: what is in a package or a file with kernels, down to the machine code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from ringfence.cli.launch import kernels_as_json
from ringfence.cli.output import console, print_json, row, table
from ringfence.cli.programs import COLUMNS, FileKind, ProgramFile, kernel_table, kind_of, read_programs
from ringfence.cli.summary import code_end, program_rows, summary, summary_table
from ringfence.errors import PackageError
from ringfence.hardware.adreno.program import AdrenoProgram, read_program
from ringfence.hardware.amd.code_object import load_code_object
from ringfence.package import Package, read_package
from ringfence.package.programs import AmdProgram


def inspect_command(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A package, a code object (.co), or an Adreno program blob."),
    ],
    disassemble: Annotated[
        str | None,
        typer.Option(metavar="PROGRAM", help="Disassemble a program or kernel, by index or name."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")] = False,
) -> None:
    """List a package: inputs and outputs, programs, launches, sizes; or one program's machine code.

    Of a code object or a program blob: its kernels, with arguments, registers, local memory (LDS) and private
    memory (scratch) in bytes.
    """
    kind = kind_of(file)
    if kind is FileKind.SOURCE:
        raise PackageError(
            f"{file} is OpenCL C, not compiled yet; its kernels are listed by "
            f"`ringfence run {file} --device virtual:gfx1100`"
        )
    if kind is not FileKind.PACKAGE:
        _inspect_programs(read_programs(file, kind), disassemble, json)
        return
    with read_package(file) as opened:
        if disassemble is not None:
            index = _find([program.name for program in opened.programs], disassemble)
            _print_code(opened.programs[index], index, json)
        elif json:
            print_json({**summary(opened), "programs": program_rows(opened), "steps": _step_rows(opened)})
        else:
            out = console()
            for made in (summary_table(opened), _program_table(opened), _step_table(opened)):
                out.print(made)


def _inspect_programs(file: ProgramFile, disassemble: str | None, json: bool) -> None:
    if disassemble is not None:
        index = _find([kernel.name for kernel in file.kernels], disassemble)
        name = file.kernels[index].name
        if file.kind is FileKind.ADRENO:
            lines = disassembly(read_program(file.blob).code)
        else:
            lines = amd_disassembly(file.blob, name)
        _print_lines(index, name, file.chip, lines, json)
    elif json:
        print_json(kernels_as_json(file))
    else:
        console().print(kernel_table(file))


def _find(names: Sequence[str], wanted: str) -> int:
    if wanted in names:
        return names.index(wanted)
    numbers = [str(number) for number in range(len(names))]
    if wanted in numbers:
        return numbers.index(wanted)
    raise typer.BadParameter(
        f"{wanted!r} is neither the name nor the index (0 to {len(names) - 1}) of a program",
        param_hint="--disassemble",
    )


def _print_code(program: AdrenoProgram | AmdProgram, index: int, json: bool) -> None:
    if isinstance(program, AmdProgram):
        lines = amd_disassembly(program.code_object)
    else:
        lines = disassembly(program.code)
    _print_lines(index, program.name, program.chip, lines, json)


def _print_lines(index: int, name: str, chip: str, lines: list[dict[str, Any]], json: bool) -> None:
    if json:
        print_json({"program": index, "name": name, "code": lines})
        return
    print(f"; program {index} {name!r} for {chip}, {len(lines)} instructions")
    for line in lines:
        print(f"{line['pc']:5d}  {line['word']}  {line['text']}")


def disassembly(code: bytes) -> list[dict[str, Any]]:
    """Return pc, word and text of every instruction before the padding."""
    from ringfence.hardware.adreno.ir3 import decode_program

    instructions = decode_program(code)
    used = max((i.pc for i in instructions if i.name != "nop"), default=-1) + 1
    return [{"pc": i.pc, "word": f"{i.word:016x}", "text": i.text} for i in instructions[:used]]


def amd_disassembly(code_object: bytes, name: str | None = None) -> list[dict[str, Any]]:
    """Return byte offset in the image, words and text of every instruction of a kernel, without padding.

    ``name`` is needed if there are several kernels. :class:`PackageError` if the code is not of gfx11,
    :class:`UnknownInstruction` for what is no instruction.
    """
    from ringfence.hardware.amd.rdna import decode_program

    loaded = load_code_object(code_object)
    if not loaded.arch.startswith("gfx11"):
        raise PackageError(f"the code is for {loaded.arch}; only that of gfx11 can be disassembled")
    kernel = loaded.kernel(name)
    code = decode_program(loaded.image, kernel.entry, code_end(loaded, kernel), wave=kernel.descriptor.wave)
    return [{"pc": i.pc, "word": " ".join(f"{w:08x}" for w in i.words), "text": i.text} for i in code]


def _program_table(package: Package) -> Table:
    rows = program_rows(package)
    shown = {title: key for title, key in COLUMNS.items() if rows and key in rows[0]}
    numbers = ("#", *shown, "args")
    made = table(_program_title(package), "#", "name", *shown, "args", numbers=numbers)
    for p in rows:
        row(made, p["index"], p["name"], *(p[key] for key in shown.values()), len(p["arguments"]))
    return made


def _program_title(package: Package) -> str:
    amd = any(isinstance(program, AmdProgram) for program in package.programs)
    return "programs (bytes)" if amd else "programs (bytes; registers in vec4)"


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
