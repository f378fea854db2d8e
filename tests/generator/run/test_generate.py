"""A run from problems to confirmed kernels on a device whose true times are known: it finds them,
believes no cheat, keeps to its budget, and goes on where it stopped."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.core.gains import ratios, wins
from hgemm_packs.generator.core.space import Space, admits, ahead, catalogue
from hgemm_packs.generator.core.spec import (
    Choice,
    Job,
    Kernel,
    Outcome,
    Reply,
    Result,
    Status,
    Verdict,
)
from hgemm_packs.generator.devices.sim import Faults, SimDevice, fake_kernel
from hgemm_packs.generator.run.followers import MOST_DEPENDENT
from hgemm_packs.generator.run.generate import (
    Budget,
    Snapshot,
    Summary,
    find_dependent_kernels,
    generate,
)
from hgemm_packs.generator.search import behind
from hgemm_packs.generator.search.rivals.exhaustive import Exhaustive
from hgemm_packs.generator.search.rivals.random_search import make as random_search
from hgemm_packs.generator.store import findings
from hgemm_packs.generator.store.run_folder import Store, merge
from hgemm_packs.generator.tables.prune import prune
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.problem import Problem
from tests.generator.fake_device import TORCH_US, FakeDevice, true_us
from tests.generator.store.sample_store import PROBLEMS, choices, kernel

CHOICES = choices(20)
FOUR = PROBLEMS[:4]
PLENTY = Budget(1000.0, patience=100)


def spaces(problem: Problem) -> Space:
    return Space(problem, only=CHOICES)


class Builder:
    """Builds nothing; `refuses` some."""

    def __init__(
        self, refuses: Sequence[Choice] = (), workers: int = 0, sources: str = "1"
    ) -> None:
        self.workers, self.refuses = workers, refuses
        self.toolchain: Mapping[str, Any] = {"sources": sources}
        self.built: list[Choice] = []
        self.unsound: set[str] = set()
        self.make: Callable[[Choice], Kernel] = kernel

    def build(self, wanted: Sequence[Choice]) -> dict[Choice, Kernel | Verdict]:
        self.built += wanted
        refusal = Verdict("build", Status.BUILD, "spills")
        return {c: refusal if c in self.refuses else self.make(c) for c in wanted}

    def inspect(self, kernels: Sequence[Kernel]) -> dict[str, Verdict]:
        bad = Verdict("binary", Status.BINARY, "fp16 accumulator")
        return {
            k.id: bad if k.id in self.unsound else Verdict("binary", Status.OK) for k in kernels
        }


class Listener(Exhaustive):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: dict[Problem, list[Outcome]] = {}

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        super().tell(space, outcomes)
        self.heard.setdefault(space.problem, []).extend(outcomes)

    def status(self, problem: Problem, choice: Choice) -> Status:
        (found,) = [o for o in self.heard[problem] if o.proposal.choice == choice]
        assert (found.us < math.inf) == (found.status is Status.OK)
        return found.status


def run(
    folder: Path,
    *,
    problems: Sequence[Problem] = FOUR,
    strategy: Listener | None = None,
    device: FakeDevice | None = None,
    budget: Budget = PLENTY,
    builder: Builder | None = None,
    progress: Callable[[Snapshot], None] = lambda snapshot: None,
) -> Summary:
    with Store(folder) as store, Inline(device or FakeDevice()) as evaluator:
        return generate(
            store,
            problems,
            strategy or Listener(),
            builder or Builder(),
            evaluator,
            budget,
            progress,
            spaces=spaces,
            seed=5,
        )


def best(problem: Problem, without: Sequence[Choice] = ()) -> Choice:
    left = [choice for choice in CHOICES if choice not in without]
    return min(left, key=lambda choice: true_us(problem, kernel(choice).id))


def jobs(folder: Path) -> dict[str, int]:
    with Store(folder, readonly=True) as store:
        return dict(Counter(done.kind for done in store.finished_jobs()))


def confirmed(folder: Path) -> dict[Problem | None, tuple[str, ...]]:
    with Store(folder, readonly=True) as store:
        return {done.problem: done.kernels for done in store.finished_jobs("confirm")}


def screens(folder: Path) -> Counter[tuple[Problem | None, str]]:
    with Store(folder, readonly=True) as store:
        return Counter(
            (done.problem, k) for done in store.finished_jobs("screen") for k in done.kernels
        )


def test_the_fastest_kernels_are_confirmed(tmp_path: Path) -> None:
    listener = Listener()
    summary = run(tmp_path, strategy=listener, budget=Budget(1000.0, patience=100))
    winners = {p: best(p) for p in FOUR if true_us(p, kernel(best(p)).id) < TORCH_US}
    seen = confirmed(tmp_path)
    assert seen.keys() == winners.keys()
    for problem, choice in winners.items():  # the winner, and the others that beat torch as well
        rivals = sorted(seen[problem], key=lambda id_: true_us(problem, id_))
        assert rivals[0] == kernel(choice).id
        assert all(true_us(problem, id_) < TORCH_US for id_ in rivals)
    assert screens(tmp_path) == Counter({(p, kernel(c).id): 1 for p in FOUR for c in CHOICES})
    gains = [TORCH_US / true_us(p, kernel(c).id) for p, c in winners.items()]
    assert summary.confirmed == len(winners) > 1
    assert summary.speedup == pytest.approx(math.prod(gains) ** (1 / len(gains)), rel=1e-3)
    assert (summary.problems, summary.finished, summary.finals) == (4, 4, 4)
    assert (summary.screened, summary.kernels, summary.unconfirmed) == (80, 20, 0)
    told = {o.proposal.choice: o.us for o in listener.heard[FOUR[0]]}
    right = {choice: true_us(FOUR[0], kernel(choice).id) for choice in CHOICES}
    assert told == pytest.approx(right, rel=1e-3)
    with Store(tmp_path, readonly=True) as store:
        finals = {done.problem: done for done in store.finished_jobs("finals")}
        seeds = [done.seed for done in store.finished_jobs()]
        spent = sum(done.reply.gpu_seconds for done in store.finished_jobs())
        proven = store.verdicts("numeric")
    assert all(len(done.kernels) == 3 for done in finals.values())
    for problem in FOUR:
        ranked = sorted(CHOICES, key=lambda c: true_us(problem, kernel(c).id))
        assert set(finals[problem].kernels) == {kernel(choice).id for choice in ranked[:3]}
        assert all(proven[id_].passed for id_ in finals[problem].kernels)
    assert len(set(seeds)) == len(seeds)
    assert summary.spent == pytest.approx(spent)
    counts = jobs(tmp_path)
    assert (counts["ceilings"], counts["race"], counts["finals"], counts["noise"]) == (1, 4, 4, 4)


def test_winners_are_confirmed_beside_the_kernels_that_read_ahead(tmp_path: Path) -> None:
    """The three fastest behind one another, of the winners' twins, of those that leave room, and of
    what is around the fastest of these; one that the gate refuses leaves its place to the next. A
    run that goes on asks nothing again."""
    listed = [c for c in Space(FOUR[0]).core if ahead(c) and admits(c, FOUR[-1])]
    plain = listed[::20][:22]
    device = FakeDevice()
    asked: list[str] = []

    def judge(kernels: Sequence[Kernel]) -> list[dict[str, Verdict]]:
        asked.extend(one.id for one in kernels)
        return [{one.id: Verdict("sanitizer", Status.OK)} for one in kernels]

    def go(folder: Path, only: Sequence[Choice]) -> Summary:
        with Store(folder) as store:
            return generate(
                store,
                FOUR,
                Listener(),
                Builder(),
                Inline(device),
                PLENTY,
                spaces=lambda problem: Space(problem, only=only),
                seed=5,
                sanitize=judge,
            )

    def us(problem: Problem) -> Callable[[Choice], float]:
        return lambda choice: true_us(problem, kernel(choice).id)

    def ids(choices: Sequence[Choice]) -> list[str]:
        return [kernel(choice).id for choice in choices]

    finals = {p: sorted(plain, key=us(p))[:3] for p in FOUR}
    winners = {p: [c for c in finals[p] if us(p)(c) < TORCH_US] for p in FOUR}
    assert all(winners.values())
    tried = {
        p: {twin(c) for c in winners[p]}
        | {twin(c) for c in plain if behind.leaves_room(twin(c), p, 132)}
        for p in FOUR
    }
    assert all(4 < len(each) <= MOST_DEPENDENT for each in tried.values())
    tried = with_around(tried)
    bad = min(tried[FOUR[0]], key=us(FOUR[0]))
    device.faults = {kernel(bad).id: "gate"}
    summary = go(tmp_path / "run", plain)
    assert summary.confirmed == 4
    seen = confirmed(tmp_path / "run")
    for problem in FOUR:
        fastest = sorted(tried[problem] - {bad}, key=us(problem))[:3]
        assert set(seen[problem]) == {*ids(winners[problem]), *ids(fastest)}
    assert {id_ for each in seen.values() for id_ in each} == set(asked)
    with Store(tmp_path / "run", readonly=True) as store:
        timed = {p: {k for j in store.finished_jobs("behind", p) for k in j.kernels} for p in FOUR}
        usual = {
            k
            for kind in ("screen", "race", "finals")
            for j in store.finished_jobs(kind)
            for k in j.kernels
        }
    assert usual == set(ids(plain))
    assert timed == {p: set(ids(each)) for p, each in tried.items()}
    before = jobs(tmp_path / "run")
    go(tmp_path / "run", plain)
    assert jobs(tmp_path / "run") == before
    # What the search finds itself is confirmed once.
    device.faults = {}
    small = us(FOUR[0])
    both = next([c, twin(c)] for c in listed if max(small(c), small(twin(c))) < TORCH_US)
    go(tmp_path / "both", both)
    before = jobs(tmp_path / "both")
    names = confirmed(tmp_path / "both")[FOUR[0]]
    assert set(names) >= set(ids(both)) and len(names) == len(set(names))
    go(tmp_path / "both", both)
    assert jobs(tmp_path / "both") == before


def test_what_earlier_runs_had_reading_ahead_is_tried_behind_another(tmp_path: Path) -> None:
    """Beside the winners' twins and those that leave room; what a problem does not admit is not. A
    call that goes on without them, as `generate confirm` does, asks nothing again: it had confirmed
    every problem once more, without what followed best."""
    problem = FOUR[-1]
    listed = [c for c in Space(problem).core if ahead(c) and admits(c, problem)]
    plain, elsewhere = listed[::20][:6], [twin(c) for c in listed[1::20][:12]]
    deep = next(
        found
        for c in catalogue(problem.layout, problem.dtype)
        if (found := ahead(c)) and not admits(found, problem)
    )

    def go(**followers: Any) -> None:
        with Store(tmp_path) as store:
            search = (store, [problem], Listener(), Builder(), Inline(FakeDevice()), PLENTY)
            generate(*search, spaces=lambda p: Space(p, only=plain), seed=5, **followers)

    go(followers=lambda p: [deep, *elsewhere])
    with Store(tmp_path, readonly=True) as store:
        first, second = (set(job.kernels) for job in store.finished_jobs("behind"))
    timed = first | second
    ids = {kernel(choice).id for choice in elsewhere}
    assert ids <= timed and kernel(deep).id not in timed
    fastest = sorted(timed, key=lambda id_: true_us(problem, id_))[:3]
    assert ids & set(fastest)
    assert set(fastest) <= set(confirmed(tmp_path)[problem])
    before = jobs(tmp_path)
    go()
    assert jobs(tmp_path) == before


def test_the_rows_of_a_table_get_followers_without_a_search(tmp_path: Path) -> None:
    """The two fastest that read ahead and are level with torch alone, of few kernels, through the
    gate; nothing is tried where their own do not build, and nothing is asked again by a call that
    goes on."""
    listed = [c for c in Space(FOUR[0]).core if ahead(c) and admits(c, FOUR[-1])]
    own, plain, elsewhere = listed[0], listed[1::20][:9], twin(listed[7])
    won = {problem: {own: (1.3, 1.2)} for problem in FOUR}

    def go(refuses: Sequence[Choice] = (), sources: str = "1") -> dict[Problem, list[Kernel]]:
        with Store(tmp_path) as store:
            return find_dependent_kernels(
                store,
                won,
                Builder(refuses, sources=sources),
                Inline(FakeDevice(faults={slow: "alone", **bad})),
                Budget(1000.0, search_share=0.0, finalists=2),
                spaces=lambda problem: Space(problem, only=plain),
                seed=5,
                followers=lambda problem: [elsewhere, listed[8]],
            )

    bad: dict[str, str] = {}
    tried = {
        problem: {each for c in (own, listed[8]) for each in behind.twins(c, problem, 132)}
        | {*behind.twins(elsewhere, problem, 132)}
        | {twin(c) for c in plain if behind.leaves_room(twin(c), problem, 132)}
        for problem in FOUR
    }
    slow = min((kernel(c).id for c in tried[FOUR[0]]), key=lambda id_: true_us(FOUR[0], id_))
    tried = with_around(tried, slow)

    def over(problem: Problem) -> dict[str, float]:
        every = {kernel(choice).id for choice in tried[problem]} - {slow}
        return {id_: TORCH_US / true_us(problem, id_) for id_ in every}

    def few(problem: Problem) -> list[str]:
        left = {p: {k: x for k, x in over(p).items() if k not in bad} for p in FOUR}
        kept = left[problem].keys() & set(prune(left).kernels)
        return sorted(kept, key=lambda id_: -left[problem][id_])[:2]

    best, second = few(FOUR[0])
    assert true_us(FOUR[0], slow) < true_us(FOUR[0], second), "slower alone, fast behind itself"
    bad = {best: "gate"}
    left = {problem: few(problem) for problem in FOUR}
    assert not any(go([own], "0").values()) and set(jobs(tmp_path)) == {"ceilings"}
    found = go()
    assert set(jobs(tmp_path)) == {"ceilings", "behind", "gate"}
    assert {p: [one.id for one in each] for p, each in found.items()} == left
    with Store(tmp_path, readonly=True) as store:
        timed = {p: {k for j in store.finished_jobs("behind", p) for k in j.kernels} for p in FOUR}
    assert timed == {p: {kernel(choice).id for choice in each} for p, each in tried.items()}
    before = jobs(tmp_path)
    assert {p: [one.id for one in each] for p, each in go().items()} == left
    assert jobs(tmp_path) == before


def test_nothing_is_compiled_that_no_money_is_left_to_launch_behind_another(
    tmp_path: Path,
) -> None:
    """A run whose money was gone after the finals compiled some 24 kernels for each win all the
    same, while its GPUs waited; what was timed behind another before still counts."""
    plain = [c for c in Space(FOUR[0]).core if ahead(c) and admits(c, FOUR[-1])][::20][:22]

    class Dear(FakeDevice):
        def run(self, job: Job) -> Reply:
            reply = super().run(job)
            cost = PLENTY.gpu_seconds if job.kind == "finals" else reply.gpu_seconds
            return replace(reply, gpu_seconds=cost)

    def go(device: FakeDevice, budget: Budget) -> tuple[Summary, set[Choice]]:
        builder = Builder()
        with Store(tmp_path) as store:
            search = (store, FOUR[:1], Listener(), builder, Inline(device), budget)
            made = generate(*search, spaces=lambda p: Space(p, only=plain), seed=5)
        return made, set(builder.built)

    first, built = go(Dear(), PLENTY)
    assert first.likely == 1 and built == set(plain)
    rich = Budget(10 * PLENTY.gpu_seconds)
    second, built = go(FakeDevice(), rich)
    assert second.confirmed == 1 and all(each.genome["reads_ahead"] for each in built)
    (kernels,) = confirmed(tmp_path).values()
    third, _ = go(FakeDevice(), PLENTY)
    assert third.confirmed == 1 and confirmed(tmp_path) == {FOUR[0]: kernels}


def with_around(tried: dict[Problem, set[Choice]], slow: str = "") -> dict[Problem, set[Choice]]:
    """What is tried behind one another, with the second round, `slow` being slower than torch
    alone."""

    def fastest(problem: Problem) -> list[Choice]:
        ids = {choice: kernel(choice).id for choice in tried[problem]}
        level = [choice for choice in ids if ids[choice] != slow]
        return sorted(level, key=lambda choice: true_us(problem, ids[choice]))

    best = {problem: fastest(problem) for problem in tried}
    return {problem: each | {*behind.around(problem, best)} for problem, each in tried.items()}


def twin(choice: Choice) -> Choice:
    found = ahead(choice)
    assert found is not None
    return found


def test_the_binary_gate_holds_before_the_finals(tmp_path: Path) -> None:
    """Kernels are not disassembled while searching; what the gate refuses then never runs again."""
    builder = Builder()
    builder.unsound = {kernel(best(FOUR[0])).id}
    run(tmp_path, builder=builder)
    with Store(tmp_path, readonly=True) as store:
        ran = {
            k
            for kind in ("gate", "finals", "confirm")
            for j in store.finished_jobs(kind)
            for k in j.kernels
        }
        assert store.refused_kernels() == dict.fromkeys(builder.unsound, Status.BINARY)
    assert ran and not ran & builder.unsound


def test_the_sanitizer_judges_what_was_confirmed(tmp_path: Path) -> None:
    """Once a kernel; one with findings runs no more, and no table names it."""
    asked: list[str] = []
    racy = kernel(best(FOUR[0])).id

    def judge(kernels: Sequence[Kernel]) -> Iterator[dict[str, Verdict]]:
        asked.extend(one.id for one in kernels)
        words = {one.id: Status.SANITIZER if one.id == racy else Status.OK for one in kernels}
        yield {id_: Verdict("sanitizer", status) for id_, status in words.items()}

    for _ in range(2):
        with Store(tmp_path) as store:
            generate(
                store,
                FOUR,
                Listener(),
                Builder(),
                Inline(FakeDevice()),
                PLENTY,
                spaces=spaces,
                sanitize=judge,
            )
            assert store.refused_kernels() == {racy: Status.SANITIZER}
    assert sorted(asked) == sorted(set(asked))
    assert set(asked) >= {id_ for ids in confirmed(tmp_path).values() for id_ in ids[:1]}


@pytest.mark.parametrize("within", [True, False])
def test_verdicts_of_the_sanitizer_are_kept_as_they_come(
    tmp_path: Path, within: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage killed after four minutes began again from nothing, and had shown nothing. Now an
    interrupt, while the gate runs or while it waits, costs only what runs."""
    monkeypatch.setattr("hgemm_packs.generator.run.generate._SHOWN_S", 0.0)
    asked: list[list[str]] = []
    shown: list[tuple[int, int, str]] = []
    ended: list[bool] = []

    def judge(kernels: Sequence[Kernel]) -> Iterator[dict[str, Verdict]]:
        asked.append([one.id for one in kernels])
        try:
            for i, one in enumerate(kernels):
                if within and i == 2 and len(asked) == 1:
                    raise KeyboardInterrupt
                yield {one.id: Verdict("sanitizer", Status.OK)}
        finally:
            ended.append(True)

    def progress(snapshot: Snapshot) -> None:
        if snapshot.stage == "sanitize":
            shown.append((snapshot.done, snapshot.total, snapshot.of))
            if not within and snapshot.done == 2 and len(asked) == 1:
                raise KeyboardInterrupt

    def go() -> None:
        with Store(tmp_path) as store:
            args = (store, FOUR, Listener(), Builder(), Inline(FakeDevice()), PLENTY, progress)
            generate(*args, spaces=spaces, seed=5, sanitize=judge)

    with pytest.raises(KeyboardInterrupt):
        go()
    assert ended == [True], "what the gate runs outlived the stage"
    with Store(tmp_path, readonly=True) as store:
        assert list(store.verdicts("sanitizer")) == sorted(asked[0][:2])
    count = len(asked[0])
    assert count > 3 and shown == [(i, count, "kernels sanitized") for i in range(3)]
    go()
    assert asked[1:] == [asked[0][2:]]
    assert shown[3:] == [(i, count - 2, "kernels sanitized") for i in range(count - 1)]
    with Store(tmp_path, readonly=True) as store:
        assert set(store.verdicts("sanitizer")) == set(asked[0])


