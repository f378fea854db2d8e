"""Kernels that add in fp32, in any order and cut off as tensor cores do, pass whatever the seed."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs.generator.families import computed
from hgemm_packs.generator.gates import values
from hgemm_packs.generator.gates.checker import Checker, Launch
from hgemm_packs.generator.gates.values.depth import check_lost_digits
from hgemm_packs.pack.manifest import KernelEntry
from tests.generator.gates.test_numeric import NARROW, ODD, SINGLE, WIDE
from tests.generator.gates.test_numeric_epilogue import entry_of
from tests.generator.gates.test_numeric_epilogue import honest as with_epilogue
from tests.generator.gates.values.honest import by_turns, cut_off_in_slices, in_chunks
from tests.generator.redteam.cheats import (
    Tensor,
    backwards,
    honest,
    made_up,
    product,
    split_k,
    tensor_core,
)

SEEDS = 20
LAYOUTS = ("nn", "nt", "tn", "tt")


def passes(entry: KernelEntry, launch: Launch, seed: int) -> None:
    """All checks of values; raises NumericError for the first that fails."""
    run = Checker(entry, launch, torch.device("cpu"), seed)
    for check in values.CHECKS:
        check(run)
        run.settle()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(
    "kernel",
    [honest, split_k, by_turns, in_chunks(64), in_chunks(16)],
    ids=lambda k: k.__qualname__,
)
def test_fp32_in_any_order(kernel: Launch, dtype: str) -> None:
    for seed in range(SEEDS):
        passes(made_up(LAYOUTS[seed % 4], dtype), kernel, seed)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("kernel", [tensor_core, cut_off_in_slices, backwards])
def test_one_product_at_a_time_and_cut_off(kernel: Launch, dtype: str) -> None:
    """At depths up to 1040: a step at a time is slow on a CPU."""
    k = {"k": {"min": 8, "max": 1040, "multiple_of": 8}}
    dims = {d: {"min": s, "max": 1 << 24, "multiple_of": s} for d, s in (("m", 1), ("n", 8))} | k
    for seed in range(SEEDS):
        passes(made_up(LAYOUTS[seed % 4], dtype, dims=dims), kernel, seed)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("kernel", [tensor_core, backwards])
def test_cut_off_where_k_is_deep(kernel: Launch, dtype: str) -> None:
    passes(made_up("nt", dtype), kernel, 1)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("epilogue", computed.TABLE)
def test_epilogues(epilogue: str, dtype: str) -> None:
    for seed in range(SEEDS // 4):
        passes(entry_of(epilogue, dtype), with_epilogue(epilogue), seed)


def float32_gate(a: Tensor, b: Tensor, c: Tensor) -> None:
    """As device code has it: exp overflows, and the gate is zero; in float64 it is not."""
    gate, up = product(a, b).chunk(2, dim=1)
    c.copy_(gate / (1 + torch.exp(-gate)) * up)


def float32_silu(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    sums = product(a, b) + bias.float()
    c.copy_(sums / (1 + torch.exp(-sums)))


def float32_gelu_tanh(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    sums = product(a, b) + bias.float()
    inner = 0.79788456 * (sums + 0.044715 * sums * sums * sums)
    c.copy_(sums / (1 + torch.exp(-2 * inner)))


def float32_relu(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    sums = product(a, b) + bias.float()
    c.copy_(torch.where(sums < 0, 0.0, sums))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize(
    ("epilogue", "kernel"),
    [
        ("gated_silu", float32_gate),
        ("bias_silu", float32_silu),
        ("bias_gelu_tanh", float32_gelu_tanh),
        ("bias_relu", float32_relu),
    ],
)
def test_epilogues_in_float32(epilogue: str, kernel: Launch, dtype: str) -> None:
    for seed in range(SEEDS):
        passes(entry_of(epilogue, dtype), kernel, seed)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("dims", [WIDE, NARROW, SINGLE, ODD], ids=["wide", "narrow", "one", "odd"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_whatever_sizes_a_kernel_takes(
    dims: dict[str, dict[str, int]], layout: str, dtype: str
) -> None:
    for seed in range(SEEDS // 4):
        passes(made_up(layout, dtype, dims=dims), honest, seed)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("tile", [(1, 8), (8, 128), (64, 64), (128, 256)], ids=str)
def test_tiles_of_every_size(tile: tuple[int, int], dtype: str) -> None:
    grid = {"tile_m": tile[0], "tile_n": tile[1], "persistent": True}
    for seed in range(3):
        passes(made_up("nt", dtype, grid=grid), honest, seed)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_what_cancels_is_zero_in_float64(dtype: str) -> None:
    """The story: bf16 normals are now and then so small that float64 does not add up their products
    exactly, and 23 right kernels of 3,046 were refused for an error relative to 1e-17."""

    class Small(Checker):
        def normal(self, rows: int, columns: int, mean: float = 0.0) -> torch.Tensor:
            values = super().normal(rows, columns, mean)
            values[:, ::7] *= 2.0**-40
            return values

    for seed, layout in enumerate(LAYOUTS):
        run = Small(made_up(layout, dtype), honest, torch.device("cpu"), seed)
        check_lost_digits(run)
        run.settle()
