"""What problems without a row cost the host, without a GPU: decisions, and a stream of sizes.

    python -m benchmarks.host.first_sight PACK

Decisions are `predict`'s, of the pack's first predictor, which finishes what the launcher may give
up early: of a stream of M (`alike`), and of problems that share nothing (`apart`), one behind the
other, and after so much other memory was read that no cache has the trees. The stream is of calls
that wait to come again, on the stand-in driver of the tests, from CPU tensors: what they take over
torch.matmul, alone, and where other code runs between two calls, as cuBLAS's own decision does.
`benchmarks.measure.unseen` has the figures of a GPU.
"""

from __future__ import annotations

import gc
import json
import random
import re
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import pytest
import torch

from hgemm_packs import launcher
from hgemm_packs.pack.folder import Pack
from hgemm_packs.problem import Problem
from hgemm_packs.settings import settings
from tests import fake_driver, packs

SIZES, EVICTED, EVICTIONS, TURNS = 1000, 1 << 27, 60, 150
SIDE, ROWS = 8, 32


def microseconds(
    run: Callable[[Any], object], of: Iterable[Any], before: Callable[[], object]
) -> list[float]:
    """What each takes."""
    times = []
    for each in of:
        before()
        began = perf_counter()
        run(each)
        times.append((perf_counter() - began) * 1e6)
    return times


def decisions(pack: Pack) -> dict[str, float]:
    """Medians in us."""
    found = pack.manifest.predictors[0]
    device = next(p for p in pack.manifest.device_profiles if p.name == found.profile)
    dice = random.Random(0)

    def size() -> int:
        return 8 * round(2 ** dice.uniform(0, 10))

    sets = {
        "apart": [Problem(size(), size(), size(), "nn", "f16") for _ in range(SIZES)],
        "alike": [Problem(m, 4096, 4096, "nn", "f16") for m in range(128, 128 + SIZES)],
    }
    memory = torch.zeros(EVICTED, dtype=torch.int8)
    figures = {}
    for name, problems in sets.items():
        ready = launcher.predictor(found, device)

        def decide(problem: Problem, ready: object = ready) -> object:
            return launcher.predict(ready, problem)

        figures[f"{name}_us"] = median(microseconds(decide, problems, lambda: None))
        cold = microseconds(decide, problems[:EVICTIONS], lambda: memory.add_(1))
        figures[f"{name}_out_of_caches_us"] = median(cold[EVICTIONS // 6 :])
    return figures


def other_code() -> Callable[[], object]:
    """Something that runs much code and reads little memory."""
    square, places = torch.randn(16, 16), torch.arange(16)
    document = {"a": [1, 2.5, {"x": "y"}], "b": "z" * 40}

    def run() -> None:
        torch.linalg.inv(square), torch.sort(square), torch.fft.fft(square), torch.topk(square, 3)
        torch.softmax(square, 1), torch.unique(places), torch.bincount(places), square[places]
        torch.cat([square, square]), torch.where(square > 0, square, -square), square.cumsum(0)
        torch.nn.functional.layer_norm(square, (16,)), torch.einsum("ij,jk->ik", square, square)
        json.loads(json.dumps(document)), re.sub("[a-c]+x?", "q", "abcxabd" * 5)
        zlib.compress(b"hello" * 30)

    return run


def stream(pack: Path) -> dict[str, float]:
    """Medians in us of what a call that waits takes over torch.matmul."""
    patch = pytest.MonkeyPatch()
    patch.setenv("HGEMM_PACKS_PATH", str(pack))
    settings.cache_clear()
    library = fake_driver.compile_driver(Path(tempfile.mkdtemp()) / "libfake.so")
    fake = fake_driver.start(patch, library)
    fake.set_stream(fake_driver.LEGACY)
    patch.setattr(launcher, "device_info", lambda index: packs.H200)
    rows = [torch.randn(m, SIDE).half() for m in range(1, ROWS + 1)]
    arms: dict[str, Callable[..., object]] = {"ours": fake.matmul, "torch": torch.matmul}
    for width in range(1, 5):  # the first are decided
        first = torch.ones(SIDE, 8 * width).half()
        for a in rows:
            fake.matmul(a, first)
    gc.disable()
    before = launcher.counters()["fallback not_measured"]
    figures, width = dict[str, float](), 64
    code: dict[str, Callable[[], object]] = {"stream": lambda: None}
    code["stream_beside_other_code"] = other_code()
    for name, between in code.items():
        took: dict[str, list[float]] = {arm: [] for arm in arms}
        for _ in range(TURNS):
            width += 8
            b = torch.randn(SIDE, width).half()
            for arm in random.sample([*arms], 2):

                def call(a: torch.Tensor, b: torch.Tensor = b, arm: str = arm) -> object:
                    return arms[arm](a, b)

                took[arm] += microseconds(call, rows, between)
        figures[f"{name}_extra_us"] = median(took["ours"]) - median(took["torch"])
    assert launcher.counters()["fallback not_measured"] - before == 2 * TURNS * ROWS
    patch.undo()
    return figures


def main(arguments: Sequence[str]) -> None:
    torch.set_num_threads(1)
    place = Path(arguments[0])
    figures = decisions(Pack.open(place)) | stream(place)
    print(json.dumps({name: round(us, 2) for name, us in figures.items()}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
