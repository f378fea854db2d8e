"""A model's linear layers served in place: what changes, which is the class, and what does not."""

from __future__ import annotations

import contextlib
import copy
import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.utils import parametrize, prune

import hgemm_packs
from hgemm_packs import launcher, nn
from tests import reference
from tests.cpu.common.scripts import run
from tests.fake_driver import Started

HALF = torch.float16


def operands(m: int = 16, n: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    """x [M, 32] and a weight [N, 32], whose product is exact."""
    x, b = reference.cancelling(m, n, 32, "nt", HALF)
    return x, b.t()


def layer(n: int = 40, *, bias: bool = False) -> torch.nn.Linear:
    made = torch.nn.Linear(32, n, bias=bias, dtype=HALF)
    with torch.no_grad():
        made.weight.copy_(operands(n=n)[1])
    return made


def model() -> torch.nn.Sequential:
    """Three linear layers, the last with a bias."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        layer(),
        torch.nn.ReLU(),
        torch.nn.Sequential(torch.nn.Linear(40, 24, bias=False, dtype=HALF)),
        torch.nn.Linear(24, 8, dtype=HALF),
    )


def classes(model: torch.nn.Module) -> list[type]:
    """Of the linear layers."""
    return [type(each) for each in model.modules() if isinstance(each, torch.nn.Linear)]


def test_parameters_and_state_stay_the_same_objects() -> None:
    made = model()
    state, parameters = made.state_dict(), list(made.parameters())
    assert hgemm_packs.optimize(made) is made
    assert classes(made) == [nn.Linear] * 3
    assert all(one is two for one, two in zip(parameters, made.parameters(), strict=True))
    assert list(made.state_dict()) == list(state)
    assert all(torch.equal(state[name], value) for name, value in made.state_dict().items())
    assert torch.equal(state["0.weight"], operands()[1])
    other = model()
    with torch.no_grad():
        other[3].bias.fill_(7)
    made.load_state_dict(other.state_dict())
    assert made[3].bias is parameters[3] and made[3].bias.tolist() == [7] * 8
    assert repr(made) == repr(model())


def test_a_layer_is_a_hit_in_inference_mode(served: Started) -> None:
    x, weight = operands()
    made = hgemm_packs.optimize(layer())  # the model itself is a layer
    assert type(made) is nn.Linear
    with torch.inference_mode():
        reference.assert_exact(made(x), x, weight.t())
        reference.assert_exact(made(x.view(2, 8, 32)).view(16, 40), x, weight.t())
    assert launcher.counters() == {"hits": 2, "launches": 2, "fallbacks": 0}


def test_a_layer_made_directly(served: Started) -> None:
    made = nn.Linear(32, 40, bias=False, dtype=HALF)
    made.load_state_dict({"weight": operands()[1]})
    with torch.inference_mode():
        reference.assert_exact(made(operands()[0]), operands()[0], operands()[1].t())
    assert launcher.counters()["hits"] == 1


@pytest.mark.parametrize("guard", [contextlib.nullcontext, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_a_miss_has_torchs_bits(
    fake: Started, monkeypatch: pytest.MonkeyPatch, bias: bool, dtype: torch.dtype, guard: Any
) -> None:
    monkeypatch.setattr(nn, "linear", fake.linear)
    torch.manual_seed(0)
    plain = torch.nn.Linear(96, 40, bias=bias, dtype=dtype)
    ours = hgemm_packs.optimize(copy.deepcopy(plain))
    x = torch.randn(2, 5, 96).to(dtype)
    with guard():
        found, wanted = ours(x), plain(x)
        assert torch.equal(found, wanted) and found.dtype == dtype
        assert found.requires_grad is wanted.requires_grad
    recorded = guard is contextlib.nullcontext
    if recorded:
        for each in (found, wanted):
            each.float().square().sum().backward()
        for one, two in zip(ours.parameters(), plain.parameters(), strict=True):
            assert one.grad is not None and two.grad is not None
            assert torch.equal(one.grad, two.grad) and one.grad.abs().max() > 0
    why = "dtype" if dtype == torch.float32 else "not_measured"
    assert fake.fallbacks() == {"autograd" if recorded else why: 1}


def test_copies_keep_the_class() -> None:
    made = hgemm_packs.optimize(model())
    copied = copy.deepcopy(made)
    assert classes(copied) == [nn.Linear] * 3
    with torch.no_grad():
        copied[0].weight.zero_()
    assert torch.equal(made[0].weight, operands()[1])


LOAD = """
import sys, torch
x, wanted = torch.load({tensors!r}, weights_only=True)
model = torch.load({whole!r}, weights_only=False)
with torch.inference_mode():
    print(type(model[0]).__module__, torch.equal(model(x), wanted))
state = torch.load({state!r}, weights_only=True)
print("hgemm_packs.nn" in sys.modules, *state)
"""


def test_a_pickle_is_read_in_another_process(tmp_path: Path) -> None:
    made = hgemm_packs.optimize(model())
    x = operands()[0]
    with torch.inference_mode():
        wanted = made(x).clone()
    names = {name: str(tmp_path / name) for name in ("tensors", "whole", "state")}
    torch.save((x, wanted), names["tensors"])
    torch.save(made, names["whole"])
    torch.save(made.state_dict(), names["state"])
    said = run(LOAD.format(**names), HGEMM_PACKS_LOG="error").splitlines()
    assert said == ["hgemm_packs.nn True", "True 0.weight 2.0.weight 3.weight 3.bias"]
    # A state_dict names nothing of ours, and the pickle of a restored model neither.
    assert b"hgemm_packs" not in Path(names["state"]).read_bytes()
    buffer = io.BytesIO()
    torch.save(hgemm_packs.restore(made), buffer)
    assert b"hgemm_packs" not in buffer.getvalue()


def test_a_filter_is_asked_for_each_layer() -> None:
    asked: list[tuple[str, type]] = []

    def not_the_last(name: str, layer: torch.nn.Linear) -> bool:
        asked.append((name, type(layer)))
        return name != "3"

    made = hgemm_packs.optimize(model(), not_the_last)
    assert asked == [(name, torch.nn.Linear) for name in ("0", "2.0", "3")]
    assert classes(made) == [nn.Linear, nn.Linear, torch.nn.Linear]
    assert classes(hgemm_packs.optimize(made, filter=not_the_last)) == classes(made)
    assert [name for name, _ in asked[3:]] == ["3"]  # only what is torch's is asked about
    assert classes(hgemm_packs.optimize(made)) == [nn.Linear] * 3


def test_restore_undoes_it(served: Started) -> None:
    made = hgemm_packs.optimize(model())
    parameters = list(made.parameters())
    assert hgemm_packs.restore(made) is made
    assert classes(made) == [torch.nn.Linear] * 3
    assert all(one is two for one, two in zip(parameters, made.parameters(), strict=True))
    with torch.inference_mode():
        assert torch.equal(made(operands()[0]), model()(operands()[0]))
    assert launcher.counters()["hits"] == 0 == launcher.counters()["fallbacks"]
    assert type(hgemm_packs.restore(nn.Linear(8, 8))) is torch.nn.Linear


class Tied(torch.nn.Module):
    """An embedding whose weight is the last layer's, as language models have it, and a layer that
    is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(40, 32, dtype=HALF)
        self.twice = layer(32)
        self.again = self.twice
        self.head = layer()
        self.head.weight = self.tokens.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.again(self.twice(self.tokens(ids))))
        return y


