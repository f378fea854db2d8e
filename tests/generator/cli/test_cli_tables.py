"""`generate table`, `archive` and `contenders`: a pack to choose from, and the table of a run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from hgemm_packs.generator.cli.tables import keep_predictors
from hgemm_packs.generator.compile import compiler, pack_writer
from hgemm_packs.generator.compile.pack_writer import SourceManifest, read_source
from hgemm_packs.generator.store import export, findings
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.profiles import names
from tests import packs, predictions
from tests.generator.cli.made_run import Made, hashes
from tests.generator.command import generate


def chosen_by_protocols(own: SourceManifest, folder: Path) -> None:
    """The export in `folder`/raw once more, with lines of both protocols as they are on file,
    headers and failures among them."""
    named = {kernel.id: kernel.name for kernel in own.kernels}
    first, *others = [row for row in own.table if row.kernel]
    problem, kernel = [*first.key[:5]], named[str(first.kernel)]
    gain = {"torch": [9.0], "plain": [2.0], "pdl": [1.0]}
    runs = {"torch": {"us": 1.0}, kernel: {"us": 2.0}}
    task = {"problem": problem, "fields": ["problem"], "wrong": []}
    failure = {**task, "kernel": kernel, "error": "OutOfMemoryError", "blamed": False}
    pdl = [
        {"header": {}},
        failure,
        {**task, "kernel": kernel, "edges": {"programmatic": 2}, "hot": gain, "cold": gain},
    ]
    energy = [{"header": {}}, {**task, "sustained": runs}]
    for name, lines in (("pdl", pdl), ("energy", energy)):
        text = "".join(json.dumps(each) + "\n" for each in lines)
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    words = ("table", folder / "raw", "--out", folder / "p.json")
    lines = "--dependent", folder / "pdl.jsonl"
    code, out, _ = generate(*words, *lines)
    assert code == 0 and "1 with a kernel for dependent launch" in out
    made = read_source(folder / "p.json")
    rows = (row._replace(dependent=first.kernel if row is first else None) for row in own.table)
    assert made == dataclasses.replace(own, table=tuple(rows))
    # Another run, which chooses nothing, has it slower than torch in one way, and in the other.
    for arm, kernels in (("pdl", (first.kernel, None)), ("plain", (None, None))):
        again = {**pdl[-1], "hot": {**gain, arm: [9.2]}}
        (folder / "again.jsonl").write_text(json.dumps(again) + "\n", encoding="utf-8")
        assert generate(*words, *lines, "--published", folder / "again.jsonl").code == 0
        (row,) = [r for r in read_source(folder / "p.json").table if r.key == first.key]
        assert (row.kernel, row.dependent) == kernels
    assert generate(*words, "--published", folder / "pdl.jsonl").code == 0
    assert read_source(folder / "p.json") == own
    # Nothing is chosen that another run would have to publish.
    elsewhere = {**pdl[-1], "kernel": "another"}
    (folder / "again.jsonl").write_text(json.dumps(elsewhere) + "\n", encoding="utf-8")
    assert generate(*words, *lines, "--published", folder / "again.jsonl").code == 0
    assert read_source(folder / "p.json") == own
    assert generate(*words, "--sustained", folder / "energy.jsonl").code == 0
    kept = [row for row in read_source(folder / "p.json").table if row.kernel]
    assert sorted(row.key for row in kept) == sorted(row.key for row in others)


def only_sanitized(own: SourceManifest, folder: Path) -> None:
    """The export in `folder`/raw without one kernel that a tool found fault with."""
    bad = next(row.kernel for row in own.table if row.kernel)
    said = [
        {"id": kernel.id, "tool": tool, "findings": int(kernel.id == bad and tool == "racecheck")}
        for kernel in own.kernels
        for tool in ("memcheck", "racecheck")
    ]
    text = "".join(json.dumps(each) + "\n" for each in ({"header": {}}, *said))
    (folder / "said.jsonl").write_text(text, encoding="utf-8")
    words = ("table", folder / "raw", "--out", folder / "p.json")
    code, out, _ = generate(*words, "--sanitized", folder / "said.jsonl")
    assert code == 0 and "have no clean record" in out
    kept = read_source(folder / "p.json")
    assert {kernel.id for kernel in kept.kernels} <= {k.id for k in own.kernels} - {bad}
    assert [row.kernel for row in kept.table].count(bad) == 0


def test_contenders_are_written_as_a_pack(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = read_source(made.run / "source.json")
    ids = {(kernel.family, str(kernel.genome)): kernel.id for kernel in own.kernels}
    asked = []

    def compiled(jobs: list[tuple[str, dict[str, object]]]) -> list[compiler.Built]:
        known = [ids[name, str(genome)] for name, genome in jobs if (name, str(genome)) in ids]
        return [compiler.Built({"id": each}, b"") for each in known]

    monkeypatch.setattr(compiler, "build", compiled)
    monkeypatch.setattr(pack_writer, "build_pack", lambda *places: asked.append(places))
    words = ("contenders", made.run, "--out", tmp_path / "c")
    code, out, _ = generate(*words, "--least-flop", "1")
    assert code == 0 and "kernels for" in out
    assert asked == [(tmp_path / "c" / "source.json", tmp_path / "c" / "pack")]
    written = read_source(tmp_path / "c" / "source.json")
    assert {each.id for each in written.kernels} <= {each.id for each in own.kernels}
    assert {row.key for row in written.table} >= {row.key for row in own.table if row.kernel}
    assert generate(*words, "--least-flop", "1e20").code == 2
    # For dependent launch: every problem, all that still build, however far apart, by name.
    assert generate(*words, "--near", "9").code == 0
    text = (tmp_path / "c" / "pairs.jsonl").read_text(encoding="utf-8")
    alone = [tuple(json.loads(line)["problem"]) for line in text.splitlines()]
    assert sorted(alone) == sorted(row.key[:5] for row in own.table if row.kernel)
    with Store(made.run, readonly=True) as store:
        for id_, fields in findings.read(store).kernels.items():
            ids[fields["family"], str(fields["genome"])] = id_
    assert generate(*words, "--near", "9").code == 0
    several = read_source(tmp_path / "c" / "source.json")
    text = (tmp_path / "c" / "pairs.jsonl").read_text(encoding="utf-8")
    pairs = [json.loads(line) for line in text.splitlines()]
    assert {each["kernel"] for each in pairs} == {each.name for each in several.kernels}
    problems = [tuple(each["problem"]) for each in pairs]
    assert set(problems) == {row.key[:5] for row in several.table}
    assert set(alone) <= set(problems) and all(problems.count(each) > 1 for each in alone)


def test_contenders_of_the_problems_that_another_export_confirms(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = export.load(made.run)
    ids = {(f["family"], str(f["genome"])): id_ for id_, f in found.kernels.items()}

    def compiled(jobs: list[tuple[str, dict[str, object]]]) -> list[compiler.Built]:
        return [compiler.Built({"id": ids[name, str(genome)]}, b"") for name, genome in jobs]

    monkeypatch.setattr(compiler, "build", compiled)
    monkeypatch.setattr(pack_writer, "build_pack", lambda *places: None)
    words = ("contenders", made.run, "--out", tmp_path / "c", "--near", "9")
    assert generate(*words).code == 0
    everything = {row.key for row in read_source(tmp_path / "c" / "source.json").table}
    key = max(everything)
    less = [f for f in found.fields if f.stage != "confirm" or f.problem.key == key]
    export.write(dataclasses.replace(found, fields=tuple(less)), tmp_path / "less")
    assert generate(*words, "--only", tmp_path / "less").code == 0
    assert {row.key for row in read_source(tmp_path / "c" / "source.json").table} == {key}
    assert len(everything) > 1


def test_a_pack_may_have_all_that_passed_the_gate(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For `measure rows`: kernels that the table does not name may be the best elsewhere."""
    found, own = export.load(made.run), read_source(made.run / "source.json")
    ids = {(f["family"], str(f["genome"])): id_ for id_, f in found.kernels.items()}

    def compiled(jobs: list[tuple[str, dict[str, object]]]) -> list[compiler.Built]:
        return [compiler.Built({"id": ids[name, str(genome)]}, b"") for name, genome in jobs]

    monkeypatch.setattr(compiler, "build", compiled)
    monkeypatch.setattr(pack_writer, "build_pack", lambda *places: None)
    official = own.pack._replace(name="hgemm-packs-sm90a")
    pack_writer.write_source(tmp_path / "known.json", dataclasses.replace(own, pack=official))
    words = ("contenders", made.run, "--out", tmp_path / "c", "--proven", tmp_path / "known.json")
    assert generate(*words).code == 0
    written = read_source(tmp_path / "c" / "source.json")
    assert written.pack.name == names.of_machine("Simulated GPU"), "and not as the project's own"
    right = found.proofs.keys() - found.refused.keys()
    assert {k.id for k in written.kernels} == right | {k.id for k in own.kernels}
    assert len(written.kernels) > len(own.kernels) and written.table == own.table
    assert generate(*words, "--dtypes", "bf16").code == 0
    assert not read_source(tmp_path / "c" / "source.json").kernels


