"""Recordings, the device that replays them, and the comparison of searches on them."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np
import pytest

from benchmarks.search import replay_convert, replay_search
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import (
    Choice,
    DeviceFacts,
    Job,
    Outcome,
    Proposal,
    Result,
    Status,
)
from hgemm_packs.generator.devices import recording
from hgemm_packs.generator.devices.fake import fake_kernel
from hgemm_packs.generator.devices.recording import Screen
from hgemm_packs.generator.devices.replay import ReplayBench, ReplayDevice, spaces_of
from hgemm_packs.generator.devices.sim import Faults, SimDevice
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.search.prior import rows_of
from hgemm_packs.generator.search.rivals import compare, random_search
from hgemm_packs.generator.store import shards
from hgemm_packs.problem import Problem
from tests.generator.kernels import BASES

PROBLEMS = (
    Problem(64, 512, 512, "nt", "f16"),
    Problem(256, 512, 1024, "nn", "f16"),
    Problem(1024, 1024, 128, "nt", "f16"),
)
SIM = SimDevice(7, Faults(numeric=0.02, hang=0.01, launch=0.01))
FACTS = DeviceFacts("Recorded", "sm_90a", 132, 50 << 20)


def line(problem: Problem) -> dict[str, Any]:
    """What the sweep writes of a problem: one sample of the hopeless, nothing of the unbuilt."""
    core = Space(problem).core
    best = SIM.optimum(problem)[1]
    us, failed = {}, {}
    for choice in core:
        result = only(SIM, "screen", choice, problem)
        samples = result.samples.get("hot", ())
        if result.status is Status.OK:
            us[choice.name] = list(samples[:1] if min(samples) > 4 * best else samples)
        elif result.status is Status.NUMERIC:
            failed[choice.name] = "error 3.10e-02"
        elif result.status is Status.TIMEOUT:
            failed[choice.name] = "hung"
    top = sorted(us, key=lambda name: median(us[name]))[:3]
    again = {"torch": [9.5, 9.4], "cublaslt": [9.1], **{n: [median(us[n])] * 9 for n in top}}
    key = [problem.m, problem.n, problem.k, problem.layout, problem.dtype]
    return {"problem": key, "us": us, "failed": failed, "again": again}


def only(device: Any, kind: str, choice: Any, problem: Problem, seed: int = 1) -> Result:
    (result,) = device.run(Job(kind, problem, (fake_kernel(choice),), seed)).results.values()
    assert isinstance(result, Result)
    return result


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two files of lines, one of them gzipped."""
    folder = tmp_path_factory.mktemp("raw")
    texts = [json.dumps(line(problem)) + "\n" for problem in PROBLEMS]
    (folder / "a.jsonl").write_text("".join(texts[:1]))
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("".join(texts[1:]).encode()))
    return [folder / "a.jsonl", folder / "b.jsonl.gz"]


@pytest.fixture(scope="module")
def recorded(raw: list[Path]) -> Path:
    path = raw[0].with_name("recorded.npz")
    replay_convert.convert(raw, path)
    return path


@pytest.fixture(scope="module")
def screens(recorded: Path) -> dict[Problem, Screen]:
    return recording.load(recorded)


def raw_lines(raw: Sequence[Path]) -> dict[Problem, dict[str, Any]]:
    lines = replay_convert.read_records(raw)
    return {Problem(*each["problem"]): each for each in lines}


def test_what_is_written_is_read_to_half_a_thousandth(
    raw: list[Path], screens: dict[Problem, Screen]
) -> None:
    written = raw_lines(raw)
    assert set(screens) == set(written) == set(PROBLEMS)
    for problem, screen in screens.items():
        us, failed = written[problem]["us"], written[problem]["failed"]
        assert screen.choices == Space(problem).core
        for choice, samples, status in zip(
            screen.choices, screen.samples, screen.status, strict=True
        ):
            expected = us.get(choice.name, [])
            assert np.isfinite(samples).sum() == len(expected)
            assert samples[: len(expected)] == pytest.approx(expected, rel=5e-4)
            if expected:
                assert status is Status.OK
            elif choice.name in failed:
                hung = failed[choice.name] == "hung"
                assert status is (Status.TIMEOUT if hung else Status.NUMERIC)
            else:
                assert status is Status.BUILD
        assert {status.value for status in screen.status} == {"OK", "NUMERIC", "TIMEOUT", "BUILD"}
        again = {choice.name: list(times) for choice, times in screen.again.items()}
        arms = {**again, **{name: list(times) for name, times in screen.baselines.items()}}
        assert arms == written[problem]["again"]


