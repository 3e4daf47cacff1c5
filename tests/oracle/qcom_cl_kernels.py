"""OpenCL kernels as Qualcomm's compiler could have made them, in its conventions, and what they compute.

Arguments begin at c8.x; local ids are in r0.xyz, local sizes in r48.xyz, the first global id of the
work-group in r51.xyz, its number in r51.w, r52.x and r52.y. A half constant ``hcN.x`` is a 16-bit word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from oracle.mesa import assemble
from oracle.qcom_cl_file import ClFile, Constant, Parameter
from ringfence.hardware.adreno.program import Argument

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Kernel:
    """A file, the types of its parameters, and a launch with the expected contents of its first argument.

    ``inputs`` are arrays and numbers in the order of the parameters.
    """

    file: ClFile
    arguments: tuple[Argument, ...]
    inputs: tuple[Array | int, ...]
    groups: tuple[int, int, int]
    local: tuple[int, int, int]
    expected: Array


def half(value: float) -> int:
    return int(np.float16(value).view(np.uint16))


def buffer(dtype: str = "float32", *, written: bool = False) -> Argument:
    return Argument(kind="buffer", dtype=dtype, written=written)


def number(dtype: str) -> Argument:
    return Argument(kind="scalar", dtype=dtype, size=np.dtype(dtype).itemsize)


def image(shape: tuple[int, int], *, dtype: str = "float32", written: bool = False) -> Argument:
    return Argument(kind="image", dtype=dtype, shape=shape, written=written)


@cache
def scale() -> Kernel:
    """out[i] = half(in[i] * a) * 1.5 - 0.25 + 3, with constants of both sizes."""
    code = assemble("""
        mov.u32u32 r1.x, c8.x
        mov.u32u32 r1.y, c8.y
        mov.u32u32 r1.z, c8.z
        mov.u32u32 r1.w, c8.w
        add.u r2.x, r51.x, r0.x
        (rpt2)nop
        add.u r2.x, r2.x, c2.x
        (rpt2)nop
        ldg.a.f32 r2.y, g[r1.z+(r2.x<<2)], 1
        cov.s32f32 r2.z, c9.x
        (rpt2)nop
        (sy)mul.f r2.y, r2.y, r2.z
        (rpt2)nop
        cov.f32f16 hr0.x, r2.y
        (rpt2)nop
        mul.f hr0.x, hr0.x, hc20.x
        (rpt2)nop
        add.f hr0.x, hr0.x, hc20.y
        (rpt2)nop
        cov.f16f32 r2.y, hr0.x
        (rpt2)nop
        add.f r2.y, r2.y, c10.y
        (rpt2)nop
        stg.a.f32 g[r1.x+(r2.x<<2)], r2.y, 1
        end
    """)
    values = (np.arange(192, dtype=np.float32) - 96) / 8
    halves = (values * np.float32(5)).astype(np.float16) * np.float16(1.5)
    file = ClFile(
        name="scale",
        code=code,
        full=3,
        half=1,
        parameters=(Parameter(32), Parameter(34, length=48), Parameter(36)),
        constants=(
            Constant(half(1.5), 80, is_32=0),
            Constant(half(-0.25), 81, is_32=0),
            Constant(int(np.float32(3).view(np.uint32)), 41),
        ),
    )
    return Kernel(
        file,
        (buffer(written=True), buffer(), number("int32")),
        (np.zeros(192, np.float32), values, 5),
        (3, 1, 1),
        (64, 1, 1),
        (halves + np.float16(-0.25)).astype(np.float32) + np.float32(3),
    )


@cache
def ids() -> Kernel:
    """out[x + 24 y + 48 z] = the numbers of work-group and fiber, and the local sizes, packed into a dword.

    The sum is made by a function that lies before the kernel.
    """
    code = assemble("""
        pack:
        (jp)shl.b r1.y, r1.y, 6
        (rpt2)nop
        or.b r1.x, r1.x, r1.y
        (rpt2)nop
        ret
        add.u r2.x, r51.x, r0.x
        add.u r2.y, r51.y, r0.y
        add.u r2.z, r51.z, r0.z
        (rpt2)nop
        mull.u r2.y, r2.y, 24
        mull.u r2.z, r2.z, 48
        (rpt2)nop
        add.u r2.x, r2.x, r2.y
        (rpt2)nop
        add.u r2.x, r2.x, r2.z
        add.u r1.x, r51.w, c7.x
        mov.u32u32 r1.y, r52.x
        (rpt2)nop
        call #pack
        mov.u32u32 r1.y, r52.y
        (rpt2)nop
        shl.b r1.y, r1.y, 6
        (rpt2)nop
        call #pack
        mov.u32u32 r3.x, r48.x
        (rpt2)nop
        shl.b r3.x, r3.x, 24
        (rpt2)nop
        or.b r1.x, r1.x, r3.x
        mov.u32u32 r3.y, r48.y
        (rpt2)nop
        shl.b r3.y, r3.y, 20
        (rpt2)nop
        or.b r1.x, r1.x, r3.y
        mov.u32u32 r3.z, c8.x
        mov.u32u32 r3.w, c8.y
        (rpt2)nop
        stg.a.u32 g[r3.z+(r2.x<<2)], r1.x, 1
        end
    """)
    gx, gy, gz = (24, 2, 4)
    local = (8, 1, 2)
    z, y, x = np.indices((gz, gy, gx), np.uint32)
    packed = (x // local[0]) | (y // local[1]) << 6 | (z // local[2]) << 12 | local[0] << 24 | local[1] << 20
    file = ClFile(name="group_ids", code=code, full=4, parameters=(Parameter(32),), entry=5, branch_stack=4)
    return Kernel(
        file,
        (buffer("uint32", written=True),),
        (np.zeros(gx * gy * gz, np.uint32),),
        (3, 2, 2),
        local,
        packed.astype(np.uint32).ravel(),
    )


@cache
def reverse() -> Kernel:
    """Reverses each work-group of ints by local memory, and adds what it kept in private memory."""
    code = assemble("""
        add.u r1.x, r51.x, r0.x
        shl.b r1.y, r0.x, 2
        mov.u32u32 r2.x, c8.z
        mov.u32u32 r2.y, c8.w
        (rpt2)nop
        ldg.a.u32 r1.z, g[r2.x+(r1.x<<2)], 1
        mov.u32u32 r3.x, 0
        (rpt2)nop
        (sy)stl.u32 l[r1.y], r1.z, 1
        stp.u32 p[r3.x+8], r1.z, 1
        (ss)bar.l
        (sy)sub.u r1.w, 252, r1.y
        (rpt2)nop
        ldl.u32 r2.z, l[r1.w], 1
        ldp.u32 r2.w, p[r3.x+8], 1
        (sy)(ss)add.u r2.z, r2.z, r2.w
        mov.u32u32 r2.x, c8.x
        mov.u32u32 r2.y, c8.y
        (rpt2)nop
        stg.a.u32 g[r2.x+(r1.x<<2)], r2.z, 1
        end
    """)
    values = np.random.default_rng(2).integers(0, 1 << 30, 128).astype(np.uint32)
    file = ClFile(
        name="reverse",
        code=code,
        full=4,
        parameters=(Parameter(32), Parameter(34)),
        shared=256,
        private=512,
    )
    return Kernel(
        file,
        (buffer("uint32", written=True), buffer("uint32")),
        (np.zeros(128, np.uint32), values),
        (2, 1, 1),
        (64, 1, 1),
        values.reshape(2, 64)[:, ::-1].ravel() + values,
    )


@cache
def blur() -> Kernel:
    """out[y, x] = a[y, x - 1] + b[y - 1, x], zero beyond the edges; images of float16 and float32."""
    code = assemble("""
        add.u r1.x, r51.x, r0.x
        add.u r1.y, r51.y, r0.y
        (rpt2)nop
        sub.s r2.x, r1.x, 1
        mov.u32u32 r2.y, r1.y
        mov.u32u32 r3.x, r1.x
        sub.s r3.y, r1.y, 1
        (rpt2)nop
        isam (f32)(xyzw)r4.x, r2.x, s#0, t#0
        isam (f32)(xyzw)r5.x, r3.x, s#0, t#1
        (sy)(rpt3)add.f r4.x, (r)r4.x, (r)r5.x
        (rpt2)nop
        stib.b.typed.2d.f32.4.imm r4.x, r1.x, 0
        end
    """)
    shape = (6, 16)
    random = np.random.default_rng(3)
    a, b = (random.standard_normal((*shape, 4)).astype(t) for t in (np.float16, np.float32))
    expected = np.zeros((*shape, 4), np.float32)
    expected[:, 1:] += a[:, :-1].astype(np.float32)
    expected[1:] += b[:-1]
    file = ClFile(
        name="blur_it",
        code=code,
        full=6,
        parameters=(Parameter(kind=2), Parameter(kind=1), Parameter(kind=1)),
        samplers=1,
    )
    images = (image(shape, written=True), image(shape, dtype="float16"), image(shape))
    return Kernel(file, images, (np.zeros((*shape, 4), np.float32), a, b), (2, 3, 1), (8, 2, 1), expected)


KERNELS: Sequence[Callable[[], Kernel]] = (scale, ids, reverse, blur)
