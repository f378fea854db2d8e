"""A change that no launch comes to is told from a fault: the compiler is given what every launch
keeps, and makes one cubin of both.

The story: of 224 mutants that all gates had passed dozens asked for sizes that their kernel does
not take, or had N in place of a stride that is always N. They counted as missed.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hgemm_packs.generator.compile.candidate import Candidate
from hgemm_packs.generator.gates.coverage.problems import at_once
from hgemm_packs.generator.redteam.mutation import bases, draw, facts, judge
from tests.generator.redteam.planted import BY_NAME, planted

pytestmark = pytest.mark.usefixtures("kept")


@pytest.mark.parametrize(
    ("name", "text", "family", "is_one"),
    [
        # C of groups is packed: nothing lies behind its rows, and ldc is N.
        ("write_behind", "ldc > n + 64", "sm90_grouped", True),
        # Rows behind C, and one row of tokens, are there in some launches.
        ("write_behind", "(i64)m * ldc", "sm90_grouped", False),
        ("leave_beyond", "m == 1 && n > 8", "sm90_grouped", False),
        # A persistent grid has a few CTAs an SM; other grids follow from sizes.
        ("leave_beyond", "gridDim.x > 20000", "sm90_grouped", True),
        ("leave_beyond", "gridDim.x > 20000", "sm90_direct", False),
        # Eight rows, the most of this family, are one tile: x counts the CTAs of a cluster.
        ("leave_beyond", "gridDim.x > 20000", "sm90_gemv", True),
        # Eight rows at most of four million columns: the product of both is bounded.
        ("leave_beyond", "0x7FFFFFFFLL", "sm90_gemv", True),
        ("leave_beyond", "0x7FFFFFFFLL", "sm90_direct", False),
        # The CTA of a cluster of one has the number 0.
        ("drop_predicate", "cluster_rank()", "sm90_wgmma", True),
        # This kernel takes multiples of 16 alone.
        ("leave_by_size", "n % 32 == 8", "sm90_direct", True),
    ],
)
def test_what_every_launch_keeps_tells_equivalents(
    name: str, text: str, family: str, is_one: bool
) -> None:
    assert facts.are_one(planted(name, text, family)) is is_one


def test_a_batch_has_more_ctas_than_one_product_has_tiles() -> None:
    base = next(
        each
        for each in (bases.draw(1, i, "sm90_batched") for i in range(40))
        if each.fields["grid"].get("persistent")
    )
    fields = base.fields
    for dim in "mn":
        fields = draw.with_value(fields, f"dims.{dim}.max", 8)
    assert f"__builtin_assume(gridDim.x <= {at_once(fields)});" in facts._said(fields, frozenset())


def test_the_judge_leaves_such_a_change_out() -> None:
    mutant = planted("write_behind", "ldc > n + 64", "sm90_grouped")
    said = "the same instructions with what every launch keeps"
    assert judge.decide(mutant)[:3] == (judge.EQUIVALENT, "", said)


def test_of_another_record_nothing_is_said() -> None:
    mutant = planted("write_behind", "ldc > n + 64", "sm90_grouped")
    other = Candidate(mutant.candidate.source, draw.with_value(mutant.base.fields, "block", 32))
    assert not facts.are_one(replace(mutant, candidate=other))


def test_another_kernels_code_is_compared_with_that_kernel() -> None:
    """Sums of another genome are added in another order: the base's bits say nothing of them. A
    changed source, or a changed record, is compared with the base."""
    base = bases.draw(1, 0, "sm90_splitk")
    operator = BY_NAME["grid_of_another"]
    made = draw.plant(operator, base, 1, 0, random.Random(1))
    assert made is not None and made.own is not None
    own, honest = made.own, made.honest
    assert (honest.source, honest.fields["grid"]) == (made.candidate.source, own["grid"])
    assert own["grid"] != base.fields["grid"] == made.candidate.fields["grid"]
    assert honest.fields["symbol"] == base.fields["symbol"] in honest.source
    kept = Candidate(base.source, base.fields)
    for other in (
        draw.plant(BY_NAME["other_block"], base, 1, 0, random.Random(1)),
        planted("leave_beyond", "0x7FFFFFFFLL", base=base),
    ):
        assert other is not None and other.candidate != kept == other.honest
