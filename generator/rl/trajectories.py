"""What a run tried, turn by turn: each proposal with what it was made from, and what it was worth.

Read from a run's store, or from the turns of a run of agents, also while the run goes on. A
proposal's turn is its place in its line of descent; those that share a prompt are a group.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from hgemm_packs.generator.agents import turns as turns_of_agents
from hgemm_packs.generator.agents.words import RULE
from hgemm_packs.generator.core.spec import Choice, DeviceFacts, Outcome, Status
from hgemm_packs.generator.evaluator.reward import reward
from hgemm_packs.generator.families import FAMILIES, computed
from hgemm_packs.generator.rl.actions import ActionSpace, Message, messages, row_of
from hgemm_packs.generator.rl.reward import DISCOUNT, advantages, parts
from hgemm_packs.generator.store.reader import StoreReader
from hgemm_packs.generator.store.schema import digest
from hgemm_packs.measure.evidence import stray
from hgemm_packs.problem import Problem

Line = dict[str, Any]
#: Turns before its own that a prompt shows.
SHOWN = 3
#: Statuses that say nothing of a kernel's own faults once it was timed.
TIMED = frozenset((Status.OK, Status.SLOWER, Status.NOISE))


@dataclass(slots=True)
class Turn:
    """One proposal: `before` are the earlier turns of its line, oldest first; `after` those made
    from it."""

    problem: Problem
    outcome: Outcome
    reward: float
    speedup: float | None
    before: tuple[Turn, ...]
    after: list[Turn] = field(default_factory=list)

    @property
    def status(self) -> Status:
        return self.outcome.status

    @property
    def choice(self) -> Choice:
        return self.outcome.proposal.choice

    @property
    def gain(self) -> float:
        """Its reward, and what its children were worth, their mean discounted."""
        later = fmean(turn.gain for turn in self.after) if self.after else 0.0
        return self.reward + DISCOUNT * later

    @property
    def words(self) -> str:
        """The reply that a later turn's prompt shows."""
        if self.speedup is None:
            return self.status.value
        return f"{self.status.value}: {self.speedup:.2f} x torch, {self.outcome.us:.3g} us"


def read(store: StoreReader) -> list[Turn]:
    """Every screened or refused proposal of a run, in the order of asking, one for each problem and
    choice."""
    found: list[Turn] = []
    toolchains = [row[0] for row in store.db.execute("SELECT id FROM toolchain ORDER BY rowid")]
    for device in store.devices():
        floor, torch_us = _noise_floor(store, device), store.torch_us(device)
        for problem in store.problems():
            known: dict[str, Turn] = {}
            for toolchain in toolchains:
                for outcome in store.outcomes(problem, toolchain, device):
                    choice = outcome.proposal.choice
                    if choice.key not in known and _is_of_today(choice):
                        _add(known, problem, outcome, torch_us.get(problem), floor)
            found += known.values()
    return found


def _add(
    known: dict[str, Turn],
    problem: Problem,
    outcome: Outcome,
    torch_us: float | None,
    floor: float,
) -> None:
    timed = outcome.status in TIMED
    if timed and (torch_us is None or not 0 < outcome.us < math.inf):
        return
    speedup = torch_us / outcome.us if timed and torch_us is not None else None
    worth = reward(outcome.status.value, speedup, floor)
    # What was quarantined is in no prompt, so nothing descends from it.
    made_from = (known.get(key) for key in outcome.proposal.parents)
    parent = next((t for t in made_from if t and t.status is not Status.HACK), None)
    before = (*parent.before, parent) if parent else ()
    turn = Turn(problem, outcome, worth, speedup, before)
    known[turn.choice.key] = turn
    if parent:
        parent.after.append(turn)


def _is_of_today(choice: Choice) -> bool:
    """Whether its family still has just these genes: what is gone is no example."""
    listed = FAMILIES[choice.family].genes if choice.family in FAMILIES else {}
    return choice.genome.keys() - {computed.COMPUTES} == listed.keys()


