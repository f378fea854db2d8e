"""Layers with epilogues: which are measured, that both sides compute the same, what is published."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.measure import epilogues
from benchmarks.publish import torch_figures


def test_the_layers_are_those_that_models_have_an_epilogue_behind() -> None:
    assert epilogues.list_layers("Qwen2.5 7B") == [
        ("q", "bias", 3584, 3584),
        ("k v", "bias", 512, 3584),
        ("o", "residual", 3584, 3584),
        ("gate up", "gated_silu", 37888, 3584),
        ("down", "residual", 3584, 18944),
    ]
    assert epilogues.list_layers("gpt-oss 20b") == [
        ("q", "bias", 4096, 2880),
        ("k v", "bias", 512, 2880),
        ("o", "bias", 2880, 4096),
    ]
    cases = epilogues.every_case(tokens=(1,))
    assert [c["layer"] for c in cases if (c["n"], c["k"]) == (4096, 4096)] == ["Llama 3.1 8B o"]


@pytest.mark.parametrize("epilogue", ["bias", "residual", "gated_silu"])
def test_both_sides_compute_the_same(epilogue: str) -> None:
    generator = torch.Generator().manual_seed(3)
    x, weight = (torch.randn(5, 32, generator=generator), torch.randn(48, 32, generator=generator))
    shape = {"bias": (48,), "residual": (5, 48)}.get(epilogue)
    addend = torch.randn(shape, generator=generator) if shape else None
    wide = addend.double() if addend is not None else None
    truth = epilogues.plain_layer(epilogue, weight.double(), wide)(x.double())
    for layer in (epilogues.plain_layer, epilogues.our_layer):
        error = (layer(epilogue, weight, addend)(x).double() - truth).abs().max()
        assert float(error) < 1e-4
    if epilogue == "gated_silu":
        gate, up = (x.double() @ weight.double().t()).split(24, dim=-1)
        assert torch.allclose(truth, gate / (1 + torch.exp(-gate)) * up)


def line(epilogue: str, us: dict[str, list[float]], wrong: list[str] | None = None) -> Any:
    case = {"layer": "one", "epilogue": epilogue, "dtype": "bf16", "m": 16, "n": 8, "k": 8}
    return {**case, "fields": list(case), "us": us, "served": {}, "wrong": wrong or []}


def test_figures_are_of_medians_and_lines_with_wrong_values_do_not_count() -> None:
    good = {"torch": [4.0, 8.0, 8.0], "compiled": [1.0, 2.0, 2.0], "ours": [2.0, 2.0, 2.0]}
    same = {"torch": [1.0], "compiled": [1.0], "ours": [1.0]}
    bad = {"torch": [9.0], "compiled": [9.0], "ours": [1.0]}
    found = torch_figures.epilogues(
        [line("bias", good), line("residual", same), line("bias", bad, ["off"])]
    )
    assert found == {
        "epilogue.cases": 2,
        "epilogue.wrong": 1,
        "epilogue.gmean_vs_eager": 2.0,
        "epilogue.worst_vs_eager": 1.0,
        "epilogue.worst_case_vs_eager": "one bf16, residual, 16 tokens",
        "epilogue.bias.gmean_vs_eager": 4.0,
        "epilogue.residual.gmean_vs_eager": 1.0,
        "epilogue.gmean_vs_compile": 1.0,
        "epilogue.worst_vs_compile": 1.0,
        "epilogue.worst_case_vs_compile": "one bf16, bias, 16 tokens",
        "epilogue.bias.gmean_vs_compile": 1.0,
        "epilogue.residual.gmean_vs_compile": 1.0,
    }
    assert torch_figures.epilogues([]) == {}
