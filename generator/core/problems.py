"""Which problems are measured: the 1000-shape grid, the layers of real models, a user's own file.

Called by whatever measures or searches, and by the benchmarks that report by regime. The files are
read by `hgemm_packs.cli.shapes`; nothing here knows their format.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from hgemm_packs.cli import shapes
from hgemm_packs.errors import PackError
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.problem import DTYPES, LAYOUTS, Problem
from hgemm_packs.problem import REGIMES as REGIMES
from hgemm_packs.problem import regime as regime

#: Committed lists, in manifests/shapes/.
NAMED = {
    "grid": "grid.toml",
    "llm": "llm_layers.toml",
    "serving": "serving.toml",
    "transposed": "transposed.toml",
}

#: Layers of models are divided by their rows: few of them stream the weights, many compute.
LAYER_REGIMES = ("M<=256", "M>256")

#: A leading stride of a kernel's operands is a multiple of this many elements (16 bytes).
STEP = 8

LOGGER = logging.getLogger("hgemm_packs.generator")


def layer_regime(m: int) -> str:
    """The one of LAYER_REGIMES that a layer on `m` rows is in."""
    return LAYER_REGIMES[m > 256]


def _load(place: str | Path) -> shapes.Shapes:
    from hgemm_packs.cli.console import manifests_dir

    if place in NAMED:
        return shapes.read(manifests_dir() / "shapes" / NAMED[str(place)])
    path = Path(place)
    if not path.is_file():
        raise PackError("unknown_shapes", f"{path} is no file, and no list of {sorted(NAMED)}")
    return shapes.read(path)


def is_served(problem: Problem) -> bool:
    """Whether some family can have a kernel for it: a layout that one has, and N, K and, where A is
    stored [K,M], M (the leading strides) multiples of STEP. Any other problem stays with cuBLAS."""
    known = any(problem.layout in family.genes["layout"] for family in FAMILIES.values())
    strides = (problem.n, problem.k, *([problem.m] if problem.layout[0] == "t" else []))
    return known and all(stride % STEP == 0 for stride in strides)


def cost(problem: Problem) -> tuple[int, int, int, str, str]:
    """What problems are ordered by: multiplications, then sides, layout and dtype."""
    p = problem
    return (p.m * p.n * p.k, p.m, p.n, p.layout, p.dtype)


def read(place: str | Path, models: Sequence[str] = ()) -> list[Problem]:
    """The problems of a list of NAMED or of a user's file, each once, cheapest first.

    `models` are patterns ("Llama 3.1 8B", "Qwen3 *") that leave only the layers of those models.
    Problems that no family could serve are left out, with a count in the log, for a list of real
    layers may well hold some. Raises PackError, which names file, entry and field, and OSError.
    """
    listed = _load(place)
    asked = set((listed.restrict(models) if models else listed).problems())
    kept = sorted((p for p in asked if is_served(p)), key=cost)
    if len(kept) < len(asked):
        LOGGER.warning(
            "%s: %d of %d problems stay with cuBLAS: no kernel for their layout, or N or K not a "
            "multiple of %d",
            place,
            len(asked) - len(kept),
            len(asked),
            STEP,
        )
    return kept


def filter(
    problems: Iterable[Problem],
    layouts: Sequence[str] = (),
    dtypes: Sequence[str] = (),
    regimes: Sequence[str] = (),
    every: int = 1,
) -> list[Problem]:
    """Those in the given layouts, dtypes and regimes (none given: all), and of them each
    `every`-th, in their order. Raises ValueError for a word that is none of these."""
    for given, known in ((layouts, LAYOUTS), (dtypes, DTYPES), (regimes, REGIMES)):
        if not set(given) <= set(known):
            raise ValueError(f"{sorted(set(given) - set(known))} not in {known}")
    return [
        p
        for p in problems
        if (not layouts or p.layout in layouts)
        and (not dtypes or p.dtype in dtypes)
        and (not regimes or regime(p.m, p.n, p.k) in regimes)
    ][::every]


def grid_shapes() -> set[tuple[int, int, int]]:
    """(M, N, K) of the 1000-shape grid."""
    return {(p.m, p.n, p.k) for p in read("grid")}