def test_the_next_best_stands_for_a_winner_that_is_not_confirmed(tmp_path: Path) -> None:
    """The table names it; it once went there without the sanitizer, as if not confirmed at all."""
    run(tmp_path / "whole")
    problem, ids = next((p, k) for p, k in confirmed(tmp_path / "whole").items() if len(k) > 1)
    assert problem is not None
    first, second, *_ = sorted(ids, key=lambda id_: true_us(problem, id_))

    class Late(FakeDevice):
        """Finds out at the confirmation."""

        def run(self, job: Job) -> Reply:
            reply = super().run(job)
            if job.kind == "confirm" and first in reply.results:
                wrong = {first: Result(Status.NUMERIC, {}, "timed launch")}
                reply = replace(reply, results={**reply.results, **wrong})
            return reply

    asked: list[str] = []

    def judge(kernels: Sequence[Kernel]) -> list[dict[str, Verdict]]:
        asked.extend(one.id for one in kernels)
        return [{one.id: Verdict("sanitizer", Status.OK)} for one in kernels]

    found = []
    for _ in range(2):
        with Store(tmp_path / "late") as store:
            args = (store, [problem], Listener(), Builder(), Inline(Late()), PLENTY)
            found.append(generate(*args, spaces=spaces, seed=5, sanitize=judge))
            assert store.refused_kernels() == {first: Status.NUMERIC}
    assert [(s.likely, s.confirmed, s.unconfirmed) for s in found] == [(1, 1, 0)] * 2
    assert found[0].speedup == pytest.approx(TORCH_US / true_us(problem, second), rel=1e-3)
    assert second in asked and first not in asked


