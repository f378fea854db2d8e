"""`generate solve`: without a GPU and without a model, with a scripted one, killed and gone on
with."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.agents.journal import FILE
from hgemm_packs.generator.core.space import Space
from hgemm_packs.problem import Problem
from tests.generator.command import generate
from tests.generator.llm.scripted_server import Body, Step, say, serve, status

SIM = ("--device", "sim:3")
SIZES = "128,512,512"
PROBLEM = Problem(128, 512, 512, "nt", "f16")
REPLAY = Path(__file__).resolve().parents[3] / "benchmarks/results/replay/h200_held_out.npz"


def solved(*arguments: object) -> str:
    done = generate("solve", *arguments)
    assert (done.code, done.err) == (0, ""), done
    return done.out


def shown(path: Path) -> list[Any]:
    """The pieces of a journal but for the time that they took."""
    lines = [json.loads(line) for line in (path / FILE).read_bytes().splitlines()[1:]]
    for each in lines:
        each["piece"].pop("seconds")
    return sorted(lines, key=lambda each: str(each["name"]))


def test_by_rules_on_a_simulated_gpu(tmp_path: Path) -> None:
    said = solved(SIZES, *SIM, "--evaluations", 6, "--run", tmp_path / "run")
    assert "ended: 6 evaluations are done" in said
    assert "no GPU took part: every time is simulated" in said
    best = re.search(r"best: \w+ \w+ ([\d.]+) us, ([\d.]+)x torch", said)
    assert best is not None
    page = (tmp_path / "run" / "solve.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and f"{best[2]}&times;" in page


def test_the_line_that_it_ends_with_evaluates_the_winner(tmp_path: Path) -> None:
    said = solved(SIZES, *SIM, "--evaluations", 4, "--run", tmp_path / "run")
    command = next(line for line in said.splitlines() if line.startswith("hgemm-packs generate"))
    document = command[command.index("'") + 1 : command.rindex("'")]
    sizes = command[command.rindex("'") + 1 :].split()
    done = generate("eval", document, *sizes, *SIM)
    assert done.code == 0 and "timing" in done.out


def test_on_recorded_times(tmp_path: Path) -> None:
    options = ("--device", f"replay:{REPLAY}", "--layout", "nn", "--evaluations", 6)
    said = solved("512x512x512", *options, "--run", tmp_path / "run")
    assert "ended: 6 evaluations are done" in said and "simulated" not in said
    statuses = {
        each["piece"]["attempt"]["status"]
        for each in shown(tmp_path / "run")
        if "attempt" in each["piece"]
    }
    assert statuses <= {"OK", "SLOWER", "NOISE", "LAUNCH", "NUMERIC", "BUILD"}


def test_a_finished_run_is_shown_again_and_a_longer_one_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = solved(SIZES, *SIM, "--evaluations", 4, "--run", run)
    pieces = shown(run)
    assert solved(SIZES, *SIM, "--evaluations", 4, "--run", run) == first
    assert shown(run) == pieces
    solved(SIZES, *SIM, "--evaluations", 8, "--run", run)
    assert all(each in shown(run) for each in pieces)


def test_a_killed_run_goes_on_as_it_would_have(tmp_path: Path) -> None:
    """SIGKILL, a few times, at whatever it is doing."""
    arguments = ["solve", SIZES, *SIM, "--evaluations", "8", "--run"]
    command = [sys.executable, "-m", "hgemm_packs", "generate", *arguments, str(tmp_path / "k")]
    for pieces in (2, 6):
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ)
        )
        path = tmp_path / "k" / FILE
        while process.poll() is None:
            if path.exists() and path.read_bytes().count(b"\n") > pieces:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.01)
        process.wait()
    solved(*arguments[1:], tmp_path / "k")
    solved(*arguments[1:], tmp_path / "whole")
    assert shown(tmp_path / "k") == shown(tmp_path / "whole")


def test_the_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    solved(SIZES, *SIM, "--evaluations", 2, "--run", tmp_path)
    done = generate("solve", "256,512,512", *SIM, "--run", tmp_path)
    assert done.code == 2 and "is a run with problem '128x512x512 nt f16'" in done.err


def test_prompts_are_shown_with_the_source_of_each_part(tmp_path: Path) -> None:
    said = solved(SIZES, *SIM, "--show-prompt", "--run", tmp_path / "none")
    assert "=== prompt of the reasoner ===" in said and "=== prompt of the synthesizer ===" in said
    assert "--- The architecture  [from generator/agents/notes/architecture.md]" in said
    assert "--- The hypothesis to test  [from the reasoner (rule)]" in said
    assert not (tmp_path / "none").exists()


def test_a_run_without_a_kernel_that_passes_ends_with_1(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    options = ("--evaluations", 2, "--model", "m", "--run", tmp_path / "run")
    with serve([say("I cannot.")]) as server:
        done = generate("solve", SIZES, *SIM, *options, "--server", server.url)
    assert done.code == 1 and "no kernel passed every gate" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("512,x", *SIM), "'512,x' is no problem"),
        (("0,1,1", *SIM), "sizes are 1 or more"),
        ((SIZES, "--layout", "xx", *SIM), "layout='xx' is not one of"),
        ((SIZES, "--device", "moon"), "'moon' is no device"),
        (("512,512,512", "--device", f"replay:{REPLAY}"), "has no recording of 512x512x512 nt f16"),
        ((SIZES, "--write", "poem", *SIM), "a model writes 'genome' or 'source'"),
        ((SIZES, "--write", "source", *SIM), "only a model writes source"),
        ((SIZES, "--tokens", 5, *SIM), "name a --server"),
        ((SIZES, "--server", "http://127.0.0.1:1/v1", *SIM), "name the --model"),
        ((SIZES, "--server", "x", "--model", "m", *SIM), "begins with http"),
        ((SIZES, "--replay", "/no/such", "--model", "m", *SIM), "/no/such: No such file"),
        (
            (SIZES, "--server", "http://x/v1", "--model", "m", "--money", 1, *SIM),
            "--money wants --price",
        ),
        (
            (SIZES, "--server", "http://x/v1", "--model", "m", "--price", "a", *SIM),
            "--price is two numbers",
        ),
        ((SIZES, "--examples", "/no/such/run", *SIM), "no store at /no/such/run"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, arguments: tuple[object, ...], words: str) -> None:
    pytest.importorskip("openai")
    done = generate("solve", *arguments, "--run", tmp_path / "run")
    assert done.code == 2 and words in done.err, done


def answer(body: Body) -> Step:
    """A model that names kernels of the family that it is asked about; it fails at times."""
    if body["seed"] % 5 == 1:
        return status(400, "not this time")
    schema = body["response_format"]["json_schema"]["schema"]["properties"]
    if "hypotheses" in schema:
        return say("{}")
    (family,) = schema["family"]["enum"]
    own = [choice for choice in Space(PROBLEM).core if choice.family == family]
    genome = own[body["seed"] * 7 % len(own)].genome
    return say(json.dumps({"diagnosis": "d", "family": family, "genome": genome}))


def test_with_a_model_within_its_budget_and_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openai")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-solve-0123456789")
    tape = tmp_path / "talk.jsonl"
    budget = ("--tokens", 4_000_000, "--price", "1,2", "--money", 8)
    options = ("--evaluations", 4, "--model", "scripted")
    with serve(answer) as server:
        said = solved(
            *(SIZES, *SIM, *options, *budget, "--server", server.url),
            *("--record", tape, "--run", tmp_path / "live"),
        )
    assert server.headers[0]["authorization"] == "Bearer sk-solve-0123456789"
    assert "ended:" in said and tape.exists()
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert b"sk-solve-0123456789" not in path.read_bytes(), path
    page = (tmp_path / "live" / "solve.html").read_text()
    assert "<b>0</b>tokens" not in page and "model scripted" in page
    with serve([say("x")]) as server:  # nobody is asked again
        again = solved(
            *(SIZES, *SIM, *options, *budget, "--server", server.url, "--run", tmp_path / "live")
        )
        assert server.bodies == []
    assert again.splitlines()[-4:] == said.splitlines()[-4:]


NONE = ("--device", "none")


def test_planted_faults_do_not_get_through(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = generate("attack", SIZES, *NONE, "--count", 2, "--seed", 1, "--out", out)
    assert done.code == 0 and "0 of 2 got through" in done.out
    assert "mutant_1_0" in done.out and not out.exists()


def test_a_models_attack_is_shown_with_its_gate(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    kernel = 'extern "C" __global__ void k(unsigned short* c) { c[0] = clock(); }'
    record = '{"block": 32, "grid": {"tile_m": 16, "tile_n": 8}}'
    text = f"It tells the time.\n```cuda\n{kernel}\n```\nRECORD: {record}"
    options = ("--count", 1, "--model", "m", "--out", tmp_path / "out")
    with serve([say(text)]) as server:
        done = generate("attack", SIZES, *NONE, *options, "--server", server.url)
    assert done.code == 0 and "0 of 1 got through" in done.out
    assert re.search(r"attack_0_0 +│ refused +│ static +│ It tells the time\.", done.out)


def test_the_red_teams_prompt_is_shown(tmp_path: Path) -> None:
    done = generate("attack", SIZES, *NONE, "--show-prompt", "--out", tmp_path / "out")
    assert done.code == 0 and "=== prompt of the red team ===" in done.out
    assert "[from generator/evaluator/words.py]" in done.out


def test_a_server_that_is_gone_ends_an_attack_in_words(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    options = ("--model", "m", "--out", tmp_path / "out")
    with serve([status(403, "not you")]) as server:
        done = generate("attack", SIZES, *NONE, *options, "--server", server.url)
    assert done.code == 2 and "the server answered 403" in done.err
