"""Kernels to Adreno program blobs through tinygrad's IR3 renderer and Mesa's ir3 compiler (tinymesa).

``lib`` of a compiled kernel is the bytes of Mesa's ``ir3_shader_variant`` and ``ir3_const_state``
structures, the immediates and the code (tinygrad ``runtime/support/compiler_mesa.py``). The structures
hold host pointers and differ from run to run, so the fields that a launch needs are extracted here and
nothing else is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import msgspec
from tinygrad import dtypes
from tinygrad.codegen import do_to_program
from tinygrad.device import TinyELF
from tinygrad.helpers import is_image_shape
from tinygrad.renderer import nir
from tinygrad.runtime.autogen import mesa
from tinygrad.runtime.support.compiler_mesa import IR3Compiler
from tinygrad.uop.ops import Ops, PatternMatcher, UOp, UPat

from ringfence.compile.chip_compiler import make_renderer
from ringfence.compile.dtypes import numpy_name
from ringfence.compile.kernel import Dimensions, Kernel, launch_size
from ringfence.compile.numerics import IN_ORDER
from ringfence.compile.workgroups import fill_groups
from ringfence.drivers.adreno.program import check_program
from ringfence.errors import CompileError, PackageError
from ringfence.hardware.adreno.chips import chip_by_name
from ringfence.hardware.adreno.program import AdrenoProgram, Argument

CONSTANT_FILE_BYTES = 4096
POINTER_BYTES = 8
NO_TEXTURE = 0xFF


# tinygrad leaves the rounding of single to half precision open (NIR ``f2f16``). For that ir3 emits a
# conversion with ROUND 0, toward zero (Mesa's round_t); arithmetic and image stores round to nearest even.
_ROUND_TO_EVEN = PatternMatcher(
    [
        (
            UPat(Ops.CAST, dtypes.half, src=(UPat.var("value", dtypes.float),)),
            lambda ctx, value: nir.nalu(ctx.b, "f2f16_rtne", ctx.r[value]),
        )
    ]
)


def renderer(target: str, *, narrow: bool = False) -> nir.IR3Renderer:
    """Return tinygrad's renderer for a chip, for kernels with 8- or 16-bit numbers if ``narrow``.

    :class:`CompileError` if its ir3 compiler does not know the chip.
    """
    made = make_renderer(chip_by_name(target), narrow=narrow)
    made.def_rewrite = _ROUND_TO_EVEN + made.def_rewrite
    made.extra_matcher = made.extra_matcher + IN_ORDER
    return made


def compile_kernel(ast: UOp, target: str, names: Sequence[str] = ()) -> Kernel:
    """Compile one kernel (a SINK node) whose buffers have ``names`` by slot, else ``data0``, ...;
    :class:`CompileError` if the chip could not run the result.
    """
    # not to_program(): its cache would mix these with programs of tinygrad's own renderer
    ir3 = renderer(target, narrow=_narrow(ast))
    compiled = do_to_program(fill_groups(ast, ir3), ir3)
    info = compiled.arg
    groups, local = launch_size(info)
    program, slots = _extract(compiled.to_elf(), frozenset(info.outs), target, local)
    if names:
        program = _named(program, [names[slot] for slot in slots])
    try:
        check_program(program, chip_by_name(target))
    except PackageError as error:
        raise CompileError(str(error)) from error
    return Kernel(program, slots, groups, local or (1, 1, 1))


def _named(program: AdrenoProgram, names: Sequence[str]) -> AdrenoProgram:
    arguments = [msgspec.structs.replace(a, name=n) for a, n in zip(program.arguments, names, strict=True)]
    return msgspec.structs.replace(program, arguments=tuple(arguments))


def _narrow(ast: UOp) -> bool:
    """Return whether a kernel has 8- or 16-bit numbers."""
    return any(u.dtype.itemsize in (1, 2) and u.dtype != dtypes.bool for u in ast.toposort())


def _extract(
    elf: TinyELF, written: frozenset[int], chip: str, local: Dimensions | None
) -> tuple[AdrenoProgram, tuple[int, ...]]:
    """Return the program and the slot behind each of its arguments."""
    v, state, immediates, code = IR3Compiler.unpack_lib(elf.lib)
    signature = _signature(elf, written, state)
    textures, uavs = _image_slots(elf.name, signature, v)
    order = sorted(range(len(signature)), key=lambda k: signature[k][0])
    driver = state.allocs.consts[mesa.IR3_CONST_ALLOC_DRIVER_PARAMS]
    program = AdrenoProgram(
        name=elf.name,
        chip=chip,
        code=code,
        immediates=bytes(immediates),
        immediates_offset=state.allocs.max_const_offset_vec4 * 16,
        constant_bytes=CONSTANT_FILE_BYTES,
        full_registers=v.info.max_reg + 1,
        half_registers=v.info.max_half_reg + 1,
        merged_registers=bool(v.mergedregs),
        double_threads=bool(v.info.double_threadsize),
        branch_stack=v.branchstack,
        private_bytes=v.pvtmem_size,
        shared_bytes=v.shared_size,
        workgroup_id_register=v.cs.work_group_id,
        local_id_register=v.cs.local_invocation_id,
        # Mesa's ir3_driver_params: the local size is at dwords 8 to 10 of the region.
        local_size_offset=(driver.offset_vec4 * 4 + 8) * 4 if driver.size_vec4 else -1,
        arguments=tuple(signature[k][1] for k in order),
        textures=tuple(order.index(k) for k in textures),
        uavs=tuple(order.index(k) for k in uavs),
        samplers=len(textures),  # ir3 emits one sampler per texture (ir3_compiler_nir.c)
        local_size=local,
        compiler=f"tinygrad {version('tinygrad')}, tinymesa {version('tinymesa')}",
    )
    return program, tuple(signature[k][0] for k in order)


def _signature(elf: TinyELF, written: frozenset[int], state: Any) -> list[tuple[int, Argument]]:
    """Return (slot, argument) for every entry of the signature, in its order.

    Slots need not be in order, and one may occur several times: a kernel can see the same memory as images
    of several shapes. Buffers are 8-byte addresses in signature order, scalars follow at their natural
    alignment, images take nothing.
    """
    buffers = [s for s in elf.signature if s[0] is None]
    scalars = [s for s in elf.signature if s[0] is not None]
    out: list[tuple[int, Argument]] = []
    end = 0
    for index, (_, slot, dtype, shape) in enumerate(buffers):
        name, kind, write = f"data{slot}", numpy_name(dtype), slot in written
        if is_image_shape(shape):
            out.append(
                (
                    slot,
                    Argument(kind="image", name=name, dtype=kind, shape=(shape[0], shape[1]), written=write),
                )
            )
        else:
            offset = _place(end, POINTER_BYTES, index, state)
            out.append((slot, Argument(kind="buffer", name=name, dtype=kind, offset=offset, written=write)))
            end += POINTER_BYTES
    for index, ((name, slot, dtype, _), (at, _)) in enumerate(
        zip(scalars, TinyELF.iter_sig(tuple(scalars), end))
    ):
        offset = _place(at, dtype.itemsize, len(buffers) + index, state)
        out.append(
            (
                slot,
                Argument(
                    kind="scalar", name=name, dtype=numpy_name(dtype), offset=offset, size=dtype.itemsize
                ),
            )
        )
    return out


def _place(at: int, size: int, index: int, state: Any) -> int:
    """Return where byte ``at`` of the argument block (uniform buffer 0) lies in the constant file.

    The compiler loads only the range that the code reads. What lies outside is not read; it goes to the
    end of the file, where it can overwrite nothing.
    """
    ubo = state.ubo_state
    for k in range(ubo.num_enabled):
        r = ubo.range[k]
        if r.ubo.block == 0 and r.start <= at and at + size <= r.end:
            return int(r.offset + at - r.start)
    return CONSTANT_FILE_BYTES - POINTER_BYTES * (index + 1)


def _image_slots(name: str, signature: list[tuple[int, Argument]], v: Any) -> tuple[list[int], list[int]]:
    """Return the signature indices behind the texture slots and the UAV slots.

    tinygrad numbers read and written images separately in signature order (``IR3Renderer.postrender``);
    ir3 then permutes the read ones.
    """
    images = [(k, a) for k, (_, a) in enumerate(signature) if a.kind == "image"]
    read, uavs = [k for k, a in images if not a.written], [k for k, a in images if a.written]
    mapping = v.image_mapping
    numbers = list(mapping.tex_to_image[: mapping.num_tex])
    if any(n == NO_TEXTURE or n >= len(read) for n in numbers) or v.num_uavs != len(images):
        raise CompileError(
            f"kernel {name}: the compiler reports {v.num_uavs} images and textures {numbers}, "
            f"the kernel has {len(read)} read and {len(uavs)} written images"
        )
    return [read[n] for n in numbers], uavs
