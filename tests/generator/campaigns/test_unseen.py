"""Drawn problems, measured: who is timed, and a run that goes on where it was stopped."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hgemm_packs import report
from hgemm_packs.generator.campaigns import campaign, unseen
from hgemm_packs.generator.campaigns.campaign import CampaignOptions, Task
from hgemm_packs.generator.compile import candidate
from hgemm_packs.generator.devices.fake import fake_cubin
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.prediction import times
from hgemm_packs.pack.manifest import DeviceProfile
from hgemm_packs.pack.predictor import Predictor, describe
from hgemm_packs.problem import Problem
from tests import predictions

PROFILE = DeviceProfile("NVIDIA H200", 132, 60 << 20, 4800.0)


def pack(count: int = 40, predictors: tuple[Predictor, ...] = ()) -> Any:
    """Kernels of a real family, nt and f16, whose code is noise; one has won a row."""
    entries = {}
    family = FAMILIES["sm90_wgmma"]
    space = family.space(
        *(),
        layout="nt",
        dtype="f16",
        cluster_m=1,
        cluster_n=1,
        split_k=1,
        stages=4,
        raster="m",
        group=1,
        epilogue="staged",
        bulk_blocks=1,
        streaming=False,
        reads_ahead=False,
        triggers_early=False,
    )
    for genome, _ in zip(space, range(count), strict=False):
        fields = family.fields(genome)
        cubin = fake_cubin(hashlib.shake_256(fields["name"].encode()).digest(64))
        whole = {**fields, "id": hashlib.sha256(cubin).hexdigest(), "regs": 90}
        entries[fields["name"]] = candidate.entry(whole, cubin)
    last = list(entries)[-1]
    return SimpleNamespace(
        entries=entries,
        wins={Problem(100, 4096, 4096, "nt", "f16"): last},
        facts={"name": "made"},
        pack=SimpleNamespace(
            manifest=SimpleNamespace(predictors=predictors, device_profiles=(PROFILE,))
        ),
    )


def test_kernels_by_formula_of_rows_near_by_and_drawn_are_timed() -> None:
    made = pack()
    chooser = unseen.Chooser(made)
    problem = Problem(120, 4096, 4096, "nt", "f16")
    chosen = chooser.choose(problem)
    assert len(chosen) == len(set(chosen)) == 3 + 1 + 2 and set(chosen) <= set(made.entries)
    assert next(iter(made.wins.values())) in chosen
    assert chosen == chooser.choose(problem), "the same when it is measured again"
    assert not chooser.takes(Problem(120, 4096, 4096, "nn", "f16"))


def test_what_the_predictor_would_choose_is_timed() -> None:
    """The kernels that it thinks fastest are those of whose times it has to know."""
    problem, made = Problem(120, 4096, 4096, "nt", "f16"), pack()
    without = unseen.Chooser(made).choose(problem)
    left_out = [entry for name, entry in made.entries.items() if name not in without]
    families = (left_out[0].family,)
    candidates = tuple(describe(entry.id, entry, families) for entry in left_out)
    widest = max(entry.grid.tile_n for entry in left_out)
    ours = predictions.model(  # the widest tiles are the fastest
        0.0, [(predictions.AT["tile_n"], widest - 0.5, 2), (-1, 0.0, 0), (-1, -1.0, 0)]
    )
    leaf = predictions.leaf(0.0)
    predictor = Predictor(PROFILE.name, families, 1.0, candidates, ours, leaf, leaf)
    chosen = unseen.Chooser(pack(predictors=(predictor,))).choose(problem)
    guessed = [name for name in chosen if name not in without]
    first = next(entry.name for entry in left_out if entry.grid.tile_n == widest)
    assert first in guessed and len(guessed) <= unseen.Mix().predicted + unseen.Mix().drawn


def test_kernels_of_no_product_of_two_matrices_are_passed_over() -> None:
    """A pack with grouped kernels ended the choice with a KeyError."""
    made, problem = pack(), Problem(120, 4096, 4096, "nt", "f16")
    chosen = unseen.Chooser(made).choose(problem)
    one = next(iter(made.entries.values()))
    made.entries["grouped"] = one._replace(name="grouped", family="sm90_grouped")
    assert unseen.Chooser(made).choose(problem) == chosen


def test_a_run_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(report, "runtime_versions", lambda index: {})
    problems = [Problem(m, 4096, 4096, "nt", "f16") for m in range(1, 9)]
    problems.insert(2, Problem(9, 4095, 4096, "nt", "f16"))  # no kernel takes it
    tasks = unseen.tasks_of(problems, (), unseen.Chooser(pack()), seed=1)
    tasks.sort(key=lambda task: task.problem.m if task.problem else 0)
    assert [task.problem for task in tasks] == [p for p in problems if p.n == 4096]
    plan = CampaignOptions(tmp_path / "out.jsonl", commit="made")
    seen: list[int] = []

    def figures(task: Task) -> dict[str, Any]:
        assert task.problem is not None
        if len(seen) == 3:
            seen.append(0)
            raise KeyboardInterrupt
        seen.append(task.problem.m)
        return {"us": {"torch": [2.5, 3.4, 3.0], "k": [1.0, 1.5, 1.0]}}

    with pytest.raises(KeyboardInterrupt):
        campaign.measure_here(plan, pack(), tasks, {}, figures)
    torn = plan.out.read_bytes() + b'{"problem":[4,'
    plan.out.write_bytes(torn)
    tally = campaign.measure_here(plan, pack(), tasks, {}, figures)
    assert tally.whole and seen == [1, 2, 3, 0, 4, 5, 6, 7, 8]
    lines = [json.loads(line) for line in plan.out.read_text().splitlines()]
    assert [line["problem"][0] for line in lines if "problem" in line] == list(range(1, 9))

    # What the fit reads of it.
    made = pack()
    name, entry = next(iter(made.entries.items()))
    text = plan.out.read_text().replace('"k":', f'"{name}":')
    plan.out.write_text(text)
    known = times.Measured()
    times.read_lines(known, [plan.out], {name: describe(entry.id, entry, (entry.family,))})
    assert known.complete()[problems[0]] == times.Times(3.0, {name: 1.0})
    assert len(known.complete()) == 8


def test_torch_alone_is_timed_on_more_problems_of_the_draw(tmp_path: Path) -> None:
    few = unseen.Draw(layers=6, sizes=4, unaligned=2, seed=5)
    problems, none = unseen.draw_problems(few)
    same, alone = unseen.draw_problems(dataclasses.replace(few, alone=21))
    assert same == problems and not none, "the problems of the kernels stay what they were"
    assert len(alone) == 21 and len({*alone, *problems}) == 33
    tasks = unseen.tasks_of(problems, alone, unseen.Chooser(pack()), seed=5)
    told = [task.problem for task in tasks if task.fields.get("alone")]
    assert sorted(map(str, told)) == sorted(map(str, alone))

    path = tmp_path / "lines.jsonl"
    lines = [{**task.fields, "us": {"torch": [2.2, 1.9, 2.0]}} for task in tasks]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    known = times.Measured()
    times.read_lines(known, [path], {})
    assert known.alone() == {task.problem: 2.0 for task in tasks} and not known.complete()


def test_times_of_a_gpu_that_was_not_itself_teach_nothing(tmp_path: Path) -> None:
    """Samples of one line went from 22 to 109 us. Its kernel seemed to lose a fifth, and one such
    line in ten thousand is enough to abstain by."""
    steady, unsteady = Problem(5, 64, 64, "nt", "f16"), Problem(6, 64, 64, "nt", "f16")
    path = tmp_path / "lines.jsonl"
    lines = [
        {"problem": [5, 64, 64, "nt", "f16"], "us": {"torch": [3.0, 4.1, 3.5]}},
        {"problem": [6, 64, 64, "nt", "f16"], "us": {"torch": [3.0, 4.3, 3.5]}},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    known = times.Measured()
    times.read_lines(known, [path], {})
    assert known.alone() == {steady: 3.5} and unsteady not in known.times


def test_weights_that_judge_teach_nothing(tmp_path: Path) -> None:
    """Lines of a run that judged an earlier predictor are times like others, but for those of
    weights that no training has seen."""
    path = tmp_path / "lines.jsonl"
    us = {"torch": [3.0, 3.1, 3.2], "ours": [1.0, 1.0, 1.0]}
    sets = ("layers", "layers_new", "random", "unaligned")
    lines = [
        {"set": name, "problem": [m, 64, 64, "nt", "f16"], "us": us}
        for m, name in enumerate(sets, 1)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    known = times.Measured()
    times.read_lines(known, [path], {})
    assert known.alone() == {Problem(m, 64, 64, "nt", "f16"): 3.1 for m in (1, 3, 4)}
