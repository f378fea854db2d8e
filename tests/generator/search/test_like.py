"""What another card's rows name comes first, and a search only where that is used up."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hgemm_packs.generator.core.space import Space, admits, ahead
from hgemm_packs.generator.core.spec import Choice, Outcome, Proposal, Status
from hgemm_packs.generator.search.like import DEPENDENT, MOST, Like, Named
from hgemm_packs.problem import Problem

HERE = Problem(128, 1024, 1024, "nt", "f16")


def wgmma(problem: Problem, count: int) -> list[Choice]:
    return [c for c in Space(problem).core if c.family == "sm90_wgmma"][:count]


def at(m: int, n: int, k: int, layout: str = "nt") -> Problem:
    return Problem(m, n, k, layout, "f16")


class Asked:
    """A strategy that proposes the last of the catalogue, and remembers what it hears."""

    name = "asked"

    def __init__(self) -> None:
        self.heard: list[Outcome] = []

    def ask(self, space: Space, n: int) -> list[Proposal]:
        return [Proposal(choice, self.name) for choice in space.core[-n:]]

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        self.heard += outcomes


def test_the_own_row_comes_first_then_the_nearest_of_the_same_kind() -> None:
    own, same_weight, near, far, other = wgmma(HERE, 5)
    rows = {
        at(128, 8192, 8192): Named(far, None),
        at(128, 2048, 1024): Named(near, None),
        at(512, 1024, 1024): Named(same_weight, None),
        at(256, 1024, 1024): Named(None, None),
        HERE: Named(own, None),
        Problem(128, 1024, 1024, "nt", "bf16"): Named(other, None),
        Problem(128, 1024, 1024, "nt", "f16", epilogue="bias"): Named(other, None),
    }
    assert Like(rows, None).first_choices(HERE) == [own, same_weight, near, far]


def test_a_row_that_two_problems_share_is_tried_once_and_so_many_at_most() -> None:
    choices = wgmma(HERE, 12)
    rows = {at(128, 1024, 1024 + 64 * i): Named(one, None) for i, one in enumerate(choices)}
    rows |= {at(256, 1024, 1024): Named(choices[0], None)}
    assert Like(rows, None).first_choices(HERE) == choices[:MOST]


def test_kernels_that_do_not_take_the_problem_are_left_out() -> None:
    odd = Problem(128, 1023, 1021, "nt", "f16", base=(2, 2, 2))
    rows = {odd: Named(wgmma(HERE, 1)[0], None)}
    assert not admits(wgmma(HERE, 1)[0], odd)
    assert Like(rows, None).first_choices(odd) == []


def test_kernels_of_a_neighbour_are_fitted_to_the_tokens_of_the_problem() -> None:
    tokens = at(40, 4096, 4096)
    genome = next(c for c in Space(at(16, 4096, 4096)).core if c.family == "sm90_swapab").genome
    sixteen = Choice.of("sm90_swapab", {**genome, "tile_m": 16})
    rows = {at(16, 4096, 4096): Named(sixteen, None)}
    first = Like(rows, None).first_choices(tokens)
    assert [one.genome["tile_m"] for one in first] == [40, 16]
    own = Like({tokens: Named(sixteen, None)}, None).first_choices(tokens)
    assert own[0] == sixteen, "as it was measured there"


def test_where_no_row_is_of_the_kind_others_are_moved() -> None:
    own = wgmma(at(128, 1024, 1024, "nn"), 1)[0]
    found = Like({at(128, 1024, 1024, "nn"): Named(own, None)}, None).first_choices(HERE)
    assert [one.genome["layout"] for one in found] == ["nt"] * len(found) and found
    changed = {gene for gene, value in found[0].genome.items() if own.genome[gene] != value}
    assert changed == {"layout"}


def test_kernels_of_dependent_launch_are_those_of_the_nearest_rows() -> None:
    leading = [one for each in wgmma(HERE, 60) if (one := ahead(each))][: DEPENDENT + 1]
    assert len(set(leading)) == DEPENDENT + 1
    rows = {at(128, 1024, 1024 + 64 * i): Named(None, one) for i, one in enumerate(leading)}
    assert Like(rows, None).dependent_choices(HERE) == leading[:DEPENDENT]
    assert Like(rows, None).first_choices(HERE) == [], "launched plainly they won nothing"


def test_another_strategy_goes_on_and_hears_everything() -> None:
    own, near = wgmma(HERE, 2)
    space, then = Space(HERE), Asked()
    like = Like({HERE: Named(own, None), at(256, 1024, 1024): Named(near, None)}, then)
    first = like.ask(space, 8)
    assert [(p.choice, p.proposer, p.operator) for p in first] == [
        (own, "like", "row"),
        (near, "like", "row"),
    ]
    assert like.ask(space, 1) == first[:1]
    outcomes = [Outcome(p, Status.OK, 5.0 + i) for i, p in enumerate(first)]
    like.tell(space, outcomes)
    assert then.heard == outcomes
    assert like.ask(space, 3) == then.ask(space, 3)
    told_again = Like({HERE: Named(own, None)}, None)
    told_again.tell(space, [Outcome(first[0], Status.LAUNCH, math.inf)])
    assert told_again.ask(space, 3) == []
