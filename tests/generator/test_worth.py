"""What `matmul` is worth: kernels where a table has them, torch elsewhere, nothing made up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hgemm_packs.generator import problems, worth
from hgemm_packs.manifest import Row, Timing
from hgemm_packs.problem import Problem

LLM = min(worth.shapes("llm"))


def row(
    shape: tuple[int, int, int],
    kernel: str | None,
    us: tuple[float, float],
    *,
    torch: float = 12.0,
    tuned: float = 9.0,
    kind: tuple[str, str] = ("nn", "f16"),
    dependent: str | None = None,
) -> Row:
    hot, cold = (Timing(ours, torch, tuned, torch / ours, 1.0) for ours in us)
    rest = (kind[1], "f32", "none", kernel, "GPU", hot, cold, 9, "2026-01-01", dependent)
    return Row(*shape, *kind, *rest)


def source(*rows: Row) -> Any:
    kernels = [SimpleNamespace(id=name, name=f"name_{name}") for name in "ab"]
    return SimpleNamespace(table=rows, kernels=kernels)


def figures(*rows: Row, lines: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return worth.figures(source(*rows), lines)


def chain(shape: tuple[int, int, int], kernel: str = "name_b", **changes: Any) -> dict[str, Any]:
    times = {"torch": [12.0, 12.0, 24.0], "plain": [5.0, 5.0, 5.0], "pdl": [4.0, 4.0, 4.0]}
    line = {"problem": [*shape, "nn", "f16"], "kernel": kernel, "hot": times, "cold": times}
    return line | {"wrong": False} | changes


TINY, MID = (64, 64, 64), (1024, 1024, 1024)
ROWS = (
    row(TINY, "a", (6.0, 8.0), dependent="b"),  # 2x torch, 1.5x the better one
    row(MID, None, (13.0, 13.0)),  # torch, which a tuned cuBLASLt beats
    row((100, 64, 64), "a", (1.0, 1.0)),  # in no list
)


def test_a_fallback_counts_as_torch_and_loses_what_torch_loses() -> None:
    found = figures(*ROWS)["grid"]["fp16"]["nn"]
    assert (found["shapes"], found["unmeasured"], found["kernel_share"]) == (1000, 998, 0.001)
    plain = found["plain"]
    assert plain["gmean_vs_torch_hot"] == round(2.0 ** (1 / 1000), 4)
    assert plain["regimes"]["tiny"] == round(2.0 ** (1 / 120), 4)
    assert plain["regimes"]["mid"] == plain["worst_vs_torch_hot"] == 1.0
    # Against the better one over the two that were measured: 1.5 and 9 / 12.
    assert plain["gmean_vs_best_hot"] == round((1.5 * 0.75) ** 0.5, 4)
    assert found["regime_shapes"]["tiny"] == 120 and sum(found["regime_shapes"].values()) == 1000
    assert set(found["regime_shapes"]) == set(problems.REGIMES)


def test_layers_are_those_that_were_measured() -> None:
    kind = ("nt", "bf16")
    found = figures(row(LLM, "b", (6.0, 8.0), kind=kind), ROWS[0], ROWS[2])
    assert set(found) == {"grid", "llm"} and set(found["llm"]) == {"bf16"}
    layers = found["llm"]["bf16"]["nt"]
    assert (layers["shapes"], layers["unmeasured"], layers["kernel_share"]) == (1, 0, 1.0)
    assert layers["plain"]["gmean_vs_torch_cold"] == 1.5
    assert layers["regime_shapes"] == {"M<=256": 1}
    assert (problems.layer_regime(256), problems.layer_regime(257)) == ("M<=256", "M>256")


def test_without_a_chain_measured_there_is_no_figure_but_a_reason() -> None:
    for lines in (
        (),
        (chain(TINY, "name_a"),),  # the kernel of the row, but not for that
        (chain(TINY, wrong=True),),
        (chain(MID),),  # torch runs there
        ({"problem": chain(TINY)["problem"], "kernel": "name_b", "error": "killed"},),
    ):
        pdl = figures(*ROWS, lines=lines)["grid"]["fp16"]["nn"]["pdl"]
        assert pdl.pop("reason") == worth.NO_PDL
        assert set(pdl.values()) == {None} and "gmean_vs_torch_hot" in pdl
    # Measured, but the table launches nothing so.
    rows = [each._replace(dependent=None) for each in ROWS]
    pdl = figures(*rows, lines=(chain(TINY),))["grid"]["fp16"]["nn"]["pdl"]
    assert pdl["gmean_vs_torch_hot"] is None and pdl["reason"] == worth.NO_PDL


def test_chains_count_once_all_were_measured() -> None:
    # Three problems of the set, on two of them a kernel for dependent launch.
    also, plainly = (64, 64, 128), row((64, 64, 256), "a", (4.0, 4.0))
    rows = (*ROWS, row(also, "a", (6.0, 6.0), dependent="a"), plainly)
    better = chain(TINY, hot={"torch": [20.0], "pdl": [1.0]})  # measured twice: the slower counts
    pdl = figures(*rows, lines=(chain(TINY), better))["grid"]["fp16"]["nn"]["pdl"]
    assert pdl.pop("reason") == worth.SOME_PDL.format(1, 2) and set(pdl.values()) == {None}
    for bad in (
        chain(also, "name_a", wrong=["hot: pdl differs"]),
        chain(also),
        chain(plainly[:3], "name_a"),
    ):
        pdl = figures(*rows, lines=(chain(TINY), better, bad))["grid"]["fp16"]["nn"]["pdl"]
        assert pdl["reason"] == worth.SOME_PDL.format(1, 2)
    other = chain(also, "name_a", cold={"torch": [12.0], "pdl": [6.0]})
    pdl = figures(*rows, lines=(chain(TINY), better, other))["grid"]["fp16"]["nn"]["pdl"]
    assert (pdl["measured"], pdl["of"]) == (2, 2) and "reason" not in pdl
    # 3x torch in the chain, twice hot; the row without counts as it is launched plainly; medians of
    # pairs, not of sides.
    assert pdl["regimes"]["tiny"] == round((3.0 * 3.0 * 3.0) ** (1 / 120), 4)
    best = 3.0 * 0.75
    assert pdl["gmean_vs_best_hot"] == round((best * best * 2.25 * 0.75) ** (1 / 4), 4)
    assert pdl["gmean_vs_torch_cold"] == round((3.0 * 2.0 * 3.0) ** (1 / 1000), 4)


def test_what_is_still_to_be_measured_is_listed() -> None:
    also = row((64, 64, 128), "a", (6.0, 6.0), dependent="a", kind=("nt", "bf16"))
    table = source(*ROWS, also, row((64, 64, 256), "a", (4.0, 4.0)))
    mine = Problem(*TINY, "nn", "f16"), "name_b"
    other = Problem(64, 64, 128, "nt", "bf16"), "name_a"
    assert worth.unmeasured(table, ()) == [mine, other]
    assert worth.unmeasured(table, [chain(TINY), chain(TINY, "name_a")]) == [other]
    assert worth.unmeasured(table, [chain(TINY, wrong=["x"])]) == [mine, other]
    measured = chain(also[:3], "name_a", problem=[*also[:5]])
    assert worth.unmeasured(table, [chain(TINY), measured]) == []
    chains = worth.chains(table, [chain(TINY), measured])
    assert worth.complete(ROWS, chains) and worth.complete([also], chains)
    assert not worth.complete([also], {TINY}) and not worth.complete(ROWS[1:], chains)
    assert [chains[each[:5]].kernel for each in (ROWS[0], also)] == ["b", "a"]


def test_no_hot_call_of_a_chain_is_faster_than_l2_gives_its_operands() -> None:
    wide = row((8, 3584, 3584), "a", (8.0, 8.0), dependent="b")
    us = 1e6 * 2 * (8 * 3584 * 2 + 3584 * 3584) / worth.L2_RATE
    assert us == pytest.approx(4.23, abs=0.01)
    for took, counted in ((us / 2, us), (us, us), (2 * us, 2 * us)):
        samples = {"torch": [12.0] * 3, "pdl": [took] * 3}
        found = worth.chained(wide, chain(wide[:3], hot=samples, cold=samples))
        assert found.hot == pytest.approx(12.0 / counted)
        assert found.cold == pytest.approx(12.0 / took)
        assert found.vs_best == pytest.approx(9.0 / counted)


def test_a_chain_without_cold_samples_has_no_cold_mean() -> None:
    line = chain(TINY)
    del line["cold"]
    pdl = figures(*ROWS, lines=(line,))["grid"]["fp16"]["nn"]["pdl"]
    assert pdl["gmean_vs_torch_cold"] is None
    assert pdl["gmean_vs_torch_hot"] == round(3.0 ** (1 / 1000), 4)
    with pytest.raises(ValueError, match="no hot samples"):
        worth.chained(ROWS[0], {**line, "hot": {}})
