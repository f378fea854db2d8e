"""tune on a real GPU: a table for shapes that no pack has a row of, and the values of its calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher, select
from hgemm_packs.problem import Problem
from hgemm_packs.settings import settings
from hgemm_packs.tuning import journal
from hgemm_packs.tuning.bench import GpuBench
from hgemm_packs.tuning.candidates import Candidates
from tests import reference
from tests.gpu.conftest import Counts, exact

pytestmark = pytest.mark.gpu

#: No list has these numbers of tokens.
PROBLEMS = [Problem(m, 4096, 4096, "nt", "bf16") for m in (5, 90)]
PROBLEMS += [Problem(700, 1024, 4096, "nn", "f16")]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache without tables."""

    def forget() -> None:
        settings.cache_clear()
        select.reset()
        launcher.reset_table()

    monkeypatch.setenv("HGEMM_PACKS_CACHE", str(tmp_path / "cache"))
    forget()
    yield
    monkeypatch.undo()
    forget()


def test_shapes_without_a_row_get_one_and_calls_follow_it_at_once() -> None:
    done = hgemm_packs.tune(PROBLEMS, seconds=15)
    assert {each.problem for each in done.gains} == {*PROBLEMS} and not done.left
    jobs, damaged = journal.read(done.folder)
    assert damaged == 0 and {job.problem for job in jobs} == {*PROBLEMS}
    for each in done.gains:
        found = select.resolve(each.problem, 0)
        assert found.code == ("kernel" if each.kernel else "cublas_measured_better")
        a, b = exact(each.problem)
        counts = Counts()
        reference.assert_exact(hgemm_packs.matmul(a, b), a, b)
        assert counts.moved().get("hits", 0) == (each.kernel is not None)
    again = hgemm_packs.tune(PROBLEMS, seconds=15)
    assert (again.known, again.gains) == (3, ())
    select.reset()
    assert select.find_packs().packs[0].local
    select.find_packs().packs[0].verify()


def test_a_recorded_model_is_tuned() -> None:
    layer = torch.nn.Linear(4096, 1024, bias=False, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(90, 4096, device="cuda", dtype=torch.bfloat16)
    with hgemm_packs.enabled(), hgemm_packs.record_shapes() as seen, torch.inference_mode():
        for _ in range(3):
            layer(x)
    problem = Problem(90, 1024, 4096, "nt", "bf16")
    assert dict(seen) == {problem: 3}
    done = hgemm_packs.tune(seen, seconds=8, again=True)
    assert [(each.problem, each.weight) for each in done.gains] == [(problem, 3.0)]


def test_torch_agrees_with_itself_where_it_is_measured_twice() -> None:
    (pack, *_) = select.find_packs().packs
    bench = GpuBench(0)
    problem = PROBLEMS[1]
    ranked = Candidates([pack]).rank(problem)
    screened = bench.screen(problem, ranked[:20], float("inf"))
    assert len(screened.times) == 20 and screened.torch_us > 0
    done = bench.confirm(problem, ranked[0], 1)
    assert done is not None
    for arms in done.samples.values():
        assert {len(us) for us in arms.values()} == {21}
        ratios = sorted(
            a / b for a, b in zip(arms[journal.TORCH], arms[journal.AGAIN], strict=True)
        )
        assert 0.9 < ratios[len(ratios) // 2] < 1.1
    assert bench.gbps() > 100.0
