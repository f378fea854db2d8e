"""Libraries that look for torch.nn.Linear in a model, or give its layers classes of their own."""

from __future__ import annotations

import copy

import pytest
import torch

import hgemm_packs
from hgemm_packs import launcher, nn
from tests import reference
from tests.cpu.common.scripts import run
from tests.fake_driver import Started

HALF = torch.float16


class Model(torch.nn.Module):
    """A layer without a bias and one with."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(32, 64, bias=False, dtype=HALF)
        self.down = torch.nn.Linear(64, 8, dtype=HALF)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(torch.relu(self.up(x)))
        return y


@pytest.fixture
def plain() -> Model:
    torch.manual_seed(0)
    return Model()


def test_lora_of_peft_finds_the_layers(served: Started, plain: Model) -> None:
    import peft
    from peft.tuners import lora

    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["up"], init_lora_weights=False)
    made = peft.inject_adapter_in_model(config, hgemm_packs.optimize(copy.deepcopy(plain)))
    up = made.up
    assert isinstance(up, lora.Linear) and type(up.base_layer) is nn.Linear
    low, high = (each["default"].weight for each in (up.lora_A, up.lora_B))
    assert low.shape == (4, 32) and high.abs().max() > 0
    x = torch.randn(16, 32).to(HALF)
    with torch.inference_mode():
        found = up(x)
    change = 2 * (high.double() @ low.double())
    exact = x.double() @ (plain.up.weight.double() + change).t()
    torch.testing.assert_close(found.double(), exact, rtol=5e-3, atol=5e-3)
    assert launcher.counters()["hits"] == 1  # of the layer below; the adapter's are torch's
    # Only the adapter learns.
    made(x).float().sum().backward()
    learnt = {name for name, each in made.named_parameters() if each.grad is not None}
    assert learnt == {f"up.lora_{which}.default.weight" for which in "AB"}
    assert launcher.counters()["hits"] == 2  # a frozen weight records no gradient
    # Merged into the weight that the kernel reads.
    up.merge()
    with torch.inference_mode():
        reference.assert_product(up(x), x, up.base_layer.weight.t())
        torch.testing.assert_close(up(x).double(), exact, rtol=5e-3, atol=5e-3)
    assert launcher.counters()["hits"] == 4


def test_the_layers_of_an_adapter_are_served_too(served: Started, plain: Model) -> None:
    import peft

    config = peft.LoraConfig(r=8, target_modules=["up"], init_lora_weights=False)
    made = hgemm_packs.optimize(peft.inject_adapter_in_model(config, plain))
    with torch.inference_mode():
        made.up(torch.randn(16, 32).to(HALF))
    assert launcher.counters()["hits"] == 3
    assert type(made.up.lora_A["default"]) is nn.Linear


SHARDED = """
import copy, sys, torch, hgemm_packs
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from hgemm_packs import counters, nn

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cpu", (1,))
torch.manual_seed(0)
plain = torch.nn.Sequential(
    torch.nn.Linear(32, 64, bias=False), torch.nn.ReLU(), torch.nn.Linear(64, 8)
).bfloat16()
made = copy.deepcopy(plain)
if ORDER == "optimized first":
    hgemm_packs.optimize(made)
fully_shard(made[0], mesh=mesh)  # a layer that is sharded itself gets a class of FSDP's
fully_shard(made, mesh=mesh)
if ORDER == "sharded first":
    hgemm_packs.optimize(made)
print(isinstance(made[0], FSDPModule), isinstance(made[0], torch.nn.Linear))
print(type(made[2]) is nn.Linear)
print(isinstance(made[0], nn.Linear), type(made[0].weight).__name__)
print(hgemm_packs.warmup(made, [16]))
x = torch.randn(16, 32).bfloat16()
found, wanted = made(x), plain(x)
print(torch.equal(found, wanted), counters()["fallbacks"])
for each in (found, wanted):
    each.float().square().sum().backward()
for one, two in zip(made.parameters(), plain.parameters(), strict=True):
    print(torch.equal(one.grad.full_tensor(), two.grad), bool(two.grad.abs().max() > 0))
with torch.inference_mode():
    print(torch.equal(made(x), plain(x)))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("order", ["optimized first", "sharded first"])
def test_a_sharded_model_computes_what_it_did(order: str) -> None:
    lines = run(f"ORDER = {order!r}\n{SHARDED}", HGEMM_PACKS_LOG="error").splitlines()
    said = [line for line in lines if not line.startswith("[Gloo]")]
    first = order == "optimized first"
    assert said == [
        "True True",
        "True",
        f"{first} DTensor",
        "0",
        f"True {2 if first else 1}",
        *["True True"] * 3,
        "True",
    ]


def test_a_traced_graph_has_torchs_function(served: Started, plain: Model) -> None:
    wanted = plain(torch.eye(32, dtype=HALF))
    traced = torch.fx.symbolic_trace(hgemm_packs.optimize(plain))
    called = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    assert called.count(torch.nn.functional.linear) == 2
    assert torch.equal(traced(torch.eye(32, dtype=HALF)), wanted)
