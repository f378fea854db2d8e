"""The rows of one card's table on another: the plan, the run, and the table that follows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from benchmarks import folders
from benchmarks.cards import plan as card_plan
from benchmarks.cards import rows as card
from hgemm_packs.generator.campaigns import campaign, refine, remeasure
from hgemm_packs.generator.compile.pack_kernels import Packed
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.core.spec import Choice, DeviceFacts, Job, Reply
from hgemm_packs.generator.devices import model
from hgemm_packs.generator.devices.fake import choice_of
from hgemm_packs.generator.devices.sim import Noise, SimDevice
from hgemm_packs.generator.store import export
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.problem import Problem
from tests.generator.cli.made_run import Made
from tests.generator.command import PROBLEMS


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def pack(made: Made) -> Packed:
    return Packed(made.run / "pack")


@dataclass
class Second:
    """The second card: a simulated one, whose other protocols are made of the same model. Launched
    behind itself a kernel takes 0.9 of its time; `asked` has the jobs of all its processes."""

    asked: list[Job] = field(default_factory=list)
    name: str = "Second GPU"
    inner: SimDevice = field(default_factory=lambda: SimDevice(7, noise=Noise(0.001, 0.0)))

    @property
    def facts(self) -> DeviceFacts:
        inner = self.inner.facts
        return DeviceFacts(
            self.name, inner.arch, inner.sm_count, inner.l2_bytes, "u", inner.versions
        )

    def us(self, choice: Choice, problem: Problem, cold: bool) -> float:
        return self.inner.true_us(choice, problem, cold=cold)

    def run(self, job: Job) -> Reply:
        self.asked.append(job)
        if job.kind not in ("pdl", "energy"):
            return self.inner.run(job)
        assert job.problem is not None
        arms = {str(k.fields["name"]): choice_of(k) for k in job.kernels}
        line: dict[str, Any] = {"conditions": {}, "wrong": [], "edges": {"programmatic": 2}}
        for i, protocol in enumerate(("hot", "cold")):
            (choice,) = list(arms.values())[:1]
            own = self.us(choice, job.problem, bool(i))
            torch_us = model.library_us(job.problem, 7, tuned=False, cold=bool(i))
            times = {"torch": torch_us, "plain": own, "pdl": 0.9 * own}
            line[protocol] = {arm: [us] * 5 for arm, us in times.items()}
        if job.kind == "energy":
            runs = {name: {"us": self.us(one, job.problem, False)} for name, one in arms.items()}
            torch_us = model.library_us(job.problem, 7, tuned=False)
            line = {"sustained": {"torch": {"us": torch_us}, **runs}, "wrong": []}
        return Reply({}, evidence=line)


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> Iterator[Second]:
    device = Second()
    for name in ("open_finals", "open_protocols"):
        monkeypatch.setattr(card, name, lambda folder: Inline(device))
    monkeypatch.setattr(card, "CHUNK", 2)
    yield device


def planned(made: Made, pack: Packed, folder: Path) -> Path:
    ranked = remeasure.rank(export.load(made.run))
    behind = {(p.key[:5], name): 1.5 for p in pack.measured for name in pack.list_admitting(p)}
    lines = card_plan.make(card_plan.Plan(pack, ranked, behind), pack.measured)
    path = folder / "plan.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


# --- the plan -------------------------------------------------------------------------------------


def test_fp16_nn_of_the_grid_comes_first_then_layers_of_few_rows() -> None:
    grid = {(64, 64, 64), (128, 64, 64)}
    first = Problem(128, 64, 64, "nn", "f16")
    layer = Problem(256, 4096, 4096, "nt", "bf16")
    rest = [
        Problem(64, 64, 64, "nt", "f16"),
        Problem(64, 64, 64, "nn", "bf16"),
        Problem(257, 4096, 4096, "nt", "bf16"),
    ]
    assert card_plan.order([*rest, layer, first], grid)[:2] == [first, layer]
    assert set(card_plan.order([*rest, layer, first], grid)[2:]) == set(rest)
    assert [card_plan.part_of(p, grid) for p in (first, layer, *rest)] == [0, 1, 2, 2, 2]


def test_a_part_that_is_stopped_is_a_fair_sample() -> None:
    rows = [Problem(64 * i, 64, 64, "nn", "f16") for i in range(1, 17)]
    found = [p.m // 64 for p in card_plan.order(rows, {(p.m, 64, 64) for p in rows})]
    assert found == [1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 4, 8, 12, 16]


def test_a_line_names_the_own_kernels_first_and_takes_no_other_than_the_packs(
    made: Made, pack: Packed
) -> None:
    problem = next(iter(pack.wins))
    own, names = pack.wins[problem], set(pack.entries)
    other = next(n for n in pack.list_admitting(problem) if n != own)
    entry = pack.entries[other]
    ranked = {problem: {"0" * 64: 1.9, entry.id: 1.5}}
    behind = {(problem.key[:5], other): 1.2, (problem.key[:5], "gone"): 1.5}
    behind |= {(problem.key[:5], own): 0.9}
    line = card_plan.Plan(pack, ranked, behind).line(problem, "part")
    assert line["kernels"][:2] == [own, other] and set(line["kernels"]) <= names
    assert len(line["kernels"]) <= card_plan.COUNT
    first = [pack.dependent[problem]] if problem in pack.dependent else []
    assert line["dependent"] == list(dict.fromkeys([*first, other]))[: card_plan.DEPENDENT]
    assert (line["part"], line["sustained"]) == ("part", [])
    assert Problem(*line["problem"]) == problem


def test_rows_that_five_values_do_not_say_are_left_out(pack: Packed) -> None:
    plan = card_plan.Plan(pack, {}, {})
    odd = [
        Problem(128, 512, 512, "nt", "f16", epilogue="bias"),
        Problem(128, 512, 512, "nt", "f16", base=(2, 2, 2)),
    ]
    assert [line["problem"] for line in card_plan.make(plan, [*odd, PROBLEMS[0]])] == [
        [128, 512, 512, "nt", "f16"]
    ]


def test_minutes_are_those_of_the_jobs() -> None:
    small, big = [64, 64, 64, "nn", "f16"], [8192, 8192, 8192, "nn", "f16"]
    part, last = card_plan.PARTS[0], card_plan.PARTS[2]
    lines = [
        {"part": part, "problem": small, "dependent": ["a", "b"], "sustained": []},
        {"part": part, "problem": big, "dependent": [], "sustained": ["a"]},
        {"part": last, "problem": small, "dependent": ["a"], "sustained": []},
    ] * 100
    found = card_plan.minutes(lines, lambda problem: problem.m > 64 or True)
    assert found[part]["finals"] == round(200 * 0.134 / 60, 1)
    assert found[part]["confirm"] == round(200 * 0.252 / 60, 1)
    assert found[part]["pdl"] == round(300 * 0.1 / 60, 1)
    assert found[part]["energy"] == round(100 * 2.4 / 60, 1)
    assert found[last]["pdl"] == round(200 * 0.1 / 60, 1)
    assert card_plan.minutes(lines, lambda problem: False)[part]["all"] == found[part]["finals"]


# --- the run --------------------------------------------------------------------------------------


def test_a_table_of_the_second_card_follows(
    made: Made, pack: Packed, second: Second, tmp_path: Path
) -> None:
    """By the pack's kernels alone, all of them right choices on that card."""
    plan, folder = planned(made, pack, tmp_path), tmp_path / "dir"
    assert card.main(["run", str(plan), str(made.run / "pack"), str(folder)]) == 0
    kinds = [job.kind for job in second.asked]
    assert kinds[0] == "ceilings" and kinds.count("finals") == len(PROBLEMS)
    lines = [json.loads(x) for x in plan.read_text().splitlines()]
    asked = {job.problem: {k.fields["name"] for k in job.kernels} for job in second.asked
             if job.kind == "finals"}  # fmt: skip
    assert asked == {Problem(*x["problem"]): set(x["kernels"]) for x in lines}
    assert card.main(["export", str(made.run / "pack"), str(folder)]) == 0
    found = export.load(folder)
    assert found.device.name == "Second GPU" and found.device.peak_gbps == model.DRAM_GBPS
    # As one of several cards, beside what stands for all of them.
    results = tmp_path / "results"
    (results / "bits").mkdir(parents=True)
    taken = folders.take([folder], results / "second")
    below = {str(path.relative_to(results / "second")) for path in taken}
    files = {f"dependent/{name}/01.jsonl.zip" for name in ("choice", "published")}
    assert below == {"confirmations/01", *files}
    assert folders.cards(results) == ["second"]
    told = folders.table_options(results, card="second")
    assert told[0] == str(results / "second" / "confirmations")
    assert told[-2:] == ["--bits", str(results / "bits")]
    choosing, second_lines = (
        campaign.answers(folders.list_files(name, results=results / "second"))
        for name in ("dependent/choice", "dependent/published")
    )
    document, gone = refine.document(
        export.load(results / "second" / "confirmations"),
        1.0,
        set,
        choosing=choosing,
        published=second_lines,
    )
    assert not gone
    assert [p.name for p in document.device_profiles] == ["Second GPU"]
    rows = {Problem(*row.key): row for row in document.table}
    assert rows.keys() == set(PROBLEMS)
    ids = {entry.id: name for name, entry in pack.entries.items()}
    for line in lines:
        problem = Problem(*line["problem"])
        us = {
            name: second.us(Choice.of(e.family, e.genome), problem, False)
            for name in line["kernels"]
            for e in (pack.entries[name],)
        }
        torch_us = model.library_us(problem, 7, tuned=False)
        row = rows[problem]
        if min(us.values()) * 1.02 < torch_us:
            assert row.kernel is not None
            assert us[ids[row.kernel]] == pytest.approx(min(us.values()), rel=0.02)
            assert row.hot.us == pytest.approx(us[ids[row.kernel]], rel=0.02)
    assert any(row.kernel for row in rows.values())
    named = [row.dependent for row in rows.values() if row.dependent]
    assert named and set(named) <= ids.keys()
    assert read_source(made.run / "source.json").device_profiles[0].name != "Second GPU"


