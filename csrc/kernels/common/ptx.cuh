// Thin names for the PTX that has no CUDA C++ spelling: barriers, bulk tensor copies, clusters, dependent launch.
// One function per instruction, no policy. Section numbers are those of the PTX ISA 9.0 manual.
#pragma once
#include "common/types.cuh"

__device__ __forceinline__ u32 smem_address(const void* p) { return static_cast<u32>(__cvta_generic_to_shared(p)); }

// --- programmatic dependent launch (9.7.13.13). Both are no-ops in an ordinary launch. ---

// Must stand before the first read of upstream data and the first write.
__device__ __forceinline__ void wait_for_upstream() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// In a kernel that reads nothing ahead only after wait_for_upstream: earlier, grids pile up behind the wait (256^3: 2.19
// -> 3.04 us).
__device__ __forceinline__ void allow_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// The wait holds a whole warp: its lanes come to it together, or the one that copies would stop copying.
__device__ __forceinline__ void wait_together() {
  __syncwarp();
  wait_for_upstream();
}

// HGP_READS_AHEAD: a kernel reads A and B, and multiplies, while the grid ahead still runs, and waits for it before its
// first write. It is launched dependent only where no grid that may still run writes either. A warp of its own lets the
// next grid start: at once with kEarly (HGP_TRIGGERS_EARLY), so that as many overlap as there is room for, else when the
// grid ahead has ended. It waits in any case, so that no CTA ends before the grid ahead: that one has ended, and with
// it all before it, once this one has.
template <bool kEarly>
__device__ __forceinline__ void keep_door() {
  if constexpr (kEarly) allow_dependents();
  wait_for_upstream();
  if constexpr (!kEarly) allow_dependents();
}

// --- mbarrier (9.7.13.15) ---

__device__ __forceinline__ void barrier_init(u64* bar, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(bar)), "r"(count) : "memory");
}

// Makes the initialised barriers visible to the copy engine and to the other CTAs of the cluster.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_expect(u64* bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(bar)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void barrier_arrive(u64* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(bar)) : "memory");
}

// Arrives on the barrier at the same offset in the CTA `rank` of this cluster. Without a cluster-scope release, which
// costs a fence a stage: what it orders are reads by wgmma, and those have retired when it is called.
__device__ __forceinline__ void barrier_arrive_remote(u64* bar, u32 rank) {
  asm volatile(
      "{ .reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(smem_address(bar)),
      "r"(rank)
      : "memory");
}

__device__ __forceinline__ void barrier_wait(u64* bar, u32 parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(smem_address(bar)),
      "r"(parity)
      : "memory");
}

// The same for what CTAs of the cluster sent by st.async: released at cluster scope, it must be acquired there.
// try_wait.acquire.cluster would empty L1 (CCTL.IVALL); the fence, kept to shared memory, takes no instruction.
__device__ __forceinline__ void barrier_wait_cluster(u64* bar, u32 parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "fence.acquire.sync_restrict::shared::cluster.cluster; }" ::"r"(smem_address(bar)),
      "r"(parity)
      : "memory");
}

// Named barriers: id 0 is __syncthreads, so roles use 1..15.
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// --- registers of a warpgroup (9.7.20.5); every warp of it must execute the same one ---

template <int kCount>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// --- clusters ---

__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The two halves of a barrier that hides behind what stands between them. Relaxed: for "my barriers are initialised"
// (barrier_init_fence comes first), not for ordinary stores.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// --- bulk tensor copies (9.7.9.27) ---

__device__ __forceinline__ void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// One lane of a warp. Not a comparison with threadIdx.x: only of this does the compiler know that a single lane is
// active, and else it issues each copy from a loop over the lanes, 110 cycles where this takes 26.
__device__ __forceinline__ bool elected() {
  u32 mine;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(mine));
  return mine;
}

// One box of a rank-2 map to shared memory; `mask` names the CTAs of the cluster that receive it (0: this one).
__device__ __forceinline__ void load_box(void* dst, const TensorMap* map, u64* bar, int inner, int outer, u16 mask) {
  if (mask == 0) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            smem_address(dst)),
        "l"(map), "r"(smem_address(bar)), "r"(inner), "r"(outer)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(smem_address(dst)),
        "l"(map), "r"(smem_address(bar)), "r"(inner), "r"(outer), "h"(mask)
        : "memory");
  }
}

