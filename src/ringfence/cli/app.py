"""The application: its commands, and how errors end it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from ringfence import __version__
from ringfence.cli.bench import bench_command
from ringfence.cli.compile import compile_command
from ringfence.cli.info import info_command
from ringfence.cli.inspect import inspect_command
from ringfence.cli.output import notice
from ringfence.cli.run import run_command
from ringfence.errors import RingfenceError

TRACEBACK = "--traceback"

app = typer.Typer(
    name="ringfence",
    help="Compile networks for Adreno and AMD GPUs and run them frame after frame, or run single kernels, on "
    "a GPU or on a virtual one.",
    epilog="Each command has --help with examples.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"ringfence {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    traceback: Annotated[bool, typer.Option(TRACEBACK, help="Show the Python traceback of errors.")] = False,
) -> None:
    if sys.stdout is None and context.invoked_subcommand != "shim":  # its program may do without
        raise RingfenceError("stdout is closed, so there is nowhere to print to")


def _examples(*lines: str) -> str:
    return "Examples:\n\n\b\n" + "\n".join(f"  {line}" for line in lines)


app.command(
    "compile",
    short_help="Compile an ONNX model into a package.",
    epilog=_examples(
        "ringfence compile detector.onnx --input-shape x=1x3x320x320 -o detector.rfp",
        "ringfence compile pnet.onnx --float16 --input-shape input_1=1x120x112x3",
        "ringfence compile silero.onnx --no-image --json",
        "ringfence compile detector.onnx --channel-order BGR --mean 0.48,0.46,0.41 --std 0.23,0.22,0.23",
    ),
)(compile_command)
app.command(
    "run",
    short_help="Run a package on a device, frame after frame, or a single kernel.",
    epilog=_examples(
        "ringfence run detector.rfp --device virtual:a630 --input page.png --frames 20",
        "ringfence run silero.rfp --input input=audio.npy --input state=state.npy --outputs out.npz",
        "ringfence run detector.rfp --input page.png --reference detector.onnx --json",
        "ringfence run saxpy.cl --device virtual:gfx1100 --groups 4 --local 256 \\",
        "  --arg y=zeros:1024 --arg arange:1024 --arg 2.5 --arg 1000 --out y=y.npy",
        "ringfence run kernels.co --kernel softmax --global-size 4096 --local 256 --time 100 \\",
        "  --arg random:f32:64x64:7 --arg y=@start.npy",
        "ringfence run kernels.co                       # lists the kernels and their arguments",
    ),
)(run_command)
app.command(
    "info",
    short_help="List real and virtual devices.",
    epilog=_examples("ringfence info", "ringfence info --json", "ringfence info --fidelity"),
)(info_command)
app.command(
    "inspect",
    short_help="Show what is in a package or a file with kernels, or disassemble a program.",
    epilog=_examples(
        "ringfence inspect detector.rfp",
        "ringfence inspect detector.rfp --disassemble 0",
        "ringfence inspect detector.rfp --json",
        "ringfence inspect kernels.co                   # kernels, arguments, registers, LDS, scratch",
        "ringfence inspect kernels.co --disassemble softmax",
    ),
)(inspect_command)
app.command(
    "bench",
    short_help="Measure what launches cost the host, without a GPU.",
    epilog=_examples("ringfence bench", "ringfence bench --quick --json"),
)(bench_command)


@app.command(
    "shim",
    short_help="Run a program, such as unmodified tinygrad, on a virtual device.",
    add_help_option=False,
    context_settings={
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "allow_interspersed_args": False,
    },
)
def _shim(context: typer.Context) -> None:
    """Pass everything on: the shim has its own options, and the program's must not be touched."""
    from ringfence.virtual.shim.command import main

    raise typer.Exit(main(context.args))


def run(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit status."""
    try:
        app(args=list(arguments), prog_name="ringfence")
    except (RingfenceError, OSError) as error:
        if TRACEBACK in arguments:
            raise
        notice(f"ringfence: error: {_one_line(error)}")
        return 1
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return 130
    return 0


def _one_line(error: Exception) -> str:
    first, *more = str(error).strip().splitlines() or [type(error).__name__]
    return f"{first} (more with ringfence {TRACEBACK} ...)" if more else first
