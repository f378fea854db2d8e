"""Which problems a sweep measures: the 1000-shape grid and the layers of real models.

Called by `sweep`, which deals them to the GPUs, and by the benchmarks that report by regime.
"""

from __future__ import annotations

from collections.abc import Sequence

from hgemm_packs.problem import Problem

GRID_SIDES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 12288, 16384)


def regime(m: int, n: int, k: int) -> str:
    """The grid's regimes, named as in the published tables; the first that fits."""
    flops = 2 * m * n * k
    if flops <= 1e8:
        return "tiny"
    if m * n <= 512**2 and k >= 2048:
        return "deep-K"
    if k <= 256 and m * n >= 1024**2:
        return "small-K"
    if min(m, n) <= 256 and max(m, n) >= 2048 and k >= 1024:
        return "skinny"
    if flops <= 2e10:
        return "mid"
    return "2e10..1e11" if flops < 1e11 else ">=1e11"


def grid(layouts: Sequence[str], dtypes: Sequence[str], regimes: Sequence[str]) -> list[Problem]:
    """The 1000-shape grid in the given layouts and dtypes, cheapest first; no regimes means all."""
    problems = [
        Problem(m, n, k, layout, dtype)
        for m in GRID_SIDES
        for n in GRID_SIDES
        for k in GRID_SIDES
        for layout in layouts
        for dtype in dtypes
        if not regimes or regime(m, n, k) in regimes
    ]
    return sorted(problems, key=lambda p: (p.m * p.n * p.k, p.m, p.n, p.layout, p.dtype))


def llm(dtypes: Sequence[str]) -> list[Problem]:
    """Every layer of the committed model list at each of its token counts, cheapest first."""
    from hgemm_packs.cli import layers
    from hgemm_packs.cli.console import manifests_dir

    listed = layers.read(manifests_dir() / "shapes" / "llm_layers.toml")
    problems = {
        problem
        for layer in listed.layers
        for dtype in dtypes
        for problem in listed.problems(layer, dtype)
    }
    return sorted(problems, key=lambda p: (p.m * p.n * p.k, p.m, p.n, p.dtype))
