"""Whole models and single calls as their benchmarks measure them, tiny and on the CPU: what is
served is counted, and values are those of torch and of a float32 run."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch

import hgemm_packs
from hgemm_packs import nn
from tests.fake_driver import Started

CPU = torch.device("cpu")
TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
}
#: Linear layers without a bias, with one, and other weights, of two layers and lm_head.
PRODUCTS = {
    "Llama 3.1 8B": (15, 0, 0),
    "Qwen3 8B": (15, 0, 0),
    "Qwen2.5 7B": (9, 6, 0),
    "Mistral Small 24B": (15, 0, 0),
    "gpt-oss 20b": (1, 8, 6),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # products this small are slower on several
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def models(fake: Started, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark, its blocks as short as they can be, on a launcher without kernels."""
    monkeypatch.setattr(nn, "linear", fake.linear)
    found = importlib.import_module("benchmarks.measure.models")
    few = {mode: {"target_us": 1.0, "budget_us": 1.0} for mode in found.BLOCKS_OF}
    monkeypatch.setattr(found, "BLOCKS_OF", few)
    monkeypatch.setattr(found, "AGAIN", {})
    return found


def tiny(name: str) -> dict[str, Any]:
    if name == "Qwen2.5 7B":  # its configuration has no head_dim
        return TINY
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2} if "oss" in name else {}
    return TINY | {"head_dim": 16} | experts


def case(name: str, dtype: str = "bf16", phase: str = "decode", tokens: int = 3) -> dict[str, Any]:
    fields = {"model": name, "dtype": dtype, "mode": "eager", "phase": phase, "tokens": tokens}
    return {**fields, "layers": 2}


@pytest.mark.parametrize("name", PRODUCTS)
def test_each_architecture(fake: Started, models: ModuleType, name: str) -> None:
    free, biased, others = PRODUCTS[name]
    bench = models.ModelBench(CPU, **tiny(name))
    for dtype, kind, phase, tokens in (
        ("fp16", "f16", "decode", 3),
        ("bf16", "bf16", "prompt", 200),
        ("bf16", "bf16", "decode", 3),
    ):
        fake.kernels.clear()
        if phase == "decode":
            fake.serve("tma2_v1", "nt", kind)
        line = bench.measure(case(name, dtype, phase, tokens))
        # No kernel of the stand-in adds a bias.
        missed = biased + (0 if phase == "decode" else free)
        known = {"no linear layer": others, "not_measured": missed}
        served = dict(line["served"])
        assert served.pop("products") == free + biased + others
        assert served.pop("kernels") == (free if phase == "decode" else 0)
        assert served == {reason: n for reason, n in known.items() if n}
        assert line["wrong"] == [] and 0 < line["rounding"] < 0.02
        if phase == "prompt":
            assert line["deviation"] == 0.0  # torch's own where none is served
        arms = ["torch", "ours"] + ["again"] * ((name, dtype) == models.TWICE)
        assert {arm: len(us) for arm, us in line["us"].items()} == dict.fromkeys(arms, 5)


def test_what_is_near_torch_is_measured_on_until_it_is_known(
    fake: Started, models: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "AGAIN", {"eager": 3})
    ratios, widths = iter([1.5, 0.9, 1.01, 0.9, 1.01]), iter([0.02, 0.02, 0.02, 0.005])
    monkeypatch.setattr(models.cases, "speedup", lambda samples: next(ratios))
    monkeypatch.setattr(models.cases, "half_width", lambda samples: next(widths))
    bench = models.ModelBench(CPU, **tiny("Qwen3 8B"))
    blocks = [len(bench.measure(case("Qwen3 8B"))["us"]["ours"]) for _ in range(3)]
    assert blocks == [5, 15, 10]


def test_wrong_values_are_seen(fake: Started, models: ModuleType) -> None:
    fake.control.noop = 1
    fake.serve("tma2_v1", "nt", "bf16")
    line = models.ModelBench(CPU, **tiny("Llama 3.1 8B")).measure(case("Llama 3.1 8B"))
    (words,) = line["wrong"]
    assert words.startswith("logits ")
    assert models.verdict(0.01, 0.005) == []
    assert models.verdict(0.02, 0.005) != []
    assert models.verdict(float("nan"), 0.005) != [] and models.verdict(0.0, float("nan")) != []


