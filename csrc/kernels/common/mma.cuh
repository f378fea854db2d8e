// mma.sync m16n8k16, fp32 accumulate: the warp-level tensor instruction that needs no shared memory (PTX ISA 9.7.14).
#pragma once
#include "common/types.cuh"

// acc: {row g: columns 2q, 2q+1; row g + 8: the same}, with g = lane / 4 and q = lane % 4.
__device__ __forceinline__ void mma16816(float (&acc)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." HGP_TYPE "." HGP_TYPE
               ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