def test_an_export_makes_the_table_of_its_run(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = generate("archive", made.run, "--out", tmp_path / "raw")
    assert (code, err) == (0, "") and "3 problems" in out
    own = read_source(made.run / "source.json")
    ids = {(kernel.family, str(kernel.genome)): kernel.id for kernel in own.kernels}

    def compiled(jobs: list[tuple[str, dict[str, object]]]) -> list[compiler.Built]:
        return [compiler.Built({"id": ids[name, str(genome)]}, b"") for name, genome in jobs]

    monkeypatch.setattr(compiler, "build", compiled)
    for i in range(2):
        assert generate("table", tmp_path / "raw", "--out", tmp_path / f"{i}.json").code == 0
    assert (tmp_path / "0.json").read_bytes() == (tmp_path / "1.json").read_bytes()
    again = read_source(tmp_path / "0.json")
    named = ("table", tmp_path / "raw", "--out", tmp_path / "2.json", "--name", "hgemm-packs-sm90a")
    assert generate(*named).code == 0  # as `make table` says it
    official = again.pack._replace(name="hgemm-packs-sm90a")
    assert read_source(tmp_path / "2.json") == dataclasses.replace(again, pack=official)
    assert again.pack.name == names.of_machine("Simulated GPU")
    assert again.kernels == own.kernels
    assert [row.kernel for row in again.table] == [row.kernel for row in own.table]
    chosen_by_protocols(again, tmp_path)
    only_sanitized(again, tmp_path)
    assert generate("archive", tmp_path / "raw", "--out", tmp_path / "copy").code == 0
    assert hashes(tmp_path / "copy") == hashes(tmp_path / "raw")
    assert generate("archive", tmp_path / "absent", "--out", tmp_path / "copy").code == 2


def test_a_table_keeps_a_predictor_as_long_as_its_kernels(tmp_path: Path) -> None:
    kernels = packs.good_kernels()
    predictor = predictions.of(kernels)
    document = packs.source(kernels, packs.good_rows(kernels))
    out = tmp_path / "device"
    assert keep_predictors(document, out) == document, "there was no table"
    pack_writer.write_source(out, pack_writer.with_predictors(document, (predictor,)))
    assert keep_predictors(document, out).predictors == (predictor,)
    rest = [kernel for kernel in document.kernels if kernel.id != predictor.candidates[0].kernel]
    assert keep_predictors(dataclasses.replace(document, kernels=rest), out).predictors == ()
