"""The numeric gate's checks of values over the public `matmul`: what docs/numerics.md promises.

Operands are packed, as rows of tables are, and a problem has one size: a call gets the kernel that
a user's gets.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hgemm_packs.generator.gates.checker import GUARD, GUARD_BITS, Checker, Launch, Place
from hgemm_packs.generator.gates.values.contents import check_blocks, check_outliers, check_repeats
from hgemm_packs.generator.gates.values.depth import check_accumulator, check_lost_digits
from hgemm_packs.generator.gates.values.edges import (
    check_overflow,
    check_range,
    check_ties,
    check_zeros,
)
from hgemm_packs.generator.gates.values.places import check_places, check_specials
from hgemm_packs.generator.gates.values.sums import check_values
from hgemm_packs.pack.manifest import DimRange, KernelEntry
from hgemm_packs.problem import columns_of
from tests import reference

#: A promise of docs/numerics.md, by its heading there -> what holds a kernel to it.
PROMISES: dict[str, tuple[Callable[[Checker], None], ...]] = {
    "Sums": (check_values, check_accumulator, check_lost_digits),
    "NaN and infinities": (check_specials, check_places, check_blocks),
    "Overflow": (check_overflow, check_outliers),
    "Subnormal numbers": (check_range,),
    "Signs of zero": (check_zeros,),
    "Ties": (check_ties,),
    "Same values, same result": (check_repeats,),
}
promised = pytest.mark.parametrize("checks", PROMISES.values(), ids=PROMISES)


class Public(Checker):
    """Runs checks at one problem, on packed operands."""

    def __init__(
        self, entry: KernelEntry, m: int, n: int, k: int, launch: Launch, device: str
    ) -> None:
        only = {name: DimRange(size, size, 1) for name, size in (("m", m), ("n", n), ("k", k))}
        super().__init__(entry._replace(**only), launch, torch.device(device), seed=m + n + k)

    def store(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Both packed, as the layout stores them."""
        of_a, of_b = self.entry.layout
        stored = reference.stored(a, of_a), reference.stored(b, of_b)
        self.keep(*stored)
        return stored

    def place(self, a: torch.Tensor, b: torch.Tensor) -> Place:
        """A packed C between guards."""
        columns = columns_of(b.shape[1], self.entry.epilogue)
        shape = (a.shape[0] + 2 * GUARD, columns)
        bits = torch.full(shape, GUARD_BITS, dtype=torch.int16, device=self.device)
        return bits, bits.view(self.dtype)[GUARD : GUARD + a.shape[0]]


def hold(run: Checker, checks: tuple[Callable[[Checker], None], ...]) -> None:
    """Raises NumericError for the first of the checks that fails."""
    for check in checks:
        check(run)
        run.settle()


def same_bits(c: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Equal in every bit, signs of zero and NaN too."""
    return torch.equal(c.view(torch.int16), wanted.view(torch.int16))


def hostile(
    m: int, n: int, k: int, layout: str, dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normal operands with a NaN, infinities, zeros of either sign, subnormal and large numbers."""
    a, b = reference.normal(m, n, k, layout, dtype, device=device, seed=m)
    tiny, largest = torch.finfo(dtype).smallest_normal / 4, torch.finfo(dtype).max
    for x in (a, b):
        values = (torch.nan, torch.inf, -torch.inf, -0.0, tiny, -tiny, largest, -largest)
        for at, value in enumerate(values):
            x[(5 * at) % x.shape[0], (3 * at + 1) % x.shape[1]] = value
    return a, b
