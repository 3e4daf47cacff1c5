"""Which ir3 instructions the virtual GPU executes, how faithfully, and what checks that."""

from __future__ import annotations

from dataclasses import dataclass

from ringfence.hardware.adreno.ir3 import OPCODES
from ringfence.virtual.isa.ir3 import alu, constants, control, cross, images, memory, sampling
from ringfence.virtual.isa.ir3.refused import REFUSED

DECODE_ORACLE = "Mesa 25.2.7 disassembler"
EXACT, APPROXIMATE = "exact", "approximate"

_TEST_DIRECTORY = "tests/virtual/isa/ir3"
_FILTERED = frozenset(("sam", "samb", "saml"))
_ROUNDED = frozenset(("rcp", "rsq", "hrsq", "log2", "hlog2", "exp2", "hexp2", "sin", "cos", "sqrt"))


@dataclass(frozen=True, slots=True)
class Coverage:
    """What is known about one instruction.

    ``refused`` says why a program with it is not run; ``None`` if it is. ``fidelity`` is ``"exact"`` if
    results have the bits of the hardware as far as that is documented, ``"approximate"`` if they are
    closer to the exact value than those of the hardware. ``semantic_test`` is the file of the tests of
    what it computes.
    """

    name: str
    category: int
    decode_oracle: str
    refused: str | None = None
    fidelity: str | None = None
    semantic_test: str | None = None

    @property
    def implemented(self) -> bool:
        return self.refused is None


def table() -> tuple[Coverage, ...]:
    """Return a row for every instruction that the decoder knows, by category and name."""
    order = sorted(OPCODES.items(), key=lambda item: (item[1], item[0]))
    return tuple(_row(name, category) for name, category in order)


def _row(name: str, category: int) -> Coverage:
    if name in REFUSED:
        return Coverage(name, category, DECODE_ORACLE, refused=REFUSED[name])
    fidelity = APPROXIMATE if name in _FILTERED | _ROUNDED else EXACT
    return Coverage(
        name, category, DECODE_ORACLE, None, fidelity, f"{_TEST_DIRECTORY}/test_ir3_{_topic(name)}.py"
    )


def _topic(name: str) -> str:
    """Return what the test file of an implemented instruction is about."""
    if name in alu.SEMANTICS:
        return "moves" if OPCODES[name] == 1 else "floats" if _is_float(name) else "integers"
    if name.startswith("atomic."):
        return "atomics"
    if name == "bar":
        return "memory"
    if name in images.SEMANTICS or name in ("isam", "isaml"):
        return "images"
    for topic, semantics in _TOPICS.items():
        if name in semantics:
            return topic
    raise KeyError(f"{name} has no semantics and no reason why not")


def _is_float(name: str) -> bool:
    return name in alu.REAL or name.endswith(".f") or name.startswith("sel.f")


_TOPICS = {
    "control": {"nop", *control.SEMANTICS},
    "memory": memory.SEMANTICS,
    "constants": constants.SEMANTICS,
    "waves": cross.SEMANTICS,
    "sampling": sampling.SEMANTICS,
}
