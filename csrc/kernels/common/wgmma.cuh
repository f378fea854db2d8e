// wgmma m64nNk16, operands from shared memory, fp32 accumulators in registers (PTX ISA 9.7.15).
// The accumulator of one warpgroup is float[N / 2] per thread: 8-column block j, then {row, row, row + 8, row + 8}.
#pragma once
#include "common/ptx.cuh"

// Matrix descriptor of a 128-byte-swizzled tile. `lead` and `stride` are byte distances between 1024-byte atoms:
// K-major operands use only `stride` (next 8 rows); MN-major ones use `stride` for the next 8 k and `lead` for the
// next 64 columns. Kept as two words: only the low one, the address in units of 16 bytes, ever changes, and sums of
// addresses below 256 KiB never carry out of their field.
struct Descriptor {
  u32 low, high;

  __device__ __forceinline__ Descriptor(u32 low, u32 high) : low(low), high(high) {}
  __device__ __forceinline__ Descriptor(const void* tile, u32 lead, u32 stride)
      : low((smem_address(tile) & 0x3FFFF) >> 4 | (lead >> 4) << 16), high(stride >> 4 | 1u << 30) {}
  // Moved by `units`, and known to the compiler as the same in all lanes: it then stays in uniform registers.
  __device__ __forceinline__ Descriptor uniform(u32 units) const { return {(u32)warp_uniform(low + units), high}; }
  __device__ __forceinline__ u64 at(u32 units) const { return (u64)high << 32 | (low + units); }
};

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#if HGP_B_MN_MAJOR
#define HGP_TRANSPOSE_B "1"
#else
#define HGP_TRANSPOSE_B "0"
#endif

// Sixteen accumulators as constraints, and their operand numbers as text.
#define HGP_ACC4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define HGP_ACC16(d, i) HGP_ACC4(d, i), HGP_ACC4(d, i + 4), HGP_ACC4(d, i + 8), HGP_ACC4(d, i + 12)
#define HGP_NUM0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define HGP_NUM1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define HGP_NUM2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define HGP_NUM3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define HGP_NUM4 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define HGP_NUM5 "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define HGP_NUM6 "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define HGP_NUM7 "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

// n: columns; numbers: accumulator operand text; a, b, s: operand numbers of the descriptors and the scale flag.
#define HGP_WGMMA(n, numbers, a, b, s, ...)                                                              \
  template <>                                                                                            \
  struct Wgmma<n> {                                                                                      \
    __device__ static __forceinline__ void mma(float (&d)[n / 2], u64 da, u64 db, u32 accumulate) {      \
      asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #s ", 0;\n"                                        \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." HGP_TYPE "." HGP_TYPE " {" numbers  \
                   "}, %" #a ", %" #b ", p, 1, 1, 0, " HGP_TRANSPOSE_B "; }"                             \
                   : __VA_ARGS__                                                                         \
                   : "l"(da), "l"(db), "r"(accumulate));                                                 \
    }                                                                                                    \
  };

template <int kColumns>
struct Wgmma;

HGP_WGMMA(32, HGP_NUM0, 16, 17, 18, HGP_ACC16(d, 0))
HGP_WGMMA(64, HGP_NUM0 "," HGP_NUM1, 32, 33, 34, HGP_ACC16(d, 0), HGP_ACC16(d, 16))
HGP_WGMMA(96, HGP_NUM0 "," HGP_NUM1 "," HGP_NUM2, 48, 49, 50, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32))
HGP_WGMMA(128, HGP_NUM0 "," HGP_NUM1 "," HGP_NUM2 "," HGP_NUM3, 64, 65, 66, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC16(d, 48))
HGP_WGMMA(160, HGP_NUM0 "," HGP_NUM1 "," HGP_NUM2 "," HGP_NUM3 "," HGP_NUM4, 80, 81, 82, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC16(d, 48), HGP_ACC16(d, 64))
HGP_WGMMA(192, HGP_NUM0 "," HGP_NUM1 "," HGP_NUM2 "," HGP_NUM3 "," HGP_NUM4 "," HGP_NUM5, 96, 97, 98, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC16(d, 48), HGP_ACC16(d, 64), HGP_ACC16(d, 80))
HGP_WGMMA(224, HGP_NUM0 "," HGP_NUM1 "," HGP_NUM2 "," HGP_NUM3 "," HGP_NUM4 "," HGP_NUM5 "," HGP_NUM6, 112, 113, 114, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC16(d, 48), HGP_ACC16(d, 64), HGP_ACC16(d, 80), HGP_ACC16(d, 96))
HGP_WGMMA(256, HGP_NUM0 "," HGP_NUM1 "," HGP_NUM2 "," HGP_NUM3 "," HGP_NUM4 "," HGP_NUM5 "," HGP_NUM6 "," HGP_NUM7, 128, 129, 130, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC16(d, 48), HGP_ACC16(d, 64), HGP_ACC16(d, 80), HGP_ACC16(d, 96), HGP_ACC16(d, 112))
