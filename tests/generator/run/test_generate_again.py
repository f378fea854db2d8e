"""A run that goes on repeats nothing, and measures anew only what changed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hgemm_packs.generator.core.spec import (
    Job,
    Reply,
)
from hgemm_packs.generator.run.generate import Budget, Snapshot
from hgemm_packs.generator.store.run_folder import Store, merge
from tests.generator.fake_device import FakeDevice, true_us
from tests.generator.run.small_run import (
    CHOICES,
    FOUR,
    PLENTY,
    Builder,
    Listener,
    confirmed,
    jobs,
    run,
    screens,
)
from tests.generator.store.sample_store import kernel


def test_more_money_goes_on_where_less_ended(tmp_path: Path) -> None:
    poor = run(tmp_path, budget=Budget(0.2))
    assert poor.screened < 80 and poor.finished == 0
    run(tmp_path, budget=PLENTY)
    assert screens(tmp_path) == Counter({(p, kernel(c).id): 1 for p in FOUR for c in CHOICES})
    whole = tmp_path / "whole"
    run(whole)
    with Store(tmp_path, readonly=True) as store:
        last = {done.problem: done.kernels for done in store.finished_jobs("confirm")}
    assert last == confirmed(whole)


def test_a_finished_run_has_nothing_to_do(tmp_path: Path) -> None:
    first = run(tmp_path)
    before = jobs(tmp_path)
    builder = Builder()
    second = run(tmp_path, builder=builder)
    assert jobs(tmp_path) == before and builder.built == []
    assert replace(second, spent=0.0) == replace(first, spent=0.0)
    assert second.spent == pytest.approx(first.spent)


class Interrupted(Exception):
    pass


def gates(folder: Path) -> list[str]:
    """Kernels of gate jobs, as often as they were there."""
    with Store(folder, readonly=True) as store:
        return [kernel for done in store.finished_jobs("gate") for kernel in done.kernels]


@pytest.mark.parametrize("step", [3, 11, 14, 17, 21, 25, 29])
def test_an_interrupted_run_repeats_nothing(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off behind any commit; the strategy hears the same, and the end is the same. What was
    answered and waited to be committed is not measured again either."""
    monkeypatch.setattr("hgemm_packs.generator.run.generate._SHOWN_S", 0.0)
    whole, cut = Listener(), Listener()
    right = run(tmp_path / "whole", strategy=whole)
    steps = 0

    def stop(snapshot: Snapshot) -> None:
        nonlocal steps
        steps += 1
        if steps == step:
            raise Interrupted

    device = FakeDevice(log=tmp_path)
    with pytest.raises(Interrupted):
        run(tmp_path / "cut", progress=stop, device=device)
    summary = run(tmp_path / "cut", strategy=cut, device=device)
    gated = [Counter(gates(tmp_path / name)) for name in ("cut", "whole")]
    assert gated[0] == gated[1] and set(gated[0].values()) == {1}, "in other parties, perhaps"
    counts = [{**jobs(tmp_path / name), "gate": 0} for name in ("cut", "whole")]
    assert counts[0] == counts[1]
    (log,) = tmp_path.glob("*.jsonl")
    assert len(log.read_text().splitlines()) == sum(jobs(tmp_path / "cut").values())
    assert confirmed(tmp_path / "cut") == confirmed(tmp_path / "whole")
    assert screens(tmp_path / "cut") == screens(tmp_path / "whole")
    assert replace(summary, spent=0.0) == replace(right, spent=0.0)
    for problem in FOUR:
        told = [
            sorted((o.proposal.choice.key, o.us) for o in each.heard[problem])
            for each in (whole, cut)
        ]
        assert told[0] == told[1]


def test_two_halves_merged_are_one_run(tmp_path: Path) -> None:
    run(tmp_path / "a", problems=FOUR[:2])
    run(tmp_path / "b", problems=FOUR[2:], device=FakeDevice(index=1))
    with Store(tmp_path / "both") as store:
        merge(store, tmp_path / "a")
        merge(store, tmp_path / "b")
    before = jobs(tmp_path / "both")
    builder = Builder()
    summary = run(tmp_path / "both", builder=builder)
    run(tmp_path / "whole")
    assert confirmed(tmp_path / "both") == confirmed(tmp_path / "whole")
    assert summary.confirmed == len(confirmed(tmp_path / "whole"))
    after = jobs(tmp_path / "both")
    assert {k: after[k] - before[k] for k in after if after[k] != before[k]} == {}
    assert builder.built == []


def test_other_sources_are_measured_anew(tmp_path: Path) -> None:
    """An edited kernel is another kernel, whatever its genome."""
    run(tmp_path, problems=FOUR[:1])
    listener, builder = Listener(), Builder(sources="2")
    run(tmp_path, problems=FOUR[:1], strategy=listener, builder=builder)
    assert set(builder.built) == set(CHOICES)
    assert len(listener.heard[FOUR[0]]) == 20


def test_under_another_driver_all_is_measured_anew(tmp_path: Path) -> None:
    """The strategy hears of nothing that the old one timed, also when the run goes on."""

    @dataclass
    class Newer(FakeDevice):
        facts = property(lambda self: replace(FakeDevice().facts, versions={"torch": "1"}))  # type: ignore[assignment]

        def run(self, job: Job) -> Reply:
            reply = super().run(job)
            twice = {
                k: replace(r, samples={p: tuple(2 * us for us in u) for p, u in r.samples.items()})
                for k, r in reply.results.items()
            }
            return replace(reply, results=twice)

    run(tmp_path)
    builder, listener, again = Builder(), Listener(), Listener()
    first = run(tmp_path, device=Newer(), strategy=listener, builder=builder)
    assert builder.built == []
    after = jobs(tmp_path)
    assert run(tmp_path, device=Newer(), strategy=again).screened == first.screened == 80
    assert jobs(tmp_path) == after
    assert screens(tmp_path) == Counter({(p, kernel(c).id): 2 for p in FOUR for c in CHOICES})
    for problem in FOUR:
        for heard in (listener.heard[problem], again.heard[problem]):
            told = {o.proposal.choice: o.us for o in heard}
            assert len(heard) == len(told) == 20
            right = {choice: 2 * true_us(problem, kernel(choice).id) for choice in CHOICES}
            assert told == pytest.approx(right, rel=1e-3)


def test_another_gpu_needs_another_folder(tmp_path: Path) -> None:
    class Other(FakeDevice):
        facts = property(lambda self: FakeDevice().facts.__class__("Fake 2", "sm_90a", 1, 1))  # type: ignore[assignment]

    run(tmp_path, problems=FOUR[:1])
    with pytest.raises(ValueError, match="measurements of Fake 1, here is Fake 2"):
        run(tmp_path, device=Other())
