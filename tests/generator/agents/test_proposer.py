"""A model as a search among searches: it is taken at its word, and filled up."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from hgemm_packs.generator.agents.proposer import ASKED, INSTEAD, Mixed, Proposer, read, schema
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice, DeviceFacts, Outcome, Proposal, Status
from hgemm_packs.generator.llm.budget import Budget
from hgemm_packs.generator.llm.words import ChatError, Request
from hgemm_packs.generator.search.prior import Prior, rank
from hgemm_packs.problem import Problem

from .grounds import Scripted, as_json, chat

PROBLEM = Problem(64, 64, 64, "nt", "f16")
SPACE = Space(PROBLEM)
FACTS = DeviceFacts("H", "sm_90a", 132, 1 << 26)
RANKED = [SPACE.core[row] for row in rank(SPACE)]


def named(*choices: Choice) -> str:
    return as_json(genomes=[{"family": c.family, "genome": c.genome} for c in choices])


def proposer(says: Callable[[Request], str] | str, **more: Any) -> Proposer:
    model = chat(says if callable(says) else lambda _: says, **more)
    return Proposer(1, model, FACTS)


def outcomes(proposals: list[Proposal], us: float = 3.0) -> list[Outcome]:
    return [Outcome(proposal, Status.OK, us) for proposal in proposals]


def test_what_the_model_names_comes_first_and_the_prior_fills_up() -> None:
    strategy = proposer(named(RANKED[50], RANKED[60], RANKED[50]))
    found = strategy.ask(SPACE, 4)
    assert [each.choice for each in found] == [RANKED[50], RANKED[60], *RANKED[:2]]
    assert [each.operator for each in found] == [ASKED, ASKED, INSTEAD, INSTEAD]
    assert strategy.named == 2


def test_nothing_that_was_told_is_proposed_again() -> None:
    strategy = proposer(named(RANKED[50], RANKED[0]))
    strategy.tell(SPACE, outcomes(strategy.ask(SPACE, 2)))
    found = strategy.ask(SPACE, 2)
    assert [(each.choice, each.operator) for each in found] == [
        (RANKED[1], INSTEAD),
        (RANKED[2], INSTEAD),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "{}",
        '{"genomes": 3}',
        '{"genomes": [3, null, "x", {}, {"family": "sm90_gemv"}, {"family": [], "genome": {}}]}',
        '{"genomes": [{"family": "sm90_gemv", "genome": {"unroll": 99}}]}',
        '{"genomes": [{"family": "sm80", "genome": {}}]}',
    ],
)
def test_what_is_no_choice_of_the_space_is_left_out(text: str) -> None:
    assert list(read(text, SPACE)) == []
    assert [each.choice for each in proposer(text).ask(SPACE, 3)] == RANKED[:3]


def test_a_genome_of_another_problem_is_left_out() -> None:
    other = Space(Problem(64, 64, 64, "nn", "f16")).core[0]
    assert list(read(named(other), SPACE)) == []


def test_the_schema_is_of_the_families_of_the_space() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    asked = schema(SPACE, 2)
    one = RANKED[0]
    genome = {g: v for g, v in one.genome.items() if g not in ("layout", "dtype")}
    document = {"genomes": [{"family": one.family, "genome": genome}]}
    jsonschema.validate(document, asked)
    assert list(read(as_json(**document), SPACE)) == [one]
    for wrong in ({"genomes": []}, {"genomes": document["genomes"] * 3}, {}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, asked)


def test_the_model_is_shown_fast_middling_and_slow() -> None:
    strategy = proposer("{}")
    told = [Proposal(choice, "x") for choice in RANKED[:4]]
    times = (4.0, 2.0, 8.0, math.inf)
    made = [
        Outcome(proposal, Status.OK if us < math.inf else Status.HACK, us)
        for proposal, us in zip(told, times, strict=True)
    ]
    strategy.tell(SPACE, made)
    shown = strategy.prompt(SPACE, 3).show()
    for rank_, us, choice in (("fast", 2.0, 1), ("middling", 4.0, 0), ("slow", 8.0, 2)):
        assert f"{rank_}: {us:.3f} us" in shown and str_of(RANKED[choice]) in shown
    assert str_of(RANKED[3]) not in shown  # it cheated


def str_of(choice: Choice) -> str:
    return as_json(**choice.genome)


def test_a_spent_budget_or_a_silent_server_leaves_it_to_the_prior() -> None:
    def silent(_: Request) -> str:
        raise ChatError("nobody")

    poor = proposer(named(RANKED[50]), budget=Budget(tokens=10))
    for strategy in (proposer(silent), poor):
        assert [each.choice for each in strategy.ask(SPACE, 2)] == RANKED[:2]
        strategy.ask(SPACE, 2)
    transport = poor._chat.transport
    assert isinstance(transport, Scripted) and transport.requests == []


def mixed(text: str) -> Mixed:
    return Mixed(1, proposer(text), Prior())


def test_a_first_batch_is_the_searchs() -> None:
    found = mixed(named(RANKED[50])).ask(SPACE, 4)
    assert [each.proposer for each in found] == ["prior"] * 4


def test_the_side_that_improves_gets_more_places() -> None:
    for gains, least, most in (("model", 6, 8), ("prior", 0, 2)):
        strategy = mixed(named(*RANKED[100:140]))
        us = 10.0
        strategy.tell(SPACE, outcomes(strategy.ask(SPACE, 1), us))
        for choices in range(60):
            us *= 0.9
            side = "model" if choices % 2 else "prior"
            one = Proposal(RANKED[40 + choices], side)
            strategy.tell(SPACE, outcomes([one], us if side == gains else 20.0))
        found = strategy.ask(SPACE, 8)
        of_model = sum(each.proposer == "model" for each in found)
        assert least <= of_model <= most and len(found) == 8
        assert len({each.choice for each in found}) == 8


def test_both_sides_are_told_everything() -> None:
    strategy = mixed(named(RANKED[50]))
    made = outcomes([Proposal(RANKED[0], "prior"), Proposal(RANKED[1], "model")])
    strategy.tell(SPACE, made)
    told = {each.choice for each in strategy.ask(SPACE, 8)}
    assert not told & {RANKED[0], RANKED[1]}
