"""Runs a few lines of ir3 assembly on every row of some arrays.

The assembler is Mesa's. A row is a fiber: it finds its inputs in the registers that the test names, and
what it leaves in others is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from oracle.mesa import assemble
from ringfence.errors import FaultReport
from ringfence.virtual.isa.ir3.dispatch import Dispatch
from ringfence.virtual.isa.ir3.executor import Executor
from ringfence.virtual.memory import AddressSpace

Array = npt.NDArray[Any]
F = TypeVar("F", bound=Callable[..., Any])

BASE = 0x1_0000_0000
STEP = 0x100_0000  # between the arrays of a run
TABLE = 800  # constant word at which the harness keeps addresses: c200.x
LOCAL_ID, WORKGROUP_ID = 0, 0xC0  # r0.x, r48.x
INDEX, ADDRESS = "r47.z", "r47.x"  # the number of the row; a pair of registers for addresses

COVERED: dict[str, set[str]] = {}
"""Instruction -> the tests that check what it does."""


def covers(*names: str) -> Callable[[F], F]:
    """Record that the decorated test checks the semantics of the instructions ``names``."""

    def record(test: F) -> F:
        for name in names:
            COVERED.setdefault(name, set()).add(f"{test.__module__}.{test.__qualname__}")
        return test

    return record


class Memory:
    """Arrays at GPU addresses. Each is followed by unmapped memory."""

    def __init__(self) -> None:
        self.space = AddressSpace()
        self._next = BASE
        self._keep: list[Array] = []

    def add(self, array: Array, *, writable: bool = True, label: str = "array") -> int:
        """Map ``array``, which programs then read and write in place, and return its GPU address."""
        assert array.flags.c_contiguous
        address, self._next = self._next, self._next + max(STEP, array.nbytes + STEP)
        self.space.map(address, array.nbytes, array.ctypes.data, writable=writable, label=label)
        self._keep.append(array)
        return address


def words(*values: int) -> bytes:
    """Return 32-bit constants."""
    return np.array([value & 0xFFFFFFFF for value in values], np.uint32).tobytes()


def pair(address: int) -> tuple[int, int]:
    """Return an address as two constants."""
    return address & 0xFFFFFFFF, address >> 32


def is_half(register: str) -> bool:
    return register.startswith("h")


def _loads(inputs: Mapping[str, Array], slots: Mapping[str, int]) -> list[str]:
    lines = []
    for name in inputs:
        slot, kind = slots[name], "u16" if is_half(name) else "u32"
        lines += _address(slot)
        lines.append(f"ldg.a.{kind} {name}, g[{ADDRESS}+({INDEX}<<{1 if is_half(name) else 2})], 1")
    return lines


def _address(slot: int) -> list[str]:
    word = TABLE + 2 * slot
    names = [f"c{w >> 2}.{'xyzw'[w & 3]}" for w in (word, word + 1)]
    return [f"(sy)mov.u32u32 r47.x, {names[0]}", f"mov.u32u32 r47.y, {names[1]}"]


def _stores(outputs: Sequence[str], slots: Mapping[str, int]) -> list[str]:
    lines = ["(sy)(ss)nop"]
    for name in outputs:
        kind, shift = ("u16", 1) if is_half(name) else ("u32", 2)
        lines += _address(slots[f"out {name}"])
        lines.append(f"stg.a.{kind} g[{ADDRESS}+({INDEX}<<{shift})], {name}, 1")
    return lines


def _index(rows: int) -> list[str]:
    """Return code that computes the number of the row: group * rows of a group + linear id (r46.x)."""
    return [
        f"mov.u32u32 r47.w, {rows}",
        "mull.u r47.z, r48.x, r47.w",
        "(rpt2)nop",
        f"add.u {INDEX}, {INDEX}, r46.x",
        "(rpt2)nop",
    ]


class Rows:
    """Runs bodies of code on rows. Registers from r46.x on and r48.x belong to the harness."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def __call__(
        self,
        body: str,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        constants: bytes = b"",
        local: tuple[int, int, int] | None = None,
        groups: int = 1,
        memory: Memory | None = None,
        **fields: Any,
    ) -> dict[str, Array]:
        """Return what the registers ``outputs`` hold after ``body`` ran with ``inputs`` in registers."""
        report, results = self.attempt(
            body, inputs, outputs, constants=constants, local=local, groups=groups, memory=memory, **fields
        )
        assert report is None, str(report)
        return results

    def attempt(
        self,
        body: str,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        constants: bytes = b"",
        local: tuple[int, int, int] | None = None,
        groups: int = 1,
        memory: Memory | None = None,
        **fields: Any,
    ) -> tuple[FaultReport | None, dict[str, Array]]:
        """Return the fault report, if there is one, and the results."""
        memory = memory or Memory()
        rows = len(next(iter(inputs.values()))) if inputs else int(np.prod(local or (64, 1, 1))) * groups
        local = local or (rows // groups, 1, 1)
        kept: dict[str, Array] = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
        results = {name: np.zeros(rows, np.uint16 if is_half(name) else np.uint32) for name in outputs}
        arrays = list(kept.values()) + list(results.values())
        slots = {name: k for k, name in enumerate([*kept, *(f"out {name}" for name in outputs)])}
        file = np.zeros(1024, np.uint32)
        file.view(np.uint8)[: len(constants)] = np.frombuffer(constants, np.uint8)
        for k, array in enumerate(arrays):
            file[TABLE + 2 * k : TABLE + 2 * k + 2] = pair(memory.add(array))
        code = assemble(
            program(_index(int(np.prod(local))), _loads(kept, slots), body, _stores(outputs, slots))
        )
        defaults: dict[str, Any] = {
            "local_id_register": LOCAL_ID,
            "linear_id_register": 46 << 2,
            "workgroup_id_register": WORKGROUP_ID,
        }
        dispatch = Dispatch(
            name="rows",
            code=code,
            groups=(groups, 1, 1),
            local=local,
            constants=file.tobytes(),
            **{**defaults, **fields},
        )
        return self.executor.run(dispatch, memory.space), results


def program(*parts: str | Sequence[str]) -> str:
    """Return lines of assembly that end the program."""
    lines: list[str] = []
    for part in parts:
        lines += part.strip().splitlines() if isinstance(part, str) else part
    code = [line.strip() for line in lines if line.strip()]
    return "\n".join([*code, "end", "nop", "nop", "nop", "nop", ""])


# --- values that find mistakes ---

FLOATS32 = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.5, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754942e-38,
     1.17549435e-38, 3.4028235e38, -3.4028235e38, 65504.0, 65519.996, 65520.0, 2.0**24, 2.0**24 + 2, 2.0**31,
     -(2.0**31), 2.0**32, 0.1, -0.1, 6.1035156e-05, 5.9604645e-08, 2.9802322e-08, 2049.0, 1e10, -1e10],
    np.float32)  # fmt: skip
