"""What docs/numerics.md promises, through public `matmul` on kernels of the table: of each family,
layout and type the smallest problem."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import hgemm_packs
from hgemm_packs import matmul, select
from hgemm_packs.generator.gates.checker import Checker, Launch
from hgemm_packs.pack.manifest import KernelEntry
from hgemm_packs.problem import Problem
from tests import numerics, reference
from tests.gpu.conftest import DTYPES, Counts, Wins, normal

pytestmark = pytest.mark.gpu

MOST = 1 << 31  # multiplications of a problem: the reference is float64, forty times


def chosen(wins: Wins) -> list[tuple[Problem, KernelEntry]]:
    """The smallest problem of each family, layout, type and epilogue, and its kernel."""
    found: dict[tuple[str, ...], tuple[Problem, KernelEntry]] = {}
    for p in wins.problems:
        kernel = select.resolve(p, 0).kernel
        if kernel is not None and p.m * p.n * p.k <= MOST:
            found.setdefault((kernel.family, p.layout, p.dtype, p.epilogue), (p, kernel))
    assert found, "no problem is small enough"
    return list(found.values())


def into(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    assert matmul(a, b, out=c) is c


def by_linear(epilogue: str) -> Launch:
    """`linear` with what the epilogue adds and applies."""
    gated = epilogue == "gated_silu"
    activation = epilogue if gated else epilogue.partition("_")[2] or None

    def launch(
        a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, added: torch.Tensor | None = None
    ) -> None:
        residual = epilogue == "residual"
        with torch.inference_mode():
            c.copy_(
                hgemm_packs.linear(
                    a,
                    b.t(),
                    None if residual else added,
                    activation,
                    residual=added if residual else None,
                )
            )

    return launch


def held(
    p: Problem, kernel: KernelEntry, launch: Launch, checks: tuple[Callable[[Checker], None], ...]
) -> None:
    counts = Counts()
    numerics.hold(numerics.Public(kernel, p.m, p.n, p.k, launch, "cuda"), checks)
    moved = counts.moved()
    assert set(moved) == {"hits", "launches"} and moved["hits"] == moved["launches"], (p, moved)


@numerics.promised
def test_values(wins: Wins, checks: tuple[Callable[[Checker], None], ...]) -> None:
    for p, kernel in chosen(wins):
        held(p, kernel, into, checks)


@numerics.promised
def test_values_of_epilogues(checks: tuple[Callable[[Checker], None], ...]) -> None:
    for p, kernel in chosen(Wins(with_epilogue=True)):
        held(p, kernel, by_linear(p.epilogue), checks)


def test_equal_inputs_give_equal_bits(wins: Wins) -> None:
    """Again and again, on other streams, while the GPU is busy, and in a graph of one call."""
    busy = torch.randn(4096, 4096, device="cuda")
    for p, _ in chosen(wins):
        a, b = normal(p)
        first = matmul(a, b)
        again = [matmul(a, b) for _ in range(4)]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(4):
                busy @ busy
                again.append(matmul(a, b))
        again += [matmul(a, b) for _ in range(4)]
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            again.append(matmul(a, b))
        graph.replay()
        assert all(numerics.same_bits(c, first) for c in again), p


def test_a_replayed_chain_repeats_its_bits(wins: Wins) -> None:
    """Calls behind others in a graph may have the kernel that the row names for dependent launches:
    right, the same in every replay, and the bits of the row's own kernel where it is that one."""
    for p, kernel in chosen(wins):
        dependent = select.resolve(p, 0).dependent
        a, b = normal(p)
        alone = matmul(a, b)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            chain = [matmul(a, b) for _ in range(4)]
        graph.replay()
        torch.cuda.synchronize()
        first = [c.clone() for c in chain]
        for _ in range(3):
            for c in chain:
                c.fill_(torch.nan)
            graph.replay()
            assert all(map(numerics.same_bits, chain, first)), p
        for c in chain:
            reference.assert_product(c, a, b)
            if dependent is None or dependent.id == kernel.id:
                assert numerics.same_bits(c, alone), p


def test_a_and_b_may_be_the_same_memory(wins: Wins) -> None:
    grams = [p for p in wins.problems if p.layout == "nt" and p.m == p.n][:4]
    squares = [p for p in wins.problems if p.layout == "nn" and p.m == p.n == p.k][:2]
    assert grams
    for p in [*grams, *squares]:
        x = torch.randn((p.m, p.k), device="cuda").to(DTYPES[p.dtype])
        y = x.t() if p.layout == "nt" else x
        counts = Counts()
        reference.assert_product(matmul(x, y), x, y)
        counts.only_hits(1)


FLAGS = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)


@pytest.mark.parametrize("name", FLAGS)
def test_no_flag_of_torch_changes_a_bit(
    wins: Wins, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = torch.backends.cuda.matmul
    for p, _ in chosen(wins):
        a, b = normal(p)
        found = []
        for value in (False, True):
            monkeypatch.setattr(flags, name, value)
            counts = Counts()
            found.append(matmul(a, b))
            counts.only_hits(1)
        monkeypatch.undo()
        assert numerics.same_bits(*found), p


def test_out_that_overlaps_an_operand_is_torchs(wins: Wins) -> None:
    """Kernels read their operands while they write C. Of its values torch promises nothing."""
    squares = [p for p in wins.problems if p.layout == "nn" and p.m == p.n == p.k][:2]
    assert squares
    for p in squares:
        a, b = normal(p)
        counts = Counts()
        said = []
        for product in (matmul, torch.matmul):
            x = a.clone()
            try:
                said.append(str(product(x, b, out=x) is x))
            except RuntimeError as error:
                said.append(str(error))
        assert said[0] == said[1], p
        assert counts.moved().get("hits", 0) == 0, p


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_a_kernel_bits_are_those_of_torch(wins: Wins, dtype: str) -> None:
    a, b = numerics.hostile(37, 41, 86, "nt", DTYPES[dtype], "cuda")
    a, b = a[:, ::2], b[::2]  # strides that no kernel takes, and no predictor
    counts = Counts()
    assert numerics.same_bits(matmul(a, b), torch.matmul(a, b))
    assert counts.moved()["fallbacks"] == 1
