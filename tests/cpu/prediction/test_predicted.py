"""Products that nobody measured: predicted, counted and bounded, through public `matmul`."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hgemm_packs import launcher, select
from hgemm_packs.pack.folder import Pack
from hgemm_packs.pack.prediction_fields import MAX_NODES
from hgemm_packs.problem import Problem
from hgemm_packs.settings import LOGGER, settings
from tests import fake_driver, packs, predictions, reference
from tests.cpu.call.served_packs import install, multiply, runnable
from tests.predictions import AT

#: Decisions that C lets Python make at first sight, and problems of a generation of its table.
AT_FIRST_SIGHT, GENERATION = 32, 16384
SURE, UNSURE = Problem(128, 128, 256, "nn", "f16"), Problem(512, 128, 256, "nn", "f16")


@pytest.fixture
def predicting(
    bare: fake_driver.Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> fake_driver.Started:
    """The launcher with the pack of tests/predictions.py, whose kernels compute; reasons are not
    logged, whatever tests before wanted."""
    monkeypatch.setattr(LOGGER, "isEnabledFor", lambda level: level >= logging.WARNING)
    pack = predictions.write(tmp_path / "predicting", runnable)
    install(monkeypatch, pack.path)
    select.reset()
    monkeypatch.setattr(
        launcher, "device_info", lambda index: packs.H200
    )  # the stand-in device is no H200
    return bare


class Decisions:
    """Counts what C asks of Python."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.of: list[tuple[int, bool]] = []
        real = select.resolve

        def resolve(problem: Problem, *rest: object, **how: bool) -> select.Selection:
            self.of.append((problem.m, bool(how.get("unmeasured"))))
            return real(problem, *rest, **how)  # type: ignore[arg-type]

        patch.setattr(select, "resolve", resolve)


@pytest.fixture
def asking(predicting: fake_driver.Started, monkeypatch: pytest.MonkeyPatch) -> fake_driver.Started:
    """The same where C is not told what to decide by, and asks."""
    monkeypatch.setattr(select, "tell_predictor", lambda index: None)
    return predicting


def test_a_sure_prediction_runs_a_kernel_and_is_counted(predicting: fake_driver.Started) -> None:
    multiply(predicting, packs.WIN)
    assert "predicted" not in launcher.counters()
    for _ in range(3):
        multiply(predicting, SURE)
    multiply(predicting, UNSURE)
    assert launcher.counters() == {
        "hits": 4,
        "launches": 4,
        "fallbacks": 1,
        "predicted": 3,
        "fallback not_measured": 1,
    }


