"""How long a kernel should take, from its genes and the problem alone: tiles against rooflines, in
waves.

The prior's words and its door: `terms` asks the formula of each family (`tma_model`,
`register_model`). It ranks and says what bounds a kernel, and is never used to claim a time.
"""

from __future__ import annotations

import numpy as np

from hgemm_packs.generator.search.analytic.features import Table
from hgemm_packs.generator.search.analytic.model import BOTTLENECKS, Sizes, Terms
from hgemm_packs.generator.search.analytic.register_model import REGISTER_MODELS
from hgemm_packs.generator.search.analytic.tma_model import TMA_MODELS

MODELS = {**TMA_MODELS, **REGISTER_MODELS}


def terms(rows: Table, problem: Sizes) -> Terms:
    """Terms of any valid choices. Raises KeyError for a family without a model."""
    found = {name: np.empty(len(rows)) for name in Terms.__dataclass_fields__}
    for part in rows.parts():
        of_part = MODELS[part.family](part.columns, problem)
        for name, values in found.items():
            values[part.rows] = getattr(of_part, name)
    return Terms(**found)


__all__ = ["BOTTLENECKS", "MODELS", "Sizes", "Terms", "terms"]
