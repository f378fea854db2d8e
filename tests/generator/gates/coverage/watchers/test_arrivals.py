"""As many threads arrive at a barrier as it waits for.

The story: a ring for B whose barriers waited for five warps of four was right on a GPU, for no
problem there had a CTA go on to a third tile of B. One whose warps all made the barriers was right,
too: each made the same of them.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.gates.coverage import gate
from hgemm_packs.generator.gates.coverage.watchers.arrivals import TWICE, UNEVEN, Arrivals
from tests.generator.redteam.planted import planted


def test_a_barrier_waits_for_the_warps_that_give_back() -> None:
    made = planted("constant_off_by_one", "empty_b[s], 5 * kConsumers", "sm90_writebound").candidate
    fields = compiler.build_source(made.source, made.fields).entry_fields
    assert UNEVEN.partition("{")[0] in gate.check(fields, made.source).detail


def test_one_thread_makes_a_barrier() -> None:
    opens = "const bool opens = warp == 0 && elected();"
    made = planted("drop_condition", opens, "sm90_splitk").candidate
    fields = compiler.build_source(made.source, made.fields).entry_fields
    assert TWICE.partition("{")[0] in gate.check(fields, made.source).detail


@pytest.mark.parametrize(
    ("count", "came", "is_awaited", "words"),
    [
        (4, 12, True, ""),
        (5, 12, True, UNEVEN.format(count=5, came=12)),
        (5, 12, False, ""),
        (4, 0, True, ""),
    ],
)
def test_phases_are_full_where_somebody_waits(
    count: int, came: int, is_awaited: bool, words: str
) -> None:
    barrier = (0, 64)
    seen = Arrivals(np.zeros(32, np.int64), 1, {barrier: count}, Counter({barrier: came}))
    seen.awaited = {barrier} if is_awaited else set()
    assert next(seen.faults(), "") == words
