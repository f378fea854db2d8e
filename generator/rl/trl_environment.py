"""An environment for trl: GRPOTrainer(environment_factory=factory(judge), ...).

Rows of the data set have m, n, k, layout and dtype (`actions.row_of`), and may have `only`, a
family. trl makes one environment a rollout and calls `reset`, `propose` and `get_reward`; nothing
here imports trl.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hgemm_packs.generator.rl.actions import problem_of
from hgemm_packs.generator.rl.episode import TURNS, Episode
from hgemm_packs.generator.rl.judges import Judge


class Rollout:
    """An episode behind the tool that a model calls."""

    def __init__(self, judge: Judge, turns: int = TURNS) -> None:
        self._judge = judge
        self._turns = turns
        self._episode: Episode | None = None

    def reset(self, **row: Any) -> str:
        """Begin with the problem of a row; returns the task in words. Raises ValueError for a row
        without a problem."""
        self._episode = Episode(self._judge, problem_of(row), self._turns, row.get("only") or None)
        return self._episode.task

    def propose(self, family: str, genome: dict) -> str:  # type: ignore[type-arg]
        """Have a kernel judged.

        Args:
            family: Name of the family of kernels.
            genome: The value of each gene.

        Returns:
            The verdict, and the speed beside the best baseline.
        """
        action = json.dumps({"family": family, "genome": genome}, separators=(",", ":"))
        return self._now.step(action)

    @property
    def _now(self) -> Episode:
        if self._episode is None:
            raise RuntimeError("reset comes before propose")
        return self._episode


class KernelEnvironment(Rollout):
    """The same, which also says what the episode is worth."""

    def get_reward(self) -> float:
        """The reward of the whole episode."""
        return self._now.reward


def factory(judge: Judge, turns: int = TURNS) -> Callable[[], KernelEnvironment]:
    """What trl calls for each rollout.

    >>> judge = RecordedJudge.read(Path("h200.npz"))                      # doctest: +SKIP
    >>> GRPOTrainer(model, environment_factory=factory(judge), ...)       # doctest: +SKIP
    """
    return lambda: KernelEnvironment(judge, turns)


def episode_of(rollout: Rollout) -> Episode:
    """The episode that a rollout has played: for rewards and lines of one's own."""
    return rollout._now
