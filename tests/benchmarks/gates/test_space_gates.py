"""The gates over whole families: other genomes for refused ones, the folder between two machines,
the run on a stand-in for the GPU, and what a summary counts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.gates import space_gates
from hgemm_packs import launcher
from hgemm_packs.generator.campaigns import campaign, covering_kernels
from hgemm_packs.generator.campaigns.coverage import Known, pairs_of
from hgemm_packs.generator.campaigns.covering_kernels import ROUNDS, CoveringKernels, Tried, write
from hgemm_packs.generator.compile.compiler import Built
from hgemm_packs.generator.core.spec import CompiledKernel, Job, Status, Verdict
from hgemm_packs.generator.devices import gated
from hgemm_packs.generator.devices.gated import NO_ROOM, WAYS
from hgemm_packs.generator.families import Genome, family
from hgemm_packs.generator.gates import numeric
from hgemm_packs.generator.gates.numeric import Numeric, NumericError
from hgemm_packs.generator.workers import evaluators
from hgemm_packs.generator.workers.evaluators import Inline
from tests.generator import stand_in

NAME = "sm90_writebound"
OURS = family(NAME)
SPILLS = "spills or uses a stack frame"
Answer = tuple[Verdict, Built | None]


def judge(refuses: Callable[[Genome], bool], asked: list[Genome]) -> covering_kernels.Judge:
    """Refuses some genomes in the compiler's words; others are "built" in no time."""

    def one(job: tuple[str, Genome]) -> Answer:
        assert job[0] == NAME
        asked.append(job[1])
        name = OURS.kernel_name(job[1])
        if refuses(job[1]):
            return Verdict("build", Status.BUILD, f"{name}: {SPILLS}\nand more"), None
        cubin = f"cubin of {name}".encode()
        id_ = hashlib.sha256(cubin).hexdigest()
        return Verdict("binary", Status.OK), Built({"id": id_, "name": name}, cubin)

    return lambda jobs: map(one, jobs)


@pytest.fixture(scope="module")
def known() -> Known:
    return Known(OURS)


# --- build ----------------------------------------------------------------------------------------


def test_pairs_of_a_refused_genome_are_tried_in_others(known: Known) -> None:
    """Four consumers never build with the staged epilogue; every other pair is in a genome that
    did."""
    asked: list[Genome] = []

    def refuses(g: Genome) -> bool:
        return g["consumers"] == 4 and g["epilogue"] == "staged"

    tried = covering_kernels.cover(OURS, known, judge(refuses, asked))
    assert [one.genome for one in tried] == asked and len(set(map(str, asked))) == len(asked)
    refused = [one for one in tried if one.built is None]
    assert refused and all(refuses(one.genome) for one in refused)
    assert {one.round for one in tried} == set(range(1 + ROUNDS))
    built = pairs_of(OURS, (one.genome for one in tried if one.built))
    assert set(known.pairs) - built == {("consumers", 4, "epilogue", "staged")}
    # That pair alone was left, and each round had one more genome for it.
    assert [one.round for one in tried].count(ROUNDS) == 1


def test_nothing_is_tried_again_where_all_is_built(known: Known) -> None:
    asked: list[Genome] = []
    tried = covering_kernels.cover(OURS, known, judge(lambda g: False, asked))
    assert {one.round for one in tried} == {0} and len(asked) < 60


def test_a_genome_goes_through_the_gates_that_need_no_gpu() -> None:
    genome = next(OURS.space(layout="nt", dtype="f16"))
    verdict, built = covering_kernels.judge_genome((NAME, genome))
    assert verdict.passed and verdict.gate == "coverage"
    assert built is not None and built.entry_fields["name"] == OURS.kernel_name(genome)


@pytest.fixture
def folder(tmp_path: Path, known: Known) -> Path:
    """The family's genomes, none of bf16 and k 64 built."""
    refuses = lambda g: g["dtype"] == "bf16" and g["k"] == 64  # noqa: E731
    write(tmp_path / "f", [(OURS, known, covering_kernels.cover(OURS, known, judge(refuses, [])))])
    return tmp_path / "f"


def test_a_folder_has_what_was_written(folder: Path, known: Known) -> None:
    read = CoveringKernels(folder)
    assert set(read.families) == {NAME} and read.families[NAME]["known"] == len(known)
    assert [tuple(pair) for pair in read.families[NAME]["not_found"]] == known.not_found
    for line in read.genomes[NAME]:
        name = OURS.kernel_name(line["genome"])
        if "refused" in line:
            assert line["refused"] == f"build: {SPILLS}" and line["detail"].endswith("more")
        else:
            assert read.kernel(line).cubin == f"cubin of {name}".encode()
    assert read.facts["kernels"] == len(read.built) and read.facts["nvrtc"]
    blob = folder / covering_kernels.KERNELS
    blob.write_bytes(blob.read_bytes()[:-1] + b"!")
    with pytest.raises(ValueError, match=r"kernels.bin: not the cubin of sm90_"):
        CoveringKernels(folder)


