"""The confirmations of an export once more: which kernels, what is on file, what a table sees."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hgemm_packs.generator.campaigns import remeasure
from hgemm_packs.generator.compile.pack_writer import write_source
from hgemm_packs.generator.core.space import admits, catalogue
from hgemm_packs.generator.core.spec import Choice, Job, Kernel, Reply, Result, Status, Verdict
from hgemm_packs.generator.devices import gpu
from hgemm_packs.generator.devices.sim import Faults, Noise, SimDevice, fake_kernel
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.findings import Field, Findings
from hgemm_packs.generator.tables import judge, table
from hgemm_packs.generator.tables.prune import prune
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.problem import Problem
from tests import fake_driver
from tests.generator import stand_in
from tests.generator.command import PROBLEMS, Builder, machine, simulated
from tests.generator.found import DATE, NOISE, PROOF, job

HEADER = {"strategy": "remeasure", "commit": "c" * 40}
#: Kernels that any of PROBLEMS may run, none of which fails on the command's GPU, and their ids.
FIT = [c for c in catalogue("nt", "f16") if all(admits(c, p) for p in PROBLEMS)]
CHOICES = [choice for choice in FIT if not machine().fault(choice)][:6]
A, B, C, D, E, F = (fake_kernel(choice).id for choice in CHOICES)
FIRST, SECOND, THIRD = PROBLEMS
TORCH = (12.0, 14.0)


def older(*fields: Field, **changes: object) -> Findings:
    """An export's findings, of kernels that the simulated compiler makes, on the simulated GPU."""
    kernels = {fake_kernel(c).id: dict(fake_kernel(c).fields) for c in CHOICES}
    values = {
        "device": replace(SimDevice(1).facts, uuid_hash="", peak_tflops=800.0, peak_gbps=4000.0),
        "fields": fields,
        "trials": (Field(FIRST, "noise", {}, {}, DATE, NOISE),),
        "proofs": dict.fromkeys(kernels, PROOF),
        "kernels": kernels,
        "runs": ({"id": "0", "started": 1.0, "strategy": "portfolio"},),
    }
    return export.union([Findings(**values | changes)])  # type: ignore[arg-type]


def over(hot: float, cold: float) -> tuple[float, float]:
    """Times of a kernel by its speed-ups."""
    return TORCH[0] / hot, TORCH[1] / cold


@dataclass
class Watched:
    """A simulated GPU that keeps what it was asked; `wrong` kernels compute nonsense."""

    wrong: Sequence[str] = ()
    asked: list[Job] = field(default_factory=list)
    inner: SimDevice = field(default_factory=lambda: SimDevice(1, Faults(), Noise(0.001, 0.0)))

    @property
    def facts(self) -> object:
        return self.inner.facts

    def run(self, job: Job) -> Reply:
        self.asked.append(job)
        reply = self.inner.run(job)
        bad = {id_: Result(Status.NUMERIC, detail="nonsense") for id_ in self.wrong}
        return replace(reply, results={k: bad.get(k, r) for k, r in reply.results.items()})


def confirmed(
    found: Findings, out: Path, device: Watched, *, every: int = 2, deadline_s: float = 60.0
) -> Findings:
    """Everything of `found`, measured on a device and read from the lines."""
    listed = remeasure.rank(found)
    made = remeasure.build(found, remeasure.missing(found, listed, out), Builder())
    tasks = remeasure.tasks(listed, made, every)
    remeasure.measure(found, tasks, Inline(device), out, HEADER, deadline_s=deadline_s)
    return remeasure.read(found, out)


def some() -> Findings:
    return older(
        job("finals", {A: over(1.2, 1.2), B: over(1.1, 1.1)}, FIRST),
        job("confirm", {A: over(1.2, 1.2), B: over(1.1, 1.1)}, FIRST),
        job("finals", {A: over(1.3, 1.2)}, SECOND),
        job("finals", {C: over(1.3, 1.2)}, THIRD),
    )


def ids(found: Findings, least: float = remeasure.LEAST) -> dict[Problem, list[str]]:
    return {problem: list(each) for problem, each in remeasure.rank(found, least).items()}


# --- which kernels --------------------------------------------------------------------------------


