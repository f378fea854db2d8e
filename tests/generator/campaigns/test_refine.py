"""What follows a search: dependent launches and sustained runs choose, and the pack is theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.campaigns import campaign, refine
from hgemm_packs.generator.cli import refine as verb
from hgemm_packs.generator.compile.pack_writer import SourceManifest, read_source
from hgemm_packs.generator.core.space import Space, ahead
from hgemm_packs.generator.core.spec import Choice, CompiledKernel, DeviceFacts, Job, Reply
from hgemm_packs.generator.devices.sim import Faults, Noise, SimDevice
from hgemm_packs.generator.run.generate import Budget, generate
from hgemm_packs.generator.search.rivals.exhaustive import Exhaustive
from hgemm_packs.generator.store.findings import Findings
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.tables import sustained
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.problem import Problem
from tests.generator.command import Answer, Builder, simulated

SMALL = Problem(128, 512, 2048, "nt", "f16")
LARGE = Problem(8192, 8192, 1024, "nt", "f16")


def few(problem: Problem) -> Space:
    """Choices that beat the simulated library, of SMALL such as have a twin that reads ahead."""
    core = Space(problem).core
    device = machine()
    listed = [c for c in core if problem is LARGE or ahead(c)]
    best = sorted(listed, key=lambda choice: device.true_us(choice, problem))
    return Space(problem, only=best[:6])


class Machine(SimDevice):
    """A simulated GPU under libraries of other versions."""

    versions: Mapping[str, str] = SimDevice(1).facts.versions

    @property
    def facts(self) -> DeviceFacts:
        return replace(super().facts, versions=self.versions)


def machine(versions: Mapping[str, str] = Machine.versions) -> SimDevice:
    made = Machine(1, Faults(), Noise(0.001, 0.0))
    made.versions = versions
    return made


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a finished search."""
    folder = tmp_path_factory.mktemp("searched")
    with Store(folder / "run") as store, Inline(machine()) as evaluator:
        search = (store, [SMALL, LARGE], Exhaustive(), Builder(), evaluator, Budget(100.0))
        summary = generate(*search, spaces=few, seed=1)
    assert summary.confirmed == 2
    return folder / "run"


@pytest.fixture
def run(searched: Path, tmp_path: Path) -> Path:
    """A copy of it, so that each test may write its own."""
    (tmp_path / "run").mkdir()
    for path in searched.rglob("*"):
        there = tmp_path / "run" / path.relative_to(searched)
        there.mkdir() if path.is_dir() else there.write_bytes(path.read_bytes())
    return tmp_path / "run"


def us(torch: float, plain: float, pdl: float) -> dict[str, list[float]]:
    return {arm: [each] * 5 for arm, each in (("torch", torch), ("plain", plain), ("pdl", pdl))}


@dataclass
class Protocols:
    """A GPU on which kernels that read ahead are fastest dependent, and the last named of the
    confirmed ones for long. `pdl` is what dependent launches of those take, torch being 12."""

    pdl: float = 4.0
    name: str = "Simulated GPU"
    lasts: bool = True
    versions: Mapping[str, str] = field(default_factory=lambda: Machine.versions)
    asked: list[Job] = field(default_factory=list)

    @property
    def facts(self) -> DeviceFacts:
        return replace(machine(self.versions).facts, name=self.name)

    def run(self, job: Job) -> Reply:
        self.asked.append(job)
        names = [str(each.fields["name"]) for each in job.kernels]
        if job.kind == "energy" and not self.lasts:
            return Reply({}, evidence={"error": "no counter of energy"})
        if job.kind == "energy":
            times = {"torch": 100.0, **{n: 90.0 - i for i, n in enumerate(names)}}
            runs = {arm: {"us": each} for arm, each in times.items()}
            burst = {arm: [each] for arm, each in times.items()}
            return Reply({}, evidence={"sustained": runs, "burst": burst, "wrong": []})
        (kernel,) = job.kernels
        time = self.pdl if kernel.fields["genome"].get("reads_ahead") else 8.0
        times = {p: us(12.0, 9.0, time) for p in ("hot", "cold")}
        return Reply({}, evidence={**times, "wrong": [], "edges": {"programmatic": 2, "full": 1}})


def refined(run: Path, *devices: Protocols, words: Sequence[object] = ()) -> Answer:
    """The command, with a device for each time that it starts processes."""
    made = iter(devices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verb, "_evaluator", lambda folder, count: Inline(next(made)))
        return simulated("refine", run, *words)


