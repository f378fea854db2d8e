"""A strategy made by a thread: it is that strategy, and tells what went wrong."""

from __future__ import annotations

import threading

import pytest

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Outcome, Status
from hgemm_packs.generator.search import STRATEGIES, Strategy
from hgemm_packs.generator.search.later import Later
from hgemm_packs.problem import Problem

SPACE = Space(Problem(256, 256, 512, "nn", "f16"))


def test_it_asks_and_learns_as_the_strategy_itself() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def make() -> Strategy:
        begun.set()
        assert go_on.wait(60)
        return STRATEGIES["random"](3)

    later, itself = Later("random", make), STRATEGIES["random"](3)
    assert begun.wait(60) and later.name == itself.name, "it is being made, and nobody waited"
    go_on.set()
    first = later.ask(SPACE, 4)
    assert first == itself.ask(SPACE, 4)
    told = [Outcome(each, Status.OK, 5.0 + i) for i, each in enumerate(first)]
    later.tell(SPACE, told)
    itself.tell(SPACE, told)
    second = later.ask(SPACE, 4)
    assert second == itself.ask(SPACE, 4)
    assert not {each.choice for each in first} & {each.choice for each in second}


def test_who_asks_gets_what_went_wrong() -> None:
    def make() -> Strategy:
        raise LookupError("no package")

    with pytest.raises(LookupError, match="no package"):
        Later("random", make).ask(SPACE, 1)