def test_what_is_published_comes_from_fresh_processes(tmp_path: Path) -> None:
    """With a new seed, and after everything that was chosen from."""
    order: list[str] = []

    class Watched(Inline):
        def fresh(self) -> None:
            order.append("fresh")

        def submit(self, job: Job) -> Future[Reply]:
            order.append(job.kind)
            return super().submit(job)

    with Store(tmp_path) as store:
        generate(store, FOUR, Listener(), Builder(), Watched(FakeDevice()), PLENTY, spaces=spaces)
    (cut,) = [i for i, word in enumerate(order) if word == "fresh"]
    assert set(order[:cut]) == {"ceilings", "screen", "race", "gate", "finals"}
    assert set(order[cut + 1 :]) == {"noise", "confirm"}


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
        ((finals),) = store.finished_jobs("finals")
        assert set(finals.kernels) == {kernel(choice).id for choice in ranked[6:9]}
        ((hacked, where, why),) = store.quarantine_records()
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


def test_the_budget_is_kept(tmp_path: Path) -> None:
    """A kernel costs 4 ms here. Every stage gets something, and the next call nothing more."""
    budget = Budget(2.0, patience=100)
    summary = run(tmp_path, problems=PROBLEMS, budget=budget)
    counts = jobs(tmp_path)
    slack = 4 * 8 * 0.004  # what may be under way when the limit is met
    assert 2.0 - slack <= summary.spent <= 2.0 + slack or summary.unconfirmed == 0
    with Store(tmp_path, readonly=True) as store:
        spent = store.spent_gpu_seconds()
    assert spent["screen"] <= 0.7 * 2.0 + slack
    assert counts["finals"] >= 1 and counts["noise"] == 4
    again = run(tmp_path, problems=PROBLEMS, budget=budget)
    assert again.screened == summary.screened and again.spent <= 2.0 + 2 * slack


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


