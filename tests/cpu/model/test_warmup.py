"""What a capture finds after a warmup, and without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher, nn, torch_state
from hgemm_packs.errors import FallbackError
from hgemm_packs.problem import Problem
from tests import reference
from tests.cpu.common.scripts import run
from tests.cpu.common.strictly import strict
from tests.fake_driver import Started

HALF = torch.float16


def model(*sizes: int, bias: bool = False) -> torch.nn.Sequential:
    """Layers of 32 inputs with these numbers of outputs, whose products are exact."""
    made = torch.nn.Sequential(
        *(torch.nn.Linear(32, n, bias=bias, dtype=HALF) for n in sizes or (40,))
    )
    with torch.no_grad():
        for layer in made:
            layer.weight.copy_(reference.cancelling(16, layer.out_features, 32, "nt", HALF)[1].t())
    return hgemm_packs.optimize(made)


def rows(m: int) -> torch.Tensor:
    return reference.cancelling(m, 40, 32, "nt", HALF)[0]


@torch.inference_mode()
def assert_right(layer: torch.nn.Linear, m: int) -> None:
    reference.assert_exact(layer(rows(m)), rows(m), layer.weight.t())


def test_a_cold_capture_is_right(served: Started) -> None:
    (layer,) = model()
    served.control.capturing = 1
    assert_right(layer, 16)
    assert_right(layer, 16)
    assert served.fallbacks() == {"cold_capture": 2} and served.control.loads == 0
    served.control.capturing = 0
    assert_right(layer, 16)
    served.control.capturing = 1
    assert_right(layer, 16)
    assert launcher.counters()["hits"] == 2 and served.fallbacks() == {"cold_capture": 2}


def test_a_capture_after_a_warmup_has_the_kernels(served: Started) -> None:
    made = model(40, 24)
    assert hgemm_packs.warmup(made, [16, 8]) == 4
    assert served.asked == [Problem(m, n, 32, "nt", "f16") for n in (40, 24) for m in (8, 16)]
    before = launcher.counters()
    assert before == {"hits": 4, "launches": 4, "fallbacks": 0}
    served.control.capturing = 1
    for layer in made:
        for m in (8, 16):
            assert_right(layer, m)
    assert launcher.counters() == {"hits": 8, "launches": 8, "fallbacks": 0}
    assert len(served.asked) == 4 and served.control.loads == 1


@pytest.mark.parametrize("behind", [False, True])
def test_a_capture_after_a_warmup_has_memory(served: Started, behind: bool) -> None:
    # A workspace is not made during a capture: eager calls see to it that captures find some.
    if behind:
        served.serve_behind("tma2_ws_v2", "nt")
        served.dependent = lambda problem: True
    else:
        served.serve("tma2_ws_v2", "nt")
    made = model()
    assert hgemm_packs.warmup(made, [16]) == 1
    served.capture(7)
    assert_right(made[0], 16)
    assert_right(made[0], 16)
    assert served.fallbacks() == {} and launcher.counters()["hits"] == 3
    assert served.control.pdl == behind
    assert bool(served.control.parts)


def test_each_problem_is_multiplied_once(served: Started) -> None:
    made = model(40, 40, 24)
    made.append(made[0])
    made[1].weight = made[0].weight
    assert hgemm_packs.warmup(made, [8, 8, (8, 32), (2, 4, 32), torch.Size([1, 8, 32])]) == 2
    assert launcher.counters()["launches"] == 2
    assert hgemm_packs.warmup(made, (m for m in (8,))) == 2  # loaded: they are run all the same
    assert served.control.loads == 1


def test_a_shape_is_for_the_layers_of_its_k(served: Started) -> None:
    made = torch.nn.Sequential(*model(40), *model(64)).append(
        hgemm_packs.optimize(torch.nn.Linear(40, 8, bias=False, dtype=HALF))
    )
    assert hgemm_packs.warmup(made, [(2, 8, 40), [40]]) == 2
    assert served.asked == [Problem(m, 8, 40, "nt", "f16") for m in (1, 16)]


def test_nothing_of_the_model_is_called_or_changed(served: Started) -> None:
    made = model()
    made[0].register_forward_hook(lambda *_: pytest.fail("a hook ran"))
    state = {name: value.clone() for name, value in made.state_dict().items()}
    assert hgemm_packs.warmup(made, [16]) == 1
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    assert made[0].weight.grad is None and made[0].weight.requires_grad
    assert all(torch.equal(state[name], value) for name, value in made.state_dict().items())
    made[0]._forward_hooks.clear()
    y = made(rows(16))
    y.sum().backward()  # what was warmed up trains as before
    reference.assert_product(made[0].weight.grad, torch.ones_like(y).t(), rows(16))


def serve_gradients(served: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of layers of 32 inputs; a forward of 16 rows and 40 outputs is recorded, of 24 is not."""
    served.serve("ptr_v1", "nn")
    served.serve("ptr_v1", "tn")
    served.serve("ptr_v1_addend", "nt")
    monkeypatch.setattr(torch_state, "LEAST_RECORDED", 2 * 16 * 40 * 32)


