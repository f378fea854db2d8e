"""Of problems alike C walks what they leave of the trees, and comes to the same answers."""

from __future__ import annotations

import random

import pytest

from hgemm_packs import launcher
from hgemm_packs.pack import features
from hgemm_packs.pack.predictor import Model, Predictor
from hgemm_packs.problem import DTYPES, LAYOUTS, Problem
from tests import predictions
from tests.cpu.prediction.test_trees import H200, random_candidate

#: Where the ranges of M end, and some inside.
ROWS = (1, 7, 8, 9, 100, 127, 128, 129, 2047, 2048, 2049, 32767, 32768, 2**19, 2**23, 2**31 - 8)


def tree(dice: random.Random, sees: int, depth: int) -> list[tuple[int, float, int]]:
    """Nodes in preorder that ask about all that features may be."""
    if not depth:
        return [(-1, dice.uniform(-1, 1), 0)]
    left, right = (tree(dice, sees, depth - 1) for _ in range(2))
    number = dice.choice((dice.uniform(0, 1), dice.uniform(0, 12), dice.uniform(10, 40)))
    behind = 1 + len(left)
    return [
        (dice.randrange(sees), number, behind),
        *((f, x, r and r + 1) for f, x, r in left),
        *((f, x, r and r + behind) for f, x, r in right),
    ]


def drawn(dice: random.Random) -> Predictor:
    def model(sees: int, count: int) -> Model:
        return predictions.model(0.0, *(tree(dice, sees, 6) for _ in range(count)))

    candidates = tuple(random_candidate(dice, index) for index in range(220))
    of_ours, of_torch, of_doubt = (
        model(sees, count)
        for sees, count in (
            (len(features.FEATURES), 120),
            (len(features.OF_PROBLEM), 60),
            (len(features.FEATURES), 20),
        )
    )
    kinds = ("sm90_a", "sm90_b")
    return Predictor(H200.name, kinds, 1.1, candidates, of_ours, of_torch, of_doubt)


@pytest.mark.parametrize("seed", range(2))
def test_answers_of_problems_alike_are_those_of_whole_trees(seed: int) -> None:
    dice = random.Random(seed)
    found = drawn(dice)
    ready = launcher.predictor(found, H200)
    answers = 0
    for _ in range(40):  # more than are kept
        n, k = (8 * round(2 ** dice.uniform(0, 9)) for _ in range(2))
        kind = dice.choice(LAYOUTS), dice.choice(DTYPES)
        alike = [
            Problem(m, n, k, *kind) for m in (*ROWS, *(dice.randint(1, 3000) for _ in range(40)))
        ]
        dice.shuffle(alike)
        whole = None
        for turn, problem in enumerate(alike):
            if not turn % 3:
                whole = launcher.predictor(found, H200)
            answer = launcher.predict(ready, problem)
            assert answer == launcher.predict(whole, problem), problem
            answers += answer is not None
    assert answers > 500
