"""From the lines of benchmarks/measure/batched.py to a source document and a pack that serves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.measure import batched, batched_kernels, candidates
from benchmarks.measure.candidates import Loaded
from hgemm_packs import launcher, select
from hgemm_packs.generator.compile import compiler
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.measure.batches import batch
from hgemm_packs.pack.manifest import OF_BATCH, DimRange, GridRule
from hgemm_packs.problem import DeviceInfo, Problem
from hgemm_packs.settings import settings
from tests import fake_driver

HEADER = {
    "device": {"name": "NVIDIA H200", "arch": "sm_90a", "sm_count": 132, "l2_bytes": 62914560},
    "versions": {"torch": "2.11.0", "driver": "580.1", "cublas": "13.1.0"},
    "date": "2026-11-25",
}
DEVICE = DeviceInfo("NVIDIA H200", "sm_90a", 132, 62914560, 13000)
CPU = torch.device("cpu")


def line(case: batched.Case, genome: Any, ours: float, lcb: float) -> dict[str, Any]:
    fields = compiler.build_one(batched_kernels.FAMILY, genome).entry_fields
    us = {"ours": [ours, ours], "torch": [120.0, 120.0], "torch again": [120.0, 121.0]}
    gain = {"value": 120.0 / ours, "lcb": lcb, "ucb": 2.0, "pairs": 31}
    return {
        "case": [*case],
        "built": {name: fields[name] for name in ("id", "name", "genome")},
        "us": {"hot": us, "cold": us},
        "speedup": {"hot": gain, "cold": gain},
        "noise": {"hot": [1.0, 0.996, 1.004], "cold": [1.0, 0.998, 1.002]},
        "numerics": {"max_rel_err": 0.001, "shapes_tested": 89},
    }


def test_every_candidate_is_another_valid_kernel() -> None:
    for epilogue in ("none", "residual"):
        genomes = list(batched_kernels.genomes(epilogue))
        own = compiler.family(batched_kernels.FAMILY)
        assert all(own.is_valid(genome) for genome in genomes)
        assert len({own.kernel_name(genome) for genome in genomes}) == len(genomes) > 100
        kinds = {(genome["layout"], genome["dtype"]) for genome in genomes}
        assert kinds == {(x, y) for x in ("nn", "nt") for y in ("bf16", "f16")}


def test_every_case_is_a_problem_that_candidates_take() -> None:
    cases = list(batched.every_case())
    assert len({*cases}) == len(cases) > 60
    entries = {
        (genome["layout"], genome["dtype"], epilogue): compiler.family(
            batched_kernels.FAMILY
        ).fields(genome)
        for epilogue in ("none", "residual")
        for genome in batched_kernels.genomes(epilogue)
    }
    for case in cases:
        fields = entries[case.layout, case.dtype, case.epilogue]
        for size, name in ((case.m, "m"), (case.n, "n"), (case.k, "k")):
            assert size % fields["dims"][name]["multiple_of"] == 0, case


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("packed", [True, False])
def test_operands_lie_as_the_problem_says(layout: str, packed: bool) -> None:
    problem = Problem(16, 24, 8, layout, "f16", packed=packed, batches=3)
    drawn = batch(problem, torch.Generator().manual_seed(1))
    for x, rows, columns, letter in ((drawn.a, 16, 8, layout[0]), (drawn.b, 8, 24, layout[1])):
        assert x.shape == (3, rows, columns)
        stored = x.mT if letter == "t" else x
        assert (stored if packed else stored.transpose(0, 1)).is_contiguous()
        assert 0.7 < float(x.float().std()) < 1.3
    assert drawn.c.shape == (3, 16, 24) and drawn.c.is_contiguous() and drawn.c.isnan().all()


CASE = batched.Case("squares", 3, 16, 24, 32, "nt", "bf16", True, "none")
SUM = CASE._replace(epilogue="residual")


def loaded(name: str, adds: bool) -> Loaded:
    steps, rows = DimRange(8, 1 << 24, 8), DimRange(1, 1 << 24, 1)
    kind = OF_BATCH["tma2_v1_addend" if adds else "tma2_v1"]
    entry = fake_driver.entry(
        *(kind, "nt", "bf16"),
        genome={"stages": 2, "tile_k": 64},
        grid=GridRule(16, 32, True),
        name=name,
        m=rows,
        n=steps,
        k=steps,
    )
    kernel = SimpleNamespace(name=name, workspace=lambda m, n: 0)
    return Loaded(entry, kernel)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", [CASE, SUM])
def test_the_fastest_right_kernel_is_confirmed(
    case: batched.Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fastest of four gets the last product wrong, the slowest is not among the best."""
    speed = {"wrong": 1.0, "fast": 2.0, "slow": 3.0, "slower": 4.0, "torch": 5.0}
    ran: list[str] = []

    def launch(
        kernel: Any, a: Any, b: Any, c: Any, workspace: Any = None, addend: Any = None
    ) -> None:
        ran.append(kernel.name)
        assert (addend is not None) == (case.epilogue == "residual")
        exact = a.float() @ b.float() + (0 if addend is None else addend.float())
        c.copy_(exact)
        if kernel.name == "wrong":
            c[-1] = 0

    def sample(
        arms: Callable[[batched.Drawn], Mapping[str, Any]],
        problem: Problem,
        protocol: str,
        blocks: int,
        seed: int,
    ) -> dict[str, list[float]]:
        drawn = batched.Drawn(problem, seed, protocol)
        found = {}
        for name, arm in arms(drawn).items():
            for one in drawn.sets:
                arm(one.a, one.b, one.c)
                assert not one.c.isnan().any()
            found[name] = [speed.get(ran[-1] if name == "ours" else name, 5.0)] * blocks
        return found

    monkeypatch.setattr(launcher, "launch", launch)
    monkeypatch.setattr(batched, "sample", sample)
    monkeypatch.setattr(batched, "DEVICE", CPU)
    monkeypatch.setattr(batched, "stage", lambda index: SimpleNamespace(l2_bytes=1 << 12))
    names = ("slower", "slow", "wrong", "fast")
    kernels = {name: loaded(name, case.epilogue == "residual") for name in names}
    other = {"other": loaded("other", case.epilogue != "residual")}
    found = batched.measure(case, kernels | other, 3)
    assert found["built"]["name"] == "fast" and found["speedup"]["cold"]["value"] == 2.5
    assert [*found["failed"]] == ["wrong"] and "elements wrong" in found["failed"]["wrong"]
    assert {*found["screened"]} == {*names} and found["numerics"]["shapes_tested"] > 70
    assert {*found["chosen"]["hot"]} == {"wrong", "fast", "slow", "torch"}


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases, asked = [CASE, SUM, CASE._replace(m=8)], list[batched.Case]()

    def measure(case: batched.Case, kernels: object, seed: int) -> dict[str, Any]:
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(case)
        return {"us": {}, "speedup": {"hot": {"value": 1.5}}}

    monkeypatch.setattr(batched, "load_all", lambda folder, device: {})
    monkeypatch.setattr(batched, "measure", measure)
    monkeypatch.setattr(batched, "every_case", lambda: iter(cases))
    monkeypatch.setattr(candidates, "runtime_versions", lambda index: {"torch": "2.11.0"})
    monkeypatch.setattr(launcher, "device_info", lambda index: DEVICE)
    out = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        batched.main(["run", str(tmp_path), str(out)])
    assert asked == cases[:2]
    asked[:] = []
    assert batched.main(["run", str(tmp_path), str(out)]) == 0 and asked == cases[2:]
    lines = [json.loads(text) for text in out.read_text().splitlines()]
    assert [each["case"] for each in lines if "case" in each] == [[*case] for case in cases]
    assert [each["header"]["device"]["name"] for each in lines if "header" in each] == [
        "NVIDIA H200"
    ] * 2


