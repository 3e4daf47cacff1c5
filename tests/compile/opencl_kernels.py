"""OpenCL C kernels that cover what compilers make of the language, and what the code of each must contain."""

from __future__ import annotations

MATMUL_NAIVE = """
__kernel void matmul(__global const float *a, __global const float *b, __global float *c, int n) {
  int row = get_global_id(1), column = get_global_id(0);
  float sum = 0;
  for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}
"""

MATMUL_TILED = """
#define TILE 16
__attribute__((reqd_work_group_size(TILE, TILE, 1)))
__kernel void matmul(__global const float *a, __global const float *b, __global float *c, int n) {
  __local float ta[TILE][TILE], tb[TILE][TILE];
  int x = get_local_id(0), y = get_local_id(1);
  int column = get_global_id(0), row = get_global_id(1);
  float sum = 0;
  for (int t = 0; t < n; t += TILE) {
    ta[y][x] = a[row * n + t + x];
    tb[y][x] = b[(t + y) * n + column];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < TILE; k++) sum += ta[y][k] * tb[k][x];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  c[row * n + column] = sum;
}
"""

MATMUL_BLOCKED = """
#define TILE 64
#define WORK 8
__attribute__((reqd_work_group_size(TILE / WORK, TILE / WORK, 1)))
__kernel void matmul(__global const float *a, __global const float *b, __global float *c, int n) {
  __local float ta[8][TILE], tb[8][TILE];
  int x = get_local_id(0), y = get_local_id(1), id = y * (TILE / WORK) + x;
  int row = get_group_id(1) * TILE, column = get_group_id(0) * TILE;
  float sum[WORK][WORK] = {};
  for (int t = 0; t < n; t += 8) {
    for (int k = 0; k < 8; k++) {
      ta[k][id] = a[(row + id) * n + t + k];
      tb[k][id] = b[(t + k) * n + column + id];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < 8; k++) {
      float8 fa = vload8(y, ta[k]), fb = vload8(x, tb[k]);
      for (int i = 0; i < WORK; i++)
        for (int j = 0; j < WORK; j++) sum[i][j] = fma(fa[i], fb[j], sum[i][j]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  for (int i = 0; i < WORK; i++)
    for (int j = 0; j < WORK; j++) c[(row + y * WORK + i) * n + column + x * WORK + j] = sum[i][j];
}
"""

# One wave for each 16 x 16 tile of C; A is row-major, B column-major.
MATMUL_WMMA = """
__attribute__((reqd_work_group_size(32, 1, 1)))
__kernel void matmul(__global const half *a, __global const half *b, __global float *c, int n) {
  int lane = get_local_id(0), l = lane & 15;
  int row = get_group_id(1) * 16, column = get_group_id(0) * 16;
  float8 sum = 0;
  for (int k = 0; k < n; k += 16) {
    half16 fa = vload16(0, a + (row + l) * n + k), fb = vload16(0, b + (column + l) * n + k);
    sum = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(fa, fb, sum);
  }
  for (int v = 0; v < 8; v++) c[(row + 2 * v + (lane >> 4)) * n + column + l] = sum[v];
}
"""

# A barrier that groups reach different numbers of times.
BARRIER_LOOP = """
__kernel void scan(__global int *data, __global const int *rounds) {
  __local int shared[256];
  int i = get_local_id(0), n = rounds[get_group_id(0)];
  shared[i] = data[get_global_id(0)];
  for (int r = 0; r < n; r++) {
    barrier(CLK_LOCAL_MEM_FENCE);
    int other = shared[(i + 1) % get_local_size(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i & 1) shared[i] += other;
    else shared[i] -= other;
  }
  data[get_global_id(0)] = shared[i];
}
"""

ATOMICS = """
__kernel void histogram(__global const uchar *data, volatile __global uint *bins, volatile __global int *low,
                        volatile __global long *total, atomic_int __global *seen) {
  __local uint mine[256];
  for (int k = get_local_id(0); k < 256; k += get_local_size(0)) mine[k] = 0;
  barrier(CLK_LOCAL_MEM_FENCE);
  uchar value = data[get_global_id(0)];
  atomic_inc(&mine[value]);
  atomic_min(low, (int)value);
  atom_add(total, (long)value);
  atomic_fetch_or_explicit(seen, 1 << (value & 31), memory_order_relaxed);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int k = get_local_id(0); k < 256; k += get_local_size(0)) atomic_add(&bins[k], mine[k]);
}
"""

COMPARE_EXCHANGE = """
__kernel void add(volatile __global float *sum, __global const float *data) {
  volatile __global uint *cell = (volatile __global uint *)sum;
  uint old = *cell, seen;
  float value = data[get_global_id(0)];
  while ((seen = atomic_cmpxchg(cell, old, as_uint(as_float(old) + value))) != old) old = seen;
}
"""

HALF = """
__kernel void half_math(__global half *out, __global const half *in, __global const half4 *wide,
                        __global float *f) {
  int i = get_global_id(0);
  half x = in[i];
  half4 v = wide[i] * (half4)x + (half4)1;
  out[i] = fma(x, x, v.x) + fmax(v.y, v.z) - sqrt(fabs(v.w));
  f[i] = vload_half(i, in) + (float)out[i];
}
"""

DOUBLE = """
__kernel void double_math(__global double *out, __global const double *in) {
  int i = get_global_id(0);
  double x = in[i];
  out[i] = sqrt(x) / (x + 1.0) + exp(-x) * sin(x) + (double)(long)(x * 1000.0);
}
"""

INT64 = """
__kernel void int64(__global ulong *out, __global const ulong *a, __global const ulong *b) {
  int i = get_global_id(0);
  ulong x = a[i], y = b[i] | 1;
  ulong shifted = (ulong)((long)x >> (y & 31)) + rotate(x, y & 63);
  out[i] = x / y + x % y + mul_hi(x, y) + shifted + popcount(x) + clz(y);
}
"""

