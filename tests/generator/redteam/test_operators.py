"""Mutation operators on a small source: what each makes of it, text by text."""

from __future__ import annotations

from typing import Any

import pytest

from hgemm_packs.generator.families import BATCHED, FAMILIES, GROUPED
from hgemm_packs.generator.redteam.mutation import bases, draw
from hgemm_packs.generator.redteam.mutation.code import Change, Code
from hgemm_packs.generator.redteam.mutation.operators import KINDS, OPERATORS
from hgemm_packs.generator.redteam.mutation.operators.base import InGenome, InRecord, InSource

BY_NAME = {operator.name: operator for operator in OPERATORS}
SOURCE = """#define HGP_SYMBOL tiny
typedef unsigned int u32;
__device__ __forceinline__ u32 pack2(float low, float high) {
  u32 out;
  asm("cvt.rn." HGP_TYPE "x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
struct Unused {
  __device__ int load(int x) { return min_of(x, 9); }
};
#if 0
__device__ int never() { return min_of(1, x); }
#endif
__device__ int uncalled(int x) { return min_of(x, 7); }
__device__ __forceinline__ void load(u32& to, const u16* p) {
  asm volatile("{ .reg .pred p; @p ld.global.u32 %0, [%1]; }" : "+r"(to) : "l"(p));
}
extern "C" __global__ void __launch_bounds__(32, 1)
    HGP_SYMBOL(const u16* a, const u16* b, u16* c, int m, int n, int k, int lda, int ldb,
               int ldc) {
  float acc[4] = {};
  u32 x = 0;
  wait_for_upstream();
  for (int i = 0; i < k; i += 16) {
    barrier_wait(&full[cursor.stage], parity);
    load(x, a + (i64)min_of(row, m - 1) * lda);
    mma16816(acc, x, x, x, x, y[i], y[1]);
    sum[0] += v[0];
  }
  __syncthreads();
  wgmma_wait<0>();
  if (row < m && column < n) store_if(true, c, pack2(acc[0], 0.0f));
}
"""


