"""The prior: terms by hand, how they follow genes and sizes, and that it ranks recorded times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hgemm_packs.generator.core.space import Space
from hgemm_packs.generator.core.spec import Choice
from hgemm_packs.generator.devices.recording import load
from hgemm_packs.generator.search.analytic.constants import (
    DIRECT,
    GEMV,
    ONESHOT,
    SPLITK,
    SWAPAB,
    TOKENS,
    WGMMA,
    WRITEBOUND,
)
from hgemm_packs.generator.search.analytic.features import PLACES, Table, shape
from hgemm_packs.generator.search.analytic.model import BOTTLENECKS, CLOCKS_PER_US
from hgemm_packs.generator.search.analytic.roofline import terms
from hgemm_packs.generator.search.prior import Rows, estimate_us, rank
from hgemm_packs.problem import Problem
from tests.generator import kernels

RECORDING = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "replay" / "h200.npz"
PLAIN = {
    **kernels.WGMMA,
    **{"tile_m": 128, "tile_n": 128, "tile_k": 64, "stages": 4, "consumers": 1, "split_k": 1},
    **{"schedule": "cooperative", "cluster_m": 1, "cluster_n": 1, "persistent": False},
    **{"ctas_per_sm": 1, "epilogue": "staged", "bulk_blocks": 1},
    **{"streaming": False, "raster": "m", "group": 8},
    **{"layout": "nt", "dtype": "f16"},
}
SMALL = {
    **kernels.DIRECT,
    **{"mi": 1, "ni": 2, "warps_m": 1, "warps_n": 1, "warps_k": 4, "unroll": 1, "exact": True},
    **{"layout": "nt", "dtype": "f16"},
}


def wgmma(**genes: int | str | bool) -> Choice:
    return Choice.of("sm90_wgmma", {**PLAIN, **genes})


def direct(**genes: int | str | bool) -> Choice:
    return Choice.of("sm90_direct", {**SMALL, **genes})


def based(name: str, **genes: int | str | bool) -> Choice:
    return Choice.of(name, {**kernels.BASES[name], **genes})


def judged(problem: tuple[int, int, int], *choices: Choice) -> Rows:
    return Rows(choices, Problem(*problem, "nt", "f16"))


def test_terms_of_one_wave_by_hand() -> None:
    """128 tiles of 128x128 on 132 SMs, 1024 deep, one CTA an SM."""
    c, of = WGMMA, judged((2048, 1024, 1024), wgmma()).terms
    steps = 1024 / 16
    math = 2 * steps * 64 * c["mma"] + 16 * c["step"]
    bytes_of_tile = 2 * 256 * 1024
    load = np.hypot(16 / 4 * c["latency"], bytes_of_tile * (128 / 132) / c["l2"])
    store = 128 * 128 * 2 / c["store_staged"] + c["store_wait"]
    smem_us = c["smem_us"] * (1024 + 4 * 256 * 64 * 2 + 4 * 16 * 64 * 2) / 1e5
    serial = c["launch_us"] + smem_us + (c["fill"] + store) / CLOCKS_PER_US
    assert of.math[0] == pytest.approx(math / CLOCKS_PER_US)
    assert of.load[0] == pytest.approx(load / CLOCKS_PER_US)
    assert of.serial[0] == pytest.approx(serial)
    assert of.total[0] == pytest.approx(serial + np.hypot(math, load) / CLOCKS_PER_US, rel=1e-3)


def test_terms_of_a_direct_kernel_by_hand() -> None:
    """64x64x256 in 16x16 tiles: 16 CTAs of four warps, two passes each."""
    c, of = DIRECT, judged((64, 64, 256), direct()).terms
    products = 2 * 2 * c["mma"]
    waits = 2 * (c["latency"] + c["load"] * 4 + products)
    smem = 4 * 16 * 20 * 4
    end = c["store"] + c["reduce"] + smem / c["reduce_bytes"]
    serial = c["launch_us"] + (waits + end + 4 * c["warp"]) / CLOCKS_PER_US
    load = 2 * 4 * 4 * 128 / c["l1"] + 32 * 256 * 2 / c["l2"] * (16 / 132) ** 0.5
    assert of.serial[0] == pytest.approx(serial)
    assert of.math[0] == pytest.approx(2 * products / CLOCKS_PER_US)
    assert of.load[0] == pytest.approx(load / CLOCKS_PER_US)


def test_terms_of_slices_by_hand() -> None:
    """16 tiles of 64x64 by two CTAs of four clusters: 128 CTAs, 1024 of K each."""
    c, of = SPLITK, judged((256, 256, 8192), based("sm90_splitk")).terms
    math = 1024 / 16 * max(32, c["mma_smem"] + 16) * c["mma"] + 16 * c["step"]
    load = np.hypot(16 / 4 * c["latency"], 128 * 1024 * 2 * (128 / 132) / c["l2"])
    store = 64 * 32 * 2 / c["store_staged"] + c["store_wait"]
    add = c["reduce"] + 2 * c["reduce_rank"] + 64 * 32 * 4 / c["reduce_bytes"]
    add += c["slice"] + 2 * 64 * 32 * 4 / c["slice_bytes"]  # written and read
    smem = 1024 + 4 * 128 * 64 * 2 + 64 * 64 * 4 + 4 * 16 * 16 * 2  # 16 columns that a warp stages
    launch = c["launch_us"] + c["smem_us"] * smem / 1e5
    serial = c["fill"] + store + add + c["cluster"]
    assert of.math[0] == pytest.approx(math / CLOCKS_PER_US)
    assert of.load[0] == pytest.approx(load / CLOCKS_PER_US)
    assert of.serial[0] == pytest.approx(launch + serial / CLOCKS_PER_US)
    total = launch + (np.hypot(math, load) + serial) / CLOCKS_PER_US
    assert of.total[0] == pytest.approx(total, rel=1e-3)


def test_terms_of_a_kernel_that_loads_at_once_by_hand() -> None:
    """16 tiles of 64x64, K of 512 by two CTAs: four slabs each, all in flight."""
    c, of = ONESHOT, judged((256, 256, 512), based("sm90_oneshot")).terms
    math = 256 / 16 * max(32, c["mma_smem"] + 16) * c["mma"] + 4 * c["step"]
    load = np.hypot(c["latency"], 128 * 256 * 2 * (32 / 132) / c["l2"])
    store = 64 * 32 * 2 / c["store_staged"] + c["store_wait"]
    add = c["reduce"] + 2 * c["reduce_rank"] + 64 * 32 * 4 / c["reduce_bytes"]
    smem = 128 * 256 * 2 + 64 * 64 * 4 + 64 * 32 * 2 + 8 * 5
    launch = c["launch_us"] + c["smem_us"] * smem / 1e5
    serial = c["fill"] + store + add + c["cluster"]
    assert of.math[0] == pytest.approx(math / CLOCKS_PER_US)
    assert of.load[0] == pytest.approx(load / CLOCKS_PER_US)
    assert of.serial[0] == pytest.approx(launch + serial / CLOCKS_PER_US)


def test_terms_of_tokens_as_columns_by_hand() -> None:
    """64 tiles of 64 weights by 16 tokens, ten of which exist."""
    c, of = SWAPAB, judged((10, 4096, 4096), based("sm90_swapab")).terms
    math = 4096 / 16 * max(8, c["mma_smem"] + 4) * c["mma"] + 32 * c["step"]
    columns = 16 + c["beyond"] * 6
    load = np.hypot(32 / 4 * c["latency"], (64 + columns) * 4096 * 2 * (64 / 132) / c["l2"])
    store = 64 * 10 * 2 / c["store_staged"] + c["store_wait"]
    smem = 1024 + 4 * (64 + 16) * 128 * 2 + 4 * 16 * 32
    launch = c["launch_us"] + c["smem_us"] * smem / 1e5
    assert of.math[0] == pytest.approx(math / CLOCKS_PER_US)
    assert of.load[0] == pytest.approx(load / CLOCKS_PER_US)
    assert of.serial[0] == pytest.approx(launch + (c["fill"] + store) / CLOCKS_PER_US)


def test_terms_of_tokens_in_steps_of_eight_by_hand() -> None:
    """64 tiles of 64 weights by 40 tokens, 30 of which exist; then pairs that share weights."""
    c, of = TOKENS, judged((30, 4096, 4096), based("sm90_tokens")).terms
    math = 4096 / 16 * max(20, c["mma_smem"] + 10) * c["mma"] + 64 * c["step"]
    columns = 40 + c["beyond"] * 10
    load = np.hypot(64 / 4 * c["latency"], (64 + columns) * 4096 * 2 * (64 / 132) / c["l2"])
    store = 64 * 30 * 2 / c["store_staged"] + c["store_wait"]
    launch = c["launch_us"] + c["smem_us"] * (1024 + 4 * 104 * 128 + 40 * 128) / 1e5
    assert of.math[0] == pytest.approx(math / CLOCKS_PER_US)
    assert of.load[0] == pytest.approx(load / CLOCKS_PER_US)
    assert of.serial[0] == pytest.approx(launch + (c["fill"] + store) / CLOCKS_PER_US)
    pairs = judged((80, 4096, 4096), based("sm90_tokens", cluster_m=2)).terms
    load = np.hypot(64 / 4 * c["latency"], (64 / 2 + 40) * 4096 * 2 * (128 / 132) / c["l2"])
    assert pairs.load[0] == pytest.approx(load / CLOCKS_PER_US)


def test_a_wave_more_of_tokens_is_seen_by_count() -> None:
    """66 tiles of tokens by two of weights are a wave of 132; one token more begins another."""
    tile = based("sm90_tokens", tile_m=104, stages=8)
    whole, more = (judged((m, 128, 4096), tile).terms for m in (66 * 104, 66 * 104 + 1))
    assert whole.tail[0] == pytest.approx(0.0)
    assert more.total[0] > 1.4 * whole.total[0]


def test_terms_of_a_kernel_that_keeps_b_by_hand() -> None:
    """2048 tiles of 64x128 on 132 SMs, one CTA each: 15 and a half turns, stores behind them."""
    c, of = WRITEBOUND, judged((4096, 4096, 128), based("sm90_writebound")).terms
    turns = c["whole_waves"] * 16 + (1 - c["whole_waves"]) * 2048 / 132
    math = 128 / 16 * max(64, c["mma_smem"] + 32) * c["mma"] + c["step_shared"]
    load = np.hypot(c["latency"] / 4, 64 * 128 * 2 / c["l2"])  # of A alone
    body = np.hypot(math, load)
    store = 64 * 128 * 2 / c["store_grouped"] + c["store_wait"]
    hidden = np.hypot(body, c["pingpong_store"] * store) - body
    serial = (c["fill"] + store + turns * hidden) / CLOCKS_PER_US
    launch = c["launch_us"] + c["smem_us"] * (228 * 1024 // 2) / 1e5
    a_wave = (8 * 128 + 17 * 64) * 128 * 2  # 8 columns of tiles, 17 rows: 132 CTAs
    moved = max(2 * 128 * 8192, a_wave * 2048 / 132) + 2 * 4096 * 4096
    megabytes = 2e-6 * (2 * 4096 * 128 + 4096 * 4096)
    spilled = 1 / (1 + np.exp(-(megabytes - c["l2_mb"]) / (0.15 * c["l2_mb"])))
    dram = spilled * moved / c["dram_gbps"] / 1e3
    assert of.math[0] == pytest.approx(turns * math / CLOCKS_PER_US)
    assert of.load[0] == pytest.approx(turns * load / CLOCKS_PER_US)
    assert of.serial[0] == pytest.approx(launch + serial)
    assert of.dram[0] == pytest.approx(dram)
    clocks = turns * body / CLOCKS_PER_US + serial
    assert of.total[0] == pytest.approx(launch + np.hypot(clocks, dram))


def test_terms_of_a_stream_of_weights_by_hand() -> None:
    """128 CTAs of eight warps, 32 columns each; K of 4096 in four rings of four turns."""
    c, of = GEMV, judged((8, 4096, 4096), based("sm90_gemv")).terms
    loads, products = 4 * 2 * 3, 4 * 2 * 2 * c["mma"]
    waits = 4 * (c["latency"] + c["load"] * loads + products)
    end = c["store"] + c["reduce"] + 4 * 32 * 12 * 4 / c["reduce_bytes"]
    serial = c["launch_us"] + (waits + end + 8 * c["warp"]) / CLOCKS_PER_US
    load = 4 * loads * 8 * 128 / c["l1"] + 40 * 4096 * 2 / c["l2"] * (128 / 132) ** 0.5
    assert of.math[0] == pytest.approx(4 * products * 2 / CLOCKS_PER_US)
    assert of.load[0] == pytest.approx(load / CLOCKS_PER_US)
    assert of.serial[0] == pytest.approx(serial)


def test_estimates_follow_genes_and_sizes() -> None:
    ordered = [
        judged((4096, 4096, k), wgmma(tile_n=256, consumers=2)).terms.total[0]
        for k in (256, 1024, 4096)
    ]
    assert ordered == sorted(ordered)
    deep = judged((64, 128, 8192), wgmma(tile_m=64), wgmma(tile_m=64, split_k=4))
    assert deep.terms.total[1] < 0.5 * deep.terms.total[0]
    wide = judged((4096, 4096, 4096), wgmma(tile_m=64, tile_n=64), wgmma(tile_n=256, consumers=2))
    assert wide.terms.total[1] < 0.7 * wide.terms.total[0]
    rings = judged((1024, 1024, 4096), wgmma(stages=2), wgmma(stages=6))
    assert rings.terms.load[1] < rings.terms.load[0]
    tiny = judged((64, 64, 64), wgmma(tile_m=64, tile_n=64), direct(warps_k=1))
    assert tiny.terms.total[1] < tiny.terms.total[0]
    ragged = judged((16, 4096, 4096), wgmma(tile_m=64)).terms.load[0]
    assert ragged > judged((64, 4096, 4096), wgmma(tile_m=64)).terms.load[0]


@pytest.mark.parametrize(
    ("bound", "problem", "choice"),
    [
        ("latency", (64, 64, 64), wgmma(tile_m=64, tile_n=64)),
        ("bandwidth", (128, 8192, 8192), wgmma(tile_m=64, tile_n=64, stages=2)),
        ("tensor", (8192, 8192, 8192), wgmma(tile_n=256, consumers=2)),
        ("tail-wave", (64, 128, 16384), wgmma(tile_m=64)),
    ],
)
def test_bottleneck(bound: str, problem: tuple[int, int, int], choice: Choice) -> None:
    of = judged(problem, choice).terms
    assert BOTTLENECKS[of.bottleneck()[0]] == bound


def test_a_batch_of_families_is_judged_as_each_alone() -> None:
    problem = Problem(256, 512, 1024, "nt", "f16")
    choices = [wgmma(), direct(), *(based(name) for name in kernels.BASES), direct(exact=False)]
    together = Rows(choices, problem).terms.total
    alone = [Rows([choice], problem).terms.total[0] for choice in choices]
    np.testing.assert_allclose(together, alone)


def test_rank_and_estimates_are_of_the_core() -> None:
    space = Space(Problem(256, 256, 1024, "nn", "f16"))
    order, us = rank(space), estimate_us(space)
    assert sorted(order) == list(range(len(space.core)))
    assert np.all(np.diff(us[order]) >= 0)
    best = Rows([space.core[order[0]]], space.problem)
    assert best.terms.total[0] == us[order[0]]


def test_a_table_has_a_one_for_each_gene_value() -> None:
    table = Table([wgmma(), direct(ni=8)])
    found = [{key for key, i in PLACES.items() if row[i] == 1} for row in table.hot()]
    assert ("sm90_wgmma", "tile_m", 128) in found[0]
    assert ("sm90_direct", "ni", 8) in found[1]
    tuned = [set(genome) - {"layout", "dtype"} for genome in (PLAIN, SMALL)]
    assert [len(f) for f in found] == [1 + len(genes) for genes in tuned]
    assert set(np.unique(table.hot())) == {0.0, 1.0}
    np.testing.assert_array_equal(table.hot(np.array([1])), table.hot()[1:])
    values = np.random.default_rng(0).normal(size=len(PLACES))
    np.testing.assert_allclose(table.gather(values), table.hot() @ values)
    np.testing.assert_allclose(table.scatter(values[:2]), values[:2] @ table.hot())


def test_an_unknown_family_is_refused() -> None:
    problem = Problem(64, 64, 64, "nt", "f16")
    with pytest.raises(KeyError, match="sm70_wmma"):
        terms(Table([Choice("sm70_wmma", ())]), problem)


def test_a_shape_says_where_it_lies() -> None:
    tiny, large = (shape(Problem(s, s, s, "nt", "f16")) for s in (64, 8192))
    assert tiny[0] == large[0] == 1.0
    np.testing.assert_allclose(large[1:4] - tiny[1:4], 7 / 8)
    assert shape(Problem(64, 64, 64, "nn", "f16"))[7] - tiny[7] == 0.5


def test_it_ranks_recorded_times() -> None:
    """The recording is of problems that its constants were not fitted to: the best of its first
    16 of some 2500 choices is within 3%, geometric mean over the problems."""
    logs = []
    for problem, screen in list(load(RECORDING, any_catalogue=True).items())[::5]:
        first = np.argsort(Rows(screen.choices, problem).prior)[:16]
        logs.append(np.log(screen.us[first].min() / screen.us.min()))
    assert np.exp(-np.mean(logs)) > 0.97
