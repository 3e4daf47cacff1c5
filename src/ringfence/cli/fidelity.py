"""The fidelity statement: what the virtual GPUs do, what that was checked against, and what they do not do.

Nothing here has run on a real GPU. ``docs/virtual-gpu.md`` says the same at more length.
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


ADRENO: tuple[Claim, ...] = (
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
        "an access to a page (4 KiB) that is not mapped is a fault that names program, pc, address and "
        "nearest allocation; one past a buffer's end in its last page, or into another mapping, is none",
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
        "waves that wait for others",
        "groups run in order, a group's waves in turn to a barrier or the end: a loop that waits for another "
        "wave or a later group is a hang, though hardware may end it",
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
        "one level; filters more precise than a texture unit's; the level of detail only where saml names it",
    ),
    _approximate(
        "a640, a643, a650, a660",
        "differ from the a630 where Mesa's and the kernel's sources say so, each with the instructions that "
        "Mesa's tables give it; Mesa makes their code by chip id",
    ),
    _unsupported(
        "some instructions",
        "those of graphics shaders, undocumented ones and those the chip lacks; the error says which and why",
    ),
    _unsupported(
        "some textures",
        "mip levels, tiles, samples, sRGB, cube maps, 1-D arrays; formats of 5_6_5, 4_4_4_4, 5_5_5_1, "
        "10_10_10_2 integers, compressed, depth and video: refused",
    ),
    _unsupported(
        "some samplers",
        "those that clamp results, compare, take the least or greatest texel, filter cubic or anisotropic; "
        "border colours in memory but transparent black and those of 16-bit and 32-bit floats: refused",
    ),
    _unsupported(
        "uniform buffers, bindless descriptors",
        "the command processor refuses to load uniform buffers for ldc, and bindless descriptors; constants "
        "and slots work",
    ),
    _unsupported("graphics", "packets and events that only drawing needs are refused"),
    _unsupported(
        "some KGSL calls",
        "profiling buffers, sparse and secure memory, timelines, sync sources, counters, DMA buffers",
    ),
    _unsupported("other chips", "refused with the chip's id or name"),
)
AMD: tuple[Claim, ...] = (
    _implemented(
        "KFD numbers and structures",
        "ioctls, flags, layouts, sizes of queue buffers, topology properties",
        "tinygrad's generated kfd_ioctl.h, every declared name; values of other kernel files are transcribed",
    ),
    _implemented(
        "PM4 packets and registers",
        "headers, payload sizes, fields of gfx9.4, gfx11 and gfx12; one generation's map is never another's",
        "the kernel's register and packet headers as tinygrad generated them; commands of its queue",
    ),
    _implemented(
        "code objects",
        "ELF, kernel descriptors, metadata, relocations; damaged and foreign files are refused",
        "clang and lld of the ziglang wheel, LLVM's descriptor header as tinygrad generated it",
    ),
    _implemented(
        "RDNA3 decoding",
        "every bit of a word is accounted for, unknown encodings are refused",
        "LLVM's assembler for gfx1100, and tinygrad's tables, which are made from AMD's machine-readable ISA",
    ),
    _implemented(
        "RDNA3 instructions",
        "scalar, vector, packed, matrix, lane, local, scratch, flat and atomic ones, wave32 and wave64",
        "values that tinygrad's tests recorded on hardware (tests/oracle/test_rdna_hw.py); Python's integers",
    ),
    _implemented(
        "compiled kernels",
        "OpenCL C through driver, command processor and RDNA3 code, with local and private memory",
        "numpy, and pocl on the host's CPU (tests/oracle/test_rdna_pocl.py)",
    ),
    _implemented(
        "compiled networks",
        "whole models through driver, command processor and RDNA3 code, as buffers",
        "onnxruntime on the host's CPU (benchmarks/models.py prints the errors)",
    ),
    _implemented(
        "memory protection",
        "an access to a page (4 KiB) that is not mapped is a fault that names program, pc, address and "
        "nearest allocation; one past a buffer's end in its last page, or into another mapping, is none",
        "tests with programs that do so",
    ),
    _implemented(
        "scratch and LDS",
        "accesses beyond a work-item's scratch or a group's LDS are faults; scratch must be mapped whole",
        "tests at the limit and beyond it",
    ),
    _implemented(
        "launch state",
        "packets with wrong bits, registers that nothing wrote, limits of a compute unit: errors that say so",
        "tests that leave out or damage each part",
    ),
    _implemented(
        "missing s_waitcnt",
        "a load's result that is used before its wait, on any path, is an error when a program is translated",
        "tests of each counter, with and without the wait",
    ),
    _approximate(
        "KFD behaviour",
        "checks, errnos, events, resets and hang detection as read in the driver's source",
    ),
    _approximate(
        "order of execution",
        "launches that neither flush nor release separates run in a shuffled order, but one after the other",
    ),
    _approximate(
        "waves that wait for others",
        "groups run in order, a group's waves in turn to a barrier or the end: a loop that waits for another "
        "wave or a later group is a hang, though hardware may end it",
    ),
    _approximate(
        "rcp, rsq, sqrt, log, exp, sin, cos",
        "closer to the exact value than the hardware, whose own last bits are not known",
        "float64 on the host",
    ),
    _approximate("caches", "not modelled: a cache flush that is missing from the commands goes unnoticed"),
    _approximate("time", "stage times are those of this host; the virtual clock charges made-up costs"),
    _approximate("CU masks, trap handlers", "accepted and change nothing"),
    _approximate("gfx1101, gfx1102", "differ from the gfx1100 in sizes, ids and blocks only"),
    _unsupported("AQL and copy queues", "CREATE_QUEUE refuses them; kernels and the CPU copy"),
    _unsupported(
        "some KFD calls",
        "shared virtual memory, DMA buffers, debugging, checkpoints, wave states, event streams, wave sync",
    ),
    _unsupported(
        "some instructions",
        "those of graphics shaders, formatted buffers, global wave sync, ray tracing; the error says which",
    ),
    _unsupported("other chips", "no virtual gfx9, gfx10 and gfx12: refused with the chip's name"),
)
FAMILIES = {"adreno": ADRENO, "amd": AMD}
STATEMENT = (*ADRENO, *AMD)