# --- summary --------------------------------------------------------------------------------------


def lines(out: Path, read: CoveringKernels, worse: dict[int, dict[str, Any]]) -> None:
    """A run's file where all kernels passed in both ways, but for the dependent launches of those
    at the places that `worse` has; {} is no line at all."""
    header = {"ways": WAYS, "commit": "c", "started": "now", "device": {}}
    made: list[dict[str, Any]] = [{"header": header}]
    for way in WAYS:
        for i, line in enumerate(read.built):
            end = {"outcome": "passed", "max_rel_err": 1e-4 * (i + 1)}
            end = worse.get(i, end) if way == "dependent" else end
            if end:
                key = {"kernel": line["fields"]["name"], "id": line["fields"]["id"], "way": way}
                made.append({**key, "fields": list(key), **end})
    out.write_text("".join(json.dumps(each) + "\n" for each in made))


def counted(folder: Path, worse: dict[int, dict[str, Any]]) -> dict[str, Any]:
    read, out = CoveringKernels(folder), folder.with_name("o.jsonl")
    lines(out, read, worse)
    found: dict[str, Any] = space_gates.figures(read, space_gates.outcomes([out]), WAYS)[NAME]
    return found


def test_a_pair_counts_where_a_kernel_passed(folder: Path, known: Known) -> None:
    built = len(CoveringKernels(folder).built)
    figures = counted(folder, {})
    refused = figures["refused"][f"build: {SPILLS}"]
    assert refused >= ROUNDS
    assert figures["genomes"] == {"tried": built + refused, "passed": built, "refused": refused}
    assert figures["space"] == 460800 and figures["genes"]["layout"] == 4
    assert figures["pairs"] == len(known.pairs) == figures["pairs_covered"] + 1
    (lacking,) = figures["not_covered"]
    assert lacking["pair"] == ("dtype", "bf16", "k", 64)
    assert set(lacking["genomes"]) == {f"refused: build: {SPILLS}"}
    assert figures["pairs_without_genome"]["proven"] is True
    assert figures["max_rel_err"]["plain"] == pytest.approx(1e-4 * built)


def test_what_did_not_pass_covers_nothing(folder: Path, known: Known) -> None:
    """A kernel has to pass in both ways; pairs that only it has are named, with the reason."""
    before = counted(folder, {})
    worse = {
        0: {"outcome": "failed", "detail": "NumericError: waves"},
        1: {"error": "no answer in 20 s", "blamed": True},
        2: {"outcome": "refused", "detail": NO_ROOM},
        3: {},
        4: {"error": "RuntimeError: want of memory", "blamed": False},
    }
    after = counted(folder, worse)
    assert after["genomes"] == before["genomes"] | {
        "passed": before["genomes"]["passed"] - 5,
        "failed": 2,
        "too large": 1,
        "left": 2,
    }
    words = [each["detail"] for each in after["failed"]]
    assert words == ["dependent: NumericError: waves", "dependent: no answer in 20 s"]
    assert after["too_large"][0][1] == f"dependent: {NO_ROOM}"
    read = CoveringKernels(folder)
    passed = pairs_of(OURS, (line["genome"] for line in read.built[5:]))
    assert after["pairs_covered"] == len(passed) < before["pairs_covered"]
    reasons = {why for each in after["not_covered"] for why in each["genomes"]}
    assert {"failed: dependent: NumericError: waves", "left"} <= reasons


def test_the_summary_names_what_the_sanitizer_found(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_gates, "OUT", tmp_path / "space_gates.json")
    read, out, said = CoveringKernels(folder), tmp_path / "o.jsonl", tmp_path / "s.jsonl"
    lines(out, read, {})
    words = ["summary", str(folder), str(out), "--sanitized", str(said)]
    for findings, code in ((0, 0), (2, 1), (-1, 1)):
        told = [
            {"id": line["fields"]["id"], "tool": tool, "findings": findings if i == 3 else 0}
            for tool in ("memcheck", "racecheck")
            for i, line in enumerate(read.built)
        ]
        said.write_text("".join(json.dumps(each) + "\n" for each in told))
        assert space_gates.main(words) == code
    found = json.loads((tmp_path / "space_gates.json").read_text())["sanitized"]
    name, clean = read.built[3]["fields"]["name"], len(read.built) - 1
    assert found["racecheck"] == {"clean": clean, "findings": {name: -1}}


