"""A mutant beside its honest kernel, bit by bit, on the CPU."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs.generator.gates.checker import Launch
from hgemm_packs.generator.redteam.mutation import compare
from hgemm_packs.pack.manifest import DimRange, KernelEntry
from tests.generator.gates import test_batched_gate as batches
from tests.generator.gates import test_grouped_gate as groups
from tests.generator.redteam.cheats import honest, made_up, truncates_output

CPU = torch.device("cpu")


def test_a_mutant_is_compared_bit_by_bit() -> None:
    """Truncation differs from rounding in some element of each product, an error in the order of
    sums in none of what is exact."""
    assert compare.differences((made_up(), made_up()), honest, honest, CPU, 1, count=9) == []
    found = compare.differences((made_up(), made_up()), honest, truncates_output, CPU, 1, count=9)
    assert len(found) >= 5
    assert all(text.endswith("bits differ") for text in found)

    def refuses(*arguments: torch.Tensor) -> None:
        raise ValueError("outside dims")

    found = compare.differences((made_up(), made_up()), honest, refuses, CPU, 1, count=2)
    assert [text.split(": ")[1] for text in found] == ["outside dims", "outside dims"]


def test_problems_are_those_that_both_records_admit() -> None:
    """A mutant's record that asks for more of K is no difference where both are launched."""
    deep = made_up()._replace(k=DimRange(96, 4096, 32), n=DimRange(8, 64, 8))
    both = compare.common(made_up(), deep)
    assert both.k.min == 96 and both.k.multiple_of % 32 == 0 and both.n.max == 64

    def picky(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        assert a.shape[1] >= 96 and a.shape[1] % 32 == 0 and b.shape[1] <= 64
        honest(a, b, c)

    assert compare.differences((made_up(), deep), honest, picky, CPU, 5, count=9) == []


def _first_with_addend(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, added: torch.Tensor
) -> None:
    """The last product is the first one's."""
    batches.right(a, b, c, added)
    c[-1] = c[0]


@pytest.mark.parametrize(
    ("record", "right", "wrong"),
    [
        (batches.entry(), batches.right, batches.first_again),
        (batches.entry("tn", adds=True), batches.right, _first_with_addend),
        (groups.entry(), groups.right, groups.behind),
    ],
    ids=["batches", "batches with an addend", "groups"],
)
def test_batches_and_groups_are_compared(
    record: KernelEntry, right: Launch, wrong: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "MOST_ELEMENTS", 1 << 14)
    assert compare.differences((record, record), right, right, CPU, 3, count=14) == []
    found = compare.differences((record, record), right, wrong, CPU, 3, count=14)
    assert len(found) >= 5
    assert all(text.endswith("bits differ") for text in found)


def test_a_batch_is_two_products_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher refuses one: three honest kernels' twins were said to differ for it."""

    def picky(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        if a.shape[0] == 1:
            raise ValueError("the shapes of a, b and out do not fit")
        batches.right(a, b, c)

    monkeypatch.setattr(compare, "MOST_ELEMENTS", 1 << 10)
    record = batches.entry()
    assert compare.differences((record, record), picky, picky, CPU, 3, count=40) == []


def test_values_are_of_their_kind() -> None:
    generator = torch.Generator().manual_seed(1)
    found = {kind: compare.values(kind, 200, 256, generator) for kind in compare.KINDS}
    assert found["constant"].unique().tolist() == [1.5]
    assert found["outliers"].abs().max() > 1e4
    assert found["specials"].isnan().any() and found["specials"].isinf().any()
    assert found["tiny"].abs().max() < 2.0**-11
    assert not found["zero blocks"][:, :64].any() and found["zero blocks"][:, 64:128].all()
    assert found["normal"].isfinite().all()
