"""The tuned cuBLASLt baseline, against a stand-in library that computes what it is told to."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hgemm_packs import _cublaslt
from hgemm_packs.measure import baselines, timing
from hgemm_packs.measure.operands import Operands, operands
from hgemm_packs.problem import Problem

SOURCE = Path(__file__).parents[2] / "fake_cublaslt" / "fake.c"
TOLERANCE = {"f16": 2e-3, "bf16": 1.2e-2}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    target = tmp_path_factory.mktemp("cublaslt") / "libfake_cublaslt.so"
    command = ["cc", "-std=c11", "-O1", "-fPIC", "-shared", str(SOURCE), "-o", str(target), "-lm"]
    subprocess.run(command, check=True)
    return str(target)


@pytest.fixture
def fake(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = _cublaslt.handle("libabsent_cublaslt.so", library)
    monkeypatch.setattr(baselines, "_handle", lambda device: handle)
    monkeypatch.setattr(
        baselines, "_workspace", lambda device: torch.empty(1 << 20, dtype=torch.uint8)
    )
    stream = SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: stream)


def relative_error(one: Operands) -> float:
    exact = one.a.double() @ one.b.double()
    return float((one.c.double() - exact).norm() / exact.norm())


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_every_algorithm_computes_the_row_major_product(layout: str, dtype: str) -> None:
    problem = Problem(9, 24, 40, layout, dtype)
    one = operands(problem, "cpu", seed=3)[0]
    arms = baselines.tuned_cublaslt(problem, one.a, one.b, one.c)
    assert len(arms) == 3  # 1 and 2 once each although four limits were asked, and 3
    for arm in arms:
        one.c.fill_(torch.nan)
        arm(one.a, one.b, one.c)
        assert relative_error(one) < TOLERANCE[dtype]


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("l2_bytes", "screened", "picked"), [(400, ["hot"], (2, 2)), (6000, ["hot", "cold"], (2, 0))]
)
def test_what_no_cache_holds_is_screened_once(
    monkeypatch: pytest.MonkeyPatch, l2_bytes: int, screened: list[str], picked: tuple[int, int]
) -> None:
    """Operands of 1488 bytes. All algorithms ran twice in the same way where no L2 held them."""
    problem = Problem(9, 16, 24, "nt", "f16")
    asked: list[str] = []

    def screen(arms: dict[str, Any], problem: Problem, *, protocol: str, **_: Any) -> Any:
        asked.append(protocol)
        return dict(
            zip(arms, (9.0, 8.0, 7.0) if protocol == "hot" else (7.0, 8.0, 9.0), strict=True)
        )

    monkeypatch.setattr(baselines, "screen", screen)
    monkeypatch.setattr(baselines, "operands", lambda p, device, **kw: operands(p, "cpu", **kw))
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(timing, "stage", lambda device: SimpleNamespace(l2_bytes=l2_bytes))
    tuned = baselines.best_cublaslt(problem)
    assert tuned is not None and tuned.algorithms == 3
    assert asked == screened and (tuned.hot.index, tuned.cold.index) == picked


@pytest.mark.usefixtures("fake")
def test_of_a_gated_problem_the_product_alone_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its columns, and none of them to C, which has half as many."""
    problem = Problem(9, 32, 40, "nt", "f16", epilogue="gated_silu")
    made: list[torch.Tensor] = []

    def screen(arms: dict[str, Any], problem: Problem, **_: Any) -> dict[str, float]:
        one = operands(problem, "cpu", seed=3)[0]
        for arm in arms.values():
            arm(one.a, one.b, one.c)
            assert bool(one.c.isnan().all())
            made.append((one.a.double() @ one.b.double()).half())
        return dict.fromkeys(arms, 1.0)

    wholes: list[torch.Tensor] = []
    into = baselines._into
    monkeypatch.setattr(baselines, "screen", screen)
    monkeypatch.setattr(baselines, "operands", lambda p, device, **kw: operands(p, "cpu", **kw))
    monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
    monkeypatch.setattr(timing, "stage", lambda device: SimpleNamespace(l2_bytes=1 << 20))
    monkeypatch.setattr(
        baselines, "_into", lambda arm, whole: wholes.append(whole) or into(arm, whole)
    )
    tuned = baselines.best_cublaslt(problem)
    assert tuned is not None and tuned.algorithms == len(wholes) == 3 and len(made) == 6
    torch.testing.assert_close(wholes[0].double(), made[-1].double(), rtol=1e-2, atol=1e-2)


@pytest.mark.usefixtures("fake")
def test_padded_rows_use_their_leading_stride() -> None:
    problem = Problem(6, 10, 8, "nt", "f16")
    a = torch.randn(6, 11, dtype=torch.float16)[:, :8]
    b = torch.randn(10, 19, dtype=torch.float16)[:, :8].t()
    c = torch.full((6, 16), torch.nan, dtype=torch.float16)
    baselines.tuned_cublaslt(problem, a, b, c[:, :10])[0](a, b, c[:, :10])
    assert relative_error(Operands(a, b, c[:, :10])) < TOLERANCE["f16"]
    assert c[:, 10:].isnan().all()


@pytest.mark.usefixtures("fake")
def test_a_refused_algorithm_says_so() -> None:
    problem = Problem(4, 8, 13, "nn", "f16")
    one = operands(problem, "cpu")[0]
    arms = baselines.tuned_cublaslt(problem, one.a, one.b, one.c)
    arms[0](one.a, one.b, one.c)
    assert relative_error(one) < TOLERANCE["f16"]
    with pytest.raises(RuntimeError, match=r"cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED \(15\)"):
        arms[1](one.a, one.b, one.c)


@pytest.mark.usefixtures("fake")
def test_operands_without_a_contiguous_dimension_are_refused() -> None:
    a = torch.randn(8, 16, dtype=torch.float16)[:, ::2]
    with pytest.raises(ValueError, match="neither dimension is contiguous"):
        baselines.tuned_cublaslt(Problem(8, 8, 8, "nn", "f16"), a, a, a)


def test_bad_calls_of_the_extension_raise(library: str) -> None:
    with pytest.raises(RuntimeError, match="was not found"):
        _cublaslt.handle("libabsent_cublaslt.so")
    handle = _cublaslt.handle(library)
    assert _cublaslt.version(handle) == 130104
    plan = _cublaslt.plan(handle, False, 8, 8, 8, False, False, 8, 8, 8, 16, (4 << 20,))
    offered = _cublaslt.algorithms(plan)
    assert [size for size, *_ in offered] == [0, 0, 1 << 20]
    assert [int.from_bytes(algo[:8], "little") for *_, algo in offered] == [1, 2, 3]
    assert {len(algo) for *_, algo in offered} == {64}
    with pytest.raises(IndexError, match="algorithm 3 of 3"):
        _cublaslt.matmul(plan, 3, 0, 0, 0, 0, 0, 0)
    with pytest.raises(ValueError, match="workspace is smaller"):
        _cublaslt.matmul(plan, 2, 0, 0, 0, 0, 0, 0)
    with pytest.raises(RuntimeError, match="cublasLtMatrixLayoutCreate"):
        _cublaslt.plan(handle, False, 8, 8, 8, False, False, 4, 8, 8, 16, (0,))
