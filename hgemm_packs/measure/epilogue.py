"""What is computed of a product before it is rounded: right, as torch computes it in a wider type,
and fast, as torch does it where no kernel does.

Called by the self-test and by the generator's gates for what is right, by `timing` for torch's arm;
`problem.EPILOGUES` has the names, and the kernels' own functions are in
csrc/kernels/common/finish.cuh.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from ..problem import WITHOUT_ADDEND, Problem
from .operands import addend_of

if TYPE_CHECKING:
    from .replay import Arm

#: How steep silu is at most.
SILU_SLOPE = 1.1
#: Calls of each way of torch's before the faster is known.
TRIALS = 5

_faster: dict[Problem, int] = {}


def finish(epilogue: str, sums: torch.Tensor, addend: torch.Tensor | None) -> torch.Tensor:
    """What an epilogue makes of `sums` [M, N], all in their type: with `addend`, a bias [N] or a
    residual [M, N], added and then the activation; of gated sums C [M, N/2]. Those of
    WITHOUT_ADDEND have None. Raises KeyError for an unknown epilogue."""
    if epilogue in WITHOUT_ADDEND:
        assert addend is None, f"{epilogue} adds nothing"
        if epilogue == "none":
            return sums
        gate, up = halve(sums)
        return functional.silu(gate) * up
    activations: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "bias": lambda x: x,
        "bias_relu": functional.relu,
        "bias_gelu": functional.gelu,
        "bias_gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
        "bias_silu": functional.silu,
        "residual": lambda x: x,
    }
    assert addend is not None, f"{epilogue} needs an addend"
    return activations[epilogue](sums + addend.to(sums.dtype))


def halve(sums: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gate and up: the first and the second half of the columns."""
    columns = sums.shape[-1] // 2
    return sums[..., :columns], sums[..., columns:]


def spread_gated(sums: torch.Tensor, off: torch.Tensor | float) -> torch.Tensor:
    """How far silu(gate) * up may be off where the sums are by up to `off`, a number or a tensor
    like `sums`: |s(g+d)(u+e) - s(g)u| <= SILU_SLOPE |d| (|u|+|e|) + |s(g)| |e|."""
    gate, up = halve(sums)
    gate_off, up_off = halve(torch.as_tensor(off, device=sums.device).expand_as(sums))
    return SILU_SLOPE * gate_off * (up.abs() + up_off) + functional.silu(gate).abs() * up_off


def torch_mm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> object:
    """The baseline that every figure is quoted against."""
    return torch.mm(a, b, out=c)


def torch_arm(problem: Problem) -> Arm:
    """What torch does for a problem: `torch_mm`; with a bias addmm, as a linear layer has it, and
    the activation in place; with a residual addmm or an addition behind mm, whichever is faster;
    gated, silu of one half of mm's columns, times the other."""
    if problem.epilogue == "none":
        return torch_mm
    if problem.epilogue == "residual":
        return _residual_arm(problem)
    if problem.epilogue == "gated_silu":
        return _gated_arm()
    activations: dict[str, Callable[[torch.Tensor], object]] = {
        "bias": lambda c: c,
        "bias_relu": torch.relu_,
        "bias_gelu": lambda c: torch.ops.aten.gelu.out(c, out=c),
        "bias_gelu_tanh": lambda c: torch.ops.aten.gelu.out(c, approximate="tanh", out=c),
        "bias_silu": lambda c: functional.silu(c, inplace=True),
    }
    activate = activations[problem.epilogue]

    def call(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        activate(torch.addmm(addend_of(problem.epilogue, c), a, b, out=c))

    return call


def _residual_arm(problem: Problem) -> Arm:
    def inside(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        torch.addmm(addend_of("residual", c), a, b, out=c)

    def behind(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        torch.mm(a, b, out=c)
        c.add_(addend_of("residual", c))

    ways = (inside, behind)

    def call(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        known = problem in _faster
        if not known and c.is_cuda and not torch.cuda.is_current_stream_capturing():
            times = [_least_ms(way, a, b, c) for way in ways]
            _faster[problem] = times.index(min(times))
        ways[_faster.get(problem, 0)](a, b, c)

    return call


def _least_ms(way: Arm, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> float:
    """The least device time of a few calls, the first of which is not counted."""
    times = []
    for _ in range(1 + TRIALS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        way(a, b, c)
        end.record()
        end.synchronize()
        times.append(float(start.elapsed_time(end)))
    return min(times[1:])


def _gated_arm() -> Arm:
    """Keeps what lies between its steps, for a captured call may not allocate it."""
    kept: dict[tuple[object, ...], tuple[torch.Tensor, torch.Tensor]] = {}

    def call(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        place = (b.shape[1], *c.shape, c.device)
        if place not in kept:
            kept[place] = (c.new_empty(c.shape[0], b.shape[1]), c.new_empty(c.shape))
        both, gate = kept[place]
        torch.mm(a, b, out=both)
        torch.ops.aten.silu.out(halve(both)[0], out=gate)
        torch.mul(gate, halve(both)[1], out=c)

    return call
