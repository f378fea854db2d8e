"""The numeric gate over kernels that add a bias and apply a function: right ones pass, and what is
left out, done twice, done elsewhere or kept is caught."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hgemm_packs.generator.families import computed
from hgemm_packs.generator.gates import numeric
from hgemm_packs.generator.gates.checker import Launch, Numeric, NumericError
from hgemm_packs.measure.epilogue import finish
from hgemm_packs.pack.manifest import KernelEntry
from tests.generator.redteam.cheats import SMS, Tensor, made_up, product

WRONG = "elements wrong or unwritten"


def entry_of(epilogue: str, dtype: str = "f16") -> KernelEntry:
    return made_up(dtype=dtype)._replace(epilogue=epilogue)


def gate(launch: Launch, entry: KernelEntry) -> Numeric:
    return numeric.check(entry, launch, torch.device("cpu"), SMS, 1)


def honest(epilogue: str) -> Launch:
    """Sums in fp32, rounded once: of a float32 infinity a CPU's functions are not all right."""
    return lambda a, b, c, bias: c.copy_(finish(epilogue, product(a, b).double(), bias))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("epilogue", computed.TABLE)
def test_fp32_passes(epilogue: str, dtype: str) -> None:
    bound = {"f16": 2.6e-4, "bf16": 2.1e-3}[dtype]
    assert 0 < gate(honest(epilogue), entry_of(epilogue, dtype)).max_rel_err < bound


@pytest.mark.parametrize("epilogue", computed.TABLE)
def test_a_bias_that_is_left_out(epilogue: str) -> None:
    def ignores(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
        c.copy_(finish(epilogue, product(a, b).double(), torch.zeros_like(bias)))

    with pytest.raises(NumericError, match=WRONG):
        gate(ignores, entry_of(epilogue))


@pytest.mark.parametrize("epilogue", [name for name in computed.TABLE if name != "bias"])
@pytest.mark.parametrize("other", computed.TABLE)
def test_another_function(epilogue: str, other: str) -> None:
    if epilogue == other:
        return
    with pytest.raises(NumericError, match=WRONG):
        gate(honest(other), entry_of(epilogue))


def twice(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    c.copy_(product(a, b) + 2 * bias.float())


def in_every_part_of_k(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    """As CTAs that share K would, where each adds it."""
    parts = zip(a.split(64, 1), b.split(64, 0), strict=True)
    c.copy_(sum(product(x, y) + bias.float() for x, y in parts))  # type: ignore[arg-type]


def of_the_column_beside(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    c.copy_(product(a, b) + bias.float().roll(1))


def of_the_first_tile(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    first = bias[:16].float().repeat(-(-bias.numel() // 16))
    c.copy_(product(a, b) + first[: bias.numel()])


def but_for_the_last_columns(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    added = bias.float().clone()
    added[-8:] = 0
    c.copy_(product(a, b) + added)


def of_rows(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    """By the other coordinate, as an operand turned round would."""
    rows = bias.repeat(-(-a.shape[0] // bias.numel()))[: a.shape[0]]
    c.copy_(product(a, b) + rows.float()[:, None])


def after_rounding(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
    c.copy_(product(a, b).to(c.dtype) + bias)


def once_before_the_function_and_once_behind(a: Tensor, b: Tensor, c: Tensor, bias: Any) -> None:
    c.copy_((product(a, b) + bias.float()).relu() + bias.float())


WRONGLY = [
    *(twice, in_every_part_of_k, of_the_column_beside, of_the_first_tile),
    *(but_for_the_last_columns, of_rows, after_rounding),
    once_before_the_function_and_once_behind,
]


@pytest.mark.parametrize("kernel", WRONGLY)
def test_a_bias_that_is_added_wrongly(kernel: Launch) -> None:
    with pytest.raises(NumericError, match=WRONG):
        gate(kernel, entry_of("bias"))


def test_a_bias_that_is_kept_from_an_earlier_launch() -> None:
    """Read when its address is new alone."""
    kept: dict[tuple[int, int], Tensor] = {}

    def keeps(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
        known = kept.setdefault((bias.data_ptr(), bias.numel()), bias.clone())
        c.copy_(product(a, b) + known.float())

    with pytest.raises(NumericError, match=r"rewritten bias .*wrong or unwritten"):
        gate(keeps, entry_of("bias"))


def test_a_bias_that_is_written() -> None:
    def writes(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
        c.copy_(product(a, b) + bias.float())
        bias[-1] += 1

    with pytest.raises(NumericError, match="input elements changed"):
        gate(writes, entry_of("bias"))


def test_nan_that_the_function_drops() -> None:
    def drops(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
        sums = product(a, b) + bias.float()
        c.copy_(torch.where(sums > 0, sums, torch.zeros_like(sums)))

    with pytest.raises(NumericError, match="specials"):
        gate(drops, entry_of("bias_relu"))
