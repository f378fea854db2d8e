"""Problems without a row: kernels that a predictor of the pack chooses, through public matmul."""

from __future__ import annotations

import random

import pytest
import torch

import hgemm_packs
from hgemm_packs import matmul
from hgemm_packs.problem import DTYPES as NAMES
from hgemm_packs.problem import LAYOUTS, Problem
from tests import reference
from tests.gpu.conftest import Counts, exact, normal

pytestmark = pytest.mark.gpu
#: A call of more operations takes longer than its float64 reference is worth.
MOST_FLOP = 1e11


def drawn(count: int) -> list[Problem]:
    """Problems of log-uniform sizes, a third of them of odd ones, in every layout and type."""
    dice = random.Random(20261125)
    found: list[Problem] = []
    while len(found) < count:
        m, n, k = (round(2 ** dice.uniform(3, 13)) for _ in range(3))
        if dice.random() < 2 / 3:
            m, n, k = (max(8, side // 8 * 8) for side in (m, n, k))
        if 2.0 * m * n * k <= MOST_FLOP:
            found.append(Problem(m, n, k, dice.choice(LAYOUTS), dice.choice(NAMES)))
    return found


def test_predicted_products_are_right_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    predicted = 0
    for p in drawn(120):
        counts = Counts()
        a, b = normal(p)
        out = torch.full((p.m, p.n), torch.nan, dtype=a.dtype, device="cuda")
        matmul(a, b, out=out)
        moved = counts.moved()
        if not moved.get("predicted"):
            continue
        predicted += 1
        reference.assert_product(out, a, b)
        assert moved == {"hits": 1, "launches": 1, "predicted": 1}
        hgemm_packs.explain(a, b)
        assert "predicted" in capsys.readouterr().out
        a, b = exact(p, seed=1)
        reference.assert_exact(matmul(a, b), a, b)
    assert predicted >= 10, "the pack predicts next to nothing here"
