"""The benchmarks of whole models and single calls from their command line to their file."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher, nn
from hgemm_packs.distribution import packs
from hgemm_packs.generator.campaigns import campaign
from hgemm_packs.generator.compile.pack_writer import write_pack
from hgemm_packs.problem import Problem
from tests import packs as made_packs
from tests.generator import stand_in

TINY = Problem(64, 64, 64, "nn", "f16")


@pytest.fixture
def pack(machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A pack with one win, TINY, on the stand-in driver."""
    monkeypatch.setattr(hgemm_packs, "matmul", launcher.matmul)
    monkeypatch.setattr(nn, "linear", launcher.linear)
    one = stand_in.kernel("tma2_v1", "nn")
    kernel = made_packs.FakeBuilt(dict(one.fields), one.cubin)
    made = made_packs.source([kernel], [made_packs.row(TINY, kernel)])
    write_pack(tmp_path / "pack", made, [kernel], generator_info=made_packs.GENERATOR)  # type: ignore[arg-type]
    return tmp_path / "pack"


def script(name: str, patch: pytest.MonkeyPatch) -> ModuleType:
    module = importlib.import_module(f"benchmarks.measure.{name}")
    patch.setattr(module, "DEVICE", torch.device("cpu"))
    if name == "models":
        few = {mode: {"target_us": 1.0, "budget_us": 1.0} for mode in module.BLOCKS_OF}
        patch.setattr(module, "BLOCKS_OF", few)
        patch.setattr(module, "AGAIN", {})
    else:
        patch.setattr(module, "TARGET_US", 1.0)
        patch.setattr(module, "BUDGET_US", 1)
    return module


def ran(main: Any, pack: Path, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    out = pack.with_name("out.jsonl")
    assert main([str(pack), str(out), "--commit", "abc", *words]) == 0
    headers, lines = campaign.lines([out])
    assert main([str(pack), str(out), "--commit", "abc", *words]) == 0
    assert campaign.lines([out]) == (headers, lines)  # nothing is measured twice
    (header,) = headers
    digest = packs.use(pack).manifest_sha256
    assert (header["commit"], header["pack"]["manifest_sha256"]) == ("abc", digest)
    assert header["device"]["name"] and header["started"]
    return header, lines


def test_models(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = script("models", monkeypatch)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 64, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4}
    monkeypatch.setitem(models.MODELS, "Llama 3.1 8B", ("llama", sizes | heads))
    monkeypatch.setattr(models, "LAYERS", 2)
    header, lines = ran(
        models.main, pack, "--models", "Llama 3.1 8B", "--dtypes", "fp16", "--modes", "eager",
        "--tokens", "1,64",
    )  # fmt: skip
    assert header["settings"]["layers"] == 2 and header["transformers"]
    assert [line["tokens"] for line in lines] == [1, 64]
    # The table has the problem in another layout than layers have their weights in.
    assert [line["served"] for line in lines] == [
        {"products": 15, "kernels": 0, "not_measured": 15}
    ] * 2


def test_words_of_the_command_line(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = script("models", monkeypatch)
    with pytest.raises(SystemExit):
        models.main([str(pack), "out.jsonl", "--models", "Llama 9"])


def test_serving(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving = script("serving", monkeypatch)
    monkeypatch.setattr(serving, "PAUSE_US", 1.0)
    monkeypatch.setattr(serving, "OTHER_BYTES", (4096, 65536))
    monkeypatch.setattr(serving.baselines, "best_cublaslt", lambda *_, **__: None)
    grid = [TINY, Problem(64, 72, 64, "nn", "f16")]
    monkeypatch.setattr(serving.problems, "read", lambda name: grid)
    header, lines = ran(serving.main, pack, "--grid", "2", "--layers", "1")
    assert header["settings"]["grid"] == 2
    assert {tuple(line["problem"][:3]): line["ran"] for line in lines} == {
        (64, 64, 64): ["hits"],
        (64, 72, 64): ["fallback not_measured"],
    }
