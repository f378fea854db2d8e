"""Barriers expect the bytes that copies and stores bring them, in each phase of each CTA, and a
kernel that tells them of more or of fewer is refused without a GPU."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.families import BATCHED, FAMILIES, GROUPED, family
from hgemm_packs.generator.gates.coverage import counts, gate
from hgemm_packs.generator.gates.coverage.trial import Trial, tables
from hgemm_packs.generator.gates.coverage.watchers import races
from hgemm_packs.generator.gates.dataflow import gate as dataflow
from hgemm_packs.generator.gates.dataflow.program.parse import Kernel, parse
from hgemm_packs.generator.gates.dataflow.program.webs import split
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.run import evaluate

pytestmark = pytest.mark.usefixtures("kept")

ALL = {**FAMILIES, **GROUPED, **BATCHED}
EXPECT = re.compile(r"(mbarrier\.arrive\.expect_tx\S* _, \[[^\]]*\], )(%r\d+);")
KERNELS = [(name, seed) for name in ALL for seed in range(2)]


def ptx_of(name: str, seed: int) -> tuple[Mapping[str, Any], str]:
    """Fields and PTX of some kernel of a family whose barriers expect bytes."""
    rng, one = random.Random(f"{name} counts {seed}"), family(name)
    while True:
        genome = {gene: rng.choice(values) for gene, values in one.genes.items()}
        if not one.is_valid(genome):
            continue
        fields = one.fields(genome)
        try:
            ptx = compiler._compile(compiler.render(name, genome), fields["symbol"])[2]
        except compiler.BuildError:
            continue  # spills
        if EXPECT.search(ptx):
            return fields, ptx


def told(fields: Mapping[str, Any], ptx: str) -> list[str]:
    """What the check alone says of a kernel."""
    if fields["family"] in GROUPED:
        detail = gate.check_ptx(fields, ptx).detail
        return [detail] if detail else []
    kernel = split(parse(ptx))
    roles = dataflow.roles(kernel, str(fields["param_layout"]))
    return [*counts.faults(Trial(fields, kernel, roles, tables(ptx)))]


def expecting(ptx: str, rule: str) -> str:
    """The kernel with a rule applied to all that its barriers expect."""
    numbers = iter(range(99000, 99999))

    def change(found: re.Match[str]) -> str:
        number = next(numbers)
        return f"{rule.format(to=f'%r{number}', was=found[2])} {found[1]}%r{number};"

    return EXPECT.sub(change, ptx)


@pytest.mark.parametrize(("name", "seed"), KERNELS)
def test_what_families_tell_their_barriers_is_what_comes(name: str, seed: int) -> None:
    """A count halved lets consumers read before all has come, one doubled is waited for without
    end; no gate of the CPU saw either."""
    fields, ptx = ptx_of(name, seed)
    assert told(fields, ptx) == []
    for rule in ("shr.u32 {to}, {was}, 1;", "shl.b32 {to}, {was}, 1;", "add.s32 {to}, {was}, 8;"):
        found = told(fields, expecting(ptx, rule))
        assert len(found) == 1 and found[0].startswith("bytes: a barrier "), rule


def test_the_gate_says_which_bytes_are_missing() -> None:
    fields, ptx = ptx_of("sm90_writebound", 0)
    assert gate.check_ptx(fields, ptx).detail == ""
    verdict = gate.check_ptx(fields, expecting(ptx, "shr.u32 {to}, {was}, 1;"))
    assert verdict.status is Status.COVERAGE
    found = re.search(
        r"bytes: a barrier expects (\d+) and gets (\d+) of \d+x\d+x\d+", verdict.detail
    )
    assert found is not None
    expected, came = map(int, found.groups())
    assert 2 * expected == came


def test_a_barrier_that_is_told_of_bytes_by_hand_is_refused() -> None:
    fields, ptx = ptx_of("sm90_splitk", 0)
    by_hand = "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;"
    put = EXPECT.sub(lambda found: f"{found[0]} {by_hand}", ptx)
    assert told(fields, put) == [
        f"bytes: a barrier is told of bytes that nothing brings in '{by_hand[:-1]}'"
    ]


@pytest.mark.parametrize(
    ("name", "seed"), [each for each in KERNELS if each[0] not in GROUPED and each[1] == 0]
)
def test_threads_of_a_kernel_meet(name: str, seed: int) -> None:
    """Without their meetings: on a GPU the maker of the barriers, to begin with, is ahead nearly
    always."""
    fields, ptx = ptx_of(name, seed)
    (found,) = told(fields, re.sub(r"(?<!\w)(bar\.(sync|arrive)|barrier\.cluster)[^;]*;", "", ptx))
    assert found.startswith(("race: ", "lanes: "))


def test_threads_meet_at_barriers_that_there_are() -> None:
    """The gate failed on a number beyond 15, which the compiler lets pass in a register."""
    fields, ptx = ptx_of("sm90_writebound", 0)
    (found,) = told(fields, re.sub(r"(?<!\w)bar\.sync[^;]*;", "bar.sync 384;", ptx))
    assert found.startswith(f"{races.NO_SUCH} in 'bar.sync 384")


def test_a_place_that_is_not_known_is_refused() -> None:
    """The watchers stopped there, and said nothing of what else they had seen."""
    case = next(each for each in corpus.load() if each.name == "staged_at_its_rank")
    assert case.candidate
    verdict = evaluate.build_gates(case.candidate)[0][-1]
    assert verdict.detail.startswith(counts.UNKNOWN.format("st.shared")[:-1])


@pytest.mark.parametrize(
    ("grid", "together", "few", "starts"),
    [
        ((9, 7), 1, True, {(0, 0), (8, 6)}),
        ((1, 1), 1, False, {(0, 0)}),
        ((2, 1), 2, False, {(0, 0)}),
        ((3, 1), 1, False, {(0, 0), (1, 0), (2, 0)}),
        ((20, 1), 2, False, {(0, 0), (2, 0), (10, 0), (18, 0)}),
        ((1, 9), 1, False, {(0, 0), (0, 4), (0, 8)}),
    ],
)
def test_clusters_in_the_middle_are_followed(
    grid: tuple[int, int], together: int, few: bool, starts: set[tuple[int, int]]
) -> None:
    assert {*counts._starts(grid, together, few)} == starts


@pytest.mark.parametrize(
    ("room", "slices", "k"), [(12288, 1, 808), (12288, 2, 1608), (0, 1, 0), (1 << 30, 1, 16424)]
)
def test_k_goes_round_shared_memory_twice(room: int, slices: int, k: int) -> None:
    """A stage holds 16 rows or more, 32 bytes of each K: 12 KiB are at most 384 of K."""
    case = next(each for each in corpus.load() if each.name == "race_in_the_middle")
    assert case.candidate
    fields = {**case.candidate.fields, "smem_bytes": 0}
    fields["grid"] = {**fields["grid"], "tile_n": 64, "slices": slices}
    kernel = Kernel("", (), {"staged": "shared"}, {"staged": room})
    trial = cast(Trial, SimpleNamespace(fields=fields, kernel=kernel))
    assert [each.k for each in counts._deep(trial)] == ([k] if k else [])


@pytest.mark.parametrize(
    "name", ["second_last_cluster", "second_last_of_many_clusters", "middle_cluster"]
)
def test_a_cluster_that_a_comparison_of_places_names_is_followed(name: str) -> None:
    """The story: the first cluster and the last were followed, and in the last but one warps staged
    over what a bulk store may still read. In a grid of two clusters it is the first, of which each
    CTA has one tile."""
    case = next(each for each in corpus.load() if each.name == name)
    assert case.candidate
    verdict = evaluate.build_gates(case.candidate)[0][-1]
    assert verdict.status is Status.COVERAGE
    assert verdict.detail.startswith("race: nothing orders a write behind")
