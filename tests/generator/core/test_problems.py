"""Which problems are measured."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter

import pytest

from hgemm_packs.cli.console import manifests_dir
from hgemm_packs.errors import PackError
from hgemm_packs.generator.compile.pack_writer import read_source
from hgemm_packs.generator.core.problems import (
    NAMED,
    REGIMES,
    cost,
    filter,
    grid_shapes,
    read,
    read_in_order,
    regime,
)
from hgemm_packs.generator.core.space import Space
from hgemm_packs.problem import Problem
from hgemm_packs.tuning.shapes import tomllib
from tests import shapes
from tests.generator.kernels import entry_of

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
    assert sum(PUBLISHED.values()) == 1000 and tuple(PUBLISHED) == REGIMES


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
    problems = read("grid")
    assert {(p.m, p.n, p.k) for p in problems} == set(shapes.grid())
    assert len(problems) == len(set(problems)) == 4 * 1000
    costs = [p.m * p.n * p.k for p in problems]
    assert costs == sorted(costs)
    assert grid_shapes() == set(shapes.grid())


def test_the_grid_by_regime() -> None:
    problems = read("grid")

    def grid(*regimes: str) -> list[Problem]:
        return filter(problems, ["nt"], ["f16"], regimes)

    parts = [grid(name) for name in PUBLISHED]
    assert [len(part) for part in parts] == list(PUBLISHED.values())
    assert set().union(*parts) == set(grid())
    assert len(grid("tiny", "mid")) == 120 + 161


def test_layers_are_the_models_own_each_problem_once() -> None:
    """The shapes again, from the configurations alone."""
    text = (manifests_dir() / "shapes" / "llm_layers.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    expected = set()
    for c in document["model"]:
        assert re.fullmatch(r"[\w-]+/[\w.-]+", c["source"]), "a repository of the Hub"
        hidden, weights = c["hidden_size"], {(w["n"], w["k"]) for w in c.get("layer", [])}
        if "head_dim" in c:
            q, kv = (c[f"num_{who}_heads"] * c["head_dim"] for who in ("attention", "key_value"))
            weights |= {(q, hidden), (kv, hidden), (q + 2 * kv, hidden), (hidden, q)}
        elif "kv_lora_rank" in c:
            heads, q_rank, kv_rank = (
                c[name] for name in ("num_attention_heads", "q_lora_rank", "kv_lora_rank")
            )
            nope, rope, v = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
            weights |= {(q_rank, hidden), (kv_rank + rope, hidden), (hidden, heads * v)}
            weights |= {(q_rank + kv_rank + rope, hidden), (heads * (nope + rope), q_rank)}
            weights |= {(heads * (nope + v), kv_rank)}
        for width in ("", "moe_", "shared_expert_"):
            if inner := c.get(f"{width}intermediate_size"):
                weights |= {(inner, hidden), (2 * inner, hidden), (hidden, inner)}
        # All shared experts of the list are one expert wide, and add no shape of their own.
        assert c.get("n_shared_experts", 1) == 1
        weights |= {(c["vocab_size"], hidden)}
        expected |= {(m, n, k) for n, k in weights for m in document["m"]}
    problems = read("llm")
    assert len(problems) == len(set(problems)) == 4 * len(expected) == 4 * 3276
    assert {(p.m, p.n, p.k) for p in problems} == expected
    kinds = set(itertools.product(("nn", "nt"), ("f16", "bf16")))
    assert {(p.layout, p.dtype) for p in problems} == kinds
    costs = [p.m * p.n * p.k for p in problems]
    assert costs == sorted(costs)


def test_what_engines_run_is_read_in_the_order_of_the_file() -> None:
    listed = read_in_order("engines")
    assert len(listed) == len(set(listed)) == 39 * 273
    assert {(p.n, p.k) for p in listed} == {(p.n, p.k) for p in read("llm")}
    assert [p.m for p in listed[:39]] == [1, 2, 4, *range(8, 257, 8), 320, 384, 448, 512]
    assert sorted(listed, key=cost) == read("engines") != listed
    some = read_in_order("engines", ["Mistral 7B v0.3", "Qwen3 8B"])
    assert some[:39] == listed[:39] and len(some) < len(listed)


def test_the_layers_of_the_committed_table_are_still_listed() -> None:
    """What was measured stays in the list."""
    source = read_source(manifests_dir() / "sm_90a" / "h200")
    measured = {(row.m, row.n, row.k) for row in source.table} - grid_shapes()
    assert measured <= {(p.m, p.n, p.k) for name in NAMED for p in read(name)}
    assert measured


def test_a_users_file_by_its_path() -> None:
    example = manifests_dir() / "shapes" / "example.toml"
    problems = read(example)
    assert len(problems) == 36 and problems == sorted(problems, key=cost)
    assert problems[0] == Problem(1, 64, 2048, "nt", "f16")
    assert Problem(512, 512, 512, "nn", "bf16") in problems
    assert [p.m for p in problems if p.n == 1004] == [1, 16, 4096]
    assert Problem(64, 512, 512, "nt", "f16", base=(8, 16, 16), packed=False) in problems
    assert [(p.m, p.n) for p in read(example, ["Example*"])][:2] == [(1, 64), (1, 512)]
    with pytest.raises(
        PackError,
        match=r"grdi is no file, and no list of \['drawn', .*, 'grid', 'llm', .*, 'unaligned",
    ):
        read("grdi")


@pytest.mark.parametrize(
    "problem",
    [
        Problem(1, 8, 8, "nt", "f16"),
        Problem(3, 4096, 4096, "nn", "bf16"),
        Problem(64, 12, 64, "nt", "f16"),
        Problem(64, 64, 13, "nn", "f16"),
        Problem(12, 64, 64, "tn", "f16"),
        Problem(1, 64, 64, "tt", "bf16"),
        Problem(64, 64, 64, "nt", "bf16", base=(2, 16, 8)),
        Problem(64, 64, 64, "tn", "f16", base=(4, 4, 16), packed=False),
    ],
    ids=str,
)
def test_every_problem_has_kernels_in_its_space(problem: Problem) -> None:
    listed = Space(problem).core
    assert listed
    for choice in listed[:: len(listed) // 8 + 1]:
        assert entry_of((choice.family, choice.genome)).admits(problem) is None


def test_filters_keep_order_and_refuse_unknown_words() -> None:
    problems = read("grid")
    some = filter(problems, ["nt"], ["bf16"], ["tiny", "mid"], every=7)
    assert (
        some
        == [
            p
            for p in problems
            if (p.layout, p.dtype) == ("nt", "bf16") and regime(p.m, p.n, p.k) in ("tiny", "mid")
        ][::7]
    )
    assert len(some) == math.ceil((120 + 161) / 7)
    assert filter(problems) == problems
    for words in ({"layouts": ["nx"]}, {"dtypes": ["fp16"]}, {"regimes": ["medium"]}):
        with pytest.raises(ValueError, match="not in"):
            filter(problems, **words)
