"""Every way in which a Hub goes wrong that `faults` knows: refused or got over, cache intact."""

from __future__ import annotations

import pytest

from tests.distribution.hub import faults
from tests.distribution.world import World


@pytest.mark.parametrize("case", faults.CASES, ids=lambda case: case.name)
def test_fault_is_refused_or_got_over(case: faults.Case, world: World) -> None:
    outcome = faults.run(case, world)
    assert outcome.handled, outcome