def test_what_is_confirmed_and_published_comes_from_fresh_processes(
    made: Made, pack: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes: list[list[str]] = []

    class Open(Inline):
        def __init__(self, folder: Path) -> None:
            super().__init__(Second())
            self.fresh()

        def submit(self, job: Job) -> Any:
            processes[-1].append(job.kind)
            return super().submit(job)

        def prepare(self) -> None:
            processes[-1].append("prepare")

        def fresh(self) -> None:
            processes.append([])

    for name in ("open_finals", "open_protocols"):
        monkeypatch.setattr(card, name, Open)
    card.measure(planned(made, pack, tmp_path), pack, tmp_path / "dir", 600.0)
    assert all(each.pop(0) == "prepare" for each in processes), "the next one imports meanwhile"
    kinds = [set(each) - {"noise"} for each in processes]
    assert kinds[:3] == [{"ceilings"}, {"finals"}, {"confirm"}]
    ran = [each for each in kinds[3:] if each]
    assert [{"pdl"}, {"pdl"}] in ([a, b] for a, b in itertools.pairwise(ran)), "chosen, published"
    assert all(len(each) <= 1 for each in kinds)


def test_a_run_that_was_stopped_goes_on_and_repeats_nothing(
    made: Made, pack: Packed, second: Second, tmp_path: Path
) -> None:
    plan, folder = planned(made, pack, tmp_path), tmp_path / "dir"
    words = ["run", str(plan), str(made.run / "pack"), str(folder)]
    assert card.main([*words, "0"]) == 1 and second.asked == []

    real, count = Second.run, 0

    def run(self: Second, job: Job) -> Reply:
        nonlocal count
        count += 1
        if count == 5:
            raise KeyboardInterrupt
        return real(self, job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Second, "run", run)
        with pytest.raises(KeyboardInterrupt):
            card.main(words)
    with (folder / card.PLAIN).open("a") as file:
        file.write('{"torn')
    assert card.main(words) == 0
    done = [(j.kind, j.problem, tuple(k.id for k in j.kernels)) for j in second.asked]
    work = [each for each in done if each[0] in ("ceilings", "finals", "confirm", "noise")]
    assert len(work) == len(set(work))
    before = len(second.asked)
    assert card.main(words) == 0 and len(second.asked) == before


def test_of_what_is_finished_no_line_is_read_again(
    made: Made, pack: Packed, second: Second, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call read all lines five times for every chunk that was done, and those of all files for
    every process, while the GPU waited: minutes, once there were 8,000 rows."""
    plan, folder = planned(made, pack, tmp_path), tmp_path / "dir"
    lines = plan.read_text().splitlines(keepends=True)
    read: list[Path] = []
    real = card.headers
    monkeypatch.setattr(card, "headers", lambda place: read.append(place) or real(place))
    part = tmp_path / "part.jsonl"
    part.write_text("".join(lines[:2]))  # a chunk
    assert card.measure(part, pack, folder, 600.0).whole and len(read) == 1
    done: list[list[str]] = []

    def measure_chunk(run: card.Run, chunk: list[Any]) -> None:
        done.append([json.dumps(line) + "\n" for line in chunk])
        run.whole = len(done) > 1

    monkeypatch.setattr(card, "measure_chunk", measure_chunk)
    assert not card.measure(plan, pack, folder, 0.0).whole and not done
    # Something was left of the second chunk when it was measured first.
    assert [card.measure(plan, pack, folder, 600.0).whole for _ in range(3)] == [False, True, True]
    assert done == [lines[2:]] * 2 and len(lines) == 3


def test_two_cards_do_not_mix(made: Made, pack: Packed, second: Second, tmp_path: Path) -> None:
    plan, folder = planned(made, pack, tmp_path), tmp_path / "dir"
    card.measure(plan, pack, folder, 600.0)
    (folder / card.PLAIN).write_text("")
    (folder / card.FINISHED).unlink()
    second.name = "Third GPU"
    with pytest.raises(ValueError, match="name Second GPU there, Third GPU here"):
        card.measure(plan, pack, folder, 600.0)


def test_large_problems_are_sustained(
    made: Made, pack: Packed, second: Second, tmp_path: Path
) -> None:
    problem = Problem(8192, 4096, 4096, "nt", "f16")
    names = sorted(
        pack.list_admitting(problem),
        key=lambda n: second.us(
            Choice.of(pack.entries[n].family, pack.entries[n].genome), problem, False
        ),
    )[:2]
    line = card_plan.Plan(pack, {}, {}).line(problem, card_plan.PARTS[2])
    assert line["sustained"] == line["kernels"][: card_plan.SUSTAINED] != []
    run = card.Run(tmp_path, pack, float("inf"))
    torch_us = model.library_us(problem, 7, tuned=False)
    fast = {pack.entries[n].id: (1.1, 1.1) for n in names}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(card, "read_gains", lambda *_: {(problem, i): g for i, g in fast.items()})
        card.measure_chunk(run, [{**line, "kernels": names, "sustained": names}])
    assert run.whole
    (found,) = campaign.lines([tmp_path / refine.FOLDER / refine.SUSTAINED])[1]
    assert found["sustained"].keys() == {"torch", *names}
    assert found["sustained"]["torch"]["us"] == pytest.approx(torch_us)
