"""Mutation operators: what is planted, one module a kind of fault.

The number of a mutant picks its operator by the order of `OPERATORS`: a new one goes to the end of
its module, and mutants of the numbers before it are then others.
"""

from __future__ import annotations

from hgemm_packs.generator.redteam.mutation.operators import (
    addresses,
    order,
    precision,
    records,
    resources,
    sizes,
    state,
    values,
)
from hgemm_packs.generator.redteam.mutation.operators.base import KINDS, Operator

OPERATORS: tuple[Operator, ...] = tuple(
    one
    for module in (values, sizes, addresses, state, order, precision, resources, records)
    for one in module.OPERATORS
)

__all__ = ["KINDS", "OPERATORS", "Operator"]
