"""Programs for tests of the driver: only what a launch must know matters, the code is never run."""

from __future__ import annotations

from typing import Any

from ringfence.hardware.adreno.program import AdrenoProgram, Argument

POINTER = {"kind": "buffer", "size": 8}


def program(**changes: Any) -> AdrenoProgram:
    """``y[i] = x[i] * a``: two float32 buffers and a float32."""
    values: dict[str, Any] = {
        "name": "scale",
        "chip": "a630",
        "code": bytes(256),
        "full_registers": 4,
        "half_registers": 1,
        "workgroup_id_register": 0xC0,
        "local_id_register": 0,
        "arguments": (
            Argument(kind="buffer", name="y", dtype="float32", offset=0, written=True),
            Argument(kind="buffer", name="x", dtype="float32", offset=8),
            Argument(kind="scalar", name="a", dtype="float32", offset=16, size=4),
        ),
    }
    return AdrenoProgram(**{**values, **changes})


def image_program(shape: tuple[int, int] = (4, 16), **changes: Any) -> AdrenoProgram:
    """One written image (UAV 0) and two read ones: texture 0 is argument 2, texture 1 argument 1."""
    return program(
        **{
            "name": "images",
            "arguments": (
                Argument(kind="image", name="out", dtype="float16", shape=shape, written=True),
                Argument(kind="image", name="left", dtype="float32", shape=shape),
                Argument(kind="image", name="right", dtype="float16", shape=shape),
                Argument(kind="buffer", name="bias", dtype="float32", offset=0),
            ),
            "textures": (2, 1),
            "uavs": (0,),
            "samplers": 2,
            **changes,
        }
    )


# `if (i < n) y[i] = x[i] * a`, compiled for a630 by Mesa 25.2.7 (tinymesa) through tinygrad; comments are its
# disassembly.
_SCALE = (
    0x46D80803200600C0,  # (nop3) shl.b r0.w, r48.x, 6
    0x4218080000030000,  # (nop3) add.u r0.x, r0.x, r0.w
    0x42B000F810050000,  # cmps.s.lt p0.x, r0.x, c1.y
    0x47180804201F0000,  # (nop3) ashr.b r1.x, r0.x, 31
    0x0000010000000000,  # (rpt1)nop
    0x0682000000000000,  # predt
    0x46D0000620020000,  # shl.b r1.z, r0.x, 2
    0x46D8000520020004,  # (nop2) shl.b r1.y, r1.x, 2
    0x4210000700061002,  # add.u r1.w, c0.z, r1.z
    0x650004050005B01E,  # (nop2) shrg r1.y, 30, r0.x, r1.y
    0x4290400010020007,  # cmps.u.lt hr0.x, r1.w, c0.z
    0x4218000500051003,  # (nop2) add.u r1.y, c0.w, r1.y
    0x2009400900000000,  # cov.u16s32 r2.y, hr0.x
    0x0000020000000000,  # (rpt2)nop
    0x4218080800050009,  # (nop3) add.u r2.x, r2.y, r1.y
    0x0000020000000000,  # (rpt2)nop
    0xC006000A0181C001,  # ldg.u32 r2.z, g[r1.w], 1
    0x0702000000000000,  # predf
    0x204CC00A00000000,  # mov.u32u32 r2.z, 0
    0x0782000000000000,  # prede
    0x0000020000000000,  # (rpt2)nop
    0x5070000A1004000A,  # (sy)mul.f r2.z, r2.z, c1.x
    0x0682000000000000,  # predt
    0x46D8080420020004,  # (nop3) shl.b r1.x, r1.x, 2
    0x650004040004301E,  # shrg r1.x, 30, r0.x, r1.x
    0x46D8000020020000,  # (nop2) shl.b r0.x, r0.x, 2
    0x4210000400041001,  # add.u r1.x, c0.y, r1.x
    0x4218080B00001000,  # (nop3) add.u r2.w, c0.x, r0.x
    0x429848011000000B,  # (nop3) cmps.u.lt hr0.y, r2.w, c0.x
    0x2009400D00000001,  # cov.u16s32 r3.y, hr0.y
    0x0000020000000000,  # (rpt2)nop
    0x4218080C0004000D,  # (nop3) add.u r3.x, r3.y, r1.x
    0x0000020000000000,  # (rpt2)nop
    0xC0C6170001800014,  # stg.u32 g[r2.w], r2.z, 1
    0x0782000000000000,  # prede
    0x0300000000000000,  # end
)
SCALE_CODE = b"".join(word.to_bytes(8, "little") for word in _SCALE).ljust(384, b"\0")


def scale_program(**changes: Any) -> AdrenoProgram:
    """``if (i < n) y[i] = x[i] * a``, which really runs. The local size is 64."""
    arguments = (*program().arguments, Argument(kind="scalar", name="n", dtype="int32", offset=20, size=4))
    return program(**{"code": SCALE_CODE, "arguments": arguments, "local_size": (64, 1, 1), **changes})
