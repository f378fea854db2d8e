"""Whether what a stranger measured is what is measured here: a sample of rows, and the rule.

Called by `generate merge`. The sample is drawn by a seed that the stranger cannot know. A row
agrees where its kernel computes the right values, where its speed-ups over torch, hot and cold,
are within TOLERANCE of those here, and where a kernel that it names is ahead of torch. All kernels
of a sample must be right, and at most one row in ten may disagree: cards differ.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import NamedTuple

from hgemm_packs.generator.core.spec import PROTOCOLS
from hgemm_packs.generator.store.findings import Samples
from hgemm_packs.generator.tables.judge import paired_ratio
from hgemm_packs.pack.manifest import Row
from hgemm_packs.problem import Problem
from hgemm_packs.tuning.judge import Standing

LEAST, SHARE = 20, 0.05
TOLERANCE, MOST_DISAGREE = 0.05, 0.1


class Verdict(NamedTuple):
    """Of a sample: how many rows, what is said against each that disagrees, and whether the whole
    is accepted."""

    rows: int
    against: Mapping[Problem, str]
    accepted: bool


def draw(
    standing: Mapping[Problem, Standing], seed: int, count: int | None = None
) -> list[Problem]:
    """`count` problems, or a twentieth of all and at least LEAST."""
    wanted = max(LEAST, math.ceil(SHARE * len(standing))) if count is None else count
    names = sorted(standing, key=str)
    return random.Random(seed).sample(names, min(wanted, len(names)))


def disagreement(claimed: Row, kernel: str, samples: Samples) -> str:
    """What speaks against a row, given the samples of its kernel here; "" where nothing does."""
    said = {"hot": claimed.hot.speedup, "cold": claimed.cold.speedup}
    for protocol in PROTOCOLS:
        here = paired_ratio(samples[protocol], kernel)
        if abs(said[protocol] - here) > TOLERANCE * here:
            return f"{said[protocol]:.3f}x torch {protocol} was said, {here:.3f}x is measured"
        if claimed.kernel is not None and here <= 1.0:
            return f"a kernel is named that is not ahead {protocol}: {here:.3f}x torch"
    return ""


def judge_sample(against: Mapping[Problem, str], wrong: int, rows: int) -> Verdict:
    """The verdict on a sample of `rows`, of which `wrong` gave wrong values or failed."""
    said = {problem: words for problem, words in against.items() if words}
    accepted = not wrong and len(said) <= MOST_DISAGREE * rows
    return Verdict(rows, said, accepted and rows > 0)
