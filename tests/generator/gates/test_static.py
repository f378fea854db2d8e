"""The static gate: our own sources pass, each thing that no kernel needs is refused by its rule."""

from __future__ import annotations

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.gates.source import static
from hgemm_packs.generator.gates.source.preprocess import Hidden, preprocess
from tests.generator.foreign import fields, source
from tests.generator.kernels import BASES, Job, sample


def every_gene() -> list[Job]:
    """For each family its base, and the base with each value of each gene where that is valid."""
    jobs = []
    for name, f in FAMILIES.items():
        for gene, values in f.genes.items():
            for value in values:
                genome = {**BASES[name], gene: value}
                if f.is_valid(genome):
                    jobs.append((name, genome))
    return jobs


def test_the_families_sources_pass() -> None:
    texts = {}
    for name, genome in [*sample(8), *every_gene()[::4]]:
        texts[compiler.render(name, genome)] = FAMILIES[name].kernel_name(genome)
    assert len(texts) > 20
    for text, symbol in texts.items():
        verdict = static.check(text, {"symbol": symbol})
        assert verdict.passed, verdict.detail
        assert verdict.evidence["unread"] is False


def test_own_includes_are_put_in_place() -> None:
    text = '#define HGP_BF16 0\n#define HGP_B_MN_MAJOR 0\n#include "common/mma.cuh"\n' + source()
    verdict = static.check(text, fields())
    assert verdict.passed, verdict.detail
    assert verdict.evidence["asm"] == 4, "have, pack2, mma16816 and the kernel's own"


HONEST = r"""
#ifndef TILE
#define TILE 64
#endif
#if TILE == 64 && (TILE >> 2) > 3 && !defined(OTHER) && __CUDA_ARCH__ >= 900
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#else
#error never read
#endif
#define EACH(f, ...) f(__VA_ARGS__)
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
namespace detail { constexpr int kX = 3; int later(int); using word = unsigned; }
template <typename T, int kN, bool kFlag = false> struct Part {
  T v[kN];
  static constexpr int kSize = kN;
  Part(const Part&) = delete;
  __device__ __forceinline__ T& operator[](int i) { return v[i]; }
  __device__ int free() const { return kSize; }
};
__constant__ int table[4] = {0, 1, 2, 3};
static constexpr int kTile[2] = {TILE, 128};
const int kOld = 5;
extern __shared__ __align__(1024) unsigned char memory[];
extern "C" __global__ void tiny(const detail::word a, float* __restrict__ c, int n);
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128, 1)
tiny(const __grid_constant__ detail::word a, float* __restrict__ c, int n) {
  __shared__ alignas(8) unsigned long long bar;
  static __shared__ int extra[4];
  static constexpr int local[3] = {1, 2, 3};
  auto add = [=](auto x) mutable { return x + n; };
  int clocks = 0, free = table[1] & table[2];  // clock64() and "%clock" in a comment are none
  #pragma unroll 4
  for (int i = 0; i < LARGER(TILE, n); ++i) clocks += __shfl_xor_sync(~0u, add(i), 1);
  unsigned x = (unsigned)__cvta_generic_to_shared(&bar);
  asm volatile("{\n\t.reg .pred P1;\n\tWAIT:\n"
               "\tmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
               "\t@P1 bra.uni DONE;\n\tbra.uni WAIT;\n\tDONE:\n\t}" ::"r"(x), "r"(n) : "memory");
  asm volatile("{ .reg .b32 %%r<4>; mov.b32 %%r1, %0; // trap;\n }" : "+r"(x));
  asm("mov.u32 %0, %%" TEXT(laneid) ";" : "=r"(x));
  asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(x));
  asm volatile("@!%1 bra AWAY; AWAY: cp.async.bulk.wait_group.read 0;" : "+r"(x) : "r"(n));
  c[0] = EACH(LARGER, x + local[1] + extra[0], memory[0] + free + clocks + kTile[0] + kOld);
}
"""


def test_an_honest_kernel_of_another_style_passes() -> None:
    for text in (HONEST, HONEST.replace("\n", "\r\n"), source()):
        verdict = static.check(text, fields())
        assert verdict.passed, verdict.detail
        assert verdict.evidence["unread"] is False


