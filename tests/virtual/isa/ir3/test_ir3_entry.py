"""Programs that do not start at their first instruction."""

from __future__ import annotations

import numpy as np
import pytest
from harness import BASE, Array, pair, words

from oracle.mesa import assemble
from ringfence.errors import GpuFault
from ringfence.virtual.isa.ir3.executor import Executor
from ringfence.virtual.isa.ir3.run import run_ir3

KERNEL = """
    square:
    mull.u r1.x, r1.x, r1.x
    (rpt2)nop
    ret
    start:
    (jp)mov.u32u32 r2.x, c0.x
    mov.u32u32 r2.y, c0.y
    mov.u32u32 r1.x, r0.x
    call #square
    {barrier}
    add.u r1.x, r1.x, 1
    (rpt2)nop
    stg.a.u32 g[r2.x+(r0.x<<2)], r1.x, 1
    end
"""
START = 3


def run(executor: Executor, code: bytes, entry: int, count: int = 100) -> Array:
    out = np.zeros(count, np.uint32)
    constants = words(*pair(BASE))
    local = (count, 1, 1)
    run_ir3(
        code,
        groups=(1, 1, 1),
        local=local,
        constants=constants,
        memory={BASE: out},
        executor=executor,
        entry=entry,
        local_id_register=0,
    )
    return out


@pytest.mark.parametrize("barrier", ["nop", "bar.g"], ids=["straight", "barrier"])
def test_control_starts_at_the_entry(executor: Executor, barrier: str) -> None:
    out = run(executor, assemble(KERNEL.format(barrier=barrier)), START)
    np.testing.assert_array_equal(out, np.arange(100, dtype=np.uint32) ** 2 + 1)


def test_lanes_that_diverge_before_a_call_meet_again(executor: Executor) -> None:
    kernel = KERNEL.replace(
        "call #square", "cmps.u.lt p0.x, r0.x, 50\n(rpt5)nop\nbr p0.x, #skip\ncall #square\nskip:\n(jp)nop"
    )
    lane = np.arange(100, dtype=np.uint32)
    out = run(executor, assemble(kernel.format(barrier="nop")), START)
    np.testing.assert_array_equal(out, np.where(lane < 50, lane, lane**2) + 1)


def test_what_is_before_the_entry_and_not_reached_is_never_decoded(executor: Executor) -> None:
    code = (0xFFFFFFFFFFFFFFFF).to_bytes(8, "little") + assemble(KERNEL.format(barrier="nop"))
    assert run(executor, code, 1 + START)[7] == 50


def test_the_entry_of_a_function_is_a_return_without_call(executor: Executor) -> None:
    with pytest.raises(GpuFault, match="return without call"):
        run(executor, assemble(KERNEL.format(barrier="nop")), 0)
