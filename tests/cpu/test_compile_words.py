"""`torch.compile` over our calls: right, in one graph, and without a warning."""

from __future__ import annotations

import pytest

from tests.cpu.common.scripts import run

COMPILED = """
import torch
from hgemm_packs import matmul
from hgemm_packs.nn import Linear

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = Linear(8, 8, bias=False)
        self.layer.weight = torch.nn.Parameter(torch.eye(8).half(), requires_grad=False)

    def forward(self, x):
        return self.layer(matmul(x + x, x) + 1) * 2

x = torch.eye(8).half()
compiled = torch.compile(Model(), backend="eager", fullgraph=True)
print(torch.equal(compiled(x), (2 * x + 1) * 2))
print(torch._dynamo.utils.counters["graph_break"].total())
"""


@pytest.mark.parametrize("first", ["", "import torch._dynamo\n"])
def test_newcomer_11_no_warning_asks_for_a_report_to_pytorch(first: str) -> None:
    """Four lines of warning asked users to file an issue with PyTorch, for Dynamo knows no C
    functions; and its graph broke at each call."""
    said = run(first + COMPILED, HGEMM_PACKS_LOG="error")
    assert said.splitlines() == ["True", "0"]


def test_newcomer_11_a_users_errors_for_warnings_do_not_break_it() -> None:
    strict = "import warnings\nwarnings.simplefilter('error', UserWarning)\n"
    assert run(strict + COMPILED, HGEMM_PACKS_LOG="error").splitlines()[0] == "True"
