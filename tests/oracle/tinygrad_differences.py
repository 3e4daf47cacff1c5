"""Why tests of tinygrad end differently on a virtual GPU than on a device of tinygrad.

:data:`KNOWN` is about the Adreno 630 and tinygrad's CPU device, :data:`KNOWN_AMD` about the gfx1100 and
tinygrad's mock of one (``test_ops.py``: its CPU device).

Each entry names tests (shell patterns over ``Class.test``) and the property of the hardware, its compiler or
tinygrad that the difference comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Known:
    """Tests whose outcome changes from ``reference`` to ``virtual`` because of ``reason``."""

    tests: str
    reference: str
    virtual: str
    reason: str
    suites: str = "*"


_NO_DOUBLE = "an a630 has no 64-bit floats"
_NO_BFLOAT16 = "an a630 has no bfloat16"
_SINE = (
    "Mesa reduces the argument of sin in 32 bits (x/2pi, minus its floor), in the machine code: at 1e6 one "
    "step of x/2pi is 0.1 in the angle. The test excuses NVIDIA's NAK renderer for its inaccurate sine"
)
_MERGED = (
    "a miscompile: Mesa lets a 32-bit register's low half stand for a 16-bit one, which takes MERGEDREGS, "
    "and tinygrad neither compiles nor runs with that. The program reads a half register that nothing wrote"
)
_SPLIT = (
    "which kernels and copies share a graph depends on the device; tinygrad tests each kind of device apart"
)
_ONE_DEVICE = "it copies to a second device, and tinygrad's QCOM allocator cannot map another one's memory"
_OVERFLOW = "tinygrad skips it for every renderer that goes through NIR"

KNOWN: tuple[Known, ...] = (
    # What tinygrad itself skips on this device.
    Known("TestDoubleDType.*", "passed", "skipped", _NO_DOUBLE),
    Known("*.test_uint64_cast_double", "passed", "skipped", _NO_DOUBLE),
    Known("*.test_float64*", "passed", "skipped", _NO_DOUBLE),
    Known("*BFloat16*", "passed", "skipped", _NO_BFLOAT16),
    Known("TestDTypeALU.test_bfloat16*", "passed", "skipped", _NO_BFLOAT16),
    Known("TestJit.test_jitted_transfers", "passed", "skipped", _ONE_DEVICE),
    Known("TestJit.test_jitted_view", "passed", "skipped", _ONE_DEVICE),
    Known("TestJit.test_jit_batch_split", "skipped", "passed", _SPLIT),
    Known("*.test_uint_overflow", "passed", "skipped", _OVERFLOW),
    Known("TestOps.test_pow_const_direct", "passed", "skipped", _OVERFLOW),
    Known(
        "TestOps.test_masked_select",
        "passed",
        "skipped",
        "tinygrad skips it on QCOM, where the GPU hung (EDEADLK)",
    ),
    Known(
        "TestJit.test_hcq_core_id_runtimevar_merge",
        "passed",
        "skipped",
        "it tests threads of the CPU device",
    ),
    Known("TestJitGraphSplit.*", "skipped", "passed", _SPLIT),
    Known("TestJitGraphSplit.*", "passed", "skipped", _SPLIT),
    # What the hardware or its compiler computes differently.
    Known("TestOps.test_sin", "passed", "failed", _SINE),
    Known("TestOps.test_cos", "passed", "failed", _SINE),
    Known("TestOps.test_tan", "passed", "failed", _SINE),
    Known(
        "TestOps.test_gemm_fp16",
        "passed",
        "failed",
        "mul.f of half registers rounds each product to half; clang keeps products of _Float16 in float, and "
        "the test's tolerance of 5e-3 for sums of 64 products needs that",
    ),
    Known(
        "TestDTypeALU.test_int32_midcast_float",
        "passed",
        "failed",
        "Mesa converts integers to float with ROUND 0, toward zero; the test allows less than one unit in "
        "the last place, beyond 2^24 too",
    ),
    Known(
        "TestDTypeALU.test_float16_unary",
        "passed",
        "failed",
        "Mesa converts float to half with ROUND 0, toward zero: exp(12) becomes 65504, not infinity "
        "(hypothesis does not find that in every run)",
    ),
    Known(
        "TestHalfDType.test_casts_to",
        "passed",
        "failed",
        "Mesa converts integers to half with ROUND 0, toward zero: one that is too large becomes 65504, not "
        "infinity",
    ),
    Known("TestEmulatedHalf.test_same_size_ops", "passed", "failed", _MERGED),
    Known("TestEmulatedHalf.test_upcast_to_ops", "passed", "failed", _MERGED),
)


_NO_COPY_QUEUE = "the virtual gfx1100 has no copy engines, and tinygrad skips what tests them"

KNOWN_AMD: tuple[Known, ...] = (
    *(
        Known(f"TestHCQ.{test}", "passed", "skipped", _NO_COPY_QUEUE)
        for test in (
            "test_copy",
            "test_copy_long",
            "test_map_cpu_buffer_to_device",
            "test_memory_barrier_before_copy",
            "test_multidevice_signal_wait",
            "test_small_copies_from_host_buf*",
            "test_speed_copy_bandwidth",
            "test_speed_cross_device_copy_bandwidth",
            "test_update_copy",
            "test_update_copy_long",
        )
    ),
    Known(
        "TestHCQ.test_on_device_hang",
        "passed",
        "skipped",
        "it sets the address of a fault by a variable of the mock, and is skipped elsewhere",
    ),
    Known(
        "TestHCQ.test_speed_exec_time",
        "passed",
        "failed",
        "a program takes what the host's CPUs take; the test allows the mock that, and GPUs 100 microseconds",
    ),
    Known(
        "TestOps.test_div_rounding_mode",
        "passed",
        "skipped",
        "tinygrad skips it on AMD:LLVM, where a division becomes a multiplication with a rounded reciprocal",
    ),
    Known(
        "TestHCQ2.test_staged_copy_slot_reuse",
        "skipped",
        "passed",
        "it is about copies to and from a GPU, and is skipped on the CPU device",
    ),
)


def reason(suite: str, test: str, reference: str, virtual: str, differences: Sequence[Known] = KNOWN) -> str:
    """Return why a test ends as ``virtual`` instead of ``reference``, or an empty string."""
    for known in differences:
        if (
            fnmatchcase(test, known.tests)
            and fnmatchcase(suite, known.suites)
            and (reference, virtual) == (known.reference, known.virtual)
        ):
            return known.reason
    return ""
