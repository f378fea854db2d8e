"""The numeric gate over kernels whose silu is wrong where little of it is left."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hgemm_packs.generator.gates.checker import Checker, NumericError
from hgemm_packs.generator.gates.values import edges
from tests.generator.gates.test_numeric_epilogue import WRONG, entry_of, gate, halves
from tests.generator.redteam.cheats import Tensor, product


def times_up_first(a: Tensor, b: Tensor, c: Tensor) -> None:
    gate, up = halves(a, b)
    c.copy_(gate * up / (1 + torch.exp(-gate)))


def divided_first(a: Tensor, b: Tensor, c: Tensor) -> None:
    gate, up = halves(a, b)
    c.copy_(gate / (1 + torch.exp(-gate)) * up)


def test_a_gate_lets_through_what_is_left_and_not_what_would_overflow() -> None:
    """A kernel multiplied a gate of -80 by 1e37 before it divided: -inf for -1.4e4."""
    for launch, told in ((divided_first, ""), (times_up_first, "^faint gates .*wrong")):
        run = Checker(entry_of("gated_silu", "bf16"), launch, torch.device("cpu"), 1)
        edges.check_faint_gates(run)
        if not told:
            run.settle()
            continue
        with pytest.raises(NumericError, match=told):
            run.settle()


def by_complement(v: Tensor) -> Tensor:
    return v * (1 - 1 / (1 + torch.exp(v)))


def by_tanh(v: Tensor) -> Tensor:
    return 0.5 * v * (1 + torch.tanh(0.5 * v))


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("function", [by_complement, by_tanh])
def test_silu_of_which_nothing_is_left_far_below_zero(
    function: Callable[[Tensor], Tensor], dtype: str
) -> None:
    """At -12 a kernel was off by a hundredth, and at -17 it gave 0 or twice as much: that is little
    of -17."""

    def kernel(a: Tensor, b: Tensor, c: Tensor, bias: Tensor) -> None:
        c.copy_(function(product(a, b) + bias.float()))

    with pytest.raises(NumericError, match=WRONG):
        gate(kernel, entry_of("bias_silu", dtype))

    def gated(a: Tensor, b: Tensor, c: Tensor) -> None:
        of_gate, up = halves(a, b)
        c.copy_(function(of_gate) * up)

    with pytest.raises(NumericError, match=WRONG):
        gate(gated, entry_of("gated_silu", dtype))