def table(run: Path) -> dict[Problem, tuple[Any, Any]]:
    """By problem, the genomes of the kernels that its row names."""
    source: SourceManifest = read_source(run / "source.json")
    genomes = {kernel.id: kernel.genome for kernel in source.kernels} | {None: None}
    return {
        Problem(*row.key): (genomes[row.kernel], genomes[row.dependent]) for row in source.table
    }


def test_rows_get_what_is_fastest_dependent_and_for_long(run: Path) -> None:
    assert simulated("pack", run, "--keep", 1.0).code == 0
    before = table(run)
    assert before[SMALL][1] is before[LARGE][1] is None
    first, second = Protocols(), Protocols()
    answer = refined(run, first, second, words=("--keep", 1.0))
    assert (answer.code, answer.err) == (0, "")
    after = table(run)
    assert after[SMALL][1]["reads_ahead"] and after[SMALL][0] == before[SMALL][0]
    (energy,) = (job for job in first.asked if job.kind == "energy")
    assert energy.problem == LARGE
    lasting = energy.kernels[-1].fields["genome"]
    assert after[LARGE][0] == lasting != before[LARGE][0]
    pairs = [(job.problem, job.kernels[0].id) for job in first.asked if job.kind == "pdl"]
    assert len(pairs) == len(set(pairs)) > 4
    # What is published was measured by other processes, and of the chosen kernels alone.
    again = [(job.problem, job.kernels[0].fields["genome"]) for job in second.asked]
    assert dict(again) == {p: row[1] for p, row in after.items() if row[1]} and len(again) < 3
    count = len(again)
    assert f"dependent launch: {count} problems, " in answer.out
    assert "x torch, 1.333x launched plainly, by the second measurement" in answer.out
    pack = json.loads((run / "pack" / "manifest.json").read_text(encoding="utf-8"))
    assert sum("dependent" in row for row in pack["table"]) == len(again)
    text = (run / "source.json").read_text(encoding="utf-8")
    assert simulated("pack", run, "--keep", 1.0).code == 0  # what was measured is not forgotten
    assert (run / "source.json").read_text(encoding="utf-8") == text


def test_what_is_slow_when_measured_again_leaves_its_row(run: Path) -> None:
    answer = refined(run, Protocols(), Protocols(pdl=12.5), words=("--keep", 1.0))
    assert answer.code == 0
    assert table(run)[SMALL][1] is None and table(run)[SMALL][0] is not None


def test_it_goes_on_where_it_stopped(run: Path) -> None:
    stopped = refined(run, Protocols(), words=("--deadline", 0))
    assert stopped.code == 1 and "dependent.jsonl: 0 lines, 0 failed" in stopped.out
    assert table(run)[SMALL][1] is None  # there is a pack all the same
    first, second = Protocols(), Protocols()
    assert refined(run, first, second).code == 0 and first.asked and second.asked
    lines = (run / refine.FOLDER / refine.DEPENDENT).read_bytes()
    third, fourth = Protocols(), Protocols()
    assert refined(run, third, fourth).code == 0 and not third.asked and not fourth.asked
    assert (run / refine.FOLDER / refine.DEPENDENT).read_bytes() == lines


def test_a_failure_is_said_and_keeps_nothing_else_from_being_published(run: Path) -> None:
    first, second = Protocols(lasts=False), Protocols()
    answer = refined(run, first, second)
    assert answer.code == 1 and "sustained.jsonl: 1 lines, 1 failed, 0 left" in answer.out
    assert "no counter of energy" in answer.out
    assert second.asked and table(run)[SMALL][1]["reads_ahead"]


def test_runs_are_merged_with_what_was_measured_since(run: Path, tmp_path: Path) -> None:
    assert refined(run, Protocols(), Protocols(), words=("--keep", 1.0)).code == 0
    for _ in range(2):
        assert simulated("merge", tmp_path / "both", run).code == 0
        for name in (refine.DEPENDENT, refine.SUSTAINED, refine.PUBLISHED):
            lines = (tmp_path / "both" / refine.FOLDER / name).read_bytes()
            assert lines == (run / refine.FOLDER / name).read_bytes() != b""
    first, second = Protocols(), Protocols()
    assert refined(tmp_path / "both", first, second, words=("--keep", 1.0)).code == 0
    assert not first.asked and not second.asked
    assert table(tmp_path / "both") == table(run)


def test_another_gpu_is_refused(run: Path) -> None:
    device = Protocols(name="Other GPU")
    answer = refined(run, device)
    assert answer.code == 2 and "name Simulated GPU there, Other GPU here" in answer.err
    assert not device.asked


def test_without_a_win_there_is_nothing_to_refine(tmp_path: Path) -> None:
    with Store(tmp_path / "run"):
        pass
    answer = refined(tmp_path / "run", Protocols())
    assert answer.code == 2 and "no noise records" in answer.err


