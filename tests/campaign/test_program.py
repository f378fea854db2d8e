"""2,000 random calls of torch's own functions, each as torch runs it and under `enabled()`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

import hgemm_packs
from tests.fake_driver import Started

from .calls import Call, draw
from .differential import Seen, _kills_torch, calm, differences, observe
from .sides import TORCH, serve_all

CALLS = 2000
#: Of the keys that other runs do not have.
FIRST = 255 << 40
#: What a kernel's rounding and order of summation may cost, of the largest value.
CLOSE = {torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
#: What only says that values differ.
VALUES = {"bits", "product", "gradient bits", "memory"}


def _is_close(x: torch.Tensor, y: torch.Tensor) -> bool:
    one, other = x.detach().double(), y.detach().double()
    if not one.numel():
        return True
    scale = torch.nan_to_num(other, 0, 0, 0).abs().max()
    return bool(((one - other).abs() <= CLOSE.get(x.dtype, 0) * scale).all())


def _found(mine: Call, other: Call, ours: Seen, theirs: Seen) -> Iterator[str]:
    """In what the sides differ; where kernels ran, values need only be close. Special ones are
    others where sums are taken in another order, and a read-only view of them says nothing."""
    exact, ours.hit, hit = not ours.hit, False, ours.hit
    told = set(differences(ours, theirs, mine, other))
    yield from told if exact else told - VALUES
    if not hit or told - VALUES or mine.overlap or "special values" in mine.parts:
        return
    for x, y in zip(
        [ours.result, *ours.gradients], [theirs.result, *theirs.gradients], strict=True
    ):
        if x is not None and not _is_close(x, y):  # None: something raised behind the product
            yield "product"


def test_random_calls_of_torch(fake: Started) -> None:
    serve_all(fake)
    hits = run = 0
    wrong: list[str] = []
    with calm():
        for key in itertools.islice(itertools.count(FIRST), CALLS):
            mine, other = draw(key), draw(key)
            if _kills_torch(mine):
                continue
            theirs = observe(other, TORCH)
            with hgemm_packs.enabled():
                ours = observe(mine, TORCH)
            run, hits = run + 1, hits + ours.hit
            with torch._C.DisableTorchFunctionSubclass():
                for what in _found(mine, other, ours, theirs):
                    shown = theirs.facts.get(what), ours.facts.get(what)
                    wrong.append(f"{key} {what}: {mine}: {shown}")
    assert not wrong, "\n".join(wrong[:10])
    assert run > 0.99 * CALLS and hits > 0.3 * CALLS, (run, hits)
