"""Models of known quality beside the search, and branching against a chain, on recorded problems:
`mixed_vs_search`, `mixed_p` and `branching_p` of benchmarks/results/agents.json.

`python -m benchmarks.agents.replay` runs what is not on file yet; `benchmarks.agents.figures` sums
up. The models are scripted: of a proposal, a share of QUALITIES is drawn from the hundredth
of the recorded kernels that is fastest, the rest from all. No model, server or GPU takes part; the
prompts, the client and the reading of answers are those of a run.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from benchmarks.search import replay_search
from hgemm_packs.generator import agents, search
from hgemm_packs.generator.agents import context
from hgemm_packs.generator.agents.ground import Ground
from hgemm_packs.generator.agents.journal import Journal
from hgemm_packs.generator.agents.orchestrator import Limits, Orchestrator
from hgemm_packs.generator.agents.proposer import Mixed, Proposer
from hgemm_packs.generator.agents.roles.reasoner import Reasoner
from hgemm_packs.generator.agents.roles.synthesizer import Synthesizer
from hgemm_packs.generator.agents.roles.verifier import Verifier
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.devices.recording import SAMPLES, Screen
from hgemm_packs.generator.devices.replay import ReplayBench, ReplayDevice
from hgemm_packs.generator.evaluator.candidate import Candidate
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.llm.chat import Chat
from hgemm_packs.generator.llm.server import Failure
from hgemm_packs.generator.llm.words import Answer, Reply, Request, Usage
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.search import DEFAULT, STRATEGIES
from hgemm_packs.generator.search.rivals import compare
from hgemm_packs.generator.store import shards
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.problem import Problem

RECORDED = "h200_held_out"
RAW = replay_search.RESULTS / "agents" / "replay"
SCRATCH = replay_search.RESULTS / "scratch" / "agents.jsonl"
#: Seeds and problems that nobody had looked at when `Mixed` got its settings; before, these were 0
#: to 19, and each fifth problem from the first on.
SEEDS = range(100, 120)
FIRST, EVERY = 2, 5  # of the recorded problems each so manieth, for the sake of time
BUDGET, BATCH = 32, 8
#: Share of a model's proposals that are from the fastest hundredth.
QUALITIES = {"bad": 0.0, "fair": 0.2, "good": 0.6}
FASTEST = 100
#: Not worse: behind by less than this share of the optimum.
MARGIN = 0.01
#: All have as many evaluations; a chain follows one hypothesis to its end.
BRANCHING = Limits(evaluations=BUDGET, hypotheses=6, width=4, samples=2, patience=4)
CHAIN = Limits(evaluations=BUDGET, hypotheses=1, width=1, samples=2, patience=BUDGET)
#: As the chain, but that it gives up as a branch does, and asks for the next hypothesis.
SEQUENCE = Limits(evaluations=BUDGET, hypotheses=1, width=1, samples=2, patience=4)
LIMITS = {"branching": BRANCHING, "chain": CHAIN, "sequence": SEQUENCE}
#: Of the scripted hypotheses so many are true: their family has one of the fastest kernels.
TRUE_SHARE = 1 / 3

Line = dict[str, Any]
FIELDS = ("name", "seed", "sources")


class Scripted:
    """A model that knows the recording, and says what is fast with a known probability."""

    def __init__(self, screens: Mapping[Problem, Screen], quality: float, seed: int) -> None:
        facts = corpus.device_facts()
        self._screens = {context.task(p, facts).text: screen for p, screen in screens.items()}
        self._quality, self._seed = quality, seed

    def send(self, request: Request) -> Answer | Failure:
        text = request.messages[-1].content
        screen = next(each for task, each in self._screens.items() if task in text)
        rng = random.Random(f"{self._seed} {request.key}")
        assert request.schema is not None
        asked = request.schema["properties"]
        if "hypotheses" in asked:
            said = {"hypotheses": self._hypotheses(screen, asked["hypotheses"], rng)}
        elif "genomes" in asked:
            count = asked["genomes"]["maxItems"]
            said = {"genomes": [self._genome(screen, "", rng) for _ in range(count)]}
        else:
            family = asked["family"]["enum"][0]
            said = {"diagnosis": "scripted", **self._genome(screen, family, rng)}
        return Answer((Reply(json.dumps(said)),), Usage())

    def _genome(self, screen: Screen, family: str, rng: random.Random) -> dict[str, Any]:
        """A recorded kernel, of the family where one is named."""
        ranked = [c for c in fastest_first(screen) if not family or c.family == family]
        top = ranked[: max(1, len(ranked) // FASTEST)]
        choice = rng.choice(top if rng.random() < self._quality else ranked)
        return {"family": choice.family, "genome": choice.genome}

    def _hypotheses(self, screen: Screen, asked: Any, rng: random.Random) -> list[dict[str, Any]]:
        """Families in an order that is drawn: TRUE_SHARE of the time the next is one that has a
        kernel among the fastest, else any other."""
        ranked = fastest_first(screen)
        good = list(dict.fromkeys(c.family for c in ranked[: len(ranked) // FASTEST]))
        kinds = asked["items"]["anyOf"]
        families = [kind["properties"]["family"]["enum"][0] for kind in kinds]
        bad = [name for name in families if name not in good] or families
        found = []
        for number in range(asked["maxItems"]):
            name = rng.choice(good if rng.random() < TRUE_SHARE else bad)
            gene = rng.choice([g for g in ranked[0].genome if g not in ("layout", "dtype")])
            own = [c for c in ranked if c.family == name]
            genes = [gene] if gene in own[0].genome else [next(iter(own[0].genome))]
            found.append({"words": f"{name} {number}", "family": name, "genes": genes})
        return found


@functools.cache
def _order(key: int) -> list[Choice]:
    screen = _SCREENS[key]
    return [screen.choices[i] for i in np.argsort(screen.us, kind="stable")]


_SCREENS: dict[int, Screen] = {}


def fastest_first(screen: Screen) -> list[Choice]:
    """The recorded choices by their true times; those that failed last."""
    _SCREENS.setdefault(id(screen), screen)
    return _order(id(screen))


@functools.cache
def recorded() -> tuple[dict[Problem, Screen], dict[Problem, Any]]:
    screens, spaces = replay_search.recorded_spaces(RECORDED)
    kept = list(screens)[FIRST::EVERY]
    return {p: screens[p] for p in kept}, {p: spaces[p] for p in kept}


def chat(quality: float, seed: int) -> Chat:
    return Chat(Scripted(recorded()[0], quality, seed), "scripted")


def searched(name: str, seed: int) -> list[float]:
    """Share of the optimum of each problem after BUDGET measurements, of the search alone or of it
    with a model of a quality."""
    screens, spaces = recorded()
    strategy: Any = STRATEGIES[DEFAULT](seed)
    if name in QUALITIES:
        model = Proposer(seed, chat(QUALITIES[name], seed), corpus.device_facts())
        strategy = Mixed(seed, model, strategy)
    bench = ReplayBench(screens, spaces, seed)
    curves = compare.run(strategy, bench, list(spaces), seed, budget=BUDGET, batch=BATCH)
    return [curve[-1] for curve in curves.values()]


def branched(name: str, seed: int) -> list[float]:
    """The same of the roles, with a fair model, within LIMITS."""
    screens, spaces = recorded()
    device = ReplayDevice(screens, corpus.device_facts(), seed, SAMPLES)
    found = []
    for problem, space in spaces.items():
        here = Ground(space, device.facts)
        model = chat(QUALITIES["fair"], seed)
        run = Orchestrator(
            here,
            Reasoner(here, model),
            Synthesizer(here, model),
            Verifier(Evaluator(device), problem),
            Journal(None, {}),
            LIMITS[name],
            seed,
        )
        run.run()
        top = run.tree.best
        share = compare.NOTHING_WORKS
        if top is not None and top.candidate is not None:
            choice = Candidate.of_document(top.candidate).read(problem)
            assert isinstance(choice, Choice)
            screen = screens[problem]
            share = screen.optimum()[1] / float(screen.us[screen.row[choice]])
        found.append(share)
    return found


RUNS = {
    **dict.fromkeys(("search", *QUALITIES), searched),
    **dict.fromkeys(LIMITS, branched),
}


@functools.cache
def sources() -> str:
    """Digest of the recording, the settings and the code that every run follows from."""
    files = [Path(__file__), replay_search.path_of(RECORDED)]
    for package in (agents, search):
        files += Path(str(package.__file__)).parent.rglob("*.py")
        files += Path(str(package.__file__)).parent.rglob("*.md")
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def tasks() -> Iterator[tuple[str, int]]:
    for seed in SEEDS:
        yield from ((name, seed) for name in RUNS)


def run() -> list[Line]:
    """All lines: those on file that follow from today's sources, and the others done now."""
    SCRATCH.parent.mkdir(parents=True, exist_ok=True)
    kept = read_records([path for path in (RAW, SCRATCH) if path.exists()])
    lines = {tuple(line[field] for field in FIELDS): line for line in kept}
    wanted = [(name, seed, sources()) for name, seed in tasks()]
    with SCRATCH.open("ab") as file:
        os.truncate(SCRATCH, SCRATCH.read_bytes().rfind(b"\n") + 1)
        for key in track([key for key in wanted if key not in lines], "runs"):
            name, seed, _ = key
            shares = [round(share, 6) for share in RUNS[name](name, seed)]
            lines[key] = {**dict(zip(FIELDS, key, strict=True)), "shares": shares}
            file.write((json.dumps(lines[key], separators=(",", ":")) + "\n").encode())
            file.flush()
    return [lines[key] for key in wanted]


