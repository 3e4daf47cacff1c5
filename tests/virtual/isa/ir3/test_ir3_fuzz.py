"""Flipped bits: whatever the code says, it runs, faults or is refused, and the process lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from tinygrad import Tensor

from oracle.mesa import assemble, compile_kernels
from ringfence.hardware.adreno.descriptors import Format, Sampler, Texture
from ringfence.virtual.isa.ir3.dispatch import Dispatch, UniformBuffer
from ringfence.virtual.isa.ir3.executor import Executor
from virtual.isa.ir3.harness import Memory, pair, program, words

FLIPS = 300
KINDS = {"memory", "hang", "illegal instruction", "bad state"}

HANDMADE = """
    shl.b r3.x, r0.x, 2
    mov.u32u32 r1.x, c0.x
    mov.u32u32 r1.y, c0.y
    mova a0.x, hr0.x
    (rpt2)nop
    add.u r1.x, r1.x, r3.x
    (rpt2)nop
    ldg.u32 r2.x, g[r1.x], 2
    stl.u32 l[r3.x], r0.x, 1
    bar.l
    (sy)(ss)cmps.u.lt p0.x, r0.x, 9
    ldl.u32 r2.z, l[r3.x], 1
    mov.u32u32 r4.x, r<a0.x + 8>
    (rpt2)nop
    predt
    (ss)add.u r2.x, r2.z, r2.y
    predf
    mad.f32 r2.x, r2.x, r2.y, r2.x
    prede
    isam (f32)(xyzw)r5.x, r2.x, s#0, t#0
    ldc.offset0.2.imm r6.x, 1, 0
    (sy)(ss)br p0.x, #over
    nop
    rcp r2.x, r2.x
    call #sub
    over:
    (jp)(ss)stib.b.typed.2d.f32.4.imm r5.x, r2.x, 0
    atomic.g.add.untyped.1d.u32.1.g r4.z, r1.x, r2.x
    stp.u32 p[r3.y], r2.x, 1
    stg.u32 g[r1.x], r2.x, 2
    end
    sub:
    (jp)add.u r7.x, r7.x, 1
    ret
"""

WAVES = """
    getone #join
    mov.u32u32 r2.x, 7
    stc.u32 c[4], r2.x, 1
    join:
    (jp)(ss)shfl.xor.u32 r4.y, r0.x, 3
    movmsk.w64 r4.z
    (ss)mov.u32u32 r50.x, c1.x
    (ss)add.u r4.x, r50.x, r4.y
"""


@pytest.fixture(scope="module")
def corpus() -> list[bytes]:
    """Return small programs: one made by hand, the others by Mesa's compiler."""
    kernels = [
        *compile_kernels(lambda: Tensor.empty(16, 16) @ Tensor.empty(16, 16)),
        *compile_kernels(lambda: Tensor.empty(4, 33).softmax()),
        *compile_kernels(lambda: Tensor.empty(64).exp2().cast("half")),
    ]
    return [assemble(program(HANDMADE)), assemble(program(WAVES)), *(kernel.code for kernel in kernels)]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    executor = Executor(cache_dir=tmp_path_factory.mktemp("cache"), threads=2, hang_seconds=0.1)
    yield executor
    executor.close()


def _flipped(code: bytes, bit: int) -> bytes:
    changed = bytearray(code)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def _length(code: bytes) -> int:
    """Return the bytes up to the last instruction that is not a nop."""
    stripped = code.rstrip(b"\0")
    return -(-len(stripped) // 8) * 8


@pytest.mark.parametrize("strict", [True, False])
def test_programs_with_a_flipped_bit_run_fault_or_are_refused(
    fuzzed: Executor, corpus: list[bytes], strict: bool
) -> None:
    rng = np.random.default_rng(11 + strict)
    memory = Memory()
    buffers = [memory.add(np.ones(4096, np.uint32)) for _ in range(3)]
    image = Texture(buffers[0], 16, 16, 0, 256, Format._32_32_32_32_FLOAT)
    base = Dispatch(
        name="flipped", code=corpus[0], groups=(2, 1, 1), local=(32, 1, 1),
        constants=words(*(w for address in buffers for w in pair(address))) * 16,
        local_id_register=0, workgroup_id_register=0xC0, shared_bytes=128, private_bytes=64,
        textures=(image,), uavs=(image,), samplers=(Sampler(),), ubos=(UniformBuffer(buffers[1], 16),),
    )  # fmt: skip
    dispatches = []
    for k in range(FLIPS // 2):
        code = corpus[k % len(corpus)]
        dispatches.append(replace(base, code=_flipped(code, int(rng.integers(0, 8 * _length(code))))))
    fuzzed.strict = strict
    fuzzed.prepare(dispatches)
    outcomes: Counter[str] = Counter()
    for dispatch in dispatches:
        report = fuzzed.run(dispatch, memory.space)
        outcomes["ran" if report is None else report.kind] += 1
    assert set(outcomes) <= KINDS | {"ran"}, outcomes
    assert outcomes["ran"] > FLIPS // 20 and outcomes["illegal instruction"] > FLIPS // 20, outcomes
