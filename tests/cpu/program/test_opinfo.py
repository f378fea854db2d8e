"""torch's own samples of its products, on the stand-in driver: who runs them is all the same."""

from __future__ import annotations

import warnings

from tests import opinfo
from tests.campaign.sides import serve_all
from tests.cpu.program.common import SUMS
from tests.fake_driver import Started


def test_samples_under_enabled_and_through_matmul(fake: Started) -> None:
    serve_all(fake, *SUMS)
    tally = opinfo.Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's tests warn of what is not installed
        opinfo.check("cpu", fake.matmul, tally)
    assert not tally.failures, "\n".join(tally.failures[:5])
    assert tally.run > 600 and tally.hits > 100, (tally.run, tally.hits)
    # How many samples there are depends on torch's version.
    assert tally.skipped.keys() == {
        "_addmm_activation through matmul: a sum is no product alone",
        "addmm through matmul: a sum is no product alone",
        "baddbmm through matmul: a sum is no product alone",
        "nn.functional.linear through matmul: a layer with a bias is no product alone",
    }
    assert not [name for name in (*opinfo.NAMES, opinfo.ACTIVATED) if not tally.served[name]]
    assert sum(tally.skipped.values()) < tally.run / 2