ASM = 'unsigned x; asm volatile("mov.u32 %%0, %s;" : "=r"(x)); c[0] = x;'
INSIDE = {
    "clock": ("clock: clock", "c[0] = clock();"),
    "clock64": ("clock: clock64", "auto f = clock64; c[0] = f();"),
    "clock in asm": ("clock: %clock64", ASM % "%%clock64"),
    "timer": ("clock: %globaltimer_lo", ASM % "%%globaltimer_lo"),
    "clock without operands": ("clock: %clock", 'asm("{ .reg .u32 t; mov.u32 t, %clock; }");'),
    "clock in pieces": ("clock: %clock", ASM % '%%cl" "ock'),
    "clock over lines": ("clock: clock", "c[0] = clo\\\nck();"),
    "clock by number": ("asm: a template that is not a plain literal", ASM % "%%\\x63lock"),
    "clock by name": ("preprocessor: '\\\\u0063lo' is no token", "c[0] = \\u0063lock();"),
    "clock declared": ("clock: %clock", ASM % "%%r; .reg .u32 %%clock; mov.u32 %%r, %%clock"),
    "raw string": ("preprocessor: raw string", 'asm(R"(mov.u32 %r, %clock;)");'),
    "encoded string": ("asm: a template that is not", 'asm(u8"nanosleep.u32 1;");'),
    "string operand": ('asm: constraint "C"', 'asm("mov.u32 %%r, %%%0;" ::"C"(name));'),
    "assembler's macro": ("asm: a directive", 'asm("\\n#define Q trap\\nQ;");'),
    "reserved": ("reserved: __builtin_readcyclecounter", "c[0] = __builtin_readcyclecounter();"),
    "sm": ("special: %smid", ASM % "%%smid"),
    "slot of a warp": ("special: %warpid", ASM % "%%warpid"),
    "shared memory": ("special: %total_smem_size", ASM % "%%total_smem_size"),
    "grid": ("special: %gridid", ASM % "%%gridid"),
    "environment": ("special: %envreg3", ASM % "%%envreg3"),
    "launch": ("launch: a kernel starts a kernel", "tiny<<<1, 32>>>(a, b, c, m, n, k, 0, 0, 0);"),
    "printf": ("print: printf", 'printf("%d", m);'),
    "malloc": ("heap: malloc", "void* p = malloc(n);"),
    "free": ("heap: free", "free(c);"),
    "returned free": ("heap: free", "return free(c);"),
    "new": ("heap: new", "int* p = new int[n];"),
    "delete": ("heap: delete", "delete c;"),
    "__trap": ("trap: __trap", "__trap();"),
    "trap": ("trap: trap", 'asm volatile("{ .reg .pred p; @!p trap; }");'),
    "brkpt": ("trap: brkpt", 'asm volatile("L: brkpt;");'),
    "assert": ("trap: assert", "assert(n > 3);"),
    "static": ("global: kept", "static int kept; c[0] = kept++;"),
    "static pointer": ("global: * kept", "static const u16* kept; kept = a;"),
    "static in a lambda": ("global: kept", "[] { static int kept; return ++kept; }();"),
    "runtime": ("call: cudaDeviceSynchronize", "cudaDeviceSynchronize();"),
    "library": ("call: __nv_sqrtf", "c[0] = __nv_sqrtf(2.f);"),
    "intrinsic": ("call: __nvvm_", "c[0] = __nvvm_read_ptx_sreg_smid();"),
    "call in asm": ("asm: call", 'asm volatile("call vprintf, (%0, %0);" ::"l"(c));'),
    "memory in asm": ("asm: .global", 'asm volatile(".global .u32 kept;");'),
    "lines of L2 dropped": (
        "asm: discard",
        'asm volatile("discard.global.L2 [%0], 128;" ::"l"(c));',
    ),
    "lines of L2 ranked": (
        "asm: applypriority",
        'asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(c));',
    ),
    "descriptor": ("asm: tensormap", 'asm volatile("tensormap.cp_fenceproxy;");'),
    "other code by line": ("preprocessor: __LINE__", "c[0] = __LINE__;"),
    "_Pragma": ("preprocessor: _Pragma", '_Pragma("unroll") for (;;) break;'),
}
DOUBLES = "\n".join(f"#define D{i} D{i - 1} D{i - 1}" for i in range(1, 30)) + "\nD29"
OUTSIDE = {
    "pasted": ("preprocessor: ##", "#define JOIN(a, b) a##b"),
    "digraph": ("preprocessor: %:", "%:define X clock"),
    "trigraph": ("preprocessor: trigraph ??=", "??=define X clock"),
    "deep": ("preprocessor: nested too deep", f"#if {'(' * 5000}1{')' * 5000}\n#endif"),
    "long": ("size: over ", "//" + "-" * (1 << 19)),
    "switched off": ("clock: clock", "#if 0\nint f() { return clock(); }\n#endif"),
    "in a macro": ("clock: clock64", "#define NOW clock64()"),
    "of the compiler": ("preprocessor: asks for __NVCC__", "#ifdef __NVCC__\n#endif"),
    "has include": ("preprocessor: asks for __has_include", "#if __has_include(<x>)\n#endif"),
    "header": ("include: <cuda_fp16.h>", "#include <cuda_fp16.h>"),
    "other file": ('include: "../../setup.py"', '#include "../../setup.py"'),
    "named header": ("include: H", "#define H <x>\n#include H"),
    "pragma": ("preprocessor: #pragma GCC", "#pragma GCC poison"),
    "redefined": ("preprocessor: __device__ redefined", "#define __device__ static"),
    "open if": ("preprocessor: an #if without #endif", "#if 1"),
    "endless": ("preprocessor: D", DOUBLES),
    "variable": ("global: kept", "__device__ int kept;"),
    "unmarked variable": ("global: kept", "int kept;"),
    "list of variables": ("global: *second", "const int first = 1, *second = 0;"),
    "in a namespace": ("global: kept", "namespace { namespace x { int kept[4]; } }"),
    "member": ("global: kept", "struct S { static int kept; };"),
    "variable template": ("global: kept", "template <int N> int kept = N;"),
    "mutable": ("global: mutable", "struct S { mutable int x; }; __device__ const S kept{};"),
    "function pointer": ("global: (*kept)(int)", "__device__ void (*kept)(int);"),
    "constants by address": (
        "global: the address of kept",
        "__constant__ int kept[4]; __device__ int* f() { return (int*)&kept[1]; }",
    ),
    "constants by a cast": (
        "global: the address of kept",
        "typedef long T; __constant__ int kept[4]; __device__ T f() { return (T)&kept[1]; }",
    ),
    "managed": ("global: __managed__", "__managed__ int kept;"),
    "second entry": ("entry: other", 'extern "C" __global__ void other(int* p) { *p = 1; }'),
    "entry by macro": ("entry: other", '#define G __global__\nextern "C" G void other(int* p) {}'),
    "attribute": ("reserved: __attribute__", "__attribute__((constructor)) void f() {}"),
    "asm outside": ("asm: .global", 'asm(".global .u32 kept;");'),
}


