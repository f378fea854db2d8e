"""What sizes alone decide in kernels of groups and batches is seen both ways, by problems that
their gates run on a GPU.

The story: nothing of a kernel of groups was followed, for its groups end where memory says. So one
that left one row of tokens out, or all columns from 131,072 on, was never asked about them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.gates.coverage import gate
from hgemm_packs.generator.redteam.mutation import bases
from tests.generator.redteam.planted import planted

pytestmark = pytest.mark.usefixtures("kept")


def of(source: str, fields: Mapping[str, Any]) -> Verdict:
    return gate.check(compiler.build_source(source, fields).entry_fields, source)


def asked(name: str, text: str, family: str) -> list[list[int]]:
    """The problems for a kernel with a change, which the gate itself passes."""
    made = planted(name, text, family).candidate
    verdict = of(made.source, made.fields)
    assert verdict.status is Status.OK, verdict.detail
    return [each[:3] for name in ("planned", "large") for each in verdict.evidence[name]]


def test_a_kernel_of_groups_meets_what_it_compares_sizes_with() -> None:
    found = asked("leave_beyond", "m == 1 && n > 8", "sm90_grouped")
    assert any(m == 1 and n > 8 for m, n, _ in found)
    found = asked("leave_beyond", "n > (1 << 17)", "sm90_grouped")
    assert {n > 1 << 17 for _, n, _ in found} == {False, True}


def test_a_kernel_that_leaves_where_tiles_are_many_is_refused() -> None:
    """What it would have done there is seen of no list."""
    made = planted("leave_beyond", "(i64)m * n", "sm90_grouped").candidate
    assert "one way: no list of groups takes the other" in of(made.source, made.fields).detail


def test_what_deep_k_alone_decides_of_groups_is_refused() -> None:
    made = planted("path_of_its_own", "k > (1 << 16)", "sm90_grouped").candidate
    assert "one way: no problem takes the other" in of(made.source, made.fields).detail


def test_a_kernel_of_batches_meets_sizes_that_products_alone_met() -> None:
    assert any(m > 4096 for m, *_ in asked("leave_by_size", "m > 4096", "sm90_batched"))


@pytest.mark.parametrize("turn", range(4))
def test_an_honest_kernel_is_asked_for_few(turn: int) -> None:
    for family in ("sm90_grouped", "sm90_batched"):
        base = bases.draw(3, turn, family)
        verdict = of(base.source, base.fields)
        assert verdict.status is Status.OK, verdict.detail
        assert 1 <= len(verdict.evidence["planned"]) <= 12
        assert not verdict.evidence["large"]


@pytest.mark.parametrize(
    ("name", "before", "told"),
    [
        ("drop_wait", "    __syncwarp();", "lanes: reads what another lane has staged"),
        ("wait_by_one", "barrier_wait(&barriers.empty", "race: nothing orders a write"),
    ],
)
def test_lanes_and_copies_are_followed_where_memory_decides(
    name: str, before: str, told: str
) -> None:
    """Warps that run as one are right without a meeting, and few problems fill a ring."""
    made = planted(name, before, "sm90_grouped").candidate
    assert of(made.source, made.fields).detail.startswith(told)


def test_a_grouped_kernel_that_turns_for_ever_is_refused() -> None:
    base = bases.draw(3, 0, "sm90_grouped")
    at = "#pragma unroll 1\n    for (int i = 0; i < k_tiles; ++i) {"
    assert base.source.count(at) == 1
    turned = base.source.replace(at, at.replace("++i", "i += k_tiles < 0"))
    assert "endless: " in of(turned, base.fields).detail
