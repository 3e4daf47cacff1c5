"""Reading files of Qualcomm's OpenCL compiler: what is taken from them, and what is refused why."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

import ringfence as rf
from oracle.mesa import assemble
from oracle.qcom_cl_file import ClFile, Constant, Parameter
from oracle.qcom_cl_kernels import buffer, image, number
from ringfence.drivers.adreno.program import check_program
from ringfence.hardware.adreno import qcom_cl
from ringfence.hardware.adreno.chips import chip_by_name
from ringfence.hardware.adreno.program import Argument, read_program

COPY = assemble("""
    mov.u32u32 r1.x, c8.x
    mov.u32u32 r1.y, c8.y
    mov.u32u32 r1.z, c9.y
    mov.u32u32 r1.w, 0
    (rpt2)nop
    stg.u32 g[r1.x], r1.z, 1
    end
""")
FILE = ClFile(
    name="copy",
    code=COPY,
    full=2,
    half=3,
    parameters=(Parameter(32), Parameter(36, length=64)),
    constants=(Constant(0x12345678, 37), Constant(0xABCD, 80, is_32=0), Constant(0x4321, 83, is_32=0)),
    private=1000,
    shared=300,
    branch_stack=7,
)
ARGUMENTS = (buffer("uint32", written=True), number("uint8"))


def read(file: ClFile = FILE, arguments: tuple[Argument, ...] = ARGUMENTS) -> rf.AdrenoProgram:
    return rf.read_qcom_cl(file.to_bytes(), file.name, arguments)


def refusal(file: ClFile | bytes, arguments: tuple[Argument, ...] = ARGUMENTS, name: str = "copy") -> str:
    data = file if isinstance(file, bytes) else file.to_bytes()
    with pytest.raises(rf.PackageError) as error:
        rf.read_qcom_cl(data, name, arguments)
    return str(error.value)


def changed(offset: int, *words: int, file: ClFile = FILE) -> bytes:
    data = bytearray(file.to_bytes())
    struct.pack_into(f"<{len(words)}I", data, offset, *words)
    return bytes(data)


KERNEL = 0x120 + 28 + 40 * 3 + len(COPY)  # where the kernel's section of FILE begins
RECORDS = KERNEL + 0x158 + 4


# ----- the layout ---------------------------------------------------------------------------------


def test_offsets_are_those_of_the_structures_that_tinygrad_declares() -> None:
    from tinygrad.runtime.autogen import llvm_qcom

    header, section = llvm_qcom.cl_lib_header, llvm_qcom.cl_lib_section
    prog, kernel = llvm_qcom.cl_lib_prog, llvm_qcom.cl_lib_img_desc
    assert (header.num_sections.offset, header.sections.offset) == (
        qcom_cl.SECTION_COUNT,
        qcom_cl.HEADER_BYTES,
    )
    assert (ctypes.sizeof(section), section.offset.offset, section.size.offset) == (20, 4, 8)
    assert qcom_cl.SECTION_BYTES == 20
    assert (prog.fregs.offset, prog.hregs.offset, ctypes.sizeof(prog)) == (
        qcom_cl.FULL_REGISTERS,
        qcom_cl.HALF_REGISTERS,
        qcom_cl.FOOTPRINT_BYTES,
    )
    names = ("prg_offset", "pvtmem", "shmem", "samp_cnt", "brnchstck", "kernel_name")
    assert [getattr(kernel, name).offset for name in names] == [
        qcom_cl.ENTRY,
        qcom_cl.PRIVATE,
        qcom_cl.SHARED,
        qcom_cl.SAMPLERS,
        qcom_cl.BRANCH_STACK,
        qcom_cl.NAME,
    ]
    indices = ("CL_LIB_PROGRAM", "CL_LIB_CONSTS", "CL_LIB_IMAGE", "CL_LIB_CODE", "CL_LIB_IMAGE_DESC")
    assert [getattr(llvm_qcom, name) for name in indices] == [
        qcom_cl.FOOTPRINTS,
        qcom_cl.CONSTANTS,
        qcom_cl.CODE,
        qcom_cl.CODE_SIZE,
        qcom_cl.KERNEL,
    ]


# ----- what is taken ------------------------------------------------------------------------------


def test_the_program_has_what_the_file_says() -> None:
    program = read()
    assert (program.name, program.chip, program.dialect) == ("copy", "a630", "opencl")
    assert program.code == COPY
    assert (program.full_registers, program.half_registers, program.merged_registers) == (2, 3, False)
    assert (program.private_bytes, program.shared_bytes, program.branch_stack) == (1000, 300, 3)
    assert program.entry == 0
    registers = (
        program.workgroup_id_register,
        program.workgroup_size_register,
        program.workgroup_offset_register,
        program.local_id_register,
    )
    assert registers == (0xCF, 0xC0, 0xCC, 0x00)
    assert [a.offset for a in program.arguments] == [128, 144]
    assert [with_fields(a, offset=0) for a in program.arguments] == list(ARGUMENTS)


def test_constants_of_both_sizes_are_packed_into_one_span() -> None:
    program = read()
    assert program.immediates_offset == 148
    assert program.immediates == bytes.fromhex("78563412 00000000 00000000 cdab0000 00002143")


def test_code_is_padded_to_whole_units() -> None:
    code = COPY[: 7 * 8]
    program = read(replace(FILE, code=code))
    assert program.code == code + bytes(128 - len(code))


def test_images_take_slots_by_their_kind_and_a_sampler_brings_an_empty_one() -> None:
    parameters = tuple(Parameter(kind=kind) for kind in (1, 2, 1, 2, 2))
    arguments = tuple(image((2, 16 * (k + 1)), written=p.kind == 2) for k, p in enumerate(parameters))
    file = ClFile("copy", assemble("end"), 1, parameters=parameters, samplers=1)
    program = read(file, arguments)
    assert (program.textures, program.uavs, program.samplers) == ((0, 2), (1, 3, 4), 2)


@pytest.mark.parametrize("name", ["k", "ker", "kern", "kernel", "kernel_7", "кернел"])
def test_names_of_any_length(name: str) -> None:
    program = read(replace(FILE, name=name))
    assert (program.name, len(program.arguments)) == (name, 2)


def test_records_end_with_the_file_or_with_a_length_of_zero() -> None:
    data = FILE.to_bytes()
    assert rf.read_qcom_cl(data[:-32], "copy", ARGUMENTS) == read()
    assert rf.read_qcom_cl(data[:-20], "copy", ARGUMENTS) == read()


def test_a_kernel_behind_functions_starts_at_its_entry() -> None:
    code = assemble("ret\nnop\nnop")[: 3 * 8] + COPY
    assert read(replace(FILE, code=code, entry=3)).entry == 3


def test_the_program_is_a_blob_like_any_other() -> None:
    program = read()
    assert read_program(program.to_bytes()) == program


def test_constants_for_offsets_are_zero() -> None:
    code = assemble("add.u r0.x, r0.x, c2.x\n(rpt2)nop\nadd.u r0.x, r0.x, c7.z\nend")
    assert read(replace(FILE, code=code)).code == code


# ----- what is refused ----------------------------------------------------------------------------

DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "a file of 0 bytes, its header alone has 48"),
    "header only": (bytes(48), "it has 0 sections, the kernel is in section 11"),
    "few sections": (changed(0x18, 11), "it has 11 sections"),
    "sections behind the file": (changed(0x18, 1000), "the table of 1000 sections at bytes 0x0..0x4e50"),
    "sections over the rest": (
        changed(0x18, 13),
        "the table of 13 sections, which ends at byte 0x134, and the",
    ),
    "registers elsewhere": (changed(0x34, 0x7FFFFFF0), "the record of the registers at bytes 0x7ffffff0"),
    "registers between words": (changed(0x34, 0x122), "is not at a multiple of 4"),
    "registers over constants": (changed(0x34, 0x13C), "overlap"),
    "constants behind the code": (changed(0xAC, KERNEL), "have no room before the code"),
    "constants over the registers": (changed(0xAC, 0x13C - 40), "constant 0 is neither 16 nor 32 bits wide"),
    "code behind the file": (changed(0xC0, 0xFFFFFF00), "the code at bytes 0xffffff00"),
    "code over the kernel": (changed(0x100, len(COPY) + 8), "the code, which ends at byte"),
    "no code": (changed(0x100, 0), "code of 0 bytes"),
    "half an instruction": (changed(0x100, len(COPY) - 4), "no sequence of 8-byte instructions"),
    "kernel elsewhere": (changed(0x110, KERNEL + 4), "the file is of kernel"),
    "kernel behind the file": (changed(0x110, 0x10000), "the kernel at bytes 0x10000"),
    "another kernel": (replace(FILE, name="move").to_bytes(), "the file is of kernel 'move'"),
    "full registers": (changed(0x134 - 0x14 + 0x14, 49), "full_registers is 49, out of range 0..48"),
    "half registers": (changed(0x138, 0x80000000), "half_registers is 2147483648"),
    "private memory": (changed(KERNEL + 0xC8, 1 << 20), "private_bytes is 1048576"),
    "local memory": (changed(KERNEL + 0xD8, 1 << 16), "shared_bytes is 65536"),
    "branch stack": (changed(KERNEL + 0x108, 0x80), "branch_stack is 64, out of range 0..63"),
    "samplers": (changed(KERNEL + 0xDC, 2), "it has 2 samplers"),
    "entry behind the code": (changed(KERNEL + 0xC4, 16), "it starts at instruction 16"),
    "entry in a function": (
        changed(KERNEL + 0xC4, 4),
        "instruction 4, is in the middle of a function: `mov.u32u32",
    ),
    "entry behind the end": (changed(KERNEL + 0xC4, 8), "control leaves its 16 instructions, to 16"),
    "width of a constant": (
        changed(0x13C + 24, 2),
        "constant 0 is neither 16 nor 32 bits wide: its record says 2",
    ),
    "constant too wide": (changed(0x13C + 24, 0), "constant 0 is 0x12345678, but 16 bits wide"),
    "constant outside": (changed(0x13C + 16, 1024), "constant 0 at byte 4096 lies outside the constant file"),
    "constant moved": (changed(0x13C + 16, 38), "its code reads constant c9.y, which neither an argument"),
    "constants that overlap": (changed(0x13C + 16, 40), "constant 0 and constant 1 overlap"),
    "constant over an argument": (changed(0x13C + 16, 33), "argument 0 and constant 0 overlap"),
    "short record": (changed(RECORDS, 28), "the record of parameter 0 has 28 bytes"),
    "odd record": (changed(RECORDS, 33), "the record of parameter 0 has 33 bytes"),
    "no records": (changed(RECORDS, 0), "it has 0 parameters, but 2 arguments are described"),
    "long record": (changed(RECORDS, 0x7FFFFFFC), "the kernel at bytes"),
    "kind": (changed(RECORDS + 28, 3), "parameter 0 is of kind 3, which is not known"),
    "image": (changed(RECORDS + 28, 1), "parameter 0 is an image to read, argument 0 is described as buffer"),
    "argument outside": (changed(RECORDS + 12, 1023), "argument '' lies outside the constant file"),
    "argument moved": (changed(RECORDS + 12, 50), "its code reads constant c8.x"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_refused_with_the_reason(case: str) -> None:
    data, reason = DAMAGED[case]
    message = refusal(data)
    assert reason in message
    assert message.startswith(("OpenCL program 'copy': ", "program 'copy': "))


def test_every_truncation_is_refused_or_changes_nothing() -> None:
    data, whole = FILE.to_bytes(), read()
    for size in range(len(data)):
        try:
            assert rf.read_qcom_cl(data[:size], "copy", ARGUMENTS) == whole
        except rf.PackageError:
            continue


def test_arguments_must_be_those_of_the_kernel() -> None:
    assert "it has 2 parameters, but 1 arguments" in refusal(FILE, ARGUMENTS[:1])
    images = replace(FILE, parameters=(Parameter(kind=1), Parameter(kind=2)), code=assemble("end"))
    pair = (image((1, 16)), image((1, 16), written=True))
    assert read(images, pair).uavs == (1,)
    assert "argument 0 is described as written" in refusal(images, (pair[1], pair[1]))
    assert "parameter 1 is an image to write, argument 1 is described as scalar" in refusal(
        images, (pair[0], ARGUMENTS[1])
    )


def test_a_kernel_has_a_name() -> None:
    assert "it has no name" in refusal(FILE, name="")


USES: dict[str, tuple[str, str]] = {
    "full registers": ("mov.u32u32 r2.x, 1", "uses 3 full registers (vec4), the file has 2"),
    "half registers": ("cov.f32f16 hr3.y, r0.x", "uses 4 half registers (vec4), the file has 3"),
    "wide loads": ("mov.u32u32 r1.x, 0\nldg.u32 r1.y, g[r0.x], 4", "uses 3 full registers"),
    "textures": ("isam (f32)(x)r0.x, r0.x, s#0, t#2", "uses 3 textures, the file has 0"),
    "UAVs": ("stib.b.typed.2d.f32.4.imm r0.x, r0.x, 4", "uses 5 UAVs, the file has 0"),
    "uniform buffers": ("ldc.offset0.1.imm r0.x, 0, 0", "uses 1 uniform buffers, the file has 0"),
    "global size": ("mov.u32u32 r0.x, c0.y", "uses get_global_size(), which is in constant c0.y"),
    "dimensions": ("mov.u32u32 r0.x, c4.z", "uses get_work_dim()"),
    "groups": ("mov.u32u32 r0.x, c5.z", "uses get_num_groups()"),
    "constants": ("mov.u32u32 r0.x, c3.x", "reads constant c3.x, which neither"),
    "half constants": ("mov.f16f16 hr0.x, hc20.y", "reads constant c10.x, which neither"),
    "repeated constants": ("(rpt3)mov.u32u32 r0.x, (r)c8.x", "reads constant c8.z, which neither"),
    "returns": ("ret", "instruction 0 returns, but nothing called"),
}


@pytest.mark.parametrize("case", USES)
def test_code_that_needs_what_the_file_does_not_have_is_refused(case: str) -> None:
    body, reason = USES[case]
    assert reason in refusal(replace(FILE, code=assemble(f"{body}\nend")))


def test_the_sampler_behind_the_first_is_no_sampler() -> None:
    code = assemble("isam (f32)(x)r0.x, r0.x, s#1, t#0\nend")
    file = replace(FILE, code=code, samplers=1, parameters=(Parameter(kind=1),))
    assert "uses 2 samplers, the file has 1" in refusal(file, (image((1, 16)),))


def test_what_is_written_by_the_program_counts_as_filled() -> None:
    code = assemble(
        "mov.u32u32 r0.x, 1\n(rpt2)nop\nstc.u32 c[100], r0.x, 1\n(ss)nop\nmov.u32u32 r0.x, c25.x\nend"
    )
    assert read(replace(FILE, code=code)).code == code


def test_other_fields_do_not_matter() -> None:
    whole = FILE.to_bytes()
    sections: list[Any] = [0x1C + 4 * k for k in range(5)]
    for offset in (0, 4, 20, *sections, 0x30, 0x38, 0x44, RECORDS + 4, RECORDS + 16, KERNEL, KERNEL + 0x154):
        data = bytearray(whole)
        data[offset : offset + 4] = bytes(255 - byte for byte in whole[offset : offset + 4])
        assert rf.read_qcom_cl(bytes(data), "copy", ARGUMENTS) == read(), hex(offset)


def test_the_refusal_names_both_chips() -> None:
    check_program(read(), chip_by_name("a630"))
    with pytest.raises(rf.PackageError, match="was compiled for a630, this device is an a650"):
        check_program(read(), chip_by_name("a650"))
