// Family sm90_batched. C[e] [M,N] = A[e] * B[e] for each e of a batch, or with HGP_RESIDUAL that and a matrix [M,N] of
// its own; fp32 accumulate, layouts nn, nt, tn and tt, fp16 and bf16.
//
// Idea: sm90_tokens, whose tiles are those of one product after those of the other. Each operand's tensor map has the
// batch as its third dimension, so that a box ends with its matrix: what lies beyond M, N or K is zero and not of the
// next product. How far the matrices lie apart is the map's business. C is packed, and lies e*M*N further.
// Valid: any number of products, and of each what sm90_tokens takes; no gate, and nothing is read ahead.
// Build: NVRTC, --gpu-architecture=sm_90a, genes as HGP_* macros (generator/families/batched.py).
#define HGP_BATCHED 1
#include "common/ring.cuh"

// One box of a rank-3 map to shared memory, of the product `of`; `mask` as for load_box.
__device__ __forceinline__ void load_box_of(void* dst, const TensorMap* map, u64* bar, int inner, int outer, int of,
                                            u16 mask) {
  if (mask == 0) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
            "r"(smem_address(dst)),
        "l"(map), "r"(smem_address(bar)), "r"(inner), "r"(outer), "r"(of)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(smem_address(dst)),
        "l"(map), "r"(smem_address(bar)), "r"(inner), "r"(outer), "r"(of), "h"(mask)
        : "memory");
  }
}

// One box to a rank-3 map; `streaming` as for store_box.
template <bool streaming>
__device__ __forceinline__ void store_box_of(const TensorMap* map, const void* src, int inner, int outer, int of) {
  if (streaming) {
    asm volatile(
        "{ .reg .b64 policy;\n"
        "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%2, %3, %4}], [%1], policy; }" ::
            "l"(map),
        "r"(smem_address(src)), "r"(inner), "r"(outer), "r"(of)
        : "memory");
  } else {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(smem_address(src)), "r"(inner), "r"(outer), "r"(of)
                 : "memory");
  }
}

// An operand whose slabs come from the matrix of one product.
template <int kRows, bool kMnMajor>
struct BatchedOperand : Operand<kRows, kMnMajor> {
  using Own = Operand<kRows, kMnMajor>;

  // As Operand::load, of the product `of`.
  template <int kSlices>
  __device__ static __forceinline__ void load_of(u8* slab, const TensorMap* map, u64* bar, int row, int k, int of,
                                                 int slice, u16 mask) {
    if constexpr (kMnMajor) {
      const int first = slice * (64 / kSlices);
#pragma unroll
      for (int atom = 0; atom < kRows / Own::kAtom; ++atom) {
        load_box_of(slab + (atom * 64 + first) * Own::kSwizzle, map, bar, row + atom * Own::kAtom, k + first, of, mask);
      }
    } else {
      const int first = slice * (kRows / kSlices);
      load_box_of(slab + first * 128, map, bar, k, row + first, of, mask);
    }
  }
};

#include "sm90/tokens.cuh"
