"""The programs that copy between buffers: one per element width.

Compiled for a630 by Mesa 25.2.7 (tinymesa) from a kernel of one line, ``if (i < n) dst[i] = src[i]``, through
tinygrad's ``IR3Renderer``; the comments are Mesa's disassembly. Arguments: 64-bit ``dst`` in c0.xy, 64-bit
``src`` in c0.zw, the signed number of elements ``n`` in c1.x. One thread copies one element; a work-group has
64 threads. Mesa compiles the same code for an a640. On later chips it would use what they can do besides, but
they run this code as well, with idle instructions after ``prede``.
"""

from __future__ import annotations

from ringfence.hardware.adreno.chips import Chip
from ringfence.hardware.adreno.program import INSTRUCTION_BYTES, INSTRUCTION_UNIT, AdrenoProgram, Argument

COPY_LOCAL_SIZE = 64
MAX_COPY_ELEMENTS = (1 << 31) - 1
_PREFETCH = 4  # instructions that Mesa leaves after `end`, which the hardware may fetch but never runs
_WORKGROUP_ID = 0xC0  # r48.x
_LOCAL_ID = 0x00  # r0.x
_PREDE = 0x0782000000000000

_COPY_1 = (  # bytes
    0x46D80803200600C0,  # (nop3) shl.b r0.w, r48.x, 6
    0x4218080000030000,  # (nop3) add.u r0.x, r0.x, r0.w
    0x42B000F810040000,  # cmps.s.lt p0.x, r0.x, c1.x
    0x47180804201F0000,  # (nop3) ashr.b r1.x, r0.x, 31
    0x0000010000000000,  # (rpt1)nop
    0x0682000000000000,  # predt
    0x4210000500001002,  # add.u r1.y, c0.z, r0.x
    0x4210000700001000,  # add.u r1.w, c0.x, r0.x
    0x4210080900041003,  # (nop1) add.u r2.y, c0.w, r1.x
    0x4290400010020005,  # cmps.u.lt hr0.x, r1.y, c0.z
    0x4290400210000007,  # cmps.u.lt hr0.z, r1.w, c0.x
    0x4210080A00041001,  # (nop1) add.u r2.z, c0.y, r1.x
    0x2009400B00000000,  # cov.u16s32 r2.w, hr0.x
    0x2009400C00000002,  # cov.u16s32 r3.x, hr0.z
    0x0000010000000000,  # (rpt1)nop
    0x421000060009000B,  # add.u r1.z, r2.w, r2.y
    0x42180808000A000C,  # (nop3) add.u r2.x, r3.x, r2.z
    0x0000010000000000,  # (rpt1)nop
    0xC00C000101814001,  # ldg.u8 hr0.y, g[r1.y], 1
    0x0000000000000000,  # nop
    0xD0CC0F0001800002,  # (sy)stg.u8 g[r1.w], hr0.y, 1
    0x0782000000000000,  # prede
    0x0300000000000000,  # end
)

_COPY_4 = (  # dwords, both addresses multiples of 4
    0x46D80803200600C0,  # (nop3) shl.b r0.w, r48.x, 6
    0x4218080000030000,  # (nop3) add.u r0.x, r0.x, r0.w
    0x42B000F810040000,  # cmps.s.lt p0.x, r0.x, c1.x
    0x47180804201F0000,  # (nop3) ashr.b r1.x, r0.x, 31
    0x0000010000000000,  # (rpt1)nop
    0x0682000000000000,  # predt
    0x46D8080420020004,  # (nop3) shl.b r1.x, r1.x, 2
    0x650004040004301E,  # shrg r1.x, 30, r0.x, r1.x
    0x46D8000020020000,  # (nop2) shl.b r0.x, r0.x, 2
    0x4210000900041003,  # add.u r2.y, c0.w, r1.x
    0x4210000500001002,  # add.u r1.y, c0.z, r0.x
    0x4210000700001000,  # add.u r1.w, c0.x, r0.x
    0x4210080A00041001,  # (nop1) add.u r2.z, c0.y, r1.x
    0x4290400010020005,  # cmps.u.lt hr0.x, r1.y, c0.z
    0x4298400110000007,  # (nop2) cmps.u.lt hr0.y, r1.w, c0.x
    0x2009400B00000000,  # cov.u16s32 r2.w, hr0.x
    0x2009400D00000001,  # cov.u16s32 r3.y, hr0.y
    0x0000010000000000,  # (rpt1)nop
    0x421000060009000B,  # add.u r1.z, r2.w, r2.y
    0x42180808000A000D,  # (nop3) add.u r2.x, r3.y, r2.z
    0x0000010000000000,  # (rpt1)nop
    0xC006000C01814001,  # ldg.u32 r3.x, g[r1.y], 1
    0x0000000000000000,  # nop
    0xD0C60F0001800018,  # (sy)stg.u32 g[r1.w], r3.x, 1
    0x0782000000000000,  # prede
    0x0300000000000000,  # end
)