def test_both_arms_have_the_same_weights_and_overwrite_the_same_places(models: ModuleType) -> None:
    language_models = importlib.import_module("benchmarks.measure.language_models")
    name = "gpt-oss 20b"
    pair = language_models.Pair(name, "bf16", 2, CPU, 0, **tiny(name))
    for one, other in zip(pair.torch.parameters(), pair.ours.parameters(), strict=True):
        assert one is other
    step = language_models.Step(pair, "decode", 3)
    with torch.inference_mode():
        first, second = step(pair.torch), step(pair.ours)
        again = step(pair.torch)
    assert first.shape == (3, 1, 128)
    assert torch.equal(first, second) and torch.equal(first, again)
    # A layer with a window sees no more than that, the other all there is.
    windowed, whole = (step._cache._kept[layer][0].shape[-2] for layer in (0, 1))
    assert (windowed, whole) == (128, language_models.CONTEXT)


def test_a_near_tie_of_two_experts_is_no_wrong_logit(models: ModuleType) -> None:
    """gpt-oss in float16, 37 tokens: logits were 0.1 apart, for some went to other experts."""
    language_models = importlib.import_module("benchmarks.measure.language_models")
    name = "gpt-oss 20b"
    pair = language_models.Pair(name, "fp16", 2, CPU, 0, **tiny(name))
    for router in language_models.routers(pair.ours):
        router.weight = torch.nn.Parameter(-router.weight)
    step = language_models.Step(pair, "decode", 3)
    with torch.inference_mode():
        alike = pair.logits_of_one_routing(step)
        wanted, elsewhere = step(pair.torch), step(pair.ours)
    assert torch.equal(alike["ours"], wanted) and torch.equal(alike["torch"], wanted)
    assert language_models.apart(elsewhere, wanted) > 0.1


def test_masks_are_those_of_transformers(models: ModuleType) -> None:
    language_models = importlib.import_module("benchmarks.measure.language_models")
    name = "gpt-oss 20b"
    pair = language_models.Pair(name, "bf16", 2, CPU, 0, **tiny(name))
    step = language_models.Step(pair, "prompt", 200)
    with torch.inference_mode():
        own = step(pair.torch)
        theirs = pair.torch(input_ids=step._ids, use_cache=False, logits_to_keep=1).logits
    torch.testing.assert_close(own, theirs)


def test_a_decode_step_follows_from_its_cache(models: ModuleType) -> None:
    """The last token of a prompt, and the same token behind a cache of those before."""
    language_models = importlib.import_module("benchmarks.measure.language_models")
    name = "Qwen3 8B"
    pair = language_models.Pair(name, "fp16", 2, CPU, 0, **tiny(name))
    prompt = language_models.Step(pair, "prompt", language_models.CONTEXT)
    step = language_models.Step(pair, "decode", 1)
    with torch.inference_mode():
        whole = prompt(pair.torch)
        step._ids = prompt._ids[:, -1:]
        step(pair.torch)  # makes its cache
        for layer, kept in step._cache._kept.items():
            for mine, theirs in zip(kept, prompt._cache._kept[layer], strict=True):
                mine.copy_(theirs)
        torch.testing.assert_close(step(pair.torch), whole, rtol=1e-2, atol=1e-2)


def test_single_calls(fake: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    serving = importlib.import_module("benchmarks.measure.serving")
    monkeypatch.setattr(serving, "OTHER_BYTES", (4096, 65536))
    monkeypatch.setattr(serving, "PAUSE_US", 1.0)
    monkeypatch.setattr(serving, "TARGET_US", 1.0)
    monkeypatch.setattr(hgemm_packs, "matmul", fake.matmul)

    class Tuned:
        hot = cold = staticmethod(lambda a, b, c: torch.matmul(a, b, out=c))

    monkeypatch.setattr(serving.baselines, "best_cublaslt", lambda *_, **__: Tuned)
    fake.serve("tma2_v1", "nn", "f16")
    bench = serving.ServingBench(CPU, 1)
    line = bench.measure({"set": "grid", "problem": [64, 64, 64, "nn", "f16"]})
    assert (line["ran"], line["wrong"]) == (["hits"], [])
    for mode in ("offline", "server"):
        assert set(line[mode]) == {"torch", "ours", "cublaslt"}
        assert len({len(us) for us in line[mode].values()}) == 1 and min(line[mode]["ours"]) > 0
    assert len(line["server"]["ours"]) >= serving.MIN_TURNS
    monkeypatch.setattr(serving.baselines, "best_cublaslt", lambda *_, **__: None)
    other = bench.measure({"set": "layers", "problem": [64, 64, 64, "nt", "bf16"]})
    assert other["ran"] == ["fallback not_measured"] and set(other["server"]) == {"torch", "ours"}
    fake.control.noop = 1
    assert bench.measure({"set": "grid", "problem": [64, 64, 64, "nn", "f16"]})["wrong"]
