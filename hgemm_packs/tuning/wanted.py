"""What a user hands to `tune`, as problems with weights: how often each is multiplied.

Called by `tune`. A model, a recording, a file of either or of shapes, or problems themselves.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..problem import Problem
from . import config, shapes
from .recording import Recording
from .recording import is_recording as is_recording

#: Numbers of tokens that a model is tuned for, where nobody says: of decoding, of batches, and of
#: a prompt.
TOKENS = (1, 8, 16, 32, 64, 128, 512, 2048)
_DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16"}
#: As the table knows weights of torch.nn.Linear: x @ weight.t().
_LAYOUT = "nt"


def find_wanted(asked: object, tokens: Sequence[int]) -> dict[Problem, float]:
    """The problems of what `tune` is asked about, with weights. Raises TypeError, ValueError,
    PackError for a file that is none of these, OSError."""
    for m in tokens:
        if not isinstance(m, int) or isinstance(m, bool) or m < 1:
            raise ValueError(f"tokens={tokens!r}: not numbers from 1 on, such as (1, 8, 64)")
    if isinstance(asked, torch.nn.Module):
        return _of_model(asked, tokens)
    if isinstance(asked, (str, os.PathLike)):
        return _of_file(Path(asked), tokens)
    if isinstance(asked, Mapping):  # a recording is one, too
        return {_of_value(each): float(calls) for each, calls in asked.items()}
    if isinstance(asked, Iterable):
        return _count(_of_value(each) for each in asked)
    raise TypeError(
        f"tune: {type(asked).__name__} is no torch.nn.Module, recording, file or list of shapes"
    )


def _count(problems: Iterable[Problem]) -> dict[Problem, float]:
    found: dict[Problem, float] = {}
    for problem in problems:
        found[problem] = found.get(problem, 0.0) + 1.0
    return found


def _of_value(value: Any) -> Problem:
    """A problem, or (M, N, K) with perhaps layout and type: "nt" and "f16" where not said."""
    if isinstance(value, Problem):
        return value
    said: list[Any] = list(value) if isinstance(value, Iterable) else []
    if not 3 <= len(said) <= 5:
        raise TypeError(f"tune: {value!r} is not (M, N, K[, layout[, dtype]])")
    if not all(isinstance(each, int) and each > 0 for each in said[:3]):
        raise ValueError(f"tune: {value!r}: M, N and K are not numbers from 1 on")
    layout, dtype = (said[3:] + [_LAYOUT, "f16"][len(said) - 3 :])[:2]
    m, n, k = said[:3]
    return Problem(m, n, k, layout, _DTYPES.get(dtype, dtype))


def _of_model(model: torch.nn.Module, tokens: Sequence[int]) -> dict[Problem, float]:
    """Every linear layer at every number of tokens; a layer with a bias also with a kernel that
    adds it."""

    def problems() -> Iterable[Problem]:
        for layer in model.modules():
            if not isinstance(layer, torch.nn.Linear) or layer.weight.dtype not in _DTYPES:
                continue
            n, k = layer.weight.shape
            epilogue = "none" if layer.bias is None else "bias"
            for m in tokens:
                yield Problem(m, n, k, _LAYOUT, _DTYPES[layer.weight.dtype], epilogue=epilogue)

    return _count(problems())


def _of_file(path: Path, tokens: Sequence[int]) -> dict[Problem, float]:
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".toml":
        return _count(shapes.read(path).problems())
    if is_recording(path):
        return {problem: float(calls) for problem, calls in Recording.load(path).items()}
    found, dtype = config.read(path, tokens)
    return of_layers(found, tokens, dtype)


def of_layers(
    found: shapes.Shapes, tokens: Sequence[int], dtype: str | None = None
) -> dict[Problem, float]:
    """The layers of a list, each weight as often as it has names, of `dtype` or of the list's own
    types."""
    weights: dict[Problem, float] = {}
    for layer in found.layers:
        for each in [dtype] if dtype else found.dtypes:
            for m in tokens:
                problem = Problem(m, layer.n, layer.k, _LAYOUT, each)
                weights[problem] = weights.get(problem, 0.0) + len(layer.names.split())
    return weights