def test_the_best_three_that_may_win_are_confirmed() -> None:
    """Best by the last finals. Out: what was slower than `least` one way, is unproven, refused, or
    failed there; what is slower in one job and was not in another stays."""
    found = older(
        job("finals", {A: over(1.02, 1.02), B: over(1.5, 0.97), C: over(1.3, 1.3)}, FIRST),
        job("finals", {D: over(1.1, 1.1), E: over(0.99, 0.99), F: over(1.2, 1.2)}, FIRST),
        job("confirm", {A: over(1.1, 0.9), D: over(1.3, 1.3)}, FIRST),
        job("finals", {A: over(1.3, 1.3), F: over(1.2, 1.2)}, SECOND),
        job("confirm", {F: over(1.2, 1.2)}, SECOND, statuses={F: Status.NUMERIC}),
        job("finals", {B: over(0.98, 1.2)}, THIRD),
    )
    assert ids(found) == {FIRST: [C, F, D, A, E], SECOND: [A]}
    made = remeasure.build(found, remeasure.rank(found), Builder())
    assert made.wanted == {FIRST: [C, F, D], SECOND: [A]}
    assert made.kernels.keys() == {A, C, D, F} and not made.gone
    unproven = replace(found, proofs=dict.fromkeys((A, B, D, E, F), PROOF))
    assert ids(unproven)[FIRST] == [F, D, A, E]
    refused = replace(found, refused={F: Status.SANITIZER})
    assert ids(refused)[FIRST] == [C, D, A, E]
    assert ids(found, 1.0)[FIRST] == [C, F, D, A]
    assert ids(found, 0.96)[THIRD] == [B]
    for fields in (found.fields, found.fields[::-1]):
        assert remeasure.speedups(replace(found, fields=fields))[FIRST, A] == pytest.approx(1.02)


def test_few_kernels_do_for_most_of_the_gain() -> None:
    """A problem without any of the few has its best."""
    found = older(
        job("finals", {A: over(1.5, 1.5), B: over(1.501, 1.5)}, FIRST),
        job("finals", {A: over(1.5, 1.5), C: over(1.4, 1.4)}, SECOND),
        job("finals", {D: over(1.002, 1.002), E: over(1.001, 1.001)}, THIRD),
    )
    listed = remeasure.rank(found)
    kept = set(prune(listed, 0.99).kernels)
    assert kept == {A}
    made = remeasure.build(found, listed, Builder(), kept)
    assert made.wanted == {FIRST: [A], SECOND: [A], THIRD: [D]}


def test_what_builds_otherwise_leaves_its_place_to_the_next() -> None:
    class Moved(Builder):
        """Makes another kernel of the first choice, none of the second."""

        def build(self, wanted: Sequence[Choice]) -> dict[Choice, Kernel | Verdict]:
            built = super().build(wanted)
            for one in built:
                if one == CHOICES[0]:
                    built[one] = fake_kernel(CHOICES[5])
                elif one == CHOICES[1]:
                    built[one] = Verdict("build", Status.BUILD, "spills")
            return built

    ours = {A: over(1.5, 1.5), B: over(1.4, 1.4), C: over(1.3, 1.3), D: over(1.2, 1.2)}
    found = older(
        job("finals", {**ours, E: over(1.1, 1.1)}, FIRST), job("finals", {A: ours[A]}, SECOND)
    )
    made = remeasure.build(found, remeasure.rank(found), Moved())
    assert made.wanted == {FIRST: [C, D, E]}
    assert made.gone == sorted(found.kernels[id_]["name"] for id_ in (A, B))
    nowhere = {**found.kernels, C: {**found.kernels[C], "family": "sm90_gone"}}
    assert C not in ids(replace(found, kernels=nowhere))[FIRST]


