"""The confirmations of an export once more: what is on file, what a table sees, the command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from hgemm_packs.generator.campaigns import remeasure
from hgemm_packs.generator.compile.pack_writer import write_source
from hgemm_packs.generator.core.spec import Job, Reply, Result, Status
from hgemm_packs.generator.devices import gpu
from hgemm_packs.generator.devices.sim import Faults, Noise, SimDevice, fake_kernel
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.findings import Field, Findings
from hgemm_packs.generator.tables import judge, table
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.problem import Problem
from tests import fake_driver
from tests.generator import stand_in
from tests.generator.campaigns.confirmations import (
    CHOICES,
    FIRST,
    SECOND,
    THIRD,
    TORCH,
    A,
    B,
    C,
    older,
    over,
)
from tests.generator.command import Builder, simulated
from tests.generator.found import PROOF, job

HEADER = {"strategy": "remeasure", "commit": "c" * 40}


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
    made = remeasure.build(found, remeasure.find_missing(found, listed, out), Builder())
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
    assert remeasure._find_refused([one, one]) == {}
    two = replace(one, problem=SECOND, statuses={A: Status.LAUNCH, B: Status.OK})
    assert remeasure._find_refused([one, two]) == {A: Status.LAUNCH}


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
        remeasure.find_missing(other, {}, out)
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
