"""20,000 random calls, the same in every run: see differential.py, which makes a million of others.

A test of the comparison itself comes first: one that sees nothing would agree with anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.fake_driver import Started

from .calls import draw
from .differential import LEAST_HITS, SEEDS, Tally, calm, run
from .sides import TORCH, serve_all

PLAN = json.loads(SEEDS.read_text(encoding="utf-8"))["test"]


@pytest.fixture
def serving(fake: Started) -> Started:
    serve_all(fake)
    return fake


@pytest.mark.parametrize("seed", PLAN["seeds"])
def test_random_calls(serving: Started, seed: int) -> None:
    tally = Tally()
    with calm():
        run(serving, seed, range(PLAN["calls"]), tally)
    assert not tally.differences, "\n".join(tally.examples)
    assert tally.calls + tally.skipped == PLAN["calls"] and tally.hits >= LEAST_HITS * tally.calls


def _wrong_sign(*args: Any, **kwargs: Any) -> Any:
    negated = [-x if type(x) is torch.Tensor and x.is_neg() else x for x in args]
    return torch.matmul(*negated, **kwargs)


def _twice(*args: Any, **kwargs: Any) -> Any:
    try:
        return torch.matmul(*args, **kwargs)
    except Exception:
        return torch.matmul(*args, **kwargs)


def _no_version(*args: Any, **kwargs: Any) -> Any:
    out = kwargs.get("out")
    if not isinstance(out, torch.Tensor) or out.is_inference():
        return torch.matmul(*args, **kwargs)
    before = out._version
    result = torch.matmul(*args, **kwargs)
    torch._C._autograd._unsafe_set_version_counter((out,), (before,))
    return result


def _another_bit(*args: Any, **kwargs: Any) -> Any:
    result = torch.matmul(*args, **kwargs)
    if result.dtype is torch.float16 and result.numel() and not result.requires_grad:
        with torch.no_grad():
            result.view(torch.int16)[..., -1] ^= 1
    return result


def _mm(*args: Any, **kwargs: Any) -> Any:
    if len(args) == 2 and not kwargs and all(getattr(x, "ndim", 0) == 2 for x in args):
        return torch.mm(*args)
    return torch.matmul(*args, **kwargs)


WRONG: dict[Callable[..., Any], str] = {
    _wrong_sign: "bits",
    _twice: "log",
    _no_version: "operands",
    _another_bit: "bits",
    _mm: "log",
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_what_is_wrong_is_seen(serving: Started, wrong: Callable[..., Any]) -> None:
    """Each is a mistake that matmul has made, or could make, in few calls."""
    tally, side = Tally(), SimpleNamespace(matmul=wrong, linear=TORCH.linear)
    with calm():
        run(side, 1, range(3000), tally)  # type: ignore[arg-type]
    assert tally.differences[WRONG[wrong]], tally.differences


def _leaves_a_file_open(*args: Any, **kwargs: Any) -> Any:
    open(__file__, encoding="utf-8")  # noqa: SIM115
    return torch.matmul(*args, **kwargs)


def test_files_left_open_are_no_difference(serving: Started) -> None:
    tally, side = Tally(), SimpleNamespace(matmul=_leaves_a_file_open, linear=TORCH.linear)
    with calm():
        run(side, 1, range(100), tally)  # type: ignore[arg-type]
    assert "warnings" not in tally.differences, tally.examples


def test_a_key_makes_the_same_call() -> None:
    for key in range(200):
        one, other = draw(key), draw(key)
        assert str(one) == str(other) and one.kwargs.keys() == other.kwargs.keys()
        assert not {id(x) for x in one.tensors()} & {id(x) for x in other.tensors()}
