"""Kernels of batches and of groups meet the checks of values too."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs.generator.gates.checker import Launch, Numeric, NumericError
from hgemm_packs.generator.gates.values import adapted
from tests.generator.gates import test_batched_gate as batches
from tests.generator.gates import test_grouped_gate as groups
from tests.generator.gates.values.faults import without_nan

CPU = torch.device("cpu")


def saturates(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    most = torch.finfo(c.dtype).max
    sums = a.float() @ b.float()
    c.copy_(torch.where(sums.isfinite(), sums.clamp(-most, most), sums))


def drops_in_the_second(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    """NaN of A in every product but the first."""
    batches.right(torch.cat([a[:1], without_nan(a[1:])]), b, c)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_a_right_batched_kernel_passes(layout: str) -> None:
    for adds in (False, True):
        entry, found = batches.entry(layout, adds), Numeric()
        adapted.check(entry, adapted.of_batch(entry, batches.right), CPU, 1, found)
        assert found.shapes_tested > 40


@pytest.mark.parametrize(
    ("kernel", "check"), [(saturates, "overflow"), (drops_in_the_second, "specials")]
)
def test_a_wrong_batched_kernel_is_refused(kernel: Launch, check: str) -> None:
    entry = batches.entry()
    with pytest.raises(NumericError, match=f"^{check} "):
        adapted.check(entry, adapted.of_batch(entry, kernel), CPU, 1, Numeric())


@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_a_right_grouped_kernel_passes(layout: str) -> None:
    entry, found = groups.entry(layout), Numeric()
    adapted.check(entry, adapted.of_groups(entry, groups.right), CPU, 1, found)
    assert found.shapes_tested > 40


def test_a_grouped_kernel_that_drops_nan_of_weights_is_refused() -> None:
    def drops(
        tokens: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor, out: torch.Tensor
    ) -> None:
        groups.right(tokens, without_nan(weights), ends, out)

    entry = groups.entry()
    with pytest.raises(NumericError, match=r"^places "):
        adapted.check(entry, adapted.of_groups(entry, drops), CPU, 1, Numeric())
