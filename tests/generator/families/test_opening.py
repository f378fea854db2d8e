"""How kernels open: the thread that makes the barriers is the one that arrives first.

Where ptxas turns the branch around both into predicates, the whole warp makes them: no harm, for a
warp's instructions are in order, but racecheck calls it a race.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler, sass
from hgemm_packs.generator.redteam import corpus
from tests.generator.kernels import ONESHOT


def opening(cubin: bytes) -> list[dict[str, Any]]:
    """Instructions on barriers up to the first that is not their making, that one included."""
    steps = [one for one in sass.disassemble(cubin) if one["opcode"].startswith("SYNCS.")]
    made = list(takewhile(lambda one: ".EXCH" in one["opcode"], steps))
    return steps[: len(made) + 1]


@pytest.mark.parametrize(
    ("name", "inits"), [("splitk_deep", 5), ("swapab", 5), ("tokens_split", 7)]
)
def test_few_stages_open_by_one_thread(name: str, inits: int) -> None:
    (case,) = [case for case in corpus.load() if case.name == name]
    one = case.candidate
    *made, first = opening(compiler.build_source(one.source, one.fields).cubin)
    assert len(made) == inits, "stages, full and empty, and the share of the cluster"
    assert first["opcode"].startswith("SYNCS.ARRIVE")
    assert [one.get("predicate") for one in (*made, first)] == [None] * (inits + 1)


@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_a_cluster_whose_threads_copy_opens_by_one_thread(layout: str) -> None:
    genome = {**ONESHOT, "layout": layout, "cp_async": True}
    *made, first = opening(compiler.build_one("sm90_oneshot", genome).cubin)
    assert len(made) == 1, "the share of the cluster"
    assert first["opcode"].startswith("SYNCS.ARRIVE")
    assert [one.get("predicate") for one in (*made, first)] == [None] * 2
