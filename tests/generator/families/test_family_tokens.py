"""sm90_tokens: which genomes are valid, what a record says of boxes and shared memory, and that
kernels of every kind compile without a spill and with the products that they need."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hgemm_packs.generator.compile import compiler, sass
from hgemm_packs.generator.families import Genome, InvalidGenome, computed
from hgemm_packs.generator.families.tokens import FAMILY
from hgemm_packs.generator.gates import binary
from tests.generator.kernels import TOKENS as BASE
from tests.generator.kernels import record

RUN = Path(__file__).parents[3] / "benchmarks" / "results" / "tried" / "tokens"
PAIR: Genome = {**BASE, "tile_n": 128, "consumers": 2}
TURNS: Genome = {**PAIR, "schedule": "pingpong", "persistent": True}
THREE: Genome = {**BASE, "tile_n": 192, "consumers": 3}
SPLIT: Genome = {**BASE, "split_k": 2, "epilogue": "staged"}

# (a valid genome, genes that differ from it, words of the refusal)
BROKEN: list[tuple[Genome, dict[str, Any], str]] = [
    (BASE, {"schedule": "pingpong", "persistent": True}, "pingpong needs two consumers"),
    (PAIR, {"schedule": "pingpong"}, "pingpong needs a persistent grid"),
    (PAIR, {"tile_n": 64}, "a consumer holds a multiple of 64 rows of weights"),
    (PAIR, {"tile_n": 192}, "a consumer holds a multiple of 64 rows of weights"),
    (THREE, {"tile_n": 256}, "a consumer holds a multiple of 64 rows of weights"),
    (BASE, {"tile_n": 128, "tile_m": 216}, "216 accumulators a thread do not fit 255"),
    (TURNS, {"tile_m": 200, "stages": 2}, "200 accumulators a thread do not fit 232"),
    (
        {**THREE, "tile_n": 384, "stages": 2},
        {"tile_m": 128, "tile_k": 64},
        "128 accumulators a thread do not fit 160",
    ),
    (THREE, {"tile_m": 208, "stages": 2}, "three consumers multiply 200 tokens at most"),
    (
        BASE,
        {"tile_n": 128, "tile_m": 136, "ctas_per_sm": 2, "stages": 2},
        "136 accumulators a thread do not fit 168",
    ),
    (BASE, {"stages": 12, "tile_k": 128}, "shared memory"),
    (BASE, {"cluster_m": 4, "cluster_n": 2}, "clusters of at most four"),
    (BASE, {"cluster_n": 4, "tile_m": 24}, "token slices of whole atoms of 8"),
    (BASE, {"layout": "tn"}, "tokens of tn and tt come in steps of 32"),
    (BASE, {"layout": "tt"}, "tokens of tn and tt come in steps of 32"),
    (SPLIT, {"buffers": 2}, "warps stage in one buffer"),
    (SPLIT, {"cluster_m": 2}, "split_k takes the whole cluster"),
    (SPLIT, {"persistent": True}, "split_k reduces once"),
    (SPLIT, {"epilogue": "rows"}, "split_k ends with whole warps, which stage alone"),
    (SPLIT, {"split_k": 8}, "split_k ends with whole warps"),
    (SPLIT, {"split_k": 4, "tile_m": 136, "stages": 2}, "68 sums of 4 parts a thread"),
    (BASE, {"group": 64}, "banding by 64 is for persistent grids"),
    (BASE, {"persistent": True, "reads_ahead": True}, "leaves no room ahead"),
    (BASE, {"cluster_n": 2, "reads_ahead": True}, "what reads ahead shares no operand"),
    (BASE, {"triggers_early": True}, "only what reads ahead triggers early"),
    (BASE, {"computes": "gated_silu", "epilogue": "bulk"}, "stores 64 columns of C a block"),
    (BASE, {"computes": "gated_silu", "layout": "nn"}, "gated kernels are for nt"),
]


@pytest.mark.parametrize(("base", "genes", "words"), BROKEN)
def test_what_does_not_fit_is_named(base: Genome, genes: dict[str, Any], words: str) -> None:
    FAMILY.validate(base)
    with pytest.raises(InvalidGenome, match=f"sm90_tokens: .*{words}"):
        FAMILY.validate({**base, **genes})


def test_records_of_a_measured_run_are_those_of_today() -> None:
    """Of its 100 kernels every field but the cubin's, which were compiled of a source that is
    lost: name, boxes, shared memory, threads, what is admitted."""
    with zipfile.ZipFile(RUN / "kernels.jsonl.zip") as packed:
        lines = [json.loads(line)["fields"] for line in packed.read("lines").splitlines()]
    ours = [fields for fields in lines if fields["family"] == FAMILY.name]
    assert len(ours) == 100
    for then in ours:
        today = json.loads(json.dumps(FAMILY.fields(then["genome"])))
        assert {**today, "id": then["id"], "regs": then["regs"]} == then


def boxes(genome: Genome) -> dict[str, list[int]]:
    return {spec.operand: list(spec.box) for spec in record(FAMILY.fields(genome)).tma}


@pytest.mark.parametrize(
    ("genes", "expected"),
    [
        ({}, {"a": [64, 40], "b": [64, 64]}),
        # 136 tokens in four slices of 40: the last two overlap
        ({"tile_m": 136, "cluster_n": 4}, {"a": [64, 40], "b": [64, 64]}),
        ({"cluster_m": 4}, {"a": [64, 40], "b": [64, 16]}),
        # no box has more than 256 rows
        ({"tile_n": 384, "consumers": 3, "stages": 2}, {"a": [64, 40], "b": [64, 192]}),
        ({"layout": "tn", "tile_m": 96, "cluster_n": 2}, {"a": [32, 32], "b": [64, 64]}),
        ({"layout": "tt", "tile_m": 128, "cluster_m": 2}, {"a": [64, 64], "b": [64, 32]}),
        ({"epilogue": "bulk"}, {"a": [64, 40], "b": [64, 64], "c": [64, 40]}),
    ],
)
def test_boxes(genes: dict[str, Any], expected: dict[str, list[int]]) -> None:
    assert boxes({**BASE, **genes}) == expected


def test_what_is_admitted() -> None:
    def low(genome: Genome) -> tuple[tuple[int, int], ...]:
        entry = record(FAMILY.fields(genome))
        return tuple((s.min, s.multiple_of) for s in (entry.m, entry.n, entry.k))

    assert low(BASE) == ((1, 1), (8, 8), (8, 8))
    assert low({**BASE, "layout": "tn", "tile_m": 32}) == ((8, 8), (8, 8), (8, 8))
    assert low({**SPLIT, "split_k": 4, "tile_k": 128}) == ((1, 1), (8, 8), (512, 8))
    assert low(computed.compute_also(BASE, "gated_silu")) == ((1, 1), (16, 16), (8, 8))


# (genome, HGMMA of a consumer for one k-tile)
BUILT: list[tuple[Genome, int]] = [
    (BASE, 4),
    ({**BASE, "tile_m": 8, "tile_n": 192, "dtype": "bf16"}, 12),
    ({**BASE, "layout": "nn", "tile_m": 256, "stages": 3}, 4),
    ({**BASE, "layout": "tn", "tile_m": 96, "cluster_n": 2, "dtype": "bf16"}, 4),
    ({**BASE, "layout": "tt", "tile_m": 160, "cluster_m": 4, "buffers": 2}, 4),
    ({**PAIR, "tile_m": 208, "persistent": True, "epilogue": "bulk"}, 4),
    ({**PAIR, "tile_m": 136, "cluster_n": 4, "persistent": True, "dtype": "bf16"}, 4),
    ({**PAIR, "layout": "nn", "tile_n": 384, "tile_m": 88, "stages": 3, "epilogue": "bulk"}, 12),
    ({**PAIR, "tile_n": 128, "tile_m": 64, "ctas_per_sm": 2, "stages": 3, "streaming": True}, 4),
    ({**TURNS, "tile_m": 176, "raster": "n", "group": 64}, 8),
    ({**TURNS, "layout": "tt", "tile_m": 128, "cluster_m": 2, "epilogue": "bulk"}, 8),
    ({**TURNS, "tile_n": 256, "tile_m": 96, "cluster_n": 2, "epilogue": "bulk"}, 16),
    ({**THREE, "tile_m": 200, "cluster_m": 2, "persistent": True}, 4),
    ({**THREE, "tile_n": 384, "tile_m": 96, "stages": 2, "epilogue": "bulk", "buffers": 2}, 8),
    ({**SPLIT, "tile_m": 80, "tile_k": 128}, 8),
    ({**SPLIT, "layout": "nn", "split_k": 4, "tile_m": 48, "ctas_per_sm": 2, "stages": 6}, 4),
    ({**SPLIT, "tile_n": 192, "consumers": 3, "split_k": 4, "dtype": "bf16"}, 4),
    ({**PAIR, "split_k": 8, "epilogue": "staged", "tile_m": 24}, 4),
    ({**THREE, "reads_ahead": True, "triggers_early": True, "tile_m": 120}, 4),
    ({**PAIR, "computes": "gated_silu", "persistent": True, "tile_m": 104}, 4),
    ({**SPLIT, "computes": "gated_silu"}, 4),
    ({**TURNS, "computes": "residual", "epilogue": "bulk", "tile_m": 120}, 8),
    ({**THREE, "computes": "bias_silu", "tile_m": 72}, 4),
    ({**SPLIT, "computes": "residual", "dtype": "bf16"}, 4),
]


@pytest.mark.parametrize(("genome", "products"), BUILT)
def test_a_kernel_of_each_kind_compiles(genome: Genome, products: int) -> None:
    one = compiler.build_one(FAMILY.name, genome)
    verdict = binary.check(one.entry_fields, one.cubin)
    assert verdict.passed, verdict.detail
    mma = sass.census(one.cubin).mma
    # Copies that the compiler makes of the loop are whole.
    assert sum(each.count for each in mma) % products == 0
    assert {each.shape for each in mma} == {(64, genome["tile_m"], 16)}
