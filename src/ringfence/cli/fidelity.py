"""The fidelity statement: what the virtual GPU does, what that was checked against, and what it does not do.

Nothing here has run on a real Adreno. ``docs/virtual-gpu.md`` says the same at more length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Claim:
    """``implemented``: done, and checked against ``oracle``. ``approximate``: done, but likely to differ.

    ``unsupported``: refused with an error that names it.
    """

    subject: str
    status: Literal["implemented", "approximate", "unsupported"]
    text: str
    oracle: str


def _implemented(subject: str, text: str, oracle: str) -> Claim:
    return Claim(subject, "implemented", text, oracle)


def _approximate(subject: str, text: str, oracle: str = "") -> Claim:
    return Claim(subject, "approximate", text, oracle)


def _unsupported(subject: str, text: str) -> Claim:
    return Claim(subject, "unsupported", text, "")


STATEMENT: tuple[Claim, ...] = (
    _implemented(
        "KGSL numbers and structures",
        "ioctls, flags, properties and layouts of the kernel's header",
        "tinygrad's generated constants; every declared name is compared",
    ),
    _implemented(
        "packets, registers, descriptors",
        "headers with parity, payload sizes, fields, formats",
        "Mesa 25.2.7's generated constants and tinygrad's encoders; every declared name is compared",
    ),
    _implemented(
        "ir3 decoding",
        "categories 0 to 7; every bit of a word is accounted for, unknown encodings are refused",
        "Mesa 25.2.7's disassembler, assembler and compiler, through tinymesa",
    ),
    _implemented(
        "ir3 instructions",
        "arithmetic, moves, conversions, flow control, memory, atomics, half precision",
        "numpy and Python's integers, instruction by instruction (tests/virtual/isa/ir3)",
    ),
    _implemented(
        "compiled networks",
        "whole models through driver, command processor and ir3, with local and private memory and images",
        "onnxruntime on the host's CPU (benchmarks/models.py prints the errors)",
    ),
    _implemented(
        "memory protection",
        "an access outside every mapping is a fault that names program, pc, address and nearest allocation",
        "tests with programs that do so",
    ),
    _implemented(
        "launch state",
        "missing, stale or contradictory state is an error that names it; nothing survives a submission",
        "tests that leave out or damage each part",
    ),
    _approximate(
        "programs of Qualcomm's OpenCL compiler",
        "the file layout that tinygrad reads, with code made by hand: no vendor's file was at hand",
        "tinygrad's loader reaches the same state and results (tests/oracle/test_qcom_cl.py)",
    ),
    _approximate(
        "KGSL behaviour",
        "checks, errnos, time stamps, waits and hang detection as read in the driver's source (3.14)",
    ),
    _approximate(
        "order of execution",
        "launches that no wait for idle separates run in a shuffled order, but one after the other",
    ),
    _approximate(
        "rcp, rsq, sqrt, log2, exp2, sin, cos",
        "close to the exact value; the hardware's own last bits are not known",
        "float64 on the host",
    ),
    _approximate(
        "caches",
        "imported CPU memory goes stale without cache maintenance; the GPU's own caches are not modelled",
    ),
    _approximate("power", "constraints are accepted and change nothing"),
    _approximate("time", "stage times are those of this host; the virtual clock charges made-up costs"),
    _approximate(
        "texture sampling",
        "one level; filters more precise than a texture unit's; clamping and comparing samplers are refused",
    ),
    _approximate(
        "a640, a643, a650, a660",
        "differ from the a630 where Mesa's and the kernel's sources say so; Mesa makes their code by chip id",
    ),
    _unsupported(
        "some instructions",
        "those of graphics shaders, undocumented ones and those the chip lacks; the error says which and why",
    ),
    _unsupported("graphics", "packets and events that only drawing needs are refused"),
    _unsupported(
        "some KGSL calls",
        "profiling buffers, sparse and secure memory, timelines, sync sources, counters, DMA buffers",
    ),
    _unsupported("other chips", "refused with the chip's id or name"),
)
