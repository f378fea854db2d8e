"""The benchmark of the batch-invariant mode: which rows it counts, and what it makes of times."""

from __future__ import annotations

import math

import torch

import hgemm_packs
from benchmarks.measure import invariant
from benchmarks.publish import protocol_texts
from tests import reference
from tests.fake_driver import Started


def test_the_values_are_64_from_1_to_4096_and_odd_ones_too() -> None:
    values = invariant.values_of_m()
    assert len(values) == 64 and values == sorted(set(values)) and values[0] == 1
    assert (
        values[-1] == 4096 and sum(m % 2 for m in values) > 32 and sum(m < 64 for m in values) > 15
    )


def test_equal_rows_are_counted(fake: Started) -> None:
    fake.serve("tma3_v1", "nt")
    a, b = reference.normal(64, 40, 48, "nt", torch.float16)
    with hgemm_packs.options(batch_invariant=True):
        found = invariant.compare_rows(fake.matmul, a, b, [1, 7, 64])
    assert found == {"rows": 2 * 72, "equal": 2 * 72} and all(fake.modes)

    def by_m(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """The first row depends on M, by one bit."""
        c = (a.double() @ b.double()).half()
        if len(a) == 7:
            c.view(torch.int16)[0, 3] ^= 1
        return c

    assert invariant.compare_rows(by_m, a, b, [1, 7, 64]) == {"rows": 2 * 72, "equal": 2 * 72 - 2}


def test_figures() -> None:
    layers = [
        {"n": 8, "k": 16, "dtype": "f16", "rows": 1_000_000, "equal": 1_000_000,
         "us": {"1": {"torch": 2.0, "ours": 1.0}, "64": {"torch": 1.0, "ours": 2.0}}},
        {"n": 8, "k": 16, "dtype": "bf16", "rows": 2_000_000, "equal": 1_999_999,
         "us": {"1": {"torch": 4.0, "ours": 1.0}}},
    ]  # fmt: skip
    found = invariant.figures(layers)
    assert found == {
        "equal": 0.999999,
        "gmean_vs_cublas": round(math.exp(math.log(2 * 0.5 * 4) / 3), 4),
        "worst_vs_cublas": 0.5,
        "worst_case": "64x8x16 nt f16",
        "rows_compared": 3_000_000,
        "products": 3,
        "layers": 1,
    }
    whole = {"figures": found, "settings": {"values": [1, 64]}}
    assert protocol_texts.describe_invariant({"invariant": whole}) == (
        "On 1 layers of language models, fp16 and bf16, at 2 values of M up to 64, 99.9999% of "
        "rows of 3000000 had the same bits at each M, at another place and in a CUDA graph. "
        "Hot, in CUDA "
        "graphs, the mode ran at 1.587x the speed of cuBLAS, by geometric mean; at worst 0.500x "
        "(64x8x16 nt f16).\n"
    )
    found["equal"] = 1.0
    assert "every row of 3000000 had the same bits" in protocol_texts.describe_invariant(
        {"invariant": whole}
    )
    assert "not measured yet" in protocol_texts.describe_invariant({"invariant": None})
