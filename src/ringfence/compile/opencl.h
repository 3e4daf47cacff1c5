// The builtin header of ringfence for OpenCL C 2.0 on AMD GPUs: types, constants and functions of the language.
//
// Only what is declared here exists; BUILTINS in opencl.py lists it. The mathematical functions are evaluated
// in double precision with the operations of IEEE 754 only (with square roots and fused multiply-adds), so their results
// are the same on every device: those of float and half are correctly rounded but for rare cases close to a tie,
// those of double are within 2.5 ulp (erf and erfc within 8). The native_ functions are the instructions of the
// hardware.
//
// Sources: the OpenCL C 2.0 specification; LLVM AMDGPUUsage.rst for the implicit arguments (code object V5).

#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

#define RF __attribute__((overloadable, always_inline)) static inline

// The error terms below must not be fused away.
#pragma OPENCL FP_CONTRACT OFF

// Types

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;

#define RF_VECTOR(T, N) typedef T T##N __attribute__((ext_vector_type(N)));
#define RF_VECTORS(T) RF_VECTOR(T, 2) RF_VECTOR(T, 3) RF_VECTOR(T, 4) RF_VECTOR(T, 8) RF_VECTOR(T, 16)
RF_VECTORS(char)
RF_VECTORS(uchar)
RF_VECTORS(short)
RF_VECTORS(ushort)
RF_VECTORS(int)
RF_VECTORS(uint)
RF_VECTORS(long)
RF_VECTORS(ulong)
RF_VECTORS(half)
RF_VECTORS(float)
RF_VECTORS(double)

typedef enum memory_order {
  memory_order_relaxed = __ATOMIC_RELAXED,
  memory_order_acquire = __ATOMIC_ACQUIRE,
  memory_order_release = __ATOMIC_RELEASE,
  memory_order_acq_rel = __ATOMIC_ACQ_REL,
  memory_order_seq_cst = __ATOMIC_SEQ_CST
} memory_order;

typedef enum memory_scope {
  memory_scope_work_item = 0,
  memory_scope_work_group = 1,
  memory_scope_device = 2,
  memory_scope_all_svm_devices = 3,
  memory_scope_sub_group = 4
} memory_scope;

typedef uint cl_mem_fence_flags;
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2

// Constants. The compiler defines the other versions, __ENDIAN_LITTLE__ and __FAST_RELAXED_MATH__. It also claims
// extensions of which nothing is here.

#undef cl_khr_3d_image_writes
#undef cl_khr_mipmap_image
#undef cl_khr_mipmap_image_writes
#undef cl_khr_subgroups
#define __OPENCL_VERSION__ 200
#define FP_FAST_FMA_HALF 1
#define __kernel_exec(X, T) __kernel __attribute__((work_group_size_hint(X, 1, 1))) __attribute__((vec_type_hint(T)))
#define kernel_exec __kernel_exec
#define NULL ((void *)0)
#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define CHAR_MAX SCHAR_MAX
#define CHAR_MIN SCHAR_MIN
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 0xffffffffU
#define LONG_MAX 0x7fffffffffffffffL
#define LONG_MIN (-0x7fffffffffffffffL - 1)
#define ULONG_MAX 0xffffffffffffffffUL
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_MAX_10_EXP 38
#define FLT_MAX_EXP 128
#define FLT_MIN_10_EXP (-37)
#define FLT_MIN_EXP (-125)
#define FLT_RADIX 2
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1.0p-126f
#define FLT_EPSILON 0x1.0p-23f
#define DBL_DIG 15
#define DBL_MANT_DIG 53
#define DBL_MAX_10_EXP 308
#define DBL_MAX_EXP 1024
#define DBL_MIN_10_EXP (-307)
#define DBL_MIN_EXP (-1021)
#define DBL_MAX 0x1.fffffffffffffp1023
#define DBL_MIN 0x1.0p-1022
#define DBL_EPSILON 0x1.0p-52
#define HALF_DIG 3
#define HALF_MANT_DIG 11
#define HALF_MAX_10_EXP 4
#define HALF_MAX_EXP 16
#define HALF_MIN_10_EXP (-4)
#define HALF_MIN_EXP (-13)
#define HALF_RADIX 2
#define HALF_MAX 0x1.ffcp15h
#define HALF_MIN 0x1.0p-14h
#define HALF_EPSILON 0x1.0p-10h
#define MAXFLOAT FLT_MAX
#define HUGE_VALF __builtin_huge_valf()
#define HUGE_VAL __builtin_huge_val()
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define FP_ILOGB0 INT_MIN
#define FP_ILOGBNAN INT_MAX
#define M_E 0x1.5bf0a8b145769p1
#define M_LOG2E 0x1.71547652b82fep0
#define M_LOG10E 0x1.bcb7b1526e50ep-2
#define M_LN2 0x1.62e42fefa39efp-1
#define M_LN10 0x1.26bb1bbb55516p1
#define M_PI 0x1.921fb54442d18p1
#define M_PI_2 0x1.921fb54442d18p0
#define M_PI_4 0x1.921fb54442d18p-1
#define M_1_PI 0x1.45f306dc9c883p-2
#define M_2_PI 0x1.45f306dc9c883p-1
#define M_2_SQRTPI 0x1.20dd750429b6dp0
#define M_SQRT2 0x1.6a09e667f3bcdp0
#define M_SQRT1_2 0x1.6a09e667f3bcdp-1
#define M_E_F ((float)M_E)
#define M_LOG2E_F ((float)M_LOG2E)
#define M_LOG10E_F ((float)M_LOG10E)
#define M_LN2_F ((float)M_LN2)
#define M_LN10_F ((float)M_LN10)
#define M_PI_F ((float)M_PI)
#define M_PI_2_F ((float)M_PI_2)
#define M_PI_4_F ((float)M_PI_4)
#define M_1_PI_F ((float)M_1_PI)
#define M_2_PI_F ((float)M_2_PI)
#define M_2_SQRTPI_F ((float)M_2_SQRTPI)
#define M_SQRT2_F ((float)M_SQRT2)
#define M_SQRT1_2_F ((float)M_SQRT1_2)
#define M_E_H ((half)M_E)
#define M_LOG2E_H ((half)M_LOG2E)
#define M_LOG10E_H ((half)M_LOG10E)
#define M_LN2_H ((half)M_LN2)
#define M_LN10_H ((half)M_LN10)
#define M_PI_H ((half)M_PI)
#define M_PI_2_H ((half)M_PI_2)
#define M_PI_4_H ((half)M_PI_4)
#define M_1_PI_H ((half)M_1_PI)
#define M_2_PI_H ((half)M_2_PI)
#define M_2_SQRTPI_H ((half)M_2_SQRTPI)
#define M_SQRT2_H ((half)M_SQRT2)
#define M_SQRT1_2_H ((half)M_SQRT1_2)

// Repetition: a macro M(type, more) for every width, and for every type of a kind.