// The same for a map whose rows are grouped (row_group in the manifest): `group` counts groups.
__device__ __forceinline__ void load_box_grouped(void* dst, const TensorMap* map, u64* bar, int inner, int group,
                                                 u16 mask) {
  if (mask == 0) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %5, %5, %4}], [%2];" ::"r"(smem_address(dst)),
        "l"(map), "r"(smem_address(bar)), "r"(inner), "r"(group), "r"(0)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%3, %5, %5, %4}], [%2], %6;" ::"r"(smem_address(dst)),
        "l"(map), "r"(smem_address(bar)), "r"(inner), "r"(group), "r"(0), "h"(mask)
        : "memory");
  }
}

// One box to a rank-2 map; `streaming` marks its lines evict-first: for outputs larger than L2.
template <bool streaming = false>
__device__ __forceinline__ void store_box(const TensorMap* map, const void* src, int inner, int outer) {
  if (streaming) {
    asm volatile(
        "{ .reg .b64 policy;\n"
        "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%2, %3}], [%1], policy; }" ::"l"(
            map),
        "r"(smem_address(src)), "r"(inner), "r"(outer)
        : "memory");
  } else {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(smem_address(src)), "r"(inner), "r"(outer)
                 : "memory");
  }
}
__device__ __forceinline__ void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// At most one store may still read its staging buffer.
__device__ __forceinline__ void store_wait_read() { asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory"); }
// Everything has reached global memory.
__device__ __forceinline__ void store_wait_all() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Ordinary shared-memory stores before it are seen by the copy engine after it.
__device__ __forceinline__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- 16-byte accesses ---

struct alignas(16) Vec4 {
  u32 x, y, z, w;
};

// Not `.nc`, here and in all loads of operands: the grid ahead may still be writing them before wait_for_upstream, and
// ptxas moves a load of what never changes to before it.
__device__ __forceinline__ Vec4 load_global16(const void* p) {
  Vec4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

// `streaming` marks the line evict-first: for outputs larger than L2.
template <bool streaming>
__device__ __forceinline__ void store_global16(void* p, Vec4 v) {
  if (streaming) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
  } else {
    asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
  }
}

// Where `inside`, by a predicate and not a branch: 4, 2 and 16 bytes.
__device__ __forceinline__ void store_if(bool inside, u16* p, u32 v) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %0, 0; @p st.global.u32 [%1], %2; }" ::"r"((u32)inside), "l"(p), "r"(v)
               : "memory");
}
__device__ __forceinline__ void store_if(bool inside, u16* p, u16 v) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %0, 0; @p st.global.u16 [%1], %2; }" ::"r"((u32)inside), "l"(p), "h"(v)
               : "memory");
}
__device__ __forceinline__ void store_if(bool inside, u16* p, Vec4 v) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %0, 0; @p st.global.v4.u32 [%1], {%2,%3,%4,%5}; }" ::"r"((u32)inside),
               "l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

__device__ __forceinline__ Vec4 load_shared16(u32 address) {
  Vec4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

__device__ __forceinline__ void store_shared16(u32 address, Vec4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// Four 8x8 matrices of 16-bit elements from the mma accumulator layout to rows in shared memory.
__device__ __forceinline__ void store_matrix4(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

// The same, each matrix transposed: a row in shared memory is a column of the accumulators.
__device__ __forceinline__ void store_matrix4_transposed(u32 address, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void store_matrix2_transposed(u32 address, u32 a, u32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(address), "r"(a), "r"(b)
               : "memory");
}
__device__ __forceinline__ void store_matrix1_transposed(u32 address, u32 a) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(address), "r"(a) : "memory");
}

// And back: rows in shared memory become columns of the accumulators.
__device__ __forceinline__ void load_matrix4_transposed(u32 (&to)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrix2_transposed(u32 (&to)[2], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(address)
               : "memory");
}
