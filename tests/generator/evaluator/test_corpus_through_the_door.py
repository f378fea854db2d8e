"""Every cheat of the corpus that gates without a GPU decide, handed in over HTTP as an outsider
would: none gets through, and the honest ones do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.compile.candidate import FOREIGN
from hgemm_packs.generator.evaluator.served.requests import Limits
from hgemm_packs.generator.redteam import corpus
from tests.generator.agents.cheating import cheats, is_held_to_its_family
from tests.generator.evaluator.proposals import of_case, problem_of
from tests.generator.evaluator.serving import Client, job, serving

#: Gates that a candidate meets here, in their order.
MET = ("record", "static", "build", "binary", "dataflow", "coverage")
CHEATS = [c for c in cheats() if not c.needs_gpu and not is_held_to_its_family(c)]
HONEST = ("plain", "plain_bf16", "plain_tn")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    names = [*HONEST, *(case.name for case in CHEATS)]
    patch = pytest.MonkeyPatch()
    patch.setenv("HGEMM_PACKS_CACHE", str(tmp_path_factory.mktemp("cache")))
    limits = Limits(batch=len(names), body_bytes=1 << 24)
    with serving(tmp_path_factory.mktemp("corpus"), ["none"] * 2, limits) as (server, _):
        client = Client(server.server_address[:2])  # type: ignore[arg-type]
        jobs = [job(each, problem_of(each)) for each in map(of_case, names)]
        said = client.ask("POST", "/v1/batch", {"jobs": jobs})
        assert said.status == 202, said.body
        found = {}
        for name, each in zip(names, said.body["jobs"], strict=True):
            while not (seen := client.ask("GET", f"/v1/jobs/{each['id']}?wait=60").body)["answer"]:
                assert seen["error"] is None, seen
            found[name] = seen["answer"]
        yield found
    patch.undo()


def test_there_are_cheats_of_every_gate_that_needs_no_gpu() -> None:
    expected = {gate for case in CHEATS for gate in case.expect}
    assert expected >= {"static", "build", "binary", "dataflow", "coverage"}
    assert len(CHEATS) > 50


@pytest.mark.parametrize("case", CHEATS, ids=lambda case: case.name)
def test_a_cheat_is_refused(case: corpus.Case, answers: dict[str, Any]) -> None:
    """By the gate that the corpus names, or by one before it, which the corpus takes to be fooled.
    A change to a family's source is of no family here, and another gate may be the first to see
    it."""
    assert case.candidate is not None
    answer = answers[case.name]
    gate = answer["verdict"]["gate"]
    assert not answer["verdict"]["passed"] and not answer["correct"]
    assert gate in MET and answer["status"] not in ("OK", "UNMEASURED")
    if case.candidate.fields["family"] == FOREIGN:
        last = max(MET.index(each) for each in case.expect if each in MET)
        assert gate in case.fooled or MET.index(gate) <= last
    assert answer["reward"] in (-1.0, -0.8) and answer["times"] is None
    assert answer["words"].startswith(f"Refused by the {gate} gate")


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_kernel_passes(name: str, answers: dict[str, Any]) -> None:
    answer = answers[name]
    assert (answer["status"], answer["reward"]) == ("UNMEASURED", -0.4)
    assert [each["gate"] for each in answer["gates"]] == [*MET[1:]]


def test_no_header_of_the_machine_comes_in(answers: dict[str, Any], tmp_path: Path) -> None:
    """What the source includes is ours or nothing: the compiler reads no file of the server's."""
    from hgemm_packs.generator.evaluator.candidate import Candidate
    from hgemm_packs.generator.evaluator.evaluator import Evaluator
    from tests.generator.evaluator.proposals import PROBLEM

    secret = tmp_path / "secret.h"
    secret.write_text("#error hidden words", encoding="utf-8")
    record = {"block": 32, "grid": {"tile_m": 16, "tile_n": 8}}
    plain = of_case("plain").source
    for line in (f'#include "{secret}"', "#include <stdio.h>", '#include "../../secret.h"'):
        answer = Evaluator().evaluate(Candidate.of_source(f"{line}\n{plain}", record), PROBLEM)
        assert answer.status == "STATIC" and "hidden words" not in json.dumps(answer.document())
