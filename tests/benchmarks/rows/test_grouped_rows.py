"""From the lines of benchmarks/measure/grouped.py to a source document and a pack that serves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.measure import candidates, grouped, grouped_kernels
from hgemm_packs import select
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.families.base import dims
from hgemm_packs.nn import grouped_choice
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.manifest import GROUPED_LAYOUT
from hgemm_packs.problem import DeviceInfo
from hgemm_packs.settings import settings
from tests import fake_driver, packs

HEADER = {
    "device": {"name": "NVIDIA H200", "arch": "sm_90a", "sm_count": 132, "l2_bytes": 62914560},
    "versions": {"torch": "2.11.0", "driver": "580.1", "cublas": "13.1.0"},
    "date": "2026-11-25",
}
DEVICE = DeviceInfo("NVIDIA H200", "sm_90a", 132, 62914560, 13000)


def line(genome: Any, ours: float, lcb: float) -> dict[str, Any]:
    fields = compiler.build_one(grouped_kernels.FAMILY, genome).entry_fields
    return {
        "built": {name: fields[name] for name in ("id", "name", "genome")},
        "us": {"ours": [ours, ours], "torch": [120.0, 120.0], "torch again": [120.0, 121.0]},
        "speedup": {"value": 120.0 / ours, "lcb": lcb, "ucb": 2.0, "pairs": 41},
        "noise": [1.0, 0.996, 1.004],
        "numerics": {"max_rel_err": 0.001, "shapes_tested": 70},
        "experts": 7.5,
    }


def test_every_candidate_is_another_valid_kernel() -> None:
    genomes = list(grouped_kernels.genomes())
    own = compiler.family(grouped_kernels.FAMILY)
    assert all(own.is_valid(genome) for genome in genomes)
    assert len({own.kernel_name(genome) for genome in genomes}) == len(genomes) > 60


def test_a_routing_gives_each_row_to_one_expert() -> None:
    source = torch.Generator().manual_seed(5)
    ends = grouped.route(500, 32, source)
    sizes = ends.diff(prepend=torch.zeros(1, dtype=torch.int32))
    assert ends.dtype == torch.int32 and int(ends[-1]) == 500
    assert int(sizes.min()) >= 0 and 8 <= float(sizes.float().std() ** 2) <= 26


@pytest.mark.usefixtures("clean_process")
def test_winners_become_rows_of_a_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *_ = grouped_kernels.genomes(["nt"])
    cases = [grouped.Case("gpt_oss_120b down", "nt", rows) for rows in (32, 128, 512)]
    lines = [line(first, 100.0, 1.18), line(second, 118.0, 1.003), line(second, 90.0, 1.3)]
    measured = [(case.problem, each) for case, each in zip(cases, lines, strict=True)]
    made = grouped_kernels.write_pack(HEADER, measured, tmp_path / "source", tmp_path / "pack")
    source = read_source(tmp_path / "source")
    assert (tmp_path / "source" / "grouped.json").is_file() and source.launcher_abi == 6
    assert source.policy.noise_floor == 0.004
    won = [each["built"]["id"] for each in lines]
    assert [row.kernel for row in source.grouped] == [won[0], None, won[2]]
    assert source.grouped == made.manifest.grouped
    Pack.open_verified(tmp_path / "pack").close()
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(tmp_path / "pack"))
    settings.cache_clear()
    select.reset()
    answers = {
        rows: grouped_choice.resolve(cases[0].problem._replace(m=rows), DEVICE).code
        for rows in (8, 9, 32, 33, 128, 129, 512, 513)
    }
    assert answers == {
        **{8: "not_measured", 9: "kernel", 32: "kernel", 33: "cublas_measured_better"},
        **{128: "cublas_measured_better", 129: "kernel", 512: "kernel", 513: "not_measured"},
    }


def fake_candidates(folder: Path) -> list[str]:
    """Two candidates for the stand-in driver, of which the second multiplies by other weights."""
    fields, names = [], ["k_right", "k_wrong"]
    folder.mkdir()
    for name in names:
        dtype = "bf16" if name == "k_right" else "f16"
        cubin = fake_driver.image(name, GROUPED_LAYOUT, "nt", dtype)
        record = {"cluster": [1, 1, 1], "dims": dims(), "layout": "nt", "cubin": cubin}
        kinds = {"dtype": "bf16", "out_dtype": "bf16"}
        grid = {"tile_m": 16, "tile_n": 64, "persistent": True}
        genome = {"tile_k": 64, "stages": 2, "name": name}
        made = packs.built(name, GROUPED_LAYOUT, grid=grid, genome=genome, **record, **kinds)
        fields.append({**made.entry_fields, "regs": 64})
        (folder / f"{made.entry_fields['id']}.cubin").write_bytes(cubin)
    (folder / candidates.INDEX).write_text(json.dumps(fields))
    return names


@pytest.mark.usefixtures("clean_process")
def test_a_run_measures_what_is_right_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole of `run` but clocks: the faster kernel is wrong, so that the gate takes it out."""
    library = fake_driver.compile_driver(tmp_path / "libfake.so")
    started = fake_driver.start(monkeypatch, library)
    right, wrong = fake_candidates(tmp_path / "kernels")
    speeds = {wrong: 5.0, right: 8.0, "ours": 8.0, candidates.TORCH: 10.0, candidates.AGAIN: 10.0}
    asked: list[tuple[str, ...]] = []

    def sample(arms: Any, routed: Any, problem: Any, blocks: int, seed: int) -> Any:
        asked.append(tuple(arms))
        for arm in arms.values():
            for one in routed.sets:
                arm(one.a, one.b, one.c)
        return {name: [speeds[name]] * blocks for name in arms}

    monkeypatch.setattr(grouped, "sample", sample)
    monkeypatch.setattr(grouped, "DEVICE", torch.device("cpu", 0))
    monkeypatch.setattr(grouped, "LAYERS", {"small": (4, 72, 64)})
    monkeypatch.setattr(candidates, "runtime_versions", lambda index: {"torch": "2.11.0"})
    out = tmp_path / "out.jsonl"
    words = ["run", str(tmp_path / "kernels"), str(out), "--rows"]
    assert grouped.main([*words, "8"]) == 0
    assert asked == [
        (right, wrong),
        (candidates.TORCH, wrong, right),
        (candidates.TORCH, candidates.AGAIN, "ours"),
    ]
    assert grouped.main([*words, "8,40"]) == 0
    lines = candidates.read_lines(out)
    cases = [each["case"] for each in lines if "case" in each]
    assert cases == [["small", "nt", 8], ["small", "nt", 40]] and len(lines) == 4
    assert lines[0]["header"]["device"]["sm_count"] == 132
    for each in lines:
        if "case" in each:
            assert each["built"]["name"] == right and list(each["failed"]) == [wrong]
            assert each["speedup"]["value"] == 1.25 and 0 < each["experts"] <= 4
    assert started.control.launches > 100
