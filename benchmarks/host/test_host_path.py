"""What a call costs the host, by pytest-benchmark: hit, miss, `out=` and a layer, beside torch.

`make bench-host`, on a GPU with the pack, elsewhere on the stand-in driver of the tests: there a
launch does nothing, and torch's calls hold the product. Arms run one after another; host_cost.py,
which takes them in turns, has the figures that README quotes. This shows what a change did, with
`pytest-benchmark compare` for two files of it.

A round is a block of CALLS calls behind a synchronise, so the launch queue never fills; times are
of one call. Every test says by the counters that its calls took their path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from timeit import Timer
from typing import Any

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

import hgemm_packs
from benchmarks.host.host_cost import CALLS, DTYPES, MISS, ROUNDS, WARM_ROUNDS
from hgemm_packs import launcher, nn, select
from hgemm_packs.problem import Problem
from tests import fake_driver


def per_call() -> float:
    """A clock that makes of the seconds of a block those of a call."""
    return perf_counter() / CALLS


pytestmark = pytest.mark.benchmark(timer=per_call)


@dataclass(frozen=True)
class Place:
    """Where calls run, and a problem for each kind; `layer` is one of a linear layer's."""

    device: str
    hit: Problem
    miss: Problem
    layer: Problem

    def synchronize(self) -> None:
        """Wait for what was launched."""
        if self.device == "cuda":
            torch.cuda.synchronize()


@pytest.fixture(scope="session")
def driver_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_driver.compile_driver(tmp_path_factory.mktemp("driver") / "libfake.so")


@pytest.fixture
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """The GPU here with its smallest wins, else the stand-in."""
    if torch.cuda.is_available():
        from tests.gpu.conftest import Wins

        wins = [problem for problem in Wins().problems if problem.dtype == "f16"]
        hit, layer = (next(p for p in wins if p.layout == layout) for layout in ("nn", "nt"))
        yield Place("cuda", hit, MISS, layer)
        return
    torch.set_num_threads(1)  # of torch's products, which are in this thread
    fake = fake_driver.start(monkeypatch, request.getfixturevalue("driver_library"))
    fake.set_stream(fake_driver.LEGACY)
    fake.control.noop = 1
    for layout in ("nn", "nt"):
        fake.serve("tma3_v1", layout)
    monkeypatch.setattr(select, "resolve", fake.resolve)
    monkeypatch.setattr(nn, "linear", launcher.linear)
    hit = Problem(16, 16, 16, "nn", "f16")
    miss, layer = Problem(16, 16, 16, "nn", "bf16"), Problem(16, 16, 16, "nt", "f16")
    yield Place("cpu", hit, miss, layer)


def tensor(place: Place, problem: Problem, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=place.device).to(DTYPES[problem.dtype])


def measure(
    benchmark: BenchmarkFixture, place: Place, group: str, call: str, **names: Any
) -> tuple[bool, bool]:
    """Time blocks of this call; whether some had a kernel, and whether some fell back."""
    benchmark.group = group
    setup = f"{', '.join(names)} = given"
    loop = Timer(call, setup, globals={"given": tuple(names.values())}).timeit
    before = launcher.counters()
    benchmark.pedantic(
        loop, (CALLS,), setup=place.synchronize, rounds=ROUNDS, warmup_rounds=WARM_ROUNDS
    )
    after = launcher.counters()
    place.synchronize()
    return after["hits"] > before["hits"], after["fallbacks"] > before["fallbacks"]


def functions() -> dict[str, Callable[..., torch.Tensor]]:
    return {"matmul": launcher.matmul, "torch.mm": torch.mm, "torch.matmul": torch.matmul}


@pytest.mark.parametrize("function", functions())
@pytest.mark.parametrize("call", ["f(a, b)", "f(a, b, out=c)"])
@pytest.mark.parametrize("kind", ["hit", "miss"])
def test_call(
    kind: str, call: str, function: str, place: Place, benchmark: BenchmarkFixture
) -> None:
    problem: Problem = getattr(place, kind)
    m, n, k = problem.m, problem.n, problem.k
    a, b, c = (tensor(place, problem, *shape) for shape in ((m, k), (k, n), (m, n)))
    took = measure(
        benchmark, place, f"{kind}: {call}", call, f=functions()[function], a=a, b=b, c=c
    )
    ours = function == "matmul"
    assert took == (ours and kind == "hit", ours and kind == "miss")


@pytest.mark.parametrize("forward", ["hgemm_packs", "torch"])
def test_layer(forward: str, place: Place, benchmark: BenchmarkFixture) -> None:
    problem = place.layer
    layer = torch.nn.Linear(
        problem.k, problem.n, bias=False, device=place.device, dtype=DTYPES[problem.dtype]
    )
    if forward == "hgemm_packs":  # as README puts it into a model
        hgemm_packs.optimize(layer)
    x = tensor(place, problem, problem.m, problem.k)
    with torch.inference_mode():
        took = measure(benchmark, place, "layer", "layer(x)", layer=layer, x=x)
    assert took == (forward == "hgemm_packs", False)
