"""A new card by the rows of another: the gain of a search in a third of its simulated seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hgemm_packs.generator.core.space import ahead
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, Verdict
from hgemm_packs.generator.devices import model
from hgemm_packs.generator.devices.sim import JOB_SECONDS, Noise, SimDevice, fake_kernel
from hgemm_packs.generator.run import start
from hgemm_packs.generator.run.cards import Card
from hgemm_packs.generator.run.generate import Budget, Summary, generate
from hgemm_packs.generator.search import STRATEGIES
from hgemm_packs.generator.search.like import Named
from hgemm_packs.generator.store import busy
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.problem import Problem
from tests.generator.run.simulated_time import FRESH_S, Compilers, World, install

PROBLEMS = [
    Problem(m, n, k, "nt", "f16")
    for m in (64, 128, 256, 512)
    for n, k in ((512, 1024), (1024, 1024), (2048, 1024), (1024, 4096))
]
BUDGET = Budget(60.0)
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
        here = {choice: fake_kernel(choice) for choice in choices if choice in self._known}
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
    folder: Path, card: Card | None, known: set[Choice] | None = None
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
                begin.budget,
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
