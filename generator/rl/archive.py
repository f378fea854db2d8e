"""What a model is shown before it tries: episodes of kernels that were measured.

Made of recordings here; `exports` makes the same lines of a run. A later turn is always a kernel
that was faster than the one before, so that what is taught is to revise for speed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.rl.actions import task
from hgemm_packs.generator.rl.dialogue import TOOL, call_message
from hgemm_packs.generator.rl.episode import Episode
from hgemm_packs.generator.rl.judges import RecordedJudge
from hgemm_packs.problem import Problem

Message = dict[str, object]


@dataclass(frozen=True)
class Shown:
    """A dialogue up to one answer: `action` is the answer, None for the end of the dialogue."""

    messages: tuple[Message, ...]
    action: str | None


def draw(judge: RecordedJudge, count: int, turns: int, seed: int) -> list[Shown]:
    """`count` episodes of each recorded problem, one answer a line: kernels that work are drawn
    alike, whatever their speed, and every other episode asks for one family."""
    rng = random.Random(seed)
    found: list[Shown] = []
    for problem in judge.screens:
        worked = judge.working(problem)
        for at in range(count):
            only = rng.choice(worked).family if at % 2 else None
            listed = [c for c in worked if only in (None, c.family)]
            found += _shown(judge, problem, _revisions(judge, problem, listed, turns, rng), only)
    rng.shuffle(found)
    return found


def _revisions(
    judge: RecordedJudge, problem: Problem, listed: list[Choice], turns: int, rng: random.Random
) -> Iterator[Choice]:
    """A kernel, and then each time a faster one while there is one."""
    screen = judge.screens[problem]
    for _ in range(turns):
        choice = rng.choice(listed)
        yield choice
        us = screen.us[screen.row[choice]]
        listed = [c for c in listed if screen.us[screen.row[c]] < us] or [choice]


def _shown(
    judge: RecordedJudge, problem: Problem, choices: Iterator[Choice], only: str | None
) -> Iterator[Shown]:
    said: list[Message] = [{"role": "user", "content": task(problem, only)}]
    taken = [*choices]
    episode = Episode(judge, problem, len(taken), only)
    for choice in taken:
        action = judge.space.text(choice)
        yield Shown(tuple(said), action)
        reply = episode.step(action)
        said += [call_message(action), {"role": "tool", "name": TOOL, "content": reply}]
    yield Shown(tuple(said), None)
