"""tinygrad's data types by their numpy names."""

from __future__ import annotations

from typing import Any

from tinygrad import dtypes

from ringfence.errors import CompileError


def numpy_name(dtype: Any) -> str:
    """Return numpy's name of a tinygrad dtype; :class:`CompileError` if numpy has none (bfloat16, fp8)."""
    names = {
        dtypes.bool: "bool", dtypes.float: "float32", dtypes.half: "float16", dtypes.double: "float64",
        dtypes.char: "int8", dtypes.short: "int16", dtypes.int: "int32", dtypes.long: "int64",
        dtypes.uchar: "uint8", dtypes.ushort: "uint16", dtypes.uint: "uint32", dtypes.ulong: "uint64",
    }  # fmt: skip
    if dtype not in names:
        raise CompileError(f"tensors of type {dtype} cannot be passed in or out")
    return names[dtype]
