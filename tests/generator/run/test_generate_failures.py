"""A run goes on though kernels, jobs and devices fail, and what failed wins nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import (
    Job,
    Reply,
    Status,
)
from hgemm_packs.generator.devices.sim import Faults, SimDevice, fake_kernel
from hgemm_packs.generator.run.generate import Budget, generate
from hgemm_packs.generator.search.rivals.random_search import make as random_search
from hgemm_packs.generator.store import findings
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.problem import Problem
from tests.generator.fake_device import FakeDevice, true_us
from tests.generator.run.small_run import (
    CHOICES,
    FOUR,
    Builder,
    Failing,
    Listener,
    confirmed,
    jobs,
    run,
    screens,
)
from tests.generator.store.sample_store import PROBLEMS, kernel


def test_failures_and_cheats_win_nothing(tmp_path: Path) -> None:
    """Whatever is wrong with the fastest kernels, the fastest honest one is found."""
    problem = FOUR[0]
    ranked = sorted(CHOICES, key=lambda c: true_us(problem, kernel(c).id))
    faults = dict(zip(ranked, ["wrong", "gate", "hack", "raise", "launch"], strict=False))
    unbuilt = ranked[5]
    listener = Listener()
    device = FakeDevice(faults={kernel(c).id: fault for c, fault in faults.items()})
    run(
        tmp_path,
        problems=[problem],
        strategy=listener,
        device=device,
        builder=Builder([unbuilt]),
        budget=Budget(1000.0, patience=100, race_width=4),
    )
    heard = {fault: listener.status(problem, choice) for choice, fault in faults.items()}
    assert heard == {
        "wrong": Status.NUMERIC,
        "gate": Status.OK,  # the screen cannot see it
        "hack": Status.HACK,
        "raise": Status.LAUNCH,
        "launch": Status.LAUNCH,
    }
    assert listener.status(problem, unbuilt) is Status.BUILD
    with Store(tmp_path, readonly=True) as store:
        ((finals),) = store.measured("finals")
        assert set(finals.kernels) == {kernel(choice).id for choice in ranked[6:9]}
        ((hacked, where, why),) = store.quarantined()
        assert (hacked, where) == (kernel(ranked[2]).id, problem)
        assert "the machine needs" in why.detail
        verdict = store.verdicts("numeric")[kernel(ranked[1]).id]
        assert verdict.detail == "3 elements wrong"


def test_a_wrong_kernel_is_run_on_no_other_problem(tmp_path: Path) -> None:
    wrong = CHOICES[0]
    listener = Listener()
    device = FakeDevice(faults={kernel(wrong).id: "wrong"})
    run(tmp_path, problems=PROBLEMS, strategy=listener, device=device)
    tried = sum(count for (_, id_), count in screens(tmp_path).items() if id_ == kernel(wrong).id)
    assert tried == 2  # both were queued before the first answered
    assert all(listener.status(problem, wrong) is Status.NUMERIC for problem in PROBLEMS)
    again = Listener()
    run(tmp_path, problems=PROBLEMS, strategy=again)
    assert all(again.status(problem, wrong) is Status.NUMERIC for problem in PROBLEMS)


@pytest.mark.parametrize(
    "kinds",
    [
        ("screen", "race", "finals", "noise", "confirm"),
        ("race",),
        ("finals",),
        ("noise",),
        ("confirm",),
    ],
    ids="-".join,
)
def test_a_problem_whose_jobs_fail_is_given_up(tmp_path: Path, kinds: Sequence[str]) -> None:
    """Two problems that were too large once refused all their kernels everywhere. The others go on
    as if it was not there; the next call tries it once more, and ends."""
    whole = run(tmp_path / "whole")
    lost = next(problem for problem in FOUR if problem in confirmed(tmp_path / "whole"))
    for call in range(3):
        before = sum(jobs(tmp_path / "run").values()) if call else 0
        device, listener = Failing(lost, kinds), Listener()
        done = run(tmp_path / "run", device=device, strategy=listener)
        assert device.failed == [kinds[0]]
        assert done.given_up == {lost: "OutOfMemoryError: 64 GiB"}
        assert (done.confirmed, done.unconfirmed) == (whole.confirmed - 1, 0)
        assert (done.problems, done.finished) == (4, 3)
        assert (lost in listener.heard) == ("screen" not in kinds)
        assert not call or sum(jobs(tmp_path / "run").values()) == before + 1
    with Store(tmp_path / "run", readonly=True) as store:
        assert store.refused() == {}
        seen = findings.read(store)
    assert len(seen.trials) >= 3
    assert {f.stage for f in seen.fields if f.problem == lost} == {"finals"} - set(kinds) - (
        {"finals"} if "race" in kinds else set()
    )
    mended = run(tmp_path / "run")
    assert mended.given_up == {} and mended.confirmed == whole.confirmed
    assert confirmed(tmp_path / "run").keys() == confirmed(tmp_path / "whole").keys()


@pytest.mark.parametrize("kind", ["race", "finals", "confirm"])
def test_a_job_that_every_kernel_killed_is_not_done_again(tmp_path: Path, kind: str) -> None:
    """Nobody signed its reply: each call on the store once let them kill three processes each."""

    class Deadly(FakeDevice):
        asked = 0

        def run(self, job: Job) -> Reply:
            self.asked += 1
            if (job.kind, job.problem) == (kind, FOUR[0]):
                raise RuntimeError("context lost")
            return super().run(job)

    first, second = Deadly(), Deadly()
    right = run(tmp_path, device=first)
    assert first.asked > 3 and right.confirmed > 0
    assert replace(run(tmp_path, device=second), spent=right.spent) == right
    assert second.asked == 0


def test_a_simulated_gpu_with_every_fault(tmp_path: Path) -> None:
    """Kernels that hang, take the device with them, cheat or are subtly wrong are a quarter;
    the best honest one of each problem is found, by true times that nobody was told."""
    faults = Faults(launch=0.03, numeric=0.04, subtle=0.05, hang=0.04, lost=0.05, hack=0.04)
    device = SimDevice(11, faults)
    problems = [Problem(1024, 2048, k, "nt", "f16") for k in (512, 2048, 8192)]
    some = {}
    for problem in problems:
        core = Space(problem).core
        of_each = {device.fault(choice): choice for choice in core}
        some[problem] = Space(problem, only=list(dict.fromkeys([*core[::40], *of_each.values()])))
    evaluator = Inline(SimDevice(11, faults), lambda: SimDevice(11, faults))
    builder = Builder()
    builder.make = fake_kernel
    with Store(tmp_path) as store:
        budget = Budget(1000.0, patience=100, batch=4)
        generate(
            store, problems, random_search(3), builder, evaluator, budget, spaces=some.__getitem__
        )
        finals = {done.problem: done.kernels for done in store.measured("finals")}
        refused = store.refused()
    for problem in problems:
        core = some[problem].core
        honest = [choice for choice in core if not device.fault(choice)]
        ranked = sorted(honest, key=lambda choice: device.true_us(choice, problem))
        assert fake_kernel(ranked[0]).id in finals[problem]
        assert {device.fault(c) for c in core} >= {"hang", "lost", "hack", "numeric"}
        for choice in core:
            guilty = device.fault(choice) in ("numeric", "hack")
            assert not guilty or fake_kernel(choice).id in refused
            assert device.fault(choice) == "" or fake_kernel(choice).id not in finals[problem]
