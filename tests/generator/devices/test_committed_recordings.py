"""The committed recordings hold what was measured, in words of today."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from benchmarks.search import replay_convert, replay_search
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import (
    Choice,
)
from hgemm_packs.generator.devices import recording
from hgemm_packs.generator.devices.recording import Screen
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.problem import Problem
from tests.generator.kernels import BASES


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
