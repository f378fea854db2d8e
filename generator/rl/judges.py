"""Who answers an action: recorded times of a GPU, in arrays, or the evaluator.

Called by episodes. Both say the same of an answer: status, speedup, reward with its parts, and
words for the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Protocol

from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.devices import recording
from hgemm_packs.generator.devices.recording import Screen
from hgemm_packs.generator.rl import reward
from hgemm_packs.generator.rl.actions import ActionSpace
from hgemm_packs.problem import Problem

#: The A/A deviation of screens on the H200 that was recorded: its table's own.
NOISE_FLOOR = 0.0081


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one action: `us` and `speedup` are None where nothing was measured, `choice`
    is the key of the choice, empty where the text was none."""

    status: Status
    words: str
    parts: Mapping[str, float]
    us: float | None = None
    speedup: float | None = None
    choice: str = ""

    @property
    def reward(self) -> float:
        return sum(self.parts.values())


class Judge(Protocol):
    """Answers actions of `space` on a problem."""

    space: ActionSpace

    def judge(self, problem: Problem, text: str, only: str | None = None) -> Judged:
        """What the action is worth. `only` refuses kernels of other families. Never raises for what
        a model wrote; raises KeyError for a problem that the judge cannot answer."""
        ...


@dataclass
class RecordedJudge:
    """Recorded screens: a choice's time is the median of its samples, and the baseline the faster
    of torch and cuBLASLt. Needs no GPU, and answers the same text at once the second time."""

    screens: Mapping[Problem, Screen]
    noise_floor: float = NOISE_FLOOR
    space: ActionSpace = field(init=False)
    _known: dict[tuple[Problem, str, str | None], Judged] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.space = ActionSpace({c for screen in self.screens.values() for c in screen.choices})

    @classmethod
    def read(cls, *paths: Path) -> RecordedJudge:
        """Of recordings' files. Raises what `recording.load` raises."""
        found: dict[Problem, Screen] = {}
        for path in paths:
            found |= recording.load(path, any_catalogue=True)
        return cls(found)

    def baseline_us(self, problem: Problem) -> float:
        """Time of the faster baseline in us."""
        return min(median(us) for us in self.screens[problem].baselines.values())

    def judge(self, problem: Problem, text: str, only: str | None = None) -> Judged:
        asked = (problem, text, only)
        found = self._known.get(asked)
        if found is None:
            found = self._known[asked] = self._judge(problem, text, only)
        return found

    def _judge(self, problem: Problem, text: str, only: str | None) -> Judged:
        screen = self.screens[problem]
        try:
            choice = self.space.parse(text, problem)
            if only is not None and choice.family != only:
                raise ValueError(f"a kernel of {only} was asked for, not of {choice.family}")
        except ValueError as error:
            return refused(Status.PARSE, str(error))
        row = screen.row.get(choice)
        if row is None:
            return refused(Status.LAUNCH, "not recorded", choice.key)
        status = screen.status[row]
        if status is not Status.OK:
            return refused(status, "as recorded", choice.key)
        us = float(screen.us[row])
        return timed(us, self.baseline_us(problem), self.noise_floor, choice.key)


def refused(status: Status, why: str, choice: str = "") -> Judged:
    """Of an action that no time was measured of."""
    return Judged(status, f"{status.value}: {why}", reward.parts(status, None, 0.0), choice=choice)


def timed(us: float, baseline_us: float, noise_floor: float, choice: str) -> Judged:
    """Of a kernel that is right and takes `us`."""
    speedup = baseline_us / us
    words = f"{Status.OK.value}: {speedup:.2f} x the best baseline, {us:.3g} us"
    parts = reward.parts(Status.OK, speedup, noise_floor)
    return Judged(Status.OK, words, parts, us, speedup, choice)