def test_what_backward_multiplies(served: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture of a whole training step asked for these problems for the first time."""
    serve_gradients(served, monkeypatch)
    made = model(40, 24)
    assert hgemm_packs.warmup(made, [16]) == 4
    forward = [Problem(16, n, 32, "nt", "f16") for n in (40, 24)]
    backward = [Problem(16, 32, 40, "nn", "f16"), Problem(40, 32, 16, "tn", "f16")]
    assert served.asked == [forward[0], *backward, forward[1]]
    assert made[0].weight.grad is None


def test_what_is_not_multiplied_backward(served: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_gradients(served, monkeypatch)
    for made in (model().eval(), model().requires_grad_(False), model(bias=True)):
        assert hgemm_packs.warmup(made, [16]) == 1
    assert {each.layout for each in served.asked} == {"nt"}


def test_a_program_with_kernels_runs_all_of_backward(
    served: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_gradients(served, monkeypatch)
    made = model(24, bias=True)
    with hgemm_packs.enabled():
        assert hgemm_packs.warmup(made, [16]) == 3
        served.asked.clear()
        y = made(rows(16))
        y.backward(torch.ones_like(y))
    assert served.asked == []
    reference.assert_product(made[0].weight.grad, torch.ones(24, 16).half(), rows(16))


def test_layers_that_get_no_kernel(served: Started) -> None:
    made = torch.nn.Sequential(
        *model(40, bias=True),
        nn.Linear(32, 8),  # of float32
        nn.Linear(32, 7, bias=False, dtype=HALF),
        nn.Linear(32, 8, bias=False, dtype=HALF, device="meta"),
        torch.nn.Linear(32, 16, bias=False, dtype=HALF),  # torch's own
    )
    assert hgemm_packs.warmup(made, [4]) == 0
    assert served.fallbacks() == {"not_measured": 1, "unaligned": 1} and served.control.loads == 0
    assert hgemm_packs.warmup(torch.nn.ReLU(), [4]) == 0
    assert hgemm_packs.warmup(made, []) == 0


def test_nothing_is_loaded_while_switched_off(served: Started) -> None:
    with hgemm_packs.disabled():
        assert hgemm_packs.warmup(model(), [16]) == 0
    assert served.control.loads == 0 and served.fallbacks() == {"off": 1}


def test_strict_says_what_gets_no_kernel(served: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    strict(monkeypatch)
    assert hgemm_packs.warmup(model(40), [16]) == 1
    with pytest.raises(FallbackError, match="not_measured"):
        hgemm_packs.warmup(model(40, bias=True), [16])


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "no rows": ([0], ValueError, "0 has a size below 1"),
    "negative": ([(-2, 32)], ValueError, r"\(-2, 32\) has a size below 1"),
    "no size": ([()], ValueError, r"\(\) has a size below 1"),
    "another k": ([(4, 32), (4, 33)], ValueError, "no layer has inputs of last size 33"),
    "a fraction": ([1.5], TypeError, "'float' object cannot be interpreted as an integer"),
    "words": (["32"], TypeError, "'str' object cannot be interpreted as an integer"),
    "one number": (8, TypeError, "'int' object is not iterable"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(served: Started, name: str) -> None:
    shapes, error, words = WRONG[name]
    with pytest.raises(error, match=words):
        hgemm_packs.warmup(model(), shapes)
    assert launcher.counters()["launches"] == 0


def test_only_modules_are_taken() -> None:
    with pytest.raises(TypeError, match=r"warmup: model is a list, not a torch\.nn\.Module"):
        hgemm_packs.warmup([], [1])  # type: ignore[arg-type]


def test_it_is_refused_during_a_capture(served: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    def yes() -> bool:
        return True

    answers: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("is_initialized", yes),
        ("is_current_stream_capturing", yes),
    )
    for name, answer in answers:
        monkeypatch.setattr(torch.cuda, name, answer)
    with pytest.raises(RuntimeError, match="the current stream is being captured"):
        hgemm_packs.warmup(model(), [16])
    assert served.control.loads == 0


def test_a_model_on_a_cpu() -> None:
    said = run(
        "import torch, hgemm_packs\n"
        "made = hgemm_packs.optimize(torch.nn.Sequential(torch.nn.Linear(4096, 8192).half()))\n"
        "print(hgemm_packs.warmup(made, [8, (1 << 20, 4096)]), hgemm_packs.counters())\n",
        HGEMM_PACKS_LOG="error",
    )
    assert said == "0 {'hits': 0, 'launches': 0, 'fallbacks': 0}\n"
