"""gates.json: each figure from the raw results that it is of, and no key without them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gates import figures, table_gates
from benchmarks.publish import generator
from hgemm_packs.generator.core.spec import CompiledKernel, Status, Verdict
from hgemm_packs.generator.run import evaluate
from tests.generator.redteam.cheats import made_up
from tests.generator.redteam.killed_mutants import line


def write_lines(path: Path, found: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in found))


def test_what_was_not_measured_has_no_key(tmp_path: Path) -> None:
    assert figures.figures(tmp_path, frozenset()) == {}
    team = {"total": 180, "rejected": 179, "honest_total": 60, "honest_passed": 59, "cases": []}
    (tmp_path / figures.CORPUS).write_text(json.dumps(team))
    assert figures.figures(tmp_path, frozenset()) == {
        "corpus.total": 180,
        "corpus.rejected": 179,
        "honest.total": 60,
        "honest.passed": 59,
    }


def test_mutants_of_the_last_run_count_by_their_last_lines(tmp_path: Path) -> None:
    """A GPU's line comes behind the CPU's; mutants of an earlier run met other gates."""
    folder = tmp_path / figures.MUTANTS
    write_lines(folder / "01.jsonl", [line(0, "slipped"), line(1, "caught", "dataflow")])
    last = [{"header": {"mutants": 1}}, line(0), line(1, "caught", "binary"), line(2)]
    last += [line(3, "equivalent"), line(4, "caught", "dataflow")]
    write_lines(folder / "02.jsonl", [*last, line(0, "caught", "numeric"), line(2, "slipped")])
    assert figures.figures(tmp_path, frozenset()) == {
        "mutants.total": 4,
        "mutants.caught_share": 0.75,
        "mutants.undecided": 0,
        "mutants.by_gate": {"numeric": 0.25, "binary": 0.25, "dataflow": 0.25},
        "mutants.by_kind": {
            "order": {"planted": 1, "caught_share": 1.0},
            "values": {"planted": 3, "caught_share": 0.6667},
        },
        "mutants.through_by_operator": {"operator 2": 1},
        "mutants.through": ["slipped: operator 2 in sm90_direct, load, mutant 2"],
    }


def test_kernels_of_the_table_fail_by_any_part_and_cost_the_mean(tmp_path: Path) -> None:
    def said(part: str, id_: str, passed: bool, seconds: float, processes: int = 1) -> Any:
        about = {"part": part, "id": id_, "passed": passed, "processes": processes}
        return about | (
            {"seconds": 9.0, "cpu_s": seconds} if part == "cpu" else {"seconds": seconds}
        )

    lines = [said("cpu", "a", True, 0.5), said("cpu", "b", False, 1.0), said("cpu", "c", True, 0.0)]
    del lines[2]["cpu_s"]
    write_lines(tmp_path / figures.TABLE / "01.jsonl", lines)
    found = figures.figures(tmp_path, frozenset("abcd"))
    counts = {"table.kernels": 4, "table.failed": 1, "table.put_out": 0, "table.met": {"cpu": 3}}
    assert found == counts | {"cost.cpu_s": 0.75}
    left = figures.figures(tmp_path, frozenset("ac"))
    gone = {"table.kernels": 2, "table.failed": 0, "table.put_out": 1, "table.met": {"cpu": 2}}
    assert left == gone | {"cost.cpu_s": 0.75}, "what a gate refused left the table"
    more = [
        said("gpu", "a", False, 0.25),
        said("gpu", "b", False, 0.75),
        said("cpu", "b", True, 0.25),
    ]
    crowd = [said("gpu", "a", True, 4.0, 12), said("state", "c", False, 5.0, 12)]
    write_lines(tmp_path / figures.TABLE / "02.jsonl", more + crowd)
    met = {"cpu": 3, "gpu": 2, "state": 1}
    known = counts | {"table.failed": 2, "table.met": met, "cost.cpu_s": 0.25}
    assert figures.figures(tmp_path, frozenset("abcd")) == known, (
        "a GPU that many share tells no seconds"
    )
    write_lines(tmp_path / figures.TABLE / "03.jsonl", [said("state", "a", True, 0.125)])
    assert figures.figures(tmp_path, frozenset("abcd")) == known | {
        "table.met": met | {"state": 2},
        "cost.gpu_s": 0.625,
    }


class FakePack:
    """A pack of four kernels."""

    def __init__(self) -> None:
        kernels = [CompiledKernel({"id": f"id {n}", "name": f"k{n}"}, b"") for n in range(4)]
        self.entries = {str(kernel.fields["name"]): kernel for kernel in kernels}

    def built(self, name: str) -> CompiledKernel:
        return self.entries[name]


class FakeWorker:
    started = 0

    def __init__(self) -> None:
        type(self).started += 1
        self.alive = True

    def call(self, *arguments: Any, timeout_s: float) -> None:
        assert self.alive, "a process that a kernel has lost is used again"

    def close(self) -> None:
        self.alive = False


@pytest.mark.parametrize(("part", "name"), [("gpu", "numeric_gate"), ("state", "state_gate")])
def test_a_kernel_that_loses_its_process_is_refused_and_the_next_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, name: str
) -> None:
    asked: list[str] = []

    def gate(worker: FakeWorker, kernel: CompiledKernel, device: int, limit_s: float) -> Verdict:
        asked.append(kernel.id)
        if kernel.id != "id 1":
            return Verdict("numeric", Status.OK)
        worker.close()
        return Verdict("isolation", Status.LAUNCH, "lost")

    monkeypatch.setattr(table_gates, "Worker", FakeWorker)
    monkeypatch.setattr(evaluate, name, gate)
    monkeypatch.setattr(FakeWorker, "started", 0)
    out = tmp_path / "out.jsonl"
    write_lines(out, [{"part": part, "id": "id 0", "passed": True, "seconds": 1.0}])
    pack: Any = FakePack()
    assert table_gates.run(part, pack, out, processes=1) == 1
    assert sorted(asked) == ["id 1", "id 2", "id 3"], "what the file has is not asked again"
    assert FakeWorker.started == 2
    found = {each["id"]: each for each in map(json.loads, out.read_text().splitlines())}
    assert [found[f"id {n}"]["passed"] for n in range(4)] == [True, False, True, True]
    assert (found["id 1"]["gate"], found["id 1"]["detail"]) == ("isolation", "lost")


def test_large_problems_are_put_to_one_kernel_of_each_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [
        made_up(genome={"tile_k": 16, "stages": stages, "raster": raster})._replace(
            id=f"id {name}", name=name
        )
        for name, stages, raster in (("k0", 3, "m"), ("k1", 4, "m"), ("k2", 3, "n"))
    ]
    assert [*table_gates.one_of_each_class({each.name: each for each in made})] == ["k0", "k2"]
    pack: Any = FakePack()
    monkeypatch.setattr(table_gates, "one_of_each_class", lambda _: {"k2": pack.entries["k2"]})
    monkeypatch.setattr(table_gates, "Worker", FakeWorker)
    monkeypatch.setattr(evaluate, "large_gate", lambda *_: Verdict("numeric", Status.OK))
    assert table_gates.run("large", pack, tmp_path / "out.jsonl", processes=1) == 0
    (line,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert (line["part"], line["id"], line["passed"]) == ("large", "id 2", True)


def test_a_sample_is_each_so_many_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_gates, "Worker", FakeWorker)
    monkeypatch.setattr(evaluate, "state_gate", lambda *_: Verdict("state", Status.OK))
    out, pack = tmp_path / "out.jsonl", FakePack()
    sampled: Any = pack
    assert table_gates.run("state", sampled, out, processes=1, every=3) == 0
    assert [json.loads(each)["id"] for each in out.read_text().splitlines()] == ["id 0", "id 3"]


def test_a_page_has_the_shares_of_mutants_and_counts_what_got_through() -> None:
    found = generator.figures() | {
        "mutants": {
            "total": 2050,
            "caught_share": 0.9951,
            "by_gate": {"numeric": 0.7, "dataflow": 0.2951},
            "by_kind": {
                "order": {"planted": 1000, "caught_share": 0.99},
                "values": {"planted": 1050, "caught_share": 1.0},
            },
            "through_by_operator": {"drop_fence": 2, "drop_wait": 1},
        }
    }
    made = generator.rows(found)
    assert made["faults planted in honest kernels (2,050) that gates caught"] == "99.5%"
    assert made["the same by kind"] == "order 99.0%, values 100.0%"
    assert made["of the planted, caught first by"] == "numeric 70.0%, dataflow 29.5%"
    through = "planted faults that got through, by operator"
    assert made[through] == "drop_fence 2, drop_wait 1"
    found["mutants"]["through_by_operator"] = {}
    assert generator.rows(found)[through] == "none"