def test_tied_weights_stay_tied(served: Started) -> None:
    torch.manual_seed(0)
    plain = Tied()
    with torch.no_grad():
        plain.tokens.weight.div_(8)
        plain.twice.weight.div_(64)
    made = hgemm_packs.optimize(copy.deepcopy(plain))
    assert made.head.weight is made.tokens.weight and made.again is made.twice
    ids = torch.arange(16)
    with torch.inference_mode():
        found = made(ids)
        x = made.tokens(ids)
        for weight in (made.twice.weight, made.twice.weight, made.head.weight):
            x = (x.double() @ weight.double().t()).to(HALF)
    torch.testing.assert_close(found.double(), x.double(), rtol=1e-2, atol=1e-2)
    assert found.abs().max() > 0
    assert launcher.counters()["hits"] == 3


def test_hooks_run(served: Started) -> None:
    made = layer()
    seen: list[str] = []
    made.register_forward_pre_hook(lambda *_: seen.append("before"))
    made.register_forward_hook(lambda _, __, y: (seen.append("after"), y + 1)[1])
    made.register_full_backward_hook(lambda *_: seen.append("backward"))
    hgemm_packs.optimize(made)
    x, weight = operands()
    with torch.inference_mode():
        reference.assert_exact(made(x) - 1, x, weight.t())
    made(x.clone().requires_grad_()).sum().backward()
    assert seen == ["before", "after", "before", "after", "backward"]
    assert served.fallbacks() == {"autograd": 1} and launcher.counters()["hits"] == 1


