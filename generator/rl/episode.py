"""One problem, a few turns: the state that every environment has, whoever drives it.

A turn is an action and its answer. An episode ends after its turns; what is said later is not
judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hgemm_packs.generator.rl import reward
from hgemm_packs.generator.rl.actions import messages, row_of, task
from hgemm_packs.generator.rl.judges import Judge, Judged
from hgemm_packs.problem import Problem

#: Turns of an episode where nothing else is said.
TURNS = 2
OVER = "the episode is over"


@dataclass
class Episode:
    """A problem before a judge. `only` asks for kernels of one family."""

    judge: Judge
    problem: Problem
    most_turns: int = TURNS
    only: str | None = None
    turns: list[tuple[str, Judged]] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return len(self.turns) >= self.most_turns

    @property
    def task(self) -> str:
        """The user message that opens it."""
        return task(self.problem, self.only)

    @property
    def reward(self) -> float:
        """Of the whole episode, as `reward.episode_reward` has it."""
        return reward.episode_reward([judged.reward for _, judged in self.turns])

    def step(self, action: str) -> str:
        """Judge an action; returns the words for the model."""
        if self.over:
            return OVER
        judged = self.judge.judge(self.problem, action, self.only)
        self.turns.append((action, judged))
        return judged.words

    def lines(self, **known: Any) -> list[Mapping[str, Any]]:
        """A line a turn, as an export has it; `known` are fields of all, like the model."""
        gains = reward.returns([judged.reward for _, judged in self.turns])
        said = [(action, judged.words) for action, judged in self.turns]
        return [
            {
                "problem": row_of(self.problem),
                "turn": turn,
                "messages": messages(self.problem, self.judge.space, said[:turn]),
                "completion": action,
                "reward": judged.reward,
                "parts": dict(judged.parts),
                "return": gains[turn],
                "verdict": judged.status,
                "detail": judged.words,
                "us": judged.us,
                "source": judged.choice,
                **known,
            }
            for turn, (action, judged) in enumerate(self.turns)
        ]
