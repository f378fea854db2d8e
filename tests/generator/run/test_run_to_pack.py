"""A whole run without a GPU: from a search over kernels that partly fail or cheat to the pack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hgemm_packs.generator import report
from hgemm_packs.generator.campaigns.refine import Refinement
from hgemm_packs.generator.core.space import Space, ahead
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.devices.sim import Faults, SimDevice, fake_kernel
from hgemm_packs.generator.run.generate import Budget, generate
from hgemm_packs.generator.search.rivals.exhaustive import Exhaustive
from hgemm_packs.generator.store import findings
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.generator.workers.evaluators import Inline
from hgemm_packs.problem import Problem
from tests.generator.command import Builder


def test_a_simulated_run_ends_in_a_table_of_honest_kernels(tmp_path: Path) -> None:
    problems = [Problem(256, 1024, k, "nt", "f16") for k in (512, 4096)]
    faults = Faults(launch=0.05, numeric=0.05, subtle=0.1, hack=0.1)
    device = SimDevice(7, faults)
    some = [Space(problem).core[::180] for problem in problems]
    spaces = {p: Space(p, only=only) for p, only in zip(problems, some, strict=True)}
    with Store(tmp_path / "run") as store, Inline(device) as evaluator:
        budget = Budget(100.0)
        search = (store, problems, Exhaustive(), Builder(), evaluator, budget)
        generate(*search, spaces=spaces.__getitem__, seed=1)
        seen = findings.read(store)
        pack = Refinement(store).write(tmp_path / "out", 1.0)
    with Store(tmp_path / "run", readonly=True) as store:
        report.write(store, tmp_path / "out")
    document = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert len(seen.attempts) == sum(map(len, some))
    right = {a.choice for a in seen.attempts if a.status is Status.OK} - {
        a.choice for a in seen.attempts if a.kernel in seen.refused
    }
    honest = {choice.key for only in some for choice in only if not device.fault(choice)}
    assert honest <= right
    rows = pack.manifest.table
    assert {row.key for row in rows} == {problem.key for problem in problems}
    every = [choice for only in some for choice in only]
    twins = [twin for choice in every if (twin := ahead(choice))]  # confirmed beside the winners
    names = {fake_kernel(choice).id: choice for choice in (*every, *twins)}
    won = {Problem(*row.key): names[row.kernel] for row in rows if row.kernel}
    assert won
    for problem, choice in won.items():
        assert not device.fault(choice)
        row = next(row for row in rows if row.key == problem.key)
        assert row.hot.us == pytest.approx(device.true_us(choice, problem), rel=0.02)
        assert row.cold.us == pytest.approx(device.true_us(choice, problem, cold=True), rel=0.02)
    assert document["pack"]["wins"] == len(won)
    assert document["search"]["final"]["all"] == pytest.approx(0.0, abs=1e-12)
    assert document["cost"]["gpu_seconds"] == pytest.approx(sum(seen.gpu_seconds.values()))
