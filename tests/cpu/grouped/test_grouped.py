"""grouped_matmul: rows in groups, each with its own weight, by kernels of packs and by torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher, select
from tests.cpu.call.served_packs import install
from tests.cpu.grouped.made import (
    DTYPES,
    GROUPS,
    SPLITS,
    K,
    N,
    Operands,
    assert_grouped,
    kernel,
    operands,
    row,
    write,
)
from tests.fake_driver import Started


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_every_group_is_multiplied_by_its_own_weight(
    served: Started, layout: str, dtype: str, split: str
) -> None:
    x = operands(SPLITS[split], layout, dtype)
    assert_grouped(hgemm_packs.grouped_matmul(*x), x)
    assert launcher.counters() == {"hits": 1, "launches": 1, "fallbacks": 0}
    assert served.control.grid == 2 * 132 or served.control.grid == GROUPS + 30 // 128


def test_offsets_out_of_range_write_nothing_outside(served: Started) -> None:
    tokens, weights, _ = operands([0] * GROUPS)
    offsets = torch.tensor([-3, 9, 2, 50, 70], dtype=torch.int32)
    result = hgemm_packs.grouped_matmul(tokens, weights, offsets)
    exact = (tokens.double() @ weights[3].double()).to(tokens.dtype)
    assert torch.equal(result[9:], exact[9:])


def test_offsets_are_read_where_the_kernel_runs(served: Started) -> None:
    """A graph that is replayed reads the offsets of that moment; so the host passes the address."""
    served.capture(1)
    x = operands(SPLITS["of any size"])
    hgemm_packs.grouped_matmul(*x)
    assert served.control.node_count == 1
    x[2].copy_(torch.tensor(SPLITS["all in one"]))
    served.capture(0)
    assert_grouped(hgemm_packs.grouped_matmul(*x), x)


SIZES = {8: "not_measured", 9: "kernel", 32: "kernel", 33: "not_measured"}


@pytest.mark.parametrize("rows", SIZES)
def test_a_row_speaks_of_the_sizes_below_it(served: Started, rows: int) -> None:
    x = operands([rows] * GROUPS, rows=rows)
    assert_grouped(hgemm_packs.grouped_matmul(*x), x)
    hit = SIZES[rows] == "kernel"
    assert launcher.counters()["hits"] == hit
    assert served.fallbacks() == ({} if hit else {SIZES[rows]: 1})


def test_each_size_gets_the_row_above_it(
    bare: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = kernel("nt", "bf16", "small"), kernel("nt", "bf16", "large", block=256)
    rows = [row(16, small), row(32, large), row(40, None), row(64, large, lcb=1.01)]
    write(tmp_path / "pack", [small, large], rows).close()
    install(monkeypatch, tmp_path / "pack")
    select.reset()
    for count, block in ((5, 384), (16, 384), (17, 256), (32, 256)):
        x = operands([count] * GROUPS, rows=count)
        assert_grouped(hgemm_packs.grouped_matmul(*x), x)
        assert served_block(bare) == block, count
    for count in (33, 41):
        x = operands([count] * GROUPS, rows=count)
        assert_grouped(hgemm_packs.grouped_matmul(*x), x)
    assert bare.fallbacks() == {"cublas_measured_better": 1, "below_noise_floor": 1}
    assert bare.control.loads == 2


def served_block(fake: Started) -> int:
    return int(fake.control.block)


UNFIT: dict[str, tuple[Callable[[Operands], Operands], str]] = {
    "other type": (lambda x: (x[0].float(), x[1].float(), x[2]), "dtype"),
    "strided rows": (
        lambda x: (torch.stack([x[0], x[0]], 1).flatten(1)[:, :K], x[1], x[2]),
        "strided",
    ),
    "rows by column": (lambda x: (x[0].t().contiguous().t(), x[1], x[2]), "layout"),
    "unaligned": (
        lambda x: (
            torch.cat([x[0].flatten(), x[0][0]])[8 - 7 :][: x[0].numel()].view(-1, K),
            *x[1:],
        ),
        "unaligned",
    ),
    "every second weight": (lambda x: (x[0], torch.cat([x[1], x[1]])[::2], x[2]), "strided"),
    "another weight": (lambda x: (x[0], x[1][:, :, :32].mT.contiguous().mT, x[2]), "not_measured"),
    "a subclass": (lambda x: (x[0].as_subclass(Odd), *x[1:]), "tensor_type"),
}


class Odd(torch.Tensor):
    """A tensor with a class of its own."""


@pytest.mark.parametrize("what", UNFIT)
def test_what_no_kernel_reads_is_torchs_and_counted(served: Started, what: str) -> None:
    change, reason = UNFIT[what]
    x = change(operands(SPLITS["of any size"], rows=32))
    result = hgemm_packs.grouped_matmul(*x)
    assert torch.equal(result[:30], torch._grouped_mm(x[0], x[1], offs=x[2])[:30])
    assert served.fallbacks() == {reason: 1} and launcher.counters()["hits"] == 0


def test_gradients_are_torchs(served: Started) -> None:
    x = operands(SPLITS["of any size"])
    given = [x[0].clone().requires_grad_(), x[1].clone().requires_grad_()]
    grad = torch.arange(30 * N).view(30, N).to(torch.bfloat16)
    hgemm_packs.grouped_matmul(given[0], given[1], x[2]).backward(grad)
    assert served.fallbacks() == {"autograd": 1}
    wanted = [x[0].clone().requires_grad_(), x[1].clone().requires_grad_()]
    torch._grouped_mm(wanted[0], wanted[1], offs=x[2]).backward(grad)
    for mine, theirs in zip(given, wanted, strict=True):
        assert mine.grad is not None and theirs.grad is not None
        assert torch.equal(mine.grad, theirs.grad) and mine.grad.abs().sum() > 0
    with torch.no_grad():
        assert_grouped(hgemm_packs.grouped_matmul(given[0], given[1], x[2]), x)
    assert launcher.counters()["hits"] == 1


WRONG: dict[str, Callable[[Operands], tuple[Any, ...]]] = {
    "K differs": lambda x: (x[0][:, :32].contiguous(), *x[1:]),
    "int64 offsets": lambda x: (*x[:2], x[2].long()),
    "too few offsets": lambda x: (*x[:2], x[2][:2]),
    "other types": lambda x: (x[0].half(), *x[1:]),
    "a vector": lambda x: (x[0][0], *x[1:]),
}


@pytest.mark.parametrize("what", WRONG)
def test_errors_are_torchs(served: Started, what: str) -> None:
    x = WRONG[what](operands(SPLITS["of any size"]))
    with pytest.raises(RuntimeError) as theirs:
        torch._grouped_mm(x[0], x[1], offs=x[2])
    with pytest.raises(type(theirs.value)) as mine:
        hgemm_packs.grouped_matmul(*x)
    assert str(mine.value) == str(theirs.value)
