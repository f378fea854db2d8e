"""The evaluator on a real GPU: a genome and free source are timed and paid, cheats that only a GPU
finds out are refused, by the door as well, and the GPU is locked while it measures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.evaluator import places
from hgemm_packs.generator.evaluator.answer import Answer
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.evaluator.places import open_device
from hgemm_packs.generator.store.filelock import LockHeld
from hgemm_packs.generator.workers.evaluators import gpu_lock, visible_gpu
from hgemm_packs.problem import Problem
from tests.generator.evaluator.proposals import of_case, of_choice, problem_of
from tests.generator.evaluator.serving import Client, serving

pytestmark = pytest.mark.gpu

PROBLEM = Problem(512, 1024, 1024, "nt", "f16")
#: Cases of the corpus that pass every gate without a GPU, with the gates that must refuse them.
CHEATS = {"b_of_the_other_layout": ("numeric",), "last_row_of_b_again": ("numeric",)}


@pytest.fixture(scope="module")
def answer() -> Answer:
    """Of the first kernel of the catalogue that is a pipelined wgmma one."""
    choice = next(each for each in Space(PROBLEM).core if each.family == "sm90_wgmma")
    return Evaluator(open_device("gpu")).evaluate(of_choice(choice), PROBLEM)


def test_a_genome_is_timed_and_paid(answer: Answer) -> None:
    assert answer.correct, answer.words
    assert [each.gate for each in answer.verdicts] == [
        *("static", "build", "binary", "dataflow", "coverage", "numeric", "state", "sanitizer"),
        *("plausibility", "timing"),
    ]
    assert set(answer.times) == {"hot", "cold"}
    for each in answer.times.values():
        assert 0 < each.us < 1000 and 0 < each.torch_us < 1000 and each.lcb <= each.speedup
    means = math.prod(each.speedup for each in answer.times.values()) ** 0.5
    assert answer.speedup == pytest.approx(means, abs=1e-3)
    assert -0.4 <= answer.reward <= 1.0
    if answer.status == "SLOWER":
        assert answer.reward <= 0.1
    facts = answer.facts
    assert 16 <= facts["registers"] <= 255 and facts["spilled_bytes"] == 0
    assert 0 < facts["efficiency"] <= 1.03
    assert facts["bottleneck"] in ("tensor", "bandwidth", "tail wave", "latency")
    assert "us; torch " in answer.words and "Limited by" in answer.words


def test_the_noise_of_a_gpu_is_measured_once() -> None:
    evaluator = Evaluator(0)
    floor = evaluator._floor(PROBLEM)
    assert 0.0 <= floor < 0.2
    assert evaluator._floor(PROBLEM) == floor


def test_free_source_is_timed() -> None:
    plain = of_case("plain")
    answer = Evaluator(0).evaluate(plain, problem_of(plain))
    assert answer.status in ("OK", "SLOWER", "NOISE"), answer.words
    assert answer.times["hot"].us > 0 and answer.verdicts[-1].gate == "timing"


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_that_only_a_gpu_sees_is_refused(name: str) -> None:
    one = of_case(name)
    answer = Evaluator(0).evaluate(one, problem_of(one))
    assert answer.verdict.gate in CHEATS[name] and not answer.times
    assert answer.reward == -0.5


def test_a_gpu_that_another_program_has_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "TURN_S", 0.2)
    plain = of_case("plain")
    held = gpu_lock(visible_gpu(0))
    try:
        with pytest.raises(LockHeld):
            Evaluator(0).evaluate(plain, problem_of(plain))
    finally:
        held.close()


def test_the_door_answers_for_a_gpu(tmp_path: Path) -> None:
    plain, cheat = of_case("plain"), of_case("b_of_the_other_layout")
    with serving(tmp_path / "jobs", ["gpu:0"]) as (server, _):
        address: Any = server.server_address[:2]
        said = Client(address).submit(plain, problem_of(plain), wait=300)
        assert said.body["answer"]["correct"], said.body
        assert said.body["answer"]["times"]["cold"]["us"] > 0
        said = Client(address).submit(cheat, problem_of(cheat), wait=300)
        assert said.body["answer"]["status"] == "NUMERIC", said.body
