"""Problems on which the table is furthest from the floor, and kernels written for them by hand: a
model's place, taken once.

    python -m benchmarks.agents.byhand pick               # writes kernels/problems.json
    python -m benchmarks.agents.byhand brief 3            # what a model would be asked of the third
    python -m benchmarks.agents.byhand check              # the gates that need no GPU
    python -m benchmarks.agents.byhand run OUT.jsonl --seconds 540       # the rest, on a GPU
    python -m benchmarks.agents.byhand admit              # winners of the results to csrc/kernels

`kernels/` has the sources, each NAME.cu with its launch record NAME.toml, whose comment says what
was hoped of it. A name is REGIME_MxNxK_LAYOUT_DTYPE, perhaps with one word more.

`run` goes problem by problem: kernels that the CPU's gates pass meet the numeric gate and then one
another, the table's kernel and torch, interleaved. Those that are ahead go through the evaluator,
the fastest first, and are timed once more, with other inputs. "won" is a kernel that passed every
gate and is ahead of torch and of the table's kernel by more than the table's noise floor, hot and
cold, in the second timing. A line a kernel and stage is written at once; a run that is started
again goes on. `benchmarks.folders add agents/byhand OUT.jsonl` puts them into the results.

`admit` takes the winners of the results into csrc/kernels/free, each with its lineage, and says why
others stay out. `hgemm-packs generate measure free` then measures them by the table's protocol, on
a GPU.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.agents.byhand_admit import admit
from benchmarks.agents.byhand_problems import (
    Picked,
    pick,
    read_picked,
    sources,
    write_picked,
)
from benchmarks.agents.byhand_session import Session
from benchmarks.folders import RESULTS
from benchmarks.publish.summary import MANIFEST
from hgemm_packs.generator.compile.candidate import load
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.store.lines import read_records

LINES = RESULTS / "agents" / "byhand"


def brief(one: Picked) -> int:
    """What `generate solve` would ask a model of a problem, and where each part is from."""
    p = one.problem
    words = ["-m", "hgemm_packs", "generate", "solve", f"{p.m},{p.n},{p.k}", "--layout", p.layout]
    words += ["--dtype", p.dtype, "--write", "source", "--show-prompt"]
    return subprocess.run([sys.executable, *words], check=False).returncode


def check(picked: Sequence[Picked]) -> int:
    """Prints what the gates that need no GPU say of every source; how many they refuse."""
    refused = 0
    for one in picked:
        for path in sources(one):
            answer = Evaluator(None).judge(load(path), one.problem)
            refused += not answer.verdict.passed
            print(f"{path.stem}: {'passed' if answer.verdict.passed else answer.words}", flush=True)
    return refused


def _out_of_time(*_: object) -> None:
    raise TimeoutError("the seconds of the run are over; what is written stays")


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("pick")
    verbs.add_parser("brief").add_argument("number", type=int)
    verbs.add_parser("check")
    verbs.add_parser("admit")
    run = verbs.add_parser("run")
    run.add_argument("out", type=Path)
    run.add_argument("--seconds", type=int, default=540)
    given = parser.parse_args(words)
    if given.verb == "pick":
        write_picked(pick(read_source(MANIFEST)))
        return 0
    picked = read_picked()
    if given.verb == "brief":
        return brief(picked[given.number - 1])
    if given.verb == "check":
        return min(check(picked), 1)
    if given.verb == "admit":
        kernels = {kernel.name: kernel.id for kernel in read_source(MANIFEST).kernels}
        for words in admit(read_records([LINES]), picked, kernels):
            print(words, flush=True)
        return 0
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.alarm(given.seconds)
    try:
        Session(given.out, given.seconds, read_source(MANIFEST)).run(picked)
    except TimeoutError as error:
        print(error, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