VECTORS = """
__kernel void vectors(__global float16 *out, __global const char8 *bytes, __global const int3 *three,
                      __global const uchar4 *pixels) {
  int i = get_global_id(0);
  float8 f = convert_float8(bytes[i]);
  int4 t = (int4)(three[i], 1);
  uchar4 p = pixels[i].wzyx;
  float4 g = convert_float4(add_sat(p, (uchar4)100)) + convert_float4(t.s3210);
  out[i] = (float16)(f.even, f.odd, g, convert_float4(convert_uchar4_sat(g * 2.0f)));
}
"""

PRIVATE_ARRAY = """
__kernel void permute(__global int *out, __global const int *index, int n) {
  int table[256];
  int i = get_global_id(0);
  for (int k = 0; k < 256; k++) table[k] = k * 3 + i;
  for (int k = 0; k < n; k++) {
    int a = index[k] & 255, b = index[k] >> 8 & 255, t = table[a];
    table[a] = table[b];
    table[b] = t;
  }
  int sum = 0;
  for (int k = 0; k < 256; k++) sum = sum * 31 + table[k];
  out[i] = sum;
}
"""

FUNCTION_TABLE = """
#pragma OPENCL EXTENSION __cl_clang_function_pointers : enable
typedef float (*operation)(float, float);
__attribute__((noinline)) float add(float x, float y) { return x + y; }
__attribute__((noinline)) float subtract(float x, float y) { return x - y; }
__attribute__((noinline)) float multiply(float x, float y) { return x * y; }
__constant operation table[3] = {add, subtract, multiply};
__kernel void apply(__global float *out, __global const float *a, __global const float *b,
                    __global const int *which) {
  int i = get_global_id(0);
  out[i] = table[which[i]](a[i], b[i]);
}
"""

CALLS = """
__attribute__((noinline)) int fibonacci(int n) {
  int a = 0, b = 1;
  for (int k = 0; k < n; k++) { int t = a + b; a = b; b = t; }
  return a;
}
__attribute__((noinline)) int twice(int n) { return fibonacci(n) + fibonacci(n + 1); }
__kernel void calls(__global int *out, __global const int *in) {
  int i = get_global_id(0);
  out[i] = twice(in[i] & 15) * 2 + fibonacci(3);
}
"""

DOT_PRODUCTS = """
__kernel void dots(__global int *out, __global const int *a, __global const int *b, __global float *f,
                   __global const half2 *h) {
  int i = get_global_id(0);
  int signed_ = __builtin_amdgcn_sudot4(1, a[i], 1, b[i], 7, 0);
  uint unsigned_ = __builtin_amdgcn_udot4(a[i], b[i], 7, 1);
  out[i] = signed_ + (int)unsigned_;
  f[i] = __builtin_amdgcn_fdot2(h[i], h[i + 1], 1.0f, 0);
}
"""

COPIES = """
__kernel void copies(__global float4 *out, const __global float4 *in, __global atomic_flag *once) {
  __local float4 all[100], odd[50];
  event_t event = async_work_group_copy(all, in, 100, 0);
  event = async_work_group_strided_copy(odd, in + 1, 50, 2, event);
  prefetch(in, 100);
  wait_group_events(1, &event);
  int first = !atomic_flag_test_and_set(once);
  for (int i = get_local_id(0); i < 100; i += get_local_size(0)) all[i] += odd[i / 2];
  barrier(CLK_LOCAL_MEM_FENCE);
  event = async_work_group_copy(out, all, 100, 0);
  event = async_work_group_strided_copy(out + 100, odd, 50, 3, event);
  wait_group_events(1, &event);
  if (first) out[101] = 7;
}
"""

KERNELS: dict[str, tuple[str, tuple[str, ...]]] = {
    "naive matmul": (MATMUL_NAIVE, ("global_load_b32", "global_store_b32")),
    "tiled matmul": (MATMUL_TILED, ("ds_store", "ds_load", "s_barrier")),
    "register-blocked matmul": (MATMUL_BLOCKED, ("v_dual_fmac_f32", "s_barrier")),
    "WMMA matmul": (MATMUL_WMMA, ("v_wmma_f32_16x16x16_f16",)),
    "barrier in a loop": (BARRIER_LOOP, ("s_barrier", "s_cbranch")),
    "atomics": (
        ATOMICS,
        ("ds_add", "global_atomic_add_u32", "global_atomic_min_i32", "global_atomic_or_b32"),
    ),
    "compare and exchange": (COMPARE_EXCHANGE, ("global_atomic_cmpswap_b32",)),
    "half": (HALF, ("v_fma_f16", "v_sqrt_f16", "v_pk_fma_f16")),
    "double": (DOUBLE, ("v_fma_f64", "v_div_scale_f64", "v_div_fmas_f64", "v_div_fixup_f64")),
    "64-bit integers": (INT64, ("v_mad_u64_u32", "v_lshrrev_b64")),
    "vectors": (VECTORS, ("v_cvt_f32_ubyte",)),
    "private array": (PRIVATE_ARRAY, ("scratch_store_b32", "scratch_load_b32")),
    "function table": (FUNCTION_TABLE, ("s_swappc_b64", "s_setpc_b64")),
    "calls": (CALLS, ("s_swappc_b64", "s_setpc_b64")),
    "copies": (COPIES, ("ds_store_b128", "s_barrier", "global_atomic_swap_b32")),
    "dot products": (DOT_PRODUCTS, ("v_dot4_i32_iu8", "v_dot4_u32_u8", "v_dot2")),
}
"""name -> source, and beginnings of instruction names that its code has."""