def test_the_true_time_is_the_median_and_the_optimum_the_least(
    screens: dict[Problem, Screen],
) -> None:
    for screen in screens.values():
        times = {
            choice: median([us for us in samples.tolist() if us == us])
            for choice, samples in zip(screen.choices, screen.samples, strict=True)
            if np.isfinite(samples[0])
        }
        for choice, us in times.items():
            assert screen.us[screen.row[choice]] == pytest.approx(us)
        best, us = screen.optimum()
        assert us == pytest.approx(min(times.values())) and times[best] == pytest.approx(us)
        failed = [screen.us[screen.row[c]] for c in screen.choices if c not in times]
        assert failed and all(us == math.inf for us in failed)


def test_a_recording_of_another_catalogue_is_refused(
    recorded: Path, screens: dict[Problem, Screen], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = recording.catalogue
    monkeypatch.setattr(recording, "catalogue", lambda *kind: whole(*kind)[1:])
    with pytest.raises(recording.StaleRecording, match="catalogue has changed since"):
        recording.load(recorded)
    kept = recording.load(recorded, any_catalogue=True)
    for problem, screen in kept.items():
        assert screen.choices == screens[problem].choices
        assert np.array_equal(screen.samples, screens[problem].samples, equal_nan=True)


def test_a_recording_whose_choices_were_changed_is_refused(recorded: Path, tmp_path: Path) -> None:
    with np.load(recorded) as file:
        arrays = {name: file[name] for name in file.files}
    swapped = arrays["genes0"].copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    np.savez_compressed(tmp_path / "swapped.npz", **{**arrays, "genes0": swapped})
    with pytest.raises(ValueError, match="contradict their digest"):
        recording.load(tmp_path / "swapped.npz", any_catalogue=True)
    np.savez_compressed(tmp_path / "other.npz", genes0=swapped)
    with pytest.raises(ValueError, match="is no hgemm-packs/recording-1"):
        recording.load(tmp_path / "other.npz")


def test_the_same_screens_give_the_same_bytes(raw: list[Path], tmp_path: Path) -> None:
    for name in ("one.npz", "two.npz"):
        replay_convert.convert(raw[::-1], tmp_path / name)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.npz", "two.npz"))
    assert one == two


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"us": {"sm90_hgemm_unknown": [1.0]}}, "no admitted choice is called sm90_hgemm_unknown"),
        ({"us": {Space(PROBLEMS[0]).core[3].name: [0.0]}}, "a time of zero or less"),
        ({"us": {Space(PROBLEMS[0]).core[3].name: [1e20]}}, "a time that cannot be kept"),
    ],
)
def test_lines_that_cannot_be_are_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    p = PROBLEMS[0]
    record = {"problem": [p.m, p.n, p.k, p.layout, p.dtype], "us": {}, "failed": {}, "again": {}}
    (tmp_path / "a.jsonl").write_text(json.dumps({**record, **change}) + "\n")
    with pytest.raises(ValueError, match=message):
        replay_convert.convert([tmp_path / "a.jsonl"], tmp_path / "out.npz")


def test_a_problem_recorded_twice_is_refused(raw: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="recorded twice"):
        replay_convert.convert([raw[0], raw[0]], tmp_path / "out.npz")


def test_the_device_replays_recorded_samples_by_its_seeds(
    screens: dict[Problem, Screen],
) -> None:
    problem = PROBLEMS[0]
    screen = screens[problem]
    three = [c for c in screen.choices if np.isfinite(screen.samples[screen.row[c]]).all()][:40]

    def replayed(device_seed: int, job_seed: int, count: int = 1) -> list[tuple[float, ...]]:
        device = ReplayDevice(screens, FACTS, device_seed, samples=count)
        work = Job("screen", problem, tuple(map(fake_kernel, three)), job_seed)
        return [result.samples["hot"] for result in device.run(work).results.values()]

    ones = replayed(0, 0)
    assert ones == replayed(0, 0)
    assert ones != replayed(1, 0) and ones != replayed(0, 1)
    for choice, (us,), all_three in zip(three, ones, replayed(0, 0, 3), strict=True):
        samples = screen.samples[screen.row[choice]].tolist()
        assert us in samples
        assert sorted(all_three) == sorted(samples)
        assert median(all_three) == pytest.approx(screen.us[screen.row[choice]])


