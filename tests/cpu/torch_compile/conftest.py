"""torch.compile on the stand-in driver: Dynamo and Inductor meet the fresh extension."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo  # by now Dynamo knows the functions of the process's own extension

from hgemm_packs.torch_compile import choice, lowering, operators
from tests.fake_driver import Started

#: Dynamo knows functions by their addresses, so that no later one may have an earlier one's.
_replaced: list[object] = []


@pytest.fixture
def compiler(fake: Started, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """`fake`, whose policy also decides what graphs are traced to."""
    from torch._inductor.select_algorithm import extern_kernels

    operators.register()
    lowering.register()
    ours = fake.matmul, fake.linear, fake.extension.fused_linear
    operators.replace(*ours)
    _replaced.extend(ours)
    monkeypatch.setattr(extern_kernels, lowering.NAME, fake.matmul)
    monkeypatch.setattr(extern_kernels, lowering.ADDMM, fake.extension.addmm)
    monkeypatch.setattr(choice, "tables", lambda: "of a test")
    torch._dynamo.reset()
    with torch._inductor.utils.fresh_cache():
        yield fake
    torch._dynamo.reset()
