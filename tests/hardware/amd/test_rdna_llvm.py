"""The RDNA3 decoder agrees with LLVM's assembler for gfx1100 (clang 22 of the ziglang wheel).

The wheel has no disassembler, so the comparison goes around: words, our text, LLVM's words and LLVM's text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from ringfence.hardware.amd.rdna import Instruction, decode
from ringfence.hardware.amd.rdna.tables import rows
from tests.hardware.amd.rdna_words import instructions
from tests.oracle.llvm import Assembled, assemble

# Restrictions that the assembler checks beyond the encoding. Hardware and disassemblers take such words.
_RESTRICTIONS = ("different VGPR banks", "violates constant bus restrictions")
# Operands that LLVM's text cannot express: EXECZ as a source, 16-bit literals with more bits, f64 literals
# with neg or abs, a negative offset of a buffer probe, 1/2pi as a matrix or integer.
_INEXPRESSIBLE = ("src_execz register not available", "expected a 20-bit unsigned offset")


def _has_odd_literal(i: Instruction) -> bool:
    literals = [operand for operand in i.srcs if operand.kind == "literal"]
    if literals and "fma_mix" in i.name:  # LLVM reads f32 literals as f16 too
        return True
    return any(
        operand.neg or operand.abs or (operand.type in ("b16", "i16", "u16", "f16") and operand.num >> 16)
        for operand in literals
    )


def _has_odd_inverse_2pi(i: Instruction) -> bool:
    """Return whether 1/2pi is a matrix, or an integer of 16 bits beside a permutation."""
    types = [operand.type for operand in i.srcs if (operand.kind, operand.num) == ("float", 248)]
    return "matrix" in types or (i.fields.get("dpp") is not None and not {"i16", "u16"}.isdisjoint(types))


def _is_excused(i: Instruction, found: Assembled | str) -> bool:
    """Return whether a difference is a known limit of LLVM's text."""
    if isinstance(found, str):
        if any(reason in found for reason in (*_RESTRICTIONS, *_INEXPRESSIBLE)):
            return True
        if _has_odd_inverse_2pi(i):
            return True
        dpp = i.fields.get("dpp")
        if dpp is not None and dpp.control in (0x142, 0x143):  # row_bcast of gfx9
            return True
        # LLVM 22 does not know the loads into LDS any more; AMD's machine-readable ISA lists them for gfx11.
        return i.name.startswith("buffer_load_lds") or _has_odd_literal(i)
    if "unused" in i.fields or _has_odd_literal(i):
        return True
    if i.name == "v_cndmask_b16":  # the text does not say which half of a scalar source is read
        return any(operand.hi and operand.kind != "vgpr" for operand in i.srcs)
    lossy = ("s_waitcnt", "s_delay_alu", "s_sendmsg", "s_sendmsghalt", "ds_swizzle_b32", "s_setreg_imm32_b32")
    return i.name in lossy or (i.name == "v_pk_fmac_f16" and i.srcs[0].kind == "float")


def _compare(made: Iterable[Instruction], features: tuple[str, ...] = ()) -> tuple[Counter[str], list[str]]:
    """Return how many instructions agree by name, and the differences."""
    items = list(made)
    texts = [i.text for i in items]
    agreed: Counter[str] = Counter()
    problems = []
    for i, text, found in zip(items, texts, assemble(texts, features=features), strict=True):
        if found == Assembled(text, i.words):
            agreed[f"{i.format} {i.name}"] += 1
        elif not _is_excused(i, found):
            problems.append(f"{' '.join(f'{word:08x}' for word in i.words)} {text!r}: {found}")
    return agreed, problems


def _all_names() -> set[str]:
    return {f"{row.format} {row.name}" for table in rows().values() for row in table}


def test_every_instruction_has_llvm_text_and_words() -> None:
    agreed, problems = _compare(instructions(1, 4))
    missing = {name for name in _all_names() - set(agreed) if "buffer_load_lds" not in name}
    assert not problems
    assert not missing, f"no word was compared for {sorted(missing)}"
    assert len(agreed) > 1200


@pytest.mark.parametrize(
    "name", ["s_waitcnt", "s_delay_alu", "s_waitcnt_depctr", "s_sendmsg", "s_getreg_b32"]
)
def test_immediates_read_as_llvm_prints_them(name: str) -> None:
    """The immediates with names of their own: every value whose bits all have a meaning."""
    opcodes = {row.name: row.match for table in ("sopp", "sopk") for row in rows()[table]}
    values = {
        "s_waitcnt": [v for v in range(0, 65536, 77) if not v & 8],
        "s_delay_alu": [a | b << 4 | c << 7 for a in range(12) for b in range(6) for c in range(12)],
        "s_waitcnt_depctr": range(0, 65536, 211),
        "s_sendmsg": range(256),
        "s_getreg_b32": range(0, 65536, 61),
    }[name]
    made = [decode((opcodes[name] | value).to_bytes(4, "little")) for value in values]
    texts = [i.text for i in made]
    expected = [Assembled(text, i.words) for text, i in zip(texts, made, strict=True)]
    assert assemble(texts) == expected


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(2, 5))
def test_many_words_have_llvm_text(seed: int) -> None:
    agreed, problems = _compare(instructions(seed, 30))
    assert not problems
    assert sum(agreed.values()) > 20000


@pytest.mark.conformance
def test_wave64_words_have_llvm_text() -> None:
    features = ("+wavefrontsize64", "-wavefrontsize32")
    agreed, problems = _compare(instructions(9, 10, wave=64), features)
    assert not problems
    assert sum(agreed.values()) > 8000
