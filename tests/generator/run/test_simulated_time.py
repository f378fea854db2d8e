"""Compilers and a GPU that work at the same time, in simulated seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.core.spec import Choice, Job, Reply, Status
from hgemm_packs.generator.devices.sim import Faults, Noise, SimDevice
from hgemm_packs.generator.run.early import EarlyStages
from hgemm_packs.generator.run.finals import Sanitize
from hgemm_packs.generator.run.generate import Budget, Summary, generate
from hgemm_packs.generator.search.prior import make
from hgemm_packs.generator.store import busy
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.problem import Problem
from tests.generator.run.simulated_time import FRESH_S, SANITIZE_S, World, install

PROBLEMS = [Problem(m, n, 1024, "nt", "f16") for m in (64, 128, 256) for n in (512, 1024, 2048)]
PLENTY = Budget(1000.0, patience=2)


def play(
    folder: Path, device: SimDevice | None = None, early: bool = True, **options: Any
) -> tuple[Summary, World]:
    """A run, with or without a problem's own way to its finals."""
    with pytest.MonkeyPatch.context() as patch:
        world = install(patch, device or SimDevice(1, noise=Noise(0.001, 0.0)))
        if not early:
            patch.setattr(EarlyStages, "start_next", lambda self: False)
        with Store(folder) as store:
            summary = generate(
                store,
                PROBLEMS,
                make(1),
                world.compilers,
                world.gpu,
                options.pop("budget", PLENTY),
                options.pop("progress", world.watch),
                seed=5,
                sanitize=Sanitize(world.sanitize),
                **options,
            )
    return summary, world


def confirmed(folder: Path) -> dict[Problem | None, tuple[str, ...]]:
    with Store(folder, readonly=True) as store:
        return {done.problem: done.kernels for done in store.finished_jobs("confirm")}


def test_finals_run_while_compilers_work_and_the_end_is_the_same(tmp_path: Path) -> None:
    """The GPU waited for compilers through the search, and compilers for the GPU after it."""
    after, apart = play(tmp_path / "apart", early=False)
    before, beside = play(tmp_path / "beside")
    assert confirmed(tmp_path / "beside") == confirmed(tmp_path / "apart")
    assert (before.confirmed, before.speedup) == (after.confirmed, after.speedup)
    assert before.confirmed > 4
    assert beside.gpu.by_kind == pytest.approx(apart.gpu.by_kind), "nothing was done twice"
    assert beside.clock.now < 0.9 * apart.clock.now
    shares = []
    for folder, world in (("apart", apart), ("beside", beside)):
        (seconds,) = busy.read(tmp_path / folder).values()
        assert seconds.wall == pytest.approx(world.clock.now, abs=0.01)
        assert 0.0 < world.gpu.waited < FRESH_S, "it started beside the last gates"
        waited = world.gpu.waited + SANITIZE_S * len(world.sanitized)
        gpu = world.seconds(world.gpu.busy) + waited
        assert seconds.gpus == pytest.approx(gpu, abs=0.01)
        assert seconds.compilers == pytest.approx(world.seconds(world.compilers.busy), abs=0.01)
        together = seconds.compilers + gpu - world.seconds([*world.compilers.busy, *world.gpu.busy])
        assert seconds.both == pytest.approx(together - waited, abs=0.01)
        shares.append(seconds.share(seconds.both))
    assert shares[1] > 2 * shares[0]


def test_nothing_is_confirmed_by_a_process_that_selected(tmp_path: Path) -> None:
    order: list[str] = []

    class Watched(SimDevice):
        def run(self, job: Job) -> Reply:
            order.append(job.kind)
            return super().run(job)

    play(tmp_path, Watched(1, noise=Noise(0.001, 0.0)))
    first = order.index("noise")
    assert set(order[:first]) == {"ceilings", "screen", "race", "gate", "finals", "behind"}
    assert set(order[first:]) == {"noise", "confirm"}
    last = len(order) - 1 - order[::-1].index("screen")
    assert "finals" in order[:last], "some problem went on before the others"


def test_the_gate_stands_before_the_finals_of_a_problem_that_goes_on(tmp_path: Path) -> None:
    """A kernel that only the numeric gate finds out is in no finals; the next best is."""
    device = SimDevice(1, Faults(subtle=0.3), Noise(0.001, 0.0))
    summary, _ = play(tmp_path, device)
    assert summary.confirmed > 2
    with Store(tmp_path, readonly=True) as store:
        gates = store.verdicts("numeric")
        ran = [k for done in store.finished_jobs("finals") for k in done.kernels]
        choices: dict[str, Choice] = {}
        for kernel in {*ran, *gates}:
            fields = store.kernel(kernel).fields
            choices[kernel] = Choice.of(fields["family"], fields["genome"])
    assert {k for k, v in gates.items() if v.status is Status.NUMERIC}, "some were found out"
    for kernel, verdict in gates.items():
        assert verdict.passed == (device.fault(choices[kernel]) != "subtle")
    assert ran and all(gates[kernel].passed for kernel in ran)


def test_the_search_keeps_its_share_of_a_small_budget(tmp_path: Path) -> None:
    """Finals beside the search take from what comes after it, and no more than that."""
    budget = Budget(6.0, patience=1)
    _, world = play(tmp_path, budget=budget)
    early = sum(world.gpu.by_kind[kind] for kind in ("race", "gate", "finals", "behind"))
    most = max(world.gpu.by_kind["finals"] / 2, 0.36)  # of jobs that were under way
    assert early <= budget.limit(0.66) - budget.limit(0.0) + 3 * most
    assert sum(world.gpu.by_kind.values()) <= 6.0 + 3 * 0.7


@pytest.mark.parametrize("step", [20, 60, 90, 120])
def test_a_run_that_was_cut_off_ends_as_one_that_was_not(tmp_path: Path, step: int) -> None:
    class Cut(Exception):
        pass

    steps = 0

    def stop(snapshot: object) -> None:
        nonlocal steps
        steps += 1
        if steps == step:
            raise Cut

    play(tmp_path / "whole")
    with pytest.raises(Cut):
        play(tmp_path / "cut", progress=stop)
    play(tmp_path / "cut")
    assert confirmed(tmp_path / "cut").keys() == confirmed(tmp_path / "whole").keys()
    with Store(tmp_path / "cut", readonly=True) as store:
        for kind in ("screen", "finals", "confirm"):
            pairs = [(done.problem, done.kernels) for done in store.finished_jobs(kind)]
            assert len(pairs) == len(set(pairs)), "nothing twice"
