"""The programs that copy between buffers on gfx11: one per element width, as a code object of our own.

Machine code of one kernel, ``if (i < n) dst[i] = src[i]``, with ``i`` the work-item: groups of 256. The
comments are what LLVM's disassembler prints. Arguments: ``dst`` at 0, ``src`` at 8, the unsigned number of
elements at 16. The number of user registers is what LLVM asks for on gfx1100: 15, so that the group id is in
s15.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ringfence.hardware.amd.code_object import PAGE, CodeObject, Kernel
from ringfence.hardware.amd.descriptor import PROPERTIES, RSRC1, RSRC2, RSRC3, DenormMode, KernelDescriptor
from ringfence.hardware.amd.metadata import Argument, ArgumentKind, KernelMetadata

COPY_LOCAL_SIZE = 256
MAX_COPY_ELEMENTS = (1 << 32) - COPY_LOCAL_SIZE
_ENTRY = 256  # byte offset of the code behind the descriptor
_USER_SGPRS = 15
_BUFFER = ArgumentKind.GLOBAL_BUFFER

_HEAD = (
    (0xF4080100, 0xF8000000),  # s_load_b128 s[4:7], s[0:1], null
    (0xF4000200, 0xF8000010),  # s_load_b32 s8, s[0:1], 0x10
    (0x8409880F,),  # s_lshl_b32 s9, s15, 8
    (0x4A000009,),  # v_add_nc_u32_e32 v0, s9, v0
    (0xBF89FC07,),  # s_waitcnt lgkmcnt(0)
    (0xD4CC007E, 0x00020008),  # v_cmpx_gt_u32_e64 s8, v0
    (0xBFA50010,),  # s_cbranch_execz 16
    (0x7E020280,),  # v_mov_b32_e32 v1, 0
)
_SHIFT = {
    1: (0xD73C0000, 0x00020080),  # v_lshlrev_b64 v[0:1], 0, v[0:1]
    4: (0xD73C0000, 0x00020082),  # v_lshlrev_b64 v[0:1], 2, v[0:1]
    16: (0xD73C0000, 0x00020084),  # v_lshlrev_b64 v[0:1], 4, v[0:1]
}
_SOURCE = (
    (0xD7006A02, 0x00020006),  # v_add_co_u32 v2, vcc_lo, s6, v0
    (0xD5207C03, 0x01AA0207),  # v_add_co_ci_u32_e64 v3, null, s7, v1, vcc_lo
)
_LOAD = {
    1: (0xDC420000, 0x047C0002),  # global_load_u8 v4, v[2:3], off
    4: (0xDC520000, 0x047C0002),  # global_load_b32 v4, v[2:3], off
    16: (0xDC5E0000, 0x047C0002),  # global_load_b128 v[4:7], v[2:3], off
}
_DESTINATION = (
    (0xD7006A00, 0x00020004),  # v_add_co_u32 v0, vcc_lo, s4, v0
    (0xD5207C01, 0x01AA0205),  # v_add_co_ci_u32_e64 v1, null, s5, v1, vcc_lo
    (0xBF8903F7,),  # s_waitcnt vmcnt(0)
)
_STORE = {
    1: (0xDC620000, 0x007C0400),  # global_store_b8 v[0:1], v4, off
    4: (0xDC6A0000, 0x007C0400),  # global_store_b32 v[0:1], v4, off
    16: (0xDC760000, 0x007C0400),  # global_store_b128 v[0:1], v[4:7], off
}
_END = (0xBFB00000,)  # s_endpgm

_DESCRIPTOR = KernelDescriptor(
    group_segment_fixed_size=0,
    private_segment_fixed_size=0,
    kernarg_size=0,
    entry_offset=_ENTRY,
    rsrc3=RSRC3.pack(INST_PREF_SIZE=1),
    rsrc1=RSRC1.pack(
        FLOAT_DENORM_MODE_32=DenormMode.FLUSH_NONE,
        FLOAT_DENORM_MODE_16_64=DenormMode.FLUSH_NONE,
        ENABLE_DX10_CLAMP=1,
        ENABLE_IEEE_MODE=1,
        WGP_MODE=1,
        MEM_ORDERED=1,
        FWD_PROGRESS=1,
    ),
    rsrc2=RSRC2.pack(USER_SGPR_COUNT=_USER_SGPRS, ENABLE_SGPR_WORKGROUP_ID_X=1),
    properties=PROPERTIES.pack(ENABLE_SGPR_KERNARG_SEGMENT_PTR=1, ENABLE_WAVEFRONT_SIZE32=1),
)


def copy_element_bytes(destination: int, source: int, nbytes: int) -> int:
    """Return the widest element that a copy between two addresses can use: 16, 4 or 1 bytes."""
    bits = destination | source | nbytes
    return 16 if not bits % 16 else 4 if not bits % 4 else 1


def copy_words(element_bytes: int) -> tuple[int, ...]:
    """Return the machine code that copies elements of 1, 4 or 16 bytes."""
    width = element_bytes
    code = (*_HEAD, _SHIFT[width], *_SOURCE, _LOAD[width], *_DESTINATION, _STORE[width], _END)
    return tuple(word for instruction in code for word in instruction)


def copy_program(element_bytes: int, arch: str) -> CodeObject:
    """Return the code object that copies elements of 1, 4 or 16 bytes on a gfx11 chip."""
    align = min(element_bytes, 4)
    arguments = (
        Argument(0, 8, _BUFFER, name="dst", pointee_align=align, actual_access="write_only"),
        Argument(8, 8, _BUFFER, name="src", pointee_align=align, is_const=True),
        Argument(16, 4, ArgumentKind.BY_VALUE, name="n", type_name="uint"),
    )
    return code_object_of(f"copy{element_bytes}", arch, copy_words(element_bytes), arguments, COPY_LOCAL_SIZE)


def code_object_of(
    name: str, arch: str, words: Sequence[int], arguments: tuple[Argument, ...], local_size: int
) -> CodeObject:
    """Return a code object with one kernel of wave32 that uses at most 8 VGPRs, and no other memory."""
    code = b"".join(word.to_bytes(4, "little") for word in words)
    argument_bytes = max(argument.offset + argument.size for argument in arguments)
    descriptor = replace(_DESCRIPTOR, kernarg_size=argument_bytes)
    image = bytearray(PAGE)
    packed = descriptor.pack()
    image[: len(packed)] = packed
    image[_ENTRY : _ENTRY + len(code)] = code
    metadata = KernelMetadata(
        name=name,
        symbol=f"{name}.kd",
        kernarg_segment_size=argument_bytes,
        kernarg_segment_align=8,
        group_segment_fixed_size=0,
        private_segment_fixed_size=0,
        wavefront_size=32,
        sgpr_count=16,
        vgpr_count=8,
        max_flat_workgroup_size=local_size,
        args=arguments,
        reqd_workgroup_size=(local_size, 1, 1),
    )
    kernel = Kernel(name, 0, descriptor, _ENTRY, metadata)
    extent = (_ENTRY, _ENTRY + len(code))
    return CodeObject(
        arch, 0, 0, bytes(image), (), (extent,), {name: kernel}, {name: _ENTRY}, None, writable=False
    )