class Failing(FakeDevice):
    """Fails `kinds` of jobs on `problem` through none of their kernels."""

    def __init__(self, problem: Problem, kinds: Sequence[str]) -> None:
        super().__init__()
        self.problem, self.kinds = problem, kinds
        self.failed: list[str] = []

    def run(self, job: Job) -> Reply:
        if job.problem == self.problem and job.kind in self.kinds:
            self.failed.append(job.kind)
            return Reply({}, {}, {"failed": "OutOfMemoryError: 64 GiB"}, 0.001)
        return super().run(job)


def test_a_win_is_confirmed_though_nothing_could_be_launched_behind_another(tmp_path: Path) -> None:
    """Of a problem whose job of that kind failed the run gave up the win as well."""
    plain = [c for c in Space(FOUR[0]).core if ahead(c) and admits(c, FOUR[-1])][::20][:22]
    device = Failing(FOUR[0], ["behind"])
    for call in range(2):
        with Store(tmp_path) as store:
            search = (store, FOUR[:1], Listener(), Builder(), Inline(device), PLENTY)
            summary = generate(*search, spaces=lambda p: Space(p, only=plain), seed=5)
        assert (summary.confirmed, summary.given_up) == (1, {})
        assert device.failed == ["behind"] * (call + 1), "the next call tries again"
        assert jobs(tmp_path)["confirm"] == 1


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
        assert store.refused_kernels() == {}
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


