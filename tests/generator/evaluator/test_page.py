"""docs/evaluator.md says what the code does: rewards, limits, pages, tools; and its examples
run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.core.problems import regime
from hgemm_packs.generator.devices.sim import SimDevice
from hgemm_packs.generator.evaluator import DEVICES, schema
from hgemm_packs.generator.evaluator.answer import STATUSES
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.evaluator.reward import LEAST, LEVEL, MOST, REWARDS
from hgemm_packs.generator.evaluator.served.http_door import ROUTES
from hgemm_packs.generator.evaluator.served.requests import Limits
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.problem import Problem
from tests.generator.evaluator import proposals
from tests.generator.evaluator.proposals import PROBLEM
from tests.generator.evaluator.serving import SIM, serving

PAGE = Path(__file__).resolve().parents[3] / "docs" / "evaluator.md"
TOKEN = "a-token-that-is-long-enough"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def rows(page: str, head: str) -> list[list[str]]:
    """The cells of a table that begins with a line."""
    lines = page[page.index(head) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_status_with_its_reward(page: str) -> None:
    said = {row[0]: row[1] for row in rows(page, "| status | reward |")}
    paid = {status: str(REWARDS.get(status, "by its gain")) for status in STATUSES}
    assert said == paid
    assert f"`{LEVEL} + log2(lcb)`, at least {LEAST} and at most {MOST:g}" in page


def test_every_limit(page: str) -> None:
    said = [int(re.sub(r"\D", "", row[0])) for row in rows(page, "| limit | of |")]
    limits = Limits()
    assert said == [
        *(limits.body_bytes, limits.source_chars, limits.dim, limits.operand_bytes),
        *(limits.batch, limits.waiting, limits.per_minute, limits.job_s, limits.connections),
    ]


def test_every_page_and_method(page: str) -> None:
    said = {row[0].strip("`").split("?")[0] for row in rows(page, "| page | does |")}
    served = {
        f"{method} /{'/'.join(words).replace('*', 'ID')}"
        for words, methods in ROUTES.items()
        for method in methods
    }
    assert said == served


def test_every_kind_of_device(page: str) -> None:
    said = [
        word for row in rows(page, "| `--device` |") for word in re.findall("`([^`]+)`", row[0])
    ]
    assert said == ["gpu", "gpu:1", "replay:FILE", "sim:SEED", "none"]
    assert sorted(said) == sorted(re.findall('"([^"]+)"', DEVICES))


def test_every_tool(page: str) -> None:
    pytest.importorskip("mcp")
    from hgemm_packs.generator.evaluator.served.mcp_door import Tools

    said = {row[0].strip("`") for row in rows(page, "| tool | does |")}
    assert said == {name for name in vars(Tools) if not name.startswith("_")}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("page"), [SIM], None, {"me": TOKEN}) as (server, _):
        yield server.url


def test_the_session_and_the_program_give_one_answer(
    page: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session, program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"URL": url, "TOKEN": TOKEN, "DEVICE": SIM}
    exec(session, names)
    assert names["families"] == schema.families_for(PROBLEM)
    assert names["job"]["state"] == "done"
    exec(program, names)
    assert names["same"].document() == names["answer"]
    assert (tmp_path / "answers.jsonl").read_text(encoding="utf-8").count("\n") == 1


def test_schemas_admit_the_catalogue_and_nothing_else() -> None:
    """What a model is told to write is what the families know."""
    for choice in proposals.choices(40):
        free = schema.genome_schema(choice.family, PROBLEM)
        genome = {gene: v for gene, v in choice.genome.items() if gene not in schema.OF_PROBLEM}
        assert sorted(genome) == free["required"] == sorted(free["properties"])
        assert all(value in free["properties"][gene]["enum"] for gene, value in genome.items())
    whole = schema.choice_schema(PROBLEM)["oneOf"]
    listed = [each["properties"]["family"]["const"] for each in whole]
    assert listed == schema.families_for(PROBLEM)
    assert {choice.family for choice in proposals.choices(5000)} <= set(listed)
    described = schema.families()
    assert set(described) == set(FAMILIES)
    assert all(each["about"].startswith(f"Family {name}") for name, each in described.items())


def test_a_problem_in_figures() -> None:
    problem = Problem(1024, 2048, 512, "nt", "bf16")
    facts = schema.problem_facts(problem, proposals.FACTS)
    assert facts["flops"] == 2 * 1024 * 2048 * 512
    assert facts["bytes"] == 2 * (1024 * 512 + 2048 * 512 + 1024 * 2048)
    assert facts["regime"] == regime(1024, 2048, 512)
    assert facts["least_hot_us"] == pytest.approx(facts["flops"] / 1000e6, abs=1e-3)
    assert facts["device"] == "NVIDIA H200"
    assert "device" not in schema.problem_facts(problem)
    assert "sm90_unaligned" not in facts["families"]
    odd = Problem(1024, 2047, 511, "nt", "bf16")
    assert "sm90_unaligned" in schema.problem_facts(odd)["families"]


def test_the_example_of_records_passes() -> None:
    from hgemm_packs.generator.evaluator.candidate import Candidate

    example = schema.records()["example"]
    problem = Problem(64, 64, 128, "nn", "f16")
    for device in (None, SimDevice(1)):
        answer = Evaluator(device).evaluate(Candidate.of_document(example), problem)
        assert answer.status == "UNMEASURED", answer.words
