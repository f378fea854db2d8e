"""`record_shapes`: which products a program multiplies, how often, and the file of these."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher
from hgemm_packs.errors import PackError
from hgemm_packs.nn import Linear, functional
from hgemm_packs.pack.folder import Pack
from hgemm_packs.problem import Problem
from hgemm_packs.tuning.recording import Recording, is_recording, record_shapes
from hgemm_packs.tuning.wanted import find_wanted
from tests import fake_driver
from tests.cpu.tuning import world
from tests.cpu.tuning.test_tune import chosen
from tests.cpu.tuning.world import FIRST, SECOND, FakeBench

UNSERVED = Problem(8, 24, 16, "nt", "bf16")
STRIDED = Problem(8, 24, 16, "nn", "f16", base=(16, 16, 16), packed=False)


def call(fake: fake_driver.Started, problem: Problem) -> None:
    dtype = torch.float16 if problem.dtype == "f16" else torch.bfloat16
    a = torch.ones(problem.m, problem.k, dtype=dtype)
    b = torch.ones(problem.k, problem.n, dtype=dtype)
    fake.matmul(a, b if problem.layout[1] == "n" else b.t().contiguous().t())


def test_every_call_counts_whether_a_kernel_runs_it_or_torch(
    pack: Pack, bare: fake_driver.Started
) -> None:
    world.run(FakeBench(world.speedups(best=1.3)), [FIRST])
    for problem in (FIRST, SECOND):
        call(bare, problem)  # what C remembers of before is recorded all the same
    with record_shapes() as seen:
        for _ in range(3):
            call(bare, FIRST)
        for _ in range(2):
            call(bare, SECOND)
        call(bare, UNSERVED)
    call(bare, UNSERVED)
    assert dict(seen) == {FIRST: 3, SECOND: 2, UNSERVED: 1}
    assert launcher.counters()["hits"] == 4


def test_layers_and_epilogues_are_recorded_as_what_is_looked_up(
    pack: Pack, bare: fake_driver.Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hgemm_packs.nn.linear", bare.linear)
    plain = Linear(16, 24, bias=False, dtype=torch.bfloat16)
    biased = Linear(16, 24, dtype=torch.bfloat16)
    x = torch.ones(8, 16, dtype=torch.bfloat16)
    with record_shapes() as seen, torch.inference_mode():
        plain(x)
        biased(x)
        biased(x)
        functional.linear(x, plain.weight, None, "gated_silu")
    of = Problem(8, 24, 16, "nt", "bf16")
    with_bias = Problem(8, 24, 16, "nt", "bf16", epilogue="bias")
    gated = Problem(8, 24, 16, "nt", "bf16", epilogue="gated_silu")
    assert dict(seen) == {of: 2, with_bias: 2, gated: 1}  # the product of the gated one, too


def test_batches_and_gaps_are_recorded_as_they_lie(pack: Pack, bare: fake_driver.Started) -> None:
    a, b = torch.ones(4, 8, 16, dtype=torch.float16), torch.ones(4, 16, 24, dtype=torch.float16)
    wide = torch.ones(8, 32, dtype=torch.float16)[:, :16]
    with record_shapes() as seen:
        bare.matmul(a, b)
        bare.matmul(wide, b[0])
    assert dict(seen) == {Problem(8, 24, 16, "nn", "f16", batches=4): 1, STRIDED: 1}


def test_blocks_nest_and_end_with_an_exception(pack: Pack, bare: fake_driver.Started) -> None:
    with record_shapes() as outer:
        call(bare, FIRST)
        with pytest.raises(KeyError), record_shapes() as inner:
            call(bare, SECOND)
            raise KeyError
        call(bare, FIRST)
    call(bare, FIRST)
    assert (dict(outer), dict(inner)) == ({FIRST: 2, SECOND: 1}, {SECOND: 1})


def test_other_threads_are_recorded(pack: Pack, bare: fake_driver.Started) -> None:
    with record_shapes() as seen:
        threads = [
            threading.Thread(target=lambda: [call(bare, FIRST) for _ in range(50)])
            for _ in range(4)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert dict(seen) == {FIRST: 200}


def test_calls_that_are_switched_off_are_not_recorded(
    pack: Pack, bare: fake_driver.Started
) -> None:
    with record_shapes() as seen, hgemm_packs.disabled():
        call(bare, FIRST)
    assert dict(seen) == {}


def test_what_goes_wrong_in_the_recording_is_no_error_of_the_call(
    pack: Pack, bare: fake_driver.Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(described: object) -> None:
        raise RuntimeError("out of paper")

    said: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: said.append(str(what.exc_value)))
    launcher.record_calls(broken)
    call(bare, FIRST)
    launcher.record_calls(None)
    call(bare, FIRST)
    assert said == ["out of paper"]
    assert launcher.counters()["fallbacks"] == 2


def test_a_recording_comes_back_from_its_file(tmp_path: Path) -> None:
    odd = Problem(9, 7, 5, "tn", "bf16", base=(2, 4, 8), packed=False)
    seen = Recording(
        {FIRST: 3, odd: 1, Problem(1, 8, 8, "nt", "f16", epilogue="bias", batches=3): 7}
    )
    seen.save(tmp_path / "shapes.json")
    again = Recording.load(tmp_path / "shapes.json")
    assert dict(again) == dict(seen)
    assert is_recording(tmp_path / "shapes.json")
    assert os.listdir(tmp_path) == ["shapes.json"]
    assert find_wanted(tmp_path / "shapes.json", (1,)) == {p: float(n) for p, n in seen.items()}


def test_a_recording_is_tuned_as_it_is(pack: Pack, bare: fake_driver.Started) -> None:
    with record_shapes() as seen:
        call(bare, FIRST)
    world.run(FakeBench(world.speedups(best=1.3)), seen)
    assert chosen(FIRST) == ("kernel", "best")


GOOD = {"m": 1, "n": 8, "k": 8, "layout": "nn", "dtype": "f16", "calls": 1}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "not_json"),
        ("[]", "wrong_type"),
        ('{"schema": "hgemm-packs/shapes-2", "problems": []}', "bad_value"),
        (json.dumps({"schema": "hgemm-packs/shapes-1", "problems": [GOOD | {"m": 0}]}), "out_of_b"),
        (json.dumps({"schema": "hgemm-packs/shapes-1", "problems": [GOOD | {"x": 0}]}), "unknown_"),
        (json.dumps({"schema": "hgemm-packs/shapes-1", "problems": [{}]}), "missing_field"),
    ],
)
def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "shapes.json"
    path.write_text(text)
    with pytest.raises(PackError, match=code) as caught:
        Recording.load(path)
    assert str(path) in str(caught.value)


def test_a_model_is_its_linear_layers_at_each_number_of_tokens() -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 24, bias=False, dtype=torch.bfloat16),
        torch.nn.Linear(24, 16, dtype=torch.float16),
        torch.nn.Linear(16, 24, bias=False, dtype=torch.bfloat16),
        torch.nn.Linear(16, 24, dtype=torch.float32),
    )
    assert find_wanted(model, (1, 64)) == {
        Problem(1, 24, 16, "nt", "bf16"): 2.0,
        Problem(64, 24, 16, "nt", "bf16"): 2.0,
        Problem(1, 16, 24, "nt", "f16", epilogue="bias"): 1.0,
        Problem(64, 16, 24, "nt", "f16", epilogue="bias"): 1.0,
    }


def test_shapes_may_be_said_in_short() -> None:
    asked = [(1, 8, 16), (2, 8, 16, "nn"), (3, 8, 16, "tt", torch.bfloat16), (1, 8, 16), FIRST]
    assert find_wanted(asked, (1,)) == {
        Problem(1, 8, 16, "nt", "f16"): 2.0,
        Problem(2, 8, 16, "nn", "f16"): 1.0,
        Problem(3, 8, 16, "tt", "bf16"): 1.0,
        FIRST: 1.0,
    }


def test_files_of_shapes_and_configs_are_read_as_plan_reads_them(tmp_path: Path) -> None:
    (tmp_path / "shapes.toml").write_text('m = [1, 2]\n[[layer]]\nname = "up"\nn = 8\nk = 16\n')
    assert find_wanted(str(tmp_path / "shapes.toml"), (5,)) == {
        Problem(1, 8, 16, "nt", "f16"): 1.0,
        Problem(2, 8, 16, "nt", "f16"): 1.0,
    }
    config = {"hidden_size": 64, "intermediate_size": 128, "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    expected = {
        Problem(5, 128, 64, "nt", "bf16"): 2.0,  # gate and up
        Problem(5, 256, 64, "nt", "bf16"): 1.0,
        Problem(5, 64, 128, "nt", "bf16"): 1.0,
    }
    assert find_wanted(tmp_path, (5,)) == expected
    assert find_wanted(tmp_path / "config.json", (5,)) == expected


@pytest.mark.parametrize("tokens", [(0,), ("1",), (True,)])
def test_tokens_are_numbers(tokens: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match="not numbers from 1 on"):
        find_wanted([FIRST], tokens)  # type: ignore[arg-type]
