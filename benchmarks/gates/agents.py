"""Every cheat of the red team's corpus proposed by a scripted model: `scripted` of agents.json.

`python -m benchmarks.gates.agents` serves the model on this machine, by the protocol of OpenAI's
chat completions, and puts what it says through client, synthesizer and evaluator. Beside the cheats
the model does what servers do: bodies that are no answer, refusals, replies that are cut off, 429,
500, closed connections. It needs the extra `llm` and no GPU; gates that run kernels are not asked,
and what only they decide counts as undecided.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from rich.progress import track

from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.llm.chat import Chat, Patience
from hgemm_packs.generator.llm.key import Key
from hgemm_packs.generator.llm.server import Server
from tests.generator.agents import cheating
from tests.generator.llm.scripted_server import (
    MALFORMED,
    Step,
    closed,
    cut_off,
    refuse,
    say,
    serve,
    status,
)

RESULTS = Path(__file__).resolve().parents[1] / "results"
FIGURES = RESULTS / "agents.json"
#: What the server does before it answers: each is one case more, of which no kernel may come.
FAILURES: dict[str, Step] = {
    **{f"body: {what}": step for what, step in MALFORMED.items()},
    **{f"status {code}": status(code) for code in (400, 401, 429, 500, 503)},
    "refusal": refuse(),
    "cut off": cut_off("```cuda\nextern"),
    "nothing said": say(""),
    "closed before": closed("before"),
    "closed within": closed("within"),
}


def update(figures: Path, part: dict[str, Any]) -> None:
    """Put top-level entries into the file of figures, and leave the others."""
    known = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}
    text = json.dumps({**known, **part}, indent=1, sort_keys=True)
    write_atomically(figures, f"{text}\n".encode())


def chat(url: str) -> Chat:
    transport = Server(url, Key("no-key-is-needed"), timeout_s=10.0)
    patience = Patience(2, sleep=lambda _: None)
    return Chat(transport, "scripted", patience=patience, max_tokens=1000, most_tokens=2000)


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    outcomes: Counter[str] = Counter()
    bypasses = []
    for case in track(cheating.cheats(), "cheats"):
        with serve([say(cheating.says(case))]) as server:
            found = cheating.propose(case, chat(server.url))
        outcomes[found.gate if found.status != cheating.UNMEASURED else "undecided"] += 1
        if cheating.bypassed(case, found):
            bypasses.append(case.name)
            print(f"{case.name}: expected {case.expect}, got {found.status}: {found.words[:200]}")
    case = cheating.cheats()[0]
    for what, step in FAILURES.items():
        with serve([step]) as server:
            came = cheating.came_of(case, chat(server.url))
        outcomes["no answer"] += came is None
        if came is not None:
            bypasses.append(what)
    figures = {
        "cases": sum(outcomes.values()),
        "gate_bypasses": len(bypasses),
        "outcomes": dict(sorted(outcomes.items())),
    }
    update(FIGURES, {"scripted": figures})
    print(json.dumps(figures))
    return bool(bypasses)


if __name__ == "__main__":
    sys.exit(main())