def _check(text: str, rule: str) -> None:
    verdict = static.check(text, fields())
    assert (verdict.gate, verdict.status) == ("static", Status.STATIC)
    assert any(part.startswith(rule) for part in verdict.detail.split("; ")), verdict.detail


@pytest.mark.parametrize(("rule", "what"), INSIDE.values(), ids=INSIDE)
def test_inside_a_kernel(rule: str, what: str) -> None:
    _check(source(inside=what), rule)


@pytest.mark.parametrize(("rule", "what"), OUTSIDE.values(), ids=OUTSIDE)
def test_outside_a_kernel(rule: str, what: str) -> None:
    _check(source(outside=what), rule)


def test_clocks_that_macros_spell() -> None:
    use = 'unsigned x; asm("mov.u32 %0, %%" NOW ";" : "=r"(x)); c[0] = x;'
    parts = '#define TIMER "global"\n#define NOW TIMER "timer_lo"\n'
    _check(source(outside=parts, inside=use), "clock: %globaltimer_lo")
    made = (
        "#define TEXT_(x) #x\n#define TEXT(x) TEXT_(x)\n#define WHAT pm0\n#define NOW TEXT(WHAT)\n"
    )
    _check(source(outside=made, inside=use), "clock: %pm0")


def test_the_entry_must_be_the_declared_one() -> None:
    verdict = static.check(source(), fields(symbol="other"))
    assert verdict.detail == "entry: tiny, declared is other"
    verdict = static.check("__device__ int f() { return 1; }", fields())
    assert verdict.detail == "entry: no __global__ function"


def test_a_fault_is_told_with_its_line() -> None:
    text = source(inside="\n\nc[0] = clock();")
    line = text[: text.index("clock")].count("\n") + 1
    assert static.check(text, fields()).detail == f"clock: clock, line {line}"
    lines = "#define A \\\n  1 \\\n  + 2\nint kept;\n"
    assert static.check(lines + source(), fields()).detail.endswith("shared, line 4")


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("#define A 1 + B\n#define B 2\nA;", "1 + 2 ;"),
        ("#define f(x) x * g\n#define g(y) (y)\nf(3)(4)", "3 * ( 4 )"),
        ("#define x x + 1\nx", "x + 1"),
        ("#define f(a, ...) a[__VA_ARGS__]\nf(1, 2, (3, 4))", "1 [ 2 , ( 3 , 4 ) ]"),
        ('#define s(x) #x\ns( a  +"b" )', '"a +\\"b\\""'),
        ("#define f(x) x\nf + f (1)", "f + 1"),
        ("#define A\n#undef A\n#ifdef A\n1\n#else\n2\n#endif", "2"),
        ("#if 0\n1\n#elif 2 - 1 && -1 < 0\n2\n#elif 1\n3\n#else\n4\n#endif", "2"),
        ("#if 0\n#if 1\n1\n#endif\n#else\n2\n#endif", "2"),
        ("#if !0 == 1 && 7 / 2 == 3 && (1 | 6) == 7 && 0x10 == 020\n1\n#endif", "1"),
        ("a/* b */c // d\n", "a c"),
    ],
)
def test_preprocessing(text: str, expanded: str) -> None:
    assert [t.text for t in preprocess(text).tokens] == _split(expanded)


def _split(text: str) -> list[str]:
    return [text] if text.startswith('"') else text.split()


@pytest.mark.parametrize(
    "text",
    [
        "#if 1 +\n#endif",
        "#if (1\n#endif",
        "#if 1 ? 2 : 3\n#endif",
        "#if 1 / 0\n#endif",
        "#else",
        "#line 3",
        "#define f(x\n",
        "`",
    ],
)
def test_what_cannot_be_preprocessed(text: str) -> None:
    with pytest.raises(Hidden, match=r"^preprocessor: "):
        preprocess(text)