def test_the_device_replays_failures_and_nothing_that_was_not_recorded(
    screens: dict[Problem, Screen],
) -> None:
    device, problem = ReplayDevice(screens, FACTS, 0), PROBLEMS[0]
    screen = screens[problem]
    for status in (Status.NUMERIC, Status.TIMEOUT, Status.BUILD):
        choice = screen.choices[screen.status.index(status)]
        result = only(device, "screen", choice, problem)
        assert (result.status, dict(result.samples)) == (status, {})
    unrecorded = next(c for c in Space(PROBLEMS[1]).core if c not in screen.row)
    assert only(device, "screen", unrecorded, problem).status is Status.LAUNCH
    assert device.optimum(problem) == screen.optimum()
    with pytest.raises(ValueError, match="only screens"):
        only(device, "finals", screen.choices[0], problem)
    with pytest.raises(KeyError):
        only(device, "screen", screen.choices[0], Problem(8, 8, 8, "nt", "f16"))


def proposals(screen: Screen) -> list[Proposal]:
    return [Proposal(choice, "test") for choice in screen.choices]


def test_the_bench_draws_one_sample_a_choice_in_whatever_order(
    screens: dict[Problem, Screen],
) -> None:
    problem = PROBLEMS[2]
    screen, spaces = screens[problem], spaces_of(screens)
    asked = proposals(screen)
    forth = ReplayBench(screens, spaces, 3).measure(problem, asked)
    back = ReplayBench(screens, spaces, 3).measure(problem, asked[::-1])
    assert forth == back[::-1]
    assert forth != ReplayBench(screens, spaces, 4).measure(problem, asked)
    for outcome, samples in zip(forth, screen.samples.tolist(), strict=True):
        assert (outcome.us in samples) == (outcome.status is Status.OK)
        assert (outcome.us == math.inf) == (outcome.status is not Status.OK)
    drawn = [
        samples.index(outcome.us)
        for outcome, samples in zip(forth, screen.samples.tolist(), strict=True)
        if len(set(samples)) == 3 and samples[2] == samples[2]
    ]
    shares = [drawn.count(i) / len(drawn) for i in range(3)]
    assert shares == pytest.approx([1 / 3] * 3, abs=0.04)


def test_the_share_of_the_optimum_against_brute_force(screens: dict[Problem, Screen]) -> None:
    bench = ReplayBench(screens, spaces_of(screens), 0)
    for problem, screen in screens.items():
        times = [np.nanmedian(row) for row in screen.samples if np.isfinite(row[0])]
        for choice in screen.choices[::300]:
            samples = screen.samples[screen.row[choice]]
            share = min(times) / np.nanmedian(samples) if np.isfinite(samples[0]) else 0.0
            assert bench.share(problem, choice) == pytest.approx(share)


class Scripted:
    """Proposes the choices of a list, and counts what it is told."""

    name = "scripted"

    def __init__(self, listed: dict[Problem, list[Any]]) -> None:
        self.left = {problem: list(choices) for problem, choices in listed.items()}
        self.told: list[Outcome] = []

    def ask(self, space: Space, n: int) -> list[Proposal]:
        taken, self.left[space.problem] = self.left[space.problem][:n], self.left[space.problem][n:]
        return [Proposal(choice, self.name) for choice in taken]

    def tell(self, space: Space, outcomes: Sequence[Outcome]) -> None:
        self.told += outcomes


def made_up(samples: list[list[float]]) -> tuple[Screen, ReplayBench]:
    """A recording of one problem with these samples of its first choices."""
    problem = PROBLEMS[0]
    choices = Space(problem).core[: len(samples)]
    status = tuple(Status.OK if row[0] == row[0] else Status.BUILD for row in samples)
    screen = Screen(problem, choices, np.array(samples, dtype=float), status)
    screens = {problem: screen}
    return screen, ReplayBench(screens, spaces_of(screens), 0)


