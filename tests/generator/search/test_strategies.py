"""What every search of ours promises: members only, no repeats, the same for the same seed,
what failed comes last, and better than chance."""

from __future__ import annotations

import itertools
import random

import pytest

from hgemm_packs.generator.core.space import Space, admits, catalogue
from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal, Status
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.search import DEFAULT, STRATEGIES
from hgemm_packs.generator.search.analytic.features import FIELDS
from hgemm_packs.generator.search.analytic.roofline import MODELS
from hgemm_packs.generator.search.prior import rank
from hgemm_packs.problem import Problem
from tests.generator.searched import PROBLEMS, outcome, search, share, spaces

OURS = ("prior", "policy", "islands", "cost", "portfolio")
SMALL = Problem(256, 512, 1024, "nt", "f16")


def test_every_family_has_a_model_and_features() -> None:
    assert set(MODELS) == set(FIELDS) == set(FAMILIES)


def test_the_default_is_listed() -> None:
    assert STRATEGIES[DEFAULT](0).name == "portfolio"
    assert [STRATEGIES[name](0).name for name in OURS] == list(OURS)


@pytest.mark.parametrize("name", OURS)
def test_members_only_no_repeats_until_the_space_is_used_up(name: str) -> None:
    space = Space(SMALL, only=catalogue("nt", "f16")[::40])
    other = Space(PROBLEMS[0], only=catalogue("nt", "f16")[::40])
    strategy = STRATEGIES[name](1)
    strategy.tell(other, [outcome(choice, other.problem) for choice in other.core[:20]])
    seen: list[Choice] = []
    while proposals := strategy.ask(space, 7):
        found = [proposal.choice for proposal in proposals]
        assert len(found) == min(7, len(space.core) - len(seen))
        assert all(space.contains(choice) and choice not in seen for choice in found)
        seen += found
        strategy.tell(space, [outcome(proposal, SMALL) for proposal in proposals])
    assert len(seen) == len(set(seen)) == len(space.core)


@pytest.mark.parametrize("name", OURS)
def test_the_same_seed_and_history_ask_the_same(name: str) -> None:
    over = spaces(PROBLEMS[:4], every=24)
    first, second = (search(STRATEGIES[name](3), over, rounds=3, batch=4) for _ in range(2))
    assert first == second
    if name in ("policy", "islands", "portfolio"):
        assert first != search(STRATEGIES[name](4), over, rounds=3, batch=4)


@pytest.mark.parametrize("name", OURS)
def test_asking_again_without_news_gives_the_same(name: str) -> None:
    (space,) = spaces(PROBLEMS[2:3], every=24)
    strategy = STRATEGIES[name](0)
    search(strategy, [space], rounds=2, batch=5)
    assert strategy.ask(space, 6) == strategy.ask(space, 6)


@pytest.mark.parametrize("name", ("prior", "cost"))
def test_a_history_told_in_another_order_restores_the_search(name: str) -> None:
    over = spaces(PROBLEMS[:4], every=12)
    killed, resumed = STRATEGIES[name](0), STRATEGIES[name](0)
    told = search(killed, over, rounds=3, batch=8)
    rng = random.Random(5)
    for space in rng.sample(over, len(over)):
        outcomes = told[space.problem]
        resumed.tell(space, rng.sample(outcomes, len(outcomes)))
    assert [resumed.ask(space, 8) for space in over] == [killed.ask(space, 8) for space in over]


@pytest.mark.parametrize("name", OURS)
def test_a_kernel_that_failed_is_the_last_to_be_asked_for_elsewhere(name: str) -> None:
    first, second = spaces(PROBLEMS[2:4], every=60)
    strategy = STRATEGIES[name](0)
    broken = set(first.core[::3])
    most = max(len(first.core), len(second.core))
    rounds = -(-most // 8)
    search(strategy, [first], rounds=rounds, batch=8, broken=broken)
    told = search(strategy, [second], rounds=rounds, batch=8, broken=broken)[second.problem]
    fine = [o.proposal.choice for o in told if o.status is Status.OK]
    assert len(told) == len(second.core)
    assert [o.proposal.choice for o in told[: len(fine)]] == fine
    assert {o.proposal.choice for o in told[len(fine) :]} == broken & set(second.core)


@pytest.mark.parametrize("name", OURS)
def test_better_than_random_at_the_same_budget(name: str) -> None:
    """The simulated machine differs from the prior; 16 of some 300 choices a problem."""
    over = spaces()
    chance = [
        share(search(STRATEGIES["random"](seed), over, 4, 4, seed), over, seed) for seed in range(3)
    ]
    ours = [
        share(search(STRATEGIES[name](seed), over, 4, 4, seed), over, seed) for seed in range(3)
    ]
    assert all(mine > theirs + 0.03 for mine, theirs in zip(ours, chance, strict=True))
    assert min(ours) > 0.93


def test_foreign_outcomes_are_learnt_from() -> None:
    """Told by another search how fast a third are, the model proposes faster ones of the others
    first. A single batch explores as well: over few outcomes, or one problem, luck decides."""
    places = {"knowing": 0, "blind": 0}
    for space in spaces(every=4):
        ranked = sorted(space.core, key=lambda choice: outcome(choice, space.problem).us)
        told = ranked[1::3]
        others = [choice for choice in ranked if choice not in set(told)]
        open_space = Space(space.problem, only=others)
        for name in places:
            strategy = STRATEGIES["cost"](0)
            if name == "knowing":
                strategy.tell(space, [outcome(choice, space.problem) for choice in told])
            places[name] += sum(others.index(p.choice) for p in strategy.ask(open_space, 8))
    assert places["knowing"] < 0.6 * places["blind"]


def test_beyond_the_catalogue_only_valid_members() -> None:
    space = Space(SMALL)
    told = search(STRATEGIES["portfolio"](2), [space], rounds=6, batch=8)[SMALL]
    found = [o.proposal.choice for o in told]
    outside = [choice for choice in found if choice not in set(space.core)]
    assert len(found) == len(set(found)) == 48
    assert outside
    for choice in outside:
        assert FAMILIES[choice.family].is_valid(choice.genome) and admits(choice, SMALL)


def test_a_neighbours_winner_is_in_the_first_batch_whatever_the_prior_says() -> None:
    near, space = Space(Problem(512, 512, 1024, "nt", "f16")), Space(SMALL)
    last = space.core[rank(space)[-1]]
    strategy = STRATEGIES["portfolio"](0)
    fast = Outcome(Proposal(last, "test"), Status.OK, 0.5)
    strategy.tell(near, [fast, *(outcome(choice, near.problem) for choice in near.core[:200:20])])
    assert last in [proposal.choice for proposal in strategy.ask(space, 8)]


def test_proposals_name_their_lineage() -> None:
    over = spaces(PROBLEMS[2:6], every=6)
    told = search(STRATEGIES["portfolio"](0), over, rounds=10, batch=8)
    proposals = [o.proposal for o in itertools.chain(*told.values())]
    assert {p.proposer for p in proposals} == {"portfolio"}
    operators = {p.operator.split(":")[0] for p in proposals}
    assert operators >= {"cost", "winners", "policy"} and operators & set(FAMILIES)
    keys = {o.proposal.choice.key for o in itertools.chain(*told.values())}
    assert all(parent in keys for p in proposals for parent in p.parents)
    assert any(p.parents for p in proposals)
