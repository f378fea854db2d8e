// wgmma m64nNk16, operands from shared memory, fp32 accumulators in registers (PTX ISA 9.7.15).
// The accumulator of one warpgroup is float[N / 2] per thread: 8-column block j, then {row, row,
// row + 8, row + 8}.
#pragma once
#include "common/ptx.cuh"

// Matrix descriptor of a swizzled tile. `lead` and `stride` are byte distances between swizzle
// atoms of 8 rows: K-major operands use only `stride` (next 8 rows); MN-major ones use `stride` for
// the next 8 k and `lead` for the next columns. Kept as two words: only the low one, the address in
// units of 16 bytes, ever changes, and sums of addresses below 256 KiB never carry out of their
// field.
struct Descriptor {
  u32 low, high;

  __device__ __forceinline__ Descriptor(u32 low, u32 high) : low(low), high(high) {}
  // `swizzle` is 128 or 64 bytes.
  __device__ __forceinline__ Descriptor(const void* tile, u32 lead, u32 stride, int swizzle)
      : low((smem_address(tile) & 0x3FFFF) >> 4 | (lead >> 4) << 16), high(stride >> 4 | (128u / swizzle) << 30) {}
  // Moved by `units`, and known to the compiler as the same in all lanes: it then stays in uniform
  // registers.
  __device__ __forceinline__ Descriptor uniform(u32 units) const { return {(u32)warp_uniform(low + units), high}; }
  __device__ __forceinline__ u64 at(u32 units) const { return (u64)high << 32 | (low + units); }
};

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Accumulators as constraints, sixteen at a time or fewer, and their operand numbers as text.
#define HGP_ACC4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define HGP_ACC8(d, i) HGP_ACC4(d, i), HGP_ACC4(d, i + 4)
#define HGP_ACC16(d, i) HGP_ACC8(d, i), HGP_ACC8(d, i + 8)
#define HGP_NUM4 "%0,%1,%2,%3"
#define HGP_NUM8 HGP_NUM4 ",%4,%5,%6,%7"
#define HGP_NUM12 HGP_NUM8 ",%8,%9,%10,%11"
#define HGP_NUM16 HGP_NUM12 ",%12,%13,%14,%15"
#define HGP_NUM20 HGP_NUM16 ",%16,%17,%18,%19"
#define HGP_NUM24 HGP_NUM16 ",%16,%17,%18,%19,%20,%21,%22,%23"
#define HGP_NUM28 HGP_NUM16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27"
#define HGP_NUM32 HGP_NUM16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define HGP_NUM36 HGP_NUM32 ",%32,%33,%34,%35"
#define HGP_NUM40 HGP_NUM32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define HGP_NUM44 HGP_NUM32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43"
#define HGP_NUM48 HGP_NUM32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define HGP_NUM52 HGP_NUM48 ",%48,%49,%50,%51"
#define HGP_NUM56 HGP_NUM48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define HGP_NUM60 HGP_NUM48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59"
#define HGP_NUM64 HGP_NUM48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define HGP_NUM68 HGP_NUM64 ",%64,%65,%66,%67"
#define HGP_NUM72 HGP_NUM64 ",%64,%65,%66,%67,%68,%69,%70,%71"
#define HGP_NUM76 HGP_NUM64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75"
#define HGP_NUM80 HGP_NUM64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define HGP_NUM84 HGP_NUM80 ",%80,%81,%82,%83"
#define HGP_NUM88 HGP_NUM80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define HGP_NUM92 HGP_NUM80 ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91"
#define HGP_NUM96 HGP_NUM80 ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define HGP_NUM100 HGP_NUM96 ",%96,%97,%98,%99"
#define HGP_NUM104 HGP_NUM96 ",%96,%97,%98,%99,%100,%101,%102,%103"
#define HGP_NUM108 HGP_NUM96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107"
#define HGP_NUM112 HGP_NUM96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define HGP_NUM116 HGP_NUM112 ",%112,%113,%114,%115"
#define HGP_NUM120 HGP_NUM112 ",%112,%113,%114,%115,%116,%117,%118,%119"
#define HGP_NUM124 HGP_NUM112 ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123"
#define HGP_NUM128 HGP_NUM112 ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