_COPY_16 = (  # four dwords, both addresses multiples of 4
    0x46D00004200800C0,  # shl.b r1.x, r48.x, 8
    0x46D00005200600C0,  # shl.b r1.y, r48.x, 6
    0x46D8000320020000,  # (nop2) shl.b r0.w, r0.x, 2
    0x4210000000050000,  # add.u r0.x, r0.x, r1.y
    0x4218000400030004,  # (nop2) add.u r1.x, r1.x, r0.w
    0x42B000F810040000,  # cmps.s.lt p0.x, r0.x, c1.x
    0x47180806201F0004,  # (nop3) ashr.b r1.z, r1.x, 31
    0x0000010000000000,  # (rpt1)nop
    0x0682000000000000,  # predt
    0x46D0000820020004,  # shl.b r2.x, r1.x, 2
    0x46D8000720020006,  # (nop2) shl.b r1.w, r1.z, 2
    0x4210000900081002,  # add.u r2.y, c0.z, r2.x
    0x46D0000620020006,  # shl.b r1.z, r1.z, 2
    0x65020C070007301E,  # (nop1) shrg r1.w, 30, r1.x, r1.w
    0x4290400010020009,  # cmps.u.lt hr0.x, r2.y, c0.z
    0x650204060006301E,  # shrg r1.z, 30, r1.x, r1.z
    0x46D0000420020004,  # shl.b r1.x, r1.x, 2
    0x4210000700071003,  # add.u r1.w, c0.w, r1.w
    0x2009400B00000000,  # cov.u16s32 r2.w, hr0.x
    0x4210000600061001,  # add.u r1.z, c0.y, r1.z
    0x4210081000041000,  # (nop1) add.u r4.x, c0.x, r1.x
    0x4210080A0007000B,  # (nop1) add.u r2.z, r2.w, r1.w
    0x4298480110000010,  # (nop3) cmps.u.lt hr0.y, r4.x, c0.x
    0x2009401200000001,  # cov.u16s32 r4.z, hr0.y
    0xC006000C04824001,  # ldg.u32 r3.x, g[r2.y], 4
    0x0000020000000000,  # (rpt2)nop
    0x4218081100060012,  # (nop3) add.u r4.y, r4.z, r1.z
    0x0000020000000000,  # (rpt2)nop
    0xD0C6210004800018,  # (sy)stg.u32 g[r4.x], r3.x, 4
    0x0782000000000000,  # prede
    0x0300000000000000,  # end
)

# Element bytes -> words, full registers (vec4).
_PROGRAMS = {1: (_COPY_1, 4), 4: (_COPY_4, 4), 16: (_COPY_16, 5)}


def copy_element_bytes(destination: int, source: int, nbytes: int) -> int:
    """Return the widest element that a copy between two addresses can use: 16, 4 or 1 bytes."""
    if (destination | source | nbytes) % 4:
        return 1
    return 4 if nbytes % 16 else 16


def copy_program(element_bytes: int, chip: Chip) -> AdrenoProgram:
    """Return the program that copies elements of 1, 4 or 16 bytes on ``chip``."""
    plain, full_registers = _PROGRAMS[element_bytes]
    idle = [0] * chip.nops_after_prede
    words = [word for each in plain for word in (each, *(idle if each == _PREDE else ()))]
    code = b"".join(word.to_bytes(INSTRUCTION_BYTES, "little") for word in words)
    padded = len(code) + _PREFETCH * INSTRUCTION_BYTES
    return AdrenoProgram(
        name=f"copy{element_bytes}",
        chip=chip.name,
        code=code.ljust(-(-padded // INSTRUCTION_UNIT) * INSTRUCTION_UNIT, b"\0"),
        full_registers=full_registers,
        half_registers=1,
        workgroup_id_register=_WORKGROUP_ID,
        local_id_register=_LOCAL_ID,
        arguments=(
            Argument(kind="buffer", name="dst", dtype="uint8", offset=0, written=True),
            Argument(kind="buffer", name="src", dtype="uint8", offset=8),
            Argument(kind="scalar", name="n", dtype="int32", offset=16, size=4),
        ),
        local_size=(COPY_LOCAL_SIZE, 1, 1),
        compiler="Mesa 25.2.7",
    )
