"""Sequential test between kernels: losers leave while the race runs, and the best rarely does.

Called by `contest`, which brings the times. Pure: blocks of times in, names out. A loser is told
from noise by an e-value, so that looking after every block costs nothing in certainty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

#: Times of one block: protocol -> arm -> us.
Block = Mapping[str, Mapping[str, float]]

#: Chance that the truly fastest arm is dropped, over a whole race, if noise is as modelled.
ERROR = 0.02
MIN_BLOCKS = 4  # before the first arm may leave
MAX_BLOCKS = 16
#: Two times closer than this are a tie: timer resolution, and clocks that wander between blocks.
RESOLUTION = 0.001
#: Differences expected between arms, in standard deviations of the noise of a block: 5% against
#: 0.5%. Sets where the test is strongest, not whether it is right.
EXPECTED = 10.0


def slower_evidence(differences: Sequence[float]) -> float:
    """E-value against "these differences have a mean of zero or less": how many times one's stake
    a bet on "more than zero" has won. Under the null it exceeds x, at any block, with a chance of
    at most 1/x.

    The likelihood ratio of Student's t with a normal prior on the effect in units of the unknown
    deviation (Lai, Ann. Statist. 4, 1976; Wang and Ramdas, arXiv:2310.03722). The deviation is
    never taken to be below RESOLUTION.
    """
    n = len(differences)
    mean = fmean(differences)
    if n < 2 or mean <= 0.0:
        return 0.0
    variance = math.fsum((d - mean) ** 2 for d in differences) / (n - 1) + RESOLUTION**2
    t2, spread = n * mean * mean / variance, 1.0 + n * EXPECTED**2
    power = (1.0 + t2 / (n - 1)) / (1.0 + t2 / ((n - 1) * spread))
    return math.exp(0.5 * (n * math.log(power) - math.log(spread)))


@dataclass(slots=True)
class RaceStandings:
    """Logarithms of each arm's times, hot and cold weighed alike, and who is still in."""

    names: Sequence[str]
    error: float = ERROR
    alive: list[str] = field(init=False)
    samples: dict[str, dict[str, list[float]]] = field(init=False, default_factory=dict)
    _logs: dict[str, list[float]] = field(init=False)

    def __post_init__(self) -> None:
        self.alive = list(self.names)
        self._logs = {name: [] for name in self.names}

    def add(self, block: Block) -> None:
        """Take in the times of the arms that are still in."""
        for protocol, times in block.items():
            arms = self.samples.setdefault(protocol, {name: [] for name in self.names})
            for name in self.alive:
                arms[name].append(times[name])
        for name in self.alive:
            self._logs[name].append(fmean(math.log(times[name]) for times in block.values()))

    def leader(self) -> str:
        """The arm in front: least mean of logarithms."""
        return min(self.alive, key=lambda name: fmean(self._logs[name]))

    def drop(self) -> list[str]:
        """Take out, and return, the arms that are slower than the leader beyond doubt.

        Any arm might be the leader by luck, so the error is shared out over all of them.
        """
        first = self.leader()
        if len(self._logs[first]) < MIN_BLOCKS:
            return []
        bar = max(1, len(self.names) - 1) / self.error
        lead = self._logs[first]
        gone = [
            name
            for name in self.alive
            if slower_evidence([b - a for a, b in zip(lead, self._logs[name], strict=True)]) > bar
        ]
        self.alive = [name for name in self.alive if name not in gone]
        return gone


def race(
    names: Sequence[str],
    measure: Callable[[Sequence[str]], Block],
    retire: Callable[[Sequence[str]], None] = lambda gone: None,
    *,
    blocks: int = MAX_BLOCKS,
    error: float = ERROR,
) -> RaceStandings:
    """Run blocks until one arm is left or `blocks` are done.

    `measure(alive)` times one block of the arms still in, `retire(gone)` hears who left. Raises
    ValueError without arms.
    """
    if not names:
        raise ValueError("a race needs arms")
    tally = RaceStandings(names, error)
    for _ in range(blocks):
        tally.add(measure(tally.alive))
        gone = tally.drop()
        if gone:
            retire(gone)
        if len(tally.alive) == 1:
            break
    return tally