// n: columns; numbers: accumulator operand text; a, b, s, ta, tb: operand numbers of the
// descriptors, the scale flag and the transpositions: 0 an operand is K-major, 1 MN-major.
#define HGP_WGMMA(n, numbers, a, b, s, ta, tb, ...)                                                               \
  template <>                                                                                                     \
  struct Wgmma<n> {                                                                                               \
    template <bool kMnMajorA, bool kMnMajorB>                                                                     \
    __device__ static __forceinline__ void mma(float (&d)[n / 2], u64 da, u64 db, u32 accumulate) {               \
      asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #s                                                          \
                   ", 0;\n"                                                                                       \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." HGP_TYPE "." HGP_TYPE " {" numbers "}, %" #a \
                   ", %" #b ", p, 1, 1, %" #ta ", %" #tb "; }"                                                    \
                   : __VA_ARGS__                                                                                  \
                   : "l"(da), "l"(db), "r"(accumulate), "n"((int)kMnMajorA), "n"((int)kMnMajorB));                \
    }                                                                                                             \
  };

template <int kColumns>
struct Wgmma;

HGP_WGMMA(8, HGP_NUM4, 4, 5, 6, 7, 8, HGP_ACC4(d, 0))
HGP_WGMMA(16, HGP_NUM8, 8, 9, 10, 11, 12, HGP_ACC8(d, 0))
HGP_WGMMA(24, HGP_NUM12, 12, 13, 14, 15, 16, HGP_ACC8(d, 0), HGP_ACC4(d, 8))
HGP_WGMMA(32, HGP_NUM16, 16, 17, 18, 19, 20, HGP_ACC16(d, 0))
HGP_WGMMA(40, HGP_NUM20, 20, 21, 22, 23, 24, HGP_ACC16(d, 0), HGP_ACC4(d, 16))
HGP_WGMMA(48, HGP_NUM24, 24, 25, 26, 27, 28, HGP_ACC16(d, 0), HGP_ACC8(d, 16))
HGP_WGMMA(56, HGP_NUM28, 28, 29, 30, 31, 32, HGP_ACC16(d, 0), HGP_ACC8(d, 16), HGP_ACC4(d, 24))
HGP_WGMMA(64, HGP_NUM32, 32, 33, 34, 35, 36, HGP_ACC16(d, 0), HGP_ACC16(d, 16))
HGP_WGMMA(72, HGP_NUM36, 36, 37, 38, 39, 40, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC4(d, 32))
HGP_WGMMA(80, HGP_NUM40, 40, 41, 42, 43, 44, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC8(d, 32))
HGP_WGMMA(88, HGP_NUM44, 44, 45, 46, 47, 48, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC8(d, 32), HGP_ACC4(d, 40))
HGP_WGMMA(96, HGP_NUM48, 48, 49, 50, 51, 52, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32))
HGP_WGMMA(104, HGP_NUM52, 52, 53, 54, 55, 56, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC4(d, 48))
HGP_WGMMA(112, HGP_NUM56, 56, 57, 58, 59, 60, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC8(d, 48))
HGP_WGMMA(120, HGP_NUM60, 60, 61, 62, 63, 64, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC8(d, 48),
          HGP_ACC4(d, 56))
HGP_WGMMA(128, HGP_NUM64, 64, 65, 66, 67, 68, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC16(d, 48))
HGP_WGMMA(136, HGP_NUM68, 68, 69, 70, 71, 72, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC16(d, 48),
          HGP_ACC4(d, 64))
HGP_WGMMA(144, HGP_NUM72, 72, 73, 74, 75, 76, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC16(d, 48),
          HGP_ACC8(d, 64))
HGP_WGMMA(152, HGP_NUM76, 76, 77, 78, 79, 80, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC16(d, 48),
          HGP_ACC8(d, 64), HGP_ACC4(d, 72))
HGP_WGMMA(160, HGP_NUM80, 80, 81, 82, 83, 84, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC16(d, 48),
          HGP_ACC16(d, 64))
HGP_WGMMA(168, HGP_NUM84, 84, 85, 86, 87, 88, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC16(d, 48),
          HGP_ACC16(d, 64), HGP_ACC4(d, 80))
HGP_WGMMA(176, HGP_NUM88, 88, 89, 90, 91, 92, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC16(d, 48),
          HGP_ACC16(d, 64), HGP_ACC8(d, 80))
HGP_WGMMA(184, HGP_NUM92, 92, 93, 94, 95, 96, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC16(d, 48),
          HGP_ACC16(d, 64), HGP_ACC8(d, 80), HGP_ACC4(d, 88))
HGP_WGMMA(192, HGP_NUM96, 96, 97, 98, 99, 100, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32), HGP_ACC16(d, 48),
          HGP_ACC16(d, 64), HGP_ACC16(d, 80))
HGP_WGMMA(200, HGP_NUM100, 100, 101, 102, 103, 104, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32),
          HGP_ACC16(d, 48), HGP_ACC16(d, 64), HGP_ACC16(d, 80), HGP_ACC4(d, 96))
HGP_WGMMA(208, HGP_NUM104, 104, 105, 106, 107, 108, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32),
          HGP_ACC16(d, 48), HGP_ACC16(d, 64), HGP_ACC16(d, 80), HGP_ACC8(d, 96))
HGP_WGMMA(216, HGP_NUM108, 108, 109, 110, 111, 112, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32),
          HGP_ACC16(d, 48), HGP_ACC16(d, 64), HGP_ACC16(d, 80), HGP_ACC8(d, 96), HGP_ACC4(d, 104))
HGP_WGMMA(224, HGP_NUM112, 112, 113, 114, 115, 116, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32),
          HGP_ACC16(d, 48), HGP_ACC16(d, 64), HGP_ACC16(d, 80), HGP_ACC16(d, 96))
HGP_WGMMA(232, HGP_NUM116, 116, 117, 118, 119, 120, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32),
          HGP_ACC16(d, 48), HGP_ACC16(d, 64), HGP_ACC16(d, 80), HGP_ACC16(d, 96), HGP_ACC4(d, 112))
HGP_WGMMA(240, HGP_NUM120, 120, 121, 122, 123, 124, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32),
          HGP_ACC16(d, 48), HGP_ACC16(d, 64), HGP_ACC16(d, 80), HGP_ACC16(d, 96), HGP_ACC8(d, 112))
HGP_WGMMA(248, HGP_NUM124, 124, 125, 126, 127, 128, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32),
          HGP_ACC16(d, 48), HGP_ACC16(d, 64), HGP_ACC16(d, 80), HGP_ACC16(d, 96), HGP_ACC8(d, 112), HGP_ACC4(d, 120))
HGP_WGMMA(256, HGP_NUM128, 128, 129, 130, 131, 132, HGP_ACC16(d, 0), HGP_ACC16(d, 16), HGP_ACC16(d, 32),
          HGP_ACC16(d, 48), HGP_ACC16(d, 64), HGP_ACC16(d, 80), HGP_ACC16(d, 96), HGP_ACC16(d, 112))
