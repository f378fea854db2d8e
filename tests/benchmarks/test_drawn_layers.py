"""Layers drawn by a seed, and what is read of the search for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.search import drawn_layers
from hgemm_packs.generator.core import problems
from hgemm_packs.generator.core.spec import Status
from hgemm_packs.generator.store.findings import Field
from hgemm_packs.problem import Problem


@pytest.mark.parametrize("name", drawn_layers.SETS)
def test_a_seed_draws_the_same_layers_again(name: str, tmp_path: Path) -> None:
    low, high = drawn_layers.SETS[name]
    listed = drawn_layers.draw(7, name)
    assert listed == drawn_layers.draw(7, name) != drawn_layers.draw(8, name)
    assert len(set(listed)) == drawn_layers.COUNT
    assert all(low <= p.m <= high and (p.n, p.k) in drawn_layers.layers() for p in listed)
    out = tmp_path / "drawn.toml"
    drawn_layers.write(listed, "a test", out)
    assert problems.read(out) == listed


def test_the_best_kernel_counts_where_it_lost_and_a_wrong_one_never() -> None:
    p = Problem(100, 4096, 4096, "nt", "bf16")

    def field(**us: float) -> Field:
        statuses = {"slow": Status.SLOWER, "wrong": Status.NUMERIC}
        samples = {"hot": {name: (each,) * 3 for name, each in us.items()}}
        return Field(p, "finals", samples, statuses, "2026-11-24")

    fields = [field(torch=9.0, slow=20.0, wrong=1.0), field(torch=9.0, slow=10.0, wrong=1.0)]
    assert drawn_layers.best_of(fields) == {p: ("slow", 0.9)}
    found = drawn_layers.figures(fields)
    assert (found["problems"], found["gmean"], found["worst"]) == (1, 0.9, 0.9)