class Own(torch.nn.Linear):
    """A subclass with a forward of its own."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) * 2


class Twice(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_other_layers_are_left_alone(served: Started) -> None:
    patched, parametrized = layer(), layer()
    patched.forward = lambda x: x  # type: ignore[method-assign]
    parametrize.register_parametrization(parametrized, "weight", Twice())
    attention = torch.nn.MultiheadAttention(32, 4, dtype=HALF)
    others = [
        Own(32, 8, dtype=HALF),
        patched,
        parametrized,
        attention,
        torch.nn.LazyLinear(8, dtype=HALF),
        torch.nn.Bilinear(8, 8, 8),
    ]
    made = torch.nn.ModuleList(others)
    before = [type(each) for each in made.modules()]
    x = operands()[0]
    with torch.inference_mode():
        wanted = [others[0](x), parametrized(x), attention(x, x, x)[0]]
        hgemm_packs.optimize(made)
        found = [others[0](x), parametrized(x), attention(x, x, x)[0]]
    assert [type(each) for each in made.modules()] == before
    assert all(torch.equal(one, two) for one, two in zip(found, wanted, strict=True))
    assert patched(x) is x
    assert launcher.counters()["hits"] == 0 == launcher.counters()["fallbacks"]
    # What has become one of torch's own is found by another call.
    parametrize.remove_parametrizations(parametrized, "weight")
    del patched.forward
    hgemm_packs.optimize(made)
    assert type(parametrized) is nn.Linear is type(patched)


def test_a_layer_is_parametrized_afterwards(served: Started) -> None:
    made = hgemm_packs.optimize(layer())
    parametrize.register_parametrization(made, "weight", Twice())
    x, weight = operands()
    with torch.inference_mode():
        reference.assert_exact(made(x) / 2, x, weight.t())
    assert isinstance(made, nn.Linear) and launcher.counters()["hits"] == 1
    changed = type(made)
    assert type(hgemm_packs.restore(made)) is changed  # a subclass now
    parametrize.remove_parametrizations(made, "weight")
    assert type(made) is nn.Linear


def test_a_layer_without_members_has_the_same_forward(served: Started) -> None:
    x, weight = operands()
    made = layer()
    with torch.inference_mode():
        y = nn.StatelessLinear.forward(made, x)  # type: ignore[arg-type]
    reference.assert_exact(y, x, weight.t())
    assert launcher.counters()["hits"] == 1 and not vars(nn.StatelessLinear()).get("weight")


@pytest.mark.parametrize("function", [hgemm_packs.optimize, hgemm_packs.restore])
def test_only_modules_are_taken(function: Any) -> None:
    with pytest.raises(TypeError, match=f"{function.__name__}: model is a dict, not a torch.nn.M"):
        function({})
    with pytest.raises(TypeError, match="model is a type, not"):
        function(torch.nn.Linear)


def test_the_names_are_found_without_torch_before() -> None:
    script = (
        "import sys, hgemm_packs\n"
        "print('torch' in sys.modules)\n"
        "print(*(hgemm_packs.__getattr__(name).__name__ for name in NAMES))\n"
    )
    names = "NAMES = ('optimize', 'restore', 'warmup')\n"
    assert run(names + script).split() == ["False", "optimize", "restore", "warmup"]


def prune_weight(made: torch.nn.Linear) -> None:
    prune.l1_unstructured(made, "weight", 0.5)


def prune_bias(made: torch.nn.Linear) -> None:
    prune.l1_unstructured(made, "bias", 0.5)


def parametrize_weight(made: torch.nn.Linear) -> None:
    parametrize.register_parametrization(made, "weight", torch.nn.ReLU())


@pytest.mark.parametrize("change", [prune_weight, prune_bias, parametrize_weight])
def test_a_layer_heeds_what_stands_for_its_parameters(change: Any) -> None:
    torch.manual_seed(0)
    plain = torch.nn.Linear(32, 40, dtype=HALF)
    ours = hgemm_packs.optimize(copy.deepcopy(plain))
    x = torch.randn(4, 32).to(HALF)
    before = ours(x)
    for each in (plain, ours):
        change(each)
    assert torch.equal(ours(x), plain(x)) and not torch.equal(ours(x), before)


def test_a_layer_heeds_parameters_that_are_lent_to_it() -> None:
    made = hgemm_packs.optimize(layer())
    x, weight = operands()
    lent = torch.func.functional_call(made, {"weight": 2 * weight}, (x,))
    reference.assert_exact(lent, x, 2 * weight.t())
