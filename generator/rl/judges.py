"""Who answers an action: here recorded times of a GPU; in `evaluator_judge` the evaluator.

Called by episodes. A judge says status, speedup, reward with its parts, and words for the model. A
recording has too few samples of a kernel for a lower bound of its gain: the median stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Protocol

from hgemm_packs.generator.core.spec import Choice, Status
from hgemm_packs.generator.devices import recording
from hgemm_packs.generator.devices.recording import Screen
from hgemm_packs.generator.evaluator.reward import UNMEASURED, reward
from hgemm_packs.generator.families import family
from hgemm_packs.generator.rl.actions import ActionSpace
from hgemm_packs.generator.rl.reward import parts
from hgemm_packs.problem import Problem

#: The A/A deviation of screens on the H200 that was recorded: its table's own.
NOISE_FLOOR = 0.0081
#: Characters of a reply to a model at most: of a list of genes the first will do.
MOST_WORDS = 200


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of one action: `us` and `speedup` are None where nothing was measured, `choice`
    is the key of the choice, empty where the text was none."""

    status: str
    words: str
    reward: float
    us: float | None = None
    speedup: float | None = None
    choice: str = ""

    @property
    def parts(self) -> Mapping[str, float]:
        """The summands of the reward by name."""
        return parts(self.status, self.reward)


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
        self.space = ActionSpace(self._of_today)

    @classmethod
    def read(cls, *paths: Path) -> RecordedJudge:
        """Of recordings' files. Raises what `recording.load` raises."""
        found: dict[Problem, Screen] = {}
        for path in paths:
            found |= recording.load(path, any_catalogue=True)
        return cls(found)

    @cached_property
    def _of_today(self) -> frozenset[Choice]:
        """Recorded choices that their families still know: rules have become stricter since."""
        listed = {c for screen in self.screens.values() for c in screen.choices}
        return frozenset(c for c in listed if family(c.family).is_valid(c.genome))

    def working(self, problem: Problem) -> list[Choice]:
        """The choices that an action can name and that were right, in the recording's order."""
        screen = self.screens[problem]
        return [
            choice
            for choice, status in zip(screen.choices, screen.status, strict=True)
            if status is Status.OK and choice in self._of_today
        ]

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
            check_family(choice.family, only)
        except ValueError as error:
            return refused(Status.PARSE, str(error))
        row = screen.row.get(choice)
        if row is None:
            words = f"{UNMEASURED}: no time of this kernel was recorded"
            return Judged(UNMEASURED, words, reward(UNMEASURED), choice=choice.key)
        status = screen.status[row]
        if status is not Status.OK:
            return refused(status, "as recorded", choice.key)
        us = float(screen.us[row])
        speedup = self.baseline_us(problem) / us
        worth = reward(Status.OK.value, speedup, self.noise_floor)
        return Judged(Status.OK.value, _words(speedup, us), worth, us, speedup, choice.key)


def check_family(name: str, only: str | None) -> None:
    """Raises ValueError where a kernel of another family was asked for."""
    if only is not None and name != only:
        raise ValueError(f"a kernel of {only} was asked for, not of {name}")


def refused(status: Status, why: str, choice: str = "") -> Judged:
    """Of an action that no time was measured of."""
    words = f"{status.value}: {why}"[:MOST_WORDS]
    return Judged(status.value, words, reward(status.value), choice=choice)


def _words(speedup: float, us: float) -> str:
    return f"{Status.OK.value}: {speedup:.2f} x the best baseline, {us:.3g} us"
