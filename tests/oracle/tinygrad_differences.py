"""Why tests of tinygrad end differently on a virtual Adreno 630 than on its CPU device.

Each entry names tests (shell patterns over ``Class.test``) and the property of the hardware, its compiler or
tinygrad that the difference comes from.
"""

from __future__ import annotations

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
_OVERFLOW = "tinygrad skips it for every renderer that goes through NIR"

KNOWN: tuple[Known, ...] = (
    # What tinygrad itself skips on this device.
    Known("TestDoubleDType.*", "passed", "skipped", _NO_DOUBLE),
    Known("*.test_uint64_cast_double", "passed", "skipped", _NO_DOUBLE),
    Known("*.test_float64*", "passed", "skipped", _NO_DOUBLE),
    Known("*BFloat16*", "passed", "skipped", _NO_BFLOAT16),
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
    Known("TestEmulatedHalf.test_same_size_ops", "passed", "failed", _MERGED),
    Known("TestEmulatedHalf.test_upcast_to_ops", "passed", "failed", _MERGED),
)


def reason(suite: str, test: str, reference: str, virtual: str) -> str:
    """Return why a test ends as ``virtual`` instead of ``reference``, or an empty string."""
    for known in KNOWN:
        if (
            fnmatchcase(test, known.tests)
            and fnmatchcase(suite, known.suites)
            and (reference, virtual) == (known.reference, known.virtual)
        ):
            return known.reason
    return ""
