"""A run looks for kernels to launch behind another: what reads ahead, and beside whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hgemm_packs.generator.core.space import Space, admits, ahead, catalogue
from hgemm_packs.generator.core.spec import (
    Choice,
    CompiledKernel,
    Job,
    Reply,
    Status,
    Verdict,
)
from hgemm_packs.generator.run.finals import Sanitize
from hgemm_packs.generator.run.followers import MOST_DEPENDENT
from hgemm_packs.generator.run.generate import Budget, Summary, find_dependent_kernels, generate
from hgemm_packs.generator.search import behind
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.tables.prune import prune
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.problem import Problem
from tests.generator.fake_device import TORCH_US, FakeDevice, true_us
from tests.generator.run.small_run import (
    FOUR,
    PLENTY,
    Builder,
    Failing,
    Listener,
    confirmed,
    jobs,
)
from tests.generator.store.sample_store import kernel


def test_winners_are_confirmed_beside_the_kernels_that_read_ahead(tmp_path: Path) -> None:
    """The three fastest behind one another, of the winners' twins, of those that leave room, and of
    what is around the fastest of these; one that the gate refuses leaves its place to the next. A
    run that goes on asks nothing again."""
    listed = [c for c in Space(FOUR[0]).core if ahead(c) and admits(c, FOUR[-1])]
    plain = listed[::20][:22]
    device = FakeDevice()
    asked: list[str] = []

    def judge(kernels: Sequence[CompiledKernel]) -> list[dict[str, Verdict]]:
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
                sanitize=Sanitize(judge),
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
    call that goes on without them, as `generate resume` does, asks nothing again: it had confirmed
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

    def go(
        refuses: Sequence[Choice] = (), sources: str = "1"
    ) -> dict[Problem, list[CompiledKernel]]:
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