class Interrupted(Exception):
    pass


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
    assert jobs(tmp_path / "cut") == jobs(tmp_path / "whole")
    (log,) = tmp_path.glob("*.jsonl")
    assert len(log.read_text().splitlines()) == sum(jobs(tmp_path / "whole").values())
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


def test_a_problem_without_progress_stops(tmp_path: Path) -> None:
    budget = Budget(1000.0, batch=2, patience=2)
    summary = run(tmp_path, problems=FOUR[:1], budget=budget)
    us = [true_us(FOUR[0], kernel(choice).id) for choice in CHOICES]
    stopped = next(
        n for n in range(6, 21, 2) if n == 20 or min(us[: n - 4]) * 0.997 <= min(us[n - 4 : n])
    )
    assert summary.screened == stopped < 20
    assert summary.finished == 1


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
        finals = {done.problem: done.kernels for done in store.finished_jobs("finals")}
        refused = store.refused_kernels()
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


class Slow(Inline):
    """Answers only when it has to: what is under way can be counted."""

    def __init__(self, device: FakeDevice, capacity: int) -> None:
        super().__init__(device)
        self.capacity = capacity
        self.waiting: list[tuple[Job, Future[Reply]]] = []
        self.most: Counter[str] = Counter()
        self.batches: list[int] = []

    def submit(self, job: Job) -> Future[Reply]:
        future: Future[Reply] = Future()
        self.waiting.append((job, future))
        self.most[job.kind] = max(self.most[job.kind], len(self.waiting))
        if job.kind == "screen":
            self.batches.append(len(job.kernels))
        return future

    def answer(self) -> None:
        job, future = self.waiting.pop(0)
        future.set_result(super().submit(job).result())


