"""Runs a few lines of RDNA3 assembly on every lane of some arrays.

The assembler is LLVM's. A test lists instructions as text; their operands are the registers that the harness
loaded from the input arrays, and what they leave in the result registers is stored and compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from oracle.llvm import assemble
from ringfence.errors import FaultReport
from ringfence.virtual.isa.rdna.dispatch import Dispatch
from ringfence.virtual.isa.rdna.executor import Executor
from ringfence.virtual.memory import AddressSpace

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint32]
F = TypeVar("F", bound=Callable[..., Any])

CODE, ARGUMENTS, INPUT, OUTPUT = 0x7E0000000000, 0x1000_0000, 0x2000_0000, 0x3000_0000
MODE_KEEP, MODE_FLUSH = 0xF0, 0x00
"""MODE with all denormals kept, or all flushed; nearest even."""
CLAMP_IEEE = 1 << 21 | 1 << 23
"""DX10_CLAMP and IEEE of COMPUTE_PGM_RSRC1."""
USER, X = 8, "s8"
"""User registers, and the register behind them: the number of the work-group."""
RESULT = 40
"""The first result register of each operation."""

SLOW = pytest.mark.conformance
"""For repetitions of a test that run with ``make conformance`` only."""
EITHER_WAVE = [32, pytest.param(64, marks=SLOW)]
"""Parameters of tests that need not try both wave sizes each time."""

COVERED: dict[str, set[str]] = {}
"""Instruction -> the tests that check what it does."""


def covers(*names: str) -> Callable[[F], F]:
    """Record that the decorated test checks the semantics of the instructions ``names``."""

    def record(test: F) -> F:
        for name in names:
            COVERED.setdefault(name, set()).add(f"{test.__module__}.{test.__qualname__}")
        return test

    return record


@lru_cache(maxsize=256)
def code(lines: tuple[str, ...], wave: int = 32) -> bytes:
    """Return the machine code of assembly lines; ``label:`` and branches to labels are allowed."""
    plain = [line for line in lines if not line.endswith(":")]
    features = (f"+wavefrontsize{wave}", f"-wavefrontsize{96 - wave}")
    found = assemble([_without_label(line) for line in plain], features=features)
    wrong = [f"{line}: {words}" for line, words in zip(plain, found, strict=True) if isinstance(words, str)]
    assert not wrong, "\n".join(wrong)
    sizes = iter(4 * len(a.words) for a in found if not isinstance(a, str))
    places, starts, offset = {}, [], 0
    for line in lines:
        if line.endswith(":"):
            places[line[:-1]] = offset
        else:
            starts.append(offset)
            offset += next(sizes)
    data = bytearray()
    for line, start, assembled in zip(plain, starts, found, strict=True):
        assert not isinstance(assembled, str)
        words = list(assembled.words)
        if "@" in line:
            words[0] |= (places[line.split("@")[1]] - start - 4) // 4 & 0xFFFF
        data += b"".join(word.to_bytes(4, "little") for word in words)
    return bytes(data)


def _without_label(line: str) -> str:
    """Return a branch to ``@label`` with the offset 0, which is filled in later."""
    return line.split("@")[0] + "0" if "@" in line else line


def rsrc1(mode: int = MODE_KEEP, flags: int = CLAMP_IEEE) -> int:
    """Return COMPUTE_PGM_RSRC1 for a MODE register's low byte."""
    return mode << 12 | flags


@dataclass
class Memory:
    """Arrays at GPU addresses, each followed by unmapped memory."""

    space: AddressSpace = field(default_factory=AddressSpace)
    keep: list[Array] = field(default_factory=list)

    def add(self, address: int, array: Array, *, writable: bool = True, label: str = "array") -> int:
        """Map ``array``, which programs then read and write in place."""
        assert array.flags.c_contiguous
        self.space.map(address, array.nbytes, array.ctypes.data, writable=writable, label=label)
        self.keep.append(array)
        return address


def dispatch(machine_code: bytes, **changes: Any) -> Dispatch:
    """Return a launch of one wave, with what ``changes`` says otherwise."""
    values: dict[str, Any] = {
        "name": "test",
        "code": machine_code,
        "address": CODE,
        "groups": (1, 1, 1),
        "local": (32, 1, 1),
        "user_data": (ARGUMENTS & 0xFFFFFFFF, ARGUMENTS >> 32, 0, 0, 0, 0, 0, 0),
        "rsrc1": rsrc1(),
        "rsrc2": USER << 1 | 7 << 7 | 2 << 11,
        "scratch_bytes": 1024,
        "lds_bytes": 4096,
    }
    return Dispatch(**{**values, **changes})


@dataclass(frozen=True)
class Op:
    """One operation of a batch.

    ``text`` is assembly, several instructions separated by ``;``. ``{0}`` and up are the inputs, ``{d}`` the
    result registers, which hold what ``start`` (an input) says before. ``dwords`` counts the results.
    """

    text: str
    dwords: int = 1
    start: int | None = None


