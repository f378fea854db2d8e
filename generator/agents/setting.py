"""A run as a user asks for it: opens device, journal and examples, and puts the roles together.

Called by `generate solve`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from hgemm_packs.generator.agents import archive, turns
from hgemm_packs.generator.agents.archive import Example
from hgemm_packs.generator.agents.ground import Ground
from hgemm_packs.generator.agents.journal import Journal
from hgemm_packs.generator.agents.orchestrator import Limits, Orchestrator
from hgemm_packs.generator.agents.roles import profiler
from hgemm_packs.generator.agents.roles.reasoner import Reasoner
from hgemm_packs.generator.agents.roles.synthesizer import GENOME, SOURCE, Order, Synthesizer
from hgemm_packs.generator.agents.roles.verifier import Verifier
from hgemm_packs.generator.agents.show.page import Cost, page
from hgemm_packs.generator.agents.show.terminal import line, watching
from hgemm_packs.generator.compile.cache import write_atomically
from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import DeviceFacts
from hgemm_packs.generator.devices.replay import ReplayDevice
from hgemm_packs.generator.devices.sim import SimDevice
from hgemm_packs.generator.evaluator.evaluator import Evaluator
from hgemm_packs.generator.evaluator.places import Device, open_device
from hgemm_packs.generator.families import family
from hgemm_packs.generator.gates.isolation import Worker
from hgemm_packs.generator.llm.chat import Chat
from hgemm_packs.generator.redteam import corpus
from hgemm_packs.generator.run import evaluate
from hgemm_packs.generator.store.run_folder import Store
from hgemm_packs.problem import Problem

NOTHING = "no kernel passed every gate"


@dataclass(frozen=True, slots=True)
class Setting:
    """What is asked for. `device` is in the words of `evaluator.places.open_device`; `kind` is
    GENOME or SOURCE."""

    problem: Problem
    device: str
    folder: Path
    page: Path
    evaluations: int
    seconds: float | None = None
    kind: str = GENOME
    seed: int = 0
    examples: tuple[Path, ...] = ()


def solve_problem(setting: Setting, chat: Chat | None, out: Console) -> tuple[list[str], bool]:
    """Run, show, and write the page; returns what is to be said of the end, and whether any kernel
    passed every gate. Raises ValueError for what cannot be, StoreError for a folder of another run,
    and what the evaluator raises."""
    device, ground = open_ground(setting)
    journal = Journal(setting.folder, settings_of(setting, chat))
    try:
        with watching(out, str(setting.problem)) as watch:
            run = Orchestrator(
                ground,
                Reasoner(ground, chat, None if setting.kind == GENOME else ()),
                Synthesizer(ground, chat, setting.kind),
                Verifier(Evaluator(device), setting.problem),
                journal,
                Limits(evaluations=setting.evaluations, seconds=setting.seconds or math.inf),
                setting.seed,
                watch,
            )
            why = run.run()
    finally:
        journal.close()
    about = {"device": setting.device, "model": chat.model if chat else "none (built-in rules)"}
    spent = chat.budget if chat else None
    cost = Cost(run.spent_s)
    if spent is not None:
        cost = Cost(run.spent_s, spent.spent_tokens, spent.spent_money, spent.requests)
    text = page(run.tree, str(setting.problem), about, cost, why)
    write_atomically(setting.page, text.encode())
    said = [f"ended: {why}"]
    if setting.device.startswith("sim"):
        said.append("no GPU took part: every time is simulated")
    top = run.tree.best
    said.append(f"best: {line(top)}" if top else NOTHING)
    if top is not None and top.candidate is not None and "genome" in top.candidate:
        p = setting.problem
        sizes = f"{p.m} {p.n} {p.k} --layout {p.layout} --dtype {p.dtype}"
        said.append(f"hgemm-packs generate eval '{json.dumps(top.candidate)}' {sizes}")
    return [*said, f"page: {setting.page}"], top is not None


def show_prompts(setting: Setting, chat: Chat | None) -> Iterator[str]:
    """Prompts with the source of each part: all of the run in the folder, where there is one, else
    the first of each role that would ask a model."""
    if turns.is_run(setting.folder):
        yield from (prompt.show() for prompt in turns.prompts(setting.folder))
        return
    _, ground = open_ground(setting)
    first = profiler.profile(ground.ranked[0], setting.problem, ground.device)
    reasoner = Reasoner(ground, None, None if setting.kind == GENOME else ())
    yield reasoner.prompt(first, Limits().hypotheses).show()
    (hypothesis, *_), _ = reasoner.hypotheses(first, 1)
    asks = chat or Chat(None, "none")
    yield Synthesizer(ground, asks, setting.kind).prompt(Order(hypothesis)).show()


def settings_of(setting: Setting, chat: Chat | None) -> dict[str, object]:
    """What a run follows from, beside how long it may go on."""
    return {
        "problem": str(setting.problem),
        "device": setting.device,
        "seed": setting.seed,
        "write": setting.kind,
        "model": chat.model if chat else "",
    }


def open_ground(setting: Setting) -> tuple[Device, Ground]:
    """The device and where a run on it stands. Raises ValueError."""
    if setting.kind not in (GENOME, SOURCE):
        raise ValueError(f"a model writes {GENOME!r} or {SOURCE!r}, not {setting.kind!r}")
    device = open_device(setting.device)
    problem = setting.problem
    if isinstance(device, ReplayDevice):
        recorded = device.choices(problem)  # some of them are no valid genomes today
        listed = [each for each in recorded if family(each.family).is_valid(each.genome)]
        if not listed:
            raise ValueError(f"{setting.device} has no recording of {problem}")
        space = Space(problem, only=listed)
    else:
        space = Space(problem)
    if not space.core:
        raise ValueError(f"no family has a kernel for {problem}")
    facts = facts_of(device)
    found = [each for path in setting.examples for each in read_examples(path, problem, facts)]
    compiled = not isinstance(device, (ReplayDevice, SimDevice))
    return device, Ground(space, facts, tuple(found), compiled)


def facts_of(device: Device) -> DeviceFacts:
    """The machine: that of the device, or for gates without a GPU the one that claims are of."""
    if isinstance(device, (ReplayDevice, SimDevice)):
        return device.facts
    if device is None:
        return corpus.device_facts()
    with Worker() as worker:
        return evaluate.measure_facts(worker, device)


def read_examples(path: Path, problem: Problem, facts: DeviceFacts) -> list[Example]:
    """Examples of a run's folder, of a search or of agents, or of a file of an evaluator's answers.
    Raises StoreError, ValueError, OSError."""
    if turns.is_run(path):
        run = turns.read(path)
        return archive.of_run(run.problem, [each.attempt for each in run.turns], path.name, problem)
    if path.suffix == ".jsonl":
        return archive.of_answers(path, problem)
    with Store(path, readonly=True) as store:
        alike = next((each for each in store.devices() if each.name == facts.name), facts)
        return archive.of_store(store, path.name or os.fspath(path), problem, alike)
