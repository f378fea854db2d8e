"""Two GPUs of one host: the kernel runs where the tensors are, whatever device is current."""

from __future__ import annotations

import subprocess
import sys
import threading
from itertools import product
from pathlib import Path

import pytest
import torch

from hgemm_packs import matmul
from tests import reference
from tests.gpu.conftest import Counts, Wins, exact

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.multigpu,
    pytest.mark.skipif(torch.cuda.device_count() == 1, reason="needs two CUDA devices"),
]


def test_the_second_device_while_the_first_is_current(wins: Wins) -> None:
    torch.cuda.set_device(0)
    for p in wins.some(3):
        a, b = exact(p, "cuda:1")
        out = torch.full((p.m, p.n), torch.nan, dtype=a.dtype, device="cuda:1")
        counts = Counts()
        c = matmul(a, b)
        matmul(a, b, out=out)
        assert torch.cuda.current_device() == 0 and c.device == torch.device("cuda:1")
        reference.assert_exact(c, a, b)
        reference.assert_exact(out, a, b)
        counts.only_hits(2)


def test_the_stream_of_a_device_that_is_not_current(wins: Wins) -> None:
    p = wins.some(1)[0]
    sets = {device: exact(p, f"cuda:{device}", seed=device) for device in (0, 1)}
    for device in sets:
        torch.cuda.synchronize(device)
    counts = Counts()
    for current, (device, (a, b)) in product((0, 1), sets.items()):
        late = torch.zeros_like(a)
        torch.cuda.synchronize(device)
        stream = torch.cuda.Stream(device)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # a kernel on the device's default stream reads zeros
            late.copy_(a)
            with torch.cuda.device(current):
                c = matmul(late, b)
                out = torch.empty_like(c)
                matmul(late, b, out=out)
                assert torch.cuda.current_device() == current
        stream.synchronize()
        reference.assert_exact(c, a, b)
        reference.assert_exact(out, a, b)
    counts.only_hits(8)


def test_a_thread_that_has_touched_no_device(wins: Wins) -> None:
    p = wins.some(1)[0]
    a, b = exact(p, "cuda:1")
    results: list[torch.Tensor] = []
    thread = threading.Thread(target=lambda: results.append(matmul(a, b)))
    thread.start()
    thread.join()
    torch.cuda.synchronize(1)
    reference.assert_exact(results[0], a, b)


def test_operands_on_two_devices(wins: Wins) -> None:
    p = wins.some(1)[0]
    a, b = exact(p, "cuda:0")
    reference.assert_exact(matmul(a, b), a, b)
    for call in (
        lambda f: f(a, b.to("cuda:1")),
        lambda f: f(a, b, out=torch.empty((p.m, p.n), dtype=a.dtype, device="cuda:1")),
    ):
        with pytest.raises(RuntimeError) as theirs:
            call(torch.matmul)
        with pytest.raises(RuntimeError) as ours:
            call(matmul)
        assert str(ours.value) == str(theirs.value)


FRESH = """
import sys, torch
from hgemm_packs import counters, matmul
from tests import reference

m, n, k, layout, dtype = sys.argv[1:]
dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
a, b = reference.cancelling(int(m), int(n), int(k), layout, dtype, device="cuda:1")
reference.assert_exact(matmul(a, b), a, b)
assert counters()["hits"] == 1, counters()
print("done")
"""


def test_a_process_that_only_uses_the_second_device(wins: Wins) -> None:
    p = wins.some(1)[0]
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(p.m), str(p.n), str(p.k), p.layout, p.dtype],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done"]
