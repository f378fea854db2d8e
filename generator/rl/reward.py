"""What the turns of an episode are worth together; what one is worth the evaluator's reward says.

Rewards are of screened times; what is published comes from confirmations alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.evaluator.reward import LEVEL, REWARDS

#: How much of a later turn's reward the turn before it is paid.
DISCOUNT = 0.4


def parts(status: str, reward: float) -> dict[str, float]:
    """The summands of an attempt's reward by name: `refused`, or `right` and `speed`.

    >>> parts("NUMERIC", -0.5), parts("OK", 0.1)
    ({'refused': -0.5}, {'right': 0.1, 'speed': 0.0})
    """
    if status in REWARDS:
        return {"refused": reward}
    return {"right": LEVEL, "speed": reward - LEVEL}


def returns(rewards: Sequence[float]) -> list[float]:
    """What each turn is worth: its reward, and those of later turns discounted by DISCOUNT.

    >>> returns([0.0, 0.5])
    [0.2, 0.5]
    """
    found: list[float] = []
    later = 0.0
    for reward in reversed(rewards):
        later = reward + DISCOUNT * later
        found.append(later)
    return found[::-1]


def episode_reward(rewards: Sequence[float]) -> float:
    """One number for a whole episode: the first turn's return on the scale of one reward, so that
    episodes of any length compare. Without a turn it is that of an answer that cannot be read."""
    if not rewards:
        return REWARDS[Status.PARSE.value]
    return returns(rewards)[0] / sum(DISCOUNT**turn for turn in range(len(rewards)))


def advantages(rewards: Sequence[float]) -> list[float]:
    """Each reward less the mean of the others of its group: a baseline without the sample itself.

    >>> advantages([1.0, 0.0, 0.0])
    [1.0, -0.5, -0.5]
    """
    if len(rewards) < 2:
        return [0.0] * len(rewards)
    total = math.fsum(rewards)
    return [reward - (total - reward) / (len(rewards) - 1) for reward in rewards]