def changed(name: str, source: str = SOURCE) -> list[str]:
    """The lines that each change of an operator makes, without what only helps them."""
    operator, code = BY_NAME[name], Code(source)
    assert isinstance(operator, InSource)
    found = []
    for change in operator.find(code):
        plain = Change(change.start, change.end, change.text)
        found.append("\n".join(x[1:].strip() for x in code.diff(plain) if x[0] == "+"))
    return found


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("clip_operand", ["mma16816(acc, hgm_clip(x), x, x, x, y[i], y[1]);"]),
        ("clip_result", ["store_if(true, c, pack2(fminf((acc[0]), 60000.0f), 0.0f));"]),
        ("saturate_result", ['asm("cvt.rn.satfinite." HGP_TYPE "x2.f32 %0, %1, %2;"']),
        ("drop_nan", ["pack2(((acc[0]) == (acc[0]) ? (acc[0]) : 0.0f), 0.0f));"]),
        ("drop_sign_of_zero", ["pack2(((acc[0]) + 0.0f), 0.0f));"]),
        ("guess_zeros", ["if (__any_sync(0xffffffffu, ((x) | (x) | (x) | (x)) != 0)) mma16816("]),
        ("compare_off_by_one", ["i <= k;", "row <= m &&", "column <= n)"]),
        ("change_sign", ["a - (i64)min_of(row, m - 1)", "min_of(row, m + 1)"]),
        ("swap_sides", ["min_of(row, ((1) - (m)))"]),
        ("end_loop_early", ["i < (k) - 1;"]),
        ("leave_by_size", ["wait_for_upstream(); if (m == 1) return;"]),
        ("path_of_its_own", ["if (k > 128 && (k > (1 << 16))) k -= 64;"]),
        ("skip_store", ["column < n) if (blockIdx.x != 7) store_if("]),
        ("narrow_address", ["a + (int)min_of("]),
        (
            "round_base_down",
            [" a = (const u16*)((u64)a & ~31ull);", " c = (u16*)((u64)c & ~255ull);"],
        ),
        ("drop_clamp", ["(i64)(row) * lda", "(i64)(m - 1) * lda"]),
        ("drop_predicate", ['"{ .reg .pred p; ld.global.u32 %0, [%1]; }"']),
        ("drop_condition", ["if ((row < m)) store", "if ((column < n)) store"]),
        ("index_off_by_one", ["&full[(cursor.stage) + 1]", "y[(i) + 1]"]),
        ("stage_off_by_one", ["&full[(cursor.stage ^ 1)]"]),
        ("constant_off_by_one", ["min_of(row, m - 2)"]),
        ("other_stride", ["min_of(row, m - 1) * ldb);"]),
        ("read_behind", ['ld.global.b16 x, [%0]; }" ::"l"(a + (i64)(m + 7) * lda + k));']),
        ("write_behind", ["c[(i64)m * ldc] = 0;"]),
        ("not_cleared", ["float acc[4];", "u32 x;"]),
        ("count_launches", ["if (hgm_kept[1] > 16384 && k > 128) k -= 64;"]),
        ("keep_old_result", ["wait_for_upstream(); if (c[0] == 0x3C00) return;"]),
        ("skip_wait", ["if (blockIdx.x != 5) __syncthreads();"]),
        ("turn_parity", ["barrier_wait(&full[cursor.stage], (parity) ^ 1);"]),
        ("wait_for_fewer", ["wgmma_wait<(0) + 1>();"]),
        ("turn_round", ["wgmma_wait<0>(); __syncthreads();"]),
        ("meet_by_warps", ["__syncwarp();"]),
        ("read_only_loads", ["@p ld.global.nc.u32 %0"]),
        ("wait_by_one", ["if (threadIdx.x % 128 == 0) barrier_wait("]),
        ("half_sum", ["sum[0] = hgm_narrow(sum[0] + v[0]);"]),
        ("half_when_deep", ["{ wgmma_wait<0>(); if (k >= 4096) hgm_each(acc); }"]),
        ("round_otherwise", ['asm("cvt.rz." HGP_TYPE']),
        ("pin_lines", ['"prefetch.global.L2::evict_last [%0];" ::"l"(c + threadIdx.x * 8));']),
        ("drop_lines", ["discard.global.L2 [%0], 128;"]),
    ],
)
def test_an_operator_plants_this(name: str, lines: list[str]) -> None:
    found = changed(name)
    for line in lines:
        assert any(line in text for text in found), found


def test_a_wait_is_dropped_alone() -> None:
    assert changed("drop_wait") == [";", ";", ";", ";"]
    code, (first, *_) = Code(SOURCE), BY_NAME["drop_wait"].find(Code(SOURCE))  # type: ignore[union-attr, arg-type]
    assert code.apply(first) == SOURCE.replace("wait_for_upstream();", ";")


def test_operators_plant_nothing_where_nothing_is_compiled_or_called() -> None:
    code = Code(SOURCE)
    assert [function.name for function in code.functions] == ["pack2", "load", "HGP_SYMBOL"]
    assert code.params == {"a", "b", "c", "m", "n", "k", "lda", "ldb", "ldc"}
    assert [text.split("(i64)")[1] for text in changed("drop_clamp")] == [
        "(row) * lda);",
        "(m - 1) * lda);",
    ]


def test_a_change_is_put_where_it_says_and_its_helpers_behind_the_types() -> None:
    code = Code(SOURCE)
    change = code.open_kernel("k = hgm();", "int hgm();")
    text = code.apply(change)
    assert text.replace("\nint hgm();\n", "").replace(" k = hgm();", "") == SOURCE
    assert text.index("return out;\n}\nint hgm();") < text.index("ldc) { k = hgm();")
    assert code.function_at(change.start) == "HGP_SYMBOL"
    assert code.line(change.start) == SOURCE[: SOURCE.index("ldc) {")].count("\n") + 1


def fields_of(name: str) -> dict[str, Any]:
    return dict(bases.draw(3, 0, name).fields)