def registers(first: int, dwords: int) -> str:
    """Return the assembler's name of VGPRs."""
    return f"v{first}" if dwords == 1 else f"v[{first}:{first + dwords - 1}]"


def batch(
    executor: Executor,
    operations: Sequence[Op],
    inputs: Sequence[Array],
    *,
    mode: int = MODE_KEEP,
    flags: int = CLAMP_IEEE,
    wave: int = 32,
    before: Sequence[str] = (),
    arrays: Mapping[int, Array] | None = None,
    lds_bytes: int = 4096,
) -> list[Words]:
    """Run operations on all rows of ``inputs`` and return the results, each of shape (rows, dwords).

    Inputs are arrays of 1, 2, 4 or 8 byte elements, one row a lane; rows are padded to whole waves. 16-bit
    inputs lie in the low half of their register. ``before`` is assembly that runs first, ``arrays`` are more
    memory by GPU address.
    """
    rows = len(inputs[0])
    waves = -(-rows // wave)
    columns, names = _columns(inputs, waves * wave)
    total = sum(operation.dwords for operation in operations)
    lines = [*_prologue(len(columns), total, wave), *before]
    slot = 0
    for operation in operations:
        lines += _operation(operation, names, slot, wave)
        slot += operation.dwords
    lines.append("s_endpgm")
    table = np.stack([c.reshape(waves, wave) for c in columns], axis=1)
    result = np.zeros((waves, slot, wave), np.uint32)
    memory = Memory()
    arguments = np.array([INPUT, OUTPUT], np.uint64)
    own = {ARGUMENTS: arguments, INPUT: np.ascontiguousarray(table), OUTPUT: result}
    for address, array in {**own, **(arrays or {})}.items():
        memory.add(address, array)
    launch = dispatch(
        code(tuple(lines), wave),
        groups=(waves, 1, 1),
        local=(wave, 1, 1),
        rsrc1=rsrc1(mode, flags),
        wave=wave,
        lds_bytes=lds_bytes,
    )
    report = executor.run(launch, memory.space)
    assert report is None, report
    flat = result.transpose(0, 2, 1).reshape(waves * wave, slot)[:rows]
    found, slot = [], 0
    for operation in operations:
        found.append(flat[:, slot : slot + operation.dwords])
        slot += operation.dwords
    return found


def _columns(inputs: Sequence[Array], rows: int) -> tuple[list[Words], list[str]]:
    """Return the 32-bit columns of the inputs, padded by repetition, and the registers that they get."""
    columns: list[Words] = []
    names = []
    for array in inputs:
        padded = np.resize(array, rows)
        first = 2 + len(columns)
        if padded.itemsize == 8:
            words = padded.view(np.uint32).reshape(rows, 2)
            columns += [np.ascontiguousarray(words[:, 0]), np.ascontiguousarray(words[:, 1])]
            names.append(registers(first, 2))
        else:
            unsigned = padded.view(f"u{padded.itemsize}")
            columns.append(unsigned.astype(np.uint32))
            names.append(registers(first, 1))
    assert len(columns) < RESULT - 2
    return columns, names


def _prologue(columns: int, results: int, wave: int) -> list[str]:
    """Put the address of this wave's results into s[6:7] and load its inputs."""
    lines = [
        "s_load_b128 s[4:7], s[0:1], 0x0",
        "v_lshlrev_b32 v0, 2, v0",
        "s_waitcnt lgkmcnt(0)",
    ]
    for register, size in ((4, columns), (6, results)):
        lines += [
            f"s_mul_i32 s9, {X}, {size * 4 * wave}",
            f"s_add_u32 s{register}, s{register}, s9",
            f"s_addc_u32 s{register + 1}, s{register + 1}, 0",
        ]
    for k in range(columns):
        lines += [f"v_add_nc_u32 v1, {k * 4 * wave}, v0", f"global_load_b32 v{2 + k}, v1, s[4:5]"]
    return [*lines, "s_waitcnt vmcnt(0)"]


def _operation(operation: Op, names: Sequence[str], slot: int, wave: int) -> list[str]:
    """Return the code of one operation: give the result its start, compute, store."""
    result = registers(RESULT, operation.dwords)
    lines = []
    if operation.start is not None:
        first = int(names[operation.start].strip("v[").split(":")[0])
        lines += [f"v_mov_b32 v{RESULT + k}, v{first + k}" for k in range(operation.dwords)]
    lines += [line.strip() for line in operation.text.format(*names, d=result).split(";")]
    for k in range(operation.dwords):
        lines += [
            f"v_add_nc_u32 v1, {(slot + k) * 4 * wave}, v0",
            f"global_store_b32 v1, v{RESULT + k}, s[6:7]",
        ]
    return lines


def run(executor: Executor, lines: Sequence[str], memory: Memory, **changes: Any) -> FaultReport | None:
    """Run assembly lines once."""
    wave = int(changes.get("wave", 32))
    return executor.run(dispatch(code(tuple(lines), wave), **changes), memory.space)
