"""Documents that the assembly writes, and the one that is committed."""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator import assemble, build
from hgemm_packs.generator.build import BuildError
from hgemm_packs.generator.families import family
from hgemm_packs.generator.packer import read_source
from hgemm_packs.generator.pool import pool
from hgemm_packs.generator.records import read_records
from hgemm_packs.problem import Problem

from .measured import measured, noise

SWEEP = Path(__file__).parents[2] / "benchmarks" / "results" / "sweep"
COMMITTED = Path(__file__).parents[2] / "manifests" / "sm_90a" / "h200.json"
DATE = "2026-11-21"
FLOOR = 0.004  # of `noise()`


def _inputs(folder: Path, names: list[str], numerics: list[str]) -> argparse.Namespace:
    """Records in which each kernel won one problem, and `k_lost` lost one."""
    problems = [Problem(256, 512, 1024 * (i + 1), "nt", "f16") for i in range(len(names) + 1)]
    records = [measured(problem, name) for problem, name in zip(problems, names, strict=False)]
    records.append(measured(problems[-1], "k_lost", hot=(12.0, 11.0, 12.5)))
    lines = [json.dumps(record) + "\n" for record in records]
    half = len(lines) // 2
    (folder / "select-0.jsonl").write_text("".join(lines[:half]) + '{"torn')
    (folder / "select-1.jsonl.gz").write_bytes(gzip.compress("".join(lines[half:]).encode()))
    (folder / "confirm-0.jsonl").write_text("".join([*lines, json.dumps(noise()) + "\n"]))
    facts = {
        "date": DATE,
        "torch": "2.11.0",
        "cublas": "13.1.0",
        "driver": "580.1",
        "numerics": [
            {"name": name, "max_rel_err": 0.0002123456789, "shapes_tested": 90 + i}
            for i, name in enumerate(numerics)
        ],
    }
    (folder / "facts.json").write_text(json.dumps(facts))
    out = folder / "h200.json"
    return argparse.Namespace(select=folder, confirm=folder, facts=folder / "facts.json", out=out)


def _candidates() -> list[tuple[str, Any]]:
    jobs = pool("nt", "f16")
    return [jobs[0], jobs[-1]]


def test_a_table_names_the_kernels_that_it_built(tmp_path: Path) -> None:
    jobs = _candidates()
    names = [family(name).kernel_name(genome) for name, genome in jobs]
    source = assemble.write_table(_inputs(tmp_path, names, [*names, "unused"]))
    assert source == read_source(tmp_path / "h200.json")
    built = {one.entry_fields["name"]: one.entry_fields for one in map(_build, jobs)}
    assert {kernel.name: kernel.id for kernel in source.kernels} == {
        name: fields["id"] for name, fields in built.items()
    }
    assert {kernel.name: dict(kernel.genome) for kernel in source.kernels} == {
        name: fields["genome"] for name, fields in built.items()
    }
    numerics = {k.name: (k.numerics.max_rel_err, k.numerics.shapes_tested) for k in source.kernels}
    assert numerics == {names[0]: (0.000212346, 90), names[1]: (0.000212346, 91)}
    rows = {row.k: row.kernel for row in source.table}
    assert rows == {1024: built[names[0]]["id"], 2048: built[names[1]]["id"], 3072: None}
    assert source.policy.noise_floor == FLOOR
    assert source.baseline.driver == "580.1"
    assert assemble.summary(source) == {
        "rows": 3,
        "wins": 2,
        "kernels": 2,
        "gmean": 1.2,
        "worst": 1.2,
        "noise_floor": FLOOR,
    }


def _build(job: tuple[str, Any]) -> Any:
    return build.build_one(*job)


def test_a_kernel_that_no_gate_passed_is_in_no_table(tmp_path: Path) -> None:
    names = [family(name).kernel_name(genome) for name, genome in _candidates()]
    source = assemble.write_table(_inputs(tmp_path, names, names[:1]))
    assert [kernel.name for kernel in source.kernels] == names[:1]
    assert [row.kernel is None for row in sorted(source.table, key=lambda r: r.k)] == [
        False,
        True,
        True,
    ]


def test_a_kernel_that_does_not_compile_ends_the_assembly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [family(name).kernel_name(genome) for name, genome in _candidates()]
    monkeypatch.setattr(assemble, "_compile", lambda jobs: [BuildError("spills")])
    args = _inputs(tmp_path, names, names)
    with pytest.raises(BuildError, match="spills"):
        assemble.write_table(args)
    assert not args.out.exists()


def test_a_kernel_that_is_no_candidate_any_more_ends_the_assembly(tmp_path: Path) -> None:
    args = _inputs(tmp_path, ["sm90_gone"], ["sm90_gone"])
    with pytest.raises(KeyError, match="sm90_gone"):
        assemble.write_table(args)
    assert not args.out.exists()


@pytest.mark.skipif(not (SWEEP / "facts.json").exists(), reason="no records are committed")
def test_the_committed_table_follows_from_the_committed_records() -> None:
    """Every 32nd problem, for time; the noise floor from all."""
    facts = json.loads((SWEEP / "facts.json").read_text(encoding="utf-8"))
    selected = read_records(sorted(SWEEP.glob("select-*.jsonl*")))
    confirmed = read_records(sorted(SWEEP.glob("confirm-*.jsonl*")))
    keys = list(dict.fromkeys(tuple(record["problem"]) for record in selected))
    sampled = set(keys[::32])
    some = [record for record in selected if tuple(record["problem"]) in sampled]
    proven = {kernel["name"] for kernel in facts["numerics"]}
    rows, floor, _ = assemble.table(some, confirmed, proven, facts["date"])
    source = read_source(COMMITTED)
    assert source.policy.noise_floor == floor
    ids = {kernel.name: kernel.id for kernel in source.kernels}
    committed = {row.key: row for row in source.table}
    assert len(committed) == len({tuple(r["problem"]) for r in selected if "chosen" in r})
    assert len(rows) > 50
    for row in rows:
        expected = row._replace(kernel=ids[row.kernel] if row.kernel else None)
        assert committed[row.key] == expected


def test_every_committed_kernel_is_proven_and_in_use() -> None:
    source = read_source(COMMITTED)
    bound = {"f16": 2.0**-11, "bf16": 2.0**-8}  # what rounding alone may cost
    for kernel in source.kernels:
        assert kernel.numerics.shapes_tested >= 10, kernel.name
        assert kernel.numerics.max_rel_err < bound[str(kernel.genome["dtype"])], kernel.name
    assert {row.kernel for row in source.table} - {None} == {k.id for k in source.kernels}
