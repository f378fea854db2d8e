// Element type and layout of one compiled kernel. The generator defines HGP_BF16 (0 or 1),
// HGP_A_MN_MAJOR (1: A stored [K,M], layouts tn and tt; 0: [M,K]) and HGP_B_MN_MAJOR (1: B stored
// [K,N], layouts nn and tn; 0: [N,K]) before the family's source is included. No CUDA header is
// included anywhere: NVRTC alone must be enough to rebuild a pack.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct alignas(64) TensorMap {
  u64 opaque[16];
};

#if HGP_BF16
#define HGP_TYPE "bf16"
#else
#define HGP_TYPE "f16"
#endif

constexpr int kElementBytes = 2;

constexpr __host__ __device__ int ceil_div(int a, int b) { return (a + b - 1) / b; }
constexpr __host__ __device__ int min_of(int a, int b) { return a < b ? a : b; }

// A value that all lanes of a warp agree on, told to the compiler.
__device__ __forceinline__ int warp_uniform(int value) { return __shfl_sync(0xffffffff, value, 0); }

// Has a value worked out here. The compiler puts off what is first used behind a barrier or a wait until then.
__device__ __forceinline__ void have(int& value) { asm volatile("" : "+r"(value)); }

// Two fp32 values rounded to nearest even and packed, `low` in the low half.
__device__ __forceinline__ u32 pack2(float low, float high) {
  u32 out;
  asm("cvt.rn." HGP_TYPE "x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