def test_a_curve_by_hand() -> None:
    # The fourth lies: measured 3 (one sample of it), truly 8; chosen all the same.
    nan = math.nan
    screen, bench = made_up([[nan] * 3, [16, nan, nan], [4, nan, nan], [3, 8, 8], [4, 4, 4]])
    seed = next(
        seed
        for seed in range(100)
        if ReplayBench({screen.problem: screen}, bench.spaces, seed)
        .measure(screen.problem, proposals(screen))[3]
        .us
        == 3
    )
    bench = ReplayBench({screen.problem: screen}, bench.spaces, seed)
    strategy = Scripted({screen.problem: list(screen.choices)})
    curves = compare.run(strategy, bench, [screen.problem], seed, budget=7, batch=2)
    assert curves[screen.problem] == [0.01, 0.25, 1.0, 0.5, 0.5, 0.5, 0.5]
    assert [outcome.us for outcome in strategy.told] == [math.inf, 16, 4, 3, 4]


def test_exhausting_random_search_ends_at_the_best_measured(
    screens: dict[Problem, Screen],
) -> None:
    spaces = spaces_of(screens)
    bench = ReplayBench(screens, spaces, 5)
    budget = max(len(space.core) for space in spaces.values())
    curves = compare.run(random_search.make(1), bench, PROBLEMS, 1, budget=budget, batch=500)
    for problem, curve in curves.items():
        outcomes = bench.measure(problem, proposals(screens[problem]))
        best = min(outcomes, key=lambda outcome: outcome.us).proposal.choice
        assert len(curve) == budget
        assert curve[-1] == pytest.approx(bench.share(problem, best))


def test_first_best_and_means_by_hand() -> None:
    screen, bench = made_up([[8] * 3, [2] * 3, [4] * 3, [1] * 3])
    ranked = list(screen.choices)
    assert compare.first_best(bench, screen.problem, ranked, (1, 2, 4)) == [0.125, 0.5, 1.0]
    assert compare.geometric_mean([0.25, 1.0]) == pytest.approx(0.5)
    assert compare.mean_curve([[0.5, 1.0], [0.125, 0.25]]) == pytest.approx([0.25, 0.5])


def test_halves_judge_the_prior_on_every_problem_once(screens: dict[Problem, Screen]) -> None:
    bench = ReplayBench(screens, spaces_of(screens), 2)
    counts = tuple(range(1, 65))
    shares = compare.halves(bench, 2, budget=160, batch=16, counts=counts)
    expected = []
    for problem in PROBLEMS:
        rows = rows_of(bench.spaces[problem])
        ranked = [rows.choices[i] for i in np.argsort(rows.prior, kind="stable")[: max(counts)]]
        expected.append(compare.first_best(bench, problem, ranked, counts))
    assert shares["prior"] == pytest.approx([geometric_mean(c) for c in zip(*expected)])  # noqa: B905
    assert set(shares) == {"prior", "reinforced", "fitted"}
    assert shares["fitted"] != shares["prior"] and shares["reinforced"] != shares["prior"]


def test_p_values_of_known_cases() -> None:
    ahead = [i / 7 for i in range(1, 21)]
    nothing = [0.0] * 20
    assert compare.p_value(ahead, nothing) == pytest.approx(2.0**-20)
    assert compare.p_value(nothing, ahead) == 1.0
    assert compare.p_value([1, 2, 3, 4, 5], [0] * 5) == pytest.approx(1 / 32)
    # ranks 2..5 against 1: of the 32 signs, +++++ and -++++ are as good
    assert compare.p_value([-1, 2, 3, 4, 5], [0] * 5) == pytest.approx(2 / 32)
    assert compare.p_value(ahead, ahead) == 1.0
    with pytest.raises(ValueError, match="pairs must match: 2 against 1"):
        compare.p_value([1, 2], [1])


def test_holms_correction_of_a_known_case() -> None:
    corrected = compare.holm({"a": 0.03, "b": 0.01, "c": 0.04, "d": 0.6})
    assert corrected == pytest.approx({"b": 0.04, "a": 0.09, "c": 0.09, "d": 0.6})
    assert compare.holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}


def test_curves_are_kept_as_changes() -> None:
    curve = [0.01, 0.5, 0.5, 0.25] + [1.0] * 60
    kept = replay_search.changes(curve)
    assert kept == [[0, 0.01], [1, 0.5], [3, 0.25], [4, 1.0]]
    assert replay_search.whole(kept) == curve


