"""What a trainer is paid for one evaluated proposal.

Called by the evaluator for each answer; measures nothing. The figures are those of the design: a
rejection pays less the earlier it comes, a proved cheat the least, and a correct kernel by the
lower bound of its gain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from hgemm_packs.generator.core.spec import Status

#: Every gate that ran has passed, and nothing here has timed the kernel.
UNMEASURED: Final = "UNMEASURED"

#: Of a correct kernel: what a level one gets, and the bounds.
LEVEL, LEAST, MOST = 0.1, -0.4, 1.0

#: The reward of each status but those that a measured gain decides. UNMEASURED pays what the
#: slowest correct kernel gets: nobody gains by leaving what can be measured.
REWARDS: Final[Mapping[str, float]] = {
    Status.PARSE.value: -1.0,
    Status.STATIC.value: -1.0,
    Status.BUILD.value: -0.8,
    Status.BINARY.value: -0.8,
    Status.DATAFLOW.value: -0.8,
    Status.COVERAGE.value: -0.8,
    Status.LAUNCH.value: -0.6,
    Status.TIMEOUT.value: -0.6,
    Status.SANITIZER.value: -0.6,
    Status.NUMERIC.value: -0.5,
    Status.HACK.value: -1.5,
    UNMEASURED: LEAST,
}


def reward(status: str, lcb: float | None = None, floor: float = 0.0) -> float:
    """The reward of a status; of a correct kernel by `lcb`, the lower bound of its speed-up over
    the best baseline, of which a gain up to `floor`, the measured A/A noise as a share, counts as
    none. Raises ValueError for a correct kernel without a positive `lcb`, or for an unknown status.

    >>> reward("NUMERIC"), reward("OK", 1.02, floor=0.03), reward("OK", 2.0)
    (-0.5, 0.1, 1.0)
    """
    if status in REWARDS:
        return REWARDS[status]
    if status not in (Status.OK, Status.SLOWER, Status.NOISE):
        raise ValueError(f"no status {status!r}")
    if lcb is None or not lcb > 0:
        raise ValueError(f"{status} with a lower bound of {lcb}")
    gain = 0.0 if 1.0 <= lcb <= 1.0 + floor else math.log2(lcb)
    return min(MOST, max(LEAST, LEVEL + gain))
