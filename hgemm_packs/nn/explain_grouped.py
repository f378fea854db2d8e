"""What `explain` says of a grouped product. Called by `report`; decides nothing itself."""

from __future__ import annotations

import torch

from .. import launcher, reasons
from . import grouped, grouped_choice


def explain(tokens: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor) -> list[str]:
    """The lines: who runs grouped_matmul of these, with every reason."""
    found = grouped.find(tokens, weights, offsets)
    described = launcher.describe_grouped(tokens, weights, offsets)
    lines = []
    if isinstance(found, str) and found in reasons.WORDS:
        lines.append(reasons.by_torch(found, reasons.WORDS[found]))
        if found == "no_device" or isinstance(described, str):
            return lines
        lines.append("without that:")
    assert not isinstance(described, str)
    problem, index = described
    try:
        device = launcher.device_info(index)
        choice = grouped_choice.resolve(problem, device)
    except RuntimeError as error:
        return [*lines, reasons.by_torch("no_device", str(error))]
    lines.append(f"problem   {problem} -> {problem.out_dtype}, {problem.acc} accumulate")
    lines.append(f"device    {device.name}, {device.arch}, {device.sm_count} SMs")
    if choice.kernel is None or choice.row is None:
        lines.append(reasons.unserved_line(choice.code))
    else:
        hot = choice.row.hot
        lines.append(f"runs on   {choice.kernel.name}")
        lines.append(
            f"measured  {hot.us:.2f} us with {choice.row.m} rows, torch {hot.torch_us:.2f}"
        )
    return [*lines, *(f"          {reason}" for reason in choice.reasons)]
