"""What docs/numerics.md promises of values, through public `matmul` on the stand-in driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.generator.gates.checker import Checker
from tests import numerics, reference
from tests.fake_driver import Started
from tests.generator.redteam.cheats import made_up

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
PAGE = Path(__file__).parents[3] / "docs" / "numerics.md"
M, N, K = 40, 48, 136


@numerics.promised
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_values(
    fake: Started, checks: tuple[Callable[[Checker], None], ...], layout: str, dtype: str
) -> None:
    fake.serve("tma2_v1", layout, dtype)

    def launch(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        assert fake.matmul(a, b, out=c) is c

    run = numerics.Public(made_up(layout, dtype), M, N, K, launch, "cpu")
    numerics.hold(run, checks)
    counters = launcher.counters()
    assert counters["fallbacks"] == 0 and counters["hits"] == counters["launches"] > 0


def test_each_promise_stands_in_the_page() -> None:
    headings = [line[3:] for line in PAGE.read_text().splitlines() if line.startswith("## ")]
    assert set(numerics.PROMISES) <= set(headings)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_equal_inputs_give_equal_bits(fake: Started, layout: str) -> None:
    fake.serve("tma2_v1", layout)
    a, b = numerics.hostile(M, N, K, layout, torch.float16, "cpu")
    first = fake.matmul(a, b)
    for _ in range(3):
        out = torch.full_like(first, 7.0)
        assert numerics.same_bits(fake.matmul(a, b, out=out), first)
    assert launcher.counters()["hits"] == 4


def test_a_and_b_may_be_the_same_memory(fake: Started) -> None:
    fake.serve("tma2_v1", "nt")
    x = reference.normal(64, 64, 136, "nt", torch.float16)[0]
    reference.assert_product(fake.matmul(x, x.t()), x, x.t())
    fake.serve("tma2_v1", "nn")
    x = reference.normal(64, 64, 64, "nn", torch.float16)[0]
    reference.assert_product(fake.matmul(x, x), x, x)
    assert launcher.counters()["hits"] == 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_a_kernel_bits_are_those_of_torch(fake: Started, dtype: str) -> None:
    a, b = numerics.hostile(37, 41, 43, "nt", DTYPES[dtype], "cpu")
    assert numerics.same_bits(fake.matmul(a, b), torch.matmul(a, b))
    assert launcher.counters()["hits"] == 0