FLOATS16 = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 6e-8, -6e-8, 6.1e-05, 65504.0,
     -65504.0, 2048.0, 2047.0, 0.1, 0.333, 1024.5, -3.5], np.float16)  # fmt: skip
INTEGERS32 = np.array(
    [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x123456,
     0x7FFFFF, 0x800000, 0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF,
     0xDEADBEEF, 0x55555555, 0xAAAAAAAA], np.uint32)  # fmt: skip
INTEGERS16 = np.array(
    [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0x8001, 0xFFFE, 0xFFFF,
     0xBEEF, 0x5555, 0xAAAA], np.uint16)  # fmt: skip


def crossed(special: Array, operands: int, seed: int = 0, rows: int = 1024) -> list[Array]:
    """Return ``operands`` columns: combinations of special values (pairs of them all), then random bits."""
    rng = np.random.default_rng(seed)
    bits = special.view(np.dtype(f"u{special.itemsize}"))
    if operands == 1:
        columns = [bits]
    else:
        grid = np.stack(np.meshgrid(bits, bits), -1).reshape(-1, 2)
        grid = grid[rng.permutation(len(grid))[: rows * 3 // 4]]
        columns = [grid[:, 0], grid[:, 1]] + [rng.choice(bits, len(grid)) for _ in range(operands - 2)]
    random = rng.integers(0, 1 << 8 * bits.itemsize, (operands, rows - len(columns[0])), dtype=np.uint64)
    joined = [np.concatenate([a, b.astype(bits.dtype)]) for a, b in zip(columns, random, strict=True)]
    return [np.ascontiguousarray(column) for column in joined]


def same_floats(actual: Array, expected: Array) -> None:
    """Assert equal bits, except that any NaN equals any other and that signs of zeros count."""
    a, b = actual.view(expected.dtype), expected
    nan = np.isnan(b)
    assert np.array_equal(np.isnan(a), nan)
    kind = f"u{b.itemsize}"
    wrong = (a.view(kind) != b.view(kind)) & ~nan
    assert not wrong.any(), [(i, a[i], b[i]) for i in np.flatnonzero(wrong)[:5]]


def same(actual: Array, expected: Array) -> None:
    """Assert equal integers; the message names the first rows that differ."""
    expected = np.asarray(expected)
    wrong = np.flatnonzero(actual != expected.astype(actual.dtype))
    assert not len(wrong), [(int(i), hex(int(actual[i])), hex(int(expected[i]))) for i in wrong[:5]]