def newest(lines: Sequence[Line]) -> list[Line]:
    """Of all lines those of the sources that ran last, in the order of the tasks. Raises ValueError
    where a run lacks."""
    last = lines[-1]["sources"]
    found = {(line["name"], line["seed"]): line for line in lines if line["sources"] == last}
    if missing := [task for task in tasks() if task not in found]:
        raise ValueError(f"no line of {missing[0][0]} with seed {missing[0][1]}")
    return [found[task] for task in tasks()]


def summarise(lines: Sequence[Line]) -> dict[str, Any]:
    """Every figure. A seed's share is the geometric mean over problems. Of the qualities the worst
    counts: the least ratio to the search alone, and the largest p of the test that it is behind by
    less than MARGIN."""
    by_name: dict[str, list[float]] = {}
    for line in lines:
        by_name.setdefault(line["name"], []).append(compare.geometric_mean(line["shares"]))
    alone = np.array(by_name["search"])
    mean = {name: round(float(np.mean(shares)), 5) for name, shares in by_name.items()}
    not_worse = {name: compare.p_value(by_name[name], list(alone - MARGIN)) for name in QUALITIES}
    better = {name: compare.p_value(by_name[name], list(alone)) for name in QUALITIES}
    return {
        "mixed_vs_search": min(round(mean[name] / mean["search"], 5) for name in QUALITIES),
        "mixed_p": _p(max(not_worse.values())),
        "branching_p": _p(compare.p_value(by_name["branching"], by_name["chain"])),
        "replay": {
            "recording": RECORDED,
            "problems": len(lines[0]["shares"]),
            "seeds": len(alone),
            "budget": BUDGET,
            "margin": MARGIN,
            "test": "Wilcoxon signed rank, one-sided, seeds paired",
            "shares": mean,
            "not_worse_p": {name: _p(p) for name, p in not_worse.items()},
            "branching_over_sequence_p": _p(
                compare.p_value(by_name["branching"], by_name["sequence"])
            ),
            "better_p": {name: _p(p) for name, p in better.items()},
        },
    }


def _p(value: float) -> float:
    return float(f"{value:.3g}")


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    lines = run()
    known = read_records([RAW]) if RAW.exists() else []
    if any(line not in known for line in lines):
        RAW.mkdir(parents=True, exist_ok=True)
        number = len([*RAW.glob("*.jsonl.zip")]) + 1
        (RAW / f"{number:02}.jsonl.zip").write_bytes(shards.pack(lines))
    print(json.dumps(summarise(lines), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