def test_the_summary_is_written(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(space_gates, "OUT", tmp_path / "space_gates.json")
    out = tmp_path / "o.jsonl"
    for worse, code in (({}, 0), ({0: {"outcome": "failed", "detail": "x"}}, 1), ({0: {}}, 1)):
        lines(out, CoveringKernels(folder), worse)
        assert space_gates.main(["summary", str(folder), str(out)]) == code
    document = json.loads((tmp_path / "space_gates.json").read_text())
    assert document["runs"] == [{"commit": "c", "started": "now", "device": {}}]
    assert document["families"][NAME]["genomes"]["left"] == 1
    assert "covered" in capsys.readouterr().out


# --- run ------------------------------------------------------------------------------------------


@pytest.fixture
def device(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The gate answers by the kernel's parameter layout; `asked` are the ways it was launched."""
    machine.asked, machine.says = [], {}
    load = launcher.load

    def loaded(index: int, entry: Any, image: bytes, pdl: bool) -> Any:
        machine.asked.append((entry.name, pdl))
        return load(index, entry, image, pdl)

    def check(entry: Any, *_: Any) -> Numeric:
        error = machine.says.get(entry.name)
        if error is not None:
            raise error
        return Numeric(1e-4, 7)

    monkeypatch.setattr(launcher, "load", loaded)
    monkeypatch.setattr(numeric, "check", check)
    return machine


def ask(kernel: CompiledKernel, way: str = "plain") -> dict[str, Any]:
    evidence = dict(gated.make(0).run(Job(way, None, (kernel,), 5)).evidence)
    assert evidence.pop("seconds") >= 0
    return evidence


def test_a_verdict_is_an_answer(device: SimpleNamespace) -> None:
    one = stand_in.GOOD[0]
    assert ask(one) == {"outcome": "passed", "max_rel_err": 1e-4, "shapes_tested": 7}
    assert ask(one, "dependent")["outcome"] == "passed"
    assert [pdl for _, pdl in device.asked] == [False, True]
    name = one.fields["name"]
    device.says[name] = NumericError("waves: wrong")
    assert ask(one) == {"outcome": "failed", "detail": "NumericError: waves: wrong"}
    device.says[name] = torch.OutOfMemoryError("much")
    assert ask(one) == {"error": "OutOfMemoryError: much"}
    device.says[name] = RuntimeError(NO_ROOM)
    assert ask(one)["outcome"] == "refused"
    with pytest.raises(ValueError, match="no job 'gate'; known: plain, dependent"):
        ask(one, "gate")


def test_a_tile_whose_ctas_cannot_wait_for_each_other(
    device: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = stand_in.kernel("tma2_ws_v2")
    assert kernel.fields["cooperative"] and ask(kernel)["outcome"] == "passed"
    few = SimpleNamespace(max_ctas=1)
    monkeypatch.setattr(launcher, "load", lambda *_: few)
    answer = ask(kernel)
    assert answer["outcome"] == "refused" and "1 run at once" in answer["detail"]


def test_a_run_asks_each_kernel_once_in_both_ways(
    device: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, known: Known
) -> None:
    monkeypatch.setattr(evaluators, "Local", lambda make, count, **_: Inline(make(0)))
    kernels = stand_in.GOOD
    tried = [
        Tried(g, Verdict("binary", Status.OK), Built(dict(k.fields), k.cubin), 0)
        for g, k in zip(OURS.space(), kernels, strict=False)
    ]
    write(tmp_path / "f", [(OURS, known, tried)])
    words = ["run", str(tmp_path / "f"), str(tmp_path / "o.jsonl"), "--gpus", "1", "--commit", "c"]
    bad = kernels[1].fields["name"]
    device.says[bad] = NumericError("depth: wrong")
    assert space_gates.main(words) == 1
    names = [kernel.fields["name"] for kernel in kernels]
    assert device.asked == [(name, pdl) for pdl in (False, True) for name in names]
    headers, found = campaign.lines([tmp_path / "o.jsonl"])
    assert headers[0]["benchmark"] == "space_gates" and headers[0]["pack"]["kernels"] == 3
    assert [(x["kernel"], x["way"]) for x in found if x["outcome"] == "failed"] == [
        (bad, way) for way in WAYS
    ]
    assert space_gates.main(words) == 1 and len(device.asked) == 6  # nothing ran again