def test_the_switch_leaves_rows_alone(
    predicting: fake_driver.Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HGEMM_PACKS_PREDICT", "0")
    settings.cache_clear()
    multiply(predicting, SURE)
    multiply(predicting, packs.WIN)
    assert predicting.fallbacks() == {"not_measured": 1}
    assert launcher.counters()["hits"] == 1


def test_a_stream_of_sizes_is_not_decided_until_a_size_comes_again(
    asking: fake_driver.Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Decisions(monkeypatch)
    b = torch.ones(64, 8, dtype=torch.float16)
    sizes = range(1, 2 * AT_FIRST_SIGHT + 1)
    for m in sizes:
        out = asking.matmul(torch.ones(m, 64, dtype=torch.float16), b)
        reference.assert_exact(out, torch.ones(m, 64, dtype=torch.float16), b)
    first = [m for m, _ in asked.of]
    assert len(first) == 1 + AT_FIRST_SIGHT, "one before C knew the rows"
    assert [known for _, known in asked.of] == [False] + [True] * AT_FIRST_SIGHT
    for m in sizes:
        asking.matmul(torch.ones(m, 64, dtype=torch.float16), b)
    assert [m for m, _ in asked.of] == list(sizes), "each once, the rest at second sight"
    count = len(asked.of)
    for m in sizes:
        asking.matmul(torch.ones(m, 64, dtype=torch.float16), b)
    assert len(asked.of) == count


def narrow(m: int) -> torch.Tensor:
    """Rows of 7, which no row and no candidate of the pack takes."""
    return torch.ones(m, 7, dtype=torch.float16)


def strided(m: int) -> torch.Tensor:
    return torch.ones(m, 128, dtype=torch.float16)[:, :64]


@pytest.mark.parametrize(
    ("operand", "k", "reason"), [(narrow, 7, "unaligned"), (strided, 64, "strided")]
)
def test_a_stream_of_sizes_that_no_row_fits_is_not_decided_each(
    asking: fake_driver.Started,
    monkeypatch: pytest.MonkeyPatch,
    operand: Callable[[int], torch.Tensor],
    k: int,
    reason: str,
) -> None:
    """C learned the rows at the first aligned miss, and asked Python about each size of a program
    that had no such problem."""
    asked = Decisions(monkeypatch)
    b = torch.ones(k, 8, dtype=torch.float16)
    count = 2 * AT_FIRST_SIGHT
    for m in range(2, count + 2):  # one row has no stride
        reference.assert_exact(asking.matmul(operand(m), b), operand(m), b)
    assert [known for _, known in asked.of] == [False] + [True] * AT_FIRST_SIGHT
    assert asking.fallbacks() == {reason: count}


def test_rows_of_another_device_tell_nothing(
    predicting: fake_driver.Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = dataclasses.replace(packs.H200, name="NVIDIA H100")
    monkeypatch.setattr(launcher, "device_info", lambda index: other)
    b = torch.ones(7, 8, dtype=torch.float16)
    for m in range(1, 4):
        predicting.matmul(narrow(m), b)
    multiply(predicting, UNSURE)
    assert predicting.fallbacks() == {"unaligned": 3, "profile": 1}


def test_c_decides_as_python_would_where_nothing_is_to_be_loaded(
    predicting: fake_driver.Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    multiply(predicting, packs.WIN)  # C learns the rows, and what to decide by
    multiply(predicting, SURE)  # its kernel is loaded by Python
    asked = Decisions(monkeypatch)
    sizes = [(m, n) for m in (1, 64, 255, 256, 257, 400) for n in (8, 64, 72, 128)]
    for m, n in sizes:
        wanted = select.resolve(Problem(m, n, 64, "nn", "f16"), 0, packs.H200).code
        asked.of.clear()
        before = launcher.counters()
        a, b = reference.cancelling(m, n, 64, "nn", torch.float16)
        reference.assert_exact(predicting.matmul(a, b), a, b)
        now = launcher.counters()
        assert asked.of == [], (m, n)
        code = "predicted" if now["hits"] > before["hits"] else "not_measured"
        assert code == wanted, (m, n)
        assert now.get(code, 0) + now.get(f"fallback {code}", 0) == 1 + before.get(
            code, 0
        ) + before.get(f"fallback {code}", 0)
    narrow_b = torch.ones(7, 8, dtype=torch.float16)
    reference.assert_exact(predicting.matmul(narrow(9), narrow_b), narrow(9), narrow_b)
    shifted = torch.ones(9 * 64 + 1, dtype=torch.float16)[1:].view(9, 64)
    b = torch.ones(64, 128, dtype=torch.float16)
    reference.assert_exact(predicting.matmul(shifted, b), shifted, b)
    reference.assert_exact(predicting.matmul(strided(9), b), strided(9), b)
    assert asked.of == []
    reasons = predicting.fallbacks()
    assert (reasons["unaligned"], reasons["strided"]) == (2, 1)


def test_c_asks_again_once_a_kernel_has_failed(
    predicting: fake_driver.Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that is out would be chosen for ever by what C was told before."""
    multiply(predicting, packs.WIN)
    multiply(predicting, SURE)
    pack = select.find_packs().packs[0]
    (kernel,) = (each for each in pack.manifest.kernels if each.name == "k_tma2")
    select.quarantine(kernel, "it failed")
    asked = Decisions(monkeypatch)
    multiply(predicting, Problem(120, 128, 256, "nn", "f16"))
    assert [m for m, _ in asked.of] == [120]
    assert predicting.fallbacks() == {"quarantined": 1}


def test_c_is_told_nothing_where_reasons_are_logged_or_packs_disagree(
    predicting: fake_driver.Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[object] = []
    monkeypatch.setattr(launcher, "know_predictor", lambda index, ready: told.append(ready))
    multiply(predicting, UNSURE)
    assert len(told) == 1 and told[0] is not None
    monkeypatch.setenv("HGEMM_PACKS_PREDICT", "0")
    settings.cache_clear()
    select.tell_predictor(0)
    assert told[1:] == [None], "off: C decides for torch"
    monkeypatch.delenv("HGEMM_PACKS_PREDICT")
    settings.cache_clear()
    select.reset()
    launcher.reset_table()
    monkeypatch.setattr(LOGGER, "isEnabledFor", lambda level: True)
    multiply(predicting, UNSURE)
    assert len(told) == 2, "the log has the reasons of every decision"
    first = select.find_packs().packs[0]
    second = predictions.write(tmp_path / "second", runnable, margin=1.5)
    select.prefer(second)
    assert len(select.find_packs().packs) == 2 and first in select.find_packs().packs
    select.tell_predictor(0)
    assert len(told) == 2, "two predictors: Python knows their order"


def test_c_takes_only_a_predictor_to_decide_by(predicting: fake_driver.Started) -> None:
    multiply(predicting, UNSURE)
    with pytest.raises(ValueError, match="PyCapsule"):
        launcher.know_predictor(0, object())
    launcher.know_predictor(99, None)  # no device
    multiply(predicting, SURE)
    assert launcher.counters()["predicted"] == 1, "what it knew is still so"


def test_a_row_serves_its_first_call_whatever_came_before(
    predicting: fake_driver.Started,
) -> None:
    b = torch.ones(64, 8, dtype=torch.float16)
    for m in range(1, 2 * AT_FIRST_SIGHT):
        predicting.matmul(torch.ones(m, 64, dtype=torch.float16), b)
    before = launcher.counters()
    multiply(predicting, packs.WIN)
    multiply(predicting, packs.WIN_SMALL)
    assert launcher.counters()["hits"] == before["hits"] + 2


def test_what_is_asked_for_stays_where_a_stream_of_repeated_sizes_passes(
    predicting: fake_driver.Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The table began afresh when it was full: every shape of a program was decided again.
    asked = Decisions(monkeypatch)
    a, b = reference.cancelling(128, 128, 256, "nn", torch.float16)
    vector = torch.ones(1, 8, dtype=torch.float16)
    for n in range(1, 2 * GENERATION + 300):
        other = torch.empty(8, n, dtype=torch.float16)
        for _ in range(2 if n > AT_FIRST_SIGHT else 1):
            predicting.matmul(vector, other)
        if n % 1000 == 0:
            predicting.matmul(a, b)
    reference.assert_exact(predicting.matmul(a, b), a, b)
    assert [m for m, _ in asked.of].count(128) == 1


def test_a_pack_that_is_not_written_as_ours_is_asked_about_everything(
    predicting: fake_driver.Started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pack = packs.write_good(tmp_path / "other", runnable)
    path = pack.path / "manifest.json"
    # Valid, but in another order of fields than the packer's.
    text = path.read_text()
    row = next(line for line in text.split("\n") if '"m":64,' in line and '"profile"' in line)
    moved = '{"m":64,' + row.replace('"m":64,', "")[1:]
    path.write_text(text.replace(row, moved))
    install(monkeypatch, pack.path)
    select.reset()
    launcher.reset_table()
    asked = Decisions(monkeypatch)
    b = torch.ones(64, 8, dtype=torch.float16)
    for m in range(1, AT_FIRST_SIGHT + 20):
        predicting.matmul(torch.ones(m, 64, dtype=torch.float16), b)
    assert len(asked.of) == AT_FIRST_SIGHT + 19 and not any(known for _, known in asked.of)
    multiply(predicting)
    assert launcher.counters()["hits"] == 1


def test_explain_names_the_expected_gain(
    predicting: fake_driver.Started, capsys: pytest.CaptureFixture[str]
) -> None:
    from hgemm_packs import report

    said = report.explain_problem(SURE, device=packs.H200)
    assert "runs on   k_tma2, predicted: 2.000x torch expected" in said
    assert "yes predicted: test-pack 1.0.0: k_tma2, expected 2.000x torch, at least 2.000x" in said
    unsure = report.explain_problem(UNSURE, device=packs.H200)
    assert "runs on   torch (fallback: not_measured)" in unsure
    assert "a kernel is expected to take 1.000x torch's speed, surely 1.000x" in unsure


def test_a_predictor_as_large_as_all_its_limits_is_read(tmp_path: Path) -> None:
    """A model may have 65,535 nodes, but three such models were longer than a line could be."""
    inner = MAX_NODES // 2
    nodes = [(AT["log2_m"], -1.2345678901234567e-05, 2 * at + 2) for at in range(inner)]
    chain = [each for node in nodes for each in (node, (-1, -1.2345678901234567e-05, 0))]
    largest = predictions.model(0.0, [*chain, (-1, 1.0, 0)])
    assert len(largest.feature) == MAX_NODES
    # The model of torch sees log2_m, too.
    pack = predictions.write(tmp_path / "pack", ours=largest, torch=largest, doubt=largest)
    found = Pack.open(pack.path).manifest.predictor(packs.H200.name)
    assert found is not None and found.torch == largest
