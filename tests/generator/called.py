"""Made-up lines of `generate measure public`, and a table of kernels that they may be of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hgemm_packs.generator.compile.pack_writer import SourceKernel, SourceManifest
from hgemm_packs.generator.tables import published
from hgemm_packs.pack.manifest import Row, Timing
from hgemm_packs.problem import Problem
from tests import packs

from .kernels import DIRECT

#: Ids of three kernels of the table.
A, B, C = (letter * 64 for letter in "abc")
NAMES = {A: "name_a", B: "name_b", C: "name_c"}
#: Of the same names, when they had another cubin.
FORMER = {A: "d" * 64, B: "e" * 64, C: "f" * 64}


def kernel(id_: str, name: str = "") -> SourceKernel:
    return SourceKernel(id_, name or NAMES[id_], "sm90_direct", DIRECT, packs.NUMERICS)


def identity(id_: str) -> str:
    return published.kernel_identity(kernel(id_, "any"))


def source(*rows: Row) -> SourceManifest:
    """A table with all three kernels, whatever its rows name."""
    return replace(packs.source([], list(rows)), kernels=tuple(map(kernel, NAMES)))


def row(
    problem: Problem,
    kernel: str | None,
    dependent: str | None = None,
    *,
    us: tuple[float, float] = (6.0, 8.0),
    torch: float = 12.0,
    tuned: float = 9.0,
    lcb: float = 1.0,
) -> Row:
    hot, cold = (Timing(ours, torch, tuned, torch / ours, lcb) for ours in us)
    return Row(*problem.key, kernel, packs.H200.name, hot, cold, 9, "2026-01-01", dependent)


def line(
    problem: Problem,
    kernels: Sequence[str],
    over: Mapping[str, float] | None = None,
    *,
    gap: float = 0.0,
    us: float = 100.0,
    **changes: Any,
) -> dict[str, Any]:
    """Of a row with these kernels: `over` is torch over ours by graph, 1.5 in what it leaves out;
    `us` ours took in each, and `gap` is what lies between single calls and is in these, too."""
    names = published.graphs(problem, len(kernels) == 2)
    ratios = {**dict.fromkeys(names, 1.5), **(over or {})}
    between = {name: gap if name == published.PLAIN else 0.0 for name in ratios}
    return {
        "problem": [*problem.key[:5]],
        "fields": ["problem"],
        "identities": [identity(id_) for id_ in kernels],
        "kernel": NAMES.get(kernels[0]),
        "dependent": NAMES.get(kernels[1]) if len(kernels) == 2 else None,
        "wrong": [],
        "us": {
            name: {
                "torch": [us * ratio + between[name]] * 3,
                "ours": [us + between[name]] * 3,
            }
            for name, ratio in ratios.items()
        },
        "gap_us": [gap] * 3,
        "fallbacks": 0,
        **changes,
    }
