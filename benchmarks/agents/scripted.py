"""Every cheat of the red team's corpus proposed by a scripted model: `scripted` of agents.json.

`python -m benchmarks.agents.scripted OUT.jsonl` serves the model on this machine, by the protocol
of OpenAI's chat completions, and puts what it says through client, synthesizer and evaluator.
Beside the cheats the model does what servers do: bodies that are no answer, refusals, replies that
are cut off, 429, 500, closed connections. It needs the extra `llm` and no GPU; gates that run
kernels are not asked, and what only they decide counts as undecided. A line a case goes to
OUT.jsonl, which is put into the results by `benchmarks.folders add agents/scripted OUT.jsonl`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.progress import track

from hgemm_packs.generator.llm.chat import Chat, Patience
from hgemm_packs.generator.llm.key import Key
from hgemm_packs.generator.llm.server import Server
from hgemm_packs.measure.lines_file import LinesFile
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


def chat(url: str) -> Chat:
    transport = Server(url, Key("no-key-is-needed"), timeout_s=10.0)
    patience = Patience(2, sleep=lambda _: None)
    return Chat(transport, "scripted", patience=patience, max_tokens=1000, most_tokens=2000)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    file = LinesFile(parser.parse_args(words).out)
    bypasses = 0

    def write(case: str, outcome: str, bypassed: bool) -> None:
        nonlocal bypasses
        bypasses += bypassed
        file.write({"case": case, "outcome": outcome, "bypassed": bypassed})

    for case in track(cheating.cheats(), "cheats"):
        with serve([say(cheating.says(case))]) as server:
            found = cheating.propose(case, chat(server.url))
        outcome = found.gate if found.status != cheating.UNMEASURED else "undecided"
        write(case.name, outcome, cheating.bypassed(case, found))
        if cheating.bypassed(case, found):
            print(f"{case.name}: expected {case.expect}, got {found.status}: {found.words[:200]}")
    case = cheating.cheats()[0]
    for what, step in FAILURES.items():
        with serve([step]) as server:
            came = cheating.came_of(case, chat(server.url))
        write(what, "no answer" if came is None else "an answer", came is not None)
    return int(bypasses > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
