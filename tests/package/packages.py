"""Small packages for tests, written by hand: y = 2 x, then z = y + w."""

from __future__ import annotations

import numpy as np

from ringfence.hardware.adreno.program import AdrenoProgram, Argument
from ringfence.package import Manifest, encode_package
from ringfence.package.format import PackedProgram, PlannedBuffer, SectionName, Step, Tensor

COUNT = 64
NBYTES = COUNT * 4
WEIGHTS = np.arange(COUNT, dtype=np.float32)


def program(name: str, reads: int) -> AdrenoProgram:
    """Return a program that writes its first argument and reads the others. Its code is never executed."""
    arguments = (
        Argument(kind="buffer", name="out", offset=0, written=True),
        *(Argument(kind="buffer", name=f"in{k}", offset=8 * (k + 1)) for k in range(reads)),
    )
    return AdrenoProgram(
        name=name, chip="a630", code=name.encode().ljust(128, b"\0"), full_registers=4, half_registers=0,
        arguments=arguments, local_size=(COUNT, 1, 1),
    )  # fmt: skip


def parts() -> tuple[Manifest, dict[SectionName, bytes]]:
    """Return manifest and sections of the package."""
    blobs = [program("double", 1).to_bytes(), program("add", 2).to_bytes()]
    offset = -(-len(blobs[0]) // 256) * 256
    manifest = Manifest(
        name="tiny",
        target="a630",
        image=False,
        float16=False,
        compiler={"by hand": "1"},
        model_sha256="0" * 64,
        inputs=(Tensor(name="x", dtype="float32", shape=(COUNT,), buffer=0),),
        outputs=(Tensor(name="z", dtype="float32", shape=(COUNT // 2, 2), buffer=1),),
        arena_bytes=512,
        buffers=(
            PlannedBuffer(kind="input", nbytes=NBYTES),
            PlannedBuffer(kind="output", nbytes=NBYTES),
            PlannedBuffer(kind="arena", offset=256, nbytes=NBYTES),
            PlannedBuffer(kind="const", nbytes=NBYTES),
        ),
        programs=(
            PackedProgram(name="double", offset=0, nbytes=len(blobs[0])),
            PackedProgram(name="add", offset=offset, nbytes=len(blobs[1])),
        ),
        steps=(
            Step(program=0, buffers=(2, 0), groups=(1, 1, 1), local=(COUNT, 1, 1)),
            Step(program=1, buffers=(1, 2, 3), groups=(1, 1, 1), local=(COUNT, 1, 1)),
        ),
    )
    return manifest, {"programs": blobs[0].ljust(offset, b"\0") + blobs[1], "weights": WEIGHTS.tobytes()}


def package_bytes() -> bytes:
    """Return the package as a file would contain it."""
    return encode_package(*parts())
