"""Decisions that C makes without Python: under capture, after a reset, beside other threads."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
import torch

from hgemm_packs import launcher, select
from hgemm_packs.problem import Problem
from tests import fake_driver, packs, predictions, reference
from tests.cpu.call.served_packs import install, multiply, runnable

SURE, UNSURE = Problem(128, 128, 256, "nn", "f16"), Problem(512, 128, 256, "nn", "f16")


@pytest.fixture
def asked(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[Problem]:
    """Problems that C asks Python about, with the pack of tests/predictions.py: C knows its rows
    and its predictor."""
    install(monkeypatch, predictions.write(tmp_path / "predicting", runnable).path)
    select.reset()
    monkeypatch.setattr(launcher, "device_info", lambda index: packs.H200)
    multiply(bare, UNSURE)
    found: list[Problem] = []
    real = select.resolve

    def resolve(problem: Problem, *rest: object, **how: bool) -> select.Selection:
        found.append(problem)
        return real(problem, *rest, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(select, "resolve", resolve)
    return found


def of_rows(m: int) -> Problem:
    return Problem(m, 128, 256, "nn", "f16")


def test_under_capture_a_loaded_kernel_runs_and_torch_is_pythons(
    bare: fake_driver.Started, asked: list[Problem]
) -> None:
    bare.control.capturing = 1
    multiply(bare, SURE)
    assert bare.fallbacks()["cold_capture"] == 1, "nothing may be loaded"
    bare.control.capturing = 0
    multiply(bare, SURE)
    bare.control.capturing = 1
    asked.clear()
    multiply(bare, of_rows(120))
    assert asked == [] and launcher.counters()["predicted"] == 2
    multiply(bare, of_rows(520))
    assert [p.m for p in asked] == [520], "torch's first product may be in this capture"


def test_a_reset_forgets_kernels_and_predictor(
    bare: fake_driver.Started, asked: list[Problem]
) -> None:
    multiply(bare, SURE)
    multiply(bare, of_rows(120))
    assert [p.m for p in asked] == [128]
    launcher.reset_table()
    for m in (120, 112, 104):
        multiply(bare, of_rows(m))
    # The first tells rows and predictor again, and hands the kernel over, which was loaded before.
    assert [p.m for p in asked] == [128, 120]
    assert launcher.counters()["predicted"] == 5 and bare.control.loads == 1


def test_what_c_knows_is_dropped_where_packs_change(
    bare: fake_driver.Started, asked: list[Problem], tmp_path: Path
) -> None:
    multiply(bare, SURE)
    # By this one the kernel takes as long as torch, whatever the problem.
    other = predictions.write(tmp_path / "other", runnable, ours=predictions.leaf(0.0), margin=1.5)
    select.refuse(select.find_packs().packs[0], packs_error())
    select.prefer(other)
    asked.clear()
    multiply(bare, of_rows(120))
    assert [p.m for p in asked] == [120]
    assert bare.fallbacks()["not_measured"] == 2


def packs_error() -> Exception:
    from hgemm_packs.errors import PackError

    return PackError("bad_blob", "damaged", "kernels.bin")


def test_threads_decide_beside_resets(bare: fake_driver.Started, asked: list[Problem]) -> None:
    failures: list[BaseException] = []
    over = threading.Event()

    def work(seed: int) -> None:
        dice = random.Random(seed)
        try:
            for _ in range(30):
                p = of_rows(8 * dice.randint(1, 40))
                a, b = reference.cancelling(p.m, p.n, p.k, p.layout, torch.float16)
                reference.assert_exact(bare.matmul(a, b), a, b)
        except BaseException as error:
            failures.append(error)

    def reset() -> None:
        while not over.wait(0.002):
            launcher.reset_table()
            launcher.forget_predictors()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    resetting = threading.Thread(target=reset)
    for each in (*threads, resetting):
        each.start()
    for each in threads:
        each.join()
    over.set()
    resetting.join()
    assert not failures
    counts = launcher.counters()
    assert counts["hits"] + counts["fallbacks"] == 1 + 3 * 30 and counts["predicted"] > 0