def test_runs_on_file_are_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = ("h200", "prior", 3, "digest")
    done = {**dict(zip(replay_search.FIELDS, task, strict=True)), "changes": [[[0, 0.5]]]}
    monkeypatch.setattr(replay_search, "SCRATCH", tmp_path / "scratch" / "lines.jsonl")
    monkeypatch.setattr(replay_search, "RAW", tmp_path / "raw.jsonl.zip")
    (tmp_path / "raw.jsonl.zip").write_bytes(shards.pack([done]))
    assert replay_search.run([task]) == [done]
    with (tmp_path / "scratch" / "lines.jsonl").open("a") as file:
        file.write("{torn")
    assert replay_search.run([task]) == [done]
    text = (tmp_path / "scratch" / "lines.jsonl").read_text()
    assert [json.loads(line) for line in text.splitlines()] == [done] and text[-1] == "\n"


def test_figures_of_made_up_runs(screens: dict[Problem, Screen]) -> None:
    def of(name: str, seed: int, share: float) -> dict[str, Any]:
        kept = [[[0, 0.5], [16, share]], [[0, 0.5], [16, share]], [[0, 0.5], [16, share]]]
        return {"name": name, "seed": seed, "changes": kept}

    runs = [of("portfolio", seed, 0.96 + seed / 1000) for seed in range(5)]
    runs += [of("random", seed, 0.8) for seed in range(5)]
    runs += [of("tpe", seed, 0.97) for seed in range(5)]
    first = {"prior": [0.5], "fitted": [0.6], "reinforced": [0.4]}
    runs += [
        {"name": "halves", "seed": seed, "first": {n: v * 3 for n, v in first.items()}}
        for seed in range(5)
    ]
    summary = replay_search.summarise(runs, screens)
    searched = summary["searches"]["portfolio"]
    assert searched["at"] == {"8": 0.5, "16": 0.5, "32": 0.962, "64": 0.962}
    assert (searched["to_90"], searched["to_95"], searched["to_99"]) == (17, 17, None)
    assert searched["curve"] == [0.5] * 16 + [0.962] * 48
    tests = summary["tests"]["against"]
    assert tests["random"]["share"] == [0.962, 0.8]
    assert tests["random"]["p"] == 0.0312
    assert tests["random"]["p_holm"] == 0.0624
    assert (tests["random"]["seeds_ahead"], tests["tpe"]["seeds_ahead"]) == ("5/5", "0/5")
    assert tests["tpe"]["p"] == tests["tpe"]["p_holm"] == 1.0
    assert summary["halves"]["fitted"]["8"]["ahead"] == "5/5"
    assert summary["halves"]["reinforced"]["1"]["p"] == 1.0
    # The second measurement repeats the first, to what a recording keeps.
    assert summary["recorded"]["optimum_again"] == pytest.approx(1.0, abs=5e-4)


def test_the_committed_figures_follow_from_the_committed_runs() -> None:
    lines = replay_convert.read_records([replay_search.RAW])
    assert len(lines) == 9 * sum(replay_search.SEEDS.values())
    figures = json.loads(replay_search.FIGURES.read_text())
    assert json.loads(json.dumps(replay_search.summaries(lines))) == figures


@pytest.fixture(scope="module")
def committed() -> dict[str, dict[Problem, Screen]]:
    return {name: replay_search.recorded_spaces(name)[0] for name in replay_search.SEEDS}


