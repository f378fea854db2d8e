"""`grouped_matmul`: the product of a mixture of experts, rows in groups, each with its own weight.

Called by users. Who runs a call is asked of `grouped_choice` once for all sizes between two that
were measured, and kept in `launcher.grouped_answers`; everything else is torch's.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import torch

from .. import launcher
from ..problem import GroupedProblem
from ..settings import is_invariant, is_off
from . import grouped_choice

if TYPE_CHECKING:
    from .._C import Kernel

#: Weights whose answers are kept; a program has a few, and one that makes up new ones for ever
#: does not fill the memory.
MOST_WEIGHTS = 1024


def grouped_matmul(
    tokens: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor
) -> torch.Tensor:
    """`torch._grouped_mm(tokens, weights, offs=offsets)` for rows in groups: group e is multiplied
    by weights[e].

    `tokens` is [T, K], `weights` [E, K, N], `offsets` int32 [E] on the same device: group e is the
    rows from offsets[e-1], 0 for the first, up to offsets[e]. Groups may be empty. Returns [T, N];
    rows past the last offset hold what the memory held, as torch leaves them. Offsets that fall, or
    lie outside 0..T, are an error that nobody notices: no memory outside the result is written.

    A kernel runs float16 and bfloat16 on a CUDA device where one was measured for this E, K and N
    with a T not far above: `weights` are contiguous, or the `.mT` of contiguous [E, N, K], K and N
    multiples of 8, addresses of 16 bytes, and no gradient is recorded. It sums in float32 and
    rounds once. The offsets stay on the device, so that a CUDA graph captures the call and may be
    replayed with other ones; a first call before the capture loads the kernel. Everything else is
    torch's own call, its gradients too; where this torch has none for a device, a loop of torch's
    products with the same values. `explain(tokens, weights, offsets=offsets)` says which way a call
    goes, and `counters` counts it.

    Raises what torch._grouped_mm raises for operands that do not fit, FallbackError where
    HGEMM_PACKS_STRICT=1 is set and torch would have run the call, and InvariantError in the
    batch-invariant mode.

    Example:

        tokens = torch.randn(64, 4096, device="cuda", dtype=torch.bfloat16)
        weights = torch.randn(8, 14336, 4096, device="cuda", dtype=torch.bfloat16).mT
        offsets = torch.arange(8, 72, 8, device="cuda", dtype=torch.int32)
        with torch.inference_mode():
            y = hgemm_packs.grouped_matmul(tokens, weights, offsets)  # [64, 14336]
    """
    if torch.compiler.is_compiling():
        return by_torch(tokens, weights, offsets)
    found = find(tokens, weights, offsets)
    if not isinstance(found, str):
        kernel, problem, _ = found
        out = torch.empty((problem.m, problem.n), dtype=tokens.dtype, device=tokens.device)
        try:
            launcher.launch_grouped(kernel, tokens, weights, offsets, out)
            return out
        except RuntimeError:
            found = "launch_failed"
    launcher.fall_back_grouped(found)
    return by_torch(tokens, weights, offsets)


def find(
    tokens: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor
) -> tuple[Kernel, GroupedProblem, int] | str:
    """The kernel that runs a call, loaded, with its problem and device, or why torch does."""
    if is_off():
        return "off"
    described = launcher.describe_grouped(tokens, weights, offsets)
    if isinstance(described, str):
        return described
    if torch.is_grad_enabled() and (tokens.requires_grad or weights.requires_grad):
        return "autograd"
    if is_invariant():
        return "no_invariant_kernel"
    problem, device = described
    answer = _answer(problem, device, tokens.is_cuda)
    return answer if isinstance(answer, str) else (answer, problem, device)


def _answer(problem: GroupedProblem, device: int, is_cuda: bool) -> Kernel | str:
    groups, m, n, k, layout, dtype = problem
    weight = groups, n, k, layout, dtype, device
    known = launcher.grouped_answers
    try:
        if weight not in known:
            if len(known) >= MOST_WEIGHTS:
                known.clear()
            limits = grouped_choice.limits(problem, device)
            known[weight] = limits, [None] * (len(limits) + 1)
        limits, answers = known[weight]
        place = bisect_left(limits, m)
        answer: Kernel | str | None = answers[place]
        if answer is None:
            capturing = is_cuda and torch.cuda.is_current_stream_capturing()
            answer = grouped_choice.load(problem, device, capturing)
            if answer != "cold_capture":
                answers[place] = answer
        return answer
    except RuntimeError:
        return "no_device"
    except OSError as error:  # files of packs; torch can still multiply
        if error.errno is None:  # of no file: a TimeoutError that a signal handler raised
            raise
        return "pack_refused"


def by_torch(tokens: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """torch's own call, or where there is none for this device the same by its products."""
    own = getattr(torch, "_grouped_mm", None)
    if own is not None:
        try:
            result: torch.Tensor = own(tokens, weights, offs=offsets)
            return result
        except NotImplementedError:
            pass
    ends = offsets.tolist()
    parts = [
        tokens[start:end] @ weight
        for start, end, weight in zip([0, *ends], ends, weights, strict=False)
    ]
    rest = tokens.new_empty((tokens.shape[0] - ends[-1], weights.shape[-1]))
    return torch.cat([*parts, rest])
