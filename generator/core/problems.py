"""Which problems are measured: the 1000-shape grid, the layers of real models, a user's own file.

Called by whatever measures or searches, and by the benchmarks that report by regime. The files are
read by `hgemm_packs.tuning.shapes`; nothing here knows their format.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from hgemm_packs.errors import PackError
from hgemm_packs.problem import DTYPES, LAYOUTS, Problem
from hgemm_packs.problem import REGIMES as REGIMES
from hgemm_packs.problem import regime as regime
from hgemm_packs.tuning import shapes

#: Committed lists, in manifests/shapes/.
NAMED = {
    "grid": "grid.toml",
    "llm": "llm_layers.toml",
    "engines": "llm_layers.toml",
    "serving": "serving.toml",
    "transposed": "transposed.toml",
    "unaligned": "unaligned.toml",
    "unaligned_sizes": "unaligned_sizes.toml",
    "drawn": "drawn.toml",
    "drawn_m65_512": "drawn_m65_512.toml",
    "drawn_m513_8192": "drawn_m513_8192.toml",
}

#: What engines run of the layers of "llm", in the same file.
ENGINES = "engines"

#: Layers of models are divided by their rows: few of them stream the weights, many compute.
LAYER_REGIMES = ("M<=256", "M>256")


def layer_regime(m: int) -> str:
    """The one of LAYER_REGIMES that a layer on `m` rows is in."""
    return LAYER_REGIMES[m > 256]


def _load(place: str | Path) -> shapes.Shapes:
    from hgemm_packs.cli.console import manifests_dir

    if place in NAMED:
        found = shapes.read(manifests_dir() / "shapes" / NAMED[str(place)])
        return found.of_engines() if place == ENGINES else found
    path = Path(place)
    if not path.is_file():
        raise PackError("unknown_shapes", f"{path} is no file, and no list of {sorted(NAMED)}")
    return shapes.read(path)


def cost(problem: Problem) -> tuple[int, int, int, str, str]:
    """What problems are ordered by: multiplications, then sides, layout and dtype."""
    p = problem
    return (p.m * p.n * p.k, p.m, p.n, p.layout, p.dtype)


def read(place: str | Path, models: Sequence[str] = ()) -> list[Problem]:
    """The problems of a list of NAMED or of a user's file, each once, cheapest first.

    `models` are patterns ("Llama 3.1 8B", "Qwen3 *") that leave only the layers of those models.
    Raises PackError, which names file, entry and field, and OSError.
    """
    return sorted(read_in_order(place, models), key=cost)


def read_in_order(place: str | Path, models: Sequence[str] = ()) -> list[Problem]:
    """The same problems in the order of the file. Raises what `read` does."""
    listed = _load(place)
    return list(dict.fromkeys((listed.restrict(models) if models else listed).problems()))


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
