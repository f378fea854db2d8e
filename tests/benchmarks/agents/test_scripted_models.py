"""agents.json says what the raw lines say, and what is asked of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.agents import figures as figures_of
from benchmarks.agents import replay as agents
from benchmarks.agents import scripted
from hgemm_packs.generator.agents.words import Attempt
from hgemm_packs.generator.llm.words import Message, Request
from hgemm_packs.generator.store.lines import read_records
from tests.generator.agents import cheating

FIGURES = json.loads(figures_of.OUT.read_text(encoding="utf-8"))


def test_the_figures_follow_from_the_raw_lines() -> None:
    assert figures_of.figures() == FIGURES


def test_the_figures_meet_what_is_asked() -> None:
    assert FIGURES["mixed_p"] < 0.05 and FIGURES["branching_p"] < 0.05
    assert FIGURES["mixed_vs_search"] > 1 - FIGURES["replay"]["margin"]
    assert FIGURES["replay"]["seeds"] == 20
    assert FIGURES["scripted"]["gate_bypasses"] == 0
    cases = len(cheating.cheats()) + len(scripted.FAILURES)
    assert FIGURES["scripted"]["cases"] == cases == sum(FIGURES["scripted"]["outcomes"].values())


def test_every_cheat_of_the_corpus_was_proposed_under_its_name() -> None:
    """A case that was renamed would leave the count as it is, and never have been proposed."""
    played = {
        line["case"] for line in read_records([figures_of.RAW / "scripted"]) if "case" in line
    }
    wanted = {case.name for case in cheating.cheats()} | scripted.FAILURES.keys()
    assert wanted == played


def lines(**shares: list[float]) -> list[agents.Line]:
    return [
        {"name": name, "seed": seed, "sources": "x", "shares": [share]}
        for name, each in shares.items()
        for seed, share in enumerate(each)
    ]


def test_the_worst_quality_counts_and_a_loss_beyond_the_margin_is_no_success() -> None:
    alone = [0.90 + 0.001 * i for i in range(20)]
    level = [share + 0.0001 * (i + 1) for i, share in enumerate(alone)]
    behind = [share - 0.02 - 0.0001 * i for i, share in enumerate(alone)]
    chains = {"branching": level, "chain": behind, "sequence": alone}
    good = agents.summarise(lines(search=alone, bad=level, fair=level, good=level, **chains))
    assert good["mixed_p"] < 0.001 and good["mixed_vs_search"] > 1 and good["branching_p"] < 0.001
    bad = agents.summarise(lines(search=alone, bad=behind, fair=level, good=level, **chains))
    assert bad["mixed_p"] > 0.99 and bad["mixed_vs_search"] < 0.98


@pytest.mark.parametrize(
    ("quality", "least", "most"), [(0.0, 0, 8), (0.6, 48, 72), (1.0, 100, 100)]
)
def test_a_scripted_model_is_of_its_quality(quality: float, least: int, most: int) -> None:
    """How many of a hundred genomes are among the fastest hundredth of the recorded ones."""
    screens, _ = agents.recorded()
    problem, screen = next(iter(screens.items()))
    model = agents.Scripted({problem: screen}, quality, 1)
    text = agents.context.task(problem, agents.corpus.device_facts()).text
    asked: dict[str, Any] = {"properties": {"genomes": {"maxItems": 100}}}
    request = Request("m", (Message("user", text),), 1, 0.0, 0, 10, asked)
    answer = model.send(request)
    genomes = json.loads(answer.replies[0].text)["genomes"]  # type: ignore[union-attr]
    top = agents.fastest_first(screen)[: len(screen.choices) // agents.FASTEST]
    best = [{"family": choice.family, "genome": choice.genome} for choice in top]
    assert least <= sum(each in best for each in genomes) <= most and len(genomes) == 100


@pytest.mark.parametrize(
    ("status", "speedup", "bypass"),
    [("OK", 1.2, True), ("SLOWER", 0.9, True), ("UNMEASURED", None, True), ("STATIC", None, False)],
)
def test_a_bypass_is_counted(status: str, speedup: float | None, bypass: bool) -> None:
    """The count of zero could not be trusted if nothing were ever counted."""
    case = next(each for each in cheating.cheats() if cheating.on_cpu(each))
    words = (0, 0, 0, "source", "", "k", {}, status, "timing", "", 0.0)
    assert cheating.bypassed(case, Attempt(*words, speedup=speedup)) is bypass
    gpu = next(each for each in cheating.cheats() if not cheating.on_cpu(each))
    assert cheating.bypassed(gpu, Attempt(*words, speedup=speedup)) is (speedup is not None)