#define RF_WIDTHS(M, T, ...) \
  M(T, __VA_ARGS__) M(T##2, __VA_ARGS__) M(T##3, __VA_ARGS__) M(T##4, __VA_ARGS__) M(T##8, __VA_ARGS__) \
  M(T##16, __VA_ARGS__)
#define RF_FLOATS(M, ...) \
  RF_WIDTHS(M, float, __VA_ARGS__) RF_WIDTHS(M, double, __VA_ARGS__) RF_WIDTHS(M, half, __VA_ARGS__)
#define RF_INTEGERS(M, ...) \
  RF_WIDTHS(M, char, __VA_ARGS__) RF_WIDTHS(M, uchar, __VA_ARGS__) RF_WIDTHS(M, short, __VA_ARGS__) \
  RF_WIDTHS(M, ushort, __VA_ARGS__) RF_WIDTHS(M, int, __VA_ARGS__) RF_WIDTHS(M, uint, __VA_ARGS__) \
  RF_WIDTHS(M, long, __VA_ARGS__) RF_WIDTHS(M, ulong, __VA_ARGS__)

// Vector forms of a scalar function, by halves. R is the type of the result, T of the arguments.
#define RF_MAP1(R, T, F) \
  RF R##2 F(T##2 x) { return (R##2)(F(x.s0), F(x.s1)); } \
  RF R##3 F(T##3 x) { return (R##3)(F(x.s01), F(x.s2)); } \
  RF R##4 F(T##4 x) { return (R##4)(F(x.lo), F(x.hi)); } \
  RF R##8 F(T##8 x) { return (R##8)(F(x.lo), F(x.hi)); } \
  RF R##16 F(T##16 x) { return (R##16)(F(x.lo), F(x.hi)); }
#define RF_MAP2(R, T, U, F) \
  RF R##2 F(T##2 x, U##2 y) { return (R##2)(F(x.s0, y.s0), F(x.s1, y.s1)); } \
  RF R##3 F(T##3 x, U##3 y) { return (R##3)(F(x.s01, y.s01), F(x.s2, y.s2)); } \
  RF R##4 F(T##4 x, U##4 y) { return (R##4)(F(x.lo, y.lo), F(x.hi, y.hi)); } \
  RF R##8 F(T##8 x, U##8 y) { return (R##8)(F(x.lo, y.lo), F(x.hi, y.hi)); } \
  RF R##16 F(T##16 x, U##16 y) { return (R##16)(F(x.lo, y.lo), F(x.hi, y.hi)); }
// The second result goes through a pointer to P.
#define RF_MAP1P(R, T, P, F) \
  RF R##2 F(T##2 x, P##2 *p) { P a, b; R##2 r = (R##2)(F(x.s0, &a), F(x.s1, &b)); *p = (P##2)(a, b); return r; } \
  RF R##3 F(T##3 x, P##3 *p) { P##2 a; P b; R##3 r = (R##3)(F(x.s01, &a), F(x.s2, &b)); *p = (P##3)(a, b); return r; } \
  RF R##4 F(T##4 x, P##4 *p) { P##2 a, b; R##4 r = (R##4)(F(x.lo, &a), F(x.hi, &b)); *p = (P##4)(a, b); return r; } \
  RF R##8 F(T##8 x, P##8 *p) { P##4 a, b; R##8 r = (R##8)(F(x.lo, &a), F(x.hi, &b)); *p = (P##8)(a, b); return r; } \
  RF R##16 F(T##16 x, P##16 *p) { P##8 a, b; R##16 r = (R##16)(F(x.lo, &a), F(x.hi, &b)); *p = (P##16)(a, b); return r; }
#define RF_MAP2P(R, T, P, F) \
  RF R##2 F(T##2 x, T##2 y, P##2 *p) { \
    P a, b; \
    R##2 r = (R##2)(F(x.s0, y.s0, &a), F(x.s1, y.s1, &b)); \
    *p = (P##2)(a, b); return r; \
  } \
  RF R##3 F(T##3 x, T##3 y, P##3 *p) { \
    P##2 a; P b; \
    R##3 r = (R##3)(F(x.s01, y.s01, &a), F(x.s2, y.s2, &b)); \
    *p = (P##3)(a, b); return r; \
  } \
  RF R##4 F(T##4 x, T##4 y, P##4 *p) { \
    P##2 a, b; \
    R##4 r = (R##4)(F(x.lo, y.lo, &a), F(x.hi, y.hi, &b)); \
    *p = (P##4)(a, b); return r; \
  } \
  RF R##8 F(T##8 x, T##8 y, P##8 *p) { \
    P##4 a, b; \
    R##8 r = (R##8)(F(x.lo, y.lo, &a), F(x.hi, y.hi, &b)); \
    *p = (P##8)(a, b); return r; \
  } \
  RF R##16 F(T##16 x, T##16 y, P##16 *p) { \
    P##8 a, b; \
    R##16 r = (R##16)(F(x.lo, y.lo, &a), F(x.hi, y.hi, &b)); \
    *p = (P##16)(a, b); return r; \
  }

// Work-items. The implicit arguments hold group counts (0), group sizes (12), remainders (18), offsets (40) and
// the number of dimensions (64).

#ifdef __AMDGPU__
#define RF_IMPLICIT(T, OFFSET) \
  (*(const __constant T *)((const __constant char *)__builtin_amdgcn_implicitarg_ptr() + (OFFSET)))

RF uint get_work_dim(void) { return RF_IMPLICIT(ushort, 64); }

RF size_t get_group_id(uint d) {
  switch (d) {
    case 0: return (uint)__builtin_amdgcn_workgroup_id_x();
    case 1: return (uint)__builtin_amdgcn_workgroup_id_y();
    case 2: return (uint)__builtin_amdgcn_workgroup_id_z();
    default: return 0;
  }
}

RF size_t get_local_id(uint d) {
  switch (d) {
    case 0: return (uint)__builtin_amdgcn_workitem_id_x();
    case 1: return (uint)__builtin_amdgcn_workitem_id_y();
    case 2: return (uint)__builtin_amdgcn_workitem_id_z();
    default: return 0;
  }
}

RF size_t get_enqueued_local_size(uint d) { return d < 3 ? (uint)RF_IMPLICIT(ushort, 12 + 2 * d) : 1; }

RF size_t get_local_size(uint d) {
  if (d > 2) return 1;
  uint whole = get_group_id(d) < RF_IMPLICIT(uint, 4 * d);
  return whole ? RF_IMPLICIT(ushort, 12 + 2 * d) : RF_IMPLICIT(ushort, 18 + 2 * d);
}

RF size_t get_global_size(uint d) {
  if (d > 2) return 1;
  return (size_t)RF_IMPLICIT(uint, 4 * d) * RF_IMPLICIT(ushort, 12 + 2 * d) + RF_IMPLICIT(ushort, 18 + 2 * d);
}

RF size_t get_num_groups(uint d) {
  return d < 3 ? RF_IMPLICIT(uint, 4 * d) + (RF_IMPLICIT(ushort, 18 + 2 * d) ? 1u : 0u) : 1;
}

RF size_t get_global_offset(uint d) { return d < 3 ? RF_IMPLICIT(ulong, 40 + 8 * d) : 0; }

RF size_t get_global_id(uint d) {
  if (d > 2) return 0;
  return (uint)get_group_id(d) * (uint)get_enqueued_local_size(d) + (uint)get_local_id(d) + get_global_offset(d);
}

RF size_t get_local_linear_id(void) {
  uint sx = get_local_size(0), sy = get_local_size(1);
  return ((uint)get_local_id(2) * sy + (uint)get_local_id(1)) * sx + (uint)get_local_id(0);
}

RF size_t get_global_linear_id(void) {
  size_t x = get_global_id(0) - get_global_offset(0), y = get_global_id(1) - get_global_offset(1);
  size_t z = get_global_id(2) - get_global_offset(2);
  return (z * get_global_size(1) + y) * get_global_size(0) + x;
}

// Sub-groups are waves.
RF uint get_sub_group_local_id(void) { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }
RF uint get_max_sub_group_size(void) { return __builtin_amdgcn_wavefrontsize(); }
RF uint get_sub_group_id(void) { return (uint)get_local_linear_id() / get_max_sub_group_size(); }
RF uint get_num_sub_groups(void) {
  uint all = (uint)get_local_size(0) * (uint)get_local_size(1) * (uint)get_local_size(2);
  return (all + get_max_sub_group_size() - 1) / get_max_sub_group_size();
}

// Synchronization

#define RF_FENCES(ORDER) \
  switch (scope) { \
    case memory_scope_work_item: break; \
    case memory_scope_sub_group: __builtin_amdgcn_fence(ORDER, "wavefront"); break; \
    case memory_scope_work_group: __builtin_amdgcn_fence(ORDER, "workgroup"); break; \
    case memory_scope_device: __builtin_amdgcn_fence(ORDER, "agent"); break; \
    default: __builtin_amdgcn_fence(ORDER, ""); break; \
  }

RF void atomic_work_item_fence(cl_mem_fence_flags flags, memory_order order, memory_scope scope) {
  switch (order) {
    case memory_order_relaxed: break;
    case memory_order_acquire: RF_FENCES(__ATOMIC_ACQUIRE) break;
    case memory_order_release: RF_FENCES(__ATOMIC_RELEASE) break;
    case memory_order_acq_rel: RF_FENCES(__ATOMIC_ACQ_REL) break;
    default: RF_FENCES(__ATOMIC_SEQ_CST) break;
  }
}

RF void mem_fence(cl_mem_fence_flags flags) { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup"); }
RF void read_mem_fence(cl_mem_fence_flags flags) { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); }
RF void write_mem_fence(cl_mem_fence_flags flags) { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); }

RF void work_group_barrier(cl_mem_fence_flags flags, memory_scope scope) {
  if (flags) atomic_work_item_fence(flags, memory_order_release, scope);
  __builtin_amdgcn_s_barrier();
  if (flags) atomic_work_item_fence(flags, memory_order_acquire, scope);
}
RF void work_group_barrier(cl_mem_fence_flags flags) { work_group_barrier(flags, memory_scope_work_group); }
RF void barrier(cl_mem_fence_flags flags) { work_group_barrier(flags, memory_scope_work_group); }
RF void sub_group_barrier(cl_mem_fence_flags flags) { __builtin_amdgcn_wave_barrier(); }
#endif

// Atomics of OpenCL 1.x: relaxed, in the scope of the device. Pointers are generic, so global or local; the
// compiler finds out which, but not behind volatile, which an atomic operation does not need.

#define RF_ATOMIC(T, NAME, BUILTIN) \
  RF T atomic_##NAME(volatile T *p, T v) { return BUILTIN((T *)p, v, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE); } \
  RF T atom_##NAME(volatile T *p, T v) { return BUILTIN(p, v, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE); }
#define RF_ATOMICS(T) \
  RF_ATOMIC(T, add, __scoped_atomic_fetch_add) \
  RF_ATOMIC(T, sub, __scoped_atomic_fetch_sub) \
  RF_ATOMIC(T, min, __scoped_atomic_fetch_min) \
  RF_ATOMIC(T, max, __scoped_atomic_fetch_max) \
  RF_ATOMIC(T, and, __scoped_atomic_fetch_and) \
  RF_ATOMIC(T, or, __scoped_atomic_fetch_or) \
  RF_ATOMIC(T, xor, __scoped_atomic_fetch_xor) \
  RF_ATOMIC(T, xchg, __scoped_atomic_exchange_n) \
  RF T atomic_inc(volatile T *p) { return atomic_add(p, (T)1); } \
  RF T atomic_dec(volatile T *p) { return atomic_sub(p, (T)1); } \
  RF T atom_inc(volatile T *p) { return atomic_add(p, (T)1); } \
  RF T atom_dec(volatile T *p) { return atomic_sub(p, (T)1); } \
  RF T atomic_cmpxchg(volatile T *p, T expected, T v) { \
    __scoped_atomic_compare_exchange_n( \
        (T *)p, &expected, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE); \
    return expected; \
  } \
  RF T atom_cmpxchg(volatile T *p, T expected, T v) { return atomic_cmpxchg(p, expected, v); }
RF_ATOMICS(int)
RF_ATOMICS(uint)
RF_ATOMICS(long)
RF_ATOMICS(ulong)
RF float atomic_xchg(volatile float *p, float v) {
  return __builtin_astype(atomic_xchg((volatile uint *)p, __builtin_astype(v, uint)), float);
}

// Atomics of OpenCL 2.0. Order and scope must be constants.

#define ATOMIC_VAR_INIT(v) (v)
#define ATOMIC_FLAG_INIT 0
typedef atomic_int atomic_flag;
#define atomic_flag_test_and_set(p) (atomic_exchange(p, 1) != 0)
#define atomic_flag_clear(p) atomic_store(p, 0)
#define atomic_flag_test_and_set_explicit(p, ...) (atomic_exchange_explicit(p, 1, __VA_ARGS__) != 0)
#define atomic_flag_clear_explicit(p, ...) atomic_store_explicit(p, 0, __VA_ARGS__)
#define atomic_init(p, v) __opencl_atomic_init(p, v)
#define RF_ORDER(ORDER, SCOPE, ...) ORDER
#define RF_SCOPE(ORDER, SCOPE, ...) SCOPE
#define atomic_load(p) __opencl_atomic_load(p, memory_order_seq_cst, memory_scope_device)
#define atomic_store(p, v) __opencl_atomic_store(p, v, memory_order_seq_cst, memory_scope_device)
#define atomic_exchange(p, v) __opencl_atomic_exchange(p, v, memory_order_seq_cst, memory_scope_device)
#define atomic_fetch_add(p, v) __opencl_atomic_fetch_add(p, v, memory_order_seq_cst, memory_scope_device)
#define atomic_fetch_sub(p, v) __opencl_atomic_fetch_sub(p, v, memory_order_seq_cst, memory_scope_device)
#define atomic_fetch_and(p, v) __opencl_atomic_fetch_and(p, v, memory_order_seq_cst, memory_scope_device)
#define atomic_fetch_or(p, v) __opencl_atomic_fetch_or(p, v, memory_order_seq_cst, memory_scope_device)
#define atomic_fetch_xor(p, v) __opencl_atomic_fetch_xor(p, v, memory_order_seq_cst, memory_scope_device)
#define atomic_fetch_min(p, v) __opencl_atomic_fetch_min(p, v, memory_order_seq_cst, memory_scope_device)
#define atomic_fetch_max(p, v) __opencl_atomic_fetch_max(p, v, memory_order_seq_cst, memory_scope_device)
#define atomic_compare_exchange_strong(p, e, v) \
  __opencl_atomic_compare_exchange_strong(p, e, v, memory_order_seq_cst, memory_order_seq_cst, memory_scope_device)
#define atomic_compare_exchange_weak(p, e, v) atomic_compare_exchange_strong(p, e, v)
// A missing scope is that of the device.
#define atomic_load_explicit(p, ...) \
  __opencl_atomic_load(p, RF_ORDER(__VA_ARGS__, 0), RF_SCOPE(__VA_ARGS__, memory_scope_device, 0))
#define atomic_store_explicit(p, v, ...) \
  __opencl_atomic_store(p, v, RF_ORDER(__VA_ARGS__, 0), RF_SCOPE(__VA_ARGS__, memory_scope_device, 0))
#define RF_EXPLICIT(BUILTIN, p, v, ...) \
  BUILTIN(p, v, RF_ORDER(__VA_ARGS__, 0), RF_SCOPE(__VA_ARGS__, memory_scope_device, 0))
#define atomic_exchange_explicit(p, v, ...) RF_EXPLICIT(__opencl_atomic_exchange, p, v, __VA_ARGS__)
#define atomic_fetch_add_explicit(p, v, ...) RF_EXPLICIT(__opencl_atomic_fetch_add, p, v, __VA_ARGS__)
#define atomic_fetch_sub_explicit(p, v, ...) RF_EXPLICIT(__opencl_atomic_fetch_sub, p, v, __VA_ARGS__)
#define atomic_fetch_and_explicit(p, v, ...) RF_EXPLICIT(__opencl_atomic_fetch_and, p, v, __VA_ARGS__)
#define atomic_fetch_or_explicit(p, v, ...) RF_EXPLICIT(__opencl_atomic_fetch_or, p, v, __VA_ARGS__)
#define atomic_fetch_xor_explicit(p, v, ...) RF_EXPLICIT(__opencl_atomic_fetch_xor, p, v, __VA_ARGS__)
#define atomic_fetch_min_explicit(p, v, ...) RF_EXPLICIT(__opencl_atomic_fetch_min, p, v, __VA_ARGS__)
#define atomic_fetch_max_explicit(p, v, ...) RF_EXPLICIT(__opencl_atomic_fetch_max, p, v, __VA_ARGS__)
#define atomic_compare_exchange_strong_explicit(p, e, v, success, ...) \
  __opencl_atomic_compare_exchange_strong( \
      p, e, v, success, RF_ORDER(__VA_ARGS__, 0), RF_SCOPE(__VA_ARGS__, memory_scope_device, 0))
#define atomic_compare_exchange_weak_explicit(p, e, v, ...) atomic_compare_exchange_strong_explicit(p, e, v, __VA_ARGS__)

// Conversions that saturate: F is rf_sat_D for the type D of the result. opencl.py adds as_T() and convert_T().

#define RF_SATURATE(D, LOW, HIGH) \
  RF D rf_sat_##D(long x) { \
    return x < (long)(LOW) ? (D)(LOW) : x > 0 && (ulong)x > (ulong)(HIGH) ? (D)(HIGH) : (D)x; \
  } \
  RF D rf_sat_##D(ulong x) { return x > (ulong)(HIGH) ? (D)(HIGH) : (D)x; } \
  RF D rf_sat_##D(double x) { \
    return x != x ? (D)0 : x <= (double)(LOW) ? (D)(LOW) : x >= (double)(HIGH) ? (D)(HIGH) : (D)x; \
  } \
  RF D rf_sat_##D(char x) { return rf_sat_##D((long)x); } \
  RF D rf_sat_##D(short x) { return rf_sat_##D((long)x); } \
  RF D rf_sat_##D(int x) { return rf_sat_##D((long)x); } \
  RF D rf_sat_##D(uchar x) { return rf_sat_##D((ulong)x); } \
  RF D rf_sat_##D(ushort x) { return rf_sat_##D((ulong)x); } \
  RF D rf_sat_##D(uint x) { return rf_sat_##D((ulong)x); } \
  RF D rf_sat_##D(half x) { return rf_sat_##D((double)x); } \
  RF D rf_sat_##D(float x) { return rf_sat_##D((double)x); } \
  RF_MAP1(D, char, rf_sat_##D) RF_MAP1(D, uchar, rf_sat_##D) RF_MAP1(D, short, rf_sat_##D) \
  RF_MAP1(D, ushort, rf_sat_##D) RF_MAP1(D, int, rf_sat_##D) RF_MAP1(D, uint, rf_sat_##D) \
  RF_MAP1(D, long, rf_sat_##D) RF_MAP1(D, ulong, rf_sat_##D) RF_MAP1(D, half, rf_sat_##D) \
  RF_MAP1(D, float, rf_sat_##D) RF_MAP1(D, double, rf_sat_##D)
RF_SATURATE(char, CHAR_MIN, CHAR_MAX)
RF_SATURATE(uchar, 0, UCHAR_MAX)
RF_SATURATE(short, SHRT_MIN, SHRT_MAX)
RF_SATURATE(ushort, 0, USHRT_MAX)
RF_SATURATE(int, INT_MIN, INT_MAX)
RF_SATURATE(uint, 0, UINT_MAX)
RF_SATURATE(long, LONG_MIN, LONG_MAX)
RF_SATURATE(ulong, 0, ULONG_MAX)

// Loads and stores of vectors from memory that is aligned to the element only

#define RF_VLOAD_FROM(T, SPACE) \
  RF T##2 vload2(size_t i, const SPACE T *p) { p += 2 * i; return (T##2)(p[0], p[1]); } \
  RF T##3 vload3(size_t i, const SPACE T *p) { p += 3 * i; return (T##3)(p[0], p[1], p[2]); } \
  RF T##4 vload4(size_t i, const SPACE T *p) { p += 4 * i; return (T##4)(p[0], p[1], p[2], p[3]); } \
  RF T##8 vload8(size_t i, const SPACE T *p) { p += 8 * i; return (T##8)(vload4(0, p), vload4(1, p)); } \
  RF T##16 vload16(size_t i, const SPACE T *p) { p += 16 * i; return (T##16)(vload8(0, p), vload8(1, p)); }
#define RF_VSTORE(T) \
  RF void vstore2(T##2 v, size_t i, T *p) { p += 2 * i; p[0] = v.s0; p[1] = v.s1; } \
  RF void vstore3(T##3 v, size_t i, T *p) { p += 3 * i; p[0] = v.s0; p[1] = v.s1; p[2] = v.s2; } \
  RF void vstore4(T##4 v, size_t i, T *p) { p += 4 * i; p[0] = v.s0; p[1] = v.s1; p[2] = v.s2; p[3] = v.s3; } \
  RF void vstore8(T##8 v, size_t i, T *p) { p += 8 * i; vstore4(v.lo, 0, p); vstore4(v.hi, 1, p); } \
  RF void vstore16(T##16 v, size_t i, T *p) { p += 16 * i; vstore8(v.lo, 0, p); vstore8(v.hi, 1, p); }
#define RF_VMEMORY(T) RF_VLOAD_FROM(T, __generic) RF_VLOAD_FROM(T, __constant) RF_VSTORE(T)
RF_VMEMORY(char)
RF_VMEMORY(uchar)
RF_VMEMORY(short)
RF_VMEMORY(ushort)
RF_VMEMORY(int)
RF_VMEMORY(uint)
RF_VMEMORY(long)
RF_VMEMORY(ulong)
RF_VMEMORY(half)
RF_VMEMORY(float)
RF_VMEMORY(double)

// vloada_half3 and vstorea_half3 step by four elements, the others as their names say.
#define RF_VLOAD_HALF(SPACE) \
  RF float vload_half(size_t i, const SPACE half *p) { return p[i]; } \
  RF float vloada_half(size_t i, const SPACE half *p) { return p[i]; } \
  RF float2 vload_half2(size_t i, const SPACE half *p) { return __builtin_convertvector(vload2(i, p), float2); } \
  RF float3 vload_half3(size_t i, const SPACE half *p) { return __builtin_convertvector(vload3(i, p), float3); } \
  RF float4 vload_half4(size_t i, const SPACE half *p) { return __builtin_convertvector(vload4(i, p), float4); } \
  RF float8 vload_half8(size_t i, const SPACE half *p) { return __builtin_convertvector(vload8(i, p), float8); } \
  RF float16 vload_half16(size_t i, const SPACE half *p) { return __builtin_convertvector(vload16(i, p), float16); } \
  RF float2 vloada_half2(size_t i, const SPACE half *p) { return vload_half2(i, p); } \
  RF float3 vloada_half3(size_t i, const SPACE half *p) { return vload_half3(0, p + 4 * i); } \
  RF float4 vloada_half4(size_t i, const SPACE half *p) { return vload_half4(i, p); } \
  RF float8 vloada_half8(size_t i, const SPACE half *p) { return vload_half8(i, p); } \
  RF float16 vloada_half16(size_t i, const SPACE half *p) { return vload_half16(i, p); }
RF_VLOAD_HALF(__generic)
RF_VLOAD_HALF(__constant)

// Integer functions. U is the unsigned type of T's size.

#define RF_UNARY(T, F, BUILTIN) RF T F(T x) { return BUILTIN(x); }
#define RF_BINARY(T, F, BUILTIN) RF T F(T x, T y) { return BUILTIN(x, y); }
#define RF_TERNARY(T, F, BUILTIN) RF T F(T x, T y, T z) { return BUILTIN(x, y, z); }

RF_INTEGERS(RF_BINARY, min, __builtin_elementwise_min)
RF_INTEGERS(RF_BINARY, max, __builtin_elementwise_max)
RF_INTEGERS(RF_BINARY, add_sat, __builtin_elementwise_add_sat)
RF_INTEGERS(RF_BINARY, sub_sat, __builtin_elementwise_sub_sat)
RF_INTEGERS(RF_UNARY, popcount, __builtin_elementwise_popcount)
#define RF_CLAMP(T, ...) RF T clamp(T x, T low, T high) { return min(max(x, low), high); }
RF_INTEGERS(RF_CLAMP, )
#define RF_HADD(T, ...) \
  RF T hadd(T x, T y) { return (x >> (T)1) + (y >> (T)1) + (x & y & (T)1); } \
  RF T rhadd(T x, T y) { return (x >> (T)1) + (y >> (T)1) + ((x | y) & (T)1); }
RF_INTEGERS(RF_HADD, )

#define RF_BITS(T, U, BITS) \
  RF T clz(T x) { return __builtin_astype(__builtin_elementwise_clzg(__builtin_astype(x, U), (U)BITS), T); } \
  RF T ctz(T x) { return __builtin_astype(__builtin_elementwise_ctzg(__builtin_astype(x, U), (U)BITS), T); } \
  RF T rotate(T x, T n) { \
    U u = __builtin_astype(x, U), k = __builtin_astype(n, U) & (U)(BITS - 1), back = (U)BITS - k & (U)(BITS - 1); \
    U r = u << k | u >> back; \
    return __builtin_astype(r, T); \
  }
#define RF_UNSIGNED(T, U) \
  RF U abs(U x) { return x; } \
  RF U abs(T x) { \
    U u = __builtin_astype(x, U); \
    return x < (T)0 ? (U)0 - u : u; \
  } \
  RF U abs_diff(U x, U y) { return x > y ? x - y : y - x; } \
  RF U abs_diff(T x, T y) { \
    U a = __builtin_astype(x, U), b = __builtin_astype(y, U); \
    return x > y ? a - b : b - a; \
  }
#define RF_BOTH(T, U, BITS) RF_BITS(T, U, BITS) RF_BITS(U, U, BITS) RF_UNSIGNED(T, U)
#define RF_PAIR(T, U, BITS) \
  RF_BOTH(T, U, BITS) RF_BOTH(T##2, U##2, BITS) RF_BOTH(T##3, U##3, BITS) RF_BOTH(T##4, U##4, BITS) \
  RF_BOTH(T##8, U##8, BITS) RF_BOTH(T##16, U##16, BITS)
RF_PAIR(char, uchar, 8)
RF_PAIR(short, ushort, 16)
RF_PAIR(int, uint, 32)
RF_PAIR(long, ulong, 64)

#define RF_MUL_HI(T, WIDE, BITS) \
  RF T mul_hi(T x, T y) { return (T)((WIDE)x * (WIDE)y >> BITS); } \
  RF_MAP2(T, T, T, mul_hi)
RF_MUL_HI(char, int, 8)
RF_MUL_HI(uchar, uint, 8)
RF_MUL_HI(short, int, 16)
RF_MUL_HI(ushort, uint, 16)
RF_MUL_HI(int, long, 32)
RF_MUL_HI(uint, ulong, 32)
RF ulong mul_hi(ulong x, ulong y) {
  ulong x0 = (uint)x, x1 = x >> 32, y0 = (uint)y, y1 = y >> 32;
  ulong middle = x1 * y0 + (x0 * y0 >> 32);
  ulong other = x0 * y1 + (uint)middle;
  return x1 * y1 + (middle >> 32) + (other >> 32);
}
RF long mul_hi(long x, long y) {
  return (long)(mul_hi((ulong)x, (ulong)y) - (x < 0 ? (ulong)y : 0) - (y < 0 ? (ulong)x : 0));
}
RF_MAP2(ulong, ulong, ulong, mul_hi)
RF_MAP2(long, long, long, mul_hi)
#define RF_MAD_HI(T, ...) RF T mad_hi(T x, T y, T z) { return mul_hi(x, y) + z; }
RF_INTEGERS(RF_MAD_HI, )

#define RF_MAD_SAT(T, WIDE) \
  RF T mad_sat(T x, T y, T z) { return rf_sat_##T((WIDE)x * (WIDE)y + (WIDE)z); }
RF_MAD_SAT(char, long)
RF_MAD_SAT(uchar, ulong)
RF_MAD_SAT(short, long)
RF_MAD_SAT(ushort, ulong)
RF_MAD_SAT(int, long)
RF_MAD_SAT(uint, ulong)
RF ulong mad_sat(ulong x, ulong y, ulong z) {
  ulong low = x * y, sum = low + z;
  return mul_hi(x, y) || sum < low ? ULONG_MAX : sum;
}
RF long mad_sat(long x, long y, long z) {
  ulong low = (ulong)x * (ulong)y, sum = low + (ulong)z;
  long high = mul_hi(x, y) + (z >> 63) + (sum < low);
  return high == (long)sum >> 63 ? (long)sum : high < 0 ? LONG_MIN : LONG_MAX;
}
#define RF_MAD_SAT_V(V, LOW, HIGH) \
  RF V mad_sat(V x, V y, V z) { return (V)(mad_sat(x.LOW, y.LOW, z.LOW), mad_sat(x.HIGH, y.HIGH, z.HIGH)); }
#define RF_MAD_SATS(T) \
  RF_MAD_SAT_V(T##2, s0, s1) RF_MAD_SAT_V(T##3, s01, s2) RF_MAD_SAT_V(T##4, lo, hi) \
  RF_MAD_SAT_V(T##8, lo, hi) RF_MAD_SAT_V(T##16, lo, hi)
RF_MAD_SATS(char) RF_MAD_SATS(uchar) RF_MAD_SATS(short) RF_MAD_SATS(ushort)
RF_MAD_SATS(int) RF_MAD_SATS(uint) RF_MAD_SATS(long) RF_MAD_SATS(ulong)

#define RF_MUL24(T, ...) \
  RF T mul24(T x, T y) { return (x << (T)8 >> (T)8) * (y << (T)8 >> (T)8); } \
  RF T mad24(T x, T y, T z) { return mul24(x, y) + z; }
RF_WIDTHS(RF_MUL24, int, )
RF_WIDTHS(RF_MUL24, uint, )

#define RF_UPSAMPLE(R, H, L, BITS) \
  RF R upsample(H high, L low) { return (R)((R)high << BITS) | (R)low; } \
  RF_MAP2(R, H, L, upsample)
RF_UPSAMPLE(short, char, uchar, 8)
RF_UPSAMPLE(ushort, uchar, uchar, 8)
RF_UPSAMPLE(int, short, ushort, 16)
RF_UPSAMPLE(uint, ushort, ushort, 16)
RF_UPSAMPLE(long, int, uint, 32)
RF_UPSAMPLE(ulong, uint, uint, 32)

// Choice by bits and by sign. I is the integer type of T's size.

#define RF_BITSELECT(T, I) \
  RF T bitselect(T x, T y, T mask) { \
    I m = __builtin_astype(mask, I), r = (__builtin_astype(x, I) & ~m) | (__builtin_astype(y, I) & m); \
    return __builtin_astype(r, T); \
  }
#define RF_CHOICE_V(T, I, U) \
  RF_BITSELECT(T, I) \
  RF T select(T x, T y, I c) { return c < (I)0 ? y : x; } \
  RF T select(T x, T y, U c) { return __builtin_astype(c, I) < (I)0 ? y : x; }
#define RF_CHOICE(T, I, U) \
  RF_BITSELECT(T, I) \
  RF T select(T x, T y, I c) { return c ? y : x; } \
  RF T select(T x, T y, U c) { return c ? y : x; } \
  RF_CHOICE_V(T##2, I##2, U##2) RF_CHOICE_V(T##3, I##3, U##3) RF_CHOICE_V(T##4, I##4, U##4) \
  RF_CHOICE_V(T##8, I##8, U##8) RF_CHOICE_V(T##16, I##16, U##16)
RF_CHOICE(char, char, uchar)
RF_CHOICE(uchar, char, uchar)
RF_CHOICE(short, short, ushort)
RF_CHOICE(ushort, short, ushort)
RF_CHOICE(half, short, ushort)
RF_CHOICE(int, int, uint)
RF_CHOICE(uint, int, uint)
RF_CHOICE(float, int, uint)
RF_CHOICE(long, long, ulong)
RF_CHOICE(ulong, long, ulong)
RF_CHOICE(double, long, ulong)

#define RF_ANY(T) \
  RF int any(T x) { return x < 0; } \
  RF int all(T x) { return x < 0; } \
  RF int any(T##2 x) { return __builtin_reduce_or(x) < 0; } \
  RF int all(T##2 x) { return __builtin_reduce_and(x) < 0; } \
  RF int any(T##3 x) { return any(x.s01) | any(x.s2); } \
  RF int all(T##3 x) { return all(x.s01) & all(x.s2); } \
  RF int any(T##4 x) { return __builtin_reduce_or(x) < 0; } \
  RF int all(T##4 x) { return __builtin_reduce_and(x) < 0; } \
  RF int any(T##8 x) { return __builtin_reduce_or(x) < 0; } \
  RF int all(T##8 x) { return __builtin_reduce_and(x) < 0; } \
  RF int any(T##16 x) { return __builtin_reduce_or(x) < 0; } \
  RF int all(T##16 x) { return __builtin_reduce_and(x) < 0; }
RF_ANY(char)
RF_ANY(short)
RF_ANY(int)
RF_ANY(long)

// Relations: 1 for scalars, -1 for elements of vectors. B is the type of the comparison of two T.

#define RF_RELATION(T, B, R) \
  RF R isequal(T x, T y) { return (R)(x == y); } \
  RF R isnotequal(T x, T y) { return (R)(x != y); } \
  RF R isgreater(T x, T y) { return (R)(x > y); } \
  RF R isgreaterequal(T x, T y) { return (R)(x >= y); } \
  RF R isless(T x, T y) { return (R)(x < y); } \
  RF R islessequal(T x, T y) { return (R)(x <= y); } \
  RF R islessgreater(T x, T y) { return (R)((x < y) | (x > y)); } \
  RF R isordered(T x, T y) { return (R)((x == x) & (y == y)); } \
  RF R isunordered(T x, T y) { return (R)((x != x) | (y != y)); } \
  RF R isnan(T x) { return (R)(x != x); } \
  RF R isinf(T x) { return (R)(__builtin_elementwise_abs(x) == (T)INFINITY); } \
  RF R isfinite(T x) { return (R)(__builtin_elementwise_abs(x) < (T)INFINITY); }
#define RF_RELATIONS(T, I, R, MIN) \
  RF_RELATION(T, int, R) \
  RF R isnormal(T x) { T a = __builtin_elementwise_abs(x); return (a < (T)INFINITY) & (a >= (T)MIN); } \
  RF R signbit(T x) { return __builtin_astype(x, I) < 0; } \
  RF_RELATIONS_V(T##2, I##2, MIN) RF_RELATIONS_V(T##3, I##3, MIN) RF_RELATIONS_V(T##4, I##4, MIN) \
  RF_RELATIONS_V(T##8, I##8, MIN) RF_RELATIONS_V(T##16, I##16, MIN)
#define RF_RELATIONS_V(T, I, MIN) \
  RF_RELATION(T, I, I) \
  RF I isnormal(T x) { T a = __builtin_elementwise_abs(x); return (a < (T)INFINITY) & (a >= (T)MIN); } \
  RF I signbit(T x) { return __builtin_astype(x, I) < (I)0; }
RF_RELATIONS(float, int, int, FLT_MIN)
RF_RELATIONS(double, long, int, DBL_MIN)
RF_RELATIONS(half, short, int, HALF_MIN)

// Mathematical functions that are single operations

RF_FLOATS(RF_UNARY, fabs, __builtin_elementwise_abs)
RF_FLOATS(RF_UNARY, ceil, __builtin_elementwise_ceil)
RF_FLOATS(RF_UNARY, floor, __builtin_elementwise_floor)
RF_FLOATS(RF_UNARY, trunc, __builtin_elementwise_trunc)
RF_FLOATS(RF_UNARY, rint, __builtin_elementwise_roundeven)
RF_FLOATS(RF_UNARY, round, __builtin_elementwise_round)
RF_FLOATS(RF_UNARY, sqrt, __builtin_elementwise_sqrt)
RF_FLOATS(RF_BINARY, fmin, __builtin_elementwise_minnum)
RF_FLOATS(RF_BINARY, fmax, __builtin_elementwise_maxnum)
RF_FLOATS(RF_BINARY, min, __builtin_elementwise_minnum)
RF_FLOATS(RF_BINARY, max, __builtin_elementwise_maxnum)
RF_FLOATS(RF_BINARY, copysign, __builtin_elementwise_copysign)
RF_FLOATS(RF_TERNARY, fma, __builtin_elementwise_fma)
RF_FLOATS(RF_TERNARY, mad, __builtin_elementwise_fma)

// Rounding before conversion, which leaves integers alone
#define RF_SAME(T, F) RF T F(T x) { return x; }
RF_INTEGERS(RF_SAME, rf_rte)
RF_INTEGERS(RF_SAME, rf_rtz)
RF_INTEGERS(RF_SAME, rf_rtp)
RF_INTEGERS(RF_SAME, rf_rtn)
RF_FLOATS(RF_UNARY, rf_rte, rint)
RF_FLOATS(RF_UNARY, rf_rtz, trunc)
RF_FLOATS(RF_UNARY, rf_rtp, ceil)
RF_FLOATS(RF_UNARY, rf_rtn, floor)

// Mixed forms with a scalar, of float vectors and of integers
#define RF_SCALAR2(V, T, F) RF V F(V x, T y) { return F(x, (V)y); }
#define RF_SCALAR2S(T, F) \
  RF_SCALAR2(T##2, T, F) RF_SCALAR2(T##3, T, F) RF_SCALAR2(T##4, T, F) RF_SCALAR2(T##8, T, F) RF_SCALAR2(T##16, T, F)
#define RF_MIXED(T) RF_SCALAR2S(T, min) RF_SCALAR2S(T, max)
RF_MIXED(char) RF_MIXED(uchar) RF_MIXED(short) RF_MIXED(ushort) RF_MIXED(int) RF_MIXED(uint) RF_MIXED(long)
RF_MIXED(ulong) RF_MIXED(half) RF_MIXED(float) RF_MIXED(double)
RF_SCALAR2S(half, fmin) RF_SCALAR2S(float, fmin) RF_SCALAR2S(double, fmin)
RF_SCALAR2S(half, fmax) RF_SCALAR2S(float, fmax) RF_SCALAR2S(double, fmax)
#define RF_SCALAR3(V, T, F) RF V F(V x, T y, T z) { return F(x, (V)y, (V)z); }
#define RF_CLAMPS(T) \
  RF_SCALAR3(T##2, T, clamp) RF_SCALAR3(T##3, T, clamp) RF_SCALAR3(T##4, T, clamp) RF_SCALAR3(T##8, T, clamp) \
  RF_SCALAR3(T##16, T, clamp)
RF_FLOATS(RF_CLAMP, )
RF_CLAMPS(char) RF_CLAMPS(uchar) RF_CLAMPS(short) RF_CLAMPS(ushort) RF_CLAMPS(int) RF_CLAMPS(uint) RF_CLAMPS(long)
RF_CLAMPS(ulong) RF_CLAMPS(half) RF_CLAMPS(float) RF_CLAMPS(double)

#define RF_COMMON(T, ...) \
  RF T fdim(T x, T y) { return x != x ? x : y != y ? y : x > y ? x - y : (T)0; } \
  RF T maxmag(T x, T y) { T a = fabs(x), b = fabs(y); return a > b ? x : b > a ? y : fmax(x, y); } \
  RF T minmag(T x, T y) { T a = fabs(x), b = fabs(y); return a < b ? x : b < a ? y : fmin(x, y); } \
  RF T sign(T x) { return x != x ? (T)0 : x > (T)0 ? (T)1 : x < (T)0 ? (T)-1 : x; } \
  RF T degrees(T x) { return x * (T)(180 / M_PI); } \
  RF T radians(T x) { return x * (T)(M_PI / 180); } \
  RF T mix(T x, T y, T a) { return x + (y - x) * a; } \
  RF T step(T edge, T x) { return x < edge ? (T)0 : (T)1; } \
  RF T smoothstep(T low, T high, T x) { \
    T t = clamp((x - low) / (high - low), (T)0, (T)1); \
    return t * t * ((T)3 - (T)2 * t); \
  }
RF_FLOATS(RF_COMMON, )
#define RF_MIXES(V, T) \
  RF V mix(V x, V y, T a) { return mix(x, y, (V)a); } \
  RF V step(T edge, V x) { return step((V)edge, x); } \
  RF V smoothstep(T low, T high, V x) { return smoothstep((V)low, (V)high, x); }
#define RF_MIXES_ALL(T) RF_MIXES(T##2, T) RF_MIXES(T##3, T) RF_MIXES(T##4, T) RF_MIXES(T##8, T) RF_MIXES(T##16, T)
RF_MIXES_ALL(half)
RF_MIXES_ALL(float)
RF_MIXES_ALL(double)

// Geometry, for up to four components. The squares of half are summed in float and those of float in double, where
// they neither overflow nor vanish; double is first multiplied by a power of two. The fast_ forms do without.

#define RF_PRODUCTS(T) \
  RF T dot(T x, T y) { return x * y; } \
  RF T dot(T##2 x, T##2 y) { return fma(x.s1, y.s1, x.s0 * y.s0); } \
  RF T dot(T##3 x, T##3 y) { return fma(x.s2, y.s2, dot(x.s01, y.s01)); } \
  RF T dot(T##4 x, T##4 y) { return fma(x.s3, y.s3, dot(x.s012, y.s012)); } \
  RF T##3 cross(T##3 x, T##3 y) { return x.s120 * y.s201 - x.s201 * y.s120; } \
  RF T##4 cross(T##4 x, T##4 y) { return (T##4)(cross(x.s012, y.s012), (T)0); }
RF_PRODUCTS(half)
RF_PRODUCTS(float)
RF_PRODUCTS(double)

RF double rf_largest(double2 x) { return fmax(fabs(x.s0), fabs(x.s1)); }
RF double rf_largest(double3 x) { return fmax(rf_largest(x.s01), fabs(x.s2)); }
RF double rf_largest(double4 x) { return fmax(rf_largest(x.lo), rf_largest(x.hi)); }

// What has the same direction: beside an infinite component, finite ones are zero.
#define RF_DIRECTION(V) \
  RF V rf_direction(V x) { return isinf(x) ? copysign((V)1, x) : isinf(dot(x, x)) ? x * 0 : x; }
RF_DIRECTION(float2) RF_DIRECTION(float3) RF_DIRECTION(float4)
RF_DIRECTION(double2) RF_DIRECTION(double3) RF_DIRECTION(double4)

#define RF_GEOMETRY(V, T) \
  RF T distance(V x, V y) { return length(x - y); } \
  RF T fast_length(V x) { return sqrt(dot(x, x)); } \
  RF T fast_distance(V x, V y) { return fast_length(x - y); } \
  RF V fast_normalize(V x) { T n = fast_length(x); return n == (T)0 ? x : x / n; }
#define RF_GEOMETRY_SCALAR(T) \
  RF T length(T x) { return fabs(x); } \
  RF T normalize(T x) { return x == (T)0 || x != x ? x : copysign((T)1, x); } \
  RF_GEOMETRY(T, T)
#define RF_GEOMETRY_WIDE(V, T, W, S) \
  RF T length(V x) { W w = __builtin_convertvector(x, W); return (T)sqrt(dot(w, w)); } \
  RF V normalize(V x) { \
    W w = rf_direction(__builtin_convertvector(x, W)); \
    S square = dot(w, w); \
    return square == 0 ? x : __builtin_convertvector(w * (1 / sqrt(square)), V); \
  } \
  RF_GEOMETRY(V, T)
#define RF_GEOMETRY_SCALED(V) \
  RF double length(V x) { \
    double largest = rf_largest(x); \
    int large = largest > 0x1p500, small = largest < 0x1p-400; \
    x *= large ? 0x1p-600 : small ? 0x1p600 : 1; \
    return sqrt(dot(x, x)) * (large ? 0x1p600 : small ? 0x1p-600 : 1); \
  } \
  RF V normalize(V x) { \
    double largest = rf_largest(x); \
    V w = rf_direction(x * (largest > 0x1p500 ? 0x1p-600 : largest < 0x1p-400 ? 0x1p600 : 1)); \
    double square = dot(w, w); \
    return square == 0 ? x : w / sqrt(square); \
  } \
  RF_GEOMETRY(V, double)
RF_GEOMETRY_SCALAR(half)
RF_GEOMETRY_SCALAR(float)
RF_GEOMETRY_SCALAR(double)
RF_GEOMETRY_WIDE(half2, half, float2, float)
RF_GEOMETRY_WIDE(half3, half, float3, float)
RF_GEOMETRY_WIDE(half4, half, float4, float)
RF_GEOMETRY_WIDE(float2, float, double2, double)
RF_GEOMETRY_WIDE(float3, float, double3, double)
RF_GEOMETRY_WIDE(float4, float, double4, double)
RF_GEOMETRY_SCALED(double2)
RF_GEOMETRY_SCALED(double3)
RF_GEOMETRY_SCALED(double4)

// Mathematical functions, evaluated in double. rf_ functions are the cores. A number that is split into a sum
// of two has the smaller part in a second variable.

#define RF_CORE __attribute__((always_inline)) static inline

RF_CORE double rf_power2(long n) { return __builtin_astype((ulong)(n + 1023) << 52, double); }

// x * 2^n for any n, rounded once.
RF_CORE double rf_ldexp(double x, int n) {
  if (n > 1023) {
    x *= 0x1p1023;
    n -= 1023;
    if (n > 1023) {
      x *= 0x1p1023;
      n = min(n - 1023, 1023);
    }
  } else if (n < -1022) {
    x *= 0x1p-969;
    n += 969;
    if (n < -1022) {
      x *= 0x1p-969;
      n = max(n + 969, -1022);
    }
  }
  return x * rf_power2(n);
}

// x = m * 2^e with 0.5 <= |m| < 1; zero, infinity and NaN are their own m.
RF_CORE double rf_frexp(double x, int *e) {
  *e = 0;
  if (x == 0 || !(fabs(x) < (double)INFINITY)) return x;
  int shift = 0;
  if (fabs(x) < DBL_MIN) {
    x *= 0x1p54;
    shift = 54;
  }
  ulong bits = __builtin_astype(x, ulong);
  *e = (int)(bits >> 52 & 0x7ff) - 1022 - shift;
  return __builtin_astype((bits & 0x800fffffffffffffUL) | 0x3fe0000000000000UL, double);
}

// e^(r0 + low0) - 1 for |r0| <= 0.35
RF_CORE double rf_exp_small(double r0, double low0) {
  double r = r0 + low0, low = (r0 - r) + low0;
  double p = 1.0 / 6227020800;
  p = fma(p, r, 1.0 / 479001600);
  p = fma(p, r, 1.0 / 39916800);
  p = fma(p, r, 1.0 / 3628800);
  p = fma(p, r, 1.0 / 362880);
  p = fma(p, r, 1.0 / 40320);
  p = fma(p, r, 1.0 / 5040);
  p = fma(p, r, 1.0 / 720);
  p = fma(p, r, 1.0 / 120);
  p = fma(p, r, 1.0 / 24);
  p = fma(p, r, 1.0 / 6);
  p = fma(p, r, 0.5);
  return r + fma(r * r, p, low);
}

// e^(x + low); low is small beside x
RF_CORE double rf_exp_sum(double x, double low) {
  if (x != x) return x;
  if (x > 710) return (double)INFINITY;
  if (x < -746) return 0;
  double k = rint(x * M_LOG2E);
  double r = fma(-k, M_LN2, x);
  return rf_ldexp(1 + rf_exp_small(r, fma(-k, 0x1.abc9e3b39803fp-56, low)), (int)k);
}

RF_CORE double rf_exp(double x) { return rf_exp_sum(x, 0); }

RF_CORE double rf_exp2(double x) {
  if (x != x) return x;
  if (x >= 1024) return (double)INFINITY;
  if (x < -1076) return 0;
  double k = rint(x), f = x - k, r = f * M_LN2;
  double low = fma(f, M_LN2, -r) + f * 0x1.abc9e3b39803fp-56;
  return rf_ldexp(1 + rf_exp_small(r, low), (int)k);
}

RF_CORE double rf_exp10(double x) {
  if (x != x) return x;
  if (x > 309) return (double)INFINITY;
  if (x < -325) return 0;
  double k = rint(x * 0x1.a934f0979a371p+1);
  double f = fma(-k, 0x1.34413509f79ffp-2, x), f_low = k * 0x1.9dc1da994fd21p-59, r = f * M_LN10;
  double low = fma(f, M_LN10, -r) + fma(f, -0x1.f48ad494ea3e9p-53, f_low * M_LN10);
  return rf_ldexp(1 + rf_exp_small(r, low), (int)k);
}

RF_CORE double rf_expm1(double x) {
  if (fabs(x) < 0.34) return rf_exp_small(x, 0);
  if (!(fabs(x) < 40)) return x < 0 ? -1 : rf_exp(x);
  double k = rint(x * M_LOG2E), scale = rf_power2((long)k);
  return fma(rf_exp_small(fma(-k, M_LN2, x), -k * 0x1.abc9e3b39803fp-56), scale, scale - 1);
}

// x = m * 2^e with m in [sqrt(1/2), sqrt(2)), for positive x
RF_CORE double rf_normalize(double x, int *e) {
  double m = rf_frexp(x, e);
  if (m < M_SQRT1_2) {
    m *= 2;
    *e -= 1;
  }
  return m;
}

// The series of (2 atanh(s) - 2 s - 2/3 s^3) / s^5 in z = s * s, for z <= 0.03
RF_CORE double rf_atanh_series(double z) {
  double p = 2.0 / 23;
  p = fma(p, z, 2.0 / 21);
  p = fma(p, z, 2.0 / 19);
  p = fma(p, z, 2.0 / 17);
  p = fma(p, z, 2.0 / 15);
  p = fma(p, z, 2.0 / 13);
  p = fma(p, z, 2.0 / 11);
  p = fma(p, z, 2.0 / 9);
  p = fma(p, z, 2.0 / 7);
  return fma(p, z, 2.0 / 5);
}

// log(x) as a sum, for positive finite x: 2 atanh(s) + e * log(2), of which the first two terms are kept exactly
RF_CORE double rf_log_sum(double x, double *low) {
  int e;
  double m = rf_normalize(x, &e), f = m - 1, d = m + 1, d_low = f - (d - 2);
  double s = f / d, s_low = (fma(-s, d, f) - s * d_low) / d;
  double z = s * s, z_low = fma(s, s, -z), t = z * s, t_low = fma(z, s, -t) + z_low * s;
  double u = t * 0x1.5555555555555p-1;
  double u_low = fma(t, 0x1.5555555555555p-1, -u) + fma(t, 0x1.5555555555555p-55, t_low * (2.0 / 3));
  double a = 2 * s + u, a_low = (2 * s - a) + u + (u_low + fma(2 * z, s_low, 2 * s_low));
  double h = e * M_LN2, h_low = fma(e, M_LN2, -h) + e * 0x1.abc9e3b39803fp-56;
  double sum = h + a, other = e ? a - (sum - h) : 0;
  double rest = fma(z * t, rf_atanh_series(z), a_low) + (other + h_low);
  double high = sum + rest;
  *low = rest - (high - sum);
  return high;
}

RF_CORE double rf_log(double x) {
  if (x != x || x < 0) return x < 0 ? (double)NAN : x;
  if (x == 0) return -(double)INFINITY;
  if (x == (double)INFINITY) return x;
  double low, high = rf_log_sum(x, &low);
  return high + low;
}

// log(m) * (c + c_low) + e * (k + k_low)
RF_CORE double rf_log_base(double x, double c, double c_low, double k, double k_low) {
  if (x != x || x < 0) return x < 0 ? (double)NAN : x;
  if (x == 0) return -(double)INFINITY;
  if (x == (double)INFINITY) return x;
  int e;
  double m = rf_normalize(x, &e), low, high = rf_log_sum(m, &low);
  double p = high * c, p_low = fma(high, c, -p) + fma(high, c_low, low * c), h = e * k;
  double sum = h + p, other = e ? p - (sum - h) : 0;
  return sum + (other + p_low + fma(e, k, -h) + e * k_low);
}

RF_CORE double rf_log2(double x) { return rf_log_base(x, M_LOG2E, 0x1.777d0ffda0d24p-56, 1, 0); }
RF_CORE double rf_log10(double x) {
  return rf_log_base(x, M_LOG10E, 0x1.95355baaafad3p-57, 0x1.34413509f79ffp-2, -0x1.9dc1da994fd21p-59);
}

RF_CORE double rf_log1p(double x) {
  if (!(x > -1) || x == (double)INFINITY) return x == -1 ? -(double)INFINITY : x < -1 ? (double)NAN : x;
  double u = 1 + x, lost = fabs(x) < 1 ? x - (u - 1) : 1 - (u - x), low;
  if (u == 1) return x;
  double high = rf_log_sum(u, &low);
  return high + (low + lost / u);
}

// The 1280 bits after the point of 2/pi, after a word of zeros
__constant const ulong rf_two_over_pi[21] = {
    0,
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561, 0xb7246e3a424dd2e0,
    0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41, 0x3991d639835339f4,
    0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d,
    0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab, 0xf0cfbc209af4361d};

// x = r + low + n * pi/2, for |x| >= 2^30: the product of the mantissa with the bits of 2/pi that matter (Payne and
// Hanek). Of the 192 bits that are kept, the top 2 are the quadrant and at least 137 of the rest are exact.
RF_CORE double rf_reduce_large(double x, double *low, int *n) {
  ulong bits = __builtin_astype(x, ulong), m = (bits & 0xfffffffffffffUL) | 0x10000000000000UL;
  uint place = (uint)(bits >> 52 & 0x7ff) - 1075 - 2 + 64, word = place >> 6, shift = place & 63;
  ulong f[3];
  for (int i = 0; i < 3; i++) {
    ulong next = shift ? rf_two_over_pi[word + i + 1] >> (64 - shift) : 0;
    f[i] = rf_two_over_pi[word + i] << shift | next;
  }
  ulong p0 = m * f[2], p1 = m * f[1], h0 = mul_hi(m, f[2]), h1 = mul_hi(m, f[1]);
  p1 += h0;
  h1 += p1 < h0;
  ulong p2 = m * f[0] + h1;
  ulong high = p2 << 2 | p1 >> 62, rest = p1 << 2 | p0 >> 62;
  int quadrant = (int)(p2 >> 62) + (int)(high >> 63), negative = high >> 63 != 0;
  if (negative) {
    rest = ~rest + 1;
    high = ~high + (rest == 0);
  }
  int zeros = high ? (int)clz(high) : 64 + (int)clz(rest | 1);
  ulong top = zeros < 64 ? high << zeros | (zeros ? rest >> (64 - zeros) : 0) : rest << (zeros - 64);
  double t = (double)(top >> 11 << 11), t_low = (double)(top & 0x7ff), scale = rf_power2(-64 - zeros);
  double r = t * M_PI_2, r_low = fma(t, M_PI_2, -r) + fma(t, 0x1.1a62633145c07p-54, t_low * M_PI_2);
  if (negative != (x < 0)) scale = -scale;
  *n = x < 0 ? -quadrant : quadrant;
  *low = r_low * scale;
  return r * scale;
}

// x = r + low + n * pi/2 with |r| <= pi/4
RF_CORE double rf_reduce(double x, double *low, int *n) {
  if (fabs(x) >= 0x1p30) return rf_reduce_large(x, low, n);
  double k = rint(x * M_2_PI), r = fma(-k, M_PI_2, x);
  double w = k * 0x1.1a62633145c07p-54, w_low = fma(k, 0x1.1a62633145c07p-54, -w);
  double high = r - w;
  *low = ((r - high) - w) - (w_low + k * -0x1.f1976b7ed8fbcp-110);
  *n = (int)k;
  return high;
}

RF_CORE double rf_sin_small(double r, double low) {
  double z = r * r, p = 1.0 / 355687428096000;
  p = fma(p, z, -1.0 / 1307674368000);
  p = fma(p, z, 1.0 / 6227020800);
  p = fma(p, z, -1.0 / 39916800);
  p = fma(p, z, 1.0 / 362880);
  p = fma(p, z, -1.0 / 5040);
  p = fma(p, z, 1.0 / 120);
  p = fma(p, z, -1.0 / 6);
  return r + fma(z * r, p, fma(-0.5 * z, low, low));
}

RF_CORE double rf_cos_small(double r, double low) {
  double z = r * r, p = 1.0 / 20922789888000;
  p = fma(p, z, -1.0 / 87178291200);
  p = fma(p, z, 1.0 / 479001600);
  p = fma(p, z, -1.0 / 3628800);
  p = fma(p, z, 1.0 / 40320);
  p = fma(p, z, -1.0 / 720);
  p = fma(p, z, 1.0 / 24);
  double h = 0.5 * z, w = 1 - h;
  return w + (((1 - w) - h) + fma(z * z, p, -r * low));
}

// sin and cos of r + low + n * pi/2
RF_CORE double rf_quadrant(double r, double low, int n, double *cosine) {
  double s = rf_sin_small(r, low), c = rf_cos_small(r, low);
  double sine = n & 1 ? c : s, other = n & 1 ? s : c;
  *cosine = (n + 1) & 2 ? -other : other;
  return n & 2 ? -sine : sine;
}

RF_CORE double rf_sincos(double x, double *cosine) {
  if (!(fabs(x) < (double)INFINITY)) {
    *cosine = (double)NAN;
    return (double)NAN;
  }
  double low;
  int n;
  double r = rf_reduce(x, &low, &n);
  return x == 0 ? (*cosine = 1, x) : rf_quadrant(r, low, n, cosine);
}

// sin and cos of pi * x
RF_CORE double rf_sincospi(double x, double *cosine) {
  if (!(fabs(x) < (double)INFINITY)) {
    *cosine = (double)NAN;
    return (double)NAN;
  }
  double y = x - 2 * rint(0.5 * x), k = rint(2 * y), f = fma(-0.5, k, y);
  double r = f * M_PI, low = fma(f, M_PI, -r) + f * 0x1.1a62633145c07p-53;
  return rf_quadrant(r, low, (int)k, cosine);
}

RF_CORE double rf_sin(double x) { double c; return rf_sincos(x, &c); }
RF_CORE double rf_cos(double x) { double c; rf_sincos(x, &c); return c; }
RF_CORE double rf_tan(double x) { double c, s = rf_sincos(x, &c); return s / c; }
RF_CORE double rf_sinpi(double x) {
  double c, s = rf_sincospi(x, &c);
  return s == 0 ? copysign(0.0, x) : s;
}
RF_CORE double rf_cospi(double x) {
  double c;
  rf_sincospi(x, &c);
  return c == 0 ? 0.0 : c;
}
RF_CORE double rf_tanpi(double x) {
  double c, s = rf_sincospi(x, &c);
  if (s == 0) return copysign(0.0, c < 0 ? -x : x);
  return s / (c == 0 ? 0.0 : c);
}

// atan(t + low) for 0 <= t <= 1: the nearest of 0, 1/2 and 1 is taken away with the addition theorem.
RF_CORE double rf_atan_unit(double t, double t_low) {
  double base = 0, base_low = 0;
  if (t > 0.75) {
    double d = 1 + t, q = (t - 1) / d;
    t_low = (fma(-q, d, t - 1) - q * (t - (d - 1)) + t_low * (1 - q)) / d;
    t = q;
    base = M_PI_4;
    base_low = 0x1.1a62633145c07p-55;
  } else if (t > 0.25) {
    double n = t - 0.5, d = fma(0.5, t, 1), q = n / d;
    t_low = (fma(-q, d, n) + t_low * fma(-0.5, q, 1)) / d;
    t = q;
    base = 0x1.dac670561bb4fp-2;
    base_low = 0x1.a2b7f222f65e2p-56;
  }
  double z = t * t, p = -1.0 / 27;
  p = fma(p, z, 1.0 / 25);
  p = fma(p, z, -1.0 / 23);
  p = fma(p, z, 1.0 / 21);
  p = fma(p, z, -1.0 / 19);
  p = fma(p, z, 1.0 / 17);
  p = fma(p, z, -1.0 / 15);
  p = fma(p, z, 1.0 / 13);
  p = fma(p, z, -1.0 / 11);
  p = fma(p, z, 1.0 / 9);
  p = fma(p, z, -1.0 / 7);
  p = fma(p, z, 1.0 / 5);
  p = fma(p, z, -1.0 / 3);
  return base + (t + (fma(z * t, p, t_low) + base_low));
}

// The angle of a point whose coordinates have a factor in common
RF_CORE double rf_atan2(double y, double x) {
  if (x != x || y != y) return (double)NAN;
  double a = fabs(x), b = fabs(y), angle;
  if (b == 0) {
    angle = 0;
  } else if (a == b) {
    angle = M_PI_4;
  } else if (a > b) {
    double t = a == (double)INFINITY ? 0 : b / a;
    angle = rf_atan_unit(t, t < 0x1p-900 ? 0 : fma(-t, a, b) / a);
  } else {
    double t = b == (double)INFINITY ? 0 : a / b;
    double inner = rf_atan_unit(t, t < 0x1p-900 ? 0 : fma(-t, b, a) / b);
    angle = M_PI_2 - (inner - 0x1.1a62633145c07p-54);
  }
  if (signbit(x)) angle = M_PI - (angle - 0x1.1a62633145c07p-53);
  return copysign(angle, y);
}

RF_CORE double rf_atan(double x) { return x == 0 ? x : rf_atan2(x, 1); }
RF_CORE double rf_asin(double x) { return fabs(x) < 0x1p-27 ? x : rf_atan2(x, sqrt((1 - x) * (1 + x))); }
RF_CORE double rf_acos(double x) { return 2 * rf_atan2(sqrt(1 - x), sqrt(1 + x)); }
RF_CORE double rf_atan2pi(double y, double x) { return rf_atan2(y, x) * M_1_PI; }
RF_CORE double rf_atanpi(double x) { return rf_atan(x) * M_1_PI; }
RF_CORE double rf_asinpi(double x) { return rf_asin(x) * M_1_PI; }
RF_CORE double rf_acospi(double x) { return rf_acos(x) * M_1_PI; }

RF_CORE double rf_sinh(double x) {
  double a = fabs(x);
  if (a < 1) {
    double z = x * x, p = 1.0 / 121645100408832000;
    p = fma(p, z, 1.0 / 355687428096000);
    p = fma(p, z, 1.0 / 1307674368000);
    p = fma(p, z, 1.0 / 6227020800);
    p = fma(p, z, 1.0 / 39916800);
    p = fma(p, z, 1.0 / 362880);
    p = fma(p, z, 1.0 / 5040);
    p = fma(p, z, 1.0 / 120);
    p = fma(p, z, 1.0 / 6);
    return x + z * x * p;
  }
  double half_e = a > 709 ? rf_exp_sum(a - M_LN2, -0x1.abc9e3b39803fp-56) : 0.5 * rf_exp(a);
  return copysign(a > 709 ? half_e : half_e - 0.25 / half_e, x);
}
RF_CORE double rf_cosh(double x) {
  double a = fabs(x);
  if (a > 709) return rf_exp_sum(a - M_LN2, -0x1.abc9e3b39803fp-56);
  double half_e = 0.5 * rf_exp(a);
  return half_e + 0.25 / half_e;
}
RF_CORE double rf_tanh(double x) {
  double a = fabs(x);
  if (a > 22) return copysign(1.0, x);
  double t = rf_expm1(2 * a);
  return x == 0 ? x : copysign(t / (t + 2), x);
}
RF_CORE double rf_asinh(double x) {
  double a = fabs(x);
  if (!(a < 0x1p28)) return copysign(rf_log(a) + M_LN2, x);
  return copysign(rf_log1p(a + a * a / (1 + sqrt(fma(a, a, 1)))), x);
}
RF_CORE double rf_acosh(double x) {
  if (x > 0x1p28) return rf_log(x) + M_LN2;
  double t = x - 1;
  return x < 1 ? (double)NAN : rf_log1p(t + sqrt(fma(t, t, 2 * t)));
}
RF_CORE double rf_atanh(double x) {
  double a = fabs(x);
  return copysign(0.5 * rf_log1p(2 * a / (1 - a)), x);
}

RF_CORE double rf_rsqrt(double x) { return 1 / sqrt(x); }
RF_CORE double rf_cbrt(double x) {
  double a = fabs(x);
  if (x == 0 || !(a < (double)INFINITY)) return x;
  int e;
  double m = rf_frexp(a, &e);
  int third = (e + 3000) / 3 - 1000;
  m = rf_ldexp(m, e - 3 * third);
  double y = rf_exp(rf_log(m) / 3);
  y -= fma(y * y, y, -m) / (3 * y * y);
  return copysign(rf_ldexp(y, third), x);
}

RF_CORE double rf_hypot(double x, double y) {
  double a = fabs(x), b = fabs(y);
  if (a == (double)INFINITY || b == (double)INFINITY) return (double)INFINITY;
  if (a != a || b != b) return (double)NAN;
  double big = fmax(a, b), small = fmin(a, b);
  if (big == 0) return 0;
  int e;
  rf_frexp(big, &e);
  big = rf_ldexp(big, -e);
  small = rf_ldexp(small, -e);
  double h = sqrt(fma(big, big, small * small));
  double square = h * h, excess = fma(h, h, -square) + ((square - big * big) - fma(big, big, -big * big));
  double s2 = small * small;
  h -= (excess - s2 - fma(small, small, -s2)) / (2 * h);
  return rf_ldexp(h, e);
}

// |x|^y for positive finite x
RF_CORE double rf_pow_positive(double x, double y) {
  double low, high = rf_log_sum(x, &low);
  double p = y * high;
  if (!(fabs(p) < 800)) return p > 0 ? (double)INFINITY : 0;
  return rf_exp_sum(p, fma(y, high, -p) + y * low);
}

RF_CORE int rf_is_odd(double y) { return fabs(y) < 0x1p53 && trunc(y) == y && ((long)y & 1); }

RF_CORE double rf_pow(double x, double y) {
  if (y == 0 || x == 1) return 1;
  if (x != x || y != y) return (double)NAN;
  double a = fabs(x);
  double sign = x < 0 || (x == 0 && signbit(x)) ? (rf_is_odd(y) ? -1.0 : 1.0) : 1.0;
  if (fabs(y) == (double)INFINITY) {
    if (a == 1) return 1;
    return (a > 1) == (y > 0) ? (double)INFINITY : 0;
  }
  if (a == 0) return y < 0 ? sign * (double)INFINITY : sign * 0.0;
  if (a == (double)INFINITY) return y < 0 ? sign * 0.0 : sign * (double)INFINITY;
  if (x < 0 && trunc(y) != y) return (double)NAN;
  return sign * rf_pow_positive(a, y);
}

RF_CORE double rf_powr(double x, double y) {
  if (x != x || y != y || x < 0) return (double)NAN;
  double infinity = (double)INFINITY;
  if ((x == 0 || x == infinity) ? y == 0 : x == 1 && fabs(y) == infinity) return (double)NAN;
  return x == 0 ? (y < 0 ? (double)INFINITY : 0) : rf_pow(x, y);
}

RF_CORE double rf_rootn(double x, int n) {
  if (n == 0 || (x < 0 && !(n & 1))) return (double)NAN;
  double a = fabs(x), r;
  if (a == 0 || a == (double)INFINITY) {
    r = (a == 0) == (n > 0) ? 0 : (double)INFINITY;
  } else {
    double low, high = rf_log_sum(a, &low), q = high / n;
    r = rf_exp_sum(q, (fma(-q, n, high) + low) / n);
  }
  return n & 1 ? copysign(r, x) : r;
}

// erf by a series of positive terms up to 1.5, erfc from 0.85 on by the continued fraction
RF_CORE double rf_erf_series(double x) {
  double z = x * x, sum = 1;
  for (int n = 64; n > 0; n--) sum = fma(2 * z / (2 * n + 1), sum, 1);
  return M_2_SQRTPI * x * (rf_exp_sum(-z, -fma(x, x, -z)) * sum);
}
RF_CORE double rf_erfc_fraction(double x, int terms) {
  double d = x;
  for (int n = terms; n > 0; n--) d = x + 0.5 * n / d;
  double z = x * x;
  return rf_exp_sum(-z, -fma(x, x, -z)) / d * (0.5 * M_2_SQRTPI);
}
RF_CORE double rf_erf(double x) {
  double a = fabs(x);
  if (a != a) return x;
  return a < 1.5 ? rf_erf_series(x) : copysign(a > 6 ? 1 : 1 - rf_erfc_fraction(a, 160), x);
}
RF_CORE double rf_erfc(double x) {
  if (x != x) return x;
  if (x < 0.85) return 1 - rf_erf(x);
  return x > 28 ? 0 : rf_erfc_fraction(x, x < 1 ? 600 : x < 1.5 ? 360 : x < 2 ? 160 : 80);
}

// |x| = |y| * q + r with 0 <= r < |y|; the low bits of q go to quotient
RF_CORE double rf_divide(double x, double y, ulong *quotient) {
  *quotient = 0;
  if (x != x || y != y || !(fabs(x) < (double)INFINITY) || y == 0) return (double)NAN;
  if (fabs(x) < fabs(y)) return fabs(x);
  int ex, ey;
  double mx = rf_frexp(fabs(x), &ex), my = rf_frexp(fabs(y), &ey);
  ulong a = (ulong)(mx * 0x1p53), b = (ulong)(my * 0x1p53), q = 0;
  for (int n = ex - ey; n >= 0; n--) {
    q <<= 1;
    if (a >= b) {
      a -= b;
      q |= 1;
    }
    if (n) a <<= 1;
  }
  *quotient = q;
  return rf_ldexp((double)a, ey - 53);
}

RF_CORE double rf_fmod(double x, double y) {
  ulong q;
  return copysign(rf_divide(x, y, &q), x);
}

RF_CORE double rf_remquo(double x, double y, int *quotient) {
  ulong q;
  double r = rf_divide(x, y, &q), b = fabs(y);
  if (b < (double)INFINITY && (r > b - r || (r == b - r && (q & 1)))) {
    r -= b;
    q++;
  }
  int low = (int)(q & 0x7f);
  *quotient = signbit(x) != signbit(y) ? -low : low;
  return signbit(x) ? -r : r == 0 ? copysign(r, x) : r;
}
RF_CORE double rf_remainder(double x, double y) { int q; return rf_remquo(x, y, &q); }

RF_CORE int rf_ilogb(double x) {
  if (x == 0) return FP_ILOGB0;
  if (!(fabs(x) < (double)INFINITY)) return x != x ? FP_ILOGBNAN : INT_MAX;
  int e;
  rf_frexp(x, &e);
  return e - 1;
}
RF_CORE double rf_logb(double x) {
  if (x == 0) return -(double)INFINITY;
  return fabs(x) < (double)INFINITY ? rf_ilogb(x) : x * x;
}

// From the cores to all types

#define RF_MATH1_OF(T, F) \
  RF T F(T x) { return (T)rf_##F((double)x); } \
  RF_MAP1(T, T, F)
#define RF_MATH1(F) RF_MATH1_OF(float, F) RF_MATH1_OF(double, F) RF_MATH1_OF(half, F)
RF_MATH1(exp)
RF_MATH1(exp2)
RF_MATH1(exp10)
RF_MATH1(expm1)
RF_MATH1(log)
RF_MATH1(log2)
RF_MATH1(log10)
RF_MATH1(log1p)
RF_MATH1(sin)
RF_MATH1(cos)
RF_MATH1(tan)
RF_MATH1(sinpi)
RF_MATH1(cospi)
RF_MATH1(tanpi)
RF_MATH1(asin)
RF_MATH1(acos)
RF_MATH1(atan)
RF_MATH1(asinpi)
RF_MATH1(acospi)
RF_MATH1(atanpi)
RF_MATH1(sinh)
RF_MATH1(cosh)
RF_MATH1(tanh)
RF_MATH1(asinh)
RF_MATH1(acosh)
RF_MATH1(atanh)
RF_MATH1(cbrt)
RF_MATH1_OF(float, rsqrt)
RF_MATH1_OF(double, rsqrt)
RF half rsqrt(half x) { return (half)(1 / sqrt((float)x)); }
RF_MAP1(half, half, rsqrt)
RF_MATH1(erf)
RF_MATH1(erfc)
RF_MATH1(logb)

#define RF_MATH2_OF(T, F) \
  RF T F(T x, T y) { return (T)rf_##F((double)x, (double)y); } \
  RF_MAP2(T, T, T, F)
#define RF_MATH2(F) RF_MATH2_OF(float, F) RF_MATH2_OF(double, F) RF_MATH2_OF(half, F)
RF_MATH2(atan2)
RF_MATH2(atan2pi)
RF_MATH2(fmod)
RF_MATH2(hypot)
RF_MATH2(pow)
RF_MATH2(powr)
RF_MATH2(remainder)

#define RF_MATH2I(T) \
  RF T ldexp(T x, int n) { return (T)rf_ldexp((double)x, n); } \
  RF T pown(T x, int n) { return (T)rf_pow((double)x, (double)n); } \
  RF T rootn(T x, int n) { return (T)rf_rootn((double)x, n); } \
  RF int ilogb(T x) { return rf_ilogb((double)x); } \
  RF_MAP2(T, T, int, ldexp) \
  RF_MAP2(T, T, int, pown) \
  RF_MAP2(T, T, int, rootn) \
  RF_MAP1(int, T, ilogb) \
  RF T##2 ldexp(T##2 x, int n) { return ldexp(x, (int2)n); } \
  RF T##3 ldexp(T##3 x, int n) { return ldexp(x, (int3)n); } \
  RF T##4 ldexp(T##4 x, int n) { return ldexp(x, (int4)n); } \
  RF T##8 ldexp(T##8 x, int n) { return ldexp(x, (int8)n); } \
  RF T##16 ldexp(T##16 x, int n) { return ldexp(x, (int16)n); }
RF_MATH2I(float)
RF_MATH2I(double)
RF_MATH2I(half)

// Two results
#define RF_RESULTS2(T, LIMIT) \
  RF T sincos(T x, T *c) { double d, s = rf_sincos((double)x, &d); *c = (T)d; return (T)s; } \
  RF T frexp(T x, int *e) { return (T)rf_frexp((double)x, e); } \
  RF T modf(T x, T *whole) { \
    T w = trunc(x); \
    *whole = w; \
    return copysign(fabs(x) == (T)INFINITY ? (T)0 : x - w, x); \
  } \
  RF T fract(T x, T *whole) { \
    T w = floor(x); \
    *whole = w; \
    return fabs(x) == (T)INFINITY ? copysign((T)0, x) : x != x ? x : fmin(x - w, (T)LIMIT); \
  } \
  RF T remquo(T x, T y, int *q) { return (T)rf_remquo((double)x, (double)y, q); } \
  RF_MAP2P(T, T, int, remquo) \
  RF_MAP1P(T, T, T, sincos) RF_MAP1P(T, T, int, frexp) RF_MAP1P(T, T, T, modf) RF_MAP1P(T, T, T, fract)
RF_RESULTS2(float, 0x1.fffffep-1f)
RF_RESULTS2(double, 0x1.fffffffffffffp-1)
RF_RESULTS2(half, 0x1.ffcp-1h)

#define RF_NEXT(T, I, U) \
  RF T nan(U code) { return __builtin_astype((U)(__builtin_astype((T)NAN, U) | code), T); } \
  RF T nextafter(T x, T y) { \
    I step = x == 0 ? 0 : (x < y) == (x > 0) ? 1 : -1; \
    if (x != x || y != y) return (T)NAN; \
    if (x == y) return y; \
    if (x == 0) return copysign(__builtin_astype((I)1, T), y); \
    return __builtin_astype((I)(__builtin_astype(x, I) + step), T); \
  } \
  RF_MAP1(T, U, nan) RF_MAP2(T, T, T, nextafter)
RF_NEXT(float, int, uint)
RF_NEXT(double, long, ulong)
RF_NEXT(half, short, ushort)

// Stores of half. A directed mode starts from one of the two neighbours and steps to the other if that is the wrong one.

#define RF_TO_HALF(T, MODE, STEP, TOWARD) \
  RF half rf_half##MODE(T x) { \
    half h = (half)(float)x; \
    T found = h; \
    return STEP ? nextafter(h, (half)(TOWARD)) : h; \
  } \
  RF_MAP1(half, T, rf_half##MODE)
#define RF_VSTORE_HALF(T, MODE) \
  RF void vstore_half##MODE(T v, size_t i, half *p) { p[i] = rf_half##MODE(v); } \
  RF void vstore_half2##MODE(T##2 v, size_t i, half *p) { vstore2(rf_half##MODE(v), i, p); } \
  RF void vstore_half3##MODE(T##3 v, size_t i, half *p) { vstore3(rf_half##MODE(v), i, p); } \
  RF void vstore_half4##MODE(T##4 v, size_t i, half *p) { vstore4(rf_half##MODE(v), i, p); } \
  RF void vstore_half8##MODE(T##8 v, size_t i, half *p) { vstore8(rf_half##MODE(v), i, p); } \
  RF void vstore_half16##MODE(T##16 v, size_t i, half *p) { vstore16(rf_half##MODE(v), i, p); } \
  RF void vstorea_half2##MODE(T##2 v, size_t i, half *p) { vstore_half2##MODE(v, i, p); } \
  RF void vstorea_half3##MODE(T##3 v, size_t i, half *p) { vstore_half3##MODE(v, 0, p + 4 * i); } \
  RF void vstorea_half4##MODE(T##4 v, size_t i, half *p) { vstore_half4##MODE(v, i, p); } \
  RF void vstorea_half8##MODE(T##8 v, size_t i, half *p) { vstore_half8##MODE(v, i, p); } \
  RF void vstorea_half16##MODE(T##16 v, size_t i, half *p) { vstore_half16##MODE(v, i, p); }
#define RF_NEAREST_HALF(T) \
  RF half rf_half(T x) { return (half)x; } \
  RF half rf_half_rte(T x) { return (half)x; } \
  RF_MAP1(half, T, rf_half) RF_MAP1(half, T, rf_half_rte)
#define RF_HALF_STORES(T) \
  RF_NEAREST_HALF(T) \
  RF_TO_HALF(T, _rtz, fabs(found) > fabs(x), 0) \
  RF_TO_HALF(T, _rtp, found < x, INFINITY) \
  RF_TO_HALF(T, _rtn, found > x, -INFINITY) \
  RF_VSTORE_HALF(T, ) RF_VSTORE_HALF(T, _rte) RF_VSTORE_HALF(T, _rtz) RF_VSTORE_HALF(T, _rtp) RF_VSTORE_HALF(T, _rtn)
RF_HALF_STORES(float)
RF_HALF_STORES(double)

// Elements of one vector or two that a mask chooses

#define RF_SHUFFLE(T, U, N, M) \
  RF T##N shuffle(T##M x, U##N mask) { \
    T##N r; \
    for (int i = 0; i < N; i++) r[i] = x[mask[i] & (M - 1)]; \
    return r; \
  } \
  RF T##N shuffle2(T##M x, T##M y, U##N mask) { \
    T##N r; \
    for (int i = 0; i < N; i++) r[i] = mask[i] & M ? y[mask[i] & (M - 1)] : x[mask[i] & (M - 1)]; \
    return r; \
  }
#define RF_SHUFFLES_OF(T, U, N) \
  RF_SHUFFLE(T, U, N, 2) RF_SHUFFLE(T, U, N, 4) RF_SHUFFLE(T, U, N, 8) RF_SHUFFLE(T, U, N, 16)
#define RF_SHUFFLES(T, U) \
  RF_SHUFFLES_OF(T, U, 2) RF_SHUFFLES_OF(T, U, 4) RF_SHUFFLES_OF(T, U, 8) RF_SHUFFLES_OF(T, U, 16)
RF_SHUFFLES(char, uchar)
RF_SHUFFLES(uchar, uchar)
RF_SHUFFLES(short, ushort)
RF_SHUFFLES(ushort, ushort)
RF_SHUFFLES(half, ushort)
RF_SHUFFLES(int, uint)
RF_SHUFFLES(uint, uint)
RF_SHUFFLES(float, uint)
RF_SHUFFLES(long, ulong)
RF_SHUFFLES(ulong, ulong)
RF_SHUFFLES(double, ulong)

// Copies by the work-items of a group, which are done once wait_group_events() has been a barrier
#ifdef __AMDGPU__
#define RF_COPIES(T, ...) \
  RF event_t async_work_group_copy(T *to, const T *from, size_t n, event_t event) { \
    for (size_t i = get_local_linear_id(); i < n; i += rf_local_count()) to[i] = from[i]; \
    return event; \
  } \
  RF event_t async_work_group_strided_copy( \
      __local T *to, const __global T *from, size_t n, size_t stride, event_t event) { \
    for (size_t i = get_local_linear_id(); i < n; i += rf_local_count()) to[i] = from[i * stride]; \
    return event; \
  } \
  RF event_t async_work_group_strided_copy( \
      __global T *to, const __local T *from, size_t n, size_t stride, event_t event) { \
    for (size_t i = get_local_linear_id(); i < n; i += rf_local_count()) to[i * stride] = from[i]; \
    return event; \
  }
RF size_t rf_local_count(void) { return (uint)get_local_size(0) * (uint)get_local_size(1) * (uint)get_local_size(2); }
RF_INTEGERS(RF_COPIES, )
RF_FLOATS(RF_COPIES, )
RF void wait_group_events(int n, event_t *events) { barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE); }
RF void prefetch(const __global void *p, size_t n) {}
#endif

// Fast forms: the instructions of the hardware, about 1 ulp in their range; half_ is the same.
#ifdef __AMDGPU__
#define RF_FAST1(F, EXPRESSION) \
  RF float native_##F(float x) { return EXPRESSION; } \
  RF_MAP1(float, float, native_##F) \
  RF float half_##F(float x) { return EXPRESSION; } \
  RF_MAP1(float, float, half_##F)
#define RF_FAST2(F, EXPRESSION) \
  RF float native_##F(float x, float y) { return EXPRESSION; } \
  RF_MAP2(float, float, float, native_##F) \
  RF float half_##F(float x, float y) { return EXPRESSION; } \
  RF_MAP2(float, float, float, half_##F)
RF_FAST1(recip, __builtin_amdgcn_rcpf(x))
RF_FAST1(rsqrt, __builtin_amdgcn_rsqf(x))
RF_FAST1(sqrt, __builtin_amdgcn_sqrtf(x))
RF_FAST1(exp2, __builtin_amdgcn_exp2f(x))
RF_FAST1(exp, __builtin_amdgcn_exp2f(x * M_LOG2E_F))
RF_FAST1(exp10, __builtin_amdgcn_exp2f(x * 0x1.a934fp+1f))
RF_FAST1(log2, __builtin_amdgcn_logf(x))
RF_FAST1(log, __builtin_amdgcn_logf(x) * M_LN2_F)
RF_FAST1(log10, __builtin_amdgcn_logf(x) * 0x1.344136p-2f)
RF_FAST1(sin, __builtin_amdgcn_sinf(__builtin_amdgcn_fractf(x * 0x1.45f306p-3f)))
RF_FAST1(cos, __builtin_amdgcn_cosf(__builtin_amdgcn_fractf(x * 0x1.45f306p-3f)))
RF_FAST1(tan, native_sin(x) * native_recip(native_cos(x)))
RF_FAST2(divide, x * __builtin_amdgcn_rcpf(y))
RF_FAST2(powr, __builtin_amdgcn_exp2f(y * __builtin_amdgcn_logf(x)))
#endif

#pragma OPENCL FP_CONTRACT ON