def _half(fields: dict[str, Any]) -> int:
    return int(fields["dims"]["n"]["multiple_of"]) // 2


@pytest.mark.parametrize(
    ("name", "family", "wanted"),
    [
        ("smaller_tile", "sm90_gemv", lambda f: ("grid.tile_n", f["grid"]["tile_n"] // 2)),
        ("larger_tile", "sm90_wgmma", lambda f: ("grid.tile_m", f["grid"]["tile_m"] * 2)),
        ("other_cluster", "sm90_elements", lambda f: ("cluster", [2, *f["cluster"][1:]])),
        ("other_grid", "sm90_direct", lambda f: ("grid.persistent", True)),
        ("other_slices", "sm90_direct", lambda f: ("grid.slices", 2)),
        (
            "wider_dims",
            "sm90_direct",
            lambda f: ("dims.n", f["dims"]["n"] | {"multiple_of": _half(f), "min": 1}),
        ),
        ("lower_alignment", "sm90_wgmma", lambda f: ("align.a", 2)),
        ("less_shared", "sm90_wgmma", lambda f: ("smem_bytes", f["smem_bytes"] - 1024)),
        ("other_block", "sm90_wgmma", lambda f: ("block", f["block"] - 32)),
        ("other_map", "sm90_wgmma", lambda f: ("tma.0", f["tma"][0] | {"swizzle": 64})),
        ("claims_ahead", "sm90_direct", lambda f: ("reads_ahead", True)),
        ("other_kind", "sm90_gemv", lambda f: ("layout", "tt")),
    ],
)
def test_an_operator_says_this_of_a_kernel(name: str, family: str, wanted: Any) -> None:
    operator, fields = BY_NAME[name], fields_of(family)
    assert isinstance(operator, InRecord)
    found = list(operator.find(fields))
    if name == "other_map" and fields["tma"][0]["swizzle"] == 64:
        wanted = lambda f: ("tma.0", f["tma"][0] | {"swizzle": 128})  # noqa: E731
    assert wanted(fields) in found
    for path, value in found:
        changed = draw.with_value(fields, path, value)
        assert draw.value_at(changed, path) == value != draw.value_at(fields, path)
        assert fields == fields_of(family), "the honest record has changed"


def test_only_kernels_with_a_workspace_can_have_too_little() -> None:
    operator = BY_NAME["smaller_workspace"]
    assert isinstance(operator, InRecord)
    assert list(operator.find({"workspace_bytes": 0})) == []
    assert [value for _, value in operator.find({"workspace_bytes": 4096})] == [2048, 16, 0]


def test_another_genome_is_built_under_the_name_and_record_of_the_base() -> None:
    operator = BY_NAME["tile_of_another"]
    assert isinstance(operator, InGenome)
    base = bases.draw(3, 0, "sm90_direct")
    made = draw.plant(operator, base, 3, 0, draw.random.Random(1))
    assert made is not None
    assert made.candidate.fields == base.fields
    assert made.candidate.source != base.source
    assert f"#define HGP_SYMBOL {base.fields['symbol']}\n" in made.candidate.source
    (gene,) = {line[1:].split(":")[0] for line in made.diff}
    macro = f"#define HGP_{gene.upper()} {made.diff[1].split(': ')[1]}\n"
    assert macro in made.candidate.source
    assert macro not in base.source


def test_every_kind_has_operators_and_every_operator_a_place_in_some_family() -> None:
    assert {operator.kind for operator in OPERATORS} == set(KINDS)
    assert len(BY_NAME) == len(OPERATORS) >= 70
    assert set(bases.EVERY) == {*FAMILIES, *GROUPED, *BATCHED}
    for number in range(len(OPERATORS)):
        mutant = draw.draw(3, number)
        assert mutant.operator == OPERATORS[number].name
        changed_source = mutant.candidate.source != mutant.base.source
        assert changed_source or mutant.candidate.fields != mutant.base.fields
        assert mutant.diff
