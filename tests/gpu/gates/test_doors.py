"""The MCP door and `generate solve` on a real GPU: kernels that they judge are timed there."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.agents.journal import FILE
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.evaluator.served.requests import Limits
from hgemm_packs.generator.evaluator.served.service import Service
from hgemm_packs.problem import Problem
from tests.generator.evaluator.proposals import of_case, problem_of

pytestmark = pytest.mark.gpu

PROBLEM = Problem(512, 1024, 1024, "nt", "f16")
SIZES = {"m": PROBLEM.m, "n": PROBLEM.n, "k": PROBLEM.k}


def test_an_agent_has_kernels_timed_and_cheats_refused(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    import anyio
    from mcp.client import Client

    from hgemm_packs.generator.evaluator.served import mcp_door

    choice = next(each for each in Space(PROBLEM).core if each.family == "sm90_wgmma")
    cheat = of_case("b_of_the_other_layout")
    there = problem_of(cheat)
    calls = (
        ("evaluate_genome", {**SIZES, "family": choice.family, "genome": choice.genome}),
        (
            "evaluate_source",
            {
                **dict(zip(("m", "n", "k", "layout", "dtype"), there.key, strict=False)),
                "source": cheat.source,
                "record": cheat.record,
            },
        ),
    )

    async def run(service: Service) -> list[Any]:
        async with Client(mcp_door.server(service)) as client:
            said = [await client.call_tool(tool, given) for tool, given in calls]
        return [each.structured_content for each in said]

    with Service(tmp_path, ["gpu:0"], Limits()) as service:
        timed, refused = anyio.run(run, service)
    assert timed["correct"], timed
    assert set(timed["times"]) == {"hot", "cold"}
    means = math.prod(each["speedup"] for each in timed["times"].values()) ** 0.5
    assert timed["speedup"] == pytest.approx(means, abs=1e-3)
    assert not refused["correct"] and not refused["times"]
    assert refused["verdict"]["gate"] == "numeric", refused


def solve(*arguments: object) -> str:
    """What `generate solve` prints, in a process of its own."""
    command = [sys.executable, "-m", "hgemm_packs", "generate", "solve", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_rules_solve_a_problem_on_the_gpu(tmp_path: Path) -> None:
    sizes = f"{PROBLEM.m},{PROBLEM.n},{PROBLEM.k}"
    given = (sizes, "--device", "gpu", "--evaluations", 3, "--run", tmp_path)
    said = solve(*given)
    assert "ended: 3 evaluations are done" in said and "simulated" not in said
    best = re.search(r"best: \w+ \w+ ([\d.]+) us, ([\d.]+)x torch", said)
    assert best is not None and 0.0 < float(best[1]) < 1000.0
    assert f"{best[2]}&times;" in (tmp_path / "solve.html").read_text()
    # Given again, nothing is left to do and the journal stays as it is.
    journal = (tmp_path / FILE).read_bytes()
    solve(*given)
    assert (tmp_path / FILE).read_bytes() == journal
    assert len([json.loads(line) for line in journal.splitlines()]) > 3
