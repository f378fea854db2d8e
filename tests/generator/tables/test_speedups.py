"""What `matmul` is worth: kernels where a table has them, torch elsewhere, nothing made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hgemm_packs.generator.core import problems
from hgemm_packs.generator.gates.plausibility import compulsory_bytes
from hgemm_packs.generator.tables import speedups
from hgemm_packs.pack.manifest import Row
from hgemm_packs.problem import Problem
from tests.generator.called import FORMER, A, B, line, row, source

LLM = Problem(*min(speedups.shapes("llm")), "nt", "bf16")
TINY, MID = Problem(64, 64, 64, "nn", "f16"), Problem(1024, 1024, 1024, "nn", "f16")
ALSO, PLAINLY = replace(TINY, k=128), replace(TINY, k=256)
ROWS = (
    row(TINY, A, B),  # 2x torch, 1.5x the better one
    row(MID, None, us=(13.0, 13.0)),  # torch, which a tuned cuBLASLt beats
    row(replace(TINY, m=100), A, us=(1.0, 1.0)),  # in no list
)


def figures(*rows: Row, lines: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return speedups.figures(source(*rows), lines)


def grid(*rows: Row, lines: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    found: dict[str, Any] = figures(*rows, lines=lines)["grid"]["fp16"]["nn"]
    return found


def test_a_fallback_counts_as_torch_and_loses_what_torch_loses() -> None:
    found = grid(*ROWS)
    assert (found["shapes"], found["unmeasured"], found["kernel_share"]) == (1000, 998, 0.001)
    plain = found["plain"]
    assert plain["gmean_vs_torch_hot"] == round(2.0 ** (1 / 1000), 4)
    assert plain["regimes"]["tiny"] == round(2.0 ** (1 / 120), 4)
    assert plain["regimes"]["mid"] == plain["worst_vs_torch_hot"] == 1.0
    # Against the better one over the two that were measured: 1.5 and 9 / 12.
    assert plain["gmean_vs_best_hot"] == round((1.5 * 0.75) ** 0.5, 4)
    assert found["regime_shapes"]["tiny"] == 120 and sum(found["regime_shapes"].values()) == 1000
    assert set(found["regime_shapes"]) == set(problems.REGIMES)


def test_a_row_with_an_epilogue_is_in_no_set_of_products() -> None:
    """The grid had 1002 shapes, for two of its sizes had been measured with a bias as well."""
    biased = ROWS[0]._replace(epilogue="bias")
    assert grid(*ROWS, biased) == grid(*ROWS)
    assert speedups.find_unmeasured(source(biased), []) == []


def test_layers_are_those_that_were_measured() -> None:
    found = figures(row(LLM, B), ROWS[0], ROWS[2])
    assert set(found) == {"grid", "llm"} and set(found["llm"]) == {"bf16"}
    layers = found["llm"]["bf16"]["nt"]
    assert (layers["shapes"], layers["unmeasured"], layers["kernel_share"]) == (1, 0, 1.0)
    assert layers["plain"]["gmean_vs_torch_cold"] == 1.5
    assert layers["regime_shapes"] == {"M<=256": 1}
    assert (problems.layer_regime(256), problems.layer_regime(257)) == ("M<=256", "M>256")


@pytest.mark.parametrize(
    "lines",
    [
        (),
        (line(TINY, [A]),),  # the row's kernel, before it had one for dependent launch
        (line(TINY, [A, A]),),
        (line(TINY, [FORMER[A], B]),),
        (line(MID, [A, B]),),  # torch runs there
        ({"problem": [*TINY.key[:5]], "fields": ["problem"], "error": "killed", "blamed": True},),
        ({"group": ["f16", "nn", "tiny", 0], "us": {}},),
    ],
)
def test_rows_that_nobody_called_count_their_confirmation(lines: tuple[dict[str, Any]]) -> None:
    found = grid(*ROWS, lines=lines)
    assert (found["served"], found["called"]) == (1, 0)
    assert found["plain"] == found["mixed"] == found["chain"]
    assert found["plain"]["gmean_vs_torch_hot"] == round(2.0 ** (1 / 1000), 4)
    assert speedups.chains(source(*ROWS), lines) == {}


def test_calls_count_each_in_its_column() -> None:
    rows = (*ROWS, row(ALSO, A, us=(4.0, 4.0)), row(PLAINLY, B, us=(6.0, 6.0)))
    both = line(TINY, [A, B], {"plain": 2.5, "regime": 3.0, "all": 9.0, "32x2": 4.0, "8x1": 9.0})
    alone = line(ALSO, [A], {"plain": 2.0, "regime": 1.25, "8x1": 0.995})
    former = line(TINY, [A, B], {"plain": 7.0})  # measured again since: the last counts
    found = grid(*rows, lines=(former, both, alone))
    assert (found["served"], found["called"]) == (3, 2)
    # TINY, ALSO, and PLAINLY, which nobody called.
    for column, each in (
        ("plain", (2.5, 2.0, 2.0)),
        ("mixed", (3.0, 1.25, 2.0)),
        ("chain", (4.0, 0.995, 2.0)),  # 8x1 stands for the chains that ALSO has not
    ):
        product = each[0] * each[1] * each[2]
        assert found[column]["regimes"]["tiny"] == round(product ** (1 / 120), 4)
        assert found[column]["gmean_vs_torch_hot"] == round(product ** (1 / 1000), 4)
        # Of torch's 12 us cuBLASLt takes 9, on each of them and on MID.
        best = (product * 0.75**4) ** (1 / 4)
        assert found[column]["gmean_vs_best_hot"] == round(best, 4)
    assert found["chain"]["worst_vs_torch_hot"] == 0.995
    assert found["mixed"]["worst_vs_torch_hot"] == 1.0  # torch itself
    # Cold caches are the confirmation's, and single calls' alone.
    assert found["plain"]["gmean_vs_torch_cold"] == round((1.5 * 3.0 * 2.0) ** (1 / 1000), 4)
    assert found["mixed"]["gmean_vs_torch_cold"] is found["chain"]["gmean_vs_torch_cold"] is None


def test_what_is_still_to_be_measured_is_listed() -> None:
    other = replace(ALSO, layout="nt", dtype="bf16")
    table = source(*ROWS, row(other, A, A), row(PLAINLY, B))
    far = Problem(*ROWS[2].key), "name_a"
    mine, same, plainly = (TINY, "name_b"), (other, "name_a"), (PLAINLY, "name_b")
    assert speedups.find_unmeasured(table, ()) == [mine, far, same, plainly]
    lines = [line(TINY, [A, B]), line(far[0], [A])]
    assert speedups.find_unmeasured(table, lines) == [same, plainly]
    # Of kernels that the rows have no more; without figures.
    stale = [line(other, [A]), line(PLAINLY, [FORMER[B]]), line(PLAINLY, [B], error="no")]
    assert speedups.find_unmeasured(table, [*lines, *stale]) == [same, plainly]
    lines += [line(other, [A, A], {"32x2": 1.25}), line(PLAINLY, [B])]
    assert speedups.find_unmeasured(table, lines) == []
    chains = speedups.chains(table, lines)
    assert {key: each.hot for key, each in chains.items()} == {
        TINY.key[:5]: 1.5,
        other.key[:5]: 1.25,
    }


def test_no_call_of_a_chain_is_faster_than_l2_gives_its_operands() -> None:
    wide = row(Problem(8, 3584, 3584, "nn", "f16"), A, B)
    us = 1e6 * compulsory_bytes(Problem(*wide.key)) / speedups.L2_RATE
    assert us == pytest.approx(4.23, abs=0.01)
    for took, counted in ((us / 2, us), (us, us), (2 * us, 2 * us)):
        of_32 = line(Problem(*wide.key), [A, B], us=32 * took)
        found = speedups.read_public_speedup(wide, of_32, "32x2")
        assert found.hot == pytest.approx(1.5 * took / counted)
        assert found.vs_best == pytest.approx(0.75 * found.hot)
        assert found.cold is None
        # Others run between these, or torch's kernels: nothing is shared.
        assert speedups.read_public_speedup(wide, of_32, "regime").hot == pytest.approx(1.5)
        assert speedups.read_public_speedup(wide, of_32, "plain").hot == pytest.approx(1.5)
