"""A plan's kernels as C for the host, with the work-groups and the order of operations of the GPU's code.

tinygrad's own CPU kernels compute the same sums in another order. With half-precision storage each
difference of one rounding is amplified by the layers behind it, so that nothing could be said about a
device's results. These kernels are scheduled for the device (locals, unrolling, partial sums in local
memory), then rendered as C.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.codegen import do_to_program
from tinygrad.device import Device, TinyELF
from tinygrad.dtype import AddrSpace, DType, dtypes
from tinygrad.helpers import Target
from tinygrad.renderer import Renderer
from tinygrad.renderer.cstyle import ClangRenderer
from tinygrad.uop.ops import Ops, UOp

from ringfence.compile.numerics import IN_ORDER
from ringfence.compile.workgroups import fill_groups
from ringfence.errors import CompileError

LOCAL_ALIGNMENT = 16


def _in_order(symbol: str) -> Callable[[str, str, DType], str]:
    """Return a renderer of sums or products that C evaluates as they are nested.

    tinygrad's C renderer strips the parentheses of nested sums and products (``(a+(b+c))`` becomes
    ``(a+b+c)``), which it recognises by their first character. ``__fp16`` would be rounded only when it is
    stored.
    """
    return lambda a, b, dtype: (
        f"((__fp16)({a}{symbol}{b}))" if dtype == dtypes.half else f" +({a}{symbol}{b})"
    )


def _by_reciprocal(a: str, b: str, dtype: DType) -> str:
    """Return a quotient as ir3 computes it, which has no division."""
    return f" +({a}*(1/{b}))" if dtype == dtypes.float else f"({a}/{b})"


class GroupRenderer(ClangRenderer):  # type: ignore[misc]
    """tinygrad's C renderer for kernels with work-groups.

    The kernel becomes an inline function of group id, local id and local memory, and its entry loops over
    both. A barrier is what separates passes: with n barriers all work-items of a group run n + 1 times
    over the same local memory. A pass repeats the earlier ones with the same results, for no kernel reads
    what it writes to global memory, and what it reads too early it computes again in the next pass.
    """

    has_local = True
    has_threads = False
    global_max: tuple[int, ...] | None = None  # a property of the CPU's renderer; this one has the device's
    kernel_typedef = "static inline __attribute__((always_inline)) void"
    extra_args = ["const int* gid", "const int* lid", "char* local"]
    barrier = ";"
    extra_matcher = ClangRenderer.extra_matcher + IN_ORDER
    code_for_op = {
        **ClangRenderer.code_for_op,
        Ops.ADD: _in_order("+"),
        Ops.MUL: _in_order("*"),
        Ops.FDIV: _by_reciprocal,
    }
    code_for_workitem = {"g": lambda axis: f"gid[{axis}]", "l": lambda axis: f"lid[{axis}]"}

    def __init__(self, host: Target, device: Renderer) -> None:
        super().__init__(host)
        # The device's options steer the scheduling; its name would make it address images.
        self.target = Target("CPU", "CLANG", device.target.arch)
        self.global_max, self.local_max, self.shared_max = (
            device.global_max,
            device.local_max,
            device.shared_max,
        )
        self.global_prod_max = device.global_prod_max
        self._local_bytes = 0
        self._sizes: dict[str, int] = {}
        self._passes = 1

    def render(self, uops: list[UOp]) -> str:
        self._local_bytes = 0
        self._sizes = {u.arg: int(u.src[0].vmax) for u in uops if u.op is Ops.SPECIAL}
        self._passes = 1 + _count_barriers(uops)
        return str(super().render(uops))

    def render_buffer(self, x: UOp) -> str:
        if x.addrspace != AddrSpace.LOCAL:
            return str(super().render_buffer(x))
        offset = self._local_bytes
        self._local_bytes += -(-x.max_numel() * x.dtype.itemsize // LOCAL_ALIGNMENT) * LOCAL_ALIGNMENT
        kind = self._render_dtype(x.dtype)
        return f"{kind}* {self[x]} = ({kind}*)(local + {offset});"

    def _render_entry(self, function_name: str, bufs: list[tuple[str, tuple[UOp, bool]]]) -> str:
        kinds = [self._render_dtype(u.dtype, addrspace=AddrSpace.GLOBAL) for _, (u, _) in bufs]
        parameters = ", ".join(f"{kind} {name}" for kind, (name, _) in zip(kinds, bufs))
        arguments = ", ".join([*(name for name, _ in bufs), "gid", "lid", "local"])
        lines = [f"void {function_name}_groups({parameters}) {{"]
        lines.append(
            f"int gid[3], lid[3]; _Alignas({LOCAL_ALIGNMENT}) char local[{max(1, self._local_bytes)}];"
        )
        lines += [self._loop("gid", axis) for axis in (2, 1, 0)]
        lines.append(f"for (int pass = 0; pass < {self._passes}; pass++)")
        lines += [self._loop("lid", axis) for axis in (2, 1, 0)]
        return "\n".join([*lines, f"{function_name}({arguments});", "}"])

    def _loop(self, ids: str, axis: int) -> str:
        size = self._sizes.get({"gid": "gidx", "lid": "lidx"}[ids] + str(axis), 1)
        return f"for ({ids}[{axis}] = 0; {ids}[{axis}] < {size}; {ids}[{axis}]++)"


def _count_barriers(uops: list[UOp]) -> int:
    depth = count = 0
    for u in uops:
        depth += (u.op is Ops.RANGE) - (u.op is Ops.END)
        if u.op is Ops.BARRIER:
            if depth:
                raise CompileError("a kernel has a barrier inside a loop; it cannot be run on the host")
            count += 1
    return count


def host_arch() -> str:
    """Return the architecture of tinygrad's CPU device: this CPU, with all its features."""
    return str(Device["CPU"].arch)


def compile_for_host(ast: UOp, host: Target, device: Renderer) -> TinyELF:
    """Return an object whose entry takes the buffers in the order of its signature and runs the whole
    grid."""
    compiled: Any = do_to_program(fill_groups(ast, device), GroupRenderer(host, device))
    return compiled.to_elf()
