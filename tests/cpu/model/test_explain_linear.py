"""explain with a bias, an activation and a residual: who runs the product, and who the rest, as the
call then has it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher, report
from tests.fake_driver import Started

M, N, K = 16, 48, 32


@pytest.fixture
def ours(fake: Started, monkeypatch: pytest.MonkeyPatch) -> Started:
    monkeypatch.setattr(report, "explain_problem", lambda problem, index: f"of {problem}")
    return fake


def operands() -> dict[str, torch.Tensor]:
    return {
        "x": torch.ones(M, K).half(),
        "weight": torch.ones(N, K).half(),
        "bias": torch.ones(N).half(),
        "residual": torch.ones(M, N).half(),
    }


PROBLEM = f"of {M}x{N}x{K} nt f16"
UNSERVED = "as a whole: no  not_measured: not served"
#: Epilogues that kernels have, the arguments of a call behind x and weight, and what is said of it.
CASES: dict[str, tuple[tuple[str, ...], dict[str, Any], list[str]]] = {
    "a bias": (("bias",), {"bias": ...}, [f"{PROBLEM} bias", "epilogue  the bias by the kernel"]),
    "a bias by torch": ((), {"bias": ...}, [f"{PROBLEM} bias", "epilogue  the bias by torch"]),
    "an activation alone": (
        ("none", "bias_silu"),
        {"activation": "silu"},
        [PROBLEM, "epilogue  silu by torch"],
    ),
    "a whole": (
        ("bias_silu",),
        {"bias": ..., "activation": "silu"},
        [f"{PROBLEM} bias_silu", "epilogue  bias_silu by the kernel, which rounds once"],
    ),
    "a whole and a residual": (
        ("bias_silu",),
        {"bias": ..., "activation": "silu", "residual": ...},
        [
            f"{PROBLEM} bias_silu",
            "epilogue  bias_silu by the kernel, which rounds once",
            "epilogue  the residual by torch",
        ],
    ),
    "no whole": (
        ("bias",),
        {"bias": ..., "activation": "relu", "residual": ...},
        [
            f"epilogue  no kernel computes bias_relu {UNSERVED}",
            f"{PROBLEM} bias",
            "epilogue  the bias by the kernel, relu and the residual by torch",
        ],
    ),
    "a residual": (
        ("residual",),
        {"residual": ...},
        [f"{PROBLEM} residual", "epilogue  residual by the kernel, which rounds once"],
    ),
    "a residual by torch": (
        ("none",),
        {"residual": ...},
        [
            f"epilogue  no kernel computes residual {UNSERVED}",
            PROBLEM,
            "epilogue  the residual by torch",
        ],
    ),
    "a gate": (
        ("gated_silu",),
        {"activation": "gated_silu"},
        [f"{PROBLEM} gated_silu", "epilogue  gated_silu by the kernel, which rounds once"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_says_what_the_call_does(
    ours: Started, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    epilogues, named, said = CASES[name]
    for epilogue in epilogues:
        plain = epilogue in ("none", "gated_silu")
        ours.serve("ptr_v1" if plain else "ptr_v1_addend", "nt", epilogue=epilogue)
    of = operands()
    given = {key: of[key] if value is ... else value for key, value in named.items()}
    report.explain(of["x"], of["weight"].t(), **given)
    assert capsys.readouterr().out.splitlines() == said
    hgemm_packs.linear(of["x"], of["weight"], **given)
    by_kernel = "kernel" in said[-1] or "kernel" in said[-2] or "none" in epilogues
    assert launcher.counters()["hits"] == by_kernel


def test_gradients_and_what_no_kernel_adds(
    ours: Started, capsys: pytest.CaptureFixture[str]
) -> None:
    for epilogue in ("bias", "bias_silu", "residual"):
        ours.serve("ptr_v1_addend", "nt", epilogue=epilogue)
    ours.serve("ptr_v1", "nt")
    of = operands()
    of["bias"].requires_grad_()
    report.explain(of["x"], of["weight"].t(), of["bias"], "silu")
    said = capsys.readouterr().out
    assert said.startswith("epilogue  no kernel computes bias_silu as a whole: autograd: ")
    assert "runs on   torch (fallback: autograd)" in said
    assert said.endswith("epilogue  the bias by torch, silu by torch\n")
    report.explain(of["x"], of["weight"].t(), residual=of["residual"][0])
    said = capsys.readouterr().out
    assert said.startswith("epilogue  no kernel computes residual as a whole: bias: what is added")
    assert said.endswith(f"{PROBLEM}\nepilogue  the residual by torch\n")
    with hgemm_packs.disabled():
        report.explain(of["x"], of["weight"].t(), residual=of["residual"])
    said = capsys.readouterr().out
    assert said.startswith("epilogue  no kernel computes residual as a whole: off: ")
    assert "without that:" in said


def test_what_is_refused(ours: Started) -> None:
    of = operands()
    with pytest.raises(ValueError, match="explain: activation is 'swish', not one of 'relu', "):
        report.explain(of["x"], of["weight"].t(), activation="swish")
    with pytest.raises(ValueError, match="explain: gated_silu halves the columns"):
        report.explain(of["x"], of["weight"][:7].t(), activation="gated_silu")
