"""An export: all that a table follows from, in files that come back as they were."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.core.spec import DeviceFacts, Status
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.store import export
from hgemm_packs.generator.store.findings import Field, Findings
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.generator.tables import judge, table
from hgemm_packs.pack.manifest import Numerics
from tests.generator.found import DEVICE, FLOOR, NOISE, OTHER, PROBLEM, both, found, job

CLOCKS = {"conditions": {"hot": {"sm_mhz": [1980.0, 1410.0], "power_w": [512.5, 699.9]}}}


def some() -> Findings:
    """Two problems of two kinds, a refused kernel, one that is not proven, two noise jobs."""
    nt = replace(OTHER, layout="nt")
    fields = [
        *both({"a": (10.0, 12.0), "b": (10.5, 12.5)}),
        *both({"a": (10.0, 12.0)}, nt),
        job("finals", {"c": (9.0, 11.0)}, nt),
    ]
    fields[0] = replace(fields[0], evidence={**CLOCKS, "seed": 7, "finished": 3.0, "gpu": "u0"})
    fields[-1] = replace(fields[-1], statuses={"c": Status.NUMERIC})
    trials = [Field(p, "noise", {}, {}, "2026-11-21", {**NOISE, "seed": 1}) for p in (PROBLEM, nt)]
    whole = found(*fields, trials=tuple(trials), refused={"c": Status.NUMERIC})
    return replace(whole, runs=({"id": "0", "started": 1.5, "toolchain": {"sources": "ab"}},))


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_what_was_measured_comes_back(tmp_path: Path) -> None:
    export.write(some(), tmp_path)
    seen, before = export.read(tmp_path), some()
    assert {(f.problem, f.stage) for f in seen.fields} == {
        (f.problem, f.stage) for f in before.fields
    }
    (first,) = [f for f in seen.fields if "seed" in f.evidence]
    assert (first.samples, first.statuses) == (before.fields[0].samples, before.fields[0].statuses)
    assert first.evidence == before.fields[0].evidence
    assert seen.noise == [{p: tuple(NOISE[p]) for p in ("hot", "cold")}] * 2
    assert seen.proofs == before.proofs and seen.refused == before.refused
    assert seen.kernels == before.kernels and seen.runs == before.runs
    assert seen.device == DEVICE and seen.gpu_seconds == before.gpu_seconds


def test_the_table_of_an_export_is_that_of_the_run(tmp_path: Path) -> None:
    export.write(some(), tmp_path)
    ours, theirs = table.source(export.read(tmp_path)), table.source(some())
    assert sorted(ours.table) == sorted(theirs.table)
    assert replace(ours, table=()) == replace(theirs, table=())
    assert {row.kernel for row in ours.table} == {"a"}


def test_files_are_the_same_bytes_whoever_writes_them(tmp_path: Path) -> None:
    whole = some()
    export.write(whole, tmp_path / "1")
    shuffled = replace(whole, fields=whole.fields[::-1], trials=whole.trials[::-1])
    export.write(shuffled, tmp_path / "2")
    export.write(export.read(tmp_path / "1"), tmp_path / "3")
    halves = [replace(whole, fields=whole.fields[:2]), replace(whole, fields=whole.fields[2:])]
    cost = {kind: s / 2 for kind, s in whole.gpu_seconds.items()}
    export.write(export.union([replace(h, gpu_seconds=cost) for h in halves]), tmp_path / "4")
    assert contents(tmp_path / "1") == contents(tmp_path / "2") == contents(tmp_path / "3")
    assert contents(tmp_path / "4") == contents(tmp_path / "1")
    assert set(contents(tmp_path / "1")) == {
        "facts.json",
        "kernels.jsonl.zip",
        "jobs/f16-nn.jsonl.zip",
        "jobs/f16-nt.jsonl.zip",
    }


def test_a_line_is_legible(tmp_path: Path) -> None:
    long = replace(some().fields[0], samples={"hot": {"torch": (1.23456789,), "a": (1e-3,)}})
    export.write(found(long), tmp_path)
    line = read_records([tmp_path / "jobs" / "f16-nn.jsonl.zip"])[0]
    assert line["problem"] == [256, 512, 1024, "nn", "f16"]
    assert line["samples"]["hot"] == {"torch": [1.23457], "0": [0.001]}
    assert line["evidence"]["conditions"]["hot"]["sm_mhz"] == [1980.0, 1410.0]


def test_runs_of_one_kind_unite_and_others_do_not() -> None:
    one = replace(found(*both({"a": (10.0, 12.0)})), refused={"b": Status.LAUNCH})
    worse = Numerics("float64", 0.5, 3)
    two = replace(one, proofs={"a": worse}, refused={"b": Status.NUMERIC})
    hot = replace(two, device=replace(DEVICE, uuid_hash="two", peak_gbps=4100.0))
    both_ = export.union([one, hot])
    assert both_.proofs["a"] == worse and both_.refused == {"b": Status.NUMERIC}
    assert len(both_.fields) == 2, "the same job counts once"
    assert (both_.device.uuid_hash, both_.device.peak_gbps) == ("", 4100.0)
    newer = replace(one, device=replace(DEVICE, versions={"torch": "3"}))
    with pytest.raises(ValueError, match="cannot unite"):
        export.union([one, newer])


def test_runs_that_did_not_record_hardware_unite_with_one_that_did(tmp_path: Path) -> None:
    early = found(*both({"a": (10.0, 12.0)}))
    known = replace(DEVICE, theoretical_mem_bw_gbps=4916.7, power_limit_w=700.0)
    late = found(*both({"a": (9.0, 12.0)}), device=known)
    for parts in ([early, late], [late, early]):
        device = export.union(parts).device
        assert (device.theoretical_mem_bw_gbps, device.power_limit_w) == (4916.7, 700.0)
    near = replace(late, device=replace(known, power_limit_w=690.0))
    assert export.union([late, near]).device.power_limit_w == 700.0
    for changes in ({"power_limit_w": 500.0}, {"theoretical_mem_bw_gbps": 4022.8}):
        other = replace(late, device=replace(known, **changes))
        with pytest.raises(ValueError, match="cannot unite"):
            export.union([early, late, other])
    export.write(late, tmp_path / "late")
    assert export.read(tmp_path / "late").device == replace(known, uuid_hash="")
    # An export that knows nothing of them is written as it was before they were recorded.
    export.write(early, tmp_path / "early")
    facts = json.loads((tmp_path / "early" / "facts.json").read_text())
    assert facts["device"].keys() == {
        *("name", "arch", "sm_count", "l2_bytes", "uuid_hash", "versions"),
        *("peak_tflops", "peak_gbps"),
    }


def test_the_last_finals_choose_after_a_union() -> None:
    early, late = (
        replace(job("finals", us), evidence={"finished": at})
        for us, at in (({"a": (9.0, 11.0), "b": (9.5, 11.5)}, 1.0), ({"b": (8.0, 10.0)}, 2.0))
    )
    proven = job("confirm", {"a": (9.0, 11.0), "b": (9.0, 11.0)})
    proven = replace(proven, evidence={"finished": 3.0})
    listed = judge.contenders(export.union([found(late, proven), found(early)]), {False: FLOOR})
    assert [each.kernel for each in listed[PROBLEM]] == ["b", "a"]


def test_a_folder_of_exports_is_their_union(tmp_path: Path) -> None:
    """The raw results grow by exports beside the old ones, which no change rewrites."""
    whole = some()
    parts = [replace(whole, fields=whole.fields[:2]), replace(whole, fields=whole.fields[2:])]
    for number, part in enumerate(parts):
        export.write(part, tmp_path / "exports" / f"{number + 1:02d}")
    export.write(whole, tmp_path / "whole")
    one, all_ = export.load(tmp_path / "exports"), export.load(tmp_path / "whole")
    assert (one.fields, one.trials, one.proofs) == (all_.fields, all_.trials, all_.proofs)
    assert one.kernels == all_.kernels and len(one.fields) == len(whole.fields)


@pytest.mark.parametrize("damage", ["schema", "missing"])
def test_a_damaged_export_is_refused(tmp_path: Path, damage: str) -> None:
    export.write(some(), tmp_path)
    if damage == "schema":
        (tmp_path / "facts.json").write_text('{"schema": "other"}')
    else:
        (tmp_path / "jobs/f16-nt.jsonl.zip").unlink()
    with pytest.raises(ValueError, match=r"not 'hgemm|a file is missing"):
        export.read(tmp_path)


def test_a_problem_that_no_row_could_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="of one type"):
        export.write(found(*both({"a": (1.0, 1.0)}, replace(PROBLEM, out_dtype="bf16"))), tmp_path)


def test_problems_with_an_epilogue_come_back(tmp_path: Path) -> None:
    """Beside plain ones of the same sizes, whose lines are what they were."""
    biased = replace(PROBLEM, epilogue="bias")
    export.write(found(*both({"a": (10.0, 12.0)}), *both({"b": (9.0, 11.0)}, biased)), tmp_path)
    seen = export.read(tmp_path)
    assert {field.problem: [*field.statuses] for field in seen.fields} == {
        PROBLEM: ["a"],
        biased: ["b"],
    }


def test_nothing_measured_is_an_export_too(tmp_path: Path) -> None:
    export.write(Findings(DeviceFacts("no device yet", "", 0, 0)), tmp_path)
    assert export.read(tmp_path).fields == ()


def test_a_table_names_only_what_still_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    """`a` builds to other bytes now, `b` fails to: what is left serves, or torch."""
    whole = found(
        *both({"a": (10.0, 12.0), "b": (10.1, 12.1), "c": (10.2, 12.2)}),
        *both({"a": (10.0, 12.0)}, OTHER),
    )
    genome = next(iter(FAMILIES["sm90_direct"].space(layout="nn", dtype="f16")))
    kernels = {
        id_: {**fields, "family": "sm90_direct", "genome": genome}
        for id_, fields in whole.kernels.items()
    }
    monkeypatch.setattr(compiler, "Built", SimpleNamespace)
    made = {"a": "other", "b": None, "c": "c"}
    asked: list[int] = []

    def compile(jobs: Sequence[tuple[str, Any]]) -> list[Any]:
        asked.append(len(jobs))
        ids = [made["abc"[len(asked) - 1]] for _ in jobs]
        return [SimpleNamespace(entry_fields={"id": id_}) if id_ else None for id_ in ids]

    usable = table.make_usable(compile)
    document, _, gone = table.rebuild(replace(whole, kernels=kernels), 1.0, usable)
    assert {row.k: row.kernel for row in document.table} == {1024: "c", 2048: None}
    assert (gone, asked) == (["name_a", "name_b"], [1, 1, 1])
    unknown = {id_: {**fields, "family": "sm90_gone"} for id_, fields in kernels.items()}
    document, _, gone = table.rebuild(replace(whole, kernels=unknown), 1.0, usable)
    assert {row.kernel for row in document.table} == {None} and len(gone) == 3


def test_kernels_older_than_a_gene_are_spelled_with_it(tmp_path: Path) -> None:
    """An export of before `reads_ahead`, which names leave out at its old value."""
    today = next(iter(FAMILIES["sm90_splitk"].space(layout="nn", dtype="f16", reads_ahead=False)))
    old = {gene: value for gene, value in today.items() if gene != "reads_ahead"}
    whole = found(*both({"a": (10.0, 12.0), "b": (11.0, 12.0), "c": (11.0, 12.0)}))
    spelled = {"a": ("sm90_splitk", old), "b": ("sm90_splitk", today), "c": ("sm90_gone", old)}
    kernels = {
        id_: {**whole.kernels[id_], "family": family, "genome": genome}
        for id_, (family, genome) in spelled.items()
    }
    export.write(replace(whole, kernels=kernels), tmp_path)
    read = export.load(tmp_path).kernels
    assert {id_: fields["genome"] for id_, fields in read.items()} == {
        "a": today,
        "b": today,
        "c": old,
    }
    ahead = FAMILIES["sm90_splitk"].whole({**old, "reads_ahead": True})
    assert ahead["reads_ahead"] is True
    assert "reads_ahead" not in FAMILIES["sm90_direct"].whole({"layout": "nn"})


def test_a_table_comes_with_what_it_was_chosen_among() -> None:
    """The first of two builds otherwise now: a contender still, but it may not be named."""
    whole = found(*both({"a": (10.0, 12.0), "b": (10.1, 12.1)}))
    genome = next(iter(FAMILIES["sm90_direct"].space(layout="nn", dtype="f16")))
    kernels = {
        id_: {**fields, "family": "sm90_direct", "genome": genome}
        for id_, fields in whole.kernels.items()
    }
    usable = table.make_usable(lambda _: [compiler.Built({"id": "b"}, b"")])
    document, listed, gone = table.rebuild(replace(whole, kernels=kernels), 1.0, usable)
    assert [row.kernel for row in document.table] == ["b"] and gone == ["name_a"]
    ((first, second),) = listed.values()
    assert [(c.kernel, c.proven) for c in (first, second)] == [("a", False), ("b", True)]
