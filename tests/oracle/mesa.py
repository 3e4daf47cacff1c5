"""The independent ir3 tools of Mesa: disassembler, assembler and the compiler for a630.

Mesa 25.2.7 is a shared library in the package tinymesa; tinygrad declares its functions and makes kernels.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from tinygrad import Context, Tensor
from tinygrad.codegen import to_program
from tinygrad.helpers import Target
from tinygrad.renderer.nir import IR3Renderer
from tinygrad.runtime.autogen import libc, mesa
from tinygrad.runtime.support.compiler_mesa import IR3Compiler, rzalloc
from tinygrad.uop.ops import Ops

GPU_ID = 630
# struct ir3_kernel_info (ir3_assembler.h) is not among tinygrad's declarations; it is smaller than this.
_KERNEL_INFO_BYTES = 4096


@contextmanager
def _c_file(file: IO[bytes], mode: bytes) -> Iterator[Any]:
    handle = libc.fdopen(os.dup(file.fileno()), mode)
    try:
        yield handle
    finally:
        libc.fclose(handle)


def disassemble(code: bytes, gpu_id: int = GPU_ID) -> list[str]:
    """Return one line of Mesa's text per instruction, with relative branch targets.

    A word that is no instruction gives ``no match: ...``, one with bits that Mesa does not expect gives the
    text, a tab and ``; `` with the complaint; see :func:`is_refused`.
    """
    words = struct.unpack(f"<{len(code) // 8}Q", code)
    # A complaint about an ambiguous word is printed one instruction late; a nop after each word carries it.
    padded = struct.pack(f"<{2 * len(words)}Q", *(x for word in words for x in (word, 0)))
    lines = _print(padded, gpu_id)
    return [
        text if nop == "nop" else f"{text}\t; {nop}"
        for text, nop in zip(lines[::2], lines[1::2], strict=True)
    ]


def is_refused(text: str) -> bool:
    """Return whether the disassembler found something wrong with the word of which ``text`` came."""
    return text.startswith("no match") or "\t; " in text


def _print(code: bytes, gpu_id: int) -> list[str]:
    with tempfile.TemporaryFile() as file:
        with _c_file(file, b"w") as out:

            @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
            def mark(_data: int, number: int, _instruction: int) -> None:
                libc.fputs(f"\x1e{number} ".encode(), out)

            options = mesa.struct_isa_decode_options(gpu_id, True, 0, False, pre_instr_cb=mark)
            stream = ctypes.cast(out, ctypes.POINTER(mesa.struct__IO_FILE))
            mesa.ir3_isa_disasm(code, len(code), stream, options)
        file.seek(0)
        text = file.read().decode()
    return [line.rstrip("\n") for line in re.split(r"\x1e\d+ ", text)[1:]]


@cache
def _compiler() -> IR3Compiler:
    mesa.glsl_type_singleton_init_or_ref()
    return IR3Compiler("a630")


@cache
def _parse() -> Any:
    maps = Path("/proc/self/maps").read_text().splitlines()
    parse = ctypes.CDLL(next(line.split()[-1] for line in maps if "libtinymesa" in line)).ir3_parse
    parse.restype, parse.argtypes = ctypes.c_void_p, [ctypes.c_void_p] * 3
    return parse


def assemble(text: str) -> bytes:
    """Return the code of assembly ``text`` (the disassembler's spelling, a line each), padded with nops.

    ``ValueError`` if Mesa's parser does not take it; the parser says more on stderr.
    """
    compiler = _compiler().cc
    kind = mesa.MESA_SHADER_COMPUTE
    variant = rzalloc(mesa.struct_ir3_shader_variant, type=kind, compiler=ctypes.pointer(compiler))
    v = variant.contents
    v.const_state = rzalloc(mesa.struct_ir3_const_state, variant)
    info = ctypes.create_string_buffer(_KERNEL_INFO_BYTES)
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        with _c_file(file, b"r") as source:
            ir = _parse()(ctypes.addressof(v), ctypes.addressof(info), ctypes.cast(source, ctypes.c_void_p))
    if not ir:
        raise ValueError(f"Mesa's assembler refused {text!r}")
    v.ir = ctypes.cast(ir, type(v.ir))
    code = ctypes.string_at(ctypes.cast(mesa.ir3_shader_assemble(v), ctypes.c_void_p).value, v.info.size)
    mesa.ralloc_free(variant)
    return code


@dataclass(frozen=True)
class Kernel:
    """One kernel compiled for a630: ``code`` is the machine code, ``lib`` what tinygrad would load."""

    name: str
    code: bytes
    lib: bytes


def compile_kernels(
    build: Callable[[], Tensor | Sequence[Tensor]], *, image: bool = False, float16: bool = False
) -> list[Kernel]:
    """Return the kernels that realize what ``build`` returns; nothing is executed and no device needed.

    ``build`` makes its inputs with ``Tensor.empty``. ``image`` puts convolutions and matrix products into
    images, ``float16`` makes those images half precision.
    """
    _compiler()
    with Context(DEV="CPU", IMAGE=int(image), FLOAT16=int(float16), CACHELEVEL=0):
        renderer = IR3Renderer(Target("QCOM", "IR3", "a630,IMAGE_PITCH_ALIGNMENT=64"))
        outputs = build()
        linear = Tensor.schedule_linear(*([outputs] if isinstance(outputs, Tensor) else outputs))
        programs = [to_program(call.src[0], renderer) for call in linear.src if call.src[0].op is Ops.SINK]
    libs = [(program.arg.function_name, program.src[3].arg) for program in programs]
    return [Kernel(name, IR3Compiler.unpack_lib(lib)[3], lib) for name, lib in libs]
