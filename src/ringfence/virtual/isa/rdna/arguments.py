"""The argument block of a kernel: what a launcher writes where ``kernarg_address`` points to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ringfence.errors import LaunchError
from ringfence.hardware.amd.metadata import Argument, ArgumentKind, KernelMetadata

Size = tuple[int, int, int]
DIMENSIONS = 3


def hidden_argument(kind: ArgumentKind, groups: Size, local: Size) -> int:
    """Return the value of an argument that the launcher fills in.

    Sizes and counts are those of the launch; remainders, offsets, and what would need a queue or a host
    service (printf, the heap) are 0. Kinds: LLVM AMDGPUUsage, "Code Object V5 Metadata".
    """
    name = kind.value.removeprefix("hidden_")
    if name == "grid_dims":
        return DIMENSIONS
    for prefix, sizes in (("block_count_", groups), ("group_size_", local)):
        if name.startswith(prefix):
            return sizes["xyz".index(name[-1])]
    return 0


def argument_block(
    kernel: KernelMetadata, values: Sequence[bytes], groups: Size, local: Size
) -> npt.NDArray[np.uint8]:
    """Return the bytes of the arguments: explicit ones as given, hidden ones for the launch.

    Raises :class:`LaunchError` if the number or the sizes of ``values`` are not those of the kernel.
    """
    explicit = [argument for argument in kernel.args if not argument.value_kind.hidden]
    if len(values) != len(explicit):
        raise LaunchError(f"kernel {kernel.name} takes {len(explicit)} arguments, {len(values)} were given")
    block = np.zeros(kernel.kernarg_segment_size, np.uint8)
    for argument, data in zip(explicit, values, strict=True):
        if len(data) != argument.size:
            raise LaunchError(
                f"argument {argument.name or 'at byte ' + str(argument.offset)} of kernel {kernel.name} has "
                f"{argument.size} bytes, {len(data)} were given"
            )
        _place(block, argument, data)
    for argument in kernel.args:
        if argument.value_kind.hidden:
            value = hidden_argument(argument.value_kind, groups, local)
            _place(block, argument, value.to_bytes(argument.size, "little"))
    return block


def _place(block: npt.NDArray[np.uint8], argument: Argument, data: bytes) -> None:
    block[argument.offset : argument.offset + argument.size] = np.frombuffer(data, np.uint8)
