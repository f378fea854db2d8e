"""What the protocols make of their lines: problems chosen, means, shares, verdicts."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.campaigns import campaign, chained, dependent
from hgemm_packs.generator.campaigns import sustained as energy
from hgemm_packs.generator.campaigns.chained import Draw
from hgemm_packs.generator.campaigns.sustained import Among
from hgemm_packs.generator.campaigns.tasks import dependent_tasks
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.core import problems
from hgemm_packs.problem import Problem
from tests import packs

Line = dict[str, Any]


def line(mnk: tuple[int, int, int], kernel: str, layout: str = "nn", **times: Any) -> Line:
    return {
        "problem": [*mnk, layout, "f16"],
        "kernel": kernel,
        "fields": ["problem", "kernel"],
        "wrong": [],
        "edges": {"programmatic": 2, "full": 1},
        **times,
    }


def us(torch: float, plain: float, pdl: float, **more: float) -> dict[str, list[float]]:
    """Samples whose median is what is given."""
    times = {"torch": torch, "plain": plain, "pdl": pdl, **more}
    return {arm: [t * 0.9, t, t, t * 3.0] for arm, t in times.items()}


# --- pdl ------------------------------------------------------------------------------------------


def test_pdl_means_are_of_problems_and_of_each_ones_best_kernel() -> None:
    lines = [
        line((64, 64, 64), "a", hot=us(2, 1, 0.5), cold=us(3, 2, 1)),
        line((64, 64, 64), "b", hot=us(2, 1.6, 0.4), cold=us(3, 1.5, 1.5)),
        line((64, 64, 128), "a", hot=us(2, 2, 1), cold=us(2, 2, 2)),
        line((64, 64, 8192), "c", hot=us(4, 2, 1), cold=us(4, 4, 2)),
    ]
    lines[3]["edges"] = {"programmatic": 1, "full": 2}
    bad = line((64, 64, 256), "d", hot=us(9, 1, 1), cold=us(9, 1, 1))
    bad["wrong"] = ["hot: pdl differs from plain"]
    found = dependent.summary([*lines, bad])
    assert found["problems"] == 3
    assert found["groups"]["f16 nn tiny"] == {
        "problems": 3,
        "plain_hot": round((2 * 1 * 2) ** (1 / 3), 4),
        "pdl_hot": round((5 * 2 * 4) ** (1 / 3), 4),
        "plain_cold": round((2 * 1 * 1) ** (1 / 3), 4),
        "pdl_cold": round((3 * 1 * 2) ** (1 / 3), 4),
    }
    assert found["groups"]["f16 nn all"]["problems"] == 3
    assert found["wrong"] == [[64, 64, 256, "nn", "f16", "d", "hot: pdl differs from plain"]]
    assert found["not_programmatic"] == ["c"]


def test_pdl_tasks_bring_their_kernels(tmp_path: Path) -> None:
    packs.write_good(tmp_path / "pack")
    pack = Packed(tmp_path / "pack")
    tasks = dependent_tasks([(packs.WIN, "k_tma2"), (packs.CUBLAS, "k_tma3")], pack.kernel)
    assert [each.kernels()[0].fields["name"] for each in tasks] == ["k_tma2", "k_tma3"]
    assert [each.fields["kernel"] for each in tasks] == ["k_tma2", "k_tma3"]
    assert len({each.key for each in tasks}) == 2


# --- chained --------------------------------------------------------------------------------------


def test_problems_are_drawn_from_every_regime_that_lasts() -> None:
    grid = [p for p in problems.read("grid") if (p.layout, p.dtype) == ("nn", "f16")]
    llm = problems.read("llm")
    layers = [p for p in llm if p.dtype == "f16" and p.m in (1, 16, 4096)]
    few = [p for p in grid if problems.regime(p.m, p.n, p.k) != "tiny"]
    tiny = [p for p in grid if p not in few][:2]
    wins = [*few, *tiny, *layers, Problem(64, 64, 64, "nt", "bf16")]
    drawn = chained.choose(wins, llm, Draw(60, 20, seed=4))
    of_grid, of_layers = drawn[:60], drawn[60:]
    assert len(set(drawn)) == 80 and set(of_grid) <= set(few + tiny)
    counts = {
        regime: sum(problems.regime(p.m, p.n, p.k) == regime for p in of_grid)
        for regime in problems.REGIMES
    }
    assert counts["tiny"] == 2 and {9, 10} >= {n for r, n in counts.items() if r != "tiny"}
    assert len(of_layers) == 20 and set(of_layers) <= set(layers)
    assert [sum(p.m == m for p in of_layers) for m in (1, 16, 4096)] == [7, 7, 6]
    random.Random(1).shuffle(wins)
    assert chained.choose(wins, llm, Draw(60, 20, seed=4)) == drawn
    assert chained.choose(wins, llm, Draw(60, 20, seed=5)) != drawn
    assert len(chained.choose(wins[:3], llm, Draw(60, 20, seed=4))) <= 3


def test_what_survives_is_the_products_share_of_the_isolated_gain() -> None:
    chain = us(6.0, 5.0, 4.0, elementwise=2.0)
    one = line((64, 64, 64), "a", hot=us(4, 2, 1), cold=us(4, 3.98, 2), chained=chain)
    figures = chained.figures(one)
    assert figures["elementwise_us"] == 2.0
    assert figures["pair_us"] == {"torch": 6.0, "plain": 5.0, "pdl": 4.0}
    assert figures["plain"] == pytest.approx(
        {"pair": 1.2, "product": 4 / 3, "hot": 2.0, "cold": 4 / 3.98, "saved_us": 1.0}
        | {"saved_hot_us": 2.0}
    )
    found = chained.summary([{"commit": "c"}], [one])
    tiny = found["groups"]["tiny"]
    assert tiny == found["groups"]["grid"] and tiny["problems"] == 1
    assert tiny["plain"]["survives_of_hot"] == round(math.log(4 / 3) / math.log(2), 3)
    assert tiny["plain"]["survives_of_cold"] is None  # a gain of half a percent is none
    assert tiny["pdl"]["survives_of_hot"] == round(math.log(2) / math.log(4), 3)
    assert tiny["pdl"]["survives_of_cold"] == 1.0
    assert found["measured_on"] == {"commit": "c"}
    assert found["problems"][0]["pdl"]["pair"] == 1.5


def test_chained_groups_and_wrong_lines(tmp_path: Path) -> None:
    chain, both = us(6.0, 5.0, 4.0, elementwise=2.0), us(4, 2, 1)
    lines = [
        line((64, 64, 64), "a", hot=both, cold=both, chained=chain),
        line((256, 4096, 4096), "b", "nt", hot=both, cold=both, chained=chain),
        line((512, 4096, 4096), "b", "nt", hot=both, cold=both, chained=chain),
        line((64, 64, 128), "c", hot=both, cold=both, chained=chain),
    ]
    lines[3]["wrong"] = ["chained: pdl differs from plain"]
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(each) + "\n" for each in [{"header": {}}, *lines]))
    found = chained.summary(*campaign.lines([raw]))
    assert {name: each["problems"] for name, each in found["groups"].items()} == {
        "tiny": 1,
        "grid": 1,
        "layers": 2,
        "layers, M <= 256": 1,
        "layers, M > 256": 1,
    }
    assert found["wrong"] == [[64, 64, 128, "nn", "f16", "chained: pdl differs from plain"]]
    assert len(found["problems"]) == 3
    with pytest.raises(ValueError, match="no line with right values"):
        chained.summary([], lines[3:])


# --- energy ---------------------------------------------------------------------------------------


def sustained(us: float, watts: float | None, tflops: float) -> Line:
    per_watt = watts and round(tflops / watts, 5)
    return {
        "us": us,
        "watts": watts,
        "tflops": tflops,
        "tflops_per_watt": per_watt,
        "sm_mhz": 1400.0,
    }


def energy_line(**changes: Any) -> Line:
    return {
        "problem": [8192, 8192, 8192, "nn", "f16"],
        "fields": ["problem"],
        "wrong": [],
        "burst": {"torch": [1600.0], "cublaslt": [1590.0], "cool": [1550.0], "hot": [1500.0]},
        "sustained": {
            "torch": sustained(1700.0, 690.0, 647.0),
            "cublaslt": sustained(1680.0, 695.0, 654.0),
            "cool": sustained(1600.0, 650.0, 687.0),
            "hot": sustained(1640.0, 699.0, 670.0),
        },
        **changes,
    }


def test_the_kernel_that_is_best_for_long_need_not_be_the_best_in_bursts() -> None:
    found = energy.verdict(energy_line())
    assert (found["by_burst"], found["by_sustained"], found["differs"]) == ("hot", "cool", True)
    assert found["loss_of_burst_choice"] == 1.025
    assert found["burst_vs_torch"] == round(1600 / 1500, 4)
    assert found["sustained_vs_torch"] == round(1700 / 1600, 4)
    assert found["sustained_vs_best"] == 1.05
    assert found["per_watt_vs_torch"] == pytest.approx((687 / 650) / (647 / 690), abs=2e-4)
    assert found["per_watt_vs_best"] == pytest.approx((687 / 650) / (654 / 695), abs=2e-4)
    # Within half a percent it is a tie.
    close = energy_line()
    close["sustained"]["hot"] = sustained(1604.0, 699.0, 685.0)
    assert not energy.verdict(close)["differs"]


def test_energy_means_leave_out_what_was_not_read(tmp_path: Path) -> None:
    blind = energy_line(problem=[16384, 8192, 8192, "nn", "f16"])
    for run in blind["sustained"].values():
        run["watts"] = run["tflops_per_watt"] = None
    alone = energy_line(problem=[16384, 8192, 4096, "nt", "bf16"], wrong=["k: 3 elements wrong"])
    alone["sustained"] = {arm: alone["sustained"][arm] for arm in ("torch", "cublaslt")}
    found = energy.summary([], [energy_line(), blind, alone])
    assert list(found["groups"]) == ["f16 nn"]
    means = found["groups"]["f16 nn"]
    assert (means["problems"], means["differs"], means["worst_loss"]) == (2, 2, 1.025)
    assert means["sustained_vs_best"] == 1.05
    assert means["per_watt_vs_torch"] == energy.verdict(energy_line())["per_watt_vs_torch"]
    assert [each["kernels"] for each in found["problems"]].count(0) == 1
    assert found["wrong"] == [[16384, 8192, 4096, "nt", "bf16", "k: 3 elements wrong"]]


def test_energy_tries_the_tables_kernel_first_and_large_tiles_only(tmp_path: Path) -> None:
    packs.write_good(tmp_path / "pack")
    pack = Packed(tmp_path / "pack")
    big = Problem(8192, 8192, 1024, "nn", "f16")
    assert energy.large(big) and not energy.large(Problem(4096, 4096, 2048, "nn", "f16"))
    assert energy.contenders(pack, big, None, []) == ["k_direct", "k_tma2", "k_tma3"]
    assert energy.contenders(pack, big, "k_tma3", []) == ["k_tma3", "k_direct", "k_tma2"]
    assert energy.contenders(pack, packs.WIN, None, ["k_tma3"]) == ["k_tma2", "k_tma3"]
    other = Problem(8192, 8192, 1024, "tt", "f16")
    tasks = energy.tasks(pack, [(big, None), (packs.WIN, None), (other, None)], Among())
    assert [each.problem for each in tasks] == [big]
    assert [one.fields["name"] for one in tasks[0].kernels()] == ["k_direct", "k_tma2", "k_tma3"]
