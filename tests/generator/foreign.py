"""A small kernel that no family made, with places to put something bad, and its record."""

from __future__ import annotations

import io
from typing import Any

from cuda.core import Program, ProgramOptions

from hgemm_packs.generator.compile import compiler
from hgemm_packs.pack.manifest import PARAM_LAYOUTS

SYMBOL = "tiny"

_SOURCE = r"""
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
%(outside)s
// One warp, one tile of 16 x 8, nt, fp16: fragments straight from memory.
extern "C" __global__ void __launch_bounds__(32) tiny(
    const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb, int ldc) {
  const int lane = threadIdx.x, row = blockIdx.x * 16 + lane / 4, column = blockIdx.y * 8;
  %(type)s acc[%(count)d] = {};
  for (int i = 2 * (lane %% 4); i < k; i += 16) {
    const u32 a0 = *(const u32*)(a + row * lda + i), a1 = *(const u32*)(a + (row + 8) * lda + i);
    const u32 a2 = *(const u32*)(a + row * lda + i + 8);
    const u32 a3 = *(const u32*)(a + (row + 8) * lda + i + 8);
    const u32 b0 = *(const u32*)(b + (column + lane / 4) * ldb + i);
    const u32 b1 = *(const u32*)(b + (column + lane / 4) * ldb + i + 8);
    %(mma)s
    %(loop)s
  }
  u16* out = c + row * ldc + column + 2 * (lane %% 4);
  %(inside)s
  for (int i = 0; i < %(count)d; ++i) *(%(type)s*)(out + 2 * i) = acc[i];
}
"""
_F32 = (
    'asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7},'
    ' {%8,%9}, {%0,%1,%2,%3};" : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])'
    ' : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));'
)
_F16 = (
    'asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5},'
    ' {%6,%7}, {%0,%1};" : "+r"(acc[0]), "+r"(acc[1])'
    ' : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));'
)
#: Kinds of multiplication: the statement, the accumulator's type and its registers.
KINDS = {
    "f32": (_F32, "float", 4),
    "f16": (_F16, "u32", 2),
    "bf16": (_F32.replace(".f16.f16.", ".bf16.bf16."), "float", 4),
    "none": ("acc[0] += a0 + a1 + a2 + a3 + b0 + b1;", "float", 4),
}


def source(kind: str = "f32", outside: str = "", inside: str = "", loop: str = "") -> str:
    """The kernel's text; `outside` stands before it, `inside` near its end, `loop` in its loop."""
    mma, type_, count = KINDS[kind]
    places = {"outside": outside, "inside": inside, "loop": loop}
    return _SOURCE % {**places, "mma": mma, "type": type_, "count": count}


def fields(**changes: Any) -> dict[str, Any]:
    """The kernel's launch record as far as gates read it."""
    record: dict[str, Any] = {
        "symbol": SYMBOL,
        "param_layout": "ptr_v1",
        "param_sizes": list(PARAM_LAYOUTS["ptr_v1"]),
        "block": 32,
        "grid": {"tile_m": 16, "tile_n": 8, "persistent": False},
        "smem_bytes": 0,
        "dtype": "f16",
        "acc": "f32",
        "deterministic": True,
    }
    return record | changes


def compile_any(text: str, arch: str = compiler.ARCH) -> bytes:
    """The cubin, whatever the build would say of it."""
    options = ProgramOptions(name="kernel.cu", arch=arch, **compiler.OPTIONS)
    return bytes(Program(text, "c++", options).compile("cubin", logs=io.StringIO()).code)
