"""The red team: what it tries is refused, and what gets through is written out as a case."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.agents.roles.red_team import REFUSED, THROUGH, UNDECIDED, RedTeam
from hgemm_packs.generator.compile import candidate
from hgemm_packs.generator.core.spec import Status, Verdict
from hgemm_packs.generator.evaluator.answer import Answer
from hgemm_packs.generator.evaluator.evaluator import Evaluator

from .grounds import PROBLEM, chat, ground

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECORD = 'RECORD: {"block": 32, "grid": {"tile_m": 16, "tile_n": 8}}'


def wrong(body: str) -> str:
    """A model's answer: a kernel that stores without a product."""
    return (
        f"It leaves out the product.\n```cuda\n"
        'extern "C" __global__ void __launch_bounds__(32) k(const unsigned short* a, '
        "const unsigned short* b, unsigned short* c, int m, int n, int key, int lda, int ldb, "
        f"int ldc) {{ {body} }}\n```\n{RECORD}\n"
    )


def team(text: str, **more: Any) -> RedTeam:
    return RedTeam(PROBLEM, Evaluator(), ground().device, chat(lambda _: text), **more)


@pytest.mark.parametrize(
    ("body", "gates"),
    [
        ("c[0] = clock();", {"static"}),
        ("c[0] = 0;", {"binary", "dataflow"}),
        ("this is no CUDA", {"build"}),
        ("c[threadIdx.x] = a[threadIdx.x];", {"binary", "dataflow"}),
    ],
)
def test_a_models_cheat_is_refused(tmp_path: Path, body: str, gates: set[str]) -> None:
    (found,) = team(wrong(body), out=tmp_path / "out").attack(1)
    assert found.outcome == REFUSED and found.gate in gates
    assert found.attack.what == "It leaves out the product."
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["", "no", "```\n__global__ void f() {}\n```"])
def test_an_answer_that_is_no_kernel_is_refused_by_the_record(text: str) -> None:
    (found,) = team(text).attack(1)
    assert (found.outcome, found.gate) == (REFUSED, "record")


def test_planted_faults_are_refused_or_left_to_the_gpu() -> None:
    found = RedTeam(PROBLEM, Evaluator(), ground().device).attack(4, seed=1)
    assert len(found) == 4
    assert {each.outcome for each in found} <= {REFUSED, UNDECIDED}
    assert REFUSED in {each.outcome for each in found}


def test_what_gets_through_becomes_a_case_that_eval_reads(tmp_path: Path) -> None:
    """Here every gate is a friend."""

    class Friend:
        def judge(self, one: Any, problem: Any) -> Answer:
            return Answer("OK", Verdict("timing", Status.OK), 1.0, "Correct.")

    (found,) = RedTeam(PROBLEM, Friend(), ground().device, None, tmp_path).attack(1, seed=1)
    assert found.outcome == THROUGH
    name = found.attack.name
    read = candidate.load(tmp_path / f"{name}.cu")
    made = found.attack.source
    assert made is not None and read.source.endswith(made.source)
    for field in ("block", "grid", "layout", "dtype", "smem_bytes", "tma", "cluster", "symbol"):
        assert read.fields[field] == made.fields[field], field
    (case,) = tomllib.loads((tmp_path / f"{name}.case.toml").read_text())["case"].items()
    assert case == (name, {"expect": "numeric", "what": " ".join(found.attack.what.split())})
