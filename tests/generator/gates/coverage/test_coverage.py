"""The size gate: what families make passes, each comparison on sizes has both outcomes in some
problem, and what is wrong beyond any size that a test would take is found without a GPU."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.families import family
from hgemm_packs.generator.gates.coverage import exceptions, gate, problems
from hgemm_packs.generator.gates.coverage.launches import grid, launch, with_strides
from hgemm_packs.generator.gates.coverage.problems import at_once, ring_of
from hgemm_packs.generator.gates.dataflow import gate as dataflow
from hgemm_packs.generator.redteam import corpus

pytestmark = pytest.mark.usefixtures("kept")

MANIFESTS = Path(__file__).resolve().parents[4] / "manifests" / "sm_90a"
EVERY = 150  # of the committed kernels one in so many


def committed() -> list[tuple[str, Mapping[str, Any]]]:
    found: list[tuple[str, Mapping[str, Any]]] = []
    for folder in ("h200", "h200_batched", "h200_grouped"):
        document = json.loads((MANIFESTS / folder / "kernels.json").read_text())
        common = document["constants"]
        for record in document["records"]:
            genome = {**common.get("genome", {}), **record["genome"]}
            found.append((record.get("family") or common["family"], genome))
    return found[::EVERY]


@pytest.mark.parametrize(("name", "genome"), committed())
def test_committed_kernels_pass(name: str, genome: Mapping[str, Any]) -> None:
    whole = family(name).whole(genome)
    fields = family(name).fields(whole)
    ptx = compiler._compile(compiler.render(name, whole), str(fields["symbol"]))[2]
    verdict = gate.check_ptx(fields, ptx)
    assert verdict.detail == ""
    assert verdict.evidence.get("planned", []) == []


PLAIN = next(each for each in corpus.load() if each.name == "plain").candidate
assert PLAIN is not None
SUM = "  sum(acc, g, row, column, 0, k);\n"
STORE = "  store(acc, g, row, column);\n"


def judged(change: tuple[str, str] | None = None, **fields: Any) -> gate.Verdict:
    """The verdict on the plain kernel of the red team with other text in its source."""
    assert PLAIN is not None
    source = PLAIN.source
    if change is not None:
        assert source.count(change[0]) == 1
        source = source.replace(*change)
    record = {**PLAIN.fields, **fields}
    return gate.check_ptx(record, compiler._compile(source, str(record["symbol"]))[2])


def test_the_plain_kernel_needs_few_further_problems() -> None:
    """Those of outcomes that come together alone: one row or few, one step of K or few."""
    verdict = judged()
    assert (verdict.status, verdict.detail) == (Status.OK, "")
    assert verdict.evidence["large"] == []
    assert 0 < len(verdict.evidence["planned"]) < 12
    assert all(m <= 35 and n == 24 and k <= 64 for m, n, k, *_ in verdict.evidence["planned"])


LOST = STORE.replace("  store", "  if (%s) acc[0] = 0;\n  store")


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("k == 1736", lambda m, n, k: k == 1736),
        ("m > 5000 && m < 5040", lambda m, n, k: 5000 < m < 5040),
        ("3 * n >= 90000", lambda m, n, k: 3 * n >= 90000),
        ("k >= 9000", lambda m, n, k: k >= 9000),
        ("m == 1 && n > 1000", lambda m, n, k: m == 1 and n > 1000),
    ],
)
def test_sizes_are_planned_on_both_sides_of_a_constant(condition: str, holds: Any) -> None:
    verdict = judged((STORE, LOST % condition))
    assert (verdict.status, verdict.detail) == (Status.OK, "")
    assert any(holds(*sizes[:3]) for sizes in verdict.evidence["planned"])


def test_what_two_comparisons_decide_together_is_planned() -> None:
    """A path of its own for wide grids and deep K: each of the two was met beside a small other."""
    wide = "gridDim.x > 20000 && k > 1000"
    verdict = judged((STORE, LOST % wide))
    assert (verdict.status, verdict.detail) == (Status.OK, "")
    asked = [*verdict.evidence["planned"], *verdict.evidence["large"]]
    assert PLAIN is not None
    tall = int(PLAIN.fields["grid"]["tile_m"]) * 20000
    assert any(m > tall and k > 1000 for m, _, k, *_ in asked)


@pytest.mark.parametrize("dim", ["m", "n"])
def test_a_long_side_is_tested_with_short_tails(dim: str) -> None:
    """A path of its own for many rows lost 64 of K: whole tiles had room for them."""
    assert PLAIN is not None
    (step, _), tile = ring_of(PLAIN.fields), int(PLAIN.fields["grid"][f"tile_{dim}"])
    known = problems.tested(PLAIN.fields)
    long = [each for each in known if getattr(each, dim) > problems.MANY * tile]
    assert any(0 < each.k % step <= 8 and each.k > step for each in long)


def test_a_planned_problem_comes_with_the_shortest_tails() -> None:
    """A path of its own for long sides lost 64 of K: whole tiles of 256 had room for them."""
    assert PLAIN is not None
    verdict = judged((STORE, LOST % "m > 5000 && m < 5040"))
    columns, (step, _) = int(PLAIN.fields["grid"]["tile_n"]), ring_of(PLAIN.fields)
    short = [
        int(PLAIN.fields["dims"][dim]["multiple_of"]) % tile
        for dim, tile in (("n", columns), ("k", step))
    ]
    planned = [each[:3] for each in verdict.evidence["planned"]]
    tails = [[n % columns, k % step] for m, n, k in planned if 5000 < m < 5040]
    assert short in tails


def test_a_persistent_grid_meets_more_tiles_than_run_at_once() -> None:
    """Of eight rows: the tiles lie along N alone, and a grid that forgets some is seen by them."""
    assert PLAIN is not None
    few = {**PLAIN.fields["dims"], "m": {"min": 1, "max": 8, "multiple_of": 1}}
    grid = {**PLAIN.fields["grid"], "persistent": True}
    fields = {**PLAIN.fields, "dims": few, "grid": grid}
    most = max(-(-sizes.n // int(grid["tile_n"])) for sizes in problems.tested(fields))
    assert most > 2 * at_once(fields)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ((STORE, LOST % "m * 40503 % 65536 == 77"), "one way: never"),
        ((STORE, LOST % "k > 3000000"), "one way: never true, not zero or larger in 'setp.gt.s32"),
        ((SUM, SUM.replace("0, k", "(k >> 20) * 16, k")), "one way: never true, not zero"),
        (
            ("int row = blockIdx.x * 16", "int row = (int)(short)blockIdx.x * 16"),
            "bounds: ",
        ),
    ],
)
def test_what_no_tested_size_shows_is_refused(change: tuple[str, str], told: str) -> None:
    verdict = judged(change)
    assert verdict.status is Status.COVERAGE
    assert told in verdict.detail


def test_a_tile_is_read_from_what_a_cta_writes() -> None:
    """A smaller tile on record would have the numeric gate take small problems alone."""
    verdict = judged(grid={"tile_m": 8, "tile_n": 8, "persistent": False})
    assert verdict.status is Status.COVERAGE
    assert "tile: a CTA writes rows 0 to" in verdict.detail
    assert "declared are 8 from a multiple of 8 on" in verdict.detail


@pytest.mark.parametrize("case", ["one_row", "half_tile", "one_cta", "persistent", "cluster_sum"])
def test_odd_tiles_that_are_declared_pass(case: str) -> None:
    one = next(each for each in corpus.load() if each.name == case).candidate
    assert one is not None
    ptx = compiler._compile(one.source, str(one.fields["symbol"]))[2]
    assert gate.check_ptx(one.fields, ptx).detail == ""


def test_dims_that_a_kernel_cannot_index_are_refused_and_narrower_ones_pass() -> None:
    """Offsets of 32 bits are right where the record admits no C of 2^31 elements."""
    change = (
        STORE,
        """  for (int i = 0; i < 4; ++i) {
    const int r = row + row_of(i), j = column + column_of(i);
    if (r < m && j < n) c[(u32)r * (u32)ldc + (u32)j] = narrow(acc[i]);
  }