def test_trials_are_spread_over_the_problems() -> None:
    problems = [Problem(64 * i, 512, 512, "nt", "f16") for i in range(1, 1001)]
    listed = {p: {A: 1.1} for p in problems}
    wanted = {p: [A] for p in problems}
    made = remeasure.Kernels({A: fake_kernel(CHOICES[0])}, wanted, ())

    def trials(count: int, every: int | None, missing: int = remeasure.TRIALS) -> list[int]:
        tasks = remeasure.tasks(dict(list(listed.items())[:count]), made, every, missing)
        assert sum(task.kind == "confirm" for task in tasks) == count
        return sorted(t.problem.m // 64 for t in tasks if t.kind == "noise" and t.problem)

    assert trials(1000, None) == list(range(1, 1001, 2))
    assert trials(30, None) == list(range(1, 31))
    assert trials(1000, 300) == [1, 301, 601, 901]
    # What the export has of led ones is not asked again, but for one in twenty problems.
    assert trials(1000, None, 100) == list(range(1, 1001, 10))
    assert trials(1000, None, 0) == trials(1000, None, 10) == list(range(1, 1001, 20))
    few = [t.problem.m // 64 for t in remeasure.tasks(listed, made, 10**6) if t.problem][:32]
    assert min(few) < 40 and max(few) > 960  # a run that was stopped is a fair sample


# --- what is measured and kept --------------------------------------------------------------------


def test_lines_become_an_export_that_comes_back(tmp_path: Path) -> None:
    found, device = some(), Watched()
    fresh = confirmed(found, tmp_path / "lines.jsonl", device)
    assert sorted((j.kind, j.problem.m, len(j.kernels)) for j in device.asked if j.problem) == [
        ("confirm", 128, 2),
        ("confirm", 256, 1),
        ("confirm", 256, 1),
        ("noise", 128, 0),
        ("noise", 256, 0),
    ]
    assert len({j.seed for j in device.asked}) == 5
    export.write(fresh, tmp_path / "export")
    assert export.load(tmp_path / "export") == fresh
    assert {f.problem: f.statuses.keys() for f in fresh.fields} == {
        FIRST: {A, B},
        SECOND: {A},
        THIRD: {C},
    }
    (first,) = (f for f in fresh.fields if f.problem == FIRST)
    assert first.stage == "confirm" and len(first.date) == 10
    assert first.samples["cold"].keys() == {"torch", "cublaslt", A, B}
    (asked,) = (j for j in device.asked if j.problem == FIRST and j.kind == "confirm")
    assert first.evidence["seed"] == asked.seed and first.evidence["gpu"] == f"{1:016x}"
    assert first.evidence["finished"] > 1.7e9 and "sm_mhz" in first.evidence["conditions"]["hot"]
    assert len(fresh.noise) == 2 and fresh.proofs.keys() == fresh.kernels.keys() == {A, B, C}
    (run,) = fresh.runs
    assert (run["commit"], run["strategy"]) == ("c" * 40, "remeasure") and run["started"] > 1.7e9
    assert fresh.gpu_seconds.keys() == {"confirm", "noise"} and fresh.device == found.device


def test_an_older_export_and_the_new_one_are_both_kept(tmp_path: Path) -> None:
    """Also of a second time, which is other jobs of the same problems."""
    export.write(some(), tmp_path / "old")
    found = export.load(tmp_path / "old")
    parts = [found, *(confirmed(found, tmp_path / f"{i}.jsonl", Watched()) for i in range(2))]
    whole = export.union(parts)
    assert len(whole.fields) == 4 + 3 + 3 and len(whole.trials) == 1 + 2 + 2
    assert len(whole.runs) == 3
    assert {canonical(f) for f in whole.fields} == {canonical(f) for p in parts for f in p.fields}
    export.write(whole, tmp_path / "united")
    assert export.load(tmp_path / "united") == whole
    ((best, *_),) = (
        each for p, each in judge.contenders(whole, {False: 0.0}).items() if p == SECOND
    )
    assert best.kernel == A and best.row is not None  # it had no confirmation before
    assert judge.contenders(found, {False: 0.0})[SECOND][0].row is None


def canonical(each: Field) -> str:
    return json.dumps([str(each.problem), each.stage, each.samples, dict(each.evidence)])


def test_what_is_on_file_is_not_measured_again(tmp_path: Path) -> None:
    found, out = some(), tmp_path / "lines.jsonl"
    nothing = confirmed(found, out, Watched(), deadline_s=0.0)
    assert not nothing.fields and not nothing.trials
    first, second, third = Watched(), Watched(), Watched()
    confirmed(found, out, first)
    with out.open("rb+") as file:
        file.truncate(out.stat().st_size - 9)  # killed while it wrote the last line
    torn = first.asked[-1]
    again = confirmed(found, out, second)
    assert [(j.kind, j.problem) for j in second.asked] == [(torn.kind, torn.problem)]
    assert len(again.fields) == 3 and len(again.trials) == 2 and len(again.runs) == 3
    assert confirmed(found, out, third) == again and not third.asked


def test_a_kernel_that_fails_leaves_the_table(tmp_path: Path) -> None:
    """Wrong once, it is refused everywhere, as in a run; beside it others are measured. Where none
    is right the line stands all the same."""
    found, out = some(), tmp_path / "lines.jsonl"
    fresh = confirmed(found, out, Watched(wrong=[A]))
    statuses = {f.problem: f.statuses for f in fresh.fields}
    assert statuses[FIRST] == {A: Status.NUMERIC, B: Status.OK}
    assert statuses[SECOND] == {A: Status.NUMERIC}
    assert fresh.refused == {A: Status.NUMERIC}
    whole = export.union([found, fresh])
    listed = judge.contenders(whole, {False: 0.0})
    assert [c.kernel for c in listed[FIRST]] == [B] and SECOND not in listed
    apart = judge.contenders(
        replace(whole, refused={}), {False: 0.0}
    )  # the field alone says so too
    assert [c.kernel for c in apart[FIRST]] == [B]
    again = Watched()
    confirmed(found, out, again)
    assert not again.asked


def test_stopped_kernels_are_refused_from_the_second_problem_on() -> None:
    one = job("confirm", {A: TORCH}, FIRST, statuses={A: Status.TIMEOUT})
    assert remeasure._refused([one, one]) == {}
    two = replace(one, problem=SECOND, statuses={A: Status.LAUNCH, B: Status.OK})
    assert remeasure._refused([one, two]) == {A: Status.LAUNCH}


def test_want_of_memory_blames_no_kernel() -> None:
    asked = Job("confirm", FIRST, (fake_kernel(CHOICES[0]),), 7)
    (task,) = (
        t
        for t in remeasure.tasks(
            {FIRST: {A: 1.1}}, remeasure.Kernels({A: asked.kernels[0]}, {FIRST: [A]}, ()), None
        )
        if t.kind == "confirm"
    )
    words = "OutOfMemoryError: CUDA out of memory"
    line = remeasure.line(task, asked, Reply({}, evidence={"failed": words}))
    assert line["error"] == words and line["blamed"] is False and "statuses" not in line
    line = remeasure.line(task, asked, Reply({A: Result(Status.LAUNCH, detail="no")}))
    assert line["error"] == "no" and line["blamed"] is True
    assert line["statuses"] == {A: "LAUNCH"} and line["details"] == {A: "no"}


def test_what_a_gpu_answers_becomes_a_field(
    machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The device's own code on the stand-in driver, with a kernel that computes nothing right."""
    tuned = SimpleNamespace(hot=stand_in.tuned_hot, cold=stand_in.tuned_cold, algorithms=4)
    monkeypatch.setattr(gpu.baselines, "best_cublaslt", lambda *_, **__: tuned)
    image = fake_driver.image("kernel", "ptr_v1", "nn")
    swapped = stand_in.kernel("ptr_v1", "nt", image)
    machine.clock.us[swapped.id] = 8.0
    square = Problem(64, 64, 64, "nt", "f16")
    kernels = {k.id: k for k in (stand_in.GOOD[0], stand_in.GOOD[1], swapped)}
    found = replace(
        older(),
        device=machine.device.facts,
        proofs=dict.fromkeys(kernels, PROOF),
        kernels={id_: dict(k.fields) for id_, k in kernels.items()},
    )
    listed = {square: dict.fromkeys(kernels, 1.1)}
    tasks = remeasure.tasks(listed, remeasure.Kernels(kernels, {square: list(kernels)}, ()))
    out = tmp_path / "lines.jsonl"
    tally = remeasure.measure(found, tasks, Inline(machine.device), out, HEADER)
    assert (tally.written, tally.failed) == (2, 0)
    fresh = remeasure.read(found, out)
    ((confirm,), (trial,)) = fresh.fields, fresh.trials
    assert sorted(confirm.statuses.values()) == [Status.NUMERIC, Status.OK, Status.OK]
    assert fresh.refused == {swapped.id: Status.NUMERIC}
    for protocol in ("hot", "cold"):
        right = {"torch", "cublaslt", *kernels} - {swapped.id}
        assert confirm.samples[protocol].keys() == right
        assert {len(us) for us in confirm.samples[protocol].values()} == {21}
        assert trial.samples[protocol].keys() == {"torch", "again"}
        assert len(trial.evidence[protocol]) == 3 and "calls" in trial.evidence["conditions"]["hot"]
    assert confirm.evidence["algorithms"] == 4
    assert confirm.evidence["gpu"] == machine.device.facts.uuid_hash
    export.write(fresh, tmp_path / "export")
    assert export.load(tmp_path / "export") == fresh


def test_another_device_is_refused(tmp_path: Path) -> None:
    found, out = some(), tmp_path / "lines.jsonl"
    device = Watched()
    other = replace(found, device=replace(found.device, name="Some GPU"))
    with pytest.raises(ValueError, match="name Some GPU there, Simulated GPU here"):
        confirmed(other, out, device)
    versions = {**found.device.versions, "driver": "1.0"}
    newer = replace(found, device=replace(found.device, versions=versions))
    with pytest.raises(ValueError, match=r"versions \{.*'driver': '1.0'"):
        confirmed(newer, out, device)
    assert not device.asked and not out.exists()
    confirmed(found, out, device)
    with pytest.raises(ValueError, match="other conditions"):
        remeasure.missing(other, {}, out)
    with pytest.raises(ValueError, match="kernels that the export has not"):
        remeasure.read(replace(found, proofs={}), out)


# --- the command ----------------------------------------------------------------------------------


def test_the_command_writes_an_export_and_goes_on(tmp_path: Path) -> None:
    export.write(some(), tmp_path / "old")
    words = ("remeasure", tmp_path / "old", "--out", tmp_path / "new", "--noise", 2)
    stopped = simulated(*words, "--deadline", 0)
    assert stopped.code == 1 and "0 lines written, 0 failures, 5 left" in stopped.out
    assert not (tmp_path / "new" / "export").exists()
    answer = simulated(*words)
    assert (answer.code, answer.err) == (0, "")
    assert "3 kernels (0.0 MB) for 3 problems to do" in answer.out
    assert "3 confirmations, 2 trials, 0 kernels refused" in answer.out
    assert "5 lines written, 0 failures, 0 left" in answer.out
    again = simulated(*words)
    assert again.code == 0 and "0 lines written" in again.out
    united = simulated(
        "archive", tmp_path / "old", tmp_path / "new" / "export", "--out", tmp_path / "u"
    )
    assert united.code == 0 and "3 problems, 7 jobs" in united.out
    (_, run, _) = export.load(tmp_path / "u").runs
    assert len(run["commit"].rstrip("+")) == 40 and run["problems"] == 3


def test_what_was_led_is_not_confirmed_again(tmp_path: Path) -> None:
    def led(each: Field) -> Field:
        conditions = {"hot": {"led": True}, "cold": {"led": True}}
        return replace(each, evidence={**each.evidence, "conditions": conditions})

    found = some()
    mended = [led(f) if f.problem == FIRST and f.stage == "confirm" else f for f in found.fields]
    export.write(replace(found, fields=tuple(mended)), tmp_path / "old")
    words = ("remeasure", tmp_path / "old", "--out", tmp_path / "new", "--noise", 2)
    answer = simulated(*words)
    assert answer.code == 0 and "for 2 problems to do" in answer.out
    fresh = export.load(tmp_path / "new" / "export")
    assert {f.problem for f in fresh.fields} == {SECOND, THIRD}


def test_the_command_says_what_it_cannot_do(tmp_path: Path) -> None:
    found = some()
    other = replace(found, device=replace(found.device, name="Some GPU"))
    export.write(other, tmp_path / "old")
    words = ("remeasure", tmp_path / "old", "--out", tmp_path / "new")
    refused = simulated(*words)
    assert refused.code == 2 and "name Some GPU there" in refused.err
    empty = simulated(*words, "--layouts", "nn")
    assert empty.code == 2 and "no kernel to confirm" in empty.err
    won = table.source(export.load(tmp_path / "old"))
    assert [row.kernel is not None for row in won.table] == [True, False, False]
    write_source(tmp_path / "table.json", won)
    left = simulated(*words, "--left-by", tmp_path / "table.json", "--only-build")
    assert left.code == 0 and "2 kernels" in left.out and "for 2 problems to do" in left.out
    built = simulated(*words, "--only-build")
    assert built.code == 0 and "3 kernels" in built.out
    assert not (tmp_path / "new" / "lines.jsonl").exists()
