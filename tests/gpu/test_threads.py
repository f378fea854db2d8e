"""Four threads at once, from their first call on, each on a stream of its own."""

from __future__ import annotations

import threading

import pytest
import torch

from hgemm_packs import launcher, matmul
from tests import reference
from tests.gpu.conftest import Counts, Wins, exact

pytestmark = pytest.mark.gpu

THREADS = 4
ROUNDS = 60


def test_four_threads(wins: Wins) -> None:
    problems = wins.some(3)
    failures: list[BaseException] = []
    barrier = threading.Barrier(THREADS)
    counts = Counts()

    def work(index: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                sets = [exact(p, seed=index) for p in problems]
                outs = [
                    torch.empty((p.m, p.n), dtype=a.dtype, device="cuda")
                    for p, (a, _) in zip(problems, sets, strict=True)
                ]
                barrier.wait()
                for i in range(ROUNDS):
                    for (a, b), out in zip(sets, outs, strict=True):
                        out.fill_(torch.nan)
                        matmul(a, b, out=out)
                        fresh = matmul(a, b)
                        assert torch.equal(fresh, out)
                    if index == 0 and i % 10 == 5:
                        launcher.reset_table()
                for (a, b), out in zip(sets, outs, strict=True):
                    reference.assert_exact(out, a, b)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    counts.only_hits(2 * THREADS * ROUNDS * len(problems))