@pytest.mark.parametrize(("problems", "screening"), [(8, 8), (1, 3)])
def test_every_device_has_work_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problems: int, screening: int
) -> None:
    """Several problems are under way at a time; the last one is spread over the devices."""
    evaluator = Slow(FakeDevice(), 4)

    class Events:
        """A queue that has an answer made when it is empty."""

        def __init__(self) -> None:
            self.items: list[Any] = []

        def put(self, item: Any) -> None:
            self.items.append(item)

        def get(self) -> Any:
            if not self.items:
                evaluator.answer()
            return self.items.pop(0)

    monkeypatch.setattr("hgemm_packs.generator.run.jobs.SimpleQueue", Events)
    with Store(tmp_path) as store:
        generate(
            store, PROBLEMS[:problems], Exhaustive(), Builder(), evaluator, PLENTY, spaces=spaces
        )
    assert evaluator.most["screen"] == screening
    assert max(evaluator.batches) == 8
    if problems == 8:
        assert evaluator.most["race"] == 8 and evaluator.most["finals"] == 8


@pytest.mark.parametrize(
    ("hot", "cold", "likely"), [(11.0, 11.0, True), (9.0, 13.0, False), (12.5, 9.0, False)]
)
def test_what_beats_torch_is_confirmed_whatever_cublaslt_could(
    hot: float, cold: float, likely: bool
) -> None:
    baselines = {"torch": {"hot": (12.0,), "cold": (13.0,)}, "cublaslt": {"hot": (10.0,)}}
    result = Result(Status.OK, {"hot": (hot,), "cold": (cold,)})
    gains = ratios(Reply({}, baselines), result)
    assert gains == (12.0 / hot, 13.0 / cold)
    assert wins(gains) is likely
    assert ratios(Reply({}, {"cublaslt": baselines["cublaslt"]}), result) == (0.0, 0.0)
