"""run_ir3: machine code without a driver, and the cache of translated programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

import ringfence.virtual
from oracle.mesa import assemble
from ringfence.errors import GpuFault, GpuHang, LaunchError
from ringfence.hardware.adreno.program import AdrenoProgram
from ringfence.virtual import run_ir3
from ringfence.virtual.isa.ir3.executor import Executor
from virtual.isa.ir3.harness import pair, words

INPUT, OUTPUT = 0x1_0000_0000, 0x2_0000_0000
CODE = """
    mov.u32u32 r1.x, c0.x
    mov.u32u32 r1.y, c0.y
    mov.u32u32 r1.z, c0.z
    mov.u32u32 r1.w, c0.w
    (rpt2)nop
    ldg.a.f32 r2.x, g[r1.x+(r0.x<<2)], 1
    (sy)mul.f r2.x, r2.x, c1.x
    (rpt2)nop
    stg.a.f32 g[r1.z+(r0.x<<2)], r2.x, 1
    end
    nop
"""
CONSTANTS = words(*pair(INPUT), *pair(OUTPUT))
FACTOR = np.float32(2.5).tobytes()


@pytest.fixture(scope="module")
def code() -> bytes:
    return assemble(CODE)


def buffers() -> tuple[dict[int, np.ndarray], np.ndarray, np.ndarray]:
    a, b = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    return {INPUT: a, OUTPUT: b}, a, b


def program(code: bytes) -> AdrenoProgram:
    return AdrenoProgram(
        name="scale", chip="a630", code=code, immediates=FACTOR, immediates_offset=16, full_registers=3,
        half_registers=0, local_id_register=0,
    )  # fmt: skip


def test_it_is_found_in_the_package_and_imported_only_when_used() -> None:
    script = """
        import sys
        import ringfence.virtual as v
        assert "numpy" not in sys.modules
        v.run_ir3
        print("numpy" in sys.modules)
    """
    command = [sys.executable, "-c", dedent(script)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"
    with pytest.raises(AttributeError, match="no attribute 'run_nothing'"):
        _ = ringfence.virtual.run_nothing


def test_bare_code_runs_on_arrays_at_gpu_addresses(executor: Executor, code: bytes) -> None:
    memory, a, b = buffers()
    statistics = run_ir3(
        code, groups=(1, 1, 1), local=(100, 1, 1), constants=CONSTANTS + FACTOR, memory=memory,
        local_id_register=0, executor=executor,
    )  # fmt: skip
    assert np.array_equal(b, a * np.float32(2.5))
    assert statistics.compilations >= 1


def test_a_program_brings_its_own_registers_and_immediates(executor: Executor, code: bytes) -> None:
    memory, a, b = buffers()
    run_ir3(
        program(code),
        groups=(1, 1, 1),
        local=(100, 1, 1),
        constants=CONSTANTS,
        memory=memory,
        executor=executor,
    )
    assert np.array_equal(b, a * np.float32(2.5))


def test_faults_and_hangs_are_raised_with_their_report(code: bytes, tmp_path: Path) -> None:
    options = {"groups": (1, 1, 1), "local": (4, 1, 1), "cache_dir": tmp_path}
    with pytest.raises(GpuFault, match="read of memory that is not mapped") as fault:
        run_ir3(program(code), constants=CONSTANTS, **options)
    assert fault.value.report.address == INPUT
    executor = Executor(cache_dir=tmp_path, hang_seconds=0.1)
    with pytest.raises(GpuHang):
        run_ir3(assemble("loop:\njump #loop\nend\n"), groups=(1, 1, 1), local=(1, 1, 1), executor=executor)
    executor.close()


def test_wrong_arguments_are_refused(code: bytes, executor: Executor) -> None:
    options = {"groups": (1, 1, 1), "local": (4, 1, 1), "executor": executor}
    with pytest.raises(LaunchError, match="4100 bytes"):
        run_ir3(code, constants=bytes(4100), **options)
    with pytest.raises(LaunchError, match="not contiguous"):
        run_ir3(code, memory={INPUT: np.zeros((4, 4))[:, ::2]}, **options)
    far = AdrenoProgram(
        name="far", chip="a630", code=code, immediates=bytes(8), immediates_offset=4092, full_registers=1,
        half_registers=0,
    )  # fmt: skip
    with pytest.raises(LaunchError, match="'far' end at byte 4100"):
        run_ir3(far, **options)


SECOND = """
import sys
from pathlib import Path
import numpy as np
from ringfence.virtual import run_ir3
code = Path(sys.argv[1]).read_bytes()
a, b = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
constants = np.array([0, 1, 0, 2], np.uint32).tobytes() + np.float32(2.5).tobytes()
cache = Path(sys.argv[2]) if len(sys.argv) > 2 else None
s = run_ir3(code, groups=(1, 1, 1), local=(100, 1, 1), constants=constants, memory={1 << 32: a, 2 << 32: b},
            local_id_register=0, cache_dir=cache)
assert np.array_equal(b, a * np.float32(2.5))
print(s.compilations, s.cache_hits)
"""


@pytest.mark.parametrize("by_environment", [True, False])
def test_a_second_process_takes_the_program_from_the_cache(
    code: bytes, tmp_path: Path, by_environment: bool
) -> None:
    (tmp_path / "code").write_bytes(code)
    command = [sys.executable, "-c", SECOND, str(tmp_path / "code")]
    environment = dict(os.environ)
    if by_environment:
        environment["RINGFENCE_CACHE"] = str(tmp_path / "cache")
    else:
        command.append(str(tmp_path / "cache"))
    printed = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert printed == ["1 0\n", "0 1\n"]