""",
    )
    wide = judged(change)
    assert wide.status is Status.COVERAGE
    assert "bounds: C, " in wide.detail


def test_an_exception_is_needed_and_no_other_kernel_has_it() -> None:
    name, genome = next(
        (name, genome) for name, genome in committed() if "lays_tiles" in family(name).exceptions
    )
    whole = family(name).whole(genome)
    fields = family(name).fields(whole)
    assert exceptions.PLACES in exceptions.declared(fields)
    assert exceptions.declared({**fields, "family": "foreign"}) == frozenset()


def test_a_family_s_record_admits_what_a_grid_has_tiles_for() -> None:
    name, genome = next((n, g) for n, g in committed() if n in ("sm90_direct", "sm90_gemv"))
    fields = compiler.build_one(name, genome).entry_fields
    source = compiler.render(name, genome)
    assert gate.check(fields, source).status is Status.OK
    dims = {**fields["dims"], "n": {**fields["dims"]["n"], "max": 1 << 24}}
    detail = gate.check({**fields, "dims": dims}, source).detail
    assert "dims: no grid has tiles for N 16777216" in detail


def test_a_persistent_grid_is_the_launcher_s() -> None:
    """Twin of grid_of in csrc/launcher/cuda/launch.c."""
    assert PLAIN is not None
    fields = {**PLAIN.fields, "grid": {"tile_m": 16, "tile_n": 8, "persistent": True}}
    sizes = with_strides(fields, 1000, 72, 64)
    assert grid(fields, sizes, None) == (63, 9)
    assert grid(fields, sizes, 12) == (12, 9)
    flat = {**fields, "param_layout": "tma2_v1", "cluster": [2, 1, 1]}
    assert grid(flat, sizes, None) == (64 * 9, 1)
    assert launch(fields, sizes, 12).ctas[0] == (0, 0)
    assert (11, 8) in launch(fields, sizes, 12).ctas


def test_tested_problems_are_those_that_the_record_admits() -> None:
    assert PLAIN is not None
    dims = {**PLAIN.fields["dims"], "m": {"min": 1, "max": 8, "multiple_of": 1}}
    sizes = problems.tested({**PLAIN.fields, "dims": dims})
    assert {each.m for each in sizes} == set(range(1, 9))
    assert all(each.n % 8 == each.k % 8 == 0 for each in sizes)


def told(name: str, genome: Mapping[str, Any]) -> str:
    """What the gate says of a family's kernel."""
    whole = family(name).whole(genome)
    fields = family(name).fields(whole)
    ptx = compiler._compile(compiler.render(name, whole), str(fields["symbol"]))[2]
    return gate.check_ptx(fields, ptx).detail


