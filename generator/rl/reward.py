"""What one attempt is worth, and what a turn is worth for those that follow it.

One place for recordings, evaluator and exports. Rewards are of screened times; what is published
comes from confirmations alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from hgemm_packs.generator.core.spec import Status

#: What a refusal costs: the earlier something is caught, the less there is to learn from.
REFUSED: Final[Mapping[Status, float]] = {
    Status.PARSE: -1.0,
    Status.STATIC: -1.0,
    Status.BUILD: -0.8,
    Status.DATAFLOW: -0.8,
    Status.COVERAGE: -0.8,
    Status.BINARY: -0.8,
    Status.LAUNCH: -0.6,
    Status.TIMEOUT: -0.6,
    Status.SANITIZER: -0.6,
    Status.NUMERIC: -0.5,
    Status.HACK: -1.5,
}
#: What being right is worth at the baseline's speed, and the bounds of a right answer's reward.
RIGHT, LEAST, MOST = 0.1, -0.4, 1.0
#: How much of a later turn's reward the turn before it is paid.
DISCOUNT = 0.4


def parts(status: Status, speedup: float | None, noise_floor: float) -> dict[str, float]:
    """The summands of an attempt's reward by name: `refused`, or `right` and `speed`.

    `speedup` is the best baseline's time over the kernel's, at its lower bound where there is one;
    a gain that `noise_floor` (0.01 is 1%) explains is none. Raises ValueError for a right answer
    without a time.

    >>> parts(Status.NUMERIC, None, 0.01)
    {'refused': -0.5}
    >>> parts(Status.OK, 2.0, 0.01)
    {'right': 0.1, 'speed': 0.9}
    """
    if status in REFUSED:
        return {"refused": REFUSED[status]}
    if speedup is None or not speedup > 0:
        raise ValueError(f"{status.value} without a time has no reward")
    gain = 0.0 if 1.0 < speedup <= 1.0 + noise_floor else math.log2(speedup)
    return {"right": RIGHT, "speed": min(max(RIGHT + gain, LEAST), MOST) - RIGHT}


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
        return REFUSED[Status.PARSE]
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
