"""Kernels run on the caller's current stream and on no other."""

from __future__ import annotations

import pytest
import torch

from hgemm_packs import matmul
from tests import reference
from tests.gpu.conftest import Counts, Wins, exact

pytestmark = pytest.mark.gpu

CYCLES = 50_000_000  # about 30 ms: long enough that a kernel on another stream would be early


def test_a_side_stream_orders_the_call(wins: Wins) -> None:
    for p in wins.some(3):
        a, b = exact(p)
        matmul(a, b)
        late = torch.zeros_like(a)
        out = torch.full((p.m, p.n), torch.nan, dtype=a.dtype, device="cuda")
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        counts = Counts()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(CYCLES)
            late.copy_(a)
            matmul(late, b, out=out)
            fresh = matmul(late, b)
            doubled = fresh + fresh
        # The default stream is idle: were the kernel there, it would have read zeros.
        stream.synchronize()
        reference.assert_exact(out, a, b)
        reference.assert_exact(fresh, a, b)
        assert torch.equal(doubled, fresh + fresh)
        counts.only_hits(2)


def test_streams_one_after_the_other(wins: Wins) -> None:
    p = wins.some(1)[0]
    streams = [torch.cuda.Stream(priority=i % 2 - 1) for i in range(4)]
    sets = [exact(p, seed=seed) for seed in range(4)]
    torch.cuda.synchronize()
    results = []
    for stream, (a, b) in zip(streams, sets, strict=True):
        with torch.cuda.stream(stream):
            results.append(matmul(a, b))
    for stream, (a, b), c in zip(streams, sets, results, strict=True):
        stream.synchronize()
        reference.assert_exact(c, a, b)