@pytest.mark.parametrize(
    ("name", "problem", "best", "us", "torch_us"),
    [
        ("h200", (4096, 4096, 4096, "nt", "f16"), "dda52e9a", 182.24, 184.5),
        ("h200", (64, 64, 64, "nt", "f16"), "86152193", 1.417, 2.23),
    ],
)
def test_the_committed_recordings_hold_what_was_measured(
    name: str,
    problem: tuple[Any, ...],
    best: str,
    us: float,
    torch_us: float,
    committed: dict[str, dict[Problem, Screen]],
) -> None:
    """The name of the best is that of its genome without the genes that came later."""
    screens = committed[name]
    assert len(screens) == 54
    choice, time = screens[Problem(*problem)].optimum()
    later = {
        "sm90_wgmma": {"bulk_blocks": 1, "reads_ahead": False, "triggers_early": False},
        "sm90_direct": {"fixed_k": 0, "cluster_k": 1},
    }[choice.family]
    assert later.items() <= choice.genome.items()
    then = {gene: value for gene, value in choice.genome.items() if gene not in later}
    text = json.dumps({"family": choice.family, **then}, sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest()[:8] == best
    assert time == pytest.approx(us, rel=5e-4)
    assert median(screens[Problem(*problem)].baselines["torch"]) == pytest.approx(
        torch_us, rel=0.15
    )


def test_what_was_recorded_is_a_kernel_of_today(
    committed: dict[str, dict[Problem, Screen]],
) -> None:
    """Searches over the recordings propose, mutate and judge these genomes."""
    for screens in committed.values():
        for problem, screen in list(screens.items())[::9]:
            assert Space(problem, only=screen.choices).core == screen.choices
            for choice in screen.choices[::50]:
                assert set(choice.genome) == set(FAMILIES[choice.family].genes)


def test_a_recording_older_than_a_gene_is_read_with_its_default(
    recorded: Path, tmp_path: Path
) -> None:
    """A file as it would have been written before `fixed_k` and `cluster_k`."""
    today = recording.load(recorded)
    older = {
        problem: [
            choice for choice in screen.choices if recording.completed(*without(choice)) == choice
        ]
        for problem, screen in today.items()
    }
    screens = [
        Screen(
            problem,
            tuple(Choice.of(*without(choice)) for choice in choices),
            today[problem].samples[[today[problem].row[choice] for choice in choices]],
            tuple(today[problem].status[today[problem].row[choice]] for choice in choices),
        )
        for problem, choices in older.items()
    ]
    listed: dict[tuple[str, str], dict[Choice, None]] = {}
    for screen in screens:
        kind = (screen.problem.layout, screen.problem.dtype)
        listed.setdefault(kind, {}).update(dict.fromkeys(screen.choices))
    path = tmp_path / "older.npz"
    recording.save(path, screens, {kind: list(choices) for kind, choices in listed.items()})
    for problem, screen in recording.load(path, any_catalogue=True).items():
        assert set(screen.choices) == set(older[problem])
        for choice in screen.choices[::20]:
            times = screen.us[screen.row[choice]]
            assert times == today[problem].us[today[problem].row[choice]]
    with pytest.raises(recording.StaleRecording):
        recording.load(path)


def without(choice: Choice) -> tuple[str, dict[str, Any]]:
    """Its family, and its genome without two genes that were not always there."""
    genome = {g: v for g, v in choice.genome.items() if g not in ("fixed_k", "cluster_k")}
    return choice.family, genome


@pytest.mark.parametrize(
    ("reduce", "slices", "same"), [("last", 1, True), ("last", 4, False), ("all", 4, False)]
)
def test_a_gene_that_is_no_more_is_dropped_where_the_kernel_is_the_same(
    reduce: str, slices: int, same: bool
) -> None:
    """Sums over slices go another way than when one gene said who adds."""
    today = {**BASES["sm90_splitk"], "slices": slices}
    choice = Choice.of("sm90_splitk", today) if same else None
    assert recording.completed("sm90_splitk", {**today, "reduce": reduce}) == choice


def test_a_file_of_the_day_when_a_family_had_another_gene(
    screens: dict[Problem, Screen], tmp_path: Path
) -> None:
    """What the gene does not matter to is kept; the rest is none today."""
    problem, screen = next(iter(screens.items()))
    sliced = [choice.genome.get("slices", 1) != 1 for choice in screen.choices]
    kept = [i for i, is_gone in enumerate(sliced) if not is_gone]
    assert any(screen.choices[i].family == "sm90_splitk" for i in kept)
    assert 100 < len(kept) < len(screen.choices)
    choices = [
        choice
        if choice.family != "sm90_splitk"
        else Choice.of(choice.family, {**choice.genome, "reduce": "last"})
        for choice in screen.choices
    ]
    gone = sliced.index(True)
    again = {choices[i]: (1.0,) for i in (kept[0], gone)}
    old = Screen(problem, tuple(choices), screen.samples, screen.status, again=again)
    path = tmp_path / "old.npz"
    recording.save(path, [old], {(problem.layout, problem.dtype): choices})
    (read,) = recording.load(path, any_catalogue=True).values()
    assert read.choices == tuple(screen.choices[i] for i in kept)
    np.testing.assert_allclose(read.samples, screen.samples[kept], rtol=1e-3)
    assert read.status == tuple(screen.status[i] for i in kept)
    assert read.again == {screen.choices[kept[0]]: (1.0,)}


def test_the_headline_shares_no_problem_with_what_was_tuned_on(
    committed: dict[str, dict[Problem, Screen]],
) -> None:
    held_out = committed[replay_search.HEADLINE]
    assert len(held_out) == 55
    assert not set(held_out) & set(committed["h200"])
