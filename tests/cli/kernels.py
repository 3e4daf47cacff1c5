"""Kernels in OpenCL C for the tests of the command line, compiled once."""

from __future__ import annotations

import functools

from ringfence.compile.opencl import compile_llvm_ir, compile_opencl

SAXPY = """
kernel void saxpy(global float *y, global const float *x, float a, uint n) {
  uint i = get_global_id(0);
  if (i < n) y[i] = a * x[i] + y[i];
}
"""
OTHERS = """
kernel void twice(global float *y) { y[get_global_id(0)] *= 2; }
__attribute__((reqd_work_group_size(8, 4, 1)))
kernel void fixed(global int *y) { y[get_global_id(1) * get_global_size(0) + get_global_id(0)] = SIZE; }
kernel void stray(global uint *y) { y[get_global_id(0) + 100000000u] = 1; }
kernel void pieces(global float4 *y, char small, ulong large, half h, float2 pair) {
  y[0] = (float4)(small, large, pair.x, pair.y);
  y[1] = (float4)((float)h);
}
kernel void reverse(global uint *y) {
  local uint shared[64];
  uint i = get_local_id(0);
  shared[i] = y[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  y[i] = shared[get_local_size(0) - 1 - i];
}
kernel void backwards(local uint *t, global uint *y) {
  uint i = get_local_id(0);
  t[i] = y[i];
  barrier(CLK_LOCAL_MEM_FENCE);
  y[i] = t[get_local_size(0) - 1 - i];
}
kernel void sampled(sampler_t s, global float *y) {
  y[1] = 2.0f;
}
"""


@functools.cache
def saxpy() -> bytes:
    """A code object with one kernel."""
    return compile_opencl(SAXPY)


@functools.cache
def several() -> bytes:
    """A code object with several kernels."""
    return compile_opencl(SAXPY + OTHERS, defines={"SIZE": 32})


# As other compilers than that of OpenCL C leave it: the metadata has no types.
_UNTYPED = """
define amdgpu_kernel void @untyped(ptr addrspace(1) %y, float %a, i32 %n) {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %f = uitofp i32 %n to float
  %v = fmul float %a, %f
  %p = getelementptr float, ptr addrspace(1) %y, i32 %i
  store float %v, ptr addrspace(1) %p
  ret void
}
declare i32 @llvm.amdgcn.workitem.id.x()
"""


@functools.cache
def untyped() -> bytes:
    """A code object with one kernel that says nothing of its arguments but their sizes."""
    return compile_llvm_ir(_UNTYPED, passes=True)
