"""Code objects for the tests, compiled once."""

from __future__ import annotations

import functools
from dataclasses import replace

import msgspec

from ringfence.compile.opencl import compile_opencl
from ringfence.hardware.amd.code_object import CodeObject, load_code_object

SCALE = """
kernel void scale(global float* y, global const float* x, float a, uint n) {
  uint i = get_global_id(0);
  if (i < n) y[i] = a * x[i];
}
"""
# Private memory of BYTES per work-item, indexed by what the compiler cannot know.
PRIVATE = """
kernel void spill(global uint* y, uint n) {
  uint i = get_global_id(0);
  volatile uint stack[WORDS];
  for (uint k = 0; k < WORDS; k++) stack[k] = i * 3u + k;
  y[i] = stack[(i * 7u + n) % WORDS];
}
"""
LOCAL = """
kernel void reverse(global uint* y) {
  local uint shared[WORDS];
  uint i = get_local_id(0);
  shared[i] = i + get_group_id(0) * 1000u;
  barrier(CLK_LOCAL_MEM_FENCE);
  y[get_global_id(0)] = shared[get_local_size(0) - 1 - i];
}
"""
# Two pointers to local memory besides memory of the kernel's own.
LOCAL_POINTERS = """
kernel void rotate(global uint* y, local uchar* bytes, uint n, local ulong* words) {
  local uint own[32];
  uint i = get_local_id(0), size = get_local_size(0);
  own[i] = i;
  bytes[i] = (uchar)(i * 3u);
  words[i] = (ulong)i << 33;
  barrier(CLK_LOCAL_MEM_FENCE);
  uint j = (i + n) % size;
  y[get_global_id(0)] = own[j] + bytes[j] * 1000u + (uint)(words[j] >> 33) * 1000000u;
}
"""
# A variable of the program, which is there as long as its code; and a table that is only read.
VARIABLE = """
global uint counter = 5;
constant uint steps[2] = {1, 100};
kernel void bump(uint n) { if (get_global_id(0) == 0) counter += steps[n]; }
kernel void get(global uint* y) { y[get_global_id(0)] = counter; }
"""
FUNCTIONS = """
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
typedef uint (*F)(uint);
uint one_more(uint x) { return x + 1u; }
uint twice(uint x) { return x * 2u; }
uint less(uint x) { return x - 3u; }
uint squared(uint x) { return x * x; }
constant F table[4] = {one_more, twice, less, squared};
kernel void choose(global uint* y, global const uint* which) {
  uint i = get_global_id(0);
  y[i] = table[which[i] & 3u](i + get_local_id(0));
}
"""


@functools.lru_cache(None)
def build(source: str, arch: str = "gfx1100", options: tuple[str, ...] = (), **defines: int) -> bytes:
    return compile_opencl(source, arch=arch, defines=defines, options=options)


def untyped(source: str) -> CodeObject:
    """Return a code object with one kernel, as compilers of other languages write it: without types."""
    loaded = load_code_object(build(source))
    kernel = loaded.kernel()
    assert kernel.metadata is not None
    args = tuple(msgspec.structs.replace(each, type_name=None) for each in kernel.metadata.args)
    metadata = msgspec.structs.replace(kernel.metadata, args=args)
    return replace(loaded, kernels={kernel.name: replace(kernel, metadata=metadata)})
