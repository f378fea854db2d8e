"""Fits the constants of the analytic prior (generator/search/analytic/constants.py) to screens of
all families and prints them. Run by hand when formulas or kernels change: needs no GPU, takes
seconds.

`python -m benchmarks.search.calibrate_prior [FAMILY...]` reads results/screens/. The
problems of the recordings are left out, in any layout and dtype: a search that is judged on them
has not seen them. What counts is the order within a problem, near the family's front and the
problem's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks import folders
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.devices.recording import complete_choice, load
from hgemm_packs.generator.families import FAMILIES
from hgemm_packs.generator.search.analytic import constants, roofline
from hgemm_packs.generator.search.analytic.features import Table
from hgemm_packs.generator.store.lines import read_records
from hgemm_packs.problem import Problem

RESULTS = Path(__file__).resolve().parents[1] / "results"
#: Where a weight has fallen to 1/e, in logs of time: behind the family's best of a problem, and of
#: the family's best behind the best of all; and what is left of a weight however far behind.
NEAR, FLOOR = 0.15, 0.02
OVER, OVER_FLOOR = 0.5, 0.05
LEVEL = 0.6  # weight of a problem's mean against the order within it
STAY = 0.03  # pull of each constant, in logs, to where it starts
#: Constants that are not fitted: the estimate steps with them, and a fit stops at the edge of a
#: step. What they mean is counted by the driver (`space.AT_ONCE`, over the SMs).
HELD = "fit_"
FIRST = 8  # choices that the printed quality is of

Array = NDArray[np.float64]
Constants = Mapping[str, float]
Formula = Callable[..., roofline.Terms]


@dataclass(frozen=True, slots=True)
class Screens:
    """Times of one family in one layout; `group` numbers the problems over all layouts."""

    m: Array
    n: Array
    k: Array
    layout: str
    columns: Mapping[str, Array]
    log_us: Array
    group: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Timed:
    """One choice on one problem."""

    problem: Problem
    choice: Choice
    us: float


def read_times() -> Iterator[Timed]:
    """Every time of the screens, but for the sizes that are recorded to judge searches."""
    judged = {
        (p.m, p.n, p.k)
        for path in (RESULTS / "replay").glob("*.npz")
        for p in load(path, any_catalogue=True)
    }
    for document in read_records(folders.list_files("screens")):
        choices = [complete_choice(name, genome) for name, genome in document["kernels"]]
        for screen in document["screens"]:
            if tuple(screen["problem"][:3]) not in judged:
                for number, us in screen["us"].items():
                    choice = choices[int(number)]
                    if choice is not None:
                        yield Timed(Problem(*screen["problem"]), choice, float(np.median(us)))


def parts_of(times: Sequence[Timed]) -> list[Screens]:
    """A family's times, layout by layout."""
    numbers = {problem: i for i, problem in enumerate(dict.fromkeys(t.problem for t in times))}
    parts = []
    for layout in dict.fromkeys(t.problem.layout for t in times):
        rows = [t for t in times if t.problem.layout == layout]
        m, n, k = np.array([(t.problem.m, t.problem.n, t.problem.k) for t in rows], dtype=float).T
        columns = next(Table([t.choice for t in rows]).parts()).columns
        log_us = np.log([t.us for t in rows])
        group = np.array([numbers[t.problem] for t in rows])
        parts.append(Screens(m, n, k, layout, columns, log_us, group))
    return parts


def weights(times: Sequence[Timed], best: Mapping[Problem, float]) -> Array:
    """How much each time counts, in the order of `parts_of`; `best` is of all families, in us."""
    ours: dict[Problem, float] = {}
    for t in times:
        ours[t.problem] = min(t.us, ours.get(t.problem, np.inf))
    layouts = dict.fromkeys(t.problem.layout for t in times)
    rows = [t for layout in layouts for t in times if t.problem.layout == layout]
    behind = np.log([t.us / ours[t.problem] for t in rows])
    family_behind = np.log([ours[t.problem] / best[t.problem] for t in rows])
    near = np.exp(-((behind / NEAR) ** 2)) + FLOOR
    return near * (np.exp(-((family_behind / OVER) ** 2)) + OVER_FLOOR)


def fit(
    formula: Formula, start: Constants, parts: Sequence[Screens], weight: Array
) -> tuple[dict[str, float], str]:
    """The constants that put the fast kernels of each problem in order, as they are written down,
    and how well they and those at the start do."""
    free = [name for name in start if not name.startswith(HELD)]
    first = np.log([start[name] for name in free])
    log_us = np.concatenate([part.log_us for part in parts])
    group = np.concatenate([part.group for part in parts])
    total = np.bincount(group, weight)

    def constants_of(logs: Array) -> dict[str, float]:
        return {**start, **dict(zip(free, np.exp(logs).tolist(), strict=True))}

    def estimate(values: Constants) -> Array:
        return np.log(np.concatenate([formula(p.columns, p, values).total for p in parts]))

    def off(logs: Array) -> Array:
        error = estimate(constants_of(logs)) - log_us
        mean = np.bincount(group, weight * error) / total
        within = (error - mean[group]) * np.sqrt(weight)
        pull = STAY * np.sqrt(len(log_us) / 100) * (logs - first)
        return np.concatenate([within, LEVEL * mean * np.sqrt(total), pull])

    done = least_squares(off, first, max_nfev=40, x_scale=0.3, loss="soft_l1", f_scale=0.15)
    found = {name: float(f"{value:.3g}") for name, value in constants_of(done.x).items()}
    quality = [_quality(estimate(values), log_us, group) for values in (start, found)]
    words = f"rows {len(log_us)}, problems {len(total)}: {quality[0]}, now {quality[1]}"
    return found, words


def _quality(estimate: Array, log_us: Array, group: NDArray[np.intp]) -> str:
    """Geometric means over problems: time of the best of the first FIRST, and of the first, over
    the best; and how far the estimates of the first are off."""
    logs = []
    for number in np.unique(group):
        guess, us = estimate[group == number], log_us[group == number]
        order = np.argsort(guess)[:FIRST]
        level = np.abs((guess - us)[order].mean())
        logs.append((us[order].min() - us.min(), us[order[0]] - us.min(), level))
    of_first, of_one, off = np.exp(np.mean(logs, axis=0))
    return f"best of {FIRST} {of_first:.3f}, first {of_one:.3f}, off {off:.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    screened = [name for name in FAMILIES if name not in constants.UNCALIBRATED]
    parser.add_argument(
        "family", nargs="*", default=screened, help="those to fit; all with screens"
    )
    wanted = parser.parse_args().family
    times = list(read_times())
    best: dict[Problem, float] = {}
    for t in times:
        best[t.problem] = min(t.us, best.get(t.problem, np.inf))
    for name in wanted:
        ours = [t for t in times if t.choice.family == name]
        listed = name.removeprefix("sm90_").upper()
        start: Constants = getattr(constants, listed)
        found, words = fit(roofline.MODELS[name], start, parts_of(ours), weights(ours, best))
        print(f"{name}: {words}", file=sys.stderr)
        print(f"{listed}: Mapping[str, float] = {{")
        for key, value in found.items():
            print(f'    "{key}": {value},')
        print("}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
