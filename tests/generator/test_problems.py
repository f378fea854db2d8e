"""Which problems are measured, and with which kernels."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from hgemm_packs.cli.console import manifests_dir
from hgemm_packs.cli.layers import tomllib
from hgemm_packs.generator.pool import pool
from hgemm_packs.generator.problems import GRID_SIDES, grid, llm, regime
from hgemm_packs.generator.shortlist import SAME_TILING, estimate_us, shortlist
from hgemm_packs.manifest import KernelEntry
from hgemm_packs.problem import Problem
from tests import shapes

from .kernels import entry_of

#: Shapes of the grid in each regime, as published with the first comparisons on it.
PUBLISHED = {
    "tiny": 120,
    "deep-K": 130,
    "small-K": 186,
    "skinny": 150,
    "mid": 161,
    "2e10..1e11": 75,
    ">=1e11": 178,
}


def test_regimes_are_the_published_ones() -> None:
    assert Counter(regime(*shape) for shape in shapes.grid()) == PUBLISHED
    assert sum(PUBLISHED.values()) == 1000


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        ((64, 64, 8192), "tiny"),  # 6.7e7 operations: before deep-K
        ((64, 64, 12288), "deep-K"),  # 1.007e8
        ((512, 512, 2048), "deep-K"),
        ((512, 513, 2048), "mid"),
        ((1024, 1024, 256), "small-K"),
        ((1024, 1024, 257), "mid"),
        ((256, 4096, 1024), "skinny"),
        ((4096, 256, 1024), "skinny"),
        ((257, 4096, 1024), "mid"),
        ((10000, 1000, 1000), "mid"),  # 2e10, the last of mid
        ((10000, 1000, 1001), "2e10..1e11"),
        ((10000, 10000, 500), ">=1e11"),
    ],
)
def test_regime_edges(shape: tuple[int, int, int], name: str) -> None:
    assert regime(*shape) == name


def test_the_grid_has_each_problem_once_cheapest_first() -> None:
    problems = grid(["nn", "nt"], ["f16", "bf16"], [])
    assert {(p.m, p.n, p.k) for p in problems} == set(shapes.grid())
    assert len(problems) == len(set(problems)) == 4 * 1000
    costs = [p.m * p.n * p.k for p in problems]
    assert costs == sorted(costs)
    assert GRID_SIDES == shapes.GRID_SIDES


def test_the_grid_by_regime() -> None:
    parts = [grid(["nt"], ["f16"], [name]) for name in PUBLISHED]
    assert [len(part) for part in parts] == list(PUBLISHED.values())
    assert set().union(*parts) == set(grid(["nt"], ["f16"], []))
    assert len(grid(["nt"], ["f16"], ["tiny", "mid"])) == 120 + 161


def test_layers_are_the_models_own_each_problem_once() -> None:
    """The shapes again, from the configurations alone."""
    text = (manifests_dir() / "shapes" / "llm_layers.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    expected = set()
    for c in document["model"]:
        hidden, inner, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
        q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
        weights = {(q, hidden), (kv, hidden), (q + 2 * kv, hidden), (hidden, q)}
        weights |= {(inner, hidden), (2 * inner, hidden), (hidden, inner)}
        weights |= {(c["vocab_size"], hidden)}
        expected |= {(m, n, k) for n, k in weights for m in document["m"]}
    problems = llm(["f16", "bf16"])
    assert len(problems) == len(set(problems)) == 2 * len(expected)
    assert {(p.m, p.n, p.k) for p in problems} == expected
    assert {(p.layout, p.dtype) for p in problems} == {("nt", "f16"), ("nt", "bf16")}
    costs = [p.m * p.n * p.k for p in problems]
    assert costs == sorted(costs)


# --- shortlist ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kernels() -> list[KernelEntry]:
    return [
        entry_of(job)
        for kind in (("nn", "f16"), ("nt", "f16"), ("nt", "bf16"))
        for job in pool(*kind)
    ]


def _tiling(entry: KernelEntry) -> tuple[object, ...]:
    genes = (entry.genome.get(gene) for gene in ("schedule", "split_k"))
    return (entry.family, entry.grid.tile_m, entry.grid.tile_n, *genes)


@pytest.mark.parametrize(
    "problem",
    [
        Problem(64, 64, 64, "nt", "f16"),
        Problem(1, 40, 8, "nt", "f16"),
        Problem(256, 512, 12288, "nn", "f16"),
        Problem(8192, 8192, 8192, "nt", "bf16"),
    ],
    ids=str,
)
@pytest.mark.parametrize("limit", [1, 12, 40])
def test_a_shortlist_is_admitted_bounded_and_diverse(
    kernels: list[KernelEntry], problem: Problem, limit: int
) -> None:
    found = shortlist(kernels, problem, limit)
    assert 0 < len(found) <= limit
    assert all(entry.admits(problem) is None for entry in found)
    per_tiling = Counter(map(_tiling, found))
    assert max(per_tiling.values()) <= SAME_TILING
    # Whoever was left out is slower by the estimate, or of a tiling that is full.
    last = max(estimate_us(entry, problem) for entry in found)
    for entry in kernels:
        if entry not in found and entry.admits(problem) is None and len(found) == limit:
            full = per_tiling[_tiling(entry)] == SAME_TILING
            assert full or estimate_us(entry, problem) >= last


def test_a_shortlist_is_the_same_whatever_the_order_of_the_pack(kernels: list[KernelEntry]) -> None:
    for problem in (Problem(512, 512, 512, "nt", "f16"), Problem(4096, 4096, 128, "nt", "f16")):
        expected = [entry.name for entry in shortlist(kernels, problem, 20)]
        assert len(set(expected)) == 20
        for seed in range(3):
            mixed = random.Random(seed).sample(kernels, len(kernels))
            assert [entry.name for entry in shortlist(mixed, problem, 20)] == expected


def test_no_kernel_no_shortlist(kernels: list[KernelEntry]) -> None:
    assert shortlist(kernels, Problem(64, 64, 64, "tt", "f16"), 10) == []
    assert shortlist(kernels, Problem(64, 60, 64, "nt", "f16"), 10) == []
    assert shortlist(kernels, Problem(64, 64, 64, "nt", "f16"), 0) == []


def test_the_estimate_knows_small_from_large(kernels: list[KernelEntry]) -> None:
    tiny = shortlist(kernels, Problem(64, 64, 64, "nt", "f16"), 10)
    assert {entry.family for entry in tiny} == {"sm90_direct"}
    large = shortlist(kernels, Problem(8192, 8192, 8192, "nt", "f16"), 12)
    assert {entry.family for entry in large} == {"sm90_wgmma"}
    assert min(entry.grid.tile_m * entry.grid.tile_n for entry in large) >= 128 * 128
    deep = shortlist(kernels, Problem(256, 256, 8192, "nt", "f16"), 10)
    assert all(entry.cluster[2] > 1 for entry in deep), "few tiles and much K: split"