def _noise_floor(store: StoreReader, device: DeviceFacts) -> float:
    """The widest hot A/A deviation that noise jobs on such a device found; 0 without one."""
    bounds = (
        done.reply.evidence.get("hot")
        for done in store.finished_jobs("noise")
        if done.reply.device is not None and done.reply.device.name == device.name
    )
    return max((stray(each) for each in bounds if each), default=0.0)


def lines(turns: list[Turn]) -> Iterator[Line]:
    """A record a turn, as docs/reinforcement.md lists the fields."""
    spaces = {
        problem: ActionSpace(t.choice for t in turns if t.problem == problem)
        for problem in dict.fromkeys(turn.problem for turn in turns)
    }
    yield from _with_advantages([_line(turn, spaces[turn.problem]) for turn in turns])


def lines_of_agents(run: turns_of_agents.Run) -> Iterator[Line]:
    """The same of a run of agents: what a model was asked and what it said, as they were. Built-in
    rules say what a model in their place would have."""
    worth = [turn.attempt.reward for turn in run.turns]
    place = {id(turn): i for i, turn in enumerate(run.turns)}
    later: list[list[float]] = [[] for _ in run.turns]
    for i, turn in reversed([*enumerate(run.turns)]):
        worth[i] += DISCOUNT * fmean(later[i]) if later[i] else 0.0
        if turn.before is not None:
            later[place[id(turn.before)]].append(worth[i])
    said = [(turn, gain) for turn, gain in zip(run.turns, worth, strict=True) if turn.said]
    yield from _with_advantages([_line_of_agents(run, turn, gain) for turn, gain in said])


def _line_of_agents(run: turns_of_agents.Run, turn: turns_of_agents.Turn, gain: float) -> Line:
    attempt, depth, before = turn.attempt, 0, turn.before
    while before is not None:
        depth, before = depth + 1, before.before
    parent = turn.before.attempt if turn.before else None
    return {
        "problem": row_of(run.problem),
        "group": digest(turn.asked)[:16],
        "turn": depth,
        "messages": [dict(each) for each in turn.asked],
        "completion": turn.said,
        "reward": round(attempt.reward, 6),
        "parts": _rounded(parts(turn.status, attempt.reward)),
        "return": round(gain, 6),
        "verdict": turn.status,
        "us": attempt.us if attempt.correct else None,
        "speedup": round(attempt.score, 6) if attempt.correct else None,
        "parent": parent and parent.key,
        "parent_us": parent.us if parent and parent.correct else None,
        "model": run.model or RULE,
        "operator": attempt.operator,
        "source": attempt.key,
    }


def _with_advantages(made: list[Line]) -> Iterator[Line]:
    groups: dict[str, list[float]] = {}
    for line in made:
        groups.setdefault(line["group"], []).append(line["reward"])
    centred = {name: iter(advantages(rewards)) for name, rewards in groups.items()}
    for line in made:
        yield {**line, "advantage": round(next(centred[line["group"]]), 6)}


def _line(turn: Turn, space: ActionSpace) -> Line:
    said: list[Message] = messages(
        turn.problem,
        space,
        [(space.text(each.choice), each.words) for each in turn.before[-SHOWN:]],
    )
    parent = turn.before[-1] if turn.before else None
    return {
        "problem": row_of(turn.problem),
        "group": digest(said)[:16],
        "turn": len(turn.before),
        "messages": said,
        "completion": space.text(turn.choice),
        "reward": round(turn.reward, 6),
        "parts": _rounded(parts(turn.status.value, turn.reward)),
        "return": round(turn.gain, 6),
        "verdict": turn.status.value,
        "us": turn.outcome.us if turn.speedup is not None else None,
        "speedup": None if turn.speedup is None else round(turn.speedup, 6),
        "parent": parent.choice.key if parent else None,
        "parent_us": parent.outcome.us if parent and parent.speedup is not None else None,
        "model": turn.outcome.proposal.proposer,
        "operator": turn.outcome.proposal.operator,
        "source": turn.choice.key,
    }


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}
