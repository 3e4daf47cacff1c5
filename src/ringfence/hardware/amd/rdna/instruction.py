"""What a decoded RDNA3 (gfx11) instruction is: operands, modifiers and the extra fields of its format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringfence.errors import CompileError
from ringfence.hardware.encoding import bit_ranges


@dataclass(frozen=True, slots=True)
class Operand:
    """One source or destination.

    ``num`` by ``kind``:

    * ``sgpr``, ``vgpr``, ``ttmp``: number of the (first) register
    * ``vcc``, ``exec``: 0 is the low half (or the whole pair), 1 the high half
    * ``m0``, ``null``, ``scc``, ``vccz``, ``execz``, ``shared_base``, ``shared_limit``, ``private_base``,
      ``private_limit``: 0
    * ``int``: the inline integer, -16..64
    * ``float``: the source code of the inline constant, 240..248 (0.5 -0.5 1 -1 2 -2 4 -4 1/2pi)
    * ``literal``: the 32-bit literal as an unsigned number
    * ``off``: no register (an address that a memory instruction does not use), 0

    ``size`` counts dwords (1, 2, 3, 4, 5, 8, 16); 16-bit operands have size 1. ``hi`` selects the high half
    of a 16-bit operand. ``type`` says how the instruction reads or writes the operand, which also decides
    what a constant means: ``b16 i16 u16 f16 b32 i32 u32 f32 b64 i64 u64 f64``, packed ``v2f16 v2i16 v2u16
    v2bf16`` (and ``v4i8 v8i4`` of the dot products), ``mask`` (one bit per lane: size 1 in wave32, 2 in
    wave64), ``matrix`` (C and D of a WMMA: size 8 in wave32, 4 in wave64), and ``b96 b128 b256 ...`` for
    wider memory data and the A and B of a WMMA.
    """

    kind: str
    num: int
    size: int = 1
    neg: bool = False
    abs: bool = False
    hi: bool = False
    type: str = "b32"


@dataclass(frozen=True, slots=True)
class Dpp:
    """The lane permutation of the first source.

    ``kind`` is ``dpp8`` (``lanes`` holds the eight selectors) or ``dpp16`` (``control`` is the 9-bit
    dpp_ctrl). ``fetch_inactive`` is FI; the masks and ``bound_ctrl`` belong to dpp16.
    """

    kind: str
    control: int = 0
    lanes: tuple[int, ...] = ()
    row_mask: int = 15
    bank_mask: int = 15
    bound_ctrl: bool = False
    fetch_inactive: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded instruction.

    ``pc`` is the byte offset from the start of the code, ``size`` the length in bytes with literal and DPP
    dword. ``format`` is the encoding: ``sop1 sop2 sopk sopc sopp smem vop1 vop2 vopc vop3 vop3sd vop3p vopd
    ds flat global scratch mubuf``; a VOP1, VOP2 or VOPC instruction in its 64-bit form has ``vop3`` (or
    ``vop3sd``). ``name`` is the mnemonic without encoding suffix.

    ``dsts`` and ``srcs`` are the encoded operands in assembly order. Implicit SCC, EXEC (of saveexec and
    v_cmpx), M0 and MODE are not listed; VCC of carries, compares and selects is, since the 64-bit form
    encodes it:

    * sop1, sop2, sopc: as printed. ``s_setpc_b64`` and ``s_rfe_b64`` have only a source, ``s_getpc_b64`` only
      a destination, ``s_movrel*`` the registers before the offset is added
    * sopk: ``s_addk_i32``, ``s_mulk_i32``, ``s_cmovk_i32``: destination and the same register as source.
      ``s_cmpk_*``, ``s_setreg_b32`` and ``s_waitcnt_*``: the register is a source.
      ``s_setreg_imm32_b32``: the literal is the source
    * smem: destination; sources (sbase, soffset), soffset of kind ``null`` if there is none
    * vop1: destination, source. ``v_swap_b32`` and its relatives: both registers are destinations and
      sources, ``dsts[i]`` receives ``srcs[i]``. ``v_readfirstlane_b32`` has a scalar destination
    * vop2, vop3: the sources as printed. The accumulator of ``v_fmac*``, ``v_dot2acc*`` and ``v_pk_fmac*``,
      the kept half of a 16-bit destination and the old value of ``v_writelane_b32`` are not listed.
      ``v_fmamk_*`` has sources (src0, literal, src1), ``v_fmaak_*`` (src0, src1, literal)
    * carries (``v_add_co_ci_u32`` ...): destinations (vdst, carry), carry-in is the last source.
      ``v_cndmask_b32``: the mask is the last source. ``v_div_scale_*``, ``v_mad_u64_u32``: destinations
      (vdst, sdst). ``v_div_fmas_*`` reads VCC, which is not listed
    * vopc: destination is a ``mask``; ``v_cmpx_*`` has the destination ``exec``
    * vopd: ``dsts`` and ``srcs`` are those of ``fields["x"]`` followed by those of ``fields["y"]``
    * ds, flat, global, scratch, mubuf: ``fields["layout"]`` names the sources, see :meth:`source`. The old
      value of a d16 load's destination is not listed

    Bits of operand fields that the instruction does not use (the data register of a load) have no effect;
    those that are set are in ``fields["unused"]``, a mask over the words, absent if there are none.

    ``fields`` by format, each always present where it applies:

    * sopk, sopp: ``simm16`` (unsigned 16 bits); ``target`` (absolute byte offset) of branches and
      ``s_call_b64``; ``hwreg`` ``hwreg_offset`` ``hwreg_size`` of getreg and setreg
    * sop1: ``message`` of ``s_sendmsg_rtn_*``
    * smem: ``offset`` (signed), ``glc`` ``dlc``; ``probe`` (the permission bits) of ``s_atc_probe*``
    * vop1, vop2, vopc, vop3, vop3sd: ``vop3`` (1 in the 64-bit form), ``clamp`` ``omod`` (0..3), ``op_sel``
      (raw bits; what they select is already in ``Operand.hi``, but for ``v_permlane*`` they are FI and
      BOUND_CTRL), ``dpp`` (:class:`Dpp` or ``None``)
    * vop3p: ``clamp``, ``op_sel`` ``op_sel_hi`` ``neg_lo`` ``neg_hi`` (bit i belongs to source i), ``dpp``.
      The sources of ``v_fma_mix*`` also have them resolved: type ``f16`` or ``f32``, ``hi``, ``neg``, ``abs``
    * vopd: ``x`` and ``y``, two Instructions of format ``vopd`` named ``v_dual_*``
    * ds: ``layout``; ``offset``, or ``offset0`` ``offset1`` of the two-address forms (in elements); ``gds``
    * flat, global, scratch: ``layout``, ``offset`` (signed), ``glc`` ``slc`` ``dlc``; ``sve`` of scratch
    * mubuf: ``layout``, ``offset``, ``offen`` ``idxen`` ``glc`` ``slc`` ``dlc`` ``tfe``
    """

    pc: int
    size: int
    words: tuple[int, ...]
    format: str
    name: str
    dsts: tuple[Operand, ...]
    srcs: tuple[Operand, ...]
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def source(self, role: str) -> Operand | None:
        """Return the source of a memory instruction by role, ``None`` if the instruction has no such source.

        Roles: ``addr`` (ds, flat, global, scratch: VGPRs, or ``off``), ``data`` (stores and atomics; of ds
        ``data0`` and ``data1``), ``saddr`` (SGPRs or ``off``), ``vaddr`` ``srsrc`` ``soffset`` ``data`` of
        mubuf.
        """
        layout: tuple[str, ...] = self.fields.get("layout", ())
        return self.srcs[layout.index(role)] if role in layout else None

    @property
    def text(self) -> str:
        """Return the assembly text as LLVM prints it for gfx1100, with single spaces."""
        from ringfence.hardware.amd.rdna.text import render

        return render(self)


class UnknownInstruction(CompileError):
    """Some words are not an instruction of this GPU, or one whose meaning is not known.

    ``bits`` is the mask of the bits that do not fit the closest encoding, over the words together (bit 32 is
    bit 0 of the second word).
    """

    def __init__(self, pc: int, words: tuple[int, ...], bits: int, reason: str) -> None:
        shown = " ".join(f"{word:08x}" for word in words)
        where = f" (bits {bit_ranges(bits)})" if bits else ""
        super().__init__(
            f"byte {pc:#x}: {shown} does not decode as gfx11 code: {reason}{where};"
            " check that the code was compiled for this GPU"
        )
        self.pc = pc
        self.words = words
        self.bits = bits
        self.reason = reason

    def __reduce__(self) -> tuple[type[UnknownInstruction], tuple[int, tuple[int, ...], int, str]]:
        return type(self), (self.pc, self.words, self.bits, self.reason)