def test_a_counter_of_deep_steps_loses_no_bits() -> None:
    """A kernel of the table was refused: it shifts the turn of its loop, 512 of K each, by nine,
    and of 2^24 of K there are 2^15."""
    genome = {
        **{"layout": "nt", "dtype": "bf16", "cluster_k": 1, "mi": 1, "ni": 4, "unroll": 2},
        **{"warps_k": 16, "warps_m": 1, "warps_n": 1},
    }
    assert told("sm90_elements", genome) == ""


def test_a_quotient_by_a_large_factor_is_no_sign() -> None:
    """A kernel of batches was refused for a division by 448, which compilers write as the upper
    half of a product, the number added and the sign taken off."""
    genome = {
        **{"layout": "nn", "dtype": "f16", "tile_m": 96, "tile_n": 128, "tile_k": 64},
        **{"stages": 7, "consumers": 2, "schedule": "pingpong", "ctas_per_sm": 1, "raster": "m"},
        **{"group": 1, "epilogue": "bulk", "buffers": 1, "cluster_m": 1, "cluster_n": 1},
        "streaming": False,
    }
    assert told("sm90_batched", genome) == ""


@pytest.mark.parametrize("name", ["sm90_tokens", "sm90_batched"])
def test_a_count_of_tiles_of_which_masks_and_its_complement_s_keep_a_bit_loses_none(
    name: str,
) -> None:
    """Kernels of both families were refused: a CTA stages its tiles in two buffers by turns, and
    the compiler shifts the count of tiles, masks it, and masks its complement."""
    genome: dict[str, Any] = {
        **{"layout": "tt", "dtype": "bf16", "tile_k": 64, "schedule": "cooperative"},
        **{"epilogue": "rows", "buffers": 2, "cluster_n": 1, "group": 1, "raster": "n"},
        **{"ctas_per_sm": 1, "streaming": False},
    }
    of_family = {
        "sm90_tokens": {
            **{"tile_m": 32, "tile_n": 192, "stages": 4, "consumers": 1, "cluster_m": 4},
            **{"persistent": True, "split_k": 1, "reads_ahead": False, "triggers_early": False},
        },
        "sm90_batched": {
            **{"tile_m": 192, "tile_n": 128, "stages": 2, "consumers": 2, "cluster_m": 1},
            "streaming": True,
        },
    }
    assert told(name, genome | of_family[name]) == ""


def test_the_flow_of_the_gate_before_is_taken_once_and_for_this_kernel_alone() -> None:
    assert PLAIN is not None
    fields = {**PLAIN.fields, "dims": dict(PLAIN.fields["dims"])}
    ptx = compiler._compile(PLAIN.source, str(fields["symbol"]))[2]
    few = {**fields, "dims": {**fields["dims"], "m": {**fields["dims"]["m"], "max": 8}}}

    assert dataflow.check_ptx(fields, ptx).detail == ""
    first = dataflow.left(dict(fields), ptx)
    second = dataflow.left(fields, ptx)
    assert second is not first
    assert dataflow.left(fields, ptx) is not second
    dataflow.check_ptx(fields, ptx)
    assert dataflow.left(few, ptx).sizes != second.sizes
    dataflow.check_ptx(fields, ptx)
    fields["dims"]["m"] = few["dims"]["m"]
    assert dataflow.left(fields, ptx).sizes != second.sizes, "a record that was changed in place"
