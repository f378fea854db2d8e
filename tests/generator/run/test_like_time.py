"""A new card by the rows of another: the gain of a search in a third of its simulated seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hgemm_packs.generator.core.space import ahead
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Status, Verdict
from hgemm_packs.generator.devices import model
from hgemm_packs.generator.devices.sim import JOB_SECONDS, Noise, SimDevice, fake_kernel
from hgemm_packs.generator.run import start
from hgemm_packs.generator.run.cards import Card
from hgemm_packs.generator.run.entrants import leave_unproven
from hgemm_packs.generator.run.generate import Budget, Summary, generate
from hgemm_packs.generator.search import STRATEGIES
from hgemm_packs.generator.search.like import Named
from hgemm_packs.generator.store import busy, findings
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.tables import judge
from hgemm_packs.problem import Problem
from tests.generator.run.simulated_time import FRESH_S, Compilers, World, install

PROBLEMS = [
    Problem(m, n, k, "nt", "f16")
    for m in (64, 128, 256, 512)
    for n, k in ((512, 1024), (1024, 1024), (2048, 1024), (1024, 4096))
]
BUDGET = Budget(60.0)
PROOF = Verdict("numeric", Status.OK, "", {"max_rel_err": 2e-4, "shapes_tested": 9})
#: Of any run, however small: ceilings, and fresh processes for what is confirmed.
FIXED_S = JOB_SECONDS["ceilings"] + FRESH_S


class Cousin(SimDevice):
    """A card of the same architecture: every time is a little other."""

    def true_us(self, choice: Choice, problem: Problem, *, cold: bool = False) -> float:
        other = 1.0 + 0.02 * model.uniform("cousin", choice.key, problem)
        return other * super().true_us(choice, problem, cold=cold)


class Packed:
    """Compilers behind a pack that has the kernels of the rows."""

    def __init__(self, compilers: Compilers, known: set[Choice]) -> None:
        self.workers, self.toolchain = compilers.workers, compilers.toolchain
        self._compilers, self._known = compilers, known
        self.taken: set[Choice] = set()

    def build(self, choices: Sequence[Choice]) -> dict[Choice, CompiledKernel | Verdict]:
        known = [choice for choice in choices if choice in self._known]
        here = {choice: replace(fake_kernel(choice), proof=PROOF) for choice in known}
        self.taken |= here.keys()
        left = [choice for choice in choices if choice not in here]
        return {**here, **(self._compilers.build(left) if left else {})}

    def inspect(self, kernels: Sequence[CompiledKernel]) -> dict[str, Verdict]:
        return self._compilers.inspect(kernels)


@pytest.fixture(scope="module")
def rows() -> Mapping[Problem, Named]:
    """What a long search found on the other card; of one problem in eight it found nothing."""
    device = SimDevice(1)
    won = {p: device.optimum(p)[0] for i, p in enumerate(PROBLEMS) if i % 8 != 7}
    return {p: Named(won.get(p), ahead(won[p]) if p in won else None) for p in PROBLEMS}


def play(
    folder: Path,
    card: Card | None,
    known: set[Choice] | None = None,
    budget: Budget | None = None,
) -> tuple[Summary, World, Packed]:
    with pytest.MonkeyPatch.context() as patch:
        world = install(patch, Cousin(1, noise=Noise(0.001, 0.0)))
        begin = start.begin(card, STRATEGIES["portfolio"](1), BUDGET, {})
        builder = Packed(world.compilers, known or set())
        with Store(folder) as store:
            summary = generate(
                store,
                PROBLEMS,
                begin.strategy,
                builder,
                world.gpu,
                budget or begin.budget,
                world.watch,
                seed=5,
                followers=begin.followers,
            )
    return summary, world, builder


def test_the_same_gain_in_a_third_of_the_time(
    rows: Mapping[Problem, Named], tmp_path: Path
) -> None:
    card = Card("Other", rows, {}, ())
    known = {one for named in rows.values() for one in named if one is not None}
    whole, searched, _ = play(tmp_path / "whole", None)
    like, begun, builder = play(tmp_path / "like", card, known)
    assert like.confirmed >= whole.confirmed > 8
    assert like.speedup > 0.995 * whole.speedup
    assert begun.clock.now - FIXED_S < (searched.clock.now - FIXED_S) / 3
    assert builder.taken and not builder.taken & set(begun.compilers.built)
    # Compilers work for the problem that no row won while the GPU times the others.
    (shares,) = busy.read(tmp_path / "like").values()
    assert shares.compilers > 0 and shares.both > 0.5 * shares.compilers
    assert shares.gpus > 0.8 * shares.wall


def find_gated(folder: Path) -> set[str]:
    with Store(folder, readonly=True) as store:
        return {id_ for done in store.finished_jobs("gate") for id_ in done.reply.results}


def test_a_compiled_kernel_meets_the_gates_where_it_is_ahead_of_a_packs(
    rows: Mapping[Problem, Named], tmp_path: Path
) -> None:
    """On an H100 gates took 29 of 80 GPU-seconds. Two of three kernels in them were within 2% of
    one that a pack had the proof of. A call that goes on leaves out the same ones."""
    card = Card("Other", rows, {}, ())
    # The pack has lost the kernels of half of the rows.
    known = {one for named in [*rows.values()][::2] for one in named if one is not None}
    budget = start.begin(card, None, BUDGET, {}).budget
    two = replace(budget, race_width=2, finalists=2)
    all_in, *_ = play(tmp_path / "all", card, known, replace(two, ahead=None))
    few, *_ = play(tmp_path / "few", card, known, two)
    gated, proven = find_gated(tmp_path / "few"), {fake_kernel(choice).id for choice in known}
    assert gated and len(gated) < 0.7 * len(find_gated(tmp_path / "all"))
    assert not gated & proven
    assert few.confirmed >= all_in.confirmed and few.speedup > 0.995 * all_in.speedup
    with Store(tmp_path / "few", readonly=True) as store:
        jobs = len(list(store.finished_jobs()))
    again, *_ = play(tmp_path / "few", card, known, two)
    assert replace(again, spent=few.spent) == few  # seconds are added in another order
    with Store(tmp_path / "few", readonly=True) as store:
        assert len(list(store.finished_jobs())) == jobs


def test_what_is_worth_its_gates() -> None:
    proven, near, ahead_of_it, slow = (
        CompiledKernel({"id": id_}, b"", proof=PROOF if id_ == "proven" else None)
        for id_ in ("proven", "near", "ahead", "slow")
    )
    speedups = {"proven": 1.05, "near": 1.07, "ahead": 1.08, "slow": 0.99}
    ranked = [ahead_of_it, near, proven, slow]
    assert leave_unproven(ranked, speedups, 1.02) == [ahead_of_it, proven]
    # One that is compiled meets what a pack has: two would meet each other.
    far = {**speedups, "near": 1.075, "ahead": 1.08}
    assert leave_unproven(ranked, far, 1.01) == [ahead_of_it, proven]
    assert leave_unproven(ranked, speedups, None) == ranked
    # Nothing to compare with: a row says what its finals measured, and some kernel must be in them.
    assert leave_unproven([near, slow], speedups, 1.02) == [near, slow]
    # Far ahead of a kernel of a pack, and behind torch all the same.
    speedups |= {"proven": 0.9}
    assert leave_unproven([proven, slow], speedups, 1.02) == [proven]


def test_bootstraps_are_taken_while_the_gpu_has_the_next_confirmation(
    rows: Mapping[Problem, Named], tmp_path: Path
) -> None:
    """Report and table took them behind the run, when nothing was left to wait for."""
    known = {one for named in rows.values() for one in named if one is not None}
    play(tmp_path, Card("Other", rows, {}, ()), known)
    with Store(tmp_path, readonly=True) as store:
        found = findings.read(store)
    before = judge._summarise_once.cache_info()
    listed = judge.contenders(found, judge.floors(found))
    after = judge._summarise_once.cache_info()
    assert after.misses == before.misses and after.hits > before.hits
    contender = next(c for each in listed.values() for c in each if c.proven)
    assert contender.row is not None
    hot = judge.summarise_times(contender.field.samples["hot"], contender.kernel)
    assert contender.row.hot == hot


def test_a_seed_decides_the_run(rows: Mapping[Problem, Named], tmp_path: Path) -> None:
    card = Card("Other", rows, {}, ())
    runs = [play(tmp_path / name, card) for name in ("a", "b")]
    assert runs[0][0] == runs[1][0]
    assert runs[0][1].clock.now == runs[1][1].clock.now
    assert runs[0][1].compilers.built == runs[1][1].compilers.built
    seeds = []
    for name in ("a", "b"):
        with Store(tmp_path / name, readonly=True) as store:
            seeds.append(sorted((d.kind, str(d.problem), d.seed) for d in store.finished_jobs()))
    assert seeds[0] == seeds[1]