def test_a_kernel_that_was_built_anew_since_is_not_taken_for_the_old_one(run: Path) -> None:
    """A compiler that makes other code of the same choice: its name no longer says which."""
    with Store(run, readonly=True) as store:
        mine = refine.Refinement(store)
        source = mine.source(1.0)
        (row,) = (row for row in source.table if Problem(*row.key) == SMALL)
        (won,) = (k for k in source.kernels if k.id == row.kernel)
    choice = Choice.of(won.family, won.genome)
    old = Builder().build([choice])[choice]
    assert isinstance(old, CompiledKernel)
    with Store(run) as store:
        newer = CompiledKernel({**old.fields, "id": "f" * 64}, b"other code")
        store.add_build(choice, store.add_toolchain({"sources": "newer"}), newer)
    with Store(run, readonly=True) as store:
        kernels = {kernel.id for kernel in refine.Refinement(store).source(1.0).kernels}
    assert won.id not in kernels


def test_lines_of_another_driver_choose_nothing(run: Path) -> None:
    """A run that went on after an update: its figures of before are in no table any more, and the
    lines of before chose for it all the same."""
    fast, again = Protocols(), Protocols()
    assert refined(run, fast, again, words=("--keep", 1.0)).code == 0
    newer = {"torch": "newer", "cublas": "newer", "driver": "newer"}
    with Store(run) as store, Inline(machine(newer)) as evaluator:
        search = (store, [SMALL, LARGE], Exhaustive(), Builder(), evaluator, Budget(1000.0))
        assert generate(*search, spaces=few).confirmed == 2
    assert simulated("pack", run, "--keep", 1.0).code == 0
    assert table(run)[SMALL][1] is None
    first, second = Protocols(versions=newer), Protocols(versions=newer)
    assert refined(run, first, second, words=("--keep", 1.0)).code == 0
    assert table(run)[SMALL][1]["reads_ahead"]
    assert len(first.asked) == len(fast.asked) and len(second.asked) == len(again.asked)


def test_lines_of_another_compilers_code_choose_nothing(run: Path) -> None:
    """It goes by the same name."""
    assert refined(run, Protocols(), Protocols(), words=("--keep", 1.0)).code == 0
    path = run / refine.FOLDER / refine.DEPENDENT
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines[1:]:
        line["cubins"] = ["f" * 64]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert simulated("pack", run, "--keep", 1.0).code == 0
    assert table(run)[SMALL][1] is None
    first, second = Protocols(), Protocols()
    assert refined(run, first, second, words=("--keep", 1.0)).code == 0
    assert len(first.asked) == len(lines) - 1 and not second.asked
    assert table(run)[SMALL][1]["reads_ahead"]


def test_what_a_large_problem_won_since_is_sustained_beside_the_others(run: Path) -> None:
    """A kernel without a sustained run is named nowhere, however fast: its problem had a line."""
    confirmed = sustained.find_confirmed

    def fewer(found: Findings) -> dict[Problem, list[str]]:
        return {problem: ids[:1] for problem, ids in confirmed(found).items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sustained, "find_confirmed", fewer)
        assert refined(run, Protocols(), Protocols(), words=("--keep", 1.0)).code == 0
    early = table(run)[LARGE][0]
    first = Protocols()
    assert refined(run, first, Protocols(), words=("--keep", 1.0)).code == 0
    (energy,) = first.asked
    assert early == energy.kernels[0].fields["genome"]
    assert table(run)[LARGE][0] == energy.kernels[-1].fields["genome"] != early


def test_a_gpu_that_sustains_nothing_publishes_dependent_launches(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight large problems in a row that failed ended the command, each time anew."""
    monkeypatch.setattr(campaign, "FIRST", 1)
    first, second = Protocols(lasts=False), Protocols()
    answer = refined(run, first, second)
    assert answer.code == 1 and "sustained.jsonl: 1 lines, 1 failed, 0 left" in answer.out
    assert "no counter of energy" in answer.out
    assert second.asked and table(run)[SMALL][1]["reads_ahead"]


def test_a_run_that_goes_on_elsewhere_is_not_refined(run: Path) -> None:
    """Two that append to the same lines would tear them."""
    device = Protocols()
    with Store(run):
        answer = refined(run, device)
    assert answer.code == 2 and f"another process writes to {run}" in answer.err
    assert not device.asked and not (run / refine.FOLDER).exists()


def test_a_wrong_name_is_refused_and_nothing_made_of_it(tmp_path: Path) -> None:
    answer = refined(tmp_path / "run", Protocols())
    assert answer.code == 2 and "no store" in answer.err
    assert not (tmp_path / "run").exists()