@pytest.mark.usefixtures("clean_process")
def test_winners_become_rows_of_a_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three problems: a win, a loss, and one of rows in turn whose bound is not above the noise."""
    win = batched.Case("scores", 32, 512, 512, 128, "nt", "bf16", True, "none")
    loss, close = win._replace(batches=64), win._replace(packed=False)
    genomes = [g for g in batched_kernels.genomes() if (g["layout"], g["dtype"]) == ("nt", "bf16")]
    path = tmp_path / "lines.jsonl"
    lines = [
        {"header": HEADER},
        line(win, genomes[0], 100.0, 1.15),
        line(loss, genomes[1], 130.0, 0.9),
        line(close, genomes[2], 119.0, 1.002),
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    places = [str(tmp_path / name) for name in ("source", "pack")]
    assert batched.main(["pack", str(path), *places]) == 0
    source = read_source(tmp_path / "source")
    assert source.launcher_abi == 7 and source.pack.name == "hgemm-packs-sm90a-batched"
    assert [kernel.genome for kernel in source.kernels] == [genomes[0]]
    named = {(row.batches, row.packed): row.kernel for row in source.table}
    assert [key for key, kernel in named.items() if kernel] == [(32, True)] and len(named) == 3
    monkeypatch.setenv("HGEMM_PACKS_PATH", str(tmp_path / "pack"))
    settings.cache_clear()
    select.reset()
    codes = {
        case: select.resolve(case.problem, 0, DEVICE).code
        for case in (win, loss, close, win._replace(batches=33))
    }
    wanted = ["kernel", "cublas_measured_better", "cublas_measured_better", "not_measured"]
    assert [*codes.values()] == wanted
