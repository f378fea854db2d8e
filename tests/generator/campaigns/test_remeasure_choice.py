"""Which kernels of an export are confirmed once more, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hgemm_packs.generator.campaigns import remeasure
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Status, Verdict
from hgemm_packs.generator.devices.sim import fake_kernel
from hgemm_packs.generator.store.findings import Findings
from hgemm_packs.generator.tables.prune import prune
from hgemm_packs.problem import Problem
from tests.generator.campaigns.confirmations import (
    CHOICES,
    FIRST,
    SECOND,
    THIRD,
    A,
    B,
    C,
    D,
    E,
    F,
    older,
    over,
)
from tests.generator.command import Builder
from tests.generator.found import PROOF, job


def ids(found: Findings, least: float = remeasure.LEAST) -> dict[Problem, list[str]]:
    return {problem: list(each) for problem, each in remeasure.rank(found, least).items()}


def test_the_best_three_that_may_win_are_confirmed() -> None:
    """Best by the last finals. Out: what was slower than `least` one way, is unproven, refused, or
    failed there; what is slower in one job and was not in another stays."""
    found = older(
        job("finals", {A: over(1.02, 1.02), B: over(1.5, 0.97), C: over(1.3, 1.3)}, FIRST),
        job("finals", {D: over(1.1, 1.1), E: over(0.99, 0.99), F: over(1.2, 1.2)}, FIRST),
        job("confirm", {A: over(1.1, 0.9), D: over(1.3, 1.3)}, FIRST),
        job("finals", {A: over(1.3, 1.3), F: over(1.2, 1.2)}, SECOND),
        job("confirm", {F: over(1.2, 1.2)}, SECOND, statuses={F: Status.NUMERIC}),
        job("finals", {B: over(0.98, 1.2)}, THIRD),
    )
    assert ids(found) == {FIRST: [C, F, D, A, E], SECOND: [A]}
    made = remeasure.build(found, remeasure.rank(found), Builder())
    assert made.wanted == {FIRST: [C, F, D], SECOND: [A]}
    assert made.kernels.keys() == {A, C, D, F} and not made.gone
    unproven = replace(found, proofs=dict.fromkeys((A, B, D, E, F), PROOF))
    assert ids(unproven)[FIRST] == [F, D, A, E]
    refused = replace(found, refused={F: Status.SANITIZER})
    assert ids(refused)[FIRST] == [C, D, A, E]
    assert ids(found, 1.0)[FIRST] == [C, F, D, A]
    assert ids(found, 0.96)[THIRD] == [B]
    for fields in (found.fields, found.fields[::-1]):
        assert remeasure.speedups(replace(found, fields=fields))[FIRST, A] == pytest.approx(1.02)


def test_few_kernels_do_for_most_of_the_gain() -> None:
    """A problem without any of the few has its best."""
    found = older(
        job("finals", {A: over(1.5, 1.5), B: over(1.501, 1.5)}, FIRST),
        job("finals", {A: over(1.5, 1.5), C: over(1.4, 1.4)}, SECOND),
        job("finals", {D: over(1.002, 1.002), E: over(1.001, 1.001)}, THIRD),
    )
    listed = remeasure.rank(found)
    kept = set(prune(listed, 0.99).kernels)
    assert kept == {A}
    made = remeasure.build(found, listed, Builder(), kept)
    assert made.wanted == {FIRST: [A], SECOND: [A], THIRD: [D]}


def test_what_builds_otherwise_leaves_its_place_to_the_next() -> None:
    class Moved(Builder):
        """Makes another kernel of the first choice, none of the second."""

        def build(self, wanted: Sequence[Choice]) -> dict[Choice, CompiledKernel | Verdict]:
            built = super().build(wanted)
            for one in built:
                if one == CHOICES[0]:
                    built[one] = fake_kernel(CHOICES[5])
                elif one == CHOICES[1]:
                    built[one] = Verdict("build", Status.BUILD, "spills")
            return built

    ours = {A: over(1.5, 1.5), B: over(1.4, 1.4), C: over(1.3, 1.3), D: over(1.2, 1.2)}
    found = older(
        job("finals", {**ours, E: over(1.1, 1.1)}, FIRST), job("finals", {A: ours[A]}, SECOND)
    )
    made = remeasure.build(found, remeasure.rank(found), Moved())
    assert made.wanted == {FIRST: [C, D, E]}
    assert made.gone == sorted(found.kernels[id_]["name"] for id_ in (A, B))
    nowhere = {**found.kernels, C: {**found.kernels[C], "family": "sm90_gone"}}
    assert C not in ids(replace(found, kernels=nowhere))[FIRST]


def test_trials_are_spread_over_the_problems() -> None:
    problems = [Problem(64 * i, 512, 512, "nt", "f16") for i in range(1, 1001)]
    listed = {p: {A: 1.1} for p in problems}
    wanted = {p: [A] for p in problems}
    made = remeasure.Kernels({A: fake_kernel(CHOICES[0])}, wanted, ())

    def trials(count: int, every: int | None, missing: int = remeasure.TRIALS) -> list[int]:
        tasks = remeasure.tasks(dict(list(listed.items())[:count]), made, every, missing)
        assert sum(task.kind == "confirm" for task in tasks) == count
        return sorted(t.problem.m // 64 for t in tasks if t.kind == "noise" and t.problem)

    assert trials(1000, None) == list(range(1, 1001, 2))
    assert trials(30, None) == list(range(1, 31))
    assert trials(1000, 300) == [1, 301, 601, 901]
    # What the export has of led ones is not asked again, but for one in twenty problems.
    assert trials(1000, None, 100) == list(range(1, 1001, 10))
    assert trials(1000, None, 0) == trials(1000, None, 10) == list(range(1, 1001, 20))
    few = [t.problem.m // 64 for t in remeasure.tasks(listed, made, 10**6) if t.problem][:32]
    assert min(few) < 40 and max(few) > 960  # a run that was stopped is a fair sample
