"""A small set of kernels that keeps nearly all that a large one gains.

Called by `table` before a pack is written and by the report for its curve. It knows gains only of
(kernel, problem) pairs that were measured and proven: a problem that loses its kernel goes to the
next such kernel of the set, or to cuBLAS, never to one that was not measured on it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

KEPT_SHARE = 0.99
Key = TypeVar("Key", bound=Hashable)

#: problem -> kernel id -> speed-up over the fallback, of proven pairs
Gains = Mapping[Key, Mapping[str, float]]
#: kernel id -> problem -> log of the speed-up, where it is above 1
Columns = Mapping[str, Mapping[Hashable, float]]


@dataclass(frozen=True, slots=True)
class Pruned:
    """`kernels` is the set, `share` what it keeps. `curve[i]` is (kernels kept, share kept) of the
    greedy order, from none to all that add anything; `full_value` and `value` are the geometric
    means of max(speed-up, 1) over the problems, with every kernel and with the set."""

    kernels: tuple[str, ...]
    share: float
    curve: tuple[tuple[int, float], ...]
    full_value: float
    value: float


def prune(gains: Gains[Key], keep: float = KEPT_SHARE) -> Pruned:
    """The set found by adding the kernel that gains most until `keep` is reached, then dropping
    every kernel without which `keep` still holds.

    The gain of a set S is G(S) = sum over problems of max(0, log of the best speed-up in S), and S
    keeps the share G(S) / G(all): of the mean log gain, which is stricter than the same share of
    the geometric mean, exp(G / problems), while that is below e. G is monotone and submodular, so
    i greedy kernels gain at least 1 - (1 - 1/j)^i of what any j kernels do (Nemhauser, Wolsey and
    Fisher 1978). Ties go to the smaller id. Raises ValueError unless 0 < keep <= 1.
    """
    if not 0.0 < keep <= 1.0:
        raise ValueError(f"a share of {keep} cannot be kept")
    columns = _columns(gains)
    full = _total(columns, columns)
    order, totals = _greedy(columns)
    count = next(i for i, total in enumerate(totals) if total >= keep * full)
    kept = _drop(columns, order[:count], keep * full)
    left = _total(columns, kept)
    problems = max(len(gains), 1)
    return Pruned(
        kernels=tuple(kept),
        share=left / full if full else 1.0,
        curve=tuple((i, total / full if full else 1.0) for i, total in enumerate(totals)),
        full_value=math.exp(full / problems),
        value=math.exp(left / problems),
    )


def _columns(gains: Gains[Key]) -> Columns:
    columns: dict[str, dict[Hashable, float]] = {}
    for problem, row in gains.items():
        for name, speedup in row.items():
            if speedup > 1.0:
                columns.setdefault(name, {})[problem] = math.log(speedup)
    return columns


def _total(columns: Columns, names: Iterable[str]) -> float:
    """G of a set. fsum rounds once, so equal sets have equal totals in any order."""
    best: dict[Hashable, float] = {}
    for name in names:
        for problem, log in columns[name].items():
            best[problem] = max(best.get(problem, 0.0), log)
    return math.fsum(best.values())


def _greedy(columns: Columns) -> tuple[list[str], list[float]]:
    """Kernels by what each adds to those before it, while it adds anything, and G of none, one,
    two of them and so on. What a kernel adds only falls as others come in, so an old figure is a
    bound and few are computed again (Minoux 1978)."""
    best: dict[Hashable, float] = {}

    def addition(name: str) -> float:
        return math.fsum(
            log - best.get(problem, 0.0)
            for problem, log in columns[name].items()
            if log > best.get(problem, 0.0)
        )

    heap = [(-addition(name), name) for name in columns]
    heapq.heapify(heap)
    order, totals = [], [0.0]
    while heap:
        _, name = heapq.heappop(heap)
        now = (-addition(name), name)
        if heap and now > heap[0]:
            heapq.heappush(heap, now)
        elif now[0] < 0.0:
            order.append(name)
            for problem, log in columns[name].items():
                best[problem] = max(best.get(problem, 0.0), log)
            totals.append(math.fsum(best.values()))
    return order, totals


def _drop(columns: Columns, names: Iterable[str], floor: float) -> list[str]:
    """`names` without those whose absence leaves G at `floor` or above, cheapest first."""
    kept = list(names)
    while kept:
        losses = dict.fromkeys(kept, 0.0)
        by_problem: dict[Hashable, list[tuple[float, str]]] = {}
        for name in kept:
            for problem, log in columns[name].items():
                by_problem.setdefault(problem, []).append((log, name))
        for row in by_problem.values():
            (first, name), (second, _) = heapq.nlargest(2, [*row, (0.0, "")])
            losses[name] += first - second
        cheapest = min(kept, key=lambda name: (losses[name], name))
        rest = [name for name in kept if name != cheapest]
        if _total(columns, rest) < floor:
            break
        kept = rest
    return kept
