"""What a decoded ir3 instruction is: operands, modifiers and the extra fields of its category."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringfence.errors import CompileError
from ringfence.hardware.adreno.ir3.text import render
from ringfence.hardware.encoding import bit_ranges


@dataclass(frozen=True, slots=True)
class Operand:
    """One source or destination.

    ``num`` by ``kind``:

    * ``gpr``: scalar index, register * 4 + component; 0xC0..0xDF are the shared registers r48..r55
    * ``const``: scalar index into the constant file
    * ``imm``: integer (of a ``mov`` the 32 bits of the word, as a signed number)
    * ``float_imm``: index into ``FLUT``
    * ``rel_gpr``, ``rel_const``: offset to a0.x, in scalars
    * ``pred``: component of p0
    * ``addr``: 0 is a0.x, 1 is a1.x

    ``half`` says that the register is 16 bits wide, ``r`` that it advances in each repetition, ``last`` that
    its value is not read again.
    """

    kind: str
    num: int
    half: bool = False
    neg: bool = False
    abs: bool = False
    r: bool = False
    last: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded instruction word.

    ``name`` is the mnemonic without types and modifiers. ``dsts`` and ``srcs`` are in assembly order; an
    operand that covers several registers (a load of four elements) is given by its first register, and the
    count is in ``fields``. ``swz``, ``gat`` and ``sct`` list every register.

    ``fields`` by category:

    * branches: ``target`` (absolute pc); conditions ``comp1`` ``inv1`` ``comp2`` ``inv2``; ``index`` of brac;
      ``width`` of getlast
    * cat1: ``src_type`` ``dst_type``; ``round`` (0 none or to zero, 1 even, 2 up, 3 down); ``width`` of
      movmsk in bits; movs has the fiber as second source
    * cat2: ``full`` (source precision); ``cond`` of compares
    * cat3: ``full``; ``mixed`` and ``high`` of dp2acc and dp4acc; ``accumulate`` of wmm
    * cat4: ``full``
    * cat5: ``type`` ``wrmask`` ``is_3d`` ``is_array`` ``is_shadow`` ``is_vector`` ``has_offset`` ``proj``
      ``full_coords`` ``s2en``; ``samp`` and ``tex`` where they are immediates; with ``s2en`` also
      ``desc_mode`` ``base`` ``bindless`` ``a1``; ``imm_offset`` and ``is_1d`` of isam; ``width`` of
      brcst.active. A register that carries sampler and texture index is the last source
    * cat6: ``type``; ``offset`` in bytes (of ldib and stib in coordinate units, of ldg.a and stg.a in
      elements); ``size`` in elements; ``shift`` of ldg.a and stg.a; ``components`` ``dims`` ``typed`` of
      images and atomics; ``mode`` ``index`` ``base`` ``bindless`` of descriptors, where a register index
      (``mode`` is not ``imm``) is the last source and ``index`` is its number; ``component`` ``unified`` of
      ldc; ``a1`` of stc and ldg.k; ``mode`` of shfl. atomic.b has its register vector as destination (old
      value in the first) and as second source (data in the second)
    * cat7: ``w`` ``r`` ``l`` ``g`` of bar and fence; ``long`` of sleep; ``all`` of dccln, dcinv and dcflu
    """

    pc: int
    word: int
    category: int
    name: str
    dsts: tuple[Operand, ...]
    srcs: tuple[Operand, ...]
    repeat: int = 0
    nop: int = 0
    sy: bool = False
    ss: bool = False
    jp: bool = False
    sat: bool = False
    ul: bool = False
    eq: bool = False
    ei: bool = False
    fields: Mapping[str, int | str] = field(default_factory=dict, hash=False)

    @property
    def text(self) -> str:
        """Return the assembly text, as Mesa 25.2.7 prints it; branch targets are relative (``#2``)."""
        return render(self)


class UnknownInstruction(CompileError):
    """A word is not an instruction of this GPU, or one whose meaning is not known.

    ``bits`` is the mask of the bits that do not fit the closest encoding.
    """

    def __init__(self, pc: int, word: int, bits: int, reason: str) -> None:
        super().__init__(
            f"instruction {pc}: {word:#018x} does not decode as a6xx code: {reason}"
            f" (bits {bit_ranges(bits)}); check that the code was compiled for this GPU"
        )
        self.pc = pc
        self.word = word
        self.bits = bits
        self.reason = reason

    def __reduce__(self) -> tuple[type[UnknownInstruction], tuple[int, int, int, str]]:
        return type(self), (self.pc, self.word, self.bits, self.reason)
