// Loads of what is read once (weights: past L1, HGP_FETCH bytes asked of memory, evict-first in L2 where HGP_STREAMING)
// and of what every CTA of an SM reads (activations: kept in L1), to registers or by cp.async to shared memory (PTX ISA
// 9.7.9.25.3). Zeros where not `inside`. Plain loads, as load_global16.
#pragma once
#include "common/types.cuh"

#if HGP_STREAMING
#define HGP_HINT ".L2::cache_hint.L2::" HGP_FETCH "B"
#define HGP_HINTED(policy) ", " policy
#else
#define HGP_HINT ".L2::" HGP_FETCH "B"
#define HGP_HINTED(policy) ""
#endif

__device__ __forceinline__ u64 evict_first() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

#define HGP_IF(inside) "{ .reg .pred inside;\nsetp.ne.b32 inside, " inside ", 0;\n@inside "

__device__ __forceinline__ void load_weights(u32 (&to)[2], const u16* p, bool inside, u64 policy) {
  to[0] = to[1] = 0;
  asm volatile(HGP_IF("%3") "ld.global.L1::no_allocate" HGP_HINT ".v2.u32 {%0,%1}, [%2]" HGP_HINTED("%4") "; }"
               : "+r"(to[0]), "+r"(to[1])
               : "l"(p), "r"(static_cast<int>(inside)), "l"(policy)
               : "memory");
}

__device__ __forceinline__ void load_weights(u32 (&to)[4], const u16* p, bool inside, u64 policy) {
  to[0] = to[1] = to[2] = to[3] = 0;
  asm volatile(HGP_IF("%5") "ld.global.L1::no_allocate" HGP_HINT ".v4.u32 {%0,%1,%2,%3}, [%4]" HGP_HINTED("%6") "; }"
               : "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3])
               : "l"(p), "r"(static_cast<int>(inside)), "l"(policy)
               : "memory");
}

__device__ __forceinline__ void load_activations(u32 (&to)[4], const u16* p, bool inside) {
  to[0] = to[1] = to[2] = to[3] = 0;
  asm volatile(HGP_IF("%5") "ld.global.L1::evict_last.v4.u32 {%0,%1,%2,%3}, [%4]; }"
               : "+r"(to[0]), "+r"(to[1]), "+r"(to[2]), "+r"(to[3])
               : "l"(p), "r"(static_cast<int>(inside))
               : "memory");
}

// Only 16 bytes can pass L1. Fewer go without the policy: ptxas 13.0.88 gives some of those a descriptor in an odd
// uniform register, an illegal instruction on an H200.
template <int kBytes>
__device__ __forceinline__ void send_weights(u32 to, const u16* p, bool inside, u64 policy) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global" HGP_HINT " [%0], [%1], 16, %2" HGP_HINTED("%3") ";" ::"r"(to), "l"(p),
                 "r"(inside ? 16 : 0), "l"(policy)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global.L2::" HGP_FETCH "B [%0], [%1], %3, %2;" ::"r"(to), "l"(p),
                 "r"(inside ? kBytes : 0), "n"(kBytes)
                 : "memory");
  }
}

__device__ __forceinline__ void send_activations(u32 to, const u16* p, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(p), "r"(inside ? 16 : 0) : "memory");
}

__device__ __forceinline__ void send_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All but the youngest kPending groups of this thread have landed, and this thread sees them.
template <int kPending>
__device__ __forceinline__ void send_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void take(u32 (&to)[2], u32 from) {
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(from) : "memory");
}
__device__ __forceinline__ void take(u32 (&to)[4], u32 from) {
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
