"""The part of the numeric gate that chooses values: what users' tensors hold, and what a kernel
would have to hold to be wrong on them.

`CHECKS` are functions of a `Checker`, each of a few launches whose cases lie side by side in one
product; `places` where specials go, `edges` the ends of the types' ranges, `sums` and `depth` how
exact sums are, `contents` operands that are no random numbers.
"""

from __future__ import annotations

from collections.abc import Callable

from hgemm_packs.generator.gates.checker import Checker
from hgemm_packs.generator.gates.values.contents import (
    check_blocks,
    check_outliers,
    check_repeats,
    check_same_memory,
)
from hgemm_packs.generator.gates.values.depth import check_accumulator, check_lost_digits
from hgemm_packs.generator.gates.values.edges import (
    check_faint_gates,
    check_overflow,
    check_range,
    check_ties,
    check_zeros,
)
from hgemm_packs.generator.gates.values.places import check_places, check_specials
from hgemm_packs.generator.gates.values.sums import check_values

__all__ = ["CHECKS"]

CHECKS: tuple[Callable[[Checker], None], ...] = (
    check_accumulator,
    check_range,
    check_specials,
    check_places,
    check_overflow,
    check_faint_gates,
    check_ties,
    check_zeros,
    check_values,
    check_outliers,
    check_blocks,
    check_repeats,
    check_same_memory,
    check_lost_digits,
)
